//! The thread that reads a bus: it copies what it sees into batches and waits for nobody.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual::{Clock, Ledger, Monitor, Node, Observed, Ticks, Wake};
use punctual_machine::clock::realtime_ns;
use punctual_machine::scheduling::sleep_precisely;
use punctual_proto::{Address, NodeId, Target};

use super::queue::{Intake, Outlet, queue};
use super::written::{Output, Unsettled, Written, write_all};
use super::{Entry, Missed, SOURCES_MAX, Totals};
use crate::file::advice_to_write;
use crate::scheduling::Urgency;

/// Messages of one look, so that no publication keeps the others waiting.
const LOOK_MAX: usize = 1024;

/// Shortest time between two looks in memory: more looks would find little, and take the processor from others.
pub const NAP_MIN: Duration = Duration::from_micros(100);

/// Longest time between two looks, unless another is asked for: so short that a burst in between is not missed.
pub const NAP_MAX: Duration = Duration::from_millis(1);

/// A look that finds as much is followed by a shorter nap, bytes: an eighth of a usual ring.
const FOUND_MUCH: u64 = 32 << 10;

/// A look that finds less is followed by a longer one, bytes.
const FOUND_LITTLE: u64 = 8 << 10;

/// Approximate space that a message takes in a ring besides its bytes.
const RECORD_OVERHEAD: u64 = 64;

/// Where the kernel wakes who waits, only an end is looked for so often.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// A message is handed to the writer after so long at the latest.
const HAND_OVER_EVERY: Duration = Duration::from_millis(20);

/// Looks at the rest when the recording ends: the content of rings, not the further messages of a flood.
const LAST_LOOKS: usize = 256;

/// An instant that a sender stamps is believed if it lies no further away.
const STAMP_DISTANCE_MAX: Duration = Duration::from_secs(3600);

/// Interval at which the wall clock is compared with ours.
const PAIR_AGE_MAX: Duration = Duration::from_secs(1);

/// A wall clock that is off by as much was set, nanoseconds: a smaller difference is followed, as of a clock that runs a little slower
/// or faster.
const SET_NS_MIN: u64 = 10_000_000;

/// An instant of the kernel's that is as far from a look is a reason to ask whether the wall clock was set, nanoseconds.
const KERNEL_DISTANCE_NS: u64 = 100_000_000;

/// The cause of what was seen while the queue was full.
const NO_ROOM: &str = "no_room_in_queue";

/// Settings of a recording, and its end.
#[derive(Debug)]
pub struct Plan {
    /// Wait strategy of the reader. In memory nobody rings for it: it spins, or looks now and then.
    pub wake: Wake,
    /// The bus is in memory.
    pub is_in_memory: bool,
    /// There it looks so often at least.
    pub every: Duration,
    /// Urgency of the reader.
    pub urgency: Urgency,
    /// After so long.
    pub duration: Option<Duration>,
    /// After so many messages.
    pub count: Option<u64>,
}

/// Result of a recording.
#[derive(Debug)]
pub struct Account {
    /// Messages in the file, and missing messages.
    pub totals: Totals,
    /// Bytes of the messages in the file.
    pub bytes: u64,
    /// Bytes of the file.
    pub file_size: u64,
    /// Duration of the recording.
    pub duration: Duration,
    /// Senders that were seen.
    pub sources: usize,
    /// Error that ended it early.
    pub error: Option<io::Error>,
}

/// Why there is no account.
#[derive(Debug)]
pub enum RecordError {
    /// It did not begin, for this reason: nothing is in the file.
    NotBegun(String),
    /// The writer panicked: the messages that it wrote before are in the file.
    WriterPanicked,
}

/// Records what this node can see until the plan or `is_over` ends it. From when `ready` is called on, everything is seen.
///
/// # Errors
/// There is no thread left, the node can have no monitor, or the writer panics.
pub fn record(
    node: &Node,
    plan: &Plan,
    output: Output,
    ready: impl FnOnce(),
    is_over: impl Fn() -> bool,
) -> Result<Account, RecordError> {
    record_by(node, plan, |outlet| write_all(&outlet, output), ready, is_over)
}

