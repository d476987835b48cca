//! The command line as it is typed.
//!
//! The one definition that parsing, `--help`, the manual pages and the shell completions
//! come from. What it accepts is well-formed but not looked at: `request` reads the files
//! that are named here.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use ipnetwork::IpNetwork;
use leaseroute_core::export::Format;
use leaseroute_core::{Client, InterfaceRef, is_unicast_host};
use leaseroute_runtime::exit::Exit;

use crate::hooks::{ROOMS, Room};

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
    /// Put what should be there into the words of those who persist configuration
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Make the kernel's routes and rules what the leases call for
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Show each interface's leases, table, rules and routes, and what they are for
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Remove our routes and rules, and forget the leases
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove(RemoveArgs),
    /// Keep routes and rules right between the events of DHCP clients
    #[command(after_help = WATCH_NOTES)]
    Watch,
    /// Wait until cards have their lease and their routing
    #[command(after_help = WAIT_EXAMPLES)]
    WaitOnline(WaitArgs),
    /// Ask the cloud's metadata service what no lease carries
    #[command(after_help = METADATA_EXAMPLES)]
    Metadata(MetadataArgs),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show, install or remove what makes the DHCP clients call our hooks
    #[command(subcommand)]
    Hooks(HooksCommand),
    /// Look for what would hinder us, such as other programs that do the same work
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
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

/// What a script knows of an interface, in place of a lease.
#[derive(Debug, Args)]
pub(crate) struct ScriptArgs {
    /// The interface whose addresses follow
    #[arg(
        long,
        value_name = "IF",
        requires = "address",
        conflicts_with = "lease"
    )]
    pub(crate) interface: Option<InterfaceRef>,
    /// An address that it has; once for each, of either family. It replaces what was known of the
    /// interface in that family
    #[arg(long, value_name = "ADDR[/LEN]", requires = "interface")]
    pub(crate) address: Vec<Address>,
    /// The gateway of its own; one for each family
    #[arg(long, value_name = "GW", requires = "interface")]
    pub(crate) gateway: Vec<IpAddr>,
    /// A further route by it, on-link without a gateway; once for each
    #[arg(long, value_name = "DEST[=GW]", requires = "interface")]
    pub(crate) route: Vec<GivenRoute>,
    /// The MTU for its IPv4 routes in bytes, where that is less than the interface's
    #[arg(long, value_name = "BYTES", requires = "interface")]
    pub(crate) mtu: Option<u32>,
    /// When the addresses end, in seconds from now; never, if not given
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "interface",
        allow_negative_numbers = true
    )]
    pub(crate) expires: Option<u64>,
    /// Keep what is known of the interface, and add to it
    #[arg(long, requires = "interface")]
    pub(crate) add: bool,
}

/// An address as typed, and whether a prefix length or a mask was typed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) network: IpNetwork,
    pub(crate) with_length: bool,
}

/// A route as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenRoute {
    pub(crate) destination: IpNetwork,
    /// `None`: on-link.
    pub(crate) gateway: Option<IpAddr>,
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = text.parse();
        let network = network.map_err(|_| "not an address with or without a prefix length")?;
        Ok(Self {
            network,
            with_length: text.contains('/'),
        })
    }
}

