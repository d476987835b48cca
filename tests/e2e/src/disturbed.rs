//! What is done to a host by an administrator, its network and the program that configures
//! it, while everybody goes on asking it; the same for each such program.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::DerefMut;
use std::time::{Duration, Instant};

use leaseroute_core::{Family, InterfaceName};
use leaseroute_lab::fabric::{Card, Layout, ipv4};

use crate::announced::{Announced, Place, Thing};
use crate::daemon::Daemon;
use crate::host::{Host, PROGRAMS};
use crate::kernel::{Face, Own, foreign, ip};
use crate::networkd::Networkd;
use crate::networkmanager::{Connection, Network};
use crate::probes::{Probes, Report};
use crate::responder::{Responder, Terms};
use crate::servers::{Ipv6, Lan, Servers};
use crate::wait_for;

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;
/// The card that most is done to, and its subnet.
const CARD: usize = 1;
/// Another address of it.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 77);
/// No reply may stay wrong for so long. Far more than it should be: a loaded machine must not
/// fail a test. What it really takes, the [`Report`] tells.
const FAR_TOO_LONG: Duration = Duration::from_secs(2);

/// What an administrator has on the host besides, some of it with our numbers, nothing with
/// all of them.
const ADMINISTRATOR: &str = "
ip link add adm0 type bridge
ip addr add 172.17.0.1/16 dev adm0
ip -6 addr add fd00:17::1/64 dev adm0 nodad
ip link set adm0 up
ip route add 192.0.2.0/24 via 172.17.0.2 dev adm0
ip -6 route add 2001:db8:c000::/48 via fd00:17::2 dev adm0
ip route add 198.51.100.0/24 via 172.17.0.2 table 100
ip route add 198.51.100.0/24 via 172.17.0.2 table 76999 proto static
ip route add 198.51.101.0/24 via 172.17.0.2 table 100 proto 76
";
const RULES: &str = "
ip rule add priority 100 from 10.99.0.0/16 lookup 100
ip rule add priority 500 fwmark 0x5 lookup 100 protocol 76
ip rule add priority 7600 from 10.98.0.0/16 lookup 100 protocol static
ip rule add priority 7610 from 10.97.0.0/16 lookup 76999 protocol static
ip rule add priority 30000 from 10.95.0.0/16 lookup 100
ip -6 rule add priority 7620 from fd00:99::/64 lookup 100
";
/// All rules but the first go; an administrator's script puts his own back, and the
/// kernel's, as the kernel's: systemd-networkd would take them for somebody's.
const FLUSH: &str = "
ip rule flush
ip -6 rule flush
ip rule add priority 32766 lookup main protocol kernel
ip rule add priority 32767 lookup default protocol kernel
ip -6 rule add priority 32766 lookup main protocol kernel
";

/// The program that configures the cards.
pub trait Manager: DerefMut<Target = Host> {
    /// What an administrator may have it do to interface eth1.
    const COMMANDS: &[&str];
    /// The last of them sets the card up anew and is told to hooks.
    fn new(layout: &Layout) -> Self;
    /// Starts it, with or without what runs our hook.
    fn begin(&mut self, hook: bool);
    /// Ends it and starts it again.
    fn restart(&mut self);
    /// Has it configure a card that will be plugged in.
    fn expect(&self, card: &Card);
}

impl Manager for Networkd {
    const COMMANDS: &[&str] = &["networkctl reload", "networkctl reconfigure eth1"];

    fn new(layout: &Layout) -> Self {
        Self::new(layout)
    }

    fn begin(&mut self, hook: bool) {
        self.start_networkd();
        if hook {
            self.start_dispatcher();
        }
    }

    fn restart(&mut self) {
        self.restart_networkd();
    }

    fn expect(&self, card: &Card) {
        self.expect(card);
    }
}

impl Manager for Network {
    const COMMANDS: &[&str] = &[
        "nmcli connection reload",
        "nmcli device reapply eth1",
        "nmcli connection up eth1",
    ];

    fn new(layout: &Layout) -> Self {
        Self::new(layout)
    }

