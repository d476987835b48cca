//! TCP connections from outside to every address of a host, all the time, and how long
//! replies were wrong after a disturbance.
//!
//! The client outside and a neighbour begin a connection to every address every
//! [`INTERVAL`], each with a socket of its own; one that is not answered within [`BOUND`] has
//! failed. That is shorter than the second after which the kernel would send again, so an
//! attempt says what became of one packet and of one reply.
//!
//! For each disturbance, caller and address, two times are told:
//!
//! - the **outage**: from the beginning of the first attempt that failed to the moment when
//!   replies were right for good. That is when the first of the attempts that were begun
//!   after the last failed one was answered.
//! - the **heal**: from the moment since which an answer was possible without a break
//!   ([`Announcements::answerable`]; at the earliest the disturbance) to the moment when
//!   replies were right for good. An outage also holds what nobody can shorten: a link that is
//!   down, a lease that is being asked for, a router that has not advertised yet. A heal does
//!   not.
//!
//! Where nobody had to wait for a reply, since the old way still led somewhere, it is told how long
//! after the last change by anybody else the last one of ours came (**followed**).
//!
//! Outage and heal are too long rather than too short, by up to one interval. An address no attempt at
//! which failed has neither. On a busy machine all of it grows: nothing here is to be
//! asserted tightly.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leaseroute_core::Family;
use leaseroute_lab::fabric::Fabric;
use leaseroute_lab::site::Site;
use rustix::net::{AddressFamily, SocketType, sockopt};
use tokio::net::TcpSocket;

use crate::announced::{Announcements, Place, Thing};
use crate::kernel::Face;

/// How often each caller tries each address.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// How long an attempt may take.
pub const BOUND: Duration = Duration::from_millis(200);
/// How long all attempts must have been answered before replies count as right for good.
const QUIET: Duration = Duration::from_millis(400);
/// The port that is asked.
const PORT: u16 = 8001;

/// One connection.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    began: Instant,
    /// `None`: it is still on its way.
    ended: Option<Instant>,
    answered: bool,
}

/// Every attempt by caller and address, in the order of their beginnings.
type Tape = BTreeMap<(usize, IpAddr), Vec<Attempt>>;

#[derive(Debug, Default)]
struct Shared {
    places: Mutex<Vec<Place>>,
    tape: Mutex<Tape>,
    stop: AtomicBool,
}

/// The running probes.
#[derive(Debug)]
pub struct Probes {
    shared: Arc<Shared>,
    callers: Vec<String>,
    threads: Vec<JoinHandle<()>>,
    /// What the kernel of the host announces meanwhile.
    pub announcements: Announcements,
}

/// What became of one address as one caller saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The caller.
    pub caller: String,
    /// The address.
    pub place: Place,
    /// How many attempts failed.
    pub failed: usize,
    /// How long replies were wrong, and how long of that they need not have been; `None`: no
    /// attempt failed.
    pub times: Option<(Duration, Duration)>,
}

impl Probes {
    /// Starts asking the addresses of these uplinks: from the client and from the neighbour
    /// of the first subnet.
    #[must_use]
    pub fn start(fabric: &Fabric, faces: &[Face]) -> Self {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        let told = Arc::clone(&shared);
        let listener = fabric.host().run(listen).unwrap();
        threads.push(std::thread::spawn(move || accept(&listener, &told.stop)));
        let neighbours = fabric.neighbours().map(|(_, site)| site);
        let sites: Vec<&Site> = std::iter::once(fabric.client())
            .chain(neighbours.take(1))
            .collect();
        for (caller, site) in sites.iter().enumerate() {
            let shared = Arc::clone(&shared);
            // A thread is born into the network namespace of the one that makes it.
            threads.push(site.run(move || std::thread::spawn(move || ask_all(caller, &shared))));
        }
        let probes = Self {
            callers: sites.iter().map(|site| site.name().to_owned()).collect(),
            shared,
            threads,
            announcements: Announcements::of(fabric.host()),
        };
        probes.ask(faces);
        probes
    }

    /// Asks the addresses of these uplinks from now on, and no others.
    pub fn ask(&self, faces: &[Face]) {
        let places = faces.iter().flat_map(|face| {
            face.sources.iter().map(|&address| Place {
                name: face.name.clone(),
                link: face.index,
                address,
            })
        });
        *self.shared.places.lock().unwrap() = places.collect();
    }

    /// Who is not answered where, in words; nobody: since then, every attempt was answered,
    /// and for long enough to call that right for good.
    #[must_use]
    pub fn wrong(&self, since: Instant) -> Vec<String> {
        // What began later may still be on its way.
        let now = Instant::now();
        let Some(to) = now.checked_sub(BOUND + INTERVAL) else {
            return vec!["it has not begun".to_owned()];
        };
        let from = since.max(to.checked_sub(QUIET).unwrap_or(to));
        let is_whole = to >= since + QUIET;
        let mut wrong = Vec::new();
        self.each(|caller, place, attempts| {
            let recent: Vec<&Attempt> = after(attempts, from).iter().collect();
            let answered = |attempt: &&&Attempt| attempt.answered;
            let failed = recent.iter().filter(|a| a.ended.is_some() && !a.answered);
            let (good, bad) = (recent.iter().filter(answered).count(), failed.count());
            if !is_whole || bad > 0 || good < 10 {
                wrong.push(format!(
                    "{caller} to {} {}: {good} answered, {bad} failed",
                    place.name, place.address
                ));
            }
        });
        wrong
    }

