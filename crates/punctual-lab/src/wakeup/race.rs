//! The two ends of a racy protocol, as threads.
//!
//! The reader's way into its wait takes up to two microseconds here, as a system call's does; the writer's way from the request
//! to its send takes up to one. So now the one is first, now the other.

use std::sync::Arc;
use std::time::Duration;

use punctual::Clock;
use punctual_lab_machine::wake::bare::{EventWithFlag, RequestFlag};
use punctual_machine::bare_futex::BareFutex;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::cpu::pin_to;
use punctual_machine::signal::interrupted;
use punctual_machine::slept::Slept;
use punctual_proto::sim::Rng;

use super::handshake::{Handshake, Lowers, MESSAGES_PER_ROUND, Sleeps};

/// Longest way into the wait.
const ENTRY_NS_MAX: u64 = 2_000;
/// Longest way from the request to the send.
const ANSWER_NS_MAX: u64 = 1_000;
/// The writer's delay in H3: many times what the reader needs to fall asleep.
const DELAY: Duration = Duration::from_micros(200);

/// Each side draws its own delays, the same in every run.
const READER_SEED: u64 = 1;
const WRITER_SEED: u64 = 2;

/// The protocol, how often both sides run it, and on which CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RaceEnds {
    pub(super) handshake: Handshake,
    pub(super) rounds: u64,
    pub(super) limit: Duration,
    pub(super) writer_cpu: usize,
    pub(super) reader_cpu: usize,
}

/// What the reader counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RaceTally {
    pub(super) messages: u64,
    pub(super) lost: u64,
    /// From each request to the reader being awake: the sum …
    pub(super) sum_ns: u64,
    /// … and the longest.
    pub(super) max_ns: u64,
}

#[derive(Debug, Default)]
struct Shared {
    event: EventWithFlag,
    word: BareFutex,
    /// The message that the reader asks for.
    flag: RequestFlag,
    /// The newest message that the writer has taken the flag for, …
    taken: Counter,
    /// … the newest whose number can be seen, …
    stored: Counter,
    /// … and the newest whose send is complete.
    sent: Counter,
    /// The message before which the writer is to have nothing under way …
    pause: Counter,
    /// … and that before which it has nothing.
    paused: Counter,
    /// There will be no more.
    over: Flag,
}

/// A delay of random length, the same in every run.
fn delay(random: &mut Rng, ns_max: u64) {
    spin_for(Duration::from_nanos(random.below(ns_max)));
}

fn spin_for(time: Duration) {
    let clock = Clock::get();
    let until = clock.now().plus(clock.ticks(time));
    while clock.now() < until {
        std::hint::spin_loop();
    }
}

impl RaceEnds {
    /// Runs both.
    pub(super) fn run(self) -> RaceTally {
        let shared = Arc::new(Shared::default());
        let writer = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                // Unpinned it works too, less often in the window.
                let _unpinned = pin_to(self.writer_cpu);
                write(&shared, self.handshake);
            })
        };
        let reader = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let _unpinned = pin_to(self.reader_cpu);
                read(&shared, &self)
            })
        };
        let tally = reader.join().unwrap_or_default();
        shared.over.raise();
        let _ended = writer.join();
        tally
    }
}

fn read(shared: &Shared, ends: &RaceEnds) -> RaceTally {
    let clock = Clock::get();
    let mut random = Rng::new(READER_SEED);
    let mut tally = RaceTally::default();
    for message in 1..=ends.rounds * MESSAGES_PER_ROUND {
        if interrupted() {
            break;
        }
        if message % MESSAGES_PER_ROUND == 1 {
            begin_anew(shared, message);
        }
        let asked = clock.now();
        shared.flag.raise(message);
        let lost = match ends.handshake.sleeps {
            Sleeps::ForTheEvent { rechecks } => {
                sleeps_over_event(shared, message, ends, rechecks, &mut random)
            }
            Sleeps::ForANotification { from_before_the_look } => {
                sleeps_over(shared, message, ends, from_before_the_look, &mut random)
            }
        };
        note(&mut tally, clock.nanos(clock.now().since(asked)), lost);
    }
    tally
}

fn note(tally: &mut RaceTally, ns: u64, lost: bool) {
    tally.messages += 1;
    tally.lost += u64::from(lost);
    tally.sum_ns += ns;
    tally.max_ns = tally.max_ns.max(ns);
}

/// Nothing is asked for, and the writer has nothing under way: nothing is left of the round before.
fn begin_anew(shared: &Shared, message: u64) {
    shared.flag.lower();
    shared.pause.publish(message);
    while shared.paused.get_published() != message {
        std::thread::yield_now();
    }
    shared.event.reset();
}

/// Looks at the message's number and waits for a notification, again and again. Whether one was slept over.
fn sleeps_over(shared: &Shared, message: u64, ends: &RaceEnds, from_before: bool, random: &mut Rng) -> bool {
    loop {
        let before = shared.word.seen();
        if shared.stored.get_published() >= message {
            return false;
        }
        delay(random, ENTRY_NS_MAX);
        let seen = if from_before { before } else { shared.word.seen() };
        let slept = shared.word.sleep(seen, ends.limit);
        if slept == Slept::ToTheLimit && !is_pending(shared, message, || shared.word.seen() != seen) {
            return true;
        }
    }
}

/// Waits for the event, again if it was of the message before. Whether one was slept over.
fn sleeps_over_event(
    shared: &Shared,
    message: u64,
    ends: &RaceEnds,
    rechecks: bool,
    random: &mut Rng,
) -> bool {
    loop {
        delay(random, ENTRY_NS_MAX);
        let woken = shared.event.wait(rechecks, ends.limit);
        if !woken && !is_pending(shared, message, || shared.event.take_event()) {
            return true;
        }
        if shared.stored.get_published() >= message {
            return false;
        }
    }
}

/// The limit ended a wait. Waits until the writer has nothing left to do for this message: it may only have been kept from
/// running. Whether there is a notification then; without one the wake-up is lost.
fn is_pending(shared: &Shared, message: u64, mut is_notified: impl FnMut() -> bool) -> bool {
    loop {
        // In this order: the writer takes the flag before it lowers it, and is done when it has sent for what it took.
        let is_asked = shared.flag.raised() == message;
        let taken = shared.taken.get_published();
        if shared.sent.get_published() == taken && (taken == message || !is_asked) {
            return is_notified();
        }
        std::thread::yield_now();
    }
}

fn write(shared: &Shared, handshake: Handshake) {
    let mut random = Rng::new(WRITER_SEED);
    let (mut answered, mut paused) = (0, 0);
    while !shared.over.is_raised() {
        let pause = shared.pause.get_published();
        if pause != paused {
            paused = pause;
            shared.paused.publish(pause);
        }
        let asked = shared.flag.raised();
        if asked == 0 || asked == answered {
            std::hint::spin_loop();
            continue;
        }
        answered = asked;
        shared.taken.publish(asked);
        if handshake.lowers == Lowers::First {
            shared.flag.lower();
        }
        delay(&mut random, ANSWER_NS_MAX);
        if handshake.delays {
            spin_for(DELAY);
        }
        shared.stored.publish(asked);
        match handshake.sleeps {
            Sleeps::ForTheEvent { .. } => {
                shared.event.send();
            }
            Sleeps::ForANotification { .. } => shared.word.wake(),
        }
        shared.sent.publish(asked);
        match handshake.lowers {
            Lowers::Late => shared.flag.lower(),
            Lowers::Answered => shared.flag.lower_answered(asked),
            Lowers::First | Lowers::Never => {}
        }
    }
}
