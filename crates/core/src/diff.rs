//! From the wanted and the seen to a [`Plan`].
//!
//! Routes compare by the kernel's own key, rules by all their attributes. What carries
//! our tag, priority and table and is not wanted goes; everything else stays as it is.

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;

use crate::address::Family;
use crate::host::{Host, Link};
use crate::model::{DesiredState, Purpose};
use crate::note::Note;
use crate::numbers::TableId;
use crate::plan::{Operation, Plan, Step};
use crate::route::{ObservedRoute, Route};
use crate::rule::ObservedRule;
use crate::settings::Settings;

/// The changes that turn what `host` shows into what is wanted.
#[must_use]
pub fn plan(desired: &DesiredState, host: &Host, settings: &Settings) -> Plan {
    let family = desired.family;
    let mut steps = Vec::new();
    let mut notes = Vec::new();

    let in_tables = host
        .own_tables
        .iter()
        .filter(|seen| seen.family() == family);
    let (ours, foreign): (Vec<_>, Vec<_>) = in_tables.partition(|seen| settings.owns_route(seen));
    let mut stale: Vec<&ObservedRoute> = ours
        .iter()
        .copied()
        .filter(|seen| !desired.kept_routes.contains(seen))
        .collect();
    let rebuilt = rebuilt(&desired.routes, &stale);
    for (route, purpose) in &desired.routes {
        let in_place = rebuilt.contains(&key(route));
        if let Some(met) = stale.iter().position(|seen| route.is_met_by(seen))
            && !in_place
        {
            stale.remove(met);
            continue;
        }
        if let Some(seen) = foreign.iter().find(|seen| route.has_key_of(seen)) {
            notes.push(Note::ForeignRoute {
                device: route.device.clone(),
                route: (*seen).clone(),
            });
            continue;
        }
        let (hiding, others) = stale.into_iter().partition(|seen| {
            hides_gateway(seen, route, &desired.routes)
                && !desired.routes.iter().any(|(r, _)| r.is_met_by(seen))
        });
        stale = others;
        steps.extend(deletions(host, Vec::new(), hiding));
        let operation = if in_place && stale.iter().any(|seen| route.has_key_of(seen)) {
            stale.retain(|seen| !route.has_key_of(seen));
            Operation::ReplaceRoute(route.clone())
        } else {
            Operation::AddRoute(route.clone())
        };
        steps.push(Step {
            operation,
            purpose: Some(purpose.clone()),
        });
    }

    let seen = host.rules.iter().filter(|seen| seen.family == family);
    let mut stale_rules: Vec<&ObservedRule> =
        seen.filter(|seen| settings.owns_rule(seen)).collect();
    for (rule, purpose) in &desired.rules {
        if let Some(met) = stale_rules.iter().position(|seen| rule.is_met_by(seen)) {
            stale_rules.remove(met);
        } else {
            steps.push(Step {
                operation: Operation::AddRule(rule.clone()),
                purpose: Some(purpose.clone()),
            });
        }
    }

    steps.extend(deletions(host, stale_rules, stale));
    Plan {
        steps,
        notes,
        protocol: settings.protocol,
    }
}

/// What two routes of one family cannot both have, save as next hops of one IPv6 route.
type Key = (TableId, IpNetwork, u32);

fn key(route: &Route) -> Key {
    (route.table, route.destination, route.metric)
}

/// The keys under which what is seen gives way in one step: `replace` for the first
/// wanted route, which in IPv6 takes all next hops of the key along, and `add` for the
/// others. In IPv6 that is for a next hop with other attributes, since adding it once
/// more changes nothing and deleting the old one would take the new one along, and for a
/// route that stays alone. Other next hops come and go beside each other.
fn rebuilt(wanted: &[(Route, Purpose)], stale: &[&ObservedRoute]) -> BTreeSet<Key> {
    let gives_way = |route: &Route| {
        let seen = || stale.iter().filter(|seen| route.has_key_of(seen));
        let is_next_hop = |seen: &&ObservedRoute| {
            seen.gateway == route.gateway && seen.oif == Some(route.device.index)
        };
        if seen().next().is_none() || seen().any(|seen| route.is_met_by(seen)) {
            return false;
        }
        match route.family() {
            Family::Ipv4 => true,
            Family::Ipv6 => {
                let same_key = wanted.iter().filter(|(other, _)| key(other) == key(route));
                seen().copied().any(|seen| is_next_hop(&seen))
                    || (seen().count(), same_key.count()) == (1, 1)
            }
        }
    };
    let routes = wanted.iter().map(|(route, _)| route);
    routes.filter(|route| gives_way(route)).map(key).collect()
}

/// Whether a route stands between a wanted one and its gateway: the kernel looks for a
/// gateway in the route's own table first, and refuses one that is not on-link there.
fn hides_gateway(seen: &ObservedRoute, route: &Route, wanted: &[(Route, Purpose)]) -> bool {
    let Some(gateway) = route.gateway.filter(|_| !route.onlink) else {
        return false;
    };
    let other_way = seen.gateway.is_some() || seen.oif != Some(route.device.index);
    if seen.table != route.table || !other_way || !seen.destination.contains(gateway) {
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

/// The steps that delete what nothing wants any more: rules before the routes they use.
fn deletions(host: &Host, rules: Vec<&ObservedRule>, routes: Vec<&ObservedRoute>) -> Vec<Step> {
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
    let mut rules: Vec<&ObservedRule> = seen.filter(|seen| settings.owns_rule(seen)).collect();
    if let Some(link) = only {
        routes.retain(|route| route.oif == Some(link.index));
        let tables: BTreeSet<TableId> = routes.iter().map(|route| route.table).collect();
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
    }
    Plan {
        steps: deletions(host, rules, routes),
        notes: Vec::new(),
        protocol: settings.protocol,
    }
}
