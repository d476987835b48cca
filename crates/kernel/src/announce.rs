//! What the kernel announces of changes, as they happen.
//!
//! Like `channel`, this uses the library's socket and not its connection, which would decode
//! every message whole and queue them without bound: on a host that is given a hundred
//! thousand routes, all but a few are dropped here after a look at their headers.

use std::fmt;
use std::io;

use leaseroute_core::{
    Family, IfIndex, Link, LinkAddress, ObservedRoute, ObservedRule, ProtocolId, TableId,
};
use rtnetlink::packet_core::NetlinkBuffer;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use tokio::io::unix::AsyncFd;

use crate::channel::Messages;
use crate::convert::{self, Announcing};
use crate::errno::{self, ENOBUFS};
use crate::error::KernelError;

/// The multicast groups of links, of addresses, routes and rules of both families, and of
/// advertised prefixes (`RTNLGRP_*` in linux/rtnetlink.h).
const GROUPS: [u32; 8] = [1, 5, 7, 8, 9, 11, 18, 19];

/// How much may wait to be read, in bytes as the kernel counts them, which is about 1 KiB
/// for each announcement. Twice as much is had (socket(7)). The usual size, 208 KiB, is too
/// little for what a routing daemon does while we look once.
const WAITING: usize = 1 << 20;

/// The largest datagram, in bytes. Announcements are one message each, and a link's is the
/// longest.
const MOST: usize = 32 * 1024;

/// Something that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// A link is there, or is otherwise than before.
    Link(Link),
    /// A link is gone.
    LinkGone(IfIndex),
    /// An address came, changed or went.
    Address {
        /// The address.
        address: LinkAddress,
        /// Whether it went.
        gone: bool,
    },
    /// A route came, changed or went.
    Route {
        /// The route; one with several next hops is announced as one of these for each.
        route: ObservedRoute,
        /// Whether it went.
        gone: bool,
    },
    /// A rule came or went.
    Rule {
        /// The rule.
        rule: ObservedRule,
        /// Whether it went.
        gone: bool,
    },
    /// A router advertised a prefix on this link. The kernel announces neither that a router
    /// changed its preference nor that it is still there (`ndisc_router_discovery()` in
    /// net/ipv6/ndisc.c), so this is all there is to tell by.
    Advertisement(IfIndex),
    /// Announcements were lost: anything may have changed (ENOBUFS, netlink(7)).
    Overrun,
}

/// What changed, and at whose request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What changed.
    pub what: Announced,
    /// The netlink port that asked for it, which is mostly the process id of a program's
    /// first socket (`netlink_autobind()` in net/netlink/af_netlink.c). `None`: the kernel
    /// itself, or somebody who did not use netlink.
    pub by: Option<u32>,
}

/// What is known of a route before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteKey {
    /// Its family.
    pub family: Family,
    /// Its table.
    pub table: TableId,
    /// Who made it.
    pub protocol: ProtocolId,
    /// Whether its prefix has the length 0.
    pub is_default: bool,
    /// Whether it names one gateway.
    pub has_gateway: bool,
}

type Wants = Box<dyn Fn(RouteKey) -> bool>;

/// Listens to what the kernel announces in one network namespace.
pub struct Announcements {
    socket: AsyncFd<Socket>,
    wants: Wants,
    incoming: Vec<u8>,
    /// What the last datagram brought and nobody has taken yet, the first one last.
    ready: Vec<Announcement>,
}

impl Announcements {
    /// Listens in the calling thread's network namespace from now on, inside a tokio
    /// runtime. Routes that `wants` does not want are left out.
    ///
    /// # Errors
    ///
    /// When no socket can be had.
    pub fn open(wants: impl Fn(RouteKey) -> bool + 'static) -> Result<Self, KernelError> {
        Ok(Self {
            socket: open_socket().map_err(KernelError::Socket)?,
            wants: Box::new(wants),
            incoming: vec![0; MOST],
            ready: Vec::new(),
        })
    }

