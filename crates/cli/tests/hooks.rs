//! `leaseroute hooks` on the skeletons of distributions: what is installed is exactly what
//! their clients read, and what is removed leaves them as they were to the byte.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use leaseroute_lab::fabric::{Fabric, Layout};
use leaseroute_lab::privilege::with_namespaces;
use serde_json::Value;

/// A system in a folder.
struct System {
    folder: tempfile::TempDir,
}

/// How the program ended and what it printed.
struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

/// A path's mode and what it holds.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

const DEBIAN_SCRIPT: &str = "run_hook /etc/dhcp/dhclient-exit-hooks\n\
    run_hookdir /etc/dhcp/dhclient-exit-hooks.d\n";
const RHEL_SCRIPT: &str = "ETCDIR=\"/etc/dhcp\"\nfor f in $ETCDIR/dhclient.d/*.sh ; do\n";
const UPSTREAM_SCRIPT: &str = "run_hookdir /etc/dhclient-exit-hooks.d\n";
const ALPINE_SCRIPT: &str = "run_scripts /etc/udhcpc/post-$1\n";

impl System {
    /// A system of empty files and, where the path ends with a slash, folders.
    fn new(paths: &[&str]) -> Self {
        let system = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for path in paths {
            match path.strip_suffix('/') {
                Some(folder) => fs::create_dir_all(system.path(folder)).unwrap(),
                None => system.write(path, "", 0o755),
            }
        }
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str, mode: u32) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn link(&self, target: &str, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn mode(&self, path: &str) -> u32 {
        fs::symlink_metadata(self.path(path)).unwrap().mode() & 0o7777
    }

    fn run(&self, words: &[&str]) -> Answer {
        let output = Command::new(env!("CARGO_BIN_EXE_leaseroute"))
            .arg("hooks")
            .args(words)
            .arg("--root")
            .arg(self.folder.path())
            .output()
            .unwrap();
        Answer {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// `run`, which must succeed.
    fn ok(&self, words: &[&str]) -> Answer {
        let answer = self.run(words);
        assert_eq!(
            answer.code, 0,
            "{words:?}: {}{}",
            answer.stdout, answer.stderr
        );
        answer
    }

    fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.run(&words).stdout).unwrap()
    }

    /// What `list` says of a client.
    fn listed(&self, client: &str) -> Value {
        let answer = self.json(&["list"]);
        let mut clients = answer["clients"].as_array().unwrap().iter();
        clients
            .find(|view| view["client"] == client)
            .unwrap()
            .clone()
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut ahead = vec![self.folder.path().to_owned()];
        while let Some(folder) = ahead.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let about = fs::symlink_metadata(&path).unwrap();
                let bytes = if about.is_dir() {
                    ahead.push(path.clone());
                    b"/".to_vec()
                } else if about.is_symlink() {
                    let target = fs::read_link(&path).unwrap();
                    format!("-> {}", target.display()).into_bytes()
                } else {
                    fs::read(&path).unwrap()
                };
                let path = path.strip_prefix(self.folder.path()).unwrap().to_owned();
                tree.insert(path, (about.mode() & 0o7777, bytes));
            }
        }
        tree
    }

    /// What has come since, one line each: mode, path, and a slash or the target of a link.
    fn news(&self, before: &Tree) -> Vec<String> {
        let after = self.tree();
        let new = after
            .iter()
            .filter(|(path, it)| before.get(*path) != Some(it));
        new.map(|(path, (mode, bytes))| {
            let end = match bytes.as_slice() {
                b"/" => "/".to_owned(),
                link if link.starts_with(b"-> ") => format!(" {}", String::from_utf8_lossy(link)),
                _ => String::new(),
            };
            match end.starts_with(' ') {
                true => format!("link /{}{end}", path.display()),
                false => format!("{mode:04o} /{}{end}", path.display()),
            }
        })
        .collect()
    }

    /// Installs, checks what has come, that a second time changes nothing, and that removal
    /// leaves no trace.
    fn round_trip(&self, expected: &[&str]) {
        let before = self.tree();
        let first = self.ok(&["install"]);
        assert_eq!(self.news(&before), expected, "{}", first.stdout);
        let between = self.tree();
        let again = self.json(&["install"]);
        let changes = again["clients"].as_array().unwrap().iter();
        let changes = changes.flat_map(|client| client["changes"].as_array().unwrap());
        for change in changes {
            assert_eq!(change["did"], "already", "{change}");
        }
        assert_eq!(self.tree(), between);
        self.ok(&["remove"]);
        assert_eq!(self.tree(), before);
        assert_eq!(self.ok(&["remove"]).stdout, "nothing to do\n");
        assert_eq!(self.tree(), before);
    }
}

