//! The first shape: one file as it is written, with the place of each value that can be
//! wrong although it is of the right type.
//!
//! The same shape serves the way back: effective settings as a file that reads back to
//! the same settings.

use leaseroute_core::{InterfaceSettings, TableScheme, When};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::load::Loaded;

/// How much is said in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Only what failed.
    Error,
    /// Also what was dropped or looks wrong.
    Warn,
    /// Also one line for each event.
    #[default]
    Info,
    /// Also each change.
    Debug,
    /// Everything.
    Trace,
}

/// One configuration file. What it leaves out it does not change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) when: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<Spanned<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permanent_addresses: Option<bool>,
    pub(crate) tables: Tables,
    pub(crate) rules: Rules,
    pub(crate) metadata: Metadata,
    pub(crate) log: Log,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) interface: Vec<Section>,
}

/// `[tables]`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Tables {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scheme: Option<Scheme>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Spanned<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<Spanned<Vec<Spanned<String>>>>,
}

/// The name of a [`TableScheme`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    IfIndex,
    Position,
}

/// `[rules]`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Rules {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<Spanned<i64>>,
}

/// `[metadata]`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<Spanned<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<Spanned<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) assign_addresses: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Spanned<i64>>,
}

/// `[log]`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Log {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<LogLevel>,
}

/// `[[interface]]`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Section {
    #[serde(rename = "match")]
    pub(crate) matches: Spanned<Match>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) manage: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<Spanned<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<Spanned<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) required: Option<bool>,
}

/// `match` of an `[[interface]]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Match {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<Spanned<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<Spanned<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<Spanned<String>>,
}

impl Document {
    /// The document as TOML text.
    ///
    /// # Errors
    ///
    /// When the TOML writer refuses a value.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// Everything that is in force, with no key left out.
impl From<&Loaded> for Document {
    fn from(loaded: &Loaded) -> Self {
        let settings = &loaded.settings;
        let (scheme, base, order) = match &settings.tables {
            TableScheme::IfIndex { base } => (Scheme::IfIndex, *base, None),
            TableScheme::Position { base, order } => {
                let order = order.iter().map(|pattern| unplaced(pattern.to_string()));
                (Scheme::Position, *base, Some(unplaced(order.collect())))
            }
        };
        Self {
            when: Some(settings.when),
            protocol: Some(unplaced(settings.protocol.get().into())),
            permanent_addresses: Some(settings.permanent_addresses),
            tables: Tables {
                scheme: Some(scheme),
                base: Some(unplaced(base.into())),
                order,
            },
            rules: Rules {
                priority: Some(unplaced(settings.priority.get().into())),
            },
            metadata: Metadata {
                provider: Some(unplaced(settings.metadata.provider.to_string())),
                endpoint: settings.metadata.endpoint.map(|e| unplaced(e.to_string())),
                assign_addresses: Some(settings.metadata.assign_addresses),
                deadline: Some(unplaced(settings.metadata.deadline.into())),
            },
            log: Log {
                level: Some(loaded.log_level),
            },
            interface: settings.interfaces.iter().map(Section::from).collect(),
        }
    }
}

impl From<&InterfaceSettings> for Section {
    fn from(settings: &InterfaceSettings) -> Self {
        let matches = &settings.matches;
        Self {
            matches: unplaced(Match {
                name: matches.name.as_ref().map(|p| unplaced(p.to_string())),
                mac: matches.mac.map(|mac| unplaced(mac.to_string())),
                driver: matches.driver.as_ref().map(|p| unplaced(p.to_string())),
            }),
            manage: settings.manage,
            table: settings.table.map(|table| unplaced(table.get().into())),
            priority: settings.priority.map(|p| unplaced(p.get().into())),
            required: settings.required,
        }
    }
}

/// A value that comes from no file.
fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
