//! Addresses that a client has told of before it puts them on the card.
//!
//! They count as if they were there, so that routes and rules are in place when they come.

use ipnetwork::IpNetwork;

use super::{LeaseBook, Record};
use crate::address::Family;
use crate::host::{AddressFlags, Host, LinkAddress};
use crate::lease::{Lease, LeaseState};

/// How long an announced address counts, in seconds: a client may take so long to put it on
/// the card. dhclient's script of the RHEL family asks for two whether anybody else has it.
pub const ANNOUNCED: u64 = 10;

impl LeaseBook {
    /// Adds to a host the addresses of a family that clients are about to put there, by the time
    /// that [`LeaseBook::expire`] was told.
    pub fn add_announced(&self, family: Family, host: &mut Host) {
        let fresh = self.records.values().filter(|record| {
            record.family == family && record.updated.abs_diff(self.now) <= ANNOUNCED
        });
        let announced: Vec<LinkAddress> = fresh.flat_map(Record::announced_on_link).collect();
        for announced in announced {
            let is_there = |seen: &LinkAddress| seen.address.ip() == announced.address.ip();
            if !host.addresses_of(announced.index, family).any(is_there) {
                host.addresses.push(announced);
            }
        }
    }
}

impl Record {
    /// The announced addresses as they will be on the interface.
    fn announced_on_link(&self) -> impl Iterator<Item = LinkAddress> {
        let length = match &self.state {
            LeaseState::Held(Lease::Ipv4(lease)) => lease.prefix_length,
            LeaseState::Held(Lease::Ipv6(_)) | LeaseState::Lost => None,
        };
        let length = length.unwrap_or(self.family.host_length());
        let networks = self
            .announced
            .iter()
            .filter_map(move |address| IpNetwork::new(*address, length).ok());
        networks.map(|address| LinkAddress {
            index: self.index,
            address,
            peer: None,
            flags: AddressFlags {
                announced: true,
                ..AddressFlags::default()
            },
            protocol: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use super::*;
    use crate::client::Client;
    use crate::event::{Event, RawEvent};
    use crate::interface::IfIndex;

    const BOUND: &[(&str, &str)] = &[
        ("reason", "BOUND"),
        ("new_ip_address", "192.0.2.10"),
        ("new_subnet_mask", "255.255.255.0"),
        ("new_routers", "192.0.2.1"),
    ];
    const BOUND6: &[(&str, &str)] = &[
        ("reason", "BOUND6"),
        ("new_ip6_address", "2001:db8:1::200"),
        ("new_ip6_prefixlen", "128"),
    ];

    fn raw(variables: &[(&str, &str)], arguments: &[&str]) -> RawEvent {
        let named = [("interface", "eth1")];
        let variables = named.iter().chain(variables);
        let variables: BTreeMap<String, String> = variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        RawEvent {
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            ..RawEvent::new(Client::Dhclient, variables)
        }
    }

    fn event(variables: &[(&str, &str)], arguments: &[&str]) -> Option<Event> {
        let raw = raw(variables, arguments);
        raw.client.parse(&raw).unwrap().event
    }

    fn host() -> Host {
        let link = r#"{"links": {"2": {"index": 2, "name": "eth1", "mtu": 1500, "up": true}}}"#;
        serde_json::from_str(link).unwrap()
    }

    /// The addresses that a host shows by a book at a moment.
    fn shown(book: &mut LeaseBook, host: &Host, now: u64) -> Vec<(String, bool)> {
        book.expire(now);
        let mut host = host.clone();
        for family in Family::BOTH {
            book.add_announced(family, &mut host);
        }
        let addresses = host.addresses.iter();
        addresses
            .map(|seen| (seen.address.to_string(), seen.flags.announced))
            .collect()
    }

    fn announced(addresses: &[&str]) -> Vec<(String, bool)> {
        addresses.iter().map(|a| ((*a).to_owned(), true)).collect()
    }

    #[test]
    fn what_an_enter_hook_tells_of_counts_until_the_exit_hook_has_told() {
        let mut book = LeaseBook::default();
        for variables in [BOUND, BOUND6] {
            let ahead = event(variables, &["ahead"]).unwrap();
            assert!(ahead.ahead);
            book.fold(&ahead, None, &host(), 100);
        }
        let both = announced(&["192.0.2.10/24", "2001:db8:1::200/128"]);
        // A moment later, at the last one, and by a clock that was set back a little.
        for now in [100, 110, 99] {
            assert_eq!(shown(&mut book, &host(), now), both, "{now}");
        }
        // The script was killed, or the clock was set.
        for now in [111, 0] {
            assert_eq!(shown(&mut book, &host(), now), [], "{now}");
        }
        book.fold(&event(BOUND, &[]).unwrap(), None, &host(), 101);
        let rest = announced(&["2001:db8:1::200/128"]);
        assert_eq!(shown(&mut book, &host(), 101), rest);
        let lost = [
            ("reason", "EXPIRE6"),
            ("old_ip6_address", "2001:db8:1::200"),
        ];
        book.fold(&event(&lost, &[]).unwrap(), None, &host(), 102);
        assert_eq!(shown(&mut book, &host(), 102), []);
    }

    #[test]
    fn an_address_that_is_there_is_not_added() {
        let mut book = LeaseBook::default();
        let ahead = event(BOUND, &["ahead"]).unwrap();
        book.fold(&ahead, None, &host(), 100);
        let there = LinkAddress {
            index: IfIndex::new(2).unwrap(),
            address: "192.0.2.10/32".parse().unwrap(),
            peer: None,
            // Nobody is to answer on it, whatever the client is about to do.
            flags: AddressFlags {
                dad_failed: true,
                ..AddressFlags::default()
            },
            protocol: None,
        };
        let host = Host {
            addresses: vec![there],
            ..host()
        };
        let seen = vec![("192.0.2.10/32".to_owned(), false)];
        assert_eq!(shown(&mut book, &host, 100), seen);
    }

    #[test]
    fn only_new_addresses_are_told_of_ahead() {
        let mut book = LeaseBook::default();
        let dying = [BOUND6, &[("new_max_life", "0")]].concat();
        let prefix = [
            ("reason", "BOUND6"),
            ("new_ip6_prefix", "2001:db8:1f00::/56"),
        ];
        let lost = [("reason", "EXPIRE"), ("old_ip_address", "192.0.2.10")];
        let refused = [("reason", "BOUND"), ("new_ip_address", "127.0.0.1")];
        let started = [("reason", "PREINIT")];
        let unknown = [("reason", "SOMETHING"), ("new_ip_address", "192.0.2.10")];
        for variables in [
            &dying[..],
            &prefix,
            &lost,
            &refused,
            &started,
            &unknown,
            &[],
        ] {
            assert_eq!(event(variables, &["ahead"]), None, "{variables:?}");
        }
        // No other word means it.
        for words in [&["other"][..], &["ahead", "ahead"], &[]] {
            assert!(!event(BOUND, words).unwrap().ahead, "{words:?}");
        }
        let ahead = event(BOUND, &["ahead"]).unwrap();
        book.fold(&ahead, None, &host(), 100);
        let record = book.records().next().unwrap();
        assert_eq!(
            record.announced,
            ["192.0.2.10".parse::<IpAddr>().unwrap()].into()
        );
        let text = serde_json::to_string(record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), *record);
    }
}
