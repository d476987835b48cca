//! What a check is, and what it finds.

use std::io;

use leaseroute_core::Quoted;
use serde::Serialize;

use super::scene::Scene;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// Nothing to do.
    Ok,
    /// It could not be looked at, or not here.
    Unknown,
    /// Worth knowing; nothing breaks by it.
    Note,
    /// It should be put right.
    Problem,
}

/// One row of the table of checks.
#[derive(Debug)]
pub(super) struct Check {
    /// Its name, which stays the same for programs.
    pub(super) name: &'static str,
    /// What it looks at.
    pub(super) looks_at: &'static str,
    /// The worst that it can say.
    #[cfg_attr(not(test), expect(dead_code, reason = "documents and tests read it"))]
    pub(super) worst: Severity,
    /// Why what it finds matters.
    pub(super) why: &'static str,
    /// The look. An error is about a file that could not be read.
    pub(super) look: fn(&Scene<'_>) -> io::Result<Vec<Found>>,
}

/// One thing that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    severity: Severity,
    what: String,
    evidence: Vec<String>,
    cures: Vec<Cure>,
}

/// A thing to do, or one of several to choose from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cure {
    /// In words.
    pub(super) what: String,
    /// The commands, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) commands: Vec<String>,
    /// The file to write or to add to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<CureFile>,
}

/// Lines for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CureFile {
    pub(super) path: String,
    pub(super) lines: Vec<String>,
}

/// A finding with its check, as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    /// What was found, in words.
    pub(super) found: String,
    /// The files, units, rules and routes that show it.
    pub(super) evidence: Vec<String>,
    /// Why it matters; `null` when all is well.
    pub(super) why: Option<&'static str>,
    /// What to do: each is enough by itself, unless its words say otherwise.
    pub(super) cures: Vec<Cure>,
}

impl Found {
    fn new(severity: Severity, what: impl Into<String>) -> Self {
        Self {
            severity,
            what: what.into(),
            evidence: Vec::new(),
            cures: Vec::new(),
        }
    }

    pub(super) fn ok(what: impl Into<String>) -> Vec<Self> {
        vec![Self::new(Severity::Ok, what)]
    }

    pub(super) fn unknown(what: impl Into<String>) -> Vec<Self> {
        vec![Self::new(Severity::Unknown, what)]
    }

    pub(super) fn note(what: impl Into<String>) -> Self {
        Self::new(Severity::Note, what)
    }

    pub(super) fn problem(what: impl Into<String>) -> Self {
        Self::new(Severity::Problem, what)
    }

    /// A problem where `bad` holds, a note otherwise.
    pub(super) fn problem_if(bad: bool, what: impl Into<String>) -> Self {
        let severity = if bad {
            Severity::Problem
        } else {
            Severity::Note
        };
        Self::new(severity, what)
    }

    pub(super) fn with_evidence<T: Into<String>>(
        mut self,
        evidence: impl IntoIterator<Item = T>,
    ) -> Self {
        self.evidence.extend(evidence.into_iter().map(Into::into));
        self
    }

    pub(super) fn with_cure(mut self, cure: Cure) -> Self {
        self.cures.push(cure);
        self
    }
}

impl Cure {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            commands: Vec::new(),
            file: None,
        }
    }

    pub(super) fn command(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    pub(super) fn file(mut self, path: impl Into<String>, lines: &[&str]) -> Self {
        self.file = Some(CureFile {
            path: path.into(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        });
        self
    }

    /// The lines for our own configuration that leave cards alone.
    pub(super) fn leave_alone(names: &[String]) -> Self {
        let mut lines = Vec::new();
        for name in names {
            lines.push("[[interface]]".to_owned());
            lines.push(format!("match = {{ name = {} }}", Quoted(name.as_str())));
            lines.push("manage = false".to_owned());
        }
        Self {
            what: "let leaseroute leave these cards alone; then run the command".to_owned(),
            commands: vec!["leaseroute apply".to_owned()],
            file: Some(CureFile {
                path: "/etc/leaseroute/conf.d/50-leave-alone.toml".to_owned(),
                lines,
            }),
        }
    }
}

impl Check {
    /// Looks, and turns what cannot be read into a finding.
    pub(super) fn run(&self, scene: &Scene<'_>) -> Vec<Finding> {
        let found = (self.look)(scene)
            .unwrap_or_else(|error| Found::unknown(format!("it cannot be looked at: {error}")));
        found
            .into_iter()
            .map(|found| Finding {
                check: self.name,
                severity: found.severity,
                found: shown(&found.what),
                evidence: found.evidence.iter().map(|text| shown(text)).collect(),
                why: matches!(found.severity, Severity::Note | Severity::Problem)
                    .then_some(self.why),
                cures: found.cures,
            })
            .collect()
    }
}

/// A text that has parts of files in it, safe for a terminal and of bounded length.
fn shown(text: &str) -> String {
    const MOST: usize = 400;
    let mut shown = String::new();
    for (place, c) in text.chars().enumerate() {
        if place == MOST {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_file_cannot_reach_the_terminal() {
        assert_eq!(shown("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(shown(&"x".repeat(1000)).chars().count(), 401);
    }
}
