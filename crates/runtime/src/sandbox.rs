//! What a hook and the watcher give up before they look at what a DHCP server sent.
//!
//! All capabilities but CAP_NET_ADMIN go, no program can be executed, and nothing can be
//! written outside the state folder (Landlock, Linux 5.13 and later; on older kernels
//! that part is missing). Each step is taken as far as the kernel allows: a hook that
//! cannot lock itself in still does its work.

use std::path::Path;

use landlock::{
    ABI, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError,
};
use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

/// Gives up what no run needs. `state` may still be written to, if it exists.
/// Returns what could not be given up.
#[must_use]
pub fn enter(state: &Path) -> Vec<String> {
    let privileges = give_up_privileges().map_err(|e| format!("privileges are kept: {e}"));
    let files = lock_in(state).map_err(|e| format!("no Landlock: {e}"));
    [privileges, files]
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

fn give_up_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    let held = capabilities(None)?;
    let needed = CapabilitySet::NET_ADMIN & held.permitted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: needed,
            permitted: needed,
            inheritable: CapabilitySet::empty(),
        },
    )
}

fn lock_in(state: &Path) -> Result<(), RulesetError> {
    let writing = AccessFs::from_write(ABI::V3);
    let denied: BitFlags<AccessFs> = writing | AccessFs::Execute;
    let mut ruleset = Ruleset::default().handle_access(denied)?.create()?;
    // A folder that cannot be opened is one that cannot be written to either.
    if let Ok(folder) = PathFd::new(state) {
        ruleset = ruleset.add_rule(PathBeneath::new(folder, writing))?;
    }
    ruleset.restrict_self().map(drop)
}
