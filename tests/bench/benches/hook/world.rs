//! A host with cards that a DHCP client has just configured, and the hook's events for it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use leaseroute_core::{Family, IfIndex};
use leaseroute_kernel::topology::{Lifetime, NewAddress};
use leaseroute_lab::fabric::{Card, Fabric, Ipv6Style, Layout};
use leaseroute_lab::site::Site;

use crate::error::BenchError;
use crate::objects::{self, Objects};
use crate::race::Program;

/// What tables are numbered from, the default of the configuration.
const TABLES: u32 = 76_000;

/// A host, the state folder of its hooks, and a folder for batch files.
pub(crate) struct World {
    fabric: Fabric,
    hook: PathBuf,
    /// `LEASEROUTE_STATE_DIR`, on a tmpfs as /run is.
    root: PathBuf,
    /// The part of it that belongs to the host's network namespace.
    state: PathBuf,
    /// `LEASEROUTE_CONFIG_DIR`; need not exist.
    configuration: PathBuf,
}

impl World {
    /// A host with as many cards, each with an IPv4 and an IPv6 lease in the kernel, and
    /// nothing of ours yet.
    pub(crate) fn new(cards: u8, hook: &Path, root: &Path) -> Result<Self, BenchError> {
        let layout = Layout {
            neighbours: false,
            ..Layout::separate(cards)
        };
        let fabric = Fabric::new(&layout)?;
        for card in fabric.cards() {
            fabric.configure_static(card.number, Ipv6Style::Dhcp)?;
        }
        let inode = fabric
            .host()
            .run(|| fs::metadata("/proc/thread-self/ns/net").map(|namespace| namespace.ino()));
        let inode = inode.map_err(|source| BenchError::File {
            path: "/proc/thread-self/ns/net".into(),
            source,
        })?;
        let world = Self {
            fabric,
            hook: hook.to_owned(),
            root: root.to_owned(),
            state: root.join(inode.to_string()),
            configuration: root.join(format!("{inode}.etc")),
        };
        // The number may have been another world's.
        for folder in [&world.state, &world.configuration] {
            match fs::remove_dir_all(folder) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(folder, source));
                }
                _ => {}
            }
        }
        Ok(world)
    }

    pub(crate) fn host(&self) -> &Site {
        self.fabric.host()
    }

    pub(crate) fn card(&self, number: usize) -> Result<&Card, BenchError> {
        Ok(self.fabric.card(number)?)
    }

    pub(crate) fn cards(&self) -> impl Iterator<Item = &Card> {
        self.fabric.cards()
    }

    /// Writes the hook's configuration.
    pub(crate) fn configure(&self, text: &str) -> Result<(), BenchError> {
        let path = self.configuration.join("config.toml");
        fs::create_dir_all(&self.configuration)
            .and_then(|()| fs::write(&path, text))
            .map_err(|source| failed(&path, source))
    }

    /// The hook of a lease that a card has got or renewed, with the variables that
    /// dhclient gives it.
    pub(crate) fn event(&self, card: &Card, family: Family, is_renewal: bool) -> Program {
        let lease: String = match family {
            Family::Ipv4 => lease4(card),
            Family::Ipv6 => lease6(card),
        };
        let reason = match (family, is_renewal) {
            (Family::Ipv4, false) => "BOUND",
            (Family::Ipv4, true) => "RENEW",
            (Family::Ipv6, false) => "BOUND6",
            (Family::Ipv6, true) => "RENEW6",
        };
        let mut program = Program::new(&self.hook)
            .variable("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .variable("LEASEROUTE_STATE_DIR", &self.root)
            .variable("LEASEROUTE_CONFIG_DIR", &self.configuration)
            .variable("interface", card.name.as_str())
            .variable("reason", reason);
        for (name, value) in lease.lines().filter_map(|line| line.split_once('=')) {
            program = program.variable(name, value);
            if let (true, Some(kind)) = (is_renewal, name.strip_prefix("new_")) {
                program = program.variable(&format!("old_{kind}"), value);
            }
        }
        program
    }

    /// Lets the hook take in a lease of every card.
    pub(crate) fn bind_all(&self, family: Family) -> Result<(), BenchError> {
        for card in self.cards() {
            self.event(card, family, false).output(self.host())?;
        }
        Ok(())
    }

    /// Gives a card more addresses, dynamic ones of the kind that an RA makes for IPv6 and
    /// permanent ones for IPv4.
    pub(crate) fn add_addresses(
        &self,
        card: &Card,
        family: Family,
        count: u16,
    ) -> Result<(), BenchError> {
        for number in 0..count {
            let [high, low] = (number + 256).to_be_bytes();
            let (text, lifetime) = match family {
                Family::Ipv4 => (format!("10.77.{high}.{low}/32"), None),
                Family::Ipv6 => (
                    format!("2001:db8:0:{:x}::{:x}/64", card.subnet, number + 256),
                    Some(Lifetime {
                        valid: 3600,
                        preferred: 3600,
                    }),
                ),
            };
            let Ok(address) = text.parse() else { continue };
            let new = NewAddress {
                lifetime,
                nodad: true,
                noprefixroute: true,
                ..NewAddress::permanent(address)
            };
            self.host().net(|net| net.add_address(card.link, &new))?;
        }
        Ok(())
    }

    /// The words that make `dumps` read what the hook of a family reads.
    pub(crate) fn dumped(&self, program: &Path, family: Family) -> Program {
        let links = || self.cards().map(|card| card.link.get());
        let mut program = Program::new(program);
        program = match family {
            Family::Ipv4 => program.argument("4"),
            Family::Ipv6 => links().fold(program.argument("6"), |program, link| {
                program.argument(format!("main:{link}"))
            }),
        };
        links().fold(program, |program, link| {
            program.argument((TABLES + link).to_string())
        })
    }

    /// Where the lease of a card is remembered.
    pub(crate) fn record(&self, link: IfIndex, family: Family) -> PathBuf {
        let name = format!("{}.{}.json", link.get(), digit(family));
        self.state.join("leases").join(name)
    }

    /// How many reconciliations of a family changed something so far.
    pub(crate) fn runs(&self, family: Family) -> Result<u64, BenchError> {
        let path = self.state.join(format!("last.{}.json", digit(family)));
        let text = fs::read_to_string(&path).map_err(|source| failed(&path, source))?;
        let last: serde_json::Value =
            serde_json::from_str(&text).map_err(|source| BenchError::Text {
                what: "the outcome of the last run",
                source,
            })?;
        Ok(last
            .get("runs")
            .and_then(|runs| runs.as_u64())
            .unwrap_or_default())
    }

    /// The hook's objects in the kernel.
    pub(crate) fn objects(&self, family: Family) -> Result<Objects, BenchError> {
        Objects::read(self.host(), family)
    }

    /// `ip -batch` with a text, which is written to a file now.
    pub(crate) fn batch(
        &self,
        family: Family,
        name: &str,
        text: &str,
    ) -> Result<(Program, PathBuf), BenchError> {
        let path = self
            .state
            .with_extension(format!("{name}.{}", digit(family)));
        fs::create_dir_all(&self.root)
            .and_then(|()| fs::write(&path, text))
            .map_err(|source| failed(&path, source))?;
        Ok((objects::ip(family).argument("-batch").argument(&path), path))
    }
}

