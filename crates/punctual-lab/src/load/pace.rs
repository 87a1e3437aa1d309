//! Schedule of a client's requests: closed and open load, the same for every client, over any medium.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::signal::interrupted;

/// Passes the time until an instant on the processor: a sleep would be late by a timer's slack.
#[inline]
pub fn spin_until(instant: Ticks) {
    let clock = Clock::get();
    while clock.now() < instant {
        std::hint::spin_loop();
    }
}

/// A party that asks and is answered, message by message.
pub trait Client {
    /// Returns true if there is room and a wish for one more message.
    fn goes_on(&mut self) -> bool;

    /// Passes the idle time until an instant.
    fn rest_until(&mut self, instant: Ticks);

    /// Sends the next message, which was due then; returns its number, and when it left.
    fn send(&mut self, due: Ticks) -> (u64, Ticks);

    /// Takes one packet: `Some(Some(number))` if it answers a message. `None` when the deadline passed.
    fn receive_one(&mut self, deadline: Ticks) -> Option<Option<u64>>;

    /// A message was answered, or waited for in vain. Under open load the next is due at `next`.
    fn look_back(&mut self, _sequence: u64, _next: Option<Ticks>) {}

    /// Sends one message and waits so long for its answer; says when that was there.
    #[inline]
    fn ask(&mut self, due: Ticks, timeout: Ticks) -> Ticks {
        let (sequence, sent) = self.send(due);
        let deadline = sent.plus(timeout);
        while self.receive_one(deadline).is_some_and(|answered| answered != Some(sequence)) {}
        self.look_back(sequence, None);
        Clock::get().now()
    }

    /// One message after the other until `end`, the first at `due`, each so long after the answer before.
    fn closed(&mut self, mut due: Ticks, gap: Ticks, timeout: Ticks, end: Ticks) {
        while self.goes_on() {
            self.rest_until(due);
            let now = self.ask(due, timeout);
            if now >= end {
                break;
            }
            due = now.plus(gap);
        }
    }

    /// A message each period until `end`, the first at `due`, regardless of outstanding ones.
    fn open(&mut self, mut due: Ticks, period: Duration, end: Ticks) {
        let clock = Clock::get();
        let period = clock.ticks(period.max(Duration::from_micros(1)));
        while self.goes_on() && due < end {
            // A client that is behind looks as well: an answer that it does not take meanwhile would find no room.
            loop {
                if let Some(Some(sequence)) = self.receive_one(due) {
                    self.look_back(sequence, Some(due));
                }
                if clock.now() >= due || interrupted() {
                    break;
                }
            }
            // Sent before it is due it would be answered in less than no time.
            if interrupted() {
                break;
            }
            self.send(due);
            due = due.plus(period);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of its messages takes longer than a period.
    #[derive(Default)]
    struct Slow {
        sent: u64,
        looks_since: u64,
        sent_without_look: u64,
    }

    impl Client for Slow {
        fn goes_on(&mut self) -> bool {
            self.sent < 20
        }

        fn rest_until(&mut self, _instant: Ticks) {}

        fn send(&mut self, _due: Ticks) -> (u64, Ticks) {
            self.sent_without_look += u64::from(self.looks_since == 0);
            (self.sent, self.looks_since) = (self.sent + 1, 0);
            let clock = Clock::get();
            spin_until(clock.now().plus(clock.ticks(Duration::from_micros(50))));
            (self.sent, clock.now())
        }

        fn receive_one(&mut self, _deadline: Ticks) -> Option<Option<u64>> {
            self.looks_since += 1;
            None
        }
    }

    /// Goal: a client that is behind takes arrivals meanwhile, for which there would be no room in the end.
    #[test]
    fn a_client_that_is_behind_looks_before_each_message() {
        let (clock, mut client) = (Clock::get(), Slow::default());
        client.open(clock.now(), Duration::from_micros(10), Ticks(u64::MAX));
        assert_eq!((client.sent, client.sent_without_look), (20, 0));
    }
}
