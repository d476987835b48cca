//! The host of the bench with the real dhclient on it.
//!
//! It runs once for each card and family, as ifupdown starts it, with its real script and
//! our shims.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use leaseroute_core::Family;

use leaseroute_lab::fabric::{Card, Ipv6Style, Layout};

use crate::daemon::{Daemon, read};
use crate::host::{Host, is_a_host};
use crate::wait_for;

/// Where the shims look for the program.
pub const PROGRAM: &str = "/usr/libexec/leaseroute/leaseroute-dhclient";
/// Where Debian's script looks for exit hooks.
const HOOKS: &str = "/etc/dhcp/dhclient-exit-hooks.d";
/// The tools that this needs.
const TOOLS: &[&str] = &["dhclient", "run-parts"];

/// Runs last of all exit hooks: shows that the hooks before it neither ended the shell nor
/// kept it, and when.
const RECORDER: &str = r#"echo "$reason $interface ${new_ip_address:-${new_ip6_address:--}}" >>/run/events
"#;

/// What makes dhclient quick.
const CONF: &str = "
initial-interval 1;
backoff-cutoff 2;
reboot 2;
retry 1;
timeout 20;
";

/// Whether our shims are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// As a package installs them.
    Installed,
    /// Not at all.
    Absent,
}

/// The host and its clients.
#[derive(Debug)]
pub struct Machine {
    clients: BTreeMap<(usize, Family), Daemon>,
    host: Host,
}

is_a_host!(Machine);

impl Machine {
    /// Builds the cloud and the host's files. Nothing is configured yet.
    #[must_use]
    pub fn new(layout: &Layout, hook: Hook) -> Self {
        let machine = Self {
            clients: BTreeMap::new(),
            host: Host::new(layout, TOOLS),
        };
        machine.shell("rm -f /var/lib/dhcp/*");
        let conf = machine.path("/etc/dhcp/dhclient.conf");
        fs::write(&conf, read(&conf) + CONF).unwrap();
        machine.write(&format!("{HOOKS}/zzz-recorder"), RECORDER, 0o644);
        machine.write("/run/events", "", 0o644);
        machine.install_program("leaseroute-dhclient");
        if hook == Hook::Installed {
            for folder in ["enter-hooks.d", "exit-hooks.d"] {
                let shim = format!("dhclient/debian/{folder}/zz-leaseroute");
                let place = format!("/etc/dhcp/dhclient-{folder}/zz-leaseroute");
                machine.install(&shim, &place, 0o644);
            }
        }
        machine
    }

    /// A host whose cards have addresses and default routes, as clients leave them, without
    /// any client. No hook has run.
    #[must_use]
    pub fn configured(layout: &Layout) -> Self {
        let machine = Self::new(layout, Hook::Absent);
        for card in machine.fabric.cards() {
            let style = Ipv6Style::Dhcp;
            machine.fabric.configure_static(card.number, style).unwrap();
        }
        machine
    }

