//! One subnet of a cloud: its router with a port for each machine, and what may pass.
//!
//! Every port has its own link, routes, rules and sink. The module doc of `fabric` says
//! why no packet filter and no reverse path filter is used.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, IfIndex, InterfaceName, Mac, TableId};
use leaseroute_kernel::topology::{NewAddress, NewRoute, NewRule, Target, Verdict};

use super::parts::{default_via, link_local, network, router, settle, transit4, transit6};
use super::{Card, GATEWAY6, ipv4, ipv6};
use crate::site::{BenchError, Site};

/// The link of the neighbours and of the fabric's ports to them.
const NEAR: &str = "near";
/// Priority of the rules that let an allowed source pass.
const ALLOWED: u32 = 1000;
/// Priority of the rules that send the rest to the sink.
const SPOOFED: u32 = 2000;
/// Sinks have tables from here on, by the number of their port.
const SINK_TABLES: u32 = 1000;

/// One port of a subnet's router.
#[derive(Debug)]
pub(super) struct Port {
    name: InterfaceName,
    pub(super) link: IfIndex,
    pub(super) sink: IfIndex,
    /// Where a prefix behind the port is reached: the machine's own addresses.
    via: (Ipv4Addr, Ipv6Addr),
    pub(super) allowed: BTreeSet<IpNetwork>,
}

/// One subnet: its router, its link to the core, and the machines in it.
#[derive(Debug)]
pub(super) struct Subnet {
    pub(super) number: u8,
    pub(super) router: Site,
    wan: IfIndex,
    core_link: IfIndex,
    /// The neighbour and its link.
    pub(super) neighbour: Option<(Site, IfIndex)>,
    pub(super) ports: BTreeMap<InterfaceName, Port>,
    /// How many cards were ever attached, for the next one's address.
    attached: u8,
}

impl Subnet {
    pub(super) fn new(number: u8, core: &Site, with_neighbour: bool) -> Result<Self, BenchError> {
        let router = router(&format!("fab{number}"))?;
        let wan = "wan".parse()?;
        let name = format!("fab{number}").parse()?;
        let (up, down) = router.connect((&wan, None), core, (&name, None))?;
        // From here on: ports share fe80::1 and need no link-local address of their own,
        // and a sink joins no group of routers, so that it sends nothing by itself.
        router.sysctl([
            ("ipv6/conf/default/addr_gen_mode", "1"),
            ("ipv6/conf/default/forwarding", "0"),
        ])?;
        settle(
            &router,
            up,
            &[
                network(transit4(number, 2), 30),
                network(transit6(number, 2), 64),
            ],
        )?;
        settle(
            core,
            down,
            &[
                network(transit4(number, 1), 30),
                network(transit6(number, 1), 64),
            ],
        )?;
        default_via(&router, up, transit4(number, 1).into())?;
        default_via(&router, up, transit6(number, 1).into())?;
        let mut subnet = Self {
            number,
            router,
            wan: up,
            core_link: down,
            neighbour: None,
            ports: BTreeMap::new(),
            attached: 0,
        };
        for prefix in subnet.prefixes() {
            // What nobody has is unreachable, not sent back to the core.
            subnet
                .router
                .net(|net| net.add_route(&NewRoute::main(prefix, Target::Unreachable)))?;
            let route = subnet.to_core_route(prefix);
            core.net(|net| net.add_route(&route))?;
        }
        if with_neighbour {
            subnet.add_neighbour()?;
        }
        Ok(subnet)
    }

    /// Waits until the links that are up from the start are in service.
    pub(super) fn await_running(&self, core: &Site) -> Result<(), BenchError> {
        self.router.await_running(self.wan)?;
        core.await_running(self.core_link)?;
        if let Some((neighbour, link)) = &self.neighbour {
            neighbour.await_running(*link)?;
            for port in self
                .ports
                .values()
                .filter(|port| port.name.as_str() == NEAR)
            {
                self.router.await_running(port.link)?;
            }
        }
        Ok(())
    }

    /// Takes a card's port away, when its addresses have been withdrawn.
    pub(super) fn unplug(&mut self, card: &Card) -> Result<(), BenchError> {
        let Some(port) = self.ports.remove(&card.port) else {
            return Ok(());
        };
        self.router.net(|net| {
            for rule in port.spoofed_rules(card_table(card.number)) {
                net.delete_rule(&rule)?;
            }
            net.delete_link(port.sink)
        })
    }

    fn prefixes(&self) -> [IpNetwork; 2] {
        [
            network(ipv4(self.number, 0), 24),
            network(ipv6(self.number, 0), 64),
        ]
    }

