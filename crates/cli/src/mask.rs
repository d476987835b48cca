//! Hides private values in a report without hurting its replay.
//!
//! Hardware addresses are replaced wherever they stand, the same one always by the same.
//! Of an event's variables only those of the lease stay, and whole only if they hold
//! nothing but numbers and addresses: names of hosts and domains, client identifiers and
//! free text go. IP addresses stay, since a replay needs them.

use std::collections::BTreeMap;

use leaseroute_core::{LeaseFile, Mac, RawEvent};
use serde_json::Value;

/// Variables with these words in their names go, whatever they hold: identifiers look
/// like numbers, and a host may be called "10".
const PRIVATE: [&str; 13] = [
    "host_name",
    "hostname",
    "domain",
    "fqdn",
    "client_id",
    "clientid",
    "duid",
    "iaid",
    "user_class",
    "nis",
    "uuid",
    "user",
    "vendor",
];

/// Hides what an event says beyond numbers and addresses.
pub(crate) fn event(event: &mut RawEvent) {
    let client = event.client;
    if !client.takes_arguments() {
        event.arguments.clear();
    }
    let is_private = |name: &str| {
        let name = name.to_ascii_lowercase();
        PRIVATE.iter().any(|word| name.contains(word))
    };
    if let LeaseFile::Text(lease) = &mut event.lease_file {
        let is_open = |line: &&str| {
            let (name, value) = line.split_once('=').unwrap_or((line, line));
            !is_private(name) && value.bytes().all(is_numeric)
        };
        let open: Vec<&str> = lease.lines().filter(is_open).collect();
        *lease = open.join("\n");
    }
    event
        .variables
        .retain(|name, _| client.describes_lease(name) && !is_private(name));
    for (name, value) in &mut event.variables {
        if !client.identifies_event(name) && !value.bytes().all(is_numeric) {
            *value = format!("(masked, {} bytes)", value.len());
        }
    }
}

/// Whether a byte can be part of a list of numbers, addresses, prefixes or hex strings.
fn is_numeric(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || b" .:/,-".contains(&byte)
}

/// Replaces every hardware address in every text of a document, keys aside.
pub(crate) fn hardware_addresses(document: &mut Value) {
    let mut stand_ins = StandIns::default();
    walk(document, &mut |text| stand_ins.note(text));
    walk(document, &mut |text| stand_ins.put_in(text));
}

fn walk(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| walk(value, change)),
        Value::Object(members) => members.values_mut().for_each(|value| walk(value, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What stands for each hardware address.
#[derive(Debug, Default)]
struct StandIns(BTreeMap<Mac, Mac>);

impl StandIns {
    /// Gives each address in a text a stand-in: a locally administered one, by number.
    fn note(&mut self, text: &str) {
        for mac in runs(text).filter_map(as_mac) {
            let next = u32::try_from(self.0.len())
                .unwrap_or(u32::MAX)
                .saturating_add(1);
            let [a, b, c, d] = next.to_be_bytes();
            self.0
                .entry(mac)
                .or_insert_with(|| Mac::new([0x02, 0, a, b, c, d]));
        }
    }

    fn put_in(&self, text: &mut String) {
        let found: Vec<(String, Mac)> = runs(text)
            .filter_map(|run| Some((run.to_owned(), *self.0.get(&as_mac(run)?)?)))
            .collect();
        for (run, stand_in) in found {
            *text = text.replace(&run, &stand_in.to_string());
        }
        // Names such as enx02005e100001 hold an address without its colons.
        for (mac, stand_in) in &self.0 {
            let bare = |mac: &Mac| mac.to_string().replace(':', "");
            *text = text.replace(&bare(mac), &bare(stand_in));
        }
    }
}

/// The longest parts of a text that consist of hex digits and colons.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_hexdigit() && c != ':')
}

/// A run that is a hardware address and belongs to somebody.
fn as_mac(run: &str) -> Option<Mac> {
    // Exactly this length: the parser takes shorter forms, which DHCP options look like.
    let mac: Mac = run.parse().ok().filter(|_| run.len() == 17)?;
    let [first, ..] = mac.bytes();
    let is_group = first & 1 == 1;
    (!is_group && mac.bytes() != [0; 6]).then_some(mac)
}

#[cfg(test)]
mod tests {
    use leaseroute_core::Client;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_address_has_the_same_stand_in_everywhere() {
        let mut document = json!({
            "links": {"2": {"name": "enx00155d010203", "mac": "00:15:5d:01:02:03"}},
            "other": ["00:15:5d:0a:0b:0c", "match.mac = \"00:15:5D:01:02:03\""],
            "kept": ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "2001:db8::1", "18:c6:33:64:c0:00:02:fe"],
        });
        hardware_addresses(&mut document);
        assert_eq!(
            document,
            json!({
                "links": {"2": {"name": "enx020000000001", "mac": "02:00:00:00:00:01"}},
                "other": ["02:00:00:00:00:02", "match.mac = \"02:00:00:00:00:01\""],
                "kept": ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "2001:db8::1", "18:c6:33:64:c0:00:02:fe"],
            })
        );
    }

    #[test]
    fn an_event_keeps_what_the_parser_needs_and_nothing_else() {
        let variables = [
            ("reason", "BOUND"),
            ("interface", "eth0"),
            ("new_ip_address", "192.0.2.10"),
            (
                "new_rfc3442_classless_static_routes",
                "24 198 51 100 192 0 2 254",
            ),
            ("new_ip6_prefix", "2001:db8:100::/56"),
            ("new_host_name", "10"),
            ("new_domain_name", "secret.example"),
            ("new_dhcp_client_identifier", "1:0:15:5d:1:2:3"),
            ("new_root_path", "server:/secret"),
            ("PIN", "1234"),
        ];
        let lease_file = "# Private.\nADDRESS=192.0.2.10\nCLIENTID=ff000000\nHOSTNAME=beef\n\
            CLASSLESS_ROUTES=0.0.0.0/0,192.0.2.1\nDOMAINNAME=secret.example\n";
        let pair = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
        let mut raw = RawEvent {
            arguments: vec!["secret".to_owned()],
            lease_file: LeaseFile::Text(lease_file.to_owned()),
            ..RawEvent::new(Client::Dhclient, variables.map(pair).into())
        };
        event(&mut raw);
        assert_eq!(
            raw.lease_file.text(),
            Some("ADDRESS=192.0.2.10\nCLASSLESS_ROUTES=0.0.0.0/0,192.0.2.1")
        );
        let kept: Vec<(&str, &str)> = raw
            .variables
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            kept,
            [
                ("interface", "eth0"),
                ("new_ip6_prefix", "2001:db8:100::/56"),
                ("new_ip_address", "192.0.2.10"),
                (
                    "new_rfc3442_classless_static_routes",
                    "24 198 51 100 192 0 2 254"
                ),
                ("new_root_path", "(masked, 14 bytes)"),
                ("reason", "BOUND"),
            ]
        );
        assert!(raw.arguments.is_empty());
    }
}
