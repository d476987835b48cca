//! What this process needs to make network namespaces, and how to get it without root.
//!
//! Owns the step into a user namespace and the words for those who cannot take it. See
//! user_namespaces(7), and for the switches of distributions the files named below.

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};
use thiserror::Error;

/// Set for a test that has been started again inside a user namespace.
const INSIDE: &str = "LEASEROUTE_TEST_INSIDE_USERNS";

/// How the right to make network namespaces was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The process had it.
    Given,
    /// In a user namespace of its own, where it counts as root.
    UserNamespace,
}

/// The kernel lets this process make no network namespace.
#[derive(Debug, Error)]
#[error("failed to make a network namespace ({refusal}); {advice}")]
pub struct NotPermitted {
    refusal: io::Error,
    advice: Advice,
}

/// What to do about it, from the switches that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advice {
    /// Ubuntu 23.10 and later.
    AppArmor,
    /// A patch that Debian and others carried until 2021.
    DebianSwitch,
    /// user.max_user_namespaces is 0.
    Limit,
    /// A container or a security module, most likely.
    Unknown,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cure = match self {
            Self::AppArmor => {
                "AppArmor keeps users from it: \"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\" as root lifts that, or run this with sudo"
            }
            Self::DebianSwitch => {
                "\"sysctl -w kernel.unprivileged_userns_clone=1\" as root allows it, or run this with sudo"
            }
            Self::Limit => {
                "user.max_user_namespaces is 0: \"sysctl -w user.max_user_namespaces=1000\" as root allows it, or run this with sudo"
            }
            Self::Unknown => {
                "run this with sudo; in a container, it needs CAP_SYS_ADMIN and a writable /proc/sys (docker run --privileged)"
            }
        };
        f.write_str(cure)
    }
}

impl Advice {
    fn here() -> Self {
        let is = |key: &str, value: &str| {
            let path = Path::new("/proc/sys").join(key);
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
        };
        if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
            Self::AppArmor
        } else if is("kernel/unprivileged_userns_clone", "0") {
            Self::DebianSwitch
        } else if is("user/max_user_namespaces", "0") {
            Self::Limit
        } else {
            Self::Unknown
        }
    }
}

/// Moves this process into a network namespace of its own, so that nothing it does later
/// can touch the machine's network, and into a user namespace first where it must.
///
/// Call it before any thread is started: the kernel refuses a process with threads.
///
/// # Errors
///
/// When neither is permitted. The message says what to do.
pub fn isolate() -> Result<Privilege, NotPermitted> {
    if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return Ok(Privilege::Given);
    }
    enter_user_namespace()
        .map(|()| Privilege::UserNamespace)
        .map_err(|refusal| NotPermitted {
            refusal,
            advice: Advice::here(),
        })
}

fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    // Without this the kernel accepts no group map from an ordinary user.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    // Where AppArmor restricts users, only this step fails.
    unshare(CloneFlags::CLONE_NEWNET)?;
    Ok(())
}

/// Runs a test that needs network namespaces. Without the right to make them the test is
/// run again inside a user namespace, with util-linux's unshare(1). Where that fails too,
/// it is skipped with a notice on the terminal, or fails when the environment has
/// `CI=true`.
///
/// `name` is the test's full name as `cargo test -- --list` shows it.
///
/// # Panics
///
/// When the test fails, or is skipped in CI.
#[expect(clippy::panic, reason = "a test ends with a panic")]
pub fn with_namespaces(name: &str, test: impl FnOnce()) {
    let Err(refusal) = try_namespace() else {
        return test();
    };
    let why = if std::env::var_os(INSIDE).is_some() {
        format!("no network namespace inside a user namespace: {refusal}")
    } else {
        match run_again(name) {
            Ok(Some(0)) => return,
            Ok(Some(SKIPPED)) => format!("{refusal}; {}", Advice::here()),
            Ok(_) => panic!("{name} failed inside a user namespace"),
            Err(error) => format!("failed to start unshare(1): {error}"),
        }
    };
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{name} cannot run: {why}"
    );
    // Past the test harness, which would keep it to itself.
    let notice = format!("\nSKIPPED {name}: {why}\n");
    drop(io::stderr().write_all(notice.as_bytes()));
}

/// What unshare(1) exits with when it cannot do its own part.
const SKIPPED: i32 = 1;

fn run_again(name: &str) -> io::Result<Option<i32>> {
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(std::env::current_exe()?)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status()?;
    Ok(status.code())
}

/// Tries it in a thread that ends at once.
fn try_namespace() -> Result<(), Errno> {
    let attempt = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET));
    attempt.join().unwrap_or(Err(Errno::EAGAIN))
}
