//! NetworkManager, by the scripts of its dispatcher.
//!
//! The event is the second argument, the interface the first; the environment has the
//! connection's values in `IP4_*` and `IP6_*` and the options of its own DHCP client in
//! `DHCP4_*` and `DHCP6_*` (NetworkManager-dispatcher(8)). Three things are peculiar to it:
//!
//! * Before a connection is up, and when it ends, there are no values at all; with two
//!   families it may be up before the other one is ready. No values mean "not told", never
//!   "gone".
//! * On a renewal `DHCP4_*` is new while `IP4_*` is from before it.
//! * "No gateway" is written as `0.0.0.0`, in both families.
//!
//! Routes of the connection (`IP4_ROUTE_N`) are not taken: those of table main count as
//! static routes of the host do, and those of other tables are listed without saying so.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnetwork::{Ipv4Network, Ipv6Network};

use super::fields::{Fields, MAX_ADDRESSES, meaning};
use crate::address::{Family, is_link_local, is_unicast_host};
use crate::event::{LeaseChange, Parsed, Quoted, RawEvent, Refusal};
use crate::interface::InterfaceRef;
use crate::lease::{Lease4, Lease6, LeasedAddress, RouteOption};

/// What an action means.
#[derive(Clone, Copy)]
enum Meaning {
    /// The values of these families are told, when there are any.
    Told(&'static [Family]),
    /// The connection ends.
    Lost,
    Nothing,
}

/// Every action of NetworkManager-dispatcher(8), and what it means. For `reapply` the
/// values are those from before it, which may still be newer than what is known: version
/// 1.42 announces no renewal.
const ACTIONS: &[(&str, Meaning)] = &[
    ("pre-up", Meaning::Told(&Family::BOTH)),
    ("up", Meaning::Told(&Family::BOTH)),
    ("reapply", Meaning::Told(&Family::BOTH)),
    ("dhcp4-change", Meaning::Told(&[Family::Ipv4])),
    ("dhcp6-change", Meaning::Told(&[Family::Ipv6])),
    ("pre-down", Meaning::Lost),
    ("down", Meaning::Lost),
    ("vpn-pre-up", Meaning::Nothing),
    ("vpn-up", Meaning::Nothing),
    ("vpn-pre-down", Meaning::Nothing),
    ("vpn-down", Meaning::Nothing),
    ("hostname", Meaning::Nothing),
    ("connectivity-change", Meaning::Nothing),
    ("dns-change", Meaning::Nothing),
    ("device-add", Meaning::Nothing),
    ("device-delete", Meaning::Nothing),
];

const ACTION: &str = "NM_DISPATCHER_ACTION";
const INTERFACE: &str = "DEVICE_IP_IFACE";
/// `1` on a connection that somebody else has configured.
const EXTERNAL: &str = "CONNECTION_EXTERNAL";

/// What the names of the variables about addresses and leases begin with.
const PREFIXES: [&str; 4] = ["IP4_", "IP6_", "DHCP4_", "DHCP6_"];

/// How "no gateway" is written, in either family.
const NO_GATEWAY: [&str; 2] = ["0.0.0.0", "::"];

/// The options with routes. NetworkManager's own DHCP client gives prefixes and gateways
/// by turns, also for option 33, whose prefixes it makes up by class, as it routes them
/// itself; its dhclient of old gave dhclient's forms.
const ROUTES: &[(RouteOption, &[&str])] = &[
    (
        RouteOption::Classless,
        &["DHCP4_RFC3442_CLASSLESS_STATIC_ROUTES"],
    ),
    (
        RouteOption::Microsoft,
        &["DHCP4_MS_CLASSLESS_STATIC_ROUTES"],
    ),
    (RouteOption::Static, &["DHCP4_STATIC_ROUTES"]),
];

pub(super) struct Adapter;

impl super::Adapter for Adapter {
    fn parse(&self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        parse(raw)
    }

    fn describes_lease(&self, variable: &str) -> bool {
        let is_value = |prefix: &&str| variable.starts_with(*prefix);
        self.identifies_event(variable) || PREFIXES.iter().any(is_value)
    }

