//! The scenarios on the in-memory kernel and on the real one, alone and after each other.
//!
//! Every scenario is played right after every other one, itself included, in an order
//! drawn from a seed. The seed is printed; `LEASEROUTE_SEED` sets it. The real kernel is
//! one in a new network namespace.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests may stop"
)]

use std::ffi::OsStr;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;

use leaseroute_core::{
    Device, Family, IfIndex, InterfaceName, Operation, Priority, ProtocolId, Route,
    RouterPreference, Rule, Selector, TableId,
};
use leaseroute_kernel::{Kernel as _, MainRoutes, Netlink, OperationError, ReplyPath};
use leaseroute_lab::namespace::Namespace;
use leaseroute_lab::privilege::with_namespaces;
use leaseroute_lab::scenarios::{Bench, FakeBench, RealBench, Scenario, all, tidy};

fn play<B: Bench>(bench: &B, scenario: &Scenario<B>, context: &str) {
    let played = catch_unwind(AssertUnwindSafe(|| {
        (scenario.play)(bench);
        tidy(bench);
    }));
    if let Err(panic) = played {
        eprintln!("failed: {} ({}){context}", scenario.name, scenario.why);
        resume_unwind(panic);
    }
}

fn play_after_each_other<B: Bench>(bench: &B) {
    let seed = match std::env::var("LEASEROUTE_SEED") {
        Ok(seed) => seed.parse().expect("LEASEROUTE_SEED is a number"),
        Err(_) => RandomState::new().hash_one(0) >> 32,
    };
    eprintln!("LEASEROUTE_SEED={seed}");
    let scenarios = all::<B>();
    let mut before = "nothing";
    for number in every_pair_once(scenarios.len(), seed) {
        let context = format!(", after \"{before}\", LEASEROUTE_SEED={seed}");
        play(bench, &scenarios[number], &context);
        before = scenarios[number].name;
    }
}

/// A walk in which every number follows every number exactly once (Hierholzer's Euler
/// circuit of the complete graph).
fn every_pair_once(count: usize, seed: u64) -> Vec<usize> {
    let mut successors: Vec<Vec<usize>> = (0..count)
        .map(|number| {
            let mut all: Vec<usize> = (0..count).collect();
            shuffle(&mut all, seed ^ number as u64);
            all
        })
        .collect();
    let mut path = vec![0];
    let mut walk = Vec::new();
    while let Some(&at) = path.last() {
        match successors[at].pop() {
            Some(next) => path.push(next),
            None => walk.extend(path.pop()),
        }
    }
    walk.reverse();
    walk
}

#[test]
fn a_walk_meets_every_pair() {
    let walk = every_pair_once(9, 5);
    let pairs: std::collections::BTreeSet<_> = walk.windows(2).map(<[_]>::to_vec).collect();
    assert_eq!((walk.len(), pairs.len()), (82, 81));
}

/// Fisher and Yates, with splitmix64.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for end in (1..items.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let choice = usize::try_from(mixed % (end as u64 + 1)).unwrap();
        items.swap(end, choice);
    }
}

fn in_namespace(name: &'static str, test: impl FnOnce() + Send + 'static) {
    with_namespaces(name, move || {
        Namespace::new(name).expect("a network namespace").run(test);
    });
}

#[test]
fn fake_plays_each_scenario() {
    for scenario in all() {
        play(&FakeBench::new(), &scenario, "");
    }
}

#[test]
fn fake_plays_each_after_every_other() {
    play_after_each_other(&FakeBench::new());
}

#[test]
fn real_plays_each_scenario() {
    in_namespace("real_plays_each_scenario", || {
        let bench = RealBench::new();
        for scenario in all() {
            let played = catch_unwind(AssertUnwindSafe(|| {
                (scenario.play)(&bench);
                agrees_with_ip(&bench);
                tidy(&bench);
                agrees_with_ip(&bench);
            }));
            if let Err(panic) = played {
                eprintln!("failed: {} ({})", scenario.name, scenario.why);
                resume_unwind(panic);
            }
        }
    });
}

#[test]
fn real_plays_each_after_every_other() {
    in_namespace("real_plays_each_after_every_other", || {
        play_after_each_other(&RealBench::new());
    });
}

/// What a scenario left is seen alike by two programs that share no code.
fn agrees_with_ip(bench: &RealBench) {
    for family in Family::BOTH {
        let rules = bench.kernel().rules(family).unwrap();
        let foreign = rules
            .iter()
            .filter(|rule| rule.protocol != ProtocolId::KERNEL);
        assert_eq!(foreign.count(), bench.rules_seen_by_ip(family));
        for table in [210, 300, 76010, 76011].map(TableId::observed) {
            let routes = bench
                .kernel()
                .table_routes(family, &[table].into())
                .unwrap();
            assert_eq!(routes.len(), bench.routes_seen_by_ip(family, table));
        }
    }
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}