    fn begin(&mut self, hook: bool) {
        if !hook {
            self.shell("rm -rf /etc/NetworkManager/dispatcher.d");
        }
        for number in 0..3 {
            self.describe(number, &Connection::automatic());
        }
        self.start_manager();
    }

    fn restart(&mut self) {
        self.stop_manager();
        self.start_manager();
    }

    fn expect(&self, card: &Card) {
        self.expect(card);
    }
}

/// Who keeps our rules and routes right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The hook alone.
    Hook,
    /// The watcher alone.
    Watcher,
    /// Both.
    Both,
}

/// What is expected of the program that configures the cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// It leaves the administrator's rules and routes alone.
    Kept,
    /// It may take them away; we may not.
    Taken,
}

/// A host with three cards behind strict fabrics, both families, asked all the time.
#[derive(Debug)]
pub struct Scene<M> {
    report: Report,
    probes: Probes,
    /// What is advertised behind [`CARD`].
    lan: Lan,
    /// What the DHCP server there says; it answers at any moment.
    terms: Terms,
    responder: Option<Responder>,
    servers: BTreeMap<u8, Servers>,
    /// Whether the IPv4 lease of [`CARD`] has run out.
    lease_is_lost: bool,
    foreign: Foreign,
    _watcher: Option<Daemon>,
    /// The host.
    pub machine: M,
}

impl<M: Manager> Scene<M> {
    /// Builds it. `prepare` does what must be done before the program is started.
    #[must_use]
    pub fn new(test: &str, keeper: Keeper, foreign: Foreign, prepare: impl FnOnce(&mut M)) -> Self {
        let mut machine = M::new(&Layout {
            // Both are tried.
            dad: keeper == Keeper::Both,
            ..Layout::separate(3)
        });
        prepare(&mut machine);
        machine.install_program("leaseroute");
        machine.shell(ADMINISTRATOR);
        machine.shell(RULES);
        for number in 0..3 {
            allow_advertised(&mut machine, number);
            impatient(&machine, number);
        }
        let other = Lan {
            t1: Some(2),
            v6: Ipv6::Both,
            ..Lan::default()
        };
        let servers = [0, 2].map(|subnet| (subnet, Servers::start(&machine, subnet, &other)));
        let terms = terms_of(&machine.card(CARD));
        let watcher = (keeper != Keeper::Hook).then(|| {
            let mut command = machine.command(&format!("{PROGRAMS}/leaseroute"));
            command.arg("watch");
            machine.start("watch", command)
        });
        machine.begin(keeper != Keeper::Watcher);
        let probes = Probes::start(&machine.fabric, &[]);
        let mut scene = Self {
            report: Report::on(test),
            probes,
            lan: Lan::default(),
            terms,
            responder: None,
            servers: servers.into(),
            lease_is_lost: false,
            foreign,
            _watcher: watcher,
            machine,
        };
        scene.start_servers();
        scene.wait_settled("at the start");
        scene
    }

