//! What a provider is, and which there are.

use leaseroute_core::Said;

use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::finding::Why;
use crate::providers;

/// By which card the requests about a card leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By that card; the service answers on each.
    Card,
    /// By whichever the host's main table has: the service answers on the primary card only.
    Host,
}

/// What a service says of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Its IPv4 part. `None`: the service tells nothing of a card in this family.
    pub ipv4: Option<Said>,
    /// Its IPv6 part, likewise.
    pub ipv6: Option<Said>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask this, all of it, and come again.
    Ask(Vec<Request>),
    /// This is what the service says of the card.
    Said(Description),
    /// It says nothing that could be used.
    Nothing(Why),
}

/// What the firmware says of the machine, each value as it stands in /sys/class/dmi/id, and
/// empty when that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The system's vendor.
    pub sys_vendor: String,
    /// The product.
    pub product_name: String,
    /// The product's serial number.
    pub product_serial: String,
    /// The product's UUID.
    pub product_uuid: String,
    /// The chassis' asset tag.
    pub chassis_asset_tag: String,
    /// The chassis' vendor.
    pub chassis_vendor: String,
    /// The board's vendor.
    pub board_vendor: String,
    /// The board's asset tag.
    pub board_asset_tag: String,
    /// The vendor of the firmware.
    pub bios_vendor: String,
    /// The version of the firmware.
    pub bios_version: String,
    /// The hypervisor's UUID (/sys/hypervisor/uuid), on Xen.
    pub hypervisor_uuid: String,
    /// `compatible` and `model` of the device tree's root, on machines without SMBIOS.
    pub device_tree: Vec<String>,
}

/// A metadata service, without the network.
pub trait Provider: Sync {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// Whether the machine is one of its cloud.
    fn is_here(&self, identity: &Identity) -> bool;

    /// Where the service answers, the better address first.
    fn endpoints(&self) -> &'static [std::net::SocketAddr];

    /// By which card requests leave. Most services tell of all cards, by whichever they are
    /// asked.
    fn way(&self) -> Way {
        Way::Host
    }

    /// The most requests a second that its documents allow, by the whole host.
    fn rate(&self) -> u32;

    /// Paths whose answers stay good for later rounds, such as tokens, and for how long in
    /// seconds. When anything is answered with 401, they are good no more: forget them, and
    /// step again.
    fn lasting(&self) -> &'static [(&'static str, u64)] {
        &[]
    }

    /// What to ask next about a card, or what its service says of it, given all answers so
    /// far. Is called again after each answer, and never waits.
    fn step(&self, card: &Card, answers: &Answers) -> Step;
}

/// All providers, in the order in which they look at the machine.
#[must_use]
pub fn all() -> &'static [&'static dyn Provider] {
    providers::ALL
}

/// The provider of a name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Provider> {
    all().iter().copied().find(|p| p.name() == name)
}

/// The provider whose cloud the machine is one of.
#[must_use]
pub fn detect(identity: &Identity) -> Option<&'static dyn Provider> {
    all().iter().copied().find(|p| p.is_here(identity))
}
