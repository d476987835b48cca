//! What in the kernel and in files decides before our rules, or makes chance of it: foreign
//! rules, default routes with one metric, strict reverse paths, answers to ARP by any card.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, Host, Link, Note, ObservedRoute, ObservedRule, RouteKind};

use super::check::{Check, Cure, Found, Severity};
use super::policies::{self, Owner};
use super::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "foreign-rules",
        looks_at: "rules of others with a smaller priority that catch one of our sources, and what else \
                   the routing model has to say",
        worst: Severity::Problem,
        why: "what decides before our rules may send replies out of the wrong card, and what one address \
              on two cards means no rule can tell",
        look: notes,
    },
    Check {
        name: "configured-rules",
        looks_at: "policy rules in the files of netplan, networkd, NetworkManager, ifupdown and \
                   sysconfig that no program known here has written",
        worst: Severity::Note,
        why: "somebody meant them. Where they do the same as leaseroute, one of the two is enough; a rule \
              without a priority gets the one before the first rule there is, which may be before ours",
        look: configured,
    },
    Check {
        name: "own-default",
        looks_at: "cards of ours whose table has no default route",
        worst: Severity::Note,
        why: "replies from such a card to other networks leave by the main table, and so by another card. \
              That is as it should be for a card of a private network; where the lease of a card that is \
              to be reached from elsewhere lacks the router, nothing is guessed",
        look: own_default,
    },
    Check {
        name: "equal-metrics",
        looks_at: "default routes of table main with the same metric on different cards",
        worst: Severity::Problem,
        why: "by which card new connections leave is chance, or changes with the order in which cards come \
              up: rules decide by the source address, and a new connection has none yet",
        look: equal_metrics,
    },
    Check {
        name: "arp-flux",
        looks_at: "cards in one IPv4 subnet, with arp_ignore, arp_filter and arp_announce",
        worst: Severity::Problem,
        why: "as the kernel is by default, any card answers ARP for any address of the host, so packets \
              for one card come in by another. With a strict reverse path they are dropped there",
        look: arp_flux,
    },
    Check {
        name: "reverse-path",
        looks_at: "rp_filter of the cards we manage",
        worst: Severity::Note,
        why: "strict filtering (1) looks up the way back with our rules, and so works once they are in \
              place. It drops what comes for a card's address by another card, and what comes to a card \
              that has no rules yet",
        look: reverse_path,
    },
];

fn notes(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let Some(live) = scene.live() else {
        return Ok(Found::unknown(scene.no_kernel()));
    };
    let notes: BTreeSet<&Note> = live.desired.iter().flat_map(|d| &d.notes).collect();
    let found: Vec<Found> = notes
        .into_iter()
        .filter_map(|note| of_note(note, scene))
        .collect();
    if found.is_empty() {
        return Ok(Found::ok("nothing comes before our rules"));
    }
    Ok(found)
}

/// What to make of something that the model met. `None`: nothing is wrong with it.
fn of_note(note: &Note, scene: &Scene<'_>) -> Option<Found> {
    let text = note.to_string();
    Some(match note {
        Note::Overruled { rule, .. } => overruled(text, rule, scene),
        Note::SharedAddress { .. } => Found::problem(text).with_cure(Cure::new(
            "give one of the cards another address; if they are one link, join them in a bond",
        )),
        Note::AddressMissing { device, .. } => Found::problem(text).with_cure(
            Cure::new("let the client set the address, and then look again")
                .command(format!("ip address show dev {}", device.name))
                .command("leaseroute apply"),
        ),
        Note::ForeignRoute { route, .. } => Found::problem(text).with_cure(
            Cure::new("remove the route, and let ours be put in its place")
                .command(format!(
                    "ip {} route del {} table {}",
                    flag(route.family()),
                    route.destination,
                    route.table
                ))
                .command("leaseroute apply"),
        ),
        Note::SharedTable { .. } | Note::NoTable { .. } => Found::problem(text).with_cure(
            Cure::new("give the card a table of its own, and look again")
                .file(
                    "/etc/leaseroute/config.toml",
                    &[
                        "[[interface]]",
                        "match = { name = \"CARD\" }",
                        "table = 500",
                    ],
                )
                .command("leaseroute apply"),
        ),
        Note::ContestedPrefix { .. } => Found::problem(text),
        Note::Orphaned { rule, .. } => Found::note(text).with_cure(
            Cure::new("delete them, each by its priority, if you changed the numbers").command(
                format!(
                    "ip {} rule del priority {}",
                    flag(rule.family),
                    rule.priority
                ),
            ),
        ),
        Note::Unmanaged { .. } => return None,
        // The others are worth knowing, and say themselves what to do.
        _ => Found::note(text),
    })
}

