//! The exit hook of ISC dhclient, started by the shim that dhclient's script sources.

#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]

leaseroute_runtime::hook_program!(Dhclient, "leaseroute-dhclient");
