//! What a service manager is told, sd_notify(3). Without one nobody listens, and nothing
//! happens.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// A service manager that may be there.
#[derive(Debug)]
pub(crate) struct Service {
    /// How often it wants to hear that we live: half of what it allows.
    interval: Option<Duration>,
}

impl Service {
    /// As the environment says (`NOTIFY_SOCKET`, `WATCHDOG_USEC`).
    pub(crate) fn from_environment() -> Self {
        Self {
            interval: sd_notify::watchdog_enabled().map(|allowed| allowed / 2),
        }
    }

    /// How often to say that we live.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// The state is right for the first time.
    pub(crate) fn ready(&self) {
        tell(&[NotifyState::Ready]);
    }

    /// We live.
    pub(crate) fn alive(&self) {
        tell(&[NotifyState::Watchdog]);
    }

    /// The configuration is read again; `ready` ends that.
    pub(crate) fn reloading(&self) {
        let now = NotifyState::monotonic_usec_now();
        match now {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    /// We end.
    pub(crate) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        debug!("the service manager does not listen: {error}");
    }
}
