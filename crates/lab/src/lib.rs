//! A bench made of network namespaces, an in-memory kernel, and the demonstration.

pub mod demo;
pub mod fabric;
pub mod fake;
pub mod fixture;
pub mod namespace;
pub mod privilege;
pub mod probe;
pub mod scenarios;
pub mod site;
