//! Routes: what is added, refused, replaced, found and left alone.

use std::collections::BTreeSet;

use leaseroute_core::{
    Family, ObservedRoute, Operation, Route, RouteKind, RouterPreference, TableId,
};
use leaseroute_kernel::{Kernel as _, MainRoutes, OperationError};

use super::Scenario;
use super::bench::{
    Bench, PROTOCOL, TABLE, TABLES, all_done, assert_table, foreign_route, net, numbers, refusal,
    route, run, succeeded, table,
};

pub(super) fn scenarios<B: Bench>() -> Vec<Scenario<B>> {
    vec![
        Scenario {
            name: "a route comes and goes",
            why: "existing on add and missing on delete are success",
            play: comes_and_goes,
        },
        Scenario {
            name: "a route is replaced",
            why: "a renewal may change router and MTU without a moment in between",
            play: replaced,
        },
        Scenario {
            name: "a gateway out of reach",
            why: "one bad route is refused and does not stop the others",
            play: out_of_reach,
        },
        Scenario {
            name: "a gateway reached in its own table",
            why: "the gateway's host route goes in first and is enough",
            play: reached_in_own_table,
        },
        Scenario {
            name: "a gateway marked on-link",
            why: "/32 leases have routers that nothing covers",
            play: marked_onlink,
        },
        Scenario {
            name: "tables of every size",
            why: "numbers above 255 do not fit the message header, and tables are apart",
            play: tables_of_every_size,
        },
        Scenario {
            name: "a table that does not exist",
            why: "the kernel says ENOENT, which means empty",
            play: missing_table,
        },
        Scenario {
            name: "somebody else's routes stay",
            why: "what is not ours is never touched, even in our own table",
            play: foreign_stays,
        },
        Scenario {
            name: "somebody else's routes of other kinds",
            why: "a blackhole has no device and must be seen, and go if asked",
            play: other_kinds,
        },
        Scenario {
            name: "two IPv6 routers of one metric",
            why: "both stay, and each can go alone",
            play: siblings,
        },
        Scenario {
            name: "an IPv6 replacement takes all routers of the metric",
            why: "the kernel replaces the whole set of next hops",
            play: replaced_siblings,
        },
        Scenario {
            name: "a default without a gateway beside one with one",
            why: "IPv6 keeps both at one metric, and each gives way to its own sort only",
            play: replaced_beside_other_sort,
        },
        Scenario {
            name: "IPv6 metrics and preferences",
            why: "every default of the interface is copied with its rank",
            play: ranks,
        },
        Scenario {
            name: "the IPv4 defaults of table main",
            why: "they are found among all that starts at 0.0.0.0",
            play: ipv4_defaults,
        },
        Scenario {
            name: "the IPv6 routes of table main by interface",
            why: "a few interfaces are asked for one by one, many at once",
            play: ipv6_by_interface,
        },
    ]
}

fn comes_and_goes<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    for family in Family::BOTH {
        let numbers = numbers(family);
        bench.add_address(&card, numbers.address);
        let [router, _] = numbers.routers;
        let wanted = [
            route(numbers.subnet, None, &card),
            route(numbers.default, Some(router), &card),
        ];
        let add: Vec<_> = wanted.iter().cloned().map(Operation::AddRoute).collect();
        all_done(bench, &add);
        assert_table(bench, TABLE, &wanted);
        all_done(bench, &add);
        assert_table(bench, TABLE, &wanted);
        let delete = |route| Operation::DeleteRoute {
            route,
            device: None,
        };
        let seen = table(bench, family, &[TABLE]);
        let delete: Vec<_> = seen.into_iter().map(delete).collect();
        all_done(bench, &delete);
        assert_table(bench, TABLE, &[]);
        all_done(bench, &delete);
    }
}

