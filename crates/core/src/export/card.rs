//! What all formats say of a card, in one form.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::address::{Family, is_link_local, is_unicast_host};
use crate::book::Record;
use crate::client::Client;
use crate::export::Inputs;
use crate::host::{Link, LinkAddress};
use crate::interface::IfIndex;
use crate::lease::{Lease, LeaseState};
use crate::model::{Purpose, inner_prefixes};
use crate::numbers::{ProtocolId, TableId};
use crate::route::{ObservedRoute, Route, RouteKind};
use crate::rule::Rule;

/// A managed uplink of either family.
pub(super) struct Card<'a> {
    pub(super) link: &'a Link,
    /// The metric of what its client puts into table main: the first card, by which the
    /// host's own connections leave now, has the least.
    pub(super) metric: u32,
    pub(super) ipv4: Part,
    pub(super) ipv6: Part,
}

/// A card in one family.
pub(super) struct Part {
    pub(super) family: Family,
    /// Whether DHCP or router advertisements give it its addresses.
    pub(super) automatic: bool,
    /// Addresses that nobody leased.
    pub(super) addresses: Vec<IpNetwork>,
    /// Default routes of table main that no client brings.
    pub(super) main: Vec<Route>,
    /// Whether the number of uplinks calls for rules at all.
    pub(super) active: bool,
    /// Its table; `None` when it gets nothing.
    pub(super) table: Option<TableId>,
    /// Its sources, those of the lease first.
    pub(super) sources: Vec<IpNetwork>,
    /// The routes of its table, in the order in which the kernel takes them.
    pub(super) routes: Vec<Route>,
    /// The routes to networks of the host itself that its table holds beside shorter ones,
    /// by other devices.
    pub(super) shadowed: Vec<Route>,
    /// Prefixes of the host's own networks, containers and the like.
    pub(super) inner: BTreeSet<IpNetwork>,
    /// Its rules, by priority.
    pub(super) rules: Vec<Rule>,
}

impl<'a> Card<'a> {
    /// All cards, the first one first.
    pub(super) fn all(inputs: Inputs<'a>) -> Vec<Self> {
        let mut links: Vec<&Link> = Family::BOTH
            .into_iter()
            .flat_map(|family| &inputs.desired(family).uplinks)
            .filter_map(|uplink| inputs.host.links.get(&uplink.device.index))
            .filter(|link| inputs.settings.of(link).manage)
            .collect();
        let best = |link: &Link, family| {
            let metrics = mains(inputs, link.index, family).map(|route| route.metric);
            metrics.min().unwrap_or(u32::MAX)
        };
        links.sort_by_key(|link| {
            (
                best(link, Family::Ipv4),
                best(link, Family::Ipv6),
                link.index,
            )
        });
        links.dedup_by_key(|link| link.index);
        let metrics = (1..).map(|place: u32| place.saturating_mul(100));
        let cards = metrics.zip(links).map(|(metric, link)| Self {
            link,
            metric,
            ipv4: Part::new(inputs, link, Family::Ipv4),
            ipv6: Part::new(inputs, link, Family::Ipv6),
        });
        cards.collect()
    }

    pub(super) fn parts(&self) -> [&Part; 2] {
        [&self.ipv4, &self.ipv6]
    }

    /// Whether it is a device that exists without anybody's making it. The parts of other
    /// kinds (a bond's cards, a VLAN's number) are not known here.
    pub(super) fn is_simple(&self) -> bool {
        matches!(self.link.kind.as_deref(), None | Some("veth"))
    }
}

impl Part {
    fn new(inputs: Inputs<'_>, link: &Link, family: Family) -> Self {
        let desired = inputs.desired(family);
        let index = link.index;
        let record = inputs.book.get(index, family);
        let found = global_addresses(inputs, index, family);
        let leased = leased(record);
        let is_leased = |address: IpAddr| leased.iter().any(|prefix| prefix.contains(address));
        let advertised = || {
            let mut main = inputs.host.main.iter();
            main.any(|route| {
                route.oif == Some(index)
                    && route.family() == family
                    && route.protocol == ProtocolId::RA
            })
        };
        let automatic = found
            .iter()
            .any(|a| !a.flags.permanent && !is_scripted(record))
            || record.is_some_and(|record| !is_scripted(Some(record)))
            || advertised();
        let fixed = found.iter().filter(|a| {
            a.flags.permanent && a.peer.is_none() && !(automatic && is_leased(a.address.ip()))
        });
        let uplink = desired.uplinks.iter().find(|u| u.device.index == index);
        let table = uplink.and_then(|uplink| uplink.table);
        let mut sources: Vec<IpNetwork> = uplink
            .map(|uplink| uplink.sources.iter().copied().collect())
            .unwrap_or_default();
        sources.sort_by_key(|source| place(inputs, index, record, *source));
        let own = desired
            .routes
            .iter()
            .filter(|(route, _)| Some(route.table) == table);
        let is_inner = |purpose: &Purpose| matches!(purpose, Purpose::Inner { .. });
        let kept = desired.kept_routes.iter();
        let kept = kept.filter(|route| Some(route.table) == table);
        let rules = desired.rules.iter().filter(
            |(_, purpose)| matches!(purpose, Purpose::Rule { device, .. } if device.index == index),
        );
        Self {
            family,
            automatic,
            addresses: fixed.map(|a| a.address).collect(),
            main: mains(inputs, index, family)
                .filter(|route| !automatic && route.protocol != ProtocolId::RA)
                .filter_map(|route| wanted(link, route))
                .collect(),
            active: desired.active,
            table,
            sources,
            routes: own
                .clone()
                .filter(|(_, purpose)| !is_inner(purpose))
                .map(|(route, _)| route.clone())
                .chain(kept.filter_map(|route| wanted(link, route)))
                .collect(),
            shadowed: own
                .filter(|(_, purpose)| is_inner(purpose))
                .map(|(route, _)| route.clone())
                .collect(),
            inner: inner(inputs, family),
            rules: rules.map(|(rule, _)| rule.clone()).collect(),
        }
    }

