//! The running kernel behind the [`Kernel`] trait.
//!
//! Owns which dumps answer a question and how the kernel's refusals are read. Framing is
//! `channel`'s, messages are `convert`'s. Every read is filtered by the kernel where the
//! kernel can, so that its cost follows our own objects and not the host's
//! (rtnetlink(7), `ip_valid_fib_dump_req()` in net/ipv4/fib_frontend.c).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;

use leaseroute_core::{
    Family, IfIndex, Link, LinkAddress, ObservedRoute, ObservedRule, Operation, ProtocolId,
    RouteKind, TableId,
};

use crate::channel::{Channel, Reads, Request, TRIES};
use crate::convert::{self, Placing, RouteFilter};
use crate::errno::{
    self, EACCES, EAFNOSUPPORT, EHOSTUNREACH, EINVAL, ENETUNREACH, ENODEV, ENOENT, EOPNOTSUPP,
    EPROTONOSUPPORT,
};
use crate::error::{KernelError, OperationError};
use crate::{Kernel, MainRoutes};

/// Up to this many interfaces, table main is dumped once for each of them: by interface
/// a dump of a million routes takes 0.15 s, whole it takes 0.7 s and decoding it more.
const DUMPS_BY_INTERFACE: usize = 4;

/// The way that a packet would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPath {
    /// The interface it leaves by; `None` when the kernel named none.
    pub device: Option<IfIndex>,
    /// The next hop; `None` means on-link.
    pub gateway: Option<IpAddr>,
    /// The table that held the route.
    pub table: TableId,
    /// Whether the destination is this host.
    pub local: bool,
}

/// The kernel of the network namespace it was opened in.
pub struct Netlink {
    /// Borrowed for the length of one dump or batch, with no await in between.
    channel: RefCell<Channel>,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// When no socket can be had, or the kernel is older than 4.20 and knows no strict
    /// checks.
    pub fn open() -> Result<Self, KernelError> {
        Ok(Self {
            channel: RefCell::new(Channel::open()?),
        })
    }

    /// The port that our changes are announced with ([`crate::Announcement::by`]); 0 before
    /// anything was asked.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn port(&self) -> std::io::Result<u32> {
        self.channel.borrow().port()
    }

    /// The way that a packet from `source` to `destination` takes, of a socket bound to
    /// `oif` if given. `None` when the kernel would not send it.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    pub fn route_get(
        &self,
        source: IpAddr,
        destination: IpAddr,
        oif: Option<IfIndex>,
    ) -> Result<Option<ReplyPath>, KernelError> {
        let what = "the way to an address";
        let request = convert::reply_path_request(source, destination, oif);
        match self.channel.borrow_mut().ask(&request) {
            Ok(body) => Ok(convert::reply_path(&body)),
            // Unreachable, prohibited and blackhole routes; the last is EINVAL in IPv4.
            Err(error) if errno::is(&error, &[ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL]) => {
                Ok(None)
            }
            Err(source) => Err(KernelError::Dump { what, source }),
        }
    }

    fn dump<T>(
        &self,
        what: &'static str,
        request: &Request,
        reads: Reads,
        convert: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, KernelError> {
        let collect = |body: &[u8], found: &mut Vec<T>| found.extend(convert(body));
        self.channel
            .borrow_mut()
            .dump(what, request, reads, collect)
    }

    /// The routes of one table that `keep` wants, of the filter's family.
    fn routes(
        &self,
        what: &'static str,
        filter: RouteFilter,
        keep: impl Fn(&ObservedRoute) -> bool,
    ) -> Result<Vec<ObservedRoute>, KernelError> {
        let request = convert::routes_request(filter);
        let mut channel = self.channel.borrow_mut();
        let is_main6 = filter.family == Family::Ipv6 && filter.table == TableId::MAIN;
        let collect = |body: &[u8], found: &mut Vec<ObservedRoute>| {
            // The routes of a routing daemon are many, and not worth decoding.
            if is_main6 && !convert::may_connect6(body) {
                return;
            }
            let routes = convert::routes(body, filter.family);
            // A kernel without the family answers with the routes of all others, and
            // without the filter's table with ENOENT.
            found.extend(
                routes
                    .into_iter()
                    .filter(|r| r.table == filter.table && keep(r)),
            );
        };
        // Table main can be large for IPv6, and nothing of it is left unread.
        let reads = match filter.family {
            Family::Ipv4 => Reads::Small,
            Family::Ipv6 => Reads::Large,
        };
        let found = channel.dump(what, &request, reads, collect);
        if_absent_empty(found, &[ENOENT, ENODEV])
    }

    /// The IPv4 default routes of table main, by reading no further than them: the kernel
    /// walks a table in the order of addresses (`fib_table_dump()` in
    /// net/ipv4/fib_trie.c), so whatever starts at 0.0.0.0 comes first.
    fn ipv4_defaults(&self) -> Result<Vec<ObservedRoute>, KernelError> {
        let what = "the default routes of table main";
        let filter = RouteFilter {
            family: Family::Ipv4,
            table: TableId::MAIN,
            oif: None,
        };
        let collect = |body: &[u8], found: &mut Vec<ObservedRoute>| {
            for route in convert::routes(body, filter.family) {
                // 0.0.0.0/8 and the first half of a split default share the address.
                if route.destination.ip() != IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
                    return ControlFlow::Break(());
                }
                if route.is_default() && route.table == filter.table {
                    found.push(route);
                }
            }
            ControlFlow::Continue(())
        };
        let request = convert::routes_request(filter);
        let found = self.channel.borrow_mut().peek(what, &request, collect);
        if_absent_empty(found, &[ENOENT])
    }
}

