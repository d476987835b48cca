//! Which interfaces are uplinks, and what each of them knows: its sources, its on-link
//! prefixes, its lease's or router's routes and its defaults.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::address::{Family, NetworkExt as _, is_link_local, is_unicast_host};
use crate::book::LeaseBook;
use crate::host::{Host, Link, LinkAddress};
use crate::interface::{Device, IfIndex};
use crate::lease::{GivenRoute6, Lease, Lease4, Lease6, RouteOption};
use crate::model::table::METRIC6;
use crate::model::{Inputs, Purpose};
use crate::note::Note;
use crate::numbers::ProtocolId;
use crate::route::{ObservedRoute, RouteKind, RouterPreference};
use crate::rule::ObservedRule;
use crate::settings::{Settings, TableScheme};

mod said;

/// The most IPv6 prefixes on one link, routes and default routers by it that are taken from
/// what its routers advertise. Each is copied into the tables of all uplinks.
const MAX_ON_LINK: usize = 64;
const MAX_LEARNED: usize = 128;
const MAX_DEFAULTS: usize = 16;

/// What is known about one uplink in one family.
pub(super) struct UplinkFacts<'a> {
    pub(super) link: &'a Link,
    /// Whether the configuration lets us work on it.
    pub(super) managed: bool,
    /// Addresses and prefixes whose packets must leave by it.
    pub(super) sources: BTreeSet<IpNetwork>,
    /// Whether its routes are known. They are not when an IPv4 lease was never reported
    /// but our rules show that there was one.
    pub(super) routes_known: bool,
    /// Prefixes on its link.
    pub(super) on_link: BTreeSet<IpNetwork>,
    /// Routes of its lease or its routers, without defaults.
    pub(super) routes: Vec<LearnedRoute>,
    /// Its defaults, the best one first.
    pub(super) defaults: Vec<LearnedDefault>,
    /// The MTU for its routes in bytes; `None` leaves the link's.
    pub(super) mtu: Option<u32>,
}

/// A route that a lease or a router told of. Without a gateway it is on-link.
#[derive(Clone)]
pub(super) struct LearnedRoute {
    pub(super) destination: IpNetwork,
    pub(super) gateway: Option<IpAddr>,
    pub(super) purpose: Purpose,
}

/// A default route. Without a gateway it is on-link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LearnedDefault {
    pub(super) gateway: Option<IpAddr>,
    /// 0 for IPv4, the kernel's for IPv6.
    pub(super) metric: u32,
    pub(super) preference: RouterPreference,
}

/// Finds the uplinks of a family, by index. Interfaces that hold a lease and are no
/// uplinks are noted.
pub(super) fn find<'a>(inputs: Inputs<'a>, notes: &mut Vec<Note>) -> Vec<UplinkFacts<'a>> {
    let delegated = delegated(inputs);
    let links = inputs.host.links.values().filter(|link| !link.loopback);
    links
        .filter_map(|link| facts(inputs, link, &delegated, notes))
        .collect()
}

fn facts<'a>(
    inputs: Inputs<'a>,
    link: &'a Link,
    delegated: &[(IfIndex, IpNetwork)],
    notes: &mut Vec<Note>,
) -> Option<UplinkFacts<'a>> {
    let Inputs {
        family,
        host,
        book,
        settings,
    } = inputs;
    let holds_lease = book.lease(link.index, family).is_some();
    if let Some(note) = unusable(host, link) {
        notes.extend(holds_lease.then_some(note));
        return None;
    }
    let managed = settings.of(link).manage;
    let mut uplink = UplinkFacts {
        link,
        managed,
        sources: BTreeSet::new(),
        routes_known: true,
        on_link: BTreeSet::new(),
        routes: Vec::new(),
        defaults: Vec::new(),
        mtu: None,
    };
    match family {
        Family::Ipv4 => uplink.learn4(inputs, notes),
        Family::Ipv6 => uplink.learn6(inputs, notes),
    }
    uplink.learn_said(inputs, notes);
    // What lies in another interface's delegated prefix is behind this host, not before
    // it: such a card is a port of the router's own network.
    let is_inner = |prefix: &IpNetwork| {
        let mut elsewhere = delegated.iter().filter(|(index, _)| *index != link.index);
        elsewhere.any(|(_, delegated)| delegated != prefix && delegated.covers(*prefix))
    };
    uplink.sources.retain(|source| !is_inner(source));
    uplink.on_link.retain(|prefix| !is_inner(prefix));
    // An IPv6 default of an interface without an address of its own says nothing, and is read
    // only by chance: while rules of ours name the interface.
    let has_default = defaults_in_main(host, link.index, family).next().is_some()
        && (family == Family::Ipv4
            || book.get(link.index, family).is_some()
            || global_addresses6(host).any(|index| index == link.index));
    if !has_default && uplink.sources.is_empty() {
        return None;
    }
    if settings.permanent_addresses {
        let permanent = source_addresses(inputs, link.index).filter(|a| a.flags.permanent);
        let permanent = permanent.map(|a| IpNetwork::from(a.address.ip()));
        uplink.sources.extend(permanent.filter(|a| !is_inner(a)));
    }
    if !managed && holds_lease {
        let device = link.device();
        notes.push(Note::Unmanaged { device });
    }
    Some(uplink)
}

