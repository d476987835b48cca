//! Measures whole hook processes beside ip(8) and bare C programs. `tests/bench/run`
//! builds what it needs and starts it; see `tests/bench/README.md`.
//!
//! Everything happens in network namespaces of its own. It needs the right to make them,
//! iproute2, the compiled C programs, and a state folder on a tmpfs, as /run is.

mod error;
mod objects;
mod race;
mod report;
mod scenarios;
mod world;

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::error::BenchError;
use crate::report::Report;
use crate::scenarios::{ALL, Bench};

/// Measures whole hook processes, from posix_spawn to wait, beside ip(8) and bare C
/// programs which do the same. All take turns; medians and the 10th and 90th percentile
/// are shown.
#[derive(Debug, Parser)]
#[command(name = "tests/bench/run")]
struct Arguments {
    /// What to measure; everything unless named.
    #[arg(value_parser = PossibleValuesParser::new(ALL.iter().map(|(name, _)| *name)))]
    scenarios: Vec<String>,
    /// How often each program runs (some long ones run less often).
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(5..))]
    rounds: u16,
    /// Also write the numbers to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Another build of the hook, to run in the same turns.
    #[arg(long, value_name = "PROGRAM")]
    against: Vec<PathBuf>,
    /// The hook that is judged.
    #[arg(long, value_name = "PROGRAM", overrides_with = "hook")]
    hook: PathBuf,
    /// The folder with the compiled C programs.
    #[arg(long, value_name = "FOLDER", hide = true)]
    tools: PathBuf,
    /// The folder for state, on a tmpfs.
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "/run/leaseroute-bench",
        hide = true
    )]
    state: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("tests/bench/run: {error}\n");
            // Nobody is left to tell when that fails.
            drop(io::stderr().write_all(text.as_bytes()));
            ExitCode::FAILURE
        }
    }
}

/// The whole path of a program, since it is started from other places.
fn program(path: &Path) -> Result<PathBuf, BenchError> {
    fs::canonicalize(path).map_err(|source| BenchError::File {
        path: path.to_owned(),
        source,
    })
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut hooks = vec![("hook".to_owned(), program(&arguments.hook)?)];
    for path in &arguments.against {
        hooks.push((path.display().to_string(), program(path)?));
    }
    let bench = Bench {
        hooks,
        tools: arguments.tools.clone(),
        root: arguments.state.clone(),
        rounds: arguments.rounds.into(),
    };
    let mut report = Report { rows: Vec::new() };
    let is_wanted = |name: &str| {
        arguments.scenarios.is_empty() || arguments.scenarios.iter().any(|wanted| wanted == name)
    };
    for (_, measure) in ALL.iter().filter(|(name, _)| is_wanted(name)) {
        report.rows.extend(measure(&bench)?);
    }
    write!(io::stdout(), "{report}")?;
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    Ok(())
}
