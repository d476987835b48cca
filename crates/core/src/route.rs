//! Routes: [`Route`] is what we want, [`ObservedRoute`] is what the kernel showed.
//!
//! The kernel's own key for an IPv4 route is table, prefix and metric; for IPv6 the
//! gateway and device belong to it too (ip-route(8), net/ipv6/ip6_fib.c).

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::address::{Family, NetworkExt as _};
use crate::interface::{Device, IfIndex, ShellWord};
use crate::numbers::{ProtocolId, TableId};

/// How a router ranks itself among others (RFC 4191); IPv6 only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum RouterPreference {
    /// Take others first.
    Low,
    /// The usual value, and the one of every IPv4 route.
    #[default]
    Medium,
    /// Take this one first.
    High,
}

impl RouterPreference {
    fn is_medium(&self) -> bool {
        *self == Self::Medium
    }
}

/// A unicast route that we want, always with a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The table it lies in: one of our own.
    pub table: TableId,
    /// Where it leads, host bits cleared.
    pub destination: IpNetwork,
    /// 0 for IPv4; for IPv6 never 0, since the kernel turns that into 1024.
    pub metric: u32,
    /// The next hop; `None` means on-link.
    pub gateway: Option<IpAddr>,
    /// The interface packets leave by.
    pub device: Device,
    /// The gateway counts as a neighbour although no on-link prefix covers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub onlink: bool,
    /// Path MTU in bytes; `None` leaves the link's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The router's own rank.
    #[serde(default, skip_serializing_if = "RouterPreference::is_medium")]
    pub preference: RouterPreference,
}

/// The kind of a route as far as we tell kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteKind {
    /// Packets leave by a device.
    Unicast,
    /// Anything else (`rtm_type`): unreachable, throw, local and so on.
    Other(u8),
}

/// A route as the kernel showed it. A multipath route shows as one of these for each
/// next hop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObservedRoute {
    /// The table it lies in.
    pub table: TableId,
    /// Where it leads.
    pub destination: IpNetwork,
    /// Its metric (`RTA_PRIORITY`), 0 when none is given.
    #[serde(default)]
    pub metric: u32,
    /// The next hop; `None` means on-link, or not a unicast route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The interface; `None` for kinds without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oif: Option<IfIndex>,
    /// Whether the next hop is marked on-link (`RTNH_F_ONLINK`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub onlink: bool,
    /// `RTAX_MTU` in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// `RTA_PREF`.
    #[serde(default, skip_serializing_if = "RouterPreference::is_medium")]
    pub preference: RouterPreference,
    /// Who made it.
    pub protocol: ProtocolId,
    /// Its kind.
    pub kind: RouteKind,
    /// Whether it has attributes that none of our routes has (a source prefix, a TOS,
    /// an encapsulation, a preferred source), so that it can never be one we want.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_attributes: bool,
}

impl Route {
    /// Its address family.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of_network(self.destination)
    }

    /// Whether the kernel holds just this route.
    #[must_use]
    pub fn is_met_by(&self, seen: &ObservedRoute) -> bool {
        self.has_key_of(seen)
            && self.gateway == seen.gateway
            && Some(self.device.index) == seen.oif
            && self.onlink == seen.onlink
            && self.mtu == seen.mtu
            && self.preference == seen.preference
            && seen.kind == RouteKind::Unicast
            && !seen.other_attributes
    }

    /// Whether the kernel's key (table, prefix, metric) is the same, so that both
    /// cannot exist side by side in IPv4.
    #[must_use]
    pub fn has_key_of(&self, seen: &ObservedRoute) -> bool {
        self.table == seen.table
            && self.destination == seen.destination
            && self.metric == seen.metric
    }
}

impl ObservedRoute {
    /// Its address family.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of_network(self.destination)
    }

    /// Whether it is a unicast default route.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.kind == RouteKind::Unicast && self.destination.is_default()
    }

    /// Whether a route of table main may say what its interface is connected to: a default
    /// route, one that a router advertised, or a network without a gateway. The others say
    /// nothing of it, and a routing daemon may have a million of them.
    #[must_use]
    pub fn connects(&self) -> bool {
        let is_network = || self.destination.prefix() < self.family().host_length();
        self.destination.is_default()
            || match self.gateway {
                Some(_) => self.protocol == ProtocolId::RA,
                None => is_network(),
            }
    }
}

/// Prints what ip(8) calls the route: prefix, gateway, device, metric and the like,
/// without table and protocol.
struct Words<'a> {
    destination: IpNetwork,
    gateway: Option<IpAddr>,
    device: Option<&'a str>,
    metric: u32,
    onlink: bool,
    mtu: Option<u32>,
    preference: RouterPreference,
    kind: RouteKind,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = Family::of_network(self.destination);
        if let RouteKind::Other(kind) = self.kind {
            write!(f, "type {kind} ")?;
        }
        if self.destination.is_default() {
            f.write_str("default")?;
        } else if self.destination.prefix() == family.host_length() {
            write!(f, "{}", self.destination.ip())?;
        } else {
            write!(f, "{}", self.destination)?;
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(device) = self.device {
            write!(f, " dev {}", ShellWord(device))?;
        }
        if self.gateway.is_none() && self.kind == RouteKind::Unicast && family == Family::Ipv4 {
            f.write_str(" scope link")?;
        }
        if self.metric != 0 {
            write!(f, " metric {}", self.metric)?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        if self.onlink {
            f.write_str(" onlink")?;
        }
        match self.preference {
            RouterPreference::Medium => Ok(()),
            RouterPreference::Low => f.write_str(" pref low"),
            RouterPreference::High => f.write_str(" pref high"),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Words {
            destination: self.destination,
            gateway: self.gateway,
            device: Some(self.device.name.as_str()),
            metric: self.metric,
            onlink: self.onlink,
            mtu: self.mtu,
            preference: self.preference,
            kind: RouteKind::Unicast,
        }
        .fmt(f)
    }
}

impl ObservedRoute {
    /// The route in ip(8)'s words; `device` is the name of its interface when known.
    #[must_use]
    pub fn describe<'a>(&'a self, device: Option<&'a str>) -> impl fmt::Display + 'a {
        Words {
            destination: self.destination,
            gateway: self.gateway,
            device,
            metric: self.metric,
            onlink: self.onlink,
            mtu: self.mtu,
            preference: self.preference,
            kind: self.kind,
        }
    }
}
