//! A bench made of network namespaces, an in-memory kernel, and the demonstration.

pub mod fabric;
pub mod namespace;
pub mod probe;
pub mod site;
