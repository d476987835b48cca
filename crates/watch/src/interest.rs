//! Which announcements of the kernel call for a look.
//!
//! What the last look has seen is no news, however often it is announced: addresses and
//! routes are with every router advertisement, links with every counter.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leaseroute_core::{
    Family, IfIndex, LeaseBook, Link, LinkAddress, ObservedRoute, ObservedRule, ProtocolId,
    RouteKind, Settings, TableId, TableScheme, is_link_local,
};
use leaseroute_kernel::{Announced, RouteKey};
use leaseroute_runtime::Report;

use crate::health::Cause;

/// What the last looks have seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    families: BTreeMap<Family, OfFamily>,
    /// The links with a lease, or one that is lost.
    leased: BTreeSet<(IfIndex, Family)>,
}

#[derive(Debug, Default)]
struct OfFamily {
    links: BTreeMap<IfIndex, Link>,
    addresses: Vec<LinkAddress>,
    main: Vec<ObservedRoute>,
    uplinks: BTreeSet<IfIndex>,
    /// Our tables that are in use.
    tables: BTreeSet<TableId>,
}

/// Why there is something to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Concern {
    pub(crate) cause: Cause,
    pub(crate) families: &'static [Family],
}

/// An object with our tag, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tagged {
    Route(ObservedRoute),
    Rule(ObservedRule),
    Address(LinkAddress),
}

impl Seen {
    /// Takes in what a look has seen.
    pub(crate) fn update(&mut self, report: &Report) {
        let family = report.family;
        let host = &report.host;
        let of_family = |a: &&LinkAddress| Family::of_network(a.address) == family;
        let routes = host.main.iter().filter(|route| route.family() == family);
        let uplinks = report.desired.uplinks.iter();
        let tables = uplinks.clone().filter_map(|uplink| uplink.table);
        let seen = OfFamily {
            links: host.links.clone(),
            addresses: host.addresses.iter().filter(of_family).cloned().collect(),
            main: routes.cloned().collect(),
            tables: tables.collect(),
            uplinks: uplinks.map(|uplink| uplink.device.index).collect(),
        };
        self.families.insert(family, seen);
    }

    /// Takes in which links have a lease.
    pub(crate) fn update_leased(&mut self, book: &LeaseBook) {
        let keys = book.records().map(|record| (record.index, record.family));
        self.leased = keys.collect();
    }

    /// Whether a link matters to the model of a family: one that is an uplink, has a lease,
    /// or has addresses, which others may have to be reached by.
    fn matters(&self, family: Family, index: IfIndex) -> bool {
        self.leased.contains(&(index, family))
            || self.of(family).is_some_and(|seen| {
                let mut addresses = seen.addresses.iter();
                seen.uplinks.contains(&index)
                    || addresses.any(|a| a.index == index && !is_link_local(a.address.ip()))
            })
    }

    /// Why a link that has changed calls for a look, if it does; `None` stands for one that is
    /// gone.
    fn concern_of_link(&self, index: IfIndex, link: Option<&Link>) -> Option<Concern> {
        let is_news = |family| {
            let known = self.of(family).and_then(|seen| seen.links.get(&index));
            let (Some(known), Some(link)) = (known, link) else {
                return true;
            };
            // Drivers are not announced.
            let driver = link.driver.clone();
            let known = Link {
                driver,
                ..known.clone()
            };
            known != *link
        };
        let concerns = |family| self.matters(family, index) && is_news(family);
        let families = match Family::BOTH.map(concerns) {
            [false, false] => return None,
            [true, true] => &Family::BOTH,
            [true, false] => only(Family::Ipv4),
            [false, true] => only(Family::Ipv6),
        };
        let cause = Cause::Link;
        Some(Concern { cause, families })
    }

    /// Why an announcement calls for a look, if it does.
    pub(crate) fn concern(&self, announced: &Announced, settings: &Settings) -> Option<Concern> {
        let concern = self.concern_of_family(announced, settings)?;
        Some(match settings.tables {
            // The number of a table counts the uplinks of both.
            TableScheme::Position { .. } => Concern {
                families: &Family::BOTH,
                ..concern
            },
            TableScheme::IfIndex { .. } => concern,
        })
    }

