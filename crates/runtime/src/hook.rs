//! What every hook program does: capture, hand over, return an exit code.

use std::mem;
use std::process::{self, ExitCode};

use leaseroute_config::{ConfigError, LogLevel};
use leaseroute_core::{Client, Dropped, Event, RawEvent};
use leaseroute_kernel::{KernelError, Netlink};
use tracing::{debug, error, info, warn};

use crate::engine::{Engine, Outcome};
use crate::error::with_causes;
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
    let state = StateFolder::at(paths.state);
    // The folder must be there before the sandbox closes. What fails here fails again when
    // the lock is taken, and is reported then.
    drop(state.make());
    let missing = sandbox::enter(state.path());

    let loaded = leaseroute_config::load(&paths.configuration);
    let level = loaded
        .as_ref()
        .map_or(LogLevel::default(), |loaded| loaded.log_level);
    logging::start(program, level, sink);
    for part in missing {
        debug!("the sandbox is not complete: {part}");
    }
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
    match Netlink::open() {
        Ok(kernel) => {
            let engine = Engine::new(kernel, settings, state);
            let exit = take(&engine, &event, raw);
            // What would be freed piece by piece from here on, which takes a twentieth
            // of a renewal, the kernel frees at once.
            process::exit(exit.code().into())
        }
        Err(error) => unreadable(&error),
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
    error!("failed to {}", with_causes(error));
    error!("the configuration is invalid, so routes and rules stay as they are");
    Exit::Configuration
}

fn unreadable(error: &KernelError) -> Exit {
    error!("{}", with_causes(error));
    Exit::Kernel
}

fn take(engine: &Engine<Netlink>, event: &Event, raw: &RawEvent) -> Exit {
    match engine.take(event.clone(), raw) {
        Ok(outcome) => {
            match &outcome {
                Outcome::TakenIn(_) => info!(
                    "{}: {} ({}): taken in by another run",
                    event.interface,
                    event.reason,
                    event.change.family(),
                ),
                Outcome::Done {
                    reports,
                    state_errors,
                    ..
                } => {
                    for error in state_errors {
                        error!("{}", with_causes(error));
                    }
                    if !reports.is_empty() {
                        logging::summary(event, reports);
                    }
                }
            }
            let exit = outcome.exit();
            // See where it is used: the process ends now.
            mem::forget(outcome);
            exit
        }
        Err(error) => {
            error!("{}", with_causes(&error));
            error.exit()
        }
    }
}
