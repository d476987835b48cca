//! systemd-networkd, through the scripts of networkd-dispatcher.
//!
//! A script is told the interface as `IFACE` and its state as `STATE`, and nothing of a
//! lease. Its other variables are lists for people, which differ between releases and may
//! be older or newer than the state, so none of them is believed. The IPv4 lease is in the
//! file that networkd keeps for its own use (dhcp_lease_save() in sd-dhcp-lease.c, 252 to
//! 257), and that file, not the name of the state, says whether there is a lease: states
//! are told late, and `no-carrier` may come when the carrier is back. IPv6 leases are not
//! written anywhere. Their addresses are the kernel's to show.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::fields::{Fields, meaning};
use crate::address::Family;
use crate::event::{LeaseChange, LeaseFile, Parsed, RawEvent, Refusal};
use crate::interface::{IfIndex, InterfaceName};
use crate::lease::{ClasslessRoutes, Lease4, RouteOption};

/// Whether a state is worth a look at the lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Look,
    Nothing,
}

/// Every state of networkctl(1), operational and administrative.
const STATES: &[(&str, Meaning)] = &[
    ("routable", Meaning::Look),   // the first routable address is there
    ("configured", Meaning::Look), // all of them are
    ("degraded", Meaning::Look),   // none is left but link-local ones
    ("degraded-carrier", Meaning::Look),
    ("carrier", Meaning::Look), // not even those, as without link-local addressing
    ("enslaved", Meaning::Look),
    ("no-carrier", Meaning::Look),
    ("dormant", Meaning::Look),
    ("off", Meaning::Look), // also when the interface is gone
    ("missing", Meaning::Nothing),
    ("pending", Meaning::Nothing),
    ("initialized", Meaning::Nothing),
    ("configuring", Meaning::Nothing),
    ("unmanaged", Meaning::Nothing),
    ("failed", Meaning::Nothing),
    ("linger", Meaning::Nothing), // comes behind `off`
];

/// The variables that say what the event is.
const WORDS: [&str; 4] = ["IFACE", "STATE", "OperationalState", "AdministrativeState"];

/// What else tells of addresses, for people. `json` and `ESSID` tell of more than those.
const ADDRESSES: [&str; 3] = ["ADDR", "IP_ADDRS", "IP6_ADDRS"];

pub(super) struct Adapter;

impl super::Adapter for Adapter {
    fn parse(&self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        parse(raw)
    }

    fn describes_lease(&self, variable: &str) -> bool {
        self.identifies_event(variable) || ADDRESSES.contains(&variable)
    }

    fn identifies_event(&self, variable: &str) -> bool {
        WORDS.contains(&variable)
    }

    fn lease_file_of<'a>(&self, raw: &'a RawEvent) -> Option<&'a str> {
        let state = raw.get("STATE")?;
        let looks = STATES.contains(&(state, Meaning::Look));
        raw.get("IFACE").filter(|_| looks)
    }

    fn lease_file(&self, _name: &InterfaceName, index: IfIndex) -> Option<String> {
        Some(format!("/run/systemd/netif/leases/{index}"))
    }
}

fn parse(raw: &RawEvent) -> Result<Parsed, Refusal> {
    let mut fields = Fields::new(raw);
    let Some(state) = raw.get("STATE") else {
        return Ok(fields.nothing());
    };
    let Some(meaning) = meaning(STATES, state) else {
        return Ok(fields.unknown("STATE", state));
    };
    // The dispatcher tells of every interface at its start.
    if meaning == Meaning::Nothing || raw.get("IFACE") == Some("lo") {
        return Ok(fields.nothing());
    }
    let interface = fields.interface("IFACE", state)?;
    let change = match &raw.lease_file {
        LeaseFile::Text(file) => {
            let file = lease_variables(raw, file);
            let mut of_file = Fields::new(&file);
            let lease = lease4(&mut of_file, state)?;
            fields.dropped.append(&mut of_file.dropped);
            LeaseChange::Gained4(lease)
        }
        // Whose lease is it, if networkd leaves the interface alone? Not ours to end.
        LeaseFile::Absent if raw.get("AdministrativeState") == Some("unmanaged") => {
            LeaseChange::LookAgain(Family::Ipv4)
        }
        LeaseFile::Absent => LeaseChange::Lost4(None),
        LeaseFile::Unreadable => {
            let why = "cannot be read; the lease stays as it is known";
            fields.drop("lease file", "", why);
            LeaseChange::LookAgain(Family::Ipv4)
        }
    };
    let changes = vec![change, LeaseChange::LookAgain(Family::Ipv6)];
    Ok(fields.told(interface, state, changes))
}

/// The variables of a lease file. Some values are texts of the server's choice, and the
/// addresses come before all of them: so the first of two equal names counts.
fn lease_variables(raw: &RawEvent, file: &str) -> RawEvent {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let mut variables = BTreeMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once('=')) {
        let first = variables.entry(name.to_owned());
        first.or_insert_with(|| value.to_owned());
    }
    RawEvent::new(raw.client, variables)
}

