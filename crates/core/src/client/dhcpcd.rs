//! dhcpcd 9 and 10: DHCP, DHCPv6, router advertisements and static addresses.
//!
//! Its hooks get the event as `reason`, the interface as `interface` and what is known as
//! `new_*`, `old_*` and `nd1_*` (dhcpcd-run-hooks(8)). DHCPv6 comes whole in every event;
//! addresses and prefixes have numbers. One client tells of the IPv6 addresses of DHCPv6,
//! of routers and of its configuration in events of their own, so none of these lists is
//! all that the interface has: what DHCPv6 lost is its old list without the new one.
//!
//! Lifetimes come without the moment they begin, so they count from the event. dhcpcd
//! reports the end as long as it lives.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::Ipv6Network;

use super::fields::{Fields, MAX_ADDRESSES, delegated_prefix, leased_address, meaning};
use crate::address::Family;
use crate::event::{LeaseChange, Parsed, RawEvent, Refusal};
use crate::lease::{Lease4, Lease6, LeasedAddress, LeasedPrefix, RouteOption};

/// What a reason means.
#[derive(Clone, Copy)]
enum Meaning {
    Gained4,
    Lost4,
    Gained6,
    Lost6,
    /// An address of the configuration, not of a lease.
    Static6,
    /// What is known of all routers.
    Advertised,
    /// The kernel's IPv6 addresses may be others now.
    Look6,
    /// The leases of both families are gone.
    Gone,
    Nothing,
}

/// Every reason of dhcpcd-run-hooks(8) and of the source, and what it means.
const REASONS: &[(&str, Meaning)] = &[
    ("BOUND", Meaning::Gained4),
    ("RENEW", Meaning::Gained4),
    ("REBIND", Meaning::Gained4),
    ("REBOOT", Meaning::Gained4),
    ("TIMEOUT", Meaning::Gained4), // an old lease that is still valid
    ("INFORM", Meaning::Gained4),
    ("STATIC", Meaning::Gained4),
    ("EXPIRE", Meaning::Lost4), // also after a NAK, and when the carrier is lost
    ("NAK", Meaning::Lost4),
    ("RELEASE", Meaning::Lost4),
    ("STOP", Meaning::Lost4), // a release, too
    ("FAIL", Meaning::Lost4),
    ("BOUND6", Meaning::Gained6),
    ("RENEW6", Meaning::Gained6),
    ("REBIND6", Meaning::Gained6),
    ("REBOOT6", Meaning::Gained6),
    ("TIMEOUT6", Meaning::Gained6),
    ("INFORM6", Meaning::Gained6),
    ("EXPIRE6", Meaning::Lost6),
    ("RELEASE6", Meaning::Lost6),
    ("STOP6", Meaning::Lost6),
    ("STATIC6", Meaning::Static6),
    ("ROUTERADVERT", Meaning::Advertised),
    // On the interface that a part of another one's delegated prefix was given to: the
    // lease is the other's.
    ("DELEGATED6", Meaning::Look6),
    ("STOPPED", Meaning::Gone),
    ("NOCARRIER", Meaning::Gone), // the addresses go right after it
    ("DEPARTED", Meaning::Gone),
    ("PREINIT", Meaning::Nothing),
    ("CARRIER", Meaning::Nothing),
    ("NOCARRIER_ROAMING", Meaning::Nothing), // everything is kept on purpose
    ("RECONFIGURE", Meaning::Nothing),
    ("3RDPARTY", Meaning::Nothing),
    ("IPV4LL", Meaning::Nothing),
    ("TEST", Meaning::Nothing),
    ("DUMP", Meaning::Nothing),
    ("DUMP6", Meaning::Nothing),
    ("UNKNOWN", Meaning::Nothing),
    ("UNKNOWN6", Meaning::Nothing),
];

/// Where each option may be found, in order of precedence.
const ROUTES: &[(RouteOption, &[&str])] = &[
    (RouteOption::Classless, &["new_classless_static_routes"]),
    (RouteOption::Microsoft, &["new_ms_classless_static_routes"]),
    (RouteOption::Static, &["new_static_routes"]),
];

