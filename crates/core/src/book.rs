//! The leases that are known, as a value. Reading and writing it is the runtime's work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::address::Family;
use crate::event::{Event, LeaseChange, RawEvent};
use crate::host::{Host, Link};
use crate::interface::{IfIndex, InterfaceName, InterfaceRef, Mac};
use crate::lease::{Lease, Lease4, Lease6, LeaseState};

/// A record is about one interface in one family.
pub type RecordKey = (IfIndex, Family);

/// What is known about one interface's lease in one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The interface's index when the event came.
    pub index: IfIndex,
    /// Its name then. The index decides; interfaces may be renamed.
    pub name: InterfaceName,
    /// Its hardware address then. Another one now means another card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// The family.
    pub family: Family,
    /// What is known.
    pub state: LeaseState,
    /// The last event that said so, for people and for bug reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<RawEvent>,
    /// When that event came, in seconds since 1970.
    pub updated: u64,
}

/// All records, by interface and family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseBook {
    records: BTreeMap<RecordKey, Record>,
}

/// What an event did to the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folded {
    /// The record that was written, and whether it says something new.
    Recorded {
        /// Where it is.
        key: RecordKey,
        /// Whether the lease differs from what was known (times aside).
        changed: bool,
    },
    /// No interface has that name or alternative name.
    NoSuchInterface(InterfaceRef),
}

impl LeaseBook {
    /// A book of the given records. Of two records about the same interface and family
    /// the later one stays.
    pub fn new(records: impl IntoIterator<Item = Record>) -> Self {
        let records = records.into_iter().map(|r| ((r.index, r.family), r));
        Self {
            records: records.collect(),
        }
    }

    /// The record of one interface and family.
    #[must_use]
    pub fn get(&self, index: IfIndex, family: Family) -> Option<&Record> {
        self.records.get(&(index, family))
    }

    /// All records in order.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// The lease of one interface and family, when one is held.
    #[must_use]
    pub fn lease(&self, index: IfIndex, family: Family) -> Option<&Lease> {
        match &self.get(index, family)?.state {
            LeaseState::Held(lease) => Some(lease),
            LeaseState::Lost => None,
        }
    }

    /// The IPv4 lease of an interface, when one is held.
    #[must_use]
    pub fn lease4(&self, index: IfIndex) -> Option<&Lease4> {
        match self.lease(index, Family::Ipv4)? {
            Lease::Ipv4(lease) => Some(lease),
            Lease::Ipv6(_) => None,
        }
    }

    /// What DHCPv6 leased to an interface, when anything is.
    #[must_use]
    pub fn lease6(&self, index: IfIndex) -> Option<&Lease6> {
        match self.lease(index, Family::Ipv6)? {
            Lease::Ipv6(lease) => Some(lease),
            Lease::Ipv4(_) => None,
        }
    }

    /// Drops the records of interfaces that are gone, or that are other cards now, and
    /// returns their keys.
    pub fn retain_present(&mut self, host: &Host) -> Vec<RecordKey> {
        let gone = |record: &Record| match host.links.get(&record.index) {
            Some(link) => link.mac != record.mac,
            None => true,
        };
        let keys: Vec<RecordKey> = self
            .records
            .iter()
            .filter(|(_, record)| gone(record))
            .map(|(key, _)| *key)
            .collect();
        for key in &keys {
            self.records.remove(key);
        }
        keys
    }

    /// Forgets one record.
    pub fn forget(&mut self, key: RecordKey) -> Option<Record> {
        self.records.remove(&key)
    }

    /// Takes an event in. `now` is in seconds since 1970; `raw` is kept beside the lease.
    pub fn fold(&mut self, event: &Event, raw: Option<RawEvent>, host: &Host, now: u64) -> Folded {
        let Some(link) = host.resolve(&event.interface) else {
            return Folded::NoSuchInterface(event.interface.clone());
        };
        let family = event.change.family();
        let key = (link.index, family);
        let known = self
            .records
            .get(&key)
            .filter(|record| record.mac == link.mac)
            .map(|record| &record.state);
        let state = next_state(known, &event.change);
        let changed = known.is_none_or(|known| !same_apart_from_times(known, &state));
        self.records
            .insert(key, record_of(link, family, state, raw, now));
        Folded::Recorded { key, changed }
    }
}

fn record_of(
    link: &Link,
    family: Family,
    state: LeaseState,
    event: Option<RawEvent>,
    updated: u64,
) -> Record {
    Record {
        index: link.index,
        name: link.name.clone(),
        mac: link.mac,
        family,
        state,
        event,
        updated,
    }
}

fn next_state(known: Option<&LeaseState>, change: &LeaseChange) -> LeaseState {
    match change {
        LeaseChange::Gained4(lease) => LeaseState::Held(Lease::Ipv4(lease.clone())),
        LeaseChange::Lost4(Some(address)) => match known {
            // The event is about an address that has been replaced since.
            Some(LeaseState::Held(Lease::Ipv4(lease))) if lease.address != *address => {
                LeaseState::Held(Lease::Ipv4(lease.clone()))
            }
            _ => LeaseState::Lost,
        },
        LeaseChange::Lost4(None) | LeaseChange::Lost6 => LeaseState::Lost,
        LeaseChange::Changed6 {
            replace,
            gained,
            lost_addresses,
            lost_prefixes,
        } => {
            let mut lease = match known {
                Some(LeaseState::Held(Lease::Ipv6(lease))) if !replace => lease.clone(),
                _ => Lease6::default(),
            };
            lease.addresses.extend(&gained.addresses);
            lease.prefixes.extend(&gained.prefixes);
            for address in lost_addresses {
                lease.addresses.remove(address);
            }
            for prefix in lost_prefixes {
                lease.prefixes.remove(prefix);
            }
            if lease.is_empty() {
                LeaseState::Lost
            } else {
                LeaseState::Held(Lease::Ipv6(lease))
            }
        }
    }
}

/// Whether two states differ in nothing but the moments their leases end.
fn same_apart_from_times(a: &LeaseState, b: &LeaseState) -> bool {
    match (a, b) {
        (LeaseState::Lost, LeaseState::Lost) => true,
        (LeaseState::Held(Lease::Ipv4(a)), LeaseState::Held(Lease::Ipv4(b))) => {
            let timeless = |lease: &Lease4| Lease4 {
                expires: None,
                ..lease.clone()
            };
            timeless(a) == timeless(b)
        }
        (LeaseState::Held(Lease::Ipv6(a)), LeaseState::Held(Lease::Ipv6(b))) => {
            a.addresses.keys().eq(b.addresses.keys()) && a.prefixes.keys().eq(b.prefixes.keys())
        }
        _ => false,
    }
}
