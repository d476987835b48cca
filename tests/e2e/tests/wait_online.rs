//! `leaseroute wait-online` beside the real dhclient: cards that come late or never, each
//! reason that it gives, and that it costs nothing while it waits.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "this is test code: what goes wrong is to be seen at once, and what was measured shown"
)]

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use leaseroute_core::Family;
use leaseroute_e2e::announced::Announcements;
use leaseroute_e2e::daemon::read;
use leaseroute_e2e::host::PROGRAMS;
use leaseroute_e2e::kernel::{Own, ip};
use leaseroute_e2e::machine::{Hook, Machine};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_e2e::wait_for;
use leaseroute_e2e::watcher::CONFIGURATION;
use leaseroute_lab::fabric::Layout;
use serde_json::Value;

const V4: Family = Family::Ipv4;
/// Far more than a look takes, also on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A wait that goes on.
struct Waiting {
    child: Child,
    began: Instant,
}

/// A wait that ended.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
    at: Instant,
    took: Duration,
}

impl Waiting {
    fn start(machine: &Machine, arguments: &str) -> Self {
        let mut command = machine.command(&format!("{PROGRAMS}/leaseroute"));
        command
            .arg("wait-online")
            .args(arguments.split_whitespace());
        Self::run(machine, command)
    }

    fn run(machine: &Machine, mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let child = machine.fabric.host().spawn(command).unwrap();
        Self { child, began }
    }

    /// Its process: what was started enters the host's namespaces and becomes its parent.
    fn pid(&self) -> u32 {
        let entered = self.child.id();
        wait_for("the wait has a process", || {
            let children = format!("/proc/{entered}/task/{entered}/children");
            let child = read(&PathBuf::from(children));
            child.trim().parse().map_err(|_| child)
        })
    }

    /// Its processor time in clock ticks, of which there are 100 a second.
    fn ticks(&self) -> u64 {
        let stat = read(&PathBuf::from(format!("/proc/{}/stat", self.pid())));
        // The name before it may have blanks.
        let after = stat.rsplit(')').next().unwrap();
        let fields: Vec<&str> = after.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// Waits until it sleeps: from here on only what happens wakes it.
    fn sleeps(&self) {
        wait_for("the wait sleeps", || {
            let wchan = read(&PathBuf::from(format!("/proc/{}/wchan", self.pid())));
            let stat = read(&PathBuf::from(format!("/proc/{}/stat", self.pid())));
            let is_asleep = stat.contains(") S ") && wchan.contains("poll");
            is_asleep.then_some(()).ok_or(format!("{wchan} {stat}"))
        });
    }

    fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn ended(self) -> Ended {
        let output = self.child.wait_with_output().unwrap();
        let at = Instant::now();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended {
            status: output.status,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            at,
            took: at - self.began,
        }
    }
}

impl Ended {
    fn is_ready(&self) {
        assert_eq!(
            (self.status.code(), self.stderr.as_str()),
            (Some(0), ""),
            "{self:?}"
        );
    }

    /// It gave up after so many seconds, for these reasons.
    fn gave_up(&self, seconds: u64, reasons: &[&str]) {
        assert_eq!(self.status.code(), Some(11), "{self:?}");
        let limit = Duration::from_secs(seconds);
        assert!(self.took >= limit && self.took < limit + SOON, "{self:?}");
        let mut lines = vec![format!("leaseroute: cards are not ready after {seconds} s")];
        lines.extend(reasons.iter().map(|reason| format!("leaseroute: {reason}")));
        assert_eq!(self.stderr.lines().collect::<Vec<_>>(), lines);
    }
}

fn waited(machine: &Machine, arguments: &str) -> Ended {
    Waiting::start(machine, arguments).ended()
}

fn machine(layout: &Layout) -> Machine {
    let machine = Machine::new(layout, Hook::Installed);
    machine.install_program("leaseroute");
    machine
}

fn ipv4_alone() -> Lan {
    Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    }
}

/// Cards that are bound by IPv4 alone.
fn bound_by_ipv4(cards: u8) -> (Machine, Vec<Servers>) {
    let mut machine = machine(&Layout::separate(cards));
    let servers = Servers::start_all(&machine, &ipv4_alone());
    machine.start_clients(&[V4]);
    if cards > 1 {
        machine.wait_own(V4, &machine.faces(V4));
    }
    (machine, servers)
}

