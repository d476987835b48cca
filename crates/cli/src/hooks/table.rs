//! What is installed where, as data, with a reason for each row.
//!
//! A client is one [`Room`] here and nothing else. The places are those of
//! dhclient-script(8), dhcpcd-run-hooks(8), the scripts of udhcpc, networkd-dispatcher's
//! README, networkd.conf(5), NetworkManager-dispatcher(8), and the scripts of wicked and
//! ifupdown.

use super::room::{Layout, Room, Row, Sign, Start, What};

/// Where the programs are that the hooks start.
pub(crate) const PROGRAMS: &str = "/usr/libexec/leaseroute";

/// A file that is part of this program.
macro_rules! shipped {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $path))
    };
}

const DHCLIENT_SCRIPT: &[&str] = &[
    "/sbin/dhclient-script",
    "/usr/sbin/dhclient-script",
    "/usr/bin/dhclient-script",
];

/// The folders that are made for them.
pub(crate) const IN_PROGRAMS: &[&str] = &[PROGRAMS, "/usr/libexec"];

/// Every client whose hooks can be installed.
pub(crate) static ROOMS: &[Room] = &[
    DHCLIENT,
    DHCPCD,
    UDHCPC,
    NETWORKD,
    NETWORKD_DISPATCHER,
    NM_DISPATCHER,
    WICKED,
    IFUPDOWN,
];

const DHCLIENT: Room = Room {
    name: "dhclient",
    aliases: &[],
    program: Some("leaseroute-dhclient"),
    signs: &["/sbin/dhclient", "/usr/sbin/dhclient", "/usr/bin/dhclient"],
    serves: "dhclient",
    scripts: &["dhclient-script"],
    off: &[],
    layouts: &[
        // What the script reads counts first: other packages put their hooks into the
        // folders of all families.
        Layout {
            name: "RHEL, Fedora, Amazon Linux",
            signs: &[Sign::Says(DHCLIENT_SCRIPT, "/dhclient.d/")],
            rows: &[DHCLIENT_RHEL],
            starts: Start::AtOnce,
        },
        Layout {
            name: "Debian, Ubuntu",
            signs: &[Sign::Says(
                DHCLIENT_SCRIPT,
                "/etc/dhcp/dhclient-exit-hooks.d",
            )],
            rows: &[DHCLIENT_DEBIAN_ENTER, DHCLIENT_DEBIAN],
            starts: Start::AtOnce,
        },
        Layout {
            name: "Arch, Gentoo",
            signs: &[Sign::Says(DHCLIENT_SCRIPT, "/etc/dhclient-exit-hooks.d")],
            rows: &[DHCLIENT_UPSTREAM_ENTER, DHCLIENT_UPSTREAM],
            starts: Start::AtOnce,
        },
        Layout {
            name: "RHEL, Fedora, Amazon Linux",
            signs: &[Sign::Exists("/etc/dhcp/dhclient.d")],
            rows: &[DHCLIENT_RHEL],
            starts: Start::AtOnce,
        },
        Layout {
            name: "Debian, Ubuntu",
            signs: &[Sign::Exists("/etc/dhcp/dhclient-exit-hooks.d")],
            rows: &[DHCLIENT_DEBIAN_ENTER, DHCLIENT_DEBIAN],
            starts: Start::AtOnce,
        },
        Layout {
            name: "Arch, Gentoo",
            signs: &[Sign::Exists("/etc/dhclient-exit-hooks.d")],
            rows: &[DHCLIENT_UPSTREAM_ENTER, DHCLIENT_UPSTREAM],
            starts: Start::AtOnce,
        },
    ],
};

const DHCLIENT_RHEL: Row = Row {
    path: "/etc/dhcp/dhclient.d/leaseroute.sh",
    what: What::File {
        text: shipped!("hooks/dhclient/rhel/leaseroute.sh"),
        mode: 0o755,
    },
    ours: &[],
    exact_folder: false,
    why: "this dhclient-script reads the executable files of the folder, and calls the functions \
          that are named after each",
};

