//! Between the library's netlink messages and core's types, in both directions.
//!
//! Beside `topology`, which only builds benches, the one file that knows
//! `netlink-packet-route`. Attributes are decoded one by one and only those that matter:
//! an attribute that the library cannot read (a newer kernel's, a name that is not UTF-8)
//! must not hide the link, rule or route it belongs to. Such a rule or route counts as
//! having something that ours never have. Numbers follow linux/if_link.h,
//! linux/if_addr.h, linux/rtnetlink.h and linux/fib_rules.h.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use leaseroute_core::{
    Address, AddressFlags, Family, IfIndex, InterfaceName, Link, LinkAddress, Mac, ObservedRoute,
    ObservedRule, Priority, ProtocolId, RawRule, Route, RouteKind, RouterPreference, Rule,
    RuleAction, Selector, TableId,
};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkBuffer, NetlinkSerializable as _, NlaBuffer, NlasIterator, Parseable as _,
    ParseableParametrized as _, parse_string, parse_u32,
};
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags as KernelAddressFlags, AddressHeader, AddressMessage,
};
use rtnetlink::packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkHeader, LinkLayerType, LinkMessage,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteLwEnCapType, RouteMessage,
    RouteMetric, RouteNextHop, RouteNextHopFlags, RoutePreference, RouteProtocol, RouteScope,
    RouteType, RouteVia,
};
use rtnetlink::packet_route::rule::{
    RuleAction as KernelAction, RuleAttribute, RuleFlags, RuleHeader, RuleMessage,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::announce::RouteKey;
use crate::channel::Request;
use crate::netlink::ReplyPath;

const LINK_HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
const RULE_HEADER: usize = 12;
const NETLINK_HEADER: usize = 16;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_NEWPREFIX: u16 = 52;

/// Stands for "see the attribute".
const RT_TABLE_COMPAT: u8 = 252;
const RTA_TABLE: u16 = 15;
const RTA_GATEWAY: u16 = 5;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;

/// How a route goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    /// Beside what is there; a repeat is refused.
    Add,
    /// In the place of what has the same key.
    Replace,
}

/// Which routes a dump shall hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteFilter {
    pub(crate) family: Family,
    pub(crate) table: TableId,
    /// Only unicast routes by this interface.
    pub(crate) oif: Option<IfIndex>,
}

// ---- Requests ----

/// All links, without their counters.
pub(crate) fn links_request() -> Request {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    encode(&RouteNetlinkMessage::GetLink(message), NLM_F_DUMP)
}

/// All addresses of a family.
pub(crate) fn addresses_request(family: Family) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = wire(family);
    encode(&RouteNetlinkMessage::GetAddress(message), NLM_F_DUMP)
}

/// All rules of a family.
pub(crate) fn rules_request(family: Family) -> Request {
    let mut message = RuleMessage::default();
    message.header.family = wire(family);
    encode(&RouteNetlinkMessage::GetRule(message), NLM_F_DUMP)
}

/// Some routes of one table.
pub(crate) fn routes_request(filter: RouteFilter) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = wire(filter.family);
    set_table(&mut message, filter.table);
    if let Some(oif) = filter.oif {
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Oif(oif.get()));
    }
    encode(&RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)
}

/// The way a packet with these addresses would take, as `ip route get` asks for it.
pub(crate) fn reply_path_request(
    source: IpAddr,
    destination: IpAddr,
    oif: Option<IfIndex>,
) -> Request {
    let family = Family::of(destination);
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: wire(family),
        destination_prefix_length: family.host_length(),
        source_prefix_length: family.host_length(),
        // Else the answer for IPv4 names table main, whichever was used. IPv6 names the
        // right one, and refuses the flag (net/ipv6/route.c, strict checks).
        flags: match family {
            Family::Ipv4 => RouteFlags::LookupTable,
            Family::Ipv6 => RouteFlags::empty(),
        },
        ..RouteHeader::default()
    };
    message.attributes = vec![
        RouteAttribute::Destination(destination.into()),
        RouteAttribute::Source(source.into()),
    ];
    message
        .attributes
        .extend(oif.map(|oif| RouteAttribute::Oif(oif.get())));
    encode(&RouteNetlinkMessage::GetRoute(message), 0)
}

