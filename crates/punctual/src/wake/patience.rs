//! How long to spin before sleeping, decided by how long the last waits were.
//!
//! A sleep has a price: two trips through the scheduler, and a wake-up that comes later than a look would have. Spinning
//! costs what it lasts. Of the spin times that would have been best for one of the last waits, the one is taken that would
//! have cost least over all of them; a wait that no spin of that price would have bridged is not spun for at all. This is
//! the ski-rental problem with the last waits as the forecast: it costs at most twice what it would cost to know better.

/// Waits that are remembered.
const MEMORY: usize = 16;

/// Waits between two decisions, once the memory is full: a decision costs as much as a hundred polls.
const DECIDE_EVERY: u32 = 16;

/// Spin longer than the waits were by a quarter: they are never alike.
const MARGIN_DIVISOR: u32 = 4;

/// What a sleep is taken to cost, nanoseconds: 20 µs of processor time at both ends together, and a message that is noticed
/// 20 µs later. Measured on a virtual machine of two processors (`punctual run wakeup`, gaps of 10 and 100 µs), where waking
/// another processor is dear; on others [`Patience::new`] takes what it is there.
pub const SLEEP_COST_NS: u32 = 40_000;

/// One waiter's forecast. Pure: durations come in, a duration goes out.
#[derive(Clone, Debug)]
pub struct Patience {
    sleep_cost_ns: u32,
    waits_ns: [u32; MEMORY],
    noted: u32,
    spin_ns: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self::new(SLEEP_COST_NS)
    }
}

impl Patience {
    /// For sleeps of this price: a higher one spins for longer gaps.
    #[must_use]
    pub const fn new(sleep_cost_ns: u32) -> Self {
        Self { sleep_cost_ns, waits_ns: [0; MEMORY], noted: 0, spin_ns: sleep_cost_ns }
    }

    /// How long to spin before sleeping, nanoseconds.
    #[must_use]
    pub const fn spin_ns(&self) -> u32 {
        self.spin_ns
    }

    /// A wait is over: how long it was from its beginning, asleep or not.
    pub fn note(&mut self, wait_ns: u64) {
        self.waits_ns[self.noted as usize % MEMORY] = u32::try_from(wait_ns).unwrap_or(u32::MAX);
        // Never back to the first few, where every wait is a decision.
        self.noted = self.noted.checked_add(1).unwrap_or(2 * MEMORY as u32);
        if self.noted <= MEMORY as u32 || self.noted.is_multiple_of(DECIDE_EVERY) {
            self.spin_ns = self.decide();
        }
    }

    fn decide(&self) -> u32 {
        let known = &self.waits_ns[..MEMORY.min(self.noted as usize)];
        let with_margin = |wait: u32| wait.saturating_add(wait / MARGIN_DIVISOR);
        let candidates =
            known.iter().map(|&wait| with_margin(wait)).filter(|&spin| spin <= self.sleep_cost_ns * 2);
        candidates.chain([0]).min_by_key(|&spin| (self.cost_of(spin, known), spin)).unwrap_or(0)
    }

    /// What these waits would have cost with this spin time.
    fn cost_of(&self, spin_ns: u32, waits_ns: &[u32]) -> u64 {
        let cost = |&wait: &u32| {
            if wait <= spin_ns { u64::from(wait) } else { u64::from(spin_ns) + u64::from(self.sleep_cost_ns) }
        };
        waits_ns.iter().map(cost).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(waits_ns: impl IntoIterator<Item = u64>) -> Patience {
        let mut patience = Patience::default();
        waits_ns.into_iter().for_each(|wait| patience.note(wait));
        patience
    }

    #[test]
    fn short_waits_are_spun_for_and_long_ones_are_not() {
        for short in [100, 1_000, 10_000, 30_000] {
            let spin = u64::from(after([short; 16]).spin_ns());
            assert!(spin > short && spin <= 2 * short, "{short}: {spin}");
        }
        for long in [80_000, 100_000, 1_000_000, u64::MAX] {
            assert_eq!(after([long; 16]).spin_ns(), 0, "{long}");
        }
    }

    /// Goal: who once slept through short gaps is not caught there, although a wait that was slept through looks longer than
    /// the gap by what it takes to wake.
    #[test]
    fn sleeping_through_short_gaps_does_not_last() {
        let mut patience = after([1_000_000; 32]);
        for _ in 0..64 {
            let (gap, waking) = (10_000, 25_000);
            patience.note(if patience.spin_ns() >= gap { gap.into() } else { u64::from(gap + waking) });
        }
        assert!((10_000..20_000).contains(&patience.spin_ns()), "{}", patience.spin_ns());
    }

    #[test]
    fn a_change_is_noticed_within_two_memories() {
        let mut patience = after([1_000_000; 100]);
        for _ in 0..32 {
            patience.note(500);
        }
        assert!(patience.spin_ns() >= 500);
        for _ in 0..32 {
            patience.note(1_000_000);
        }
        assert_eq!(patience.spin_ns(), 0);
    }

    #[test]
    fn of_two_kinds_of_waits_only_the_short_ones_are_spun_for() {
        let spin = after([1_000, 1_000, 1_000, 1_000_000].repeat(4)).spin_ns();
        assert!((1_000..3_000).contains(&spin), "{spin}");
    }

    proptest! {
        /// Goal: never more than twice what knowing each wait beforehand would have cost.
        #[test]
        fn it_costs_at_most_twice_what_foresight_does(waits in proptest::collection::vec(0_u64..200_000, 16)) {
            let patience = after(waits.iter().copied());
            let paid: u64 = patience.cost_of(patience.spin_ns(), &patience.waits_ns);
            let least: u64 = waits.iter().map(|&wait| wait.min(u64::from(SLEEP_COST_NS))).sum();
            prop_assert!(paid <= 2 * least + u64::from(SLEEP_COST_NS), "{paid} against {least}");
        }
    }
}
