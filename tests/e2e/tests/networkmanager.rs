//! The life of a connection, with the real NetworkManager and its real dispatcher: three
//! cards behind strict fabrics, both families.

use std::net::IpAddr;
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_e2e::kernel::{Face, Own, ip};
use leaseroute_e2e::networkmanager::{Connection, Network, PROGRAM};
use leaseroute_e2e::responder::{Responder, Terms};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::{Layout, ipv4};

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;

/// Three cards bound in both families, and their servers.
fn connected() -> (Network, Vec<Servers>) {
    Network::connected(&Layout::separate(3), &Lan::default(), &Family::BOTH)
}

/// The same, IPv4 alone.
fn connected4(cards: u8, lan: Lan) -> (Network, Vec<Servers>) {
    let lan = Lan {
        v6: Ipv6::Without,
        ..lan
    };
    Network::connected(&Layout::separate(cards), &lan, &[V4])
}

/// Both families are as the cards with these numbers want it.
fn wait_cards(network: &Network, numbers: &[usize]) {
    for family in Family::BOTH {
        let faces = network.faces(family).into_iter();
        let names: Vec<String> = numbers.iter().map(|n| format!("eth{n}")).collect();
        let faces: Vec<Face> = faces.filter(|face| names.contains(&face.name)).collect();
        network.wait_own(family, &faces);
    }
}

