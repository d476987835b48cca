//! What `packaging/` has for systemd and its like, on a whole system: that each file says
//! what it should, and that the watcher works as locked in as its unit has it.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use leaseroute_core::Family;
use leaseroute_e2e::boot::Booted;
use leaseroute_e2e::host::{ANSWER, Host, program};
use leaseroute_e2e::imds::{Imds, Told};
use leaseroute_e2e::kernel::ip;
use leaseroute_e2e::servers::{Lan, Servers};
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::{Card, Layout, ipv4};
use leaseroute_lab::probe::connect;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};

/// Each file of `packaging/` and where it goes.
const FILES: &[(&str, &str)] = &[
    (
        "systemd/leaseroute-watch.service",
        "/usr/lib/systemd/system/leaseroute-watch.service",
    ),
    (
        "systemd/leaseroute-wait-online.service",
        "/usr/lib/systemd/system/leaseroute-wait-online.service",
    ),
    (
        "systemd/leaseroute-wait-online@.service",
        "/usr/lib/systemd/system/leaseroute-wait-online@.service",
    ),
    (
        "systemd/leaseroute-metadata.socket",
        "/usr/lib/systemd/system/leaseroute-metadata.socket",
    ),
    (
        "systemd/leaseroute-metadata.service",
        "/usr/lib/systemd/system/leaseroute-metadata.service",
    ),
    (
        "systemd/leaseroute-metadata@.service",
        "/usr/lib/systemd/system/leaseroute-metadata@.service",
    ),
    (
        "udev/85-leaseroute-metadata.rules",
        "/usr/lib/udev/rules.d/85-leaseroute-metadata.rules",
    ),
    (
        "systemd/90-leaseroute.preset",
        "/usr/lib/systemd/system-preset/90-leaseroute.preset",
    ),
    (
        "systemd/networkd.conf.d/50-leaseroute.conf",
        "/usr/lib/systemd/networkd.conf.d/50-leaseroute.conf",
    ),
    (
        "tmpfiles.d/leaseroute.conf",
        "/usr/lib/tmpfiles.d/leaseroute.conf",
    ),
    (
        "rt_protos.d/leaseroute.conf",
        "/etc/iproute2/rt_protos.d/leaseroute.conf",
    ),
];

/// The units, an instance in place of the template.
const UNITS: &str = "leaseroute-watch.service leaseroute-wait-online.service \
                     leaseroute-wait-online@br-lan.service leaseroute-metadata.service \
                     leaseroute-metadata@eth1.service";

/// And the socket, of which there is nothing to lock in.
const SOCKET: &str = "leaseroute-metadata.socket";

/// A system with these files and the program, before it is booted.
fn prepare(tools: &[&str]) -> Booted {
    let booted = Booted::prepare(&Layout::separate(2), tools);
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for (source, inside) in FILES {
        let text = fs::read_to_string(packaging.join(source)).unwrap();
        booted.write(inside, &text, 0o644);
    }
    fs::copy(program("leaseroute"), booted.path("/usr/bin/leaseroute")).unwrap();
    booted
}

#[test]
#[ignore = "needs root and systemd: tests/run"]
fn units_are_well_formed() {
    let booted = prepare(&["systemd-analyze"]);
    let said = booted.shell_outside(&format!(
        "chroot . systemd-analyze verify {UNITS} {SOCKET} 2>&1"
    ));
    assert_eq!(said, "");
    // It would have said something.
    let missing = "rm usr/bin/leaseroute; chroot . systemd-analyze verify leaseroute-watch.service";
    let said = booted.shell_outside(&format!("{missing} 2>&1 || :"));
    assert!(said.contains("/usr/bin/leaseroute"), "{said}");
}

#[test]
#[ignore = "needs root and systemd: tests/run"]
fn units_are_locked_in() {
    let booted = prepare(&["systemd-analyze"]);
    // The threshold is ten times the exposure that is shown. Who asks a service whose address
    // the configuration may give has to reach it.
    booted.shell_outside(&format!(
        "for unit in {UNITS}; do
             case $unit in *metadata*) most=22 ;; *) most=19 ;; esac
             chroot . systemd-analyze security --no-pager --offline=true --threshold=$most $unit
         done"
    ));
}

