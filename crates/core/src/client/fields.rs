//! Lease values that several clients spell alike, parsed strictly.
//!
//! Each function takes a variable that may be absent, and drops it with a note when it
//! cannot be believed. Sources: RFC 2132 (options 1, 3, 26, 33), RFC 3442 (option 121).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{Ipv4Network, Ipv6Network};

use crate::address::{is_link_local, is_unicast_host};
use crate::event::{Dropped, Event, LeaseChange, Parsed, Quoted, RawEvent, Refusal};
use crate::interface::InterfaceRef;
use crate::lease::{ClasslessRoute, ClasslessRoutes, MAX_LEASE_ROUTES, RouteOption};

/// The longest value that is looked at, in bytes. DHCP options end at 64 KiB even when
/// they are split (RFC 3396).
const MAX_VALUE: usize = 64 * 1024;

/// The most addresses, and the most prefixes, that one event can bring an interface. Each
/// costs three rules; servers give one or two, and an interface with more than these is
/// told of as a prefix.
pub(super) const MAX_ADDRESSES: usize = 64;

/// The smallest MTU that is taken from a lease, in bytes: every IPv4 host must take
/// datagrams of this size (RFC 791), so less is a mistake or an attack.
const MIN_MTU: u32 = 576;

/// The shortest prefix that is believed to be delegated to one host: a whole provider's
/// allocation is a /32 (RIPE-738).
const MIN_DELEGATION: u8 = 32;

/// DHCPv6's way to say "for ever" (RFC 8415 7.7).
const FOR_EVER: u64 = 0xffff_ffff;

