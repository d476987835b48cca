//! systemd-networkd: `/run/systemd/netif/leases/INDEX`, IPv4 only.
//!
//! Its hook, a script of networkd-dispatcher, reads the same file, so the text goes to the
//! parser as it is.

use crate::client::Client;
use crate::event::{LeaseFile, RawEvent};
use crate::interface::InterfaceName;

/// The folder of its lease files.
pub const LEASES: &str = "/run/systemd/netif/leases";

/// The folder of what it knows of each card.
pub const LINKS: &str = "/run/systemd/netif/links";

/// What its hook would make of a card's lease file. `link` is what networkd knows of the
/// card, the text of the file in [`LINKS`].
#[must_use]
pub fn event(name: &InterfaceName, link: Option<&str>, lease: LeaseFile) -> RawEvent {
    let state = link.and_then(|text| value(text, "ADMIN_STATE"));
    let state = state.map(|state| ("AdministrativeState", state.to_owned()));
    let variables = [
        ("IFACE", name.to_string()),
        ("STATE", "routable".to_owned()),
    ];
    RawEvent {
        lease_file: lease,
        ..super::event(
            Client::NetworkdDispatcher,
            variables.into_iter().chain(state),
        )
    }
}

/// The first value of a name in a file of `NAME=VALUE` lines.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let mut values = lines.filter(|(found, _)| *found == name);
    values.next().map(|(_, value)| value)
}
