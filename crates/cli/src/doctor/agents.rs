//! The agents of clouds and distributions that set up secondary addresses, and some also
//! rules: nm-cloud-setup, cloud-netconfig, google-guest-agent, and Azure's.

use std::io;

use super::check::{Check, Cure, Found, Severity};
use super::policies::{self, Owner};
use super::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "nm-cloud-setup",
        looks_at: "nm-cloud-setup.service and its timer, which clouds it is told of, and rules of \
                   priority 30200 to 30499",
        worst: Severity::Note,
        why: "both do the same work, and ours decides: its rules come after ours (30200, 30350 and \
              30400 and up). It puts secondary IPv4 addresses on cards, and reapplies connections when \
              metadata changes",
        look: nm_cloud_setup,
    },
    Check {
        name: "cloud-netconfig",
        looks_at: "SUSE's cloud-netconfig: its timer, its dispatcher and netconfig scripts, \
                   CLOUD_NETCONFIG_MANAGE, and rules of priority 10000 to 10999",
        worst: Severity::Note,
        why: "both do the same work, and ours decides: its rules come after ours (100 times the table, \
              which is 100 and the last digit of the card's name). It guesses a gateway where the lease \
              has none, and puts secondary addresses on cards",
        look: cloud_netconfig,
    },
    Check {
        name: "google-guest-agent",
        looks_at: "google-guest-agent.service, [NetworkInterfaces] and [IpForwarding] of \
                   instance_configs.cfg, and the files it writes for secondary cards",
        worst: Severity::Note,
        why: "it starts DHCP on secondary cards, which leaseroute needs as much as any client, and puts \
              forwarded addresses and alias ranges into table local (protocol 66). It makes no rules: \
              the replies from those addresses are leaseroute's part",
        look: guest_agent,
    },
    Check {
        name: "azure-hotplug",
        looks_at: "the netplan file of Azure's images that gives DHCP to every card alike",
        worst: Severity::Note,
        why: "cards that come later get the same metric as the first one, and by which one new \
              connections leave is chance; 168.63.129.16 and the metadata service answer on the first \
              card only",
        look: azure,
    },
];

fn nm_cloud_setup(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let units = &["nm-cloud-setup.service", "nm-cloud-setup.timer"];
    let is_installed = scene.units.installed("nm-cloud-setup.service")?.is_some();
    let mut evidence = scene.units.at_work(units)?;
    // It asks no cloud that it is not told of.
    for folder in ["/etc", "/run", "/usr/lib", "/lib"] {
        let folder = format!("{folder}/systemd/system/nm-cloud-setup.service.d");
        for path in scene.files(&folder, ".conf")? {
            let text = scene.root.text(&path)?;
            let told = text.lines().map(str::trim).filter(|line| {
                line.starts_with("Environment=") && line.contains("NM_CLOUD_SETUP_")
            });
            evidence.extend(told.map(|line| format!("{path}: {line}")));
        }
    }
    let rules = scene.foreign_rules().filter(|rule| {
        let priority = rule.priority.get();
        (30_200..30_300).contains(&priority)
            || priority == 30_350
            || (30_400..30_500).contains(&priority)
    });
    let rules: Vec<String> = rules.map(|r| format!("{} rule {r}", r.family)).collect();
    let is_enabled = evidence.iter().any(|line| !line.contains("Environment="));
    if !is_enabled && rules.is_empty() {
        return Ok(Found::ok(if is_installed {
            "nm-cloud-setup is installed and not enabled"
        } else {
            "nm-cloud-setup is not here"
        }));
    }
    Ok(vec![
        Found::note("nm-cloud-setup is at work")
            .with_evidence(evidence)
            .with_evidence(rules)
            .with_cure(Cure::new("nothing needs to be done: the two live beside each other"))
            .with_cure(
                Cure::new(
                    "to have leaseroute alone, switch it off; with [metadata] assign_addresses = true \
                     leaseroute puts secondary addresses on cards in its place",
                )
                .command("systemctl disable --now nm-cloud-setup.timer nm-cloud-setup.service"),
            )
            .with_cure(
                Cure::new("or only for one connection")
                    .command(
                        "nmcli connection modify CONNECTION +user.data \
                         org.freedesktop.nm-cloud-setup.skip=yes",
                    ),
            ),
    ])
}

