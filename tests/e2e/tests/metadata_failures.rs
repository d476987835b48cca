//! Metadata services that do not answer, or not rightly: what leases need is there all the
//! same, what was known stays, and no hook is slower.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use leaseroute_core::Family;
use leaseroute_e2e::host::PROGRAMS;
use leaseroute_e2e::imds::{Activator, Imds, Part, SOCKET, Told, Trouble};
use leaseroute_e2e::kernel::{Face, Own, ip};
use leaseroute_e2e::machine::{Hook, Machine, bound_event};
use leaseroute_e2e::probes::Probes;
use leaseroute_e2e::servers::{Lan, Servers};
use leaseroute_e2e::wait_for;
use leaseroute_e2e::watcher::{CONFIGURATION, state_folder};
use leaseroute_lab::fabric::{Card, Layout, ipv4};

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;

const SETTINGS: &str = "[metadata]\nprovider = \"ec2\"\ndeadline = 2\n";
const NOBODY: &str = "[metadata]\nprovider = \"none\"\n";

/// For how long what was found out is not asked again without news, and a little more.
const RECENT: Duration = Duration::from_millis(3100);

/// How long the service is in each kind of trouble.
const WHILE: Duration = Duration::from_millis(900);

/// What may be wrong: with the service, or with what it says of the second card.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Service(Trouble),
    /// It tells of the card that was there before.
    PreviousCard,
    /// It never knows of IPv6.
    NeverComplete,
    /// It takes the second card for the first one.
    First,
    /// It does not list the card.
    NotListed,
}

/// With refusals that wait for the end of the session at the end: what they say is obeyed.
const ALL: &[Wrong] = &[
    Wrong::Service(Trouble::Dead),
    Wrong::Service(Trouble::Unknown),
    Wrong::Service(Trouble::Broken),
    Wrong::Service(Trouble::Garbage),
    Wrong::Service(Trouble::CutOff),
    Wrong::Service(Trouble::Cut(Part::Cards)),
    Wrong::Service(Trouble::Cut(Part::Keys)),
    Wrong::Service(Trouble::Cut(Part::Values)),
    Wrong::PreviousCard,
    Wrong::NeverComplete,
    Wrong::First,
    Wrong::NotListed,
    Wrong::Service(Trouble::Silent),
    Wrong::Service(Trouble::Throttled(Some(1))),
    Wrong::Service(Trouble::Throttled(None)),
];

/// A host on which hooks tell of leases and nothing else does, and all cards are bound.
struct Bench {
    imds: Imds,
    _activator: Activator,
    _servers: Vec<Servers>,
    machine: Machine,
}

impl Bench {
    fn new(trouble: Trouble) -> Self {
        let mut machine = Machine::new(&Layout::separate(2), Hook::Installed);
        machine.install_program("leaseroute");
        machine.write(CONFIGURATION, SETTINGS, 0o644);
        let imds = Imds::start(&machine);
        imds.suffer(trouble);
        for card in machine.fabric.cards() {
            imds.set(card, Told::of(card));
        }
        let activator = Activator::start(&machine);
        let servers = Servers::start_all(&machine, &Lan::default());
        machine.start_clients(&Family::BOTH);
        for family in Family::BOTH {
            machine.wait_own(family, &machine.faces(family));
        }
        Self {
            imds,
            _activator: activator,
            _servers: servers,
            machine,
        }
    }

    /// What a renewal of the second card calls; how long that took.
    fn renew(&self, family: Family) -> Duration {
        let event = self
            .machine
            .event(&bound_event(&self.machine.card(1), family));
        let began = Instant::now();
        let output = self.machine.output(event);
        let took = began.elapsed();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        took
    }

