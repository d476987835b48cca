//! Leases that were there before us: real clients whose hooks were never installed, and then
//! the watcher. No event comes, and yet every card is answered by the card that was asked.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use leaseroute_core::Family;
use leaseroute_e2e::host::{Host, PROGRAMS};
use leaseroute_e2e::kernel::Own;
use leaseroute_e2e::machine::{Hook, Machine};
use leaseroute_e2e::networkd::Networkd;
use leaseroute_e2e::networkmanager::{Connection, Network};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_e2e::watcher::Watcher;
use leaseroute_e2e::{dhcpcd, wait_for};
use leaseroute_lab::fabric::Layout;
use serde_json::Value;

/// What a shell on the host prints for a card that is not set up yet: nothing else.
const LACKING: &str = "
for n in 0 1 2; do
    ip -4 -o address show dev eth$n | grep -q 10.0.$n.10 &&
    ip -6 -o address show dev eth$n scope global -tentative | grep -q 2001:db8 &&
    ip -6 route show default dev eth$n | grep -q fe80::1 || echo eth$n
done
";

/// Waits until all cards have what their clients give them.
fn wait_set_up(host: &Host) {
    wait_for("all cards are set up", || {
        let lacking = host.shell(LACKING);
        if lacking.is_empty() {
            Ok(())
        } else {
            Err(format!("{lacking}\n{}", host.logs()))
        }
    });
}

/// Starts the watcher on a host whose cards are all set up, none of them by us.
fn adopted(host: &Host, client: &str) -> Watcher {
    wait_set_up(host);
    for family in Family::BOTH {
        assert!(Own::read(host.fabric.host(), family).is_empty());
    }
    host.install_program("leaseroute");
    let watcher = Watcher::start_and_wait(host);
    for family in Family::BOTH {
        host.wait_own(family, &host.faces(family));
    }
    host.assert_all_reach(&Family::BOTH);
    assert_eq!(tellers(host), [client; 3], "{}", host.logs());
    watcher
}

/// Who told of each card's IPv4 lease, by `leaseroute status`.
fn tellers(host: &Host) -> Vec<String> {
    let mut command = host.command(&format!("{PROGRAMS}/leaseroute"));
    command.args(["status", "--json"]);
    let status: Value = serde_json::from_slice(&host.output(command).stdout).unwrap();
    let cards = status["interfaces"].as_array().unwrap();
    let families = cards
        .iter()
        .flat_map(|card| card["families"].as_array().unwrap());
    let ipv4 = families.filter(|family| family["family"] == "ipv4");
    ipv4.map(|family| family["lease"]["client"].as_str().unwrap_or("").to_owned())
        .collect()
}

fn lan() -> Lan {
    Lan {
        v6: Ipv6::Dhcp,
        ..Lan::default()
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn leases_of_networkd_are_adopted() {
    let mut host = Networkd::new(&Layout::separate(3));
    host.install_drop_in();
    let _servers = Servers::start_all(&host, &lan());
    host.start_networkd();
    let _watcher = adopted(&host, "networkd-dispatcher");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn leases_of_networkmanager_are_adopted() {
    let mut host = Network::new(&Layout::separate(3));
    let _servers = Servers::start_all(&host, &lan());
    host.shell("find /etc/NetworkManager/dispatcher.d -name '*leaseroute*' -delete");
    for card in 0..3 {
        host.describe(card, &Connection::automatic());
    }
    host.start_manager();
    let _watcher = adopted(&host, "nm-dispatcher");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn leases_of_dhclient_are_adopted() {
    let mut host = Machine::new(&Layout::separate(3), Hook::Absent);
    let _servers = Servers::start_all(&host, &lan());
    host.start_clients(&Family::BOTH);
    let _watcher = adopted(&host, "dhclient");
    // Nobody tells of its end either.
    host.end_client(2, Family::Ipv4, "-r");
    let mut left = host.faces(Family::Ipv4);
    left.pop();
    host.wait_own(Family::Ipv4, &left);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn leases_of_dhcpcd_are_adopted() {
    let mut host = dhcpcd::Machine::new(&Layout::separate(3), "");
    let _servers = Servers::start_all(&host, &lan());
    host.shell(
        "rm -f /usr/lib/dhcpcd/dhcpcd-hooks/*leaseroute /usr/libexec/dhcpcd-hooks/*leaseroute",
    );
    host.start();
    let _watcher = adopted(&host, "dhcpcd");
}

/// The client's files are gone: its addresses have a lifetime, and table main has routers.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn leases_that_no_file_tells_of_are_adopted() {
    let mut host = Machine::new(&Layout::separate(3), Hook::Absent);
    let _servers = Servers::start_all(&host, &lan());
    host.start_clients(&Family::BOTH);
    wait_set_up(&host);
    host.shell("rm -f /var/lib/dhcp/*");
    let _watcher = adopted(&host, "script");
}
