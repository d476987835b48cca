//! Policy rules: [`Rule`] is what we want, [`ObservedRule`] is what the kernel showed.

use std::fmt;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::address::{Family, NetworkExt as _};
use crate::interface::{InterfaceName, ShellWord};
use crate::numbers::{Priority, ProtocolId, TableId};

/// What a rule of ours matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Selector {
    /// Every packet; only the rule for table local has it.
    All,
    /// Packets with this source address or prefix.
    From(IpNetwork),
    /// Packets of sockets that are bound to this interface.
    Oif(InterfaceName),
}

/// A rule that we want. Its action is always a table lookup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// The family it lives in.
    pub family: Family,
    /// When the kernel looks at it.
    pub priority: Priority,
    /// What it matches.
    pub selector: Selector,
    /// The table it looks up.
    pub table: TableId,
    /// Routes with this prefix length or a shorter one do not count.
    pub suppress_prefix_length: Option<u8>,
}

/// What a rule does when it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// Looks up the rule's table.
    Lookup,
    /// Any other action (`FR_ACT_*` in linux/fib_rules.h).
    Other(u8),
}

/// The netlink message of a dumped rule, kept so that the rule can be deleted by just
/// what the kernel said. Opaque outside the crate that speaks netlink.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawRule(pub Vec<u8>);

/// A rule as the kernel showed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObservedRule {
    /// The family it lives in.
    pub family: Family,
    /// When the kernel looks at it.
    pub priority: Priority,
    /// `not`: matches what its selectors do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inverted: bool,
    /// Source prefix; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpNetwork>,
    /// Destination prefix; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpNetwork>,
    /// Interface the packet came in by, as text: it need not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<String>,
    /// Interface the socket is bound to, as text: it need not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oif: Option<String>,
    /// Mark and mask, both 0 when the rule has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// Whether it has selectors beyond those above (TOS, ports, users, l3mdev…).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_selectors: bool,
    /// What it does.
    pub action: RuleAction,
    /// The table it looks up; 0 when the action needs none.
    pub table: TableId,
    /// `suppress_prefixlength`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_prefix_length: Option<u8>,
    /// Who made it; 0 when nobody said.
    pub protocol: ProtocolId,
    /// The dumped message; empty in a snapshot read from a file.
    #[serde(skip)]
    pub raw: RawRule,
}

impl Rule {
    /// Whether the kernel holds just this rule.
    #[must_use]
    pub fn is_met_by(&self, seen: &ObservedRule) -> bool {
        let selector_matches = match &self.selector {
            Selector::All => seen.from.is_none() && seen.oif.is_none(),
            Selector::From(source) => seen.from == Some(*source) && seen.oif.is_none(),
            Selector::Oif(name) => {
                seen.from.is_none() && seen.oif.as_deref() == Some(name.as_str())
            }
        };
        selector_matches
            && self.family == seen.family
            && self.priority == seen.priority
            && self.table == seen.table
            && self.suppress_prefix_length == seen.suppress_prefix_length
            && seen.action == RuleAction::Lookup
            && !seen.inverted
            && seen.to.is_none()
            && seen.iif.is_none()
            && seen.mark.is_none()
            && !seen.other_selectors
    }
}

impl ObservedRule {
    /// Whether it has no selector at all.
    #[must_use]
    pub fn matches_everything(&self) -> bool {
        !self.inverted
            && self.from.is_none()
            && self.to.is_none()
            && self.iif.is_none()
            && self.oif.is_none()
            && self.mark.is_none()
            && !self.other_selectors
    }
}

fn write_prefix(f: &mut fmt::Formatter<'_>, prefix: IpNetwork) -> fmt::Result {
    if prefix.is_default() {
        f.write_str("all")
    } else if prefix.prefix() == Family::of_network(prefix).host_length() {
        write!(f, "{}", prefix.ip())
    } else {
        write!(f, "{prefix}")
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("from all"),
            Self::From(source) => {
                f.write_str("from ")?;
                write_prefix(f, *source)
            }
            Self::Oif(name) => write!(f, "oif {}", ShellWord(name.as_str())),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "priority {} {} lookup {}",
            self.priority, self.selector, self.table
        )?;
        match self.suppress_prefix_length {
            None => Ok(()),
            Some(length) => write!(f, " suppress_prefixlength {length}"),
        }
    }
}

impl fmt::Display for ObservedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "priority {}", self.priority)?;
        if self.inverted {
            f.write_str(" not")?;
        }
        if let Some(from) = self.from {
            f.write_str(" from ")?;
            write_prefix(f, from)?;
        } else if self.oif.is_none() || self.inverted {
            f.write_str(" from all")?;
        }
        if let Some(to) = self.to {
            f.write_str(" to ")?;
            write_prefix(f, to)?;
        }
        if let Some((mark, mask)) = self.mark {
            write!(f, " fwmark {mark:#x}/{mask:#x}")?;
        }
        if let Some(iif) = &self.iif {
            write!(f, " iif {}", ShellWord(iif))?;
        }
        if let Some(oif) = &self.oif {
            write!(f, " oif {}", ShellWord(oif))?;
        }
        match self.action {
            RuleAction::Lookup => write!(f, " lookup {}", self.table)?,
            RuleAction::Other(action) => write!(f, " action {action}")?,
        }
        match self.suppress_prefix_length {
            None => Ok(()),
            Some(length) => write!(f, " suppress_prefixlength {length}"),
        }
    }
}
