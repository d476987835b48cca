//! As many cards and addresses as large instances have, all at once: how long it takes until
//! every rule is there, how much is asked, and how much memory that needs.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use leaseroute_core::Family;
use leaseroute_e2e::host::PROGRAMS;
use leaseroute_e2e::imds::{Activator, Imds, Told};
use leaseroute_e2e::kernel::{Face, Own};
use leaseroute_e2e::machine::{Hook, Machine, bound_event};
use leaseroute_e2e::wait_for;
use leaseroute_e2e::watcher::CONFIGURATION;
use leaseroute_lab::fabric::{Layout, ipv4};

/// The most cards that an instance of EC2 has without a second network card.
const CARDS: u8 = 15;
/// The addresses of each card in each family: fifty in all.
const ADDRESSES: u8 = 25;
/// Requests a second: what the provider bounds itself to (`Provider::rate`).
const RATE: usize = 100;
/// What the service's unit lets it have, in KiB (`MemoryMax=`).
const MEMORY: u64 = 64 * 1024;

/// The cards of such an instance, one in each subnet.
fn layout() -> Layout {
    Layout {
        neighbours: false,
        ..Layout::separate(CARDS)
    }
}

/// Puts the program that asks on the host and starts a service that knows all addresses of all
/// cards: the faces that the cards have then, of each family.
fn serve(machine: &Machine) -> (Imds, [Vec<Face>; 2]) {
    machine.install_program("leaseroute");
    machine.write(CONFIGURATION, "[metadata]\nprovider = \"ec2\"\n", 0o644);
    let imds = Imds::start(machine);
    let mut faces = Family::BOTH.map(|family| machine.faces(family));
    for (number, card) in machine.fabric.cards().enumerate() {
        let mut told = Told::of(card);
        for last in 100..100 + ADDRESSES - 1 {
            told.ipv4s.push(ipv4(card.subnet, last));
            let further = format!("2001:db8:0:{:x}::{last}", card.subnet);
            told.ipv6s.push(further.parse().unwrap());
        }
        for (faces, addresses) in faces.iter_mut().zip([
            told.ipv4s.iter().map(|a| (*a).into()).collect(),
            told.ipv6s.iter().map(|a| (*a).into()).collect(),
        ]) {
            let face = faces.get_mut(number).unwrap();
            face.sources = addresses;
        }
        imds.set(card, told);
    }
    (imds, faces)
}

/// Waits until the rules of all faces are there and the program has ended; says what that took
/// since a moment, and holds it to what the service and the unit allow.
fn wait_and_measure(
    machine: &Machine,
    imds: &Imds,
    activator: &Activator,
    faces: &[Vec<Face>; 2],
    began: Instant,
) {
    let mut memory = 0;
    let wanted = faces.each_ref().map(|faces| Own::expected(faces));
    let count: usize = wanted.iter().map(|own| own.rules.len()).sum();
    let done = wait_for("all rules are there", || {
        memory = memory.max(activator.memory().unwrap_or_default());
        let there = Family::BOTH.map(|family| Own::read(machine.fabric.host(), family));
        let done = began.elapsed();
        if there
            .iter()
            .zip(&wanted)
            .all(|(own, wanted)| own.rules == wanted.rules)
        {
            return Ok(done);
        }
        let there: usize = there.iter().map(|own| own.rules.len()).sum();
        Err(format!("{there} of {count} rules\n{}", machine.logs()))
    });
    let rounds = wait_for("nothing is left to ask", || {
        memory = memory.max(activator.memory().unwrap_or_default());
        if activator.runs() {
            return Err("it runs".to_owned());
        }
        Ok(activator.started())
    });
    let (requests, rate) = (imds.asked().len(), imds.most_in_a_second());
    println!("until all {count} rules are there      {done:.1?}");
    println!("requests                             {requests}");
    println!("most requests in one second          {rate} (of {RATE})");
    println!("peak memory                          {memory} KiB, started {rounds} times");
    // What is on its way while the service is held up, one request of each card, counts later.
    assert!(rate <= RATE + usize::from(CARDS), "{rate}");
    assert!((1..MEMORY).contains(&memory), "{memory}");
    assert!(done < Duration::from_secs(30), "{done:?}");
}

