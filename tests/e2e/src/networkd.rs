//! The host of the bench with the real systemd-networkd and the real networkd-dispatcher on
//! it, on a system bus of its own.

use std::fs;
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_lab::fabric::{Card, Layout};

use crate::daemon::{Daemon, read};
use crate::host::{Host, is_a_host};
use crate::servers::{Lan, Servers};
use crate::wait_for;

/// Where the script looks for the program.
pub const PROGRAM: &str = "/usr/libexec/leaseroute/leaseroute-networkd-dispatcher";
/// Where packages put scripts of networkd-dispatcher.
pub const SCRIPTS: &str = "/usr/lib/networkd-dispatcher";
/// The states whose folders hold our script.
pub const STATES: &[&str] = &[
    "carrier",
    "configured",
    "degraded",
    "dormant",
    "no-carrier",
    "off",
    "routable",
];
/// The drop-in that keeps networkd from taking rules and routes of others away.
pub const DROP_IN: &str = "/usr/lib/systemd/networkd.conf.d/50-leaseroute.conf";
/// The tools that this needs.
const TOOLS: &[&str] = &["networkctl", "networkd-dispatcher", "dbus-daemon"];
/// networkd itself.
const NETWORKD: &str = "/usr/lib/systemd/systemd-networkd";

/// Runs last in every folder of a state: shows that the scripts before it have ended.
const RECORDER: &str = "#!/bin/sh\necho \"$STATE $IFACE\" >>/run/events\n";

/// The host and its daemons.
#[derive(Debug)]
pub struct Networkd {
    networkd: Option<Daemon>,
    dispatcher: Option<Daemon>,
    _bus: Daemon,
    host: Host,
}

is_a_host!(Networkd);

