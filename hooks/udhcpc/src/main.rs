//! The hook of busybox udhcpc and udhcpc6, started by the scripts beside it.

#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]

leaseroute_runtime::hook_program!(Udhcpc, "leaseroute-udhcpc");
