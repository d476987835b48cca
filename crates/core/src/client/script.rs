//! What `leaseroute apply --interface` says: addresses, gateways and routes that a script
//! knows, for programs that have no adapter of their own.
//!
//! The variables are those that the command makes of its options:
//!
//! | variable | value |
//! |---|---|
//! | `interface` | its name |
//! | `address4`, `address6` | addresses with or without a prefix length, by blanks |
//! | `gateway4`, `gateway6` | one address |
//! | `routes4`, `routes6` | destination and gateway by turns; 0.0.0.0 or `::` is on-link |
//! | `mtu` | in bytes |
//! | `expires` | in seconds since 1970 |
//!
//! A family with addresses is told of whole: what was known of it before is replaced. A
//! family without any is not told of. Addresses that somebody set by hand are permanent
//! in the kernel, so IPv6 ones become sources by this lease alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

use super::fields::{Fields, MAX_ADDRESSES};
use crate::address::{Family, is_link_local, is_unicast_host};
use crate::event::{LeaseChange, Parsed, Quoted, RawEvent, Refusal};
use crate::lease::{GivenRoute6, Lease4, Lease6, LeasedAddress, MAX_LEASE_ROUTES, RouteOption};

/// What the event is called in logs.
const REASON: &str = "static";

const VARIABLES: [&str; 9] = [
    "interface",
    "address4",
    "gateway4",
    "routes4",
    "address6",
    "gateway6",
    "routes6",
    "mtu",
    "expires",
];

pub(super) struct Adapter;

impl super::Adapter for Adapter {
    fn parse(&self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        parse(raw)
    }

    fn describes_lease(&self, variable: &str) -> bool {
        VARIABLES.contains(&variable)
    }

    fn identifies_event(&self, variable: &str) -> bool {
        variable == "interface"
    }
}

