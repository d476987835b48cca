//! What lease and kernel know of the card that is asked about.

use std::collections::BTreeSet;
use std::net::IpAddr;

use leaseroute_core::{Family, Host, IfIndex, InterfaceName, LeaseBook, Mac, Settings};

/// A card, as far as it shows whether a service's answer can be true yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its interface index.
    pub index: IfIndex,
    /// Its name.
    pub name: InterfaceName,
    /// Its hardware address, by which services know it.
    pub mac: Mac,
    /// Addresses that DHCP leased to it, of both families, and that are on it.
    pub leased: BTreeSet<IpAddr>,
    /// Its other IPv6 addresses with a lifetime, which it made of a router's prefix (RFC 4862),
    /// privacy addresses aside.
    pub made: BTreeSet<IpAddr>,
    /// Its permanent addresses, which no lease tells of.
    pub permanent: BTreeSet<IpAddr>,
}

impl Card {
    /// The card of an interface, without addresses that we put there ourselves. `None` when
    /// there is none, or it has no hardware address.
    #[must_use]
    pub fn of(index: IfIndex, host: &Host, book: &LeaseBook, settings: &Settings) -> Option<Self> {
        let link = host.links.get(&index)?;
        let mut card = Self {
            index: link.index,
            name: link.name.clone(),
            mac: link.mac?,
            leased: BTreeSet::new(),
            made: BTreeSet::new(),
            permanent: BTreeSet::new(),
        };
        let leased4 = book.lease4(link.index).into_iter();
        let leased4 = leased4.flat_map(|l| l.others.iter().copied().chain([l.address]));
        let leased6 = book.lease6(link.index).into_iter();
        let leased6 = leased6.flat_map(|lease| lease.addresses.keys().copied());
        let leased: BTreeSet<IpAddr> = leased4
            .map(IpAddr::V4)
            .chain(leased6.map(IpAddr::V6))
            .collect();
        for family in Family::BOTH {
            for held in host.addresses_of(link.index, family) {
                let address = held.address.ip();
                if leaseroute_core::is_link_local(address)
                    || settings.owns_address(held)
                    || held.flags.dad_failed
                    || held.flags.temporary
                {
                    continue;
                }
                let kind = if leased.contains(&address) {
                    &mut card.leased
                } else if held.flags.permanent || family == Family::Ipv4 {
                    &mut card.permanent
                } else {
                    &mut card.made
                };
                kind.insert(address);
            }
        }
        Some(card)
    }

    /// Its addresses of one family.
    pub fn addresses(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        let all = self.leased.iter().chain(&self.made).chain(&self.permanent);
        all.copied().filter(move |a| Family::of(*a) == family)
    }
}

#[cfg(test)]
mod tests {
    use leaseroute_core::{Client, RawEvent};

    use super::*;

    fn host() -> Host {
        let text = r#"{
            "links": {
                "3": {"index": 3, "name": "eth1", "mtu": 1500, "up": true, "mac": "02:00:5e:10:00:01"},
                "4": {"index": 4, "name": "tun0", "mtu": 1500, "up": true}
            },
            "addresses": [
                {"index": 3, "address": "198.51.100.5/24"},
                {"index": 3, "address": "198.51.100.77/24", "flags": {"permanent": true}},
                {"index": 3, "address": "169.254.7.7/16", "flags": {"permanent": true}},
                {"index": 3, "address": "2001:db8:1::a:b/64"},
                {"index": 3, "address": "2001:db8:1::cc/64", "flags": {"temporary": true}},
                {"index": 3, "address": "2001:db8:1::dd/64", "flags": {"dad_failed": true}},
                {"index": 3, "address": "2001:db8:1::1/64", "flags": {"permanent": true}},
                {"index": 3, "address": "fe80::1/64", "flags": {"permanent": true}},
                {"index": 4, "address": "203.0.113.1/32"}
            ]
        }"#;
        serde_json::from_str(text).unwrap()
    }

    fn book(host: &Host, address: &str) -> LeaseBook {
        let variables = [
            ("reason", "BOUND"),
            ("interface", "eth1"),
            ("new_ip_address", address),
            ("new_subnet_mask", "255.255.255.0"),
        ];
        let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let raw = RawEvent::new(Client::Dhclient, variables.into());
        let event = raw.client.parse(&raw).unwrap().event.unwrap();
        let mut book = LeaseBook::default();
        book.fold(&event, Some(&raw), host, 0);
        book
    }

    fn set(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_are_told_apart_by_who_gave_them() {
        let host = host();
        let book = book(&host, "198.51.100.5");
        let card = Card::of(IfIndex::new(3).unwrap(), &host, &book, &Settings::default()).unwrap();
        assert_eq!(card.leased, set(&["198.51.100.5"]));
        // Neither privacy addresses, nor duplicates, nor link-local ones.
        assert_eq!(card.made, set(&["2001:db8:1::a:b"]));
        assert_eq!(card.permanent, set(&["198.51.100.77", "2001:db8:1::1"]));
        assert_eq!(card.addresses(Family::Ipv6).count(), 2);
    }

    #[test]
    fn a_lease_whose_address_is_not_on_the_card_is_no_witness() {
        let host = host();
        let book = book(&host, "198.51.100.99");
        let card = Card::of(IfIndex::new(3).unwrap(), &host, &book, &Settings::default()).unwrap();
        assert_eq!(card.leased, set(&[]));
        assert_eq!(
            card.permanent,
            set(&["198.51.100.5", "198.51.100.77", "2001:db8:1::1"])
        );
    }

    #[test]
    fn what_has_no_hardware_address_is_no_card() {
        let host = host();
        let book = LeaseBook::default();
        assert_eq!(
            Card::of(IfIndex::new(4).unwrap(), &host, &book, &Settings::default()),
            None
        );
        assert_eq!(
            Card::of(IfIndex::new(9).unwrap(), &host, &book, &Settings::default()),
            None
        );
    }
}
