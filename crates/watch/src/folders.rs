//! Follows folders that need not exist yet, by inotify(7).
//!
//! A watch is on a folder, not on its name, so the folders above a followed one are watched
//! too, for that one name: it may come later, and be removed or renamed and made again. What
//! happens below a link is seen in the folder that it leads to, but not that the link is
//! changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf, absolute};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How much is read at once, in bytes; an event takes 16 and its name.
const BUFFER: usize = 16 << 10;

/// What is asked for of a followed folder, besides its own end.
const FILES: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE);

/// What is asked for of the folders above.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE);

/// What says that a watch tells of its folder no longer.
const ENDED: ReadFlags = ReadFlags::DELETE_SELF
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED);

/// Folders that are followed.
#[derive(Debug)]
pub(crate) struct Folders {
    inotify: AsyncFd<OwnedFd>,
    folders: Vec<PathBuf>,
    /// What each watch is for; one folder may be there for several.
    watches: BTreeMap<i32, Vec<Role>>,
}

/// Something changed in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    /// The folder, as it was given.
    pub(crate) folder: PathBuf,
    /// The file. `None`: anything may have changed, since the folder came or went, or events
    /// were lost.
    pub(crate) name: Option<OsString>,
}

/// What a watch is for.
#[derive(Debug)]
enum Role {
    /// The followed folder of this number.
    Followed(usize),
    /// A folder above a followed one, for one name in it.
    Above(OsString),
}

