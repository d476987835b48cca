//! Every provider against what its service says, as recorded in `tests/fixtures`.
//!
//! A case is a folder: `why` says in one line why it exists, `card.json` what the card
//! shows, `service` what the service answers, and `expected` what is asked and found, which
//! `UPDATE_FIXTURES=1` writes anew. A request that `service` has no answer to fails the case.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use leaseroute_core::{Family, IfIndex, Said};
use leaseroute_metadata::{
    Answer, Answers, Card, Finding, Findings, Identity, Provider, Request, Step, Why, all, by_name,
    detect, judge,
};
use proptest::prelude::*;

/// What each provider has to have a case of.
const REQUIRED: [&str; 5] = ["complete", "partial", "empty", "throttled", "error"];

/// No provider needs more rounds than this for one card.
const MOST_STEPS: usize = 12;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn folders(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let entries = entries.map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    folders
        .map(|f| f.file_name().into_string().unwrap())
        .collect()
}

/// An answer of the wire, which may be one that the driver keeps to itself.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<String>,
    body: Vec<u8>,
}

/// Reads a record: `> METHOD /path`, `< status`, `< Header: value`, and the body up to the
/// next request, of which the last line ends without a line feed.
fn record(text: &str) -> BTreeMap<String, Reply> {
    let mut replies = BTreeMap::new();
    for part in format!("\n{text}").split("\n> ").skip(1) {
        let mut lines = part.split('\n');
        let request = lines.next().unwrap().to_owned();
        let status = lines.next().unwrap().strip_prefix("< ").unwrap();
        let status = status.parse().unwrap();
        let rest: Vec<&str> = lines.collect();
        let headers = rest.iter().map_while(|line| line.strip_prefix("< "));
        let headers: Vec<String> = headers.map(str::to_owned).collect();
        let body = rest[headers.len()..].join("\n");
        let body = body.strip_suffix('\n').unwrap_or(&body).as_bytes().to_vec();
        let reply = Reply {
            status,
            headers,
            body,
        };
        assert!(
            replies.insert(request.clone(), reply).is_none(),
            "{request} twice"
        );
    }
    replies
}

fn card(text: &str) -> Card {
    let card: serde_json::Value = serde_json::from_str(text).unwrap();
    let set = |key: &str| -> BTreeSet<IpAddr> {
        let list = card[key].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|a| a.as_str().unwrap().parse().unwrap())
            .collect()
    };
    Card {
        index: IfIndex::new(3).unwrap(),
        name: "eth1".parse().unwrap(),
        mac: card["mac"].as_str().unwrap().parse().unwrap(),
        leased: set("leased"),
        made: set("made"),
        permanent: set("permanent"),
    }
}

/// Does for one round what the driver does: definitive answers go in, any other ends it.
fn run(
    provider: &dyn Provider,
    mut answers: Answers,
    card: &Card,
    mut reply: impl FnMut(&Request) -> Result<Answer, String>,
) -> (Vec<Request>, Findings) {
    let mut asked = Vec::new();
    for _ in 0..MOST_STEPS {
        match provider.step(card, &answers) {
            Step::Said(description) => return (asked, judge(description, card)),
            Step::Nothing(why) => return (asked, Findings::unknown(why)),
            Step::Ask(requests) => {
                assert!(!requests.is_empty(), "{} asks for nothing", provider.name());
                for request in requests {
                    assert!(answers.to(&request).is_none(), "{request:?} again");
                    let is_line = |text: &str| text.bytes().all(|b| (b' '..0x7f).contains(&b));
                    assert!(request.path.starts_with('/') && !request.path.contains(' '));
                    assert!(is_line(&request.path), "{request:?}");
                    assert!(request.headers.iter().all(|(_, value)| is_line(value)));
                    asked.push(request.clone());
                    match reply(&request) {
                        Ok(answer) => answers.insert(&request, answer),
                        Err(why) => return (asked, Findings::unknown(Why::Unreachable(why))),
                    }
                }
            }
        }
    }
    panic!("{} never comes to an end", provider.name());
}

/// What of a reply reaches a provider.
fn definitive(reply: &Reply) -> Result<Answer, String> {
    match reply.status {
        408 | 429 => Err(format!("status {}", reply.status)),
        200 | 400..=499 => Ok(Answer {
            status: reply.status,
            body: reply.body.clone(),
        }),
        status => Err(format!("status {status}")),
    }
}

fn told(said: &Said) -> String {
    let mut text = String::new();
    let mut part = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            writeln!(text, "    {name} {}", values.join(" ")).unwrap();
        }
    };
    part(
        "addresses",
        said.addresses.iter().map(ToString::to_string).collect(),
    );
    part(
        "subnets",
        said.subnets.iter().map(ToString::to_string).collect(),
    );
    part(
        "prefixes",
        said.prefixes.iter().map(ToString::to_string).collect(),
    );
    part(
        "gateway",
        said.gateway.iter().map(ToString::to_string).collect(),
    );
    if said.is_unserved {
        text.push_str("    no DHCP\n");
    }
    text
}

