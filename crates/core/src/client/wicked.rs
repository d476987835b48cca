//! wicked of SUSE, by the lease file that it writes for other programs.
//!
//! wicked tells its scripts an action and an interface, and nothing of the lease (its
//! `extensions/dispatch`). What it got by DHCPv4 it writes to a file of `KEY='value'` lines
//! first (`src/leaseinfo.c`). It escapes nothing, and some values are free text of the server, so
//! a value may hold a quote or further lines: a line that is not of that form does not
//! count, and of two lines with one key the first, since free text comes last.
//!
//! IPv6 is read from the kernel: addresses by DHCPv6 and by router advertisement have a
//! lifetime there, and the router is the advertisement's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::fields::{Fields, MAX_ADDRESSES, meaning};
use crate::address::{Family, is_link_local, is_unicast_host};
use crate::client::Client;
use crate::event::{LeaseChange, Parsed, RawEvent, Refusal};
use crate::interface::{IfIndex, InterfaceName};
use crate::lease::{Lease4, RouteOption};

/// What an action means.
#[derive(Clone, Copy)]
enum Meaning {
    /// The lease file says what there is.
    Look,
    /// The interface has nothing any more.
    Gone,
    /// The interface is as it was.
    Nothing,
}

/// The actions of wicked's scripts, and the one of our netconfig module.
const ACTIONS: &[(&str, Meaning)] = &[
    ("post-up", Meaning::Look),
    ("update", Meaning::Look), // a lease came or was renewed
    ("post-down", Meaning::Gone),
    ("pre-up", Meaning::Nothing),
    ("pre-down", Meaning::Nothing), // the addresses are still in use
    ("up-timeout", Meaning::Nothing),
];

pub(super) struct Adapter;

impl super::Adapter for Adapter {
    fn parse(&self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        parse(raw)
    }

    fn describes_lease(&self, _variable: &str) -> bool {
        false
    }

    fn identifies_event(&self, _variable: &str) -> bool {
        false
    }

    fn takes_arguments(&self) -> bool {
        true
    }

    fn lease_file_of<'a>(&self, raw: &'a RawEvent) -> Option<&'a str> {
        raw.arguments.get(1).map(String::as_str)
    }

    fn lease_file(&self, name: &InterfaceName, _index: IfIndex) -> Option<String> {
        Some(format!("/run/wicked/leaseinfo.{name}.dhcp.ipv4"))
    }
}

fn parse(raw: &RawEvent) -> Result<Parsed, Refusal> {
    let file = raw.lease_file.text().unwrap_or_default();
    let file = RawEvent::new(Client::Wicked, variables(file));
    let mut fields = Fields::new(&file);
    let Some(action) = raw.arguments.first() else {
        return Ok(fields.nothing());
    };
    let Some(meaning) = meaning(ACTIONS, action) else {
        return Ok(fields.unknown("action", action));
    };
    if matches!(meaning, Meaning::Nothing) {
        return Ok(fields.nothing());
    }
    let name = raw.arguments.get(1).ok_or_else(|| Refusal::NoInterface {
        reason: action.clone(),
        variable: "$2",
    })?;
    let interface = name.parse().map_err(|source| Refusal::BadInterface {
        variable: "$2",
        source,
    })?;
    let change = match meaning {
        // Without a lease the file is gone, was never there, or is being written: when the
        // address goes with the lease, the kernel shows it.
        Meaning::Look => lease(&file, &mut fields, name)?
            .map_or(LeaseChange::LookAgain(Family::Ipv4), LeaseChange::Gained4),
        Meaning::Gone | Meaning::Nothing => LeaseChange::Lost4(None),
    };
    let changes = vec![change, LeaseChange::LookAgain(Family::Ipv6)];
    Ok(fields.told(interface, action, changes))
}