/// A route of ours. IPv6 routes of one prefix and metric stay side by side, as two
/// routers of equal rank must.
pub(crate) fn route_request(route: &Route, protocol: ProtocolId, placing: Placing) -> Request {
    let family = route.family();
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: wire(family),
        destination_prefix_length: route.destination.prefix(),
        protocol: RouteProtocol::from(protocol.get()),
        scope: match (family, route.gateway) {
            (Family::Ipv4, None) => RouteScope::Link,
            (Family::Ipv4, Some(_)) | (Family::Ipv6, _) => RouteScope::Universe,
        },
        kind: RouteType::Unicast,
        flags: if route.onlink {
            RouteFlags::Onlink
        } else {
            RouteFlags::empty()
        },
        ..RouteHeader::default()
    };
    set_table(&mut message, route.table);
    set_key(&mut message, route.destination, route.metric);
    message
        .attributes
        .extend(route.gateway.map(|gateway| next_hop(family, gateway)));
    message
        .attributes
        .push(RouteAttribute::Oif(route.device.index.get()));
    if let Some(mtu) = route.mtu {
        message
            .attributes
            .push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
    }
    let preference = match (family, route.preference) {
        (Family::Ipv4, _) | (Family::Ipv6, RouterPreference::Medium) => None,
        (Family::Ipv6, RouterPreference::Low) => Some(RoutePreference::Low),
        (Family::Ipv6, RouterPreference::High) => Some(RoutePreference::High),
    };
    message
        .attributes
        .extend(preference.map(RouteAttribute::Preference));
    let flags = match (placing, family) {
        (Placing::Add, Family::Ipv4) => NLM_F_CREATE | NLM_F_EXCL,
        (Placing::Add, Family::Ipv6) => NLM_F_CREATE | NLM_F_APPEND,
        (Placing::Replace, _) => NLM_F_CREATE | NLM_F_REPLACE,
    };
    encode(&RouteNetlinkMessage::NewRoute(message), flags | NLM_F_ACK)
}

/// The end of a route that the kernel showed.
pub(crate) fn route_removal(route: &ObservedRoute) -> Request {
    let family = route.family();
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: wire(family),
        destination_prefix_length: route.destination.prefix(),
        protocol: RouteProtocol::from(route.protocol.get()),
        // Any scope.
        scope: RouteScope::NoWhere,
        kind: match route.kind {
            RouteKind::Unicast => RouteType::Unicast,
            RouteKind::Other(kind) => RouteType::from(kind),
        },
        ..RouteHeader::default()
    };
    set_table(&mut message, route.table);
    set_key(&mut message, route.destination, route.metric);
    message
        .attributes
        .extend(route.gateway.map(|gateway| next_hop(family, gateway)));
    message
        .attributes
        .extend(route.oif.map(|oif| RouteAttribute::Oif(oif.get())));
    encode(&RouteNetlinkMessage::DelRoute(message), NLM_F_ACK)
}

/// A rule of ours. It always has a priority, an action and a tag: without a priority the
/// kernel never says "exists", without an action the rule does nothing.
pub(crate) fn rule_request(rule: &Rule, protocol: ProtocolId) -> Request {
    let mut message = RuleMessage::default();
    message.header = RuleHeader {
        family: wire(rule.family),
        action: KernelAction::ToTable,
        table: short_table(rule.table),
        ..RuleHeader::default()
    };
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority.get()),
        RuleAttribute::Table(rule.table.get()),
        RuleAttribute::Protocol(RouteProtocol::from(protocol.get())),
    ];
    match &rule.selector {
        Selector::All => {}
        Selector::From(source) => {
            message.header.src_len = source.prefix();
            message.attributes.push(RuleAttribute::Source(source.ip()));
        }
        Selector::Oif(name) => {
            message
                .attributes
                .push(RuleAttribute::Oifname(name.as_str().to_owned()));
        }
    }
    if let Some(length) = rule.suppress_prefix_length {
        message
            .attributes
            .push(RuleAttribute::SuppressPrefixLen(length.into()));
    }
    encode(
        &RouteNetlinkMessage::NewRule(message),
        NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK,
    )
}

