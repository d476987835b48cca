//! One row of the table beside what is there.
//!
//! A file is ours when it is where one of ours would be and a comment in its first lines
//! has our name: so a file of an older version is known too. A link is ours by the name it
//! leads to, a line by its end.

use std::io;
use std::path::Path;

use rustix::fs::{FileType, RawMode};

use super::room::{Row, What};
use super::root::{About, Found, Root};

/// The name that everything of ours has in it.
const NAME: &str = "leaseroute";

/// How many lines of a file are looked at for it.
const HEAD: usize = 12;

/// The first line of a file that was made for a line of ours.
const MADE: &str = "# Made by leaseroute.";

/// What the end of a line of ours is, when the line before it had no end of its own.
const AFTER_NO_END: &str = ", after a line without an end";

/// How a row and what is there compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is as it should be.
    InPlace,
    /// Nothing is there.
    Missing,
    /// Ours is there, of another version.
    Outdated,
    /// Ours is there, with this mode.
    WrongMode(RawMode),
    /// Ours is there, but it is not root's.
    WrongOwner,
    /// Something is there that is not ours: what it is.
    Foreign(String),
}

impl State {
    /// Whether ours is there in some form.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self, Self::Missing | Self::Foreign(_))
    }
}

/// Compares a row with what is there.
pub(crate) fn state(root: &Root, row: &Row) -> io::Result<State> {
    let found = root.find(row.path)?;
    Ok(match (&row.what, found) {
        (_, Found::Other) => State::Foreign("is no file".to_owned()),
        (What::Line(_) | What::File { .. } | What::Link { .. }, Found::Nothing) => State::Missing,
        (What::File { text, mode }, Found::File { bytes, about }) => {
            of_file(text.as_bytes(), *mode, &bytes, about)
        }
        (What::File { .. } | What::Line(_), Found::Link(to)) => {
            State::Foreign(format!("is a link to {}", to.display()))
        }
        (What::Link { target }, Found::Link(to)) => {
            if to == Path::new(target) {
                State::InPlace
            } else if to.file_name() == Path::new(target).file_name() {
                State::Outdated
            } else {
                State::Foreign(format!("is a link to {}", to.display()))
            }
        }
        // A copy in the place of the link.
        (What::Link { .. }, Found::File { bytes, .. }) if is_ours(&bytes) => State::Outdated,
        (What::Link { .. }, Found::File { .. }) => not_ours(),
        (What::Line(line), Found::File { bytes, .. }) => {
            let mut lines = bytes.split(|byte| *byte == b'\n');
            if lines.clone().any(|there| is_same_line(there, line)) {
                State::InPlace
            } else if lines.any(is_our_line) {
                State::Outdated
            } else {
                State::Missing
            }
        }
    })
}

fn of_file(wanted: &[u8], mode: RawMode, bytes: &[u8], about: About) -> State {
    if bytes != wanted {
        if is_ours(bytes) {
            State::Outdated
        } else {
            not_ours()
        }
    } else if !about.is_roots() {
        State::WrongOwner
    } else if about.mode != mode {
        State::WrongMode(about.mode)
    } else {
        State::InPlace
    }
}

fn not_ours() -> State {
    State::Foreign("is not one of leaseroute's".to_owned())
}

/// Whether a file is one of ours, of any version.
pub(crate) fn is_ours(bytes: &[u8]) -> bool {
    let mut head = bytes.split(|byte| *byte == b'\n').take(HEAD);
    head.any(|line| line.trim_ascii_start().starts_with(b"#") && contains(line, NAME.as_bytes()))
}

fn contains(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|part| part == words)
}

fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_suffix(AFTER_NO_END.as_bytes()).unwrap_or(line)
}

fn is_same_line(there: &[u8], line: &str) -> bool {
    without_mark(there) == line.as_bytes()
}

/// Whether a line is ours, of any version: the comment at its end says so.
fn is_our_line(there: &[u8]) -> bool {
    without_mark(there).ends_with(b" # leaseroute")
}

