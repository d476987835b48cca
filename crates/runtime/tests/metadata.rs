//! What metadata services say, from the engine's side: it adds to leases, it is remembered,
//! and only what is known takes anything away.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may stop"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;
use leaseroute_core::{
    AddressFlags, CardMetadata, Client, Device, Family, LinkAddress, MetadataSettings,
    ProviderChoice, Purpose, RawEvent, Said, Settings, When,
};
use leaseroute_kernel::Kernel as _;
use leaseroute_lab::fake::FakeKernel;
use leaseroute_runtime::{Engine, Outcome, StateFolder};
use tempfile::TempDir;

/// A host with cards `eth0` (192.0.2.5/24) and `eth1` (198.51.100.5/24).
struct Bench {
    engine: Engine<FakeKernel>,
    cards: Vec<Device>,
    _folder: TempDir,
}

const ADDRESSES: [&str; 2] = ["192.0.2.5/24", "198.51.100.5/24"];

impl Bench {
    fn new(assign_addresses: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let kernel = FakeKernel::new();
        let cards = ["eth0", "eth1"].map(|name| kernel.add_link(name.parse().unwrap()));
        let bench = Self {
            engine: Engine::new(
                kernel,
                Settings {
                    metadata: MetadataSettings {
                        assign_addresses,
                        ..MetadataSettings::default()
                    },
                    when: When::Always,
                    ..Settings::default()
                },
                StateFolder::at(folder.path().join("state")),
            ),
            cards: cards.into(),
            _folder: folder,
        };
        bench.put(0, ADDRESSES[0]);
        bench.put(1, ADDRESSES[1]);
        bench
    }

    fn card(&self, card: usize) -> &Device {
        self.cards.get(card).unwrap()
    }

    fn put(&self, card: usize, address: &str) {
        self.engine.kernel().add_address(LinkAddress {
            index: self.card(card).index,
            address: address.parse().unwrap(),
            peer: None,
            flags: AddressFlags::default(),
            protocol: None,
        });
    }

    fn tell(&self, card: usize, reason: &str) {
        let address: IpNetwork = ADDRESSES.get(card).unwrap().parse().unwrap();
        let IpAddr::V4(ip) = address.ip() else {
            panic!("an IPv4 address");
        };
        let [a, b, c, _] = ip.octets();
        let key = if reason == "BOUND" || reason == "RENEW" {
            "new"
        } else {
            "old"
        };
        let variables = [
            ("reason", reason.to_owned()),
            ("interface", self.card(card).name.to_string()),
            (&format!("{key}_ip_address"), ip.to_string()),
            (&format!("{key}_subnet_mask"), "255.255.255.0".to_owned()),
            (
                &format!("{key}_routers"),
                Ipv4Addr::new(a, b, c, 1).to_string(),
            ),
        ];
        let variables = variables.map(|(key, value)| (key.to_owned(), value));
        let raw = RawEvent::new(Client::Dhclient, BTreeMap::from(variables));
        let event = raw.client.parse(&raw).unwrap().event.unwrap();
        self.engine.take(event, &raw).unwrap();
    }

    fn said(&self, card: usize, said: Said) -> CardMetadata {
        let device = self.card(card);
        let links = self.engine.kernel().links().unwrap();
        let link = links.iter().find(|link| link.index == device.index);
        CardMetadata {
            index: device.index,
            name: device.name.clone(),
            mac: link.and_then(|link| link.mac),
            family: Family::Ipv4,
            provider: "ec2".to_owned(),
            said,
            withdrawn: BTreeSet::new(),
            updated: 0,
        }
    }

    /// How many changes it made.
    fn learn(&self, card: usize, said: Said) -> usize {
        let outcome = self.engine.learn(vec![self.said(card, said)]).unwrap();
        match outcome {
            Outcome::Done { reports, .. } => reports.iter().map(|r| r.done.steps.len()).sum(),
            Outcome::TakenIn(_) => panic!("nobody else runs"),
        }
    }

