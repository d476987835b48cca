//! Hetzner Cloud: the metadata service.
//!
//! Told of a card in a private network: its address, alias addresses, subnet and router. Its
//! lease is a /32, and all of the network is behind the router, so that the subnet is not
//! on-link and not taken. Told of the public card: the IPv6 address, the prefix around it,
//! which is routed to the machine, and the IPv6 router. Not told of that card: IPv4, where it
//! says that DHCP is used.
//!
//! Sources: <https://docs.hetzner.cloud/reference/cloud#server-metadata>,
//! <https://docs.hetzner.com/networking/networks/server-configuration/>.

use std::net::SocketAddr;

use leaseroute_core::Family::{Ipv4, Ipv6};
use serde::Deserialize;

use super::reading::{self, Reading, Telling};
use super::yaml;
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::finding::Why;
use crate::provider::{Description, Identity, Provider, Step};

pub(super) struct Hetzner;

const PRIVATE: &str = "/hetzner/v1/metadata/private-networks";
const PUBLIC: &str = "/hetzner/v1/metadata/network-config";

#[derive(Deserialize)]
struct Private {
    ip: String,
    #[serde(default)]
    alias_ips: Vec<String>,
    mac_address: String,
    gateway: String,
}

#[derive(Deserialize)]
struct Public {
    config: Vec<Interface>,
}

#[derive(Deserialize)]
struct Interface {
    mac_address: String,
    #[serde(default)]
    subnets: Vec<Subnet>,
}

#[derive(Deserialize)]
struct Subnet {
    ipv6: Option<String>,
    address: Option<String>,
    gateway: Option<String>,
}

impl Provider for Hetzner {
    fn name(&self) -> &'static str {
        "hetzner"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        identity.sys_vendor == "Hetzner"
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        &[reading::LINK_LOCAL]
    }

    /// No limit is documented; all cards take two requests.
    fn rate(&self) -> u32 {
        5
    }

    fn step(&self, card: &Card, answers: &Answers) -> Step {
        reading::step(read(card, answers))
    }
}

fn read(card: &Card, answers: &Answers) -> Reading<Description> {
    let requests = [Request::get(PRIVATE), Request::get(PUBLIC)];
    reading::ask_all(answers, &requests)?;
    let [private, public] = &requests;

    let body = reading::body(answers, private)?;
    let list: Vec<Private> = yaml::list(body)?;
    match reading::of_card(card, body, &list, |p| Some(&p.mac_address)) {
        Ok(private) => {
            let mut telling = Telling::new(body);
            telling.address(Ipv4, &private.ip)?;
            for alias in &private.alias_ips {
                telling.address(Ipv4, alias)?;
            }
            telling.gateway(Ipv4, &private.gateway)?;
            return Ok(telling.whole());
        }
        Err(Why::NotListed) => {}
        Err(why) => return Err(why.into()),
    }

    let Some(body) = reading::optional(answers, public)? else {
        return Err(Why::NotListed.into());
    };
    let public: Public = yaml::document(body)?;
    let list = &public.config;
    let interface = reading::of_card(card, body, list, |i| Some(&i.mac_address))?;
    let mut telling = Telling::new(body);
    for subnet in &interface.subnets {
        let is_ipv6 = subnet.ipv6.as_deref() == Some("true");
        let address = reading::held(subnet.address.as_ref()).filter(|_| is_ipv6);
        if let Some(address) = address {
            let (alone, _) = address.split_once('/').unwrap_or((address, ""));
            telling.address(Ipv6, alone)?;
            telling.prefix(Ipv6, address)?;
        }
        if let Some(gateway) = reading::held(subnet.gateway.as_ref()).filter(|_| is_ipv6) {
            telling.gateway(Ipv6, gateway)?;
        }
    }
    Ok(Description {
        ipv4: None,
        ipv6: telling.whole().ipv6,
    })
}
