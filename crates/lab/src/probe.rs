//! Who reaches whom: TCP and UDP between the machines of a bench.
//!
//! Owns a server that says at which address it was reached, connections to it with a
//! deadline, a table of who reaches what, and a steady stream of UDP datagrams that
//! shows what an address change loses. Nothing here needs ICMP or raw sockets.

use std::fmt;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leaseroute_core::Family;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, Shutdown, SocketType};
use tokio::net::TcpStream;

use crate::fabric::Fabric;
use crate::site::Site;

/// The TCP and UDP port of the servers.
pub const PORT: u16 = 8000;
/// How long a server waits before it looks whether it should end.
const TICK: Duration = Duration::from_millis(50);
/// How long the last datagrams of a stream may take to come back.
const GRACE: Duration = Duration::from_millis(500);

/// A server on a machine; it ends with its value.
#[derive(Debug)]
pub struct Server {
    running: Running,
    listener: Option<TcpListener>,
}

/// A thread that is told to end, and waited for, when this is dropped.
#[derive(Debug)]
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens for TCP on every address of the machine, of both families.
    ///
    /// # Errors
    ///
    /// When the port is taken.
    pub fn everywhere(site: &Site) -> io::Result<Self> {
        Self::at(site, Ipv6Addr::UNSPECIFIED.into())
    }

    /// Listens for TCP on one address of the machine.
    ///
    /// # Errors
    ///
    /// When the machine does not have the address, or the port is taken.
    pub fn at(site: &Site, address: IpAddr) -> io::Result<Self> {
        let listener = site.run(move || TcpListener::bind(SocketAddr::new(address, PORT)))?;
        let ours = listener.try_clone()?;
        let running = Running::start("tcp-server", move |stop| identify(&listener, stop))?;
        Ok(Self {
            running,
            listener: Some(ours),
        })
    }

    /// Sends every UDP datagram to one address back from that address. The machine need
    /// not have the address yet.
    ///
    /// # Errors
    ///
    /// When the port is taken.
    pub fn echo(site: &Site, address: IpAddr) -> io::Result<Self> {
        let socket = site.run(move || udp_at(address))?;
        socket.set_read_timeout(Some(TICK))?;
        let running = Running::start("udp-server", move |stop| echo(&socket, stop))?;
        Ok(Self {
            running,
            listener: None,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.stop.store(true, Ordering::Relaxed);
        if let Some(listener) = &self.listener {
            // This wakes the thread out of accept(2); if it fails, the socket is dead.
            rustix::net::shutdown(listener, Shutdown::Both).ok();
        }
    }
}

impl Running {
    fn start(name: &str, work: impl FnOnce(&AtomicBool) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&told))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            drop(thread.join());
        }
    }
}

fn identify(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            // One aborted connection is no reason to end; a closed socket is.
            std::thread::sleep(TICK);
            continue;
        };
        if let Ok(address) = stream.local_addr() {
            // A peer that has gone does not care.
            drop(writeln!(stream, "{}", address.ip().to_canonical()));
        }
    }
}

fn udp_at(address: IpAddr) -> io::Result<UdpSocket> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket(family, SocketType::DGRAM, None)?;
    match address {
        IpAddr::V4(_) => sockopt::set_ip_freebind(&socket, true)?,
        IpAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    rustix::net::bind(&socket, &SocketAddr::new(address, PORT))?;
    Ok(socket.into())
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        if let Some(datagram) = buffer.get(..length) {
            // What cannot be sent back counts as lost at the other end.
            drop(socket.send_to(datagram, peer));
        }
    }
}

/// How a connection went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered with the address that was asked, after this long.
    Answered(Duration),
    /// Nothing came back before the deadline.
    Silent,
    /// Another answer: unreachable, refused, or the wrong machine.
    Failed(io::ErrorKind),
}

impl Outcome {
    /// Whether the server answered.
    #[must_use]
    pub fn is_answered(self) -> bool {
        matches!(self, Self::Answered(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(after) => f.pad(&format!("{:.1} ms", after.as_secs_f64() * 1e3)),
            Self::Silent => f.pad("no answer"),
            Self::Failed(kind) => f.pad(&kind.to_string()),
        }
    }
}

/// Connects from a machine to one address.
#[must_use]
pub fn connect(from: &Site, to: IpAddr, deadline: Duration) -> Outcome {
    let outcomes = from.run(move || connect_all(&[to], deadline));
    outcomes.first().copied().unwrap_or(Outcome::Silent)
}

/// Connects to all addresses at once, from the calling thread's network namespace.
fn connect_all(targets: &[IpAddr], deadline: Duration) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return vec![Outcome::Failed(error.kind()); targets.len()],
    };
    runtime.block_on(async {
        let tasks: Vec<_> = targets
            .iter()
            .map(|&to| tokio::spawn(attempt(to, deadline)))
            .collect();
        let mut outcomes = Vec::with_capacity(tasks.len());
        for task in tasks {
            outcomes.push(task.await.unwrap_or(Outcome::Failed(io::ErrorKind::Other)));
        }
        outcomes
    })
}

async fn attempt(to: IpAddr, deadline: Duration) -> Outcome {
    let started = Instant::now();
    match tokio::time::timeout(deadline, ask(SocketAddr::new(to, PORT))).await {
        Ok(Ok(reached)) if reached == to => Outcome::Answered(started.elapsed()),
        Ok(Ok(_)) => Outcome::Failed(io::ErrorKind::InvalidData),
        Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => Outcome::Silent,
        Ok(Err(error)) => Outcome::Failed(error.kind()),
        Err(_) => Outcome::Silent,
    }
}

