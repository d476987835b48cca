//! When to look: soon after something happened, and not for each of many things.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing may happen before a look.
const QUIET: Duration = Duration::from_millis(10);

/// The longest that a look waits for quiet.
const PATIENCE: Duration = Duration::from_millis(50);

/// How many times as long as a look took nothing is looked at after it,
const REST: u32 = 10;

/// and how long at most, unless the look itself took longer.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// When the next look is due. What happens is looked at after 10 ms of quiet, and within
/// 50 ms. In a storm that does not end looking takes a tenth of a processor as long as a look
/// takes up to 10 ms; one that takes longer is followed by a rest of 100 ms, or as long as
/// the look took.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the first and the last of what waits happened.
    waits: Option<(Instant, Instant)>,
    rests_until: Option<Instant>,
}

impl Pace {
    /// Something happened that calls for a look.
    pub(crate) fn notice(&mut self, now: Instant) {
        let (first, _) = self.waits.unwrap_or((now, now));
        self.waits = Some((first, now));
    }

    /// When the next look is due; `None` when there is nothing to look at.
    pub(crate) fn due(&self) -> Option<Instant> {
        let (first, last) = self.waits?;
        let due = (first + PATIENCE).min(last + QUIET);
        Some(self.rests_until.map_or(due, |rests| rests.max(due)))
    }

    /// A look was made.
    pub(crate) fn looked(&mut self, began: Instant, ended: Instant) {
        let took = ended - began;
        let rest = took.saturating_mul(REST).min(took.max(LONGEST_REST));
        self.waits = None;
        self.rests_until = Some(ended + rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn one_thing_is_looked_at_after_a_moment_of_quiet() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.due(), None);
        pace.notice(now);
        assert_eq!(pace.due(), Some(now + ms(10)));
    }

    #[test]
    fn a_storm_is_looked_at_before_it_ends() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for at in 0..200 {
            pace.notice(now + ms(at));
        }
        assert_eq!(pace.due(), Some(now + ms(50)));
    }

    #[test]
    fn a_long_look_is_followed_by_a_rest() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.notice(now);
        pace.looked(now, now + ms(5));
        assert_eq!(pace.due(), None);
        pace.notice(now + ms(6));
        assert_eq!(pace.due(), Some(now + ms(55)));
        pace.looked(now + ms(60), now + ms(160));
        pace.notice(now + ms(161));
        assert_eq!(pace.due(), Some(now + ms(260)));
    }
}
