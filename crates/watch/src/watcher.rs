//! The watcher: one process that waits, and looks when something has happened.
//!
//! A look is the same run as a hook's, under the same lock, so a hook may run beside it at
//! any time. What the watcher remembers serves only to tell what is news; what is right is
//! found out afresh in each look.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use leaseroute_config::Loaded;
use leaseroute_core::{Family, IfIndex, LeaseBook, Settings};
use leaseroute_kernel::{Announced, Announcement, Announcements, KernelError, Netlink};
use leaseroute_runtime::adopt::Stored;
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::logging;
use leaseroute_runtime::state::now as time_of_day;
use leaseroute_runtime::{Engine, Held, Outcome, Paths, Report, StateFolder, Task, Turn};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use crate::expiries::Expiries;
use crate::fights::{Fights, Object};
use crate::folders::{Change, Folders};
use crate::health::{self, Cause, Fight, Health};
use crate::interest::{self, Seen};
use crate::leases::{Questions, all_files};
use crate::metadata::{News, Teller};
use crate::pace::Pace;
use crate::programs::{Requester, requester};
use crate::service::Service;
use crate::start::warn_of;

/// How long a leased address may be on a card before we look for who leased it: a client's
/// hook knows best, and runs after its client has set the address.
const UNTOLD: Duration = Duration::from_secs(2);

/// How long after a failure we look again if nothing happens meanwhile; twice as long each
/// time,
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// up to this.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// How long after a hook has told of a lease we look whether it has also done its work: it
/// may have been killed in between.
const AFTER_HOOK: Duration = Duration::from_secs(1);

/// How long another run may hold the lock before we say so.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long passes at least between two writings of the health file.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

/// Why the watcher cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("the state folder was removed")]
    Displaced,
    #[error("not permitted")]
    NotPermitted,
}

/// What calls for a look and has not been looked at.
#[derive(Debug, Default)]
struct Pending {
    causes: BTreeSet<Cause>,
    families: BTreeSet<Family>,
    questions: Questions,
    /// Objects that another program removed, and who did.
    removed: BTreeMap<Object, Option<String>>,
}

/// What a failure calls for.
#[derive(Debug, Default)]
struct Retry {
    /// The families that are not as they should be.
    families: BTreeSet<Family>,
    at: Option<Instant>,
    waited: Option<Duration>,
}

pub(crate) struct Watcher {
    paths: Paths,
    engine: Engine<Netlink>,
    announcements: Announcements,
    stored: Stored,
    folders: Option<Folders>,
    /// When to follow folders that could not be followed.
    folders_at: Option<Instant>,
    service: Service,
    signals: Signals,
    /// Held as long as we live.
    lock: Option<File>,

    seen: Seen,
    book: LeaseBook,
    /// What each family's last look wanted.
    wanted: BTreeMap<Family, BTreeSet<Object>>,
    pending: Pending,
    pace: Pace,
    /// Another run has the lock.
    waits: Option<JoinHandle<io::Result<Held>>>,
    /// When to say so.
    says_at: Option<Instant>,
    fights: Fights,
    /// When pauses in fights were looked at last.
    fights_seen: Instant,
    expiries: Expiries,
    teller: Teller,
    /// When to look for the leases of addresses that nobody told of, and for which that was
    /// done.
    untold_at: Option<Instant>,
    sought: BTreeSet<(IfIndex, IpAddr)>,
    /// When to look after a hook.
    hook_at: Option<Instant>,
    retry: Retry,
    /// Whether a look has been made whose outcome was right.
    is_ready: bool,
    /// Whether the last look was not permitted to change anything.
    is_refused: bool,
    /// What was wrong with the state folder at the last look, and with the health file.
    state_errors: BTreeSet<String>,
    health_error: Option<String>,

    health: Health,
    /// When the health file was written last, and whether it is not as it should be.
    health_written: Option<Instant>,
    health_is_old: bool,
    alive_at: Option<Instant>,
}

struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// What woke the watcher.
enum Woken {
    Announced(Announcement),
    Files(Vec<Change>),
    Turn(Held),
    Time,
    Reload,
    End,
}

impl Watcher {
    /// Begins to listen, and looks for the first time.
    pub(crate) fn start(
        paths: Paths,
        loaded: Loaded,
        state: StateFolder,
        lock: Option<File>,
    ) -> Result<Self, WatchError> {
        let signals = Signals {
            reload: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        let announcements = listen(loaded.settings.clone())?;
        let service = Service::from_environment();
        let now = Instant::now();
        let mut watcher = Self {
            paths,
            engine: Engine::new(Netlink::open()?, loaded.settings, state),
            announcements,
            stored: Stored::new(Path::new("/")),
            folders: None,
            folders_at: None,
            signals,
            lock,
            seen: Seen::default(),
            book: LeaseBook::default(),
            wanted: BTreeMap::new(),
            pending: Pending::default(),
            pace: Pace::default(),
            waits: None,
            says_at: None,
            fights: Fights::default(),
            fights_seen: now,
            expiries: Expiries::default(),
            teller: Teller::default(),
            untold_at: None,
            sought: BTreeSet::new(),
            hook_at: None,
            retry: Retry::default(),
            is_ready: false,
            is_refused: false,
            state_errors: BTreeSet::new(),
            health_error: None,
            health: Health {
                pid: process::id(),
                started: time_of_day(),
                ..Health::default()
            },
            health_written: None,
            health_is_old: true,
            alive_at: service.interval().map(|interval| now + interval),
            service,
        };
        watcher.take_in_book();
        watcher.follow_folders(now);
        watcher.pending.questions.untold = true;
        watcher.everything(Cause::Start, now);
        watcher.turn();
        Ok(watcher)
    }

    /// Watches until it is told to end.
    pub(crate) async fn run(&mut self) -> Result<(), WatchError> {
        loop {
            self.do_what_is_due()?;
            match self.wake().await? {
                Woken::Announced(announcement) => self.hear(announcement),
                Woken::Files(changes) => self.read(changes),
                Woken::Turn(held) => self.look(held),
                Woken::Time => {}
                Woken::Reload => self.reload()?,
                Woken::End => break,
            }
        }
        self.service.stopping();
        self.health.stopped = Some(time_of_day());
        self.write_health(Instant::now());
        info!("the watcher ends; routes and rules stay");
        Ok(())
    }

    async fn wake(&mut self) -> Result<Woken, WatchError> {
        let due = self.next_due();
        let time = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        let files = async {
            match &mut self.folders {
                Some(folders) => folders.changed().await,
                None => pending().await,
            }
        };
        let turn = async {
            match &mut self.waits {
                Some(waits) => waits.await.map_err(io::Error::other).flatten(),
                None => pending().await,
            }
        };
        tokio::select! {
            announcement = self.announcements.next() => Ok(Woken::Announced(announcement?)),
            changes = files => match changes {
                Ok(changes) => Ok(Woken::Files(changes)),
                Err(error) => {
                    self.lose_folders(&error, Instant::now());
                    Ok(Woken::Time)
                }
            },
            held = turn => {
                self.waits = None;
                self.says_at = None;
                Ok(Woken::Turn(held?))
            }
            () = time => Ok(Woken::Time),
            _ = self.signals.reload.recv() => Ok(Woken::Reload),
            _ = self.signals.terminate.recv() => Ok(Woken::End),
            _ = self.signals.interrupt.recv() => Ok(Woken::End),
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let health = self.health_written.map(|written| written + HEALTH_INTERVAL);
        [
            self.pace.due().filter(|_| self.waits.is_none()),
            self.says_at,
            self.fights.next(now),
            self.expiries.next(),
            self.untold_at,
            self.hook_at,
            self.folders_at,
            self.retry.at,
            health.filter(|_| self.health_is_old),
            self.alive_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn do_what_is_due(&mut self) -> Result<(), WatchError> {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.alive_at) {
            self.service.alive();
            self.alive_at = self.service.interval().map(|interval| now + interval);
        }
        if is_due(self.says_at) {
            self.says_at = None;
            warn!("another run has held the lock for {} s", PATIENCE.as_secs());
        }
        if is_due(self.folders_at) {
            self.follow_folders(now);
        }
        self.ask_what_is_due(now);
        if self.fights.has_paused_until(self.fights_seen, now) {
            self.everything(Cause::Removed, now);
        }
        self.fights_seen = now;
        if is_due(self.fights.next(now)) {
            self.settle(now);
        }
        if is_due(self.retry.at) {
            self.retry.at = None;
            self.pending.families.extend(&self.retry.families);
            self.pace.notice(now);
        }
        if is_due(self.pace.due()) && self.waits.is_none() {
            self.turn();
        }
        if self.is_refused && !self.is_ready {
            return Err(WatchError::NotPermitted);
        }
        let last = self.health_written;
        if self.health_is_old && last.is_none_or(|last| last + HEALTH_INTERVAL <= now) {
            self.write_health(now);
        }
        let is_doubtful = !self.state_errors.is_empty() || self.health_error.is_some();
        if is_doubtful && let Some(lock) = &self.lock {
            // What hooks write from now on, we may not.
            let in_place = health::is_in_place(lock, self.engine.state());
            return in_place.then_some(()).ok_or(WatchError::Displaced);
        }
        Ok(())
    }

    /// Turns what time has brought about leases into questions.
    fn ask_what_is_due(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.expiries.next()) {
            let over = self.expiries.over(now);
            let families: Vec<Family> = over.iter().map(|over| over.key.1).collect();
            self.pending.questions.over.extend(over);
            self.notice(Cause::Expired, &families, now);
        }
        if is_due(self.untold_at) {
            self.untold_at = None;
            self.pending.questions.untold = true;
            self.notice(Cause::Lease, &[], now);
        }
        if is_due(self.hook_at) {
            self.hook_at = None;
            self.everything(Cause::Lease, now);
        }
    }

    // ---- What happens ----

    fn notice(&mut self, cause: Cause, families: &[Family], now: Instant) {
        self.pending.causes.insert(cause);
        self.pending.families.extend(families);
        self.pace.notice(now);
    }

    fn everything(&mut self, cause: Cause, now: Instant) {
        self.notice(cause, &Family::BOTH, now);
    }

    fn hear(&mut self, announcement: Announcement) {
        let Announcement { what, by } = announcement;
        let now = Instant::now();
        let Some(concern) = self.seen.concern(&what, self.engine.settings()) else {
            self.hear_of_ours(&what, by, now);
            return;
        };
        let mut cause = concern.cause;
        if cause == Cause::Overrun {
            self.health.overruns += 1;
        }
        if let Some(gone) = interest::gone_object(&what, self.engine.settings()) {
            cause = match requester(by, self.own_port()) {
                Requester::Ourselves => return,
                // The device has gone or was set down.
                Requester::Kernel => Cause::Link,
                Requester::Other(by) => {
                    let mut wanted = self.wanted.values().flatten();
                    if let Some(object) = wanted.find(|object| object.is_met_by(&gone)) {
                        self.pending.removed.insert(object.clone(), by);
                    }
                    Cause::Removed
                }
            };
        }
        self.notice(cause, concern.families, now);
    }

    /// What carries our tag and came from another program is a hook's work, or nobody's.
    fn hear_of_ours(&mut self, what: &Announced, by: Option<u32>, now: Instant) {
        let Some((family, object)) = interest::own_object(what, self.engine.settings()) else {
            return;
        };
        let wanted = self.wanted.get(&family);
        let is_wanted = wanted.is_some_and(|set| set.iter().any(|o| o.is_met_by(&object)));
        if !is_wanted && requester(by, self.own_port()) != Requester::Ourselves {
            self.notice(Cause::Lease, &[family], now);
        }
    }

    /// The port that our own changes are announced with.
    fn own_port(&self) -> Option<u32> {
        self.engine.kernel().port().ok()
    }

    /// Folders begin to be followed; what is in them may be news.
    fn follow_folders(&mut self, now: Instant) {
        let state = self.engine.state();
        let ours = [state.leases(), state.inbox_folder()];
        let of_clients = self.stored.folders();
        match Folders::follow(of_clients.iter().cloned().chain(ours)) {
            Ok(folders) => {
                self.folders = Some(folders);
                self.folders_at = None;
                let changes = of_clients
                    .into_iter()
                    .map(|folder| Change { folder, name: None });
                self.read(changes.collect());
            }
            Err(error) => self.lose_folders(&error, now),
        }
    }

    fn lose_folders(&mut self, error: &io::Error, now: Instant) {
        warn!(
            "lease files are not followed for {} s: {error}",
            LONGEST_RETRY.as_secs()
        );
        self.folders = None;
        self.folders_at = Some(now + LONGEST_RETRY);
    }

    /// Files have changed: those of clients call for a look, our own may.
    fn read(&mut self, changes: Vec<Change>) {
        let now = Instant::now();
        let (of_ours, inbox) = (
            self.engine.state().leases(),
            self.engine.state().inbox_folder(),
        );
        let mut files: BTreeSet<PathBuf> = BTreeSet::new();
        for Change { folder, name } in changes {
            if folder == inbox {
                // Other files are on their way to where they belong.
                if name.is_some_and(|name| StateFolder::is_event(&name)) {
                    self.hook_at = self.hook_at.or(Some(now + AFTER_HOOK));
                }
            } else if folder == of_ours {
                if self.take_in_book() {
                    self.hook_at = self.hook_at.or(Some(now + AFTER_HOOK));
                }
            } else {
                match name {
                    Some(name) => _ = files.insert(folder.join(name)),
                    None => files.extend(all_files(&folder, &self.book)),
                }
            }
        }
        files.retain(|file| self.stored.concerns(file));
        if !files.is_empty() {
            self.pending.questions.files.extend(files);
            self.notice(Cause::Lease, &[], now);
        }
    }

    fn settle(&mut self, now: Instant) {
        let wanted = &self.wanted;
        let is_wanted = |object: &Object| wanted.values().any(|set| set.contains(object));
        let over = self.fights.settle(now, is_wanted);
        self.health_is_old |= !over.is_empty();
        let protocol = self.engine.settings().protocol;
        let over = over.iter().map(|object| object.command(protocol));
        logging::some_of(over, "objects", |object| {
            info!("nobody removes it any more: {object}");
        });
    }

    fn reload(&mut self) -> Result<(), WatchError> {
        self.service.reloading();
        match leaseroute_config::load(&self.paths.configuration) {
            Ok(loaded) => {
                warn_of(&loaded);
                self.announcements = listen(loaded.settings.clone())?;
                self.engine.reconfigure(loaded.settings);
                self.teller = Teller::default();
                info!("the configuration was read again");
                self.everything(Cause::Configuration, Instant::now());
            }
            Err(error) => {
                error!("failed to {}", with_causes(&error));
                error!("the configuration stays as it was");
            }
        }
        if self.is_ready {
            self.service.ready();
        }
        Ok(())
    }

    // ---- What is done ----

    /// Looks, or waits until another run has ended.
    fn turn(&mut self) {
        match self.engine.turn() {
            Turn::Ours(held) => self.look(held),
            Turn::Theirs(waiter) => {
                self.waits = Some(spawn_blocking(|| waiter.wait()));
                self.says_at = Some(Instant::now() + PATIENCE);
            }
        }
    }

    fn look(&mut self, held: Held) {
        let began = Instant::now();
        let looked_at = std::mem::take(&mut self.pending);
        let done = self.work(held, &looked_at, began);
        let now = Instant::now();
        self.pace.looked(began, now);
        self.health.looks += 1;
        if !looked_at.causes.is_empty() {
            self.health.last_event = Some(time_of_day());
            self.health.last_causes = looked_at.causes.iter().copied().collect();
        }
        self.health_is_old = true;
        match done {
            Ok(Outcome::Done {
                reports,
                state_errors,
                ..
            }) => {
                let mut exits = reports.iter().map(Report::exit);
                self.is_refused = exits.any(|exit| exit == Exit::NotPermitted);
                self.count_heals(&reports, &looked_at, now);
                say(&reports, &looked_at);
                self.take_in(&reports, looked_at.questions.untold, now);
                let errors = state_errors.iter().map(|error| with_causes(error));
                self.complain(errors.collect());
                if !self.is_ready && !self.is_refused {
                    self.is_ready = true;
                    info!("watching");
                    self.service.ready();
                }
            }
            Ok(Outcome::TakenIn(_)) => {}
            Err(error) => {
                error!("{error}");
                self.retry.families.extend(&looked_at.families);
                self.pending.causes.extend(looked_at.causes);
                self.pending.families.extend(looked_at.families);
                self.pending.questions.append(looked_at.questions);
                self.pending.removed.extend(looked_at.removed);
                self.try_again(now);
            }
        }
    }

    /// The look itself, with what leases there are to be found out before it.
    fn work(&self, held: Held, looked_at: &Pending, began: Instant) -> Result<Outcome, String> {
        let events = looked_at
            .questions
            .answers(&self.stored, &self.engine)
            .map_err(|error| with_causes(&error))?;
        let task = Task {
            events,
            families: looked_at.families.clone(),
            said: Vec::new(),
            spares: &|operation| self.fights.spares(operation, began),
        };
        let done = self.engine.work(held, task);
        done.map_err(|error| with_causes(&error))
    }

    /// Remembers what a look has seen and wanted.
    fn take_in(&mut self, reports: &[Report], has_sought: bool, now: Instant) {
        for report in reports {
            self.seen.update(report);
            let routes = report.desired.routes.iter();
            let routes = routes.map(|(route, _)| Object::Route(route.clone()));
            let rules = report.desired.rules.iter();
            let rules = rules.map(|(rule, _)| Object::Rule(rule.clone()));
            let addresses = report.desired.addresses.iter();
            let addresses = addresses.map(|(address, _)| Object::Address(address.clone()));
            self.wanted.insert(
                report.family,
                routes.chain(rules).chain(addresses).collect(),
            );
            if report.failures.is_empty() {
                self.retry.families.remove(&report.family);
            } else {
                self.retry.families.insert(report.family);
            }
        }
        self.take_in_book();
        self.tell_of_cards();
        let untold = self.seen.untold(&self.book);
        self.sought.retain(|address| untold.contains(address));
        if has_sought {
            self.sought = untold;
        } else if !untold.is_subset(&self.sought) && self.untold_at.is_none() {
            self.untold_at = Some(now + UNTOLD);
        }
        if self.retry.families.is_empty() {
            self.retry = Retry::default();
        } else {
            self.try_again(now);
        }
    }

    /// Tells whoever asks metadata services of cards with news.
    fn tell_of_cards(&mut self) {
        let uplinks = self.seen.uplinks();
        self.teller.retain(|index| uplinks.contains_key(&index));
        for link in uplinks.values() {
            let news = News::of(link, self.seen.addresses6(), &self.book);
            let (settings, state) = (self.engine.settings(), self.engine.state());
            self.teller.tell(link, news, settings, state);
        }
    }

    /// Takes in the records of leases, and says whether they are others than before.
    fn take_in_book(&mut self) -> bool {
        let (book, _) = self.engine.state().read_book();
        let is_news = book != self.book;
        self.book = book;
        self.seen.update_leased(&self.book);
        self.expiries.follow(&self.book, Instant::now());
        is_news
    }

    fn try_again(&mut self, now: Instant) {
        if self.retry.at.is_some() {
            return;
        }
        let wait = self.retry.waited.map_or(FIRST_RETRY, |waited| {
            waited.saturating_mul(2).min(LONGEST_RETRY)
        });
        self.retry.at = Some(now + wait);
        self.retry.waited = Some(wait);
    }

    /// Says what is wrong with the state folder, once.
    fn complain(&mut self, errors: BTreeSet<String>) {
        let new = errors.difference(&self.state_errors).cloned();
        logging::some_of(new, "files", |error| error!("{error}"));
        self.state_errors = errors;
    }

    /// Counts what was put back. What another program removed and we still want is a matter of
    /// peace.
    fn count_heals(&mut self, reports: &[Report], looked_at: &Pending, now: Instant) {
        let mut fights: Vec<(Object, Option<String>, Duration)> = Vec::new();
        for report in reports {
            let Some(wanted) = self.wanted.get(&report.family) else {
                continue;
            };
            let steps = report.done.steps.iter();
            let added = steps.filter_map(|step| Object::added_by(&step.operation));
            for object in added.filter(|object| wanted.contains(object)) {
                let removed = looked_at.removed.get(&object);
                let cause = match removed {
                    Some(_) => Cause::Removed,
                    None => looked_at.causes.first().copied().unwrap_or(Cause::Removed),
                };
                *self.health.heals.entry(cause).or_default() += 1;
                let Some(by) = removed else {
                    continue;
                };
                if let Some(pause) = self.fights.removed(object.clone(), by.clone(), now) {
                    fights.push((object, by.clone(), pause));
                }
            }
        }
        if let Some((object, by, pause)) = fights.first() {
            let who = by.as_deref().unwrap_or("a program that has ended already");
            let more = match fights.len() - 1 {
                0 => String::new(),
                more => format!(" ({more} more objects like this)"),
            };
            warn!(
                "{who} removes an object of ours again and again{more}; next time it is left so \
                for {} s: {}",
                pause.as_secs(),
                object.command(self.engine.settings().protocol),
            );
        }
    }

    fn write_health(&mut self, now: Instant) {
        let time = time_of_day();
        let protocol = self.engine.settings().protocol;
        let fights = self.fights.standing().map(|fight| Fight {
            object: fight.object.command(protocol),
            times: fight.times,
            last: time.saturating_sub((now - fight.last).as_secs()),
            by: fight.by,
            pause_until: if fight.until > now {
                time.saturating_add((fight.until - now).as_secs())
            } else {
                time.saturating_sub((now - fight.until).as_secs())
            },
        });
        self.health.fights = fights.collect();
        self.health_is_old = false;
        self.health_written = Some(now);
        let written = self.health.write(self.engine.state());
        let error = written.err().map(|error| with_causes(&error));
        if error != self.health_error
            && let Some(error) = &error
        {
            error!("{error}");
        }
        self.health_error = error;
    }
}

/// What a look changed and why, in one line.
fn say(reports: &[Report], looked_at: &Pending) {
    if reports.iter().all(|report| report.done.is_empty()) {
        return;
    }
    let by = looked_at.removed.values().flatten();
    let by: BTreeSet<&str> = by.map(String::as_str).collect();
    let by: Vec<&str> = by.into_iter().take(4).collect();
    let why = looked_at.causes.iter().map(|cause| match cause {
        Cause::Removed if !by.is_empty() => format!("removed by {}", by.join(", ")),
        cause => cause.to_string(),
    });
    let mut why: Vec<String> = why.collect();
    if why.is_empty() {
        why.push("tried again".to_owned());
    }
    info!("{}: {}", why.join(", "), logging::changes(reports));
}

/// Listens to what concerns us by these settings.
fn listen(settings: Settings) -> Result<Announcements, KernelError> {
    Announcements::open(move |key| interest::wants(key, &settings))
}
