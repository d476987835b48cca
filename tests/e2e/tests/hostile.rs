//! Whoever answers DHCP first chooses every value in a lease: a clear line in the log,
//! nothing wrong in the kernel, and the client keeps its lease.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::net::Ipv4Addr;

use leaseroute_core::Family;
use leaseroute_e2e::kernel::{Own, foreign};
use leaseroute_e2e::machine::{Hook, Machine, PROGRAM};
use leaseroute_e2e::responder::{Responder, Terms};
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_lab::fabric::{Ipv6Style, Layout};

const V4: Family = Family::Ipv4;
/// Refused whole.
const REFUSED: i32 = 3;
/// There is no such interface.
const NO_INTERFACE: i32 = 8;
/// More than this is no clear line.
const CLEAR: usize = 2000;

/// A host on which both cards are bound and set up, and what must not change.
fn settled() -> (Machine, Vec<(String, String)>) {
    let machine = Machine::new(&Layout::separate(2), Hook::Absent);
    for card in machine.fabric.cards() {
        machine
            .fabric
            .configure_static(card.number, Ipv6Style::Dhcp)
            .unwrap();
    }
    let mut good = Vec::new();
    for card in machine.fabric.cards() {
        good = [
            ("interface", card.name.to_string()),
            ("reason", "BOUND".to_owned()),
            ("new_ip_address", card.ipv4.to_string()),
            ("new_subnet_mask", "255.255.255.0".to_owned()),
            ("new_routers", card.gateway4().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
        call(&machine, &good, &[]);
    }
    machine.wait_own(V4, &machine.faces(V4));
    (machine, good)
}

/// Calls the program with the good lease of the second card and these values in place of
/// its own. Returns the exit status and the log.
fn call(machine: &Machine, good: &[(String, String)], bad: &[(&str, &str)]) -> (i32, String) {
    let mut command = machine.command(PROGRAM);
    command.envs(good.iter().cloned()).envs(bad.iter().copied());
    let output = machine.output(command);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), log)
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn impossible_events_are_refused_whole() {
    let (machine, good) = settled();
    let before = foreign(machine.fabric.host());
    let long = "x".repeat(65536);
    let names = [
        "../../etc/passwd",
        "eth1/../eth0",
        "eth1\nreason=RELEASE",
        "eth1 eth0",
        "eth1:0",
        "sixteen-octets-x",
        ".",
        "..",
        "",
        "$(touch /run/pwned)",
        long.as_str(),
    ];
    let addresses = [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.5",
        "255.255.255.255",
        "10.0.1.256",
        "10.0.1",
        "10.0.1.10/24",
        "10.0.1.10; touch /run/pwned",
        "`touch /run/pwned`",
        long.as_str(),
    ];
    let cases = names
        .iter()
        .map(|name| ("interface", *name))
        .chain(addresses.iter().map(|address| ("new_ip_address", *address)));
    for (variable, value) in cases {
        let shown: String = value.chars().take(40).collect();
        let (status, log) = call(&machine, &good, &[(variable, value)]);
        // A longer name may be an alternative one, but no card here has it.
        let refused = (status == REFUSED && log.contains("refused"))
            || (status == NO_INTERFACE && log.contains("no such interface"));
        assert!(refused, "{variable}={shown}: {status}: {log}");
        let is_clear = log.lines().count() == 1 && log.len() < CLEAR;
        assert!(is_clear, "{variable}={shown}: {log}");
        machine.wait_own(V4, &machine.faces(V4));
    }
    assert_eq!(foreign(machine.fabric.host()), before);
    assert!(!machine.path("/run/pwned").exists());
}

/// The client has changed the address, and what it says of the new one cannot be.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn refused_event_leaves_nothing_of_an_address_that_is_gone() {
    let (machine, good) = settled();
    let card = machine.card(1);
    machine.shell(&format!("ip addr del {}/24 dev {}", card.ipv4, card.name));
    let (status, _) = call(&machine, &good, &[("new_ip_address", "10.0.1.256")]);
    assert_eq!(status, REFUSED);
    let own = machine.shell("ip -4 rule");
    assert!(!own.contains(&card.ipv4.to_string()), "{own}");
}

