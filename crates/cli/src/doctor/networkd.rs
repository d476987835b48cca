//! systemd-networkd: whether it takes away the rules and routes of others.

use std::collections::BTreeMap;
use std::io;

use super::check::{Check, Cure, Found, Severity};
use super::scene::Scene;

pub(super) const CHECKS: &[Check] = &[Check {
    name: "networkd-foreign-rules",
    looks_at: "ManageForeignRoutingPolicyRules= and ManageForeignRoutes= in networkd.conf and its \
               drop-ins, where systemd-networkd is enabled or runs",
    worst: Severity::Problem,
    why: "networkd removes the rules and routes of others unless both say no: when it reconfigures a \
          card, and from release 257 on when it starts, too. Until leaseroute's next event, or its \
          watcher, puts them back, replies leave by the wrong card",
    look,
}];

/// Where networkd's settings are, by rising precedence: of two drop-ins with one name the
/// later folder's counts (networkd.conf(5)).
const FOLDERS: &[&str] = &[
    "/usr/lib/systemd",
    "/usr/local/lib/systemd",
    "/run/systemd",
    "/etc/systemd",
];

/// The keys that must say no.
const KEYS: &[&str] = &["ManageForeignRoutingPolicyRules", "ManageForeignRoutes"];

fn look(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let unit = "systemd-networkd.service";
    let mut evidence = scene.units.at_work(&[unit])?;
    let processes = scene
        .hooks
        .as_ref()
        .ok()
        .and_then(|view| view.cards.as_ref());
    let managed = processes.into_iter().flatten().filter(|card| {
        let mut managers = card.managers.iter();
        managers.any(|manager| manager.program == "systemd-networkd")
    });
    evidence.extend(managed.map(|card| format!("networkd manages {}", card.name)));
    if evidence.is_empty() {
        return Ok(Found::ok(
            "systemd-networkd is not enabled and does not run",
        ));
    }
    let settings = settings(scene)?;
    let mut missing = Vec::new();
    for key in KEYS {
        match settings.get(*key) {
            Some((value, _)) if is_no(value) => {}
            Some((value, path)) => {
                evidence.push(format!("{path}: {key}={value}"));
                missing.push(*key);
            }
            None => missing.push(*key),
        }
    }
    if missing.is_empty() {
        return Ok(Found::ok(
            "networkd leaves the rules and routes of others alone",
        ));
    }
    Ok(vec![
        Found::problem_if(
            scene.is_ours_at_work()?,
            format!(
                "networkd takes away rules and routes of others: {} is not set to no",
                missing.join(" and ")
            ),
        )
        .with_evidence(evidence)
        .with_cure(
            Cure::new("put our drop-in in place; networkd reads it when it starts")
                .command("leaseroute hooks install --client networkd")
                .command("systemctl try-restart systemd-networkd.service"),
        ),
    ])
}

/// The keys with their values and files, as networkd puts its files over each other.
fn settings(scene: &Scene<'_>) -> io::Result<BTreeMap<String, (String, String)>> {
    let mut settings = BTreeMap::new();
    // The main file of the folder with the highest precedence, and then all drop-ins.
    for folder in FOLDERS.iter().rev() {
        let path = format!("{folder}/networkd.conf");
        if scene.root.has(&path)? {
            read(scene, &path, &mut settings)?;
            break;
        }
    }
    let mut drop_ins: BTreeMap<String, String> = BTreeMap::new();
    for folder in FOLDERS {
        let folder = format!("{folder}/networkd.conf.d");
        for name in scene.root.names(&folder)? {
            if name.ends_with(".conf") {
                let path = format!("{folder}/{name}");
                drop_ins.insert(name, path);
            }
        }
    }
    for path in drop_ins.into_values() {
        read(scene, &path, &mut settings)?;
    }
    Ok(settings)
}

fn read(
    scene: &Scene<'_>,
    path: &str,
    settings: &mut BTreeMap<String, (String, String)>,
) -> io::Result<()> {
    let mut within = false;
    for line in scene.root.text(path)?.lines().map(str::trim) {
        if line.starts_with('[') {
            within = line == "[Network]";
        } else if let (true, Some((key, value))) = (within, line.split_once('=')) {
            let value = (value.trim().to_owned(), path.to_owned());
            settings.insert(key.trim().to_owned(), value);
        }
    }
    Ok(())
}

/// As systemd reads truth values.
fn is_no(value: &str) -> bool {
    ["no", "n", "false", "f", "off", "0"]
        .iter()
        .any(|no| no.eq_ignore_ascii_case(value))
}
