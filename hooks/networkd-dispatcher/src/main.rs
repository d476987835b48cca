//! The hook of systemd-networkd, started by the script that networkd-dispatcher runs.

#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]

leaseroute_runtime::hook_program!(NetworkdDispatcher, "leaseroute-networkd-dispatcher");
