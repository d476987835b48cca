//! The only part of leaseroute that speaks rtnetlink.
//!
//! Other crates see the [`Kernel`] trait, [`Announcements`] and core's types; of what serves them, `convert` is
//! the one file that knows the library's messages. `topology` builds networks for the bench
//! and the demonstration and is used by nothing else.

mod announce;
mod channel;
mod convert;
mod errno;
mod error;
mod netlink;

pub mod topology;

pub use announce::{Announced, Announcement, Announcements, RouteKey};
pub use error::{KernelError, OperationError};
pub use netlink::{Netlink, ReplyPath};

use std::collections::BTreeSet;

use leaseroute_core::{
    Family, IfIndex, Link, LinkAddress, ObservedRoute, ObservedRule, Operation, ProtocolId, TableId,
};

/// Which routes of table main to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MainRoutes {
    /// The IPv4 default routes. Costs the same however many routes main holds.
    Ipv4Defaults,
    /// The IPv6 unicast routes of these interfaces that say what they are connected to
    /// ([`ObservedRoute::connects`]).
    Ipv6Of(BTreeSet<IfIndex>),
}

/// What a reconciliation asks of the kernel. Everything is read afresh on each call.
pub trait Kernel {
    /// All interfaces.
    fn links(&self) -> Result<Vec<Link>, KernelError>;

    /// All addresses of a family.
    fn addresses(&self, family: Family) -> Result<Vec<LinkAddress>, KernelError>;

    /// All rules of a family in the kernel's order. Empty when the kernel lacks the
    /// family or its policy rules.
    fn rules(&self, family: Family) -> Result<Vec<ObservedRule>, KernelError>;

    /// Some routes of table main.
    fn main_routes(&self, which: &MainRoutes) -> Result<Vec<ObservedRoute>, KernelError>;

    /// All routes of the given tables, whoever made them. A table that does not exist is
    /// empty.
    fn table_routes(
        &self,
        family: Family,
        tables: &BTreeSet<TableId>,
    ) -> Result<Vec<ObservedRoute>, KernelError>;

    /// Makes changes in the given order without waiting in between, and returns one
    /// result for each. Existing on add and missing on delete are success. Objects are
    /// tagged with `protocol`.
    fn execute(
        &self,
        operations: &[&Operation],
        protocol: ProtocolId,
    ) -> Vec<Result<(), OperationError>>;
}
