//! The sleep/wake handshake, written once.
//!
//! A doorbell is an eventcount modelled on the user-interrupt posted descriptor (UPID) of Intel's SDM, vol. 3, ch. 7. Its
//! state is *suppress* (awake: do not notify), *armed* (asleep or about to be) or *outstanding* (a notification is on its
//! way). The condition is not in it: that is the ring's commit word, or the queue's length.
//!
//! ```text
//!            1 arm            2 ring (first)
//!   Awake ──────────▶ Armed ────────────────▶ Outstanding
//!     ▲                 │ 3 disarm                │ 3 disarm
//!     └─────────────────┴─────────────────────────┘
//! ```
//! 1 [`Doorbell::arm`] and 3 [`Doorbell::disarm`] by the sleeper, both in [`Doorbell::sleep`]; 2 [`Doorbell::ring`] by any
//! sender.
//!
//! Rules:
//! 1. The condition is stored before [`Doorbell::ring`], and is looked at again after arming and before sleeping. Nobody
//!    can arm without that look: [`Doorbell::arm`] takes it as an argument.
//! 2. Fence (A) in `ring` pairs with fence (B) in `arm`: either the sender sees `Armed`, or the sleeper
//!    sees the condition. Without either of them both may miss each other (store buffering).
//! 3. A sleeper that is awake costs its senders one load and no system call.
//! 4. The words may lie in memory that a peer writes. Any value that it stores there makes the sleeper wake too often or not at all;
//!    the sleeper never touches anything else. Sleepers therefore look up from time to time.
//!
//! The library's waiters, its event loops and the laboratory's mechanisms all sleep by this code, and so do its proofs: the
//! model checker, and the soak, which plants the faults `look` and `notify` in it.

use crate::memory_traits::SharedObject;
use crate::mutant::{fence, ordering, without};
use crate::sync::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
const ARMED_FUTEX: u32 = 1;
const ARMED_DESCRIPTOR: u32 = 2;
const OUTSTANDING: u32 = 3;
/// A visit without a note. The other visits are counted below: whenever they run over, one more look is taken.
const UNNOTED: u32 = 1 << 16;

/// The way in which a sleeper wants to be notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// By [`Doorbell::wake_futex`].
    Futex,
    /// By anything that makes the sleeper's descriptor readable.
    Descriptor,
}

/// Result of one [`Doorbell::sleep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake<T> {
    /// Result of the sleep; `None` if the second look found something, so that there was none.
    pub slept: Option<T>,
    /// Somebody rang, and sent a notification or is about to.
    pub rung: bool,
}

/// Sender: between storing the condition and looking at doorbells.
#[inline]
pub fn sender_fence() {
    fence!("bell_sender_fence", SeqCst); // (A) pairs with (B) in `arm`: we see `Armed`, or the sleeper sees the condition.
}

/// The words of one doorbell. All zeroes is a doorbell whose owner is awake.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Doorbell {
    state: AtomicU32,
    /// Times a peer asked its owner to look around; in steps of [`UNNOTED`] if it could not say at whom.
    visits: AtomicU32,
}

// SAFETY: `repr(C)`, atomics only, every bit pattern is a value (an unknown state counts as awake).
unsafe impl SharedObject for Doorbell {}

impl Default for Doorbell {
    fn default() -> Self {
        Self { state: AtomicU32::new(AWAKE), visits: AtomicU32::new(0) }
    }
}

impl Doorbell {
    /// The whole handshake: arm, look once more, sleep, disarm. Of `sleeper`, `is_ready` says whether there is something to
    /// wake for; `sleep` may return early, and the caller looks again in any case.
    #[inline]
    pub fn sleep<S: ?Sized, T>(
        &self,
        how: Notification,
        sleeper: &mut S,
        is_ready: impl FnOnce(&mut S) -> bool,
        sleep: impl FnOnce(&mut S) -> T,
    ) -> Handshake<T> {
        let sleeps = self.arm(how, || is_ready(sleeper));
        let slept = sleeps.then(|| sleep(sleeper));
        Handshake { slept, rung: self.disarm() }
    }

