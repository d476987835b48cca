//! What the metadata services of clouds say of a card, which no lease carries: secondary
//! addresses, delegated prefixes.
//!
//! A provider is one file without any I/O: it says what to ask next given what was answered,
//! and reads the answers. What the card itself shows decides whether they can be true yet:
//! a service lags behind a card that was just plugged in.
//!
//! A [`Session`] decides when to ask, without a clock of its own; [`ask`] and [`Sessions`] give it
//! clock and sockets, and are all of this crate that needs a runtime.
//!
//! ```text
//! Card ─┐
//!       ├─▶ Provider::step ─▶ Ask(Request) ─▶ driver ─▶ Answers ─┐
//!       │        ▲                                               │
//!       │        └───────────────────────────────────────────────┘
//!       └──────────────▶ Step::Said(Description) ─▶ judge ─▶ Findings
//! ```

mod asker;
mod card;
mod config_drive;
mod exchange;
mod finding;
mod http;
mod machine;
mod pace;
mod provider;
mod providers;
mod session;

pub use asker::{Asker, Cards, Outcome, Sessions, ask};
pub use card::Card;
pub use config_drive::ConfigDrive;
pub use exchange::{Answer, Answers, Method, Request};
pub use finding::{Finding, Findings, Why, judge};
pub use pace::Pace;
pub use provider::{Description, Identity, Provider, Step, Way, all, by_name, detect};
pub use session::{Chance, End, Limits, MOST_REQUESTS, Next, Reply, Session};
