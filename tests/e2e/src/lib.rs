//! End-to-end tests with real daemons: the parts they are made of.
//!
//! A [`host::Host`] is a host of the bench with files of its own; a [`machine::Machine`] is
//! one on which the real dhclient runs with its real script and our shim. [`servers`] are dnsmasq and radvd on
//! the routers, [`responder`] is a DHCP server that does what no honest one can be asked
//! to. [`kernel`] reads rules and routes with `ip -json` and says what they should be.
//! [`imds`] is a metadata service and what systemd does for the program that asks it,
//! [`watcher`] is the watcher, [`churn`] a host on which everything comes and goes.
//! [`probes`] ask every address all the time and say how long replies were wrong,
//! [`announced`] is what the kernel says meanwhile, and [`disturbed`] what is done to a host.
//! Nothing outside namespaces made here is touched.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

pub mod announced;
pub mod boot;
pub mod churn;
pub mod daemon;
pub mod dhcpcd;
pub mod disturbed;
pub mod host;
pub mod imds;
pub mod kernel;
pub mod machine;
pub mod networkd;
pub mod networkmanager;
pub mod probes;
pub mod responder;
pub mod servers;
pub mod shell;
pub mod udhcpc;
pub mod watcher;

use std::time::{Duration, Instant};

/// How long anything that must happen may take before a test gives up. Far more than it
/// ever needs: a loaded machine must not fail a test.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until `look` sees something, and panics with what it saw last when it does not.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(last) => assert!(
                Instant::now() < deadline,
                "waited in vain until {what}:\n{last}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
