//! What doctor says beside rules, routes and settings as other programs leave them in a real
//! kernel.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::fs;

use leaseroute_e2e::host::{Host, program};
use leaseroute_e2e::networkd::configured;
use leaseroute_e2e::servers::Lan;
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::{Card, GATEWAY6, Layout};
use serde_json::Value;

/// A folder of programs of its own, so that the command may be installed where packages put it.
const OWN_PROGRAMS: &str = "mkdir /mnt/bin /mnt/work/bin; mount -t overlay overlay \
     -o lowerdir=/usr/bin,upperdir=/mnt/bin,workdir=/mnt/work/bin /usr/bin";

fn install_command(host: &Host) {
    host.shell(OWN_PROGRAMS);
    fs::copy(program("leaseroute"), host.path("/usr/bin/leaseroute")).unwrap();
}

/// A host whose cards have addresses and routing, set up by hand.
fn host(layout: &Layout) -> Host {
    let host = Host::new(layout, &[]);
    install_command(&host);
    for card in host.fabric.cards() {
        let Card {
            name, ipv4, ipv6, ..
        } = card;
        let gateway = card.gateway4();
        host.shell(&format!(
            "ip link set {name} up
             ip addr add {ipv4}/24 dev {name}
             ip addr add {ipv6}/64 dev {name} nodad
             leaseroute apply --interface {name} --address {ipv4}/24 --gateway {gateway} \
                 --address {ipv6}/64 --gateway {GATEWAY6} >/dev/null"
        ));
    }
    let first = host.card(0);
    let (name, gateway) = (&first.name, first.gateway4());
    host.shell(&format!(
        "ip route add default via {gateway} dev {name} metric 100"
    ));
    host
}

/// What doctor says, and with which code it ends.
fn doctor(host: &Host) -> (i32, Value) {
    let output = host.output({
        let mut command = host.command("leaseroute");
        command.args(["doctor", "--json"]);
        command
    });
    let code = output.status.code().unwrap();
    (code, serde_json::from_slice(&output.stdout).unwrap())
}

