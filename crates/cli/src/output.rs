//! What the program says, and where: answers to standard output, everything else to
//! standard error. A reader that has gone away is no error.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;

use serde::Serialize;

use crate::error::CliError;
use crate::request::Form;

/// The program's name in front of messages.
const PROGRAM: &str = "leaseroute";

/// An answer in the form that was asked for.
pub(crate) fn render<T: Serialize + fmt::Display>(
    view: &T,
    form: Form,
) -> Result<String, CliError> {
    match form {
        Form::Text => Ok(view.to_string()),
        Form::Json => Ok(serde_json::to_string_pretty(view)? + "\n"),
    }
}

/// Prints an answer.
pub(crate) fn print(answer: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(answer.as_bytes())
        .and_then(|()| stdout.flush())
    {
        // `leaseroute status | head` is none of our trouble.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(source) => Err(CliError::Write {
            path: PathBuf::from("standard output"),
            source,
        }),
        Ok(()) => Ok(()),
    }
}

/// Says that something is odd.
pub(crate) fn warn(what: &impl fmt::Display) {
    say(&format!("warning: {what}"));
}

/// Says something on standard error.
pub(crate) fn say(what: &str) {
    // Where standard error is closed there is nobody to tell.
    drop(writeln!(io::stderr(), "{PROGRAM}: {what}"));
}
