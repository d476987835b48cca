//! What an administrator should know: situations that no routing can mend, or that look
//! like mistakes.

use std::collections::BTreeMap;

use ipnetwork::IpNetwork;

use crate::address::{Family, NetworkExt as _};
use crate::interface::Device;
use crate::model::uplink::UplinkFacts;
use crate::model::{DesiredState, Inputs};
use crate::note::Note;
use crate::numbers::TableId;
use crate::rule::{ObservedRule, RuleAction};

/// The shortest prefix that a lease's route may have without a remark.
const USUAL_LENGTH: u8 = 8;

pub(super) fn add(inputs: Inputs<'_>, found: &[UplinkFacts<'_>], state: &mut DesiredState) {
    let notes = &mut state.notes;
    for uplink in found {
        let wide = uplink.routes.iter().filter(|route| {
            Family::of_network(route.destination) == Family::Ipv4
                && route.destination.prefix() < USUAL_LENGTH
        });
        notes.extend(wide.map(|route| Note::WideRoute {
            device: uplink.link.device(),
            destination: route.destination,
        }));
    }

    let mut holders: BTreeMap<IpNetwork, Vec<Device>> = BTreeMap::new();
    for uplink in found {
        for source in &uplink.sources {
            holders
                .entry(*source)
                .or_default()
                .push(uplink.link.device());
        }
    }
    for (source, devices) in &holders {
        if devices.len() > 1 {
            let devices = devices.clone();
            notes.push(Note::SharedAddress {
                address: source.ip(),
                devices,
            });
        }
    }

    if state.rules.is_empty() {
        return;
    }
    for source in holders.keys() {
        let first = inputs
            .host
            .rules
            .iter()
            .find(|rule| catches(inputs, rule, *source));
        notes.extend(first.map(|rule| Note::Overruled {
            source: source.ip(),
            rule: rule.clone(),
        }));
    }
    notes.sort();
    notes.dedup();
}

/// Whether a foreign rule takes every packet of a source before ours see it.
fn catches(inputs: Inputs<'_>, rule: &ObservedRule, source: IpNetwork) -> bool {
    let Inputs {
        family, settings, ..
    } = inputs;
    let takes_source = match rule.from {
        Some(from) => from.covers(source),
        None => true,
    };
    let only_source = ObservedRule {
        from: None,
        ..rule.clone()
    };
    rule.family == family
        && rule.priority < settings.first_priority()
        && rule.action == RuleAction::Lookup
        && rule.table != TableId::LOCAL
        && rule.suppress_prefix_length.is_none()
        && only_source.matches_everything()
        && takes_source
        && !settings.owns_rule(rule)
}