/// Why an interface cannot be an uplink, whatever it holds.
pub(super) fn unusable(host: &Host, link: &Link) -> Option<Note> {
    let device = link.device();
    if let Some(master) = link.master {
        let master = host.links.get(&master).map(|master| master.name.clone());
        return Some(Note::HasMaster { device, master });
    }
    (!link.up).then_some(Note::LinkDown { device })
}

impl UplinkFacts<'_> {
    fn learn4(&mut self, inputs: Inputs<'_>, notes: &mut Vec<Note>) {
        let Inputs {
            host,
            book,
            settings,
            ..
        } = inputs;
        let index = self.link.index;
        let lease = book.lease4(index).filter(|lease| {
            let address = lease.address.into();
            let is_there = host.has_address(index, address);
            if !is_there && !book.is_past(lease.expires) {
                let device = self.link.device();
                notes.push(Note::AddressMissing { device, address });
            }
            is_there
        });
        for address in host.addresses_of(index, Family::Ipv4) {
            let leased = lease.filter(|lease| address.address.ip() == IpAddr::V4(lease.address));
            let length = leased.and_then(|lease| lease.prefix_length);
            self.on_link.extend(on_link_prefix(address, length));
        }
        if let Some(lease) = lease {
            let others = lease.others.iter().copied().map(IpAddr::V4);
            let there = others.filter(|address| host.has_address(index, *address));
            self.sources
                .extend(there.chain([lease.address.into()]).map(IpNetwork::from));
            self.take_lease(lease);
            return;
        }
        self.sources = evident_sources(inputs, index);
        self.routes_known = self.sources.is_empty() && !said::keeps_routes(inputs, index);
        if settings.permanent_addresses {
            self.defaults.extend(best_default4(host, index));
        }
    }

    fn take_lease(&mut self, lease: &Lease4) {
        // A router equal to the leased address means that everything is on-link.
        let gateway = |gateway: Option<std::net::Ipv4Addr>| {
            gateway.filter(|g| *g != lease.address).map(IpAddr::V4)
        };
        let mut router = lease.router.map(Some);
        if let Some(classless) = &lease.classless {
            if classless.option.replaces_routers() {
                let default = classless
                    .routes
                    .iter()
                    .find(|r| r.destination.prefix() == 0);
                router = default.map(|route| route.gateway);
            }
            let others = classless
                .routes
                .iter()
                .filter(|r| r.destination.prefix() != 0);
            self.routes.extend(others.map(|route| LearnedRoute {
                destination: IpNetwork::V4(route.destination),
                gateway: gateway(route.gateway),
                purpose: Purpose::LeaseRoute {
                    option: classless.option,
                },
            }));
        }
        self.defaults.extend(router.map(|router| LearnedDefault {
            gateway: gateway(router),
            metric: 0,
            preference: RouterPreference::Medium,
        }));
        let mtu = lease.mtu.map(u32::from);
        self.mtu = mtu.filter(|mtu| *mtu < self.link.mtu);
    }

    fn learn6(&mut self, inputs: Inputs<'_>, notes: &mut Vec<Note>) {
        let Inputs { host, book, .. } = inputs;
        let index = self.link.index;
        let dynamic = source_addresses(inputs, index).filter(|a| !a.flags.permanent);
        self.sources
            .extend(dynamic.map(|a| IpNetwork::from(a.address.ip())));
        if let Some(lease) = book.lease6(index) {
            let made = source_addresses(inputs, index).map(|a| a.address.ip());
            let made = made.filter(|address| {
                let mut prefixes = lease.autonomous.iter();
                prefixes.any(|prefix| IpNetwork::V6(*prefix).contains(*address))
            });
            self.sources.extend(made.map(IpNetwork::from));
            for (address, leased) in &lease.addresses {
                let address = IpAddr::V6(*address);
                if host.has_address(index, address) {
                    self.sources.insert(IpNetwork::from(address));
                } else if !book.is_past(leased.expires) {
                    let device = self.link.device();
                    notes.push(Note::AddressMissing { device, address });
                }
            }
            self.sources
                .extend(lease.prefixes.keys().map(|prefix| IpNetwork::V6(*prefix)));
        }
        self.sources.extend(evident_sources(inputs, index));
        self.sources.retain(|source| {
            let holder = is_delegated(*source).then(|| contested(inputs, index, *source));
            let holder = holder.flatten();
            notes.extend(holder.clone().map(|holder| Note::ContestedPrefix {
                device: self.link.device(),
                prefix: *source,
                holder,
            }));
            holder.is_none()
        });

        let seen = host.main.iter().filter(|route| {
            route.oif == Some(index)
                && route.family() == Family::Ipv6
                && route.kind == RouteKind::Unicast
                && !route.destination.ip().is_multicast()
                && !is_link_local(route.destination.ip())
        });
        // A client of static addresses adds their prefixes itself.
        let is_own = |route: &ObservedRoute| {
            let mut addresses = host.addresses_of(index, Family::Ipv6);
            addresses.any(|a| a.address.canonical() == route.destination)
        };
        for route in seen {
            let learned = route.protocol == ProtocolId::RA;
            if route.destination.is_default() {
                self.defaults.push(LearnedDefault {
                    gateway: route.gateway,
                    metric: route.metric,
                    preference: route.preference,
                });
            } else if route.gateway.is_some() {
                if learned {
                    self.routes.push(LearnedRoute {
                        destination: route.destination,
                        gateway: route.gateway,
                        purpose: Purpose::AdvertisedRoute,
                    });
                }
            } else if (learned || route.protocol == ProtocolId::KERNEL || is_own(route))
                && route.destination.prefix() < Family::Ipv6.host_length()
            {
                self.on_link.insert(route.destination);
            }
        }
        if let Some(lease) = book.lease6(index) {
            self.take_given_routes(lease);
        }
        self.defaults
            .sort_by_key(|d| (d.metric, std::cmp::Reverse(d.preference), d.gateway));
        self.defaults.dedup_by_key(|d| (d.metric, d.gateway));
        self.bound_learned(notes);
        part_by_preference(&mut self.defaults);
    }

    /// Anybody on a link may advertise: what is more than any network has is left out.
    fn bound_learned(&mut self, notes: &mut Vec<Note>) {
        let device = self.link.device();
        let mut bound = |what, count: usize, limit: usize| {
            let device = device.clone();
            notes.extend((count > limit).then_some(Note::TooMany {
                device,
                what,
                count,
                limit,
            }));
        };
        bound("prefixes", self.on_link.len(), MAX_ON_LINK);
        bound("routes", self.routes.len(), MAX_LEARNED);
        bound("default routers", self.defaults.len(), MAX_DEFAULTS);
        while self.on_link.len() > MAX_ON_LINK {
            self.on_link.pop_last();
        }
        self.routes.truncate(MAX_LEARNED);
        self.defaults.truncate(MAX_DEFAULTS);
    }

    /// Takes the routes that a script gave. Who names a gateway means that one: a default
    /// route of the interface in table main is another's, or none, when two cards have one.
    fn take_given_routes(&mut self, lease: &Lease6) {
        let (defaults, others): (Vec<&GivenRoute6>, Vec<&GivenRoute6>) = lease
            .routes
            .iter()
            .partition(|route| route.destination.prefix() == 0);
        if !defaults.is_empty() {
            self.defaults.clear();
        }
        self.defaults
            .extend(defaults.into_iter().map(|route| LearnedDefault {
                gateway: route.gateway.map(IpAddr::V6),
                metric: METRIC6,
                preference: RouterPreference::Medium,
            }));
        self.routes
            .extend(others.into_iter().map(|route| LearnedRoute {
                destination: IpNetwork::V6(route.destination),
                gateway: route.gateway.map(IpAddr::V6),
                purpose: Purpose::LeaseRoute {
                    option: RouteOption::Given,
                },
            }));
    }
}