fn replaced<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    for family in Family::BOTH {
        let numbers = numbers(family);
        bench.add_address(&card, numbers.address);
        let [old, new] = numbers
            .routers
            .map(|router| route(numbers.default, Some(router), &card));
        all_done(bench, &[Operation::AddRoute(old.clone())]);
        let new = Route {
            mtu: Some(1400),
            ..new
        };
        all_done(bench, &[Operation::ReplaceRoute(new.clone())]);
        assert_table(bench, TABLE, std::slice::from_ref(&new));
        let small = Route {
            mtu: Some(1300),
            ..new.clone()
        };
        // An addition with the same key does not change what is there.
        all_done(bench, &[Operation::AddRoute(small.clone())]);
        assert_table(bench, TABLE, std::slice::from_ref(&new));
        all_done(bench, &[Operation::ReplaceRoute(small.clone())]);
        assert_table(bench, TABLE, std::slice::from_ref(&small));
        let seen = table(bench, family, &[TABLE]);
        let delete = |route| Operation::DeleteRoute {
            route,
            device: None,
        };
        all_done(bench, &seen.into_iter().map(delete).collect::<Vec<_>>());
        // There is nothing to replace: it is added.
        all_done(bench, &[Operation::ReplaceRoute(old.clone())]);
        assert_table(bench, TABLE, std::slice::from_ref(&old));
        let seen = table(bench, family, &[TABLE]);
        all_done(bench, &seen.into_iter().map(delete).collect::<Vec<_>>());
    }
}

fn out_of_reach<B: Bench>(bench: &B) {
    let [card, other] = bench.cards();
    for family in Family::BOTH {
        let numbers = numbers(family);
        bench.add_address(&card, numbers.address);
        let good = route(numbers.subnet, None, &card);
        let (far, _) = numbers.far;
        let bad = route(numbers.default, Some(far), &card);
        let [router, _] = numbers.routers;
        // In reach, but by the other card.
        let wrong = route(numbers.default, Some(router), &other);
        let operations = [bad, wrong, good.clone()].map(Operation::AddRoute);
        let results = run(bench, &operations);
        let [bad, wrong, fine] = results.as_slice() else {
            unreachable!("one result for each operation");
        };
        assert!(matches!(bad, Err(OperationError::Refused(_))), "{bad:?}");
        assert!(
            matches!(wrong, Err(OperationError::Refused(_))),
            "{wrong:?}"
        );
        assert!(fine.is_ok(), "{fine:?}");
        assert_eq!(table(bench, family, &[TABLE]).len(), 1);
    }
}

fn reached_in_own_table<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    for family in Family::BOTH {
        let numbers = numbers(family);
        let (far, host_route) = numbers.far;
        let wanted = [
            route(host_route, None, &card),
            route(numbers.default, Some(far), &card),
        ];
        let [way, default] = wanted.clone();
        let refused = refusal(bench, &Operation::AddRoute(default.clone()));
        assert!(matches!(refused, OperationError::Refused(_)), "{refused:?}");
        all_done(
            bench,
            &[Operation::AddRoute(way), Operation::AddRoute(default)],
        );
        let seen = table(bench, family, &[TABLE]);
        assert_eq!(seen.len(), wanted.len(), "{seen:#?}");
    }
}

fn marked_onlink<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    let mut wanted = Vec::new();
    for family in Family::BOTH {
        let numbers = numbers(family);
        let (far, _) = numbers.far;
        wanted.push(Route {
            onlink: true,
            ..route(numbers.default, Some(far), &card)
        });
    }
    let add: Vec<_> = wanted.iter().cloned().map(Operation::AddRoute).collect();
    all_done(bench, &add);
    assert_table(bench, TABLE, &wanted);
}

fn tables_of_every_size<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    for family in Family::BOTH {
        let numbers = numbers(family);
        let wanted = TABLES.map(|table| Route {
            table,
            ..route(numbers.subnet, None, &card)
        });
        all_done(bench, &wanted.clone().map(Operation::AddRoute));
        for wanted in wanted {
            let seen = table(bench, family, &[wanted.table]);
            assert!(
                matches!(seen.as_slice(), [one] if wanted.is_met_by(one)),
                "{seen:#?}"
            );
        }
        assert_eq!(table(bench, family, &TABLES).len(), TABLES.len());
    }
}