/// The end of a rule that the kernel showed: by the very bytes it was dumped with, and
/// by its attributes only when it was read from a file.
pub(crate) fn rule_removal(rule: &ObservedRule) -> Request {
    let RawRule(raw) = &rule.raw;
    if !raw.is_empty() {
        let kind = RouteNetlinkMessage::DelRule(RuleMessage::default()).message_type();
        return frame(kind, NLM_F_ACK, raw.len(), |body| body.copy_from_slice(raw));
    }
    let mut message = RuleMessage::default();
    message.header = RuleHeader {
        family: wire(rule.family),
        dst_len: rule.to.map_or(0, |to| to.prefix()),
        src_len: rule.from.map_or(0, |from| from.prefix()),
        table: short_table(rule.table),
        action: match rule.action {
            RuleAction::Lookup => KernelAction::ToTable,
            RuleAction::Other(action) => KernelAction::from(action),
        },
        flags: if rule.inverted {
            RuleFlags::Invert
        } else {
            RuleFlags::empty()
        },
        ..RuleHeader::default()
    };
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.priority.get()));
    attributes.push(RuleAttribute::Table(rule.table.get()));
    attributes.push(RuleAttribute::Protocol(RouteProtocol::from(
        rule.protocol.get(),
    )));
    attributes.extend(rule.from.map(|from| RuleAttribute::Source(from.ip())));
    attributes.extend(rule.to.map(|to| RuleAttribute::Destination(to.ip())));
    attributes.extend(rule.iif.clone().map(RuleAttribute::Iifname));
    attributes.extend(rule.oif.clone().map(RuleAttribute::Oifname));
    if let Some((mark, mask)) = rule.mark {
        attributes.push(RuleAttribute::FwMark(mark));
        attributes.push(RuleAttribute::FwMask(mask));
    }
    let length = rule.suppress_prefix_length;
    attributes.extend(length.map(|length| RuleAttribute::SuppressPrefixLen(length.into())));
    encode(&RouteNetlinkMessage::DelRule(message), NLM_F_ACK)
}

/// Puts an address on a link, without the route of its prefix in table main, where it would
/// compete with those of other cards. IPv4 wants the broadcast address of a prefix told.
pub(crate) fn address_request(address: &Address, protocol: ProtocolId) -> Request {
    let mut message = address_message(address);
    message
        .attributes
        .push(AddressAttribute::Protocol(protocol.get().into()));
    message
        .attributes
        .push(AddressAttribute::Flags(KernelAddressFlags::Noprefixroute));
    if let IpNetwork::V4(network) = address.address
        && network.prefix() < 31
    {
        let broadcast = AddressAttribute::Broadcast(network.broadcast());
        message.attributes.push(broadcast);
    }
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    encode(&RouteNetlinkMessage::NewAddress(message), flags)
}

/// Takes an address off a link.
pub(crate) fn address_removal(address: &Address) -> Request {
    let message = address_message(address);
    encode(&RouteNetlinkMessage::DelAddress(message), NLM_F_ACK)
}

fn address_message(address: &Address) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = wire(Family::of_network(address.address));
    message.header.prefix_len = address.address.prefix();
    message.header.index = address.device.index.get();
    let ip = address.address.ip();
    message.attributes.push(AddressAttribute::Local(ip));
    message.attributes.push(AddressAttribute::Address(ip));
    message
}

fn wire(family: Family) -> AddressFamily {
    match family {
        Family::Ipv4 => AddressFamily::Inet,
        Family::Ipv6 => AddressFamily::Inet6,
    }
}

/// Tables above 255 do not fit the header, where 0 then stands for "see the attribute".
fn short_table(table: TableId) -> u8 {
    u8::try_from(table.get()).unwrap_or(RouteHeader::RT_TABLE_UNSPEC)
}