fn debian_12() -> System {
    let system = System::new(&[
        "/sbin/dhclient",
        "/etc/dhcp/dhclient-enter-hooks.d/",
        "/etc/dhcp/dhclient-exit-hooks.d/rfc3442-classless-routes",
        "/usr/lib/systemd/systemd",
        "/usr/lib/systemd/systemd-networkd",
        "/etc/systemd/networkd.conf",
    ]);
    system.write("/sbin/dhclient-script", DEBIAN_SCRIPT, 0o755);
    system
}

fn ubuntu() -> System {
    let system = System::new(&[
        "/usr/bin/networkd-dispatcher",
        "/usr/lib/systemd/systemd",
        "/usr/lib/systemd/systemd-networkd",
        "/etc/networkd-dispatcher/carrier.d/",
        "/etc/networkd-dispatcher/degraded.d/",
        "/etc/networkd-dispatcher/dormant.d/",
        "/etc/networkd-dispatcher/no-carrier.d/",
        "/etc/networkd-dispatcher/off.d/",
        "/etc/networkd-dispatcher/routable.d/",
        "/etc/systemd/system/multi-user.target.wants/",
    ]);
    for folder in fs::read_dir(system.path("/etc/networkd-dispatcher")).unwrap() {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.unwrap().path(), mode).unwrap();
    }
    system
}

fn networkmanager() -> System {
    System::new(&[
        "/usr/sbin/NetworkManager",
        "/usr/lib/systemd/systemd",
        "/etc/NetworkManager/dispatcher.d/no-wait.d/",
        "/etc/NetworkManager/dispatcher.d/pre-down.d/",
        "/etc/NetworkManager/dispatcher.d/pre-up.d/",
        "/usr/libexec/",
    ])
}

fn amazon_linux_2() -> System {
    let system = System::new(&["/sbin/dhclient", "/etc/dhcp/dhclient.d/chrony.sh"]);
    system.write("/sbin/dhclient-script", RHEL_SCRIPT, 0o755);
    system
}

fn alpine() -> System {
    let system = System::new(&["/etc/alpine-release", "/bin/busybox"]);
    system.link("/bin/busybox", "/sbin/udhcpc");
    system.write("/usr/share/udhcpc/default.script", ALPINE_SCRIPT, 0o755);
    system
}

fn openwrt() -> System {
    let system = System::new(&["/lib/netifd/dhcp.script", "/bin/busybox"]);
    system.link("../bin/busybox", "/sbin/udhcpc");
    system.write(
        "/etc/udhcpc.user",
        "# This script is sourced.\necho $1",
        0o640,
    );
    system
}

const NETWORKMANAGER: &[&str] = &[
    "0755 /etc/NetworkManager/dispatcher.d/90-leaseroute",
    "link /etc/NetworkManager/dispatcher.d/pre-down.d/90-leaseroute -> ../90-leaseroute",
];

#[test]
fn debian_with_dhclient() {
    debian_12().round_trip(&[
        "0644 /etc/dhcp/dhclient-enter-hooks.d/zz-leaseroute",
        "0644 /etc/dhcp/dhclient-exit-hooks.d/zz-leaseroute",
        "0755 /etc/systemd/networkd.conf.d/",
        "0644 /etc/systemd/networkd.conf.d/50-leaseroute.conf",
    ]);
}

