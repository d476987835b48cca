//! Which client manages which card of this system now, and whether its hook is called.
//!
//! The evidence: the clients' processes and their arguments, dhclient's and dhcpcd's lease
//! files where the arguments name no interface, networkd's and NetworkManager's own records
//! of each interface, and what our hooks were told.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use leaseroute_core::{Family, Host, LeaseBook, Link, Settings};
use leaseroute_kernel::Netlink;
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::{Paths, StateFolder, snapshot};
use serde::Serialize;

use super::list::ClientView;
use super::presence::replaced;
use super::processes::{Interfaces, Process};
use super::room::{Layout, Room, Start};
use super::root::Root;
use super::table::ROOMS;
use crate::error::CliError;
use crate::output;

/// One card and who works on it.
#[derive(Debug, Serialize)]
pub(crate) struct CardView {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) managers: Vec<ManagerView>,
    /// The clients whose hooks told of it last.
    pub(crate) told: Vec<ToldView>,
}

/// A client that works on a card.
#[derive(Debug, Serialize)]
pub(crate) struct ManagerView {
    /// Its program.
    pub(crate) program: &'static str,
    pub(crate) pid: u32,
    /// How that is known.
    pub(crate) evidence: String,
    /// The client, as `hooks` names it, whose hook is told of the card.
    pub(crate) client: Option<&'static str>,
    /// Whether the hook is called for this card.
    pub(crate) live: bool,
    /// Why not.
    pub(crate) why_not: Vec<String>,
}

/// A client that told of a card.
#[derive(Debug, Serialize)]
pub(crate) struct ToldView {
    pub(super) family: Family,
    pub(super) client: Option<&'static str>,
    /// When, in seconds since 1970.
    pub(super) updated: u64,
}

/// What there is to see of this system.
struct Scene<'a> {
    root: &'a Root,
    processes: &'a [Process],
    clients: &'a [ClientView],
    /// The interfaces that lease files name, by program.
    leases: BTreeMap<&'static str, Vec<String>>,
}

/// All cards of this system, by name.
pub(super) fn cards(
    root: &Root,
    processes: &[Process],
    clients: &[ClientView],
) -> Result<Vec<CardView>, CliError> {
    let links = snapshot::links(&Netlink::open()?, &Settings::default())?;
    let (mut book, errors) = StateFolder::at(Paths::from_environment().state).read_book();
    for error in errors {
        output::warn(&with_causes(&error));
    }
    let host = Host {
        links,
        ..Host::default()
    };
    book.retain_present(&host);
    let scene = Scene {
        root,
        processes,
        clients,
        leases: BTreeMap::from([
            ("dhclient", dhclient_leases(root).unwrap_or_default()),
            ("dhcpcd", dhcpcd_leases(root).unwrap_or_default()),
        ]),
    };
    let mut cards: Vec<CardView> = host
        .links
        .values()
        .filter(|link| !link.loopback)
        .map(|link| scene.card(link, &book))
        .filter(|(link, card)| link.master.is_none() || card.is_known())
        .map(|(_, card)| card)
        .collect();
    cards.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cards)
}

impl CardView {
    fn is_known(&self) -> bool {
        !self.managers.is_empty() || !self.told.is_empty()
    }
}

impl Scene<'_> {
    fn card<'l>(&self, link: &'l Link, book: &LeaseBook) -> (&'l Link, CardView) {
        let managers = self.processes.iter();
        let managers = managers.filter_map(|process| {
            let evidence = self.evidence(process, link)?;
            Some(self.manager(process, evidence))
        });
        let mut view = CardView {
            name: link.name.to_string(),
            index: link.index.get(),
            managers: Vec::new(),
            told: Vec::new(),
        };
        for manager in managers {
            // One program may have several processes for a card, of which each is as good.
            let same = |known: &ManagerView| {
                known.program == manager.program && known.live == manager.live
            };
            if !view.managers.iter().any(same) {
                view.managers.push(manager);
            }
        }
        for family in Family::BOTH {
            view.told
                .extend(book.get(link.index, family).map(|record| ToldView {
                    family,
                    client: record.event.as_ref().map(|event| event.client.name()),
                    updated: record.updated,
                }));
        }
        (link, view)
    }

    /// How it is known that a process works on a card. `None`: it does not.
    fn evidence(&self, process: &Process, link: &Link) -> Option<String> {
        let is_called =
            |name: &String| *name == *link.name.as_str() || link.alternative_names.contains(name);
        match (process.program, &process.interfaces) {
            ("systemd-networkd", _) => {
                let path = format!("/run/systemd/netif/links/{}", link.index);
                let state = value(&fs::read_to_string(path).ok()?, "ADMIN_STATE")?;
                let manages = !matches!(state.as_str(), "unmanaged" | "linger" | "");
                manages.then(|| format!("networkd has it as {state}"))
            }
            ("NetworkManager", _) => {
                let path = format!("/run/NetworkManager/devices/{}", link.index);
                let state = value(&fs::read_to_string(path).ok()?, "managed")?;
                let manages = !matches!(state.as_str(), "false" | "0" | "removed" | "");
                manages.then(|| "NetworkManager has it as managed".to_owned())
            }
            ("dhclient" | "dhcpcd" | "udhcpc", Interfaces::Named(names)) => names
                .iter()
                .any(is_called)
                .then(|| "named in its arguments".to_owned()),
            (program @ ("dhclient" | "dhcpcd"), Interfaces::Any) => {
                let leases = self.leases.get(program)?;
                let leased = leases.iter().any(is_called);
                leased.then(|| {
                    "has a lease of it in its files, and its arguments name none".to_owned()
                })
            }
            _ => None,
        }
    }

    fn manager(&self, process: &Process, evidence: String) -> ManagerView {
        let room = ROOMS
            .iter()
            .find(|room| room.serves == process.program && !room.is_setting());
        let client = room.and_then(|room| self.client(room));
        let why_not = match (room, client) {
            (Some(room), Some(client)) => client.why_not_for(room, process, self.root),
            _ => vec![format!("{} calls no hooks", process.program)],
        };
        ManagerView {
            program: process.program,
            pid: process.pid,
            evidence,
            client: room.map(|room| room.name),
            live: why_not.is_empty(),
            why_not,
        }
    }

    fn client(&self, room: &Room) -> Option<&ClientView> {
        self.clients.iter().find(|view| view.client == room.name)
    }
}

