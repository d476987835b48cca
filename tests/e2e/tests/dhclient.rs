//! The life of a lease, with the real dhclient and its real script: three cards behind
//! strict fabrics, both families.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::net::IpAddr;
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_e2e::daemon::{Daemon, tethered};
use leaseroute_e2e::host::ANSWER;
use leaseroute_e2e::kernel::{Face, Own, foreign, ip};
use leaseroute_e2e::machine::{Hook, Machine, PROGRAM};
use leaseroute_e2e::responder::{Responder, Terms};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers, bound};
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::{Card, Layout, ipv4};
use leaseroute_lab::probe::{Matrix, Server, Stream, connect};

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;

/// Three cards bound by IPv4 alone, the second by a server of our own.
fn bound_by_responder(lease: u32) -> (Machine, Vec<Servers>, Responder) {
    let mut machine = Machine::new(&Layout::separate(3), Hook::Installed);
    let lan = Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    };
    let servers = [0, 2].map(|subnet| Servers::start(&machine, subnet, &lan));
    let card = machine.card(1);
    machine
        .fabric
        .allow(1, IpAddr::from(moved_to(&card)).into())
        .unwrap();
    let addresses = [card.ipv4, moved_to(&card)];
    let responder = Responder::start(&machine, &card, Terms::of(&card, lease), &addresses);
    machine.start_clients(&[V4]);
    machine.wait_own(V4, &machine.faces(V4));
    (machine, servers.into(), responder)
}

/// The other address that a card may get.
fn moved_to(card: &Card) -> std::net::Ipv4Addr {
    ipv4(card.subnet, 77)
}

