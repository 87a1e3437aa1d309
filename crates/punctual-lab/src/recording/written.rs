//! The thread that writes a recording: the thread that reads does not feel the delays of the disk.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_machine::scheduling::set_nice;
use punctual_proto::{Address, NodeId, Target};

use super::mcap_file::McapWriter;
use super::pcapng_file::PcapngWriter;
use super::queue::{Batch, Outlet};
use super::sink::Sink;
use super::{Entry, Format, SOURCES_MAX, Totals, mcap_file, pcapng_file};

/// Longest time until messages go to the disk: so much is missing of a recorder that is killed.
const COMMIT_EVERY: Duration = Duration::from_millis(500);

/// And whenever there is as much, bytes.
const COMMIT_SIZE: usize = 1 << 20;

/// The writer makes way for any thread that wants the processor: its queue can wait.
const NICE: i32 = 10;

/// The cause of what was read and is not in the file.
const NOT_WRITTEN: &str = "not_written";

/// A recording that is written, in either format.
#[derive(Debug)]
pub enum Output {
    /// For Wireshark.
    Pcapng(PcapngWriter),
    /// For tools of robotics.
    Mcap(Box<McapWriter>),
}

impl Output {
    /// A new file.
    ///
    /// # Errors
    /// It is there already, or cannot be made or written.
    pub fn create(path: &Path, format: Format, bus: &str) -> io::Result<Self> {
        let sink = Sink::create(path)?;
        let begun = match format {
            Format::Pcapng => PcapngWriter::new(sink, bus).map(Self::Pcapng),
            Format::Mcap => McapWriter::new(sink, bus).map(|writer| Self::Mcap(Box::new(writer))),
        };
        // Without room for its head it would be a file of no kind, and forbid the next recording its name.
        begun.inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    pub(super) fn write(
        &mut self,
        entry: &Entry,
        bytes: &[u8],
        names: &HashMap<NodeId, String>,
    ) -> io::Result<()> {
        match self {
            Self::Pcapng(file) => file.write(entry, bytes, names),
            Self::Mcap(file) => return file.write(entry, bytes, names),
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, ns: u64, totals: &Totals) -> io::Result<()> {
        match self {
            Self::Pcapng(file) => file.tell(ns, totals),
            Self::Mcap(file) => return file.tell(ns, totals),
        }
        Ok(())
    }

    /// Bytes of the file.
    fn size(&self) -> u64 {
        match self {
            Self::Pcapng(file) => file.size(),
            Self::Mcap(file) => file.size(),
        }
    }

    pub(super) fn commit(&mut self) -> io::Result<()> {
        match self {
            Self::Pcapng(file) => file.sink().commit(),
            Self::Mcap(file) => file.commit(),
        }
    }

    /// Writes what a complete file ends with.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Pcapng(file) => file.sink().commit(),
            Self::Mcap(file) => file.finish(),
        }
    }

    /// The file, and how one ends that has no room for more.
    pub(super) fn into_short(self) -> ShortFile {
        match self {
            Self::Pcapng(file) => ShortFile { sink: file.into_sink(), end: pcapng_file::short_end },
            Self::Mcap(file) => ShortFile { sink: file.into_sink(), end: mcap_file::short_end },
        }
    }
}

/// A file whose writer is gone.
#[derive(Debug)]
pub(super) struct ShortFile {
    pub(super) sink: Sink,
    /// Says what has become of messages up to an instant, and ends the file.
    end: fn(&mut Vec<u8>, u64, &Totals),
}

/// Most bytes that a file without room gives up so that it can say what is missing; or its last commit, if that is more.
const GIVEN_UP_MAX: u64 = 4 << 10;

/// Extent of the file after a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    size: u64,
    messages: u64,
    /// Of their contents.
    bytes: u64,
}

/// Result of writing.
#[derive(Debug, Default)]
pub struct Written {
    /// Bytes of the contents of messages in the file.
    pub bytes: u64,
    /// Bytes of the file.
    pub file_size: u64,
    /// Why it ended early.
    pub error: Option<io::Error>,
}

/// A recording to which nothing comes any more.
#[derive(Debug)]
pub struct Unsettled {
    pen: Pen,
    outcome: io::Result<()>,
}

/// The writer, and its progress.
#[derive(Debug)]
struct Pen {
    output: Output,
    names: HashMap<NodeId, String>,
    /// Sources with their targets in the file, and the last one: mostly it is the same again.
    pairs: HashSet<(Address, Target)>,
    last: Option<(Address, Target)>,
    /// Contents that are in the file, and contents that are about to be.
    written: Mark,
    pending: (u64, u64),
    /// Where it could end instead, the last one first given up.
    before: VecDeque<Mark>,
    told: Totals,
    committed: Instant,
}

/// Writes all that comes, until nobody reads any more.
pub fn write_all(outlet: &Outlet, output: Output) -> Unsettled {
    // A thread that may not raise its nice value is as urgent as others.
    let _as_before = set_nice(NICE);
    let mut pen = Pen {
        written: Mark { size: output.size(), ..Mark::default() },
        output,
        names: HashMap::new(),
        pairs: HashSet::new(),
        last: None,
        pending: (0, 0),
        before: VecDeque::new(),
        told: Totals::default(),
        committed: Instant::now(),
    };
    let outcome = loop {
        let batch = match outlet.next(COMMIT_EVERY) {
            Ok(batch) => batch,
            Err(_over) => break Ok(()),
        };
        let step = match &batch {
            None => pen.commit(),
            Some(batch) => pen.write(batch),
        };
        if let Err(error) = step {
            break Err(error);
        }
        if let Some(batch) = batch {
            outlet.give_back(batch);
        }
    };
    Unsettled { pen, outcome }
}

