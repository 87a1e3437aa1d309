//! The long proof: very many messages with random delays at every step of the handshake, and not one wake-up lost.
//!
//! A wake-up is *lost* if the writer had completed its notification and the reader still slept to its limit. Neither half of
//! that can be had from a clock alone: a process that is stopped for a second looks as if it had slept for one, and a writer
//! that is stopped between its store and its notification has lost nothing yet. So the kernel says whether the limit ended
//! the sleep, and the writer publishes when each notification was complete:
//!
//! ```text
//! writer   sent := n ─▶ ring ─▶ notify? ─▶ notified_at, notified := n
//! reader   sleeps ─▶ limit ─▶ n is there ─┬▶ notified before the limit: lost
//!                                         └▶ not yet, or just now: unfinished; it sleeps on, and must be woken
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::counter::Flag;
use punctual_machine::cpu::pin_to;
use punctual_machine::doorbell::Doorbell;
use punctual_machine::signal::interrupted;
use punctual_machine::wake::{Mechanism, Notify, Park, Slept};
use serde::{Deserialize, Serialize};

use super::route::{LIMIT_SLACK, Line, RESCUE_AFTER};

/// The limit of a sleep that is spoilt on purpose: each costs as much.
const RESCUE_AFTER_SPOILT: Duration = Duration::from_millis(50);
/// Of the messages that a spoilt writer sends and the notifications that it makes, one in so many is held up.
const HELD_UP_ONE_IN: u64 = 64;
/// A message noticed later than this is counted, whatever the reason.
const LATE_AFTER: Duration = Duration::from_millis(10);
/// Longest delay between two steps of the handshake, spins.
const STEP_SPINS_MAX: u32 = 60;
/// Longest gap between messages, spins: most are short, so that the reader is met in every step.
const GAP_SPINS_MAX: u32 = 2_000;

/// Looks for a message before the reader goes to sleep, on average: most messages meet it awake.
const SPINS_PER_SLEEP: u32 = 16;

/// How long and by what.
#[derive(Clone, Copy, Debug)]
pub struct SoakOptions {
    /// By which mechanism the reader sleeps.
    pub mechanism: Mechanism,
    /// Messages.
    pub count: u64,
    /// Repeats the delays.
    pub seed: u64,
    /// What is done wrong on purpose.
    pub spoilt: Option<Spoilt>,
}

impl SoakOptions {
    fn limit(&self) -> Duration {
        if self.spoilt.is_some() { RESCUE_AFTER_SPOILT } else { RESCUE_AFTER }
    }

    fn spoils(&self, what: Spoilt) -> bool {
        self.spoilt == Some(what)
    }
}

/// What can be done wrong, to see that the count of lost wake-ups can rise, and does not rise for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoilt {
    /// The reader does not look again between arming and sleeping: wake-ups are lost.
    Look,
    /// The writer never sends the notification that it is asked for: wake-ups are lost.
    Notify,
    /// The writer halts for two limits in the middle of a notification, as a stopped process does: none is lost.
    Halt,
}

impl Spoilt {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Look, Self::Notify, Self::Halt];

    const fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Notify => "notify",
            Self::Halt => "halt",
        }
    }
}