const DHCLIENT_DEBIAN_ENTER: Row = Row {
    path: "/etc/dhcp/dhclient-enter-hooks.d/zz-leaseroute",
    what: What::File {
        text: shipped!("hooks/dhclient/debian/enter-hooks.d/zz-leaseroute"),
        mode: 0o644,
    },
    ours: &[],
    exact_folder: false,
    why: "dhclient-script reads the files of the folder before it puts the address on the card: \
          its first packet finds its way",
};

const DHCLIENT_DEBIAN: Row = Row {
    path: "/etc/dhcp/dhclient-exit-hooks.d/zz-leaseroute",
    what: What::File {
        text: shipped!("hooks/dhclient/debian/exit-hooks.d/zz-leaseroute"),
        mode: 0o644,
    },
    ours: &[],
    exact_folder: false,
    why: "dhclient-script reads the files of the folder; run-parts skips names with a dot, and \
          the last name comes after the routes of option 121 are set",
};

const DHCLIENT_UPSTREAM_ENTER: Row = Row {
    path: "/etc/dhclient-enter-hooks.d/zz-leaseroute",
    what: What::File {
        text: shipped!("hooks/dhclient/debian/enter-hooks.d/zz-leaseroute"),
        mode: 0o644,
    },
    ours: &["/etc/dhclient-enter-hooks.d"],
    exact_folder: false,
    why: "upstream's dhclient-script reads the files of the folder before it puts the address on \
          the card: its first packet finds its way",
};

const DHCLIENT_UPSTREAM: Row = Row {
    path: "/etc/dhclient-exit-hooks.d/zz-leaseroute",
    what: What::File {
        text: shipped!("hooks/dhclient/debian/exit-hooks.d/zz-leaseroute"),
        mode: 0o644,
    },
    ours: &["/etc/dhclient-exit-hooks.d"],
    exact_folder: false,
    why: "upstream's dhclient-script reads the files of the folder, which no package brings",
};

const DHCPCD: Room = Room {
    name: "dhcpcd",
    aliases: &[],
    program: Some("leaseroute-dhcpcd"),
    signs: &["/sbin/dhcpcd", "/usr/sbin/dhcpcd", "/usr/bin/dhcpcd"],
    serves: "dhcpcd",
    scripts: &["dhcpcd-run-hooks"],
    off: &[(
        "/etc/dhcpcd.conf",
        "nohook",
        &["leaseroute", "90-leaseroute"],
    )],
    layouts: &[
        Layout {
            name: "",
            signs: &[Sign::Exists("/usr/lib/dhcpcd/dhcpcd-hooks")],
            rows: &[dhcpcd("/usr/lib/dhcpcd/dhcpcd-hooks/90-leaseroute")],
            starts: Start::AtOnce,
        },
        Layout {
            name: "",
            signs: &[Sign::Exists("/lib/dhcpcd/dhcpcd-hooks")],
            rows: &[dhcpcd("/lib/dhcpcd/dhcpcd-hooks/90-leaseroute")],
            starts: Start::AtOnce,
        },
        Layout {
            name: "Fedora, EPEL",
            signs: &[Sign::Exists("/usr/libexec/dhcpcd-hooks")],
            rows: &[dhcpcd("/usr/libexec/dhcpcd-hooks/90-leaseroute")],
            starts: Start::AtOnce,
        },
    ],
};

const fn dhcpcd(path: &'static str) -> Row {
    Row {
        path,
        what: What::File {
            text: shipped!("hooks/dhcpcd/90-leaseroute"),
            mode: 0o644,
        },
        ours: &[],
        exact_folder: false,
        why: "dhcpcd-run-hooks reads every file of the folder; \"nohook leaseroute\" in \
              dhcpcd.conf turns it off",
    }
}

/// The scripts that udhcpc and udhcpc6 are to be started with where nothing calls hooks.
const UDHCPC_SCRIPT: &str = "/usr/libexec/leaseroute/udhcpc.script";
const UDHCPC6_SCRIPT: &str = "/usr/libexec/leaseroute/udhcpc6.script";

