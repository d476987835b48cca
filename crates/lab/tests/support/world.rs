//! Hosts with up to four cards, leases of every form, and what can happen to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use leaseroute_core::{
    AddressFlags, CardMetadata, Client, Family, IfIndex, InterfaceName, Link, LinkAddress, Mac,
    ObservedRoute, ObservedRule, ProtocolId, RawEvent, RouterPreference, Said,
};

use leaseroute_lab::fixture::Snapshot;

use super::kernel::{bare, main_route};
use super::spelling::{Spelling, spelled};

/// The most cards a host has here.
pub(crate) const CARDS: usize = 4;

/// Subnets to choose from: two of them nested, one short.
pub(crate) const NETS: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(10, 0, 0, 0), 16),
    (Ipv4Addr::new(10, 0, 1, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 128), 25),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    Right,
    Missing,
    Broken,
    /// 255.255.255.255, and the kernel has it so, too.
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Router {
    None,
    InSubnet,
    OffLink,
    /// The leased address itself.
    Own,
    /// Two that cannot be, then one that can.
    Third,
    /// The address of the next card.
    NextCard,
}

/// What option 121 and its relatives say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routes {
    None,
    Default,
    NoDefault,
    /// The default first, then the on-link route its gateway needs.
    OnLinkGateway,
    /// A route by a gateway that no prefix covers.
    OffLinkGateway,
    /// The own subnet by the router, and the subnet of other cards.
    Overlapping,
    /// The two halves of the default, and 10.0.0.0/8.
    Wide,
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease4Form {
    pub(crate) net: usize,
    pub(crate) host: u8,
    /// Whether another card could get the very same address.
    pub(crate) shared: bool,
    pub(crate) mask: Mask,
    pub(crate) router: Router,
    pub(crate) routes: Routes,
    pub(crate) spelling: Spelling,
    pub(crate) mtu: Option<u16>,
    pub(crate) default_in_main: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form6 {
    pub(crate) net: u16,
    pub(crate) host: u8,
    /// Leased by DHCPv6 as a /128, or made from an advertisement.
    pub(crate) leased: bool,
    pub(crate) prefix_on_link: bool,
    pub(crate) delegated: bool,
    pub(crate) tentative: bool,
    pub(crate) routers: Vec<(u8, RouterPreference)>,
    pub(crate) advertised_route: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Gained4(usize, Lease4Form),
    Lost4(usize),
    Gained6(usize, Form6),
    Lost6(usize),
    Up(usize, bool),
    Master(usize, bool),
    /// Nobody reports anything and the state folder is lost.
    StateLost,
    /// A metadata service tells of a card.
    Said(usize, Family, SaidForm),
}

/// What a metadata service says of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaidForm {
    /// How many addresses besides the leased one.
    pub(crate) more: u8,
    /// Whether a prefix is routed to the card.
    pub(crate) prefix: bool,
    /// Whether no DHCP server serves the card.
    pub(crate) unserved: bool,
    /// Whether the router is told.
    pub(crate) gateway: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Card {
    pub(crate) down: bool,
    pub(crate) master: bool,
    pub(crate) lease4: Option<Lease4Form>,
    pub(crate) form6: Option<Form6>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) cards: [Card; CARDS],
    pub(crate) foreign_rules: Vec<ObservedRule>,
    pub(crate) foreign_routes: Vec<ObservedRoute>,
}

pub(crate) fn index_of(card: usize) -> IfIndex {
    IfIndex::new(u32::try_from(card).unwrap() + 2).unwrap()
}

pub(crate) fn name_of(card: usize) -> InterfaceName {
    format!("eth{card}").parse().unwrap()
}

fn mac_of(card: usize) -> Mac {
    Mac::new([2, 0, 0, 0, 0, u8::try_from(9 - card).unwrap()])
}

impl Lease4Form {
    pub(crate) fn address(&self, card: usize) -> Ipv4Addr {
        let (net, _) = NETS[self.net];
        let [a, b, c, d] = net.octets();
        let own = if self.shared {
            0
        } else {
            10 + 20 * u8::try_from(card).unwrap()
        };
        Ipv4Addr::new(a, b, c, d + 2 + own + self.host)
    }

