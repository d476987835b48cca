//! Links and addresses: what they show, and what goes with them.

use std::collections::BTreeSet;

use leaseroute_core::{
    Address, Device, Family, Operation, ProtocolId, Route, Selector, is_link_local,
};
use leaseroute_kernel::{Kernel as _, OperationError};

use super::Scenario;
use super::bench::{
    Bench, PROTOCOL, TABLE, all_done, assert_table, name, numbers, refusal, route, rule, rules,
    shown, succeeded, table,
};

pub(super) fn scenarios<B: Bench>() -> Vec<Scenario<B>> {
    vec![
        Scenario {
            name: "links and addresses are shown",
            why: "all that follows rests on them",
            play: shows,
        },
        Scenario {
            name: "addresses of ours come and go",
            why: "they are told from all others by their tag, and twice is once",
            play: own_addresses,
        },
        Scenario {
            name: "a link goes down and up",
            why: "its routes go and do not come back, its rules stay",
            play: down_and_up,
        },
        Scenario {
            name: "a link is unplugged",
            why: "its routes go, its rules are what leaks, and deleting the lost is success",
            play: unplugged,
        },
        Scenario {
            name: "the last IPv4 address goes",
            why: "it takes the IPv4 routes of every table along, and nothing of IPv6",
            play: last_address,
        },
        Scenario {
            name: "one of two addresses goes",
            why: "the routes stay",
            play: one_of_two,
        },
        Scenario {
            name: "a plan is cut off anywhere",
            why: "running it again finishes it",
            play: cut_off,
        },
    ]
}

/// What a card needs: subnet, default and two rules, of both families.
fn whole_plan(card: &Device) -> (Vec<Route>, Vec<Operation>) {
    let mut routes = Vec::new();
    let mut operations = Vec::new();
    for family in Family::BOTH {
        let numbers = numbers(family);
        let [router, _] = numbers.routers;
        routes.push(route(numbers.subnet, None, card));
        routes.push(route(numbers.default, Some(router), card));
        let source = Selector::From(numbers.address.ip().into());
        operations.push(Operation::AddRule(rule(family, 7630, source)));
        let bound = Selector::Oif(card.name.clone());
        operations.push(Operation::AddRule(rule(family, 7630, bound)));
    }
    let add = routes.iter().cloned().map(Operation::AddRoute);
    let operations = add.chain(operations).collect();
    (routes, operations)
}

fn add_addresses<B: Bench>(bench: &B, card: &Device) {
    for family in Family::BOTH {
        bench.add_address(card, numbers(family).address);
    }
}

fn shows<B: Bench>(bench: &B) {
    let [card, other] = bench.cards();
    bench.set_up(&other, false);
    let links = succeeded(bench.kernel().links());
    let link = |index| links.iter().find(|link| link.index == index);
    let up = link(card.index).map(|link| (link.device(), link.up, link.mac.is_some(), link.mtu));
    assert_eq!(up, Some((card.clone(), true, true, 1500)));
    assert_eq!(link(other.index).map(|link| link.up), Some(false));
    let kind = link(card.index).and_then(|link| link.kind.as_deref());
    assert_eq!(kind, Some("veth"));
    let loopback = links.iter().find(|link| link.loopback);
    assert_eq!(
        loopback.map(|link| (link.name.as_str(), link.mac)),
        Some(("lo", None))
    );
    add_addresses(bench, &card);
    for family in Family::BOTH {
        let seen = succeeded(bench.kernel().addresses(family));
        let address = numbers(family).address;
        let seen = seen.iter().find(|seen| seen.address == address);
        let seen = seen.map(|seen| {
            (
                seen.index,
                seen.peer,
                seen.flags.permanent,
                seen.flags.temporary,
            )
        });
        assert_eq!(seen, Some((card.index, None, true, false)));
    }
}

fn own_addresses<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    for (family, ours) in [
        (Family::Ipv4, "203.0.113.77/32"),
        (Family::Ipv4, "203.0.113.130/28"),
        (Family::Ipv6, "2001:db8:77::7/128"),
    ] {
        let foreign = numbers(family).address;
        bench.add_address(&card, foreign);
        let own = |address| Address {
            device: card.clone(),
            address,
        };
        let add = [ours.parse().unwrap_or(foreign), foreign]
            .map(|address| Operation::AddAddress(own(address)));
        let shown = || {
            let seen = succeeded(bench.kernel().addresses(family));
            let seen = seen
                .into_iter()
                .filter(|seen| seen.index == card.index && !is_link_local(seen.address.ip()));
            let seen = seen.map(|seen| {
                let tag = seen.protocol.map(ProtocolId::get);
                (seen.address.to_string(), tag == Some(PROTOCOL.get()))
            });
            seen.collect::<BTreeSet<_>>()
        };
        let foreign_alone = BTreeSet::from([(foreign.to_string(), false)]);
        let both: BTreeSet<_> = [(ours.to_owned(), true)]
            .into_iter()
            .chain(foreign_alone.clone())
            .collect();
        for _ in 0..2 {
            all_done(bench, &add);
            assert_eq!(shown(), both);
        }
        let delete = Operation::DeleteAddress(own(ours.parse().unwrap_or(foreign)));
        for _ in 0..2 {
            all_done(bench, std::slice::from_ref(&delete));
            assert_eq!(shown(), foreign_alone);
        }
        bench.delete_address(card.index, foreign);
    }
}

