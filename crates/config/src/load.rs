//! From folders to settings.

use std::path::PathBuf;

use leaseroute_core::Settings;
use serde_ignored::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::diagnostic::{Diagnostic, Problem, line_number};
use crate::error::{ConfigError, Warning};
use crate::folders::{Folders, Source};
use crate::merged::Merged;
use crate::validate::validate;
use crate::written::{Document, LogLevel, Scheme};

/// The most mistakes in one file's syntax that are listed: the reader goes on after the
/// first, and what it meets then is often a consequence.
const MAX_SYNTAX: usize = 5;

/// A configuration that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What is in force.
    pub settings: Settings,
    /// How much is said in the log.
    pub log_level: LogLevel,
    /// The files that were read, in the order in which they are laid over each other.
    pub files: Vec<PathBuf>,
    /// What is odd about them.
    pub warnings: Vec<Warning>,
}

/// Reads the configuration.
///
/// # Errors
///
/// When a file is there and cannot be read, or a value is wrong. Missing files and folders
/// are no error; without any file the defaults are in force.
pub fn load(folders: &Folders) -> Result<Loaded, ConfigError> {
    let mut warnings = Vec::new();
    let sources = folders.read(&mut warnings)?;
    assemble(sources, warnings)
}

/// Takes a text as the only configuration file; `path` is for messages.
///
/// # Errors
///
/// When a value is wrong.
pub fn load_text(path: &std::path::Path, text: &str) -> Result<Loaded, ConfigError> {
    let source = Source {
        path: path.to_owned(),
        bytes: text.as_bytes().to_owned(),
    };
    assemble(vec![source], Vec::new())
}

fn assemble(sources: Vec<Source>, mut warnings: Vec<Warning>) -> Result<Loaded, ConfigError> {
    let mut texts = Vec::new();
    let mut diagnostics = Vec::new();
    let mut merged = Merged::default();
    for (file, source) in sources.into_iter().enumerate() {
        let (path, text) = decode(source, &mut diagnostics);
        match parse(&path, &text, &mut warnings) {
            Ok(document) => merged.lay_over(file, document),
            Err(found) => diagnostics.extend(found),
        }
        texts.push((path, text));
    }
    if !diagnostics.is_empty() {
        return Err(ConfigError::Invalid(diagnostics));
    }

    let log_level = merged.level.unwrap_or_default();
    if let (Some(order), None | Some(Scheme::IfIndex)) = (&merged.order, merged.scheme)
        && let Some((path, text)) = texts.get(order.place.file)
    {
        warnings.push(Warning::UnusedOrder {
            path: path.clone(),
            line: line_number(text, order.place.span.start),
        });
    }
    let (settings, problems) = validate(merged);
    let mut diagnostics = Vec::new();
    for (place, problem) in problems {
        if let Some((path, text)) = texts.get(place.file) {
            diagnostics.push(Diagnostic::new(path, text, place.span, problem));
        }
    }
    if !diagnostics.is_empty() {
        return Err(ConfigError::Invalid(diagnostics));
    }
    Ok(Loaded {
        settings,
        log_level,
        files: texts.into_iter().map(|(path, _)| path).collect(),
        warnings,
    })
}

/// A file as text; bytes that are not UTF-8 are noted.
fn decode(source: Source, diagnostics: &mut Vec<Diagnostic>) -> (PathBuf, String) {
    let Source { path, bytes } = source;
    let text = String::from_utf8(bytes).unwrap_or_else(|e| {
        let start = e.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(e.as_bytes()).into_owned();
        let span = start..start + 1;
        diagnostics.push(Diagnostic::new(&path, &text, span, Problem::NotUtf8));
        text
    });
    (path, text)
}

/// One file's text as a document.
fn parse(
    path: &std::path::Path,
    text: &str,
    warnings: &mut Vec<Warning>,
) -> Result<Document, Vec<Diagnostic>> {
    // The shipped file is nothing but comments, and a hook that starts the TOML reader for
    // it pays a tenth of a millisecond.
    if text.lines().all(is_comment) {
        return Ok(Document::default());
    }
    let located = |error: &toml::de::Error| {
        let problem = Problem::Toml(error.message().to_owned());
        Diagnostic::new(path, text, error.span().unwrap_or(0..0), problem)
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().take(MAX_SYNTAX).map(located).collect());
    }
    let mut unknown = Vec::new();
    let document = serde_ignored::deserialize(Deserializer::from(table), |key| {
        unknown.push(steps(&key));
    })
    .map_err(|e| vec![located(&e)])?;
    if !unknown.is_empty() {
        // The table above is used up. It is read once more, since unknown keys are rare.
        let (table, _) = DeTable::parse_recoverable(text);
        warnings.extend(unknown.iter().map(|key| Warning::UnknownKey {
            path: path.to_owned(),
            line: line_number(text, offset_of(&table, key)),
            key: key_path(key),
        }));
    }
    Ok(document)
}

/// Whether a line is blank or holds a comment only.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '\t']);
    line.is_empty() || line.starts_with('#')
}

/// One step of the way to a key.
#[derive(Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// The way to a key, without what the reader puts in for its own use.
fn steps(path: &Path<'_>) -> Vec<Step> {
    match path {
        Path::Root => Vec::new(),
        Path::Map { parent, key } => {
            let mut steps = steps(parent);
            // `toml::Spanned` asks for its value through a key of this name.
            if !key.starts_with("$__serde_spanned") {
                steps.push(Step::Key(key.clone()));
            }
            steps
        }
        Path::Seq { parent, index } => {
            let mut steps = steps(parent);
            steps.push(Step::Index(*index));
            steps
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => steps(parent),
    }
}

/// The byte at which the last key of the way is written.
fn offset_of(table: &Spanned<DeTable<'_>>, way: &[Step]) -> usize {
    let mut offset = table.span().start;
    let mut table = Some(table.get_ref());
    let mut value = None;
    for step in way {
        match step {
            Step::Key(name) => {
                let entry = table.and_then(|t| t.iter().find(|(key, _)| key.get_ref() == name));
                let Some((key, inner)) = entry else { break };
                offset = key.span().start;
                value = Some(inner.get_ref());
            }
            Step::Index(index) => {
                let element = match value {
                    Some(DeValue::Array(array)) => array.get(*index),
                    _ => None,
                };
                value = element.map(Spanned::get_ref);
            }
        }
        table = match value {
            Some(DeValue::Table(inner)) => Some(inner),
            _ => None,
        };
    }
    offset
}

/// The way as people write it, elements counted from 1.
fn key_path(way: &[Step]) -> String {
    let mut text = String::new();
    for step in way {
        match step {
            Step::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.extend(key.escape_debug());
            }
            Step::Index(index) => text.push_str(&format!("[{}]", index + 1)),
        }
    }
    text
}