/// A rule of somebody else's that comes before ours.
fn overruled(text: String, rule: &ObservedRule, scene: &Scene<'_>) -> Found {
    let base = scene.settings.priority.get();
    let last = base.saturating_add(30);
    let number = rule.priority.get();
    // The number before the first rule is the kernel's choice for a rule without one.
    let chosen = if number >= base {
        "; it seems to have none, and the kernel took the one before ours"
    } else {
        ""
    };
    let found = Found::problem(text).with_cure(Cure::new(format!(
        "give that rule a priority above {last} where it is configured (protocol {} made it: 2 is the \
         kernel, 0 or 3 ip(8), 4 static configuration){chosen}",
        rule.protocol
    )));
    match number.checked_sub(100) {
        Some(before @ 1..) if number < base => found.with_cure(
            Cure::new(
                "or let ours come first: stop the watcher, run the first command, write the file, and run \
                 the second",
            )
            .command("leaseroute remove --all")
            .command("leaseroute apply")
            .file(
                "/etc/leaseroute/config.toml",
                &["[rules]", &format!("priority = {before}")],
            ),
        ),
        _ => found,
    }
}

fn flag(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "-4",
        Family::Ipv6 => "-6",
    }
}

fn configured(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let policies = policies::scan(scene)?;
    let others: Vec<_> = policies
        .iter()
        .filter(|p| p.owner == Owner::Other)
        .collect();
    if others.is_empty() {
        return Ok(Found::ok("no file configures any"));
    }
    let evidence = others.iter().flat_map(|policy| policy.evidence());
    Ok(vec![
        Found::note("policy rules are configured beside leaseroute's")
            .with_evidence(evidence)
            .with_cure(Cure::new(
                "keep those that mean something else, with a priority outside of 7600 to 7699; take out \
                 those that send a card's own address to a table of its own, which leaseroute does",
            )),
    ])
}

fn own_default(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let Some(live) = scene.live() else {
        return Ok(Found::unknown(scene.no_kernel()));
    };
    let mut found = Vec::new();
    for desired in live.desired.iter().filter(|desired| desired.active) {
        for uplink in &desired.uplinks {
            let Some(table) = uplink.table else { continue };
            let device = &uplink.device;
            let wanted = desired.routes.iter().any(|(route, _)| {
                route.device.index == device.index && route.destination.prefix() == 0
            });
            // Another program may have put one there.
            let mut there = live.world.host.own_tables.iter();
            let is_there = there.any(|route| {
                route.family() == desired.family
                    && route.table == table
                    && route.destination.prefix() == 0
            });
            if wanted || is_there {
                continue;
            }
            let family = desired.family;
            let flag = flag(family);
            found.push(
                Found::note(format!("{} has no {family} default of its own", device.name))
                    .with_evidence([format!("ip {flag} route show table {table}")])
                    .with_cure(Cure::new(
                        "nothing needs to be done when its network leads nowhere else",
                    ))
                    .with_cure(
                        Cure::new(format!(
                            "or have your network program put the router into table {table}, which \
                             leaseroute leaves there (networkd: [Route] with Gateway= and Table=); to try it"
                        ))
                        .command(format!(
                            "ip {flag} route add default via ROUTER dev {} onlink table {table}",
                            device.name
                        )),
                    ),
            );
        }
    }
    if found.is_empty() {
        return Ok(Found::ok("every card of ours has its own default"));
    }
    Ok(found)
}

