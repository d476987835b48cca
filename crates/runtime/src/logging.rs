//! Where messages go, and what the messages of a run are.
//!
//! With systemd's journal they go there, else to standard error. Each event gives one info
//! line that says what changed and why; changes are at debug level, as the ip(8) command
//! that would make them. Foreign texts are quoted before they get here.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use leaseroute_config::LogLevel;
use leaseroute_core::{
    CardMetadata, Effect, Event, Family, IfIndex, InterfaceRef, Note, Operation, Plan, Quoted,
};
use tracing::level_filters::LevelFilter;
use tracing::{debug, error, info, warn};

use crate::exit::Exit;
use crate::reconcile::Report;
use crate::writer::Writer;

/// The journal's socket, systemd-journald.service(8).
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// To the journal when its socket is there, else to standard error.
    Journal,
    /// To standard error.
    Stderr,
}

/// Starts logging for a program of the given name. Has no effect the second time.
pub fn start(program: &'static str, level: LogLevel, sink: Sink) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let journal = match sink {
        Sink::Journal => journal(),
        Sink::Stderr => None,
    };
    let writer = Writer {
        program,
        level,
        journal,
    };
    // The only failure is that logging has been started already.
    drop(tracing::subscriber::set_global_default(writer));
}

/// A socket that leads to the journal, when it is there.
fn journal() -> Option<UnixDatagram> {
    if !Path::new(JOURNAL).exists() {
        return None;
    }
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(JOURNAL).ok()?;
    // A journal that does not read loses messages, but must not hold up a lease.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// An event was taken in.
pub(crate) fn folded(event: &Event, family: Family, effect: Effect) {
    let (interface, reason) = (event.interface.as_str(), event.reason.as_str());
    debug!(interface, %family, reason, ?effect, "{interface}: {reason} taken in ({family}), change: {effect:?}");
}

/// A metadata service said something new of a card.
pub(crate) fn learnt(known: &CardMetadata) {
    let CardMetadata {
        name,
        family,
        provider,
        said,
        ..
    } = known;
    let (addresses, prefixes) = (said.addresses.len(), said.prefixes.len());
    info!(
        interface = name.as_str(), %family,
        "{name}: {provider} tells in {family} of {addresses} address(es) and {prefixes} prefix(es)"
    );
}

/// An event names an interface that does not exist.
pub(crate) fn no_such_interface(interface: &InterfaceRef, event: &Event) {
    let (name, families) = (Quoted(interface.as_str()), event.family_names());
    if event.brings_lease() {
        error!(
            "{} of {name}: no such interface, nothing is set up ({families})",
            event.reason,
        );
    } else {
        debug!("{} of {name}: it is gone ({families})", event.reason);
    }
}

/// A reconciliation has ended. `touched` are the interfaces that events came for.
pub(crate) fn report(report: &Report, touched: &BTreeSet<IfIndex>) {
    for step in &report.done.steps {
        debug!("{}", report.done.command(step));
    }
    // Notes about other interfaces are repeated only when something changed.
    let relevant = |note: &&Note| !report.is_unchanged() || note.concerns(touched);
    let notes = report.notes().filter(relevant).map(ToString::to_string);
    some_of(notes, "warnings", |note| warn!("{note}"));
    if report.exit() == Exit::NotPermitted {
        error!("not permitted: changing routes and rules needs CAP_NET_ADMIN");
        return;
    }
    some_of(report.failure_lines(), "failures", |failure| {
        error!("failed to run {failure}");
    });
}

/// The most lines of one kind that one run writes: who chooses the values must not choose
/// the length of the log.
const LINES: usize = 8;

/// Says the first of some things, and how many there are when that is not all of them.
pub fn some_of(mut things: impl Iterator<Item = String>, what: &str, say: impl Fn(&str)) {
    for thing in things.by_ref().take(LINES) {
        say(&thing);
    }
    let more = things.count();
    if more > 0 {
        say(&format!("{more} more {what} like these"));
    }
}

/// The one info line of an event: what changed and why.
pub(crate) fn summary(event: &Event, reports: &[Report]) {
    let family = event.family_names();
    let (interface, reason) = (event.interface.as_str(), event.reason.as_str());
    let when = if event.ahead {
        ", ahead of the address"
    } else {
        ""
    };
    let mut changes = Changes::default();
    let mut active = false;
    let concerned = |report: &&Report| event.families().any(|family| family == report.family);
    for report in reports.iter().filter(concerned) {
        changes.count(&report.done);
        active |= report.desired.active;
    }
    let failed: usize = reports.iter().map(|report| report.failures.len()).sum();
    let why = match (active, failed) {
        (true, 0) => String::new(),
        (false, 0) => " (fewer than two uplinks)".to_owned(),
        (_, failed) => format!(", {failed} failed"),
    };
    info!(
        interface,
        family, reason, "{interface}: {reason} ({family}){when}: {changes}{why}"
    );
}

/// What reports changed, in one line.
#[must_use]
pub fn changes(reports: &[Report]) -> impl fmt::Display {
    let mut changes = Changes::default();
    for report in reports {
        changes.count(&report.done);
    }
    changes
}

#[derive(Default, PartialEq, Eq)]
struct Changes {
    routes_added: usize,
    routes_replaced: usize,
    routes_deleted: usize,
    rules_added: usize,
    rules_deleted: usize,
    addresses_added: usize,
    addresses_deleted: usize,
}

impl Changes {
    fn count(&mut self, plan: &Plan) {
        for step in &plan.steps {
            *match step.operation {
                Operation::AddAddress(_) => &mut self.addresses_added,
                Operation::DeleteAddress(_) => &mut self.addresses_deleted,
                Operation::AddRoute(_) => &mut self.routes_added,
                Operation::ReplaceRoute(_) => &mut self.routes_replaced,
                Operation::AddRule(_) => &mut self.rules_added,
                Operation::DeleteRule(_) => &mut self.rules_deleted,
                Operation::DeleteRoute { .. } => &mut self.routes_deleted,
            } += 1;
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.addresses_added, "address", "added"),
            (self.routes_added, "route", "added"),
            (self.routes_replaced, "route", "replaced"),
            (self.rules_added, "rule", "added"),
            (self.rules_deleted, "rule", "deleted"),
            (self.routes_deleted, "route", "deleted"),
            (self.addresses_deleted, "address", "deleted"),
        ];
        let mut separator = "";
        for (count, what, done) in parts.into_iter().filter(|(count, ..)| *count > 0) {
            let plural = match what {
                _ if count == 1 => "",
                "address" => "es",
                _ => "s",
            };
            write!(f, "{separator}{count} {what}{plural} {done}")?;
            separator = ", ";
        }
        if separator.is_empty() {
            f.write_str("no change")?;
        }
        Ok(())
    }
}
