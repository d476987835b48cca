//! A host on which everything comes and goes, by a seed: foreign rules, routes, links and
//! addresses, objects of ours, real cards.
//!
//! What must be there afterwards is known at any moment, since only whole steps are taken:
//! a card that is up has its addresses and its default routes, one that is down has not,
//! and each foreign object is there or not.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use leaseroute_core::Family;
use leaseroute_lab::fabric::{Card, GATEWAY6};
use leaseroute_lab::site::Site;

use crate::host::Host;
use crate::kernel::{Face, Own, foreign};
use crate::machine::{Machine, bound_event};

/// Numbers that look random and follow from a seed (xorshift64, Marsaglia 2003).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero, and small seeds begin alike.
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.below(1);
        }
        random
    }

    /// A number from 0 to below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let number = usize::try_from(self.below(from.len() as u64)).unwrap();
        from[number].clone()
    }
}

/// A foreign rule or route that is there or not.
#[derive(Clone, Debug)]
struct Foreign {
    family: Family,
    /// What follows `ip rule add` or `ip rule del`, or `ip route …`.
    object: &'static str,
    words: String,
    /// What [`foreign`] says of it.
    seen: BTreeSet<String>,
    present: bool,
}

/// What comes and goes, and what of it is there now.
#[derive(Debug)]
pub struct Churn {
    random: Random,
    foreign: Vec<Foreign>,
    /// The numbers of the cards that are down.
    down: BTreeSet<usize>,
    /// Foreign links by number, of those that are there.
    links: BTreeSet<u64>,
}

impl Churn {
    /// Nothing foreign is there and every card is up. Each foreign object is tried once.
    #[must_use]
    pub fn new(host: &Host, seed: u64) -> Self {
        let table = 76000 + host.card(1).link.get();
        let mut all = Vec::new();
        for number in 0..6 {
            let family = if number % 2 == 0 {
                Family::Ipv4
            } else {
                Family::Ipv6
            };
            let (wide, narrow) = match family {
                Family::Ipv4 => (format!("10.9{number}.0.0/16"), format!("198.51.10{number}")),
                Family::Ipv6 => (format!("fd00:9{number}::/32"), format!("fd00:10{number}:")),
            };
            let one = match family {
                Family::Ipv4 => format!("{narrow}.0/24"),
                Family::Ipv6 => format!("{narrow}:/64"),
            };
            // Rules of others, some with one or two of our three marks.
            all.extend(
                [
                    format!("priority 50{number} from {wide} lookup 900"),
                    format!("priority 761{number} from {wide} lookup {table} protocol static"),
                    format!("priority 700{number} from {wide} lookup {table} protocol 76"),
                ]
                .map(|words| (family, "rule", words)),
            );
            // Routes likewise. They need no device, so that no card takes them along.
            all.extend(
                [
                    format!("unreachable {one} metric 7"),
                    format!("blackhole {one} table 900 proto 76"),
                    format!("unreachable {one} table {table} proto static"),
                ]
                .map(|words| (family, "route", words)),
            );
        }
        let mut churn = Self {
            random: Random::new(seed),
            foreign: Vec::new(),
            down: BTreeSet::new(),
            links: BTreeSet::new(),
        };
        let site = host.fabric.host();
        let before = foreign(site);
        for (family, object, words) in all {
            batch(site, family, &[format!("{object} add {words}")], true);
            let seen: BTreeSet<String> = foreign(site).difference(&before).cloned().collect();
            assert!(!seen.is_empty(), "nothing to be seen of {object} {words}");
            batch(site, family, &[format!("{object} del {words}")], true);
            churn.foreign.push(Foreign {
                family,
                object,
                words,
                seen,
                present: false,
            });
        }
        assert_eq!(foreign(site), before);
        churn
    }

    /// The numbers by which the churn goes on, for what else a test does at random.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The uplinks as they must be now.
    #[must_use]
    pub fn faces(&self, host: &Host, family: Family) -> Vec<Face> {
        let cards = host.fabric.cards();
        cards
            .filter(|card| !self.down.contains(&card.number))
            .map(|card| Face::of(card, family))
            .collect()
    }