fn wait_shell(network: &Network, what: &str, script: &str, is_so: impl Fn(&str) -> bool) {
    wait_for(what, || {
        let said = network.shell(script);
        if is_so(&said) {
            return Ok(());
        }
        Err(format!(
            "{said}\n{:?}\n{}",
            network.events(),
            network.logs()
        ))
    });
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn connected_cards_are_reached_by_everybody() {
    let (network, _servers) = connected();
    network.assert_all_reach(&Family::BOTH);
    for card in network.fabric.cards() {
        let dropped = network.fabric.dropped(card.number).unwrap();
        assert_eq!(dropped, 0, "{}", card.name);
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn connections_go_and_come_back() {
    let (network, _servers) = connected();
    network.nmcli("device reapply eth2");
    network.wait_event("reapply eth2", 1);
    wait_cards(&network, &[0, 1, 2]);
    network.nmcli("connection down eth2");
    wait_cards(&network, &[0, 1]);
    network.nmcli("connection down eth1");
    wait_cards(&network, &[]);
    network.nmcli("connection up eth1");
    network.nmcli("connection up eth2");
    wait_cards(&network, &[0, 1, 2]);
    // A connection that is up is brought up once more: NetworkManager takes all routes of
    // the card away, ours too.
    let before = network.events().len();
    network.nmcli("connection up eth1");
    wait_for("eth1 is up again", || {
        let events = network.events();
        let again = events[before..].iter().any(|event| event == "up eth1");
        again.then_some(()).ok_or_else(|| format!("{events:?}"))
    });
    wait_cards(&network, &[0, 1, 2]);
    network.assert_all_reach(&Family::BOTH);
}

/// NetworkManager's end and its start are no event of a lease: nothing is changed at any
/// moment, though everything is told anew.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn restart_changes_nothing() {
    let (mut network, _servers) = connected();
    let before = Family::BOTH.map(|family| Own::read(network.fabric.host(), family));
    let mut monitor = network.fabric.host().monitor().unwrap();
    let mut own_changes = || {
        let said = monitor.announced(Duration::from_millis(200));
        let ours = said.into_iter().filter(|line| line.contains("Table(760"));
        ours.collect::<Vec<String>>()
    };
    network.stop_manager();
    let events = network.events().len();
    network.start_manager();
    for card in 0..3 {
        wait_for("every card is told anew", || {
            let told = network.events()[events..].to_vec();
            let up = told.contains(&format!("up eth{card}"));
            up.then_some(()).ok_or_else(|| format!("{told:?}"))
        });
    }
    let after = Family::BOTH.map(|family| Own::read(network.fabric.host(), family));
    assert_eq!(before, after);
    assert_eq!(own_changes(), Vec::<String>::new());
    network.assert_all_reach(&Family::BOTH);
    // And it would have said something.
    network.nmcli("connection down eth2");
    wait_cards(&network, &[0, 1]);
    assert!(!own_changes().is_empty());
}

/// Version 1.42 announces no renewal. What comes next about the card brings the router that
/// it got then.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn changed_router_is_followed_with_the_next_event() {
    let lan = Lan {
        t1: Some(2),
        ..Lan::default()
    };
    let (network, mut servers) = connected4(3, lan.clone());
    let router = network.fabric.router(1).unwrap();
    ip(router, "addr add 10.0.1.2/24 dev port1 noprefixroute");
    let other = Lan {
        routers: vec![2, 1],
        v6: Ipv6::Without,
        ..lan
    };
    let changed = servers.remove(1).change(&network, &other);
    servers.push(changed);
    let main = "ip route show default dev eth1 table main";
    wait_shell(&network, "the lease is renewed", main, |said| {
        said.contains("10.0.1.2")
    });
    network.nmcli("device reapply eth1");
    let mut faces = network.faces(V4);
    faces[1] = faces[1].clone().with_gateway(ipv4(1, 2).into());
    network.wait_own(V4, &faces);
    network.assert_all_reach(&[V4]);
}

/// Neither a lease that runs out is announced nor the one that comes after it. The rules go
/// with the next event of any card, and come back so.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn lost_lease_is_cleared_and_comes_back() {
    let mut network = Network::new(&Layout::separate(3));
    let lan = Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    };
    let _servers = [0, 2].map(|subnet| Servers::start(&network, subnet, &lan));
    let card = network.card(1);
    let responder = Responder::start(&network, &card, Terms::of(&card, 5), &[card.ipv4]);
    (0..3).for_each(|card| network.describe(card, &Connection::ipv4()));
    network.start_manager();
    network.wait_own(V4, &network.faces(V4));
    responder.change(|terms| terms.answers = false);
    let addresses = "ip -4 -o address show dev eth1";
    wait_shell(&network, "the address is gone", addresses, str::is_empty);
    network.nmcli("device reapply eth0");
    let mut faces = network.faces(V4);
    faces.remove(1);
    network.wait_own(V4, &faces);
    responder.change(|terms| terms.answers = true);
    wait_shell(&network, "the address is back", addresses, |said| {
        said.contains("10.0.1.10")
    });
    network.nmcli("device reapply eth1");
    network.wait_own(V4, &network.faces(V4));
    network.assert_all_reach(&[V4]);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_was_pulled_out_leaves_nothing() {
    let (mut network, mut servers) = connected();
    network.fabric.unplug(2).unwrap();
    wait_cards(&network, &[0, 1]);
    let number = network.fabric.attach(2).unwrap().number;
    let changed = servers.remove(2).change(&network, &Lan::default());
    servers.push(changed);
    network.describe(number, &Connection::automatic());
    network.nmcli("connection reload");
    wait_cards(&network, &[0, 1, number]);
    network.assert_all_reach(&Family::BOTH);
}

