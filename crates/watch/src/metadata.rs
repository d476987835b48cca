//! Asks the cloud's metadata service what else a card has, after its lease has been seen to.
//!
//! One process asks for all cards, so that they share the service's limits. It is a run of its
//! own: what it finds out it hands to the engine under the lock, as a hook hands in a lease,
//! and a hook never waits for it. [`Listener`] hears of lease events on a datagram socket;
//! where nobody holds one, the watcher has a thread of its own do the same.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use leaseroute_core::{
    CardMetadata, Endpoint, Family, Host, IfIndex, InterfaceRef, LeaseBook, Link, LinkAddress, Mac,
    MetadataSettings, ProviderChoice, Said, Settings, desired_state,
};
use leaseroute_kernel::{Kernel as _, KernelError, Netlink};
use leaseroute_metadata::{
    Asker, Card, Cards, ConfigDrive, End, Finding, Findings, Identity, Outcome, Provider, Sessions,
    all, by_name, detect,
};
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::state::now as time_of_day;
use leaseroute_runtime::{Engine, Outcome as Applied, StateFolder, snapshot, wake};
use rustix::stdio::stdin;
use tokio::net::UnixDatagram;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, warn};

/// How long a listener stays when nothing is left to ask: events come in groups.
const LINGER: Duration = Duration::from_secs(2);

/// For how long what was found out is not asked again because somebody else tells of the same.
const RECENT: Duration = Duration::from_secs(3);

/// The most words that wait to be read at one time.
const WORDS: usize = 64;

/// Which provider to ask, as the configuration and the machine say. `None`: nobody.
#[must_use]
pub fn provider(settings: &MetadataSettings, root: &Path) -> Option<&'static dyn Provider> {
    match settings.provider {
        ProviderChoice::None => None,
        ProviderChoice::Auto => detect(&Identity::read(root)),
        ProviderChoice::Named(name) => by_name(name),
    }
}

/// How a provider is asked, as the configuration says.
#[must_use]
pub fn asker(
    provider: &'static dyn Provider,
    settings: &MetadataSettings,
    state: &StateFolder,
    root: &Path,
) -> Asker {
    // A drive is as old as the machine: it counts only while the service has told nothing.
    let (book, _) = state.read_book();
    let is_new = book.metadata().next().is_none();
    let drive = if is_new && settings.endpoint.is_none() && provider.name() == "openstack" {
        ConfigDrive::find(root)
    } else {
        None
    };
    Asker::new(provider)
        .at(settings.endpoint)
        .deadline(Duration::from_secs(settings.deadline.into()))
        .or_drive(drive)
}

/// The cards of this host: facts come from the kernel and the lease book, findings go to the
/// engine.
struct HostCards {
    engine: Engine<Netlink>,
    provider: &'static str,
    /// The worst end of handing in what was found.
    worst: Cell<Exit>,
}

impl HostCards {
    fn new(engine: Engine<Netlink>, asker: &Asker) -> Self {
        let provider = asker.provider().name();
        Self {
            engine,
            provider,
            worst: Cell::new(Exit::Done),
        }
    }

    /// The host as far as cards are about it.
    fn survey(&self) -> Result<Host, KernelError> {
        let kernel = self.engine.kernel();
        let mut host = Host {
            links: snapshot::links(kernel, self.engine.settings())?,
            ..Host::default()
        };
        for family in Family::BOTH {
            host.addresses.extend(kernel.addresses(family)?);
        }
        Ok(host)
    }
}

impl Cards for HostCards {
    type Error = String;

    fn card(&self, index: IfIndex) -> Result<Option<Card>, String> {
        let host = self.survey().map_err(|error| with_causes(&error))?;
        let is_managed = |link: &Link| self.engine.settings().of(link).manage;
        if !host.links.get(&index).is_some_and(is_managed) {
            return Ok(None);
        }
        let (mut book, _) = self.engine.state().read_book();
        book.retain_present(&host);
        Ok(Card::of(index, &host, &book, self.engine.settings()))
    }

