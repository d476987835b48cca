//! What a metadata service adds to leases, and when: a service that lags behind the cards as
//! EC2's does, the real dhclient with its real script, strict fabrics, both families.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use leaseroute_core::Family;
use leaseroute_e2e::host::{Host, PROGRAMS};
use leaseroute_e2e::imds::{Activator, Imds, Told};
use leaseroute_e2e::kernel::{Own, ip};
use leaseroute_e2e::machine::{Hook, Machine};
use leaseroute_e2e::probes::Probes;
use leaseroute_e2e::servers::{Lan, Servers};
use leaseroute_e2e::wait_for;
use leaseroute_e2e::watcher::{CONFIGURATION, Watcher};
use leaseroute_lab::fabric::{Card, Layout, ipv4};

const V4: Family = Family::Ipv4;
const V6: Family = Family::Ipv6;

/// Tables by position: that of eth0 is 100, that of eth1 101.
const SETTINGS: &str = r#"
[tables]
scheme = "position"
base = 100

[metadata]
provider = "ec2"
"#;

/// What a service may have known for how long before its rule must be there.
const SOON: Duration = Duration::from_secs(1);

/// A host whose first card is bound in both families, with the program that asks, and the
/// service, which knows all of that card.
fn asking(settings: &str) -> (Machine, Vec<Servers>, Imds) {
    let mut machine = Machine::new(&Layout::separate(1), Hook::Installed);
    machine.install_program("leaseroute");
    machine.write(CONFIGURATION, settings, 0o644);
    let servers = Servers::start_all(&machine, &Lan::default());
    let imds = Imds::start(&machine);
    let first = machine.card(0);
    imds.set(&first, Told::of(&first));
    machine.start_clients(&Family::BOTH);
    machine.wait_event("BOUND eth0", 1);
    machine.wait_event("BOUND6 eth0", 1);
    (machine, servers, imds)
}

/// Plugs a second card in; its client is not started yet.
fn plug(machine: &mut Machine, servers: &mut Vec<Servers>, imds: &mut Imds) -> Card {
    let card = machine.fabric.attach(1).unwrap();
    imds.serve(machine, 1);
    servers.push(Servers::start(machine, 1, &Lan::default()));
    card
}

/// A further IPv4 address of the second card.
fn secondary() -> std::net::Ipv4Addr {
    ipv4(1, 77)
}

/// All that the service knows of the second card in the end.
fn all_of(card: &Card) -> Told {
    let mut told = Told::of(card);
    told.ipv4s.push(secondary());
    told.prefixes6.push("2001:db8:0:1:a::/80".to_owned());
    told
}

/// The sources of the second card in one family, with and without what only the service tells.
fn sources(card: &Card, family: Family, with_more: bool) -> Vec<String> {
    let mut sources = vec![card.address(family).to_string()];
    if with_more {
        sources.push(match family {
            Family::Ipv4 => secondary().to_string(),
            Family::Ipv6 => "2001:db8:0:1:a::/80".to_owned(),
        });
    }
    sources
}

/// Our rules of one family for the sources of cards, by position.
fn rules(family: Family, cards: &[Vec<String>]) -> BTreeSet<String> {
    let main = if family == V4 { 1 } else { 4 };
    let mut rules = BTreeSet::new();
    for (number, sources) in cards.iter().enumerate() {
        let table = 100 + number;
        let sources = sources.iter().map(|source| format!("from {source}"));
        for selector in sources.chain([format!("from all oif eth{number}")]) {
            rules.insert(format!("7610: {selector} lookup {table} suppress 0"));
            rules.insert(format!("7620: {selector} lookup 254 suppress {main}"));
            rules.insert(format!("7630: {selector} lookup {table}"));
        }
    }
    rules
}

/// Our rules when both cards are bound.
fn both(machine: &Host, card: &Card, family: Family, with_more: bool) -> BTreeSet<String> {
    let first = vec![machine.card(0).address(family).to_string()];
    rules(family, &[first, sources(card, family, with_more)])
}