    fn concern_of_family(&self, announced: &Announced, settings: &Settings) -> Option<Concern> {
        let concern = |cause, families| Concern { cause, families };
        match announced {
            Announced::Link(link) => self.concern_of_link(link.index, Some(link)),
            Announced::LinkGone(index) => self.concern_of_link(*index, None),
            Announced::Address { address, gone } => {
                let family = Family::of_network(address.address);
                let is_news = self.knows_address(family, address) == *gone;
                let says_something = !is_without_meaning(address.address.ip())
                    && !self.is_loopback(family, address.index);
                (is_news && says_something).then(|| concern(Cause::Address, only(family)))
            }
            Announced::Route { route, gone } => self.concern_of_route(route, *gone, settings),
            Announced::Rule { rule, gone } => {
                let families = only(rule.family);
                if settings.owns_rule(rule) {
                    return gone.then(|| concern(Cause::Removed, families));
                }
                // Where it is missing or comes late, ours has to be there.
                let is_local = rule.table == TableId::LOCAL && rule.matches_everything();
                is_local.then(|| concern(Cause::Router, families))
            }
            Announced::Advertisement(index) => self
                .matters(Family::Ipv6, *index)
                .then(|| concern(Cause::Router, &[Family::Ipv6])),
            Announced::Overrun => Some(concern(Cause::Overrun, &Family::BOTH)),
        }
    }

    fn concern_of_route(
        &self,
        route: &ObservedRoute,
        gone: bool,
        settings: &Settings,
    ) -> Option<Concern> {
        let family = route.family();
        let concern = |cause| Concern {
            cause,
            families: only(family),
        };
        if settings.owns_table(route.table) {
            // A foreign route stands in the place of one of ours, or leaves it.
            let is_lost = if settings.owns_route(route) {
                gone
            } else {
                self.of(family)
                    .is_some_and(|seen| seen.tables.contains(&route.table))
            };
            return is_lost.then(|| concern(Cause::Removed));
        }
        let main = self.of(family).map(|seen| &seen.main);
        let is_known = main.is_some_and(|main| main.contains(route));
        let says_something = match family {
            Family::Ipv4 => route.is_default(),
            Family::Ipv6 => {
                route.kind == RouteKind::Unicast
                    && route.oif.is_some_and(|oif| self.matters(family, oif))
                    && !is_without_meaning(route.destination.ip())
                    && (route.is_default()
                        || route.protocol == ProtocolId::RA
                        || self.is_of_network(route))
            }
        };
        let is_news = is_known == gone;
        (route.table == TableId::MAIN && is_news && says_something).then(|| concern(Cause::Router))
    }

    /// Whether an IPv6 route is that of a network which its interface is in. Others that have
    /// no gateway may be many: one for each container of a host.
    fn is_of_network(&self, route: &ObservedRoute) -> bool {
        let is_own = || {
            let mut addresses = self.families.values().flat_map(|seen| &seen.addresses);
            addresses.any(|a| {
                Some(a.index) == route.oif
                    && a.address.network() == route.destination.ip()
                    && a.address.prefix() == route.destination.prefix()
            })
        };
        route.gateway.is_none()
            && route.destination.prefix() < Family::Ipv6.host_length()
            && (route.protocol == ProtocolId::KERNEL || is_own())
    }

    fn of(&self, family: Family) -> Option<&OfFamily> {
        self.families.get(&family)
    }

    fn is_loopback(&self, family: Family, index: IfIndex) -> bool {
        let link = self.of(family).and_then(|seen| seen.links.get(&index));
        link.is_some_and(|link| link.loopback)
    }

    fn knows_address(&self, family: Family, address: &LinkAddress) -> bool {
        self.of(family)
            .is_some_and(|seen| seen.addresses.contains(address))
    }

    /// The uplinks of either family.
    pub(crate) fn uplinks(&self) -> BTreeMap<IfIndex, Link> {
        let families = self.families.values();
        let links = families.flat_map(|seen| {
            let uplinks = seen.uplinks.iter();
            uplinks.filter_map(|index| seen.links.get(index))
        });
        links.map(|link| (link.index, link.clone())).collect()
    }

