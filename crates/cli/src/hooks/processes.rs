//! The processes of DHCP clients, as their names and arguments in /proc tell of them.
//!
//! Only those of this network namespace count: a container's client is on the host's /proc
//! too, and configures nothing here. Arguments are as in dhclient(8), dhcpcd(8) and
//! udhcpc's help; dhcpcd writes over its own, and tells of its interfaces in their place.

use std::fs;
use std::path::{Path, PathBuf};

/// A process of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The client's program, as rooms name it.
    pub(crate) program: &'static str,
    pub(crate) interfaces: Interfaces,
    /// The script that it was started with, in place of its own.
    pub(crate) script: Option<String>,
}

/// Which interfaces a process works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Interfaces {
    Named(Vec<String>),
    /// Its arguments name none: it chooses.
    Any,
}

/// The programs that are looked for, by the name they are started with.
const PROGRAMS: &[(&str, &str)] = &[
    ("dhclient", "dhclient"),
    ("dhcpcd", "dhcpcd"),
    ("dhcpcd:", "dhcpcd"),
    ("udhcpc", "udhcpc"),
    ("udhcpc6", "udhcpc"),
    ("systemd-networkd", "systemd-networkd"),
    ("networkd-dispatcher", "networkd-dispatcher"),
    ("NetworkManager", "NetworkManager"),
    ("wickedd", "wickedd"),
];

/// dhclient's options that take a value in the next argument.
const DHCLIENT_VALUES: &[&str] = &[
    "-p",
    "-D",
    "-g",
    "-s",
    "-e",
    "-sf",
    "-lf",
    "-pf",
    "-cf",
    "-df",
    "-H",
    "-F",
    "-C",
    "-V",
    "-U",
    "-B",
    "--prefix-len-hint",
    "--decline-wait-time",
    "--address-prefix-len",
    "--timeout",
    "-timeout",
];

/// dhcpcd's options of one letter that take a value.
const DHCPCD_VALUES: &str = "CcDeFfhIiJjlmOoQrSstuvWxXyYZz";

/// udhcpc's options of one letter that take a value.
const UDHCPC_VALUES: &str = "VHhFiprsTtAxOPc";

/// All clients that run in this network namespace. What cannot be read is left out.
pub(crate) fn read() -> Vec<Process> {
    let Ok(folder) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ours = fs::read_link("/proc/self/ns/net").ok();
    let pids = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut all: Vec<Process> = pids.filter_map(|pid| look_at(pid, ours.as_ref())).collect();
    all.sort_unstable_by_key(|process| process.pid);
    all
}

fn look_at(pid: u32, ours: Option<&PathBuf>) -> Option<Process> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let process = Process::of(pid, &text)?;
    // A namespace that may not be looked at is that of somebody else's process, which the
    // clients of this host are for those who are not root.
    let theirs = fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if *ours != theirs => None,
        _ => Some(process),
    }
}

impl Process {
    /// What a command line tells, its arguments ended by NUL. `None`: it is no client.
    fn of(pid: u32, command_line: &str) -> Option<Self> {
        let mut words: Vec<&str> = command_line.split('\0').collect();
        while words.last().is_some_and(|word| word.is_empty()) {
            words.pop();
        }
        // A process that writes over its arguments leaves one text.
        if let [one] = words.as_slice() {
            words = one.split(' ').collect();
        }
        let mut words = words.into_iter();
        let mut first = name(words.next()?);
        if first == "busybox" || first.starts_with("python") {
            let program = words.by_ref().find(|word| !word.starts_with('-'));
            first = name(program?);
        }
        let (_, program) = PROGRAMS.iter().find(|(known, _)| *known == first)?;
        let words: Vec<&str> = words.collect();
        let (interfaces, script) = match first {
            "dhclient" => dhclient(&words),
            "dhcpcd:" => (title(&words), None),
            "dhcpcd" => letters(&words, DHCPCD_VALUES, 'c', None),
            "udhcpc" | "udhcpc6" => {
                let (interfaces, script) = letters(&words, UDHCPC_VALUES, 's', Some('i'));
                let interfaces = match interfaces {
                    Interfaces::Any => Interfaces::Named(vec!["eth0".to_owned()]),
                    named @ Interfaces::Named(_) => named,
                };
                (interfaces, script)
            }
            _ => (Interfaces::Any, None),
        };
        Some(Self {
            pid,
            program,
            interfaces,
            script,
        })
    }
}

impl Interfaces {
    fn new(names: Vec<String>) -> Self {
        if names.is_empty() {
            Self::Any
        } else {
            Self::Named(names)
        }
    }
}

/// The last part of a path.
fn name(path: &str) -> &str {
    let name = Path::new(path).file_name().and_then(|name| name.to_str());
    name.unwrap_or(path)
}

fn dhclient(words: &[&str]) -> (Interfaces, Option<String>) {
    let mut names = Vec::new();
    let mut script = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if DHCLIENT_VALUES.contains(word) {
            let value = words.next();
            if *word == "-sf" {
                script = value.map(ToString::to_string);
            }
        } else if !word.starts_with('-') {
            names.push((*word).to_owned());
        }
    }
    (Interfaces::new(names), script)
}

