//! What the kernel has, read with `ip -json`, and what it should have.
//!
//! Rules and routes are compared as text, one line each, so that a failed test shows what
//! is missing and what is too much. [`Own`] is ours by protocol, priority and table; all
//! the rest is foreign and must stay as it was.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::process::Command;

use leaseroute_core::Family;
use leaseroute_lab::fabric::{Card, GATEWAY6};
use leaseroute_lab::site::Site;
use serde_json::Value;

/// The protocol number on everything of ours.
const PROTOCOL: &str = "76";
/// The number before the first own table.
const TABLES: u64 = 76000;

/// What is ours, or what of ours should be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// `7610: from 10.0.1.10 lookup 76003 suppress 0`
    pub rules: BTreeSet<String>,
    /// `76003: default via 10.0.1.1 dev eth1`
    pub routes: BTreeSet<String>,
}

/// One card in one family, as the rules and routes speak of it.
#[derive(Clone, Debug)]
pub struct Face {
    /// The interface.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its sources. None: an uplink that needs nothing of its own, but that the others
    /// must go around.
    pub sources: Vec<IpAddr>,
    /// Its on-link prefix.
    pub prefix: String,
    /// Its router.
    pub gateway: IpAddr,
}

impl Face {
    /// A card with the address that the fabric gives it.
    #[must_use]
    pub fn of(card: &Card, family: Family) -> Self {
        let subnet = card.subnet;
        let (prefix, gateway) = match family {
            Family::Ipv4 => (format!("10.0.{subnet}.0/24"), card.gateway4().into()),
            Family::Ipv6 => (format!("2001:db8:0:{subnet:x}::/64"), GATEWAY6.into()),
        };
        Self {
            name: card.name.to_string(),
            index: card.link.get(),
            sources: vec![card.address(family)],
            // The kernel writes the longest run of zeros short.
            prefix: prefix.replace(":0:0::", "::"),
            gateway,
        }
    }

    /// The same with another address.
    #[must_use]
    pub fn with_source(mut self, address: IpAddr) -> Self {
        self.sources = vec![address];
        self
    }

    /// The same with another router.
    #[must_use]
    pub fn with_gateway(mut self, gateway: IpAddr) -> Self {
        self.gateway = gateway;
        self
    }

    fn table(&self) -> u64 {
        TABLES + u64::from(self.index)
    }
}

impl Own {
    /// What must be there for these uplinks and no others, by the model's table.
    #[must_use]
    pub fn expected(faces: &[Face]) -> Self {
        let mut own = Self::default();
        for face in faces.iter().filter(|face| !face.sources.is_empty()) {
            let table = face.table();
            let main = if face.gateway.is_ipv4() { 1 } else { 4 };
            let sources = face.sources.iter().map(|source| format!("from {source}"));
            for selector in sources.chain([format!("from all oif {}", face.name)]) {
                own.rules
                    .insert(format!("7610: {selector} lookup {table} suppress 0"));
                own.rules
                    .insert(format!("7620: {selector} lookup 254 suppress {main}"));
                own.rules.insert(format!("7630: {selector} lookup {table}"));
            }
            let dev = &face.name;
            let via = &face.gateway;
            own.routes
                .insert(format!("{table}: {} dev {dev}", face.prefix));
            own.routes
                .insert(format!("{table}: default via {via} dev {dev}"));
            if face.gateway.is_ipv6() {
                own.routes.insert(format!("{table}: fe80::/64 dev {dev}"));
            }
            for other in faces.iter().filter(|other| other.prefix != face.prefix) {
                own.routes
                    .insert(format!("{table}: {} via {via} dev {dev}", other.prefix));
            }
        }
        own
    }

    /// Reads what is there.
    #[must_use]
    pub fn read(site: &Site, family: Family) -> Self {
        let rules = json(site, family, &["rule", "show"]);
        let routes = json(site, family, &["route", "show", "table", "all"]);
        Self {
            rules: rules
                .iter()
                .filter(|rule| is_own_rule(rule))
                .map(rule_text)
                .collect(),
            routes: routes
                .iter()
                .filter(|route| is_own_route(route))
                .map(route_text)
                .collect(),
        }
    }

