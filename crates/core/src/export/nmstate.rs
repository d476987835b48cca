//! nmstate, one file for all cards.
//!
//! Its rules know no device that a socket is bound to, and its routes no `throw`, no
//! gateway that is on-link by word alone, and no preference.

use ipnetwork::IpNetwork;

use crate::address::Family;
use crate::export::card::{Card, Part, local_first};
use crate::export::text::{comment, header, inactive};
use crate::export::yaml::{Map, Value};
use crate::export::{Export, ExportedFile, Inputs, Reader};
use crate::numbers::TableId;
use crate::route::{Route, RouterPreference};
use crate::rule::{Rule, Selector};

/// Where it is read.
pub(super) const READER: Reader = Reader {
    folder: "/etc/nmstate",
    prefix: "70-leaseroute",
    suffix: ".yml",
    command: "systemctl restart nmstate.service",
};

pub(super) fn export(inputs: Inputs<'_>, cards: &[Card<'_>]) -> Export {
    let mut export = Export::default();
    let mut interfaces = Vec::new();
    let mut routes = Vec::new();
    let mut rules: Vec<Map> = local_first(inputs).into_iter().filter_map(rule).collect();
    for card in cards {
        if !card.is_simple() {
            export.notes.push(format!(
                "left out: {} is no plain card, and its own description says of what it is made; add routes and rules there",
                crate::Quoted(card.link.name.as_str())
            ));
            continue;
        }
        interfaces.push(interface(card));
        for part in card.parts() {
            routes.extend(part.main.iter().chain(&part.routes).map(route));
            rules.extend(part.rules.iter().filter_map(rule));
        }
    }

    let mut text = header("leaseroute export --format nmstate --persist");
    for line in limits(cards) {
        text.push_str(&comment(&line));
    }
    let mut document = Map::default();
    document.put("interfaces", Value::List(interfaces));
    for (key, list) in [("routes", routes), ("route-rules", rules)] {
        if !list.is_empty() {
            let mut config = Map::default();
            config.put("config", Value::List(list));
            document.put(key, Value::Map(config));
        }
    }
    text.push_str(&document.document());
    export.files.push(ExportedFile {
        path: "/etc/nmstate/70-leaseroute.yml".to_owned(),
        mode: 0o644,
        text,
    });
    export
}

/// What cannot be said of these cards.
fn limits(cards: &[Card<'_>]) -> Vec<String> {
    let mut limits = Vec::new();
    let parts = || cards.iter().flat_map(Card::parts);
    if parts().any(|part| part.table.is_some()) {
        limits.push(
            "nmstate has no rules for a device: a socket that is bound to a card and to no address goes by table main."
                .to_owned(),
        );
    }
    for inner in parts().flat_map(|part| &part.shadowed) {
        limits.push(format!(
            "nmstate has no throw routes: {} is a network of this host, and a route of table {} hides it from packets of that card's sources.",
            inner.destination, inner.table
        ));
    }
    let routes = || parts().flat_map(|part| &part.routes);
    if routes().any(|route| route.onlink) {
        limits.push(
            "nmstate cannot say that a gateway is on-link: the on-link route to it, which is in the same table, has to do."
                .to_owned(),
        );
    }
    if routes().any(|route| route.preference != RouterPreference::Medium) {
        limits.push(
            "nmstate knows no preference of routers; the metrics keep the same order.".to_owned(),
        );
    }
    limits
}

fn interface(card: &Card<'_>) -> Map {
    let mut map = Map::default();
    map.put("name", Value::text(&card.link.name));
    map.put("type", Value::Word("ethernet"));
    map.put("state", Value::Word("up"));
    for part in card.parts() {
        if !part.active && part.is_used() {
            map.say(&inactive(part.family));
        }
        let key = match part.family {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        };
        map.put(key, Value::Map(family(card, part)));
    }
    map
}

fn family(card: &Card<'_>, part: &Part) -> Map {
    let mut map = Map::default();
    // Without IPv6 a card has no link-local address either.
    let enabled = part.is_used() || part.family == Family::Ipv6;
    map.put("enabled", Value::Flag(enabled));
    if !enabled {
        return map;
    }
    map.put("dhcp", Value::Flag(part.automatic));
    if part.family == Family::Ipv6 {
        map.put("autoconf", Value::Flag(part.automatic));
    }
    if part.automatic {
        map.put("auto-route-metric", Value::number(card.metric));
    }
    if !part.addresses.is_empty() {
        let address = |address: &IpNetwork| {
            let mut map = Map::default();
            map.put("ip", Value::text(address.ip()));
            map.put("prefix-length", Value::number(address.prefix()));
            map
        };
        let addresses = part.addresses.iter().map(address).collect();
        map.put("address", Value::List(addresses));
    }
    map
}

fn route(route: &Route) -> Map {
    let mut map = Map::default();
    map.put("destination", Value::text(route.destination));
    if let Some(gateway) = route.gateway {
        map.put("next-hop-address", Value::text(gateway));
    }
    map.put("next-hop-interface", Value::text(&route.device.name));
    if route.table != TableId::MAIN {
        map.put("table-id", Value::number(route.table.get()));
    }
    if route.metric != 0 {
        map.put("metric", Value::number(route.metric));
    }
    if let Some(mtu) = route.mtu {
        map.put("mtu", Value::number(mtu));
    }
    map
}

/// A rule; `None` for one that cannot be said.
fn rule(rule: &Rule) -> Option<Map> {
    let mut map = Map::default();
    let family = match rule.family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    };
    map.put("family", Value::Word(family));
    match &rule.selector {
        Selector::From(source) => map.put("ip-from", Value::text(source)),
        Selector::All => {}
        Selector::Oif(_) => return None,
    }
    map.put("priority", Value::number(rule.priority.get()));
    map.put("route-table", Value::number(rule.table.get()));
    if let Some(length) = rule.suppress_prefix_length {
        map.put("suppress-prefix-length", Value::number(length));
    }
    Some(map)
}
