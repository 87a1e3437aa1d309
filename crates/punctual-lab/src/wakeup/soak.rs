//! The long proof: very many messages with random delays at every step of the handshake, and not one wake-up lost.

use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::cpu::pin_to;
use punctual_machine::doorbell::Doorbell;
use punctual_machine::signal::interrupted;
use punctual_machine::wake::{Mechanism, Notify, Park};
use serde::{Deserialize, Serialize};

use super::route::Line;

/// A sleep that lasts so long over a message was not woken.
const RESCUE_AFTER: Duration = Duration::from_secs(1);
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
    /// Sleeps over a message that only their limit ended.
    pub lost: u64,
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
    bell: Doorbell,
    over: Flag,
    lost: Counter,
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
            Ok::<_, String>(read(&shared, &mut *ends.park, Delays(options.seed | 1)))
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
    notify_end(&shared, &*notify);
    let (noticed, parks, late, latest_ns) = reader.join().map_err(crashed)??;
    Ok(SoakResult {
        mechanism: options.mechanism.to_string(),
        messages,
        noticed,
        parks,
        notified,
        lost: shared.lost.get(),
        late,
        latest_ns,
        seconds: (start.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
    })
}

fn write(shared: &Shared, notify: &dyn Notify, options: SoakOptions, bar: &ProgressBar) -> (u64, u64) {
    let clock = Clock::get();
    let mut delays = Delays(options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut notified = 0;
    for message in 1..=options.count {
        delays.gap();
        shared.sent_at.0.set(clock.now().0);
        shared.sent.0.publish(message);
        delays.step();
        if shared.bell.ring(0).is_some() {
            delays.step();
            notify.notify(&shared.bell);
            notified += 1;
        }
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

fn notify_end(shared: &Shared, notify: &dyn Notify) {
    if shared.bell.ring(0).is_some() {
        notify.notify(&shared.bell);
    }
}

/// Messages noticed, sleeps, late ones, and the latest.
fn read(shared: &Shared, park: &mut dyn Park, mut delays: Delays) -> (u64, u64, u64, u64) {
    let clock = Clock::get();
    let (mut seen, mut parks, mut late, mut latest_ns) = (0, 0, 0, 0);
    while !shared.over.is_raised() {
        let sent = shared.sent.0.get_published();
        if sent > seen {
            let age_ns = clock.nanos(clock.now().since(Ticks(shared.sent_at.0.get())));
            late += u64::from(age_ns > LATE_AFTER.as_nanos() as u64);
            latest_ns = latest_ns.max(age_ns);
            seen += 1;
            shared.seen.0.publish(seen);
            delays.step();
            continue;
        }
        if !delays.next().is_multiple_of(SPINS_PER_SLEEP) {
            // It spins a while, as an adaptive waiter does.
            delays.step();
            continue;
        }
        parks += u64::from(sleep(shared, park, seen, &mut delays));
    }
    (seen, parks, late, latest_ns)
}

/// The handshake with a delay between any two of its steps.
fn sleep(shared: &Shared, park: &mut dyn Park, seen: u64, delays: &mut Delays) -> bool {
    let clock = Clock::get();
    delays.step();
    shared.bell.arm(park.how());
    delays.step();
    let parks = shared.sent.0.get_published() == seen && !shared.over.is_raised();
    delays.step();
    if parks {
        let began = clock.now();
        park.park(&shared.bell, RESCUE_AFTER);
        let to_the_limit = clock.duration(clock.now().since(began)) >= RESCUE_AFTER;
        // A message that came just before the limit may still be on its way to us.
        let age = clock.duration(clock.now().since(Ticks(shared.sent_at.0.get())));
        let is_there = shared.sent.0.get_published() > seen && !shared.over.is_raised();
        if to_the_limit && is_there && age >= LATE_AFTER {
            shared.lost.add(1);
        }
    }
    delays.step();
    if shared.bell.disarm().rung && !parks {
        park.drain();
    }
    parks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_in_a_short_one() {
        let cpus = punctual_machine::cpu::allowed();
        for mechanism in [Mechanism::Futex, Mechanism::Epoll] {
            let options = SoakOptions { mechanism, count: 20_000, seed: 7 };
            let result = soak(options, &cpus, &ProgressBar::hidden()).unwrap();
            assert_eq!((result.messages, result.noticed, result.lost), (20_000, 20_000, 0), "{result:?}");
            assert!(result.parks > 0 && result.notified > 0, "{result:?}");
        }
    }
}