impl Pen {
    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        self.names.extend(batch.names.iter().cloned());
        for (entry, bytes) in batch.iter() {
            self.note_pair((entry.source, entry.target))?;
            self.output.write(entry, bytes, &self.names)?;
            self.pending.0 += 1;
            self.pending.1 += bytes.len() as u64;
            if self.pending.1 >= COMMIT_SIZE as u64 {
                self.commit()?;
            }
        }
        if self.committed.elapsed() >= COMMIT_EVERY {
            if (batch.totals.missed(), batch.totals.left_out) != (self.told.missed(), self.told.left_out) {
                self.tell(batch.until_ns, &batch.totals)?;
            }
            self.commit()?;
        }
        Ok(())
    }

    /// A file with more pairs would be refused when it is to be played: it ends whole before the first one too many.
    fn note_pair(&mut self, pair: (Address, Target)) -> io::Result<()> {
        if self.last.replace(pair) == Some(pair) || self.pairs.contains(&pair) {
            return Ok(());
        }
        if self.pairs.len() == SOURCES_MAX {
            self.commit()?;
            return Err(io::Error::other(format!(
                "more than {SOURCES_MAX} pairs of source and target came, which are the most that can be played: record for less time"
            )));
        }
        self.pairs.insert(pair);
        Ok(())
    }

    fn tell(&mut self, ns: u64, totals: &Totals) -> io::Result<()> {
        self.told = totals.clone();
        self.output.tell(ns, totals)
    }

    fn commit(&mut self) -> io::Result<()> {
        self.output.commit()?;
        let Mark { messages, bytes, .. } = self.written;
        let size = self.output.size();
        if size > self.written.size {
            self.before.push_back(self.written);
            while self.before.get(1).is_some_and(|second| size - second.size >= GIVEN_UP_MAX) {
                self.before.pop_front();
            }
        }
        self.written = Mark { size, messages: messages + self.pending.0, bytes: bytes + self.pending.1 };
        self.pending = (0, 0);
        self.committed = Instant::now();
        Ok(())
    }
}

impl Unsettled {
    /// Ends the file, now that everything seen until then is known: messages that are not in the file count as missing, and the file
    /// says so.
    pub fn settle(self, ns: u64, totals: &mut Totals) -> Written {
        let Self { mut pen, outcome } = self;
        let outcome = outcome.and_then(|()| pen.tell(ns, totals)).and_then(|()| pen.commit());
        let outcome = outcome.and_then(|()| pen.output.finish());
        let (mut written, before) = (pen.written, pen.before);
        let mut file = pen.output.into_short();
        let ended = outcome.and_then(|()| file.sink.commit());
        let synced = ended.and_then(|()| {
            // Some file systems say only now that there is no room. The end of a whole file makes place for that of a short one.
            file.sink.sync().inspect_err(|_| drop(file.sink.cut(written.size)))
        });
        let error = synced.err();
        if error.is_some() {
            written = file.end_short(ns, totals, (written, before));
        }
        Written { bytes: written.bytes, file_size: file.sink.size(), error }
    }
}

impl ShortFile {
    /// Ends a file to which nothing could be written any more: its content stays readable, and the file says what is missing. If there
    /// is no room for that, its last messages make some.
    fn end_short(&mut self, ns: u64, totals: &mut Totals, marks: (Mark, VecDeque<Mark>)) -> Mark {
        let (mut written, mut before) = marks;
        let seen = totals.clone();
        loop {
            *totals = seen.clone();
            totals.leave_out(NOT_WRITTEN, seen.recorded.saturating_sub(written.messages));
            self.sink.buffer().clear();
            (self.end)(self.sink.buffer(), ns, totals);
            if self.sink.commit().and_then(|()| self.sink.sync()).is_ok() {
                return written;
            }
            match before.pop_back() {
                // A device or a pipe cannot be cut.
                Some(mark) if self.sink.cut(mark.size).is_ok() => written = mark,
                _ => return written,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::Port;

    use super::super::Missed;
    use super::super::queue::queue;
    use super::super::reading::Contents;
    use super::*;

    /// Goal: a recording with more pairs than can be played ends before the first one too many. It says why, counts what is missing, and
    /// can be played.
    #[test]
    fn a_recording_has_no_more_pairs_than_can_be_played() {
        for format in [Format::Pcapng, Format::Mcap] {
            let folder = tempfile::tempdir().expect("room");
            let path = folder.path().join("recording");
            let output = Output::create(&path, format, "shared:car").expect("a file");
            let (mut intake, outlet) = queue();
            // The first one comes again: it is no further pair.
            for number in [0].into_iter().chain(0..=SOURCES_MAX as u16) {
                let source = Address { node: NodeId::named("brakes"), port: Port::from(number) };
                intake.batch.room(1).fill(7);
                intake.batch.push(Entry::new(source, Target::EVERYONE, 1));
            }
            let seen = SOURCES_MAX as u64 + 2;
            assert!(intake.hand_over());
            drop(intake);
            let mut totals = Totals { recorded: seen, ..Totals::default() };
            let written = write_all(&outlet, output).settle(7, &mut totals);
            let told = written.error.map(|error| error.to_string()).unwrap_or_default();
            assert!(told.contains("more than 4096 pairs"), "{format}: {told:?}");
            assert_eq!(totals.missed, [Missed { cause: NOT_WRITTEN, messages: 1 }], "{format}");
            let contents = Contents::of(&path).expect("it can be played");
            assert_eq!((contents.messages, contents.routes.len()), (seen - 1, SOURCES_MAX), "{format}");
            assert!(!contents.told.is_cut, "{format}");
        }
    }
}
