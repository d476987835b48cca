//! One invalid file for each rule, named after the rule, with the message that it gives.
//!
//! `tests/invalid/RULE.toml` is read as the only configuration file and must fail with the
//! text of `RULE.expected`. `LEASEROUTE_REWRITE=1` writes the expectations anew.

use std::fs;
use std::path::Path;

use leaseroute_config::{Folders, load};

#[test]
fn every_broken_rule_is_named_with_its_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invalid");
    let rewrite = std::env::var_os("LEASEROUTE_REWRITE").is_some();
    let mut cases = 0;
    let mut wrong = String::new();
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    for input in names
        .iter()
        .filter(|path| path.extension().unwrap() == "toml")
    {
        let case = input.file_stem().unwrap().to_str().unwrap();
        let text = fs::read(input).unwrap();
        assert!(
            text.starts_with(b"# "),
            "{case}: the first line says why the case exists"
        );

        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("config.toml"), text).unwrap();
        let Err(error) = load(&Folders::new(Some(home.path().to_owned()))) else {
            panic!("{case}: the file is taken");
        };
        let shown = error
            .to_string()
            .replace(home.path().to_str().unwrap(), "/etc/leaseroute");

        let expectation = input.with_extension("expected");
        if rewrite {
            fs::write(expectation, shown + "\n").unwrap();
        } else {
            let expected = fs::read_to_string(&expectation).unwrap_or_default();
            if expected.trim_end() != shown {
                wrong += &format!("--- {case}, expected:\n{expected}--- got:\n{shown}\n");
            }
        }
        cases += 1;
    }
    assert!(cases >= 30, "only {cases} cases were found");
    assert!(wrong.is_empty(), "{wrong}");
}
