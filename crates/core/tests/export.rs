//! The desired state in the words of others: what netplan's rules are, and that no name
//! breaks out of a format.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

use leaseroute_core::export::{Export, Format, Inputs, MARK, Options, describe, export};
use leaseroute_core::{
    Client, Family, Host, InterfaceName, LeaseBook, RawEvent, Settings, TableScheme, When,
    desired_state,
};
use serde_json::{Value, json};

/// A name with everything that one of the formats acts on.
const HOSTILE: &str = r#"e'"$(x)#%n"#;
/// One that ends a line for YAML 1.1, in a comment too.
const BREAKS: &str = "\u{2028}dhcp4";

/// Two cards by DHCP and router advertisements, and a container bridge.
fn host(second: &str) -> Host {
    let host = json!({
        "links": {
            "2": {"index": 2, "name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 1500, "up": true},
            "3": {"index": 3, "name": second, "mac": "02:00:00:00:00:02", "mtu": 1500, "up": true},
            "4": {"index": 4, "name": "docker0", "mtu": 1500, "up": true, "kind": "bridge"},
        },
        "addresses": [
            {"index": 2, "address": "10.0.0.5/24"},
            {"index": 2, "address": "2001:db8::5/128"},
            {"index": 2, "address": "fe80::5/64", "flags": {"permanent": true}},
            {"index": 3, "address": "10.0.1.5/24"},
            {"index": 3, "address": "2001:db8:1::5/128"},
            {"index": 3, "address": "fe80::6/64", "flags": {"permanent": true}},
            {"index": 4, "address": "172.17.0.1/16", "flags": {"permanent": true}},
        ],
        "rules": [
            {"family": "ipv4", "priority": 0, "action": "lookup", "table": 255, "protocol": 2},
            {"family": "ipv6", "priority": 0, "action": "lookup", "table": 255, "protocol": 2},
        ],
        "main": [
            {"table": 254, "destination": "0.0.0.0/0", "gateway": "10.0.0.1", "oif": 2, "metric": 100,
             "protocol": 16, "kind": "unicast"},
            {"table": 254, "destination": "0.0.0.0/0", "gateway": "10.0.1.1", "oif": 3, "metric": 200,
             "protocol": 16, "kind": "unicast"},
            {"table": 254, "destination": "::/0", "gateway": "fe80::1", "oif": 2, "metric": 1024,
             "protocol": 9, "kind": "unicast"},
            {"table": 254, "destination": "::/0", "gateway": "fe80::1", "oif": 3, "metric": 1024,
             "protocol": 9, "kind": "unicast"},
        ],
    });
    serde_json::from_value(host).unwrap()
}

/// The leases of both cards, as dhclient tells of them.
fn book(host: &Host) -> LeaseBook {
    let mut book = LeaseBook::default();
    for (index, link) in [(2, 0), (3, 1)] {
        let card = host
            .links
            .values()
            .find(|l| l.index.get() == index)
            .unwrap();
        let words = [
            ("reason", "BOUND".to_owned()),
            ("interface", card.name.to_string()),
            ("new_ip_address", format!("10.0.{link}.5")),
            ("new_subnet_mask", "255.255.255.0".to_owned()),
            ("new_routers", format!("10.0.{link}.1")),
        ];
        let words = words.map(|(key, value)| (key.to_owned(), value));
        let raw = RawEvent::new(Client::Dhclient, words.into());
        let event = raw.client.parse(&raw).unwrap().event.unwrap();
        book.fold(&event, Some(&raw), host, 0);
    }
    book
}

fn settings() -> Settings {
    Settings {
        tables: TableScheme::Position {
            base: 100,
            order: Vec::new(),
        },
        ..Settings::default()
    }
}

fn with<T>(host: &Host, settings: &Settings, then: impl FnOnce(Inputs<'_>) -> T) -> T {
    let book = book(host);
    let desired = |family| desired_state(family, host, &book, settings);
    let (ipv4, ipv6) = (desired(Family::Ipv4), desired(Family::Ipv6));
    then(Inputs {
        host,
        book: &book,
        settings,
        ipv4: &ipv4,
        ipv6: &ipv6,
    })
}

fn exported(format: Format, options: Options, second: &str) -> Export {
    with(&host(second), &settings(), |inputs| {
        export(format, options, inputs)
    })
}

fn netplan(options: Options, second: &str) -> (String, Value) {
    let export = exported(Format::Netplan, options, second);
    let text = export.files[0].text.clone();
    let value = serde_saphyr::from_str(&text).unwrap();
    (text, value)
}

#[test]
fn the_first_secondary_card_has_a_rule_for_each_source_and_nothing_else() {
    let (_, value) = netplan(Options::default(), "eth1");
    let cards = &value["network"]["ethernets"];
    assert_eq!(
        cards["eth1"]["routing-policy"],
        json!([
            {"from": "10.0.1.5", "table": 101},
            {"from": "2001:db8:1::5", "table": 101},
        ])
    );
    assert_eq!(
        cards["eth0"]["routing-policy"],
        json!([{"from": "10.0.0.5", "table": 100}, {"from": "2001:db8::5", "table": 100}])
    );
}

#[test]
fn both_overrides_are_equal_and_the_first_card_comes_first() {
    let (_, value) = netplan(Options::default(), "eth1");
    for (name, metric) in [("eth0", 100), ("eth1", 200)] {
        let card = &value["network"]["ethernets"][name];
        assert_eq!(card["dhcp4-overrides"], json!({"route-metric": metric}));
        assert_eq!(card["dhcp4-overrides"], card["dhcp6-overrides"]);
        assert_eq!(
            (&card["dhcp4"], &card["dhcp6"]),
            (&json!(true), &json!(true))
        );
        assert_eq!(card["set-name"], json!(name));
    }
}

#[test]
fn netplan_finds_containers_by_throw_routes_or_by_rules_that_come_first() {
    let thrown = json!({"to": "172.17.0.0/16", "type": "throw", "table": 101});
    let named = json!({"to": "172.17.0.0/16", "table": 254, "priority": 7620});
    let has = |value: &Value, key: &str, what: &Value| {
        let cards = value["network"]["ethernets"].as_object().unwrap();
        let mut lists = cards.values().filter_map(|card| card[key].as_array());
        lists.any(|list| list.contains(what))
    };
    let (_, without) = netplan(Options::default(), "eth1");
    assert!(has(&without, "routes", &thrown) && !has(&without, "routing-policy", &named));
    let (_, with) = netplan(Options { priorities: true }, "eth1");
    assert!(!has(&with, "routes", &thrown) && has(&with, "routing-policy", &named));
    let last = json!({"from": "10.0.1.5", "table": 101, "priority": 7630});
    assert!(has(&with, "routing-policy", &last));
}

#[test]
fn without_a_policy_the_cards_are_still_described() {
    let mut alone = host("eth1");
    alone.links.retain(|index, _| index.get() == 2);
    alone.addresses.retain(|a| a.index.get() == 2);
    alone
        .main
        .retain(|r| r.oif.is_some_and(|index| index.get() == 2));
    let settings = Settings {
        when: When::Multihomed,
        ..settings()
    };
    let desired = |family| desired_state(family, &alone, &LeaseBook::default(), &settings);
    let (ipv4, ipv6) = (desired(Family::Ipv4), desired(Family::Ipv6));
    let inputs = Inputs {
        host: &alone,
        book: &LeaseBook::default(),
        settings: &settings,
        ipv4: &ipv4,
        ipv6: &ipv6,
    };
    for format in Format::ALL {
        let text = &export(format, Options::default(), inputs).files[0].text;
        assert!(text.contains("one uplink"), "{text}");
        assert!(!text.contains("7610"), "{text}");
    }
    let netplan = export(Format::Netplan, Options::default(), inputs);
    let value: Value = serde_saphyr::from_str(&netplan.files[0].text).unwrap();
    let card = &value["network"]["ethernets"]["eth0"];
    assert_eq!(card["dhcp4"], json!(true));
    assert!(card.get("routes").is_none() && card.get("routing-policy").is_none());
}

#[test]
fn no_name_breaks_out_of_a_format() {
    assert!(BREAKS.parse::<InterfaceName>().is_ok());
    for name in [HOSTILE, BREAKS, "a\\", "renderer", "-x", "[x]", "null", "é"] {
        for priorities in [false, true] {
            let (text, value) = netplan(Options { priorities }, name);
            assert_eq!(
                value["network"]["ethernets"].as_object().unwrap().len(),
                2,
                "{text}"
            );
            assert_eq!(value.as_object().unwrap().len(), 1, "{text}");
            assert_eq!(value["network"].as_object().unwrap().len(), 2, "{text}");
        }
        for format in Format::ALL {
            let plain = exported(format, Options::default(), "eth1");
            let export = exported(format, Options::default(), name);
            assert_eq!(plain.files.len(), export.files.len(), "{name}");
            for file in &export.files {
                let good = |c: char| c.is_ascii_alphanumeric() || "/._-=".contains(c);
                assert!(file.path.chars().all(good), "{}", file.path);
                assert!(!file.path.contains(".."), "{}", file.path);
                if format != Format::Ip {
                    assert!(file.text.starts_with(MARK), "{}", file.text);
                    assert!(file.text.is_ascii(), "{}", file.text);
                }
            }
            // Out of comments and quotes it is nowhere.
            if matches!(format, Format::Networkd | Format::Nmconnection) && name == HOSTILE {
                let lines = export.files.iter().flat_map(|file| file.text.lines());
                for line in lines.filter(|line| !line.starts_with('#')) {
                    assert!(!line.contains(['\'', '"', '$', '%', '#']), "{line}");
                }
            }
        }
        let nmstate = exported(Format::Nmstate, Options::default(), name);
        let value: Value = serde_saphyr::from_str(&nmstate.files[0].text).unwrap();
        let names: Vec<&Value> = value["interfaces"].as_array().unwrap().iter().collect();
        assert_eq!((names.len(), &names[1]["name"]), (2, &json!(name)));
    }
}

#[test]
fn a_shell_takes_a_name_as_one_word() {
    let script = &exported(Format::Ip, Options::default(), HOSTILE).files[0].text;
    let word = r#"'e'\''"$(x)#%n'"#;
    assert!(script.contains(&format!("dev {word} ")), "{script}");
    assert!(script.contains(&format!("oif {word} ")), "{script}");
    let commands = script.lines().filter(|line| line.starts_with("have -"));
    for line in commands {
        let rest = line.replace(word, "");
        assert!(!rest.contains(['\'', '"', '$', '#']), "{line}");
    }
}

#[test]
fn programs_are_told_of_every_card_and_its_gateway() {
    let value = with(&host("eth1"), &settings(), |inputs| {
        serde_json::to_value(describe(inputs)).unwrap()
    });
    let second = &value["cards"][1];
    assert_eq!(
        (&second["name"], &second["index"]),
        (&json!("eth1"), &json!(3))
    );
    assert_eq!(second["families"][0]["table"], json!(101));
    assert_eq!(second["families"][0]["gateway"], json!("10.0.1.1"));
    assert_eq!(second["families"][1]["gateway"], json!("fe80::1"));
    assert_eq!(second["families"][0]["inner"], json!(["172.17.0.0/16"]));
}
