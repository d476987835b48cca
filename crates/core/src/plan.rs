//! Changes to the kernel's routes and rules, and how they print.
//!
//! The order of a plan keeps every live source on a route at every moment: on-link routes,
//! gateway routes, rules, then stale rules, then stale routes. A plan that is cut off
//! anywhere is finished by the next run, since each run starts from what the kernel shows.

use std::fmt;

use ipnetwork::IpNetwork;
use serde::Serialize;

use crate::address::{Family, NetworkExt as _};
use crate::host::LinkAddress;
use crate::interface::Device;
use crate::model::Purpose;
use crate::note::Note;
use crate::numbers::ProtocolId;
use crate::route::{ObservedRoute, Route};
use crate::rule::{ObservedRule, Rule};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "do", content = "object", rename_all = "snake_case")]
pub enum Operation {
    /// Adds an address; one that exists is a success.
    AddAddress(Address),
    /// Adds a route; one that exists is a success.
    AddRoute(Route),
    /// Puts a route in the place of the one of ours with the same key.
    ReplaceRoute(Route),
    /// Adds a rule; one that exists is a success.
    AddRule(Rule),
    /// Deletes a rule by what the kernel showed; a missing one is a success.
    DeleteRule(ObservedRule),
    /// Deletes a route by what the kernel showed; a missing one is a success.
    DeleteRoute {
        /// The route.
        route: ObservedRoute,
        /// Its interface, for people.
        device: Option<Device>,
    },
    /// Deletes an address of ours; a missing one is a success.
    DeleteAddress(Address),
}

/// An address of ours on an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Address {
    /// The interface.
    pub device: Device,
    /// The address, and how long its on-link prefix is.
    pub address: IpNetwork,
}

impl Address {
    /// Whether the kernel shows just this one.
    #[must_use]
    pub fn is_met_by(&self, seen: &LinkAddress) -> bool {
        seen.index == self.device.index && seen.address == self.address && seen.peer.is_none()
    }
}

/// As `ip address add` has it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dev {}", self.address, self.device.name)
    }
}

/// One change and why it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The change.
    #[serde(flatten)]
    pub operation: Operation,
    /// What the object is, or was, for. `None`: nothing wants it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
}

/// An ordered list of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The changes in the order they are made.
    pub steps: Vec<Step>,
    /// What planning met on the way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// The tag that the objects carry.
    pub protocol: ProtocolId,
}

impl Operation {
    /// The family it concerns.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::AddRoute(route) | Self::ReplaceRoute(route) => route.family(),
            Self::AddRule(rule) => rule.family,
            Self::DeleteRule(rule) => rule.family,
            Self::DeleteRoute { route, .. } => route.family(),
            Self::AddAddress(address) | Self::DeleteAddress(address) => {
                Family::of_network(address.address)
            }
        }
    }
}

/// A change as the ip(8) command that makes it, without its reason.
struct Command<'a>(&'a Operation, ProtocolId);

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(operation, protocol) = self;
        write!(f, "ip {} ", operation.family().ip_option())?;
        match operation {
            Operation::AddAddress(address) => {
                write!(f, "address add {address} proto {}", protocol.get())
            }
            Operation::DeleteAddress(address) => write!(f, "address delete {address}"),
            Operation::AddRoute(route) => {
                // `add` refuses a second IPv6 default of one metric.
                let has_siblings = route.family() == Family::Ipv6 && route.destination.is_default();
                let verb = if has_siblings { "append" } else { "add" };
                write!(
                    f,
                    "route {verb} {route} table {} protocol {protocol}",
                    route.table
                )
            }
            Operation::ReplaceRoute(route) => {
                write!(
                    f,
                    "route replace {route} table {} protocol {protocol}",
                    route.table
                )
            }
            Operation::AddRule(rule) => write!(f, "rule add {rule} protocol {protocol}"),
            Operation::DeleteRule(rule) => {
                write!(f, "rule delete {rule} protocol {}", rule.protocol)
            }
            Operation::DeleteRoute { route, device } => {
                let device = device.as_ref().map(|device| device.name.as_str());
                write!(
                    f,
                    "route delete {} table {} protocol {}",
                    route.describe(device),
                    route.table,
                    route.protocol
                )
            }
        }
    }
}

impl Plan {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// One step as an ip(8) command, without its reason.
    #[must_use]
    pub fn command<'a>(&'a self, step: &'a Step) -> impl fmt::Display + 'a {
        Command(&step.operation, self.protocol)
    }
}

/// The whole plan as ip(8) commands, each with its reason as a comment. What it prints
/// can be fed to a shell, or without the first word to `ip -batch`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            write!(f, "{}", self.command(step))?;
            match &step.purpose {
                Some(purpose) => writeln!(f, "  # {purpose}")?,
                None => writeln!(f, "  # no longer wanted")?,
            }
        }
        Ok(())
    }
}
