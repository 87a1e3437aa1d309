//! The ring under loom: every interleaving and every value that the memory model allows a load to return.

use super::*;
use loom::thread;

fn publish(writer: &mut RingWriter, number: u64) {
    writer.claim(16).unwrap();
    writer.write(0, &number.to_ne_bytes());
    writer.write(8, &number.to_ne_bytes());
    writer.commit();
}

/// Goal: a frame that is seen committed is seen whole, in order (pair C).
#[test]
fn a_committed_frame_is_whole() {
    loom::model(|| {
        let memory = RingMemory::on_heap(128);
        let writer_memory = memory.clone();
        let thread = thread::spawn(move || {
            let mut writer = RingWriter::new(writer_memory);
            publish(&mut writer, 1);
            publish(&mut writer, 2);
        });
        let mut reader = RingReader::from_start(memory);
        let mut expected = 1;
        for _ in 0..3 {
            let mut bytes = [0; 16];
            match reader.peek() {
                Next::Frame => reader.frame().copy_to(&mut bytes),
                _ => continue,
            };
            assert!(reader.is_intact(), "two records fit into the ring");
            assert_eq!(bytes[..8], u64::to_ne_bytes(expected));
            assert_eq!(bytes[8..], u64::to_ne_bytes(expected));
            reader.consume();
            expected += 1;
        }
        thread.join().unwrap();
    });
}

/// Goal: a frame that is overwritten while it is read is not believed (pair D).
/// Method: the reader stands at the second record of a lap while the writer takes the next one. The limit that allows
/// that is raised without asking for the slowest reader, whose fence (E) would stand in for the one under test.
#[test]
fn a_torn_frame_is_not_believed() {
    loom::model(|| {
        let memory = RingMemory::on_heap(128);
        let mut writer = RingWriter::new(memory.clone());
        let mut reader = RingReader::from_start(memory);
        publish(&mut writer, 1);
        assert_eq!(reader.peek(), Next::Frame);
        reader.consume();
        for number in 2..=4 {
            publish(&mut writer, number);
        }
        let thread = thread::spawn(move || {
            publish(&mut writer, 5);
            publish(&mut writer, 6);
        });
        let mut bytes = [0; 16];
        let found = match reader.peek() {
            Next::Frame => reader.frame().copy_to(&mut bytes) == 16,
            _ => false,
        };
        if found && reader.is_intact() {
            assert_eq!(bytes[..8], bytes[8..], "torn");
        }
        thread.join().unwrap();
    });
}

/// Goal: a reader that joins is not overrun by a writer that it holds back, however late the writer sees it (pair E).
#[test]
fn who_joins_is_held_for() {
    use crate::sync::{AtomicU64, Ordering};
    loom::model(|| {
        let memory = RingMemory::on_heap(64);
        let cursor = loom::sync::Arc::new(AtomicU64::new(u64::MAX));
        let mut writer = RingWriter::new(memory.clone());
        let write = |writer: &mut RingWriter, cursor: &AtomicU64| {
            let claimed = writer.claim_held(8, &mut || cursor.load(Ordering::Acquire));
            if claimed.is_ok() {
                writer.commit();
            }
        };
        (0..3).for_each(|_| write(&mut writer, &cursor));
        let seen = loom::sync::Arc::clone(&cursor);
        let thread = thread::spawn(move || (0..5).for_each(|_| write(&mut writer, &seen)));
        let mut reader = RingReader::from_now(memory);
        cursor.store(reader.position(), Ordering::Release);
        reader.move_to_now();
        for _ in 0..2 {
            match reader.peek() {
                Next::Frame => reader.consume(),
                Next::Empty => break,
                other => panic!("{other:?}"),
            }
        }
        thread.join().unwrap();
    });
}
