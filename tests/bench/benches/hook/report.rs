//! What was measured, as a table for people and as JSON.

use std::fmt;

use serde::Serialize;

use crate::race::Times;

/// One line of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// What was done.
    pub(crate) scenario: String,
    /// Who did it.
    pub(crate) who: String,
    pub(crate) unit: Unit,
    /// How often; 1 for what does not vary.
    pub(crate) rounds: usize,
    pub(crate) median: f64,
    pub(crate) p10: f64,
    pub(crate) p90: f64,
    /// Beside another line of the scenario.
    pub(crate) ratio: Option<Ratio>,
}

/// What the numbers of a line are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Microseconds,
    Kibibytes,
    Count,
}

/// A median divided by another one.
#[derive(Debug, Serialize)]
pub(crate) struct Ratio {
    /// Whose median it was divided by.
    pub(crate) of: String,
    pub(crate) value: f64,
    /// The most that it should be.
    pub(crate) target: Option<f64>,
}

impl Row {
    pub(crate) fn times(scenario: &str, who: &str, times: &Times) -> Self {
        Self {
            scenario: scenario.to_owned(),
            who: who.to_owned(),
            unit: Unit::Microseconds,
            rounds: times.rounds(),
            median: times.median(),
            p10: times.percentile(10),
            p90: times.percentile(90),
            ratio: None,
        }
    }

    pub(crate) fn single(scenario: &str, who: &str, unit: Unit, value: f64) -> Self {
        Self {
            scenario: scenario.to_owned(),
            who: who.to_owned(),
            unit,
            rounds: 1,
            median: value,
            p10: value,
            p90: value,
            ratio: None,
        }
    }

    pub(crate) fn beside(mut self, of: &str, times: &Times, target: Option<f64>) -> Self {
        self.ratio = Some(Ratio {
            of: of.to_owned(),
            value: self.median / times.median(),
            target,
        });
        self
    }
}

/// The whole report; `Display` is the table.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<40} {:>9} {:>9} {:>9} {:>6}  beside",
            "", "median", "p10", "p90", "rounds"
        )?;
        let mut scenario = "";
        for row in &self.rows {
            if row.scenario != scenario {
                scenario = &row.scenario;
                writeln!(f, "\n{scenario}")?;
            }
            let number = |value: f64| match row.unit {
                Unit::Microseconds => format!("{value:.0} µs"),
                Unit::Kibibytes => format!("{value:.0} KiB"),
                Unit::Count => format!("{value:.0}"),
            };
            write!(
                f,
                "  {:<38} {:>9} {:>9} {:>9} {:>6}",
                row.who,
                number(row.median),
                number(row.p10),
                number(row.p90),
                row.rounds
            )?;
            if let Some(Ratio { of, value, target }) = &row.ratio {
                write!(f, "  {value:.2} x {of}")?;
                if let Some(target) = target {
                    let verdict = if value <= target { "met" } else { "MISSED" };
                    write!(f, " (target {target:.1}: {verdict})")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
