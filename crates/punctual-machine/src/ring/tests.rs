//! The ring against a model: a plain list of what was written.

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::sync::{AtomicU64, Ordering};

fn pair(capacity: usize) -> (RingWriter, RingReader) {
    let memory = RingMemory::on_heap(capacity);
    (RingWriter::new(memory.clone()), RingReader::from_start(memory))
}

fn publish(writer: &mut RingWriter, bytes: &[u8]) {
    writer.claim(bytes.len()).unwrap();
    writer.write(0, bytes);
    writer.commit();
}

/// Sends a frame in one step, if there is room near: of one word and the rest, or of three.
fn append(writer: &mut RingWriter, is_of_three: bool, bytes: &[u8], spacing: Spacing) -> bool {
    let word = |word: &[u8; 8]| u64::from_ne_bytes(*word);
    let (words, _) = bytes.as_chunks();
    match words {
        [one, two, three, ..] if is_of_three => {
            writer.append([one, two, three].map(word), &bytes[24..], 0, spacing)
        }
        [one, ..] => writer.append([word(one)], &bytes[8..], 0, spacing),
        [] => false,
    }
}

/// Sends a frame in one of the ways there are; the last ones leave it to be told of.
fn send(writer: &mut RingWriter, way: u64, bytes: &[u8]) {
    let spacing = if way.is_multiple_of(2) { Spacing::Lines } else { Spacing::Dense };
    match way % 4 {
        2 | 3 if append(writer, way % 8 > 3, bytes, spacing) => {}
        0 => publish(writer, bytes),
        _ => {
            writer.claim_spaced(bytes.len(), spacing, &mut || u64::MAX).unwrap();
            writer.write(0, bytes);
            writer.commit_in_run(0);
        }
    }
}

fn read(reader: &mut RingReader) -> Option<Vec<u8>> {
    match reader.peek() {
        Next::Frame(frame) => {
            let bytes = frame.bytes().to_vec();
            assert!(frame.is_intact());
            frame.consume();
            Some(bytes)
        }
        Next::Empty => None,
        other => panic!("{other:?}"),
    }
}

