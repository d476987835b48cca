//! End-to-end tests with real daemons.
