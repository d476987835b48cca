//! The life of a lease, with the real udhcpc of busybox: three cards behind strict fabrics,
//! IPv4 by the client and IPv6 by router advertisements, as on Debian, whose busybox has no
//! udhcpc6.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::net::IpAddr;
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_e2e::daemon::{Daemon, tethered};
use leaseroute_e2e::kernel::{Face, Own, foreign, ip};
use leaseroute_e2e::responder::{Responder, Terms};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_e2e::udhcpc::{Machine, PROGRAM, Script, bound};
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::{Card, Layout, ipv4};
use leaseroute_lab::probe::{Matrix, connect};

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;

/// Servers without IPv6.
fn plain() -> Lan {
    Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    }
}

/// Cards bound by IPv4 alone, the second by a server of our own. Leases are renewed when
/// half of `lease` seconds are over.
fn bound_by_responder(lease: u32) -> (Machine, Vec<Servers>, Responder) {
    let mut machine = Machine::new(&Layout::separate(3), Script::Wrapped);
    let servers = [0, 2].map(|subnet| Servers::start(&machine, subnet, &plain()));
    let card = machine.card(1);
    let new = IpAddr::from(moved_to(&card));
    machine.fabric.allow(1, new.into()).unwrap();
    let addresses = [card.ipv4, moved_to(&card)];
    let responder = Responder::start(&machine, &card, Terms::of(&card, lease), &addresses);
    machine.start_clients();
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

/// The client outside and a neighbour in every subnet reach every card, also by the
/// addresses that the kernel made of advertisements.
fn assert_all_reach(machine: &Machine, advertised: &[Face]) {
    machine.assert_all_reach(&[V4]);
    let callers = machine.fabric.neighbours().map(|(_, site)| site);
    for caller in callers.chain([machine.fabric.client()]) {
        for face in advertised {
            let address = face.sources[0];
            let outcome = connect(caller, address, Duration::from_secs(3));
            assert!(
                outcome.is_answered(),
                "{} to {address}: {outcome}\n{}",
                caller.name(),
                machine.logs()
            );
        }
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn udhcpc_cards_are_reached_by_everybody() {
    let (machine, _servers, advertised) = bound(&Layout::separate(3), Script::Wrapped);
    assert_all_reach(&machine, &advertised);
    for card in machine.fabric.cards() {
        let dropped = machine.fabric.dropped(card.number).unwrap();
        assert_eq!(dropped, 0, "{}", card.name);
    }
}

/// Shows that the bench tells the two apart.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn with_the_script_of_the_distribution_alone_the_same_connections_fail() {
    let mut machine = Machine::new(&Layout::separate(3), Script::Debian);
    let _servers = Servers::start_all(&machine, &plain());
    machine.start_clients();
    for number in 0..3 {
        machine.wait_event(&format!("bound eth{number}"), 1);
    }
    let matrix = Matrix::probe(&machine.fabric, &[V4], Duration::from_secs(1));
    let outside = matrix.cells.iter().filter(|cell| cell.from == "client");
    let answered = outside.filter(|cell| cell.outcome.is_answered()).count();
    assert_eq!(
        answered, 1,
        "only the card with the default route\n{matrix}"
    );
    assert!(Own::read(machine.fabric.host(), V4).is_empty());
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn unchanged_udhcpc_renewal_is_silent() {
    let (machine, _servers, advertised) = bound(&Layout::separate(3), Script::Wrapped);
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
    wait_for("the monitor listens", || {
        ip(machine.fabric.host(), "rule add priority 76 lookup 76");
        ip(machine.fabric.host(), "rule del priority 76 lookup 76");
        if ours().is_empty() {
            Err(monitor.log())
        } else {
            Ok(())
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    let listening = ours().len();
    for _ in 0..2 {
        for number in 0..3 {
            machine.renew(number);
        }
    }
    assert_eq!(ours()[listening..], Vec::<String>::new());
    assert_eq!(foreign(machine.fabric.host()), before);
    machine.wait_own(V4, &machine.faces(V4));
    machine.wait_own(V6, &advertised);
    // And it would have said something.
    machine.signal(2, "USR2");
    wait_for("the monitor saw the release", || {
        if ours().len() > listening {
            Ok(())
        } else {
            Err(monitor.log())
        }
    });
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn changed_router_is_followed_by_udhcpc() {
    let mut machine = Machine::new(&Layout::separate(3), Script::Wrapped);
    let mut servers = Servers::start_all(&machine, &plain());
    machine.start_clients();
    machine.wait_own(V4, &machine.faces(V4));
    ip(
        machine.fabric.router(1).unwrap(),
        "addr add 10.0.1.2/24 dev port1 noprefixroute",
    );
    let other = Lan {
        routers: vec![2, 1],
        ..plain()
    };
    let changed = servers.remove(1).change(&machine, &other);
    servers.push(changed);
    machine.renew(1);
    let mut faces = machine.faces(V4);
    faces[1] = faces[1].clone().with_gateway(ipv4(1, 2).into());
    machine.wait_own(V4, &faces);
    machine.assert_all_reach(&[V4]);
}

/// No event comes between: the renewal itself has another address.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn udhcpc_renewal_with_another_address_leaves_nothing() {
    let (machine, _servers, responder) = bound_by_responder(3600);
    let new = moved_to(&machine.card(1));
    responder.change(|terms| {
        terms.address = new;
        terms.refuses = false;
    });
    machine.renew(1);
    machine.wait_event(&format!("renew eth1 {new}"), 1);
    machine.wait_own(V4, &moved(&machine));
    machine.assert_reached(new.into());
    assert_eq!(machine.seen("deconfig eth1"), 1, "{:?}", machine.events());
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn refused_udhcpc_renewal_moves_the_card() {
    let (machine, _servers, responder) = bound_by_responder(3600);
    let new = moved_to(&machine.card(1));
    responder.change(|terms| terms.address = new);
    machine.signal(1, "USR1");
    machine.wait_event(&format!("bound eth1 {new}"), 1);
    machine.wait_event("deconfig eth1", 2);
    machine.wait_own(V4, &moved(&machine));
    machine.assert_reached(new.into());
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn expired_udhcpc_lease_is_cleared_and_comes_back() {
    let (machine, _servers, responder) = bound_by_responder(12);
    responder.change(|terms| terms.answers = false);
    machine.wait_event("deconfig eth1", 2);
    let mut faces = machine.faces(V4);
    faces.remove(1);
    machine.wait_own(V4, &faces);
    machine.wait_event("leasefail eth1", 1);
    machine.wait_own(V4, &faces);
    for number in [0, 2] {
        machine.assert_reached(machine.card(number).ipv4.into());
    }
    responder.change(|terms| terms.answers = true);
    machine.wait_event("bound eth1", 2);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}

/// The second last card to go takes everything of IPv4 along: one uplink needs no rules. The
/// other family stays as it is throughout.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn released_udhcpc_leases_leave_nothing() {
    let (machine, _servers, advertised) = bound(&Layout::separate(3), Script::Wrapped);
    machine.signal(2, "USR2");
    machine.wait_event("deconfig eth2", 2);
    machine.wait_own(V4, &machine.faces(V4)[..2]);
    machine.wait_own(V6, &advertised);
    machine.signal(1, "USR2");
    machine.wait_event("deconfig eth1", 2);
    machine.wait_own(V4, &[]);
    machine.wait_own(V6, &advertised);
    machine.assert_reached(machine.card(0).ipv4.into());
    for face in &advertised {
        machine.assert_reached(face.sources[0]);
    }
}

/// Its end is not announced, and the address stays; its start is: deconfig, then bound.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn restarted_udhcpc_comes_back_to_the_same() {
    let (mut machine, _servers, advertised) = bound(&Layout::separate(3), Script::Wrapped);
    machine.stop_client(1);
    assert_eq!(machine.seen("deconfig eth1"), 1, "{:?}", machine.events());
    assert_all_reach(&machine, &advertised);
    machine.start_client(1, &[]);
    machine.wait_event("bound eth1", 2);
    machine.wait_own(V4, &machine.faces(V4));
    machine.wait_own(V6, &advertised);
    assert_all_reach(&machine, &advertised);
}

/// With `-R` it gives the lease back when it ends.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn udhcpc_that_releases_at_its_end_leaves_nothing() {
    let mut machine = Machine::new(&Layout::separate(3), Script::Wrapped);
    let _servers = Servers::start_all(&machine, &plain());
    for number in 0..3 {
        machine.start_client(number, &["-R"]);
    }
    machine.wait_own(V4, &machine.faces(V4));
    machine.stop_client(1);
    machine.wait_event("deconfig eth1", 2);
    let mut faces = machine.faces(V4);
    faces.remove(1);
    machine.wait_own(V4, &faces);
}

/// The same subnet behind a card that was pulled out and plugged in again has another index
/// and another table; nothing of the old one stays once its successor is bound.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_pulled_out_under_udhcpc_leaves_nothing() {
    let mut machine = Machine::new(&Layout::separate(3), Script::Wrapped);
    let mut servers = Servers::start_all(&machine, &plain());
    machine.start_clients();
    machine.wait_own(V4, &machine.faces(V4));
    machine.fabric.unplug(2).unwrap();
    machine.shell("pid=$(cat /run/udhcpc.eth2.pid); kill -KILL $pid || :");
    let number = machine.fabric.attach(2).unwrap().number;
    let changed = servers.remove(2).change(&machine, &plain());
    servers.push(changed);
    machine.start_client(number, &[]);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}

/// Option 121, which udhcpc asks for only when told to, and which Debian's script ignores.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn option_121_counts_where_udhcpc_asks_for_it() {
    let mut machine = Machine::new(&Layout::separate(2), Script::Wrapped);
    let lan = Lan {
        extra: vec!["dhcp-option=121,0.0.0.0/0,10.0.1.2,203.0.113.64/26,10.0.1.1".to_owned()],
        ..plain()
    };
    let _servers = [
        Servers::start(&machine, 0, &plain()),
        Servers::start(&machine, 1, &lan),
    ];
    machine.start_client(0, &[]);
    machine.start_client(1, &["-O", "staticroutes"]);
    machine.wait_event("bound eth1", 1);
    wait_for("the card's table has the routes of option 121", || {
        let said = machine.shell("ip route show table all proto 76");
        let wanted = [
            "default via 10.0.1.2 dev eth1",
            "203.0.113.64/26 via 10.0.1.1 dev eth1",
        ];
        if wanted.iter().all(|route| said.contains(route)) {
            Ok(())
        } else {
            Err(format!("{said}\n{}", machine.logs()))
        }
    });
}

/// Whatever becomes of the program, the client keeps its lease and its script's status.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_program_costs_udhcpc_no_lease() {
    let mut machine = Machine::new(&Layout::separate(1), Script::Wrapped);
    let _servers = Servers::start_all(&machine, &plain());
    let programs = [
        ("#!/bin/sh\nexit 5\n", 0o755),
        ("#!/bin/sh\nkill -SEGV $$\n", 0o755),
        ("#!/bin/sh\nexit 0\n", 0o644),
        ("\u{1}not a program", 0o755),
    ];
    for (number, (program, mode)) in programs.into_iter().enumerate() {
        machine.write(PROGRAM, program, mode);
        machine.start_client(0, &[]);
        machine.wait_event("bound eth0 10.0.0.10 0", number + 1);
        wait_for("udhcpc says that it has the lease", || {
            let log = machine.log(0);
            let obtained = log.matches("lease of 10.0.0.10 obtained").count();
            if obtained > number { Ok(()) } else { Err(log) }
        });
        machine.stop_client(0);
    }
    machine.assert_reached(machine.card(0).ipv4.into());
}

/// A hook that waits for the lock holds the client up for seconds, and costs no lease. What
/// it could not do, the next event does.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn held_lock_costs_udhcpc_no_lease() {
    let mut machine = Machine::new(&Layout::separate(2), Script::Wrapped);
    let _servers = Servers::start_all(&machine, &plain());
    machine.start_client(0, &[]);
    machine.wait_event("bound eth0", 1);
    let folder = machine.shell("ls -d /run/leaseroute/*/").trim().to_owned();
    let mut holder = machine.command("flock");
    holder.args([
        &format!("{folder}lock"),
        "sh",
        "-c",
        "echo $$ >/run/holder; exec sleep 60",
    ]);
    let _holder = machine.start("holder", holder);
    wait_for("the lock is held", || {
        if machine.path("/run/holder").exists() {
            Ok(())
        } else {
            Err(String::new())
        }
    });
    machine.start_client(1, &[]);
    machine.wait_event("bound eth1 10.0.1.10 0", 1);
    assert!(machine.log(1).contains("lock"), "{}", machine.logs());
    machine.shell("kill $(cat /run/holder)");
    machine.renew(0);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_configuration_costs_udhcpc_no_lease() {
    let mut machine = Machine::new(&Layout::separate(2), Script::Wrapped);
    let _servers = Servers::start_all(&machine, &plain());
    let configuration = "/etc/leaseroute/config.toml";
    machine.write(configuration, "when = [\n", 0o644);
    machine.start_clients();
    for number in 0..2 {
        machine.wait_event(&format!("bound eth{number} 10.0.{number}.10 0"), 1);
        assert!(
            machine.log(number).contains("config.toml"),
            "{}",
            machine.logs()
        );
    }
    assert!(Own::read(machine.fabric.host(), V4).is_empty());
    machine.write(configuration, "", 0o644);
    for number in 0..2 {
        machine.renew(number);
    }
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
}

/// The life of a lease under the scripts of other distributions.
fn lives_well(script: Script) {
    let (mut machine, _servers, advertised) = bound(&Layout::separate(3), script);
    assert_all_reach(&machine, &advertised);
    machine.renew(1);
    machine.signal(2, "USR2");
    machine.wait_event("deconfig eth2", 2);
    machine.wait_own(V4, &machine.faces(V4)[..2]);
    machine.wait_own(V6, &advertised);
    machine.stop_client(2);
    machine.start_client(2, &[]);
    machine.wait_own(V4, &machine.faces(V4));
    assert_all_reach(&machine, &advertised);
    let failed: Vec<_> = machine
        .events()
        .into_iter()
        .filter(|e| !e.ends_with(" 0"))
        .collect();
    assert_eq!(failed, Vec::<String>::new());
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn alpine_folders_serve_every_event() {
    lives_well(Script::Alpine);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn openwrt_user_file_serves_every_event() {
    lives_well(Script::OpenWrt);
}

/// As a stand-in for udhcpc6, which Debian does not build: the calls that its script makes,
/// with the values recorded of it, beside an IPv4 lease of the same card.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn udhcpc6_events_leave_ipv4_alone() {
    let mut machine = Machine::new(&Layout::separate(2), Script::Wrapped);
    let lan = Lan {
        v6: Ipv6::Dhcp,
        ..Lan::default()
    };
    let _servers = Servers::start_all(&machine, &lan);
    machine.start_clients();
    machine.wait_own(V4, &machine.faces(V4));
    let programs = "/usr/libexec/leaseroute";
    machine.shell(&format!("ln -s udhcpc.script {programs}/udhcpc6.script"));
    let script = r#"#!/bin/busybox sh
case $1 in
bound | renew) ip -6 addr replace "$ipv6/128" dev "$interface" ;;
deconfig) ip -6 addr flush dev "$interface" scope global ;;
esac
"#;
    machine.write("/etc/udhcpc/default6.script", script, 0o755);
    let call = |number: usize, event: &str, address: &str| {
        let mut command = machine.command(&format!("{programs}/udhcpc6.script"));
        command.arg(event).env("interface", format!("eth{number}"));
        if !address.is_empty() {
            command.env("ipv6", address);
        }
        let output = machine.output(command);
        assert!(output.status.success(), "{output:?}");
    };
    for number in 0..2 {
        call(number, "deconfig", "");
        wait_for("the kernel has a default route", || {
            let said = machine.shell(&format!("ip -6 route show default dev eth{number}"));
            let all = machine.shell("ip -6 route show default");
            if said.contains("fe80::1") || all.contains(&format!("dev eth{number}")) {
                Ok(())
            } else {
                Err(all)
            }
        });
        call(
            number,
            "bound",
            &format!("2001:0db8:0000:000{number}:0000:0000:0000:0010"),
        );
    }
    machine.wait_own(V6, &machine.faces(V6));
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&Family::BOTH);
    call(1, "nak", "");
    call(1, "deconfig", "");
    machine.wait_own(V4, &machine.faces(V4));
    // The card keeps its router, which the other must still go around.
    let mut faces = machine.faces(V6);
    faces[1].sources.clear();
    machine.wait_own(V6, &faces);
    machine.assert_all_reach(&[V4]);
}
