//! Leases that were there before us: which files and which addresses of the kernel count.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use leaseroute_core::{
    AddressFlags, Client, Family, Host, IfIndex, InterfaceMatch, InterfaceSettings, Lease4, Lease6,
    LeaseBook, LeaseChange, Link, LinkAddress, ObservedRoute, Pattern, ProtocolId, Record,
    RouteKind, Settings, TableId,
};
use leaseroute_runtime::adopt::{Found, Stored};
use tempfile::TempDir;

/// The time of all tests, in seconds since 1970.
const NOW: u64 = 1_796_051_000;

/// When the host was started.
const BOOTED: u64 = NOW - 100_000;

const NETWORKD: &str = "/run/systemd/netif/leases/2";
const DEVICE: &str = "/run/NetworkManager/devices/2";
const DHCLIENT: &str = "/var/lib/dhcp/dhclient.leases";

/// Files of clients, and a host with the card `eth0`, whose index is 2.
struct Bench {
    folder: TempDir,
    host: Host,
    book: LeaseBook,
    settings: Settings,
}

impl Bench {
    fn new() -> Self {
        let host = Host {
            links: [1, 2, 3].map(link).into(),
            ..Host::default()
        };
        Self {
            folder: TempDir::new().unwrap(),
            host,
            book: LeaseBook::default(),
            settings: Settings::default(),
        }
    }

    fn stored(&self) -> Stored {
        Stored::new(self.folder.path()).of_host_started(BOOTED)
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside.trim_start_matches('/'))
    }

    /// Writes a file of a client, `age` seconds ago.
    fn write(&self, inside: &str, content: impl AsRef<[u8]>, age: u64) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW - age);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(written).unwrap();
    }

    fn leased(&mut self, address: &str) {
        self.add(address, AddressFlags::default());
    }

    fn permanent(&mut self, address: &str) {
        let flags = AddressFlags {
            permanent: true,
            ..AddressFlags::default()
        };
        self.add(address, flags);
    }

    fn add(&mut self, address: &str, flags: AddressFlags) {
        self.host.addresses.push(LinkAddress {
            index: index(2),
            address: address.parse().unwrap(),
            peer: None,
            flags,
            protocol: None,
        });
    }

    fn default_route(&mut self, gateway: &str, metric: u32, oif: u32) {
        let gateway: IpAddr = gateway.parse().unwrap();
        self.host.main.push(ObservedRoute {
            table: TableId::MAIN,
            destination: Family::of(gateway).default_network(),
            metric,
            gateway: Some(gateway),
            oif: Some(index(oif)),
            onlink: false,
            mtu: None,
            preference: leaseroute_core::RouterPreference::Medium,
            protocol: ProtocolId::observed(16),
            kind: RouteKind::Unicast,
            other_attributes: false,
        });
    }

    fn adopt(&self) -> Vec<Found> {
        self.stored()
            .adopt(&self.host, &self.book, &self.settings, NOW)
    }

    /// The one IPv4 lease that is adopted.
    fn adopted4(&self) -> Option<(Client, Lease4)> {
        let found = self.adopt();
        assert!(found.len() < 2, "{found:#?}");
        found.first().map(|found| (found.raw.client, lease4(found)))
    }

    fn take(&mut self, found: &Found) {
        self.book
            .fold(&found.event, Some(&found.raw), &self.host, NOW);
    }
}

fn index(number: u32) -> IfIndex {
    IfIndex::new(number).unwrap()
}

fn link(number: u32) -> (IfIndex, Link) {
    let name = ["lo", "eth0", "eth1"][number as usize - 1];
    let link = Link {
        index: index(number),
        name: name.parse().unwrap(),
        alternative_names: Vec::new(),
        mac: None,
        mtu: 1500,
        up: true,
        carrier: true,
        loopback: name == "lo",
        master: None,
        kind: None,
        driver: None,
    };
    (link.index, link)
}

fn lease4(found: &Found) -> Lease4 {
    let mut changes = found.event.changes.iter();
    let lease = changes.find_map(|change| match change {
        LeaseChange::Gained4(lease) => Some(lease.clone()),
        _ => None,
    });
    lease.unwrap_or_else(|| panic!("{found:?}"))
}

