//! What a lease holds, once every value has been checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::{Ipv4Network, Ipv6Network};
use serde::{Deserialize, Serialize};

/// The most routes taken from one lease. Real servers send a handful; DHCP's 255-byte
/// options hold at most 51 each.
pub const MAX_LEASE_ROUTES: usize = 512;

/// A lease of either family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lease {
    /// An IPv4 lease.
    Ipv4(Lease4),
    /// What DHCPv6 leased.
    Ipv6(Lease6),
}

/// An IPv4 lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease4 {
    /// The leased address: a unicast host address, not link-local.
    pub address: Ipv4Addr,
    /// Further addresses that came with it, as a client of static addresses has them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub others: BTreeSet<Ipv4Addr>,
    /// Length of the subnet mask, 1 to 32. `None`: not given or not contiguous, then the
    /// kernel's prefix length of the address counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<u8>,
    /// The first usable router of option 3. `None`: none given, or none usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<Ipv4Addr>,
    /// The routes of option 121, 249 or 33. `None`: none of them was given in a form that
    /// could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classless: Option<ClasslessRoutes>,
    /// The interface MTU (option 26) in bytes, 576 to 65535. `None`: not given or out of
    /// range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// When the lease ends, in seconds since 1970. `None`: unknown or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// How long from the event on that tells of it, in seconds, where the client does not
    /// tell of a moment. The book makes an end of it, and holds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<u32>,
}

/// Which option a lease's routes came from, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RouteOption {
    /// Classless static routes, RFC 3442. Their default route replaces option 3.
    #[serde(rename = "121")]
    Classless,
    /// Microsoft's copy of option 121 (MS-DHCPE 2.2.9), with the same meaning.
    #[serde(rename = "249")]
    Microsoft,
    /// Static routes without masks, RFC 2132 5.8. Option 3 still counts.
    #[serde(rename = "33")]
    Static,
    /// No option: routes as a script gave them, or as a client that does not tell options
    /// apart did. The router beside them still counts.
    #[serde(rename = "given")]
    Given,
}

impl RouteOption {
    /// Whether option 3 is ignored when this option is present (RFC 3442).
    #[must_use]
    pub fn replaces_routers(self) -> bool {
        match self {
            Self::Classless | Self::Microsoft => true,
            Self::Static | Self::Given => false,
        }
    }
}

impl fmt::Display for RouteOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classless => "option 121",
            Self::Microsoft => "option 249",
            Self::Static => "option 33",
            Self::Given => "as given",
        })
    }
}

/// The routes of one option, at most [`MAX_LEASE_ROUTES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClasslessRoutes {
    /// The option they came from.
    pub option: RouteOption,
    /// The routes in the server's order.
    pub routes: Vec<ClasslessRoute>,
}

/// One route of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClasslessRoute {
    /// Where it leads, host bits cleared.
    pub destination: Ipv4Network,
    /// The next hop; `None` when the option says 0.0.0.0, which means on-link.
    pub gateway: Option<Ipv4Addr>,
}

/// What DHCPv6 leased to one interface. dhclient reports its parts one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease6 {
    /// Leased addresses (IA_NA, IA_TA).
    #[serde(default)]
    pub addresses: BTreeMap<Ipv6Addr, LeasedAddress>,
    /// Delegated prefixes (IA_PD).
    #[serde(default)]
    pub prefixes: BTreeMap<Ipv6Network, LeasedPrefix>,
    /// Prefixes that routers advertise for autoconfiguration (RFC 4862), where the client
    /// tells of them: every address that the interface has in one is a source, stable and
    /// temporary ones alike, and those that the kernel shows as permanent.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub autonomous: BTreeSet<Ipv6Network>,
    /// Routes that a script gave with its addresses; DHCPv6 has none. A default route in
    /// them takes the place of those that table main has on the interface.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub routes: BTreeSet<GivenRoute6>,
}

/// An IPv6 route that a script gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GivenRoute6 {
    /// Where it leads, host bits cleared.
    pub destination: Ipv6Network,
    /// The next hop, which may be link-local; `None` means on-link.
    pub gateway: Option<Ipv6Addr>,
}

/// A leased IPv6 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedAddress {
    /// When it stops being valid, in seconds since 1970. `None`: unknown or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// How long from the event on that tells of it, in seconds, where the client does not
    /// tell of a moment. The book makes an end of it, and holds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<u32>,
}

/// A delegated IPv6 prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedPrefix {
    /// When it stops being valid, in seconds since 1970. `None`: unknown or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// How long from the event on that tells of it, in seconds, where the client does not
    /// tell of a moment. The book makes an end of it, and holds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<u32>,
}

impl Lease4 {
    /// The same, told of at a moment in seconds since 1970: what it lasts has an end.
    pub(crate) fn begin(&mut self, at: u64) {
        begin(&mut self.expires, &mut self.lasts, at);
    }
}

fn begin(expires: &mut Option<u64>, lasts: &mut Option<u32>, at: u64) {
    if let Some(lasts) = lasts.take() {
        expires.get_or_insert(at.saturating_add(lasts.into()));
    }
}

impl Lease6 {
    /// The same, told of at a moment in seconds since 1970: what its parts last has an end.
    pub(crate) fn begin(&mut self, at: u64) {
        for part in self.addresses.values_mut() {
            begin(&mut part.expires, &mut part.lasts, at);
        }
        for part in self.prefixes.values_mut() {
            begin(&mut part.expires, &mut part.lasts, at);
        }
    }

    /// Whether nothing is leased. Routes alone are no lease.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.prefixes.is_empty() && self.autonomous.is_empty()
    }
}

/// What is known of one interface's lease in one family. A missing record is the third
/// value: nobody told us, so what the kernel holds stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseState {
    /// A lease is held.
    Held(Lease),
    /// A client said that there is none.
    Lost,
}
