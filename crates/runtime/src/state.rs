//! The state folder: leases, events that wait, and the outcome of the last run.
//!
//! ```text
//! lock             flock(2); who holds it may write all but inbox/
//! leases/7.4.json  the record of interface 7, IPv4
//! metadata/7.4.json  what a metadata service says of it
//! inbox/…​.json     events of runs that wait for the lock
//! inbox/…​.exit     how such an event ended, until its run has read it
//! last.4.json      what the last run that did anything found
//! watch.lock       flock(2) of the watcher, while it lives
//! watch.json       what the watcher tells of itself
//! ```
//!
//! Files are replaced by rename, so a reader never sees half of one. The folder only
//! remembers leases: what is installed, the kernel knows. A file that cannot be read
//! counts as not there.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leaseroute_core::{CardMetadata, Event, Family, LeaseBook, RawEvent, Record, RecordKey};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::exit::Exit;
use crate::files;
use crate::lock::{self, Lock, Try};

/// A temporary file that is older than this was left by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(60);

/// The most that is read of one file, in bytes.
const FILE_LIMIT: u64 = 4 << 20;

/// The most events that one look into the inbox takes in.
const INBOX_LIMIT: usize = 1024;

/// The prefix of files that are not complete yet.
const TEMPORARY: &str = ".tmp";

/// The extension of answers to events that waited.
const ANSWER: &str = "exit";

/// Something in the state folder failed.
#[derive(Debug, Error)]
#[error("failed to {action} {} in the state folder", path.display())]
pub struct StateError {
    /// What was tried.
    action: &'static str,
    /// On which file.
    path: PathBuf,
    /// The system's answer.
    #[source]
    source: io::Error,
}

impl StateError {
    /// The file, when it was read and made no sense.
    #[must_use]
    pub fn damaged(&self) -> Option<&Path> {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        matches!(self.source.kind(), InvalidData | UnexpectedEof).then_some(&self.path)
    }
}

/// An event that waits in the inbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) event: Event,
    pub(crate) raw: RawEvent,
}

/// What the last run that did anything found, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// When it ended, in seconds since 1970.
    pub time: u64,
    /// How many runs there were since the folder was made.
    pub runs: u64,
    /// How many changes it made.
    pub changes: usize,
    /// What failed: the change as an ip(8) command, and the kernel's answer.
    pub failures: Vec<String>,
    /// Names of interfaces in events that no interface had.
    pub unknown_interfaces: Vec<String>,
    /// How it ended.
    pub exit: u8,
}

/// The state folder of one network namespace.
#[derive(Clone, Debug)]
pub struct StateFolder {
    path: PathBuf,
}

impl StateFolder {
    /// A folder that need not exist: reading gives nothing then.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the records.
    #[must_use]
    pub fn leases(&self) -> PathBuf {
        self.path.join("leases")
    }

    /// The folder of the events that wait.
    #[must_use]
    pub fn inbox_folder(&self) -> PathBuf {
        self.path.join("inbox")
    }

