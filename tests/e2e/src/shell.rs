//! Files of ours that a shell reads or runs, against callers that would notice anything.
//!
//! Each is tried in a shell set up in some awkward way, with some program in the place of
//! the real one, and everything the shell can tell about itself before and after is
//! compared.

use std::collections::BTreeSet;
use std::fs;

/// How the caller's shell is set up, each a reason for some line of the files.
pub const CALLERS: &[(&str, &str)] = &[
    ("plain", ""),
    ("errexit and nounset", "set -eu"),
    ("noglob", "set -f"),
    ("noclobber", "set -C"),
    ("allexport", "set -a"),
    ("monitor", "set -m"),
    ("IFS of slashes and letters", "IFS=/xer-"),
    ("empty IFS", "set -eu; IFS="),
    ("no IFS", "set -u; unset IFS"),
    (
        "traps",
        "set -e; trap 'echo exit trap' EXIT; trap 'echo term' TERM; trap '' HUP",
    ),
    (
        "positional parameters",
        "set -u; set -- bound 'two words' '*'",
    ),
    (
        "readonly variables",
        "readonly reason interface new_routers ip router exit_status=7 timeout=x",
    ),
    ("strict umask and another folder", "umask 077; cd /usr"),
    ("no PATH", "set -e; PATH=/nowhere"),
];

/// What may stand where the program belongs.
pub const PROGRAMS: &[(&str, Program)] = &[
    ("succeeds", Program::Script("exit 0")),
    ("fails", Program::Script("exit 75")),
    ("crashes", Program::Script("kill -SEGV $$")),
    ("is interrupted", Program::Script("kill -INT $$")),
    ("is killed", Program::Script("kill -KILL $$")),
    ("reads its input", Program::Script("read -r line")),
    (
        "prints a lot",
        Program::Script(
            "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo 'on the output'; echo 'on the error' >&2; done",
        ),
    ),
    (
        "is no program",
        Program::File("\u{7f}ELF, but not really\n", 0o755),
    ),
    ("is empty", Program::File("", 0o755)),
    (
        "is not executable",
        Program::File("#!/bin/sh\nexit 0\n", 0o644),
    ),
    ("is a folder", Program::Folder),
    ("is missing", Program::Missing),
];

/// What stands where a program belongs.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// A shell script that first records what it was given, then does this.
    Script(&'static str),
    /// A file with this text and mode.
    File(&'static str, u32),
    /// A folder.
    Folder,
    /// Nothing.
    Missing,
}

/// Whether the test runs as root; else it makes a user namespace.
#[must_use]
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// A script that tells all of itself, reads a file, and tells all again: into `before`,
/// `status`, `after` and `end` of the folder `out`. What changes by itself in a shell, or by
/// the lines of the script, is left out. `forget` takes away what the file is meant to leave.
#[must_use]
pub fn caller(out: &str, preamble: &str, file: &str, call: &str, forget: &str) -> String {
    format!(
        r#"tell() {{
    to=$1
    shift
    {{ set; export -p; set -o; trap; umask; pwd; echo "parameters $#:$*"; }} >'{out}/raw'
    [ -z "${{BASH_VERSION:-}}" ] || shopt >>'{out}/raw' || :
    /usr/bin/grep -a -v -E '^(export |declare -x )?(_|LINENO|PIPESTATUS|RANDOM|SRANDOM|SECONDS|EPOCH[A-Z]*|BASH_[A-Z_]*|FUNCNAME|OPTIND|status|to)=' '{out}/raw' >"$to"
    /usr/bin/rm '{out}/raw'
}}
{preamble}
tell '{out}/before' "$@"
. '{file}'
{call}
status=$?
echo "$status" >'{out}/status'
{forget}
tell '{out}/after' "$@"
echo end >'{out}/end'
"#
    )
}

/// What a caller lost or got by reading a file, in words. `left` reads what it told.
pub fn changes(left: impl Fn(&str) -> String) -> Vec<String> {
    let mut wrong = Vec::new();
    if left("status") != "0\n" {
        wrong.push(format!("the file's status was {:?}", left("status")));
    }
    if left("end") != "end\n" {
        wrong.push("the caller did not go on after it".to_owned());
    }
    let lines = |name| -> BTreeSet<String> { left(name).lines().map(str::to_owned).collect() };
    let (before, after) = (lines("before"), lines("after"));
    if before.is_empty() {
        wrong.push("the caller said nothing of itself".to_owned());
    }
    let lost = before.difference(&after);
    wrong.extend(lost.map(|line| format!("the caller lost {line:?}")));
    let got = after.difference(&before);
    wrong.extend(got.map(|line| format!("the caller has got {line:?}")));
    wrong
}
