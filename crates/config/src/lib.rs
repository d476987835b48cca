//! Reads leaseroute's configuration.