fn lease6(found: &Found) -> Lease6 {
    match found.event.changes.as_slice() {
        [LeaseChange::Changed6 { gained, .. }] => gained.clone(),
        other => panic!("{other:?}"),
    }
}

fn networkd(address: &str, router: &str) -> String {
    format!("ADDRESS={address}\nNETMASK=255.255.255.0\nROUTER={router}\nLIFETIME=1h\n")
}

fn device(address: &str, routers: &str) -> String {
    format!(
        "[device]\nmanaged=true\n\n[dhcp4]\ndhcp4.expiry={}\ndhcp4.ip_address={address}\n\
         dhcp4.routers={routers}\ndhcp4.subnet_mask=255.255.255.0\n",
        NOW + 3600
    )
}

fn dhclient(address: &str, router: &str, expire: &str) -> String {
    format!(
        "lease {{\n  interface \"eth0\";\n  fixed-address {address};\n  \
         option subnet-mask 255.255.255.0;\n  option routers {router};\n  expire {expire};\n}}\n"
    )
}

/// A DHCPv4 reply with the address 192.0.2.10 and a router, for an hour.
fn bootp(router: [u8; 4]) -> Vec<u8> {
    let mut message = vec![0; 240];
    message[0] = 2;
    message[16..20].copy_from_slice(&[192, 0, 2, 10]);
    message[236..].copy_from_slice(&[99, 130, 83, 99]);
    message.extend([51, 4, 0, 0, 14, 16, 3, 4]);
    message.extend(router);
    message.push(255);
    message
}

fn router(lease: &Lease4) -> String {
    lease.router.map(|r| r.to_string()).unwrap_or_default()
}

#[test]
fn every_client_is_known_by_its_file() {
    let until = format!("epoch {}", NOW + 60);
    let files: [(&str, Vec<u8>, Client); 7] = [
        (
            NETWORKD,
            networkd("192.0.2.10", "192.0.2.1").into(),
            Client::NetworkdDispatcher,
        ),
        (
            DEVICE,
            device("192.0.2.10", "192.0.2.1").into(),
            Client::NmDispatcher,
        ),
        (
            "/var/lib/NetworkManager/dhclient-0-eth0.lease",
            dhclient("192.0.2.10", "192.0.2.1", &until).into(),
            Client::NmDispatcher,
        ),
        (
            DHCLIENT,
            dhclient("192.0.2.10", "192.0.2.1", &until).into(),
            Client::Dhclient,
        ),
        (
            "/var/lib/dhclient/dhclient--eth0.lease",
            dhclient("192.0.2.10", "192.0.2.1", "never").into(),
            Client::Dhclient,
        ),
        (
            "/var/lib/dhcpcd/eth0.lease",
            bootp([192, 0, 2, 1]),
            Client::Dhcpcd,
        ),
        (
            "/var/db/dhcpcd/eth0-some net.lease",
            bootp([192, 0, 2, 1]),
            Client::Dhcpcd,
        ),
    ];
    for (file, content, client) in files {
        let mut bench = Bench::new();
        bench.write(file, content, 60);
        assert_eq!(bench.adopt(), [], "{file}: the address is not on the card");
        bench.permanent("192.0.2.10/24");
        let (teller, lease) = bench.adopted4().unwrap_or_else(|| panic!("{file}"));
        assert_eq!(teller, client, "{file}");
        assert_eq!(router(&lease), "192.0.2.1", "{file}");
        let found = &bench.adopt()[0];
        assert_eq!(found.from, format!("{:?}", bench.path(file)));
        assert_eq!(found.event.interface.as_str(), "eth0");
    }
}

