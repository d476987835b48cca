//! What scenarios stand on: two cards, a kernel, and somebody else who changes things.

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;
use leaseroute_core::{
    AddressFlags, Device, Family, IfIndex, InterfaceName, LinkAddress, ObservedRoute, ObservedRule,
    Operation, Priority, ProtocolId, RawRule, Route, RouteKind, RouterPreference, Rule, RuleAction,
    Selector, TableId, is_link_local,
};
use leaseroute_kernel::{Kernel, MainRoutes, OperationError};

use crate::fake::FakeKernel;

/// Who makes what scenarios want.
pub(super) const PROTOCOL: ProtocolId = ProtocolId::observed(76);
/// Whom foreign objects belong to: `static` in rt_protos.
pub(super) const FOREIGN: ProtocolId = ProtocolId::observed(4);
/// The table that most scenarios use; like ours, too large for the message header.
pub(super) const TABLE: TableId = TableId::observed(76010);
/// Every table that scenarios use, small and large.
pub(super) const TABLES: [TableId; 4] = [
    TableId::observed(210),
    TableId::observed(300),
    TABLE,
    TableId::observed(76011),
];

/// A host with two cards. Its methods do what administrators, clients and the weather do,
/// not what leaseroute does, and panic when they cannot.
pub trait Bench {
    /// The kernel under test.
    type Kernel: Kernel;

    /// The kernel under test.
    fn kernel(&self) -> &Self::Kernel;
    /// The two cards, Ethernet with carrier.
    fn cards(&self) -> [Device; 2];
    /// Plugs in another card and sets it up.
    fn add_link(&self, name: InterfaceName) -> Device;
    /// Unplugs a card.
    fn delete_link(&self, link: &Device);
    /// Sets a link up or down.
    fn set_up(&self, link: &Device, up: bool);
    /// Adds a permanent address, past duplicate address detection.
    fn add_address(&self, link: &Device, address: IpNetwork);
    /// Removes an address.
    fn delete_address(&self, link: IfIndex, address: IpNetwork);
    /// Adds somebody else's route.
    fn add_route(&self, route: &ObservedRoute);
    /// Adds somebody else's rule.
    fn add_rule(&self, rule: &ObservedRule);
}

/// The in-memory kernel with two cards.
#[derive(Debug)]
pub struct FakeBench {
    kernel: FakeKernel,
    cards: [Device; 2],
}

impl FakeBench {
    /// A new host.
    #[must_use]
    pub fn new() -> Self {
        let kernel = FakeKernel::new();
        let cards = ["card0", "card1"].map(|card| kernel.add_link(name(card)));
        Self { kernel, cards }
    }
}

impl Default for FakeBench {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(
    clippy::expect_used,
    reason = "a bench may stop when it cannot be set up"
)]
impl Bench for FakeBench {
    type Kernel = FakeKernel;

    fn kernel(&self) -> &FakeKernel {
        &self.kernel
    }

    fn cards(&self) -> [Device; 2] {
        self.cards.clone()
    }

    fn add_link(&self, name: InterfaceName) -> Device {
        self.kernel.add_link(name)
    }

    fn delete_link(&self, link: &Device) {
        self.kernel.delete_link(link.index);
    }

    fn set_up(&self, link: &Device, up: bool) {
        self.kernel.set_up(link.index, up);
    }

    fn add_address(&self, link: &Device, address: IpNetwork) {
        self.kernel.add_address(LinkAddress {
            index: link.index,
            address,
            peer: None,
            flags: AddressFlags {
                permanent: true,
                ..AddressFlags::default()
            },
            protocol: None,
        });
    }

    fn delete_address(&self, link: IfIndex, address: IpNetwork) {
        self.kernel.delete_address(link, address);
    }

    fn add_route(&self, route: &ObservedRoute) {
        self.kernel
            .add_route(route)
            .expect("a foreign route is refused");
    }

    fn add_rule(&self, rule: &ObservedRule) {
        self.kernel
            .add_rule(rule)
            .expect("a foreign rule is refused");
    }
}