impl Kernel for Netlink {
    fn links(&self) -> Result<Vec<Link>, KernelError> {
        self.dump(
            "links",
            &convert::links_request(),
            Reads::Small,
            convert::link,
        )
    }

    fn addresses(&self, family: Family) -> Result<Vec<LinkAddress>, KernelError> {
        let convert = |body: &[u8]| convert::address(body, family);
        let request = convert::addresses_request(family);
        let found = self.dump("addresses", &request, Reads::Small, convert);
        if_absent_empty(found, &[])
    }

    fn rules(&self, family: Family) -> Result<Vec<ObservedRule>, KernelError> {
        let what = "rules";
        let request = convert::rules_request(family);
        let read = |reads| {
            let convert = |body: &[u8]| convert::rule(body, family);
            if_absent_empty(self.dump(what, &request, reads, convert), &[])
        };
        // A dump of rules goes on by counting them and never says that it was interrupted
        // (`dump_rules()` in net/core/fib_rules.c): when others add or delete one between
        // two datagrams, a rule shows twice or not at all. Two equal dumps are right.
        let mut rules = read(Reads::Small)?;
        for _ in 0..TRIES {
            if !self.channel.borrow().came_in_pieces() {
                return Ok(rules);
            }
            let again = read(Reads::Large)?;
            if again == rules {
                return Ok(again);
            }
            rules = again;
        }
        Err(KernelError::Interrupted { what, tries: TRIES })
    }

    fn main_routes(&self, which: &MainRoutes) -> Result<Vec<ObservedRoute>, KernelError> {
        let interfaces = match which {
            MainRoutes::Ipv4Defaults => return self.ipv4_defaults(),
            MainRoutes::Ipv6Of(interfaces) => interfaces,
        };
        let what = "the IPv6 routes of table main";
        let mut filter = RouteFilter {
            family: Family::Ipv6,
            table: TableId::MAIN,
            oif: None,
        };
        let wanted = |route: &ObservedRoute| {
            route.kind == RouteKind::Unicast
                && route.connects()
                && route.oif.is_some_and(|oif| interfaces.contains(&oif))
        };
        if interfaces.len() > DUMPS_BY_INTERFACE {
            return self.routes(what, filter, wanted);
        }
        let mut found = Vec::new();
        for &interface in interfaces {
            filter.oif = Some(interface);
            // A route with several next hops shows for each of its interfaces.
            let by_interface = |route: &ObservedRoute| wanted(route) && route.oif == filter.oif;
            found.extend(self.routes(what, filter, by_interface)?);
        }
        Ok(found)
    }

    fn table_routes(
        &self,
        family: Family,
        tables: &BTreeSet<TableId>,
    ) -> Result<Vec<ObservedRoute>, KernelError> {
        let mut found = Vec::new();
        for &table in tables {
            let filter = RouteFilter {
                family,
                table,
                oif: None,
            };
            found.extend(self.routes("a routing table", filter, |_| true)?);
        }
        Ok(found)
    }

    fn execute(
        &self,
        operations: &[&Operation],
        protocol: ProtocolId,
    ) -> Vec<Result<(), OperationError>> {
        if operations.is_empty() {
            return Vec::new();
        }
        let requests: Vec<Request> = operations
            .iter()
            .map(|operation| request(operation, protocol))
            .collect();
        let answers = self.channel.borrow_mut().change(&requests);
        let outcome =
            |(operation, answer): (&&Operation, _)| OperationError::check(operation, answer);
        operations.iter().zip(answers).map(outcome).collect()
    }
}

fn request(operation: &Operation, protocol: ProtocolId) -> Request {
    match operation {
        Operation::AddAddress(address) => convert::address_request(address, protocol),
        Operation::DeleteAddress(address) => convert::address_removal(address),
        Operation::AddRoute(route) => convert::route_request(route, protocol, Placing::Add),
        Operation::ReplaceRoute(route) => convert::route_request(route, protocol, Placing::Replace),
        Operation::AddRule(rule) => convert::rule_request(rule, protocol),
        Operation::DeleteRule(rule) => convert::rule_removal(rule),
        Operation::DeleteRoute { route, .. } => convert::route_removal(route),
    }
}

