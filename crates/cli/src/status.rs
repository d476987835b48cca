//! `leaseroute status`: what is in place, what it is for, and what is not as it should be.
//!
//! The kernel says what is in place, the model what should be; each object of ours is
//! shown beside its purpose. Reading needs no privilege.

use std::collections::{BTreeMap, BTreeSet};

use ipnetwork::IpNetwork;
use leaseroute_core::{
    CardMetadata, DesiredState, Family, IfIndex, LeaseState, Link, Mac, Note, ObservedRoute,
    Purpose, Record, Said, TableId, desired_state,
};
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::{LastRun, Paths};
use serde::Serialize;

use crate::error::CliError;
use crate::request::FarEnds;
use crate::verify::{self, Reply};
use crate::view::{FORMAT, NoteView};
use crate::watcher::WatcherView;
use crate::world::{self, Machine, World};

/// The state of the host.
#[derive(Debug, Serialize)]
pub(crate) struct StatusView {
    version: u32,
    /// In seconds since 1970.
    pub(crate) time: u64,
    pub(crate) interfaces: Vec<InterfaceStatus>,
    /// Rules that belong to no interface.
    pub(crate) shared: Vec<ObjectView>,
    /// Objects of ours that nothing wants any more. The next event removes them.
    pub(crate) stale: Vec<ObjectView>,
    pub(crate) notes: Vec<NoteView>,
    /// How the last runs that changed anything ended, by family.
    pub(crate) last_runs: BTreeMap<Family, LastRun>,
    pub(crate) watcher: WatcherView,
}

/// One interface that is an uplink, or that a lease is known of.
#[derive(Debug, Serialize)]
pub(crate) struct InterfaceStatus {
    pub(crate) name: String,
    pub(crate) index: IfIndex,
    pub(crate) mac: Option<Mac>,
    pub(crate) up: bool,
    /// Whether the configuration lets us work on it.
    pub(crate) manage: bool,
    pub(crate) families: Vec<FamilyStatus>,
}

/// One interface in one family.
#[derive(Debug, Serialize)]
pub(crate) struct FamilyStatus {
    pub(crate) family: Family,
    /// Whether it counts as an uplink.
    pub(crate) uplink: bool,
    /// Whether the number of uplinks calls for rules at all.
    pub(crate) active: bool,
    /// Its own table, if it has one now.
    pub(crate) table: Option<TableId>,
    /// What is known of the lease; `null` when nobody told.
    pub(crate) lease: Option<LeaseView>,
    /// What a metadata service says; `null` when nobody could find out.
    pub(crate) metadata: Option<SaidView>,
    pub(crate) sources: BTreeSet<IpNetwork>,
    /// Addresses that we put there.
    pub(crate) addresses: Vec<ObjectView>,
    pub(crate) rules: Vec<ObjectView>,
    pub(crate) routes: Vec<ObjectView>,
    /// By which interface replies leave; empty without `--verify`.
    pub(crate) replies: Vec<Reply>,
}

/// What is known of a lease.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseView {
    pub(crate) state: LeaseState,
    /// The client that said so.
    pub(crate) client: Option<&'static str>,
    /// When, in seconds since 1970.
    pub(crate) updated: u64,
}

/// What a metadata service says of an interface in one family.
#[derive(Debug, Serialize)]
pub(crate) struct SaidView {
    pub(crate) provider: String,
    pub(crate) said: Said,
    /// When, in seconds since 1970.
    pub(crate) updated: u64,
}

/// A route, a rule or an address.
#[derive(Debug, Serialize)]
pub(crate) struct ObjectView {
    /// In ip(8)'s words.
    pub(crate) text: String,
    /// What it is for; `null` when nothing wants it.
    pub(crate) why: Option<String>,
    pub(crate) presence: Presence,
}

/// Whether an object is where it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Presence {
    /// It is wanted and there.
    InPlace,
    /// It is wanted and not there.
    Missing,
    /// It is there, and left there because nobody told whether its lease still lives.
    Kept,
    /// It is there and not wanted.
    Stale,
}

/// Looks at this machine.
pub(crate) fn run(verify: Option<FarEnds>, now: u64) -> Result<StatusView, CliError> {
    let paths = Paths::from_environment();
    let loaded = world::configuration(&paths)?;
    let machine = Machine::open(paths, loaded)?;
    let world = machine.world(now)?;
    let mut view = StatusView::new(&world, now);
    let last_run = |family| Some((family, machine.engine.state().last_run(family)?));
    view.watcher = WatcherView::read(machine.engine.state());
    view.last_runs = Family::BOTH.into_iter().filter_map(last_run).collect();
    if let Some(far) = verify {
        for interface in &mut view.interfaces {
            let index = interface.index;
            for status in &mut interface.families {
                let kernel = machine.engine.kernel();
                status.replies = verify::ask(kernel, &world, index, status.family, far)?;
            }
        }
    }
    Ok(view)
}