    fn tell(&self, card: &Card, findings: &Findings) -> bool {
        let said = Family::BOTH.into_iter().filter_map(|family| {
            let said = match findings.of(family) {
                Finding::Known(said) => self.without_endpoints(said.clone()),
                Finding::Absent => Said::default(),
                Finding::Unknown(why) => {
                    debug!("{}: {family}: {why}", card.name);
                    return None;
                }
            };
            Some(CardMetadata {
                index: card.index,
                name: card.name.clone(),
                mac: Some(card.mac),
                family,
                provider: self.provider.to_owned(),
                said,
                withdrawn: BTreeSet::new(),
                updated: time_of_day(),
            })
        });
        let said: Vec<_> = said.collect();
        if said.is_empty() {
            return true;
        }
        let (exit, is_taken) = match self.engine.learn(said) {
            Ok(outcome) => {
                if let Applied::Done { state_errors, .. } = &outcome {
                    for error in state_errors {
                        error!("{}", with_causes(error));
                    }
                }
                (outcome.exit(), true)
            }
            Err(error) => {
                error!("{}", with_causes(&error));
                (error.exit(), false)
            }
        };
        // What was not taken in is told again, and may be then.
        self.worst.set(exit);
        is_taken
    }
}

impl HostCards {
    /// Takes out the addresses at which services answer: on a card of this host they would
    /// answer nobody any more, and nothing could be asked that takes them away again.
    fn without_endpoints(&self, mut said: Said) -> Said {
        let own = self.engine.settings().metadata.endpoint;
        let of_clouds = all().iter().flat_map(|provider| provider.endpoints());
        let endpoints = of_clouds.copied().chain(own.map(Endpoint::address));
        let endpoints: BTreeSet<IpAddr> = endpoints.map(|endpoint| endpoint.ip()).collect();
        said.addresses
            .retain(|address| !endpoints.contains(address));
        said
    }
}

/// The cards that could have more than their lease tells: uplinks, and hardware that could be
/// one.
///
/// # Errors
///
/// When the kernel cannot be read.
pub fn cards(engine: &Engine<Netlink>) -> Result<Vec<IfIndex>, KernelError> {
    let (mut book, _) = engine.state().read_book();
    let settings = engine.settings();
    let host = snapshot::everything(engine.kernel(), &book, settings)?;
    book.retain_present(&host);
    let uplinks = Family::BOTH.map(|family| desired_state(family, &host, &book, settings).uplinks);
    let is_uplink = |link: &Link| {
        let mut uplinks = uplinks.iter().flatten();
        uplinks.any(|uplink| uplink.device.index == link.index)
    };
    let could_be = |link: &&Link| {
        let is_hardware = link.kind.is_none() && link.up && link.master.is_none();
        !link.loopback
            && link.mac.is_some()
            && settings.of(link).manage
            && (is_uplink(link) || is_hardware)
    };
    Ok(host
        .links
        .values()
        .filter(could_be)
        .map(|link| link.index)
        .collect())
}

/// What came of asking about some cards.
#[derive(Debug)]
pub struct Asked {
    /// Of those that were asked about to the end.
    pub outcomes: Vec<Outcome>,
    /// How many were not, since a signal came.
    pub unfinished: usize,
    /// How applying what was found ended the last time.
    pub applied: Exit,
}

/// Asks about some cards until all is found out or the time is up. SIGTERM and SIGINT end it.
///
/// # Errors
///
/// When no runtime or signal can be had.
pub fn ask(
    engine: Engine<Netlink>,
    asker: Asker,
    cards: impl IntoIterator<Item = IfIndex>,
) -> io::Result<Asked> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut ends = Ends::new()?;
        let host = Rc::new(HostCards::new(engine, &asker));
        let mut sessions = Sessions::new(Rc::new(asker), Rc::clone(&host));
        for card in cards {
            sessions.event(card);
        }
        let mut outcomes = Vec::new();
        let mut unfinished = sessions.len();
        loop {
            tokio::select! {
                outcome = sessions.next() => match outcome {
                    Some(outcome) => outcomes.push(outcome),
                    None => break,
                },
                () = ends.come() => break,
            }
            unfinished = sessions.len();
        }
        Ok(Asked {
            outcomes,
            unfinished,
            applied: host.worst.get(),
        })
    })
}