/// Gives the defaults of lesser routers a metric of their own, as small as order allows:
/// the kernel makes one multipath route of all that have one metric, whatever the routers
/// say of themselves (RFC 4191). `defaults` come in order, the best one first.
fn part_by_preference(defaults: &mut [LearnedDefault]) {
    let mut last: Option<(LearnedDefault, u32)> = None;
    for default in defaults {
        let told = *default;
        if let Some((before, given)) = last {
            let alike = (before.metric, before.preference) == (told.metric, told.preference);
            let least = if alike {
                given
            } else {
                given.saturating_add(1)
            };
            default.metric = told.metric.max(least);
        }
        last = Some((told, default.metric));
    }
}

/// The on-link prefix of an address: the peer's, else the address's own with the lease's
/// length before the kernel's. A prefix of just that address is none.
pub(super) fn on_link_prefix(
    address: &LinkAddress,
    leased_length: Option<u8>,
) -> Option<IpNetwork> {
    if let Some(peer) = address.peer {
        return Some(peer.canonical());
    }
    let length = leased_length.unwrap_or(address.address.prefix());
    let is_prefix = length > 0 && length < Family::of_network(address.address).host_length();
    let prefix = address.address.supernet_at(length);
    (is_prefix && !is_link_local(prefix.ip())).then_some(prefix)
}