const UDHCPC: Room = Room {
    name: "udhcpc",
    aliases: &[],
    program: Some("leaseroute-udhcpc"),
    signs: &["/sbin/udhcpc", "/usr/sbin/udhcpc", "/usr/bin/udhcpc"],
    serves: "udhcpc",
    scripts: &["default.script", "dhcp.script"],
    off: &[],
    layouts: &[
        Layout {
            name: "OpenWrt",
            signs: &[
                Sign::Exists("/lib/netifd/dhcp.script"),
                Sign::Exists("/etc/openwrt_release"),
            ],
            rows: &[
                Row {
                    path: "/usr/libexec/leaseroute/leaseroute.user",
                    what: What::File {
                        text: shipped!("hooks/udhcpc/openwrt/leaseroute.user"),
                        mode: 0o644,
                    },
                    ours: IN_PROGRAMS,
                    exact_folder: false,
                    why: "what the administrator's file is made to read",
                },
                Row {
                    path: "/etc/udhcpc.user",
                    what: What::Line(". /usr/libexec/leaseroute/leaseroute.user # leaseroute"),
                    ours: &[],
                    exact_folder: false,
                    why: "netifd's script reads this one file, which is the administrator's",
                },
            ],
            starts: Start::AtOnce,
        },
        Layout {
            name: "Alpine",
            signs: &[
                Sign::Says(&["/usr/share/udhcpc/default.script"], "post-"),
                Sign::Exists("/etc/alpine-release"),
            ],
            rows: &[
                alpine("/etc/udhcpc/post-bound/leaseroute", ALPINE_BOUND),
                alpine("/etc/udhcpc/post-renew/leaseroute", ALPINE_RENEW),
                alpine("/etc/udhcpc/post-deconfig/leaseroute", ALPINE_DECONFIG),
            ],
            starts: Start::AtOnce,
        },
        Layout {
            name: "",
            signs: &[Sign::Always],
            rows: &[
                Row {
                    path: UDHCPC_SCRIPT,
                    what: What::File {
                        text: shipped!("hooks/udhcpc/leaseroute.script"),
                        mode: 0o755,
                    },
                    ours: IN_PROGRAMS,
                    exact_folder: false,
                    why: "this udhcpc has no folder for hooks: the script calls the \
                          distribution's own, and then the hook",
                },
                Row {
                    path: UDHCPC6_SCRIPT,
                    what: What::Link {
                        target: "udhcpc.script",
                    },
                    ours: IN_PROGRAMS,
                    exact_folder: false,
                    why: "by its name the script knows that udhcpc6 calls it, whose events are \
                          called as udhcpc's",
                },
            ],
            starts: Start::WithScript {
                scripts: &[UDHCPC_SCRIPT, UDHCPC6_SCRIPT],
                own: &[
                    "/etc/udhcpc/default.script",
                    "/etc/udhcpc/default6.script",
                    "/usr/share/udhcpc/default.script",
                    "/usr/share/udhcpc/default6.script",
                ],
                settings: &["/etc/network/interfaces", "/etc/network/interfaces.d"],
                advice: "start udhcpc with -s /usr/libexec/leaseroute/udhcpc.script -O \
                         staticroutes -O msstaticroutes, and udhcpc6 with -s \
                         /usr/libexec/leaseroute/udhcpc6.script: they run one script each, and \
                         call hooks by no other way",
            },
        },
    ],
};

const ALPINE_BOUND: &[&str] = &["/etc/udhcpc/post-bound", "/etc/udhcpc"];
const ALPINE_RENEW: &[&str] = &["/etc/udhcpc/post-renew", "/etc/udhcpc"];
const ALPINE_DECONFIG: &[&str] = &["/etc/udhcpc/post-deconfig", "/etc/udhcpc"];