/// The names of DHCPv6 addresses and prefixes, with a number between each two words.
const ADDRESSES: &[&[&str]] = &[
    &["dhcp6_ia_na", "_ia_addr", ""],
    &["dhcp6_ia_ta", "_ia_addr", ""],
];
const PREFIXES: &[&[&str]] = &[&["dhcp6_ia_pd", "_prefix", ""]];

/// How a refusal calls them.
const ADDRESS: &str = "new_dhcp6_ia_na*_ia_addr*";
const PREFIX: &str = "new_dhcp6_ia_pd*_prefix*";

/// The names of the prefixes that routers advertise.
const ADVERTISED: &[&[&str]] = &[&["nd", "_prefix_information", "_prefix"]];

/// DHCPv6's way to say "for ever" (RFC 8415 7.7).
const FOR_EVER: u32 = u32::MAX;

/// The variables that say what the event is.
const WORDS: [&str; 3] = ["reason", "interface", "protocol"];

pub(super) struct Adapter;

impl super::Adapter for Adapter {
    fn parse(&self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        parse(raw)
    }

    fn describes_lease(&self, variable: &str) -> bool {
        self.identifies_event(variable)
            || variable.starts_with("new_")
            || variable.starts_with("old_")
            || is_of_router(variable)
    }

    fn identifies_event(&self, variable: &str) -> bool {
        WORDS.contains(&variable)
    }
}

fn parse(raw: &RawEvent) -> Result<Parsed, Refusal> {
    let mut fields = Fields::new(raw);
    let Some(reason) = raw.get("reason") else {
        return Ok(fields.nothing());
    };
    let Some(meaning) = meaning(REASONS, reason) else {
        return Ok(fields.unknown("reason", reason));
    };
    let changes = match meaning {
        Meaning::Nothing => return Ok(fields.nothing()),
        Meaning::Gained4 => vec![gained4(&mut fields, reason)?],
        Meaning::Lost4 => vec![LeaseChange::Lost4(
            fields.plain("old_ip_address", "an IPv4 address"),
        )],
        Meaning::Gained6 => vec![gained6(raw, &mut fields)?],
        Meaning::Lost6 => vec![lost6(raw, &mut fields)],
        Meaning::Static6 => vec![static6(&mut fields)?],
        Meaning::Advertised => vec![advertised(raw, &mut fields)],
        Meaning::Look6 => vec![LeaseChange::LookAgain(Family::Ipv6)],
        Meaning::Gone => vec![LeaseChange::Lost4(None), LeaseChange::Lost6],
    };
    let interface = fields.interface("interface", reason)?;
    Ok(fields.told(interface, reason, changes))
}

fn gained4(fields: &mut Fields<'_>, reason: &str) -> Result<LeaseChange, Refusal> {
    let variable = "new_ip_address";
    let address: Ipv4Addr = fields.leased(variable)?.ok_or_else(|| Refusal::NoAddress {
        reason: reason.to_owned(),
        variable,
    })?;
    let length = fields.length4("new_subnet_cidr");
    Ok(LeaseChange::Gained4(Lease4 {
        address,
        others: BTreeSet::new(),
        prefix_length: length.or_else(|| fields.mask("new_subnet_mask")),
        router: fields.router("new_routers"),
        classless: fields.routes(ROUTES),
        mtu: fields.mtu("new_interface_mtu"),
        expires: None,
        lasts: fields.lasts("new_dhcp_lease_time"),
    }))
}

fn gained6(raw: &RawEvent, fields: &mut Fields<'_>) -> Result<LeaseChange, Refusal> {
    let mut gained = Lease6::default();
    for (name, text) in numbered(raw, "new_", ADDRESSES, fields) {
        let address = leased_address(ADDRESS, text)?;
        let lifetime = lifetime(raw, name, fields);
        if lifetime != Some(0) {
            let lasts = lifetime.filter(|seconds| *seconds < FOR_EVER);
            let expires = None;
            let leased = LeasedAddress { expires, lasts };
            gained.addresses.insert(address, leased);
        }
    }
    for (name, text) in numbered(raw, "new_", PREFIXES, fields) {
        let text = with_length(raw, name, text);
        let prefix = delegated_prefix(PREFIX, &text)?;
        let lifetime = lifetime(raw, name, fields);
        if lifetime != Some(0) {
            let lasts = lifetime.filter(|seconds| *seconds < FOR_EVER);
            let expires = None;
            let delegated = LeasedPrefix { expires, lasts };
            gained.prefixes.insert(prefix, delegated);
        }
    }
    // What the server ended by a lifetime of 0 is named as new, or as old only.
    let mut lost = named(raw, "old_", fields);
    let ended = named(raw, "new_", &mut Fields::new(raw));
    lost.addresses.extend(ended.addresses);
    lost.prefixes.extend(ended.prefixes);
    lost.addresses
        .retain(|address| !gained.addresses.contains_key(address));
    lost.prefixes
        .retain(|prefix| !gained.prefixes.contains_key(prefix));
    Ok(LeaseChange::Changed6 {
        replace: false,
        gained,
        lost_addresses: lost.addresses.into_iter().collect(),
        lost_prefixes: lost.prefixes.into_iter().collect(),
    })
}

