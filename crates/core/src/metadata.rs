//! What a cloud's metadata service says of one card: addresses and prefixes that no lease
//! carries.
//!
//! A lease is worked on at once, and metadata adds to it whenever it comes. A record says
//! what the service was found to know, which may be that there is nothing; a missing record
//! is the third value, that nobody could find out, and takes nothing away.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::address::Family;
use crate::interface::{IfIndex, InterfaceName, Mac};

/// What a metadata service says of one card in one family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Said {
    /// The card's addresses in the service's order, the primary one first, without the
    /// prefix length. Those of the lease are among them.
    pub addresses: Vec<IpAddr>,
    /// The on-link prefixes of its subnet. Empty: not told.
    pub subnets: BTreeSet<IpNetwork>,
    /// Prefixes that are routed to the card: delegated ones, alias ranges, forwarded
    /// addresses.
    pub prefixes: BTreeSet<IpNetwork>,
    /// The router of its subnet. `None`: not told.
    pub gateway: Option<IpAddr>,
    /// Whether the card is one that no DHCP server serves, so that its addresses come from
    /// here or from its administrator.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unserved: bool,
}

/// The most that is remembered as withdrawn.
const WITHDRAWN: usize = 256;

impl CardMetadata {
    /// Takes over what the record before it knew to be withdrawn, and what it withdraws itself.
    pub(crate) fn follow(&mut self, before: &Self) {
        let said: BTreeSet<IpNetwork> = self.said.sources().collect();
        let earlier = before.withdrawn.iter().copied();
        let gone = earlier.chain(before.said.sources());
        self.withdrawn = gone.filter(|source| !said.contains(source)).collect();
        while self.withdrawn.len() > WITHDRAWN {
            self.withdrawn.pop_last();
        }
    }
}

impl Said {
    /// All addresses and prefixes.
    pub(crate) fn sources(&self) -> impl Iterator<Item = IpNetwork> {
        let addresses = self.addresses.iter().copied().map(IpNetwork::from);
        addresses.chain(self.prefixes.iter().copied())
    }

    /// Whether the card has nothing of the family.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.prefixes.is_empty()
    }
}

/// What is known from metadata of one card in one family, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardMetadata {
    /// The card's interface index.
    pub index: IfIndex,
    /// Its name then.
    pub name: InterfaceName,
    /// Its hardware address then. Another one now means another card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// The family.
    pub family: Family,
    /// Who said it, as `metadata.provider` names it.
    pub provider: String,
    /// What it said.
    pub said: Said,
    /// What it said before and does not say any more, at most 256: rules of ours for it are no
    /// evidence of a lease that nobody told of.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub withdrawn: BTreeSet<IpNetwork>,
    /// When, in seconds since 1970.
    pub updated: u64,
}
