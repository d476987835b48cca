//! leaseroute itself: its configuration, whether its hooks are called, what hinders it, and
//! what it asks of the metadata service.

use std::collections::BTreeSet;
use std::io;

use leaseroute_core::ProviderChoice;
use leaseroute_runtime::exit::Exit;
use leaseroute_watch::metadata::provider;
use rustix::thread::{CapabilitySet, capabilities};

use super::check::{Check, Cure, Found, Severity};
use super::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "configuration",
        looks_at: "whether leaseroute's configuration can be used",
        worst: Severity::Problem,
        why: "with an invalid configuration hooks and watcher change nothing any more",
        look: configuration,
    },
    Check {
        name: "two-managers",
        looks_at: "cards that two programs configure",
        worst: Severity::Problem,
        why: "each takes away what the other sets, and two leases of one card are more than rules can \
              keep apart: the one that told last counts",
        look: two_managers,
    },
    Check {
        name: "hooks",
        looks_at: "cards whose DHCP client calls no hook of ours",
        worst: Severity::Problem,
        why: "without a hook and without the watcher nobody tells leaseroute of that card's leases",
        look: hooks,
    },
    Check {
        name: "privilege",
        looks_at: "CAP_NET_ADMIN, of this process and in the last runs",
        worst: Severity::Problem,
        why: "without it neither rules nor routes can be changed",
        look: privilege,
    },
    Check {
        name: "fights",
        looks_at: "programs that remove leaseroute's objects again and again",
        worst: Severity::Problem,
        why: "the watcher leaves an object alone for longer and longer that is removed each time, and \
              replies leave by the wrong card meanwhile",
        look: fights,
    },
    Check {
        name: "metadata",
        looks_at: "[metadata] provider, and whether anything runs the metadata step: the watcher, or \
                   leaseroute-metadata.socket",
        worst: Severity::Note,
        why: "secondary addresses and delegated prefixes are in no lease; without the step their replies \
              leave by the main table",
        look: metadata,
    },
];

fn configuration(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    match (&scene.live, &scene.invalid) {
        (None, _) => Ok(Found::unknown(scene.no_kernel())),
        (Some(_), Some(error)) => Ok(vec![
            Found::problem("the configuration cannot be used")
                .with_evidence([error.clone()])
                .with_cure(
                    Cure::new("see where, and put it right").command("leaseroute config check"),
                ),
        ]),
        (Some(_), None) => Ok(Found::ok("the configuration can be used")),
    }
}

fn two_managers(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let cards = match &scene.hooks {
        Ok(view) => view.cards.as_ref(),
        Err(error) => return Ok(Found::unknown(error.clone())),
    };
    let Some(cards) = cards else {
        return Ok(Found::unknown(scene.no_kernel()));
    };
    let mut found = Vec::new();
    for card in cards {
        let mut managers = Vec::new();
        for manager in &card.managers {
            if !is_networkmanagers(scene, manager.pid)? {
                managers.push(manager);
            }
        }
        let programs: BTreeSet<&str> = managers.iter().map(|m| m.program).collect();
        if programs.len() < 2 {
            continue;
        }
        let evidence = managers
            .iter()
            .map(|m| format!("{}, process {}: {}", m.program, m.pid, m.evidence));
        let mut finding = Found::problem(format!(
            "{} is configured by {}",
            card.name,
            programs.iter().copied().collect::<Vec<_>>().join(" and ")
        ))
        .with_evidence(evidence);
        for program in programs {
            finding = finding.with_cure(release(program, &card.name));
        }
        found.push(finding);
    }
    if found.is_empty() {
        return Ok(Found::ok("each card has one manager at most"));
    }
    Ok(found)
}

/// Whether a client is one that NetworkManager started for itself (`dhcp=` in
/// NetworkManager.conf(5)), which is no second program.
fn is_networkmanagers(scene: &Scene<'_>, pid: u32) -> io::Result<bool> {
    // It may have ended meanwhile.
    let arguments = scene.root.text(&format!("/proc/{pid}/cmdline"))?;
    Ok(arguments.contains("nm-dhcp-helper"))
}

