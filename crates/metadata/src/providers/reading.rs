//! How providers read answers: strictly, into types, and whole or not at all.
//!
//! Anybody on a link can answer for a service. An answer that holds one thing that cannot be
//! is given up as unreadable: half of one must never look like a complete one. Nothing of an
//! answer is shown but quoted and cut.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use leaseroute_core::{Family, Mac, Quoted, Said, is_link_local, is_unicast_host};
use serde::de::DeserializeOwned;

use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::finding::Why;
use crate::provider::{Description, Step};

/// The most addresses of one card, of both families.
pub(super) const MAX_ADDRESSES: usize = 256;

/// The most prefixes that are routed to one card.
pub(super) const MAX_PREFIXES: usize = 128;

/// The most on-link prefixes of one card.
pub(super) const MAX_SUBNETS: usize = 64;

/// The most lines of a list. A machine has fewer cards and a card fewer keys.
const MAX_LINES: usize = 1024;

/// The longest token, in bytes. A header field has to hold it.
const MAX_TOKEN: usize = 4096;

/// Why reading ends before everything is read.
pub(super) enum Stop {
    /// These are not answered yet.
    Ask(Vec<Request>),
    /// There is nothing that could be used.
    Nothing(Why),
}

impl From<Why> for Stop {
    fn from(why: Why) -> Self {
        Self::Nothing(why)
    }
}

/// What reading came to.
pub(super) type Reading<T> = Result<T, Stop>;

/// The step that a reading is.
pub(super) fn step(reading: Reading<Description>) -> Step {
    match reading {
        Ok(description) => Step::Said(description),
        Err(Stop::Ask(requests)) => Step::Ask(requests),
        Err(Stop::Nothing(why)) => Step::Nothing(why),
    }
}

/// What was asked, and the body of its success.
#[derive(Clone, Copy, Default)]
pub(super) struct Body<'a> {
    /// The path.
    pub path: &'a str,
    /// The body.
    pub text: &'a str,
}

/// The body of the success that answers a request. Without an answer, the request is to be
/// asked; 404 is a refusal like any other.
pub(super) fn body<'a>(answers: &'a Answers, request: &'a Request) -> Reading<Body<'a>> {
    let Some(answer) = answers.to(request) else {
        return Err(Stop::Ask(vec![request.clone()]));
    };
    let path = request.path.as_str();
    if answer.status != 200 {
        return Err(refused(path, answer.status).into());
    }
    let text = answer.text();
    let text = text.ok_or_else(|| unreadable(path, "it is not UTF-8".to_owned()))?;
    Ok(Body { path, text })
}

/// The body of the success that answers a request, or `None` when the service has no such
/// thing (404).
pub(super) fn optional<'a>(
    answers: &'a Answers,
    request: &'a Request,
) -> Reading<Option<Body<'a>>> {
    match answers.to(request) {
        Some(answer) if answer.status == 404 => Ok(None),
        _ => body(answers, request).map(Some),
    }
}

/// Asks for all of these that are not answered yet, at once.
pub(super) fn ask_all<'a>(
    answers: &Answers,
    requests: impl IntoIterator<Item = &'a Request>,
) -> Reading<()> {
    let open = requests.into_iter().filter(|r| answers.to(r).is_none());
    let open: Vec<Request> = open.cloned().collect();
    if open.is_empty() {
        Ok(())
    } else {
        Err(Stop::Ask(open))
    }
}

/// A refusal.
pub(super) fn refused(path: &str, status: u16) -> Why {
    Why::Refused {
        path: path.to_owned(),
        status,
    }
}

fn unreadable(path: &str, why: String) -> Why {
    Why::Unreadable {
        path: path.to_owned(),
        why,
    }
}

impl<'a> Body<'a> {
    /// That this answer cannot be read, and why.
    pub(super) fn unreadable(self, why: impl Into<String>) -> Why {
        unreadable(self.path, why.into())
    }

    /// That this answer holds something that cannot be.
    pub(super) fn invalid(self, what: &str, value: &str) -> Why {
        self.unreadable(format!("{} is no {what}", Quoted::shortened(value)))
    }

