//! How long each question to the real kernel takes, in a network namespace of its own.
//!
//! Run it as root: `cargo run --release -p leaseroute-lab --example round_trips`. The
//! numbers are medians of warm calls; a hook's first calls also pay for touching code and
//! memory for the first time.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]
#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot be made may stop"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use leaseroute_core::{
    Device, Family, Operation, Priority, ProtocolId, Route, RouterPreference, Rule, Selector,
    TableId,
};
use leaseroute_kernel::{Kernel as _, MainRoutes, Netlink};
use leaseroute_lab::namespace::Namespace;
use leaseroute_lab::scenarios::{Bench as _, RealBench};

const ROUNDS: usize = 300;
const OWN: TableId = TableId::observed(76010);
const TAG: ProtocolId = ProtocolId::observed(76);

fn main() {
    let namespace = Namespace::new("round-trips").expect("a network namespace; run this as root");
    namespace.run(|| {
        let bench = RealBench::new();
        measure(&bench);
    });
}

fn measure(bench: &RealBench) {
    let [card, _] = bench.cards();
    bench.add_address(&card, "192.0.2.10/24".parse().expect("a prefix"));
    let kernel = bench.kernel();
    all_questions(kernel, "an empty host");

    let own: Vec<_> = (0..10).map(|number| route(OWN, &card, number)).collect();
    let rules: Vec<_> = (0..10).map(|number| rule(7600 + number)).collect();
    let plan: Vec<_> = own.iter().chain(&rules).cloned().collect();
    changes(kernel, &plan);
    execute(kernel, &plan);
    all_questions(kernel, "10 routes and 10 rules of ours");

    let many: Vec<_> = (0..100_000)
        .map(|number| route(TableId::MAIN, &card, number))
        .collect();
    execute(kernel, &many);
    all_questions(kernel, "100,000 routes in main");

    let many: Vec<_> = (8000..10_000).map(rule).collect();
    execute(kernel, &many);
    all_questions(kernel, "2,000 rules");
}

fn all_questions(kernel: &Netlink, host: &str) {
    println!("{host}");
    let mut times: [Vec<Duration>; 6] = Default::default();
    for _ in 0..ROUNDS {
        let mut start = Instant::now();
        let mut lap = || {
            let now = Instant::now();
            now - std::mem::replace(&mut start, now)
        };
        drop(Netlink::open().expect("a socket"));
        let open = lap();
        kernel.links().expect("links");
        let links = lap();
        kernel.addresses(Family::Ipv4).expect("addresses");
        let addresses = lap();
        kernel.rules(Family::Ipv4).expect("rules");
        let rules = lap();
        kernel
            .table_routes(Family::Ipv4, &[OWN].into())
            .expect("a table");
        let table = lap();
        kernel
            .main_routes(&MainRoutes::Ipv4Defaults)
            .expect("defaults");
        let defaults = lap();
        for (all, one) in times
            .iter_mut()
            .zip([open, links, addresses, rules, table, defaults])
        {
            all.push(one);
        }
    }
    let names = [
        "open and close",
        "links",
        "addresses",
        "rules",
        "own table",
        "IPv4 defaults",
    ];
    for (name, times) in names.iter().zip(times) {
        println!("  {name:16} {:7.1} us", median(times));
    }
}

/// Adds and deletes a plan again and again.
fn changes(kernel: &Netlink, plan: &[Operation]) {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        execute(kernel, plan);
        times.push(start.elapsed());
        let routes = kernel
            .table_routes(Family::Ipv4, &[OWN].into())
            .expect("a table");
        let rules = kernel.rules(Family::Ipv4).expect("rules");
        let ours = rules.into_iter().filter(|rule| rule.protocol == TAG);
        let delete = |route| Operation::DeleteRoute {
            route,
            device: None,
        };
        let removal: Vec<_> = ours
            .map(Operation::DeleteRule)
            .chain(routes.into_iter().map(delete))
            .collect();
        execute(kernel, &removal);
    }
    println!(
        "{} additions in one batch: {:.1} us",
        plan.len(),
        median(times)
    );
}

fn execute(kernel: &Netlink, plan: &[Operation]) {
    let plan: Vec<_> = plan.iter().collect();
    let results = kernel.execute(&plan, TAG);
    assert!(results.iter().all(Result::is_ok), "a change is refused");
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    middle.as_secs_f64() * 1e6
}

fn route(table: TableId, device: &Device, number: u32) -> Operation {
    Operation::AddRoute(Route {
        table,
        destination: IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)).into(),
        metric: 0,
        gateway: None,
        device: device.clone(),
        onlink: false,
        mtu: None,
        preference: RouterPreference::Medium,
    })
}

fn rule(priority: u32) -> Operation {
    Operation::AddRule(Rule {
        family: Family::Ipv4,
        priority: Priority::observed(priority),
        selector: Selector::From(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10)).into()),
        table: OWN,
        suppress_prefix_length: None,
    })
}
