//! What a metadata service adds to an uplink.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::{
    LearnedDefault, UplinkFacts, best_default4, contested, is_at_home, is_delegated, is_edge,
};
use crate::address::{Family, NetworkExt as _};
use crate::host::{Host, Link};
use crate::interface::{Device, IfIndex};
use crate::model::Inputs;
use crate::model::table::METRIC6;
use crate::note::Note;
use crate::route::RouterPreference;

impl UplinkFacts<'_> {
    /// Takes what a metadata service says of a card that has an address of its own: further
    /// sources, be they on the card or where the host sends them, and the way out of a card
    /// that no lease tells of.
    pub(super) fn learn_said(&mut self, inputs: Inputs<'_>, notes: &mut Vec<Note>) {
        let Inputs {
            family, host, book, ..
        } = inputs;
        let index = self.link.index;
        let Some(said) = book.said(index, family, &inputs.settings.metadata) else {
            return;
        };
        let said = &said.said;
        let mut told = said.addresses.iter();
        let has_own = told.any(|address| host.has_address(index, *address));
        let is_of_this_card = has_own || (said.addresses.is_empty() && !self.sources.is_empty());
        if !is_of_this_card {
            return;
        }
        let elsewhere = |address: IpAddr| {
            let mut others = host.links.keys().filter(|other| **other != index);
            others.any(|other| host.has_address(*other, address))
        };
        let told = said.addresses.iter().copied().map(IpNetwork::from);
        for source in told.chain(said.prefixes.iter().copied()) {
            let holder = if is_delegated(source) {
                contested(inputs, index, source).or_else(|| self.inner_holder(inputs, source))
            } else {
                None
            };
            if let Some(holder) = holder {
                notes.push(Note::ContestedPrefix {
                    device: self.link.device(),
                    prefix: source,
                    holder,
                });
            } else if is_delegated(source) || !elsewhere(source.ip()) {
                self.sources.insert(source);
            }
        }
        if !has_own {
            return;
        }
        let is_leased = book.lease(index, family).is_some();
        if self.defaults.is_empty() && !is_leased && family == Family::Ipv4 {
            self.defaults.extend(best_default4(host, index));
        }
        // Some clouds give a secondary card a lease without a router, so that main has one default.
        if self.defaults.is_empty() {
            let gateway = said
                .gateway
                .filter(|gateway| self.may_be_router(host, *gateway));
            self.defaults.extend(gateway.map(|gateway| LearnedDefault {
                gateway: Some(gateway),
                metric: match family {
                    Family::Ipv4 => 0,
                    Family::Ipv6 => METRIC6,
                },
                preference: RouterPreference::Medium,
            }));
        }
        // Nothing is taken from a table while it is not known what should be in it.
        self.routes_known |= !self.defaults.is_empty() && !keeps_routes(inputs, index);
    }

    /// Another interface, such as a VPN's or a container bridge, that has addresses in a prefix
    /// which is said to be routed here, or in whose network that prefix lies. What is part of
    /// this card's own network it may have been given, as containers are.
    fn inner_holder(&self, inputs: Inputs<'_>, prefix: IpNetwork) -> Option<Device> {
        if self.on_link.iter().any(|own| own.covers(prefix)) {
            return None;
        }
        let host = inputs.host;
        let mut others = host
            .links
            .values()
            .filter(|link| link.index != self.link.index);
        let holds = |link: &&Link| !link.loopback && is_at_home(host, link, prefix);
        others.find(holds).map(Link::device)
    }

    /// Whether a router that is said to be a card's can be one: no address of this host, and not
    /// the first or the last address of a network.
    fn may_be_router(&self, host: &Host, router: IpAddr) -> bool {
        let mut addresses = host.addresses.iter();
        let mut networks = self.on_link.iter();
        !addresses.any(|seen| seen.address.ip() == router)
            && !networks.any(|network| is_edge(*network, router))
    }
}

/// Whether our routes by an interface are those of an IPv4 lease that nobody has told of: a
/// metadata service may know the address, and not the routes.
pub(super) fn keeps_routes(inputs: Inputs<'_>, index: IfIndex) -> bool {
    let Inputs {
        family,
        host,
        book,
        settings,
    } = inputs;
    let mut addresses = host.addresses_of(index, Family::Ipv4);
    let mut routes = host.own_tables.iter();
    family == Family::Ipv4
        && book.get(index, family).is_none()
        && book.said(index, family, &settings.metadata).is_some()
        && addresses.any(|address| !address.flags.permanent)
        && routes.any(|r| r.oif == Some(index) && r.family() == family && settings.owns_route(r))
}