fn set_table(message: &mut RouteMessage, table: TableId) {
    message.header.table = short_table(table);
    message.attributes.push(RouteAttribute::Table(table.get()));
}

fn set_key(message: &mut RouteMessage, destination: IpNetwork, metric: u32) {
    if destination.prefix() > 0 {
        message
            .attributes
            .push(RouteAttribute::Destination(destination.ip().into()));
    }
    if metric > 0 {
        message.attributes.push(RouteAttribute::Priority(metric));
    }
}

/// A next hop of the route's own family, or an IPv6 one of an IPv4 route (RFC 5549).
fn next_hop(family: Family, gateway: IpAddr) -> RouteAttribute {
    if Family::of(gateway) == family {
        RouteAttribute::Gateway(gateway.into())
    } else {
        RouteAttribute::Via(gateway.into())
    }
}

fn encode(message: &RouteNetlinkMessage, flags: u16) -> Request {
    let length = message.buffer_len();
    frame(message.message_type(), flags, length, |body| {
        message.serialize(body)
    })
}

/// A netlink message from its body.
fn frame(kind: u16, flags: u16, length: usize, fill: impl FnOnce(&mut [u8])) -> Request {
    let total = NETLINK_HEADER.saturating_add(length);
    let mut bytes = vec![0; total];
    let mut header = NetlinkBuffer::new(bytes.as_mut_slice());
    header.set_length(u32::try_from(total).unwrap_or(u32::MAX));
    header.set_message_type(kind);
    header.set_flags(NLM_F_REQUEST | flags);
    fill(header.payload_mut());
    Request(bytes)
}

// ---- Announcements ----

/// What an announcement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcing {
    Link,
    Address,
    Route,
    Rule,
    /// A prefix that a router advertised.
    Prefix,
}

/// What a message is about by its type, and whether that is gone.
pub(crate) fn announcing(message_type: u16) -> Option<(Announcing, bool)> {
    match message_type {
        RTM_NEWLINK => Some((Announcing::Link, false)),
        RTM_DELLINK => Some((Announcing::Link, true)),
        RTM_NEWADDR => Some((Announcing::Address, false)),
        RTM_DELADDR => Some((Announcing::Address, true)),
        RTM_NEWROUTE => Some((Announcing::Route, false)),
        RTM_DELROUTE => Some((Announcing::Route, true)),
        RTM_NEWRULE => Some((Announcing::Rule, false)),
        RTM_DELRULE => Some((Announcing::Rule, true)),
        RTM_NEWPREFIX => Some((Announcing::Prefix, false)),
        _ => None,
    }
}

/// Whether a link's message is about the link and not about its part in a bridge.
pub(crate) fn is_of_link_itself(body: &[u8]) -> bool {
    LinkHeader::parse(body).is_ok_and(|header| header.interface_family == AddressFamily::Unspec)
}

/// The link that a message is about.
pub(crate) fn link_index(body: &[u8]) -> Option<IfIndex> {
    IfIndex::new(LinkHeader::parse(body).ok()?.index)
}

/// The link on which a prefix was advertised (`struct prefixmsg` in linux/rtnetlink.h).
pub(crate) fn prefix_link(body: &[u8]) -> Option<IfIndex> {
    IfIndex::new(parse_u32(body.get(4..8)?).ok()?)
}

/// What can be told of a route cheaply.
pub(crate) fn route_key(body: &[u8]) -> Option<RouteKey> {
    let header = RouteHeader::parse(body).ok()?;
    let family = Family::BOTH
        .into_iter()
        .find(|family| header.address_family == wire(*family))?;
    let table = match header.table {
        RouteHeader::RT_TABLE_UNSPEC | RT_TABLE_COMPAT => attributes(body, ROUTE_HEADER)
            .find(|attribute| attribute.kind() == RTA_TABLE)
            .and_then(|attribute| parse_u32(attribute.value()).ok())?,
        table => table.into(),
    };
    Some(RouteKey {
        family,
        table: TableId::observed(table),
        protocol: ProtocolId::observed(header.protocol.into()),
        is_default: header.destination_prefix_length == 0,
        has_gateway: attributes(body, ROUTE_HEADER)
            .any(|attribute| attribute.kind() == RTA_GATEWAY),
    })
}

