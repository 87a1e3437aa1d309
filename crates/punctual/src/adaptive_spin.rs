//! Time to spin before sleeping, decided by the lengths of the last waits, and by whether spinning was of use.
//!
//! A sleep has a price: the processor time of two trips through the scheduler, and a wake-up that comes later than a look would have.
//! Spinning costs what it lasts. The candidates are the spin times that would have been best for one of the last waits; the one that
//! would have cost least over all of them is taken. A wait that no spin of that price would have bridged is not spun for at all. This
//! is the ski-rental problem with the last waits as the forecast: it costs at most twice what it would cost to know better.
//!
//! Two things the lengths of waits do not tell. Where sender and receiver share a processor no spin ever finds anything, as the sender
//! does not run meanwhile. Where somebody else wants the processor, a spinning thread is the one that uses it up, and loses it for
//! milliseconds; a sleeping thread is let in at once. Both are noticed by their effects, and end spinning for a while that doubles each
//! time.

use punctual_machine::sleep_cost::SleepCost;

/// Waits that are remembered.
const MEMORY: usize = 16;

/// No wait is taken to be shorter, nanoseconds: the rest of one that was slept through may be nothing.
const WAIT_NS_MIN: u64 = 1_000;

/// Spin longer than the waits were by a quarter: they are never alike.
const MARGIN_DIVISOR: u32 = 4;

/// Spins in a row that found nothing, after which spinning pauses.
const IN_VAIN_MAX: u32 = 4;

/// Waits for which spinning pauses after spins in vain.
const PAUSE_IN_VAIN: Pause = Pause { first: 16, last: 4_096 };

/// Waits for which it pauses after the processor was taken away during a spin. That takes milliseconds, in which thousands of
/// messages could have come.
const PAUSE_PREEMPTED: Pause = Pause { first: 1_024, last: 65_536 };

/// A processor that is taken away less often than once in so much time of spinning is not wanted by a neighbour. A neighbour takes it
/// at the end of every slice, after some 3 ms. The cause was an interrupt, a short thread or the hypervisor. Nanoseconds.
const LONE_AFTER_NS: u32 = 20_000_000;

/// A pause so many times as long ago that the next one is the first again.
const FORGOTTEN_AFTER: u32 = 64;

/// Growth of pauses, waits.
#[derive(Clone, Copy, Debug)]
struct Pause {
    first: u32,
    last: u32,
}

/// Result of spinning for a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spun {
    /// It ended while it was spun for.
    Found,
    /// It was spun for, and lasted longer.
    InVain,
    /// The thread lost its processor while it spun.
    Preempted,
    /// It was slept through.
    Not,
}

/// One waiter's forecast. Pure: durations come in, a duration goes out.
#[derive(Clone, Debug)]
pub struct AdaptiveSpin {
    sleep_cost_ns: u32,
    /// So much of a wait that was slept through is the waking.
    delay_ns: u32,
    /// True if it learns from the lengths of waits.
    forecasts: bool,
    waits_ns: [u32; MEMORY],
    noted: u32,
    spin_ns: u32,
    /// Spins in a row that found nothing.
    in_vain: u32,
    /// Waits that are left of a pause, and the length of the last one of each kind.
    pause: u32,
    pause_in_vain: u32,
    pause_preempted: u32,
    /// Waits since the processor was last taken away, and how long the spins in them lasted together.
    undisturbed: u32,
    undisturbed_ns: u32,
}

impl AdaptiveSpin {
    /// For sleeps of this price: a higher one spins for longer gaps, 0 never spins.
    #[must_use]
    pub const fn new(sleep: SleepCost) -> Self {
        let sleep_cost_ns = sleep.total_ns();
        Self {
            sleep_cost_ns,
            delay_ns: sleep.delay_ns,
            forecasts: true,
            waits_ns: [0; MEMORY],
            noted: 0,
            spin_ns: sleep_cost_ns,
            in_vain: 0,
            pause: 0,
            pause_in_vain: 0,
            pause_preempted: 0,
            undisturbed: 0,
            undisturbed_ns: LONE_AFTER_NS,
        }
    }

