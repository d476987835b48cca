//! The files of a system whose root is some folder: `/`, or that of an image.
//!
//! Every path is resolved within the root by the kernel (openat2(2), `RESOLVE_IN_ROOT`), so
//! that no link in an image leads out of it. Files are replaced whole or not at all: they
//! are written beside their place and renamed. Meanwhile they have a name that starts with
//! a dot and ends with `~`, which the clients skip, and a mode that none of them runs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawMode, RenameFlags, ResolveFlags, Stat, Uid,
};
use rustix::io::Errno;

use crate::error::CliError;

/// The most that is read of a file, in bytes.
const LIMIT: u64 = 64 << 20;

/// A folder as the root of a system.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

/// What is at a path.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    File {
        bytes: Vec<u8>,
        about: About,
    },
    Link(PathBuf),
    /// A folder, a device or the like.
    Other,
}

/// Whose a file or folder is, and who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// The permission bits, with set-uid, set-gid and sticky.
    pub(crate) mode: RawMode,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// When it was written last, in seconds and nanoseconds since 1970.
    pub(crate) written: (i64, u64),
}

impl About {
    #[expect(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the types of these fields depend on the platform"
    )]
    fn new(stat: &Stat) -> Self {
        Self {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            written: (i64::from(stat.st_mtime), stat.st_mtime_nsec as u64),
        }
    }

    /// Whether it is root's, as far as this process could make it so.
    pub(crate) fn is_roots(&self) -> bool {
        !may_give_away() || (self.uid, self.gid) == (0, 0)
    }
}

/// Whether this process can make files root's. Others make an image of their own.
fn may_give_away() -> bool {
    rustix::process::geteuid().is_root()
}

impl Root {
    /// Opens a folder as a root.
    pub(crate) fn open(path: &Path) -> Result<Self, CliError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(folder) => Ok(Self {
                folder,
                path: path.to_owned(),
            }),
            Err(e) => Err(CliError::Read {
                path: path.to_owned(),
                source: e.into(),
            }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is this system, and not an image.
    pub(crate) fn is_here(&self) -> bool {
        let here = rustix::fs::stat("/");
        let this = rustix::fs::fstat(&self.folder);
        match (here, this) {
            (Ok(here), Ok(this)) => (here.st_dev, here.st_ino) == (this.st_dev, this.st_ino),
            _ => false,
        }
    }

    /// Opens a path, links followed within the root. `None`: it is not there.
    fn reach(&self, path: &str, flags: OFlags) -> io::Result<Option<OwnedFd>> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.folder, path, flags, Mode::empty(), resolve) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn folder(&self, path: &str) -> io::Result<Option<OwnedFd>> {
        let path = if path.is_empty() { "/" } else { path };
        self.reach(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// What is at a path, a link in its last part not followed.
    pub(crate) fn find(&self, path: &str) -> io::Result<Found> {
        let Some((folder, name)) = self.parent(path)? else {
            return Ok(Found::Nothing);
        };
        let stat = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(e) => return Err(e.into()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
                let mut bytes = Vec::new();
                File::from(file).take(LIMIT).read_to_end(&mut bytes)?;
                Ok(Found::File {
                    bytes,
                    about: About::new(&stat),
                })
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&folder, name, Vec::new())?;
                Ok(Found::Link(OsString::from_vec(target.into_bytes()).into()))
            }
            _ => Ok(Found::Other),
        }
    }

