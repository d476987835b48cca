//! Whether what a service says of a card can be true yet.

use leaseroute_core::{Family, Said};
use thiserror::Error;

use crate::card::Card;
use crate::provider::Description;

/// What was found out of one card in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The service knows the card, and what it says fits what the card shows.
    Known(Said),
    /// The service knows the card, and that it has nothing of the family.
    Absent,
    /// Nothing that could be believed. What was known before stays.
    Unknown(Why),
}

/// Why something could not be found out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Why {
    /// The service does not list the card's hardware address.
    #[error("the service does not know the card yet")]
    NotListed,
    /// The card has an address that the service does not tell of: not propagated yet, or the data of
    /// the card that was there before.
    #[error("the card has {0}, of which the service does not tell yet")]
    Contradiction(std::net::IpAddr),
    /// The card has no address of either family yet, so that nothing can be compared.
    #[error("the card has no address yet")]
    NoAddress,
    /// The service takes a second card for the first one.
    #[error("the service tells of this card as of the host's first one, which is another")]
    NotFirst,
    /// What the service listed it then did not have: not propagated yet.
    #[error("the service lists {0} and does not have it")]
    Vanished(String),
    /// An answer that cannot be read.
    #[error("the answer to {path} cannot be read: {why}")]
    Unreadable {
        /// What was asked.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A refusal.
    #[error("{path} was refused with status {status}")]
    Refused {
        /// What was asked.
        path: String,
        /// The HTTP status.
        status: u16,
    },
    /// The service tells nothing about cards in this family. Asking again is of no use.
    #[error("this service does not tell")]
    NotTold,
    /// Nobody answered, or not in time, or too much.
    #[error("the service could not be asked: {0}")]
    Unreachable(String),
}

impl Why {
    /// Whether asking again may help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::NotTold)
    }
}

/// What was found out of one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// In IPv4.
    pub ipv4: Finding,
    /// In IPv6.
    pub ipv6: Finding,
}

impl Findings {
    /// Nothing in either family.
    #[must_use]
    pub fn unknown(why: Why) -> Self {
        Self {
            ipv4: Finding::Unknown(why.clone()),
            ipv6: Finding::Unknown(why),
        }
    }

    /// One family's.
    #[must_use]
    pub fn of(&self, family: Family) -> &Finding {
        match family {
            Family::Ipv4 => &self.ipv4,
            Family::Ipv6 => &self.ipv6,
        }
    }

    /// Whether nothing is left that asking again could find out.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_open =
            |finding: &Finding| matches!(finding, Finding::Unknown(why) if why.may_pass());
        !is_open(&self.ipv4) && !is_open(&self.ipv6)
    }
}

/// Holds a description against what the card shows.
#[must_use]
pub fn judge(description: Description, card: &Card) -> Findings {
    Findings {
        ipv4: judge_family(description.ipv4, card, Family::Ipv4),
        ipv6: judge_family(description.ipv6, card, Family::Ipv6),
    }
}

/// `None` in the description: the service does not tell of the family.
fn judge_family(said: Option<Said>, card: &Card, family: Family) -> Finding {
    let Some(said) = said else {
        return Finding::Unknown(Why::NotTold);
    };
    let is_bare = Family::BOTH.map(|family| card.addresses(family).next()) == [None, None];
    if is_bare && !said.is_unserved {
        return Finding::Unknown(Why::NoAddress);
    }
    if let Some(address) = contradiction(&said, card, family) {
        return Finding::Unknown(Why::Contradiction(address));
    }
    if said.is_empty() {
        Finding::Absent
    } else {
        Finding::Known(said)
    }
}

