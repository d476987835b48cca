//! The routing model: which routes and rules a host should have.

use std::fmt;

use serde::Serialize;

use crate::address::Family;
use crate::book::LeaseBook;
use crate::host::Host;
use crate::interface::Device;
use crate::lease::RouteOption;
use crate::note::Note;
use crate::numbers::TableId;
use crate::route::{ObservedRoute, Route};
use crate::rule::{ObservedRule, Rule};
use crate::settings::Settings;

/// What an object is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "purpose", rename_all = "snake_case")]
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
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnLink => f.write_str("on-link prefix"),
            Self::Gateway => f.write_str("way to the gateway"),
            Self::LeaseRoute { option } => write!(f, "lease route ({option})"),
            Self::AdvertisedRoute => f.write_str("advertised route"),
            Self::Neighbour { device } => write!(f, "prefix of {device}, by the own gateway"),
            Self::Default => f.write_str("own default"),
            Self::Rule { device, why } => write!(f, "{device}: {why}"),
            Self::LocalFirst => f.write_str("the host's own addresses first"),
        }
    }
}

/// Why an interface counts as an uplink, and what it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uplink {
    /// The interface.
    pub device: Device,
    /// Its own table; `None` when it gets nothing (not managed, or nothing to route by).
    pub table: Option<TableId>,
    /// The sources whose packets must leave by it.
    pub sources: Vec<ipnetwork::IpNetwork>,
}

/// Everything that should be there for one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesiredState {
    /// The family.
    pub family: Family,
    /// The uplinks, by index.
    pub uplinks: Vec<Uplink>,
    /// The wanted routes with their purposes, in the order they have to be added.
    pub routes: Vec<(Route, Purpose)>,
    /// The wanted rules with their purposes, by priority.
    pub rules: Vec<(Rule, Purpose)>,
    /// Rules of ours that stay because nobody said that their lease is gone.
    pub kept_rules: Vec<ObservedRule>,
    /// Routes of ours that stay for the same reason.
    pub kept_routes: Vec<ObservedRoute>,
    /// What an administrator should know.
    pub notes: Vec<Note>,
}

/// What should be there for one family.
#[must_use]
pub fn desired_state(
    family: Family,
    host: &Host,
    book: &LeaseBook,
    settings: &Settings,
) -> DesiredState {
    let _ = (host, book, settings);
    DesiredState {
        family,
        uplinks: Vec::new(),
        routes: Vec::new(),
        rules: Vec::new(),
        kept_rules: Vec::new(),
        kept_routes: Vec::new(),
        notes: Vec::new(),
    }
}
