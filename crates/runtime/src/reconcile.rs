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

    /// The failures as text: the change as an ip(8) command, and why it failed.
    pub fn failure_lines(&self) -> impl Iterator<Item = String> {
        let line = |f: &Failure| format!("{}: {}", self.done.command(&f.step), f.cause);
        self.failures.iter().map(line)
    }
}

/// The exit code for changes that could not be made.
#[must_use]
pub fn exit_of(failures: &[Failure]) -> Exit {
    let not_permitted =
        |f: &Failure| matches!(f.cause, Cause::Kernel(OperationError::NotPermitted));
    match failures {
        [] => Exit::Done,
        _ if failures.iter().any(not_permitted) => Exit::NotPermitted,
        _ => Exit::Kernel,
    }
}

/// Reconciles one family. `host` is a fresh snapshot of it.
///
/// # Errors
///
/// When the kernel cannot be read.
pub async fn reconcile<K: Kernel>(
    kernel: &K,
    family: Family,
    mut host: Host,
    book: &LeaseBook,
    settings: &Settings,
) -> Result<Report, KernelError> {
    let none = BTreeSet::new();
    let mut desired = desired_state(family, &host, book, settings);
    let mut wanted = plan(&desired, &host, settings);
    let mut done = Plan {
        steps: Vec::new(),
        notes: std::mem::take(&mut wanted.notes),
        protocol: settings.protocol,
    };
    let mut failures = Vec::new();
    for round in 1..=ROUNDS {
        if wanted.is_empty() {
            break;
        }
        let made = done.steps.len();
        failures = apply(kernel, wanted, &mut done).await;
        let progress = done.steps.len() > made;
        snapshot::read_own(kernel, family, &mut host, book, settings, &none).await?;
        wanted = plan(&desired, &host, settings);
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
        let links = snapshot::links(kernel, settings).await?;
        host = snapshot::host(kernel, family, links, book, settings, &none).await?;
        desired = desired_state(family, &host, book, settings);
        wanted = plan(&desired, &host, settings);
    }
    Ok(Report {
        family,
        done,
        failures,
        desired,
        host,
    })
}

/// Applies a plan: routes, then the rules whose tables could be filled, then deletions.
pub(crate) async fn apply<K: Kernel>(kernel: &K, plan: Plan, done: &mut Plan) -> Vec<Failure> {
    let mut failures = Vec::new();
    let (routes, rest): (Vec<_>, Vec<_>) = plan.steps.into_iter().partition(|step| {
        matches!(
            step.operation,
            Operation::AddRoute(_) | Operation::ReplaceRoute(_)
        )
    });
    execute(kernel, routes, done, &mut failures).await;
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
    execute(kernel, possible, done, &mut failures).await;
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

async fn execute<K: Kernel>(
    kernel: &K,
    steps: Vec<Step>,
    done: &mut Plan,
    failures: &mut Vec<Failure>,
) {
    if steps.is_empty() {
        return;
    }
    let operations: Vec<&Operation> = steps.iter().map(|step| &step.operation).collect();
    let results = kernel.execute(&operations, done.protocol).await;
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
