//! Whole runs on the in-memory kernel: what comes of events, of interruptions, and of
//! trouble with the state folder.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use ipnetwork::{IpNetwork, Ipv4Network};
use leaseroute_core::{
    AddressFlags, Client, Device, Event, Family, LinkAddress, ObservedRoute, ObservedRule,
    RawEvent, Settings, TableId, When,
};
use leaseroute_kernel::Kernel as _;
use leaseroute_lab::fake::FakeKernel;
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::{Engine, Outcome, StateFolder, snapshot};
use nix::errno::Errno;
use tempfile::TempDir;

/// A host with cards `eth0` (192.0.2.5/24) and `eth1` (198.51.100.5/24).
struct Bench {
    engine: Engine<FakeKernel>,
    cards: Vec<Device>,
    folder: TempDir,
}

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 5), Ipv4Addr::new(198, 51, 100, 5)];

impl Bench {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let folder = TempDir::new().unwrap();
        let kernel = FakeKernel::new();
        let cards: Vec<Device> = ["eth0", "eth1"]
            .map(|name| kernel.add_link(name.parse().unwrap()))
            .into();
        for (card, address) in cards.iter().zip(ADDRESSES) {
            kernel.set_up(card.index, true);
            kernel.add_address(address_on(card, address));
        }
        let state = StateFolder::at(folder.path().join("state"));
        Self {
            engine: Engine::new(kernel, settings, state),
            cards,
            folder,
        }
    }

    fn kernel(&self) -> &FakeKernel {
        self.engine.kernel()
    }

    fn state(&self) -> &Path {
        self.engine.state().path()
    }

    fn take(&self, raw: &RawEvent) -> Outcome {
        block_on(self.engine.take(event(raw), raw)).unwrap()
    }

    fn bound(&self, card: usize) -> Outcome {
        self.take(&bound(card))
    }

    /// Our rules and the routes of our tables.
    fn objects(&self) -> (Vec<ObservedRule>, Vec<ObservedRoute>) {
        let (book, _) = self.engine.state().read_book();
        let settings = self.engine.settings();
        let host = block_on(snapshot::everything(self.kernel(), &book, settings)).unwrap();
        let rules = host
            .rules
            .into_iter()
            .filter(|rule| settings.owns_rule(rule));
        let routes = host
            .own_tables
            .into_iter()
            .filter(|route| settings.owns_route(route));
        (rules.collect(), routes.collect())
    }

    fn is_clean(&self) -> bool {
        self.objects() == (Vec::new(), Vec::new())
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn address_on(card: &Device, address: Ipv4Addr) -> LinkAddress {
    LinkAddress {
        index: card.index,
        address: IpNetwork::V4(Ipv4Network::new(address, 24).unwrap()),
        peer: None,
        flags: AddressFlags::default(),
    }
}

fn raw(variables: &[(&str, &str)]) -> RawEvent {
    let owned = variables
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    RawEvent {
        client: Client::Dhclient,
        arguments: Vec::new(),
        variables: BTreeMap::from_iter(owned),
    }
}

fn bound(card: usize) -> RawEvent {
    let [a, b, c, _] = ADDRESSES[card].octets();
    raw(&[
        ("reason", "BOUND"),
        ("interface", ["eth0", "eth1"][card]),
        ("new_ip_address", &ADDRESSES[card].to_string()),
        ("new_subnet_mask", "255.255.255.0"),
        ("new_routers", &format!("{a}.{b}.{c}.1")),
    ])
}

fn released(card: usize) -> RawEvent {
    raw(&[
        ("reason", "RELEASE"),
        ("interface", ["eth0", "eth1"][card]),
        ("old_ip_address", &ADDRESSES[card].to_string()),
    ])
}

fn event(raw: &RawEvent) -> Event {
    raw.client.parse(raw).unwrap().event.unwrap()
}

fn done(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Done { reports, .. } => reports.iter().map(|r| r.done.steps.len()).sum(),
        Outcome::TakenIn(_) => panic!("nobody else runs"),
    }
}

#[test]
fn the_second_card_sets_up_both_and_its_loss_takes_both_away() {
    let bench = Bench::new();
    assert_eq!(done(&bench.bound(0)), 0);
    assert!(bench.is_clean(), "a single uplink needs nothing");
    assert!(done(&bench.bound(1)) > 0);
    let (rules, routes) = bench.objects();
    // Three rules for the address and three for sockets bound to the card, twice.
    assert_eq!(rules.len(), 12);
    // On-link prefix, default, and the other card's prefix and gateway's.
    let tables = |index: usize| TableId::observed(76000 + bench.cards[index].index.get());
    for card in 0..2 {
        assert!(
            routes
                .iter()
                .any(|r| r.table == tables(card) && r.is_default())
        );
    }
    bench.kernel().delete_address(
        bench.cards[1].index,
        address_on(&bench.cards[1], ADDRESSES[1]).address,
    );
    assert_eq!(bench.take(&released(1)).exit(), Exit::Done);
    assert!(bench.is_clean());
}

#[test]
fn a_renewal_that_changes_nothing_changes_nothing() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    let before = (bench.objects(), bench.engine.state().last_run(Family::Ipv4));
    assert_eq!(done(&bench.bound(1)), 0);
    assert_eq!(done(&bench.bound(0)), 0);
    assert_eq!(
        (bench.objects(), bench.engine.state().last_run(Family::Ipv4)),
        before
    );
}

