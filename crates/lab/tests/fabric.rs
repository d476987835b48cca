//! The bench tells right from wrong before anything is judged by it.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, TableId};
use leaseroute_kernel::topology::{NewAddress, NewRoute, NewRule, Target, Verdict};
use leaseroute_lab::fabric::{Card, Fabric, GATEWAY6, Ipv6Style, Layout, ipv4, ipv6};
use leaseroute_lab::privilege::with_namespaces;
use leaseroute_lab::probe::{Matrix, Outcome, Server, Stream, connect};

const DEADLINE: Duration = Duration::from_secs(3);
/// Where something is expected to fail. Right answers take a few milliseconds.
const SHORT: Duration = Duration::from_millis(500);

type Attempt = (String, usize, Family);

fn failures(matrix: &Matrix) -> BTreeSet<Attempt> {
    matrix
        .failures()
        .map(|cell| (cell.from.clone(), cell.card, cell.family))
        .collect()
}

/// Without policy routing a reply leaves as table main says: for the client by card 0,
/// for a neighbour by the first card in its subnet.
fn wrong_way(fabric: &Fabric) -> BTreeSet<Attempt> {
    let mut attempts = BTreeSet::new();
    let first_in = |subnet| {
        fabric
            .cards()
            .find(|card| card.subnet == subnet)
            .unwrap()
            .number
    };
    for family in Family::BOTH {
        for card in fabric.cards() {
            let client = ("client".to_owned(), 0);
            let neighbours = fabric
                .neighbours()
                .map(|(subnet, site)| (site.name().to_owned(), first_in(subnet)));
            for (from, leaves_by) in neighbours.chain([client]) {
                if leaves_by != card.number {
                    attempts.insert((from, card.number, family));
                }
            }
        }
    }
    attempts
}

/// Two rules and three routes for one card and family: the least that works.
fn route_by_hand(fabric: &Fabric, card: &Card, family: Family) {
    let table = TableId::observed(100 + u32::try_from(card.number).unwrap());
    let priority = 100 + u32::try_from(card.number).unwrap();
    let (on_link, gateway, near_gateway): (IpNetwork, IpAddr, IpNetwork) = match family {
        Family::Ipv4 => (
            IpNetwork::new(ipv4(card.subnet, 0).into(), 24).unwrap(),
            card.gateway4().into(),
            IpAddr::from(card.gateway4()).into(),
        ),
        Family::Ipv6 => (
            IpNetwork::new(ipv6(card.subnet, 0).into(), 64).unwrap(),
            GATEWAY6.into(),
            "fe80::/64".parse().unwrap(),
        ),
    };
    let straight = Target::Link(card.link);
    let through = Target::Gateway {
        gateway,
        link: card.link,
        onlink: false,
    };
    let route = |destination, target| NewRoute {
        table,
        ..NewRoute::main(destination, target)
    };
    let rule = NewRule::all(family, priority, Verdict::Lookup(table));
    fabric
        .host()
        .net(|net| {
            net.add_route(&route(on_link, straight))?;
            net.add_route(&route(near_gateway, straight))?;
            net.add_route(&route(family.default_network(), through))?;
            net.add_rule(&NewRule {
                from: Some(card.address(family).into()),
                ..rule.clone()
            })?;
            net.add_rule(&NewRule {
                oif: Some(card.name.clone()),
                ..rule
            })
        })
        .unwrap();
}

fn configured(layout: &Layout, style: Ipv6Style) -> (Fabric, Server) {
    let fabric = Fabric::new(layout).unwrap();
    for card in fabric.cards() {
        fabric.configure_static(card.number, style).unwrap();
    }
    let server = Server::everywhere(fabric.host()).unwrap();
    (fabric, server)
}