    /// Sleeper: from now on senders notify, if `is_ready` finds nothing once more: `false` if it does. Disarm in either case.
    /// For who sleeps elsewhere, as in an event loop; others use [`Doorbell::sleep`].
    #[must_use]
    pub fn arm(&self, how: Notification, is_ready: impl FnOnce() -> bool) -> bool {
        let armed = match how {
            Notification::Futex => ARMED_FUTEX,
            Notification::Descriptor => ARMED_DESCRIPTOR,
        };
        if without!("bell_second_look") || crate::is_planted!("look") {
            // The fault: the last look comes before the arming.
            let ready = is_ready();
            crate::label!("bell.arm.late");
            self.state.store(armed, Ordering::Relaxed);
            return !ready;
        }
        crate::label!("bell.arm");
        // Release: a thread that is to notify sees everything stored before, such as whose bell it is now.
        self.state.store(armed, ordering!("bell_arm", Release));
        fence!("bell_sleeper_fence", SeqCst); // (B) pairs with (A) in `ring`: we see the condition, or the sender sees `Armed`.
        crate::label!("bell.arm.done");
        let ready = is_ready();
        crate::label!("bell.looked");
        !ready
    }

    /// Sleeper: awake again, whether it slept or not. Returns true if somebody rang, and sent a notification or is about to; anything
    /// stored before that can be seen from now on.
    pub fn disarm(&self) -> bool {
        crate::label!("bell.disarm");
        // Acquire pairs with fence (A), which stands before the exchange in `ring_armed`. Nobody reads what we have written.
        let rung = self.state.swap(AWAKE, ordering!("bell_disarm", Acquire)) == OUTSTANDING;
        crate::label!("bell.disarm.done");
        rung
    }

    /// Returns true if nobody has rung since it was armed. A hint: a caller that acts on it looks at the condition.
    pub fn is_armed(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), ARMED_FUTEX | ARMED_DESCRIPTOR)
    }

    /// Sender: the condition was stored. Returns the notification that the sender must now send, if any.
    #[inline]
    pub fn ring(&self) -> Option<Notification> {
        sender_fence();
        self.ring_fenced()
    }

    /// As [`Self::ring`], behind a [`sender_fence`]: one does for several doorbells.
    #[inline]
    pub fn ring_fenced(&self) -> Option<Notification> {
        match self.state.load(Ordering::Relaxed) {
            ARMED_FUTEX => self.ring_armed(ARMED_FUTEX, Notification::Futex),
            ARMED_DESCRIPTOR => self.ring_armed(ARMED_DESCRIPTOR, Notification::Descriptor),
            _ => None,
        }
    }

    /// The first to ring notifies; the others find the notification outstanding.
    #[cold]
    fn ring_armed(&self, armed: u32, how: Notification) -> Option<Notification> {
        if crate::is_planted!("notify") {
            return None;
        }
        crate::label!("bell.outstanding");
        // Acquire pairs with the store in `arm`: a notifying thread looks up the way to do it. Fence (A) before it publishes the
        // condition.
        let acquire = ordering!("bell_ring_armed", Acquire);
        let first = self.state.compare_exchange(armed, OUTSTANDING, acquire, Ordering::Relaxed).is_ok();
        crate::label!("bell.outstanding.done");
        first.then_some(how)
    }

    /// A peer: look around, at whom a note says; at everybody if there is none. Ring afterwards. Release: a thread that sees the visit
    /// sees the visitor's files.
    pub fn announce_visit(&self, noted: bool) {
        crate::label!("bell.visit");
        self.visits.fetch_add(if noted { 1 } else { UNNOTED }, ordering!("bell_visit", Release));
        crate::label!("bell.visit.done");
    }

    /// Owner: number of times that peers have announced themselves.
    #[inline]
    pub fn visits(&self) -> u32 {
        self.visits.load(ordering!("bell_visits", Acquire))
    }

    /// Returns true if there is a note for every visit between two readings of [`Self::visits`].
    pub fn are_noted(earlier: u32, later: u32) -> bool {
        earlier / UNNOTED == later / UNNOTED
    }
}

