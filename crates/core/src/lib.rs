//! The pure heart of leaseroute: what a DHCP client said and what the kernel shows
//! go in, an ordered plan of route and rule changes comes out.
//!
//! Nothing here touches the system. There are no files, sockets, clocks, environment
//! variables and no async in this crate, and it depends on no crate that has them; a
//! caller passes in whatever is needed. A test in the workspace holds that.
//!
//! ```text
//! RawEvent ──parse──▶ Event ──fold──▶ LeaseBook ─┐
//! Host (links, addresses, rules, routes) ────────┼─▶ DesiredState ──plan──▶ Plan
//! Settings ──────────────────────────────────────┘
//! ```

mod address;
mod book;
pub mod client;
mod diff;
mod event;
mod host;
mod interface;
mod lease;
pub mod model;
mod note;
mod numbers;
mod plan;
mod route;
mod rule;
mod settings;

pub use address::{Family, is_link_local, is_unicast_host};
pub use book::{Folded, LeaseBook, Record, RecordKey};
pub use client::Client;
pub use diff::{plan, removal};
pub use event::{Dropped, Event, LeaseChange, Parsed, Quoted, RawEvent, Refusal};
pub use host::{AddressFlags, Host, Link, LinkAddress};
pub use interface::{
    Device, IfIndex, InterfaceName, InterfaceRef, InvalidInterface, InvalidMac, Mac,
};
pub use lease::{
    ClasslessRoute, ClasslessRoutes, Lease, Lease4, Lease6, LeaseState, LeasedAddress,
    LeasedPrefix, MAX_LEASE_ROUTES, RouteOption,
};
pub use model::{DesiredState, Purpose, Uplink, desired_state};
pub use note::Note;
pub use numbers::{InvalidNumber, Priority, ProtocolId, TableId};
pub use plan::{Operation, Plan, Step};
pub use route::{ObservedRoute, Route, RouteKind, RouterPreference};
pub use rule::{ObservedRule, RawRule, Rule, RuleAction, Selector};
pub use settings::{
    InterfaceMatch, InterfaceSettings, InvalidPattern, Managed, POSITION_SPAN, Pattern, RULE_SPAN,
    Settings, TableScheme, When,
};
