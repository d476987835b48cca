//! A program that runs in the background of a test, with its log in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use leaseroute_lab::site::Site;

use crate::wait_for;

/// A running program; killed and waited for when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts a program on a machine of the bench, output appended to `log`. It dies with
    /// the machine's thread, even when the test is killed.
    pub fn start(site: &Site, mut command: Command, log: &Path) -> Self {
        let out = File::options().create(true).append(true).open(log).unwrap();
        let err = out.try_clone().unwrap();
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = site.spawn(command).unwrap();
        Self {
            child,
            log: log.to_owned(),
        }
    }

    /// Its process number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the program has ended", || {
            let status = self.child.try_wait().unwrap();
            status.ok_or_else(|| read(&self.log))
        })
    }

    /// Everything it has said.
    #[must_use]
    pub fn log(&self) -> String {
        read(&self.log)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A command that is killed when the thread that started it ends.
#[must_use]
pub fn tethered(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// A file's text, empty when it is not there.
#[must_use]
pub fn read(path: &Path) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
