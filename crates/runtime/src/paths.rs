//! Where things live: the configuration folders and the state folder.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use leaseroute_config::Folders;

/// The environment variable that replaces [`STATE_ROOT`].
pub const STATE_VARIABLE: &str = "LEASEROUTE_STATE_DIR";

/// Where the state folders of all network namespaces lie.
pub const STATE_ROOT: &str = "/run/leaseroute";

/// The folders that one run works with.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The configuration folders.
    pub configuration: Folders,
    /// The state folder of this network namespace. It need not exist.
    pub state: PathBuf,
}

impl Paths {
    /// The folders as the environment says.
    #[must_use]
    pub fn from_environment() -> Self {
        let folder = |variable| {
            env::var_os(variable)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let root = folder(STATE_VARIABLE).unwrap_or_else(|| PathBuf::from(STATE_ROOT));
        Self {
            configuration: Folders::new(folder(Folders::VARIABLE)),
            state: state_folder(&root),
        }
    }
}

/// The state folder of the network namespace that the process is in. Interface indexes
/// mean something within one namespace only, so each has a folder, named after the
/// namespace's inode (namespaces(7)).
fn state_folder(root: &Path) -> PathBuf {
    match fs::metadata("/proc/self/ns/net") {
        Ok(namespace) => root.join(namespace.ino().to_string()),
        // Without /proc there is hardly more than one namespace to tell apart.
        Err(_) => root.join("default"),
    }
}
