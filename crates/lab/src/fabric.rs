//! A small cloud: a host with several cards, a strict fabric behind each, and machines
//! that talk to the host from outside and from its own subnets.
//!
//! ```text
//!  client ─── core ─┬─ fab0 ─┬─ port0 ─ eth0 ┐
//!  203.0.113.10     │        └─ near ── neighbour of subnet 0
//!                   └─ fab1 ─┬─ port1 ─ eth1 ┴ host
//!                            └─ near ── neighbour of subnet 1
//! ```
//!
//! Subnet N is 10.0.N.0/24 behind 10.0.N.1 and 2001:db8:0:N::/64 behind fe80::1; the
//! host's first card in it is .10 and ::10, the neighbour .50 and ::50. As in a real
//! cloud each subnet is a routed fabric that looks like one wire: every port is a link of
//! its own, and the router answers ARP and NDP there for everybody else.
//!
//! The router forwards what comes in by a port only when its source is allowed there.
//! Everything else goes to that port's sink, where it is counted and lost. This is done
//! with policy rules alone, so no packet filter is needed. Reverse path filtering is off:
//! it would also leave ARP requests unanswered, so that wrong-way packets would wait in
//! the host and hold up the others. Addresses are born without duplicate address
//! detection unless a [`Layout`] says otherwise.
//!
//! Fabrics share nothing, so many may live at once; each is torn down when dropped.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, IfIndex, InterfaceName, Mac, ProtocolId, TableId};
use leaseroute_kernel::topology::{
    Lifetime, NewAddress, NewRoute, NewRule, Target, Topology, Verdict,
};

use crate::site::{BenchError, Site};

/// The outside client's IPv4 address.
pub const CLIENT4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// The outside client's IPv6 address.
pub const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 0x10);
/// The IPv6 router of every subnet.
pub const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The link of the neighbours and of the fabric's ports to them.
const NEAR: &str = "near";
/// Priority of the rules that let an allowed source pass.
const ALLOWED: u32 = 1000;
/// Priority of the rules that send the rest to the sink.
const SPOOFED: u32 = 2000;
/// Sinks have tables from here on, by the number of their port.
const SINK_TABLES: u32 = 1000;

/// What a fabric consists of.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The subnet of each card of the host, in order: `[0, 1]` is two cards in two
    /// subnets, `[0, 0]` two in one.
    pub cards: Vec<u8>,
    /// Whether each subnet has a neighbour.
    pub neighbours: bool,
    /// Whether the host's new links do duplicate address detection.
    pub dad: bool,
}

impl Layout {
    /// As many cards as asked for, each in its own subnet, with neighbours.
    #[must_use]
    pub fn separate(cards: u8) -> Self {
        Self::of((0..cards).collect())
    }

    /// Cards in the given subnets, with neighbours.
    #[must_use]
    pub fn of(cards: Vec<u8>) -> Self {
        Self {
            cards,
            neighbours: true,
            dad: false,
        }
    }
}

/// One card of the host.
#[derive(Clone, Debug)]
pub struct Card {
    /// Its number, as in `ethN`. Numbers are not used twice.
    pub number: usize,
    /// Its name.
    pub name: InterfaceName,
    /// Its index in the host.
    pub link: IfIndex,
    /// Its hardware address.
    pub mac: Mac,
    /// Its subnet.
    pub subnet: u8,
    /// The fabric's end of it, in the subnet's router: where a DHCP server listens.
    pub port: InterfaceName,
    /// The IPv4 address that the fabric gives it.
    pub ipv4: Ipv4Addr,
    /// The IPv6 address that the fabric gives it.
    pub ipv6: Ipv6Addr,
}

impl Card {
    /// The IPv4 router of its subnet.
    #[must_use]
    pub fn gateway4(&self) -> Ipv4Addr {
        ipv4(self.subnet, 1)
    }

    /// Its address of a family.
    #[must_use]
    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::Ipv4 => self.ipv4.into(),
            Family::Ipv6 => self.ipv6.into(),
        }
    }

    /// The link-local address that the kernel makes from its hardware address.
    #[must_use]
    pub fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac.bytes();
        let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
        Ipv6Addr::new(
            0xfe80,
            0,
            0,
            0,
            word(a ^ 2, b),
            word(c, 0xff),
            word(0xfe, d),
            word(e, f),
        )
    }
}

/// How a card gets its IPv6 address in [`Fabric::configure_static`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Style {
    /// A /128 from DHCPv6; the prefix and the router come from an RA.
    Dhcp,
    /// A /64, as the kernel makes it from an RA.
    Ra,
    /// None at all.
    Without,
}