impl fmt::Display for Spoilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Spoilt {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|spoilt| spoilt.name() == name);
        known
            .ok_or_else(|| format!("{name:?} is no step; known are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SoakResult {
    /// By which mechanism.
    pub mechanism: String,
    /// Messages sent.
    pub messages: u64,
    /// Messages noticed: all of them, in order, once.
    pub noticed: u64,
    /// Waits that went to sleep.
    pub parks: u64,
    /// Notifications sent.
    pub notified: u64,
    /// Sleeps that only their limit ended, over a message whose notification was complete before.
    pub lost: u64,
    /// Sleeps that reached their limit while the writer had stored a message and not yet completed its notification, because
    /// it was stopped or kept from running. They slept on and were woken.
    #[serde(default)]
    pub unfinished: u64,
    /// Messages noticed later than 10 ms after they were sent, for whatever reason.
    pub late: u64,
    /// The latest, nanoseconds.
    pub latest_ns: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

#[derive(Debug, Default)]
struct Shared {
    sent: Line,
    sent_at: Line,
    seen: Line,
    /// The newest message whose notification is complete, whether it took a call or not …
    notified: Line,
    /// … and since when.
    notified_at: Line,
    bell: Doorbell,
    over: Flag,
}

impl Shared {
    /// Whether there is something to wake for.
    fn has_news(&self, seen: u64) -> bool {
        self.sent.0.get_published() > seen || self.over.is_raised()
    }
}

/// Steps of random length: xorshift64*, seeded.
struct Delays(u64);

impl Delays {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Half of the steps take no time at all.
    fn step(&mut self) {
        let random = self.next();
        if random & 1 == 1 {
            spin((random >> 1) % STEP_SPINS_MAX);
        }
    }

    /// One gap in eight is long enough to fall asleep in.
    fn gap(&mut self) {
        let random = self.next();
        spin(if random.is_multiple_of(8) {
            (random >> 3) % GAP_SPINS_MAX
        } else {
            (random >> 3) % STEP_SPINS_MAX
        });
    }
}

fn spin(times: u32) {
    for _ in 0..times {
        std::hint::spin_loop();
    }
}

/// Runs it. Ends early, with what there is, when interrupted.
///
/// # Errors
/// What this machine cannot do, in words.
pub fn soak(options: SoakOptions, cpus: &[usize], bar: &ProgressBar) -> Result<SoakResult, String> {
    let shared = Arc::new(Shared::default());
    let (opened, opening) = std::sync::mpsc::channel();
    let reader = {
        let (shared, cpu) = (Arc::clone(&shared), cpus.last().copied().unwrap_or(0));
        std::thread::spawn(move || {
            let _unpinned = pin_to(cpu);
            let mut ends = options.mechanism.open().map_err(|error| error.to_string())?;
            let _heard = opened.send(ends.notify);
            let delays = Delays(options.seed | 1);
            let reader =
                Reader { shared: &shared, park: &mut *ends.park, options, delays, tally: Tally::default() };
            Ok::<_, String>(reader.run())
        })
    };
    let crashed = |_| "the reader crashed".to_owned();
    let Ok(notify) = opening.recv() else {
        return Err(reader
            .join()
            .map_err(crashed)?
            .err()
            .unwrap_or_else(|| "the reader did not begin".to_owned()));
    };
    let _unpinned = pin_to(cpus.first().copied().unwrap_or(0));
    let start = std::time::Instant::now();
    let (messages, notified) = write(&shared, &*notify, options, bar);
    shared.over.raise();
    if shared.bell.ring(0).is_some() {
        notify.notify(&shared.bell);
    }
    let tally = reader.join().map_err(crashed)??;
    Ok(SoakResult {
        mechanism: options.mechanism.to_string(),
        messages,
        noticed: tally.noticed,
        parks: tally.parks,
        notified,
        lost: tally.lost,
        unfinished: tally.unfinished,
        late: tally.late,
        latest_ns: tally.latest_ns,
        seconds: (start.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
    })
}

/// Messages sent, and notifications.
fn write(shared: &Shared, notify: &dyn Notify, options: SoakOptions, bar: &ProgressBar) -> (u64, u64) {
    let clock = Clock::get();
    let mut delays = Delays(options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut notified = 0;
    for message in 1..=options.count {
        delays.gap();
        shared.sent_at.0.set(clock.now().0);
        shared.sent.0.publish(message);
        delays.step();
        hold_up(options, message);
        if shared.bell.ring(0).is_some() {
            delays.step();
            notified += 1;
            hold_up(options, notified);
            if !options.spoils(Spoilt::Notify) {
                notify.notify(&shared.bell);
            }
        }
        shared.notified_at.0.set(clock.now().0);
        shared.notified.0.publish(message);
        while shared.seen.0.get_published() < message {
            std::hint::spin_loop();
        }
        if message.is_multiple_of(1 << 16) {
            bar.set_position(message);
            if interrupted() {
                return (message, notified);
            }
        }
    }
    (options.count, notified)
}

fn hold_up(options: SoakOptions, count: u64) {
    if options.spoils(Spoilt::Halt) && count.is_multiple_of(HELD_UP_ONE_IN) {
        std::thread::sleep(options.limit() * 2);
    }
}

#[derive(Debug, Default)]
struct Tally {
    noticed: u64,
    parks: u64,
    lost: u64,
    unfinished: u64,
    late: u64,
    latest_ns: u64,
}

struct Reader<'a> {
    shared: &'a Shared,
    park: &'a mut dyn Park,
    options: SoakOptions,
    delays: Delays,
    tally: Tally,
}

impl Reader<'_> {
    fn run(mut self) -> Tally {
        while !self.shared.over.is_raised() {
            if self.shared.sent.0.get_published() > self.tally.noticed {
                self.notice();
            } else if self.delays.next().is_multiple_of(SPINS_PER_SLEEP) {
                self.sleep();
            } else {
                // It spins a while, as an adaptive waiter does.
                self.delays.step();
            }
        }
        self.tally
    }

    fn notice(&mut self) {
        let clock = Clock::get();
        let age_ns = clock.nanos(clock.now().since(Ticks(self.shared.sent_at.0.get())));
        self.tally.late += u64::from(age_ns > LATE_AFTER.as_nanos() as u64);
        self.tally.latest_ns = self.tally.latest_ns.max(age_ns);
        self.tally.noticed += 1;
        self.shared.seen.0.publish(self.tally.noticed);
        self.delays.step();
    }

    /// The handshake with a delay between any two of its steps.
    fn sleep(&mut self) {
        let shared = self.shared;
        self.delays.step();
        shared.bell.arm(self.park.how());
        self.delays.step();
        let parks = self.options.spoils(Spoilt::Look) || !shared.has_news(self.tally.noticed);
        self.delays.step();
        if parks {
            self.tally.parks += 1;
            self.sleep_until_woken();
        }
        self.delays.step();
        if shared.bell.disarm().rung && !parks {
            self.park.drain();
        }
    }

    /// Sleeps, and sleeps on if the limit came before the writer was done.
    fn sleep_until_woken(&mut self) {
        let (clock, shared, limit) = (Clock::get(), self.shared, self.options.limit());
        let slack = clock.ticks(LIMIT_SLACK);
        loop {
            let limit_at = clock.now().plus(clock.ticks(limit));
            let slept = self.park.park(&shared.bell, limit);
            if slept == Slept::Less || !shared.has_news(self.tally.noticed) || shared.over.is_raised() {
                return;
            }
            let is_notified = shared.notified.0.get_published() > self.tally.noticed;
            if is_notified && Ticks(shared.notified_at.0.get()).plus(slack) < limit_at {
                self.tally.lost += 1;
                return;
            }
            self.tally.unfinished += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MECHANISMS: [Mechanism; 2] = [Mechanism::Futex, Mechanism::Epoll];

    fn short(mechanism: Mechanism, count: u64, spoilt: Option<Spoilt>) -> Option<SoakResult> {
        let cpus = punctual_machine::cpu::allowed();
        if cpus.len() < 2 {
            eprintln!("SKIPPED: two processors are needed");
            return None;
        }
        let options = SoakOptions { mechanism, count, seed: 7, spoilt };
        let result = soak(options, &cpus, &ProgressBar::hidden()).unwrap();
        assert_eq!((result.messages, result.noticed), (count, count), "{result:?}");
        Some(result)
    }

    #[test]
    fn nothing_is_lost_in_a_short_one() {
        for mechanism in MECHANISMS {
            let Some(result) = short(mechanism, 20_000, None) else { return };
            assert_eq!(result.lost, 0, "{result:?}");
            assert!(result.parks > 0 && result.notified > 0, "{result:?}");
        }
    }

    /// Goal: the count can rise. Without the look a message between look and arming is slept over; without the notification
    /// every one is.
    #[test]
    fn a_broken_handshake_loses_wake_ups() {
        for mechanism in MECHANISMS {
            for (spoilt, count) in [(Spoilt::Look, 1_500), (Spoilt::Notify, 150)] {
                let Some(result) = short(mechanism, count, Some(spoilt)) else { return };
                assert!(result.lost > 0, "{spoilt}: {result:?}");
            }
        }
    }

    /// Goal: the count does not rise for a writer that was stopped between its store and the end of its notification.
    #[test]
    fn a_writer_that_halts_loses_nothing() {
        for mechanism in MECHANISMS {
            let Some(result) = short(mechanism, 1_500, Some(Spoilt::Halt)) else { return };
            assert_eq!(result.lost, 0, "{result:?}");
            assert!(result.unfinished > 0 && result.late > 0, "{result:?}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for spoilt in Spoilt::ALL {
            assert_eq!(spoilt.to_string().parse(), Ok(spoilt));
        }
        assert!("all".parse::<Spoilt>().unwrap_err().contains("notify"));
    }
}