fn prove(layout: &Layout, style: Ipv6Style) {
    let (fabric, _server) = configured(layout, style);
    let before = Matrix::probe(&fabric, &Family::BOTH, SHORT * 3);
    assert_eq!(
        failures(&before),
        wrong_way(&fabric),
        "without policy routing\n{before}"
    );
    assert!(
        before
            .failures()
            .all(|cell| cell.outcome == Outcome::Silent),
        "{before}"
    );
    for card in fabric.cards() {
        for family in Family::BOTH {
            route_by_hand(&fabric, card, family);
        }
    }
    let after = Matrix::probe(&fabric, &Family::BOTH, DEADLINE);
    assert!(after.is_complete(), "with rules made by hand\n{after}");
}

#[test]
fn three_cards_in_three_subnets() {
    with_namespaces("three_cards_in_three_subnets", || {
        prove(&Layout::separate(3), Ipv6Style::Dhcp);
    });
}

#[test]
fn two_cards_in_one_subnet_and_one_apart() {
    with_namespaces("two_cards_in_one_subnet_and_one_apart", || {
        prove(&Layout::of(vec![0, 1, 1]), Ipv6Style::Ra);
    });
}

#[test]
fn the_fabric_counts_what_it_drops() {
    with_namespaces("the_fabric_counts_what_it_drops", || {
        let (fabric, _server) = configured(&Layout::separate(2), Ipv6Style::Dhcp);
        let second = fabric.card(1).unwrap();
        for family in Family::BOTH {
            let before = fabric.dropped(0).unwrap();
            assert!(
                connect(
                    fabric.client(),
                    fabric.card(0).unwrap().address(family),
                    DEADLINE
                )
                .is_answered()
            );
            assert_eq!(
                fabric.dropped(0).unwrap(),
                before,
                "a right reply was dropped"
            );
            assert_eq!(
                connect(fabric.client(), second.address(family), SHORT),
                Outcome::Silent
            );
            assert!(
                fabric.dropped(0).unwrap() > before,
                "the wrong {family} reply was not seen"
            );
        }
        assert_eq!(
            fabric.dropped(1).unwrap(),
            0,
            "nothing left by the second card"
        );
    });
}

#[test]
fn a_late_card_comes_and_goes() {
    with_namespaces("a_late_card_comes_and_goes", || {
        let (mut fabric, _server) = configured(&Layout::separate(1), Ipv6Style::Dhcp);
        for subnet in [1, 0] {
            let card = fabric.attach(subnet).unwrap();
            assert!(!connect(fabric.client(), card.ipv4.into(), SHORT).is_answered());
            fabric
                .configure_static(card.number, Ipv6Style::Dhcp)
                .unwrap();
            for family in Family::BOTH {
                assert_eq!(
                    connect(fabric.client(), card.address(family), SHORT),
                    Outcome::Silent
                );
                route_by_hand(&fabric, &card, family);
            }
            let matrix = Matrix::probe(&fabric, &Family::BOTH, DEADLINE);
            let late = |cell: &&leaseroute_lab::probe::Cell| cell.card == card.number;
            assert!(
                matrix
                    .cells
                    .iter()
                    .filter(late)
                    .all(|cell| cell.outcome.is_answered()),
                "{matrix}"
            );
            fabric.unplug(card.number).unwrap();
            assert!(fabric.card(card.number).is_err());
            assert!(!connect(fabric.client(), card.ipv4.into(), SHORT).is_answered());
        }
        let first = fabric.card(0).unwrap().ipv4;
        assert!(connect(fabric.client(), first.into(), DEADLINE).is_answered());
    });
}

