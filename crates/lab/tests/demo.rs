//! The demonstration believes nothing that it has not seen.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop")]

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use leaseroute_core::{Client, Family, ProtocolId, RawEvent, Settings, TableId};
use leaseroute_kernel::Netlink;
use leaseroute_kernel::topology::{NewRule, Verdict};
use leaseroute_lab::demo::{DemoError, Run, Suite, Variables, tell_of};
use leaseroute_lab::privilege::with_namespaces;
use leaseroute_lab::site::Site;
use leaseroute_runtime::{Engine, StateFolder};

/// What a suite gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The hook says that all is well, and does nothing.
    Idle,
    /// The hook ends with an error.
    Fails,
    /// The hook forgets one family.
    Ipv4Only,
    /// Something is made for a card that is alone.
    Eager,
    /// A renewal removes and adds a rule again.
    Restless,
    /// The hook does not hear of releases.
    Deaf,
    /// The plan is empty.
    NoPlan,
}

/// The real engine, in this process, with a fault on top.
struct InProcess {
    fault: Fault,
    folder: tempfile::TempDir,
}

fn run_with(code: i32, printed: &str) -> Run {
    Run {
        code: Some(code),
        printed: printed.to_owned(),
        logged: String::new(),
        took: Duration::from_millis(1),
    }
}

fn rule_of_ours() -> NewRule {
    NewRule {
        protocol: ProtocolId::observed(76),
        ..NewRule::all(Family::Ipv4, 7690, Verdict::Lookup(TableId::MAIN))
    }
}

fn take(state: PathBuf, event: Variables) -> i32 {
    let raw = RawEvent::new(Client::Dhclient, event);
    let event = Client::Dhclient.parse(&raw).unwrap().event.unwrap();
    let state = StateFolder::at(state);
    state.make().unwrap();
    let engine = Engine::new(Netlink::open().unwrap(), Settings::default(), state);
    engine.take(event, &raw).unwrap().exit() as i32
}

impl Suite for InProcess {
    fn hook(&self, host: &Site, event: &Variables) -> io::Result<Run> {
        let reason = event.get("reason").unwrap().clone();
        let make_rule = || host.net(|net| net.add_rule(&rule_of_ours())).unwrap();
        let skip = match self.fault {
            Fault::Idle => true,
            Fault::Ipv4Only => reason.ends_with('6'),
            Fault::Deaf => reason.starts_with("RELEASE"),
            Fault::Fails => return Ok(run_with(5, "")),
            Fault::Eager => {
                make_rule();
                false
            }
            Fault::Restless if reason == "RENEW" => {
                make_rule();
                host.net(|net| net.delete_rule(&rule_of_ours())).unwrap();
                false
            }
            Fault::None | Fault::Restless | Fault::NoPlan => false,
        };
        if skip {
            return Ok(run_with(0, ""));
        }
        let (state, event) = (self.folder.path().join("state"), event.clone());
        Ok(run_with(host.run(move || take(state, event)), ""))
    }

    fn plan(&self, _host: &Site, event: &Variables) -> io::Result<Run> {
        let family = if event.contains_key("new_ip6_address") {
            6
        } else {
            4
        };
        let line = |card| format!("ip -{family} rule add oif eth{card}  # a reason\n");
        let lines = line(0) + &line(1);
        let printed = if self.fault == Fault::NoPlan {
            ""
        } else {
            &lines
        };
        Ok(run_with(0, printed))
    }
}

fn tell(fault: Fault) -> Result<String, DemoError> {
    let suite = InProcess {
        fault,
        folder: tempfile::tempdir().unwrap(),
    };
    let mut told = Vec::new();
    tell_of(&suite, &mut told)?;
    Ok(String::from_utf8(told).unwrap())
}

#[test]
fn a_suite_that_works_is_told_to_the_end() {
    with_namespaces("a_suite_that_works_is_told_to_the_end", || {
        let story = tell(Fault::None).unwrap();
        assert!(story.contains("All came out as told"), "{story}");
        assert!(!story.contains('\x1b'), "colour in a log");
        // Client and neighbour 0 to the second card, neighbour 1 to the first, each twice.
        assert_eq!(story.matches("no answer").count(), 6, "{story}");
    });
}

#[test]
fn every_fault_is_found() {
    with_namespaces("every_fault_is_found", || {
        for (fault, complaint) in [
            (
                Fault::Idle,
                "after the hooks have run, the connection from client to 10.0.1.10 gave no answer",
            ),
            (
                Fault::Ipv4Only,
                "the connection from client to 2001:db8:0:1::10 gave no answer",
            ),
            (Fault::Fails, "the hook for BOUND of eth0 ended with code 5"),
            (Fault::Eager, "rules or routes were made for a single card"),
            (
                Fault::Restless,
                "the kernel announced 2 changes of rules and routes at a renewal",
            ),
            (Fault::Deaf, "this stayed after eth1's release"),
            (
                Fault::NoPlan,
                "the plan for a second card does not have both cards",
            ),
        ] {
            match tell(fault) {
                Err(DemoError::Unexpected(found)) => {
                    assert!(found.contains(complaint), "{fault:?}: {found}");
                }
                other => panic!("{fault:?}: {other:?}"),
            }
        }
    });
}
