//! The host of the bench with the real NetworkManager on it.
//!
//! It runs with its own DHCP client and the real dispatcher, on a bus of the host's own,
//! with one connection for each card and our script as a package installs it.

use leaseroute_core::Family;
use leaseroute_lab::fabric::{Card, Layout};

use crate::daemon::Daemon;
use crate::host::{Host, is_a_host};
use crate::servers::{Lan, Servers};
use crate::wait_for;

/// The program that the script starts.
pub const PROGRAM: &str = "/usr/libexec/leaseroute/leaseroute-nm-dispatcher";
/// Where the dispatcher looks for scripts.
const SCRIPTS: &str = "/etc/NetworkManager/dispatcher.d";
/// Where the connections are.
const CONNECTIONS: &str = "/etc/NetworkManager/system-connections";
/// The tools that this needs.
const TOOLS: &[&str] = &["NetworkManager", "nmcli", "dbus-daemon", "dbus-uuidgen"];

/// Runs last of all scripts: shows that the ones before it have ended.
const RECORDER: &str = r#"#!/bin/sh
echo "$2 $1" >>/run/events
"#;

/// No udev, no name server, no connection that nobody wrote.
const CONFIGURATION: &str = "
[main]
plugins=keyfile
dhcp=internal
dns=none
no-auto-default=*
auth-polkit=false
[device]
match-device=*
managed=1
[connectivity]
enabled=false
[logging]
level=INFO
";