#[test]
#[ignore = "needs root and systemd: tests/run"]
fn other_files_do_what_they_say() {
    let booted = prepare(&["systemd-tmpfiles", "systemctl", "ip"]);
    let made = booted.shell_outside(
        "systemd-tmpfiles --root=. --create leaseroute.conf; stat --format '%A %U' run/leaseroute",
    );
    assert_eq!(made, "drwxr-xr-x root\n");

    // As where nothing is enabled that no preset names.
    booted.write(
        "/usr/lib/systemd/system-preset/99-default-disable.preset",
        "disable *\n",
        0o644,
    );
    booted.shell_outside(&format!("chroot . systemctl preset {UNITS} {SOCKET} 2>&1"));
    let enabled = booted.shell_outside("cd etc/systemd/system; ls *.wants/leaseroute-*");
    let expected = "multi-user.target.wants/leaseroute-watch.service\n\
                    network-online.target.wants/leaseroute-wait-online.service\n\
                    sockets.target.wants/leaseroute-metadata.socket\n";
    assert_eq!(enabled, expected);

    let route = booted.shell_outside(
        "chroot . ip route add unreachable 192.0.2.0/24 proto leaseroute
         chroot . ip -N route show 192.0.2.0/24; chroot . ip route flush 192.0.2.0/24",
    );
    assert!(route.contains("proto 76 "), "{route}");
}

/// A property of a unit.
fn property(host: &Host, unit: &str, name: &str) -> String {
    let value = host.shell(&format!("systemctl show --value -p {name} {unit}"));
    value.trim().to_owned()
}

/// Rules and routes are those of the cards there are, and everybody reaches every card.
fn all_is_right(host: &Host) {
    for family in Family::BOTH {
        host.wait_own(family, &host.faces(family));
    }
    host.assert_all_reach(&Family::BOTH);
}

/// Waits until the watcher runs as another process than `before`.
fn wait_running(host: &Host, before: &str) -> String {
    wait_for("the watcher runs", || {
        let state = property(host, WATCH, "ActiveState");
        let process = property(host, WATCH, "MainPID");
        if state == "active" && process != before && process != "0" {
            Ok(process)
        } else {
            Err(host.shell("journalctl --no-pager -n 50; systemctl status leaseroute-watch || :"))
        }
    })
}

const WATCH: &str = "leaseroute-watch.service";
const ASKS: &str = "leaseroute-metadata.service";
const WAIT: &str = "leaseroute-wait-online.service";
const ONLINE: &str = "network-online.target";
const INSTANCE: &str = "leaseroute-wait-online@eth1.service";

const CONFIGURATION: &str = "/etc/leaseroute/config.toml";

/// For a test that has to see what the program cannot do.
const LOUD: &str = "[log]\nlevel = \"debug\"\n";

/// A system with networkd, whose leases no hook is told of.
fn with_networkd() -> Booted {
    let booted = prepare(&["networkctl"]);
    for card in 0..2 {
        let text = format!(
            "[Match]\nName=eth{card}\n[Network]\nDHCP=yes\n[DHCPv4]\nRouteMetric={metric}\n\
             [IPv6AcceptRA]\nRouteMetric={metric}\n",
            metric = 100 + card
        );
        let path = format!("/etc/systemd/network/4{card}-bench.network");
        booted.write(&path, &text, 0o644);
    }
    booted.write(CONFIGURATION, LOUD, 0o644);
    booted
}

/// The unit keeps nothing from the program that it wants.
fn nothing_was_refused(host: &Host) {
    let journal = host.shell("journalctl --no-pager -t leaseroute");
    assert!(journal.contains("watching"), "{journal}");
    for refused in ["sandbox", "ermission denied", "not permitted", "Read-only"] {
        assert!(!journal.contains(refused), "{journal}");
    }
}

