//! Rules and routes as the kernel keeps them, and what it answers to each request.
//!
//! IPv4 follows net/ipv4/fib_trie.c and fib_semantics.c, IPv6 net/ipv6/ip6_fib.c and
//! route.c, rules net/core/fib_rules.c.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use leaseroute_core::{
    Family, IfIndex, Link, LinkAddress, ObservedRoute, ObservedRule, Priority, ProtocolId, RawRule,
    Route, RouteKind, Rule, RuleAction, Selector, TableId, is_link_local,
};
use nix::errno::Errno;

use super::{own_rule, prefix_route};

/// How a route goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    Add,
    Replace,
}

/// The forwarding information base of both families.
#[derive(Clone, Debug)]
pub(super) struct Fib {
    rules: Vec<ObservedRule>,
    routes: Vec<ObservedRoute>,
}

impl Fib {
    pub(super) fn new() -> Self {
        Self {
            rules: vec![
                own_rule(Family::Ipv4, 0, TableId::LOCAL),
                own_rule(Family::Ipv4, 32766, TableId::MAIN),
                own_rule(Family::Ipv4, 32767, TableId::DEFAULT),
                own_rule(Family::Ipv6, 0, TableId::LOCAL),
                own_rule(Family::Ipv6, 32766, TableId::MAIN),
            ],
            routes: Vec::new(),
        }
    }

    pub(super) fn holding(rules: &[ObservedRule], routes: &[ObservedRoute]) -> Self {
        let mut rules = rules.to_vec();
        rules.sort_by_key(|rule| (rule.family, rule.priority));
        Self {
            rules,
            routes: routes.to_vec(),
        }
    }

    pub(super) fn rules(&self, family: Family) -> Vec<ObservedRule> {
        let of_family = |rule: &&ObservedRule| rule.family == family;
        self.rules.iter().filter(of_family).cloned().collect()
    }

    pub(super) fn routes(&self, wanted: impl Fn(&ObservedRoute) -> bool) -> Vec<ObservedRoute> {
        let wanted = self.routes.iter().filter(|route| wanted(route));
        let mut found: Vec<_> = wanted.map(|route| self.shown(route)).collect();
        found.sort_by_key(|route| (route.table, route.destination, route.metric));
        found
    }

    /// A route as a dump shows it: the next hops of one IPv6 key are one multipath route,
    /// which has the first one's attributes. Those of routers that the kernel itself heard
    /// stay apart (`rt6_qualify_for_ecmp()`).
    fn shown(&self, route: &ObservedRoute) -> ObservedRoute {
        let can_be_joined =
            |route: &ObservedRoute| route.gateway.is_some() && route.protocol != ProtocolId::RA;
        let is_sibling = |other: &&ObservedRoute| {
            other.family() == Family::Ipv6
                && can_be_joined(other)
                && can_be_joined(route)
                && other.table == route.table
                && other.destination == route.destination
                && other.metric == route.metric
        };
        let mut shown = route.clone();
        if let Some(first) = self.routes.iter().find(is_sibling) {
            shown.preference = first.preference;
            shown.protocol = first.protocol;
            shown.mtu = first.mtu;
        }
        shown
    }

    /// Adds the route that an address makes, unless another address made it.
    pub(super) fn add_prefix(&mut self, address: &LinkAddress) {
        if let Some(route) = prefix_route(address)
            && !self.routes.contains(&route)
        {
            self.routes.push(route);
        }
    }

    /// Removes what an address made; `left` is what stays of its family on the link. The
    /// last IPv4 address takes every IPv4 route of the link along.
    pub(super) fn remove_prefix(&mut self, index: IfIndex, gone: IpNetwork, left: &[&LinkAddress]) {
        if gone.is_ipv4() && left.is_empty() {
            self.routes
                .retain(|r| r.oif != Some(index) || r.family() != Family::Ipv4);
            return;
        }
        self.routes.retain(|route| {
            let made_by_it = route.protocol == ProtocolId::KERNEL
                && route.oif == Some(index)
                && route.destination.prefix() == gone.prefix()
                && route.destination.contains(gone.ip());
            !made_by_it || left.iter().any(|a| prefix_route(a).as_ref() == Some(route))
        });
    }

    pub(super) fn drop_routes_of(&mut self, index: IfIndex) {
        self.routes.retain(|route| route.oif != Some(index));
    }

