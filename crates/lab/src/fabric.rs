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

mod parts;
mod subnet;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, IfIndex, InterfaceName, Mac, ProtocolId};
use leaseroute_kernel::topology::{Lifetime, NewAddress, NewRoute, Target};

use self::parts::{default_via, gateway_route, link_local, network, router, settle};
use self::subnet::Subnet;
use crate::site::{BenchError, Site};

/// The outside client's IPv4 address.
pub const CLIENT4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// The outside client's IPv6 address.
pub const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 0x10);
/// The IPv6 router of every subnet.
pub const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

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
        link_local(self.mac)
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
            fabric.plug(subnet)?;
        }
        fabric.client.await_running(outside)?;
        fabric.core.await_running(inside)?;
        for subnet in fabric.subnets.values() {
            subnet.await_running(&fabric.core)?;
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
            .filter_map(|subnet| Some((subnet.number, &subnet.neighbour.as_ref()?.0)))
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
        let card = self.plug(subnet)?;
        self.subnet(subnet)?.await_running(&self.core)?;
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
        self.subnet_mut(card.subnet)?.unplug(&card)?;
        self.host.net(|net| net.delete_link(card.link))
    }

    /// Plugs a card that was pulled out into its place again, under a name that may be
    /// another one. Its hardware address and what the fabric gives it are as before; what
    /// else was allowed is not.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn put_back(&mut self, card: &Card, name: InterfaceName) -> Result<Card, BenchError> {
        let host = &self.host;
        let place = self.subnets.get_mut(&card.subnet);
        let place = place.ok_or(BenchError::NoSuchSubnet(card.subnet))?;
        let card = place.put_back(host, card, name)?;
        self.welcome(card.clone())?;
        self.subnet(card.subnet)?.await_running(&self.core)?;
        Ok(card)
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
        self.host.await_running(card.link)?;
        let subnet = self.subnet(card.subnet)?;
        if let Some(port) = subnet.ports.get(&card.port) {
            subnet.router.await_running(port.link)?;
        }
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

    /// Plugs a card in without waiting for the links around it.
    fn plug(&mut self, subnet: u8) -> Result<Card, BenchError> {
        let mut place = match self.subnets.remove(&subnet) {
            Some(place) => place,
            None => Subnet::new(subnet, &self.core, self.layout.neighbours)?,
        };
        let plugged = place.plug(&self.host, self.attached);
        self.subnets.insert(subnet, place);
        let card = plugged?;
        self.attached += 1;
        self.welcome(card.clone())?;
        Ok(card)
    }

    /// Lets a new card's own addresses pass.
    fn welcome(&mut self, card: Card) -> Result<(), BenchError> {
        let (number, ipv4, ipv6) = (card.number, card.ipv4, card.ipv6);
        self.cards.insert(number, card);
        self.allow(number, IpAddr::V4(ipv4).into())?;
        self.allow(number, IpAddr::V6(ipv6).into())
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
