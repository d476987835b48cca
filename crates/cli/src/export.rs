//! `leaseroute export`: the desired state in the words of others.
//!
//! What is said is `leaseroute_core::export`; here it is printed, or put where its reader
//! looks. A file without our first line is somebody else's and stays as it is.

use std::fmt;

use leaseroute_core::export::{
    Description, Export, ExportedFile, Format, Inputs, MARK, Options, Reader, describe, export,
};
use leaseroute_core::{DesiredState, Family, Host, LeaseBook, Mac, desired_state};
use leaseroute_runtime::Paths;
use leaseroute_runtime::exit::Exit;
use serde::Serialize;

use crate::error::CliError;
use crate::given::Given;
use crate::hooks::{Found, Root};
use crate::plan;
use crate::request::Origin;
use crate::view::{FORMAT, NoteView};
use crate::world::{self, World};

/// What to export.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) words: Words,
    /// The root of the system whose files are written; `None`: to standard output.
    pub(crate) persist: Option<Root>,
}

/// In whose words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    Format(Format, Options),
    Json,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Exported {
    /// What goes to standard output.
    pub(crate) text: String,
    /// What an administrator should know, one line each.
    pub(crate) warnings: Vec<String>,
    /// What failed, one line each.
    pub(crate) failures: Vec<String>,
}

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct JsonView {
    version: u32,
    #[serde(flatten)]
    description: Description,
    notes: Vec<NoteView>,
}

/// What was done about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Wrote,
    Already,
    Removed,
    Kept,
}

impl Exported {
    pub(crate) fn exit(&self) -> Exit {
        if self.failures.is_empty() {
            Exit::Done
        } else {
            Exit::Failed
        }
    }
}

/// Exports. `now` is in seconds since 1970.
pub(crate) fn run(
    events: Vec<Given>,
    origin: Origin,
    wanted: &Wanted,
    now: u64,
) -> Result<Exported, CliError> {
    let mut world = match origin {
        Origin::Here => plan::here(now)?,
        Origin::Snapshot(host) => World {
            host: *host,
            book: LeaseBook::default(),
            loaded: world::configuration(&Paths::from_environment())?,
        },
        Origin::Report(report) => report.into_world(now)?,
    };
    world.take(events, now)?;
    let settings = &world.loaded.settings;
    let desired = |family| desired_state(family, &world.host, &world.book, settings);
    let (ipv4, ipv6) = (desired(Family::Ipv4), desired(Family::Ipv6));
    let inputs = Inputs {
        host: &world.host,
        book: &world.book,
        settings,
        ipv4: &ipv4,
        ipv6: &ipv6,
    };
    let (format, options) = match wanted.words {
        Words::Format(format, options) => (format, options),
        Words::Json => return json(inputs),
    };
    let exported = export(format, options, inputs);
    let mut warnings = exported.notes.clone();
    warnings.extend(notes(&ipv4, &ipv6));
    let (text, failures) = match (&wanted.persist, format.reader()) {
        (Some(root), Some(reader)) => persist(root, &reader, &exported, &world.host),
        _ => (printed(&exported), Vec::new()),
    };
    Ok(Exported {
        text,
        warnings,
        failures,
    })
}

fn notes(ipv4: &DesiredState, ipv6: &DesiredState) -> Vec<String> {
    let notes = ipv4.notes.iter().chain(&ipv6.notes);
    notes.map(ToString::to_string).collect()
}

fn json(inputs: Inputs<'_>) -> Result<Exported, CliError> {
    let notes = inputs.ipv4.notes.iter().chain(&inputs.ipv6.notes);
    let view = JsonView {
        version: FORMAT,
        description: describe(inputs),
        notes: notes.map(NoteView::from).collect(),
    };
    Ok(Exported {
        text: serde_json::to_string_pretty(&view)? + "\n",
        warnings: Vec::new(),
        failures: Vec::new(),
    })
}

