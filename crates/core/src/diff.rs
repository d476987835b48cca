//! From the wanted and the seen to a [`Plan`].
//!
//! Routes compare by the kernel's own key, rules by all their attributes. What carries
//! our tag, priority and table and is not wanted goes; everything else stays as it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::address::Family;
use crate::host::{Host, Link, LinkAddress};
use crate::model::{DesiredState, Purpose};
use crate::note::Note;
use crate::numbers::{Priority, TableId};
use crate::plan::{Address, Operation, Plan, Step};
use crate::route::{ObservedRoute, Route};
use crate::rule::{ObservedRule, Rule, Selector};
use crate::settings::Settings;

/// The changes that turn what `host` shows into what is wanted.
#[must_use]
pub fn plan(desired: &DesiredState, host: &Host, settings: &Settings) -> Plan {
    let family = desired.family;
    let (mut steps, stale_addresses) = addresses(desired, host, settings);
    let mut notes = Vec::new();

    let in_tables = host
        .own_tables
        .iter()
        .filter(|seen| seen.family() == family);
    let (ours, foreign): (Vec<_>, Vec<_>) = in_tables.partition(|seen| settings.owns_route(seen));
    let mut stale: Stale<'_> = BTreeMap::new();
    for seen in ours
        .into_iter()
        .filter(|seen| !desired.kept_routes.contains(seen))
    {
        stale.entry(Key::of_seen(seen)).or_default().push(seen);
    }
    let rebuilt = rebuilt(&desired.routes, &stale);
    for (route, purpose) in &desired.routes {
        let key = Key::of(route);
        let in_place = rebuilt.contains(&key);
        if !in_place && take_met(stale.get_mut(&key), |seen| route.is_met_by(seen)) {
            continue;
        }
        if let Some(seen) = foreign.iter().find(|seen| route.has_key_of(seen)) {
            notes.push(Note::ForeignRoute {
                device: route.device.clone(),
                route: (*seen).clone(),
            });
            continue;
        }
        let hiding = take_hiding(&mut stale, route, &desired.routes);
        steps.extend(deletions(host, Vec::new(), hiding));
        let operation = if in_place && stale.remove(&key).is_some() {
            Operation::ReplaceRoute(route.clone())
        } else {
            Operation::AddRoute(route.clone())
        };
        steps.push(Step {
            operation,
            purpose: Some(purpose.clone()),
        });
    }

    let mut stale_rules: BTreeMap<RuleKey<'_>, Vec<&ObservedRule>> = BTreeMap::new();
    let seen = host.rules.iter().filter(|seen| seen.family == family);
    for seen in seen.filter(|seen| settings.owns_rule(seen)) {
        let key = (seen.priority, seen.oif.as_deref(), seen.from);
        stale_rules.entry(key).or_default().push(seen);
    }
    for (rule, purpose) in &desired.rules {
        if !take_met(stale_rules.get_mut(&rule_key(rule)), |seen| {
            rule.is_met_by(seen)
        }) {
            steps.push(Step {
                operation: Operation::AddRule(rule.clone()),
                purpose: Some(purpose.clone()),
            });
        }
    }

    let stale_rules = stale_rules.into_values().flatten().collect();
    steps.extend(deletions(
        host,
        stale_rules,
        stale.into_values().flatten().collect(),
    ));
    steps.extend(stale_addresses);
    Plan {
        steps,
        notes,
        protocol: settings.protocol,
    }
}

/// The steps that add the addresses which are missing, and those that delete what is ours and
/// not wanted any more.
fn addresses(desired: &DesiredState, host: &Host, settings: &Settings) -> (Vec<Step>, Vec<Step>) {
    let missing = desired.addresses.iter().filter(|(address, _)| {
        let mut seen = host.addresses.iter();
        !seen.any(|seen| address.is_met_by(seen))
    });
    let missing = missing.map(|(address, purpose)| Step {
        operation: Operation::AddAddress(address.clone()),
        purpose: Some(purpose.clone()),
    });
    let is_wanted = |seen: &LinkAddress| {
        let mut wanted = desired.addresses.iter();
        desired.kept_addresses.contains(seen) || wanted.any(|(address, _)| address.is_met_by(seen))
    };
    let stale = own_addresses(desired.family, host, settings)
        .filter(|(seen, _)| !is_wanted(seen))
        .map(|(_, address)| deletion(address));
    (missing.collect(), stale.collect())
}

/// The addresses of a family that carry our tag.
fn own_addresses<'a>(
    family: Family,
    host: &'a Host,
    settings: &'a Settings,
) -> impl Iterator<Item = (&'a LinkAddress, Address)> {
    let ours = host.addresses.iter().filter(move |seen| {
        Family::of_network(seen.address) == family && settings.owns_address(seen)
    });
    ours.filter_map(|seen| {
        let device = host.links.get(&seen.index)?.device();
        let address = seen.address;
        Some((seen, Address { device, address }))
    })
}

