//! Why a subcommand could not do its work, and which exit code says so.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use leaseroute_config::ConfigError;
use leaseroute_core::{InterfaceRef, Quoted, Refusal};
use leaseroute_kernel::KernelError;
use leaseroute_lab::demo::DemoError;
use leaseroute_runtime::EngineError;
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::exit::Exit;
use leaseroute_watch::wait::WaitError;
use thiserror::Error;

/// A subcommand could not do its work. With its sources, each is one line of text.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error("failed to read {}", Name(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("failed to write {}", Name(path))]
    Write { path: PathBuf, source: io::Error },
    #[error("failed to read {}: it is no {expected}", Name(path))]
    Format {
        path: PathBuf,
        expected: &'static str,
        source: serde_json::Error,
    },
    #[error(
        "failed to read {}: it is of format version {found}, this program knows {known}",
        Name(path)
    )]
    Version {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("failed to {0}")]
    Configuration(ConfigError),
    #[error("failed to take in the event")]
    Refused(#[from] Refusal),
    #[error("failed to take in the options: {0}")]
    Options(String),
    #[error("failed to find interface {}", Quoted(.0.as_str()))]
    NoInterface(InterfaceRef),
    #[error("failed to find a subcommand {} to print a manual page of", Quoted(.0))]
    NoSubcommand(String),
    #[error("failed to put the answer into words")]
    Words(#[from] serde_json::Error),
    #[error("failed to put the configuration into words")]
    Toml(#[from] toml::ser::Error),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("failed to ask the metadata service")]
    Metadata(#[source] io::Error),
    #[error(
        "failed to listen on standard input, which is no socket; leaseroute-metadata.socket \
         starts this with one"
    )]
    Ear(#[source] io::Error),
}

/// `-` means a standard stream.
struct Name<'a>(&'a Path);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Path::new("-") {
            f.write_str("standard input")
        } else {
            self.0.display().fmt(f)
        }
    }
}

impl CliError {
    /// The exit code that says so.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Format { .. }
            | Self::Version { .. }
            | Self::Metadata(_)
            | Self::Words(_)
            | Self::Toml(_) => Exit::Failed,
            Self::Demo(DemoError::NotPermitted(_)) => Exit::NotPermitted,
            Self::Demo(_) => Exit::Failed,
            Self::Configuration(_) => Exit::Configuration,
            Self::Refused(_) => Exit::Refused,
            Self::NoInterface(_) => Exit::NoInterface,
            Self::NoSubcommand(_) | Self::Options(_) | Self::Ear(_) => Exit::Usage,
            Self::Kernel(_) => Exit::Kernel,
            Self::Engine(error) => error.exit(),
            Self::Wait(error) => error.exit(),
        }
    }

    /// The error with all its causes, as one line (a configuration's excerpts apart).
    pub(crate) fn with_causes(&self) -> String {
        match self {
            // Its own words complete ours.
            Self::Configuration(error) => format!("failed to {}", with_causes(error)),
            _ => with_causes(self),
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::Configuration(error)
    }
}
