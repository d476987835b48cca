//! What every hook program does: capture, hand over, return an exit code.

use std::process::ExitCode;

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
pub fn run(client: Client, program: &'static str) -> ExitCode {
    handle(&capture::environment(client), program).into()
}

fn handle(raw: &RawEvent, program: &'static str) -> Exit {
    let paths = Paths::from_environment();
    let loaded = leaseroute_config::load(&paths.configuration);
    let level = loaded
        .as_ref()
        .map_or(LogLevel::default(), |loaded| loaded.log_level);
    logging::start(program, level, Sink::Journal);
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            error!("failed to start: {error}");
            return Exit::Failed;
        }
    };
    runtime.block_on(async {
        match Netlink::open() {
            Ok(kernel) => take(&Engine::new(kernel, settings, state), event, raw).await,
            Err(error) => unreadable(&error),
        }
    })
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
            outcome.exit()
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