    fn length(&self) -> u8 {
        match self.mask {
            Mask::Host => 32,
            Mask::Right | Mask::Missing | Mask::Broken => NETS[self.net].1,
        }
    }

    fn gateway(&self) -> Ipv4Addr {
        let [a, b, c, d] = NETS[self.net].0.octets();
        Ipv4Addr::new(a, b, c, d + 1)
    }

    fn routers(&self, card: usize) -> Option<String> {
        let gateway = self.gateway();
        match self.router {
            Router::None => None,
            Router::InSubnet => Some(gateway.to_string()),
            Router::OffLink => Some("203.0.113.1".to_owned()),
            Router::Own => Some(self.address(card).to_string()),
            Router::Third => Some(format!("0.0.0.0 255.255.255.255 {gateway}")),
            Router::NextCard => Some(self.address((card + 1) % CARDS).to_string()),
        }
    }

    fn classless(&self) -> Vec<(Ipv4Network, Ipv4Addr)> {
        let route = |text: &str, gateway| (text.parse::<Ipv4Network>().unwrap(), gateway);
        let gateway = self.gateway();
        let off_link = Ipv4Addr::new(203, 0, 113, 1);
        match self.routes {
            Routes::None => vec![],
            Routes::Default => vec![route("0.0.0.0/0", gateway)],
            Routes::NoDefault | Routes::Broken => vec![route("198.18.5.0/24", gateway)],
            Routes::OnLinkGateway => vec![
                route("0.0.0.0/0", off_link),
                route("203.0.113.1/32", Ipv4Addr::UNSPECIFIED),
            ],
            Routes::OffLinkGateway => {
                vec![
                    route("198.18.5.0/24", off_link),
                    route("0.0.0.0/0", gateway),
                ]
            }
            Routes::Overlapping => vec![
                route("192.0.2.0/24", gateway),
                route("10.0.0.0/16", gateway),
                route("198.51.100.128/25", Ipv4Addr::UNSPECIFIED),
                route("0.0.0.0/0", gateway),
            ],
            Routes::Wide => vec![
                route("0.0.0.0/1", gateway),
                route("128.0.0.0/1", gateway),
                route("10.0.0.0/8", gateway),
            ],
        }
    }

    fn variables(&self, card: usize) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        let mut set = |key: &str, value: String| variables.insert(key.to_owned(), value);
        set("new_ip_address", self.address(card).to_string());
        match self.mask {
            Mask::Missing => None,
            Mask::Broken => set("new_subnet_mask", "255.0.255.0".to_owned()),
            Mask::Right | Mask::Host => {
                let network = Ipv4Network::new(self.address(card), self.length()).unwrap();
                set("new_subnet_mask", network.mask().to_string())
            }
        };
        if let Some(routers) = self.routers(card) {
            set("new_routers", routers);
        }
        if let Some(mtu) = self.mtu {
            set("new_interface_mtu", mtu.to_string());
        }
        let routes = self.classless();
        if !routes.is_empty() {
            let (variable, value) = spelled(&routes, self.spelling);
            let broken = self.routes == Routes::Broken;
            set(variable, if broken { format!("{value} x") } else { value });
        }
        variables
    }
}

impl Form6 {
    fn network(&self) -> Ipv6Network {
        Ipv6Network::new(Ipv6Addr::new(0x2001, 0xdb8, self.net, 0, 0, 0, 0, 0), 64).unwrap()
    }

    pub(crate) fn address(&self, card: usize) -> Ipv6Addr {
        let own = u16::try_from(card).unwrap() * 0x100 + u16::from(self.host);
        Ipv6Addr::new(0x2001, 0xdb8, self.net, 0, 0, 0, 0, own + 0x10)
    }

    fn delegated(&self, card: usize) -> Ipv6Network {
        let own = u16::try_from(card).unwrap() << 8;
        Ipv6Network::new(
            Ipv6Addr::new(0x2001, 0xdb8, 0x1f00 + self.net, own, 0, 0, 0, 0),
            56,
        )
        .unwrap()
    }
}

