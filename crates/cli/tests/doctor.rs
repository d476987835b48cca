//! `leaseroute doctor` on made-up systems: what other programs leave there is seen, and told
//! from what only looks like it.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// A system in a folder.
struct System {
    folder: tempfile::TempDir,
}

/// What doctor said.
struct Answer {
    code: i32,
    text: String,
    json: Value,
}

/// netplan's file as cloud-init 24.1 writes it on EC2 for two cards.
const NETPLAN: &str = r#"# This file is generated from information provided by the datasource.  Changes
# to it will not persist across an instance reboot.  To disable cloud-init's
# network configuration capabilities, write a file
# /etc/cloud/cloud.cfg.d/99-disable-network-config.cfg with the following:
# network: {config: disabled}
network:
    ethernets:
        ens5:
            dhcp4: true
            dhcp4-overrides: &id001
                route-metric: 100
            dhcp6: false
            match:
                macaddress: 02:00:5e:10:00:01
            set-name: ens5
        ens6:
            dhcp4: true
            dhcp4-overrides:
                route-metric: 200
                use-routes: true
            dhcp6: true
            match:
                macaddress: 02:00:5e:10:00:02
            routes:
            -   table: 101
                to: 0.0.0.0/0
                via: 192.0.2.1
            routing-policy:
            -   from: 192.0.2.35
                table: 101
            -   from: 2001:db8:0:1::23
                table: 101
            set-name: ens6
    version: 2
"#;

impl System {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A system with the hook of dhclient, as Debian has it.
    fn with_hooks() -> Self {
        let system = Self::new();
        system.write("/sbin/dhclient", "");
        system.write("/etc/dhcp/dhclient-exit-hooks.d/ntp", "");
        let output = Command::new(env!("CARGO_BIN_EXE_leaseroute"))
            .args(["hooks", "install", "--root"])
            .arg(system.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: &str, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Installs a unit and has it wanted by a target.
    fn enable(&self, unit: &str, file: &str, target: &str) {
        let path = format!("/usr/lib/systemd/system/{file}");
        self.write(&path, "[Unit]\n");
        self.link(&path, &format!("/etc/systemd/system/{target}.wants/{unit}"));
    }

    /// A unit that systemd has started.
    fn start(&self, unit: &str) {
        self.link(
            "0123456789abcdef0123456789abcdef",
            &format!("/run/systemd/units/invocation:{unit}"),
        );
    }

    fn doctor(&self) -> Answer {
        let run = |json: bool| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_leaseroute"));
            command.arg("doctor").arg("--root").arg(self.folder.path());
            command.args(json.then_some("--json")).output().unwrap()
        };
        let output = run(false);
        Answer {
            code: output.status.code().unwrap(),
            text: String::from_utf8(output.stdout).unwrap(),
            json: serde_json::from_slice(&run(true).stdout).unwrap(),
        }
    }
}

impl Answer {
    /// What a check said first.
    fn of(&self, check: &str) -> &Value {
        let findings = self.json["findings"].as_array().unwrap();
        findings.iter().find(|f| f["check"] == check).unwrap()
    }

    fn severity(&self, check: &str) -> &str {
        self.of(check)["severity"].as_str().unwrap()
    }

    fn evidence(&self, check: &str) -> Vec<&str> {
        let lines = self.of(check)["evidence"].as_array().unwrap();
        lines.iter().map(|line| line.as_str().unwrap()).collect()
    }

