//! What happens, in order, and what must come of it.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipnetwork::IpNetwork;
use leaseroute_core::{Family, ProtocolId, TableId};
use leaseroute_kernel::topology::Counted;
use leaseroute_kernel::{Kernel as _, KernelError, Netlink, ReplyPath};

use crate::demo::DemoError;
use crate::demo::lease::{Happening, Variables, event};
use crate::demo::suite::{Run, Suite};
use crate::demo::teller::{Teller, milliseconds};
use crate::fabric::{CLIENT4, CLIENT6, Card, Fabric, Ipv6Style};
use crate::probe::{Matrix, Server};

/// How long a connection may take before it counts as failed. Right ones take a few
/// milliseconds.
const DEADLINE: Duration = Duration::from_secs(1);
/// How long the kernel must have announced nothing before that counts as silence.
const SILENCE: Duration = Duration::from_millis(200);
/// How long the kernel may take to bring a link into service.
const PATIENCE: Duration = Duration::from_secs(5);
/// The suite's tag on everything it makes.
const TAG: ProtocolId = ProtocolId::observed(76);
/// What a hook exits with when all is well.
const DONE: Option<i32> = Some(0);

const PICTURE: &str = r"
                   client  203.0.113.10, 2001:db8:ffff::10
                      |
                    router
                   /      \
  neighbour0 -- fabric 0   fabric 1 -- neighbour1
                   |          |
                 eth0        eth1
                    \        /
                     \_host_/

  eth0  10.0.0.10/24 behind 10.0.0.1    2001:db8::10 behind fe80::1
  eth1  10.0.1.10/24 behind 10.0.1.1    2001:db8:0:1::10 behind fe80::1

A fabric takes from a card only packets with that card's own source address, and
drops the rest, as clouds and careful routers do. Neighbours are .50 and ::50 in
the subnet of their number.";

/// The host and all that is around it.
pub(super) struct Story<'a, W> {
    fabric: &'a Fabric,
    suite: &'a dyn Suite,
    teller: &'a mut Teller<W>,
    /// The cards: the first has the default route, the second is what it is all about.
    first: &'a Card,
    second: &'a Card,
    /// Seconds since 1970 when the story began.
    now: u64,
}

/// Everything that routes packets on the host.
#[derive(PartialEq, Eq)]
struct Census {
    rules: Vec<Counted>,
    routes: Vec<Counted>,
}

