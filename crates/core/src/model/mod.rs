//! The routing model: which routes and rules a host should have.
//!
//! Each managed uplink has a table of its own with its on-link prefixes, the routes of its
//! lease, the other uplinks' prefixes by its own gateway, and its default. Each source
//! address gets three rules, so that the host's other routes keep working. The files
//! here: `uplink` finds the uplinks and their sources, `numbering` gives out tables,
//! `table` fills them, `rules` holds the rules, `assigned` the addresses that a metadata
//! service calls for, `checks` what an administrator should know.

mod assigned;
mod checks;
mod numbering;
mod rules;
mod table;
mod uplink;

use std::collections::BTreeSet;
use std::fmt;

use ipnetwork::IpNetwork;
use serde::Serialize;

use crate::address::Family;
use crate::book::LeaseBook;
use crate::host::{Host, LinkAddress};
use crate::interface::Device;
use crate::lease::RouteOption;
use crate::note::Note;
use crate::numbers::TableId;
use crate::plan::Address;
use crate::route::{ObservedRoute, Route};
use crate::rule::Rule;
use crate::settings::{Settings, When};

pub use numbering::tables_to_read;
pub use uplink::candidates6;
pub(crate) use uplink::inner_prefixes;

/// What an object is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Purpose {
    /// A prefix that is on the interface's own link.
    OnLink,
    /// The way to a gateway that no on-link prefix covers.
    Gateway,
    /// A route that the lease carries.
    LeaseRoute {
        /// The option it came from.
        option: RouteOption,
    },
    /// A route that a router advertisement carries (RFC 4191).
    AdvertisedRoute,
    /// Another uplink's prefix, sent by this interface's own gateway.
    Neighbour {
        /// The other uplink.
        device: Device,
    },
    /// A prefix of the host's own networks (containers, VPNs) that a shorter prefix of
    /// the table would hide.
    Inner {
        /// The interface it is on.
        device: Device,
    },
    /// The interface's own default route.
    Default,
    /// A rule for one selector of an interface.
    Rule {
        /// The interface.
        device: Device,
        /// Why the rule exists.
        why: &'static str,
    },
    /// The rule that keeps the host's own addresses first.
    LocalFirst,
    /// An address that a metadata service says the interface has.
    Assigned,
}

impl Purpose {
    /// Whether the table is of no use without this route, so that no rule may lead to it.
    #[must_use]
    pub fn is_essential(&self) -> bool {
        matches!(self, Self::OnLink | Self::Gateway | Self::Default)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnLink => f.write_str("on-link prefix"),
            Self::Gateway => f.write_str("way to the gateway"),
            Self::LeaseRoute { option } => write!(f, "route of the lease ({option})"),
            Self::AdvertisedRoute => f.write_str("route of the router advertisement"),
            Self::Neighbour { device } => write!(f, "prefix of {device}, by the own gateway"),
            Self::Inner { device } => write!(f, "prefix of {device} on this host"),
            Self::Default => f.write_str("own default"),
            Self::Rule { device, why } => write!(f, "{device}: {why}"),
            Self::Assigned => f.write_str("address by the metadata service"),
            Self::LocalFirst => f.write_str("the host's own addresses first"),
        }
    }
}

/// An interface that holds a lease or an advertised address, or that a default route of
/// table main leads through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uplink {
    /// The interface.
    pub device: Device,
    /// Its own table; `None` when it gets nothing (not managed, or no source on it).
    pub table: Option<TableId>,
    /// The sources whose packets must leave by it.
    pub sources: BTreeSet<IpNetwork>,
}

/// Everything that should be there for one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesiredState {
    /// The family.
    pub family: Family,
    /// The uplinks, by index.
    pub uplinks: Vec<Uplink>,
    /// Whether the number of uplinks calls for anything at all.
    pub active: bool,
    /// The addresses that the metadata service calls for and that nobody else put there.
    pub addresses: Vec<(Address, Purpose)>,
    /// Addresses of ours that stay because nobody said whether they are still the card's.
    pub kept_addresses: Vec<LinkAddress>,
    /// The wanted routes with their purposes, in the order they have to be added.
    pub routes: Vec<(Route, Purpose)>,
    /// The wanted rules with their purposes, by priority.
    pub rules: Vec<(Rule, Purpose)>,
    /// Routes of ours that stay because nobody said whether their lease still lives.
    pub kept_routes: Vec<ObservedRoute>,
    /// What an administrator should know.
    pub notes: Vec<Note>,
}

/// What the model works on: one moment of the host, what is known of its leases, and how
/// it is configured.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    family: Family,
    host: &'a Host,
    book: &'a LeaseBook,
    settings: &'a Settings,
}

/// What should be there for one family.
///
/// `host` holds the family's addresses, rules, and the routes of main and of our tables;
/// with tables by position it holds those of the other family too, since a table has the
/// same number in both.
#[must_use]
pub fn desired_state(
    family: Family,
    host: &Host,
    book: &LeaseBook,
    settings: &Settings,
) -> DesiredState {
    let inputs = Inputs {
        family,
        host,
        book,
        settings,
    };
    let addresses = assigned::wanted(inputs);
    let kept_addresses = assigned::kept(inputs);
    let settled = assigned::settled(inputs, &addresses, &kept_addresses);
    let inputs = Inputs {
        host: settled.as_ref().unwrap_or(host),
        ..inputs
    };
    let mut notes = Vec::new();
    let found = uplink::find(inputs, &mut notes);
    let tables = numbering::assign(inputs, &found, &mut notes);
    let active = match settings.when {
        When::Multihomed => found.len() >= 2,
        When::Always => true,
    };

    let mut state = DesiredState {
        family,
        uplinks: Vec::new(),
        active,
        addresses,
        kept_addresses,
        routes: Vec::new(),
        rules: Vec::new(),
        kept_routes: Vec::new(),
        notes,
    };
    let is_uplink = |index| found.iter().any(|uplink| uplink.link.index == index);
    let inner = uplink::inner_prefixes(inputs.family, inputs.host, is_uplink);
    for uplink in &found {
        let table = tables.get(&uplink.link.index).copied();
        let table = table.filter(|_| active && uplink.managed && !uplink.sources.is_empty());
        if let Some(table) = table {
            if uplink.routes_known {
                let others = found.iter().filter(|o| o.link.index != uplink.link.index);
                state
                    .routes
                    .extend(table::routes(family, uplink, table, others, &inner));
            } else {
                state.kept_routes.extend(kept(inputs, table));
            }
            state.rules.extend(rules::of(inputs, uplink, table));
        }
        state.uplinks.push(Uplink {
            device: uplink.link.device(),
            table,
            sources: uplink.sources.clone(),
        });
    }
    rules::order(inputs, &mut state.rules);
    checks::add(inputs, &found, &mut state);
    state
}

/// Our routes in the table of an interface whose lease is unknown.
fn kept(inputs: Inputs<'_>, table: TableId) -> impl Iterator<Item = ObservedRoute> {
    let Inputs {
        family,
        host,
        settings,
        ..
    } = inputs;
    let ours = host.own_tables.iter().filter(move |route| {
        route.table == table && route.family() == family && settings.owns_route(route)
    });
    ours.cloned()
}
