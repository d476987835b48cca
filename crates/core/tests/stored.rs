//! Whatever stands in a lease file, reading it ends, and nothing impossible is believed.

#![expect(clippy::unwrap_used, reason = "helpers of tests may stop")]

use std::net::IpAddr;

use leaseroute_core::stored::{dhclient, dhcpcd, networkd, networkmanager};
use leaseroute_core::{
    InterfaceName, LeaseChange, LeaseFile, RawEvent, is_link_local, is_unicast_host,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn card() -> InterfaceName {
    "eth0".parse().unwrap()
}

/// Every address that the events of some file lease.
fn believed(events: &[RawEvent]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for raw in events {
        let event = raw.client.parse(raw).ok().and_then(|parsed| parsed.event);
        for change in event.into_iter().flat_map(|event| event.changes) {
            match change {
                LeaseChange::Gained4(lease) => addresses.push(lease.address.into()),
                LeaseChange::Changed6 { gained, .. } => {
                    addresses.extend(gained.addresses.keys().map(|a| IpAddr::V6(*a)));
                    addresses.extend(gained.prefixes.keys().map(|p| IpAddr::V6(p.network())));
                }
                _ => {}
            }
        }
    }
    addresses
}

fn of_text(text: &str) -> Vec<RawEvent> {
    let mut events = dhclient::events(text);
    events.extend(networkmanager::event(&card(), text));
    events.extend(networkmanager::event_of_lease(&card(), text, None));
    let lease = LeaseFile::Text(text.to_owned());
    events.push(networkd::event(&card(), Some(text), lease));
    let converted: Vec<RawEvent> = events
        .iter()
        .filter_map(|raw| networkmanager::event_of_dhclient(&card(), raw))
        .collect();
    events.extend(converted);
    events
}

fn of_bytes(bytes: &[u8], age: u64) -> Vec<RawEvent> {
    let mut events = of_text(&String::from_utf8_lossy(bytes));
    events.extend(dhcpcd::event4(&card(), bytes, age));
    events.extend(dhcpcd::event6(&card(), bytes, age));
    events
}

fn assert_possible(events: &[RawEvent]) -> Result<(), TestCaseError> {
    for address in believed(events) {
        prop_assert!(
            is_unicast_host(address) && !is_link_local(address),
            "{address}"
        );
    }
    Ok(())
}

const WORDS: &[&str] = &[
    "lease",
    "lease6",
    "{",
    "}",
    ";",
    "interface",
    "\"eth0\"",
    "\"",
    "\\",
    "\\\"",
    "\"\\377\"",
    "fixed-address",
    "192.0.2.10",
    "127.0.0.1",
    "0.0.0.0",
    "option",
    "routers",
    "subnet-mask",
    "255.255.255.0",
    "rfc3442-classless-static-routes",
    "unknown-249",
    "0,192,0,2,1",
    "18:c6:33",
    "static-routes",
    "interface-mtu",
    "1500",
    "expire",
    "never",
    "epoch",
    "1796055701",
    "1",
    "2026/11/30",
    "16:01:41",
    "99999999999999999999",
    "ia-na",
    "ia-pd",
    "iaaddr",
    "iaprefix",
    "2001:db8::1",
    "fe80::1",
    "::",
    "2001:db8:1f00::/56",
    "starts",
    "max-life",
    "released",
    "#",
    "\n",
    ",",
    "é",
    "\u{fffd}",
    "\0",
    "[dhcp4]",
    "\n[dhcp4]\n",
    "dhcp4.ip_address=192.0.2.10\n",
    "dhcp4.routers=",
    "\\s",
    "ADDRESS=192.0.2.10\n",
    "ADDRESS=::1\n",
    "ROUTER=",
    "=",
    "\n=\n",
];

const DHCLIENT: &str = include_str!("../../../tests/fixtures/dhclient/opt121/02-BOUND.stored");
const DHCLIENT6: &str =
    include_str!("../../../tests/fixtures/dhclient/v6-na-and-pd/03-BOUND6.stored");
const DEVICE: &str = include_str!("../../../tests/fixtures/nm-dispatcher/v142-opt121/03-up.stored");
const DHCPCD: &[u8] = include_bytes!("../../../tests/fixtures/dhcpcd/opt121/03-BOUND.stored");
const DHCPCD6: &[u8] =
    include_bytes!("../../../tests/fixtures/dhcpcd/v6-managed-release/04-BOUND6.stored");

fn real() -> impl Strategy<Value = Vec<u8>> {
    select(vec![
        DHCLIENT.as_bytes(),
        DHCLIENT6.as_bytes(),
        DEVICE.as_bytes(),
        DHCPCD,
        DHCPCD6,
    ])
    .prop_map(<[u8]>::to_vec)
}

proptest! {
    #[test]
    fn any_words_are_read_to_their_end(words in vec(select(WORDS), 0..80), blank in any::<bool>()) {
        let text = words.join(if blank { " " } else { "" });
        assert_possible(&of_text(&text))?;
    }

    #[test]
    fn any_bytes_are_read_to_their_end(bytes in vec(any::<u8>(), 0..600), age in any::<u64>()) {
        assert_possible(&of_bytes(&bytes, age))?;
    }

    #[test]
    fn any_options_are_read_to_their_end(
        options in vec(any::<u8>(), 0..400),
        overload in 0_u8..4,
        fields in vec(any::<u8>(), 192),
    ) {
        let mut message = DHCPCD[..240].to_vec();
        message[44..236].copy_from_slice(&fields);
        message.extend([52, 1, overload]);
        message.extend(&options);
        assert_possible(&of_bytes(&message, 0))?;
        let mut message = DHCPCD6[..4].to_vec();
        message.extend(&options);
        assert_possible(&of_bytes(&message, 0))?;
    }

    #[test]
    fn real_files_that_were_damaged_are_read_to_their_end(
        mut file in real(),
        changes in vec((any::<Index>(), any::<u8>()), 0..8),
        end in any::<Index>(),
        age in any::<u64>(),
    ) {
        for (place, byte) in changes {
            let place = place.index(file.len());
            file[place] = byte;
        }
        file.truncate(end.index(file.len() + 1));
        assert_possible(&of_bytes(&file, age))?;
    }
}

#[test]
fn the_last_lease_of_an_interface_counts() {
    let lease = |interface: &str, address: &str| {
        format!("lease {{ interface \"{interface}\"; fixed-address {address}; }}\n")
    };
    let text = [
        lease("eth0", "192.0.2.10"),
        lease("eth1", "198.51.100.10"),
        "# lease { interface \"eth0\"; fixed-address 192.0.2.13; }\n".to_owned(),
        lease("eth0", "192.0.2.11"),
        "lease { interface \"eth0\"; fixed-address 192.0.2.12;".to_owned(),
    ];
    let events = dhclient::events(&text.concat());
    let addresses: Vec<&str> = events
        .iter()
        .filter_map(|raw| raw.get("new_ip_address"))
        .collect();
    assert_eq!(addresses, ["192.0.2.11", "198.51.100.10"]);
}

#[test]
fn times_are_read_in_every_form() {
    let expiry = |expire: &str| {
        let text = format!("lease {{ interface \"eth0\"; expire {expire}; }}");
        let events = dhclient::events(&text);
        events[0].get("new_expiry").map(str::to_owned)
    };
    for (written, seconds) in [
        ("1 2026/11/30 16:01:41", Some("1796054501")),
        ("4 1970/01/01 00:00:00", Some("0")),
        ("2 2000/02/29 23:59:59", Some("951868799")),
        ("4 2400/02/29 00:00:00", Some("13574563200")),
        (
            "epoch 1796055701; # Mon Nov 30 16:21:41 2026\n",
            Some("1796055701"),
        ),
        ("never", None),
        ("1 2026/02/29 16:01:41", Some("1 2026/02/29 16:01:41")),
        ("1 2026/13/01 00:00:00", Some("1 2026/13/01 00:00:00")),
        ("1 1969/12/31 00:00:00", Some("1 1969/12/31 00:00:00")),
        ("soon", Some("soon")),
    ] {
        assert_eq!(expiry(written).as_deref(), seconds, "{written}");
    }
}

#[test]
fn texts_are_as_they_were_before_they_were_written() {
    let text = r#"lease { interface "w;id\"\\x\$(id)\303\251"; option root-path "a;b}c"; }"#;
    let events = dhclient::events(text);
    assert_eq!(events[0].get("interface"), Some("w;id\"\\x$(id)é"));
    assert_eq!(events[0].get("new_root_path"), Some("a;b}c"));
}

#[test]
fn a_released_lease_and_an_older_client_of_networkmanager_are_known() {
    let released = DHCLIENT6.replace("interface \"eth0\";", "interface \"eth0\";\n  released;");
    assert_eq!(dhclient::events(&released), []);
    let of_dhclient = &dhclient::events(DHCLIENT)[0];
    let told = networkmanager::event_of_dhclient(&card(), of_dhclient).unwrap();
    let lease = |raw: &RawEvent| {
        let event = raw.client.parse(raw).unwrap().event.unwrap();
        event.changes
    };
    assert_eq!(lease(&told), lease(of_dhclient));
}

#[test]
fn options_are_put_together_from_where_they_lie() {
    let classless = |message: &[u8]| {
        let raw = dhcpcd::event4(&card(), message, 0).unwrap();
        raw.get("new_classless_static_routes").map(str::to_owned)
    };
    let whole = classless(DHCPCD).unwrap();
    assert!(whole.starts_with("0 192 0 2 1 24 198 51 100"));
    // The same option in three parts: one among the options, and in the fields of the file
    // and of the server's name (option 52).
    let octets: Vec<u8> = whole.split(' ').map(|word| word.parse().unwrap()).collect();
    let mut message = DHCPCD[..240].to_vec();
    message.extend([52, 1, 3, 0, 121, 5]);
    message.extend(&octets[..5]);
    message.push(255);
    message[108..110].copy_from_slice(&[121, 8]);
    message[110..118].copy_from_slice(&octets[5..13]);
    message[118] = 255;
    let rest = &octets[13..];
    message[44..46].copy_from_slice(&[121, u8::try_from(rest.len()).unwrap()]);
    message[46..46 + rest.len()].copy_from_slice(rest);
    message[46 + rest.len()] = 255;
    assert_eq!(classless(&message), Some(whole));
}

#[test]
fn files_are_those_of_the_card_and_no_other() {
    use dhcpcd::Kind;
    for (file, kind) in [
        ("eth0.lease", Some(Kind::Ipv4)),
        ("eth0.lease6", Some(Kind::Ipv6)),
        ("eth0-home.lease", Some(Kind::Ipv4)),
        ("eth01.lease", None),
        ("eth.lease", None),
        ("eth0", None),
        ("eth0.lease.bak", None),
    ] {
        assert_eq!(dhcpcd::lease_file(&card(), file), kind, "{file}");
    }
    for (file, is_it) in [
        ("internal-1111-eth0.lease", true),
        ("internal-1111-xeth0.lease", false),
        ("internal-eth0.lease", false),
        ("dhclient-1111-eth0.lease", false),
        ("internal-1111-eth0.leases", false),
    ] {
        assert_eq!(
            networkmanager::is_internal_lease(&card(), file),
            is_it,
            "{file}"
        );
    }
    for (file, is_it) in [
        ("dhclient.leases", true),
        ("dhclient.eth0.leases", true),
        ("dhclient6-eth0.leases", true),
        ("dhclient-1111-eth0.lease", true),
        ("dhcpd.leases", false),
        ("dhclient.leases.old", false),
    ] {
        assert_eq!(dhclient::is_lease_file(file), is_it, "{file}");
    }
}

/// What the events of some file lease, in few words.
fn meaning(events: &[RawEvent]) -> Vec<String> {
    let changes = events.iter().flat_map(|raw| {
        let parsed = raw.client.parse(raw).unwrap();
        assert_eq!(parsed.dropped, []);
        parsed.event.unwrap().changes
    });
    let words = |change: LeaseChange| match change {
        LeaseChange::Gained4(lease) => {
            let routes = lease
                .classless
                .iter()
                .flat_map(|classless| &classless.routes);
            let routes: Vec<String> = routes.map(|r| r.destination.to_string()).collect();
            let router = lease.router.unwrap();
            let words = (lease.address, router, routes, lease.mtu, lease.expires);
            format!("{words:?}")
        }
        LeaseChange::Changed6 { gained, .. } => {
            let words = |part: String, lasts: Option<u32>| match lasts {
                Some(seconds) => format!("{part} for {seconds}"),
                None => part,
            };
            let addresses = gained.addresses.iter();
            let addresses = addresses.map(|(part, life)| words(part.to_string(), life.lasts));
            let prefixes = gained.prefixes.iter();
            let prefixes = prefixes.map(|(part, life)| words(part.to_string(), life.lasts));
            addresses.chain(prefixes).collect::<Vec<_>>().join(" ")
        }
        other => format!("{other:?}"),
    };
    changes.map(words).collect()
}

/// Written by dhclient 4.4.3, dhcpcd 9.4.1 and NetworkManager 1.42.4 with dhclient.
#[test]
fn real_files_of_rarer_forms_are_understood() {
    let dhclient = |text: &str| meaning(&dhclient::events(text));
    assert_eq!(
        dhclient(include_str!("stored/dhclient-options.leases")),
        [
            r#"(10.0.0.10, 10.0.0.1, ["198.51.100.7/32", "203.0.113.0/24"], Some(1400), Some(1796084600))"#
        ]
    );
    assert_eq!(
        dhclient(include_str!("stored/dhclient-epoch.leases")),
        ["(10.0.1.10, 10.0.1.1, [], None, Some(1796084600))"]
    );
    assert_eq!(
        dhclient(include_str!("stored/dhclient-for-ever.leases")),
        ["(10.0.0.10, 10.0.0.1, [], None, Some(6091048360))"]
    );
    let device = include_str!("stored/networkmanager-dhclient.device");
    let told = networkmanager::event(&card(), device);
    assert_eq!(
        meaning(told.as_slice()),
        ["(10.0.2.10, 10.0.2.1, [], None, Some(6091048371))"]
    );
    let dhcpcd = |message: &[u8], age| {
        let lease = dhcpcd::event6(&card(), message, age)?;
        Some(meaning(&[lease]))
    };
    let prefix = include_bytes!("stored/dhcpcd-prefix.lease6");
    assert_eq!(
        dhcpcd(prefix, 600),
        Some(vec![
            "2001:db8::1c1 for 3600 2001:db8:1f00::/56 for 3600".into()
        ])
    );
    assert_eq!(dhcpcd(prefix, 3600), None);
    let for_ever = include_bytes!("stored/dhcpcd-for-ever.lease6");
    assert_eq!(
        dhcpcd(for_ever, u64::MAX),
        Some(vec!["2001:db8:0:1::10".into()])
    );
}
