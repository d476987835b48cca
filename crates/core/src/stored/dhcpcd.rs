//! dhcpcd 9 and 10: `NAME.lease`, the server's DHCPv4 message as it came (RFC 2131), and
//! `NAME.lease6`, the one of DHCPv6 (RFC 8415). Wireless cards have `NAME-SSID.lease`.
//!
//! The moment a lease began is not in them: it is the moment the file was written, as for
//! dhcpcd itself. An option that is split (RFC 3396) or lies in the fields of file and server
//! name (option 52) is put together.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::client::Client;
use crate::event::RawEvent;
use crate::interface::InterfaceName;

use super::MAX_PARTS;

/// The folders of its lease files.
pub const FOLDERS: [&str; 2] = ["/var/lib/dhcpcd", "/var/db/dhcpcd"];

/// DHCPv4: lengths and places of a message (RFC 2131 2) and of its options (RFC 2132).
mod v4 {
    pub(super) const REPLY: u8 = 2;
    pub(super) const YOUR_ADDRESS: usize = 16;
    pub(super) const SERVER_NAME: (usize, usize) = (44, 64);
    pub(super) const FILE: (usize, usize) = (108, 128);
    pub(super) const COOKIE: (usize, [u8; 4]) = (236, [99, 130, 83, 99]);
    pub(super) const OPTIONS: usize = 240;

    pub(super) const PAD: u8 = 0;
    pub(super) const MASK: u8 = 1;
    pub(super) const ROUTERS: u8 = 3;
    pub(super) const MTU: u8 = 26;
    pub(super) const STATIC_ROUTES: u8 = 33;
    pub(super) const LEASE_TIME: u8 = 51;
    pub(super) const OVERLOAD: u8 = 52;
    pub(super) const CLASSLESS_ROUTES: u8 = 121;
    pub(super) const MS_CLASSLESS_ROUTES: u8 = 249;
    pub(super) const END: u8 = 255;
}

/// DHCPv6: the numbers of its options (RFC 8415 21).
mod v6 {
    pub(super) const REPLY: u8 = 7;
    pub(super) const HEADER: usize = 4;
    pub(super) const IA_NA: u16 = 3;
    pub(super) const IA_TA: u16 = 4;
    pub(super) const IA_ADDRESS: u16 = 5;
    pub(super) const IA_PD: u16 = 25;
    pub(super) const IA_PREFIX: u16 = 26;
}

/// DHCP's way to say "for ever".
const FOR_EVER: u32 = u32::MAX;

/// The lease file that a file of [`FOLDERS`] is for a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// DHCPv4.
    Ipv4,
    /// DHCPv6.
    Ipv6,
}

/// Which lease of a card a file of this name holds, if any. `br-lan.lease` may be one of
/// `br` in a network called `lan`; where there is a card `br-lan`, it is that card's.
#[must_use]
pub fn lease_file(name: &InterfaceName, file_name: &str) -> Option<Kind> {
    let (stem, kind) = match file_name.strip_suffix(".lease") {
        Some(stem) => (stem, Kind::Ipv4),
        None => (file_name.strip_suffix(".lease6")?, Kind::Ipv6),
    };
    let behind = stem.strip_prefix(name.as_str())?;
    let is_of_card = behind.is_empty() || behind.starts_with('-');
    is_of_card.then_some(kind)
}

/// What its hooks would be told of a DHCPv4 lease that was written `age` seconds ago; `None`
/// when it is none, or over.
#[must_use]
pub fn event4(name: &InterfaceName, message: &[u8], age: u64) -> Option<RawEvent> {
    let (place, cookie) = v4::COOKIE;
    let is_reply = message.first() == Some(&v4::REPLY);
    if !is_reply || message.get(place..v4::OPTIONS) != Some(&cookie) {
        return None;
    }
    let options = options4(message);
    let get = |code: u8| options.get(&code).map(Vec::as_slice);
    let lifetime = get(v4::LEASE_TIME).and_then(number);
    if is_over(lifetime, age) {
        return None;
    }
    let address = addresses(message.get(v4::YOUR_ADDRESS..v4::YOUR_ADDRESS + 4)?);
    let decimal = |octets: &[u8]| {
        let octets: Vec<String> = octets.iter().map(ToString::to_string).collect();
        octets.join(" ")
    };
    let mtu = |octets: &[u8]| {
        let octets = <[u8; 2]>::try_from(octets).ok()?;
        Some(u16::from_be_bytes(octets).to_string())
    };
    let seconds = lifetime.map(|lifetime| lifetime.to_string());
    let lease = [
        ("new_ip_address", Some(address)),
        ("new_subnet_mask", get(v4::MASK).map(addresses)),
        ("new_routers", get(v4::ROUTERS).map(addresses)),
        ("new_interface_mtu", get(v4::MTU).and_then(mtu)),
        ("new_static_routes", get(v4::STATIC_ROUTES).map(addresses)),
        (
            "new_classless_static_routes",
            get(v4::CLASSLESS_ROUTES).map(decimal),
        ),
        (
            "new_ms_classless_static_routes",
            get(v4::MS_CLASSLESS_ROUTES).map(decimal),
        ),
        ("new_dhcp_lease_time", seconds),
    ];
    let given = lease
        .into_iter()
        .filter_map(|(variable, value)| Some((variable, value?)));
    Some(super::event(
        Client::Dhcpcd,
        told("BOUND", "dhcp", name).into_iter().chain(given),
    ))
}