fn deletion(address: Address) -> Step {
    Step {
        operation: Operation::DeleteAddress(address),
        purpose: None,
    }
}

/// What two routes of one family cannot both have, save as next hops of one IPv6 route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    table: TableId,
    destination: IpNetwork,
    metric: u32,
    /// IPv6 routes by way of a gateway are apart from those without one: they are never
    /// next hops of one route, and a replacing route takes the place of its own sort
    /// (`rt6_qualify_for_ecmp()`, `fib6_add_rt2node()` in net/ipv6/ip6_fib.c).
    by_gateway: bool,
}

impl Key {
    fn new(table: TableId, destination: IpNetwork, metric: u32, gateway: Option<IpAddr>) -> Self {
        Self {
            table,
            destination,
            metric,
            by_gateway: destination.is_ipv6() && gateway.is_some(),
        }
    }

    fn of(route: &Route) -> Self {
        Self::new(route.table, route.destination, route.metric, route.gateway)
    }

    fn of_seen(seen: &ObservedRoute) -> Self {
        Self::new(seen.table, seen.destination, seen.metric, seen.gateway)
    }
}

/// Routes of ours that nothing has asked for yet.
type Stale<'a> = BTreeMap<Key, Vec<&'a ObservedRoute>>;

/// What rules are looked up by; many hosts have thousands.
type RuleKey<'a> = (Priority, Option<&'a str>, Option<IpNetwork>);

fn rule_key(rule: &Rule) -> RuleKey<'_> {
    match &rule.selector {
        Selector::All => (rule.priority, None, None),
        Selector::From(source) => (rule.priority, None, Some(*source)),
        Selector::Oif(name) => (rule.priority, Some(name.as_str()), None),
    }
}

/// Takes out the object that is just the wanted one, and says whether there is one.
fn take_met<T>(group: Option<&mut Vec<&T>>, is_met_by: impl Fn(&T) -> bool) -> bool {
    let Some(group) = group else {
        return false;
    };
    let met = group.iter().position(|seen| is_met_by(seen));
    met.map(|met| group.remove(met)).is_some()
}

/// The keys under which what is seen gives way in one step: `replace` for the first
/// wanted route, which in IPv6 takes all next hops of the key along, and `add` for the
/// others. In IPv6 that is for a next hop with other attributes, since adding it once
/// more changes nothing and deleting the old one would take the new one along, and for a
/// route that stays alone. Other next hops come and go beside each other.
fn rebuilt(wanted: &[(Route, Purpose)], stale: &Stale<'_>) -> BTreeSet<Key> {
    let mut counts: BTreeMap<Key, usize> = BTreeMap::new();
    for (route, _) in wanted {
        *counts.entry(Key::of(route)).or_default() += 1;
    }
    let gives_way = |route: &Route| {
        let Some(seen) = stale.get(&Key::of(route)) else {
            return false;
        };
        if seen.iter().any(|seen| route.is_met_by(seen)) {
            return false;
        }
        let is_next_hop = |seen: &&ObservedRoute| {
            seen.gateway == route.gateway && seen.oif == Some(route.device.index)
        };
        let is_alone = seen.len() == 1 && counts.get(&Key::of(route)) == Some(&1);
        match route.family() {
            Family::Ipv4 => true,
            Family::Ipv6 => is_alone || seen.iter().any(is_next_hop),
        }
    };
    let routes = wanted.iter().map(|(route, _)| route);
    routes
        .filter(|route| gives_way(route))
        .map(Key::of)
        .collect()
}

/// Takes out the routes that stand between a wanted one and its gateway.
fn take_hiding<'a>(
    stale: &mut Stale<'a>,
    route: &Route,
    wanted: &[(Route, Purpose)],
) -> Vec<&'a ObservedRoute> {
    let Some(gateway) = route.gateway.filter(|_| !route.onlink) else {
        return Vec::new();
    };
    let hides = |seen: &ObservedRoute| {
        hides_gateway(seen, route, gateway, wanted)
            && !wanted.iter().any(|(wanted, _)| wanted.is_met_by(seen))
    };
    let first = Key::new(route.table, route.family().default_network(), 0, None);
    let in_table = stale
        .range_mut(first..)
        .take_while(|(key, _)| key.table == route.table);
    in_table
        .flat_map(|(_, group)| group.extract_if(.., |seen| hides(seen)))
        .collect()
}

