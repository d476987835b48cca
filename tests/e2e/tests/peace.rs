//! Everything that is not ours is reached and kept exactly as before: a container bridge, a
//! VPN with a split default, an administrator's routes and rules.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::net::IpAddr;

use leaseroute_core::Family;
use leaseroute_e2e::host::ANSWER;
use leaseroute_e2e::kernel::{foreign, ip, route_get};
use leaseroute_e2e::machine::{Hook, Machine};
use leaseroute_e2e::servers::{Lan, Servers};
use leaseroute_lab::fabric::Layout;
use leaseroute_lab::probe::connect;
use leaseroute_lab::site::Site;

/// A machine behind a veth of the host, by its addresses.
struct Behind {
    site: Site,
    addresses: [IpAddr; 2],
}

/// Connects a new machine to the host: `link` there, `eth0` here.
fn behind(
    machine: &Machine,
    name: &str,
    link: &str,
    addresses: [&str; 2],
    gateways: [&str; 2],
) -> Behind {
    let site = Site::new(name).unwrap();
    site.sysctl([("ipv6/conf/default/accept_dad", "0")])
        .unwrap();
    let (here, there) = ("eth0".parse().unwrap(), link.parse().unwrap());
    site.connect((&here, None), machine.fabric.host(), (&there, None))
        .unwrap();
    ip(machine.fabric.host(), &format!("link set {link} up"));
    ip(&site, "link set eth0 up");
    for (address, gateway) in addresses.iter().zip(gateways) {
        ip(&site, &format!("addr add {address} dev eth0 nodad"));
        ip(&site, &format!("route add default via {gateway}"));
    }
    let bare = |address: &str| address.split('/').next().unwrap().parse().unwrap();
    Behind {
        site,
        addresses: addresses.map(bare),
    }
}

impl Behind {
    /// It reaches every card of the host, in both families, and the host reaches it.
    fn assert_reaches_all(&self, machine: &Machine) {
        for card in machine.fabric.cards() {
            for family in Family::BOTH {
                let outcome = connect(&self.site, card.address(family), ANSWER);
                let name = self.site.name();
                assert!(
                    outcome.is_answered(),
                    "{name} to {} {family}: {outcome}",
                    card.name
                );
            }
        }
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn containers_vpn_and_administrator_keep_what_they_have() {
    let mut machine = Machine::new(&Layout::separate(3), Hook::Installed);
    let host = machine.fabric.host();

    // A container on a bridge.
    ip(host, "link add br0 type bridge");
    ip(host, "addr add 172.17.0.1/16 dev br0");
    ip(host, "addr add fd00:17::1/64 dev br0 nodad");
    let addresses = ["172.17.0.2/16", "fd00:17::2/64"];
    let container = behind(
        &machine,
        "container",
        "veth0",
        addresses,
        ["172.17.0.1", "fd00:17::1"],
    );
    ip(host, "link set veth0 master br0");
    ip(host, "link set br0 up");

    // A VPN that takes everything by two halves of the default.
    let addresses = ["10.8.0.1/24", "fd00:8::1/64"];
    let vpn = behind(
        &machine,
        "vpn",
        "tun0",
        addresses,
        ["10.8.0.2", "fd00:8::2"],
    );
    ip(host, "addr add 10.8.0.2/24 dev tun0");
    ip(host, "addr add fd00:8::2/64 dev tun0 nodad");
    for half in ["0.0.0.0/1", "128.0.0.0/1"] {
        ip(host, &format!("route add {half} via 10.8.0.1 dev tun0"));
    }
    for half in ["::/1", "8000::/1"] {
        ip(host, &format!("route add {half} via fd00:8::1 dev tun0"));
    }

    // An administrator: routes in main and in a table of his own, rules everywhere, some
    // with our numbers, none with all three of them.
    ip(host, "route add 192.0.2.0/24 via 172.17.0.2 dev br0");
    ip(host, "route add 2001:db8:c000::/48 via fd00:17::2 dev br0");
    ip(host, "route add 198.51.100.0/24 via 172.17.0.2 table 100");
    ip(
        host,
        "route add 198.51.100.0/24 via 172.17.0.2 table 76999 proto static",
    );
    ip(
        host,
        "route add 198.51.101.0/24 via 172.17.0.2 table 100 proto 76",
    );
    for rule in [
        "priority 100 from 10.99.0.0/16 lookup 100",
        "priority 500 fwmark 0x5 lookup 100 protocol 76",
        "priority 7600 from 10.98.0.0/16 lookup 100 protocol static",
        "priority 7610 from 10.97.0.0/16 lookup 76999 protocol static",
        "priority 7650 from 10.96.0.0/16 lookup 100",
        "priority 30000 from 10.95.0.0/16 lookup 100",
    ] {
        ip(host, &format!("rule add {rule}"));
    }
    ip(
        host,
        "-6 rule add priority 7620 from fd00:99::/64 lookup 100",
    );
    let before = foreign(host);
    let unbound = [
        "198.51.100.7",
        "192.0.2.1",
        "2001:db8:4444::7",
        "2001:db8:c000::1",
    ];
    let ways: Vec<String> = unbound.iter().map(|to| route_get(host, to, "")).collect();
    assert!(
        ways[0].contains("dev tun0") && ways[1].contains("dev br0"),
        "{ways:#?}"
    );

    let kept = |machine: &Machine, when: &str| {
        let now = foreign(machine.fabric.host());
        let lost: Vec<_> = before.difference(&now).collect();
        assert!(lost.is_empty(), "{when}, these are gone: {lost:#?}");
        let rules: Vec<_> = now
            .difference(&before)
            .filter(|o| o.contains(" rule "))
            .collect();
        assert!(rules.is_empty(), "{when}, these rules are new: {rules:#?}");
        let now: Vec<String> = unbound
            .iter()
            .map(|to| route_get(machine.fabric.host(), to, ""))
            .collect();
        assert_eq!(now, ways, "{when}");
    };

    let _servers = Servers::start_all(&machine, &Lan::default());
    machine.start_clients(&Family::BOTH);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    kept(&machine, "with three cards bound");
    machine.assert_all_reach(&Family::BOTH);
    container.assert_reaches_all(&machine);
    vpn.assert_reaches_all(&machine);
    for address in container.addresses.iter().chain(&vpn.addresses) {
        let way = route_get(machine.fabric.host(), &address.to_string(), "");
        assert!(!way.contains("dev eth"), "{way}");
    }
    // From a leased address: the VPN's halves do not count, the administrator's routes do.
    let from = format!("from {}", machine.card(1).ipv4);
    let way = route_get(machine.fabric.host(), "198.51.100.7", &from);
    assert!(way.contains("via 10.0.1.1 dev eth1"), "{way}");
    let way = route_get(machine.fabric.host(), "192.0.2.1", &from);
    assert!(way.contains("via 172.17.0.2 dev br0"), "{way}");
    let from = format!("from {}", machine.card(1).ipv6);
    let way = route_get(machine.fabric.host(), "2001:db8:4444::7", &from);
    assert!(way.contains("via fe80::1 dev eth1"), "{way}");
    let way = route_get(machine.fabric.host(), "2001:db8:c000::1", &from);
    assert!(way.contains("via fd00:17::2 dev br0"), "{way}");

    for number in [2, 1] {
        for family in Family::BOTH {
            machine.end_client(number, family, "-r");
        }
    }
    machine.wait_own(Family::Ipv4, &[]);
    kept(&machine, "after two releases");
}
