//! Oracle Cloud Infrastructure: the instance metadata service, version 2.
//!
//! Told of a card: its primary private address, its IPv6 addresses, the subnets and the
//! routers of both families. Not told: secondary private addresses, so that one of these on
//! the card stays with what the card itself shows. Some machines are told the IPv6 subnet and
//! router of a card and no addresses; IPv6 is not told of then. Only the primary card gets a lease: of the
//! others, what is told here is all there is.
//!
//! For moments in which the service changes its data it answers 404, which asking again
//! cures.
//!
//! Source: <https://docs.oracle.com/en-us/iaas/Content/Compute/Tasks/gettingmetadata.htm>.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use leaseroute_core::Family::{Ipv4, Ipv6};
use leaseroute_core::Said;
use serde::Deserialize;

use super::reading::{self, Reading, Telling};
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::provider::{Description, Identity, Provider, Step, Way};

pub(super) struct Oci;

const VNICS: &str = "/opc/v2/vnics/";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vnic {
    mac_addr: String,
    private_ip: Option<String>,
    subnet_cidr_block: Option<String>,
    virtual_router_ip: Option<String>,
    ipv6_addresses: Option<Vec<String>>,
    ipv6_subnet_cidr_block: Option<String>,
    #[serde(default)]
    ipv6_subnet_cidr_blocks: Vec<String>,
    ipv6_virtual_router_ip: Option<String>,
}

impl Provider for Oci {
    fn name(&self) -> &'static str {
        "oci"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        identity.chassis_asset_tag == "OracleCloud.com"
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        const ENDPOINTS: &[SocketAddr] = &[
            reading::LINK_LOCAL,
            SocketAddr::new(
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
                80,
            ),
        ];
        ENDPOINTS
    }

    /// It tells of all cards, by whichever it is asked. Others than the primary card have no lease to ask by.
    fn way(&self) -> Way {
        Way::Host
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
    let request = Request::get(VNICS).with("Authorization", "Bearer Oracle");
    let body = reading::body(answers, &request)?;
    let list: Vec<Vnic> = body.json()?;
    let vnic = reading::of_card(card, body, &list, |v| Some(&v.mac_addr))?;
    let mut telling = Telling::new(body);
    if let Some(address) = reading::held(vnic.private_ip.as_ref()) {
        telling.address(Ipv4, address)?;
    }
    if let Some(subnet) = reading::held(vnic.subnet_cidr_block.as_ref()) {
        telling.subnet(Ipv4, subnet)?;
    }
    if let Some(gateway) = reading::held(vnic.virtual_router_ip.as_ref()) {
        telling.gateway(Ipv4, gateway)?;
    }
    for address in vnic.ipv6_addresses.iter().flatten() {
        telling.address(Ipv6, address)?;
    }
    let subnets = vnic.ipv6_subnet_cidr_blocks.iter();
    let subnets: Vec<&String> = subnets.chain(&vnic.ipv6_subnet_cidr_block).collect();
    for subnet in &subnets {
        telling.subnet(Ipv6, subnet)?;
    }
    if let Some(gateway) = reading::held(vnic.ipv6_virtual_router_ip.as_ref()) {
        telling.gateway(Ipv6, gateway)?;
    }
    let is_told = vnic.ipv6_addresses.is_some() || subnets.is_empty();
    let whole = telling.whole();
    // The primary card comes first in the list.
    let is_unserved = list.first().is_none_or(|first| !std::ptr::eq(first, vnic));
    let of_card = |said: Said| Said {
        is_unserved,
        ..said
    };
    Ok(Description {
        ipv4: whole.ipv4.map(of_card),
        ipv6: whole.ipv6.filter(|_| is_told).map(of_card),
    })
}