    /// The next announcement. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    ///
    /// When the socket fails.
    pub async fn next(&mut self) -> Result<Announcement, KernelError> {
        loop {
            if let Some(ready) = self.ready.pop() {
                return Ok(ready);
            }
            let mut guard = self.socket.readable().await.map_err(failed)?;
            let mut free = self.incoming.as_mut_slice();
            let received = guard.try_io(|socket| socket.get_ref().recv(&mut free, 0));
            match received {
                Ok(Ok(length)) => self.take_in(length),
                Ok(Err(error)) if errno::is(&error, &[ENOBUFS]) => self.ready.push(OVERRUN),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(failed(error)),
                Err(_would_block) => {}
            }
        }
    }

    fn take_in(&mut self, length: usize) {
        let datagram = self.incoming.get(..length).unwrap_or_default();
        for message in Messages(datagram) {
            match message {
                Ok(message) => decode(&message, &self.wants, &mut self.ready),
                // One that did not fit was cut, and what it said is lost.
                Err(_) => self.ready.push(OVERRUN),
            }
        }
        self.ready.reverse();
    }
}

impl fmt::Debug for Announcements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcements").finish_non_exhaustive()
    }
}

const OVERRUN: Announcement = Announcement {
    what: Announced::Overrun,
    by: None,
};

fn failed(source: io::Error) -> KernelError {
    KernelError::Dump {
        what: "announcements",
        source,
    }
}

#[expect(
    deprecated,
    reason = "the successor is unsafe, for types whose descriptor may change; a socket's does not"
)]
fn open_socket() -> io::Result<AsyncFd<Socket>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_non_blocking(true)?;
    // Who may not, makes do with the usual size.
    set_socket_recv_buffer_size_force(&socket, WAITING).ok();
    socket.bind(&SocketAddr::new(0, 0))?;
    for group in GROUPS {
        socket.add_membership(group)?;
    }
    AsyncFd::new(socket)
}