/// Reads the variables of one event and collects what had to be dropped.
pub(super) struct Fields<'a> {
    raw: &'a RawEvent,
    pub(super) dropped: Vec<Dropped>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(raw: &'a RawEvent) -> Self {
        Self {
            raw,
            dropped: Vec::new(),
        }
    }

    /// What came of an event that changes no lease.
    pub(super) fn nothing(self) -> Parsed {
        Parsed {
            event: None,
            dropped: self.dropped,
        }
    }

    /// What came of an event.
    pub(super) fn told(
        self,
        interface: InterfaceRef,
        reason: &str,
        changes: Vec<LeaseChange>,
    ) -> Parsed {
        Parsed {
            event: Some(Event {
                interface,
                reason: reason.to_owned(),
                changes,
                ahead: false,
            }),
            dropped: self.dropped,
        }
    }

    /// What came of an event that is called by a word nobody knows.
    pub(super) fn unknown(mut self, variable: &str, word: &str) -> Parsed {
        let why = "unknown to this version, nothing is changed";
        self.drop(variable, word, why);
        self.nothing()
    }

    /// A variable's value, unless it is empty or too long.
    pub(super) fn get(&mut self, variable: &str) -> Option<&'a str> {
        let value = self.raw.get(variable)?;
        if value.len() > MAX_VALUE {
            self.drop(variable, value, "longer than 64 KiB");
            return None;
        }
        Some(value)
    }

    pub(super) fn drop(&mut self, variable: &str, value: &str, why: impl Into<String>) {
        self.dropped.push(Dropped::new(variable, value, why));
    }

    /// The interface that an event is about.
    pub(super) fn interface(
        &self,
        variable: &'static str,
        reason: &str,
    ) -> Result<InterfaceRef, Refusal> {
        // Not trimmed and not shortened: white space makes it another, invalid name.
        match self.raw.variables.get(variable) {
            None => Err(Refusal::NoInterface {
                reason: Quoted::shortened(reason).0,
                variable,
            }),
            Some(name) => name
                .parse()
                .map_err(|source| Refusal::BadInterface { variable, source }),
        }
    }

    /// A leased address. What is given must be one that a host can have.
    pub(super) fn leased<A: std::str::FromStr + Into<IpAddr> + Copy>(
        &mut self,
        variable: &'static str,
    ) -> Result<Option<A>, Refusal> {
        let text = self.raw.get(variable);
        text.map(|text| leased_address(variable, text)).transpose()
    }

    /// A leased IPv6 address that may have a prefix length behind it, which does not count.
    pub(super) fn leased6(&self, variable: &'static str) -> Result<Option<Ipv6Addr>, Refusal> {
        let Some(text) = self.raw.get(variable) else {
            return Ok(None);
        };
        let address = text.parse::<Ipv6Network>().ok().map(|network| network.ip());
        let possible = |address: &Ipv6Addr| {
            is_unicast_host((*address).into()) && !is_link_local((*address).into())
        };
        match address.filter(possible) {
            Some(address) => Ok(Some(address)),
            None => Err(Refusal::ImpossibleAddress {
                variable,
                value: Quoted::shortened(text),
            }),
        }
    }

    /// A value of a form that the type itself checks; anything else is dropped.
    pub(super) fn plain<T: std::str::FromStr>(
        &mut self,
        variable: &'static str,
        what: &str,
    ) -> Option<T> {
        let text = self.get(variable)?;
        let value = text.parse().ok();
        if value.is_none() {
            self.drop(variable, text, format!("not {what}"));
        }
        value
    }

    /// The length of a dotted subnet mask.
    pub(super) fn mask(&mut self, variable: &'static str) -> Option<u8> {
        let text = self.get(variable)?;
        let length = text
            .parse::<Ipv4Addr>()
            .ok()
            .and_then(|mask| ipnetwork::ipv4_mask_to_prefix(mask).ok())
            .filter(|length| *length > 0);
        if length.is_none() {
            let why = "not a contiguous subnet mask; the kernel's prefix length is used";
            self.drop(variable, text, why);
        }
        length
    }

    /// The first router that a host can have, of a list separated by blanks.
    pub(super) fn router(&mut self, variable: &'static str) -> Option<Ipv4Addr> {
        let text = self.get(variable)?;
        let router = |word: &str| word.parse::<Ipv4Addr>().ok().filter(|a| usable_gateway(*a));
        let mut refused = 0_usize;
        let mut found = None;
        for word in text.split_ascii_whitespace() {
            found = router(word);
            if found.is_some() {
                break;
            }
            refused += 1;
        }
        if let Some(router) = found {
            if refused > 0 {
                let why = format!("{refused} before {router} cannot be routers");
                self.drop(variable, text, why);
            }
        } else {
            self.drop(variable, text, "no router in it that a host could use");
        }
        found
    }

    /// The interface MTU in bytes.
    pub(super) fn mtu(&mut self, variable: &'static str) -> Option<u16> {
        let text = self.get(variable)?;
        let mtu = text.parse::<u32>().ok().filter(|mtu| *mtu >= MIN_MTU);
        let mtu = mtu.and_then(|mtu| u16::try_from(mtu).ok());
        if mtu.is_none() {
            self.drop(
                variable,
                text,
                format!("not an MTU from {MIN_MTU} to 65535"),
            );
        }
        mtu
    }

    /// The routes of the first option that can be read: 121, then 249, then 33. Each is
    /// given with the variables that may hold it.
    pub(super) fn routes(
        &mut self,
        options: &[(RouteOption, &[&'static str])],
    ) -> Option<ClasslessRoutes> {
        for (option, variables) in options {
            for variable in *variables {
                let Some(text) = self.get(variable) else {
                    continue;
                };
                let decoded = match option {
                    RouteOption::Classless | RouteOption::Microsoft | RouteOption::Given => {
                        classless(text)
                    }
                    RouteOption::Static if has_lengths(text) => classful_with_lengths(text),
                    RouteOption::Static => classful(text),
                };
                match decoded {
                    Ok(routes) => {
                        let routes = self.possible(variable, text, routes);
                        let option = *option;
                        return Some(ClasslessRoutes { option, routes });
                    }
                    Err(why) => {
                        let what = match option {
                            RouteOption::Given => "the list".to_owned(),
                            option => option.to_string(),
                        };
                        let why = format!("{what} {why}; the whole option is left out");
                        self.drop(variable, text, why);
                    }
                }
            }
        }
        None
    }

    /// Leaves out routes that no host may have.
    fn possible(
        &mut self,
        variable: &str,
        text: &str,
        routes: Vec<ClasslessRoute>,
    ) -> Vec<ClasslessRoute> {
        let (good, bad): (Vec<_>, Vec<_>) = routes.into_iter().partition(|route| {
            usable_destination(route.destination) && route.gateway.is_none_or(usable_gateway)
        });
        if let Some(first) = bad.first() {
            let gateway = first.gateway.unwrap_or(Ipv4Addr::UNSPECIFIED);
            let why = format!(
                "{} of its routes cannot be (loopback, multicast or unspecified), such as {} via {gateway}; the others count",
                bad.len(),
                first.destination,
            );
            self.drop(variable, text, why);
        }
        good
    }

    /// The moment a lifetime ends: `start` in seconds since 1970, `lifetime` in seconds.
    /// `None` when either is missing or the lifetime is for ever.
    pub(super) fn end_of_life(
        &mut self,
        start: &'static str,
        lifetime: Option<u64>,
    ) -> Option<u64> {
        let start: u64 = self.plain(start, "a number of seconds")?;
        let lifetime = lifetime?;
        (lifetime < FOR_EVER).then(|| start.saturating_add(lifetime))
    }

    /// How long a lease lasts, in seconds. `None` when it is not given or for ever.
    pub(super) fn lasts(&mut self, variable: &'static str) -> Option<u32> {
        let lasts = self.plain(variable, "a number of seconds")?;
        (u64::from(lasts) < FOR_EVER).then_some(lasts)
    }

    /// A delegated prefix: global unicast, with its length.
    pub(super) fn prefix6(
        &mut self,
        variable: &'static str,
    ) -> Result<Option<Ipv6Network>, Refusal> {
        let text = self.raw.get(variable);
        text.map(|text| delegated_prefix(variable, text))
            .transpose()
    }

    /// The length of a network given as a number.
    pub(super) fn length4(&mut self, variable: &'static str) -> Option<u8> {
        let text = self.get(variable)?;
        let length = text.parse().ok().filter(|length| (1..=32).contains(length));
        if length.is_none() {
            self.drop(variable, text, "not a prefix length from 1 to 32");
        }
        length
    }
}

/// An address that a host can have, of the variable that is named in a refusal.
pub(super) fn leased_address<A: std::str::FromStr + Into<IpAddr> + Copy>(
    variable: &'static str,
    text: &str,
) -> Result<A, Refusal> {
    let possible = |address: &A| {
        let address = (*address).into();
        is_unicast_host(address) && !is_link_local(address)
    };
    let address = text.parse().ok().filter(possible);
    address.ok_or_else(|| Refusal::ImpossibleAddress {
        variable,
        value: Quoted::shortened(text),
    })
}

/// A delegated prefix, `ADDRESS/LENGTH`: global unicast, with its length.
pub(super) fn delegated_prefix(variable: &'static str, text: &str) -> Result<Ipv6Network, Refusal> {
    let prefix = text.split_once('/').and_then(|(address, length)| {
        let address: Ipv6Addr = address.parse().ok()?;
        let network = Ipv6Network::new(address, length.parse().ok()?).ok()?;
        let possible = (MIN_DELEGATION..128).contains(&network.prefix())
            && (is_global_unicast(network.network()) || network.network().is_unique_local());
        possible.then(|| Ipv6Network::new(network.network(), network.prefix()).ok())?
    });
    prefix.ok_or_else(|| Refusal::ImpossibleAddress {
        variable,
        value: Quoted::shortened(text),
    })
}

/// What a word of a client means, by a table of its words.
pub(super) fn meaning<M: Copy>(table: &[(&str, M)], word: &str) -> Option<M> {
    let found = table.iter().find(|(name, _)| *name == word);
    found.map(|(_, meaning)| *meaning)
}

/// Whether an address lies in 2000::/3, all that is given out globally (RFC 4291 2.4).
fn is_global_unicast(address: Ipv6Addr) -> bool {
    let [first, ..] = address.octets();
    first >> 5 == 0b001
}

/// Whether an address can be a next hop.
fn usable_gateway(address: Ipv4Addr) -> bool {
    is_unicast_host(address.into())
}

/// Whether a prefix can be routed to: the default route, or one that does not begin in
/// 0.0.0.0/8 (its halves 0.0.0.0/1 to /7 reach beyond it and pass), loopback or multicast.
fn usable_destination(destination: Ipv4Network) -> bool {
    let address = destination.network();
    match destination.prefix() {
        0 => true,
        1..=7 if address.is_unspecified() => true,
        _ => is_unicast_host(address.into()),
    }
}

fn network(address: Ipv4Addr, length: u8) -> Result<Ipv4Network, String> {
    let network = Ipv4Network::new(address, length)
        .map_err(|_| format!("has the prefix length {length}, more than 32"))?;
    // RFC 3442: bits beyond the length are to be ignored.
    Ipv4Network::new(network.network(), length).map_err(|e| e.to_string())
}

fn gateway(address: Ipv4Addr) -> Option<Ipv4Addr> {
    (!address.is_unspecified()).then_some(address)
}

/// Decodes option 121 or 249 in any of the forms that clients give it:
///
/// * decimal octets, `24 198 51 100 192 0 2 254` (dhclient, option declared);
/// * hex octets, `18:c6:33:64:c0:0:2:fe` (dhclient, option not declared);
/// * `24.198.51.100 192.0.2.254, 0 192.0.2.1` (dhclient of the RHEL family);
/// * `198.51.100.0/24 192.0.2.254 0.0.0.0/0 192.0.2.1` (everybody else).
pub(super) fn classless(text: &str) -> Result<Vec<ClasslessRoute>, String> {
    let routes = if text.contains('/') {
        pairs(text, cidr)?
    } else if text.contains('.') {
        pairs(text, descriptor)?
    } else if text.contains(':') {
        octets(text.split(':').map(|word| u8::from_str_radix(word, 16)))?
    } else {
        octets(text.split_ascii_whitespace().map(str::parse))?
    };
    if routes.is_empty() {
        return Err("is empty".to_owned());
    }
    Ok(routes)
}

/// Decodes option 33: destinations without masks. A destination with host bits in its
/// class is a host route. Destination and gateway are separated by a blank (dhclient) or a
/// slash, which is no prefix length (udhcpc).
pub(super) fn classful(text: &str) -> Result<Vec<ClasslessRoute>, String> {
    pairs(&text.replace('/', " "), |word| {
        let address = word.parse::<Ipv4Addr>().map_err(|_| {
            format!(
                "has {} where a destination belongs",
                Quoted::shortened(word)
            )
        })?;
        let [first, ..] = address.octets();
        let class = match first {
            0..=127 => 8,
            128..=191 => 16,
            _ => 24,
        };
        let whole_class = network(address, class)?;
        if address.is_unspecified() {
            // RFC 2132 5.8 forbids a default route here.
            Err("has a default route, which it must not have".to_owned())
        } else if whole_class.network() == address {
            Ok(whole_class)
        } else {
            network(address, 32)
        }
    })
}

/// Whether a slash in option 33 is followed by a number, as NetworkManager gives it, and not
/// by an address.
fn has_lengths(text: &str) -> bool {
    text.split_once('/').is_some_and(|(_, rest)| {
        let word = rest.split([' ', ',']).next().unwrap_or_default();
        !word.contains('.')
    })
}

/// Decodes option 33 as NetworkManager gives it: the lengths of its classes are written
/// out, `198.51.100.0/24 192.0.2.254`, and of a host in a class only the class is left.
fn classful_with_lengths(text: &str) -> Result<Vec<ClasslessRoute>, String> {
    let routes = pairs(text, cidr)?;
    match routes.iter().any(|route| route.destination.prefix() == 0) {
        true => Err("has a default route, which it must not have".to_owned()),
        false => Ok(routes),
    }
}

fn too_many() -> String {
    format!("has more than {MAX_LEASE_ROUTES} routes")
}

/// Destination and gateway by turns, separated by blanks or commas.
fn pairs(
    text: &str,
    destination: impl Fn(&str) -> Result<Ipv4Network, String>,
) -> Result<Vec<ClasslessRoute>, String> {
    let mut words = text
        .split(|c: char| c == ',' || c.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let mut routes = Vec::new();
    while let Some(word) = words.next() {
        if routes.len() == MAX_LEASE_ROUTES {
            return Err(too_many());
        }
        let destination = destination(word)?;
        let router = words.next().ok_or("ends in the middle of a route")?;
        let router = router
            .parse()
            .map_err(|_| format!("has {} where a gateway belongs", Quoted::shortened(router)))?;
        routes.push(ClasslessRoute {
            destination,
            gateway: gateway(router),
        });
    }
    Ok(routes)
}

/// `198.51.100.0/24`.
fn cidr(word: &str) -> Result<Ipv4Network, String> {
    let bad = || format!("has {} where a prefix belongs", Quoted::shortened(word));
    let (address, length) = word.split_once('/').ok_or_else(bad)?;
    let address = address.parse().map_err(|_| bad())?;
    network(address, length.parse().map_err(|_| bad())?)
}

/// `24.198.51.100`: the length, then as many octets as it needs, or more.
fn descriptor(word: &str) -> Result<Ipv4Network, String> {
    let bad = || {
        format!(
            "has {} where a destination belongs",
            Quoted::shortened(word)
        )
    };
    let mut parts = word.split('.');
    let length: u8 = parts.next().and_then(|p| p.parse().ok()).ok_or_else(bad)?;
    let mut address = [0; 4];
    let mut given = 0_usize;
    for part in parts {
        let octet = address.get_mut(given).ok_or_else(bad)?;
        *octet = part.parse().map_err(|_| bad())?;
        given += 1;
    }
    if given < usize::from(length.div_ceil(8)) {
        return Err(bad());
    }
    network(Ipv4Addr::from(address), length)
}

/// The octets as they were on the wire (RFC 3442): length, the significant octets of the
/// destination, four octets of the gateway.
fn octets<E>(octets: impl Iterator<Item = Result<u8, E>>) -> Result<Vec<ClasslessRoute>, String> {
    let mut octets =
        octets.map(|octet| octet.map_err(|_| "has something that is not an octet".to_owned()));
    let mut routes = Vec::new();
    while let Some(length) = octets.next() {
        if routes.len() == MAX_LEASE_ROUTES {
            return Err(too_many());
        }
        let length = length?;
        if length > 32 {
            return Err(format!("has the prefix length {length}, more than 32"));
        }
        let mut take = |count: u8| -> Result<Ipv4Addr, String> {
            let mut address = [0; 4];
            for octet in address.iter_mut().take(usize::from(count)) {
                *octet = octets.next().ok_or("ends in the middle of a route")??;
            }
            Ok(Ipv4Addr::from(address))
        };
        let destination = take(length.div_ceil(8))?;
        let router = take(4)?;
        routes.push(ClasslessRoute {
            destination: network(destination, length)?,
            gateway: gateway(router),
        });
    }
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, String> {
        let show = |r: ClasslessRoute| match r.gateway {
            Some(gateway) => format!("{} via {gateway}", r.destination),
            None => format!("{} on-link", r.destination),
        };
        classless(text).map(|routes| routes.into_iter().map(show).collect())
    }

    #[test]
    fn every_spelling_of_option_121_means_the_same() {
        let want = vec![
            "0.0.0.0/0 via 192.0.2.1".to_owned(),
            "198.51.100.0/24 via 192.0.2.254".to_owned(),
            "10.20.0.0/16 on-link".to_owned(),
        ];
        for text in [
            "0 192 0 2 1 24 198 51 100 192 0 2 254 16 10 20 0 0 0 0",
            "0:c0:0:2:1:18:c6:33:64:c0:0:2:fe:10:a:14:0:0:0:0",
            "0 192.0.2.1, 24.198.51.100 192.0.2.254, 16.10.20 0.0.0.0",
            "0.0.0.0/0 192.0.2.1 198.51.100.0/24 192.0.2.254 10.20.0.0/16 0.0.0.0",
        ] {
            assert_eq!(shown(text), Ok(want.clone()), "{text}");
        }
    }

    #[test]
    fn bits_beyond_the_length_are_ignored() {
        assert_eq!(
            shown("20 10 1 31 192 0 2 1"),
            Ok(vec!["10.1.16.0/20 via 192.0.2.1".into()])
        );
        assert_eq!(
            shown("20.10.1.31 192.0.2.1"),
            Ok(vec!["10.1.16.0/20 via 192.0.2.1".into()])
        );
    }

    #[test]
    fn a_broken_option_gives_no_route_at_all() {
        for text in [
            "24 10 7 7 10 0 0 1 16 10 9 10",
            "244 192 168 2 4 192 0 2 1 253",
            "33 1 2 3 4 5 192 0 2 1",
            "24 10 7 seven 10 0 0 1",
            "24 10 7 256 10 0 0 1",
            "-1 10 0 0 1",
            "18:c6:33:64:c0:0:2",
            "18:c6:33:zz:c0:0:2:fe",
            ":",
            "10.0.0.0/24",
            "10.0.0.0/33 192.0.2.1",
            "10.0.0.0/24 192.0.2.1;reboot",
            "24.10.0 192.0.2.1",
            "24.10.0.0.0.0 192.0.2.1",
            "33.10.0.0.0 192.0.2.1",
        ] {
            assert!(classless(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_number_of_routes_is_bounded() {
        let one = "32 10 0 0 1 192 0 2 1 ";
        assert_eq!(
            classless(&one.repeat(MAX_LEASE_ROUTES)).map(|r| r.len()),
            Ok(MAX_LEASE_ROUTES)
        );
        assert!(classless(&one.repeat(MAX_LEASE_ROUTES + 1)).is_err());
    }

    #[test]
    fn option_33_goes_by_class() {
        let lengths = |text: &str| -> Vec<String> {
            let routes = classful(text).unwrap();
            routes.iter().map(|r| r.destination.to_string()).collect()
        };
        assert_eq!(
            lengths(
                "198.51.100.7 192.0.2.254 10.0.0.0 192.0.2.254 172.16.0.0 192.0.2.1 192.0.2.0 192.0.2.9"
            ),
            [
                "198.51.100.7/32",
                "10.0.0.0/8",
                "172.16.0.0/16",
                "192.0.2.0/24"
            ]
        );
        assert!(classful("0.0.0.0 192.0.2.1").is_err());
        assert!(classful("198.51.100.7").is_err());
    }
}
