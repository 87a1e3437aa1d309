//! What every way of sleeping must do, step by step.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::Duration;

use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;

use super::{Bed, Condition, Manners, Waited, Waiter, Wake, waiter};

/// Waits in which every way goes to sleep.
const WAITS_MAX: u32 = 1_000_000;

fn sleepers() -> impl Iterator<Item = (Wake, Box<dyn Waiter>)> {
    let media = [true, false].map(|rings_doorbell| Manners { rings_doorbell, looks_suffice: rings_doorbell });
    let ways = Wake::ALL.into_iter().filter(|&wake| wake != Wake::Spin);
    ways.flat_map(move |wake| {
        media.into_iter().filter_map(move |medium| Some((wake, waiter(wake, medium).ok()?)))
    })
}

struct Bells {
    bell: Doorbell,
    event: EventFd,
}

impl Bells {
    fn new() -> Self {
        Self { bell: Doorbell::default(), event: EventFd::new().unwrap() }
    }

    fn ring(&self) {
        match self.bell.ring() {
            None => {}
            Some(Notification::Futex) => self.bell.wake_futex(),
            Some(Notification::Descriptor) => self.event.ring(),
        }
    }

    /// Waits until the waiter has slept, or the condition has said that it need not.
    fn wait(
        &self,
        waiter: &mut dyn Waiter,
        is_ready: &dyn Fn() -> bool,
        is_overslept: &dyn Fn() -> bool,
    ) -> Waited {
        let set = &mut EpollSet::new().unwrap();
        set.add(self.event.as_fd()).unwrap();
        let mut condition = Scripted { is_ready, is_overslept, said: false };
        for _ in 0..WAITS_MAX {
            let mut bed = Bed { bell: &self.bell, event: &self.event, descriptors: [None; 2], set };
            let waited = waiter.wait(&mut bed, &mut condition);
            if waited.slept || condition.said {
                return waited;
            }
        }
        panic!("it never slept");
    }
}

struct Scripted<'a> {
    is_ready: &'a dyn Fn() -> bool,
    is_overslept: &'a dyn Fn() -> bool,
    /// It has said that there is something.
    said: bool,
}

impl Condition for Scripted<'_> {
    fn is_ready(&mut self) -> bool {
        let ready = (self.is_ready)();
        self.said |= ready;
        ready
    }

    fn timeout(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }

    fn is_overslept(&self) -> bool {
        (self.is_overslept)()
    }
}

/// Goal: what comes between the last poll and the arming of the bell is found, by every way that sleeps.
/// Method: the message is there from the instant on in which the bell is armed. Who has looked only before sleeps over it.
#[test]
fn every_way_looks_once_more_with_its_bell_armed() {
    for (wake, mut waiter) in sleepers() {
        let bells = Bells::new();
        let waited = bells.wait(&mut *waiter, &|| bells.bell.is_armed(), &|| false);
        assert!(!waited.slept, "{wake} slept over a message: {waited:?}");
        assert!(!bells.bell.is_armed(), "{wake}");
    }
}

/// Goal: a wake-up counts as missed if nobody rings, and only then: not if its sender was interrupted before it rang, not if a
/// caller's deadline has passed, and not if nothing is there.
#[test]
fn a_wake_up_is_missed_if_nobody_rings() {
    for (wake, mut waiter) in sleepers() {
        let bells = Bells::new();
        let never = || false;
        let waited = bells.wait(&mut *waiter, &never, &|| true);
        assert!(waited.slept && waited.missed && !waited.rung, "{wake}: {waited:?}");
        let waited = bells.wait(&mut *waiter, &never, &never);
        assert!(waited.slept && !waited.missed, "{wake}: {waited:?}");
        // The sender goes on after the limit: at once, and while the sleep goes on.
        let waited = bells.wait(&mut *waiter, &never, &|| {
            bells.ring();
            true
        });
        assert!(waited.rung && !waited.missed, "{wake}: {waited:?}");
        bells.event.drain();
        std::thread::scope(|scope| {
            let rings = Cell::new(false);
            let waited = bells.wait(&mut *waiter, &never, &|| {
                let bells = &bells;
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    bells.ring();
                });
                rings.set(true);
                true
            });
            assert!(rings.get() && waited.rung && !waited.missed, "{wake}: {waited:?}");
        });
    }
}
