//! Peace with others: an object that another program removes again and again is left as it
//! is for a while, and longer each time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use leaseroute_core::{Address, Operation, Plan, ProtocolId, Route, Rule, Step};
use tokio::time::Instant;

use crate::interest::Tagged;

/// So many removals (networkd alone takes everybody's rules away three times for each card
/// that is plugged in, unless it is told not to)
const REMOVALS: usize = 10;

/// within this time are a fight.
const WITHIN: Duration = Duration::from_secs(10);

/// The first pause in a fight. Each one is twice as long as the one before,
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A fight is over when the object stays for so long after it was put back.
const PEACE: Duration = Duration::from_secs(60);

/// The most objects whose removals are remembered.
const MOST: usize = 4096;

/// An object of ours that we want.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Route(Route),
    Rule(Rule),
    Address(Address),
}

impl Object {
    /// The object that a change adds.
    pub(crate) fn added_by(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::AddRoute(route) | Operation::ReplaceRoute(route) => {
                Some(Self::Route(route.clone()))
            }
            Operation::AddRule(rule) => Some(Self::Rule(rule.clone())),
            Operation::AddAddress(address) => Some(Self::Address(address.clone())),
            Operation::DeleteRule(_)
            | Operation::DeleteRoute { .. }
            | Operation::DeleteAddress(_) => None,
        }
    }

    /// Whether the kernel shows this object.
    pub(crate) fn is_met_by(&self, seen: &Tagged) -> bool {
        match (self, seen) {
            (Self::Route(route), Tagged::Route(seen)) => route.is_met_by(seen),
            (Self::Rule(rule), Tagged::Rule(seen)) => rule.is_met_by(seen),
            (Self::Address(address), Tagged::Address(seen)) => address.is_met_by(seen),
            (Self::Route(_), Tagged::Rule(_) | Tagged::Address(_))
            | (Self::Rule(_), Tagged::Route(_) | Tagged::Address(_))
            | (Self::Address(_), Tagged::Route(_) | Tagged::Rule(_)) => false,
        }
    }

    /// The ip(8) command that adds it.
    pub(crate) fn command(&self, protocol: ProtocolId) -> String {
        let operation = match self {
            Self::Route(route) => Operation::AddRoute(route.clone()),
            Self::Rule(rule) => Operation::AddRule(rule.clone()),
            Self::Address(address) => Operation::AddAddress(address.clone()),
        };
        let step = Step {
            operation,
            purpose: None,
        };
        let plan = Plan {
            steps: Vec::new(),
            notes: Vec::new(),
            protocol,
        };
        plan.command(&step).to_string()
    }
}

/// What is known of one object that others remove.
#[derive(Debug, Default)]
struct Removals {
    /// The last ones that came within a short time of each other.
    recent: VecDeque<Instant>,
    /// The last one of all.
    last: Option<Instant>,
    /// How many there were since the first that counts.
    times: u64,
    /// The last pause. `None`: it is no fight.
    pause: Option<Duration>,
    until: Option<Instant>,
    by: Option<String>,
}

/// A fight that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) object: Object,
    pub(crate) times: u64,
    pub(crate) last: Instant,
    pub(crate) by: Option<String>,
    /// Until when the object is left as it is; in the past when it has been put back.
    pub(crate) until: Instant,
}

/// What others remove.
#[derive(Debug, Default)]
pub(crate) struct Fights {
    removals: BTreeMap<Object, Removals>,
}

impl Fights {
    /// Another program removed an object that is still wanted. Says how long it is left as
    /// it is from now on, if it is.
    pub(crate) fn removed(
        &mut self,
        object: Object,
        by: Option<String>,
        now: Instant,
    ) -> Option<Duration> {
        if self.removals.len() >= MOST && !self.removals.contains_key(&object) {
            return None;
        }
        let removals = self.removals.entry(object).or_default();
        removals.times += 1;
        removals.last = Some(now);
        removals.by = by.or(removals.by.take());
        removals.recent.push_back(now);
        while removals
            .recent
            .front()
            .is_some_and(|first| now - *first > WITHIN)
        {
            removals.recent.pop_front();
        }
        let pause = match removals.pause {
            // In a fight one removal is enough.
            Some(last) => last.saturating_mul(2).min(LONGEST_PAUSE),
            None if removals.recent.len() < REMOVALS => return None,
            None => FIRST_PAUSE,
        };
        removals.recent.clear();
        removals.pause = Some(pause);
        removals.until = Some(now + pause);
        Some(pause)
    }

    /// Whether a change is to be left undone for now.
    pub(crate) fn spares(&self, operation: &Operation, now: Instant) -> bool {
        if self.removals.is_empty() {
            return false;
        }
        let object = Object::added_by(operation);
        let removals = object.and_then(|object| self.removals.get(&object));
        removals.is_some_and(|removals| removals.until.is_some_and(|until| until > now))
    }

