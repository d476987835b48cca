//! The shell around leaseroute's core.
