//! The watcher's health, as `status` shows it.

use std::fmt;

use leaseroute_core::Quoted;
use leaseroute_runtime::StateFolder;
use leaseroute_runtime::error::with_causes;
use leaseroute_watch::health::{self, Fight, Health};
use serde::Serialize;

/// The most fights that people are shown.
const FIGHTS: usize = 20;

/// What is known of the watcher.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct WatcherView {
    /// Whether it runs; `null` when that could not be found out.
    running: Option<bool>,
    /// What it told of itself, or the one before it did; `null` when none was started since
    /// the boot, or when it cannot be read.
    health: Option<Health>,
    /// What could not be found out or read, in words.
    problems: Vec<String>,
}

impl WatcherView {
    /// Reads what a watcher left in the state folder.
    pub(crate) fn read(state: &StateFolder) -> Self {
        let mut problems = Vec::new();
        // A watcher tells of itself after it has taken the lock, and before it lets it go.
        let running = health::is_running(state).map_err(|error| {
            problems.push(format!("whether it runs could not be found out: {error}"));
        });
        let health = Health::read(state).unwrap_or_else(|error| {
            problems.push(match error.damaged() {
                // The reasons would have parts of the file in them.
                Some(file) => format!("{} is damaged or of another version", file.display()),
                None => with_causes(&error),
            });
            None
        });
        Self {
            running: running.ok(),
            health,
            problems,
        }
    }

    /// Writes it for people. `now` is in seconds since 1970.
    pub(crate) fn write(&self, now: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ago = |time: u64| now.saturating_sub(time);
        match (self.running, &self.health) {
            (None, _) => writeln!(f, "watcher: unknown")?,
            (Some(true), None) => writeln!(f, "watcher: running")?,
            (Some(true), Some(it)) => writeln!(
                f,
                "watcher: running for {} s, process {}",
                ago(it.started),
                it.pid
            )?,
            (Some(false), None) if self.problems.is_empty() => {
                writeln!(f, "watcher: not running, was not started")?;
            }
            (Some(false), None) => writeln!(f, "watcher: not running")?,
            (Some(false), Some(it)) => match it.stopped {
                Some(stopped) => {
                    writeln!(
                        f,
                        "watcher: not running, was stopped {} s ago",
                        ago(stopped)
                    )?;
                }
                None => writeln!(
                    f,
                    "watcher: NOT RUNNING, process {} that started {} s ago was killed or failed",
                    it.pid,
                    ago(it.started)
                )?,
            },
        }
        for problem in &self.problems {
            writeln!(f, "  {problem}")?;
        }
        let Some(health) = &self.health else {
            return Ok(());
        };
        write_work(health, now, f)?;
        if self.running == Some(false) {
            return Ok(());
        }
        for fight in health.fights.iter().take(FIGHTS) {
            write_fight(fight, now, f)?;
        }
        match health.fights.len().saturating_sub(FIGHTS) {
            0 => Ok(()),
            more => writeln!(f, "  fights: {more} more, see --json"),
        }
    }
}

/// What it did.
fn write_work(health: &Health, now: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "  looked {}", times(health.looks))?;
    if let Some(last) = health.last_event {
        write!(f, ", last {} s ago", now.saturating_sub(last))?;
        let causes: Vec<String> = health.last_causes.iter().map(ToString::to_string).collect();
        if !causes.is_empty() {
            write!(f, " ({})", causes.join(", "))?;
        }
    }
    writeln!(f)?;
    let heals = health.heals.iter().filter(|(_, count)| **count > 0);
    let heals: Vec<String> = heals
        .map(|(cause, count)| format!("{count} ({cause})"))
        .collect();
    if !heals.is_empty() {
        writeln!(f, "  objects put back: {}", heals.join(", "))?;
    }
    if health.overruns > 0 {
        writeln!(
            f,
            "  announcements of the kernel were lost {}, and everything read again",
            times(health.overruns)
        )?;
    }
    Ok(())
}