/// The addresses of an interface that can be sources at all.
fn source_addresses<'a>(
    inputs: Inputs<'a>,
    index: IfIndex,
) -> impl Iterator<Item = &'a LinkAddress> {
    inputs.host.addresses_of(index, inputs.family).filter(|a| {
        let address = a.address.ip();
        !a.flags.dad_failed && is_unicast_host(address) && !is_link_local(address)
    })
}

/// The on-link prefixes of interfaces that are no uplinks: containers, VPNs and other
/// networks that this host is a router or a member of.
pub(crate) fn inner_prefixes(
    family: Family,
    host: &Host,
    is_uplink: impl Fn(IfIndex) -> bool,
) -> Vec<(IpNetwork, Device)> {
    let links = host
        .links
        .values()
        .filter(|link| !link.loopback && unusable(host, link).is_none() && !is_uplink(link.index));
    let prefixes = links.flat_map(|link| {
        let addresses = host.addresses_of(link.index, family);
        let prefixes: BTreeSet<_> = addresses.filter_map(|a| on_link_prefix(a, None)).collect();
        prefixes.into_iter().map(|prefix| (prefix, link.device()))
    });
    let mut seen = BTreeSet::new();
    prefixes
        .filter(|(prefix, _)| seen.insert(*prefix))
        .collect()
}

/// Another interface with a default route or leased addresses of its own whose addresses a
/// delegated prefix holds, or whose on-link prefix holds it: such a delegation would take that one's
/// packets away, and a network does not delegate what is another's.
fn contested(inputs: Inputs<'_>, index: IfIndex, prefix: IpNetwork) -> Option<Device> {
    let Inputs {
        family, host, book, ..
    } = inputs;
    let mut others = host.links.values().filter(|link| link.index != index);
    let is_other = others.find(|link| {
        let has_default = || {
            let mut defaults = defaults_in_main(host, link.index, family);
            defaults.next().is_some()
        };
        let is_leased = || {
            let lease6 = book.lease6(link.index);
            let has_address = |lease: &Lease6| !lease.addresses.is_empty();
            match family {
                Family::Ipv4 => book.lease4(link.index).is_some(),
                Family::Ipv6 => lease6.is_some_and(has_address),
            }
        };
        (has_default() || is_leased()) && is_at_home(host, link, prefix)
    });
    is_other.map(Link::device)
}

