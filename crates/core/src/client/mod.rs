//! One parser per DHCP client, and the registry that names them.
//!
//! A client is a module with an `Adapter` and one row of the registry.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::{Event, Parsed, RawEvent, Refusal};
use crate::interface::{IfIndex, InterfaceName};

mod dhclient;
mod dhcpcd;
mod fields;
mod networkd;
mod networkmanager;
mod script;
mod udhcpc;
mod wicked;

/// The word by which a shim says that the client has not done its work yet.
const AHEAD: &str = "ahead";

/// What has to be known of a client.
trait Adapter {
    /// Parses what its hook received.
    fn parse(&self, raw: &RawEvent) -> Result<Parsed, Refusal>;

    /// Whether its hook was called before the client has put the address on the interface,
    /// and is called again after that.
    fn is_ahead(&self, _raw: &RawEvent) -> bool {
        false
    }

    /// Whether a variable of its hook belongs to the event and its lease.
    fn describes_lease(&self, variable: &str) -> bool;

    /// Whether a variable of its hook says what the event is.
    fn identifies_event(&self, variable: &str) -> bool;

    /// Whether its hook gets arguments that say what the event is.
    fn takes_arguments(&self) -> bool {
        false
    }

    /// The interface's name in what the hook received, when it keeps a lease file.
    fn lease_file_of<'a>(&self, _raw: &'a RawEvent) -> Option<&'a str> {
        None
    }

    /// Where it keeps the lease of an interface, when its hook is not told of it.
    fn lease_file(&self, _name: &InterfaceName, _index: IfIndex) -> Option<String> {
        None
    }
}

/// Makes [`Client`] of rows: what it is, the variant, its name and its module.
macro_rules! registry {
    ($($(#[$about:meta])* $variant:ident = $name:literal in $module:ident;)+) => {
        /// A DHCP client whose hooks we understand.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[non_exhaustive]
        pub enum Client {
            $($(#[$about])* #[serde(rename = $name)] $variant,)+
        }

        impl Client {
            /// Every client, in the order they are listed.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name on the command line and in files.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            fn adapter(self) -> &'static dyn Adapter {
                match self {
                    $(Self::$variant => &$module::Adapter,)+
                }
            }
        }
    };
}

registry! {
    /// ISC dhclient 4.x.
    Dhclient = "dhclient" in dhclient;
    /// dhcpcd 9 and 10.
    Dhcpcd = "dhcpcd" in dhcpcd;
    /// busybox udhcpc and udhcpc6.
    Udhcpc = "udhcpc" in udhcpc;
    /// systemd-networkd, through networkd-dispatcher.
    NetworkdDispatcher = "networkd-dispatcher" in networkd;
    /// NetworkManager's dispatcher, 1.20 or later.
    NmDispatcher = "nm-dispatcher" in networkmanager;
    /// wicked of SUSE.
    Wicked = "wicked" in wicked;
    /// A shell script, or whatever else calls `leaseroute apply --interface`.
    Script = "script" in script;
}

/// The name is none of the clients that are understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} is none of the clients that are understood ({known})", crate::Quoted(.name), known = Client::names())]
pub struct UnknownClient {
    name: String,
}

impl Client {
    /// Parses what its hook received.
    ///
    /// # Errors
    ///
    /// When the event must be refused whole: no usable interface name, or an address that no
    /// host can have. Lesser trouble drops a field and is listed in the result.
    pub fn parse(self, raw: &RawEvent) -> Result<Parsed, Refusal> {
        let adapter = self.adapter();
        let parsed = adapter.parse(raw);
        if adapter.is_ahead(raw) {
            Ok(ahead(parsed))
        } else {
            parsed
        }
    }

    /// Whether a variable of its hook belongs to the event and its lease. All others are of
    /// the environment it runs in, and may hold secrets.
    #[must_use]
    pub fn describes_lease(self, variable: &str) -> bool {
        self.adapter().describes_lease(variable)
    }

    /// Whether a variable of its hook says what the event is: its reason or its interface, in
    /// words that are no secret.
    #[must_use]
    pub fn identifies_event(self, variable: &str) -> bool {
        self.adapter().identifies_event(variable)
    }

    /// Whether its hook gets arguments that say what the event is. Those of other hooks are
    /// of whoever started them.
    #[must_use]
    pub fn takes_arguments(self) -> bool {
        self.adapter().takes_arguments()
    }

    /// The interface whose lease file its hook has to read, when it keeps any: a name that
    /// nobody has checked.
    #[must_use]
    pub fn lease_file_of(self, raw: &RawEvent) -> Option<&str> {
        self.adapter().lease_file_of(raw)
    }

    /// The file that it keeps the lease of an interface in, when its hook is not told of it.
    #[must_use]
    pub fn lease_file(self, name: &InterfaceName, index: IfIndex) -> Option<String> {
        self.adapter().lease_file(name, index)
    }

    fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|client| client.name()).collect();
        names.join(", ")
    }
}

/// What a hook is told of before the client has done its work. Only what brings an address
/// matters then; all else, and what cannot be believed, the hook after it tells of.
fn ahead(parsed: Result<Parsed, Refusal>) -> Parsed {
    let event = parsed.ok().and_then(|parsed| parsed.event).map(|event| {
        let mut changes = event.changes;
        changes.retain(|change| !change.gained_addresses().is_empty());
        Event {
            changes,
            ahead: true,
            ..event
        }
    });
    Parsed {
        event: event.filter(|event| !event.changes.is_empty()),
        dropped: Vec::new(),
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Client {
    type Err = UnknownClient;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|client| client.name() == name);
        found.copied().ok_or_else(|| UnknownClient {
            name: name.to_owned(),
        })
    }
}
