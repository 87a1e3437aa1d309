//! Racy protocols in software, each beside its repair, and the two ends of one as threads.
//!
//! Reader and writer do what the work log's test programs did. The model (`punctual sim wakeup`) goes through every order of
//! events of the protocols of the same names; here they run. Two messages each: a round begins anew, and its second message
//! meets what the first has left behind.
//!
//! The reader's way into its wait takes up to two microseconds here, as a system call's does; the writer's way from the request
//! to its send takes up to one. So now the one is first, now the other.

use std::time::Duration;

use punctual::Clock;
use punctual_lab_machine::wake::bare::{EventWithFlag, RequestFlag};
use punctual_machine::bare_futex::BareFutex;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::cpu::pin_to;
use punctual_machine::signal::interrupted;
use punctual_machine::slept::Slept;
use punctual_proto::sim::Rng;

use super::pace::spin_until;

/// Longest way into the wait.
const ENTRY_NS_MAX: u64 = 2_000;
/// Longest way from the request to the send.
const ANSWER_NS_MAX: u64 = 1_000;
/// The writer's delay in H3: many times what the reader needs to fall asleep.
const DELAY: Duration = Duration::from_micros(200);

/// Each side draws its own delays, the same in every run.
const READER_SEED: u64 = 1;
const WRITER_SEED: u64 = 2;

/// Messages of a round: the second meets what the first has left behind.
pub const MESSAGES_PER_ROUND: u64 = 2;

/// Way in which the writer lowers the flag by which the reader asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lowers {
    /// Not at all: it sends as soon as the reader has the message before.
    Never,
    /// Before it sends.
    First,
    /// After it sent.
    Late,
    /// After it sent, and only if the flag still asks for what was sent.
    Answered,
}

/// Kind of the reader's sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleeps {
    /// In a wait for the log's event.
    ForTheEvent {
        /// It looks at what was posted once it has cleared ON.
        rechecks: bool,
    },
    /// In a wait for a notification, after a look at the message's number.
    ForANotification {
        /// One from before that look on ends it, not only one from after it.
        from_before_the_look: bool,
    },
}

/// Protocol by which reader and writer agree on when to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaceProtocol {
    /// Its name, also in the model (`punctual sim wakeup --variant`).
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The writer's flag.
    lowers: Lowers,
    /// The writer waits before it sends.
    delays: bool,
    /// The reader's sleep.
    sleeps: Sleeps,
}

const LOOKS: Sleeps = Sleeps::ForTheEvent { rechecks: true };
const LOOKS_NOT: Sleeps = Sleeps::ForTheEvent { rechecks: false };

const fn of(name: &'static str, about: &'static str, lowers: Lowers, sleeps: Sleeps) -> RaceProtocol {
    RaceProtocol { name, about, lowers, delays: false, sleeps }
}

impl RaceProtocol {
    /// A look and a wait that leave a gap between them.
    pub const WAIT_UNMASKED: Self = of(
        "wait-unmasked",
        "the notification may come between the look and the wait (A1)",
        Lowers::Never,
        Sleeps::ForANotification { from_before_the_look: false },
    );
    /// Its repair.
    pub const WAIT: Self = of(
        "wait",
        "a notification since before the look ends the wait",
        Lowers::Never,
        Sleeps::ForANotification { from_before_the_look: true },
    );

    /// All of them, each racy one before its repair; h3 is h2 with a delay that hides its race.
    pub const ALL: [Self; 10] = [
        Self::WAIT_UNMASKED,
        Self::WAIT,
        of("epoll-event", "the wait clears ON and does not look (E1)", Lowers::Never, LOOKS_NOT),
        of("epoll-event-recheck", "the wait looks at what was posted once ON is clear", Lowers::Never, LOOKS),
        of("h1", "flag raised before the wait, lowered after the send", Lowers::Late, LOOKS_NOT),
        of("h1-recheck", "h1 that looks again", Lowers::Late, LOOKS),
        of("h1-repaired", "h1-recheck that lowers only the flag which it answered", Lowers::Answered, LOOKS),
        of("h2", "flag lowered at once", Lowers::First, LOOKS_NOT),
        of("h4", "h2 that looks again", Lowers::First, LOOKS),
        Self {
            delays: true,
            ..of("h3", "h2 with a delay in the writer: the race remains, unseen", Lowers::First, LOOKS_NOT)
        },
    ];
}