/// Whether a route of table main may be one that connects an IPv6 interface, by a look at
/// its headers.
pub(crate) fn may_connect6(body: &[u8]) -> bool {
    RouteHeader::parse(body).is_ok_and(|header| {
        header.destination_prefix_length == 0
            || header.protocol == RouteProtocol::Ra
            || attributes(body, ROUTE_HEADER).all(|attribute| attribute.kind() != RTA_GATEWAY)
    })
}

// ---- Answers ----

/// The attributes behind a header, up to the first that is cut short.
fn attributes(body: &[u8], header: usize) -> impl Iterator<Item = NlaBuffer<&[u8]>> {
    NlasIterator::new(body.get(header..).unwrap_or_default()).map_while(Result::ok)
}

/// A link; `None` when its name is none that an interface of ours can have.
pub(crate) fn link(body: &[u8]) -> Option<Link> {
    let header = LinkHeader::parse(body).ok()?;
    let mut name = None;
    let mut link_address = None;
    let mut mtu = 0;
    let mut master = None;
    let mut kind = None;
    let mut alternative_names = Vec::new();
    for attribute in attributes(body, LINK_HEADER) {
        let value = attribute.value();
        match attribute.kind() {
            IFLA_IFNAME => name = parse_string(value).ok(),
            IFLA_ADDRESS => link_address = <[u8; 6]>::try_from(value).ok(),
            IFLA_MTU => mtu = parse_u32(value).unwrap_or_default(),
            IFLA_MASTER => master = parse_u32(value).ok().and_then(IfIndex::new),
            IFLA_LINKINFO => {
                kind = attributes(value, 0)
                    .find(|info| info.kind() == IFLA_INFO_KIND)
                    .and_then(|info| parse_string(info.value()).ok());
            }
            IFLA_PROP_LIST => alternative_names.extend(
                attributes(value, 0)
                    .filter(|property| property.kind() == IFLA_ALT_IFNAME)
                    .filter_map(|property| parse_string(property.value()).ok()),
            ),
            _ => {}
        }
    }
    let ethernet = header.link_layer_type == LinkLayerType::Ether;
    Some(Link {
        index: IfIndex::new(header.index)?,
        name: InterfaceName::try_from(name?).ok()?,
        alternative_names,
        mac: link_address.filter(|_| ethernet).map(Mac::new),
        mtu,
        up: header.flags.contains(LinkFlags::Up),
        carrier: header.flags.contains(LinkFlags::LowerUp),
        loopback: header.flags.contains(LinkFlags::Loopback),
        master,
        kind,
        driver: None,
    })
}

/// An address; `None` when it is of another family.
pub(crate) fn address(body: &[u8], family: Family) -> Option<LinkAddress> {
    let header = AddressHeader::parse(body).ok()?;
    if header.family != wire(family) {
        return None;
    }
    let mut address = None;
    let mut local = None;
    let mut protocol = None;
    let mut flags = KernelAddressFlags::from_bits_retain(header.flags.bits().into());
    for attribute in attributes(body, ADDRESS_HEADER) {
        match AddressAttribute::parse(&attribute) {
            Ok(AddressAttribute::Address(ip)) => address = Some(ip),
            Ok(AddressAttribute::Local(ip)) => local = Some(ip),
            Ok(AddressAttribute::Flags(all)) => flags = all,
            Ok(AddressAttribute::Protocol(number)) => {
                protocol = Some(ProtocolId::observed(number.into()));
            }
            Ok(_) | Err(_) => {}
        }
    }
    // IFA_ADDRESS is the other end where there is one, and IFA_LOCAL ours; IPv6 has
    // IFA_LOCAL only then. The prefix length belongs to IFA_ADDRESS.
    let address = address.or(local)?;
    let local = local.unwrap_or(address);
    let (own_length, peer) = if local == address {
        (header.prefix_len, None)
    } else {
        let peer = IpNetwork::new(address, header.prefix_len).ok()?;
        (family.host_length(), Some(peer))
    };
    Some(LinkAddress {
        index: IfIndex::new(header.index)?,
        address: IpNetwork::new(local, own_length).ok()?,
        peer,
        flags: AddressFlags {
            announced: false,
            permanent: flags.contains(KernelAddressFlags::Permanent),
            tentative: flags.contains(KernelAddressFlags::Tentative),
            dad_failed: flags.contains(KernelAddressFlags::Dadfailed),
            // One bit, two meanings: IPv4 calls a second address of a subnet secondary.
            temporary: family == Family::Ipv6 && flags.contains(KernelAddressFlags::Secondary),
        },
        protocol,
    })
}

