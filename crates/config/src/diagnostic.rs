//! What is wrong in a file, and where: message, line, column and the line itself with a
//! caret under the culprit.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use leaseroute_core::{
    InvalidEndpoint, InvalidMac, InvalidNumber, InvalidPattern, InvalidProvider, RULE_SPAN,
};
use thiserror::Error;

/// The most of a line that is shown, in characters.
const SHOWN: usize = 160;

/// A rule that a configuration breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// Not TOML, or a value of the wrong type; the message is the TOML reader's.
    #[error("{0}")]
    Toml(String),
    /// Bytes that are not UTF-8.
    #[error("the file is not UTF-8 from here on")]
    NotUtf8,
    /// A number that no field of the kernel holds.
    #[error("{0} is outside 0..=4294967295")]
    NotU32(i64),
    /// A table, priority or protocol that cannot be ours.
    #[error(transparent)]
    Number(#[from] InvalidNumber),
    /// A table base that leaves no room for the numbers added to it.
    #[error("table base {base} is outside 0..={largest} (up to {added} is added to it)")]
    TableBase {
        /// The base.
        base: u32,
        /// The largest possible one.
        largest: u32,
        /// What the scheme adds at most.
        added: u32,
    },
    /// A name, driver or order pattern that does not compile.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
    /// Not a hardware address.
    #[error(transparent)]
    Mac(#[from] InvalidMac),
    /// Not the name of a metadata provider.
    #[error(transparent)]
    Provider(#[from] InvalidProvider),
    /// Not an address of a metadata service.
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// A deadline that is none, or that would keep a program for hours.
    #[error("a deadline of {0} is outside 1..=3600 seconds")]
    Deadline(i64),
    /// An `[[interface]]` that matches by nothing.
    #[error(
        "match is empty: give at least one of name, mac and driver (name = \"*\" is every interface)"
    )]
    EmptyMatch,
    /// Two blocks of priorities that overlap in part.
    #[error(
        "rule priority {priority} is too near to {other}: each uses {RULE_SPAN} numbers, so take the same or one at least {RULE_SPAN} away"
    )]
    OverlappingPriorities {
        /// The one that is refused.
        priority: u32,
        /// The one it collides with.
        other: u32,
    },
}

/// One problem and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: Problem,
    /// The line as text, control characters replaced.
    excerpt: String,
    /// How many characters the carets mark.
    width: usize,
}

impl Diagnostic {
    /// A problem at a span of bytes in a file's text. A span beyond the end or within a
    /// character is moved to the nearest place before it.
    pub(crate) fn new(path: &Path, text: &str, span: Range<usize>, problem: Problem) -> Self {
        let (start, end) = (boundary(text, span.start), boundary(text, span.end));
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = text.get(line_start..).unwrap_or_default();
        let line_text = rest.lines().next().unwrap_or_default();
        let column = text.get(line_start..start).map_or(0, |s| s.chars().count());
        let marked = text.get(start..end).unwrap_or_default();
        let width = marked.lines().next().map_or(0, |s| s.chars().count());
        Self {
            path: path.to_owned(),
            line: line_number(text, start),
            column: column + 1,
            problem,
            excerpt: printable(line_text),
            width: width.max(1),
        }
    }
}

/// The line of a byte in a text, from 1.
pub(crate) fn line_number(text: &str, offset: usize) -> usize {
    let before = text.get(..boundary(text, offset)).unwrap_or_default();
    before.matches('\n').count() + 1
}

/// The last character boundary at or before a byte.
fn boundary(text: &str, offset: usize) -> usize {
    let offset = offset.min(text.len());
    let mut candidates = (0..=offset).rev();
    candidates
        .find(|&i| text.is_char_boundary(i))
        .unwrap_or_default()
}

/// A line that moves no cursor: each control character, tabs included, takes one column.
fn printable(line: &str) -> String {
    let shown = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    line.chars().map(shown).collect()
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            column,
            problem,
            excerpt,
            width,
        } = self;
        write!(f, "{}:{line}:{column}: {problem}", path.display())?;
        if *column > SHOWN {
            return Ok(());
        }
        let excerpt: String = excerpt.chars().take(SHOWN).collect();
        let width = (*width).min(SHOWN + 1 - column);
        let number = line.to_string();
        let gutter = number.len();
        write!(f, "\n {:gutter$} |\n {number} | {excerpt}\n", "")?;
        write!(
            f,
            " {:gutter$} | {:indent$}{:^<width$}",
            "",
            "",
            "",
            indent = column - 1
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, span: Range<usize>) -> String {
        Diagnostic::new(Path::new("f"), text, span, Problem::NotUtf8).to_string()
    }

    #[test]
    fn the_caret_counts_characters_not_bytes() {
        assert_eq!(
            at("a = 1\nb = \"é\" x\n", 15..16),
            "f:2:9: the file is not UTF-8 from here on\n   |\n 2 | b = \"é\" x\n   |         ^"
        );
    }

    #[test]
    fn the_end_of_the_text_is_a_place() {
        assert_eq!(
            at("a =", 3..3),
            "f:1:4: the file is not UTF-8 from here on\n   |\n 1 | a =\n   |    ^"
        );
        assert_eq!(
            at("", 7..9),
            "f:1:1: the file is not UTF-8 from here on\n   |\n 1 | \n   | ^"
        );
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let shown = at("a\t= \x1b[31m\n", 4..5);
        assert!(!shown.contains(['\t', '\x1b']), "{shown}");
    }

    #[test]
    fn long_lines_are_cut() {
        let text = "x".repeat(10_000);
        assert!(at(&text, 0..10_000).len() < 500);
        assert!(at(&text, 9_000..10_000).len() < 100);
    }
}
