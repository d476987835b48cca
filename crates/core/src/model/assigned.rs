//! Addresses that a metadata service says a card has and that nobody put there: secondary
//! ones, and all of a card that no DHCP server serves.
//!
//! They carry our tag (`IFA_PROTO`), and only those that do are ever removed. A secondary
//! address has no on-link prefix of its own: that is the primary one's, and in IPv6 the router's
//! to tell (RFC 5942).

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::address::Family;
use crate::host::{AddressFlags, Host, Link, LinkAddress};
use crate::lease::Lease;
use crate::metadata::Said;
use crate::model::{Inputs, Purpose, uplink};
use crate::plan::Address;
use crate::settings::ProviderChoice;

/// The addresses to have on cards, as the configuration wants it.
pub(super) fn wanted(inputs: Inputs<'_>) -> Vec<(Address, Purpose)> {
    let links = inputs.host.links.values();
    let wanted = links.flat_map(|link| {
        let addresses = wanted_on(inputs, link).into_iter();
        addresses.map(|address| {
            let device = link.device();
            (Address { device, address }, Purpose::Assigned)
        })
    });
    wanted.collect()
}

/// The host as it is once the addresses of ours are as they should be. `None`: as it is now.
pub(super) fn settled(
    inputs: Inputs<'_>,
    wanted: &[(Address, Purpose)],
    kept: &[LinkAddress],
) -> Option<Host> {
    let Inputs {
        family,
        host,
        settings,
        ..
    } = inputs;
    let stays = |seen: &LinkAddress| {
        !settings.owns_address(seen)
            || Family::of_network(seen.address) != family
            || kept.contains(seen)
            || wanted.iter().any(|(address, _)| address.is_met_by(seen))
    };
    let missing = wanted.iter().map(|(address, _)| address).filter(|address| {
        let mut seen = host.addresses.iter();
        !seen.any(|seen| address.is_met_by(seen))
    });
    let missing: Vec<LinkAddress> = missing
        .map(|address| LinkAddress {
            index: address.device.index,
            address: address.address,
            peer: None,
            flags: AddressFlags {
                permanent: true,
                ..AddressFlags::default()
            },
            protocol: Some(settings.protocol),
        })
        .collect();
    if missing.is_empty() && host.addresses.iter().all(stays) {
        return None;
    }
    let mut settled = host.clone();
    settled.addresses.retain(stays);
    settled.addresses.extend(missing);
    Some(settled)
}

/// Those to have on one card.
fn wanted_on(inputs: Inputs<'_>, link: &Link) -> Vec<IpNetwork> {
    let Inputs {
        family,
        host,
        book,
        settings,
    } = inputs;
    let known = book.said(link.index, family, &settings.metadata);
    let Some(known) = known.filter(|_| settings.metadata.assign_addresses) else {
        return Vec::new();
    };
    if !settings.of(link).manage || uplink::unusable(host, link).is_some() {
        return Vec::new();
    }
    let said = &known.said;
    let primary = said.addresses.first();
    let is_leased = |address: IpAddr| match (address, book.lease(link.index, family)) {
        (IpAddr::V4(address), Some(Lease::Ipv4(lease))) => {
            lease.address == address || lease.others.contains(&address)
        }
        (IpAddr::V6(address), Some(Lease::Ipv6(lease))) => lease.addresses.contains_key(&address),
        (_, _) => false,
    };
    // A card whose own address its client has taken off, or not got yet, gets none of us: what
    // a client finds there it may refuse. An address that somebody else has set besides, or to
    // which the client gives no end, is no sign of a lease but as the primary one.
    let has_own = host.addresses_of(link.index, family).any(|seen| {
        let address = seen.address.ip();
        let is_primary = family == Family::Ipv4 && primary == Some(&address);
        !settings.owns_address(seen)
            && !seen.flags.dad_failed
            && !seen.flags.announced
            && said.addresses.contains(&address)
            && (is_primary || !seen.flags.permanent || is_leased(address))
    });
    let is_unserved = said.is_unserved && book.get(link.index, family).is_none() && !has_own;
    if !has_own && !is_unserved {
        return Vec::new();
    }
    let is_foreign = |address: IpAddr| {
        host.addresses
            .iter()
            .any(|seen| seen.address.ip() == address && !settings.owns_address(seen))
    };
    let is_possible = |address: IpAddr| may_have(inputs, link, said, address);
    let is_clients = |address: IpAddr| {
        let is_primary = family == Family::Ipv4 && primary == Some(&address);
        !is_unserved && (is_primary || is_leased(address))
    };
    let mut addresses = said.addresses.iter().copied();
    let mut wanted = Vec::new();
    if is_unserved
        && family == Family::Ipv4
        && let Some(first) = addresses.next()
        && !is_foreign(first)
        && is_possible(first)
    {
        wanted.extend(IpNetwork::new(first, length(inputs, link, said, first)).ok());
    }
    let others = addresses
        .filter(|address| !is_foreign(*address) && !is_clients(*address) && is_possible(*address));
    wanted.extend(others.map(IpNetwork::from));
    wanted
}