/// A rule; `None` when it is of another family.
pub(crate) fn rule(body: &[u8], family: Family) -> Option<ObservedRule> {
    let header = RuleHeader::parse(body).ok()?;
    if header.family != wire(family) {
        return None;
    }
    let mut rule = ObservedRule {
        family,
        priority: Priority::observed(0),
        inverted: header.flags.contains(RuleFlags::Invert),
        from: None,
        to: None,
        iif: None,
        oif: None,
        mark: None,
        other_selectors: header.tos != 0,
        action: match header.action {
            KernelAction::ToTable => RuleAction::Lookup,
            other => RuleAction::Other(other.into()),
        },
        table: TableId::observed(header.table.into()),
        suppress_prefix_length: None,
        protocol: ProtocolId::observed(0),
        raw: RawRule(body.to_vec()),
    };
    let mut mark = 0;
    let mut mask = 0;
    for attribute in attributes(body, RULE_HEADER) {
        match RuleAttribute::parse(&attribute) {
            Ok(RuleAttribute::Priority(number)) => rule.priority = Priority::observed(number),
            Ok(RuleAttribute::Table(number)) => rule.table = TableId::observed(number),
            Ok(RuleAttribute::Protocol(tag)) => rule.protocol = ProtocolId::observed(tag.into()),
            Ok(RuleAttribute::Source(ip)) => rule.from = IpNetwork::new(ip, header.src_len).ok(),
            Ok(RuleAttribute::Destination(ip)) => rule.to = IpNetwork::new(ip, header.dst_len).ok(),
            Ok(RuleAttribute::Iifname(name)) => rule.iif = Some(name),
            Ok(RuleAttribute::Oifname(name)) => rule.oif = Some(name),
            Ok(RuleAttribute::FwMark(value)) => mark = value,
            Ok(RuleAttribute::FwMask(value)) => mask = value,
            // All ones (-1) is how the kernel says "none", and it always says so.
            Ok(
                RuleAttribute::SuppressPrefixLen(u32::MAX)
                | RuleAttribute::SuppressIfGroup(u32::MAX),
            ) => {}
            Ok(RuleAttribute::SuppressPrefixLen(length)) => {
                rule.suppress_prefix_length = u8::try_from(length).ok();
                rule.other_selectors |= rule.suppress_prefix_length.is_none();
            }
            Ok(RuleAttribute::L3MDev(false)) => {}
            // The target of a goto belongs to the action.
            Ok(RuleAttribute::Goto(_)) => {}
            Ok(_) | Err(_) => rule.other_selectors = true,
        }
    }
    if mark != 0 || mask != 0 {
        rule.mark = Some((mark, mask));
    }
    Some(rule)
}

