//! The command line ready to use: from here on no argument is looked at again.
//!
//! Files that arguments name are read and checked here, and only here.

use std::fs;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use leaseroute_core::export::{Format, Options};
use leaseroute_core::{Client, Family, Host, InterfaceRef, LeaseFile, RawEvent};
use leaseroute_runtime::capture;
use leaseroute_watch::wait::Wanted as WantedCards;
use serde::de::DeserializeOwned;

use crate::args::{
    Cli, Command, ConfigCommand, ExportArgs, ExportFormat, HooksArgs, HooksCommand, LeaseArgs,
    PlanArgs, ScriptArgs,
};
use crate::error::CliError;
use crate::export::{Wanted, Words};
use crate::given::Given;
use crate::hooks::{Room, Root};
use crate::now;
use crate::report::{FORMAT, Report};

/// What to do.
#[derive(Debug)]
pub(crate) enum Request {
    Plan {
        /// What is taken in on top of what is known.
        events: Vec<Given>,
        origin: Origin,
        form: Form,
    },
    Export {
        /// What is taken in on top of what is known.
        events: Vec<Given>,
        origin: Origin,
        wanted: Wanted,
    },
    Apply {
        events: Vec<Given>,
        form: Form,
    },
    Status {
        /// The far ends to ask the kernel about, if at all.
        verify: Option<FarEnds>,
        form: Form,
    },
    Remove {
        /// Nothing named means everything.
        interfaces: Vec<InterfaceRef>,
        /// Whether one that is gone is no mistake.
        missing_ok: bool,
        form: Form,
    },
    WaitOnline {
        wanted: WantedCards,
        form: Form,
    },
    Metadata {
        /// Nothing named means all that could have more than their lease tells.
        interfaces: Vec<InterfaceRef>,
        how: Asking,
        form: Form,
    },
    Listen,
    CheckConfig {
        form: Form,
    },
    ShowConfig {
        interface: Option<InterfaceRef>,
        form: Form,
    },
    Capture {
        events: Vec<Given>,
        /// `None`: to standard output.
        output: Option<PathBuf>,
        mask: bool,
    },
    ListHooks {
        root: Root,
        /// Nothing named means all.
        clients: Vec<&'static Room>,
        form: Form,
    },
    InstallHooks {
        root: Root,
        /// Nothing named means those that are here.
        clients: Vec<&'static Room>,
        /// The folder to copy the programs from, if any.
        programs: Option<PathBuf>,
        form: Form,
    },
    RemoveHooks {
        root: Root,
        /// Nothing named means all.
        clients: Vec<&'static Room>,
        form: Form,
    },
    Doctor {
        root: Root,
        form: Form,
    },
    Watch,
    Demo,
    Completions(Shell),
    Man(Vec<String>),
    Hook(Client),
}

/// How the answer is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// How metadata services are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// Here, until all is found out or the time is up.
    Here,
    /// Here, one round.
    Once,
    /// By who listens on the socket, or else here.
    HandOver,
}

/// What a plan starts from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// This host, its leases and its configuration.
    Here,
    /// A host that somebody saved, without leases, and this host's configuration.
    Snapshot(Box<Host>),
    /// A host that somebody reported, with leases and configuration.
    Report(Box<Report>),
}

/// Where the replies that `status --verify` asks about would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FarEnds {
    ipv4: IpAddr,
    ipv6: IpAddr,
}

impl FarEnds {
    /// The last address of each family; for a family without one an address that is set
    /// aside for benchmarks (RFC 2544, RFC 5180) and leads to the default route.
    fn new(addresses: &[IpAddr]) -> Self {
        let last = |family, other| {
            let mut of_family = addresses.iter().rev().filter(|a| Family::of(**a) == family);
            of_family.next().copied().unwrap_or(other)
        };
        Self {
            ipv4: last(Family::Ipv4, Ipv4Addr::new(198, 18, 0, 1).into()),
            ipv6: last(
                Family::Ipv6,
                Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into(),
            ),
        }
    }