fn wait_rules(machine: &Host, family: Family, expected: &BTreeSet<String>) {
    wait_for(&format!("the {family} rules are right"), || {
        let own = Own::read(machine.fabric.host(), family).rules;
        if own == *expected {
            return Ok(());
        }
        let missing: Vec<_> = expected.difference(&own).collect();
        let too_many: Vec<_> = own.difference(expected).collect();
        let logs = machine.logs();
        Err(format!(
            "missing {missing:#?}\ntoo many {too_many:#?}\n{logs}"
        ))
    });
}

/// The card appears; the service does not list it for a second, then lists it without IPv6
/// for four, then knows all. Nothing of that delays or spoils what the lease needs.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn service_that_lags_behind_a_new_card_is_waited_for() {
    let (mut machine, mut servers, mut imds) = asking(SETTINGS);
    let _activator = Activator::start(&machine);
    let card = plug(&mut machine, &mut servers, &mut imds);
    // Else the router's own waiting for an answer from an address that nobody has yet would be
    // taken for the host's.
    for family in Family::BOTH {
        let (router, address) = (machine.fabric.router(1).unwrap(), card.address(family));
        let (port, mac) = (&card.port, card.mac);
        let to = format!("neigh replace {address} lladdr {mac} dev {port} nud permanent");
        ip(router, &to);
    }
    let faces: Vec<_> = Family::BOTH
        .into_iter()
        .flat_map(|family| machine.faces(family))
        .collect();
    let probes = Probes::start(&machine.fabric, &faces);
    let astray = machine.fabric.dropped(0).unwrap();
    let begun = Instant::now();
    let (bound, known, seen) = std::thread::scope(|scope| {
        let cloud = scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            imds.set(&card, Told::without_ipv6(&card));
            std::thread::sleep(Duration::from_secs(4));
            imds.set(&card, all_of(&card));
            Instant::now()
        });
        for family in Family::BOTH {
            machine.start_client(card.number, family);
        }
        let host = machine.fabric.host();
        let mut bound = [None; 2];
        let mut seen = [None; 2];
        let wanted = Family::BOTH.map(|family| both(&machine, &card, family, true));
        let leased = Family::BOTH.map(|family| both(&machine, &card, family, false));
        let reasons = ["BOUND eth1", "BOUND6 eth1"];
        while seen.contains(&None) {
            assert!(
                begun.elapsed() < leaseroute_e2e::PATIENCE,
                "waited in vain: {bound:?} {seen:?} {:#?}\n{}",
                imds.asked(),
                machine.logs()
            );
            for at in 0..2 {
                let family = [V4, V6].get(at).copied().unwrap();
                let was_bound = bound.get(at).copied().flatten();
                let own = Own::read(host, family).rules;
                let wrong: Vec<_> = own.difference(wanted.get(at).unwrap()).collect();
                assert!(wrong.is_empty(), "{wrong:#?}\n{}", machine.logs());
                if was_bound.is_some() {
                    let lost: Vec<_> = leased.get(at).unwrap().difference(&own).collect();
                    assert!(lost.is_empty(), "{lost:#?}\n{}", machine.logs());
                } else if machine.seen(reasons.get(at).unwrap()) > 0 {
                    *bound.get_mut(at).unwrap() = Some(Instant::now());
                }
                if own == *wanted.get(at).unwrap() {
                    seen.get_mut(at).unwrap().get_or_insert_with(Instant::now);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        (bound, cloud.join().unwrap(), seen)
    });
    std::thread::sleep(Duration::from_millis(500));
    let bound = bound.map(Option::unwrap);
    for (family, (bound, seen)) in Family::BOTH.into_iter().zip(bound.into_iter().zip(seen)) {
        let late = seen.unwrap().saturating_duration_since(known);
        println!(
            "{family}: bound after {:?}; all rules {late:?} after the service knew all",
            bound - begun
        );
        assert!(late < SOON, "{family}: {late:?}");
    }
    assert!(bound.iter().all(|bound| *bound < known), "bound too late");
    // From the end of its family's hook on no attempt fails, and at the first card none ever.
    for (family, bound) in Family::BOTH.into_iter().zip(bound) {
        for (caller, place, good, bad) in probes.count(bound) {
            if Family::of(place.address) == family {
                assert_eq!(bad, 0, "{caller} to {place:?}\n{}", machine.logs());
                assert!(good > 50, "{caller} to {place:?}: {good}");
            }
        }
    }
    // The first SYN after the address is there is answered rightly, and so is every other one.
    let of_card: Vec<_> = faces
        .into_iter()
        .filter(|face| face.name == "eth1")
        .collect();
    probes.ask(&of_card);
    let failed = probes.failed_once_there(begun);
    assert!(failed.is_empty(), "{failed:#?}\n{}", machine.logs());
    for seen in probes.seen(begun) {
        println!(
            "{} to {} {}: {} failed while the address was not there yet; outage and heal {:?}",
            seen.caller, seen.place.name, seen.place.address, seen.failed, seen.times
        );
    }
    let astray = machine.fabric.dropped(0).unwrap() - astray;
    assert_eq!(astray, 0, "packets went astray by eth0");
    let asked = imds.asked_of(&card);
    let rate = imds.most_in_a_second();
    println!(
        "{} requests about eth1, {} in all, at most {rate} in a second",
        asked.len(),
        imds.asked().len()
    );
    let addresses = Family::BOTH.map(|family| card.address(family));
    for asked in &asked {
        assert_eq!(asked.subnet, 1, "{asked:?}");
        assert!(addresses.contains(&asked.peer), "{asked:?}");
    }
    assert!((20..250).contains(&asked.len()), "{}", asked.len());
    assert!(rate <= 100, "{rate}");
}

