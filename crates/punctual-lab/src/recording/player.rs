//! A recording that is said again: its messages in their order, each at its instant as far as this machine can.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use punctual::memory::WhenFull;
use punctual::publication::OfferError;
use punctual::{Bus, Communicator, Node, NodeOptions, Publication, PublicationOptions, SendError};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use punctual_proto::limits::{MESSAGE_SIZE_MAX, PAYLOAD_SIZE_MAX};
use punctual_proto::{Address, NodeId, Target};

use super::Entry as RecordedEntry;
use super::queue::Batch;
use super::reading::{Contents, Recording, RecordingError, Route};
use super::why_not_open;

/// Batches that were read ahead: some MiB, unless messages are larger.
const BATCHES_MAX: usize = 4;

/// A batch that is as large is handed over, messages and bytes.
const BATCH_MESSAGES: usize = 1024;
const BATCH_SIZE: usize = 256 << 10;

/// From opening all to the first message: listeners find the rings meanwhile.
const LEAD: Duration = Duration::from_millis(20);

/// Before an instant it is waited for without sleeping: longer than a sleep ends late.
const SPIN: Duration = Duration::from_micros(150);

/// Longest sleep before it is looked whether to end.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Interval between checks for arrivals and other due work, and the time that must be left for such a check.
const TEND_EVERY: Duration = Duration::from_millis(20);
const TEND_TIME: Duration = Duration::from_millis(2);

/// Messages of one look that are passed over.
const PASSED_OVER_MAX: usize = 256;

/// Size of the rings, bytes, unless messages are larger.
const RING_SIZE_MIN: usize = 1 << 20;

/// Longest wait for room for a message, where readers hold the writer back.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// Speed at which time passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as it was.
    Times(f64),
    /// Without pauses.
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        let times: f64 = text.parse().map_err(|_| "max, or a number from 0.001 to 1000".to_owned())?;
        if (0.001..=1000.0).contains(&times) {
            Ok(Self::Times(times))
        } else {
            Err("max, or a number from 0.001 to 1000".to_owned())
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(f, "{times}"),
            Self::Max => f.write_str("max"),
        }
    }
}

impl Speed {
    /// Nanoseconds since the first message, at this speed.
    pub fn pace(self, ns: u64) -> Option<u64> {
        match self {
            Self::Max => None,
            Self::Times(times) => Some((ns as f64 / times) as u64),
        }
    }
}

/// Nodes that send the messages again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// A node for each that was recorded, with its id, and its name where that is known.
    Each,
    /// One node for all, where a bus has one for each process.
    One,
}

/// Settings of a playback.
#[derive(Debug)]
pub struct Play<'a> {
    /// The recording.
    pub path: &'a Path,
    /// Its contents.
    pub contents: &'a Contents,
    /// Where it is said.
    pub bus: &'a Bus,
    /// By whom.
    pub nodes: Nodes,
    /// The speed.
    pub speed: Speed,
    /// The bus is in memory.
    pub is_in_memory: bool,
    /// In memory, readers that are slow hold it back.
    pub holds_back: bool,
}

/// Result of a playback.
#[derive(Debug)]
pub struct Played {
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that were not, by reason.
    pub unsent: Vec<(&'static str, u64)>,
    /// Messages that were not because it was ended before.
    pub interrupted: u64,
    /// Lateness of the messages that were sent against the schedule, nanoseconds; none at full speed.
    pub lateness: Option<Histogram<u64>>,
    /// From the first message that was sent to the last.
    pub duration: Duration,
    /// Nodes that said it.
    pub nodes: usize,
}

/// Sends the messages of a recording.
///
/// # Errors
/// The bus cannot be joined, or the file cannot be read to its end. The text says what to do.
pub fn play(play: &Play<'_>, is_over: impl Fn() -> bool) -> Result<Played, String> {
    let mut stage = Stage::open(play)?;
    let (to_player, from_reader) = sync_channel(BATCHES_MAX);
    let recording = Recording::open(play.path).map_err(|error| error.to_string())?;
    let reader = std::thread::Builder::new().name("reader".to_owned());
    let reader = reader.spawn(move || read_ahead(recording, &to_player));
    let reader = reader.map_err(|error| format!("no thread for the reader: {error}"))?;
    sleep_precisely();
    let played = stage.play(play, &from_reader, is_over);
    // It waits for room that nobody makes any more.
    drop(from_reader);
    reader.join().map_err(|_| "the reader panicked".to_owned())?.map_err(|error| error.to_string())?;
    Ok(played)
}

/// Reads a recording into batches, until it ends or nobody wants any more.
fn read_ahead(mut recording: Recording, to_player: &SyncSender<Batch>) -> Result<(), RecordingError> {
    let mut bytes = Vec::new();
    loop {
        let (mut batch, mut messages, mut size) = (Batch::default(), 0, 0);
        while messages < BATCH_MESSAGES && size < BATCH_SIZE {
            let Some(entry) = recording.next(&mut bytes)? else { break };
            batch.room(bytes.len()).copy_from_slice(&bytes);
            batch.push(entry);
            messages += 1;
            size += bytes.len();
        }
        if messages == 0 || to_player.send(batch).is_err() {
            return Ok(());
        }
    }
}

/// Those who say it.
struct Stage {
    nodes: HashMap<NodeId, Node>,
    /// The node that says all of it, if there is only one.
    alone: Option<NodeId>,
    /// In memory: a communicator would be a reader, too, and hold others back that it never reads.
    publications: HashMap<(Address, Target), Publication>,
    /// On the kernel's media.
    ends: HashMap<Address, Communicator>,
    tended: Instant,
}

impl Stage {
    fn new() -> Self {
        Self {
            nodes: HashMap::new(),
            alone: None,
            publications: HashMap::new(),
            ends: HashMap::new(),
            tended: Instant::now(),
        }
    }