/// Reads the refusals of a kernel that lacks what was asked for as "there are none".
fn if_absent_empty<T>(
    found: Result<Vec<T>, KernelError>,
    absent: &[i32],
) -> Result<Vec<T>, KernelError> {
    const NO_FAMILY: [i32; 3] = [EAFNOSUPPORT, EOPNOTSUPP, EPROTONOSUPPORT];
    match found {
        Err(KernelError::Dump { source, .. })
            if errno::is(&source, &NO_FAMILY) || errno::is(&source, absent) =>
        {
            Ok(Vec::new())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use ipnetwork::IpNetwork;
    use leaseroute_core::{Device, Route, RouterPreference};
    use leaseroute_lab::namespace::Namespace;
    use leaseroute_lab::privilege::with_namespaces;

    use super::*;
    use crate::topology::{Topology, VethEnd};

    fn in_namespace(name: &'static str, test: impl FnOnce() + Send + 'static) {
        with_namespaces(name, move || Namespace::new(name).unwrap().run(test));
    }

    fn link() -> Device {
        let topology = Topology::open().unwrap();
        let here = File::open("/proc/thread-self/ns/net").unwrap();
        let [near, far] = ["card0", "far0"].map(|name| VethEnd {
            name: name.parse().unwrap(),
            mac: None,
            namespace: here.as_fd(),
        });
        topology.add_veth(&near, &far).unwrap();
        let index = topology.index_of(&near.name).unwrap();
        topology.set_up(index, true).unwrap();
        Device {
            index,
            name: near.name,
        }
    }

    fn add_to_main(kernel: &Netlink, device: &Device, routes: Vec<(IpNetwork, u32)>) {
        let add = |(destination, metric)| {
            Operation::AddRoute(Route {
                table: TableId::MAIN,
                destination,
                metric,
                gateway: None,
                device: device.clone(),
                onlink: false,
                mtu: None,
                preference: RouterPreference::Medium,
            })
        };
        let operations: Vec<_> = routes.into_iter().map(add).collect();
        let operations: Vec<_> = operations.iter().collect();
        let results = kernel.execute(&operations, ProtocolId::observed(76));
        assert!(results.iter().all(Result::is_ok));
    }

    /// Metrics of the defaults that are found, and how many datagrams that took.
    fn defaults(kernel: &Netlink) -> (Vec<u32>, usize) {
        let found = kernel.ipv4_defaults().unwrap();
        let metrics = found.iter().map(|route| route.metric).collect();
        (metrics, kernel.channel.borrow().pieces())
    }

    fn hosts(count: u32) -> Vec<(IpNetwork, u32)> {
        let host = |number: u32| Ipv4Addr::from(0x0a00_0000 + number);
        (0..count)
            .map(|number| (IpAddr::V4(host(number)).into(), 0))
            .collect()
    }

    #[test]
    fn defaults_cost_the_same_among_many_routes() {
        in_namespace(
            "netlink::tests::defaults_cost_the_same_among_many_routes",
            || {
                let device = link();
                let kernel = Netlink::open().unwrap();
                assert_eq!(defaults(&kernel), (vec![], 0));
                let low = ["0.0.0.0/1", "0.0.0.0/8", "128.0.0.0/1"];
                let low = low.map(|prefix| (prefix.parse().unwrap(), 0)).to_vec();
                add_to_main(&kernel, &device, low);
                let default = Family::Ipv4.default_network();
                add_to_main(
                    &kernel,
                    &device,
                    [7, 0, 300].map(|metric| (default, metric)).to_vec(),
                );
                assert_eq!(defaults(&kernel), (vec![0, 7, 300], 1));
                add_to_main(&kernel, &device, hosts(20_000));
                assert_eq!(defaults(&kernel), (vec![0, 7, 300], 1));
                // The socket is as good as new, and a small one again after large reads.
                assert_eq!(kernel.links().unwrap().len(), 3);
                let which = MainRoutes::Ipv6Of([device.index].into());
                kernel.main_routes(&which).unwrap();
                assert_eq!(defaults(&kernel), (vec![0, 7, 300], 1));
            },
        );
    }

    #[test]
    fn defaults_may_fill_several_datagrams() {
        in_namespace(
            "netlink::tests::defaults_may_fill_several_datagrams",
            || {
                let device = link();
                let kernel = Netlink::open().unwrap();
                let default = Family::Ipv4.default_network();
                add_to_main(
                    &kernel,
                    &device,
                    (0..700).map(|metric| (default, metric)).collect(),
                );
                add_to_main(&kernel, &device, hosts(2000));
                let (metrics, datagrams) = defaults(&kernel);
                assert_eq!(metrics, (0..700).collect::<Vec<_>>());
                assert!((8..16).contains(&datagrams), "{datagrams}");
            },
        );
    }
}