    /// Whether anything is to be said of the family.
    pub(super) fn is_used(&self) -> bool {
        self.automatic || !self.addresses.is_empty() || self.table.is_some()
    }
}

/// The rules that keep the host's own addresses first, where they are needed.
pub(super) fn local_first(inputs: Inputs<'_>) -> Vec<&Rule> {
    let rules = inputs.ipv4.rules.iter().chain(&inputs.ipv6.rules);
    let local = rules.filter(|(_, purpose)| *purpose == Purpose::LocalFirst);
    local.map(|(rule, _)| rule).collect()
}

/// Whether what is known of a lease is known from scripts alone: it is no lease then.
fn is_scripted(record: Option<&Record>) -> bool {
    record.is_some_and(|record| {
        !record.told_by.is_empty() && record.told_by.iter().all(|who| *who == Client::Script)
    })
}

/// What a lease says that it gives, and the prefixes that routers give addresses of.
fn leased(record: Option<&Record>) -> Vec<IpNetwork> {
    match record.map(|record| &record.state) {
        Some(LeaseState::Held(Lease::Ipv4(lease))) => {
            let addresses = lease.others.iter().chain([&lease.address]);
            addresses.map(|a| IpNetwork::from(IpAddr::V4(*a))).collect()
        }
        Some(LeaseState::Held(Lease::Ipv6(lease))) => {
            let addresses = lease.addresses.keys();
            let addresses = addresses.map(|a| IpNetwork::from(IpAddr::V6(*a)));
            let made = lease.autonomous.iter().copied().map(IpNetwork::V6);
            addresses.chain(made).collect()
        }
        Some(LeaseState::Lost) | None => Vec::new(),
    }
}

/// Where a source comes among those of its card: what is leased, what the kernel made of an
/// advertisement, further addresses, prefixes.
fn place(
    inputs: Inputs<'_>,
    index: IfIndex,
    record: Option<&Record>,
    source: IpNetwork,
) -> (u8, IpNetwork) {
    let family = Family::of_network(source);
    if source.prefix() < family.host_length() {
        return (5, source);
    }
    let first = match record.map(|record| &record.state) {
        Some(LeaseState::Held(Lease::Ipv4(lease))) => source.ip() == IpAddr::V4(lease.address),
        Some(LeaseState::Held(Lease::Ipv6(lease))) => {
            let mut addresses = lease.addresses.keys();
            addresses.any(|address| source.ip() == IpAddr::V6(*address))
        }
        Some(LeaseState::Lost) | None => false,
    };
    if first {
        return (0, source);
    }
    let mut addresses = inputs.host.addresses_of(index, family);
    let seen = addresses.find(|a| a.address.ip() == source.ip());
    let place = match seen.map(|a| a.flags) {
        Some(flags) if flags.permanent => 3,
        Some(flags) if flags.temporary => 2,
        Some(_) => 1,
        None => 4,
    };
    (place, source)
}

fn global_addresses(inputs: Inputs<'_>, index: IfIndex, family: Family) -> Vec<&LinkAddress> {
    let addresses = inputs.host.addresses.iter();
    let global = addresses.filter(|a| {
        let address = a.address.ip();
        a.index == index
            && Family::of(address) == family
            && !a.flags.dad_failed
            && is_unicast_host(address)
            && !is_link_local(address)
    });
    global.collect()
}

/// The default routes of table main by a card.
fn mains(
    inputs: Inputs<'_>,
    index: IfIndex,
    family: Family,
) -> impl Iterator<Item = &ObservedRoute> {
    let main = inputs.host.main.iter();
    main.filter(move |r| r.oif == Some(index) && r.family() == family && r.is_default())
}

/// A route that is there, as one that is wanted.
fn wanted(link: &Link, seen: &ObservedRoute) -> Option<Route> {
    let is_plain = seen.kind == RouteKind::Unicast && seen.oif == Some(link.index);
    is_plain.then(|| Route {
        table: seen.table,
        destination: seen.destination,
        metric: seen.metric,
        gateway: seen.gateway,
        device: link.device(),
        onlink: seen.onlink,
        mtu: seen.mtu,
        preference: seen.preference,
    })
}

/// The prefixes of interfaces that are no uplinks, as they are now.
fn inner(inputs: Inputs<'_>, family: Family) -> BTreeSet<IpNetwork> {
    let uplinks = &inputs.desired(family).uplinks;
    let is_uplink = |index| uplinks.iter().any(|uplink| uplink.device.index == index);
    let prefixes = inner_prefixes(family, inputs.host, is_uplink).into_iter();
    prefixes.map(|(prefix, _)| prefix).collect()
}