    /// A JSON document.
    pub(super) fn json<T: DeserializeOwned>(self) -> Result<T, Why> {
        serde_json::from_str(self.text).map_err(|error| {
            // The reason as the library gives it can hold text of the answer.
            let why = match error.classify() {
                serde_json::error::Category::Eof => "is cut off",
                serde_json::error::Category::Syntax | serde_json::error::Category::Io => {
                    "is not JSON"
                }
                serde_json::error::Category::Data => "is not JSON of the expected form",
            };
            let (line, column) = (error.line(), error.column());
            self.unreadable(format!("it {why} (line {line}, column {column})"))
        })
    }

    /// The lines of a list, of which there is at least one and none is empty.
    pub(super) fn lines(self) -> Result<Vec<&'a str>, Why> {
        let text = self.text.strip_suffix('\n').unwrap_or(self.text);
        let lines: Vec<&str> = text.split('\n').take(MAX_LINES + 1).collect();
        if lines.len() > MAX_LINES {
            return Err(self.unreadable(format!("it has more than {MAX_LINES} lines")));
        }
        let lines: Vec<&str> = lines.iter().map(|l| l.trim_end_matches('\r')).collect();
        if lines.iter().any(|line| line.is_empty()) {
            return Err(self.unreadable("it has an empty line"));
        }
        Ok(lines)
    }

    /// The items of a list: one a line, or between brackets and parted by commas, in quotes
    /// or not.
    pub(super) fn items(self) -> Result<Vec<&'a str>, Why> {
        let text = self.text.trim_end_matches('\n');
        let Some(text) = text.strip_prefix('[') else {
            return self.lines();
        };
        let cut = || self.unreadable("it is cut off");
        let text = text.strip_suffix(']').ok_or_else(cut)?.trim();
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let unquoted = |item: &'a str| {
            let item = item.trim();
            let inner = item.strip_prefix('"').and_then(|i| i.strip_suffix('"'));
            inner.unwrap_or(item)
        };
        let items: Vec<&str> = text.split(',').map(unquoted).take(MAX_LINES + 1).collect();
        if items.len() > MAX_LINES {
            return Err(self.unreadable(format!("it has more than {MAX_LINES} items")));
        }
        Ok(items)
    }

    /// The only line.
    pub(super) fn line(self) -> Result<&'a str, Why> {
        match self.lines()?.as_slice() {
            [line] => Ok(line),
            _ => Err(self.unreadable("it has more than one line")),
        }
    }

    /// A number.
    pub(super) fn number(self) -> Result<u32, Why> {
        let line = self.line()?;
        let is_number = line.bytes().all(|b| b.is_ascii_digit());
        let number = is_number.then(|| line.parse().ok()).flatten();
        number.ok_or_else(|| self.invalid("number", line))
    }

    /// A hardware address.
    pub(super) fn mac(self, text: &str) -> Result<Mac, Why> {
        mac(text).ok_or_else(|| self.invalid("hardware address", text))
    }

    /// A token, which a header field can carry.
    pub(super) fn token(self) -> Result<&'a str, Why> {
        let token = self.line()?;
        if token.len() > MAX_TOKEN || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(self.invalid("token", token));
        }
        Ok(token)
    }
}

/// A hardware address: twelve hexadecimal digits, in either case, in pairs parted by colons
/// or hyphens or not parted at all.
pub(super) fn mac(text: &str) -> Option<Mac> {
    let parted = text.len() == 17;
    let mut bytes = [0; 6];
    let mut rest = text;
    for (n, byte) in bytes.iter_mut().enumerate() {
        if parted && n > 0 {
            rest = rest.strip_prefix([':', '-'])?;
        }
        let (pair, after) = rest.split_at_checked(2)?;
        if !pair.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
        rest = after;
    }
    rest.is_empty().then(|| Mac::new(bytes))
}

/// What answers say of a card, taken in piece by piece. Complaints name the answer in hand.
#[derive(Default)]
pub(super) struct Telling<'a> {
    body: Body<'a>,
    ipv4: Said,
    ipv6: Said,
    /// Of addresses, prefixes and subnets, repeated ones too.
    counts: [usize; 3],
}

impl<'a> Telling<'a> {
    /// Nothing yet, of one answer.
    pub(super) fn new(body: Body<'a>) -> Self {
        Self {
            body,
            ..Self::default()
        }
    }

    /// Goes on with another answer about the same card.
    pub(super) fn turn_to(&mut self, body: Body<'a>) {
        self.body = body;
    }

    /// An address of the card.
    pub(super) fn address(&mut self, family: Family, text: &str) -> Result<(), Why> {
        let address = self.host(family, text, false)?;
        self.count(0, MAX_ADDRESSES, "addresses")?;
        let addresses = &mut self.of(family).addresses;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
        Ok(())
    }

