//! The thread that writes a recording: what the disk does to it, the thread that reads does not feel.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_machine::scheduling::set_nice;
use punctual_proto::NodeId;

use super::mcap_file::McapWriter;
use super::pcapng_file::PcapngWriter;
use super::queue::{Batch, Outlet};
use super::{Entry, Format, Missed, Totals};

/// What was read goes to the disk at least so often: so much is missing of a recorder that is killed.
const COMMIT_EVERY: Duration = Duration::from_millis(500);

/// And whenever there is as much, bytes.
const COMMIT_SIZE: usize = 1 << 20;

/// The writer makes way for whoever wants the processor: its queue can wait.
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
        Ok(match format {
            Format::Pcapng => Self::Pcapng(PcapngWriter::create(path, bus)?),
            Format::Mcap => Self::Mcap(Box::new(McapWriter::create(path, bus)?)),
        })
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

    fn commit(&mut self) -> io::Result<()> {
        match self {
            Self::Pcapng(file) => file.sink().commit(),
            Self::Mcap(file) => file.commit(),
        }
    }

    /// Ends a file; its size.
    pub(super) fn end(self) -> (u64, io::Result<()>) {
        match self {
            Self::Pcapng(mut file) => {
                let ended = file.sink().commit();
                (file.sink().size(), ended)
            }
            Self::Mcap(mut file) => {
                let ended = file.finish();
                let mut sink = file.into_sink();
                let ended = ended.and_then(|()| sink.commit());
                if ended.is_err() {
                    McapWriter::end_short(&mut sink);
                }
                (sink.size(), ended)
            }
        }
    }

    /// Ends a file to which nothing could be written any more: what is in it stays readable. Its size.
    fn rescue(self, ns: u64, totals: &Totals) -> u64 {
        match self {
            Self::Pcapng(mut file) => {
                // There may be room for that.
                file.tell(ns, totals);
                let _no_room_either = file.sink().commit();
                file.sink().size()
            }
            Self::Mcap(file) => {
                let mut sink = file.into_sink();
                McapWriter::end_short(&mut sink);
                sink.size()
            }
        }
    }
}

/// What came of writing.
#[derive(Debug, Default)]
pub struct Written {
    /// Messages in the file.
    pub messages: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Bytes of the file.
    pub file_size: u64,
    /// Why it ended early.
    pub error: Option<io::Error>,
}

/// Who writes, and how far that is.
struct Pen {
    output: Output,
    names: HashMap<NodeId, String>,
    /// Messages and bytes that are in the file, and that are about to be.
    written: (u64, u64),
    pending: (u64, u64),
    told: Totals,
    committed: Instant,
}

/// Writes all that comes, until nobody reads any more.
pub fn write_all(outlet: &Outlet, output: Output) -> Written {
    // Who may not be nicer is as urgent as others.
    let _as_before = set_nice(NICE);
    let mut pen = Pen {
        output,
        names: HashMap::new(),
        written: (0, 0),
        pending: (0, 0),
        told: Totals::default(),
        committed: Instant::now(),
    };
    let (mut known, mut until_ns) = (Totals::default(), 0);
    let outcome = loop {
        let batch = match outlet.next(COMMIT_EVERY) {
            Ok(batch) => batch,
            Err(_over) => break pen.tell(until_ns, &known).and_then(|()| pen.commit()),
        };
        let step = match &batch {
            None => pen.commit(),
            Some(batch) => {
                (known, until_ns) = (batch.totals.clone(), batch.until_ns);
                pen.write(batch)
            }
        };
        if let Err(error) = step {
            break Err(error);
        }
        if let Some(batch) = batch {
            outlet.give_back(batch);
        }
    };
    pen.finish(outcome, known, until_ns)
}

impl Pen {
    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        self.names.extend(batch.names.iter().cloned());
        for (entry, bytes) in batch.iter() {
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

    fn tell(&mut self, ns: u64, totals: &Totals) -> io::Result<()> {
        self.told = totals.clone();
        self.output.tell(ns, totals)
    }

    fn commit(&mut self) -> io::Result<()> {
        self.output.commit()?;
        self.written = (self.written.0 + self.pending.0, self.written.1 + self.pending.1);
        self.pending = (0, 0);
        self.committed = Instant::now();
        Ok(())
    }

    fn finish(self, outcome: io::Result<()>, mut known: Totals, until_ns: u64) -> Written {
        let (messages, bytes) = self.written;
        let (file_size, error) = match outcome {
            Ok(()) => {
                let (file_size, ended) = self.output.end();
                (file_size, ended.err())
            }
            Err(error) => {
                let unwritten = known.recorded.saturating_sub(messages);
                known.missed.push(Missed { cause: NOT_WRITTEN, messages: unwritten });
                known.recorded = messages;
                (self.output.rescue(until_ns, &known), Some(error))
            }
        };
        Written { messages, bytes, file_size, error }
    }
}

/// What was seen and is not in the file counts as missing.
pub fn settle(totals: &mut Totals, written: &Written) {
    let unwritten = totals.recorded.saturating_sub(written.messages);
    if unwritten > 0 {
        totals.missed.push(Missed { cause: NOT_WRITTEN, messages: unwritten });
    }
    totals.recorded = written.messages;
}
