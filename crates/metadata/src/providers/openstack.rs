//! OpenStack: the network data of Nova, from the metadata service or, at the same path, from
//! a config drive.
//!
//! Told of a card: of each network that does not use DHCP, and of each IPv6 network where
//! Nova knows the address, the address with its mask, and the router. Not told: the
//! address that DHCP will give, further fixed addresses, and allowed address pairs. A family
//! in which one network's address is not told is not told of.
//!
//! Sources: <https://docs.openstack.org/nova/latest/user/metadata.html>,
//! <https://docs.openstack.org/nova/latest/_downloads/9119ca7ac90aa2990e762c08baea3a36/network_data.json>
//! (the schema), <https://docs.openstack.org/neutron/latest/admin/config-metadata-rate-limiting.html>.

use std::net::SocketAddr;

use leaseroute_core::Family;
use serde::Deserialize;

use super::reading::{self, Reading, Telling};
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::finding::Why;
use crate::provider::{Description, Identity, Provider, Step, Way};

pub(super) struct OpenStack;

const NETWORK_DATA: &str = "/openstack/latest/network_data.json";

#[derive(Deserialize)]
struct Document {
    links: Vec<Link>,
    networks: Vec<Network>,
}

#[derive(Deserialize)]
struct Link {
    id: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    ethernet_mac_address: Option<String>,
}

#[derive(Deserialize)]
struct Network {
    link: String,
    #[serde(rename = "type")]
    kind: String,
    ip_address: Option<String>,
    netmask: Option<String>,
    gateway: Option<String>,
    #[serde(default)]
    routes: Vec<Route>,
}

#[derive(Deserialize)]
struct Route {
    network: String,
    netmask: Option<String>,
    gateway: Option<String>,
}

/// How clouds that run OpenStack name their machines.
const PRODUCTS: &[&str] = &["OpenStack Nova", "OpenStack Compute"];
const ASSET_TAGS: &[&str] = &[
    "OpenStack Nova",
    "OpenStack Compute",
    "OpenTelekomCloud",
    "HUAWEICLOUD",
    "SAP CCloud VM",
    "Samsung Cloud Platform",
];

impl Provider for OpenStack {
    fn name(&self) -> &'static str {
        "openstack"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        let tree = &identity.device_tree;
        PRODUCTS.contains(&identity.product_name.as_str())
            || ASSET_TAGS.contains(&identity.chassis_asset_tag.as_str())
            || identity.sys_vendor == "OpenStack Foundation"
            || tree.iter().any(|text| text.starts_with("OpenStack"))
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        &[reading::LINK_LOCAL]
    }

    /// It tells of all cards, by whichever it is asked. Not every network has it.
    fn way(&self) -> Way {
        Way::Host
    }

    /// Operators can set a limit; the one that comes with Neutron is 10 requests in 10 seconds.
    /// All cards take one request.
    fn rate(&self) -> u32 {
        1
    }

    fn step(&self, card: &Card, answers: &Answers) -> Step {
        reading::step(read(card, answers))
    }
}

fn read(card: &Card, answers: &Answers) -> Reading<Description> {
    let request = Request::get(NETWORK_DATA);
    let body = reading::body(answers, &request)?;
    let document: Document = body.json()?;
    let mut links = Vec::new();
    for link in &document.links {
        // A VLAN has the card's hardware address and is none of its networks.
        if let Some(mac) = reading::held(link.ethernet_mac_address.as_ref())
            && body.mac(mac)? == card.mac
            && link.kind.as_deref() != Some("vlan")
        {
            links.push(link.id.as_str());
        }
    }
    if links.is_empty() {
        return Err(Why::NotListed.into());
    }

    let mut telling = Telling::new(body);
    let (mut told4, mut told6) = (true, true);
    let of_card = |network: &&Network| links.contains(&network.link.as_str());
    for network in document.networks.iter().filter(of_card) {
        let family = match network.kind.get(..4) {
            Some("ipv4") => Family::Ipv4,
            Some("ipv6") => Family::Ipv6,
            _ => return Err(body.invalid("type of a network", &network.kind).into()),
        };
        let Some(address) = reading::held(network.ip_address.as_ref()) else {
            match family {
                Family::Ipv4 => told4 = false,
                Family::Ipv6 => told6 = false,
            }
            continue;
        };
        let (address, length) = match address.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (address, reading::held(network.netmask.as_ref())),
        };
        telling.address(family, address)?;
        if let Some(length) = length {
            telling.subnet_of(family, address, length)?;
        }
        let default = network.routes.iter().filter(|route| is_default(route));
        let routers = default.filter_map(|route| reading::held(route.gateway.as_ref()));
        for gateway in routers.chain(reading::held(network.gateway.as_ref())) {
            telling.gateway(family, gateway)?;
        }
    }
    let whole = telling.whole();
    Ok(Description {
        ipv4: whole.ipv4.filter(|_| told4),
        ipv6: whole.ipv6.filter(|_| told6),
    })
}

fn is_default(route: &Route) -> bool {
    let (network, mask) = match route.network.split_once('/') {
        Some((network, length)) => (network, Some(length)),
        None => (route.network.as_str(), route.netmask.as_deref()),
    };
    matches!(network, "0.0.0.0" | "::") && matches!(mask, Some("0.0.0.0" | "::" | "0"))
}
