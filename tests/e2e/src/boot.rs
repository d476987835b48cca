//! The host of the bench with a real systemd as its process 1.
//!
//! systemd-nspawn boots a copy-on-write view of this machine's own files in the host's
//! network namespace. Files are put there before it boots, as an image has them. Only what
//! the test asks for is started: the target `bench.target` wants the units that are named,
//! and nothing else of what this machine's packages have enabled.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use leaseroute_lab::fabric::Layout;

use crate::daemon::tethered;
use crate::host::{Host, is_a_host, program};
use crate::wait_for;

/// Lays out the root folder, waits for a line, and boots it. `/` itself cannot be booted,
/// an overlay of it can. The unified cgroup hierarchy is for machines that have another; the
/// container's groups lie below one of its own.
const BOOT: &str = r#"
set -e
read -r outside rest </proc/self/stat
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
echo "$outside"
read -r _
for place in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
    if [ -w "$place/cgroup.procs" ] && mkdir "$place/leaseroute-bench-$outside"; then
        echo $$ >"$place/leaseroute-bench-$outside/cgroup.procs"
    fi
done
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 exec systemd-nspawn --quiet --directory=/mnt/root --boot \
    --register=no --keep-unit --machine=bench --network-namespace-path=/proc/self/ns/net \
    --capability=CAP_NET_ADMIN --console=pipe --resolv-conf=off --timezone=off \
    --link-journal=no systemd.unit=bench.target </dev/null >/dev/null 2>&1
"#;

/// A host that is booted, or about to be.
#[derive(Debug)]
pub struct Booted {
    host: Host,
    /// Holds the PID namespace in which all of it runs, and ends with the test.
    nspawn: Child,
    /// systemd-nspawn itself, as this machine numbers processes.
    outside: u32,
}

is_a_host!(Booted);

impl Booted {
    /// Builds the cloud and the host's files, which [`Host::path`] then leads to.
    #[must_use]
    pub fn prepare(layout: &Layout, tools: &[&str]) -> Self {
        let mut host = Host::new(layout, &[tools, &["systemd-nspawn"]].concat());
        let mut command = tethered("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .args(["--propagation", "private", "sh", "-c", BOOT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut nspawn = host.fabric.host().spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(nspawn.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let outside = line.trim().parse().expect("the script said its number");
        host.moves_to(outside, "/mnt/root");
        let booted = Self {
            host,
            nspawn,
            outside,
        };
        booted.shell_outside("rm -f etc/systemd/network/* etc/resolv.conf; : >etc/resolv.conf");
        booted
    }

    /// Runs a shell command on this machine's side, in the root folder before it is booted.
    pub fn shell_outside(&self, script: &str) -> String {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.outside.to_string(), "--mount"])
            .args(["--", "sh", "-ec", &format!("cd /mnt/root; {script}")]);
        let output = self.output(command);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {said}{error}");
        said
    }

    /// Copies all that a build leaves to a folder of the host.
    pub fn copy_programs(&self, inside: &str) {
        fs::create_dir_all(self.path(inside)).unwrap();
        let command = program("leaseroute");
        for entry in fs::read_dir(command.parent().unwrap()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with("leaseroute") && !name.contains('.') {
                fs::copy(entry.path(), self.path(&format!("{inside}/{name}"))).unwrap();
            }
        }
    }

    /// Boots into a target that wants these units.
    pub fn boot(&mut self, units: &[&str]) {
        let target = format!(
            "[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n\
             Wants={}\n",
            units.join(" ")
        );
        self.write("/etc/systemd/system/bench.target", &target, 0o644);
        self.nspawn
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"\n")
            .unwrap();
        let process = wait_for("systemd is there", || {
            child_of(self.outside, "systemd").ok_or_else(|| "no child".to_owned())
        });
        self.host.moves_to(process, "");
        wait_for("the system has booted", || {
            let mut command = self.command("systemctl");
            command.args(["is-active", "bench.target"]);
            let output = self.output(command);
            if output.status.success() {
                Ok(())
            } else {
                Err(String::from_utf8_lossy(&output.stderr).into_owned())
            }
        });
    }

    /// What the journal has of a unit, for the message of a failed test.
    #[must_use]
    pub fn journal(&self) -> String {
        self.shell("journalctl --no-pager -o short-monotonic -n 200; systemctl --no-pager --failed")
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        // The container dies with its PID namespace.
        self.nspawn.kill().ok();
        self.nspawn.wait().ok();
        // Its groups are left, and are gone once all of its processes are.
        let groups = format!("leaseroute-bench-{}", self.outside);
        let remove = format!(
            "for try in 1 2 3 4 5; do
                set -- /sys/fs/cgroup/{groups} /sys/fs/cgroup/*/{groups}
                find \"$@\" -depth -type d -exec rmdir {{}} \\; 2>/dev/null
                [ -n \"$(ls -d \"$@\" 2>/dev/null)\" ] || break
                sleep 0.2
            done"
        );
        Command::new("sh").args(["-c", &remove]).status().ok();
    }
}

/// A child of a process by its name, as the outside numbers them.
fn child_of(parent: u32, name: &str) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let mut children = children.split_ascii_whitespace();
    let is_named = |child: &&str| {
        let comm = PathBuf::from(format!("/proc/{child}/comm"));
        fs::read_to_string(comm).is_ok_and(|comm| comm.trim() == name)
    };
    children.find(is_named)?.parse().ok()
}
