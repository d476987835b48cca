//! Builds networks: the links, addresses, routes, rules and proxy entries of a bench.
//!
//! Owns what a hook never does: making and removing links, addresses and foreign routes.
//! The rest of the crate reads and reconciles; this module only makes what it is told to
//! and reports the kernel's answer as it is, so existing on add is an error here. It
//! waits for each answer, hence no async in its face. Attributes follow ip-link(8),
//! ip-address(8), ip-route(8), ip-rule(8), ip-neighbour(8) and linux/rtnetlink.h.

mod message;
mod watch;

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use futures_util::StreamExt as _;
use ipnetwork::IpNetwork;
use leaseroute_core::{Family, IfIndex, InterfaceName, Mac, ProtocolId, TableId};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage as Message;
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::{Handle, new_connection};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

use message::{address_message, link_by, link_end, proxy_message, route_message, rule_message};
pub use watch::{Counted, Monitor};

/// Why a network could not be built.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// No netlink socket could be opened.
    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),
    /// The kernel refused a change.
    #[error("failed to {what}")]
    Refused {
        /// What was tried, so that it completes "failed to".
        what: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The connection ended before the answer came.
    #[error("failed to {what}: the netlink connection ended")]
    Closed {
        /// What was tried.
        what: String,
    },
}

/// One end of a veth pair.
#[derive(Clone, Debug)]
pub struct VethEnd<'a> {
    /// Its name.
    pub name: InterfaceName,
    /// Its hardware address; `None` lets the kernel draw one.
    pub mac: Option<Mac>,
    /// The network namespace it is born in, as an open `/proc/…/ns/net`.
    pub namespace: BorrowedFd<'a>,
}

/// How long an address or route lives, in seconds. `u32::MAX` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Until it is removed.
    pub valid: u32,
    /// Until it is no longer chosen for new connections.
    pub preferred: u32,
}

/// An address to add.
#[derive(Clone, Copy, Debug)]
pub struct NewAddress {
    /// The address with the length of its on-link prefix.
    pub address: IpNetwork,
    /// How long it lives; `None` makes it permanent.
    pub lifetime: Option<Lifetime>,
    /// Whether IPv6 duplicate address detection is left out.
    pub nodad: bool,
    /// Whether the kernel makes no on-link route for its prefix.
    pub noprefixroute: bool,
}

impl NewAddress {
    /// A permanent address with its prefix route, after duplicate address detection.
    #[must_use]
    pub const fn permanent(address: IpNetwork) -> Self {
        Self {
            address,
            lifetime: None,
            nodad: false,
            noprefixroute: false,
        }
    }
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Straight out of an interface.
    Link(IfIndex),
    /// To a gateway behind an interface; `onlink` skips the check that it is reachable.
    Gateway {
        /// The gateway.
        gateway: IpAddr,
        /// The interface.
        link: IfIndex,
        /// Whether the gateway need not be on-link.
        onlink: bool,
    },
    /// Refused with an ICMP message.
    Unreachable,
    /// Dropped in silence.
    Blackhole,
}

/// A route to add or delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRoute {
    /// The table.
    pub table: TableId,
    /// The destination.
    pub destination: IpNetwork,
    /// Where it leads.
    pub target: Target,
    /// The metric; `None` leaves it to the kernel (0 for IPv4, 1024 for IPv6).
    pub metric: Option<u32>,
    /// Who is said to have made it.
    pub protocol: ProtocolId,
    /// Seconds until it goes by itself (IPv6 only); `None` keeps it.
    pub expires: Option<u32>,
}

impl NewRoute {
    /// A route of table main as ip(8) makes it: protocol boot (3), the kernel's metric.
    #[must_use]
    pub const fn main(destination: IpNetwork, target: Target) -> Self {
        Self {
            table: TableId::MAIN,
            destination,
            target,
            metric: None,
            protocol: ProtocolId::observed(3),
            expires: None,
        }
    }
}

/// What a rule does with the packets it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Looks the destination up in a table.
    Lookup(TableId),
    /// As `Lookup`, but takes no route with a prefix of this length or shorter.
    LookupLonger(TableId, u32),
    /// Refuses with an ICMP message.
    Unreachable,
    /// Drops in silence.
    Blackhole,
}

/// A rule to add or delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRule {
    /// The family.
    pub family: Family,
    /// The priority; lower numbers come first.
    pub priority: u32,
    /// The source prefix; `None` matches every source.
    pub from: Option<IpNetwork>,
    /// The destination prefix; `None` matches every destination.
    pub to: Option<IpNetwork>,
    /// The interface that packets come in by; `None` matches every one.
    pub iif: Option<InterfaceName>,
    /// The interface a socket is bound to; `None` matches every one.
    pub oif: Option<InterfaceName>,
    /// What happens.
    pub verdict: Verdict,
    /// Who is said to have made it.
    pub protocol: ProtocolId,
}

