//! A bench made of network namespaces, an in-memory kernel, and the demonstration.

pub mod namespace;
