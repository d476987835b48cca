//! The demonstration: how connections to a second card fail, and what makes them work.
//!
//! It builds a host with two cards, a strict fabric behind each, and machines that connect
//! to it, feeds recorded leases to the suite's real hook, and checks every claim it
//! prints. It runs without root where the kernel lets users make namespaces, and needs
//! neither ip(8) nor a DHCP client. What it does not do: play a DHCP server, or judge
//! anything but what it shows.

mod lease;
mod story;
mod suite;
mod teller;

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use leaseroute_kernel::KernelError;
use thiserror::Error;

use crate::fabric::{Fabric, Layout};
use crate::privilege::{self, NotPermitted, Privilege};
use crate::site::BenchError;

pub use lease::{Happening, Variables, event};
pub use suite::{Program, Run, Suite};

use story::Story;
use teller::{Teller, milliseconds};

/// Why the demonstration ended early.
#[derive(Debug, Error)]
pub enum DemoError {
    /// It needs network namespaces.
    #[error(transparent)]
    NotPermitted(#[from] NotPermitted),
    /// The small cloud could not be built.
    #[error("failed to build the demonstration's network")]
    Bench(#[from] BenchError),
    /// The kernel could not be asked about the host.
    #[error("failed to look at the demonstration's host")]
    Kernel(#[from] KernelError),
    /// The suite's program could not be started, or its folders not be made.
    #[error("failed to start {what}")]
    Start {
        /// The program, or what it needs.
        what: &'static str,
        /// What stopped it.
        #[source]
        source: io::Error,
    },
    /// Standard output could not be written.
    #[error("failed to write to standard output")]
    Output(#[from] io::Error),
    /// Something did not come out as told.
    #[error("the demonstration did not come out as told: {0}")]
    Unexpected(String),
}

/// Shows the program at `program` at work, on standard output.
///
/// Call it before any thread is started: it moves the process into namespaces of its own,
/// for good.
///
/// # Errors
///
/// When namespaces are not permitted (the message says what to do), or at the first step
/// that does not come out as told.
pub fn run(program: &Path) -> Result<(), DemoError> {
    let privilege = privilege::isolate()?;
    let suite = Program::new(program).map_err(|source| DemoError::Start {
        what: "the program, for want of a temporary folder",
        source,
    })?;
    tell(&mut Teller::to_stdout(), privilege, &suite)
}

/// Tells the story of any suite, without colour. The calling process must have the right
/// to make network namespaces.
///
/// # Errors
///
/// At the first step that does not come out as told.
pub fn tell_of(suite: &dyn Suite, out: &mut dyn Write) -> Result<(), DemoError> {
    tell(&mut Teller::plain(out), Privilege::Given, suite)
}

fn tell<W: Write>(
    teller: &mut Teller<W>,
    privilege: Privilege,
    suite: &dyn Suite,
) -> Result<(), DemoError> {
    let started = Instant::now();
    teller.title(privilege)?;
    let fabric = Fabric::new(&Layout::separate(2))?;
    let built = started.elapsed();
    Story::new(&fabric, suite, teller)?.tell()?;
    let (built, all) = (milliseconds(built), started.elapsed().as_secs_f64());
    teller.end(&format!(
        "All came out as told, in {all:.1} s ({built} to build the network)."
    ))?;
    Ok(())
}