fn name(text: &str) -> InterfaceName {
    text.parse().unwrap()
}

/// A link whose name is not text is left out, and the others are not.
#[test]
fn real_link_names_that_are_not_text() {
    in_namespace("real_link_names_that_are_not_text", || {
        let strange = OsStr::from_bytes(b"br\xff\xfe");
        let mut command = Command::new("ip");
        command
            .args(["link", "add", "name"])
            .arg(strange)
            .args(["type", "bridge"]);
        assert!(command.status().unwrap().success());
        ip("link add name w;id type bridge");
        ip("link property add dev w;id altname a-name-of-more-than-fifteen-bytes");
        let links = Netlink::open().unwrap().links().unwrap();
        let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["lo", "w;id"]);
        assert_eq!(
            links[1].alternative_names,
            ["a-name-of-more-than-fifteen-bytes"]
        );
        assert_eq!(links[1].kind.as_deref(), Some("bridge"));
    });
}

/// What leaseroute never makes is seen for what it is.
#[test]
fn real_attributes_that_ours_never_have() {
    in_namespace("real_attributes_that_ours_never_have", || {
        let bench = RealBench::new();
        let [card, other] = bench.cards();
        bench.add_address(&card, "192.0.2.10/24".parse().unwrap());
        bench.add_address(&other, "198.51.100.10/24".parse().unwrap());
        ip("route add 203.0.113.1 via 192.0.2.1 dev card0 table 210 src 192.0.2.10");
        ip("route add 203.0.113.2 via 192.0.2.1 dev card0 table 210 tos 0x10");
        ip("route add 203.0.113.3 via 192.0.2.1 dev card0 table 210 advmss 1000");
        ip("route add 203.0.113.4 via inet6 fe80::1 dev card0 table 210");
        ip("route add 203.0.113.5 via 192.0.2.1 dev card0 table 210 realm 3");
        ip("nexthop add id 5 via 192.0.2.1 dev card0");
        ip("route add 203.0.113.6 nhid 5 table 210");
        ip(
            "route add 203.0.113.7 table 210 nexthop via 192.0.2.1 dev card0 nexthop via 198.51.100.1 dev card1 onlink",
        );
        ip("route add unreachable 203.0.113.8 table 210");
        ip("route add 203.0.113.9 via 192.0.2.1 dev card0 table 210 mtu 1400");
        ip("-6 route add 2001:db8:5::/48 from 2001:db8:6::/48 via fe80::1 dev card0 table 210");
        ip("-6 route add 2001:db8:7::/48 via fe80::1 dev card0 table 210 hoplimit 9");
        let mut seen = Vec::new();
        for family in Family::BOTH {
            let tables = [TableId::observed(210)].into();
            let routes = bench.kernel().table_routes(family, &tables).unwrap();
            seen.extend(routes.iter().map(|route| {
                let device = route
                    .oif
                    .map(|oif| if oif == card.index { "card0" } else { "card1" });
                format!("{} {}", route.describe(device), route.other_attributes)
            }));
        }
        assert_eq!(
            seen,
            [
                "203.0.113.1 via 192.0.2.1 dev card0 true",
                "203.0.113.2 via 192.0.2.1 dev card0 true",
                "203.0.113.3 via 192.0.2.1 dev card0 true",
                "203.0.113.4 via fe80::1 dev card0 false",
                "203.0.113.5 via 192.0.2.1 dev card0 true",
                "203.0.113.6 via 192.0.2.1 dev card0 true",
                "203.0.113.7 via 192.0.2.1 dev card0 false",
                "203.0.113.7 via 198.51.100.1 dev card1 onlink false",
                "type 7 203.0.113.8 false",
                "203.0.113.9 via 192.0.2.1 dev card0 mtu 1400 false",
                "2001:db8:5::/48 via fe80::1 dev card0 metric 1024 true",
                "2001:db8:7::/48 via fe80::1 dev card0 metric 1024 true",
            ]
        );
    });
}

