//! Recordings that are read: bytes from outside, of which never more is believed or kept than a recording can have.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use punctual_proto::limits::NAME_SIZE_MAX;
use punctual_proto::{Address, NodeId, Target, pcapng};

use super::mcap_file::McapReader;
use super::pcapng_file::PcapngReader;
use super::whole::Gatherer;
use super::{Entry, SOURCES_MAX};
use crate::file::open;

/// Why a file cannot be played.
#[derive(Debug)]
pub enum RecordingError {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is something else.
    NotARecording,
    /// From a place on it is not what a recorder writes.
    Damaged {
        /// Bytes before that place.
        at: u64,
        /// Description of the data there.
        what: String,
    },
    /// It has more pairs of source and target than can be played.
    TooManySources,
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "{error}"),
            Self::NotARecording => f.write_str(
                "not a recording: pcapng or MCAP that punctual record, or a capture, wrote is needed",
            ),
            Self::Damaged { at, what } => {
                write!(f, "not a recording of ours, or damaged at byte {at}: {what}")
            }
            Self::TooManySources => {
                write!(f, "more than {SOURCES_MAX} pairs of source and target, which are the most")
            }
        }
    }
}

impl std::error::Error for RecordingError {}

impl From<io::Error> for RecordingError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Information in a recording besides its messages, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Names of nodes.
    pub names: HashMap<NodeId, String>,
    /// The bus that was recorded.
    pub bus: Option<String>,
    /// Messages of which the file has a part only, and parts of which the capture kept less.
    pub incomplete: u64,
    /// Messages that are missing, by the sums that its recorder wrote last.
    pub missed: u64,
    /// Total amount by which its clock was set while it was recorded, nanoseconds.
    pub clock_set_ns: i64,
    /// It ends in the middle of something: its recorder was killed, or the file was cut.
    pub is_cut: bool,
}

impl Told {
    /// A node has this name.
    pub(super) fn name(&mut self, node: NodeId, name: String) {
        if self.names.len() < SOURCES_MAX && is_name(&name) {
            self.names.insert(node, name);
        }
    }
}

/// True if a node can have this name.
fn is_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=NAME_SIZE_MAX).contains(&name.len()) && name.bytes().all(is_of_name)
}

/// A recording that is read, message by message.
#[derive(Debug)]
pub struct Recording {
    reader: Reader,
    gatherer: Gatherer,
    /// The information read so far.
    pub told: Told,
}

#[derive(Debug)]
enum Reader {
    Pcapng(PcapngReader<BufReader<File>>),
    Mcap(Box<McapReader<BufReader<File>>>),
}

impl Recording {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or begins as no recording does.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let mut file = open(path)?;
        let mut start = Vec::new();
        (&mut file).take(mcap::MAGIC.len() as u64).read_to_end(&mut start)?;
        file.seek(SeekFrom::Start(0))?;
        let input = BufReader::with_capacity(1 << 20, file);
        let reader = match () {
            () if pcapng::is_start(&start) => Reader::Pcapng(PcapngReader::new(input)),
            () if start == mcap::MAGIC => Reader::Mcap(Box::new(McapReader::new(input))),
            () => return Err(RecordingError::NotARecording),
        };
        Ok(Self { reader, gatherer: Gatherer::new(), told: Told::default() })
    }

    /// The next message, whose bytes are put into `bytes`; none at the end. Its instants are those of a clock that nobody has set since the
    /// first one, as far as the recording says.
    ///
    /// # Errors
    /// See [`RecordingError`].
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Entry>, RecordingError> {
        let Self { reader, gatherer, told } = self;
        loop {
            let next = match reader {
                Reader::Pcapng(reader) => reader.next(told, bytes),
                Reader::Mcap(reader) => reader.next(told, bytes),
            };
            let Some(entry) = next? else {
                gatherer.end(told);
                return Ok(None);
            };
            if let Some(mut whole) = gatherer.take(entry, bytes, told) {
                let unset = |ns: u64| ns.saturating_add_signed(told.clock_set_ns.saturating_neg());
                whole.sent_ns = whole.sent_ns.map(unset);
                whole.seen_ns = unset(whole.seen_ns);
                return Ok(Some(whole));
            }
        }
    }
}