fn equal_metrics(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let Some(live) = scene.live() else {
        return Ok(Found::unknown(scene.no_kernel()));
    };
    let mut found = Vec::new();
    for family in Family::BOTH {
        for (metric, names) in same_metric(&live.world.host, family) {
            // The kernel gives all routers of advertisements one metric, and then takes a card by
            // a hash of the connection, with an address of that card.
            let is_bad = family == Family::Ipv4;
            let what = format!(
                "{family} has default routes of metric {metric} out of {}",
                names.join(" and ")
            );
            let host = &live.world.host;
            let alike = host
                .main
                .iter()
                .filter(|route| is_default(route, family) && route.metric == metric);
            let evidence = alike.map(|route| {
                let link = route.oif.and_then(|oif| host.links.get(&oif));
                let name = link.map(|link| link.name.as_str());
                format!("ip {} route: {}", flag(family), route.describe(name))
            });
            found.push(
                Found::problem_if(is_bad, what)
                    .with_evidence(evidence)
                    .with_cure(metric_cure(names.last().map_or("eth1", String::as_str))),
            );
        }
    }
    if found.is_empty() {
        return Ok(Found::ok("no two default routes are alike"));
    }
    Ok(found)
}

fn metric_cure(card: &str) -> Cure {
    Cure::new(format!(
        "give {card} a larger metric where its client is configured: networkd RouteMetric= in [DHCPv4] \
         and [IPv6AcceptRA], netplan dhcp4-overrides: {{route-metric: 200}}, NetworkManager \
         ipv4.route-metric and ipv6.route-metric, dhcpcd metric, ifupdown metric"
    ))
}

/// The metrics that default routes of different cards share, with the cards.
fn same_metric(host: &Host, family: Family) -> Vec<(u32, Vec<String>)> {
    let mut by_metric: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    let defaults = host.main.iter().filter(|route| is_default(route, family));
    for route in defaults {
        if let Some(link) = route.oif.and_then(|oif| host.links.get(&oif)) {
            let names = by_metric.entry(route.metric).or_default();
            names.insert(link.name.to_string());
        }
    }
    let shared = by_metric.into_iter().filter(|(_, names)| names.len() > 1);
    shared
        .map(|(metric, names)| (metric, names.into_iter().collect()))
        .collect()
}

fn is_default(route: &ObservedRoute, family: Family) -> bool {
    route.family() == family && route.destination.prefix() == 0 && route.kind == RouteKind::Unicast
}

fn arp_flux(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let Some(live) = scene.live() else {
        return Ok(Found::unknown(scene.no_kernel()));
    };
    let mut found = Vec::new();
    for (subnet, links) in shared_subnets(&live.world.host) {
        let mut open = Vec::new();
        let mut is_strict = false;
        for link in &links {
            // Of all and the card, the larger value counts (ip-sysctl in the kernel's documents).
            let ignore = sysctl(scene, link, "arp_ignore")?;
            let filter = sysctl(scene, link, "arp_filter")?;
            if ignore == 0 && filter == 0 {
                open.push(link.name.to_string());
            }
            is_strict |= sysctl(scene, link, "rp_filter")? == 1;
        }
        if open.is_empty() {
            continue;
        }
        let names: Vec<String> = links.iter().map(|link| link.name.to_string()).collect();
        found.push(
            Found::problem_if(
                is_strict,
                format!(
                    "{} are in {subnet}, and answer ARP for each other",
                    names.join(" and ")
                ),
            )
            .with_evidence(open.iter().map(|name| {
                format!("/proc/sys/net/ipv4/conf/{name}: arp_ignore and arp_filter are 0")
            }))
            .with_evidence(is_strict.then_some("rp_filter is 1"))
            .with_cure(
                Cure::new("let each card answer for its own addresses only")
                    .file(
                        "/etc/sysctl.d/90-arp.conf",
                        &[
                            "net.ipv4.conf.all.arp_ignore = 1",
                            "net.ipv4.conf.all.arp_announce = 2",
                        ],
                    )
                    .command("sysctl -p /etc/sysctl.d/90-arp.conf"),
            ),
        );
    }
    if found.is_empty() {
        return Ok(Found::ok("no two cards answer for each other"));
    }
    Ok(found)
}

