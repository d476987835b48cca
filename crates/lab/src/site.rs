//! One machine of the bench: a network namespace and a netlink connection into it.
//!
//! Owns what every machine needs from the start (loopback, sysctls). A machine ends with
//! its value; daemons started in it are the caller's to end.

use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use leaseroute_core::{IfIndex, InterfaceName, InvalidInterface, Mac};
use leaseroute_kernel::topology::{Monitor, Topology, TopologyError, VethEnd};
use thiserror::Error;

use crate::namespace::Namespace;

/// Why a part of the bench could not be built.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The kernel gives no network namespace.
    #[error("failed to make the network namespace {name}")]
    Namespace {
        /// Whose it would be.
        name: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A sysctl could not be written.
    #[error("failed to set {key} to {value} in {name}")]
    Sysctl {
        /// The machine.
        name: String,
        /// The key in its path form, below `/proc/sys/net`.
        key: String,
        /// The value.
        value: String,
        /// What stopped it.
        #[source]
        source: io::Error,
    },
    /// A link, address, route or rule could not be made.
    #[error("failed to build {name}")]
    Topology {
        /// The machine.
        name: String,
        /// What the kernel said.
        #[source]
        source: TopologyError,
    },
    /// A name of the bench is none that a link can have.
    #[error(transparent)]
    Interface(#[from] InvalidInterface),
    /// A link does not come into service.
    #[error("link {link} of {name} is not in service after {} s", PATIENCE.as_secs())]
    NotRunning {
        /// The machine.
        name: String,
        /// The link.
        link: IfIndex,
    },
    /// There is no such card, or it has been unplugged.
    #[error("there is no card {0}")]
    NoSuchCard(usize),
    /// There is no such subnet.
    #[error("there is no subnet {0}")]
    NoSuchSubnet(u8),
}

/// How long a link may take to come into service once both its ends are up.
const PATIENCE: Duration = Duration::from_secs(5);

/// One machine of the bench.
#[derive(Debug)]
pub struct Site {
    namespace: Namespace,
    net: Topology,
}

impl Site {
    /// Makes a machine with nothing but its loopback interface.
    ///
    /// # Errors
    ///
    /// When the kernel gives no network namespace.
    pub fn new(name: &str) -> Result<Self, BenchError> {
        let namespace = Namespace::new(name).map_err(|source| BenchError::Namespace {
            name: name.to_owned(),
            source,
        })?;
        let failed = |source| BenchError::Topology {
            name: name.to_owned(),
            source,
        };
        let net = namespace.run(Topology::open).map_err(failed)?;
        let site = Self { namespace, net };
        let loopback = site.index_of(&"lo".parse()?)?;
        site.net(|net| net.set_up(loopback, true))?;
        Ok(site)
    }

    /// Its name, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Its network namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs a closure on the machine and waits for it.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.namespace.run(job)
    }

    /// Starts a program on the machine. The caller ends it.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn spawn(&self, mut command: Command) -> io::Result<Child> {
        self.run(move || command.spawn())
    }

    /// Changes links, addresses, routes or rules.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn net<T>(
        &self,
        change: impl FnOnce(&Topology) -> Result<T, TopologyError>,
    ) -> Result<T, BenchError> {
        change(&self.net).map_err(|source| BenchError::Topology {
            name: self.name().to_owned(),
            source,
        })
    }

    /// Listens from now on to what the kernel announces about the machine's routes and
    /// rules.
    ///
    /// # Errors
    ///
    /// When the process may not open more files.
    pub fn monitor(&self) -> Result<Monitor, BenchError> {
        self.run(Monitor::open)
            .map_err(|source| BenchError::Topology {
                name: self.name().to_owned(),
                source,
            })
    }

    /// The index of a link.
    ///
    /// # Errors
    ///
    /// When there is no such link.
    pub fn index_of(&self, name: &InterfaceName) -> Result<IfIndex, BenchError> {
        self.net(|net| net.index_of(name))
    }

    /// Sets sysctls below `/proc/sys/net`, each a path such as `ipv4/ip_forward` and a
    /// value. They count for this network namespace alone.
    ///
    /// # Errors
    ///
    /// When one cannot be written, for instance because `/proc/sys` is read-only.
    pub fn sysctl<K: Into<String>>(
        &self,
        settings: impl IntoIterator<Item = (K, &'static str)>,
    ) -> Result<(), BenchError> {
        let settings: Vec<(String, &str)> = settings
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect();
        let name = self.name().to_owned();
        self.run(move || {
            for (key, value) in settings {
                if let Err(source) = std::fs::write(format!("/proc/sys/net/{key}"), value) {
                    return Err(BenchError::Sysctl {
                        name,
                        key,
                        value: value.to_owned(),
                        source,
                    });
                }
            }
            Ok(())
        })
    }

    /// Waits until a link is in service. Before that the kernel loses what needs IPv6 there.
    ///
    /// # Errors
    ///
    /// When it does not come into service within five seconds.
    pub fn await_running(&self, link: IfIndex) -> Result<(), BenchError> {
        let started = Instant::now();
        while !self.net(|net| net.is_running(link))? {
            if started.elapsed() > PATIENCE {
                return Err(BenchError::NotRunning {
                    name: self.name().to_owned(),
                    link,
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Connects two machines, or one with itself, by a veth pair; both ends are down.
    /// Returns the index of each end.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, for instance because a name is taken.
    pub fn connect(
        &self,
        here: (&InterfaceName, Option<Mac>),
        other: &Self,
        there: (&InterfaceName, Option<Mac>),
    ) -> Result<(IfIndex, IfIndex), BenchError> {
        let end = |(name, mac): (&InterfaceName, Option<Mac>), namespace| VethEnd {
            name: name.clone(),
            mac,
            namespace,
        };
        let ours = end(here, self.namespace.as_fd());
        let theirs = end(there, other.namespace.as_fd());
        self.net(|net| net.add_veth(&ours, &theirs))?;
        Ok((self.index_of(here.0)?, other.index_of(there.0)?))
    }
}
