//! dnsmasq and radvd on a router of the fabric.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use leaseroute_core::Family;
use leaseroute_lab::fabric::{Card, Layout};

use crate::daemon::{Daemon, tethered};
use crate::host::Host;
use crate::machine::{Hook, Machine};

/// How a subnet hands out IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6 {
    /// By DHCPv6; the RA gives the prefix and the router.
    Dhcp,
    /// By RA alone.
    Slaac,
    /// By both: two addresses.
    Both,
    /// Not at all.
    Without,
}

/// What a subnet's servers say.
#[derive(Clone, Debug)]
pub struct Lan {
    /// When clients renew, in seconds; `None`: half an hour.
    pub t1: Option<u32>,
    /// The last octets of the routers of option 3; none: no option.
    pub routers: Vec<u8>,
    /// IPv6.
    pub v6: Ipv6,
    /// Whether IPv4 addresses are given out.
    pub dhcp4: bool,
    /// The router that advertises itself: 1 is fe80::1.
    pub router6: u16,
    /// For how long it is one, in seconds; 0: not any more.
    pub router6_lifetime: u16,
    /// Whether 2001:db8:1:N::/64 is advertised in the place of 2001:db8:0:N::/64, which is
    /// withdrawn.
    pub renumbered: bool,
    /// More lines of dnsmasq's configuration.
    pub extra: Vec<String>,
}

impl Default for Lan {
    fn default() -> Self {
        Self {
            t1: None,
            routers: vec![1],
            v6: Ipv6::Dhcp,
            dhcp4: true,
            router6: 1,
            router6_lifetime: 1800,
            renumbered: false,
            extra: Vec::new(),
        }
    }
}

/// The servers of one subnet.
#[derive(Debug)]
pub struct Servers {
    subnet: u8,
    _dhcp: Daemon,
    radvd: Option<Daemon>,
}

impl Servers {
    /// Starts the servers of a subnet for the cards that are in it now, each of which gets
    /// the address that the fabric allows it.
    #[must_use]
    pub fn start(machine: &Host, subnet: u8, lan: &Lan) -> Self {
        let file = |name: &str| machine.folder().join(format!("{name}{subnet}"));
        let conf = file("dnsmasq.conf");
        fs::write(&conf, dnsmasq(&cards(machine, subnet), subnet, lan)).unwrap();
        let mut command = tethered("dnsmasq");
        command.args(["-k", "--log-facility=-", "--pid-file"]);
        command.arg(format!("--conf-file={}", conf.display()));
        let router = machine.fabric.router(subnet).unwrap();
        let dhcp = Daemon::start(router, command, &file("dnsmasq.log"));
        let mut servers = Self {
            subnet,
            _dhcp: dhcp,
            radvd: None,
        };
        servers.advertise(machine, lan);
        servers
    }

    /// Ends what advertises the router and starts it anew.
    pub fn advertise(&mut self, machine: &Host, lan: &Lan) {
        let subnet = self.subnet;
        drop(self.radvd.take());
        if lan.v6 == Ipv6::Without {
            return;
        }
        let file = |name: &str| machine.folder().join(format!("{name}{subnet}"));
        let conf = file("radvd.conf");
        fs::write(&conf, radvd(&cards(machine, subnet), subnet, lan)).unwrap();
        let mut command = tethered("radvd");
        let pid: PathBuf = file("radvd.pid");
        command
            .args(["-n", "-m", "stderr"])
            .arg("-C")
            .arg(&conf)
            .arg("-p")
            .arg(&pid);
        let router = machine.fabric.router(subnet).unwrap();
        self.radvd = Some(Daemon::start(router, command, &file("radvd.log")));
    }

    /// The servers of every subnet.
    #[must_use]
    pub fn start_all(machine: &Host, lan: &Lan) -> Vec<Self> {
        let mut subnets: Vec<u8> = machine.fabric.cards().map(|card| card.subnet).collect();
        subnets.dedup();
        subnets
            .into_iter()
            .map(|subnet| Self::start(machine, subnet, lan))
            .collect()
    }

