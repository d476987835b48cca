//! Things that people lose days over, said in the log and in `status`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::Serialize;

use crate::interface::{Device, IfIndex, InterfaceName};
use crate::numbers::{InvalidNumber, TableId};
use crate::route::ObservedRoute;
use crate::rule::ObservedRule;

/// Something that the routing model met and that an administrator should know. Notes are
/// not failures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// The leased address is not on the interface, so nothing is set up for it.
    AddressMissing {
        /// The interface of the lease.
        device: Device,
        /// The leased address.
        address: IpAddr,
    },
    /// One address is leased to two uplinks: no source rule can tell them apart.
    SharedAddress {
        /// The address.
        address: IpAddr,
        /// The interfaces that hold it.
        devices: Vec<Device>,
    },
    /// A foreign rule that comes before our last one may catch one of our sources.
    Overruled {
        /// The source that may not reach our rules.
        source: IpAddr,
        /// The rule that may take it.
        rule: ObservedRule,
    },
    /// Rules carry our tag, but not numbers of the configuration: it was changed, and they
    /// were left over.
    Orphaned {
        /// The first of them.
        rule: ObservedRule,
        /// How many there are.
        count: usize,
    },
    /// A delegated prefix overlaps what another uplink has, so it is no source.
    ContestedPrefix {
        /// The interface of the lease.
        device: Device,
        /// The delegated prefix.
        prefix: IpNetwork,
        /// The uplink that has addresses in it.
        holder: Device,
    },
    /// More is advertised on an interface's link than is taken.
    TooMany {
        /// The interface.
        device: Device,
        /// What there are too many of, in words.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many are taken.
        limit: usize,
    },
    /// A lease's route is shorter than /8: few servers mean that.
    WideRoute {
        /// The interface of the lease.
        device: Device,
        /// The route's prefix.
        destination: IpNetwork,
    },
    /// A foreign route stands in our table where one of ours should be.
    ForeignRoute {
        /// The interface of the table.
        device: Device,
        /// The route that is in the way.
        route: ObservedRoute,
    },
    /// The interface belongs to a bridge, bond or VRF and is left alone.
    HasMaster {
        /// The interface.
        device: Device,
        /// Its master's name, when it is in the same namespace.
        master: Option<InterfaceName>,
    },
    /// The interface is down and keeps no routes.
    LinkDown {
        /// The interface.
        device: Device,
    },
    /// The configuration says to leave the interface alone.
    Unmanaged {
        /// The interface.
        device: Device,
    },
    /// The numbering scheme gives the interface a table that it must not have.
    NoTable {
        /// The interface.
        device: Device,
        /// What is wrong with the number.
        #[serde(serialize_with = "as_text")]
        why: InvalidNumber,
    },
    /// Two interfaces would share one table.
    SharedTable {
        /// The table.
        table: TableId,
        /// The interfaces; only the first one gets it.
        devices: Vec<Device>,
    },
}

impl Note {
    /// Whether the note is about one of these interfaces, or about the host as a whole.
    #[must_use]
    pub fn concerns(&self, interfaces: &BTreeSet<IfIndex>) -> bool {
        let among = |device: &Device| interfaces.contains(&device.index);
        match self {
            Self::AddressMissing { device, .. }
            | Self::ContestedPrefix { device, .. }
            | Self::TooMany { device, .. }
            | Self::WideRoute { device, .. }
            | Self::ForeignRoute { device, .. }
            | Self::HasMaster { device, .. }
            | Self::LinkDown { device }
            | Self::Unmanaged { device }
            | Self::NoTable { device, .. } => among(device),
            Self::SharedAddress { devices, .. } | Self::SharedTable { devices, .. } => {
                devices.iter().any(among)
            }
            Self::Overruled { .. } => true,
            // No event brings them or takes them away, so none repeats it.
            Self::Orphaned { .. } => false,
        }
    }
}

fn as_text<T: fmt::Display, S: serde::Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

struct Names<'a>(&'a [Device]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, device) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(if i + 1 == self.0.len() { " and " } else { ", " })?;
            }
            device.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressMissing { device, address } => write!(
                f,
                "leased address {address} is not on {device}, so nothing is set up for it"
            ),
            Self::SharedAddress { address, devices } => write!(
                f,
                "address {address} is on {}: rules cannot tell them apart, only sockets bound to a device work on each",
                Names(devices)
            ),
            Self::Overruled { source, rule } => write!(
                f,
                "a foreign rule comes first and may catch packets from {source}: {rule} (protocol {})",
                rule.protocol
            ),
            Self::Orphaned { rule, count } => write!(
                f,
                "rules with our protocol {} have numbers that the configuration does not name; they are left, delete them if it was changed ({count}, the first: {rule})",
                rule.protocol
            ),
            Self::ContestedPrefix {
                device,
                prefix,
                holder,
            } => write!(
                f,
                "the prefix {prefix} delegated to {device} overlaps what {holder} has and is left out: check who delegates it, the DHCP server of {device} or the metadata service"
            ),
            Self::TooMany {
                device,
                what,
                count,
                limit,
            } => write!(
                f,
                "{count} {what} are advertised on {device}, of which {limit} are taken: check the routers of its link"
            ),
            Self::WideRoute {
                device,
                destination,
            } => write!(
                f,
                "the lease of {device} has a route for {destination}, shorter than /8: unusual, check the DHCP server"
            ),
            Self::ForeignRoute { device, route } => write!(
                f,
                "a foreign route (protocol {}) stands in table {} of {device} and is left there: {}",
                route.protocol,
                route.table,
                route.describe(None)
            ),
            Self::HasMaster {
                device,
                master: Some(master),
            } => write!(
                f,
                "{device} belongs to {master} and is left alone; the lease should be on {master}"
            ),
            Self::HasMaster {
                device,
                master: None,
            } => {
                write!(f, "{device} belongs to another interface and is left alone")
            }
            Self::LinkDown { device } => write!(
                f,
                "{device} is down and can hold no routes; the next event after it is up completes it"
            ),
            Self::Unmanaged { device } => {
                write!(
                    f,
                    "{device} is left alone: the configuration says manage = false"
                )
            }
            Self::NoTable { device, why } => write!(f, "{device} gets no table: {why}"),
            Self::SharedTable { table, devices } => write!(
                f,
                "{} would share table {table}: only the first gets it, give the others a table in the configuration",
                Names(devices)
            ),
        }
    }
}
