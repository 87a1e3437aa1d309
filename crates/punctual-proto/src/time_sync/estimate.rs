//! Results of exchanges: intervals that certainly contain the offset of a clock from the reference.
//!
//! θ = reference − own clock. The reference read *t₁* before its sync left, and we read *t₂* after it came, so at *t₂* θ is at least
//! *t₁ − t₂*. We read *t₃* before our request left, and the reference *t₄* after it came, so at *t₃* θ is at most *t₄ − t₃*. From there
//! on θ moves by the drift, the difference of both rates, which itself is bounded by the exchanges of a window: the steepest
//! and the flattest line that none of them contradicts. (Lines through such bounds limit offset and skew together: Zhang, Liu, Xia,
//! *Clock synchronization algorithms for network measurements*, INFOCOM 2002.)

use alloc::collections::VecDeque;

use crate::time::Nanos;

/// Exchanges that are remembered.
const WINDOW: usize = 32;

const BILLION: i128 = 1_000_000_000;

/// Farther than any offset can be, nanoseconds. A peer may say anything, and the sums of its values must have room.
const FAR: i128 = 1 << 100;

/// Behaviour of clocks; the bound is as good as this is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockModel {
    /// By how much the rates of two clocks differ at the most, parts in 10⁹.
    pub drift_max_ppb: i64,
    /// Fastest change of that difference, parts in 10⁹ per second.
    pub wander_max_ppb_per_s: i64,
}

impl ClockModel {
    /// Of clocks that nodes calibrate by themselves. The drift may be any that calibrations leave, until exchanges have told it, which
    /// takes a few. For each of two clocks its parts are: 1 in 1,000, by which a stated rate may be off; 167 in a million, by which the
    /// check of it errs; 500 in a million, by which the kernel may have mistaken the clock used in that check; and 100 in a million,
    /// which IEEE 1588 and 802.3 allow to every clock. A quartz drifts by some parts in 10⁷ per kelvin, and the temperature of a
    /// machine changes by less than a kelvin a second.
    pub const CALIBRATED: Self = Self { drift_max_ppb: 3_600_000, wander_max_ppb_per_s: 300 };

    /// Where the kernel slews one of two clocks or both, as `CLOCK_MONOTONIC`: its rate may be another one at any instant, so that
    /// nothing is known of the drift but its limit. Daemons slew by up to a twelfth (`maxslewrate` of chrony). By a clock that is that
    /// slow, another one is fast by an eleventh, and by two if it is slewed the other way.
    pub const SLEWED: Self = Self {
        drift_max_ppb: 2 * 91_000_000 + Self::CALIBRATED.drift_max_ppb,
        wander_max_ppb_per_s: i64::MAX,
    };

    /// Of clocks that keep one model or the other.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            drift_max_ppb: self.drift_max_ppb.max(other.drift_max_ppb),
            wander_max_ppb_per_s: self.wander_max_ppb_per_s.max(other.wander_max_ppb_per_s),
        }
    }
}

impl Default for ClockModel {
    fn default() -> Self {
        Self::CALIBRATED
    }
}

/// Where the offset was certain to be at one instant, and how it may move from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// The instant, on the own clock.
    pub at: Nanos,
    /// The offset (reference − own clock), nanoseconds: not below.
    pub low: i64,
    /// Not above.
    pub high: i64,
    /// The drift, parts in 10⁹: not below.
    pub drift_low: i64,
    /// Not above.
    pub drift_high: i64,
}

/// An offset, and how far from the truth it is at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Reference − own clock, nanoseconds.
    pub nanos: i64,
    /// Bound of the error, nanoseconds.
    pub bound: u64,
}

fn clamp(value: i128) -> i64 {
    value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Rounded away from the inside of an interval.
fn floor(value: i128, divisor: i128) -> i128 {
    value.div_euclid(divisor)
}

fn ceil(value: i128, divisor: i128) -> i128 {
    -(-value).div_euclid(divisor)
}

impl ClockModel {
    /// By how much a drift may have changed the offset further after a time, if it was right at its beginning or end.
    fn bend(&self, time: i128) -> i128 {
        // Half the wander times the square of the time, in ns: ppb per second is 10⁻¹⁸ per nanosecond.
        let bend = i128::from(self.wander_max_ppb_per_s).saturating_mul(time.saturating_mul(time));
        ceil(bend, 2 * BILLION * BILLION).min(FAR)
    }

    /// Least and greatest movement of the offset within a time, before or after. The drift lies between these bounds at one end of it.
    /// However it wanders, it never exceeds its limit.
    fn movement(&self, time: i128, (drift_low, drift_high): (i128, i128)) -> (i128, i128) {
        let (by_low, by_high) = (drift_low.saturating_mul(time), drift_high.saturating_mul(time));
        let bend = self.bend(time);
        let most = ceil(i128::from(self.drift_max_ppb).saturating_mul(time).saturating_abs(), BILLION);
        let least = floor(by_low.min(by_high), BILLION) - bend;
        let greatest = ceil(by_low.max(by_high), BILLION) + bend;
        (least.clamp(-most, most), greatest.clamp(-most, most))
    }

    /// By how much the drift may have changed within a time, parts in 10⁹.
    pub(super) fn wander_over(&self, time: Nanos) -> i64 {
        clamp(self.wander(time.0.into()))
    }

    fn wander(&self, time: i128) -> i128 {
        ceil(i128::from(self.wander_max_ppb_per_s).saturating_mul(time), BILLION).min(FAR)
    }
}

impl Track {
    /// Of the reference itself.
    pub const fn reference(at: Nanos) -> Self {
        Self { at, low: 0, high: 0, drift_low: 0, drift_high: 0 }
    }

    /// Where the offset is at another instant of the own clock, before or after.
    pub fn at(&self, when: Nanos, model: &ClockModel) -> Estimate {
        let (low, high) = self.bounds_at(when, model);
        let nanos = low + (high - low) / 2;
        Estimate { nanos: clamp(nanos), bound: u64::try_from((high - nanos).max(0)).unwrap_or(u64::MAX) }
    }

    fn bounds_at(&self, when: Nanos, model: &ClockModel) -> (i128, i128) {
        let (low, high) = (i128::from(self.low), i128::from(self.high));
        let is_reference = self.low == self.high && self.drift_low == 0 && self.drift_high == 0;
        if is_reference || when == self.at {
            return (low, high);
        }
        let time = i128::from(when.0) - i128::from(self.at.0);
        let (least, greatest) = model.movement(time, (self.drift_low.into(), self.drift_high.into()));
        (low + least, high + greatest)
    }
}

/// One exchange's two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    /// The reference's clock before its sync left.
    pub(super) sync_sent: Nanos,
    /// The own clock after it came.
    pub(super) sync_received: Nanos,
    /// The own clock before the request left.
    pub(super) request_sent: Nanos,
    /// The reference's clock after it came.
    pub(super) request_received: Nanos,
    /// By how much a reading of the own clock may be behind it, nanoseconds.
    pub(super) own_step_ns: u64,
    /// The same of the reference's.
    pub(super) reference_step_ns: u64,
}

