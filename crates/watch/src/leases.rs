//! What is to be found out about leases: what clients have written into their files, who
//! leased addresses that nobody told of, and what has ended without a word.
//!
//! It is found out under the lock, just before a look, so that no hook tells of a lease
//! between the question and the answer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use leaseroute_core::{Client, Event, Family, Host, InterfaceRef, LeaseBook, RawEvent};
use leaseroute_kernel::{Kernel, KernelError, MainRoutes};
use leaseroute_runtime::adopt::{Found, Stored};
use leaseroute_runtime::state::now as time_of_day;
use leaseroute_runtime::{Engine, logging, snapshot};
use tracing::{debug, info, warn};

use crate::expiries::{self, Over};

/// What is to be found out.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// Files of clients that have changed or gone.
    pub(crate) files: BTreeSet<PathBuf>,
    /// Whether addresses may be there that nobody told of.
    pub(crate) untold: bool,
    /// Leases of which something has ended.
    pub(crate) over: Vec<Over>,
}

impl Questions {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.untold && self.over.is_empty()
    }

    /// Asks again what could not be answered.
    pub(crate) fn append(&mut self, others: Self) {
        self.files.extend(others.files);
        self.untold |= others.untold;
        self.over.extend(others.over);
    }

    /// The answers, as the events that hooks would have told.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be read.
    pub(crate) fn answers<K: Kernel>(
        &self,
        stored: &Stored,
        engine: &Engine<K>,
    ) -> Result<Vec<(Event, RawEvent)>, KernelError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let host = survey(engine)?;
        let (book, _) = engine.state().read_book();
        let files = self.files.iter();
        let mut found: Vec<Found> = files
            .filter_map(|file| stored.read(file, &host, &book))
            .collect();
        if self.untold {
            let told: BTreeSet<InterfaceRef> = found
                .iter()
                .map(|found| found.event.interface.clone())
                .collect();
            let settings = engine.settings();
            let mut untold = stored.adopt(&host, &book, settings, time_of_day());
            untold.retain(|found| !told.contains(&found.event.interface));
            for lease in &untold {
                info!("{}: a lease from {}", lease.event.interface, lease.from);
            }
            found.extend(untold);
        }
        let mut events: Vec<_> = found.into_iter().map(told).collect();
        let ended = self.over.iter();
        events.extend(ended.filter_map(|over| expiries::ended(&book, &host, *over)));
        Ok(events)
    }
}

fn told(found: Found) -> (Event, RawEvent) {
    let Found {
        event,
        raw,
        from,
        dropped,
    } = found;
    debug!("{}: {} by {from}", event.interface, event.reason);
    let dropped = dropped.iter().map(ToString::to_string);
    logging::some_of(dropped, "fields", |dropped| warn!("{from}: {dropped}"));
    (event, raw)
}

/// The host as far as leases are about it.
fn survey<K: Kernel>(engine: &Engine<K>) -> Result<Host, KernelError> {
    let kernel = engine.kernel();
    let mut host = Host {
        links: snapshot::links(kernel, engine.settings())?,
        main: kernel.main_routes(&MainRoutes::Ipv4Defaults)?,
        ..Host::default()
    };
    for family in Family::BOTH {
        host.addresses.extend(kernel.addresses(family)?);
    }
    Ok(host)
}

/// The files of a folder that may have changed, when it is not known which: those that are
/// there, and those that were there as far as leases tell.
pub(crate) fn all_files(folder: &Path, book: &LeaseBook) -> BTreeSet<PathBuf> {
    let there = folder.read_dir().into_iter().flatten().flatten();
    let there = there.map(|entry| entry.path());
    // A file that networkd has taken away says something, too.
    let gone = book
        .records()
        .filter(|record| record.told_by.contains(&Client::NetworkdDispatcher))
        .map(|record| folder.join(record.index.get().to_string()));
    there.chain(gone).collect()
}
