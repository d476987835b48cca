//! The program called directly, as the shim calls it: many at once, killed at any moment,
//! without a state folder, without permission.

use std::process::Output;
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_e2e::kernel::{Face, Own, foreign};
use leaseroute_e2e::machine::{Machine, PROGRAM, bound_event};
use leaseroute_lab::fabric::{Card, Layout, ipv4};

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;

fn call(machine: &Machine, variables: &[(String, String)]) -> Output {
    let mut command = machine.command(PROGRAM);
    command.envs(variables.iter().cloned());
    machine.output(command)
}

fn said(output: &Output) -> String {
    format!(
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    )
}

fn assert_own(machine: &Machine, family: Family, uplinks: &[Face], context: &str) {
    let own = Own::read(machine.fabric.host(), family);
    let differences = own.differences(&Own::expected(uplinks));
    assert!(differences.is_empty(), "{context}\n{differences}");
}

/// Every card gets its own, nobody fails, and most runs find their work done by another.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn sixty_four_hooks_at_once() {
    let layout = Layout {
        neighbours: false,
        ..Layout::of((0..64).map(|number| number / 16).collect())
    };
    let machine = Machine::configured(&layout);
    for family in Family::BOTH {
        let running: Vec<_> = machine
            .fabric
            .cards()
            .map(|card| {
                let mut command = machine.command(PROGRAM);
                command.envs(bound_event(card, family));
                command
                    .stdout(std::process::Stdio::piped())
                    .stderr(std::process::Stdio::piped());
                machine.fabric.host().spawn(command).unwrap()
            })
            .collect();
        let outputs: Vec<Output> = running
            .into_iter()
            .map(|child| child.wait_with_output().unwrap())
            .collect();
        let log: String = outputs.iter().map(|output| said(output) + "\n").collect();
        assert!(
            outputs.iter().all(|output| output.status.success()),
            "{log}"
        );
        assert_own(&machine, family, &machine.faces(family), &log);
        let taken_in = outputs
            .iter()
            .filter(|o| String::from_utf8_lossy(&o.stderr).contains("taken in by another run"))
            .count();
        assert!(
            taken_in >= 32,
            "only {taken_in} of 64 were taken in by another run:\n{log}"
        );
    }
}

/// Whatever a killed run has left, the next one makes it right.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn killed_hooks_are_made_good_by_the_next_event() {
    let machine = Machine::configured(&Layout::separate(3));
    let cards: Vec<Card> = machine.fabric.cards().cloned().collect();
    for card in &cards {
        let output = call(&machine, &bound_event(card, V4));
        assert!(output.status.success(), "{}", said(&output));
    }
    assert_own(&machine, V4, &machine.faces(V4), "at the start");
    let before = foreign(machine.fabric.host());
    // A fixed seed: a failure can be repeated, as far as the machine's pace allows.
    let mut random: u32 = 0x2545_f491;
    for round in 0..60 {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        // From the start of the program to well after its end.
        let micros = random % 6000;
        // The router changes with every round, so that there is work to be cut off; every
        // third round the lease is lost instead.
        let router = ipv4(1, if round % 2 == 0 { 1 } else { 2 });
        let mut event = bound_event(&cards[1], V4);
        let mut uplinks = machine.faces(V4);
        if round % 3 == 2 {
            event[1].1 = "RELEASE".to_owned();
            // The address and the default route are still there, so the others must go on
            // going around it.
            uplinks[1].sources.clear();
        } else {
            event[4].1 = router.to_string();
            uplinks[1] = uplinks[1].clone().with_gateway(router.into());
        }
        let mut command = machine.command("timeout");
        let after = format!("{:.6}", f64::from(micros + 1) / 1e6);
        command
            .args(["-s", "KILL", &after, PROGRAM])
            .envs(event.iter().cloned());
        machine.output(command);
        let output = call(&machine, &event);
        let context = format!("round {round}, killed after {micros} us: {}", said(&output));
        assert!(output.status.success(), "{context}");
        assert_own(&machine, V4, &uplinks, &context);
        assert_eq!(foreign(machine.fabric.host()), before, "{context}");
    }
}

/// The event in hand and the kernel are enough to do the work, and the trouble is said.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn unwritable_state_folder_does_not_stop_the_work() {
    let machine = Machine::configured(&Layout::separate(2));
    machine.shell("mkdir /run/leaseroute && mount -t tmpfs -o ro tmpfs /run/leaseroute");
    for family in Family::BOTH {
        for card in machine.fabric.cards() {
            let output = call(&machine, &bound_event(card, family));
            assert_eq!(output.status.code(), Some(9), "{}", said(&output));
            assert!(
                said(&output).contains("/run/leaseroute"),
                "{}",
                said(&output)
            );
            let own = Own::read(machine.fabric.host(), family);
            for distance in [10, 20, 30] {
                let rule = format!("{}: from {} ", 7600 + distance, card.address(family));
                assert!(
                    own.rules.iter().any(|r| r.starts_with(&rule)),
                    "no {rule}\n{own}"
                );
            }
        }
    }
    machine.assert_all_reach(&[V6]);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn without_permission_nothing_changes_and_the_log_says_why() {
    let machine = Machine::configured(&Layout::separate(2));
    let before = foreign(machine.fabric.host());
    for card in machine.fabric.cards() {
        let mut command = machine.command("setpriv");
        command
            .args([
                "--bounding-set",
                "-net_admin",
                "--inh-caps",
                "-all",
                "--",
                PROGRAM,
            ])
            .envs(bound_event(card, V4));
        let output = machine.output(command);
        if card.number == 0 {
            // With a second uplink that nobody has reported there may be nothing to do.
            continue;
        }
        assert_eq!(output.status.code(), Some(4), "{}", said(&output));
        assert!(said(&output).contains("CAP_NET_ADMIN"), "{}", said(&output));
    }
    assert!(Own::read(machine.fabric.host(), V4).is_empty());
    assert_eq!(foreign(machine.fabric.host()), before);
    // With permission the next event of any card completes it.
    let output = call(&machine, &bound_event(&machine.card(0), V4));
    assert!(output.status.success(), "{}", said(&output));
    assert_own(&machine, V4, &machine.faces(V4), &said(&output));
    machine.assert_all_reach(&[V4]);
}

/// A hook that is stopped while it holds the lock costs the next one only a bounded wait.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn held_lock_is_waited_for_only_so_long() {
    let machine = Machine::configured(&Layout::separate(2));
    let output = call(&machine, &bound_event(&machine.card(0), V4));
    assert!(output.status.success(), "{}", said(&output));
    let folder = machine.shell("ls -d /run/leaseroute/*/").trim().to_owned();
    let locks = machine.shell(&format!("find {folder} -name '*lock*' -type f"));
    let lock = locks
        .lines()
        .next()
        .unwrap_or_else(|| panic!("no lock in {folder}"));
    let mut holder = machine.command("flock");
    holder.args([lock, "sleep", "60"]);
    let mut holder = machine.fabric.host().spawn(holder).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut command = machine.command("timeout");
    command
        .args(["-s", "KILL", "25", PROGRAM])
        .envs(bound_event(&machine.card(1), V4));
    let output = machine.output(command);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    machine.shell("pkill -x sleep || true");
    holder.wait().unwrap();
    // The event was not lost: the next run of another card takes it in.
    let output = call(&machine, &bound_event(&machine.card(0), V4));
    assert!(output.status.success(), "{}", said(&output));
    assert_own(&machine, V4, &machine.faces(V4), &said(&output));
}