/// Removes what a scenario left behind, by the means under test, and panics when
/// something stays.
pub fn tidy<B: Bench>(bench: &B) {
    let cards = bench.cards();
    for card in &cards {
        bench.set_up(card, true);
    }
    let links: BTreeSet<IfIndex> = cards.iter().map(|card| card.index).collect();
    for family in Family::BOTH {
        let which = match family {
            Family::Ipv4 => MainRoutes::Ipv4Defaults,
            Family::Ipv6 => MainRoutes::Ipv6Of(links.clone()),
        };
        let mut routes = table(bench, family, &TABLES);
        let main = bench.kernel().main_routes(&which);
        routes.extend(
            succeeded(main)
                .into_iter()
                .filter(|r| r.protocol != ProtocolId::KERNEL),
        );
        let mut operations: Vec<Operation> = foreign_to_kernel(bench, family)
            .into_iter()
            .map(Operation::DeleteRule)
            .collect();
        let delete = |route| Operation::DeleteRoute {
            route,
            device: None,
        };
        operations.extend(routes.into_iter().map(delete));
        all_done(bench, &operations);
        for address in succeeded(bench.kernel().addresses(family)) {
            if links.contains(&address.index) && !is_link_local(address.address.ip()) {
                bench.delete_address(address.index, address.address);
            }
        }
        assert_eq!(foreign_to_kernel(bench, family), [], "rules stay");
        assert_eq!(table(bench, family, &TABLES), [], "routes stay");
    }
}

fn foreign_to_kernel<B: Bench>(bench: &B, family: Family) -> Vec<ObservedRule> {
    let mut rules = succeeded(bench.kernel().rules(family));
    rules.retain(|rule| rule.protocol != ProtocolId::KERNEL);
    rules
}

#[expect(clippy::expect_used, reason = "a scenario ends with a panic")]
pub(super) fn succeeded<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    result.expect("the kernel can be read")
}

/// Makes changes and returns what became of each.
pub(super) fn run<B: Bench>(
    bench: &B,
    operations: &[Operation],
) -> Vec<Result<(), OperationError>> {
    let operations: Vec<&Operation> = operations.iter().collect();
    let results = bench.kernel().execute(&operations, PROTOCOL);
    assert_eq!(
        results.len(),
        operations.len(),
        "one result for each operation"
    );
    results
}

/// Makes changes, all of which must succeed.
pub(super) fn all_done<B: Bench>(bench: &B, operations: &[Operation]) {
    for (operation, result) in operations.iter().zip(run(bench, operations)) {
        assert!(result.is_ok(), "{operation:?}: {result:?}");
    }
}

/// Makes one change and returns its refusal.
#[expect(clippy::panic, reason = "a scenario ends with a panic")]
pub(super) fn refusal<B: Bench>(bench: &B, operation: &Operation) -> OperationError {
    match run(bench, std::slice::from_ref(operation)).pop() {
        Some(Err(error)) => error,
        other => panic!("{operation:?} is not refused: {other:?}"),
    }
}

/// The routes of some tables.
pub(super) fn table<B: Bench>(bench: &B, family: Family, tables: &[TableId]) -> Vec<ObservedRoute> {
    let tables = tables.iter().copied().collect();
    succeeded(bench.kernel().table_routes(family, &tables))
}

/// Panics unless a table holds just these routes of ours.
pub(super) fn assert_table<B: Bench>(bench: &B, in_table: TableId, wanted: &[Route]) {
    for family in Family::BOTH {
        let seen = table(bench, family, &[in_table]);
        let wanted: Vec<&Route> = wanted.iter().filter(|r| r.family() == family).collect();
        let all_met = wanted.iter().all(|wanted| {
            let is_it = |seen: &&ObservedRoute| wanted.is_met_by(seen) && seen.protocol == PROTOCOL;
            seen.iter().filter(is_it).count() == 1
        });
        assert!(
            all_met && seen.len() == wanted.len(),
            "wanted {wanted:#?}\nseen {seen:#?}"
        );
    }
}

