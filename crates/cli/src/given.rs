//! What `--lease` gives: an event as a client's hook received it, or a lease that a
//! capture knows. And what `--interface` gives: what a script knows.
//!
//! A capture's lease is taken in as it is known, never by parsing the event beside it
//! again: that is only the last of several events that made the lease, and is kept
//! shortened, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use leaseroute_core::{
    ClasslessRoute, Client, Event, Family, Host, InterfaceRef, Lease, Lease4, Lease6, LeaseBook,
    LeaseChange, LeaseState, MAX_LEASE_ROUTES, Parsed, RawEvent, Record, Refusal,
};

use crate::args::{Address, ScriptArgs};
use crate::error::CliError;

/// One event to take in.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// As the hook received it; for a lease what is kept beside it.
    pub(crate) raw: RawEvent,
    /// What it means, where that is known without its client's parser.
    known: Option<Event>,
    /// Whether it comes on top of what is known of its interface.
    pub(crate) adds: bool,
}

impl Given {
    /// An event that is still to be parsed.
    pub(crate) fn event(raw: RawEvent) -> Self {
        Self {
            raw,
            known: None,
            adds: false,
        }
    }

    /// What a script says of an interface. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// When any of it cannot be: who types it is there to be told, unlike a DHCP server.
    pub(crate) fn by_script(
        interface: &InterfaceRef,
        args: &ScriptArgs,
        now: u64,
    ) -> Result<Self, CliError> {
        let raw = script_event(interface, args, now);
        let wrong = |variable: &str, what: String| {
            let option = match variable.trim_end_matches(['4', '6']) {
                "routes" => "route",
                same => same,
            };
            CliError::Options(format!("--{option} {what}"))
        };
        let parsed = raw.client.parse(&raw).map_err(|refusal| match refusal {
            Refusal::ImpossibleAddress { variable, value } => wrong(
                variable,
                format!("{value} is not an address that can be a source"),
            ),
            other => CliError::Options(other.to_string()),
        })?;
        match parsed.dropped.first() {
            Some(dropped) => Err(wrong(
                &dropped.field,
                // Of a list it says that the rest of it counts, which is not so here.
                match dropped.why.split_once("; ") {
                    Some((why, _)) => format!("{}: {why}", dropped.value),
                    None => format!("{}: {}", dropped.value, dropped.why),
                },
            )),
            None => Ok(Self {
                adds: args.add,
                ..Self::event(raw)
            }),
        }
    }

    /// A lease as it is known. `client` is who it is from when the record does not tell.
    pub(crate) fn lease(record: Record, client: Client) -> Self {
        let (reason, lease) = match record.state {
            LeaseState::Held(lease) => ("lease", Some(lease)),
            LeaseState::Lost => ("lost lease", None),
        };
        let change = match (lease, record.named_lost) {
            (Some(Lease::Ipv4(lease)), _) => LeaseChange::Gained4(lease),
            (Some(Lease::Ipv6(gained)), None) => changed6(true, gained, BTreeSet::new()),
            (Some(Lease::Ipv6(gained)), Some(lost)) => changed6(false, gained, lost),
            (None, named_lost) => match (record.family, named_lost) {
                (Family::Ipv4, _) => LeaseChange::Lost4(None),
                (Family::Ipv6, None) => LeaseChange::Lost6,
                (Family::Ipv6, Some(lost)) => changed6(false, Lease6::default(), lost),
            },
        };
        Self {
            raw: record
                .event
                .unwrap_or_else(|| RawEvent::new(client, BTreeMap::new())),
            known: Some(Event {
                ahead: false,
                interface: record.name.into(),
                reason: reason.to_owned(),
                changes: vec![change],
            }),
            adds: false,
        }
    }

    /// Whether it is a lease as it is known.
    pub(crate) fn is_lease(&self) -> bool {
        self.known.is_some()
    }

    /// What it means.
    ///
    /// # Errors
    ///
    /// When the client's parser refuses it.
    pub(crate) fn parse(&self) -> Result<Parsed, Refusal> {
        match &self.known {
            None => self.raw.client.parse(&self.raw),
            Some(event) => Ok(Parsed {
                event: Some(event.clone()),
                dropped: Vec::new(),
            }),
        }
    }
}

