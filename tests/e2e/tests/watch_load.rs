//! The watcher under load: killed at any moment, in a fight, drowned in announcements,
//! beside a storm of hooks, with wrong configurations.
//!
//! `LEASEROUTE_KILLS` says how often the first test kills it, `LEASEROUTE_SEED` by which
//! seed.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::fmt::Debug;
use std::io::Write as _;
use std::process::{ChildStdin, Output, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use leaseroute_core::Family;
use leaseroute_e2e::churn::{Churn, batch, route_removal, rule_removal};
use leaseroute_e2e::daemon::{Daemon, read, tethered};
use leaseroute_e2e::host::PROGRAMS;
use leaseroute_e2e::kernel::{Own, foreign, ip};
use leaseroute_e2e::machine::{Machine, bound_event};
use leaseroute_e2e::wait_for;
use leaseroute_e2e::watcher::{CONFIGURATION, Watcher, health, state_folder, wait_health};
use leaseroute_lab::fabric::Layout;
use serde_json::Value;

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;
/// The pause that a fight of eight seconds comes to: 1, 2 and 4 s are over before.
const PAUSE: Duration = Duration::from_secs(8);
/// A fight is over when the object has stayed for so long.
const PEACE: Duration = Duration::from_secs(60);

/// A host with configured cards, each bound in both families.
fn bound(layout: &Layout) -> Machine {
    let machine = Machine::configured(layout);
    machine.install_program("leaseroute");
    machine.bind_all();
    machine
}

fn variable<T: FromStr<Err: Debug>>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Runs `leaseroute` on the host.
fn leaseroute(machine: &Machine, words: &[&str]) -> Output {
    let mut command = machine.command(&format!("{PROGRAMS}/leaseroute"));
    command.args(words);
    machine.output(command)
}

/// Removes everything of ours of a family at once.
fn take_all(machine: &Machine, family: Family) {
    let own = Own::expected(&machine.faces(family));
    let rules = own.rules.iter().map(|rule| rule_removal(rule));
    let routes = own.routes.iter().map(|route| route_removal(route));
    let lines: Vec<String> = rules.chain(routes).collect();
    batch(machine.fabric.host(), family, &lines, false);
}

fn assert_all_right(machine: &Machine, context: &str) {
    for family in Family::BOTH {
        let own = Own::read(machine.fabric.host(), family);
        let differences = own.differences(&Own::expected(&machine.faces(family)));
        assert!(
            differences.is_empty(),
            "{context}\n{differences}\n{}",
            machine.logs()
        );
    }
}

/// Whatever a killed watcher has left, and whatever happened before the next one came, the
/// next one makes right.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn killed_watchers_are_made_good_by_the_next_one() {
    let kills: u32 = variable("LEASEROUTE_KILLS", 25);
    let seed: u64 = variable("LEASEROUTE_SEED", 1);
    println!("LEASEROUTE_KILLS={kills} LEASEROUTE_SEED={seed}");
    let machine = bound(&Layout::separate(4));
    let before = foreign(machine.fabric.host());
    let mut churn = Churn::new(&machine, seed);
    let mut watcher = Watcher::start(&machine);
    let mut times = Vec::new();
    for round in 0..kills {
        let mut said = format!("seed {seed}, kill {round}");
        // Every third one is killed soon after it has started, the others while they live.
        let (delay, steps) = match churn.random().below(3) {
            0 => (churn.random().below(60), churn.random().below(2)),
            _ => (churn.random().below(250), 3 + churn.random().below(6)),
        };
        let mut kill = watcher.signal(&machine, "KILL");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(delay));
            kill.output().unwrap()
        });
        said += &format!(", after {delay} ms");
        for _ in 0..steps {
            said += &format!("\n  beside it: {}", churn.step(&machine));
        }
        let killed = killer.join().unwrap();
        let log = watcher.log();
        assert!(
            killed.status.success(),
            "{said}\nit had ended before\n{log}"
        );
        let status = watcher.ended();
        assert_eq!(status.code(), None, "{said}\n{log}");
        for _ in 0..churn.random().below(4) {
            said += &format!("\n  without it: {}", churn.step(&machine));
        }
        let started = Instant::now();
        watcher = Watcher::start(&machine);
        for _ in 0..churn.random().below(3) {
            said += &format!("\n  beside the next: {}", churn.step(&machine));
        }
        if churn.random().below(4) == 0 {
            // The next kill comes before anything is settled.
            continue;
        }
        let faces = Family::BOTH.map(|family| churn.faces(&machine, family));
        let settled = || {
            let mut wrong = churn.touched(&machine).join("\n");
            for (family, faces) in Family::BOTH.into_iter().zip(&faces) {
                let own = Own::read(machine.fabric.host(), family);
                wrong += &own.differences(&Own::expected(faces));
            }
            if wrong.is_empty() {
                Ok(())
            } else {
                Err(format!("{said}\n{wrong}\n{}", machine.logs()))
            }
        };
        wait_for("the next watcher has made it right", settled);
        times.push(started.elapsed());
        std::thread::sleep(Duration::from_millis(120));
        settled().unwrap_or_else(|wrong| panic!("it did not stay right: {wrong}"));
    }
    times.sort();
    println!(
        "right {:?} (median) and at most {:?} after the start of the next watcher",
        times.get(times.len() / 2),
        times.last()
    );
    churn.end(&machine);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    assert_eq!(foreign(machine.fabric.host()), before);
    watcher.send(&machine, "TERM");
    assert_eq!(watcher.ended().code(), Some(0), "{}", machine.logs());
    assert_all_right(&machine, "after the last watcher has ended");
}