/// Asks a server at which address it was reached.
async fn ask(to: SocketAddr) -> io::Result<IpAddr> {
    let stream = TcpStream::connect(to).await?;
    let mut text = Vec::new();
    loop {
        stream.readable().await?;
        let mut buffer = [0; 64];
        match stream.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => text.extend(buffer.iter().take(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let text = String::from_utf8_lossy(&text);
    text.trim()
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

/// One cell of a [`Matrix`].
#[derive(Clone, Debug)]
pub struct Cell {
    /// Who connected: `client` or `neighbourN`.
    pub from: String,
    /// The number of the card that was asked.
    pub card: usize,
    /// The family.
    pub family: Family,
    /// How it went.
    pub outcome: Outcome,
}

/// Who reaches which card over which family.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// All attempts, by caller, then card, then family.
    pub cells: Vec<Cell>,
}

impl Matrix {
    /// Connects from the client and from every neighbour to the fabric's address of every
    /// card, over the given families, all at once. A [`Server`] must be running on the
    /// host.
    #[must_use]
    pub fn probe(fabric: &Fabric, families: &[Family], deadline: Duration) -> Self {
        let targets: Vec<(usize, Family, IpAddr)> = fabric
            .cards()
            .flat_map(|card| families.iter().map(|&f| (card.number, f, card.address(f))))
            .collect();
        let addresses: Vec<IpAddr> = targets.iter().map(|(_, _, address)| *address).collect();
        let callers = std::iter::once(fabric.client());
        let callers: Vec<&Site> = callers.chain(fabric.neighbours().map(|(_, s)| s)).collect();
        let running: Vec<_> = callers
            .iter()
            .map(|site| {
                let addresses = addresses.clone();
                site.namespace()
                    .start(move || connect_all(&addresses, deadline))
            })
            .collect();
        let mut cells = Vec::new();
        for (site, outcomes) in callers.iter().zip(running) {
            let outcomes = outcomes.recv().unwrap_or_default();
            cells.extend(targets.iter().zip(outcomes).map(|(target, outcome)| Cell {
                from: site.name().to_owned(),
                card: target.0,
                family: target.1,
                outcome,
            }));
        }
        Self { cells }
    }

    /// Whether every attempt was answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.cells.is_empty() && self.cells.iter().all(|cell| cell.outcome.is_answered())
    }

    /// The attempts by caller.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &[Cell])> {
        let rows = self.cells.chunk_by(|a, b| a.from == b.from);
        rows.filter_map(|cells| Some((cells.first()?.from.as_str(), cells)))
    }

    /// The attempts that were not answered.
    pub fn failures(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| !cell.outcome.is_answered())
    }
}

/// A table with a line for each caller and a column for each card and family.
impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = 14;
        write!(f, "{:<width$}", "from")?;
        for cell in self.rows().next().into_iter().flat_map(|(_, cells)| cells) {
            write!(f, "{:<width$}", format!("eth{} {}", cell.card, cell.family))?;
        }
        for (caller, cells) in self.rows() {
            write!(f, "\n{caller:<width$}")?;
            for cell in cells {
                write!(f, "{:<width$}", cell.outcome)?;
            }
        }
        writeln!(f)
    }
}

/// A steady stream of UDP datagrams to a [`Server::echo`].
#[derive(Debug)]
pub struct Stream {
    running: Running,
    shots: std::sync::mpsc::Receiver<Vec<Shot>>,
}

/// One datagram of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// When it was sent.
    pub sent: Instant,
    /// How long its answer took; `None`: it never came.
    pub answered: Option<Duration>,
}

impl Stream {
    /// Starts sending from a machine to an address, one datagram each `interval`.
    ///
    /// # Errors
    ///
    /// When the machine has no route to the address.
    pub fn start(from: &Site, to: IpAddr, interval: Duration) -> io::Result<Self> {
        let socket = from.run(move || {
            let any: IpAddr = match to {
                IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
            socket.connect(SocketAddr::new(to, PORT)).map(|()| socket)
        })?;
        let (result, shots) = std::sync::mpsc::channel();
        let running = Running::start("udp-stream", move |stop| {
            // Nobody waiting is no trouble.
            drop(result.send(send_and_collect(&socket, interval, stop)));
        })?;
        Ok(Self { running, shots })
    }

    /// Stops sending, waits a moment for the last answers, and returns every datagram.
    #[must_use]
    pub fn stop(self) -> Vec<Shot> {
        self.running.stop.store(true, Ordering::Relaxed);
        self.shots.recv().unwrap_or_default()
    }
}

fn send_and_collect(socket: &UdpSocket, interval: Duration, stop: &AtomicBool) -> Vec<Shot> {
    let mut shots: Vec<Shot> = Vec::new();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let number = u64::try_from(shots.len()).unwrap_or(u64::MAX);
        shots.push(Shot {
            sent: Instant::now(),
            answered: None,
        });
        // An error here is an ICMP answer to an earlier datagram: that one is lost.
        drop(socket.send(&number.to_be_bytes()));
        next += interval;
        collect(socket, next, &mut shots, |_| false);
    }
    let all = |shots: &[Shot]| shots.iter().all(|shot| shot.answered.is_some());
    collect(socket, Instant::now() + GRACE, &mut shots, all);
    shots
}

/// Takes in answers until a moment, or until there is nothing to wait for.
fn collect(
    socket: &UdpSocket,
    until: Instant,
    shots: &mut [Shot],
    is_done: impl Fn(&[Shot]) -> bool,
) {
    let mut buffer = [0; 8];
    while !is_done(shots) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            return;
        }
        if let Ok(8) = socket.recv(&mut buffer) {
            let number = usize::try_from(u64::from_be_bytes(buffer)).unwrap_or(usize::MAX);
            if let Some(shot) = shots.get_mut(number) {
                shot.answered.get_or_insert_with(|| shot.sent.elapsed());
            }
        }
    }
}
