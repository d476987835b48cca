//! leaseroute.
fn main() {}
