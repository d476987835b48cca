//! The programs that the hooks start. They are the package's; only copies that `install
//! --programs` made are ours to remove.
//!
//! Which ones it made is written beside them, with the size and time of each copy: a
//! package that puts its own program in their place makes the copy its own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::FileType;

use super::change::{Change, Did, Kind};
use super::root::{About, Found, Root};
use super::table::PROGRAMS;
use crate::error::CliError;
use leaseroute_runtime::error::with_causes;

/// The mode of a program.
const MODE: u32 = 0o755;

/// What is wrong with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramState {
    InPlace,
    Missing,
    NotExecutable,
}

/// Where a program is.
pub(crate) fn path(name: &str) -> String {
    format!("{PROGRAMS}/{name}")
}

/// Whether a program can be started.
pub(crate) fn state(root: &Root, name: &str) -> io::Result<ProgramState> {
    Ok(match root.about(&path(name))? {
        None => ProgramState::Missing,
        Some((FileType::RegularFile, about)) if about.mode & 0o111 != 0 => ProgramState::InPlace,
        Some(_) => ProgramState::NotExecutable,
    })
}

/// Copies a program of this system into the root.
pub(crate) fn copy(root: &Root, name: &'static str, from: &Path) -> Change {
    let path = path(name);
    let from = from.join(name);
    let copied = fs::read(&from)
        .map_err(|source| {
            with_causes(&CliError::Read {
                path: from.clone(),
                source,
            })
        })
        .and_then(|bytes| put(root, name, &path, &bytes));
    Change::new(path, Kind::Program, copied)
}

fn put(root: &Root, name: &str, path: &str, bytes: &[u8]) -> Result<Did, String> {
    let text = |e: io::Error| e.to_string();
    let did = match root.find(path).map_err(text)? {
        Found::File {
            bytes: there,
            about,
        } if there == bytes && about.mode == MODE && about.is_roots() => {
            return Ok(Did::Already);
        }
        Found::File { .. } => Did::Updated,
        Found::Nothing => Did::Made,
        Found::Link(_) | Found::Other => return Err("is no file, and stays as it is".to_owned()),
    };
    root.make_folders(path).map_err(text)?;
    root.put_file(path, bytes, MODE, None, did == Did::Updated)
        .map_err(text)?;
    let mut record = Record::read(root).map_err(text)?;
    if let Some((_, about)) = root.about(path).map_err(text)? {
        record.copies.insert(name.to_owned(), stamp(about));
    }
    record.write(root).map_err(text)?;
    Ok(did)
}

/// Removes a program if it is a copy that was made by [`copy`]. `None`: it is not.
pub(crate) fn remove(root: &Root, name: &'static str) -> Option<Change> {
    let path = path(name);
    match take(root, name, &path) {
        Ok(None) => None,
        Ok(Some(did)) => Some(Change::new(path, Kind::Program, Ok(did))),
        Err(e) => Some(Change::new(path, Kind::Program, Err(e.to_string()))),
    }
}

fn take(root: &Root, name: &str, path: &str) -> io::Result<Option<Did>> {
    let mut record = Record::read(root)?;
    let Some(stamped) = record.copies.remove(name) else {
        return Ok(None);
    };
    let is_copy = match root.about(path)? {
        Some((_, about)) => stamp(about) == stamped,
        None => false,
    };
    if is_copy {
        root.unlink(path)?;
    }
    record.write(root)?;
    Ok(is_copy.then_some(Did::Removed))
}

/// How a copy is told from another file in its place.
fn stamp(about: About) -> String {
    let (seconds, nanoseconds) = about.written;
    format!("{} {seconds}.{nanoseconds:09}", about.size)
}

/// The copies that were made, by name.
struct Record {
    copies: BTreeMap<String, String>,
}

impl Record {
    fn path() -> String {
        path("copied-programs")
    }

    fn read(root: &Root) -> io::Result<Self> {
        let text = root.text(&Self::path())?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let copies = lines.filter_map(|line| line.split_once(' '));
        Ok(Self {
            copies: copies
                .map(|(name, stamp)| (name.to_owned(), stamp.to_owned()))
                .collect(),
        })
    }

    fn write(&self, root: &Root) -> io::Result<()> {
        if self.copies.is_empty() {
            return root.unlink(&Self::path());
        }
        let mut text = "# Programs that \"leaseroute hooks install --programs\" copied here: \
                        name, size, time.\n"
            .to_owned();
        for (name, stamp) in &self.copies {
            text.push_str(&format!("{name} {stamp}\n"));
        }
        root.put_file(&Self::path(), text.as_bytes(), 0o644, None, true)
    }
}