#[test]
fn what_the_book_has_and_the_kernel_bears_out_stays() {
    let mut bench = Bench::new();
    bench.leased("192.0.2.10/24");
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.1"), 60);
    let found = bench.adopt();
    bench.take(&found[0]);
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.2"), 0);
    assert_eq!(bench.adopt(), []);
    // Another address since.
    bench.host.addresses.clear();
    bench.leased("192.0.2.11/24");
    let (client, lease) = bench.adopted4().unwrap();
    assert_eq!(client, Client::Script);
    assert_eq!(lease.address.to_string(), "192.0.2.11");
    bench.write(NETWORKD, networkd("192.0.2.11", "192.0.2.2"), 0);
    assert_eq!(bench.adopted4().unwrap().0, Client::NetworkdDispatcher);
}

#[test]
fn the_newest_file_that_fits_counts() {
    let mut bench = Bench::new();
    bench.leased("192.0.2.10/24");
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.1"), 60);
    bench.write(DHCLIENT, dhclient("192.0.2.10", "192.0.2.2", "never"), 30);
    let of_dhcpcd = "/var/lib/dhcpcd/eth0.lease";
    bench.write(of_dhcpcd, bootp([192, 0, 2, 3]), 40);
    assert_eq!(router(&bench.adopted4().unwrap().1), "192.0.2.2");
    bench.write(of_dhcpcd, bootp([192, 0, 2, 3]), 10);
    assert_eq!(router(&bench.adopted4().unwrap().1), "192.0.2.3");
    // The newest of all is about an address that the card does not have.
    bench.write(NETWORKD, networkd("192.0.2.99", "192.0.2.1"), 0);
    assert_eq!(router(&bench.adopted4().unwrap().1), "192.0.2.3");
}

#[test]
fn a_lease_that_has_ended_is_nothing() {
    let mut bench = Bench::new();
    bench.permanent("192.0.2.10/24");
    let over = format!("epoch {NOW}");
    bench.write(DHCLIENT, dhclient("192.0.2.10", "192.0.2.1", &over), 60);
    bench.write("/var/lib/dhcpcd/eth0.lease", bootp([192, 0, 2, 1]), 3600);
    let over = device("192.0.2.10", "192.0.2.1");
    bench.write(DEVICE, over.replace(&(NOW + 3600).to_string(), "5"), 60);
    assert_eq!(bench.adopt(), []);
    bench.write("/var/lib/dhcpcd/eth0.lease", bootp([192, 0, 2, 1]), 3599);
    assert_eq!(bench.adopted4().unwrap().0, Client::Dhcpcd);
}

#[test]
fn what_a_lease_lasts_counts_from_when_its_file_was_written() {
    let mut bench = Bench::new();
    bench.permanent("192.0.2.10/24");
    let expires = |bench: &Bench| bench.adopted4().unwrap().1.expires;
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.1"), 600);
    // networkd takes the file away when the lease has ended.
    assert_eq!(expires(&bench), None);
    fs::remove_file(bench.path(NETWORKD)).unwrap();
    bench.write("/var/lib/dhcpcd/eth0.lease", bootp([192, 0, 2, 1]), 600);
    assert_eq!(expires(&bench), Some(NOW + 3000));
}

#[test]
fn a_file_from_before_this_boot_counts_where_the_kernel_shows_the_lease() {
    let before = NOW - BOOTED + 1;
    let mut bench = Bench::new();
    let lease = dhclient("192.0.2.10", "192.0.2.1", "never");
    bench.write(DHCLIENT, &lease, before);
    bench.permanent("192.0.2.10/24");
    assert_eq!(bench.adopt(), [], "somebody set the address by hand");
    bench.write(DHCLIENT, &lease, before - 1);
    assert_eq!(bench.adopt().len(), 1);
    bench.write(DHCLIENT, &lease, before);
    bench.host.addresses.clear();
    bench.leased("192.0.2.10/24");
    assert_eq!(bench.adopted4().unwrap().0, Client::Dhclient);
    // What is in `/run` is of this boot.
    bench.host.addresses.clear();
    bench.permanent("192.0.2.10/24");
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.1"), before);
    assert_eq!(bench.adopted4().unwrap().0, Client::NetworkdDispatcher);

    let prefix = format!(
        "lease6 {{\n interface \"eth0\";\nia-pd 00:00:00:01 {{ starts {NOW}; iaprefix \
         2001:db8:1f00::/56 {{ starts {NOW}; preferred-life 60; max-life 900; }} }}\n}}\n"
    );
    let bench = Bench::new();
    let file = "/var/lib/dhcp/dhclient6.eth0.leases";
    bench.write(file, &prefix, before - 1);
    assert_eq!(bench.adopt().len(), 1);
    bench.write(file, &prefix, before);
    assert_eq!(bench.adopt(), [], "a prefix of an earlier boot");
}

