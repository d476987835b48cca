//! The host of the bench with the real udhcpc on it, once for each card, and one of the
//! ways in which distributions run its script.
//!
//! Debian's script is the installed one. What surrounds our hooks on Alpine and OpenWrt
//! stands in for those of the distributions: it starts or reads hooks as they do.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use leaseroute_core::Family;
use leaseroute_lab::fabric::Layout;

use crate::daemon::{Daemon, read};
use crate::host::{Host, PROGRAMS, is_a_host};
use crate::kernel::{Face, ip};
use crate::servers::{Ipv6, Lan, Servers};
use crate::wait_for;

/// The program.
pub const PROGRAM: &str = "/usr/libexec/leaseroute/leaseroute-udhcpc";
/// What udhcpc is told to run: the script under test, and then a line for each event that
/// came through it, with the script's status.
const RECORDER: &str = "/run/udhcpc.script";
/// The tools that this needs.
const TOOLS: &[&str] = &["udhcpc", "busybox", "flock"];

/// What the scripts of Alpine and OpenWrt do to the card.
const SET_UP: &str = r#"
set_up() {
    case $1 in
    deconfig)
        ip link set "$interface" up
        ip -4 addr flush dev "$interface"
        ;;
    bound | renew)
        ip -4 addr replace "$ip/$mask" dev "$interface"
        metric=$((200 + $(cat "/sys/class/net/$interface/ifindex")))
        [ -z "$router" ] ||
            ip -4 route replace default via "${router%% *}" dev "$interface" metric "$metric"
        ;;
    esac
}
"#;

