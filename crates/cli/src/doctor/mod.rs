//! `leaseroute doctor`: what an expert would look at, on a host where other programs do the
//! same work.
//!
//! Each subject is one file with a table of checks; [`SUBJECTS`] lists them. A check looks at
//! a [`scene::Scene`] and says what it found, with evidence and cures. Nothing is changed, and
//! no program is started: all is read from files, the kernel, and our own state.

mod agents;
mod check;
mod cloud_init;
mod containers;
mod ec2_net_utils;
mod networkd;
mod ours;
mod policies;
mod routing;
mod scene;
mod text;
mod units;

use std::path::PathBuf;

use leaseroute_runtime::exit::Exit;
use serde::Serialize;

use self::check::{Check, Finding, Severity};
use self::scene::Scene;
use crate::hooks::Root;
use crate::view::FORMAT;

/// All checks, by subject, in the order in which they are shown.
const SUBJECTS: &[&[Check]] = &[
    ours::CHECKS,
    routing::CHECKS,
    networkd::CHECKS,
    cloud_init::CHECKS,
    ec2_net_utils::CHECKS,
    agents::CHECKS,
    containers::CHECKS,
];

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorView {
    version: u32,
    /// In seconds since 1970.
    time: u64,
    root: PathBuf,
    checks: Vec<CheckView>,
    findings: Vec<Finding>,
}

/// A check that was made.
#[derive(Debug, Serialize)]
struct CheckView {
    check: &'static str,
    looks_at: &'static str,
}

/// Looks at a system. `now` is in seconds since 1970.
pub(crate) fn run(root: &Root, now: u64) -> DoctorView {
    let scene = Scene::new(root, now);
    let checks = || SUBJECTS.iter().copied().flatten();
    DoctorView {
        version: FORMAT,
        time: now,
        root: root.path().to_owned(),
        checks: checks()
            .map(|check| CheckView {
                check: check.name,
                looks_at: check.looks_at,
            })
            .collect(),
        findings: checks().flat_map(|check| check.run(&scene)).collect(),
    }
}

impl DoctorView {
    /// Whether something should be put right.
    pub(crate) fn exit(&self) -> Exit {
        if self.count(Severity::Problem) > 0 {
            Exit::Problems
        } else {
            Exit::Done
        }
    }

    fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|f| f.severity == severity).count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let names: Vec<&str> = SUBJECTS.iter().copied().flatten().map(|c| c.name).collect();
        let different: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), different.len());
    }

    #[test]
    fn the_document_has_every_check() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/beside.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let row = |check: &Check| {
            let worst = match check.worst {
                Severity::Problem => "problem",
                _ => "note",
            };
            format!("| `{}` | {worst} | {} |", check.name, check.looks_at)
        };
        assert_eq!(
            rows.collect::<Vec<_>>(),
            SUBJECTS
                .iter()
                .copied()
                .flatten()
                .map(row)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn nothing_says_worse_than_its_row() {
        let folder = tempfile::tempdir().unwrap();
        let view = run(&Root::open(folder.path()).unwrap(), 0);
        for check in SUBJECTS.iter().copied().flatten() {
            let said = view.findings.iter().filter(|f| f.check == check.name);
            let said: Vec<Severity> = said.map(|f| f.severity).collect();
            assert!(!said.is_empty(), "{} says nothing", check.name);
            assert!(said.iter().all(|s| *s <= check.worst), "{}", check.name);
        }
        assert_eq!(view.exit(), Exit::Done);
    }
}
