//! Ctrl-C under open load, in a process of its own: the flag that it raises stays.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_lab::load::pace::Client;
use punctual_machine::signal::{catch_interrupts, interrupted};

/// Interrupts the process once it has sent this many messages or more, and so ends the wait for the next instant.
const INTERRUPTED_AFTER: usize = 3;

/// Due time of each message, and the time when it left; number of messages that had left when the process was interrupted.
#[derive(Default)]
struct Sent(Vec<[Ticks; 2]>, usize);

impl Client for Sent {
    fn goes_on(&mut self) -> bool {
        !interrupted()
    }

    fn rest_until(&mut self, _instant: Ticks) {}

    fn send(&mut self, due: Ticks) -> (u64, Ticks) {
        let now = Clock::get().now();
        self.0.push([due, now]);
        (self.0.len() as u64, now)
    }

    /// As where an answer came at that moment.
    fn receive_one(&mut self, _deadline: Ticks) -> Option<Option<u64>> {
        if self.0.len() >= INTERRUPTED_AFTER && !interrupted() {
            self.1 = self.0.len();
            let me = std::process::id().to_string();
            let told =
                std::process::Command::new("sh").args(["-c", "kill \"$@\"", "kill", "-INT", &me]).status();
            assert!(told.is_ok_and(|status| status.success()));
            while !interrupted() {
                std::thread::yield_now();
            }
        }
        Some(None)
    }
}

/// Goal: nothing is sent before it is due, also where Ctrl-C ends the wait for that instant: its answer would have taken no time.
#[test]
fn an_interrupted_open_load_sends_nothing_early() {
    catch_interrupts().expect("a handler");
    let (clock, mut client) = (Clock::get(), Sent::default());
    let period = Duration::from_millis(200);
    client.open(clock.now(), period, clock.now().plus(clock.ticks(20 * period)));
    assert!(client.0.iter().all(|[due, sent]| sent >= due), "{:?}", client.0);
    assert_eq!(client.0.len(), client.1);
}
