//! What can go wrong between us and the kernel.

use std::io;

use leaseroute_core::Operation;
use thiserror::Error;

use crate::errno::{self, EACCES, EADDRNOTAVAIL, EEXIST, ENETDOWN, ENODEV, ENOENT, EPERM, ESRCH};

/// Reading from the kernel failed.
#[derive(Debug, Error)]
pub enum KernelError {
    /// No netlink socket could be opened.
    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),
    /// The kernel refused a dump.
    #[error("failed to read {what} from the kernel")]
    Dump {
        /// What was asked for.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Every try at a dump was interrupted by changes of others.
    #[error("failed to read {what} from the kernel: it changed during each of {tries} tries")]
    Interrupted {
        /// What was asked for.
        what: &'static str,
        /// How often it was tried.
        tries: u32,
    },
}

/// The kernel refused a change.
#[derive(Debug, Error)]
pub enum OperationError {
    /// The process lacks CAP_NET_ADMIN in the network namespace's user namespace.
    #[error("not permitted: changing routes and rules needs CAP_NET_ADMIN")]
    NotPermitted,
    /// The interface is down or gone, so that no route can use it (ENETDOWN, ENODEV).
    #[error("the interface is down or gone")]
    LinkDown(#[source] io::Error),
    /// Any other answer.
    #[error("refused by the kernel: {0}")]
    Refused(#[source] io::Error),
    /// The connection ended before the answer came.
    #[error("the netlink connection ended")]
    Closed,
}

impl OperationError {
    /// What the kernel's answer to an operation means. What is as wanted already is no
    /// failure: existing on add, missing on delete, and a route that went with its
    /// interface. An answer that never came has the kind `ConnectionAborted`.
    ///
    /// # Errors
    ///
    /// When the operation has not reached its aim.
    pub fn check(operation: &Operation, answer: io::Result<()>) -> Result<(), Self> {
        let Err(error) = answer else {
            return Ok(());
        };
        let as_wanted: &[i32] = match operation {
            Operation::AddAddress(_)
            | Operation::AddRoute(_)
            | Operation::ReplaceRoute(_)
            | Operation::AddRule(_) => &[EEXIST],
            Operation::DeleteAddress(_) => &[EADDRNOTAVAIL, ENODEV],
            Operation::DeleteRule(_) | Operation::DeleteRoute { .. } => &[ENOENT, ESRCH, ENODEV],
        };
        if errno::is(&error, as_wanted) {
            Ok(())
        } else if errno::is(&error, &[EPERM, EACCES]) {
            Err(Self::NotPermitted)
        } else if errno::is(&error, &[ENETDOWN, ENODEV]) {
            Err(Self::LinkDown(error))
        } else if error.kind() == io::ErrorKind::ConnectionAborted {
            Err(Self::Closed)
        } else {
            Err(Self::Refused(error))
        }
    }
}