#[test]
fn another_address_needs_leave() {
    with_namespaces("another_address_needs_leave", || {
        let (mut fabric, _server) = configured(&Layout::separate(1), Ipv6Style::Dhcp);
        // One in the subnet and one elsewhere of each family, and one of a delegated prefix.
        for (address, routed) in [
            ("10.0.0.77", "10.0.0.77/32"),
            ("198.51.100.7", "198.51.100.7/32"),
            ("198.51.100.40", "198.51.100.32/28"),
            ("2001:db8::77", "2001:db8::77/128"),
            ("2001:db8:77::7", "2001:db8:77::7/128"),
            ("2001:db8:78::7", "2001:db8:78::/56"),
        ] {
            let (address, routed): (IpAddr, IpNetwork) =
                (address.parse().unwrap(), routed.parse().unwrap());
            let link = fabric.card(0).unwrap().link;
            let new = NewAddress::permanent(address.into());
            fabric
                .host()
                .net(|net| net.add_address(link, &new))
                .unwrap();
            let neighbour =
                |fabric: &Fabric| connect(fabric.neighbours().next().unwrap().1, address, SHORT);
            assert!(
                !connect(fabric.client(), address, SHORT).is_answered(),
                "{address} before"
            );
            fabric.allow(0, routed).unwrap();
            let outcome = connect(fabric.client(), address, DEADLINE);
            assert!(outcome.is_answered(), "{address}: {outcome}");
            assert!(
                neighbour(&fabric).is_answered(),
                "{address} from the neighbour"
            );
            fabric.withdraw(0, routed).unwrap();
            assert!(
                !connect(fabric.client(), address, SHORT).is_answered(),
                "{address} after"
            );
        }
    });
}

#[test]
fn a_stream_shows_what_is_lost() {
    with_namespaces("a_stream_shows_what_is_lost", || {
        let (mut fabric, _server) = configured(&Layout::separate(1), Ipv6Style::Dhcp);
        for family in Family::BOTH {
            let address = fabric.card(0).unwrap().address(family);
            let _echo = Server::echo(fabric.host(), address).unwrap();
            let every = Duration::from_millis(10);
            let start = |fabric: &Fabric| Stream::start(fabric.client(), address, every).unwrap();
            let stream = start(&fabric);
            std::thread::sleep(Duration::from_millis(500));
            let shots = stream.stop();
            assert!((45..=52).contains(&shots.len()), "{}", shots.len());
            assert!(
                shots.iter().all(|shot| shot.answered.is_some()),
                "{shots:?}"
            );

            let stream = start(&fabric);
            std::thread::sleep(Duration::from_millis(200));
            fabric.withdraw(0, address.into()).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            fabric.allow(0, address.into()).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            let shots = stream.stop();
            let lost = shots.iter().filter(|shot| shot.answered.is_none()).count();
            assert!(
                (15..=40).contains(&lost),
                "{family}: {lost} of {} lost",
                shots.len()
            );
            assert!(shots.first().unwrap().answered.is_some());
            assert!(shots.last().unwrap().answered.is_some());
        }
    });
}

#[test]
fn fabrics_live_side_by_side() {
    with_namespaces("fabrics_live_side_by_side", || {
        let (one, _server) = configured(&Layout::separate(1), Ipv6Style::Ra);
        let (other, server) = configured(&Layout::separate(1), Ipv6Style::Ra);
        let address = one.card(0).unwrap().ipv4.into();
        drop(server);
        assert!(connect(one.client(), address, DEADLINE).is_answered());
        let refused = Outcome::Failed(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(connect(other.client(), address, DEADLINE), refused);
        let _server = Server::at(other.host(), address).unwrap();
        assert!(connect(other.client(), address, DEADLINE).is_answered());
    });
}

#[test]
fn duplicate_address_detection_is_kept_on_demand() {
    with_namespaces("duplicate_address_detection_is_kept_on_demand", || {
        let accept_dad = |layout: &Layout| {
            let fabric = Fabric::new(layout).unwrap();
            let read = || std::fs::read_to_string("/proc/sys/net/ipv6/conf/eth0/accept_dad");
            fabric.host().run(read).unwrap().trim().to_owned()
        };
        assert_eq!(accept_dad(&Layout::separate(1)), "0");
        assert_eq!(
            accept_dad(&Layout {
                dad: true,
                ..Layout::separate(1)
            }),
            "1"
        );
    });
}
