//! One run: takes an event in, makes the kernel fit, says what came of it.
//!
//! An event is taken in by whoever holds the lock. A run that finds it taken leaves its
//! event in the inbox and waits; the holder looks into the inbox again before it lets go,
//! so that a storm of events costs few reconciliations and none is lost. A run that was
//! killed anywhere has left nothing that the next one does not pick up.
//!
//! A program that stays takes the same way in two steps, [`Engine::turn`] and
//! [`Engine::work`], so that it can wait for the lock beside everything else it waits for.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use leaseroute_core::{
    CardMetadata, Effect, Event, Family, Folded, Host, IfIndex, InterfaceRef, LeaseBook, Operation,
    Plan, RawEvent, RecordKey, Settings,
};
use leaseroute_kernel::{Kernel, KernelError};
use rustix::system::uname;
use thiserror::Error;
use tracing::warn;

use crate::exit::Exit;
use crate::lock::{self, Lock, Try};
use crate::reconcile::{self, Failure, Report, exit_of};
use crate::snapshot;
use crate::state::{LastRun, StateError, StateFolder, Waiting, now};
use crate::{capture, logging};

/// How long a run waits for the lock by default. A DHCP client waits with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a run does at most that comes ahead of an address: the client sets the address
/// only after it, and the event waits in the inbox.
const PATIENCE_AHEAD: Duration = Duration::from_secs(1);

/// How often one holder looks into the inbox again before it leaves the rest to those who
/// wait.
const LOOKS: u32 = 16;

/// Why a run could not do its work.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The kernel could not be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Another run held the lock for too long. The event waits in the inbox, when there is
    /// one.
    #[error("another run held the lock for more than {} s; the next event completes this one", .0.as_secs())]
    Busy(Duration),
    /// No interface has the name.
    #[error("no such interface: {}", leaseroute_core::Quoted(.0.as_str()))]
    NoInterface(InterfaceRef),
    /// The lock cannot be had, and the work must not be done without it.
    #[error(transparent)]
    State(#[from] StateError),
}

impl EngineError {
    /// The exit code that says so.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Kernel(_) => Exit::Kernel,
            Self::Busy(_) => Exit::Busy,
            Self::NoInterface(_) => Exit::NoInterface,
            Self::State(_) => Exit::State,
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub enum Outcome {
    /// We did the work: one report for each family that events came for.
    Done {
        /// The reports.
        reports: Vec<Report>,
        /// Names in events that no interface has.
        unknown: Vec<InterfaceRef>,
        /// Trouble with the state folder. The kernel fits nevertheless.
        state_errors: Vec<StateError>,
        /// How it ended for the interface of the event that the run was for, if it was for
        /// one.
        own: Option<Exit>,
    },
    /// Another run did it along with its own, and this is how it ended for our event.
    TakenIn(Exit),
}

impl Outcome {
    /// The exit code that says so.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::TakenIn(exit) => *exit,
            Self::Done {
                reports,
                unknown,
                state_errors,
                own,
            } => {
                let failure = |exit: &Exit| *exit != Exit::Done;
                let failed = match own {
                    // What fails on other interfaces is theirs.
                    Some(own) => Some(*own).filter(failure),
                    None => reports.iter().map(Report::exit).find(failure),
                };
                let missing = (own.is_none() && !unknown.is_empty()).then_some(Exit::NoInterface);
                let forgotten = (!state_errors.is_empty()).then_some(Exit::State);
                failed.or(missing).or(forgotten).unwrap_or(Exit::Done)
            }
        }
    }
}

/// What a removal did.
#[derive(Debug)]
pub struct Removal {
    /// What was removed, one plan for each family.
    pub done: Vec<Plan>,
    /// What could not be removed.
    pub failures: Vec<Failure>,
    /// Leases that could not be forgotten.
    pub state_errors: Vec<StateError>,
}

impl Removal {
    /// The exit code that says so.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match exit_of(&self.failures) {
            Exit::Done if !self.state_errors.is_empty() => Exit::State,
            exit => exit,
        }
    }
}

/// What runs need: a kernel, settings, a state folder.
#[derive(Debug)]
pub struct Engine<K> {
    kernel: K,
    settings: Settings,
    state: StateFolder,
    patience: Duration,
}