/// The lease that a file holds; `None` when there is no file, or it is another's.
fn lease(
    file: &RawEvent,
    fields: &mut Fields<'_>,
    interface: &str,
) -> Result<Option<Lease4>, Refusal> {
    let Some(owner) = fields.get("INTERFACE") else {
        return Ok(None);
    };
    if owner != interface {
        let why = format!("the lease file is not of {interface}; it does not count");
        fields.drop("INTERFACE", owner, why);
        return Ok(None);
    }
    // wicked writes the file in place, and the lifetime behind all that counts here: a file
    // without it is not finished, and tells nothing.
    if fields.get("LEASETIME").is_none() {
        return Ok(None);
    }
    let Some(address) = fields.leased("IPADDR")? else {
        return Ok(None);
    };
    let lifetime = fields.plain("LEASETIME", "a number of seconds");
    Ok(Some(Lease4 {
        address,
        others: others(file, fields),
        prefix_length: fields
            .length4("PREFIXLEN")
            .or_else(|| fields.mask("NETMASK")),
        router: fields.router("GATEWAYS"),
        classless: fields.routes(&[(RouteOption::Given, &["ROUTES"])]),
        mtu: fields.mtu("MTU"),
        expires: fields.end_of_life("ACQUIRED", lifetime),
        lasts: None,
    }))
}

/// The addresses beside the first, which wicked numbers from 1.
fn others(file: &RawEvent, fields: &mut Fields<'_>) -> BTreeSet<Ipv4Addr> {
    let mut found = BTreeSet::new();
    for number in 1..MAX_ADDRESSES {
        let variable = format!("IPADDR_{number}");
        let Some(text) = file.get(&variable) else {
            break;
        };
        let possible = |a: &Ipv4Addr| is_unicast_host((*a).into()) && !is_link_local((*a).into());
        match text.parse().ok().filter(possible) {
            Some(address) => {
                found.insert(address);
            }
            None => fields.drop(&variable, text, "not an address that can be leased"),
        }
    }
    found
}

/// The file's lines in the forms that [`Fields`] reads: addresses without their lengths,
/// which stand in a line of their own, and routes as prefix and gateway.
fn variables(text: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for line in text.lines() {
        let Some((key, value)) = unquoted(line) else {
            continue;
        };
        let value = match key {
            "ROUTES" => routes(value).unwrap_or_else(|| value.to_owned()),
            _ if key.starts_with("IPADDR") => {
                let (address, _) = value.split_once('/').unwrap_or((value, ""));
                address.to_owned()
            }
            _ => value.to_owned(),
        };
        variables.entry(key.to_owned()).or_insert(value);
    }
    variables
}

/// `KEY='value'`, with no quote in the value.
fn unquoted(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let is_key = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let value = value.strip_prefix('\'')?.strip_suffix('\'')?;
    (key.bytes().all(is_key) && !value.contains('\'')).then_some((key, value))
}

