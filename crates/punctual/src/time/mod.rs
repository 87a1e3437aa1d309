//! One time for nodes on different hosts, so that one-way latency between them is known within a bound.
//!
//! A [`TimeKeeper`] runs the protocol of `docs/time.md` (a simplified IEEE 1588) for a node, on a thread of its own. Where every
//! node of a bus has one, each can tell how long a message with stamps took from there to here:
//!
//! ```no_run
//! use punctual::time::{TimeKeeper, TimeOptions};
//! use punctual::{Bus, CommunicatorOptions, Node};
//!
//! let node = Node::open(&Bus::ethernet("eth0"), "here")?;
//! let keeper = TimeKeeper::start(&node, &TimeOptions::default())?;
//! let mut communicator = node.bind_with(1, &CommunicatorOptions::default().stamped())?;
//! loop {
//!     let message = communicator.receive()?;
//!     if let Some(way) = keeper.one_way_of(&message) {
//!         println!("{} ns ± {} ns", way.nanos, way.bound);
//!     }
//! }
//! # #[expect(unreachable_code, reason = "the loop does not end")]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use punctual_machine::SystemError;
use punctual_machine::clock::{Clock, ClockSource, RATE_ERROR_MAX_PPB, Ticks};
use punctual_machine::counter::Flag;
use punctual_machine::process::random;
use punctual_proto::time_sync::{StampClock, Synchroniser, step_ns};
use punctual_proto::{Nanos, NodeId};

use crate::communicator::{Message, Sender};
use crate::node::{BindError, CommunicatorOptions, Node};
use crate::trace::Stages;
use crate::wake::Wake;

use checked_clock::CheckedClock;

pub use punctual_proto::time_sync::{
    ClockModel, Estimate, OneWay, PRIORITY_NEVER, Role, SyncCounts, SyncOptions, Track,
};

mod checked_clock;
mod kernel_time;
mod work;

/// The port at which the time keepers of all nodes meet.
pub const TIME_PORT: u16 = 65_534;

/// One part in so many of a time by the kernel's clocks may come from slewing: a tenth at the most (`adjtimex`). Daemons slew by a
/// twelfth (`maxslewrate` of chrony).
const SLEW_DIVISOR: u64 = 8;

// The drift that the protocol starts from is what two calibrations leave.
const _: () = assert!(2 * RATE_ERROR_MAX_PPB <= ClockModel::CALIBRATED.drift_max_ppb.cast_unsigned());

/// Options of a node's time keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOptions {
    /// Its part in the protocol. A node whose clock is `CLOCK_MONOTONIC` knows that it is [slewed](ClockModel::SLEWED), and says so to
    /// the others.
    pub sync: SyncOptions,
    /// Way in which its thread waits. The sooner it notices a message, the tighter the bound, unless the kernel stamps messages itself.
    pub wake: Wake,
    /// True if nodes of one host are known to read one clock. If not, they find out how far they are apart as those of different hosts
    /// do: for checking the bound where the truth is known.
    pub trust_domain: bool,
}

impl Default for TimeOptions {
    fn default() -> Self {
        Self { sync: SyncOptions::default(), wake: Wake::default(), trust_domain: true }
    }
}