/// A rule with everything that a rule can have is told from ours, and goes whole.
#[test]
fn real_rules_with_everything() {
    in_namespace("real_rules_with_everything", || {
        let kernel = Netlink::open().unwrap();
        let wild = [
            "rule add pref 7610 from 192.0.2.10 tos 0x10 lookup 76010 protocol 76",
            "rule add pref 7611 from 192.0.2.10 ipproto tcp dport 22 lookup 76010 protocol 76",
            "rule add pref 7612 from 192.0.2.10 uidrange 0-0 lookup 76010 protocol 76",
            "rule add pref 7613 from 192.0.2.10 suppress_ifgroup 5 lookup 76010 protocol 76",
            "rule add pref 7614 not from 192.0.2.10 lookup 76010 protocol 76",
            "rule add pref 7615 from 192.0.2.10 iif lo lookup 76010 protocol 76",
            "rule add pref 7616 from 192.0.2.10 to 203.0.113.0/24 lookup 76010 protocol 76",
            "rule add pref 7617 from 192.0.2.10 fwmark 0/0xff lookup 76010 protocol 76",
            "rule add pref 7618 from 192.0.2.10 prohibit protocol 76",
            "rule add pref 7619 from 192.0.2.10 goto 32766 protocol 76",
            "rule add pref 7620 from 192.0.2.10 tun_id 9 lookup 76010 protocol 76",
            "rule add pref 7621 l3mdev protocol 76",
        ];
        for words in wild {
            ip(words);
        }
        let not_text = OsStr::from_bytes(b"oif\xff");
        let mut command = Command::new("ip");
        command.args(["rule", "add", "pref", "7622", "oif"]);
        command
            .arg(not_text)
            .args(["lookup", "76010", "protocol", "76"]);
        assert!(command.status().unwrap().success());
        let ours = Rule {
            family: Family::Ipv4,
            priority: Priority::observed(7610),
            selector: Selector::From("192.0.2.10/32".parse().unwrap()),
            table: TableId::observed(76010),
            suppress_prefix_length: None,
        };
        let mut rules = kernel.rules(Family::Ipv4).unwrap();
        rules.retain(|rule| rule.protocol == ProtocolId::observed(76));
        assert_eq!(rules.len(), wild.len() + 1);
        for rule in &rules {
            let ours = Rule {
                priority: rule.priority,
                ..ours.clone()
            };
            assert!(!ours.is_met_by(rule), "{rule:?}");
        }
        let delete: Vec<_> = rules.into_iter().map(Operation::DeleteRule).collect();
        let delete: Vec<_> = delete.iter().collect();
        let results = kernel.execute(&delete, ProtocolId::observed(76));
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        let left = kernel.rules(Family::Ipv4).unwrap();
        assert_eq!(left.len(), 3, "{left:?}");
    });
}

/// The kernel's own answer to "which way would the reply go".
#[test]
fn real_reply_paths() {
    in_namespace("real_reply_paths", || {
        let bench = RealBench::new();
        let [card, other] = bench.cards();
        for (card, addresses) in [
            (&card, ["192.0.2.10/24", "2001:db8:1::10/64"]),
            (&other, ["198.51.100.10/24", "2001:db8:2::10/64"]),
        ] {
            for address in addresses {
                bench.add_address(card, address.parse().unwrap());
            }
        }
        ip("route add default via 192.0.2.1 dev card0");
        ip("route add default via 198.51.100.1 dev card1 table 76011");
        ip("rule add pref 7630 from 198.51.100.10 lookup 76011");
        ip("-6 route add default via fe80::2 dev card1 table 76011");
        ip("-6 rule add pref 7630 from 2001:db8:2::10 lookup 76011");
        ip("route add blackhole 203.0.113.66");
        ip("route add unreachable 203.0.113.67");
        let way = |source: &str, destination: &str, oif: Option<IfIndex>| {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            bench.kernel().route_get(source, destination, oif).unwrap()
        };
        let path = |device: &Device, gateway: &str, table: u32| {
            Some(ReplyPath {
                device: Some(device.index),
                gateway: Some(gateway.parse().unwrap()),
                table: TableId::observed(table),
                local: false,
            })
        };
        assert_eq!(
            way("192.0.2.10", "203.0.113.10", None),
            path(&card, "192.0.2.1", 254)
        );
        assert_eq!(
            way("198.51.100.10", "203.0.113.10", None),
            path(&other, "198.51.100.1", 76011)
        );
        assert_eq!(
            way("2001:db8:2::10", "2001:db8:ffff::1", None),
            path(&other, "fe80::2", 76011)
        );
        let bound = way("192.0.2.10", "203.0.113.10", Some(card.index));
        assert_eq!(bound, path(&card, "192.0.2.1", 254));
        assert_eq!(way("2001:db8:1::10", "2001:db8:ffff::1", None), None);
        assert_eq!(way("192.0.2.10", "203.0.113.66", None), None);
        assert_eq!(way("192.0.2.10", "203.0.113.67", None), None);
        assert!(way("192.0.2.10", "198.51.100.10", None).unwrap().local);
        assert_eq!(way("192.0.2.10", "192.0.2.7", None).unwrap().gateway, None);
    });
}