    /// Ends these servers and starts others in their place.
    #[must_use]
    pub fn change(self, machine: &Host, lan: &Lan) -> Self {
        let subnet = self.subnet;
        drop(self);
        Self::start(machine, subnet, lan)
    }
}

/// A host whose cards are all bound in both families, and its servers.
#[must_use]
pub fn bound(layout: &Layout, lan: &Lan) -> (Machine, Vec<Servers>) {
    let mut machine = Machine::new(layout, Hook::Installed);
    let servers = Servers::start_all(&machine, lan);
    machine.start_clients(&Family::BOTH);
    for family in Family::BOTH {
        machine.wait_own(family, &machine.faces(family));
    }
    (machine, servers)
}

fn cards(machine: &Host, subnet: u8) -> Vec<Card> {
    let cards = machine.fabric.cards();
    cards
        .filter(|card| card.subnet == subnet)
        .cloned()
        .collect()
}

fn dnsmasq(cards: &[Card], subnet: u8, lan: &Lan) -> String {
    let mut text = String::from(
        "port=0\nbind-interfaces\nuser=root\ngroup=root\ndhcp-authoritative\nleasefile-ro\n\
         log-dhcp\nno-ping\n",
    );
    for card in cards {
        writeln!(text, "interface={}", card.port).unwrap();
        write!(text, "dhcp-host={},{}", card.mac, card.ipv4).unwrap();
        writeln!(text, ",[{}],{}", card.ipv6, card.name).unwrap();
    }
    if lan.dhcp4 {
        writeln!(
            text,
            "dhcp-range=10.0.{subnet}.200,10.0.{subnet}.250,255.255.255.0,1h"
        )
        .unwrap();
    }
    if matches!(lan.v6, Ipv6::Dhcp | Ipv6::Both) {
        writeln!(
            text,
            "dhcp-range=2001:db8:0:{subnet}::200,2001:db8:0:{subnet}::2ff,64,1h"
        )
        .unwrap();
    }
    let routers: Vec<String> = lan
        .routers
        .iter()
        .map(|last| Ipv4Addr::new(10, 0, subnet, *last).to_string())
        .collect();
    // Without a value dnsmasq leaves the option out, where it would else name itself.
    writeln!(
        text,
        "dhcp-option=option:router{}{}",
        comma(&routers),
        routers.join(",")
    )
    .unwrap();
    if let Some(t1) = lan.t1 {
        writeln!(
            text,
            "dhcp-option=option:T1,{t1}\ndhcp-option=option:T2,{}",
            t1 * 2
        )
        .unwrap();
    }
    for line in &lan.extra {
        writeln!(text, "{line}").unwrap();
    }
    text
}

fn comma(list: &[String]) -> &'static str {
    if list.is_empty() { "" } else { "," }
}

fn radvd(cards: &[Card], subnet: u8, lan: &Lan) -> String {
    let on = |yes| if yes { "on" } else { "off" };
    let managed = on(lan.v6 != Ipv6::Slaac);
    let autonomous = on(lan.v6 != Ipv6::Dhcp);
    let prefix = |site: u8, valid: u16, preferred: u16| {
        format!(
            "prefix 2001:db8:{site}:{subnet}::/64 {{ AdvOnLink on; AdvAutonomous {autonomous};\n\
             AdvValidLifetime {valid}; AdvPreferredLifetime {preferred}; }};"
        )
    };
    let prefixes = if lan.renumbered {
        format!("{}\n{}", prefix(0, 0, 0), prefix(1, 3600, 1800))
    } else {
        prefix(0, 3600, 1800)
    };
    let (router, lifetime) = (lan.router6, lan.router6_lifetime);
    let mut text = String::new();
    for card in cards {
        writeln!(
            text,
            "interface {} {{ AdvSendAdvert on; AdvRASrcAddress {{ fe80::{router:x}; }};\n\
             MinRtrAdvInterval 3; MaxRtrAdvInterval 4; MinDelayBetweenRAs 3; AdvDefaultLifetime {lifetime};\n\
             AdvManagedFlag {managed}; AdvOtherConfigFlag {managed};\n\
             {prefixes} }};",
            card.port
        )
        .unwrap();
    }
    text
}
