//! Makes the kernel what the model wants, in one family: snapshot, plan, apply, read back.
//!
//! Existing on add and missing on delete are success, failures are collected, and a rule
//! is not added when its table could not be filled. What is missing afterwards is tried
//! again a few times, since others change the kernel at the same time, and then reported.

use std::collections::{BTreeMap, BTreeSet};

use leaseroute_core::{
    DesiredState, Family, Host, IfIndex, LeaseBook, Note, Operation, Plan, Purpose, Settings, Step,
    TableId, desired_state, plan,
};
use leaseroute_kernel::{Kernel, KernelError, OperationError};

use crate::exit::Exit;
use crate::snapshot;

/// How often a plan is made and applied before the rest is reported.
const ROUNDS: u32 = 3;

/// One change that could not be made.
#[derive(Debug)]
pub struct Failure {
    /// The change.
    pub step: Step,
    /// Why it could not be made.
    pub cause: Cause,
}

/// Why a change could not be made.
#[derive(Debug)]
pub enum Cause {
    /// The kernel's answer.
    Kernel(OperationError),
    /// The rule's table could not be filled, so the rule would lead nowhere.
    EmptyTable(TableId),
    /// It was made, but the kernel does not show it.
    NotThere,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel(error) => error.fmt(f),
            Self::EmptyTable(table) => write!(f, "table {table} could not be filled"),
            Self::NotThere => f.write_str("somebody undoes it"),
        }
    }
}

/// What a reconciliation did.
#[derive(Debug)]
pub struct Report {
    /// The family.
    pub family: Family,
    /// The changes that were made.
    pub done: Plan,
    /// Those that could not be made.
    pub failures: Vec<Failure>,
    /// What should be there.
    pub desired: DesiredState,
    /// The host as it was read last.
    pub host: Host,
}

impl Report {
    /// Whether nothing was changed and nothing failed.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.done.is_empty() && self.failures.is_empty()
    }

    /// What an administrator should know.
    pub fn notes(&self) -> impl Iterator<Item = &Note> {
        self.desired.notes.iter().chain(&self.done.notes)
    }

    /// How the run ended.
    #[must_use]
    pub fn exit(&self) -> Exit {
        exit_of(&self.failures)
    }

    /// The exit code for an event of one interface: only failures that concern it count.
    #[must_use]
    pub fn exit_for(&self, index: IfIndex) -> Exit {
        exit_of(
            self.failures
                .iter()
                .filter(|failure| failure.concerns(index)),
        )
    }

    /// The failures as text: the change as an ip(8) command, and why it failed.
    pub fn failure_lines(&self) -> impl Iterator<Item = String> {
        let line = |f: &Failure| format!("{}: {}", self.done.command(&f.step), f.cause);
        self.failures.iter().map(line)
    }
}

/// The exit code for changes that could not be made.
#[must_use]
pub fn exit_of<'a>(failures: impl IntoIterator<Item = &'a Failure>) -> Exit {
    let exits = failures.into_iter().map(|failure| match failure.cause {
        Cause::Kernel(OperationError::NotPermitted) => Exit::NotPermitted,
        _ => Exit::Kernel,
    });
    exits.min().unwrap_or(Exit::Done)
}

impl Failure {
    /// Whether the change is about an interface, or about none in particular.
    fn concerns(&self, index: IfIndex) -> bool {
        match (&self.step.operation, &self.step.purpose) {
            (Operation::AddRoute(route) | Operation::ReplaceRoute(route), _) => {
                route.device.index == index
            }
            (Operation::AddAddress(address) | Operation::DeleteAddress(address), _) => {
                address.device.index == index
            }
            (_, Some(Purpose::Rule { device, .. })) => device.index == index,
            (Operation::DeleteRoute { route, .. }, _) => route.oif == Some(index),
            _ => true,
        }
    }
}

