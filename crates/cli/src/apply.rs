//! `leaseroute apply` and `leaseroute remove`: what was changed.

use std::fmt;

use leaseroute_core::{Family, Host, InterfaceRef, Plan};
use leaseroute_kernel::OperationError;
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::reconcile::Failure;
use leaseroute_runtime::{EngineError, Outcome, Paths, Removal, snapshot};
use leaseroute_watch::health;
use serde::Serialize;

use crate::error::CliError;
use crate::given::{self, Given};
use crate::now;
use crate::output;
use crate::view::{Count, EventView, FORMAT, NoteView, StepView, inactive};
use crate::world::{self, Machine, World};

/// What was changed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeView {
    version: u32,
    /// The events that were taken in first.
    events: Vec<EventView>,
    families: Vec<FamilyChange>,
    /// How the run ended.
    exit: Exit,
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
    /// Those that could not be made.
    failures: Vec<FailureView>,
    notes: Vec<NoteView>,
}

/// A change that could not be made.
#[derive(Debug, Serialize)]
struct FailureView {
    step: StepView,
    cause: String,
}

/// Makes the kernel fit, after taking events in.
pub(crate) fn apply(events: Vec<Given>) -> Result<ChangeView, CliError> {
    let paths = Paths::from_environment();
    let loaded = world::configuration(&paths)?;
    let machine = Machine::open(paths, loaded)?;
    let mut view = ChangeView::default();
    for given in events {
        let mut parsed = given.parse()?;
        if given.adds {
            // Whoever sets up an interface does so one step at a time, as ifup(8) by its lock.
            let World { host, book, .. } = machine.world(now())?;
            parsed.event = parsed.event.map(|event| given::added(event, &host, &book));
        }
        if let Some(event) = parsed.event.clone() {
            view.add(machine.engine.take(event, &given.raw)?);
        }
        view.events.push(EventView::new(&given.raw, parsed));
    }
    view.add(machine.engine.apply()?);
    Ok(view)
}

/// Takes our objects away, of the interfaces that are named or of all, and forgets their
/// leases. With `missing_ok` an interface may be gone: its lease is then forgotten and its
/// rules are taken away as any run does for what is gone.
pub(crate) fn remove(
    interfaces: &[InterfaceRef],
    missing_ok: bool,
) -> Result<ChangeView, CliError> {
    let paths = Paths::from_environment();
    let loaded = world::configuration(&paths)?;
    let machine = Machine::open(paths, loaded)?;
    let mut view = ChangeView::default();
    if interfaces.is_empty() {
        if health::is_running(machine.engine.state()).unwrap_or(false) {
            output::warn(
                &"a watcher runs, and puts back what leases still call for; stop it first",
            );
        }
        view.removed(machine.engine.remove(None)?);
    }
    if !missing_ok {
        // All or nothing: who mistypes one of several names wants to know before.
        let links = snapshot::links(machine.engine.kernel(), machine.engine.settings())?;
        let host = Host {
            links,
            ..Host::default()
        };
        if let Some(missing) = interfaces.iter().find(|name| host.resolve(name).is_none()) {
            return Err(CliError::NoInterface(missing.clone()));
        }
    }
    for interface in interfaces {
        match machine.engine.remove(Some(interface)) {
            Err(EngineError::NoInterface(_)) if missing_ok => view.add(machine.engine.apply()?),
            removal => view.removed(removal?),
        }
    }
    Ok(view)
}

impl Default for ChangeView {
    fn default() -> Self {
        Self {
            version: FORMAT,
            events: Vec::new(),
            families: Vec::new(),
            exit: Exit::Done,
        }
    }
}

impl ChangeView {
    /// How the run ended.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// What failed, each as a line for standard error.
    pub(crate) fn failures(&self) -> Vec<String> {
        if self.exit == Exit::NotPermitted {
            // It is the same for every change.
            return vec![OperationError::NotPermitted.to_string()];
        }
        let failures = self.families.iter().flat_map(|family| &family.failures);
        let line = |f: &FailureView| format!("failed to run {}: {}", f.step.command, f.cause);
        failures.map(line).collect()
    }

    fn ended(&mut self, exit: Exit) {
        if self.exit == Exit::Done {
            self.exit = exit;
        }
    }

    fn removed(&mut self, removal: Removal) {
        self.ended(removal.exit());
        for error in &removal.state_errors {
            output::warn(&with_causes(error));
        }
        for (family, plan) in Family::BOTH.into_iter().zip(removal.done) {
            let mine = removal
                .failures
                .iter()
                .filter(|f| f.step.operation.family() == family);
            self.family(FamilyChange {
                family,
                active: None,
                uplinks: 0,
                steps: StepView::all(&plan),
                failures: mine.map(|f| FailureView::new(&plan, f)).collect(),
                notes: Vec::new(),
            });
        }
    }

    fn add(&mut self, outcome: Outcome) {
        self.ended(outcome.exit());
        let Outcome::Done {
            reports,
            unknown,
            state_errors,
            ..
        } = outcome
        else {
            // Another run made the changes. What is left for us, the next look shows.
            return;
        };
        for error in &state_errors {
            output::warn(&with_causes(error));
        }
        for report in reports {
            let failures = report.failures.iter();
            self.family(FamilyChange {
                family: report.family,
                active: Some(report.desired.active),
                uplinks: report.desired.uplinks.len(),
                steps: StepView::all(&report.done),
                failures: failures
                    .map(|f| FailureView::new(&report.done, f))
                    .collect(),
                notes: report.notes().map(NoteView::from).collect(),
            });
        }
        for name in unknown {
            output::say(&CliError::NoInterface(name).to_string());
        }
    }

    /// Adds to what is said of the family already; the later notes and failures count.
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

/// ip(8) commands that a shell takes; all else is a comment.
impl fmt::Display for ChangeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            event.fmt(f)?;
        }
        for family in &self.families {
            write!(f, "# {}: {}", family.family, Count(family.steps.len()))?;
            match family.failures.len() {
                0 => writeln!(f)?,
                failed => writeln!(f, ", {failed} failed")?,
            }
            if family.active == Some(false) {
                writeln!(f, "# {}", inactive(family.family, family.uplinks))?;
            }
            for step in &family.steps {
                writeln!(f, "{step}")?;
            }
            for note in &family.notes {
                writeln!(f, "# note: {note}")?;
            }
        }
        Ok(())
    }
}