#[test]
fn debian_with_ifupdown_for_static_cards() {
    System::new(&[
        "/usr/sbin/ifup",
        "/etc/network/if-up.d/",
        "/etc/network/if-post-down.d/",
    ])
    .round_trip(&[
        "link /etc/network/if-post-down.d/leaseroute -> ../if-up.d/leaseroute",
        "0755 /etc/network/if-up.d/leaseroute",
    ]);
}

#[test]
fn suse_with_wicked() {
    System::new(&[
        "/usr/sbin/wickedd",
        "/etc/netconfig.d/",
        "/etc/wicked/scripts/",
    ])
    .round_trip(&[
        "0755 /etc/netconfig.d/leaseroute",
        "0755 /etc/wicked/scripts/leaseroute",
    ]);
}

#[test]
fn ubuntu_with_networkd_dispatcher() {
    ubuntu().round_trip(&[
        "0755 /etc/networkd-dispatcher/carrier.d/50-leaseroute",
        "0755 /etc/networkd-dispatcher/configured.d/",
        "0755 /etc/networkd-dispatcher/configured.d/50-leaseroute",
        "0755 /etc/networkd-dispatcher/degraded.d/50-leaseroute",
        "0755 /etc/networkd-dispatcher/dormant.d/50-leaseroute",
        "0755 /etc/networkd-dispatcher/no-carrier.d/50-leaseroute",
        "0755 /etc/networkd-dispatcher/off.d/50-leaseroute",
        "0755 /etc/networkd-dispatcher/routable.d/50-leaseroute",
        "0755 /etc/systemd/networkd.conf.d/",
        "0644 /etc/systemd/networkd.conf.d/50-leaseroute.conf",
    ]);
}

#[test]
fn rhel_9_with_networkmanager() {
    networkmanager().round_trip(NETWORKMANAGER);
}

#[test]
fn suse_with_networkmanager() {
    let system = networkmanager();
    system.write(
        "/etc/NetworkManager/dispatcher.d/cloud-netconfig-nm",
        "#!/bin/sh\n",
        0o755,
    );
    system.round_trip(NETWORKMANAGER);
}

#[test]
fn rhel_8_with_networkmanager_and_dhclient() {
    let system = networkmanager();
    system.write("/usr/sbin/dhclient", "", 0o755);
    system.write("/usr/sbin/dhclient-script", RHEL_SCRIPT, 0o755);
    // Of cloud-init; the script of RHEL does not read it.
    fs::create_dir_all(system.path("/etc/dhcp/dhclient-exit-hooks.d")).unwrap();
    fs::create_dir_all(system.path("/etc/dhcp/dhclient.d")).unwrap();
    let mut expected = NETWORKMANAGER.to_vec();
    expected.push("0755 /etc/dhcp/dhclient.d/leaseroute.sh");
    system.round_trip(&expected);
}

#[test]
fn amazon_linux_2_with_dhclient() {
    amazon_linux_2().round_trip(&["0755 /etc/dhcp/dhclient.d/leaseroute.sh"]);
}

#[test]
fn arch_with_dhcpcd_networkd_and_dhclient() {
    let system = System::new(&[
        "/usr/bin/dhcpcd",
        "/usr/bin/dhclient",
        "/usr/lib/dhcpcd/dhcpcd-hooks/20-resolv.conf",
        "/usr/lib/systemd/systemd-networkd",
        "/etc/systemd/networkd.conf",
    ]);
    system.link("usr/lib", "/lib");
    system.write("/usr/bin/dhclient-script", UPSTREAM_SCRIPT, 0o755);
    system.round_trip(&[
        "0755 /etc/dhclient-enter-hooks.d/",
        "0644 /etc/dhclient-enter-hooks.d/zz-leaseroute",
        "0755 /etc/dhclient-exit-hooks.d/",
        "0644 /etc/dhclient-exit-hooks.d/zz-leaseroute",
        "0755 /etc/systemd/networkd.conf.d/",
        "0644 /etc/systemd/networkd.conf.d/50-leaseroute.conf",
        "0644 /usr/lib/dhcpcd/dhcpcd-hooks/90-leaseroute",
    ]);
}

