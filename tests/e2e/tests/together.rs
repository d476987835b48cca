//! Several clients on one host: one set of rules and routes, whoever tells of the lease.

use leaseroute_core::Family;
use leaseroute_e2e::daemon::Daemon;
use leaseroute_e2e::dhcpcd::Machine;
use leaseroute_e2e::host::Host;
use leaseroute_e2e::kernel::Own;
use leaseroute_e2e::servers::{Ipv6, Lan, Servers};
use leaseroute_lab::fabric::Layout;

const V4: Family = Family::Ipv4;

/// A host with both clients and our hooks for them; nothing is started. The servers know a
/// card by its hardware address, whatever a client calls itself.
fn host() -> (Machine, Vec<Servers>) {
    let machine = Machine::new(&Layout::separate(3), "");
    machine.shell("rm -f /var/lib/dhcp/*");
    machine.install_program("leaseroute-dhclient");
    machine.install(
        "dhclient/debian/exit-hooks.d/zz-leaseroute",
        "/etc/dhcp/dhclient-exit-hooks.d/zz-leaseroute",
        0o644,
    );
    let lan = Lan {
        v6: Ipv6::Without,
        extra: vec!["dhcp-ignore-clid".to_owned()],
        ..Lan::default()
    };
    let servers = Servers::start_all(&machine, &lan);
    (machine, servers)
}

fn dhclient(machine: &Machine, number: usize) -> Daemon {
    let name = machine.card(number).name.to_string();
    machine.shell(&format!("ip link set {name} up"));
    let mut command = machine.command("dhclient");
    command
        .args([
            "-4",
            "-d",
            "-v",
            "-pf",
            &format!("/run/dhclient.{name}.pid"),
        ])
        .args(["-lf", &format!("/var/lib/dhcp/dhclient.{name}.leases")])
        .args(["-e", &format!("IF_METRIC={}", 100 + number), &name]);
    Host::start(machine, &format!("dhclient.{name}"), command)
}

/// Every card by dhclient, once all is right.
fn by_dhclient() -> (Machine, Vec<Servers>, Vec<Daemon>) {
    let (machine, servers) = host();
    let clients = (0..3).map(|number| dhclient(&machine, number)).collect();
    machine.wait_own(V4, &machine.faces(V4));
    (machine, servers, clients)
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn card_that_changes_its_client_keeps_one_set_of_objects() {
    let (mut machine, _servers, mut clients) = by_dhclient();
    // dhclient dies without a word, and dhcpcd takes over what is still configured.
    machine.shell("kill -KILL $(cat /run/dhclient.eth1.pid)");
    drop(clients.remove(1));
    machine.start_card(1);
    machine.wait_event("BOUND eth1", 1);
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);

    machine.shell("dhcpcd -k eth1");
    let mut left = machine.faces(V4);
    left.remove(1);
    machine.wait_own(V4, &left);
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn two_clients_of_one_card_make_one_set_and_one_may_go() {
    let (mut machine, _servers, _clients) = by_dhclient();
    machine.start_card(1);
    machine.wait_event("BOUND eth1", 1);
    machine.wait_own(V4, &machine.faces(V4));

    // It leaves the address where it is, and names none.
    machine.shell("kill -TERM $(cat /run/dhcpcd/eth1.pid)");
    machine.wait_event("STOPPED eth1", 1);
    machine.assert_all_reach(&[V4]);
}

/// As cloud-init asks for metadata: its own script, so no hooks; an address by hand, and
/// all of it taken back.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn short_run_of_cloud_init_leaves_no_trace_and_no_gap() {
    let (machine, _servers) = host();
    let card = machine.card(1);
    let (name, address, gateway) = (card.name.as_str(), card.ipv4, card.gateway4());
    machine.shell(&format!(
        "ip link set {name} up
         dhclient -1 -v -lf /run/short.lease -pf /run/short.pid -sf /bin/true {name}
         kill $(cat /run/short.pid)
         ip addr add {address}/24 dev {name}
         ip route add default via {gateway} dev {name}"
    ));
    assert!(Own::read(machine.fabric.host(), V4).is_empty());

    // The first real client comes while that is still there.
    let first = dhclient(&machine, 0);
    machine.shell(&format!(
        "ip route del default via {gateway} dev {name}; ip addr del {address}/24 dev {name}"
    ));
    let others = [1, 2].map(|number| dhclient(&machine, number));
    machine.wait_own(V4, &machine.faces(V4));
    machine.assert_all_reach(&[V4]);
    drop((first, others));
}
