//! The lock on the state folder: flock(2), so that the kernel frees it when its holder
//! dies.

use std::fs::File;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The lock, held as long as the value lives.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its drop")] File);

/// What a try for the lock gave.
#[derive(Debug)]
pub(crate) enum Try {
    /// We hold it.
    Held(Lock),
    /// Another process holds it.
    Busy(File),
}

/// Takes the lock if it is free.
pub(crate) fn try_lock(file: File) -> io::Result<Try> {
    match file.try_lock() {
        Ok(()) => Ok(Try::Held(Lock(file))),
        Err(std::fs::TryLockError::WouldBlock) => Ok(Try::Busy(file)),
        Err(std::fs::TryLockError::Error(e)) => Err(e),
    }
}

/// Waits for the lock, at most for `patience`. `None` when it stayed taken.
///
/// flock(2) has no time limit of its own, so a thread waits in its place; when the limit
/// passes the thread stays behind, until the process ends.
pub(crate) fn wait(file: File, patience: Duration) -> io::Result<Option<Lock>> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("lock".to_owned())
        .spawn(move || {
            let locked = wait_for_ever(file);
            // Nobody listens any more when the limit has passed.
            drop(sender.send(locked));
        })?;
    match receiver.recv_timeout(patience) {
        Ok(locked) => locked.map(Some),
        Err(_) => Ok(None),
    }
}

/// Waits for the lock as long as it takes.
pub(crate) fn wait_for_ever(file: File) -> io::Result<Lock> {
    file.lock().map(|()| Lock(file))
}
