//! The life of a lease with the real dhcpcd, its real `dhcpcd-run-hooks` and our shim: three
//! cards behind strict fabrics, both families.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_e2e::daemon::{Daemon, tethered};
use leaseroute_e2e::dhcpcd::Machine;
use leaseroute_e2e::kernel::{Face, Own, foreign, ip};
use leaseroute_e2e::responder::{Responder, Terms};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::{Card, Layout, ipv4};
use leaseroute_lab::probe::Matrix;

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;

/// IPv4 alone.
fn lan4() -> Lan {
    Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    }
}

/// Three cards bound by IPv4 alone, the second by a server of our own that gives it T1, T2
/// and the lease time in seconds.
fn bound_by_responder(times: [u32; 3]) -> (Machine, Vec<Servers>, Responder) {
    let mut machine = Machine::new(&Layout::separate(3), "");
    let servers = [0, 2].map(|subnet| Servers::start(&machine, subnet, &lan4()));
    let card = machine.card(1);
    let other = moved_to(&card);
    machine.fabric.allow(1, IpAddr::from(other).into()).unwrap();
    let terms = Terms {
        times,
        ..Terms::of(&card, 0)
    };
    let responder = Responder::start(&machine, &card, terms, &[card.ipv4, other]);
    machine.start();
    machine.wait_own(V4, &machine.faces(V4));
    (machine, servers.into(), responder)
}

/// The other address that a card may get.
fn moved_to(card: &Card) -> Ipv4Addr {
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
    let (machine, _servers) = Machine::bound(&Layout::separate(3), &Lan::default());
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

/// One dhcpcd for each card, as ifupdown starts it: their hooks overlap.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn one_dhcpcd_for_each_card_does_the_same() {
    let mut machine = Machine::new(&Layout::of(vec![0, 1, 1]), "");
    let _servers = Servers::start_all(&machine, &Lan::default());
    for number in 0..3 {
        machine.start_card(number);
    }
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    machine.assert_all_reach(&Family::BOTH);

    // The release of one card is that one's alone.
    machine.shell("dhcpcd -k eth2");
    machine.wait_event("STOPPED eth2", 1);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family)[..2]);
    }
}

/// Shows that the bench tells the two apart, and that dhcpcd's own way to leave a hook out
/// works.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn without_the_hook_the_same_connections_fail() {
    let mut machine = Machine::new(&Layout::separate(2), "nohook leaseroute\n");
    let _servers = Servers::start_all(&machine, &lan4());
    machine.start();
    for card in 0..2 {
        machine.wait_event(&format!("BOUND eth{card}"), 1);
    }
    let matrix = Matrix::probe(&machine.fabric, &[V4], Duration::from_secs(1));
    assert!(!matrix.is_complete(), "{matrix}");
    assert!(Own::read(machine.fabric.host(), V4).is_empty());
}

/// DHCP renewals, and advertisements every few seconds.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn unchanged_renewals_and_advertisements_are_silent() {
    let lan = Lan {
        t1: Some(2),
        ..Lan::default()
    };
    let (machine, _servers) = Machine::bound(&Layout::separate(3), &lan);
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
    let (renewed, advertised) = (machine.seen("RENEW "), machine.seen("ROUTERADVERT "));
    machine.wait_event("RENEW ", renewed + 4);
    machine.wait_event("ROUTERADVERT ", advertised + 3);
    assert_eq!(ours()[listening..], Vec::<String>::new());
    assert_eq!(foreign(machine.fabric.host()), before);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn changed_router_is_followed() {
    let lan = Lan {
        t1: Some(2),
        ..lan4()
    };
    let (machine, mut servers) = Machine::started(&Layout::separate(3), &lan);
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

/// dhcpcd hears of another address at T2 only, when it listens to the whole link, and keeps
/// the old one beside it until that one's time is over, which no event tells. It has the
/// kernel promote the new one then, so that what is in the table stays.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn changed_address_is_followed() {
    let (machine, _servers, responder) = bound_by_responder([2, 4, 20]);
    let old = machine.card(1).ipv4;
    let new = moved_to(&machine.card(1));
    responder.change(|terms| {
        terms.address = new;
        terms.refuses = false;
        terms.times = [1800, 3150, 3600];
    });
    machine.wait_event(&format!("REBIND eth1 {new}"), 1);
    machine.wait_own(V4, &moved(&machine));
    machine.assert_reached(new.into());
    wait_for("the old address is gone", || {
        let said = machine.shell("ip -4 -o addr show dev eth1");
        if said.contains(&format!("{old}/")) {
            Err(said)
        } else {
            Ok(())
        }
    });
    machine.wait_own(V4, &moved(&machine));
    machine.assert_reached(new.into());
    machine.assert_reached(machine.card(0).ipv4.into());
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn refused_renewal_moves_the_card() {
    let (machine, _servers, responder) = bound_by_responder([2, 3599, 3600]);
    let new = moved_to(&machine.card(1));
    responder.change(|terms| terms.address = new);
    machine.wait_event(&format!("BOUND eth1 {new}"), 1);
    machine.wait_own(V4, &moved(&machine));
    machine.assert_reached(new.into());
}

/// dhcpcd takes no lease of less than 20 seconds.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn expired_lease_is_cleared_and_comes_back() {
    let (machine, _servers, responder) = bound_by_responder([2, 19, 20]);
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

/// SIGALRM releases every lease.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn released_leases_leave_nothing() {
    let (machine, _servers) = Machine::bound(&Layout::separate(3), &Lan::default());
    machine.signal("ALRM");
    machine.wait_event("STOPPED ", 3);
    for family in Family::BOTH {
        machine.wait_own(family, &[]);
    }
}

