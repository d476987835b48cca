//! What every hook program does: capture, hand over, return an exit code.
//!
//! Also where hook programs begin, which is the one place with anything unsafe in it. What
//! the standard library does before `main`, above all a signal stack and handlers for a
//! message about stack overflows, takes a tenth of an unchanged renewal. With glibc, where
//! arguments and environment are at hand without it, a hook's `main` is therefore the one
//! that the C library calls. Exporting the symbol `main` is unsafe to the compiler since
//! two definitions of one symbol would clash; a program has one `main`, and a second one
//! does not link. What else programs rely on, [`begin`] does by safe means.

use std::fs::OpenOptions;
use std::mem;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::process;

use leaseroute_config::{ConfigError, LogLevel};
pub use leaseroute_core::Client;
use leaseroute_core::{Event, ProviderChoice, RawEvent};
use leaseroute_kernel::{KernelError, Netlink};
use nix::sys::signal::{SigSet, Signal};
use rustix::io::fcntl_getfd;
use rustix::stdio::{stderr, stdin, stdout};
use tracing::{debug, error, info, warn};

use crate::engine::{Engine, Outcome};
use crate::error::with_causes;
use crate::exit::Exit;
use crate::logging::{self, Sink};
use crate::paths::Paths;
use crate::state::StateFolder;
use crate::{capture, sandbox, wake};

/// Defines `main` of a hook program, for a client by its variant of `Client` and under a
/// name for messages. The program's file begins with
/// `#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]`.
#[macro_export]
macro_rules! hook_program {
    ($client:ident, $name:literal) => {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        #[unsafe(no_mangle)]
        extern "C" fn main() -> ::std::ffi::c_int {
            $crate::hook::begin();
            $crate::hook::run(
                $crate::hook::Client::$client,
                $name,
                $crate::logging::Sink::Journal,
            )
            .code()
            .into()
        }

        #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
        fn main() -> ::std::process::ExitCode {
            $crate::hook::run(
                $crate::hook::Client::$client,
                $name,
                $crate::logging::Sink::Journal,
            )
            .into()
        }
    };
}

/// Does what the standard library does for a program that it starts, as far as a hook
/// needs it: a descriptor for standard input, output or error that the caller closed must
/// not become that of some file, and a reader of our messages that has gone must not end
/// us in the middle of the work.
pub fn begin() {
    let standard = [stdin(), stdout(), stderr()];
    if standard.iter().any(|fd| fcntl_getfd(fd).is_err()) {
        // Each takes the lowest free number. Without the file nothing can be done.
        let null = || OpenOptions::new().read(true).write(true).open("/dev/null");
        while null().is_ok_and(|file| file.into_raw_fd() <= stderr().as_raw_fd()) {}
    }
    // Such a write then fails. No error is possible with a signal that exists.
    SigSet::from(Signal::SIGPIPE)
        .thread_block()
        .unwrap_or_default();
}

/// Runs as the hook of `client`: the event is in the environment and the arguments.
#[must_use]
pub fn run(client: Client, program: &'static str, sink: Sink) -> Exit {
    handle(&capture::environment(client), program, sink)
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
    let parsed = parse(raw);
    if matches!(parsed, Ok(None)) {
        return Exit::Done;
    }
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
            let exit = match parsed {
                Ok(event) => event.map_or(Exit::Done, |event| {
                    let exit = take(&engine, &event, raw);
                    wake(&engine, &event);
                    exit
                }),
                Err(exit) => {
                    follow(&engine);
                    exit
                }
            };
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
            let dropped = parsed.dropped.iter().map(ToString::to_string);
            logging::some_of(dropped, "fields", |dropped| warn!("{dropped}"));
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

fn broken_configuration(error: &ConfigError) -> Exit {
    error!("failed to {}", with_causes(error));
    error!("the configuration is invalid, so routes and rules stay as they are");
    Exit::Configuration
}

fn unreadable(error: &KernelError) -> Exit {
    error!("{}", with_causes(error));
    Exit::Kernel
}

/// Follows what a client did to its card, such as taking an address off, when it cannot be
/// believed what it says of it.
fn follow(engine: &Engine<Netlink>) {
    match engine.apply() {
        Ok(outcome) => mem::forget(outcome),
        Err(error) => error!("{}", with_causes(&error)),
    }
}

/// Lets the metadata service be asked what else the card has, now that its lease is seen to.
fn wake(engine: &Engine<Netlink>, event: &Event) {
    let asks = engine.settings().metadata.provider != ProviderChoice::None;
    if asks
        && event.brings_lease()
        && !event.ahead
        && let Err(error) = wake::tell(engine.state().path(), &event.interface)
    {
        debug!("nobody asks for metadata: {error}");
    }
}

fn take(engine: &Engine<Netlink>, event: &Event, raw: &RawEvent) -> Exit {
    match engine.take(event.clone(), raw) {
        Ok(outcome) => {
            match &outcome {
                Outcome::TakenIn(_) => info!(
                    "{}: {} ({}): taken in by another run",
                    event.interface,
                    event.reason,
                    event.family_names(),
                ),
                Outcome::Done {
                    reports,
                    unknown,
                    state_errors,
                    ..
                } => {
                    let errors = state_errors.iter().map(|error| with_causes(error));
                    logging::some_of(errors, "files", |error| error!("{error}"));
                    // That an interface is not there has been said already.
                    let changes = reports.iter().any(|report| !report.is_unchanged());
                    if changes || (unknown.is_empty() && !reports.is_empty()) {
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
