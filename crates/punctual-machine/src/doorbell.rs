//! The sleep/wake handshake, written once.
//!
//! A doorbell is an eventcount modelled on the user-interrupt posted descriptor (UPID) of Intel's SDM,
//! vol. 3, ch. 7: *posted* bits say who rang, the state is *suppress* (awake: do not notify),
//! *armed* (asleep or about to be) or *outstanding* (a notification is on its way).
//!
//! ```text
//!            1 arm            2 ring (first)
//!   Awake ──────────▶ Armed ────────────────▶ Outstanding
//!     ▲                 │ 3 disarm                │ 3 disarm
//!     └─────────────────┴─────────────────────────┘
//! ```
//! 1 [`Doorbell::arm`] and 3 [`Doorbell::disarm`] by the sleeper; 2 [`Doorbell::ring`] by any sender.
//!
//! Rules:
//! 1. The condition (a ring's commit word, a queue's length) is stored before [`Doorbell::ring`], and is
//!    looked at again after [`Doorbell::arm`] and before sleeping.
//! 2. Fence (A) in `ring` pairs with fence (B) in `arm`: either the sender sees `Armed`, or the sleeper
//!    sees the condition. Without either of them both may miss each other (store buffering).
//! 3. A sleeper that is awake costs its senders one load and no system call.
//! 4. The words may lie in memory that a peer writes: whatever it stores there, the sleeper wakes too often
//!    or not at all; it never touches anything else. Sleepers therefore look up from time to time.

use crate::memory_traits::SharedObject;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

const AWAKE: u32 = 0;
const ARMED_FUTEX: u32 = 1;
const ARMED_DESCRIPTOR: u32 = 2;
const OUTSTANDING: u32 = 3;

/// How a sleeper wants to be notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// By [`Doorbell::wake_futex`].
    Futex,
    /// By whatever makes the sleeper's descriptor readable.
    Descriptor,
}

/// What happened between arming and disarming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disarmed {
    /// Somebody rang, and sent a notification or is about to.
    pub rung: bool,
    /// Who rang: bit n for source n modulo 64.
    pub posted: u64,
}

/// The words of one doorbell. All zeroes is a doorbell whose owner is awake.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Doorbell {
    state: AtomicU32,
    /// Times a peer asked its owner to look for new peers.
    visits: AtomicU32,
    posted: AtomicU64,
}

// SAFETY: `repr(C)`, atomics only, every bit pattern is a value (an unknown state counts as awake).
unsafe impl SharedObject for Doorbell {}

impl Default for Doorbell {
    fn default() -> Self {
        Self { state: AtomicU32::new(AWAKE), visits: AtomicU32::new(0), posted: AtomicU64::new(0) }
    }
}

impl Doorbell {
    /// Sleeper: from now on senders notify. Look at the condition once more before sleeping.
    pub fn arm(&self, how: Notification) {
        let armed = match how {
            Notification::Futex => ARMED_FUTEX,
            Notification::Descriptor => ARMED_DESCRIPTOR,
        };
        crate::label!("bell.arm");
        self.state.store(armed, Ordering::Relaxed);
        #[cfg(not(mutant = "bell_sleeper_fence"))]
        fence(Ordering::SeqCst); // (B) pairs with (A) in `ring`: we see the condition, or the sender sees `Armed`.
        crate::label!("bell.arm.done");
    }

    /// Sleeper: awake again, whether it slept or not.
    pub fn disarm(&self) -> Disarmed {
        crate::label!("bell.disarm");
        let rung = self.state.swap(AWAKE, Ordering::AcqRel) == OUTSTANDING;
        crate::label!("bell.posted.take");
        let posted = if rung { self.posted.swap(0, Ordering::Acquire) } else { 0 };
        crate::label!("bell.posted.take.done");
        Disarmed { rung, posted }
    }

    /// Whether nobody has rung since it was armed.
    pub fn is_armed(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), ARMED_FUTEX | ARMED_DESCRIPTOR)
    }

    /// Sender: the condition was stored. Returns the notification that the sender must now send, if any.
    #[inline]
    pub fn ring(&self, source: u32) -> Option<Notification> {
        #[cfg(not(mutant = "bell_sender_fence"))]
        fence(Ordering::SeqCst); // (A) pairs with (B) in `arm`: we see `Armed`, or the sleeper sees the condition.
        match self.state.load(Ordering::Relaxed) {
            ARMED_FUTEX => self.ring_armed(source, ARMED_FUTEX, Notification::Futex),
            ARMED_DESCRIPTOR => self.ring_armed(source, ARMED_DESCRIPTOR, Notification::Descriptor),
            _ => None,
        }
    }

    /// The first to ring notifies; the others find the notification outstanding.
    #[cold]
    fn ring_armed(&self, source: u32, armed: u32, how: Notification) -> Option<Notification> {
        crate::label!("bell.posted");
        self.posted.fetch_or(1 << (source % 64), Ordering::Release);
        crate::label!("bell.outstanding");
        self.state
            .compare_exchange(armed, OUTSTANDING, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
            .then_some(how)
    }

    /// A peer: look for new peers. Ring afterwards.
    pub fn announce_visit(&self) {
        crate::label!("bell.visit");
        self.visits.fetch_add(1, Ordering::AcqRel);
        crate::label!("bell.visit.done");
    }

    /// Owner: how often peers have announced themselves.
    #[inline]
    pub fn visits(&self) -> u32 {
        self.visits.load(Ordering::Acquire)
    }
}