    /// The service is in trouble from now on; what it has to tell of the second card otherwise is
    /// `honest`.
    fn go_wrong(&self, wrong: Wrong, honest: &Told) {
        let card = self.machine.card(1);
        self.imds.suffer(match wrong {
            Wrong::Service(trouble) => trouble,
            _ => Trouble::None,
        });
        let told = match wrong {
            Wrong::Service(_) | Wrong::NotListed => honest.clone(),
            Wrong::PreviousCard => Told {
                ipv4s: vec![ipv4(1, 99)],
                ipv6s: vec!["2001:db8:0:1::99".parse().unwrap()],
                prefixes4: vec!["10.0.1.96/28".to_owned()],
                ..honest.clone()
            },
            Wrong::NeverComplete => Told {
                ipv6s: Vec::new(),
                prefixes6: Vec::new(),
                subnets6: Vec::new(),
                ..honest.clone()
            },
            Wrong::First => Told {
                device: 0,
                ..honest.clone()
            },
        };
        if matches!(wrong, Wrong::NotListed) {
            self.imds.forget(&card);
        } else {
            self.imds.set(&card, told);
        }
    }

    /// Our rules and routes of both families.
    fn own(&self) -> [Own; 2] {
        Family::BOTH.map(|family| Own::read(self.machine.fabric.host(), family))
    }

    /// What others are told of it.
    fn exported(&self) -> String {
        let export = format!("{PROGRAMS}/leaseroute export --format netplan");
        self.machine.shell(&export)
    }

    fn assert_own(&self, expected: &[Own; 2], wrong: Wrong) {
        for (own, expected) in self.own().iter().zip(expected) {
            let logs = || self.machine.logs();
            assert!(
                own == expected,
                "{wrong:?}\n{}\n{}",
                own.differences(expected),
                logs()
            );
        }
    }

    /// Everything that can be wrong, one after the other. Nothing changes.
    fn suffer_all(&self, honest: &Told, compare: bool) -> [Vec<Duration>; 2] {
        let (expected, exported) = (self.own(), self.exported());
        let mut times = [Vec::new(), Vec::new()];
        for &wrong in ALL {
            self.go_wrong(wrong, honest);
            let (began, before) = (Instant::now(), self.imds.asked().len());
            for family in Family::BOTH {
                times[0].push(self.renew(family));
                if compare {
                    self.machine.write(CONFIGURATION, NOBODY, 0o644);
                    times[1].push(self.renew(family));
                    self.machine.write(CONFIGURATION, SETTINGS, 0o644);
                }
                self.assert_own(&expected, wrong);
            }
            assert_eq!(self.exported(), exported, "{wrong:?}");
            while began.elapsed() < WHILE {
                self.assert_own(&expected, wrong);
                std::thread::sleep(Duration::from_millis(20));
            }
            let asked = self.imds.asked().len() - before;
            println!("{wrong:?}: {asked} requests");
            let is_dead = matches!(wrong, Wrong::Service(Trouble::Dead));
            assert!(is_dead || asked > 0, "{wrong:?}\n{}", self.machine.logs());
        }
        times
    }

    /// The service is as it should be, and the next renewal brings what it tells.
    fn recover(&self, honest: &Told, expected: &[Vec<Face>; 2]) {
        self.imds.suffer(Trouble::None);
        self.imds.set(&self.machine.card(1), honest.clone());
        self.renew(V4);
        for (family, faces) in Family::BOTH.into_iter().zip(expected) {
            self.machine.wait_own(family, faces);
        }
    }

