//! busybox udhcpc and udhcpc6, IPv4 and IPv6.
//!
//! Each runs one script with the event as its argument. The environment is the one that the
//! client was started in, with `interface` and the lease in short names (`ip`, `router`,
//! `ipv6`) on top of it: only bound and renew hold values that count, and `ipv6` or
//! `ipv6prefix` make an event one of DHCPv6. deconfig and nak name no address and are
//! spelled the same by both clients, so our scripts give the client's name as a second
//! argument. Without it nothing is taken for lost but what has gone from the card. The
//! options 121, 249 and 33 always come by their names (busybox networking/udhcp/common.c),
//! never as hex in `optN`. Lease times count from the event. Both clients announce the end
//! as long as they live.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::fields::{Fields, meaning};
use crate::address::Family;
use crate::event::{LeaseChange, Parsed, RawEvent, Refusal};
use crate::lease::{Lease4, Lease6, LeasedAddress, LeasedPrefix, RouteOption};

/// What an event means.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Gained,
    Lost,
    Nothing,
}

/// Every event of busybox networking/udhcp/dhcpc.c and d6_dhcpc.c, and what it means.
const EVENTS: &[(&str, Meaning)] = &[
    ("bound", Meaning::Gained),
    ("renew", Meaning::Gained), // at T1 and at T2 alike, and with any new address or router
    ("deconfig", Meaning::Lost), // at the start, after a refusal, at the end of the lease
    ("nak", Meaning::Lost),     // deconfig comes next
    ("leasefail", Meaning::Nothing), // nobody answers; comes again and again
];

/// The clients, as the second argument names them, and the family of each.
const CLIENTS: &[(&str, Family)] = &[("udhcpc", Family::Ipv4), ("udhcpc6", Family::Ipv6)];

/// Where each option is, in order of precedence.
const ROUTES: &[(RouteOption, &[&str])] = &[
    (RouteOption::Classless, &["staticroutes"]),
    (RouteOption::Microsoft, &["msstaticroutes"]),
    (RouteOption::Static, &["routes"]),
];

/// The variable that says what the event is about.
const INTERFACE: &str = "interface";

/// The other variables that describe leases. What else is in the environment is of whoever
/// started the client.
const VALUES: &[&str] = &[
    "ip",
    "mask",
    "subnet",
    "broadcast",
    "router",
    "staticroutes",
    "msstaticroutes",
    "routes",
    "mtu",
    "lease",
    "serverid",
    "siaddr",
    "giaddr",
    "dns",
    "domain",
    "search",
    "hostname",
    "ipv6",
    "ipv6prefix",
    "ipv6prefix_lease",
];

pub(super) struct Adapter;

impl super::Adapter for Adapter {
    fn parse(&self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        parse(raw)
    }

    fn describes_lease(&self, variable: &str) -> bool {
        self.identifies_event(variable) || VALUES.contains(&variable)
    }

    fn identifies_event(&self, variable: &str) -> bool {
        variable == INTERFACE
    }

    fn takes_arguments(&self) -> bool {
        true
    }
}

fn parse(raw: &RawEvent) -> Result<Parsed, Refusal> {
    let argument = |number: usize| raw.arguments.get(number).map_or("", String::as_str);
    let (name, client) = (argument(0), argument(1));
    let mut fields = Fields::new(raw);
    let Some(event) = meaning(EVENTS, name) else {
        return Ok(fields.unknown("argument 1", name));
    };
    let family = meaning(CLIENTS, client);
    if family.is_none() && !client.is_empty() {
        fields.drop("argument 2", client, "neither udhcpc nor udhcpc6");
    }
    let changes = match event {
        Meaning::Nothing => return Ok(fields.nothing()),
        Meaning::Lost => lost(family),
        Meaning::Gained => match family.unwrap_or_else(|| family_of(&mut fields)) {
            // With udhcpc the kernel alone makes IPv6 addresses, which nobody announces:
            // its events are the occasions to find them.
            Family::Ipv4 => vec![
                gained4(&mut fields, name)?,
                LeaseChange::LookAgain(Family::Ipv6),
            ],
            Family::Ipv6 => vec![gained6(&mut fields)?],
        },
    };
    let interface = fields.interface(INTERFACE, name)?;
    Ok(fields.told(interface, name, changes))
}

/// The family of values, where the client was not named.
fn family_of(fields: &mut Fields<'_>) -> Family {
    match (fields.get("ipv6"), fields.get("ipv6prefix")) {
        (None, None) => Family::Ipv4,
        _ => Family::Ipv6,
    }
}

/// Either client's loss names nothing. Where it is not known whose it is, the other's lease
/// must not end with it.
fn lost(family: Option<Family>) -> Vec<LeaseChange> {
    match family {
        Some(Family::Ipv4) => vec![
            LeaseChange::Lost4(None),
            LeaseChange::LookAgain(Family::Ipv6),
        ],
        Some(Family::Ipv6) => vec![LeaseChange::Lost6],
        None => Family::BOTH.map(LeaseChange::LookAgain).into(),
    }
}

