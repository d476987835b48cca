//! The host of the bench with files of its own.
//!
//! One process holds a mount, UTS and PID namespace in which `/etc`, `/var`, `/usr/lib`,
//! `/usr/share` and `/usr/libexec` are copy-on-write and `/run` is empty, so that a client
//! and its scripts may write where they like. All that runs there ends with it, and it ends
//! when this value is dropped or the test dies.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_lab::fabric::{Card, Fabric, Layout};
use leaseroute_lab::probe::{Matrix, Server, connect};

use crate::daemon::{Daemon, read};
use crate::kernel::{Face, Own};
use crate::wait_for;

/// How long a connection may take: far more than it needs.
pub const ANSWER: Duration = Duration::from_secs(3);
/// Where packages install the hook programs.
pub const PROGRAMS: &str = "/usr/libexec/leaseroute";
/// Where events are written down: one a line.
pub const EVENTS: &str = "/run/events";
/// The tools without which nothing here can run.
const TOOLS: &[&str] = &["dnsmasq", "radvd", "ip", "unshare", "nsenter", "setpriv"];

/// Runs as process 1 of the namespaces until its input ends. Its own process number, as
/// the outside knows it, is read before the new `/proc` hides it.
const INIT: &str = r#"
set -e
read -r outside rest </proc/self/stat
mount -t tmpfs -o mode=755 tmpfs /mnt
for d in etc var usr/lib usr/share usr/libexec; do
    mkdir -p /mnt/$d /mnt/work/$d
    mount -t overlay overlay -o "lowerdir=/$d,upperdir=/mnt/$d,workdir=/mnt/work/$d" /$d
done
mount -t tmpfs -o mode=755 tmpfs /run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
hostname bench
rm -f /etc/resolv.conf
: >/etc/resolv.conf
echo "$outside"
exec cat
"#;

/// Lets a type that has a `host` be used as one.
macro_rules! is_a_host {
    ($name:ty) => {
        impl std::ops::Deref for $name {
            type Target = $crate::host::Host;

            fn deref(&self) -> &Self::Target {
                &self.host
            }
        }

        impl std::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.host
            }
        }
    };
}

pub(crate) use is_a_host;

/// The host and its files.
#[derive(Debug)]
pub struct Host {
    /// Held open: what the init process waits on.
    init: Child,
    /// Whose namespaces commands run in.
    pid: u32,
    /// Where its files begin in the mount namespace of that process.
    root: &'static str,
    /// Answers probes on every address of the host.
    _server: Server,
    folder: tempfile::TempDir,
    /// The cloud around it.
    pub fabric: Fabric,
}