const fn alpine(path: &'static str, ours: &'static [&'static str]) -> Row {
    Row {
        path,
        what: What::File {
            text: shipped!("hooks/udhcpc/alpine/leaseroute"),
            mode: 0o755,
        },
        ours,
        exact_folder: false,
        why: "Alpine's script runs the executable files of the event's folder, after its own work",
    }
}

const NETWORKD: Room = Room {
    name: "networkd",
    aliases: &["systemd-networkd"],
    program: None,
    signs: &[
        "/usr/lib/systemd/systemd-networkd",
        "/lib/systemd/systemd-networkd",
    ],
    serves: "systemd-networkd",
    scripts: &[],
    off: &[],
    layouts: &[Layout {
        name: "",
        signs: &[Sign::Always],
        rows: &[Row {
            path: "/etc/systemd/networkd.conf.d/50-leaseroute.conf",
            what: What::File {
                text: shipped!("packaging/systemd/networkd.conf.d/50-leaseroute.conf"),
                mode: 0o644,
            },
            ours: &["/etc/systemd/networkd.conf.d"],
            exact_folder: false,
            why: "networkd removes the rules and routes of others unless it is told not to",
        }],
        starts: Start::Setting {
            command: "systemctl try-restart systemd-networkd.service",
            why: "networkd reads its settings when it starts",
        },
    }],
};

const NETWORKD_DISPATCHER: Room = Room {
    name: "networkd-dispatcher",
    aliases: &[],
    program: Some("leaseroute-networkd-dispatcher"),
    signs: &[
        "/usr/bin/networkd-dispatcher",
        "/usr/sbin/networkd-dispatcher",
    ],
    serves: "systemd-networkd",
    scripts: &[],
    off: &[],
    layouts: &[Layout {
        name: "",
        signs: &[Sign::Always],
        rows: &[
            dispatched("/etc/networkd-dispatcher/routable.d/50-leaseroute", &[]),
            dispatched(
                "/etc/networkd-dispatcher/configured.d/50-leaseroute",
                &["/etc/networkd-dispatcher/configured.d"],
            ),
            dispatched("/etc/networkd-dispatcher/degraded.d/50-leaseroute", &[]),
            dispatched("/etc/networkd-dispatcher/carrier.d/50-leaseroute", &[]),
            dispatched("/etc/networkd-dispatcher/off.d/50-leaseroute", &[]),
            dispatched("/etc/networkd-dispatcher/no-carrier.d/50-leaseroute", &[]),
            dispatched("/etc/networkd-dispatcher/dormant.d/50-leaseroute", &[]),
        ],
        starts: Start::WithUnit {
            unit: "networkd-dispatcher.service",
            enabled: &["/etc/systemd/system/multi-user.target.wants/networkd-dispatcher.service"],
            process: Some("networkd-dispatcher"),
            command: "systemctl enable --now networkd-dispatcher.service",
            why: "networkd-dispatcher does not start while it has no scripts, and a first script does \
                  not start it",
        },
    }],
};

const fn dispatched(path: &'static str, ours: &'static [&'static str]) -> Row {
    Row {
        path,
        what: What::File {
            text: shipped!("hooks/networkd-dispatcher/50-leaseroute"),
            mode: 0o755,
        },
        ours,
        exact_folder: true,
        why: "networkd-dispatcher runs the files of the state's folder, when they and the folder \
              are root's and exactly 0755",
    }
}

const NM_DISPATCHER: Room = Room {
    name: "nm-dispatcher",
    aliases: &["networkmanager"],
    program: Some("leaseroute-nm-dispatcher"),
    signs: &["/usr/sbin/NetworkManager", "/usr/bin/NetworkManager"],
    serves: "NetworkManager",
    scripts: &[],
    off: &[],
    layouts: &[Layout {
        name: "",
        signs: &[Sign::Always],
        rows: &[
            Row {
                path: "/etc/NetworkManager/dispatcher.d/90-leaseroute",
                what: What::File {
                    text: shipped!("hooks/networkmanager/90-leaseroute"),
                    mode: 0o755,
                },
                ours: &[],
                exact_folder: false,
                why: "the dispatcher runs the executable files of root's in the folder",
            },
            Row {
                path: "/etc/NetworkManager/dispatcher.d/pre-down.d/90-leaseroute",
                what: What::Link {
                    target: "../90-leaseroute",
                },
                ours: &[],
                exact_folder: false,
                why: "\"pre-down\" comes to the files of this folder only",
            },
        ],
        starts: Start::WithUnit {
            unit: "NetworkManager-dispatcher.service",
            enabled: &["/etc/systemd/system/dbus-org.freedesktop.nm-dispatcher.service"],
            process: None,
            command: "systemctl enable NetworkManager-dispatcher.service",
            why: "NetworkManager starts its dispatcher by a name that it has only while it is enabled",
        },
    }],
};

const WICKED: Room = Room {
    name: "wicked",
    aliases: &[],
    program: Some("leaseroute-wicked"),
    signs: &["/usr/sbin/wickedd", "/usr/sbin/wicked"],
    serves: "wickedd",
    scripts: &[],
    off: &[],
    layouts: &[
        Layout {
            name: "Tumbleweed",
            signs: &[Sign::Exists("/usr/libexec/netconfig.d")],
            rows: &[
                netconfig("/usr/libexec/netconfig.d/leaseroute"),
                WICKED_SCRIPT,
            ],
            starts: Start::AtOnce,
        },
        Layout {
            name: "SLE, Leap",
            signs: &[Sign::Always],
            rows: &[netconfig("/etc/netconfig.d/leaseroute"), WICKED_SCRIPT],
            starts: Start::AtOnce,
        },
    ],
};

const fn netconfig(path: &'static str) -> Row {
    Row {
        path,
        what: What::File {
            text: shipped!("hooks/wicked/netconfig.d/leaseroute"),
            mode: 0o755,
        },
        ours: &[],
        exact_folder: false,
        why: "wicked lets netconfig run the files of the folder at each new or renewed lease",
    }
}

const WICKED_SCRIPT: Row = Row {
    path: "/etc/wicked/scripts/leaseroute",
    what: What::File {
        text: shipped!("hooks/wicked/scripts/leaseroute"),
        mode: 0o755,
    },
    ours: &[],
    exact_folder: false,
    why: "wicked runs it when an interface comes or goes whose ifcfg file says \
          POST_UP_SCRIPT='wicked:leaseroute' and POST_DOWN_SCRIPT='wicked:leaseroute'",
};

const IFUPDOWN: Room = Room {
    name: "ifupdown",
    aliases: &[],
    program: None,
    signs: &["/sbin/ifup", "/usr/sbin/ifup"],
    serves: "ifup",
    scripts: &[],
    off: &[],
    layouts: &[Layout {
        name: "Debian, Ubuntu",
        signs: &[Sign::Exists("/etc/network/if-up.d")],
        rows: &[
            Row {
                path: "/etc/network/if-up.d/leaseroute",
                what: What::File {
                    text: shipped!("hooks/ifupdown/leaseroute"),
                    mode: 0o755,
                },
                ours: &[],
                exact_folder: false,
                why: "ifup runs the files of the folder for each stanza; ours serves static ones",
            },
            Row {
                path: "/etc/network/if-post-down.d/leaseroute",
                what: What::Link {
                    target: "../if-up.d/leaseroute",
                },
                ours: &[],
                exact_folder: false,
                why: "ifdown runs the files of this folder",
            },
        ],
        starts: Start::AtOnce,
    }],
};

impl Room {
    /// The room with a name, or another name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ROOMS
            .iter()
            .find(|room| room.name == name || room.aliases.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hooks::entry;

    fn rows() -> impl Iterator<Item = &'static Row> {
        let layouts = ROOMS.iter().flat_map(|room| room.layouts);
        layouts.flat_map(|layout| layout.rows)
    }

    #[test]
    fn every_shipped_file_is_known_as_ours_later() {
        for row in rows() {
            if let What::File { text, .. } = &row.what {
                assert!(entry::is_ours(text.as_bytes()), "{}", row.path);
            }
        }
    }

    #[test]
    fn every_row_has_an_absolute_path_and_a_reason() {
        for row in rows() {
            assert!(row.path.starts_with('/') && !row.path.contains("//"));
            assert!(!row.why.is_empty());
            for folder in row.ours {
                assert!(row.path.starts_with(&format!("{folder}/")), "{}", row.path);
            }
        }
    }

    #[test]
    fn names_are_told_apart() {
        let names: Vec<&str> = ROOMS
            .iter()
            .flat_map(|room| [room.name].into_iter().chain(room.aliases.iter().copied()))
            .collect();
        let different: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), different.len());
    }
}
