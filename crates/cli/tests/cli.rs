//! The command line as its users see it: `tests/cmd/*.trycmd`, with the files they need in
//! `tests/cmd/*.in`. `TRYCMD=overwrite` writes the expectations anew.

use std::path::Path;

/// A configuration folder for a set of cases, or one that is not there.
fn folder(name: &str) -> String {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd");
    cases.join(name).display().to_string()
}

#[test]
fn without_configuration() {
    trycmd::TestCases::new()
        .env("LEASEROUTE_CONFIG_DIR", folder("nothing"))
        .env("LEASEROUTE_STATE_DIR", folder("nothing"))
        .case("tests/cmd/export.trycmd")
        .case("tests/cmd/help.trycmd")
        .case("tests/cmd/metadata.trycmd")
        .case("tests/cmd/plan.trycmd")
        .case("tests/cmd/doctor.trycmd")
        .case("tests/cmd/script.trycmd");
}

#[test]
fn with_a_good_configuration() {
    trycmd::TestCases::new()
        .env("LEASEROUTE_CONFIG_DIR", "good")
        .case("tests/cmd/config.trycmd");
}

#[test]
fn with_a_bad_configuration() {
    trycmd::TestCases::new()
        .env("LEASEROUTE_CONFIG_DIR", "bad")
        .case("tests/cmd/bad-config.trycmd");
}
