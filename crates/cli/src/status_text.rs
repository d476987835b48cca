//! `leaseroute status` for people: one block for each interface.

use std::fmt;

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, Quoted};

use crate::status::{
    FamilyStatus, InterfaceStatus, LeaseView, ObjectView, Presence, SaidView, StatusView,
};
use crate::view::{Count, LeaseWords, SaidWords, inactive};

impl fmt::Display for StatusView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.interfaces.is_empty() {
            writeln!(
                f,
                "no uplinks: no interface has a lease, or a default route in table main"
            )?;
        }
        for interface in &self.interfaces {
            interface.write(self.time, f)?;
        }
        self.write_inactive(f)?;
        section("for all interfaces", &self.shared, f)?;
        section(
            "no longer wanted, the next event removes them",
            &self.stale,
            f,
        )?;
        if !self.notes.is_empty() {
            writeln!(f, "notes")?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        for (family, last) in &self.last_runs {
            let ago = self.time.saturating_sub(last.time);
            writeln!(f, "last {family} run {ago} s ago: {}", Count(last.changes))?;
            for failure in &last.failures {
                writeln!(f, "  failed: {failure}")?;
            }
            for name in &last.unknown_interfaces {
                writeln!(f, "  failed: no interface {}", Quoted(name))?;
            }
        }
        self.watcher.write(self.time, f)
    }
}

impl StatusView {
    /// Says why a family with uplinks has no rules.
    fn write_inactive(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in Family::BOTH {
            let parts = self
                .interfaces
                .iter()
                .flat_map(|interface| &interface.families);
            let uplinks: Vec<_> = parts.filter(|p| p.family == family && p.uplink).collect();
            if uplinks.iter().any(|part| !part.active) {
                writeln!(f, "{}", inactive(family, uplinks.len()))?;
            }
        }
        Ok(())
    }
}

impl InterfaceStatus {
    fn write(&self, now: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  index {}", self.name, self.index)?;
        if let Some(mac) = self.mac {
            write!(f, ", {mac}")?;
        }
        f.write_str(if self.up { ", up" } else { ", down" })?;
        if !self.manage {
            f.write_str(", left alone (manage = false)")?;
        }
        // The number is the same in both families.
        if let Some(table) = self.families.iter().find_map(|family| family.table) {
            write!(f, ", table {table}")?;
        }
        writeln!(f)?;
        for family in &self.families {
            family.write(now, f)?;
        }
        writeln!(f)
    }
}

impl FamilyStatus {
    fn write(&self, now: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {} lease: ", self.family)?;
        match &self.lease {
            Some(lease) => lease.write(now, f)?,
            None => writeln!(f, "unknown, no client told")?,
        }
        if !self.sources.is_empty() {
            let sources: Vec<String> = self.sources.iter().map(source).collect();
            writeln!(f, "    sources: {}", sources.join(", "))?;
        }
        if let Some(known) = &self.metadata {
            known.write(now, f)?;
        }
        objects("    ", &self.addresses, f)?;
        objects("    ", &self.rules, f)?;
        objects("    ", &self.routes, f)?;
        for reply in &self.replies {
            writeln!(f, "    {reply}")?;
        }
        Ok(())
    }
}

impl SaidView {
    fn write(&self, now: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ago = now.saturating_sub(self.updated);
        let (said, provider) = (SaidWords(&self.said), &self.provider);
        writeln!(f, "    metadata: {said} ({provider}, {ago} s ago)")
    }
}

impl LeaseView {
    fn write(&self, now: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = &self.state;
        write!(f, "{}", LeaseWords { state, now })?;
        let ago = now.saturating_sub(self.updated);
        match self.client {
            Some(client) => writeln!(f, " ({client}, {ago} s ago)"),
            None => writeln!(f, " ({ago} s ago)"),
        }
    }
}

/// A source as ip(8) has it: an address without its length.
fn source(source: &IpNetwork) -> String {
    if source.prefix() == Family::of_network(*source).host_length() {
        source.ip().to_string()
    } else {
        source.to_string()
    }
}

fn section(title: &str, list: &[ObjectView], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if list.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}")?;
    objects("  ", list, f)
}

/// Objects with their purposes in a column.
fn objects(indent: &str, list: &[ObjectView], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let width = list
        .iter()
        .map(|object| object.text.chars().count())
        .max()
        .unwrap_or(0);
    for object in list {
        let mark = match object.presence {
            Presence::Missing => "MISSING ",
            Presence::Kept => "kept, its lease is unknown",
            Presence::InPlace | Presence::Stale => "",
        };
        let why = object.why.as_deref().unwrap_or_default();
        let line = format!("{indent}{:width$}  {mark}{why}", object.text);
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::report::Report;
    use crate::status::StatusView;

    /// The host whose report the replay tests use: one rule is missing, one is stale, and
    /// a foreign one comes first.
    fn view() -> StatusView {
        let report = include_str!("../tests/cmd/plan.in/report.json");
        let report: Report = serde_json::from_str(report).unwrap();
        // A while before the lease ends.
        let now = 1_796_054_000;
        StatusView::new(&report.into_world(now).unwrap(), now)
    }

    #[test]
    fn people_see_each_object_with_its_purpose() {
        insta::assert_snapshot!(view());
    }

    #[test]
    fn programs_see_the_same() {
        let json = serde_json::to_string_pretty(&view()).unwrap();
        insta::assert_snapshot!(json);
    }
}
