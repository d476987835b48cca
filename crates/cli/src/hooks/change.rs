//! `leaseroute hooks install` and `leaseroute hooks remove`.

use std::io;
use std::path::{Path, PathBuf};

use leaseroute_runtime::exit::Exit;
use serde::Serialize;

use super::entry::{self, State};
use super::presence::Waits;
use super::processes::{self, Process};
use super::programs::{self, ProgramState};
use super::room::{Layout, Room, Row, Start, What};
use super::root::{Found, Root};
use super::table::{IN_PROGRAMS, ROOMS};
use crate::view::FORMAT;

/// What was done, client by client.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedHooks {
    version: u32,
    pub(super) root: PathBuf,
    pub(super) clients: Vec<ChangedClient>,
    exit: Exit,
}

/// What was done for one client.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedClient {
    pub(super) client: &'static str,
    /// Whose way of keeping hooks was found, in words; empty where all have the same.
    pub(super) layout: &'static str,
    pub(super) changes: Vec<Change>,
    /// What is in the way of the hooks.
    pub(super) warnings: Vec<String>,
    /// What is left to be done by hand.
    pub(super) to_do: Vec<ToDo>,
}

/// What was done about one path.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) did: Did,
    /// Why it failed or was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    File,
    Link,
    Line,
    Program,
    Folder,
}

/// What was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Did {
    /// It was not there.
    Made,
    /// It was of another version, or had another mode or owner.
    Updated,
    /// There was nothing to do.
    Already,
    Removed,
    /// It is not ours, and stays.
    Left,
    Failed,
}

/// Something to be done by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ToDo {
    /// A command that does it, where there is one.
    pub(crate) command: Option<&'static str>,
    pub(crate) why: &'static str,
}

impl Change {
    /// What came of it: an error is what completes "PATH …".
    pub(super) fn new(path: String, kind: Kind, result: Result<Did, String>) -> Self {
        let (did, cause) = match result {
            Ok(did) => (did, None),
            Err(cause) => (Did::Failed, Some(cause)),
        };
        Self {
            path,
            kind,
            did,
            cause,
        }
    }
}

impl ChangedHooks {
    fn new(root: &Root, clients: Vec<ChangedClient>) -> Self {
        let mut changes = clients.iter().flat_map(|client| &client.changes);
        let failed = changes.any(|change| change.did == Did::Failed);
        Self {
            version: FORMAT,
            root: root.path().to_owned(),
            clients,
            exit: if failed { Exit::Failed } else { Exit::Done },
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// What failed, one line each.
    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        let changes = self.clients.iter().flat_map(|client| &client.changes);
        changes
            .filter(|change| change.did == Did::Failed)
            .map(|change| {
                let cause = change.cause.as_deref().unwrap_or_default();
                match change.kind {
                    Kind::Folder => cause.to_owned(),
                    _ => format!("failed to change {}: {cause}", change.path),
                }
            })
    }

    /// What is in the way of the hooks, one line each.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &String> {
        self.clients.iter().flat_map(|client| &client.warnings)
    }
}

impl Row {
    pub(super) fn kind(&self) -> Kind {
        match self.what {
            What::File { .. } => Kind::File,
            What::Link { .. } => Kind::Link,
            What::Line(_) => Kind::Line,
        }
    }
}

