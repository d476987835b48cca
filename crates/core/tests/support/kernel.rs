//! A model of the kernel's routing, for tests that need no kernel.
//!
//! It keeps to what was seen on a real one: the keys of IPv4 and IPv6 routes, next hops of
//! one IPv6 key that merge into one multipath route, gateways that are checked in the
//! route's own table first, repeated additions that change nothing, and what links and
//! addresses take along when they go. It gives no more of itself than a run would read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use leaseroute_core::model::{candidates6, tables_to_read};
use leaseroute_core::{
    Family, Host, IfIndex, LeaseBook, Link, LinkAddress, ObservedRoute, ObservedRule, Operation,
    Plan, Priority, ProtocolId, RawRule, Route, RouteKind, Rule, RuleAction, Selector, Settings,
    TableId, TableScheme,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) links: BTreeMap<IfIndex, Link>,
    pub(crate) addresses: Vec<LinkAddress>,
    pub(crate) rules: Vec<ObservedRule>,
    pub(crate) routes: Vec<ObservedRoute>,
}

/// A packet whose way is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// The interface its socket is bound to.
    pub(crate) bound_to: Option<&'a str>,
}

impl Kernel {
    /// What a run of one family reads.
    pub(crate) fn snapshot(&self, family: Family, book: &LeaseBook, settings: &Settings) -> Host {
        let is_read = |read: Family| match settings.tables {
            TableScheme::IfIndex { .. } => read == family,
            TableScheme::Position { .. } => true,
        };
        let mut host = Host {
            links: self.links.clone(),
            addresses: self.addresses.clone(),
            rules: self.rules.clone(),
            ..Host::default()
        };
        host.addresses
            .retain(|a| is_read(Family::of_network(a.address)));
        host.rules.retain(|rule| is_read(rule.family));
        let candidates = candidates6(&host, book, settings);
        let main = self.routes.iter().filter(|route| {
            let wanted = match route.family() {
                Family::Ipv4 => route.destination.prefix() == 0,
                Family::Ipv6 => {
                    route.kind == RouteKind::Unicast
                        && route.oif.is_some_and(|oif| candidates.contains(&oif))
                }
            };
            route.table == TableId::MAIN && is_read(route.family()) && wanted
        });
        host.main = main.cloned().collect();
        for read in Family::BOTH.into_iter().filter(|read| is_read(*read)) {
            let tables = tables_to_read(read, &host, book, settings, &BTreeSet::new());
            let own = self
                .routes
                .iter()
                .filter(|route| tables.contains(&route.table) && route.family() == read);
            host.own_tables.extend(own.map(|route| self.shown(route)));
        }
        host
    }

    /// A route as a dump shows it: the next hops of one IPv6 key are one multipath route,
    /// which has the first one's attributes.
    fn shown(&self, route: &ObservedRoute) -> ObservedRoute {
        let first = self.routes.iter().find(|first| {
            first.family() == Family::Ipv6
                && first.gateway.is_some()
                && route.gateway.is_some()
                && first.table == route.table
                && first.destination == route.destination
                && first.metric == route.metric
        });
        let mut shown = route.clone();
        if let Some(first) = first {
            shown.preference = first.preference;
            shown.protocol = first.protocol;
            shown.mtu = first.mtu;
        }
        shown
    }

    /// Makes one change and says whether it had an effect.
    pub(crate) fn execute(
        &mut self,
        operation: &Operation,
        protocol: ProtocolId,
    ) -> Result<bool, String> {
        match operation {
            Operation::AddRoute(route) => self.add_route(route, protocol, false),
            Operation::ReplaceRoute(route) => self.add_route(route, protocol, true),
            Operation::AddRule(rule) => Ok(self.add_rule(observed_rule(rule, protocol))),
            Operation::DeleteRule(rule) => {
                let before = self.rules.len();
                self.rules.retain(|seen| seen != rule);
                Ok(self.rules.len() < before)
            }
            Operation::DeleteRoute { route, .. } => {
                // Preference and MTU are no part of what a deletion is matched by.
                let found = self
                    .routes
                    .iter()
                    .position(|seen| same_next_hop(seen, route) && seen.protocol == route.protocol);
                found.map(|found| self.routes.remove(found));
                Ok(found.is_some())
            }
        }
    }

    /// Makes all changes of a plan; each must have an effect.
    pub(crate) fn execute_all(&mut self, plan: &Plan) {
        for step in &plan.steps {
            let done = self.execute(&step.operation, plan.protocol);
            assert_eq!(done, Ok(true), "{}\nin\n{plan}", plan.command(step));
        }
    }

