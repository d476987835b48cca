//! What a card still lacks, at one moment: link, lease, addresses, router, routing.
//!
//! A card's routing is whole when the plan that a hook would make adds nothing of it any
//! more. What is not ours to judge counts as there: a card that the configuration leaves
//! alone needs a lease and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use ipnetwork::IpNetwork;
use leaseroute_core::{
    DesiredState, Family, Host, IfIndex, InterfaceMatch, InterfaceName, LeaseBook, Link, Note,
    Operation, Plan, Selector, Settings, Step, TableId, Uplink, desired_state, plan,
};
use leaseroute_kernel::{Kernel, KernelError};
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::{StateFolder, snapshot};
use serde::Serialize;

use crate::wait::Wanted;

/// A card that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Card {
    /// As it was named, or what a required section of the configuration matches.
    pub wanted: String,
    /// Its interface's name; `None` when there is none.
    pub name: Option<InterfaceName>,
    /// Its addresses and delegated prefixes.
    pub addresses: BTreeSet<IpNetwork>,
    /// Its table; `None` when it needs none.
    pub table: Option<TableId>,
    /// What it lacks. Nothing: it is ready.
    #[serde(skip)]
    pub missing: Vec<Missing>,
}

/// Something that a card lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// In which family; `None`: the card as a whole, or either family would do.
    pub family: Option<Family>,
    /// What.
    #[serde(flatten)]
    pub reason: Reason,
}

/// Why a card is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// No interface has the name, or fits.
    NoDevice,
    /// The interface is down.
    Down,
    /// It has no carrier.
    NoCarrier,
    /// It belongs to a bridge, bond or VRF, which has the addresses.
    HasMaster {
        /// That one's name, when it is in the same namespace.
        master: Option<InterfaceName>,
    },
    /// No client told of a lease, and for IPv6 nothing is advertised either.
    NoLease,
    /// The leased address is not on the interface.
    AddressMissing {
        /// The address.
        address: IpAddr,
    },
    /// Duplicate address detection still runs (RFC 4862, section 5.4).
    Tentative {
        /// For this address.
        address: IpAddr,
    },
    /// Duplicate address detection found another host with the address.
    Duplicate {
        /// The address.
        address: IpAddr,
    },
    /// No router advertises itself, nor is one known otherwise.
    NoRouter,
    /// It should have a table and gets none.
    NoTable,
    /// Routes or rules are missing.
    Routing {
        /// The ip(8) command that adds the first of them.
        command: String,
    },
}

impl Card {
    /// Whether it is ready.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    fn without_device(wanted: String) -> Self {
        Self {
            wanted,
            name: None,
            addresses: BTreeSet::new(),
            table: None,
            missing: vec![Missing {
                family: None,
                reason: Reason::NoDevice,
            }],
        }
    }

    /// What it is called, as far as it is known.
    fn title(&self) -> &str {
        self.name
            .as_ref()
            .map_or(&self.wanted, |name| name.as_str())
    }

    /// What it lacks, one line each.
    pub fn missing_lines(&self) -> impl Iterator<Item = String> {
        let line = |missing| format!("{}: {missing}", self.title());
        self.missing.iter().map(line)
    }
}

/// One line: its name, addresses and table.
impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.title())?;
        for (place, network) in self.addresses.iter().enumerate() {
            f.write_str(if place == 0 { " " } else { ", " })?;
            if network.prefix() == Family::of_network(*network).host_length() {
                write!(f, "{}", network.ip())?;
            } else {
                write!(f, "{network}")?;
            }
        }
        match self.table {
            Some(table) => write!(f, "; table {table}"),
            None => f.write_str("; needs no table"),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.family) {
            (Reason::NoLease, Some(family)) => write!(f, "no {family} lease"),
            (reason, _) => reason.fmt(f),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => f.write_str("no such device"),
            Self::Down => f.write_str("down"),
            Self::NoCarrier => f.write_str("no carrier"),
            Self::HasMaster { master: Some(name) } => {
                write!(f, "belongs to {name}, which has the addresses")
            }
            Self::HasMaster { master: None } => {
                f.write_str("belongs to an interface that is not in this namespace")
            }
            Self::NoLease => f.write_str("no lease"),
            Self::AddressMissing { address } => {
                write!(f, "the leased address {address} is not on it")
            }
            Self::Tentative { address } => write!(
                f,
                "address {address} is tentative: duplicate address detection still runs"
            ),
            Self::Duplicate { address } => write!(
                f,
                "address {address} is in use elsewhere: duplicate address detection failed"
            ),
            Self::NoRouter => f.write_str("no RA router: no IPv6 default route leads by it"),
            Self::NoTable => {
                f.write_str("routing incomplete: it gets no table, leaseroute status says why")
            }
            Self::Routing { command } => write!(f, "routing incomplete: {command}"),
        }
    }
}