#[test]
#[ignore = "needs root and systemd: tests/run"]
fn watcher_works_as_its_unit_has_it() {
    let mut booted = with_networkd();
    let drop_in = "/etc/systemd/system/leaseroute-watch.service.d/test.conf";
    let sooner = "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=1s\n";
    booted.write(drop_in, sooner, 0o644);
    booted.boot(&[WATCH, "systemd-networkd.service"]);
    let _servers = Servers::start_all(&booted, &Lan::default());
    let first = wait_running(&booted, "");
    assert_eq!(property(&booted, WATCH, "Type"), "notify");
    all_is_right(&booted);

    flush(&booted);
    all_is_right(&booted);
    // Whoever may look at nothing else may look at this.
    let status = "setpriv --reuid 65534 --clear-groups leaseroute status";
    wait_for("status tells what was put back", || {
        let said = booted.shell(status);
        if said.contains("watcher: running for") && said.contains("(removed by others)") {
            Ok(())
        } else {
            Err(said)
        }
    });

    booted.shell(&format!("kill -KILL {first}"));
    let second = wait_running(&booted, &first);
    assert_eq!(property(&booted, WATCH, "NRestarts"), "1");
    flush(&booted);
    all_is_right(&booted);

    // One that hangs is replaced; the one before was well for longer than that takes.
    booted.shell(&format!("kill -STOP {second}"));
    flush(&booted);
    let third = wait_running(&booted, &second);
    assert_eq!(property(&booted, WATCH, "NRestarts"), "2");
    all_is_right(&booted);

    // The program that is in the way is seen from within the unit.
    booted.shell(
        "for try in $(seq 14); do
             echo rule del priority 7630 oif eth0
             sleep 0.3
         done | ip -force -batch - 2>/dev/null || :",
    );
    let said = booted.shell(status);
    assert!(
        said.contains("FIGHT") && said.contains("by \"ip["),
        "{said}"
    );
    all_is_right(&booted);

    let without = format!("{LOUD}[[interface]]\nmatch = {{ name = \"eth1\" }}\nmanage = false\n");
    booted.write(CONFIGURATION, &without, 0o644);
    booted.shell(&format!("systemctl reload {WATCH}"));
    wait_for("the card is left alone", || {
        let rules = booted.shell("ip rule; ip -6 rule");
        if rules.contains("oif eth1") {
            Err(rules)
        } else {
            Ok(())
        }
    });
    booted.write(CONFIGURATION, LOUD, 0o644);
    booted.shell(&format!("systemctl reload {WATCH}"));
    all_is_right(&booted);
    assert_eq!(property(&booted, WATCH, "MainPID"), third);

    booted.shell(&format!("systemctl stop {WATCH}"));
    assert_eq!(property(&booted, WATCH, "Result"), "success");
    assert_eq!(property(&booted, WATCH, "ActiveState"), "inactive");
    all_is_right(&booted);
    let said = booted.shell(status);
    assert!(said.contains("watcher: not running, was stopped"), "{said}");
    nothing_was_refused(&booted);
}

/// What an administrator's script does, both families.
fn flush(host: &Host) {
    host.shell(
        "for family in -4 -6; do
             ip $family rule flush
             ip $family rule add lookup main priority 32766
         done",
    );
}

#[test]
#[ignore = "needs root and systemd: tests/run"]
fn network_is_online_when_the_cards_are_right() {
    let mut booted = with_networkd();
    let required = format!("{LOUD}[[interface]]\nmatch = {{ name = \"eth0\" }}\nrequired = true\n");
    booted.write(CONFIGURATION, &required, 0o644);
    // Those of this machine's packages would bring their own daemons.
    booted.shell_outside("rm -rf etc/systemd/system/network-online.target.wants");
    booted.shell_outside(&format!("chroot . systemctl enable {WAIT} {INSTANCE} 2>&1"));
    booted.boot(&[WATCH, "systemd-networkd.service"]);
    booted.shell("systemctl start --no-block network-online.target");
    for unit in [WAIT, INSTANCE] {
        wait_for("the card is waited for", || {
            match property(&booted, unit, "ActiveState").as_str() {
                "activating" => Ok(()),
                other => Err(format!("{unit} is {other}\n{}", booted.journal())),
            }
        });
    }
    assert_eq!(property(&booted, ONLINE, "ActiveState"), "inactive");

    let _servers = Servers::start_all(&booted, &Lan::default());
    wait_for("the network is online", || {
        match property(&booted, ONLINE, "ActiveState").as_str() {
            "active" => Ok(()),
            other => Err(format!("{other}\n{}", booted.journal())),
        }
    });
    // One family will do, whichever is first. Nobody waits any more for what is right.
    for card in booted.fabric.cards() {
        let answers = |&family: &Family| {
            let outcome = connect(booted.fabric.client(), card.address(family), ANSWER);
            outcome.is_answered()
        };
        assert!(Family::BOTH.iter().any(answers), "{}", card.name);
    }
    let since = |unit| -> u64 {
        let time = property(&booted, unit, "ActiveEnterTimestampMonotonic");
        time.parse().unwrap()
    };
    for unit in [WAIT, INSTANCE] {
        assert_eq!(property(&booted, unit, "Result"), "success", "{unit}");
        assert_eq!(property(&booted, unit, "SubState"), "exited", "{unit}");
        assert!(since(unit) <= since(ONLINE), "{unit}");
    }
    all_is_right(&booted);
    nothing_was_refused(&booted);
}

