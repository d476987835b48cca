//! The third shape: merged values become settings, or problems with their places.
//!
//! The ranges of single numbers are core's; what only a configuration can get wrong is
//! checked here. All problems are collected.

use std::collections::BTreeSet;
use std::str::FromStr;

use leaseroute_core::{
    InterfaceMatch, InterfaceSettings, InvalidNumber, Mac, MetadataSettings, POSITION_SPAN,
    Pattern, Priority, ProtocolId, RULE_SPAN, Settings, TableId, TableScheme,
};
use toml::Spanned;

use crate::diagnostic::Problem;
use crate::merged::{Merged, Place, Placed};
use crate::written::{Scheme, Section};

/// The largest interface index: the kernel keeps it in a signed integer.
const MAX_INDEX: u32 = i32::MAX.unsigned_abs();

/// The longest time to ask a metadata service after one event, in seconds.
const MAX_DEADLINE: u32 = 3600;

/// What is wrong, and where.
pub(crate) type Problems = Vec<(Place, Problem)>;

/// Checks everything; with problems the settings hold defaults in their places.
pub(crate) fn validate(merged: Merged) -> (Settings, Problems) {
    let mut check = Check::default();
    let defaults = Settings::default();
    let priority = check.priority(merged.priority);
    let settings = Settings {
        when: merged.when.unwrap_or(defaults.when),
        protocol: check
            .number(merged.protocol, ProtocolId::own)
            .unwrap_or(defaults.protocol),
        permanent_addresses: merged
            .permanent_addresses
            .unwrap_or(defaults.permanent_addresses),
        tables: check.scheme(
            merged.scheme.unwrap_or(Scheme::IfIndex),
            merged.base,
            merged.order,
        ),
        priority: priority.unwrap_or(defaults.priority),
        metadata: MetadataSettings {
            provider: check
                .parsed(merged.provider)
                .unwrap_or(defaults.metadata.provider),
            endpoint: check.parsed(merged.endpoint),
            assign_addresses: merged
                .assign_addresses
                .unwrap_or(defaults.metadata.assign_addresses),
            deadline: check
                .deadline(merged.deadline)
                .unwrap_or(defaults.metadata.deadline),
        },
        interfaces: merged
            .interfaces
            .into_iter()
            .map(|(file, section)| check.section(file, section))
            .collect(),
    };
    check.priority_blocks(settings.priority);
    (settings, check.problems)
}

#[derive(Default)]
struct Check {
    problems: Problems,
    /// Every base priority that is written somewhere and is good by itself.
    priorities: Vec<(Place, Priority)>,
}

impl Check {
    /// Keeps a good value and notes a bad one.
    fn take<T>(&mut self, place: Place, result: Result<T, impl Into<Problem>>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                self.problems.push((place, problem.into()));
                None
            }
        }
    }

    fn u32(&mut self, number: &Placed<i64>) -> Option<u32> {
        let small = u32::try_from(number.value).map_err(|_| Problem::NotU32(number.value));
        self.take(number.place.clone(), small)
    }

    fn number<T>(
        &mut self,
        number: Option<Placed<i64>>,
        rule: impl Fn(u32) -> Result<T, InvalidNumber>,
    ) -> Option<T> {
        let number = number?;
        let small = self.u32(&number)?;
        self.take(number.place, rule(small))
    }

    fn text<T, E: Into<Problem>>(
        &mut self,
        file: usize,
        text: Option<Spanned<String>>,
        rule: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = Placed::new(file, text?);
        self.take(text.place, rule(&text.value))
    }

    fn parsed<T: FromStr<Err: Into<Problem>>>(
        &mut self,
        text: Option<Placed<String>>,
    ) -> Option<T> {
        let text = text?;
        self.take(text.place, text.value.parse())
    }

    fn deadline(&mut self, number: Option<Placed<i64>>) -> Option<u32> {
        let Placed { value, place } = number?;
        let seconds = u32::try_from(value).ok();
        let seconds = seconds.filter(|seconds| (1..=MAX_DEADLINE).contains(seconds));
        self.take(place, seconds.ok_or(Problem::Deadline(value)))
    }

    fn priority(&mut self, number: Option<Placed<i64>>) -> Option<Priority> {
        let place = number.as_ref()?.place.clone();
        let priority = self.number(number, Priority::base)?;
        self.priorities.push((place, priority));
        Some(priority)
    }

    fn scheme(
        &mut self,
        scheme: Scheme,
        base: Option<Placed<i64>>,
        order: Option<Placed<Vec<Spanned<String>>>>,
    ) -> TableScheme {
        let (TableScheme::IfIndex { base: default } | TableScheme::Position { base: default, .. }) =
            TableScheme::default();
        let added = match scheme {
            Scheme::IfIndex => MAX_INDEX,
            Scheme::Position => POSITION_SPAN - 1,
        };
        let base = base.and_then(|base| {
            let number = self.u32(&base)?;
            self.take(base.place, checked_base(scheme, number, added))
        });
        let base = base.unwrap_or(default);
        let order = order.map_or_else(Vec::new, |order| {
            let file = order.place.file;
            let patterns = order.value.into_iter();
            patterns
                .filter_map(|text| self.text(file, Some(text), Pattern::new))
                .collect()
        });
        match scheme {
            Scheme::IfIndex => TableScheme::IfIndex { base },
            Scheme::Position => TableScheme::Position { base, order },
        }
    }

    fn section(&mut self, file: usize, section: Section) -> InterfaceSettings {
        let Placed { value, place } = Placed::new(file, section.matches);
        if value.name.is_none() && value.mac.is_none() && value.driver.is_none() {
            self.problems.push((place, Problem::EmptyMatch));
        }
        InterfaceSettings {
            matches: InterfaceMatch {
                name: self.text(file, value.name, Pattern::new),
                mac: self.text(file, value.mac, str::parse::<Mac>),
                driver: self.text(file, value.driver, Pattern::new),
            },
            manage: section.manage,
            table: self.number(section.table.map(|n| Placed::new(file, n)), TableId::own),
            priority: self.priority(section.priority.map(|n| Placed::new(file, n))),
            required: section.required,
        }
    }

    /// Blocks of priorities are the same or apart; the first of two that overlap wins.
    fn priority_blocks(&mut self, default: Priority) {
        let mut good = BTreeSet::from([default.get()]);
        for (place, priority) in std::mem::take(&mut self.priorities) {
            let priority = priority.get();
            match good.iter().find(|&&other| overlap(other, priority)) {
                None => {
                    good.insert(priority);
                }
                Some(&other) => self
                    .problems
                    .push((place, Problem::OverlappingPriorities { priority, other })),
            }
        }
    }
}

/// Whether two blocks share some numbers, but not all.
fn overlap(a: u32, b: u32) -> bool {
    a != b && a.abs_diff(b) < RULE_SPAN
}

fn checked_base(scheme: Scheme, base: u32, added: u32) -> Result<u32, Problem> {
    let largest = u32::MAX - added;
    if base > largest {
        return Err(Problem::TableBase {
            base,
            largest,
            added,
        });
    }
    // The first position is the base itself, while no interface has index 0. Reserved
    // numbers further on are met at run time, where it is known whether they are needed.
    if scheme == Scheme::Position {
        TableId::own(base)?;
    }
    Ok(base)
}
