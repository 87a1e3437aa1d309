//! The ring itself, one each way: the cost of the mechanism above a slot, and of the library above the mechanism.

use std::sync::Arc;

use punctual_machine::counter::Counter;
use punctual_machine::memory::{Access, Mapping};
use punctual_machine::ring::{Next, RingMemory, RingReader, RingWriter};
use punctual_machine::sync::spin_hint;

use super::{Pair, Temporary, path, patiently};
use crate::Outcome;
use crate::meeting::Meeting;

/// As large as a node's by default, bytes.
const CAPACITY: usize = 1 << 20;

/// Distance that a reader goes before it says so, bytes.
const CURSOR_STEP: u64 = CAPACITY as u64 / 16;

// A page for each ring's control words and one for both cursors, then the records.
const PAGE: usize = 4096;
const CURSORS_AT: usize = 2 * PAGE;
const RECORDS_AT: usize = 3 * PAGE;
const MAPPING_SIZE: usize = RECORDS_AT + 2 * CAPACITY;

pub(super) struct Ring {
    writer: RingWriter,
    reader: RingReader,
    memory: Arc<Mapping>,
    own: usize,
    told: u64,
    _file: Option<Temporary>,
}

impl Ring {
    pub(super) fn open(meeting: &Meeting) -> Outcome<Self> {
        let path = path(meeting, "rings");
        let memory = if meeting.here {
            Mapping::create(&path, MAPPING_SIZE, 0o600)?
        } else {
            patiently(|| Mapping::open(&path, Access::ReadWrite))?
        };
        let memory = Arc::new(memory);
        let ring = |which: usize| {
            let records_at = RECORDS_AT + which * CAPACITY;
            RingMemory::in_mapping(Arc::clone(&memory), which * PAGE, records_at, CAPACITY)
        };
        let own = usize::from(!meeting.here);
        let writer = RingWriter::new(ring(own).ok_or("no ring")?);
        let reader = RingReader::from_start(ring(1 - own).ok_or("no ring")?);
        let file = meeting.here.then(|| Temporary(path));
        Ok(Self { writer, reader, memory, own, told: 0, _file: file })
    }
}

/// Position that the reader of a ring has reached.
fn cursor(memory: &Mapping, ring: usize) -> &Counter {
    memory.object(CURSORS_AT + 64 * ring).expect("the mapping has both")
}

impl Pair for Ring {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        let Self { writer, memory, own, .. } = self;
        while writer.claim_held(message.len(), &mut || cursor(memory, *own).get_published()).is_err() {
            spin_hint();
        }
        writer.write(0, message);
        writer.commit();
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        loop {
            match self.reader.peek() {
                Next::Frame(frame) => {
                    frame.bytes().copy_to(message);
                    if !frame.is_intact() {
                        return Err("the ring was overrun".into());
                    }
                    frame.consume();
                    break;
                }
                Next::Empty => spin_hint(),
                Next::Overrun | Next::Corrupt => return Err("the ring lost a message".into()),
            }
        }
        if self.reader.position() - self.told >= CURSOR_STEP {
            self.told = self.reader.position();
            cursor(&self.memory, 1 - self.own).publish(self.told);
        }
        Ok(())
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        // Messages in the ring wait there for the other end.
        Ok(())
    }
}