fn lost6(raw: &RawEvent, fields: &mut Fields<'_>) -> LeaseChange {
    let lost = named(raw, "old_", fields);
    if lost.addresses.is_empty() && lost.prefixes.is_empty() {
        return LeaseChange::Lost6;
    }
    LeaseChange::Changed6 {
        replace: false,
        gained: Lease6::default(),
        lost_addresses: lost.addresses.into_iter().collect(),
        lost_prefixes: lost.prefixes.into_iter().collect(),
    }
}

/// A static address, which the kernel shows as permanent.
fn static6(fields: &mut Fields<'_>) -> Result<LeaseChange, Refusal> {
    let Some(address) = fields.leased::<Ipv6Addr>("new_ip6_address")? else {
        return Ok(LeaseChange::LookAgain(Family::Ipv6));
    };
    Ok(LeaseChange::Changed6 {
        replace: false,
        gained: Lease6 {
            addresses: [(address, LeasedAddress::default())].into(),
            ..Lease6::default()
        },
        lost_addresses: Vec::new(),
        lost_prefixes: Vec::new(),
    })
}

/// What a DHCPv6 lease names, whatever its lifetimes.
#[derive(Default)]
struct Named {
    addresses: BTreeSet<Ipv6Addr>,
    prefixes: BTreeSet<Ipv6Network>,
}

fn named(raw: &RawEvent, which: &str, fields: &mut Fields<'_>) -> Named {
    let mut all = Named::default();
    for (name, text) in numbered(raw, which, ADDRESSES, fields) {
        if let Ok(address) = text.parse() {
            all.addresses.insert(address);
        } else {
            fields.drop(name, text, "not an IPv6 address");
        }
    }
    for (name, text) in numbered(raw, which, PREFIXES, fields) {
        let text = with_length(raw, name, text);
        if let Ok(prefix) = delegated_prefix(PREFIX, &text) {
            all.prefixes.insert(prefix);
        } else {
            fields.drop(name, &text, "not an IPv6 prefix");
        }
    }
    all
}

/// The prefixes that routers advertise for autoconfiguration. The kernel would show an
/// address of a prefix that lasts for ever as permanent, as if somebody had set it by hand.
fn advertised(raw: &RawEvent, fields: &mut Fields<'_>) -> LeaseChange {
    let mut prefixes = BTreeSet::new();
    for (name, text) in numbered(raw, "", ADVERTISED, fields) {
        let stem = name.strip_suffix("_prefix").unwrap_or(name);
        let flags = raw.get(&format!("{stem}_flags")).unwrap_or_default();
        if !flags.contains('A') || lifetime(raw, stem, fields) == Some(0) {
            continue;
        }
        let text = with_length(raw, stem, text);
        match delegated_prefix(PREFIX, &text) {
            Ok(prefix) => {
                prefixes.insert(prefix);
            }
            Err(_) => fields.drop(name, &text, "not a prefix that hosts can have addresses in"),
        }
    }
    LeaseChange::Advertised(prefixes)
}

/// The number of seconds that an address or prefix is valid.
fn lifetime(raw: &RawEvent, name: &str, fields: &mut Fields<'_>) -> Option<u32> {
    let name = format!("{name}_vltime");
    let text = raw.get(&name)?;
    let lifetime = text.parse().ok();
    if lifetime.is_none() {
        fields.drop(&name, text, "not a number of seconds");
    }
    lifetime
}

