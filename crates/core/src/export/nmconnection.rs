//! nm-settings-keyfile(5) of NetworkManager, a profile for each card.
//!
//! All of the model can be said; `throw` routes, for a container's network in a card's
//! table, need NetworkManager 1.36. The profile's UUID is of version 8 (RFC 9562): the ten
//! bytes "leaseroute" with version and variant put in, and the card's hardware address.

use ipnetwork::IpNetwork;

use crate::address::Family;
use crate::export::card::{Card, Part, local_first};
use crate::export::text::{comment, header, in_file_name, inactive, is_plain};
use crate::export::{Export, ExportedFile, Inputs, Reader};
use crate::interface::Mac;
use crate::route::{Route, RouterPreference};
use crate::rule::{Rule, Selector};

/// Where it is read.
pub(super) const READER: Reader = Reader {
    folder: "/etc/NetworkManager/system-connections",
    prefix: "leaseroute-",
    suffix: ".nmconnection",
    command: "nmcli connection reload",
};

/// So that it is preferred to profiles that NetworkManager or an installer made.
const AUTOCONNECT_PRIORITY: u32 = 200;

pub(super) fn export(inputs: Inputs<'_>, cards: &[Card<'_>]) -> Export {
    let mut export = Export::default();
    let mut shared = local_first(inputs);
    for card in cards {
        let name = &card.link.name;
        let quoted = crate::Quoted(name.as_str());
        match (card.is_simple(), card.link.mac) {
            (false, _) => export.notes.push(format!(
                "left out: {quoted} is no plain card, and its own profile says of what it is made; add routes and rules there"
            )),
            (true, None) => export.notes.push(format!(
                "left out: {quoted} has no hardware address to match it by"
            )),
            (true, Some(mac)) => export.files.push(ExportedFile {
                path: format!(
                    "{}/{}{}{}",
                    READER.folder,
                    READER.prefix,
                    in_file_name(name),
                    READER.suffix
                ),
                mode: 0o600,
                text: text(card, mac, &std::mem::take(&mut shared)),
            }),
        }
    }
    export
}

fn text(card: &Card<'_>, mac: Mac, shared: &[&Rule]) -> String {
    let name = &card.link.name;
    let digits = mac.to_string().replace(':', "");
    let mut text = header("leaseroute export --format nmconnection --persist");
    text.push_str("\n[connection]\n");
    if is_plain(name) {
        text.push_str(&format!("id=leaseroute-{name}\n"));
    } else {
        let quoted = crate::Quoted(name.as_str());
        text.push_str(&comment(&format!("for the card {quoted}")));
        text.push_str(&format!("id=leaseroute-{digits}\n"));
    }
    text.push_str(&format!(
        "uuid=6c656173-6572-8f75-b465-{digits}\ntype=ethernet\nautoconnect-priority={AUTOCONNECT_PRIORITY}\n"
    ));
    if is_plain(name) {
        text.push_str(&format!("interface-name={name}\n"));
    }
    text.push_str(&format!("\n[ethernet]\nmac-address={mac}\n"));
    for part in card.parts() {
        let shared = shared.iter().copied().filter(|r| r.family == part.family);
        text.push_str(&section(card, part, shared));
    }
    text
}

fn section<'a>(card: &Card<'_>, part: &'a Part, shared: impl Iterator<Item = &'a Rule>) -> String {
    let name = match part.family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    };
    let method = match (part.automatic, part.family) {
        (true, _) => "auto",
        (false, _) if !part.addresses.is_empty() => "manual",
        (false, Family::Ipv4) => "disabled",
        (false, Family::Ipv6) => "link-local",
    };
    let mut text = format!("\n[{name}]\n");
    if !part.active && part.is_used() {
        text.push_str(&comment(&inactive(part.family)));
    }
    text.push_str(&format!("method={method}\n"));
    if method != "auto" && method != "manual" {
        return text;
    }
    for (number, address) in (1..).zip(&part.addresses) {
        text.push_str(&format!("address{number}={address}\n"));
    }
    text.push_str(&format!("route-metric={}\n", card.metric));
    let routes = part.main.iter().chain(&part.routes);
    let routes = routes.map(route).chain(part.shadowed.iter().map(thrown));
    for (number, (route, options)) in (1..).zip(routes) {
        text.push_str(&format!("route{number}={route}\n"));
        text.push_str(&format!("route{number}_options={options}\n"));
    }
    if part
        .routes
        .iter()
        .any(|r| r.preference != RouterPreference::Medium)
    {
        text.push_str(&comment(
            "The preference of a router cannot be said; the metrics keep the same order.",
        ));
    }
    let writable =
        |rule: &&Rule| is_plain(&card.link.name) || !matches!(rule.selector, Selector::Oif(_));
    let rules = shared.chain(part.rules.iter().filter(writable));
    for (number, rule) in (1..).zip(rules) {
        text.push_str(&format!("routing-rule{number}={}\n", words(rule)));
    }
    if part.table.is_some() && !is_plain(&card.link.name) {
        text.push_str(&comment(
            "The name of the card cannot be written in a rule: a socket that is bound to the card and to no address goes by table main.",
        ));
    }
    text
}

/// A route and its options.
fn route(route: &Route) -> (String, String) {
    let mut text = route.destination.to_string();
    match (route.gateway, route.metric) {
        (None, 0) => {}
        (None, metric) => text.push_str(&format!(",{},{metric}", unspecified(route))),
        (Some(gateway), 0) => text.push_str(&format!(",{gateway}")),
        (Some(gateway), metric) => text.push_str(&format!(",{gateway},{metric}")),
    }
    let mut options = format!("table={}", route.table.get());
    if route.onlink {
        options.push_str(",onlink=true");
    }
    if let Some(mtu) = route.mtu {
        options.push_str(&format!(",mtu={mtu}"));
    }
    (text, options)
}

fn thrown(route: &Route) -> (String, String) {
    let options = format!("table={},type=throw", route.table.get());
    (route.destination.to_string(), options)
}

/// The gateway of a route without one.
fn unspecified(route: &Route) -> &'static str {
    match route.family() {
        Family::Ipv4 => "0.0.0.0",
        Family::Ipv6 => "::",
    }
}

/// A rule in the words that NetworkManager takes, which are nearly those of ip(8).
fn words(rule: &Rule) -> String {
    let mut text = format!("priority {}", rule.priority);
    match &rule.selector {
        Selector::From(source) => text.push_str(&format!(" from {}", source_text(*source))),
        Selector::All => text.push_str(&format!(" from {}", rule.family.default_network())),
        Selector::Oif(name) => text.push_str(&format!(
            " from {} oif {name}",
            rule.family.default_network()
        )),
    }
    text.push_str(&format!(" table {}", rule.table.get()));
    if let Some(length) = rule.suppress_prefix_length {
        text.push_str(&format!(" suppress_prefixlength {length}"));
    }
    text
}

fn source_text(source: IpNetwork) -> String {
    if source.prefix() == Family::of_network(source).host_length() {
        source.ip().to_string()
    } else {
        source.to_string()
    }
}
