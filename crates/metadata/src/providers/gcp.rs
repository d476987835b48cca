//! Google Compute Engine: the metadata server.
//!
//! Told of a card: its address, its IPv6 addresses, alias ranges, forwarded addresses and
//! those of target instances, and the router of both families. Alias ranges and forwarded
//! addresses are delivered to the card without being configured on it, so that they are
//! prefixes here.
//!
//! The subnet's mask is told and not taken: a card has its address as a /32, and all of its
//! subnet is behind the router, so that nothing but the router is on-link.
//!
//! Not told here: dynamic interfaces, which are VLANs of a card and no cards of their own.
//!
//! Source: <https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys>.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use leaseroute_core::Family::{Ipv4, Ipv6};
use serde::Deserialize;

use super::reading::{self, Reading, Telling};
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::provider::{Description, Identity, Provider, Step};

pub(super) struct Gcp;

const INTERFACES: &str = "/computeMetadata/v1/instance/network-interfaces/?recursive=true&alt=json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interface {
    mac: String,
    ip: Option<String>,
    gateway: Option<String>,
    #[serde(default)]
    ip_aliases: Vec<String>,
    #[serde(default)]
    forwarded_ips: Vec<String>,
    #[serde(default)]
    target_instance_ips: Vec<String>,
    #[serde(default)]
    ipv6s: Vec<String>,
    gateway_ipv6: Option<String>,
    #[serde(default)]
    forwarded_ipv6s: Vec<String>,
}

impl Provider for Gcp {
    fn name(&self) -> &'static str {
        "gcp"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        identity.product_name == "Google Compute Engine"
            || (identity.sys_vendor == "Google" && identity.product_name == "Google")
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        // The second one is for machines with IPv6 alone.
        const ENDPOINTS: &[SocketAddr] = &[
            reading::LINK_LOCAL,
            SocketAddr::new(
                IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
                80,
            ),
        ];
        ENDPOINTS
    }

    /// No limit is documented for these keys; a card takes one request.
    fn rate(&self) -> u32 {
        5
    }

    fn step(&self, card: &Card, answers: &Answers) -> Step {
        reading::step(read(card, answers))
    }
}

fn read(card: &Card, answers: &Answers) -> Reading<Description> {
    let request = Request::get(INTERFACES).with("Metadata-Flavor", "Google");
    let body = reading::body(answers, &request)?;
    let list: Vec<Interface> = body.json()?;
    let interface = reading::of_card(card, body, &list, |i| Some(&i.mac))?;
    let mut telling = Telling::new(body);
    if let Some(address) = reading::held(interface.ip.as_ref()) {
        telling.address(Ipv4, address)?;
    }
    let lists = [
        &interface.ip_aliases,
        &interface.forwarded_ips,
        &interface.target_instance_ips,
    ];
    for prefix in lists.into_iter().flatten() {
        telling.prefix(Ipv4, prefix)?;
    }
    for address in &interface.ipv6s {
        telling.address(Ipv6, address)?;
    }
    for prefix in &interface.forwarded_ipv6s {
        telling.prefix(Ipv6, prefix)?;
    }
    if let Some(gateway) = reading::held(interface.gateway.as_ref()) {
        telling.gateway(Ipv4, gateway)?;
    }
    if let Some(gateway) = reading::held(interface.gateway_ipv6.as_ref()) {
        telling.gateway(Ipv6, gateway)?;
    }
    Ok(telling.whole())
}