impl FromStr for GivenRoute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (destination, gateway) = match text.split_once('=') {
            Some((destination, gateway)) => (destination, Some(gateway)),
            None => (text, None),
        };
        if destination == "default" {
            return Err("a default route is given with --gateway".to_owned());
        }
        let destination: IpNetwork = destination
            .parse()
            .map_err(|_| format!("{destination:?} is not an address or a prefix"))?;
        let gateway: Option<IpAddr> = gateway
            .map(|text| {
                text.parse()
                    .map_err(|_| format!("{text:?} is not an address"))
            })
            .transpose()?;
        if destination.prefix() == 0 {
            return Err("a default route is given with --gateway".to_owned());
        }
        if destination.ip() != destination.network() {
            let (meant, length) = (destination.network(), destination.prefix());
            return Err(format!("it has host bits set; {meant}/{length} has none"));
        }
        if gateway.is_some_and(|gateway| gateway.is_ipv4() != destination.is_ipv4()) {
            return Err("its gateway is of the other address family".to_owned());
        }
        if gateway.is_some_and(|gateway| gateway.is_unspecified()) {
            return Err("its gateway is no address; leave it out for an on-link route".to_owned());
        }
        if gateway.is_some_and(|gateway| !is_unicast_host(gateway)) {
            return Err("its gateway is an address that no router can have".to_owned());
        }
        Ok(Self {
            destination,
            gateway,
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    #[command(flatten)]
    pub(crate) script: ScriptArgs,
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
pub(crate) struct ExportArgs {
    /// In whose words
    #[arg(long, value_name = "FORMAT", value_parser = export_formats())]
    pub(crate) format: ExportFormat,
    /// Write the files where their program reads them, and remove ours of cards that are gone
    #[arg(long)]
    pub(crate) persist: bool,
    /// netplan: give the rules priorities, as its NetworkManager back end needs them
    #[arg(long)]
    pub(crate) priorities: bool,
    /// The root of the system whose files are written, such as that of an image
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "/",
        requires = "persist",
        value_hint = ValueHint::DirPath
    )]
    pub(crate) root: PathBuf,
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// A snapshot of a host as JSON in place of this host, or a capture that has one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) host: Option<PathBuf>,
    /// Take a capture: its snapshot, leases and configuration in place of this host's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "host")]
    pub(crate) capture: Option<PathBuf>,
}

/// A format as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    Of(Format),
    Json,
}