/// One port of a subnet's router.
#[derive(Debug)]
struct Port {
    name: InterfaceName,
    link: IfIndex,
    sink: IfIndex,
    /// Where a prefix behind the port is reached: the machine's own addresses.
    via: (Ipv4Addr, Ipv6Addr),
    allowed: BTreeSet<IpNetwork>,
}

/// One subnet: its router, its link to the core, and the machines in it.
#[derive(Debug)]
struct Subnet {
    number: u8,
    router: Site,
    core_link: IfIndex,
    neighbour: Option<Site>,
    ports: BTreeMap<InterfaceName, Port>,
    /// How many cards were ever attached, for the next one's address.
    attached: u8,
}

/// A host with cards, and the cloud around it.
#[derive(Debug)]
pub struct Fabric {
    host: Site,
    client: Site,
    core: Site,
    subnets: BTreeMap<u8, Subnet>,
    cards: BTreeMap<usize, Card>,
    attached: usize,
    layout: Layout,
}

impl Fabric {
    /// Builds the cloud. The host's cards are down and have no addresses, as at boot.
    ///
    /// # Errors
    ///
    /// When the kernel refuses network namespaces or links.
    pub fn new(layout: &Layout) -> Result<Self, BenchError> {
        let host = Site::new("host")?;
        // IPv4 settings are inherited from the machine, which may be a router.
        host.sysctl([
            ("ipv4/ip_forward", "0"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            (
                "ipv6/conf/default/accept_dad",
                if layout.dad { "1" } else { "0" },
            ),
        ])?;
        let client = Site::new("client")?;
        client.sysctl([("ipv6/conf/default/accept_dad", "0")])?;
        let core = router("core")?;
        let (outside, inside) =
            client.connect((&"wan".parse()?, None), &core, (&"client".parse()?, None))?;
        settle(
            &client,
            outside,
            &[network(CLIENT4, 24), network(CLIENT6, 64)],
        )?;
        let gateway6 = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
        let gateway4 = Ipv4Addr::new(203, 0, 113, 1);
        settle(
            &core,
            inside,
            &[network(gateway4, 24), network(gateway6, 64)],
        )?;
        default_via(&client, outside, gateway4.into())?;
        default_via(&client, outside, gateway6.into())?;
        let mut fabric = Self {
            host,
            client,
            core,
            subnets: BTreeMap::new(),
            cards: BTreeMap::new(),
            attached: 0,
            layout: layout.clone(),
        };
        for &subnet in &layout.cards {
            fabric.attach(subnet)?;
        }
        Ok(fabric)
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Site {
        &self.host
    }

    /// The client outside.
    #[must_use]
    pub fn client(&self) -> &Site {
        &self.client
    }

    /// The router of a subnet, where DHCP and RA daemons run.
    ///
    /// # Errors
    ///
    /// When there is no such subnet.
    pub fn router(&self, subnet: u8) -> Result<&Site, BenchError> {
        Ok(&self.subnet(subnet)?.router)
    }

    /// The neighbours by subnet.
    pub fn neighbours(&self) -> impl Iterator<Item = (u8, &Site)> {
        self.subnets
            .values()
            .filter_map(|subnet| Some((subnet.number, subnet.neighbour.as_ref()?)))
    }

    /// The cards that are plugged in, in order.
    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.cards.values()
    }

    /// A card by its number.
    ///
    /// # Errors
    ///
    /// When it never was, or has been unplugged.
    pub fn card(&self, number: usize) -> Result<&Card, BenchError> {
        self.cards
            .get(&number)
            .ok_or(BenchError::NoSuchCard(number))
    }

    /// Plugs one more card into a subnet, which is made when it is new. The card is down
    /// and has no address.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach(&mut self, subnet: u8) -> Result<Card, BenchError> {
        let mut place = match self.subnets.remove(&subnet) {
            Some(place) => place,
            None => Subnet::new(subnet, &self.core, self.layout.neighbours)?,
        };
        let plugged = place.plug(&self.host, self.attached);
        self.subnets.insert(subnet, place);
        let card = plugged?;
        self.attached += 1;
        self.cards.insert(card.number, card.clone());
        self.allow(card.number, IpAddr::V4(card.ipv4).into())?;
        self.allow(card.number, IpAddr::V6(card.ipv6).into())?;
        Ok(card)
    }