/// With no socket there the watcher asks by itself, and it ends at once in the middle of that.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn watcher_asks_where_nobody_else_does() {
    let (mut machine, mut servers, mut imds) = asking(SETTINGS);
    let watcher = Watcher::start_and_wait(&machine);
    let card = plug(&mut machine, &mut servers, &mut imds);
    let known = std::thread::scope(|scope| {
        let cloud = scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            imds.set(&card, Told::without_ipv6(&card));
            std::thread::sleep(Duration::from_secs(3));
            imds.set(&card, all_of(&card));
            Instant::now()
        });
        for family in Family::BOTH {
            machine.start_client(card.number, family);
        }
        cloud.join().unwrap()
    });
    for family in Family::BOTH {
        wait_rules(&machine, family, &both(&machine, &card, family, true));
    }
    println!("all rules {:?} after the service knew all", known.elapsed());
    // The card is asked about anew, in vain; the end does not wait for that.
    imds.set(&card, Told::default());
    let before = imds.asked_of(&card).len();
    imds.suffer(leaseroute_e2e::imds::Trouble::Silent);
    ip(
        machine.fabric.host(),
        "-6 addr add 2001:db8:0:1::99/64 dev eth1 valid_lft 600 preferred_lft 600 nodad",
    );
    wait_for("the service is asked", || {
        let asked = imds.asked().len();
        if asked > before && imds.asked().last().unwrap().status == 0 {
            Ok(())
        } else {
            Err(format!("{:#?}\n{}", imds.asked().last(), machine.logs()))
        }
    });
    let told = Instant::now();
    watcher.send(&machine, "TERM");
    assert!(watcher.ended().success(), "{}", machine.logs());
    println!("ended {:?} after SIGTERM", told.elapsed());
    assert!(told.elapsed() < Duration::from_secs(1));
}