    /// The uplinks with a further IPv4 and IPv6 address of the second card.
    fn faces_with(&self, last: u8) -> ([Vec<Face>; 2], Told) {
        let mut faces = Family::BOTH.map(|family| self.machine.faces(family));
        let mut told = Told::of(&self.machine.card(1));
        told.ipv4s.push(ipv4(1, last));
        let further6 = format!("2001:db8:0:1::{last}").parse().unwrap();
        told.ipv6s.push(further6);
        faces[0][1].sources.push(ipv4(1, last).into());
        faces[1][1].sources.push(further6.into());
        (faces, told)
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

/// Nothing but leases is known, from the cards' beginning on.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_services_spoil_no_lease_and_hold_no_hook_up() {
    let bench = Bench::new(Trouble::Dead);
    let nothing_more = Told::of(&bench.machine.card(1));
    let [mut with, mut without] = bench.suffer_all(&nothing_more, true);
    let (faces, told) = bench.faces_with(77);
    bench.recover(&told, &faces);
    for _ in 0..10 {
        bench.machine.write(CONFIGURATION, NOBODY, 0o644);
        without.push(bench.renew(V4));
        bench.machine.write(CONFIGURATION, SETTINGS, 0o644);
        with.push(bench.renew(V4));
    }
    println!(
        "a renewal's hook: {:?} with a broken service, {:?} without any ({} and {} runs)",
        median(&with),
        median(&without),
        with.len(),
        without.len(),
    );
    assert!(without.len() >= 20);
    assert!(median(&with) < median(&without).mul_f64(1.5));
}

/// What was found out before stays, every connection is answered meanwhile, and what is new is
/// found out afterwards.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn broken_services_take_nothing_away() {
    let bench = Bench::new(Trouble::None);
    let (faces, told) = bench.faces_with(77);
    // What was found out a moment ago is not asked again.
    std::thread::sleep(RECENT);
    bench.recover(&told, &faces);
    std::thread::sleep(RECENT);
    let leased = Family::BOTH.map(|family| bench.machine.faces(family));
    let probes = Probes::start(&bench.machine.fabric, &leased.concat());
    let begun = Instant::now();
    bench.suffer_all(&told, false);
    for (caller, place, good, bad) in probes.count(begun) {
        println!(
            "{caller} to {}: {good} answered, {bad} failed",
            place.address
        );
        assert!(
            bad == 0 && good > 500,
            "{caller} to {place:?}: {good} {bad}"
        );
    }
    drop(probes);
    let (faces, told) = bench.faces_with(78);
    bench.recover(&told, &faces);
    let most = bench.imds.most_in_a_second();
    println!("at most {most} requests in a second");
    assert!(most <= 100);
}

/// A host whose cards are as a client leaves them in IPv4, and the service, which answers.
fn configured(settings: &str) -> (Machine, Imds) {
    let machine = Machine::configured(&Layout::separate(2));
    machine.install_program("leaseroute");
    machine.write(CONFIGURATION, settings, 0o644);
    let imds = Imds::start(&machine);
    for card in machine.fabric.cards() {
        imds.set(card, Told::of(card));
    }
    (machine, imds)
}

/// The uplinks in IPv4, the second with these addresses.
fn faces_with(machine: &Machine, addresses: &[Ipv4Addr]) -> Vec<Face> {
    let mut faces = machine.faces(V4);
    faces[1].sources = addresses.iter().copied().map(Into::into).collect();
    faces
}