#[test]
fn the_kernel_shows_what_no_file_tells_of() {
    let mut bench = Bench::new();
    bench.leased("192.0.2.10/24");
    bench.leased("169.254.7.7/16");
    bench.leased("192.0.2.11/24");
    bench.permanent("192.0.2.12/24");
    let (client, lease) = bench.adopted4().unwrap();
    assert_eq!(client, Client::Script);
    assert_eq!(lease.address.to_string(), "192.0.2.10");
    assert_eq!(lease.prefix_length, Some(24));
    assert_eq!(lease.others, ["192.0.2.11".parse().unwrap()].into());
    assert_eq!(lease.router, None);
    bench.default_route("192.0.2.3", 50, 3);
    bench.default_route("192.0.2.2", 200, 2);
    bench.default_route("192.0.2.1", 100, 2);
    assert_eq!(router(&bench.adopted4().unwrap().1), "192.0.2.1");
    assert_eq!(bench.adopt()[0].from, "the kernel");
}

#[test]
fn an_address_that_nobody_leased_is_left_alone() {
    let mut bench = Bench::new();
    bench.permanent("192.0.2.10/24");
    bench.permanent("2001:db8::10/64");
    bench.leased("2001:db8::11/64");
    bench.default_route("192.0.2.1", 0, 2);
    assert_eq!(bench.adopt(), []);
}

#[test]
fn cards_that_are_not_ours_to_manage_are_left_alone() {
    let changes: [fn(&mut Bench); 4] = [
        |bench| bench.host.links.get_mut(&index(2)).unwrap().up = false,
        |bench| bench.host.links.get_mut(&index(2)).unwrap().master = Some(index(3)),
        |bench| bench.host.links.get_mut(&index(2)).unwrap().loopback = true,
        |bench| {
            bench.settings.interfaces.push(InterfaceSettings {
                matches: InterfaceMatch {
                    name: Some(Pattern::new("eth*").unwrap()),
                    ..InterfaceMatch::default()
                },
                manage: Some(false),
                ..InterfaceSettings::default()
            });
        },
    ];
    for change in changes {
        let mut bench = Bench::new();
        bench.leased("192.0.2.10/24");
        bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.1"), 60);
        assert_eq!(bench.adopt().len(), 1);
        change(&mut bench);
        assert_eq!(bench.adopt(), []);
    }
}

#[test]
fn word_that_the_lease_is_gone_outweighs_what_is_older() {
    let mut bench = Bench::new();
    let gone = bench.path(NETWORKD);
    let lost = bench
        .stored()
        .read(&gone, &bench.host, &bench.book)
        .unwrap();
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.1"), 1);
    bench.leased("192.0.2.10/24");
    let found = bench.adopt();
    bench.take(&found[0]);
    bench.take(&lost);
    assert_eq!(bench.adopt(), []);
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.1"), 0);
    assert_eq!(bench.adopt().len(), 1);
    // A damaged record.
    let record = bench.book.records().next().unwrap();
    let updated = u64::MAX;
    bench.book = LeaseBook::new([Record {
        updated,
        ..record.clone()
    }]);
    assert_eq!(bench.adopt(), []);
}