/// `198.51.100.0,24,192.0.2.254` as `198.51.100.0/24 192.0.2.254`, for each word.
fn routes(value: &str) -> Option<String> {
    let route = |word: &str| {
        let mut parts = word.split(',');
        let (destination, length, gateway) = (parts.next()?, parts.next()?, parts.next()?);
        let whole = parts.next().is_none();
        whole.then(|| format!("{destination}/{length} {gateway}"))
    };
    let routes: Option<Vec<String>> = value.split_ascii_whitespace().map(route).collect();
    routes.map(|routes| routes.join(" "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Dropped, LeaseFile};

    fn parsed(action: &str, file: Option<&str>) -> Result<Parsed, Refusal> {
        Client::Wicked.parse(&RawEvent {
            arguments: vec![action.to_owned(), "eth0".to_owned()],
            lease_file: file.map_or(LeaseFile::Absent, |text| LeaseFile::Text(text.to_owned())),
            ..RawEvent::new(Client::Wicked, BTreeMap::new())
        })
    }

    fn lease_of(file: &str) -> (Option<Lease4>, Vec<Dropped>) {
        let Parsed { event, dropped } = parsed("post-up", Some(file)).unwrap();
        match event.unwrap().changes.remove(0) {
            LeaseChange::Gained4(lease) => (Some(lease), dropped),
            _ => (None, dropped),
        }
    }

    #[test]
    fn free_text_of_the_server_cannot_take_the_place_of_the_lease() {
        let file = "INTERFACE='eth0'\nIPADDR='192.0.2.10/24'\nPREFIXLEN='24'\n\
                    GATEWAYS='192.0.2.1'\nLEASETIME='60'\nMESSAGE='x'\nIPADDR='198.51.100.9/24'\n\
                    GATEWAYS='198.51.100.1''\nROOTPATH='it's\n";
        let (lease, dropped) = lease_of(file);
        let lease = lease.unwrap();
        assert_eq!(lease.address.to_string(), "192.0.2.10");
        assert_eq!(lease.router.unwrap().to_string(), "192.0.2.1");
        assert_eq!(dropped, []);
    }

    #[test]
    fn a_file_of_another_card_is_no_lease() {
        let (lease, dropped) = lease_of("INTERFACE='eth1'\nIPADDR='192.0.2.10/24'\n");
        assert!(lease.is_none());
        assert_eq!(dropped.len(), 1);
    }

    #[test]
    fn a_file_that_is_half_written_is_no_lease() {
        let file = "INTERFACE='eth0'\nTYPE='dhcp'\nFAMILY='ipv4'\nIPADDR='192.0.2.10/24'\n\
                    GATEWAYS='192.0.2.1'\nACQUIRED='1796050916'\nLEASETIME='3600'";
        for end in 0..file.len() {
            assert_eq!(lease_of(&file[..end]).0, None, "{end}");
        }
        assert!(lease_of(file).0.unwrap().router.is_some());
    }

    proptest! {
        #[test]
        fn no_file_stops_the_parser(
            lines in proptest::collection::vec(
                "(IPADDR|IPADDR_1|PREFIXLEN|NETMASK|GATEWAYS|ROUTES|MTU|ACQUIRED|LEASETIME|\\PC{0,5})\
                 =('[0-9a-f.,/ ]{0,30}'|\\PC{0,20})",
                0..12,
            ),
        ) {
            let file = format!("INTERFACE='eth0'\n{}", lines.join("\n"));
            if let Ok(Parsed { event: Some(event), .. }) = parsed("update", Some(&file)) {
                prop_assert_eq!(event.changes.len(), 2);
                if let Some(LeaseChange::Gained4(lease)) = event.changes.first() {
                    prop_assert!(is_unicast_host(lease.address.into()));
                    prop_assert!(lease.prefix_length.is_none_or(|length| (1..=32).contains(&length)));
                }
            }
        }
    }

    #[test]
    fn an_unknown_action_changes_nothing() {
        let Parsed { event, dropped } = parsed("post-lunch", None).unwrap();
        assert!(event.is_none());
        assert_eq!(dropped.len(), 1);
    }

    #[test]
    fn values_of_any_form_stop_nothing() {
        for value in [
            "",
            "x",
            "0.0.0.0/0",
            "192.0.2.1,24",
            ",,,",
            "é",
            "256.1.1.1/24",
        ] {
            for key in [
                "IPADDR_1",
                "PREFIXLEN",
                "NETMASK",
                "GATEWAYS",
                "ROUTES",
                "MTU",
                "LEASETIME",
            ] {
                let file = format!(
                    "INTERFACE='eth0'\nIPADDR='192.0.2.10/24'\n{key}='{value}'\nLEASETIME='60'\n"
                );
                if (key, value) == ("LEASETIME", "") {
                    continue;
                }
                let (lease, _) = lease_of(&file);
                assert_eq!(
                    lease.unwrap().address.to_string(),
                    "192.0.2.10",
                    "{key}={value}"
                );
            }
        }
    }
}