/// Whether a route stands between a wanted one and its gateway: the kernel looks for a
/// gateway in the route's own table first, and refuses one that is not on-link there.
fn hides_gateway(
    seen: &ObservedRoute,
    route: &Route,
    gateway: IpAddr,
    wanted: &[(Route, Purpose)],
) -> bool {
    let other_way = seen.gateway.is_some() || seen.oif != Some(route.device.index);
    if !other_way || !seen.destination.contains(gateway) {
        return false;
    }
    let covering = wanted.iter().map(|(wanted, _)| wanted).filter(|wanted| {
        wanted.table == route.table
            && wanted.gateway.is_none()
            && wanted.destination.contains(gateway)
    });
    let longest = covering.map(|wanted| wanted.destination.prefix()).max();
    longest.is_some_and(|longest| seen.destination.prefix() > longest)
}

/// The steps that delete what nothing wants any more: rules before the routes they use,
/// and the last rule first. Cut off anywhere, a source then still has the rules that go
/// before the missing one, and the host's own behind them.
fn deletions(host: &Host, mut rules: Vec<&ObservedRule>, routes: Vec<&ObservedRoute>) -> Vec<Step> {
    rules.sort_by_key(|rule| Reverse(rule.priority));
    let rules = rules
        .into_iter()
        .map(|rule| Operation::DeleteRule(rule.clone()));
    let routes = routes.into_iter().map(|route| {
        let link = route.oif.and_then(|index| host.links.get(&index));
        Operation::DeleteRoute {
            route: route.clone(),
            device: link.map(Link::device),
        }
    });
    let step = |operation| Step {
        operation,
        purpose: None,
    };
    rules.chain(routes).map(step).collect()
}

/// The changes that take away our objects of one family: all of them, or those of one
/// interface.
#[must_use]
pub fn removal(family: Family, host: &Host, settings: &Settings, only: Option<&Link>) -> Plan {
    let seen = host
        .own_tables
        .iter()
        .filter(|seen| seen.family() == family);
    let mut routes: Vec<&ObservedRoute> = seen.filter(|seen| settings.owns_route(seen)).collect();
    let seen = host.rules.iter().filter(|seen| seen.family == family);
    let ours: Vec<&ObservedRule> = seen.filter(|seen| settings.owns_rule(seen)).collect();
    let mut rules = ours.clone();
    if let Some(link) = only {
        let through: Vec<_> = routes
            .iter()
            .copied()
            .filter(|route| route.oif == Some(link.index))
            .collect();
        let tables = tables_of(link, &through, &rules, settings);
        routes.retain(|route| tables.contains(&route.table));
        let is_own = |rule: &ObservedRule| {
            tables.contains(&rule.table) || rule.oif.as_deref() == Some(link.name.as_str())
        };
        let sources_where = |own: bool| -> BTreeSet<IpNetwork> {
            let to_tables = rules.iter().filter(|rule| rule.table != TableId::MAIN);
            to_tables
                .filter(|rule| is_own(rule) == own)
                .filter_map(|rule| rule.from)
                .collect()
        };
        let (sources, others) = (sources_where(true), sources_where(false));
        rules.retain(|rule| {
            let source = rule.from.filter(|_| rule.table == TableId::MAIN);
            is_own(rule) || source.is_some_and(|s| sources.contains(&s) && !others.contains(&s))
        });
        let is_of_some_link = |rule: &&&ObservedRule| rule.table != TableId::LOCAL;
        if rules.len() == ours.iter().filter(is_of_some_link).count() {
            rules = ours;
        }
    }
    let mut steps = deletions(host, rules, routes);
    let addresses = own_addresses(family, host, settings)
        .filter(|(seen, _)| only.is_none_or(|link| link.index == seen.index));
    steps.extend(addresses.map(|(_, address)| deletion(address)));
    Plan {
        steps,
        notes: Vec::new(),
        protocol: settings.protocol,
    }
}

/// The tables of an interface: those that its routes are in and that our rules for its
/// sockets lead to, and the one that the settings give it unless another interface's
/// rules lead there. A link that is down has no routes.
fn tables_of(
    link: &Link,
    routes: &[&ObservedRoute],
    rules: &[&ObservedRule],
    settings: &Settings,
) -> BTreeSet<TableId> {
    let (own, others): (Vec<_>, Vec<_>) = rules
        .iter()
        .filter(|rule| settings.owns_table(rule.table))
        .filter_map(|rule| Some((rule.oif.as_deref()?, rule.table)))
        .partition(|(oif, _)| *oif == link.name.as_str());
    let by_settings = settings.table_of(link);
    let by_settings = by_settings.filter(|table| others.iter().all(|(_, other)| other != table));
    routes
        .iter()
        .map(|route| route.table)
        .chain(own.into_iter().map(|(_, table)| table))
        .chain(by_settings)
        .collect()
}
