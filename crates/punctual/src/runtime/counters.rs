//! Times by size.

use punctual_machine::counter::Counter;
use punctual_proto::Nanos;

/// Parts of each doubling: a time is known to an eighth.
const PARTS: u32 = 8;

/// Up to 2^40 ns, which is 18 minutes; longer ones count as that.
pub(super) const BUCKETS: usize = (PARTS * 38) as usize;

/// The bucket of a time: below 8 ns one for each, then eight for each doubling.
pub(super) fn bucket(ns: u64) -> usize {
    let parts = u64::from(PARTS);
    if ns < parts {
        return ns as usize;
    }
    let doublings = ns.ilog2() - PARTS.ilog2();
    let part = (ns >> doublings) - parts;
    ((doublings + 1) * PARTS + part as u32).min(BUCKETS as u32 - 1) as usize
}

/// The longest time of a bucket, nanoseconds.
fn longest(bucket: usize) -> u64 {
    let (doublings, part) = ((bucket as u32 / PARTS).saturating_sub(1), bucket as u64 % u64::from(PARTS));
    if bucket < PARTS as usize { bucket as u64 } else { ((u64::from(PARTS) + part + 1) << doublings) - 1 }
}

/// Histogram of times: the number of times of each size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]) }
    }
}

impl Histogram {
    /// Adds the counts of each size to those of others.
    pub(super) fn add(&mut self, buckets: &[Counter]) {
        self.counts
            .iter_mut()
            .zip(buckets)
            .for_each(|(count, bucket)| *count = count.saturating_add(bucket.get()));
    }

    /// Count of all times in the histogram.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// Count of times shorter than a limit: exact where it is a power of two, else some of an eighth less may be missing.
    #[must_use]
    pub fn count_below(&self, limit: Nanos) -> u64 {
        self.counts[..bucket(limit.0)].iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// All times together, an eighth more at most.
    #[must_use]
    pub fn sum(&self) -> Nanos {
        let sum = |sum: u64, (index, count): (usize, &u64)| {
            sum.saturating_add(longest(index).saturating_mul(*count))
        };
        Nanos(self.counts.iter().enumerate().fold(0, sum))
    }

    /// The time that so many thousandths of them do not exceed, an eighth more at most. `None` if there is none.
    #[must_use]
    pub fn quantile(&self, permille: u64) -> Option<Nanos> {
        let rank = (u128::from(self.count()) * u128::from(permille)).div_ceil(1_000).max(1);
        let mut before = 0;
        let found = self.counts.iter().position(|count| {
            before += u128::from(*count);
            before >= rank
        })?;
        Some(Nanos(longest(found)))
    }

    /// Those that came since an earlier one of the same.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts.clone();
        counts
            .iter_mut()
            .zip(&*earlier.counts)
            .for_each(|(count, before)| *count = count.saturating_sub(*before));
        Self { counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: buckets follow each other without a gap, and each holds the times up to its longest.
    #[test]
    fn every_time_has_a_bucket() {
        assert_eq!(bucket(0), 0);
        for index in 0..BUCKETS - 1 {
            let last = longest(index);
            assert_eq!((bucket(last), bucket(last + 1)), (index, index + 1), "{last}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_is_at_most_an_eighth_too_long() {
        let times: Vec<Counter> = (0..BUCKETS).map(|_| Counter::default()).collect();
        (1..=1_000).for_each(|us| times[bucket(us * 1_000)].add_alone(1));
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(500), None);
        histogram.add(&times);
        for permille in [1, 10, 500, 990, 1_000] {
            let Nanos(found) = histogram.quantile(permille).unwrap();
            assert!(found >= permille * 1_000 && found <= permille * 1_125, "{permille}: {found}");
        }
        assert_eq!(histogram.since(&histogram).count(), 0);
        assert_eq!(
            [1 << 10, 1 << 19, 1 << 30].map(|limit| histogram.count_below(Nanos(limit))),
            [1, 524, 1_000]
        );
        assert!((500_500_000..=563_062_500).contains(&histogram.sum().0), "{:?}", histogram.sum());
    }
}
