//! Amazon EC2: the instance metadata service, version 2, with a token.
//!
//! Told of a card: all IPv4 and IPv6 addresses, delegated prefixes of both families, and
//! the subnets' prefixes. Not told: the router, which is the first address of the IPv4
//! subnet and in IPv6 the one that announces itself; the lease has it. Public IPv4
//! addresses are translated outside of the instance and no address of the card.
//!
//! The service lags behind a card that was plugged in by seconds: first it does not list
//! the card, then it lists it with a part of its data, and for a while a card can seem to be
//! the first one. Keys that the service does not list are not asked.
//!
//! Sources: <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html>
//! (keys), <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html>
//! (token, endpoints),
//! <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/identify_ec2_instances.html>.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use leaseroute_core::Family::{Ipv4, Ipv6};

use super::reading::{self, Reading, Telling};
use super::tree::Keys;
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::finding::Why;
use crate::provider::{Description, Identity, Provider, Step, Way};

pub(super) struct Ec2;

const TOKEN: &str = "/latest/api/token";
const FIRST: &str = "/latest/meta-data/mac";
const MACS: &str = "/latest/meta-data/network/interfaces/macs/";

/// For how long a token is asked for, in seconds: the longest there is.
const TOKEN_LASTS: &str = "21600";

/// The card's number among those of its network card.
const DEVICE: &str = "device-number";

/// Which network card it is on. Listed where an instance can have more than one.
const NETWORK_CARD: &str = "network-card";

/// What is asked of a card, as far as it is listed.
const KEYS: &[&str] = &[
    DEVICE,
    NETWORK_CARD,
    "local-ipv4s",
    "ipv6s",
    "ipv4-prefix",
    "ipv6-prefix",
    "subnet-ipv4-cidr-block",
    "subnet-ipv6-cidr-blocks",
];

impl Provider for Ec2 {
    fn name(&self) -> &'static str {
        "ec2"
    }

    /// Nitro and metal machines name the vendor. Xen ones have a UUID that begins with
    /// `ec2`, of which SMBIOS may show the first four bytes in the other order; there a
    /// vendor of Xen has to go with it, since a UUID of anybody may begin so.
    fn is_here(&self, identity: &Identity) -> bool {
        let begins = |uuid: &str| {
            let uuid = uuid.to_ascii_lowercase();
            uuid.starts_with("ec2")
        };
        let swapped = |uuid: &str| {
            let uuid = uuid.to_ascii_lowercase();
            uuid.get(4..5) == Some("2") && uuid.get(6..8) == Some("ec")
        };
        let uuid = identity.product_uuid.as_str();
        let xen = identity.sys_vendor == "Xen" || identity.bios_version.ends_with(".amazon");
        identity.sys_vendor == "Amazon EC2"
            || identity.board_vendor == "Amazon EC2"
            || identity.bios_vendor == "Amazon EC2"
            || begins(&identity.hypervisor_uuid)
            || (xen && (begins(uuid) || swapped(uuid)))
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        const ENDPOINTS: &[SocketAddr] = &[
            reading::LINK_LOCAL,
            SocketAddr::new(
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
                80,
            ),
        ];
        ENDPOINTS
    }

    fn way(&self) -> Way {
        Way::Card
    }

    /// The documents bound what goes to link-local services to 1024 packets a second and
    /// card, and say that the service throttles without saying when. A request with a
    /// connection of its own takes about six packets.
    fn rate(&self) -> u32 {
        100
    }

    /// A token, an hour less than it is good for.
    fn lasting(&self) -> &'static [(&'static str, u64)] {
        &[(TOKEN, 18_000)]
    }

    fn step(&self, card: &Card, answers: &Answers) -> Step {
        reading::step(read(card, answers))
    }
}

fn read(card: &Card, answers: &Answers) -> Reading<Description> {
    let request = Request::put(TOKEN).with("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_LASTS);
    let token = reading::body(answers, &request)?.token()?;
    let get = |path: String| Request::get(path).with("X-aws-ec2-metadata-token", token);

    let keys = Keys::read(card, answers, get, MACS, KEYS)?;
    // Every card has this one.
    if !keys.have(&[DEVICE]) {
        return Err(Why::NotListed.into());
    }
    let mut telling = Telling::default();
    let (mut device, mut network_card) = (0, 0);
    for (key, body) in keys.values(answers)? {
        telling.turn_to(body);
        match key {
            DEVICE => device = body.number()?,
            NETWORK_CARD => network_card = body.number()?,
            key => {
                for line in body.lines()? {
                    match key {
                        "local-ipv4s" => telling.address(Ipv4, line)?,
                        "ipv6s" => telling.address(Ipv6, line)?,
                        "ipv4-prefix" => telling.prefix(Ipv4, line)?,
                        "ipv6-prefix" => telling.prefix(Ipv6, line)?,
                        "subnet-ipv4-cidr-block" => telling.subnet(Ipv4, line)?,
                        // The only other one of KEYS.
                        _ => telling.subnet(Ipv6, line)?,
                    }
                }
            }
        }
    }
    if device == 0 && network_card == 0 {
        let request = get(FIRST.to_owned());
        let first = reading::body(answers, &request)?;
        if first.mac(first.line()?)? != card.mac {
            return Err(Why::NotFirst.into());
        }
    }
    Ok(telling.whole())
}
