//! From what a client's hook received to one event about one interface.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::Ipv6Network;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::address::Family;
use crate::client::Client;
use crate::interface::{InterfaceRef, InvalidInterface};
use crate::lease::{Lease4, Lease6};

/// What a hook received, before anything in it is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawEvent {
    /// The client whose hook ran.
    pub client: Client,
    /// The hook's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// The hook's environment. Bytes that are not UTF-8 are U+FFFD, which no address or
    /// name contains.
    pub variables: BTreeMap<String, String>,
    /// The lease file that the client keeps for the interface, for clients whose hooks are
    /// not told of leases.
    #[serde(default, skip_serializing_if = "LeaseFile::is_absent")]
    pub lease_file: LeaseFile,
}

/// What was found in the place of a client's lease file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseFile {
    /// Nothing: there is no lease, or the client keeps no such files.
    #[default]
    Absent,
    /// Something that could not be read, which tells nothing of a lease.
    Unreadable,
    /// What it holds.
    Text(String),
}

impl LeaseFile {
    /// What it holds, if it holds anything.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Unreadable => None,
        }
    }

    fn is_absent(&self) -> bool {
        *self == Self::Absent
    }
}

impl RawEvent {
    /// What a hook without arguments received.
    #[must_use]
    pub fn new(client: Client, variables: BTreeMap<String, String>) -> Self {
        Self {
            client,
            arguments: Vec::new(),
            variables,
            lease_file: LeaseFile::Absent,
        }
    }

    /// A variable's value; an empty one counts as not given.
    #[must_use]
    pub fn get(&self, variable: &str) -> Option<&str> {
        self.variables
            .get(variable)
            .map(|value| value.trim_matches([' ', '\t']))
            .filter(|value| !value.is_empty())
    }
}

/// What happened to one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The interface as the client called it.
    pub interface: InterfaceRef,
    /// The reason as the client called it, for people.
    pub reason: String,
    /// What it means: at most one change for each family.
    pub changes: Vec<LeaseChange>,
    /// Whether the client puts the addresses that it gained on the interface only after this,
    /// and tells of them once more then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
}

impl Event {
    /// The families that it concerns.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        self.changes.iter().map(LeaseChange::family)
    }

    /// Whether any of it was gained, so that there has to be an interface for it.
    #[must_use]
    pub fn brings_lease(&self) -> bool {
        self.changes.iter().any(LeaseChange::brings_lease)
    }

    /// The families' names, for messages.
    #[must_use]
    pub fn family_names(&self) -> String {
        let names: Vec<String> = self.families().map(|family| family.to_string()).collect();
        names.join(" and ")
    }
}

/// What an event means for the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseChange {
    /// An IPv4 lease was gained, renewed or changed; it replaces what was known.
    Gained4(Lease4),
    /// The IPv4 lease is gone. With an address: only if that is the one that is known.
    Lost4(Option<Ipv4Addr>),
    /// Parts of the DHCPv6 lease changed.
    Changed6 {
        /// Whether `gained` is all there is, so that what it does not name is gone.
        replace: bool,
        /// Addresses and prefixes that are leased now.
        gained: Lease6,
        /// Addresses that are gone.
        lost_addresses: Vec<Ipv6Addr>,
        /// Prefixes that are gone.
        lost_prefixes: Vec<Ipv6Network>,
    },
    /// The whole DHCPv6 lease is gone.
    Lost6,
    /// The prefixes that routers advertise for autoconfiguration are these. What DHCPv6
    /// leased is as it was known.
    Advertised(BTreeSet<Ipv6Network>),
    /// The lease is as it was known, or not known; what the kernel holds beside it may have
    /// changed.
    LookAgain(Family),
}

