//! Leases that were there before us, and those that clients renew without a word.
//!
//! Installing a package on a running machine brings no event: the leases are old. What each
//! client keeps of them in its files is made into the event that its hook would have had, and
//! where no file tells of an address, the kernel shows that it was leased. A lease counts as
//! far as the kernel bears it out: its address is on the card now, and its time has not
//! passed; for a file from before this boot, the kernel itself must call the address leased.
//! What the book knows and the kernel bears out is never asked for again.
//!
//! Files are found by the names and indexes that the kernel gives cards; dhclient's tell
//! themselves which card each lease is of. The short runs of DHCP that an initramfs or cloud-init makes keep theirs in
//! `/run` and `/var/tmp`, where nothing is looked for.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ipnetwork::{IpNetwork, Ipv4Network};
use leaseroute_core::stored::{self, dhclient, dhcpcd, networkd, networkmanager};
use leaseroute_core::{
    Dropped, Event, Family, Host, IfIndex, InterfaceName, Lease, Lease4, LeaseBook, LeaseChange,
    LeaseFile, LeaseState, Link, LinkAddress, Quoted, RawEvent, Settings, is_link_local,
    is_unicast_host,
};
use rustix::time::{ClockId, clock_gettime};
use tracing::debug;

use crate::files;

/// The most entries of a folder that are looked at, and how many files are read of those
/// whose names can be meant.
const ENTRIES: usize = 4096;
const READ: usize = 256;

/// The most addresses of a card that are told.
const ADDRESSES: usize = 64;

/// A lease that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it means.
    pub event: Event,
    /// What the client's hook would have been told.
    pub raw: RawEvent,
    /// Where it was found, fit for a message: a path in quotation marks, or the kernel.
    pub from: String,
    /// What in it could not be believed.
    pub dropped: Vec<Dropped>,
}

/// What clients have stored.
#[derive(Clone, Debug)]
pub struct Stored {
    root: PathBuf,
    booted: Option<u64>,
}

/// What a file told of a card.
struct Candidate {
    index: IfIndex,
    path: PathBuf,
    written: SystemTime,
    /// Whether it was written before this boot.
    is_old: bool,
    found: Found,
}

impl Candidate {
    /// Whether the card has the address. Since an earlier boot somebody may have set it by
    /// hand, so then it must be one that the kernel calls leased.
    fn is_borne_out_by(&self, host: &Host, address: IpAddr) -> bool {
        let mut addresses = host.addresses_of(self.index, Family::of(address));
        addresses.any(|found| {
            let is_leased = !self.is_old || !found.flags.permanent;
            found.address.ip() == address && !found.flags.dad_failed && is_leased
        })
    }
}