#[test]
fn a_place_that_has_two_paths_is_one() {
    let system = System::new(&["/usr/bin/dhcpcd", "/usr/lib/dhcpcd/dhcpcd-hooks/"]);
    system.link("usr/lib", "/lib");
    system.ok(&["install"]);
    let entries = system.listed("dhcpcd")["entries"].clone();
    assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
    let removed = system.ok(&["remove"]).stdout;
    assert_eq!(
        removed,
        "dhcpcd\n  removed  /usr/lib/dhcpcd/dhcpcd-hooks/90-leaseroute\n"
    );
}

#[test]
fn debian_13_with_dhcpcd_and_dhclient() {
    let system = System::new(&[
        "/usr/sbin/dhclient",
        "/usr/sbin/dhcpcd",
        "/etc/dhcp/dhclient-enter-hooks.d/",
        "/etc/dhcp/dhclient-exit-hooks.d/",
        "/usr/lib/dhcpcd/dhcpcd-hooks/",
    ]);
    system.round_trip(&[
        "0644 /etc/dhcp/dhclient-enter-hooks.d/zz-leaseroute",
        "0644 /etc/dhcp/dhclient-exit-hooks.d/zz-leaseroute",
        "0644 /usr/lib/dhcpcd/dhcpcd-hooks/90-leaseroute",
    ]);
}

#[test]
fn an_old_place_of_dhcpcds_hooks() {
    System::new(&["/sbin/dhcpcd", "/lib/dhcpcd/dhcpcd-hooks/"])
        .round_trip(&["0644 /lib/dhcpcd/dhcpcd-hooks/90-leaseroute"]);
    System::new(&["/sbin/dhcpcd", "/usr/libexec/dhcpcd-hooks/"])
        .round_trip(&["0644 /usr/libexec/dhcpcd-hooks/90-leaseroute"]);
}

#[test]
fn alpine_with_udhcpc() {
    alpine().round_trip(&[
        "0755 /etc/udhcpc/",
        "0755 /etc/udhcpc/post-bound/",
        "0755 /etc/udhcpc/post-bound/leaseroute",
        "0755 /etc/udhcpc/post-deconfig/",
        "0755 /etc/udhcpc/post-deconfig/leaseroute",
        "0755 /etc/udhcpc/post-renew/",
        "0755 /etc/udhcpc/post-renew/leaseroute",
    ]);
}

#[test]
fn debian_with_udhcpc() {
    System::new(&["/sbin/udhcpc", "/etc/udhcpc/default.script", "/usr/"]).round_trip(&[
        "0755 /usr/libexec/",
        "0755 /usr/libexec/leaseroute/",
        "0755 /usr/libexec/leaseroute/udhcpc.script",
        "link /usr/libexec/leaseroute/udhcpc6.script -> udhcpc.script",
    ]);
}

#[test]
fn openwrt_with_udhcpc() {
    let system = openwrt();
    fs::create_dir_all(system.path("/usr")).unwrap();
    system.round_trip(&[
        "0640 /etc/udhcpc.user",
        "0755 /usr/libexec/",
        "0755 /usr/libexec/leaseroute/",
        "0644 /usr/libexec/leaseroute/leaseroute.user",
    ]);
    system.ok(&["install"]);
    assert_eq!(
        system.text("/etc/udhcpc.user"),
        "# This script is sourced.\necho $1\n\
         . /usr/libexec/leaseroute/leaseroute.user # leaseroute, after a line without an end\n"
    );
}

#[test]
fn openwrt_without_a_file_of_the_administrators() {
    let system = openwrt();
    fs::create_dir_all(system.path("/usr")).unwrap();
    fs::remove_file(system.path("/etc/udhcpc.user")).unwrap();
    system.round_trip(&[
        "0644 /etc/udhcpc.user",
        "0755 /usr/libexec/",
        "0755 /usr/libexec/leaseroute/",
        "0644 /usr/libexec/leaseroute/leaseroute.user",
    ]);
}