/// The worst that a check said, and all its words.
fn of(view: &Value, check: &str) -> (String, String) {
    let order = ["ok", "unknown", "note", "problem"];
    let findings = view["findings"].as_array().unwrap();
    let said: Vec<&Value> = findings.iter().filter(|f| f["check"] == check).collect();
    let severities = said.iter().map(|f| f["severity"].as_str().unwrap());
    let worst = severities
        .max_by_key(|word| order.iter().position(|known| known == word))
        .unwrap();
    let words: Vec<String> = said.iter().map(ToString::to_string).collect();
    (worst.to_owned(), words.join("\n"))
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_host_that_is_alone_with_us_is_well() {
    let host = host(&Layout::separate(2));
    let (code, view) = doctor(&host);
    assert_eq!(code, 0, "{view:#}");
    for check in [
        "foreign-rules",
        "equal-metrics",
        "arp-flux",
        "cloud-init-routing",
    ] {
        assert_eq!(of(&view, check).0, "ok", "{view:#}");
    }
}

#[test]
#[ignore = "needs root: tests/run"]
fn rules_of_other_programs_are_told_apart() {
    let host = host(&Layout::separate(3));
    let (first, second) = (host.card(1), host.card(2));
    let (one, other) = (first.ipv4, second.ipv4);
    let (device, gateway) = (&second.name, second.gateway4());
    host.write("/usr/bin/cloud-init", "", 0o755);
    host.shell(&format!(
        "# amazon-ec2-net-utils and nm-cloud-setup come after ours.
         ip route add default via {gateway} dev {device} table 10002
         ip rule add priority 10002 from {other} lookup 10002 protocol static
         ip rule add priority 30401 from {other} lookup 30401 protocol static
         # Amazon VPC CNI comes before, and is about pods.
         ip route add default via {gateway} dev {device} table 3
         ip rule add priority 512 from all to 203.0.113.7 lookup main
         ip rule add priority 1024 from all fwmark 0x80/0x80 lookup main
         ip rule add priority 1536 from 203.0.113.7 lookup 3"
    ));
    let (code, view) = doctor(&host);
    assert_eq!(of(&view, "foreign-rules").0, "ok", "{view:#}");
    assert_eq!(of(&view, "amazon-ec2-net-utils").0, "note");
    assert_eq!(of(&view, "nm-cloud-setup").0, "note");
    // The card has an address of ours, and the plugin has it in a table of its own.
    let (severity, words) = of(&view, "amazon-vpc-cni");
    assert_eq!(severity, "problem", "{view:#}");
    assert!(
        words.contains(device.as_str()) && words.contains("manage = false"),
        "{words}"
    );
    assert_eq!(code, 12);

    // cloud-init's rule, without a priority: the kernel puts it before all others.
    host.shell(&format!(
        "ip rule del priority 512; ip rule del priority 1024; ip rule del priority 1536
         ip rule add from {one} lookup 101 protocol static"
    ));
    let (code, view) = doctor(&host);
    assert_eq!(code, 12);
    let (severity, words) = of(&view, "foreign-rules");
    assert_eq!(severity, "problem", "{view:#}");
    assert!(words.contains(&format!("from {one} lookup 101")), "{words}");
    let (severity, words) = of(&view, "cloud-init-routing");
    assert_eq!(severity, "problem");
    assert!(words.contains("apply_full_imds_network_config"), "{words}");
    assert_eq!(of(&view, "amazon-vpc-cni").0, "ok");
}

#[test]
#[ignore = "needs root: tests/run"]
fn chance_in_the_main_table_and_in_arp_is_seen() {
    let host = host(&Layout::of(vec![0, 0]));
    let (first, second) = (host.card(0), host.card(1));
    let (device, gateway) = (&second.name, second.gateway4());
    host.shell(&format!(
        "ip route append default via {gateway} dev {device} metric 100
         for name in all {} {device}; do
             echo 0 >/proc/sys/net/ipv4/conf/$name/arp_ignore
             echo 0 >/proc/sys/net/ipv4/conf/$name/arp_filter
         done",
        first.name
    ));
    let (code, view) = doctor(&host);
    assert_eq!(code, 12, "{view:#}");
    assert_eq!(of(&view, "equal-metrics").0, "problem", "{view:#}");
    assert_eq!(of(&view, "arp-flux").0, "note", "{view:#}");
    assert_eq!(of(&view, "reverse-path").0, "ok", "{view:#}");

    host.shell("echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter");
    let (_, view) = doctor(&host);
    assert_eq!(of(&view, "arp-flux").0, "problem", "{view:#}");
    assert_eq!(of(&view, "reverse-path").0, "note", "{view:#}");

    host.shell(&format!(
        "ip route del default via {gateway} dev {device} metric 100
         echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore"
    ));
    let (code, view) = doctor(&host);
    assert_eq!(of(&view, "arp-flux").0, "ok", "{view:#}");
    assert_eq!(of(&view, "equal-metrics").0, "ok", "{view:#}");
    assert_eq!(code, 0, "{view:#}");
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_card_without_a_router_is_seen_until_somebody_gives_it_one() {
    let host = host(&Layout::separate(2));
    let card = host.card(1);
    let (name, ipv4, gateway) = (&card.name, card.ipv4, card.gateway4());
    host.shell(&format!(
        "leaseroute apply --interface {name} --address {ipv4}/24 >/dev/null"
    ));
    let (code, view) = doctor(&host);
    let (severity, words) = of(&view, "own-default");
    assert_eq!((severity.as_str(), code), ("note", 0), "{view:#}");
    assert!(
        words.contains(&format!("{name} has no IPv4 default")),
        "{words}"
    );
    host.shell(&format!(
        "table=$(ip -4 rule | sed -n 's/^7630:.*from {ipv4} lookup \\([0-9]*\\).*/\\1/p')
         ip route add default via {gateway} dev {name} table $table proto static
         leaseroute apply >/dev/null; leaseroute status --verify"
    ));
    let (_, view) = doctor(&host);
    assert_eq!(of(&view, "own-default").0, "ok", "{view:#}");
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_configuration_that_is_wrong_and_pods_addresses_on_the_host_are_seen() {
    let host = host(&Layout::separate(2));
    host.write(
        "/etc/leaseroute/config.toml",
        "[metadata]\nassign_addresses = true\n",
        0o644,
    );
    host.write("/etc/cni/net.d/10-aws.conflist", "{}", 0o644);
    let (code, view) = doctor(&host);
    let (severity, words) = of(&view, "amazon-vpc-cni");
    assert_eq!((severity.as_str(), code), ("problem", 12), "{view:#}");
    assert!(words.contains("assign_addresses = false"), "{words}");

    host.write("/etc/leaseroute/config.toml", "when = 5\n", 0o644);
    let (code, view) = doctor(&host);
    assert_eq!(of(&view, "configuration").0, "problem", "{view:#}");
    assert_eq!(code, 12);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn networkds_setting_and_a_second_client_on_its_card_are_seen() {
    let (machine, _servers) = configured(&Layout::separate(2), &Lan::default());
    install_command(&machine);
    machine.shell("rm -f /usr/lib/systemd/networkd.conf.d/50-leaseroute.conf");
    let (code, view) = doctor(&machine);
    let (severity, words) = of(&view, "networkd-foreign-rules");
    assert_eq!((severity.as_str(), code), ("problem", 12), "{view:#}");
    assert!(words.contains("networkd manages eth1"), "{words}");

    machine.install_drop_in();
    let (code, view) = doctor(&machine);
    for check in [
        "networkd-foreign-rules",
        "two-managers",
        "hooks",
        "equal-metrics",
    ] {
        assert_eq!(of(&view, check).0, "ok", "{view:#}");
    }
    assert_eq!(code, 0, "{view:#}");

    let mut second = machine.command("dhclient");
    second.args([
        "-d",
        "-sf",
        "/bin/true",
        "-lf",
        "/run/second.leases",
        "eth1",
    ]);
    let _second = machine.start("second", second);
    let words = wait_for("doctor sees two programs on eth1", || {
        let (_, view) = doctor(&machine);
        match of(&view, "two-managers") {
            (severity, words) if severity == "problem" => Ok(words),
            (_, words) => Err(words),
        }
    });
    assert!(
        words.contains("dhclient") && words.contains("systemd-networkd"),
        "{words}"
    );
    assert!(words.contains("05-unmanaged-eth1.network"), "{words}");
}
