//! Reads leaseroute's configuration: TOML files and drop-ins in, validated
//! [`Settings`](leaseroute_core::Settings) out.
//!
//! A configuration goes through three shapes: the text of each file as written
//! ([`Document`]), all files laid over each other, and the validated settings. Later code
//! sees only the last. The crate reads files and nothing else: no environment, no clock,
//! no kernel. It runs in every hook, so it makes no system call that it does not need.
//!
//! Every error names file, line and column; unknown keys are warnings.

mod diagnostic;
mod error;
mod folders;
mod load;
mod merged;
mod validate;
mod written;

pub use diagnostic::{Diagnostic, Problem};
pub use error::{ConfigError, Warning};
pub use folders::Folders;
pub use load::{Loaded, load, load_text};
pub use written::{Document, LogLevel};
