//! What the kernel announces about links, addresses, routes and rules, with the moment and
//! with who asked for it.
//!
//! The messages are read here by hand (rtnetlink(7)) and not by what is under test. A
//! listener stamps a datagram as soon as it has it: where the machine is busy the stamp is
//! late by as long as the thread waited for a processor.
//!
//! [`Announcements::answerable`] says since when a card could have been answered on. That
//! does not rest on our own objects, but for one thing: whenever somebody else removes one
//! that the answer needs, it begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leaseroute_core::Family;
use leaseroute_lab::site::Site;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// Links, addresses, routes and rules of both families.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000;
/// What the socket may hold: far more than anything here makes.
const ROOM: usize = 16 << 20;
/// The protocol number on everything of ours.
const PROTOCOL: u8 = 76;
/// The number before the first own table.
const TABLES: u32 = 76_000;
const MAIN: u32 = 254;

/// What there is, or was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// An interface: its index, and its service.
    Link(u32, Service),
    /// An address of an interface, and whether it is usable: not tentative.
    Address(u32, IpAddr, bool),
    /// A route.
    Route {
        /// Its family.
        family: Family,
        /// Its table.
        table: u32,
        /// Who made it.
        protocol: u8,
        /// Its prefix; `None`: a default route.
        to: Option<(IpAddr, u8)>,
        /// Its gateway.
        via: Option<IpAddr>,
        /// Its interface.
        link: u32,
        /// Its metric.
        metric: u32,
    },
    /// A rule.
    Rule {
        /// Its family.
        family: Family,
        /// Its priority.
        priority: u32,
        /// Who made it.
        protocol: u8,
        /// The table it leads to.
        table: u32,
        /// The source it is for.
        from: Option<IpAddr>,
    },
}

/// How far an interface is in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// It is set down.
    Down,
    /// It has no carrier.
    Waiting,
    /// It is up and has a carrier.
    Running,
}

/// One announcement.
#[derive(Clone, Debug)]
pub struct Announced {
    /// When it was read.
    pub at: Instant,
    /// The netlink port of who asked for the change; 0: the kernel itself.
    pub by: u32,
    /// Whether the thing is gone.
    pub gone: bool,
    /// The thing.
    pub thing: Thing,
}

/// An address that is asked, and the interface it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The interface's name.
    pub name: String,
    /// Its index.
    pub link: u32,
    /// The address.
    pub address: IpAddr,
}

impl Place {
    fn family(&self) -> Family {
        Family::of(self.address)
    }
}

impl Thing {
    /// Whether it is ours, by protocol, priority and table.
    #[must_use]
    pub fn is_own(&self) -> bool {
        match self {
            Self::Route {
                protocol, table, ..
            } => *protocol == PROTOCOL && *table > TABLES,
            Self::Rule {
                protocol, priority, ..
            } => *protocol == PROTOCOL && (7600..7700).contains(priority),
            Self::Link(..) | Self::Address(..) => false,
        }
    }

    /// Whether it is one of ours by which answers from a place leave.
    fn serves(&self, place: &Place) -> bool {
        self.is_own()
            && match self {
                Self::Rule { from, .. } => *from == Some(place.address),
                Self::Route { family, table, .. } => {
                    *family == place.family() && *table == TABLES + place.link
                }
                Self::Link(..) | Self::Address(..) => false,
            }
    }
}

/// What of the announced decides whether an answer is possible.
#[derive(Clone, Debug, Default)]
struct Known {
    links: BTreeMap<u32, Service>,
    /// Every address, and whether it is usable.
    addresses: BTreeMap<(u32, IpAddr), bool>,
    /// The default routes of table main.
    defaults: BTreeSet<(u32, Family, Option<IpAddr>, u32)>,
    /// The router of each of our own tables.
    own_routers: BTreeMap<(u32, Family), IpAddr>,
}

impl Known {
    /// Takes an announcement in; tells whether that changed anything.
    fn take(&mut self, thing: &Thing, gone: bool) -> bool {
        match thing {
            Thing::Link(link, service) => {
                if gone || *service == Service::Down {
                    self.forget_ipv4_routes(*link);
                }
                if gone {
                    self.links.remove(link).is_some()
                } else {
                    self.links.insert(*link, *service) != Some(*service)
                }
            }
            Thing::Address(link, address, _) if gone => {
                let key = (*link, *address);
                let was_there = self.addresses.remove(&key).is_some();
                let mut left = self.addresses.keys();
                if !left.any(|(other, address)| other == link && address.is_ipv4()) {
                    self.forget_ipv4_routes(*link);
                }
                was_there
            }
            Thing::Address(link, address, usable) => {
                self.addresses.insert((*link, *address), *usable) != Some(*usable)
            }
            Thing::Route {
                family,
                table: MAIN,
                to: None,
                via,
                link,
                metric,
                ..
            } => {
                let route = (*link, *family, *via, *metric);
                if gone {
                    self.defaults.remove(&route)
                } else {
                    self.defaults.insert(route)
                }
            }
            Thing::Route {
                family,
                table,
                to: None,
                via: Some(via),
                ..
            } if thing.is_own() && !gone => {
                self.own_routers.insert((*table, *family), *via);
                false
            }
            Thing::Route { .. } | Thing::Rule { .. } => false,
        }
    }

