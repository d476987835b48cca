//! Table numbers: a pure function of the configuration and the interfaces, never the next
//! free one.

use std::collections::{BTreeMap, BTreeSet};

use crate::address::Family;
use crate::book::LeaseBook;
use crate::host::{Host, Link};
use crate::interface::{Device, IfIndex};
use crate::model::Inputs;
use crate::model::uplink::{self, UplinkFacts};
use crate::note::Note;
use crate::numbers::TableId;
use crate::settings::{Settings, TableScheme};

/// The table of each managed uplink. One that must have none, or that another one has, is
/// left out with a note.
pub(super) fn assign(
    inputs: Inputs<'_>,
    found: &[UplinkFacts<'_>],
    notes: &mut Vec<Note>,
) -> BTreeMap<IfIndex, TableId> {
    let positions = positions(inputs);
    let mut owners: BTreeMap<TableId, Vec<Device>> = BTreeMap::new();
    let mut tables = BTreeMap::new();
    for uplink in found.iter().filter(|uplink| uplink.managed) {
        let link = uplink.link;
        let device = link.device();
        let fixed = inputs.settings.of(link).table;
        let table = match fixed {
            Some(table) => Ok(table),
            None => TableId::own(scheme_number(inputs.settings, link, &positions)),
        };
        match table {
            Err(why) => notes.push(Note::NoTable { device, why }),
            Ok(table) => {
                let devices = owners.entry(table).or_default();
                devices.push(device);
                if devices.len() == 1 {
                    tables.insert(link.index, table);
                }
            }
        }
    }
    let shared = owners.into_iter().filter(|(_, devices)| devices.len() > 1);
    notes.extend(shared.map(|(table, devices)| Note::SharedTable { table, devices }));
    tables
}

/// The number that the scheme gives, before it is checked. 0 stands for "none".
fn scheme_number(settings: &Settings, link: &Link, positions: &BTreeMap<IfIndex, u32>) -> u32 {
    match &settings.tables {
        TableScheme::IfIndex { base } => base.saturating_add(link.index.get()),
        TableScheme::Position { base, .. } => positions
            .get(&link.index)
            .map_or(0, |position| base.saturating_add(*position)),
    }
}

/// The position of each managed uplink of either family: those that the configuration
/// orders first, the others by hardware address.
fn positions(inputs: Inputs<'_>) -> BTreeMap<IfIndex, u32> {
    let TableScheme::Position { order, .. } = &inputs.settings.tables else {
        return BTreeMap::new();
    };
    let mut links: Vec<&Link> = Family::BOTH
        .into_iter()
        .flat_map(|family| uplink::find(Inputs { family, ..inputs }, &mut Vec::new()))
        .filter(|uplink| uplink.managed)
        .map(|uplink| uplink.link)
        .collect();
    let rank = |link: &Link| {
        let fits = order.iter().position(|p| p.matches(link.name.as_str()));
        (
            fits.unwrap_or(order.len()),
            link.mac.is_none(),
            link.mac,
            link.index,
        )
    };
    links.sort_by_key(|link| rank(link));
    links.dedup_by_key(|link| link.index);
    (0..)
        .zip(links)
        .map(|(position, link)| (link.index, position))
        .collect()
}

/// The tables in which objects of ours may be: those that our rules name, and those that
/// uplinks and interfaces with a lease, past or present, have or could have. `more` are
/// interfaces to look at besides. `host` holds links, addresses, rules and the routes of
/// main.
#[must_use]
pub fn tables_to_read(
    family: Family,
    host: &Host,
    book: &LeaseBook,
    settings: &Settings,
    more: &BTreeSet<IfIndex>,
) -> BTreeSet<TableId> {
    let named = host
        .rules
        .iter()
        .filter(|rule| rule.family == family && settings.owns_rule(rule))
        .map(|rule| rule.table)
        .filter(|table| settings.owns_table(*table));
    let mut tables: BTreeSet<TableId> = named.collect();

    // Who gets a table is a leased, an advertised or a main default's interface; positions
    // count those of both families.
    let both = matches!(settings.tables, TableScheme::Position { .. });
    let advertised = match family {
        Family::Ipv4 if !both => BTreeSet::new(),
        Family::Ipv4 | Family::Ipv6 => uplink::candidates6(host, book, settings),
    };
    let defaults = host
        .main
        .iter()
        .filter(|r| r.is_default() && (both || r.family() == family));
    let defaults = defaults.filter_map(|route| route.oif);
    let known = book.known().chain(advertised).chain(defaults);
    let indexes: BTreeSet<IfIndex> = known.chain(more.iter().copied()).collect();
    let links = indexes.iter().filter_map(|index| host.links.get(index));
    tables.extend(links.filter_map(|link| settings.of(link).table));
    match &settings.tables {
        TableScheme::IfIndex { base } => {
            let numbers = indexes.iter().map(|index| base.saturating_add(index.get()));
            tables.extend(numbers.filter_map(|number| TableId::own(number).ok()));
        }
        TableScheme::Position { base, .. } => {
            let count = u32::try_from(indexes.len()).unwrap_or(u32::MAX);
            let numbers = *base..=base.saturating_add(count);
            tables.extend(numbers.filter_map(|number| TableId::own(number).ok()));
        }
    }
    tables
}
