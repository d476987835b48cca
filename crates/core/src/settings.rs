//! Validated settings: the last of the three shapes that a configuration goes through.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::host::{Link, LinkAddress};
use crate::interface::Mac;
use crate::numbers::{Priority, ProtocolId, TableId};
use crate::route::ObservedRoute;
use crate::rule::{ObservedRule, RuleAction};

/// How many numbers from the base priority on belong to us.
pub const RULE_SPAN: u32 = 100;

/// Tables that the `position` scheme may use, counted from its base.
pub const POSITION_SPAN: u32 = 256;

/// When anything is written at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Only while the host has two or more uplinks in the family.
    #[default]
    Multihomed,
    /// Always, with a single uplink too.
    Always,
}

/// How an interface gets its table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "scheme", rename_all = "lowercase")]
pub enum TableScheme {
    /// Base + interface index.
    IfIndex {
        /// The number before the first table.
        base: u32,
    },
    /// Base + position among the managed uplinks, the first being 0.
    Position {
        /// The table of the first one.
        base: u32,
        /// Names that come first, in this order; the others follow by hardware address.
        order: Vec<Pattern>,
    },
}

impl Default for TableScheme {
    fn default() -> Self {
        Self::IfIndex { base: 76000 }
    }
}

/// A shell-like pattern (`*`, `?`, `[a-z]`), as glob(7) has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern(glob::Pattern);

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} is not a pattern: {why}", crate::Quoted(.text))]
pub struct InvalidPattern {
    text: String,
    why: &'static str,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// When brackets or stars do not add up.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        glob::Pattern::new(text)
            .map(Self)
            .map_err(|e| InvalidPattern {
                text: text.to_owned(),
                why: e.msg,
            })
    }

    /// Whether a text fits.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.matches(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_str(), f)
    }
}

impl Serialize for Pattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

/// Which interfaces an `[[interface]]` section is about. All that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterfaceMatch {
    /// The name or one of the alternative names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Pattern>,
    /// The hardware address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// The driver; for virtual devices their kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<Pattern>,
}

impl InterfaceMatch {
    /// Whether an interface fits.
    #[must_use]
    pub fn fits(&self, link: &Link) -> bool {
        let name_fits = self.name.as_ref().is_none_or(|pattern| {
            pattern.matches(link.name.as_str())
                || link.alternative_names.iter().any(|n| pattern.matches(n))
        });
        let mac_fits = self.mac.is_none_or(|mac| link.mac == Some(mac));
        let driver_fits = self.driver.as_ref().is_none_or(|pattern| {
            let driver = link.driver.as_deref().or(link.kind.as_deref());
            driver.is_some_and(|driver| pattern.matches(driver))
        });
        name_fits && mac_fits && driver_fits
    }

    /// Whether it fits all interfaces that another one fits, as far as the patterns tell: one
    /// covers another when it matches that one's text.
    fn covers(&self, other: &Self) -> bool {
        let covered = |own: &Option<Pattern>, other: &Option<Pattern>| {
            own.as_ref().is_none_or(|own| {
                let other = other.as_ref();
                other.is_some_and(|other| own.matches(&other.to_string()))
            })
        };
        // Every interface has a name.
        let any_name = self
            .name
            .as_ref()
            .is_some_and(|name| name.0.as_str() == "*");
        (any_name || covered(&self.name, &other.name))
            && (self.mac.is_none() || self.mac == other.mac)
            && covered(&self.driver, &other.driver)
    }
}

/// As it stands in the configuration: `name = "eth1", driver = "ena"`.
impl fmt::Display for InterfaceMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.name.as_ref().map(|name| ("name", name.to_string())),
            self.mac.map(|mac| ("mac", mac.to_string())),
            self.driver
                .as_ref()
                .map(|driver| ("driver", driver.to_string())),
        ];
        for (place, (key, value)) in parts.into_iter().flatten().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{key} = {value:?}")?;
        }
        Ok(())
    }
}

/// What one `[[interface]]` section says. What it leaves out stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterfaceSettings {
    /// Which interfaces it is about.
    #[serde(rename = "match")]
    pub matches: InterfaceMatch,
    /// Whether we work on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manage: Option<bool>,
    /// A table of their own, in place of the scheme's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableId>,
    /// The base priority of their rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Whether `leaseroute wait-online` waits for them when it is told of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

/// The metadata providers by name. Each is one file of `leaseroute-metadata`, where a test
/// holds this list.
pub const PROVIDERS: &[&str] = &[
    "alibaba",
    "azure",
    "digitalocean",
    "ec2",
    "gcp",
    "hetzner",
    "oci",
    "openstack",
    "scaleway",
    "vultr",
];

/// Which metadata service to ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProviderChoice {
    /// The one that the machine's firmware tells of, if it tells of any.
    #[default]
    Auto,
    /// None.
    None,
    /// This one, one of [`PROVIDERS`].
    Named(&'static str),
}