    /// A prefix that is routed to the card. A bare address is one of its full length.
    pub(super) fn prefix(&mut self, family: Family, text: &str) -> Result<(), Why> {
        let prefix = self.network(family, text)?;
        self.count(1, MAX_PREFIXES, "prefixes")?;
        self.of(family).prefixes.insert(prefix);
        Ok(())
    }

    /// An on-link prefix.
    pub(super) fn subnet(&mut self, family: Family, text: &str) -> Result<(), Why> {
        let subnet = self.network(family, text)?;
        self.take_subnet(family, subnet)
    }

    /// The on-link prefix around an address, by its length: `24`, or `255.255.255.0`.
    pub(super) fn subnet_of(
        &mut self,
        family: Family,
        address: &str,
        length: &str,
    ) -> Result<(), Why> {
        let host = self.host(family, address, false)?;
        let invalid = || self.body.invalid("prefix length or mask", length);
        let subnet = around(host, length).ok_or_else(invalid)?;
        let subnet = checked(subnet).ok_or_else(invalid)?;
        self.take_subnet(family, subnet)
    }

    fn take_subnet(&mut self, family: Family, subnet: IpNetwork) -> Result<(), Why> {
        self.count(2, MAX_SUBNETS, "subnets")?;
        self.of(family).subnets.insert(subnet);
        Ok(())
    }

    /// The router. The first one told counts.
    pub(super) fn gateway(&mut self, family: Family, text: &str) -> Result<(), Why> {
        let gateway = self.host(family, text, true)?;
        self.of(family).gateway.get_or_insert(gateway);
        Ok(())
    }

    /// What was said of both families. One of which neither address nor prefix was told has
    /// no subnet either: the network has it, the card has not.
    pub(super) fn whole(self) -> Description {
        let held = |said: Said| {
            Some(if said.is_empty() {
                Said::default()
            } else {
                said
            })
        };
        Description {
            ipv4: held(self.ipv4),
            ipv6: held(self.ipv6),
        }
    }

    fn of(&mut self, family: Family) -> &mut Said {
        match family {
            Family::Ipv4 => &mut self.ipv4,
            Family::Ipv6 => &mut self.ipv6,
        }
    }

    fn count(&mut self, which: usize, most: usize, what: &str) -> Result<(), Why> {
        if let Some(count) = self.counts.get_mut(which) {
            *count += 1;
            if *count > most {
                return Err(self
                    .body
                    .unreadable(format!("it has more than {most} {what}")));
            }
        }
        Ok(())
    }

    /// An address that a card or, link-local ones too, a router may have.
    fn host(&self, family: Family, text: &str, router: bool) -> Result<IpAddr, Why> {
        let address: Option<IpAddr> = text.parse().ok();
        let address = address.filter(|a| {
            Family::of(*a) == family && is_unicast_host(*a) && (router || !is_link_local(*a))
        });
        let what = match (family, router) {
            (Family::Ipv4, false) => "IPv4 address of a card",
            (Family::Ipv4, true) => "IPv4 address of a router",
            (Family::Ipv6, false) => "IPv6 address of a card",
            (Family::Ipv6, true) => "IPv6 address of a router",
        };
        address.ok_or_else(|| self.body.invalid(what, text))
    }

    fn network(&self, family: Family, text: &str) -> Result<IpNetwork, Why> {
        let network: Option<IpNetwork> = match text.split_once('/') {
            None => text.parse::<IpAddr>().ok().map(IpNetwork::from),
            Some((address, length)) => {
                let address: Option<IpAddr> = address.parse().ok();
                address.and_then(|address| around(address, length))
            }
        };
        let network = network.filter(|n| Family::of(n.ip()) == family);
        let what = match family {
            Family::Ipv4 => "IPv4 prefix of a card",
            Family::Ipv6 => "IPv6 prefix of a card",
        };
        let network = network.and_then(checked);
        network.ok_or_else(|| self.body.invalid(what, text))
    }
}

/// The entry of a list that is the card's.
pub(super) fn of_card<'a, T>(
    card: &Card,
    body: Body<'_>,
    list: &'a [T],
    mac: impl Fn(&T) -> Option<&str>,
) -> Result<&'a T, Why> {
    let mut found = None;
    for entry in list {
        if let Some(text) = mac(entry)
            && body.mac(text)? == card.mac
        {
            found = found.or(Some(entry));
        }
    }
    found.ok_or(Why::NotListed)
}