/// Why time cannot be kept.
#[derive(Debug)]
pub enum TimeError {
    /// The port of time keepers, most likely because the node has one already.
    Bind(BindError),
    /// The machine has no thread left.
    System(SystemError),
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(BindError::PortTaken(port)) => {
                write!(f, "port {port} of this node is taken: it has a time keeper already")
            }
            Self::Bind(error) => write!(f, "{error}"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for TimeError {}

/// State that the thread and its callers share.
#[derive(Debug)]
struct Shared {
    node: Mutex<Checked>,
    clock: &'static Clock,
    stop: Flag,
}

/// The protocol, and the clock that it is about.
#[derive(Debug)]
struct Checked {
    node: Synchroniser,
    clock: CheckedClock,
}

impl Shared {
    fn new(clock: &'static Clock, node: Synchroniser) -> Self {
        let node = Checked { node, clock: CheckedClock::new(clock) };
        Self { node: Mutex::new(node), clock, stop: Flag::default() }
    }

    /// Asks the protocol something, or tells it, now.
    fn with<T>(&self, ask: impl FnOnce(&mut Synchroniser, Nanos) -> T) -> T {
        let (mut checked, now) = self.check();
        ask(&mut checked.node, now)
    }

    /// Protocol and clock, and the time now. The first caller after the machine slept finds the protocol begun anew: no answer is that
    /// of before.
    fn check(&self) -> (MutexGuard<'_, Checked>, Nanos) {
        let mut checked = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, goes_on) = checked.clock.read();
        if !goes_on {
            checked.node.handle_clock_changed(random() as u32, now);
        }
        (checked, now)
    }

    /// A reading of this node's clock, in its nanoseconds.
    fn nanos(&self, reading: Ticks) -> Nanos {
        Nanos(self.clock.nanos(reading))
    }

    fn now(&self) -> Nanos {
        self.nanos(self.clock.now())
    }

    /// The time between two readings of this clock, unless it stood still or began anew meanwhile. Nothing arrives before it was sent.
    fn between(&self, clock: &CheckedClock, sent: Ticks, here: Ticks) -> Option<OneWay> {
        let [nanos, too_early] =
            [here.since(sent), sent.since(here)].map(|distance| self.clock.nanos(distance));
        // Of either reading's step.
        let bound = 2 * step_ns(self.clock.scale());
        let went_on = too_early <= bound && clock.went_on(self.nanos(sent), self.nanos(here));
        let way = OneWay { nanos: i64::try_from(nanos).ok()?, bound };
        went_on.then_some(way)
    }
}

/// Keeps the time of a node. Dropped, it stops.
#[derive(Debug)]
pub struct TimeKeeper {
    shared: Arc<Shared>,
    trust_domain: bool,
    sender: Sender,
    thread: Option<JoinHandle<()>>,
}

impl TimeKeeper {
    /// Keeps the time of a node from now on.
    ///
    /// # Errors
    /// See [`TimeError`].
    pub fn start(node: &Node, options: &TimeOptions) -> Result<Self, TimeError> {
        // With stamps, the engine's reading says when a message came, also if another component drives it.
        let communicator = CommunicatorOptions::waiting(options.wake).stamped();
        let communicator = node.bind_with(TIME_PORT, &communicator).map_err(TimeError::Bind)?;
        let sender = communicator.sender();
        let clock = Clock::get();
        let life = random() as u32;
        let stamps = StampClock {
            domain: clock.domain(),
            scale: clock.scale(),
            is_slewed: clock.source() == ClockSource::Monotonic,
        };
        let now = Nanos(clock.nanos(clock.now()));
        let synchroniser = Synchroniser::new(node.id(), life, stamps, options.sync, now);
        let shared = Arc::new(Shared::new(clock, synchroniser));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("time keeper".to_owned());
        let thread = thread.spawn(move || work::keep_time(&theirs, communicator));
        let thread = thread.map_err(|error| {
            TimeError::System(SystemError::new("start", "thread of a time keeper", error))
        })?;
        Ok(Self { shared, trust_domain: options.trust_domain, sender, thread: Some(thread) })
    }

    /// Role of this node: it is master, follows one, or waits for one.
    pub fn role(&self) -> Role {
        self.shared.with(|node, _| node.role())
    }

    /// Outcomes of exchanges, counted.
    pub fn counts(&self) -> SyncCounts {
        self.shared.with(|node, _| node.counts())
    }

    /// Amount to add to this node's time, now, for the reference's; `None` before the first exchange.
    pub fn offset(&self) -> Option<Estimate> {
        self.shared.with(|node, now| node.offset(now))
    }

    /// Time that a message took from its sender's call to the receiver's hands. `None` without stamps, and while it is not known how
    /// far both clocks are apart.
    pub fn one_way_of(&self, message: &Message<'_>) -> Option<OneWay> {
        self.one_way(message.source.node, message.stages?)
    }