impl Stored {
    /// What clients have stored below a folder, which is `/` on a running host.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            booted: None,
        }
    }

    /// The same on a host that was started at another moment than this one, in seconds since
    /// 1970.
    #[must_use]
    pub fn of_host_started(self, booted: u64) -> Self {
        Self {
            booted: Some(booted),
            ..self
        }
    }

    /// The folders whose files change when a client that runs no hook renews a lease. They
    /// need not exist.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        [networkd::LEASES, networkmanager::DEVICES]
            .map(|folder| self.at(folder))
            .into()
    }

    /// The leases of cards that the book holds none for, or none that the kernel bears out.
    /// `host` has the links, the addresses of both families and the IPv4 default routes of
    /// table main; `now` is in seconds since 1970.
    #[must_use]
    pub fn adopt(
        &self,
        host: &Host,
        book: &LeaseBook,
        settings: &Settings,
        now: u64,
    ) -> Vec<Found> {
        let is_meant = |link: &&Link| {
            link.up && !link.loopback && link.master.is_none() && settings.of(link).manage
        };
        let links = host.links.values().filter(is_meant);
        let lacking: Vec<(&Link, Family)> = links
            .flat_map(|link| Family::BOTH.map(|family| (link, family)))
            .filter(|(link, family)| may_be_leased(host, link, *family))
            .filter(|(link, family)| !is_borne_out(host, book, link.index, *family))
            .collect();
        if lacking.is_empty() {
            return Vec::new();
        }
        let mut stored = self.read_all(host, &lacking, now);
        let booted = self.booted.unwrap_or_else(|| now.saturating_sub(uptime()));
        let run = self.at("/run");
        for candidate in &mut stored {
            // What is in `/run` is of this boot, however the clock was set since.
            candidate.is_old =
                seconds(candidate.written) < booted && !candidate.path.starts_with(&run);
        }
        stored.sort_by_key(|candidate| std::cmp::Reverse(candidate.written));
        let mut found = Vec::new();
        for (link, family) in lacking {
            let record = book.get(link.index, family);
            let lost = record.filter(|record| record.state == LeaseState::Lost);
            // A file that is older than the word that the lease is gone tells nothing new.
            let since = lost.map_or(0, |record| record.updated);
            let of_card = stored.iter().filter(|candidate| {
                candidate.index == link.index && seconds(candidate.written) >= since
            });
            let mut fitting = of_card.filter_map(|candidate| match family {
                Family::Ipv4 => fitting4(candidate, host, now),
                Family::Ipv6 => fitting6(candidate, host, link, now),
            });
            if let Some(newest) = fitting.next() {
                // DHCPv6 comes in parts.
                let from = newest.from.clone();
                found.push(newest);
                if family == Family::Ipv6 {
                    found.extend(fitting.filter(|part| part.from == from));
                }
            } else if family == Family::Ipv4 && lost.is_none() {
                found.extend(shown_by_kernel(host, link));
            }
        }
        found
    }

    /// Whether a file in one of [`Stored::folders`] can be a lease, by its name. networkd and
    /// NetworkManager write to others beside it first.
    #[must_use]
    pub fn concerns(&self, file: &Path) -> bool {
        file_name(file).is_some_and(|name| stored::card(name).is_some())
    }

    /// What a file in one of [`Stored::folders`] means now that it has changed or is gone;
    /// `None` when that is nothing. `host` has the links and the IPv4 addresses.
    #[must_use]
    pub fn read(&self, file: &Path, host: &Host, book: &LeaseBook) -> Option<Found> {
        let folder = file.parent()?;
        let link = host.links.get(&stored::card(file_name(file)?)?)?;
        if folder == self.at(networkd::LEASES) {
            self.networkd_changed(file, link, host, book)
        } else if folder == self.at(networkmanager::DEVICES) {
            let (text, _) = text(file)?;
            let raw = networkmanager::event(&link.name, &text)?;
            understood(with_addresses(raw, host, link), file)
        } else {
            None
        }
    }

    /// networkd removes its file before it takes the address off the card, and while it
    /// restarts; so as long as the card has a leased address the lease has not ended. One that
    /// lasts for ever, or that networkd keeps (`KeepConfiguration=`), is permanent for the
    /// kernel: that it is leased is known from the book.
    fn networkd_changed(
        &self,
        file: &Path,
        link: &Link,
        host: &Host,
        book: &LeaseBook,
    ) -> Option<Found> {
        let lease = match files::read(file, stored::MAX_FILE) {
            Ok(text) => LeaseFile::Text(String::from_utf8_lossy(&text).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => LeaseFile::Absent,
            Err(_) => LeaseFile::Unreadable,
        };
        let state = self.at(networkd::LINKS).join(link.index.to_string());
        let state = text(&state).map(|(text, _)| text);
        let raw = networkd::event(&link.name, state.as_deref(), lease);
        let mut found = understood(raw, file)?;
        let is_kept = |lease: &Lease4| host.has_address(link.index, lease.address.into());
        let is_there = leased4(host, link.index).next().is_some()
            || book.lease4(link.index).is_some_and(is_kept);
        if is_there {
            for change in &mut found.event.changes {
                if *change == LeaseChange::Lost4(None) {
                    *change = LeaseChange::LookAgain(Family::Ipv4);
                }
            }
        }
        Some(found)
    }

    /// All that the files of clients tell of these cards.
    fn read_all(&self, host: &Host, lacking: &[(&Link, Family)], now: u64) -> Vec<Candidate> {
        let mut links: Vec<&Link> = lacking.iter().map(|(link, _)| *link).collect();
        links.dedup_by_key(|link| link.index);
        let mut all = Vec::new();
        for (link, family) in lacking {
            if *family == Family::Ipv4 {
                self.read_indexed(host, link, &mut all);
            }
        }
        let wanted = |link: &&Link| links.iter().any(|wanted| wanted.index == link.index);
        let of_dhcpcd = |file: &str| {
            let is_of = |name: &InterfaceName| dhcpcd::lease_file(name, file).is_some();
            named_after(host, is_of).filter(wanted)
        };
        for folder in dhcpcd::FOLDERS {
            for (path, link) in self.files(folder, of_dhcpcd) {
                read_dhcpcd(&path, link, now, &mut all);
            }
        }
        let of_dhclient = |file: &str| dhclient::is_lease_file(file).then_some(());
        let of_internal = |file: &str| {
            let is_of = |name: &InterfaceName| networkmanager::is_internal_lease(name, file);
            named_after(host, is_of).filter(wanted)
        };
        for folder in dhclient::FOLDERS {
            let is_networkmanager = folder == networkmanager::LEASES;
            for (path, ()) in self.files(folder, of_dhclient) {
                read_dhclient(&path, host, &links, is_networkmanager, &mut all);
            }
            if is_networkmanager {
                for (path, link) in self.files(folder, of_internal) {
                    read_internal(&path, host, link, &mut all);
                }
            }
        }
        all
    }

    /// The files that networkd and NetworkManager name after a card's index.
    fn read_indexed(&self, host: &Host, link: &Link, all: &mut Vec<Candidate>) {
        let path = |folder: &str| self.at(folder).join(link.index.to_string());
        let of_networkd = path(networkd::LEASES);
        if let Some((text, written)) = text(&of_networkd) {
            let raw = networkd::event(&link.name, None, LeaseFile::Text(text));
            all.extend(candidate(raw, &of_networkd, link, written));
        }
        let of_networkmanager = path(networkmanager::DEVICES);
        if let Some((text, written)) = text(&of_networkmanager)
            && let Some(raw) = networkmanager::event(&link.name, &text)
        {
            let raw = with_addresses(raw, host, link);
            all.extend(candidate(raw, &of_networkmanager, link, written));
        }
    }

    /// The newest files of a folder among those whose names mean something, with what they
    /// mean.
    fn files<M>(&self, folder: &str, meaning: impl Fn(&str) -> Option<M>) -> Vec<(PathBuf, M)> {
        let Ok(entries) = fs::read_dir(self.at(folder)) else {
            return Vec::new();
        };
        let paths = entries.take(ENTRIES).filter_map(Result::ok);
        let meant = paths.map(|entry| entry.path()).filter_map(|path| {
            let meaning = meaning(file_name(&path)?)?;
            let written = fs::metadata(&path)
                .and_then(|found| found.modified())
                .ok()?;
            Some((written, path, meaning))
        });
        let mut meant: Vec<_> = meant.collect();
        meant.sort_by_key(|(written, ..)| std::cmp::Reverse(*written));
        let files = meant.into_iter().map(|(_, path, meaning)| (path, meaning));
        files.take(READ).collect()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// The card that a file is named after, where names may begin or end alike: the one with
/// the longest.
fn named_after(host: &Host, is_of: impl Fn(&InterfaceName) -> bool) -> Option<&Link> {
    let links = host.links.values().filter(|link| is_of(&link.name));
    links.max_by_key(|link| link.name.as_str().len())
}

fn read_dhcpcd(path: &Path, link: &Link, now: u64, all: &mut Vec<Candidate>) {
    let kind = file_name(path).and_then(|file| dhcpcd::lease_file(&link.name, file));
    let (Some(kind), Ok((message, written))) = (kind, files::read_dated(path, stored::MAX_FILE))
    else {
        return;
    };
    let age = now.saturating_sub(seconds(written));
    let raw = match kind {
        dhcpcd::Kind::Ipv4 => dhcpcd::event4(&link.name, &message, age),
        dhcpcd::Kind::Ipv6 => dhcpcd::event6(&link.name, &message, age),
    };
    all.extend(raw.and_then(|raw| candidate(raw, path, link, written)));
}

fn read_dhclient(
    path: &Path,
    host: &Host,
    links: &[&Link],
    is_networkmanager: bool,
    all: &mut Vec<Candidate>,
) {
    let Some((text, written)) = text(path) else {
        return;
    };
    for raw in dhclient::events(&text) {
        let interface = raw.get("interface").and_then(|name| name.parse().ok());
        let Some(link) = interface.and_then(|interface| host.resolve(&interface)) else {
            continue;
        };
        if !links.iter().any(|wanted| wanted.index == link.index) {
            continue;
        }
        let told = match networkmanager::event_of_dhclient(&link.name, &raw) {
            Some(told) if is_networkmanager => with_addresses(told, host, link),
            _ => raw,
        };
        all.extend(candidate(told, path, link, written));
    }
}

/// The file of NetworkManager's internal client, which new versions write an address to and
/// nothing else.
fn read_internal(path: &Path, host: &Host, link: &Link, all: &mut Vec<Candidate>) {
    let Some((text, written)) = text(path) else {
        return;
    };
    let router = router(host, link.index);
    if let Some(raw) = networkmanager::event_of_lease(&link.name, &text, router) {
        let raw = with_addresses(raw, host, link);
        all.extend(candidate(raw, path, link, written));
    }
}

/// For how many seconds the host has run.
fn uptime() -> u64 {
    let since_boot = clock_gettime(ClockId::Boottime).tv_sec;
    since_boot.try_into().unwrap_or_default()
}

/// A moment in seconds since 1970.
fn seconds(moment: SystemTime) -> u64 {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// A file's text and when it was written; `None` when there is none to be had.
fn text(path: &Path) -> Option<(String, SystemTime)> {
    match files::read_dated(path, stored::MAX_FILE) {
        Ok((text, written)) => Some((String::from_utf8_lossy(&text).into_owned(), written)),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                debug!("{path:?} is no lease file: {error}");
            }
            None
        }
    }
}

fn file_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// What a file told of a card. What its lease lasts counts from when the file was written.
fn candidate(raw: RawEvent, path: &Path, link: &Link, written: SystemTime) -> Option<Candidate> {
    let mut found = understood(raw, path)?;
    let changes = found.event.changes.into_iter();
    let begun = changes.map(|change| change.begun(seconds(written)));
    found.event.changes = begun.collect();
    Some(Candidate {
        index: link.index,
        path: path.to_owned(),
        written,
        is_old: false,
        found,
    })
}

/// What the client's parser makes of it.
fn understood(raw: RawEvent, path: &Path) -> Option<Found> {
    let from = Quoted(path.display().to_string());
    understood_from(raw, from.to_string())
}

fn understood_from(raw: RawEvent, from: String) -> Option<Found> {
    match raw.client.parse(&raw) {
        Ok(parsed) => Some(Found {
            event: parsed.event?,
            raw,
            from,
            dropped: parsed.dropped,
        }),
        Err(refusal) => {
            debug!("{from}: refused: {refusal}");
            None
        }
    }
}

/// Tells the addresses of a card beside those of a lease.
fn with_addresses(raw: RawEvent, host: &Host, link: &Link) -> RawEvent {
    let addresses = host.addresses_of(link.index, Family::Ipv4);
    let addresses = addresses.filter_map(usable4).take(ADDRESSES);
    networkmanager::with_addresses(raw, addresses)
}

/// Whether a card shows anything that a client may have brought. Delegated prefixes are not
/// on the card.
fn may_be_leased(host: &Host, link: &Link, family: Family) -> bool {
    match family {
        Family::Ipv4 => {
            let mut addresses = host.addresses_of(link.index, Family::Ipv4);
            addresses.any(|address| usable4(address).is_some())
        }
        Family::Ipv6 => link.carrier,
    }
}

/// Whether the lease of the book is one that the kernel bears out.
fn is_borne_out(host: &Host, book: &LeaseBook, index: IfIndex, family: Family) -> bool {
    let is_there = |address: IpAddr| host.has_address(index, address);
    match book.lease(index, family) {
        None => false,
        Some(Lease::Ipv4(lease)) => {
            let mut addresses = lease.others.iter().chain([&lease.address]);
            addresses.any(|address| is_there((*address).into()))
        }
        Some(Lease::Ipv6(lease)) => {
            let mut addresses = lease.addresses.keys();
            !lease.prefixes.is_empty() || addresses.any(|address| is_there((*address).into()))
        }
    }
}

/// A candidate whose IPv4 lease is in force.
fn fitting4(candidate: &Candidate, host: &Host, now: u64) -> Option<Found> {
    let lease = candidate
        .found
        .event
        .changes
        .iter()
        .find_map(|change| match change {
            LeaseChange::Gained4(lease) => Some(lease),
            _ => None,
        })?;
    let is_there = candidate.is_borne_out_by(host, lease.address.into());
    let is_alive = lease.expires.is_none_or(|end| end > now);
    (is_there && is_alive).then(|| candidate.found.clone())
}

/// A candidate with what of its DHCPv6 lease is in force and not the kernel's to show:
/// addresses that the kernel calls permanent, and delegated prefixes. A prefix that comes
/// with an address is in force with it; for one alone the card must have a carrier.
fn fitting6(candidate: &Candidate, host: &Host, link: &Link, now: u64) -> Option<Found> {
    let index = link.index;
    let is_permanent = |address: IpAddr| {
        let mut addresses = host.addresses_of(index, Family::Ipv6);
        addresses.any(|a| a.address.ip() == address && a.flags.permanent && !a.flags.dad_failed)
    };
    let is_alive = |end: Option<u64>| end.is_none_or(|end| end > now);
    let mut found = candidate.found.clone();
    found.event.changes = candidate
        .found
        .event
        .changes
        .iter()
        .filter_map(|change| {
            let LeaseChange::Changed6 { gained, .. } = change else {
                return None;
            };
            let mut kept = gained.clone();
            let is_there = |address: IpAddr| candidate.is_borne_out_by(host, address);
            let mut addresses = gained.addresses.keys();
            let is_borne_out = match gained.addresses.is_empty() {
                true => link.carrier && !candidate.is_old,
                false => addresses.any(|address| is_there((*address).into())),
            };
            if !is_borne_out {
                return None;
            }
            kept.addresses.retain(|address, leased| {
                is_permanent((*address).into()) && is_alive(leased.expires)
            });
            kept.prefixes.retain(|_, leased| is_alive(leased.expires));
            (!kept.is_empty()).then_some(LeaseChange::Changed6 {
                replace: false,
                gained: kept,
                lost_addresses: Vec::new(),
                lost_prefixes: Vec::new(),
            })
        })
        .collect();
    (!found.event.changes.is_empty()).then_some(found)
}

/// The addresses of a card that somebody leased and that no file tells of, with the router of
/// its best default route in table main.
fn shown_by_kernel(host: &Host, link: &Link) -> Option<Found> {
    let addresses: Vec<Ipv4Network> = leased4(host, link.index).take(ADDRESSES).collect();
    if addresses.is_empty() {
        return None;
    }
    let router = router(host, link.index);
    let raw = stored::shown_by_kernel(&link.name, addresses, router);
    understood_from(raw, "the kernel".to_owned())
}

/// The IPv4 addresses of a card that have a lifetime.
fn leased4(host: &Host, index: IfIndex) -> impl Iterator<Item = Ipv4Network> {
    let addresses = host.addresses_of(index, Family::Ipv4);
    addresses
        .filter(|address| !address.flags.permanent)
        .filter_map(usable4)
}

fn usable4(address: &LinkAddress) -> Option<Ipv4Network> {
    let IpNetwork::V4(network) = address.address else {
        return None;
    };
    let ip = IpAddr::V4(network.ip());
    let is_usable = is_unicast_host(ip) && !is_link_local(ip) && !address.flags.dad_failed;
    is_usable.then_some(network)
}

/// The gateway of a card's default route in table main with the lowest metric.
fn router(host: &Host, index: IfIndex) -> Option<Ipv4Addr> {
    let through_card = host
        .main
        .iter()
        .filter(|route| route.family() == Family::Ipv4 && route.is_default())
        .filter(|route| route.oif == Some(index));
    let best = through_card.min_by_key(|route| route.metric)?;
    match best.gateway {
        Some(IpAddr::V4(gateway)) => Some(gateway),
        _ => None,
    }
}
