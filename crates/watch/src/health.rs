//! What the watcher tells of itself: a file in the state folder, for `status`.
//!
//! The file says what the watcher did, and stays when it ends. Whether it lives, its lock
//! says: flock(2) on a file beside it, which the kernel takes away with the process.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use leaseroute_runtime::{StateError, StateFolder};
use serde::{Deserialize, Serialize};

/// The file with the watcher's health.
const FILE: &str = "watch.json";

/// The file that a watcher holds an exclusive flock(2) on while it lives. Who may open it
/// may lock it, and keep the watcher from starting: its mode must be 0600.
const LOCK: &str = "watch.lock";

/// Why something of ours had to be put back, or why the watcher looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The watcher started: what was there before it.
    Start,
    /// A link came, went, or was set up or down.
    Link,
    /// An address came or went.
    Address,
    /// A router, or another route of table main, came or went.
    Router,
    /// Another program removed an object of ours.
    Removed,
    /// A client's lease file or a record of ours changed.
    Lease,
    /// A lease ended, and nobody announced it.
    Expired,
    /// Announcements of the kernel were lost, so everything was read again.
    Overrun,
    /// The configuration was read again.
    Configuration,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Link => "link",
            Self::Address => "address",
            Self::Router => "router",
            Self::Removed => "removed by others",
            Self::Lease => "lease",
            Self::Expired => "lease ended",
            Self::Overrun => "announcements lost",
            Self::Configuration => "configuration",
        })
    }
}

/// Another program removes the same object again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fight {
    /// The object, as the ip(8) command that adds it.
    pub object: String,
    /// How often it was removed since the fight began.
    pub times: u64,
    /// When it was removed last, in seconds since 1970.
    pub last: u64,
    /// Who removed it last, as far as the kernel tells: the program's name and process, or
    /// nothing when it had ended already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Until when the object is left as it is, in seconds since 1970.
    pub pause_until: u64,
}

/// The health of a watcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Its process.
    pub pid: u32,
    /// When it started, in seconds since 1970.
    pub started: u64,
    /// When it ended because it was told to, in seconds since 1970. `None` while it runs,
    /// and when it was killed.
    pub stopped: Option<u64>,
    /// When it last looked because something had happened, in seconds since 1970.
    pub last_event: Option<u64>,
    /// What had happened then.
    pub last_causes: Vec<Cause>,
    /// How often it looked.
    pub looks: u64,
    /// How many objects it put back, by cause.
    pub heals: BTreeMap<Cause, u64>,
    /// How often announcements of the kernel were lost.
    pub overruns: u64,
    /// The fights that are not over.
    pub fights: Vec<Fight>,
}

impl Health {
    /// What the last watcher told of itself. `None` when there was none since the boot.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is of another version.
    pub fn read(state: &StateFolder) -> Result<Option<Self>, StateError> {
        state.read_file(FILE)
    }

    /// Tells it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, state: &StateFolder) -> Result<(), StateError> {
        state.replace_file(FILE, self)
    }
}

/// The watcher's lock file, for whoever takes the lock.
#[must_use]
pub fn lock_path(state: &StateFolder) -> PathBuf {
    state.path().join(LOCK)
}

/// Takes the watcher's lock; it is held as long as the file is open. `None` when another
/// watcher lives.
///
/// # Errors
///
/// When there is no folder to have it in.
pub(crate) fn lock(state: &StateFolder) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(lock_path(state))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether a lock is still the one that others see: the state folder may have been removed,
/// and made again.
pub(crate) fn is_in_place(lock: &File, state: &StateFolder) -> bool {
    let (Ok(held), Ok(seen)) = (lock.metadata(), fs::metadata(lock_path(state))) else {
        return false;
    };
    (held.dev(), held.ino()) == (seen.dev(), seen.ino())
}

/// Whether a watcher lives. Needs no privilege, and takes no lock: that would be in the way
/// of a watcher that starts at that moment.
///
/// # Errors
///
/// When it could not be found out.
pub fn is_running(state: &StateFolder) -> io::Result<bool> {
    let file = match fs::metadata(lock_path(state)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", file.ino());
    // A list that is longer than a page may lack an entry when others go while it is read.
    for _ in 0..2 {
        let locks = fs::read_to_string(Path::new("/proc/locks"))?;
        if locks.lines().any(|line| is_held(line, &file)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a line of `/proc/locks` (proc_locks(5)) is the exclusive flock(2) on a file.
fn is_held(line: &str, file: &str) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    // A process that waits for a lock has an arrow in front.
    fields.next() == Some("FLOCK")
        && fields.next() == Some("ADVISORY")
        && fields.next() == Some("WRITE")
        && fields.nth(1) == Some(file)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn folder() -> (tempfile::TempDir, StateFolder) {
        let home = tempfile::tempdir().unwrap();
        let state = StateFolder::at(home.path().join("state"));
        (home, state)
    }

    fn told() -> Health {
        Health {
            pid: 7,
            started: 1000,
            last_event: Some(1010),
            last_causes: vec![Cause::Link, Cause::Removed],
            looks: 3,
            heals: [(Cause::Removed, 2)].into(),
            fights: vec![Fight {
                object: "ip rule add".to_owned(),
                times: 9,
                last: 1009,
                by: None,
                pause_until: 1020,
            }],
            ..Health::default()
        }
    }

    #[test]
    fn what_is_told_can_be_read() {
        let (_home, state) = folder();
        assert_eq!(Health::read(&state).unwrap(), None);
        state.make().unwrap();
        told().write(&state).unwrap();
        assert_eq!(Health::read(&state).unwrap(), Some(told()));
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let (_home, state) = folder();
        state.make().unwrap();
        told().write(&state).unwrap();
        let path = state.path().join(FILE);
        let whole = fs::read_to_string(&path).unwrap();
        let half = &whole[..whole.len() / 2];
        let unknown = whole.replace("removed", "never heard of");
        for text in ["", "{}", "[[[[", half, unknown.as_str()] {
            fs::write(&path, text).unwrap();
            assert!(Health::read(&state).is_err(), "{text}");
        }
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(Health::read(&state).is_err());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(Health::read(&state).is_err());
    }

    #[test]
    fn a_watcher_runs_as_long_as_it_holds_its_lock() {
        let (_home, state) = folder();
        assert!(!is_running(&state).unwrap());
        state.make().unwrap();
        let file = File::create(lock_path(&state)).unwrap();
        assert!(!is_running(&state).unwrap());
        file.try_lock().unwrap();
        assert!(is_running(&state).unwrap());
        // Looking takes no lock, and one on another file counts for nothing.
        let other = File::create(state.path().join("lock")).unwrap();
        other.try_lock().unwrap();
        file.unlock().unwrap();
        assert!(!is_running(&state).unwrap());
    }

    #[test]
    fn a_lock_is_known_by_its_kind_and_its_file() {
        let held = |line| is_held(line, "00:1a:35");
        assert!(held("1: FLOCK  ADVISORY  WRITE 12021 00:1a:35 0 EOF"));
        assert!(!held("1: FLOCK  ADVISORY  WRITE 12021 00:1a:351 0 EOF"));
        assert!(!held("1: FLOCK  ADVISORY  READ 12021 00:1a:35 0 EOF"));
        assert!(!held("1: -> FLOCK  ADVISORY  WRITE 12021 00:1a:35 0 EOF"));
        assert!(!held("1: POSIX  ADVISORY  WRITE 12021 00:1a:35 0 EOF"));
        assert!(!held(""));
    }
}