    /// One that spins for this long, however long the waits are, and for as long as a sleep costs if that is longer. Where a
    /// sleep costs nothing it never spins.
    #[must_use]
    pub const fn fixed(sleep: SleepCost, spin_ns_min: u32) -> Self {
        let mut spin = Self::new(sleep);
        spin.forecasts = false;
        if spin.spin_ns > 0 && spin.spin_ns < spin_ns_min {
            spin.spin_ns = spin_ns_min;
        }
        spin
    }

    /// Time to spin before sleeping, nanoseconds.
    #[inline]
    #[must_use]
    pub const fn spin_ns(&self) -> u32 {
        if self.pause > 0 { 0 } else { self.spin_ns }
    }

    /// A wait is over: its length from its beginning, asleep or not, and the way of spinning for it.
    #[inline]
    pub fn note(&mut self, wait_ns: u64, spun: Spun) {
        // Two that answer each other both look slow while both sleep: how long would it have been for who spins?
        let waking_ns = if spun == Spun::Found { 0 } else { u64::from(self.delay_ns) };
        let awake_ns = wait_ns.saturating_sub(waking_ns).max(WAIT_NS_MIN);
        self.waits_ns[self.noted as usize % MEMORY] = u32::try_from(awake_ns).unwrap_or(u32::MAX);
        // Never back to the first few, of which there are fewer than are remembered.
        self.noted = self.noted.checked_add(1).unwrap_or(MEMORY as u32);
        self.undisturbed = self.undisturbed.saturating_add(1);
        if spun == Spun::Found {
            // As long as it is of use nothing is decided anew: that would cost as much as ten polls.
            (self.in_vain, self.pause_in_vain) = (0, 0);
            self.undisturbed_ns = self.undisturbed_ns.saturating_add(awake_ns as u32);
        } else {
            self.reconsider(spun);
        }
    }

    #[cold]
    fn reconsider(&mut self, spun: Spun) {
        self.pause = self.pause.saturating_sub(1);
        let spun_ns = self.spin_ns;
        if self.forecasts {
            self.spin_ns = self.decide();
        }
        match spun {
            Spun::InVain => {
                self.undisturbed_ns = self.undisturbed_ns.saturating_add(spun_ns);
                self.in_vain += 1;
                if self.in_vain == IN_VAIN_MAX {
                    self.pause_in_vain = PAUSE_IN_VAIN.after(self.pause_in_vain);
                    self.pause = self.pause_in_vain;
                    // After the pause one more try is enough.
                    self.in_vain -= 1;
                }
            }
            Spun::Preempted => {
                if self.undisturbed / FORGOTTEN_AFTER > self.pause_preempted {
                    self.pause_preempted = 0;
                }
                if self.undisturbed_ns < LONE_AFTER_NS {
                    self.pause_preempted = PAUSE_PREEMPTED.after(self.pause_preempted);
                    (self.pause, self.undisturbed) = (self.pause_preempted, 0);
                }
                self.undisturbed_ns = 0;
            }
            Spun::Found | Spun::Not => {}
        }
    }

    fn decide(&self) -> u32 {
        let known = &self.waits_ns[..MEMORY.min(self.noted as usize)];
        let with_margin = |wait: u32| wait.saturating_add(wait / MARGIN_DIVISOR);
        let candidates =
            known.iter().map(|&wait| with_margin(wait)).filter(|&spin| spin <= self.sleep_cost_ns * 2);
        candidates.chain([0]).min_by_key(|&spin| (self.cost_of(spin, known), spin)).unwrap_or(0)
    }

    /// Cost that these waits would have had with this spin time.
    fn cost_of(&self, spin_ns: u32, waits_ns: &[u32]) -> u64 {
        let cost = |&wait: &u32| {
            if wait <= spin_ns { u64::from(wait) } else { u64::from(spin_ns) + u64::from(self.sleep_cost_ns) }
        };
        waits_ns.iter().map(cost).sum()
    }
}