/// A card is pulled out in the middle of a request about it, and comes back with the same
/// hardware address and name, but with other addresses. The late answer is about the old one.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn late_answer_about_a_card_that_was_pulled_out_is_nothing() {
    let (mut machine, imds) = configured("[metadata]\nprovider = \"ec2\"\ndeadline = 20\n");
    let old = machine.card(1);
    let mut told = Told::of(&old);
    told.ipv4s.push(ipv4(1, 77));
    imds.set(&old, told.clone());
    let _activator = Activator::start(&machine);
    let late = Duration::from_millis(700);
    for slow in [Trouble::Slow(late), Trouble::Silent] {
        let before = imds.asked_of(&old).len();
        // A kind of service that answers the first requests and then does not.
        imds.suffer(Trouble::Slow(Duration::from_millis(50)));
        let card = machine.card(1);
        let bound = machine.event(&bound_event(&card, V4));
        assert!(machine.output(bound).status.success());
        wait_for("the card is asked about", || {
            let asked = imds.asked_of(&old);
            imds.suffer(slow);
            if asked.len() > before {
                Ok(())
            } else {
                imds.suffer(Trouble::Slow(Duration::from_millis(50)));
                Err(format!("{:#?}\n{}", imds.asked(), machine.logs()))
            }
        });
        machine.fabric.unplug(1).unwrap();
        let last = if slow == Trouble::Silent { 31 } else { 30 };
        let mut new = machine.fabric.put_back(&old, old.name.clone()).unwrap();
        assert_ne!(new.link, card.link);
        new.ipv4 = ipv4(1, last);
        let further = ipv4(1, last + 50);
        machine
            .fabric
            .allow(1, std::net::IpAddr::V4(new.ipv4).into())
            .unwrap();
        let host = machine.fabric.host();
        ip(host, "link set eth1 up");
        ip(host, &format!("addr add {}/24 dev eth1", new.ipv4));
        ip(host, "route add default via 10.0.1.1 dev eth1 metric 101");
        imds.set(
            &new,
            Told {
                ipv4s: vec![new.ipv4, further],
                ipv6s: Vec::new(),
                subnets6: Vec::new(),
                ..told.clone()
            },
        );
        let bound = machine.event(&bound_event(&new, V4));
        assert!(machine.output(bound).status.success());
        machine.wait_own(V4, &{
            let mut faces = machine.faces(V4);
            faces[0].sources.clear();
            faces[1].sources = vec![new.ipv4.into()];
            faces
        });
        imds.suffer(Trouble::None);
        let mut faces = faces_with(&machine, &[new.ipv4, further]);
        faces[0].sources.clear();
        machine.wait_own(V4, &faces);
        // By now the late answers have come.
        let expected = Own::expected(&faces);
        let until = Instant::now() + late + Duration::from_millis(500);
        while Instant::now() < until {
            let own = Own::read(machine.fabric.host(), V4);
            assert!(
                own == expected,
                "{}\n{}",
                own.differences(&expected),
                machine.logs()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The IPv4 addresses of the second card.
fn addresses(machine: &Machine) -> BTreeSet<String> {
    let said = machine.shell("ip -json -4 addr show dev eth1");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let infos = said[0]["addr_info"].as_array().unwrap().iter();
    let text = |info: &serde_json::Value| {
        let address = info["local"].as_str().unwrap();
        format!("{address}/{}", info["prefixlen"])
    };
    infos.map(text).collect()
}

/// Those that carry our protocol (`IFA_PROTO`), which ip(8) does not show before version 6.3: the
/// kernel's own messages say it.
fn tagged(machine: &Machine) -> Vec<Ipv4Addr> {
    let mut command = machine.command("ip");
    command.args(["-4", "addr", "save", "dev", "eth1"]);
    let saved = machine.output(command).stdout;
    let word = |at: usize| saved.get(at..at + 4).map(|b| b.try_into().unwrap());
    // A magic number, then messages (netlink(7)): length, kind and more in 16 bytes, 8 bytes of
    // `struct ifaddrmsg`, attributes.
    let (mut message, mut tagged) = (4, Vec::new());
    while let Some(length) = word(message).map(u32::from_ne_bytes) {
        let end = message + usize::try_from(length).unwrap();
        let (mut attribute, mut address, mut protocol) = (message + 24, None, None);
        while attribute < end {
            let [a, b, c, d] = word(attribute).unwrap();
            match u16::from_ne_bytes([c, d]) {
                2 => address = word(attribute + 4).map(Ipv4Addr::from),
                11 => protocol = saved.get(attribute + 4).copied(),
                _ => {}
            }
            attribute += usize::from(u16::from_ne_bytes([a, b])).next_multiple_of(4);
        }
        if protocol == Some(76) {
            tagged.extend(address);
        }
        message = end.next_multiple_of(4);
    }
    tagged
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn addresses_of_the_service_are_put_on_the_card_and_taken_off() {
    let settings = "[metadata]\nprovider = \"ec2\"\nassign_addresses = true\n";
    let (mut machine, imds) = configured(settings);
    machine.bind_all();
    let card: Card = machine.card(1);
    let further = ipv4(1, 77);
    machine
        .fabric
        .allow(1, std::net::IpAddr::V4(further).into())
        .unwrap();
    // The administrator's own.
    ip(machine.fabric.host(), "addr add 10.0.1.88/24 dev eth1");
    let ask = format!("{PROGRAMS}/leaseroute metadata --interface eth1");
    let mut told = Told::of(&card);
    told.ipv4s.push(further);
    imds.set(&card, told);
    println!("{}", machine.shell(&ask));
    let set =
        |list: &[&str]| -> BTreeSet<String> { list.iter().map(|a| (*a).to_owned()).collect() };
    let seen = addresses(&machine);
    assert_eq!(seen, set(&["10.0.1.10/24", "10.0.1.77/32", "10.0.1.88/24"]));
    assert_eq!(tagged(&machine), [further]);
    machine.wait_own(V4, &faces_with(&machine, &[card.ipv4, further]));
    machine.wait_own(V6, &machine.faces(V6));
    machine.assert_reached(further.into());
    machine.assert_all_reach(&Family::BOTH);
    // A service that cannot be asked takes nothing off.
    imds.suffer(Trouble::Broken);
    let mut command = machine.command(&format!("{PROGRAMS}/leaseroute"));
    command.args(["metadata", "--interface", "eth1", "--once"]);
    // Not all was found out.
    assert_eq!(machine.output(command).status.code(), Some(11));
    assert_eq!(addresses(&machine), seen);
    imds.suffer(Trouble::None);
    imds.set(&card, Told::of(&card));
    println!("{}", machine.shell(&ask));
    let left = set(&["10.0.1.10/24", "10.0.1.88/24"]);
    assert_eq!(addresses(&machine), left);
    machine.wait_own(V4, &machine.faces(V4));
}

/// One that cannot ask is started once for each word, and reads it: what is left unread would
/// start it again and again.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn program_that_can_ask_nobody_is_not_started_over_and_over() {
    let (machine, imds) = configured(SETTINGS);
    let card = machine.card(1);
    let activator = Activator::start(&machine);
    let tell = || {
        let output = machine.output(machine.event(&bound_event(&card, V4)));
        output.status.success()
    };
    assert!(tell());
    wait_for("nothing is left to ask", || {
        let is_done = activator.started() == 1 && !activator.runs();
        is_done.then_some(()).ok_or_else(|| machine.logs())
    });
    let asked = imds.asked().len();
    let state = state_folder(&machine).unwrap();
    let namespace = Path::new(state.file_name().unwrap());
    // No cloud that is known, as the firmware is of none; a mistake that hooks do not get over.
    let settings = [
        "",
        "[metadata]\nprovider = \"ec2\"\nendpoint = \"nowhere\"\n",
    ];
    for settings in settings {
        machine.write(CONFIGURATION, settings, 0o644);
        let before = activator.started();
        tell();
        // Without a provider hooks may say nothing, and an older one still does.
        let word = format!("{} eth1\n", namespace.display());
        let socket = machine.path(SOCKET);
        let sent = UnixDatagram::unbound()
            .unwrap()
            .send_to(word.as_bytes(), socket);
        assert_eq!(sent.unwrap(), word.len());
        // It stays for two seconds, so that many words start it once.
        std::thread::sleep(Duration::from_millis(3500));
        let times = activator.started() - before;
        println!("{settings:?}: started {times} times");
        assert!((1..=2).contains(&times), "{times}\n{}", machine.logs());
        assert!(!activator.runs(), "{}", machine.logs());
    }
    assert_eq!(imds.asked().len(), asked);
    // And the next word is heard.
    machine.write(CONFIGURATION, SETTINGS, 0o644);
    assert!(tell());
    wait_for("the service is asked", || {
        let is_asked = imds.asked().len() > asked;
        is_asked.then_some(()).ok_or_else(|| machine.logs())
    });
}