/// The watcher tells of networkd's leases, which no hook does: systemd starts what asks, and that
/// ends when nothing is left to ask.
#[test]
#[ignore = "needs root and systemd: tests/run"]
fn metadata_is_asked_for_as_its_units_have_it() {
    let mut booted = with_networkd();
    let asks = format!("{LOUD}[metadata]\nprovider = \"ec2\"\nassign_addresses = true\n");
    booted.write(CONFIGURATION, &asks, 0o644);
    // The watcher brings the socket along.
    booted.boot(&[WATCH, "systemd-networkd.service"]);
    let _servers = Servers::start_all(&booted, &Lan::default());
    let imds = Imds::start(&booted);
    let secondary = ipv4(1, 77);
    for card in booted.fabric.cards().cloned().collect::<Vec<_>>() {
        let mut told = Told::of(&card);
        if card.number == 1 {
            told.ipv4s.push(secondary);
            booted
                .fabric
                .allow(1, IpAddr::from(secondary).into())
                .unwrap();
        }
        imds.set(&card, told);
    }
    wait_for("the secondary address is there", || {
        let said = booted.shell("ip -4 address show dev eth1; ip rule");
        if said.contains("10.0.1.77/32") && said.contains("from 10.0.1.77 lookup") {
            Ok(())
        } else {
            Err(format!("{said}\n{}\n{:#?}", booted.journal(), imds.asked()))
        }
    });
    booted.assert_reached(secondary.into());
    assert_eq!(property(&booted, SOCKET, "ActiveState"), "active");
    wait_for("what asks has ended", || {
        match property(&booted, ASKS, "ActiveState").as_str() {
            "inactive" => Ok(()),
            other => Err(format!("{other}\n{}", booted.journal())),
        }
    });
    assert_eq!(property(&booted, ASKS, "Result"), "success");
    // The service forgets the address; a hook's word has it asked again.
    for card in booted.fabric.cards() {
        imds.set(card, Told::of(card));
    }
    let word = "env reason=BOUND interface=eth1 new_ip_address=10.0.1.10 \
                new_subnet_mask=255.255.255.0 new_routers=10.0.1.1 leaseroute hook dhclient";
    booted.shell(word);
    wait_for("the secondary address is gone", || {
        let said = booted.shell("ip -4 address show dev eth1; ip rule");
        if said.contains("10.0.1.77") {
            Err(format!("{said}\n{}", booted.journal()))
        } else {
            Ok(())
        }
    });
    all_is_right(&booted);
    nothing_was_refused(&booted);
    // By hand, as the udev rule does it.
    booted.shell(&format!("systemctl start {TEMPLATE}@eth1.service"));
    wait_ended(&booted, &format!("{TEMPLATE}@eth1.service"));
    assert_eq!(property(&booted, SOCKET, "ActiveState"), "active");
    // Where the socket is masked it asks by itself.
    booted.shell(&format!("systemctl mask --now {SOCKET}"));
    booted.shell(&format!("systemctl start {TEMPLATE}@eth1.service"));
    wait_ended(&booted, &format!("{TEMPLATE}@eth1.service"));
    let said = booted.shell(&format!("journalctl --no-pager -u {TEMPLATE}@eth1.service"));
    assert!(said.contains("ec2, handed over to"), "{said}");
    assert!(said.contains("all is found out"), "{said}");
    nothing_was_refused(&booted);
}