/// How a program is made to leave a card alone.
fn release(program: &str, card: &str) -> Cure {
    match program {
        "NetworkManager" => Cure::new(format!("let NetworkManager leave {card} alone"))
            .file(
                format!("/etc/NetworkManager/conf.d/90-unmanaged-{card}.conf"),
                &[
                    "[keyfile]",
                    &format!("unmanaged-devices+=interface-name:{card}"),
                ],
            )
            .command("systemctl reload NetworkManager"),
        "systemd-networkd" => Cure::new(format!("let networkd leave {card} alone"))
            .file(
                format!("/etc/systemd/network/05-unmanaged-{card}.network"),
                &[
                    "[Match]",
                    &format!("Name={card}"),
                    "[Link]",
                    "Unmanaged=yes",
                ],
            )
            .command("networkctl reload"),
        "dhcpcd" => Cure::new(format!("let dhcpcd leave {card} alone"))
            .file("/etc/dhcpcd.conf", &[&format!("denyinterfaces {card}")])
            .command("dhcpcd --rebind"),
        other => Cure::new(format!(
            "end {other} for {card}, and take out what starts it, such as its stanza in \
             /etc/network/interfaces"
        )),
    }
}

fn hooks(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let view = match &scene.hooks {
        Ok(view) => view,
        Err(error) => return Ok(Found::unknown(error.clone())),
    };
    let cure = || {
        Cure::new("put the hooks in place, and see what is left to be done")
            .command("leaseroute hooks install")
            .command("leaseroute hooks list")
    };
    let Some(cards) = &view.cards else {
        return Ok(hooks_of_image(scene, cure()));
    };
    let is_watched = scene.live().and_then(|live| live.watcher) == Some(true);
    let mut found = Vec::new();
    for card in cards {
        let is_called = card.managers.iter().any(|manager| manager.live);
        // Somebody told of it, if not by what "leaseroute hooks install" puts in place.
        if card.managers.is_empty() || is_called || !card.told.is_empty() {
            continue;
        }
        let mut evidence: Vec<String> = Vec::new();
        for manager in &card.managers {
            evidence.push(format!("{}: {}", manager.program, manager.evidence));
            evidence.extend(manager.why_not.iter().cloned());
        }
        let what = format!("no hook is called for {}", card.name);
        let what = if is_watched {
            format!("{what}; the watcher takes its leases in")
        } else {
            what
        };
        found.push(
            Found::problem_if(!is_watched, what)
                .with_evidence(evidence)
                .with_cure(cure()),
        );
    }
    if found.is_empty() {
        return Ok(Found::ok(
            "every card with a client has a hook that is called",
        ));
    }
    Ok(found)
}

/// Of an image it is known only which clients are there.
fn hooks_of_image(scene: &Scene<'_>, cure: Cure) -> Vec<Found> {
    let clients = scene.hooks.iter().flat_map(|view| &view.clients);
    let clients: Vec<_> = clients.filter(|c| c.here && !c.is_setting).collect();
    let is_in_place = |client: &&&crate::hooks::ClientView| {
        let mut entries = client.entries.iter();
        entries.any(|entry| entry.state == crate::hooks::Word::InPlace)
    };
    let without: Vec<_> = clients.iter().filter(|c| !is_in_place(c)).collect();
    if clients.is_empty() {
        return Found::ok("no client is here");
    }
    if without.is_empty() {
        return Found::ok("every client that is here has its hooks");
    }
    let names: Vec<&str> = without.iter().map(|client| client.client).collect();
    vec![
        Found::note(format!(
            "clients are here without our hooks: {}",
            names.join(", ")
        ))
        .with_evidence(without.iter().flat_map(|client| client.why_not.clone()))
        .with_cure(cure),
    ]
}

