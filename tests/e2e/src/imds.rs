//! A metadata service as EC2's is (IMDSv2), in the routers of the fabric.
//!
//! What it tells of a card is a value that the test changes at any time. It writes every
//! request down, and it misbehaves as it is told to. [`Activator`] is what systemd's socket
//! unit does for the program that asks it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leaseroute_core::Mac;
use leaseroute_lab::fabric::Card;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::host::{Host, PROGRAMS};
use crate::kernel::ip;

/// Where EC2's service answers.
pub const ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];
/// Where hooks and the watcher say that something happened to a lease.
pub const SOCKET: &str = "/run/leaseroute/metadata.socket";
/// The token that it gives out.
const TOKEN: &str = "AQAEA-token==";
/// How long a thread waits before it looks whether it should end or misbehave.
const TICK: Duration = Duration::from_millis(10);

/// What the service tells of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The number among the instance's cards; 0: it is the first one.
    pub device: usize,
    /// `local-ipv4s`
    pub ipv4s: Vec<Ipv4Addr>,
    /// `ipv6s`
    pub ipv6s: Vec<Ipv6Addr>,
    /// `ipv4-prefix`
    pub prefixes4: Vec<String>,
    /// `ipv6-prefix`
    pub prefixes6: Vec<String>,
    /// `subnet-ipv4-cidr-block`
    pub subnet4: Option<String>,
    /// `subnet-ipv6-cidr-blocks`
    pub subnets6: Vec<String>,
}

impl Told {
    /// All of a card that has nothing but the addresses that the fabric gives it.
    #[must_use]
    pub fn of(card: &Card) -> Self {
        Self {
            ipv6s: vec![card.ipv6],
            subnets6: vec![format!("2001:db8:0:{:x}::/64", card.subnet)],
            ..Self::without_ipv6(card)
        }
    }

    /// The same while nothing of IPv6 is known yet.
    #[must_use]
    pub fn without_ipv6(card: &Card) -> Self {
        Self {
            device: card.number,
            ipv4s: vec![card.ipv4],
            subnet4: Some(format!("10.0.{}.0/24", card.subnet)),
            ..Self::default()
        }
    }

    /// The keys that are listed, in the service's order, and what each says.
    fn keys(&self, mac: Mac) -> Vec<(&'static str, String)> {
        let lines = |list: &[IpAddr]| {
            let lines: Vec<String> = list.iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        let ipv4s: Vec<IpAddr> = self.ipv4s.iter().copied().map(IpAddr::V4).collect();
        let ipv6s: Vec<IpAddr> = self.ipv6s.iter().copied().map(IpAddr::V6).collect();
        let mut keys = vec![
            ("device-number", self.device.to_string()),
            ("interface-id", format!("eni-{:017x}", self.device)),
            ("ipv4-prefix", self.prefixes4.join("\n")),
            ("ipv6-prefix", self.prefixes6.join("\n")),
            ("ipv6s", lines(&ipv6s)),
            ("local-hostname", "bench.example".to_owned()),
            ("local-ipv4s", lines(&ipv4s)),
            ("mac", mac.to_string()),
            ("network-card", "0".to_owned()),
            ("owner-id", "123456789012".to_owned()),
            (
                "subnet-ipv4-cidr-block",
                self.subnet4.clone().unwrap_or_default(),
            ),
            ("subnet-ipv6-cidr-blocks", self.subnets6.join("\n")),
            ("vpc-ipv4-cidr-block", "10.0.0.0/16".to_owned()),
        ];
        keys.retain(|(_, text)| !text.is_empty());
        keys
    }
}

/// What is wrong with the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// Nobody listens.
    Dead,
    /// It takes requests and says nothing.
    Silent,
    /// It says after this long what it had to say when it was asked.
    Slow(Duration),
    /// 404 for everything.
    Unknown,
    /// 429, with this many seconds in Retry-After.
    Throttled(Option<u32>),
    /// 500 for everything.
    Broken,
    /// 200 and a page that has nothing to do with what was asked.
    Garbage,
    /// The connection ends in the middle of the body.
    CutOff,
    /// A body that ends in the middle, and says that it is whole.
    Cut(Part),
}

/// What a service tells only a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The list of cards, in the middle of the last one's address.
    Cards,
    /// The list of a card's keys, in the middle of `local-ipv4s`.
    Keys,
    /// Every value, in the middle of its last line.
    Values,
}