/// The template, without the card.
const TEMPLATE: &str = "leaseroute-metadata";

/// Waits until a unit that was started has ended, and well.
fn wait_ended(booted: &Booted, unit: &str) {
    wait_for("the unit has ended", || {
        match property(booted, unit, "ActiveState").as_str() {
            "inactive" => Ok(()),
            other => Err(format!("{other}\n{}", booted.journal())),
        }
    });
    let result = property(booted, unit, "Result");
    assert_eq!(result, "success", "{}", booted.journal());
}

/// A folder in which sysfs has devices of hardware, on every machine.
const HARDWARE: &str = "/devices/platform";

/// A shell function: makes the folder that sysfs would have of a card.
const CARD_IN_SYSFS: &str = r#"
    card_in_sysfs() { # FOLDER INTERFACE INDEX
        mkdir -p "/sys$1/net/$2"
        printf 'INTERFACE=%s\nIFINDEX=%s\n' "$2" "$3" >"/sys$1/net/$2/uevent"
        echo "$3" >"/sys$1/net/$2/ifindex"
        ln -s /sys/class/net "/sys$1/net/$2/subsystem"
    }
"#;

/// What udevd makes of the rule, by itself and of devices that are made up.
#[test]
#[ignore = "needs root and systemd: tests/run"]
fn udev_rule_wants_a_unit_for_cards_alone() {
    let booted = prepare(&["udevadm"]);
    // The program does what other rules say, so there are none.
    let script = format!(
        "{CARD_IN_SYSFS}
         mount -t tmpfs udev /run
         mount -t tmpfs sysfs /sys
         find /etc/udev/rules.d /usr/lib/udev/rules.d -name '*.rules' \\
             ! -name '*-leaseroute-*' -delete
         card_in_sysfs {HARDWARE}/card.0 eth7 7
         card_in_sysfs /devices/virtual veth8 8
         mkdir -p /sys/class/net
         ln -s ../..{HARDWARE}/card.0/net/eth7 ../../devices/virtual/net/veth8 /sys/class/net/
         export SYSTEMD_DEVICE_VERIFY_SYSFS=0
         for action in add change remove; do
             for card in {HARDWARE}/card.0/net/eth7 /devices/virtual/net/veth8; do
                 echo \"$action $card\"
                 udevadm test --action=$action $card >/run/said 2>&1
                 grep -E '\\.rules:|SYSTEMD_WANTS|CURRENT_TAGS' /run/said || :
             done
         done"
    );
    booted.write("/root/script", &script, 0o644);
    let said = booted.shell_outside("unshare --mount --net chroot . sh -e /root/script");
    // A line of the file that is not understood would be named.
    let expected = "add /devices/platform/card.0/net/eth7\n\
                    CURRENT_TAGS=:systemd:\n\
                    SYSTEMD_WANTS=leaseroute-metadata@eth7.service\n\
                    add /devices/virtual/net/veth8\n\
                    change /devices/platform/card.0/net/eth7\n\
                    change /devices/virtual/net/veth8\n\
                    remove /devices/platform/card.0/net/eth7\n\
                    remove /devices/virtual/net/veth8\n";
    assert_eq!(said, expected);
}

/// Says what the kernel says of a card of hardware that appears. All cards of the bench are
/// virtual; whoever may do anything in a network namespace may say that one is not.
fn announce(booted: &Booted, folder: &str, name: &str, index: u32) {
    let path = format!("{folder}/net/{name}");
    let text = format!(
        "add@{path}\0ACTION=add\0DEVPATH={path}\0SUBSYSTEM=net\0INTERFACE={name}\0\
         IFINDEX={index}\0"
    );
    // netlink(7): length, any type that is no control message, a request, number, sender.
    let length = u32::try_from(16 + text.len()).unwrap();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend([0x10_u16, 1].iter().flat_map(|half| half.to_ne_bytes()));
    message.extend([0; 8]);
    message.extend(text.bytes());
    let send = move || {
        let protocol = Some(KOBJECT_UEVENT);
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&socket, &message, SendFlags::empty(), &kernel)
    };
    booted.fabric.host().run(send).unwrap();
}

