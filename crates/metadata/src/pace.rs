//! How fast the whole host asks.

use std::time::{Duration, Instant};

/// Spreads the requests of all cards so that no second has more than the service allows.
///
/// A quarter of the allowed requests may come at once; what follows them is spaced so that
/// burst and rest together stay within the rate. Below eight a second there is no burst.
#[derive(Clone, Debug)]
pub struct Pace {
    /// The space between two requests in the long run.
    space: Duration,
    /// How far requests may be ahead of that.
    ahead: Duration,
    /// When the next request is due in the long run.
    due: Option<Instant>,
}

impl Pace {
    /// A pace of at most so many requests in any second. 0 counts as 1.
    #[must_use]
    pub fn new(rate: u32) -> Self {
        let rate = rate.max(1);
        let burst = (rate / 4).max(1);
        let steady = if burst == 1 { rate } else { rate - burst };
        // Rounded up, since rounding down would let one too many in.
        let space = Duration::from_nanos(1_000_000_000_u64.div_ceil(u64::from(steady)));
        Self {
            space,
            ahead: space.saturating_mul(burst - 1),
            due: None,
        }
    }

    /// When a request may leave that is wanted now. Each call is one request; who asked first
    /// comes first.
    pub fn slot(&mut self, now: Instant) -> Instant {
        let due = self.due.map_or(now, |due| due.max(now));
        self.due = due.checked_add(self.space);
        due.checked_sub(self.ahead)
            .map_or(now, |slot| slot.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_second_has_more_requests_than_allowed(
            rate in 1_u32..1500,
            gaps in proptest::collection::vec(0_u64..400, 1..600),
        ) {
            let (mut pace, mut now) = (Pace::new(rate), Instant::now());
            let mut slots = Vec::new();
            for gap in gaps {
                // Mostly at once, at times with a rest.
                now += Duration::from_millis(gap.saturating_sub(380) * 20);
                let slot = pace.slot(now);
                prop_assert!(slot >= now);
                slots.push(slot);
            }
            prop_assert!(slots.is_sorted());
            let rate = rate as usize;
            for (first, after) in slots.iter().zip(slots.iter().skip(rate)) {
                prop_assert!(*after - *first >= Duration::from_secs(1), "{:?}", *after - *first);
            }
        }
    }

    #[test]
    fn a_few_requests_of_a_generous_service_leave_at_once() {
        let (mut pace, now) = (Pace::new(100), Instant::now());
        assert!((0..25).all(|_| pace.slot(now) == now));
        assert!(pace.slot(now) > now);
    }
}