/// The host at one moment.
pub(super) struct Moment<'a> {
    settings: &'a Settings,
    links: Host,
    book: LeaseBook,
    families: BTreeMap<Family, InFamily>,
    /// Records that could not be read, in words.
    pub(super) trouble: Vec<String>,
}

/// One family at that moment: what is seen, wanted, and still to be done.
struct InFamily {
    host: Host,
    desired: DesiredState,
    plan: Plan,
}

impl<'a> Moment<'a> {
    /// Reads what families need.
    pub(super) fn read<K: Kernel>(
        kernel: &K,
        settings: &'a Settings,
        state: &StateFolder,
        families: &[Family],
    ) -> Result<Self, KernelError> {
        let (mut book, errors) = state.read_book();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        book.expire(since_1970.map_or(0, |time| time.as_secs()));
        let links = Host {
            links: snapshot::links(kernel, settings)?,
            ..Host::default()
        };
        book.retain_present(&links);
        let mut read = BTreeMap::new();
        for family in families {
            let more = BTreeSet::new();
            let known = links.links.clone();
            let host = snapshot::host(kernel, *family, known, &book, settings, &more)?;
            let desired = desired_state(*family, &host, &book, settings);
            let plan = plan(&desired, &host, settings);
            let seen = InFamily {
                host,
                desired,
                plan,
            };
            read.insert(*family, seen);
        }
        Ok(Self {
            settings,
            links,
            book,
            families: read,
            trouble: errors.iter().map(|error| with_causes(error)).collect(),
        })
    }

    /// Every card that is waited for, once each.
    pub(super) fn cards(&self, wanted: &Wanted) -> Vec<Card> {
        let mut cards = Vec::new();
        let mut seen = BTreeSet::new();
        let mut add = |wanted_as: &str, links: Vec<&Link>| {
            if links.is_empty() {
                cards.push(Card::without_device(wanted_as.to_owned()));
            }
            for link in links {
                if seen.insert(link.index) {
                    cards.push(self.card(wanted_as, link, &wanted.families));
                }
            }
        };
        for interface in &wanted.interfaces {
            let link = self.links.resolve(interface);
            add(interface.as_str(), link.into_iter().collect());
        }
        if wanted.interfaces.is_empty() {
            for section in self.settings.required() {
                add(&section.to_string(), self.required(section));
            }
        }
        cards
    }

    /// The cards that a required section is about, without those that later sections excuse.
    fn required(&self, section: &InterfaceMatch) -> Vec<&Link> {
        let links = self.links.links.values();
        let required: Vec<&Link> = links
            .filter(|link| !link.loopback && section.fits(link) && self.settings.of(link).required)
            .collect();
        // The parts of a bond fit with it when it is named by hardware address.
        let free: Vec<&Link> = required
            .iter()
            .filter(|link| link.master.is_none())
            .copied()
            .collect();
        if free.is_empty() { required } else { free }
    }

    fn card(&self, wanted: &str, link: &Link, families: &[Family]) -> Card {
        let missing = match self.unusable(link) {
            Some(reason) => vec![Missing {
                family: None,
                reason,
            }],
            None if families.is_empty() => self.missing_in_either(link),
            None => self.missing_in(link, families),
        };
        let uplinks = self.families.values().filter_map(|f| f.uplink(link.index));
        Card {
            wanted: wanted.to_owned(),
            name: Some(link.name.clone()),
            addresses: uplinks
                .clone()
                .flat_map(|uplink| uplink.sources.iter().copied())
                .collect(),
            table: uplinks.filter_map(|uplink| uplink.table).next(),
            missing,
        }
    }

