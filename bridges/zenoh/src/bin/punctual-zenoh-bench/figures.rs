//! Measured figures: each beside bare Zenoh in the same round, and the differences between openings.

use std::fmt;

use super::NAMES;

/// Figures of one of them in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) trip_us: f64,
    pub(super) thousand_s: f64,
    pub(super) unanswered: f64,
    pub(super) lost: f64,
}

/// All rounds, by openings.
#[derive(Default)]
pub(super) struct Figures {
    ended: Vec<Vec<[Round; 3]>>,
    current: Vec<[Round; 3]>,
}

impl Figures {
    pub(super) fn add(&mut self, round: [Round; 3]) {
        self.current.push(round);
    }

    pub(super) fn end_of_opening(&mut self) {
        self.ended.push(std::mem::take(&mut self.current));
    }

    /// The median over all rounds.
    fn median(&self, value: impl Fn(&[Round; 3]) -> f64) -> f64 {
        median(self.ended.iter().flatten().map(value).collect())
    }

    /// Each opening's median: the middle, the least and the largest of them.
    fn of_openings(&self, value: impl Fn(&[Round; 3]) -> f64) -> [f64; 3] {
        let all: Vec<f64> =
            self.ended.iter().map(|rounds| median(rounds.iter().map(&value).collect())).collect();
        let (least, largest) = (all.iter().copied().reduce(f64::min), all.iter().copied().reduce(f64::max));
        [median(all), least.unwrap_or(f64::NAN), largest.unwrap_or(f64::NAN)]
    }
}

/// The middle, or half way between both that are.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    if count == 0 { f64::NAN } else { (values[(count - 1) / 2] + values[count / 2]) / 2.0 }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (which, name) in NAMES.iter().enumerate() {
            let trip = self.median(|round| round[which].trip_us);
            let rate = self.median(|round| round[which].thousand_s);
            write!(f, "{name:13} p50 round trip {trip:8.1} µs")?;
            let [middle, least, largest] = self.of_openings(|round| round[which].trip_us / round[0].trip_us);
            write!(f, " ({middle:.2} x, {least:.2} to {largest:.2}), ")?;
            let sum = |which: usize, value: fn(&Round) -> f64| -> f64 {
                self.ended.iter().flatten().map(|round| value(&round[which])).sum()
            };
            let lost = |which: usize| sum(which, |round| round.lost);
            // Over UDP nothing holds a sender back: lost messages are not as fast as those that arrived.
            if lost(which) + lost(0) > 0.0 {
                write!(f, "rate not compared, {} messages lost", lost(which))?;
            } else {
                let [middle, least, largest] =
                    self.of_openings(|round| round[which].thousand_s / round[0].thousand_s);
                write!(f, "{rate:7.2} thousand messages/s ({middle:.2} x, {least:.2} to {largest:.2})")?;
            }
            writeln!(f, "; {} trips unanswered", sum(which, |round| round.unanswered))?;
        }
        // The chance that the true median is beyond all of so many values.
        let outside = 100.0 * 0.5_f64.powi(self.ended.len() as i32 - 1);
        writeln!(
            f,
            "ratios within rounds, median of openings, least to largest of {}: the median is within with {:.0} %",
            self.ended.len(),
            100.0 - outside
        )
    }
}