/// Two addresses of IPv4 and one of IPv6 that the kernel calls permanent, each with a
/// router.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn static_connection_with_a_gateway_is_an_uplink() {
    let mut network = Network::new(&Layout::separate(3));
    let second = ipv4(1, 77);
    network
        .fabric
        .allow(1, IpAddr::from(second).into())
        .unwrap();
    let _servers = [0, 2].map(|subnet| Servers::start(&network, subnet, &Lan::default()));
    for card in [0, 2] {
        network.describe(card, &Connection::automatic());
    }
    let card = network.card(1);
    let fixed = Connection {
        ipv4: format!(
            "method=manual\naddress1={}/24,{}\naddress2={second}/24\n\
             route1=198.51.100.0/24,10.0.1.254\nroute1_options=table=1001",
            card.ipv4,
            card.gateway4()
        ),
        ipv6: format!("method=manual\naddress1={}/64,fe80::1", card.ipv6),
    };
    network.describe(1, &fixed);
    network.start_manager();
    let mut faces = network.faces(V4);
    faces[1].sources.push(second.into());
    network.wait_own(V4, &faces);
    network.wait_own(V6, &network.faces(V6));
    network.assert_all_reach(&Family::BOTH);
    network.assert_reached(second.into());
    network.nmcli("connection down eth1");
    wait_cards(&network, &[0, 2]);
}

/// An address by router advertisement alone raises no event. A connection that counts as up
/// only with IPv6 has it by then.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn advertised_address_is_there_when_the_connection_waits_for_it() {
    let mut network = Network::new(&Layout::separate(2));
    let lan = Lan {
        v6: Ipv6::Slaac,
        ..Lan::default()
    };
    let _servers = Servers::start_all(&network, &lan);
    let waits = Connection {
        ipv6: "method=auto\nmay-fail=false".to_owned(),
        ..Connection::automatic()
    };
    let mut faces = network.faces(V6);
    for (number, face) in faces.iter_mut().enumerate() {
        // The hardware address with ff:fe in its middle (RFC 4291, appendix A).
        let address = format!("2001:db8:0:{number}:0:ff:feca:{number}");
        let address: IpAddr = address.parse().unwrap();
        network.fabric.allow(number, address.into()).unwrap();
        *face = face.clone().with_source(address);
        network.describe(number, &waits);
    }
    network.start_manager();
    network.wait_own(V4, &network.faces(V4));
    network.wait_own(V6, &faces);
    faces
        .iter()
        .for_each(|face| network.assert_reached(face.sources[0]));
}

/// Whatever becomes of the program, the connection comes up and later scripts run.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_program_costs_no_lease() {
    let (network, _servers) = connected4(2, Lan::default());
    let good = network.path("/run/program");
    std::fs::copy(network.path(PROGRAM), &good).unwrap();
    let up = |what: &str| {
        network.nmcli("connection up eth1");
        let said = network.shell("ip -4 -o address show dev eth1");
        assert!(said.contains("10.0.1.10"), "{what}: {said}");
    };
    let up_to_the_end = |what: &str| {
        let seen = network.events().len();
        up(what);
        wait_for("later scripts run", || {
            let events = network.events()[seen..].to_vec();
            let up = events.iter().any(|event| event == "up eth1");
            up.then_some(())
                .ok_or_else(|| format!("{what}: {events:?}"))
        });
    };
    for (program, mode) in [
        ("#!/bin/sh\nexit 5\n", 0o755),
        ("#!/bin/sh\nkill -SEGV $$\n", 0o755),
        ("#!/bin/sh\nexit 0\n", 0o644),
        ("\u{1}not a program", 0o755),
    ] {
        network.write(PROGRAM, program, mode);
        up_to_the_end(program);
    }
    std::fs::remove_file(network.path(PROGRAM)).unwrap();
    up_to_the_end("no program");
    std::fs::copy(&good, network.path(PROGRAM)).unwrap();

    let configuration = "/etc/leaseroute/config.toml";
    network.write(configuration, "when = \"never, ever\"\n", 0o644);
    up_to_the_end("broken configuration");
    std::fs::remove_file(network.path(configuration)).unwrap();

    let lock = network.shell("find /run/leaseroute -name '*lock*' -type f");
    let _holder = network.start_known("holder", &format!("flock -F {} sleep 60", lock.trim()));
    up("held lock");
    network.end_known("holder");

    // All that was missed is made good.
    network.nmcli("connection up eth1");
    network.wait_own(V4, &network.faces(V4));
    network.assert_all_reach(&[V4]);
}