/// What its hooks would be told of a DHCPv6 lease that was written `age` seconds ago; `None` when it is none. Addresses and
/// prefixes that are over are left out.
#[must_use]
pub fn event6(name: &InterfaceName, message: &[u8], age: u64) -> Option<RawEvent> {
    if message.first() != Some(&v6::REPLY) {
        return None;
    }
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    let mut parts = 0_usize;
    let associations = Options6(message.get(v6::HEADER..)?);
    for (number, (code, association)) in associations.enumerate() {
        let (kind, header) = match code {
            v6::IA_NA => ("na", 12),
            v6::IA_TA => ("ta", 4),
            v6::IA_PD => ("pd", 12),
            _ => continue,
        };
        let inner = Options6(association.get(header..).unwrap_or_default());
        for (position, (code, content)) in inner.enumerate() {
            let part = match (code, kind) {
                (v6::IA_ADDRESS, "na" | "ta") => address(content),
                (v6::IA_PREFIX, "pd") => prefix(content),
                _ => continue,
            };
            let Some(Part {
                address,
                length,
                lifetime,
            }) = part
            else {
                continue;
            };
            if is_over(Some(lifetime), age) || parts == 2 * MAX_PARTS {
                continue;
            }
            parts += 1;
            // Only that each name is another one matters.
            let (ia, nth) = (number + 1, position + 1);
            let name = match kind {
                "pd" => format!("new_dhcp6_ia_pd{ia}_prefix{nth}"),
                kind => format!("new_dhcp6_ia_{kind}{ia}_ia_addr{nth}"),
            };
            if let Some(length) = length {
                variables.insert(format!("{name}_length"), length.to_string());
            }
            variables.insert(format!("{name}_vltime"), lifetime.to_string());
            variables.insert(name, address.to_string());
        }
    }
    let mut raw = super::event(Client::Dhcpcd, told("BOUND6", "dhcp6", name));
    raw.variables.append(&mut variables);
    (parts > 0).then_some(raw)
}

fn told(reason: &str, protocol: &str, name: &InterfaceName) -> [(&'static str, String); 3] {
    [
        ("reason", reason.to_owned()),
        ("protocol", protocol.to_owned()),
        ("interface", name.to_string()),
    ]
}

/// Whether a lifetime in seconds is over after `age` seconds.
fn is_over(lifetime: Option<u32>, age: u64) -> bool {
    lifetime.is_some_and(|lifetime| lifetime != FOR_EVER && u64::from(lifetime) <= age)
}

fn number(octets: &[u8]) -> Option<u32> {
    <[u8; 4]>::try_from(octets).ok().map(u32::from_be_bytes)
}

/// Addresses one after the other, separated by blanks. What is left over shows as no
/// address, so that the parser drops the whole.
fn addresses(octets: &[u8]) -> String {
    let (whole, rest) = octets.as_chunks::<4>();
    let mut words: Vec<String> = whole
        .iter()
        .map(|octets| Ipv4Addr::from(*octets).to_string())
        .collect();
    if !rest.is_empty() {
        words.push(format!("and {} octets", rest.len()));
    }
    words.join(" ")
}

/// All options of a DHCPv4 message. One that occurs again goes on where it ended.
fn options4(message: &[u8]) -> BTreeMap<u8, Vec<u8>> {
    let mut options: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    let read = |mut rest: &[u8], options: &mut BTreeMap<u8, Vec<u8>>| {
        loop {
            match rest {
                [v4::PAD, behind @ ..] => rest = behind,
                [] | [v4::END, ..] | [_] => return,
                [code, length, behind @ ..] => {
                    let Some((content, behind)) = behind.split_at_checked((*length).into()) else {
                        return;
                    };
                    options.entry(*code).or_default().extend_from_slice(content);
                    rest = behind;
                }
            }
        }
    };
    read(message.get(v4::OPTIONS..).unwrap_or_default(), &mut options);
    let overload = match options.get(&v4::OVERLOAD).map(Vec::as_slice) {
        Some([overload]) => *overload,
        _ => 0,
    };
    for (bit, (start, length)) in [(1, v4::FILE), (2, v4::SERVER_NAME)] {
        if overload & bit != 0 {
            let field = message.get(start..start + length);
            read(field.unwrap_or_default(), &mut options);
        }
    }
    options
}

/// The options of a DHCPv6 message or option, one after the other. One that is longer than
/// what there is ends them.
struct Options6<'a>(&'a [u8]);

impl<'a> Iterator for Options6<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [code @ .., a, b] = self.0.get(..4)? else {
            return None;
        };
        let code = u16::from_be_bytes(code.try_into().ok()?);
        let length = usize::from(u16::from_be_bytes([*a, *b]));
        let (content, rest) = self.0.get(4..)?.split_at_checked(length)?;
        self.0 = rest;
        Some((code, content))
    }
}

/// An address or a prefix of a DHCPv6 lease.
struct Part {
    address: Ipv6Addr,
    length: Option<u8>,
    lifetime: u32,
}

fn address(content: &[u8]) -> Option<Part> {
    let octets: [u8; 16] = content.get(..16)?.try_into().ok()?;
    Some(Part {
        address: octets.into(),
        length: None,
        lifetime: number(content.get(20..24)?)?,
    })
}

fn prefix(content: &[u8]) -> Option<Part> {
    let octets: [u8; 16] = content.get(9..25)?.try_into().ok()?;
    Some(Part {
        address: octets.into(),
        length: content.get(8).copied(),
        lifetime: number(content.get(4..8)?)?,
    })
}
