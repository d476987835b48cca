//! DigitalOcean: the metadata service.
//!
//! Told of a card: its address of each family with subnet and router, the anchor address to
//! which a reserved IPv4 address is translated, and a reserved IPv6 address, which the machine
//! itself has to have. Reserved addresses belong to the first public card.
//!
//! Source: <https://docs.digitalocean.com/reference/api/metadata/>.

use std::net::SocketAddr;

use leaseroute_core::Family::{Ipv4, Ipv6};
use serde::Deserialize;

use super::reading::{self, Reading, Telling};
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::provider::{Description, Identity, Provider, Step};

pub(super) struct DigitalOcean;

const ALL: &str = "/metadata/v1.json";

#[derive(Deserialize)]
struct Document {
    interfaces: Interfaces,
    reserved_ip: Option<Reserved>,
}

#[derive(Deserialize)]
struct Interfaces {
    #[serde(default)]
    public: Vec<Interface>,
    #[serde(default)]
    private: Vec<Interface>,
}

#[derive(Deserialize)]
struct Interface {
    mac: String,
    ipv4: Option<Part4>,
    ipv6: Option<Part6>,
    anchor_ipv4: Option<Part4>,
}

#[derive(Deserialize)]
struct Part4 {
    ip_address: String,
    netmask: String,
    gateway: Option<String>,
}

#[derive(Deserialize)]
struct Part6 {
    ip_address: String,
    cidr: u8,
    gateway: Option<String>,
}

#[derive(Deserialize)]
struct Reserved {
    ipv6: Option<Reserved6>,
}

#[derive(Deserialize)]
struct Reserved6 {
    #[serde(default)]
    active: bool,
    ip_address: Option<String>,
}

impl Provider for DigitalOcean {
    fn name(&self) -> &'static str {
        "digitalocean"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        identity.sys_vendor == "DigitalOcean"
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
    let Interfaces { public, private } = &document.interfaces;
    let all: Vec<&Interface> = public.iter().chain(private).collect();
    let interface = *reading::of_card(card, body, &all, |i| Some(&i.mac))?;
    let mut telling = Telling::new(body);
    for part in [&interface.ipv4, &interface.anchor_ipv4]
        .into_iter()
        .flatten()
    {
        telling.address(Ipv4, &part.ip_address)?;
        telling.subnet_of(Ipv4, &part.ip_address, &part.netmask)?;
        if let Some(gateway) = reading::held(part.gateway.as_ref()) {
            telling.gateway(Ipv4, gateway)?;
        }
    }
    if let Some(part) = &interface.ipv6 {
        telling.address(Ipv6, &part.ip_address)?;
        telling.subnet_of(Ipv6, &part.ip_address, &part.cidr.to_string())?;
        if let Some(gateway) = reading::held(part.gateway.as_ref()) {
            telling.gateway(Ipv6, gateway)?;
        }
    }
    let is_first = public
        .first()
        .is_some_and(|first| std::ptr::eq(first, interface));
    let reserved = document.reserved_ip.and_then(|reserved| reserved.ipv6);
    if let Some(reserved) = reserved.filter(|reserved| is_first && reserved.active)
        && let Some(address) = reading::held(reserved.ip_address.as_ref())
    {
        telling.address(Ipv6, address)?;
    }
    Ok(telling.whole())
}