/// Every card is bound in both families at nearly the same moment.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn fifteen_cards_with_fifty_addresses_each() {
    let machine = Machine::configured(&layout());
    let (imds, faces) = serve(&machine);
    let activator = Activator::start(&machine);
    let began = Instant::now();
    for card in machine.fabric.cards() {
        for family in Family::BOTH {
            let output = machine.output(machine.event(&bound_event(card, family)));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
    }
    println!(
        "hooks of {CARDS} cards in two families   {:.1?}",
        began.elapsed()
    );
    wait_and_measure(&machine, &imds, &activator, &faces, began);
    for (family, faces) in Family::BOTH.into_iter().zip(&faces) {
        machine.wait_own(family, faces);
    }
}

/// What the template unit starts for a card, in the bench's folder of programs.
fn of_the_template(card: &str) -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let unit = fs::read_to_string(packaging.join("systemd/leaseroute-metadata@.service")).unwrap();
    let mut lines = unit.lines();
    let command = lines.find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
    format!("{PROGRAMS}/{}", command.unwrap().replace("%i", card))
}

/// Gives every card permanent addresses and default routes of its own, as nothing but a file of
/// the administrator does.
fn configure(machine: &Machine) {
    let mut script = String::new();
    for card in machine.fabric.cards() {
        let (name, metric) = (&card.name, 100 + card.number);
        script += &format!(
            "ip link set {name} up
             ip address add {}/24 dev {name}
             ip -6 address add {}/64 dev {name} nodad
             ip route add default via {} dev {name} metric {metric}
             ip -6 route add default via fe80::1 dev {name} metric {metric}\n",
            card.ipv4,
            card.ipv6,
            card.gateway4(),
        );
    }
    machine.shell(&script);
}

/// No client looks after any card, and all of them are plugged in at once: what the udev rule
/// has started for each shares the pace of one.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn fifteen_static_cards_that_are_plugged_in_at_once() {
    let machine = Machine::new(&layout(), Hook::Absent);
    let (imds, faces) = serve(&machine);
    configure(&machine);
    let activator = Activator::start(&machine);
    let mut script = String::new();
    for card in machine.fabric.cards() {
        script += &format!(
            "{} & all=\"$all $!\"\n",
            of_the_template(card.name.as_str())
        );
    }
    script += "for one in $all; do wait $one; done\n";
    let began = Instant::now();
    let said = machine.shell(&script);
    let handed = began.elapsed();
    println!("handing {CARDS} cards over             {handed:.1?}");
    assert_eq!(said.matches("handed over").count(), usize::from(CARDS));
    assert_eq!(said.lines().count(), usize::from(CARDS), "{said}");
    wait_and_measure(&machine, &imds, &activator, &faces, began);
}

/// Where nobody holds the socket, each asks by itself: a socket that somebody left behind is
/// nobody, too.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn static_cards_are_asked_about_without_the_socket() {
    let machine = Machine::new(&Layout::separate(2), Hook::Absent);
    let (imds, faces) = serve(&machine);
    configure(&machine);
    let said = machine.shell(&of_the_template("eth0"));
    assert!(said.contains("all is found out"), "{said}");
    let leave_behind = "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind";
    machine.shell(&format!(
        "python3 -c '{leave_behind}(\"/run/leaseroute/metadata.socket\")'"
    ));
    let said = machine.shell(&of_the_template("eth1"));
    assert!(said.contains("all is found out"), "{said}");
    for (family, faces) in Family::BOTH.into_iter().zip(&faces) {
        let own = Own::read(machine.fabric.host(), family);
        assert_eq!(own.rules, Own::expected(faces).rules, "{}", machine.logs());
    }
    assert!(imds.asked().iter().all(|asked| asked.status == 200));
    // A card that is not there is nobody's.
    let missing = of_the_template("eth9");
    let said = machine.shell(&format!("{missing} 2>&1 || echo $?"));
    assert!(
        said.contains("\"eth9\"") && said.ends_with("\n8\n"),
        "{said}"
    );
}
