//! netplan(5), one file for all cards.
//!
//! Its rules know a source, a destination, a table and a priority: neither
//! `suppress_prefixlength` nor a device. So each source has one rule, and what the host has
//! of networks of its own (containers, VPNs) is kept out of the card's table by `throw`
//! routes; the NetworkManager back end has no such routes, and there rules of a better
//! priority look those networks up in table main. The networkd back end demands that
//! `dhcp4-overrides` and `dhcp6-overrides` are equal.

use ipnetwork::IpNetwork;

use crate::address::{Family, NetworkExt as _};
use crate::export::card::{Card, Part, local_first};
use crate::export::text::{comment, header, inactive, is_plain, pattern};
use crate::export::yaml::{Map, Value};
use crate::export::{Export, ExportedFile, Inputs, Options, Reader};
use crate::interface::InterfaceName;
use crate::numbers::TableId;
use crate::route::{Route, RouterPreference};

/// Where it is read.
pub(super) const READER: Reader = Reader {
    folder: "/etc/netplan",
    prefix: "70-leaseroute",
    suffix: ".yaml",
    command: "netplan apply",
};

const LIMITS: &str = "\
netplan cannot say all of the rules of leaseroute. What it cannot say, and what that means:
- suppress_prefixlength: table main is not asked before the table of the card. Containers, VPNs and
  other networks of this host are named below as they are now; one that comes later, and static
  routes of table main, are not found by packets from these sources until this file is written anew.
- rules for a device: a socket that is bound to a card and to no address goes by table main.";

pub(super) fn export(inputs: Inputs<'_>, cards: &[Card<'_>], options: Options) -> Export {
    let mut notes = Vec::new();
    let mut text = header(if options.priorities {
        "leaseroute export --format netplan --priorities --persist"
    } else {
        "leaseroute export --format netplan --persist"
    });
    let mut parts = cards.iter().flat_map(Card::parts);
    if parts.any(|part| part.table.is_some()) {
        for line in LIMITS.lines() {
            text.push_str(&comment(line));
        }
        if options.priorities {
            text.push_str(&comment(
                "With priorities, for either back end; before version 1.1 netplan does not hand rules to NetworkManager.",
            ));
        } else {
            text.push_str(&comment(
                "Without priorities, for the networkd back end; NetworkManager's needs --priorities.",
            ));
        }
    }
    let mut routes = cards
        .iter()
        .flat_map(Card::parts)
        .flat_map(|part| &part.routes);
    if routes.any(|route| route.preference != RouterPreference::Medium) {
        text.push_str(&comment(
            "The preference of a router cannot be said; the metrics keep the same order.",
        ));
    }
    for rule in local_first(inputs) {
        notes.push(format!("netplan cannot say: {} rule {rule}", rule.family));
    }

    let mut ethernets = Map::default();
    let mut named: Vec<Family> = Vec::new();
    for card in cards {
        match identity(card) {
            Err(why) => {
                text.push_str(&comment(&why));
                notes.push(why);
            }
            Ok(id) => ethernets.put_named(&id, Value::Map(device(card, &id, options, &mut named))),
        }
    }
    let mut network = Map::default();
    network.put("version", Value::number(2_u32));
    if !ethernets.is_empty() {
        network.put("ethernets", Value::Map(ethernets));
    } else {
        network.say("no card");
    }
    let mut document = Map::default();
    document.put("network", Value::Map(network));
    text.push_str(&document.document());
    Export {
        files: vec![ExportedFile {
            path: "/etc/netplan/70-leaseroute.yaml".to_owned(),
            mode: 0o600,
            text,
        }],
        notes,
    }
}

/// What the definition of a card is called: its name, as others call it too, so that their
/// definitions and this one are merged.
fn identity(card: &Card<'_>) -> Result<String, String> {
    let name = &card.link.name;
    let quoted = crate::Quoted(name.as_str());
    if !card.is_simple() {
        let kind = card.link.kind.as_deref().unwrap_or_default();
        return Err(format!(
            "left out: {quoted} is of kind {}, and its own definition says of what it is made; add routes and routing-policy there",
            crate::Quoted(kind)
        ));
    }
    match card.link.mac {
        _ if is_usable(name) => Ok(name.to_string()),
        Some(mac) => Ok(format!("leaseroute-{}", mac.to_string().replace(':', ""))),
        None => Err(format!(
            "left out: {quoted} has no hardware address to match it by, and its name cannot be written"
        )),
    }
}

/// Whether a name can be written without being taken for something else.
fn is_usable(name: &InterfaceName) -> bool {
    is_plain(name) && name.as_str() != "renderer"
}