    /// Pulls a card out, without a word to anybody.
    ///
    /// # Errors
    ///
    /// When there is no such card, or the kernel refuses.
    pub fn unplug(&mut self, number: usize) -> Result<(), BenchError> {
        for prefix in self.allowed(number)? {
            self.withdraw(number, prefix)?;
        }
        let card = self
            .cards
            .remove(&number)
            .ok_or(BenchError::NoSuchCard(number))?;
        let subnet = self.subnet_mut(card.subnet)?;
        if let Some(port) = subnet.ports.remove(&card.port) {
            for rule in port.spoofed_rules(card_table(number)) {
                subnet.router.net(|net| net.delete_rule(&rule))?;
            }
            subnet.router.net(|net| net.delete_link(port.sink))?;
        }
        self.host.net(|net| net.delete_link(card.link))
    }

    /// The prefixes that the fabric accepts from a card and routes to it.
    ///
    /// # Errors
    ///
    /// When there is no such card.
    pub fn allowed(&self, number: usize) -> Result<BTreeSet<IpNetwork>, BenchError> {
        let card = self.card(number)?;
        let port = self.subnet(card.subnet)?.ports.get(&card.port);
        Ok(port.map(|port| port.allowed.clone()).unwrap_or_default())
    }

    /// Accepts one more address or prefix from a card and routes it there. A prefix is
    /// routed by way of the card's own address, as delegated prefixes are.
    ///
    /// # Errors
    ///
    /// When there is no such card, or the prefix is routed already.
    pub fn allow(&mut self, number: usize, prefix: IpNetwork) -> Result<(), BenchError> {
        let card = self.card(number)?.clone();
        let subnet = self.subnet_mut(card.subnet)?;
        subnet.allow(&card.port, prefix)?;
        let route = subnet.core_route(prefix);
        match route {
            Some(route) => self.core.net(|net| net.add_route(&route)),
            None => Ok(()),
        }
    }

    /// Takes an address or prefix away from a card.
    ///
    /// # Errors
    ///
    /// When there is no such card, or the prefix is not routed there.
    pub fn withdraw(&mut self, number: usize, prefix: IpNetwork) -> Result<(), BenchError> {
        let card = self.card(number)?.clone();
        let subnet = self.subnet_mut(card.subnet)?;
        subnet.withdraw(&card.port, prefix)?;
        let route = subnet.core_route(prefix);
        match route {
            Some(route) => self.core.net(|net| net.delete_route(&route)),
            None => Ok(()),
        }
    }

    /// How many packets the fabric has dropped because a card sent them with a source
    /// that is not allowed there.
    ///
    /// # Errors
    ///
    /// When there is no such card.
    pub fn dropped(&self, number: usize) -> Result<u64, BenchError> {
        let card = self.card(number)?;
        let subnet = self.subnet(card.subnet)?;
        match subnet.ports.get(&card.port) {
            Some(port) => Ok(subnet.router.net(|net| net.counters(port.sink))?.sent),
            None => Err(BenchError::NoSuchCard(number)),
        }
    }

    /// Configures a card the way dhclient and a router advertisement leave it: the
    /// address with an hour to live, the on-link prefix, a default route in table main.
    /// Metrics grow with the card's number, so that card 0 has the default route that is
    /// used: 100 + N for IPv4, 1024 + N for IPv6.
    ///
    /// # Errors
    ///
    /// When there is no such card, or it has been configured.
    pub fn configure_static(&self, number: usize, style: Ipv6Style) -> Result<(), BenchError> {
        let card = self.card(number)?;
        let step = u32::try_from(number).unwrap_or(u32::MAX / 2);
        self.host.net(|net| {
            net.set_up(card.link, true)?;
            net.add_address(card.link, &self.leased(network(card.ipv4, 24)))?;
            let default4 = NewRoute {
                metric: Some(100 + step),
                ..gateway_route(Family::Ipv4, card.gateway4().into(), card.link)
            };
            net.add_route(&default4)
        })?;
        let length = match style {
            Ipv6Style::Dhcp => 128,
            Ipv6Style::Ra => 64,
            Ipv6Style::Without => return Ok(()),
        };
        self.host.net(|net| {
            net.add_address(card.link, &self.leased(network(card.ipv6, length)))?;
            if style == Ipv6Style::Dhcp {
                net.add_route(&NewRoute {
                    metric: Some(256),
                    protocol: ProtocolId::KERNEL,
                    expires: Some(3600),
                    ..NewRoute::main(network(card.ipv6, 64), Target::Link(card.link))
                })?;
            }
            net.add_route(&NewRoute {
                metric: Some(1024 + step),
                protocol: ProtocolId::RA,
                expires: Some(1800),
                ..gateway_route(Family::Ipv6, GATEWAY6.into(), card.link)
            })
        })
    }