/// A prefix with its length, which is in a variable of its own.
fn with_length(raw: &RawEvent, name: &str, prefix: &str) -> String {
    let length = raw.get(&format!("{name}_length")).unwrap_or_default();
    format!("{prefix}/{length}")
}

/// The variables of some names with numbers in them, with their values.
fn numbered<'a>(
    raw: &'a RawEvent,
    which: &str,
    names: &[&[&str]],
    fields: &mut Fields<'_>,
) -> Vec<(&'a str, &'a str)> {
    let is_meant = |name: &str| {
        let name = name.strip_prefix(which);
        name.is_some_and(|name| names.iter().any(|words| is_numbered(name, words)))
    };
    let variables = raw.variables.keys().filter(|name| is_meant(name));
    let mut found: Vec<(&str, &str)> = variables
        .filter_map(|name| Some((name.as_str(), raw.get(name)?)))
        .collect();
    if let Some((name, text)) = found.get(MAX_ADDRESSES) {
        let why = format!("{} like it, of which {MAX_ADDRESSES} count", found.len());
        fields.drop(name, text, why);
    }
    found.truncate(MAX_ADDRESSES);
    found
}

/// Whether a name is these words with a number between each two.
fn is_numbered(name: &str, words: &[&str]) -> bool {
    let mut rest = name;
    for (position, word) in words.iter().enumerate() {
        if position > 0 {
            let after = without_number(rest);
            if after.len() == rest.len() {
                return false;
            }
            rest = after;
        }
        let Some(after) = rest.strip_prefix(word) else {
            return false;
        };
        rest = after;
    }
    rest.is_empty()
}

fn without_number(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_digit())
}