fn missing_table<B: Bench>(bench: &B) {
    for family in Family::BOTH {
        for number in [77, 299, 4_000_000_000] {
            let seen = table(bench, family, &[TableId::observed(number)]);
            assert_eq!(seen, []);
        }
    }
}

fn foreign_stays<B: Bench>(bench: &B) {
    let [card, other] = bench.cards();
    for family in Family::BOTH {
        let numbers = numbers(family);
        bench.add_address(&card, numbers.address);
        let [router, second] = numbers.routers;
        let theirs = foreign_route(TABLE, numbers.default, Some(second), &card, 2000);
        let subnet = foreign_route(TABLE, numbers.subnet, None, &other, 2000);
        bench.add_route(&theirs);
        bench.add_route(&subnet);
        let ours = route(numbers.default, Some(router), &card);
        all_done(bench, &[Operation::AddRoute(ours.clone())]);
        let seen = table(bench, family, &[TABLE]);
        assert_eq!(seen.len(), 3, "{seen:#?}");
        let (mine, rest): (Vec<_>, Vec<_>) = seen
            .into_iter()
            .partition(|route| route.protocol == PROTOCOL);
        let mine: Vec<_> = mine
            .into_iter()
            .map(|route| Operation::DeleteRoute {
                route,
                device: None,
            })
            .collect();
        // The second time nothing of ours is there, and theirs must not be taken for it.
        all_done(bench, &mine);
        all_done(bench, &mine);
        assert_eq!(table(bench, family, &[TABLE]), rest);
        assert!(
            rest.contains(&theirs) && rest.contains(&subnet),
            "{rest:#?}"
        );
    }
}

fn other_kinds<B: Bench>(bench: &B) {
    // RTN_BLACKHOLE of linux/rtnetlink.h.
    let kind = RouteKind::Other(6);
    let [card, _] = bench.cards();
    let hole = ObservedRoute {
        kind,
        oif: None,
        ..foreign_route(TABLE, "203.0.113.0/24", None, &card, 0)
    };
    bench.add_route(&hole);
    assert_eq!(
        table(bench, Family::Ipv4, &[TABLE]),
        std::slice::from_ref(&hole)
    );
    let delete = Operation::DeleteRoute {
        route: hole,
        device: None,
    };
    all_done(bench, &[delete]);
    assert_table(bench, TABLE, &[]);
}

fn siblings<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    let one = route("::/0", Some("fe80::1"), &card);
    let two = route("::/0", Some("fe80::2"), &card);
    let both = [one.clone(), two.clone()];
    all_done(bench, &both.clone().map(Operation::AddRoute));
    assert_table(bench, TABLE, &both);
    all_done(bench, &both.clone().map(Operation::AddRoute));
    assert_table(bench, TABLE, &both);
    let mut seen = table(bench, Family::Ipv6, &[TABLE]);
    seen.retain(|seen| one.is_met_by(seen));
    let delete = |route| Operation::DeleteRoute {
        route,
        device: None,
    };
    all_done(bench, &seen.into_iter().map(delete).collect::<Vec<_>>());
    assert_table(bench, TABLE, &[two]);
}

fn replaced_siblings<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    let [one, two, three] =
        ["fe80::1", "fe80::2", "fe80::3"].map(|router| route("::/0", Some(router), &card));
    let other_metric = Route {
        metric: 512,
        ..one.clone()
    };
    let add = [one, two, other_metric.clone()].map(Operation::AddRoute);
    all_done(bench, &add);
    all_done(bench, &[Operation::ReplaceRoute(three.clone())]);
    assert_table(bench, TABLE, &[three, other_metric]);
}

fn replaced_beside_other_sort<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    let on_link = route("::/0", None, &card);
    let routed = route("::/0", Some("fe80::1"), &card);
    all_done(
        bench,
        &[on_link.clone(), routed.clone()].map(Operation::AddRoute),
    );
    let on_link = Route {
        mtu: Some(1280),
        ..on_link
    };
    all_done(bench, &[Operation::ReplaceRoute(on_link.clone())]);
    assert_table(bench, TABLE, &[on_link.clone(), routed]);
    let routed = route("::/0", Some("fe80::2"), &card);
    all_done(bench, &[Operation::ReplaceRoute(routed.clone())]);
    assert_table(bench, TABLE, &[on_link, routed]);
}

