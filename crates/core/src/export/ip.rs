//! A shell script of ip(8) commands.
//!
//! It may run again and again: routes are replaced, and a rule that is there already is no
//! failure. Its objects carry our protocol number, so that leaseroute knows them as its own
//! and `leaseroute remove --all` takes them away.

use crate::address::{Family, NetworkExt as _};
use crate::export::card::Card;
use crate::export::text::{comment, header, inactive};
use crate::export::{Export, ExportedFile, Inputs};
use crate::interface::ShellWord;

const PREAMBLE: &str = r#"
set -u
LC_ALL=C
export LC_ALL
status=0

# Runs ip(8); what is there already is no failure.
have() {
    said=$(ip "$@" 2>&1) || case $said in
        *'File exists'*) ;;
        *)
            printf '%s\n' "ip $*: $said" >&2
            status=1
            ;;
    esac
}
"#;

pub(super) fn export(inputs: Inputs<'_>, cards: &[Card<'_>]) -> Export {
    let mut text = String::from("#!/bin/sh\n");
    text.push_str(&header("leaseroute export --format ip"));
    text.push_str(&comment(
        "Addresses are left to whoever gives them to the cards; what is no longer wanted is not removed.",
    ));
    text.push_str(PREAMBLE);
    let protocol = inputs.settings.protocol;
    for family in Family::BOTH {
        let desired = inputs.desired(family);
        text.push('\n');
        if !desired.active {
            text.push_str(&comment(&inactive(family)));
            continue;
        }
        text.push_str(&comment(&format!("{family}: routes")));
        for (route, purpose) in &desired.routes {
            text.push_str(&comment(&purpose.to_string()));
            // A replaced IPv6 default takes its siblings along.
            let has_siblings = family == Family::Ipv6 && route.destination.is_default();
            let verb = if has_siblings { "append" } else { "replace" };
            text.push_str(&format!(
                "have {} route {verb} {route} table {} protocol {protocol}\n",
                family.ip_option(),
                route.table
            ));
        }
        for route in &desired.kept_routes {
            let link = route.oif.and_then(|index| inputs.host.links.get(&index));
            let Some(link) = link else { continue };
            text.push_str(&comment("kept: nobody said whether its lease still lives"));
            text.push_str(&format!(
                "have {} route replace {} table {} protocol {protocol}\n",
                family.ip_option(),
                route.describe(Some(link.name.as_str())),
                route.table
            ));
        }
        text.push_str(&comment(&format!("{family}: rules")));
        for (rule, _) in &desired.rules {
            text.push_str(&format!(
                "have {} rule add {rule} protocol {protocol}\n",
                family.ip_option()
            ));
        }
    }
    if cards.is_empty() {
        text.push_str(&comment("no card"));
    }
    let down = cards.iter().map(|card| card.link);
    for link in down.filter(|link| !link.up) {
        text.push_str(&comment(&format!(
            "{} is down",
            ShellWord(link.name.as_str())
        )));
    }
    text.push_str("\nexit $status\n");
    Export {
        files: vec![ExportedFile {
            path: "leaseroute.sh".to_owned(),
            mode: 0o755,
            text,
        }],
        notes: Vec::new(),
    }
}
