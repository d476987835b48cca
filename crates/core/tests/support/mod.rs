//! What the property tests share.

pub mod foreign;
pub mod kernel;
pub mod spelling;
pub mod world;