/// Numbers that look random, the same each time. Marsaglia, "Xorshift RNGs" (2003).
fn random_numbers() -> impl FnMut() -> u64 {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A frame whose size and bytes follow from its number.
fn frame(number: u64, size_max: usize) -> Vec<u8> {
    let size = 1 + (number.wrapping_mul(0x9E37_79B9) % size_max as u64) as usize;
    (0..size).map(|at| (number as usize * 7 + at) as u8).collect()
}

#[test]
fn frames_come_out_in_order_and_whole_over_many_laps() {
    let (mut writer, mut reader) = pair(4096);
    let mut model = VecDeque::new();
    for number in 0..20_000 {
        let bytes = frame(number, 900);
        send(&mut writer, number / 7, &bytes);
        writer.publish_tail();
        model.push_back(bytes);
        if number % 3 != 0 || model.len() > 2 {
            assert_eq!(read(&mut reader), model.pop_front(), "frame {number}");
        }
    }
    while let Some(bytes) = model.pop_front() {
        assert_eq!(read(&mut reader), Some(bytes));
    }
    assert_eq!(read(&mut reader), None);
}

/// Goal: the records of a run are seen together: when there are enough, when one follows that is none of it, or at its end.
#[test]
fn a_run_is_seen_together() {
    let (mut writer, mut reader) = pair(4096);
    let mut number = 0;
    let mut add = |writer: &mut RingWriter| {
        assert!(number == 0 || writer.append([number], &[7; 8], 0, Spacing::Dense));
        if number == 0 {
            send(writer, 1, &[0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
        }
        number += 1;
    };
    let numbers = |reader: &mut RingReader| -> Vec<u64> {
        std::iter::from_fn(|| read(reader))
            .map(|frame| u64::from_ne_bytes(*frame.first_chunk().unwrap()))
            .collect()
    };
    (0..3).for_each(|_| add(&mut writer));
    assert_eq!(numbers(&mut reader), [], "nobody was told");
    writer.publish_tail();
    assert_eq!(numbers(&mut reader), [0, 1, 2]);
    (0..3).for_each(|_| add(&mut writer));
    assert!(writer.append([6], &[], 0, Spacing::Lines));
    assert_eq!(numbers(&mut reader), [3, 4, 5, 6], "one that is alone ends the run before it");
    let mut hidden = 0;
    let seen = loop {
        send(&mut writer, 3, &[7; 16]);
        match numbers(&mut reader) {
            seen if seen.is_empty() => hidden += 1,
            seen => break seen,
        }
    };
    assert!((4..=4096 / LIMIT_STEPS / 32).contains(&hidden), "{hidden} were not seen at once");
    assert!(seen.len() as u64 >= hidden, "{seen:?}");
}

/// Goal: records are as near to each other as they say, and the tail tells of no record that is not committed.
#[test]
fn a_lone_record_begins_a_line_for_the_next() {
    let (mut writer, mut reader) = pair(4096);
    let mut places = vec![];
    for way in [1, 1, 0, 1, 0, 0] {
        places.push(writer.position());
        send(&mut writer, way, &[way as u8; 17]);
    }
    assert_eq!(places, [0, 32, 64, 128, 160, 192]);
    let late = RingReader::from_now(writer.memory().clone());
    assert_eq!((late.position(), late.sequence()), (256, 6));
    assert_eq!(std::iter::from_fn(|| read(&mut reader)).count(), 6);
}

#[test]
fn a_frame_may_be_written_in_place() {
    let (mut writer, mut reader) = pair(1024);
    for byte in 0..100 {
        writer.claim(24).unwrap();
        writer.claimed_bytes().fill(byte);
        writer.commit();
        assert_eq!(read(&mut reader), Some(vec![byte; 24]));
    }
}

#[test]
fn old_payload_that_looks_like_a_commit_is_not_one() {
    let (mut writer, mut reader) = pair(1024);
    // Every word of every frame is what a commit word at some position of the next laps looks like.
    for number in 0..2_000_u64 {
        let words: Vec<u8> = (0..20).flat_map(|at| commit_word(number + at, 40).to_le_bytes()).collect();
        publish(&mut writer, &words);
        assert_eq!(read(&mut reader), Some(words));
        assert!(matches!(reader.peek(), Next::Empty));
    }
}

/// Goal: records follow each other in any way behind a stretch set to zero ahead. A reader finds each of them, and nothing older behind
/// it. Records that it has not read yet are not touched. Method: every word of every frame looks like a commit word, also of claims
/// that are given up; a reader that holds the writer back lags by as much as the ring has room for.
#[test]
fn behind_what_was_cleared_ahead_stands_nothing_older() {
    let mut random = random_numbers();
    for lag_max in [0, 3, usize::MAX] {
        let (mut writer, mut reader) = pair(4096);
        let mut model = VecDeque::new();
        for number in 0..30_000_u64 {
            let words = 1 + random() % if number % 512 < 256 { 30 } else { 4 };
            let bytes: Vec<u8> =
                (0..words).flat_map(|at| commit_word(number + at, 40).to_le_bytes()).collect();
            let spacing = if random().is_multiple_of(4) { Spacing::Dense } else { Spacing::Lines };
            if random().is_multiple_of(8) && writer.claim_held(240, &mut || reader.position()).is_ok() {
                // Given up.
                (0..30).for_each(|word| writer.write(8 * word, &commit_word(number, 40).to_le_bytes()));
            }
            let is_of_three = random().is_multiple_of(2);
            if !random().is_multiple_of(2) || !append(&mut writer, is_of_three, &bytes, spacing) {
                while writer.claim_spaced(bytes.len(), spacing, &mut || reader.position()).is_err() {
                    assert_eq!(read(&mut reader), model.pop_front(), "frame {number}");
                }
                writer.write(0, &bytes);
                writer.commit_untold(0);
            }
            if random().is_multiple_of(4) {
                writer.publish_tail();
            }
            writer.demote_long(u64::MAX >> 6);
            writer.demote_short();
            writer.clear_ahead();
            model.push_back(bytes);
            if model.len() > lag_max {
                writer.publish_tail();
                while let Some(expected) = model.pop_front() {
                    assert_eq!(read(&mut reader), Some(expected), "frame {number}");
                }
                assert_eq!(read(&mut reader), None);
            }
        }
    }
}

/// Goal: once the readers of a record were told, the lines of the next are the writer's, if that is as large: but at the end of a
/// lap, and where the limit must be raised first.
#[test]
fn the_next_record_finds_its_lines_cleared() {
    let (mut writer, mut reader) = pair(65_536);
    let mut cleared = 0;
    for number in 0..1024 {
        publish(&mut writer, &[255; 200]);
        writer.clear_ahead();
        assert!(read(&mut reader).is_some());
        let memory = writer.memory();
        let is_zero = |at| memory.word(writer.position() + at).load(Ordering::Relaxed) == 0;
        cleared += usize::from(number >= 256 && (0..=256).step_by(LINE_SIZE).all(is_zero));
    }
    assert!((700..768).contains(&cleared), "{cleared} of 768");
}

/// Goal: the lines of the record or run that was told last go to the shared cache, but for the first one. When nothing was told, none
/// goes.
#[test]
fn lines_of_what_was_told_last_are_demoted() {
    let (mut writer, _reader) = pair(1 << 20);
    let lines = |writer: &RingWriter| writer.told_lines().map(|at| at / 64).collect::<Vec<_>>();
    let run = |writer: &mut RingWriter, messages| {
        (0..messages).for_each(|number| assert!(writer.append([number], &[7; 64], 0, Spacing::Dense)));
        writer.publish_tail();
    };
    assert_eq!(lines(&writer), []);
    publish(&mut writer, &[7; 40]);
    assert_eq!(lines(&writer), []);
    publish(&mut writer, &[7; 72]);
    assert_eq!(lines(&writer), [2]);
    publish(&mut writer, &[7; 180]);
    assert_eq!((lines(&writer), writer.position()), (vec![4, 5], 6 * 64));
    // Records of 80 bytes: up to 464, in the middle of line 7, and from there up to 704.
    run(&mut writer, 1);
    assert_eq!(lines(&writer), [7]);
    run(&mut writer, 3);
    assert_eq!((lines(&writer), writer.position()), (vec![8, 9, 10], 704));
    writer.publish_tail();
    assert_eq!(lines(&writer), []);
}

/// Goal: a reader that is lapped at every look for the newest end has found nothing yet. Where nothing moves, no honest writer is to
/// blame.
#[test]
fn a_reader_lapped_at_every_look_looks_again() {
    let memory = RingMemory::on_heap(4096);
    memory.control().limit.0.store(1 << 50, Ordering::Relaxed);
    let look = |is_there: fn(&Next<'_>) -> bool| is_there(&RingReader::from_start(memory.clone()).peek());
    assert!(look(|next| matches!(next, Next::Corrupt)));
    let ended = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for lap in 0.. {
                memory.control().tail.position.store(lap << 12, Ordering::Relaxed);
                if ended.load(Ordering::Relaxed) == 1 {
                    break;
                }
            }
        });
        // The thread that moves it may not run just then.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut looks = std::iter::repeat_with(|| look(|next| matches!(next, Next::Empty)));
        let found = looks.find(|is_empty| *is_empty || std::time::Instant::now() > end);
        ended.store(1, Ordering::Relaxed);
        assert_eq!(found, Some(true));
    });
}