/// What a run is for.
pub struct Task<'a> {
    /// Events to take in.
    pub events: Vec<(Event, RawEvent)>,
    /// Families to reconcile besides those of events.
    pub families: BTreeSet<Family>,
    /// What a metadata service was found to say.
    pub said: Vec<CardMetadata>,
    /// Which changes to leave undone for now.
    pub spares: &'a dyn Fn(&Operation) -> bool,
}

/// Whose turn it is.
#[derive(Debug)]
pub enum Turn {
    /// Ours: nobody works until this is dropped or used.
    Ours(Held),
    /// Another run's, which can be waited for.
    Theirs(Waiter),
}

/// The right to work; without a lock when the state folder gives none.
#[derive(Debug)]
pub struct Held(Result<Lock, StateError>);

/// Waits for the lock.
#[derive(Debug)]
pub struct Waiter(File);

impl Waiter {
    /// Blocks until the other run has ended.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn wait(self) -> io::Result<Held> {
        lock::wait_for_ever(self.0).map(|lock| Held(Ok(lock)))
    }
}

/// What a run was asked to do.
struct Asked<'a> {
    events: Vec<Waiting>,
    families: BTreeSet<Family>,
    said: Vec<CardMetadata>,
    spares: &'a dyn Fn(&Operation) -> bool,
}

impl Asked<'_> {
    /// What a hook or a command asks for: at most one event, and nothing is left undone.
    fn new(event: Option<Waiting>, families: &[Family]) -> Self {
        Self {
            events: event.into_iter().collect(),
            families: families.iter().copied().collect(),
            said: Vec::new(),
            spares: ALL,
        }
    }
}

/// What is done within a look.
struct Look<'a> {
    events: Vec<(Option<PathBuf>, Waiting)>,
    families: BTreeSet<Family>,
    said: Vec<CardMetadata>,
    spares: &'a dyn Fn(&Operation) -> bool,
}

/// A hook and a command leave nothing undone.
const ALL: &dyn Fn(&Operation) -> bool = &|_| false;

/// What one holder of the lock has done so far.
#[derive(Default)]
struct Work {
    reports: Vec<Report>,
    unknown: Vec<InterfaceRef>,
    state_errors: Vec<StateError>,
    own: Option<Exit>,
}

impl<K: Kernel> Engine<K> {
    /// Puts the parts together. Nothing is read yet.
    pub fn new(kernel: K, settings: Settings, state: StateFolder) -> Self {
        Self {
            kernel,
            settings: possible(settings),
            state,
            patience: PATIENCE,
        }
    }

    /// The same, with another limit on the wait for the lock.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Works by other settings from now on.
    pub fn reconfigure(&mut self, settings: Settings) {
        self.settings = possible(settings);
    }

    /// The kernel.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The state folder.
    pub fn state(&self) -> &StateFolder {
        &self.state
    }

    /// Takes one event in and makes the kernel fit.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be read, or the lock stayed taken.
    pub fn take(&self, event: Event, raw: &RawEvent) -> Result<Outcome, EngineError> {
        let raw = capture::worth_keeping(raw);
        let patience = if event.ahead {
            self.patience.min(PATIENCE_AHEAD)
        } else {
            self.patience
        };
        let waiting = Waiting { event, raw };
        let file = match self.state.try_lock() {
            Ok(Try::Held(lock)) => return self.hold(lock, Some(waiting), &[]),
            Ok(Try::Busy(file)) => file,
            // Without the folder the event in hand and the kernel are enough.
            Err(error) => return self.unlocked(error, Some(waiting), &[]),
        };
        let posted = self.state.post(&waiting);
        match (self.state.wait(file, patience), posted) {
            (Ok(Some(lock)), Ok(path)) => match self.state.take_answer(&path) {
                Some(exit) => Ok(Outcome::TakenIn(exit)),
                None => self.hold(lock, None, &[]),
            },
            (Ok(Some(lock)), Err(_)) => self.hold(lock, Some(waiting), &[]),
            (Ok(None), _) => Err(EngineError::Busy(patience)),
            (Err(error), _) => self.unlocked(error, Some(waiting), &[]),
        }
    }

    /// Makes the kernel fit what is known, in both families.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be read, or the lock stayed taken.
    pub fn apply(&self) -> Result<Outcome, EngineError> {
        match self.lock() {
            Ok(lock) => self.hold(lock, None, &Family::BOTH),
            Err(EngineError::State(error)) => self.unlocked(error, None, &Family::BOTH),
            Err(error) => Err(error),
        }
    }

