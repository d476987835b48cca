//! What holds for every host, every lease and every order of events.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

mod support;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use leaseroute_core::{
    DesiredState, Family, Folded, InterfaceMatch, InterfaceSettings, LeaseBook, MetadataSettings,
    ObservedRoute, Operation, Pattern, Plan, Priority, Selector, Settings, TableId, TableScheme,
    When, desired_state, is_link_local, is_unicast_host, plan, removal,
};
use leaseroute_lab::fake::FakeKernel;
use leaseroute_lab::fixture::Snapshot;
use proptest::prelude::*;
use proptest::sample::select;
use support::kernel::{
    Packet, execute, execute_all, foreign as foreign_of, inherit, of_family, ours, read, way,
};
use support::strategies::{foreign, happening};
use support::world::{CARDS, Happening, Lease4Form, Mask, World, index_of, name_of};

/// A host on which events are taken in one after the other.
struct Site {
    world: World,
    kernel: FakeKernel,
    book: LeaseBook,
    settings: Settings,
}

impl Site {
    fn new(world: World, settings: Settings) -> Self {
        let kernel = FakeKernel::holding(&world.snapshot());
        Self {
            world,
            kernel,
            book: LeaseBook::default(),
            settings,
        }
    }

    /// Lets something happen to the host and the book, and says which families a run
    /// would look at.
    fn happen(&mut self, happening: &Happening) -> Vec<Family> {
        let events = self.world.happen(happening);
        let mut snapshot = self.world.snapshot();
        inherit(&mut snapshot, &self.kernel.contents(), &self.settings);
        self.kernel = FakeKernel::holding(&snapshot);
        if matches!(happening, Happening::StateLost) {
            self.book = LeaseBook::default();
        }
        if let Happening::Said(card, family, form) = happening {
            let host = read(&self.kernel, *family, &self.book, &self.settings);
            self.book
                .learn(self.world.said(*card, *family, *form), &host);
        }
        let mut families = Vec::new();
        for raw in events {
            let host = read(&self.kernel, Family::Ipv4, &self.book, &self.settings);
            let event = raw.client.parse(&raw).unwrap().event.unwrap();
            let folded = self.book.fold(&event, Some(&raw), &host, 0);
            assert!(matches!(folded, Folded::TakenIn(_)));
            families.extend(event.families());
        }
        if families.is_empty() {
            families.extend(Family::BOTH);
        }
        families.dedup();
        families
    }

    /// Lets the client tell of what it is about to bring, and nothing else happen.
    fn tell_ahead(&mut self, happening: &Happening) {
        for mut raw in self.world.clone().happen(happening) {
            raw.arguments = vec!["ahead".to_owned()];
            let host = read(&self.kernel, Family::Ipv4, &self.book, &self.settings);
            let event = raw.client.parse(&raw).unwrap().event.unwrap();
            self.book.fold(&event, Some(&raw), &host, 0);
        }
    }

    fn wanted(&self, family: Family) -> DesiredState {
        let host = read(&self.kernel, family, &self.book, &self.settings);
        desired_state(family, &host, &self.book, &self.settings)
    }

    fn plan(&self, family: Family) -> Plan {
        let host = read(&self.kernel, family, &self.book, &self.settings);
        let desired = desired_state(family, &host, &self.book, &self.settings);
        plan(&desired, &host, &self.settings)
    }

    fn reconcile(&mut self, family: Family) -> Plan {
        let plan = self.plan(family);
        execute_all(&self.kernel, &plan);
        plan
    }
}