pub(crate) fn digit(family: Family) -> char {
    match family {
        Family::Ipv4 => '4',
        Family::Ipv6 => '6',
    }
}

fn failed(path: &Path, source: io::Error) -> BenchError {
    BenchError::File {
        path: path.to_owned(),
        source,
    }
}

fn lease4(card: &Card) -> String {
    let (address, router, subnet) = (card.ipv4, card.gateway4(), card.subnet);
    format!(
        "new_ip_address={address}
new_subnet_mask=255.255.255.0
new_broadcast_address=10.0.{subnet}.255
new_network_number=10.0.{subnet}.0
new_routers={router}
new_dhcp_lease_time=3600
new_dhcp_message_type=5
new_dhcp_server_identifier={router}
new_domain_name=example.com
new_domain_name_servers={router} 198.51.100.53
new_domain_search=example.com. lab.example.com.
new_expiry=1796054501
new_host_name=client1
new_ntp_servers=198.51.100.123
pid=22
requested_broadcast_address=1
requested_domain_name=1
requested_domain_name_servers=1
requested_host_name=1
requested_interface_mtu=1
requested_rfc3442_classless_static_routes=1
requested_routers=1
requested_subnet_mask=1
requested_time_offset=1"
    )
}

fn lease6(card: &Card) -> String {
    let (address, number) = (card.ipv6, card.number);
    format!(
        "new_ip6_address={address}
new_ip6_prefixlen=128
new_max_life=3600
new_preferred_life=2400
new_life_starts=1796052241
new_starts=1796052241
new_renew=1200
new_rebind=1920
new_iaid=00:ca:00:{number:02x}
new_dhcp6_client_id=0:3:0:1:2:0:0:ca:0:{number:x}
new_dhcp6_server_id=0:1:0:1:32:a0:51:8a:0:0:5e:0:53:f0
new_dhcp6_domain_search=example.com. lab.example.com.
new_dhcp6_name_servers=2001:db8::1 2001:db8:ffff::53
pid=446
requested_dhcp6_domain_search=1
requested_dhcp6_fqdn=1
requested_dhcp6_name_servers=1
requested_dhcp6_sntp_servers=1"
    )
}