    /// What of the foreign objects is not as the churn left it.
    #[must_use]
    pub fn touched(&self, host: &Host) -> Vec<String> {
        let now = foreign(host.fabric.host());
        let mut wrong = Vec::new();
        for one in &self.foreign {
            for text in &one.seen {
                if now.contains(text) != one.present {
                    let what = if one.present { "gone" } else { "come back" };
                    wrong.push(format!("{what}: {text}"));
                }
            }
        }
        wrong
    }

    /// Does one thing, and says which.
    pub fn step(&mut self, machine: &Machine) -> String {
        match self.random.below(10) {
            0..=2 => self.toggle_foreign(machine),
            3..=5 => self.take_ours(machine),
            6 => self.toggle_link(machine),
            7 => self.burst(machine),
            8 => self.toggle_card(machine),
            _ => self.renew(machine),
        }
    }

    /// Brings all cards up and takes everything foreign away.
    pub fn end(&mut self, machine: &Machine) {
        let site = machine.fabric.host();
        for number in std::mem::take(&mut self.down) {
            set_up(machine, &machine.card(number));
        }
        for one in self.foreign.iter_mut().filter(|one| one.present) {
            let line = format!("{} del {}", one.object, one.words);
            batch(site, one.family, &[line], true);
            one.present = false;
        }
        for number in std::mem::take(&mut self.links) {
            batch(site, Family::Ipv4, &[format!("link del fo{number}")], true);
        }
    }

    fn toggle_foreign(&mut self, machine: &Machine) -> String {
        let mut said = String::from("foreign:");
        for _ in 0..=self.random.below(5) {
            let number = self.random.below(self.foreign.len() as u64);
            let one = &mut self.foreign[usize::try_from(number).unwrap()];
            let verb = if one.present { "del" } else { "add" };
            one.present = !one.present;
            let line = format!("{} {verb} {}", one.object, one.words);
            said += &format!(" {line};");
            batch(machine.fabric.host(), one.family, &[line], true);
        }
        said
    }

    /// Removes objects of ours: some, all rules, or a card's table.
    fn take_ours(&mut self, machine: &Machine) -> String {
        let family = self.random.pick(&Family::BOTH);
        let faces = self.faces(machine, family);
        let own = Own::expected(&faces);
        let lines: Vec<String> = match self.random.below(4) {
            0 => own.rules.iter().map(|rule| rule_removal(rule)).collect(),
            1 => {
                let table = 76000 + self.random.pick(&faces).index;
                vec![format!("route flush table {table} proto 76")]
            }
            _ => {
                let rules = own.rules.iter().map(|rule| rule_removal(rule));
                let routes = own.routes.iter().map(|route| route_removal(route));
                let all: Vec<String> = rules.chain(routes).collect();
                (0..=self.random.below(8))
                    .map(|_| self.random.pick(&all))
                    .collect()
            }
        };
        // What is not there, since it has not been put back yet, cannot be removed.
        batch(machine.fabric.host(), family, &lines, false);
        format!("ours, {family}: {}", lines.join("; "))
    }

    /// A container's link with its addresses comes or goes.
    fn toggle_link(&mut self, machine: &Machine) -> String {
        let number = self.random.below(6);
        let site = machine.fabric.host();
        if self.links.remove(&number) {
            batch(site, Family::Ipv4, &[format!("link del fo{number}")], true);
            return format!("fo{number} goes");
        }
        self.links.insert(number);
        let lines = [
            format!("link add fo{number} type veth peer name pe{number}"),
            format!("addr add 172.2{number}.0.1/16 dev fo{number}"),
            format!("link set fo{number} up"),
            format!("link set pe{number} up"),
        ];
        batch(site, Family::Ipv4, &lines, true);
        let line = format!("addr add fd00:2{number}::1/64 dev fo{number} nodad");
        batch(site, Family::Ipv6, &[line], true);
        format!("fo{number} comes")
    }

