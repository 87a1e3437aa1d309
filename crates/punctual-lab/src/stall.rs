//! Slow messages that were released together are one stall, not many slow messages.
//!
//! While a receiver stands still, every message sent to it waits, each less long than the one before by the
//! spacing of the sends; all are released when it moves again. So slow messages are grouped by the instant of
//! their release: start + latency.

use serde::{Deserialize, Serialize};

use crate::sample::{ABSENT_NS, Load, Outcome, Phase, Samples};
use crate::stats::Distribution;
use crate::units::plural;

/// Rule that decides which messages are slow, and which of them belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallRule {
    /// A message later than this is slow.
    pub threshold_ns: u64,
    /// Slow messages released no further apart than this belong to one stall.
    pub gap_ns: u64,
}

/// Cost of the shortest interruption by somebody else: a timer tick, a softirq, a context switch there and back stay below it. A
/// message that exceeds the median by this much was therefore not merely slow.
const EXCESS_NS_MIN: u64 = 100_000;
/// Where the median is itself large, its own spread reaches a few times the median: more is another event.
const MEDIANS_MIN: u64 = 8;
/// A receiver that moves again takes the backlog one message at a time; one wake-up may lie between.
const GAP_NS_MIN: u64 = 50_000;

impl StallRule {
    /// Slow: over max(8 × median, median + 100 µs). Together: released within max(2 × median, 50 µs).
    pub fn for_median(median_ns: u64) -> Self {
        Self {
            threshold_ns: median_ns.saturating_mul(MEDIANS_MIN).max(median_ns.saturating_add(EXCESS_NS_MIN)),
            gap_ns: median_ns.saturating_mul(2).max(GAP_NS_MIN),
        }
    }

    /// From the steady median of the trials; `None` if nothing was answered.
    pub fn for_trials(trials: &[Samples], warmup: u64) -> Option<Self> {
        Distribution::of(trials, Phase::Steady, warmup).median_ns().map(Self::for_median)
    }
}

/// Messages that one cause made late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// When the last of its messages was released, since the start of the run.
    pub release_ns: u64,
    /// The message that waited longest in it.
    pub first_index: u64,
    /// Slow messages in it.
    pub messages: u64,
    /// The longest wait in it.
    pub longest_ns: u64,
}

/// The stalls among the messages for which `within` holds, by release instant. Lost messages are released
/// never and belong to none; unfinished ones count as released when the trial ended.
pub fn stalls(samples: &Samples, load: Load, rule: StallRule, within: impl Fn(usize) -> bool) -> Vec<Stall> {
    stalls_with_rows(samples, load, rule, within).into_iter().map(|(stall, _)| stall).collect()
}

/// The same, each with the row of the message that waited longest in it. Of several senders the number does not say where that is, and
/// to look for it takes a pass over all messages.
pub(crate) fn stalls_with_rows(
    samples: &Samples,
    load: Load,
    rule: StallRule,
    within: impl Fn(usize) -> bool,
) -> Vec<(Stall, usize)> {
    let mut slow: Vec<(u64, usize)> = (0..samples.len())
        .filter(|&row| within(row) && samples.total_ns[row] > rule.threshold_ns)
        .filter(|&row| matches!(samples.outcome[row], Outcome::Answered | Outcome::Unfinished))
        .map(|row| (samples.start_ns(row, load).saturating_add(samples.total_ns[row]), row))
        .collect();
    slow.sort_unstable();
    let mut stalls: Vec<(Stall, usize)> = Vec::new();
    for (release_ns, row) in slow {
        let (first_index, longest_ns) = (samples.index[row], samples.total_ns[row]);
        match stalls.last_mut() {
            Some((stall, longest)) if release_ns - stall.release_ns <= rule.gap_ns => {
                if longest_ns > stall.longest_ns {
                    (stall.first_index, stall.longest_ns, *longest) = (first_index, longest_ns, row);
                }
                (stall.release_ns, stall.messages) = (release_ns, stall.messages + 1);
            }
            _ => stalls.push((Stall { release_ns, first_index, messages: 1, longest_ns }, row)),
        }
    }
    stalls
}

/// Two waits, each from an instant to another, were late together: they have half of the shorter in common.
pub(crate) fn are_together(one: (u64, u64), other: (u64, u64)) -> bool {
    let lasts = |(from, to): (u64, u64)| to.saturating_sub(from);
    let common_ns = common_ns(one, other);
    common_ns > 0 && common_ns >= lasts(one).min(lasts(other)).div_ceil(2)
}