impl StatusView {
    /// Puts what is wanted beside what is there.
    pub(crate) fn new(world: &World, now: u64) -> Self {
        let mut parts = BTreeMap::new();
        let mut shared = Vec::new();
        let mut stale = Vec::new();
        let mut notes: BTreeSet<Note> = BTreeSet::new();
        for family in Family::BOTH {
            let settings = &world.loaded.settings;
            let desired = desired_state(family, &world.host, &world.book, settings);
            let mut objects = Objects::new(&desired, world);
            shared.append(&mut objects.shared);
            stale.append(&mut objects.stale);
            for index in concerned(&desired, world) {
                let status = FamilyStatus::new(index, &desired, world, &mut objects);
                parts.entry(index).or_insert_with(Vec::new).push(status);
            }
            notes.extend(desired.notes);
        }
        let interface = |(index, families)| {
            let link = world.host.links.get(&index)?;
            Some(InterfaceStatus::new(link, families, world))
        };
        Self {
            version: FORMAT,
            time: now,
            interfaces: parts.into_iter().filter_map(interface).collect(),
            shared,
            stale,
            notes: notes.iter().map(NoteView::from).collect(),
            last_runs: BTreeMap::new(),
            watcher: WatcherView::default(),
        }
    }

    /// Whether some replies go astray.
    pub(crate) fn exit(&self) -> Exit {
        let families = self
            .interfaces
            .iter()
            .flat_map(|interface| &interface.families);
        let mut replies = families.flat_map(|family| &family.replies);
        if replies.any(Reply::goes_astray) {
            Exit::Misrouted
        } else {
            Exit::Done
        }
    }
}

/// The interfaces that are worth showing: uplinks, and those that a record is about.
fn concerned(desired: &DesiredState, world: &World) -> BTreeSet<IfIndex> {
    let uplinks = desired.uplinks.iter().map(|uplink| uplink.device.index);
    let records = world
        .book
        .records()
        .filter(|record| record.family == desired.family);
    uplinks.chain(records.map(|record| record.index)).collect()
}

impl InterfaceStatus {
    fn new(link: &Link, families: Vec<FamilyStatus>, world: &World) -> Self {
        Self {
            name: link.name.to_string(),
            index: link.index,
            mac: link.mac,
            up: link.up,
            manage: world.loaded.settings.of(link).manage,
            families,
        }
    }
}

impl FamilyStatus {
    fn new(index: IfIndex, desired: &DesiredState, world: &World, objects: &mut Objects) -> Self {
        let uplink = desired
            .uplinks
            .iter()
            .find(|uplink| uplink.device.index == index);
        Self {
            family: desired.family,
            uplink: uplink.is_some(),
            active: desired.active,
            table: uplink.and_then(|uplink| uplink.table),
            lease: world.book.get(index, desired.family).map(LeaseView::from),
            metadata: world
                .book
                .metadata()
                .find(|known| (known.index, known.family) == (index, desired.family))
                .map(SaidView::from),
            sources: uplink
                .map(|uplink| uplink.sources.clone())
                .unwrap_or_default(),
            addresses: objects.addresses.remove(&index).unwrap_or_default(),
            rules: objects.rules.remove(&index).unwrap_or_default(),
            routes: objects.routes.remove(&index).unwrap_or_default(),
            replies: Vec::new(),
        }
    }
}

impl From<&Record> for LeaseView {
    fn from(record: &Record) -> Self {
        Self {
            state: record.state.clone(),
            client: record.event.as_ref().map(|event| event.client.name()),
            updated: record.updated,
        }
    }
}

impl From<&CardMetadata> for SaidView {
    fn from(known: &CardMetadata) -> Self {
        Self {
            provider: known.provider.clone(),
            said: known.said.clone(),
            updated: known.updated,
        }
    }
}

/// All objects of one family, by interface.
#[derive(Default)]
struct Objects {
    addresses: BTreeMap<IfIndex, Vec<ObjectView>>,
    rules: BTreeMap<IfIndex, Vec<ObjectView>>,
    routes: BTreeMap<IfIndex, Vec<ObjectView>>,
    shared: Vec<ObjectView>,
    stale: Vec<ObjectView>,
}