impl NewRule {
    /// A rule for all packets of a family, made by protocol boot (3).
    #[must_use]
    pub const fn all(family: Family, priority: u32, verdict: Verdict) -> Self {
        Self {
            family,
            priority,
            from: None,
            to: None,
            iif: None,
            oif: None,
            verdict,
            protocol: ProtocolId::observed(3),
        }
    }
}

/// Packets that a link has received and sent since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
}

/// A netlink connection into one network namespace: the one of the thread that opened
/// it, whatever thread uses it later.
#[derive(Debug)]
pub struct Topology {
    runtime: Runtime,
    handle: Handle,
}

impl Topology {
    /// Opens a connection into the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// When the process may not open more files.
    pub fn open() -> Result<Self, TopologyError> {
        let runtime = runtime().map_err(TopologyError::Socket)?;
        let entered = runtime.enter();
        let (connection, handle, _) = new_connection().map_err(TopologyError::Socket)?;
        drop(entered);
        runtime.spawn(connection);
        Ok(Self { runtime, handle })
    }

    /// Makes a veth pair, each end in its own namespace, both down.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_veth(&self, one: &VethEnd<'_>, other: &VethEnd<'_>) -> Result<(), TopologyError> {
        let mut message = link_end(one);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(link_end(other)))),
        ]));
        self.add(Message::NewLink(message), || {
            format!("add the veth pair {} and {}", one.name, other.name)
        })
    }

    /// Makes a bridge in this namespace, down.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_bridge(&self, name: &InterfaceName) -> Result<(), TopologyError> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_string()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.add(Message::NewLink(message), || {
            format!("add the bridge {name}")
        })
    }

    /// The index of a link.
    ///
    /// # Errors
    ///
    /// When there is no such link.
    pub fn index_of(&self, name: &InterfaceName) -> Result<IfIndex, TopologyError> {
        let what = || format!("find the link {name}");
        let mut question = LinkMessage::default();
        question
            .attributes
            .push(LinkAttribute::IfName(name.to_string()));
        let link = self.link(question, what)?;
        IfIndex::new(link.header.index).ok_or_else(|| TopologyError::Closed { what: what() })
    }

    /// The packet counters of a link.
    ///
    /// # Errors
    ///
    /// When there is no such link.
    pub fn counters(&self, link: IfIndex) -> Result<Counters, TopologyError> {
        let answer = self.link(link_by(link), || {
            format!("read the counters of link {link}")
        })?;
        let counted = answer
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(stats) => Some(Counters {
                    received: stats.rx_packets,
                    sent: stats.tx_packets,
                }),
                _ => None,
            });
        Ok(counted.unwrap_or_default())
    }

    /// Whether a link is in service: up, with a carrier, and taken note of as such by the
    /// kernel's protocols, which is a moment later.
    ///
    /// # Errors
    ///
    /// When there is no such link.
    pub fn is_running(&self, link: IfIndex) -> Result<bool, TopologyError> {
        let answer = self.link(link_by(link), || format!("look at link {link}"))?;
        Ok(answer.header.flags.contains(LinkFlags::Running))
    }

    /// Sets a link up or down.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_up(&self, link: IfIndex, up: bool) -> Result<(), TopologyError> {
        self.set_flag(link, LinkFlags::Up, up)
    }

    /// Sets whether a link resolves its neighbours.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_resolving(&self, link: IfIndex, resolving: bool) -> Result<(), TopologyError> {
        self.set_flag(link, LinkFlags::Noarp, !resolving)
    }

    /// Gives a link another name. Kernels before 6.2 want it down for that.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn rename(&self, link: IfIndex, name: &InterfaceName) -> Result<(), TopologyError> {
        self.set_link(link, LinkAttribute::IfName(name.to_string()))
    }

    /// Gives a link another hardware address.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_mac(&self, link: IfIndex, mac: Mac) -> Result<(), TopologyError> {
        self.set_link(link, LinkAttribute::Address(mac.bytes().to_vec()))
    }

    /// Gives a link another MTU, in bytes.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_mtu(&self, link: IfIndex, mtu: u32) -> Result<(), TopologyError> {
        self.set_link(link, LinkAttribute::Mtu(mtu))
    }

    /// Makes a link a port of a bridge, or frees it with `None`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_master(&self, link: IfIndex, master: Option<IfIndex>) -> Result<(), TopologyError> {
        self.set_link(
            link,
            LinkAttribute::Controller(master.map_or(0, IfIndex::get)),
        )
    }

    /// Deletes a link; of a veth pair both ends go.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn delete_link(&self, link: IfIndex) -> Result<(), TopologyError> {
        self.change(Message::DelLink(link_by(link)), || {
            format!("delete link {link}")
        })
    }

    /// Adds an address.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_address(&self, link: IfIndex, new: &NewAddress) -> Result<(), TopologyError> {
        self.add(Message::NewAddress(address_message(link, new)), || {
            format!("add the address {} to link {link}", new.address)
        })
    }

    /// Deletes an address.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn delete_address(&self, link: IfIndex, address: IpNetwork) -> Result<(), TopologyError> {
        let message = address_message(link, &NewAddress::permanent(address));
        self.change(Message::DelAddress(message), || {
            format!("delete the address {address} of link {link}")
        })
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_route(&self, route: &NewRoute) -> Result<(), TopologyError> {
        // The kernel takes "exclusive" to mean one IPv6 route of a metric, whatever the
        // interface, and takes its absence to mean "in front" for IPv4.
        let flags = match Family::of_network(route.destination) {
            Family::Ipv4 => NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
            Family::Ipv6 => NLM_F_ACK | NLM_F_CREATE,
        };
        let what = || {
            format!(
                "add the route to {} in table {}",
                route.destination, route.table
            )
        };
        self.ask(Message::NewRoute(route_message(route)), flags, what)
            .map(drop)
    }

    /// Deletes a route.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn delete_route(&self, route: &NewRoute) -> Result<(), TopologyError> {
        self.change(Message::DelRoute(route_message(route)), || {
            format!(
                "delete the route to {} in table {}",
                route.destination, route.table
            )
        })
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_rule(&self, rule: &NewRule) -> Result<(), TopologyError> {
        self.add(Message::NewRule(rule_message(rule)), || {
            format!(
                "add the {} rule with priority {}",
                rule.family, rule.priority
            )
        })
    }

    /// Deletes a rule.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn delete_rule(&self, rule: &NewRule) -> Result<(), TopologyError> {
        self.change(Message::DelRule(rule_message(rule)), || {
            format!(
                "delete the {} rule with priority {}",
                rule.family, rule.priority
            )
        })
    }

    /// Answers on a link for an address that is reached elsewhere (`ip neighbour add
    /// proxy`).
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_proxy(&self, link: IfIndex, address: IpAddr) -> Result<(), TopologyError> {
        self.add(Message::NewNeighbour(proxy_message(link, address)), || {
            format!("answer for {address} on link {link}")
        })
    }

    /// Stops answering for an address.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn delete_proxy(&self, link: IfIndex, address: IpAddr) -> Result<(), TopologyError> {
        self.change(Message::DelNeighbour(proxy_message(link, address)), || {
            format!("stop answering for {address} on link {link}")
        })
    }

    fn set_flag(&self, link: IfIndex, flag: LinkFlags, on: bool) -> Result<(), TopologyError> {
        let mut message = link_by(link);
        message.header.change_mask = flag;
        message.header.flags = if on { flag } else { LinkFlags::empty() };
        let what = || format!("set flag {flag:?} of link {link} to {on}");
        self.change(Message::SetLink(message), what)
    }

    fn set_link(&self, link: IfIndex, attribute: LinkAttribute) -> Result<(), TopologyError> {
        let what = format!("set {attribute:?} of link {link}");
        let mut message = link_by(link);
        message.attributes.push(attribute);
        self.change(Message::SetLink(message), || what)
    }

    fn link(
        &self,
        question: LinkMessage,
        what: impl Fn() -> String,
    ) -> Result<LinkMessage, TopologyError> {
        match self.ask(Message::GetLink(question), 0, &what)? {
            Some(Message::NewLink(link)) => Ok(link),
            _ => Err(TopologyError::Closed { what: what() }),
        }
    }

    fn add(&self, message: Message, what: impl FnOnce() -> String) -> Result<(), TopologyError> {
        self.ask(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, what)
            .map(drop)
    }

    fn change(&self, message: Message, what: impl FnOnce() -> String) -> Result<(), TopologyError> {
        self.ask(message, NLM_F_ACK, what).map(drop)
    }

    /// Sends one request and waits for its answer, or for its acknowledgement.
    fn ask(
        &self,
        message: Message,
        flags: u16,
        what: impl FnOnce() -> String,
    ) -> Result<Option<Message>, TopologyError> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        let Ok(mut answers) = self.handle.clone().request(request) else {
            return Err(TopologyError::Closed { what: what() });
        };
        match self
            .runtime
            .block_on(answers.next())
            .map(|answer| answer.payload)
        {
            Some(NetlinkPayload::Error(error)) if error.code.is_some() => {
                Err(TopologyError::Refused {
                    what: what(),
                    source: error.to_io(),
                })
            }
            Some(NetlinkPayload::InnerMessage(message)) => Ok(Some(message)),
            Some(_) => Ok(None),
            // An acknowledgement ends the stream without a message.
            None if flags & NLM_F_ACK != 0 => Ok(None),
            None => Err(TopologyError::Closed { what: what() }),
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