/// The uplinks after the second card has moved.
fn moved(machine: &Machine) -> Vec<Face> {
    let mut faces = machine.faces(V4);
    faces[1] = faces[1]
        .clone()
        .with_source(moved_to(&machine.card(1)).into());
    faces
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn bound_cards_are_reached_by_everybody() {
    let (machine, _servers) = bound(&Layout::separate(3), &Lan::default());
    machine.assert_all_reach(&Family::BOTH);
    for card in machine.fabric.cards() {
        assert_eq!(
            machine.fabric.dropped(card.number).unwrap(),
            0,
            "{}",
            card.name
        );
    }
}

/// Shows that the bench tells the two apart. The other callers of IPv6 are left out: the
/// kernel joins the routers' advertisements into one multipath default, which may send a
/// reply the right way.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn without_the_hook_the_same_connections_fail() {
    let mut machine = Machine::new(&Layout::separate(3), Hook::Absent);
    let _servers = Servers::start_all(&machine, &Lan::default());
    machine.start_clients(&Family::BOTH);
    for card in 0..3 {
        machine.wait_event(&format!("BOUND eth{card}"), 1);
        machine.wait_event(&format!("BOUND6 eth{card}"), 1);
    }
    let matrix = Matrix::probe(&machine.fabric, &Family::BOTH, Duration::from_secs(1));
    let answered: Vec<_> = matrix
        .cells
        .iter()
        .filter(|cell| cell.outcome.is_answered())
        .filter(|cell| {
            let outside = cell.from == "client";
            if outside {
                cell.card != 0 && cell.family == V4
            } else {
                cell.from != format!("neighbour{}", cell.card)
            }
        })
        .collect();
    assert!(
        answered.is_empty(),
        "answered all the same: {answered:#?}\n{matrix}"
    );
    assert!(
        machine.fabric.dropped(0).unwrap() > 0,
        "the fabric dropped nothing"
    );
    assert!(
        Family::BOTH
            .iter()
            .all(|f| Own::read(machine.fabric.host(), *f).is_empty())
    );
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn unchanged_renewal_is_silent() {
    let lan = Lan {
        t1: Some(2),
        ..Lan::default()
    };
    let (mut machine, _servers) = bound(&Layout::separate(3), &lan);
    let before = foreign(machine.fabric.host());
    let log = machine.folder().join("monitor.log");
    let mut command = tethered("ip");
    command.args(["-N", "monitor", "rule", "route"]);
    let monitor = Daemon::start(machine.fabric.host(), command, &log);
    // What it says of a rule of ours, and of a route.
    let ours = || {
        let said = monitor.log();
        let marks = ["table 76", "lookup 76", "proto 76"];
        let lines = said
            .lines()
            .filter(|line| marks.iter().any(|mark| line.contains(mark)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    // It must be listening before anything counts: a rule of somebody else shows that.
    let (add, delete) = (
        "rule add priority 76 lookup 76",
        "rule del priority 76 lookup 76",
    );
    wait_for("the monitor listens", || {
        ip(machine.fabric.host(), add);
        ip(machine.fabric.host(), delete);
        if ours().is_empty() {
            Err(monitor.log())
        } else {
            Ok(())
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    let listening = ours().len();
    let seen = machine
        .events()
        .iter()
        .filter(|event| event.starts_with("RENEW "))
        .count();
    machine.wait_event("RENEW ", seen + 6);
    assert_eq!(ours()[listening..], Vec::<String>::new());
    assert_eq!(foreign(machine.fabric.host()), before);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    // And it would have said something.
    machine.end_client(2, V4, "-r");
    wait_for("the monitor saw the release", || {
        if ours().len() > listening {
            Ok(())
        } else {
            Err(monitor.log())
        }
    });
}

/// Debian's script leaves the default route of table main at the old router.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn changed_router_is_followed() {
    let lan = Lan {
        t1: Some(2),
        v6: Ipv6::Without,
        ..Lan::default()
    };
    let mut machine = Machine::new(&Layout::separate(3), Hook::Installed);
    let mut servers = Servers::start_all(&machine, &lan);
    machine.start_clients(&[V4]);
    machine.wait_own(V4, &machine.faces(V4));
    ip(
        machine.fabric.router(1).unwrap(),
        "addr add 10.0.1.2/24 dev port1 noprefixroute",
    );
    let other = Lan {
        routers: vec![2, 1],
        ..lan
    };
    let changed = servers.remove(1).change(&machine, &other);
    servers.push(changed);
    let mut faces = machine.faces(V4);
    faces[1] = faces[1].clone().with_gateway(ipv4(1, 2).into());
    machine.wait_own(V4, &faces);
    machine.assert_all_reach(&[V4]);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn changed_address_loses_nothing_and_leaves_nothing() {
    let (machine, _servers, responder) = bound_by_responder(3600);
    let new = moved_to(&machine.card(1));
    let _echo = Server::echo(machine.fabric.host(), new.into()).unwrap();
    let every = Duration::from_millis(10);
    let stream = Stream::start(machine.fabric.client(), new.into(), every).unwrap();
    responder.change(|terms| {
        terms.address = new;
        terms.refuses = false;
    });
    machine.wait_event(&format!("RENEW eth1 {new}"), 1);
    machine.wait_own(V4, &moved(&machine));
    std::thread::sleep(Duration::from_secs(1));
    let shots = stream.stop();
    let first = shots.iter().position(|shot| shot.answered.is_some());
    let first = first.unwrap_or_else(|| panic!("nothing was answered\n{}", machine.logs()));
    let lost = shots[first..]
        .iter()
        .filter(|shot| shot.answered.is_none())
        .count();
    assert_eq!(lost, 0, "of {} after the first answer", shots.len() - first);
    assert!(
        shots.len() - first >= 50,
        "too few to tell: {}",
        shots.len() - first
    );
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn refused_renewal_moves_the_card() {
    let (machine, _servers, responder) = bound_by_responder(3600);
    let new = moved_to(&machine.card(1));
    responder.change(|terms| terms.address = new);
    machine.wait_event("EXPIRE eth1", 1);
    machine.wait_event(&format!("BOUND eth1 {new}"), 1);
    machine.wait_own(V4, &moved(&machine));
    machine.assert_reached(new.into());
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn expired_lease_is_cleared_and_comes_back() {
    let (machine, _servers, responder) = bound_by_responder(5);
    responder.change(|terms| terms.answers = false);
    machine.wait_event("EXPIRE eth1", 1);
    let mut faces = machine.faces(V4);
    faces.remove(1);
    machine.wait_own(V4, &faces);
    for number in [0, 2] {
        machine.assert_reached(machine.card(number).ipv4.into());
    }
    responder.change(|terms| terms.answers = true);
    machine.wait_event("BOUND eth1", 2);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}

/// The second last card to go takes everything along: one uplink needs no rules. The other
/// family stays as it is throughout.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn released_and_stopped_leases_leave_nothing() {
    let (mut machine, _servers) = bound(&Layout::separate(3), &Lan::default());
    machine.end_client(2, V4, "-r");
    machine.wait_event("RELEASE eth2", 1);
    machine.wait_own(V4, &machine.faces(V4)[..2]);
    machine.wait_own(V6, &machine.faces(V6));
    machine.end_client(1, V4, "-x");
    machine.wait_event("STOP eth1", 1);
    machine.wait_own(V4, &[]);
    machine.wait_own(V6, &machine.faces(V6));
    machine.assert_all_reach(&[V6]);
    machine.assert_reached(machine.card(0).ipv4.into());
}

/// The card keeps its prefix and its router, which the others must still go around: else
/// what they send to that subnet would leave by the card that has no address there.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn released_ipv6_lease_leaves_no_source() {
    let (mut machine, _servers) = bound(&Layout::separate(3), &Lan::default());
    machine.end_client(2, V6, "-r");
    machine.wait_event("RELEASE6 eth2", 1);
    let mut faces = machine.faces(V6);
    faces[2].sources.clear();
    machine.wait_own(V6, &faces);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
    for (_, neighbour) in machine.fabric.neighbours() {
        for number in [0, 1] {
            let outcome = connect(neighbour, machine.card(number).ipv6.into(), ANSWER);
            assert!(
                outcome.is_answered(),
                "{} to eth{number}: {outcome}",
                neighbour.name()
            );
        }
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn two_cards_share_one_subnet() {
    let (machine, _servers) = bound(&Layout::of(vec![0, 1, 1]), &Lan::default());
    machine.assert_all_reach(&Family::BOTH);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn late_card_is_taken_in() {
    let (mut machine, _servers) = bound(&Layout::separate(2), &Lan::default());
    let number = machine.fabric.attach(2).unwrap().number;
    let _late = Servers::start(&machine, 2, &Lan::default());
    for family in Family::BOTH {
        machine.start_client(number, family);
        machine.wait_own(family, &machine.faces(family));
    }
    machine.assert_all_reach(&Family::BOTH);
}

/// dhclient is killed and started again: it confirms its lease, and nothing changes.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn restarted_client_confirms_its_lease() {
    let (mut machine, _servers) = bound(&Layout::separate(2), &Lan::default());
    machine.kill_client(1, V4);
    machine.start_client(1, V4);
    machine.wait_event("REBOOT eth1", 1);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&Family::BOTH);
}

/// The same subnet behind a card that was pulled out and plugged in again has another index
/// and another table; nothing of the old one stays once its successor is bound.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_was_pulled_out_leaves_nothing() {
    let (mut machine, mut servers) = bound(&Layout::separate(3), &Lan::default());
    machine.fabric.unplug(2).unwrap();
    // Its clients notice nothing.
    for family in Family::BOTH {
        machine.kill_client(2, family);
    }
    let number = machine.fabric.attach(2).unwrap().number;
    let changed = servers.remove(2).change(&machine, &Lan::default());
    servers.push(changed);
    for family in Family::BOTH {
        machine.start_client(number, family);
        machine.wait_own(family, &machine.faces(family));
    }
    machine.assert_all_reach(&Family::BOTH);
}

/// Whatever becomes of the program, the client keeps its lease and later hooks run.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_program_costs_no_lease() {
    let mut machine = Machine::new(&Layout::separate(1), Hook::Installed);
    let lan = Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    };
    let _servers = Servers::start_all(&machine, &lan);
    let programs = [
        ("#!/bin/sh\nexit 5\n", 0o755),
        ("#!/bin/sh\nkill -SEGV $$\n", 0o755),
        ("#!/bin/sh\nkill -KILL $PPID $$\n", 0o755),
        ("#!/bin/sh\nexit 0\n", 0o644),
        ("\u{1}not a program", 0o755),
    ];
    for (number, (program, mode)) in programs.into_iter().enumerate() {
        machine.write(PROGRAM, program, mode);
        machine.start_client(0, V4);
        // The first run binds, the later ones confirm what it got.
        let reason = if number == 0 { "BOUND" } else { "REBOOT" };
        machine.wait_event(&format!("{reason} eth0"), number.max(1));
        wait_for("dhclient says that it is bound", || {
            let log = machine.log(0, V4);
            let bound = log.matches("bound to 10.0.0.10").count();
            if bound > number { Ok(()) } else { Err(log) }
        });
        assert!(
            !machine.log(0, V4).contains("DHCPDECLINE"),
            "{}",
            machine.logs()
        );
        machine.kill_client(0, V4);
    }
}

/// A configuration that cannot be used, and a lock that somebody holds for ever, hold the
/// client up for seconds at the most. What was told meanwhile waits for the next event.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_configuration_and_held_lock_cost_no_lease() {
    let mut machine = Machine::new(&Layout::separate(2), Hook::Installed);
    let lan = Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    };
    let _servers = Servers::start_all(&machine, &lan);
    machine.write("/etc/leaseroute/config.toml", "tables = 7\n", 0o644);
    machine.start_client(0, V4);
    machine.wait_event("BOUND eth0", 1);
    assert!(Own::read(machine.fabric.host(), V4).is_empty());
    machine.write("/etc/leaseroute/config.toml", "", 0o644);

    let lock = machine.shell("ls -d /run/leaseroute/*/").trim().to_owned() + "lock";
    let mut holder = machine.command("flock");
    holder.args([&lock, "sh", "-c", "echo $$ >/run/holder; exec sleep 600"]);
    let _holder = machine.start("holder", holder);
    wait_for("the lock is held", || {
        let is_held = machine.path("/run/holder").exists();
        is_held.then_some(()).ok_or_else(String::new)
    });
    machine.start_client(1, V4);
    machine.wait_event("BOUND eth1", 1);
    for number in 0..2 {
        let log = machine.log(number, V4);
        assert!(!log.contains("DHCPDECLINE"), "{log}");
    }
    machine.shell("kill $(cat /run/holder)");

    // dhclient confirms its lease, which is an event.
    machine.kill_client(0, V4);
    machine.start_client(0, V4);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}