    /// The kernel drops them without a word when an interface is set down or loses its
    /// last IPv4 address.
    fn forget_ipv4_routes(&mut self, link: u32) {
        self.defaults
            .retain(|(other, family, ..)| *other != link || *family != Family::Ipv4);
    }

    /// The card is in service, has the address, and the router is known.
    fn lets_answer(&self, place: &Place, router: Option<IpAddr>) -> bool {
        let routers = self.defaults.iter();
        let mut defaults =
            routers.filter(|(_, _, via, _)| router.is_none_or(|router| *via == Some(router)));
        self.links.get(&place.link) == Some(&Service::Running)
            && self.addresses.get(&(place.link, place.address)) == Some(&true)
            && defaults.any(|(link, family, ..)| *link == place.link && *family == place.family())
    }
}

/// All that was announced since it was opened.
#[derive(Debug)]
pub struct Announcements {
    opened: Instant,
    before: Known,
    tape: Arc<Mutex<Vec<Announced>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Announcements {
    /// Listens on a machine from now on.
    #[must_use]
    pub fn of(site: &Site) -> Self {
        let socket = site.run(open).unwrap();
        let tape = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let mut before = Known::default();
        // What is there is asked for on the socket that listens: nothing comes in between.
        for kind in [18_u16, 22, 26] {
            ask(&socket, kind).unwrap();
            while !receive(&socket, &mut |announced| {
                before.take(&announced.thing, announced.gone);
            }) {}
        }
        let (shared, told) = (Arc::clone(&tape), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                receive(&socket, &mut |announced| {
                    shared.lock().unwrap().push(announced);
                });
            }
        });
        Self {
            opened: Instant::now(),
            before,
            tape,
            stop,
            thread: Some(thread),
        }
    }

    /// Everything since a moment.
    #[must_use]
    pub fn since(&self, moment: Instant) -> Vec<Announced> {
        let tape = self.tape.lock().unwrap();
        let first = tape.partition_point(|announced| announced.at < moment);
        tape[first..].to_vec()
    }

    /// Whether an address is there, and usable.
    #[must_use]
    pub fn has(&self, place: &Place) -> bool {
        let mut known = self.before.clone();
        for announced in self.tape.lock().unwrap().iter() {
            known.take(&announced.thing, announced.gone);
        }
        known.addresses.get(&(place.link, place.address)) == Some(&true)
    }

    /// Since when an answer from a place has been possible without a break, as of `until`;
    /// `None`: it was not.
    ///
    /// It is possible while the card is up with a carrier, has the address, not tentative
    /// any more, and table main has a default route of the family by that card and by the
    /// router through which the answers leave in the end. It becomes
    /// possible anew when somebody else removes a rule or route of ours that serves the
    /// place. What merely repeats or refreshes something is no beginning.
    #[must_use]
    pub fn answerable(&self, place: &Place, until: Instant) -> Option<Instant> {
        let tape = self.tape.lock().unwrap();
        let ours = ports(&tape);
        let mut known = self.before.clone();
        let told = tape.partition_point(|announced| announced.at <= until);
        for announced in &tape[..told] {
            known.take(&announced.thing, announced.gone);
        }
        let table = (TABLES + place.link, place.family());
        let router = known.own_routers.get(&table).copied();

        let mut known = self.before.clone();
        let lets_answer = |known: &Known| known.lets_answer(place, router);
        let mut since = lets_answer(&known).then_some(self.opened);
        for announced in &tape[..told] {
            known.take(&announced.thing, announced.gone);
            let taken =
                announced.gone && announced.thing.serves(place) && !ours.contains(&announced.by);
            if !lets_answer(&known) {
                since = None;
            } else if since.is_none() || taken {
                since = Some(announced.at);
            }
        }
        since
    }

    /// The last change since a moment by anybody but us that a watcher has to follow, and
    /// the last of ours.
    #[must_use]
    pub fn last_changes(&self, moment: Instant) -> (Option<Instant>, Option<Instant>) {
        let tape = self.tape.lock().unwrap();
        let ours = ports(&tape);
        let mut known = self.before.clone();
        let (mut theirs, mut own) = (None, None);
        for announced in tape.iter() {
            let changes = known.take(&announced.thing, announced.gone);
            if announced.at < moment {
                continue;
            }
            let is_own = announced.thing.is_own();
            if is_own && ours.contains(&announced.by) {
                own = Some(announced.at);
            } else if changes || (is_own && announced.gone) {
                theirs = Some(announced.at);
            }
        }
        (theirs, own)
    }

    /// What we did since a moment to rules and routes that are not ours.
    #[must_use]
    pub fn meddling(&self, moment: Instant) -> Vec<Announced> {
        let tape = self.tape.lock().unwrap();
        let ours = ports(&tape);
        let meddles = |announced: &&Announced| {
            announced.at >= moment && ours.contains(&announced.by) && !announced.thing.is_own()
        };
        tape.iter().filter(meddles).cloned().collect()
    }
}