/// SIGTERM ends dhcpcd, which keeps what is on the cards (`persistent`). What the kernel
/// shows as dynamic is a source as long as it is there, whoever put it there.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn stopped_client_holds_no_leases() {
    let (machine, _servers) = Machine::bound(&Layout::separate(3), &Lan::default());
    machine.signal("TERM");
    machine.wait_event("STOPPED ", 3);
    machine.wait_own(V4, &[]);
    machine.wait_own(V6, &machine.faces(V6));
    machine.assert_all_reach(&[V6]);
}

/// dhcpcd is killed and started again: it confirms its leases, and nothing changes.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn restarted_client_confirms_its_leases() {
    let (mut machine, _servers) = Machine::bound(&Layout::separate(3), &Lan::default());
    machine.kill();
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    let losses = machine.seen("NOCARRIER");
    machine.start();
    machine.wait_event("REBOOT ", 3);
    machine.wait_event("REBOOT6 ", 3);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    machine.assert_all_reach(&Family::BOTH);
    assert_eq!(machine.seen("NOCARRIER"), losses);
    assert_eq!(machine.seen("EXPIRE"), 0);
}

/// A card that is pulled out is cleared at once, without another card's event, and its
/// successor is taken in by the dhcpcd that runs.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_was_pulled_out_leaves_nothing_and_a_late_one_is_taken_in() {
    let (mut machine, mut servers) = Machine::bound(&Layout::separate(3), &Lan::default());
    machine.fabric.unplug(2).unwrap();
    machine.wait_event("DEPARTED eth2", 1);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    machine.fabric.attach(2).unwrap();
    let changed = servers.remove(2).change(&machine, &Lan::default());
    servers.push(changed);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    machine.assert_all_reach(&Family::BOTH);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn lost_carrier_clears_the_card_until_it_is_back() {
    let (machine, _servers) = Machine::bound(&Layout::separate(3), &Lan::default());
    let port = machine.card(1).port;
    let router = machine.fabric.router(1).unwrap();
    ip(router, &format!("link set {port} down"));
    machine.wait_event("EXPIRE eth1", 1);
    let mut faces = machine.faces(V4);
    faces.remove(1);
    machine.wait_own(V4, &faces);
    ip(router, &format!("link set {port} up"));
    machine.wait_event("REBOOT eth1", 1);
    machine.wait_own(V4, &machine.faces(V4));
}

/// Addresses of dhcpcd.conf are permanent to the kernel. The IPv4 one is told as a lease;
/// dhcpcd 9 does not name the IPv6 one, so it is a source where permanent addresses are.
/// The other card goes around its subnet in any case.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn static_addresses_are_sources() {
    let conf = "interface eth1\n\
                nodhcp6\n\
                static ip_address=10.0.1.10/24\n\
                static routers=10.0.1.1\n\
                static ip6_address=2001:db8:0:1::10/64\n";
    let mut machine = Machine::new(&Layout::separate(2), conf);
    let _servers = Servers::start_all(&machine, &Lan::default());
    machine.start();
    machine.wait_event("STATIC eth1 10.0.1.10", 1);
    machine.wait_own(V4, &machine.faces(V4));
    let mut faces = machine.faces(V6);
    faces[1].sources.clear();
    machine.wait_own(V6, &faces);
    machine.write(
        "/etc/leaseroute/config.toml",
        "permanent_addresses = true\n",
        0o644,
    );
    machine.wait_own(V6, &machine.faces(V6));
    machine.assert_all_reach(&Family::BOTH);
}

