//! What stops a benchmark.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use leaseroute_lab::site;
use thiserror::Error;

/// Why a benchmark could not be made.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    /// The namespaces or cards could not be made.
    #[error(transparent)]
    Site(#[from] site::BenchError),
    /// A program could not be started.
    #[error("failed to start {}: {source}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A program that is measured did not succeed.
    #[error("{} ended with {status}: {said}", program.display())]
    Failed {
        program: PathBuf,
        status: ExitStatus,
        said: String,
    },
    /// A file could not be read, written or removed.
    #[error("failed to use {}: {source}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// ip(8) or a hook printed something unexpected.
    #[error("failed to understand {what}: {source}")]
    Text {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    /// One of the programs left something else in the kernel than the others.
    #[error("{who} left other routes and rules than the hook: {difference}")]
    Different { who: String, difference: String },
}
