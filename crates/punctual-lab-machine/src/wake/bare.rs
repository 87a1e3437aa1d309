//! The mechanisms without any protocol: a floor that nothing built on them can beat.

use std::time::Duration;

use rustix::thread::futex::{self, Flags};

use punctual_machine::event_fd::timespec;
use punctual_machine::sync::{AtomicU32, AtomicU64, Ordering};

/// The user-interrupt event of the work log in software: ON coalesces, and a wait that clears it may or may not look at what
/// was posted before. Broken on purpose: an experiment counts what is lost, and a time limit rescues it.
#[derive(Debug, Default)]
pub struct EventWithFlag {
    outstanding: AtomicU32,
    posted: AtomicU64,
    event: AtomicU32,
}

impl EventWithFlag {
    /// Sender: posts, and notifies unless a notification is outstanding. Returns true if it notified.
    pub fn send(&self) -> bool {
        self.posted.fetch_or(1, Ordering::SeqCst);
        if self.outstanding.swap(1, Ordering::SeqCst) == 1 {
            return false;
        }
        self.event.store(1, Ordering::SeqCst);
        let _woken = futex::wake(&self.event, Flags::empty(), 1);
        true
    }

    /// Receiver: clears ON; with `recheck` it then takes what was posted, as the event. Sleeps until the event; `false` when
    /// `timeout` passed first.
    pub fn wait(&self, recheck: bool, timeout: Duration) -> bool {
        self.outstanding.store(0, Ordering::SeqCst);
        if recheck && self.posted.swap(0, Ordering::SeqCst) != 0 {
            self.event.store(0, Ordering::SeqCst);
            return true;
        }
        if self.event.swap(0, Ordering::SeqCst) == 1 {
            return true;
        }
        let _outcome = futex::wait(&self.event, Flags::empty(), 0, Some(&timespec(timeout)));
        self.take_event()
    }

    /// Receiver: takes the event, if there is one.
    pub fn take_event(&self) -> bool {
        self.event.swap(0, Ordering::SeqCst) == 1
    }

    /// Receiver: begins anew, while no sender is at work.
    pub fn reset(&self) {
        self.outstanding.store(0, Ordering::SeqCst);
        self.event.store(0, Ordering::SeqCst);
        self.posted.store(0, Ordering::SeqCst);
    }
}

/// The flag by which the work log's reader asks for a message: the message's number, or 0.
#[derive(Debug, Default)]
pub struct RequestFlag(AtomicU64);

impl RequestFlag {
    /// Receiver: asks for this message.
    pub fn raise(&self, message: u64) {
        self.0.store(message, Ordering::SeqCst);
    }

    /// The message that is asked for.
    pub fn raised(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Sender: lowers it, regardless of the message that is asked for by now.
    pub fn lower(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Sender: lowers it if it still asks for this message.
    pub fn lower_answered(&self, message: u64) {
        let _asks_for_more = self.0.compare_exchange(message, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(2);

    /// Goal: race H1, step by step: a flag that is lowered late takes the next request with it.
    #[test]
    fn only_the_answered_request_is_lowered() {
        let flag = RequestFlag::default();
        for (answered_only, left) in [(false, 0), (true, 2)] {
            flag.raise(1);
            flag.raise(2);
            if answered_only {
                flag.lower_answered(1);
            } else {
                flag.lower();
            }
            assert_eq!(flag.raised(), left);
        }
        flag.lower_answered(2);
        assert_eq!(flag.raised(), 0);
    }

    /// Goal: race E1, step by step: the send between two waits is suppressed, and only the look finds it.
    #[test]
    fn without_the_look_a_send_between_two_waits_is_lost() {
        for recheck in [false, true] {
            let event = EventWithFlag::default();
            assert!(!event.wait(recheck, SHORT), "nothing was sent");
            assert!(event.send());
            assert!(event.wait(recheck, SHORT));
            assert!(event.send(), "the wait has cleared ON");
            assert!(!event.send(), "ON is set");
            assert!(event.wait(recheck, SHORT));
        }
        let sent_while_on_is_set = |recheck| {
            let event = EventWithFlag::default();
            event.send();
            // The receiver is woken by what was sent before it cleared ON: ON stays set.
            event.event.store(0, Ordering::SeqCst);
            event.posted.store(0, Ordering::SeqCst);
            assert!(!event.send(), "suppressed");
            event.wait(recheck, SHORT)
        };
        assert!(!sent_while_on_is_set(false), "lost");
        assert!(sent_while_on_is_set(true), "found");
    }
}