    fn add_neighbour(&mut self) -> Result<(), BenchError> {
        let site = Site::new(&format!("neighbour{}", self.number))?;
        site.sysctl([("ipv6/conf/default/accept_dad", "0")])?;
        let near: InterfaceName = NEAR.parse()?;
        let via = (ipv4(self.number, 50), ipv6(self.number, 0x50));
        let link = self.add_port(&near, SINK_TABLES, via, &site, (&near, None))?;
        settle(&site, link, &[network(via.0, 24), network(via.1, 64)])?;
        default_via(&site, link, ipv4(self.number, 1).into())?;
        default_via(&site, link, GATEWAY6.into())?;
        self.allow(&near, IpAddr::V4(via.0).into())?;
        self.allow(&near, IpAddr::V6(via.1).into())?;
        self.neighbour = Some((site, link));
        Ok(())
    }

    /// Plugs a new card in.
    pub(super) fn plug(&mut self, host: &Site, number: usize) -> Result<Card, BenchError> {
        let [.., high, low] = number.to_be_bytes();
        let mac = Mac::new([2, 0, 0, 0xca, high, low]);
        let position = self.attached;
        let addresses = (
            ipv4(self.number, 10 + position),
            ipv6(self.number, 0x10 + u16::from(position)),
        );
        let name = format!("eth{number}").parse()?;
        let card = self.join(host, number, name, mac, addresses)?;
        self.attached += 1;
        Ok(card)
    }

    /// Plugs a card in that was pulled out, perhaps under another name.
    pub(super) fn put_back(
        &mut self,
        host: &Site,
        card: &Card,
        name: InterfaceName,
    ) -> Result<Card, BenchError> {
        self.join(host, card.number, name, card.mac, (card.ipv4, card.ipv6))
    }

    fn join(
        &mut self,
        host: &Site,
        number: usize,
        name: InterfaceName,
        mac: Mac,
        (ipv4, ipv6): (Ipv4Addr, Ipv6Addr),
    ) -> Result<Card, BenchError> {
        let port: InterfaceName = format!("port{number}").parse()?;
        let table = card_table(number);
        let via = (ipv4, link_local(mac));
        let link = self.add_port(&port, table, via, host, (&name, Some(mac)))?;
        Ok(Card {
            number,
            name,
            link,
            mac,
            subnet: self.number,
            port,
            ipv4,
            ipv6,
        })
    }

    /// Makes a port and its sink, and returns the index of the machine's end.
    fn add_port(
        &mut self,
        name: &InterfaceName,
        table: u32,
        via: (Ipv4Addr, Ipv6Addr),
        machine: &Site,
        end: (&InterfaceName, Option<Mac>),
    ) -> Result<IfIndex, BenchError> {
        let router = &self.router;
        let (link, far) = router.connect((name, None), machine, end)?;
        router.sysctl([
            (format!("ipv4/conf/{name}/proxy_arp"), "1"),
            (format!("ipv4/neigh/{name}/proxy_delay"), "0"),
            (format!("ipv6/conf/{name}/forwarding"), "1"),
            (format!("ipv6/conf/{name}/proxy_ndp"), "1"),
            (format!("ipv6/neigh/{name}/proxy_delay"), "0"),
        ])?;
        let addresses = [
            network(ipv4(self.number, 1), 24),
            network(ipv6(self.number, 1), 64),
            network(GATEWAY6, 64),
        ];
        let (sink, drain) = (format!("s-{name}").parse()?, format!("d-{name}").parse()?);
        let (sink, drain) = router.connect((&sink, None), router, (&drain, None))?;
        let port = Port {
            name: name.clone(),
            link,
            sink,
            via,
            allowed: BTreeSet::new(),
        };
        router.net(|net| {
            for address in addresses {
                net.add_address(
                    link,
                    &NewAddress {
                        nodad: true,
                        // Only link-local addresses are on-link by their prefix: what is
                        // behind the port is routed address by address.
                        noprefixroute: address.ip() != IpAddr::V6(GATEWAY6),
                        ..NewAddress::permanent(address)
                    },
                )?;
            }
            net.set_up(link, true)?;
            net.set_resolving(sink, false)?;
            net.set_up(sink, true)?;
            net.set_up(drain, true)?;
            for family in Family::BOTH {
                net.add_route(&NewRoute {
                    table: TableId::observed(table),
                    ..NewRoute::main(family.default_network(), Target::Link(sink))
                })?;
            }
            for rule in port.spoofed_rules(table) {
                net.add_rule(&rule)?;
            }
            for address in self.ports.values().flat_map(Port::proxied) {
                net.add_proxy(link, address)?;
            }
            Ok(())
        })?;
        self.ports.insert(name.clone(), port);
        Ok(far)
    }