/// The rules of a family that are not the kernel's own.
pub(super) fn rules<B: Bench>(bench: &B, family: Family) -> Vec<ObservedRule> {
    let mut rules = foreign_to_kernel(bench, family);
    for rule in &mut rules {
        // Bytes differ between kernels and say nothing more.
        rule.raw = RawRule::default();
    }
    rules
}

#[expect(clippy::expect_used, reason = "names of scenarios are written out")]
pub(super) fn name(text: &str) -> InterfaceName {
    text.parse().expect("an interface name")
}

#[expect(clippy::expect_used, reason = "prefixes of scenarios are written out")]
pub(super) fn net(text: &str) -> IpNetwork {
    text.parse().expect("a prefix")
}

/// A route of ours in [`TABLE`].
pub(super) fn route(destination: &str, gateway: Option<&str>, device: &Device) -> Route {
    let destination = net(destination);
    Route {
        table: TABLE,
        destination,
        metric: match Family::of_network(destination) {
            Family::Ipv4 => 0,
            Family::Ipv6 => 1024,
        },
        gateway: gateway.map(|gateway| net(gateway).ip()),
        device: device.clone(),
        onlink: false,
        mtu: None,
        preference: RouterPreference::Medium,
    }
}

/// Somebody else's route.
pub(super) fn foreign_route(
    table: TableId,
    destination: &str,
    gateway: Option<&str>,
    device: &Device,
    metric: u32,
) -> ObservedRoute {
    ObservedRoute {
        table,
        destination: net(destination),
        metric,
        gateway: gateway.map(|gateway| net(gateway).ip()),
        oif: Some(device.index),
        onlink: false,
        mtu: None,
        preference: RouterPreference::Medium,
        protocol: FOREIGN,
        kind: RouteKind::Unicast,
        other_attributes: false,
    }
}

/// A rule of ours that looks up [`TABLE`].
pub(super) fn rule(family: Family, priority: u32, selector: Selector) -> Rule {
    Rule {
        family,
        priority: Priority::observed(priority),
        selector,
        table: TABLE,
        suppress_prefix_length: None,
    }
}

/// A rule of ours as the kernel shows it.
pub(super) fn shown(rule: &Rule) -> ObservedRule {
    let (from, oif) = match &rule.selector {
        Selector::All => (None, None),
        Selector::From(source) => (Some(*source), None),
        Selector::Oif(name) => (None, Some(name.to_string())),
    };
    ObservedRule {
        family: rule.family,
        priority: rule.priority,
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
        protocol: PROTOCOL,
        raw: RawRule::default(),
    }
}

/// Words that differ between the families.
pub(super) struct Numbers {
    /// An address for a card.
    pub(super) address: IpNetwork,
    /// Another one in the same subnet.
    pub(super) second: IpNetwork,
    /// The subnet.
    pub(super) subnet: &'static str,
    /// Two routers in the subnet.
    pub(super) routers: [&'static str; 2],
    /// A router that no subnet covers, and the route to it alone.
    pub(super) far: (&'static str, &'static str),
    pub(super) default: &'static str,
}

pub(super) fn numbers(family: Family) -> Numbers {
    match family {
        Family::Ipv4 => Numbers {
            address: net("192.0.2.10/24"),
            second: net("192.0.2.11/24"),
            subnet: "192.0.2.0/24",
            routers: ["192.0.2.1", "192.0.2.2"],
            far: ("198.51.100.1", "198.51.100.1/32"),
            default: "0.0.0.0/0",
        },
        Family::Ipv6 => Numbers {
            address: net("2001:db8:1::10/64"),
            second: net("2001:db8:1::11/64"),
            subnet: "2001:db8:1::/64",
            routers: ["2001:db8:1::1", "2001:db8:1::2"],
            far: ("2001:db8:9::1", "2001:db8:9::1/128"),
            default: "::/0",
        },
    }
}