impl LeaseChange {
    /// The family that the change concerns.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Gained4(_) | Self::Lost4(_) => Family::Ipv4,
            Self::Changed6 { .. } | Self::Lost6 | Self::Advertised(_) => Family::Ipv6,
            Self::LookAgain(family) => *family,
        }
    }

    /// The same, told of at a moment in seconds since 1970: whatever lasts for a time has an
    /// end.
    #[must_use]
    pub fn begun(mut self, at: u64) -> Self {
        match &mut self {
            Self::Gained4(lease) => lease.begin(at),
            Self::Changed6 { gained, .. } => gained.begin(at),
            Self::Lost4(_) | Self::Lost6 | Self::Advertised(_) | Self::LookAgain(_) => {}
        }
        self
    }

    /// Whether something is leased by it.
    pub(crate) fn brings_lease(&self) -> bool {
        match self {
            Self::Gained4(_) => true,
            Self::Changed6 { gained, .. } => !gained.is_empty(),
            Self::Lost4(_) | Self::Lost6 | Self::Advertised(_) | Self::LookAgain(_) => false,
        }
    }

    /// The addresses that the client puts on the interface because of it.
    pub(crate) fn gained_addresses(&self) -> BTreeSet<IpAddr> {
        match self {
            Self::Gained4(lease) => [lease.address.into()].into(),
            Self::Changed6 { gained, .. } => {
                gained.addresses.keys().copied().map(IpAddr::V6).collect()
            }
            Self::Lost4(_) | Self::Lost6 | Self::Advertised(_) | Self::LookAgain(_) => {
                BTreeSet::new()
            }
        }
    }

    /// Whether it is an end that names no address.
    pub(crate) fn is_nameless_loss(&self) -> bool {
        matches!(self, Self::Lost4(None) | Self::Lost6)
    }

    /// Whether it tells of a part of a lease and leaves the rest as it was known.
    pub(crate) fn is_part(&self) -> bool {
        matches!(
            self,
            Self::Changed6 { replace: false, .. } | Self::Advertised(_)
        )
    }

    /// Whether it names nothing, gained or lost, and leaves what is known. DHCPv6 without
    /// addresses (dhclient -6 -S) tells such, too.
    pub(crate) fn says_nothing(&self) -> bool {
        match self {
            Self::Changed6 {
                replace,
                gained,
                lost_addresses,
                lost_prefixes,
            } => {
                !replace
                    && gained.is_empty()
                    && lost_addresses.is_empty()
                    && lost_prefixes.is_empty()
            }
            Self::Gained4(_) | Self::Lost4(_) | Self::Lost6 => false,
            Self::Advertised(prefixes) => prefixes.is_empty(),
            Self::LookAgain(_) => true,
        }
    }
}

/// What parsing a [`RawEvent`] gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parsed {
    /// The event; `None` when the client's reason changes no lease.
    pub event: Option<Event>,
    /// Fields that were dropped on the way, each worth a log line.
    pub dropped: Vec<Dropped>,
}

/// A field that was not used, and why. A dropped field is not a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The variable's name.
    pub field: String,
    /// Its value, cut to a length that fits a log line.
    pub value: Quoted<String>,
    /// Why it was dropped, and what is done instead.
    pub why: String,
}

impl Dropped {
    /// Notes that `field` was dropped.
    #[must_use]
    pub fn new(field: impl Into<String>, value: &str, why: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            value: Quoted::shortened(value),
            why: why.into(),
        }
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dropped {} {}: {}", self.field, self.value, self.why)
    }
}

/// Why an event is refused whole.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The reason needs an interface and none was given.
    #[error("reason {reason} came without an interface (variable {variable})")]
    NoInterface {
        /// The client's reason.
        reason: String,
        /// The variable that should name it.
        variable: &'static str,
    },
    /// What was given is no interface name.
    #[error("variable {variable}: {source}")]
    BadInterface {
        /// The variable that names it.
        variable: &'static str,
        /// What is wrong with it.
        source: InvalidInterface,
    },
    /// The reason says that a lease was gained, and no address was given.
    #[error("reason {reason} came without an address (variable {variable})")]
    NoAddress {
        /// The client's reason.
        reason: String,
        /// The variable that should hold it.
        variable: &'static str,
    },
    /// The leased address is none that a host can have.
    #[error(
        "variable {variable}: {value} is not an address that can be leased; the lease is refused"
    )]
    ImpossibleAddress {
        /// The variable that holds it.
        variable: &'static str,
        /// The value, quoted.
        value: Quoted<String>,
    },
}

/// A foreign text in quotes, with everything escaped that could break a line or a
/// terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quoted<T>(pub T);

/// The most of a foreign text that a message shows, in bytes.
const SHOWN: usize = 120;

impl Quoted<String> {
    /// A text cut to what a log line can take.
    #[must_use]
    pub fn shortened(text: &str) -> Self {
        if text.len() <= SHOWN {
            return Self(text.to_owned());
        }
        let end = (0..=SHOWN).rev().find(|&i| text.is_char_boundary(i));
        let head = text.get(..end.unwrap_or(0)).unwrap_or_default();
        Self(format!("{head}… ({} bytes)", text.len()))
    }
}

impl<T: AsRef<str>> fmt::Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.as_ref().escape_debug())
    }
}
