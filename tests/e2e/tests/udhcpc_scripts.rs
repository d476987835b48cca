//! The scripts for udhcpc, each in the shells that may run it, with whatever may stand where
//! the client's own script and the program belong.
//!
//! `/etc`, `/usr/share` and `/usr/libexec` are private folders of each run, so the files
//! under test are the shipped ones to the byte.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leaseroute_e2e::shell::{CALLERS, PROGRAMS, Program, caller, changes, is_root};

/// Shells that run or read the scripts somewhere.
const SHELLS: &[&[&str]] = &[
    &["dash"],
    &["bash"],
    &["bash", "--posix"],
    &["busybox", "sh"],
];

const GOOD: Program = Program::Script("exit 0");
const PATH: &str = "/usr/bin:/bin";

/// What udhcpc would put into the environment.
const LEASE: &[(&str, &str)] = &[
    ("interface", "eth1"),
    ("ip", "192.0.2.10"),
    ("mask", "24"),
    ("router", "192.0.2.1"),
    ("hostname", "$(touch pwned) `touch pwned` ; touch pwned"),
];

/// The files of a run, and what it leaves.
struct Place {
    folder: tempfile::TempDir,
}

/// What came of a run.
struct Outcome {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Place {
    fn new(program: Program) -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for folder in ["etc", "usr/share", "usr/libexec/leaseroute"] {
            fs::create_dir_all(place.inside(folder)).unwrap();
        }
        let path = "usr/libexec/leaseroute/leaseroute-udhcpc";
        match program {
            Program::Script(does) => {
                let out = place.folder.path().display();
                let text = format!(
                    "#!/bin/sh\n/usr/bin/env -0 >'{out}/env'\necho \"$*\" >'{out}/arguments'\n\
                     echo program >>'{out}/order'\n{does}\n"
                );
                place.write(path, &text, 0o755);
            }
            Program::File(text, mode) => place.write(path, text, mode),
            Program::Folder => fs::create_dir(place.inside(path)).unwrap(),
            Program::Missing => {}
        }
        place
    }