fn describe(asked: &[Request], findings: &Findings) -> String {
    let mut text = String::new();
    for request in asked {
        write!(text, "{} {}", request.method, request.path).unwrap();
        for (name, value) in &request.headers {
            write!(text, " [{name}: {value}]").unwrap();
        }
        text.push('\n');
    }
    for family in Family::BOTH {
        let name = match family {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        };
        match findings.of(family) {
            Finding::Known(said) => write!(text, "{name}: known\n{}", told(said)).unwrap(),
            Finding::Absent => writeln!(text, "{name}: absent").unwrap(),
            Finding::Unknown(why) => writeln!(text, "{name}: unknown: {why}").unwrap(),
        }
    }
    let end = if findings.is_complete() {
        "complete"
    } else {
        "to be asked again"
    };
    writeln!(text, "{end}").unwrap();
    text
}

#[test]
fn each_case_is_read_as_expected() {
    let mut failures = String::new();
    for name in folders(&fixtures()) {
        let provider = by_name(&name).unwrap_or_else(|| panic!("no provider {name}"));
        for case in folders(&fixtures().join(&name)) {
            let folder = fixtures().join(&name).join(&case);
            let file = |name: &str| {
                let path = folder.join(name);
                fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            };
            assert_eq!(
                file("why").trim_end().lines().count(),
                1,
                "{name}/{case}: why"
            );
            let card = card(&file("card.json"));
            let record = record(&file("service"));
            let mut used = BTreeSet::new();
            let (asked, findings) = run(provider, Answers::default(), &card, |request| {
                let key = format!("{} {}", request.method, request.path);
                let reply = record.get(&key);
                used.insert(key.clone());
                definitive(reply.unwrap_or_else(|| panic!("{name}/{case}: no answer to {key}")))
            });
            let unused: Vec<_> = record.keys().filter(|key| !used.contains(*key)).collect();
            assert!(unused.is_empty(), "{name}/{case}: nobody asks {unused:?}");
            let found = describe(&asked, &findings);
            if std::env::var_os("UPDATE_FIXTURES").is_some() {
                fs::write(folder.join("expected"), &found).unwrap();
            } else if found != file("expected") {
                writeln!(failures, "{name}/{case}\n{found}").unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "not as expected:\n{failures}");
}

#[test]
fn each_provider_has_the_cases_that_all_have() {
    let mut missing = Vec::new();
    for provider in all() {
        let cases = folders(&fixtures().join(provider.name()));
        let absent = REQUIRED.iter().filter(|case| !cases.contains(**case));
        missing.extend(absent.map(|case| format!("{}/{case}", provider.name())));
    }
    assert!(missing.is_empty(), "no case {missing:?}");
}

#[test]
fn names_are_those_of_the_configuration() {
    let names: BTreeSet<&str> = all().iter().map(|provider| provider.name()).collect();
    let known: BTreeSet<&str> = leaseroute_core::PROVIDERS.iter().copied().collect();
    assert_eq!(names, known);
    assert_eq!(names.len(), all().len(), "a name twice");
    let folders = folders(&fixtures());
    assert_eq!(
        folders.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        names
    );
}

#[test]
fn a_throttled_case_is_one_that_the_driver_keeps() {
    for provider in all() {
        let path = fixtures().join(provider.name()).join("throttled/service");
        let replies = record(&fs::read_to_string(path).unwrap());
        let kept = replies.values().filter(|reply| definitive(reply).is_err());
        assert_eq!(kept.count(), 1, "{}", provider.name());
        let retry = replies.values().flat_map(|reply| &reply.headers);
        assert!(
            retry
                .clone()
                .all(|header| header.starts_with("Retry-After: "))
        );
    }
}

#[test]
fn a_later_round_with_what_lasts_comes_to_the_same() {
    for provider in all() {
        let folder = fixtures().join(provider.name()).join("complete");
        let card = card(&fs::read_to_string(folder.join("card.json")).unwrap());
        let record = record(&fs::read_to_string(folder.join("service")).unwrap());
        let reply = |request: &Request| {
            let key = format!("{} {}", request.method, request.path);
            definitive(&record[&key])
        };
        let (first, findings) = run(*provider, Answers::default(), &card, reply);
        let mut answers = Answers::default();
        for request in &first {
            answers.insert(request, reply(request).unwrap());
        }
        answers.retain(|_, path| provider.lasting().iter().any(|(lasts, _)| *lasts == path));
        let (second, again) = run(*provider, answers, &card, reply);
        assert_eq!(again, findings, "{}", provider.name());
        assert_eq!(second.len() + provider.lasting().len(), first.len());
    }
}

#[test]
fn services_answer_at_addresses_and_rates_that_can_be() {
    for provider in all() {
        assert!(!provider.endpoints().is_empty(), "{}", provider.name());
        assert!((1..=100).contains(&provider.rate()), "{}", provider.name());
        for (path, seconds) in provider.lasting() {
            assert!(path.starts_with('/') && *seconds > 0, "{}", provider.name());
        }
    }
}

/// A machine by some of what its firmware says.
fn identity(set: impl FnOnce(&mut Identity)) -> Identity {
    let mut identity = Identity::default();
    set(&mut identity);
    identity
}

#[test]
fn machines_are_known_by_their_firmware() {
    let vendor = |vendor: &str, product: &str| {
        identity(|i| {
            i.sys_vendor = vendor.to_owned();
            i.product_name = product.to_owned();
        })
    };
    let tag = |tag: &str| identity(|i| i.chassis_asset_tag = tag.to_owned());
    let xen = |uuid: &str| {
        identity(|i| {
            i.sys_vendor = "Xen".to_owned();
            i.product_name = "HVM domU".to_owned();
            i.bios_version = "4.11.amazon".to_owned();
            i.product_uuid = uuid.to_owned();
        })
    };
    let hypervisor = |uuid: &str| identity(|i| i.hypervisor_uuid = uuid.to_owned());
    let cases = [
        // Nitro, metal, Xen with a UUID in either order, and Xen without SMBIOS.
        (vendor("Amazon EC2", "m6g.medium"), Some("ec2")),
        (vendor("Amazon EC2", "c5.metal"), Some("ec2")),
        (xen("ec2e1916-9099-7caf-fd21-012345abcdef"), Some("ec2")),
        (xen("EC2E1916-9099-7CAF-FD21-012345ABCDEF"), Some("ec2")),
        (xen("45e12aec-dcd1-b213-94ed-012345abcdef"), Some("ec2")),
        (
            hypervisor("ec2f58af-2dad-c57e-88c0-a81cb6084290"),
            Some("ec2"),
        ),
        (hypervisor("00000000-0000-0000-0000-000000000000"), None),
        // Hyper-V is not Azure; the asset tag is.
        (vendor("Microsoft Corporation", "Virtual Machine"), None),
        (tag("7783-7084-3265-9085-8269-3286-77"), Some("azure")),
        (vendor("Google", "Google Compute Engine"), Some("gcp")),
        (vendor("Google", "Google"), Some("gcp")),
        (vendor("Google", "Eve"), None),
        (tag("OracleCloud.com"), Some("oci")),
        (
            vendor("Alibaba Cloud", "Alibaba Cloud ECS"),
            Some("alibaba"),
        ),
        (vendor("Hetzner", "vServer"), Some("hetzner")),
        (vendor("DigitalOcean", "Droplet"), Some("digitalocean")),
        (vendor("Scaleway", "SCW-DEV1-S"), Some("scaleway")),
        (vendor("Vultr", "VHF"), Some("vultr")),
        (
            vendor("OpenStack Foundation", "OpenStack Nova"),
            Some("openstack"),
        ),
        (vendor("RDO", "OpenStack Compute"), Some("openstack")),
        (tag("OpenTelekomCloud"), Some("openstack")),
        (
            identity(|i| i.device_tree = vec!["linux,dummy-virt".to_owned()]),
            None,
        ),
        (
            identity(|i| i.device_tree = vec!["OpenStack Nova".to_owned()]),
            Some("openstack"),
        ),
        // A cloud of its own that is built with OpenStack.
        (
            identity(|i| {
                i.product_name = "OpenStack Nova".to_owned();
                i.chassis_asset_tag = "OracleCloud.com".to_owned();
            }),
            Some("oci"),
        ),
        // No cloud: bare metal, KVM, VMware, nothing known; a UUID that begins by chance so.
        (vendor("Dell Inc.", "PowerEdge R740"), None),
        (vendor("QEMU", "Standard PC (Q35 + ICH9, 2009)"), None),
        (vendor("VMware, Inc.", "VMware Virtual Platform"), None),
        (vendor("Xen", "HVM domU"), None),
        (Identity::default(), None),
        (
            identity(|i| {
                i.sys_vendor = "Dell Inc.".to_owned();
                i.product_uuid = "ec2e1916-9099-7caf-fd21-012345abcdef".to_owned();
            }),
            None,
        ),
    ];
    for (identity, expected) in cases {
        let found = detect(&identity).map(|provider| provider.name());
        assert_eq!(found, expected, "{identity:?}");
        let here = all().iter().filter(|provider| provider.is_here(&identity));
        assert!(here.count() <= 2, "{identity:?}");
    }
}

/// Every reply of every case, to be mixed and mutilated.
fn bodies() -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for name in folders(&fixtures()) {
        for case in folders(&fixtures().join(&name)) {
            let path = fixtures().join(&name).join(case).join("service");
            let record = record(&fs::read_to_string(path).unwrap());
            bodies.extend(record.into_values().map(|reply| reply.body));
        }
    }
    bodies
}

#[test]
fn a_document_cut_anywhere_is_never_taken() {
    for name in folders(&fixtures()) {
        let provider = by_name(&name).unwrap();
        let folder = fixtures().join(&name).join("complete");
        let card = card(&fs::read_to_string(folder.join("card.json")).unwrap());
        let record = record(&fs::read_to_string(folder.join("service")).unwrap());
        for (cut, reply) in &record {
            if !reply.body.starts_with(b"{") && !reply.body.starts_with(b"[{") {
                continue;
            }
            for length in 0..reply.body.len() {
                let (_, findings) = run(provider, Answers::default(), &card, |request| {
                    let key = format!("{} {}", request.method, request.path);
                    let mut answer = definitive(&record[&key])?;
                    if key == *cut {
                        answer.body.truncate(length);
                    }
                    Ok(answer)
                });
                for family in Family::BOTH {
                    let unreadable = matches!(
                        findings.of(family),
                        Finding::Unknown(Why::Unreadable { .. })
                    );
                    assert!(unreadable, "{name}, {cut} cut at {length}: {findings:?}");
                }
            }
        }
    }
}

fn any_card() -> Card {
    card(r#"{"mac": "06:8b:62:9b:72:3d", "leased": ["10.0.4.17"], "made": ["2001:db8::1"]}"#)
}

/// Whether all that was found is such that a card may have it.
fn check(name: &str, findings: &Findings) {
    for family in Family::BOTH {
        match findings.of(family) {
            Finding::Known(said) => {
                assert!(
                    said.addresses.len() <= 256 && said.prefixes.len() <= 128,
                    "{name}"
                );
                assert!(said.subnets.len() <= 64, "{name}");
                let all = said.addresses.iter().chain(&said.gateway);
                assert!(all.clone().all(|a| Family::of(*a) == family), "{name}");
                assert!(
                    all.clone().all(|a| leaseroute_core::is_unicast_host(*a)),
                    "{name}"
                );
                let shortest = if family == Family::Ipv4 { 8 } else { 32 };
                let mut networks = said.prefixes.iter().chain(&said.subnets);
                assert!(networks.all(|n| n.prefix() >= shortest), "{name}");
            }
            Finding::Absent => {}
            Finding::Unknown(why) => {
                let text = why.to_string();
                assert!(!text.chars().any(char::is_control), "{name}: {text:?}");
                assert!(text.len() < 2048, "{name}: {text:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_provider_panic(
        statuses in prop::collection::vec(prop_oneof![8 => Just(200u16), 1 => 400u16..500], 1..8),
        noise in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
    ) {
        for provider in all() {
            let mut n = 0;
            let (_, findings) = run(*provider, Answers::default(), &any_card(), |_| {
                n += 1;
                let body = noise[n % noise.len()].clone();
                Ok(Answer { status: statuses[n % statuses.len()], body })
            });
            check(provider.name(), &findings);
        }
    }

    #[test]
    fn real_answers_mixed_and_mutilated_make_no_provider_panic(
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..12),
    ) {
        let bodies = bodies();
        for provider in all() {
            let mut n = 0;
            let (_, findings) = run(*provider, Answers::default(), &any_card(), |_| {
                n += 1;
                let (which, place, byte, how) = &picks[n % picks.len()];
                let mut body = which.get(&bodies).clone();
                if !body.is_empty() {
                    let place = place.index(body.len());
                    match how {
                        0 => {}
                        1 => body[place] = *byte,
                        2 => body.truncate(place),
                        _ => body.insert(place, *byte),
                    }
                }
                Ok(Answer { status: 200, body })
            });
            check(provider.name(), &findings);
        }
    }

    #[test]
    fn a_mutilated_answer_about_the_card_makes_no_provider_panic(
        reply in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), Just(b'\n'), Just(b'/'), Just(b':'), Just(b'0')],
    ) {
        for provider in all() {
            let folder = fixtures().join(provider.name()).join("complete");
            let card = card(&fs::read_to_string(folder.join("card.json")).unwrap());
            let mut record = record(&fs::read_to_string(folder.join("service")).unwrap());
            let count = record.len();
            let reply = record.values_mut().nth(reply.index(count)).unwrap();
            let length = reply.body.len();
            reply.body[place.index(length)] = byte;
            let (_, findings) = run(*provider, Answers::default(), &card, |request| {
                let key = format!("{} {}", request.method, request.path);
                record.get(&key).map_or(Err("nothing".to_owned()), definitive)
            });
            check(provider.name(), &findings);
        }
    }
}
