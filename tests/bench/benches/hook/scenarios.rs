//! The situations that are measured.

use std::path::{Path, PathBuf};

use leaseroute_core::Family;

use crate::error::BenchError;
use crate::objects::Objects;
use crate::race::{Program, Racer, Times, crowd, race};
use crate::report::{Row, Unit};
use crate::world::{World, digit};

/// The most that an unchanged renewal may cost, beside a C program that makes the same
/// dumps.
const RENEWAL: f64 = 1.6;
/// The most that a gained lease may cost, beside `ip -batch`.
const GAIN: f64 = 0.8;
/// The most that a renewal may cost with [`CROWDED`] routes in main, beside one without.
const CROWDED_RENEWAL: f64 = 1.1;
/// Routes in table main. They are /30s of 100.64.0.0/10.
const CROWDED: u32 = 1_000_000;
/// More sources of one card: with three rules each about 2,000 rules.
const SOURCES: u16 = 660;
/// Cards that are bound at the same time.
const CARDS: u8 = 64;

const DUMPS: &str = "C, same dumps";
const BATCH: &str = "ip -batch";
const WITHOUT: &str = "hook, without them";
const TRAIN: &str = "C, one message train";

/// What all scenarios need.
pub(crate) struct Bench {
    /// Builds of the hook by name; the first one is judged.
    pub(crate) hooks: Vec<(String, PathBuf)>,
    /// Where the C programs are.
    pub(crate) tools: PathBuf,
    /// Where state goes.
    pub(crate) root: PathBuf,
    pub(crate) rounds: usize,
}

/// One scenario and what the command line calls it.
pub(crate) type Scenario = (&'static str, fn(&Bench) -> Result<Vec<Row>, BenchError>);

pub(crate) const ALL: &[Scenario] = &[
    ("gain", gain),
    ("renewal", renewal),
    ("crowded", crowded),
    ("rules", rules),
    ("storm", storm),
    ("size", size),
];

impl Bench {
    fn world(&self, cards: u8) -> Result<World, BenchError> {
        let hook = self.hooks.first().map(|(_, path)| path.as_path());
        World::new(cards, hook.unwrap_or(Path::new("/")), &self.root)
    }

    fn tool(&self, name: &str) -> PathBuf {
        self.tools.join(name)
    }

    /// The same event for each build of the hook.
    fn hooks(&self, event: &Program) -> Vec<(String, Program)> {
        let build = |(name, path): &(String, PathBuf)| {
            let mut program = event.clone();
            program.path.clone_from(path);
            (name.clone(), program)
        };
        self.hooks.iter().map(build).collect()
    }

    /// The most memory that a program has resident, in KiB.
    fn peak(&self, world: &World, program: &Program) -> Result<f64, BenchError> {
        let measured = Program {
            path: self.tool("peak"),
            arguments: [program.path.clone().into_os_string()]
                .into_iter()
                .chain(program.arguments.iter().cloned())
                .collect(),
            variables: program.variables.clone(),
        };
        let text = measured.output(world.host())?;
        serde_json::from_str(text.trim()).map_err(|source| BenchError::Text {
            what: "the peak memory",
            source,
        })
    }
}

/// A gained lease on the second of two cards, with its routes and rules.
fn gain(bench: &Bench) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for family in Family::BOTH {
        let world = bench.world(2)?;
        world.bind_all(family)?;
        let all = world.objects(family)?;
        let card = world.card(1)?;
        let own = all.of_card(card.name.as_str(), &card.address(family).to_string());
        for (what, objects) in [("both cards", &all), ("its own", &own)] {
            let scenario = format!(
                "{family}: lease gained, {} objects of {what}",
                objects.len()
            );
            rows.extend(gain_of(bench, &world, family, &scenario, &all, objects)?);
        }
    }
    Ok(rows)
}