/// A file with a line of ours at its end, once, in place of older ones. `None`: a file that
/// is not there yet.
pub(crate) fn with_line(bytes: Option<&[u8]>, line: &str) -> Vec<u8> {
    let Some(bytes) = bytes else {
        return format!("{MADE}\n{line}\n").into_bytes();
    };
    let mut text = without_lines(bytes).unwrap_or_else(|| bytes.to_owned());
    let mark = if text.is_empty() || text.ends_with(b"\n") {
        ""
    } else {
        text.push(b'\n');
        AFTER_NO_END
    };
    text.extend_from_slice(format!("{line}{mark}\n").as_bytes());
    text
}

/// A file without lines of ours, as it was before to the byte. `None`: it has none.
pub(crate) fn without_lines(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut text: Vec<u8> = Vec::new();
    let mut any = false;
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        if !is_our_line(bare) {
            text.extend_from_slice(line);
            continue;
        }
        any = true;
        // The line before gets its missing end back, unless lines have come after it.
        let glued = bare.ends_with(AFTER_NO_END.as_bytes());
        if glued && lines.peek().is_none() && text.ends_with(b"\n") {
            text.pop();
        }
    }
    any.then_some(text)
}

/// Whether a file was made for a line of ours, and has nothing else in it.
pub(crate) fn is_only_made(without_lines: &[u8]) -> bool {
    without_lines.strip_suffix(b"\n") == Some(MADE.as_bytes())
}

/// Whether a client takes a row that is there: what is wrong with it, if it does not.
pub(crate) fn refusal(root: &Root, row: &Row, state: &State) -> io::Result<Option<String>> {
    let refused = match state {
        State::InPlace | State::Outdated => None,
        State::Missing => Some(format!("{} is missing", row.path)),
        State::Foreign(what) => Some(format!("{} {what}", row.path)),
        State::WrongOwner => row
            .is_executable()
            .then(|| format!("{} is not root's", row.path)),
        State::WrongMode(mode) => row
            .is_executable()
            .then(|| format!("{} has the mode {mode:04o}, not 0755", row.path)),
    };
    if refused.is_some() || !row.exact_folder {
        return Ok(refused);
    }
    let (folder, _) = row.split();
    Ok(match root.about(folder)? {
        Some((FileType::Directory, about)) if about.mode == 0o755 && about.is_roots() => None,
        _ => Some(format!("{folder} is not root's with the mode 0755")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = ". /usr/libexec/leaseroute/leaseroute.user # leaseroute";

    fn there_and_back(before: &str) {
        let with = with_line(Some(before.as_bytes()), LINE);
        let text = String::from_utf8(with.clone()).unwrap();
        assert_eq!(text.matches(LINE).count(), 1, "{text}");
        assert!(text.ends_with('\n'), "{text}");
        assert_eq!(with_line(Some(&with), LINE), with);
        let back = without_lines(&with).unwrap();
        assert_eq!(String::from_utf8(back).unwrap(), before);
    }

    #[test]
    fn a_line_comes_and_goes_without_a_trace() {
        there_and_back("");
        there_and_back("\n");
        there_and_back("# the administrator's\necho $1\n");
        there_and_back("echo without an end");
        there_and_back("a\n\n");
    }

    #[test]
    fn a_line_of_an_older_version_is_replaced() {
        let old = b"a\n. /usr/lib/leaseroute/user # leaseroute\nb\n";
        let with = with_line(Some(old), LINE);
        assert_eq!(String::from_utf8(with).unwrap(), format!("a\nb\n{LINE}\n"));
    }

    #[test]
    fn lines_that_came_later_stay() {
        let mut with = with_line(Some(b"a"), LINE);
        with.extend_from_slice(b"b\n");
        assert_eq!(without_lines(&with).unwrap(), b"a\nb\n");
    }

    #[test]
    fn a_file_that_was_made_for_the_line_is_known() {
        let made = with_line(None, LINE);
        assert!(is_only_made(&without_lines(&made).unwrap()));
        assert!(!is_only_made(b"# something else\n"));
        assert!(!is_only_made(b""));
        assert_eq!(without_lines(b"nothing of ours\n"), None);
    }

    #[test]
    fn a_file_is_ours_by_a_comment_in_its_head() {
        assert!(is_ours(b"#!/bin/sh\n# Hands the event to leaseroute.\n"));
        assert!(!is_ours(b"#!/bin/sh\nleaseroute apply\n"));
        let far = format!("{}# leaseroute\n", "\n".repeat(20));
        assert!(!is_ours(far.as_bytes()));
        assert!(!is_ours(b""));
    }
}