    /// The end of the next pause, or of the time after which a fight is over.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let ends = self.removals.values().filter_map(|removals| {
            let until = removals.until.filter(|until| *until > now);
            until.or_else(|| removals.peace())
        });
        ends.min()
    }

    /// Forgets what has been over for long, and objects that are not wanted any more.
    /// Returns the fights that have ended.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        is_wanted: impl Fn(&Object) -> bool,
    ) -> Vec<Object> {
        let mut ended = Vec::new();
        self.removals.retain(|object, removals| {
            let stays = is_wanted(object) && removals.peace().is_none_or(|peace| peace > now);
            if !stays && removals.pause.is_some() {
                ended.push(object.clone());
            }
            stays
        });
        ended
    }

    /// Whether a pause has ended since a moment, so that there is something to put back.
    pub(crate) fn has_paused_until(&self, since: Instant, now: Instant) -> bool {
        let mut ends = self.removals.values().filter_map(|removals| removals.until);
        ends.any(|until| until > since && until <= now)
    }

    /// The fights that are not over.
    pub(crate) fn standing(&self) -> impl Iterator<Item = Standing> {
        self.removals.iter().filter_map(|(object, removals)| {
            Some(Standing {
                object: object.clone(),
                times: removals.times,
                last: removals.last?,
                by: removals.by.clone(),
                until: removals.until?,
            })
        })
    }
}

impl Removals {
    /// When it is over if the object stays: some time after the last removal, or after the
    /// object was put back.
    fn peace(&self) -> Option<Instant> {
        Some(self.until.max(self.last)? + PEACE)
    }
}

#[cfg(test)]
mod tests {
    use leaseroute_core::{Family, Priority, Selector, TableId};

    use super::*;

    fn rule(source: &str) -> Rule {
        Rule {
            family: Family::Ipv4,
            priority: Priority::base(7610).unwrap(),
            selector: Selector::From(source.parse().unwrap()),
            table: TableId::own(76_003).unwrap(),
            suppress_prefix_length: None,
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_few_removals_are_no_fight() {
        let (mut fights, now) = (Fights::default(), Instant::now());
        let object = Object::Rule(rule("192.0.2.1/32"));
        for n in 0..20 {
            let pause = fights.removed(object.clone(), None, now + seconds(3 * n));
            assert_eq!(pause, None);
        }
        assert_eq!(fights.standing().count(), 0);
    }

    #[test]
    fn many_removals_are_answered_by_longer_and_longer_pauses() {
        let (mut fights, now) = (Fights::default(), Instant::now());
        let object = Object::Rule(rule("192.0.2.1/32"));
        let other = Operation::AddRule(rule("192.0.2.2/32"));
        let operation = Operation::AddRule(rule("192.0.2.1/32"));
        let mut at = now;
        let mut pauses = Vec::new();
        for _ in 0..20 {
            at += Duration::from_millis(100);
            let by = Some("ip[12]".to_owned());
            if let Some(pause) = fights.removed(object.clone(), by, at) {
                assert!(fights.spares(&operation, at));
                assert!(!fights.spares(&other, at));
                assert_eq!(fights.next(at), Some(at + pause));
                at += pause;
                assert!(!fights.spares(&operation, at));
                pauses.push(pause.as_secs());
            }
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]);
        let standing: Vec<_> = fights.standing().collect();
        assert_eq!(standing.len(), 1);
        assert_eq!(standing[0].times, 20);
        assert_eq!(standing[0].by.as_deref(), Some("ip[12]"));
    }

    #[test]
    fn a_fight_is_over_when_the_object_stays() {
        let (mut fights, now) = (Fights::default(), Instant::now());
        let object = Object::Rule(rule("192.0.2.1/32"));
        for _ in 0..REMOVALS {
            fights.removed(object.clone(), None, now);
        }
        assert!(fights.has_paused_until(now, now + seconds(1)));
        assert!(fights.settle(now + seconds(60), |_| true).is_empty());
        assert_eq!(fights.next(now + seconds(2)), Some(now + seconds(61)));
        assert_eq!(fights.settle(now + seconds(61), |_| true), [object]);
        assert_eq!(fights.next(now + seconds(61)), None);
    }

    #[test]
    fn what_is_not_wanted_any_more_is_no_fight() {
        let (mut fights, now) = (Fights::default(), Instant::now());
        let object = Object::Rule(rule("192.0.2.1/32"));
        for _ in 0..REMOVALS {
            fights.removed(object.clone(), None, now);
        }
        assert_eq!(fights.settle(now, |_| false).len(), 1);
        assert_eq!(fights.standing().count(), 0);
    }
}