fn gain_of(
    bench: &Bench,
    world: &World,
    family: Family,
    scenario: &str,
    all: &Objects,
    missing: &Objects,
) -> Result<Vec<Row>, BenchError> {
    let host = world.host();
    let card = world.card(1)?;
    let (add, additions) = world.batch(family, "add", &missing.additions())?;
    let (remove, _) = world.batch(family, "del", &missing.removals())?;
    let train = Program::new(bench.tool("train"))
        .argument(digit(family).to_string())
        .argument(additions);
    let event = world.event(card, family, false);
    let mut racers: Vec<Racer<'_>> = bench
        .hooks(&event)
        .into_iter()
        .map(|(name, program)| Racer {
            forgotten: vec![world.record(card.link, family)],
            ..Racer::new(name, host, program)
        })
        .collect();
    racers.push(Racer::new(BATCH, host, add));
    racers.push(Racer::new(TRAIN, host, train));
    for racer in &mut racers {
        racer.before = vec![remove.clone()];
        // All leave the same, or they would not be comparable.
        racer.prepare()?;
        racer.program.output(host)?;
        let left = world.objects(family)?;
        if left != *all {
            return Err(BenchError::Different {
                who: racer.name.clone(),
                difference: left.difference(all),
            });
        }
    }
    let times = race(&racers, bench.rounds)?;
    let batch = times.get(bench.hooks.len());
    Ok(rows(scenario, &racers, &times, BATCH, batch, GAIN))
}

/// A renewal that changes nothing.
fn renewal(bench: &Bench) -> Result<Vec<Row>, BenchError> {
    let mut found = Vec::new();
    for family in Family::BOTH {
        let world = bench.world(2)?;
        world.bind_all(family)?;
        let scenario = format!("{family}: unchanged renewal");
        found.extend(renewal_in(bench, &world, family, &scenario, Some(RENEWAL))?);
    }
    Ok(found)
}

fn renewal_in(
    bench: &Bench,
    world: &World,
    family: Family,
    scenario: &str,
    target: Option<f64>,
) -> Result<Vec<Row>, BenchError> {
    let host = world.host();
    let event = world.event(world.card(1)?, family, true);
    let mut racers: Vec<Racer<'_>> = bench
        .hooks(&event)
        .into_iter()
        .map(|(name, program)| Racer::new(name, host, program))
        .collect();
    let dumps = world.dumped(&bench.tool("dumps"), family);
    let others = [
        (DUMPS, dumps),
        (
            "C, same dumps, static",
            world.dumped(&bench.tool("dumps-static"), family),
        ),
        ("C, nothing at all", Program::new(bench.tool("nothing"))),
        (
            "C, nothing at all, static",
            Program::new(bench.tool("nothing-static")),
        ),
    ];
    racers.extend(
        others
            .into_iter()
            .map(|(name, program)| Racer::new(name, host, program)),
    );
    // A first one may write: the kernel's view of a renewal is that of the lease before.
    event.output(host)?;
    let times = race(&racers, bench.rounds)?;
    let dumps = times.get(bench.hooks.len());
    let mut found = rows(
        scenario,
        &racers,
        &times,
        DUMPS,
        dumps,
        target.unwrap_or(f64::NAN),
    );
    for ratio in found.iter_mut().filter_map(|row| row.ratio.as_mut()) {
        ratio.target = ratio.target.and(target);
    }
    for racer in racers.iter().take(bench.hooks.len() + 1) {
        let peak = bench.peak(world, &racer.program)?;
        let who = format!("{}: peak memory", racer.name);
        found.push(Row::single(scenario, &who, Unit::Kibibytes, peak));
    }
    Ok(found)
}

