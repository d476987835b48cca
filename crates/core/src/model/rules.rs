//! The rules, as a table of values with a reason in each row.

use crate::address::Family;
use crate::model::uplink::UplinkFacts;
use crate::model::{Inputs, Purpose};
use crate::numbers::{Priority, TableId};
use crate::rule::{Rule, RuleAction, Selector};

/// Where a row of the table leads.
#[derive(Clone, Copy)]
enum Target {
    Own,
    Main,
}

/// The longest prefixes that do not count.
#[derive(Clone, Copy)]
enum Suppress {
    Nothing,
    /// The default route.
    Default,
    /// The default route and the pieces that VPNs split it into.
    SplitDefault,
}

struct Row {
    /// Distance from the base priority; the gaps belong to administrators.
    distance: u32,
    target: Target,
    suppress: Suppress,
    why: &'static str,
}

/// One selector's rules, in the kernel's order.
const ROWS: &[Row] = &[
    Row {
        distance: 10,
        target: Target::Own,
        suppress: Suppress::Default,
        why: "own prefixes and lease routes, all but the default",
    },
    Row {
        distance: 20,
        target: Target::Main,
        suppress: Suppress::SplitDefault,
        why: "containers, VPNs and static routes of the host",
    },
    Row {
        distance: 30,
        target: Target::Own,
        suppress: Suppress::Nothing,
        why: "own default",
    },
];

impl Suppress {
    /// The prefix length for `suppress_prefixlength`: routes of this length or shorter are
    /// passed over. VPNs split an IPv4 default into two halves (/1); for IPv6 pieces as
    /// small as 2000::/4 are in use.
    fn length(self, family: Family) -> Option<u8> {
        match (self, family) {
            (Self::Nothing, _) => None,
            (Self::Default, _) => Some(0),
            (Self::SplitDefault, Family::Ipv4) => Some(1),
            (Self::SplitDefault, Family::Ipv6) => Some(4),
        }
    }
}

/// The priority of the last rule of a selector, by the base priority.
pub(super) fn last_priority(base: Priority) -> Priority {
    let distances = ROWS.iter().map(|row| row.distance);
    base.plus(distances.max().unwrap_or(0))
}

/// The longest prefix that the rule for table main passes over.
pub(super) fn split_default_length(family: Family) -> u8 {
    Suppress::SplitDefault.length(family).unwrap_or(0)
}

/// The rules of one uplink: for each of its sources, and for sockets bound to it.
pub(super) fn of(
    inputs: Inputs<'_>,
    uplink: &UplinkFacts<'_>,
    table: TableId,
) -> Vec<(Rule, Purpose)> {
    let sources = uplink.sources.iter().copied().map(Selector::From);
    let selectors = sources.chain([Selector::Oif(uplink.link.name.clone())]);
    let base = inputs.settings.of(uplink.link).priority;
    let rule = |selector: Selector, row: &Row| {
        let rule = Rule {
            family: inputs.family,
            priority: base.plus(row.distance),
            selector,
            table: match row.target {
                Target::Own => table,
                Target::Main => TableId::MAIN,
            },
            suppress_prefix_length: row.suppress.length(inputs.family),
        };
        let purpose = Purpose::Rule {
            device: uplink.link.device(),
            why: row.why,
        };
        (rule, purpose)
    };
    selectors
        .flat_map(|selector| ROWS.iter().map(move |row| (selector.clone(), row)))
        .map(|(selector, row)| rule(selector, row))
        .collect()
}

/// Puts the rules of all uplinks into the kernel's order, once each, behind a rule for
/// table local where the host's own one does not come first.
pub(super) fn order(inputs: Inputs<'_>, rules: &mut Vec<(Rule, Purpose)>) {
    let Inputs {
        family,
        host,
        settings,
        ..
    } = inputs;
    let first = settings.first_priority();
    let local_is_first = host.rules.iter().any(|rule| {
        rule.family == family
            && rule.table == TableId::LOCAL
            && rule.action == RuleAction::Lookup
            && rule.matches_everything()
            && rule.priority <= first
            && !settings.owns_rule(rule)
    });
    if !rules.is_empty() && !local_is_first {
        let rule = Rule {
            family,
            priority: first,
            selector: Selector::All,
            table: TableId::LOCAL,
            suppress_prefix_length: None,
        };
        rules.push((rule, Purpose::LocalFirst));
    }
    // Two uplinks with one address want the same rule for main.
    rules.sort();
    rules.dedup_by(|a, b| a.0 == b.0);
    rules.sort_by_key(|(rule, _)| rule.priority);
}
