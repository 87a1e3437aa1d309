//! When a client asks: closed and open load, the same for every client, whatever it asks over.

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

/// Who asks and is answered, message by message.
pub trait Client {
    /// Whether there is room and a wish for one more message.
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

    /// A message each period until `end`, the first at `due`, whatever is outstanding.
    fn open(&mut self, mut due: Ticks, period: Duration, end: Ticks) {
        let clock = Clock::get();
        let period = clock.ticks(period.max(Duration::from_micros(1)));
        while self.goes_on() && due < end {
            // Who is behind looks as well: what it does not take meanwhile would find no room.
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