/// Whether a variable tells of a router: `nd1_lifetime`, but not `nd1_source_address`, its
/// hardware address.
fn is_of_router(variable: &str) -> bool {
    let rest = variable.strip_prefix("nd").unwrap_or_default();
    let after = without_number(rest);
    after.len() < rest.len() && after.starts_with('_') && after != "_source_address"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::address::{is_link_local, is_unicast_host};
    use crate::client::Client;

    #[test]
    fn only_names_with_a_number_between_the_words_are_meant() {
        let words = ["dhcp6_ia_na", "_ia_addr", ""];
        assert!(is_numbered("dhcp6_ia_na1_ia_addr1", &words));
        assert!(is_numbered("dhcp6_ia_na12_ia_addr007", &words));
        for name in [
            "dhcp6_ia_na_ia_addr1",
            "dhcp6_ia_na1_ia_addr",
            "dhcp6_ia_na1_ia_addr1_vltime",
            "dhcp6_ia_na-1_ia_addr1",
            "dhcp6_ia_pd1_prefix1",
            "",
        ] {
            assert!(!is_numbered(name, &words), "{name}");
        }
    }

    #[test]
    fn what_tells_of_the_lease_is_kept_and_nothing_else() {
        use crate::client::Adapter as _;
        for (variable, is_kept) in [
            ("reason", true),
            ("new_dhcp6_ia_pd1_prefix1_length", true),
            ("old_ip_address", true),
            ("nd2_prefix_information1_vltime", true),
            ("nd1_source_address", false),
            ("nd_secret", false),
            ("PATH", false),
        ] {
            assert_eq!(Adapter.describes_lease(variable), is_kept, "{variable}");
        }
    }

    #[test]
    fn parts_beyond_the_bound_are_left_out_with_a_note() {
        let count = MAX_ADDRESSES + 3;
        let part = |n| {
            (
                format!("new_dhcp6_ia_na1_ia_addr{n}"),
                format!("2001:db8::{n}"),
            )
        };
        let mut variables: BTreeMap<String, String> = (1..=count).map(part).collect();
        variables.insert("reason".to_owned(), "BOUND6".to_owned());
        variables.insert("interface".to_owned(), "eth0".to_owned());
        let parsed = parse(&RawEvent::new(Client::Dhcpcd, variables)).unwrap();
        let changes = parsed.event.map(|event| event.changes);
        let Some(
            [
                LeaseChange::Changed6 {
                    gained,
                    lost_addresses,
                    ..
                },
            ],
        ) = changes.as_deref()
        else {
            panic!("{changes:?}");
        };
        assert_eq!(gained.addresses.len(), MAX_ADDRESSES);
        assert!(lost_addresses.is_empty());
        assert_eq!(parsed.dropped.len(), 1);
    }

    const NAMES: &[&str] = &[
        "protocol",
        "if_up",
        "new_ip_address",
        "old_ip_address",
        "new_ip6_address",
        "new_subnet_cidr",
        "new_subnet_mask",
        "new_routers",
        "new_interface_mtu",
        "new_classless_static_routes",
        "new_ms_classless_static_routes",
        "new_static_routes",
        "new_dhcp6_ia_na1_ia_addr1",
        "new_dhcp6_ia_na1_ia_addr1_vltime",
        "new_dhcp6_ia_ta9_ia_addr99999999999999999999",
        "new_dhcp6_ia_pd1_prefix1",
        "new_dhcp6_ia_pd1_prefix1_length",
        "new_dhcp6_ia_pd1_prefix1_vltime",
        "old_dhcp6_ia_na1_ia_addr1",
        "old_dhcp6_ia_pd1_prefix1",
        "old_dhcp6_ia_pd1_prefix1_length",
        "nd1_addr1",
        "nd1_prefix_information1_prefix",
        "nd1_prefix_information1_length",
        "nd1_prefix_information1_vltime",
        "nd_addr1",
        "nd1_é",
    ];

    const VALUES: &[&str] = &[
        "",
        "0",
        "1",
        "24",
        "64",
        "129",
        "4294967295",
        "-1",
        "192.0.2.10",
        "0.0.0.0/0",
        "198.51.100.0/24",
        "/",
        "::",
        "::1",
        "fe80::1",
        "ff02::1",
        "2001:db8::1",
        "2001:db8:1f00::",
        "2001:db8::1/64",
        "2001:db8::1/",
        "é",
        "\u{fffd}",
        ";",
        "%n",
    ];

    fn raw() -> impl Strategy<Value = RawEvent> {
        let known: Vec<&str> = REASONS.iter().map(|(name, _)| *name).collect();
        let value = proptest::collection::vec(select(VALUES), 0..4).prop_map(|v| v.join(" "));
        let value = prop_oneof![3 => select(VALUES).prop_map(str::to_owned), 1 => value];
        let variables = proptest::collection::btree_map(
            select(NAMES).prop_map(str::to_owned),
            value,
            0..NAMES.len(),
        );
        (variables, select(known)).prop_map(|(mut variables, reason)| {
            variables.insert("reason".to_owned(), reason.to_owned());
            variables.insert("interface".to_owned(), "eth0".to_owned());
            RawEvent::new(Client::Dhcpcd, variables)
        })
    }

    proptest! {
        #[test]
        fn no_environment_stops_the_parser_or_makes_it_believe_the_impossible(raw in raw()) {
            let parsed = parse(&raw);
            let event = parsed.ok().and_then(|parsed| parsed.event);
            for change in event.into_iter().flat_map(|event| event.changes) {
                let mut addresses: Vec<std::net::IpAddr> = Vec::new();
                match change {
                    LeaseChange::Gained4(lease) => addresses.push(lease.address.into()),
                    LeaseChange::Changed6 { replace, gained, lost_addresses, lost_prefixes } => {
                        prop_assert!(!replace);
                        prop_assert!(!lost_addresses.iter().any(|a| gained.addresses.contains_key(a)));
                        prop_assert!(!lost_prefixes.iter().any(|p| gained.prefixes.contains_key(p)));
                        addresses.extend(gained.addresses.keys().map(|a| std::net::IpAddr::V6(*a)));
                        addresses.extend(gained.prefixes.keys().map(|p| std::net::IpAddr::V6(p.network())));
                    }
                    LeaseChange::Advertised(prefixes) => {
                        addresses.extend(prefixes.iter().map(|p| std::net::IpAddr::V6(p.network())));
                    }
                    LeaseChange::Lost4(_) | LeaseChange::Lost6 | LeaseChange::LookAgain(_) => {}
                }
                for address in addresses {
                    prop_assert!(is_unicast_host(address) && !is_link_local(address), "{address}");
                }
            }
        }
    }
}