#[test]
fn a_system_without_clients_needs_nothing() {
    let system = System::new(&["/etc/hostname"]);
    let answer = system.ok(&["install"]);
    assert_eq!(answer.stdout, "nothing to do\n");
    assert!(
        system
            .ok(&["list"])
            .stdout
            .starts_with("not here: dhclient, dhcpcd, udhcpc")
    );
}

#[test]
fn a_file_of_somebody_else_stays_and_the_rest_is_done() {
    let system = networkmanager();
    system.write("/usr/sbin/dhcpcd", "", 0o755);
    fs::create_dir_all(system.path("/usr/lib/dhcpcd/dhcpcd-hooks")).unwrap();
    let hook = "/etc/NetworkManager/dispatcher.d/90-leaseroute";
    system.write(hook, "#!/bin/sh\necho mine\n", 0o755);
    let before = system.tree();
    let answer = system.run(&["install"]);
    assert_eq!(answer.code, 1);
    assert!(
        answer.stderr.contains(&format!(
            "failed to change {hook}: it is not one of leaseroute's, and stays as it is"
        )),
        "{}",
        answer.stderr
    );
    // No link leads to it either.
    assert_eq!(
        system.news(&before),
        ["0644 /usr/lib/dhcpcd/dhcpcd-hooks/90-leaseroute"]
    );
    assert_eq!(system.listed("nm-dispatcher")["live"], "no");
    system.ok(&["remove"]);
    assert_eq!(system.tree(), before);
}

#[test]
fn a_mask_of_the_administrator_stays() {
    let system = networkmanager();
    let hook = "/etc/NetworkManager/dispatcher.d/90-leaseroute";
    system.link("/dev/null", hook);
    let before = system.tree();
    assert_eq!(system.run(&["install"]).code, 1);
    assert_eq!(system.tree(), before);
    system.ok(&["remove"]);
    assert_eq!(system.tree(), before);
}

#[test]
fn an_older_version_is_updated_and_a_mode_put_right() {
    let system = amazon_linux_2();
    let hook = "/etc/dhcp/dhclient.d/leaseroute.sh";
    system.ok(&["install"]);
    let shipped = system.text(hook);
    system.write(hook, "# Hands the event to leaseroute.\n", 0o755);
    assert_eq!(system.listed("dhclient")["entries"][0]["state"], "outdated");
    assert!(system.ok(&["install"]).stdout.contains("updated"));
    assert_eq!(system.text(hook), shipped);

    system.write(hook, &shipped, 0o644);
    let listed = system.listed("dhclient");
    assert_eq!(listed["entries"][0]["state"], "not_executable");
    assert_eq!(listed["live"], "no");
    system.ok(&["install"]);
    assert_eq!(system.mode(hook), 0o755);

    // An older version goes too.
    system.write(hook, "# Hands the event to leaseroute.\n", 0o755);
    system.ok(&["remove"]);
    assert!(!system.path(hook).exists());
}

#[test]
fn only_what_is_named_is_installed_and_removed() {
    let system = debian_12();
    let before = system.tree();
    system.ok(&["install", "--client", "dhclient"]);
    assert_eq!(
        system.news(&before),
        [
            "0644 /etc/dhcp/dhclient-enter-hooks.d/zz-leaseroute",
            "0644 /etc/dhcp/dhclient-exit-hooks.d/zz-leaseroute"
        ]
    );
    system.ok(&["remove", "--client", "networkd", "networkmanager"]);
    assert!(!system.news(&before).is_empty());
    system.ok(&["remove", "--client", "dhclient"]);
    assert_eq!(system.tree(), before);

    // Nobody knows where its hooks would go.
    let answer = system.run(&["install", "--client", "dhcpcd"]);
    assert_eq!(answer.code, 1);
    assert!(
        answer
            .stderr
            .contains("failed to install hooks of dhcpcd: none of the folders"),
        "{}",
        answer.stderr
    );
    assert_eq!(system.run(&["install", "--client", "pump"]).code, 2);
}