/// Puts the hooks of the named clients in place, or of all that are here. `programs` is a
/// folder of this system with the programs to copy.
pub(crate) fn install(
    root: &Root,
    named: &[&'static Room],
    programs: Option<&Path>,
) -> ChangedHooks {
    let chosen: Vec<&Room> = if named.is_empty() {
        // If it cannot be looked for, that is told below.
        let here = |room: &&Room| room.is_here(root).unwrap_or(true);
        ROOMS.iter().filter(here).collect()
    } else {
        named.to_vec()
    };
    let running = root.is_here().then(processes::read);
    let clients = chosen
        .into_iter()
        .map(|room| {
            let running = running.as_deref();
            install_room(root, room, !named.is_empty(), programs, running)
        })
        .collect();
    ChangedHooks::new(root, clients)
}

fn install_room(
    root: &Root,
    room: &'static Room,
    is_named: bool,
    programs: Option<&Path>,
    running: Option<&[Process]>,
) -> ChangedClient {
    let mut client = ChangedClient::of(room);
    let layout = match room.layout(root) {
        Ok(Some(layout)) => layout,
        Ok(None) => {
            let cause = format!(
                "none of the folders that {} is known to read hooks from is there",
                room.name
            );
            if is_named {
                client.fail(format!("failed to install hooks of {}: {cause}", room.name));
            } else {
                client.warnings.push(cause);
            }
            return client;
        }
        Err(e) => {
            client.fail(format!("failed to look for {}: {e}", room.name));
            return client;
        }
    };
    client.layout = layout.name;
    let mut failed = false;
    for row in layout.rows {
        // A link or a line leads to the file before it.
        let leads = !matches!(row.what, What::File { .. });
        let result = if failed && leads {
            Err("the file that it leads to is not in place".to_owned())
        } else {
            put(root, row)
        };
        failed |= result.is_err();
        let change = Change::new(row.path.to_owned(), row.kind(), result);
        client.changes.push(change);
        client.check_folder(root, row);
    }
    if let Some(program) = room.program {
        match programs {
            Some(from) => client.changes.push(programs::copy(root, program, from)),
            None => client.check_program(root, program),
        }
    }
    client.see_to_do(root, layout, running);
    client
}

fn put(root: &Root, row: &Row) -> Result<Did, String> {
    let found = entry::state(root, row).map_err(|e| e.to_string())?;
    let did = match found {
        State::InPlace => return Ok(Did::Already),
        State::Foreign(what) => {
            return Err(format!("it {what}, and stays as it is"));
        }
        State::Missing => Did::Made,
        State::Outdated | State::WrongMode(_) | State::WrongOwner => Did::Updated,
    };
    let done = match (&row.what, &found) {
        (What::File { mode, .. }, State::WrongMode(_) | State::WrongOwner) => {
            root.set_mode(row.path, *mode)
        }
        (What::File { text, mode }, _) => root.make_folders(row.path).and_then(|()| {
            root.put_file(row.path, text.as_bytes(), *mode, None, did == Did::Updated)
        }),
        (What::Link { target }, _) => root
            .make_folders(row.path)
            .and_then(|()| root.put_link(row.path, target, did == Did::Updated)),
        (What::Line(line), _) => put_line(root, row.path, line),
    };
    done.map(|()| did).map_err(|e| e.to_string())
}

fn put_line(root: &Root, path: &str, line: &str) -> io::Result<()> {
    root.make_folders(path)?;
    match root.find(path)? {
        Found::File { bytes, about } => root.put_file(
            path,
            &entry::with_line(Some(&bytes), line),
            about.mode,
            Some((about.uid, about.gid)),
            true,
        ),
        _ => root.put_file(path, &entry::with_line(None, line), 0o644, None, false),
    }
}

/// Takes away what [`install`] puts in place for the named clients, or for all, wherever it
/// is on some distribution.
pub(crate) fn remove(root: &Root, named: &[&'static Room]) -> ChangedHooks {
    let all = || ROOMS.iter().collect();
    let chosen: Vec<&'static Room> = if named.is_empty() {
        all()
    } else {
        named.to_vec()
    };
    let running = root.is_here().then(processes::read);
    let clients = chosen
        .into_iter()
        .map(|room| remove_room(root, room, running.as_deref()))
        .filter(|client| !client.changes.is_empty())
        .collect();
    ChangedHooks::new(root, clients)
}

fn remove_room(root: &Root, room: &'static Room, running: Option<&[Process]>) -> ChangedClient {
    let mut client = ChangedClient::of(room);
    let found = room
        .rows(root)
        .and_then(|rows| Ok((rows, room.needed(root, running)?)));
    let (rows, needed) = match found {
        Ok(found) => found,
        Err(e) => {
            client.fail(format!("failed to look for {}: {e}", room.name));
            return client;
        }
    };
    let mut emptied: Vec<&str> = Vec::new();
    // What leads to a file goes before the file.
    for row in rows.into_iter().rev() {
        if let Some((_, cause)) = needed.iter().find(|(path, _)| *path == row.path) {
            client.keep(root, row, cause);
            continue;
        }
        let result = match take(root, row) {
            Ok(None) => continue,
            Ok(Some(Did::Left)) => {
                let mut change = Change::new(row.path.to_owned(), row.kind(), Ok(Did::Left));
                change.cause = Some("it is not one of leaseroute's".to_owned());
                client.changes.push(change);
                continue;
            }
            Ok(Some(did)) => Ok(did),
            Err(e) => Err(e.to_string()),
        };
        emptied.extend(row.ours);
        let change = Change::new(row.path.to_owned(), row.kind(), result);
        client.changes.push(change);
    }
    if let Some(change) = room.program.and_then(|name| programs::remove(root, name)) {
        emptied.extend(IN_PROGRAMS);
        client.changes.push(change);
    }
    // The deepest first.
    emptied.sort_unstable_by_key(|folder| (usize::MAX - folder.len(), *folder));
    emptied.dedup();
    for folder in emptied {
        let result = match root.remove_folder(folder) {
            Ok(false) => continue,
            Ok(true) => Ok(Did::Removed),
            Err(e) => Err(format!("failed to remove {folder}: {e}")),
        };
        let change = Change::new(folder.to_owned(), Kind::Folder, result);
        client.changes.push(change);
    }
    client
}

/// Takes one row away. `None`: it is not there.
fn take(root: &Root, row: &Row) -> io::Result<Option<Did>> {
    match entry::state(root, row)? {
        State::Missing => return Ok(None),
        State::Foreign(_) => return Ok(Some(Did::Left)),
        State::InPlace | State::Outdated | State::WrongMode(_) | State::WrongOwner => {}
    }
    match (&row.what, root.find(row.path)?) {
        (What::Line(_), Found::File { bytes, about }) => {
            let Some(text) = entry::without_lines(&bytes) else {
                return Ok(None);
            };
            if entry::is_only_made(&text) {
                root.unlink(row.path)?;
            } else {
                let owner = Some((about.uid, about.gid));
                root.put_file(row.path, &text, about.mode, owner, true)?;
            }
        }
        _ => root.unlink(row.path)?,
    }
    Ok(Some(Did::Removed))
}

impl ChangedClient {
    fn of(room: &'static Room) -> Self {
        Self {
            client: room.name,
            layout: "",
            changes: Vec::new(),
            warnings: Vec::new(),
            to_do: Vec::new(),
        }
    }

    /// The client as a whole cannot be done.
    fn fail(&mut self, cause: String) {
        let change = Change::new(String::new(), Kind::Folder, Err(cause));
        self.changes.push(change);
    }

    /// A row that must not be removed, if it is there.
    fn keep(&mut self, root: &Root, row: &Row, user: &str) {
        if !matches!(entry::state(root, row), Ok(State::Missing)) {
            let cause = format!("{user}, and would have no script that sets the address");
            let change = Change::new(row.path.to_owned(), row.kind(), Err(cause));
            self.changes.push(change);
        }
    }

    fn check_program(&mut self, root: &Root, name: &str) {
        let path = programs::path(name);
        let what = match programs::state(root, name) {
            Ok(ProgramState::InPlace) => return,
            Ok(ProgramState::Missing) => "is not there".to_owned(),
            Ok(ProgramState::NotExecutable) => "is not executable".to_owned(),
            Err(e) => format!("cannot be looked at: {e}"),
        };
        self.warnings.push(format!(
            "{path} {what}: the hooks do nothing until it is installed, by the package or with \
             --programs"
        ));
    }

    fn check_folder(&mut self, root: &Root, row: &Row) {
        if let Ok(Some(refusal)) = entry::refusal(root, row, &State::InPlace) {
            self.warnings
                .push(format!("{refusal}: {} refuses what is in it", self.client));
        }
    }

    /// What is left to be done by hand before the client calls the hooks.
    fn see_to_do(&mut self, root: &Root, layout: &Layout, running: Option<&[Process]>) {
        match layout.waits(root, running) {
            Ok(Waits::No) => {}
            Ok(Waits::For(to_do, _) | Waits::ForProcess(to_do) | Waits::UntilRestart(to_do)) => {
                self.to_do.push(to_do);
            }
            Err(e) => self
                .warnings
                .push(format!("failed to look whether {} is on: {e}", self.client)),
        }
        let changed = |change: &Change| matches!(change.did, Did::Made | Did::Updated);
        if let Start::Setting { command, why } = layout.starts
            && self.changes.iter().any(changed)
        {
            self.to_do.push(ToDo {
                command: Some(command),
                why,
            });
        }
    }
}
