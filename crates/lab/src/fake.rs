//! A kernel in memory that is as strict as the real one.
//!
//! Owns links, addresses, rules and routes as Linux 6.18 keeps them, as far as the
//! [`Kernel`] trait shows them: what it refuses, what vanishes with a link or an address,
//! and what stays. The scenarios of this crate run on it and on the real kernel alike, so
//! it cannot drift. It can also misbehave on purpose: deny everything, refuse the nth
//! operation, or end the connection halfway.
//!
//! Not modelled, since nothing of ours depends on it: the local table, multicast and
//! cached routes, several next hops in one IPv4 route, duplicate address detection.

mod fib;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::IpNetwork;
use leaseroute_core::{
    AddressFlags, Device, Family, IfIndex, InterfaceName, Link, LinkAddress, Mac, ObservedRoute,
    ObservedRule, Operation, Priority, ProtocolId, RawRule, RouteKind, RouterPreference,
    RuleAction, TableId,
};
use leaseroute_kernel::{Kernel, KernelError, MainRoutes, OperationError};
use nix::errno::Errno;

use crate::fixture::Snapshot;

use fib::{Fib, Placing};

/// The in-memory kernel. Its methods take `&self`, as the real one's do.
#[derive(Clone, Debug)]
pub struct FakeKernel {
    state: RefCell<State>,
}

#[derive(Clone, Debug)]
struct State {
    links: BTreeMap<IfIndex, Link>,
    addresses: Vec<LinkAddress>,
    fib: Fib,
    last_index: u32,
    fault: Fault,
}

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug, Default)]
struct Fault {
    denied: bool,
    /// Operations until one is refused, and how.
    refusal: Option<(usize, Errno)>,
    /// Operations until the connection ends.
    left: Option<usize>,
}

impl Default for FakeKernel {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeKernel {
    /// A new network namespace, with its loopback device up and the kernel's own rules.
    #[must_use]
    pub fn new() -> Self {
        let kernel = Self {
            state: RefCell::new(State {
                links: BTreeMap::new(),
                addresses: Vec::new(),
                fib: Fib::new(),
                last_index: 0,
                fault: Fault::default(),
            }),
        };
        if let Ok(name) = "lo".parse() {
            kernel.state.borrow_mut().add_link(name, true);
        }
        kernel
    }

    /// A kernel that holds just what a snapshot shows.
    #[must_use]
    pub fn holding(snapshot: &Snapshot) -> Self {
        Self {
            state: RefCell::new(State {
                links: snapshot.links.clone(),
                addresses: snapshot.addresses.clone(),
                fib: Fib::holding(&snapshot.rules, &snapshot.routes),
                last_index: snapshot
                    .links
                    .keys()
                    .map(|index| index.get())
                    .max()
                    .unwrap_or(0),
                fault: Fault::default(),
            }),
        }
    }

    /// All that it holds, as its dumps would show it.
    #[must_use]
    pub fn contents(&self) -> Snapshot {
        let state = self.state.borrow();
        let rules = Family::BOTH.map(|family| state.fib.rules(family));
        Snapshot {
            links: state.links.clone(),
            addresses: state.addresses.clone(),
            rules: rules.into_iter().flatten().collect(),
            routes: state.fib.routes(|_| true),
        }
    }

    /// Adds an Ethernet link that is up, with carrier and a link-local address.
    pub fn add_link(&self, name: InterfaceName) -> Device {
        self.state.borrow_mut().add_link(name, false)
    }

    /// Removes a link and all that depends on it. Rules stay.
    pub fn delete_link(&self, index: IfIndex) {
        let mut state = self.state.borrow_mut();
        state.set_up(index, false);
        state.addresses.retain(|address| address.index != index);
        state.links.remove(&index);
    }

    /// Sets a link up or down. Down drops its routes in every table and its IPv6
    /// addresses; up brings back the routes that addresses make, and only those.
    pub fn set_up(&self, index: IfIndex, up: bool) {
        self.state.borrow_mut().set_up(index, up);
    }

    /// Changes a link's description: its master, MTU, kind and the like. Its index, and
    /// whether it is up, stay.
    pub fn describe_link(&self, index: IfIndex, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.state.borrow_mut().links.get_mut(&index) {
            let up = link.up;
            change(link);
            link.index = index;
            link.up = up;
        }
    }