    /// Whether nothing of ours is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.routes.is_empty()
    }

    /// What is missing and what is too much, each a line.
    #[must_use]
    pub fn differences(&self, expected: &Self) -> String {
        let mut text = String::new();
        let pairs = [
            (&self.rules, &expected.rules),
            (&self.routes, &expected.routes),
        ];
        for (seen, wanted) in pairs {
            for line in wanted.difference(seen) {
                text.push_str(&format!("missing:  {line}\n"));
            }
            for line in seen.difference(wanted) {
                text.push_str(&format!("too much: {line}\n"));
            }
        }
        text
    }
}

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules
            .iter()
            .chain(&self.routes)
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Every rule and route that is not ours, without lifetimes and counters.
#[must_use]
pub fn foreign(site: &Site) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for family in Family::BOTH {
        for rule in json(site, family, &["rule", "show"]) {
            if !is_own_rule(&rule) {
                all.insert(format!("{family} rule {rule}"));
            }
        }
        for mut route in json(site, family, &["route", "show", "table", "all"]) {
            if !is_own_route(&route) {
                for volatile in ["expires", "used", "cache", "metrics"] {
                    route.as_object_mut().unwrap().remove(volatile);
                }
                all.insert(format!("{family} route {route}"));
            }
        }
    }
    all
}

/// Runs `ip` on a machine of the bench; it must succeed.
pub fn ip(site: &Site, words: &str) {
    let mut command = Command::new("ip");
    command.args(words.split_whitespace());
    let output = site.run(move || command.output()).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words}: {error}");
}

/// The route that the kernel takes, as `ip route get` says it.
#[must_use]
pub fn route_get(site: &Site, to: &str, selectors: &str) -> String {
    let mut command = Command::new("ip");
    command
        .args(["route", "get", to])
        .args(selectors.split_whitespace());
    let output = site.run(move || command.output()).unwrap();
    let text = if output.status.success() {
        output.stdout
    } else {
        output.stderr
    };
    String::from_utf8_lossy(&text)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn json(site: &Site, family: Family, words: &[&str]) -> Vec<Value> {
    let mut command = Command::new("ip");
    let version = match family {
        Family::Ipv4 => "-4",
        Family::Ipv6 => "-6",
    };
    command.args(["-json", "-N", version]).args(words);
    let output = site.run(move || command.output()).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words:?}: {error}");
    if output.stdout.trim_ascii().is_empty() {
        return Vec::new();
    }
    serde_json::from_slice(&output.stdout).unwrap()
}

fn is_own_rule(rule: &Value) -> bool {
    let priority = rule["priority"].as_u64().unwrap_or(0);
    word(rule, "protocol") == PROTOCOL && (7600..7700).contains(&priority)
}

fn is_own_route(route: &Value) -> bool {
    let table = word(route, "table").parse::<u64>().unwrap_or(254);
    word(route, "protocol") == PROTOCOL && (TABLES..TABLES + 100_000).contains(&table)
}

fn rule_text(rule: &Value) -> String {
    let mut text = format!("{}: from {}", rule["priority"], word(rule, "src"));
    if let Some(length) = rule["srclen"].as_u64() {
        text.push_str(&format!("/{length}"));
    }
    for (key, name) in [
        ("dst", "to"),
        ("iif", "iif"),
        ("oif", "oif"),
        ("fwmark", "fwmark"),
    ] {
        if !rule[key].is_null() {
            text.push_str(&format!(" {name} {}", word(rule, key)));
        }
    }
    text.push_str(&format!(" lookup {}", word(rule, "table")));
    if !rule["suppress_prefixlen"].is_null() {
        text.push_str(&format!(" suppress {}", rule["suppress_prefixlen"]));
    }
    text
}

fn route_text(route: &Value) -> String {
    let mut text = format!("{}: {}", word(route, "table"), word(route, "dst"));
    if !route["gateway"].is_null() {
        text.push_str(&format!(" via {}", word(route, "gateway")));
    }
    text.push_str(&format!(" dev {}", word(route, "dev")));
    for flag in route["flags"].as_array().into_iter().flatten() {
        if flag == "onlink" {
            text.push_str(" onlink");
        }
    }
    if let Some(mtu) = route["metrics"][0]["mtu"].as_u64() {
        text.push_str(&format!(" mtu {mtu}"));
    }
    text
}

fn word(object: &Value, key: &str) -> String {
    match &object[key] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