#[cfg(not(loom))]
mod futex {
    use super::{ARMED_FUTEX, Doorbell};
    use crate::event_fd::timespec;
    use crate::wake::Slept;
    use rustix::thread::futex::{self, Flags};
    use std::time::Duration;

    impl Doorbell {
        /// Sleeper, armed for a futex: sleeps until somebody rings, `timeout` passes or a signal comes.
        pub fn sleep_futex(&self, timeout: Option<Duration>) -> Slept {
            let timeout = timeout.map(timespec);
            // Every outcome (woken, no longer armed, timeout, signal) asks the caller to look at the condition.
            crate::label!("bell.sleep");
            let outcome = futex::wait(&self.state, Flags::empty(), ARMED_FUTEX, timeout.as_ref());
            Slept::to_the_limit(outcome == Err(rustix::io::Errno::TIMEDOUT))
        }

        /// The word that a futex waits on, and its value while the sleeper sleeps.
        pub(crate) fn futex_word(&self) -> (&crate::sync::AtomicU32, u32) {
            (&self.state, ARMED_FUTEX)
        }

        /// Sender: wakes the sleeper that [`Doorbell::ring`] said must be woken.
        pub fn wake_futex(&self) {
            // Waking nobody is no error: the sleeper may not have gone to sleep yet and now will not.
            crate::label!("bell.wake");
            let _woken = futex::wake(&self.state, Flags::empty(), 1);
            crate::label!("bell.wake.done");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn an_awake_owner_is_not_notified() {
        let bell = Doorbell::default();
        assert_eq!(bell.ring(1), None);
        assert_eq!(bell.disarm(), Disarmed { rung: false, posted: 0 });
    }

    #[test]
    fn the_first_to_ring_notifies() {
        let bell = Doorbell::default();
        bell.arm(Notification::Descriptor);
        assert_eq!(bell.ring(1), Some(Notification::Descriptor));
        assert_eq!(bell.ring(2), None, "one is outstanding");
        assert_eq!(bell.disarm(), Disarmed { rung: true, posted: 0b010 });
        bell.arm(Notification::Futex);
        assert_eq!(bell.ring(65), Some(Notification::Futex));
        assert_eq!(bell.disarm().posted, 0b010);
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
                if bell.ring(0).is_some() {
                    bell.wake_futex();
                }
                while seen.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
            }
        });
        let (bell, sent, seen) = &*shared;
        for round in 1..=ROUNDS {
            while sent.load(Ordering::Acquire) < round {
                bell.arm(Notification::Futex);
                let mut slept_ms = 0;
                while sent.load(Ordering::Acquire) < round && bell.is_armed() {
                    bell.sleep_futex(Some(Duration::from_millis(1_000)));
                    slept_ms += 1_000;
                    assert!(slept_ms < 20_000 || !bell.is_armed(), "round {round}: nobody rang");
                }
                bell.disarm();
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
                if bell.ring(3).is_some() {
                    notify.notify();
                }
            });
            let (bell, message, notify) = &*shared;
            while message.load(Ordering::Relaxed) == 0 {
                bell.arm(Notification::Futex);
                if message.load(Ordering::Relaxed) == 0 {
                    notify.wait();
                }
                bell.disarm();
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
                .map(|source| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        let (bell, messages, notified, notify) = &*shared;
                        messages.fetch_add(1, Ordering::Relaxed);
                        if bell.ring(source).is_some() {
                            notified.fetch_add(1, Ordering::Relaxed);
                            notify.notify();
                        }
                    })
                })
                .collect();
            let (bell, messages, notified, notify) = &*shared;
            bell.arm(Notification::Descriptor);
            // loom's `wait` may return early, as a futex may.
            while messages.load(Ordering::Relaxed) == 0 && bell.is_armed() {
                notify.wait();
            }
            bell.disarm();
            assert!(notified.load(Ordering::Relaxed) <= 1);
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}
