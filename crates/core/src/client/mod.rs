//! One parser per DHCP client, and the registry that names them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::{Parsed, RawEvent, Refusal};

mod dhclient;
mod fields;

/// A DHCP client whose hooks we understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Client {
    /// ISC dhclient 4.x.
    Dhclient,
}

/// The name is none of the clients that are understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} is none of the clients that are understood ({known})", crate::Quoted(.name), known = Client::names())]
pub struct UnknownClient {
    name: String,
}

impl Client {
    /// Every client, in the order they are listed.
    pub const ALL: &[Self] = &[Self::Dhclient];

    /// Its name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dhclient => "dhclient",
        }
    }

    /// Parses what its hook received.
    ///
    /// # Errors
    ///
    /// When the event must be refused whole: no usable interface name, or an address that
    /// no host can have. Lesser trouble drops a field and is listed in the result.
    pub fn parse(self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        match self {
            Self::Dhclient => dhclient::parse(raw),
        }
    }

    fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|client| client.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Client {
    type Err = UnknownClient;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|client| client.name() == name);
        found.copied().ok_or_else(|| UnknownClient {
            name: name.to_owned(),
        })
    }
}