fn sessions(engine: Engine<Netlink>, asker: Asker) -> Sessions<HostCards> {
    let cards = HostCards::new(engine, &asker);
    Sessions::new(Rc::new(asker), Rc::new(cards))
}

/// What tells a program to end.
struct Ends {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Ends {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Hears of lease events on a socket that somebody else holds open, such as systemd's.
#[derive(Debug)]
pub struct Listener {
    socket: StdDatagram,
}

impl Listener {
    /// Takes the datagram socket that is standard input (`StandardInput=socket`,
    /// systemd.exec(5)).
    ///
    /// # Errors
    ///
    /// When standard input is something else.
    pub fn on_standard_input() -> io::Result<Self> {
        let socket = StdDatagram::from(stdin().try_clone_to_owned()?);
        socket.local_addr()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// Throws away what waits to be read, and what comes in the next moments: what is left
    /// unread starts us again at once, and whoever starts us too often gives up for good.
    pub fn ignore(&self) {
        thread::sleep(LINGER);
        let mut word = [0; wake::LONGEST];
        while self.socket.recv(&mut word).is_ok() {}
    }

    /// Asks about each card that is told of, and ends when nothing has been left to ask for a
    /// while, or by SIGTERM or SIGINT.
    ///
    /// # Errors
    ///
    /// When the socket cannot be read.
    pub fn serve(&self, engine: Engine<Netlink>, asker: Asker) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let state = engine.state().clone();
            let settings = engine.settings().clone();
            let kernel = Netlink::open().map_err(io::Error::other)?;
            let socket = UnixDatagram::from_std(self.socket.try_clone()?)?;
            let mut ends = Ends::new()?;
            let cards = Rc::new(HostCards::new(engine, &asker));
            let mut sessions = Sessions::new(Rc::new(asker), Rc::clone(&cards));
            let mut recent = BTreeMap::new();
            let mut idle = Instant::now() + LINGER;
            let mut word = [0; wake::LONGEST];
            loop {
                tokio::select! {
                    length = socket.recv(&mut word) => {
                        let word = word.get(..length?).unwrap_or_default();
                        match wake::read(state.path(), word).map(|name| index_of(&kernel, &settings, &name)) {
                            Some(Some(index)) if is_recent(&recent, cards.as_ref(), index) => {}
                            Some(Some(index)) => sessions.event(index),
                            Some(None) => debug!("a card that is gone was told of"),
                            None => debug!("a word that is not for us"),
                        }
                    }
                    Some(outcome) = sessions.next() => {
                        log(&outcome);
                        idle = Instant::now() + LINGER;
                        if outcome.end == End::Complete {
                            recent.insert(outcome.index, (Instant::now(), outcome.card));
                        }
                    }
                    () = sleep_until(idle), if sessions.is_empty() => break,
                    () = ends.come() => break,
                }
            }
            Ok(())
        })
    }
}

/// Whether all was found out of a card a moment ago, and it is as it was then: a hook tells of
/// each family, and the watcher once more.
fn is_recent(
    recent: &BTreeMap<IfIndex, (Instant, Option<Card>)>,
    cards: &HostCards,
    index: IfIndex,
) -> bool {
    recent.get(&index).is_some_and(|(when, then)| {
        when.elapsed() < RECENT && cards.card(index).is_ok_and(|now| now == *then)
    })
}

fn index_of(kernel: &Netlink, settings: &Settings, name: &InterfaceRef) -> Option<IfIndex> {
    let links = snapshot::links(kernel, settings).ok()?;
    let host = Host {
        links,
        ..Host::default()
    };
    host.resolve(name).map(|link| link.index)
}