/// Reconciles one family. `host` is a fresh snapshot of it; changes that `spares` names are
/// left undone.
///
/// # Errors
///
/// When the kernel cannot be read.
pub fn reconcile<K: Kernel>(
    kernel: &K,
    family: Family,
    mut host: Host,
    book: &LeaseBook,
    settings: &Settings,
    spares: &dyn Fn(&Operation) -> bool,
) -> Result<Report, KernelError> {
    let none = BTreeSet::new();
    let plan = |desired: &DesiredState, host: &Host| {
        let mut wanted = plan(desired, host, settings);
        wanted.steps.retain(|step| !spares(&step.operation));
        wanted
    };
    let mut desired = desired_state(family, &host, book, settings);
    let mut wanted = plan(&desired, &host);
    let mut done = Plan {
        steps: Vec::new(),
        notes: Vec::new(),
        protocol: settings.protocol,
    };
    let mut failures = Vec::new();
    for round in 1..=ROUNDS {
        if wanted.is_empty() {
            // What failed before is not wanted any more.
            failures.clear();
            break;
        }
        let made = done.steps.len();
        failures = apply(kernel, std::mem::take(&mut wanted.steps), &mut done);
        let progress = done.steps.len() > made;
        let is_address = |step: &Step| {
            matches!(
                step.operation,
                Operation::AddAddress(_) | Operation::DeleteAddress(_)
            )
        };
        if done.steps.iter().skip(made).any(is_address) {
            snapshot::read_addresses(kernel, family, &mut host, book, settings)?;
        }
        snapshot::read_own(kernel, family, &mut host, book, settings, &none)?;
        wanted = plan(&desired, &host);
        if wanted.is_empty() {
            failures.clear();
            break;
        }
        let failed = |step: &Step| failures.iter().any(|failure| failure.step == *step);
        let missing: Vec<Step> = wanted
            .steps
            .iter()
            .filter(|s| !failed(s))
            .cloned()
            .collect();
        // A deletion may have made room for what was refused before it.
        let hopeless = missing.is_empty() && !progress;
        if hopeless || round == ROUNDS {
            failures.extend(missing.into_iter().map(|step| Failure {
                step,
                cause: Cause::NotThere,
            }));
            break;
        }
        // Others change things at the same time: look at everything afresh.
        let links = snapshot::links(kernel, settings)?;
        host = snapshot::host(kernel, family, links, book, settings, &none)?;
        desired = desired_state(family, &host, book, settings);
        wanted = plan(&desired, &host);
    }
    done.notes = wanted.notes;
    Ok(Report {
        family,
        done,
        failures,
        desired,
        host,
    })
}

/// Makes changes in their order. What comes before the first rule fills the tables; a rule
/// whose table could not be filled is left out.
pub(crate) fn apply<K: Kernel>(kernel: &K, steps: Vec<Step>, done: &mut Plan) -> Vec<Failure> {
    let mut failures = Vec::new();
    let is_rule = |step: &Step| {
        matches!(
            step.operation,
            Operation::AddRule(_) | Operation::DeleteRule(_)
        )
    };
    let mut routes = steps;
    let first_rule = routes.iter().position(is_rule).unwrap_or(routes.len());
    let rest = routes.split_off(first_rule);
    execute(kernel, routes, done, &mut failures);
    let empty: BTreeMap<IfIndex, TableId> = failures.iter().filter_map(unfilled).collect();
    let leads_nowhere = |step: &Step| match (&step.operation, &step.purpose) {
        (Operation::AddRule(_), Some(Purpose::Rule { device, .. })) => empty.get(&device.index),
        _ => None,
    };
    let mut possible = Vec::new();
    for step in rest {
        match leads_nowhere(&step) {
            Some(table) => failures.push(Failure {
                step,
                cause: Cause::EmptyTable(*table),
            }),
            None => possible.push(step),
        }
    }
    execute(kernel, possible, done, &mut failures);
    failures
}

/// The interface whose table lacks a route it cannot do without, and that table.
fn unfilled(failure: &Failure) -> Option<(IfIndex, TableId)> {
    match &failure.step.operation {
        Operation::AddRoute(route) | Operation::ReplaceRoute(route) => {
            let essential = failure
                .step
                .purpose
                .as_ref()
                .is_some_and(|p| p.is_essential());
            essential.then_some((route.device.index, route.table))
        }
        _ => None,
    }
}

fn execute<K: Kernel>(kernel: &K, steps: Vec<Step>, done: &mut Plan, failures: &mut Vec<Failure>) {
    if steps.is_empty() {
        return;
    }
    let operations: Vec<&Operation> = steps.iter().map(|step| &step.operation).collect();
    let results = kernel.execute(&operations, done.protocol);
    for (step, result) in steps.into_iter().zip(results) {
        match result {
            Ok(()) => done.steps.push(step),
            Err(error) => failures.push(Failure {
                step,
                cause: Cause::Kernel(error),
            }),
        }
    }
}