/// A read-only `/sys` says that there is no udev. The scripts of other packages are not
/// under test.
const PREPARED: &str = "
mount -o remount,bind,ro /sys
mkdir -p /run/dbus
dbus-uuidgen --ensure=/etc/machine-id
rm -rf /etc/NetworkManager/dispatcher.d /etc/NetworkManager/system-connections/*
mkdir -p /etc/NetworkManager/dispatcher.d/pre-down.d
rm -f /etc/NetworkManager/conf.d/* /usr/lib/NetworkManager/conf.d/*
rm -f /var/lib/NetworkManager/*.lease /var/lib/NetworkManager/*.state
: >/run/events
";

/// How a card gets its addresses.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Lines of its section `ipv4`.
    pub ipv4: String,
    /// Lines of its section `ipv6`.
    pub ipv6: String,
}

impl Connection {
    /// By DHCP and router advertisements.
    #[must_use]
    pub fn automatic() -> Self {
        Self {
            ipv4: "method=auto".to_owned(),
            ipv6: "method=auto".to_owned(),
        }
    }

    /// IPv4 alone, by DHCP.
    #[must_use]
    pub fn ipv4() -> Self {
        Self {
            ipv6: "method=disabled".to_owned(),
            ..Self::automatic()
        }
    }
}

/// The host and its NetworkManager.
#[derive(Debug)]
pub struct Network {
    manager: Option<Daemon>,
    _dispatcher: Daemon,
    _bus: Daemon,
    host: Host,
}

is_a_host!(Network);

impl Network {
    /// Builds the cloud and the host, with the bus and the dispatcher. Nothing is
    /// configured yet.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        let host = Host::new(layout, TOOLS);
        host.shell(PREPARED);
        host.write(
            "/etc/NetworkManager/NetworkManager.conf",
            CONFIGURATION,
            0o644,
        );
        host.install_program("leaseroute-nm-dispatcher");
        let script = format!("{SCRIPTS}/90-leaseroute");
        host.install("networkmanager/90-leaseroute", &script, 0o755);
        let recorder = format!("{SCRIPTS}/zz-recorder");
        host.write(&recorder, RECORDER, 0o755);
        host.shell(&format!(
            "cd {SCRIPTS}/pre-down.d; ln -s ../90-leaseroute ../zz-recorder ."
        ));

        let mut command = host.command("dbus-daemon");
        command.args(["--system", "--nofork", "--nopidfile", "--nosyslog"]);
        let bus = host.start("dbus", command);
        wait_shell(
            &host,
            "the bus is there",
            "test -S /run/dbus/system_bus_socket",
        );
        // Started in advance, as the bus would have systemd start it for the first event.
        let path = "/usr/lib/NetworkManager/nm-dispatcher /usr/libexec/nm-dispatcher";
        let found = host.shell(&format!("ls {path} 2>/dev/null | head -n 1"));
        let mut command = host.command(found.trim());
        command.arg("--persist");
        Self {
            manager: None,
            _dispatcher: host.start("nm-dispatcher", command),
            _bus: bus,
            host,
        }
    }

    /// A host on which NetworkManager has set up every card by itself, and its servers.
    #[must_use]
    pub fn connected(layout: &Layout, lan: &Lan, families: &[Family]) -> (Self, Vec<Servers>) {
        let mut network = Self::new(layout);
        let servers = Servers::start_all(&network, lan);
        let connection = match families {
            [Family::Ipv4] => Connection::ipv4(),
            _ => Connection::automatic(),
        };
        let cards: Vec<usize> = network.fabric.cards().map(|card| card.number).collect();
        for card in cards {
            network.describe(card, &connection);
        }
        network.start_manager();
        for &family in families {
            network.wait_own(family, &network.faces(family));
        }
        (network, servers)
    }

    /// Tells NetworkManager of a card that will be plugged in.
    pub fn expect(&self, card: &Card) {
        self.describe_card(card, &Connection::automatic());
        self.nmcli("connection reload");
    }

    /// Writes the connection of a card.
    pub fn describe(&self, number: usize, connection: &Connection) {
        self.describe_card(&self.card(number), connection);
    }

    fn describe_card(&self, card: &Card, connection: &Connection) {
        let Connection { ipv4, ipv6 } = connection;
        let (number, name) = (card.number, &card.name);
        let metric = 100 + number;
        let text = format!(
            "[connection]\nid=eth{number}\nuuid=00000000-0000-4000-8000-00000000000{number}\n\
             type=ethernet\ninterface-name={name}\n\
             [ipv4]\n{ipv4}\nroute-metric={metric}\n\
             [ipv6]\n{ipv6}\naddr-gen-mode=eui64\nroute-metric={metric}\n"
        );
        self.write(
            &format!("{CONNECTIONS}/eth{number}.nmconnection"),
            &text,
            0o600,
        );
    }

    /// Starts NetworkManager and waits until it answers.
    pub fn start_manager(&mut self) {
        self.manager = Some(self.start_known("NetworkManager", "NetworkManager --debug"));
        wait_shell(self, "NetworkManager answers", "nmcli -t general status");
    }

    /// Ends NetworkManager as systemd does: the addresses stay.
    pub fn stop_manager(&mut self) {
        self.end_known("NetworkManager");
        self.manager = None;
    }

    /// Starts a program that can be ended by its name.
    pub fn start_known(&self, name: &str, program: &str) -> Daemon {
        let mut command = self.command("sh");
        let script = format!("echo $$ >/run/{name}.id; exec {program}");
        command.args(["-ec", &script]);
        self.start(name, command)
    }

    /// Ends such a program and waits until it is gone.
    pub fn end_known(&self, name: &str) {
        self.shell(&format!("kill $(cat /run/{name}.id)"));
        let gone = format!("! kill -0 $(cat /run/{name}.id) 2>/dev/null");
        wait_shell(self, "the program has ended", &gone);
    }

    /// Runs `nmcli`; it must succeed.
    pub fn nmcli(&self, words: &str) {
        self.shell(&format!("nmcli {words}"));
    }
}

/// Waits until a shell command on the host succeeds.
fn wait_shell(host: &Host, what: &str, script: &str) {
    wait_for(what, || {
        let mut command = host.command("sh");
        command.args(["-ec", script]);
        let output = host.output(command);
        if output.status.success() {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(format!("{error}\n{}", host.logs()))
    });
}