impl Objects {
    fn new(desired: &DesiredState, world: &World) -> Self {
        let mut objects = Self::default();
        objects.add_addresses(desired, world);
        objects.add_rules(desired, world);
        objects.add_routes(desired, world);
        objects
    }

    fn add_addresses(&mut self, desired: &DesiredState, world: &World) {
        let settings = &world.loaded.settings;
        let addresses = world.host.addresses.iter();
        let ours = addresses.filter(|seen| {
            Family::of_network(seen.address) == desired.family && settings.owns_address(seen)
        });
        let mut left: Vec<_> = ours.collect();
        let mut add = |index, text, why, presence| {
            let view = ObjectView {
                text,
                why,
                presence,
            };
            self.addresses.entry(index).or_default().push(view);
        };
        for (address, purpose) in &desired.addresses {
            let there = take_met(&mut left, |seen| address.is_met_by(seen));
            let presence = Presence::of_wanted(there);
            let text = format!("address {address}");
            add(
                address.device.index,
                text,
                Some(purpose.to_string()),
                presence,
            );
        }
        for seen in left {
            let presence = if desired.kept_addresses.contains(seen) {
                Presence::Kept
            } else {
                Presence::Stale
            };
            add(
                seen.index,
                format!("address {}", seen.address),
                None,
                presence,
            );
        }
    }

    fn add_rules(&mut self, desired: &DesiredState, world: &World) {
        let settings = &world.loaded.settings;
        let rules = world.host.rules.iter();
        let ours = rules.filter(|r| r.family == desired.family && settings.owns_rule(r));
        let mut left: Vec<_> = ours.collect();
        for (rule, purpose) in &desired.rules {
            let there = take_met(&mut left, |seen| rule.is_met_by(seen));
            let (list, why) = match purpose {
                Purpose::Rule { device, why } => (
                    self.rules.entry(device.index).or_default(),
                    (*why).to_owned(),
                ),
                other => (&mut self.shared, other.to_string()),
            };
            list.push(ObjectView {
                text: rule.to_string(),
                why: Some(why),
                presence: Presence::of_wanted(there),
            });
        }
        self.stale.extend(left.into_iter().map(|rule| ObjectView {
            text: format!("{} rule {rule}", rule.family),
            why: None,
            presence: Presence::Stale,
        }));
    }

    fn add_routes(&mut self, desired: &DesiredState, world: &World) {
        let settings = &world.loaded.settings;
        let routes = world.host.own_tables.iter();
        let ours = routes.filter(|r| r.family() == desired.family && settings.owns_route(r));
        let (kept, mut left): (Vec<&ObservedRoute>, Vec<&ObservedRoute>) =
            ours.partition(|seen| desired.kept_routes.contains(seen));
        for (route, purpose) in &desired.routes {
            let there = take_met(&mut left, |seen| route.is_met_by(seen));
            self.routes
                .entry(route.device.index)
                .or_default()
                .push(ObjectView {
                    text: route.to_string(),
                    why: Some(purpose.to_string()),
                    presence: Presence::of_wanted(there),
                });
        }
        for route in kept {
            // A route without its interface is not kept.
            let Some(link) = out_of(route, world) else {
                continue;
            };
            self.routes.entry(link.index).or_default().push(ObjectView {
                text: route.describe(Some(link.name.as_str())).to_string(),
                why: None,
                presence: Presence::Kept,
            });
        }
        self.stale.extend(left.into_iter().map(|route| {
            let name = out_of(route, world).map(|link| link.name.as_str());
            let words = route.describe(name);
            ObjectView {
                text: format!("{} route {words} table {}", route.family(), route.table),
                why: None,
                presence: Presence::Stale,
            }
        }));
    }
}

/// The interface that a route leads out of.
fn out_of<'a>(route: &ObservedRoute, world: &'a World) -> Option<&'a Link> {
    world.host.links.get(&route.oif?)
}

/// Takes out one object that is just the wanted one, and says whether there is one. Of two
/// that are the same, the other is not wanted, as the diff has it.
fn take_met<T>(left: &mut Vec<&T>, is_met_by: impl Fn(&T) -> bool) -> bool {
    let met = left.iter().position(|seen| is_met_by(seen));
    met.map(|met| left.remove(met)).is_some()
}

impl Presence {
    fn of_wanted(there: bool) -> Self {
        if there { Self::InPlace } else { Self::Missing }
    }
}
