//! Alibaba Cloud ECS: the metadata service, with a token where the service gives one.
//!
//! Told of a card: all private IPv4 addresses, IPv6 addresses, delegated prefixes of both
//! families, the subnets (vSwitches) and the routers. Lists stand between brackets, with
//! quotes or without, and a list of one thing can be that thing alone. Keys that the
//! service does not list are not asked.
//!
//! Sources: <https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata>,
//! <https://www.alibabacloud.com/help/en/ecs/user-guide/overview-of-instance-metadata>.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use leaseroute_core::Family::{Ipv4, Ipv6};

use super::reading::{self, Reading, Telling};
use super::tree::Keys;
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::finding::Why;
use crate::provider::{Description, Identity, Provider, Step};

pub(super) struct Alibaba;

const TOKEN: &str = "/latest/api/token";
const MACS: &str = "/latest/meta-data/network/interfaces/macs/";

/// For how long a token is asked for, in seconds: the longest there is.
const TOKEN_LASTS: &str = "21600";

/// What is asked of a card, as far as it is listed. The primary address comes first.
const KEYS: &[&str] = &[
    "primary-ip-address",
    "private-ipv4s",
    "ipv4-prefixes",
    "vswitch-cidr-block",
    "gateway",
    "ipv6s",
    "ipv6-prefixes",
    "vswitch-ipv6-cidr-block",
    "ipv6-gateway",
];

impl Provider for Alibaba {
    fn name(&self) -> &'static str {
        "alibaba"
    }

    fn is_here(&self, identity: &Identity) -> bool {
        identity.sys_vendor == "Alibaba Cloud" || identity.product_name == "Alibaba Cloud ECS"
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        const ENDPOINTS: &[SocketAddr] = &[
            SocketAddr::new(IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), 80),
            SocketAddr::new(
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200)),
                80,
            ),
        ];
        ENDPOINTS
    }

    /// The documents say that frequent access is throttled, and no number.
    fn rate(&self) -> u32 {
        20
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
    let request = Request::put(TOKEN).with("X-aliyun-ecs-metadata-token-ttl-seconds", TOKEN_LASTS);
    // A service that has no tokens wants none.
    let token = match reading::optional(answers, &request)? {
        Some(body) => Some(body.token()?),
        None => None,
    };
    let get = |path: String| {
        let request = Request::get(path);
        match token {
            Some(token) => request.with("X-aliyun-ecs-metadata-token", token),
            None => request,
        }
    };

    let keys = Keys::read(card, answers, get, MACS, KEYS)?;
    // A card without any address is one of which not all is there yet.
    if !keys.have(&["primary-ip-address", "private-ipv4s", "ipv6s"]) {
        return Err(Why::NotListed.into());
    }
    let mut telling = Telling::default();
    for (key, body) in keys.values(answers)? {
        telling.turn_to(body);
        for item in body.items()? {
            match key {
                "primary-ip-address" | "private-ipv4s" => telling.address(Ipv4, item)?,
                "ipv4-prefixes" => telling.prefix(Ipv4, item)?,
                "vswitch-cidr-block" => telling.subnet(Ipv4, item)?,
                "gateway" => telling.gateway(Ipv4, item)?,
                "ipv6s" => telling.address(Ipv6, item)?,
                "ipv6-prefixes" => telling.prefix(Ipv6, item)?,
                "vswitch-ipv6-cidr-block" => telling.subnet(Ipv6, item)?,
                // The only other one of KEYS.
                _ => telling.gateway(Ipv6, item)?,
            }
        }
    }
    Ok(telling.whole())
}