    /// Whether a file of that folder is an event, and not one that is still written, or an
    /// answer.
    #[must_use]
    pub fn is_event(name: &OsStr) -> bool {
        !name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes())
            && Path::new(name).extension() != Some(ANSWER.as_ref())
    }

    /// The records that can be read, and what is wrong with the others.
    #[must_use]
    pub fn read_book(&self) -> (LeaseBook, Vec<StateError>) {
        let (records, mut errors) = read_all::<Record>(&self.leases(), usize::MAX);
        let (said, others) = read_all::<CardMetadata>(&self.metadata(), usize::MAX);
        errors.extend(others);
        let book = LeaseBook::new(records.into_iter().map(|(_, record)| record));
        (
            book.with_metadata(said.into_iter().map(|(_, said)| said)),
            errors,
        )
    }

    /// The folder of what metadata services say.
    fn metadata(&self) -> PathBuf {
        self.path.join("metadata")
    }

    /// The outcome of the last run of a family that did anything.
    #[must_use]
    pub fn last_run(&self, family: Family) -> Option<LastRun> {
        let text = files::read(&self.last_path(family), FILE_LIMIT).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Reads a file of the folder that only its owner knows the form of. `None` when it is
    /// not there.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is too large, or has another form.
    pub fn read_file<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StateError> {
        let path = self.path.join(name);
        let text = match files::read(&path, FILE_LIMIT) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text,
        };
        let value = text.and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from));
        value.map(Some).map_err(|source| StateError {
            action: "read",
            path,
            source,
        })
    }

    /// Replaces such a file by rename. The folder must have been made.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn replace_file<T: Serialize>(&self, name: &str, value: &T) -> Result<(), StateError> {
        replace(&self.path.join(name), &self.path.join("inbox"), value)
    }

    fn last_path(&self, family: Family) -> PathBuf {
        self.path.join(format!("last.{}.json", family.digit()))
    }

    /// Opens the lock. Where it is missing, so may be the folder and its parts.
    fn open_lock(&self) -> Result<File, StateError> {
        let path = self.path.join("lock");
        let mut opened = OpenOptions::new().write(true).open(&path);
        if matches!(&opened, Err(e) if e.kind() == io::ErrorKind::NotFound) {
            self.make()?;
            // Who may open the file may lock it, and keep everybody waiting.
            opened = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&path);
        }
        opened.map_err(|source| StateError {
            action: "open",
            path,
            source,
        })
    }

    /// Makes the folder and its parts where they are missing.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn make(&self) -> Result<(), StateError> {
        for part in ["leases", "metadata", "inbox"] {
            let path = self.path.join(part);
            // The usual case costs one call.
            if !path.is_dir() {
                let made = DirBuilder::new().recursive(true).mode(0o755).create(&path);
                made.map_err(|source| StateError {
                    action: "make",
                    path,
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Result<Try, StateError> {
        lock::try_lock(self.open_lock()?).map_err(|source| self.locking(source))
    }

    /// Waits for the lock, at most for `patience`.
    pub(crate) fn wait(&self, file: File, patience: Duration) -> Result<Option<Lock>, StateError> {
        lock::wait(file, patience).map_err(|source| self.locking(source))
    }

    fn locking(&self, source: io::Error) -> StateError {
        let path = self.path.join("lock");
        StateError {
            action: "lock",
            path,
            source,
        }
    }

    /// Puts an event into the inbox and returns its file.
    pub(crate) fn post(&self, waiting: &Waiting) -> Result<PathBuf, StateError> {
        // The order of events must not depend on a clock that somebody sets.
        let since_boot = clock_gettime(ClockId::Boottime);
        let (seconds, nanoseconds) = (since_boot.tv_sec, since_boot.tv_nsec);
        let name = format!("{seconds:012}.{nanoseconds:09}-{}.json", process::id());
        let path = self.inbox_folder().join(name);
        write(&path, waiting).map(|()| path)
    }

    /// The events that wait, in the order they came, with their files.
    pub(crate) fn inbox(&self) -> (Vec<(PathBuf, Waiting)>, Vec<StateError>) {
        read_all(&self.inbox_folder(), INBOX_LIMIT)
    }

    /// Takes an event out of the inbox and leaves how it ended for the run that waits.
    pub(crate) fn answer(&self, posted: &Path, exit: Exit) -> Result<(), StateError> {
        let answer = write(&posted.with_extension(ANSWER), &exit.code());
        self.remove(posted).and(answer)
    }

    /// How a posted event ended, when another run has taken it in.
    pub(crate) fn take_answer(&self, posted: &Path) -> Option<Exit> {
        if posted.exists() {
            return None;
        }
        let path = posted.with_extension(ANSWER);
        let code = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        // One that stays is removed as abandoned.
        drop(fs::remove_file(&path));
        Some(code.and_then(Exit::from_code).unwrap_or(Exit::Failed))
    }

    /// Removes a file of ours; one that is gone already is fine.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), StateError> {
        match fs::remove_file(path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(StateError {
                action: "remove",
                path: path.to_owned(),
                source,
            }),
            _ => Ok(()),
        }
    }

    fn record_path(&self, (index, family): RecordKey) -> PathBuf {
        self.leases()
            .join(format!("{index}.{}.json", family.digit()))
    }

    /// Writes a record.
    pub(crate) fn write_record(&self, record: &Record) -> Result<(), StateError> {
        write(&self.record_path((record.index, record.family)), record)
    }

    /// Forgets a record.
    pub(crate) fn remove_record(&self, key: RecordKey) -> Result<(), StateError> {
        self.remove(&self.record_path(key))
    }

    fn said_path(&self, (index, family): RecordKey) -> PathBuf {
        let name = format!("{index}.{}.json", family.digit());
        self.metadata().join(name)
    }

    /// Writes what a metadata service says of a card.
    pub(crate) fn write_said(&self, said: &CardMetadata) -> Result<(), StateError> {
        write(&self.said_path((said.index, said.family)), said)
    }

    /// Forgets it.
    pub(crate) fn remove_said(&self, key: RecordKey) -> Result<(), StateError> {
        self.remove(&self.said_path(key))
    }

    /// Writes the outcome of a run and counts it.
    pub(crate) fn write_last(&self, family: Family, mut last: LastRun) -> Result<(), StateError> {
        last.runs = self.last_run(family).map_or(0, |before| before.runs) + 1;
        last.time = now();
        replace(&self.last_path(family), &self.path.join("inbox"), &last)
    }
}

/// The time, in seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// Reads all complete JSON files of a folder in the order of their names, at most `limit`.
/// A missing folder is empty; temporary files that somebody left behind are removed.
fn read_all<T: DeserializeOwned>(
    folder: &Path,
    limit: usize,
) -> (Vec<(PathBuf, T)>, Vec<StateError>) {
    let mut errors = Vec::new();
    let failed = |action, path: PathBuf, source| StateError {
        action,
        path,
        source,
    };
    let entries = match folder.read_dir() {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return (Vec::new(), errors),
        Err(e) => {
            errors.push(failed("list", folder.to_owned(), e));
            return (Vec::new(), errors);
        }
    };
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let mut found = Vec::new();
    for path in names {
        if !StateFolder::is_event(path.file_name().unwrap_or_default()) {
            remove_if_abandoned(&path);
            continue;
        }
        if found.len() == limit {
            break;
        }
        let read = files::read(&path, FILE_LIMIT)
            .and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from));
        match read {
            Ok(value) => found.push((path, value)),
            // Another run has taken it in meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => errors.push(failed("read", path, e)),
        }
    }
    (found, errors)
}

fn remove_if_abandoned(path: &Path) {
    let age = fs::metadata(path)
        .and_then(|m| m.modified())
        .map(|t| t.elapsed());
    if matches!(age, Ok(Ok(age)) if age > ABANDONED) {
        // The next look tries again.
        drop(fs::remove_file(path));
    }
}

/// Writes a file beside others of its kind.
fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), StateError> {
    replace(path, path.parent().unwrap_or(Path::new("/")), value)
}

/// Replaces a file by rename. Until then it is in `folder`, one that is looked through for
/// what killed runs left.
fn replace<T: Serialize>(path: &Path, folder: &Path, value: &T) -> Result<(), StateError> {
    let failed = |source| StateError {
        action: "write",
        path: path.to_owned(),
        source,
    };
    let text = serde_json::to_vec(value)
        .map_err(io::Error::from)
        .map_err(failed)?;
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder)
        .map_err(failed)?;
    file.write_all(&text).map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}
