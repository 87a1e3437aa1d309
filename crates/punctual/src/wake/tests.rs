//! Requirements on every way of sleeping, step by step.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use punctual_machine::sleep_cost::SleepCost;

use super::{
    AdaptiveSpin, Bed, Condition, Manners, RING_SLACK, Spun, Waited, Waiter, Wake, sleep_cost, waiter,
};

/// Attempts to ring in time, of which one succeeds on the busiest machine.
const RINGS_MAX: u32 = 1_000;

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

/// Goal: a message that comes between the last poll and the arming of the bell is found, by every way that sleeps. Method: the message
/// is there from the instant on in which the bell is armed. A waiter that has looked only before sleeps over it.
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
        // Where others keep that thread from running for longer than is allowed for, the wake-up was missed in truth: again.
        assert!(
            (0..RINGS_MAX).any(|_| ring_during(&bells, wake, &mut *waiter)),
            "{wake}: no ring was in time"
        );
    }
}

/// A sleep over something, for which another thread rings a millisecond after the limit. Returns true if the ring was in time.
fn ring_during(bells: &Bells, wake: Wake, waiter: &mut dyn Waiter) -> bool {
    std::thread::scope(|scope| {
        let ringer = Cell::new(None);
        let waited = bells.wait(waiter, &|| false, &|| {
            let limit = Instant::now();
            ringer.set(Some(scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(1));
                bells.ring();
                limit.elapsed()
            })));
            true
        });
        let after = ringer.take().expect("it looked once more").join().expect("it rings");
        bells.event.drain();
        let in_time = after < RING_SLACK / 2;
        assert!(!in_time || (waited.rung && !waited.missed), "{wake}: {waited:?}, {after:?} after the limit");
        in_time
    })
}

/// Goal: two that answer each other over the kernel's media, and both sleep, find back to spinning; on one processor never. Method:
/// figures of a machine on which they did not: the cost of a futex's sleep, and the way of a datagram.
#[test]
fn two_sleepers_of_a_network_wake_each_other() {
    const ON_FUTEX: SleepCost = SleepCost { cpu_ns: 4_000, delay_ns: 7_000 };
    const WAY_NS: u64 = 8_000;
    let kernels = Manners { rings_doorbell: false, looks_suffice: false };
    let mut ends = [(); 2].map(|()| AdaptiveSpin::new(sleep_cost(ON_FUTEX, kernels)));
    let delay_ns = u64::from(ON_FUTEX.delay_ns);
    for round in 0..100 {
        let spins = [0, 1].map(|end: usize| if round < 20 { 0 } else { u64::from(ends[end].spin_ns()) });
        for end in 0..2 {
            let idle_ns = if round < 20 { 1_000_000 } else { 0 };
            let others_ns = if spins[1 - end] > 0 { 0 } else { delay_ns };
            match idle_ns + WAY_NS + others_ns {
                wait_ns if wait_ns <= spins[end] => ends[end].note(wait_ns, Spun::Found),
                wait_ns if spins[end] > 0 => ends[end].note(wait_ns + delay_ns, Spun::InVain),
                wait_ns => ends[end].note(wait_ns + delay_ns, Spun::Not),
            }
        }
    }
    assert!(ends.iter().all(|end| u64::from(end.spin_ns()) > WAY_NS), "{ends:?}");
    assert_eq!(sleep_cost(SleepCost::NOTHING, kernels), SleepCost::NOTHING);
    assert_eq!(sleep_cost(ON_FUTEX, Manners::IN_PROCESS), ON_FUTEX);
}

/// Goal: a thread that waits for signals asks for them anew where another one may have asked meanwhile. It would sleep over all messages
/// otherwise.
#[test]
fn signals_are_asked_for_anew_after_a_handover() {
    let bells = Bells::new();
    let medium = EventFd::new().unwrap();
    let set = &mut EpollSet::new().unwrap();
    set.add(bells.event.as_fd()).unwrap();
    let mut waiter = waiter(Wake::Signal, Manners { rings_doorbell: false, looks_suffice: false }).unwrap();
    let mut wait = |waiter: &mut dyn Waiter| {
        let mut condition = Scripted { is_ready: &|| false, is_overslept: &|| false, said: false };
        let descriptors = [Some(medium.as_fd()), None];
        let mut bed = Bed { bell: &bells.bell, event: &bells.event, descriptors, set };
        waiter.wait(&mut bed, &mut condition).slept
    };
    assert!(!wait(&mut *waiter), "it asks, and everything is looked at once more");
    waiter.handle_handover();
    assert!(!wait(&mut *waiter), "it asks anew");
    assert!(wait(&mut *waiter));
}