    /// Adds an address and the route of its prefix.
    pub fn add_address(&self, address: LinkAddress) {
        let mut state = self.state.borrow_mut();
        if state.links.get(&address.index).is_some_and(|link| link.up) {
            state.fib.add_prefix(&address);
        }
        state.addresses.push(address);
    }

    /// Removes an address. The last IPv4 address of a link takes the link's IPv4 routes
    /// of every table along.
    pub fn delete_address(&self, index: IfIndex, address: IpNetwork) {
        let mut state = self.state.borrow_mut();
        let State { addresses, fib, .. } = &mut *state;
        addresses.retain(|known| known.index != index || known.address != address);
        let family = Family::of_network(address);
        let on_link = |known: &&LinkAddress| {
            known.index == index && Family::of_network(known.address) == family
        };
        let left: Vec<&LinkAddress> = addresses.iter().filter(on_link).collect();
        fib.remove_prefix(index, address, &left);
    }

    /// Adds somebody else's route.
    ///
    /// # Errors
    ///
    /// When the kernel would refuse it.
    pub fn add_route(&self, route: &ObservedRoute) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let State {
            links,
            addresses,
            fib,
            ..
        } = &mut *state;
        Ok(fib.add_route(route.clone(), Placing::Add, links, addresses)?)
    }

    /// Adds somebody else's rule behind those of the same priority.
    ///
    /// # Errors
    ///
    /// When the kernel has it already.
    pub fn add_rule(&self, rule: &ObservedRule) -> io::Result<()> {
        Ok(self.state.borrow_mut().fib.add_rule(rule.clone())?)
    }

    /// Removes somebody else's route, if it is there.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn delete_route(&self, route: &ObservedRoute) -> io::Result<()> {
        Ok(self.state.borrow_mut().fib.delete_route(route)?)
    }

    /// Removes somebody else's rule.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub fn delete_rule(&self, rule: &ObservedRule) -> io::Result<()> {
        Ok(self.state.borrow_mut().fib.delete_rule(rule)?)
    }

    /// Refuses every operation from now on, as to a process without CAP_NET_ADMIN.
    pub fn deny(&self) {
        self.state.borrow_mut().fault.denied = true;
    }

    /// Refuses the nth operation from now on, 1 being the next one.
    pub fn refuse_nth(&self, nth: usize, how: Errno) {
        self.state.borrow_mut().fault.refusal = Some((nth, how));
    }

    /// Ends the connection once this many more operations are done.
    pub fn cut_off_after(&self, operations: usize) {
        self.state.borrow_mut().fault.left = Some(operations);
    }

    /// Behaves again.
    pub fn heal(&self) {
        self.state.borrow_mut().fault = Fault::default();
    }
}

impl Kernel for FakeKernel {
    fn links(&self) -> Result<Vec<Link>, KernelError> {
        Ok(self.state.borrow().links.values().cloned().collect())
    }

    fn addresses(&self, family: Family) -> Result<Vec<LinkAddress>, KernelError> {
        let of_family = |a: &&LinkAddress| Family::of_network(a.address) == family;
        let state = self.state.borrow();
        Ok(state.addresses.iter().filter(of_family).cloned().collect())
    }

    fn rules(&self, family: Family) -> Result<Vec<ObservedRule>, KernelError> {
        Ok(self.state.borrow().fib.rules(family))
    }

    fn main_routes(&self, which: &MainRoutes) -> Result<Vec<ObservedRoute>, KernelError> {
        Ok(self.state.borrow().fib.routes(|route| {
            route.table == TableId::MAIN
                && route.kind == RouteKind::Unicast
                && match which {
                    MainRoutes::Ipv4Defaults => {
                        route.family() == Family::Ipv4 && route.is_default()
                    }
                    MainRoutes::Ipv6Of(links) => {
                        route.family() == Family::Ipv6
                            && route.connects()
                            && route.oif.is_some_and(|oif| links.contains(&oif))
                    }
                }
        }))
    }

    fn table_routes(
        &self,
        family: Family,
        tables: &BTreeSet<TableId>,
    ) -> Result<Vec<ObservedRoute>, KernelError> {
        let wanted =
            |route: &ObservedRoute| route.family() == family && tables.contains(&route.table);
        Ok(self.state.borrow().fib.routes(wanted))
    }

    fn execute(
        &self,
        operations: &[&Operation],
        protocol: ProtocolId,
    ) -> Vec<Result<(), OperationError>> {
        let mut state = self.state.borrow_mut();
        let one = |operation: &&Operation| {
            OperationError::check(operation, state.execute(operation, protocol))
        };
        operations.iter().map(one).collect()
    }
}