    /// The sources that have rules, by the card whose table they lead to.
    fn sources(&self, card: usize) -> BTreeSet<String> {
        let table = 76000 + self.card(card).index.get();
        let rules = self.engine.kernel().rules(Family::Ipv4).unwrap();
        let own = rules.iter().filter(|rule| rule.table.get() == table);
        own.filter_map(|rule| rule.from)
            .map(|from| match from.prefix() {
                32 => from.ip().to_string(),
                _ => from.to_string(),
            })
            .collect()
    }

    /// The addresses of a card, with whether they are ours.
    fn addresses(&self, card: usize) -> BTreeSet<(String, bool)> {
        let index = self.card(card).index;
        let seen = self.engine.kernel().addresses(Family::Ipv4).unwrap();
        let on_card = seen.iter().filter(|seen| seen.index == index);
        on_card
            .map(|seen| {
                (
                    seen.address.to_string(),
                    self.engine.settings().owns_address(seen),
                )
            })
            .collect()
    }
}

fn said(addresses: &[&str], prefixes: &[&str]) -> Said {
    Said {
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        prefixes: prefixes.iter().map(|p| p.parse().unwrap()).collect(),
        ..Said::default()
    }
}

fn set<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.map(str::to_owned).into()
}

const PRIMARY: &str = "198.51.100.5";

#[test]
fn secondary_addresses_and_prefixes_get_rules_and_lose_them_when_they_are_gone() {
    let bench = Bench::new(false);
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    assert_eq!(bench.sources(1), set([PRIMARY]));
    let secondary = said(&[PRIMARY, "198.51.100.20"], &["198.51.100.64/28"]);
    assert!(bench.learn(1, secondary.clone()) > 0);
    let all = set([PRIMARY, "198.51.100.20", "198.51.100.64/28"]);
    assert_eq!(bench.sources(1), all);
    // The same again is no news; what a hook does keeps it.
    assert_eq!(bench.learn(1, secondary), 0);
    bench.tell(1, "RENEW");
    bench.tell(0, "RENEW");
    assert_eq!(bench.sources(1), all);
    assert_eq!(
        bench.addresses(1),
        [("198.51.100.5/24".to_owned(), false)].into()
    );
    assert!(bench.learn(1, said(&[PRIMARY], &[])) > 0);
    assert_eq!(bench.sources(1), set([PRIMARY]));
}

#[test]
fn a_card_without_its_own_address_gets_nothing_of_what_is_said() {
    let bench = Bench::new(true);
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    bench.learn(1, said(&[PRIMARY, "198.51.100.20"], &["198.51.100.64/28"]));
    let address = ADDRESSES[1].parse().unwrap();
    bench
        .engine
        .kernel()
        .delete_address(bench.card(1).index, address);
    bench.tell(1, "RELEASE");
    assert_eq!(bench.sources(1), set([]));
    assert_eq!(bench.addresses(1), BTreeSet::new());
    // And all of it again with the next lease, without asking.
    bench.put(1, ADDRESSES[1]);
    bench.tell(1, "BOUND");
    assert_eq!(
        bench.sources(1),
        set([PRIMARY, "198.51.100.20", "198.51.100.64/28"])
    );
}

#[test]
fn what_is_said_of_other_addresses_than_the_cards_own_is_not_of_this_card() {
    let bench = Bench::new(true);
    bench.tell(0, "BOUND");
    bench.learn(
        1,
        said(&["198.51.100.99", "198.51.100.20"], &["198.51.100.64/28"]),
    );
    bench.tell(1, "BOUND");
    assert_eq!(bench.sources(1), set([PRIMARY]));
    assert_eq!(bench.addresses(1).len(), 1);
}

#[test]
fn an_address_that_another_card_has_is_that_ones() {
    let bench = Bench::new(true);
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    bench.learn(1, said(&[PRIMARY, "192.0.2.5"], &["192.0.2.0/24"]));
    assert_eq!(bench.sources(1), set([PRIMARY]));
    assert_eq!(bench.sources(0), set(["192.0.2.5"]));
}