/// What an event means on top of what is known of its interface. What is known counts only
/// as far as the kernel still has it.
pub(crate) fn added(mut event: Event, host: &Host, book: &LeaseBook) -> Event {
    let Some(link) = host.resolve(&event.interface) else {
        return event;
    };
    let is_there = |address: Ipv4Addr| host.has_address(link.index, address.into());
    for change in &mut event.changes {
        match change {
            LeaseChange::Gained4(lease) => {
                let known = book.lease4(link.index);
                if let Some(known) = known.filter(|known| is_there(known.address)) {
                    let others = known.others.iter().copied().filter(|a| is_there(*a));
                    *lease = both(known, lease, others.collect());
                }
            }
            LeaseChange::Changed6 {
                replace, gained, ..
            } => {
                let known = book.lease6(link.index);
                let other = known.filter(|known| has_other_gateway(known, gained));
                *replace = other.is_some();
                if let Some(known) = other {
                    let mut both = known.clone();
                    both.routes.retain(|route| route.destination.prefix() > 0);
                    both.routes.append(&mut gained.routes);
                    both.addresses
                        .retain(|address, _| host.has_address(link.index, (*address).into()));
                    both.addresses.append(&mut gained.addresses);
                    *gained = both;
                }
            }
            LeaseChange::Lost4(_)
            | LeaseChange::Lost6
            | LeaseChange::Advertised(_)
            | LeaseChange::LookAgain(_) => {}
        }
    }
    event
}

/// Whether a new lease has a gateway, and the known one another.
fn has_other_gateway(known: &Lease6, new: &Lease6) -> bool {
    let gateways = |lease: &Lease6| -> Vec<_> {
        let routes = lease.routes.iter().copied();
        routes
            .filter(|route| route.destination.prefix() == 0)
            .collect()
    };
    let (known, new) = (gateways(known), gateways(new));
    !known.is_empty() && !new.is_empty() && known != new
}

/// A known lease with the addresses and routes of another. What only one can have is the
/// new one's, when it says so.
fn both(known: &Lease4, new: &Lease4, mut others: BTreeSet<Ipv4Addr>) -> Lease4 {
    others.insert(new.address);
    others.extend(&new.others);
    others.remove(&known.address);
    let mut classless = known.classless.clone();
    if let Some(more) = &new.classless {
        match &mut classless {
            None => classless = Some(more.clone()),
            Some(routes) => {
                let fresh = |r: &&ClasslessRoute| {
                    let same = |k: &ClasslessRoute| k.destination == r.destination;
                    !known.classless.iter().flat_map(|c| &c.routes).any(same)
                };
                routes.routes.extend(more.routes.iter().filter(fresh));
                routes.routes.truncate(MAX_LEASE_ROUTES);
            }
        }
    }
    Lease4 {
        others,
        router: new.router.or(known.router),
        classless,
        mtu: new.mtu.or(known.mtu),
        ..known.clone()
    }
}