/// Says how asking about a card ended, when it has not found out all.
fn log(outcome: &Outcome) {
    let Some(card) = &outcome.card else {
        return;
    };
    let (rounds, requests) = (outcome.rounds, outcome.requests);
    for family in Family::BOTH {
        match outcome.findings.of(family) {
            Finding::Unknown(why) if why.may_pass() => warn!(
                "{}: {family}: {why} ({}, {rounds} rounds, {requests} requests); what is there stays",
                card.name, outcome.end
            ),
            Finding::Known(_) | Finding::Absent | Finding::Unknown(_) => {}
        }
    }
    debug!(
        "{}: metadata: {}, {rounds} rounds, {requests} requests",
        card.name, outcome.end
    );
}

/// What makes it worth asking about a card anew: another lease or a renewed one, another
/// address that a router's prefix made, another card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    mac: Option<Mac>,
    updated: [Option<u64>; 2],
    made: BTreeSet<IpAddr>,
}

impl News {
    /// What is to be told of a card.
    pub(crate) fn of(link: &Link, addresses: &[LinkAddress], book: &LeaseBook) -> Self {
        let made = addresses.iter().filter(|a| {
            a.index == link.index && !a.flags.permanent && !a.flags.temporary && a.address.is_ipv6()
        });
        Self {
            mac: link.mac,
            updated: Family::BOTH.map(|family| {
                let record = book.get(link.index, family);
                record.map(|record| record.updated)
            }),
            made: made.map(|a| a.address.ip()).collect(),
        }
    }
}

/// The watcher's word to whoever asks: those who hold the socket, or else a thread of ours.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    /// What was last told of each card.
    told: BTreeMap<IfIndex, News>,
    thread: Option<mpsc::Sender<IfIndex>>,
}

impl Teller {
    /// Tells of a card, if that is news.
    pub(crate) fn tell(
        &mut self,
        link: &Link,
        news: News,
        settings: &Settings,
        state: &StateFolder,
    ) {
        if self.told.get(&link.index) == Some(&news) {
            return;
        }
        self.told.insert(link.index, news);
        if settings.metadata.provider == ProviderChoice::None {
            return;
        }
        let Ok(name) = link.name.as_str().parse() else {
            return;
        };
        match wake::tell(state.path(), &name) {
            Ok(()) => return,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) => {}
            Err(error) => {
                // Somebody listens and does not keep up: the next look tells again.
                debug!("{}: {error}", link.name);
                self.told.remove(&link.index);
                return;
            }
        }
        if self.thread.as_ref().is_none_or(mpsc::Sender::is_closed) {
            self.thread = start(settings.clone(), state.clone());
        }
        // When it is full, the next look tells again.
        if let Some(thread) = &self.thread
            && thread.try_send(link.index).is_err()
        {
            self.told.remove(&link.index);
        }
    }

    /// Forgets cards that are gone.
    pub(crate) fn retain(&mut self, is_there: impl Fn(IfIndex) -> bool) {
        self.told.retain(|index, _| is_there(*index));
    }
}

/// Starts the thread. `None` where nobody is to be asked.
fn start(settings: Settings, state: StateFolder) -> Option<mpsc::Sender<IfIndex>> {
    let root = Path::new("/");
    let provider = provider(&settings.metadata, root)?;
    let asker = asker(provider, &settings.metadata, &state, root);
    let (sender, mut receiver) = mpsc::channel(WORDS);
    let work = move || {
        let kernel = Netlink::open().map_err(|error| with_causes(&error))?;
        let engine = Engine::new(kernel, settings, state);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let mut sessions = sessions(engine, asker);
            loop {
                tokio::select! {
                    card = receiver.recv() => match card {
                        Some(card) => sessions.event(card),
                        None => break,
                    },
                    Some(outcome) = sessions.next() => log(&outcome),
                }
            }
        });
        Ok::<(), String>(())
    };
    let spawned = thread::Builder::new()
        .name("metadata".to_owned())
        .spawn(move || {
            if let Err(error) = work() {
                error!("metadata services cannot be asked: {error}");
            }
        });
    match spawned {
        Ok(_) => {
            info!("{} is asked for what leases do not carry", provider.name());
            Some(sender)
        }
        Err(error) => {
            error!("metadata services cannot be asked: {error}");
            None
        }
    }
}
