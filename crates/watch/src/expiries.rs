//! Leases whose end nobody announces: their client was killed, or never says so.
//!
//! The kernel takes an address with a lifetime off the card by itself. One without (udhcpc
//! and scripts set such) stays, and so do delegated prefixes, which are on no card.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leaseroute_core::{
    ANNOUNCED, Client, Event, Host, Lease, Lease6, LeaseBook, LeaseChange, LeaseState, RawEvent,
    Record, RecordKey,
};
use tokio::time::Instant;

/// How long after its end a lease still counts, so that a client that announces it late is
/// heard first.
const GRACE: Duration = Duration::from_secs(5);

/// The ends of what is leased, by a clock that nobody sets.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    ends: BTreeMap<RecordKey, Ends>,
}

#[derive(Debug)]
struct Ends {
    /// When the record was made that they were taken from, and whether it announced addresses.
    updated: u64,
    announced: bool,
    /// When they were taken from it.
    followed: Instant,
    /// When something ends, the last one first.
    moments: Vec<Instant>,
}

impl Expiries {
    /// Takes in what the book knows now. What was known before keeps its ends: the length of a
    /// lease is certain, while the time of day may have been set since it began.
    pub(crate) fn follow(&mut self, book: &LeaseBook, now: Instant) {
        let key = |record: &Record| (record.index, record.family);
        self.ends
            .retain(|(index, family), _| book.get(*index, *family).is_some());
        for record in book.records() {
            let known = self.ends.get(&key(record));
            let announced = !record.announced.is_empty();
            let is_same =
                |known: &Ends| known.updated == record.updated && known.announced == announced;
            if !known.is_some_and(is_same) {
                let lengths = lengths(record).into_iter();
                let mut moments: Vec<Instant> = lengths
                    .filter_map(|length| now.checked_add(length)?.checked_add(GRACE))
                    .collect();
                moments.sort_by(|a, b| b.cmp(a));
                let ends = Ends {
                    updated: record.updated,
                    announced,
                    followed: now,
                    moments,
                };
                self.ends.insert(key(record), ends);
            }
        }
    }

    /// When the next lease ends.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.ends
            .values()
            .filter_map(|ends| ends.moments.last())
            .min()
            .copied()
    }

    /// The leases of which something has ended; each is told once for each end.
    pub(crate) fn over(&mut self, now: Instant) -> Vec<Over> {
        let mut over = Vec::new();
        for (key, ends) in &mut self.ends {
            let before = ends.moments.len();
            while ends.moments.pop_if(|moment| *moment <= now).is_some() {}
            if ends.moments.len() < before {
                let age = now.saturating_duration_since(ends.followed + GRACE);
                over.push(Over {
                    key: *key,
                    updated: ends.updated,
                    age: age.as_secs(),
                });
            }
        }
        over
    }
}

/// A lease of which something has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) key: RecordKey,
    /// When its record was made, in seconds since 1970.
    updated: u64,
    /// How old the record is at least, in seconds.
    age: u64,
}

impl Over {
    fn has_ended(self, expires: Option<u64>) -> bool {
        expires.is_some_and(|end| end <= self.updated.saturating_add(self.age))
    }
}

/// How long each part of a lease lasts from the event on that told of it.
fn lengths(record: &Record) -> Vec<Duration> {
    let expires: Vec<Option<u64>> = match &record.state {
        LeaseState::Lost => Vec::new(),
        LeaseState::Held(Lease::Ipv4(lease)) => vec![lease.expires],
        LeaseState::Held(Lease::Ipv6(lease)) => {
            let addresses = lease.addresses.values().map(|leased| leased.expires);
            let prefixes = lease.prefixes.values().map(|leased| leased.expires);
            addresses.chain(prefixes).collect()
        }
    };
    let length = |end: u64| Duration::from_secs(end.saturating_sub(record.updated));
    let announced = (!record.announced.is_empty()).then_some(ANNOUNCED);
    let ends = expires.into_iter().flatten().map(length);
    ends.chain(announced.map(Duration::from_secs)).collect()
}