/// Whether an interface has an address in a prefix, or an on-link prefix around it.
fn is_at_home(host: &Host, link: &Link, prefix: IpNetwork) -> bool {
    let mut addresses = host.addresses_of(link.index, Family::of_network(prefix));
    addresses.any(|a| {
        let on_link = on_link_prefix(a, None);
        prefix.contains(a.address.ip()) || on_link.is_some_and(|own| own.covers(prefix))
    })
}

/// The delegated prefixes of all interfaces, by lease or by evidence.
fn delegated(inputs: Inputs<'_>) -> Vec<(IfIndex, IpNetwork)> {
    if inputs.family == Family::Ipv4 {
        return Vec::new();
    }
    let Inputs {
        host,
        book,
        settings,
        ..
    } = inputs;
    let leased = book.records().flat_map(|record| {
        let lease = book
            .lease6(record.index)
            .filter(|_| record.family == Family::Ipv6);
        let prefixes = lease.into_iter().flat_map(|lease| lease.prefixes.keys());
        prefixes.map(|prefix| (record.index, IpNetwork::V6(*prefix)))
    });
    let ours = host.rules.iter().filter(|rule| {
        rule.family == Family::Ipv6
            && rule.from.is_some_and(is_delegated)
            && settings.owns_rule(rule)
    });
    let routes = |table| {
        host.own_tables
            .iter()
            .filter(move |route| route.table == table && route.family() == Family::Ipv6)
    };
    let through: BTreeSet<IfIndex> = ours
        .flat_map(|rule| routes(rule.table))
        .filter_map(|route| route.oif)
        .collect();
    let evident = through.into_iter().flat_map(|index| {
        let sources = evident_sources(inputs, index).into_iter();
        sources
            .filter(|source| is_delegated(*source))
            .map(move |prefix| (index, prefix))
    });
    let uncontested =
        |(index, prefix): &(IfIndex, IpNetwork)| contested(inputs, *index, *prefix).is_none();
    leased.chain(evident).filter(uncontested).collect()
}

/// Whether a source is a prefix and no single address.
fn is_delegated(source: IpNetwork) -> bool {
    source.prefix() < Family::of_network(source).host_length()
}

/// Sources of an interface that nobody told us of yet, by the evidence of our own rules:
/// addresses that are still on it, and prefixes whose table leads through it. What
/// another interface's lease has is that one's.
fn evident_sources(inputs: Inputs<'_>, index: IfIndex) -> BTreeSet<IpNetwork> {
    let Inputs {
        family,
        host,
        book,
        settings,
    } = inputs;
    let withdrawn = book.said(index, family, &settings.metadata);
    let withdrawn = withdrawn.map(|known| &known.withdrawn);
    let lost = match book.get(index, family) {
        None => &BTreeSet::new(),
        Some(record) => match (&record.named_lost, &settings.tables) {
            (Some(lost), TableScheme::IfIndex { .. }) => lost,
            // A complete record leaves nothing to evidence, and tables that move with the
            // positions tell too little of whose a rule was.
            (None, _) | (_, TableScheme::Position { .. }) => return BTreeSet::new(),
        },
    };
    let by_position = matches!(settings.tables, TableScheme::Position { .. });
    let name = host.links.get(&index).map(|link| link.name.as_str());
    let ours = || {
        let of_family = host.rules.iter().filter(move |rule| rule.family == family);
        of_family.filter(|rule| settings.owns_rule(rule))
    };
    let leads_through = |table| {
        // While positions shift, a table holds one card's routes and is led to by another's
        // rules: those for sockets bound to a card say whose it was.
        let mut names = ours().filter(|rule| rule.table == table);
        let other = |rule: &ObservedRule| rule.oif.is_some() && rule.oif.as_deref() != name;
        if by_position && names.any(other) {
            return false;
        }
        // A table has the same number in both families, but not always of the same card: one
        // family may have moved already.
        host.own_tables.iter().any(|r| {
            r.table == table
                && r.family() == family
                && r.oif == Some(index)
                && settings.owns_route(r)
        })
    };
    let leased = leased_sources(inputs);
    let sources = ours().filter_map(|rule| {
        let source = rule
            .from
            .filter(|source| !leased.contains(source) && !lost.contains(source))
            .filter(|source| withdrawn.is_none_or(|withdrawn| !withdrawn.contains(source)))?;
        let evident = match (source.prefix() == family.host_length(), family) {
            (true, _) => host.has_address(index, source.ip()),
            // In a table that has just moved there are no routes of an unknown IPv4 lease.
            (false, Family::Ipv4) if by_position => false,
            (false, _) => leads_through(rule.table),
        };
        evident.then_some(source)
    });
    sources.collect()
}