#[test]
fn what_is_said_of_a_card_that_is_gone_is_forgotten_with_it() {
    let bench = Bench::new(false);
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    let late = bench.said(1, said(&[PRIMARY, "198.51.100.20"], &[]));
    bench.learn(1, said(&[PRIMARY, "198.51.100.20"], &[]));
    bench.engine.kernel().delete_link(bench.card(1).index);
    bench.engine.apply().unwrap();
    assert_eq!(bench.sources(1), set([]));
    let (book, _) = bench.engine.state().read_book();
    assert_eq!(book.metadata().count(), 0);
    // An answer that comes too late changes nothing.
    bench.engine.learn(vec![late]).unwrap();
    let (book, errors) = bench.engine.state().read_book();
    assert_eq!((book.metadata().count(), errors.len()), (0, 0));
}

#[test]
fn assigned_addresses_are_ours_and_only_ours_are_taken_off() {
    let bench = Bench::new(true);
    bench.put(1, "198.51.100.30/24");
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    let primary = ("198.51.100.5/24".to_owned(), false);
    let foreign = ("198.51.100.30/24".to_owned(), false);
    let ours = ("198.51.100.20/32".to_owned(), true);
    bench.learn(1, said(&[PRIMARY, "198.51.100.20", "198.51.100.30"], &[]));
    let all = BTreeSet::from([primary.clone(), foreign.clone(), ours]);
    assert_eq!(bench.addresses(1), all);
    assert_eq!(
        bench.sources(1),
        set([PRIMARY, "198.51.100.20", "198.51.100.30"])
    );
    // Somebody takes it off; the next run puts it back.
    let address = "198.51.100.20/32".parse().unwrap();
    bench
        .engine
        .kernel()
        .delete_address(bench.card(1).index, address);
    bench.engine.apply().unwrap();
    assert_eq!(bench.addresses(1), all);
    bench.learn(1, said(&[PRIMARY], &[]));
    assert_eq!(bench.addresses(1), [primary, foreign].into());
    assert_eq!(bench.sources(1), set([PRIMARY]));
}

#[test]
fn a_card_that_no_server_serves_gets_address_prefix_and_default() {
    let bench = Bench::new(true);
    bench.tell(0, "BOUND");
    bench
        .engine
        .kernel()
        .delete_address(bench.card(1).index, ADDRESSES[1].parse().unwrap());
    bench.learn(
        1,
        Said {
            subnets: ["203.0.113.0/26".parse().unwrap()].into(),
            gateway: Some("203.0.113.1".parse().unwrap()),
            is_unserved: true,
            ..said(&["203.0.113.9", "203.0.113.10"], &[])
        },
    );
    let ours = [("203.0.113.9/26", true), ("203.0.113.10/32", true)];
    assert_eq!(
        bench.addresses(1),
        ours.map(|(a, is)| (a.to_owned(), is)).into()
    );
    assert_eq!(bench.sources(1), set(["203.0.113.9", "203.0.113.10"]));
    let Outcome::Done { reports, .. } = bench.engine.apply().unwrap() else {
        panic!("nobody else runs");
    };
    let wanted = reports.iter().flat_map(|report| &report.desired.routes);
    let mut defaults = wanted
        .filter(|(route, purpose)| *purpose == Purpose::Default && route.device == *bench.card(1));
    let gateway = defaults.next().and_then(|(route, _)| route.gateway);
    assert_eq!(gateway, Some("203.0.113.1".parse().unwrap()));
    assert!(reports.iter().all(|report| report.is_unchanged()));
    // Removing everything takes the addresses along.
    bench.engine.remove(None).unwrap();
    assert_eq!(bench.addresses(1), BTreeSet::new());
}

