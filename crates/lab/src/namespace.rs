//! Network namespaces that live as long as a value does.
//!
//! A namespace belongs to one thread that was unshared into it. Closures run on that
//! thread, and processes started there stay in the namespace. Nothing of the machine's
//! own network is ever touched.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// One network namespace and the thread that lives in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// Keeps the namespace alive and names it to the kernel.
    handle: File,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Makes a new network namespace. `name` is for messages only.
    ///
    /// # Errors
    ///
    /// When the kernel refuses (no privilege, or too many namespaces).
    pub fn new(name: &str) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("netns-{name}"))
            .spawn(move || {
                let made = unshare(CloneFlags::CLONE_NEWNET)
                    .map_err(io::Error::from)
                    .and_then(|()| File::open("/proc/thread-self/ns/net"));
                let go_on = made.is_ok();
                if ready.send(made).is_ok() && go_on {
                    for job in queue {
                        job();
                    }
                }
            })?;
        let made = is_ready.recv().map_err(io::Error::other)?;
        made.map(|handle| Self {
            name: name.to_owned(),
            handle,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// The name given at the start.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a closure in the namespace and waits for it.
    ///
    /// # Panics
    ///
    /// When the closure panics.
    #[expect(
        clippy::expect_used,
        reason = "a bench may stop when its own thread is gone"
    )]
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(job)
            .recv()
            .expect("the closure in the namespace panicked")
    }

    /// Starts a closure in the namespace; its result comes through the channel.
    ///
    /// # Panics
    ///
    /// When an earlier closure panicked.
    #[expect(
        clippy::expect_used,
        reason = "a bench may stop when its own thread is gone"
    )]
    pub fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        let job: Job = Box::new(move || {
            // Nobody waiting is no trouble.
            drop(sender.send(job()));
        });
        self.jobs
            .as_ref()
            .expect("the namespace is being dropped")
            .send(job)
            .expect("the namespace's thread is gone");
        receiver
    }
}

/// The open `/proc/…/ns/net`, for requests that name a namespace.
impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            drop(thread.join());
        }
    }
}
