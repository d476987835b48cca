//! Rules and routes that others made, some of them made to look like ours.

use ipnetwork::IpNetwork;
use leaseroute_core::{
    Family, ObservedRoute, ObservedRule, ProtocolId, RouteKind, RuleAction, TableId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::kernel::{main_route, plain_rule};
use super::world::{CARDS, index_of};

const TABLES: &[u32] = &[100, 254, 500, 76002, 76003, 76099];
const PROTOCOLS: &[u8] = &[0, 2, 3, 4, 76, 186];

pub(crate) fn rules() -> impl Strategy<Value = Vec<ObservedRule>> {
    let v4 = ["10.99.0.0/16", "10.0.0.0/8", "192.0.2.32/32", "0.0.0.0/0"];
    let v6 = ["2001:db8:99::/48", "2001:db8::/32", "::/0"];
    let place = (
        any::<bool>(),
        prop_oneof![1..32766_u32, 7590..7700_u32],
        select(TABLES),
        select(PROTOCOLS),
    );
    let matches = (
        option::of(0..4_usize),
        option::of(Just((0x40_u32, 0xff_u32))),
        option::of(select(vec!["eth0".to_owned(), "gone0".to_owned()])),
        option::weighted(0.2, select(vec![0_u8, 1])),
        option::weighted(0.2, select(vec![6_u8, 7, 8])),
        any::<[bool; 2]>(),
    );
    let rule = (place, matches).prop_map(move |((ipv6, priority, table, protocol), matches)| {
        let (from, mark, oif, suppress_prefix_length, other_action, [inverted, other_selectors]) =
            matches;
        let family = if ipv6 { Family::Ipv6 } else { Family::Ipv4 };
        let from = from.map(|i| if ipv6 { v6[i % v6.len()] } else { v4[i] });
        // With our tag, one of our numbers and a table of ours it would be ours.
        let looks_like_ours = protocol == 76 && priority >= 2000;
        let protocol = if looks_like_ours { 187 } else { protocol };
        ObservedRule {
            from: from
                .map(|text| text.parse::<IpNetwork>().unwrap())
                .filter(|net| net.prefix() > 0),
            mark,
            oif,
            suppress_prefix_length,
            action: other_action.map_or(RuleAction::Lookup, RuleAction::Other),
            inverted,
            other_selectors,
            protocol: ProtocolId::observed(protocol),
            ..plain_rule(family, priority, TableId::observed(table))
        }
    });
    vec(rule, 0..6).prop_map(|mut rules| {
        rules.sort();
        rules.dedup();
        rules
    })
}

pub(crate) fn routes() -> impl Strategy<Value = Vec<ObservedRoute>> {
    // None of them is a gateway's: one that makes a gateway unreachable makes a plan fail.
    let destinations = [
        "0.0.0.0/0",
        "198.18.5.0/24",
        "10.172.0.0/16",
        "::/0",
        "2001:db8:1::/64",
    ];
    let place = (
        select(TABLES),
        select(destinations.to_vec()),
        select(PROTOCOLS),
        0..CARDS,
    );
    let route = (place, option::weighted(0.2, select(vec![6_u8, 7, 9]))).prop_map(
        |((table, destination, protocol, card), kind)| {
            let destination: IpNetwork = destination.parse().unwrap();
            let metric = if destination.is_ipv6() { 1024 } else { 0 };
            // With our tag in one of our tables it would be ours.
            let looks_like_ours = protocol == 76 && table != 254;
            let protocol = ProtocolId::observed(if looks_like_ours { 187 } else { protocol });
            let route = main_route(destination, None, index_of(card), metric, protocol);
            ObservedRoute {
                table: TableId::observed(table),
                kind: kind.map_or(RouteKind::Unicast, RouteKind::Other),
                oif: kind.is_none().then(|| index_of(card)),
                ..route
            }
        },
    );
    // The kernel holds one IPv4 route per key.
    vec(route, 0..5).prop_map(|mut routes| {
        routes.sort_by_key(|route| (route.table, route.destination));
        routes.dedup_by_key(|route| (route.table, route.destination));
        routes
    })
}