    /// Calls with each caller, place and what was tried there.
    fn each(&self, mut look: impl FnMut(&str, &Place, &[Attempt])) {
        let places = self.shared.places.lock().unwrap().clone();
        let tape = self.shared.tape.lock().unwrap();
        for (number, caller) in self.callers.iter().enumerate() {
            for place in &places {
                let tried = tape.get(&(number, place.address));
                look(caller, place, tried.map_or(&[], Vec::as_slice));
            }
        }
    }

    /// By caller and address, how many attempts since a moment were answered, and how many
    /// failed.
    #[must_use]
    pub fn count(&self, since: Instant) -> Vec<(String, Place, usize, usize)> {
        let mut all = Vec::new();
        self.each(|caller, place, attempts| {
            let ended = after(attempts, since).iter().filter(|a| a.ended.is_some());
            let (good, bad): (Vec<&Attempt>, _) = ended.partition(|attempt| attempt.answered);
            all.push((caller.to_owned(), place.clone(), good.len(), bad.len()));
        });
        all
    }

    /// By caller and address, the attempts that failed although they began after the kernel
    /// had announced the address, in words.
    #[must_use]
    pub fn failed_once_there(&self, since: Instant) -> Vec<String> {
        let announced = self.announcements.since(since);
        let mut wrong = Vec::new();
        self.each(|caller, place, attempts| {
            let came = announced.iter().find(|announced| {
                !announced.gone
                    && announced.thing == Thing::Address(place.link, place.address, true)
            });
            let Some(came) = came else {
                wrong.push(format!("{} did not come", place.address));
                return;
            };
            let attempts = after(attempts, came.at);
            let failed = attempts.iter().filter(|a| a.ended.is_some() && !a.answered);
            wrong.extend(failed.map(|failed| {
                format!(
                    "{caller} to {} {}: failed {:?} after it came",
                    place.name,
                    place.address,
                    failed.began - came.at
                )
            }));
        });
        wrong
    }

    /// What became of every address that is asked now, since a moment. Replies must be right
    /// ([`Self::wrong`]).
    #[must_use]
    pub fn seen(&self, since: Instant) -> Vec<Seen> {
        let mut all = Vec::new();
        self.each(|caller, place, attempts| {
            let attempts = after(attempts, since);
            let failed = |a: &&Attempt| a.ended.is_some() && !a.answered;
            let first = attempts.iter().find(failed);
            let last = attempts.iter().rfind(failed);
            let times = first.zip(last).and_then(|(first, last)| {
                let later = after(attempts, last.began + Duration::from_nanos(1));
                let answers = later.iter().filter(|attempt| attempt.answered);
                let healed = answers.filter_map(|attempt| attempt.ended).min()?;
                let possible = self.announcements.answerable(place, healed);
                let possible = possible.unwrap_or(healed).max(since);
                Some((
                    healed - first.began,
                    healed.saturating_duration_since(possible),
                ))
            });
            all.push(Seen {
                caller: caller.to_owned(),
                place: place.clone(),
                failed: attempts.iter().filter(failed).count(),
                times,
            });
        });
        all
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

/// The attempts that began at a moment or later.
fn after(attempts: &[Attempt], moment: Instant) -> &[Attempt] {
    &attempts[attempts.partition_point(|attempt| attempt.began < moment)..]
}

/// A queue that does not fill up while the thread behind it waits for a processor.
fn listen() -> io::Result<TcpListener> {
    let socket = rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, None)?;
    let tick = Some(Duration::from_millis(100));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, tick)?;
    rustix::net::bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)))?;
    rustix::net::listen(&socket, 4096)?;
    Ok(socket.into())
}

fn accept(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        // The caller has got what it wanted with the handshake, and hangs up.
        drop(listener.accept());
    }
}

fn ask_all(caller: usize, shared: &Arc<Shared>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(async {
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        while !shared.stop.load(Ordering::Relaxed) {
            tick.tick().await;
            let places = shared.places.lock().unwrap().clone();
            for Place { address, .. } in places {
                let shared = Arc::clone(shared);
                tokio::spawn(async move {
                    let number = shared.begin(caller, address);
                    let connected = tokio::time::timeout(BOUND, connect(address)).await;
                    let answered = matches!(connected, Ok(Ok(())));
                    shared.end(caller, address, number, answered);
                });
            }
        }
    });
}

impl Shared {
    fn begin(&self, caller: usize, address: IpAddr) -> usize {
        let mut tape = self.tape.lock().unwrap();
        let attempts = tape.entry((caller, address)).or_default();
        attempts.push(Attempt {
            began: Instant::now(),
            ended: None,
            answered: false,
        });
        attempts.len() - 1
    }

