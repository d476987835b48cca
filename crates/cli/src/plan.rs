//! `leaseroute plan`: what would change.

use std::fmt;

use leaseroute_config::Loaded;
use leaseroute_core::{Family, LeaseBook, Uplink, desired_state, plan};
use leaseroute_runtime::Paths;
use serde::Serialize;

use crate::error::CliError;
use crate::given::Given;
use crate::request::Origin;
use crate::view::{Count, EventView, FORMAT, NoteView, StepView, inactive};
use crate::world::{self, Machine, World};

/// What would change on a host.
#[derive(Debug, Serialize)]
pub(crate) struct PlanView {
    version: u32,
    /// The events that were taken in first.
    events: Vec<EventView>,
    families: Vec<FamilyPlan>,
}

/// What would change in one family.
#[derive(Debug, Serialize)]
pub(crate) struct FamilyPlan {
    family: Family,
    /// Whether the number of uplinks calls for rules at all.
    active: bool,
    uplinks: Vec<Uplink>,
    /// In the order in which they would be made.
    pub(crate) steps: Vec<StepView>,
    pub(crate) notes: Vec<NoteView>,
}

/// Plans.
pub(crate) fn run(events: Vec<Given>, origin: Origin, now: u64) -> Result<PlanView, CliError> {
    let mut world = match origin {
        Origin::Here => here(now)?,
        Origin::Snapshot(host) => World {
            host: *host,
            book: LeaseBook::default(),
            loaded: world::configuration(&Paths::from_environment())?,
        },
        Origin::Report(report) => report.into_world(now)?,
    };
    let (events, concerned) = world.take(events, now)?;
    let families = if concerned.is_empty() {
        Family::BOTH.to_vec()
    } else {
        concerned
    };
    Ok(PlanView {
        version: FORMAT,
        events,
        families: families
            .into_iter()
            .map(|f| FamilyPlan::new(f, &world))
            .collect(),
    })
}

/// This host, its leases and its configuration.
pub(crate) fn here(now: u64) -> Result<World, CliError> {
    let paths = Paths::from_environment();
    let loaded: Loaded = world::configuration(&paths)?;
    Machine::open(paths, loaded)?.world(now)
}

impl FamilyPlan {
    pub(crate) fn new(family: Family, world: &World) -> Self {
        let settings = &world.loaded.settings;
        let desired = desired_state(family, &world.host, &world.book, settings);
        let plan = plan(&desired, &world.host, settings);
        Self {
            family,
            active: desired.active,
            steps: StepView::all(&plan),
            notes: desired
                .notes
                .iter()
                .chain(&plan.notes)
                .map(NoteView::from)
                .collect(),
            uplinks: desired.uplinks,
        }
    }
}

/// ip(8) commands that a shell takes; all else is a comment.
impl fmt::Display for PlanView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            event.fmt(f)?;
        }
        for family in &self.families {
            family.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for FamilyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}: {}", self.family, Count(self.steps.len()))?;
        if !self.active {
            writeln!(f, "# {}", inactive(self.family, self.uplinks.len()))?;
        }
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        for note in &self.notes {
            writeln!(f, "# note: {note}")?;
        }
        Ok(())
    }
}
