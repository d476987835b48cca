//! Scaleway Instances: the metadata service.
//!
//! Told: the public addresses of the machine, with routers, and which cards are in private
//! networks, by hardware address. Not told: the public card's hardware address, so that it
//! is known by having an address that is told; and the addresses of private cards, which
//! their leases have. An IPv6 address stands for the whole prefix around it, which is routed to the
//! machine. Where the machine has a private address of the older kind, the public IPv4
//! addresses are translated to it outside of the machine.
//!
//! Sources: <https://www.scaleway.com/en/docs/instances/how-to/use-cloud-init/>,
//! <https://www.scaleway.com/en/developers/api/instances/>.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use leaseroute_core::Family;
use serde::Deserialize;

use super::reading::{self, Reading, Telling};
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::finding::Why;
use crate::provider::{Description, Identity, Provider, Step, Way};

pub(super) struct Scaleway;

const ALL: &str = "/conf?format=json";

#[derive(Deserialize)]
struct Document {
    /// On every machine, with or without a name of the user's choice.
    #[serde(rename = "id")]
    _id: String,
    private_ip: Option<String>,
    public_ip: Option<Public>,
    #[serde(default)]
    public_ips: Vec<Public>,
    ipv6: Option<Public>,
    #[serde(default)]
    private_nics: Vec<PrivateNic>,
}

#[derive(Deserialize)]
struct Public {
    address: String,
    netmask: Option<String>,
    gateway: Option<String>,
}

#[derive(Deserialize)]
struct PrivateNic {
    mac_address: String,
}

impl Provider for Scaleway {
    fn name(&self) -> &'static str {
        "scaleway"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        identity.sys_vendor == "Scaleway"
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        const ENDPOINTS: &[SocketAddr] = &[
            SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 42, 42)), 80),
            SocketAddr::new(
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
                80,
            ),
        ];
        ENDPOINTS
    }

    /// The service is on the public card.
    fn way(&self) -> Way {
        Way::Host
    }

    /// The service throttles, and no limit is documented; all cards take one request.
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
    let nics = &document.private_nics;
    match reading::of_card(card, body, nics, |nic| Some(&nic.mac_address)) {
        Ok(_) => return Ok(Description::default()),
        Err(Why::NotListed) => {}
        Err(why) => return Err(why.into()),
    }

    let mut telling = Telling::new(body);
    let private = reading::held(document.private_ip.as_ref());
    if let Some(address) = private {
        telling.address(Family::Ipv4, address)?;
    }
    let first = document.public_ip.iter();
    let all = first.chain(&document.public_ips).chain(&document.ipv6);
    for public in all.filter(|public| !public.address.is_empty()) {
        let family = if public.address.contains(':') {
            Family::Ipv6
        } else {
            Family::Ipv4
        };
        // Translated, and so none of the card's.
        if family == Family::Ipv4 && private.is_some() {
            continue;
        }
        telling.address(family, &public.address)?;
        if let Some(length) = reading::held(public.netmask.as_ref())
            && family == Family::Ipv6
        {
            telling.prefix(family, &format!("{}/{length}", public.address))?;
        }
        if let Some(gateway) = reading::held(public.gateway.as_ref()) {
            telling.gateway(family, gateway)?;
        }
    }
    let whole = telling.whole();
    let is_public = Family::BOTH.into_iter().any(|family| {
        let said = match family {
            Family::Ipv4 => &whole.ipv4,
            Family::Ipv6 => &whole.ipv6,
        };
        let addresses = said.iter().flat_map(|said| &said.addresses);
        let mut held = card.addresses(family);
        addresses
            .into_iter()
            .any(|told| held.any(|address| address == *told))
    });
    if is_public {
        Ok(whole)
    } else {
        Err(Why::NotListed.into())
    }
}