    /// All commands and files of the cures.
    fn cures(&self, check: &str) -> String {
        self.of(check)["cures"].to_string()
    }
}

#[test]
fn on_an_empty_system_nothing_is_wrong() {
    let answer = System::new().doctor();
    assert_eq!(answer.code, 0, "{}", answer.text);
    assert!(answer.text.contains("\n0 problems, 0 notes, "));
    assert_eq!(answer.json["version"], 1);
}

#[test]
fn routing_by_cloud_init_beside_ours_is_a_problem() {
    let system = System::with_hooks();
    system.write("/usr/bin/cloud-init", "");
    system.write("/etc/netplan/50-cloud-init.yaml", NETPLAN);
    let answer = system.doctor();
    assert_eq!(answer.code, 12, "{}", answer.text);
    assert_eq!(answer.severity("cloud-init-routing"), "problem");
    assert_eq!(
        answer.evidence("cloud-init-routing"),
        [
            "/etc/netplan/50-cloud-init.yaml: from 192.0.2.35 table 101",
            "/etc/netplan/50-cloud-init.yaml: from 2001:db8:0:1::23 table 101",
        ]
    );
    let cures = answer.cures("cloud-init-routing");
    assert!(cures.contains("apply_full_imds_network_config: false"));
    assert!(cures.contains("network: {config: disabled}"));
    // It is not said twice.
    assert_eq!(answer.severity("configured-rules"), "ok");
}

#[test]
fn routing_by_cloud_init_alone_is_worth_a_note() {
    let system = System::new();
    system.write("/etc/netplan/50-cloud-init.yaml", NETPLAN);
    let answer = system.doctor();
    assert_eq!(answer.code, 0, "{}", answer.text);
    assert_eq!(answer.severity("cloud-init-routing"), "note");
}

#[test]
fn cloud_init_without_rules_is_no_matter() {
    let system = System::with_hooks();
    system.write("/usr/bin/cloud-init", "");
    let text = NETPLAN.split("            routes:").next().unwrap();
    system.write("/etc/netplan/50-cloud-init.yaml", text);
    let answer = system.doctor();
    assert_eq!(answer.severity("cloud-init-routing"), "ok");
    assert_eq!(answer.code, 0, "{}", answer.text);
}

#[test]
fn hot_plug_by_cloud_init_is_seen_by_its_rule() {
    let system = System::new();
    let rule = "/etc/udev/rules.d/90-cloud-init-hook-hotplug.rules";
    system.write(rule, "SUBSYSTEM==\"net\"\n");
    let answer = system.doctor();
    assert_eq!(answer.severity("cloud-init-hotplug"), "note");
    assert!(answer.cures("cloud-init-hotplug").contains(rule));
}

#[test]
fn amazon_ec2_net_utils_is_seen_by_units_and_files() {
    let system = System::with_hooks();
    system.write("/usr/bin/setup-policy-routes", "");
    assert_eq!(system.doctor().severity("amazon-ec2-net-utils"), "ok");
    // As its udev rule has it: enabled without a target, and started.
    system.start("policy-routes@ens6.service");
    system.start("refresh-policy-routes@ens6.timer");
    let folder = "/run/systemd/network/70-ens6.network.d";
    system.write(
        &format!("{folder}/ec2net_policy_4.conf"),
        "[RoutingPolicyRule]\nFrom=192.0.2.35\nPriority=10001\nTable=10001\n",
    );
    let answer = system.doctor();
    assert_eq!(answer.severity("amazon-ec2-net-utils"), "note");
    let evidence = answer.evidence("amazon-ec2-net-utils").join("\n");
    assert!(evidence.contains("policy-routes@ens6.service is started"));
    assert!(evidence.contains("refresh-policy-routes@ens6.timer is started"));
    assert!(evidence.contains(&format!("{folder}/ec2net_policy_4.conf")));
    let cures = answer.cures("amazon-ec2-net-utils");
    assert!(cures.contains("policy-routes@ens6.service"));
    assert!(cures.contains("manage = false"));
    assert_eq!(answer.severity("configured-rules"), "ok");
    assert_eq!(answer.code, 0, "{}", answer.text);
}

#[test]
fn nm_cloud_setup_counts_when_it_is_enabled() {
    let system = System::new();
    system.write("/usr/lib/systemd/system/nm-cloud-setup.service", "[Unit]\n");
    assert_eq!(system.doctor().severity("nm-cloud-setup"), "ok");
    system.enable(
        "nm-cloud-setup.timer",
        "nm-cloud-setup.timer",
        "timers.target",
    );
    system.write(
        "/usr/lib/systemd/system/nm-cloud-setup.service.d/10-rh-enable-for-ec2.conf",
        "[Service]\nEnvironment=NM_CLOUD_SETUP_EC2=yes\n",
    );
    let answer = system.doctor();
    assert_eq!(answer.severity("nm-cloud-setup"), "note");
    let evidence = answer.evidence("nm-cloud-setup").join("\n");
    assert!(evidence.contains("/etc/systemd/system/timers.target.wants/nm-cloud-setup.timer"));
    assert!(evidence.contains("Environment=NM_CLOUD_SETUP_EC2=yes"));
}

#[test]
fn cloud_netconfig_is_seen_with_its_cards() {
    let system = System::new();
    system.write("/etc/netconfig.d/cloud-netconfig", "");
    let card = "/etc/sysconfig/network/ifcfg-eth1";
    system.write(card, "BOOTPROTO='dhcp'\nCLOUD_NETCONFIG_MANAGE='yes'\n");
    system.write("/etc/sysconfig/network/ifcfg-eth2", "BOOTPROTO='dhcp'\n");
    let answer = system.doctor();
    assert_eq!(answer.severity("cloud-netconfig"), "note");
    assert!(answer.cures("cloud-netconfig").contains(card));
    assert!(!answer.cures("cloud-netconfig").contains("eth2"));
}

#[test]
fn google_guest_agent_is_seen_with_its_settings() {
    let system = System::new();
    let unit = "google-guest-agent.service";
    system.enable(unit, unit, "multi-user.target");
    system.write(
        "/etc/default/instance_configs.cfg",
        "[NetworkInterfaces]\nsetup = true\nip_forwarding = true\n",
    );
    system.write("/run/netplan/20-google-guest-agent-ens5.yaml", "network:\n");
    let answer = system.doctor();
    assert_eq!(answer.severity("google-guest-agent"), "note");
    let evidence = answer.evidence("google-guest-agent").join("\n");
    assert!(evidence.contains("setup = true"));
    assert!(evidence.contains("20-google-guest-agent-ens5.yaml"));
}

#[test]
fn azures_file_for_every_card_is_seen() {
    let system = System::new();
    let path = "/etc/netplan/90-hotplug-azure.yaml";
    let text =
        "network:\n    version: 2\n    ethernets:\n        ephemeral:\n            dhcp4: true\n";
    system.write(path, text);
    assert_eq!(system.doctor().severity("azure-hotplug"), "note");
    system.write(
        path,
        &format!("{text}            dhcp4-overrides: {{route-metric: 200}}\n"),
    );
    assert_eq!(system.doctor().severity("azure-hotplug"), "ok");
}

#[test]
fn plugins_of_container_networks_are_seen_by_their_files() {
    let system = System::new();
    system.write("/etc/cni/net.d/10-aws.conflist", "{}");
    system.write("/opt/cni/bin/cilium-cni", "");
    let answer = system.doctor();
    assert_eq!(answer.severity("amazon-vpc-cni"), "note");
    // Only in one of its modes it takes cards, which rules show.
    assert_eq!(answer.severity("cilium-eni"), "ok");
    assert_eq!(answer.code, 0, "{}", answer.text);
}

#[test]
fn networkd_that_takes_our_rules_away_is_a_problem_until_it_is_told_not_to() {
    let system = System::with_hooks();
    system.enable(
        "systemd-networkd.service",
        "systemd-networkd.service",
        "multi-user.target",
    );
    let answer = system.doctor();
    assert_eq!(answer.severity("networkd-foreign-rules"), "problem");
    assert_eq!(answer.code, 12);
    // One of the two is not enough.
    system.write(
        "/usr/lib/systemd/networkd.conf.d/10-vendor.conf",
        "[Network]\nManageForeignRoutingPolicyRules=no\n",
    );
    assert_eq!(
        system.doctor().severity("networkd-foreign-rules"),
        "problem"
    );
    system.write(
        "/etc/systemd/networkd.conf.d/50-leaseroute.conf",
        "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n",
    );
    assert_eq!(system.doctor().severity("networkd-foreign-rules"), "ok");
    // A later file takes it back.
    system.write(
        "/etc/systemd/networkd.conf.d/90-mine.conf",
        "[Network]\nManageForeignRoutes=yes\n",
    );
    let answer = system.doctor();
    assert_eq!(answer.severity("networkd-foreign-rules"), "problem");
    let evidence = answer.evidence("networkd-foreign-rules").join("\n");
    assert!(evidence.contains("90-mine.conf: ManageForeignRoutes=yes"));
}

#[test]
fn rules_of_the_administrators_are_shown_in_every_form() {
    let system = System::with_hooks();
    for (path, text) in [
        (
            "/etc/netplan/60-mine.yaml",
            "network:\n  ethernets:\n    eth1:\n      routing-policy:\n        - from: 192.0.2.1\n          table: 5\n",
        ),
        (
            "/etc/systemd/network/10-eth1.network",
            "[RoutingPolicyRule]\nFrom=192.0.2.2\nTable=5\n",
        ),
        (
            "/etc/NetworkManager/system-connections/eth1.nmconnection",
            "[ipv4]\nrouting-rule1=priority 5 from 192.0.2.3 table 5\n",
        ),
        (
            "/etc/network/interfaces",
            "iface eth1 inet static\n  up ip rule add from 192.0.2.4 table 5\n",
        ),
        (
            "/etc/sysconfig/network-scripts/rule-eth1",
            "from 192.0.2.5 table 5\n",
        ),
    ] {
        system.write(path, text);
    }
    let answer = system.doctor();
    assert_eq!(answer.severity("configured-rules"), "note");
    let evidence = answer.evidence("configured-rules").join("\n");
    for last in 1..=5 {
        assert!(evidence.contains(&format!("192.0.2.{last}")), "{evidence}");
    }
    assert_eq!(answer.code, 0, "{}", answer.text);
}

#[test]
fn clients_without_our_hooks_are_named() {
    let system = System::new();
    system.write("/sbin/dhclient", "");
    system.write("/etc/dhcp/dhclient-exit-hooks.d/ntp", "");
    let answer = system.doctor();
    assert_eq!(answer.severity("hooks"), "note");
    assert!(answer.cures("hooks").contains("leaseroute hooks install"));
    assert_eq!(System::with_hooks().doctor().severity("hooks"), "ok");
}

#[test]
fn units_of_the_metadata_step_are_to_be_enabled() {
    let system = System::new();
    let socket = "leaseroute-metadata.socket";
    system.write(&format!("/usr/lib/systemd/system/{socket}"), "[Socket]\n");
    assert_eq!(system.doctor().severity("metadata"), "note");
    system.enable(socket, socket, "sockets.target");
    assert_eq!(system.doctor().severity("metadata"), "ok");
}

#[test]
fn a_masked_unit_is_not_installed() {
    let system = System::new();
    let socket = "leaseroute-metadata.socket";
    system.write(&format!("/usr/lib/systemd/system/{socket}"), "[Socket]\n");
    system.link("/dev/null", &format!("/etc/systemd/system/{socket}"));
    assert_eq!(system.doctor().severity("metadata"), "ok");
}

#[test]
fn hostile_files_are_shown_without_harm() {
    let system = System::new();
    system.write(
        "/etc/sysconfig/network-scripts/rule-eth1",
        "from \u{1b}[2J\u{7}all table 5\n",
    );
    system.write(
        "/etc/netplan/50-cloud-init.yaml",
        &"routing-policy:\n- ".repeat(10_000),
    );
    let answer = system.doctor();
    assert!(!answer.text.contains('\u{1b}'));
    assert!(answer.text.contains("from \\u{1b}[2J\\u{7}all table 5"));
    assert_eq!(answer.code, 0);
}

#[test]
fn nothing_is_changed() {
    let system = System::with_hooks();
    system.write("/etc/netplan/50-cloud-init.yaml", NETPLAN);
    let listing = || {
        let mut paths = vec![system.folder.path().to_owned()];
        let mut seen = Vec::new();
        while let Some(folder) = paths.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let about = entry.metadata().unwrap();
                seen.push((entry.path(), about.len(), about.modified().unwrap()));
                if about.is_dir() {
                    paths.push(entry.path());
                }
            }
        }
        seen.sort();
        seen
    };
    let before = listing();
    system.doctor();
    assert_eq!(listing(), before);
}
