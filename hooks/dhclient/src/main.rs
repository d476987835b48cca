//! The exit hook of ISC dhclient.
fn main() {}
