//! What `--lease` gives: an event as a client's hook received it, or a lease that a
//! capture knows.
//!
//! A capture's lease is taken in as it is known, never by parsing the event beside it
//! again: that is only the last of several events that made the lease, and is kept
//! shortened, for people.

use std::collections::{BTreeMap, BTreeSet};

use ipnetwork::IpNetwork;
use leaseroute_core::{
    Client, Event, Family, Lease, Lease6, LeaseChange, LeaseState, Parsed, RawEvent, Record,
    Refusal,
};

/// One event to take in.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// As the hook received it; for a lease what is kept beside it.
    pub(crate) raw: RawEvent,
    /// What it means, where that is known without its client's parser.
    known: Option<Event>,
}

impl Given {
    /// An event that is still to be parsed.
    pub(crate) fn event(raw: RawEvent) -> Self {
        Self { raw, known: None }
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
                interface: record.name.into(),
                reason: reason.to_owned(),
                changes: vec![change],
            }),
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
    use leaseroute_core::{Host, LeaseBook};
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Saved {
        host: Host,
        leases: Vec<Record>,
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
            book.fold(&event, Some(given.raw), &saved.host, record.updated);
            assert_eq!(book.records().collect::<Vec<_>>(), [&record]);
        }
    }
}