#[cfg(not(loom))]
mod futex {
    use super::{ARMED_FUTEX, Doorbell};
    use crate::event_fd::timespec;
    use crate::slept::Slept;
    use rustix::thread::futex::{self, Flags};
    use std::time::Duration;

    impl Doorbell {
        /// Sleeper, armed for a futex: sleeps until somebody rings, `timeout` passes or a signal comes.
        pub fn sleep_futex(&self, timeout: Option<Duration>) -> Slept {
            let timeout = timeout.map(timespec);
            // Every outcome (woken, no longer armed, timeout, signal) asks the caller to look at the condition.
            crate::label!("bell.sleep");
            crate::calls::note();
            let outcome = futex::wait(&self.state, Flags::empty(), ARMED_FUTEX, timeout.as_ref());
            Slept::to_the_limit(outcome == Err(rustix::io::Errno::TIMEDOUT))
        }

        /// The word that a futex waits on, and its value while the sleeper sleeps.
        pub fn futex_word(&self) -> (&crate::sync::AtomicU32, u32) {
            (&self.state, ARMED_FUTEX)
        }

        /// Sender: wakes the sleeper that [`Doorbell::ring`] said must be woken.
        pub fn wake_futex(&self) {
            // Waking nobody is no error: the sleeper may not have gone to sleep yet and now will not.
            crate::label!("bell.wake");
            crate::calls::note();
            let _woken = futex::wake(&self.state, Flags::empty(), 1);
            crate::label!("bell.wake.done");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn an_awake_owner_is_not_notified() {
        let bell = Doorbell::default();
        assert_eq!(bell.ring(), None);
        assert!(!bell.disarm());
    }

    #[test]
    fn the_first_to_ring_notifies() {
        let bell = Doorbell::default();
        for how in [Notification::Descriptor, Notification::Futex] {
            assert!(bell.arm(how, || false));
            assert_eq!(bell.ring(), Some(how));
            assert_eq!(bell.ring(), None, "one is outstanding");
            assert!(bell.disarm());
            assert_eq!(bell.ring(), None, "awake again");
        }
    }

    /// Goal: the condition is looked at once more after arming, so that what came before is found and what comes later rings.
    #[test]
    fn the_second_look_is_taken_armed() {
        let bell = Doorbell::default();
        let mut looks = 0;
        let look = |looks: &mut u32| {
            assert!(bell.is_armed(), "senders must notify from here on");
            *looks += 1;
            true
        };
        let found = bell.sleep(Notification::Futex, &mut looks, look, |_| panic!("slept over a message"));
        assert_eq!(found, Handshake { slept: None, rung: false });
        assert!(looks == 1 && !bell.is_armed());
        let rung = bell.sleep(Notification::Futex, &mut (), |()| bell.ring().is_none(), |()| bell.is_armed());
        assert_eq!(rung, Handshake { slept: Some(false), rung: true });
    }

    /// Goal: no wake-up is lost. A lost one would hang, so sleeping is bounded and then fails.
    #[test]
    fn a_hundred_thousand_rings_wake() {
        const ROUNDS: u64 = 100_000;
        let shared = Arc::new((Doorbell::default(), AtomicU64::new(0), AtomicU64::new(0)));
        let sender = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let (bell, sent, seen) = &*sender;
            for round in 1..=ROUNDS {
                sent.store(round, Ordering::Release);
                if bell.ring().is_some() {
                    bell.wake_futex();
                }
                while seen.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
            }
        });
        let (bell, sent, seen) = &*shared;
        for round in 1..=ROUNDS {
            let is_there = |_: &mut u32| sent.load(Ordering::Acquire) >= round;
            let mut slept_s = 0;
            while !is_there(&mut slept_s) {
                bell.sleep(Notification::Futex, &mut slept_s, is_there, |slept_s| {
                    while !is_there(slept_s) && bell.is_armed() {
                        bell.sleep_futex(Some(Duration::from_secs(1)));
                        *slept_s += 1;
                        assert!(*slept_s < 20 || !bell.is_armed(), "round {round}: nobody rang");
                    }
                });
            }
            seen.store(round, Ordering::Release);
        }
        thread.join().unwrap();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    /// Goal: a sleeper never sleeps for ever over a message. loom reports a sleeper that nobody wakes as a deadlock.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0), Notify::new()));
            let sender = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                let (bell, message, notify) = &*sender;
                message.store(1, Ordering::Relaxed);
                if bell.ring().is_some() {
                    notify.notify();
                }
            });
            let (bell, message, notify) = &*shared;
            let is_ready = || message.load(Ordering::Relaxed) != 0;
            while !is_ready() {
                bell.sleep(Notification::Futex, &mut (), |()| is_ready(), |()| notify.wait());
            }
            thread.join().unwrap();
        });
    }

    /// Goal: of two senders at most one notifies, and the sleeper wakes.
    #[test]
    fn two_senders_send_one_notification() {
        loom::model(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0), AtomicU32::new(0), Notify::new()));
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        let (bell, messages, notified, notify) = &*shared;
                        messages.fetch_add(1, Ordering::Relaxed);
                        if bell.ring().is_some() {
                            notified.fetch_add(1, Ordering::Relaxed);
                            notify.notify();
                        }
                    })
                })
                .collect();
            let (bell, messages, notified, notify) = &*shared;
            let is_ready = || messages.load(Ordering::Relaxed) != 0;
            bell.sleep(
                Notification::Descriptor,
                &mut (),
                |()| is_ready(),
                |()| {
                    // loom's `wait` may return early, as a futex may.
                    while !is_ready() && bell.is_armed() {
                        notify.wait();
                    }
                },
            );
            assert!(notified.load(Ordering::Relaxed) <= 1);
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }

    /// Goal: a sleeper that was rung sees everything stored before the ringing, without another look's luck.
    #[test]
    fn a_rung_sleeper_sees_the_message() {
        loom::model(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0)));
            let sender = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                sender.1.store(1, Ordering::Relaxed);
                sender.0.ring();
            });
            let (bell, message) = &*shared;
            let ended = bell.sleep(Notification::Descriptor, &mut (), |()| false, |()| ());
            if ended.rung {
                assert_eq!(message.load(Ordering::Relaxed), 1);
            }
            thread.join().unwrap();
        });
    }

    /// Goal: a thread that is to notify a sleeper sees everything that the sleeper stored before it armed.
    #[test]
    fn the_notifier_sees_the_stores_of_the_armed_sleeper() {
        loom::model(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0)));
            let sleeper = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                sleeper.1.store(1, Ordering::Relaxed);
                let _sleeps = sleeper.0.arm(Notification::Descriptor, || false);
            });
            let (bell, began) = &*shared;
            if bell.ring().is_some() {
                assert_eq!(began.load(Ordering::Relaxed), 1);
            }
            thread.join().unwrap();
        });
    }

    /// Goal: a thread that sees a visit sees everything that the visitor has prepared.
    #[test]
    fn a_visit_shows_the_visitor() {
        loom::model(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0)));
            let visitor = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                visitor.1.store(1, Ordering::Relaxed);
                visitor.0.announce_visit(true);
            });
            let (bell, prepared) = &*shared;
            if bell.visits() != 0 {
                assert_eq!(prepared.load(Ordering::Relaxed), 1);
            }
            thread.join().unwrap();
        });
    }
}