/// The lease of a lease file. What it lasts (`LIFETIME`) does not matter: renewals are told to
/// nobody, and networkd takes the address off the card in time, or keeps it on purpose.
fn lease4(fields: &mut Fields<'_>, state: &str) -> Result<Lease4, Refusal> {
    let variable = "ADDRESS";
    let address: Ipv4Addr = fields.leased(variable)?.ok_or_else(|| Refusal::NoAddress {
        reason: state.to_owned(),
        variable,
    })?;
    Ok(Lease4 {
        address,
        others: BTreeSet::new(),
        prefix_length: fields.mask("NETMASK"),
        router: fields.router("ROUTER"),
        classless: routes(fields),
        mtu: fields.mtu("MTU"),
        expires: None,
        lasts: None,
    })
}

/// The routes of option 121, else 33; networkd knows nothing of 249. Both are written as
/// `DESTINATION/LENGTH,GATEWAY` with blanks between them.
fn routes(fields: &mut Fields<'_>) -> Option<ClasslessRoutes> {
    let mut written = |variable| fields.routes(&[(RouteOption::Classless, &[variable])]);
    let of_option_33 = |routes| ClasslessRoutes {
        option: RouteOption::Static,
        ..routes
    };
    let has_default = |routes: &ClasslessRoutes| {
        let mut routes = routes.routes.iter();
        routes.any(|route| route.destination.prefix() == 0)
    };
    written("CLASSLESS_ROUTES")
        .or_else(|| written("STATIC_ROUTES").map(of_option_33))
        .or_else(|| {
            // Until 250 one variable held either. Only option 121 can have a default, and
            // where it has none the router is better than nothing.
            let either = written("ROUTES")?;
            let is_classless = has_default(&either);
            Some(if is_classless {
                either
            } else {
                of_option_33(either)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    const LEASE: &str = "# This is private data. Do not parse.\nADDRESS=192.0.2.10\n\
        NETMASK=255.255.255.0\nROUTER=192.0.2.1 192.0.2.2\nSERVER_ADDRESS=192.0.2.1\n\
        MTU=1400\nT1=30min\nT2=52min 30s\nLIFETIME=1h\nDNS=192.0.2.53\n";

    fn raw(variables: &[(&str, &str)], lease: Option<&str>) -> RawEvent {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        RawEvent {
            lease_file: lease.map_or(LeaseFile::Absent, |text| LeaseFile::Text(text.to_owned())),
            ..RawEvent::new(
                Client::NetworkdDispatcher,
                variables.iter().map(own).collect(),
            )
        }
    }

    fn told(state: &str, lease: Option<&str>) -> Vec<LeaseChange> {
        let raw = raw(&[("IFACE", "eth0"), ("STATE", state)], lease);
        parse(&raw).unwrap().event.unwrap().changes
    }

    fn lease(text: &str) -> Lease4 {
        match told("routable", Some(text)).first() {
            Some(LeaseChange::Gained4(lease)) => lease.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lease_file_that_cannot_be_read_ends_no_lease() {
        let raw = RawEvent {
            lease_file: LeaseFile::Unreadable,
            ..raw(&[("IFACE", "eth0"), ("STATE", "degraded")], None)
        };
        let parsed = parse(&raw).unwrap();
        assert_eq!(
            parsed.event.unwrap().changes,
            Family::BOTH.map(LeaseChange::LookAgain)
        );
        assert_eq!(parsed.dropped.len(), 1);
    }

    #[test]
    fn the_lease_file_decides_whatever_the_state_is_called() {
        let again = LeaseChange::LookAgain(Family::Ipv6);
        for (state, meaning) in STATES {
            let raw = |lease| raw(&[("IFACE", "eth0"), ("STATE", state)], lease);
            if *meaning == Meaning::Nothing {
                assert_eq!(parse(&raw(Some(LEASE))).unwrap().event, None, "{state}");
                assert_eq!(Client::NetworkdDispatcher.lease_file_of(&raw(None)), None);
                continue;
            }
            assert_eq!(
                Client::NetworkdDispatcher.lease_file_of(&raw(None)),
                Some("eth0"),
                "{state}"
            );
            let gained = LeaseChange::Gained4(lease(LEASE));
            assert_eq!(told(state, Some(LEASE)), [gained, again.clone()], "{state}");
            assert_eq!(
                told(state, None),
                [LeaseChange::Lost4(None), again.clone()],
                "{state}"
            );
        }
    }

    #[test]
    fn the_lease_is_read_as_the_server_sent_it() {
        let lease = lease(LEASE);
        assert_eq!(lease.address, Ipv4Addr::new(192, 0, 2, 10));
        assert_eq!(lease.prefix_length, Some(24));
        assert_eq!(lease.router, Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!((lease.classless, lease.mtu), (None, Some(1400)));
    }

    #[test]
    fn routes_are_those_of_option_121_else_33() {
        let with = |lines: &str| {
            let routes = lease(&format!("{LEASE}{lines}")).classless.unwrap();
            let shown = |r: &crate::lease::ClasslessRoute| match r.gateway {
                Some(gateway) => format!("{} via {gateway}", r.destination),
                None => format!("{} on-link", r.destination),
            };
            let routes_shown: Vec<String> = routes.routes.iter().map(shown).collect();
            (routes.option, routes_shown.join(", "))
        };
        let classless = "CLASSLESS_ROUTES=0.0.0.0/0,192.0.2.1 10.20.0.0/16,0.0.0.0\n";
        let both = format!("STATIC_ROUTES=198.51.100.7/32,192.0.2.254\n{classless}");
        let want = "0.0.0.0/0 via 192.0.2.1, 10.20.0.0/16 on-link";
        assert_eq!(with(&both), (RouteOption::Classless, want.to_owned()));
        let one = "198.51.100.7/32 via 192.0.2.254".to_owned();
        assert_eq!(
            with("STATIC_ROUTES=198.51.100.7/32,192.0.2.254\n"),
            (RouteOption::Static, one.clone())
        );
        // As systemd 249 of Ubuntu 22.04 writes them.
        assert_eq!(
            with("ROUTES=198.51.100.7/32,192.0.2.254\n"),
            (RouteOption::Static, one)
        );
        assert_eq!(
            with("ROUTES=0.0.0.0/0,192.0.2.1 10.20.0.0/16,0.0.0.0\n"),
            (RouteOption::Classless, want.to_owned())
        );
    }

    #[test]
    fn a_text_of_the_server_cannot_take_the_place_of_an_address() {
        let forged = format!("{LEASE}ROOT_PATH=a\nADDRESS=198.51.100.66\nROUTER=192.0.2.66\n");
        assert_eq!(lease(&forged), lease(LEASE));
    }

    #[test]
    fn an_impossible_lease_is_refused_whole() {
        for text in [
            "",
            "ADDRESS=\n",
            "ADDRESS=0.0.0.0\n",
            "ADDRESS=224.0.0.9\n",
            "ADDRESS=x",
        ] {
            let raw = raw(&[("IFACE", "eth0"), ("STATE", "routable")], Some(text));
            assert!(parse(&raw).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bad_field_costs_that_field() {
        let text = "ADDRESS=192.0.2.10\nNETMASK=255.0.255.0\nROUTER=0.0.0.0\nMTU=68\n\
            CLASSLESS_ROUTES=0.0.0.0/0\n";
        let raw = raw(&[("IFACE", "eth0"), ("STATE", "routable")], Some(text));
        let parsed = parse(&raw).unwrap();
        let dropped: Vec<&str> = parsed.dropped.iter().map(|d| d.field.as_str()).collect();
        assert_eq!(dropped, ["NETMASK", "ROUTER", "CLASSLESS_ROUTES", "MTU"]);
        assert_eq!(lease(text).prefix_length, None);
    }

    #[test]
    fn what_networkd_leaves_alone_is_not_its_to_end() {
        let unmanaged = [
            ("IFACE", "eth0"),
            ("STATE", "routable"),
            ("AdministrativeState", "unmanaged"),
        ];
        let changes = |lease| {
            parse(&raw(&unmanaged, lease))
                .unwrap()
                .event
                .unwrap()
                .changes
        };
        assert_eq!(changes(None), Family::BOTH.map(LeaseChange::LookAgain));
        // The word may be older than the lease.
        assert!(matches!(
            changes(Some(LEASE)).first(),
            Some(LeaseChange::Gained4(_))
        ));
    }

    #[test]
    fn what_is_no_event_changes_nothing() {
        for (variables, notes) in [
            (vec![], 0),
            (vec![("IFACE", "eth0")], 0),
            (vec![("IFACE", "eth0"), ("STATE", "")], 0),
            (vec![("IFACE", "lo"), ("STATE", "routable")], 0),
            (vec![("IFACE", "eth0"), ("STATE", "sideways")], 1),
        ] {
            let parsed = parse(&raw(&variables, None)).unwrap();
            assert_eq!(
                (parsed.event, parsed.dropped.len()),
                (None, notes),
                "{variables:?}"
            );
        }
        for name in ["../x", "eth0 eth1", ""] {
            let raw = raw(&[("IFACE", name), ("STATE", "routable")], None);
            assert!(parse(&raw).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_kept_and_shown_holds_no_secret() {
        let client = Client::NetworkdDispatcher;
        for (variable, kept, named) in [
            ("IFACE", true, true),
            ("AdministrativeState", true, true),
            ("IP_ADDRS", true, false),
            ("json", false, false),
            ("INVOCATION_ID", false, false),
        ] {
            assert_eq!(client.describes_lease(variable), kept, "{variable}");
            assert_eq!(client.identifies_event(variable), named, "{variable}");
        }
    }
}