/// The same, with any writer.
fn record_by(
    node: &Node,
    plan: &Plan,
    write: impl FnOnce(Outlet) -> Unsettled + Send + 'static,
    ready: impl FnOnce(),
    is_over: impl Fn() -> bool,
) -> Result<Account, RecordError> {
    let not_begun = RecordError::NotBegun;
    let monitor = node.monitor(plan.wake).map_err(|error| not_begun(error.to_string()))?;
    let (intake, outlet) = queue();
    let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(move || write(outlet));
    let thread = thread.map_err(|error| not_begun(format!("no thread for the writer: {error}")))?;
    sleep_precisely();
    plan.urgency.apply().map_err(|error| not_begun(plan.urgency.advise(&error)))?;
    ready();
    let begun = Instant::now();
    let mut recorder = Recorder { node, monitor, eye: Eye::new(intake), handed: begun };
    let left = || plan.duration.map_or(Duration::MAX, |duration| duration.saturating_sub(begun.elapsed()));
    let ends = || is_over() || left().is_zero() || thread.is_finished();
    let mut nap = NAP_MIN;
    while !ends() && !plan.is_full(recorder.eye.seen) {
        let before = recorder.eye.found_bytes;
        let wait = if plan.is_in_memory { nap.min(WAIT_MAX) } else { WAIT_MAX };
        let found = recorder.look(plan, wait.min(left()));
        nap = plan.next_nap(nap, recorder.eye.found_bytes - before);
        if plan.naps() && found < LOOK_MAX && found > 0 && !plan.is_full(recorder.eye.seen) {
            sleep_until(Instant::now() + nap, ends);
        }
    }
    recorder.end(plan, thread, begun)
}

/// Sleeps until the instant, or until it `ends` before.
fn sleep_until(instant: Instant, ends: impl Fn() -> bool) {
    while let left = instant.saturating_duration_since(Instant::now())
        && !left.is_zero()
        && !ends()
    {
        std::thread::sleep(left.min(WAIT_MAX));
    }
}

impl Plan {
    fn naps(&self) -> bool {
        self.is_in_memory && self.wake != Wake::Spin
    }

    /// Returns true if it wants no message beside so many.
    fn is_full(&self, seen: u64) -> bool {
        self.count.is_some_and(|count| seen >= count)
    }

    /// Time to leave the bus alone after a look that found so many bytes.
    fn next_nap(&self, nap: Duration, found: u64) -> Duration {
        let nap = match found {
            FOUND_MUCH.. => nap / 2,
            FOUND_LITTLE.. => nap,
            _ => nap * 2,
        };
        nap.clamp(NAP_MIN.min(self.every), self.every)
    }

    /// Messages that one look may show.
    fn limit(&self, seen: u64) -> usize {
        let left = self.count.map_or(u64::MAX, |count| count.saturating_sub(seen));
        usize::try_from(left).unwrap_or(usize::MAX).min(LOOK_MAX)
    }
}

struct Recorder<'a> {
    node: &'a Node,
    monitor: Monitor,
    eye: Eye,
    handed: Instant,
}

/// The part that takes one message after the other.
struct Eye {
    intake: Intake,
    instants: Instants,
    /// Messages for which the queue had no room.
    dropped: u64,
    /// Missing messages that the next one is to tell of.
    owed: u64,
    /// Messages that were taken, or would have been.
    seen: u64,
    /// Approximate space of these messages in rings, bytes.
    found_bytes: u64,
    sources: HashSet<Address>,
    /// Nodes that were heard or meant, and those of them whose name was not asked for yet.
    nodes: HashSet<NodeId>,
    new: Vec<NodeId>,
    /// Sender and target of the last one: mostly they are the same again.
    last: Option<(Address, Target)>,
    /// When that was sent; 0 where it is not known.
    sent_ns: u64,
    /// When this look began, nanoseconds since 1970.
    look_ns: u64,
    kernel_stamps: KernelStamps,
    /// Totals after the look before.
    totals: Totals,
}

/// Trust in the kernel's stamps, by the wall clock. Messages that waited while that was set have stamps of before.
#[derive(Clone, Copy, Debug, Default)]
struct KernelStamps {
    /// The clock was set, and no stamp was surely made since.
    may_be_old: bool,
    /// It was in this look.
    is_look_of_step: bool,
}

impl KernelStamps {
    fn begin_look(&mut self) {
        self.is_look_of_step = false;
    }

    fn handle_step(&mut self) {
        *self = Self { may_be_old: true, is_look_of_step: true };
    }

    /// Returns true if a stamp was made by the clock as it is set now. One that lies ahead was made before the clock was set back.
    fn is_of_now(&mut self, ns: u64, look_ns: u64) -> bool {
        let is_near = ns.abs_diff(look_ns) < KERNEL_DISTANCE_NS;
        self.may_be_old &= self.is_look_of_step || !is_near;
        !self.may_be_old && ns < look_ns + KERNEL_DISTANCE_NS
    }
}