    /// A routing daemon fills a table and empties it again.
    fn burst(&mut self, machine: &Machine) -> String {
        let table = self.random.pick(&["254", "901"]);
        let count = 50 + self.random.below(200);
        let routes = |verb: &str| -> Vec<String> {
            (0..count)
                .map(|n| format!("route {verb} blackhole 100.64.{n}.0/24 table {table}"))
                .collect()
        };
        let site = machine.fabric.host();
        batch(site, Family::Ipv4, &routes("add"), true);
        batch(site, Family::Ipv4, &routes("del"), true);
        format!("{count} routes in table {table}")
    }

    /// A card goes down or comes up, with its leases; two stay up at least.
    fn toggle_card(&mut self, machine: &Machine) -> String {
        let cards: Vec<Card> = machine.fabric.cards().cloned().collect();
        let card = self.random.pick(&cards);
        if self.down.remove(&card.number) {
            set_up(machine, &card);
            return format!("{} up", card.name);
        }
        if cards.len() - self.down.len() <= 2 {
            return "nothing".to_owned();
        }
        self.down.insert(card.number);
        let line = format!("link set {} down", card.name);
        batch(machine.fabric.host(), Family::Ipv4, &[line], true);
        format!("{} down", card.name)
    }

    /// The hook of a card's lease runs, beside whatever else does.
    fn renew(&mut self, machine: &Machine) -> String {
        let family = self.random.pick(&Family::BOTH);
        let cards: Vec<Card> = machine.fabric.cards().cloned().collect();
        let card = self.random.pick(&cards);
        if self.down.contains(&card.number) {
            return "nothing".to_owned();
        }
        let output = machine.output(machine.event(&bound_event(&card, family)));
        assert!(
            output.status.success(),
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        format!("hook of {}, {family}", card.name)
    }
}

/// Sets a card up and gives it back what its clients had given it.
pub fn set_up(machine: &Host, card: &Card) {
    let site = machine.fabric.host();
    site.net(|net| net.set_up(card.link, true)).unwrap();
    site.await_running(card.link).unwrap();
    let Card { name, number, .. } = card;
    let prefix = Face::of(card, Family::Ipv6).prefix;
    let lines = [
        format!(
            "route replace default via {} dev {name} metric {}",
            card.gateway4(),
            100 + number
        ),
        format!(
            "addr replace {}/128 dev {name} nodad valid_lft 3600 preferred_lft 3600",
            card.ipv6
        ),
        format!("route replace {prefix} dev {name} metric 256 proto kernel expires 3600"),
        format!(
            "route replace default via {GATEWAY6} dev {name} metric {} proto ra expires 1800",
            1024 + number
        ),
    ];
    batch(site, Family::Ipv4, &lines[..1], true);
    batch(site, Family::Ipv6, &lines[1..], true);
}

/// Runs `ip -batch` with these lines on a machine of the bench. Unless `all` must succeed
/// it goes on after one that fails, and nobody minds.
pub fn batch(site: &Site, family: Family, lines: &[String], all: bool) {
    let mut command = Command::new("ip");
    command
        .arg(match family {
            Family::Ipv4 => "-4",
            Family::Ipv6 => "-6",
        })
        .args(if all { &[][..] } else { &["-force"][..] })
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let text = lines.join("\n") + "\n";
    let mut child = site.spawn(command).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // What it says is little, unless it fails, and then it ends at once.
    let written = stdin.write_all(text.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !all || (output.status.success() && written.is_ok()),
        "ip -batch: {error}\n{}",
        text.lines().take(20).collect::<Vec<_>>().join("\n")
    );
}

/// The line of `ip -batch` that removes a rule of ours, from its text in [`Own`].
#[must_use]
pub fn rule_removal(rule: &str) -> String {
    let words = rule
        .replace(": ", " ")
        .replace(" suppress ", " suppress_prefixlength ");
    format!("rule del priority {words} protocol 76")
}

/// The line of `ip -batch` that removes a route of ours, from its text in [`Own`].
#[must_use]
pub fn route_removal(route: &str) -> String {
    let (table, words) = route.split_once(": ").unwrap();
    format!("route del {words} table {table} proto 76")
}
