//! Recorded events and the kernel's state at their time, as tests and the demonstration
//! replay them.
//!
//! Owns the layout of a fixture folder and the forms of its files. A folder is one case:
//!
//! * `why`: one line, why the case exists;
//! * `config.toml`, when the case is not about the defaults with `when = "always"`;
//! * `NN-REASON.env` and `NN-REASON.state` for each event in order: the client's variables
//!   as `KEY=VALUE` lines, and what ip(8) showed at that moment (see [`Snapshot`]). A
//!   state without variables is a change that no client reports;
//! * `NN-REASON.args` beside it, when the hook got arguments: one a line;
//! * `NN-REASON.lease`, when the client kept a lease file that its hook has to read;
//! * `expected`: what has to come of it.
//!
//! It decides nothing about routing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use leaseroute_core::{Client, LeaseFile, RawEvent};
use leaseroute_runtime::capture;
use thiserror::Error;

pub use snapshot::{Snapshot, SnapshotError};

mod snapshot;

/// Why a fixture cannot be read.
#[derive(Debug, Error)]
pub enum FixtureError {
    /// A file or folder could not be read.
    #[error("failed to read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A state is not what ip(8) prints.
    #[error("failed to understand {}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: SnapshotError,
    },
}

/// One case.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// Its folder.
    pub folder: PathBuf,
    /// Why it exists.
    pub why: String,
    /// Its steps in order.
    pub steps: Vec<Step>,
}

/// One event, or one change that no client reports.
#[derive(Clone, Debug)]
pub struct Step {
    /// The file's name without its ending.
    pub name: String,
    /// What the hook received; `None` when no hook ran.
    pub event: Option<RawEvent>,
    /// What the kernel held then.
    pub state: Snapshot,
}

impl Fixture {
    /// Reads one case of a client.
    ///
    /// # Errors
    ///
    /// When a file is missing or is not of its form.
    pub fn read(folder: &Path, client: Client) -> Result<Self, FixtureError> {
        let why = text(&folder.join("why"))?.trim().to_owned();
        let mut steps = Vec::new();
        for path in sorted(folder)? {
            if path.extension().is_none_or(|ending| ending != "state") {
                continue;
            }
            let state = text(&path)?;
            let state = state.parse().map_err(|source| FixtureError::State {
                path: path.clone(),
                source,
            })?;
            let variables = path.with_extension("env");
            let event = match fs::exists(&variables) {
                Ok(true) => Some(recorded(&variables, client)?),
                Ok(false) => None,
                Err(source) => {
                    return Err(FixtureError::Unreadable {
                        path: variables,
                        source,
                    });
                }
            };
            let name = path.file_stem().unwrap_or_default();
            steps.push(Step {
                name: name.to_string_lossy().into_owned(),
                event,
                state,
            });
        }
        Ok(Self {
            folder: folder.to_owned(),
            why,
            steps,
        })
    }

    /// Reads all cases below a folder, by name.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read.
    pub fn read_all(folder: &Path, client: Client) -> Result<Vec<Self>, FixtureError> {
        let cases = sorted(folder)?.into_iter().filter(|path| path.is_dir());
        cases.map(|case| Self::read(&case, client)).collect()
    }
}

/// Reads one recorded event of a client.
///
/// # Errors
///
/// When the file cannot be read.
pub fn recorded(path: &Path, client: Client) -> Result<RawEvent, FixtureError> {
    let arguments = optional(&path.with_extension("args"))?.unwrap_or_default();
    Ok(RawEvent {
        arguments: arguments.lines().map(str::to_owned).collect(),
        lease_file: optional(&path.with_extension("lease"))?
            .map_or(LeaseFile::Absent, LeaseFile::Text),
        ..capture::text(client, &text(path)?)
    })
}

/// A file's text, if there is such a file.
fn optional(path: &Path) -> Result<Option<String>, FixtureError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FixtureError::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}

fn text(path: &Path) -> Result<String, FixtureError> {
    fs::read_to_string(path).map_err(|source| FixtureError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, FixtureError> {
    let unreadable = |source| FixtureError::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let entries = fs::read_dir(folder).map_err(unreadable)?;
    let paths: Result<Vec<PathBuf>, io::Error> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut paths = paths.map_err(unreadable)?;
    paths.sort();
    Ok(paths)
}