fn cloud_netconfig(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let signs = scene.there(&[
        "/etc/netconfig.d/cloud-netconfig",
        "/usr/libexec/netconfig.d/cloud-netconfig",
        "/usr/lib/NetworkManager/dispatcher.d/cloud-netconfig-nm",
        "/etc/NetworkManager/dispatcher.d/cloud-netconfig-nm",
    ])?;
    let mut evidence = scene.units.at_work(&["cloud-netconfig.timer"])?;
    if signs.is_empty() && evidence.is_empty() {
        return Ok(Found::ok("cloud-netconfig is not here"));
    }
    evidence.extend(signs);
    let mut cards = Vec::new();
    for path in scene.files("/etc/sysconfig/network", "")? {
        let is_card = path.starts_with("/etc/sysconfig/network/ifcfg-");
        if is_card && is_managed(&scene.root.text(&path)?) {
            evidence.push(format!("{path}: CLOUD_NETCONFIG_MANAGE says yes"));
            cards.push(path);
        }
    }
    let mut off = Cure::new(
        "to have leaseroute alone, say CLOUD_NETCONFIG_MANAGE='no' in the ifcfg file of each card, and \
         in /etc/default/cloud-netconfig for cards that come later",
    )
    .command(
        "sed -i \"s/^CLOUD_NETCONFIG_MANAGE=.*/CLOUD_NETCONFIG_MANAGE='no'/\" \
         /etc/default/cloud-netconfig",
    );
    for path in &cards {
        off = off.command(format!(
            "sed -i \"s/^CLOUD_NETCONFIG_MANAGE=.*/CLOUD_NETCONFIG_MANAGE='no'/\" {path}"
        ));
    }
    Ok(vec![
        Found::note("cloud-netconfig is here")
            .with_evidence(evidence)
            .with_cure(Cure::new(
                "nothing needs to be done: the two live beside each other",
            ))
            .with_cure(off.command("systemctl disable --now cloud-netconfig.timer")),
    ])
}

/// Whether an ifcfg file lets cloud-netconfig work on its card.
fn is_managed(text: &str) -> bool {
    let mut values = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("CLOUD_NETCONFIG_MANAGE="));
    values.any(|value| value.trim_matches(['"', '\'']) == "yes")
}

fn guest_agent(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let units = &[
        "google-guest-agent.service",
        "google-guest-agent-manager.service",
    ];
    let mut evidence = scene.units.at_work(units)?;
    if evidence.is_empty() {
        return Ok(Found::ok("google-guest-agent is not here, or not enabled"));
    }
    for path in [
        "/etc/default/instance_configs.cfg.distro",
        "/etc/default/instance_configs.cfg",
    ] {
        let text = scene.root.text(path)?;
        for key in [
            "network_daemon",
            "setup",
            "ip_forwarding",
            "manage_primary_nic",
        ] {
            if let Some(value) = setting(&text, key) {
                evidence.push(format!("{path}: {key} = {value}"));
            }
        }
    }
    for (folder, ending) in [
        ("/run/netplan", ".yaml"),
        ("/usr/lib/systemd/network", ".network"),
        ("/etc/NetworkManager/system-connections", ".nmconnection"),
    ] {
        let files = scene.files(folder, ending)?.into_iter();
        evidence.extend(files.filter(|path| path.contains("google-guest-agent")));
    }
    let policies = policies::scan(scene)?;
    let rules = policies.iter().filter(|p| p.owner == Owner::GuestAgent);
    evidence.extend(rules.flat_map(policies::Policy::evidence));
    Ok(vec![
        Found::note("google-guest-agent sets up secondary cards and forwarded addresses")
            .with_evidence(evidence)
            .with_cure(Cure::new(
                "nothing needs to be done: the two live beside each other",
            ))
            .with_cure(
                Cure::new(
                    "to have cards configured by another client alone, switch its network part off",
                )
                .file(
                    "/etc/default/instance_configs.cfg",
                    &["[NetworkInterfaces]", "setup = false"],
                )
                .command("systemctl restart google-guest-agent.service"),
            ),
    ])
}

/// The value of a `key = value` line.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

fn azure(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let path = "/etc/netplan/90-hotplug-azure.yaml";
    let text = scene.root.text(path)?;
    if text.is_empty() {
        return Ok(Found::ok(format!("{path} is not here")));
    }
    if text.contains("route-metric") {
        return Ok(Found::ok(format!("{path} gives metrics")));
    }
    Ok(vec![
        Found::note("cards that come later get a default route like the first one's")
            .with_evidence([format!("{path}: no route-metric for the cards beside eth0")])
            .with_cure(
                Cure::new(
                    "give the cards of \"ephemeral\" a larger metric and none of the first card's DNS, \
                     in a file that comes later",
                )
                .file(
                    "/etc/netplan/91-secondary.yaml",
                    &[
                        "network:",
                        "  version: 2",
                        "  ethernets:",
                        "    ephemeral:",
                        "      dhcp4-overrides: {route-metric: 200, use-dns: false}",
                    ],
                )
                .command("netplan apply"),
            ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_cloud_netconfigs_when_its_file_says_so() {
        assert!(is_managed(
            "BOOTPROTO='dhcp'\nCLOUD_NETCONFIG_MANAGE='yes'\n"
        ));
        assert!(!is_managed("CLOUD_NETCONFIG_MANAGE=no\n"));
        assert!(!is_managed("#CLOUD_NETCONFIG_MANAGE='yes'\n"));
    }
}
