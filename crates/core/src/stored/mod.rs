//! Leases that clients keep in files, as what their hooks would have been told of them.
//!
//! A lease that was there before our hook was installed, or that a client renews without
//! running any hook, can be read where the client keeps it. Each client has one file here,
//! which makes a [`RawEvent`] of a text or of bytes; the client's own parser does the rest,
//! so that no value has two meanings. Reading files is the runtime's work.
//!
//! Nothing in these files is believed before that parser has seen it. A file that is broken,
//! or in the middle of being written, holds no lease.

use std::collections::BTreeMap;

use crate::client::Client;
use crate::event::RawEvent;
use crate::interface::{IfIndex, InterfaceName};

pub mod dhclient;
pub mod dhcpcd;
pub mod networkd;
pub mod networkmanager;

/// The most that is worth reading of a lease file, in bytes. dhclient appends to its file
/// and shortens it only now and then; all others are far smaller.
pub const MAX_FILE: u64 = 1024 * 1024;

/// The most addresses, and the most prefixes, that are taken from one DHCPv6 lease.
const MAX_PARTS: usize = 64;

/// An event of a client.
fn event<'a>(client: Client, variables: impl IntoIterator<Item = (&'a str, String)>) -> RawEvent {
    let variables = variables
        .into_iter()
        .map(|(variable, value)| (variable.to_owned(), value));
    RawEvent::new(client, variables.collect())
}

/// An address on a card that no file tells of, as if a script had told of it
/// (`leaseroute apply --interface`): the card's addresses with their prefix lengths, and the
/// router of its default route, when it has one.
#[must_use]
pub fn shown_by_kernel<A: ToString, R: ToString>(
    name: &InterfaceName,
    addresses: impl IntoIterator<Item = A>,
    router: Option<R>,
) -> RawEvent {
    let addresses: Vec<String> = addresses.into_iter().map(|a| a.to_string()).collect();
    let mut variables = BTreeMap::from([
        ("interface", name.to_string()),
        ("address4", addresses.join(" ")),
    ]);
    variables.extend(router.map(|router| ("gateway4", router.to_string())));
    event(Client::Script, variables)
}

/// The card that a file is about which networkd or NetworkManager named after its index. No
/// other spelling of the number is one.
#[must_use]
pub fn card(file_name: &str) -> Option<IfIndex> {
    let index = file_name.parse().ok().and_then(IfIndex::new)?;
    (index.to_string() == file_name).then_some(index)
}
