//! As many cards and addresses as large instances have, all at once: how long it takes until
//! every rule is there, how much is asked, and how much memory that needs.

use std::time::{Duration, Instant};

use leaseroute_core::Family;
use leaseroute_e2e::imds::{Activator, Imds, Told};
use leaseroute_e2e::kernel::Own;
use leaseroute_e2e::machine::{Machine, bound_event};
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

/// Every card is bound in both families at nearly the same moment.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn fifteen_cards_with_fifty_addresses_each() {
    let machine = Machine::configured(&Layout {
        neighbours: false,
        ..Layout::separate(CARDS)
    });
    machine.install_program("leaseroute");
    machine.write(CONFIGURATION, "[metadata]\nprovider = \"ec2\"\n", 0o644);
    let imds = Imds::start(&machine);
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
    let activator = Activator::start(&machine);
    let began = Instant::now();
    for card in machine.fabric.cards() {
        for family in Family::BOTH {
            let output = machine.output(machine.event(&bound_event(card, family)));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
    }
    let bound = began.elapsed();
    let mut memory = 0;
    let wanted = [0, 1].map(|at| Own::expected(faces.get::<usize>(at).unwrap()));
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
    for (family, faces) in Family::BOTH.into_iter().zip(&faces) {
        machine.wait_own(family, faces);
    }
    let (requests, rate) = (imds.asked().len(), imds.most_in_a_second());
    println!("hooks of {CARDS} cards in two families   {bound:.1?}");
    println!("until all {count} rules are there      {done:.1?}");
    println!("requests                             {requests}");
    println!("most requests in one second          {rate} (of {RATE})");
    println!("peak memory                          {memory} KiB, started {rounds} times");
    // What is on its way while the service is held up, one request of each card, counts later.
    assert!(rate <= RATE + usize::from(CARDS), "{rate}");
    assert!((1..MEMORY).contains(&memory), "{memory}");
    assert!(done < Duration::from_secs(30), "{done:?}");
}