/// Whether an address is the first or the last of an IPv4 network, which no host has, or the
/// first of an IPv6 one, which all routers have (RFC 4291 section 2.6.1).
pub(super) fn is_edge(network: IpNetwork, address: IpAddr) -> bool {
    match network {
        IpNetwork::V4(network) => {
            let edges = [network.network(), network.broadcast()];
            network.prefix() < 31 && edges.map(IpAddr::V4).contains(&address)
        }
        IpNetwork::V6(network) => {
            network.prefix() < 127 && IpAddr::V6(network.network()) == address
        }
    }
}

/// What all known leases of the family hold, and what metadata services say.
fn leased_sources(inputs: Inputs<'_>) -> BTreeSet<IpNetwork> {
    let Inputs {
        family, host, book, ..
    } = inputs;
    let mut leased = BTreeSet::new();
    for index in host.links.keys() {
        if let Some(known) = book.said(*index, family, &inputs.settings.metadata) {
            leased.extend(known.said.sources());
        }
        match book.lease(*index, family) {
            None => {}
            Some(Lease::Ipv4(lease)) => {
                let addresses = lease.others.iter().chain([&lease.address]);
                leased.extend(addresses.map(|a| IpNetwork::from(IpAddr::V4(*a))));
            }
            Some(Lease::Ipv6(lease)) => {
                leased.extend(
                    lease
                        .addresses
                        .keys()
                        .map(|a| IpNetwork::from(IpAddr::V6(*a))),
                );
                leased.extend(lease.prefixes.keys().copied().map(IpNetwork::V6));
            }
        }
    }
    leased
}

fn defaults_in_main(
    host: &Host,
    index: IfIndex,
    family: Family,
) -> impl Iterator<Item = &ObservedRoute> {
    host.main
        .iter()
        .filter(move |r| r.oif == Some(index) && r.family() == family && r.is_default())
}

/// The best IPv4 default route that an interface has in table main.
fn best_default4(host: &Host, index: IfIndex) -> Option<LearnedDefault> {
    let seen = defaults_in_main(host, index, Family::Ipv4);
    let best = seen.min_by_key(|route| (route.metric, route.gateway))?;
    Some(LearnedDefault {
        gateway: best.gateway,
        metric: 0,
        preference: RouterPreference::Medium,
    })
}

/// The interface of each global IPv6 address.
fn global_addresses6(host: &Host) -> impl Iterator<Item = IfIndex> {
    let global = host.addresses.iter().filter(|a| {
        let address = a.address.ip();
        Family::of(address) == Family::Ipv6 && is_unicast_host(address) && !is_link_local(address)
    });
    global.map(|a| a.index)
}

/// The interfaces that could be IPv6 uplinks, as far as links, addresses, leases and our
/// own rules tell: only their routes in table main are worth reading. One with a delegated
/// prefix need not have a global address.
#[must_use]
pub fn candidates6(host: &Host, book: &LeaseBook, settings: &Settings) -> BTreeSet<IfIndex> {
    let could_be = |index: &IfIndex| {
        host.links
            .get(index)
            .is_some_and(|link| link.up && !link.loopback && link.master.is_none())
    };
    // One whose lease is gone keeps its prefix and its router, which others go around.
    let known = |index: &IfIndex| {
        book.get(*index, Family::Ipv6).is_some()
            || book
                .said(*index, Family::Ipv6, &settings.metadata)
                .is_some()
    };
    let leased = host.links.keys().copied().filter(known);
    // Rules of either family will do: it costs a look at routes, no more.
    let ours = host.rules.iter().filter(|rule| settings.owns_rule(rule));
    let names: BTreeSet<&str> = ours.filter_map(|rule| rule.oif.as_deref()).collect();
    let named = host
        .links
        .values()
        .filter(|link| names.contains(link.name.as_str()));
    global_addresses6(host)
        .chain(leased)
        .chain(named.map(|link| link.index))
        .filter(could_be)
        .collect()
}