/// Counts of the reader.
#[derive(Debug, Default)]
pub struct RaceTally {
    /// From each request to the reader being awake.
    pub waits_ns: Vec<u64>,
    /// Waits that only the time limit ended.
    pub lost: u64,
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

/// Runs both ends, the writer on the first of these processors, the reader on the second.
pub fn race(protocol: RaceProtocol, rounds: u64, limit: Duration, cpus: [usize; 2]) -> RaceTally {
    let shared = Shared::default();
    std::thread::scope(|scope| {
        // Unpinned they work too, less often in the window.
        scope.spawn(|| {
            let _unpinned = pin_to(cpus[0]);
            write(&shared, protocol);
        });
        let reader = scope.spawn(|| {
            let _unpinned = pin_to(cpus[1]);
            let random = Rng::new(READER_SEED);
            RaceReader { shared: &shared, sleeps: protocol.sleeps, limit, random }.read(rounds)
        });
        let tally = reader.join();
        shared.over.raise();
        tally.unwrap_or_default()
    })
}

fn spin_for(time: Duration) {
    let clock = Clock::get();
    spin_until(clock.now().plus(clock.ticks(time)));
}

/// A delay of random length, the same in every run.
fn delay(random: &mut Rng, ns_max: u64) {
    spin_for(Duration::from_nanos(random.below(ns_max)));
}

struct RaceReader<'a> {
    shared: &'a Shared,
    sleeps: Sleeps,
    limit: Duration,
    random: Rng,
}

impl RaceReader<'_> {
    fn read(mut self, rounds: u64) -> RaceTally {
        let clock = Clock::get();
        let mut tally = RaceTally::default();
        for message in 1..=rounds * MESSAGES_PER_ROUND {
            if interrupted() {
                break;
            }
            if message % MESSAGES_PER_ROUND == 1 {
                self.begin_anew(message);
            }
            let asked = clock.now();
            self.shared.flag.raise(message);
            let is_lost = match self.sleeps {
                Sleeps::ForTheEvent { rechecks } => self.sleeps_over_event(message, rechecks),
                Sleeps::ForANotification { from_before_the_look } => {
                    self.sleeps_over(message, from_before_the_look)
                }
            };
            tally.waits_ns.push(clock.nanos(clock.now().since(asked)));
            tally.lost += u64::from(is_lost);
        }
        tally
    }

    /// Nothing is asked for, and the writer has nothing under way: nothing is left of the round before.
    fn begin_anew(&self, message: u64) {
        self.shared.flag.lower();
        self.shared.pause.publish(message);
        while self.shared.paused.get_published() != message {
            std::thread::yield_now();
        }
        self.shared.event.reset();
    }

    /// Looks at the message's number and waits for a notification, again and again. Returns true if it slept through one.
    fn sleeps_over(&mut self, message: u64, from_before: bool) -> bool {
        let word = &self.shared.word;
        loop {
            let before = word.seen();
            if self.shared.stored.get_published() >= message {
                return false;
            }
            delay(&mut self.random, ENTRY_NS_MAX);
            let seen = if from_before { before } else { word.seen() };
            let slept = word.sleep(seen, self.limit);
            if slept == Slept::ToTheLimit && !self.is_pending(message, || word.seen() != seen) {
                return true;
            }
        }
    }

    /// Waits for the event, again if it was of the message before. Returns true if it slept through one.
    fn sleeps_over_event(&mut self, message: u64, rechecks: bool) -> bool {
        let event = &self.shared.event;
        loop {
            delay(&mut self.random, ENTRY_NS_MAX);
            let is_woken = event.wait(rechecks, self.limit);
            if !is_woken && !self.is_pending(message, || event.take_event()) {
                return true;
            }
            if self.shared.stored.get_published() >= message {
                return false;
            }
        }
    }

    /// The limit ended a wait. Waits until the writer has nothing left to do for this message: it may only have been kept from running.
    /// Returns true if there is a notification then; without one the wake-up is lost.
    fn is_pending(&self, message: u64, mut is_notified: impl FnMut() -> bool) -> bool {
        let shared = self.shared;
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
}

fn write(shared: &Shared, protocol: RaceProtocol) {
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
        if protocol.lowers == Lowers::First {
            shared.flag.lower();
        }
        delay(&mut random, ANSWER_NS_MAX);
        if protocol.delays {
            spin_for(DELAY);
        }
        shared.stored.publish(asked);
        match protocol.sleeps {
            Sleeps::ForTheEvent { .. } => {
                shared.event.send();
            }
            Sleeps::ForANotification { .. } => shared.word.wake(),
        }
        shared.sent.publish(asked);
        match protocol.lowers {
            Lowers::Late => shared.flag.lower(),
            Lowers::Answered => shared.flag.lower_answered(asked),
            Lowers::First | Lowers::Never => {}
        }
    }
}
