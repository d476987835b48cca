//! Policy rules in the files of programs that set up networks: who wrote them, and what they
//! say. Only the parts about rules are read: the files may hold secrets.
//!
//! The forms are those of netplan(5), systemd.network(5), nm-settings-keyfile(5),
//! interfaces(5), and the `rule-*` and `ifcfg-*` files of initscripts and wicked.

use std::io;

use super::scene::Scene;

/// Who wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    CloudInit,
    Ec2NetUtils,
    GuestAgent,
    /// What netplan made of its own files; those are looked at themselves.
    Netplan,
    /// The administrator, or a program that is not known here.
    Other,
}

/// A file that sets up policy rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) path: String,
    pub(super) owner: Owner,
    /// What it says of rules.
    pub(super) rules: Vec<String>,
}

impl Policy {
    /// As lines of evidence.
    pub(super) fn evidence(&self) -> impl Iterator<Item = String> {
        let rules = self.rules.iter();
        rules.map(|rule| format!("{}: {rule}", self.path))
    }
}

/// A kind of files: folders, the ends of names, and how rules are read.
struct Place {
    folders: &'static [&'static str],
    fits: fn(&str) -> bool,
    read: fn(&str) -> Vec<String>,
}

const PLACES: &[Place] = &[
    Place {
        folders: &["/etc/netplan", "/run/netplan", "/usr/lib/netplan"],
        fits: |name| name.ends_with(".yaml"),
        read: netplan,
    },
    Place {
        folders: NETWORKD,
        fits: |name| name.ends_with(".network"),
        read: networkd,
    },
    Place {
        folders: &[
            "/etc/NetworkManager/system-connections",
            "/run/NetworkManager/system-connections",
        ],
        fits: |_| true,
        read: keyfile,
    },
    Place {
        folders: &["/etc/network/interfaces.d"],
        fits: |_| true,
        read: interfaces,
    },
    Place {
        folders: &["/etc/sysconfig/network-scripts", "/etc/sysconfig/network"],
        fits: |name| name.starts_with("rule-") || name.starts_with("rule6-"),
        read: whole_lines,
    },
    Place {
        folders: &["/etc/sysconfig/network-scripts", "/etc/sysconfig/network"],
        fits: |name| name.starts_with("ifcfg-"),
        read: ifcfg,
    },
];

const NETWORKD: &[&str] = &[
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
];

/// All files with policy rules, in order.
pub(super) fn scan(scene: &Scene<'_>) -> io::Result<Vec<Policy>> {
    let mut found = Vec::new();
    for place in PLACES {
        for folder in place.folders {
            for name in scene.root.names(folder)? {
                if (place.fits)(&name) {
                    add(scene, format!("{folder}/{name}"), place.read, &mut found)?;
                }
            }
        }
    }
    for folder in NETWORKD {
        for name in scene.root.names(folder)? {
            if !name.ends_with(".network.d") {
                continue;
            }
            for path in scene.files(&format!("{folder}/{name}"), ".conf")? {
                add(scene, path, networkd, &mut found)?;
            }
        }
    }
    add(
        scene,
        "/etc/network/interfaces".to_owned(),
        interfaces,
        &mut found,
    )?;
    Ok(found)
}

fn add(
    scene: &Scene<'_>,
    path: String,
    read: fn(&str) -> Vec<String>,
    found: &mut Vec<Policy>,
) -> io::Result<()> {
    let text = match scene.root.text(&path) {
        // Connection files are root's alone.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        text => text?,
    };
    let rules = read(&text);
    if !rules.is_empty() {
        let owner = owner(&path, &text);
        found.push(Policy { path, owner, rules });
    }
    Ok(())
}

/// Who wrote a file, by its name and the remark at its head.
fn owner(path: &str, text: &str) -> Owner {
    let name = path.rsplit('/').next().unwrap_or(path);
    let head: String = text.chars().take(600).collect();
    if name.starts_with("ec2net_") || head.contains("policy-routes@") {
        Owner::Ec2NetUtils
    } else if name.contains("google-guest-agent") {
        Owner::GuestAgent
    } else if name.contains("-netplan-") {
        Owner::Netplan
    } else if name.contains("cloud-init")
        || head.contains("This file is generated from information provided by the datasource")
        || head.to_ascii_lowercase().contains("created by cloud-init")
    {
        Owner::CloudInit
    } else {
        Owner::Other
    }
}

/// The width of a line's indentation.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The lists named `routing-policy`, an item a line. No YAML is parsed: the keys of an item
/// are put beside each other as they stand.
fn netplan(text: &str) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    let mut within: Option<usize> = None;
    for line in text.lines() {
        let words = line.split('#').next().unwrap_or_default().trim();
        if words.is_empty() {
            continue;
        }
        if let Some(depth) = within {
            let is_item = words.starts_with('-');
            if indent(line) > depth || (is_item && indent(line) == depth) {
                let words = words.trim_start_matches('-').trim().replace(": ", " ");
                match rules.last_mut() {
                    Some(last) if !is_item => {
                        last.push(' ');
                        last.push_str(&words);
                    }
                    _ => rules.push(words),
                }
                continue;
            }
            within = None;
        }
        let key = words.trim_start_matches("- ");
        if let Some(rest) = key.strip_prefix("routing-policy:") {
            match rest.trim() {
                "" => within = Some(indent(line)),
                "[]" => {}
                flow => rules.push(flow.to_owned()),
            }
        }
    }
    rules
}

