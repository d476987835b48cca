//! Networks of containers that give the host's own cards to pods: Amazon VPC CNI, and Cilium
//! in its ENI mode.
//!
//! Amazon's rules: 512 `to POD lookup main`, 1024 by mark, 1536 `from POD lookup N`, where
//! table N is the number of the card and 1 (`pkg/networkutils` of its sources). Cilium's: 20
//! `to POD lookup main`, 110 or 111 `from POD lookup` 10 and the number of the card
//! (`linux_defaults` of its sources).

use std::io;

use super::check::{Check, Cure, Found, Severity};
use super::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "amazon-vpc-cni",
        looks_at: "the plugin's files, its rules of priority 512, 1024 and 1536, and whose cards its \
                   tables lead out of",
        worst: Severity::Problem,
        why: WHY,
        look: amazon,
    },
    Check {
        name: "cilium-eni",
        looks_at: "the plugin's files, its rules of priority 20, 110 and 111, and whose cards its \
                   tables lead out of",
        worst: Severity::Problem,
        why: WHY,
        look: cilium,
    },
];

const WHY: &str = "its rules come before ours (7600 to 7699) and decide for pods, as they should. \
    But the metadata service lists pods' addresses among those of a card: on a card that the plugin \
    has taken, leaseroute would make rules for them, and with assign_addresses put them on the host. \
    Cards with the tag node.k8s.amazonaws.com/no_manage are left to the host, and are ours";

/// What tells of a plugin.
struct Plugin {
    name: &'static str,
    signs: &'static [&'static str],
    /// Priorities of its rules from a pod's address.
    priorities: &'static [u32],
}

fn amazon(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    look(
        scene,
        &Plugin {
            name: "Amazon VPC CNI",
            signs: &[
                "/etc/cni/net.d/10-aws.conflist",
                "/opt/cni/bin/aws-cni",
                "/var/run/aws-node/ipam.json",
            ],
            priorities: &[1536],
        },
    )
}

fn cilium(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let plugin = Plugin {
        name: "Cilium in ENI mode",
        signs: &[
            "/etc/cni/net.d/05-cilium.conflist",
            "/opt/cni/bin/cilium-cni",
        ],
        priorities: &[110, 111],
    };
    // Cilium in its other modes has no such rules, and takes no cards.
    if rules(scene, &plugin).is_empty() {
        let signs = scene.there(plugin.signs)?;
        return Ok(Found::ok(if signs.is_empty() {
            "Cilium is not here"
        } else {
            "Cilium is here, without rules for cards"
        }));
    }
    look(scene, &plugin)
}

/// Its rules from pods.
fn rules<'a>(scene: &'a Scene<'_>, plugin: &Plugin) -> Vec<&'a leaseroute_core::ObservedRule> {
    let rules = scene.foreign_rules();
    rules
        .filter(|rule| plugin.priorities.contains(&rule.priority.get()) && rule.from.is_some())
        .collect()
}

fn look(scene: &Scene<'_>, plugin: &Plugin) -> io::Result<Vec<Found>> {
    let signs = scene.there(plugin.signs)?;
    let rules = rules(scene, plugin);
    if signs.is_empty() && rules.is_empty() {
        return Ok(Found::ok(format!("{} is not here", plugin.name)));
    }
    let mut evidence = signs;
    let shown = rules.iter().take(4);
    evidence.extend(shown.map(|rule| format!("{} rule {rule}", rule.family)));
    if let Some(more @ 1..) = rules.len().checked_sub(4) {
        evidence.push(format!("{more} more such rules"));
    }
    let mut taken: Vec<String> = Vec::new();
    for (table, name) in scene.live().into_iter().flat_map(|live| &live.small_tables) {
        let is_looked_up = rules.iter().any(|rule| rule.table.get() == *table);
        let is_ours = scene.uplinks().any(|u| u.device.name.as_str() == name);
        if is_looked_up {
            evidence.push(format!("table {table} leads out of {name}"));
        }
        if is_looked_up && is_ours && !taken.contains(name) && !is_primary(scene, name) {
            taken.push(name.clone());
        }
    }
    let mut found = Vec::new();
    if scene.settings.metadata.assign_addresses {
        found.push(
            Found::problem(format!(
                "assign_addresses is on beside {}: addresses of pods would be put on the host",
                plugin.name
            ))
            .with_evidence(evidence.clone())
            .with_cure(Cure::new("switch it off").file(
                "/etc/leaseroute/config.toml",
                &["[metadata]", "assign_addresses = false"],
            )),
        );
    }
    if taken.is_empty() {
        found.push(
            Found::note(format!("{} is here", plugin.name))
                .with_evidence(evidence)
                .with_cure(Cure::new(
                    "nothing needs to be done while no client asks for a lease on the cards that it has \
                     taken; the plugin's tables show which those are",
                )),
        );
    } else {
        found.push(
            Found::problem(format!(
                "{} has taken cards that leaseroute manages, too: {}",
                plugin.name,
                taken.join(", ")
            ))
            .with_evidence(evidence)
            .with_cure(Cure::leave_alone(&taken))
            .with_cure(Cure::new(
                "or, if the card is the host's own, give it the tag \
                 node.k8s.amazonaws.com/no_manage = true on EC2, so that the plugin leaves it alone",
            )),
        );
    }
    Ok(found)
}

/// Whether the best default route of table main leads out of a card: it is the host's own.
fn is_primary(scene: &Scene<'_>, name: &str) -> bool {
    let Some(live) = scene.live() else {
        return false;
    };
    let host = &live.world.host;
    let defaults = host.main.iter().filter(|r| r.destination.prefix() == 0);
    let best = defaults.min_by_key(|route| (route.destination.is_ipv6(), route.metric));
    let link = best.and_then(|route| host.links.get(&route.oif?));
    link.is_some_and(|link| link.name.as_str() == name)
}
