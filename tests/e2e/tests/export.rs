//! What `leaseroute export` writes, in the hands of the real programs: they set up every
//! card by it, without hooks, and replies leave by the card that was asked.

use leaseroute_core::Family;
use leaseroute_e2e::host::{ANSWER, Host};
use leaseroute_e2e::networkd::{Networkd, configured};
use leaseroute_e2e::networkmanager::Network;
use leaseroute_e2e::servers::Lan;
use leaseroute_e2e::wait_for;
use leaseroute_lab::fabric::Layout;
use leaseroute_lab::probe::Matrix;

/// The command, where the host has it.
const LEASEROUTE: &str = "/usr/libexec/leaseroute/leaseroute";

/// Everybody reaches every card, and no packet came by the wrong one.
fn wait_reached(host: &Host) {
    wait_for("everybody reaches every card", || {
        let matrix = Matrix::probe(&host.fabric, &Family::BOTH, ANSWER);
        if matrix.is_complete() {
            return Ok(());
        }
        let seen = "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all";
        Err(format!("{matrix}\n{}\n{}", host.shell(seen), host.logs()))
    });
}

/// Takes all of leaseroute away but for the command: what is left is the exported files.
fn remove_hooks(host: &Host) {
    let files = "/usr/lib/networkd-dispatcher/*/50-leaseroute \
                 /etc/NetworkManager/dispatcher.d/*leaseroute \
                 /etc/NetworkManager/dispatcher.d/pre-down.d/*leaseroute";
    host.shell(&format!("rm -f {files}; {LEASEROUTE} remove --all"));
    assert_no_rules(host);
}

/// Only the kernel's own rules are there.
fn assert_no_rules(host: &Host) {
    let rules = host.shell("ip rule; ip -6 rule");
    assert_eq!(rules.lines().count(), 5, "{rules}");
}

/// networkd as the hooks have set it up, with the command beside them.
fn with_leases() -> (Networkd, Vec<leaseroute_e2e::servers::Servers>) {
    let (machine, servers) = configured(&Layout::separate(3), &Lan::default());
    machine.install_program("leaseroute");
    (machine, servers)
}

/// Lets networkd go by the files that are there now, and by no others.
fn reload(machine: &mut Networkd) {
    machine.stop_dispatcher();
    remove_hooks(machine);
    machine.shell("rm /etc/systemd/network/40-*");
    machine.networkctl("reload");
    machine.networkctl("reconfigure eth0 eth1 eth2");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn networkd_takes_its_files() {
    let (mut machine, _servers) = with_leases();
    let said = machine.shell(&format!("{LEASEROUTE} export --format networkd --persist"));
    assert!(
        said.contains("wrote /etc/systemd/network/70-leaseroute-eth1.network"),
        "{said}"
    );
    assert!(said.contains("networkctl reload"), "{said}");
    reload(&mut machine);
    wait_reached(&machine);
    // It complains of nothing in them.
    let log = machine.logs();
    let complains = |line: &str| line.starts_with("/etc/systemd/network/70-leaseroute");
    assert!(!log.lines().any(complains), "{log}");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn networkd_takes_what_netplan_makes() {
    let (mut machine, _servers) = with_leases();
    for priorities in ["--priorities", ""] {
        machine.shell(&format!(
            "{LEASEROUTE} export --format netplan --persist {priorities}"
        ));
        let mode = machine.shell("stat -c %a /etc/netplan/70-leaseroute.yaml");
        assert_eq!(mode.trim(), "600");
        for renderer in ["NetworkManager", "networkd"] {
            // A card of the bench has no permanent hardware address.
            machine.shell(&format!(
                "rm -rf /run/plan; mkdir -p /run/plan/etc
                cp -a /etc/netplan /run/plan/etc
                printf 'network: {{version: 2, renderer: {renderer}}}\\n' >/run/plan/etc/netplan/01-renderer.yaml
                chmod 600 /run/plan/etc/netplan/*
                netplan generate --root-dir /run/plan"
            ));
        }
    }
    let made = "cd /run/plan/run/systemd/network
        sed -i 's/^PermanentMACAddress=/MACAddress=/' *.network
        cp *.network /etc/systemd/network/; ls";
    let made = machine.shell(made);
    assert!(made.contains("10-netplan-eth2.network"), "{made}");
    reload(&mut machine);
    wait_reached(&machine);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn networkmanager_takes_its_files() {
    let (network, _servers) =
        Network::connected(&Layout::separate(3), &Lan::default(), &Family::BOTH);
    network.install_program("leaseroute");
    network.shell(&format!(
        "{LEASEROUTE} export --format nmconnection --persist"
    ));
    remove_hooks(&network);
    network.shell("rm /etc/NetworkManager/system-connections/eth*");
    network.nmcli("connection reload");
    for card in 0..3 {
        network.nmcli(&format!("connection up leaseroute-eth{card}"));
    }
    wait_reached(&network);
    let rules = network.shell("ip rule show");
    assert!(rules.contains("suppress_prefixlength 0"), "{rules}");
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn the_script_runs_twice() {
    let (mut machine, _servers) = with_leases();
    machine.shell(&format!("{LEASEROUTE} export --format ip >/run/routes.sh"));
    machine.stop_dispatcher();
    remove_hooks(&machine);
    machine.shell("sh /run/routes.sh");
    let seen = "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all";
    let rules = || machine.shell("ip rule; ip -6 rule");
    let (once, first) = (machine.shell(seen).lines().count(), rules());
    machine.shell("sh /run/routes.sh");
    assert_eq!(
        (machine.shell(seen).lines().count(), rules()),
        (once, first)
    );
    wait_reached(&machine);
    // They are known as ours.
    machine.shell(&format!("{LEASEROUTE} remove --all"));
    assert_no_rules(&machine);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn files_of_others_stay_and_ours_go_with_their_card() {
    let (machine, _servers) = with_leases();
    let persist = format!("{LEASEROUTE} export --format networkd --persist");
    machine.shell(&persist);
    let folder = "/etc/systemd/network";
    machine.shell(&format!(
        "cp {folder}/70-leaseroute-eth2.network {folder}/70-leaseroute-eth9.network
        sed '/^MACAddress=/s/..:..$/5e:5e/' {folder}/70-leaseroute-eth2.network >{folder}/70-leaseroute-eth7.network
        echo '# mine' >{folder}/70-leaseroute-eth8.network
        echo '# mine' >{folder}/70-leaseroute-eth1.network"
    ));
    let said = machine.shell(&format!("{persist} 2>&1 || echo code $?"));
    assert!(
        said.contains("removed /etc/systemd/network/70-leaseroute-eth9.network"),
        "{said}"
    );
    assert!(
        said.contains("70-leaseroute-eth1.network: it does not begin with"),
        "{said}"
    );
    assert!(said.contains("code 1"), "{said}");
    // A card that is here, and without a lease, keeps its file.
    machine.shell("ip link set eth2 down");
    let said = machine.shell(&format!("{persist} 2>&1 || echo code $?"));
    assert!(said.contains("kept, since its card is here"), "{said}");
    machine.shell(&format!("test -e {folder}/70-leaseroute-eth2.network"));
    machine.shell(&format!("! test -e {folder}/70-leaseroute-eth7.network"));
    for card in [1, 8] {
        let text = machine.shell(&format!("cat {folder}/70-leaseroute-eth{card}.network"));
        assert_eq!(text, "# mine\n");
    }
}