/// An address of the card that cannot be if the service knows all of it.
fn contradiction(said: &Said, card: &Card, family: Family) -> Option<std::net::IpAddr> {
    let is_told = |address: &std::net::IpAddr| {
        said.addresses.contains(address) || said.prefixes.iter().any(|p| p.contains(*address))
    };
    let mut leased = card.leased.iter().filter(|a| Family::of(**a) == family);
    if let Some(missing) = leased.find(|address| !is_told(address)) {
        return Some(*missing);
    }
    // What a card made of a router's prefix no service lists by itself, but the prefix.
    let mut made = card.made.iter().filter(|a| Family::of(**a) == family);
    let missing =
        made.find(|a| !is_told(a) && !said.subnets.iter().any(|subnet| subnet.contains(**a)));
    if let Some(missing) = missing {
        return Some(*missing);
    }
    // Permanent addresses are the administrator's; only when none of all is told it is another
    // card's data.
    let mut all = card.addresses(family).peekable();
    let first = all.peek().copied();
    first.filter(|_| !all.any(|a| is_told(&a) || said.subnets.iter().any(|s| s.contains(a))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use leaseroute_core::{IfIndex, Mac};

    use super::*;

    fn set(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn card(leased: &[&str], made: &[&str], permanent: &[&str]) -> Card {
        Card {
            index: IfIndex::new(3).unwrap(),
            name: "eth1".parse().unwrap(),
            mac: Mac::new([2, 0, 0x5e, 0x10, 0, 1]),
            leased: set(leased),
            made: set(made),
            permanent: set(permanent),
        }
    }

    fn said(addresses: &[&str], subnets: &[&str], prefixes: &[&str]) -> Option<Said> {
        Some(Said {
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            subnets: subnets.iter().map(|n| n.parse().unwrap()).collect(),
            prefixes: prefixes.iter().map(|n| n.parse().unwrap()).collect(),
            gateway: None,
            ..Said::default()
        })
    }

    fn judged(ipv4: Option<Said>, ipv6: Option<Said>, card: &Card) -> Findings {
        judge(Description { ipv4, ipv6 }, card)
    }

    fn contradicts(finding: &Finding, address: &str) -> bool {
        *finding == Finding::Unknown(Why::Contradiction(address.parse().unwrap()))
    }

    const NONE: &[&str] = &[];

    #[test]
    fn a_leased_address_that_is_not_told_is_another_cards_data() {
        let card = card(&["10.0.4.17"], &[], &[]);
        let found = judged(
            said(&["10.0.4.99"], &["10.0.4.0/24"], &[]),
            said(NONE, &[], &[]),
            &card,
        );
        assert!(contradicts(&found.ipv4, "10.0.4.17"));
        // The subnet is no proof: the card before had the same.
        assert_eq!(found.ipv6, Finding::Absent);
        assert!(!found.is_complete());
    }

    #[test]
    fn one_leased_address_of_several_that_is_not_told_is_enough() {
        let card = card(&["10.0.4.17", "10.0.4.18"], &[], &[]);
        let found = judged(said(&["10.0.4.17"], &[], &[]), None, &card);
        assert!(contradicts(&found.ipv4, "10.0.4.18"));
    }

    #[test]
    fn an_ipv6_lease_without_any_ipv6_told_is_not_propagated() {
        let card = card(&["10.0.4.17", "2001:db8::5"], &[], &[]);
        let ipv4 = said(&["10.0.4.17", "10.0.4.80"], &[], &[]);
        let found = judged(ipv4.clone(), said(NONE, &[], &[]), &card);
        // One family does not hold up the other.
        assert_eq!(found.ipv4, Finding::Known(ipv4.unwrap()));
        assert!(contradicts(&found.ipv6, "2001:db8::5"));
        assert!(!found.is_complete());
    }

    #[test]
    fn an_address_made_of_a_router_s_prefix_needs_address_subnet_or_prefix() {
        let card = card(&[], &["2001:db8:1::a:b"], &[]);
        let of = |ipv6| judged(None, ipv6, &card).ipv6;
        assert!(contradicts(&of(said(NONE, &[], &[])), "2001:db8:1::a:b"));
        let elsewhere = said(&["2001:db8:2::1"], &["2001:db8:2::/64"], &[]);
        assert!(contradicts(&of(elsewhere), "2001:db8:1::a:b"));
        for fits in [
            said(&["2001:db8:1::a:b"], &[], &[]),
            said(&["2001:db8:1::1"], &["2001:db8:1::/64"], &[]),
            said(NONE, &[], &["2001:db8:1::/64"]),
        ] {
            assert_eq!(of(fits.clone()), Finding::Known(fits.unwrap()));
        }
    }

    #[test]
    fn a_subnet_that_is_told_does_not_stand_for_a_leased_address() {
        let card = card(&["2001:db8:1::5"], &[], &[]);
        let found = judged(
            None,
            said(&["2001:db8:1::6"], &["2001:db8:1::/64"], &[]),
            &card,
        );
        assert!(contradicts(&found.ipv6, "2001:db8:1::5"));
    }

    #[test]
    fn an_address_that_is_told_and_not_on_the_card_yet_is_fine() {
        let card = card(&["10.0.4.17"], &[], &[]);
        let ipv6 = said(&["2001:db8::5"], &["2001:db8::/64"], &[]);
        let found = judged(said(&["10.0.4.17"], &[], &[]), ipv6.clone(), &card);
        assert_eq!(found.ipv6, Finding::Known(ipv6.unwrap()));
        assert!(found.is_complete());
    }

    #[test]
    fn a_card_without_any_address_waits_for_one_unless_nobody_gives_it_any() {
        let ipv4 = said(&["10.0.4.3"], &["10.0.4.0/24"], &[]);
        let bare = card(&[], &[], &[]);
        let found = judged(ipv4.clone(), said(NONE, &[], &[]), &bare);
        assert_eq!(found, Findings::unknown(Why::NoAddress));
        let unserved = |said: Option<Said>| {
            said.map(|said| Said {
                is_unserved: true,
                ..said
            })
        };
        let ipv4 = unserved(ipv4);
        let found = judged(ipv4.clone(), unserved(said(NONE, &[], &[])), &bare);
        assert_eq!(found.ipv4, Finding::Known(ipv4.unwrap()));
        assert_eq!(found.ipv6, Finding::Absent);
    }

    #[test]
    fn of_a_static_card_one_address_that_is_told_is_enough() {
        let card = card(&[], &[], &["10.0.4.3", "10.0.4.44", "192.168.7.7"]);
        let ipv4 = said(&["10.0.4.3"], &[], &[]);
        assert_eq!(
            judged(ipv4.clone(), None, &card).ipv4,
            Finding::Known(ipv4.unwrap())
        );
    }

    #[test]
    fn of_a_static_card_no_address_that_is_told_is_another_cards_data() {
        let card = card(&[], &[], &["10.0.4.3"]);
        assert!(contradicts(
            &judged(said(&["10.0.9.9"], &[], &[]), None, &card).ipv4,
            "10.0.4.3"
        ));
        assert!(contradicts(
            &judged(said(NONE, &[], &[]), None, &card).ipv4,
            "10.0.4.3"
        ));
    }

    #[test]
    fn what_an_administrator_added_beside_the_lease_needs_no_telling() {
        let card = card(&["10.0.4.17"], &[], &["192.168.7.7"]);
        let ipv4 = said(&["10.0.4.17"], &[], &[]);
        assert_eq!(
            judged(ipv4.clone(), None, &card).ipv4,
            Finding::Known(ipv4.unwrap())
        );
    }

    #[test]
    fn an_address_within_a_delegated_prefix_is_told() {
        let card = card(&["10.0.4.17", "10.0.4.33"], &[], &[]);
        let ipv4 = said(&["10.0.4.17"], &[], &["10.0.4.32/28"]);
        let found = judged(ipv4.clone(), said(NONE, &[], &["2001:db8:a::/80"]), &card);
        assert_eq!(found.ipv4, Finding::Known(ipv4.unwrap()));
        // A prefix alone is something, with no address on the card to hold it against.
        assert!(matches!(found.ipv6, Finding::Known(_)));
    }

    #[test]
    fn a_family_that_is_not_told_is_never_absent_and_never_asked_again() {
        let found = judged(None, None, &card(&["10.0.4.17"], &[], &[]));
        assert_eq!(found.ipv4, Finding::Unknown(Why::NotTold));
        assert_eq!(found.ipv6, Finding::Unknown(Why::NotTold));
        assert!(found.is_complete());
    }

    #[test]
    fn only_what_asking_again_can_change_is_open() {
        assert!(!Findings::unknown(Why::NotListed).is_complete());
        assert!(!Findings::unknown(Why::Unreachable("no route".to_owned())).is_complete());
        assert!(Findings::unknown(Why::NotTold).is_complete());
    }
}