#[test]
fn a_run_cut_off_anywhere_is_finished_by_the_next() {
    let whole = Bench::new();
    whole.bound(0);
    let steps = done(&whole.bound(1));
    for cut in 0..steps {
        let bench = Bench::new();
        bench.bound(0);
        bench.kernel().cut_off_after(cut);
        assert_eq!(bench.bound(1).exit(), Exit::Kernel, "cut off after {cut}");
        bench.kernel().heal();
        assert_eq!(block_on(bench.engine.apply()).unwrap().exit(), Exit::Done);
        assert_eq!(bench.objects(), whole.objects(), "cut off after {cut}");
    }
    // The same for a removal: the lease is lost, so nothing may stay.
    for cut in 0..steps {
        let bench = Bench::new();
        bench.bound(0);
        bench.bound(1);
        bench.kernel().cut_off_after(cut);
        bench.take(&released(1));
        bench.kernel().heal();
        block_on(bench.engine.apply()).unwrap();
        assert!(bench.is_clean(), "cut off after {cut}");
    }
}

#[test]
fn an_event_that_a_killed_run_left_behind_is_taken_in_by_the_next() {
    let bench = Bench::new();
    bench.bound(0);
    let left = bound(1);
    let text = serde_json::json!({ "event": event(&left), "raw": left }).to_string();
    let file = bench
        .state()
        .join("inbox/000000000000000000000000000001-1.json");
    fs::write(&file, text).unwrap();
    let outcome = bench.bound(0);
    assert_eq!(outcome.exit(), Exit::Done);
    assert_eq!(bench.objects().0.len(), 12);
    assert!(!file.exists());
}

#[test]
fn a_lock_that_stays_taken_costs_a_bounded_wait_and_no_event() {
    let Bench {
        engine,
        cards,
        folder,
    } = Bench::new();
    let engine = engine.with_patience(Duration::from_millis(50));
    let bench = Bench {
        engine,
        cards,
        folder,
    };
    bench.bound(0);
    let lock = OpenOptions::new()
        .write(true)
        .open(bench.state().join("lock"))
        .unwrap();
    lock.lock().unwrap();
    let second = bound(1);
    let busy = block_on(bench.engine.take(event(&second), &second)).unwrap_err();
    assert_eq!(busy.exit(), Exit::Busy);
    assert!(bench.is_clean());
    drop(lock);
    bench.bound(0);
    assert_eq!(bench.objects().0.len(), 12);
}

#[test]
fn without_a_state_folder_the_event_in_hand_is_enough() {
    let bench = Bench::with(Settings {
        when: When::Always,
        ..Settings::default()
    });
    fs::write(bench.state(), "in the way").unwrap();
    for card in 0..2 {
        assert_eq!(bench.bound(card).exit(), Exit::State);
    }
    // The first card's lease is not remembered, yet what it set up stays.
    assert_eq!(bench.objects().0.len(), 12);
}

#[test]
fn a_lost_state_folder_costs_nobody_a_working_route() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    let before = bench.objects();
    fs::remove_dir_all(bench.state()).unwrap();
    assert_eq!(bench.bound(1).exit(), Exit::Done);
    assert_eq!(bench.objects(), before);
}

#[test]
fn a_damaged_record_is_reported_and_its_card_keeps_what_it_has() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    let before = bench.objects();
    let record = bench
        .state()
        .join(format!("leases/{}.4.json", bench.cards[0].index));
    fs::write(&record, "{\"index\":").unwrap();
    fs::write(bench.state().join("inbox/1-1.json"), "").unwrap();
    assert_eq!(bench.bound(1).exit(), Exit::State);
    assert_eq!(bench.objects(), before);
    // It is said once, and the next event of that card mends it.
    assert_eq!(bench.bound(1).exit(), Exit::Done);
    assert_eq!(bench.bound(0).exit(), Exit::Done);
    assert_eq!(bench.objects(), before);
}

#[test]
fn without_permission_nothing_changes_and_the_code_says_why() {
    let bench = Bench::new();
    bench.bound(0);
    bench.kernel().deny();
    assert_eq!(bench.bound(1).exit(), Exit::NotPermitted);
    bench.kernel().heal();
    assert!(bench.is_clean());
}

#[test]
fn no_rule_leads_to_a_table_that_could_not_be_filled() {
    let bench = Bench::new();
    bench.bound(0);
    // The link goes down between the snapshot and the first route.
    bench.kernel().refuse_nth(1, Errno::ENETDOWN);
    let outcome = bench.bound(1);
    let (rules, routes) = bench.objects();
    let filled = |table: TableId| routes.iter().any(|r| r.table == table && r.is_default());
    let to_own = rules.iter().filter(|rule| rule.table != TableId::MAIN);
    assert!(to_own.clone().all(|rule| filled(rule.table)), "{outcome:?}");
}

#[test]
fn an_unknown_interface_is_an_error_of_its_own() {
    let bench = Bench::new();
    let mut stranger = bound(1);
    stranger.variables.insert("interface".into(), "eth9".into());
    assert_eq!(bench.take(&stranger).exit(), Exit::NoInterface);
    assert!(bench.is_clean());
}

#[test]
fn removing_one_card_leaves_the_other_and_removing_all_leaves_nothing() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    let eth1 = "eth1".parse().unwrap();
    let (_, failures) = block_on(bench.engine.remove(Some(&eth1))).unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    let (rules, routes) = bench.objects();
    assert!(
        routes
            .iter()
            .all(|route| route.oif == Some(bench.cards[0].index))
    );
    assert_eq!(rules.len(), 6);
    block_on(bench.engine.remove(None)).unwrap();
    assert!(bench.is_clean());
    let (book, _) = bench.engine.state().read_book();
    assert_eq!(book.records().count(), 0);
    let kernel_rules = block_on(bench.kernel().rules(Family::Ipv4)).unwrap();
    assert_eq!(kernel_rules.len(), 3, "the kernel's own rules stay");
}
