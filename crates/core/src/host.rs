//! What the kernel shows of the host at one moment.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::address::Family;
use crate::interface::{Device, IfIndex, InterfaceName, InterfaceRef, Mac};
use crate::numbers::ProtocolId;
use crate::route::ObservedRoute;
use crate::rule::ObservedRule;

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its index.
    pub index: IfIndex,
    /// Its name.
    pub name: InterfaceName,
    /// Its alternative names (`ip link property`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternative_names: Vec<String>,
    /// Its hardware address; `None` for devices without one, or with another kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it is set up (`IFF_UP`). A link that is down keeps no routes.
    pub up: bool,
    /// Whether it has a carrier (`IFF_LOWER_UP`).
    #[serde(default)]
    pub carrier: bool,
    /// Whether it is a loopback device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loopback: bool,
    /// The bridge, bond, VRF or the like that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<IfIndex>,
    /// The kind of a virtual device (`veth`, `bridge`…); `None` for hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name of its driver, filled in only when the configuration matches by driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// The flags of an address that matter here (`IFA_F_*` in linux/if_addr.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddressFlags {
    /// No lifetime: nobody leased it, as far as the kernel knows.
    pub permanent: bool,
    /// Duplicate address detection is still running.
    pub tentative: bool,
    /// Duplicate address detection failed.
    pub dad_failed: bool,
    /// A privacy address (RFC 8981).
    pub temporary: bool,
    /// Not there yet: a client has told that it is about to put it there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub announced: bool,
}

/// One address on one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAddress {
    /// The interface.
    pub index: IfIndex,
    /// The address with the prefix length of its on-link prefix. On a point-to-point
    /// device this is the local end.
    pub address: IpNetwork,
    /// The other end of a point-to-point address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpNetwork>,
    /// Its flags.
    #[serde(default)]
    pub flags: AddressFlags,
    /// Who put it there (`IFA_PROTO`), where the kernel tells (Linux 5.18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolId>,
}

/// A snapshot of the host. What a run does not need it does not read, so `addresses`,
/// `rules` and routes hold the families and tables that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// All interfaces, by index.
    pub links: BTreeMap<IfIndex, Link>,
    /// Addresses of the families that were read.
    pub addresses: Vec<LinkAddress>,
    /// Rules of the families that were read, ours and foreign, in the kernel's order.
    pub rules: Vec<ObservedRule>,
    /// Routes of table main: IPv4 default routes only, and for IPv6 the routes of the
    /// interfaces that could be uplinks.
    pub main: Vec<ObservedRoute>,
    /// Routes of our own tables, whoever made them.
    pub own_tables: Vec<ObservedRoute>,
}

impl Host {
    /// The interface that a client's word means: by name first, then by alternative
    /// name.
    #[must_use]
    pub fn resolve(&self, reference: &InterfaceRef) -> Option<&Link> {
        let by_name = self
            .links
            .values()
            .find(|link| link.name.as_str() == reference.as_str());
        by_name.or_else(|| {
            self.links.values().find(|link| {
                link.alternative_names
                    .iter()
                    .any(|name| name == reference.as_str())
            })
        })
    }

    /// The addresses of one interface and family.
    pub fn addresses_of(
        &self,
        index: IfIndex,
        family: Family,
    ) -> impl Iterator<Item = &LinkAddress> {
        self.addresses
            .iter()
            .filter(move |a| a.index == index && Family::of_network(a.address) == family)
    }

    /// Whether an address is on an interface; tentative ones count, failed ones do not.
    #[must_use]
    pub fn has_address(&self, index: IfIndex, address: IpAddr) -> bool {
        self.addresses_of(index, Family::of(address))
            .any(|a| a.address.ip() == address && !a.flags.dad_failed)
    }
}

impl Link {
    /// Its index and name.
    #[must_use]
    pub fn device(&self) -> Device {
        Device {
            index: self.index,
            name: self.name.clone(),
        }
    }
}