/// A sender and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The sender.
    pub source: Address,
    /// To whom.
    pub target: Target,
    /// Bytes of the largest message.
    pub size_max: usize,
}

/// Contents of a recording, after one reading of all of it.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Messages.
    pub messages: u64,
    /// Senders and their targets, in the order of their first messages.
    pub routes: Vec<Route>,
    /// Bytes of the largest.
    pub size_max: usize,
    /// Messages that the recording says are missing.
    pub missed: u64,
    /// From the first instant to the last, nanoseconds.
    pub span_ns: u64,
    /// The first instant, nanoseconds since 1970.
    pub first_ns: u64,
    /// The longest time from the latest instant to the next one, nanoseconds.
    pub gap_ns: u64,
    /// Largest distance of an instant before the latest one, nanoseconds.
    pub back_ns: u64,
    /// Its other information.
    pub told: Told,
}

impl Contents {
    /// Reads all of a recording.
    ///
    /// # Errors
    /// See [`RecordingError`].
    pub fn of(path: &Path) -> Result<Self, RecordingError> {
        let mut recording = Recording::open(path)?;
        let mut latest = None;
        let (mut contents, mut bytes, mut known) = (Self::default(), Vec::new(), HashMap::new());
        while let Some(entry) = recording.next(&mut bytes)? {
            let instant = entry.instant_ns();
            if contents.messages == 0 {
                contents.first_ns = instant;
            }
            let before = latest.unwrap_or(instant);
            contents.gap_ns = contents.gap_ns.max(instant.saturating_sub(before));
            contents.back_ns = contents.back_ns.max(before.saturating_sub(instant));
            latest = Some(instant.max(before));
            contents.messages += 1;
            contents.missed = contents.missed.saturating_add(entry.missed);
            contents.span_ns = contents.span_ns.max(instant.saturating_sub(contents.first_ns));
            contents.size_max = contents.size_max.max(entry.message_size());
            let Entry { source, target, .. } = entry;
            let place = *known.entry((source, target)).or_insert(contents.routes.len());
            if place == SOURCES_MAX {
                return Err(RecordingError::TooManySources);
            }
            if place == contents.routes.len() {
                contents.routes.push(Route { source, target, size_max: 0 });
            }
            let size_max = &mut contents.routes[place].size_max;
            *size_max = entry.message_size().max(*size_max);
        }
        contents.told = recording.told;
        // Behind the last message that is there nothing stands that could tell of those after it, but the sums.
        contents.missed = contents.missed.max(contents.told.missed);
        Ok(contents)
    }

    /// The nodes that sent, in the order of their first messages.
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = Vec::new();
        for Route { source, .. } in &self.routes {
            if !nodes.contains(&source.node) {
                nodes.push(source.node);
            }
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::written::Output;
    use crate::recording::{Format, Totals};
    use proptest::prelude::*;
    use punctual_proto::{Port, Stamps};

    const FORMATS: [Format; 2] = [Format::Pcapng, Format::Mcap];

    fn entry(number: u64) -> Entry {
        let source = Address { node: NodeId::named("brakes"), port: Port::from(7) };
        let targets =
            [Target::EVERYONE, Target::everyone_at(9), Target::node("radar"), Target::port("radar", 9)];
        Entry {
            source,
            target: targets[number as usize % targets.len()],
            sequence: number,
            missed: number % 3,
            sent_ns: Some(1_000_000 * number),
            seen_ns: 1_000_000 * number + 500,
            stamps: number.is_multiple_of(5).then(Stamps::default),
            is_unopened: number % 4 == 1,
            is_fragment: number % 7 == 1,
            clock_set_ns: 0,
            size: 30 + number as usize,
        }
    }

    /// The bytes of a recording of some messages.
    fn recording(format: Format, messages: u64) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("recording");
        let mut output = Output::create(&path, format, "shared:car").expect("a file");
        let names = HashMap::from([(NodeId::named("brakes"), "brakes".to_owned())]);
        for number in 0..messages {
            let entry = entry(number);
            output.write(&entry, &vec![number as u8; entry.size], &names).expect("room");
            if number % 2 == 1 {
                output.commit().expect("room");
            }
        }
        output.tell(7, &Totals { recorded: messages, ..Totals::default() }).expect("room");
        output.finish().expect("room");
        let mut sink = output.into_short().sink;
        sink.commit().expect("room");
        let size = sink.size();
        let bytes = std::fs::read(&path).expect("it is there");
        assert_eq!(bytes.len() as u64, size);
        bytes
    }

