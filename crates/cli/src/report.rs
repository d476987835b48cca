//! `leaseroute capture`: a bug report that `leaseroute plan --capture` replays.
//!
//! A report holds everything that a plan follows from: the snapshot of the host, the
//! leases, events given by hand, the configuration. The plan and the event beside each
//! lease are there for readers only.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use leaseroute_config::{Document, Loaded};
use leaseroute_core::{CardMetadata, Client, Family, Host, LeaseBook, RawEvent, Record};
use leaseroute_runtime::{LastRun, Paths};
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::given::Given;
use crate::mask;
use crate::output;
use crate::plan::FamilyPlan;
use crate::world::{Machine, World};

/// The version of the format.
pub(crate) const FORMAT: u32 = 1;

/// A bug report.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The version of this format.
    pub(crate) version: u32,
    /// The version of the program that wrote it.
    leaseroute: String,
    /// The release of the kernel.
    kernel: String,
    /// When, in seconds since 1970.
    time: u64,
    /// Whether private values are hidden.
    masked: bool,
    /// What is in force, as the lines of a configuration file.
    configuration: Vec<String>,
    /// The files that it comes from.
    files: Vec<PathBuf>,
    /// What is odd or wrong about them. After an error the defaults stand above.
    complaints: Vec<String>,
    /// Events that were given by hand, on top of the leases.
    events: Vec<RawEvent>,
    /// What is known of the leases.
    leases: Vec<Record>,
    /// What metadata services said.
    #[serde(default)]
    metadata: Vec<CardMetadata>,
    /// How the last runs ended, by family.
    last_runs: BTreeMap<Family, LastRun>,
    /// What the kernel shows.
    host: Host,
    /// What would change, as ip(8) commands and notes, by family.
    plan: BTreeMap<Family, Vec<String>>,
}

/// Writes a report of this machine.
pub(crate) fn run(
    events: Vec<Given>,
    output: Option<&Path>,
    mask: bool,
    now: u64,
) -> Result<String, CliError> {
    let mut report = capture(events, now)?;
    if mask {
        report.mask_events();
    }
    let mut value = serde_json::to_value(&report)?;
    if mask {
        mask::hardware_addresses(&mut value);
    }
    let text = serde_json::to_string_pretty(&value)? + "\n";
    let Some(path) = output else {
        return Ok(text);
    };
    fs::write(path, text).map_err(|source| CliError::Write {
        path: path.to_owned(),
        source,
    })?;
    Ok(String::new())
}

fn capture(given: Vec<Given>, now: u64) -> Result<Report, CliError> {
    let paths = Paths::from_environment();
    let (loaded, complaints) = match leaseroute_config::load(&paths.configuration) {
        Ok(loaded) => {
            let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
            (loaded, warnings)
        }
        // A report about a broken configuration is worth having.
        Err(error) => {
            let complaint = CliError::from(error).with_causes();
            (
                leaseroute_config::load_text(Path::new(""), "")?,
                vec![complaint],
            )
        }
    };
    let machine = Machine::open(paths, loaded)?;
    let last_run = |family| Some((family, machine.engine.state().last_run(family)?));
    let last_runs = Family::BOTH.into_iter().filter_map(last_run).collect();
    let mut world = machine.world(now)?;
    let (leases, events): (Vec<Given>, Vec<Given>) = given.into_iter().partition(Given::is_lease);
    world.take(leases, now)?;
    let leases = world.book.records().cloned().collect();
    let metadata = world.book.metadata().cloned().collect();
    if let Err(error) = world.take(events.clone(), now) {
        output::warn(&error.with_causes());
    }
    let plan = |family| (family, lines(&FamilyPlan::new(family, &world)));
    Ok(Report {
        version: FORMAT,
        leaseroute: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel_release(),
        time: now,
        masked: false,
        configuration: configuration_lines(&world.loaded)?,
        files: world.loaded.files.clone(),
        complaints,
        events: events.into_iter().map(|event| event.raw).collect(),
        leases,
        metadata,
        last_runs,
        plan: Family::BOTH.into_iter().map(plan).collect(),
        host: world.host,
    })
}

fn lines(plan: &FamilyPlan) -> Vec<String> {
    let notes = plan.notes.iter().map(|note| format!("# note: {note}"));
    plan.steps
        .iter()
        .map(ToString::to_string)
        .chain(notes)
        .collect()
}

fn configuration_lines(loaded: &Loaded) -> Result<Vec<String>, CliError> {
    let text = Document::from(loaded).to_toml()?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// As uname(2) has it; empty when /proc is not mounted.
fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim_end().to_owned()
}

impl Report {
    /// The leases that it knows, then the events that were given by hand. `client` is who
    /// a lease is from that nothing tells of.
    pub(crate) fn into_given(self, client: Client) -> Vec<Given> {
        let lease = |record| Given::lease(record, client);
        let leases = self.leases.into_iter().map(lease);
        leases
            .chain(self.events.into_iter().map(Given::event))
            .collect()
    }

    /// The world that it is about.
    ///
    /// # Errors
    ///
    /// When its configuration cannot be used or one of the events that were given by hand
    /// is refused.
    pub(crate) fn into_world(self, now: u64) -> Result<World, CliError> {
        let name = Path::new("configuration of the capture");
        let loaded = leaseroute_config::load_text(name, &self.configuration.join("\n"))?;
        let mut book = LeaseBook::new(self.leases).with_metadata(self.metadata);
        // What had ended then has ended in the replay, and nothing more.
        book.expire(self.time);
        let mut world = World {
            host: self.host,
            book,
            loaded,
        };
        world.take(self.events.into_iter().map(Given::event).collect(), now)?;
        Ok(world)
    }

    /// Hides what the events say about the host beyond its addresses.
    fn mask_events(&mut self) {
        self.masked = true;
        let of_leases = self
            .leases
            .iter_mut()
            .filter_map(|record| record.event.as_mut());
        of_leases.chain(&mut self.events).for_each(mask::event);
    }
}
