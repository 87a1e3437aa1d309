//! The ring under loom: every interleaving and every value that the memory model allows a load to return.
//!
//! Each test stands where nothing but its subject can help. Values stored before the threads part are known to both, and a fence that a
//! thread passes later covers all that it stored before.

use super::memory::Newest;
use super::*;
use loom::sync::Arc;
use loom::thread;

/// Writes a frame of equal words.
fn publish_words(writer: &mut RingWriter, number: u64, words: usize) {
    writer.claim(8 * words).unwrap();
    (0..words).for_each(|word| writer.write(8 * word, &number.to_ne_bytes()));
    writer.commit();
}

/// Of two words: a record is two lines.
fn publish(writer: &mut RingWriter, number: u64) {
    publish_words(writer, number, 2);
}

/// A ring in which frames of one word, a line each, were written and read.
fn used_ring(capacity: usize, frames: u64) -> (RingWriter, RingReader) {
    let memory = RingMemory::on_heap(capacity);
    let (mut writer, mut reader) = (RingWriter::new(memory.clone()), RingReader::from_start(memory));
    for number in 0..frames {
        publish_words(&mut writer, 100 + number, 1);
        assert_eq!(read(&mut reader), Some(100 + number));
    }
    (writer, reader)
}

/// The number in a frame that is whole.
fn take(frame: RingFrame<'_>) -> u64 {
    let mut bytes = [0; 24];
    let size = frame.bytes().copy_to(&mut bytes);
    assert!(frame.is_intact(), "nobody laps it");
    let number = u64::from_ne_bytes(*bytes.first_chunk().unwrap());
    assert!(bytes[..size].chunks(8).all(|word| word == number.to_ne_bytes()), "{bytes:?}");
    frame.consume();
    number
}

/// The number in the next frame, of a writer that is honest and laps nobody.
fn read(reader: &mut RingReader) -> Option<u64> {
    match reader.peek() {
        Next::Frame(frame) => Some(take(frame)),
        Next::Empty => None,
        other => panic!("{other:?}"),
    }
}

/// Numbers that a reader sees in so many looks beside the writer's thread, and then when that has ended.
fn read_beside(thread: thread::JoinHandle<()>, reader: &mut RingReader, looks: usize) -> Vec<u64> {
    let mut seen: Vec<_> = (0..looks).filter_map(|_| read(reader)).collect();
    thread.join().unwrap();
    seen.extend(core::iter::from_fn(|| read(reader)));
    seen
}

/// Goal: a frame that is seen committed is seen whole, in order, and behind it stands nothing older (rule 2, pair C).
#[test]
fn a_committed_frame_is_whole() {
    loom::model(|| {
        let (mut writer, mut reader) = used_ring(64, 4);
        let thread = thread::spawn(move || (1..=2).for_each(|number| publish_words(&mut writer, number, 1)));
        assert_eq!(read_beside(thread, &mut reader, 3), [1, 2]);
    });
}

/// Goal: the same of frames that are sent in one step.
#[test]
fn a_frame_sent_in_one_step_is_whole() {
    loom::model(|| {
        let (mut writer, mut reader) = used_ring(128, 8);
        publish_words(&mut writer, 1, 1);
        writer.claim(40).unwrap(); // Makes room near, of which the next record takes a part.
        let thread =
            thread::spawn(move || assert!(writer.append([2], &2_u64.to_ne_bytes(), 0, Spacing::Lines)));
        assert_eq!(read_beside(thread, &mut reader, 3), [1, 2]);
    });
}

/// Goal: the same of one whose end was set to zero before, when the record ahead of it was told of.
#[test]
fn behind_a_frame_stands_what_was_cleared_ahead() {
    loom::model(|| {
        let (mut writer, mut reader) = used_ring(128, 8);
        publish_words(&mut writer, 1, 1);
        writer.claim(40).unwrap(); // Makes room near, but clears further on than the next records end.
        let thread = thread::spawn(move || {
            assert!(writer.append([2], &[], 0, Spacing::Lines));
            writer.clear_ahead();
            assert!(writer.append([3], &[], 0, Spacing::Lines));
        });
        assert_eq!(read_beside(thread, &mut reader, 4), [1, 2, 3]);
    });
}

/// Goal: a reader that sees a run sees all of it whole, and behind it nothing older.
#[test]
fn a_run_is_whole() {
    loom::model(|| {
        let (mut writer, mut reader) = used_ring(128, 8);
        publish_words(&mut writer, 1, 1);
        writer.claim(40).unwrap();
        let thread = thread::spawn(move || {
            assert!(writer.append([2], &[], 0, Spacing::Dense));
            assert!(writer.append([3], &[], 0, Spacing::Dense));
        });
        assert_eq!(read_beside(thread, &mut reader, 4), [1, 2, 3]);
    });
}

/// Goal: the same of a run past the caches, whose stores have no order but what awaiting them gives.
#[test]
fn a_run_past_the_caches_is_whole() {
    loom::model(|| {
        let (writer, mut reader) = used_ring(128, 8);
        let mut writer = writer.passing_caches();
        publish_words(&mut writer, 1, 1);
        writer.claim(40).unwrap();
        let thread = thread::spawn(move || {
            assert!(writer.append([2], &2_u64.to_ne_bytes(), 0, Spacing::Dense));
            assert!(writer.append([3], &3_u64.to_ne_bytes(), 0, Spacing::Dense));
            writer.publish_tail();
        });
        assert_eq!(read_beside(thread, &mut reader, 4), [1, 2, 3]);
    });
}