impl<'a, W: Write> Story<'a, W> {
    /// A story about a fabric with two cards in two subnets, not configured yet.
    pub(super) fn new(
        fabric: &'a Fabric,
        suite: &'a dyn Suite,
        teller: &'a mut Teller<W>,
    ) -> Result<Self, DemoError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            fabric,
            suite,
            teller,
            first: fabric.card(0)?,
            second: fabric.card(1)?,
            now: now.unwrap_or_default().as_secs(),
        })
    }

    /// Tells it all, up to the first thing that does not come out as told.
    pub(super) fn tell(&mut self) -> Result<(), DemoError> {
        self.teller.chapter("A host with two network cards")?;
        self.teller.say(PICTURE.trim_start_matches('\n'))?;
        let server = Server::everywhere(self.fabric.host()).map_err(|source| DemoError::Start {
            what: "the TCP server on the demonstration's host",
            source,
        })?;
        let before = self.census()?;
        self.first_card()?;
        self.second_card()?;
        self.fail()?;
        self.gain()?;
        self.succeed()?;
        self.renew()?;
        self.release(&before)?;
        drop(server);
        Ok(())
    }

    fn first_card(&mut self) -> Result<(), DemoError> {
        self.configure(self.first)?;
        self.teller.chapter("One card alone needs nothing")?;
        self.teller.say(
            "dhclient gives eth0 its addresses and default routes, and calls its hooks:\n\n",
        )?;
        let before = self.census()?;
        for family in Family::BOTH {
            self.hook(self.first, family, Happening::Bound)?;
        }
        if self.census()? != before {
            return Err(unexpected(
                "rules or routes were made for a single card".to_owned(),
            ));
        }
        self.teller.say("\n")?;
        Ok(self
            .teller
            .pass("the hook remembers the leases and leaves rules and routes alone")?)
    }

    fn second_card(&mut self) -> Result<(), DemoError> {
        self.configure(self.second)?;
        self.teller.chapter("A second card")?;
        self.teller.say(
            "eth1 gets its addresses and default routes, too; the hooks wait until later. Now\n\
             the best default route decides by which card a reply leaves, whichever was asked:\n\n",
        )?;
        for card in [self.first, self.second] {
            for family in Family::BOTH {
                self.show_reply_path(card, family)?;
            }
        }
        Ok(())
    }

    fn fail(&mut self) -> Result<(), DemoError> {
        self.teller.chapter("So the second card does not answer")?;
        let dropped = self.fabric.dropped(self.first.number)?;
        let matrix = Matrix::probe(self.fabric, &Family::BOTH, DEADLINE);
        let dropped = self.fabric.dropped(self.first.number)? - dropped;
        self.teller.say(
            "TCP connections to each address of the host, all at once, one second to succeed:\n\n",
        )?;
        self.teller.table(&matrix)?;
        for cell in &matrix.cells {
            let right_way = cell.from == "client" && cell.card == self.first.number
                || cell.from == format!("neighbour{}", self.fabric.card(cell.card)?.subnet);
            if cell.outcome.is_answered() != right_way {
                let (caller, card) = (
                    &cell.from,
                    self.fabric.card(cell.card)?.address(cell.family),
                );
                return Err(unexpected(format!(
                    "before the hooks have run, the connection from {caller} to {card} gave {}",
                    cell.outcome
                )));
            }
        }
        if dropped == 0 {
            return Err(unexpected("no wrong reply came to fabric 0".to_owned()));
        }
        self.teller.say("\n")?;
        self.teller.say(format!(
            "The requests for {} and {} came in by eth1. The host answered\n\
             by eth0, and fabric 0 dropped these {dropped} packets for their source address. A neighbour\n\
             reaches the card in its own subnet, and no other.",
            self.second.ipv4, self.second.ipv6
        ))?;
        Ok(())
    }

    fn gain(&mut self) -> Result<(), DemoError> {
        self.teller
            .chapter("dhclient calls its hook with the lease of eth1")?;
        self.teller
            .say("Everything that is needed is in the lease. This is what counts of it:\n\n")?;
        let leases = Family::BOTH.map(|f| (f, self.event(self.second, f, Happening::Bound)));
        for (_, lease) in &leases {
            self.show_lease(lease)?;
        }
        for (family, lease) in &leases {
            self.teller.say(format!(
                "\nThe plan for {family}, as ip(8) commands with their reasons:\n\n"
            ))?;
            self.show_plan(lease)?;
        }
        self.teller.say("\nThe hook does it:\n\n")?;
        for family in Family::BOTH {
            self.hook(self.second, family, Happening::Bound)?;
        }
        Ok(())
    }

    fn succeed(&mut self) -> Result<(), DemoError> {
        self.teller
            .chapter("Every card answers on the card it was asked on")?;
        let before = self.dropped()?;
        let matrix = Matrix::probe(self.fabric, &Family::BOTH, DEADLINE);
        self.teller.table(&matrix)?;
        if let Some(cell) = matrix.failures().next() {
            return Err(unexpected(format!(
                "after the hooks have run, the connection from {} to {} gave {}",
                cell.from,
                self.fabric.card(cell.card)?.address(cell.family),
                cell.outcome
            )));
        }
        let dropped = self.dropped()? - before;
        if dropped > 0 {
            return Err(unexpected(format!(
                "the fabrics dropped {dropped} more packets"
            )));
        }
        self.teller.say("\n")?;
        for family in Family::BOTH {
            self.show_reply_path(self.second, family)?;
            let path = self.reply_path(self.second, family)?;
            if path.and_then(|path| path.device) != Some(self.second.link) {
                return Err(unexpected(format!(
                    "{family} replies of eth1 do not leave by eth1"
                )));
            }
        }
        self.teller.say("\n")?;
        self.teller
            .pass("all connections work, and the fabrics have nothing to drop")?;
        Ok(())
    }

    fn renew(&mut self) -> Result<(), DemoError> {
        self.teller
            .chapter("A renewal that changes nothing changes nothing")?;
        let before = self.census()?;
        let mut monitor = self.fabric.host().monitor()?;
        for family in Family::BOTH {
            self.hook(self.second, family, Happening::Renewed)?;
        }
        let announced = monitor.announced(SILENCE);
        if let Some(first) = announced.first() {
            return Err(unexpected(format!(
                "the kernel announced {} changes of rules and routes at a renewal, the first: {first}",
                announced.len()
            )));
        }
        if self.census()? != before {
            return Err(unexpected("a renewal changed rules or routes".to_owned()));
        }
        self.teller.say("\n")?;
        self.teller.pass(format!(
            "the kernel announced no change (`ip monitor` would be silent); all {} rules and {} routes\n      of the host are what they were",
            before.rules.len(),
            before.routes.len()
        ))?;
        Ok(())
    }

    fn release(&mut self, before: &Census) -> Result<(), DemoError> {
        self.teller.chapter("A release leaves nothing behind")?;
        self.teller
            .say("dhclient takes the address away and calls the hook. The second card:\n\n")?;
        let tables = self.tables_of(self.second)?;
        self.give_back(self.second)?;
        let after = self.census()?;
        let is_stale = |object: &&&Counted| tables.contains(&(object.family, object.table));
        if let Some(object) = after.ours().iter().find(is_stale) {
            return Err(unexpected(format!(
                "this stayed after eth1's release: {}",
                object.text
            )));
        }
        self.teller.say("\nThe first card:\n\n")?;
        self.give_back(self.first)?;
        let after = self.census()?;
        if let Some(object) = after.ours().first() {
            return Err(unexpected(format!(
                "this stayed after the last release: {}",
                object.text
            )));
        }
        if after.rules != before.rules {
            return Err(unexpected("the rules are not those from before".to_owned()));
        }
        self.teller.say("\n")?;
        self.teller.pass(format!(
            "no rule and no route of ours (protocol {TAG}) is left in any table; the host's own {} rules\n      are those from before",
            after.rules.len()
        ))?;
        Ok(())
    }

    /// Configures a card as its DHCP client would, and waits until the kernel has added
    /// what it adds by itself: it does so a moment after a link comes up.
    fn configure(&self, card: &Card) -> Result<(), DemoError> {
        let mut monitor = self.fabric.host().monitor()?;
        self.fabric.configure_static(card.number, Ipv6Style::Dhcp)?;
        let (link, link_local) = (card.link, IpAddr::from(card.link_local()));
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            monitor.announced(SILENCE);
            let ask = || Netlink::open()?.addresses(Family::Ipv6);
            let found = self.on_host(ask)?;
            if found
                .iter()
                .any(|a| a.index == link && a.address.ip() == link_local)
            {
                return Ok(());
            }
        }
        Err(unexpected(format!(
            "{} gets no link-local address",
            card.name
        )))
    }

    /// Does what dhclient's script does at a release, and calls the hook.
    fn give_back(&mut self, card: &Card) -> Result<(), DemoError> {
        for family in Family::BOTH {
            let address = match family {
                Family::Ipv4 => IpNetwork::new(card.ipv4.into(), 24),
                Family::Ipv6 => IpNetwork::new(card.ipv6.into(), 128),
            };
            let address = address.unwrap_or_else(|_| card.address(family).into());
            self.fabric
                .host()
                .net(|net| net.delete_address(card.link, address))?;
            self.hook(card, family, Happening::Released)?;
        }
        Ok(())
    }

    fn event(&self, card: &Card, family: Family, happening: Happening) -> Variables {
        event(card.number, family, happening, self.now)
    }

    /// Runs the hook, and says how long it took and what it logged.
    fn hook(&mut self, card: &Card, family: Family, happening: Happening) -> Result<(), DemoError> {
        let event = self.event(card, family, happening);
        let run = self.suite.hook(self.fabric.host(), &event);
        let run = run.map_err(|source| DemoError::Start {
            what: "the hook",
            source,
        })?;
        let reason = event.get("reason").cloned().unwrap_or_default();
        self.expect_done(&run, &format!("the hook for {reason} of {}", card.name))?;
        let took = milliseconds(run.took);
        self.teller
            .pass(format!("{} {reason}: the hook took {took}", card.name))?;
        for line in run.logged.lines() {
            self.teller.quote(line)?;
        }
        Ok(())
    }

    fn show_plan(&mut self, event: &Variables) -> Result<(), DemoError> {
        let run = self.suite.plan(self.fabric.host(), event);
        let run = run.map_err(|source| DemoError::Start {
            what: "the plan",
            source,
        })?;
        self.expect_done(&run, "the plan")?;
        // The first card gets the same, which would be long to read twice.
        let (first, address) = (self.first.name.as_str(), self.first.ipv4.to_string());
        let address6 = self.first.ipv6.to_string();
        let of_first = |line: &&str| {
            let words: Vec<&str> = line
                .split("  # ")
                .next()
                .unwrap_or(line)
                .split(' ')
                .collect();
            let follows = |a: &str, b: &str| words.windows(2).any(|pair| pair == [a, b]);
            follows("dev", first)
                || follows("oif", first)
                || follows("from", &address)
                || follows("from", &address6)
        };
        let commands = run.printed.lines().filter(|line| line.starts_with("ip "));
        let (same, shown): (Vec<&str>, Vec<&str>) = commands.partition(of_first);
        if shown.is_empty() || same.is_empty() {
            return Err(unexpected(
                "the plan for a second card does not have both cards".to_owned(),
            ));
        }
        for line in shown {
            self.teller.quote(line)?;
        }
        let more = format!("# and {} more of the same kind for {first}", same.len());
        Ok(self.teller.quote(&more)?)
    }

    fn expect_done(&self, run: &Run, what: &str) -> Result<(), DemoError> {
        if run.code == DONE {
            return Ok(());
        }
        let how = match run.code {
            Some(code) => format!("ended with code {code}"),
            None => "was killed".to_owned(),
        };
        Err(unexpected(format!("{what} {how}: {}", run.logged.trim())))
    }

    fn show_lease(&mut self, lease: &Variables) -> Result<(), DemoError> {
        let telling = [
            "reason",
            "interface",
            "new_ip_address",
            "new_subnet_mask",
            "new_routers",
            "new_ip6_address",
            "new_ip6_prefixlen",
        ];
        for name in telling {
            if let Some(value) = lease.get(name) {
                self.teller.quote(&format!("{name}={value}"))?;
            }
        }
        Ok(())
    }

    /// Says by which card the kernel would send a reply to the client.
    fn show_reply_path(&mut self, card: &Card, family: Family) -> Result<(), DemoError> {
        let path = self.reply_path(card, family)?;
        let (source, client) = (card.address(family), client(family));
        let way = path.map_or_else(
            || "go nowhere".to_owned(),
            |path| {
                let device = self
                    .fabric
                    .cards()
                    .find(|card| Some(card.link) == path.device);
                let device = device.map_or("?", |card| card.name.as_str());
                let via = path
                    .gateway
                    .map(|gateway| format!(" via {gateway}"))
                    .unwrap_or_default();
                format!("leave by {device}{via}, table {}", path.table)
            },
        );
        self.teller
            .quote(&format!("replies from {source} to {client} {way}"))?;
        Ok(())
    }

    fn reply_path(&self, card: &Card, family: Family) -> Result<Option<ReplyPath>, DemoError> {
        let (source, client) = (card.address(family), client(family));
        let ask = move || Netlink::open()?.route_get(source, client, None);
        Ok(self.on_host(ask)?)
    }

    /// The tables that rules of ours lead to for a card's addresses.
    fn tables_of(&self, card: &Card) -> Result<BTreeSet<(Family, TableId)>, DemoError> {
        let sources = Family::BOTH.map(|family| IpNetwork::from(card.address(family)));
        let ask = move || {
            let mut tables = BTreeSet::new();
            for family in Family::BOTH {
                let rules = Netlink::open()?.rules(family)?;
                let ours = rules.iter().filter(|rule| {
                    rule.protocol == TAG
                        && rule.table != TableId::MAIN
                        && rule.from.is_some_and(|from| sources.contains(&from))
                });
                tables.extend(ours.map(|rule| (family, rule.table)));
            }
            Ok(tables)
        };
        let tables = self.on_host(ask)?;
        if tables.len() == Family::BOTH.len() {
            Ok(tables)
        } else {
            Err(unexpected(format!(
                "{} does not have one table for each family",
                card.name
            )))
        }
    }

    fn on_host<T: Send + 'static>(
        &self,
        ask: impl FnOnce() -> Result<T, KernelError> + Send + 'static,
    ) -> Result<T, KernelError> {
        self.fabric.host().run(ask)
    }

    /// How many packets with a wrong source the fabrics have dropped.
    fn dropped(&self) -> Result<u64, DemoError> {
        let (first, second) = (self.first.number, self.second.number);
        Ok(self.fabric.dropped(first)? + self.fabric.dropped(second)?)
    }

    fn census(&self) -> Result<Census, DemoError> {
        let host = self.fabric.host();
        Ok(Census {
            rules: host.net(|net| net.all_rules())?,
            routes: host.net(|net| net.all_routes())?,
        })
    }
}

impl Census {
    /// What carries the suite's tag.
    fn ours(&self) -> Vec<&Counted> {
        let all = self.rules.iter().chain(&self.routes);
        all.filter(|object| object.protocol == TAG).collect()
    }
}

fn client(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => CLIENT4.into(),
        Family::Ipv6 => CLIENT6.into(),
    }
}

fn unexpected(what: String) -> DemoError {
    DemoError::Unexpected(what)
}
