//! The sourced shims, each in dash and in bash, against a caller that would notice anything.
//!
//! Every case sources the shipped file in a shell set up in some awkward way, with some
//! program in the place of the real one, and compares everything the shell can tell about
//! itself before and after. The program's place is a private mount of `/usr/libexec`, so the
//! file under test is the shipped one to the byte.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Shells that read the shims somewhere.
const DASH: &[&str] = &["dash"];
const BASH: &[&str] = &["bash"];
const BASH_POSIX: &[&str] = &["bash", "--posix"];

/// How the caller's shell is set up, each a reason for some line of the shims.
const CALLERS: &[(&str, &str)] = &[
    ("plain", ""),
    ("errexit and nounset", "set -eu"),
    ("noglob", "set -f"),
    ("noclobber", "set -C"),
    ("allexport", "set -a"),
    ("monitor", "set -m"),
    ("IFS of slashes and letters", "IFS=/xer-"),
    ("empty IFS", "set -eu; IFS="),
    ("no IFS", "set -u; unset IFS"),
    (
        "traps",
        "set -e; trap 'echo exit trap' EXIT; trap 'echo term' TERM; trap '' HUP",
    ),
    (
        "positional parameters",
        "set -u; set -- one 'two words' '*'",
    ),
    (
        "readonly variables",
        "readonly reason interface new_routers exit_status=7 timeout=x",
    ),
    ("strict umask and another folder", "umask 077; cd /usr"),
    ("no PATH", "set -e; PATH=/nowhere"),
];

/// What may stand where the program belongs.
const PROGRAMS: &[(&str, Program)] = &[
    ("succeeds", Program::Script("exit 0")),
    ("fails", Program::Script("exit 75")),
    ("crashes", Program::Script("kill -SEGV $$")),
    ("is interrupted", Program::Script("kill -INT $$")),
    ("is killed", Program::Script("kill -KILL $$")),
    ("reads its input", Program::Script("read -r line")),
    (
        "prints a lot",
        Program::Script(
            "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo 'on the output'; echo 'on the error' >&2; done",
        ),
    ),
    (
        "is no program",
        Program::File("\u{7f}ELF, but not really\n", 0o755),
    ),
    ("is empty", Program::File("", 0o755)),
    (
        "is not executable",
        Program::File("#!/bin/sh\nexit 0\n", 0o644),
    ),
    ("is a folder", Program::Folder),
    ("is missing", Program::Missing),
];