    pub(super) fn allow(
        &mut self,
        name: &InterfaceName,
        prefix: IpNetwork,
    ) -> Result<(), BenchError> {
        let Some(port) = self.ports.get(name) else {
            return Ok(());
        };
        self.router.net(|net| {
            net.add_route(&port.route(prefix))?;
            net.add_rule(&port.allowed_rule(prefix))?;
            self.each_other_port(name, prefix, |link, address| net.add_proxy(link, address))
        })?;
        if let Some(port) = self.ports.get_mut(name) {
            port.allowed.insert(prefix);
        }
        Ok(())
    }

    pub(super) fn withdraw(
        &mut self,
        name: &InterfaceName,
        prefix: IpNetwork,
    ) -> Result<(), BenchError> {
        let Some(port) = self.ports.get(name) else {
            return Ok(());
        };
        self.router.net(|net| {
            self.each_other_port(name, prefix, |link, address| {
                net.delete_proxy(link, address)
            })?;
            net.delete_rule(&port.allowed_rule(prefix))?;
            net.delete_route(&port.route(prefix))
        })?;
        if let Some(port) = self.ports.get_mut(name) {
            port.allowed.remove(&prefix);
        }
        Ok(())
    }

    /// Calls `act` for every other port when `prefix` is one IPv6 address. IPv4 needs no
    /// entries: `proxy_arp` answers for whatever is routed elsewhere.
    fn each_other_port<E>(
        &self,
        name: &InterfaceName,
        prefix: IpNetwork,
        act: impl Fn(IfIndex, IpAddr) -> Result<(), E>,
    ) -> Result<(), E> {
        if !prefix.is_ipv6() || prefix.prefix() != 128 {
            return Ok(());
        }
        self.ports
            .values()
            .filter(|port| port.name != *name)
            .try_for_each(|port| act(port.link, prefix.ip()))
    }

    /// The core's route to a prefix outside the subnet; `None` when it needs none.
    pub(super) fn core_route(&self, prefix: IpNetwork) -> Option<NewRoute> {
        let inside = self.prefixes().iter().any(|own| own.contains(prefix.ip()));
        (!inside).then(|| self.to_core_route(prefix))
    }

    fn to_core_route(&self, prefix: IpNetwork) -> NewRoute {
        let gateway = match Family::of_network(prefix) {
            Family::Ipv4 => transit4(self.number, 2).into(),
            Family::Ipv6 => transit6(self.number, 2).into(),
        };
        NewRoute::main(
            prefix,
            Target::Gateway {
                gateway,
                link: self.core_link,
                onlink: false,
            },
        )
    }
}

impl Port {
    /// Every packet that comes in here, after the allowed ones.
    fn spoofed_rules(&self, table: u32) -> [NewRule; 2] {
        Family::BOTH.map(|family| NewRule {
            iif: Some(self.name.clone()),
            ..NewRule::all(family, SPOOFED, Verdict::Lookup(TableId::observed(table)))
        })
    }

    fn allowed_rule(&self, prefix: IpNetwork) -> NewRule {
        let family = Family::of_network(prefix);
        NewRule {
            iif: Some(self.name.clone()),
            from: Some(prefix),
            ..NewRule::all(family, ALLOWED, Verdict::Lookup(TableId::MAIN))
        }
    }

    fn route(&self, prefix: IpNetwork) -> NewRoute {
        let family = Family::of_network(prefix);
        let target = if prefix.prefix() == family.host_length() {
            Target::Link(self.link)
        } else {
            Target::Gateway {
                gateway: match family {
                    Family::Ipv4 => self.via.0.into(),
                    Family::Ipv6 => self.via.1.into(),
                },
                link: self.link,
                onlink: true,
            }
        };
        NewRoute::main(prefix, target)
    }

    /// The IPv6 addresses here that other ports answer for.
    fn proxied(&self) -> impl Iterator<Item = IpAddr> {
        let single = self.allowed.iter().filter(|prefix| prefix.prefix() == 128);
        single.map(IpNetwork::ip)
    }
}

/// The number of the table that leads into the sink of a card's port.
fn card_table(number: usize) -> u32 {
    SINK_TABLES + 1 + u32::try_from(number).unwrap_or_default()
}
