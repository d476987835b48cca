//! What subcommands look at: a host, what is known of its leases, and its configuration,
//! of this machine or out of a report.

use leaseroute_config::Loaded;
use leaseroute_core::{Event, Family, Folded, Host, LeaseBook, RawEvent};
use leaseroute_kernel::Netlink;
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::{Engine, Paths, StateFolder, snapshot};

use crate::error::CliError;
use crate::given::{self, Given};
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

impl Machine {
    /// Opens this machine.
    pub(crate) fn open(paths: Paths, loaded: Loaded) -> Result<Self, CliError> {
        let state = StateFolder::at(paths.state);
        let engine = Engine::new(Netlink::open()?, loaded.settings.clone(), state);
        Ok(Self { engine, loaded })
    }

    /// Reads all there is to see. `now` is in seconds since 1970.
    pub(crate) fn world(&self, now: u64) -> Result<World, CliError> {
        let (mut book, errors) = self.engine.state().read_book();
        for error in errors {
            output::warn(&with_causes(&error));
        }
        book.expire(now);
        let kernel = self.engine.kernel();
        let host = snapshot::everything(kernel, &book, self.engine.settings())?;
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
        events: Vec<Given>,
        now: u64,
    ) -> Result<(Vec<EventView>, Vec<Family>), CliError> {
        let mut views = Vec::new();
        let mut families = Vec::new();
        for given in events {
            let mut parsed = given.parse()?;
            if given.adds {
                let added = |event| given::added(event, &self.host, &self.book);
                parsed.event = parsed.event.map(added);
            }
            if let Some(event) = &parsed.event {
                self.fold(event, &given.raw, now)?;
                families.extend(event.families());
            }
            views.push(EventView::new(&given.raw, parsed));
        }
        families.sort_unstable();
        families.dedup();
        Ok((views, families))
    }

    fn fold(&mut self, event: &Event, raw: &RawEvent, now: u64) -> Result<(), CliError> {
        match self.book.fold(event, Some(raw), &self.host, now) {
            Folded::TakenIn(_) => Ok(()),
            Folded::NoSuchInterface(name) => Err(CliError::NoInterface(name)),
        }
    }
}