fn decode(
    message: &NetlinkBuffer<&[u8]>,
    wants: impl Fn(RouteKey) -> bool,
    ready: &mut Vec<Announcement>,
) {
    let body = message.payload();
    let port = message.port_number();
    let by = (port != 0).then_some(port);
    let mut tell = |what| ready.push(Announcement { what, by });
    let Some((subject, gone)) = convert::announcing(message.message_type()) else {
        return;
    };
    match subject {
        Announcing::Link => {
            // A bridge announces its ports' own affairs in the same form.
            if !convert::is_of_link_itself(body) {
                return;
            }
            if gone {
                convert::link_index(body).map(Announced::LinkGone).map(tell);
            } else {
                convert::link(body).map(Announced::Link).map(tell);
            }
        }
        Announcing::Address => {
            let address = Family::BOTH
                .into_iter()
                .find_map(|family| convert::address(body, family));
            address
                .map(|address| Announced::Address { address, gone })
                .map(tell);
        }
        Announcing::Prefix => {
            convert::prefix_link(body)
                .map(Announced::Advertisement)
                .map(tell);
        }
        Announcing::Route => {
            let Some(key) = convert::route_key(body).filter(|key| wants(*key)) else {
                return;
            };
            for route in convert::routes(body, key.family) {
                tell(Announced::Route { route, gone });
            }
        }
        Announcing::Rule => {
            let rule = Family::BOTH
                .into_iter()
                .find_map(|family| convert::rule(body, family));
            rule.map(|rule| Announced::Rule { rule, gone }).map(tell);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use leaseroute_core::{Device, Operation, Route, RouterPreference};
    use leaseroute_lab::namespace::Namespace;
    use leaseroute_lab::privilege::with_namespaces;
    use tokio::runtime::Builder;

    use super::*;
    use crate::topology::{Topology, VethEnd};
    use crate::{Kernel as _, Netlink};

    const PROTOCOL: u8 = 76;

    fn in_namespace(name: &'static str, test: impl FnOnce() + Send + 'static) {
        with_namespaces(name, move || Namespace::new(name).unwrap().run(test));
    }

    /// Everything that is announced until nothing comes for a while.
    fn heard(wants: impl Fn(RouteKey) -> bool + 'static, act: impl FnOnce()) -> Vec<Announcement> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let entered = runtime.enter();
        let mut announcements = Announcements::open(wants).unwrap();
        drop(entered);
        act();
        runtime.block_on(async {
            let silence = Duration::from_millis(300);
            let mut heard = Vec::new();
            while let Ok(next) = tokio::time::timeout(silence, announcements.next()).await {
                heard.push(next.unwrap());
            }
            heard
        })
    }

    fn card(topology: &Topology) -> Device {
        let here = File::open("/proc/thread-self/ns/net").unwrap();
        let [near, far] = ["card0", "far0"].map(|name| VethEnd {
            name: name.parse().unwrap(),
            mac: None,
            namespace: here.as_fd(),
        });
        topology.add_veth(&near, &far).unwrap();
        let index = topology.index_of(&near.name).unwrap();
        for end in [&near, &far] {
            let index = topology.index_of(&end.name).unwrap();
            topology.set_up(index, true).unwrap();
        }
        Device {
            index,
            name: near.name,
        }
    }

    fn route(device: &Device, table: TableId, destination: &str) -> Route {
        Route {
            table,
            destination: destination.parse().unwrap(),
            metric: 0,
            gateway: None,
            device: device.clone(),
            onlink: false,
            mtu: None,
            preference: RouterPreference::Medium,
        }
    }

    #[test]
    fn links_come_change_and_go() {
        in_namespace("links_come_change_and_go", || {
            let topology = Topology::open().unwrap();
            let mut index = None;
            let heard = heard(
                |_| false,
                || {
                    let device = card(&topology);
                    topology.delete_link(device.index).unwrap();
                    index = Some(device.index);
                },
            );
            let index = index.unwrap();
            let is_up = |a: &Announcement| matches!(&a.what, Announced::Link(link) if link.index == index && link.up);
            assert!(heard.iter().any(is_up), "{heard:#?}");
            let last = heard
                .iter()
                .rev()
                .find(|a| matches!(a.what, Announced::LinkGone(i) if i == index));
            assert!(last.is_some(), "{heard:#?}");
        });
    }

    #[test]
    fn wanted_routes_only_and_who_made_them() {
        in_namespace("wanted_routes_only_and_who_made_them", || {
            let topology = Topology::open().unwrap();
            let device = card(&topology);
            let own = TableId::observed(76_003);
            let kernel = Netlink::open().unwrap();
            // The process's first netlink socket has its number for a port.
            kernel.links().unwrap();
            let wanted = move |key: RouteKey| key.table == own;
            let heard = heard(wanted, || {
                let routes = [
                    route(&device, own, "192.0.2.0/24"),
                    route(&device, TableId::MAIN, "198.51.100.0/24"),
                ];
                let add = routes.map(Operation::AddRoute);
                let add: Vec<_> = add.iter().collect();
                let done = kernel.execute(&add, ProtocolId::observed(PROTOCOL));
                assert!(done.iter().all(Result::is_ok));
            });
            let routes: Vec<_> = heard
                .iter()
                .filter_map(|a| match &a.what {
                    Announced::Route { route, gone } => Some((route.destination, *gone, a.by)),
                    _ => None,
                })
                .collect();
            assert_eq!(routes.len(), 1, "{heard:#?}");
            assert_eq!(routes[0].0, "192.0.2.0/24".parse().unwrap());
            assert!(!routes[0].1);
            assert!(routes[0].2.is_some());
        });
    }

    #[test]
    fn a_flood_is_an_overrun_and_no_error() {
        in_namespace("a_flood_is_an_overrun_and_no_error", || {
            let topology = Topology::open().unwrap();
            let device = card(&topology);
            let heard = heard(
                |_| true,
                || {
                    let kernel = Netlink::open().unwrap();
                    let number = |n: u32| {
                        route(
                            &device,
                            TableId::MAIN,
                            &format!("10.{}.{}.0/24", n >> 8, n & 255),
                        )
                    };
                    let add: Vec<_> = (0..4000).map(|n| Operation::AddRoute(number(n))).collect();
                    let add: Vec<_> = add.iter().collect();
                    kernel.execute(&add, ProtocolId::observed(4));
                },
            );
            assert!(heard.iter().any(|a| a.what == Announced::Overrun));
            let routes = heard
                .iter()
                .filter(|a| matches!(a.what, Announced::Route { .. }));
            assert!(routes.count() > 100);
        });
    }
}
