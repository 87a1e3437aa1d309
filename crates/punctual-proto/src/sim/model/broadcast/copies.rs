//! Copies of a state, and what must hold of them.

use alloc::collections::BTreeMap;
use alloc::format;

use crate::broadcast::{Command, Event, Guarantee, Mutants, Replication, State};
use crate::sim::Record;
use crate::sim::model::{Violation, ensure};

/// A state that knows all commands, and their order: their number, and a hash of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    count: u64,
    hash: u64,
}

/// A snapshot is so many pieces whose sum is the state: one that is missing, doubled or of another snapshot shows.
const PIECES: u64 = 96;
/// Bytes of a piece.
const PIECE_SIZE: usize = 16;

impl Log {
    /// One piece of a snapshot.
    fn piece(self, number: u64) -> Self {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        if number + 1 < PIECES {
            return Self { count: number + 1, hash: (number + 1).wrapping_mul(ODD) };
        }
        let others = PIECES * (PIECES - 1) / 2;
        let hash = self.hash.wrapping_sub(others.wrapping_mul(ODD));
        Self { count: self.count.wrapping_sub(others), hash }
    }

    fn bytes(self) -> impl Iterator<Item = u8> {
        [self.count, self.hash].into_iter().flat_map(u64::to_le_bytes)
    }
}

/// A snapshot, and how many of its pieces were read.
#[derive(Debug)]
pub(super) struct Snapshot(Log, u64);

impl State for Log {
    type Output = ();
    type Snapshot = Snapshot;

    fn apply(&mut self, command: Command<'_>) {
        let sender = command.life.to_le_bytes();
        for byte in sender.iter().chain(command.payload) {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.count += 1;
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot(*self, 0)
    }

    fn read(Snapshot(log, next): &mut Snapshot, buffer: &mut [u8]) -> usize {
        let last = PIECES.min(*next + (buffer.len() / PIECE_SIZE) as u64);
        let bytes = (*next..last).flat_map(|number| log.piece(number).bytes());
        *next = last;
        buffer.iter_mut().zip(bytes).map(|(byte, value)| *byte = value).count()
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn restore(&mut self, part: &[u8]) {
        for piece in part.as_chunks::<PIECE_SIZE>().0 {
            let [count, hash] =
                [0, 8].map(|at| u64::from_le_bytes(piece[at..at + 8].try_into().expect("eight bytes")));
            self.count = self.count.wrapping_add(count);
            self.hash = self.hash.wrapping_add(hash);
        }
    }
}

/// Parts of a snapshot: some frames each.
const PART_SIZE: usize = 3 * PIECE_SIZE;

pub(super) fn copy(place: usize, mutants: Mutants) -> Replication<Log> {
    Replication::with_mutants(Log::default(), place, PART_SIZE, mutants)
}

/// The command that a message is, if it is one.
pub(super) fn command_in(message: &[u8]) -> Option<&[u8]> {
    Replication::<Log>::command_in(message)
}

/// States of copies, by views and places in their order: 0 where a view begins.
#[derive(Debug, Default)]
pub(super) struct Copies(BTreeMap<(u64, u64, u32), Log>);

impl Copies {
    /// A copy that has the state is what all others are at this place of the order. Behind a message that is not uniform it need not
    /// be: a member that delivers that may be expelled, and lose the state.
    pub(super) fn compare(
        &mut self,
        record: &mut Record,
        own: u64,
        (event, log): (&Event, Option<Log>),
    ) -> Result<(), Violation> {
        let place = match event {
            Event::Delivered(told) if told.guarantee == Guarantee::Uniform => {
                (told.view, told.index + 1, told.part)
            }
            Event::View(view) => (view.number, 0, 0),
            _ => return Ok(()),
        };
        let Some(log) = log else { return Ok(()) };
        let others = *self.0.entry(place).or_insert(log);
        let text = || format!("{own:x} has {log:x?} after {event:?}, others {others:x?}");
        ensure(record, "equal copies", log == others, text)
    }
}