#[test]
fn a_lease_without_a_router_gets_the_one_that_is_said() {
    let bench = Bench::new(false);
    bench.tell(0, "BOUND");
    let variables = [
        ("reason", "BOUND"),
        ("interface", "eth1"),
        ("new_ip_address", PRIMARY),
        ("new_subnet_mask", "255.255.255.0"),
    ];
    let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let raw = RawEvent::new(Client::Dhclient, BTreeMap::from(variables));
    let event = raw.client.parse(&raw).unwrap().event.unwrap();
    bench.engine.take(event, &raw).unwrap();
    let gateways = || {
        let Outcome::Done { reports, .. } = bench.engine.apply().unwrap() else {
            panic!("nobody else runs");
        };
        let wanted = reports.iter().flat_map(|report| &report.desired.routes);
        let defaults = wanted.filter(|(route, purpose)| {
            *purpose == Purpose::Default && route.device == *bench.card(1)
        });
        defaults.map(|(route, _)| route.gateway).collect::<Vec<_>>()
    };
    assert_eq!(gateways(), []);
    let router: IpAddr = "198.51.100.1".parse().unwrap();
    bench.learn(
        1,
        Said {
            gateway: Some(router),
            ..said(&[PRIMARY], &[])
        },
    );
    assert_eq!(gateways(), [Some(router)]);
    // A lease that tells of one is believed.
    bench.tell(1, "RENEW");
    bench.learn(
        1,
        Said {
            gateway: Some("198.51.100.254".parse().unwrap()),
            ..said(&[PRIMARY], &[])
        },
    );
    assert_eq!(gateways(), [Some(router)]);
}

/// What a service knows of a card's addresses says nothing of its lease's routes.
#[test]
fn what_is_said_is_no_knowledge_of_a_lease_that_was_forgotten() {
    let bench = Bench::new(false);
    bench.tell(0, "BOUND");
    let variables = [
        ("reason", "BOUND"),
        ("interface", "eth1"),
        ("new_ip_address", PRIMARY),
        ("new_subnet_mask", "255.255.255.0"),
        (
            "new_rfc3442_classless_static_routes",
            "24 203 0 113 198 51 100 9 0 198 51 100 1",
        ),
    ];
    let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let raw = RawEvent::new(Client::Dhclient, BTreeMap::from(variables));
    let event = raw.client.parse(&raw).unwrap().event.unwrap();
    bench.engine.take(event, &raw).unwrap();
    let contents = || {
        let contents = bench.engine.kernel().contents();
        (contents.rules, contents.routes)
    };
    let before = contents();
    let leases = bench.engine.state().leases();
    for entry in std::fs::read_dir(leases).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    bench.learn(1, said(&[PRIMARY], &[]));
    bench.engine.apply().unwrap();
    assert_eq!(contents(), before);
}

#[test]
fn nothing_counts_that_somebody_said_who_is_not_asked_any_more() {
    let mut bench = Bench::new(true);
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    bench.learn(1, said(&[PRIMARY, "198.51.100.20"], &["198.51.100.64/28"]));
    assert_eq!(bench.addresses(1).len(), 2);
    let mut settings = bench.engine.settings().clone();
    settings.metadata.provider = ProviderChoice::None;
    bench.engine.reconfigure(settings);
    bench.engine.apply().unwrap();
    assert_eq!(bench.sources(1), set([PRIMARY]));
    assert_eq!(bench.addresses(1).len(), 1);
}

/// A client that lets go of an address must be able to set it again.
#[test]
fn a_clients_address_is_never_assigned() {
    let bench = Bench::new(true);
    bench.put(1, "198.51.100.30/24");
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    bench.learn(1, said(&[PRIMARY, "198.51.100.30"], &[]));
    let address = ADDRESSES[1].parse().unwrap();
    bench
        .engine
        .kernel()
        .delete_address(bench.card(1).index, address);
    bench.tell(1, "RELEASE");
    assert_eq!(
        bench.addresses(1),
        [("198.51.100.30/24".to_owned(), false)].into()
    );
}

