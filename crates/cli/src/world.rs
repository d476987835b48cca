//! What subcommands look at: a host, what is known of its leases, and its configuration,
//! of this machine or out of a report.

use std::future::Future;

use leaseroute_config::Loaded;
use leaseroute_core::{Event, Family, Folded, Host, LeaseBook, RawEvent};
use leaseroute_kernel::Netlink;
use leaseroute_runtime::{Engine, Paths, StateFolder, snapshot};

use crate::error::CliError;
use crate::output;
use crate::view::EventView;

/// A host at one moment.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) book: LeaseBook,
    pub(crate) loaded: Loaded,
}

/// This machine, ready to be read and changed.
pub(crate) struct Machine {
    pub(crate) engine: Engine<Netlink>,
    pub(crate) loaded: Loaded,
}

/// The configuration of this machine; what is odd about it goes to standard error.
pub(crate) fn configuration(paths: &Paths) -> Result<Loaded, CliError> {
    let loaded = leaseroute_config::load(&paths.configuration)?;
    for warning in &loaded.warnings {
        output::warn(warning);
    }
    Ok(loaded)
}

/// Runs something that talks to the kernel.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    runtime.map_err(CliError::Start)?.block_on(work)
}

impl Machine {
    /// Opens this machine. Must be called within [`block_on`].
    pub(crate) fn open(paths: Paths, loaded: Loaded) -> Result<Self, CliError> {
        let state = StateFolder::at(paths.state);
        let engine = Engine::new(Netlink::open()?, loaded.settings.clone(), state);
        Ok(Self { engine, loaded })
    }

    /// Reads all there is to see.
    pub(crate) async fn world(&self) -> Result<World, CliError> {
        let (mut book, errors) = self.engine.state().read_book();
        for error in errors {
            output::warn(&output::with_causes(&error));
        }
        let kernel = self.engine.kernel();
        let host = snapshot::everything(kernel, &book, self.engine.settings()).await?;
        book.retain_present(&host);
        Ok(World {
            host,
            book,
            loaded: self.loaded.clone(),
        })
    }
}

impl World {
    /// Takes events in as a run would, and returns what they mean. The second value holds
    /// the families that they concern.
    ///
    /// # Errors
    ///
    /// When one is refused, or names an interface that is not there.
    pub(crate) fn take(
        &mut self,
        events: Vec<RawEvent>,
        now: u64,
    ) -> Result<(Vec<EventView>, Vec<Family>), CliError> {
        let mut views = Vec::new();
        let mut families = Vec::new();
        for raw in events {
            let parsed = raw.client.parse(&raw)?;
            if let Some(event) = &parsed.event {
                self.fold(event, &raw, now)?;
                families.push(event.change.family());
            }
            views.push(EventView::new(&raw, parsed));
        }
        families.sort_unstable();
        families.dedup();
        Ok((views, families))
    }

    fn fold(&mut self, event: &Event, raw: &RawEvent, now: u64) -> Result<(), CliError> {
        match self.book.fold(event, Some(raw.clone()), &self.host, now) {
            Folded::Recorded { .. } => Ok(()),
            Folded::NoSuchInterface(name) => Err(CliError::NoInterface(name)),
        }
    }
}
