//! The hook of wicked, started by its scripts and by our module for netconfig.

#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]

leaseroute_runtime::hook_program!(Wicked, "leaseroute-wicked");
