//! How a watcher starts and ends as a process.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use leaseroute_config::{Loaded, LogLevel};
use leaseroute_runtime::error::with_causes;
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::logging::{self, Sink};
use leaseroute_runtime::{Paths, StateFolder, sandbox};
use tokio::runtime::Builder;
use tracing::{debug, error, warn};

use crate::health;
use crate::watcher::{WatchError, Watcher};

/// Watches until SIGTERM or SIGINT. SIGHUP reads the configuration again.
#[must_use]
pub fn watch() -> Exit {
    let paths = Paths::from_environment();
    let loaded = leaseroute_config::load(&paths.configuration);
    let level = loaded
        .as_ref()
        .map_or(LogLevel::default(), |loaded| loaded.log_level);
    logging::start("leaseroute", level, sink());
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            error!("failed to {}", with_causes(&error));
            return Exit::Configuration;
        }
    };
    warn_of(&loaded);
    let state = StateFolder::at(paths.state.clone());
    if let Err(error) = state.make() {
        warn!("{}", with_causes(&error));
    }
    for part in sandbox::enter(state.path()) {
        debug!("the sandbox is not complete: {part}");
    }
    let lock = match health::lock(&state) {
        Ok(None) => {
            error!("another watcher runs already");
            return Exit::Busy;
        }
        Ok(lock) => lock,
        Err(error) => {
            let path = health::lock_path(&state);
            warn!(
                "failed to lock {}: {error}; `leaseroute status` cannot tell whether a watcher runs",
                path.display()
            );
            None
        }
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!("failed to start: {error}");
            return Exit::Failed;
        }
    };
    let ended = runtime.block_on(async {
        let mut watcher = Watcher::start(paths, loaded, state, lock)?;
        watcher.run().await
    });
    // A thread that waits for the lock must not hold us up.
    runtime.shutdown_background();
    match ended {
        Ok(()) => Exit::Done,
        Err(WatchError::Kernel(error)) => {
            error!("{}", with_causes(&error));
            Exit::Kernel
        }
        Err(WatchError::System(error)) => {
            error!("failed to watch: {error}");
            Exit::Failed
        }
        Err(WatchError::Displaced) => {
            error!("the state folder was removed; another watcher has to make it again");
            Exit::State
        }
        // It has been said.
        Err(WatchError::NotPermitted) => Exit::NotPermitted,
    }
}

/// Whoever starts it by hand wants to see what it says; a service's standard error leads to
/// the journal, where our own messages have more to them (`JOURNAL_STREAM`, systemd.exec(5)).
fn sink() -> Sink {
    let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
    let stderr = fs::metadata("/proc/self/fd/2");
    let leads_there = stderr.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()));
    if leads_there {
        Sink::Journal
    } else {
        Sink::Stderr
    }
}

pub(crate) fn warn_of(loaded: &Loaded) {
    for warning in &loaded.warnings {
        warn!("{warning}");
    }
}
