//! The recorded leases of the demonstration, and what later events make of them.
//!
//! The files in `leases/` are environments that ISC dhclient 4.4.3 gave its hooks, with
//! the demonstration's names, addresses and servers in the place of the recorded ones.
//! Later events carry what dhclient makes them carry: a renewal the old values beside
//! the new, a release the old ones alone.

use std::collections::BTreeMap;

use leaseroute_core::Family;

/// A hook's environment: names and values.
pub type Variables = BTreeMap<String, String>;

/// What a client's hook is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A new lease.
    Bound,
    /// The same lease for longer.
    Renewed,
    /// The lease given back.
    Released,
}

impl Happening {
    /// dhclient's word for it.
    fn reason(self, family: Family) -> &'static str {
        match (self, family) {
            (Self::Bound, Family::Ipv4) => "BOUND",
            (Self::Bound, Family::Ipv6) => "BOUND6",
            (Self::Renewed, Family::Ipv4) => "RENEW",
            (Self::Renewed, Family::Ipv6) => "RENEW6",
            (Self::Released, Family::Ipv4) => "RELEASE",
            (Self::Released, Family::Ipv6) => "RELEASE6",
        }
    }
}

/// The environment of a hook on one of the demonstration's two cards (0 or 1) at a
/// moment, in seconds since 1970.
#[must_use]
pub fn event(card: usize, family: Family, happening: Happening, now: u64) -> Variables {
    let recorded = match (card, family) {
        (0, Family::Ipv4) => include_str!("leases/eth0.BOUND.env"),
        (0, Family::Ipv6) => include_str!("leases/eth0.BOUND6.env"),
        (_, Family::Ipv4) => include_str!("leases/eth1.BOUND.env"),
        (_, Family::Ipv6) => include_str!("leases/eth1.BOUND6.env"),
    };
    let mut variables = Variables::new();
    for (name, value) in recorded.lines().filter_map(|line| line.split_once('=')) {
        let value = match name {
            "new_expiry" => (now + 3600).to_string(),
            "new_starts" | "new_life_starts" => now.to_string(),
            "reason" => happening.reason(family).to_owned(),
            _ => value.to_owned(),
        };
        if let Some(option) = name.strip_prefix("new_")
            && happening != Happening::Bound
        {
            variables.insert(format!("old_{option}"), value.clone());
        }
        let is_old = happening == Happening::Released && name.starts_with("new_");
        if !is_old {
            variables.insert(name.to_owned(), value);
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use leaseroute_core::{Client, LeaseChange, RawEvent};

    fn change(card: usize, family: Family, happening: Happening) -> LeaseChange {
        let raw = RawEvent::new(
            Client::Dhclient,
            event(card, family, happening, 1_800_000_000),
        );
        let parsed = Client::Dhclient.parse(&raw).unwrap();
        assert!(parsed.dropped.is_empty(), "{:?}", parsed.dropped);
        let event = parsed.event.unwrap();
        assert_eq!(event.interface.as_str(), format!("eth{card}"));
        let [change] = <[_; 1]>::try_from(event.changes).unwrap();
        change
    }

    #[test]
    fn the_leases_are_those_of_the_fabric() {
        for card in [0, 1] {
            let subnet = u8::try_from(card).unwrap();
            for happening in [Happening::Bound, Happening::Renewed] {
                let LeaseChange::Gained4(lease) = change(card, Family::Ipv4, happening) else {
                    panic!("no IPv4 lease gained");
                };
                assert_eq!(lease.address, crate::fabric::ipv4(subnet, 10));
                let LeaseChange::Changed6 { gained, .. } = change(card, Family::Ipv6, happening)
                else {
                    panic!("no IPv6 lease gained");
                };
                assert!(
                    gained
                        .addresses
                        .contains_key(&crate::fabric::ipv6(subnet, 0x10))
                );
            }
        }
    }

    #[test]
    fn a_release_gives_the_address_back() {
        let lost = change(1, Family::Ipv4, Happening::Released);
        assert_eq!(lost, LeaseChange::Lost4(Some(crate::fabric::ipv4(1, 10))));
        let lost = change(1, Family::Ipv6, Happening::Released);
        let LeaseChange::Changed6 { lost_addresses, .. } = lost else {
            panic!("the IPv6 address is not lost");
        };
        assert_eq!(lost_addresses, [crate::fabric::ipv6(1, 0x10)]);
    }
}