fn write_fight(fight: &Fight, now: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "  FIGHT: {} was removed {}, last {} s ago by ",
        Quoted(&fight.object),
        times(fight.times),
        now.saturating_sub(fight.last)
    )?;
    match &fight.by {
        // A program chooses its own name.
        Some(program) => write!(f, "{}", Quoted(program))?,
        None => f.write_str("a program that had ended")?,
    }
    match fight.pause_until.checked_sub(now) {
        Some(more @ 1..) => writeln!(f, "; it is left alone for {more} s more"),
        _ => writeln!(f),
    }
}

/// "once", "2 times".
fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use leaseroute_watch::health::{Cause, lock_path};

    use super::*;

    /// What a test may show of a watcher.
    struct Text<'a>(&'a WatcherView);

    impl fmt::Display for Text<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.write(10_000, f)
        }
    }

    fn text(view: &WatcherView) -> String {
        Text(view).to_string()
    }

    fn view(running: bool, health: Option<Health>) -> WatcherView {
        WatcherView {
            running: Some(running),
            health,
            problems: Vec::new(),
        }
    }

    fn busy() -> Health {
        let fight = |by: Option<&str>, pause_until| Fight {
            object: "ip rule add priority 7630 from 192.0.2.10 lookup 76011 protocol 76".to_owned(),
            times: 41,
            last: 9_997,
            by: by.map(str::to_owned),
            pause_until,
        };
        Health {
            pid: 812,
            started: 6_400,
            stopped: None,
            last_event: Some(9_988),
            last_causes: vec![Cause::Link, Cause::Removed],
            looks: 57,
            heals: [(Cause::Link, 2), (Cause::Removed, 3), (Cause::Start, 0)].into(),
            overruns: 1,
            fights: vec![
                fight(Some("evil\u{1b}[2J\nname (4711)"), 10_057),
                fight(None, 9_999),
            ],
        }
    }

    #[test]
    fn people_see_what_the_watcher_does() {
        insta::assert_snapshot!(Text(&view(true, Some(busy()))));
    }

    #[test]
    fn programs_see_it_too() {
        let view = view(true, Some(busy()));
        insta::assert_snapshot!(serde_json::to_string_pretty(&view).unwrap());
    }

    #[test]
    fn a_watcher_that_does_not_run_is_told_from_one_that_never_did() {
        let never = text(&view(false, None));
        assert_eq!(never, "watcher: not running, was not started\n");
        let killed = text(&view(false, Some(busy())));
        assert!(
            killed.starts_with("watcher: NOT RUNNING, process 812 "),
            "{killed}"
        );
        assert!(!killed.contains("FIGHT"), "{killed}");
        let stopped = Health {
            stopped: Some(9_990),
            ..busy()
        };
        let stopped = text(&view(false, Some(stopped)));
        assert!(
            stopped.starts_with("watcher: not running, was stopped 10 s ago\n"),
            "{stopped}"
        );
    }

    #[test]
    fn a_long_list_of_fights_is_cut() {
        let mut health = busy();
        health.fights = vec![health.fights[0].clone(); 23];
        let text = text(&view(true, Some(health)));
        assert_eq!(text.matches("FIGHT").count(), 20);
        assert!(text.ends_with("  fights: 3 more, see --json\n"), "{text}");
    }

    #[test]
    fn a_file_that_makes_no_sense_is_said_in_one_line() {
        let home = tempfile::tempdir().unwrap();
        let state = StateFolder::at(home.path().to_owned());
        assert_eq!(WatcherView::read(&state), view(false, None));
        fs::write(lock_path(&state), "").unwrap();
        for hostile in ["{\"pid\": \"\u{1b}[2J\"}".to_owned(), "[".repeat(100_000)] {
            fs::write(home.path().join("watch.json"), hostile).unwrap();
            let text = text(&WatcherView::read(&state));
            let file = home.path().join("watch.json");
            let said = format!(
                "watcher: not running\n  {} is damaged or of another version\n",
                file.display()
            );
            assert_eq!(text, said);
        }
    }
}