/// Goal: the same where another thread ends the run, which knows nothing of the first one's stores.
#[test]
fn a_run_past_the_caches_goes_to_another_thread() {
    loom::model(|| {
        let (writer, mut reader) = used_ring(128, 8);
        let mut writer = writer.passing_caches();
        publish_words(&mut writer, 1, 1);
        writer.claim(40).unwrap();
        assert!(writer.append([2], &[], 0, Spacing::Dense));
        writer.await_stores();
        let thread = thread::spawn(move || {
            assert!(writer.append([3], &[], 0, Spacing::Dense));
            writer.publish_tail();
        });
        assert_eq!(read_beside(thread, &mut reader, 4), [1, 2, 3]);
    });
}

/// Goal: a reader that sees that a lap ended early sees the beginning of the next, and nothing older.
#[test]
fn a_frame_behind_padding_is_whole() {
    loom::model(|| {
        let (mut writer, mut reader) = used_ring(64, 3);
        let thread = thread::spawn(move || publish_words(&mut writer, 1, 3));
        let early = read(&mut reader);
        thread.join().unwrap();
        assert_eq!(early.or_else(|| read(&mut reader)), Some(1));
    });
}

/// Goal: a reader that joins at the newest end finds there the records written since, and nothing older.
#[test]
fn at_the_newest_end_stands_nothing_older() {
    loom::model(|| {
        let (mut writer, reader) = used_ring(64, 4);
        let thread = thread::spawn(move || (1..=2).for_each(|number| publish_words(&mut writer, number, 1)));
        let mut reader = RingReader::from_now(reader.memory().clone());
        let next = (reader.position() - 64) / 16 + 1;
        assert_eq!(reader.sequence(), 4 + next - 1, "the number of what begins there (pair G)");
        assert!(read(&mut reader).is_none_or(|number| number == next));
        thread.join().unwrap();
    });
}

/// Goal: a reader that looks up the newest end while its writer laps it takes no later record's number for it (pairs D and G).
#[test]
fn the_newest_end_has_its_own_number() {
    loom::model(|| {
        let (mut writer, reader) = used_ring(64, 4);
        let thread = thread::spawn(move || (0..5).for_each(|number| publish_words(&mut writer, number, 1)));
        if let Newest::At(position, sequence) = reader.memory().newest() {
            assert_eq!(16 * sequence, position);
        }
        thread.join().unwrap();
    });
}

/// Goal: a reader that is overrun in the middle of a run goes on behind the records that it lost.
#[test]
fn a_run_tells_before_it_laps() {
    loom::model(|| {
        let memory = RingMemory::on_heap(64);
        let mut reader = RingReader::from_start(memory.clone());
        let thread = thread::spawn(move || {
            let mut writer = RingWriter::new(memory);
            for number in 0..4_u64 {
                writer.claim(8).unwrap();
                writer.write(0, &number.to_ne_bytes());
                writer.commit_in_run(0);
            }
            writer.publish_tail();
        });
        match reader.peek() {
            Next::Overrun => {
                assert_eq!((reader.lost(), reader.position()), (reader.sequence(), 16 * reader.sequence()))
            }
            Next::Corrupt => panic!("an honest writer"),
            Next::Empty | Next::Frame(_) => {}
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
        assert_eq!(read(&mut reader), Some(1));
        for number in 2..=4 {
            publish(&mut writer, number);
        }
        let thread = thread::spawn(move || {
            publish(&mut writer, 5);
            publish(&mut writer, 6);
        });
        let mut bytes = [0; 16];
        match reader.peek() {
            Next::Frame(frame) => {
                if frame.bytes().copy_to(&mut bytes) == 16 && frame.is_intact() {
                    assert_eq!(bytes[..8], bytes[8..], "torn");
                }
            }
            Next::Empty | Next::Overrun => {}
            Next::Corrupt => panic!("an honest writer"),
        }
        thread.join().unwrap();
    });
}

/// Goal: a reader that was lapped by an honest writer is told so at the next look, and never that the ring is corrupt. Method: the
/// reader knows nothing of what the writer did; the newest end may look as old as the memory model allows.
#[test]
fn a_lapped_reader_is_told() {
    loom::model(|| {
        let memory = RingMemory::on_heap(64);
        let mut reader = RingReader::from_start(memory.clone());
        let thread = thread::spawn(move || {
            let mut writer = RingWriter::new(memory);
            (1..=4).for_each(|number| publish_words(&mut writer, number, 1));
        });
        let is_torn = matches!(reader.peek(), Next::Frame(frame) if !frame.is_intact());
        let next = reader.peek();
        assert!(!matches!(next, Next::Corrupt));
        assert!(!is_torn || matches!(next, Next::Overrun), "{next:?} after a frame that was not intact");
        thread.join().unwrap();
    });
}

/// Goal: a reader that joins is not overrun by a writer that it holds back, however late the writer sees it (pair E).
#[test]
fn a_joining_reader_is_not_overrun() {
    use crate::sync::{AtomicU64, Ordering};
    loom::model(|| {
        let memory = RingMemory::on_heap(64);
        let cursor = Arc::new(AtomicU64::new(u64::MAX));
        let mut writer = RingWriter::new(memory.clone());
        let write = |writer: &mut RingWriter, cursor: &AtomicU64| {
            let claimed = writer.claim_held(8, &mut || cursor.load(Ordering::Acquire));
            if claimed.is_ok() {
                writer.commit();
            }
        };
        (0..3).for_each(|_| write(&mut writer, &cursor));
        let seen = Arc::clone(&cursor);
        let thread = thread::spawn(move || (0..4).for_each(|_| write(&mut writer, &seen)));
        let mut reader = RingReader::from_now(memory);
        cursor.store(reader.position(), Ordering::Release);
        reader.move_to_now();
        for _ in 0..2 {
            match reader.peek() {
                Next::Frame(frame) => frame.consume(),
                Next::Empty => break,
                other => panic!("{other:?}"),
            }
        }
        thread.join().unwrap();
    });
}