/// Both clocks at one instant.
#[derive(Clone, Copy)]
struct Instants {
    clock: &'static Clock,
    ticks: Ticks,
    realtime_ns: u64,
    /// Amount by which the wall clock was set, which no message has told yet, nanoseconds.
    set_ns: i64,
}

impl Instants {
    /// Both clocks as near to one instant as a few tries allow.
    fn now() -> Self {
        let clock = Clock::get();
        let (ticks, realtime_ns) = clock.beside(realtime_ns);
        Self { clock, ticks, realtime_ns, set_ns: 0 }
    }

    /// The instant of a look, nanoseconds since 1970. The wall clock may be set: then it is compared again, as it is now and then.
    fn look(&mut self) -> u64 {
        let now = self.clock.now();
        let (age, expected) = (self.clock.nanos(now.since(self.ticks)), self.expected(now));
        if age > PAIR_AGE_MAX.as_nanos() as u64 || realtime_ns().abs_diff(expected) >= SET_NS_MIN {
            self.follow(Self::now());
            return self.realtime_ns;
        }
        expected
    }

    /// Time of the wall clock at this instant, if nobody sets it.
    fn expected(&self, instant: Ticks) -> u64 {
        self.realtime_ns + self.clock.nanos(instant.since(self.ticks))
    }

    /// Goes by a newer comparison from now on.
    fn follow(&mut self, newer: Self) {
        let off_ns = newer.realtime_ns.wrapping_sub(self.expected(newer.ticks)) as i64;
        let set_ns = if off_ns.unsigned_abs() >= SET_NS_MIN { off_ns } else { 0 };
        *self = Self { set_ns: self.set_ns.saturating_add(set_ns), ..newer };
    }

    /// An instant of our clock, nanoseconds since 1970, if it can be one of this recording.
    fn of(&self, instant: Ticks) -> Option<u64> {
        let distance = Ticks(instant.0.abs_diff(self.ticks.0));
        let ns = self.clock.nanos(distance);
        if ns > STAMP_DISTANCE_MAX.as_nanos() as u64 {
            return None;
        }
        Some(if instant > self.ticks { self.realtime_ns + ns } else { self.realtime_ns.saturating_sub(ns) })
    }
}

impl Eye {
    fn new(intake: Intake) -> Self {
        Self {
            intake,
            instants: Instants::now(),
            dropped: 0,
            owed: 0,
            seen: 0,
            found_bytes: 0,
            sources: HashSet::new(),
            nodes: HashSet::new(),
            new: Vec::new(),
            last: None,
            sent_ns: 0,
            look_ns: realtime_ns(),
            kernel_stamps: KernelStamps::default(),
            totals: Totals::default(),
        }
    }

    fn take(&mut self, observed: &Observed<'_>) {
        let size = observed.len();
        let has_room = self.intake.has_room(size);
        let room = if has_room { self.intake.batch.room(size) } else { &mut [] };
        if observed.copy_to(room).is_err() {
            // It is counted as lost, and the next one of its publication says so, with those before it.
            return;
        }
        self.seen += 1;
        self.found_bytes += size as u64 + RECORD_OVERHEAD;
        self.owed += observed.lost_before;
        if !has_room {
            self.dropped += 1;
            self.owed += 1;
            return;
        }
        let is_same = self.note(observed.source, observed.target);
        if observed.kernel_ns.is_some_and(|ns| ns.abs_diff(self.look_ns) >= KERNEL_DISTANCE_NS) {
            self.look_ns = self.instants.look();
        }
        let clock_set_ns = std::mem::take(&mut self.instants.set_ns);
        if clock_set_ns != 0 {
            self.kernel_stamps.handle_step();
        }
        let kernel_ns = observed.kernel_ns.filter(|&ns| self.kernel_stamps.is_of_now(ns, self.look_ns));
        // Where the clocks were compared again, instants of one source do not go back for it.
        let floor_ns = if is_same && clock_set_ns == 0 { self.sent_ns } else { 0 };
        let sent_ns = observed.sent.and_then(|sent| self.instants.of(sent)).map(|ns| ns.max(floor_ns));
        self.sent_ns = sent_ns.unwrap_or(0);
        let seen_ns = kernel_ns.unwrap_or(self.look_ns).max(sent_ns.unwrap_or(0));
        self.intake.batch.push(Entry {
            source: observed.source,
            target: observed.target,
            sequence: observed.sequence,
            missed: std::mem::take(&mut self.owed),
            sent_ns,
            seen_ns,
            stamps: observed.stamps,
            is_unopened: observed.is_unopened,
            is_fragment: observed.is_fragment,
            clock_set_ns,
            size,
        });
        // One look may find more than the queue holds. A name goes with its node's first message, and is asked after the look.
        if self.intake.is_full() && self.new.is_empty() {
            self.hand_over(self.look_ns);
        }
    }

