//! `leaseroute status --verify`: asks the kernel by which interface replies leave.

use std::fmt;
use std::net::IpAddr;

use leaseroute_core::{DesiredState, Family, IfIndex, Purpose, TableId, desired_state};
use leaseroute_kernel::{Netlink, ReplyPath};
use serde::Serialize;

use crate::error::CliError;
use crate::request::FarEnds;
use crate::world::World;

/// The way that replies from one source take.
#[derive(Debug, Serialize)]
pub(crate) struct Reply {
    source: IpAddr,
    to: IpAddr,
    /// The interface they leave by; `null` when the kernel would not send them.
    leaves_by: Option<String>,
    gateway: Option<IpAddr>,
    /// The table that held the route.
    table: Option<TableId>,
    verdict: Verdict,
}

/// What to make of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// They leave by the interface of their source.
    Own,
    /// They leave by another one, although the own interface has a default route.
    Other,
    /// They are not sent at all, although the own interface has a default route.
    Unsent,
    /// The interface has no default route of its own, so far ends are none of its
    /// business.
    NoDefault,
    /// The far end is this host.
    Local,
}

impl Reply {
    /// Whether a peer that reached the source would wait for the reply in vain.
    pub(crate) fn goes_astray(&self) -> bool {
        matches!(self.verdict, Verdict::Other | Verdict::Unsent)
    }
}

/// Asks about every source of an interface in one family. Delegated prefixes, and addresses
/// that the host has given to a container, are left out: their packets are forwarded, and the
/// kernel has no address to ask for.
///
/// # Errors
///
/// When the kernel cannot be asked.
pub(crate) fn ask(
    kernel: &Netlink,
    world: &World,
    index: IfIndex,
    family: Family,
    far: FarEnds,
) -> Result<Vec<Reply>, CliError> {
    let settings = &world.loaded.settings;
    let desired = desired_state(family, &world.host, &world.book, settings);
    let Some(uplink) = desired.uplinks.iter().find(|u| u.device.index == index) else {
        return Ok(Vec::new());
    };
    let has_default = has_default(&desired, world, index);
    let mut replies = Vec::new();
    for source in uplink
        .sources
        .iter()
        .filter(|s| s.prefix() == family.host_length())
        .filter(|s| world.host.has_address(index, s.ip()))
    {
        let (source, to) = (source.ip(), far.of(family));
        let path = kernel.route_get(source, to, None)?;
        let device = path.as_ref().and_then(|path| path.device);
        let name = device.and_then(|device| world.host.links.get(&device));
        replies.push(Reply {
            source,
            to,
            leaves_by: name.map(|link| link.name.to_string()),
            gateway: path.and_then(|path| path.gateway),
            table: path.map(|path| path.table),
            verdict: Verdict::new(path, index, has_default),
        });
    }
    Ok(replies)
}

/// Whether packets from an interface have a default route that leads through it: in its
/// own table while rules are in force, else in main.
fn has_default(desired: &DesiredState, world: &World, index: IfIndex) -> bool {
    let family = desired.family;
    if desired.active {
        let mut routes = desired.routes.iter();
        routes.any(|(r, purpose)| r.device.index == index && *purpose == Purpose::Default)
    } else {
        let mut routes = world.host.main.iter();
        routes.any(|r| r.oif == Some(index) && r.family() == family && r.destination.prefix() == 0)
    }
}

impl Verdict {
    fn new(path: Option<ReplyPath>, own: IfIndex, has_default: bool) -> Self {
        match path {
            Some(path) if path.local => Self::Local,
            Some(path) if path.device == Some(own) => Self::Own,
            _ if !has_default => Self::NoDefault,
            Some(_) => Self::Other,
            None => Self::Unsent,
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, to, .. } = self;
        match self.verdict {
            Verdict::Local => {
                return write!(
                    f,
                    "{to} is this host: nothing to say about replies from {source}"
                );
            }
            Verdict::Unsent => {
                return write!(
                    f,
                    "WRONG: replies from {source} to {to} are not sent: no route"
                );
            }
            Verdict::Other => f.write_str("WRONG: ")?,
            Verdict::Own | Verdict::NoDefault => {}
        }
        match &self.leaves_by {
            Some(name) => write!(f, "replies from {source} leave by {name}")?,
            None => write!(f, "replies from {source} are not sent")?,
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(table) = self.table {
            write!(f, " (table {table})")?;
        }
        if self.verdict == Verdict::NoDefault {
            f.write_str(", since its interface has no default route of its own")?;
        }
        Ok(())
    }
}
