//! Addresses that the kernel makes from router advertisements, which no event announces.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::net::{IpAddr, Ipv6Addr};

use leaseroute_core::Family;
use leaseroute_e2e::kernel::{Face, ip};
use leaseroute_e2e::machine::{Hook, Machine};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::Layout;

const V6: Family = Family::Ipv6;

/// Cards whose addresses come from router advertisements, and the uplinks in IPv6.
fn advertised(lan: &Lan) -> (Machine, Vec<Servers>, Vec<Face>) {
    let mut machine = Machine::new(&Layout::separate(3), Hook::Installed);
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
    }
    let servers = Servers::start_all(&machine, lan);
    for card in machine.fabric.cards() {
        ip(machine.fabric.host(), &format!("link set {} up", card.name));
    }
    for face in &faces {
        wait_for("the kernel has made an address and a default route", || {
            let said = machine.shell(&format!("ip -6 addr show {}; ip -6 route", face.name));
            let default = format!("dev {}", face.name);
            let has_default = said
                .lines()
                .any(|l| l.contains("via fe80::1") && l.contains(&default));
            let has_address = said.contains(&face.sources[0].to_string());
            if has_address && has_default {
                Ok(())
            } else {
                Err(said)
            }
        });
    }
    (machine, servers, faces)
}

/// The next IPv6 event of any card takes them in.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn advertised_addresses_are_picked_up() {
    let lan = Lan {
        v6: Ipv6::Both,
        ..Lan::default()
    };
    let (mut machine, _servers, mut faces) = advertised(&lan);
    machine.start_client(0, V6);
    machine.wait_event("BOUND6 eth0", 1);
    faces[0].sources.push(machine.card(0).ipv6.into());
    machine.wait_own(V6, &faces);
    for address in faces.iter().flat_map(|face| &face.sources) {
        machine.assert_reached(*address);
    }
}

/// `dhclient -6 -S` asks for options alone; its event names no address.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn stateless_client_brings_advertised_addresses_in() {
    let lan = Lan {
        v6: Ipv6::Slaac,
        extra: vec!["dhcp-range=::,constructor:port0,ra-stateless".to_owned()],
        ..Lan::default()
    };
    let (mut machine, _servers, faces) = advertised(&lan);
    machine.start_stateless_client(0);
    machine.wait_event("RENEW6 eth0", 1);
    machine.wait_own(V6, &faces);
    for face in &faces {
        machine.assert_reached(face.sources[0]);
    }
}