    /// The IPv6 addresses.
    pub(crate) fn addresses6(&self) -> &[LinkAddress] {
        self.of(Family::Ipv6).map_or(&[], |seen| &seen.addresses)
    }

    /// The IPv4 addresses that were leased, as far as the kernel knows, and that no record
    /// speaks of: whoever leased them has told nobody.
    pub(crate) fn untold(&self, book: &LeaseBook) -> BTreeSet<(IfIndex, IpAddr)> {
        let addresses = self.of(Family::Ipv4).into_iter();
        let leased = addresses
            .flat_map(|seen| &seen.addresses)
            .filter(|a| !a.flags.permanent)
            .map(|a| (a.index, a.address.ip()));
        let is_told = |(index, address): &(IfIndex, IpAddr)| {
            let lease = book.lease4(*index);
            lease.is_some_and(|lease| IpAddr::V4(lease.address) == *address)
        };
        leased.filter(|address| !is_told(address)).collect()
    }
}

/// The object with our tag that an announcement says is gone.
pub(crate) fn gone_object(announced: &Announced, settings: &Settings) -> Option<Tagged> {
    let gone = match announced {
        Announced::Route { gone, .. }
        | Announced::Rule { gone, .. }
        | Announced::Address { gone, .. } => *gone,
        _ => false,
    };
    own_object(announced, settings)
        .filter(|_| gone)
        .map(|(_, object)| object)
}

/// The object with our tag that an announcement is about, and its family.
pub(crate) fn own_object(announced: &Announced, settings: &Settings) -> Option<(Family, Tagged)> {
    match announced {
        Announced::Route { route, .. } if settings.owns_route(route) => {
            Some((route.family(), Tagged::Route(route.clone())))
        }
        Announced::Rule { rule, .. } if settings.owns_rule(rule) => {
            Some((rule.family, Tagged::Rule(rule.clone())))
        }
        Announced::Address { address, .. } if settings.owns_address(address) => {
            let family = Family::of_network(address.address);
            Some((family, Tagged::Address(address.clone())))
        }
        _ => None,
    }
}

/// Which routes are worth decoding: those in our tables, the default routes of table main,
/// and what may connect an interface by IPv6 there.
pub(crate) fn wants(key: RouteKey, settings: &Settings) -> bool {
    let may_connect = key.protocol == ProtocolId::RA || !key.has_gateway;
    let of_main = key.is_default || (key.family == Family::Ipv6 && may_connect);
    settings.owns_table(key.table) || (key.table == TableId::MAIN && of_main)
}

fn only(family: Family) -> &'static [Family] {
    match family {
        Family::Ipv4 => &[Family::Ipv4],
        Family::Ipv6 => &[Family::Ipv6],
    }
}