impl Host {
    /// Builds the cloud and the host's files. Nothing is configured yet. `tools` are what
    /// the test needs besides the servers.
    #[must_use]
    pub fn new(layout: &Layout, tools: &[&str]) -> Self {
        for tool in TOOLS.iter().chain(tools) {
            let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
                .iter()
                .any(|folder| Path::new(folder).join(tool).exists());
            assert!(
                found,
                "{tool} is missing: tests/run installs what these tests need"
            );
        }
        let fabric = Fabric::new(layout).unwrap();
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args(["--propagation", "private", "sh", "-c", INIT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut init = fabric.host().spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(init.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let pid = line
            .trim()
            .parse()
            .expect("the init process said its number");
        Self {
            init,
            pid,
            root: "",
            _server: Server::everywhere(fabric.host()).unwrap(),
            folder: tempfile::tempdir().unwrap(),
            fabric,
        }
    }

    /// Lets another process stand for the host: its files are below `root`.
    pub(crate) fn moves_to(&mut self, pid: u32, root: &'static str) {
        self.pid = pid;
        self.root = root;
    }

    /// Installs a hook program where packages do.
    pub fn install_program(&self, name: &str) {
        fs::create_dir_all(self.path(PROGRAMS)).unwrap();
        fs::copy(program(name), self.path(&format!("{PROGRAMS}/{name}"))).unwrap();
    }

    /// Installs a file of a room below `hooks/`.
    pub fn install(&self, source: &str, inside: &str, mode: u32) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../hooks")
            .join(source);
        self.write(inside, &fs::read_to_string(source).unwrap(), mode);
    }

    /// The events that scripts of the host have written down behind everybody else's, in
    /// [`EVENTS`]: what happened and to which interface, then whatever the script adds.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let events = read(&self.path(EVENTS));
        events.lines().map(str::to_owned).collect()
    }

    /// How many events that begin so have been written down.
    #[must_use]
    pub fn seen(&self, begins: &str) -> usize {
        let events = self.events();
        events.iter().filter(|e| e.starts_with(begins)).count()
    }

    /// Waits until an event that begins so has been written down `times` times.
    pub fn wait_event(&self, begins: &str, times: usize) {
        wait_for(&format!("{begins} was seen {times} times"), || {
            if self.seen(begins) >= times {
                Ok(())
            } else {
                Err(format!("{:#?}\n{}", self.events(), self.logs()))
            }
        });
    }

    /// Starts a program on the host; its output goes to a log of that name.
    pub fn start(&self, log: &str, command: Command) -> Daemon {
        Daemon::start(self.fabric.host(), command, &self.log_file(log))
    }

    /// The file of a log.
    #[must_use]
    pub fn log_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// All logs, for the message of a failed test.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "log") {
                text.push_str(&format!("-- {}\n{}\n", path.display(), read(&path)));
            }
        }
        text
    }

    /// A file of the host, as the test reaches it.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}{inside}", self.pid, self.root))
    }

    /// Writes a file of the host, with its folders.
    pub fn write(&self, inside: &str, text: &str, mode: u32) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A program on the host, with an empty environment but for `PATH`.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args([
                "--target",
                &self.pid.to_string(),
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
            ])
            .args(["--", program])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// Runs a program on the host to its end.
    pub fn output(&self, mut command: Command) -> Output {
        self.fabric.host().run(move || command.output()).unwrap()
    }

    /// Runs a shell command on the host; it must succeed.
    pub fn shell(&self, script: &str) -> String {
        let mut command = self.command("sh");
        command.args(["-ec", script]);
        let output = self.output(command);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{script}: {}\n{said}{error}",
            output.status
        );
        said
    }

    /// A card by its number.
    #[must_use]
    pub fn card(&self, number: usize) -> Card {
        self.fabric.card(number).unwrap().clone()
    }

    /// Every card in one family, with the address that the fabric gives it.
    #[must_use]
    pub fn faces(&self, family: Family) -> Vec<Face> {
        self.fabric
            .cards()
            .map(|card| Face::of(card, family))
            .collect()
    }

    /// Waits until our rules and routes are those of these uplinks and no others.
    pub fn wait_own(&self, family: Family, uplinks: &[Face]) {
        let expected = Own::expected(uplinks);
        wait_for(&format!("the {family} rules and routes are right"), || {
            let own = Own::read(self.fabric.host(), family);
            if own == expected {
                return Ok(());
            }
            Err(format!("{}\n{}", own.differences(&expected), self.logs()))
        });
    }

    /// The client outside and a neighbour in every subnet reach every card.
    pub fn assert_all_reach(&self, families: &[Family]) {
        let matrix = Matrix::probe(&self.fabric, families, ANSWER);
        assert!(matrix.is_complete(), "\n{matrix}\n{}", self.logs());
    }

    /// The client outside reaches an address of the host.
    pub fn assert_reached(&self, address: IpAddr) {
        let outcome = connect(self.fabric.client(), address, ANSWER);
        assert!(
            outcome.is_answered(),
            "{address}: {outcome}\n{}",
            self.logs()
        );
    }

    /// A folder for the files of a test.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The end of its input ends it, and with it all that runs in its namespaces.
        drop(self.init.stdin.take());
        self.init.wait().ok();
    }
}

/// A program under test: in the folder that `LEASEROUTE_TEST_BIN` names, else the
/// release build.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("LEASEROUTE_TEST_BIN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release"),
        PathBuf::from,
    );
    let program = folder.join(name);
    assert!(
        program.exists(),
        "{} is missing: cargo build --release",
        program.display()
    );
    program
}