    /// Hands over what was taken until then.
    fn hand_over(&mut self, until_ns: u64) {
        let batch = &mut self.intake.batch;
        (batch.totals, batch.until_ns) = (self.totals.clone(), until_ns);
        // A writer that no longer writes has ended, which is checked before the next look.
        let _ended = self.intake.hand_over();
    }

    /// Notes the sender, and the nodes whose names are wanted. Returns true if sender and target are the same as before.
    fn note(&mut self, source: Address, target: Target) -> bool {
        if self.last.replace((source, target)) == Some((source, target)) {
            return true;
        }
        if self.sources.len() < SOURCES_MAX {
            self.sources.insert(source);
        }
        for node in [Some(source.node), target.node].into_iter().flatten() {
            if self.nodes.len() < SOURCES_MAX && self.nodes.insert(node) {
                self.new.push(node);
            }
        }
        false
    }
}

impl Recorder<'_> {
    /// One look; messages that were found.
    fn look(&mut self, plan: &Plan, pause: Duration) -> usize {
        let Self { monitor, eye, .. } = self;
        eye.look_ns = eye.instants.look();
        eye.kernel_stamps.begin_look();
        let limit = plan.limit(eye.seen);
        let found = monitor.poll(limit, pause, |observed| eye.take(observed));
        self.ask_names();
        if self.eye.intake.is_full() || self.handed.elapsed() >= HAND_OVER_EVERY {
            self.hand_over();
        }
        found
    }

    /// Learns the names of nodes that are new.
    fn ask_names(&mut self) {
        let Self { monitor, eye, .. } = self;
        let names = eye.new.drain(..).filter_map(|node| Some((node, monitor.name_of(node)?)));
        eye.intake.batch.names.extend(names);
    }

    fn totals(&self) -> Totals {
        let Eye { seen, dropped, .. } = self.eye;
        Totals {
            recorded: seen - dropped,
            missed: missed(&self.node.ledger(), dropped),
            left_out: self.monitor.left_out() as u64,
        }
    }

    fn hand_over(&mut self) {
        self.handed = Instant::now();
        self.eye.totals = self.totals();
        self.eye.hand_over(realtime_ns());
    }

    fn end(
        mut self,
        plan: &Plan,
        thread: JoinHandle<Unsettled>,
        begun: Instant,
    ) -> Result<Account, RecordError> {
        for _ in 0..LAST_LOOKS {
            if thread.is_finished() || self.look(plan, Duration::ZERO) == 0 {
                break;
            }
        }
        let duration = begun.elapsed();
        self.hand_over();
        let (mut totals, until_ns, sources) = (self.totals(), realtime_ns(), self.eye.sources.len());
        // Nobody reads any more: the writer ends.
        drop(self);
        let written = thread.join().map_err(|_| RecordError::WriterPanicked)?;
        let written = written.settle(until_ns, &mut totals);
        let Written { bytes, file_size, error, .. } = written;
        Ok(Account { totals, bytes, file_size, duration, sources, error })
    }
}

/// Messages that were sent to the bus and not seen, by cause. Of a message in fragments each one counts that did not come or was
/// refused, and the message itself where it will not be whole.
fn missed(ledger: &Ledger, dropped: u64) -> Vec<Missed> {
    let lost = ledger.entries().into_iter().filter(|(name, _)| name.starts_with("lost_"));
    let own = [
        ("large_lost", ledger.large_lost),
        ("fragments_refused", ledger.fragments_refused),
        ("inbox_full", ledger.inbox_full),
        (NO_ROOM, dropped),
    ];
    let all = lost.chain(own).filter(|(_, messages)| *messages > 0);
    all.map(|(cause, messages)| Missed { cause, messages }).collect()
}