    fn add_route(
        &mut self,
        route: &Route,
        protocol: ProtocolId,
        replace: bool,
    ) -> Result<bool, String> {
        let link = self
            .links
            .get(&route.device.index)
            .ok_or("no such device")?;
        if !link.up {
            return Err("the device is down".to_owned());
        }
        if route.destination.ip() != route.destination.network() {
            return Err("the destination has host bits".to_owned());
        }
        if let Some(gateway) = route.gateway {
            if !route.onlink && !self.reaches(route, gateway) {
                return Err(format!("gateway {gateway} is out of reach"));
            }
            let own = self
                .addresses
                .iter()
                .filter(|a| a.index == route.device.index);
            if own.into_iter().any(|a| a.address.ip() == gateway) {
                return Err(format!("gateway {gateway} is an address of this interface"));
            }
        }
        let new = observed_route(route, protocol);
        let family = new.family();
        let same_key = |seen: &ObservedRoute| route.has_key_of(seen) && seen.family() == family;
        match (family, replace) {
            (Family::Ipv4, false) => {
                if self.routes.iter().any(same_key) {
                    return Ok(false);
                }
            }
            (Family::Ipv4, true) => {
                if let Some(old) = self.routes.iter_mut().find(|seen| same_key(seen)) {
                    let changed = *old != new;
                    *old = new;
                    return Ok(changed);
                }
            }
            (Family::Ipv6, false) => {
                if self.routes.iter().any(|seen| same_next_hop(seen, &new)) {
                    return Ok(false);
                }
            }
            (Family::Ipv6, true) => {
                self.routes.retain(|seen| !same_key(seen));
            }
        }
        self.routes.push(new);
        Ok(true)
    }

    fn reaches(&self, route: &Route, gateway: IpAddr) -> bool {
        if matches!(gateway, IpAddr::V6(a) if a.is_unicast_link_local()) {
            return true;
        }
        let covering = |table| {
            let routes = self.routes.iter().filter(move |seen| {
                seen.table == table
                    && seen.destination.contains(gateway)
                    && seen.kind == RouteKind::Unicast
            });
            routes.max_by_key(|seen| seen.destination.prefix())
        };
        covering(route.table)
            .or_else(|| covering(TableId::MAIN))
            .is_some_and(|by| by.gateway.is_none() && by.oif == Some(route.device.index))
    }

    fn add_rule(&mut self, rule: ObservedRule) -> bool {
        if self.rules.contains(&rule) {
            return false;
        }
        let place = self
            .rules
            .partition_point(|seen| seen.priority <= rule.priority);
        self.rules.insert(place, rule);
        true
    }

    /// Takes our rules over that `before` had, and those of our routes that this kernel's
    /// links and addresses can hold: rules outlive everything, IPv4 routes go with the last
    /// address of their device, all routes with its link.
    pub(crate) fn inherit(&mut self, before: &Self, settings: &Settings) {
        for rule in before.rules.iter().filter(|rule| settings.owns_rule(rule)) {
            self.add_rule(rule.clone());
        }
        for route in before
            .routes
            .iter()
            .filter(|route| settings.owns_route(route))
        {
            let has_address = |index| {
                self.addresses
                    .iter()
                    .any(|a| a.index == index && a.address.is_ipv4())
            };
            let lives = route.oif.is_none_or(|index| {
                let up = self.links.get(&index).is_some_and(|link| link.up);
                up && (route.family() == Family::Ipv6 || has_address(index))
            });
            if lives && !self.routes.contains(route) {
                self.routes.push(route.clone());
            }
        }
    }

    /// The route that a packet takes, as the rules are walked; `None` when there is none.
    pub(crate) fn way(&self, packet: Packet<'_>) -> Option<&ObservedRoute> {
        let Packet {
            source,
            destination,
            bound_to,
        } = packet;
        let device = bound_to.and_then(|name| {
            self.links
                .values()
                .find(|link| link.name.as_str() == name)
                .map(|link| link.index)
        });
        let family = Family::of(destination);
        let matching = self.rules.iter().filter(|rule| {
            rule.family == family
                && rule.from.is_none_or(|from| from.contains(source))
                && rule.to.is_none_or(|to| to.contains(destination))
                && rule.oif.as_deref().is_none_or(|oif| bound_to == Some(oif))
                && !rule.inverted
                && rule.iif.is_none()
                && rule.mark.is_none()
                && !rule.other_selectors
                && rule.action == RuleAction::Lookup
        });
        matching.into_iter().find_map(|rule| {
            let routes = self.routes.iter().filter(|route| {
                route.table == rule.table
                    && route.family() == family
                    && route.destination.contains(destination)
                    && (device.is_none() || route.oif == device)
            });
            let best = routes.min_by_key(|route| {
                (std::cmp::Reverse(route.destination.prefix()), route.metric)
            })?;
            let suppressed = rule
                .suppress_prefix_length
                .is_some_and(|length| best.destination.prefix() <= length);
            (!suppressed).then_some(best)
        })
    }

