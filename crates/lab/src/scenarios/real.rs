//! The running kernel in a network namespace, set up by others' hands.
//!
//! Links and addresses come from the kernel crate's topology module; routes and rules of
//! others, and the cross-check, from ip(8), which shares no code with what is tested.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;

use ipnetwork::IpNetwork;
use leaseroute_core::{
    Device, Family, IfIndex, InterfaceName, ObservedRoute, ObservedRule, RouteKind, RuleAction,
    TableId,
};
use leaseroute_kernel::Netlink;
use leaseroute_kernel::topology::{NewAddress, Topology, VethEnd};
use serde_json::Value;

use super::bench::{Bench, name};

/// The network namespace of the thread that made it.
pub struct RealBench {
    kernel: Netlink,
    topology: Topology,
    cards: [Device; 2],
}

#[expect(
    clippy::expect_used,
    reason = "a bench may stop when it cannot be set up"
)]
impl RealBench {
    /// Sets up a host in the calling thread's network namespace, which should be new.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    #[must_use]
    pub fn new() -> Self {
        let topology = Topology::open().expect("a netlink socket");
        let loopback = topology.index_of(&name("lo")).expect("lo");
        topology.set_up(loopback, true).expect("lo goes up");
        let cards = ["card0", "card1"].map(|card| plug_in(&topology, name(card)));
        Self {
            kernel: Netlink::open().expect("a netlink socket"),
            topology,
            cards,
        }
    }

    /// How many rules of a family ip(8) sees that are not the kernel's own.
    #[must_use]
    pub fn rules_seen_by_ip(&self, family: Family) -> usize {
        let rules = ip_json(&[family.ip_option(), "-details", "rule", "show"]);
        let others = |rule: &&Value| rule.get("protocol").and_then(Value::as_str) != Some("kernel");
        rules.iter().filter(others).count()
    }

    /// How many routes of a table ip(8) sees, each next hop counted.
    #[must_use]
    pub fn routes_seen_by_ip(&self, family: Family, table: TableId) -> usize {
        let table = table.get().to_string();
        let routes = ip_json(&[family.ip_option(), "route", "show", "table", &table]);
        let hops = |route: &Value| {
            let hops = route.get("nexthops").and_then(Value::as_array);
            hops.map_or(1, Vec::len)
        };
        routes.iter().map(hops).sum()
    }
}

impl Default for RealBench {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(
    clippy::expect_used,
    reason = "a bench may stop when it cannot be set up"
)]
impl Bench for RealBench {
    type Kernel = Netlink;

    fn kernel(&self) -> &Netlink {
        &self.kernel
    }

    fn cards(&self) -> [Device; 2] {
        self.cards.clone()
    }

    fn add_link(&self, name: InterfaceName) -> Device {
        plug_in(&self.topology, name)
    }

    fn delete_link(&self, link: &Device) {
        self.topology
            .delete_link(link.index)
            .expect("the link goes");
    }

    fn set_up(&self, link: &Device, up: bool) {
        self.topology
            .set_up(link.index, up)
            .expect("the link changes");
    }

    fn add_address(&self, link: &Device, address: IpNetwork) {
        let new = NewAddress {
            nodad: true,
            ..NewAddress::permanent(address)
        };
        self.topology
            .add_address(link.index, &new)
            .expect("an address");
    }

    fn delete_address(&self, link: IfIndex, address: IpNetwork) {
        self.topology
            .delete_address(link, address)
            .expect("the address goes");
    }

    fn add_route(&self, route: &ObservedRoute) {
        let mut words = vec![route.family().ip_option().to_owned()];
        words.extend(["route", "append"].map(str::to_owned));
        match route.kind {
            RouteKind::Unicast => {}
            RouteKind::Other(kind) => words.push(kind_word(kind).to_owned()),
        }
        words.push(route.destination.to_string());
        words.extend(option("via", route.gateway));
        let device = route
            .oif
            .and_then(|oif| self.cards.iter().find(|card| card.index == oif));
        words.extend(option("dev", device));
        words.extend(option(
            "metric",
            Some(route.metric).filter(|metric| *metric > 0),
        ));
        words.extend(option("table", Some(route.table.get())));
        words.extend(option("proto", Some(route.protocol)));
        ip(&words);
    }

    fn add_rule(&self, rule: &ObservedRule) {
        assert_eq!(rule.action, RuleAction::Lookup, "only lookups are needed");
        let mut words = vec![rule.family.ip_option().to_owned()];
        words.extend(["rule", "add"].map(str::to_owned));
        words.extend(option("priority", Some(rule.priority)));
        words.extend(option("from", rule.from));
        words.extend(option("to", rule.to));
        words.extend(option("iif", rule.iif.as_deref()));
        words.extend(option("oif", rule.oif.as_deref()));
        words.extend(option(
            "fwmark",
            rule.mark.map(|(mark, mask)| format!("{mark:#x}/{mask:#x}")),
        ));
        words.extend(option("protocol", Some(rule.protocol)));
        words.extend(option("lookup", Some(rule.table.get())));
        words.extend(option("suppress_prefixlength", rule.suppress_prefix_length));
        ip(&words);
    }
}

/// Makes a veth pair in this namespace, the far end first up so that there is carrier.
#[expect(
    clippy::expect_used,
    reason = "a bench may stop when it cannot be set up"
)]
fn plug_in(topology: &Topology, card: InterfaceName) -> Device {
    let here = File::open("/proc/thread-self/ns/net").expect("this namespace");
    let end = |name: InterfaceName| VethEnd {
        name,
        mac: None,
        namespace: here.as_fd(),
    };
    let far = name(&format!("{card}-far"));
    topology
        .add_veth(&end(card.clone()), &end(far.clone()))
        .expect("a veth pair");
    let far = topology.index_of(&far).expect("the far end");
    let index = topology.index_of(&card).expect("the near end");
    topology.set_up(far, true).expect("the far end goes up");
    topology.set_up(index, true).expect("the near end goes up");
    Device { index, name: card }
}

/// What ip(8) calls a kind of route (`RTN_*` in linux/rtnetlink.h).
#[expect(clippy::panic, reason = "a bench may stop when it cannot be set up")]
fn kind_word(kind: u8) -> &'static str {
    match kind {
        6 => "blackhole",
        7 => "unreachable",
        8 => "prohibit",
        9 => "throw",
        other => panic!("no scenario needs routes of kind {other}"),
    }
}

fn option(key: &str, value: Option<impl ToString>) -> Vec<String> {
    value.map_or_else(Vec::new, |value| vec![key.to_owned(), value.to_string()])
}

#[expect(
    clippy::expect_used,
    reason = "a bench may stop when it cannot be set up"
)]
fn ip(words: &[String]) {
    let output = Command::new("ip")
        .args(words)
        .output()
        .expect("ip(8) is needed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", words.join(" "));
}

#[expect(
    clippy::expect_used,
    reason = "a bench may stop when it cannot be set up"
)]
fn ip_json(words: &[&str]) -> Vec<Value> {
    let output = Command::new("ip")
        .arg("-json")
        .args(words)
        .output()
        .expect("ip(8) is needed");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("FIB table does not exist") {
        return Vec::new();
    }
    assert!(output.status.success(), "ip {}: {said}", words.join(" "));
    serde_json::from_slice(&output.stdout).expect("JSON from ip(8)")
}
