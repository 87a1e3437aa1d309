//! Cost of a sleep on this machine: found out once, by sleeping.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::bare_futex::BareFutex;
use crate::clock::{Clock, Ticks, thread_cpu_ns};
use crate::counter::Counter;

/// Taken for measured where no second thread can be had.
const TYPICAL: SleepCost = SleepCost { cpu_ns: 5_000, delay_ns: 5_000 };
/// More is not the sleep's doing.
const LIMIT_NS: u32 = 50_000;

/// Messages there and back, and how long they may take together on a machine that has other things to do.
const ROUNDS: usize = 48;
const TIME_MAX: Duration = Duration::from_millis(4);
/// Longest sleep of either thread: it lasts so long only if the other has died.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// The number that ends it.
const END: u64 = u64::MAX;

/// Additional cost of one message if its receiver sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepCost {
    /// Processor time of both ends, nanoseconds.
    pub cpu_ns: u32,
    /// So much later it is noticed, nanoseconds.
    pub delay_ns: u32,
}

impl SleepCost {
    /// Where nobody may spin.
    pub const NOTHING: Self = Self { cpu_ns: 0, delay_ns: 0 };

    /// No sleep is taken to cost more.
    pub const LARGEST: Self = Self { cpu_ns: LIMIT_NS, delay_ns: LIMIT_NS };

    /// Of this process on this machine: measured at the first call, in some milliseconds at most. Nothing where there is one
    /// processor, on which spinning keeps the sender from running.
    pub fn of_this_machine() -> Self {
        static COST: OnceLock<SleepCost> = OnceLock::new();
        *COST.get_or_init(|| match crate::cpu::count_online() {
            1 => Self::NOTHING,
            _ => measure().unwrap_or(TYPICAL),
        })
    }

    /// Both together.
    #[must_use]
    pub const fn total_ns(self) -> u32 {
        self.cpu_ns + self.delay_ns
    }
}

/// One direction. No doorbell: the other end always sleeps.
#[derive(Debug, Default)]
struct Way {
    word: BareFutex,
    sent: Counter,
}

impl Way {
    fn send(&self, number: u64) {
        self.sent.publish(number);
        self.word.wake();
    }

    fn wait_beyond(&self, known: u64) -> u64 {
        loop {
            let seen = self.word.seen();
            let number = self.sent.get_published();
            if number != known {
                return number;
            }
            self.word.sleep(seen, SLEEP_MAX);
        }
    }
}

/// Lets two threads wake each other. `None` if there can be no second thread.
fn measure() -> Option<SleepCost> {
    let here = crate::cpu::current();
    let ways = Arc::new((Way::default(), Way::default()));
    let theirs = Arc::clone(&ways);
    let answer = move || {
        // A message that is worth spinning for comes from another processor. It is for a moment, and mostly asleep.
        crate::cpu::avoid(here);
        let (there, back) = &*theirs;
        let (mut seen, mut began) = (0, None);
        loop {
            seen = there.wait_beyond(seen);
            if seen == END {
                return began.map_or(0, |began| thread_cpu_ns() - began);
            }
            began = began.or_else(|| Some(thread_cpu_ns()));
            back.send(seen);
        }
    };
    let other = thread::Builder::new().name("punctual-cost".to_owned()).spawn(answer).ok()?;
    let (there, back) = &*ways;
    let clock = Clock::get();
    let (began, began_cpu) = (clock.now(), thread_cpu_ns());
    let mut rounds = [Ticks(u64::MAX); ROUNDS];
    let mut count = 0;
    for round in &mut rounds {
        let sent = clock.now();
        there.send(count + 1);
        count = back.wait_beyond(count);
        let now = clock.now();
        *round = now.since(sent);
        if clock.duration(now.since(began)) > TIME_MAX {
            break;
        }
    }
    let own_cpu_ns = thread_cpu_ns() - began_cpu;
    there.send(END);
    let cpu_ns = (own_cpu_ns + other.join().ok()?) / (2 * count);
    // A quarter of them went undisturbed on any machine.
    rounds.sort_unstable();
    let delay_ns = clock.nanos(rounds[count as usize / 4]) / 2;
    let limited = |ns: u64| ns.min(LIMIT_NS.into()) as u32;
    Some(SleepCost { cpu_ns: limited(cpu_ns), delay_ns: limited(delay_ns) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_once_and_believable() {
        if let Some(cost) = measure() {
            // No machine calls its kernel twice and switches threads in so little.
            assert!(cost.total_ns() > 300, "{cost:?}");
        }
        assert_eq!(SleepCost::of_this_machine(), SleepCost::of_this_machine());
    }
}
