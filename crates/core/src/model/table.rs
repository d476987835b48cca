//! Fills the own table of one uplink.
//!
//! For one prefix the first of these counts: on-link, the lease's routes, another uplink's
//! prefix by the own gateway, the default. Where one of these is shorter than a prefix of
//! the host's own networks (containers, VPNs), that one is copied beside it. Routes come in the order in which the kernel
//! accepts them: a gateway is looked for in the route's own table first.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::IpNetwork;

use crate::address::{Family, NetworkExt as _, is_link_local};
use crate::interface::Device;
use crate::model::uplink::{LearnedDefault, UplinkFacts};
use crate::model::{Purpose, rules};
use crate::numbers::TableId;
use crate::route::{Route, RouterPreference};

/// The metric that the kernel gives an IPv6 route when none is named
/// (IP6_RT_PRIO_USER in include/net/ip6_route.h).
pub(super) const METRIC6: u32 = 1024;

struct Builder<'a> {
    uplink: &'a UplinkFacts<'a>,
    table: TableId,
    family: Family,
    /// Prefixes that need no gateway: on-link ones, and on-link routes of the lease.
    direct: BTreeSet<IpNetwork>,
    taken: BTreeSet<IpNetwork>,
    /// Prefixes of interfaces that are no uplinks.
    inner: &'a [(IpNetwork, Device)],
    on_link: Vec<(Route, Purpose)>,
    by_gateway: Vec<(Route, Purpose)>,
}

/// The routes of an uplink's table, in the order they have to be added.
pub(super) fn routes<'a>(
    family: Family,
    uplink: &'a UplinkFacts<'a>,
    table: TableId,
    others: impl Iterator<Item = &'a UplinkFacts<'a>>,
    inner: &'a [(IpNetwork, Device)],
) -> Vec<(Route, Purpose)> {
    let direct_routes = uplink.routes.iter().filter(|route| route.gateway.is_none());
    let direct = uplink.on_link.iter().copied();
    let mut builder = Builder {
        uplink,
        table,
        family,
        direct: direct
            .chain(direct_routes.map(|route| route.destination))
            .collect(),
        taken: BTreeSet::new(),
        inner,
        on_link: Vec::new(),
        by_gateway: Vec::new(),
    };
    builder.fill(others);
    builder.add_inner();
    builder.on_link.append(&mut builder.by_gateway);
    builder.on_link
}