/// A prefix without an end makes an address that the kernel shows as permanent, beside one
/// from DHCPv6.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn advertised_addresses_for_ever_are_sources() {
    let mut machine = Machine::new(&Layout::separate(2), "");
    let mut routers = Vec::new();
    let mut faces = machine.faces(V6);
    for (number, face) in faces.iter_mut().enumerate() {
        let card = machine.card(number);
        let [.., a, b, c, d] = card.link_local().segments();
        let subnet = u16::from(card.subnet);
        let address = Ipv6Addr::from([0x2001, 0xdb8, 0, subnet, a, b, c, d]);
        machine
            .fabric
            .allow(number, IpAddr::from(address).into())
            .unwrap();
        face.sources = vec![address.into()];
        let file = |name: &str| machine.folder().join(format!("forever-{name}{number}"));
        let conf = format!(
            "interface {} {{ AdvSendAdvert on; AdvRASrcAddress {{ fe80::1; }};\n\
             MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultLifetime 1800;\n\
             prefix 2001:db8:0:{subnet}::/64 {{ AdvOnLink on; AdvAutonomous on;\n\
             AdvValidLifetime infinity; AdvPreferredLifetime infinity; }}; }};",
            card.port
        );
        fs::write(file("radvd.conf"), conf).unwrap();
        let mut command = tethered("radvd");
        command.args(["-n", "-m", "stderr", "-C"]);
        command.arg(file("radvd.conf")).arg("-p").arg(file("pid"));
        let router = machine.fabric.router(card.subnet).unwrap();
        routers.push(Daemon::start(router, command, &file("radvd.log")));
    }
    machine.start();
    machine.wait_own(V6, &faces);
    for face in &faces {
        machine.assert_reached(face.sources[0]);
    }
    let said = machine.shell("ip -6 -o addr show dev eth1 scope global");
    assert!(!said.contains("dynamic"), "{said}");
}

/// Whatever becomes of the program, the client keeps its lease and later hooks run.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_program_costs_no_lease() {
    let mut machine = Machine::new(&Layout::separate(1), "");
    let _servers = Servers::start_all(&machine, &lan4());
    let programs = [
        ("#!/bin/sh\nexit 5\n", 0o755),
        ("#!/bin/sh\nkill -SEGV $$\n", 0o755),
        ("#!/bin/sh\nkill -KILL $PPID $$\n", 0o755),
        ("#!/bin/sh\n[ \"$reason\" != REBOOT ] || sleep 3\n", 0o755),
        ("#!/bin/sh\nexit 0\n", 0o644),
        ("\u{1}not a program", 0o755),
    ];
    for (number, (program, mode)) in programs.into_iter().enumerate() {
        machine.write(&Machine::program(), program, mode);
        machine.start();
        // The first run binds, the later ones confirm what it got.
        let reason = if number == 0 { "BOUND" } else { "REBOOT" };
        machine.wait_event(&format!("{reason} eth0 10.0.0.10"), number.max(1));
        let said = machine.shell("ip -4 -o addr show dev eth0");
        assert!(said.contains("10.0.0.10/24"), "{said}\n{}", machine.logs());
        machine.kill();
    }
}

/// A lock that somebody holds and a configuration that cannot be read cost no lease, and
/// the next event after them makes good what was left undone.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn held_lock_and_broken_configuration_cost_no_lease() {
    let lan = Lan {
        t1: Some(2),
        ..lan4()
    };
    let (machine, _servers) = Machine::started(&Layout::separate(2), &lan);
    machine.wait_own(V4, &machine.faces(V4));
    let whole = Own::expected(&machine.faces(V4));
    let renewed = || {
        // Those that had to wait come as REBIND.
        machine.wait_event("RE", machine.seen("RE") + 2);
        let said = machine.shell("ip -4 -o addr show dev eth1");
        assert!(said.contains("10.0.1.10/24"), "{said}\n{}", machine.logs());
        assert_eq!(machine.seen("EXPIRE"), 0);
    };
    let config = "/etc/leaseroute/config.toml";
    machine.write(config, "when = \"sometimes\"\n", 0o644);
    machine.shell("ip rule del priority 7630");
    renewed();
    assert_ne!(Own::read(machine.fabric.host(), V4), whole);
    machine.write(config, "", 0o644);
    machine.wait_own(V4, &machine.faces(V4));

    let lock = machine.shell("find /run/leaseroute -name '*lock*' -type f");
    let mut holder = machine.command("flock");
    holder.args([lock.trim(), "sleep", "60"]);
    let mut holder = machine.fabric.host().spawn(holder).unwrap();
    let busy = format!("while flock -n {} true; do sleep 0.1; done", lock.trim());
    machine.shell(&busy);
    machine.shell("ip rule del priority 7630");
    renewed();
    assert_ne!(Own::read(machine.fabric.host(), V4), whole);
    machine.shell("pkill -x sleep || true");
    holder.wait().unwrap();
    machine.wait_own(V4, &machine.faces(V4));
}
