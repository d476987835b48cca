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
//!
//! # Example
//!
//! What a hook of dhclient was told, on a host whose state was saved as JSON:
//!
//! ```
//! use leaseroute_core::{
//!     Client, Family, Host, LeaseBook, RawEvent, Settings, When, desired_state, plan,
//! };
//!
//! let variables = [
//!     ("reason", "BOUND"),
//!     ("interface", "eth1"),
//!     ("new_ip_address", "198.51.100.5"),
//!     ("new_subnet_mask", "255.255.255.0"),
//!     ("new_routers", "198.51.100.1"),
//! ];
//! let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned()));
//! let raw = RawEvent::new(Client::Dhclient, variables.into());
//! let host: Host = serde_json::from_str(
//!     r#"{
//!         "links": {"3": {"index": 3, "name": "eth1", "mtu": 1500, "up": true}},
//!         "addresses": [{"index": 3, "address": "198.51.100.5/24"}],
//!         "rules": [{"family": "ipv4", "priority": 0, "action": "lookup", "table": 255, "protocol": 2}]
//!     }"#,
//! )?;
//! let settings = Settings { when: When::Always, ..Settings::default() };
//!
//! let event = raw.client.parse(&raw)?.event.ok_or("no change")?;
//! let mut book = LeaseBook::default();
//! book.fold(&event, Some(&raw), &host, 0);
//! let desired = desired_state(Family::Ipv4, &host, &book, &settings);
//! let plan = plan(&desired, &host, &settings);
//!
//! let commands: Vec<String> = plan.steps.iter().map(|step| plan.command(step).to_string()).collect();
//! assert_eq!(
//!     commands[..3],
//!     [
//!         "ip -4 route add 198.51.100.0/24 dev eth1 scope link table 76003 protocol 76",
//!         "ip -4 route add default via 198.51.100.1 dev eth1 table 76003 protocol 76",
//!         "ip -4 rule add priority 7610 from 198.51.100.5 lookup 76003 suppress_prefixlength 0 protocol 76",
//!     ]
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod book;
pub mod client;
mod diff;
mod event;
pub mod export;
mod host;
mod interface;
mod lease;
mod metadata;
pub mod model;
mod note;
mod numbers;
mod plan;
mod route;
mod rule;
mod settings;
pub mod stored;

pub use address::{Family, is_link_local, is_unicast_host};
pub use book::{ANNOUNCED, Effect, Folded, LeaseBook, Record, RecordKey};
pub use client::Client;
pub use diff::{plan, removal};
pub use event::{Dropped, Event, LeaseChange, LeaseFile, Parsed, Quoted, RawEvent, Refusal};
pub use host::{AddressFlags, Host, Link, LinkAddress};
pub use interface::{
    Device, IfIndex, InterfaceName, InterfaceRef, InvalidInterface, InvalidMac, Mac,
};
pub use lease::{
    ClasslessRoute, ClasslessRoutes, GivenRoute6, Lease, Lease4, Lease6, LeaseState, LeasedAddress,
    LeasedPrefix, MAX_LEASE_ROUTES, RouteOption,
};
pub use metadata::{CardMetadata, Said};
pub use model::{DesiredState, Purpose, Uplink, desired_state};
pub use note::Note;
pub use numbers::{InvalidNumber, Priority, ProtocolId, TableId};
pub use plan::{Address, Operation, Plan, Step};
pub use route::{ObservedRoute, Route, RouteKind, RouterPreference};
pub use rule::{ObservedRule, RawRule, Rule, RuleAction, Selector};
pub use settings::{
    Endpoint, InterfaceMatch, InterfaceSettings, InvalidEndpoint, InvalidPattern, InvalidProvider,
    Managed, MetadataSettings, POSITION_SPAN, PROVIDERS, Pattern, ProviderChoice, RULE_SPAN,
    Settings, TableScheme, When,
};
