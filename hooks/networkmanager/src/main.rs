//! The hook of NetworkManager's dispatcher, started by the script in its folder.

#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]

leaseroute_runtime::hook_program!(NmDispatcher, "leaseroute-nm-dispatcher");
