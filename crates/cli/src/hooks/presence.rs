//! Which clients a system has, which layout fits it, and whether a client calls hooks.

use std::io;
use std::path::Path;

use super::change::ToDo;
use super::processes::Process;
use super::room::{Layout, Room, Row, Sign, Start};
use super::root::{Found, Root};

/// One of these is there where systemd starts the services.
const SYSTEMD: &[&str] = &["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];

/// What stands between hooks that are in place and their first call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing.
    No,
    /// Nothing now, but it will not last a restart of the system.
    UntilRestart(ToDo),
    /// This has to be done first: why it is not called now.
    For(ToDo, String),
    /// Each process of the client calls them when it was started so.
    ForProcess(ToDo),
}

impl Room {
    /// Whether the client is on a system.
    pub(super) fn is_here(&self, root: &Root) -> io::Result<bool> {
        any(self.signs, |sign| root.has(sign))
    }

    /// Whether what is put in place are settings, and no hooks.
    pub(super) fn is_setting(&self) -> bool {
        let mut layouts = self.layouts.iter();
        layouts.all(|layout| matches!(layout.starts, Start::Setting { .. }))
    }

    /// Where the system keeps the client's hooks, if anywhere.
    pub(super) fn layout(&self, root: &Root) -> io::Result<Option<&'static Layout>> {
        for layout in self.layouts {
            if any(layout.signs, |sign| sign.fits(root))? {
                return Ok(Some(layout));
            }
        }
        Ok(None)
    }

    /// What is put in place on any system, the rows of this one first; each place once.
    pub(super) fn rows(&self, root: &Root) -> io::Result<Vec<&'static Row>> {
        let here = self.layout(root)?.into_iter();
        let mut rows: Vec<&Row> = Vec::new();
        for row in here.chain(self.layouts).flat_map(|layout| layout.rows) {
            let is_known = |known: &&Row| {
                Ok(known.path == row.path || root.is_same_place(known.path, row.path)?)
            };
            if !any(&rows, is_known)? {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// The paths that must not be removed, and why.
    pub(super) fn needed(
        &self,
        root: &Root,
        running: Option<&[Process]>,
    ) -> io::Result<Vec<(&'static str, String)>> {
        let mut needed = Vec::new();
        for layout in self.layouts {
            if let Some(why) = layout.needed_by(root, running)? {
                needed.extend(layout.rows.iter().map(|row| (row.path, why.clone())));
            }
        }
        Ok(needed)
    }
}

impl Sign {
    fn fits(&self, root: &Root) -> io::Result<bool> {
        match self {
            Self::Always => Ok(true),
            Self::Exists(path) => Ok(root.about(path)?.is_some()),
            Self::Says(paths, words) => any(paths, |path| Ok(root.text(path)?.contains(words))),
        }
    }
}

impl Layout {
    /// Why its rows must not be removed: what would lose its address without them.
    pub(super) fn needed_by(
        &self,
        root: &Root,
        running: Option<&[Process]>,
    ) -> io::Result<Option<String>> {
        match self.starts {
            Start::WithScript {
                scripts,
                own,
                settings,
                ..
            } => user_of(root, running, scripts, own, settings),
            Start::AtOnce | Start::WithUnit { .. } | Start::Setting { .. } => Ok(None),
        }
    }

    /// What stands between the hooks and their first call. `running` is `None` where the
    /// processes are not those of the root.
    pub(super) fn waits(&self, root: &Root, running: Option<&[Process]>) -> io::Result<Waits> {
        match &self.starts {
            Start::AtOnce => Ok(Waits::No),
            Start::WithScript { advice, .. } => Ok(Waits::ForProcess(ToDo {
                command: None,
                why: advice,
            })),
            // Of no use to tell of it again at each look.
            Start::Setting { .. } => Ok(Waits::No),
            Start::WithUnit {
                unit,
                enabled,
                process,
                command,
                why,
                ..
            } => {
                let to_do = ToDo {
                    command: Some(command),
                    why,
                };
                let enabled =
                    !any(SYSTEMD, |path| root.has(path))? || any(enabled, |link| on(root, link))?;
                let is_running = |program: &&str| {
                    running.map(|all| all.iter().any(|process| process.program == *program))
                };
                Ok(match (process.as_ref().and_then(is_running), enabled) {
                    (Some(true) | None, true) => Waits::No,
                    (Some(true), false) => Waits::UntilRestart(to_do),
                    (Some(false), _) => {
                        let process = process.unwrap_or_default();
                        Waits::For(to_do, format!("{process} does not run"))
                    }
                    (None, false) => Waits::For(to_do, format!("{unit} is not enabled")),
                })
            }
        }
    }
}

/// A client's own script that an administrator made a link to one of `scripts`.
pub(super) fn replaced<'a>(
    root: &Root,
    own: &[&'a str],
    scripts: &[&str],
) -> io::Result<Option<&'a str>> {
    for path in own {
        if let Found::Link(to) = root.find(path)?
            && scripts.iter().any(|script| to == Path::new(script))
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// What would have no script any more without `scripts`, in words. Such a script sets the
/// address, so that the host would lose it.
fn user_of(
    root: &Root,
    running: Option<&[Process]>,
    scripts: &[&str],
    own: &[&str],
    settings: &[&str],
) -> io::Result<Option<String>> {
    if let Some(path) = replaced(root, own, scripts)? {
        return Ok(Some(format!("{path} is a link to it")));
    }
    for path in settings {
        let within = root.names(path)?.into_iter();
        let within = within.map(|name| format!("{path}/{name}"));
        for path in [(*path).to_owned()].into_iter().chain(within) {
            let text = root.text(&path)?;
            let mut lines = text.lines().filter(|line| !line.trim().starts_with('#'));
            if lines.any(|line| scripts.iter().any(|script| line.contains(script))) {
                return Ok(Some(format!("{path} names it")));
            }
        }
    }
    let with_it = |process: &&Process| {
        let script = process.script.as_deref();
        script.is_some_and(|script| scripts.contains(&script))
    };
    let process = running.unwrap_or_default().iter().find(with_it);
    Ok(process.map(|process| {
        let Process { pid, program, .. } = process;
        format!("{program} (process {pid}) runs with it")
    }))
}

/// Whether a link that enables a unit is there, and does not mask it.
fn on(root: &Root, link: &str) -> io::Result<bool> {
    Ok(match root.find(link)? {
        Found::Link(to) => to != Path::new("/dev/null"),
        Found::Nothing => false,
        Found::File { .. } | Found::Other => true,
    })
}

fn any<T>(all: &[T], holds: impl Fn(&T) -> io::Result<bool>) -> io::Result<bool> {
    for one in all {
        if holds(one)? {
            return Ok(true);
        }
    }
    Ok(false)
}
