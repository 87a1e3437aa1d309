//! A hostile writer: for any content of a ring's memory, its reader neither panics nor reads outside of it.
//!
//! Input: operations of 10 bytes: which, where, and eight bytes to store. Until the first scribble the writer
//! is honest, and then the reader must also believe it and be right.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use punctual_machine::counter::Counter;
use punctual_machine::memory::Mapping;
use punctual_machine::ring::{
    Next, RECORD_ALIGN, RECORD_FLAGS, RING_CONTROL_SIZE, RingMemory, RingReader, RingWriter, frame_size_max,
};

/// Bytes of the ring: a few laps fit into one input.
const CAPACITY: usize = 2048;
const MAPPING_SIZE: usize = (RING_CONTROL_SIZE + CAPACITY).next_multiple_of(4096);
/// `control.limit` stands in the first word, the tail's position and number in the first two of the next cache line.
const CONTROL_WORDS: [usize; 3] = [0, 8, 9];

/// Bits of a commit word: size, user's flags and padding may be anything.
const COMMITTED: u64 = 1 << 28;

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new();
    for operation in bytes.chunks_exact(10) {
        let mut value = [0; 8];
        value.copy_from_slice(&operation[2..]);
        world.step(operation[0], operation[1], u64::from_le_bytes(value));
    }
});

struct World {
    mapping: Arc<Mapping>,
    writer: RingWriter,
    reader: RingReader,
    is_honest: bool,
}

impl World {
    fn new() -> Self {
        let mapping = Arc::new(Mapping::anonymous(MAPPING_SIZE).expect("a page of memory"));
        let memory = RingMemory::in_mapping(Arc::clone(&mapping), 0, RING_CONTROL_SIZE, CAPACITY)
            .expect("ring and control words fit");
        let writer = RingWriter::new(memory.clone());
        Self { mapping, writer, reader: RingReader::from_start(memory), is_honest: true }
    }

    fn step(&mut self, operation: u8, place: u8, value: u64) {
        match operation % 8 {
            0 => self.publish(value as usize % (frame_size_max(CAPACITY) + 2), true),
            1 => self.publish(value as usize % 64, false),
            2 | 3 => self.read(),
            4 => self.scribble(usize::from(place) % (MAPPING_SIZE / 8), value),
            5 => self.scribble_commit_word(value),
            6 => self.scribble(CONTROL_WORDS[usize::from(place) % 3], value),
            _ => self.rejoin(),
        }
        assert!(self.reader.position().is_multiple_of(RECORD_ALIGN as u64));
        if self.is_honest {
            assert!(self.reader.sequence() <= self.writer.sequence());
        }
    }

    /// Alone, or as one of a run, of which the tail tells later.
    fn publish(&mut self, size: usize, is_alone: bool) {
        if self.writer.claim(size.max(1)).is_ok() {
            // Claiming may have moved to the next lap: the fill is that of the place where the frame stands.
            let fill = fill_at(self.writer.position());
            self.writer.claimed_bytes().fill(fill);
            self.writer.commit_in_run(fill & RECORD_FLAGS);
            if is_alone {
                self.writer.publish_tail();
            }
        }
    }

    fn read(&mut self) {
        let size = match self.reader.peek() {
            Next::Frame(frame) => frame.bytes().len(),
            Next::Corrupt => return assert!(!self.is_honest, "an honest writer is believed"),
            Next::Empty | Next::Overrun => return,
        };
        let position = self.reader.position();
        let Next::Frame(frame) = self.reader.peek() else { panic!("looking again changes nothing") };
        let shared = frame.bytes();
        assert_eq!(shared.len(), size, "looking again changes nothing");
        assert!((1..=frame_size_max(CAPACITY)).contains(&size));
        let bytes = shared.to_vec();
        assert_eq!(bytes.len(), size);
        let words = (0..).map_while(|index| shared.word(index)).count();
        assert_eq!(words, size / 8);
        assert_eq!(shared.skip(8).is_some(), size >= 8);
        if !frame.is_intact() {
            // Nothing of it may be believed, its size included: `consume` would land between two records.
            return;
        }
        if self.is_honest {
            let fill = fill_at(position);
            assert_eq!(frame.flags(), fill & RECORD_FLAGS);
            assert!(bytes.iter().all(|&byte| byte == fill), "believed bytes are those that were written");
        }
        frame.consume();
    }

    fn scribble(&mut self, word: usize, value: u64) {
        self.is_honest = false;
        let words = self.mapping.objects::<Counter>(0, MAPPING_SIZE / 8).expect("the whole mapping");
        words[word].set(value);
    }

    /// A commit word whose number is right and whose size and flags are anything: random words rarely come so far.
    fn scribble_commit_word(&mut self, value: u64) {
        let position = self.reader.position();
        let word = self.reader.sequence() << 32 | COMMITTED | u64::from(value as u32);
        let index = (RING_CONTROL_SIZE + position as usize % CAPACITY) / 8;
        self.scribble(index, word);
    }

    fn rejoin(&mut self) {
        // Their answers do not matter here: they must come back.
        let _lag = self.reader.lag();
        let _news = self.reader.has_news();
        self.reader = RingReader::from_now(self.reader.memory().clone());
    }
}

/// The byte of which a frame at this position consists.
fn fill_at(position: u64) -> u8 {
    (position / RECORD_ALIGN as u64 % 251) as u8
}