/// Why a text names no metadata provider.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} is no metadata provider: use auto, none or one of {}", crate::Quoted(.0), PROVIDERS.join(", "))]
pub struct InvalidProvider(String);

impl std::str::FromStr for ProviderChoice {
    type Err = InvalidProvider;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            name => {
                let known = PROVIDERS.iter().find(|known| **known == name);
                known
                    .map(|name| Self::Named(name))
                    .ok_or_else(|| InvalidProvider(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for ProviderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Named(name) => name,
        })
    }
}

impl Serialize for ProviderChoice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a metadata service answers, in place of the provider's own address: `http`, an
/// address, and a port if it is not 80. Names are not looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint(std::net::SocketAddr);

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{} is no endpoint: write http://ADDRESS or http://ADDRESS:PORT, an IPv6 address in brackets",
    crate::Quoted(.0)
)]
pub struct InvalidEndpoint(String);

impl Endpoint {
    /// An endpoint at an address and a port.
    #[must_use]
    pub const fn new(address: std::net::SocketAddr) -> Self {
        Self(address)
    }

    /// Its address and port.
    #[must_use]
    pub const fn address(self) -> std::net::SocketAddr {
        self.0
    }
}

impl std::str::FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let authority = text
            .strip_prefix("http://")
            .map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let address = authority.and_then(|authority| {
            let with_port = authority.parse().ok();
            with_port.or_else(|| format!("{authority}:80").parse().ok())
        });
        let address = address.filter(|address: &std::net::SocketAddr| {
            address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
        });
        address
            .map(Self)
            .ok_or_else(|| InvalidEndpoint(text.to_owned()))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            std::net::SocketAddr::V4(v4) if v4.port() == 80 => write!(f, "http://{}", v4.ip()),
            std::net::SocketAddr::V6(v6) if v6.port() == 80 => write!(f, "http://[{}]", v6.ip()),
            address => write!(f, "http://{address}"),
        }
    }
}

impl Serialize for Endpoint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What `[metadata]` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MetadataSettings {
    /// Which service to ask.
    pub provider: ProviderChoice,
    /// Where it answers, if not at its usual address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Whether addresses that only metadata tells of are put on the card.
    pub assign_addresses: bool,
    /// For how long after an event a service is asked again that does not know yet, in
    /// seconds, 1 to 3600.
    pub deadline: u32,
}

impl Default for MetadataSettings {
    fn default() -> Self {
        Self {
            provider: ProviderChoice::default(),
            endpoint: None,
            assign_addresses: false,
            deadline: 60,
        }
    }
}

/// Everything that can be configured, checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// When anything is written.
    pub when: When,
    /// How tables are numbered.
    pub tables: TableScheme,
    /// The base priority of the rules; the block of [`RULE_SPAN`] numbers from here is ours.
    pub priority: Priority,
    /// The tag on every object of ours.
    pub protocol: ProtocolId,
    /// Whether permanent addresses, which nobody leased, count as sources too.
    pub permanent_addresses: bool,
    /// What is asked of metadata services.
    pub metadata: MetadataSettings,
    /// Sections about interfaces. Those that fit apply in order, the later ones over the
    /// earlier ones.
    #[serde(rename = "interface")]
    pub interfaces: Vec<InterfaceSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            when: When::default(),
            tables: TableScheme::default(),
            priority: Priority::observed(7600),
            protocol: ProtocolId::observed(76),
            permanent_addresses: false,
            metadata: MetadataSettings::default(),
            interfaces: Vec::new(),
        }
    }
}

/// What the settings say about one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Managed {
    /// Whether we work on it.
    pub manage: bool,
    /// Its fixed table, if it has one.
    pub table: Option<TableId>,
    /// The base priority of its rules.
    pub priority: Priority,
    /// Whether `leaseroute wait-online` waits for it when it is told of none.
    pub required: bool,
}

impl Settings {
    /// What the settings say about one interface.
    #[must_use]
    pub fn of(&self, link: &Link) -> Managed {
        let mut managed = Managed {
            manage: true,
            table: None,
            priority: self.priority,
            required: false,
        };
        for section in self.interfaces.iter().filter(|s| s.matches.fits(link)) {
            managed.manage = section.manage.unwrap_or(managed.manage);
            managed.table = section.table.or(managed.table);
            managed.priority = section.priority.unwrap_or(managed.priority);
            managed.required = section.required.unwrap_or(managed.required);
        }
        managed
    }

    /// What the sections that require a card match: each wants at least one, which need not
    /// be there yet. A later section that is about all of the same cards can take that back.
    pub fn required(&self) -> impl Iterator<Item = &InterfaceMatch> {
        let sections = self.interfaces.iter().enumerate();
        let in_force = sections.filter(|(place, section)| {
            let mut later = self.interfaces.iter().skip(place + 1);
            let is_said_again = later.any(|later| match later.required {
                Some(false) => later.matches.covers(&section.matches),
                Some(true) => later.matches == section.matches,
                None => false,
            });
            section.required == Some(true) && !is_said_again
        });
        in_force.map(|(_, section)| &section.matches)
    }

