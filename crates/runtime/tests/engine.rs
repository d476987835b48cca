//! Whole runs on the in-memory kernel: what comes of events, of interruptions, and of
//! trouble with the state folder.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
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
        self.engine.take(event(raw), raw).unwrap()
    }

    fn bound(&self, card: usize) -> Outcome {
        self.take(&bound(card))
    }

    /// Our rules and the routes of our tables.
    fn objects(&self) -> (Vec<ObservedRule>, Vec<ObservedRoute>) {
        let (book, _) = self.engine.state().read_book();
        let settings = self.engine.settings();
        let host = snapshot::everything(self.kernel(), &book, settings).unwrap();
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

fn address_on(card: &Device, address: Ipv4Addr) -> LinkAddress {
    LinkAddress {
        index: card.index,
        address: IpNetwork::V4(Ipv4Network::new(address, 24).unwrap()),
        peer: None,
        flags: AddressFlags::default(),
        protocol: None,
    }
}

fn raw(variables: &[(&str, &str)]) -> RawEvent {
    let owned = variables
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    RawEvent::new(Client::Dhclient, BTreeMap::from_iter(owned))
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
        assert_eq!(bench.engine.apply().unwrap().exit(), Exit::Done);
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
        bench.engine.apply().unwrap();
        assert!(bench.is_clean(), "cut off after {cut}");
    }
}

#[test]
fn an_event_that_a_killed_run_left_behind_is_taken_in_by_the_next() {
    let bench = Bench::new();
    bench.bound(0);
    let left = bound(1);
    let file = post(&bench, "1-1.json", &left);
    let outcome = bench.bound(0);
    assert_eq!(outcome.exit(), Exit::Done);
    assert_eq!(bench.objects().0.len(), 12);
    assert!(!file.exists());
}

/// Puts an event into the inbox, as a run does that finds the lock taken.
fn post(bench: &Bench, name: &str, raw: &RawEvent) -> PathBuf {
    let text = serde_json::json!({ "event": event(raw), "raw": raw }).to_string();
    let file = bench.state().join("inbox").join(name);
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn what_waits_came_before_what_found_the_lock_free() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    let address = address_on(&bench.cards[1], ADDRESSES[1]).address;
    bench.kernel().delete_address(bench.cards[1].index, address);
    // A BOUND that found the lock taken, and then the release of the same lease.
    post(&bench, "1-1.json", &bound(1));
    assert_eq!(bench.take(&released(1)).exit(), Exit::Done);
    assert!(bench.is_clean());
    let (book, _) = bench.engine.state().read_book();
    assert!(book.lease4(bench.cards[1].index).is_none());
}

#[test]
fn each_event_that_waits_gets_an_answer_of_its_own() {
    let bench = Bench::new();
    bench.bound(0);
    let mut stranger = bound(1);
    stranger.variables.insert("interface".into(), "eth9".into());
    let unknown = post(&bench, "1-1.json", &stranger);
    let known = post(&bench, "2-2.json", &bound(1));
    bench.bound(0);
    let answer = |file: &Path| fs::read_to_string(file.with_extension("exit")).unwrap();
    assert_eq!(answer(&unknown), Exit::NoInterface.code().to_string());
    assert_eq!(answer(&known), Exit::Done.code().to_string());
    assert!(!unknown.exists() && !known.exists());
}

#[test]
fn nobody_else_can_take_the_lock() {
    let bench = Bench::new();
    bench.bound(0);
    let lock = fs::metadata(bench.state().join("lock")).unwrap();
    assert_eq!(lock.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_card_that_moves_into_the_other_cards_subnet_is_set_up_in_one_go() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    let moved = Ipv4Addr::new(192, 0, 2, 77);
    let card = &bench.cards[1];
    bench.kernel().add_address(address_on(card, moved));
    let old = address_on(card, ADDRESSES[1]).address;
    bench.kernel().delete_address(card.index, old);
    let mut renewal = bound(1);
    for (variable, value) in [
        ("reason", "RENEW"),
        ("new_ip_address", "192.0.2.77"),
        ("new_routers", "192.0.2.1"),
    ] {
        renewal.variables.insert(variable.into(), value.into());
    }
    let outcome = bench.take(&renewal);
    assert_eq!(outcome.exit(), Exit::Done);
    let Outcome::Done { reports, .. } = &outcome else {
        panic!("nobody else runs");
    };
    // Each change is made once: nothing was refused and tried again.
    let steps = &reports[0].done.steps;
    assert!(
        steps
            .iter()
            .enumerate()
            .all(|(i, step)| !steps[..i].contains(step))
    );
    let (rules, _) = bench.objects();
    let sources: BTreeSet<_> = rules.iter().filter_map(|rule| rule.from).collect();
    let wanted = [ADDRESSES[0], moved].map(|a| IpNetwork::from(IpAddr::V4(a)));
    assert_eq!(sources, BTreeSet::from(wanted));
}

#[test]
fn a_removal_forgets_the_events_that_wait() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    post(&bench, "1-1.json", &bound(1));
    let removal = bench.engine.remove(None).unwrap();
    assert_eq!(removal.exit(), Exit::Done);
    bench.engine.apply().unwrap();
    assert!(bench.is_clean());
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
    let busy = bench.engine.take(event(&second), &second).unwrap_err();
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
fn an_event_of_a_card_that_has_gone_takes_its_rules_away() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    assert!(!bench.is_clean());
    bench.kernel().delete_link(bench.cards[1].index);
    assert_eq!(bench.take(&released(1)).exit(), Exit::Done);
    assert!(bench.is_clean());
}

#[test]
fn removing_one_card_leaves_the_other_and_removing_all_leaves_nothing() {
    let bench = Bench::new();
    bench.bound(0);
    bench.bound(1);
    let eth1 = "eth1".parse().unwrap();
    let removal = bench.engine.remove(Some(&eth1)).unwrap();
    assert_eq!(removal.exit(), Exit::Done, "{removal:?}");
    let (rules, routes) = bench.objects();
    assert!(
        routes
            .iter()
            .all(|route| route.oif == Some(bench.cards[0].index))
    );
    assert_eq!(rules.len(), 6);
    bench.engine.remove(None).unwrap();
    assert!(bench.is_clean());
    let (book, _) = bench.engine.state().read_book();
    assert_eq!(book.records().count(), 0);
    let kernel_rules = bench.kernel().rules(Family::Ipv4).unwrap();
    assert_eq!(kernel_rules.len(), 3, "the kernel's own rules stay");
}
