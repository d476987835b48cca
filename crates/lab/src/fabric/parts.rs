//! What the parts of a cloud have in common.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, IfIndex, Mac};
use leaseroute_kernel::topology::{NewAddress, NewRoute, Target, Topology};

use crate::site::{BenchError, Site};

/// The link-local address that the kernel makes from a hardware address (RFC 4291 A).
pub(super) fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.bytes();
    let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    let (first, last) = (word(a ^ 2, b), word(e, f));
    Ipv6Addr::new(0xfe80, 0, 0, 0, first, word(c, 0xff), word(0xfe, d), last)
}

/// An address of the link between the core and a subnet's router: .1 and ::1 are the
/// core's, .2 and ::2 the router's.
pub(super) fn transit4(subnet: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 31, subnet, last)
}

/// As [`transit4`].
pub(super) fn transit6(subnet: u8, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0xc0, subnet.into(), 0, 0, 0, 0, last)
}

/// An address with a prefix length that is known to fit its family.
pub(super) fn network(address: impl Into<IpAddr>, length: u8) -> IpNetwork {
    let address = address.into();
    IpNetwork::new(address, length).unwrap_or_else(|_| address.into())
}

pub(super) fn gateway_route(family: Family, gateway: IpAddr, link: IfIndex) -> NewRoute {
    NewRoute::main(
        family.default_network(),
        Target::Gateway {
            gateway,
            link,
            onlink: false,
        },
    )
}

pub(super) fn default_via(site: &Site, link: IfIndex, gateway: IpAddr) -> Result<(), BenchError> {
    let route = gateway_route(Family::of(gateway), gateway, link);
    site.net(|net| net.add_route(&route))
}

/// Gives a link permanent addresses and sets it up.
pub(super) fn settle(
    site: &Site,
    link: IfIndex,
    addresses: &[IpNetwork],
) -> Result<(), BenchError> {
    site.net(|net: &Topology| {
        net.set_up(link, true)?;
        addresses
            .iter()
            .try_for_each(|address| net.add_address(link, &NewAddress::permanent(*address)))
    })
}

pub(super) fn router(name: &str) -> Result<Site, BenchError> {
    let site = Site::new(name)?;
    site.sysctl([
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        // This sets the default for new links, too.
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/default/accept_dad", "0"),
    ])?;
    Ok(site)
}