    /// An address with an hour to live, usable at once unless the host detects
    /// duplicates.
    fn leased(&self, address: IpNetwork) -> NewAddress {
        NewAddress {
            lifetime: Some(Lifetime {
                valid: 3600,
                preferred: 3600,
            }),
            nodad: !self.layout.dad,
            ..NewAddress::permanent(address)
        }
    }

    fn subnet(&self, number: u8) -> Result<&Subnet, BenchError> {
        self.subnets
            .get(&number)
            .ok_or(BenchError::NoSuchSubnet(number))
    }

    fn subnet_mut(&mut self, number: u8) -> Result<&mut Subnet, BenchError> {
        self.subnets
            .get_mut(&number)
            .ok_or(BenchError::NoSuchSubnet(number))
    }
}

impl Subnet {
    fn new(number: u8, core: &Site, with_neighbour: bool) -> Result<Self, BenchError> {
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
        self.neighbour = Some(site);
        Ok(())
    }

    fn plug(&mut self, host: &Site, number: usize) -> Result<Card, BenchError> {
        let name: InterfaceName = format!("eth{number}").parse()?;
        let port: InterfaceName = format!("port{number}").parse()?;
        let [.., high, low] = number.to_be_bytes();
        let mac = Mac::new([2, 0, 0, 0xca, high, low]);
        let position = self.attached;
        let (v4, v6) = (
            ipv4(self.number, 10 + position),
            ipv6(self.number, 0x10 + u16::from(position)),
        );
        let mut card = Card {
            number,
            name: name.clone(),
            link: IfIndex::new(1).ok_or(BenchError::NoSuchCard(number))?,
            mac,
            subnet: self.number,
            port: port.clone(),
            ipv4: v4,
            ipv6: v6,
        };
        let via = (v4, card.link_local());
        card.link = self.add_port(&port, card_table(number), via, host, (&name, Some(mac)))?;
        self.attached += 1;
        Ok(card)
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

    fn allow(&mut self, name: &InterfaceName, prefix: IpNetwork) -> Result<(), BenchError> {
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

    fn withdraw(&mut self, name: &InterfaceName, prefix: IpNetwork) -> Result<(), BenchError> {
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
    fn core_route(&self, prefix: IpNetwork) -> Option<NewRoute> {
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

/// An address of subnet N: 10.0.N.`last`.
#[must_use]
pub fn ipv4(subnet: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, subnet, last)
}

/// An address of subnet N: 2001:db8:0:N::`last`.
#[must_use]
pub fn ipv6(subnet: u8, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, subnet.into(), 0, 0, 0, last)
}

fn transit4(subnet: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 31, subnet, last)
}

fn transit6(subnet: u8, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0xc0, subnet.into(), 0, 0, 0, 0, last)
}

/// The number of the table that leads into the sink of a card's port.
fn card_table(number: usize) -> u32 {
    SINK_TABLES + 1 + u32::try_from(number).unwrap_or_default()
}

/// An address with a prefix length that is known to fit its family.
fn network(address: impl Into<IpAddr>, length: u8) -> IpNetwork {
    let address = address.into();
    IpNetwork::new(address, length).unwrap_or_else(|_| address.into())
}

fn gateway_route(family: Family, gateway: IpAddr, link: IfIndex) -> NewRoute {
    NewRoute::main(
        family.default_network(),
        Target::Gateway {
            gateway,
            link,
            onlink: false,
        },
    )
}

fn default_via(site: &Site, link: IfIndex, gateway: IpAddr) -> Result<(), BenchError> {
    let route = gateway_route(Family::of(gateway), gateway, link);
    site.net(|net| net.add_route(&route))
}

/// Gives a link permanent addresses and sets it up.
fn settle(site: &Site, link: IfIndex, addresses: &[IpNetwork]) -> Result<(), BenchError> {
    site.net(|net: &Topology| {
        net.set_up(link, true)?;
        addresses
            .iter()
            .try_for_each(|address| net.add_address(link, &NewAddress::permanent(*address)))
    })
}

fn router(name: &str) -> Result<Site, BenchError> {
    let site = Site::new(name)?;
    site.sysctl([
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        // This sets the default for new links, too.
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/default/accept_dad", "0"),
    ])?;
    Ok(site)
}