    /// Why the link can have no addresses at all.
    fn unusable(&self, link: &Link) -> Option<Reason> {
        if let Some(master) = link.master {
            let master = self.links.links.get(&master);
            return Some(Reason::HasMaster {
                master: master.map(|master| master.name.clone()),
            });
        }
        if !link.up {
            return Some(Reason::Down);
        }
        (!link.carrier).then_some(Reason::NoCarrier)
    }

    /// What is missing in families that are all asked for.
    fn missing_in(&self, link: &Link, families: &[Family]) -> Vec<Missing> {
        let asked = self.families.iter();
        let asked = asked.filter(|(family, _)| families.contains(family));
        let missing = asked.flat_map(|(family, seen)| {
            let reasons = match self.no_lease(link, *family, seen) {
                Some(reason) => vec![reason],
                None => {
                    let mut reasons = self.pending(link, seen);
                    if *family == Family::Ipv6 && !self.has_router(link, seen) {
                        reasons.insert(0, Reason::NoRouter);
                    }
                    reasons
                }
            };
            of_family(*family, reasons)
        });
        missing.collect()
    }

    /// What is missing where it has a lease; and one it must have.
    fn missing_in_either(&self, link: &Link) -> Vec<Missing> {
        let mut without = Vec::new();
        let mut pending = Vec::new();
        let mut leases = 0;
        for (family, seen) in &self.families {
            match self.no_lease(link, *family, seen) {
                Some(Reason::NoLease) => {}
                Some(reason) => without.extend(of_family(*family, vec![reason])),
                None => {
                    leases += 1;
                    pending.extend(of_family(*family, self.pending(link, seen)));
                }
            }
        }
        match (leases, without.is_empty()) {
            (0, true) => vec![Missing {
                family: None,
                reason: Reason::NoLease,
            }],
            (0, false) => without,
            // What is leased and not on the card is no source: nothing is routed by it.
            _ => pending,
        }
    }

    /// Why it has no lease that could be used; `None` when it has one.
    fn no_lease(&self, link: &Link, family: Family, seen: &InFamily) -> Option<Reason> {
        if seen
            .uplink(link.index)
            .is_some_and(|u| !u.sources.is_empty())
        {
            return None;
        }
        let leased = seen.desired.notes.iter().find_map(|note| match note {
            Note::AddressMissing { device, address } if device.index == link.index => {
                Some(*address)
            }
            _ => None,
        });
        let mut failed = seen
            .host
            .addresses_of(link.index, family)
            .filter(|a| a.flags.dad_failed && !leaseroute_core::is_link_local(a.address.ip()))
            .map(|a| a.address.ip());
        let duplicate = match leased {
            Some(leased) => failed.find(|address| *address == leased),
            None => failed.next(),
        };
        Some(match (duplicate, leased) {
            (Some(address), _) => Reason::Duplicate { address },
            (None, Some(address)) => Reason::AddressMissing { address },
            (None, None) => Reason::NoLease,
        })
    }

    /// What has to happen before its lease can be used.
    fn pending(&self, link: &Link, seen: &InFamily) -> Vec<Reason> {
        let Some(uplink) = seen.uplink(link.index) else {
            return Vec::new();
        };
        let family = seen.desired.family;
        let pending = seen.host.addresses_of(link.index, family).filter(|a| {
            let address = a.address.ip();
            let is_pending = a.flags.tentative || a.flags.announced;
            is_pending && uplink.sources.contains(&IpNetwork::from(address))
        });
        let pending = pending.map(|a| {
            let address = a.address.ip();
            if a.flags.announced {
                Reason::AddressMissing { address }
            } else {
                Reason::Tentative { address }
            }
        });
        let mut reasons: Vec<Reason> = pending.collect();
        if self.settings.of(link).manage && seen.desired.active {
            reasons.extend(seen.routing(link, uplink));
        }
        reasons
    }