    pub(super) fn add_route(
        &mut self,
        new: ObservedRoute,
        placing: Placing,
        links: &BTreeMap<IfIndex, Link>,
        addresses: &[LinkAddress],
    ) -> Result<(), Errno> {
        let family = new.family();
        if family == Family::Ipv4 && new.destination.ip() != new.destination.network() {
            return Err(Errno::EINVAL);
        }
        if new.kind == RouteKind::Unicast {
            self.check_next_hop(&new, links, addresses)?;
        }
        let same_key = |old: &ObservedRoute| {
            old.table == new.table && old.destination == new.destination && old.metric == new.metric
        };
        let same_hop = |old: &ObservedRoute| old.gateway == new.gateway && old.oif == new.oif;
        match (placing, family) {
            (Placing::Add, Family::Ipv4) => {
                if self.routes.iter().any(same_key) {
                    return Err(Errno::EEXIST);
                }
            }
            (Placing::Add, Family::Ipv6) => {
                if self.routes.iter().any(|old| same_key(old) && same_hop(old)) {
                    return Err(Errno::EEXIST);
                }
            }
            (Placing::Replace, Family::Ipv4) => self.routes.retain(|old| !same_key(old)),
            (Placing::Replace, Family::Ipv6) => self.make_room(&new, same_key),
        }
        self.routes.push(new);
        Ok(())
    }

    /// Takes out what a replacing IPv6 route takes the place of: all routes by way of a
    /// gateway, if it has a gateway, else one without; failing that, one of the others.
    fn make_room(&mut self, new: &ObservedRoute, same_key: impl Fn(&ObservedRoute) -> bool) {
        let via = new.gateway.is_some();
        let alike = |old: &ObservedRoute| same_key(old) && old.gateway.is_some() == via;
        if via && self.routes.iter().any(alike) {
            self.routes.retain(|old| !alike(old));
            return;
        }
        let place = self.routes.iter().position(alike);
        let place = place.or_else(|| self.routes.iter().position(same_key));
        if let Some(place) = place {
            self.routes.remove(place);
        }
    }

    fn check_next_hop(
        &self,
        new: &ObservedRoute,
        links: &BTreeMap<IfIndex, Link>,
        addresses: &[LinkAddress],
    ) -> Result<(), Errno> {
        let link = new
            .oif
            .and_then(|oif| links.get(&oif))
            .ok_or(Errno::ENODEV)?;
        let reached = match (new.gateway, new.family()) {
            (None, _) => Ok(()),
            (Some(_), Family::Ipv4) if new.onlink => Ok(()),
            (Some(gateway), Family::Ipv4) => {
                let on_link = |route: &&ObservedRoute| covers_on_link(route, gateway, link.index);
                self.reach(new.table, on_link).ok_or(Errno::ENETUNREACH)
            }
            (Some(gateway), Family::Ipv6) => {
                let is_own = |a: &LinkAddress| {
                    a.address.ip() == gateway && (!is_link_local(gateway) || a.index == link.index)
                };
                if addresses.iter().any(is_own) {
                    return Err(Errno::EINVAL);
                }
                if new.onlink || is_link_local(gateway) {
                    Ok(())
                } else {
                    let on_link =
                        |route: &&ObservedRoute| covers_on_link(route, gateway, link.index);
                    self.reach(new.table, on_link).ok_or(Errno::EHOSTUNREACH)
                }
            }
        };
        reached?;
        if link.up {
            Ok(())
        } else {
            Err(Errno::ENETDOWN)
        }
    }

    /// Looks in a route's own table first, then in main.
    fn reach(&self, own: TableId, on_link: impl Fn(&&ObservedRoute) -> bool) -> Option<()> {
        [own, TableId::MAIN].into_iter().find_map(|table| {
            let in_table = |route: &&ObservedRoute| route.table == table && on_link(route);
            self.routes.iter().find(in_table).map(drop)
        })
    }

