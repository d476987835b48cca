//! What an administrator should know: situations that no routing can mend, or that look
//! like mistakes.

use std::collections::BTreeMap;

use ipnetwork::IpNetwork;

use crate::address::{Family, NetworkExt as _};
use crate::interface::Device;
use crate::model::uplink::UplinkFacts;
use crate::model::{DesiredState, Inputs, rules};
use crate::note::Note;
use crate::numbers::TableId;
use crate::rule::{ObservedRule, RuleAction};

/// The shortest prefix that a lease's route may have without a remark.
const USUAL_LENGTH: u8 = 8;

/// The actions blackhole, unreachable and prohibit (FR_ACT_* in linux/fib_rules.h).
const TERMINAL: [u8; 3] = [6, 7, 8];

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

    let tagged = inputs.host.rules.iter().filter(|rule| {
        let Inputs {
            family, settings, ..
        } = inputs;
        rule.family == family && rule.protocol == settings.protocol && !settings.owns_rule(rule)
    });
    let mut tagged = tagged.peekable();
    if let Some(first) = tagged.peek() {
        let rule = (*first).clone();
        let count = tagged.count();
        notes.push(Note::Orphaned { rule, count });
    }

    let foreign: Vec<_> = inputs
        .host
        .rules
        .iter()
        .filter(|rule| catches(inputs, rule))
        .collect();
    let routed = found
        .iter()
        .zip(&state.uplinks)
        .filter(|(_, uplink)| uplink.table.is_some());
    for (uplink, _) in routed {
        let last = rules::last_priority(inputs.settings.of(uplink.link).priority);
        for source in &uplink.sources {
            let takes_source = |from: IpNetwork| from.covers(*source);
            let first = foreign
                .iter()
                .find(|rule| rule.priority < last && rule.from.is_none_or(takes_source));
            notes.extend(first.map(|rule| Note::Overruled {
                source: source.ip(),
                rule: (*rule).clone(),
            }));
        }
    }
    notes.sort();
    notes.dedup();
}

/// Whether a foreign rule can end the way of every packet of the sources it names. One
/// for all packets that looks up a table of its own is a VPN's as a rule, and nobody
/// knows here what that table holds: only table main is known to have defaults.
fn catches(inputs: Inputs<'_>, rule: &ObservedRule) -> bool {
    let Inputs {
        family, settings, ..
    } = inputs;
    let ends_way = match rule.action {
        RuleAction::Lookup => {
            rule.table != TableId::LOCAL
                && rule.suppress_prefix_length.is_none()
                && (rule.from.is_some() || rule.table == TableId::MAIN)
        }
        RuleAction::Other(action) => TERMINAL.contains(&action),
    };
    ends_way
        && rule.family == family
        && !settings.owns_rule(rule)
        && ObservedRule {
            from: None,
            ..rule.clone()
        }
        .matches_everything()
}
