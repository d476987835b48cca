//! Returns when cards have their lease and their routing.
//!
//! What a card lacks is found out by `readiness`, from what the kernel and the records of
//! leases show; here is the waiting. The kernel announces what changes, inotify(7) tells of
//! records, and in between nothing is looked at. It takes no lock and changes nothing, so
//! anybody may wait, at any time.

mod readiness;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use leaseroute_core::{Family, InterfaceRef, Settings};
use leaseroute_kernel::{Announcements, Kernel, KernelError, Netlink};
use leaseroute_runtime::StateFolder;
use leaseroute_runtime::exit::Exit;
use serde::Serialize;
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use crate::folders::Folders;
use crate::interest::wants;
use crate::pace::Pace;
use readiness::Moment;

pub use readiness::{Card, Missing, Reason};

/// What is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The cards by name or alternative name, which need not be there yet. None: those that the
    /// configuration requires.
    pub interfaces: Vec<InterfaceRef>,
    /// Whether the first one that is ready will do.
    pub any: bool,
    /// The families in which each must be ready. None: those in which it has a lease, and at
    /// least one.
    pub families: Vec<Family>,
    /// How long at most; `None` means without end.
    pub timeout: Option<Duration>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether what was waited for is ready.
    pub complete: bool,
    /// What was waited for; none when nothing was.
    pub cards: Vec<Card>,
    /// Records of leases that could not be read, in words.
    pub trouble: Vec<String>,
}

/// Why nothing could be waited for.
#[derive(Debug, Error)]
pub enum WaitError {
    /// The kernel could not be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The records of leases cannot be followed.
    #[error("failed to follow {}", folder.display())]
    Follow {
        /// Their folder.
        folder: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The system gives no means to wait.
    #[error("failed to wait for anything")]
    Runtime(#[source] io::Error),
}

impl WaitError {
    /// The exit code that says so.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Kernel(_) => Exit::Kernel,
            Self::Follow { .. } | Self::Runtime(_) => Exit::Failed,
        }
    }
}

impl Wanted {
    /// Whether there is nothing to wait for.
    #[must_use]
    pub fn is_nothing(&self, settings: &Settings) -> bool {
        self.interfaces.is_empty() && settings.required().next().is_none()
    }

    fn families(&self) -> &[Family] {
        if self.families.is_empty() {
            &Family::BOTH
        } else {
            &self.families
        }
    }
}

/// Waits until cards are ready, or the time is over.
///
/// # Errors
///
/// When the kernel cannot be read, or the state folder not be followed.
pub fn wait(
    wanted: &Wanted,
    settings: &Settings,
    state: &StateFolder,
) -> Result<Answer, WaitError> {
    // Who expects no card pays for nothing more.
    if wanted.is_nothing(settings) {
        return Ok(Answer {
            complete: true,
            ..Answer::default()
        });
    }
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().map_err(WaitError::Runtime)?;
    runtime.block_on(async {
        let deadline = wanted.timeout.and_then(|t| Instant::now().checked_add(t));
        // First the ears, then the eyes: what happens between two looks is heard.
        let mut ears = Ears::open(settings, state)?;
        let kernel = Netlink::open()?;
        let mut pace = Pace::default();
        loop {
            let began = Instant::now();
            let looked = look(&kernel, wanted, settings, state);
            pace.looked(began, Instant::now());
            let is_over = deadline.is_some_and(|deadline| deadline <= began);
            match looked {
                Ok(answer) if answer.complete || is_over => return Ok(answer),
                Ok(_) => {}
                // Others change so much that no dump was whole.
                Err(KernelError::Interrupted { .. }) if !is_over => pace.notice(Instant::now()),
                Err(error) => return Err(error.into()),
            }
            loop {
                let until = [pace.due(), deadline].into_iter().flatten().min();
                let is_due = until.is_some_and(|until| until <= Instant::now());
                if is_due || !ears.hear_until(until).await? {
                    break;
                }
                pace.notice(Instant::now());
            }
        }
    })
}

/// What there is at this moment.
fn look<K: Kernel>(
    kernel: &K,
    wanted: &Wanted,
    settings: &Settings,
    state: &StateFolder,
) -> Result<Answer, KernelError> {
    let moment = Moment::read(kernel, settings, state, wanted.families())?;
    let cards = moment.cards(wanted);
    let mut complete = cards.iter().map(Card::is_complete);
    Ok(Answer {
        complete: if wanted.any {
            complete.any(|is| is)
        } else {
            complete.all(|is| is)
        },
        cards,
        trouble: moment.trouble,
    })
}

/// What tells of changes.
struct Ears {
    announcements: Announcements,
    records: Folders,
    folder: PathBuf,
}

impl Ears {
    fn open(settings: &Settings, state: &StateFolder) -> Result<Self, WaitError> {
        let folder = state.leases();
        let listened_to = settings.clone();
        let announcements = Announcements::open(move |key| wants(key, &listened_to))?;
        match Folders::follow([folder.clone()]) {
            Ok(records) => Ok(Self {
                announcements,
                records,
                folder,
            }),
            Err(source) => Err(WaitError::Follow { folder, source }),
        }
    }

    /// Whether anything happens until then.
    async fn hear_until(&mut self, until: Option<Instant>) -> Result<bool, WaitError> {
        let Some(until) = until else {
            return self.hear().await.map(|()| true);
        };
        match timeout_at(until, self.hear()).await {
            Ok(heard) => heard.map(|()| true),
            Err(_elapsed) => Ok(false),
        }
    }

    async fn hear(&mut self) -> Result<(), WaitError> {
        tokio::select! {
            announcement = self.announcements.next() => {
                announcement?;
            }
            changes = self.records.changed() => {
                changes.map_err(|source| WaitError::Follow {
                    folder: self.folder.clone(),
                    source,
                })?;
            }
        }
        Ok(())
    }
}
