//! Which files make up the configuration.
//!
//! Each folder may hold `config.toml` and `conf.d/*.toml`. `config.toml` comes first, then
//! the drop-ins of all folders in the order of their names. Of two files with one name the
//! administrator's replaces the vendor's, so that an empty one, or a link to `/dev/null`,
//! masks it. Missing files and folders are fine. This is the manner of systemd's drop-ins
//! (systemd.unit(5)).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use crate::error::{ConfigError, Warning};

/// The most that is read of one file, in bytes.
const LIMIT: u64 = 1 << 20;

/// The size of most files; reading one takes no more than two calls then.
const USUAL_SIZE: usize = 4 << 10;

/// Where the configuration lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// Those that win come last.
    rising: Vec<PathBuf>,
}

/// One file as it was read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl Folders {
    /// The vendor's folder.
    pub const VENDOR: &str = "/usr/lib/leaseroute";
    /// The administrator's folder.
    pub const ADMINISTRATOR: &str = "/etc/leaseroute";
    /// The environment variable that replaces both folders with one. Who calls us reads
    /// it and passes its value to [`Folders::new`].
    pub const VARIABLE: &str = "LEASEROUTE_CONFIG_DIR";

    /// The vendor's and the administrator's folder, or the one that replaces them.
    #[must_use]
    pub fn new(replacement: Option<PathBuf>) -> Self {
        match replacement {
            Some(folder) => Self {
                rising: vec![folder],
            },
            None => Self::of(Self::VENDOR, Self::ADMINISTRATOR),
        }
    }

    /// The folders of a vendor and an administrator at other places.
    pub fn of(vendor: impl Into<PathBuf>, administrator: impl Into<PathBuf>) -> Self {
        Self {
            rising: vec![vendor.into(), administrator.into()],
        }
    }

    /// Reads all files in the order in which they are laid over each other.
    pub(crate) fn read(&self, warnings: &mut Vec<Warning>) -> Result<Vec<Source>, ConfigError> {
        let mut sources = Vec::new();
        for folder in self.rising.iter().rev() {
            if let Some(source) = read_file(folder.join("config.toml"))? {
                sources.push(source);
                break;
            }
        }
        for path in self.drop_ins()?.into_values() {
            match read_file(path.clone())? {
                Some(source) => sources.push(source),
                None => warnings.push(Warning::Missing { path }),
            }
        }
        Ok(sources)
    }

    /// The drop-ins that count, by name.
    fn drop_ins(&self) -> Result<BTreeMap<OsString, PathBuf>, ConfigError> {
        let mut found = BTreeMap::new();
        for folder in &self.rising {
            let folder = folder.join("conf.d");
            let names = match list(&folder) {
                Ok(names) => names,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(source) => {
                    return Err(ConfigError::Read {
                        path: folder,
                        source,
                    });
                }
            };
            for name in names {
                let path = folder.join(&name);
                found.insert(name, path);
            }
        }
        Ok(found)
    }
}

fn list(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in folder.read_dir()? {
        let name = entry?.file_name();
        // A hidden file has no extension in Rust's eyes when it is only `.toml`, but
        // `.x.toml`, an editor's leftover, has one.
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden && Path::new(&name).extension() == Some(OsStr::new("toml")) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Reads a file; `None` when it does not exist.
fn read_file(path: PathBuf) -> Result<Option<Source>, ConfigError> {
    let mut bytes = Vec::with_capacity(USUAL_SIZE);
    let read = File::open(&path).and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes));
    match read {
        Ok(length) if length as u64 > LIMIT => Err(ConfigError::TooLarge { path, limit: LIMIT }),
        Ok(_) => Ok(Some(Source { path, bytes })),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigError::Read { path, source }),
    }
}