impl Pause {
    /// The one after a pause of this length; 0 = there was none.
    const fn after(self, before: u32) -> u32 {
        match before {
            0 => self.first,
            before if before >= self.last => self.last,
            before => before * 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COST_NS: u32 = 40_000;
    const DELAY_NS: u32 = 20_000;
    const COST: SleepCost = SleepCost { cpu_ns: COST_NS - DELAY_NS, delay_ns: DELAY_NS };

    /// Waits of this length for a thread that is awake, where spinning sees their ends. Returns how many were spun for.
    fn pass(spin: &mut AdaptiveSpin, waits_ns: impl IntoIterator<Item = u64>) -> usize {
        let mut spun = 0;
        for wait in waits_ns {
            spun += usize::from(spin.spin_ns() > 0);
            let asleep = wait.saturating_add(DELAY_NS.into());
            match u64::from(spin.spin_ns()) {
                0 => spin.note(asleep, Spun::Not),
                spin_ns if wait <= spin_ns => spin.note(wait, Spun::Found),
                _ => spin.note(asleep, Spun::InVain),
            }
        }
        spun
    }

    fn after(waits_ns: impl IntoIterator<Item = u64>) -> AdaptiveSpin {
        let mut spin = AdaptiveSpin::new(COST);
        pass(&mut spin, waits_ns);
        spin
    }

    #[test]
    fn short_waits_are_spun_for_and_long_ones_are_not() {
        for short in [100, 1_000, 10_000, 30_000] {
            let spin = u64::from(after([short; 16]).spin_ns());
            assert!(spin > short && spin <= 2 * u64::from(COST_NS), "{short}: {spin}");
        }
        for long in [80_000, 100_000, 1_000_000, u64::MAX] {
            assert_eq!(after([long; 16]).spin_ns(), 0, "{long}");
        }
    }

    /// Goal: a spin in vain counts by how long it lasted, not by how long the next one will.
    #[test]
    fn a_spin_in_vain_counts_as_long_as_it_was() {
        let mut spin = AdaptiveSpin { undisturbed_ns: 0, ..AdaptiveSpin::new(COST) };
        spin.note(1_000_000, Spun::InVain);
        assert_eq!((spin.undisturbed_ns, spin.spin_ns()), (COST_NS, 0));
    }

    #[test]
    fn where_sleeping_costs_nothing_nobody_spins() {
        for mut spin in
            [AdaptiveSpin::new(SleepCost::NOTHING), AdaptiveSpin::fixed(SleepCost::NOTHING, 250_000)]
        {
            assert_eq!(pass(&mut spin, [100; 100]), 0);
        }
    }

    /// Goal: a fixed time is that, regardless of what was learnt, and never less than the cost of a sleep.
    #[test]
    fn a_fixed_time_stays() {
        for (least, expected) in [(0, COST_NS), (COST_NS / 2, COST_NS), (250_000, 250_000)] {
            let mut spin = AdaptiveSpin::fixed(COST, least);
            assert_eq!(spin.spin_ns(), expected);
            for waits in [[500; 100], [1_000_000; 100]] {
                pass(&mut spin, waits);
                while spin.spin_ns() == 0 {
                    pass(&mut spin, [500]);
                }
                assert_eq!(spin.spin_ns(), expected);
            }
        }
    }

    /// Goal: two that answer each other at once, and both sleep, do not sleep on for ever because the other one does.
    #[test]
    fn two_that_sleep_through_each_others_answers_wake_up() {
        let mut ends = [(); 2].map(|()| after([1_000_000; 32]));
        for _ in 0..64 {
            let spins = [0, 1].map(|end: usize| ends[end].spin_ns());
            // A waiter also waits for the other to wake up.
            let answer = |other: usize| 1_000 + if spins[other] > 0 { 0 } else { u64::from(DELAY_NS) };
            pass(&mut ends[0], [answer(1)]);
            pass(&mut ends[1], [answer(0)]);
        }
        for end in &ends {
            assert!(end.spin_ns() > 1_000, "{end:?}");
        }
    }

    #[test]
    fn a_change_is_noticed_within_two_memories() {
        let mut spin = after([1_000_000; 100]);
        pass(&mut spin, [500; 32]);
        assert!(spin.spin_ns() >= 500, "{spin:?}");
        pass(&mut spin, [1_000_000; 32]);
        assert_eq!(spin.spin_ns(), 0);
    }

    #[test]
    fn of_two_kinds_of_waits_only_the_short_ones_are_spun_for() {
        let spin = after([1_000, 1_000, 1_000, 1_000_000].repeat(4)).spin_ns();
        assert!((1_000..3_000).contains(&spin), "{spin}");
    }

    /// Goal: where sender and receiver share a processor, spinning keeps the message from coming: it ends.
    /// Method: every wait lasts for its spin and a little longer, which looks as if a longer spin would do.
    #[test]
    fn a_receiver_that_keeps_the_sender_from_running_stops_spinning() {
        for mut spin in [AdaptiveSpin::new(COST), AdaptiveSpin::fixed(COST, 0)] {
            let mut spun = 0;
            for _ in 0..10_000 {
                let spin_ns = spin.spin_ns();
                spun += u32::from(spin_ns > 0);
                spin.note(u64::from(spin_ns) + 5_000, if spin_ns > 0 { Spun::InVain } else { Spun::Not });
            }
            assert!((IN_VAIN_MAX..32).contains(&spun), "{spun}");
            // The sender has got a processor of its own: one try finds out.
            let waits = 2 * PAUSE_IN_VAIN.last as usize;
            assert!(pass(&mut spin, std::iter::repeat_n(500, waits)) > waits / 3);
        }
    }

    /// Goal: a thread that loses the processor when it spins sleeps instead, ever longer while it goes on, and not for ever.
    #[test]
    fn a_thread_that_loses_the_processor_sleeps_instead() {
        let mut spin = AdaptiveSpin::new(COST);
        spin.note(3_000_000, Spun::Preempted);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            spin.note(3_000_000, Spun::Preempted);
            let mut pause = 0;
            while spin.spin_ns() == 0 {
                spin.note(5_000, Spun::Not);
                pause += 1;
            }
            pauses.push(pause);
            spin.note(500, Spun::Found);
        }
        assert!(pauses.is_sorted() && pauses[0] >= PAUSE_PREEMPTED.first, "{pauses:?}");
        assert_eq!(pauses[11], PAUSE_PREEMPTED.last, "{pauses:?}");
        pass(&mut spin, std::iter::repeat_n(500, (FORGOTTEN_AFTER * (PAUSE_PREEMPTED.last + 1)) as usize));
        (0..2).for_each(|_| spin.note(3_000_000, Spun::Preempted));
        let waits = 2 * PAUSE_PREEMPTED.first as usize;
        assert!(pass(&mut spin, std::iter::repeat_n(500, waits)) > 0, "forgotten");
    }

    /// Goal: a thread that loses the processor once in a while, as to an interrupt or the hypervisor, spins on. Found waits between add
    /// up to more than a neighbour would leave.
    #[test]
    fn a_lone_loss_of_the_processor_ends_no_spinning() {
        let mut spin = AdaptiveSpin::fixed(COST, 250_000);
        for _ in 0..100 {
            spin.note(3_000_000, Spun::Preempted);
            assert!(spin.spin_ns() > 0, "{spin:?}");
            assert_eq!(pass(&mut spin, std::iter::repeat_n(100_000, 250)), 250);
        }
    }

    proptest! {
        /// Goal: never more than twice what knowing each wait beforehand would have cost.
        #[test]
        fn it_costs_at_most_twice_what_foresight_does(waits in proptest::collection::vec(0_u64..200_000, 16)) {
            let spin = after(waits.iter().copied());
            let paid: u64 = spin.cost_of(spin.decide(), &spin.waits_ns);
            let least: u64 = waits.iter().map(|&wait| wait.min(u64::from(COST_NS))).sum();
            prop_assert!(paid <= 2 * least + u64::from(COST_NS), "{paid} against {least}");
        }
    }
}