    /// A file as the test reaches it. Its path has no slash at the beginning.
    fn inside(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    fn write(&self, path: &str, text: &str, mode: u32) {
        let path = self.inside(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Installs a shipped file.
    fn install(&self, file: &str, path: &str) {
        let path = self.inside(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(shipped(file), path).unwrap();
    }

    /// A script of the client that tells its name and ends with a status.
    fn own_script(&self, path: &str, status: u8) {
        let out = self.folder.path().display();
        let text = format!("#!/bin/sh\necho \"{path} $*\" >>'{out}/order'\nexit {status}\n");
        self.write(path, &text, 0o755);
    }

    fn run(&self, argv: &[&str], more: &[(&str, &str)]) -> Outcome {
        let out = self.folder.path().display();
        let enter = format!(
            "for d in usr/libexec usr/share etc; do mount --bind '{out}/root/'$d /$d || exit; done
             cd '{out}' && exec env -i \"$@\""
        );
        let user: &[&str] = if is_root() { &[] } else { &["--map-root-user"] };
        let path = [("PATH", PATH)];
        let variables = path.iter().chain(LEASE).chain(more);
        let output = Command::new("unshare")
            .args(user)
            .args(["--mount", "--propagation", "private"])
            .args(["sh", "-c", &enter, "enter"])
            .args(variables.map(|(name, value)| format!("{name}={value}")))
            .args(argv)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Outcome {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// A file that the run left, or an empty text.
    fn left(&self, name: &str) -> String {
        fs::read(self.folder.path().join(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// What is wrong with what the program was given, in words.
    fn complaints(&self, program: Program, arguments: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.folder.path().join("pwned").exists() {
            wrong.push("a value of the lease was executed".to_owned());
        }
        if !matches!(program, Program::Script(_)) {
            return wrong;
        }
        let seen = self.left("arguments");
        if seen.trim_end() != arguments {
            wrong.push(format!("the program's arguments were {seen:?}"));
        }
        let environment = self.left("env");
        let environment: BTreeSet<&str> = environment.split('\0').collect();
        for (name, value) in LEASE {
            if !environment.contains(format!("{name}={value}").as_str()) {
                wrong.push(format!("the program had no {name}"));
            }
        }
        wrong
    }
}

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../hooks/udhcpc")
        .join(file)
}

// ---------------------------------------------------------------- OpenWrt: sourced

/// Reads OpenWrt's file in a shell, and tells what is wrong afterwards.
fn read_by(shell: &[&str], preamble: &str, program: Program, more: &[(&str, &str)]) -> Vec<String> {
    let place = Place::new(program);
    let out = place.folder.path().display().to_string();
    let file = shipped("openwrt/leaseroute.user").display().to_string();
    let caller = caller(&out, preamble, &file, ":", ":");
    let script = place.folder.path().join("caller");
    fs::write(&script, caller).unwrap();
    let mut argv = shell.to_vec();
    let script = script.display().to_string();
    argv.extend([script.as_str(), "bound"]);
    let outcome = place.run(&argv, more);

    let mut wrong = place.complaints(program, "bound udhcpc");
    if outcome.status != Some(0) {
        let said = outcome.stderr.trim();
        wrong.push(format!("the shell ended with {:?}: {said}", outcome.status));
    }
    wrong.extend(changes(|name| place.left(name)));
    if outcome.stdout.contains("on the output") {
        wrong.push("the program's output reached the caller's".to_owned());
    }
    wrong
}

/// Every awkward caller with some programs, and an impatient one with every program.
#[test]
fn openwrt_file_changes_nothing_in_its_reader() {
    let every = CALLERS.iter().flat_map(|caller| {
        let some = PROGRAMS
            .iter()
            .filter(|(does, _)| ["fails", "is killed"].contains(does));
        some.map(move |program| (caller, program))
    });
    let impatient = &("errexit and nounset", "set -eu");
    let cases: Vec<_> = every
        .chain(PROGRAMS.iter().map(|program| (impatient, program)))
        .collect();
    let mut wrong = Vec::new();
    for shell in SHELLS {
        for ((caller, preamble), (does, program)) in &cases {
            for complaint in read_by(shell, preamble, *program, &[]) {
                wrong.push(format!("{shell:?}, {caller}, program {does}: {complaint}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// ---------------------------------------------------------------- the script of option -s

const WRAPPER: &str = "/usr/libexec/leaseroute/udhcpc.script";
const WRAPPER6: &str = "/usr/libexec/leaseroute/udhcpc6.script";

/// A place with the wrapper under both names.
fn wrapped(program: Program) -> Place {
    let place = Place::new(program);
    place.install("leaseroute.script", WRAPPER.trim_start_matches('/'));
    symlink(
        "udhcpc.script",
        place.inside(WRAPPER6.trim_start_matches('/')),
    )
    .unwrap();
    place
}

#[test]
fn wrapper_runs_the_clients_script_first_and_keeps_its_status() {
    for shell in SHELLS {
        for (number, (does, program)) in PROGRAMS.iter().enumerate() {
            for status in if number == 0 { 0..2 } else { 1..2 } {
                let place = wrapped(*program);
                place.own_script("etc/udhcpc/default.script", status);
                let argv = [*shell, &[WRAPPER, "bound"]].concat();
                let outcome = place.run(&argv, &[]);
                let case = format!("{shell:?}, program {does}: {}", outcome.stderr);
                assert_eq!(outcome.status, Some(i32::from(status)), "{case}");
                let wrong = place.complaints(*program, "bound udhcpc");
                assert!(wrong.is_empty(), "{case}{wrong:?}");
                let mut order = "etc/udhcpc/default.script bound\n".to_owned();
                if matches!(program, Program::Script(_)) {
                    order.push_str("program\n");
                }
                assert_eq!(place.left("order"), order, "{case}");
                assert!(!outcome.stdout.contains("on the output"), "{case}");
            }
        }
    }
}

/// As udhcpc starts it, without a shell before it.
#[test]
fn wrapper_knows_the_client_by_its_own_name() {
    let place = wrapped(GOOD);
    place.own_script("etc/udhcpc/default.script", 0);
    place.own_script("usr/share/udhcpc/default6.script", 0);
    for (wrapper, own, client) in [
        (WRAPPER, "etc/udhcpc/default.script", "udhcpc"),
        (WRAPPER6, "usr/share/udhcpc/default6.script", "udhcpc6"),
    ] {
        fs::remove_file(place.folder.path().join("order")).ok();
        let outcome = place.run(&[wrapper, "deconfig"], &[]);
        assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
        assert_eq!(place.left("order"), format!("{own} deconfig\nprogram\n"));
        assert_eq!(place.left("arguments"), format!("deconfig {client}\n"));
    }
}

#[test]
fn the_clients_script_is_looked_for_in_fixed_places() {
    let places = [
        "etc/leaseroute/udhcpc.script",
        "etc/udhcpc/default.script",
        "usr/share/udhcpc/default.script",
    ];
    // The environment is the caller's: whatever it holds, it chooses nothing.
    let bad = [
        ("leaseroute_script", "/usr/bin/false"),
        ("leaseroute_default", "other"),
        ("leaseroute_client", "udhcpc6"),
    ];
    for first in 0..places.len() {
        let place = wrapped(GOOD);
        for path in &places[first..] {
            place.own_script(path, 0);
        }
        if let Some(before) = first.checked_sub(1) {
            // A file that cannot be started is passed over.
            place.write(places[before], "#!/bin/sh\nexit 1\n", 0o644);
        }
        let outcome = place.run(&[WRAPPER, "renew"], &bad);
        assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
        let order = format!("{} renew\nprogram\n", places[first]);
        assert_eq!(place.left("order"), order);
        assert_eq!(place.left("arguments"), "renew udhcpc\n");
    }
}

/// Who puts the wrapper in the place of the script that it runs gets no endless chain.
#[test]
fn wrapper_does_not_start_itself() {
    for shell in SHELLS {
        let place = wrapped(GOOD);
        fs::create_dir_all(place.inside("etc/udhcpc")).unwrap();
        symlink(WRAPPER, place.inside("etc/udhcpc/default.script")).unwrap();
        place.own_script("usr/share/udhcpc/default.script", 0);
        let argv = [*shell, &["/etc/udhcpc/default.script", "bound"]].concat();
        let outcome = place.run(&argv, &[]);
        assert_eq!(outcome.status, Some(0), "{shell:?}: {}", outcome.stderr);
        let order = "usr/share/udhcpc/default.script bound\nprogram\n";
        assert_eq!(place.left("order"), order, "{shell:?}");
    }
}

/// The client starts what lies in the place of its own script, and that is us.
#[test]
fn wrapper_may_take_the_place_of_the_clients_script() {
    for (name, client) in [("default", "udhcpc"), ("default6", "udhcpc6")] {
        let place = wrapped(GOOD);
        place.own_script("etc/udhcpc/diverted", 0);
        let own = format!("etc/leaseroute/{client}.script");
        let called = format!("/etc/udhcpc/{name}.script");
        fs::create_dir_all(place.inside("etc/leaseroute")).unwrap();
        symlink("/etc/udhcpc/diverted", place.inside(&own)).unwrap();
        symlink(WRAPPER, place.inside(&called[1..])).unwrap();
        let outcome = place.run(&[&called, "nak"], &[]);
        assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
        assert_eq!(place.left("order"), "etc/udhcpc/diverted nak\nprogram\n");
        assert_eq!(place.left("arguments"), format!("nak {client}\n"));
    }
}

#[test]
fn a_missing_script_of_the_client_is_said() {
    for (wrapper, client) in [(WRAPPER, "udhcpc"), (WRAPPER6, "udhcpc6")] {
        let place = wrapped(GOOD);
        let outcome = place.run(&[wrapper, "bound"], &[]);
        assert_eq!(outcome.status, Some(127));
        let hint = format!("/etc/leaseroute/{client}.script");
        assert!(outcome.stderr.contains(&hint), "{}", outcome.stderr);
        assert_eq!(place.left("order"), "program\n");
    }
}

// ---------------------------------------------------------------- Alpine: folders

#[test]
fn alpine_file_learns_the_event_from_its_folder() {
    let every = PROGRAMS.iter().map(|program| ("bound", program));
    let others = ["renew", "deconfig"].map(|event| (event, &PROGRAMS[0]));
    let cases: Vec<_> = every.chain(others).collect();
    for shell in SHELLS {
        for (event, (does, program)) in &cases {
            let place = Place::new(*program);
            let path = format!("etc/udhcpc/post-{event}/leaseroute");
            place.install("alpine/leaseroute", &path);
            let path = format!("/{path}");
            let argv = [*shell, &[path.as_str()]].concat();
            let outcome = place.run(&argv, &[]);
            let case = format!("{shell:?}, {event}, program {does}: {}", outcome.stderr);
            assert_eq!(outcome.status, Some(0), "{case}");
            let wrong = place.complaints(*program, &format!("{event} udhcpc"));
            assert!(wrong.is_empty(), "{case}{wrong:?}");
            assert!(!outcome.stdout.contains("on the output"), "{case}");
        }
    }
}

/// One file that the three folders link to, started without a shell before it.
#[test]
fn alpine_folders_may_hold_links() {
    let place = Place::new(GOOD);
    place.install("alpine/leaseroute", "usr/libexec/leaseroute/alpine");
    let path = "etc/udhcpc/post-renew/leaseroute";
    fs::create_dir_all(place.inside(path).parent().unwrap()).unwrap();
    symlink("/usr/libexec/leaseroute/alpine", place.inside(path)).unwrap();
    let outcome = place.run(&["/etc/udhcpc/post-renew/leaseroute"], &[]);
    assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
    assert_eq!(place.left("arguments"), "renew udhcpc\n");
}

// ---------------------------------------------------------------- all of them

/// A stand-in for `timeout` shows that the bound is asked for, without waiting for it.
#[test]
fn a_program_of_udhcpc_that_hangs_is_ended() {
    let tools = tempfile::tempdir().unwrap();
    let stand_in = tools.path().join("timeout");
    let text = "#!/bin/sh\n[ \"$1 $2 $3\" = '-s KILL 30' ] || exit 9\nshift 3\nexec /usr/bin/timeout -s KILL 0.2 \"$@\"\n";
    fs::write(&stand_in, text).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{PATH}", tools.path().display());
    let path = [("PATH", path.as_str())];
    let hangs = Program::Script("trap '' TERM; exec sleep 600");
    for shell in SHELLS {
        let wrong = read_by(shell, "set -eu", hangs, &path);
        assert!(wrong.is_empty(), "{shell:?}: {wrong:?}");

        let place = wrapped(hangs);
        place.own_script("etc/udhcpc/default.script", 0);
        let argv = [*shell, &[WRAPPER, "bound"]].concat();
        assert_eq!(place.run(&argv, &path).status, Some(0), "{shell:?}");
        assert_eq!(place.left("arguments"), "bound udhcpc\n");

        let place = Place::new(hangs);
        place.install("alpine/leaseroute", "etc/udhcpc/post-bound/leaseroute");
        let argv = [*shell, &["/etc/udhcpc/post-bound/leaseroute"]].concat();
        assert_eq!(place.run(&argv, &path).status, Some(0), "{shell:?}");
        assert_eq!(place.left("arguments"), "bound udhcpc\n");
    }
}

#[test]
fn scripts_that_are_started_are_executable() {
    for file in ["leaseroute.script", "alpine/leaseroute"] {
        let mode = fs::metadata(shipped(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{file}");
    }
}