    pub(crate) fn of(self, family: Family) -> IpAddr {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }
}

impl Form {
    fn new(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

impl Request {
    /// Reads what the arguments name.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or is not what it should be.
    pub(crate) fn new(cli: Cli) -> Result<Self, CliError> {
        Ok(match cli.command {
            Command::Plan(args) => plan(args)?,
            Command::Export(args) => export(args)?,
            Command::Apply(args) => Self::Apply {
                events: given(&args.lease, &args.script)?,
                form: Form::new(args.json),
            },
            Command::Status(args) => Self::Status {
                verify: args.verify.then(|| FarEnds::new(&args.to)),
                form: Form::new(args.json),
            },
            Command::Remove(args) => Self::Remove {
                interfaces: args.interfaces,
                missing_ok: args.missing_ok,
                form: Form::new(args.json),
            },
            Command::WaitOnline(args) => Self::WaitOnline {
                form: Form::new(args.json),
                wanted: WantedCards {
                    interfaces: args.interface,
                    any: args.any,
                    families: families(args.ipv4, args.ipv6),
                    timeout: args.timeout.0,
                },
            },
            Command::Metadata(args) if args.listen => Self::Listen,
            Command::Metadata(args) => Self::Metadata {
                interfaces: args.interface,
                how: match (args.once, args.hand_over) {
                    (true, _) => Asking::Once,
                    (false, true) => Asking::HandOver,
                    (false, false) => Asking::Here,
                },
                form: Form::new(args.json),
            },
            Command::Config(ConfigCommand::Check { json }) => Self::CheckConfig {
                form: Form::new(json),
            },
            Command::Config(ConfigCommand::Show { interface, json }) => Self::ShowConfig {
                interface,
                form: Form::new(json),
            },
            Command::Capture(args) => Self::Capture {
                events: events(&args.lease)?,
                output: args.output.filter(|path| path != Path::new("-")),
                mask: args.mask,
            },
            Command::Hooks(command) => hooks(command)?,
            Command::Doctor(args) => Self::Doctor {
                root: Root::open(&args.root)?,
                form: Form::new(args.json),
            },
            Command::Watch => Self::Watch,
            Command::Demo => Self::Demo,
            Command::Completions { shell } => Self::Completions(shell),
            Command::Man { command } => Self::Man(command),
            Command::Hook { client } => Self::Hook(client),
        })
    }
}

fn plan(args: PlanArgs) -> Result<Request, CliError> {
    Ok(Request::Plan {
        events: given(&args.lease, &args.script)?,
        origin: origin(args.host, args.capture)?,
        form: Form::new(args.json),
    })
}

fn origin(host: Option<PathBuf>, capture: Option<PathBuf>) -> Result<Origin, CliError> {
    Ok(match (host, capture) {
        (Some(path), _) => Origin::Snapshot(Box::new(snapshot(path)?)),
        (None, Some(path)) => Origin::Report(Box::new(checked(&path, &read(&path)?)?)),
        (None, None) => Origin::Here,
    })
}

fn export(args: ExportArgs) -> Result<Request, CliError> {
    let words = match args.format {
        ExportFormat::Json => Words::Json,
        ExportFormat::Of(format) => Words::Format(
            format,
            Options {
                priorities: args.priorities,
            },
        ),
    };
    let is = |wanted: Format| matches!(words, Words::Format(format, _) if format == wanted);
    if args.priorities && !is(Format::Netplan) {
        let what = "--priorities is for netplan: the other formats have them always";
        return Err(CliError::Options(what.to_owned()));
    }
    if args.persist && (words == Words::Json || is(Format::Ip)) {
        let what = "--persist: no program reads this format by itself; it is printed only";
        return Err(CliError::Options(what.to_owned()));
    }
    let persist = args.persist.then(|| Root::open(&args.root)).transpose()?;
    Ok(Request::Export {
        events: events(&args.lease)?,
        origin: origin(args.host, args.capture)?,
        wanted: Wanted { words, persist },
    })
}

/// The families that are asked for by name.
fn families(ipv4: bool, ipv6: bool) -> Vec<Family> {
    let asked = [(ipv4, Family::Ipv4), (ipv6, Family::Ipv6)];
    let asked = asked.into_iter().filter(|(is, _)| *is);
    asked.map(|(_, family)| family).collect()
}

fn hooks(command: HooksCommand) -> Result<Request, CliError> {
    let parts = |args: HooksArgs| {
        let named = args.clients.iter();
        let mut clients: Vec<&Room> = Vec::new();
        for room in named.filter_map(|name| Room::named(name)) {
            // The same one may be named twice, or by two names.
            if clients.iter().all(|known| known.name != room.name) {
                clients.push(room);
            }
        }
        let root = Root::open(&args.root)?;
        Ok::<_, CliError>((root, clients, Form::new(args.json)))
    };
    Ok(match command {
        HooksCommand::List(args) => {
            let (root, clients, form) = parts(args)?;
            Request::ListHooks {
                root,
                clients,
                form,
            }
        }
        HooksCommand::Install { hooks, programs } => {
            let (root, clients, form) = parts(hooks)?;
            Request::InstallHooks {
                root,
                clients,
                programs,
                form,
            }
        }
        HooksCommand::Remove(args) => {
            let (root, clients, form) = parts(args)?;
            Request::RemoveHooks {
                root,
                clients,
                form,
            }
        }
    })
}

/// The event that is given, in either way.
fn given(lease: &LeaseArgs, script: &ScriptArgs) -> Result<Vec<Given>, CliError> {
    match &script.interface {
        Some(interface) => Ok(vec![Given::by_script(interface, script, now())?]),
        None => events(lease),
    }
}

/// What a file holds: one event as lines, or the leases of a capture.
fn events(args: &LeaseArgs) -> Result<Vec<Given>, CliError> {
    let Some(path) = &args.lease else {
        return Ok(Vec::new());
    };
    let bytes = read(path)?;
    if bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(checked(path, &bytes)?.into_given(args.client));
    }
    let text = String::from_utf8_lossy(&bytes);
    let lease_file = args.client_file.as_deref().map(read).transpose()?;
    Ok(vec![Given::event(RawEvent {
        arguments: args.arguments.clone(),
        lease_file: lease_file.map_or(LeaseFile::Absent, |bytes| {
            LeaseFile::Text(String::from_utf8_lossy(&bytes).into_owned())
        }),
        ..capture::text(args.client, &text)
    })])
}

/// A snapshot of a host: by itself, or within a report.
fn snapshot(path: PathBuf) -> Result<Host, CliError> {
    let expected = "snapshot of a host";
    let mut value: serde_json::Value = json(&path, &read(&path)?, expected)?;
    // All of a snapshot's parts may be left out, so that any object would pass for one.
    let host = value
        .get_mut("host")
        .map(serde_json::Value::take)
        .unwrap_or(value);
    let checked = if host.get("links").is_some() {
        serde_json::from_value(host)
    } else {
        Err(serde::de::Error::missing_field("links"))
    };
    checked.map_err(|source| CliError::Format {
        path,
        expected,
        source,
    })
}

/// A report in a format that is known.
fn checked(path: &Path, bytes: &[u8]) -> Result<Report, CliError> {
    let report: Report = json(path, bytes, "capture")?;
    if report.version == FORMAT {
        Ok(report)
    } else {
        Err(CliError::Version {
            path: path.to_owned(),
            found: report.version,
            known: FORMAT,
        })
    }
}

fn json<T: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
    expected: &'static str,
) -> Result<T, CliError> {
    serde_json::from_slice(bytes).map_err(|source| CliError::Format {
        path: path.to_owned(),
        expected,
        source,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(path)
    };
    bytes.map_err(|source| CliError::Read {
        path: path.to_owned(),
        source,
    })
}
