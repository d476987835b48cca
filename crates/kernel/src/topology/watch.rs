//! What others did: a census of all rules and routes, and the kernel's announcements.
//!
//! A bench uses both to show that something changed nothing, so nothing is left out of
//! them but the clocks of routes that expire.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use leaseroute_core::{Family, ProtocolId, TableId};
use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage as Message;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleMessage};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::runtime::Runtime;

use super::message::address_family;
use super::{Topology, TopologyError, runtime};

/// A rule or a route, whoever made it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    /// Its family.
    pub family: Family,
    /// The table it is in, or leads to.
    pub table: TableId,
    /// Who is said to have made it.
    pub protocol: ProtocolId,
    /// All of it, for programmers to read.
    pub text: String,
}

/// Listens to what the kernel announces about routes and rules of one network namespace.
pub struct Monitor {
    runtime: Runtime,
    messages: BoxStream<'static, NetlinkMessage<Message>>,
}

impl Topology {
    /// All rules of both families.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be read.
    pub fn all_rules(&self) -> Result<Vec<Counted>, TopologyError> {
        self.census("read the rules", |family| {
            let mut question = RuleMessage::default();
            question.header.family = address_family(family);
            Message::GetRule(question)
        })
    }

    /// All routes of both families in every table.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be read.
    pub fn all_routes(&self) -> Result<Vec<Counted>, TopologyError> {
        self.census("read the routes", |family| {
            let mut question = RouteMessage::default();
            question.header.address_family = address_family(family);
            Message::GetRoute(question)
        })
    }

    fn census(
        &self,
        what: &str,
        question: impl Fn(Family) -> Message,
    ) -> Result<Vec<Counted>, TopologyError> {
        let mut found = Vec::new();
        for family in Family::BOTH {
            let mut request = NetlinkMessage::from(question(family));
            request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
            let Ok(mut answers) = self.handle.clone().request(request) else {
                return Err(TopologyError::Closed {
                    what: what.to_owned(),
                });
            };
            while let Some(answer) = self.runtime.block_on(answers.next()) {
                match answer.payload {
                    NetlinkPayload::Error(error) => {
                        return Err(TopologyError::Refused {
                            what: what.to_owned(),
                            source: error.to_io(),
                        });
                    }
                    NetlinkPayload::InnerMessage(message) => found.extend(counted(family, message)),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

impl Monitor {
    /// Listens in the calling thread's network namespace from now on.
    ///
    /// # Errors
    ///
    /// When the process may not open more files.
    pub fn open() -> Result<Self, TopologyError> {
        let runtime = runtime().map_err(TopologyError::Socket)?;
        let entered = runtime.enter();
        let groups = [
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Ipv4Rule,
            MulticastGroup::Ipv6Rule,
        ];
        let (connection, _, messages) =
            new_multicast_connection(&groups).map_err(TopologyError::Socket)?;
        drop(entered);
        runtime.spawn(connection);
        Ok(Self {
            runtime,
            messages: messages.map(|(message, _)| message).boxed(),
        })
    }

    /// Everything announced since the last call, for programmers to read; returns once
    /// the kernel has been silent for `silence`.
    pub fn announced(&mut self, silence: Duration) -> Vec<String> {
        let messages = &mut self.messages;
        self.runtime.block_on(async {
            let mut seen = Vec::new();
            while let Ok(Some(message)) = tokio::time::timeout(silence, messages.next()).await {
                seen.push(format!("{:?}", message.payload));
            }
            seen
        })
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

fn counted(family: Family, message: Message) -> Option<Counted> {
    let (table, protocol, text) = match message {
        Message::NewRule(rule) => {
            let number = rule
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    RuleAttribute::Table(table) => Some(*table),
                    _ => None,
                });
            let protocol = rule
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    RuleAttribute::Protocol(protocol) => Some(u8::from(*protocol)),
                    _ => None,
                });
            let table = number.unwrap_or_else(|| rule.header.table.into());
            (table, protocol.unwrap_or_default(), format!("{rule:?}"))
        }
        Message::NewRoute(mut route) => {
            // It holds the time that a route has left.
            let is_clock = |a: &RouteAttribute| matches!(a, RouteAttribute::CacheInfo(_));
            route.attributes.retain(|attribute| !is_clock(attribute));
            let number = route
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    RouteAttribute::Table(table) => Some(*table),
                    _ => None,
                });
            let table = number.unwrap_or_else(|| route.header.table.into());
            (table, u8::from(route.header.protocol), format!("{route:?}"))
        }
        _ => return None,
    };
    Some(Counted {
        family,
        table: TableId::observed(table),
        protocol: ProtocolId::observed(protocol),
        text,
    })
}