    /// As [`Self::one_way_of`], for the stages of a message that was received before. By what is known now: the older they are, the
    /// wider is the bound. `None` for those of before one of the clocks began, as after a sleep, or before its keeper was heard. `None`
    /// also for a way that ends before it begins even at its bound's end. Within a host: for those across a sleep.
    pub fn one_way(&self, source: NodeId, stages: &Stages) -> Option<OneWay> {
        let (shared, here) = (&self.shared, stages.receiver.delivered);
        let (checked, now) = shared.check();
        if stages.one_clock && self.trust_domain {
            return shared.between(&checked.clock, Ticks(stages.sender.sent), here);
        }
        let (node, here) = (&checked.node, shared.nanos(here));
        // A reading from before the clock began anew is not of this one, and far ahead.
        if here > now {
            return None;
        }
        let clock = node.peer(source)?.clock;
        if clock.domain != stages.sender.domain {
            return None;
        }
        let sent = (u128::from(stages.sender.sent) * u128::from(clock.scale)) >> 32;
        node.one_way(source, Nanos(u64::try_from(sent).ok()?), here)
    }

    /// Keeps time no more.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for TimeKeeper {
    fn drop(&mut self) {
        // A forked child has not got the thread, and the node is its parent's.
        if !self.sender.is_of_this_process() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.stop.raise();
        self.sender.nudge();
        if let Some(thread) = self.thread.take() {
            let _panicked_or_done = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the first caller after the machine slept has no answer of before, and the protocol begins anew.
    #[test]
    fn a_sleep_is_told_to_the_protocol() {
        let clock = Clock::get();
        let options = SyncOptions { every: Nanos(0), silence: Nanos(0), ..SyncOptions::default() };
        let stamps = StampClock { domain: clock.domain(), scale: clock.scale(), is_slewed: false };
        let now = Nanos(clock.nanos(clock.now()));
        let shared = Shared::new(clock, Synchroniser::new(NodeId::named("here"), 1, stamps, options, now));
        // Less than these has no silence: four of the shortest intervals.
        let silence = std::time::Duration::from_millis(5);
        std::thread::sleep(silence);
        shared.with(Synchroniser::handle_timeout);
        assert_eq!(shared.with(|node, _| node.role()), Role::Master);
        shared.node.lock().unwrap().clock.pretend_sleep(std::time::Duration::from_secs(10));
        assert_eq!(shared.with(|node, now| (node.role(), node.offset(now))), (Role::Listening, None));
        std::thread::sleep(silence);
        shared.with(Synchroniser::handle_timeout);
        let said = shared.with(Synchroniser::poll_transmit).expect("it is master again");
        assert_ne!(said.message.life, 1);
    }

    /// Goal: a way across a sleep is not known, whether the counter stood still or began anew; one that is not is, also where two
    /// processors' counters differ a little.
    #[test]
    fn one_clock_tells_no_way_across_a_sleep() {
        let clock = Clock::get();
        let ticks = |ns| clock.ticks(std::time::Duration::from_nanos(ns));
        let stamps = StampClock { domain: clock.domain(), scale: clock.scale(), is_slewed: false };
        let node = Synchroniser::new(NodeId::named("here"), 1, stamps, SyncOptions::default(), Nanos(0));
        let shared = Shared::new(clock, node);
        let way = |sent, here| shared.between(&shared.check().0.clock, sent, here).map(|way| way.nanos);
        let before = clock.now();
        let later = before.plus(ticks(5_000));
        assert!(way(before, later).is_some_and(|nanos| nanos.abs_diff(5_000) < 100));
        assert_eq!(way(before.plus(ticks(40)), before), Some(0));
        assert_eq!(way(before.plus(ticks(10_000)), before), None, "the counter began anew");
        shared.node.lock().unwrap().clock.pretend_sleep(std::time::Duration::from_secs(10));
        let behind = Ticks(shared.clock.ticks(std::time::Duration::from_nanos(shared.check().1.0)).0 + 1_000);
        assert_eq!(way(before, behind), None, "the counter stood still");
        assert!(way(behind, behind.plus(ticks(5_000))).is_some());
    }
}