impl Networkd {
    /// Builds the cloud and the host's files, and starts the bus. networkd will configure
    /// every card by DHCP and advertisements, each with a metric of its own.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        let host = Host::new(layout, TOOLS);
        // To networkd that means that there is no udev to wait for.
        host.shell("mount -o remount,bind,ro /sys; mkdir -p /run/dbus /run/systemd");
        host.shell("rm -rf /etc/systemd/network /etc/systemd/networkd.conf.d");
        host.shell("dbus-uuidgen --ensure=/etc/machine-id");
        let mut bus = host.command("dbus-daemon");
        bus.args(["--system", "--nofork", "--nopidfile", "--nosyslog"]);
        let bus = host.start("dbus", bus);
        for card in host.fabric.cards() {
            describe(&host, card);
        }
        host.install_program("leaseroute-networkd-dispatcher");
        for state in STATES {
            let folder = format!("{SCRIPTS}/{state}.d");
            host.shell(&format!("install -d -m 755 {folder}"));
            let script = format!("{folder}/50-leaseroute");
            host.install("networkd-dispatcher/50-leaseroute", &script, 0o755);
            host.write(&format!("{folder}/90-recorder"), RECORDER, 0o755);
        }
        host.write("/run/events", "", 0o644);
        let machine = Self {
            networkd: None,
            dispatcher: None,
            _bus: bus,
            host,
        };
        wait_for("the bus is there", || {
            let socket = machine.path("/run/dbus/system_bus_socket");
            if socket.exists() {
                Ok(())
            } else {
                Err(machine.logs())
            }
        });
        machine
    }

    /// Tells networkd of a card that will be plugged in.
    pub fn expect(&self, card: &Card) {
        describe(&self.host, card);
        self.networkctl("reload");
    }

    /// Installs the drop-in that is packaged.
    pub fn install_drop_in(&self) {
        let source = "../packaging/systemd/networkd.conf.d/50-leaseroute.conf";
        self.install(source, DROP_IN, 0o644);
    }

    /// Starts networkd.
    pub fn start_networkd(&mut self) {
        self.networkd = Some(self.start_daemon("networkd", NETWORKD));
        wait_for("networkd is there", || {
            let output = self.output({
                let mut command = self.command("networkctl");
                command.arg("list");
                command
            });
            if output.status.success() {
                Ok(())
            } else {
                Err(self.logs())
            }
        });
    }

    /// Ends networkd and starts it again.
    pub fn restart_networkd(&mut self) {
        self.stop_daemon("networkd");
        self.start_networkd();
    }

    /// Starts the dispatcher, as Debian does: it tells of the state of every link first.
    pub fn start_dispatcher(&mut self) {
        let command = "networkd-dispatcher --run-startup-triggers -v";
        self.dispatcher = Some(self.start_daemon("dispatcher", command));
        wait_for("the dispatcher is there", || {
            let log = self.dispatcher_log();
            if log.contains("Startup complete") {
                Ok(())
            } else {
                Err(log)
            }
        });
    }

    /// Ends the dispatcher, and with it what it runs.
    pub fn stop_dispatcher(&mut self) {
        self.stop_daemon("dispatcher");
        self.dispatcher = None;
        fs::remove_file(self.log_file("dispatcher")).unwrap();
    }

    /// What the dispatcher and its scripts have said since it was started.
    #[must_use]
    pub fn dispatcher_log(&self) -> String {
        read(&self.log_file("dispatcher"))
    }

    /// Starts both.
    pub fn start_clients(&mut self) {
        self.start_networkd();
        self.start_dispatcher();
    }

    fn start_daemon(&self, name: &str, command: &str) -> Daemon {
        let mut shell = self.command("sh");
        shell.env("SYSTEMD_LOG_TARGET", "console");
        shell.args(["-c", &format!("echo $$ >/run/{name}.pid; exec {command}")]);
        self.start(name, shell)
    }

    fn stop_daemon(&self, name: &str) {
        self.shell(&format!(
            "pid=$(cat /run/{name}.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.05; done"
        ));
    }

    /// Runs networkctl(1).
    pub fn networkctl(&self, words: &str) {
        self.shell(&format!("networkctl {words}"));
    }

    /// The lease file of a card; empty when there is none.
    #[must_use]
    pub fn lease_file(&self, number: usize) -> String {
        let index = self.card(number).link;
        read(&self.path(&format!("/run/systemd/netif/leases/{index}")))
    }

    /// Waits until a card's lease file holds a line.
    pub fn wait_lease(&self, number: usize, line: &str) {
        wait_for(&format!("the lease of eth{number} has {line}"), || {
            let file = self.lease_file(number);
            if file.lines().any(|seen| seen == line) {
                Ok(())
            } else {
                Err(format!("{file}\n{}", self.logs()))
            }
        });
    }

    /// Waits until no event has come for a second.
    pub fn wait_quiet(&self) {
        wait_for("events end", || {
            let before = self.events().len();
            std::thread::sleep(Duration::from_secs(1));
            let events = self.events();
            if events.len() == before {
                Ok(())
            } else {
                Err(format!("{events:#?}"))
            }
        });
    }

    /// Waits until an event has reached the end of the scripts, behind the first `after`.
    pub fn wait_event_behind(&self, after: usize, event: &str) {
        wait_for(&format!("{event} was seen"), || {
            let events = self.events();
            if events.iter().skip(after).any(|seen| seen == event) {
                Ok(())
            } else {
                Err(format!("{events:#?}\n{}", self.logs()))
            }
        });
    }
}

/// A host whose cards are all configured in both families, and its servers.
#[must_use]
pub fn configured(layout: &Layout, lan: &Lan) -> (Networkd, Vec<Servers>) {
    let mut machine = Networkd::new(layout);
    let servers = Servers::start_all(&machine, lan);
    machine.start_clients();
    let families = match lan.v6 {
        crate::servers::Ipv6::Without => &Family::BOTH[..1],
        _ => &Family::BOTH[..],
    };
    for family in families {
        machine.wait_own(*family, &machine.faces(*family));
    }
    (machine, servers)
}

/// Writes down how a card is configured.
fn describe(host: &Host, card: &Card) {
    let (name, metric) = (&card.name, 100 + card.number);
    let text = format!(
        "[Match]\nName={name}\n[Network]\nDHCP=yes\nIPv6AcceptRA=yes\n\
         LinkLocalAddressing=ipv6\n[DHCPv4]\nRouteMetric={metric}\nUseHostname=no\n\
         [DHCPv6]\nUseHostname=no\n[IPv6AcceptRA]\nRouteMetric={metric}\n"
    );
    let file = format!("/etc/systemd/network/40-{name}.network");
    host.write(&file, &text, 0o644);
}
