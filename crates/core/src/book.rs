//! The leases that are known, as a value. Reading and writing it is the runtime's work.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::{IpNetwork, Ipv6Network};
use serde::{Deserialize, Serialize};

use crate::address::Family;
use crate::client::Client;
use crate::event::{Event, LeaseChange, RawEvent};
use crate::host::{Host, Link};
use crate::interface::{IfIndex, InterfaceName, InterfaceRef, Mac};
use crate::lease::{Lease, Lease4, Lease6, LeaseState};
use crate::metadata::CardMetadata;
use crate::settings::{MetadataSettings, PROVIDERS, ProviderChoice};

mod announced;

pub use self::announced::ANNOUNCED;

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
    /// The clients that have told of the lease as it is and not of its end: two programs may
    /// look after one interface, and what one of them ends the other still holds. A script is
    /// among them only until another tells of the whole: it tells once, and of no end.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub told_by: BTreeSet<Client>,
    /// The last event that said so, for people and for bug reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<RawEvent>,
    /// What a client named as lost, while nothing has told of the whole yet: DHCPv6 tells
    /// of one address or prefix at a time, and until all is told our own rules count as
    /// evidence for the rest. `None`: the record is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_lost: Option<BTreeSet<IpNetwork>>,
    /// Addresses that the client is about to put on the interface, and that count as if they
    /// were there for a few seconds ([`LeaseBook::add_announced`]).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub announced: BTreeSet<IpAddr>,
    /// When that event came, in seconds since 1970.
    pub updated: u64,
}

/// How many losses an incomplete record holds. After so many, whatever is still alive has
/// been renewed, and the record counts as complete.
const NAMED_LOST: usize = 32;

/// The most addresses, and the most prefixes, of one DHCPv6 lease.
const MAX_PARTS: usize = 64;

/// All records, by interface and family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseBook {
    records: BTreeMap<RecordKey, Record>,
    /// What metadata services say besides.
    metadata: BTreeMap<RecordKey, CardMetadata>,
    /// The moment of the last [`LeaseBook::expire`], in seconds since 1970.
    now: u64,
}

/// What an event did to the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folded {
    /// The event was taken in: what came of each of its changes, in their order.
    TakenIn(Vec<(RecordKey, Effect)>),
    /// No interface has that name or alternative name.
    NoSuchInterface(InterfaceRef),
}

/// What one change did to its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The record, or that there is none, is as before.
    None,
    /// The record is new, and the lease is as it was known, times aside.
    Renewed,
    /// The lease differs from what was known.
    Changed,
}

impl LeaseBook {
    /// A book of the given records. Of two records about the same interface and family
    /// the later one stays.
    pub fn new(records: impl IntoIterator<Item = Record>) -> Self {
        let records = records.into_iter().map(|r| ((r.index, r.family), r));
        Self {
            records: records.collect(),
            ..Self::default()
        }
    }

    /// The same with what metadata services were found to say.
    #[must_use]
    pub fn with_metadata(mut self, said: impl IntoIterator<Item = CardMetadata>) -> Self {
        let known = said
            .into_iter()
            .filter(|said| PROVIDERS.contains(&said.provider.as_str()));
        let said = known.map(|said| ((said.index, said.family), said));
        self.metadata.extend(said);
        self
    }

    /// What metadata services say, in order.
    pub fn metadata(&self) -> impl Iterator<Item = &CardMetadata> {
        self.metadata.values()
    }

    /// What a metadata service says of an interface in one family. `None`: nobody could find
    /// out, or nobody is to be asked, or another one than then.
    #[must_use]
    pub fn said(
        &self,
        index: IfIndex,
        family: Family,
        settings: &MetadataSettings,
    ) -> Option<&CardMetadata> {
        let known = self.metadata.get(&(index, family))?;
        let counts = match settings.provider {
            ProviderChoice::Auto => true,
            ProviderChoice::None => false,
            ProviderChoice::Named(name) => name == known.provider,
        };
        counts.then_some(known)
    }