/// The file cannot be made: why, and whether that is the caller's to mend.
pub fn why_not_created(path: &Path, error: &io::Error) -> (bool, String) {
    let advice = match error.kind() {
        io::ErrorKind::AlreadyExists => "; choose another name, as nothing is written over",
        _ => advice_to_write(error),
    };
    (error.kind() == io::ErrorKind::AlreadyExists, format!("--out {}: {error}{advice}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a wall clock that is set is followed, and how far it was set is known; one that runs a little off is not called set.
    /// Method: as if it had shown something else before.
    #[test]
    fn a_clock_that_is_set_is_noticed() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        for set_ns in [HOUR_NS, -HOUR_NS] {
            let mut instants = Instants::now();
            instants.realtime_ns = instants.realtime_ns.wrapping_add_signed(-set_ns);
            let before = realtime_ns();
            let seen = instants.look();
            assert!((before..=realtime_ns()).contains(&seen), "the clock as it is now");
            assert!(instants.set_ns.abs_diff(set_ns) < SET_NS_MIN, "{} of {set_ns}", instants.set_ns);
        }
        let mut instants = Instants::now();
        let newer = Instants::now();
        instants.realtime_ns += SET_NS_MIN / 4;
        instants.follow(newer);
        assert_eq!(instants.set_ns, 0);
    }

    /// Goal: stamps of messages that waited while the clock was set are not those of now, however many they are.
    #[test]
    fn stamps_of_before_a_step_are_ignored() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let now_ns = 10 * HOUR_NS;
        for old_ns in [now_ns - HOUR_NS, now_ns + HOUR_NS, now_ns - 20_000_000] {
            let mut stamps = KernelStamps::default();
            assert!(stamps.is_of_now(now_ns - 5, now_ns) && stamps.is_of_now(now_ns - HOUR_NS, now_ns));
            stamps.handle_step();
            assert_eq!([0; 3].map(|_| stamps.is_of_now(old_ns, now_ns)), [false; 3], "{old_ns}");
            stamps.begin_look();
            assert!(stamps.is_of_now(now_ns - 5, now_ns), "made since");
        }
        let mut stamps = KernelStamps::default();
        stamps.handle_step();
        stamps.begin_look();
        assert_eq!([0; 2].map(|_| stamps.is_of_now(now_ns - HOUR_NS, now_ns)), [false; 2], "in a later look");
    }

    /// Goal: the end of a recording is not slept over, however seldom it looks.
    #[test]
    fn a_sleep_ends_with_the_recording() {
        let began = Instant::now();
        let looks = std::cell::Cell::new(0);
        sleep_until(began + Duration::from_secs(24 * 3_600), || looks.replace(looks.get() + 1) == 3);
        assert_eq!(looks.get(), 4);
        sleep_until(began, || panic!("it is over"));
        let until = Instant::now() + WAIT_MAX * 2;
        sleep_until(until, || false);
        assert!(Instant::now() >= until);
    }

    /// Goal: a stream is looked at as often as its bytes ask for, and a quiet bus no more often than it must.
    #[test]
    fn naps_follow_what_is_found() {
        let every = Duration::from_millis(1);
        let (wake, urgency, duration, count) = (Wake::Futex, Urgency::Other, None, None);
        let plan = Plan { wake, is_in_memory: true, every, urgency, duration, count };
        let after = |found: u64| (0..20).fold(NAP_MIN * 3, |nap, _| plan.next_nap(nap, found));
        assert_eq!(after(0), every);
        assert_eq!(after(FOUND_LITTLE), NAP_MIN * 3);
        assert_eq!(after(FOUND_MUCH), NAP_MIN);
        let hasty = Plan { every: NAP_MIN / 4, ..plan };
        assert_eq!(hasty.next_nap(NAP_MIN, 0), NAP_MIN / 4);
    }

    /// Goal: a writer that panics is told apart from a recording that did not begin, since the file has what was written before.
    #[test]
    fn a_writer_that_panics_is_no_recording_that_did_not_begin() {
        let name = format!("recorder-{:x}", punctual_machine::process::random());
        let node = Node::open(&punctual::Bus::shared(&name), "record").expect("a node");
        let (every, urgency, duration) = (NAP_MAX, Urgency::Other, Some(Duration::from_secs(20)));
        let plan = Plan { wake: Wake::Futex, is_in_memory: true, every, urgency, duration, count: None };
        let write = |outlet: Outlet| {
            let _first = outlet.next(Duration::from_secs(20));
            panic!("as a bug in it would");
        };
        let recorded = record_by(&node, &plan, write, || (), || false);
        assert!(matches!(recorded, Err(RecordError::WriterPanicked)), "{recorded:?}");
    }
}
