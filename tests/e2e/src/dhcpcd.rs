//! The host of the bench with the real dhcpcd on it.
//!
//! It runs once for all cards, as distributions start it, or once for each, with its real
//! `dhcpcd-run-hooks`, the hooks of its package and our shim.

use std::path::Path;

use leaseroute_core::Family;
use leaseroute_lab::fabric::Layout;

use crate::daemon::Daemon;
use crate::host::{Host, PROGRAMS, is_a_host};
use crate::servers::{Lan, Servers};

/// The hook program.
pub const NAME: &str = "leaseroute-dhcpcd";
/// Where packages put hooks: the first that is there.
const HOOKS: [&str; 2] = ["/usr/lib/dhcpcd/dhcpcd-hooks", "/usr/libexec/dhcpcd-hooks"];

/// Runs last of all hooks: shows that the hooks before it neither ended the shell nor kept
/// it.
const RECORDER: &str = r#"echo "$reason $interface ${new_ip_address:-${new_dhcp6_ia_na1_ia_addr1:--}}" >>/run/events
"#;

/// Debian's own, but for what waits: udev is not here, and nobody else has an address.
const CONF: &str = "
allowinterfaces eth*
nodev
nodelay
noarp
noipv4ll
duid ll
persistent
slaac hwaddr
option classless_static_routes, interface_mtu
require dhcp_server_identifier
timeout 20
reboot 3
";

/// The host and its client.
#[derive(Debug)]
pub struct Machine {
    clients: Vec<Daemon>,
    host: Host,
}

is_a_host!(Machine);

impl Machine {
    /// Builds the cloud and the host's files, with more lines of `dhcpcd.conf`. Nothing is
    /// configured yet.
    #[must_use]
    pub fn new(layout: &Layout, more: &str) -> Self {
        let machine = Self {
            clients: Vec::new(),
            host: Host::new(layout, &["dhcpcd"]),
        };
        machine.shell("rm -rf /var/lib/dhcpcd/*");
        machine.write("/etc/dhcpcd.conf", &format!("{CONF}{more}"), 0o644);
        machine.write("/etc/dhcpcd.exit-hook", RECORDER, 0o644);
        machine.write("/run/events", "", 0o644);
        machine.install_program(NAME);
        let hooks = HOOKS.into_iter().find(|hooks| Path::new(hooks).is_dir());
        let shim = format!("{}/90-leaseroute", hooks.expect("dhcpcd has a hook folder"));
        machine.install("dhcpcd/90-leaseroute", &shim, 0o644);
        machine
    }

    /// The same with the servers of all subnets, and dhcpcd started once for all cards.
    #[must_use]
    pub fn started(layout: &Layout, lan: &Lan) -> (Self, Vec<Servers>) {
        let mut machine = Self::new(layout, "");
        let servers = Servers::start_all(&machine, lan);
        machine.start();
        (machine, servers)
    }

    /// The same, once all cards are bound in both families and set up.
    #[must_use]
    pub fn bound(layout: &Layout, lan: &Lan) -> (Self, Vec<Servers>) {
        let (machine, servers) = Self::started(layout, lan);
        for family in Family::BOTH {
            machine.wait_own(family, &machine.faces(family));
        }
        (machine, servers)
    }

    /// Starts dhcpcd for all cards, also those that come later.
    pub fn start(&mut self) {
        self.run(&[]);
    }

    /// Starts dhcpcd for one card.
    pub fn start_card(&mut self, number: usize) {
        let name = self.card(number).name.to_string();
        self.run(&[&name]);
    }

    fn run(&mut self, more: &[&str]) {
        let mut command = self.command("dhcpcd");
        command.args(["-B", "-d"]).args(more);
        let log = format!("dhcpcd{}", more.concat());
        let client = self.host.start(&log, command);
        self.clients.push(client);
    }

    /// Sends a signal to the dhcpcd of all cards.
    pub fn signal(&self, signal: &str) {
        self.shell(&format!("kill -{signal} $(cat /run/dhcpcd/pid)"));
    }

    /// Kills every dhcpcd and its helpers without a word to anybody.
    pub fn kill(&mut self) {
        self.shell("pkill -KILL -x dhcpcd; while pgrep -x -r R,S,D dhcpcd; do sleep 0.05; done");
        self.clients.clear();
    }

    /// The program's path on the host.
    #[must_use]
    pub fn program() -> String {
        format!("{PROGRAMS}/{NAME}")
    }
}