    /// The table of an interface, as far as that does not depend on other interfaces.
    pub(crate) fn table_of(&self, link: &Link) -> Option<TableId> {
        let by_scheme = match self.tables {
            TableScheme::IfIndex { base } => base.saturating_add(link.index.get()),
            TableScheme::Position { .. } => 0,
        };
        let fixed = self.of(link).table;
        fixed.or_else(|| TableId::own(by_scheme).ok())
    }

    /// Whether any section matches by driver, so that drivers have to be looked up.
    #[must_use]
    pub fn needs_drivers(&self) -> bool {
        self.interfaces.iter().any(|s| s.matches.driver.is_some())
    }

    /// The base priorities in use, each the start of a block of [`RULE_SPAN`].
    fn bases(&self) -> BTreeSet<Priority> {
        let special = self.interfaces.iter().filter_map(|s| s.priority);
        special.chain([self.priority]).collect()
    }

    /// The smallest base priority in use.
    #[must_use]
    pub fn first_priority(&self) -> Priority {
        self.bases().first().copied().unwrap_or(self.priority)
    }

    /// Whether a priority lies in one of our blocks.
    #[must_use]
    pub fn owns_priority(&self, priority: Priority) -> bool {
        self.bases().iter().any(|base| {
            (base.get()..base.get().saturating_add(RULE_SPAN)).contains(&priority.get())
        })
    }

    /// Whether a table is one that the scheme or a section could give out.
    #[must_use]
    pub fn owns_table(&self, table: TableId) -> bool {
        if TableId::own(table.get()).is_err() {
            return false;
        }
        let by_scheme = match &self.tables {
            TableScheme::IfIndex { base } => table.get() > *base,
            TableScheme::Position { base, .. } => {
                (*base..base.saturating_add(POSITION_SPAN)).contains(&table.get())
            }
        };
        by_scheme || self.interfaces.iter().any(|s| s.table == Some(table))
    }

    /// Whether a rule is ours: tag, priority and table all fit. Main and local count
    /// as tables here, since two of our rules look them up.
    #[must_use]
    pub fn owns_rule(&self, rule: &ObservedRule) -> bool {
        rule.protocol == self.protocol
            && rule.action == RuleAction::Lookup
            && self.owns_priority(rule.priority)
            && (self.owns_table(rule.table)
                || rule.table == TableId::MAIN
                || rule.table == TableId::LOCAL)
    }

    /// Whether an address is ours, by its tag.
    #[must_use]
    pub fn owns_address(&self, address: &LinkAddress) -> bool {
        address.protocol == Some(self.protocol)
    }

    /// Whether a route is ours: tag and table both fit.
    #[must_use]
    pub fn owns_route(&self, route: &ObservedRoute) -> bool {
        route.protocol == self.protocol && self.owns_table(route.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, mac: &str, required: bool) -> InterfaceSettings {
        InterfaceSettings {
            matches: InterfaceMatch {
                name: (!name.is_empty()).then(|| Pattern::new(name).unwrap()),
                mac: mac.parse().ok(),
                driver: None,
            },
            required: Some(required),
            ..InterfaceSettings::default()
        }
    }

    fn required(sections: &[InterfaceSettings]) -> Vec<String> {
        let settings = Settings {
            interfaces: sections.to_vec(),
            ..Settings::default()
        };
        settings.required().map(ToString::to_string).collect()
    }

    #[test]
    fn a_later_section_about_the_same_cards_takes_a_demand_back() {
        const MAC: &str = "02:00:5e:10:00:01";
        let demand = section("eth1", MAC, true);
        for (name, mac) in [
            ("eth1", MAC),
            ("eth1", ""),
            ("eth*", ""),
            ("*", ""),
            ("", MAC),
        ] {
            let later = section(name, mac, false);
            assert_eq!(
                required(&[demand.clone(), later.clone()]),
                [""; 0],
                "{name} {mac}"
            );
            assert_eq!(required(&[later, demand.clone()]).len(), 1, "{name} {mac}");
        }
        for (name, mac) in [
            ("eth2", ""),
            ("", "02:00:5e:10:00:02"),
            ("eth1", "02:00:5e:10:00:02"),
        ] {
            let later = section(name, mac, false);
            assert_eq!(required(&[demand.clone(), later]).len(), 1, "{name} {mac}");
        }
        let narrower = [section("eth*", "", true), section("eth0", "", false)];
        assert_eq!(required(&narrower), ["name = \"eth*\""]);
        let by_mac = [section("", MAC, true), section("*", "", false)];
        assert_eq!(required(&by_mac), [""; 0]);
    }

    #[test]
    fn a_demand_that_is_said_twice_is_one() {
        let twice = [section("eth1", "", true), section("eth1", "", true)];
        assert_eq!(required(&twice), ["name = \"eth1\""]);
        let wider = [section("eth1", "", true), section("eth*", "", true)];
        assert_eq!(required(&wider).len(), 2);
    }
}
