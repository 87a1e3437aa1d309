//! One-way latency between two hosts, each direction by itself, with the bound of its error.
//!
//! Both ends keep time ([`punctual::time::TimeKeeper`]), so each says of every message that it receives how long that was on
//! its way. The responder writes what it found into its answer; the client holds both directions:
//!
//! ```text
//! client ── request, stamped ──▶ responder: there ± bound
//! client ◀── answer: there ± bound ── responder     client: back ± bound
//! ```
//! Where both ends read one clock the truth is known as well, and is compared with the bound: it must lie inside, always.

mod client;
mod overview;
mod responder;
mod wire;

pub use client::{OnewayOutcome, OnewaySettings};
pub use overview::sections;
pub use responder::{NodeOrder, RESPONDER, Responder, serve};

use punctual::time::OneWay;
use punctual::{Clock, Message, Ticks};

/// Port at which a responder answers.
pub const PORT: u16 = 7;

/// The truth, where one clock stamped both ends.
fn truth(message: &Message<'_>) -> Option<i64> {
    let stages = message.stages.filter(|stages| stages.one_clock)?;
    let clock = Clock::get();
    let nanos = |ticks: Ticks| i64::try_from(clock.nanos(ticks)).ok();
    Some(nanos(stages.receiver.delivered)? - nanos(Ticks(stages.sender.sent))?)
}

/// One direction of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// By both clocks.
    pub found: OneWay,
    /// By the one clock that stamped both ends, if it was one.
    pub truth: Option<i64>,
}

impl Direction {
    /// True if the truth lies within the bound; unknown between two clocks.
    pub fn holds(&self) -> Option<bool> {
        self.truth.map(|truth| self.found.nanos.abs_diff(truth) <= self.found.bound)
    }

    /// True if the truth is certainly outside of the bound: no message arrives before it leaves, regardless of what the clocks say.
    pub fn is_outside(&self) -> bool {
        let latest = i128::from(self.found.nanos) + i128::from(self.found.bound);
        self.holds() == Some(false) || latest < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: between two hosts a bound is found wrong, too, where even its end lies before the message left.
    #[test]
    fn a_way_below_zero_is_within_its_bound_or_wrong() {
        let is_outside =
            |nanos, bound, truth| Direction { found: OneWay { nanos, bound }, truth }.is_outside();
        assert!(!is_outside(-400, 400, None) && !is_outside(5, 0, None) && !is_outside(5, u64::MAX, None));
        assert!(is_outside(-401, 400, None) && is_outside(i64::MIN, 0, None));
        assert!(is_outside(500, 100, Some(601)) && !is_outside(500, 100, Some(600)));
    }
}
