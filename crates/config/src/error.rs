//! Why a configuration cannot be used, and what is odd about one that can.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::diagnostic::Diagnostic;

/// Why a configuration cannot be used. The messages complete "failed to …".
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file or folder is there and cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file is larger than any configuration.
    #[error("read {}: more than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read, in bytes.
        limit: u64,
    },
    /// At least one value is wrong. All that were found, in the order of the files.
    #[error("use the configuration:\n{}", Lines(.0))]
    Invalid(Vec<Diagnostic>),
}

impl ConfigError {
    /// What is wrong in the files; empty when a file could not be read at all.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Invalid(diagnostics) => diagnostics,
            Self::Read { .. } | Self::TooLarge { .. } => &[],
        }
    }
}

struct Lines<'a>(&'a [Diagnostic]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

/// Something odd that does not keep the configuration from being used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Warning {
    /// A key that means nothing here.
    #[error("{}:{line}: unknown key {key} is ignored", path.display())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key with the keys around it; `[2]` is the second element of an array.
        key: String,
    },
    /// `tables.order` without the scheme that heeds it.
    #[error("{}:{line}: tables.order is ignored, since tables.scheme is \"ifindex\"", path.display())]
    UnusedOrder {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A drop-in that is listed in its folder and is not there, as a dangling link.
    #[error("{} leads nowhere and is ignored (a link to /dev/null masks a drop-in)", path.display())]
    Missing {
        /// The drop-in.
        path: PathBuf,
    },
}