    fn lock(&self) -> Result<Lock, EngineError> {
        match self.state.try_lock()? {
            Try::Held(lock) => Ok(lock),
            Try::Busy(file) => self
                .state
                .wait(file, self.patience)?
                .ok_or(EngineError::Busy(self.patience)),
        }
    }

    /// Tries for the lock without waiting.
    #[must_use]
    pub fn turn(&self) -> Turn {
        match self.state.try_lock() {
            Ok(Try::Held(lock)) => Turn::Ours(Held(Ok(lock))),
            Ok(Try::Busy(file)) => Turn::Theirs(Waiter(file)),
            Err(error) => Turn::Ours(Held(Err(error))),
        }
    }

    /// Does a task, and along with it what others wait for.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be read. Events are then left in the inbox.
    pub fn work(&self, held: Held, task: Task<'_>) -> Result<Outcome, EngineError> {
        let keep = |(event, raw): (Event, RawEvent)| Waiting {
            raw: capture::worth_keeping(&raw),
            event,
        };
        let asked = Asked {
            events: task.events.into_iter().map(keep).collect(),
            families: task.families,
            said: task.said,
            spares: task.spares,
        };
        match held.0 {
            Ok(lock) => self.work_locked(lock, asked),
            Err(error) => self.work_unlocked(error, asked),
        }
    }

    /// Takes in what a metadata service was found to say of cards, and makes the kernel fit
    /// when that is news.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be read, or the lock stayed taken.
    pub fn learn(&self, said: Vec<CardMetadata>) -> Result<Outcome, EngineError> {
        let asked = Asked {
            said,
            ..Asked::new(None, &[])
        };
        match self.lock() {
            Ok(lock) => self.work_locked(lock, asked),
            Err(EngineError::State(error)) => self.work_unlocked(error, asked),
            Err(error) => Err(error),
        }
    }

    fn unlocked(
        &self,
        error: StateError,
        own: Option<Waiting>,
        families: &[Family],
    ) -> Result<Outcome, EngineError> {
        self.work_unlocked(error, Asked::new(own, families))
    }

    fn hold(
        &self,
        lock: Lock,
        own: Option<Waiting>,
        families: &[Family],
    ) -> Result<Outcome, EngineError> {
        self.work_locked(lock, Asked::new(own, families))
    }

    /// Does the work without a lock, since the state folder gives none.
    fn work_unlocked(&self, error: StateError, asked: Asked<'_>) -> Result<Outcome, EngineError> {
        let mut work = Work::default();
        work.state_errors.push(error);
        let (book, _) = self.state.read_book();
        let events = asked.events.into_iter().map(|waiting| (None, waiting));
        let look = Look {
            events: events.collect(),
            families: asked.families,
            said: asked.said,
            spares: asked.spares,
        };
        self.look(&mut work, book, look)?;
        Ok(work.into())
    }

    /// Does the work of everybody as long as there is any, then frees the lock.
    fn work_locked(&self, lock: Lock, asked: Asked<'_>) -> Result<Outcome, EngineError> {
        let mut work = Work::default();
        let Asked {
            events: mut own,
            mut families,
            mut said,
            spares,
        } = asked;
        for _ in 0..LOOKS {
            let (posted, errors) = self.state.inbox();
            self.discard(&mut work, errors);
            let posted = posted
                .into_iter()
                .map(|(path, waiting)| (Some(path), waiting));
            let mut events: Vec<_> = posted.collect();
            // What waits came earlier than what found the lock free.
            let last = std::mem::take(&mut own);
            events.extend(last.iter().cloned().map(|waiting| (None, waiting)));
            if events.is_empty() && families.is_empty() && said.is_empty() {
                break;
            }
            let (book, errors) = self.state.read_book();
            self.discard(&mut work, errors);
            let look = Look {
                events,
                families: std::mem::take(&mut families),
                said: std::mem::take(&mut said),
                spares,
            };
            if let Err(error) = self.look(&mut work, book, look) {
                // The next run finds our events beside those that wait.
                for waiting in &last {
                    self.state.post(waiting)?;
                }
                return Err(error);
            }
        }
        drop(lock);
        Ok(work.into())
    }

    /// Notes what could not be read, and removes what never will be: it is reported once.
    fn discard(&self, work: &mut Work, errors: Vec<StateError>) {
        for error in errors {
            if let Some(path) = error.damaged() {
                work.note(self.state.remove(path));
            }
            work.state_errors.push(error);
        }
    }

