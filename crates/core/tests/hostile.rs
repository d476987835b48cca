//! Whoever answers a DHCP request first chooses every value: none of them may stop us, and
//! none may reach a shell or a second line.
#![expect(clippy::panic, reason = "helpers of tests may stop")]

use std::collections::BTreeMap;

use leaseroute_core::{
    Client, Event, Family, Host, InterfaceName, InterfaceRef, LeaseBook, LeaseChange,
    MAX_LEASE_ROUTES, Mac, Pattern, Priority, ProtocolId, Quoted, RawEvent, Settings, TableId,
    When, desired_state, is_link_local, is_unicast_host, plan,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

const REASONS: &[&str] = &[
    "BOUND", "RENEW", "REBIND", "REBOOT", "TIMEOUT", "EXPIRE", "FAIL", "RELEASE", "STOP", "BOUND6",
    "RENEW6", "REBIND6", "EXPIRE6", "RELEASE6", "STOP6", "DEPREF6", "PREINIT", "NBI",
];

/// Every variable that the parser looks at.
const VARIABLES: &[&str] = &[
    "reason",
    "interface",
    "new_ip_address",
    "old_ip_address",
    "new_subnet_mask",
    "new_routers",
    "new_rfc3442_classless_static_routes",
    "new_classless_static_routes",
    "new_unknown_121",
    "new_ms_classless_static_routes",
    "new_unknown_249",
    "new_static_routes",
    "new_interface_mtu",
    "new_expiry",
    "new_ip6_address",
    "old_ip6_address",
    "new_ip6_prefix",
    "old_ip6_prefix",
    "new_max_life",
    "new_life_starts",
];

/// Values that are nearly right, and the tokens that attacks are made of.
const TOKENS: &[&str] = &[
    "0",
    "1",
    "24",
    "32",
    "33",
    "255",
    "256",
    "4294967295",
    "18446744073709551616",
    "-1",
    "+7",
    "192.0.2.1",
    "0.0.0.0",
    "255.255.255.255",
    "127.0.0.1",
    "169.254.0.1",
    "224.0.0.1",
    "255.255.255.0",
    "255.0.255.0",
    "10.0.0.0/8",
    "0/0",
    "/",
    ":",
    ",",
    ".",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "2001:db8::1",
    "2001:db8::/56",
    "::",
    "::1",
    "fe80::1",
    "ff02::1",
    "::ffff:192.0.2.1",
    "18:c6:33:64:c0:0:2:fe",
    "eth0",
    "..",
    "; reboot",
    "$(id)",
    "`id`",
    "' || '",
    "\"",
    "&",
    "|",
    ">",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{fffd}",
    "é",
];

fn value() -> impl Strategy<Value = String> {
    let tokens = vec(select(TOKENS), 0..12);
    prop_oneof![
        4 => tokens.clone().prop_map(|tokens| tokens.concat()),
        4 => tokens.prop_map(|tokens| tokens.join(" ")),
        2 => any::<String>(),
        2 => vec(any::<u8>(), 0..64).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        1 => (select(TOKENS), 1..9000_usize).prop_map(|(token, count)| token.repeat(count)),
    ]
}

fn raw_event() -> impl Strategy<Value = RawEvent> {
    let known = btree_map(select(VARIABLES).prop_map(str::to_owned), value(), 0..12);
    let unknown = btree_map(any::<String>(), any::<String>(), 0..3);
    (known, unknown, prop::option::weighted(0.9, select(REASONS))).prop_map(
        |(mut variables, unknown, reason)| {
            variables.extend(unknown);
            if let Some(reason) = reason {
                variables.insert("reason".to_owned(), reason.to_owned());
                variables
                    .entry("interface".to_owned())
                    .or_insert("eth0".to_owned());
            }
            RawEvent::new(Client::Dhclient, variables)
        },
    )
}

/// What is believed must be possible.
fn assert_possible(event: &Event) {
    for change in &event.changes {
        assert_possible_change(change);
    }
}

fn assert_possible_change(change: &LeaseChange) {
    match change {
        LeaseChange::LookAgain(_) | LeaseChange::Advertised(_) => {}
        LeaseChange::Gained4(lease) => {
            let address = lease.address.into();
            assert!(is_unicast_host(address) && !is_link_local(address));
            assert!(
                lease
                    .prefix_length
                    .is_none_or(|length| (1..=32).contains(&length))
            );
            assert!(
                lease
                    .router
                    .is_none_or(|router| is_unicast_host(router.into()))
            );
            assert!(lease.mtu.is_none_or(|mtu| mtu >= 576));
            let routes = lease
                .classless
                .iter()
                .flat_map(|classless| &classless.routes);
            assert!(routes.clone().count() <= MAX_LEASE_ROUTES);
            for route in routes {
                assert_eq!(route.destination.ip(), route.destination.network());
                assert!(
                    !route.destination.ip().is_multicast() && !route.destination.ip().is_loopback()
                );
                assert!(
                    route
                        .gateway
                        .is_none_or(|gateway| is_unicast_host(gateway.into()))
                );
            }
        }
        LeaseChange::Changed6 { gained, .. } => {
            for address in gained.addresses.keys() {
                let address = (*address).into();
                assert!(is_unicast_host(address) && !is_link_local(address));
            }
            for prefix in gained.prefixes.keys() {
                assert_eq!(prefix.ip(), prefix.network());
                assert!(prefix.prefix() > 0 && is_unicast_host(prefix.ip().into()));
            }
        }
        LeaseChange::Lost4(_) | LeaseChange::Lost6 => {}
    }
}

/// A text that can stand in a log line: short, and without anything that moves a cursor.
fn assert_harmless(line: &str) {
    assert!(line.len() < 2000, "{} bytes", line.len());
    assert!(!line.chars().any(char::is_control), "{line:?}");
}

proptest! {
    #[test]
    fn no_environment_stops_the_parser(raw in raw_event()) {
        match raw.client.parse(&raw) {
            Ok(parsed) => {
                for dropped in &parsed.dropped {
                    assert_harmless(&dropped.to_string());
                }
                if let Some(event) = &parsed.event {
                    assert_possible(event);
                }
            }
            Err(refusal) => assert_harmless(&refusal.to_string()),
        }
    }

    #[test]
    fn an_interface_name_is_what_the_kernel_takes_without_control_characters(name in value()) {
        let possible = |limit: usize| {
            let bad = |c: char| "/:".contains(c) || c.is_ascii_whitespace() || c.is_control();
            (1..=limit).contains(&name.len()) && name != "." && name != ".." && !name.contains(bad)
        };
        prop_assert_eq!(name.parse::<InterfaceName>().is_ok(), possible(15));
        prop_assert_eq!(name.parse::<InterfaceRef>().is_ok(), possible(127));
        if let Err(why) = name.parse::<InterfaceName>() {
            prop_assert!(!why.to_string().chars().any(char::is_control));
        }
    }

    #[test]
    fn names_patterns_and_addresses_are_read_or_refused(text in value()) {
        if let Ok(mac) = text.parse::<Mac>() {
            prop_assert_eq!(mac.to_string().parse::<Mac>(), Ok(mac));
        }
        if let Ok(pattern) = Pattern::new(&text) {
            prop_assert_eq!(pattern.to_string(), text.clone());
            std::hint::black_box(pattern.matches("eth0"));
        }
        prop_assert!(text.parse::<Client>().is_err());
        assert_harmless(&Quoted::shortened(&text).to_string());
    }

    #[test]
    fn numbers_of_the_kernel_cannot_be_configured(number: u32) {
        prop_assert_eq!(TableId::own(number).is_ok(), !matches!(number, 0 | 253..=255));
        prop_assert_eq!(ProtocolId::own(number).is_ok(), (5..=255).contains(&number));
        prop_assert_eq!(Priority::base(number).is_ok(), (1..=32665).contains(&number));
    }
}

fn bound(variables: &[(&str, &str)]) -> RawEvent {
    let usual = [
        ("reason", "BOUND"),
        ("interface", "eth0"),
        ("new_ip_address", "192.0.2.10"),
    ];
    let all = usual.iter().chain(variables);
    RawEvent::new(
        Client::Dhclient,
        all.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect::<BTreeMap<_, _>>(),
    )
}

fn gained(raw: &RawEvent) -> leaseroute_core::Lease4 {
    let event = raw.client.parse(raw).ok().and_then(|parsed| parsed.event);
    match event.map(|event| event.changes).as_deref() {
        Some([LeaseChange::Gained4(lease)]) => lease.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_interface_name_stays_one_word_of_the_printed_plan() {
    let name = "w;id&x'$(id)";
    let host: Host = serde_json::from_value(serde_json::json!({
        "links": {"3": {"index": 3, "name": name, "mtu": 1500, "up": true}},
        "addresses": [{"index": 3, "address": "192.0.2.10/24"}],
    }))
    .unwrap();
    let mut raw = bound(&[("new_routers", "192.0.2.1")]);
    raw.variables
        .insert("interface".to_owned(), name.to_owned());
    let event = raw.client.parse(&raw).unwrap().event.unwrap();
    let mut book = LeaseBook::default();
    book.fold(&event, None, &host, 0);
    let settings = Settings {
        when: When::Always,
        ..Settings::default()
    };
    let desired = desired_state(Family::Ipv4, &host, &book, &settings);
    let plan = plan(&desired, &host, &settings);
    let quoted = r"'w;id&x'\''$(id)'";
    let mut named = 0;
    for step in &plan.steps {
        let rest = plan.command(step).to_string().replace(quoted, "");
        named += usize::from(rest != plan.command(step).to_string());
        assert!(!rest.contains(|c| ";&$'()`|<>\\\"".contains(c)), "{rest}");
    }
    assert_eq!(named, 5, "{plan}");
}

#[test]
fn the_first_usable_of_ten_thousand_routers_counts() {
    let routers = format!("{}192.0.2.1", "0.0.0.0 ".repeat(7000));
    let lease = gained(&bound(&[("new_routers", &routers)]));
    assert_eq!(lease.router, Some([192, 0, 2, 1].into()));
}

#[test]
fn a_value_beyond_64_kib_is_not_given() {
    let routers = format!("192.0.2.1 {}", "192.0.2.2 ".repeat(10_000));
    let raw = bound(&[("new_routers", &routers)]);
    assert_eq!(gained(&raw).router, None);
    let dropped = raw.client.parse(&raw).map(|parsed| parsed.dropped.len());
    assert_eq!(dropped, Ok(1));
}

#[test]
fn a_broken_option_121_does_not_hide_a_sound_249() {
    let lease = gained(&bound(&[
        ("new_rfc3442_classless_static_routes", "24 198 51 100 192"),
        ("new_unknown_249", "18:c6:33:64:c0:0:2:fe"),
    ]));
    assert_eq!(lease.classless.map(|c| c.routes.len()), Some(1));
}

/// Anybody on a link may send as many advertisements as he likes.
#[test]
fn advertised_prefixes_routes_and_routers_are_bounded_with_a_note_each() {
    let mut main = Vec::new();
    let mut learn = |destination: String, gateway: Option<String>| {
        let base = serde_json::json!({
            "table": 254, "destination": destination, "metric": 1024, "gateway": gateway,
            "oif": 2, "protocol": 9, "kind": "unicast",
        });
        main.push(base);
    };
    for number in 1..=300 {
        learn(format!("2001:db8:{number:x}::/64"), None);
        learn(
            format!("2001:db8:f:{number:x}::/64"),
            Some("fe80::1".to_owned()),
        );
        learn("::/0".to_owned(), Some(format!("fe80::{number:x}")));
    }
    let host: Host = serde_json::from_value(serde_json::json!({
        "links": {"2": {"index": 2, "name": "wan0", "mtu": 1500, "up": true}},
        "addresses": [{"index": 2, "address": "2001:db8:1::10/64"}],
        "main": main,
    }))
    .unwrap();
    let settings = Settings {
        when: When::Always,
        ..Settings::default()
    };
    let desired = desired_state(Family::Ipv6, &host, &LeaseBook::default(), &settings);
    assert!(desired.routes.len() < 250, "{}", desired.routes.len());
    assert_eq!(desired.notes.len(), 3, "{:?}", desired.notes);
    for note in &desired.notes {
        assert!(note.to_string().starts_with("300 "), "{note}");
    }
}