impl Builder<'_> {
    fn fill<'a>(&mut self, others: impl Iterator<Item = &'a UplinkFacts<'a>>) {
        let uplink = self.uplink;
        for prefix in &uplink.on_link {
            self.add(*prefix, None, Purpose::OnLink);
        }
        if self.family == Family::Ipv6 {
            // Sockets bound to the interface would send link-local traffic to the gateway.
            self.add(link_local_prefix(), None, Purpose::OnLink);
        }
        let (direct, routed): (Vec<_>, Vec<_>) = uplink
            .routes
            .iter()
            .partition(|route| route.gateway.is_none());
        for route in direct {
            self.add(route.destination, None, route.purpose.clone());
        }
        let gateways = routed.iter().filter_map(|route| route.gateway);
        let gateways = gateways.chain(uplink.defaults.iter().filter_map(|d| d.gateway));
        for gateway in gateways.collect::<Vec<_>>() {
            if !self.reaches(gateway) {
                self.add(IpNetwork::from(gateway), None, Purpose::Gateway);
            }
        }
        for route in routed {
            self.add(route.destination, route.gateway, route.purpose.clone());
        }
        if let Some(default) = uplink.defaults.first() {
            for other in others {
                self.add_neighbour(other, *default);
            }
        }
        for default in &uplink.defaults {
            let route = self.route(
                self.family.default_network(),
                default.gateway,
                default.metric,
            );
            let route = Route {
                preference: default.preference,
                ..route
            };
            self.push(route, Purpose::Default);
        }
    }

    /// Another uplink's prefixes, sent by this uplink's own gateway.
    fn add_neighbour(&mut self, other: &UplinkFacts<'_>, own: LearnedDefault) {
        let device = other.link.device();
        let routes = other.routes.iter();
        let learned = routes.clone().map(|route| route.destination);
        // The client puts host routes to such gateways into table main.
        let defaults = other.defaults.iter().filter_map(|default| default.gateway);
        let gateways = routes.filter_map(|route| route.gateway).chain(defaults);
        let gateways = gateways
            .filter(|gateway| !is_link_local(*gateway))
            .map(IpNetwork::from);
        // What the rule for main passes over needs no exception from it.
        let narrow = rules::split_default_length(self.family) + 1;
        let prefixes: BTreeSet<IpNetwork> = other
            .on_link
            .iter()
            .copied()
            .chain(learned)
            .chain(gateways)
            .filter(|prefix| prefix.prefix() >= narrow)
            .collect();
        for prefix in &prefixes {
            let covered = |by: &IpNetwork| by.covers(*prefix);
            let reached = self.direct.iter().any(covered)
                || self
                    .uplink
                    .routes
                    .iter()
                    .any(|route| route.destination.covers(*prefix))
                || prefixes.iter().any(|by| by != prefix && by.covers(*prefix));
            // What lies on this host's own networks is not behind another card, whatever its
            // lease says.
            let is_inner = self.inner.iter().any(|(own, _)| own.covers(*prefix));
            if !reached && !is_inner {
                let purpose = Purpose::Neighbour {
                    device: device.clone(),
                };
                self.add(*prefix, own.gateway, purpose);
            }
        }
    }

    /// Prefixes of containers, VPNs and the like on this host, where a shorter prefix of
    /// this table would draw their traffic to the gateway before table main is asked.
    fn add_inner(&mut self) {
        for (prefix, device) in self.inner {
            let shadows = |taken: &IpNetwork| taken != prefix && taken.covers(*prefix);
            if self.taken.iter().any(shadows) && !self.taken.contains(prefix) {
                let route = Route {
                    device: device.clone(),
                    mtu: None,
                    ..self.route(*prefix, None, self.metric())
                };
                let device = device.clone();
                self.on_link.push((route, Purpose::Inner { device }));
            }
        }
    }

    /// The metric of routes that bring none of their own.
    fn metric(&self) -> u32 {
        match self.family {
            Family::Ipv4 => 0,
            Family::Ipv6 => METRIC6,
        }
    }

    /// Adds a route unless its prefix has one already.
    fn add(&mut self, destination: IpNetwork, gateway: Option<IpAddr>, purpose: Purpose) {
        if self.taken.insert(destination) {
            let route = self.route(destination, gateway, self.metric());
            self.push(route, purpose);
        }
    }

    fn push(&mut self, route: Route, purpose: Purpose) {
        if route.gateway.is_none() {
            self.on_link.push((route, purpose));
        } else {
            self.by_gateway.push((route, purpose));
        }
    }

    fn route(&self, destination: IpNetwork, gateway: Option<IpAddr>, metric: u32) -> Route {
        Route {
            table: self.table,
            destination,
            metric,
            gateway,
            device: self.uplink.link.device(),
            onlink: gateway.is_some_and(|gateway| !self.reaches(gateway)),
            mtu: self.uplink.mtu,
            preference: RouterPreference::Medium,
        }
    }

    /// Whether a gateway is on the link by a prefix that the table has, and not by a
    /// longer one behind yet another gateway.
    fn reaches(&self, gateway: IpAddr) -> bool {
        if is_link_local(gateway) && self.family == Family::Ipv6 {
            return true;
        }
        let routes = self
            .uplink
            .routes
            .iter()
            .filter(|route| route.gateway.is_some());
        let behind = longest(routes.map(|route| &route.destination), gateway);
        let direct = longest(self.direct.iter(), gateway);
        direct.is_some() && direct >= behind
    }
}

/// The length of the longest prefix that holds an address.
fn longest<'a>(prefixes: impl Iterator<Item = &'a IpNetwork>, address: IpAddr) -> Option<u8> {
    let holding = prefixes.filter(|prefix| prefix.contains(address));
    holding.map(|prefix| prefix.prefix()).max()
}

/// fe80::/64, the prefix that every IPv6 link has (RFC 4291 2.5.6).
fn link_local_prefix() -> IpNetwork {
    let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
    IpNetwork::from(IpAddr::V6(address)).supernet_at(64)
}
