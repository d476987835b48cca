//! Exit codes of the hook programs and the command line.
//!
//! The sourced shims swallow them, since a DHCP client may decline a lease when its
//! script fails; everybody else may rely on them.

use std::process::ExitCode;

use serde::Serialize;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Exit {
    /// Done, or there was nothing to do. A dropped field is not a failure.
    Done = 0,
    /// The program itself failed (1): a file could not be read, output not be written.
    Failed = 1,
    /// The command line is wrong (2).
    Usage = 2,
    /// The event was refused (3): no usable interface name, or an address that no host
    /// can have.
    Refused = 3,
    /// Not permitted (4): CAP_NET_ADMIN is missing.
    NotPermitted = 4,
    /// The kernel refused some changes, or could not be read (5).
    Kernel = 5,
    /// The configuration is invalid (6); the kernel was left as it is.
    Configuration = 6,
    /// Another run held the lock for too long (7); the next event completes this one.
    Busy = 7,
    /// There is no such interface (8).
    NoInterface = 8,
    /// Routes and rules are in place, but the lease could not be remembered (9).
    State = 9,
    /// `leaseroute status --verify` found replies that leave by another interface than
    /// their source's, or not at all (10).
    Misrouted = 10,
    /// `leaseroute wait-online` gave up: cards were not ready at its deadline; or the service
    /// that `leaseroute metadata` asked did not know all by then (11).
    Incomplete = 11,
    /// `leaseroute doctor` found what should be put right (12).
    Problems = 12,
}

impl Exit {
    /// Every code with what it means, for manuals.
    pub const ALL: &[(Self, &str)] = &[
        (Self::Done, "done, or nothing to do"),
        (
            Self::Failed,
            "a file could not be read or output not be written",
        ),
        (Self::Usage, "wrong command line"),
        (
            Self::Refused,
            "event refused: bad interface name or impossible address",
        ),
        (
            Self::NotPermitted,
            "not permitted: CAP_NET_ADMIN is missing",
        ),
        (
            Self::Kernel,
            "the kernel refused changes or could not be read",
        ),
        (
            Self::Configuration,
            "invalid configuration; nothing was changed",
        ),
        (Self::Busy, "another run held the lock for too long"),
        (Self::NoInterface, "no such interface"),
        (Self::State, "done, but the lease could not be remembered"),
        (
            Self::Misrouted,
            "status --verify: some replies leave by another interface, or not at all",
        ),
        (
            Self::Incomplete,
            "wait-online: cards were not ready at the deadline; metadata: not all was found out by then",
        ),
        (Self::Problems, "doctor: found what should be put right"),
    ];

    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What a number means, if it is one of these.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        let known = Self::ALL.iter().find(|(exit, _)| exit.code() == code);
        known.map(|(exit, _)| *exit)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_readme_has_every_exit_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let readme = fs::read_to_string(path).unwrap();
        let mut lines = readme.lines().map(str::to_owned);
        assert!(lines.any(|line| line == "| exit code | meaning |"));
        let table = lines.skip(1).take_while(|line| !line.is_empty());
        let row = |(exit, meaning): &(Exit, &str)| format!("| {} | {meaning} |", exit.code());
        assert_eq!(
            table.collect::<Vec<_>>(),
            Exit::ALL.iter().map(row).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_code_is_the_place_in_the_list() {
        let codes = Exit::ALL.iter().map(|(exit, _)| exit.code());
        assert!(codes.eq(0..=Exit::Problems.code()));
    }
}