    /// Everything of ours, in an order that does not depend on how it came about.
    pub(crate) fn ours(
        &self,
        settings: &Settings,
    ) -> (BTreeSet<&ObservedRule>, BTreeSet<ObservedRoute>) {
        let rules = self.rules.iter().filter(|rule| settings.owns_rule(rule));
        let routes = self
            .routes
            .iter()
            .filter(|route| settings.owns_route(route))
            .map(|route| self.shown(route));
        (rules.collect(), routes.collect())
    }

    /// Everything that is not ours, in the kernel's order.
    pub(crate) fn foreign(&self, settings: &Settings) -> (Vec<&ObservedRule>, Vec<&ObservedRoute>) {
        let rules = self.rules.iter().filter(|rule| !settings.owns_rule(rule));
        let routes = self
            .routes
            .iter()
            .filter(|route| !settings.owns_route(route));
        (rules.collect(), routes.collect())
    }

    /// All rules and routes of one family.
    pub(crate) fn of_family(&self, family: Family) -> (Vec<&ObservedRule>, Vec<&ObservedRoute>) {
        let rules = self.rules.iter().filter(|rule| rule.family == family);
        let routes = self.routes.iter().filter(|route| route.family() == family);
        (rules.collect(), routes.collect())
    }
}

fn same_next_hop(a: &ObservedRoute, b: &ObservedRoute) -> bool {
    a.table == b.table
        && a.destination == b.destination
        && a.metric == b.metric
        && a.gateway == b.gateway
        && a.oif == b.oif
}

pub(crate) fn observed_route(route: &Route, protocol: ProtocolId) -> ObservedRoute {
    ObservedRoute {
        table: route.table,
        destination: route.destination,
        metric: route.metric,
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

fn observed_rule(rule: &Rule, protocol: ProtocolId) -> ObservedRule {
    let (from, oif) = match &rule.selector {
        Selector::All => (None, None),
        Selector::From(source) => (Some(*source), None),
        Selector::Oif(name) => (None, Some(name.to_string())),
    };
    ObservedRule {
        from,
        oif,
        suppress_prefix_length: rule.suppress_prefix_length,
        protocol,
        ..plain_rule(rule.family, rule.priority.get(), rule.table)
    }
}

/// A rule for every packet, made by nobody in particular.
pub(crate) fn plain_rule(family: Family, priority: u32, table: TableId) -> ObservedRule {
    ObservedRule {
        family,
        priority: Priority::observed(priority),
        inverted: false,
        from: None,
        to: None,
        iif: None,
        oif: None,
        mark: None,
        other_selectors: false,
        action: RuleAction::Lookup,
        table,
        suppress_prefix_length: None,
        protocol: ProtocolId::KERNEL,
        raw: RawRule::default(),
    }
}

/// The rules that every kernel starts with.
pub(crate) fn usual_rules() -> Vec<ObservedRule> {
    vec![
        plain_rule(Family::Ipv4, 0, TableId::LOCAL),
        plain_rule(Family::Ipv6, 0, TableId::LOCAL),
        plain_rule(Family::Ipv4, 32766, TableId::MAIN),
        plain_rule(Family::Ipv6, 32766, TableId::MAIN),
        plain_rule(Family::Ipv4, 32767, TableId::DEFAULT),
    ]
}

/// A route of table main on a device.
pub(crate) fn main_route(
    destination: IpNetwork,
    gateway: Option<IpAddr>,
    oif: IfIndex,
    metric: u32,
    protocol: ProtocolId,
) -> ObservedRoute {
    ObservedRoute {
        table: TableId::MAIN,
        destination,
        metric,
        gateway,
        oif: Some(oif),
        onlink: false,
        mtu: None,
        preference: leaseroute_core::RouterPreference::Medium,
        protocol,
        kind: RouteKind::Unicast,
        other_attributes: false,
    }
}
