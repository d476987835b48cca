//! The library's messages for what the bench makes. Nothing here talks to the kernel.

use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, IfIndex};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, CacheInfo};
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use super::{NewAddress, NewRoute, NewRule, Target, Verdict, VethEnd};

pub(super) fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::Ipv4 => AddressFamily::Inet,
        Family::Ipv6 => AddressFamily::Inet6,
    }
}

pub(super) fn link_by(link: IfIndex) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = link.get();
    message
}

pub(super) fn link_end(end: &VethEnd<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(end.name.to_string()),
        LinkAttribute::NetNsFd(end.namespace.as_raw_fd()),
    ];
    if let Some(mac) = end.mac {
        message
            .attributes
            .push(LinkAttribute::Address(mac.bytes().to_vec()));
    }
    message
}

pub(super) fn address_message(link: IfIndex, new: &NewAddress) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = address_family(Family::of_network(new.address));
    message.header.prefix_len = new.address.prefix();
    message.header.index = link.get();
    let ip = new.address.ip();
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    if let IpNetwork::V4(network) = new.address
        && network.prefix() < 31
    {
        message
            .attributes
            .push(AddressAttribute::Broadcast(network.broadcast()));
    }
    let mut flags = AddressFlags::empty();
    flags.set(AddressFlags::Nodad, new.nodad);
    flags.set(AddressFlags::Noprefixroute, new.noprefixroute);
    if !flags.is_empty() {
        message.attributes.push(AddressAttribute::Flags(flags));
    }
    if let Some(lifetime) = new.lifetime {
        let mut times = CacheInfo::default();
        times.ifa_valid = lifetime.valid;
        times.ifa_preferred = lifetime.preferred;
        message.attributes.push(AddressAttribute::CacheInfo(times));
    }
    message
}

pub(super) fn route_message(route: &NewRoute) -> RouteMessage {
    let family = Family::of_network(route.destination);
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(family);
    message.header.destination_prefix_length = route.destination.prefix();
    message.header.protocol = route.protocol.get().into();
    message.header.kind = RouteType::Unicast;
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(
        route.destination.network().into(),
    ));
    attributes.push(RouteAttribute::Table(route.table.get()));
    attributes.extend(route.metric.map(RouteAttribute::Priority));
    attributes.extend(route.expires.map(RouteAttribute::Expires));
    match route.target {
        Target::Link(link) => {
            attributes.push(RouteAttribute::Oif(link.get()));
            if family == Family::Ipv4 {
                message.header.scope = RouteScope::Link;
            }
        }
        Target::Gateway {
            gateway,
            link,
            onlink,
        } => {
            attributes.push(RouteAttribute::Gateway(gateway.into()));
            attributes.push(RouteAttribute::Oif(link.get()));
            message.header.flags.set(RouteFlags::Onlink, onlink);
        }
        Target::Unreachable => message.header.kind = RouteType::Unreachable,
        Target::Blackhole => message.header.kind = RouteType::BlackHole,
    }
    message
}

pub(super) fn rule_message(rule: &NewRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = address_family(rule.family);
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.priority));
    attributes.push(RuleAttribute::Protocol(rule.protocol.get().into()));
    if let Some(from) = rule.from {
        message.header.src_len = from.prefix();
        attributes.push(RuleAttribute::Source(from.network()));
    }
    if let Some(to) = rule.to {
        message.header.dst_len = to.prefix();
        attributes.push(RuleAttribute::Destination(to.network()));
    }
    attributes.extend(
        rule.iif
            .as_ref()
            .map(|name| RuleAttribute::Iifname(name.to_string())),
    );
    attributes.extend(
        rule.oif
            .as_ref()
            .map(|name| RuleAttribute::Oifname(name.to_string())),
    );
    message.header.action = match rule.verdict {
        Verdict::Lookup(table) => {
            attributes.push(RuleAttribute::Table(table.get()));
            RuleAction::ToTable
        }
        Verdict::LookupLonger(table, length) => {
            attributes.push(RuleAttribute::Table(table.get()));
            attributes.push(RuleAttribute::SuppressPrefixLen(length));
            RuleAction::ToTable
        }
        Verdict::Unreachable => RuleAction::Unreachable,
        Verdict::Blackhole => RuleAction::Blackhole,
    };
    message
}

pub(super) fn proxy_message(link: IfIndex, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = address_family(Family::of(address));
    message.header.ifindex = link.get();
    message.header.state = NeighbourState::Permanent;
    message.header.flags = NeighbourFlags::Proxy;
    message
        .attributes
        .push(NeighbourAttribute::Destination(address.into()));
    message
}