/// A bound of the offset at an instant of the own clock.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Nanos,
    offset: i64,
}

/// By the reading that was taken last each bound is as far off as that may be behind its clock.
impl Exchange {
    fn lower(&self) -> Point {
        let offset = (self.sync_sent - self.sync_received).saturating_sub_unsigned(self.own_step_ns);
        Point { at: self.sync_received, offset }
    }

    fn upper(&self) -> Point {
        let offset =
            (self.request_received - self.request_sent).saturating_add_unsigned(self.reference_step_ns);
        Point { at: self.request_sent, offset }
    }
}

/// The exchanges of a window, and what follows from them.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchanges {
    window: VecDeque<Exchange>,
}

impl Exchanges {
    pub(super) fn clear(&mut self) {
        self.window.clear();
    }

    /// Takes one more exchange, and says where the offset is as of then. `Err` if that contradicts what was known: a clock
    /// was set, or drifts more than the model says. Then only this exchange counts, if it does not contradict itself.
    pub(super) fn note(&mut self, exchange: Exchange, model: &ClockModel) -> Result<Track, Option<Track>> {
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(exchange);
        if let Some(track) = self.track(exchange.request_sent, model) {
            return Ok(track);
        }
        self.window.clear();
        self.window.push_back(exchange);
        let alone = self.track(exchange.request_sent, model);
        if alone.is_none() {
            self.window.clear();
        }
        Err(alone)
    }

    fn track(&self, now: Nanos, model: &ClockModel) -> Option<Track> {
        let drift @ (drift_low, drift_high) = self.drift(now, model)?;
        let moved = |point: Point| {
            let (least, greatest) = model.movement(i128::from(now.0) - i128::from(point.at.0), drift);
            (i128::from(point.offset) + least, i128::from(point.offset) + greatest)
        };
        let low = self.window.iter().map(|exchange| moved(exchange.lower()).0);
        let high = self.window.iter().map(|exchange| moved(exchange.upper()).1);
        let (low, high) = (low.max()?, high.min()?);
        let track = Track {
            at: now,
            low: clamp(low),
            high: clamp(high),
            drift_low: clamp(drift_low),
            drift_high: clamp(drift_high),
        };
        (low <= high).then_some(track)
    }

    /// The flattest and the steepest that θ can be at `now`: between the bounds of any two exchanges lies its mean slope, and
    /// from the middle of that time until now it has wandered a little.
    fn drift(&self, now: Nanos, model: &ClockModel) -> Option<(i128, i128)> {
        let (mut low, mut high) = (-i128::from(model.drift_max_ppb), i128::from(model.drift_max_ppb));
        for (index, later) in self.window.iter().enumerate() {
            for earlier in self.window.iter().take(index) {
                let wander = model.wander(i128::from(now.since(earlier.sync_received).0));
                if let Some((rise, time)) = between(earlier.upper(), later.lower()) {
                    low = low.max(floor(rise * BILLION, time) - wander);
                }
                if let Some((rise, time)) = between(earlier.lower(), later.upper()) {
                    high = high.min(ceil(rise * BILLION, time) + wander);
                }
            }
        }
        (low <= high).then_some((low, high))
    }
}

fn between(from: Point, to: Point) -> Option<(i128, i128)> {
    let time = i128::from(to.at.0) - i128::from(from.at.0);
    (time > 0).then(|| (i128::from(to.offset) - i128::from(from.offset), time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: the values that a peer states for its clock may be as far away as numbers go. The bound is then wide, and nothing
        /// overflows. Found by the fuzz target `time`: the square of eight thousand million seconds.
        #[test]
        fn far_away_the_bound_is_wide(at: u64, when: u64, a: i64, b: i64, c: i32, d: i32) {
            let track = Track {
                at: Nanos(at),
                low: a.min(b),
                high: a.max(b),
                drift_low: c.min(d).into(),
                drift_high: c.max(d).into(),
            };
            for (at, when) in [(at, when), (0, u64::MAX), (u64::MAX, 0)] {
                let estimate = Track { at: Nanos(at), ..track }.at(Nanos(when), &ClockModel::default());
                prop_assert!(estimate.bound >= a.abs_diff(b) / 2);
                if at.abs_diff(when) == u64::MAX {
                    prop_assert!(estimate.bound > 1 << 55);
                }
            }
        }
    }
}