impl Folders {
    /// Follows folders that need not exist. What is in them already is no change.
    ///
    /// # Errors
    ///
    /// When a folder must not be read, or the limits of inotify(7) are reached.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[expect(
        deprecated,
        reason = "the successor is unsafe, for types whose descriptor may change; this does not"
    )]
    pub(crate) fn follow(folders: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut followed = Self {
            inotify: AsyncFd::with_interest(inotify, Interest::READABLE)?,
            folders: folders.into_iter().collect(),
            watches: BTreeMap::new(),
        };
        followed.arrange()?;
        Ok(followed)
    }

    /// Waits until files have been closed after writing, moved in, moved out or removed.
    /// Nothing is lost when the wait is given up.
    ///
    /// # Errors
    ///
    /// When a folder that came must not be read, or the limits of inotify(7) are reached.
    pub(crate) async fn changed(&mut self) -> io::Result<Vec<Change>> {
        loop {
            let mut ready = self.inotify.readable_mut().await?;
            let seen = ready.try_io(|inotify| read(inotify.get_ref()));
            let Ok(seen) = seen else {
                continue;
            };
            let changes = self.understand(seen?)?;
            if !changes.is_empty() {
                return Ok(changes.into_iter().collect());
            }
        }
    }

    /// Sets all watches anew.
    fn arrange(&mut self) -> io::Result<()> {
        for watch in std::mem::take(&mut self.watches).into_keys() {
            // The kernel has removed those whose folder is gone.
            inotify::remove_watch(&self.inotify, watch).ok();
        }
        for number in 0..self.folders.len() {
            self.arrange_one(number)?;
        }
        Ok(())
    }

    /// Watches what there is of a path, from the root on: a part that comes after it was
    /// looked for is told of by the one above.
    fn arrange_one(&mut self, number: usize) -> io::Result<()> {
        let Some(path) = self.folders.get(number) else {
            return Ok(());
        };
        let path = absolute(path)?;
        let mut parts: Vec<&Path> = path.ancestors().collect();
        parts.reverse();
        let names = path.iter().skip(1).map(|name| Some(name.to_owned()));
        let mut refused = None;
        for (part, name) in parts.into_iter().zip(names.chain([None])) {
            let (role, what) = match name {
                Some(name) => (Role::Above(name), NAMES),
                None => (
                    Role::Followed(number),
                    FILES | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF,
                ),
            };
            let what = what | WatchFlags::ONLYDIR | WatchFlags::MASK_ADD;
            match inotify::add_watch(&self.inotify, part, what) {
                Ok(watch) => {
                    self.watches.entry(watch).or_default().push(role);
                    refused = None;
                }
                Err(Errno::NOENT | Errno::NOTDIR) => break,
                // One may go through a folder without seeing what is in it.
                Err(Errno::ACCESS) => refused = Some(Errno::ACCESS),
                Err(error) => return Err(error.into()),
            }
        }
        refused.map_or(Ok(()), |error| Err(error.into()))
    }

    /// What events mean for the followed folders.
    fn understand(&mut self, seen: Vec<Seen>) -> io::Result<BTreeSet<Change>> {
        let mut changes = BTreeSet::new();
        let mut anything = false;
        for Seen { watch, what, name } in seen {
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                anything = true;
            }
            // A watch that was given up may have left events.
            let Some(roles) = self.watches.get(&watch) else {
                continue;
            };
            anything |= what.intersects(ENDED);
            for role in roles {
                match role {
                    Role::Above(awaited) => anything |= name.as_ref() == Some(awaited),
                    Role::Followed(number) => {
                        let is_file = what.bits() & FILES.bits() != 0
                            && !what.contains(ReadFlags::ISDIR)
                            && name.is_some();
                        let folder = self.folders.get(*number).filter(|_| is_file);
                        changes.extend(folder.map(|folder| Change {
                            folder: folder.clone(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
        if anything {
            self.arrange()?;
            let folders = self.folders.iter().cloned();
            changes = folders
                .map(|folder| Change { folder, name: None })
                .collect();
        }
        Ok(changes)
    }
}

/// An event.
struct Seen {
    /// The watch; -1 for events that were lost.
    watch: i32,
    what: ReadFlags,
    name: Option<OsString>,
}

/// Reads what there is, at most one buffer full.
fn read(inotify: &OwnedFd) -> io::Result<Vec<Seen>> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut reader = Reader::new(inotify, &mut buffer);
    let mut seen = Vec::new();
    loop {
        let event = reader.next()?;
        let name = event.file_name();
        seen.push(Seen {
            watch: event.wd(),
            what: event.events(),
            name: name.map(|name| OsStr::from_bytes(name.to_bytes()).to_owned()),
        });
        if reader.is_buffer_empty() {
            return Ok(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    /// Long enough for what comes, and for seeing that nothing does.
    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(50);

    /// A place with folders to come.
    struct Place {
        top: TempDir,
        followed: Folders,
    }

    impl Place {
        /// Follows folders in a new place in which some exist.
        fn new(existing: &[&str], followed: &[&str]) -> Self {
            let top = tempfile::tempdir().unwrap();
            for folder in existing {
                fs::create_dir_all(top.path().join(folder)).unwrap();
            }
            let followed = followed.iter().map(|folder| top.path().join(folder));
            let followed = Folders::follow(followed).unwrap();
            Self { top, followed }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.top.path().join(path)
        }

        fn write(&self, path: &str) {
            fs::write(self.path(path), "text").unwrap();
        }

        /// The next changes, as folder and file.
        async fn changes(&mut self) -> Vec<(String, Option<String>)> {
            let changes = timeout(LONG, self.followed.changed()).await;
            let top = self.top.path().to_owned();
            let text = |Change { folder, name }: Change| {
                let folder = folder.strip_prefix(&top).unwrap().to_str().unwrap();
                let name = name.map(|name| name.into_string().unwrap());
                (folder.to_owned(), name)
            };
            changes.unwrap().unwrap().into_iter().map(text).collect()
        }

        /// Waits until anything may have changed, and for what else there is then.
        async fn anything(&mut self, folder: &str) {
            assert!(self.changes().await.contains(&(folder.to_owned(), None)));
            while let Ok(more) = timeout(SHORT, self.followed.changed()).await {
                more.unwrap();
            }
        }

        async fn is_quiet(&mut self) -> bool {
            timeout(SHORT, self.followed.changed()).await.is_err()
        }
    }

    fn file(folder: &str, name: &str) -> (String, Option<String>) {
        (folder.to_owned(), Some(name.to_owned()))
    }

    #[tokio::test]
    async fn a_written_file_is_told_of() {
        let mut place = Place::new(&["a", "b"], &["a", "b"]);
        assert!(place.is_quiet().await);
        place.write("a/1");
        assert_eq!(place.changes().await, [file("a", "1")]);
        place.write("b/2");
        assert_eq!(place.changes().await, [file("b", "2")]);
        assert!(place.is_quiet().await);
    }

    #[tokio::test]
    async fn a_file_renamed_into_its_place_is_told_of_once() {
        let mut place = Place::new(&["a"], &["a"]);
        place.write("1");
        fs::rename(place.path("1"), place.path("a/1")).unwrap();
        assert_eq!(place.changes().await, [file("a", "1")]);
        assert!(place.is_quiet().await);
    }

    #[tokio::test]
    async fn files_that_go_are_told_of() {
        let mut place = Place::new(&["a"], &["a"]);
        place.write("a/1");
        place.write("a/2");
        place.changes().await;
        fs::remove_file(place.path("a/1")).unwrap();
        fs::rename(place.path("a/2"), place.path("2")).unwrap();
        assert_eq!(place.changes().await, [file("a", "1"), file("a", "2")]);
    }

    #[tokio::test]
    async fn what_is_only_open_is_not_told_of() {
        let mut place = Place::new(&["a"], &["a"]);
        let open = fs::File::create(place.path("a/1")).unwrap();
        assert!(place.is_quiet().await);
        drop(open);
        assert_eq!(place.changes().await, [file("a", "1")]);
    }

    #[tokio::test]
    async fn folders_within_are_none_of_its_files() {
        let mut place = Place::new(&["a"], &["a"]);
        fs::create_dir(place.path("a/b")).unwrap();
        place.write("a/b/1");
        fs::remove_dir_all(place.path("a/b")).unwrap();
        assert!(place.is_quiet().await);
    }

    #[tokio::test]
    async fn a_folder_that_comes_later_is_followed() {
        let mut place = Place::new(&[], &["a/b/c"]);
        place.write("noise");
        assert!(place.is_quiet().await);
        fs::create_dir(place.path("a")).unwrap();
        place.anything("a/b/c").await;
        fs::create_dir_all(place.path("a/b/c")).unwrap();
        place.anything("a/b/c").await;
        place.write("a/b/c/1");
        assert_eq!(place.changes().await, [file("a/b/c", "1")]);
    }

    #[tokio::test]
    async fn a_file_that_was_there_before_the_folder_was_followed_is_not_missed() {
        let mut place = Place::new(&[], &["a/b"]);
        fs::create_dir_all(place.path("a/b")).unwrap();
        place.write("a/b/1");
        let changes = place.changes().await;
        assert!(changes.contains(&("a/b".to_owned(), None)), "{changes:?}");
    }

    #[tokio::test]
    async fn a_folder_that_is_removed_and_made_again_is_followed_again() {
        let mut place = Place::new(&["a/b"], &["a/b"]);
        for removed in ["a/b", "a"] {
            fs::remove_dir_all(place.path(removed)).unwrap();
            place.anything("a/b").await;
            fs::create_dir_all(place.path("a/b")).unwrap();
            place.anything("a/b").await;
            place.write("a/b/1");
            assert_eq!(place.changes().await, [file("a/b", "1")]);
        }
    }

    #[tokio::test]
    async fn a_removed_folder_that_somebody_still_holds_open_is_given_up() {
        let mut place = Place::new(&["a"], &["a"]);
        let _open = fs::File::open(place.path("a")).unwrap();
        fs::remove_dir(place.path("a")).unwrap();
        place.anything("a").await;
        fs::create_dir(place.path("a")).unwrap();
        place.anything("a").await;
        place.write("a/1");
        assert_eq!(place.changes().await, [file("a", "1")]);
    }

    #[tokio::test]
    async fn renamed_folders_give_way_to_what_takes_their_name() {
        let mut place = Place::new(&["a/b", "new/b"], &["a/b"]);
        fs::rename(place.path("a"), place.path("old")).unwrap();
        place.anything("a/b").await;
        place.write("old/b/1");
        assert!(place.is_quiet().await);
        fs::rename(place.path("new"), place.path("a")).unwrap();
        place.anything("a/b").await;
        place.write("a/b/1");
        assert_eq!(place.changes().await, [file("a/b", "1")]);
    }

    #[tokio::test]
    async fn a_folder_above_another_is_followed_beside_it() {
        let mut place = Place::new(&["a/b"], &["a", "a/b"]);
        place.write("a/1");
        assert_eq!(place.changes().await, [file("a", "1")]);
        place.write("a/b/1");
        assert_eq!(place.changes().await, [file("a/b", "1")]);
    }

    #[tokio::test]
    async fn a_file_in_the_place_of_a_folder_is_waited_out() {
        let mut place = Place::new(&[], &["a/b"]);
        place.write("a");
        place.anything("a/b").await;
        fs::remove_file(place.path("a")).unwrap();
        place.anything("a/b").await;
        fs::create_dir_all(place.path("a/b")).unwrap();
        place.anything("a/b").await;
    }

    #[tokio::test]
    async fn lost_events_mean_that_anything_may_have_changed() {
        let mut place = Place::new(&["a", "b"], &["a", "b"]);
        let lost = Seen {
            watch: -1,
            what: ReadFlags::QUEUE_OVERFLOW,
            name: None,
        };
        let changes = place.followed.understand(vec![lost]).unwrap();
        let folders = changes.iter().map(|change| change.folder.clone());
        assert!(folders.eq([place.path("a"), place.path("b")]));
        assert!(changes.iter().all(|change| change.name.is_none()));
        place.write("b/1");
        assert_eq!(place.changes().await, [file("b", "1")]);
    }
}
