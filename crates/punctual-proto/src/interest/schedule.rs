//! When which periods are due: absolute instants, so that being late once makes nothing else late.
//!
//! Every period is due at its multiples since the schedule began, so due instants repeat after the least common multiple
//! of all periods. Nothing wraps there or at the largest period: instants are multiples counted in 64 bits.

use alloc::vec::Vec;

use super::lateness::Lateness;
use crate::time::Nanos;

/// One period, and what became of its instants.
#[derive(Clone, Debug)]
pub struct Period {
    period_us: u32,
    /// Number of the multiple that is due next.
    next: u64,
    /// Interests that want it.
    pub(super) users: u32,
    pub(super) missed: u64,
    pub(super) lateness: Lateness,
}

impl Period {
    /// The period, µs.
    pub fn period_us(&self) -> u32 {
        self.period_us
    }

    /// Interests that want it now.
    pub fn users(&self) -> u32 {
        self.users
    }

    /// Instants that were skipped, because a later one of the same period had passed too when their turn came.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Lateness of the instants that were served, each against the time at which it was due.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    fn length(&self) -> u64 {
        u64::from(self.period_us) * 1_000
    }

    /// The next instant, nanoseconds since the schedule began.
    fn offset(&self) -> u64 {
        self.next.saturating_mul(self.length())
    }

    /// An instant is served, when so much has passed: ours, if it is a multiple that was not served yet.
    fn serve(&mut self, offset: u64, passed: u64) {
        let which = offset / self.length();
        if offset.is_multiple_of(self.length()) && which >= self.next {
            self.missed += which - self.next;
            self.next = which + 1;
            self.lateness.note(Nanos(passed - offset));
        }
    }
}

/// An instant at which something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// Offset of the instant, µs since the schedule began.
    pub offset_us: u64,
    /// On the caller's clock.
    pub due: Nanos,
}

impl Instant {
    /// True if a period is due at it.
    pub fn is_multiple_of(&self, period_us: u32) -> bool {
        period_us != 0 && self.offset_us.is_multiple_of(u64::from(period_us))
    }
}

/// All periods of one publication.
#[derive(Clone, Debug)]
pub struct Schedule {
    began: Nanos,
    periods: Vec<Period>,
}

impl Schedule {
    /// Begins now, with no periods.
    pub fn new(now: Nanos) -> Self {
        Self { began: now, periods: Vec::new() }
    }

    /// The periods that are served or were served lately.
    pub fn periods(&self) -> &[Period] {
        &self.periods
    }

    /// Microseconds since the schedule began.
    pub fn offset_us(&self, now: Nanos) -> u64 {
        now.since(self.began).0 / 1_000
    }

    /// Responses per second for all periods in use, rounded up; instants of several periods count for each.
    pub fn rate(&self) -> u64 {
        self.in_use().map(|period| 1_000_000_u64.div_ceil(period.period_us.into())).sum()
    }

    /// The schedule repeats after this time: the least common multiple of all periods in use, µs. `None` if it does not fit, or there
    /// are none.
    pub fn cycle_us(&self) -> Option<u64> {
        let mut periods = self.in_use().map(|period| u64::from(period.period_us));
        let first = periods.next()?;
        periods.try_fold(first, |cycle, period| (cycle / divisor(cycle, period)).checked_mul(period))
    }

    fn in_use(&self) -> impl Iterator<Item = &Period> {
        self.periods.iter().filter(|period| period.users > 0)
    }

    /// True if one more user of a period needs no room.
    pub(super) fn has(&self, period_us: u32) -> bool {
        self.in_use().any(|period| period.period_us == period_us)
    }

    /// Different periods in use.
    pub(super) fn in_use_count(&self) -> usize {
        self.in_use().count()
    }

    /// One more user of a period; of the statistics of periods without users the oldest make room.
    pub(super) fn add(&mut self, period_us: u32, periods_max: usize, now: Nanos) {
        debug_assert!(period_us > 0, "refused before");
        let next = now.since(self.began).0 / (u64::from(period_us) * 1_000) + 1;
        if let Some(period) = self.periods.iter_mut().find(|period| period.period_us == period_us) {
            if period.users == 0 {
                period.next = next;
            }
            period.users += 1;
            return;
        }
        if self.periods.len() >= periods_max
            && let Some(unused) = self.periods.iter().position(|period| period.users == 0)
        {
            self.periods.remove(unused);
        }
        self.periods.push(Period { period_us, next, users: 1, missed: 0, lateness: Lateness::default() });
    }

    /// One user less.
    pub(super) fn remove(&mut self, period_us: u32) {
        if let Some(period) = self.periods.iter_mut().find(|period| period.period_us == period_us) {
            period.users = period.users.saturating_sub(1);
        }
    }

    /// When something is due next.
    pub fn next_due(&self) -> Option<Nanos> {
        self.in_use().map(Period::offset).min().map(|offset| self.began.plus(Nanos(offset)))
    }