fn ranks<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    let ranks = [
        (100, "fe80::1", RouterPreference::High, None),
        (200, "fe80::1", RouterPreference::Medium, Some(1280)),
        (300, "fe80::2", RouterPreference::Low, None),
    ];
    let wanted = ranks.map(|(metric, router, preference, mtu)| Route {
        metric,
        preference,
        mtu,
        ..route("::/0", Some(router), &card)
    });
    all_done(bench, &wanted.clone().map(Operation::AddRoute));
    assert_table(bench, TABLE, &wanted);
}

fn ipv4_defaults<B: Bench>(bench: &B) {
    let [card, other] = bench.cards();
    let kernel = bench.kernel();
    assert_eq!(succeeded(kernel.main_routes(&MainRoutes::Ipv4Defaults)), []);
    bench.add_address(&card, net("192.0.2.10/24"));
    bench.add_address(&other, net("198.51.100.10/24"));
    let main = TableId::MAIN;
    let defaults = [
        foreign_route(main, "0.0.0.0/0", Some("192.0.2.1"), &card, 100),
        foreign_route(main, "0.0.0.0/0", Some("198.51.100.1"), &other, 200),
        foreign_route(main, "0.0.0.0/0", Some("192.0.2.2"), &card, 300),
    ];
    // A split default, and what else shares the address.
    let halves = [
        "0.0.0.0/1",
        "128.0.0.0/1",
        "0.0.0.0/8",
        "0.0.0.0/32",
        "10.0.0.0/8",
    ]
    .map(|half| foreign_route(main, half, Some("192.0.2.1"), &card, 0));
    for route in halves.iter().chain(&defaults) {
        bench.add_route(route);
    }
    let mut seen = succeeded(kernel.main_routes(&MainRoutes::Ipv4Defaults));
    seen.sort_by_key(|route| route.metric);
    assert_eq!(seen, defaults);
}

fn ipv6_by_interface<B: Bench>(bench: &B) {
    let [card, other] = bench.cards();
    let main = TableId::MAIN;
    let routes = [
        foreign_route(main, "::/0", Some("fe80::1"), &card, 1024),
        foreign_route(main, "::/0", Some("fe80::2"), &card, 1024),
        foreign_route(main, "::/0", Some("fe80::2"), &other, 2048),
        foreign_route(main, "2001:db8:78::/48", None, &other, 1024),
    ];
    for route in &routes {
        bench.add_route(route);
    }
    // What else a routing daemon has there says nothing of the interface.
    let more = [
        foreign_route(main, "2001:db8:77::/48", Some("fe80::2"), &other, 1024),
        foreign_route(main, "2001:db8:79::1/128", None, &other, 1024),
    ];
    for route in &more {
        bench.add_route(route);
    }
    let absent = (5000..5010).filter_map(leaseroute_core::IfIndex::new);
    let (one, two) = (card.index, other.index);
    let questions: [BTreeSet<_>; 6] = [
        [].into(),
        [one].into(),
        [two].into(),
        [one, two].into(),
        absent.clone().take(1).chain([two]).collect(),
        absent.chain([one, two]).collect(),
    ];
    for interfaces in questions {
        let which = MainRoutes::Ipv6Of(interfaces.clone());
        let mut seen = succeeded(bench.kernel().main_routes(&which));
        // The kernel's own come and go with duplicate address detection.
        seen.retain(|route| route.protocol != leaseroute_core::ProtocolId::KERNEL);
        seen.sort();
        let of_them =
            |route: &&ObservedRoute| route.oif.is_some_and(|oif| interfaces.contains(&oif));
        let mut wanted: Vec<_> = routes.iter().filter(of_them).cloned().collect();
        wanted.sort();
        assert_eq!(seen, wanted);
    }
    // Nobody would find them afterwards.
    let delete = more.map(|route| Operation::DeleteRoute {
        route,
        device: None,
    });
    all_done(bench, &delete);
}
