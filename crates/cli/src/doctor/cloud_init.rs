//! cloud-init: the policy routing that it configures on EC2 with netplan (since 24.1), and
//! its work on cards that are plugged in later.

use std::io;

use super::check::{Check, Cure, Found, Severity};
use super::policies::{self, Owner};
use super::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "cloud-init-routing",
        looks_at: "policy rules in the files that cloud-init writes, and the rules in the kernel \
                   that come of them",
        worst: Severity::Problem,
        why: "they name no priority, so the kernel gives them the one before the first rule after \
              local's: whether they come before ours or after depends on who was first. Before ours they \
              take the packets of our sources past container bridges, VPNs and static routes",
        look: routing,
    },
    Check {
        name: "cloud-init-hotplug",
        looks_at: "whether cloud-init configures cards that are plugged in later",
        worst: Severity::Note,
        why: "cloud-init renders the whole network anew when a card comes, which brings its policy \
              rules back and lets clients renew; leaseroute takes in what comes of it, and needs none \
              of it where a DHCP client serves new cards by itself",
        look: hotplug,
    },
];

/// The rule that switches it on, by the old name and the new one.
const HOTPLUG_RULES: &[&str] = &[
    "/etc/udev/rules.d/10-cloud-init-hook-hotplug.rules",
    "/etc/udev/rules.d/90-cloud-init-hook-hotplug.rules",
    "/etc/udev/rules.d/99-cloud-init-hook-hotplug.rules",
];

/// The tables that cloud-init numbers: 100 and the place of the card.
const TABLES: std::ops::RangeInclusive<u32> = 100..=199;

fn routing(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let policies = policies::scan(scene)?;
    let files = policies.iter().filter(|p| p.owner == Owner::CloudInit);
    let mut evidence: Vec<String> = files.flat_map(policies::Policy::evidence).collect();
    let is_configured = !evidence.is_empty();
    let rules = scene.rules_for_our_sources().into_iter();
    let rules: Vec<_> = rules
        .filter(|rule| TABLES.contains(&rule.table.get()))
        .collect();
    let is_installed = scene.root.has("/usr/bin/cloud-init")? || scene.root.has("/etc/cloud")?;
    if !is_configured && (rules.is_empty() || !is_installed) {
        return Ok(Found::ok(if is_installed {
            "cloud-init configures no policy rules"
        } else {
            "cloud-init is not here"
        }));
    }
    evidence.extend(
        rules
            .iter()
            .map(|rule| format!("{} rule {rule} (protocol {})", rule.family, rule.protocol)),
    );
    let what = if is_configured {
        "cloud-init configures policy rules"
    } else {
        "rules are in the kernel as cloud-init configures them"
    };
    let cards = scene.uplinks().map(|uplink| uplink.device.name.to_string());
    let mut cards: Vec<String> = cards.collect();
    cards.sort();
    cards.dedup();
    let found = Found::problem_if(scene.is_ours_at_work()?, what)
        .with_evidence(evidence)
        .with_cure(
            Cure::new(
                "on EC2 (and Alibaba Cloud) let cloud-init configure the first card only, anew at each \
                 boot; configure the others in a file of your own, and reboot",
            )
            .file(
                "/etc/cloud/cloud.cfg.d/90-leaseroute.cfg",
                &[
                    "datasource:",
                    "  Ec2: {apply_full_imds_network_config: false}",
                    "  AliYun: {apply_full_imds_network_config: false}",
                    "updates: {network: {when: [boot]}}",
                ],
            )
            .command("reboot"),
        )
        .with_cure(
            Cure::new(
                "or let cloud-init leave the network alone, keep its last file, and take the \
                 routing-policy and the routes with a table out of that by hand; then run the command",
            )
            .file(
                "/etc/cloud/cloud.cfg.d/99-disable-network-config.cfg",
                &["network: {config: disabled}"],
            )
            .command("netplan apply"),
        );
    Ok(vec![if cards.is_empty() {
        found.with_cure(
            Cure::new("or let cloud-init do it, and take leaseroute's hooks away")
                .command("leaseroute hooks remove")
                .command("leaseroute remove --all"),
        )
    } else {
        found.with_cure(Cure::leave_alone(&cards))
    }])
}

fn hotplug(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let rules = scene.there(HOTPLUG_RULES)?;
    let Some(rule) = rules.first() else {
        return Ok(Found::ok(
            "cloud-init does not configure cards that are plugged in later",
        ));
    };
    let off = rule.clone();
    Ok(vec![
        Found::note("cloud-init configures cards that are plugged in later")
            .with_evidence(rules)
            .with_cure(
                Cure::new(
                    "to switch it off, leave \"hotplug\" out of the user data's \
                     updates.network.when, and remove the rule",
                )
                .command(format!("rm {off}"))
                .command("udevadm control --reload"),
            ),
    ])
}
