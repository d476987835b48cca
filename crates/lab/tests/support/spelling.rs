//! Classless routes as the clients of this world spell them.

use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    Decimal,
    Hex,
    RedHat,
    Cidr,
    Microsoft,
    /// Option 33, which has no masks.
    Static,
}

impl Spelling {
    pub(crate) const ALL: &[Self] = &[
        Self::Decimal,
        Self::Hex,
        Self::RedHat,
        Self::Cidr,
        Self::Microsoft,
        Self::Static,
    ];
}

/// The variable and its value.
pub(crate) fn spelled(
    routes: &[(Ipv4Network, Ipv4Addr)],
    spelling: Spelling,
) -> (&'static str, String) {
    let list = |separator: &str, show: &dyn Fn(&(Ipv4Network, Ipv4Addr)) -> String| {
        routes.iter().map(show).collect::<Vec<_>>().join(separator)
    };
    let declared = "new_rfc3442_classless_static_routes";
    match spelling {
        Spelling::Decimal => (
            declared,
            list(" ", &|r| join(&octets(r), " ", |o| o.to_string())),
        ),
        Spelling::Hex => (
            "new_unknown_121",
            list(":", &|r| join(&octets(r), ":", hex)),
        ),
        Spelling::Microsoft => (
            "new_unknown_249",
            list(":", &|r| join(&octets(r), ":", hex)),
        ),
        Spelling::RedHat => {
            let show = |(destination, gateway): &(Ipv4Network, Ipv4Addr)| {
                let octets = octets(&(*destination, *gateway));
                format!(
                    "{} {gateway}",
                    join(&octets[..octets.len() - 4], ".", |o| o.to_string())
                )
            };
            ("new_classless_static_routes", list(", ", &show))
        }
        Spelling::Cidr => (
            declared,
            list(" ", &|(destination, gateway)| {
                format!("{destination} {gateway}")
            }),
        ),
        Spelling::Static => {
            let show = |(destination, gateway): &(Ipv4Network, Ipv4Addr)| {
                format!("{} {gateway}", destination.ip())
            };
            ("new_static_routes", list(" ", &show))
        }
    }
}

fn hex(octet: u8) -> String {
    format!("{octet:x}")
}

fn join(octets: &[u8], separator: &str, show: impl Fn(u8) -> String) -> String {
    octets
        .iter()
        .map(|octet| show(*octet))
        .collect::<Vec<_>>()
        .join(separator)
}

fn octets((destination, gateway): &(Ipv4Network, Ipv4Addr)) -> Vec<u8> {
    let significant = usize::from(destination.prefix().div_ceil(8));
    let mut octets = vec![destination.prefix()];
    octets.extend(&destination.network().octets()[..significant]);
    octets.extend(gateway.octets());
    octets
}