/// What a caller may do to a program's standard descriptors.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn closed_descriptors_and_readers_that_left_cost_nothing() {
    let (machine, good) = settled();
    // Then some of the log comes while the lock is held.
    machine.write(
        "/etc/leaseroute/config.toml",
        "[log]\nlevel = \"debug\"\n",
        0o644,
    );
    for (what, script) in [
        ("all closed", "exec <&- >&- 2>&-; exec \"$0\""),
        ("output closed", "exec >&- 2>&-; exec \"$0\""),
        (
            "the log is full, and its reader asleep",
            "{ head -c 65536 /dev/zero; timeout 2 \"$0\"; echo $? >/run/status; } 2>&1 | sleep 3; \
             exit \"$(cat /run/status)\"",
        ),
        (
            "nobody reads the log",
            "{ sleep 0.3; \"$0\"; echo $? >/run/status; } 2>&1 | true; \
             exit \"$(cat /run/status)\"",
        ),
    ] {
        machine.shell("ip -4 rule flush; ip -4 rule add table main pref 32766");
        let mut shell = machine.command("sh");
        shell
            .args(["-c", script, PROGRAM])
            .envs(good.iter().cloned());
        let status = machine.output(shell).status;
        assert!(status.success(), "{what}: {status}");
        machine.wait_own(V4, &machine.faces(V4));
        let strange = machine.shell("find /run/leaseroute -name lock -size +0");
        assert_eq!(strange, "", "{what}: the log is in the lock");
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn bad_fields_are_dropped_and_named() {
    let (machine, good) = settled();
    let before = foreign(machine.fabric.host());
    let long = "9".repeat(65536);
    let many = "10.0.1.1 ".repeat(10_000);
    // Each is dropped, and the rest of the lease gives what the good one gives.
    let cases = [
        ("new_subnet_mask", "255.0.255.0"),
        ("new_subnet_mask", "$(touch /run/pwned)"),
        ("new_subnet_mask", long.as_str()),
        ("new_interface_mtu", "9999999999"),
        ("new_interface_mtu", "1;touch /run/pwned"),
        ("new_interface_mtu", long.as_str()),
        ("new_rfc3442_classless_static_routes", "24 10 0"),
        (
            "new_rfc3442_classless_static_routes",
            "33 10 0 0 0 0 10 0 1 1",
        ),
        ("new_rfc3442_classless_static_routes", "a b c"),
        ("new_rfc3442_classless_static_routes", "24 300 1 1 10 0 1 1"),
        ("new_rfc3442_classless_static_routes", "$(touch /run/pwned)"),
        ("new_rfc3442_classless_static_routes", long.as_str()),
        ("new_routers", "10.0.1.1 127.0.0.1 224.0.0.1 999.0.0.1"),
        ("new_routers", "0.0.0.0 255.255.255.255 10.0.1.1"),
        ("new_routers", "; 10.0.1.1"),
    ];
    for (variable, value) in cases {
        let shown: String = value.chars().take(40).collect();
        let (status, log) = call(&machine, &good, &[(variable, value)]);
        assert_eq!(status, 0, "{variable}={shown}: {log}");
        assert!(log.len() < CLEAR, "{variable}={shown}: {log}");
        machine.wait_own(V4, &machine.faces(V4));
    }
    // What has no use for us is not even looked at.
    for variable in [
        "new_host_name",
        "new_domain_name",
        "new_root_path",
        "new_unknown_224",
    ] {
        let (status, log) = call(
            &machine,
            &good,
            &[(variable, "`touch /run/pwned`;$(reboot)")],
        );
        assert_eq!(status, 0, "{variable}: {log}");
        machine.wait_own(V4, &machine.faces(V4));
    }
    // Ten thousand routers are more than a value may hold: no router, so no default.
    let (status, log) = call(&machine, &good, &[("new_routers", &many)]);
    assert_eq!(status, 0, "{log}");
    assert!(log.contains("new_routers") && log.len() < CLEAR, "{log}");
    // Ten thousand routes likewise.
    let routes = "24 10 9 9 10 0 1 1 ".repeat(10_000);
    let name = "new_rfc3442_classless_static_routes";
    let (status, log) = call(&machine, &good, &[(name, &routes[..100_000])]);
    assert_eq!(status, 0, "{log}");
    assert!(log.contains(name) && log.len() < CLEAR, "{log}");
    // And the next good lease puts everything right.
    let (status, log) = call(&machine, &good, &[]);
    assert_eq!(status, 0, "{log}");
    machine.wait_own(V4, &machine.faces(V4));
    assert_eq!(foreign(machine.fabric.host()), before);
    assert!(!machine.path("/run/pwned").exists());
}

/// Routes that may never be set, beside one that may.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn dangerous_routes_are_refused_one_by_one() {
    let (machine, good) = settled();
    let routes = "8 127 10 0 1 1 4 224 10 0 1 1 24 192 0 2 10 0 1 1 32 0 0 0 0 10 0 1 1 0 10 0 1 1";
    let name = "new_rfc3442_classless_static_routes";
    let (status, log) = call(&machine, &good, &[(name, routes)]);
    assert_eq!(status, 0, "{log}");
    let own = Own::read(machine.fabric.host(), V4);
    assert!(
        own.routes
            .iter()
            .any(|route| route.contains(": 192.0.2.0/24 via 10.0.1.1 dev eth1")),
        "{own}"
    );
    let bad = ["127.", "224.", ": 0.0.0.0"];
    let seen: Vec<_> = own
        .routes
        .iter()
        .filter(|r| bad.iter().any(|b| r.contains(b)))
        .collect();
    assert!(seen.is_empty(), "{seen:?}");
    assert!(
        log.contains("3 of its routes") && log.contains("127.0.0.0/8"),
        "{log}"
    );
}

