//! A provider and a card for tests.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::allow_attributes,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use leaseroute_core::{Family, IfIndex, Said};
use leaseroute_metadata::{
    Answers, Card, Description, Identity, Provider, Request, Step, Way, Why,
};

/// A service that has a card's addresses at one path, one a line, and wants a token for it.
#[derive(Debug)]
pub struct Plain {
    pub way: Way,
    pub endpoints: &'static [SocketAddr],
    pub rate: u32,
    pub wants_token: bool,
}

pub static PLAIN: Plain = Plain {
    way: Way::Host,
    endpoints: &[],
    rate: 1000,
    wants_token: false,
};

impl Provider for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn is_here(&self, _: &Identity) -> bool {
        true
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        self.endpoints
    }

    fn way(&self) -> Way {
        self.way
    }

    fn rate(&self) -> u32 {
        self.rate
    }

    fn lasting(&self) -> &'static [(&'static str, u64)] {
        if self.wants_token {
            &[("/token", 30)]
        } else {
            &[]
        }
    }

    fn step(&self, _: &Card, answers: &Answers) -> Step {
        let mut request = Request::get("/card");
        if self.wants_token {
            let token = Request::put("/token");
            let Some(answer) = answers.to(&token) else {
                return Step::Ask(vec![token]);
            };
            let text = answer.text().unwrap_or("none");
            if text.starts_with('<') {
                return Step::Nothing(Why::Unreadable {
                    path: token.path,
                    why: "it is no token".to_owned(),
                });
            }
            request = request.with("x-token", text);
        }
        let Some(answer) = answers.to(&request) else {
            return Step::Ask(vec![request]);
        };
        let Some(text) = answer.text() else {
            return Step::Nothing(Why::Refused {
                path: request.path,
                status: answer.status,
            });
        };
        let all: Result<Vec<IpAddr>, _> = text.lines().map(str::parse).collect();
        match all {
            Ok(all) => {
                let of = |family| Said {
                    addresses: all
                        .iter()
                        .copied()
                        .filter(|a| Family::of(*a) == family)
                        .collect(),
                    ..Said::default()
                };
                Step::Said(Description {
                    ipv4: Some(of(Family::Ipv4)),
                    ipv6: Some(of(Family::Ipv6)),
                })
            }
            Err(error) => Step::Nothing(Why::Unreadable {
                path: request.path,
                why: error.to_string(),
            }),
        }
    }
}

/// A provider that never has enough.
#[derive(Debug)]
pub struct Insatiable;

impl Provider for Insatiable {
    fn name(&self) -> &'static str {
        "insatiable"
    }

    fn is_here(&self, _: &Identity) -> bool {
        false
    }

    fn endpoints(&self) -> &'static [SocketAddr] {
        &[]
    }

    fn way(&self) -> Way {
        Way::Host
    }

    fn rate(&self) -> u32 {
        1000
    }

    fn step(&self, _: &Card, answers: &Answers) -> Step {
        let mut all = (0_u64..).map(|number| Request::get(format!("/{number}")));
        let next = all.find(|request| answers.to(request).is_none());
        Step::Ask(next.into_iter().collect())
    }
}

/// A card with leased addresses.
pub fn card(name: &str, index: u32, leased: &[&str]) -> Card {
    Card {
        index: IfIndex::new(index).unwrap(),
        name: name.parse().unwrap(),
        mac: "02:00:00:00:00:01".parse().unwrap(),
        leased: leased.iter().map(|a| a.parse().unwrap()).collect(),
        made: BTreeSet::new(),
        permanent: BTreeSet::new(),
    }
}