fn down_and_up<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    add_addresses(bench, &card);
    let (routes, operations) = whole_plan(&card);
    all_done(bench, &operations);
    assert_table(bench, TABLE, &routes);
    bench.set_up(&card, false);
    assert_table(bench, TABLE, &[]);
    for family in Family::BOTH {
        assert_eq!(rules(bench, family).len(), 2);
        let refused = refusal(
            bench,
            &Operation::AddRoute(route(numbers(family).subnet, None, &card)),
        );
        assert!(
            matches!(refused, OperationError::LinkDown(_)),
            "{refused:?}"
        );
    }
    bench.set_up(&card, true);
    assert_table(bench, TABLE, &[]);
    // IPv6 addresses do not survive, IPv4 ones do.
    bench.add_address(&card, numbers(Family::Ipv6).address);
    all_done(bench, &operations);
    assert_table(bench, TABLE, &routes);
}

fn unplugged<B: Bench>(bench: &B) {
    let card = bench.add_link(name("late0"));
    add_addresses(bench, &card);
    let (routes, operations) = whole_plan(&card);
    all_done(bench, &operations);
    assert_table(bench, TABLE, &routes);
    let mut stale = Vec::new();
    for family in Family::BOTH {
        stale.extend(table(bench, family, &[TABLE]));
    }
    bench.delete_link(&card);
    assert_table(bench, TABLE, &[]);
    let delete = |route| Operation::DeleteRoute {
        route,
        device: None,
    };
    all_done(bench, &stale.into_iter().map(delete).collect::<Vec<_>>());
    for family in Family::BOTH {
        assert_eq!(rules(bench, family).len(), 2);
        let refused = refusal(
            bench,
            &Operation::AddRoute(route(numbers(family).subnet, None, &card)),
        );
        assert!(
            matches!(refused, OperationError::LinkDown(_)),
            "{refused:?}"
        );
    }
}

fn last_address<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    add_addresses(bench, &card);
    let (routes, operations) = whole_plan(&card);
    all_done(bench, &operations);
    bench.delete_address(card.index, numbers(Family::Ipv4).address);
    let ipv6: Vec<_> = routes
        .into_iter()
        .filter(|r| r.family() == Family::Ipv6)
        .collect();
    assert_table(bench, TABLE, &ipv6);
    bench.delete_address(card.index, numbers(Family::Ipv6).address);
    assert_table(bench, TABLE, &ipv6);
    for family in Family::BOTH {
        assert_eq!(rules(bench, family).len(), 2);
    }
}

fn one_of_two<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    add_addresses(bench, &card);
    for family in Family::BOTH {
        bench.add_address(&card, numbers(family).second);
    }
    let (routes, operations) = whole_plan(&card);
    all_done(bench, &operations);
    for family in Family::BOTH {
        bench.delete_address(card.index, numbers(family).second);
    }
    assert_table(bench, TABLE, &routes);
}

fn cut_off<B: Bench>(bench: &B) {
    let [card, _] = bench.cards();
    add_addresses(bench, &card);
    let (routes, operations) = whole_plan(&card);
    for length in 0..=operations.len() {
        let start = operations.get(..length).unwrap_or_default();
        all_done(bench, start);
        all_done(bench, &operations);
        assert_table(bench, TABLE, &routes);
        for family in Family::BOTH {
            let source = Selector::From(numbers(family).address.ip().into());
            let bound = Selector::Oif(card.name.clone());
            let wanted = [source, bound].map(|selector| shown(&rule(family, 7630, selector)));
            assert_eq!(rules(bench, family), wanted);
            let seen = succeeded(bench.kernel().rules(family));
            let own = seen.into_iter().filter(|rule| rule.table == TABLE);
            let delete = |route| Operation::DeleteRoute {
                route,
                device: None,
            };
            let stale = table(bench, family, &[TABLE]);
            let removal: Vec<_> = own
                .map(Operation::DeleteRule)
                .chain(stale.into_iter().map(delete))
                .collect();
            all_done(bench, &removal);
        }
    }
}