    fn end(&self, caller: usize, address: IpAddr, number: usize, answered: bool) {
        let mut tape = self.tape.lock().unwrap();
        let attempts = tape.entry((caller, address)).or_default();
        attempts[number].ended = Some(Instant::now());
        attempts[number].answered = answered;
    }
}

/// A handshake, after which nothing is left at either end.
async fn connect(address: IpAddr) -> io::Result<()> {
    let socket = match Family::of(address) {
        Family::Ipv4 => TcpSocket::new_v4()?,
        Family::Ipv6 => TcpSocket::new_v6()?,
    };
    socket.set_zero_linger()?;
    let stream = socket.connect(SocketAddr::new(address, PORT)).await?;
    drop(stream);
    Ok(())
}

/// The times of all disturbances of one test.
#[derive(Debug)]
pub struct Report {
    test: String,
    rows: Vec<(String, Seen)>,
    /// By disturbance: from the last change of somebody else to the last of ours.
    followed: Vec<(String, Duration)>,
}

impl Report {
    /// A report on a test.
    #[must_use]
    pub fn on(test: &str) -> Self {
        Self {
            test: test.to_owned(),
            rows: Vec::new(),
            followed: Vec::new(),
        }
    }

    /// Adds what a disturbance did, and says how long it took at most until replies were
    /// right again.
    pub fn add(&mut self, what: &str, since: Instant, probes: &Probes) -> Duration {
        let seen = probes.seen(since);
        let heals = seen.iter().filter_map(|seen| Some(seen.times?.1));
        let longest = heals.max().unwrap_or_default();
        self.rows
            .extend(seen.into_iter().map(|seen| (what.to_owned(), seen)));
        if let (Some(theirs), Some(ours)) = probes.announcements.last_changes(since) {
            let after = ours.saturating_duration_since(theirs);
            self.followed.push((what.to_owned(), after));
        }
        longest
    }

    /// Writes a line of JSON for each address, caller and disturbance to the file that
    /// `LEASEROUTE_REPORT` names, if it does, and one for each disturbance that was followed.
    fn write(&self) -> io::Result<()> {
        let Some(path) = std::env::var_os("LEASEROUTE_REPORT") else {
            return Ok(());
        };
        let mut lines = String::new();
        for (what, seen) in &self.rows {
            let line = serde_json::json!({
                "test": self.test, "disturbance": what, "from": seen.caller,
                "card": seen.place.name, "address": seen.place.address, "failed": seen.failed,
                "outage_ms": seen.times.map(|times| millis(times.0)),
                "heal_ms": seen.times.map(|times| millis(times.1)),
            });
            lines.push_str(&format!("{line}\n"));
        }
        for (what, after) in &self.followed {
            let line = serde_json::json!({
                "test": self.test, "disturbance": what, "followed_ms": millis(*after),
            });
            lines.push_str(&format!("{line}\n"));
        }
        let mut file = std::fs::File::options();
        let mut file = file.create(true).append(true).open(path)?;
        file.write_all(lines.as_bytes())
    }
}

/// The distributions, by disturbance and of all.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}, in ms (min/median/p95/max):", self.test)?;
        let mut names: Vec<&str> = self.rows.iter().map(|(what, _)| what.as_str()).collect();
        names.dedup();
        for name in names {
            let rows: Vec<&Seen> = self
                .rows
                .iter()
                .filter(|r| r.0 == name)
                .map(|r| &r.1)
                .collect();
            let hit: Vec<_> = rows.iter().filter_map(|seen| seen.times).collect();
            let (outages, heals) = (hit.iter().map(|t| t.0), hit.iter().map(|t| t.1));
            let mut line = format!("  {name}: {} of {} hit", hit.len(), rows.len());
            if !hit.is_empty() {
                write!(line, "; outage {}", spread(outages))?;
                write!(line, "; heal {}", spread(heals))?;
            }
            let followed = self.followed.iter().filter(|(what, _)| what == name);
            for (_, after) in followed {
                write!(line, "; last change of ours after {:.1}", millis(*after))?;
            }
            writeln!(f, "{line}")?;
        }
        let times: Vec<_> = self
            .rows
            .iter()
            .filter_map(|(_, seen)| seen.times)
            .collect();
        let heals = times.iter().map(|times| times.1);
        write!(
            f,
            "  all: {} of {} hit; heal {}",
            times.len(),
            self.rows.len(),
            spread(heals)
        )
    }
}

impl Drop for Report {
    #[expect(clippy::print_stdout, reason = "nextest keeps it for who asks")]
    fn drop(&mut self) {
        println!("{self}");
        let written = self.write();
        assert!(written.is_ok() || std::thread::panicking(), "{written:?}");
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Least, median, 95th percentile, greatest.
fn spread(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let at = |part: usize| {
        let last = times.len().checked_sub(1);
        last.map_or(0.0, |last| millis(times[(last * part).div_ceil(100)]))
    };
    format!("{:.1}/{:.1}/{:.1}/{:.1}", at(0), at(50), at(95), at(100))
}
