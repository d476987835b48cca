//! The parts that answers have in common, as text and as JSON.
//!
//! The JSON of every answer is an object with a `version` (see [`FORMAT`]); docs/json.md
//! describes it.

use std::collections::BTreeSet;
use std::fmt;

use ipnetwork::IpNetwork;
use leaseroute_core::{
    Dropped, Event, Family, GivenRoute6, Lease, Lease4, Lease6, LeaseState, Note, Parsed, Plan,
    RawEvent, Said, Step,
};
use serde::Serialize;

/// The version of all JSON answers. It grows when a field changes its meaning or goes
/// away, not when one is added.
pub(crate) const FORMAT: u32 = 1;

/// What an event means.
#[derive(Debug, Serialize)]
pub(crate) struct EventView {
    /// The client whose hook received it.
    client: &'static str,
    /// `null` when the client's reason changes no lease.
    event: Option<Event>,
    /// Fields that were not used.
    dropped: Vec<Dropped>,
}

impl EventView {
    pub(crate) fn new(raw: &RawEvent, parsed: Parsed) -> Self {
        Self {
            client: raw.client.name(),
            event: parsed.event,
            dropped: parsed.dropped,
        }
    }
}

impl fmt::Display for EventView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.event {
            Some(event) => writeln!(
                f,
                "# {} of {}: {} ({})",
                event.reason,
                self.client,
                event.interface,
                event.family_names()
            )?,
            None => writeln!(f, "# event of {}: its reason changes no lease", self.client)?,
        }
        for dropped in &self.dropped {
            writeln!(f, "# {dropped}")?;
        }
        Ok(())
    }
}

/// One change.
#[derive(Debug, Serialize)]
pub(crate) struct StepView {
    /// The ip(8) command that makes it.
    pub(crate) command: String,
    /// Why it is made.
    pub(crate) why: String,
    /// The change in all its parts.
    change: Step,
}

impl StepView {
    /// All steps of a plan.
    pub(crate) fn all(plan: &Plan) -> Vec<Self> {
        let view = |step: &Step| Self::new(plan, step);
        plan.steps.iter().map(view).collect()
    }

    /// One step of a plan.
    pub(crate) fn new(plan: &Plan, step: &Step) -> Self {
        Self {
            command: plan.command(step).to_string(),
            why: match &step.purpose {
                Some(purpose) => purpose.to_string(),
                None => "no longer wanted".to_owned(),
            },
            change: step.clone(),
        }
    }
}

impl fmt::Display for StepView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  # {}", self.command, self.why)
    }
}

/// Something that an administrator should know.
#[derive(Debug, Serialize)]
pub(crate) struct NoteView {
    /// In words.
    text: String,
    /// In all its parts.
    detail: Note,
}

impl From<&Note> for NoteView {
    fn from(note: &Note) -> Self {
        Self {
            text: note.to_string(),
            detail: note.clone(),
        }
    }
}

impl fmt::Display for NoteView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// "no change", "1 change", "2 changes".
pub(crate) struct Count(pub(crate) usize);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no change"),
            1 => f.write_str("1 change"),
            n => write!(f, "{n} changes"),
        }
    }
}

/// A lease in words.
pub(crate) struct LeaseWords<'a> {
    pub(crate) state: &'a LeaseState,
    /// In seconds since 1970.
    pub(crate) now: u64,
}

impl fmt::Display for LeaseWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            LeaseState::Lost => f.write_str("none: the client said that it is gone"),
            LeaseState::Held(Lease::Ipv4(lease)) => self.lease4(lease, f),
            LeaseState::Held(Lease::Ipv6(lease)) => self.lease6(lease, f),
        }
    }
}

impl LeaseWords<'_> {
    fn lease4(&self, lease: &Lease4, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", lease.address)?;
        if let Some(length) = lease.prefix_length {
            write!(f, "/{length}")?;
        }
        for other in &lease.others {
            write!(f, " and {other}")?;
        }
        if let Some(router) = lease.router {
            write!(f, ", router {router}")?;
        }
        if let Some(classless) = &lease.classless {
            let count = classless.routes.len();
            let plural = if count == 1 { "" } else { "s" };
            write!(f, ", {count} route{plural} ({})", classless.option)?;
        }
        if let Some(mtu) = lease.mtu {
            write!(f, ", MTU {mtu}")?;
        }
        self.end(lease.expires, f)
    }

    fn lease6(&self, lease: &Lease6, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = lease.addresses.iter();
        let addresses = addresses.map(|(address, life)| (address.to_string(), life.expires));
        let prefixes = lease.prefixes.iter();
        let prefixes = prefixes.map(|(prefix, life)| (prefix.to_string(), life.expires));
        for (i, (text, expires)) in addresses.chain(prefixes).enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            f.write_str(&text)?;
            self.end(expires, f)?;
        }
        let (defaults, others): (Vec<&GivenRoute6>, Vec<&GivenRoute6>) = lease
            .routes
            .iter()
            .partition(|r| r.destination.prefix() == 0);
        for router in defaults.into_iter().filter_map(|route| route.gateway) {
            write!(f, "; router {router}")?;
        }
        match others.len() {
            0 => Ok(()),
            1 => f.write_str("; 1 route"),
            count => write!(f, "; {count} routes"),
        }
    }

    fn end(&self, expires: Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match expires {
            None => Ok(()),
            Some(end) if end > self.now => write!(f, ", for {} s more", end - self.now),
            Some(end) => write!(f, ", ran out {} s ago", self.now - end),
        }
    }
}

/// Whether rules are in force for a family, and why not.
pub(crate) fn inactive(family: Family, uplinks: usize) -> String {
    let plural = if uplinks == 1 { "" } else { "s" };
    format!(
        "{family} has {uplinks} uplink{plural}, and rules are written from 2 on (when = \"multihomed\")"
    )
}

/// What a service says, in one line.
pub(crate) struct SaidWords<'a>(pub(crate) &'a Said);

impl fmt::Display for SaidWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| items.join(" ");
        let Said {
            addresses,
            prefixes,
            subnets,
            gateway,
            is_unserved,
        } = self.0;
        let networks =
            |set: &BTreeSet<IpNetwork>| list(set.iter().map(ToString::to_string).collect());
        if self.0.is_empty() {
            return f.write_str("the card has none");
        }
        let mut comma = "";
        if !addresses.is_empty() {
            let addresses = addresses.iter().map(ToString::to_string);
            f.write_str(&list(addresses.collect()))?;
            comma = ", ";
        }
        if !prefixes.is_empty() {
            write!(f, "{comma}routed here {}", networks(prefixes))?;
        }
        if !subnets.is_empty() {
            write!(f, ", subnet {}", networks(subnets))?;
        }
        if let Some(gateway) = gateway {
            write!(f, ", router {gateway}")?;
        }
        if *is_unserved {
            f.write_str(", no DHCP")?;
        }
        Ok(())
    }
}