/// What dhcpcd says in place of its arguments, as `dhcpcd: eth0 [ip4]` or `dhcpcd:
/// [manager] [ip4] [ip6]`.
fn title(words: &[&str]) -> Interfaces {
    let names = words
        .iter()
        .take_while(|word| !word.starts_with('['))
        .map(ToString::to_string);
    Interfaces::new(names.collect())
}

/// Reads options of getopt_long(3): letters that may stand together, and words with `=`.
/// Interfaces are the value of one option, or else what is no option.
fn letters(
    words: &[&str],
    with_values: &str,
    script_letter: char,
    interface_letter: Option<char>,
) -> (Interfaces, Option<String>) {
    let mut names = Vec::new();
    let mut script = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (option, value) = match long.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (long, None),
            };
            let mut value = || value.or_else(|| words.next().copied());
            match option {
                "script" => script = value().map(ToOwned::to_owned),
                "interface" if interface_letter.is_some() => {
                    names.extend(value().map(ToOwned::to_owned));
                }
                _ => {}
            }
        } else if let Some(short) = word.strip_prefix('-') {
            let Some((at, letter)) = short.char_indices().find(|(_, c)| with_values.contains(*c))
            else {
                continue;
            };
            let rest = short.get(at + letter.len_utf8()..).unwrap_or_default();
            let value = if rest.is_empty() {
                words.next().copied()
            } else {
                Some(rest)
            };
            let value = value.map(ToOwned::to_owned);
            if letter == script_letter {
                script = value;
            } else if Some(letter) == interface_letter {
                names.extend(value);
            }
        } else if interface_letter.is_none() {
            names.push((*word).to_owned());
        }
    }
    (Interfaces::new(names), script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Option<Process> {
        Process::of(1, &(words.replace(' ', "\0") + "\0"))
    }

    fn told(words: &str) -> (&'static str, Vec<String>, Option<String>) {
        let process = of(words).unwrap();
        let names = match process.interfaces {
            Interfaces::Named(names) => names,
            Interfaces::Any => Vec::new(),
        };
        (process.program, names, process.script)
    }

    fn names(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dhclient_tells_its_interfaces_and_script() {
        assert_eq!(
            told(
                "/sbin/dhclient -4 -v -i -pf /run/dhclient.eth0.pid -lf /var/lib/dhcp/eth0.leases -I -df /var/lib/dhcp/eth0.6 eth0"
            ),
            ("dhclient", names(&["eth0"]), None)
        );
        assert_eq!(
            told("dhclient -sf /bin/true eth0 eth1"),
            (
                "dhclient",
                names(&["eth0", "eth1"]),
                Some("/bin/true".to_owned())
            )
        );
        assert_eq!(told("dhclient -d"), ("dhclient", names(&[]), None));
    }

    #[test]
    fn dhcpcd_tells_its_interfaces_by_arguments_or_title() {
        assert_eq!(told("dhcpcd -q -b"), ("dhcpcd", names(&[]), None));
        assert_eq!(
            told("/usr/sbin/dhcpcd -B4 --script=/bin/true --persistent eth0"),
            ("dhcpcd", names(&["eth0"]), Some("/bin/true".to_owned()))
        );
        assert_eq!(
            told("dhcpcd -c /opt/run eth0"),
            ("dhcpcd", names(&["eth0"]), Some("/opt/run".to_owned()))
        );
        let title = Process::of(1, "dhcpcd: eth0 [ip4] [ip6]\0\0\0").unwrap();
        assert_eq!(title.interfaces, Interfaces::Named(names(&["eth0"])));
        let title = Process::of(1, "dhcpcd: [manager] [ip4] [ip6]").unwrap();
        assert_eq!(title.interfaces, Interfaces::Any);
    }

    #[test]
    fn udhcpc_tells_its_interface_and_script() {
        assert_eq!(
            told("udhcpc -b -R -p /var/run/udhcpc.eth1.pid -i eth1 -x hostname:a"),
            ("udhcpc", names(&["eth1"]), None)
        );
        assert_eq!(
            told("/bin/busybox udhcpc -fqi eth1 -s/usr/libexec/leaseroute/udhcpc.script"),
            (
                "udhcpc",
                names(&["eth1"]),
                Some("/usr/libexec/leaseroute/udhcpc.script".to_owned())
            )
        );
        assert_eq!(
            told("udhcpc6 --interface=eth2 --script /a"),
            ("udhcpc", names(&["eth2"]), Some("/a".to_owned()))
        );
        // Its default.
        assert_eq!(told("udhcpc"), ("udhcpc", names(&["eth0"]), None));
    }

    #[test]
    fn daemons_are_known_behind_an_interpreter() {
        assert_eq!(
            of("/usr/lib/systemd/systemd-networkd").unwrap().program,
            "systemd-networkd"
        );
        let dispatcher =
            of("/usr/bin/python3 -u /usr/bin/networkd-dispatcher --run-startup-triggers");
        assert_eq!(dispatcher.unwrap().program, "networkd-dispatcher");
        assert_eq!(
            of("/usr/sbin/NetworkManager --no-daemon").unwrap().program,
            "NetworkManager"
        );
        assert_eq!(of("grep dhclient"), None);
        assert_eq!(of("/bin/sh /sbin/dhclient-script"), None);
        assert_eq!(of(""), None);
    }
}
