//! The command line as it is typed.
//!
//! The one definition that parsing, `--help`, the manual pages and the shell completions
//! come from. What it accepts is well-formed but not looked at: `request` reads the files
//! that are named here.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use leaseroute_core::{Client, InterfaceRef};
use leaseroute_runtime::exit::Exit;

/// Makes every network card answer on the card it was asked on
#[derive(Debug, Parser)]
#[command(
    name = "leaseroute",
    version,
    max_term_width = 100,
    long_about = "Makes every network card of a host answer on the card it was asked on, from the \
        leases that its DHCP clients get.\n\nThe hooks of the DHCP clients do the work at every \
        lease event; this command shows what they did, does it by hand, and undoes it.",
    after_long_help = after_help()
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what would change, and change nothing
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Make the kernel's routes and rules what the leases call for
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Show each interface's leases, table, rules and routes, and what they are for
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Remove our routes and rules, and forget the leases
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove(RemoveArgs),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a bug report that can be replayed
    #[command(after_help = CAPTURE_EXAMPLES)]
    Capture(CaptureArgs),
    /// Show in namespaces of its own how connections to a second card fail, and work
    Demo,
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The subcommand, such as "plan" or "config show"; none for leaseroute itself
        command: Vec<String>,
    },
    /// Take in an event as the hook of a DHCP client
    #[command(hide = true)]
    Hook {
        /// The client
        client: Client,
    },
}

/// An event given by hand.
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    /// A lease event, KEY=VALUE lines as the client's hook receives them, or a capture, for its
    /// leases; "-" is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) lease: Option<PathBuf>,
    /// The client whose hook the event is for
    #[arg(long, value_name = "CLIENT", default_value_t = Client::Dhclient, requires = "lease")]
    pub(crate) client: Client,
    /// An argument of the client's hook, where it gets any; once for each
    #[arg(
        long = "argument",
        value_name = "VALUE",
        requires = "lease",
        allow_hyphen_values = true
    )]
    pub(crate) arguments: Vec<String>,
    /// The lease file that the client keeps, where its hook has to read it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "lease")]
    pub(crate) client_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// A snapshot of a host as JSON in place of this host, or a capture that has one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) host: Option<PathBuf>,
    /// Replay a capture: its snapshot, leases and configuration in place of this host's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "host")]
    pub(crate) capture: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Ask the kernel by which interface the replies from every source would leave
    #[arg(long)]
    pub(crate) verify: bool,
    /// The far end to ask about, once per address family [default: 198.18.0.1 and 2001:2::1]
    #[arg(long, value_name = "ADDRESS", requires = "verify")]
    pub(crate) to: Vec<IpAddr>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The interfaces whose routes, rules and leases go
    #[arg(required_unless_present = "all")]
    pub(crate) interfaces: Vec<InterfaceRef>,
    /// Everything of ours, on interfaces that are gone, too
    #[arg(long, conflicts_with = "interfaces")]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read all files, and say what is odd or wrong
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what is in force, as a configuration file
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Print what applies to this interface
        #[arg(long, value_name = "INTERFACE")]
        interface: Option<InterfaceRef>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// Where to write it; standard output if not given
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Hide private values: hardware addresses, names of hosts and domains, client identifiers
    #[arg(
        long,
        long_help = "Hide private values: hardware addresses are replaced, the same one always by \
            the same; names of hosts and domains, client identifiers and other free text of the \
            lease are left out. IP addresses stay, since a replay needs them; an IPv6 address may \
            hold a hardware address"
    )]
    pub(crate) mask: bool,
}

impl Cli {
    /// The definition, for manual pages and completions.
    pub(crate) fn definition() -> clap::Command {
        Self::command()
    }
}

const PLAN_EXAMPLES: &str = "\
Examples:
  What the next run would change on this host:
    leaseroute plan
  What a lease would change on another host, from two files, without privilege:
    leaseroute plan --lease bound.env --host host.json
  What a bug report's host would do:
    leaseroute plan --capture report.json

The commands that are printed can be fed to a shell; each has its reason as a comment.";

const APPLY_EXAMPLES: &str = "\
Examples:
  Put right what somebody removed:
    leaseroute apply
  Take in a lease as if dhclient had just got it:
    leaseroute apply --client dhclient --lease bound.env";

const STATUS_EXAMPLES: &str = "\
Examples:
  Everything, for people:
    leaseroute status
  Does every source answer by its own interface?
    leaseroute status --verify
  Towards one peer, for programs:
    leaseroute status --verify --to 203.0.113.9 --json";

const REMOVE_EXAMPLES: &str = "\
Examples:
  One interface; the next event of its client brings everything back:
    leaseroute remove eth1
  Everything, as before the package is removed:
    leaseroute remove --all";

const CHECK_EXAMPLES: &str = "\
Exit status: 0 when the configuration can be used, 6 when not.";

const SHOW_EXAMPLES: &str = "\
Examples:
  leaseroute config show
  leaseroute config show --interface eth1";

const CAPTURE_EXAMPLES: &str = "\
Examples:
  A report to send to somebody:
    leaseroute capture --mask --output report.json
  See what it makes of it:
    leaseroute plan --capture report.json";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  leaseroute completions bash > /etc/bash_completion.d/leaseroute
  leaseroute completions zsh > /usr/share/zsh/site-functions/_leaseroute";

const MAN_EXAMPLES: &str = "\
Examples:
  leaseroute man > /usr/share/man/man8/leaseroute.8
  leaseroute man plan > /usr/share/man/man8/leaseroute-plan.8";

/// What holds for all subcommands: exit codes, files, environment.
fn after_help() -> String {
    let code = |(exit, meaning): &(Exit, &str)| format!("  {:2}  {meaning}\n", exit.code());
    let codes: String = Exit::ALL.iter().map(code).collect();
    format!("Exit status:\n{codes}{FILES_AND_ENVIRONMENT}")
}

const FILES_AND_ENVIRONMENT: &str = "
Files:
  /etc/leaseroute/config.toml, /etc/leaseroute/conf.d/*.toml
      the administrator's configuration
  /usr/lib/leaseroute/config.toml, /usr/lib/leaseroute/conf.d/*.toml
      the vendor's; of two drop-ins with the same name the administrator's counts
  /run/leaseroute/
      the leases that are known, for each network namespace

Environment:
  LEASEROUTE_CONFIG_DIR  a folder in place of both configuration folders
  LEASEROUTE_STATE_DIR   a folder in place of /run/leaseroute";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_adds_up() {
        Cli::definition().debug_assert();
    }
}