/// Whether an address says nothing of where replies go.
fn is_without_meaning(address: IpAddr) -> bool {
    is_link_local(address) || address.is_loopback() || address.is_multicast()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use leaseroute_core::RouterPreference;
    use leaseroute_lab::fake::FakeKernel;
    use leaseroute_lab::fixture::Snapshot;
    use leaseroute_runtime::{reconcile, snapshot};

    use super::*;

    /// Two cards with advertised addresses, a bridge with an address, a port of it.
    const HOST: &str = "\
1: lo <LOOPBACK,UP,LOWER_UP> mtu 65536
2: eth0 <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 link/ether 02:00:00:00:00:02
3: eth1 <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 link/ether 02:00:00:00:00:03
4: docker0 <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 link/ether 02:00:00:00:00:04
5: veth7 <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 link/ether 02:00:00:00:00:05
2: eth0 inet6 2001:db8:1::2/64 scope global dynamic
2: eth0 inet6 fe80::2/64 scope link
3: eth1 inet6 2001:db8:2::2/64 scope global dynamic
4: docker0 inet 172.17.0.1/16 scope global
-- v6 routes
2001:db8:1::/64 dev eth0 proto ra metric 1024
default via fe80::1 dev eth0 proto ra metric 1024
2001:db8:2::/64 dev eth1 proto ra metric 1024
default via fe80::1 dev eth1 proto ra metric 1024
";

    fn index(number: u32) -> IfIndex {
        IfIndex::new(number).unwrap()
    }

    /// What looks at the host have seen, and the host after them.
    fn looked() -> (Seen, Snapshot) {
        let kernel = FakeKernel::holding(&HOST.parse().unwrap());
        let (book, settings) = (LeaseBook::default(), Settings::default());
        let mut seen = Seen::default();
        for family in Family::BOTH {
            let links = snapshot::links(&kernel, &settings).unwrap();
            let none = BTreeSet::new();
            let host = snapshot::host(&kernel, family, links, &book, &settings, &none).unwrap();
            let report =
                reconcile::reconcile(&kernel, family, host, &book, &settings, &|_| false).unwrap();
            seen.update(&report);
        }
        (seen, kernel.contents())
    }

    fn cause(seen: &Seen, announced: &Announced) -> Option<Cause> {
        let concern = seen.concern(announced, &Settings::default());
        concern.map(|concern| concern.cause)
    }

    fn routes(snapshot: &Snapshot, ours: bool) -> Vec<ObservedRoute> {
        let is_ours = |route: &&ObservedRoute| Settings::default().owns_route(route) == ours;
        snapshot.routes.iter().filter(is_ours).cloned().collect()
    }

    #[test]
    fn what_the_last_look_has_seen_is_no_news() {
        let (seen, host) = looked();
        for link in host.links.values() {
            assert_eq!(cause(&seen, &Announced::Link(link.clone())), None);
        }
        for address in host.addresses.clone() {
            let gone = false;
            assert_eq!(cause(&seen, &Announced::Address { address, gone }), None);
        }
        for route in host.routes.clone() {
            let gone = false;
            assert_eq!(cause(&seen, &Announced::Route { route, gone }), None);
        }
        for rule in host
            .rules
            .iter()
            .filter(|rule| rule.table != TableId::LOCAL)
        {
            let rule = rule.clone();
            let gone = false;
            assert_eq!(cause(&seen, &Announced::Rule { rule, gone }), None);
        }
    }

    #[test]
    fn what_is_lost_of_ours_calls_for_a_look() {
        let (seen, host) = looked();
        let ours = routes(&host, true);
        assert!(ours.len() >= 6, "{ours:#?}");
        for route in ours {
            let gone = true;
            let lost = Announced::Route { route, gone };
            assert_eq!(cause(&seen, &lost), Some(Cause::Removed));
            assert!(gone_object(&lost, &Settings::default()).is_some());
        }
        let settings = Settings::default();
        let ours = host.rules.iter().filter(|rule| settings.owns_rule(rule));
        for rule in ours.cloned() {
            let gone = true;
            let lost = Announced::Rule { rule, gone };
            assert_eq!(cause(&seen, &lost), Some(Cause::Removed));
        }
    }

    #[test]
    fn routers_prefixes_and_addresses_that_come_and_go_call_for_a_look() {
        let (seen, host) = looked();
        for route in routes(&host, false) {
            let gone = true;
            assert_eq!(
                cause(
                    &seen,
                    &Announced::Route {
                        route: route.clone(),
                        gone
                    }
                ),
                Some(Cause::Router)
            );
            let route = ObservedRoute {
                preference: RouterPreference::High,
                ..route
            };
            let gone = false;
            assert_eq!(
                cause(&seen, &Announced::Route { route, gone }),
                Some(Cause::Router)
            );
        }
        let mut address = host.addresses[0].clone();
        address.flags.permanent = true;
        let gone = false;
        assert_eq!(
            cause(
                &seen,
                &Announced::Address {
                    address: address.clone(),
                    gone
                }
            ),
            Some(Cause::Address)
        );
        address.address = "fe80::77/64".parse().unwrap();
        assert_eq!(cause(&seen, &Announced::Address { address, gone }), None);
    }

    #[test]
    fn routes_of_others_are_no_networks_of_ours() {
        let (seen, host) = looked();
        let advertised = routes(&host, false)[0].clone();
        let come = |route| Announced::Route { route, gone: false };
        let called = |protocol: u8, destination: &str, kind| {
            let route = ObservedRoute {
                protocol: ProtocolId::observed(protocol),
                destination: destination.parse().unwrap(),
                gateway: None,
                kind,
                ..advertised.clone()
            };
            cause(&seen, &come(route)).is_some()
        };
        // ip(8) by hand, and the kernel.
        assert!(!called(3, "2001:db8:77::/64", RouteKind::Unicast));
        assert!(!called(3, "2001:db8:77::7/128", RouteKind::Unicast));
        assert!(!called(2, "2001:db8:77::7/128", RouteKind::Unicast));
        assert!(called(2, "2001:db8:77::/64", RouteKind::Unicast));
        // The network of the interface's own address, as a client of static ones adds it.
        assert!(called(3, "2001:db8:1::/64", RouteKind::Unicast));
        // Blackholes lead to the loopback interface.
        assert!(!called(2, "2001:db8:77::/64", RouteKind::Other(6)));
    }

    #[test]
    fn a_router_that_advertises_may_have_changed_its_preference() {
        let (seen, _) = looked();
        let advertised = |number| Announced::Advertisement(index(number));
        assert_eq!(cause(&seen, &advertised(2)), Some(Cause::Router));
        assert_eq!(cause(&seen, &advertised(5)), None);
    }

    #[test]
    fn tables_by_position_concern_both_families() {
        let (seen, host) = looked();
        let settings = Settings {
            tables: TableScheme::Position {
                base: 100,
                order: Vec::new(),
            },
            ..Settings::default()
        };
        let address = host.addresses[0].clone();
        let lost = Announced::Address {
            address,
            gone: true,
        };
        let concern = seen.concern(&lost, &settings).unwrap();
        assert_eq!(concern.families, Family::BOTH);
    }

    #[test]
    fn links_matter_when_something_depends_on_them() {
        let (seen, host) = looked();
        for (number, matters) in [(2, true), (3, true), (4, true), (5, false)] {
            let link = Link {
                up: false,
                ..host.links[&index(number)].clone()
            };
            let caused = matters.then_some(Cause::Link);
            assert_eq!(cause(&seen, &Announced::Link(link)), caused, "{number}");
            let gone = Announced::LinkGone(index(number));
            assert_eq!(cause(&seen, &gone), caused, "{number}");
        }
        // What a container's network of IPv4 does is no reason to read IPv6.
        let gone = Announced::LinkGone(index(4));
        let concern = seen.concern(&gone, &Settings::default()).unwrap();
        assert_eq!(concern.families, [Family::Ipv4]);
    }

    #[test]
    fn foreign_routes_are_left_out_by_their_headers_where_they_can() {
        let settings = Settings::default();
        let key = |family, table, is_default| RouteKey {
            family,
            table: TableId::observed(table),
            protocol: ProtocolId::observed(4),
            is_default,
            has_gateway: false,
        };
        let by_gateway = RouteKey {
            has_gateway: true,
            ..key(Family::Ipv6, 254, false)
        };
        assert!(!wants(by_gateway, &settings));
        let advertised = RouteKey {
            protocol: ProtocolId::RA,
            ..by_gateway
        };
        assert!(wants(advertised, &settings));
        assert!(wants(key(Family::Ipv4, 254, true), &settings));
        assert!(!wants(key(Family::Ipv4, 254, false), &settings));
        assert!(wants(key(Family::Ipv6, 254, false), &settings));
        assert!(wants(key(Family::Ipv4, 76_003, false), &settings));
        assert!(!wants(key(Family::Ipv4, 255, true), &settings));
        assert!(!wants(key(Family::Ipv6, 52, true), &settings));
    }

    #[test]
    fn a_foreign_route_in_a_table_of_ours_may_have_taken_a_place() {
        let (seen, _) = looked();
        let foreign = |table| ObservedRoute {
            table: TableId::observed(table),
            destination: "::/0".parse().unwrap(),
            metric: 1024,
            gateway: None,
            oif: Some(index(3)),
            onlink: false,
            mtu: None,
            preference: RouterPreference::Medium,
            protocol: ProtocolId::observed(4),
            kind: RouteKind::Unicast,
            other_attributes: false,
        };
        for gone in [false, true] {
            let changed = |table| Announced::Route {
                route: foreign(table),
                gone,
            };
            // One that goes leaves the place to ours.
            assert_eq!(cause(&seen, &changed(76_003)), Some(Cause::Removed));
            // A table that we would not use now.
            assert_eq!(cause(&seen, &changed(90_000)), None);
        }
    }
}