#[test]
fn a_slow_reader_is_told_and_goes_on_with_the_newest() {
    let (mut writer, mut reader) = pair(1024);
    for number in 0..100 {
        publish(&mut writer, &frame(number, 100));
    }
    assert!(matches!(reader.peek(), Next::Overrun));
    assert_eq!(read(&mut reader), None);
    publish(&mut writer, b"newest");
    assert_eq!(read(&mut reader).as_deref(), Some(&b"newest"[..]));
}

#[test]
fn a_reader_lapped_by_exactly_one_ring_is_told() {
    let (mut writer, mut reader) = pair(1024);
    for _ in 0..1024 / LINE_SIZE {
        publish(&mut writer, &[1; 8]);
    }
    assert!(matches!(reader.peek(), Next::Overrun), "its commit word was set to zero by the newest commit");
}

#[test]
fn bytes_overwritten_while_they_are_read_are_not_intact() {
    let (mut writer, mut reader) = pair(1024);
    publish(&mut writer, &[1; 40]);
    let Next::Frame(frame) = reader.peek() else { panic!("it was published") };
    assert!(frame.is_intact());
    for _ in 0..1024 / LINE_SIZE {
        publish(&mut writer, &[2; 8]);
    }
    assert!(!frame.is_intact());
}

#[test]
fn a_lapped_reader_is_told_although_its_record_still_stands() {
    let (mut writer, mut reader) = pair(2048);
    for number in 0..8 {
        if number == 1 {
            assert!(read(&mut reader).is_some());
        }
        publish(&mut writer, &[1; 240]);
    }
    assert!(matches!(reader.peek(), Next::Overrun));
    assert!(matches!(reader.peek(), Next::Empty), "and goes on with the newest");
}

#[test]
fn a_reader_holds_the_writer_back() {
    let (mut writer, mut reader) = pair(1024);
    let mut written = 0;
    while writer.claim_held(40, &mut || reader.position()).is_ok() {
        writer.write(0, &[written; 40]);
        writer.commit();
        written += 1;
    }
    assert_eq!(writer.claim_held(40, &mut || reader.position()), Err(ClaimError::Full));
    assert!(
        usize::from(written) >= 1024 / record_end(0, 40, Spacing::Lines) as usize - 1,
        "only {written} fitted"
    );
    for number in 0..written {
        assert_eq!(read(&mut reader), Some(vec![number; 40]), "nothing was lost");
    }
    assert_eq!(writer.claim_held(40, &mut || reader.position()), Ok(()));
}