    /// Whether an IPv6 default route leads by it, or one is known that the lease gave.
    fn has_router(&self, link: &Link, seen: &InFamily) -> bool {
        let mut main = seen.host.main.iter();
        let lease = self.book.lease6(link.index);
        main.any(|route| {
            route.oif == Some(link.index) && route.family() == Family::Ipv6 && route.is_default()
        }) || lease.is_some_and(|lease| lease.routes.iter().any(|r| r.destination.prefix() == 0))
    }
}

impl InFamily {
    fn uplink(&self, index: IfIndex) -> Option<&Uplink> {
        let mut uplinks = self.desired.uplinks.iter();
        uplinks.find(|uplink| uplink.device.index == index)
    }

    /// The first thing of its routing that is missing.
    fn routing(&self, link: &Link, uplink: &Uplink) -> Option<Reason> {
        let Some(table) = uplink.table else {
            return Some(Reason::NoTable);
        };
        let concerns = |step: &&Step| match &step.operation {
            Operation::AddRoute(route) | Operation::ReplaceRoute(route) => route.table == table,
            Operation::AddRule(rule) => match &rule.selector {
                Selector::All => true,
                Selector::From(source) => uplink.sources.contains(source),
                Selector::Oif(name) => *name == link.name,
            },
            Operation::AddAddress(address) => address.device.index == link.index,
            Operation::DeleteRule(_)
            | Operation::DeleteRoute { .. }
            | Operation::DeleteAddress(_) => false,
        };
        let first = self.plan.steps.iter().find(concerns)?;
        Some(Reason::Routing {
            command: self.plan.command(first).to_string(),
        })
    }
}

