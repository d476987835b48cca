//! What the enter hook brings: everything is in place before dhclient's script puts the
//! address on the card, and nothing stays of an address that never came.

use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_e2e::host::Host;
use leaseroute_e2e::kernel::Own;
use leaseroute_e2e::machine::{Hook, Machine};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers, bound};
use leaseroute_e2e::wait_for;
use leaseroute_e2e::watcher::Watcher;
use leaseroute_lab::fabric::Layout;

const V4: Family = Family::Ipv4;

/// Where Debian's script looks for enter hooks; what is put there sorts after ours.
const HOOKS: &str = "/etc/dhcp/dhclient-enter-hooks.d";

/// Writes down what the script finds, before it has done anything. `ip` is the one that it
/// uses itself.
const LOOK: &str = r#"(
    case $reason in *6) version=6 ;; *) version=4 ;; esac
    ip -o -"$version" addr show dev "$interface" scope global >"/run/addresses.$reason.$interface"
    { ip -"$version" rule show; ip -"$version" route show table all proto 76; } \
        >"/run/ours.$reason.$interface"
)
"#;

/// What the script found of ours, and whether the card had an address.
fn found(machine: &Host, reason: &str, card: &str) -> (String, bool) {
    let read = |what: &str| machine.shell(&format!("cat /run/{what}.{reason}.{card}"));
    (read("ours"), !read("addresses").is_empty())
}

/// What there is of ours now, in the same words.
fn ours(machine: &Host, family: Family) -> String {
    let version = if family == V4 { 4 } else { 6 };
    machine.shell(&format!(
        "ip -{version} rule show; ip -{version} route show table all proto 76"
    ))
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn all_is_in_place_before_the_address_is() {
    let (mut machine, mut servers) = bound(&Layout::separate(2), &Lan::default());
    machine.write(&format!("{HOOKS}/zzz-look"), LOOK, 0o644);
    let number = machine.fabric.attach(2).unwrap().number;
    servers.push(Servers::start(&machine, 2, &Lan::default()));
    for (family, reason) in [(V4, "BOUND"), (Family::Ipv6, "BOUND6")] {
        machine.start_client(number, family);
        machine.wait_own(family, &machine.faces(family));
        machine.wait_event(&format!("{reason} eth2"), 1);
        let found = found(&machine, reason, "eth2");
        assert_eq!(found, (ours(&machine, family), false), "{}", machine.logs());
    }
    machine.assert_all_reach(&Family::BOTH);
    // The address was lost while the client was away.
    machine.kill_client(number, V4);
    machine.shell("ip -4 addr flush dev eth2");
    machine.start_client(number, V4);
    machine.wait_event("REBOOT eth2", 1);
    let found = found(&machine, "REBOOT", "eth2");
    assert_eq!(found, (ours(&machine, V4), false), "{}", machine.logs());
    machine.assert_all_reach(&Family::BOTH);
}

/// A hook that comes between refuses the lease, as scripts do that ask whether anybody else has
/// the address, and then the client dies: no exit hook runs.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn address_that_never_comes_leaves_nothing() {
    let lan = Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    };
    let (mut machine, mut servers) = {
        let mut machine = Machine::new(&Layout::separate(2), Hook::Installed);
        machine.install_program("leaseroute");
        let servers = Servers::start_all(&machine, &lan);
        machine.start_clients(&[V4]);
        machine.wait_own(V4, &machine.faces(V4));
        (machine, servers)
    };
    let alone = machine.faces(V4);
    let _watcher = Watcher::start_and_wait(&machine);
    let refuse = "[ \"$reason $interface\" != 'BOUND eth2' ] || { >/run/refused; exit 1; }\n";
    machine.write(&format!("{HOOKS}/zzz-refuse"), refuse, 0o644);
    let number = machine.fabric.attach(2).unwrap().number;
    servers.push(Servers::start(&machine, 2, &lan));
    machine.start_client(number, V4);
    wait_for("the lease is refused", || {
        if machine.path("/run/refused").exists() {
            Ok(())
        } else {
            Err(machine.logs())
        }
    });
    machine.kill_client(number, V4);
    // Whatever the watcher saw of it, what was told counts for some seconds.
    std::thread::sleep(Duration::from_secs(1));
    let early = Own::read(machine.fabric.host(), V4);
    let both = Own::expected(&machine.faces(V4));
    assert_eq!(early.differences(&both), "", "{}", machine.logs());
    machine.wait_own(V4, &alone);
    assert_eq!(machine.seen("BOUND eth2"), 0);
}