/// The options as the variables that the parser of scripts reads.
fn script_event(interface: &InterfaceRef, args: &ScriptArgs, now: u64) -> RawEvent {
    let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Address {
        network,
        with_length,
    } in &args.address
    {
        let text = match with_length {
            true => network.to_string(),
            false => network.ip().to_string(),
        };
        let variable = by_family(network.ip(), "address4", "address6");
        lists.entry(variable).or_default().push(text);
    }
    for gateway in &args.gateway {
        let variable = by_family(*gateway, "gateway4", "gateway6");
        lists.entry(variable).or_default().push(gateway.to_string());
    }
    for route in &args.route {
        let destination = route.destination;
        let on_link: IpAddr = match destination {
            IpNetwork::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpNetwork::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let variable = by_family(destination.ip(), "routes4", "routes6");
        let gateway = route.gateway.unwrap_or(on_link);
        lists
            .entry(variable)
            .or_default()
            .push(format!("{destination} {gateway}"));
    }
    let mtu = args.mtu.map(|mtu| ("mtu", mtu.to_string()));
    let end = args.expires.map(|seconds| now.saturating_add(seconds));
    let expires = end.map(|end| ("expires", end.to_string()));
    let variables = lists
        .into_iter()
        .map(|(variable, words)| (variable, words.join(" ")))
        .chain([("interface", interface.to_string())])
        .chain(mtu)
        .chain(expires);
    let variables = variables.map(|(variable, value)| (variable.to_owned(), value));
    RawEvent::new(Client::Script, variables.collect())
}

fn by_family<T>(address: IpAddr, ipv4: T, ipv6: T) -> T {
    match Family::of(address) {
        Family::Ipv4 => ipv4,
        Family::Ipv6 => ipv6,
    }
}

/// A DHCPv6 lease of which `lost` is known to be gone; `replace` when nothing else is left.
fn changed6(replace: bool, gained: Lease6, lost: BTreeSet<IpNetwork>) -> LeaseChange {
    let mut lost_addresses = Vec::new();
    let mut lost_prefixes = Vec::new();
    for source in lost {
        match source {
            IpNetwork::V6(source) if source.prefix() == Family::Ipv6.host_length() => {
                lost_addresses.push(source.ip());
            }
            IpNetwork::V6(source) => lost_prefixes.push(source),
            // A record of IPv6 names none.
            IpNetwork::V4(_) => {}
        }
    }
    LeaseChange::Changed6 {
        replace,
        gained,
        lost_addresses,
        lost_prefixes,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde::Deserialize;

    use super::*;
    use crate::args::{Cli, Command};

    #[derive(Deserialize)]
    struct Saved {
        host: Host,
        leases: Vec<Record>,
    }

    fn typed(words: &str) -> ScriptArgs {
        let cli = Cli::parse_from(["leaseroute", "apply"].into_iter().chain(words.split(' ')));
        match cli.command {
            Command::Apply(args) => args.script,
            _ => unreachable!(),
        }
    }

    #[test]
    fn what_is_added_leaves_what_is_there_and_has_the_last_gateway() {
        let saved: Saved =
            serde_json::from_str(include_str!("../tests/cmd/plan.in/leases.json")).unwrap();
        let host = saved.host;
        let mut book = LeaseBook::default();
        let mut take = |words: &str| {
            let args = typed(words);
            let given = Given::by_script(args.interface.as_ref().unwrap(), &args, 0).unwrap();
            let mut event = given.parse().unwrap().event.unwrap();
            if given.adds {
                event = added(event, &host, &book);
            }
            book.fold(&event, Some(&given.raw), &host, 0);
            let link = host.resolve(&event.interface).unwrap();
            (
                book.lease4(link.index).cloned(),
                book.lease6(link.index).cloned(),
            )
        };
        let texts = |lease: &Lease6| -> (Vec<String>, Vec<String>) {
            let addresses = lease.addresses.keys().map(ToString::to_string);
            let gateways = lease.routes.iter().filter_map(|route| route.gateway);
            (
                addresses.collect(),
                gateways.map(|g| g.to_string()).collect(),
            )
        };

        take("--interface eth1 --address 192.0.2.10/24 --gateway 192.0.2.1 --route 10.0.0.0/8");
        let more = "--interface eth1 --add --address 192.0.2.11 --route 10.0.0.0/8=192.0.2.9 \
                    --route 172.16.0.0/12 --gateway 192.0.2.2";
        let (first, _) = take(more);
        let (again, _) = take(more);
        assert_eq!(first, again);
        let lease = first.unwrap();
        assert_eq!(lease.address.to_string(), "192.0.2.10");
        assert_eq!(lease.others, ["192.0.2.11".parse().unwrap()].into());
        assert_eq!(lease.router.unwrap().to_string(), "192.0.2.2");
        assert_eq!(lease.classless.unwrap().routes.len(), 2);
        // The address that was the first one has gone.
        take("--interface eth1 --address 192.0.2.77");
        let (lease, _) = take("--interface eth1 --add --address 192.0.2.11");
        assert_eq!(lease.unwrap().address.to_string(), "192.0.2.11");

        take("--interface eth2 --address 2001:db8:1::100 --gateway fe80::1");
        take("--interface eth2 --add --address 2001:db8:1::101");
        let (_, lease) = take("--interface eth2 --add --address 2001:db8:1::102");
        assert_eq!(
            texts(&lease.unwrap()),
            (
                ["100", "101", "102"]
                    .map(|last| format!("2001:db8:1::{last}"))
                    .into(),
                vec!["fe80::1".to_owned()]
            )
        );
        let (_, lease) = take("--interface eth2 --add --address 2001:db8:1::102 --gateway fe80::2");
        assert_eq!(
            texts(&lease.unwrap()),
            (
                ["100", "102"]
                    .map(|last| format!("2001:db8:1::{last}"))
                    .into(),
                vec!["fe80::2".to_owned()]
            )
        );
    }

    #[test]
    fn a_lease_is_taken_in_as_it_was() {
        let saved: Saved =
            serde_json::from_str(include_str!("../tests/cmd/plan.in/leases.json")).unwrap();
        let mut records = saved.leases.clone();
        for record in saved.leases {
            records.push(Record {
                state: LeaseState::Lost,
                ..record.clone()
            });
            if record.family == Family::Ipv6 {
                let lost = ["2001:db8:1::300/128", "2001:db8:300::/56"];
                let lost: BTreeSet<IpNetwork> = lost.map(|text| text.parse().unwrap()).into();
                for state in [record.state.clone(), LeaseState::Lost] {
                    records.push(Record {
                        state,
                        named_lost: Some(lost.clone()),
                        ..record.clone()
                    });
                }
            }
        }
        assert_eq!(records.len(), 8);
        for record in records {
            let given = Given::lease(record.clone(), Client::Dhclient);
            let event = given.parse().unwrap().event.unwrap();
            let mut book = LeaseBook::default();
            book.fold(&event, Some(&given.raw), &saved.host, record.updated);
            let held = matches!(record.state, LeaseState::Held(_));
            let told_by = held.then_some(Client::Dhclient).into_iter().collect();
            let expected = Record { told_by, ..record };
            assert_eq!(book.records().collect::<Vec<_>>(), [&expected]);
        }
    }
}