#[test]
fn a_missing_program_is_told_and_can_be_copied() {
    let system = debian_12();
    let program = "/usr/libexec/leaseroute/leaseroute-dhclient";
    let answer = system.ok(&["install"]);
    assert!(
        answer.stderr.contains(&format!("{program} is not there")),
        "{}",
        answer.stderr
    );
    let listed = system.listed("dhclient");
    assert_eq!(listed["program"]["state"], "missing");
    assert_eq!(listed["live"], "no");
    system.ok(&["remove"]);

    let before = system.tree();
    let build = tempfile::tempdir().unwrap();
    let from = build.path().to_str().unwrap().to_owned();
    let answer = system.run(&["install", "--programs", &from]);
    assert_eq!(answer.code, 1, "{}", answer.stdout);
    fs::write(build.path().join("leaseroute-dhclient"), "ELF").unwrap();
    system.ok(&["install", "--programs", &from]);
    assert_eq!(system.text(program), "ELF");
    assert_eq!(system.mode(program), 0o755);
    assert_eq!(system.listed("dhclient")["live"], "yes");
    let between = system.tree();
    system.ok(&["install", "--programs", &from]);
    assert_eq!(system.tree(), between);
    system.ok(&["remove"]);
    assert_eq!(system.tree(), before);
}

#[test]
fn a_program_of_a_package_is_not_removed() {
    let system = debian_12();
    let program = "/usr/libexec/leaseroute/leaseroute-dhclient";
    system.write(program, "packaged", 0o755);
    let before = system.tree();
    system.ok(&["install"]);
    system.ok(&["remove"]);
    assert_eq!(system.tree(), before);

    // Nor is one that has taken the place of a copy.
    let build = tempfile::tempdir().unwrap();
    fs::write(build.path().join("leaseroute-dhclient"), "built").unwrap();
    system.ok(&["install", "--programs", build.path().to_str().unwrap()]);
    assert_eq!(system.text(program), "built");
    fs::remove_file(system.path(program)).unwrap();
    system.write(program, "packaged", 0o755);
    system.ok(&["remove"]);
    assert_eq!(system.tree(), before);
}

#[test]
fn no_link_of_an_image_leads_out_of_it() {
    let outside = tempfile::tempdir().unwrap();
    let system = System::new(&["/usr/sbin/NetworkManager", "/real/pre-down.d/"]);
    system.link("/real", "/etc/NetworkManager/dispatcher.d");
    fs::create_dir_all(system.path("/usr/lib/dhcpcd")).unwrap();
    system.write("/usr/sbin/dhcpcd", "", 0o755);
    system.link(
        outside.path().to_str().unwrap(),
        "/usr/lib/dhcpcd/dhcpcd-hooks",
    );
    let answer = system.ok(&["install"]);
    // Absolute links are the image's own: this one leads nowhere in it.
    let warning = "warning: none of the folders that dhcpcd is known to read hooks from is there";
    assert!(answer.stderr.contains(warning), "{}", answer.stderr);
    assert_eq!(system.mode("/real/90-leaseroute"), 0o755);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn what_the_client_refuses_is_told() {
    let system = ubuntu();
    let folder = system.path("/etc/networkd-dispatcher/routable.d");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o775)).unwrap();
    let answer = system.ok(&["install"]);
    let refusal = "/etc/networkd-dispatcher/routable.d is not root's with the mode 0755";
    assert!(answer.stderr.contains(refusal), "{}", answer.stderr);
    // It is somebody else's folder.
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o775);
    let listed = system.listed("networkd-dispatcher");
    assert_eq!(listed["live"], "no");
    assert!(listed["why_not"].to_string().contains(refusal));
}

