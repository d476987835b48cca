//! What comes of recorded events, compared with what was found right before.
//!
//! Every folder below `tests/fixtures/CLIENT` is one case (see `leaseroute_lab::fixture`).
//! `UPDATE_FIXTURES=1 cargo test -p leaseroute-lab --test golden` writes `expected` anew;
//! read the difference before it is kept.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop")]

#[path = "support/kernel.rs"]
#[expect(dead_code, reason = "shared with the property tests")]
mod kernel;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ipnetwork::IpNetwork;
use kernel::{execute_all, inherit, ours, read};
use leaseroute_config::{Folders, load};
use leaseroute_core::{
    Client, DesiredState, Effect, Family, Folded, Host, LeaseBook, RawEvent, Settings, When,
    desired_state, plan,
};
use leaseroute_lab::fake::FakeKernel;
use leaseroute_lab::fixture::{Fixture, Snapshot, Step};

/// One case while its steps are taken.
struct Replay {
    settings: Settings,
    book: LeaseBook,
    kernel: FakeKernel,
    text: String,
}

#[test]
fn recorded_events_come_out_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut fixtures = Vec::new();
    for client in Client::ALL {
        let folder = folder.join(client.name());
        let found = Fixture::read_all(&folder, *client).unwrap();
        assert!(!found.is_empty(), "no case below {}", folder.display());
        fixtures.extend(found);
    }
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    let mut wrong = Vec::new();
    for fixture in fixtures {
        let seen = replayed(&fixture);
        let file = fixture.folder.join("expected");
        if update {
            fs::write(&file, &seen).unwrap();
        } else if fs::read_to_string(&file).unwrap_or_default() != seen {
            let name = fixture.folder.strip_prefix(&folder).unwrap().display();
            wrong.push(format!("== {name}: {}\n{seen}", fixture.why));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn settings_of(fixture: &Fixture) -> Settings {
    if fixture.folder.join("config.toml").exists() {
        let loaded = load(&Folders::new(Some(fixture.folder.clone()))).unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        return loaded.settings;
    }
    Settings {
        when: When::Always,
        ..Settings::default()
    }
}

fn replayed(fixture: &Fixture) -> String {
    assert!(
        !fixture.why.is_empty() && !fixture.why.contains('\n'),
        "{}",
        fixture.folder.display()
    );
    assert!(!fixture.steps.is_empty(), "{}", fixture.folder.display());
    let mut replay = Replay {
        settings: settings_of(fixture),
        book: LeaseBook::default(),
        kernel: FakeKernel::holding(&Snapshot::default()),
        text: String::new(),
    };
    for step in &fixture.steps {
        replay.take(step);
    }
    replay.text
}

impl Replay {
    fn take(&mut self, step: &Step) {
        let Step { name, event, state } = step;
        writeln!(self.text, "==== {name}").unwrap();
        self.set_state(state);
        let families = match event {
            None => Family::BOTH.to_vec(),
            Some(raw) => self.take_event(raw),
        };
        for family in families {
            self.reconcile(family);
        }
    }

    /// A state that shows objects of ours is taken as it is; else what the last step made
    /// of ours is still there, as far as the kernel keeps it.
    fn set_state(&mut self, state: &Snapshot) {
        let mut state = state.clone();
        let (rules, routes) = ours(&state, &self.settings);
        if rules.is_empty() && routes.is_empty() {
            inherit(&mut state, &self.kernel.contents(), &self.settings);
        }
        self.kernel = FakeKernel::holding(&state);
    }

    fn take_event(&mut self, raw: &RawEvent) -> Vec<Family> {
        let parsed = match raw.client.parse(raw) {
            Ok(parsed) => parsed,
            Err(refusal) => {
                writeln!(self.text, "refused: {refusal}").unwrap();
                return Vec::new();
            }
        };
        for dropped in &parsed.dropped {
            writeln!(self.text, "{dropped}").unwrap();
        }
        let Some(event) = parsed.event else {
            writeln!(self.text, "no change").unwrap();
            return Vec::new();
        };
        for change in &event.changes {
            let change = serde_json::to_string_pretty(change).unwrap();
            writeln!(
                self.text,
                "{} on {}: {change}",
                event.reason, event.interface
            )
            .unwrap();
        }
        let host = Host {
            links: self.kernel.contents().links,
            ..Host::default()
        };
        match self.book.fold(&event, Some(raw), &host, 0) {
            Folded::NoSuchInterface(interface) => {
                writeln!(self.text, "no such interface: {interface}").unwrap();
                event.families().collect()
            }
            Folded::TakenIn(effects) => {
                for (_, effect) in &effects {
                    let said = match effect {
                        Effect::None => "as before",
                        Effect::Renewed => "unchanged",
                        Effect::Changed => "changed",
                    };
                    writeln!(self.text, "recorded: {said}").unwrap();
                }
                effects.iter().map(|((_, family), _)| *family).collect()
            }
        }
    }

    fn reconcile(&mut self, family: Family) {
        let host = read(&self.kernel, family, &self.book, &self.settings);
        let desired = desired_state(family, &host, &self.book, &self.settings);
        let steps = plan(&desired, &host, &self.settings);
        self.tell(&desired);
        for note in &steps.notes {
            writeln!(self.text, "note: {note}").unwrap();
        }
        writeln!(self.text, "-- plan, {family}").unwrap();
        if steps.is_empty() {
            writeln!(self.text, "nothing to do").unwrap();
        }
        write!(self.text, "{steps}").unwrap();

        // Whatever is expected, it has to work and to be enough.
        execute_all(&self.kernel, &steps);
        let host = read(&self.kernel, family, &self.book, &self.settings);
        let desired = desired_state(family, &host, &self.book, &self.settings);
        let again = plan(&desired, &host, &self.settings);
        assert!(again.is_empty(), "after\n{steps}\nstill\n{again}");
    }

    fn tell(&mut self, desired: &DesiredState) {
        let text = &mut self.text;
        writeln!(
            text,
            "-- wanted, {}{}",
            desired.family,
            if desired.active { "" } else { ": nothing" }
        )
        .unwrap();
        for uplink in &desired.uplinks {
            let table = uplink
                .table
                .map_or("none".to_owned(), |table| table.to_string());
            let sources: Vec<String> = uplink.sources.iter().map(IpNetwork::to_string).collect();
            writeln!(
                text,
                "uplink {}: table {table}, sources [{}]",
                uplink.device,
                sources.join(", ")
            )
            .unwrap();
        }
        for (route, purpose) in &desired.routes {
            writeln!(text, "table {}: {route}  # {purpose}", route.table).unwrap();
        }
        for kept in &desired.kept_routes {
            writeln!(
                text,
                "table {}: {}  # kept",
                kept.table,
                kept.describe(None)
            )
            .unwrap();
        }
        for (rule, purpose) in &desired.rules {
            writeln!(text, "{rule}  # {purpose}").unwrap();
        }
        for note in &desired.notes {
            writeln!(text, "note: {note}").unwrap();
        }
    }
}
