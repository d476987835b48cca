//! The watcher on a host of the bench: started, signalled, killed, and asked how it is.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::daemon::{Daemon, read};
use crate::host::{Host, PROGRAMS};
use crate::wait_for;

/// The file of its configuration.
pub const CONFIGURATION: &str = "/etc/leaseroute/config.toml";
/// Clock ticks a second in `/proc/PID/stat`: the same on every Linux that we run on.
const TICKS: u32 = 100;

/// A running `leaseroute watch`; killed when dropped.
#[derive(Debug)]
pub struct Watcher {
    daemon: Daemon,
    /// Its process, as the host numbers it.
    pub pid: u32,
    /// Its files below `/proc` of the host.
    proc: PathBuf,
}

impl Watcher {
    /// Starts it; what it says goes to the log `watch`, behind what is there already. The
    /// host must have the program `leaseroute`.
    #[must_use]
    pub fn start(host: &Host) -> Self {
        let mut command = host.command(&format!("{PROGRAMS}/leaseroute"));
        command.arg("watch");
        let daemon = host.start("watch", command);
        // What was started enters the host's namespaces and becomes the parent of it.
        let entered = daemon.id();
        let pid = wait_for("the watcher has a process", || {
            let children = format!("/proc/{entered}/task/{entered}/children");
            let child = read(&PathBuf::from(children));
            let status = read(&PathBuf::from(format!("/proc/{}/status", child.trim())));
            let line = status.lines().find(|line| line.starts_with("NSpid:"));
            line.and_then(|line| line.split_whitespace().last()?.parse().ok())
                .ok_or(status)
        });
        Self {
            daemon,
            pid,
            proc: host.path(&format!("/proc/{pid}")),
        }
    }

    /// Starts it and waits until it has looked.
    #[must_use]
    pub fn start_and_wait(host: &Host) -> Self {
        let watcher = Self::start(host);
        wait_for("the watcher has looked", || {
            let health = health(host);
            if health["pid"] == watcher.pid && health["looks"].as_u64() > Some(0) {
                Ok(())
            } else {
                Err(format!("{health}\n{}", host.logs()))
            }
        });
        watcher
    }

    /// The command that sends it a signal, for instance `TERM`.
    #[must_use]
    pub fn signal(&self, host: &Host, name: &str) -> Command {
        let mut command = host.command("kill");
        command.args([format!("-{name}"), self.pid.to_string()]);
        command
    }

    /// Sends it a signal.
    pub fn send(&self, host: &Host, name: &str) {
        let output = host.output(self.signal(host, name));
        assert!(
            output.status.success(),
            "no watcher to send {name} to\n{}",
            host.logs()
        );
    }

    /// Stops it (SIGSTOP) while it does not look: in a look it would keep the lock.
    pub fn stop_between_looks(&self, host: &Host) {
        wait_for("the watcher does not look", || {
            self.send(host, "STOP");
            let lock = state_folder(host).expect("it has looked").join("lock");
            let lock = fs::File::open(lock).unwrap();
            if lock.try_lock().is_ok() {
                Ok(())
            } else {
                self.send(host, "CONT");
                Err("it holds the lock".to_owned())
            }
        });
    }

    /// Waits until it has ended.
    #[must_use]
    pub fn ended(mut self) -> ExitStatus {
        self.daemon.wait()
    }

    /// The processor time that it has used so far, in steps of 10 ms.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        let stat = read(&self.proc.join("stat"));
        // Its name, the second field, is in parentheses and may hold anything.
        let (_, fields) = stat.rsplit_once(')').expect("the watcher runs");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks: u32 = [fields[11], fields[12]]
            .iter()
            .map(|field| field.parse::<u32>().unwrap())
            .sum();
        Duration::from_millis(u64::from(ticks * (1000 / TICKS)))
    }

    /// How often it has waited so far. One that polls waits while nothing happens.
    #[must_use]
    pub fn waits(&self) -> u64 {
        let status = read(&self.proc.join("status"));
        let line = status.lines().find(|line| line.starts_with("voluntary"));
        let number = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
        number.expect("the watcher runs")
    }

    /// What all watchers of the host have said.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Its parent would leave it behind.
        let children = format!("/proc/{0}/task/{0}/children", self.daemon.id());
        let child = read(&PathBuf::from(children));
        if let Some(child) = child.split_whitespace().next() {
            let mut command = Command::new("kill");
            command.args(["-KILL", child]).stderr(Stdio::null());
            // It may have ended by itself.
            command.status().ok();
        }
    }
}

/// The state folder of the host's network namespace, as the test reaches it.
#[must_use]
pub fn state_folder(host: &Host) -> Option<PathBuf> {
    let entries = fs::read_dir(host.path("/run/leaseroute")).ok()?;
    let mut paths = entries.map(|entry| entry.unwrap().path());
    // Beside it may be the socket on which lease events are told.
    paths.find(|path| path.is_dir())
}

/// What the watcher tells of itself; null when it has told nothing yet.
#[must_use]
pub fn health(host: &Host) -> Value {
    let text = state_folder(host)
        .map(|folder| read(&folder.join("watch.json")))
        .unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Waits until the watcher's health is as it should be, and returns it.
pub fn wait_health(host: &Host, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    wait_for(what, || {
        let health = health(host);
        if is_so(&health) {
            Ok(health)
        } else {
            Err(format!("{health:#}\n{}", host.logs()))
        }
    })
}
