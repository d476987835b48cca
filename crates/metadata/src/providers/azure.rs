//! Microsoft Azure: the instance metadata service.
//!
//! Told of a card: all private addresses of both families, the primary one first, and the
//! IPv4 subnet. Not told: the router, which is the subnet's first address and in the lease.
//! Public addresses are translated outside of the machine and no addresses of the card.
//!
//! 169.254.169.254 and 168.63.129.16 (the platform's own service) answer on the primary card
//! only, so requests keep to the host's main table whichever card they are about.
//!
//! Source: <https://learn.microsoft.com/en-us/azure/virtual-machines/instance-metadata-service>.

use std::net::SocketAddr;

use leaseroute_core::Family::{Ipv4, Ipv6};
use serde::Deserialize;

use super::reading::{self, Reading, Telling};
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::provider::{Description, Identity, Provider, Step, Way};

pub(super) struct Azure;

const NETWORK: &str = "/metadata/instance/network?api-version=2021-02-01";

#[derive(Deserialize)]
struct Network {
    interface: Vec<Interface>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interface {
    mac_address: String,
    ipv4: Option<Part>,
    ipv6: Option<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    ip_address: Vec<Address>,
    #[serde(default)]
    subnet: Vec<Subnet>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    private_ip_address: String,
}

#[derive(Deserialize)]
struct Subnet {
    address: String,
    prefix: String,
}

impl Provider for Azure {
    fn name(&self) -> &'static str {
        "azure"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        // The same on every machine of Azure, as its documents say.
        identity.chassis_asset_tag == "7783-7084-3265-9085-8269-3286-77"
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        &[reading::LINK_LOCAL]
    }

    /// The service is on the primary card.
    fn way(&self) -> Way {
        Way::Host
    }

    /// The documents allow 5 requests a second and machine.
    fn rate(&self) -> u32 {
        5
    }

    fn step(&self, card: &Card, answers: &Answers) -> Step {
        reading::step(read(card, answers))
    }
}

fn read(card: &Card, answers: &Answers) -> Reading<Description> {
    let request = Request::get(NETWORK).with("Metadata", "true");
    let body = reading::body(answers, &request)?;
    let network: Network = body.json()?;
    let list = &network.interface;
    let interface = reading::of_card(card, body, list, |i| Some(&i.mac_address))?;
    let mut telling = Telling::new(body);
    for (family, part) in [(Ipv4, &interface.ipv4), (Ipv6, &interface.ipv6)] {
        let Some(part) = part else { continue };
        for address in &part.ip_address {
            telling.address(family, &address.private_ip_address)?;
        }
        for Subnet { address, prefix } in &part.subnet {
            telling.subnet(family, &format!("{address}/{prefix}"))?;
        }
    }
    let whole = telling.whole();
    Ok(Description {
        ipv4: whole.ipv4.filter(|_| interface.ipv4.is_some()),
        ipv6: whole.ipv6.filter(|_| interface.ipv6.is_some()),
    })
}