    /// Writes a record. One that cannot be replaced must not be taken for true later, so it
    /// goes: its interface's lease is unknown then.
    fn remember(&self, work: &mut Work, book: &LeaseBook, key: RecordKey) {
        let written = book
            .get(key.0, key.1)
            .map(|record| self.state.write_record(record));
        if let Some(Err(error)) = written {
            work.state_errors.push(error);
            work.note(self.state.remove_record(key));
        }
    }

    /// Folds events into the book and reconciles the families that they concern.
    fn look(
        &self,
        work: &mut Work,
        mut book: LeaseBook,
        look: Look<'_>,
    ) -> Result<(), EngineError> {
        let Look {
            events,
            mut families,
            said,
            spares,
        } = look;
        let links = snapshot::links(&self.kernel, &self.settings)?;
        let host = Host {
            links,
            ..Host::default()
        };
        let (leases, metadata) = book.retain_present(&host);
        for key in leases {
            work.note(self.state.remove_record(key));
        }
        for key in metadata {
            work.note(self.state.remove_said(key));
        }
        for key in book.expire(now()) {
            families.insert(key.1);
            self.remember(work, &book, key);
        }
        for said in said {
            // What was not applied when it was news is made good.
            families.insert(said.family);
            let key = (said.index, said.family);
            if book.learn(said, &host)
                && let Some(known) = book
                    .metadata()
                    .find(|known| (known.index, known.family) == key)
            {
                logging::learnt(known);
                work.note(self.state.write_said(known));
            }
        }
        let mut touched = BTreeSet::new();
        let mut unknown = Vec::new();
        let mut waited = Vec::new();
        for (path, Waiting { event, raw }) in events {
            let mut answer = Answer::default();
            match book.fold(&event, Some(&raw), &host, now()) {
                Folded::TakenIn(effects) => {
                    for (key, effect) in effects {
                        logging::folded(&event, key.1, effect);
                        families.insert(key.1);
                        touched.insert(key.0);
                        answer.open.insert(key.1);
                        answer.of = Some(key.0);
                        if effect != Effect::None {
                            self.remember(work, &book, key);
                        }
                    }
                }
                Folded::NoSuchInterface(interface) => {
                    // A card that was taken out leaves rules behind.
                    families.extend(event.families());
                    answer.open.extend(event.families());
                    logging::no_such_interface(&interface, &event);
                    if event.brings_lease() {
                        answer.exit = Exit::NoInterface;
                        unknown.push(interface);
                    }
                }
            }
            waited.push((path, answer));
        }

        for family in families {
            let none = BTreeSet::new();
            let links = host.links.clone();
            let settings = &self.settings;
            let fresh = snapshot::host(&self.kernel, family, links, &book, settings, &none)?;
            let report =
                reconcile::reconcile(&self.kernel, family, fresh, &book, settings, spares)?;
            logging::report(&report, &touched);
            let somebody_waits = waited.iter().any(|(path, _)| path.is_some());
            if somebody_waits || !report.is_unchanged() {
                work.note(self.state.write_last(family, last_run(&report, &unknown)));
            }
            for (_, answer) in &mut waited {
                answer.take_in(&report);
            }
            // Those who wait look whether their file is gone: that comes last.
            for (path, answer) in waited.extract_if(.., |(_, answer)| answer.open.is_empty()) {
                self.answer(work, path, answer.exit);
            }
            work.reports.push(report);
        }
        for (path, answer) in waited {
            self.answer(work, path, answer.exit);
        }
        work.unknown.extend(unknown);
        Ok(())
    }

    /// Tells how it ended for an event: whoever waits for it, or ourselves.
    fn answer(&self, work: &mut Work, posted: Option<PathBuf>, exit: Exit) {
        match posted {
            Some(path) => work.note(self.state.answer(&path, exit)),
            None => work.own = work.own.max(Some(exit)),
        }
    }

