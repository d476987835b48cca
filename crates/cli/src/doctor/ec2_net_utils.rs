//! amazon-ec2-net-utils 2: routing by networkd's drop-ins, asked of the metadata service.
//!
//! Its rules have priority and table 10000 and the device number; its default routes the
//! metric 512 and ten times that number; `[DHCPv4] RouteTable=` and `[IPv6AcceptRA]
//! RouteTable=` keep a secondary card's routes out of table main.

use std::io;

use super::check::{Check, Cure, Found, Severity};
use super::scene::Scene;

pub(super) const CHECKS: &[Check] = &[Check {
    name: "amazon-ec2-net-utils",
    looks_at: "policy-routes@.service and its timers, their files in /run/systemd/network, and rules \
               of priority 10000 to 10999",
    worst: Severity::Note,
    why: "both do the same work. Its rules come after ours (10000 and up), so ours decide where both \
          have one, and its secondary addresses stay of use. It keeps a secondary card's routers out \
          of table main, where leaseroute looks for IPv6 ones: the IPv6 default of such a card comes \
          by its table. Its timer lets networkd reload when metadata changes",
    look,
}];

const UNITS: &[&str] = &["policy-routes@", "refresh-policy-routes@"];

/// Where it is installed.
const SIGNS: &[&str] = &[
    "/usr/bin/setup-policy-routes",
    "/usr/lib/udev/rules.d/99-vpc-policy-routes.rules",
    "/lib/udev/rules.d/99-vpc-policy-routes.rules",
];

fn look(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let signs = scene.there(SIGNS)?;
    let mut evidence = scene.units.at_work(UNITS)?;
    let mut cards = Vec::new();
    for name in scene.root.names("/run/systemd/network")? {
        let card = name
            .strip_prefix("70-")
            .and_then(|name| name.strip_suffix(".network.d"));
        let Some(card) = card else { continue };
        let files = scene.files(&format!("/run/systemd/network/{name}"), ".conf")?;
        if !files.is_empty() {
            cards.push(card.to_owned());
        }
        evidence.extend(files);
    }
    let rules = scene.foreign_rules().filter(|rule| {
        (10_000..11_000).contains(&rule.priority.get()) && rule.table.get() == rule.priority.get()
    });
    evidence.extend(rules.map(|rule| format!("{} rule {rule}", rule.family)));
    if evidence.is_empty() {
        return Ok(Found::ok(if signs.is_empty() {
            "amazon-ec2-net-utils is not here"
        } else {
            "amazon-ec2-net-utils is installed and does nothing"
        }));
    }
    evidence.extend(signs);
    let mut off = Cure::new(
        "to have leaseroute alone, switch it off for each card; the card keeps DHCP by \
         80-ec2.network. Give each card a RouteMetric= of its own in /etc/systemd/network then",
    )
    .command("ln -s /dev/null /etc/udev/rules.d/99-vpc-policy-routes.rules")
    .command("udevadm control --reload");
    for card in &cards {
        off = off
            .command(format!(
                "systemctl disable --now policy-routes@{card}.service refresh-policy-routes@{card}.timer"
            ))
            .command(format!(
                "rm -r /run/systemd/network/70-{card}.network /run/systemd/network/70-{card}.network.d"
            ));
    }
    let found = Found::note("amazon-ec2-net-utils sets up routing of its own")
        .with_evidence(evidence)
        .with_cure(Cure::new(
            "nothing needs to be done: the two live beside each other",
        ))
        .with_cure(off.command("networkctl reload"));
    Ok(vec![found.with_cure(Cure::leave_alone(&cards))])
}
