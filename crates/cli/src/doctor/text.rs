//! What doctor found, for people.

use std::fmt;

use super::DoctorView;
use super::check::{Cure, Finding, Severity};

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Note => "note",
            Self::Problem => "PROBLEM",
        }
    }
}

impl fmt::Display for DoctorView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is to be done comes last, where a terminal shows it.
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| finding.severity);
        for finding in findings {
            finding.fmt(f)?;
        }
        let counted = |severity, one: &str, more: &str| match self.count(severity) {
            1 => format!("1 {one}"),
            count => format!("{count} {more}"),
        };
        writeln!(
            f,
            "{}, {}, {}",
            counted(Severity::Problem, "problem", "problems"),
            counted(Severity::Note, "note", "notes"),
            counted(Severity::Unknown, "check not made", "checks not made"),
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:8} {}: {}",
            self.severity.word(),
            self.check,
            self.found
        )?;
        for evidence in &self.evidence {
            writeln!(f, "           {evidence}")?;
        }
        if let Some(why) = self.why {
            writeln!(f, "         why: {why}")?;
        }
        for cure in &self.cures {
            cure.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "         cure: {}", self.what)?;
        if let Some(file) = &self.file {
            writeln!(f, "           in {}:", file.path)?;
            for line in &file.lines {
                writeln!(f, "             {line}")?;
            }
        }
        for command in &self.commands {
            writeln!(f, "           {command}")?;
        }
        Ok(())
    }
}
