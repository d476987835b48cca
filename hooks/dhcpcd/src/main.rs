//! The hook of dhcpcd, started by the shim that `dhcpcd-run-hooks` sources.

#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]

leaseroute_runtime::hook_program!(Dhcpcd, "leaseroute-dhcpcd");
