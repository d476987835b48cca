//! What the checks look at: the files below a root, and of this system also the kernel, our
//! state, and the processes.

use std::io;

use ipnetwork::IpNetwork;
use leaseroute_config::Loaded;
use leaseroute_core::{DesiredState, Family, ObservedRule, Settings, Uplink, desired_state};
use leaseroute_kernel::{Kernel as _, KernelError, Netlink};
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::{LastRun, Paths, StateFolder};
use leaseroute_watch::health::{self, Health};

use super::units::Units;
use crate::error::CliError;
use crate::hooks::{self, HooksView, Root, Word};
use crate::world::{Machine, World};

/// A system.
pub(super) struct Scene<'a> {
    pub(super) root: &'a Root,
    pub(super) units: Units<'a>,
    /// Which clients are here, and whether they call our hooks; an error in words.
    pub(super) hooks: Result<HooksView, String>,
    /// What only the running system has. `None`: the root is that of an image.
    pub(super) live: Option<Result<Live, String>>,
    /// The configuration of this system: the defaults where it is invalid, and why it is.
    pub(super) settings: Settings,
    pub(super) invalid: Option<String>,
}

/// The running system.
pub(super) struct Live {
    pub(super) world: World,
    /// By family.
    pub(super) desired: Vec<DesiredState>,
    pub(super) last_runs: Vec<(Family, LastRun)>,
    /// Whether the watcher runs; `None` when that could not be found out.
    pub(super) watcher: Option<bool>,
    /// What the watcher told of itself.
    pub(super) health: Option<Health>,
    /// The default routes of some small table numbers, as the plugins of container networks
    /// use them: the table and the interface.
    pub(super) small_tables: Vec<(u32, String)>,
}

/// The tables that the plugins of container networks number from, in [`Live::small_tables`].
const SMALL_TABLES: std::ops::RangeInclusive<u32> = 2..=64;

impl<'a> Scene<'a> {
    /// Looks at a system. `now` is in seconds since 1970.
    pub(super) fn new(root: &'a Root, now: u64) -> Self {
        let in_words = |error: CliError| error.with_causes();
        let mut scene = Self {
            root,
            units: Units::new(root),
            hooks: hooks::list(root, &[], now).map_err(in_words),
            live: None,
            settings: Settings::default(),
            invalid: None,
        };
        if root.is_here() {
            let paths = Paths::from_environment();
            let loaded = match leaseroute_config::load(&paths.configuration) {
                Ok(loaded) => Ok(loaded),
                Err(error) => {
                    scene.invalid = Some(in_words(error.into()));
                    leaseroute_config::load_text(std::path::Path::new("-"), "")
                }
            };
            scene.live = Some(match loaded {
                Ok(loaded) => {
                    scene.settings = loaded.settings.clone();
                    Live::new(paths, loaded, now).map_err(in_words)
                }
                Err(error) => Err(in_words(error.into())),
            });
        }
        scene
    }

    /// The running system as far as it could be read.
    pub(super) fn live(&self) -> Option<&Live> {
        self.live.as_ref()?.as_ref().ok()
    }

    /// Why there is nothing to see of the running system.
    pub(super) fn no_kernel(&self) -> String {
        match &self.live {
            Some(Err(error)) => error.clone(),
            _ => "only a running system shows it, and this is an image".to_owned(),
        }
    }

    /// Whether leaseroute does its work here: a hook of ours is in place, the watcher is
    /// enabled or runs, or rules of ours are in the kernel.
    pub(super) fn is_ours_at_work(&self) -> io::Result<bool> {
        let is_hooked = self.hooks.as_ref().is_ok_and(|view| {
            let hooks = view.clients.iter().filter(|client| !client.is_setting);
            let mut entries = hooks.flat_map(|client| &client.entries);
            entries.any(|entry| entry.state == Word::InPlace)
        });
        let is_live = self.live().is_some_and(|live| {
            live.watcher == Some(true)
                || live
                    .world
                    .host
                    .rules
                    .iter()
                    .any(|rule| self.settings.owns_rule(rule))
        });
        Ok(is_hooked || is_live || !self.units.enabled("leaseroute-watch.service")?.is_empty())
    }

    /// Our uplinks of both families that have a table, with their sources.
    pub(super) fn uplinks(&self) -> impl Iterator<Item = &Uplink> {
        let desired = self.live().into_iter().flat_map(|live| &live.desired);
        desired
            .flat_map(|desired| &desired.uplinks)
            .filter(|uplink| uplink.table.is_some())
    }

    /// Foreign rules for single sources of ours that look up another table.
    pub(super) fn rules_for_our_sources(&self) -> Vec<&ObservedRule> {
        let is_source =
            |from: IpNetwork| self.uplinks().any(|uplink| uplink.sources.contains(&from));
        let rules = self.live().into_iter().flat_map(|l| &l.world.host.rules);
        rules
            .filter(|rule| !self.settings.owns_rule(rule) && rule.from.is_some_and(is_source))
            .collect()
    }

    /// Foreign rules.
    pub(super) fn foreign_rules(&self) -> impl Iterator<Item = &ObservedRule> {
        let rules = self.live().into_iter().flat_map(|l| &l.world.host.rules);
        rules.filter(|rule| !self.settings.owns_rule(rule))
    }

    /// The files of a folder whose names end so, with their paths in order.
    pub(super) fn files(&self, folder: &str, ending: &str) -> io::Result<Vec<String>> {
        let names = self.root.names(folder)?;
        let fitting = names.into_iter().filter(|name| name.ends_with(ending));
        Ok(fitting.map(|name| format!("{folder}/{name}")).collect())
    }

    /// Which of these paths are there.
    pub(super) fn there(&self, paths: &[&str]) -> io::Result<Vec<String>> {
        let mut there = Vec::new();
        for path in paths {
            if self.root.has(path)? {
                there.push((*path).to_owned());
            }
        }
        Ok(there)
    }
}

impl Live {
    fn new(paths: Paths, loaded: Loaded, now: u64) -> Result<Self, CliError> {
        let machine = Machine::open(paths, loaded)?;
        let world = machine.world(now)?;
        let settings = &world.loaded.settings;
        let desired = Family::BOTH
            .into_iter()
            .map(|family| desired_state(family, &world.host, &world.book, settings))
            .collect();
        let state: &StateFolder = machine.engine.state();
        let last_run = |family| Some((family, state.last_run(family)?));
        Ok(Self {
            desired,
            last_runs: Family::BOTH.into_iter().filter_map(last_run).collect(),
            watcher: health::is_running(state).ok(),
            health: Health::read(state).unwrap_or_else(|error| {
                crate::output::warn(&with_causes(&error));
                None
            }),
            small_tables: small_tables(machine.engine.kernel(), &world)?,
            world,
        })
    }
}

/// The default routes of tables that no scheme of ours gives out.
fn small_tables(kernel: &Netlink, world: &World) -> Result<Vec<(u32, String)>, KernelError> {
    let rules = world.host.rules.iter();
    // Only those that a foreign rule looks up: nobody else's numbers are of interest.
    let tables = rules
        .filter(|rule| !world.loaded.settings.owns_rule(rule))
        .map(|rule| rule.table)
        .filter(|table| SMALL_TABLES.contains(&table.get()))
        .collect();
    let mut found = Vec::new();
    for family in Family::BOTH {
        for route in kernel.table_routes(family, &tables)? {
            let link = route.oif.and_then(|oif| world.host.links.get(&oif));
            if let (0, Some(link)) = (route.destination.prefix(), link) {
                found.push((route.table.get(), link.name.to_string()));
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}