    /// Messages, each with its bytes.
    type Messages = Vec<(Entry, Vec<u8>)>;

    fn read(bytes: &[u8]) -> Result<(Messages, Told), RecordingError> {
        let (mut messages, mut found, mut told) = (Vec::new(), Vec::new(), Told::default());
        if pcapng::is_start(bytes) {
            let mut reader = PcapngReader::new(bytes);
            while let Some(entry) = reader.next(&mut told, &mut found)? {
                messages.push((entry, found.clone()));
            }
        } else {
            let mut reader = McapReader::new(bytes);
            while let Some(entry) = reader.next(&mut told, &mut found)? {
                messages.push((entry, found.clone()));
            }
        }
        Ok((messages, told))
    }

    #[test]
    fn a_recording_reads_back() {
        for format in FORMATS {
            let (messages, told) = read(&recording(format, 50)).expect("whole");
            assert_eq!(told.bus.as_deref(), Some("shared:car"), "{format}");
            assert_eq!(told.names.get(&NodeId::named("brakes")).map(String::as_str), Some("brakes"));
            assert!(!told.is_cut && told.incomplete == 0, "{format}: {told:?}");
            assert_eq!(messages.len(), 50, "{format}");
            for (number, (found, bytes)) in (0..).zip(&messages) {
                let written = entry(number);
                assert_eq!(bytes, &vec![number as u8; written.size], "{format}");
                assert_eq!(found.instant_ns(), written.instant_ns(), "{format}");
                let same = |entry: &Entry| {
                    (entry.source, entry.target, entry.sequence, entry.is_unopened, entry.is_fragment)
                };
                assert_eq!(same(found), same(&written), "{format}");
                if format == Format::Pcapng {
                    assert_eq!((found.missed, found.stamps), (written.missed, written.stamps));
                } else {
                    assert_eq!(found.seen_ns, written.seen_ns);
                }
            }
        }
    }

