//! Vultr: the metadata service.
//!
//! Told of a card: its addresses of both families, additional IPv4 addresses, additional IPv6
//! networks, the subnets and, on public cards, the IPv4 router. A field without a value is
//! an empty text.
//!
//! Source: <https://www.vultr.com/metadata/>.

use std::net::SocketAddr;

use leaseroute_core::Family::{Ipv4, Ipv6};
use serde::Deserialize;

use super::reading::{self, Reading, Telling};
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::provider::{Description, Identity, Provider, Step};

pub(super) struct Vultr;

const ALL: &str = "/v1.json";

#[derive(Deserialize)]
struct Document {
    interfaces: Vec<Interface>,
}

#[derive(Deserialize)]
struct Interface {
    mac: String,
    ipv4: Option<Part4>,
    ipv6: Option<Part6>,
}

#[derive(Deserialize)]
struct Part4 {
    address: Option<String>,
    netmask: Option<String>,
    gateway: Option<String>,
    #[serde(default)]
    additional: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    address: String,
}

#[derive(Deserialize)]
struct Part6 {
    address: Option<String>,
    network: Option<String>,
    prefix: Option<String>,
    #[serde(default)]
    additional: Vec<Network>,
}

#[derive(Deserialize)]
struct Network {
    network: String,
    prefix: String,
}

impl Provider for Vultr {
    fn name(&self) -> &'static str {
        "vultr"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        identity.sys_vendor == "Vultr"
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        &[reading::LINK_LOCAL]
    }

    /// No limit is documented; all cards take one request.
    fn rate(&self) -> u32 {
        5
    }

    fn step(&self, card: &Card, answers: &Answers) -> Step {
        reading::step(read(card, answers))
    }
}

fn read(card: &Card, answers: &Answers) -> Reading<Description> {
    let request = Request::get(ALL);
    let body = reading::body(answers, &request)?;
    let document: Document = body.json()?;
    let list = &document.interfaces;
    let interface = reading::of_card(card, body, list, |i| Some(&i.mac))?;
    let mut telling = Telling::new(body);
    if let Some(part) = &interface.ipv4 {
        if let Some(address) = reading::held(part.address.as_ref()) {
            telling.address(Ipv4, address)?;
            if let Some(mask) = reading::held(part.netmask.as_ref()) {
                telling.subnet_of(Ipv4, address, mask)?;
            }
        }
        for Address { address } in &part.additional {
            telling.address(Ipv4, address)?;
        }
        if let Some(gateway) = reading::held(part.gateway.as_ref()) {
            telling.gateway(Ipv4, gateway)?;
        }
    }
    if let Some(part) = &interface.ipv6 {
        if let Some(address) = reading::held(part.address.as_ref()) {
            telling.address(Ipv6, address)?;
        }
        let network = reading::held(part.network.as_ref());
        if let Some((network, length)) = network.zip(reading::held(part.prefix.as_ref())) {
            telling.subnet(Ipv6, &format!("{network}/{length}"))?;
        }
        for Network { network, prefix } in &part.additional {
            telling.prefix(Ipv6, &format!("{network}/{prefix}"))?;
        }
    }
    Ok(telling.whole())
}