#[test]
fn a_message_that_cannot_fit_is_refused() {
    let (mut writer, _) = pair(1024);
    assert_eq!(writer.claim(249), Err(ClaimError::TooLong { size: 249, size_max: 248 }));
    assert_eq!(writer.claim(248), Ok(()));
}

#[test]
fn a_claim_may_be_made_again_without_committing() {
    let (mut writer, mut reader) = pair(1024);
    for _ in 0..100 {
        writer.claim(200).unwrap();
        writer.write(0, &[9; 200]);
    }
    assert_eq!(read(&mut reader), None);
    publish(&mut writer, b"only this");
    assert_eq!(read(&mut reader).as_deref(), Some(&b"only this"[..]));
}

/// Goal: a claim that was not committed is not committed later, at a place for which nobody looked whether there is room.
#[test]
#[should_panic(expected = "nothing was claimed")]
fn a_claim_is_void_once_something_was_sent_in_one_step() {
    let (mut writer, _reader) = pair(4096);
    writer.claim(200).unwrap();
    assert!(writer.append([1], &[], 0, Spacing::Lines));
    writer.commit();
}

/// Goal: no value that a hostile writer stores anywhere in its ring makes a reader panic or read outside.
#[test]
fn scribbles_are_corrupt_or_frames_never_a_panic() {
    let mut next_random = random_numbers();
    let memory = RingMemory::on_heap(1024);
    let mut reader = RingReader::from_start(memory.clone());
    let (mut frames, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let (position, sequence) = (reader.position(), reader.sequence());
        let value = match next_random() % 4 {
            0 => next_random(),
            1 => commit_word(sequence, next_random() & (SIZE_MASK | DENSE | FLAGS_MASK)),
            2 => commit_word(sequence, next_random() % 300),
            _ => commit_word(sequence, PADDING),
        };
        memory.word(position).store(value, Ordering::Relaxed);
        match next_random() % 50 {
            0 => memory.control().limit.0.store(next_random(), Ordering::Relaxed),
            1 => memory.control().tail.position.store(next_random(), Ordering::Relaxed),
            2 => memory.control().tail.sequence.store(next_random(), Ordering::Relaxed),
            3 => memory.control().limit.0.store(0, Ordering::Relaxed),
            _ => {}
        }
        match reader.peek() {
            Next::Frame(frame) => {
                frame.bytes().to_vec();
                if frame.is_intact() {
                    frame.consume();
                }
                frames += 1;
            }
            Next::Empty => {}
            Next::Overrun | Next::Corrupt => {
                refused += 1;
                reader = RingReader::from_start(memory.clone());
            }
        }
    }
    assert!(frames > 1_000 && refused > 1_000, "{frames} {refused}: the test tries both");
}

/// Goal: a fast writer and a slow reader in two threads; no frame that passes `is_intact` is torn.
#[test]
fn nothing_torn_is_believed() {
    believe_nothing_torn(4096, 5);
}

/// Goal: the same of runs that are long enough to go past the caches, on processors that are better at that.
#[test]
fn nothing_torn_of_a_long_run_is_believed() {
    believe_nothing_torn(1 << 16, 300);
}

/// Of each way of sending, so many records follow each other.
fn believe_nothing_torn(capacity: usize, records: u64) {
    const READS: u64 = 20_000;
    let memory = RingMemory::on_heap(capacity);
    let enough = Arc::new(AtomicU64::new(0));
    let (writer_memory, writer_enough) = (memory.clone(), Arc::clone(&enough));
    let thread = std::thread::spawn(move || {
        let mut writer = RingWriter::new(writer_memory);
        let mut number = 0_u64;
        while writer_enough.load(Ordering::Relaxed) == 0 {
            number += 1;
            send(&mut writer, number / records, &number.to_le_bytes().repeat(1 + (number % 60) as usize));
        }
    });
    let mut reader = RingReader::from_start(memory);
    let (mut buffer, mut last, mut read, mut overruns) = ([0; 1024], 0, 0_u64, 0_u64);
    while read < READS || overruns == 0 {
        match reader.peek() {
            Next::Frame(frame) => {
                let size = frame.bytes().copy_to(&mut buffer);
                if frame.is_intact() {
                    let number = u64::from_le_bytes(*buffer.first_chunk().unwrap());
                    assert!(number > last, "{number} after {last}");
                    assert_eq!(size as u64, 8 * (1 + number % 60));
                    assert!(
                        buffer[..size].chunks(8).all(|word| word == number.to_le_bytes()),
                        "torn {number}"
                    );
                    (last, read) = (number, read + 1);
                    frame.consume();
                }
            }
            Next::Overrun => overruns += 1,
            Next::Corrupt => panic!("an honest writer"),
            Next::Empty => std::thread::yield_now(),
        }
    }
    enough.store(1, Ordering::Relaxed);
    thread.join().unwrap();
}