    /// Takes in what a metadata service says, in place of what it said before, and tells
    /// whether that is news. What is about another card than the one that is there now is left
    /// out.
    pub fn learn(&mut self, mut said: CardMetadata, host: &Host) -> bool {
        let link = host.links.get(&said.index);
        if link.is_none_or(|link| link.mac != said.mac) {
            return false;
        }
        let key = (said.index, said.family);
        let before = self.metadata.get(&key);
        if let Some(before) = before.filter(|before| before.mac == said.mac) {
            said.follow(before);
        }
        let is_news = before.is_none_or(|before| {
            before.said != said.said || before.provider != said.provider || before.mac != said.mac
        });
        self.metadata.insert(key, said);
        is_news
    }

    /// The interfaces of which something is known, lease or metadata.
    pub(crate) fn known(&self) -> impl Iterator<Item = IfIndex> {
        self.records
            .keys()
            .chain(self.metadata.keys())
            .map(|key| key.0)
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

    /// Drops what is known of interfaces that are gone, or that are other cards now, and
    /// returns the keys: those of leases, and those of metadata.
    pub fn retain_present(&mut self, host: &Host) -> (Vec<RecordKey>, Vec<RecordKey>) {
        let is_there = |index: IfIndex, mac: Option<Mac>| {
            let link = host.links.get(&index);
            link.is_some_and(|link| link.mac == mac)
        };
        let gone = self.records.values().filter(|r| !is_there(r.index, r.mac));
        let leases: Vec<RecordKey> = gone.map(|r| (r.index, r.family)).collect();
        self.records.retain(|key, _| !leases.contains(key));
        let gone = self
            .metadata
            .values()
            .filter(|said| !is_there(said.index, said.mac));
        let metadata: Vec<RecordKey> = gone.map(|said| (said.index, said.family)).collect();
        self.metadata.retain(|key, _| !metadata.contains(key));
        (leases, metadata)
    }

    /// Takes out the delegated prefixes whose time has passed, in seconds since 1970, and
    /// returns the keys of the records that changed. Addresses stay: the kernel takes them
    /// off the card when their time has passed, by a clock that does not jump.
    pub fn expire(&mut self, now: u64) -> Vec<RecordKey> {
        self.now = now;
        let mut changed = Vec::new();
        for (key, record) in &mut self.records {
            let LeaseState::Held(Lease::Ipv6(lease)) = &mut record.state else {
                continue;
            };
            let mut over = Vec::new();
            lease.prefixes.retain(|prefix, leased| {
                let is_over = leased.expires.is_some_and(|end| end <= now);
                over.extend(is_over.then_some(IpNetwork::V6(*prefix)));
                !is_over
            });
            if over.is_empty() {
                continue;
            }
            if lease.is_empty() {
                record.state = LeaseState::Lost;
            }
            record.name_lost(over);
            changed.push(*key);
        }
        changed
    }

    /// Whether a moment has passed, as far as [`LeaseBook::expire`] was told the time.
    pub(crate) fn is_past(&self, moment: Option<u64>) -> bool {
        moment.is_some_and(|moment| moment <= self.now)
    }

    /// Forgets one record.
    pub fn forget(&mut self, key: RecordKey) -> Option<Record> {
        self.records.remove(&key)
    }

    /// Takes an event in. `now` is in seconds since 1970; `raw` is kept beside the lease.
    pub fn fold(&mut self, event: &Event, raw: Option<&RawEvent>, host: &Host, now: u64) -> Folded {
        let Some(link) = host.resolve(&event.interface) else {
            return Folded::NoSuchInterface(event.interface.clone());
        };
        let take_in = |change| {
            let key = (link.index, LeaseChange::family(change));
            (
                key,
                self.take_in(&change.clone().begun(now), raw, link, now, event.ahead),
            )
        };
        Folded::TakenIn(event.changes.iter().map(take_in).collect())
    }

    fn take_in(
        &mut self,
        change: &LeaseChange,
        raw: Option<&RawEvent>,
        link: &Link,
        now: u64,
        ahead: bool,
    ) -> Effect {
        let family = change.family();
        let key = (link.index, family);
        let known = self
            .records
            .get(&key)
            .filter(|record| record.mac == link.mac);
        let is_news = match (change, known) {
            (LeaseChange::LookAgain(_), _) => false,
            (LeaseChange::Advertised(prefixes), Some(known)) => known.autonomous() != prefixes,
            (_, known) => known.is_some() || !change.says_nothing(),
        };
        if !is_news {
            return Effect::None;
        }
        let teller = raw.map(|raw| raw.client);
        if let (Some(known), Some(teller)) = (known, teller)
            && change.is_nameless_loss()
            && let Some(others) = known.held_by_others(teller)
        {
            // Should the address go all the same, the kernel shows it.
            if others == known.told_by {
                return Effect::None;
            }
            let record = Record {
                told_by: others,
                ..known.clone()
            };
            self.records.insert(key, record);
            return Effect::Renewed;
        }
        let state = next_state(known.map(|record| &record.state), change);
        let effect = match known {
            Some(known) if same_apart_from_times(&known.state, &state) => Effect::Renewed,
            _ => Effect::Changed,
        };
        let told_by = match known {
            _ if state == LeaseState::Lost => BTreeSet::new(),
            Some(known) if is_of_one_lease(&known.state, &state) || change.is_part() => {
                known.told_by.clone()
            }
            _ => BTreeSet::new(),
        };
        // Who tells of an end, or of routers, holds nothing by that.
        let teller = teller.filter(|_| change.brings_lease());
        let mut told_by: BTreeSet<Client> = told_by.into_iter().chain(teller).collect();
        if told_by.len() > 1 && !change.is_part() {
            told_by.remove(&Client::Script);
        }
        let mut record = Record {
            told_by,
            index: link.index,
            name: link.name.clone(),
            mac: link.mac,
            family,
            state,
            event: raw.cloned(),
            named_lost: known.map_or(Some(BTreeSet::new()), |known| known.named_lost.clone()),
            announced: if ahead {
                change.gained_addresses()
            } else {
                BTreeSet::new()
            },
            updated: now,
        };
        record.take_losses(change);
        self.records.insert(key, record);
        effect
    }
}

impl Record {
    fn autonomous(&self) -> &BTreeSet<Ipv6Network> {
        const NONE: &BTreeSet<Ipv6Network> = &BTreeSet::new();
        match &self.state {
            LeaseState::Held(Lease::Ipv6(lease)) => &lease.autonomous,
            LeaseState::Held(Lease::Ipv4(_)) | LeaseState::Lost => NONE,
        }
    }

