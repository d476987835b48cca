//! The same for programs: a value that serializes.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::Serialize;

use crate::address::Family;
use crate::export::Inputs;
use crate::export::card::{Card, Part, local_first};
use crate::interface::{Device, Mac};
use crate::numbers::TableId;
use crate::route::Route;
use crate::rule::Rule;

/// All cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The cards, the first one first.
    pub cards: Vec<CardDescription>,
    /// The rules that belong to no card.
    pub shared_rules: Vec<Rule>,
}

/// One card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CardDescription {
    /// The interface.
    #[serde(flatten)]
    pub device: Device,
    /// Its hardware address, if it has one.
    pub mac: Option<Mac>,
    /// The kind of a virtual device; `None` for hardware.
    pub kind: Option<String>,
    /// The metric that exported files give to what its client puts into table main.
    pub route_metric: u32,
    /// Both families, IPv4 first.
    pub families: Vec<FamilyDescription>,
}

/// One card in one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FamilyDescription {
    /// The family.
    pub family: Family,
    /// Whether the number of uplinks calls for rules at all.
    pub active: bool,
    /// Whether DHCP or router advertisements give the card its addresses.
    pub automatic: bool,
    /// Addresses that nobody leased, with the lengths of their prefixes.
    pub addresses: Vec<IpNetwork>,
    /// Its table; `None` when it gets nothing.
    pub table: Option<TableId>,
    /// Its gateway: that of its first default route.
    pub gateway: Option<IpAddr>,
    /// Its sources, those of the lease first.
    pub sources: Vec<IpNetwork>,
    /// The routes of its table, in the order in which they can be added.
    pub routes: Vec<Route>,
    /// Prefixes of the host's own networks that have to be looked up in table main.
    pub inner: Vec<IpNetwork>,
    /// Its rules, by priority.
    pub rules: Vec<Rule>,
}

/// Puts the desired state of both families into one value.
#[must_use]
pub fn describe(inputs: Inputs<'_>) -> Description {
    let cards = Card::all(inputs);
    Description {
        cards: cards.iter().map(card).collect(),
        shared_rules: local_first(inputs).into_iter().cloned().collect(),
    }
}

fn card(card: &Card<'_>) -> CardDescription {
    CardDescription {
        device: card.link.device(),
        mac: card.link.mac,
        kind: card.link.kind.clone(),
        route_metric: card.metric,
        families: card.parts().into_iter().map(family).collect(),
    }
}

fn family(part: &Part) -> FamilyDescription {
    let defaults = part.routes.iter().filter(|r| r.destination.prefix() == 0);
    FamilyDescription {
        family: part.family,
        active: part.active,
        automatic: part.automatic,
        addresses: part.addresses.clone(),
        table: part.table,
        gateway: defaults.filter_map(|route| route.gateway).next(),
        sources: part.sources.clone(),
        routes: part.shadowed.iter().chain(&part.routes).cloned().collect(),
        inner: part.inner.iter().copied().collect(),
        rules: part.rules.clone(),
    }
}
