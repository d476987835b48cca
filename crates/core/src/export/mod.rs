//! The desired state in the words of those who persist configuration.
//!
//! Pure text: who calls decides whether it is printed or written, and where. Every format
//! is one file here; `card` puts what all of them say into one form, `yaml` and `text` are
//! how values are kept from breaking out of a format. Whatever a format cannot say, its
//! file says in a comment, beside the nearest safe thing.
//!
//! What is written is a picture of the moment: its numbers and addresses are those of now,
//! and a lease that changes does not change it.

mod card;
mod description;
mod ip;
mod netplan;
mod networkd;
mod nmconnection;
mod nmstate;
mod text;
mod yaml;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::address::Family;
use crate::book::LeaseBook;
use crate::host::Host;
use crate::model::DesiredState;
use crate::settings::Settings;

pub use description::{Description, describe};

use card::Card;

/// How the first line of every exported file begins. A file that does not begin so is
/// somebody else's.
pub const MARK: &str = "# leaseroute export";

/// In whose words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// netplan(5).
    Netplan,
    /// systemd.network(5).
    Networkd,
    /// nmstate, as `nmstatectl` and nmstate.service read it.
    Nmstate,
    /// nm-settings-keyfile(5) of NetworkManager.
    Nmconnection,
    /// A shell script of ip(8) commands.
    Ip,
}

/// Why a text names no format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} is no export format", crate::Quoted(.0))]
pub struct InvalidFormat(String);

/// Where the files of a format belong, and who reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The folder, below the root of a system.
    pub folder: &'static str,
    /// How the names of our files in it begin.
    pub prefix: &'static str,
    /// How they end.
    pub suffix: &'static str,
    /// The command that makes the program read them.
    pub command: &'static str,
}

/// How a format is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// netplan only: whether its rules have priorities, as its NetworkManager back end
    /// needs them.
    pub priorities: bool,
}

/// One moment of a host, and what should be there.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The host.
    pub host: &'a Host,
    /// Its leases.
    pub book: &'a LeaseBook,
    /// How it is configured.
    pub settings: &'a Settings,
    /// What should be there of IPv4.
    pub ipv4: &'a DesiredState,
    /// What should be there of IPv6.
    pub ipv6: &'a DesiredState,
}

/// A file to be written or printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// Where it belongs, below the root of a system; for what no program reads by itself a
    /// bare name.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// What it holds.
    pub text: String,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [
        Self::Netplan,
        Self::Networkd,
        Self::Nmstate,
        Self::Nmconnection,
        Self::Ip,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Netplan => "netplan",
            Self::Networkd => "networkd",
            Self::Nmstate => "nmstate",
            Self::Nmconnection => "nmconnection",
            Self::Ip => "ip",
        }
    }

    /// Who reads such files; `None` where no program does by itself.
    #[must_use]
    pub const fn reader(self) -> Option<Reader> {
        Some(match self {
            Self::Netplan => netplan::READER,
            Self::Networkd => networkd::READER,
            Self::Nmstate => nmstate::READER,
            Self::Nmconnection => nmconnection::READER,
            Self::Ip => return None,
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = InvalidFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|format| format.name() == text)
            .ok_or_else(|| InvalidFormat(text.to_owned()))
    }
}

impl Inputs<'_> {
    fn desired(&self, family: Family) -> &DesiredState {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }
}

/// What came of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The files: one, or one for each card.
    pub files: Vec<ExportedFile>,
    /// What no file could say, in words.
    pub notes: Vec<String>,
}

/// Puts the desired state of both families into the words of a format.
#[must_use]
pub fn export(format: Format, options: Options, inputs: Inputs<'_>) -> Export {
    let cards = Card::all(inputs);
    match format {
        Format::Netplan => netplan::export(inputs, &cards, options),
        Format::Networkd => networkd::export(inputs, &cards),
        Format::Nmstate => nmstate::export(inputs, &cards),
        Format::Nmconnection => nmconnection::export(inputs, &cards),
        Format::Ip => ip::export(inputs, &cards),
    }
}
