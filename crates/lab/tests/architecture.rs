//! The arrows between the crates: who may know of whom.
//!
//! `cargo metadata` says what is linked, the sources of the core what it touches. A new
//! room of the house gets a line in [`ARROWS`].
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may stop"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates of ours that each crate of ours may use directly. What is not named here may
/// use all of them.
const ARROWS: &[(&str, &[&str])] = &[
    ("leaseroute-core", &[]),
    ("leaseroute-config", &["leaseroute-core"]),
    ("leaseroute-kernel", &["leaseroute-core"]),
    ("leaseroute-metadata", &["leaseroute-core"]),
    (
        "leaseroute-runtime",
        &["leaseroute-core", "leaseroute-config", "leaseroute-kernel"],
    ),
    (
        "leaseroute-watch",
        &[
            "leaseroute-core",
            "leaseroute-config",
            "leaseroute-kernel",
            "leaseroute-metadata",
            "leaseroute-runtime",
        ],
    ),
];

/// What every hook may use of ours.
const HOOK_ARROWS: &[&str] = &["leaseroute-core", "leaseroute-runtime"];

/// The packages of the workspace and everything they use, without what only tests and
/// build scripts use.
struct Packages {
    /// The direct dependencies of each package.
    uses: BTreeMap<String, BTreeSet<String>>,
    /// The folder of each package of the workspace.
    ours: BTreeMap<String, PathBuf>,
}

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

impl Packages {
    fn of_workspace() -> Self {
        // For one platform, since packages of others need not have been fetched.
        let platform = format!(
            "--filter-platform={}-unknown-linux-gnu",
            std::env::consts::ARCH
        );
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--offline", &platform])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        let list = |value: &Value| value.as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();

        let packages = list(&metadata["packages"]);
        let names: BTreeMap<String, String> = packages
            .iter()
            .map(|p| (text(&p["id"]), text(&p["name"])))
            .collect();
        let members: BTreeSet<String> = list(&metadata["workspace_members"])
            .iter()
            .map(text)
            .collect();
        let ours = packages
            .iter()
            .filter(|p| members.contains(&text(&p["id"])))
            .map(|p| {
                let manifest = PathBuf::from(text(&p["manifest_path"]));
                (text(&p["name"]), manifest.parent().unwrap().to_owned())
            });
        let ours = ours.collect();

        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in list(&metadata["resolve"]["nodes"]) {
            // Two versions of one package count as one: names are what is asked for.
            let used = uses.entry(names[&text(&node["id"])].clone()).or_default();
            for dependency in list(&node["deps"]) {
                let is_normal = list(&dependency["dep_kinds"])
                    .iter()
                    .any(|k| k["kind"].is_null());
                if is_normal {
                    used.insert(names[&text(&dependency["pkg"])].clone());
                }
            }
        }
        Self { uses, ours }
    }

    /// Everything that is linked into a package.
    fn all_uses(&self, package: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut ahead = vec![package];
        while let Some(next) = ahead.pop() {
            for used in &self.uses[next] {
                if found.insert(used.as_str()) {
                    ahead.push(used);
                }
            }
        }
        found
    }

    fn hooks(&self) -> impl Iterator<Item = &str> {
        let folder = root().join("hooks");
        let hooks = self
            .ours
            .iter()
            .filter(move |(_, path)| path.starts_with(&folder));
        hooks.map(|(name, _)| name.as_str())
    }
}

fn is_netlink(package: &str) -> bool {
    package == "rtnetlink" || package.starts_with("netlink-")
}

#[test]
fn each_crate_knows_only_of_those_below_it() {
    let packages = Packages::of_workspace();
    let hooks = packages.hooks().map(|hook| (hook, HOOK_ARROWS));
    let mut checked = 0;
    for (from, allowed) in ARROWS.iter().copied().chain(hooks) {
        if !packages.ours.contains_key(from) {
            continue;
        }
        for to in packages.uses[from]
            .iter()
            .filter(|used| packages.ours.contains_key(*used))
        {
            assert!(
                allowed.contains(&to.as_str()),
                "{from} must not know of {to}"
            );
        }
        checked += 1;
    }
    assert!(checked >= 5, "only {checked} crates were found");
}

#[test]
fn the_core_is_linked_with_nothing_that_touches_the_system() {
    let packages = Packages::of_workspace();
    let used = packages.all_uses("leaseroute-core");
    assert!(
        used.contains("ipnetwork"),
        "the dependencies were not read: {used:?}"
    );
    let forbidden = [
        "async-io",
        "futures-util",
        "getrandom",
        "hyper",
        "libc",
        "log",
        "mio",
        "nix",
        "rand",
        "rustix",
        "tempfile",
        "tokio",
        "tracing",
    ];
    for package in used {
        assert!(
            !forbidden.contains(&package) && !is_netlink(package),
            "{package}"
        );
    }
}

#[test]
fn only_the_kernel_crate_speaks_netlink() {
    let packages = Packages::of_workspace();
    for from in packages.ours.keys() {
        for used in packages.uses[from].iter().filter(|used| is_netlink(used)) {
            assert_eq!(from, "leaseroute-kernel", "{from} uses {used}");
        }
    }
}

#[test]
fn hooks_carry_no_command_line_parser() {
    let packages = Packages::of_workspace();
    let hooks: Vec<&str> = packages.hooks().collect();
    assert!(!hooks.is_empty());
    for hook in hooks {
        let used = packages.all_uses(hook);
        for package in [
            "clap",
            "clap_builder",
            "clap_derive",
            "hyper",
            "leaseroute-lab",
        ] {
            assert!(!used.contains(package), "{hook} is linked with {package}");
        }
    }
}

#[test]
fn the_core_reads_no_file_environment_or_clock() {
    let forbidden = [
        "std::env",
        "std::fs",
        "std::io",
        "std::os",
        "std::process",
        "std::thread",
        "std::time",
        "SystemTime",
        "Instant",
        "TcpListener",
        "TcpStream",
        "UdpSocket",
        "ToSocketAddrs",
        "env!(",
        "include_str!",
        "include_bytes!",
        "async fn",
        "async move",
        ".await",
        "println!",
        "eprintln!",
    ];
    let sources = sources(&root().join("crates/core/src"));
    assert!(sources.len() > 10, "{sources:?}");
    for path in sources {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            for word in forbidden {
                assert!(
                    !code.contains(word),
                    "{}:{number} has {word}",
                    path.display()
                );
            }
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}
