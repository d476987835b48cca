//! ISC dhclient 4.x, IPv4 and IPv6.
//!
//! Its script exports the event as `reason`, the interface as `interface` and the lease as
//! `new_*` and `old_*` (dhclient-script(8)). Values are as the server sent them, or as
//! other hooks left them: an empty one means "not given". DHCPv6 comes one address or
//! prefix at a time, and a lifetime of 0 in a "gained" event is a removal.
//!
//! The script puts a gained address on the interface between its enter hooks and its exit
//! hooks, so ours runs in both: what the enter hook tells of is [`Event::ahead`](crate::Event).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::Ipv6Network;

use super::AHEAD;
use super::fields::{Fields, meaning};
use crate::event::{LeaseChange, Parsed, RawEvent, Refusal};
use crate::lease::{Lease4, Lease6, LeasedAddress, LeasedPrefix, RouteOption};

/// What a reason means.
#[derive(Clone, Copy)]
enum Meaning {
    Gained4,
    Lost4,
    Gained6,
    Lost6,
    Nothing,
}

/// Every reason of dhclient-script(8) and of dhclient.c, and what it means.
const REASONS: &[(&str, Meaning)] = &[
    ("BOUND", Meaning::Gained4),
    ("RENEW", Meaning::Gained4), // also at T2: this client never says REBIND
    ("REBIND", Meaning::Gained4),
    ("REBOOT", Meaning::Gained4),
    ("TIMEOUT", Meaning::Gained4), // an old lease that is still valid
    ("EXPIRE", Meaning::Lost4),    // also after a NAK
    ("FAIL", Meaning::Lost4),
    ("RELEASE", Meaning::Lost4),
    ("STOP", Meaning::Lost4),
    ("BOUND6", Meaning::Gained6),
    ("RENEW6", Meaning::Gained6),
    ("REBIND6", Meaning::Gained6),
    ("EXPIRE6", Meaning::Lost6),
    ("RELEASE6", Meaning::Lost6),
    ("STOP6", Meaning::Lost6),
    ("PREINIT", Meaning::Nothing),
    ("PREINIT6", Meaning::Nothing),
    ("MEDIUM", Meaning::Nothing),
    ("ARPCHECK", Meaning::Nothing),
    ("ARPSEND", Meaning::Nothing),
    ("NBI", Meaning::Nothing),
    ("DEPREF6", Meaning::Nothing),
    ("V6ONLY", Meaning::Nothing),
];

/// Where each option may be found, in order of precedence. The first name of each is the
/// one that distributions declare, `unknown_N` is what an undeclared option gets.
const ROUTES: &[(RouteOption, &[&str])] = &[
    (
        RouteOption::Classless,
        &[
            "new_rfc3442_classless_static_routes",
            "new_classless_static_routes",
            "new_unknown_121",
        ],
    ),
    (
        RouteOption::Microsoft,
        &["new_ms_classless_static_routes", "new_unknown_249"],
    ),
    (RouteOption::Static, &["new_static_routes"]),
];

/// The variables that say what the event is.
const WORDS: [&str; 2] = ["reason", "interface"];

/// What the names of all other variables of dhclient-script(8) about leases begin with.
const PREFIXES: [&str; 4] = ["new_", "old_", "cur_", "alias_"];

pub(super) struct Adapter;

impl super::Adapter for Adapter {
    fn parse(&self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        parse(raw)
    }

    /// The shim of the enter hook says so.
    fn is_ahead(&self, raw: &RawEvent) -> bool {
        raw.arguments.iter().eq([AHEAD])
    }

    fn describes_lease(&self, variable: &str) -> bool {
        let is_lease = |prefix: &&str| variable.starts_with(*prefix);
        self.identifies_event(variable) || PREFIXES.iter().any(is_lease)
    }

    fn identifies_event(&self, variable: &str) -> bool {
        WORDS.contains(&variable)
    }
}

fn parse(raw: &RawEvent) -> Result<Parsed, Refusal> {
    let mut fields = Fields::new(raw);
    // Without an interface there is no `reason` either, only REASON=NBI.
    let Some(reason) = raw.get("reason") else {
        return Ok(fields.nothing());
    };
    let Some(meaning) = meaning(REASONS, reason) else {
        return Ok(fields.unknown("reason", reason));
    };
    let change = match meaning {
        Meaning::Nothing => return Ok(fields.nothing()),
        Meaning::Gained4 => gained4(&mut fields, reason)?,
        Meaning::Lost4 => LeaseChange::Lost4(fields.plain("old_ip_address", "an IPv4 address")),
        Meaning::Gained6 => gained6(&mut fields)?,
        Meaning::Lost6 => lost6(&mut fields),
    };
    let interface = fields.interface("interface", reason)?;
    Ok(fields.told(interface, reason, vec![change]))
}

fn gained4(fields: &mut Fields<'_>, reason: &str) -> Result<LeaseChange, Refusal> {
    let variable = "new_ip_address";
    let address: Ipv4Addr = fields.leased(variable)?.ok_or_else(|| Refusal::NoAddress {
        reason: reason.to_owned(),
        variable,
    })?;
    Ok(LeaseChange::Gained4(Lease4 {
        address,
        others: BTreeSet::new(),
        prefix_length: fields.mask("new_subnet_mask"),
        router: fields.router("new_routers"),
        classless: fields.routes(ROUTES),
        mtu: fields.mtu("new_interface_mtu"),
        expires: fields.plain("new_expiry", "a number of seconds since 1970"),
        lasts: None,
    }))
}

fn gained6(fields: &mut Fields<'_>) -> Result<LeaseChange, Refusal> {
    let address: Option<Ipv6Addr> = fields.leased("new_ip6_address")?;
    let prefix = fields.prefix6("new_ip6_prefix")?;
    let lifetime: Option<u64> = fields.plain("new_max_life", "a number of seconds");
    if lifetime == Some(0) {
        return Ok(LeaseChange::Changed6 {
            replace: false,
            gained: Lease6::default(),
            lost_addresses: address.into_iter().collect(),
            lost_prefixes: prefix.into_iter().collect(),
        });
    }
    let expires = fields.end_of_life("new_life_starts", lifetime);
    let leased = LeasedAddress {
        expires,
        ..LeasedAddress::default()
    };
    let delegated = LeasedPrefix {
        expires,
        ..LeasedPrefix::default()
    };
    Ok(LeaseChange::Changed6 {
        replace: false,
        gained: Lease6 {
            addresses: BTreeMap::from_iter(address.map(|a| (a, leased))),
            prefixes: BTreeMap::from_iter(prefix.map(|p| (p, delegated))),
            ..Lease6::default()
        },
        lost_addresses: Vec::new(),
        lost_prefixes: Vec::new(),
    })
}

fn lost6(fields: &mut Fields<'_>) -> LeaseChange {
    let named = ["old_ip6_address", "old_ip6_prefix"].map(|variable| fields.get(variable));
    if named == [None, None] {
        return LeaseChange::Lost6;
    }
    let address: Option<Ipv6Addr> = fields.plain("old_ip6_address", "an IPv6 address");
    let prefix: Option<Ipv6Network> = fields.plain("old_ip6_prefix", "an IPv6 prefix");
    LeaseChange::Changed6 {
        replace: false,
        gained: Lease6::default(),
        lost_addresses: address.into_iter().collect(),
        lost_prefixes: prefix.into_iter().collect(),
    }
}
