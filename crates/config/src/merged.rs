//! The second shape: all files laid over each other, each value with the place it came
//! from.
//!
//! A later file replaces single keys; its `[[interface]]` sections come after those of
//! the files before it.

use std::ops::Range;

use leaseroute_core::When;
use toml::Spanned;

use crate::written::{Document, LogLevel, Scheme, Section};

/// A place in a file: which of the files that were read, and the bytes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) span: Range<usize>,
}

/// A value and where it is written.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

impl<T> Placed<T> {
    pub(crate) fn new(file: usize, spanned: Spanned<T>) -> Self {
        Self {
            place: Place {
                file,
                span: spanned.span(),
            },
            value: spanned.into_inner(),
        }
    }
}

/// All files together. `None` is a key that no file gives.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) when: Option<When>,
    pub(crate) protocol: Option<Placed<i64>>,
    pub(crate) permanent_addresses: Option<bool>,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) base: Option<Placed<i64>>,
    pub(crate) order: Option<Placed<Vec<Spanned<String>>>>,
    pub(crate) priority: Option<Placed<i64>>,
    pub(crate) provider: Option<Placed<String>>,
    pub(crate) endpoint: Option<Placed<String>>,
    pub(crate) assign_addresses: Option<bool>,
    pub(crate) deadline: Option<Placed<i64>>,
    pub(crate) level: Option<LogLevel>,
    /// The sections, each with the number of its file.
    pub(crate) interfaces: Vec<(usize, Section)>,
}

impl Merged {
    /// Lays one more file over those that are here.
    pub(crate) fn lay_over(&mut self, file: usize, document: Document) {
        let Document {
            when,
            protocol,
            permanent_addresses,
            tables,
            rules,
            metadata,
            log,
            interface,
        } = document;
        replace(&mut self.when, when);
        replace(&mut self.protocol, placed(file, protocol));
        replace(&mut self.permanent_addresses, permanent_addresses);
        replace(&mut self.scheme, tables.scheme);
        replace(&mut self.base, placed(file, tables.base));
        replace(&mut self.order, placed(file, tables.order));
        replace(&mut self.priority, placed(file, rules.priority));
        replace(&mut self.provider, placed(file, metadata.provider));
        replace(&mut self.endpoint, placed(file, metadata.endpoint));
        replace(&mut self.assign_addresses, metadata.assign_addresses);
        replace(&mut self.deadline, placed(file, metadata.deadline));
        replace(&mut self.level, log.level);
        let sections = interface.into_iter().map(|section| (file, section));
        self.interfaces.extend(sections);
    }
}

fn placed<T>(file: usize, value: Option<Spanned<T>>) -> Option<Placed<T>> {
    value.map(|value| Placed::new(file, value))
}

fn replace<T>(old: &mut Option<T>, new: Option<T>) {
    if new.is_some() {
        *old = new;
    }
}