fn device(card: &Card<'_>, id: &str, options: Options, named: &mut Vec<Family>) -> Map {
    let mut map = Map::default();
    let name = &card.link.name;
    if let Some(mac) = card.link.mac {
        let mut matched = Map::default();
        matched.put("macaddress", Value::text(mac));
        if is_usable(name) {
            map.put("match", Value::Map(matched));
            map.put("set-name", Value::text(name));
        } else {
            matched.put("name", Value::text(pattern(name)));
            let quoted = crate::Quoted(name.as_str());
            map.say(&format!(
                "its name is {quoted}, which netplan would take apart: it is found by its hardware address, and called {id} in this file"
            ));
            map.put("match", Value::Map(matched));
        }
    }
    map.put("dhcp4", Value::Flag(card.ipv4.automatic));
    map.put("dhcp6", Value::Flag(card.ipv6.automatic));
    if card.ipv6.automatic {
        map.put("accept-ra", Value::Flag(true));
    }
    if card.parts().iter().any(|part| part.automatic) {
        for key in ["dhcp4-overrides", "dhcp6-overrides"] {
            let mut overrides = Map::default();
            overrides.put("route-metric", Value::number(card.metric));
            map.put(key, Value::Map(overrides));
        }
    }
    let addresses = card.parts().into_iter().flat_map(|part| &part.addresses);
    let addresses: Vec<String> = addresses.map(ToString::to_string).collect();
    if !addresses.is_empty() {
        map.put("addresses", Value::Texts(addresses));
    }
    for part in card.parts() {
        if !part.active && part.is_used() {
            map.say(&inactive(part.family));
        }
    }
    let routes: Vec<Map> = card
        .parts()
        .into_iter()
        .flat_map(|part| routes(part, options))
        .collect();
    if !routes.is_empty() {
        map.put("routes", Value::List(routes));
    }
    let policy: Vec<Map> = card
        .parts()
        .into_iter()
        .flat_map(|part| policy(part, options, named))
        .collect();
    if !policy.is_empty() {
        map.put("routing-policy", Value::List(policy));
    }
    map
}

fn routes(part: &Part, options: Options) -> Vec<Map> {
    let mut routes: Vec<Map> = part.main.iter().chain(&part.routes).map(route).collect();
    let Some(table) = part.table.filter(|_| !options.priorities) else {
        return routes;
    };
    let taken = |prefix: &&IpNetwork| !part.routes.iter().any(|r| r.destination == **prefix);
    let thrown = part.inner.iter().filter(taken).map(|prefix| {
        let mut map = Map::default();
        map.say("a network of this host: table main knows it");
        map.put("to", Value::text(prefix));
        map.put("type", Value::Word("throw"));
        map.put("table", Value::number(table.get()));
        map
    });
    routes.extend(thrown);
    routes
}

fn route(route: &Route) -> Map {
    let mut map = Map::default();
    map.put("to", Value::text(route.destination));
    match route.gateway {
        Some(gateway) => map.put("via", Value::text(gateway)),
        None => map.put("scope", Value::Word("link")),
    }
    if route.onlink {
        map.put("on-link", Value::Flag(true));
    }
    if route.table != TableId::MAIN {
        map.put("table", Value::number(route.table.get()));
    }
    if route.metric != 0 {
        map.put("metric", Value::number(route.metric));
    }
    if let Some(mtu) = route.mtu {
        map.put("mtu", Value::number(mtu));
    }
    map
}

fn policy(part: &Part, options: Options, named: &mut Vec<Family>) -> Vec<Map> {
    let Some(table) = part.table else {
        return Vec::new();
    };
    let mut rules = Vec::new();
    // The rules of a family stand once, with its first card: they are the same for all.
    if options.priorities && !named.contains(&part.family) {
        named.push(part.family);
        for prefix in &part.inner {
            let mut map = Map::default();
            map.say("a network of this host: table main knows it");
            map.put("to", Value::text(prefix));
            map.put("table", Value::number(TableId::MAIN.get()));
            if let Some(priority) = priority(part, |table| table == TableId::MAIN) {
                map.put("priority", Value::number(priority));
            }
            rules.push(map);
        }
    }
    for source in &part.sources {
        let mut map = Map::default();
        map.put("from", source_text(*source));
        map.put("table", Value::number(table.get()));
        if options.priorities
            && let Some(priority) = priority(part, |other| other == table)
        {
            map.put("priority", Value::number(priority));
        }
        rules.push(map);
    }
    rules
}

/// An address by itself, or a prefix with its length.
fn source_text(source: IpNetwork) -> Value {
    if source.prefix() == Family::of_network(source).host_length() {
        Value::text(source.ip())
    } else {
        Value::text(source.canonical())
    }
}

/// The last priority of the rules that lead to a table.
fn priority(part: &Part, leads: impl Fn(TableId) -> bool) -> Option<u32> {
    let rules = part.rules.iter().filter(|rule| leads(rule.table));
    rules.map(|rule| rule.priority.get()).max()
}