    fn identifies_event(&self, variable: &str) -> bool {
        [ACTION, INTERFACE, EXTERNAL].contains(&variable)
    }

    fn takes_arguments(&self) -> bool {
        true
    }
}

fn parse(raw: &RawEvent) -> Result<Parsed, Refusal> {
    let mut fields = Fields::new(raw);
    let argument = raw.arguments.get(1).map(String::as_str);
    let Some(action) = raw.get(ACTION).or(argument) else {
        return Ok(fields.nothing());
    };
    let Some(meaning) = meaning(ACTIONS, action) else {
        return Ok(fields.unknown(ACTION, action));
    };
    if matches!(meaning, Meaning::Nothing) || raw.get(EXTERNAL) == Some("1") {
        return Ok(fields.nothing());
    }
    let interface = interface(raw, action)?;
    if interface.as_str() == "lo" {
        return Ok(fields.nothing());
    }
    let changes = match meaning {
        Meaning::Nothing => Vec::new(),
        Meaning::Lost => vec![LeaseChange::Lost4(None), LeaseChange::Lost6],
        Meaning::Told(families) => families
            .iter()
            .map(|family| match family {
                Family::Ipv4 => told4(&mut fields),
                Family::Ipv6 => Ok(told6(&mut fields)),
            })
            .collect::<Result<_, _>>()?,
    };
    Ok(fields.told(interface, action, changes))
}

/// The interface that has the addresses, else the one that the event is about.
fn interface(raw: &RawEvent, action: &str) -> Result<InterfaceRef, Refusal> {
    let variable = raw.variables.get(INTERFACE).map(|name| (INTERFACE, name));
    let argument = raw.arguments.first().map(|name| ("argument 1", name));
    let given = [variable, argument].into_iter().flatten();
    let Some((variable, name)) = given.into_iter().find(|(_, name)| !name.is_empty()) else {
        return Err(Refusal::NoInterface {
            reason: Quoted::shortened(action).0,
            variable: INTERFACE,
        });
    };
    name.parse()
        .map_err(|source| Refusal::BadInterface { variable, source })
}

/// IPv4: what DHCP leased; else the connection's own addresses, when they have a gateway.
fn told4(fields: &mut Fields<'_>) -> Result<LeaseChange, Refusal> {
    let addresses: Vec<Ipv4Network> = addresses(fields, "IP4_ADDRESS_");
    if let Some(address) = fields.leased("DHCP4_IP_ADDRESS")? {
        let others = addresses.iter().map(|listed| listed.ip());
        let mut others: BTreeSet<Ipv4Addr> = others.collect();
        // Without the leased one the list is from before this lease.
        if !others.remove(&address) {
            others.clear();
        }
        return Ok(LeaseChange::Gained4(Lease4 {
            address,
            others,
            prefix_length: fields.mask("DHCP4_SUBNET_MASK"),
            router: fields.router("DHCP4_ROUTERS"),
            classless: fields.routes(ROUTES),
            mtu: fields.mtu("DHCP4_INTERFACE_MTU"),
            expires: fields.plain("DHCP4_EXPIRY", "a number of seconds since 1970"),
            lasts: None,
        }));
    }
    let not_told = LeaseChange::LookAgain(Family::Ipv4);
    let Some((first, others)) = addresses.split_first() else {
        return Ok(not_told);
    };
    let gateway = fields.get("IP4_GATEWAY");
    if gateway.is_some_and(|gateway| NO_GATEWAY.contains(&gateway)) {
        // Addresses of its own and no way out: this is no uplink, whatever it was before.
        return Ok(LeaseChange::Lost4(None));
    }
    let Some(router) = fields.router("IP4_GATEWAY") else {
        return Ok(not_told);
    };
    let others = others.iter().map(|other| other.ip());
    Ok(LeaseChange::Gained4(Lease4 {
        address: first.ip(),
        others: others.filter(|other| *other != first.ip()).collect(),
        prefix_length: Some(first.prefix()).filter(|length| *length > 0),
        router: Some(router),
        classless: None,
        mtu: None,
        expires: None,
        lasts: None,
    }))
}

/// IPv6: the kernel knows of routers, prefixes and addresses with a lifetime. An address
/// without one it shows as anybody's, so the connection's addresses are told, when there is
/// a router for them.
fn told6(fields: &mut Fields<'_>) -> LeaseChange {
    let not_told = LeaseChange::LookAgain(Family::Ipv6);
    let gateway = fields.get("IP6_GATEWAY");
    if gateway.is_none_or(|gateway| NO_GATEWAY.contains(&gateway)) {
        return not_told;
    }
    let Some(_) = fields.plain::<Ipv6Addr>("IP6_GATEWAY", "an IPv6 address") else {
        return not_told;
    };
    let addresses: Vec<Ipv6Network> = addresses(fields, "IP6_ADDRESS_");
    if addresses.is_empty() {
        return not_told;
    }
    let held = |address: &Ipv6Network| (address.ip(), LeasedAddress::default());
    LeaseChange::Changed6 {
        replace: true,
        gained: Lease6 {
            addresses: addresses.iter().map(held).collect(),
            ..Lease6::default()
        },
        lost_addresses: Vec::new(),
        lost_prefixes: Vec::new(),
    }
}

/// The connection's addresses that reach beyond the link: `PREFIX_0`, `PREFIX_1` and on,
/// each with its prefix length and, behind a blank, a gateway that counts no more.
fn addresses<N>(fields: &mut Fields<'_>, prefix: &str) -> Vec<N>
where
    N: FromStr + Copy,
    ipnetwork::IpNetwork: From<N>,
{
    let mut found = Vec::new();
    for number in 0.. {
        let variable = format!("{prefix}{number}");
        let Some(text) = fields.get(&variable) else {
            break;
        };
        if number == MAX_ADDRESSES {
            let why = format!("{MAX_ADDRESSES} addresses count, those from here on do not");
            fields.drop(&variable, text, why);
            break;
        }
        let word = text.split_ascii_whitespace().next().unwrap_or_default();
        let network = word.parse::<N>().ok();
        let ip = |network: N| -> IpAddr { ipnetwork::IpNetwork::from(network).ip() };
        match network.filter(|network| is_unicast_host(ip(*network))) {
            Some(network) => found.extend(Some(network).filter(|n| !is_link_local(ip(*n)))),
            None => fields.drop(&variable, text, "not an address that a host can have"),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::client::Client;

    fn parsed(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Parsed, Refusal> {
        let own = |text: &&str| (*text).to_owned();
        let variables = variables
            .iter()
            .map(|(name, value)| (own(name), own(value)));
        Client::NmDispatcher.parse(&RawEvent {
            arguments: arguments.iter().map(own).collect(),
            ..RawEvent::new(Client::NmDispatcher, variables.collect())
        })
    }

    fn changes(arguments: &[&str], variables: &[(&str, &str)]) -> Vec<LeaseChange> {
        let event = parsed(arguments, variables).unwrap().event.unwrap();
        event.changes
    }

    const AGAIN: [LeaseChange; 2] = [
        LeaseChange::LookAgain(Family::Ipv4),
        LeaseChange::LookAgain(Family::Ipv6),
    ];

    #[test]
    fn the_interface_is_the_one_with_the_addresses() {
        let event = |arguments: &[&str], variables: &[(&str, &str)]| {
            parsed(arguments, variables).map(|parsed| parsed.event.unwrap().interface)
        };
        let both = [("DEVICE_IP_IFACE", "ppp0"), ("DEVICE_IFACE", "wwan0")];
        assert_eq!(event(&["wwan0", "up"], &both), Ok("ppp0".parse().unwrap()));
        let empty = [("DEVICE_IP_IFACE", "")];
        assert_eq!(event(&["eth1", "up"], &empty), Ok("eth1".parse().unwrap()));
        assert!(matches!(
            event(&["", "up"], &[]),
            Err(Refusal::NoInterface { .. })
        ));
        assert!(matches!(
            event(&["../eth1", "down"], &[]),
            Err(Refusal::BadInterface { .. })
        ));
    }

    #[test]
    fn what_is_not_ours_to_handle_is_no_event() {
        let external = [("CONNECTION_EXTERNAL", "1"), ("IP4_GATEWAY", "192.0.2.1")];
        for (arguments, variables) in [
            (["docker0", "up"], &external[..]),
            (["docker0", "down"], &external),
            (["lo", "up"], &[]),
            (["tun0", "vpn-up"], &[]),
            (["tun0", "vpn-down"], &[]),
            (["none", "hostname"], &[]),
            (["", "connectivity-change"], &[]),
            (["", "dns-change"], &[]),
            (["eth1", "device-delete"], &[]),
        ] {
            let parsed = parsed(&arguments, variables).unwrap();
            assert_eq!(parsed.event, None, "{arguments:?}");
            assert_eq!(parsed.dropped, [], "{arguments:?}");
        }
        let unknown = parsed(&["eth1", "port-up"], &[]).unwrap();
        assert_eq!((unknown.event, unknown.dropped.len()), (None, 1));
    }

    #[test]
    fn no_values_are_not_a_lost_lease() {
        assert_eq!(changes(&["eth1", "pre-up"], &[]), AGAIN);
        assert_eq!(changes(&["eth1", "dhcp4-change"], &[]), AGAIN[..1]);
        let not_ready = [
            ("IP4_GATEWAY", "0.0.0.0"),
            ("IP4_NUM_ROUTES", "0"),
            ("IP6_ADDRESS_0", "fe80::10/64 0.0.0.0"),
            ("IP6_GATEWAY", "0.0.0.0"),
        ];
        assert_eq!(changes(&["eth1", "up"], &not_ready), AGAIN);
    }

    #[test]
    fn addresses_without_a_gateway_end_the_lease() {
        let values = [
            ("IP4_ADDRESS_0", "192.0.2.20/24 0.0.0.0"),
            ("IP4_GATEWAY", "0.0.0.0"),
        ];
        assert_eq!(
            changes(&["eth1", "up"], &values),
            [LeaseChange::Lost4(None), AGAIN[1].clone()]
        );
        // Not so when it cannot be read.
        let garbage = [values[0], ("IP4_GATEWAY", "$(id)")];
        assert_eq!(changes(&["eth1", "up"], &garbage), AGAIN);
        let link_local = [("IP4_ADDRESS_0", "169.254.7.7/16 0.0.0.0"), values[1]];
        assert_eq!(changes(&["eth1", "up"], &link_local), AGAIN);
    }

    #[test]
    fn static_addresses_come_along_with_a_lease() {
        let others = |leased: &str| {
            let values = [
                ("DHCP4_IP_ADDRESS", leased),
                ("IP4_ADDRESS_0", "192.0.2.10/24 192.0.2.1"),
                ("IP4_ADDRESS_1", "192.0.2.77/24 192.0.2.1"),
            ];
            match changes(&["eth1", "dhcp4-change"], &values).first() {
                Some(LeaseChange::Gained4(lease)) => lease.others.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(others("192.0.2.10"), ["192.0.2.77".parse().unwrap()].into());
        assert_eq!(others("192.0.2.11"), [].into());
    }

    #[test]
    fn routes_are_read_in_both_encodings() {
        let routes = |variable: &str, value: &str| {
            let values = [("DHCP4_IP_ADDRESS", "192.0.2.10"), (variable, value)];
            match changes(&["eth1", "up"], &values).first() {
                Some(LeaseChange::Gained4(lease)) => lease.classless.clone().unwrap().routes,
                other => panic!("{other:?}"),
            }
        };
        for (variable, by_networkmanager, by_dhclient) in [
            (
                "DHCP4_RFC3442_CLASSLESS_STATIC_ROUTES",
                "0.0.0.0/0 192.0.2.1 198.51.100.0/24 192.0.2.254",
                "0 192 0 2 1 24 198 51 100 192 0 2 254",
            ),
            (
                "DHCP4_MS_CLASSLESS_STATIC_ROUTES",
                "10.20.0.0/16 0.0.0.0",
                "16 10 20 0 0 0 0",
            ),
            (
                "DHCP4_STATIC_ROUTES",
                "10.0.0.0/8 192.0.2.254",
                "10.0.0.0 192.0.2.254",
            ),
        ] {
            let expected = routes(variable, by_networkmanager);
            assert_eq!(routes(variable, by_dhclient), expected, "{variable}");
        }
    }

    #[test]
    fn ipv6_addresses_count_when_there_is_a_router() {
        let values = [
            ("IP6_ADDRESS_0", "2001:db8::20/64 fe80::1"),
            ("IP6_ADDRESS_1", "fe80::20/64 fe80::1"),
            ("IP6_ADDRESS_2", "ff02::1/64 fe80::1"),
            ("IP6_GATEWAY", "fe80::1"),
        ];
        let seen = parsed(&["eth1", "dhcp6-change"], &values).unwrap();
        let [
            LeaseChange::Changed6 {
                replace: true,
                gained,
                ..
            },
        ] = &seen.event.unwrap().changes[..]
        else {
            panic!();
        };
        let held: Vec<_> = gained.addresses.keys().map(ToString::to_string).collect();
        assert_eq!(held, ["2001:db8::20"]);
        assert_eq!(seen.dropped.len(), 1);
        let none = [values[0], ("IP6_GATEWAY", "::")];
        assert_eq!(changes(&["eth1", "dhcp6-change"], &none), AGAIN[1..]);
    }

    /// Every variable that the parser looks at.
    const VARIABLES: &[&str] = &[
        "CONNECTION_EXTERNAL",
        "DEVICE_IP_IFACE",
        "DHCP4_EXPIRY",
        "DHCP4_INTERFACE_MTU",
        "DHCP4_IP_ADDRESS",
        "DHCP4_MS_CLASSLESS_STATIC_ROUTES",
        "DHCP4_RFC3442_CLASSLESS_STATIC_ROUTES",
        "DHCP4_ROUTERS",
        "DHCP4_STATIC_ROUTES",
        "DHCP4_SUBNET_MASK",
        "IP4_ADDRESS_0",
        "IP4_ADDRESS_1",
        "IP4_GATEWAY",
        "IP6_ADDRESS_0",
        "IP6_ADDRESS_1",
        "IP6_GATEWAY",
        "NM_DISPATCHER_ACTION",
    ];

    /// Values that are right, nearly right, and what attacks are made of.
    const TOKENS: &[&str] = &[
        "eth1",
        "192.0.2.10",
        "192.0.2.10/24",
        "192.0.2.10/33",
        "0.0.0.0",
        "0.0.0.0/0",
        "127.0.0.1/8",
        "255.255.255.0",
        "2001:db8::1/64",
        "fe80::1",
        "::",
        "/",
        "-1",
        "18446744073709551616",
        "$(id)",
        "\n",
        "\u{fffd}",
    ];

    proptest! {
        #[test]
        fn hostile_values_give_sane_leases_or_none(
            variables in btree_map(
                select(VARIABLES),
                prop_oneof![
                    vec(select(TOKENS), 0..6).prop_map(|tokens| tokens.join(" ")),
                    any::<String>(),
                ],
                0..12,
            ),
            action in select(&["up", "dhcp4-change", "dhcp6-change", "reapply", "down"][..]),
        ) {
            let variables: Vec<(&str, &str)> =
                variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let event = parsed(&["eth1", action], &variables).ok().and_then(|p| p.event);
            for change in event.into_iter().flat_map(|event| event.changes) {
                let sources: Vec<IpAddr> = match change {
                    LeaseChange::Gained4(lease) => {
                        let all = lease.others.into_iter().chain([lease.address]);
                        all.map(IpAddr::V4).collect()
                    }
                    LeaseChange::Changed6 { gained, .. } => {
                        gained.addresses.into_keys().map(IpAddr::V6).collect()
                    }
                    _ => Vec::new(),
                };
                for source in sources {
                    prop_assert!(is_unicast_host(source) && !is_link_local(source));
                }
            }
        }
    }
}