/// The routes of one message: one for each next hop, none when it is of another family
/// or a cached one.
pub(crate) fn routes(body: &[u8], family: Family) -> Vec<ObservedRoute> {
    let Ok(header) = RouteHeader::parse(body) else {
        return Vec::new();
    };
    if header.address_family != wire(family) || header.flags.contains(RouteFlags::Cloned) {
        return Vec::new();
    }
    let unspecified = family.default_network().ip();
    let mut destination = unspecified;
    let mut next_hops: Vec<RouteNextHop> = Vec::new();
    let mut route = ObservedRoute {
        table: TableId::observed(header.table.into()),
        destination: family.default_network(),
        metric: 0,
        gateway: None,
        oif: None,
        onlink: header.flags.contains(RouteFlags::Onlink),
        mtu: None,
        preference: RouterPreference::Medium,
        protocol: ProtocolId::observed(header.protocol.into()),
        kind: match header.kind {
            RouteType::Unicast => RouteKind::Unicast,
            other => RouteKind::Other(other.into()),
        },
        other_attributes: header.source_prefix_length != 0 || header.tos != 0,
    };
    let known = (header.address_family, header.kind, RouteLwEnCapType::None);
    for attribute in attributes(body, ROUTE_HEADER) {
        match RouteAttribute::parse_with_param(&attribute, known) {
            Ok(RouteAttribute::Destination(to)) => destination = ip(&to).unwrap_or(unspecified),
            Ok(RouteAttribute::Table(number)) => route.table = TableId::observed(number),
            Ok(RouteAttribute::Priority(metric)) => route.metric = metric,
            Ok(RouteAttribute::MultiPath(hops)) => next_hops = hops,
            Ok(attribute) => observe(&mut route, &attribute),
            Err(_) => route.other_attributes = true,
        }
    }
    let Ok(destination) = IpNetwork::new(destination, header.destination_prefix_length) else {
        return Vec::new();
    };
    route.destination = destination;
    if next_hops.is_empty() {
        return vec![route];
    }
    let with_hop = |hop: RouteNextHop| {
        let mut route = route.clone();
        route.oif = IfIndex::new(hop.interface_index);
        route.onlink = hop.flags.contains(RouteNextHopFlags::Onlink);
        for attribute in &hop.attributes {
            observe(&mut route, attribute);
        }
        route
    };
    next_hops.into_iter().map(with_hop).collect()
}

/// Takes in what a route and a next hop have in common.
fn observe(route: &mut ObservedRoute, attribute: &RouteAttribute) {
    match attribute {
        RouteAttribute::Oif(index) => route.oif = IfIndex::new(*index),
        RouteAttribute::Gateway(gateway) => route.gateway = ip(gateway),
        RouteAttribute::Via(RouteVia::Inet(gateway)) => route.gateway = Some((*gateway).into()),
        RouteAttribute::Via(RouteVia::Inet6(gateway)) => route.gateway = Some((*gateway).into()),
        RouteAttribute::Preference(RoutePreference::Low) => {
            route.preference = RouterPreference::Low
        }
        RouteAttribute::Preference(RoutePreference::High) => {
            route.preference = RouterPreference::High;
        }
        RouteAttribute::Preference(_) => route.preference = RouterPreference::Medium,
        RouteAttribute::Metrics(metrics) => {
            for metric in metrics {
                match metric {
                    RouteMetric::Mtu(mtu) => route.mtu = Some(*mtu),
                    _ => route.other_attributes = true,
                }
            }
        }
        // What the kernel counts and what is left of a lifetime say nothing of the way.
        RouteAttribute::CacheInfo(_) => {}
        _ => route.other_attributes = true,
    }
}

/// What `ip route get` would print.
pub(crate) fn reply_path(body: &[u8]) -> Option<ReplyPath> {
    let header = RouteHeader::parse(body).ok()?;
    let mut path = ReplyPath {
        device: None,
        gateway: None,
        table: TableId::observed(header.table.into()),
        local: header.kind == RouteType::Local,
    };
    let known = (header.address_family, header.kind, RouteLwEnCapType::None);
    for attribute in attributes(body, ROUTE_HEADER) {
        match RouteAttribute::parse_with_param(&attribute, known) {
            Ok(RouteAttribute::Oif(index)) => path.device = IfIndex::new(index),
            Ok(RouteAttribute::Gateway(gateway)) => path.gateway = ip(&gateway),
            Ok(RouteAttribute::Via(RouteVia::Inet6(gateway))) => {
                path.gateway = Some(gateway.into())
            }
            Ok(RouteAttribute::Table(number)) => path.table = TableId::observed(number),
            Ok(_) | Err(_) => {}
        }
    }
    Some(path)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
