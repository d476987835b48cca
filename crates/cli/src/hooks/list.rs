//! `leaseroute hooks list`: which clients are here, what is in place for each, and whether
//! their hooks are called.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::cards::{self, CardView};
use super::change::{Kind, ToDo};
use super::entry::{self, State};
use super::presence::Waits;
use super::processes::{self, Process};
use super::programs::{self, ProgramState};
use super::room::{Room, Row};
use super::root::Root;
use super::table::ROOMS;
use crate::error::CliError;
use crate::view::FORMAT;

/// The clients of a system, and on this one its cards.
#[derive(Debug, Serialize)]
pub(crate) struct HooksView {
    version: u32,
    /// In seconds since 1970.
    pub(crate) time: u64,
    pub(crate) root: PathBuf,
    pub(crate) clients: Vec<ClientView>,
    /// `null` when the root is not this system's.
    pub(crate) cards: Option<Vec<CardView>>,
}

/// One client.
#[derive(Debug, Serialize)]
pub(crate) struct ClientView {
    pub(crate) client: &'static str,
    /// Whether its entries are settings, and no hooks.
    #[serde(skip)]
    pub(crate) is_setting: bool,
    /// Whether it is installed.
    pub(crate) here: bool,
    /// Whose way of keeping hooks was found, in words; empty where all have the same.
    pub(crate) layout: &'static str,
    pub(crate) entries: Vec<EntryView>,
    /// `null`: its entries start none.
    pub(crate) program: Option<ProgramView>,
    pub(crate) live: Live,
    /// Why the hook is not called.
    pub(crate) why_not: Vec<String>,
    /// What is left to be done by hand.
    pub(crate) to_do: Vec<ToDo>,
}

/// Whether a client calls our hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Live {
    Yes,
    No,
    /// A process of it does when it was started with our script.
    ByProcess,
    /// What is in place could not be looked at.
    Unknown,
}

/// A file, link or line.
#[derive(Debug, Serialize)]
pub(crate) struct EntryView {
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) state: Word,
    /// What is there that is not ours, or has the wrong mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// Why it is put there.
    pub(crate) why: &'static str,
}

/// How an entry or a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    InPlace,
    Missing,
    /// Of another version than this program's.
    Outdated,
    NotExecutable,
    WrongMode,
    WrongOwner,
    /// It could not be looked at.
    Unreadable,
    /// Not ours.
    Foreign,
    /// Ours, where this system's client does not look.
    OutOfPlace,
}

/// The program that a client's hooks start.
#[derive(Debug, Serialize)]
pub(crate) struct ProgramView {
    pub(super) path: String,
    pub(super) state: Word,
}

