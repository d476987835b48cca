//! From the hook's process environment, or a file of the same form, to a [`RawEvent`].

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;

use leaseroute_core::{Client, RawEvent};

/// What the process received as a hook of `client`.
#[must_use]
pub fn environment(client: Client) -> RawEvent {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    RawEvent {
        client,
        arguments: env::args_os().skip(1).map(text).collect(),
        variables: env::vars_os()
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
    }
}

/// An event from text: one `KEY=VALUE` a line, the value being all up to the end of the
/// line, without any quoting. Empty lines and lines that begin with `#` do not count.
#[must_use]
pub fn text(client: Client, text: &str) -> RawEvent {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    RawEvent {
        client,
        arguments: Vec::new(),
        variables: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
    }
}

/// The longest value that is kept beside a lease, in bytes.
const KEPT: usize = 4096;

/// The part of an event that is kept beside the lease, for bug reports: the variables that
/// describe leases, without those that could be secrets of the caller's environment.
#[must_use]
pub fn worth_keeping(raw: &RawEvent) -> RawEvent {
    const PREFIXES: [&str; 4] = ["new_", "old_", "cur_", "alias_"];
    const NAMES: [&str; 2] = ["reason", "interface"];
    let is_lease = |name: &str, value: &str| {
        value.len() <= KEPT
            && (NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
    };
    let variables = raw
        .variables
        .iter()
        .filter(|(name, value)| is_lease(name, value));
    RawEvent {
        client: raw.client,
        arguments: raw.arguments.clone(),
        variables: BTreeMap::from_iter(variables.map(|(k, v)| (k.clone(), v.clone()))),
    }
}
