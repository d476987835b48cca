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

use leaseroute_e2e::shell::{CALLERS, PROGRAMS, Program, caller, changes, is_root};

/// Shells that read the shims somewhere.
const DASH: &[&str] = &["dash"];
const BASH: &[&str] = &["bash"];
const BASH_POSIX: &[&str] = &["bash", "--posix"];

/// The file that is sourced, and what the host calls afterwards.
#[derive(Clone, Copy)]
struct Shim {
    /// Below `hooks/`.
    file: &'static str,
    /// The program that it starts, below `/usr/libexec/leaseroute`.
    program: &'static str,
    call: &'static str,
    /// Takes away what the file is meant to leave: its functions.
    forget: &'static str,
}

const FORGET: &str = "unset -f leaseroute_config leaseroute_restore leaseroute_dhclient";

const DEBIAN_ENTER: Shim = Shim {
    file: "dhclient/debian/enter-hooks.d/zz-leaseroute",
    ..DEBIAN
};
const DEBIAN: Shim = Shim {
    file: "dhclient/debian/exit-hooks.d/zz-leaseroute",
    program: "leaseroute-dhclient",
    call: ":",
    forget: ":",
};
const RHEL_CONFIG: Shim = Shim {
    file: "dhclient/rhel/leaseroute.sh",
    program: "leaseroute-dhclient",
    call: "leaseroute_config",
    forget: FORGET,
};
const RHEL_RESTORE: Shim = Shim {
    file: "dhclient/rhel/leaseroute.sh",
    program: "leaseroute-dhclient",
    call: "leaseroute_restore",
    forget: FORGET,
};

const DHCPCD: Shim = Shim {
    file: "dhcpcd/90-leaseroute",
    program: "leaseroute-dhcpcd",
    call: ":",
    forget: ":",
};

/// What the client would put into the environment.
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
        wrong.extend(changes(|name| self.left(name)));
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hooks")
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
    let file = shims_folder().join(shim.file).display().to_string();
    let caller = caller(&out, preamble, &file, shim.call, shim.forget);
    fs::write(folder.path().join("caller"), caller).unwrap();

    let enter = format!(
        "mount -t tmpfs -o mode=755 tmpfs /usr/libexec && mkdir /usr/libexec/leaseroute && \
         if [ -e '{out}/program' ]; then \
           cp -a '{out}/program' /usr/libexec/leaseroute/{program}; fi && \
         cd '{out}' && exec env -i PATH='{path}' \"$@\"",
        program = shim.program,
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
fn debian_enter_shim_in_dash_changes_nothing() {
    nothing_leaks(DEBIAN_ENTER, DASH);
}

#[test]
fn debian_enter_shim_in_bash_changes_nothing() {
    nothing_leaks(DEBIAN_ENTER, BASH);
}

#[test]
fn debian_enter_shim_in_posix_bash_changes_nothing() {
    nothing_leaks(DEBIAN_ENTER, BASH_POSIX);
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
fn dhcpcd_shim_in_dash_changes_nothing() {
    nothing_leaks(DHCPCD, DASH);
}

#[test]
fn dhcpcd_shim_in_bash_changes_nothing() {
    nothing_leaks(DHCPCD, BASH);
}

#[test]
fn dhcpcd_shim_in_posix_bash_changes_nothing() {
    nothing_leaks(DHCPCD, BASH_POSIX);
}

#[test]
fn bash_traps_for_errors_and_lines_stay_quiet() {
    let preamble = "set -eEuo pipefail; trap 'echo error trap' ERR";
    for shim in [DEBIAN, DEBIAN_ENTER, DHCPCD, RHEL_CONFIG, RHEL_RESTORE] {
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
    let text = "#!/bin/sh\ncase \"$1 $2 $3\" in '-s KILL 30' | '-s KILL 5') ;; *) exit 9 ;; esac\nshift 3\nexec /usr/bin/timeout -s KILL 0.2 \"$@\"\n";
    fs::write(&stand_in, text).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", tools.path().display());
    for (shim, shell) in [
        (DEBIAN, DASH),
        (DEBIAN, BASH),
        (DEBIAN_ENTER, DASH),
        (DEBIAN_ENTER, BASH),
        (DHCPCD, DASH),
        (DHCPCD, BASH),
        (RHEL_CONFIG, BASH),
    ] {
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
    for (shim, shell) in [
        (DEBIAN, DASH),
        (DEBIAN, BASH),
        (DEBIAN_ENTER, DASH),
        (DEBIAN_ENTER, BASH),
        (DHCPCD, DASH),
        (DHCPCD, BASH),
        (RHEL_CONFIG, BASH),
    ] {
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

/// Before the script has done its work only what brings an address matters.
#[test]
fn enter_hook_starts_the_program_for_new_addresses_only() {
    let four: &[_] = &[("new_ip_address", "192.0.2.10")];
    let six: &[_] = &[("new_ip6_address", "2001:db8::10")];
    let renewed: &[_] = &[
        ("new_ip6_address", "2001:db8::10"),
        ("old_ip6_address", "2001:db8::10"),
    ];
    let other: &[_] = &[
        ("new_ip6_address", "2001:db8::10"),
        ("old_ip6_address", "2001:db8::9"),
    ];
    let cases = [
        ("BOUND", four, true),
        ("REBOOT", four, true),
        ("TIMEOUT", four, true),
        ("BOUND6", six, true),
        ("BOUND6", renewed, true),
        ("RENEW6", six, true),
        ("RENEW6", other, true),
        ("REBIND6", other, true),
        ("RENEW6", renewed, false),
        ("REBIND6", renewed, false),
        ("RENEW6", &[], false),
        ("RENEW", four, false),
        ("REBIND", four, false),
        ("EXPIRE", four, false),
        ("PREINIT", &[], false),
    ];
    let reports = Program::Script("printf '%s\\n' \"$*\" >arguments");
    for (reason, values, expected) in cases {
        let words = [("interface", "eth1"), ("reason", reason)];
        let lease = [&words[..], values].concat();
        for shell in [DASH, BASH] {
            let run = run(
                DEBIAN_ENTER,
                shell,
                "set -eu",
                reports,
                &lease,
                "/usr/bin:/bin",
            );
            assert_eq!(run.complaints(), Vec::<String>::new());
            let said = if expected { "ahead\n" } else { "" };
            assert_eq!(run.left("arguments"), said, "{reason} {values:?}");
        }
    }
    // dhclient's script without any event.
    let run = run(DEBIAN_ENTER, DASH, "set -eu", reports, &[], "/usr/bin:/bin");
    assert_eq!(run.complaints(), Vec::<String>::new());
    assert_eq!(run.left("arguments"), "");
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

/// dhcpcd-run-hooks leaves out a file `NN-NAME` when `nohook NAME` asks for it, and reads
/// any other, but for names that end in `~`.
#[test]
fn dhcpcd_file_can_be_left_out_by_its_name() {
    let name = DHCPCD.file.strip_prefix("dhcpcd/").unwrap();
    let (number, name) = name.split_once('-').unwrap();
    assert!(number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit()));
    assert_eq!(name, "leaseroute");
}