/// What can pass through a real client does.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn real_client_keeps_its_lease_from_a_hostile_server() {
    let mut machine = Machine::new(&Layout::separate(2), Hook::Installed);
    let lan = Lan {
        v6: Ipv6::Without,
        ..Lan::default()
    };
    let _servers = Servers::start(&machine, 0, &lan);
    let card = machine.card(1);
    let command: &[u8] = b"$(touch /run/pwned);`touch /run/pwned`|touch /run/pwned\n";
    let good = Terms {
        times: [1, 3000, 3600],
        ..Terms::of(&card, 3600)
    };
    let impossible = [
        [0, 0, 0, 0],
        [255, 255, 255, 255],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
    ];
    let impossible = impossible.map(Ipv4Addr::from).into_iter();
    // Text that a shell would run, an option that is cut off, one with an impossible prefix
    // length, routers that cannot be, and more of them than fit into one option.
    let cut_off = vec![24, 192, 0];
    let too_long = vec![99, 192, 0, 2, 10, 0, 1, 1, 0, 10, 0, 1, 1];
    let text = [12, 15, 17].map(|number| (number, command.to_vec()));
    let hostile = [
        Terms {
            options: [vec![(121, cut_off), (26, vec![0xff, 0xff])], text.to_vec()].concat(),
            ..good.clone()
        },
        Terms {
            options: vec![(121, too_long)],
            routers: impossible.chain([card.gateway4()]).collect(),
            ..good.clone()
        },
        Terms {
            routers: vec![card.gateway4(); 200],
            ..good.clone()
        },
    ];
    let responder = Responder::start(&machine, &card, good, &[card.ipv4]);
    machine.start_clients(&[V4]);
    machine.wait_own(V4, &machine.faces(V4));
    for (number, terms) in hostile.into_iter().enumerate() {
        let shown = format!("{:?} {:?}", terms.options, terms.routers.len());
        responder.change(|now| *now = terms);
        let renewed = |begins: &str| {
            machine
                .events()
                .iter()
                .filter(|e| e.starts_with(begins))
                .count()
        };
        machine.wait_event("RENEW eth1", renewed("RENEW eth1") + 2);
        let log = machine.log(1, V4);
        assert!(!log.contains("DHCPDECLINE"), "{number}: {shown}\n{log}");
        assert_eq!(renewed("EXPIRE eth1"), 0, "{number}: {shown}\n{log}");
        machine.wait_own(V4, &machine.faces(V4));
        machine.assert_reached(card.ipv4.into());
    }
    assert!(!machine.path("/run/pwned").exists());
}