    /// Goal: a clock that was set while it was recorded, forwards or back, is no pause and no haste when it is read.
    #[test]
    fn a_clock_that_was_set_is_set_back() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        const SECOND_NS: u64 = 1_000_000_000;
        let sets = [0, 0, HOUR_NS, 0, -2 * HOUR_NS, 0];
        for format in FORMATS {
            let folder = tempfile::tempdir().expect("room");
            let path = folder.path().join("recording");
            let mut output = Output::create(&path, format, "shared:car").expect("a file");
            let names = HashMap::from([(NodeId::named("brakes"), "brakes".to_owned())]);
            let mut now = 86_400 * SECOND_NS;
            for (number, set_ns) in (0..).zip(sets) {
                now = (now + SECOND_NS).wrapping_add_signed(set_ns);
                let instants =
                    Entry { sent_ns: Some(now), seen_ns: now, clock_set_ns: set_ns, ..entry(number) };
                let written = Entry { is_unopened: false, is_fragment: false, ..instants };
                output.write(&written, &vec![7; written.size], &names).expect("room");
            }
            output.finish().expect("room");
            let contents = Contents::of(&path).expect("a recording");
            assert_eq!(contents.told.clock_set_ns, -HOUR_NS, "{format}");
            assert_eq!((contents.span_ns, contents.gap_ns), (5 * SECOND_NS, SECOND_NS), "{format}");
            assert_eq!((contents.messages, contents.back_ns), (6, 0), "{format}");
            assert_eq!(contents.told.names.len(), 1, "{format}");
        }
    }

    /// Where a recording may be cut without a part of anything being left, and how many messages stand before each such place.
    /// Method: by the sizes that its blocks or records say, without the readers.
    fn ends(bytes: &[u8]) -> Vec<(usize, usize)> {
        let (mut ends, mut messages) = (Vec::new(), 0);
        if pcapng::is_start(bytes) {
            let mut at = 0;
            while at < bytes.len() {
                let size = pcapng::block_size(bytes[at..].first_chunk().expect("a head")).expect("a block");
                let block = pcapng::read_block(&bytes[at..at + size]).expect("whole");
                messages += usize::from(matches!(block, pcapng::Block::Packet(_)));
                at += size;
                ends.push((at, messages));
            }
            return ends;
        }
        let record = |bytes: &[u8]| {
            let size = u64::from_le_bytes(*bytes[1..].first_chunk().expect("a head")) as usize;
            (bytes[0], 9..9 + size)
        };
        let mut at = mcap::MAGIC.len();
        ends.push((at, 0));
        while at < bytes.len() - mcap::MAGIC.len() {
            let (opcode, body) = record(&bytes[at..]);
            if opcode == mcap::records::op::CHUNK {
                let parsed = mcap::parse_record(opcode, &bytes[at..][body.clone()]).expect("a chunk");
                let mcap::records::Record::Chunk { data, .. } = parsed else { panic!("a chunk") };
                let mut rest = &data[..];
                while !rest.is_empty() {
                    let (opcode, body) = record(rest);
                    messages += usize::from(opcode == mcap::records::op::MESSAGE);
                    rest = &rest[body.end..];
                }
            }
            at += body.end;
            ends.push((at, messages));
            if opcode == mcap::records::op::DATA_END {
                // The rest of the file repeats the data before it.
                ends.extend((at + 1..=bytes.len()).map(|end| (end, messages)));
                break;
            }
        }
        ends
    }

    /// Goal: wherever a recording is cut, what stands before is read as it was written, nothing else is, and what is cut is called so.
    #[test]
    fn a_recording_may_end_anywhere() {
        const MESSAGES: u64 = 5;
        for format in FORMATS {
            let whole = recording(format, MESSAGES);
            let (written, _) = read(&whole).expect("whole");
            assert_eq!(written.len() as u64, MESSAGES, "{format}");
            let ends = ends(&whole);
            assert_eq!(ends.last(), Some(&(whole.len(), written.len())), "{format}");
            let steps = ends.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
            assert!(steps >= 3, "{format}: it is written in several steps: {ends:?}");
            for size in mcap::MAGIC.len()..=whole.len() {
                let (messages, told) =
                    read(&whole[..size]).unwrap_or_else(|error| panic!("{format} {size}: {error}"));
                let before = ends.iter().rev().find(|(end, _)| *end <= size);
                let &(end, expected) = before.unwrap_or(&(0, 0));
                assert!(messages == written[..expected], "{format}: {messages:?} of the first {size} bytes");
                assert_eq!(told.is_cut, end != size, "{format}: at {size}, behind {end}");
            }
        }
    }

    proptest! {
        /// Goal: any bytes are refused, or read without harm.
        /// Method: a recording of which some bytes are others, or random bytes behind the right beginning.
        #[test]
        fn any_bytes_are_harmless(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            random in proptest::collection::vec(any::<u8>(), 0..200),
            is_mcap: bool,
        ) {
            let format = FORMATS[usize::from(is_mcap)];
            let mut bytes = recording(format, 3);
            let start = bytes[..28].to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            for bytes in [bytes, [start, random].concat()] {
                let Ok((messages, mut told)) = read(&bytes) else { continue };
                let mut gatherer = Gatherer::new();
                for (entry, mut bytes) in messages {
                    gatherer.take(entry, &mut bytes, &mut told);
                }
                gatherer.end(&mut told);
            }
        }
    }
}