fn of_family(family: Family, reasons: Vec<Reason>) -> impl Iterator<Item = Missing> {
    let missing = move |reason| Missing {
        family: Some(family),
        reason,
    };
    reasons.into_iter().map(missing)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use leaseroute_core::{
        AddressFlags, Client, Device, InterfaceSettings, Pattern, ProtocolId, RawEvent, RouteKind,
        RouterPreference, When,
    };
    use leaseroute_core::{LinkAddress, ObservedRoute, TableScheme};
    use leaseroute_lab::fake::FakeKernel;
    use leaseroute_runtime::Engine;
    use tempfile::TempDir;

    use super::*;
    use crate::wait::{Answer, look};

    const V4: &[Family] = &[Family::Ipv4];
    const V6: &[Family] = &[Family::Ipv6];
    const EITHER: &[Family] = &[];

    /// A host with cards `eth0` and `eth1`, on which a hook runs for real.
    struct Bench {
        engine: Engine<FakeKernel>,
        cards: RefCell<Vec<Device>>,
        _folder: TempDir,
    }

    impl Bench {
        fn new() -> Self {
            Self::with(Settings::default())
        }

        fn with(settings: Settings) -> Self {
            let folder = TempDir::new().unwrap();
            let state = StateFolder::at(folder.path().join("state"));
            let bench = Self {
                engine: Engine::new(FakeKernel::new(), settings, state),
                cards: RefCell::default(),
                _folder: folder,
            };
            bench.plug();
            bench.plug();
            bench
        }

        fn kernel(&self) -> &FakeKernel {
            self.engine.kernel()
        }

        /// One card more.
        fn plug(&self) {
            let mut cards = self.cards.borrow_mut();
            let name = format!("eth{}", cards.len());
            cards.push(self.kernel().add_link(name.parse().unwrap()));
        }

        fn index(&self, card: usize) -> IfIndex {
            self.cards.borrow()[card].index
        }

        fn describe(&self, card: usize, change: impl FnOnce(&mut Link)) {
            self.kernel().describe_link(self.index(card), change);
        }

        fn add(&self, card: usize, address: &str, flags: AddressFlags) {
            self.kernel().add_address(LinkAddress {
                index: self.index(card),
                address: address.parse().unwrap(),
                peer: None,
                flags,
                protocol: None,
            });
        }

        /// The card gets a lease in 192.0.CARD.0/24, and the hook is told.
        fn bind(&self, card: usize) {
            self.add(card, &ipv4(card), AddressFlags::default());
            self.tell(card);
        }

        fn tell(&self, card: usize) {
            self.tell_with(card, &[]);
        }

        fn tell_with(&self, card: usize, arguments: &[&str]) {
            let address = ipv4(card);
            let (address, _) = address.split_once('/').unwrap();
            let variables = [
                ("reason", "BOUND"),
                ("interface", &format!("eth{card}")),
                ("new_ip_address", address),
                ("new_subnet_mask", "255.255.255.0"),
                ("new_routers", &format!("192.0.{card}.1")),
            ];
            let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let raw = RawEvent {
                arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
                ..RawEvent::new(Client::Dhclient, variables.into())
            };
            let event = raw.client.parse(&raw).unwrap().event.unwrap();
            self.engine.take(event, &raw).unwrap();
        }

        /// A router on the card's link advertises itself.
        fn advertise(&self, card: usize) {
            let route = ObservedRoute {
                table: TableId::MAIN,
                destination: "::/0".parse().unwrap(),
                metric: 1024,
                gateway: Some("fe80::1".parse().unwrap()),
                oif: Some(self.index(card)),
                onlink: false,
                mtu: None,
                kind: RouteKind::Unicast,
                protocol: ProtocolId::RA,
                preference: RouterPreference::Medium,
                other_attributes: false,
            };
            self.kernel().add_route(&route).unwrap();
        }

        fn look(&self, wanted: &Wanted) -> Answer {
            let engine = &self.engine;
            look(engine.kernel(), wanted, engine.settings(), engine.state()).unwrap()
        }

        /// What one card lacks, one line each.
        fn lacks(&self, interface: &str, families: &[Family]) -> Vec<String> {
            let answer = self.look(&wanted(&[interface], families));
            assert_eq!(answer.cards.len(), 1);
            assert_eq!(answer.complete, answer.cards[0].is_complete());
            answer.cards[0].missing_lines().collect()
        }

        /// What is said of those that the configuration requires.
        fn required(&self) -> Vec<String> {
            let answer = self.look(&Wanted::default());
            let lines = answer.cards.iter().flat_map(|card| {
                let ready = card.is_complete().then(|| card.to_string());
                card.missing_lines().chain(ready)
            });
            lines.collect()
        }
    }

    fn ipv4(card: usize) -> String {
        format!("192.0.{card}.5/24")
    }

    fn wanted(interfaces: &[&str], families: &[Family]) -> Wanted {
        Wanted {
            interfaces: interfaces
                .iter()
                .map(|name| name.parse().unwrap())
                .collect(),
            families: families.to_vec(),
            ..Wanted::default()
        }
    }

    fn section(name: &str) -> InterfaceSettings {
        InterfaceSettings {
            matches: InterfaceMatch {
                name: Some(Pattern::new(name).unwrap()),
                ..InterfaceMatch::default()
            },
            ..InterfaceSettings::default()
        }
    }

    fn requires(names: &[(&str, bool)]) -> Settings {
        let section = |(name, required): &(&str, bool)| InterfaceSettings {
            required: Some(*required),
            ..section(name)
        };
        Settings {
            interfaces: names.iter().map(section).collect(),
            ..Settings::default()
        }
    }

    const TENTATIVE: AddressFlags = AddressFlags {
        permanent: false,
        tentative: true,
        dad_failed: false,
        temporary: false,
        announced: false,
    };

    #[test]
    fn a_card_that_is_not_there_is_no_such_device() {
        assert_eq!(Bench::new().lacks("eth9", EITHER), ["eth9: no such device"]);
    }

    #[test]
    fn what_the_link_lacks_comes_first() {
        let bench = Bench::new();
        bench.bind(0);
        bench.describe(0, |link| link.carrier = false);
        assert_eq!(bench.lacks("eth0", EITHER), ["eth0: no carrier"]);
        bench.kernel().set_up(bench.index(0), false);
        assert_eq!(bench.lacks("eth0", EITHER), ["eth0: down"]);
        let master = bench.index(1);
        bench.describe(0, |link| link.master = Some(master));
        assert_eq!(
            bench.lacks("eth0", EITHER),
            ["eth0: belongs to eth1, which has the addresses"]
        );
    }

    #[test]
    fn without_a_lease_the_families_that_are_asked_for_are_named() {
        let bench = Bench::new();
        assert_eq!(bench.lacks("eth0", EITHER), ["eth0: no lease"]);
        assert_eq!(bench.lacks("eth0", V4), ["eth0: no IPv4 lease"]);
        let both = bench.lacks("eth0", &Family::BOTH);
        assert_eq!(both, ["eth0: no IPv4 lease", "eth0: no IPv6 lease"]);
    }

    #[test]
    fn an_address_that_nobody_leased_is_no_lease() {
        let bench = Bench::new();
        bench.add(0, &ipv4(0), AddressFlags::default());
        assert_eq!(bench.lacks("eth0", EITHER), ["eth0: no lease"]);
    }

    #[test]
    fn a_single_uplink_needs_no_table() {
        let bench = Bench::new();
        bench.bind(0);
        let answer = bench.look(&wanted(&["eth0"], EITHER));
        assert!(answer.complete);
        assert_eq!(
            answer.cards[0].to_string(),
            "eth0: 192.0.0.5; needs no table"
        );
    }

    #[test]
    fn two_uplinks_have_their_tables() {
        let bench = Bench::new();
        bench.bind(0);
        bench.bind(1);
        let answer = bench.look(&wanted(&["eth1", "eth0", "eth1"], EITHER));
        assert!(answer.complete);
        let lines: Vec<String> = answer.cards.iter().map(ToString::to_string).collect();
        let table = |card| 76000 + bench.index(card).get();
        assert_eq!(
            lines,
            [
                format!("eth1: 192.0.1.5; table {}", table(1)),
                format!("eth0: 192.0.0.5; table {}", table(0)),
            ]
        );
    }

    #[test]
    fn each_rule_and_route_of_it_counts() {
        let bench = Bench::new();
        bench.bind(0);
        bench.bind(1);
        let whole = bench.kernel().contents();
        let settings = bench.engine.settings();
        let table = TableId::observed(76000 + bench.index(1).get());
        let routes = whole
            .routes
            .iter()
            .filter(|route| settings.owns_route(route));
        for route in routes.filter(|route| route.table == table) {
            bench.kernel().delete_route(route).unwrap();
            let lacks = bench.lacks("eth1", EITHER);
            let begin = "eth1: routing incomplete: ip -4 route add ";
            assert!(lacks.len() == 1 && lacks[0].starts_with(begin), "{lacks:?}");
            assert!(bench.lacks("eth0", EITHER).is_empty());
            bench.engine.apply().unwrap();
        }
        let rules = whole.rules.iter().filter(|rule| settings.owns_rule(rule));
        for rule in rules {
            bench.kernel().delete_rule(rule).unwrap();
            let lacks = [bench.lacks("eth0", EITHER), bench.lacks("eth1", EITHER)].concat();
            assert!(
                lacks.len() == 1 && lacks[0].contains(": routing incomplete: ip -4 rule add "),
                "{lacks:?}"
            );
            bench.engine.apply().unwrap();
        }
        assert!(bench.look(&wanted(&["eth0", "eth1"], EITHER)).complete);
    }

    #[test]
    fn a_record_whose_routing_is_not_there_yet_is_not_ready() {
        let bench = Bench::new();
        bench.bind(0);
        bench.add(1, &ipv4(1), AddressFlags::default());
        bench.kernel().deny();
        bench.tell(1);
        let lacks = bench.lacks("eth1", EITHER);
        assert!(
            lacks[0].starts_with("eth1: routing incomplete: "),
            "{lacks:?}"
        );
    }

    #[test]
    fn a_leased_address_that_is_gone_is_named() {
        let bench = Bench::new();
        bench.bind(0);
        let address = ipv4(0).parse().unwrap();
        bench.kernel().delete_address(bench.index(0), address);
        let gone = "eth0: the leased address 192.0.0.5 is not on it";
        assert_eq!(bench.lacks("eth0", EITHER), [gone]);
        assert_eq!(bench.lacks("eth0", V4), [gone]);
        // The other family will do, unless this one is asked for.
        bench.add(0, "2001:db8::5/64", AddressFlags::default());
        assert!(bench.lacks("eth0", EITHER).is_empty());
        assert_eq!(bench.lacks("eth0", V4), [gone]);
    }

    #[test]
    fn a_tentative_address_is_waited_for() {
        let bench = Bench::new();
        bench.bind(0);
        bench.add(0, "2001:db8::5/64", TENTATIVE);
        let tentative =
            "eth0: address 2001:db8::5 is tentative: duplicate address detection still runs";
        assert_eq!(bench.lacks("eth0", EITHER), [tentative]);
        assert!(bench.lacks("eth0", V4).is_empty());
        bench.advertise(0);
        assert_eq!(bench.lacks("eth0", V6), [tentative]);
    }

    #[test]
    fn an_address_that_is_only_announced_is_waited_for() {
        let bench = Bench::new();
        bench.bind(0);
        bench.tell_with(1, &["ahead"]);
        let missing = "eth1: the leased address 192.0.1.5 is not on it";
        assert_eq!(bench.lacks("eth1", EITHER), [missing]);
        bench.bind(1);
        assert!(bench.lacks("eth1", EITHER).is_empty());
    }

    #[test]
    fn a_duplicate_address_is_named() {
        let bench = Bench::new();
        let failed = AddressFlags {
            dad_failed: true,
            ..TENTATIVE
        };
        bench.add(0, "2001:db8::5/64", failed);
        assert_eq!(
            bench.lacks("eth0", V6),
            ["eth0: address 2001:db8::5 is in use elsewhere: duplicate address detection failed"]
        );
    }

    #[test]
    fn a_router_is_demanded_with_ipv6_by_name_alone() {
        let bench = Bench::new();
        bench.add(0, "2001:db8::5/64", AddressFlags::default());
        assert!(bench.lacks("eth0", EITHER).is_empty());
        assert_eq!(
            bench.lacks("eth0", V6),
            ["eth0: no RA router: no IPv6 default route leads by it"]
        );
        bench.advertise(0);
        assert!(bench.lacks("eth0", V6).is_empty());
    }

    #[test]
    fn routing_counts_in_every_family_with_a_lease() {
        let bench = Bench::new();
        bench.bind(0);
        bench.bind(1);
        for card in 0..2 {
            let flags = AddressFlags::default();
            bench.add(card, &format!("2001:db8:0:{card}::5/64"), flags);
            bench.advertise(card);
        }
        let lacks = bench.lacks("eth1", EITHER);
        assert!(
            lacks[0].starts_with("eth1: routing incomplete: ip -6 "),
            "{lacks:?}"
        );
        assert!(bench.lacks("eth1", V4).is_empty());
        bench.engine.apply().unwrap();
        assert!(bench.lacks("eth1", &Family::BOTH).is_empty());
    }

    #[test]
    fn a_card_that_we_leave_alone_needs_a_lease_only() {
        let unmanaged = InterfaceSettings {
            manage: Some(false),
            ..section("eth1")
        };
        let bench = Bench::with(Settings {
            when: When::Always,
            interfaces: vec![unmanaged],
            ..Settings::default()
        });
        assert_eq!(bench.lacks("eth1", EITHER), ["eth1: no lease"]);
        bench.bind(1);
        let answer = bench.look(&wanted(&["eth1"], EITHER));
        assert_eq!(
            answer.cards[0].to_string(),
            "eth1: 192.0.1.5; needs no table"
        );
    }

    #[test]
    fn a_card_that_should_have_a_table_and_gets_none_is_not_ready() {
        let same = |name| InterfaceSettings {
            table: TableId::own(500).ok(),
            ..section(name)
        };
        let bench = Bench::with(Settings {
            interfaces: vec![same("eth0"), same("eth1")],
            ..Settings::default()
        });
        bench.bind(0);
        bench.bind(1);
        assert!(bench.lacks("eth0", EITHER).is_empty());
        assert_eq!(
            bench.lacks("eth1", EITHER),
            ["eth1: routing incomplete: it gets no table, leaseroute status says why"]
        );
    }

    #[test]
    fn tables_by_position_are_looked_at_in_one_family_too() {
        let bench = Bench::with(Settings {
            tables: TableScheme::Position {
                base: 100,
                order: Vec::new(),
            },
            ..Settings::default()
        });
        bench.bind(0);
        bench.bind(1);
        let answer = bench.look(&wanted(&["eth1"], V4));
        assert_eq!(answer.cards[0].to_string(), "eth1: 192.0.1.5; table 101");
    }

    #[test]
    fn an_alternative_name_will_do() {
        let bench = Bench::new();
        bench.bind(0);
        bench.describe(0, |link| link.alternative_names.push("uplink".to_owned()));
        let answer = bench.look(&wanted(&["uplink", "eth0"], EITHER));
        assert_eq!(answer.cards.len(), 1, "it is one card");
        assert_eq!(answer.cards[0].wanted, "uplink");
        assert_eq!(answer.cards[0].name.as_ref().unwrap().as_str(), "eth0");
    }

    #[test]
    fn the_record_of_another_card_does_not_count() {
        let bench = Bench::new();
        bench.bind(0);
        bench.describe(0, |link| link.mac = None);
        assert_eq!(bench.lacks("eth0", EITHER), ["eth0: no lease"]);
    }

    #[test]
    fn any_of_several_will_do() {
        let bench = Bench::new();
        let all = wanted(&["eth9", "eth0"], EITHER);
        let any = Wanted {
            any: true,
            ..all.clone()
        };
        assert!(!bench.look(&any).complete);
        bench.bind(0);
        assert!(!bench.look(&all).complete);
        assert!(bench.look(&any).complete);
    }

    #[test]
    fn a_required_card_that_no_interface_fits_is_missing() {
        let bench = Bench::with(requires(&[("eth2", true)]));
        assert!(!Wanted::default().is_nothing(bench.engine.settings()));
        assert_eq!(bench.required(), ["name = \"eth2\": no such device"]);
        bench.plug();
        assert_eq!(bench.required(), ["eth2: no lease"]);
        bench.bind(2);
        assert_eq!(bench.required(), ["eth2: 192.0.2.5; needs no table"]);
    }

    #[test]
    fn all_that_fit_a_required_section_are_waited_for() {
        let bench = Bench::with(requires(&[("*", true), ("eth1", true)]));
        bench.bind(1);
        assert_eq!(
            bench.required(),
            ["eth0: no lease", "eth1: 192.0.1.5; needs no table"]
        );
    }

    #[test]
    fn a_later_section_takes_the_demand_back() {
        let bench = Bench::with(requires(&[("eth*", true), ("eth1", false)]));
        assert_eq!(bench.required(), ["eth0: no lease"]);
        let settings = requires(&[("eth9", true), ("eth9", false)]);
        assert!(Wanted::default().is_nothing(&settings));
        // One that is excused does not stand in for one that is to come.
        let bench = Bench::with(requires(&[("eth*", true), ("eth[01]", false)]));
        assert_eq!(bench.required(), ["name = \"eth*\": no such device"]);
        bench.plug();
        assert_eq!(bench.required(), ["eth2: no lease"]);
    }

    #[test]
    fn the_parts_of_a_bond_are_not_waited_for_beside_it() {
        let bench = Bench::with(requires(&[("eth*", true)]));
        let bond = bench.index(0);
        bench.describe(1, |link| link.master = Some(bond));
        assert_eq!(bench.required(), ["eth0: no lease"]);
    }

    #[test]
    fn a_named_card_is_waited_for_in_place_of_what_is_required() {
        let bench = Bench::with(requires(&[("eth1", true)]));
        assert_eq!(bench.lacks("eth0", EITHER), ["eth0: no lease"]);
    }

    #[test]
    fn a_record_that_makes_no_sense_is_told_of() {
        let bench = Bench::new();
        bench.bind(0);
        let index = bench.index(0);
        let record = bench
            .engine
            .state()
            .leases()
            .join(format!("{index}.4.json"));
        std::fs::write(record, "{").unwrap();
        let answer = bench.look(&wanted(&["eth0"], EITHER));
        assert!(!answer.complete);
        assert_eq!(answer.trouble.len(), 1);
    }
}
