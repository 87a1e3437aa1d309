//! Between the thread that reads and the thread that writes: batches, of which so many bytes may be under way.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use punctual_machine::counter::Counter;
use punctual_proto::NodeId;

use super::{Entry, MESSAGE_SIZE_MAX, Totals};

/// Memory for what was read and is not written yet, bytes: at 1 GB/s it lasts while a disk does nothing for 60 ms.
pub const QUEUE_SIZE: u64 = 64 << 20;
const _: () = assert!(QUEUE_SIZE > 2 * MESSAGE_SIZE_MAX as u64);

/// A batch that is as large goes to the writer, bytes.
const BATCH_SIZE: u64 = 256 << 10;

/// Memory that a batch keeps when it was written, bytes: a large message has its own, for as long as it is under way.
const BATCH_KEPT_MAX: usize = 1 << 20;

/// Size of an entry, bytes.
const ENTRY_SIZE: u64 = size_of::<Entry>() as u64;

/// Messages that were read one after the other.
#[derive(Debug, Default)]
pub struct Batch {
    entries: Vec<Entry>,
    /// Of all of them, one behind the other; the bytes behind them are anything.
    bytes: Vec<u8>,
    used: usize,
    /// Names of nodes that are new.
    pub names: Vec<(NodeId, String)>,
    /// Totals when the batch is handed over.
    pub totals: Totals,
    /// When that is, nanoseconds since 1970.
    pub until_ns: u64,
}

impl Batch {
    /// Room behind the messages that are there. It counts once [`Self::push`] says so.
    pub fn room(&mut self, size: usize) -> &mut [u8] {
        let end = self.used + size;
        if self.bytes.len() < end {
            let is_usual = end <= BATCH_KEPT_MAX;
            self.bytes.resize(if is_usual { end.next_power_of_two() } else { end }, 0);
        }
        &mut self.bytes[self.used..end]
    }

    /// The message in the room that was asked for last.
    pub fn push(&mut self, entry: Entry) {
        self.used += entry.size;
        self.entries.push(entry);
    }

    /// The messages, and their bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let mut rest = &self.bytes[..self.used];
        self.entries.iter().map(move |entry| {
            let (bytes, behind) = rest.split_at(entry.size);
            rest = behind;
            (entry, bytes)
        })
    }

    fn weight(&self) -> u64 {
        self.used as u64 + self.entries.len() as u64 * ENTRY_SIZE
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.names.clear();
        self.used = 0;
        if self.bytes.len() > BATCH_KEPT_MAX {
            self.bytes = Vec::new();
        }
    }
}

/// The end that reads.
#[derive(Debug)]
pub struct Intake {
    to_writer: Sender<Batch>,
    empty: Receiver<Batch>,
    /// Bytes that were handed over, and those of them that were written.
    handed: u64,
    written: Arc<Counter>,
    /// The batch that is being filled.
    pub batch: Batch,
}

/// The end that writes.
#[derive(Debug)]
pub struct Outlet {
    from_reader: Receiver<Batch>,
    empty: Sender<Batch>,
    written: Arc<Counter>,
}

/// Both ends.
pub fn queue() -> (Intake, Outlet) {
    let (to_writer, from_reader) = channel();
    let (to_reader, empty) = channel();
    let written = Arc::new(Counter::default());
    let intake =
        Intake { to_writer, empty, handed: 0, written: Arc::clone(&written), batch: Batch::default() };
    (intake, Outlet { from_reader, empty: to_reader, written })
}

impl Intake {
    /// True if a message of this size may be under way, too.
    pub fn has_room(&self, size: usize) -> bool {
        let under_way = self.handed - self.written.get_published();
        under_way + self.batch.weight() + size as u64 + ENTRY_SIZE <= QUEUE_SIZE
    }

    /// True if the batch is so large that it should go.
    pub fn is_full(&self) -> bool {
        self.batch.weight() >= BATCH_SIZE
    }

    /// Hands the batch over. `false` if nobody writes any more.
    pub fn hand_over(&mut self) -> bool {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.clear();
        let batch = std::mem::replace(&mut self.batch, next);
        self.handed += batch.weight();
        self.to_writer.send(batch).is_ok()
    }
}

impl Outlet {
    /// The next batch; none within the time.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn next(&self, timeout: Duration) -> Result<Option<Batch>, Closed> {
        match self.from_reader.recv_timeout(timeout) {
            Ok(batch) => Ok(Some(batch)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Closed),
        }
    }

    /// A batch was written.
    pub fn give_back(&self, batch: Batch) {
        self.written.add(batch.weight());
        // A reader that has stopped needs no empty batch.
        let _over = self.empty.send(batch);
    }
}

/// Nobody reads any more, and all that was read was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_proto::{Address, Port, Target};

    fn entry(size: usize) -> Entry {
        let source = Address { node: NodeId::named("a"), port: Port::from(1) };
        Entry::new(source, Target::EVERYONE, size)
    }

    /// Goal: a writer that does nothing costs memory up to a limit, and one that goes on makes room.
    #[test]
    fn messages_under_way_are_bounded() {
        const SIZE: usize = 1 << 20;
        let (mut intake, outlet) = queue();
        let mut taken = 0_u64;
        while intake.has_room(SIZE) {
            intake.batch.room(SIZE).fill(taken as u8);
            intake.batch.push(entry(SIZE));
            taken += 1;
            if intake.is_full() {
                assert!(intake.hand_over());
            }
        }
        assert_eq!(taken, QUEUE_SIZE / (SIZE as u64 + ENTRY_SIZE));
        let batch = outlet.next(Duration::ZERO).expect("open").expect("one waits");
        let (first, bytes) = batch.iter().next().expect("a message");
        assert!(first.size == SIZE && bytes.iter().all(|&byte| byte == 0));
        outlet.give_back(batch);
        assert!(intake.has_room(SIZE));
        drop(outlet);
        assert!(!intake.hand_over());
    }

    #[test]
    fn messages_of_a_batch_are_what_was_put_in() {
        let mut batch = Batch::default();
        for size in [3, 0, 70] {
            batch.room(size + 5).fill(9);
            batch.room(size).fill(size as u8);
            batch.push(entry(size));
        }
        let found: Vec<(usize, Vec<u8>)> =
            batch.iter().map(|(entry, bytes)| (entry.size, bytes.to_vec())).collect();
        assert_eq!(found, [3, 0, 70].map(|size| (size, vec![size as u8; size])));
    }
}