/// One row for each racer; the first is judged by the target, the others of our builds
/// only compared.
fn rows(
    scenario: &str,
    racers: &[Racer<'_>],
    times: &[Times],
    of: &str,
    reference: Option<&Times>,
    target: f64,
) -> Vec<Row> {
    let mut found = Vec::new();
    for (number, (racer, times)) in racers.iter().zip(times).enumerate() {
        let row = Row::times(scenario, &racer.name, times);
        found.push(match reference {
            Some(reference) if racer.name != of => {
                row.beside(of, reference, (number == 0).then_some(target))
            }
            _ => row,
        });
    }
    found
}

/// Unchanged renewals with a million routes in table main, beside a host without.
fn crowded(bench: &Bench) -> Result<Vec<Row>, BenchError> {
    let family = Family::Ipv4;
    let empty = bench.world(2)?;
    let full = bench.world(2)?;
    empty.bind_all(family)?;
    full.bind_all(family)?;
    let gateway = full.card(0)?.gateway4();
    let name = &full.card(0)?.name;
    let mut text = String::new();
    for number in 0..CROWDED {
        let destination = std::net::Ipv4Addr::from(0x6440_0000 + 4 * number);
        text += &format!("route add {destination}/30 via {gateway} dev {name}\n");
    }
    let (fill, path) = full.batch(family, "main", &text)?;
    fill.output(full.host())?;
    std::fs::remove_file(&path).map_err(|source| BenchError::File { path, source })?;

    let scenario = format!("{family}: unchanged renewal, {CROWDED} routes in main");
    let mut racers = Vec::new();
    for (name, world) in [("hook", &full), (WITHOUT, &empty)] {
        let event = world.event(world.card(1)?, family, true);
        event.output(world.host())?;
        racers.push(Racer::new(name, world.host(), event));
    }
    racers.push(Racer::new(
        DUMPS,
        full.host(),
        full.dumped(&bench.tool("dumps"), family),
    ));
    let times = race(&racers, bench.rounds)?;
    let mut found = rows(
        &scenario,
        &racers,
        &times,
        WITHOUT,
        times.get(1),
        CROWDED_RENEWAL,
    );
    for row in found.iter_mut().skip(1) {
        row.ratio = None;
    }
    let event = full.event(full.card(1)?, family, true);
    let peak = bench.peak(&full, &event)?;
    found.push(Row::single(
        &scenario,
        "hook: peak memory",
        Unit::Kibibytes,
        peak,
    ));
    Ok(found)
}

/// Unchanged renewals with about 2,000 rules of our own.
fn rules(bench: &Bench) -> Result<Vec<Row>, BenchError> {
    let mut found = Vec::new();
    for family in Family::BOTH {
        let world = bench.world(2)?;
        if family == Family::Ipv4 {
            world.configure("permanent_addresses = true\n")?;
        }
        world.add_addresses(world.card(1)?, family, SOURCES)?;
        world.bind_all(family)?;
        let objects = world.objects(family)?.len();
        let scenario = format!("{family}: unchanged renewal, {objects} objects of our own");
        found.extend(renewal_in(bench, &world, family, &scenario, None)?);
    }
    Ok(found)
}

/// All cards of a host bound at once.
fn storm(bench: &Bench) -> Result<Vec<Row>, BenchError> {
    let family = Family::Ipv4;
    let world = bench.world(CARDS)?;
    let host = world.host();
    world.bind_all(family)?;
    let all = world.objects(family)?;
    let (remove, _) = world.batch(family, "del", &all.removals())?;
    let (add, _) = world.batch(family, "add", &all.additions())?;
    let events: Vec<Program> = world
        .cards()
        .map(|card| world.event(card, family, false))
        .collect();
    let (mut hooks, mut batches, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..(bench.rounds / 50).max(3) {
        remove.output(host)?;
        for card in world.cards() {
            let path = world.record(card.link, family);
            std::fs::remove_file(&path).map_err(|source| BenchError::File { path, source })?;
        }
        let before = world.runs(family)?;
        hooks.push(crowd(host, &events)?);
        runs.push(world.runs(family)? - before);
        let left = world.objects(family)?;
        if left != all {
            return Err(BenchError::Different {
                who: "the storm".to_owned(),
                difference: left.difference(&all),
            });
        }
        remove.output(host)?;
        batches.push(crowd(host, std::slice::from_ref(&add))?);
    }
    runs.sort_unstable();
    let scenario = format!(
        "{family}: {CARDS} cards bound at once, {} objects",
        all.len()
    );
    let (hooks, batches) = (Times::new(hooks), Times::new(batches));
    let mut found = vec![
        Row::times(&scenario, "hooks, until the last has ended", &hooks)
            .beside(BATCH, &batches, None),
        Row::times(&scenario, BATCH, &batches),
    ];
    let middle = runs.get(runs.len() / 2).copied().unwrap_or_default();
    found.push(Row {
        rounds: runs.len(),
        ..Row::single(&scenario, "reconciliations", Unit::Count, middle as f64)
    });
    let event = world.event(world.card(1)?, family, true);
    event.output(host)?;
    let peak = bench.peak(&world, &event)?;
    found.push(Row::single(
        &scenario,
        "one renewal then: peak memory",
        Unit::Kibibytes,
        peak,
    ));
    Ok(found)
}

/// The sizes of the programs.
fn size(bench: &Bench) -> Result<Vec<Row>, BenchError> {
    let mut found = Vec::new();
    let static_floor = (
        "C, same dumps, static".to_owned(),
        bench.tool("dumps-static"),
    );
    for (name, path) in bench.hooks.iter().chain([&static_floor]) {
        let metadata = std::fs::metadata(path).map_err(|source| BenchError::File {
            path: path.clone(),
            source,
        })?;
        let kibibytes = metadata.len() as f64 / 1024.0;
        found.push(Row::single(
            "program size",
            name,
            Unit::Kibibytes,
            kibibytes,
        ));
    }
    Ok(found)
}