    /// Joins the bus, and opens all that is sent through.
    fn open(play: &Play<'_>) -> Result<Self, String> {
        let mut stage = Self::new();
        let told = &play.contents.told;
        let open = |options: NodeOptions| {
            let options = options.message_size_max(play.contents.size_max.min(MESSAGE_SIZE_MAX));
            options.open(play.bus)
        };
        let advice = "end it, or replay onto another bus (--bus)";
        match play.nodes {
            Nodes::One => {
                let node = open(NodeOptions::new("replay"));
                let node = node.map_err(|error| why_not_open(&error, "replay", advice))?;
                stage.alone = Some(node.id());
                stage.nodes.insert(node.id(), node);
            }
            Nodes::Each => {
                for id in play.contents.nodes() {
                    let name = told.names.get(&id).cloned().unwrap_or_else(|| format!("replay-{id}"));
                    let node = open(NodeOptions::new(&name).id(id));
                    stage.nodes.insert(id, node.map_err(|error| why_not_open(&error, &name, advice))?);
                }
            }
        }
        for route in &play.contents.routes {
            stage.open_route(play, route)?;
        }
        Ok(stage)
    }

    fn open_route(&mut self, play: &Play<'_>, route: &Route) -> Result<(), String> {
        let (here, target) = (self.address(route.source), route.target);
        let node = self.nodes.get(&here.node).ok_or("a node that was not opened")?;
        if !play.is_in_memory {
            if let Entry::Vacant(free) = self.ends.entry(here) {
                let end = node.bind(here.port.get());
                free.insert(end.map_err(|error| format!("port {} of {}: {error}", here.port, here.node))?);
            }
            return Ok(());
        }
        let options = PublicationOptions {
            source: here.port.get(),
            // A message is at most a quarter of it, and half of that is for what stands around it.
            ring_size: (8 * route.size_max.min(PAYLOAD_SIZE_MAX)).next_power_of_two().max(RING_SIZE_MIN),
            when_full: play.holds_back.then_some(WhenFull::HoldBack),
            ..PublicationOptions::default()
        };
        if let Entry::Vacant(free) = self.publications.entry((here, target)) {
            let publication = node.publication(target, &options);
            free.insert(publication.map_err(|error| format!("from {here} to {target}: {error}"))?);
        }
        Ok(())
    }

    /// Where what this source sent comes from now.
    fn address(&self, source: Address) -> Address {
        Address { node: self.alone.unwrap_or(source.node), ..source }
    }

    fn play(&mut self, play: &Play<'_>, batches: &Receiver<Batch>, is_over: impl Fn() -> bool) -> Played {
        let schedule = Schedule::new(play);
        let mut lateness = histogram();
        let (mut sent, mut unsent) = (0, Unsent::default());
        let (mut latest, mut is_cut_short) = (0, false);
        let (mut first_ns, mut last_ns) = (None, 0);
        'all: while let Ok(batch) = batches.recv() {
            for (entry, bytes) in batch.iter() {
                // A message that was seen later is sent later, regardless of what the senders' clocks say.
                latest = entry.instant_ns().max(latest);
                let due_ns = schedule.due_ns(latest);
                if is_over() || !due_ns.is_none_or(|due_ns| wait(due_ns, &is_over, || self.tend())) {
                    is_cut_short = true;
                    break 'all;
                }
                if let Err(error) = self.send(entry, &bytes[..entry.message_size()]) {
                    unsent.count(error);
                    continue;
                }
                sent += 1;
                last_ns = monotonic_ns();
                first_ns.get_or_insert(last_ns);
                if let Some(due_ns) = due_ns {
                    lateness.saturating_record(last_ns.saturating_sub(due_ns));
                }
            }
            self.tend();
        }
        let rest = play.contents.messages.saturating_sub(sent + unsent.sum());
        Played {
            sent,
            unsent: unsent.named(),
            interrupted: if is_cut_short { rest } else { 0 },
            lateness: (play.speed != Speed::Max).then_some(lateness),
            duration: Duration::from_nanos(last_ns - first_ns.unwrap_or(last_ns)),
            nodes: self.nodes.len(),
        }
    }

