//! `leaseroute apply` and `leaseroute remove`: what was changed.

use std::fmt;

use leaseroute_core::{Family, InterfaceRef, Plan, RawEvent};
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::reconcile::Failure;
use leaseroute_runtime::{Outcome, Paths, StateFolder};
use serde::Serialize;

use crate::error::CliError;
use crate::output;
use crate::view::{Count, EventView, FORMAT, NoteView, StepView, inactive};
use crate::world::{self, Machine};

/// What was changed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeView {
    version: u32,
    /// The events that were taken in first.
    events: Vec<EventView>,
    families: Vec<FamilyChange>,
    /// Changes that could not be made.
    failures: Vec<FailureView>,
    /// The exit status.
    exit: u8,
}

/// What was changed in one family.
#[derive(Debug, Serialize)]
struct FamilyChange {
    family: Family,
    /// Whether the number of uplinks calls for rules at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    active: Option<bool>,
    #[serde(skip)]
    uplinks: usize,
    /// The changes that were made.
    steps: Vec<StepView>,
    notes: Vec<NoteView>,
}

/// A change that could not be made.
#[derive(Debug, Serialize)]
struct FailureView {
    step: StepView,
    cause: String,
}

impl ChangeView {
    pub(crate) fn exit(&self) -> u8 {
        self.exit
    }
}

/// Makes the kernel fit, after taking events in.
pub(crate) fn apply(events: Vec<RawEvent>) -> Result<ChangeView, CliError> {
    let paths = Paths::from_environment();
    let loaded = world::configuration(&paths)?;
    world::block_on(async {
        let machine = Machine::open(paths, loaded)?;
        let mut view = ChangeView {
            version: FORMAT,
            events: Vec::new(),
            families: Vec::new(),
            failures: Vec::new(),
            exit: Exit::Done.code(),
        };
        for raw in events {
            let parsed = raw.client.parse(&raw)?;
            if let Some(event) = parsed.event.clone() {
                view.add(machine.engine.take(event, &raw).await?)?;
            }
            view.events.push(EventView::new(&raw, parsed));
        }
        view.add(machine.engine.apply().await?)?;
        Ok(view)
    })
}

impl ChangeView {
    fn add(&mut self, outcome: Outcome) -> Result<(), CliError> {
        let exit = outcome.exit();
        if self.exit == Exit::Done.code() {
            self.exit = exit.code();
        }
        let Outcome::Done {
            reports,
            unknown,
            state_errors,
            ..
        } = outcome
        else {
            // Another run made the changes. What is left for us, the next look shows.
            return Ok(());
        };
        for error in &state_errors {
            output::warn(&output::with_causes(error));
        }
        for report in reports {
            let failures = report.failures.iter();
            let failures = failures.map(|failure| FailureView::new(&report.done, failure));
            self.failures.extend(failures);
            self.family(FamilyChange {
                family: report.family,
                active: Some(report.desired.active),
                uplinks: report.desired.uplinks.len(),
                steps: StepView::all(&report.done),
                notes: report.notes().map(NoteView::from).collect(),
            });
        }
        match unknown {
            Some(name) => Err(CliError::NoInterface(name)),
            None => Ok(()),
        }
    }

    /// Adds to what is said of the family already; the later notes count.
    fn family(&mut self, change: FamilyChange) {
        let known = self.families.iter_mut().find(|f| f.family == change.family);
        match known {
            Some(known) => {
                let mut steps = std::mem::take(&mut known.steps);
                steps.extend(change.steps);
                *known = FamilyChange { steps, ..change };
            }
            None => self.families.push(change),
        }
    }
}

impl FailureView {
    fn new(plan: &Plan, failure: &Failure) -> Self {
        Self {
            step: StepView::new(plan, &failure.step),
            cause: failure.cause.to_string(),
        }
    }
}