/// Removes one rule of ours again and again.
trait Opponent {
    fn strike(&mut self, machine: &Machine);
    /// How the watcher may call it.
    fn name(&self) -> Option<&str>;
}

/// A process for each removal, gone when the watcher looks.
struct Fleeting {
    line: String,
}

impl Opponent for Fleeting {
    fn strike(&mut self, machine: &Machine) {
        let mut command = machine.command("ip");
        command.args(self.line.split_whitespace());
        machine.output(command);
    }

    fn name(&self) -> Option<&str> {
        None
    }
}

/// One process that goes on living, by a name of its own. It removes an IPv6 rule.
struct Persistent {
    line: String,
    input: ChildStdin,
    _daemon: std::process::Child,
}

impl Persistent {
    const NAME: &str = "rule-cleaner";

    fn start(machine: &Machine, line: String) -> Self {
        let program = format!("/run/{}", Self::NAME);
        machine.shell(&format!("cp $(command -v ip) {program}"));
        let mut command = machine.command(&program);
        command
            .args(["-6", "-force", "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut daemon = machine.fabric.host().spawn(command).unwrap();
        Self {
            line,
            input: daemon.stdin.take().unwrap(),
            _daemon: daemon,
        }
    }
}

impl Opponent for Persistent {
    fn strike(&mut self, _: &Machine) {
        writeln!(self.input, "{}", self.line).unwrap();
        self.input.flush().unwrap();
    }

    fn name(&self) -> Option<&str> {
        Some(Self::NAME)
    }
}

/// What the kernel announces of rules and routes, as `ip monitor` writes it.
struct Announced {
    monitor: Daemon,
    from: usize,
}

impl Announced {
    fn listen(machine: &Machine, log: &str) -> Self {
        let site = machine.fabric.host();
        let mut command = tethered("ip");
        command.args(["-N", "-ts", "monitor", "rule", "route"]);
        let monitor = Daemon::start(site, command, &machine.log_file(log));
        // A rule of somebody else shows that it is listening.
        wait_for("the monitor listens", || {
            ip(site, "rule add priority 99 lookup 99");
            ip(site, "rule del priority 99 lookup 99");
            let said = monitor.log();
            if said.contains("99:") {
                Ok(())
            } else {
                Err(said)
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        let from = monitor.log().len();
        Self { monitor, from }
    }

    /// The lines about objects of ours since it listens.
    fn ours(&self) -> Vec<String> {
        let said = self.monitor.log();
        let lines = said[self.from..].lines();
        let ours = lines.filter(|line| line.contains("proto 76"));
        ours.map(str::to_owned).collect()
    }
}

/// Every fight in an answer of `status --json`, wherever it stands.
fn fights(answer: &Value) -> Vec<Value> {
    match answer {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| match value {
                Value::Array(list) if key == "fights" => list.clone(),
                other => fights(other),
            })
            .collect(),
        Value::Array(list) => list.iter().flat_map(fights).collect(),
        _ => Vec::new(),
    }
}

/// A program removes one rule of ours every 100 ms for eight seconds. Returns when it did
/// for the last time.
fn fight(machine: &Machine, watcher: &Watcher, opponent: &mut dyn Opponent, rule: &str) -> Instant {
    let before = foreign(machine.fabric.host());
    let announced = Announced::listen(machine, "monitor");
    let processor = watcher.processor_time();
    let looks = health(machine)["looks"].as_u64().unwrap();
    let began = Instant::now();
    let mut strikes = 0_u32;
    while began.elapsed() < Duration::from_secs(8) {
        opponent.strike(machine);
        strikes += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    let took = began.elapsed();
    let (priority, selector) = rule.split_once(": ").unwrap();
    let selector = selector.split(" lookup ").next().unwrap();
    let is_it = |text: &str| {
        text.contains(priority) && text.contains(selector.trim_start_matches("from all "))
    };

    // While it lasts: bounded work, and it is said what is fought for and with whom.
    let status = leaseroute(machine, &["status", "--json"]);
    let answer: Value = serde_json::from_slice(&status.stdout).unwrap();
    let seen = fights(&answer);
    assert!(
        seen.len() == 1 && is_it(seen[0]["object"].as_str().unwrap()),
        "{answer:#}\n{}",
        machine.logs()
    );
    let processor = watcher.processor_time().saturating_sub(processor);
    let looks = health(machine)["looks"].as_u64().unwrap() - looks;
    let lines = announced.ours();
    let (gone, back): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.contains("Deleted"));
    println!(
        "{strikes} strikes in {took:?}: {} removals, put back {} times, {looks} looks, {processor:?}",
        gone.len(),
        back.len()
    );
    let others: Vec<_> = lines.iter().filter(|line| !is_it(line)).collect();
    assert!(others.is_empty(), "{others:#?}\n{}", machine.logs());
    assert!(
        (1..=strikes as usize / 4).contains(&back.len()),
        "put back {} times against {strikes} strikes\n{lines:#?}\n{}",
        back.len(),
        machine.logs()
    );
    assert!(
        processor < took / 10,
        "{processor:?} of processor time in {took:?}"
    );
    assert!(looks < u64::from(strikes), "{looks} looks");
    let log = watcher.log();
    let warned: Vec<_> = log
        .lines()
        .filter(|line| line.contains("warning: ") && is_it(line))
        .collect();
    assert!(
        (1..=8).contains(&warned.len()),
        "{} warnings\n{log}",
        warned.len()
    );
    if let Some(name) = opponent.name() {
        assert!(warned.iter().any(|line| line.contains(name)), "{log}");
        let by = seen[0]["by"].as_str().unwrap_or_default();
        assert!(by.contains(name), "{answer:#}");
    }
    assert_eq!(foreign(machine.fabric.host()), before);

    // Afterwards: it is back when the pause is over, and the fight is over after a while.
    let ended = Instant::now();
    let deadline = PAUSE + Duration::from_secs(4);
    let expected = Family::BOTH.map(|family| Own::expected(&machine.faces(family)));
    while Family::BOTH.map(|family| Own::read(machine.fabric.host(), family)) != expected {
        assert!(ended.elapsed() < deadline, "{}", machine.logs());
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("back {:?} after the last strike", ended.elapsed());
    std::thread::sleep(Duration::from_secs(1));
    let left = fights(&health(machine));
    assert_eq!(left.len(), 1, "it may go on: {left:?}");
    ended
}

/// Waits until a fight is reported over, which is when the object has stayed for a while.
fn wait_for_peace(machine: &Machine, ended: Instant) {
    let deadline = PAUSE + PEACE + Duration::from_secs(4);
    while !fights(&health(machine)).is_empty() {
        assert!(ended.elapsed() < deadline, "{}", machine.logs());
        std::thread::sleep(Duration::from_millis(500));
    }
    let took = ended.elapsed();
    println!("over {took:?} after the last strike");
    assert!(took > PEACE, "over after {took:?}");
    let log = machine.logs();
    assert!(log.contains("nobody removes it any more"), "{log}");
    assert_all_right(machine, "after the fight");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn fight_with_short_lived_processes_is_given_up_for_a_while() {
    let machine = bound(&Layout::separate(3));
    let card = machine.card(1);
    let rule = format!(
        "7630: from {} lookup {}",
        card.ipv4,
        76000 + card.link.get()
    );
    let mut opponent = Fleeting {
        line: rule_removal(&rule),
    };
    let watcher = Watcher::start_and_wait(&machine);
    fight(&machine, &watcher, &mut opponent, &rule);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn fight_with_a_daemon_names_it() {
    let machine = bound(&Layout::separate(3));
    let card = machine.card(2);
    let rule = format!("7620: from {} lookup 254 suppress 4", card.ipv6);
    let mut opponent = Persistent::start(&machine, rule_removal(&rule));
    let watcher = Watcher::start_and_wait(&machine);
    let ended = fight(&machine, &watcher, &mut opponent, &rule);
    wait_for_peace(&machine, ended);
}

/// A program removes all IPv4 rules of ours again and again.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn fight_over_everything_is_bounded() {
    let machine = bound(&Layout::of((0..16).map(|number| number / 4).collect()));
    let watcher = Watcher::start_and_wait(&machine);
    let announced = Announced::listen(&machine, "monitor");
    let own = Own::expected(&machine.faces(V4));
    let lines: Vec<String> = own.rules.iter().map(|rule| rule_removal(rule)).collect();
    let processor = watcher.processor_time();
    let began = Instant::now();
    let mut strikes = 0;
    while began.elapsed() < Duration::from_secs(6) {
        batch(machine.fabric.host(), V4, &lines, false);
        strikes += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    let processor = watcher.processor_time().saturating_sub(processor);
    let (gone, back): (Vec<_>, Vec<_>) = announced
        .ours()
        .into_iter()
        .partition(|line| line.contains("Deleted"));
    let log = watcher.log();
    println!(
        "{strikes} strikes at {} rules: {} removals, {} put back, {} lines of log, {processor:?}",
        lines.len(),
        gone.len(),
        back.len(),
        log.lines().count()
    );
    assert!(log.contains("more objects like this"), "{log}");
    assert!(log.lines().count() < 60, "{log}");
    machine.wait_own(V4, &machine.faces(V4));
    machine.wait_own(V6, &machine.faces(V6));
}

/// A client that gives its lease back and gets it again fights with nobody: its hook has
/// ended when the watcher hears what it removed.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn a_lease_that_comes_and_goes_is_no_fight() {
    let machine = bound(&Layout::separate(3));
    let card = machine.card(1);
    let watcher = Watcher::start_and_wait(&machine);
    let bound = bound_event(&card, V4);
    let mut released = bound.clone();
    released[1].1 = "RELEASE".to_owned();
    for _ in 0..8 {
        for event in [&released, &bound] {
            // A machine that is busy lets it hear so late.
            watcher.stop_between_looks(&machine);
            let output = machine.output(machine.event(event));
            assert!(output.status.success());
            watcher.send(&machine, "CONT");
            std::thread::sleep(Duration::from_millis(150));
        }
    }
    std::thread::sleep(Duration::from_millis(1500));
    let log = watcher.log();
    assert!(!log.contains("again and again"), "{log}");
    assert!(fights(&health(&machine)).is_empty(), "{log}");
    assert_all_right(&machine, "at the end");
}

/// More announcements than the kernel keeps: everything is read again.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn lost_announcements_are_made_good() {
    let machine = bound(&Layout::separate(3));
    let watcher = Watcher::start_and_wait(&machine);
    let before = foreign(machine.fabric.host());
    let overruns = health(&machine)["overruns"].as_u64().unwrap();
    watcher.stop_between_looks(&machine);
    for family in Family::BOTH {
        take_all(&machine, family);
    }
    let routes = |verb: &str| -> Vec<String> {
        (0..25_000)
            .map(|n| {
                format!(
                    "route {verb} unreachable 100.{}.{}.0/24 table 254",
                    64 + n / 256,
                    n % 256
                )
            })
            .collect()
    };
    batch(machine.fabric.host(), V4, &routes("add"), true);
    batch(machine.fabric.host(), V4, &routes("del"), true);
    for family in Family::BOTH {
        assert!(Own::read(machine.fabric.host(), family).is_empty());
    }
    let started = Instant::now();
    watcher.send(&machine, "CONT");
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    println!("right {:?} after it went on", started.elapsed());
    wait_health(&machine, "the overrun is counted", |health| {
        health["overruns"].as_u64() > Some(overruns)
    });
    assert_eq!(foreign(machine.fabric.host()), before);
}

/// While nothing happens nothing is done, and what does not concern us costs no look,
/// however much of it there is.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn foreign_routes_are_not_looked_at() {
    let machine = bound(&Layout::separate(3));
    let watcher = Watcher::start_and_wait(&machine);
    // What its start has stirred up is over.
    std::thread::sleep(Duration::from_secs(2));
    let waits = watcher.waits();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(watcher.waits(), waits, "it polls");
    let looks = health(&machine)["looks"].as_u64().unwrap();
    let processor = watcher.processor_time();
    let began = Instant::now();
    for family in Family::BOTH {
        for verb in ["add", "del"] {
            let lines: Vec<String> = (0..5_000_u32)
                .map(|n| {
                    let table = if n % 2 == 0 { 254 } else { 901 };
                    match family {
                        V4 => format!(
                            "route {verb} blackhole 100.64.{}.{}/32 table {table}",
                            n / 256,
                            n % 256
                        ),
                        V6 => format!("route {verb} blackhole fd00:64::{n:x}/128 table {table}"),
                    }
                })
                .collect();
            batch(machine.fabric.host(), family, &lines, true);
        }
    }
    let took = began.elapsed();
    std::thread::sleep(Duration::from_millis(1500));
    let used = watcher.processor_time().saturating_sub(processor);
    // The health is written when there is something to tell.
    ip(machine.fabric.host(), "rule del priority 7630 protocol 76");
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    let health = wait_health(&machine, "the heal is counted", |health| {
        health["looks"].as_u64() > Some(looks)
    });
    let more = health["looks"].as_u64().unwrap() - looks;
    println!("20000 announcements in {took:?}: {more} looks, {used:?}");
    // A machine that is busy elsewhere may lose some, and one look makes that good.
    let overruns = health["overruns"].as_u64().unwrap();
    assert!(
        more <= 5 + overruns,
        "{more} looks\n{health:#}\n{}",
        machine.logs()
    );
}

/// A second watcher ends at once, and the first goes on.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn second_watcher_ends_with_code_7() {
    let machine = bound(&Layout::separate(2));
    let first = Watcher::start_and_wait(&machine);
    let mut second = machine.command("timeout");
    second.args([
        "-s",
        "KILL",
        "20",
        &format!("{PROGRAMS}/leaseroute"),
        "watch",
    ]);
    let output = machine.output(second);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("watch"), "{said}");
    assert_eq!(health(&machine)["pid"], first.pid);
    take_all(&machine, V4);
    machine.wait_own(V4, &machine.faces(V4));
    // One that was killed is in nobody's way.
    first.send(&machine, "KILL");
    assert_eq!(first.ended().code(), None);
    let _third = Watcher::start_and_wait(&machine);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_configuration_at_the_start_ends_it_and_later_is_not_taken() {
    let machine = bound(&Layout::separate(2));
    let broken = "when = \"always\"\ntabels = 3\n[numbers\n";
    machine.write(CONFIGURATION, broken, 0o644);
    let mut command = machine.command("timeout");
    command.args([
        "-s",
        "KILL",
        "20",
        &format!("{PROGRAMS}/leaseroute"),
        "watch",
    ]);
    let output = machine.output(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.contains("config.toml") && said.contains('3'),
        "it names the file and the line: {said}"
    );
    assert_all_right(&machine, "after it has refused to start");

    // With a good one it starts; a broken one then changes nothing.
    machine.write(CONFIGURATION, "", 0o644);
    let watcher = Watcher::start_and_wait(&machine);
    machine.write(CONFIGURATION, broken, 0o644);
    watcher.send(&machine, "HUP");
    wait_for("it has said what is wrong", || {
        let log = watcher.log();
        if log.contains("config.toml") {
            Ok(())
        } else {
            Err(log)
        }
    });
    take_all(&machine, V4);
    take_all(&machine, V6);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    // And a good one is taken: without the second card nothing of ours is left.
    let excluded = format!(
        "[[interface]]\nmatch = {{ name = \"{}\" }}\nmanage = false\n",
        machine.card(1).name
    );
    machine.write(CONFIGURATION, &excluded, 0o644);
    watcher.send(&machine, "HUP");
    let name = machine.card(1).name.to_string();
    wait_for("the second card is left alone", || {
        let own = Own::read(machine.fabric.host(), V4).to_string();
        if own.contains(&format!("oif {name}")) {
            Err(format!("{own}\n{}", machine.logs()))
        } else {
            Ok(())
        }
    });
    // What it has removed itself then is no news to it.
    std::thread::sleep(Duration::from_millis(1500));
    let now = health(&machine);
    assert_eq!(
        now["last_causes"],
        Value::from(vec!["configuration"]),
        "{now:#}\n{}",
        watcher.log()
    );
    machine.write(CONFIGURATION, "", 0o644);
    watcher.send(&machine, "HUP");
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    watcher.send(&machine, "TERM");
    assert_eq!(watcher.ended().code(), Some(0), "{}", machine.logs());
    assert_all_right(&machine, "after its end");
}

/// Asked to end it leaves routes and rules in place, also when it is stopped while busy.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn ends_when_asked_and_leaves_everything() {
    let machine = bound(&Layout::separate(2));
    for signal in ["TERM", "INT"] {
        let watcher = Watcher::start_and_wait(&machine);
        let began = Instant::now();
        watcher.send(&machine, signal);
        assert_eq!(watcher.ended().code(), Some(0), "{}", machine.logs());
        println!("ended {:?} after SIG{signal}", began.elapsed());
        assert_all_right(&machine, signal);
    }
}

/// Hooks and the watcher do the same work by the same lock: none of them fails, and no
/// lease is lost.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn sixty_four_hooks_beside_the_watcher() {
    let machine = Machine::configured(&Layout {
        neighbours: false,
        ..Layout::of((0..64).map(|number| number / 16).collect())
    });
    machine.install_program("leaseroute");
    let watcher = Watcher::start_and_wait(&machine);
    let running: Vec<_> = Family::BOTH
        .into_iter()
        .flat_map(|family| machine.fabric.cards().map(move |card| (card, family)))
        .map(|(card, family)| {
            let mut command = machine.event(&bound_event(card, family));
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            machine.fabric.host().spawn(command).unwrap()
        })
        .collect();
    let outputs: Vec<Output> = running
        .into_iter()
        .map(|child| child.wait_with_output().unwrap())
        .collect();
    for output in &outputs {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {said}\n{}",
            output.status,
            watcher.log()
        );
    }
    assert_all_right(&machine, "when the last hook has ended");
    std::thread::sleep(Duration::from_secs(1));
    assert_all_right(&machine, "a second later");
    let folder = state_folder(&machine).unwrap();
    for card in machine.fabric.cards() {
        for digit in [4, 6] {
            let path = folder.join(format!("leases/{}.{digit}.json", card.link.get()));
            assert!(read(&path).contains("held"), "{}", path.display());
        }
    }
    let health = health(&machine);
    assert_eq!(health["fights"], Value::Array(Vec::new()), "{health:#}");
    assert_eq!(health["heals"]["removed"], Value::Null, "{health:#}");
}