    /// Takes our objects away, of one interface or all of them, and forgets the leases and
    /// the events that wait.
    ///
    /// # Errors
    ///
    /// When there is no such interface, the kernel cannot be read, or the lock stayed
    /// taken.
    pub fn remove(&self, only: Option<&InterfaceRef>) -> Result<Removal, EngineError> {
        // Without a folder there are no leases to forget, and nobody to wait for.
        let _lock = match self.lock() {
            Ok(lock) => Some(lock),
            Err(EngineError::State(_)) => None,
            Err(error) => return Err(error),
        };
        let (book, _) = self.state.read_book();
        let host = snapshot::everything(&self.kernel, &book, &self.settings)?;
        let link = match only {
            None => None,
            Some(name) => {
                let missing = || EngineError::NoInterface(name.clone());
                Some(host.resolve(name).ok_or_else(missing)?)
            }
        };
        let mut removal = Removal {
            done: Vec::new(),
            failures: Vec::new(),
            state_errors: Vec::new(),
        };
        for family in Family::BOTH {
            let plan = leaseroute_core::removal(family, &host, &self.settings, link);
            let mut done = Plan {
                steps: Vec::new(),
                notes: Vec::new(),
                protocol: plan.protocol,
            };
            let failures = reconcile::apply(&self.kernel, plan.steps, &mut done);
            removal.failures.extend(failures);
            removal.done.push(done);
        }
        let is_meant = |index: Option<IfIndex>| link.is_none_or(|l| index == Some(l.index));
        let keys = book.records().map(|record| (record.index, record.family));
        for key in keys.filter(|key| is_meant(Some(key.0))) {
            removal
                .state_errors
                .extend(self.state.remove_record(key).err());
        }
        let keys = book.metadata().map(|said| (said.index, said.family));
        for key in keys.filter(|key| is_meant(Some(key.0))) {
            removal
                .state_errors
                .extend(self.state.remove_said(key).err());
        }
        for (path, Waiting { event, .. }) in self.state.inbox().0 {
            if is_meant(host.resolve(&event.interface).map(|link| link.index)) {
                let answered = self.state.answer(&path, Exit::Done);
                removal.state_errors.extend(answered.err());
            }
        }
        Ok(removal)
    }
}

/// The same settings without what the kernel cannot do: before Linux 5.18 it forgets who put
/// an address on a card (`IFA_PROTO`), so that ours could never be taken off again.
fn possible(mut settings: Settings) -> Settings {
    if settings.metadata.assign_addresses {
        let release = uname().release().to_string_lossy().into_owned();
        let mut numbers = release
            .split(['.', '-'])
            .map_while(|part| part.parse().ok());
        let version: Option<(u32, u32)> = numbers.next().zip(numbers.next());
        if version.is_some_and(|version| version < (5, 18)) {
            warn!("assign_addresses needs Linux 5.18 or later: no address is put on a card");
            settings.metadata.assign_addresses = false;
        }
    }
    settings
}

/// What an event that waited will be told.
struct Answer {
    /// Its interface.
    of: Option<IfIndex>,
    /// The families that are still to be reconciled for it.
    open: BTreeSet<Family>,
    exit: Exit,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            of: None,
            open: BTreeSet::new(),
            exit: Exit::Done,
        }
    }
}

impl Answer {
    fn take_in(&mut self, report: &Report) {
        if let (true, Some(index)) = (self.open.remove(&report.family), self.of) {
            self.exit = self.exit.max(report.exit_for(index));
        }
    }
}

impl Work {
    fn note(&mut self, result: Result<(), StateError>) {
        self.state_errors.extend(result.err());
    }
}

impl From<Work> for Outcome {
    fn from(work: Work) -> Self {
        Self::Done {
            reports: work.reports,
            unknown: work.unknown,
            state_errors: work.state_errors,
            own: work.own,
        }
    }
}

fn last_run(report: &Report, unknown: &[InterfaceRef]) -> LastRun {
    let exit = match report.exit() {
        Exit::Done if !unknown.is_empty() => Exit::NoInterface,
        exit => exit,
    };
    LastRun {
        changes: report.done.steps.len(),
        failures: report.failure_lines().collect(),
        unknown_interfaces: unknown.iter().map(ToString::to_string).collect(),
        exit: exit.code(),
        ..LastRun::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_how_it_ended_for_its_own_interface() {
        let outcome = |own| Outcome::Done {
            reports: Vec::new(),
            unknown: vec!["eth9".parse().unwrap()],
            state_errors: Vec::new(),
            own,
        };
        assert_eq!(outcome(Some(Exit::Done)).exit(), Exit::Done);
        assert_eq!(outcome(Some(Exit::Kernel)).exit(), Exit::Kernel);
        assert_eq!(outcome(None).exit(), Exit::NoInterface);
    }
}
