//! What every hook program does: capture, hand over, return an exit code.

use std::mem;
use std::pin::pin;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use leaseroute_config::{ConfigError, LogLevel};
use leaseroute_core::{Client, Dropped, Event, RawEvent};
use leaseroute_kernel::{KernelError, Netlink};
use tracing::{debug, error, info, warn};

use crate::engine::{Engine, Outcome};
use crate::exit::Exit;
use crate::logging::{self, Sink};
use crate::paths::Paths;
use crate::state::StateFolder;
use crate::{capture, sandbox};

/// Runs as the hook of `client`: the event is in the environment and the arguments.
#[must_use]
pub fn run(client: Client, program: &'static str, sink: Sink) -> ExitCode {
    handle(&capture::environment(client), program, sink).into()
}

fn handle(raw: &RawEvent, program: &'static str, sink: Sink) -> Exit {
    let paths = Paths::from_environment();
    let loaded = leaseroute_config::load(&paths.configuration);
    let level = loaded
        .as_ref()
        .map_or(LogLevel::default(), |loaded| loaded.log_level);
    logging::start(program, level, sink);
    let event = match parse(raw) {
        Ok(Some(event)) => event,
        Ok(None) => return Exit::Done,
        Err(exit) => return exit,
    };
    let settings = match loaded {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                warn!("{warning}");
            }
            loaded.settings
        }
        Err(error) => return broken_configuration(&error),
    };
    let state = StateFolder::at(paths.state);
    // The folder must be there before the sandbox closes. What fails here fails again when
    // the lock is taken, and is reported then.
    drop(state.make());
    sandbox::enter(state.path());
    block_on(async {
        match Netlink::open() {
            Ok(kernel) => {
                let engine = Engine::new(kernel, settings, state);
                let exit = take(&engine, event, raw).await;
                // What would be freed piece by piece from here on, which takes a twentieth
                // of a renewal, the kernel frees at once.
                process::exit(exit.code().into())
            }
            Err(error) => unreadable(&error),
        }
    })
}

/// Runs a future to its end on this thread. Netlink answers at once, so there is nothing to
/// wait for that needs a reactor, and setting one up takes 5 % of a renewal.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Parses an event and logs what was dropped. `None` when it changes no lease.
fn parse(raw: &RawEvent) -> Result<Option<Event>, Exit> {
    match raw.client.parse(raw) {
        Ok(parsed) => {
            for dropped in &parsed.dropped {
                log_dropped(dropped);
            }
            if parsed.event.is_none() {
                debug!("nothing to do for this reason");
            }
            Ok(parsed.event)
        }
        Err(refusal) => {
            error!("event refused: {refusal}");
            Err(Exit::Refused)
        }
    }
}

fn log_dropped(dropped: &Dropped) {
    warn!("{dropped}");
}

fn broken_configuration(error: &ConfigError) -> Exit {
    error!("failed to {}", with_source(error));
    error!("the configuration is invalid, so routes and rules stay as they are");
    Exit::Configuration
}

fn unreadable(error: &KernelError) -> Exit {
    error!("{}", with_source(error));
    Exit::Kernel
}

async fn take(engine: &Engine<Netlink>, event: Event, raw: &RawEvent) -> Exit {
    match engine.take(event.clone(), raw).await {
        Ok(outcome) => {
            match &outcome {
                Outcome::TakenIn(last) => info!(
                    "{}: {} ({}): taken in by another run, {} changes",
                    event.interface,
                    event.reason,
                    event.change.family(),
                    last.changes
                ),
                Outcome::Done {
                    reports,
                    state_errors,
                    ..
                } => {
                    for error in state_errors {
                        error!("{}", with_source(error));
                    }
                    if !reports.is_empty() {
                        logging::summary(&event, reports);
                    }
                }
            }
            let exit = outcome.exit();
            // See where it is used: the process ends now.
            mem::forget(outcome);
            exit
        }
        Err(error) => {
            error!("{}", with_source(&error));
            error.exit()
        }
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