/// More changes than one datagram or the receive buffer takes, one result for each.
#[test]
fn real_many_operations_at_once() {
    in_namespace("real_many_operations_at_once", || {
        let bench = RealBench::new();
        let [card, _] = bench.cards();
        bench.add_address(&card, "192.0.2.10/24".parse().unwrap());
        let route = |number: u32, gateway: &str| {
            let [_, b, c, d] = number.to_be_bytes();
            let destination = std::net::Ipv4Addr::new(10, b, c, d);
            Operation::AddRoute(Route {
                table: TableId::observed(76010),
                destination: std::net::IpAddr::V4(destination).into(),
                metric: 0,
                gateway: Some(gateway.parse().unwrap()),
                device: card.clone(),
                onlink: false,
                mtu: None,
                preference: RouterPreference::Medium,
            })
        };
        let operations: Vec<_> = (0..2000)
            .map(|number| {
                route(
                    number,
                    if number % 7 == 0 {
                        "203.0.113.1"
                    } else {
                        "192.0.2.1"
                    },
                )
            })
            .collect();
        let operations: Vec<_> = operations.iter().collect();
        let results = bench
            .kernel()
            .execute(&operations, ProtocolId::observed(76));
        for (number, result) in results.iter().enumerate() {
            let refused = matches!(result, Err(OperationError::Refused(_)));
            assert_eq!(refused, number % 7 == 0, "{number}: {result:?}");
        }
        let tables = [TableId::observed(76010)].into();
        let routes = bench.kernel().table_routes(Family::Ipv4, &tables).unwrap();
        assert_eq!(
            routes.len(),
            results.iter().filter(|result| result.is_ok()).count()
        );
    });
}

/// Without the capability everything can be read and nothing changed.
#[test]
fn real_without_the_capability() {
    in_namespace("real_without_the_capability", || {
        use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
        let bench = RealBench::new();
        let [card, _] = bench.cards();
        let none = CapabilitySet::empty();
        let nothing = CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        set_capabilities(None, nothing).unwrap();
        let kernel = Netlink::open().unwrap();
        let rule = Operation::AddRule(Rule {
            family: Family::Ipv4,
            priority: Priority::observed(7630),
            selector: Selector::Oif(card.name),
            table: TableId::observed(76010),
            suppress_prefix_length: None,
        });
        let results = kernel.execute(&[&rule, &rule], ProtocolId::observed(76));
        let denied = |result: &Result<_, _>| matches!(result, Err(OperationError::NotPermitted));
        assert!(
            results.len() == 2 && results.iter().all(denied),
            "{results:?}"
        );
        assert_eq!(kernel.rules(Family::Ipv4).unwrap().len(), 3);
        assert_eq!(kernel.links().unwrap().len(), 5);
        assert_eq!(kernel.main_routes(&MainRoutes::Ipv4Defaults).unwrap(), []);
    });
}

/// Reads return what was there at one moment, however much others change meanwhile.
#[test]
fn real_reads_while_others_change() {
    in_namespace("real_reads_while_others_change", || {
        let bench = RealBench::new();
        let [card, _] = bench.cards();
        bench.add_address(&card, "192.0.2.10/24".parse().unwrap());
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let others = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let kernel = Netlink::open().unwrap();
                let rule = |priority| {
                    Operation::AddRule(Rule {
                        family: Family::Ipv4,
                        priority: Priority::observed(priority),
                        selector: Selector::Oif(name("other0")),
                        table: TableId::observed(300),
                        suppress_prefix_length: None,
                    })
                };
                // Far more rules than one datagram of a dump holds.
                let add: Vec<_> = (1000..1400).map(rule).collect();
                let add: Vec<_> = add.iter().collect();
                kernel.execute(&add, ProtocolId::observed(4));
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let one = rule(500);
                    kernel.execute(&[&one], ProtocolId::observed(4));
                    let rules = kernel.rules(Family::Ipv4).unwrap_or_default();
                    let gone = rules.into_iter().find(|rule| rule.priority.get() == 500);
                    let gone: Vec<_> = gone.into_iter().map(Operation::DeleteRule).collect();
                    kernel.execute(&gone.iter().collect::<Vec<_>>(), ProtocolId::observed(4));
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
            }
        });
        let kernel = Netlink::open().unwrap();
        while kernel.rules(Family::Ipv4).unwrap().len() < 403 {
            std::thread::yield_now();
        }
        for _ in 0..150 {
            let rules = kernel.rules(Family::Ipv4).unwrap();
            let mut priorities: Vec<_> = rules.iter().map(|rule| rule.priority).collect();
            let length = priorities.len();
            assert!((403..=404).contains(&length), "{length}");
            priorities.dedup();
            assert_eq!(priorities.len(), length, "a rule twice");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        others.join().unwrap();
    });
}
