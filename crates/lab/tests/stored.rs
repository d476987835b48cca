//! What clients keep of their leases means what their hooks are told.
//!
//! In the cases of `tests/fixtures/CLIENT` a file `NN-REASON.stored` is what the client had
//! stored when it told of the event beside it: both must come to the same lease.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may stop"
)]

use std::fs;
use std::path::Path;

use leaseroute_core::stored::{dhclient, dhcpcd, networkmanager};
use leaseroute_core::{Client, Family, Host, IfIndex, Lease, LeaseBook, Link, RawEvent};
use leaseroute_lab::fixture::Fixture;

const CARD: &str = "eth0";

#[test]
fn stored_leases_are_those_that_hooks_are_told_of() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut seen = 0;
    let mut wrong = Vec::new();
    for client in [Client::Dhclient, Client::Dhcpcd, Client::NmDispatcher] {
        for fixture in Fixture::read_all(&folder.join(client.name()), client).unwrap() {
            for (position, step) in fixture.steps.iter().enumerate() {
                let file = fixture.folder.join(format!("{}.stored", step.name));
                let Ok(stored) = fs::read(&file) else {
                    continue;
                };
                seen += 1;
                let told = fixture
                    .steps
                    .iter()
                    .take(position + 1)
                    .filter_map(|step| step.event.as_ref());
                let told = leases(told);
                let kept = events(client, &stored);
                let kept = leases(&kept);
                if told != kept || kept == [None, None] {
                    let file = file.display();
                    wrong.push(format!("{file}\ntold:   {told:?}\nstored: {kept:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 40, "only {seen} stored leases");
}

fn events(client: Client, stored: &[u8]) -> Vec<RawEvent> {
    let card = CARD.parse().unwrap();
    let text = String::from_utf8_lossy(stored);
    match (client, stored.first()) {
        (Client::Dhclient, _) => dhclient::events(&text),
        (Client::NmDispatcher, _) => networkmanager::event(&card, &text).into_iter().collect(),
        (_, Some(2)) => dhcpcd::event4(&card, stored, 0).into_iter().collect(),
        _ => dhcpcd::event6(&card, stored, 0).into_iter().collect(),
    }
}

/// What a card has leased after some events.
fn leases<'a>(events: impl IntoIterator<Item = &'a RawEvent>) -> [Option<Lease>; 2] {
    let index = IfIndex::new(2).unwrap();
    let link = Link {
        index,
        name: CARD.parse().unwrap(),
        alternative_names: Vec::new(),
        mac: None,
        mtu: 1500,
        up: true,
        carrier: true,
        loopback: false,
        master: None,
        kind: None,
        driver: None,
    };
    let host = Host {
        links: [(index, link)].into(),
        ..Host::default()
    };
    let mut book = LeaseBook::default();
    for raw in events {
        let parsed = raw.client.parse(raw).unwrap_or_else(|e| panic!("{e}"));
        if let Some(event) = parsed.event {
            book.fold(&event, Some(raw), &host, 0);
        }
    }
    Family::BOTH.map(|family| book.lease(index, family).cloned())
}