    /// The other clients that hold the lease; `None` when there is none. A client that tells
    /// of its own end, or that it starts, knows nothing of those.
    fn held_by_others(&self, teller: Client) -> Option<BTreeSet<Client>> {
        let mut others = self.told_by.clone();
        others.remove(&teller);
        (!others.is_empty()).then_some(others)
    }

    /// Keeps what a change names as lost, as long as the record is incomplete.
    fn take_losses(&mut self, change: &LeaseChange) {
        match change {
            LeaseChange::Changed6 {
                replace: false,
                lost_addresses,
                lost_prefixes,
                ..
            } => {
                let addresses = lost_addresses
                    .iter()
                    .map(|a| IpNetwork::from(IpAddr::V6(*a)));
                let prefixes = lost_prefixes.iter().copied().map(IpNetwork::V6);
                self.name_lost(addresses.chain(prefixes));
            }
            LeaseChange::Gained4(_)
            | LeaseChange::Lost4(_)
            | LeaseChange::Lost6
            | LeaseChange::Changed6 { replace: true, .. } => self.named_lost = None,
            LeaseChange::Advertised(_) | LeaseChange::LookAgain(_) => {}
        }
    }

    fn name_lost(&mut self, sources: impl IntoIterator<Item = IpNetwork>) {
        let Some(lost) = &mut self.named_lost else {
            return;
        };
        lost.extend(sources);
        if lost.len() > NAMED_LOST {
            self.named_lost = None;
        }
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
        LeaseChange::LookAgain(_) => known.cloned().unwrap_or(LeaseState::Lost),
        LeaseChange::Advertised(prefixes) => {
            let mut lease = match known {
                Some(LeaseState::Held(Lease::Ipv6(lease))) => lease.clone(),
                _ => Lease6::default(),
            };
            lease.autonomous.clone_from(prefixes);
            held_unless_empty(lease)
        }
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
            lease.routes.extend(&gained.routes);
            lease.autonomous.extend(&gained.autonomous);
            // A server that gives another address each time must not fill the host with rules.
            bound(&mut lease.addresses, &gained.addresses);
            bound(&mut lease.prefixes, &gained.prefixes);
            for address in lost_addresses {
                lease.addresses.remove(address);
            }
            for prefix in lost_prefixes {
                lease.prefixes.remove(prefix);
            }
            held_unless_empty(lease)
        }
    }
}