fn parse(raw: &RawEvent) -> Result<Parsed, Refusal> {
    let mut fields = Fields::new(raw);
    let interface = fields.interface("interface", REASON)?;
    let expires = fields.plain("expires", "a number of seconds since 1970");
    let changes: Vec<LeaseChange> = [
        ipv4(&mut fields, expires)?.map(LeaseChange::Gained4),
        ipv6(&mut fields, expires)?.map(|gained| LeaseChange::Changed6 {
            replace: true,
            gained,
            lost_addresses: Vec::new(),
            lost_prefixes: Vec::new(),
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    if changes.is_empty() {
        return Err(Refusal::NoAddress {
            reason: REASON.to_owned(),
            variable: "address4 or address6",
        });
    }
    Ok(fields.told(interface, REASON, changes))
}

fn ipv4(fields: &mut Fields<'_>, expires: Option<u64>) -> Result<Option<Lease4>, Refusal> {
    let addresses: Vec<(Ipv4Addr, Option<u8>)> = addresses(fields, "address4", |network| {
        let IpNetwork::V4(network) = network else {
            return None;
        };
        Some((network.ip(), network.prefix()))
    })?;
    let Some((address, prefix_length)) = addresses.first().copied() else {
        drop_without_address(fields, &["gateway4", "routes4", "mtu"], Family::Ipv4);
        return Ok(None);
    };
    let others = addresses.iter().map(|(other, _)| *other);
    let mut classless = fields.routes(&[(RouteOption::Given, &["routes4"])]);
    if let Some(given) = &mut classless {
        let is_default = |destination: Ipv4Network| destination.prefix() == 0;
        if given.routes.iter().any(|r| is_default(r.destination)) {
            drop_default(fields, "routes4");
            given.routes.retain(|r| !is_default(r.destination));
        }
    }
    Ok(Some(Lease4 {
        address,
        others: others.filter(|other| *other != address).collect(),
        prefix_length,
        router: single(fields, "gateway4")
            .then(|| fields.router("gateway4"))
            .flatten(),
        classless,
        mtu: fields.mtu("mtu"),
        expires,
        lasts: None,
    }))
}

fn ipv6(fields: &mut Fields<'_>, expires: Option<u64>) -> Result<Option<Lease6>, Refusal> {
    let addresses: Vec<(Ipv6Addr, Option<u8>)> = addresses(fields, "address6", |network| {
        let IpNetwork::V6(network) = network else {
            return None;
        };
        Some((network.ip(), network.prefix()))
    })?;
    if addresses.is_empty() {
        drop_without_address(fields, &["gateway6", "routes6"], Family::Ipv6);
        return Ok(None);
    }
    let leased = LeasedAddress {
        expires,
        ..LeasedAddress::default()
    };
    let addresses: BTreeMap<Ipv6Addr, LeasedAddress> = addresses
        .into_iter()
        .map(|(address, _)| (address, leased))
        .collect();
    let mut routes = routes6(fields);
    if let Some(gateway) = gateway6(fields, &addresses) {
        routes.extend(
            Ipv6Network::new(Ipv6Addr::UNSPECIFIED, 0).map(|destination| GivenRoute6 {
                destination,
                gateway: Some(gateway),
            }),
        );
    }
    Ok(Some(Lease6 {
        addresses,
        routes,
        ..Lease6::default()
    }))
}

/// The addresses of one family in the order they are given, with their prefix lengths.
/// What is given must be possible: half of a person's list is not what was meant.
fn addresses<A>(
    fields: &mut Fields<'_>,
    variable: &'static str,
    of_family: impl Fn(IpNetwork) -> Option<(A, u8)>,
) -> Result<Vec<(A, Option<u8>)>, Refusal>
where
    A: Copy + Into<IpAddr>,
{
    let Some(text) = fields.get(variable) else {
        return Ok(Vec::new());
    };
    let refused = |word: &str| Refusal::ImpossibleAddress {
        variable,
        value: Quoted::shortened(word),
    };
    let mut found = Vec::new();
    for word in text.split_ascii_whitespace() {
        let network = word.parse().ok().and_then(&of_family);
        let (address, length) = network
            .filter(|(address, length)| {
                let address: IpAddr = (*address).into();
                *length > 0 && is_unicast_host(address) && !is_link_local(address)
            })
            .ok_or_else(|| refused(word))?;
        if word.contains('/') && is_no_host(address.into(), length) {
            return Err(refused(word));
        }
        if found.len() == MAX_ADDRESSES {
            let why = format!("more than {MAX_ADDRESSES} addresses; the others are left out");
            fields.drop(variable, text, why);
            break;
        }
        found.push((address, word.contains('/').then_some(length)));
    }
    Ok(found)
}

/// Whether an address is the first or the last of its prefix, which in IPv4 are the network
/// and its broadcast address (RFC 1122 3.2.1.3); a prefix of two has neither (RFC 3021).
fn is_no_host(address: IpAddr, length: u8) -> bool {
    let IpAddr::V4(address) = address else {
        return false;
    };
    let network = Ipv4Network::new(address, length)
        .ok()
        .filter(|_| length < 31);
    network.is_some_and(|n| address == n.network() || address == n.broadcast())
}

fn gateway6(fields: &mut Fields<'_>, own: &BTreeMap<Ipv6Addr, LeasedAddress>) -> Option<Ipv6Addr> {
    if !single(fields, "gateway6") {
        return None;
    }
    let gateway: Ipv6Addr = fields.plain("gateway6", "an IPv6 address")?;
    if is_unicast_host(gateway.into()) && !own.contains_key(&gateway) {
        return Some(gateway);
    }
    fields.drop("gateway6", &gateway.to_string(), "no router can have it");
    None
}

/// Whether a variable holds one word; of several none is taken.
fn single(fields: &mut Fields<'_>, variable: &'static str) -> bool {
    let Some(text) = fields.get(variable) else {
        return false;
    };
    let is_single = text.split_ascii_whitespace().count() == 1;
    if !is_single {
        fields.drop(variable, text, "more than one for a family");
    }
    is_single
}

/// Destination and gateway by turns. One that cannot be leaves all of them out.
fn routes6(fields: &mut Fields<'_>) -> BTreeSet<GivenRoute6> {
    let variable = "routes6";
    let Some(text) = fields.get(variable) else {
        return BTreeSet::new();
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let mut routes = BTreeSet::new();
    if words.len() > 2 * MAX_LEASE_ROUTES {
        fields.drop(
            variable,
            text,
            format!("more than {MAX_LEASE_ROUTES} routes"),
        );
        return routes;
    }
    for pair in words.chunks(2) {
        match route6(pair) {
            Some(route) if route.destination.prefix() == 0 => drop_default(fields, variable),
            Some(route) => {
                routes.insert(route);
            }
            None => {
                let why = format!(
                    "{} is no route; all of them are left out",
                    Quoted(pair.join(" "))
                );
                fields.drop(variable, text, why);
                return BTreeSet::new();
            }
        }
    }
    routes
}

fn route6(pair: &[&str]) -> Option<GivenRoute6> {
    let [destination, gateway] = pair else {
        return None;
    };
    let (address, length) = destination.split_once('/')?;
    let network = Ipv6Network::new(address.parse().ok()?, length.parse().ok()?).ok()?;
    let destination = Ipv6Network::new(network.network(), network.prefix()).ok()?;
    let gateway: Ipv6Addr = gateway.parse().ok()?;
    let is_default = destination.prefix() == 0;
    let is_wide = destination.network().is_unspecified() && destination.prefix() < 8;
    let address = destination.network().into();
    let possible = is_default || is_wide || (is_unicast_host(address) && !is_link_local(address));
    let gateway = (!gateway.is_unspecified()).then_some(gateway);
    let usable = gateway.is_none_or(|gateway| is_unicast_host(gateway.into()));
    (possible && usable).then_some(GivenRoute6 {
        destination,
        gateway,
    })
}

fn drop_default(fields: &mut Fields<'_>, variable: &'static str) {
    if let Some(text) = fields.get(variable) {
        fields.drop(
            variable,
            text,
            "a default route in it is left out: that is the gateway",
        );
    }
}

/// Notes what belongs to a family of which no address is given.
fn drop_without_address(fields: &mut Fields<'_>, variables: &[&'static str], family: Family) {
    for variable in variables {
        if let Some(text) = fields.get(variable) {
            fields.drop(variable, text, format!("no {family} address goes with it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::client::Client;

    fn parsed(pairs: &[(&str, &str)]) -> Result<Parsed, Refusal> {
        let variables = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Client::Script.parse(&RawEvent::new(Client::Script, variables.collect()))
    }

    #[test]
    fn only_families_with_addresses_are_told_of() {
        let both = [
            ("interface", "eth1"),
            ("address4", "192.0.2.10/24"),
            ("address6", "2001:db8:1::10/64"),
        ];
        let changes = |pairs| parsed(pairs).unwrap().event.unwrap().changes.len();
        assert_eq!(changes(&both), 2);
        assert_eq!(changes(&both[..2]), 1);
        assert!(matches!(parsed(&both[..1]), Err(Refusal::NoAddress { .. })));
    }

    #[test]
    fn one_impossible_address_refuses_the_whole() {
        for bad in [
            "127.0.0.1/8",
            "169.254.1.1",
            "224.0.0.1",
            "0.0.0.0",
            "192.0.2.1/33",
            "192.0.2.1/0",
            "192.0.2.1/",
            "192.0.2.0/24",
            "192.0.2.255/24",
            "2001:db8::1",
            "eth0",
        ] {
            let text = format!("192.0.2.10/24 {bad}");
            let refused = parsed(&[("interface", "eth1"), ("address4", &text)]);
            assert!(
                matches!(refused, Err(Refusal::ImpossibleAddress { .. })),
                "{bad}: {refused:?}"
            );
        }
        for bad in [
            "fe80::1/64",
            "::1",
            "ff02::1",
            "::ffff:192.0.2.1",
            "192.0.2.1",
        ] {
            let refused = parsed(&[("interface", "eth1"), ("address6", bad)]);
            assert!(
                matches!(refused, Err(Refusal::ImpossibleAddress { .. })),
                "{bad}: {refused:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_is_dropped_with_a_note() {
        let good = [
            ("interface", "eth1"),
            ("address4", "192.0.2.10/24"),
            ("address6", "2001:db8:1::10/64"),
        ];
        assert_eq!(parsed(&good).unwrap().dropped, []);
        for (variable, value) in [
            ("gateway4", "127.0.0.1"),
            ("gateway4", "192.0.2.1 192.0.2.2"),
            ("gateway6", "ff02::1"),
            ("gateway6", "fe80::1 fe80::2"),
            ("gateway6", "2001:db8:1::10"),
            ("routes4", "198.51.100.0/24"),
            ("routes4", "0.0.0.0/0 192.0.2.1"),
            ("routes4", "127.0.0.0/8 192.0.2.1"),
            ("routes6", "2001:db8:5::/48"),
            ("routes6", "2001:db8:5::/129 fe80::1"),
            ("routes6", "fe80::/64 ::"),
            ("routes6", "::/0 fe80::1"),
            ("mtu", "575"),
            ("expires", "soon"),
        ] {
            let pairs: Vec<_> = good.into_iter().chain([(variable, value)]).collect();
            let dropped = parsed(&pairs).unwrap().dropped;
            assert_eq!(dropped.len(), 1, "{variable}={value}: {dropped:?}");
        }
    }

    #[test]
    fn what_has_no_address_of_its_family_is_dropped() {
        let pairs = [
            ("interface", "eth1"),
            ("address4", "192.0.2.10/24"),
            ("gateway6", "fe80::1"),
        ];
        assert_eq!(
            parsed(&[
                ("interface", "eth1"),
                ("address6", "2001:db8::1"),
                ("mtu", "1400")
            ])
            .unwrap()
            .dropped
            .len(),
            1
        );
        let dropped = parsed(&pairs).unwrap().dropped;
        assert_eq!(
            dropped.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["dropped gateway6 \"fe80::1\": no IPv6 address goes with it"]
        );
    }

    proptest! {
        #[test]
        fn nothing_stops_the_parser(
            values in proptest::collection::vec("[0-9a-f:./ ]{0,40}|\\PC{0,20}", VARIABLES.len()),
        ) {
            let pairs: Vec<_> = VARIABLES.into_iter().zip(values.iter().map(String::as_str)).collect();
            if let Ok(Parsed { event: Some(event), .. }) = parsed(&pairs) {
                prop_assert!(!event.changes.is_empty());
            }
            let mut pairs = pairs;
            pairs[0].1 = "eth0";
            prop_assert!(parsed(&pairs).is_ok() || parsed(&pairs).is_err());
        }
    }
}
