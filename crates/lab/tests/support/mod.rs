//! What the property tests share.

pub(crate) mod foreign;
pub(crate) mod kernel;
pub(crate) mod spelling;
pub(crate) mod strategies;
pub(crate) mod world;
