//! Random leases, advertisements and happenings.

use leaseroute_core::{Family, ObservedRoute, ObservedRule, RouterPreference};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::spelling::Spelling;
use super::world::{CARDS, Form6, Happening, Lease4Form, Mask, NETS, Router, Routes, SaidForm};

pub(crate) fn lease4_form() -> impl Strategy<Value = Lease4Form> {
    let masks = [
        Mask::Right,
        Mask::Right,
        Mask::Missing,
        Mask::Broken,
        Mask::Host,
    ];
    let routers = [
        Router::InSubnet,
        Router::InSubnet,
        Router::None,
        Router::OffLink,
        Router::Own,
        Router::Third,
        Router::NextCard,
    ];
    let routes = [
        Routes::None,
        Routes::None,
        Routes::Default,
        Routes::NoDefault,
        Routes::OnLinkGateway,
        Routes::OffLinkGateway,
        Routes::Overlapping,
        Routes::Wide,
        Routes::Broken,
    ];
    let mtu = option::weighted(0.3, select(vec![576, 1400, 1500, 9001]));
    let kernel = (
        0..NETS.len(),
        0..2_u8,
        prop::bool::weighted(0.1),
        select(masks.to_vec()),
        any::<bool>(),
    );
    let lease = (
        select(routers.to_vec()),
        select(routes.to_vec()),
        select(Spelling::ALL),
        mtu,
    );
    (kernel, lease).prop_map(|((net, host, shared, mask, default_in_main), lease)| {
        let (router, routes, spelling, mtu) = lease;
        Lease4Form {
            net,
            host,
            shared,
            mask,
            router,
            routes,
            spelling,
            mtu,
            default_in_main,
        }
    })
}

pub(crate) fn form6() -> impl Strategy<Value = Form6> {
    let preferences = [
        RouterPreference::Medium,
        RouterPreference::High,
        RouterPreference::Low,
    ];
    let routers = prop::collection::btree_map(1..4_u8, select(preferences.to_vec()), 0..4);
    (0..3_u16, 0..2_u8, any::<[bool; 5]>(), routers).prop_map(|(net, host, flags, routers)| {
        let [
            leased,
            prefix_on_link,
            delegated,
            tentative,
            advertised_route,
        ] = flags;
        Form6 {
            net,
            host,
            leased,
            prefix_on_link,
            delegated,
            tentative,
            routers: routers.into_iter().collect(),
            advertised_route,
        }
    })
}

fn said_form() -> impl Strategy<Value = SaidForm> {
    (0..3_u8, any::<[bool; 3]>()).prop_map(|(more, [prefix, unserved, gateway])| SaidForm {
        more,
        prefix,
        unserved,
        gateway,
    })
}

pub(crate) fn happening() -> impl Strategy<Value = Happening> {
    let card = || 0..CARDS;
    prop_oneof![
        8 => (card(), lease4_form()).prop_map(|(card, form)| Happening::Gained4(card, form)),
        3 => card().prop_map(Happening::Lost4),
        6 => (card(), form6()).prop_map(|(card, form)| Happening::Gained6(card, form)),
        2 => card().prop_map(Happening::Lost6),
        2 => (card(), any::<bool>()).prop_map(|(card, up)| Happening::Up(card, up)),
        1 => (card(), any::<bool>()).prop_map(|(card, master)| Happening::Master(card, master)),
        1 => Just(Happening::StateLost),
        3 => (card(), any::<bool>(), said_form()).prop_map(|(card, is_ipv4, form)| {
            let family = if is_ipv4 { Family::Ipv4 } else { Family::Ipv6 };
            Happening::Said(card, family, form)
        }),
    ]
}

/// Rules and routes of others, some of them made to look like ours.
pub(crate) fn foreign() -> impl Strategy<Value = (Vec<ObservedRule>, Vec<ObservedRoute>)> {
    (super::foreign::rules(), super::foreign::routes())
}
