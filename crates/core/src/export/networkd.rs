//! systemd.network(5), a file for each card.
//!
//! All of the model can be said. What belongs to a device that is not ours, a container's
//! network in a card's table, is a `throw` route there: the rule for table main finds it.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::address::Family;
use crate::export::card::{Card, Part, local_first};
use crate::export::text::{comment, header, in_file_name, inactive, is_plain, pattern};
use crate::export::{Export, ExportedFile, Inputs, Reader};
use crate::route::{Route, RouterPreference};
use crate::rule::{Rule, Selector};

/// Where it is read.
pub(super) const READER: Reader = Reader {
    folder: "/etc/systemd/network",
    prefix: "70-leaseroute-",
    suffix: ".network",
    command: "networkctl reload",
};

pub(super) fn export(inputs: Inputs<'_>, cards: &[Card<'_>]) -> Export {
    let mut export = Export::default();
    let mut shared = local_first(inputs);
    for card in cards {
        let name = &card.link.name;
        if card.link.mac.is_none() && !is_plain(name) {
            export.notes.push(format!(
                "left out: {} has no hardware address to match it by, and its name cannot be written",
                crate::Quoted(name.as_str())
            ));
            continue;
        }
        export.files.push(ExportedFile {
            path: format!(
                "{}/{}{}{}",
                READER.folder,
                READER.prefix,
                in_file_name(name),
                READER.suffix
            ),
            mode: 0o644,
            text: text(card, &std::mem::take(&mut shared)),
        });
    }
    export
}

fn text(card: &Card<'_>, shared: &[&Rule]) -> String {
    let name = &card.link.name;
    let mut text = header("leaseroute export --format networkd --persist");
    text.push_str("\n[Match]\n");
    if let Some(mac) = card.link.mac {
        text.push_str(&format!("MACAddress={mac}\n"));
    }
    if !is_plain(name) {
        let quoted = crate::Quoted(name.as_str());
        text.push_str(&comment(&format!("the name is {quoted}")));
    }
    // Others may have the same hardware address: a VLAN on the card, a bridge.
    text.push_str(&format!("Name={}\n", pattern(name)));

    let dhcp = match (card.ipv4.automatic, card.ipv6.automatic) {
        (true, true) => "yes",
        (true, false) => "ipv4",
        (false, true) => "ipv6",
        (false, false) => "no",
    };
    let accept = if card.ipv6.automatic { "yes" } else { "no" };
    text.push_str(&format!(
        "\n[Network]\nDHCP={dhcp}\nIPv6AcceptRA={accept}\nLinkLocalAddressing=ipv6\n"
    ));
    for address in card.parts().into_iter().flat_map(|part| &part.addresses) {
        text.push_str(&format!("Address={address}\n"));
    }
    if card.ipv4.automatic {
        text.push_str(&format!("\n[DHCPv4]\nRouteMetric={}\n", card.metric));
    }
    if card.ipv6.automatic {
        text.push_str(&format!("\n[IPv6AcceptRA]\nRouteMetric={}\n", card.metric));
    }
    for rule in shared {
        text.push('\n');
        text.push_str(&comment("the host's own addresses first"));
        text.push_str(&rule_section(rule));
    }
    for part in card.parts() {
        text.push_str(&part_sections(part, is_plain(name)));
    }
    text
}

fn part_sections(part: &Part, names_card: bool) -> String {
    let mut text = String::new();
    if !part.active && part.is_used() {
        text.push('\n');
        text.push_str(&comment(&inactive(part.family)));
    }
    for route in part.main.iter().chain(&part.routes) {
        text.push('\n');
        text.push_str(&route_section(route, part.automatic));
    }
    for inner in &part.shadowed {
        text.push('\n');
        text.push_str(&comment("a network of this host: table main knows it"));
        text.push_str(&format!(
            "[Route]\nDestination={}\nType=throw\nTable={}\n",
            inner.destination, inner.table
        ));
    }
    let mut left_out = false;
    for rule in &part.rules {
        if matches!(rule.selector, Selector::Oif(_)) && !names_card {
            left_out = true;
            continue;
        }
        text.push('\n');
        text.push_str(&rule_section(rule));
    }
    if left_out {
        text.push('\n');
        text.push_str(&comment(
            "The name of the card cannot be written in a rule: a socket that is bound to the card and to no address goes by table main.",
        ));
    }
    text
}

/// `automatic`: networkd does not know its own leased prefixes when it reads the file, and
/// would take a gateway for on-link with a complaint.
fn route_section(route: &Route, automatic: bool) -> String {
    let mut text = format!("[Route]\nDestination={}\n", route.destination);
    match route.gateway {
        Some(gateway) => text.push_str(&format!("Gateway={gateway}\n")),
        None if route.family() == Family::Ipv4 => text.push_str("Scope=link\n"),
        None => {}
    }
    if route.onlink || (automatic && route.gateway.is_some()) {
        text.push_str("GatewayOnLink=yes\n");
    }
    text.push_str(&format!("Table={}\n", route.table.get()));
    if route.metric != 0 {
        text.push_str(&format!("Metric={}\n", route.metric));
    }
    if let Some(mtu) = route.mtu {
        text.push_str(&format!("MTUBytes={mtu}\n"));
    }
    match route.preference {
        RouterPreference::Medium => {}
        RouterPreference::Low => text.push_str("IPv6Preference=low\n"),
        RouterPreference::High => text.push_str("IPv6Preference=high\n"),
    }
    text
}

fn rule_section(rule: &Rule) -> String {
    let mut text = format!("[RoutingPolicyRule]\nPriority={}\n", rule.priority);
    match &rule.selector {
        Selector::From(source) => text.push_str(&format!("From={}\n", address(*source))),
        selector => {
            // Without an address the family has to be said.
            let family = match rule.family {
                Family::Ipv4 => "ipv4",
                Family::Ipv6 => "ipv6",
            };
            text.push_str(&format!("Family={family}\n"));
            if let Selector::Oif(name) = selector {
                text.push_str(&format!("OutgoingInterface={name}\n"));
            }
        }
    }
    text.push_str(&format!("Table={}\n", rule.table.get()));
    if let Some(length) = rule.suppress_prefix_length {
        text.push_str(&format!("SuppressPrefixLength={length}\n"));
    }
    text
}

/// An address by itself, or a prefix with its length.
fn address(source: IpNetwork) -> String {
    let address: IpAddr = source.ip();
    if source.prefix() == Family::of(address).host_length() {
        address.to_string()
    } else {
        source.to_string()
    }
}