/// What a field holds, if it is there and not empty.
pub(super) fn held(field: Option<&String>) -> Option<&str> {
    field.map(String::as_str).filter(|text| !text.is_empty())
}

/// The address to which most clouds have given their service, on port 80.
pub(super) const LINK_LOCAL: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80);

/// The prefix around an address, by its length in digits or its mask.
fn around(address: IpAddr, length: &str) -> Option<IpNetwork> {
    let length = if length.contains(['.', ':']) {
        match (address, length.parse().ok()?) {
            (IpAddr::V4(_), IpAddr::V4(mask)) => ipnetwork::ipv4_mask_to_prefix(mask).ok()?,
            (IpAddr::V6(_), IpAddr::V6(mask)) => ipnetwork::ipv6_mask_to_prefix(mask).ok()?,
            _ => return None,
        }
    } else {
        let is_number = length.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| length.parse().ok()).flatten()?
    };
    let network = IpNetwork::new(address, length).ok()?;
    IpNetwork::new(network.network(), length).ok()
}

/// The prefix, unless no card has one like it: too short, or with addresses in it that
/// belong to no host.
fn checked(network: IpNetwork) -> Option<IpNetwork> {
    let shortest = if network.is_ipv4() { 8 } else { 32 };
    let ends = [network.network(), network.broadcast()];
    let is_good = network.prefix() >= shortest
        && ends
            .iter()
            .all(|a| is_unicast_host(*a) && !is_link_local(*a))
        && !overlaps_link_local(network);
    is_good.then_some(network)
}