    /// Every card in one family, as it should be now.
    fn faces(&self, family: Family) -> Vec<Face> {
        let cards = self.machine.fabric.cards();
        let lives = |card: &&Card| family == V6 || card.number != CARD || !self.lease_is_lost;
        let faces = cards.filter(lives).map(|card| {
            let mut face = Face::of(card, family);
            let is_it = card.number == CARD;
            if family == V4 {
                if is_it {
                    face.gateway = self.terms.routers[0].into();
                    face.sources = vec![self.terms.address.into()];
                }
                return face;
            }
            let first = advertised(card, 0);
            // A prefix that is withdrawn need not take its address along at once.
            if !is_it || !self.lan.renumbered || self.has(card, first) {
                face.sources.push(first);
            }
            if is_it {
                face.gateway = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, self.lan.router6).into();
                if self.lan.renumbered {
                    face.sources.push(advertised(card, 1));
                    face.prefix = format!("2001:db8:1:{}::/64", card.subnet);
                }
            }
            face
        });
        faces.collect()
    }

    /// Whether a card has an address now.
    fn has(&self, card: &Card, address: IpAddr) -> bool {
        let (name, link) = (card.name.to_string(), card.link.get());
        self.probes.announcements.has(&Place {
            name,
            link,
            address,
        })
    }

    fn all_faces(&self) -> Vec<Face> {
        Family::BOTH
            .into_iter()
            .flat_map(|f| self.faces(f))
            .collect()
    }

    /// Waits until everything is right and nothing happens any more.
    fn wait_settled(&self, what: &str) {
        let since = Instant::now();
        self.wait_right(what, since);
        for family in Family::BOTH {
            if family == V4 || self.lan.router6_lifetime > 0 {
                self.machine.wait_own(family, &self.faces(family));
            }
        }
        wait_for(&format!("nothing happens any more: {what}"), || {
            let before = Instant::now()
                .checked_sub(Duration::from_millis(500))
                .unwrap();
            let (theirs, ours) = self.probes.announcements.last_changes(before);
            if theirs.is_none() && ours.is_none() {
                Ok(())
            } else {
                Err(format!("{:#?}", self.probes.announcements.since(before)))
            }
        });
        self.wait_right(what, since);
    }

    fn wait_right(&self, what: &str, since: Instant) {
        wait_for(&format!("all replies are right: {what}"), || {
            self.probes.ask(&self.asked());
            let wrong = self.probes.wrong(since);
            if wrong.is_empty() {
                Ok(())
            } else {
                Err(format!("{}\n{}", wrong.join("\n"), self.state()))
            }
        });
    }

    fn state(&self) -> String {
        let mut text = self.machine.logs();
        for family in Family::BOTH {
            let own = Own::read(self.machine.fabric.host(), family);
            text += &own.differences(&Own::expected(&self.faces(family)));
        }
        text + &self.machine.shell("ip addr; ip route; ip -6 route")
    }

    /// Does something to the host, waits until all is right again, and checks that nothing
    /// is stale and that nothing of anybody else was touched.
    pub fn disturb(&mut self, what: &str, act: impl FnOnce(&mut Self)) {
        let longest = self.measure(what, act);
        assert!(
            longest < FAR_TOO_LONG,
            "{what}: replies stayed wrong for {longest:?}\n{}\n{}",
            self.report,
            self.machine.logs()
        );
    }

    /// The same, however long it takes; tells how long replies were wrong without need.
    fn measure(&mut self, what: &str, act: impl FnOnce(&mut Self)) -> Duration {
        let theirs = self.administrators();
        let since = Instant::now();
        act(self);
        self.wait_settled(what);
        let longest = self.report.add(what, since, &self.probes);
        let meddling = self.probes.announcements.meddling(since);
        assert!(meddling.is_empty(), "{what}: we did this: {meddling:#?}");
        if self.foreign == Foreign::Kept {
            let left = self.administrators();
            let lost: Vec<_> = theirs.difference(&left).collect();
            assert!(lost.is_empty(), "{what}: these are gone: {lost:#?}");
        }
        self.assert_consistent(what);
        longest
    }

    /// The addresses from which an answer is to be had.
    fn asked(&self) -> Vec<Face> {
        let has_router = |face: &Face| {
            face.gateway.is_ipv4() || self.lan.router6_lifetime > 0 || face.name != "eth1"
        };
        self.all_faces().into_iter().filter(has_router).collect()
    }

    /// The administrator's rules and routes that are there.
    fn administrators(&self) -> BTreeSet<String> {
        let marks = ["adm0", "\"10.9", "fd00:99", "0x5"];
        let mut all = foreign(self.machine.fabric.host());
        all.retain(|line| marks.iter().any(|mark| line.contains(mark)));
        all
    }

    /// Nothing is left to do, and all replies leave by the right card.
    fn assert_consistent(&self, what: &str) {
        let run = |words: &str| {
            self.machine
                .shell(&format!("{PROGRAMS}/leaseroute {words}"))
        };
        let (said, plan) = (run("status --verify"), run("plan --json"));
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        for family in plan["families"].as_array().unwrap() {
            let steps = family["steps"].as_array().unwrap();
            assert!(steps.is_empty(), "{what}: left to do: {steps:#?}\n{said}");
        }
    }

    /// Starts the servers behind the card, which say what they do at first.
    fn start_servers(&mut self) {
        let card = self.machine.card(CARD);
        self.lan = Lan {
            v6: Ipv6::Both,
            dhcp4: false,
            ..Lan::default()
        };
        self.terms = terms_of(&card);
        // Before another one can have the port.
        drop(self.responder.take());
        let addresses = [card.ipv4, SECOND];
        let responder = Responder::start(&self.machine, &card, self.terms.clone(), &addresses);
        self.responder = Some(responder);
        let servers = Servers::start(&self.machine, card.subnet, &self.lan);
        self.servers.insert(card.subnet, servers);
    }

    /// Changes what the DHCP server behind the card says.
    fn serve(&mut self, change: impl FnOnce(&mut Terms)) {
        change(&mut self.terms);
        let terms = self.terms.clone();
        let responder = self.responder.as_ref().unwrap();
        responder.change(|said| *said = terms);
        self.probes.ask(&self.asked());
    }

    /// Changes what the router behind the card advertises.
    fn advertise(&mut self, change: impl FnOnce(&mut Lan)) {
        change(&mut self.lan);
        let subnet = u8::try_from(CARD).unwrap();
        let servers = self.servers.get_mut(&subnet).unwrap();
        servers.advertise(&self.machine, &self.lan);
        self.probes.ask(&self.asked());
    }

    /// Waits until something was announced.
    fn wait_announced(&self, what: &str, since: Instant, is_it: impl Fn(&Announced) -> bool) {
        wait_for(what, || {
            let said = self.probes.announcements.since(since);
            if said.iter().any(&is_it) {
                Ok(())
            } else {
                Err(self.state())
            }
        });
    }

    /// Waits for a default route of table main by the card, or for its end.
    fn wait_router(&self, since: Instant, router: IpAddr, gone: bool) {
        let what = format!("router {router}, gone: {gone}");
        self.wait_announced(&what, since, |announced| {
            let by_it = matches!(announced.thing, Thing::Route { table: 254, to: None, via: Some(via), .. } if via == router);
            by_it && announced.gone == gone
        });
    }

    /// Everything, one after the other. What makes systemd-networkd take all our rules away is
    /// not done too often within ten seconds: that would be a fight.
    pub fn disturb_all(&mut self) {
        self.disturb("ip rule flush", flush_rules);
        self.disturb("ip route flush table", |scene| {
            let cards = scene.machine.fabric.cards();
            let mut script = String::new();
            for table in cards.map(|card| 76000 + card.link.get()) {
                script +=
                    &format!("ip route flush table {table}; ip -6 route flush table {table}\n");
            }
            scene.machine.shell(&script);
        });
        self.disturb("link down and up", |scene| {
            let since = Instant::now();
            scene
                .machine
                .shell("ip link set eth1 down; sleep 0.3; ip link set eth1 up");
            scene.wait_address(since, advertised(&scene.machine.card(CARD), 0));
        });
        for command in M::COMMANDS {
            self.disturb(command, |scene| {
                scene.machine.shell(command);
            });
        }
        self.disturb("restart", |scene| scene.machine.restart());
        self.change_routers();
        self.pull_and_plug("eth1");
        self.disturb("prefix renumbered", |scene| {
            let since = Instant::now();
            let address = advertised(&scene.machine.card(CARD), 1);
            scene.machine.fabric.allow(CARD, address.into()).unwrap();
            scene.advertise(|lan| lan.renumbered = true);
            scene.wait_address(since, address);
        });
        self.disturb("another address", |scene| {
            let since = Instant::now();
            let address = IpAddr::from(SECOND);
            scene.machine.fabric.allow(CARD, address.into()).unwrap();
            scene.serve(|terms| terms.address = SECOND);
            scene.wait_address(since, address);
        });
        self.pull_and_plug("ens9");
    }

    /// Many of these things, one while the other is being healed, in an order that is the same
    /// each time.
    pub fn storm(&mut self) {
        self.disturb("many things at once", Self::many_at_once);
    }

    fn many_at_once(&mut self) {
        let flush = FLUSH.trim().replace('\n', "; ") + ";" + &RULES.trim().replace('\n', "; ");
        let mut steps = vec![flush.clone(), flush];
        for number in 0..3 {
            let card = self.machine.card(number);
            let (name, table) = (&card.name, 76000 + card.link.get());
            steps.push(format!("ip route flush table {table}"));
            steps.push(format!("ip -6 route flush table {table}"));
            steps.push(format!("ip -6 route del default table {table} || :"));
            steps.push(format!("ip rule del priority 7630 from {} || :", card.ipv4));
            steps.push(format!("ip -6 rule del priority 7610 oif {name} || :"));
            if number > 0 {
                let bounce = format!("ip link set {name} down; sleep 0.05; ip link set {name} up");
                steps.push(bounce);
            }
        }
        let mut script = String::new();
        let mut random: u64 = 0x2545_f491_4f6c_dd1d;
        while !steps.is_empty() {
            // xorshift64, by G. Marsaglia.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let which = usize::try_from(random % 1_000_003).unwrap() % steps.len();
            let pause = random % 90;
            script += &format!("{}\nsleep 0.{pause:03}\n", steps.swap_remove(which));
        }
        let since = Instant::now();
        self.machine.shell(&script);
        for number in [1, 2] {
            self.wait_address(since, advertised(&self.machine.card(number), 0));
        }
    }

    /// The lease runs out without a word from anybody, and comes back so.
    pub fn lose_and_regain_the_lease(&mut self) {
        let address = self.terms.address;
        self.disturb("lease lost", |scene| {
            let since = Instant::now();
            scene.serve(|terms| terms.times[2] = 5);
            scene.wait_address(since, address.into());
            scene.lease_is_lost = true;
            scene.serve(|terms| terms.answers = false);
            scene.wait_announced("the address is gone", since, |announced| {
                announced.gone
                    && matches!(announced.thing, Thing::Address(_, seen, _) if seen == address)
            });
        });
        self.disturb("lease regained", |scene| {
            let since = Instant::now();
            scene.lease_is_lost = false;
            scene.serve(|terms| terms.answers = true);
            scene.wait_address(since, address.into());
        });
    }

    fn wait_address(&self, since: Instant, address: IpAddr) {
        self.wait_announced(&format!("{address} is usable"), since, |announced| {
            matches!(announced.thing, Thing::Address(_, seen, true) if seen == address)
                && !announced.gone
        });
    }

    /// Another router when the lease is renewed, while the first one is gone; none in an
    /// advertisement, then another.
    fn change_routers(&mut self) {
        let router = self.machine.fabric.router(1).unwrap();
        ip(router, "addr add fe80::2/64 dev port1 nodad");
        self.disturb("renewal with another router", |scene| {
            let since = Instant::now();
            let router = scene.machine.fabric.router(1).unwrap();
            // It has the first one's address elsewhere, too; and the routes of a link go with its
            // last address.
            let settings = ["arp_ignore", "promote_secondaries"]
                .map(|key| (format!("ipv4/conf/port1/{key}"), "1"));
            router.sysctl(settings).unwrap();
            ip(router, "addr add 10.0.1.2/24 dev port1 noprefixroute");
            ip(router, "addr del 10.0.1.1/24 dev port1");
            ip(scene.machine.fabric.host(), "neigh flush dev eth1");
            scene.serve(|terms| terms.routers = vec![ipv4(1, 2)]);
            scene.wait_router(since, "10.0.1.2".parse().unwrap(), false);
        });
        self.disturb("RA router withdrawn", |scene| {
            let since = Instant::now();
            scene.probes.ask(&scene.faces(V4));
            scene.advertise(|lan| lan.router6_lifetime = 0);
            scene.wait_router(since, "fe80::1".parse().unwrap(), true);
            wait_for("its own default route is gone", || {
                let own = Own::read(scene.machine.fabric.host(), V6);
                let left = own
                    .routes
                    .iter()
                    .find(|r| r.contains("via fe80::1 dev eth1"));
                left.map_or(Ok(()), |left| Err(format!("{left}\n{}", scene.state())))
            });
        });
        self.disturb("RA router replaced", |scene| {
            let since = Instant::now();
            scene.advertise(|lan| {
                lan.router6 = 2;
                lan.router6_lifetime = 1800;
            });
            scene.wait_router(since, "fe80::2".parse().unwrap(), false);
        });
    }

    /// The card is pulled out and plugged in again, under its own name or another one. What
    /// its servers say is as at the start then.
    fn pull_and_plug(&mut self, name: &str) {
        let card = self.machine.card(CARD);
        self.disturb(
            &format!("{} pulled out, before {name}", card.name),
            |scene| {
                let mut others = scene.all_faces();
                others.retain(|face| face.name != card.name.as_str());
                scene.probes.ask(&others);
                // Its servers go with its port.
                scene.responder = None;
                scene.servers.remove(&card.subnet);
                scene.machine.fabric.unplug(CARD).unwrap();
            },
        );
        self.disturb(&format!("plugged in as {name}"), |scene| {
            let since = Instant::now();
            let name: InterfaceName = name.parse().unwrap();
            scene.machine.expect(&Card {
                name: name.clone(),
                ..card.clone()
            });
            let fabric = &mut scene.machine.fabric;
            let card = fabric.put_back(&card, name).unwrap();
            allow_advertised(&mut scene.machine, CARD);
            impatient(&scene.machine, CARD);
            scene.start_servers();
            scene.probes.ask(&scene.asked());
            scene.wait_address(since, advertised(&card, 0));
        });
    }

    /// Without a watcher a flush costs the replies of all cards but the first, until the next
    /// event; the probes see that.
    pub fn stays_wrong_until_an_event(&mut self) {
        let wrong = Duration::from_millis(1500);
        let longest = self.measure("ip rule flush, and an event", |scene| {
            flush_rules(scene);
            let since = Instant::now();
            std::thread::sleep(wrong);
            for (caller, place, good, bad) in scene.probes.count(since) {
                if caller != "client" {
                    continue;
                }
                let told = format!(
                    "{} {}: {good} answered, {bad} failed",
                    place.name, place.address
                );
                if place.name == "eth0" {
                    assert!(good > bad, "{told}");
                } else {
                    assert!(good == 0 && bad > 10, "{told}");
                }
            }
            let command = M::COMMANDS.last().unwrap();
            scene.machine.shell(command);
        });
        assert!(longest > wrong, "{}", self.report);
    }
}