/// A service that says more than it may must not take a VPN's or a container's packets.
#[test]
fn a_prefix_that_holds_what_another_interface_has_is_left_out() {
    let bench = Bench::new(false);
    let kernel = bench.engine.kernel();
    let tunnel = kernel.add_link("tun0".parse().unwrap());
    let bridge = kernel.add_link("docker0".parse().unwrap());
    for (link, address) in [(&tunnel, "10.8.0.2/24"), (&bridge, "198.51.100.129/28")] {
        kernel.add_address(LinkAddress {
            index: link.index,
            address: address.parse().unwrap(),
            peer: None,
            flags: AddressFlags {
                permanent: true,
                ..AddressFlags::default()
            },
            protocol: None,
        });
    }
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    let taken = ["10.8.0.2/31", "10.8.0.0/16", "10.8.0.128/25"];
    // Containers may have been given a part of the card's own network.
    let given = "198.51.100.128/28";
    bench.learn(1, said(&[PRIMARY], &[taken[0], taken[1], taken[2], given]));
    assert_eq!(bench.sources(1), set([PRIMARY, given]));
}

#[test]
fn an_address_that_no_card_may_have_is_not_assigned() {
    let bench = Bench::new(true);
    let bridge = bench.engine.kernel().add_link("docker0".parse().unwrap());
    bench.engine.kernel().add_address(LinkAddress {
        index: bridge.index,
        address: "172.17.0.1/16".parse().unwrap(),
        peer: None,
        flags: AddressFlags::default(),
        protocol: None,
    });
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    let refused = [
        "198.51.100.1",
        "192.0.2.1",
        "192.0.2.77",
        "198.51.100.0",
        "198.51.100.255",
        "172.17.0.9",
        "240.0.0.1",
    ];
    let mut all = vec![PRIMARY];
    all.extend(refused);
    bench.learn(1, said(&all, &[]));
    assert_eq!(
        bench.addresses(1),
        [("198.51.100.5/24".to_owned(), false)].into()
    );
    // One that is said of two cards is put on neither.
    bench.learn(0, said(&["192.0.2.5", "203.0.113.50"], &[]));
    bench.learn(1, said(&[PRIMARY, "203.0.113.50", "203.0.113.51"], &[]));
    let ours = ("203.0.113.51/32".to_owned(), true);
    let leased = ("198.51.100.5/24".to_owned(), false);
    assert_eq!(bench.addresses(1), [leased, ours].into());
    assert_eq!(
        bench.addresses(0),
        [("192.0.2.5/24".to_owned(), false)].into()
    );
}

#[test]
fn a_router_that_cannot_be_one_is_not_believed() {
    for router in ["198.51.100.5", "192.0.2.5", "198.51.100.255"] {
        let bench = Bench::new(false);
        bench.tell(0, "BOUND");
        bench.learn(
            1,
            Said {
                gateway: Some(router.parse().unwrap()),
                ..said(&[PRIMARY], &[])
            },
        );
        let Outcome::Done { reports, .. } = bench.engine.apply().unwrap() else {
            panic!("nobody else runs");
        };
        assert!(reports.iter().all(|report| report.failures.is_empty()));
        let wanted = reports.iter().flat_map(|report| &report.desired.routes);
        let mut defaults = wanted.filter(|(route, purpose)| {
            *purpose == Purpose::Default && route.device == *bench.card(1)
        });
        assert!(defaults.next().is_none(), "{router}");
    }
}

#[test]
fn addresses_of_ours_stay_while_nobody_knows() {
    let bench = Bench::new(true);
    bench.tell(0, "BOUND");
    bench.tell(1, "BOUND");
    bench.learn(1, said(&[PRIMARY, "198.51.100.20"], &[]));
    let before = bench.addresses(1);
    std::fs::remove_dir_all(bench.engine.state().path()).unwrap();
    bench.tell(1, "RENEW");
    assert_eq!(bench.addresses(1), before);
    // Who turns the feature off wants them gone.
    let mut engine = bench.engine;
    engine.reconfigure(Settings {
        when: When::Always,
        ..Settings::default()
    });
    engine.apply().unwrap();
    let seen = engine.kernel().addresses(Family::Ipv4).unwrap();
    assert!(!seen.iter().any(|seen| engine.settings().owns_address(seen)));
}