fn section(name: &str) -> InterfaceSettings {
    InterfaceSettings {
        matches: InterfaceMatch {
            name: Some(Pattern::new(name).unwrap()),
            ..InterfaceMatch::default()
        },
        ..InterfaceSettings::default()
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let when = select(vec![When::Multihomed, When::Always]);
    let scheme = select(vec![
        TableScheme::default(),
        TableScheme::default(),
        TableScheme::Position {
            base: 100,
            order: vec![],
        },
        TableScheme::Position {
            base: 100,
            order: vec![Pattern::new("eth0").unwrap()],
        },
    ]);
    let table = section("eth1");
    let table = InterfaceSettings {
        table: TableId::own(500).ok(),
        ..table
    };
    let priority = InterfaceSettings {
        priority: Priority::base(2000).ok(),
        ..section("eth2")
    };
    let unmanaged = InterfaceSettings {
        manage: Some(false),
        ..section("eth3")
    };
    let sections = proptest::sample::subsequence(vec![table, priority, unmanaged], 0..=3);
    let flags = any::<[bool; 2]>();
    (when, scheme, flags, sections).prop_map(|(when, tables, [permanent, assign], interfaces)| {
        Settings {
            when,
            tables,
            permanent_addresses: permanent,
            metadata: MetadataSettings {
                assign_addresses: assign,
                ..MetadataSettings::default()
            },
            interfaces,
            ..Settings::default()
        }
    })
}

fn site() -> impl Strategy<Value = (Settings, World)> {
    (settings(), foreign()).prop_map(|(settings, (foreign_rules, foreign_routes))| {
        let world = World {
            foreign_rules,
            foreign_routes,
            ..World::default()
        };
        (settings, world)
    })
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    proptest::collection::vec(happening(), 1..9)
}

/// Happenings in which no two cards have the same address.
fn unshared() -> impl Strategy<Value = Vec<Happening>> {
    let own_address = |happening: Happening| match happening {
        Happening::Gained4(card, form) => Happening::Gained4(
            card,
            Lease4Form {
                shared: false,
                ..form
            },
        ),
        other => other,
    };
    happenings().prop_map(move |list| list.into_iter().map(own_address).collect())
}

/// All that is wanted is there, once, and nothing else of ours is, save what a foreign
/// route keeps out and what is kept for an unknown lease.
fn assert_reached(site: &Site, desired: &DesiredState) {
    let (rules, routes) = ours(&site.kernel.contents(), &site.settings);
    let (_, foreign_routes) = foreign_of(&site.kernel.contents(), &site.settings);
    for (route, _) in &desired.routes {
        let is_there = routes.iter().any(|seen| route.is_met_by(seen));
        let kept_out = foreign_routes.iter().any(|seen| route.has_key_of(seen));
        assert!(
            is_there || kept_out,
            "missing: {route} table {}",
            route.table
        );
    }
    for (rule, _) in &desired.rules {
        let count = rules.iter().filter(|seen| rule.is_met_by(seen)).count();
        assert_eq!(count, 1, "{rule}");
    }
    let family = desired.family;
    for seen in rules.iter().filter(|seen| seen.family == family) {
        assert!(
            desired.rules.iter().any(|(rule, _)| rule.is_met_by(seen)),
            "left: {seen}"
        );
    }
    for seen in routes.iter().filter(|seen| seen.family() == family) {
        let wanted = desired
            .routes
            .iter()
            .any(|(route, _)| route.is_met_by(seen));
        let left = format!("left: {} table {}", seen.describe(None), seen.table);
        assert!(wanted || desired.kept_routes.contains(seen), "{left}");
    }
    let seen = site.kernel.contents().addresses;
    for (address, _) in &desired.addresses {
        assert!(
            seen.iter().any(|seen| address.is_met_by(seen)),
            "missing: {address}"
        );
    }
    let ours = seen.iter().filter(|seen| {
        Family::of_network(seen.address) == family && site.settings.owns_address(seen)
    });
    for seen in ours {
        let wanted = desired
            .addresses
            .iter()
            .any(|(address, _)| address.is_met_by(seen));
        let kept = desired.kept_addresses.contains(seen);
        assert!(wanted || kept, "left: {}", seen.address);
    }
}

/// No operation touches a number of others.
fn assert_within_bounds(plan: &Plan, settings: &Settings) {
    let own_table =
        |table: TableId| TableId::own(table.get()).is_ok() && settings.owns_table(table);
    assert_eq!(plan.protocol, settings.protocol);
    for step in &plan.steps {
        match &step.operation {
            Operation::AddRoute(route) | Operation::ReplaceRoute(route) => {
                assert!(own_table(route.table), "{}", plan.command(step));
                assert_eq!(route.destination.ip(), route.destination.network());
                assert!(route.metric != 0 || route.family() == Family::Ipv4);
            }
            Operation::DeleteRoute { route, .. } => assert!(settings.owns_route(route)),
            Operation::AddAddress(_) => assert!(settings.metadata.assign_addresses),
            // The kernel scenarios show that only those with our tag are.
            Operation::DeleteAddress(_) => {}
            Operation::DeleteRule(rule) => assert!(settings.owns_rule(rule)),
            Operation::AddRule(rule) => {
                assert!(settings.owns_priority(rule.priority));
                match &rule.selector {
                    Selector::All => assert_eq!(rule.table, TableId::LOCAL),
                    Selector::Oif(_) => {
                        assert!(rule.table == TableId::MAIN || own_table(rule.table))
                    }
                    Selector::From(source) => {
                        assert!(rule.table == TableId::MAIN || own_table(rule.table));
                        let address = source.ip();
                        assert!(source.prefix() > 0 && is_unicast_host(address), "{rule}");
                        assert!(!is_link_local(address), "{rule}");
                    }
                }
            }
        }
    }
}

/// As text, since that is easier to compare by eye.
fn lines<T: ToString>(objects: &BTreeSet<T>) -> Vec<String> {
    objects.iter().map(ToString::to_string).collect()
}

proptest! {
    #[test]
    fn a_plan_reaches_the_wanted_state_and_the_next_one_is_empty(
        (settings, world) in site(),
        happenings in happenings(),
    ) {
        let mut site = Site::new(world, settings);
        for happening in &happenings {
            for family in site.happen(happening) {
                let desired = site.wanted(family);
                let plan = site.reconcile(family);
                assert_within_bounds(&plan, &site.settings);
                assert_reached(&site, &desired);
                let again = site.plan(family);
                prop_assert!(again.is_empty(), "after\n{plan}\nstill\n{again}");
            }
        }
    }

    #[test]
    fn after_what_was_told_ahead_nothing_is_left_to_do(
        (settings, world) in site(),
        happenings in unshared(),
    ) {
        // No address is assigned before the leased one is there.
        let mut site = Site::new(world, Settings { metadata: MetadataSettings::default(), ..settings });
        for happening in &happenings {
            let is_new = |card: &usize| site.world.cards[*card].lease4.is_none();
            // Without a mask only the card tells how long its prefix is.
            let ahead = matches!(
                happening,
                Happening::Gained4(card, form)
                    if is_new(card) && matches!(form.mask, Mask::Right | Mask::Host)
            );
            if ahead {
                site.tell_ahead(happening);
                let desired = site.wanted(Family::Ipv4);
                site.reconcile(Family::Ipv4);
                assert_reached(&site, &desired);
            }
            for family in site.happen(happening) {
                let plan = site.reconcile(family);
                prop_assert!(!ahead || plan.is_empty(), "{plan}");
            }
        }
    }

    #[test]
    fn foreign_objects_and_the_other_family_stay_as_they_are(
        (settings, world) in site(),
        happenings in happenings(),
    ) {
        let mut site = Site::new(world, settings);
        for happening in &happenings {
            for family in site.happen(happening) {
                let other = if family == Family::Ipv4 { Family::Ipv6 } else { Family::Ipv4 };
                let before = site.kernel.contents();
                let plan = site.reconcile(family);
                // With its last IPv4 address a device loses everybody's routes.
                let bared = |route: &ObservedRoute| plan.steps.iter().any(|step| match &step.operation {
                    Operation::DeleteAddress(address) => Some(address.device.index) == route.oif,
                    _ => false,
                });
                let foreign = |seen: &Snapshot| {
                    let (rules, mut routes) = foreign_of(seen, &site.settings);
                    routes.retain(|route| !bared(route));
                    (rules, routes)
                };
                prop_assert_eq!(foreign(&before), foreign(&site.kernel.contents()));
                prop_assert_eq!(of_family(&before, other), of_family(&site.kernel.contents(), other));
            }
        }
    }

    #[test]
    fn a_plan_cut_off_anywhere_is_finished_by_the_next_run(
        (settings, world) in site(),
        happenings in unshared(),
    ) {
        let mut site = Site::new(world, settings);
        let by_position = matches!(site.settings.tables, TableScheme::Position { .. });
        for happening in &happenings {
            // Tables that move tell nothing of whose an unknown lease's prefix was, as an
            // address on two cards tells nothing of whose it was.
            if by_position && matches!(happening, Happening::StateLost) {
                continue;
            }
            for family in site.happen(happening) {
                let plan = site.plan(family);
                let start = site.kernel.clone();
                let whole = start.clone();
                execute_all(&whole, &plan);
                for cut in 0..plan.steps.len() {
                    site.kernel = start.clone();
                    for step in &plan.steps[..cut] {
                        prop_assert_eq!(execute(&site.kernel, &step.operation, plan.protocol), Ok(true));
                    }
                    site.reconcile(family);
                    let (rules, routes) = ours(&site.kernel.contents(), &site.settings);
                    let (whole_rules, whole_routes) = ours(&whole.contents(), &site.settings);
                    prop_assert_eq!(lines(&rules), lines(&whole_rules), "cut after {} of\n{}", cut, plan);
                    let missing: Vec<_> = whole_routes.difference(&routes).collect();
                    prop_assert!(missing.is_empty(), "{missing:?}, cut after {cut} of\n{plan}");
                    // Nothing leads to what could be left: the card is no uplink any more
                    // and no rule names its table. It goes when the card is one again.
                    let mut left = routes.difference(&whole_routes);
                    let named = |route: &ObservedRoute| rules.iter().any(|r| r.table == route.table && r.family == route.family());
                    prop_assert!(!left.any(named), "cut after {cut} of\n{plan}");
                }
                site.kernel = whole;
            }
        }
    }

    #[test]
    fn a_plan_prints_as_one_command_a_line(
        (settings, world) in site(),
        happenings in happenings(),
    ) {
        let mut site = Site::new(world, settings);
        for happening in &happenings {
            for family in site.happen(happening) {
                let plan = site.reconcile(family);
                let text = plan.to_string();
                prop_assert_eq!(text.lines().count(), plan.steps.len());
                for line in text.lines() {
                    let (command, reason) = line.split_once("  # ").unwrap();
                    let plain = |c: char| c.is_ascii_alphanumeric() || " .:/-_".contains(c);
                    prop_assert!(command.starts_with("ip -") && command.chars().all(plain), "{line}");
                    prop_assert!(!reason.chars().any(char::is_control), "{line}");
                }
            }
        }
    }
}

/// A host of managed cards, each with an address of its own, and nobody else's rules.
fn tidy() -> impl Strategy<Value = (When, Vec<Happening>)> {
    (select(vec![When::Multihomed, When::Always]), unshared())
}

/// Far away: no lease, card or foreign route of these tests covers it.
fn far(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => "100.64.7.7".parse().unwrap(),
        Family::Ipv6 => "2620:0:7::7".parse().unwrap(),
    }
}