#[test]
fn units_that_are_off_are_told() {
    let system = networkmanager();
    system.write(
        "/usr/libexec/leaseroute/leaseroute-nm-dispatcher",
        "",
        0o755,
    );
    let command = "systemctl enable NetworkManager-dispatcher.service";
    assert!(system.ok(&["install"]).stdout.contains(command));
    assert_eq!(system.listed("nm-dispatcher")["live"], "no");
    assert_eq!(
        system.listed("nm-dispatcher")["to_do"][0]["command"],
        command
    );
    let enabled = "/etc/systemd/system/dbus-org.freedesktop.nm-dispatcher.service";
    system.link(
        "/usr/lib/systemd/system/NetworkManager-dispatcher.service",
        enabled,
    );
    assert!(!system.ok(&["install"]).stdout.contains(command));
    assert_eq!(system.listed("nm-dispatcher")["live"], "yes");
    fs::remove_file(system.path(enabled)).unwrap();
    system.link("/dev/null", enabled);
    assert_eq!(system.listed("nm-dispatcher")["live"], "no");
    // Without systemd the bus starts it.
    fs::remove_file(system.path("/usr/lib/systemd/systemd")).unwrap();
    assert_eq!(system.listed("nm-dispatcher")["live"], "yes");
}

#[test]
fn a_script_that_nobody_starts_is_told() {
    let system = System::new(&["/sbin/udhcpc", "/usr/libexec/"]);
    let answer = system.ok(&["install"]);
    assert!(
        answer
            .stdout
            .contains("start udhcpc with -s /usr/libexec/leaseroute/udhcpc.script"),
        "{}",
        answer.stdout
    );
    system.write("/usr/libexec/leaseroute/leaseroute-udhcpc", "", 0o755);
    assert_eq!(system.listed("udhcpc")["live"], "by_process");
}

#[test]
fn a_script_that_sets_the_address_is_not_taken_from_its_client() {
    let system = System::new(&["/sbin/udhcpc", "/usr/libexec/", "/etc/udhcpc/"]);
    system.ok(&["install"]);
    let installed = system.tree();
    let refused = |why: &str| {
        let answer = system.run(&["remove"]);
        assert_eq!(answer.code, 1, "{}", answer.stdout);
        assert!(answer.stderr.contains(why), "{}", answer.stderr);
    };
    let script = "/usr/libexec/leaseroute/udhcpc.script";
    system.link(script, "/etc/udhcpc/default.script");
    refused("/etc/udhcpc/default.script is a link to it, and would have no script");
    fs::remove_file(system.path("/etc/udhcpc/default.script")).unwrap();
    assert_eq!(system.tree(), installed);

    let stanza = format!("iface eth1 inet dhcp\n    udhcpc_opts -s {script}\n");
    system.write("/etc/network/interfaces.d/eth1", &stanza, 0o644);
    refused("/etc/network/interfaces.d/eth1 names it");
    system.write(
        "/etc/network/interfaces.d/eth1",
        "# -s /usr/libexec/leaseroute/udhcpc.script\n",
        0o644,
    );
    system.ok(&["remove"]);
    assert!(!system.path(script).exists());
}

#[test]
fn a_client_that_is_told_to_skip_the_hook_is_told() {
    let system = System::new(&["/usr/sbin/dhcpcd", "/usr/lib/dhcpcd/dhcpcd-hooks/"]);
    system.write("/usr/libexec/leaseroute/leaseroute-dhcpcd", "", 0o755);
    system.ok(&["install"]);
    assert_eq!(system.listed("dhcpcd")["live"], "yes");
    system.write(
        "/etc/dhcpcd.conf",
        "persistent\nnohook resolv.conf, leaseroute\n",
        0o644,
    );
    let listed = system.listed("dhcpcd");
    assert_eq!(listed["live"], "no");
    assert_eq!(
        listed["why_not"][0],
        "/etc/dhcpcd.conf turns it off (nohook leaseroute)"
    );
}

