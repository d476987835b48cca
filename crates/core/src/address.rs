//! Address families and the few address classes that routing by source depends on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

/// An address family. One event, one lease record and one plan concern exactly one of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    /// The family of a prefix.
    #[must_use]
    pub fn of_network(network: IpNetwork) -> Self {
        Self::of(network.ip())
    }

    /// The prefix length of one address: 32 or 128.
    #[must_use]
    pub fn host_length(self) -> u8 {
        match self {
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
        }
    }

    /// The option that selects the family in ip(8): `-4` or `-6`.
    #[must_use]
    pub fn ip_option(self) -> &'static str {
        match self {
            Self::Ipv4 => "-4",
            Self::Ipv6 => "-6",
        }
    }

    /// `4` or `6`, as file names and log fields have it.
    #[must_use]
    pub fn digit(self) -> char {
        match self {
            Self::Ipv4 => '4',
            Self::Ipv6 => '6',
        }
    }

    /// `0.0.0.0/0` or `::/0`.
    #[must_use]
    pub fn default_network(self) -> IpNetwork {
        match self {
            Self::Ipv4 => IpNetwork::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).supernet_at(0),
            Self::Ipv6 => IpNetwork::from(IpAddr::V6(Ipv6Addr::UNSPECIFIED)).supernet_at(0),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// Prefix arithmetic that `ipnetwork` leaves to its callers.
pub(crate) trait NetworkExt {
    /// The prefix of the given length around this one; lengths beyond the family's are
    /// capped.
    fn supernet_at(self, length: u8) -> IpNetwork;
    /// The same prefix with its host bits cleared.
    fn canonical(self) -> IpNetwork;
    /// Whether every address of `other` lies in this prefix.
    fn covers(self, other: IpNetwork) -> bool;
    /// Whether this is `0.0.0.0/0` or `::/0`.
    fn is_default(&self) -> bool;
}

impl NetworkExt for IpNetwork {
    fn supernet_at(self, length: u8) -> IpNetwork {
        let length = length.min(Family::of_network(self).host_length());
        IpNetwork::new(self.ip(), length).map_or(self, NetworkExt::canonical)
    }

    fn canonical(self) -> IpNetwork {
        IpNetwork::new(self.network(), self.prefix()).unwrap_or(self)
    }

    fn covers(self, other: IpNetwork) -> bool {
        self.prefix() <= other.prefix() && self.contains(other.ip())
    }

    fn is_default(&self) -> bool {
        self.prefix() == 0
    }
}

/// Whether an address can belong to one host on a link: not unspecified, loopback,
/// multicast, limited broadcast or in 0.0.0.0/8 (RFC 1122 3.2.1.3, RFC 4291 2.5).
/// Link-local addresses pass; see [`is_link_local`].
#[must_use]
pub fn is_unicast_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            let [first, ..] = a.octets();
            first != 0 && !a.is_loopback() && !a.is_multicast() && !a.is_broadcast()
        }
        IpAddr::V6(a) => {
            !a.is_unspecified()
                && !a.is_loopback()
                && !a.is_multicast()
                && a.to_ipv4_mapped().is_none()
        }
    }
}

/// Whether an address is link-local: 169.254.0.0/16 (RFC 3927) or fe80::/10 (RFC 4291).
/// Such addresses never become sources.
#[must_use]
pub fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    }
}