/// The IPv4 subnets that several cards have addresses in.
fn shared_subnets(host: &Host) -> Vec<(IpNetwork, Vec<&Link>)> {
    let mut cards: BTreeMap<IpNetwork, Vec<&Link>> = BTreeMap::new();
    for address in &host.addresses {
        let is_subnet = address.address.is_ipv4() && address.address.prefix() < 31;
        let Some(link) = host.links.get(&address.index) else {
            continue;
        };
        if !is_subnet || link.loopback || link.master.is_some() || !link.up {
            continue;
        }
        let network = address.address.network();
        let Ok(subnet) = IpNetwork::new(network, address.address.prefix()) else {
            continue;
        };
        let links = cards.entry(subnet).or_default();
        if links.iter().all(|known| known.index != link.index) {
            links.push(link);
        }
    }
    cards
        .into_iter()
        .filter(|(_, links)| links.len() > 1)
        .collect()
}

fn reverse_path(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let Some(live) = scene.live() else {
        return Ok(Found::unknown(scene.no_kernel()));
    };
    let mut strict = BTreeSet::new();
    let mut uplinks = BTreeSet::new();
    for desired in &live.desired {
        for uplink in desired
            .uplinks
            .iter()
            .filter(|_| desired.family == Family::Ipv4)
        {
            let Some(link) = live.world.host.links.get(&uplink.device.index) else {
                continue;
            };
            uplinks.insert(link.index);
            if sysctl(scene, link, "rp_filter")? == 1 {
                strict.insert(link.name.to_string());
            }
        }
    }
    if strict.is_empty() || uplinks.len() < 2 {
        return Ok(Found::ok("no card of several filters strictly"));
    }
    let evidence = strict
        .iter()
        .map(|name| format!("/proc/sys/net/ipv4/conf/{name}/rp_filter or all/rp_filter is 1"));
    Ok(vec![
        Found::note("reverse paths are filtered strictly")
            .with_evidence(evidence)
            .with_cure(
                Cure::new("loose filtering (2) lets through what any card could answer")
                    .file(
                        "/etc/sysctl.d/90-rp-filter.conf",
                        &["net.ipv4.conf.all.rp_filter = 2"],
                    )
                    .command("sysctl -p /etc/sysctl.d/90-rp-filter.conf"),
            ),
    ])
}

/// What is in force of an IPv4 setting of a card: the larger one of its own and that of all.
fn sysctl(scene: &Scene<'_>, link: &Link, key: &str) -> io::Result<u32> {
    let mut most = 0;
    for name in ["all", link.name.as_str()] {
        let text = scene
            .root
            .text(&format!("/proc/sys/net/ipv4/conf/{name}/{key}"))?;
        most = most.max(text.trim().parse().unwrap_or_default());
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        serde_json::from_str(
            r#"{"links": {
                "2": {"index": 2, "name": "eth0", "mtu": 1500, "up": true},
                "3": {"index": 3, "name": "eth1", "mtu": 1500, "up": true}},
            "addresses": [
                {"index": 2, "address": "192.0.2.5/24"},
                {"index": 3, "address": "192.0.2.6/24"},
                {"index": 3, "address": "198.51.100.1/32"}],
            "main": [
                {"table": 254, "destination": "0.0.0.0/0", "gateway": "192.0.2.1", "oif": 2, "metric": 100, "protocol": 16, "kind": "unicast"},
                {"table": 254, "destination": "0.0.0.0/0", "gateway": "192.0.2.1", "oif": 3, "metric": 100, "protocol": 16, "kind": "unicast"},
                {"table": 254, "destination": "::/0", "gateway": "fe80::1", "oif": 3, "metric": 100, "protocol": 9, "kind": "unicast"}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn equal_metrics_are_seen_by_family() {
        let host = host();
        let names = vec!["eth0".to_owned(), "eth1".to_owned()];
        assert_eq!(same_metric(&host, Family::Ipv4), [(100, names)]);
        assert!(same_metric(&host, Family::Ipv6).is_empty());
    }

    #[test]
    fn a_subnet_of_two_cards_is_seen_and_a_single_address_is_none() {
        let host = host();
        let shared = shared_subnets(&host);
        assert_eq!(shared.len(), 1);
        assert_eq!(shared[0].0.to_string(), "192.0.2.0/24");
        assert_eq!(shared[0].1.len(), 2);
    }
}