fn gained4(fields: &mut Fields<'_>, event: &str) -> Result<LeaseChange, Refusal> {
    let variable = "ip";
    let address: Ipv4Addr = fields.leased(variable)?.ok_or_else(|| Refusal::NoAddress {
        reason: event.to_owned(),
        variable,
    })?;
    Ok(LeaseChange::Gained4(Lease4 {
        address,
        others: BTreeSet::new(),
        // `mask` is the prefix length, `subnet` the same as a dotted mask.
        prefix_length: fields.length4("mask").or_else(|| fields.mask("subnet")),
        router: fields.router("router"),
        classless: fields.routes(ROUTES),
        mtu: fields.mtu("mtu"),
        expires: None,
        lasts: fields.lasts("lease"),
    }))
}

/// An event tells of the whole lease. One that holds neither address nor prefix is of a
/// client that asked for neither.
fn gained6(fields: &mut Fields<'_>) -> Result<LeaseChange, Refusal> {
    let address: Option<Ipv6Addr> = fields.leased6("ipv6")?;
    let prefix = fields.prefix6("ipv6prefix")?;
    if address.is_none() && prefix.is_none() {
        return Ok(LeaseChange::LookAgain(Family::Ipv6));
    }
    let leased = LeasedAddress {
        expires: None,
        lasts: address.and_then(|_| fields.lasts("lease")),
    };
    let delegated = LeasedPrefix {
        expires: None,
        lasts: prefix.and_then(|_| fields.lasts("ipv6prefix_lease")),
    };
    let gained = Lease6 {
        addresses: BTreeMap::from_iter(address.map(|a| (a, leased))),
        prefixes: BTreeMap::from_iter(prefix.map(|p| (p, delegated))),
        ..Lease6::default()
    };
    Ok(LeaseChange::Changed6 {
        replace: true,
        gained,
        lost_addresses: Vec::new(),
        lost_prefixes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::address::is_unicast_host;
    use crate::client::Client;

    fn event(arguments: &[&str], variables: &[(&str, &str)]) -> RawEvent {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        RawEvent {
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
            ..RawEvent::new(
                Client::Udhcpc,
                [("interface", "eth0")]
                    .iter()
                    .chain(variables)
                    .map(own)
                    .collect(),
            )
        }
    }

    fn changes(raw: &RawEvent) -> Vec<LeaseChange> {
        parse(raw).unwrap().event.map_or(Vec::new(), |e| e.changes)
    }

    fn lease4(raw: &RawEvent) -> Lease4 {
        match changes(raw).into_iter().next() {
            Some(LeaseChange::Gained4(lease)) => lease,
            other => panic!("no lease: {other:?}"),
        }
    }

    const ADDRESS: (&str, &str) = ("ip", "192.0.2.10");

    #[test]
    fn values_count_on_bound_and_renew_alone() {
        let stray = [
            ADDRESS,
            ("router", "192.0.2.1"),
            ("ipv6", "2001:db8::1"),
            ("mask", "x"),
        ];
        for name in ["deconfig", "nak", "leasefail"] {
            let parsed = parse(&event(&[name, "udhcpc"], &stray)).unwrap();
            assert_eq!(parsed.dropped, []);
            let lost = [
                LeaseChange::Lost4(None),
                LeaseChange::LookAgain(Family::Ipv6),
            ];
            match parsed.event {
                Some(event) => assert_eq!(event.changes, lost),
                None => assert_eq!(name, "leasefail"),
            }
        }
    }

    #[test]
    fn a_loss_without_the_clients_name_ends_no_lease() {
        for arguments in [&["deconfig"][..], &["nak"], &["deconfig", "busybox"]] {
            assert_eq!(
                changes(&event(arguments, &[])),
                Family::BOTH.map(LeaseChange::LookAgain)
            );
        }
        assert_eq!(
            changes(&event(&["nak", "udhcpc6"], &[])),
            [LeaseChange::Lost6]
        );
    }

    #[test]
    fn the_clients_name_decides_over_stray_values() {
        let both = [ADDRESS, ("ipv6", "2001:db8::1")];
        let family = |arguments: &[&str]| changes(&event(arguments, &both))[0].family();
        assert_eq!(family(&["bound", "udhcpc"]), Family::Ipv4);
        assert_eq!(family(&["bound", "udhcpc6"]), Family::Ipv6);
        assert_eq!(family(&["bound"]), Family::Ipv6);
    }

    #[test]
    fn the_mask_is_a_length_and_else_the_subnet_counts() {
        let length = |values: &[(&str, &str)]| {
            let raw = event(&["bound"], &[&[ADDRESS], values].concat());
            lease4(&raw).prefix_length
        };
        let subnet = ("subnet", "255.255.255.128");
        assert_eq!(length(&[("mask", "24"), subnet]), Some(24));
        assert_eq!(length(&[("mask", "255.255.255.0"), subnet]), Some(25));
        assert_eq!(length(&[("mask", "0"), subnet]), Some(25));
        assert_eq!(length(&[("mask", ""), subnet]), Some(25));
        assert_eq!(length(&[("mask", "33")]), None);
        assert_eq!(length(&[]), None);
    }

    #[test]
    fn the_slash_of_option_33_is_no_length() {
        let routes = ("routes", "198.51.100.7/192.0.2.254 203.0.113.0/192.0.2.253");
        let lease = lease4(&event(&["bound"], &[ADDRESS, routes]));
        let classless = lease.classless.unwrap();
        assert_eq!(classless.option, RouteOption::Static);
        let routes = classless.routes.iter();
        let destinations: Vec<_> = routes.map(|r| r.destination.to_string()).collect();
        assert_eq!(destinations, ["198.51.100.7/32", "203.0.113.0/24"]);
    }

    #[test]
    fn ipv6_addresses_may_be_written_out_and_may_have_a_length() {
        let want: Ipv6Addr = "2001:db8:1::1e4".parse().unwrap();
        for text in [
            "2001:0db8:0001:0000:0000:0000:0000:01e4",
            "2001:db8:1::1e4/128",
            "2001:db8:1::1e4/64",
        ] {
            let changes = changes(&event(&["renew"], &[("ipv6", text)]));
            let [LeaseChange::Changed6 { gained, .. }] = &changes[..] else {
                panic!("{changes:?}");
            };
            assert!(gained.addresses.keys().eq([&want]), "{gained:?}");
        }
        for text in [
            "2001:db8:1::1e4/129",
            "2001:db8:1::1e4/",
            "fe80::1",
            "192.0.2.1",
        ] {
            let refused = parse(&event(&["bound"], &[("ipv6", text)]));
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
    }

    #[test]
    fn a_gain_without_an_address_is_refused_or_says_nothing() {
        assert!(parse(&event(&["bound"], &[])).is_err());
        assert!(parse(&event(&["renew", "udhcpc"], &[("ip", "")])).is_err());
        assert_eq!(
            changes(&event(&["bound", "udhcpc6"], &[])),
            [LeaseChange::LookAgain(Family::Ipv6)]
        );
    }

    #[test]
    fn what_is_no_event_changes_nothing_and_is_said() {
        for arguments in [&[][..], &[""], &["BOUND"], &["post-bound", "udhcpc"]] {
            let parsed = parse(&event(arguments, &[ADDRESS])).unwrap();
            assert_eq!(parsed.event, None);
            assert_eq!(parsed.dropped.len(), 1, "{arguments:?}");
        }
    }

    /// Tokens of values that are right, nearly right, or hostile.
    const TOKENS: &[&str] = &[
        "",
        "0",
        "1",
        "24",
        "32",
        "33",
        "-1",
        "4294967296",
        "192.0.2.1",
        "0.0.0.0",
        "127.0.0.1",
        "255.255.255.0",
        "255.0.255.0",
        "224.0.0.1",
        "/",
        "/24",
        "/300",
        " ",
        ",",
        ":",
        "\n",
        "\0",
        "2001:db8::1",
        "2001:db8:1f00::/56",
        "fe80::1",
        "::",
        "$(id)",
        "; reboot",
        "\u{fffd}",
        "é",
    ];

    proptest! {
        #[test]
        fn whatever_the_values_are_what_is_believed_is_possible(
            name in select(EVENTS),
            client in select(&["", "udhcpc", "udhcpc6", "x"][..]),
            values in vec((select(VALUES), vec(select(TOKENS), 0..5)), 0..9),
        ) {
            let values: Vec<(&str, String)> =
                values.into_iter().map(|(value, tokens)| (value, tokens.concat())).collect();
            let values: Vec<_> = values.iter().map(|(name, text)| (*name, text.as_str())).collect();
            let parsed = parse(&event(&[name.0, client], &values));
            let event = parsed.ok().and_then(|parsed| parsed.event);
            for change in event.into_iter().flat_map(|event| event.changes) {
                match change {
                    LeaseChange::Gained4(lease) => {
                        prop_assert!(is_unicast_host(lease.address.into()));
                        prop_assert!(lease.router.is_none_or(|r| is_unicast_host(r.into())));
                        prop_assert!(lease.prefix_length.is_none_or(|l| (1..=32).contains(&l)));
                    }
                    LeaseChange::Changed6 { gained, .. } => {
                        let mut addresses = gained.addresses.keys();
                        prop_assert!(addresses.all(|a| is_unicast_host((*a).into())));
                    }
                    LeaseChange::Lost4(None) | LeaseChange::Lost6 | LeaseChange::LookAgain(_) => {}
                    LeaseChange::Lost4(Some(_)) | LeaseChange::Advertised(_) => {
                        prop_assert!(false, "udhcpc cannot tell this");
                    }
                }
            }
        }
    }
}
