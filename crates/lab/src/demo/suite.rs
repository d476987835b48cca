//! The seam between the story and the programs it is about.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::demo::lease::Variables;
use crate::site::Site;

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub printed: String,
    /// What it logged.
    pub logged: String,
    /// How long it took from start to end.
    pub took: Duration,
}

/// What the demonstration shows: a hook, and the plan it would follow.
pub trait Suite {
    /// Runs the hook of dhclient on the host with an event.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    fn hook(&self, host: &Site, event: &Variables) -> io::Result<Run>;

    /// Prints what the hook would do with an event, and changes nothing.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    fn plan(&self, host: &Site, event: &Variables) -> io::Result<Run>;
}

/// The suite as the `leaseroute` program has it, with state and configuration folders of
/// its own.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    folder: TempDir,
}

impl Program {
    /// The program at a path, with its default configuration.
    ///
    /// # Errors
    ///
    /// When no temporary folder can be made.
    pub fn new(path: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("leaseroute-demo-")
            .tempdir()?;
        for name in ["state", "configuration"] {
            fs::create_dir(folder.path().join(name))?;
        }
        Ok(Self {
            path: path.to_owned(),
            folder,
        })
    }

    /// A command with an environment made from nothing, as dhclient starts its hooks.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LEASEROUTE_STATE_DIR", self.folder.path().join("state"))
            .env(
                "LEASEROUTE_CONFIG_DIR",
                self.folder.path().join("configuration"),
            );
        command
    }
}

impl Suite for Program {
    fn hook(&self, host: &Site, event: &Variables) -> io::Result<Run> {
        let mut command = self.command(&["hook", "dhclient"]);
        command.envs(event);
        run(host, command)
    }

    fn plan(&self, host: &Site, event: &Variables) -> io::Result<Run> {
        let file = self.folder.path().join("event.env");
        let lines = event
            .iter()
            .map(|(name, value)| format!("{name}={value}\n"));
        fs::write(&file, lines.collect::<String>())?;
        let mut command = self.command(&["plan", "--client", "dhclient", "--lease"]);
        command.arg(file);
        run(host, command)
    }
}

fn run(host: &Site, mut command: Command) -> io::Result<Run> {
    host.run(move || {
        let started = Instant::now();
        let output = command.output()?;
        Ok(Run {
            code: output.status.code(),
            printed: String::from_utf8_lossy(&output.stdout).into_owned(),
            logged: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: started.elapsed(),
        })
    })
}