fn privilege(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let Some(live) = scene.live() else {
        return Ok(Found::unknown(scene.no_kernel()));
    };
    let mut found = Vec::new();
    let refused: Vec<String> = live
        .last_runs
        .iter()
        .filter(|(_, run)| run.exit == Exit::NotPermitted.code())
        .map(|(family, run)| format!("{family}: the run at {} was not permitted", run.time))
        .collect();
    if !refused.is_empty() {
        found.push(
            Found::problem("a run of leaseroute was not permitted to change anything")
                .with_evidence(refused)
                .with_cure(Cure::new(
                    "give CAP_NET_ADMIN to what runs the DHCP client: in a unit AmbientCapabilities= or \
                     CapabilityBoundingSet=, in a container --cap-add NET_ADMIN",
                )),
        );
    }
    let held = capabilities(None).map_err(io::Error::from)?;
    let may = held.effective.contains(CapabilitySet::NET_ADMIN);
    let is_root = rustix::process::geteuid().is_root();
    if is_root && !may {
        found.push(
            Found::problem("root has no CAP_NET_ADMIN here")
                .with_evidence(["/proc/self/status: CapEff"])
                .with_cure(Cure::new(
                    "start the container with --cap-add NET_ADMIN, or run leaseroute outside of it",
                )),
        );
    } else if !may {
        found.push(
            Found::note("doctor was not run by root, and may not see all files and processes")
                .with_cure(Cure::new("run it as root").command("sudo leaseroute doctor")),
        );
    }
    if found.is_empty() {
        return Ok(Found::ok("CAP_NET_ADMIN is there"));
    }
    Ok(found)
}

fn fights(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let Some(live) = scene.live() else {
        return Ok(Found::unknown(scene.no_kernel()));
    };
    if live.watcher != Some(true) {
        return Ok(Found::ok("no watcher runs that could tell"));
    }
    let fights = live.health.iter().flat_map(|health| &health.fights);
    let found: Vec<Found> = fights
        .take(20)
        .map(|fight| {
            let by = fight.by.as_deref().unwrap_or("a program that had ended");
            Found::problem(format!("{by} removes what leaseroute sets"))
                .with_evidence([format!("{}: removed {} times", fight.object, fight.times)])
                .with_cure(Cure::new(
                    "tell that program to leave rules and routes of protocol 76 alone, or end it",
                ))
        })
        .collect();
    if found.is_empty() {
        return Ok(Found::ok("nobody removes what leaseroute sets"));
    }
    Ok(found)
}

fn metadata(scene: &Scene<'_>) -> io::Result<Vec<Found>> {
    let socket = "leaseroute-metadata.socket";
    let evidence = scene.units.at_work(&[socket])?;
    let is_watched = scene.live().and_then(|live| live.watcher) == Some(true);
    let choice = scene.settings.metadata.provider;
    if choice == ProviderChoice::None {
        return Ok(Found::ok("provider is none: no service is asked"));
    }
    if is_watched || !evidence.is_empty() {
        let whom = match provider(&scene.settings.metadata, scene.root.path()) {
            Some(provider) => provider.name(),
            None => "nobody, since the firmware names no cloud that is known here",
        };
        return Ok(Found::ok(format!(
            "it is run (provider: {choice}; it asks {whom})"
        )));
    }
    let Some(path) = scene.units.installed(socket)? else {
        // Without a name for the provider this may be no cloud at all.
        return Ok(match choice {
            ProviderChoice::Named(name) => vec![
                Found::note(format!("provider is {name}, and nothing asks it by itself"))
                    .with_cure(
                        Cure::new("install the units of packaging/systemd, or run the watcher")
                            .command("systemctl enable --now leaseroute-watch.service"),
                    ),
            ],
            _ => Found::ok("its units are not installed"),
        });
    };
    Ok(vec![
        Found::note("the units of the metadata step are installed, and nothing starts them")
            .with_evidence([format!("{path} is not enabled")])
            .with_cure(
                Cure::new("let hooks start the step")
                    .command(format!("systemctl enable --now {socket}")),
            )
            .with_cure(
                Cure::new("or let the watcher do it")
                    .command("systemctl enable --now leaseroute-watch.service"),
            )
            .with_cure(Cure::new("or, on no cloud, say so").file(
                "/etc/leaseroute/config.toml",
                &["[metadata]", "provider = \"none\""],
            )),
    ])
}