/// Goal: a writer that had no reader for longer than a lap is held back by one that joins then.
#[test]
fn a_reader_that_joins_late_holds_back_too() {
    let memory = RingMemory::on_heap(4096);
    let mut writer = RingWriter::new(memory.clone());
    for _ in 0..1000 {
        writer.claim_held(56, &mut || u64::MAX).unwrap();
        writer.commit();
    }
    let mut reader = RingReader::from_now(memory);
    let mut cursor = reader.position();
    reader.move_to_now();
    let mut taken = 0;
    while writer.claim_held(56, &mut || cursor).is_ok() {
        writer.commit();
        taken += 1;
        assert!(taken < 1000, "nobody holds the writer back");
    }
    for _ in 0..taken {
        assert_eq!(read(&mut reader), Some(vec![0; 56]));
    }
    assert_eq!(read(&mut reader), None);
    cursor = reader.position();
    writer.claim_held(56, &mut || cursor).unwrap();
}

/// Goal: numbers are the account. The sum `begin + consumed + lost` is the number that is next, regardless of what a reader missed. A
/// run of records that its writer has not told of yet is neither lost nor read twice.
#[test]
fn numbers_account_for_every_record() {
    let memory = RingMemory::on_heap(4096);
    let mut writer = RingWriter::new(memory.clone());
    let mut reader = RingReader::from_start(memory.clone());
    let mut joined = RingReader::from_now(memory.clone());
    let (mut read, mut number) = (0, 0_u64);
    for turn in 0..5_000_u64 {
        for _ in 0..turn % 97 {
            let (flags, spacing) =
                ((number % 4) as u8, if turn.is_multiple_of(2) { Spacing::Lines } else { Spacing::Dense });
            if !writer.append([number], &[], flags, spacing) {
                writer.claim_spaced(8, spacing, &mut || u64::MAX).unwrap();
                writer.write(0, &number.to_ne_bytes());
                writer.commit_in_run(flags);
            }
            number += 1;
        }
        if turn % 3 == 0 {
            joined = RingReader::from_now(memory.clone());
        }
        assert!(joined.sequence() <= number);
        writer.publish_tail();
        loop {
            match reader.peek() {
                Next::Frame(frame) => {
                    let said = frame.bytes().word(0).unwrap();
                    assert_eq!((said, u64::from(frame.flags())), (frame.sequence(), said % 4));
                    frame.consume();
                    read += 1;
                }
                Next::Overrun => {}
                _ => break,
            }
        }
        assert_eq!(read + reader.lost(), number);
        if let Next::Frame(frame) = joined.peek() {
            assert_eq!(frame.bytes().word(0), Some(frame.sequence()));
        }
    }
    assert_eq!(writer.sequence(), number);
    assert!(read > 10_000 && reader.lost() > 10_000, "{read} read, {} lost", reader.lost());
}

/// Goal: safe code cannot have two writers of one ring, whose claims would be the same bytes.
#[test]
#[should_panic(expected = "a ring has one writer")]
fn a_ring_on_the_heap_has_one_writer() {
    let memory = RingMemory::on_heap(4096);
    let _first = RingWriter::new(memory.clone());
    RingWriter::new(memory);
}

/// Goal: nor of two that overlap in one mapping, while those that do not have a writer each.
#[test]
fn rings_that_overlap_have_one_writer() {
    const PAGE: usize = 4096;
    let mapping = Arc::new(crate::memory::Mapping::anonymous(8 * PAGE).unwrap());
    let take = |control_at, records_at| {
        let memory = RingMemory::in_mapping(Arc::clone(&mapping), control_at, records_at, PAGE).unwrap();
        std::panic::catch_unwind(|| RingWriter::new(memory)).is_ok()
    };
    assert!(take(0, PAGE));
    assert!(take(2 * PAGE, 3 * PAGE));
    for (control_at, records_at) in
        [(0, PAGE), (0, 5 * PAGE), (4 * PAGE, PAGE + 2048), (PAGE + 128, 5 * PAGE)]
    {
        assert!(!take(control_at, records_at), "{control_at} {records_at}");
    }
    assert!(take(4 * PAGE, 5 * PAGE));
}
