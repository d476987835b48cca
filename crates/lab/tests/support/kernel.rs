//! What tests ask of the in-memory kernel beyond what a run does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use leaseroute_core::{
    Family, Host, IfIndex, LeaseBook, Link, LinkAddress, ObservedRoute, ObservedRule, Operation,
    Plan, Priority, ProtocolId, RawRule, RouteKind, RouterPreference, RuleAction, Settings,
    TableId,
};
use leaseroute_kernel::Kernel as _;
use leaseroute_lab::fake::FakeKernel;
use leaseroute_lab::fixture::Snapshot;
use leaseroute_runtime::snapshot;

/// A packet whose way is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// The interface its socket is bound to.
    pub(crate) bound_to: Option<&'a str>,
}

/// What a run of one family reads.
pub(crate) fn read(
    kernel: &FakeKernel,
    family: Family,
    book: &LeaseBook,
    settings: &Settings,
) -> Host {
    let none = BTreeSet::new();
    let links = snapshot::links(kernel, settings).unwrap();
    snapshot::host(kernel, family, links, book, settings, &none).unwrap()
}

/// Makes one change and says whether it had an effect.
pub(crate) fn execute(
    kernel: &FakeKernel,
    operation: &Operation,
    protocol: ProtocolId,
) -> Result<bool, String> {
    let before = kernel.contents();
    for answer in kernel.execute(&[operation], protocol) {
        answer.map_err(|error| error.to_string())?;
    }
    Ok(kernel.contents() != before)
}

/// Makes all changes of a plan; each must have an effect.
pub(crate) fn execute_all(kernel: &FakeKernel, plan: &Plan) {
    for step in &plan.steps {
        let done = execute(kernel, &step.operation, plan.protocol);
        assert_eq!(done, Ok(true), "{}\nin\n{plan}", plan.command(step));
    }
}

/// Takes our rules over that `before` had, and those of our routes that the links and
/// addresses of `now` can hold: rules outlive everything, IPv4 routes go with the last
/// address of their device, all routes with its link.
pub(crate) fn inherit(now: &mut Snapshot, before: &Snapshot, settings: &Settings) {
    for rule in before.rules.iter().filter(|rule| settings.owns_rule(rule)) {
        if !now.rules.contains(rule) {
            now.rules.push(rule.clone());
        }
    }
    let addresses = before.addresses.iter().filter(|address| {
        let up = |link: &Link| link.up || address.address.is_ipv4();
        settings.owns_address(address) && now.links.get(&address.index).is_some_and(up)
    });
    for address in addresses {
        let is_same = |seen: &LinkAddress| {
            seen.index == address.index && seen.address.ip() == address.address.ip()
        };
        if !now.addresses.iter().any(is_same) {
            now.addresses.push(address.clone());
        }
    }
    let ours = before
        .routes
        .iter()
        .filter(|route| settings.owns_route(route));
    for route in ours {
        let has_address = |index| {
            let mut addresses = now.addresses.iter();
            addresses.any(|a| a.index == index && a.address.is_ipv4())
        };
        let lives = route.oif.is_none_or(|index| {
            let up = now.links.get(&index).is_some_and(|link| link.up);
            up && (route.family() == Family::Ipv6 || has_address(index))
        });
        if lives && !now.routes.contains(route) {
            now.routes.push(route.clone());
        }
    }
}

/// Everything of ours, in an order that does not depend on how it came about.
pub(crate) fn ours(
    seen: &Snapshot,
    settings: &Settings,
) -> (BTreeSet<ObservedRule>, BTreeSet<ObservedRoute>) {
    let rules = seen.rules.iter().filter(|rule| settings.owns_rule(rule));
    let routes = seen
        .routes
        .iter()
        .filter(|route| settings.owns_route(route));
    (rules.cloned().collect(), routes.cloned().collect())
}

/// Everything that is not ours, in the kernel's order.
pub(crate) fn foreign(
    seen: &Snapshot,
    settings: &Settings,
) -> (Vec<ObservedRule>, Vec<ObservedRoute>) {
    let rules = seen.rules.iter().filter(|rule| !settings.owns_rule(rule));
    let routes = seen
        .routes
        .iter()
        .filter(|route| !settings.owns_route(route));
    (rules.cloned().collect(), routes.cloned().collect())
}

/// All rules and routes of one family.
pub(crate) fn of_family(
    seen: &Snapshot,
    family: Family,
) -> (Vec<ObservedRule>, Vec<ObservedRoute>) {
    let rules = seen.rules.iter().filter(|rule| rule.family == family);
    let routes = seen.routes.iter().filter(|route| route.family() == family);
    (rules.cloned().collect(), routes.cloned().collect())
}

/// The route that a packet takes, as the rules are walked; `None` when there is none.
pub(crate) fn way<'a>(seen: &'a Snapshot, packet: Packet<'_>) -> Option<&'a ObservedRoute> {
    let Packet {
        source,
        destination,
        bound_to,
    } = packet;
    let named = |name: &str| seen.links.values().find(|link| link.name.as_str() == name);
    let device = bound_to.and_then(named).map(|link| link.index);
    let family = Family::of(destination);
    let matching = seen.rules.iter().filter(|rule| {
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
        let routes = seen.routes.iter().filter(|route| {
            route.table == rule.table
                && route.family() == family
                && route.destination.contains(destination)
                && (device.is_none() || route.oif == device)
        });
        let best = routes
            .min_by_key(|route| (std::cmp::Reverse(route.destination.prefix()), route.metric))?;
        let suppressed = rule
            .suppress_prefix_length
            .is_some_and(|length| best.destination.prefix() <= length);
        (!suppressed).then_some(best)
    })
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

/// What every kernel starts with, and nothing else.
pub(crate) fn bare() -> Snapshot {
    Snapshot {
        links: BTreeMap::new(),
        ..FakeKernel::new().contents()
    }
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
        preference: RouterPreference::Medium,
        protocol,
        kind: RouteKind::Unicast,
        other_attributes: false,
    }
}
