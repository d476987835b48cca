//! Cards that no DHCP client looks after: what a script says of them with
//! `leaseroute apply --interface`, ifupdown's script on top of it, and wicked's scripts.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_e2e::host::{Host, program};
use leaseroute_e2e::kernel::{Own, foreign};
use leaseroute_lab::fabric::{Card, GATEWAY6, Ipv6Style, Layout, ipv4, ipv6};
use leaseroute_lab::probe::connect;

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;

/// A folder of programs of its own, so that files may be installed where packages put them.
const OWN_PROGRAMS: &str = "mkdir /mnt/bin /mnt/work/bin; mount -t overlay overlay \
     -o lowerdir=/usr/bin,upperdir=/mnt/bin,workdir=/mnt/work/bin /usr/bin";

/// A host with the command installed and nothing configured.
fn host(cards: u8) -> Host {
    let host = Host::new(&Layout::separate(cards), &["run-parts"]);
    host.shell(OWN_PROGRAMS);
    fs::copy(program("leaseroute"), host.path("/usr/bin/leaseroute")).unwrap();
    host
}

/// Gives a card addresses for ever, as a person would. Table main gets the default routes of
/// the first card only, as `ip route add default` allows one.
fn set_up(host: &Host, card: &Card) {
    let (name, v4, v6) = (&card.name, card.ipv4, card.ipv6);
    host.shell(&format!(
        "ip link set {name} up; ip addr add {v4}/24 dev {name}; ip addr add {v6}/64 dev {name} nodad"
    ));
    if card.number == 0 {
        let gateway = card.gateway4();
        host.shell(&format!(
            "ip route add default via {gateway} dev {name}; ip -6 route add default via {GATEWAY6} dev {name}"
        ));
    }
}

/// What a script says of a card.
fn words(card: &Card) -> Vec<String> {
    let words = format!(
        "--interface {} --address {}/24 --address {}/64 --gateway {} --gateway {GATEWAY6}",
        card.name,
        card.ipv4,
        card.ipv6,
        card.gateway4(),
    );
    words.split(' ').map(str::to_owned).collect()
}

fn leaseroute<S: AsRef<str>>(host: &Host, words: impl IntoIterator<Item = S>) -> Output {
    let mut command = host.command("/usr/bin/leaseroute");
    command.args(words.into_iter().map(|word| word.as_ref().to_owned()));
    host.output(command)
}

/// Runs it; it must succeed. Returns what it printed.
fn done<S: AsRef<str>>(host: &Host, words: impl IntoIterator<Item = S>) -> String {
    let output = leaseroute(host, words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}{error}", output.status);
    said
}

fn told(host: &Host, card: &Card) -> String {
    done(host, ["apply".to_owned()].into_iter().chain(words(card)))
}

fn assert_nothing_of_ours(host: &Host) {
    for family in Family::BOTH {
        let own = Own::read(host.fabric.host(), family);
        assert!(own.is_empty(), "{own:?}");
    }
}