#[derive(Clone, Copy)]
enum Program {
    /// A shell script that first records its environment, then does this.
    Script(&'static str),
    File(&'static str, u32),
    Folder,
    Missing,
}

/// The file that is sourced, and what the host calls afterwards.
#[derive(Clone, Copy)]
struct Shim {
    file: &'static str,
    call: &'static str,
    /// Takes away what the file is meant to leave: its functions.
    forget: &'static str,
}

const FORGET: &str = "unset -f leaseroute_config leaseroute_restore leaseroute_dhclient";

const DEBIAN: Shim = Shim {
    file: "debian/zz-leaseroute",
    call: ":",
    forget: ":",
};
const RHEL_CONFIG: Shim = Shim {
    file: "rhel/leaseroute.sh",
    call: "leaseroute_config",
    forget: FORGET,
};
const RHEL_RESTORE: Shim = Shim {
    file: "rhel/leaseroute.sh",
    call: "leaseroute_restore",
    forget: FORGET,
};

/// What dhclient would put into the environment.
const LEASE: &[(&str, &str)] = &[
    ("reason", "BOUND"),
    ("interface", "eth1"),
    ("new_ip_address", "192.0.2.10"),
    ("new_subnet_mask", "255.255.255.0"),
    ("new_routers", "192.0.2.1"),
    (
        "new_host_name",
        "$(touch pwned) `touch pwned` ; touch pwned",
    ),
];

/// One run of a shell that sources a shim.
struct Run {
    folder: tempfile::TempDir,
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// A file that the run left, or an empty text.
    fn left(&self, name: &str) -> String {
        fs::read(self.folder.path().join(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The environment that the program saw.
    fn environment(&self) -> BTreeSet<String> {
        self.left("env").split('\0').map(str::to_owned).collect()
    }

    /// Everything that is wrong with it, in words.
    fn complaints(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.status != Some(0) {
            wrong.push(format!(
                "the shell ended with {:?}: {}",
                self.status,
                self.stderr.trim()
            ));
        }
        if self.left("status") != "0\n" {
            wrong.push(format!("the shim's status was {:?}", self.left("status")));
        }
        if self.left("end") != "end\n" {
            wrong.push("the caller did not go on after it".to_owned());
        }
        let (before, after) = (self.left("before"), self.left("after"));
        if before.is_empty() {
            wrong.push("the caller said nothing of itself".to_owned());
        }
        for line in before
            .lines()
            .filter(|line| !after.lines().any(|other| other == *line))
        {
            wrong.push(format!("the caller lost {line:?}"));
        }
        for line in after
            .lines()
            .filter(|line| !before.lines().any(|other| other == *line))
        {
            wrong.push(format!("the caller has got {line:?}"));
        }
        if self.stdout.contains("on the output") {
            wrong.push("the program's output reached the caller's".to_owned());
        }
        if self.folder.path().join("pwned").exists() {
            wrong.push("a value of the lease was executed".to_owned());
        }
        wrong
    }
}

fn shims_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hooks/dhclient")
}

/// Sources `shim` in `shell` after `preamble`, with `program` in its place.
fn run(
    shim: Shim,
    shell: &[&str],
    preamble: &str,
    program: Program,
    lease: &[(&str, &str)],
    path: &str,
) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    let place = folder.path().join("program");
    match program {
        Program::Script(does) => {
            let text = format!("#!/bin/sh\n/usr/bin/env -0 >'{out}/env'\n{does}\n");
            fs::write(&place, text).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Program::File(text, mode) => {
            fs::write(&place, text).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
        }
        Program::Folder => fs::create_dir(&place).unwrap(),
        Program::Missing => {}
    }
    // What changes by itself in a shell, or by the lines of the caller, is left out.
    let caller = format!(
        r#"tell() {{
    to=$1
    shift
    {{ set; export -p; set -o; trap; umask; pwd; echo "parameters $#:$*"; }} >'{out}/raw'
    [ -z "${{BASH_VERSION:-}}" ] || shopt >>'{out}/raw' || :
    /usr/bin/grep -a -v -E '^(export |declare -x )?(_|LINENO|PIPESTATUS|RANDOM|SRANDOM|SECONDS|EPOCH[A-Z]*|BASH_[A-Z_]*|FUNCNAME|OPTIND|status|to)=' '{out}/raw' >"$to"
    /usr/bin/rm '{out}/raw'
}}
{preamble}
tell '{out}/before' "$@"
. '{shim}'
{call}
status=$?
echo "$status" >'{out}/status'
{forget}
tell '{out}/after' "$@"
echo end >'{out}/end'
"#,
        shim = shims_folder().join(shim.file).display(),
        call = shim.call,
        forget = shim.forget,
    );
    fs::write(folder.path().join("caller"), caller).unwrap();

    let enter = format!(
        "mount -t tmpfs -o mode=755 tmpfs /usr/libexec && mkdir /usr/libexec/leaseroute && \
         if [ -e '{out}/program' ]; then \
           cp -a '{out}/program' /usr/libexec/leaseroute/leaseroute-dhclient; fi && \
         cd '{out}' && exec env -i PATH='{path}' \"$@\""
    );
    let user: &[&str] = if is_root() { &[] } else { &["--map-root-user"] };
    let output = Command::new("unshare")
        .args(user)
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &enter,
            "enter",
        ])
        .args(lease.iter().map(|(name, value)| format!("{name}={value}")))
        .args(shell)
        .arg(folder.path().join("caller"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Run {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        folder,
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Every awkward caller with every program.
fn nothing_leaks(shim: Shim, shell: &[&str]) {
    let mut wrong = Vec::new();
    for (caller, preamble) in CALLERS {
        for (does, program) in PROGRAMS {
            let run = run(shim, shell, preamble, *program, LEASE, "/usr/bin:/bin");
            for complaint in run.complaints() {
                wrong.push(format!("caller with {caller}, program {does}: {complaint}"));
            }
            if matches!(program, Program::Script(_)) {
                let seen = run.environment();
                for (name, value) in LEASE {
                    if !seen.contains(&format!("{name}={value}")) {
                        wrong.push(format!("caller with {caller}, program {does}: no {name}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn debian_shim_in_dash_changes_nothing() {
    nothing_leaks(DEBIAN, DASH);
}

#[test]
fn debian_shim_in_bash_changes_nothing() {
    nothing_leaks(DEBIAN, BASH);
}

#[test]
fn debian_shim_in_posix_bash_changes_nothing() {
    nothing_leaks(DEBIAN, BASH_POSIX);
}

#[test]
fn rhel_config_in_bash_changes_nothing() {
    nothing_leaks(RHEL_CONFIG, BASH);
}

#[test]
fn rhel_restore_in_bash_changes_nothing() {
    nothing_leaks(RHEL_RESTORE, BASH);
}

#[test]
fn rhel_config_in_dash_changes_nothing() {
    nothing_leaks(RHEL_CONFIG, DASH);
}

#[test]
fn bash_traps_for_errors_and_lines_stay_quiet() {
    let preamble = "set -eEuo pipefail; trap 'echo error trap' ERR";
    for shim in [DEBIAN, RHEL_CONFIG, RHEL_RESTORE] {
        let run = run(
            shim,
            BASH,
            preamble,
            Program::Script("exit 75"),
            LEASE,
            "/usr/bin:/bin",
        );
        assert_eq!(run.complaints(), Vec::<String>::new());
        assert!(!run.stdout.contains("error trap"), "{}", run.stdout);
    }
}

/// A stand-in for `timeout` shows that the bound is asked for, without waiting for it.
#[test]
fn a_program_that_hangs_is_ended() {
    let tools = tempfile::tempdir().unwrap();
    let stand_in = tools.path().join("timeout");
    let text = "#!/bin/sh\n[ \"$1 $2 $3\" = '-s KILL 30' ] || exit 9\nshift 3\nexec /usr/bin/timeout -s KILL 0.2 \"$@\"\n";
    fs::write(&stand_in, text).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", tools.path().display());
    for (shim, shell) in [(DEBIAN, DASH), (DEBIAN, BASH), (RHEL_CONFIG, BASH)] {
        let program = Program::Script("trap '' TERM; echo >>'reached'; exec sleep 600");
        let run = run(shim, shell, "set -eu", program, LEASE, &path);
        assert_eq!(run.complaints(), Vec::<String>::new());
        assert!(!run.environment().is_empty());
    }
}

/// An enter hook may add what the server did not send, as a plain variable.
#[test]
fn plain_variables_of_an_enter_hook_reach_the_program() {
    let lease: Vec<_> = LEASE
        .iter()
        .copied()
        .filter(|(name, _)| *name != "new_routers")
        .collect();
    let preamble = "new_routers=192.0.2.254; new_interface_mtu=1400; unset new_subnet_mask";
    for (shim, shell) in [(DEBIAN, DASH), (DEBIAN, BASH), (RHEL_CONFIG, BASH)] {
        let run = run(
            shim,
            shell,
            preamble,
            Program::Script("exit 0"),
            &lease,
            "/usr/bin:/bin",
        );
        let seen = run.environment();
        assert_eq!(run.complaints(), Vec::<String>::new());
        assert!(seen.contains("new_routers=192.0.2.254"), "{seen:?}");
        assert!(seen.contains("new_interface_mtu=1400"), "{seen:?}");
        assert!(
            !seen
                .iter()
                .any(|entry| entry.starts_with("new_subnet_mask=")),
            "{seen:?}"
        );
        assert!(
            !seen
                .iter()
                .any(|entry| entry.starts_with("new_static_routes=")),
            "{seen:?}"
        );
    }
}

/// NetworkManager's `11-dhclient` knows no reason and does not export the interface.
#[test]
fn networkmanagers_calls_get_a_reason() {
    let lease = [
        ("new_ip_address", "192.0.2.10"),
        ("new_routers", "192.0.2.1"),
    ];
    for (shim, reason) in [(RHEL_CONFIG, "BOUND"), (RHEL_RESTORE, "STOP")] {
        let preamble = "set -eu; interface=eth1";
        let run = run(
            shim,
            BASH,
            preamble,
            Program::Script("exit 0"),
            &lease,
            "/usr/bin:/bin",
        );
        let seen = run.environment();
        assert_eq!(run.complaints(), Vec::<String>::new());
        assert!(seen.contains("interface=eth1"), "{seen:?}");
        assert!(seen.contains(&format!("reason={reason}")), "{seen:?}");
    }
}

/// It calls for connections without DHCP, too.
#[test]
fn networkmanagers_up_without_a_lease_starts_nothing() {
    let preamble = "set -eu; interface=eth1";
    let run = run(
        RHEL_CONFIG,
        BASH,
        preamble,
        Program::Script("exit 0"),
        &[],
        "/usr/bin:/bin",
    );
    assert_eq!(run.complaints(), Vec::<String>::new());
    assert_eq!(run.left("env"), "");
}

#[test]
fn rhel_file_is_executable() {
    let mode = fs::metadata(shims_folder().join(RHEL_CONFIG.file))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(
        mode & 0o111,
        0o111,
        "dhclient-script skips it without the execute bit"
    );
}

#[test]
fn debian_file_name_suits_run_parts() {
    let name = Path::new(DEBIAN.file)
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    assert!(
        name.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
        "{name}"
    );
    assert!(name > "timesyncd", "{name}");
}
