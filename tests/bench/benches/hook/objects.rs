//! The routes and rules that the hook made, as batch files for ip(8).
//!
//! They are read back with `ip -N -json`, so that whoever is measured beside the hook adds
//! exactly what the hook added.

use std::collections::BTreeSet;

use leaseroute_core::Family;
use leaseroute_lab::site::Site;
use serde::Deserialize;

use crate::error::BenchError;
use crate::race::Program;

/// The tag of all that is ours, the default of the configuration.
const PROTOCOL: &str = "76";

/// Objects of one family, each in the words of ip(8) behind `route add` or `rule add`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    routes: BTreeSet<String>,
    rules: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Route {
    dst: String,
    gateway: Option<String>,
    dev: String,
    table: String,
    metric: Option<u32>,
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct Rule {
    priority: u32,
    src: String,
    srclen: Option<u8>,
    oif: Option<String>,
    table: String,
    suppress_prefixlen: Option<u8>,
    protocol: Option<String>,
}

impl Route {
    fn words(&self) -> String {
        let mut words = self.dst.clone();
        if let Some(gateway) = &self.gateway {
            push(&mut words, format_args!("via {gateway}"));
        }
        let (device, table) = (&self.dev, &self.table);
        push(
            &mut words,
            format_args!("dev {device} table {table} proto {PROTOCOL}"),
        );
        if let Some(metric) = self.metric {
            push(&mut words, format_args!("metric {metric}"));
        }
        if self.flags.iter().any(|flag| flag == "onlink") {
            words.push_str(" onlink");
        }
        words
    }
}

impl Rule {
    fn words(&self) -> String {
        let mut words = format!("from {}", self.src);
        if let Some(length) = self.srclen {
            push(&mut words, format_args!("/{length}"));
        }
        if let Some(name) = &self.oif {
            push(&mut words, format_args!("oif {name}"));
        }
        let (table, priority) = (&self.table, self.priority);
        push(
            &mut words,
            format_args!("lookup {table} priority {priority} proto {PROTOCOL}"),
        );
        if let Some(length) = self.suppress_prefixlen {
            push(&mut words, format_args!("suppress_prefixlength {length}"));
        }
        words.replace("from all ", "").replace(" /", "/")
    }
}

impl Objects {
    /// What is in the kernel of a machine now.
    pub(crate) fn read(site: &Site, family: Family) -> Result<Self, BenchError> {
        let show = |words: &[&str]| {
            let mut program = ip(family).argument("-N").argument("-json");
            for word in words {
                program = program.argument(*word);
            }
            program.output(site)
        };
        let routes = show(&["route", "show", "table", "all", "proto", PROTOCOL])?;
        let rules = show(&["rule", "show"])?;
        let routes: Vec<Route> = parsed("the routes", &routes)?;
        let rules: Vec<Rule> = parsed("the rules", &rules)?;
        let is_ours = |rule: &&Rule| rule.protocol.as_deref() == Some(PROTOCOL);
        Ok(Self {
            routes: routes.iter().map(Route::words).collect(),
            rules: rules.iter().filter(is_ours).map(Rule::words).collect(),
        })
    }

    /// Those of one card: its table, and the rules for its address and its name.
    pub(crate) fn of_card(&self, name: &str, address: &str) -> Self {
        let has = |words: &&String, pair: &str| format!(" {words} ").contains(pair);
        let by_card = |words: &&String| has(words, &format!(" dev {name} "));
        let for_card = |words: &&String| {
            has(words, &format!(" oif {name} ")) || has(words, &format!(" from {address} "))
        };
        Self {
            routes: self.routes.iter().filter(by_card).cloned().collect(),
            rules: self.rules.iter().filter(for_card).cloned().collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.routes.len() + self.rules.len()
    }

    /// A batch that adds them: on-link routes, gateway routes, rules.
    pub(crate) fn additions(&self) -> String {
        let (far, near): (Vec<_>, Vec<_>) = self
            .routes
            .iter()
            .partition(|words| words.contains(" via "));
        let routes = near.into_iter().chain(far);
        lines("route add", routes) + &lines("rule add", self.rules.iter())
    }

    /// A batch that takes them away.
    pub(crate) fn removals(&self) -> String {
        lines("rule del", self.rules.iter()) + &lines("route del", self.routes.iter())
    }

    /// What one has and the other has not.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let routes = self.routes.symmetric_difference(&other.routes);
        let rules = self.rules.symmetric_difference(&other.rules);
        routes.chain(rules).cloned().collect::<Vec<_>>().join("; ")
    }
}

/// `ip -4` or `ip -6`.
pub(crate) fn ip(family: Family) -> Program {
    let path = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists());
    Program::new(path.unwrap_or("ip")).argument(match family {
        Family::Ipv4 => "-4",
        Family::Ipv6 => "-6",
    })
}

fn lines<'a>(verb: &str, objects: impl Iterator<Item = &'a String>) -> String {
    objects.map(|words| format!("{verb} {words}\n")).collect()
}

fn parsed<'a, T: Deserialize<'a>>(what: &'static str, text: &'a str) -> Result<T, BenchError> {
    // ip(8) prints nothing at all for an empty list.
    let text = if text.trim().is_empty() { "[]" } else { text };
    serde_json::from_str(text).map_err(|source| BenchError::Text { what, source })
}

/// Appends words to others.
fn push(words: &mut String, more: std::fmt::Arguments<'_>) {
    words.push(' ');
    words.push_str(&more.to_string());
}