fn overlaps_link_local(network: IpNetwork) -> bool {
    match network {
        IpNetwork::V4(network) => Ipv4Network::new(Ipv4Addr::new(169, 254, 0, 0), 16)
            .is_ok_and(|link_local| network.overlaps(link_local)),
        IpNetwork::V6(network) => Ipv6Network::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)
            .is_ok_and(|link_local| network.overlaps(link_local)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: Body<'_> = Body {
        path: "/here",
        text: "",
    };

    #[test]
    fn a_hardware_address_is_one_in_either_case_and_with_any_separator() {
        let expected = Some(Mac::new([0x00, 0x0d, 0x3a, 0xf8, 0x06, 0xec]));
        for text in ["00:0d:3a:f8:06:ec", "00-0D-3A-F8-06-EC", "000D3AF806EC"] {
            assert_eq!(mac(text), expected, "{text}");
        }
        for text in [
            "",
            "000D3AF806E",
            "000D3AF806ECA",
            "00:0d:3a:f8:06",
            "00:0d:3a:f8:06:ec:01",
            "+0:0d:3a:f8:06:ec",
            "0:0d:3a:f8:06:ec00",
            "00:0d:3a:f8:06:é",
            "00:0d:3a:f8:06:ec/../..",
        ] {
            assert_eq!(mac(text), None, "{text}");
        }
    }

    #[test]
    fn only_what_a_card_may_have_is_taken() {
        let mut telling = Telling::new(BODY);
        for bad in [
            "",
            "10.0.4",
            "10.0.4.",
            "010.0.4.1",
            "10.0.4.1/24",
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "2001:db8::1",
            " 10.0.4.1",
            "10.0.4.1 ",
        ] {
            assert!(telling.address(Family::Ipv4, bad).is_err(), "{bad:?}");
        }
        for bad in [
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "10.0.0.1",
            "fe80::1%eth0",
        ] {
            assert!(telling.address(Family::Ipv6, bad).is_err(), "{bad:?}");
        }
        for bad in [
            "0.0.0.0/0",
            "0.0.0.0/8",
            "10.0.0.0/7",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "169.254.7.0/24",
            "169.0.0.0/8",
            "224.0.0.0/8",
            "255.0.0.0/8",
            "10.0.0.0/255.0.255.0",
            "2001:db8::/64",
        ] {
            assert!(telling.prefix(Family::Ipv4, bad).is_err(), "{bad:?}");
            assert!(telling.subnet(Family::Ipv4, bad).is_err(), "{bad:?}");
        }
        for bad in [
            "::/0",
            "::/32",
            "2000::/3",
            "2001:db8::/31",
            "2001:db8::/129",
            "fe80::/64",
            "ff00::/32",
            "::ffff:0:0/96",
            "::fffe:0:0/95",
        ] {
            assert!(telling.prefix(Family::Ipv6, bad).is_err(), "{bad:?}");
        }
        // Nothing of it has left a trace.
        let whole = telling.whole();
        assert_eq!(whole.ipv4, Some(Said::default()));
        assert_eq!(whole.ipv6, Some(Said::default()));
    }

    #[test]
    fn prefixes_come_by_length_by_mask_and_alone() {
        let mut telling = Telling::new(BODY);
        telling.address(Family::Ipv4, "10.0.4.17").unwrap();
        telling.prefix(Family::Ipv4, "10.0.4.33/28").unwrap();
        telling.prefix(Family::Ipv4, "203.0.113.9").unwrap();
        telling
            .subnet_of(Family::Ipv4, "10.0.4.17", "255.255.255.0")
            .unwrap();
        telling.address(Family::Ipv6, "2001:db8::17").unwrap();
        telling
            .subnet_of(Family::Ipv6, "2001:db8::17", "ffff:ffff:ffff:ffff::")
            .unwrap();
        telling.gateway(Family::Ipv6, "fe80::1").unwrap();
        telling.gateway(Family::Ipv6, "fe80::2").unwrap();
        let whole = telling.whole();
        let ipv4 = whole.ipv4.unwrap();
        let prefixes = ["10.0.4.32/28", "203.0.113.9/32"].map(|p| p.parse().unwrap());
        assert_eq!(ipv4.prefixes, prefixes.into());
        assert_eq!(ipv4.subnets, ["10.0.4.0/24".parse().unwrap()].into());
        let ipv6 = whole.ipv6.unwrap();
        assert_eq!(ipv6.subnets, ["2001:db8::/64".parse().unwrap()].into());
        assert_eq!(ipv6.gateway, Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn more_than_a_card_can_have_is_refused() {
        let mut telling = Telling::new(BODY);
        for n in 0..MAX_ADDRESSES {
            let address = format!("10.0.{}.{}", n / 128, n % 128 + 1);
            telling.address(Family::Ipv4, &address).unwrap();
        }
        assert!(telling.address(Family::Ipv6, "2001:db8::1").is_err());
        for n in 0..MAX_PREFIXES {
            telling
                .prefix(Family::Ipv4, &format!("10.1.{n}.0/24"))
                .unwrap();
        }
        assert!(telling.prefix(Family::Ipv4, "10.2.0.0/24").is_err());
        for n in 0..MAX_SUBNETS {
            telling
                .subnet(Family::Ipv4, &format!("10.3.{n}.0/24"))
                .unwrap();
        }
        assert!(telling.subnet(Family::Ipv4, "10.4.0.0/24").is_err());
    }

    #[test]
    fn lists_have_no_empty_lines_and_an_end() {
        let of = |text| Body {
            path: "/here",
            text,
        };
        assert_eq!(of("a\nb\n").lines(), Ok(vec!["a", "b"]));
        assert_eq!(of("[a, \"b\"]").items(), Ok(vec!["a", "b"]));
        assert_eq!(of("[]").items(), Ok(Vec::new()));
        for bad in ["", "\n", "a\n\nb"] {
            assert!(of(bad).lines().is_err(), "{bad:?}");
        }
        assert!(of("[a").items().is_err());
        let long = "a\n".repeat(MAX_LINES + 1);
        assert!(of(&long).lines().is_err());
        let long = format!("[{}]", "a,".repeat(MAX_LINES + 1));
        assert!(of(&long).items().is_err());
    }

    #[test]
    fn a_token_fits_a_header_field() {
        let of = |text| {
            Body {
                path: "/here",
                text,
            }
            .token()
            .is_ok()
        };
        assert!(of("AQAAAJOa7vFKxGVpEfLQ=="));
        let long = "a".repeat(MAX_TOKEN + 1);
        for bad in ["", "a b", "a\r\nHost: b", "a\tb", "é", &long] {
            assert!(!of(bad), "{bad:?}");
        }
    }

    #[test]
    fn what_is_shown_of_an_answer_is_quoted_and_cut() {
        let text = format!("\x1b[31m{}", "x".repeat(10_000));
        let why = BODY.invalid("address", &text).to_string();
        assert!(why.contains("\\u{1b}") && why.len() < 300, "{why}");
    }
}