/// Alpine's way: files of a folder per event, started without an argument.
const ALPINE: &str = r#"
start_all() {
    for hook in "/etc/udhcpc/$1"/*; do
        [ -f "$hook" ] && "$hook"
    done
}
case $1 in
deconfig | bound | renew)
    start_all "pre-$1"
    set_up "$1"
    start_all "post-$1"
    ;;
esac
exit 0
"#;

/// OpenWrt's way: one file read into the script's shell, with the script's arguments.
const OPENWRT: &str = r#"
set_up "$1"
[ -f /etc/udhcpc.user ] && . /etc/udhcpc.user "$@"
exit 0
"#;

/// Which script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Debian's, started by ours.
    Wrapped,
    /// Debian's alone.
    Debian,
    /// One that runs hooks as Alpine's does.
    Alpine,
    /// One that runs hooks as OpenWrt's does.
    OpenWrt,
}

/// The host and its clients.
#[derive(Debug)]
pub struct Machine {
    clients: BTreeMap<usize, Daemon>,
    host: Host,
}

is_a_host!(Machine);

impl Machine {
    /// Builds the cloud and the host's files. Nothing is configured yet.
    #[must_use]
    pub fn new(layout: &Layout, script: Script) -> Self {
        let machine = Self {
            clients: BTreeMap::new(),
            host: Host::new(layout, TOOLS),
        };
        machine.install_program("leaseroute-udhcpc");
        let stand_in = |way: &str| {
            let text = format!("#!/bin/busybox sh\n{SET_UP}{way}");
            machine.write("/usr/share/udhcpc/default.script", &text, 0o755);
            "/usr/share/udhcpc/default.script".to_owned()
        };
        let path = match script {
            Script::Wrapped => {
                let path = format!("{PROGRAMS}/udhcpc.script");
                machine.install("udhcpc/leaseroute.script", &path, 0o755);
                path
            }
            Script::Debian => "/etc/udhcpc/default.script".to_owned(),
            Script::Alpine => {
                for event in ["bound", "renew", "deconfig"] {
                    let path = format!("/etc/udhcpc/post-{event}/leaseroute");
                    machine.install("udhcpc/alpine/leaseroute", &path, 0o755);
                }
                stand_in(ALPINE)
            }
            Script::OpenWrt => {
                let path = format!("{PROGRAMS}/leaseroute.user");
                machine.install("udhcpc/openwrt/leaseroute.user", &path, 0o644);
                machine.write("/etc/udhcpc.user", &format!(". {path}\n"), 0o644);
                stand_in(OPENWRT)
            }
        };
        let recorder = format!(
            "#!/bin/busybox sh\n{path} \"$@\"\necho \"$1 $interface ${{ip:--}} $?\" >>/run/events\n"
        );
        machine.write(RECORDER, &recorder, 0o755);
        machine.write("/run/events", "", 0o644);
        machine
    }

    /// Starts udhcpc on a card, in the foreground, with more options.
    pub fn start_client(&mut self, number: usize, options: &[&str]) {
        let name = self.card(number).name.to_string();
        // The script sets the card up at the first event; udhcpc itself needs it before.
        ip(self.fabric.host(), &format!("link set {name} up"));
        let mut command = self.command("udhcpc");
        command
            .args(["-f", "-i", &name, "-s", RECORDER, "-p", &pid_file(number)])
            .args(["-t", "5", "-T", "1", "-A", "1"])
            .args(options);
        let client = self.start(&log_name(number), command);
        self.clients.insert(number, client);
    }

    /// Starts udhcpc on every card. The first one is bound before the others: Debian's script
    /// gives table main the default route of whichever comes first.
    pub fn start_clients(&mut self) {
        let cards: Vec<usize> = self.fabric.cards().map(|card| card.number).collect();
        for number in cards {
            self.start_client(number, &[]);
            if number == 0 {
                self.wait_event("bound eth0", 1);
            }
        }
    }

    /// Sends a signal to the udhcpc of a card: USR1 renews, USR2 releases, TERM ends.
    pub fn signal(&self, number: usize, signal: &str) {
        self.shell(&format!("kill -{signal} $(cat {})", pid_file(number)));
    }

    /// Ends the udhcpc of a card as an init system does, and waits for its end.
    pub fn stop_client(&mut self, number: usize) {
        let pid = format!("$(cat {})", pid_file(number));
        self.shell(&format!(
            "pid={pid}; kill -TERM $pid; while kill -0 $pid 2>/dev/null; do sleep 0.05; done"
        ));
        self.clients.remove(&number);
    }

    /// What the udhcpc of a card, its script and the hook have said.
    #[must_use]
    pub fn log(&self, number: usize) -> String {
        read(&self.log_file(&log_name(number)))
    }

    /// Renews the lease of a card and waits for the end of its script.
    pub fn renew(&self, number: usize) {
        let event = format!("renew {} ", self.card(number).name);
        let before = self.seen(&event);
        self.signal(number, "USR1");
        self.wait_event(&event, before + 1);
    }

    /// Lets the fabric pass the addresses that the kernel makes of advertisements, and
    /// returns the uplinks in IPv6.
    pub fn advertised_faces(&mut self) -> Vec<Face> {
        let mut faces = self.faces(Family::Ipv6);
        for (number, face) in faces.iter_mut().enumerate() {
            let card = self.card(number);
            let [.., a, b, c, d] = card.link_local().segments();
            let subnet = u16::from(card.subnet);
            let address = IpAddr::from(Ipv6Addr::from([0x2001, 0xdb8, 0, subnet, a, b, c, d]));
            self.fabric.allow(number, address.into()).unwrap();
            face.sources = vec![address];
        }
        faces
    }

    /// Waits until the kernel has made the addresses and the default routes of IPv6.
    pub fn wait_advertised(&self, faces: &[Face]) {
        for face in faces {
            wait_for("the kernel has an address and a default route", || {
                let said = self.shell(&format!("ip -6 addr show {}; ip -6 route", face.name));
                let device = format!("dev {}", face.name);
                let has_default = said
                    .lines()
                    .any(|l| l.contains("via fe80::1") && l.contains(&device));
                let address = face.sources[0].to_string();
                let has_address = said
                    .lines()
                    .any(|l| l.contains(&address) && !l.contains("tentative"));
                if has_address && has_default {
                    Ok(())
                } else {
                    Err(said)
                }
            });
        }
    }
}

/// A host whose cards are all bound, IPv6 by advertisements, and its servers. Returns the
/// uplinks in IPv6 as well.
#[must_use]
pub fn bound(layout: &Layout, script: Script) -> (Machine, Vec<Servers>, Vec<Face>) {
    let mut machine = Machine::new(layout, script);
    let faces = machine.advertised_faces();
    let lan = Lan {
        v6: Ipv6::Slaac,
        ..Lan::default()
    };
    let servers = Servers::start_all(&machine, &lan);
    machine.start_clients();
    machine.wait_own(Family::Ipv4, &machine.faces(Family::Ipv4));
    machine.wait_advertised(&faces);
    // No event has announced them; the next one finds them.
    machine.renew(0);
    machine.wait_own(Family::Ipv6, &faces);
    (machine, servers, faces)
}

fn pid_file(number: usize) -> String {
    format!("/run/udhcpc.eth{number}.pid")
}

fn log_name(number: usize) -> String {
    format!("udhcpc.eth{number}")
}