/// What the DHCP server says at first. The lease is renewed all the time.
fn terms_of(card: &Card) -> Terms {
    Terms {
        times: [2, 4, 3600],
        ..Terms::of(card, 3600)
    }
}

fn flush_rules<M: Manager>(scene: &mut Scene<M>) {
    scene.machine.shell(&format!("{FLUSH}{RULES}"));
}

/// The address that a card makes of an advertised prefix: its hardware address with ff:fe in
/// its middle (RFC 4291, appendix A).
fn advertised(card: &Card, site: u16) -> IpAddr {
    let [.., a, b, c, d] = card.link_local().segments();
    Ipv6Addr::from([0x2001, 0xdb8, site, card.subnet.into(), a, b, c, d]).into()
}

fn allow_advertised(machine: &mut Host, number: usize) {
    let address = advertised(&machine.card(number), 0);
    machine.fabric.allow(number, address.into()).unwrap();
}

/// A router that waits a second before it asks again where a card is would be measured, too.
fn impatient(machine: &Host, number: usize) {
    let card = machine.card(number);
    let router = machine.fabric.router(card.subnet).unwrap();
    let keys =
        ["ipv4", "ipv6"].map(|family| format!("{family}/neigh/{}/retrans_time_ms", card.port));
    router.sysctl(keys.map(|key| (key, "20"))).unwrap();
}