#[test]
fn of_dhcpv6_prefixes_and_permanent_addresses_are_adopted() {
    let part = |ia: &str, part: &str, life: u64| {
        format!(
            "ia-{ia} 00:00:00:01 {{ starts {NOW}; {part} {{ starts {NOW}; preferred-life 60; \
             max-life {life}; }} }}\n"
        )
    };
    let lease = format!(
        "default-duid \"\\000\\003\";\nlease6 {{\n interface \"eth0\";\n{}{}{}{}}}\n",
        part("na", "iaaddr 2001:db8:1::100", 4_294_967_295),
        part("na", "iaaddr 2001:db8:1::200", 3600),
        part("pd", "iaprefix 2001:db8:1f00::/56", 3600),
        part("pd", "iaprefix 2001:db8:2f00::/56", 0)
    );
    let mut bench = Bench::new();
    bench.write("/var/lib/dhcp/dhclient6.eth0.leases", lease, 60);
    bench.host.links.get_mut(&index(2)).unwrap().carrier = false;
    assert_eq!(bench.adopt(), [], "no carrier");
    bench.host.links.get_mut(&index(2)).unwrap().carrier = true;
    bench.leased("2001:db8:1::200/128");
    bench.permanent("2001:db8:1::100/128");
    let found = bench.adopt();
    let leases: Vec<Lease6> = found.iter().map(lease6).collect();
    assert_eq!(leases.len(), 2, "{leases:?}");
    let address = "2001:db8:1::100".parse().unwrap();
    let prefix = "2001:db8:1f00::/56".parse().unwrap();
    assert_eq!(leases[0].addresses[&address].expires, None);
    assert_eq!(leases[1].prefixes[&prefix].expires, Some(NOW + 3600));
    for part in &found {
        bench.take(part);
    }
    assert_eq!(bench.adopt(), []);
    let held = bench.book.lease6(index(2)).unwrap();
    assert_eq!((held.addresses.len(), held.prefixes.len()), (1, 1));
}

#[test]
fn a_delegated_prefix_of_dhcpcd_ends_when_its_time_has_passed() {
    // A reply with one delegated prefix, valid for an hour: RFC 8415 21.21 and 21.22.
    let mut message = vec![7, 1, 2, 3, 0, 25, 0, 41, 0, 0, 0, 1];
    message.extend([0; 8]);
    message.extend([0, 26, 0, 25, 0, 0, 7, 8, 0, 0, 14, 16, 56]);
    message.extend([0x20, 0x01, 0x0d, 0xb8, 0x1f, 0]);
    message.extend([0; 10]);
    let bench = Bench::new();
    bench.write("/var/lib/dhcpcd/eth0.lease6", &message, 600);
    let found = bench.adopt();
    let prefixes = lease6(&found[0]).prefixes;
    let prefix = "2001:db8:1f00::/56".parse().unwrap();
    assert_eq!(prefixes[&prefix].expires, Some(NOW + 3000));
    bench.write("/var/lib/dhcpcd/eth0.lease6", &message, 3600);
    assert_eq!(bench.adopt(), []);
}

