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
    /// More lines of dnsmasq's configuration.
    pub extra: Vec<String>,
}

impl Default for Lan {
    fn default() -> Self {
        Self {
            t1: None,
            routers: vec![1],
            v6: Ipv6::Dhcp,
            extra: Vec::new(),
        }
    }
}

/// The servers of one subnet.
#[derive(Debug)]
pub struct Servers {
    subnet: u8,
    _daemons: Vec<Daemon>,
}

impl Servers {
    /// Starts the servers of a subnet for the cards that are in it now, each of which gets
    /// the address that the fabric allows it.
    #[must_use]
    pub fn start(machine: &Host, subnet: u8, lan: &Lan) -> Self {
        let cards: Vec<Card> = machine
            .fabric
            .cards()
            .filter(|card| card.subnet == subnet)
            .cloned()
            .collect();
        let router = machine.fabric.router(subnet).unwrap();
        let file = |name: &str| machine.folder().join(format!("{name}{subnet}"));
        let mut daemons = Vec::new();

        let conf = file("dnsmasq.conf");
        fs::write(&conf, dnsmasq(&cards, subnet, lan)).unwrap();
        let mut command = tethered("dnsmasq");
        command.args(["-k", "--log-facility=-", "--pid-file"]);
        command.arg(format!("--conf-file={}", conf.display()));
        daemons.push(Daemon::start(router, command, &file("dnsmasq.log")));

        if lan.v6 != Ipv6::Without {
            let conf = file("radvd.conf");
            fs::write(&conf, radvd(&cards, subnet, lan.v6)).unwrap();
            let mut command = tethered("radvd");
            let pid: PathBuf = file("radvd.pid");
            command
                .args(["-n", "-m", "stderr"])
                .arg("-C")
                .arg(&conf)
                .arg("-p")
                .arg(&pid);
            daemons.push(Daemon::start(router, command, &file("radvd.log")));
        }
        Self {
            subnet,
            _daemons: daemons,
        }
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
    writeln!(
        text,
        "dhcp-range=10.0.{subnet}.200,10.0.{subnet}.250,255.255.255.0,1h"
    )
    .unwrap();
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

fn radvd(cards: &[Card], subnet: u8, v6: Ipv6) -> String {
    let on = |yes| if yes { "on" } else { "off" };
    let managed = on(v6 != Ipv6::Slaac);
    let autonomous = on(v6 != Ipv6::Dhcp);
    let mut text = String::new();
    for card in cards {
        writeln!(
            text,
            "interface {} {{ AdvSendAdvert on; AdvRASrcAddress {{ fe80::1; }};\n\
             MinRtrAdvInterval 3; MaxRtrAdvInterval 4; MinDelayBetweenRAs 3; AdvDefaultLifetime 1800;\n\
             AdvManagedFlag {managed}; AdvOtherConfigFlag {managed};\n\
             prefix 2001:db8:0:{subnet}::/64 {{ AdvOnLink on; AdvAutonomous {autonomous};\n\
             AdvValidLifetime 3600; AdvPreferredLifetime 1800; }}; }};",
            card.port
        )
        .unwrap();
    }
    text
}