    fn send(&mut self, entry: &RecordedEntry, message: &[u8]) -> Result<(), SendError> {
        let here = self.address(entry.source);
        if let Some(end) = self.ends.get_mut(&here) {
            // Of a large message the first fragments would be said, and there may be no room for the others.
            if message.len() > end.payload_size_max() {
                return end.send_timeout(entry.target, message, ROOM_TIMEOUT);
            }
            return match end.try_send(entry.target, message) {
                Err(SendError::Full) => end.send_timeout(entry.target, message, ROOM_TIMEOUT),
                outcome => outcome,
            };
        }
        let Some(publication) = self.publications.get_mut(&(here, entry.target)) else {
            return Err(SendError::Unreachable);
        };
        let begin = Instant::now();
        loop {
            match publication.offer(message) {
                Ok(()) => return Ok(()),
                Err(OfferError::Full) if begin.elapsed() < ROOM_TIMEOUT => std::thread::yield_now(),
                Err(OfferError::Full) => return Err(SendError::Full),
                Err(OfferError::NotConnected) => return Err(SendError::Unreachable),
                Err(OfferError::TooLong { size, size_max }) => {
                    return Err(SendError::TooLong { size, size_max });
                }
                Err(OfferError::NoKey) => return Err(SendError::NoKey),
            }
        }
    }

    /// Does what has to be done from time to time, as nobody waits for messages here: those that come are passed over.
    fn tend(&mut self) {
        if self.tended.elapsed() < TEND_EVERY {
            return;
        }
        self.tended = Instant::now();
        for end in self.ends.values_mut() {
            for _ in 0..PASSED_OVER_MAX {
                if end.try_receive().is_err() {
                    break;
                }
            }
        }
        self.nodes.values().for_each(Node::housekeep);
    }
}

/// Three significant figures, up to an hour.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(3_600_000_000_000, 3).expect("within the limits of hdrhistogram")
}

/// When each message is due, by the clock that ends sleeps. The counter's rate is known to a thousandth only, and never again measured:
/// its hour may be seconds longer.
struct Schedule {
    /// The first one, nanoseconds of `CLOCK_MONOTONIC`.
    start_ns: u64,
    /// When that was sent, nanoseconds since 1970.
    first_ns: u64,
    speed: Speed,
}

impl Schedule {
    fn new(play: &Play<'_>) -> Self {
        let start_ns = monotonic_ns() + LEAD.as_nanos() as u64;
        Self { start_ns, first_ns: play.contents.first_ns, speed: play.speed }
    }

    /// When what was said at this instant is due; at full speed at no instant.
    fn due_ns(&self, instant_ns: u64) -> Option<u64> {
        let since_ns = self.speed.pace(instant_ns.saturating_sub(self.first_ns))?;
        Some(self.start_ns.saturating_add(since_ns))
    }
}

/// Waits for an instant; `false` if it is over before. Meanwhile there is time for `tend`.
fn wait(due_ns: u64, is_over: &impl Fn() -> bool, mut tend: impl FnMut()) -> bool {
    while asleep_until(due_ns, monotonic_ns()).is_some() {
        if is_over() {
            return false;
        }
        if due_ns.saturating_sub(monotonic_ns()) > TEND_TIME.as_nanos() as u64 {
            tend();
        }
        // The call of `tend` took time.
        asleep_until(due_ns, monotonic_ns()).into_iter().for_each(sleep_until);
    }
    while monotonic_ns() < due_ns {
        std::hint::spin_loop();
    }
    true
}

/// Until when to sleep before an instant, if there is time for it.
fn asleep_until(due_ns: u64, now_ns: u64) -> Option<u64> {
    let until_ns = due_ns.saturating_sub(SPIN.as_nanos() as u64);
    (now_ns < until_ns).then(|| until_ns.min(now_ns + SLEEP_MAX.as_nanos() as u64))
}