impl State {
    #[expect(clippy::expect_used, reason = "indexes are counted up from 1")]
    fn add_link(&mut self, name: InterfaceName, loopback: bool) -> Device {
        self.last_index += 1;
        let number = self.last_index;
        let index = IfIndex::new(number).expect("not 0");
        let [.., a, b] = number.to_be_bytes();
        self.links.insert(
            index,
            Link {
                index,
                name: name.clone(),
                alternative_names: Vec::new(),
                mac: (!loopback).then(|| Mac::new([2, 0, 0x5e, 0x10, a, b])),
                mtu: if loopback { 65536 } else { 1500 },
                up: false,
                carrier: true,
                loopback,
                master: None,
                kind: (!loopback).then(|| "veth".to_owned()),
                driver: None,
            },
        );
        self.set_up(index, true);
        Device { index, name }
    }

    fn set_up(&mut self, index: IfIndex, up: bool) {
        let Some(link) = self.links.get_mut(&index) else {
            return;
        };
        if link.up == up {
            return;
        }
        link.up = up;
        let Link { loopback, mac, .. } = *link;
        if up {
            if let Some(mac) = mac.filter(|_| !loopback) {
                self.addresses.push(link_local(index, mac));
            }
            for address in self.addresses.iter().filter(|a| a.index == index) {
                self.fib.add_prefix(address);
            }
        } else {
            self.fib.drop_routes_of(index);
            let is_ipv6 = |a: &LinkAddress| Family::of_network(a.address) == Family::Ipv6;
            self.addresses.retain(|a| a.index != index || !is_ipv6(a));
        }
    }

    fn execute(&mut self, operation: &Operation, protocol: ProtocolId) -> io::Result<()> {
        self.fault.strike()?;
        let Self {
            links,
            addresses,
            fib,
            ..
        } = self;
        match operation {
            Operation::AddAddress(address) => {
                let index = address.device.index;
                links.get(&index).ok_or(Errno::ENODEV)?;
                let is_same = |seen: &LinkAddress| {
                    seen.index == index && seen.address.ip() == address.address.ip()
                };
                if addresses.iter().any(is_same) {
                    return Err(Errno::EEXIST.into());
                }
                let added = LinkAddress {
                    index,
                    address: address.address,
                    peer: None,
                    flags: AddressFlags {
                        permanent: true,
                        ..AddressFlags::default()
                    },
                    protocol: Some(protocol),
                };
                addresses.push(added);
            }
            Operation::DeleteAddress(address) => {
                let index = address.device.index;
                let link = links.get(&index).ok_or(Errno::ENODEV)?;
                let before = addresses.len();
                addresses.retain(|seen| seen.index != index || seen.address != address.address);
                if addresses.len() == before {
                    return Err(Errno::EADDRNOTAVAIL.into());
                }
                let family = Family::of_network(address.address);
                let left = addresses.iter().filter(|known| {
                    known.index == link.index && Family::of_network(known.address) == family
                });
                let left: Vec<&LinkAddress> = left.collect();
                fib.remove_prefix(index, address.address, &left);
            }
            Operation::AddRoute(route) => {
                let route = fib::as_observed(route, protocol);
                fib.add_route(route, Placing::Add, links, addresses)?;
            }
            Operation::ReplaceRoute(route) => {
                let route = fib::as_observed(route, protocol);
                fib.add_route(route, Placing::Replace, links, addresses)?;
            }
            Operation::AddRule(rule) => {
                fib.add_rule(fib::rule_as_observed(rule, protocol))?;
            }
            Operation::DeleteRule(rule) => fib.delete_rule(rule)?,
            Operation::DeleteRoute { route, .. } => fib.delete_route(route)?,
        }
        Ok(())
    }
}

