//! The life of a lease, with the real systemd-networkd and networkd-dispatcher: three cards
//! behind strict fabrics, both families.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_e2e::host::PROGRAMS;
use leaseroute_e2e::kernel::{Own, foreign, ip};
use leaseroute_e2e::networkd::{Networkd, PROGRAM, SCRIPTS, STATES, configured};
use leaseroute_e2e::responder::{Responder, Terms};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::{Layout, ipv4};

const V4: Family = Family::Ipv4;

fn without_ipv6() -> Lan {
    Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    }
}

fn wait_all(machine: &Networkd) {
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn configured_cards_are_reached_by_everybody() {
    let layout = Layout {
        dad: true,
        ..Layout::separate(3)
    };
    let (machine, _servers) = configured(&layout, &Lan::default());
    machine.assert_all_reach(&Family::BOTH);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn unchanged_renewal_is_announced_to_nobody() {
    let (machine, _servers) = configured(&Layout::separate(2), &Lan::default());
    machine.wait_quiet();
    let (events, others) = (machine.events(), foreign(machine.fabric.host()));
    let mut monitor = machine.fabric.host().monitor().unwrap();
    machine.networkctl("renew eth1");
    let log = machine.folder().join("dnsmasq.log1");
    wait_for("the server renewed the lease", || {
        let log = leaseroute_e2e::daemon::read(&log);
        if log.matches("DHCPACK").count() >= 2 {
            Ok(())
        } else {
            Err(log)
        }
    });
    let said = monitor.announced(Duration::from_secs(1));
    assert!(ours(&said).is_empty(), "{said:#?}");
    assert_eq!(machine.events(), events);
    assert_eq!(foreign(machine.fabric.host()), others);
    wait_all(&machine);
}

/// Three cards, the second by a server of our own.
fn configured_by_responder(lease: u32, more: &[Ipv4Addr]) -> (Networkd, [Servers; 2], Responder) {
    let mut machine = Networkd::new(&Layout::separate(3));
    let servers = [0, 2].map(|subnet| Servers::start(&machine, subnet, &without_ipv6()));
    let card = machine.card(1);
    let addresses: Vec<Ipv4Addr> = more.iter().copied().chain([card.ipv4]).collect();
    let responder = Responder::start(&machine, &card, Terms::of(&card, lease), &addresses);
    machine.start_clients();
    machine.wait_own(V4, &machine.faces(V4));
    (machine, servers, responder)
}

/// A renewal with another router is told as `configured` when networkd has to set a route
/// for it. Back at a router whose routes it still has, it tells nobody; the next event of
/// the card takes that in.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn changed_router_is_followed() {
    let (machine, _servers, responder) = configured_by_responder(3600, &[]);
    ip(
        machine.fabric.router(1).unwrap(),
        "addr add 10.0.1.2/24 dev port1 noprefixroute",
    );
    let change_to = |router: Ipv4Addr| {
        responder.change(|terms| terms.routers = vec![router]);
        machine.wait_lease(1, &format!("ROUTER={router}"));
    };
    let seen = machine.events().len();
    change_to(ipv4(1, 2));
    machine.wait_event_behind(seen, "configured eth1");
    let mut faces = machine.faces(V4);
    faces[1] = faces[1].clone().with_gateway(ipv4(1, 2).into());
    machine.wait_own(V4, &faces);
    machine.assert_all_reach(&[V4]);

    change_to(ipv4(1, 1));
    machine.networkctl("reconfigure eth1");
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}

/// The address changes inside a renewal, or after a refusal.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn changed_address_is_followed() {
    for refuses in [false, true] {
        let new = ipv4(1, 77);
        let (mut machine, _servers, responder) = configured_by_responder(3600, &[new]);
        machine.fabric.allow(1, IpAddr::from(new).into()).unwrap();
        responder.change(|terms| {
            terms.address = new;
            terms.refuses = refuses;
        });
        machine.wait_lease(1, &format!("ADDRESS={new}"));
        let mut faces = machine.faces(V4);
        faces[1] = faces[1].clone().with_source(new.into());
        machine.wait_own(V4, &faces);
        machine.assert_reached(new.into());
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn lost_lease_is_cleared_and_comes_back() {
    let (machine, _servers, responder) = configured_by_responder(5, &[]);
    responder.change(|terms| terms.answers = false);
    let mut faces = machine.faces(V4);
    faces.remove(1);
    machine.wait_own(V4, &faces);
    for number in [0, 2] {
        machine.assert_reached(machine.card(number).ipv4.into());
    }
    responder.change(|terms| terms.answers = true);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn lost_carrier_is_cleared_and_comes_back() {
    let (machine, mut servers) = configured(&Layout::separate(3), &Lan::default());
    let seen = machine.events().len();
    let router = machine.fabric.router(1).unwrap();
    ip(router, "link set port1 down");
    machine.wait_event_behind(seen, "no-carrier eth1");
    for family in Family::BOTH {
        let mut faces = machine.faces(family);
        faces.remove(1);
        machine.wait_own(family, &faces);
    }
    ip(router, "link set port1 up");
    // The kernel took the router's own addresses away with the carrier.
    for address in ["fe80::1/64", "2001:db8:0:1::1/64"] {
        ip(router, &format!("addr add {address} dev port1 nodad"));
    }
    let again = servers.remove(1).change(&machine, &Lan::default());
    servers.push(again);
    wait_all(&machine);
}

/// The rules of a card that is gone would stay for ever; `off` is told when its name means
/// nothing any more.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_was_pulled_out_leaves_nothing() {
    let (mut machine, _servers) = configured(&Layout::separate(3), &Lan::default());
    machine.fabric.unplug(2).unwrap();
    wait_all(&machine);
    machine.assert_all_reach(&Family::BOTH);
    let log = machine.dispatcher_log();
    assert!(!log.contains("Exit status"), "{log}");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn late_card_is_taken_in() {
    let (mut machine, _servers) = configured(&Layout::separate(2), &Lan::default());
    let number = machine.fabric.attach(2).unwrap().number;
    let _late = Servers::start(&machine, 2, &Lan::default());
    let file = "/etc/systemd/network/40-eth2.network";
    machine.shell(&format!(
        "sed 's/eth1/eth2/; s/=101/=102/' /etc/systemd/network/40-eth1.network >{file}"
    ));
    assert_eq!(number, 2);
    machine.networkctl("reload");
    wait_all(&machine);
    machine.assert_all_reach(&Family::BOTH);
}

/// The announcements of rules and routes of ours.
fn ours(said: &[String]) -> Vec<&String> {
    let marked = |line: &&String| line.contains("Other(76)");
    said.iter().filter(marked).collect()
}

/// What networkd takes away at its restart and when it configures a card anew, it announces;
/// and the rules of the other cards, which it takes along, come back with the same event.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn networkd_that_takes_rules_away_is_healed() {
    assert!(rules_of_others_go(false));
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn networkd_with_the_drop_in_leaves_the_rules() {
    assert!(!rules_of_others_go(true));
}

/// Restarts networkd, then has it configure a card anew; all is right after both. Tells
/// whether the latter removed rules of another card.
fn rules_of_others_go(drop_in: bool) -> bool {
    let mut machine = Networkd::new(&Layout::separate(3));
    if drop_in {
        machine.install_drop_in();
    }
    let _servers = Servers::start_all(&machine, &Lan::default());
    machine.start_clients();
    wait_all(&machine);

    let seen = machine.events().len();
    machine.restart_networkd();
    for number in 0..3 {
        machine.wait_event_behind(seen, &format!("configured eth{number}"));
    }
    wait_all(&machine);
    machine.assert_all_reach(&Family::BOTH);

    machine.wait_quiet();
    let mut monitor = machine.fabric.host().monitor().unwrap();
    let seen = machine.events().len();
    machine.networkctl("reconfigure eth1");
    machine.wait_event_behind(seen, "configured eth1");
    wait_all(&machine);
    machine.assert_all_reach(&Family::BOTH);
    let said = monitor.announced(Duration::from_millis(300));
    let other = |line: &&String| line.contains("DelRule") && line.contains("Source(10.0.0.10)");
    ours(&said).into_iter().any(|line| other(&line))
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn dispatcher_that_starts_late_tells_all() {
    let mut machine = Networkd::new(&Layout::separate(3));
    let _servers = Servers::start_all(&machine, &Lan::default());
    machine.start_networkd();
    for number in 0..3 {
        let address = machine.card(number).ipv4;
        machine.wait_lease(number, &format!("ADDRESS={address}"));
    }
    assert!(Own::read(machine.fabric.host(), V4).is_empty());
    machine.start_dispatcher();
    wait_all(&machine);
    machine.wait_quiet();
    machine.stop_dispatcher();
    let mut monitor = machine.fabric.host().monitor().unwrap();
    machine.start_dispatcher();
    let said = monitor.announced(Duration::from_millis(300));
    assert!(ours(&said).is_empty(), "{said:#?}");
    machine.assert_all_reach(&Family::BOTH);
}

/// The dispatcher replays the states of every link, also of those that networkd leaves to
/// another client.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn lease_of_another_client_is_left_alone() {
    let mut machine = Networkd::new(&Layout::separate(2));
    let _servers = Servers::start_all(&machine, &without_ipv6());
    let card = machine.card(1);
    machine.shell("rm /etc/systemd/network/40-eth1.network; ip link set eth1 up");
    machine.shell(&format!("ip address add {}/24 dev eth1", card.ipv4));
    machine.install_program("leaseroute-dhclient");
    machine.shell(&format!(
        "env reason=BOUND interface=eth1 new_ip_address={} new_subnet_mask=255.255.255.0 \
         new_routers={} {PROGRAMS}/leaseroute-dhclient",
        card.ipv4,
        card.gateway4()
    ));
    machine.start_clients();
    machine.wait_event_behind(0, "routable eth1");
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}

/// The dispatcher runs nothing that anybody but root could have changed.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn script_of_another_mode_is_refused() {
    let mut machine = Networkd::new(&Layout::separate(2));
    let _servers = Servers::start_all(&machine, &without_ipv6());
    machine.shell(&format!("chmod 775 {SCRIPTS}/*.d/50-leaseroute"));
    machine.start_clients();
    for number in 0..2 {
        machine.wait_event_behind(0, &format!("routable eth{number}"));
    }
    let log = machine.dispatcher_log();
    assert!(log.contains("invalid permissions on"), "{log}");
    assert!(Own::read(machine.fabric.host(), V4).is_empty());
}

/// Whatever becomes of the program, the dispatcher goes on and networkd keeps its leases.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_program_costs_no_lease() {
    let mut machine = Networkd::new(&Layout::separate(2));
    let _servers = Servers::start_all(&machine, &without_ipv6());
    for state in STATES {
        // One second in place of thirty.
        machine.shell(&format!(
            "sed -i 's/KILL 30/KILL 1/' {SCRIPTS}/{state}.d/50-leaseroute"
        ));
    }
    machine.start_networkd();
    for number in 0..2 {
        let address = machine.card(number).ipv4;
        machine.wait_lease(number, &format!("ADDRESS={address}"));
    }
    let programs = [
        ("#!/bin/sh\nexit 5\n", 0o755),
        ("#!/bin/sh\nkill -SEGV $$\n", 0o755),
        ("#!/bin/sh\nexec sleep 600\n", 0o755),
        ("#!/bin/sh\nexit 0\n", 0o644),
        ("\u{1}not a program", 0o755),
    ];
    for (program, mode) in programs {
        machine.write(PROGRAM, program, mode);
        let seen = machine.events().len();
        machine.start_dispatcher();
        machine.wait_event_behind(seen, "routable eth1");
        machine.stop_dispatcher();
    }
    for number in 0..2 {
        let card = machine.card(number);
        machine.wait_lease(number, &format!("ADDRESS={}", card.ipv4));
    }
    machine.shell(&format!("rm {PROGRAM}"));
    machine.install_program("leaseroute-networkd-dispatcher");
    machine.start_dispatcher();
    machine.wait_own(V4, &machine.faces(V4));
}

/// A configuration that cannot be read and a lock that another run holds cost nothing but
/// the event, which the next one completes.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_configuration_and_held_lock_are_got_over() {
    let mut machine = Networkd::new(&Layout::separate(2));
    let _servers = Servers::start_all(&machine, &without_ipv6());
    machine.write(
        "/etc/leaseroute/config.toml",
        "when = \"sometimes\"\n",
        0o644,
    );
    machine.start_clients();
    for number in 0..2 {
        let address = machine.card(number).ipv4;
        machine.wait_lease(number, &format!("ADDRESS={address}"));
        machine.wait_event_behind(0, &format!("routable eth{number}"));
    }
    let log = machine.dispatcher_log();
    assert!(log.contains("Exit status 6"), "{log}");
    assert!(Own::read(machine.fabric.host(), V4).is_empty());

    machine.stop_dispatcher();
    machine.write("/etc/leaseroute/config.toml", "", 0o644);
    let lock = "$(find /run/leaseroute -name '*lock*' -type f)";
    machine.shell(&format!(
        "mkdir -p /run/leaseroute; env IFACE=eth0 STATE=routable {PROGRAM}; test -n \"{lock}\""
    ));
    let mut holder = machine.command("sh");
    let hold = format!("exec flock {lock} sh -c 'echo $$ >/run/held; exec sleep 600'");
    holder.args(["-c", &hold]);
    let holder = machine.start("holder", holder);
    wait_for("the lock is held", || {
        let is_held = machine.path("/run/held").exists();
        is_held.then_some(()).ok_or_else(String::new)
    });
    machine.start_dispatcher();
    wait_for("a hook gives up", || {
        let log = machine.dispatcher_log();
        let gave_up = log.contains("Exit status 7");
        gave_up.then_some(()).ok_or(log)
    });
    machine.shell("kill $(cat /run/held)");
    drop(holder);
    // What was told meanwhile waits for the next event.
    let seen = machine.events().len();
    machine.shell("networkctl reconfigure eth1");
    machine.wait_event_behind(seen, "configured eth1");
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}
