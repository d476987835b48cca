//! What a kernel must do for us, once for the in-memory kernel and once for the real one.
//!
//! Each scenario has a name, a reason and a function over a [`Bench`]. It starts from two
//! cards that are up and have nothing, may leave any routes, rules and addresses behind,
//! and panics when the kernel disappoints. [`tidy`] brings the bench back by the means
//! that leaseroute itself has, so every scenario can follow every other one.

mod bench;
mod links;
mod real;
mod routes;
mod rules;

pub use bench::{Bench, FakeBench, tidy};
pub use real::RealBench;

/// One thing that must hold.
pub struct Scenario<B> {
    /// Its name, in words.
    pub name: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// Plays it; panics when it does not hold.
    pub play: fn(&B),
}

/// All scenarios.
#[must_use]
pub fn all<B: Bench>() -> Vec<Scenario<B>> {
    let mut list = Vec::new();
    list.extend(routes::scenarios());
    list.extend(rules::scenarios());
    list.extend(links::scenarios());
    list
}