/// Name of the reason that nobody reads at a target.
pub const UNREACHABLE: &str = "unreachable";

/// Why messages were not sent.
#[derive(Debug, Default)]
struct Unsent {
    unreachable: u64,
    full: u64,
    too_long: u64,
    no_key: u64,
    no_memory: u64,
    too_many_nodes: u64,
}

impl Unsent {
    fn count(&mut self, error: SendError) {
        let count = match error {
            SendError::Unreachable => &mut self.unreachable,
            SendError::Full => &mut self.full,
            SendError::TooLong { .. } => &mut self.too_long,
            SendError::NoKey => &mut self.no_key,
            SendError::NoMemory => &mut self.no_memory,
            SendError::TooManyNodes => &mut self.too_many_nodes,
        };
        *count += 1;
    }

    fn sum(&self) -> u64 {
        self.named().iter().map(|(_, messages)| messages).sum()
    }

    fn named(&self) -> Vec<(&'static str, u64)> {
        let all = [
            (UNREACHABLE, self.unreachable),
            ("full", self.full),
            ("too_long", self.too_long),
            ("no_key", self.no_key),
            ("no_memory", self.no_memory),
            ("too_many_nodes", self.too_many_nodes),
        ];
        all.into_iter().filter(|(_, messages)| *messages > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::Port;

    use super::*;

    /// Goal: each reason for which a message was not sent has its own name.
    #[test]
    fn reasons_have_names() {
        let mut unsent = Unsent::default();
        [SendError::NoMemory, SendError::TooManyNodes, SendError::TooManyNodes]
            .into_iter()
            .for_each(|error| unsent.count(error));
        assert_eq!(unsent.named(), [("no_memory", 1), ("too_many_nodes", 2)]);
    }

    #[test]
    fn speeds_are_numbers_or_max() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("0.5".parse(), Ok(Speed::Times(0.5)));
        for wrong in ["", "fast", "0", "-1", "1e9", "nan", "inf"] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
        assert_eq!(Speed::Times(2.0).pace(1000), Some(500));
        assert_eq!(Speed::Max.pace(1000), None);
    }

    /// Goal: after an hour, too, a sleep ends before the instant, and not so long before that it is spun for long. Method: the clock of
    /// the sleeps alone says what time it is, regardless of what the counter believes.
    #[test]
    fn a_sleep_ends_before_what_is_due() {
        let schedule = Schedule { start_ns: 1_000, first_ns: 77, speed: Speed::Times(1.0) };
        let (spin_ns, sleep_ns) = (SPIN.as_nanos() as u64, SLEEP_MAX.as_nanos() as u64);
        for since_ns in [1_000_000, 600_000_000_000, 3_600_000_000_000] {
            let due_ns = schedule.due_ns(77 + since_ns).expect("at an instant");
            assert_eq!(due_ns, 1_000 + since_ns);
            assert_eq!(asleep_until(due_ns, due_ns - spin_ns - 5), Some(due_ns - spin_ns));
            assert_eq!(asleep_until(due_ns, due_ns - spin_ns), None);
            assert_eq!(asleep_until(due_ns, due_ns + 30_000_000), None);
            let early_ns = due_ns.saturating_sub(2 * sleep_ns);
            assert!(asleep_until(due_ns, early_ns).is_some_and(|until| until <= early_ns + sleep_ns));
        }
    }

    /// Goal: messages that were not sent were not late, and took no time.
    #[test]
    fn an_unsent_message_was_not_late() {
        let source = Address { node: NodeId::named("nobody"), port: Port::from(1) };
        let entry = RecordedEntry::new(source, Target::EVERYONE, 0);
        let (to_player, batches) = sync_channel(1);
        let mut batch = Batch::default();
        (0..3).for_each(|sequence| batch.push(RecordedEntry { sequence, ..entry }));
        to_player.send(batch).expect("room");
        drop(to_player);
        let contents = Contents { messages: 3, ..Contents::default() };
        let play = Play {
            path: Path::new("recording"),
            contents: &contents,
            bus: &Bus::shared("player-test"),
            nodes: Nodes::One,
            speed: Speed::Times(1.0),
            is_in_memory: true,
            holds_back: false,
        };
        // Nobody who would send is open.
        let played = Stage::new().play(&play, &batches, || false);
        assert_eq!((played.sent, &played.unsent[..]), (0, &[("unreachable", 3)][..]));
        assert!(played.lateness.is_some_and(|lateness| lateness.is_empty()));
        assert_eq!(played.duration, Duration::ZERO);
    }
}