/// Keeps as many parts of a lease as one event can bring, the new ones before the others.
fn bound<K: Ord, V>(parts: &mut BTreeMap<K, V>, new: &BTreeMap<K, V>) {
    let mut left = MAX_PARTS.saturating_sub(new.len());
    if parts.len() > MAX_PARTS {
        parts.retain(|part, _| {
            let is_new = new.contains_key(part);
            let stays = is_new || left > 0;
            left = left.saturating_sub(usize::from(!is_new));
            stays
        });
    }
}

fn held_unless_empty(lease: Lease6) -> LeaseState {
    if lease.is_empty() {
        LeaseState::Lost
    } else {
        LeaseState::Held(Lease::Ipv6(lease))
    }
}

/// Whether two states are about one lease, as two clients may tell of it: in words of their
/// own, but of the same address.
fn is_of_one_lease(a: &LeaseState, b: &LeaseState) -> bool {
    match (a, b) {
        (LeaseState::Held(Lease::Ipv4(a)), LeaseState::Held(Lease::Ipv4(b))) => {
            a.address == b.address
        }
        _ => same_apart_from_times(a, b),
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
            a.addresses.keys().eq(b.addresses.keys())
                && a.prefixes.keys().eq(b.prefixes.keys())
                && a.routes == b.routes
                && a.autonomous == b.autonomous
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{LeasedAddress, LeasedPrefix};

    const ADDRESS: &str = "2001:db8:1::200";
    const PREFIX: &str = "2001:db8:1f00::/56";

    fn host() -> Host {
        let link = r#"{"links": {"2": {"index": 2, "name": "wan0", "mtu": 1500, "up": true}}}"#;
        serde_json::from_str(link).unwrap()
    }

    fn changed6(gained: Lease6, lost_prefixes: Vec<Ipv6Network>) -> Event {
        Event {
            ahead: false,
            interface: "wan0".parse().unwrap(),
            reason: "RENEW6".to_owned(),
            changes: vec![LeaseChange::Changed6 {
                replace: false,
                gained,
                lost_addresses: Vec::new(),
                lost_prefixes,
            }],
        }
    }

    fn leased(expires: u64) -> Lease6 {
        let expires = Some(expires);
        let part = LeasedAddress {
            expires,
            ..LeasedAddress::default()
        };
        let delegated = LeasedPrefix {
            expires,
            ..LeasedPrefix::default()
        };
        Lease6 {
            addresses: [(ADDRESS.parse().unwrap(), part)].into(),
            prefixes: [(PREFIX.parse().unwrap(), delegated)].into(),
            ..Lease6::default()
        }
    }

    #[test]
    fn an_event_that_says_nothing_of_an_unknown_lease_makes_no_record() {
        let mut book = LeaseBook::default();
        let folded = book.fold(&changed6(Lease6::default(), vec![]), None, &host(), 5);
        let key = (host().links.keys().copied().next().unwrap(), Family::Ipv6);
        assert_eq!(folded, Folded::TakenIn(vec![(key, Effect::None)]));
        assert_eq!(book, LeaseBook::default());

        book.fold(&changed6(leased(9), vec![]), None, &host(), 5);
        let before = book.clone();
        book.fold(&changed6(Lease6::default(), vec![]), None, &host(), 5);
        assert_eq!(book, before);
    }

    fn raw(client: &str) -> RawEvent {
        RawEvent::new(client.parse().unwrap(), BTreeMap::new())
    }

    #[test]
    fn a_client_that_names_no_address_ends_no_other_clients_lease() {
        let event = |change| Event {
            ahead: false,
            interface: "wan0".parse().unwrap(),
            reason: "any".to_owned(),
            changes: vec![change],
        };
        let mut book = LeaseBook::default();
        let (dhclient, dhcpcd) = (raw("dhclient"), raw("dhcpcd"));
        book.fold(&changed6(leased(9), vec![]), Some(&dhclient), &host(), 5);
        let (key, before) = (book.records().next().unwrap().index, book.clone());
        book.fold(&event(LeaseChange::Lost6), Some(&dhcpcd), &host(), 6);
        assert_eq!(book, before);
        // What it names is gone, whoever says so.
        let named = changed6(Lease6::default(), vec![PREFIX.parse().unwrap()]);
        book.fold(&named, Some(&dhcpcd), &host(), 7);
        assert!(book.lease6(key).unwrap().prefixes.is_empty());
        // It holds nothing by that, and its end is its own to tell.
        let before = book.clone();
        book.fold(&event(LeaseChange::Lost6), Some(&dhcpcd), &host(), 8);
        assert_eq!(book, before);
        // Once both have told of the lease, each has to tell of its end.
        book.fold(&changed6(leased(9), vec![]), Some(&dhcpcd), &host(), 9);
        book.fold(&event(LeaseChange::Lost6), Some(&dhclient), &host(), 10);
        assert!(book.lease6(key).is_some());
        book.fold(&event(LeaseChange::Lost6), Some(&dhcpcd), &host(), 11);
        assert_eq!(book.lease6(key), None);
    }

    #[test]
    fn a_lease_ends_as_long_after_it_is_told_of_as_it_lasts() {
        let told = |lease_time: &str| {
            let words = [
                ("interface", "wan0"),
                ("reason", "RENEW"),
                ("new_ip_address", "192.0.2.10"),
                ("new_dhcp_lease_time", lease_time),
            ];
            let own = words.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let raw = RawEvent::new(raw("dhcpcd").client, own.into());
            (raw.client.parse(&raw).unwrap().event.unwrap(), raw)
        };
        let mut book = LeaseBook::default();
        for (lease_time, now, effect, expires) in [
            ("3600", 5, Effect::Changed, Some(3605)),
            ("3600", 1805, Effect::Renewed, Some(5405)),
            ("4294967295", 1806, Effect::Renewed, None),
            ("60", u64::MAX, Effect::Renewed, Some(u64::MAX)),
        ] {
            let (event, raw) = told(lease_time);
            let folded = book.fold(&event, Some(&raw), &host(), now);
            let record = book.records().next().unwrap();
            let key = (record.index, Family::Ipv4);
            assert_eq!(folded, Folded::TakenIn(vec![(key, effect)]));
            let lease = book.lease4(key.0).unwrap();
            assert_eq!((lease.expires, lease.lasts), (expires, None));
        }
    }

    #[test]
    fn a_script_holds_no_lease_that_another_client_tells_of() {
        let told = |address: &str, client: &str| {
            let (variable, client) = match client {
                "script" => ("address4", raw("script")),
                _ => ("new_ip_address", raw("dhcpcd")),
            };
            let words = [
                ("interface", "wan0"),
                ("reason", "BOUND"),
                (variable, address),
            ];
            let own = words.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let raw = RawEvent::new(client.client, own.into());
            (raw.client.parse(&raw).unwrap().event.unwrap(), raw)
        };
        let end = Event {
            ahead: false,
            interface: "wan0".parse().unwrap(),
            reason: "NOCARRIER".to_owned(),
            changes: vec![LeaseChange::Lost4(None)],
        };
        let orders = [["script", "dhcpcd"], ["dhcpcd", "script"]];
        for order in orders {
            let mut book = LeaseBook::default();
            for client in order {
                let (event, raw) = told("192.0.2.10", client);
                book.fold(&event, Some(&raw), &host(), 5);
            }
            let record = book.records().next().unwrap();
            assert!(record.told_by.iter().eq([&raw("dhcpcd").client]));
            let index = record.index;
            book.fold(&end, Some(&raw("dhcpcd")), &host(), 6);
            assert_eq!(book.lease4(index), None, "{order:?}");
        }
        // What a script alone told of is no client's to end.
        let mut book = LeaseBook::default();
        let (event, script) = told("192.0.2.10", "script");
        book.fold(&event, Some(&script), &host(), 5);
        book.fold(&end, Some(&raw("dhcpcd")), &host(), 6);
        assert!(
            book.records()
                .all(|record| record.state != LeaseState::Lost)
        );
    }

    #[test]
    fn an_advertisement_that_says_what_the_last_one_said_writes_no_record() {
        let event = |prefixes: &[&str]| Event {
            ahead: false,
            interface: "wan0".parse().unwrap(),
            reason: "ROUTERADVERT".to_owned(),
            changes: vec![LeaseChange::Advertised(
                prefixes
                    .iter()
                    .map(|prefix| prefix.parse().unwrap())
                    .collect(),
            )],
        };
        let mut book = LeaseBook::default();
        let key = (host().links.keys().copied().next().unwrap(), Family::Ipv6);
        let mut fold = |prefixes: &[&str]| book.fold(&event(prefixes), None, &host(), 5);
        let came = |effect| Folded::TakenIn(vec![(key, effect)]);
        assert_eq!(fold(&[]), came(Effect::None));
        assert_eq!(fold(&["2001:db8:b::/64"]), came(Effect::Changed));
        assert_eq!(fold(&["2001:db8:b::/64"]), came(Effect::None));
        assert_eq!(fold(&["2001:db8:c::/64"]), came(Effect::Changed));
        assert_eq!(fold(&[]), came(Effect::Changed));
        assert_eq!(book.lease6(key.0), None);
    }

    #[test]
    fn prefixes_go_when_their_time_has_passed_and_addresses_with_the_kernel() {
        let mut book = LeaseBook::default();
        book.fold(&changed6(leased(100), vec![]), None, &host(), 5);
        let key = (host().links.keys().copied().next().unwrap(), Family::Ipv6);
        assert_eq!(book.expire(99), []);
        assert!(!book.is_past(Some(100)));
        assert_eq!(book.expire(100), [key]);
        assert!(book.is_past(Some(100)) && !book.is_past(None));
        let lease = book.lease6(key.0).unwrap();
        assert!(lease.prefixes.is_empty() && lease.addresses.len() == 1);
        let lost = book.get(key.0, key.1).unwrap().named_lost.clone().unwrap();
        assert_eq!(lost, [PREFIX.parse().unwrap()].into());
        assert_eq!(book.expire(101), []);
    }

    #[test]
    fn a_lease_of_nothing_but_an_old_prefix_is_lost() {
        let mut book = LeaseBook::default();
        let gained = Lease6 {
            addresses: BTreeMap::new(),
            ..leased(100)
        };
        book.fold(&changed6(gained, vec![]), None, &host(), 5);
        let changed = book.expire(1_000);
        assert_eq!(changed.len(), 1);
        assert!(
            book.records()
                .all(|record| record.state == LeaseState::Lost)
        );
    }

    #[test]
    fn a_lease_holds_so_many_parts_and_the_newest_are_among_them() {
        let mut book = LeaseBook::default();
        for number in 0..200_u16 {
            let gained = Lease6 {
                addresses: [(
                    [0x2001, 0xdb8, 0, 0, 0, 0, 0, number + 1].into(),
                    LeasedAddress::default(),
                )]
                .into(),
                ..Lease6::default()
            };
            let newest = gained.addresses.keys().copied().next().unwrap();
            book.fold(&changed6(gained, vec![]), None, &host(), 5);
            let index = book.records().next().unwrap().index;
            let held = &book.lease6(index).unwrap().addresses;
            assert!(
                held.len() <= MAX_PARTS && held.contains_key(&newest),
                "{number}"
            );
        }
    }

    #[test]
    fn losses_are_not_collected_for_ever() {
        let mut book = LeaseBook::default();
        for number in 0..=u16::try_from(NAMED_LOST).unwrap() {
            let lost = Ipv6Network::new([0x2001, 0xdb8, number, 0, 0, 0, 0, 0].into(), 56).unwrap();
            let open = book.records().all(|record| record.named_lost.is_some());
            assert!(open, "{number}");
            book.fold(&changed6(Lease6::default(), vec![lost]), None, &host(), 5);
        }
        assert!(book.records().all(|record| record.named_lost.is_none()));
    }
}
