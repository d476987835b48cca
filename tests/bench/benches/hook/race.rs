//! Runs programs in turns and takes their times.
//!
//! A time is that of a whole process, from posix_spawn(3) until it has been waited for.
//! The programs of a race take turns, so that whatever else the machine does hits all of
//! them alike, and in another order each round, since each finds the caches as the one
//! before it left them. What a round needs beforehand is not part of its time.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leaseroute_lab::site::Site;

use crate::error::BenchError;

/// A process as it will be started: its environment is just what is named here.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(OsString, OsString)>,
}

impl Program {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
        }
    }

    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs it on a machine and returns what it printed; it has to succeed.
    pub(crate) fn output(&self, site: &Site) -> Result<String, BenchError> {
        let mut command = self.command();
        let output = site
            .run(move || command.output())
            .map_err(|source| self.failed_to_start(source))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(self.failed(output.status, said));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn failed_to_start(&self, source: io::Error) -> BenchError {
        BenchError::Start {
            program: self.path.clone(),
            source,
        }
    }

    fn failed(&self, status: ExitStatus, said: String) -> BenchError {
        BenchError::Failed {
            program: self.path.clone(),
            status,
            said,
        }
    }
}

/// One that takes part in a race.
pub(crate) struct Racer<'a> {
    /// What the report calls it.
    pub(crate) name: String,
    /// Where it runs.
    pub(crate) site: &'a Site,
    pub(crate) program: Program,
    /// Runs before each round, outside the time.
    pub(crate) before: Vec<Program>,
    /// Is removed before each round, outside the time.
    pub(crate) forgotten: Vec<PathBuf>,
}

impl<'a> Racer<'a> {
    pub(crate) fn new(name: impl Into<String>, site: &'a Site, program: Program) -> Self {
        Self {
            name: name.into(),
            site,
            program,
            before: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    pub(crate) fn prepare(&self) -> Result<(), BenchError> {
        for program in &self.before {
            program.output(self.site)?;
        }
        for path in &self.forgotten {
            match fs::remove_file(path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(BenchError::File {
                        path: path.clone(),
                        source,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The times of one racer, sorted.
#[derive(Clone, Debug)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub(crate) fn rounds(&self) -> usize {
        self.0.len()
    }

    /// The time that the given part of the rounds (0 to 100) did not exceed, in µs.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let time = self.0.get((last * percent).div_ceil(100));
        time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }

    /// In µs.
    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }
}

/// Lets the racers take turns, and returns the times of each in the given order.
pub(crate) fn race(racers: &[Racer<'_>], rounds: usize) -> Result<Vec<Times>, BenchError> {
    let mut stables = Vec::new();
    for racer in racers {
        let mut command = racer.program.command();
        command.stdout(nowhere()?).stderr(nowhere()?);
        stables.push((racer, Arc::new(Mutex::new(command)), Vec::new()));
    }
    for round in 0..rounds + WARM_UP {
        stables.sort_by_cached_key(|(racer, ..)| place(round, &racer.name));
        for (racer, command, times) in &mut stables {
            racer.prepare()?;
            let command = Arc::clone(command);
            let (time, status) = racer
                .site
                .run(move || {
                    let mut command = command.lock().map_err(|_| io::ErrorKind::Other)?;
                    let start = Instant::now();
                    let status = command.status()?;
                    Ok((start.elapsed(), status))
                })
                .map_err(|source| racer.program.failed_to_start(source))?;
            if !status.success() {
                return Err(racer.program.failed(status, String::new()));
            }
            if round >= WARM_UP {
                times.push(time);
            }
        }
    }
    let times_of = |racer: &Racer<'_>| {
        let found = stables.iter().find(|(other, ..)| other.name == racer.name);
        Times::new(found.map(|(_, _, times)| times.clone()).unwrap_or_default())
    };
    Ok(racers.iter().map(times_of).collect())
}

/// Orders the racers of a round; the same in every run of the benchmark.
fn place(round: usize, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (round, name).hash(&mut hasher);
    hasher.finish()
}

/// How many rounds fill caches before the first that counts.
const WARM_UP: usize = 5;

/// Starts all programs at once and returns the time until the last of them has ended.
pub(crate) fn crowd(site: &Site, programs: &[Program]) -> Result<Duration, BenchError> {
    let mut commands = Vec::new();
    for program in programs {
        let mut command = program.command();
        command.stdout(nowhere()?).stderr(nowhere()?);
        commands.push(command);
    }
    let ended = site.run(move || {
        let start = Instant::now();
        let mut children: Vec<Child> = Vec::new();
        for command in &mut commands {
            children.push(command.spawn()?);
        }
        let mut statuses = Vec::new();
        for child in &mut children {
            statuses.push(child.wait()?);
        }
        io::Result::Ok((start.elapsed(), statuses))
    });
    let path = programs.first().map(|p| p.path.clone()).unwrap_or_default();
    let (time, statuses) = ended.map_err(|source| BenchError::Start {
        program: path,
        source,
    })?;
    for (program, status) in programs.iter().zip(statuses) {
        if !status.success() {
            return Err(program.failed(status, String::new()));
        }
    }
    Ok(time)
}

/// Opened beforehand, so that it costs the rounds nothing.
fn nowhere() -> Result<File, BenchError> {
    let path = PathBuf::from("/dev/null");
    let opened = OpenOptions::new().write(true).open(&path);
    opened.map_err(|source| BenchError::File { path, source })
}
