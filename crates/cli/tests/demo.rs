//! The demonstration, as a newcomer starts it.

use std::process::Command;
use std::time::{Duration, Instant};

use leaseroute_lab::privilege::with_namespaces;

#[test]
fn the_demonstration_comes_out_as_told() {
    with_namespaces("the_demonstration_comes_out_as_told", || {
        let started = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_leaseroute"))
            .arg("demo")
            .output()
            .unwrap();
        let story = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{story}\n{complaint}");
        assert!(story.contains("All came out as told"), "{story}");
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "{:?}",
            started.elapsed()
        );
    });
}