/// The sources whose packets to far away leave by the interface of their own table.
fn routed_sources(seen: &Snapshot, desired: &DesiredState) -> Vec<(IpAddr, String)> {
    let mut routed = Vec::new();
    for uplink in desired
        .uplinks
        .iter()
        .filter(|uplink| uplink.table.is_some())
    {
        for source in &uplink.sources {
            let packet = Packet {
                source: source.ip(),
                destination: far(desired.family),
                bound_to: None,
            };
            let way = way(seen, packet);
            if way.is_some_and(|way| {
                way.oif == Some(uplink.device.index) && Some(way.table) == uplink.table
            }) {
                routed.push((source.ip(), uplink.device.to_string()));
            }
        }
    }
    routed
}

proptest! {
    #[test]
    fn removing_every_card_leaves_nothing_even_when_they_are_down(
        settings in settings(),
        happenings in unshared(),
        down in any::<bool>(),
    ) {
        let mut site = Site::new(World::default(), settings);
        let by_position = matches!(site.settings.tables, TableScheme::Position { .. });
        for happening in &happenings {
            // Tables that move tell nothing of whose an unknown lease's prefix was.
            if by_position && matches!(happening, Happening::StateLost) {
                continue;
            }
            for family in site.happen(happening) {
                site.reconcile(family);
            }
        }
        if down {
            for card in 0..CARDS {
                site.happen(&Happening::Up(card, false));
            }
        }
        for family in Family::BOTH {
            for card in 0..CARDS {
                let host = read(&site.kernel, family, &site.book, &site.settings);
                let name = name_of(card);
                let link = &host.links[&index_of(card)];
                let wanted = site.wanted(family);
                let plan = removal(family, &host, &site.settings, Some(link));
                execute_all(&site.kernel, &plan);
                let (rules, _) = ours(&site.kernel.contents(), &site.settings);
                let of_card = |source: &IpNetwork| {
                    let uplink = wanted.uplinks.iter().find(|u| u.device.index == link.index);
                    uplink.is_some_and(|uplink| uplink.sources.contains(source))
                };
                let left = rules.iter().filter(|rule| rule.family == family).find(|rule| {
                    rule.oif.as_deref() == Some(name.as_str()) || rule.from.as_ref().is_some_and(of_card)
                });
                prop_assert!(left.is_none(), "{left:?} after\n{plan}");
            }
            let (rules, _) = ours(&site.kernel.contents(), &site.settings);
            let left = rules.iter().find(|rule| rule.family == family);
            prop_assert!(left.is_none(), "{left:?}");
        }
    }

    #[test]
    fn rules_are_deleted_from_the_last_one_up(
        (when, happenings) in tidy(),
    ) {
        let settings = Settings { when, ..Settings::default() };
        let mut site = Site::new(World::default(), settings);
        for happening in &happenings {
            for family in site.happen(happening) {
                let plan = site.plan(family);
                let deleted = plan.steps.iter().filter_map(|step| match &step.operation {
                    Operation::DeleteRule(rule) => Some(rule.priority),
                    _ => None,
                });
                prop_assert!(deleted.is_sorted_by(|a, b| a >= b), "{plan}");
                execute_all(&site.kernel, &plan);
            }
        }
    }

    #[test]
    fn no_source_loses_its_own_default_on_the_way((when, happenings) in tidy()) {
        let settings = Settings { when, ..Settings::default() };
        let mut site = Site::new(World::default(), settings);
        for happening in &happenings {
            for family in site.happen(happening) {
                let desired = site.wanted(family);
                let plan = site.plan(family);
                let kernel = site.kernel.clone();
                execute_all(&kernel, &plan);
                let before = routed_sources(&site.kernel.contents(), &desired);
                let mut live = routed_sources(&kernel.contents(), &desired);
                live.retain(|source| before.contains(source));
                for (done, step) in plan.steps.iter().enumerate() {
                    execute(&site.kernel, &step.operation, plan.protocol).unwrap();
                    let now = routed_sources(&site.kernel.contents(), &desired);
                    for source in &live {
                        prop_assert!(now.contains(source), "{source:?} after {} of\n{plan}", done + 1);
                    }
                }
            }
        }
    }

    #[test]
    fn every_source_and_every_bound_socket_leaves_by_its_own_card((when, happenings) in tidy()) {
        let settings = Settings { when, ..Settings::default() };
        let mut site = Site::new(World::default(), settings);
        for happening in &happenings {
            for family in site.happen(happening) {
                let desired = site.wanted(family);
                site.reconcile(family);
                let seen = site.kernel.contents();
                for uplink in &desired.uplinks {
                    let default = desired.routes.iter().find(|(route, _)| {
                        Some(route.table) == uplink.table && route.destination.prefix() == 0
                    });
                    let Some((default, _)) = default else { continue };
                    let bound = uplink.device.name.as_str();
                    for source in &uplink.sources {
                        for bound_to in [None, Some(bound)] {
                            let packet = Packet {
                                source: source.ip(),
                                destination: far(family),
                                bound_to,
                            };
                            let way = way(&seen, packet);
                            // A lease may have routes for far away itself (0.0.0.0/1).
                            let by = way.map(|way| (way.table, way.oif));
                            let own = (default.table, Some(uplink.device.index));
                            prop_assert_eq!(by, Some(own), "{:?}", packet);
                        }
                    }
                }
            }
        }
    }
}