    /// Lets every card be bound in both families.
    pub fn bind_all(&self) {
        for family in Family::BOTH {
            for card in self.fabric.cards() {
                let output = self.output(self.event(&bound_event(card, family)));
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}: {said}", output.status);
            }
            self.wait_own(family, &self.faces(family));
        }
    }

    /// The program called directly, as the shim does, with the variables of an event.
    #[must_use]
    pub fn event(&self, variables: &[(String, String)]) -> Command {
        let mut command = self.command(PROGRAM);
        command.envs(variables.iter().cloned());
        command
    }

    /// Sets a card up and starts dhclient on it, in the foreground, with a metric of its own.
    pub fn start_client(&mut self, number: usize, family: Family) {
        let card = self.card(number);
        self.shell(&format!("ip link set {} up", card.name));
        if family == Family::Ipv6 {
            // dhclient -6 gives up at once without a link-local address.
            wait_for("the card has a link-local address", || {
                let said = self.shell(&format!("ip -6 -o addr show dev {} scope link", card.name));
                if said.contains("fe80") && !said.contains("tentative") {
                    Ok(())
                } else {
                    Err(said)
                }
            });
        }
        self.run_client(number, family, &[&format!("-{}", version(family))]);
    }

    /// Starts `dhclient -6 -S`, which asks for options alone.
    pub fn start_stateless_client(&mut self, number: usize) {
        self.run_client(number, Family::Ipv6, &["-6", "-S"]);
    }

    fn run_client(&mut self, number: usize, family: Family, how: &[&str]) {
        let mut command = self.command("dhclient");
        command
            .args(how)
            .args(["-d", "-v"])
            .args(self.files_of(number, family))
            .args(["-e", &format!("IF_METRIC={}", 100 + number)])
            .arg(self.card(number).name.to_string());
        let client = self.start(&log_name(number, family), command);
        self.clients.insert((number, family), client);
    }

    /// Starts dhclient on every card for the given families.
    pub fn start_clients(&mut self, families: &[Family]) {
        let cards: Vec<usize> = self.fabric.cards().map(|card| card.number).collect();
        for number in cards {
            for &family in families {
                self.start_client(number, family);
            }
        }
    }

    /// Runs dhclient once more with `-r` (release) or `-x` (stop): it ends the running one.
    pub fn end_client(&mut self, number: usize, family: Family, how: &str) {
        let card = self.card(number);
        let mut command = self.command("dhclient");
        command
            .args([
                format!("-{}", version(family)),
                how.to_owned(),
                "-v".to_owned(),
            ])
            .args(self.files_of(number, family))
            .arg(card.name.to_string());
        let output = self.output(command);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // What this second dhclient's script said belongs to the card's log.
        let log = self.log_file(&log_name(number, family));
        fs::write(&log, read(&log) + &String::from_utf8_lossy(&output.stderr)).unwrap();
        self.clients.remove(&(number, family));
    }

    /// Kills dhclient of a card and family without a word to anybody.
    pub fn kill_client(&mut self, number: usize, family: Family) {
        let [_, pid, ..] = self.files_of(number, family);
        self.shell(&format!("kill -KILL $(cat {pid})"));
        self.clients.remove(&(number, family));
    }

    fn files_of(&self, number: usize, family: Family) -> [String; 4] {
        let name = format!("{}.eth{number}", version(family));
        [
            "-pf".to_owned(),
            format!("/run/dhclient{name}.pid"),
            "-lf".to_owned(),
            format!("/var/lib/dhcp/dhclient{name}.leases"),
        ]
    }

    /// What dhclient, its script and the hooks have said of a card.
    #[must_use]
    pub fn log(&self, number: usize, family: Family) -> String {
        read(&self.log_file(&log_name(number, family)))
    }
}

/// What dhclient's script calls the program with when a card is bound to the address that
/// the fabric gives it.
#[must_use]
pub fn bound_event(card: &Card, family: Family) -> Vec<(String, String)> {
    let mut variables = vec![("interface", card.name.to_string())];
    match family {
        Family::Ipv4 => variables.extend([
            ("reason", "BOUND".to_owned()),
            ("new_ip_address", card.ipv4.to_string()),
            ("new_subnet_mask", "255.255.255.0".to_owned()),
            ("new_routers", card.gateway4().to_string()),
            ("new_dhcp_lease_time", "3600".to_owned()),
        ]),
        Family::Ipv6 => variables.extend([
            ("reason", "BOUND6".to_owned()),
            ("new_ip6_address", card.ipv6.to_string()),
            ("new_ip6_prefixlen", "128".to_owned()),
            ("new_max_life", "3600".to_owned()),
        ]),
    }
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn log_name(number: usize, family: Family) -> String {
    format!("dhclient{}.eth{number}", version(family))
}

fn version(family: Family) -> u8 {
    match family {
        Family::Ipv4 => 4,
        Family::Ipv6 => 6,
    }
}
