//! The exit hook of ISC dhclient, started by the shim that dhclient's script sources.

use std::process::ExitCode;

use leaseroute_core::Client;
use leaseroute_runtime::logging::Sink;

fn main() -> ExitCode {
    leaseroute_runtime::hook::run(Client::Dhclient, "leaseroute-dhclient", Sink::Journal)
}
