//! A whole system under a real systemd: booted with the hooks that `leaseroute hooks
//! install` put there, then a card that appears when the boot is long over.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code: what goes wrong is to be seen at once"
)]

use leaseroute_core::Family;
use leaseroute_e2e::boot::Booted;
use leaseroute_e2e::host::Host;
use leaseroute_e2e::kernel::Own;
use leaseroute_e2e::servers::{Lan, Servers};
use leaseroute_lab::fabric::Layout;

/// Rules and routes are those of the cards there are, and everybody reaches every card.
fn all_is_right(host: &Host) {
    for family in Family::BOTH {
        host.wait_own(family, &host.faces(family));
    }
    host.assert_all_reach(&Family::BOTH);
}

fn boot(tools: &[&str], units: &[&str], files: &[(String, String, u32)]) -> Booted {
    let mut booted = Booted::prepare(&Layout::separate(2), tools);
    booted.copy_programs("/opt/build");
    for (path, text, mode) in files {
        booted.write(path, text, *mode);
    }
    booted.shell_outside(
        "opt/build/leaseroute hooks install --root . --programs opt/build >/dev/null",
    );
    booted.boot(units);
    booted
}

/// Boots, looks, adds a card, looks, takes it away, looks.
fn story(mut booted: Booted) {
    let _servers = Servers::start_all(&booted, &Lan::default());
    all_is_right(&booted);

    let number = booted.fabric.attach(2).unwrap().number;
    let _late = Servers::start(&booted, 2, &Lan::default());
    all_is_right(&booted);
    let status = booted.shell("/opt/build/leaseroute status --verify");
    assert!(status.contains("eth2"), "{status}");
    let list = booted.shell("/opt/build/leaseroute hooks list");
    assert!(list.contains("eth2"), "{list}");

    booted.fabric.unplug(number).unwrap();
    all_is_right(&booted);
    booted.shell("/opt/build/leaseroute hooks remove && /opt/build/leaseroute remove --all");
    assert!(!booted.path("/usr/libexec/leaseroute").exists());
    for family in Family::BOTH {
        assert!(Own::read(booted.fabric.host(), family).is_empty());
    }
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn system_with_networkd_is_right_from_the_boot_on() {
    let network = |card: u32| {
        (
            format!("/etc/systemd/network/4{card}-bench.network"),
            format!(
                "[Match]\nName=eth{card}\n[Network]\nDHCP=yes\n[DHCPv4]\nRouteMetric={metric}\n\
                 [IPv6AcceptRA]\nRouteMetric={metric}\n",
                metric = 100 + card
            ),
            0o644,
        )
    };
    story(boot(
        &["networkctl", "networkd-dispatcher"],
        &["systemd-networkd.service", "networkd-dispatcher.service"],
        &[network(0), network(1), network(2)],
    ));
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn system_with_networkmanager_is_right_from_the_boot_on() {
    let profile = |card: u32| {
        (
            format!("/etc/NetworkManager/system-connections/eth{card}.nmconnection"),
            format!(
                "[connection]\nid=eth{card}\nuuid=00000000-0000-4000-8000-00000000000{card}\n\
                 type=ethernet\ninterface-name=eth{card}\n[ipv4]\nmethod=auto\n\
                 route-metric={metric}\n[ipv6]\nmethod=auto\naddr-gen-mode=eui64\n\
                 route-metric={metric}\n",
                metric = 100 + card
            ),
            0o600,
        )
    };
    let main = "[main]\nplugins=keyfile\ndhcp=internal\ndns=none\nno-auto-default=*\n\
                [device]\nmatch-device=*\nmanaged=1\n";
    let mut files = vec![profile(0), profile(1), profile(2)];
    files.push((
        "/etc/NetworkManager/NetworkManager.conf".to_owned(),
        main.to_owned(),
        0o644,
    ));
    story(boot(
        &["NetworkManager"],
        &["NetworkManager.service"],
        &files,
    ));
}
