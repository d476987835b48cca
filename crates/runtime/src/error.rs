//! How errors are put into words, the same in logs and on the command line.

use std::error::Error;

/// An error with all its causes, as one line if theirs are.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