    pub(super) fn delete_route(&mut self, gone: &ObservedRoute) -> Result<(), Errno> {
        let family = gone.family();
        let matches = |old: &ObservedRoute| {
            old.table == gone.table
                && old.destination == gone.destination
                // A metric of 0 stands for any.
                && (gone.metric == 0 || old.metric == gone.metric)
                && (gone.protocol == ProtocolId::observed(0) || old.protocol == gone.protocol)
                && (gone.oif.is_none() || old.oif == gone.oif)
                && (gone.gateway.is_none() || old.gateway == gone.gateway)
                && (family == Family::Ipv6 || old.kind == gone.kind)
        };
        let by_metric = self
            .routes
            .iter()
            .enumerate()
            .filter(|(_, old)| matches(old));
        let place = by_metric
            .min_by_key(|(_, old)| old.metric)
            .map(|(place, _)| place);
        self.routes.remove(place.ok_or(Errno::ESRCH)?);
        Ok(())
    }

    pub(super) fn add_rule(&mut self, new: ObservedRule) -> Result<(), Errno> {
        // `rule_exists()`: everything counts, save that a rule without a source or a
        // destination is taken for any.
        let exists = |old: &ObservedRule| {
            old.family == new.family
                && old.action == new.action
                && old.table == new.table
                && old.priority == new.priority
                && old.iif == new.iif
                && old.oif == new.oif
                && old.mark == new.mark
                && old.suppress_prefix_length == new.suppress_prefix_length
                && old.other_selectors == new.other_selectors
                && old.protocol == new.protocol
                && (new.from.is_none() || old.from == new.from)
                && (new.to.is_none() || old.to == new.to)
        };
        if self.rules.iter().any(exists) {
            return Err(Errno::EEXIST);
        }
        let behind =
            |rule: &ObservedRule| (rule.family, rule.priority) <= (new.family, new.priority);
        let place = self.rules.partition_point(behind);
        self.rules.insert(place, new);
        Ok(())
    }

    pub(super) fn delete_rule(&mut self, gone: &ObservedRule) -> Result<(), Errno> {
        // `rule_find()`: what the request leaves out matches anything, and the first
        // match goes.
        let matches = |old: &ObservedRule| {
            old.family == gone.family
                && old.action == gone.action
                && old.priority == gone.priority
                && (gone.table.get() == 0 || old.table == gone.table)
                && (gone.iif.is_none() || old.iif == gone.iif)
                && (gone.oif.is_none() || old.oif == gone.oif)
                && (gone.mark.is_none() || old.mark == gone.mark)
                && (gone.from.is_none() || old.from == gone.from)
                && (gone.to.is_none() || old.to == gone.to)
                && (!gone.other_selectors || old.other_selectors)
                && (gone.suppress_prefix_length.is_none()
                    || old.suppress_prefix_length == gone.suppress_prefix_length)
                && (gone.protocol.get() == 0 || old.protocol == gone.protocol)
        };
        let place = self.rules.iter().position(matches).ok_or(Errno::ENOENT)?;
        self.rules.remove(place);
        Ok(())
    }
}

/// Whether a route says that an address is a neighbour on a link.
fn covers_on_link(route: &ObservedRoute, address: IpAddr, link: IfIndex) -> bool {
    route.kind == RouteKind::Unicast
        && route.gateway.is_none()
        && route.oif == Some(link)
        && route.destination.contains(address)
}

/// A wanted route as the kernel shows it afterwards.
pub(super) fn as_observed(route: &Route, protocol: ProtocolId) -> ObservedRoute {
    ObservedRoute {
        table: route.table,
        destination: route.destination,
        metric: match (route.family(), route.metric) {
            // IP6_RT_PRIO_USER.
            (Family::Ipv6, 0) => 1024,
            (_, metric) => metric,
        },
        gateway: route.gateway,
        oif: Some(route.device.index),
        onlink: route.onlink,
        mtu: route.mtu,
        preference: route.preference,
        protocol,
        kind: RouteKind::Unicast,
        other_attributes: false,
    }
}

/// A wanted rule as the kernel shows it afterwards.
pub(super) fn rule_as_observed(rule: &Rule, protocol: ProtocolId) -> ObservedRule {
    let (from, oif) = match &rule.selector {
        Selector::All => (None, None),
        Selector::From(source) => (Some(*source), None),
        Selector::Oif(name) => (None, Some(name.as_str().to_owned())),
    };
    ObservedRule {
        family: rule.family,
        priority: Priority::observed(rule.priority.get()),
        inverted: false,
        from,
        to: None,
        iif: None,
        oif,
        mark: None,
        other_selectors: false,
        action: RuleAction::Lookup,
        table: rule.table,
        suppress_prefix_length: rule.suppress_prefix_length,
        protocol,
        raw: RawRule::default(),
    }
}