#[test]
fn a_hook_in_a_place_that_nobody_reads_is_told_and_removed() {
    let system = amazon_linux_2();
    let old = "/etc/dhcp/dhclient-exit-hooks.d/zz-leaseroute";
    system.write(old, "# leaseroute\n", 0o644);
    let entries = system.listed("dhclient")["entries"].clone();
    assert_eq!(entries[1]["path"], old);
    assert_eq!(entries[1]["state"], "out_of_place");
    system.ok(&["remove"]);
    assert!(!system.path(old).exists());
}

#[test]
fn what_cannot_be_looked_at_is_not_known() {
    let system = debian_12();
    system.ok(&["install"]);
    // A link that leads to itself cannot be followed by anybody, root or not.
    fs::remove_dir_all(system.path("/etc/dhcp")).unwrap();
    system.link("dhcp", "/etc/dhcp");
    let listed = system.listed("dhclient");
    assert_eq!(listed["live"], "unknown", "{listed}");
    assert_eq!(listed["entries"][0]["state"], "unreadable");
    assert_eq!(system.run(&["install"]).code, 1);
    assert_eq!(system.run(&["remove"]).code, 1);
    // The rest is done.
    assert!(!system.path("/etc/systemd/networkd.conf.d").exists());
}

#[test]
fn a_root_that_is_not_there_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_leaseroute"))
        .args(["hooks", "list", "--root", "/nowhere/at/all"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("failed to read /nowhere/at/all"), "{error}");
}

/// A process that looks like a client's, until it is dropped.
struct Pretender(Child);

impl Pretender {
    /// A shell that waits, by the name and with some of the arguments of a client.
    fn command(name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command
            .arg0(name)
            .args(["-c", "read line"])
            .args(arguments)
            .stdin(Stdio::piped());
        command
    }
}

impl Drop for Pretender {
    fn drop(&mut self) {
        // It is going already if this fails.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn each_card_is_shown_with_its_client() {
    with_namespaces("each_card_is_shown_with_its_client", || {
        let fabric = Fabric::new(&Layout::separate(2)).unwrap();
        let spawn = |mut command: Command| {
            let child = fabric.host().run(move || command.spawn());
            Pretender(child.unwrap())
        };
        let client = spawn(Pretender::command("/sbin/dhclient", &["-v", "eth1"]));
        let _another = spawn(Pretender::command("udhcpc", &["-i", "eth7"]));
        // One that works elsewhere, as a container's does.
        let mut elsewhere = Pretender::command("/sbin/dhclient", &["eth0"]);
        let _elsewhere = Pretender(elsewhere.spawn().unwrap());

        let state = tempfile::tempdir().unwrap();
        let run = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_leaseroute"));
            command.args(words);
            command.env("LEASEROUTE_STATE_DIR", state.path());
            let output = fabric.host().run(move || command.output()).unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let answer: Value = serde_json::from_str(&run(&["hooks", "list", "--json"])).unwrap();
        let cards = answer["cards"].as_array().unwrap();
        assert_eq!(cards.len(), 2, "{answer}");
        assert_eq!(cards[0]["name"], "eth0");
        assert_eq!(cards[0]["managers"], serde_json::json!([]));
        assert_eq!(cards[0]["told"], serde_json::json!([]));
        let managers = cards[1]["managers"].as_array().unwrap();
        assert_eq!(managers.len(), 1, "{answer}");
        assert_eq!(managers[0]["program"], "dhclient");
        assert_eq!(managers[0]["client"], "dhclient");
        assert_eq!(managers[0]["pid"], client.0.id());

        let lease = state.path().join("bound.env");
        let lines = "reason=BOUND\ninterface=eth0\nnew_ip_address=192.0.2.10\n";
        fs::write(&lease, lines).unwrap();
        run(&["apply", "--lease", lease.to_str().unwrap()]);
        let text = run(&["hooks", "list"]);
        let told = "  eth0: no client is seen at work\n    dhclient told of its IPv4 lease";
        assert!(text.contains(told), "{text}");
        assert!(text.contains("  eth1: dhclient (process "), "{text}");
    });
}
