//! `leaseroute config check` and `leaseroute config show`.

use std::fmt;
use std::path::PathBuf;

use leaseroute_config::{ConfigError, Diagnostic, Document, Loaded};
use leaseroute_core::{Host, InterfaceRef, Link, Settings, TableScheme};
use leaseroute_kernel::Netlink;
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::{Paths, snapshot};
use serde::Serialize;

use crate::error::CliError;
use crate::output;
use crate::request::Form;
use crate::view::FORMAT;
use crate::world;

/// What the files of the configuration are like.
#[derive(Debug, Serialize)]
pub(crate) struct CheckView {
    version: u32,
    /// Whether it can be used.
    valid: bool,
    /// The files that were read, in the order in which they are laid over each other;
    /// empty when it cannot be used.
    files: Vec<PathBuf>,
    warnings: Vec<String>,
    errors: Vec<ErrorView>,
}

/// One mistake.
#[derive(Debug, Serialize)]
struct ErrorView {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// In characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    message: String,
    /// With the line and a caret, for people.
    #[serde(skip)]
    text: String,
}

/// Reads the configuration and says what it is like.
pub(crate) fn check() -> CheckView {
    match leaseroute_config::load(&Paths::from_environment().configuration) {
        Ok(loaded) => CheckView {
            version: FORMAT,
            valid: true,
            warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
            files: loaded.files,
            errors: Vec::new(),
        },
        Err(error) => CheckView {
            version: FORMAT,
            valid: false,
            files: Vec::new(),
            warnings: Vec::new(),
            errors: errors(error),
        },
    }
}

fn errors(error: ConfigError) -> Vec<ErrorView> {
    if error.diagnostics().is_empty() {
        let text = CliError::from(error).with_causes();
        return vec![ErrorView {
            path: None,
            line: None,
            column: None,
            message: text.clone(),
            text,
        }];
    }
    let view = |diagnostic: &Diagnostic| ErrorView {
        path: Some(diagnostic.path.clone()),
        line: Some(diagnostic.line),
        column: Some(diagnostic.column),
        message: diagnostic.problem.to_string(),
        text: diagnostic.to_string(),
    };
    error.diagnostics().iter().map(view).collect()
}

impl CheckView {
    pub(crate) fn exit(&self) -> Exit {
        if self.valid {
            Exit::Done
        } else {
            Exit::Configuration
        }
    }
}

impl fmt::Display for CheckView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            writeln!(f, "read {}", file.display())?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        for error in &self.errors {
            writeln!(f, "error: {}", error.text)?;
        }
        match (self.valid, self.files.as_slice()) {
            (true, []) => writeln!(f, "no files: the defaults are in force"),
            (true, _) => writeln!(f, "the configuration is valid"),
            (false, _) => writeln!(
                f,
                "the configuration is invalid: hooks leave routes and rules as they are"
            ),
        }
    }
}

/// What is in force, all of it or for one interface.
pub(crate) fn show(interface: Option<&InterfaceRef>, form: Form) -> Result<String, CliError> {
    let loaded = world::configuration(&Paths::from_environment())?;
    match (interface, form) {
        (Some(interface), _) => output::render(&InterfaceView::new(interface, &loaded)?, form),
        (None, Form::Text) => Ok(Document::from(&loaded).to_toml()?),
        (None, Form::Json) => {
            let view = ShowView {
                version: FORMAT,
                files: &loaded.files,
                configuration: Document::from(&loaded),
            };
            Ok(serde_json::to_string_pretty(&view)? + "\n")
        }
    }
}

#[derive(Serialize)]
struct ShowView<'a> {
    version: u32,
    files: &'a [PathBuf],
    configuration: Document,
}

/// What applies to one interface.
#[derive(Debug, Serialize)]
struct InterfaceView {
    version: u32,
    interface: String,
    /// Which `[[interface]]` sections fit, counted from 1 over all files.
    sections: Vec<usize>,
    manage: bool,
    /// The table; `null` when it depends on the other uplinks (see `leaseroute status`).
    table: Option<u32>,
    priority: u32,
    /// Whether `leaseroute wait-online` waits for it when it is told of none.
    required: bool,
}

impl InterfaceView {
    fn new(interface: &InterfaceRef, loaded: &Loaded) -> Result<Self, CliError> {
        let settings = &loaded.settings;
        let links = snapshot::links(&Netlink::open()?, settings)?;
        let host = Host {
            links,
            ..Host::default()
        };
        let link = host.resolve(interface);
        let link = link.ok_or_else(|| CliError::NoInterface(interface.clone()))?;
        Ok(Self::of(link, settings))
    }

    fn of(link: &Link, settings: &Settings) -> Self {
        let managed = settings.of(link);
        let by_scheme = match settings.tables {
            TableScheme::IfIndex { base } => base.checked_add(link.index.get()),
            TableScheme::Position { .. } => None,
        };
        let sections = settings.interfaces.iter().zip(1..);
        Self {
            version: FORMAT,
            interface: link.name.to_string(),
            sections: sections
                .filter(|(s, _)| s.matches.fits(link))
                .map(|(_, n)| n)
                .collect(),
            manage: managed.manage,
            table: managed.table.map(|table| table.get()).or(by_scheme),
            priority: managed.priority.get(),
            required: managed.required,
        }
    }
}

impl fmt::Display for InterfaceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}", self.interface)?;
        match self.sections.as_slice() {
            [] => writeln!(f, "# no [[interface]] section fits")?,
            sections => {
                let numbers: Vec<String> = sections.iter().map(ToString::to_string).collect();
                writeln!(
                    f,
                    "# [[interface]] sections that fit: {}",
                    numbers.join(", ")
                )?;
            }
        }
        writeln!(f, "manage = {}", self.manage)?;
        match self.table {
            Some(table) => writeln!(f, "table = {table}")?,
            None => writeln!(
                f,
                "# table: by position among the uplinks, see leaseroute status"
            )?,
        }
        writeln!(f, "priority = {}", self.priority)?;
        writeln!(f, "required = {}", self.required)
    }
}