/// The formats by name.
fn export_formats() -> impl TypedValueParser<Value = ExportFormat> {
    let names = Format::ALL.iter().map(|format| format.name());
    PossibleValuesParser::new(names.chain(["json"])).map(|name| {
        // Only the names above get here, and all but one are formats.
        name.parse().map_or(ExportFormat::Json, ExportFormat::Of)
    })
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    #[command(flatten)]
    pub(crate) script: ScriptArgs,
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
pub(crate) struct WaitArgs {
    /// A card by name or alternative name, which need not be there yet; once for each. Without, those
    /// that the configuration requires
    #[arg(long, short, value_name = "IF")]
    pub(crate) interface: Vec<InterfaceRef>,
    /// Return when the first one is ready
    #[arg(long)]
    pub(crate) any: bool,
    /// Demand an IPv4 lease; without this and --ipv6, one of either family will do
    #[arg(long, short = '4')]
    pub(crate) ipv4: bool,
    /// Demand an IPv6 address, leased or advertised, and an IPv6 router
    #[arg(long, short = '6')]
    pub(crate) ipv6: bool,
    /// How long to wait at most; 0 or "infinity": without end
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub(crate) timeout: Timeout,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MetadataArgs {
    /// A card by name or alternative name; once for each. Without, all that could have more than
    /// their lease tells
    #[arg(long, short, value_name = "IF")]
    pub(crate) interface: Vec<InterfaceRef>,
    /// Ask once, and not again when the service does not know yet
    #[arg(long)]
    pub(crate) once: bool,
    /// Hand the cards over to leaseroute-metadata.service and do not wait for it; ask here only
    /// when nobody holds its socket. For leaseroute-metadata@.service
    #[arg(long, requires = "interface", conflicts_with_all = ["once", "json"])]
    pub(crate) hand_over: bool,
    /// Hear from hooks which cards to ask about, on a datagram socket that is standard input; for
    /// leaseroute-metadata.service
    #[arg(long, conflicts_with_all = ["interface", "once", "hand_over", "json"])]
    pub(crate) listen: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long to wait; `None`: without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(pub(crate) Option<Duration>);

impl FromStr for Timeout {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "infinity" {
            return Ok(Self(None));
        }
        let seconds = text.parse();
        let seconds = seconds.map_err(|_| "not a number of seconds, and not \"infinity\"")?;
        Ok(Self((seconds > 0).then(|| Duration::from_secs(seconds))))
    }
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The interfaces whose routes, rules and leases go
    #[arg(required_unless_present = "all")]
    pub(crate) interfaces: Vec<InterfaceRef>,
    /// Everything of ours, on interfaces that are gone, too
    #[arg(long, conflicts_with = "interfaces")]
    pub(crate) all: bool,
    /// An interface that is gone is no mistake: what is left of it goes, as of any that is gone
    #[arg(long, conflicts_with = "all")]
    pub(crate) missing_ok: bool,
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

#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Show which clients are here, what is in place, and which one works on which card
    #[command(after_help = HOOKS_LIST_EXAMPLES)]
    List(HooksArgs),
    /// Put in place what the clients that are here need
    #[command(after_help = HOOKS_INSTALL_EXAMPLES)]
    Install {
        #[command(flatten)]
        hooks: HooksArgs,
        /// A folder with the hook programs, to be copied to /usr/libexec/leaseroute; for when no
        /// package brings them
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        programs: Option<PathBuf>,
    },
    /// Remove what install puts in place, and nothing else
    #[command(after_help = HOOKS_REMOVE_EXAMPLES)]
    Remove(HooksArgs),
}

/// Which hooks.
#[derive(Debug, Args)]
pub(crate) struct HooksArgs {
    /// The root of the system, such as that of an image
    #[arg(long, value_name = "FOLDER", default_value = "/", value_hint = ValueHint::DirPath)]
    pub(crate) root: PathBuf,
    /// Only these clients
    #[arg(
        long = "client",
        value_name = "CLIENT",
        num_args = 1..,
        value_parser = clients()
    )]
    pub(crate) clients: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The root of the system, such as that of an image; its kernel cannot be looked at then
    #[arg(long, value_name = "FOLDER", default_value = "/", value_hint = ValueHint::DirPath)]
    pub(crate) root: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The names of the clients whose hooks can be installed.
fn clients() -> PossibleValuesParser {
    let value = |room: &Room| PossibleValue::new(room.name).aliases(room.aliases.iter().copied());
    PossibleValuesParser::new(ROOMS.iter().map(value))
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
  What it would change if a card had a static address:
    leaseroute plan --interface eth1 --address 192.0.2.10/24 --gateway 192.0.2.1

The commands that are printed can be fed to a shell; each has its reason as a comment.";

const METADATA_EXAMPLES: &str = "\
Examples:
  What the service says of every card, and what of it is not to be believed yet:
    leaseroute metadata --once
  Ask about a card until all is known, or the configured deadline has passed:
    leaseroute metadata --interface eth1
  Have a card asked about, as fast as the service allows for all cards together:
    leaseroute metadata --interface eth1 --hand-over

Hooks have this done after each lease, by leaseroute-metadata.socket or by the watcher, and never
wait for it. What a service says is added to what leases call for: rules for secondary addresses
and for prefixes that are routed to the card. What could not be found out takes nothing away.
Which service is asked, the firmware of the machine says, or metadata.provider in the
configuration.

Exit status: 0 when all was found out or handed over, or there is nobody to ask; 8 when there is no
such card; 11 when something was not found out; another one when what was found could not be applied.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  What netplan would have to be told:
    leaseroute export --format netplan
  Tell it, before a `netplan apply`:
    leaseroute export --format netplan --persist
  For systemd-networkd, into an image:
    leaseroute export --format networkd --persist --root /mnt/image
  For NetworkManager:
    leaseroute export --format nmconnection --persist
  A script that can run again and again:
    leaseroute export --format ip > routes.sh
  Of a host that somebody reported, for programs:
    leaseroute export --format json --capture report.json

It is the state of now: a lease that changes does not change what was written. Use the files or the
hooks, not both. A file that does not begin with our comment line is not ours, and stays.

Exit status: 0 when all is printed or written, 1 when a file could not be written.";

const APPLY_EXAMPLES: &str = "\
Examples:
  Put right what somebody removed:
    leaseroute apply
  Take in a lease as if dhclient had just got it:
    leaseroute apply --client dhclient --lease bound.env
  From a script, when a program that we know nothing of has set up a card:
    leaseroute apply --interface eth1 --address 192.0.2.10/24 --gateway 192.0.2.1
  IPv6, where the gateway may be link-local:
    leaseroute apply --interface eth1 --address 2001:db8:1::10/64 --gateway fe80::1
  A second address, and a network behind another router, beside what is known:
    leaseroute apply --interface eth1 --add --address 192.0.2.11 --route 10.0.0.0/8=192.0.2.9
  When the card goes down:
    leaseroute remove --missing-ok eth1

The addresses must be on the interface already. The same call again changes nothing.";

const STATUS_EXAMPLES: &str = "\
Examples:
  Everything, for people:
    leaseroute status
  Does every source answer by its own interface?
    leaseroute status --verify
  Towards one peer, for programs:
    leaseroute status --verify --to 203.0.113.9 --json";

const WATCH_NOTES: &str = "\
Runs until SIGTERM or SIGINT, and leaves routes and rules in place then. SIGHUP reads the
configuration again. With systemd, leaseroute-watch.service runs it.

It puts back what others remove, follows routers, prefixes and addresses that come and go
without an event, follows the lease files of systemd-networkd and NetworkManager, and takes
over leases that were there before it. What another program removes again and again it
leaves so for a while; `leaseroute status` shows which, and who removes it.";

const WAIT_EXAMPLES: &str = "\
Examples:
  Until eth1 has its lease and its routing, also when its driver loads a minute from now:
    leaseroute wait-online --interface eth1
  Both families, half a minute at most:
    leaseroute wait-online --interface eth1 --ipv4 --ipv6 --timeout 30
  What the configuration requires, as leaseroute-wait-online.service does; at once where that is
  nothing:
    leaseroute wait-online

A card is ready when it is up and has carrier, its leased or advertised address is on it, and no
route or rule of it is missing. It needs no privilege, changes nothing, and works beside hooks.

Exit status: 0 when all are ready, 11 at the deadline, with what is missing on standard error.";

const REMOVE_EXAMPLES: &str = "\
Examples:
  One interface; the next event of its client brings everything back:
    leaseroute remove eth1
  From a script that runs when the interface may be gone already:
    leaseroute remove --missing-ok eth1
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

const HOOKS_LIST_EXAMPLES: &str = "\
Examples:
  What is in place, and is it called?
    leaseroute hooks list
  An image, for programs:
    leaseroute hooks list --root /mnt/image --json

The cards are shown of this system only. Whose clients are at work is seen best by root.";

const HOOKS_INSTALL_EXAMPLES: &str = "\
Examples:
  For all clients that are here:
    leaseroute hooks install
  Into an image, for two clients:
    leaseroute hooks install --root /mnt/image --client dhclient nm-dispatcher
  From a build, with the programs:
    leaseroute hooks install --programs target/release

What is in place already is left alone, an older version is updated. A file of the same name that
is not ours stays: that is an error, and the rest is still done. What has to be done by hand is said.

Exit status: 0 when all is in place, 1 when something could not be put in place.";

const HOOKS_REMOVE_EXAMPLES: &str = "\
Examples:
  Everything:
    leaseroute hooks remove
  What makes dhclient call our hook:
    leaseroute hooks remove --client dhclient

Programs are removed only where install --programs copied them. A script that udhcpc is started with
stays, since it sets the address: have udhcpc started without it first. Routes and rules stay, too:
\"leaseroute remove --all\" removes those.

Exit status: 0 when nothing of ours is left, 1 when something could not be removed.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  What is wrong here, and what to do about it?
    leaseroute doctor
  An image, for programs:
    leaseroute doctor --root /mnt/image --json

It changes nothing and starts no program. It looks at the files and rules of cloud-init,
amazon-ec2-net-utils, nm-cloud-setup, cloud-netconfig, google-guest-agent, Amazon VPC CNI and
Cilium, at networkd's settings, and at the routes, rules and cards of this system. Root sees
more than others.

Exit status: 0 when nothing has to be put right, 12 when a problem was found. Notes are no problems.";

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