impl World {
    /// Lets something happen, and returns what the client's hook is told, one event each.
    pub(crate) fn happen(&mut self, happening: &Happening) -> Vec<RawEvent> {
        match happening {
            Happening::Gained4(card, form) => {
                self.cards[*card].lease4 = Some(*form);
                vec![event(*card, "BOUND", form.variables(*card))]
            }
            Happening::Lost4(card) => {
                let old = self.cards[*card].lease4.take();
                let variables =
                    old.map(|form| ("old_ip_address".to_owned(), form.address(*card).to_string()));
                vec![event(*card, "EXPIRE", variables.into_iter().collect())]
            }
            Happening::Gained6(card, form) => {
                let mut events = self.lose6(*card);
                self.cards[*card].form6 = Some(form.clone());
                events.extend(self.parts6(*card, "BOUND6", "new"));
                events
            }
            Happening::Lost6(card) => self.lose6(*card),
            Happening::Up(card, up) => {
                self.cards[*card].down = !up;
                vec![]
            }
            Happening::Master(card, master) => {
                self.cards[*card].master = *master;
                vec![]
            }
            Happening::StateLost | Happening::Said(..) => vec![],
        }
    }

    fn lose6(&mut self, card: usize) -> Vec<RawEvent> {
        let events = self.parts6(card, "EXPIRE6", "old");
        self.cards[card].form6 = None;
        events
    }

    /// DHCPv6 tells of one address or prefix at a time.
    fn parts6(&self, card: usize, reason: &str, prefix: &str) -> Vec<RawEvent> {
        let Some(form) = &self.cards[card].form6 else {
            return vec![];
        };
        let address = form
            .leased
            .then(|| ("ip6_address", form.address(card).to_string()));
        let delegated = form
            .delegated
            .then(|| ("ip6_prefix", form.delegated(card).to_string()));
        let parts = address.into_iter().chain(delegated);
        parts
            .map(|(key, value)| event(card, reason, [(format!("{prefix}_{key}"), value)].into()))
            .collect()
    }

    /// What a metadata service says of a card, the address that it has now among it.
    pub(crate) fn said(&self, card: usize, family: Family, form: SaidForm) -> CardMetadata {
        let number = u8::try_from(card).unwrap();
        let (own, subnet, gateway): (Option<IpAddr>, String, IpAddr) = match family {
            Family::Ipv4 => {
                let lease = self.cards[card].lease4;
                let lease = lease.map(|lease| IpAddr::V4(lease.address(card)));
                let unserved = Ipv4Addr::new(198, 18, number, 10);
                let own = lease.or(form.unserved.then_some(IpAddr::V4(unserved)));
                let gateway = Ipv4Addr::new(198, 18, number, 1);
                (own, format!("198.18.{number}.0/24"), gateway.into())
            }
            Family::Ipv6 => {
                let held = self.cards[card].form6.as_ref();
                let held = held.map(|held| IpAddr::V6(held.address(card)));
                let unserved = Ipv6Addr::new(0x2001, 0xdb8, 0x7000, number.into(), 0, 0, 0, 10);
                let own = held.or(form.unserved.then_some(IpAddr::V6(unserved)));
                let gateway = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
                (own, format!("2001:db8:7000:{number}::/64"), gateway.into())
            }
        };
        let more = (0..form.more).map(|place| match family {
            Family::Ipv4 => IpAddr::V4(Ipv4Addr::new(198, 19, number, 20 + place)),
            Family::Ipv6 => IpAddr::V6(Ipv6Addr::new(
                0x2001,
                0xdb8,
                0x7100,
                number.into(),
                0,
                0,
                0,
                place.into(),
            )),
        });
        let prefix = match family {
            Family::Ipv4 => format!("198.19.{}.16/28", 100 + number),
            Family::Ipv6 => format!("2001:db8:7200:{number}::/80"),
        };
        CardMetadata {
            index: index_of(card),
            name: name_of(card),
            mac: Some(mac_of(card)),
            family,
            provider: "ec2".to_owned(),
            said: Said {
                addresses: own.into_iter().chain(more).collect(),
                subnets: [subnet.parse().unwrap()].into(),
                prefixes: form
                    .prefix
                    .then(|| prefix.parse().unwrap())
                    .into_iter()
                    .collect(),
                gateway: form.gateway.then_some(gateway),
                is_unserved: form.unserved,
            },
            withdrawn: BTreeSet::new(),
            updated: 0,
        }
    }