/// The event that says that a lease has ended whose addresses the kernel keeps for ever.
/// `None` when the client has told of it anew meanwhile. The ends of delegated prefixes every
/// run finds for itself.
pub(crate) fn ended(book: &LeaseBook, host: &Host, over: Over) -> Option<(Event, RawEvent)> {
    let (index, family) = over.key;
    let record = book
        .get(index, family)
        .filter(|r| r.updated == over.updated)?;
    let stays = |address: IpAddr| {
        let mut addresses = host.addresses_of(index, family);
        addresses.any(|a| a.address.ip() == address && a.flags.permanent)
    };
    let change = match book.lease(index, family)? {
        Lease::Ipv4(lease) => {
            let address = lease.address;
            let has_ended = over.has_ended(lease.expires) && stays(address.into());
            has_ended.then_some(LeaseChange::Lost4(Some(address)))?
        }
        Lease::Ipv6(lease) => {
            let addresses = lease.addresses.iter();
            let ended = addresses
                .filter(|(address, leased)| {
                    over.has_ended(leased.expires) && stays((**address).into())
                })
                .map(|(address, _)| *address);
            LeaseChange::Changed6 {
                replace: false,
                gained: Lease6::default(),
                lost_addresses: ended.collect(),
                lost_prefixes: Vec::new(),
            }
        }
    };
    // The card may have another name by now.
    let name = &host.links.get(&index)?.name;
    let event = Event {
        ahead: false,
        interface: name.as_str().parse().ok()?,
        reason: "the lease ended".to_owned(),
        changes: vec![change],
    };
    let nothing = || RawEvent::new(Client::Script, BTreeMap::new());
    Some((event, record.event.clone().unwrap_or_else(nothing)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use leaseroute_core::{AddressFlags, Family, IfIndex, Lease4, LeasedPrefix, Link, LinkAddress};

    use super::*;

    fn record(updated: u64, ends: &[u64]) -> Record {
        let prefixes = ends.iter().enumerate().map(|(n, end)| {
            let leased = LeasedPrefix {
                expires: Some(*end),
                ..LeasedPrefix::default()
            };
            (format!("2001:db8:{n}::/56").parse().unwrap(), leased)
        });
        Record {
            announced: BTreeSet::new(),
            index: IfIndex::new(2).unwrap(),
            name: "eth0".parse().unwrap(),
            mac: None,
            family: Family::Ipv6,
            state: LeaseState::Held(Lease::Ipv6(Lease6 {
                prefixes: prefixes.collect(),
                ..Lease6::default()
            })),
            told_by: BTreeSet::new(),
            event: None,
            named_lost: None,
            updated,
        }
    }

    #[test]
    fn each_part_ends_once_and_by_its_length() {
        let (mut expiries, now) = (Expiries::default(), Instant::now());
        let book = LeaseBook::new([record(1000, &[1100, 1200])]);
        expiries.follow(&book, now);
        let after = |seconds| now + Duration::from_secs(seconds) + GRACE;
        assert_eq!(expiries.next(), Some(after(100)));
        assert!(expiries.over(after(99)).is_empty());
        assert_eq!(expiries.over(after(100)).len(), 1);
        assert!(expiries.over(after(101)).is_empty());
        // The same record, looked at again.
        expiries.follow(&book, after(101));
        assert_eq!(expiries.next(), Some(after(200)));
    }

    #[test]
    fn a_renewal_moves_the_end() {
        let (mut expiries, now) = (Expiries::default(), Instant::now());
        expiries.follow(&LeaseBook::new([record(1000, &[1100])]), now);
        let later = now + Duration::from_secs(50);
        expiries.follow(&LeaseBook::new([record(1050, &[1150])]), later);
        assert_eq!(
            expiries.next(),
            Some(later + Duration::from_secs(100) + GRACE)
        );
        expiries.follow(&LeaseBook::default(), later);
        assert_eq!(expiries.next(), None);
    }

    #[test]
    fn announced_addresses_end_when_they_do_not_come() {
        let (mut expiries, now) = (Expiries::default(), Instant::now());
        let announced = Record {
            announced: BTreeSet::from(["2001:db8::1".parse().unwrap()]),
            ..record(1000, &[])
        };
        expiries.follow(&LeaseBook::new([announced]), now);
        let end = now + Duration::from_secs(ANNOUNCED) + GRACE;
        assert_eq!(expiries.next(), Some(end));
        // They have come, in the same second.
        expiries.follow(&LeaseBook::new([record(1000, &[])]), now);
        assert_eq!(expiries.next(), None);
    }

    /// A host whose eth7, index 2, has an address; and a book with its lease of 100 s.
    fn host(permanent: bool) -> (Host, LeaseBook) {
        let link = Link {
            index: IfIndex::new(2).unwrap(),
            name: "eth7".parse().unwrap(),
            alternative_names: Vec::new(),
            mac: None,
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            kind: None,
            driver: None,
        };
        let address = LinkAddress {
            index: link.index,
            address: "192.0.2.7/24".parse().unwrap(),
            peer: None,
            flags: AddressFlags {
                permanent,
                ..AddressFlags::default()
            },
            protocol: None,
        };
        let lease = r#"{"address": "192.0.2.7", "expires": 1100}"#;
        let lease: Lease4 = serde_json::from_str(lease).unwrap();
        let record = Record {
            family: Family::Ipv4,
            state: LeaseState::Held(Lease::Ipv4(lease)),
            ..record(1000, &[])
        };
        let host = Host {
            links: [(link.index, link)].into(),
            addresses: vec![address],
            ..Host::default()
        };
        (host, LeaseBook::new([record]))
    }

    #[test]
    fn an_address_that_the_kernel_keeps_ends_with_its_lease() {
        let (host, book) = host(true);
        let (mut expiries, now) = (Expiries::default(), Instant::now());
        expiries.follow(&book, now);
        let over = expiries.over(now + Duration::from_secs(100) + GRACE);
        let [over] = over[..] else {
            panic!("{over:?}");
        };
        let (event, _) = ended(&book, &host, over).unwrap();
        assert_eq!(event.interface.as_str(), "eth7");
        let address = "192.0.2.7".parse().unwrap();
        assert_eq!(event.changes, [LeaseChange::Lost4(Some(address))]);
        // The client told of it anew before we looked.
        let mut renewed = book
            .get(IfIndex::new(2).unwrap(), Family::Ipv4)
            .unwrap()
            .clone();
        renewed.updated = 1050;
        assert_eq!(ended(&LeaseBook::new([renewed]), &host, over), None);
    }

    #[test]
    fn an_address_with_a_lifetime_is_the_kernels_affair() {
        let (host, book) = host(false);
        let (mut expiries, now) = (Expiries::default(), Instant::now());
        expiries.follow(&book, now);
        let over = expiries.over(now + Duration::from_secs(100) + GRACE);
        assert_eq!(ended(&book, &host, over[0]), None);
    }
}