#[test]
fn what_is_no_file_of_the_expected_kind_is_not_waited_for() {
    let mut bench = Bench::new();
    bench.permanent("192.0.2.10/24");
    for file in [NETWORKD, DEVICE, DHCLIENT] {
        let path = bench.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    fs::create_dir_all(bench.path("/var/lib/dhcpcd/eth0.lease")).unwrap();
    let huge = dhclient("192.0.2.10", "192.0.2.1", "never") + &" ".repeat(1024 * 1024);
    bench.write("/var/lib/dhclient/dhclient.leases", huge, 0);
    assert_eq!(bench.adopt(), []);
    let found = bench
        .stored()
        .read(&bench.path(NETWORKD), &bench.host, &bench.book);
    assert_eq!(
        found.unwrap().event.changes,
        Family::BOTH.map(LeaseChange::LookAgain)
    );
    assert_eq!(
        bench
            .stored()
            .read(&bench.path(DEVICE), &bench.host, &bench.book),
        None
    );
    // A symbolic link is as good as a file.
    bench.write("/elsewhere", networkd("192.0.2.10", "192.0.2.1"), 0);
    fs::remove_file(bench.path(NETWORKD)).unwrap();
    std::os::unix::fs::symlink(bench.path("/elsewhere"), bench.path(NETWORKD)).unwrap();
    assert_eq!(bench.adopt().len(), 1);
}

#[test]
fn a_changed_file_of_networkd_is_the_event_of_its_hook() {
    let mut bench = Bench::new();
    let stored = bench.stored();
    let file = bench.path(NETWORKD);
    assert!(stored.folders().contains(&file.parent().unwrap().into()));
    assert!(stored.concerns(&file));
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.7"), 0);
    let found = stored.read(&file, &bench.host, &bench.book).unwrap();
    assert_eq!(router(&lease4(&found)), "192.0.2.7");
    assert_eq!(found.event.changes.len(), 2);
    for other in ["02", "+2", ".#2f00", "4", "0", "", "2.tmp"] {
        let other = file.with_file_name(other);
        assert_eq!(
            stored.read(&other, &bench.host, &bench.book),
            None,
            "{}",
            other.display()
        );
        assert_eq!(stored.concerns(&other), other.ends_with("4"));
    }
    // It is written anew in the middle of a look.
    bench.write(NETWORKD, "", 0);
    assert_eq!(stored.read(&file, &bench.host, &bench.book), None);

    fs::remove_file(&file).unwrap();
    let changes = |bench: &Bench| {
        stored
            .read(&file, &bench.host, &bench.book)
            .unwrap()
            .event
            .changes
    };
    let again = Family::BOTH.map(LeaseChange::LookAgain);
    assert_eq!(changes(&bench)[0], LeaseChange::Lost4(None));
    bench.leased("192.0.2.10/24");
    assert_eq!(changes(&bench), again, "networkd restarts");
    bench.host.addresses.clear();
    bench.write(
        "/run/systemd/netif/links/2",
        "ADMIN_STATE=unmanaged\nOPER_STATE=routable\n",
        0,
    );
    assert_eq!(changes(&bench), again, "somebody else's lease");
    bench.write("/run/systemd/netif/links/2", "ADMIN_STATE=configured\n", 0);
    assert_eq!(changes(&bench)[0], LeaseChange::Lost4(None));
}

#[test]
fn a_restart_of_networkd_ends_no_lease_whose_address_is_permanent() {
    let mut bench = Bench::new();
    let file = bench.path(NETWORKD);
    bench.write(NETWORKD, networkd("192.0.2.10", "192.0.2.1"), 0);
    let told = bench.stored().read(&file, &bench.host, &bench.book);
    bench.take(&told.unwrap());
    fs::remove_file(&file).unwrap();
    let first = |bench: &Bench| {
        let found = bench.stored().read(&file, &bench.host, &bench.book);
        found.unwrap().event.changes.swap_remove(0)
    };
    bench.permanent("192.0.2.10/24");
    assert_eq!(first(&bench), LeaseChange::LookAgain(Family::Ipv4));
    // Somebody's own address is there whatever networkd leases.
    bench.host.addresses.clear();
    bench.permanent("192.0.2.77/24");
    assert_eq!(first(&bench), LeaseChange::Lost4(None));
}

#[test]
fn a_changed_file_of_networkmanager_is_a_renewal() {
    let mut bench = Bench::new();
    let stored = bench.stored();
    let file = bench.path(DEVICE);
    assert!(stored.folders().contains(&file.parent().unwrap().into()));
    bench.leased("192.0.2.10/24");
    bench.permanent("192.0.2.77/24");
    bench.write(DEVICE, device("192.0.2.10", "192.0.2.2 192.0.2.1"), 0);
    let found = stored.read(&file, &bench.host, &bench.book).unwrap();
    let lease = lease4(&found);
    assert_eq!(router(&lease), "192.0.2.2");
    assert_eq!(lease.prefix_length, Some(24));
    assert_eq!(lease.expires, Some(NOW + 3600));
    assert_eq!(lease.others, ["192.0.2.77".parse().unwrap()].into());
    assert_eq!(found.event.changes.len(), 1);
    // A connection without DHCP, or none.
    bench.write(DEVICE, "[device]\nmanaged=true\n\n[dhcp6]\nx=1\n", 0);
    assert_eq!(stored.read(&file, &bench.host, &bench.book), None);
    fs::remove_file(&file).unwrap();
    assert_eq!(stored.read(&file, &bench.host, &bench.book), None);
}

#[test]
fn a_file_with_the_address_alone_gets_its_router_from_the_kernel() {
    let mut bench = Bench::new();
    let file = "/var/lib/NetworkManager/internal-11111111-2222-4333-8444-555555555555-eth0.lease";
    let text = "# This is private data. Do not parse.\nADDRESS=192.0.2.10\n";
    bench.leased("192.0.2.10/24");
    bench.write(DEVICE, "[device]\nmanaged=true\n", 0);
    bench.write(file, text, 60);
    assert_eq!(router(&bench.adopted4().unwrap().1), "");
    bench.default_route("192.0.2.1", 100, 2);
    let (client, lease) = bench.adopted4().unwrap();
    assert_eq!(client, Client::NmDispatcher);
    assert_eq!(router(&lease), "192.0.2.1");
    bench.write(file, format!("{text}ROUTER=192.0.2.2\n"), 60);
    assert_eq!(router(&bench.adopted4().unwrap().1), "192.0.2.2");
}

#[test]
fn a_file_name_breaks_no_line_of_a_log() {
    let mut bench = Bench::new();
    bench.permanent("192.0.2.10/24");
    let file = "/var/lib/dhcpcd/eth0-\n\u{1b}[31m.lease";
    bench.write(file, bootp([192, 0, 2, 1]), 60);
    let from = &bench.adopt()[0].from;
    assert!(from.ends_with("/eth0-\\n\\u{1b}[31m.lease\""), "{from}");
}

#[test]
fn a_file_is_of_the_card_with_the_longest_name_that_fits() {
    let internal = |name| format!("/var/lib/NetworkManager/internal-11111111-{name}.lease");
    let files: [(String, Vec<u8>); 2] = [
        (
            "/var/lib/dhcpcd/eth0-lan.lease".to_owned(),
            bootp([192, 0, 2, 1]),
        ),
        (internal("lan-eth0"), "ADDRESS=192.0.2.10\n".into()),
    ];
    for (file, content) in files {
        let mut bench = Bench::new();
        bench.permanent("192.0.2.10/24");
        bench.write(&file, content, 60);
        assert_eq!(bench.adopt().len(), 1, "{file}");
        let other = bench.host.links.get_mut(&index(3)).unwrap();
        let name = if file.contains("internal") {
            "lan-eth0"
        } else {
            "eth0-lan"
        };
        other.name = name.parse().unwrap();
        assert_eq!(bench.adopt(), [], "{file}");
    }
}

#[test]
fn many_files_of_others_hide_no_lease() {
    let mut bench = Bench::new();
    bench.permanent("192.0.2.10/24");
    for number in 0..400 {
        let file = format!("/var/lib/dhcpcd/wlan0-{number}.lease");
        bench.write(&file, bootp([192, 0, 2, 9]), 0);
        let file = format!("/var/lib/NetworkManager/dhclient-{number}-wlan0.lease");
        let lease = dhclient("192.0.2.10", "192.0.2.9", "never");
        bench.write(&file, lease.replace("eth0", "wlan0"), 900);
    }
    bench.write("/var/lib/dhcpcd/eth0.lease", bootp([192, 0, 2, 1]), 600);
    assert_eq!(router(&bench.adopted4().unwrap().1), "192.0.2.1");
    // dhclient's files name no card for sure, so the newest are read.
    let newest = "/var/lib/NetworkManager/dhclient-x-eth0.lease";
    bench.write(newest, dhclient("192.0.2.10", "192.0.2.2", "never"), 300);
    assert_eq!(router(&bench.adopted4().unwrap().1), "192.0.2.2");
}

#[test]
fn short_runs_of_dhcp_are_not_looked_at() {
    let mut bench = Bench::new();
    bench.permanent("192.0.2.10/24");
    for folder in [
        "/run",
        "/var/tmp/cloud-init",
        "/run/cloud-init",
        "/var/lib/cloud",
    ] {
        let lease = dhclient("192.0.2.10", "192.0.2.1", "never");
        bench.write(&format!("{folder}/dhclient.leases"), lease, 0);
    }
    assert_eq!(bench.adopt(), []);
}