/// One file as it is; of several each behind its path.
fn printed(exported: &Export) -> String {
    match exported.files.as_slice() {
        [only] => only.text.clone(),
        files => {
            let texts = files
                .iter()
                .map(|file| format!("# {}\n{}", file.path, file.text));
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// Puts the files in place, and takes those away that are ours and wanted no more.
/// The file of a card that is here, and has no lease now or is down, stays as it is.
fn persist(root: &Root, reader: &Reader, exported: &Export, host: &Host) -> (String, Vec<String>) {
    let mut done = Vec::new();
    let mut failures = Vec::new();
    let mut take = |path: String, result: Result<Did, String>| match result {
        Ok(did) => done.push((path, did)),
        Err(cause) => failures.push(format!("failed to change {path}: {cause}")),
    };
    for file in &exported.files {
        take(file.path.clone(), put(root, file));
    }
    match root.names(reader.folder) {
        Err(e) => failures.push(format!("failed to read {}: {e}", reader.folder)),
        Ok(names) => {
            let ours = names
                .into_iter()
                .filter(|name| name.starts_with(reader.prefix) && name.ends_with(reader.suffix));
            for name in ours {
                let path = format!("{}/{name}", reader.folder);
                if exported.files.iter().any(|file| file.path == path) {
                    continue;
                }
                match remove(root, &path, exported, host) {
                    Ok(None) => {}
                    Ok(Some(did)) => done.push((path, did)),
                    Err(cause) => failures.push(format!("failed to remove {path}: {cause}")),
                }
            }
        }
    }
    let changes = done
        .iter()
        .any(|(_, did)| matches!(did, Did::Wrote | Did::Removed));
    let mut text: String = done
        .iter()
        .map(|(path, did)| format!("{did} {path}\n"))
        .collect();
    if changes {
        text.push_str(&format!("to have it read: {}\n", reader.command));
    }
    (text, failures)
}

fn put(root: &Root, file: &ExportedFile) -> Result<Did, String> {
    let is_there = match root.find(&file.path).map_err(|e| e.to_string())? {
        Found::Nothing => false,
        Found::File { bytes, about } if is_ours(&bytes) => {
            if bytes == file.text.as_bytes() && about.mode == file.mode {
                return Ok(Did::Already);
            }
            true
        }
        Found::File { .. } => {
            return Err(format!(
                "it does not begin with \"{MARK}\", so it is not ours, and stays as it is"
            ));
        }
        Found::Link(_) | Found::Other => {
            return Err("it is no plain file, and stays as it is".to_owned());
        }
    };
    root.make_folders(&file.path)
        .and_then(|()| root.put_file(&file.path, file.text.as_bytes(), file.mode, None, is_there))
        .map(|()| Did::Wrote)
        .map_err(|e| e.to_string())
}

/// Takes a file away if it is ours and its card is gone.
fn remove(root: &Root, path: &str, exported: &Export, host: &Host) -> Result<Option<Did>, String> {
    match root.find(path).map_err(|e| e.to_string())? {
        Found::File { bytes, .. } if is_ours(&bytes) => {
            let names = |text: &str, mac: Mac| text.to_lowercase().contains(&mac.to_string());
            let text = String::from_utf8_lossy(&bytes);
            // One that has another file now has another name.
            let is_of = |mac: Mac| {
                let mut files = exported.files.iter();
                names(&text, mac) && !files.any(|file| names(&file.text, mac))
            };
            if host.links.values().filter_map(|link| link.mac).any(is_of) {
                return Ok(Some(Did::Kept));
            }
            let gone = root.unlink(path).map_err(|e| e.to_string());
            gone.map(|()| Some(Did::Removed))
        }
        Found::File { .. } | Found::Nothing | Found::Link(_) | Found::Other => Ok(None),
    }
}

fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK.as_bytes())
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wrote => "wrote",
            Self::Already => "unchanged:",
            Self::Removed => "removed",
            Self::Kept => "kept, since its card is here, without a lease or down:",
        })
    }
}