/// Cards with static addresses are plugged in: udevd reads the rule, systemd starts the
/// template, that hands the card over, and one process asks until the service knows the card.
#[test]
#[ignore = "needs root and systemd: tests/run"]
fn cards_that_are_plugged_in_are_asked_about() {
    let mut booted = prepare(&["udevadm"]);
    let asks = format!("{LOUD}[metadata]\nprovider = \"ec2\"\n");
    booted.write(CONFIGURATION, &asks, 0o644);
    // Of other rules only those that name cards, and that systemd needs.
    booted.shell_outside(
        "find etc/udev/rules.d usr/lib/udev/rules.d -name '*.rules' ! -name '*-leaseroute-*' \
             ! -name 80-net-setup-link.rules ! -name 99-systemd.rules -delete",
    );
    booted.write(
        "/etc/systemd/system/systemd-udevd.service.d/test.conf",
        "[Service]\nEnvironment=SYSTEMD_DEVICE_VERIFY_SYSFS=0\n",
        0o644,
    );
    booted.boot(&[]);
    let imds = Imds::start(&booted);
    // A container's sysfs can only be read, and so has no udevd. It is there before systemd
    // looks whether it is.
    let cards: Vec<_> = booted.fabric.cards().cloned().collect();
    let mut script = format!(
        "mount -o remount,bind,rw /sys; mount -t tmpfs card /sys{HARDWARE}\n{CARD_IN_SYSFS}\n"
    );
    for card in &cards {
        script += &format!(
            "card_in_sysfs {HARDWARE}/{name} {name} {index}
             ip link set {name} up
             ip address add {address}/24 dev {name}
             ip route add default via {gateway} dev {name} metric {index}\n",
            name = card.name,
            index = card.link.get(),
            address = card.ipv4,
            gateway = card.gateway4(),
        );
    }
    script += "systemctl start systemd-udevd.service; systemctl daemon-reexec";
    booted.shell(&script);

    // The end of a container's cable is none.
    ip(
        booted.fabric.host(),
        "link add veth8 type veth peer name veth9",
    );
    wait_for("udevd has told of it", || {
        let device = "sys-subsystem-net-devices-veth8.device";
        match property(&booted, device, "ActiveState").as_str() {
            "active" => Ok(()),
            other => Err(format!("{other}\n{}", booted.journal())),
        }
    });
    let started = |unit: &str| property(&booted, unit, "InactiveExitTimestampMonotonic");
    assert_eq!(started(&format!("{TEMPLATE}@veth8.service")), "0");
    assert_eq!(property(&booted, SOCKET, "ActiveState"), "inactive");

    for card in &cards {
        let folder = format!("{HARDWARE}/{}", card.name);
        announce(&booted, &folder, card.name.as_str(), card.link.get());
    }
    for card in &cards {
        let unit = format!("{TEMPLATE}@{}.service", card.name);
        wait_for("the template was started", || {
            match started(&unit).as_str() {
                "0" => Err(booted.journal()),
                _ => Ok(()),
            }
        });
        // It does not wait for a service that does not know the card yet.
        wait_ended(&booted, &unit);
    }
    wait_for("the service is asked", || {
        if property(&booted, ASKS, "ActiveState") == "active" && !imds.asked().is_empty() {
            Ok(())
        } else {
            Err(booted.journal())
        }
    });
    for card in &cards {
        imds.set(card, Told::without_ipv6(card));
    }
    wait_for("each card has its rule", || {
        let rules = booted.shell("ip rule");
        let has_rule = |card: &Card| rules.contains(&format!("from {} lookup", card.ipv4));
        if cards.iter().all(has_rule) {
            Ok(())
        } else {
            Err(format!(
                "{rules}\n{}\n{:#?}",
                booted.journal(),
                imds.asked()
            ))
        }
    });
    wait_ended(&booted, ASKS);
    booted.assert_all_reach(&[Family::Ipv4]);
    let said = booted.shell("journalctl --no-pager -t leaseroute -t systemd-udevd");
    assert_eq!(said.matches("handed over").count(), cards.len(), "{said}");
    for bad in [".rules:", "sandbox", "ermission denied", "not permitted"] {
        assert!(!said.contains(bad), "{said}");
    }
}
