//! Spins for as long as that is worth while, then sleeps.

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::cpu::ThreadUsage;
use punctual_machine::sync::spin_hint;

use super::{AdaptiveSpin, Bed, Condition, Spun, Waited, Waiter};

/// Looks at shared memory between two looks at the clock, each with the processor's hint before it.
const LOOKS: u32 = 32;

/// Polls that are calls of the kernel between two looks at the clock: a look costs a twentieth of such a poll.
const POLLS_PER_CLOCK: u32 = 8;

/// So much time between two looks at the clock, nanoseconds: the thread did not run. An interrupt or a thread that has little to do
/// takes less. A thread that has used up its share of the processor waits for milliseconds.
const AWAY_NS: u64 = 1_000_000;

/// A wait that ended before the first look at the clock, nanoseconds: about what the looks take. Polls that are calls of the
/// kernel take up to four times that, and shorter waits are not told apart.
const BEGUN_NS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct SpinThenSleep<S> {
    sleep: S,
    spin: AdaptiveSpin,
    clock: &'static Clock,
    /// 1 where only a poll sees everything: one follows each look.
    looks: u32,
    /// Waits between two looks at the clock, and those that are left.
    waits_per_clock: u32,
    waits_left: u32,
    began: Ticks,
    state: State,
    /// Number of times that the kernel had given the processor to another thread when that was last asked.
    preemptions: u64,
}

/// State of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has not begun.
    Idle,
    /// It was spun for between two looks at the clock: most waits end here, and take none.
    Begun,
    /// It is spun for; when the clock was last looked at.
    Spins(Ticks),
    /// It is slept through, spun for or not.
    Sleeps(Spun),
}

impl<S> SpinThenSleep<S> {
    pub(super) fn new(sleep: S, spin: AdaptiveSpin, looks_suffice: bool) -> Self {
        let (looks, waits_per_clock) = if looks_suffice { (LOOKS, 1) } else { (1, POLLS_PER_CLOCK) };
        Self {
            sleep,
            spin,
            clock: Clock::get(),
            looks,
            waits_per_clock,
            waits_left: 0,
            began: Ticks(0),
            state: State::Idle,
            preemptions: preemptions(),
        }
    }

    /// True if another thread has had the processor since this was last asked. If not, the host of this machine took it, and sleeping
    /// would not have helped.
    #[cold]
    fn was_preempted(&mut self) -> bool {
        let now = preemptions();
        now != std::mem::replace(&mut self.preemptions, now)
    }

    /// The next part of this wait, by the time that it has lasted.
    #[inline]
    fn next(&mut self) -> State {
        if self.waits_left > 0 {
            self.waits_left -= 1;
            return self.state;
        }
        self.waits_left = self.waits_per_clock - 1;
        self.next_by_clock()
    }

    fn next_by_clock(&mut self) -> State {
        match self.state {
            State::Idle if self.spin.spin_ns() > 0 => State::Begun,
            State::Idle => {
                self.began = self.clock.now();
                State::Sleeps(Spun::Not)
            }
            State::Begun => {
                self.began = self.clock.now();
                State::Spins(self.began)
            }
            State::Spins(last) => {
                let now = self.clock.now();
                if self.clock.nanos(now.since(last)) > AWAY_NS && self.was_preempted() {
                    State::Sleeps(Spun::Preempted)
                } else if now < self.began
                    || self.clock.nanos(now.since(self.began)) >= u64::from(self.spin.spin_ns())
                {
                    // A counter may begin anew over a suspend, and would pass that instant hours later.
                    State::Sleeps(Spun::InVain)
                } else {
                    State::Spins(now)
                }
            }
            asleep @ State::Sleeps(_) => asleep,
        }
    }
}

impl<S: Waiter> Waiter for SpinThenSleep<S> {
    #[inline]
    fn wait(&mut self, bed: &mut Bed<'_>, condition: &mut dyn Condition) -> Waited {
        self.state = self.next();
        if matches!(self.state, State::Sleeps(_)) {
            return self.sleep.wait(bed, condition);
        }
        for _ in 0..self.looks {
            spin_hint();
            if condition.glance() {
                break;
            }
        }
        Waited::AWAKE
    }

    #[inline]
    fn handle_found(&mut self) {
        self.waits_left = 0;
        let (end, spun) = match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => return,
            State::Begun => return self.spin.note(BEGUN_NS, Spun::Found),
            // A microsecond ago or two: looking once more would keep the message waiting.
            State::Spins(last) => (last, Spun::Found),
            State::Sleeps(spun) => (self.clock.now(), spun),
        };
        self.spin.note(self.clock.nanos(end.since(self.began)), spun);
    }

    fn handle_handover(&mut self) {
        self.sleep.handle_handover();
    }

    fn sleeps_at_once(&self) -> bool {
        self.state == State::Idle && self.spin.spin_ns() == 0 && self.sleep.sleeps_at_once()
    }

    #[inline]
    fn spins_first(&self) -> bool {
        self.state == State::Idle && self.spin.spin_ns() > 0
    }

    fn sleeps_in_set(&self) -> bool {
        self.sleep.sleeps_in_set()
    }
}

/// Number of times that the kernel has given this thread's processor to another thread that wanted it.
fn preemptions() -> u64 {
    ThreadUsage::now().switches_involuntary
}

#[cfg(test)]
mod tests {
    use punctual_machine::counter::Flag;
    use punctual_machine::cpu::{allowed, pin_to};
    use punctual_machine::sleep_cost::SleepCost;

    use super::*;

    /// Goal: a suspend with which the counter begins anew ends a spin. Method: it began when the counter was further than it is now.
    #[test]
    fn a_counter_that_begins_anew_ends_spinning() {
        let cost = SleepCost { cpu_ns: 1_000, delay_ns: 1_000 };
        let mut wait = SpinThenSleep::new((), AdaptiveSpin::fixed(cost, u32::MAX), true);
        let hours = wait.clock.ticks(std::time::Duration::from_secs(36_000));
        wait.began = wait.clock.now().plus(hours);
        wait.state = State::Spins(wait.began);
        assert_eq!(wait.next(), State::Sleeps(Spun::InVain));
    }

    /// Goal: a thread that loses the processor to other threads stops spinning. Method: all have one processor, and the spin is to last
    /// for seconds.
    #[test]
    fn neighbours_end_spinning() {
        let cpu = allowed()[0];
        let is_over = Flag::default();
        std::thread::scope(|scope| {
            // Several, so that short slices add up to more than an interrupt takes.
            for _ in 0..4 {
                scope.spawn(|| {
                    pin_to(cpu).expect("it is allowed");
                    while !is_over.is_raised() {
                        spin_hint();
                    }
                });
            }
            pin_to(cpu).expect("it is allowed");
            let cost = SleepCost { cpu_ns: 1_000, delay_ns: 1_000 };
            let mut wait = SpinThenSleep::new((), AdaptiveSpin::fixed(cost, u32::MAX), true);
            let spun = loop {
                wait.state = wait.next();
                if let State::Sleeps(spun) = wait.state {
                    break spun;
                }
            };
            is_over.raise();
            assert_eq!(spun, Spun::Preempted);
        });
    }
}