    /// What the kernel holds as clients and administrators leave it, without anything of ours.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut kernel = bare();
        kernel
            .links
            .insert(IfIndex::new(1).unwrap(), link(1, "lo", None));
        for (card, state) in self.cards.iter().enumerate() {
            let index = index_of(card);
            let mut link = link(index.get(), name_of(card).as_str(), Some(mac_of(card)));
            link.up = !state.down;
            link.master = state.master.then(|| IfIndex::new(9).unwrap());
            kernel.links.insert(index, link);
            if let Some(form) = &state.lease4 {
                add4(&mut kernel, card, form, state.down);
            }
            if let Some(form) = &state.form6
                && !state.down
            {
                add6(&mut kernel, card, form);
            }
        }
        kernel.rules.extend(self.foreign_rules.iter().cloned());
        kernel.routes.extend(self.foreign_routes.iter().cloned());
        kernel
    }
}

fn event(card: usize, reason: &str, mut variables: BTreeMap<String, String>) -> RawEvent {
    variables.insert("reason".to_owned(), reason.to_owned());
    variables.insert("interface".to_owned(), name_of(card).to_string());
    RawEvent::new(Client::Dhclient, variables)
}

fn link(index: u32, name: &str, mac: Option<Mac>) -> Link {
    Link {
        index: IfIndex::new(index).unwrap(),
        name: name.parse().unwrap(),
        alternative_names: Vec::new(),
        mac,
        mtu: 1500,
        up: true,
        carrier: true,
        loopback: mac.is_none(),
        master: None,
        kind: None,
        driver: None,
    }
}

fn add4(kernel: &mut Snapshot, card: usize, form: &Lease4Form, down: bool) {
    let index = index_of(card);
    let address = Ipv4Network::new(form.address(card), form.length()).unwrap();
    kernel.addresses.push(LinkAddress {
        index,
        address: IpNetwork::V4(address),
        peer: None,
        flags: AddressFlags::default(),
        protocol: None,
    });
    if down {
        return;
    }
    let connected = Ipv4Network::new(address.network(), address.prefix()).unwrap();
    let metric = u32::try_from(card).unwrap() * 100;
    kernel.routes.push(main_route(
        connected.into(),
        None,
        index,
        0,
        ProtocolId::KERNEL,
    ));
    if form.default_in_main {
        let gateway = Some(IpAddr::V4(form.gateway()));
        let default = Family::Ipv4.default_network();
        kernel.routes.push(main_route(
            default,
            gateway,
            index,
            metric,
            ProtocolId::observed(3),
        ));
    }
}

fn add6(kernel: &mut Snapshot, card: usize, form: &Form6) {
    let index = index_of(card);
    let length = if form.leased { 128 } else { 64 };
    let mut add = |address: Ipv6Addr, length, flags| {
        kernel.addresses.push(LinkAddress {
            index,
            address: IpNetwork::V6(Ipv6Network::new(address, length).unwrap()),
            peer: None,
            flags,
            protocol: None,
        });
    };
    let permanent = AddressFlags {
        permanent: true,
        ..AddressFlags::default()
    };
    add(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x10), 64, permanent);
    let flags = AddressFlags {
        tentative: form.tentative,
        ..AddressFlags::default()
    };
    add(form.address(card), length, flags);
    if form.prefix_on_link {
        kernel.routes.push(main_route(
            form.network().into(),
            None,
            index,
            256,
            ProtocolId::KERNEL,
        ));
    }
    let router = |number: u8| IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number.into()));
    for (number, preference) in &form.routers {
        let default = Family::Ipv6.default_network();
        let mut route = main_route(default, Some(router(*number)), index, 1024, ProtocolId::RA);
        route.preference = *preference;
        kernel.routes.push(route);
    }
    if form.advertised_route {
        let destination = "2001:db8:5::/48".parse().unwrap();
        let gateway = Some(router(1));
        kernel.routes.push(main_route(
            destination,
            gateway,
            index,
            1024,
            ProtocolId::RA,
        ));
    }
}