impl Part {
    /// Cuts a body, if it is such a part.
    fn cut(self, head: &str, body: &mut String) {
        let path = head.split_whitespace().nth(1).unwrap_or_default();
        let Some((_, path)) = path.split_once("/macs/") else {
            return;
        };
        let part = match path.split_once('/') {
            None => Self::Cards,
            Some((_, "")) => Self::Keys,
            Some(_) => Self::Values,
        };
        if part == self {
            let from = match part {
                Self::Keys => body.find("local-ipv4s"),
                Self::Cards | Self::Values => body.rfind('\n').map(|end| end + 1),
            };
            let line = body.get(from.unwrap_or(0)..).unwrap_or_default();
            let length = line.lines().next().unwrap_or_default().len();
            body.truncate(from.unwrap_or(0) + length / 2);
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When it had been read.
    pub at: Instant,
    /// In which subnet's router.
    pub subnet: u8,
    /// Who asked.
    pub peer: IpAddr,
    /// `GET /latest/meta-data/mac`
    pub what: String,
    /// The status of the answer; 0: there was none.
    pub status: u16,
}

#[derive(Debug)]
struct Shared {
    cards: Mutex<BTreeMap<Mac, Told>>,
    trouble: Mutex<Trouble>,
    asked: Mutex<Vec<Asked>>,
    stop: AtomicBool,
}

/// The service; it ends with its value.
#[derive(Debug)]
pub struct Imds {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Imds {
    /// Starts it in the routers of every subnet that there is, where it knows no card.
    #[must_use]
    pub fn start(host: &Host) -> Self {
        let mut imds = Self {
            shared: Arc::new(Shared {
                cards: Mutex::default(),
                trouble: Mutex::new(Trouble::None),
                asked: Mutex::default(),
                stop: AtomicBool::new(false),
            }),
            threads: Vec::new(),
        };
        let mut subnets: Vec<u8> = host.fabric.cards().map(|card| card.subnet).collect();
        subnets.sort_unstable();
        subnets.dedup();
        for subnet in subnets {
            imds.serve(host, subnet);
        }
        imds
    }

    /// Answers in the router of one more subnet, too.
    pub fn serve(&mut self, host: &Host, subnet: u8) {
        let router = host.fabric.router(subnet).unwrap();
        for address in ADDRESSES {
            let length = if address.is_ipv4() { 32 } else { 128 };
            let nodad = if address.is_ipv4() { "" } else { "nodad" };
            ip(
                router,
                &format!("addr add {address}/{length} dev lo {nodad}"),
            );
            let shared = Arc::clone(&self.shared);
            // A thread is born into the network namespace of the one that makes it.
            let work = move || std::thread::spawn(move || accept(address, subnet, &shared));
            self.threads.push(router.run(work));
        }
    }

    /// Changes what is told of a card.
    pub fn set(&self, card: &Card, told: Told) {
        self.shared.cards.lock().unwrap().insert(card.mac, told);
    }

    /// Does not list a card any more.
    pub fn forget(&self, card: &Card) {
        self.shared.cards.lock().unwrap().remove(&card.mac);
    }

    /// Lets it misbehave from now on, also on connections that are open.
    pub fn suffer(&self, trouble: Trouble) {
        *self.shared.trouble.lock().unwrap() = trouble;
    }

    /// All requests so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Those that name a card.
    #[must_use]
    pub fn asked_of(&self, card: &Card) -> Vec<Asked> {
        let mac = card.mac.to_string();
        let mut asked = self.asked();
        asked.retain(|asked| asked.what.contains(&mac));
        asked
    }

    /// The most requests in any one second.
    #[must_use]
    pub fn most_in_a_second(&self) -> usize {
        let mut times: Vec<Instant> = self.asked().iter().map(|asked| asked.at).collect();
        times.sort_unstable();
        let second = Duration::from_secs(1);
        let ends = times.iter().enumerate().map(|(first, began)| {
            let end = times.partition_point(|at| *at < *began + second);
            end - first
        });
        ends.max().unwrap_or_default()
    }
}

impl Drop for Imds {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

impl Shared {
    fn trouble(&self) -> Trouble {
        *self.trouble.lock().unwrap()
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Status and body of an honest answer.
    fn answer(&self, head: &str) -> (u16, String) {
        let mut words = head.split_whitespace();
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let header = |name: &str| {
            let mut lines = head.lines().skip(1);
            lines.find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        if path == "/latest/api/token" {
            let lasts = header("X-aws-ec2-metadata-token-ttl-seconds");
            return match (method, lasts.and_then(|text| text.parse::<u32>().ok())) {
                ("PUT", Some(1..=21600)) => (200, TOKEN.to_owned()),
                ("PUT", _) => (400, "bad request".to_owned()),
                _ => (405, "method not allowed".to_owned()),
            };
        }
        if header("X-aws-ec2-metadata-token") != Some(TOKEN) {
            return (401, "unauthorized".to_owned());
        }
        let cards = self.cards.lock().unwrap();
        let missing = (404, "<html><body>not found</body></html>".to_owned());
        let Some(path) = path.strip_prefix("/latest/meta-data/") else {
            return missing;
        };
        if path == "mac" {
            let first = cards.iter().find(|(_, told)| told.device == 0);
            return first.map_or(missing, |(mac, _)| (200, mac.to_string()));
        }
        let Some(path) = path.strip_prefix("network/interfaces/macs/") else {
            return missing;
        };
        if path.is_empty() {
            let macs: Vec<String> = cards.keys().map(|mac| format!("{mac}/")).collect();
            return (200, macs.join("\n"));
        }
        let (mac, key) = path.split_once('/').unwrap_or((path, ""));
        let card = cards.iter().find(|(known, _)| known.to_string() == mac);
        let Some((mac, told)) = card else {
            return missing;
        };
        let keys = told.keys(*mac);
        if key.is_empty() {
            let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
            return (200, names.join("\n"));
        }
        let said = keys.into_iter().find(|(name, _)| *name == key);
        said.map_or(missing, |(_, text)| (200, text))
    }
}

fn listen(address: IpAddr) -> io::Result<TcpListener> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    // A program that is started meanwhile would keep the port taken.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TICK))?;
    rustix::net::bind(&socket, &SocketAddr::new(address, 80))?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket.into())
}

fn accept(address: IpAddr, subnet: u8, shared: &Arc<Shared>) {
    let mut listener = None;
    let mut talks = Vec::new();
    while !shared.is_over() {
        if shared.trouble() == Trouble::Dead {
            listener = None;
            std::thread::sleep(TICK);
            continue;
        }
        let listener = listener.get_or_insert_with(|| listen(address).unwrap());
        if let Ok((stream, peer)) = listener.accept() {
            let shared = Arc::clone(shared);
            talks.push(std::thread::spawn(move || {
                // Whoever hangs up in the middle is no trouble of ours.
                drop(talk(stream, peer.ip().to_canonical(), subnet, &shared));
            }));
        }
    }
    for talk in talks {
        talk.join().unwrap();
    }
}

/// Answers on one connection until the other end has enough.
fn talk(mut stream: TcpStream, peer: IpAddr, subnet: u8, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_nodelay(true)?;
    let mut heard = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if shared.is_over() || shared.trouble() == Trouble::Dead {
                return Ok(());
            }
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => heard.extend_from_slice(&buffer[..length]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        };
        let rest = heard.split_off(end);
        let head = String::from_utf8_lossy(&heard).into_owned();
        heard = rest;
        let at = Instant::now();
        let trouble = shared.trouble();
        let (mut status, mut body) = shared.answer(&head);
        let mut fields = String::new();
        match trouble {
            Trouble::None
            | Trouble::Dead
            | Trouble::Silent
            | Trouble::Slow(_)
            | Trouble::CutOff => {}
            Trouble::Unknown => (status, body) = (404, "not found".to_owned()),
            Trouble::Throttled(after) => {
                (status, body) = (429, "too many requests".to_owned());
                if let Some(after) = after {
                    fields = format!("Retry-After: {after}\r\n");
                }
            }
            Trouble::Broken => (status, body) = (500, "internal error".to_owned()),
            Trouble::Garbage => {
                (status, body) = (200, "<html>\n<h1>It works!</h1>\n10.9.9.9\n".to_owned());
            }
            Trouble::Cut(part) => part.cut(&head, &mut body),
        }
        let speaks = !matches!(trouble, Trouble::Dead | Trouble::Silent);
        shared.asked.lock().unwrap().push(Asked {
            at,
            subnet,
            peer,
            what: head.split(" HTTP/").next().unwrap_or_default().to_owned(),
            status: if speaks { status } else { 0 },
        });
        match trouble {
            Trouble::Dead => return Ok(()),
            Trouble::Silent => {
                while !shared.is_over() && shared.trouble() == Trouble::Silent {
                    std::thread::sleep(TICK);
                }
                return Ok(());
            }
            Trouble::Slow(late) => {
                while !shared.is_over() && at.elapsed() < late {
                    std::thread::sleep(TICK);
                }
            }
            _ => {}
        }
        let length = body.len();
        if trouble == Trouble::CutOff {
            body.truncate(length / 2);
        }
        let head = format!(
            "HTTP/1.1 {status} said\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
             {fields}Server: EC2ws\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes())?;
        if trouble == Trouble::CutOff {
            return stream.shutdown(Shutdown::Both);
        }
    }
}

/// Holds the socket that hooks send a word to, and starts `leaseroute metadata --listen` on it
/// whenever a word waits and it does not run, as systemd does.
#[derive(Debug)]
pub struct Activator {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    state: Arc<Mutex<Started>>,
    socket: std::path::PathBuf,
}

/// What an [`Activator`] has started.
#[derive(Clone, Copy, Debug, Default)]
struct Started {
    times: usize,
    /// What runs now, as the outside numbers it: it has entered the host, and what it is is its
    /// child.
    entered: Option<u32>,
}

impl Activator {
    /// Holds the socket from now on. The host must have the program `leaseroute`; what it says
    /// goes to the log `metadata`.
    #[must_use]
    pub fn start(host: &Host) -> Self {
        let path = host.path(SOCKET);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // A socket of its name that somebody held before.
        fs::remove_file(&path).ok();
        let bound = path.clone();
        let bind = move || UnixDatagram::bind(bound);
        let socket = host.fabric.host().run(bind).unwrap();
        let mut command = host.command(&format!("{PROGRAMS}/leaseroute"));
        command.args(["metadata", "--listen"]);
        let log = host.log_file("metadata");
        let stop = Arc::new(AtomicBool::new(false));
        let state = Arc::new(Mutex::new(Started::default()));
        let (told, shared) = (Arc::clone(&stop), Arc::clone(&state));
        let work = move || hold(&socket, &mut command, &log, &told, &shared);
        let thread = host.fabric.host().run(move || std::thread::spawn(work));
        Self {
            stop,
            thread: Some(thread),
            state,
            socket: path,
        }
    }

    /// How often it has started the program.
    #[must_use]
    pub fn started(&self) -> usize {
        self.state.lock().unwrap().times
    }

    /// Whether the program runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.state.lock().unwrap().entered.is_some()
    }

    /// The most memory that the program has used so far, in KiB, while it runs.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let entered = self.state.lock().unwrap().entered?;
        let children = fs::read_to_string(format!("/proc/{entered}/task/{entered}/children"));
        let child = children.ok()?.trim().to_owned();
        let status = fs::read_to_string(format!("/proc/{child}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

impl Drop for Activator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
        // The host may be gone, and its files with it.
        fs::remove_file(&self.socket).ok();
    }
}

fn hold(
    socket: &UnixDatagram,
    command: &mut Command,
    log: &std::path::Path,
    stop: &AtomicBool,
    state: &Mutex<Started>,
) {
    let mut running: Option<Child> = None;
    while !stop.load(Ordering::Relaxed) {
        if let Some(child) = &mut running {
            if child.try_wait().unwrap().is_none() {
                std::thread::sleep(TICK);
                continue;
            }
            running = None;
            state.lock().unwrap().entered = None;
        }
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        let mut waits = [PollFd::new(socket, PollFlags::IN)];
        if poll(&mut waits, Some(&wait)).unwrap_or(0) == 0 {
            continue;
        }
        let out = File::options().create(true).append(true).open(log).unwrap();
        let input = std::os::fd::OwnedFd::from(socket.try_clone().unwrap());
        command.stdin(Stdio::from(input));
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let child = command.spawn().unwrap();
        let mut state = state.lock().unwrap();
        state.times += 1;
        state.entered = Some(child.id());
        running = Some(child);
    }
    if let Some(mut child) = running {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let inner = fs::read_to_string(children).unwrap_or_default();
        if let Some(inner) = inner.split_whitespace().next() {
            // What has entered the host waits for what it started there.
            let mut kill = Command::new("kill");
            kill.args(["-TERM", inner]).stderr(Stdio::null());
            kill.status().ok();
        } else {
            child.kill().ok();
        }
        child.wait().ok();
    }
}