/// Looks at a system. `now` is in seconds since 1970.
pub(crate) fn list(root: &Root, named: &[&'static Room], now: u64) -> Result<HooksView, CliError> {
    let running = root.is_here().then(processes::read);
    let mut clients: Vec<ClientView> = ROOMS
        .iter()
        .map(|room| ClientView::new(root, room, running.as_deref()))
        .collect();
    let cards = running
        .map(|running| cards::cards(root, &running, &clients))
        .transpose()?;
    clients.retain(|view| named.is_empty() || named.iter().any(|room| room.name == view.client));
    Ok(HooksView {
        version: FORMAT,
        time: now,
        root: root.path().to_owned(),
        clients,
        cards,
    })
}

impl ClientView {
    fn new(root: &Root, room: &'static Room, running: Option<&[Process]>) -> Self {
        let mut view = Self {
            client: room.name,
            is_setting: room.is_setting(),
            here: false,
            layout: "",
            entries: Vec::new(),
            program: None,
            live: Live::No,
            why_not: Vec::new(),
            to_do: Vec::new(),
        };
        if let Err(e) = view.look(root, room, running) {
            view.why_not.push(format!("it cannot be looked at: {e}"));
            view.live = Live::Unknown;
        }
        view
    }

    fn look(
        &mut self,
        root: &Root,
        room: &'static Room,
        running: Option<&[Process]>,
    ) -> io::Result<()> {
        self.here = room.is_here(root)?;
        let layout = room.layout(root)?.filter(|_| self.here);
        let rows = layout.map_or(&[][..], |layout| layout.rows);
        let is_known = self.see_entries(root, rows);
        // What was put there when the system was another one.
        for row in room.rows(root)? {
            if rows.iter().any(|known| known.path == row.path) {
                continue;
            }
            let state = entry::state(root, row)?;
            if state.is_there() {
                let mut entry = EntryView::new(row, &state);
                entry.state = Word::OutOfPlace;
                self.entries.push(entry);
            }
        }
        let Some(layout) = layout else {
            if self.here {
                let why = "none of the folders that it is known to read hooks from is there";
                self.why_not.push(why.to_owned());
            }
            return Ok(());
        };
        self.layout = layout.name;
        self.see_program(root, room)?;
        self.see_settings(root, room)?;
        let live = match layout.waits(root, running)? {
            Waits::No => Live::Yes,
            Waits::UntilRestart(to_do) => {
                self.to_do.push(to_do);
                Live::Yes
            }
            Waits::ForProcess(to_do) => {
                self.to_do.push(to_do);
                Live::ByProcess
            }
            Waits::For(to_do, why) => {
                self.why_not.push(why);
                self.to_do.push(to_do);
                Live::No
            }
        };
        self.live = match (self.why_not.is_empty(), is_known) {
            (true, _) => live,
            (false, true) => Live::No,
            (false, false) => Live::Unknown,
        };
        Ok(())
    }

    /// Looks at each row, and says whether all could be looked at.
    fn see_entries(&mut self, root: &Root, rows: &'static [Row]) -> bool {
        let mut is_known = true;
        for row in rows {
            let seen = entry::state(root, row)
                .and_then(|state| Ok((entry::refusal(root, row, &state)?, state)));
            match seen {
                Ok((refusal, state)) => {
                    self.why_not.extend(refusal);
                    self.entries.push(EntryView::new(row, &state));
                }
                Err(e) => {
                    is_known = false;
                    self.why_not
                        .push(format!("{} cannot be looked at: {e}", row.path));
                    self.entries.push(EntryView {
                        path: row.path,
                        kind: row.kind(),
                        state: Word::Unreadable,
                        detail: Some(e.to_string()),
                        why: row.why,
                    });
                }
            }
        }
        is_known
    }

    fn see_program(&mut self, root: &Root, room: &Room) -> io::Result<()> {
        let Some(name) = room.program else {
            return Ok(());
        };
        let path = programs::path(name);
        let state = match programs::state(root, name)? {
            ProgramState::InPlace => Word::InPlace,
            ProgramState::Missing => {
                self.why_not.push(format!("{path} is missing"));
                Word::Missing
            }
            ProgramState::NotExecutable => {
                self.why_not.push(format!("{path} is not executable"));
                Word::NotExecutable
            }
        };
        self.program = Some(ProgramView { path, state });
        Ok(())
    }

    /// Looks for a client's own settings that turn its hooks off.
    fn see_settings(&mut self, root: &Root, room: &Room) -> io::Result<()> {
        for (path, word, values) in room.off {
            let text = root.text(path)?;
            let named = text
                .lines()
                .filter_map(|line| line.trim().strip_prefix(word))
                .filter(|rest| rest.starts_with(char::is_whitespace))
                .flat_map(|rest| rest.split([' ', '\t', ',']))
                .find(|value| values.contains(value));
            if let Some(value) = named {
                self.why_not
                    .push(format!("{path} turns it off ({word} {value})"));
            }
        }
        Ok(())
    }
}

impl EntryView {
    fn new(row: &Row, state: &State) -> Self {
        let (word, detail) = match state {
            State::InPlace => (Word::InPlace, None),
            State::Missing => (Word::Missing, None),
            State::Outdated => (Word::Outdated, None),
            State::WrongMode(mode) if mode & 0o100 == 0 && row.is_executable() => {
                (Word::NotExecutable, Some(format!("its mode is {mode:04o}")))
            }
            State::WrongMode(mode) => (Word::WrongMode, Some(format!("its mode is {mode:04o}"))),
            State::WrongOwner => (Word::WrongOwner, None),
            State::Foreign(what) => (Word::Foreign, Some(format!("it {what}"))),
        };
        Self {
            path: row.path,
            kind: row.kind(),
            state: word,
            detail,
            why: row.why,
        }
    }
}
