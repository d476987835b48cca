//! The shell around leaseroute's core: it captures what a hook received, remembers leases,
//! takes the lock, reads the kernel, applies the plan, reads back and reports.
//!
//! One path serves hooks and the command line; they differ in what starts it:
//!
//! ```text
//! hook::run ─▶ capture ─▶ parse ─▶ Engine::take ─▶ lock ─▶ fold ─▶ reconcile ─▶ report
//! ```
//!
//! Nothing is decided here that could be decided in `leaseroute-core`.

pub mod adopt;
pub mod capture;
pub mod engine;
pub mod error;
pub mod exit;
mod files;
pub mod hook;
mod lock;
pub mod logging;
pub mod paths;
pub mod reconcile;
pub mod sandbox;
pub mod snapshot;
pub mod state;
pub mod wake;
mod writer;

pub use engine::{Engine, EngineError, Held, Outcome, Removal, Task, Turn, Waiter};
pub use paths::Paths;
pub use reconcile::{Failure, Report};
pub use state::{LastRun, StateError, StateFolder};