fn common_ns(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

impl Stall {
    /// The one of `others`, stalls of the same trial by another rule, that is this stall: the equal one, or the one whose wait has most
    /// in common with it. They have at least half of the longer in common.
    pub(crate) fn find_among<'a, T>(&self, others: &'a [T], stall_of: impl Fn(&T) -> Stall) -> Option<&'a T> {
        let same = |other: &T| {
            let other = stall_of(other);
            let is_equal = (other.first_index, other.longest_ns) == (self.first_index, self.longest_ns);
            let longer_ns = other.longest_ns.max(self.longest_ns);
            let common_ns = common_ns(self.during(), other.during());
            let is_it = is_equal || common_ns > 0 && common_ns >= longer_ns.div_ceil(2);
            is_it.then_some((is_equal, common_ns))
        };
        let candidates = others.iter().filter_map(|other| Some((same(other)?, other)));
        candidates.max_by_key(|(common, _)| *common).map(|(_, other)| other)
    }

    /// Begin and end of its longest wait, since the start of the run.
    fn during(&self) -> (u64, u64) {
        (self.release_ns.saturating_sub(self.longest_ns), self.release_ns)
    }

    /// Place of the message that waited longest. Usually it follows from the number; several senders number each for itself.
    pub fn row(&self, samples: &Samples) -> Option<usize> {
        let Samples { index, total_ns, .. } = samples;
        let is_it = |&row: &usize| (index[row], total_ns[row]) == (self.first_index, self.longest_ns);
        let guess = usize::try_from(self.first_index.saturating_sub(*index.first()?)).ok()?;
        Some(guess).filter(|row| *row < index.len()).filter(is_it).or_else(|| (0..index.len()).find(is_it))
    }
}

/// The longest stage of a message, and how long that took; nothing where it carries no stamps.
pub(crate) fn longest_stage(samples: &Samples, row: usize) -> Option<(String, u64)> {
    let known = samples.stages.iter().filter(|stage| stage.ns[row] != ABSENT_NS);
    known.max_by_key(|stage| stage.ns[row]).map(|stage| (stage.name.clone(), stage.ns[row]))
}

/// The stalls of the steady state.
pub fn steady_stalls(samples: &Samples, load: Load, rule: StallRule, warmup: u64) -> Vec<Stall> {
    stalls(samples, load, rule, |row| samples.phase(row, warmup) == Phase::Steady)
}

/// The same, each with the row of the message that waited longest in it.
pub(crate) fn steady_stalls_with_rows(
    samples: &Samples,
    load: Load,
    rule: StallRule,
    warmup: u64,
) -> Vec<(Stall, usize)> {
    stalls_with_rows(samples, load, rule, |row| samples.phase(row, warmup) == Phase::Steady)
}

/// Duration of the steady state of a trial: from its first start to its last release.
pub fn steady_ns(samples: &Samples, load: Load, warmup: u64) -> u64 {
    let (mut first, mut last) = (u64::MAX, 0);
    for row in samples.rows(Phase::Steady, warmup) {
        let start = samples.start_ns(row, load);
        first = first.min(start);
        last = last.max(start.saturating_add(samples.total_ns[row]));
    }
    last.saturating_sub(first)
}

/// A rate per minute says nothing of a shorter time.
pub(crate) const LASTED_NS_MIN: u64 = 1_000_000_000;

/// `None` if less than a second was observed: one stall in 2 ms is not 30,000 a minute.
pub fn per_minute(stalls: usize, lasted_ns: u64) -> Option<f64> {
    (lasted_ns >= LASTED_NS_MIN).then(|| stalls as f64 * 60e9 / lasted_ns as f64)
}

/// So many late messages, as so many stalls.
pub fn stalls_words(messages: u64, stalls: u64) -> String {
    let be = if messages == 1 { "is" } else { "are" };
    let order = if stalls == 1 { "" } else { "; the longest first" };
    format!("{} {be} {}{order}.", plural(messages, "late message"), plural(stalls, "stall"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one message and one stall are one in words.
    #[test]
    fn one_stall_is_one() {
        assert_eq!(stalls_words(1, 1), "1 late message is 1 stall.");
        assert_eq!(stalls_words(1_000, 2), "1,000 late messages are 2 stalls; the longest first.");
    }

    /// Goal: a stall knows the row of its longest message where several senders number each for itself. Method: two messages of one
    /// number that took as long; the first of them was sent by another, and is another stall.
    #[test]
    fn a_stall_knows_its_row() {
        let mut samples = Samples::default();
        for (number, start_ns, total_ns) in [
            (7, 0, 1_000_000),
            (7, 5_000_000, 700_000),
            (8, 5_000_000, 900_000),
            (7, 9_000_000, 1_000_000),
            (8, 9_000_000, 500),
        ] {
            samples.push(number, start_ns, start_ns, total_ns, Outcome::Answered);
        }
        let found = stalls_with_rows(&samples, Load::Open, StallRule::for_median(1_000), |_| true);
        assert_eq!(found.iter().map(|(_, row)| *row).collect::<Vec<_>>(), [0, 1, 2, 3]);
        for (stall, row) in found {
            let of_row = (samples.index[row], samples.total_ns[row]);
            assert_eq!((stall.first_index, stall.longest_ns), of_row);
            assert_eq!(stall.release_ns, samples.start_ns(row, Load::Open) + samples.total_ns[row]);
        }
        let together = StallRule { gap_ns: 300_000, ..StallRule::for_median(1_000) };
        let found = stalls_with_rows(&samples, Load::Open, together, |_| true);
        let rows: Vec<_> = found.iter().map(|(stall, row)| (stall.messages, *row)).collect();
        assert_eq!(rows, [(1, 0), (2, 2), (1, 3)]);
    }
}