impl ClientView {
    /// Why the hook is not called by a process; nothing: it is.
    fn why_not_for(&self, room: &Room, process: &Process, root: &Root) -> Vec<String> {
        let mut why_not = self.why_not.clone();
        if !self.here && why_not.is_empty() {
            why_not.push(format!("{} is not here", room.name));
        }
        let layout = room.layout(root).ok().flatten();
        let starts = layout.map(|layout| &layout.starts);
        match (starts, process.script.as_deref()) {
            (Some(Start::WithScript { scripts, .. }), Some(given)) if scripts.contains(&given) => {}
            (Some(Start::WithScript { scripts, own, .. }), None)
                if matches!(replaced(root, own, scripts), Ok(Some(_))) => {}
            (Some(Start::WithScript { scripts, .. }), _) => {
                why_not.push(format!(
                    "it was not started with -s {}",
                    scripts.join(" or ")
                ));
            }
            (_, Some(given)) if !calls_hooks(room, layout, given, root) => {
                why_not.push(format!("it was started with the script {given:?}"));
            }
            _ => {}
        }
        why_not
    }
}

/// Whether a script calls hooks: the client's own does, and another one that has the
/// folder's name in it.
fn calls_hooks(room: &Room, layout: Option<&Layout>, script: &str, root: &Root) -> bool {
    let name = script.rsplit('/').next().unwrap_or(script);
    if room.scripts.contains(&name) {
        return true;
    }
    let text = root.text(script).unwrap_or_default();
    let rows = layout.map_or(&[][..], |layout| layout.rows);
    rows.iter().any(|row| {
        let (folder, _) = row.split();
        folder
            .rsplit('/')
            .next()
            .is_some_and(|name| text.contains(name))
    })
}

/// The value of a KEY=VALUE line.
fn value(text: &str, key: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned())
}

/// The interfaces that dhclient has leases of (dhclient.leases(5)).
fn dhclient_leases(root: &Root) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["/var/lib/dhcp", "/var/lib/dhclient"] {
        for name in root.names(folder)? {
            if !name.contains(".lease") {
                continue;
            }
            let text = root.text(&format!("{folder}/{name}"))?;
            let names = text.lines().filter_map(|line| {
                let name = line.trim().strip_prefix("interface \"")?;
                name.strip_suffix("\";")
            });
            found.extend(names.map(ToOwned::to_owned));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The interfaces that dhcpcd has leases of: its files are called INTERFACE.lease, or
/// INTERFACE-SSID.lease, or with lease6.
fn dhcpcd_leases(root: &Root) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["/var/lib/dhcpcd", "/var/db/dhcpcd"] {
        for name in root.names(folder)? {
            let stem = name
                .strip_suffix(".lease")
                .or_else(|| name.strip_suffix(".lease6"));
            let Some(stem) = stem else { continue };
            found.push(stem.to_owned());
            let before_ssid = stem.split_once('-').map(|(name, _)| name.to_owned());
            found.extend(before_ssid);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_key() {
        let text = "# private\nADMIN_STATE=configured\nOPER_STATE=routable\n";
        assert_eq!(value(text, "ADMIN_STATE").as_deref(), Some("configured"));
        assert_eq!(
            value("[device]\nmanaged = true\n", "managed").as_deref(),
            Some("true")
        );
        assert_eq!(value(text, "STATE"), None);
    }

    #[test]
    fn interfaces_are_found_in_lease_files() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "var/lib/dhcp/dhclient.leases",
                "lease {\n  interface \"eth0\";\n  fixed-address 192.0.2.1;\n}\n",
            ),
            ("var/lib/dhcp/other", "  interface \"eth9\";\n"),
            ("var/lib/dhcpcd/eth1.lease", ""),
            ("var/lib/dhcpcd/wlan0-a network.lease", ""),
            ("var/lib/dhcpcd/secret", ""),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::open(folder.path()).unwrap();
        assert_eq!(dhclient_leases(&root).unwrap(), ["eth0"]);
        assert_eq!(
            dhcpcd_leases(&root).unwrap(),
            ["eth1", "wlan0-a network", "wlan0"]
        );
    }
}