    /// Whether anything is at a path, be it a link that leads nowhere.
    pub(crate) fn has(&self, path: &str) -> io::Result<bool> {
        let Some((folder, name)) = self.parent(path)? else {
            return Ok(false);
        };
        match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// What a path leads to, links followed. `None`: nothing.
    pub(crate) fn about(&self, path: &str) -> io::Result<Option<(FileType, About)>> {
        let Some(fd) = self.reach(path, OFlags::PATH)? else {
            return Ok(None);
        };
        let stat = rustix::fs::fstat(fd)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        Ok(Some((kind, About::new(&stat))))
    }

    /// Whether two paths are one place, since a folder above is a link to another (as /lib
    /// is to /usr/lib).
    pub(crate) fn is_same_place(&self, one: &str, other: &str) -> io::Result<bool> {
        let (Some((one, name)), Some((other, other_name))) =
            (self.parent(one)?, self.parent(other)?)
        else {
            return Ok(false);
        };
        let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
        Ok(name == other_name && (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
    }

    /// The text of a file, links followed; empty when it is not there, or no file.
    pub(crate) fn text(&self, path: &str) -> io::Result<String> {
        match self.about(path)? {
            Some((FileType::RegularFile, _)) => {}
            _ => return Ok(String::new()),
        }
        let Some(fd) = self.reach(path, OFlags::RDONLY)? else {
            return Ok(String::new());
        };
        let mut bytes = Vec::new();
        File::from(fd).take(LIMIT).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names in a folder in order; none when it is not there.
    pub(crate) fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let Some(fd) = self.reach(path, OFlags::RDONLY | OFlags::DIRECTORY)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Makes the folders above a path that are missing, 0755, whatever the umask is.
    pub(crate) fn make_folders(&self, path: &str) -> io::Result<()> {
        let Some((above, _)) = path.rsplit_once('/') else {
            return Ok(());
        };
        if above.is_empty() || self.folder(above)?.is_some() {
            return Ok(());
        }
        self.make_folders(above)?;
        let (folder, name) = self.parent(above)?.ok_or(ErrorKind::NotFound)?;
        rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o700))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
        to_root(&made)?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
        Ok(())
    }

    /// Puts a file in place. Its folder must be there. Where nothing was, nothing that has
    /// come meanwhile is written over.
    pub(crate) fn put_file(
        &self,
        path: &str,
        bytes: &[u8],
        mode: RawMode,
        owner: Option<(u32, u32)>,
        replaces: bool,
    ) -> io::Result<()> {
        self.put(path, replaces, |folder, name| {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o600))?;
            let mut file = File::from(fd);
            file.write_all(bytes)?;
            match owner {
                None => to_root(&file)?,
                Some((uid, gid)) => {
                    rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
                }
            }
            // After the owner, since a change of owner takes set-uid away.
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            file.sync_all()
        })
    }

    /// Puts a symbolic link in place.
    pub(crate) fn put_link(&self, path: &str, target: &str, replaces: bool) -> io::Result<()> {
        self.put(path, replaces, |folder, name| {
            rustix::fs::symlinkat(target, folder, name)?;
            if may_give_away() {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(folder, name, Some(Uid::ROOT), Some(Gid::ROOT), flags)?;
            }
            Ok(())
        })
    }

    /// Makes something beside its place, and renames it.
    fn put(
        &self,
        path: &str,
        replaces: bool,
        make: impl Fn(&OwnedFd, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        let (folder, name) = self.parent(path)?.ok_or(ErrorKind::NotFound)?;
        let aside = format!(".{name}.new~");
        // What a run left there that was killed.
        unlink(&folder, &aside)?;
        let put = make(&folder, &aside).and_then(|()| {
            if replaces {
                Ok(rustix::fs::renameat(&folder, &aside, &folder, name)?)
            } else {
                rename_to_nothing(&folder, &aside, name)
            }
        });
        if put.is_err() {
            // The first error is the one to tell of.
            drop(unlink(&folder, &aside));
        }
        put
    }

    /// Sets a file's mode, and makes it root's. Links are not followed.
    pub(crate) fn set_mode(&self, path: &str, mode: RawMode) -> io::Result<()> {
        let (folder, name) = self.parent(path)?.ok_or(ErrorKind::NotFound)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
        to_root(&file)?;
        Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// Takes a file or link away.
    pub(crate) fn unlink(&self, path: &str) -> io::Result<()> {
        match self.parent(path)? {
            Some((folder, name)) => unlink(&folder, name),
            None => Ok(()),
        }
    }

    /// Takes a folder away if nothing is in it, and says whether it did.
    pub(crate) fn remove_folder(&self, path: &str) -> io::Result<bool> {
        let Some((folder, name)) = self.parent(path)? else {
            return Ok(false);
        };
        match rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::BUSY) => {
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The folder of a path, if it is there, and the name in it.
    fn parent<'a>(&self, path: &'a str) -> io::Result<Option<(OwnedFd, &'a str)>> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(self.folder(above)?.map(|folder| (folder, name)))
    }
}

fn to_root(file: &impl std::os::fd::AsFd) -> io::Result<()> {
    if may_give_away() {
        rustix::fs::fchown(file, Some(Uid::ROOT), Some(Gid::ROOT))?;
    }
    Ok(())
}

/// Renames to a name that nothing has.
fn rename_to_nothing(folder: &OwnedFd, from: &str, to: &str) -> io::Result<()> {
    match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot, but have hard links.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(folder, from, folder, to, AtFlags::empty())?;
            unlink(folder, from)
        }
        done => Ok(done?),
    }
}

/// What is not there is gone already.
fn unlink(folder: &OwnedFd, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