impl Drop for Announcements {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

/// The ports that are ours: nobody else ever adds an object of ours.
fn ports(tape: &[Announced]) -> BTreeSet<u32> {
    let adds =
        |announced: &&Announced| announced.by != 0 && !announced.gone && announced.thing.is_own();
    tape.iter()
        .filter(adds)
        .map(|announced| announced.by)
        .collect()
}

fn open() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_recv_buffer_size_force(&socket, ROOM)?;
    // So that the thread sees that it should end.
    let tick = Some(Duration::from_millis(100));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, tick)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    Ok(socket)
}

/// Asks for all links, addresses or routes.
fn ask(socket: &OwnedFd, kind: u16) -> io::Result<()> {
    const REQUEST_DUMP: u16 = 0x301;
    let mut message = Vec::new();
    message.extend(20_u32.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST_DUMP.to_ne_bytes());
    message.extend([0; 12]);
    rustix::net::send(socket, &message, SendFlags::empty())?;
    Ok(())
}

/// Takes in one datagram, if one comes in time; tells whether it ends the answer to a
/// question.
fn receive(socket: &OwnedFd, each: &mut impl FnMut(Announced)) -> bool {
    const DONE: u16 = 3;
    let mut buffer = vec![0_u8; 1 << 16];
    let length = match rustix::net::recv(socket, &mut buffer, RecvFlags::empty()) {
        Ok((length, _)) => length,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return false,
        Err(error) => panic!("announcements are lost: {error}"),
    };
    let at = Instant::now();
    let mut rest = &buffer[..length];
    while rest.len() >= 16 {
        let whole = usize::try_from(u32_at(rest, 0)).unwrap();
        let (kind, by) = (u16_at(rest, 4), u32_at(rest, 12));
        if kind == DONE {
            return true;
        }
        if let Some((thing, gone)) = thing(kind, &rest[16..whole]) {
            each(Announced {
                at,
                by,
                gone,
                thing,
            });
        }
        rest = &rest[whole.next_multiple_of(4).min(rest.len())..];
    }
    false
}

/// What a message is about, and whether that is gone.
fn thing(kind: u16, body: &[u8]) -> Option<(Thing, bool)> {
    let gone = kind % 4 == 1;
    let thing = match kind {
        16 | 17 if body[0] == 0 => {
            const UP: u32 = 0x1;
            const RUNNING: u32 = 0x40;
            let flags = u32_at(body, 8);
            let service = match (flags & UP != 0, flags & RUNNING != 0) {
                (false, _) => Service::Down,
                (true, false) => Service::Waiting,
                (true, true) => Service::Running,
            };
            Thing::Link(u32_at(body, 4), service)
        }
        20 | 21 => {
            const TENTATIVE: u32 = 0x40;
            const OPTIMISTIC: u32 = 0x04;
            let told = attributes(&body[8..]);
            let address = told.get(&2).or(told.get(&1))?;
            let flags = told
                .get(&8)
                .map_or(body[2].into(), |flags| u32_at(flags, 0));
            let usable = flags & TENTATIVE == 0 || flags & OPTIMISTIC != 0;
            Thing::Address(u32_at(body, 4), address_in(address)?, usable)
        }
        24 | 25 => {
            const UNICAST: u8 = 1;
            if body[7] != UNICAST {
                return None;
            }
            let told = attributes(&body[12..]);
            let number = |attribute| told.get(&attribute).map(|value| u32_at(value, 0));
            Thing::Route {
                family: family(body[0])?,
                table: number(15).unwrap_or(body[4].into()),
                protocol: body[5],
                to: match told.get(&1) {
                    Some(to) if body[1] > 0 => Some((address_in(to)?, body[1])),
                    _ => None,
                },
                via: told.get(&5).and_then(|via| address_in(via)),
                link: number(4).unwrap_or(0),
                metric: number(6).unwrap_or(0),
            }
        }
        32 | 33 => {
            let told = attributes(&body[12..]);
            let number = |attribute| told.get(&attribute).map(|value| u32_at(value, 0));
            Thing::Rule {
                family: family(body[0])?,
                priority: number(6).unwrap_or(0),
                protocol: told.get(&21).map_or(0, |value| value[0]),
                table: number(15).unwrap_or(body[4].into()),
                from: told.get(&2).and_then(|from| address_in(from)),
            }
        }
        _ => return None,
    };
    Some((thing, gone))
}

fn attributes(mut rest: &[u8]) -> BTreeMap<u16, &[u8]> {
    let mut found = BTreeMap::new();
    while rest.len() >= 4 {
        let length = usize::from(u16_at(rest, 0)).clamp(4, rest.len());
        found.insert(u16_at(rest, 2) & 0x3fff, &rest[4..length]);
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    found
}

fn family(number: u8) -> Option<Family> {
    match number {
        2 => Some(Family::Ipv4),
        10 => Some(Family::Ipv6),
        _ => None,
    }
}

fn address_in(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    let sixteen = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(sixteen).into())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}
