//! Numbers that the kernel and administrators share: tables, rule priorities, protocol
//! tags. Each constructor refuses what would touch the kernel's own entries.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a number cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum InvalidNumber {
    /// Table 0, 253, 254 or 255.
    #[error("table {0} belongs to the kernel (0, 253 default, 254 main, 255 local)")]
    ReservedTable(u32),
    /// A rule priority that would come before the local table or after main.
    #[error(
        "rule priority {0} is outside 1..=32665 (100 numbers are used, all before main's 32766)"
    )]
    Priority(u32),
    /// A protocol tag of the kernel or of the boot scripts.
    #[error("protocol {0} is outside 5..=255 (0 to 4 belong to the kernel and to ip(8))")]
    Protocol(u32),
}

/// A routing table number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(u32);

impl TableId {
    /// Table 255, the kernel's own addresses.
    pub const LOCAL: Self = Self(255);
    /// Table 254.
    pub const MAIN: Self = Self(254);
    /// Table 253.
    pub const DEFAULT: Self = Self(253);

    /// Any table, as the kernel reports it.
    #[must_use]
    pub const fn observed(number: u32) -> Self {
        Self(number)
    }

    /// A table of our own.
    ///
    /// # Errors
    ///
    /// When the number is one that the kernel reserves (0, 253, 254, 255).
    pub const fn own(number: u32) -> Result<Self, InvalidNumber> {
        match number {
            0 | 253..=255 => Err(InvalidNumber::ReservedTable(number)),
            _ => Ok(Self(number)),
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LOCAL => f.write_str("local"),
            Self::MAIN => f.write_str("main"),
            Self::DEFAULT => f.write_str("default"),
            Self(number) => number.fmt(f),
        }
    }
}

/// A rule's priority: the kernel walks rules from the smallest number up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(u32);

impl Priority {
    /// Any priority, as the kernel reports it.
    #[must_use]
    pub const fn observed(number: u32) -> Self {
        Self(number)
    }

    /// The first of the 100 numbers that the rules of one selector use.
    ///
    /// # Errors
    ///
    /// When the block would reach main's rule (32766) or include 0.
    pub const fn base(number: u32) -> Result<Self, InvalidNumber> {
        match number {
            1..=32665 => Ok(Self(number)),
            _ => Err(InvalidNumber::Priority(number)),
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// This priority and a distance from it.
    #[must_use]
    pub(crate) const fn plus(self, distance: u32) -> Self {
        Self(self.0.saturating_add(distance))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The origin tag of a route (`rtm_protocol`) or a rule (`FRA_PROTOCOL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProtocolId(u8);

impl ProtocolId {
    /// `kernel` in rt_protos: made by the kernel itself.
    pub const KERNEL: Self = Self(2);
    /// `ra` in rt_protos: learned from a router advertisement.
    pub const RA: Self = Self(9);

    /// Any tag, as the kernel reports it.
    #[must_use]
    pub const fn observed(number: u8) -> Self {
        Self(number)
    }

    /// A tag of our own.
    ///
    /// # Errors
    ///
    /// For 0 to 4 (unspec, redirect, kernel, boot, static in linux/rtnetlink.h) and
    /// numbers above 255.
    pub fn own(number: u32) -> Result<Self, InvalidNumber> {
        match u8::try_from(number) {
            Ok(tag @ 5..) => Ok(Self(tag)),
            _ => Err(InvalidNumber::Protocol(number)),
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for ProtocolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_numbers_are_refused() {
        for table in [0, 253, 254, 255] {
            assert!(TableId::own(table).is_err(), "{table}");
        }
        for priority in [0, 32666, 32766, u32::MAX] {
            assert!(Priority::base(priority).is_err(), "{priority}");
        }
        for protocol in [0, 2, 4, 256] {
            assert!(ProtocolId::own(protocol).is_err(), "{protocol}");
        }
    }
}