    /// The oldest instant that is due and not skipped: of each period only the last instant that has passed counts, those
    /// before it are missed unless another period is served then. It is served from now on.
    pub fn poll_due(&mut self, now: Nanos) -> Option<Instant> {
        let passed = now.since(self.began).0;
        let last_of = |period: &Period| {
            let last = passed / period.length();
            (last >= period.next).then(|| last * period.length())
        };
        let offset = self.in_use().filter_map(last_of).min()?;
        for period in self.periods.iter_mut().filter(|period| period.users > 0) {
            period.serve(offset, passed);
        }
        Some(Instant { offset_us: offset / 1_000, due: self.began.plus(Nanos(offset)) })
    }
}

/// Greatest common divisor (Euclid).
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule_of(periods: &[u32], began: Nanos) -> Schedule {
        let mut schedule = Schedule::new(began);
        periods.iter().for_each(|&period| schedule.add(period, 64, began));
        schedule
    }

    /// Every instant of a schedule that is never late, until so many microseconds have passed.
    fn instants(schedule: &mut Schedule, began: Nanos, until_us: u64) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(due) = schedule.next_due().filter(|due| due.since(began).0 <= until_us * 1_000) {
            let instant = schedule.poll_due(due).expect("it is due");
            assert_eq!((instant.due, schedule.poll_due(due)), (due, None));
            all.push(instant.offset_us);
        }
        all
    }

    /// Goal: the defect of the original. There the cycle wrapped at 3, and the 2-subscriber got 1 of 3.
    #[test]
    fn periods_of_two_and_three_both_get_all_of_theirs() {
        let began = Nanos(12_345);
        let mut schedule = schedule_of(&[2_000, 3_000], began);
        assert_eq!(schedule.cycle_us(), Some(6_000));
        let all = instants(&mut schedule, began, 12_000);
        assert_eq!(all, [2_000, 3_000, 4_000, 6_000, 8_000, 9_000, 10_000, 12_000]);
        let served: Vec<u64> = schedule.periods().iter().map(|period| period.lateness().count()).collect();
        assert_eq!(served, [6, 4]);
    }

    #[test]
    fn a_late_publisher_serves_the_last_instant_of_each_period_and_counts_the_others() {
        let began = Nanos(0);
        let mut schedule = schedule_of(&[2_000, 3_000], began);
        let now = Nanos(200_500_000);
        assert_eq!(schedule.poll_due(now).unwrap().offset_us, 198_000);
        assert_eq!(schedule.poll_due(now).unwrap().offset_us, 200_000);
        assert_eq!(schedule.poll_due(now), None);
        assert_eq!(schedule.next_due(), Some(Nanos(201_000_000)));
        let [two, three] = schedule.periods() else { panic!("two periods") };
        assert_eq!((two.missed(), two.lateness().least()), (98, Some(Nanos(500_000))));
        assert_eq!(two.lateness().most(), Some(Nanos(2_500_000)));
        assert_eq!((three.missed(), three.lateness().most()), (65, Some(Nanos(2_500_000))));
    }

    #[test]
    fn instants_do_not_drift_in_a_thousand_years() {
        let mut schedule = Schedule::new(Nanos(0));
        let late = Nanos(u64::MAX / 2 + 7);
        schedule.add(100, 64, late);
        let due = schedule.next_due().unwrap();
        assert_eq!(due.0 % 100_000, 0);
        assert!(due > late && due.since(late) <= Nanos(100_000));
    }

    proptest! {
        /// Goal: in one cycle every period is served at each of its multiples and at no other instant.
        /// Oracle: walking every microsecond of the cycle.
        #[test]
        fn every_multiple_is_served_once(periods in proptest::collection::vec(1_u32..30, 1..5), began: u32) {
            let began = Nanos(began.into());
            let mut schedule = schedule_of(&periods, began);
            let cycle = schedule.cycle_us().unwrap();
            prop_assume!(cycle <= 20_000);
            let expected: Vec<u64> = (1..=2 * cycle)
                .filter(|at| periods.iter().any(|&period| at.is_multiple_of(period.into())))
                .collect();
            let all = instants(&mut schedule, began, 2 * cycle);
            prop_assert_eq!(&all, &expected);
            let (first, second) = all.split_at(all.len() / 2);
            prop_assert!(first.iter().zip(second).all(|(a, b)| a + cycle == *b), "due instants repeat");
        }

        /// Goal: however late it is polled, every multiple that has passed was served or missed, and instants only rise.
        #[test]
        fn an_instant_that_is_not_served_is_missed(
            periods in proptest::collection::btree_set(1_u32..50, 1..4),
            waits in proptest::collection::vec(0_u64..200_000, 1..50),
        ) {
            let periods: Vec<u32> = periods.into_iter().collect();
            let mut schedule = schedule_of(&periods, Nanos(0));
            let (mut now, mut last) = (0, 0);
            for wait in waits {
                now += wait;
                let before = last;
                while let Some(instant) = schedule.poll_due(Nanos(now)) {
                    prop_assert!(instant.due.0 <= now && instant.offset_us > last);
                    last = instant.offset_us;
                }
                prop_assert!(last >= before);
                for period in schedule.periods() {
                    let passed = now / (u64::from(period.period_us()) * 1_000);
                    prop_assert_eq!(period.lateness().count() + period.missed(), passed);
                }
            }
        }
    }
}
