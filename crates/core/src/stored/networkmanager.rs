//! NetworkManager, whichever DHCP client it uses.
//!
//! `/run/NetworkManager/devices/INDEX`, a key file of GLib, has in its section `dhcp4` all
//! options that the dispatcher's scripts get as `DHCP4_*`, under the same names in small
//! letters (1.42 and 1.52). It is written anew at each renewal, for which version 1.42 runs
//! no script. Older versions have no such section; there the lease file of the internal
//! client has the address (`/var/lib/NetworkManager/internal-UUID-NAME.lease`, in the form of
//! networkd's with whatever else the version writes), or that of dhclient all.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;

use crate::client::Client;
use crate::event::RawEvent;
use crate::interface::InterfaceName;

/// The folder of what it knows of each card.
pub const DEVICES: &str = "/run/NetworkManager/devices";

/// The folder of its lease files.
pub const LEASES: &str = "/var/lib/NetworkManager";

/// The most options that are taken. DHCP has 254.
const MAX_OPTIONS: usize = 300;

/// What its scripts are told when a lease is new.
const ACTION: &str = "dhcp4-change";

/// What lease files of the internal client hold, and what scripts are told it as.
const OF_LEASE: [(&str, &str); 6] = [
    ("ADDRESS", "DHCP4_IP_ADDRESS"),
    ("NETMASK", "DHCP4_SUBNET_MASK"),
    ("ROUTER", "DHCP4_ROUTERS"),
    ("MTU", "DHCP4_INTERFACE_MTU"),
    ("CLASSLESS_ROUTES", "DHCP4_RFC3442_CLASSLESS_STATIC_ROUTES"),
    ("STATIC_ROUTES", "DHCP4_STATIC_ROUTES"),
];

/// What its scripts would be told of the IPv4 lease in a file of [`DEVICES`]; `None` when
/// there is none in it.
#[must_use]
pub fn event(name: &InterfaceName, device: &str) -> Option<RawEvent> {
    let mut options = Vec::new();
    let mut is_dhcp4 = false;
    for line in device.lines() {
        if line.starts_with('[') {
            is_dhcp4 = line.trim_end() == "[dhcp4]";
        } else if let Some((option, value)) = line.split_once('=')
            && is_dhcp4
            && options.len() < MAX_OPTIONS
            && let Some(option) = option.trim_end().strip_prefix("dhcp4.")
            && is_option(option)
        {
            let variable = format!("DHCP4_{}", option.to_ascii_uppercase());
            options.push((variable, unescaped(value).into_owned()));
        }
    }
    told(name, options)
}

/// Whether a file of [`LEASES`] is the internal client's for a card, or for one whose name
/// ends in a `-` and this name.
#[must_use]
pub fn is_internal_lease(name: &InterfaceName, file_name: &str) -> bool {
    let stem = file_name
        .strip_prefix("internal-")
        .and_then(|rest| rest.strip_suffix(".lease"));
    let before = stem.and_then(|stem| stem.strip_suffix(name.as_str()));
    before.is_some_and(|before| before.ends_with('-'))
}

/// What its scripts would be told of a lease file of the internal client. A version that
/// writes nothing but the address there leaves the router to be found in table main.
#[must_use]
pub fn event_of_lease(
    name: &InterfaceName,
    lease: &str,
    router: Option<Ipv4Addr>,
) -> Option<RawEvent> {
    let value = |(key, variable): (&str, &str)| {
        let lines = lease.lines().filter_map(|line| line.split_once('='));
        let mut values = lines.filter(|(found, _)| *found == key);
        values
            .next()
            .map(|(_, value)| (variable.to_owned(), value.to_owned()))
    };
    let mut options: Vec<(String, String)> = OF_LEASE.into_iter().filter_map(value).collect();
    let is_routed = |(variable, _): &(String, String)| {
        ["DHCP4_ROUTERS", "DHCP4_RFC3442_CLASSLESS_STATIC_ROUTES"].contains(&variable.as_str())
    };
    if !options.iter().any(is_routed) {
        options.extend(router.map(|router| ("DHCP4_ROUTERS".to_owned(), router.to_string())));
    }
    told(name, options)
}

/// What its scripts would be told of a lease that dhclient got for it.
#[must_use]
pub fn event_of_dhclient(name: &InterfaceName, of_dhclient: &RawEvent) -> Option<RawEvent> {
    let variables = of_dhclient.variables.iter();
    let options = variables.filter_map(|(variable, value)| {
        let option = variable.strip_prefix("new_")?;
        let variable = format!("DHCP4_{}", option.to_ascii_uppercase());
        Some((variable, value.clone()))
    });
    told(name, options.collect())
}

/// Adds the addresses that the card has, which scripts are told as well: those that stand
/// beside the lease are the connection's own.
#[must_use]
pub fn with_addresses(
    mut event: RawEvent,
    addresses: impl IntoIterator<Item = Ipv4Network>,
) -> RawEvent {
    for (number, address) in addresses.into_iter().enumerate() {
        let variable = format!("IP4_ADDRESS_{number}");
        event.variables.insert(variable, address.to_string());
    }
    event
}

fn told(name: &InterfaceName, options: Vec<(String, String)>) -> Option<RawEvent> {
    let is_address = |(variable, _): &(String, String)| variable == "DHCP4_IP_ADDRESS";
    options.iter().any(is_address).then(|| {
        let mut raw = super::event(
            Client::NmDispatcher,
            [
                ("NM_DISPATCHER_ACTION", ACTION.to_owned()),
                ("DEVICE_IP_IFACE", name.to_string()),
            ],
        );
        raw.arguments = vec![name.to_string(), ACTION.to_owned()];
        raw.variables.extend(options);
        raw
    })
}

fn is_option(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.len() <= 64 && name.chars().all(fits)
}

/// A value of a key file as it was before it was written (GKeyFile: `\s`, `\n`, `\t`, `\r`
/// and `\\`).
fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        let plain = match c {
            '\\' => match rest.next() {
                Some('s') => ' ',
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        text.push(plain);
    }
    Cow::Owned(text)
}
