//! The subcommands that need a host, on one with two cards in a namespace of its own.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop")]

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use leaseroute_core::{Family, ProtocolId, TableId};
use leaseroute_kernel::topology::{NewRule, Verdict};
use leaseroute_lab::demo::{Happening, event};
use leaseroute_lab::fabric::{Fabric, Ipv6Style, Layout};
use leaseroute_lab::privilege::with_namespaces;
use serde_json::Value;

/// A host with two cards that are configured, and a program with folders of its own.
struct Host {
    fabric: Fabric,
    home: tempfile::TempDir,
}

/// How the program ended and what it printed.
struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

impl Host {
    fn new() -> Self {
        let fabric = Fabric::new(&Layout::separate(2)).unwrap();
        for card in 0..2 {
            fabric.configure_static(card, Ipv6Style::Ra).unwrap();
        }
        let home = tempfile::tempdir().unwrap();
        Self { fabric, home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leaseroute"));
        command
            .args(arguments)
            .env("LEASEROUTE_STATE_DIR", self.path("state"))
            .env("LEASEROUTE_CONFIG_DIR", self.path("configuration"));
        let output = self.fabric.host().run(move || command.output()).unwrap();
        Answer {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// `run`, which must succeed.
    fn ok(&self, arguments: &[&str]) -> Answer {
        let answer = self.run(arguments);
        assert_eq!(
            answer.code, 0,
            "{arguments:?}: {}{}",
            answer.stdout, answer.stderr
        );
        answer
    }

    /// A lease of a card as a file.
    fn lease(&self, card: usize) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let variables = event(card, Family::Ipv4, Happening::Bound, now);
        let lines = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}\n"));
        let path = self.path(&format!("eth{card}.env"));
        fs::write(&path, lines.collect::<String>()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn with_leases() -> Self {
        let host = Self::new();
        for card in 0..2 {
            let lease = host.lease(card);
            host.ok(&["apply", "--lease", &lease]);
        }
        host
    }
}

/// The ip(8) commands of all steps.
fn commands(answer: &Value) -> Vec<String> {
    let families = answer["families"].as_array().unwrap().iter();
    let steps = families.flat_map(|family| family["steps"].as_array().unwrap());
    steps
        .map(|step| step["command"].as_str().unwrap().to_owned())
        .collect()
}

/// The values of a field of all objects with a certain list in `status --json`.
fn of_all(status: &Value, list: &str, field: &str) -> BTreeSet<String> {
    let interfaces = status["interfaces"].as_array().unwrap().iter();
    let families = interfaces.flat_map(|interface| interface["families"].as_array().unwrap());
    let objects = families.flat_map(|family| family[list].as_array().unwrap());
    objects
        .map(|object| object[field].as_str().unwrap().to_owned())
        .collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn what_was_applied_is_in_place_and_can_be_removed() {
    with_namespaces("what_was_applied_is_in_place_and_can_be_removed", || {
        let host = Host::new();
        let planned = host
            .ok(&["plan", "--lease", &host.lease(1), "--json"])
            .json();
        let applied = host
            .ok(&["apply", "--lease", &host.lease(1), "--json"])
            .json();
        assert_eq!(applied["exit"], "done");
        assert!(!commands(&planned).is_empty());
        let applied = commands(&applied);
        assert!(
            commands(&planned)
                .iter()
                .all(|command| applied.contains(command))
        );

        host.ok(&["apply", "--lease", &host.lease(0)]);
        assert_eq!(commands(&host.ok(&["plan", "--json"]).json()), [""; 0]);
        assert_eq!(commands(&host.ok(&["apply", "--json"]).json()), [""; 0]);

        let status = host.ok(&["status", "--verify", "--json"]).json();
        assert_eq!(of_all(&status, "rules", "presence"), set(&["in_place"]));
        assert_eq!(of_all(&status, "routes", "presence"), set(&["in_place"]));
        assert_eq!(of_all(&status, "replies", "verdict"), set(&["own"]));
        assert_eq!(
            of_all(&status, "replies", "leaves_by"),
            set(&["eth0", "eth1"])
        );

        let of_one = commands(&host.ok(&["remove", "eth1", "--json"]).json());
        assert!(!of_one.is_empty() && of_one.iter().all(|command| !command.contains("eth0")));
        let of_all = commands(&host.ok(&["remove", "--all", "--json"]).json());
        assert!(!of_all.is_empty());
        assert_eq!(
            commands(&host.ok(&["remove", "--all", "--json"]).json()),
            [""; 0]
        );
        let status = host.ok(&["status", "--json"]).json();
        assert!(status["stale"].as_array().unwrap().is_empty());
        for interface in status["interfaces"].as_array().unwrap() {
            assert!(interface["families"][0]["lease"].is_null());
        }
    });
}

#[test]
fn status_tells_who_sends_replies_astray() {
    with_namespaces("status_tells_who_sends_replies_astray", || {
        let host = Host::with_leases();
        let address = host.fabric.card(1).unwrap().ipv4;
        let rule = NewRule {
            from: Some(IpAddr::from(address).into()),
            ..NewRule::all(Family::Ipv4, 100, Verdict::Lookup(TableId::MAIN))
        };
        host.fabric.host().net(|net| net.add_rule(&rule)).unwrap();
        let answer = host.run(&["status", "--verify"]);
        assert_eq!(answer.code, 10, "{}", answer.stderr);
        let wrong = format!("WRONG: replies from {address} leave by eth0");
        assert!(answer.stdout.contains(&wrong), "{}", answer.stdout);
        assert!(
            answer.stdout.contains("a foreign rule comes first"),
            "{}",
            answer.stdout
        );
        // Without the question there is no verdict.
        host.ok(&["status"]);
    });
}

#[test]
fn status_tells_of_the_watcher_whatever_it_left() {
    with_namespaces("status_tells_of_the_watcher_whatever_it_left", || {
        let host = Host::with_leases();
        let watcher = || host.ok(&["status", "--json"]).json()["watcher"].clone();
        let never = serde_json::json!({"running": false, "health": null, "problems": []});
        assert_eq!(watcher(), never);

        let mut folders = fs::read_dir(host.path("state")).unwrap();
        let state = folders.next().unwrap().unwrap().path();
        let lock = fs::File::create(state.join("watch.lock")).unwrap();
        lock.try_lock().unwrap();
        assert_eq!(watcher()["running"], true);

        fs::write(state.join("watch.json"), "{\"pid\": 1, \"started\": 2, ").unwrap();
        let said = host.ok(&["status"]);
        assert_eq!(said.stderr, "");
        let end = "watcher: running\n  ";
        assert!(said.stdout.contains(end), "{}", said.stdout);
        assert!(
            said.stdout
                .ends_with("watch.json is damaged or of another version\n")
        );
    });
}

#[test]
fn a_capture_replays_elsewhere() {
    with_namespaces("a_capture_replays_elsewhere", || {
        let host = Host::with_leases();
        let verdict = Verdict::Lookup(TableId::observed(76001));
        let stale = NewRule {
            from: Some("192.0.2.77".parse().unwrap()),
            protocol: ProtocolId::observed(76),
            ..NewRule::all(Family::Ipv4, 7630, verdict)
        };
        host.fabric.host().net(|net| net.add_rule(&stale)).unwrap();
        let here = commands(&host.ok(&["plan", "--json"]).json());
        assert!(
            here.iter().any(|command| command.contains("192.0.2.77")),
            "{here:?}"
        );

        let report = host.path("report.json");
        let report = report.to_str().unwrap();
        host.ok(&["capture", "--mask", "--output", report]);
        let text = fs::read_to_string(report).unwrap();
        for card in host.fabric.cards() {
            assert!(!text.contains(&card.mac.to_string()), "{text}");
        }
        let elsewhere = Host::new();
        let there = elsewhere
            .ok(&["plan", "--capture", report, "--json"])
            .json();
        assert_eq!(commands(&there), here);
    });
}

#[test]
fn a_lease_replays_whole_however_long_its_event_was() {
    with_namespaces("a_lease_replays_whole_however_long_its_event_was", || {
        let host = Host::with_leases();
        let lease = host.lease(1);
        let gateway = host.fabric.card(1).unwrap().ipv4.octets();
        let [a, b, c, d] = gateway;
        let routes: String = (0..200)
            .map(|n| format!("32 10 20 30 {n} {a} {b} {c} {} ", d ^ 1))
            .collect();
        assert!(routes.len() > 4096);
        let text = fs::read_to_string(&lease).unwrap();
        let text = format!("{text}new_rfc3442_classless_static_routes={routes}\n");
        fs::write(&lease, text).unwrap();
        let applied = commands(&host.ok(&["apply", "--lease", &lease, "--json"]).json());
        assert!(applied.len() > 200, "{applied:?}");

        let report = host.path("report.json");
        let report = report.to_str().unwrap();
        host.ok(&["capture", "--output", report]);
        let replayed = host.ok(&["plan", "--capture", report, "--json"]).json();
        assert_eq!(commands(&replayed), [""; 0]);
        let given = host.ok(&["apply", "--lease", report, "--json"]).json();
        assert_eq!(commands(&given), [""; 0]);
        assert_eq!(given["events"].as_array().unwrap().len(), 2);
    });
}

#[test]
fn what_is_not_there_is_named() {
    with_namespaces("what_is_not_there_is_named", || {
        let host = Host::new();
        for arguments in [
            ["remove", "eth7"].as_slice(),
            &["config", "show", "--interface", "eth7"],
        ] {
            let answer = host.run(arguments);
            assert_eq!(answer.code, 8, "{arguments:?}: {}", answer.stdout);
            assert!(answer.stderr.contains("\"eth7\""), "{}", answer.stderr);
        }
    });
}

#[test]
fn what_applies_to_an_interface_is_shown() {
    with_namespaces("what_applies_to_an_interface_is_shown", || {
        let host = Host::new();
        fs::create_dir(host.path("configuration")).unwrap();
        let text = "[[interface]]\nmatch = { name = \"eth*\" }\npriority = 8000\n\
                    [[interface]]\nmatch = { name = \"eth1\" }\nmanage = false\ntable = 500\n";
        fs::write(host.path("configuration/config.toml"), text).unwrap();
        let shown = host
            .ok(&["config", "show", "--interface", "eth1", "--json"])
            .json();
        assert_eq!(shown["sections"], serde_json::json!([1, 2]));
        assert_eq!(shown["manage"], false);
        assert_eq!(shown["table"], 500);
        assert_eq!(shown["priority"], 8000);
    });
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_leaseroute"))
        .args(["completions", "zsh"])
        .stdout(writer)
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