/// A card that no client tells of is asked about by hand.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_with_a_static_address_is_asked_about_by_name() {
    let (mut machine, mut servers, mut imds) = asking(SETTINGS);
    let card = plug(&mut machine, &mut servers, &mut imds);
    drop(servers);
    imds.set(&card, all_of(&card));
    let host = machine.fabric.host();
    ip(host, "link set eth1 up");
    ip(host, "addr add 10.0.1.10/24 dev eth1");
    ip(host, "route add default via 10.0.1.1 dev eth1 metric 101");
    let said = machine.shell(&format!("{PROGRAMS}/leaseroute metadata --interface eth1"));
    println!("{said}");
    wait_rules(&machine, V4, &both(&machine, &card, V4, true));
    assert!(imds.asked_of(&card).iter().all(|asked| asked.subnet == 1));
}

/// A card without IPv4 reaches the service at its IPv6 address.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_without_ipv4_is_asked_about_by_ipv6() {
    let (mut machine, mut servers, mut imds) = asking(SETTINGS);
    let card = plug(&mut machine, &mut servers, &mut imds);
    imds.set(
        &card,
        Told {
            ipv4s: Vec::new(),
            subnet4: None,
            ..all_of(&card)
        },
    );
    machine.start_client(card.number, V6);
    wait_rules(&machine, V6, &both(&machine, &card, V6, false));
    let said = machine.shell(&format!("{PROGRAMS}/leaseroute metadata --interface eth1"));
    println!("{said}");
    wait_rules(&machine, V6, &both(&machine, &card, V6, true));
    let asked = imds.asked_of(&card);
    assert!(
        asked.iter().all(|asked| asked.peer == card.ipv6),
        "{asked:#?}"
    );
}

/// The routing policy of the second card, as whoever reads the exported netplan file sees it.
fn exported_policy(machine: &Host) -> Vec<String> {
    let read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let text = machine.shell(&format!(
        "{PROGRAMS}/leaseroute export --format netplan >/run/exported
        python3 -c '{read}' </run/exported"
    ));
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let policy = plan.pointer("/network/ethernets/eth1/routing-policy");
    let entries = policy.and_then(|policy| policy.as_array());
    let entries = entries.unwrap_or_else(|| panic!("no policy: {plan:#}"));
    entries.iter().map(ToString::to_string).collect()
}

/// An entry for each source, IPv4 first.
fn policy(card: &Card, with_more: bool) -> Vec<String> {
    let sources = Family::BOTH.map(|family| sources(card, family, with_more));
    let sources = sources.into_iter().flatten();
    sources
        .map(|source| serde_json::json!({"from": source, "table": 101}).to_string())
        .collect()
}

/// At every moment since the card is bound in both families the export says what the lease gives,
/// and nothing that only the service could know before it does.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn export_is_right_at_every_moment_since_the_card_is_bound() {
    let (mut machine, mut servers, mut imds) = asking(SETTINGS);
    let _activator = Activator::start(&machine);
    let card = plug(&mut machine, &mut servers, &mut imds);
    let (leased, all) = (policy(&card, false), policy(&card, true));
    let lag = Duration::from_secs(4);
    let (mut early, mut late) = (0, 0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            imds.set(&card, Told::without_ipv6(&card));
            std::thread::sleep(lag - began.elapsed());
            imds.set(&card, all_of(&card));
        });
        for family in Family::BOTH {
            machine.start_client(card.number, family);
        }
        machine.wait_event("BOUND eth1", 1);
        machine.wait_event("BOUND6 eth1", 1);
        while late < 3 {
            let seen = exported_policy(&machine);
            let passed = began.elapsed();
            if seen == leased && passed < lag + SOON + SOON {
                early += 1;
            } else {
                assert_eq!(seen, all, "after {passed:?}\n{}", machine.logs());
                assert!(passed >= lag, "after {passed:?}: {seen:?}");
                late += 1;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    println!("{early} times what the lease gives, then all");
    assert!(early >= 3, "{early}");
}