impl Fault {
    /// Counts one operation and fails it when its time has come.
    fn strike(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(left) => *left -= 1,
            None => {}
        }
        if self.denied {
            return Err(Errno::EPERM.into());
        }
        match &mut self.refusal {
            Some((1, how)) => {
                let how = *how;
                self.refusal = None;
                Err(how.into())
            }
            Some((nth, _)) => {
                *nth = nth.saturating_sub(1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// The address that a link gives itself from its hardware address (RFC 4291 appendix A).
fn link_local(index: IfIndex, mac: Mac) -> LinkAddress {
    let [a, b, c, d, e, f] = mac.bytes();
    let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    let (first, second) = (word(a ^ 2, b), word(c, 0xff));
    let (third, fourth) = (word(0xfe, d), word(e, f));
    let address = Ipv6Addr::new(0xfe80, 0, 0, 0, first, second, third, fourth);
    LinkAddress {
        index,
        address: network(address.into(), 64),
        peer: None,
        flags: AddressFlags {
            permanent: true,
            ..AddressFlags::default()
        },
        protocol: None,
    }
}

/// A prefix of a length that its family is known to have.
fn network(address: IpAddr, length: u8) -> IpNetwork {
    IpNetwork::new(address, length).unwrap_or_else(|_| IpNetwork::from(address))
}

/// A rule of the kernel's own: everything looks up a table.
fn own_rule(family: Family, priority: u32, table: TableId) -> ObservedRule {
    ObservedRule {
        family,
        priority: Priority::observed(priority),
        inverted: false,
        from: None,
        to: None,
        iif: None,
        oif: None,
        mark: None,
        other_selectors: false,
        action: RuleAction::Lookup,
        table,
        suppress_prefix_length: None,
        protocol: ProtocolId::KERNEL,
        raw: RawRule::default(),
    }
}

/// A route that the kernel makes for an address, in table main.
fn prefix_route(address: &LinkAddress) -> Option<ObservedRoute> {
    let on_link = address.peer.unwrap_or(address.address);
    let family = Family::of_network(on_link);
    if family == Family::Ipv4 && on_link.prefix() == family.host_length() {
        return None;
    }
    Some(ObservedRoute {
        table: TableId::MAIN,
        destination: network(on_link.network(), on_link.prefix()),
        metric: if family == Family::Ipv4 { 0 } else { 256 },
        gateway: None,
        oif: Some(address.index),
        onlink: false,
        mtu: None,
        preference: RouterPreference::Medium,
        protocol: ProtocolId::KERNEL,
        kind: RouteKind::Unicast,
        // IPv4 names the preferred source.
        other_attributes: family == Family::Ipv4,
    })
}

#[cfg(test)]
mod tests {
    use leaseroute_core::{Rule, Selector};

    use super::*;

    fn add(priority: u32) -> Operation {
        Operation::AddRule(Rule {
            family: Family::Ipv4,
            priority: Priority::observed(priority),
            selector: Selector::All,
            table: TableId::observed(76010),
            suppress_prefix_length: None,
        })
    }

    /// Makes three changes and tells the ends of each.
    fn three(kernel: &FakeKernel) -> Vec<Result<(), OperationError>> {
        let operations = [7610, 7620, 7630].map(add);
        let operations: Vec<_> = operations.iter().collect();
        kernel.execute(&operations, ProtocolId::observed(76))
    }

    fn count(kernel: &FakeKernel) -> usize {
        let rules = kernel.rules(Family::Ipv4);
        rules.unwrap().len() - 3
    }

    #[test]
    fn denies_everything() {
        let kernel = FakeKernel::new();
        kernel.deny();
        let denied = |result: &Result<_, _>| matches!(result, Err(OperationError::NotPermitted));
        assert!(three(&kernel).iter().all(denied));
        assert_eq!(count(&kernel), 0);
        kernel.heal();
        assert!(three(&kernel).iter().all(Result::is_ok));
        assert_eq!(count(&kernel), 3);
    }

    #[test]
    fn refuses_the_nth_only() {
        let kernel = FakeKernel::new();
        kernel.refuse_nth(2, Errno::ENOMEM);
        let results = three(&kernel);
        let [Ok(()), Err(OperationError::Refused(error)), Ok(())] = results.as_slice() else {
            panic!("{results:?}");
        };
        assert_eq!(error.raw_os_error(), Some(Errno::ENOMEM as i32));
        assert_eq!(count(&kernel), 2);
        assert!(three(&kernel).iter().all(Result::is_ok));
    }

    #[test]
    fn ends_the_connection() {
        let kernel = FakeKernel::new();
        kernel.cut_off_after(1);
        let results = three(&kernel);
        let [
            Ok(()),
            Err(OperationError::Closed),
            Err(OperationError::Closed),
        ] = results.as_slice()
        else {
            panic!("{results:?}");
        };
        assert_eq!(count(&kernel), 1);
    }
}
