//! Decision of a member to give its processor away before it sleeps.
//!
//! Amid a stream the next message is mostly under way: its sender needs a processor, and where members are more than processors
//! it waits for ours. To yield lets it run for the price of one switch. To sleep costs two, and the sender pays for waking us.
//!
//! A neighbour that computes without end uses its whole slice up each time that we yield, which takes milliseconds. A thread that
//! sleeps is let in before that neighbour. So long yields that come close together end yielding for a while that doubles each time.

use punctual_proto::Nanos;

/// Yields without an event for the user between them, after which the member sleeps. With ten members on two processors a fifth of all yields
/// find something; 2 to 40 made less than a tenth of difference.
const YIELDS_MAX: u32 = 8;

/// A yield that lasts longer was used up by a neighbour. Ten members that shared two processors took less for 996 of 1,000
/// yields, a neighbour that computed more for every second one.
const LONG: Nanos = Nanos::from_millis(2);

/// A long yield counts as much as so many short ones make up for.
const LONG_SCORE: u32 = 8;

/// Long yields close together, after which yielding pauses.
const LONG_MAX: u32 = 3;

/// The first pause, and the longest.
const PAUSE: Nanos = Nanos::from_millis(50);
const PAUSE_MAX: Nanos = Nanos::from_millis(3_200);

/// State of a member's yields. Pure: instants come in.
#[derive(Clone, Debug)]
pub(super) struct Yielding {
    /// Yields that are left before the next sleep.
    left: u32,
    score: u32,
    /// None before this instant.
    paused_until: Nanos,
    pause: Nanos,
}

impl Yielding {
    pub(super) const fn new() -> Self {
        Self { left: YIELDS_MAX, score: 0, paused_until: Nanos(0), pause: PAUSE }
    }

    /// True if it should yield once more rather than sleep.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.left > 0 && now >= self.paused_until
    }

    /// A yield is over.
    pub(super) fn note(&mut self, began: Nanos, now: Nanos) {
        self.left = self.left.saturating_sub(1);
        if now.since(began) < LONG {
            self.score = self.score.saturating_sub(1);
            if self.score == 0 {
                self.pause = PAUSE;
            }
            return;
        }
        self.score += LONG_SCORE;
        if self.score >= LONG_MAX * LONG_SCORE {
            self.paused_until = now.plus(self.pause);
            self.pause = Nanos(2 * self.pause.0).min(PAUSE_MAX);
            // After the pause one more long yield is enough.
            self.score -= LONG_SCORE;
        }
    }

    /// The user has taken an event, or the member sleeps now.
    pub(super) fn renew(&mut self) {
        self.left = YIELDS_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Nanos = Nanos::from_micros(30);
    const SLICE: Nanos = Nanos::from_millis(4);

    /// Yields whenever it is due and sleeps a little otherwise, until `end`. Returns the total time of the yields.
    fn pass(
        yielding: &mut Yielding,
        (from, end): (Nanos, Nanos),
        mut lasts: impl FnMut(u32) -> Nanos,
    ) -> Nanos {
        let (mut now, mut given, mut count) = (from, 0, 0);
        while now < end {
            if yielding.is_due(now) {
                let after = now.plus(lasts(count));
                yielding.note(now, after);
                (given, count) = (given + after.since(now).0, count + 1);
                now = after;
            } else {
                yielding.renew();
                now = now.plus(SHORT);
            }
        }
        Nanos(given)
    }

    const SECOND: Nanos = Nanos::from_millis(1_000);

    #[test]
    fn a_member_sleeps_after_a_few_yields_that_found_nothing() {
        let mut yielding = Yielding::new();
        for _ in 0..3 {
            let yields = (0..100).filter(|_| {
                let is_due = yielding.is_due(SECOND);
                if is_due {
                    yielding.note(SECOND, SECOND.plus(SHORT));
                }
                is_due
            });
            assert_eq!(yields.count(), YIELDS_MAX as usize);
            yielding.renew();
        }
    }

    /// Goal: a thread that computes without end gets no more of a member's time than one slice in seconds.
    #[test]
    fn a_neighbour_ends_yielding() {
        let mut yielding = Yielding::new();
        pass(&mut yielding, (Nanos(0), Nanos(10 * SECOND.0)), |_| SLICE);
        let given = pass(&mut yielding, (Nanos(10 * SECOND.0), Nanos(20 * SECOND.0)), |_| SLICE);
        assert!(given.0 > 0 && given <= Nanos(4 * SLICE.0), "{given:?}");
    }

    /// Goal: the same if every other yield meets another member.
    #[test]
    fn a_neighbour_among_members_ends_yielding() {
        let mut yielding = Yielding::new();
        let given = pass(&mut yielding, (Nanos(0), SECOND), |count| [SHORT, SLICE][count as usize % 2]);
        assert!(given < Nanos(SECOND.0 / 10), "{given:?}");
    }

    #[test]
    fn a_lone_long_yield_ends_nothing() {
        let mut yielding = Yielding::new();
        let lasts = |count: u32| if count.is_multiple_of(200) { SLICE } else { SHORT };
        let given = pass(&mut yielding, (Nanos(0), SECOND), lasts);
        assert!(given > Nanos(SECOND.0 / 2), "{given:?}");
    }

    /// Goal: once the neighbour has gone, the member yields as before within the pause, and the next pause is short again.
    #[test]
    fn a_neighbour_that_goes_is_forgotten() {
        let mut yielding = Yielding::new();
        pass(&mut yielding, (Nanos(0), Nanos(20 * SECOND.0)), |_| SLICE);
        let until = Nanos(20 * SECOND.0).plus(PAUSE_MAX);
        pass(&mut yielding, (Nanos(20 * SECOND.0), until), |_| SHORT);
        let given = pass(&mut yielding, (until, until.plus(SECOND)), |_| SHORT);
        assert!(given > Nanos(SECOND.0 / 2), "{given:?}");
        assert_eq!(yielding.pause, PAUSE);
    }
}
