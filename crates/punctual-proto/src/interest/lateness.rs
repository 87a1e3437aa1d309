//! Lateness against deadlines, as a histogram of bounded size.

use alloc::vec;
use alloc::vec::Vec;

use crate::time::Nanos;

/// Bits behind the leading one by which buckets are told apart: a bucket is at most an eighth wider than it is high.
const DETAIL: u32 = 3;
const PER_OCTAVE: usize = 1 << DETAIL;
const BUCKETS: usize = (u64::BITS - DETAIL + 1) as usize * PER_OCTAVE;

/// Latenesses that were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    count: u64,
    sum_ns: u64,
    least: Nanos,
    most: Nanos,
    buckets: Vec<u64>,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { count: 0, sum_ns: 0, least: Nanos::NEVER, most: Nanos(0), buckets: vec![0; BUCKETS] }
    }
}

/// Small values have a bucket each; from there on every octave has as many.
fn bucket_of(ns: u64) -> usize {
    let octave = (u64::BITS - ns.leading_zeros()).saturating_sub(DETAIL + 1);
    octave as usize * PER_OCTAVE + (ns >> octave) as usize
}

/// The largest value of a bucket.
fn top_of(bucket: usize) -> u64 {
    let octave = (bucket / PER_OCTAVE).saturating_sub(1);
    let lead = (bucket - octave * PER_OCTAVE) as u64;
    (lead << octave) + ((1 << octave) - 1)
}

impl Lateness {
    /// Counts one.
    pub fn note(&mut self, late_by: Nanos) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(late_by.0);
        self.least = self.least.min(late_by);
        self.most = self.most.max(late_by);
        self.buckets[bucket_of(late_by.0)] += 1;
    }

    /// Number of entries counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least; `None` if there was none.
    pub fn least(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.least)
    }

    /// The most.
    pub fn most(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.most)
    }

    /// The mean.
    pub fn mean(&self) -> Option<Nanos> {
        self.sum_ns.checked_div(self.count).map(Nanos)
    }

    /// The value that `share` of 1,000 do not exceed, at most an eighth too high.
    pub fn quantile(&self, share: u32) -> Option<Nanos> {
        let rank = (u128::from(self.count) * u128::from(share.min(1_000))).div_ceil(1_000).max(1);
        let mut below = 0;
        let reached = |&count: &u64| {
            below += u128::from(count);
            below >= rank
        };
        let bucket = self.buckets.iter().position(reached)?;
        Some(Nanos(top_of(bucket)).min(self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Oracle: the sorted values.
        #[test]
        fn quantiles_are_those_of_the_values(
            mut values in proptest::collection::vec(prop_oneof![0_u64..100, 0_u64..10_000_000, any::<u64>()], 1..200),
            share in 0_u32..=1_000,
        ) {
            let mut lateness = Lateness::default();
            values.iter().for_each(|&value| lateness.note(Nanos(value)));
            values.sort_unstable();
            let rank = (values.len() * share as usize).div_ceil(1_000).max(1);
            let (exact, found) = (values[rank - 1], lateness.quantile(share).unwrap().0);
            prop_assert!(found >= exact, "{found} below {exact}");
            prop_assert!(found - exact <= exact / 8, "{found} far above {exact}");
            prop_assert_eq!(lateness.least(), Some(Nanos(values[0])));
            prop_assert_eq!(lateness.most().map(|most| most.0), values.last().copied());
            prop_assert_eq!(lateness.count(), values.len() as u64);
        }
    }

    /// Goal: a bucket holds more than 32 bits count: every value of a publisher of 1 kHz is in one of them for 50 days.
    #[test]
    fn a_bucket_counts_for_longer_than_32_bits() {
        let mut lateness = Lateness::default();
        lateness.note(Nanos(5));
        lateness.note(Nanos(1_000));
        let many = 1 << 33;
        lateness.count += many;
        lateness.buckets[bucket_of(5)] += many;
        lateness.note(Nanos(5));
        assert_eq!([500, 999].map(|share| lateness.quantile(share)), [Some(Nanos(5)); 2]);
    }

    #[test]
    fn of_nothing_there_is_no_quantile() {
        let none = Lateness::default();
        assert_eq!((none.quantile(500), none.mean(), none.most()), (None, None, None));
    }

    #[test]
    fn buckets_meet_without_gap_or_overlap() {
        for bucket in 0..BUCKETS - 1 {
            let top = top_of(bucket);
            assert_eq!((bucket_of(top), bucket_of(top + 1)), (bucket, bucket + 1), "{bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