/// Whether a card may be given an address: one that is no router's that is known, no edge of a
/// network, in no network of another interface, and said of no other card.
fn may_have(inputs: Inputs<'_>, link: &Link, said: &Said, address: IpAddr) -> bool {
    let Inputs {
        family, host, book, ..
    } = inputs;
    let networks = |own: bool| {
        let addresses = host.addresses.iter().filter(move |seen| {
            (seen.index == link.index) == own && Family::of_network(seen.address) == family
        });
        addresses.filter_map(|seen| uplink::on_link_prefix(seen, None))
    };
    let is_own = networks(true).any(|network| network.contains(address));
    let routers = host.main.iter().chain(&host.own_tables);
    let mut routers = routers
        .filter_map(|route| route.gateway)
        .chain(said.gateway);
    let is_leased_router = host.links.keys().any(|index| {
        let lease = book.lease4(*index);
        lease.is_some_and(|lease| lease.router.map(IpAddr::V4) == Some(address))
    });
    let is_edge = networks(true)
        .chain(said.subnets.iter().copied())
        .any(|network| uplink::is_edge(network, address));
    let is_elsewhere = !is_own && networks(false).any(|network| network.contains(address));
    let is_of_two = book
        .metadata()
        .any(|known| known.index != link.index && known.said.addresses.contains(&address));
    let is_reserved = matches!(address, IpAddr::V4(a) if a.octets().first() >= Some(&240));
    !is_leased_router
        && !is_edge
        && !is_elsewhere
        && !is_of_two
        && !is_reserved
        && !routers.any(|router| router == address)
}

/// The length of the subnet that an address is in, or its own where another interface has a
/// network in that subnet.
fn length(inputs: Inputs<'_>, link: &Link, said: &Said, address: IpAddr) -> u8 {
    let is_free = |subnet: &&IpNetwork| {
        let mut others = inputs.host.addresses.iter();
        !others.any(|seen| seen.index != link.index && subnet.contains(seen.address.ip()))
    };
    let subnets = said
        .subnets
        .iter()
        .filter(|subnet| subnet.contains(address));
    let length = subnets.filter(is_free).map(|subnet| subnet.prefix()).max();
    length.unwrap_or(Family::of(address).host_length())
}

/// Addresses of ours on cards of which nobody could find out, and on those that are down,
/// where nothing can be said.
pub(super) fn kept(inputs: Inputs<'_>) -> Vec<LinkAddress> {
    let Inputs {
        family,
        host,
        book,
        settings,
    } = inputs;
    let is_kept = |seen: &&LinkAddress| {
        let Some(link) = host.links.get(&seen.index) else {
            return false;
        };
        settings.metadata.assign_addresses
            && settings.of(link).manage
            && settings.metadata.provider != ProviderChoice::None
            && (book.said(link.index, family, &settings.metadata).is_none() || !link.up)
    };
    let ours = host
        .addresses
        .iter()
        .filter(|seen| Family::of_network(seen.address) == family && settings.owns_address(seen));
    ours.filter(is_kept).cloned().collect()
}