/// A third card is added while it is waited for, and returns when that one's routing is
/// whole, in both families.
fn card_that_comes_after(late: Duration) {
    let mut machine = machine(&Layout::separate(3));
    machine.fabric.unplug(2).unwrap();
    let _servers = Servers::start_all(&machine, &Lan::default());
    machine.start_clients(&Family::BOTH);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    let listener = Announcements::of(machine.fabric.host());
    let mut waiting = Waiting::start(&machine, "--interface eth3 --ipv4 --ipv6");
    waiting.sleeps();
    let (ticks, began) = (waiting.ticks(), Instant::now());
    sleep(late);
    let ticks = waiting.ticks() - ticks;
    assert!(!waiting.is_over());

    let attached = Instant::now();
    let card = machine.fabric.attach(2).unwrap();
    assert_eq!(card.name.as_str(), "eth3");
    let waiter = spawn(move || waiting.ended());
    let _late = Servers::start(&machine, 2, &Lan::default());
    for family in Family::BOTH {
        machine.start_client(card.number, family);
    }
    let ended = waiter.join().unwrap();
    // At the return all is there.
    for family in Family::BOTH {
        let expected = Own::expected(&machine.faces(family));
        let own = Own::read(machine.fabric.host(), family);
        assert_eq!(own, expected, "{}", own.differences(&expected));
    }
    ended.is_ready();
    let table = 76000 + card.link.get();
    let line = format!("eth3: {}, {}; table {table}\n", card.ipv4, card.ipv6);
    assert_eq!(ended.stdout, line);

    let (theirs, own) = listener.last_changes(attached);
    let complete = own.max(theirs.filter(|at| *at <= ended.at)).unwrap();
    println!(
        "waited {:.1} s for the card with {ticks} clock ticks of processor time, returned {:.1} ms \
         after its completion",
        began.elapsed().as_secs_f64(),
        ended.at.saturating_duration_since(complete).as_secs_f64() * 1000.0
    );
    assert!(ended.at.saturating_duration_since(complete) < SOON);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_comes_late_ends_the_wait_when_it_is_complete() {
    card_that_comes_after(Duration::from_secs(3));
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_comes_after_a_minute_ends_the_wait_when_it_is_complete() {
    card_that_comes_after(Duration::from_secs(60));
}

/// Nothing has made the state folder when the wait begins.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn first_lease_of_the_host_is_heard_of() {
    let mut machine = machine(&Layout::separate(1));
    let _servers = Servers::start_all(&machine, &ipv4_alone());
    assert!(!machine.path("/run/leaseroute").exists());
    let waiting = Waiting::start(&machine, "--interface eth0");
    waiting.sleeps();
    machine.start_client(0, V4);
    let ended = waiting.ended();
    ended.is_ready();
    assert_eq!(ended.stdout, "eth0: 10.0.0.10; needs no table\n");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_never_comes_ends_the_wait_at_its_deadline() {
    let machine = machine(&Layout::separate(1));
    let waiting = Waiting::start(&machine, "--interface eth9 --timeout 2");
    waiting.ended().gave_up(2, &["eth9: no such device"]);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn waiting_takes_no_processor_time() {
    let (machine, _servers) = bound_by_ipv4(2);
    let waiting = Waiting::start(&machine, "--interface eth9 --timeout 7");
    waiting.sleeps();
    let before = waiting.ticks();
    sleep(Duration::from_secs(5));
    let ticks = waiting.ticks() - before;
    println!("5 s of waiting took {ticks} clock ticks");
    assert!(ticks <= 2);
    waiting.ended().gave_up(7, &["eth9: no such device"]);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn what_a_card_lacks_is_named() {
    let layout = Layout {
        dad: true,
        ..Layout::separate(2)
    };
    let machine = machine(&layout);
    let host = machine.fabric.host();
    let lacks = |arguments: &str, reasons: &[&str]| {
        let arguments = format!("--interface eth1 --timeout 1 {arguments}");
        waited(&machine, &arguments).gave_up(1, reasons);
    };

    ip(host, "link set eth1 down");
    lacks("", &["eth1: down"]);
    let port = machine.card(1).port;
    let router = machine.fabric.router(1).unwrap();
    ip(host, "link set eth1 up");
    ip(router, &format!("link set {port} down"));
    lacks("", &["eth1: no carrier"]);
    ip(router, &format!("link set {port} up"));
    lacks("", &["eth1: no lease"]);
    lacks("--ipv6", &["eth1: no IPv6 lease"]);
    lacks("-4 -6", &["eth1: no IPv4 lease", "eth1: no IPv6 lease"]);

    ip(host, "link add br0 type bridge");
    ip(host, "link set eth1 master br0");
    lacks("", &["eth1: belongs to br0, which has the addresses"]);
    ip(host, "link set eth1 nomaster");

    machine.shell("echo 100 >/proc/sys/net/ipv6/conf/eth1/dad_transmits");
    let address = "2001:db8:0:1::77";
    ip(
        host,
        &format!("address add {address}/64 dev eth1 valid_lft 3600 preferred_lft 3600"),
    );
    let tentative =
        format!("eth1: address {address} is tentative: duplicate address detection still runs");
    lacks("", &[&tentative]);
    let no_router = "eth1: no RA router: no IPv6 default route leads by it";
    lacks("--ipv6", &[no_router, &tentative]);
    ip(host, &format!("address del {address}/64 dev eth1"));
    ip(
        host,
        &format!("address add {address}/64 dev eth1 valid_lft 3600 preferred_lft 3600 nodad"),
    );
    lacks("--ipv6", &[no_router]);
    waited(&machine, "--interface eth1").is_ready();
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn routing_that_is_incomplete_is_named() {
    let (machine, _servers) = bound_by_ipv4(2);
    let host = machine.fabric.host();
    let table = 76000 + machine.card(1).link.get();
    let rule = format!("priority 7630 from 10.0.1.10 lookup {table}");
    ip(host, &format!("rule delete {rule}"));
    let reason = format!("eth1: routing incomplete: ip -4 rule add {rule} protocol 76");
    waited(&machine, "--interface eth1 --timeout 1").gave_up(1, &[&reason]);
    waited(&machine, "--interface eth0").is_ready();

    // Somebody puts it back while it is waited for.
    let waiting = Waiting::start(&machine, "--interface eth1");
    waiting.sleeps();
    machine.shell(&format!("{PROGRAMS}/leaseroute apply"));
    waiting.ended().is_ready();

    ip(host, "address delete 10.0.1.10/24 dev eth1");
    let gone = "eth1: the leased address 10.0.1.10 is not on it";
    waited(&machine, "--interface eth1 --timeout 1").gave_up(1, &[gone]);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn families_and_any_say_what_will_do() {
    let (machine, _servers) = bound_by_ipv4(2);
    for arguments in ["-i eth1", "-i eth1 --ipv4", "-i eth0 -i eth1"] {
        let ended = waited(&machine, arguments);
        ended.is_ready();
        assert!(ended.took < SOON, "{ended:?}");
    }
    let without = ["eth1: no IPv6 lease"];
    waited(&machine, "-i eth1 --ipv6 --timeout 1").gave_up(1, &without);
    waited(&machine, "-i eth1 -4 -6 --timeout 1").gave_up(1, &without);

    let table = 76000 + machine.card(0).link.get();
    let ready = format!("eth0: 10.0.0.10; table {table}\n");
    let ended = waited(&machine, "-i eth9 -i eth0 --any");
    ended.is_ready();
    assert_eq!(ended.stdout, ready);
    let ended = waited(&machine, "-i eth9 -i eth0 --timeout 1");
    ended.gave_up(1, &["eth9: no such device"]);
    assert_eq!(ended.stdout, ready);
    let neither = ["eth8: no such device", "eth9: no such device"];
    waited(&machine, "-i eth8 -i eth9 --any --timeout 1").gave_up(1, &neither);

    let ended = waited(&machine, "-i eth9 -i eth0 --timeout 1 --json");
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(11), ""));
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(answer["complete"], false);
    assert_eq!(answer["cards"][0]["missing"][0]["reason"], "no_device");
    assert_eq!(answer["cards"][0]["missing"][0]["text"], "no such device");
    assert_eq!(answer["cards"][1]["complete"], true);
    assert_eq!(answer["cards"][1]["addresses"][0], "10.0.0.10/32");
    assert_eq!(answer["cards"][1]["table"], table);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn configuration_says_which_cards_are_required() {
    let (machine, _servers) = bound_by_ipv4(2);
    let ended = waited(&machine, "");
    ended.is_ready();
    assert!(
        ended.took < SOON && ended.stdout.starts_with("nothing is required"),
        "{ended:?}"
    );

    let required = |name: &str| {
        let section = format!("[[interface]]\nmatch = {{ name = \"{name}\" }}\nrequired = true\n");
        machine.write(CONFIGURATION, &section, 0o644);
    };
    required("eth*");
    let ended = waited(&machine, "");
    ended.is_ready();
    assert_eq!(ended.stdout.lines().count(), 2, "{ended:?}");
    required("eth9");
    let reason = "name = \"eth9\": no such device";
    waited(&machine, "--timeout 1").gave_up(1, &[reason]);
    waited(&machine, "--interface eth0").is_ready();

    machine.write(CONFIGURATION, "when = \"never\"\n", 0o644);
    let ended = waited(&machine, "");
    assert_eq!(ended.status.code(), Some(6), "{ended:?}");
    assert!(ended.took < SOON, "{ended:?}");
}

/// A card is found by what it is called now.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn renamed_card_is_the_one_that_is_waited_for() {
    let mut machine = machine(&Layout::separate(1));
    let _servers = Servers::start_all(&machine, &ipv4_alone());
    machine.start_client(0, V4);
    waited(&machine, "--interface eth0").is_ready();
    let host = machine.fabric.host();

    let waiting = Waiting::start(
        &machine,
        "--interface a-name-longer-than-that-of-any-interface",
    );
    waiting.sleeps();
    ip(
        host,
        "link property add dev eth0 altname a-name-longer-than-that-of-any-interface",
    );
    let ended = waiting.ended();
    ended.is_ready();
    assert!(ended.stdout.starts_with("eth0: "), "{ended:?}");

    let waiting = Waiting::start(&machine, "--interface wan0");
    waiting.sleeps();
    ip(host, "link set eth0 name wan0");
    let ended = waiting.ended();
    ended.is_ready();
    assert_eq!(ended.stdout, "wan0: 10.0.0.10; needs no table\n");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_goes_while_it_is_waited_for_may_come_again() {
    let mut machine = machine(&Layout::separate(2));
    let waiting = Waiting::start(&machine, "-i eth1 -i eth2 --any");
    let in_vain = Waiting::start(&machine, "-i eth1 --timeout 4");
    waiting.sleeps();
    machine.fabric.unplug(1).unwrap();
    let card = machine.fabric.attach(1).unwrap();
    let _servers = Servers::start(&machine, 1, &ipv4_alone());
    machine.start_client(card.number, V4);
    let ended = waiting.ended();
    ended.is_ready();
    assert!(ended.stdout.starts_with("eth2: "), "{ended:?}");
    in_vain.ended().gave_up(4, &["eth1: no such device"]);
}

/// It takes no lock, needs no privilege and ends when it is told to.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn anybody_may_wait_at_any_time() {
    let (machine, _servers) = bound_by_ipv4(2);
    let mut command = machine.command("sh");
    command.args(["-c", "exec flock /run/leaseroute/*/lock sleep 60"]);
    let holder = machine.start("holder", command);
    wait_for("the lock is held", || {
        let said = machine.shell("flock --nonblock /run/leaseroute/*/lock true || echo held");
        said.contains("held").then_some(()).ok_or(said)
    });
    let mut command = machine.command("setpriv");
    command
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
        ])
        .arg(format!("{PROGRAMS}/leaseroute"))
        .args(["wait-online", "-i", "eth0", "-i", "eth1"]);
    let ended = Waiting::run(&machine, command).ended();
    ended.is_ready();
    assert!(ended.took < SOON, "{ended:?}");
    drop(holder);

    let waiting = Waiting::start(&machine, "--interface eth9 --timeout 0");
    waiting.sleeps();
    let told = Instant::now();
    let kill = Command::new("kill").arg(waiting.pid().to_string()).status();
    assert!(kill.unwrap().success());
    let ended = waiting.ended();
    assert!(ended.at - told < SOON, "{ended:?}");
    // What entered the namespaces for it ends likewise.
    assert!(
        ended.status.signal() == Some(15) || ended.status.code() == Some(143),
        "{ended:?}"
    );
}