#[test]
#[ignore = "needs root: tests/run"]
fn static_cards_are_reached_by_everybody_and_leave_no_trace() {
    let host = host(3);
    let cards: Vec<Card> = host.fabric.cards().cloned().collect();
    for card in &cards {
        set_up(&host, card);
    }
    let before = foreign(host.fabric.host());
    let second = host.card(1);
    for family in Family::BOTH {
        let soon = Duration::from_millis(500);
        let outcome = connect(host.fabric.client(), second.address(family), soon);
        assert!(!outcome.is_answered(), "answered without us: {outcome}");
    }

    for card in &cards {
        told(&host, card);
    }
    for family in Family::BOTH {
        host.wait_own(family, &host.faces(family));
    }
    host.assert_all_reach(&Family::BOTH);

    for card in &cards {
        let said = told(&host, card);
        let lines: Vec<&str> = said.lines().collect();
        let event = format!("# static of script: {} (IPv4 and IPv6)", card.name);
        assert_eq!(lines, [&event, "# IPv4: no change", "# IPv6: no change"]);
    }

    for _ in 0..2 {
        for card in &cards {
            done(&host, ["remove", card.name.as_str()]);
        }
        assert_nothing_of_ours(&host);
    }
    assert_eq!(foreign(host.fabric.host()), before);
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_call_replaces_the_families_that_it_names_or_adds_to_them() {
    let host = host(2);
    let cards: Vec<Card> = host.fabric.cards().cloned().collect();
    for card in &cards {
        set_up(&host, card);
        told(&host, card);
    }
    let second = host.card(1);
    let (name, other4, other6) = (&second.name, ipv4(1, 77), ipv6(1, 0x77));
    host.shell(&format!(
        "ip addr add {other4}/24 dev {name}; ip addr add {other6}/64 dev {name} nodad"
    ));

    let words = format!("apply --interface {name} --add --address {other4} --address {other6}");
    done(&host, words.split(' '));
    for family in Family::BOTH {
        let mut faces = host.faces(family);
        let other = match family {
            V4 => other4.into(),
            V6 => other6.into(),
        };
        faces.last_mut().unwrap().sources.push(other);
        host.wait_own(family, &faces);
    }
    let again = done(&host, words.split(' '));
    assert!(
        again.contains("# IPv4: no change\n# IPv6: no change\n"),
        "{again}"
    );

    let gateway = second.gateway4();
    let words = format!("apply --interface {name} --address {other4} --gateway {gateway}");
    done(&host, words.split(' '));
    let mut faces = host.faces(V4);
    let moved = faces.pop().unwrap().with_source(other4.into());
    faces.push(moved);
    host.wait_own(V4, &faces);
    let mut faces = host.faces(V6);
    faces.last_mut().unwrap().sources.push(other6.into());
    host.wait_own(V6, &faces);
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_card_that_is_gone_can_be_removed_all_the_same() {
    let mut host = host(3);
    let cards: Vec<Card> = host.fabric.cards().cloned().collect();
    for card in &cards {
        set_up(&host, card);
        told(&host, card);
    }
    host.fabric.unplug(2).unwrap();
    assert_eq!(leaseroute(&host, ["remove", "eth2"]).status.code(), Some(8));
    for _ in 0..2 {
        done(&host, ["remove", "--missing-ok", "eth2"]);
        for family in Family::BOTH {
            let faces: Vec<_> = host.faces(family);
            let left: Vec<_> = faces
                .into_iter()
                .filter(|face| face.name != "eth2")
                .collect();
            host.wait_own(family, &left);
        }
    }
    done(&host, ["remove", "--missing-ok", "eth1", "eth0"]);
    assert_nothing_of_ours(&host);
}

/// Runs the scripts of a folder of ifupdown's as it does, for one stanza: interfaces(5).
fn run_parts(host: &Host, folder: &str, card: &str, variables: &[(&str, String)]) {
    let mut command = host.command("run-parts");
    let (mode, phase) = match folder {
        "if-up.d" => ("start", "post-up"),
        _ => ("stop", "post-down"),
    };
    command
        .arg(format!("/etc/network/{folder}"))
        .env("IFACE", card)
        .env("LOGICAL", card)
        .env("MODE", mode)
        .env("PHASE", phase)
        .env("VERBOSITY", "0")
        .envs(variables.iter().map(|(name, value)| (*name, value)));
    assert_quiet(host, command);
}

/// A script says nothing and succeeds, whatever comes of it.
fn assert_quiet(host: &Host, command: Command) {
    let output = host.output(command);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// The two stanzas of a card, as Debian's ifupdown exports them: it has split the mask off the
/// address, and counts bits for IPv6.
fn stanzas(card: &Card) -> [Vec<(&'static str, String)>; 2] {
    let stanza = |family: &str, address: String, mask: &str, gateway: String| {
        vec![
            ("ADDRFAM", family.to_owned()),
            ("METHOD", "static".to_owned()),
            ("IF_ADDRESS", address),
            ("IF_NETMASK", mask.to_owned()),
            ("IF_GATEWAY", gateway),
        ]
    };
    [
        stanza(
            "inet",
            card.ipv4.to_string(),
            "255.255.255.0",
            card.gateway4().to_string(),
        ),
        stanza("inet6", card.ipv6.to_string(), "64", GATEWAY6.to_string()),
    ]
}

#[test]
#[ignore = "needs root: tests/run"]
fn ifupdowns_script_takes_static_stanzas_in_and_out() {
    let host = host(2);
    // Scripts of other packages are not the subject.
    host.shell("mkdir -p /etc/network; mount -t tmpfs tmpfs /etc/network");
    for folder in ["if-up.d", "if-post-down.d"] {
        let inside = format!("/etc/network/{folder}/leaseroute");
        host.install("ifupdown/leaseroute", &inside, 0o755);
    }
    let cards: Vec<Card> = host.fabric.cards().cloned().collect();
    for card in &cards {
        set_up(&host, card);
        for stanza in stanzas(card) {
            run_parts(&host, "if-up.d", card.name.as_str(), &stanza);
        }
    }
    for family in Family::BOTH {
        host.wait_own(family, &host.faces(family));
    }
    host.assert_all_reach(&Family::BOTH);

    // A second stanza of one family, and one by its old name of an alias.
    let second = host.card(1);
    for (last, name) in [(77, "eth1"), (78, "eth1:1")] {
        let more = ipv4(1, last);
        host.shell(&format!("ip addr add {more}/24 dev eth1"));
        let [mut stanza, _] = stanzas(&second);
        stanza.retain(|(variable, _)| *variable != "IF_GATEWAY");
        stanza.push(("IF_ADDRESS", format!("{more}/24")));
        run_parts(&host, "if-up.d", name, &stanza);
    }
    let mut faces = host.faces(V4);
    let sources = &mut faces.last_mut().unwrap().sources;
    sources.extend([77, 78].map(|last| std::net::IpAddr::from(ipv4(1, last))));
    host.wait_own(V4, &faces);
    host.shell("ip addr del 10.0.1.78/24 dev eth1");
    run_parts(&host, "if-post-down.d", "eth1:1", &stanzas(&second)[0]);
    faces.last_mut().unwrap().sources.pop();
    host.wait_own(V4, &faces);

    // What is not static, or is no interface, is none of its business.
    let state = |host: &Host| Family::BOTH.map(|family| Own::read(host.fabric.host(), family));
    let before = state(&host);
    for (name, method) in [("eth1", "dhcp"), ("--all", "none"), ("eth1", "manual")] {
        let stanza = [
            ("ADDRFAM", "inet".to_owned()),
            ("METHOD", method.to_owned()),
        ];
        run_parts(&host, "if-up.d", name, &stanza);
        run_parts(&host, "if-post-down.d", name, &stanza);
    }
    // A broken stanza does not fail either.
    for address in ["192.0.2.300", "--all", ""] {
        let stanza = [
            ("ADDRFAM", "inet".to_owned()),
            ("METHOD", "static".to_owned()),
            ("IF_ADDRESS", address.to_owned()),
        ];
        run_parts(&host, "if-up.d", "eth1", &stanza);
    }
    assert_eq!(state(&host), before);

    for card in &cards {
        let name = card.name.as_str();
        host.shell(&format!(
            "ip addr flush dev {name}; ip link set {name} down"
        ));
        for stanza in stanzas(card) {
            run_parts(&host, "if-post-down.d", name, &stanza);
        }
    }
    assert_nothing_of_ours(&host);
}

/// A lease file as wicked writes it (src/leaseinfo.c of wicked).
fn lease_info(card: &Card) -> String {
    let (name, address, gateway) = (&card.name, card.ipv4, card.gateway4());
    format!(
        "INTERFACE='{name}'\nTYPE='dhcp'\nFAMILY='ipv4'\n\
         UUID='b1a9c265-0f0e-0a00-0300-000003000000'\nIPADDR='{address}/24'\n\
         NETMASK='255.255.255.0'\nNETWORK='10.0.{}.0'\nPREFIXLEN='24'\nGATEWAYS='{gateway}'\n\
         SERVERID='{gateway}'\nACQUIRED='1796050000'\nLEASETIME='3600'\n",
        card.subnet,
    )
}

#[test]
#[ignore = "needs root: tests/run"]
fn wickeds_scripts_take_leases_in_and_out() {
    let host = host(2);
    host.install_program("leaseroute-wicked");
    let (module, script) = (
        "/etc/netconfig.d/leaseroute",
        "/etc/wicked/scripts/leaseroute",
    );
    host.install("wicked/netconfig.d/leaseroute", module, 0o755);
    host.install("wicked/scripts/leaseroute", script, 0o755);
    let calls = |script: &str, action: &str, card: &str| {
        let mut command = host.command(script);
        command.args([action, card].iter().filter(|word| !word.is_empty()));
        assert_quiet(&host, command);
    };
    // Before there is any lease there is nothing to do.
    calls(module, "", "");
    assert_nothing_of_ours(&host);

    let cards: Vec<Card> = host.fabric.cards().cloned().collect();
    for card in &cards {
        host.fabric
            .configure_static(card.number, Ipv6Style::Dhcp)
            .unwrap();
        let file = format!("/run/wicked/leaseinfo.{}.dhcp.ipv4", card.name);
        host.write(&file, &lease_info(card), 0o644);
    }
    calls(module, "", "");
    for family in Family::BOTH {
        host.wait_own(family, &host.faces(family));
    }
    host.assert_all_reach(&Family::BOTH);

    for card in &cards {
        let name = card.name.as_str();
        calls(script, "post-up", name);
        calls(script, "pre-down", name);
    }
    for family in Family::BOTH {
        host.wait_own(family, &host.faces(family));
    }
    for card in &cards {
        let name = card.name.as_str();
        fs::remove_file(host.path(&format!("/run/wicked/leaseinfo.{name}.dhcp.ipv4"))).unwrap();
        host.shell(&format!(
            "ip addr flush dev {name}; ip link set {name} down"
        ));
        calls(script, "post-down", name);
    }
    assert_nothing_of_ours(&host);
}
