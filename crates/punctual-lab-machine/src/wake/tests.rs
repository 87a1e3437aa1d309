//! Requirements on every mechanism: one suite, run against each.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{Ends, Mechanism, Reach, wait};
use punctual_machine::counter::Counter;
use punctual_machine::doorbell::Doorbell;

/// Longer than any wake-up takes that comes at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens it in the calling thread, or says why this machine cannot.
fn open(mechanism: Mechanism) -> Option<Ends> {
    match mechanism.open() {
        Ok(ends) => Some(ends),
        Err(error) => {
            punctual_machine::skipped!("{mechanism}: {error}");
            None
        }
    }
}

#[test]
fn names_are_read_back() {
    for mechanism in Mechanism::ALL {
        assert_eq!(mechanism.name().parse(), Ok(mechanism));
    }
    assert!("telepathy".parse::<Mechanism>().unwrap_err().contains("uring-msg"));
}

/// Goal: a sleeper wakes for each of many messages, from several senders, regardless of what they find it doing; none sleeps to its
/// limit. Method: a lost wake-up would end by the limit of the sleep, and be counted.
#[test]
fn no_wake_up_is_lost() {
    const MESSAGES: u64 = 3_000;
    for mechanism in Mechanism::ALL {
        let shared = Arc::new((Doorbell::default(), Counter::default(), Counter::default()));
        let (ready, opened) = mpsc::channel();
        let sleeper = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut ends = open(mechanism)?;
            ready.send(ends.notify).unwrap();
            let (bell, sent, seen) = &*sleeper;
            let (mut parks, mut timeouts) = (0_u64, 0_u64);
            while seen.get() < MESSAGES {
                let mut is_ready = || sent.get_published() > seen.get();
                while !is_ready() {
                    let start = Instant::now();
                    let waited = wait(&mut *ends.park, bell, PATIENCE, &mut is_ready);
                    parks += u64::from(waited.parked);
                    timeouts += u64::from(start.elapsed() >= PATIENCE);
                }
                seen.publish(sent.get_published());
            }
            Some((parks, timeouts))
        });
        let Ok(notify) = opened.recv() else {
            assert_eq!(thread.join().unwrap(), None, "{mechanism}");
            continue;
        };
        let (bell, sent, seen) = &*shared;
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for message in 1..=MESSAGES {
            // Now the sleeper spins, now it is about to sleep, now it sleeps.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for _ in 0..(random >> 33) % 2_000 {
                std::hint::spin_loop();
            }
            sent.publish(message);
            if bell.ring().is_some() {
                notify.notify(bell);
            }
            let start = Instant::now();
            while message % 8 == 0 && seen.get_published() < message {
                assert!(start.elapsed() < 3 * PATIENCE, "{mechanism}: message {message} is never seen");
                std::thread::yield_now();
            }
        }
        let (parks, timeouts) = thread.join().unwrap().unwrap();
        assert_eq!(timeouts, 0, "{mechanism}: a wake-up was lost");
        assert!(parks > 0, "{mechanism}: it never slept, so nothing was shown");
    }
}

#[test]
fn a_sleep_ends_by_itself() {
    for mechanism in Mechanism::ALL {
        let Some(mut ends) = open(mechanism) else { continue };
        let bell = Doorbell::default();
        for _ in 0..3 {
            let start = Instant::now();
            let waited = wait(&mut *ends.park, &bell, Duration::from_millis(5), &mut || false);
            assert!(waited.parked && !waited.rung, "{mechanism}");
            assert!(start.elapsed() >= Duration::from_millis(4), "{mechanism}: it did not sleep");
        }
    }
}

/// Goal: a notification that came before the sleep is not slept over.
#[test]
fn an_early_notification_wakes() {
    for mechanism in Mechanism::ALL {
        let Some(mut ends) = open(mechanism) else { continue };
        let bell = Doorbell::default();
        assert!(bell.arm(ends.park.how(), || false));
        assert!(bell.ring().is_some());
        ends.notify.notify(&bell);
        let start = Instant::now();
        ends.park.park(&bell, PATIENCE);
        assert!(start.elapsed() < PATIENCE, "{mechanism}");
        assert!(bell.disarm());
    }
}

/// Goal: a notification that was sent to a thread that did not sleep is taken back: the sleep after it is a sleep.
#[test]
fn a_stale_notification_is_taken_back() {
    for mechanism in Mechanism::ALL {
        let Some(mut ends) = open(mechanism) else { continue };
        let bell = Doorbell::default();
        let notify = &ends.notify;
        let waited = wait(&mut *ends.park, &bell, PATIENCE, &mut || {
            assert!(bell.ring().is_some());
            notify.notify(&bell);
            true
        });
        assert!(waited.rung && !waited.parked, "{mechanism}");
        let start = Instant::now();
        wait(&mut *ends.park, &bell, Duration::from_millis(5), &mut || false);
        assert!(start.elapsed() >= Duration::from_millis(4), "{mechanism}: woken by what was over");
    }
}

/// Goal: a notification needs nothing from the sleeper's process but its descriptor, or nothing at all. Method: the other process is
/// played by a waking end made from a copy of the descriptor alone.
#[test]
fn a_notification_from_elsewhere_wakes() {
    for mechanism in Mechanism::ALL {
        let Some(mut ends) = open(mechanism) else { continue };
        let copy = ends.notify.descriptor().map(|own| own.try_clone_to_owned().unwrap());
        assert_eq!(copy.is_some(), mechanism.reach() == Reach::Descriptor, "{mechanism}");
        let elsewhere = mechanism.notify_elsewhere(copy);
        assert_eq!(elsewhere.is_none(), mechanism.reach() == Reach::Process, "{mechanism}");
        let Some(elsewhere) = elsewhere else { continue };
        let bell = Doorbell::default();
        assert!(bell.arm(ends.park.how(), || false));
        assert!(bell.ring().is_some());
        elsewhere.notify(&bell);
        let start = Instant::now();
        ends.park.park(&bell, PATIENCE);
        assert!(start.elapsed() < PATIENCE, "{mechanism}");
        assert!(bell.disarm());
    }
    let no_event = std::fs::File::open("/dev/null").unwrap().into();
    assert!(Mechanism::Epoll.notify_elsewhere(Some(no_event)).is_none());
    assert!(Mechanism::Pipe.notify_elsewhere(None).is_none());
}

#[test]
fn each_counts_its_calls() {
    for mechanism in Mechanism::ALL {
        let Some(ends) = open(mechanism) else { continue };
        assert!((1..=3).contains(&ends.park.calls()) && ends.notify.calls() <= 1, "{mechanism}");
    }
}