/// The sections `[RoutingPolicyRule]`, each a line.
fn networkd(text: &str) -> Vec<String> {
    let mut rules: Vec<Vec<&str>> = Vec::new();
    let mut within = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            within = line == "[RoutingPolicyRule]";
            if within {
                rules.push(Vec::new());
            }
        } else if within
            && line.contains('=')
            && !line.starts_with(['#', ';'])
            && let Some(rule) = rules.last_mut()
        {
            rule.push(line);
        }
    }
    rules.into_iter().map(|rule| rule.join(" ")).collect()
}

fn keyfile(text: &str) -> Vec<String> {
    lines_with(text, |line| line.starts_with("routing-rule"))
}

fn ifcfg(text: &str) -> Vec<String> {
    lines_with(text, |line| {
        line.starts_with("ROUTING_RULE_") || line.starts_with("ROUTING_RULE6_")
    })
}

fn interfaces(text: &str) -> Vec<String> {
    lines_with(text, |line| {
        let mut words = line.split_whitespace().skip_while(|word| {
            !matches!(
                *word,
                "ip" | "/sbin/ip" | "/bin/ip" | "/usr/sbin/ip" | "/usr/bin/ip"
            )
        });
        let mut rest = words
            .by_ref()
            .skip(1)
            .skip_while(|word| word.starts_with('-'));
        matches!(rest.next(), Some("rule" | "ru")) && matches!(rest.next(), Some("add" | "a"))
    })
}

fn whole_lines(text: &str) -> Vec<String> {
    lines_with(text, |_| true)
}

fn lines_with(text: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#') && fits(line));
    lines.map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netplan_is_read_as_cloud_init_writes_it() {
        let text = "network:\n    ethernets:\n        ens6:\n            routing-policy:\n            -   from: 192.0.2.35\n                table: 101\n            -   from: 2001:db8::4\n                table: 101\n            set-name: ens6\n    version: 2\n";
        assert_eq!(
            netplan(text),
            ["from 192.0.2.35 table 101", "from 2001:db8::4 table 101"]
        );
    }

    #[test]
    fn netplan_is_read_in_other_layouts() {
        assert_eq!(
            netplan(
                "    routing-policy:\n      - table: 5\n        from: 192.0.2.1\n    routes: []\n"
            ),
            ["table 5 from 192.0.2.1"]
        );
        assert_eq!(
            netplan("routing-policy: [{from: 192.0.2.1, table: 5}]\n"),
            ["[{from: 192.0.2.1, table: 5}]"]
        );
        assert_eq!(
            netplan("# routing-policy:\nroutes:\n- to: default\n"),
            [""; 0]
        );
    }

    #[test]
    fn networkd_sections_are_told_apart() {
        let text = "[Match]\nName=eth1\n[RoutingPolicyRule]\nFrom=192.0.2.1\nTable=10001\n[Route]\nTable=10001\n[RoutingPolicyRule]\nFrom=192.0.2.2\n";
        assert_eq!(
            networkd(text),
            ["From=192.0.2.1 Table=10001", "From=192.0.2.2"]
        );
    }

    #[test]
    fn ip_commands_are_found_in_interfaces() {
        let text = "iface eth1 inet dhcp\n  post-up ip -4 rule add from 192.0.2.1 table 5\n  up /sbin/ip route add default via 192.0.2.9 table 5\n  # up ip rule add from 192.0.2.3\n";
        assert_eq!(
            interfaces(text),
            ["post-up ip -4 rule add from 192.0.2.1 table 5"]
        );
    }

    #[test]
    fn of_a_connection_only_the_rules_are_read() {
        let text = "[wifi-security]\npsk=secret\n[ipv4]\nrouting-rule1=priority 5 from 192.0.2.1 table 5\n";
        assert_eq!(
            keyfile(text),
            ["routing-rule1=priority 5 from 192.0.2.1 table 5"]
        );
    }

    #[test]
    fn a_file_is_somebodys() {
        let is = |path: &str, text: &str| owner(path, text);
        assert_eq!(is("/etc/netplan/50-cloud-init.yaml", ""), Owner::CloudInit);
        assert_eq!(
            is("/run/systemd/network/10-netplan-eth0.network", ""),
            Owner::Netplan
        );
        assert_eq!(
            is(
                "/run/systemd/network/70-eth1.network.d/ec2net_policy_4.conf",
                ""
            ),
            Owner::Ec2NetUtils
        );
        assert_eq!(is("/etc/netplan/60-mine.yaml", "network:\n"), Owner::Other);
    }
}
