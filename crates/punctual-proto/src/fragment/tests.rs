//! Cutting and putting together, in any order, with loss and malice.

use proptest::prelude::*;

use super::receipt::WINDOW_WORDS;
use super::*;
use crate::limits::{
    ASSEMBLIES_MAX, ASSEMBLY_AGE, FRAGMENT_ROOM_FIRST, FRAGMENT_WINDOW, PAYLOAD_SIZE_MAX, SILENCE_MAX,
};
use crate::sim::Rng;
use crate::time::Nanos;
use alloc::collections::VecDeque;

const NOW: Nanos = Nanos(0);
const FREE: usize = 4 * MESSAGE_SIZE_MAX;

fn message(number: u32, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at as u32 * 31 + number) as u8).collect()
}

fn heads(number: u32, size: usize, fragment_size: usize) -> Vec<Head> {
    Cut::new(number, size, fragment_size + HEAD_SIZE).unwrap().collect()
}

/// Takes one fragment of a message; the message, once it is whole.
fn feed(
    assembler: &mut Assembler<u8>,
    head: &Head,
    whole: &[u8],
    now: Nanos,
) -> Result<Option<Vec<u8>>, Refused> {
    let free = FREE - assembler.held();
    let place = assembler.place(0, head, now, free)?;
    assembler.room(place, head).copy_from_slice(&whole[head.range()]);
    Ok(if assembler.fill(place, head, now) { Some(assembler.take(place)) } else { None })
}

/// The layout is a contract: it is in `docs/large.md`.
#[test]
fn a_head_is_laid_out_as_documented() {
    let head = Head {
        number: 0x0403_0201,
        message_size: 0x0003_0000,
        at: 0x0001_0000,
        fragment_size: 0x8000,
        is_repaired: false,
    };
    let bytes = head.to_bytes();
    assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0x80, 0, 0]);
    assert_eq!(Head::read(&bytes, 0x8000), Some(head));
    assert_eq!(Head::read(&bytes, 0x7FFF), None, "the medium knows better how much there is");
}

#[test]
fn a_head_that_no_sender_writes_is_refused() {
    let good = Head { number: 1, message_size: 1_000, at: 512, fragment_size: 512, is_repaired: false };
    let read = |head: Head| Head::read(&head.to_bytes(), head.range().len());
    assert_eq!(read(good), Some(good));
    let huge = MESSAGE_SIZE_MAX as u32 + 1;
    for bad in [
        Head { message_size: 0, at: 0, ..good },
        Head { message_size: huge, ..good },
        Head { at: 1_000, ..good },
        Head { at: 513, ..good },
        Head { fragment_size: 0, at: 0, ..good },
        Head { fragment_size: FRAGMENT_SIZE_MIN as u32 - 1, at: 0, ..good },
    ] {
        let bytes = bad.to_bytes();
        for size in [0, 1, 487, 488, 512, 1_000] {
            assert_eq!(Head::read(&bytes, size), None, "{bad:?}");
        }
    }
    assert!(Cut::new(0, MESSAGE_SIZE_MAX + 1, 1 << 16).is_none() && Cut::new(0, 0, 1 << 16).is_none());
    assert!(
        Cut::new(0, 1_000, FRAGMENT_SIZE_MIN + HEAD_SIZE - 1).is_none() && Cut::new(0, 1_000, 3).is_none()
    );
    assert_eq!(Cut::new(0, MESSAGE_SIZE_MAX, FRAGMENT_SIZE_MIN + HEAD_SIZE).unwrap().count(), 1 << 18);
    assert_eq!(Cut::new(0, MESSAGE_SIZE_MAX, PAYLOAD_SIZE_MAX).unwrap().count(), 5);
}

#[test]
fn a_message_that_ended_is_not_begun_again() {
    let mut assembler = Assembler::new(4_000);
    let (sent, heads) = (message(1, 1_000), heads(1, 1_000, 512));
    assert_eq!(feed(&mut assembler, &heads[1], &sent, NOW), Ok(None));
    assert_eq!(feed(&mut assembler, &heads[0], &sent, NOW), Ok(Some(sent.clone())));
    assert_eq!(feed(&mut assembler, &heads[1], &sent, NOW), Err(Refused::Ended));
    assert_eq!((assembler.take_lost(), assembler.held(), assembler.is_empty()), (0, 0, true));
}

#[test]
fn a_fragment_that_contradicts_those_before_is_refused() {
    let mut assembler = Assembler::new(4_000);
    feed(&mut assembler, &heads(1, 1_000, 512)[0], &message(1, 1_000), NOW).unwrap();
    for other in [heads(1, 1_001, 512)[1], heads(1, 1_000, 256)[1]] {
        assert_eq!(feed(&mut assembler, &other, &message(1, 1_001), NOW), Err(Refused::Contradiction));
    }
    assert_eq!(
        feed(&mut assembler, &heads(2, 4_001, 512)[0], &message(2, 4_001), NOW),
        Err(Refused::TooLong)
    );
    assert_eq!(assembler.held(), 1_000);
}

#[test]
fn a_message_without_fragments_for_long_is_given_up() {
    let mut assembler = Assembler::new(4_000);
    let (early, late) = (Nanos(5), Nanos(7));
    feed(&mut assembler, &heads(1, 1_000, 512)[0], &message(1, 1_000), early).unwrap();
    feed(&mut assembler, &heads(2, 1_000, 512)[0], &message(2, 1_000), late).unwrap();
    assembler.handle_timeout(early.plus(ASSEMBLY_AGE));
    assert_eq!((assembler.take_lost(), assembler.held()), (1, 1_000));
    assert_eq!(feed(&mut assembler, &heads(1, 1_000, 512)[1], &message(1, 1_000), late), Err(Refused::Ended));
    assembler.handle_end();
    assert_eq!((assembler.take_lost(), assembler.held()), (1, 0));
}

/// Goal: the memory of a message is that of the next one of about its size, and is freed when none comes. Nothing of the older one
/// shows.
#[test]
fn memory_that_is_given_back_is_used_again() {
    let mut assembler = Assembler::new(4_000);
    let mut at = None;
    for (number, size) in [4_000, 2_000, 3_000, 4_000].into_iter().enumerate() {
        let sent = message(number as u32, size);
        let mut heads = heads(number as u32, size, 512);
        heads.reverse();
        let taken = heads.iter().filter_map(|head| feed(&mut assembler, head, &sent, NOW).unwrap()).next();
        let taken = taken.expect("whole");
        assert_eq!(taken, sent);
        assert_eq!(*at.get_or_insert(taken.as_ptr()), taken.as_ptr(), "{size}");
        assembler.give_back(taken, NOW);
    }
    assembler.handle_timeout(NOW);
    assert!(!assembler.is_empty());
    assembler.handle_timeout(NOW.plus(ASSEMBLY_AGE));
    assert!(assembler.is_empty());
}

/// Goal: a message that waits for its rest takes the memory that is counted, and no more, regardless of earlier messages. Method: a
/// large message is taken and its memory given back; then come the first fragments of smaller ones.
#[test]
fn a_message_in_the_making_takes_what_is_counted() {
    const LARGEST: usize = 100_000;
    for small in [300, LARGEST / 2 - 1, LARGEST / 2, LARGEST - 1] {
        let mut assembler = Assembler::new(LARGEST);
        for number in 0..20 {
            let large = message(2 * number, LARGEST);
            let mut whole = None;
            for head in heads(2 * number, LARGEST, 512) {
                whole = feed(&mut assembler, &head, &large, NOW).unwrap().or(whole);
            }
            assembler.give_back(whole.expect("room for it"), NOW);
            let first = heads(2 * number + 1, small, 256)[0];
            assembler.place(0, &first, NOW, 4 * LARGEST - assembler.held()).unwrap();
            let takes = assembler.memory();
            assert_eq!(takes, assembler.held(), "{small}");
            assert!(takes <= 4 * LARGEST && takes <= 2 * (number as usize + 1) * small, "{small}: {takes}");
        }
    }
}

/// Goal: memory is for the newest, and never beyond its bound; a message without any room is counted once.
#[test]
fn the_message_that_waited_longest_makes_room() {
    let mut assembler = Assembler::new(4_000);
    let free = |assembler: &Assembler<u8>| 8_000 - assembler.held();
    for number in 0..5 {
        let head = heads(number, 4_000, 512)[0];
        let now = Nanos(number.into());
        let place = assembler.place(0, &head, now, free(&assembler)).unwrap();
        assembler.fill(place, &head, now);
        assert!(assembler.held() <= 8_000);
    }
    assert_eq!(assembler.take_lost(), 3);
    assert_eq!(assembler.place(0, &heads(2, 4_000, 512)[1], NOW, 0), Err(Refused::Ended));
    assert!(assembler.place(0, &heads(3, 4_000, 512)[1], NOW, 0).is_ok(), "the two newest are there");
    let mut other = Assembler::new(4_000);
    for head in heads(9, 4_000, 512) {
        assert_eq!(other.place(0, &head, NOW, 3_999), Err(Refused::Ended));
    }
    assert_eq!(other.take_lost(), 1);
}

/// Goal: a whole message that its receiver has not taken yet is not given up, regardless of what comes.
#[test]
fn a_whole_message_waits_for_its_receiver() {
    let mut assembler = Assembler::new(1_000);
    let sent = message(0, 1_000);
    let mut place = None;
    for head in heads(0, 1_000, 512) {
        let at = assembler.place(0, &head, NOW, FREE).unwrap();
        assembler.room(at, &head).copy_from_slice(&sent[head.range()]);
        place = assembler.fill(at, &head, NOW).then_some((at, head));
    }
    let (_, last) = place.unwrap();
    for number in 1..3 * ASSEMBLIES_MAX as u32 {
        assembler.place(0, &heads(number, 900, 512)[0], Nanos(number.into()), FREE).unwrap();
        assert!(assembler.held() <= 1_000 + (ASSEMBLIES_MAX - 1) * 900);
    }
    let mut now = NOW;
    for _ in 0..5 {
        now = now.plus(Nanos(ASSEMBLY_AGE.0 - 1));
        let again = assembler.place(0, &last, now, 0).unwrap();
        assert!(assembler.fill(again, &last, now));
        assembler.handle_timeout(now);
    }
    let again = assembler.place(0, &last, now, 0).unwrap();
    assert_eq!(assembler.bytes(again), sent);
    assert_eq!(assembler.take(again), sent);
}

/// Goal: a whole message that was written over before its receiver had room for it is counted, and takes no memory for good.
#[test]
fn a_whole_message_that_nobody_looks_at_any_more_is_lost() {
    let mut assembler = Assembler::new(1_000);
    for head in heads(0, 1_000, 512) {
        let at = assembler.place(0, &head, NOW, FREE).unwrap();
        assembler.fill(at, &head, NOW);
    }
    assembler.handle_timeout(NOW.plus(Nanos(ASSEMBLY_AGE.0 - 1)));
    assert_eq!((assembler.take_lost(), assembler.is_empty()), (0, false));
    assembler.handle_timeout(NOW.plus(ASSEMBLY_AGE));
    assert_eq!((assembler.take_lost(), assembler.held()), (1, 0));
}

const PATIENCE: Nanos = Nanos::from_millis(1_000);

fn courier(size: usize) -> Courier {
    courier_with(size, PATIENCE)
}

fn courier_with(size: usize, patience: Nanos) -> Courier {
    Courier::new(Cut::new(5, size, FRAGMENT_SIZE_MIN + HEAD_SIZE).unwrap(), patience, NOW)
}

fn receipt(question: u32, room: u32, progress: Progress) -> Receipt {
    Receipt { number: 5, question, room, progress }
}

/// Everything that is to be said now: where fragments begin, and the last question.
fn said(courier: &mut Courier, now: Nanos) -> (Vec<u32>, u32) {
    let (mut fragments, mut last) = (Vec::new(), 0);
    while let Some(say) = courier.poll_transmit(now) {
        match say {
            Say::Fragment(head) => fragments.push(head.at / head.fragment_size),
            Say::Question(question) => last = question.number,
        }
    }
    (fragments, last)
}

/// The layout is a contract: it is in `docs/large.md`.
#[test]
fn questions_and_receipts_are_laid_out_as_documented() {
    let message = Head {
        number: 0x0403_0201,
        message_size: 0x0003_0000,
        at: 0,
        fragment_size: 0x8000,
        is_repaired: true,
    };
    let question = Question { message, number: 7 };
    assert_eq!(question.to_bytes(), [1, 2, 3, 4, 0, 0, 3, 0x80, 7, 0, 0, 0, 0, 0x80, 0, 0]);
    assert_eq!(Part::read(&question.to_bytes()), Some(Part::Question(question)));
    let mut progress = Progress { base: 9, ..Progress::of(State::Partial) };
    progress.present[0] = 0b110;
    let receipt = Receipt { number: 0x0403_0201, question: 7, room: 0x0200, progress };
    let mut bytes = [0xFF; RECEIPT_SIZE_MAX];
    let size = receipt.write(&mut bytes);
    let fields = [1, 2, 3, 4, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 9, 0, 0, 0];
    assert_eq!((&bytes[..24], &bytes[24..size]), (&fields[..], &[6, 0, 0, 0, 0, 0, 0, 0][..]));
    assert_eq!(Part::read(&bytes[..size]), Some(Part::Receipt(receipt)));
    for wrong in [&bytes[..size - 1], &bytes[..16], &bytes[..15], &[]] {
        assert_eq!(Part::read(wrong), None, "{}", wrong.len());
    }
    bytes[12] = 5;
    assert_eq!(Part::read(&bytes[..size]), None, "a state of which nobody knows");
    assert_eq!(Part::read(&[0; RECEIPT_SIZE_MAX + 8]), None, "more bits than a window has");
}

/// Goal: no more is under way than there is said to be room for, and what is lost is sent again first.
#[test]
fn missing_fragments_are_sent_again_within_the_room_there_is() {
    let mut courier = courier(1_000 * FRAGMENT_SIZE_MIN);
    let (fragments, asked) = said(&mut courier, NOW);
    let first = FRAGMENT_ROOM_FIRST / FRAGMENT_SIZE_MIN as u32;
    assert_eq!(fragments, (0..first).collect::<Vec<u32>>());
    let mut progress = Progress { base: 3, ..Progress::of(State::Partial) };
    progress.present.fill(u64::MAX);
    progress.present[0] &= !0b1001;
    // Bits beyond what was sent say nothing.
    courier.handle_receipt(&receipt(asked, 40 * FRAGMENT_SIZE_MIN as u32, progress), NOW);
    let (fragments, _) = said(&mut courier, NOW);
    let expected: Vec<u32> = [3, 6].into_iter().chain(first..first + 38).collect();
    assert_eq!(fragments, expected);
    assert_eq!(courier.ending(), None);
}

/// Goal: receipts that no receiver sends change nothing: of other messages, of questions that were not asked, of fragments that were
/// not sent.
#[test]
fn a_receipt_that_no_receiver_sends_is_passed_over() {
    let mut courier = courier(2_000 * FRAGMENT_SIZE_MIN);
    let (sent, asked) = said(&mut courier, NOW);
    let far = Progress { base: sent.len() as u32 + 1, ..Progress::of(State::Partial) };
    let other = Receipt { number: 6, ..receipt(asked, u32::MAX, Progress::of(State::Whole)) };
    let early = receipt(asked + 1, u32::MAX, Progress::of(State::Whole));
    for wrong in [other, early, receipt(asked, u32::MAX, far)] {
        courier.handle_receipt(&wrong, NOW);
        assert_eq!((courier.ending(), said(&mut courier, NOW).0.len()), (None, 0), "{wrong:?}");
    }
    let half = Progress { base: sent.len() as u32, ..Progress::of(State::Partial) };
    courier.handle_receipt(&receipt(asked, u32::MAX, half), NOW);
    let (more, asked) = said(&mut courier, NOW);
    assert_eq!(more.first(), Some(&(sent.len() as u32)));
    courier.handle_receipt(&receipt(asked, u32::MAX, Progress::of(State::Unknown)), NOW);
    assert_eq!(courier.ending(), Some(Ending::Lost), "the receiver has lost the fragments that it had");
}

/// Goal: a receiver that begins anew in the middle of a message is noticed by its answer, an answer that is late by its question.
#[test]
fn a_receiver_that_begins_anew_lacks_what_had_come() {
    let mut courier = courier(2_000 * FRAGMENT_SIZE_MIN);
    let (_, first) = said(&mut courier, NOW);
    let partial = |base| Progress { base, ..Progress::of(State::Partial) };
    courier.handle_receipt(&receipt(first - 1, u32::MAX, partial(4)), NOW);
    courier.handle_receipt(&receipt(first, u32::MAX, partial(2)), NOW);
    assert_eq!(courier.ending(), None, "asked before 4 were known to have come: it may be late");
    let (_, second) = said(&mut courier, NOW);
    assert!(second > first);
    courier.handle_receipt(&receipt(second, u32::MAX, partial(0)), NOW);
    assert_eq!(courier.ending(), Some(Ending::Lost));
}

/// Goal: the same where the first fragment is the only one that the new life has, and was the only one that the old one lacked.
#[test]
fn a_receiver_that_begins_anew_with_the_missing_part_lacks_the_rest() {
    let mut courier = courier(2_000 * FRAGMENT_SIZE_MIN);
    let partial = |base, present| {
        let mut progress = Progress { base, ..Progress::of(State::Partial) };
        progress.present[0] = present;
        progress
    };
    let (_, first) = said(&mut courier, NOW);
    courier.handle_receipt(&receipt(first - 1, u32::MAX, partial(0, 0b110)), NOW);
    courier.handle_receipt(&receipt(first, u32::MAX, partial(1, 0)), NOW);
    assert_eq!(courier.ending(), None, "asked before the others were known to have come: it may be late");
    let (_, second) = said(&mut courier, NOW);
    assert!(second > first);
    courier.handle_receipt(&receipt(second, u32::MAX, partial(1, 0)), NOW);
    assert_eq!(courier.ending(), Some(Ending::Lost));
}

/// Goal: a sender that waits without end is told when everything was sent and nothing is said any more. It goes on where something was
/// not sent.
#[test]
fn patience_without_end_has_one_where_all_was_sent() {
    let ended_at = |size| {
        let mut courier = courier_with(size, Nanos::NEVER);
        let mut now = NOW;
        while courier.ending().is_none() && now < NOW.plus(Nanos::from_millis(60_000)) {
            said(&mut courier, now);
            now = courier.poll_timeout();
            courier.handle_timeout(now);
        }
        courier.ending().map(|ending| (ending, now.since(NOW)))
    };
    assert_eq!(ended_at(4_000), Some((Ending::Silent { all_sent: true }, SILENCE_MAX)));
    assert_eq!(ended_at(1 << 20), None);
}

/// Goal: a silent receiver is asked again, less and less often, and for no longer than there is patience; the part that it may have is
/// told.
#[test]
fn silence_ends() {
    for (size, all_sent) in [(4_000, true), (1 << 20, false)] {
        let mut courier = courier(size);
        let (mut now, mut asked, mut pauses) = (NOW, 0, Vec::new());
        while courier.ending().is_none() {
            let (_, question) = said(&mut courier, now);
            if question > 0 {
                asked = question;
            }
            let next = courier.poll_timeout();
            assert!(next > now);
            pauses.push(next.since(now));
            now = next;
            courier.handle_timeout(now);
        }
        assert_eq!((courier.ending(), now), (Some(Ending::Silent { all_sent }), PATIENCE));
        assert!(pauses.windows(2).take(pauses.len() - 2).all(|two| two[0] <= two[1]), "{pauses:?}");
        assert!(asked < 40 && courier.poll_transmit(now).is_none());
    }
}

/// Goal: a suspend with which the counter begins anew makes no sender wait for as long as that had run.
#[test]
fn a_counter_that_begins_anew_ends_a_silence() {
    let before = NOW.plus(Nanos::from_millis(3_600_000));
    let mut courier =
        Courier::new(Cut::new(5, 4_000, FRAGMENT_SIZE_MIN + HEAD_SIZE).unwrap(), PATIENCE.since(NOW), before);
    said(&mut courier, before);
    let (mut now, mut asked) = (NOW, 0);
    courier.handle_timeout(now);
    while courier.ending().is_none() && now < NOW.plus(Nanos::from_millis(60_000)) {
        asked = asked.max(said(&mut courier, now).1);
        now = courier.poll_timeout();
        courier.handle_timeout(now);
    }
    assert!(asked > 1 && courier.ending() == Some(Ending::Silent { all_sent: true }), "{asked}, {now:?}");
}

/// Goal: a sender that asked is told of every ending, and the newest of a sender is not forgotten for others.
#[test]
fn an_answer_says_what_became_of_a_message() {
    let mut assembler = Assembler::new(4_000);
    let head = heads(1, 1_000, 512)[0];
    let state = |assembler: &mut Assembler<u8>, head: &Head| assembler.answer(0, head, NOW).state;
    assert_eq!(state(&mut assembler, &head), State::Unknown);
    assert_eq!(state(&mut assembler, &Head { message_size: 4_001, ..head }), State::Refused);
    feed(&mut assembler, &heads(1, 1_000, 512)[1], &message(1, 1_000), NOW).unwrap();
    let progress = assembler.answer(0, &head, NOW);
    assert_eq!((progress.state, progress.base, progress.present[0]), (State::Partial, 0, 0b10));
    feed(&mut assembler, &head, &message(1, 1_000), NOW).unwrap();
    assert_eq!(state(&mut assembler, &head), State::Whole);
    for number in 2..1_000 {
        let place = assembler.place(1, &heads(number, 900, 512)[0], NOW, 4_000).unwrap();
        assembler.fill(place, &heads(number, 900, 512)[0], NOW);
        assembler.handle_end();
    }
    assert_eq!(state(&mut assembler, &head), State::Whole);
    assert_eq!(assembler.answer(1, &heads(999, 900, 512)[0], NOW).state, State::Lost);
}

/// Goal: while a sender asks, its message is not given up.
#[test]
fn a_question_keeps_a_message() {
    let mut assembler = Assembler::new(4_000);
    let head = heads(1, 1_000, 512)[0];
    feed(&mut assembler, &head, &message(1, 1_000), NOW).unwrap();
    assembler.answer(0, &head, ASSEMBLY_AGE);
    assembler.handle_timeout(ASSEMBLY_AGE.plus(Nanos(1)));
    assert_eq!(assembler.take_lost(), 0);
    assembler.handle_timeout(ASSEMBLY_AGE.plus(ASSEMBLY_AGE));
    assert_eq!(assembler.take_lost(), 1);
}

/// Brings a message over a line that loses so many of eight frames each way, with up to so many frames on it; the frames that it took.
fn bring(size: usize, room: u32, loss: u64, dice: &mut Rng) -> usize {
    let sent = message(5, size);
    // No run of losses is as long.
    let (mut courier, mut assembler) =
        (courier_with(size, Nanos::from_millis(100_000)), Assembler::new(size));
    let (mut line, mut now, mut frames) = (VecDeque::new(), NOW, 0);
    loop {
        while let Some(say) = courier.poll_transmit(now) {
            frames += 1;
            if dice.below(8) >= loss {
                line.push_back(say);
            }
        }
        let Some(say) = line.pop_front() else {
            now = courier.poll_timeout();
            courier.handle_timeout(now);
            assert_eq!(courier.ending(), None, "{frames} frames");
            continue;
        };
        match say {
            Say::Fragment(head) => match feed(&mut assembler, &head, &sent, now) {
                Ok(whole) => assert!(whole.is_none_or(|whole| whole == sent)),
                Err(refused) => assert_eq!(refused, Refused::Ended),
            },
            Say::Question(Question { message, number }) => {
                let receipt = receipt(number, room, assembler.answer(0, &message, now));
                if dice.below(8) >= loss {
                    courier.handle_receipt(&receipt, now);
                }
            }
        }
        if let Some(ending) = courier.ending() {
            assert_eq!((ending, assembler.is_empty()), (Ending::Whole, true));
            return frames;
        }
    }
}

/// Goal: a message of many windows arrives, with little more than was lost sent again.
#[test]
fn many_windows_arrive_whatever_is_lost() {
    let count = 5 * FRAGMENT_WINDOW;
    for (loss, room) in [(0, u32::MAX), (1, u32::MAX), (3, u32::MAX), (1, 0), (0, 70_000)] {
        let frames = bring(count * FRAGMENT_SIZE_MIN - 3, room, loss, &mut Rng::at(&[loss, room.into()]));
        let fragments = count * 8 / (8 - loss as usize);
        // A question at least with each quarter of a window, and, where there is room for one fragment, with each.
        let questions = if room == 0 { 3 * fragments } else { fragments / 4 };
        assert!((count..fragments + questions).contains(&frames), "{loss} of 8, room {room}: {frames}");
    }
}

proptest! {
    /// Goal: a receipt that was written reads back as itself.
    #[test]
    fn a_receipt_reads_back(
        fields in any::<[u32; 4]>(),
        state in 0_usize..5,
        present in proptest::collection::vec(any::<u64>(), 0..=WINDOW_WORDS),
    ) {
        let [number, question, room, base] = fields;
        let states = [State::Unknown, State::Partial, State::Whole, State::Lost, State::Refused];
        let mut progress = Progress { base, ..Progress::of(states[state]) };
        progress.present[..present.len()].copy_from_slice(&present);
        let receipt = Receipt { number, question, room, progress };
        let mut bytes = [0; RECEIPT_SIZE_MAX];
        let size = receipt.write(&mut bytes);
        prop_assert_eq!(Part::read(&bytes[..size]), Some(Part::Receipt(receipt)));
    }

    /// Goal: messages of any size arrive over a line that loses, for any room.
    #[test]
    fn any_message_is_brought(size in 1_usize..400_000, room in 0_u32..200_000, loss in 0_u64..4, seed in any::<u64>()) {
        bring(size, room, loss, &mut Rng::at(&[seed]));
    }

    /// Goal: no receipt makes a courier panic or say anything that is not of its message, and it ends.
    #[test]
    fn any_answers_are_survived(
        size in 1_usize..600_000,
        answers in proptest::collection::vec((0_u32..40, 0_u32..3_000, 0_usize..6, any::<u64>(), 0_u32..50), 0..60),
    ) {
        let (mut courier, mut now) = (courier(size), NOW);
        let states = [State::Unknown, State::Partial, State::Partial, State::Partial, State::Partial, State::Refused];
        for (question, base, state, bits, pause) in answers {
            for _ in 0..5_000 {
                let Some(say) = courier.poll_transmit(now) else { break };
                let Say::Fragment(head) = say else { continue };
                prop_assert!(head.can_be() && head.range().end <= size);
            }
            prop_assert!(courier.poll_transmit(now).is_none(), "it never ends");
            let mut progress = Progress { base, ..Progress::of(states[state]) };
            progress.present.fill(bits);
            courier.handle_receipt(&receipt(question, bits as u32, progress), now);
            now = now.plus(Nanos::from_millis(pause));
            courier.handle_timeout(now);
        }
        courier.handle_timeout(now.plus(PATIENCE));
        prop_assert!(courier.ending().is_some());
    }

    /// Goal: despite any loss, duplication and reordering, a message is delivered once and as it was sent, or counted once. Oracle: the
    /// fragments that were let through.
    #[test]
    fn each_message_is_whole_or_counted(
        sizes in proptest::collection::vec(1_usize..20_000, 1..20),
        fragment_size in FRAGMENT_SIZE_MIN..3_000,
        order in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        loss in 0_u64..4,
    ) {
        let mut dice = Rng::at(&[seed]);
        let mut arriving = Vec::new();
        let mut expected = vec![(0, 0); sizes.len()];
        for (number, size) in sizes.iter().enumerate() {
            for head in heads(number as u32, *size, fragment_size) {
                expected[number].1 += 1;
                if dice.below(8) >= loss {
                    expected[number].0 += 1;
                    for _ in 0..=dice.below(2) {
                        arriving.push(head);
                    }
                }
            }
        }
        for at in 0..arriving.len() {
            let other = (order.index(arriving.len()) + dice.below(arriving.len() as u64) as usize) % arriving.len();
            arriving.swap(at, other);
        }
        let mut assembler = Assembler::new(20_000);
        let mut delivered = vec![0; sizes.len()];
        for head in &arriving {
            let number = head.number as usize;
            let sent = message(head.number, sizes[number]);
            if let Ok(Some(whole)) = feed(&mut assembler, head, &sent, NOW) {
                prop_assert_eq!(whole, sent);
                delivered[number] += 1;
            }
        }
        assembler.handle_end();
        for (number, (through, count)) in expected.iter().enumerate() {
            prop_assert_eq!(delivered[number], i32::from(through == count), "seed {}", seed);
        }
        let begun = expected.iter().filter(|(through, _)| *through > 0).count();
        let whole: i32 = delivered.iter().sum();
        prop_assert_eq!(assembler.take_lost() as usize + whole as usize, begun);
    }

    /// Goal: bytes from outside make nothing grow beyond its bounds, and never panic.
    #[test]
    fn any_head_is_refused_or_within_bounds(
        fields in proptest::collection::vec((0_u32..4, any::<[u32; 3]>(), any::<bool>()), 1..200),
    ) {
        let mut assembler = Assembler::new(1 << 16);
        for (number, [message_size, at, fragment_size], likely) in fields {
            let mut head = Head { number, message_size, at, fragment_size, is_repaired: likely };
            if likely {
                head.message_size = 1 + message_size % (1 << 17);
                head.fragment_size = FRAGMENT_SIZE_MIN as u32 + fragment_size % 5_000;
                head.at = at % head.message_size / head.fragment_size * head.fragment_size;
            }
            let size = if head.can_be() { head.range().len() } else { 100 };
            let Some(head) = Head::read(&head.to_bytes(), size) else { continue };
            let free = (1 << 17) - assembler.held();
            if let Ok(place) = assembler.place(0_u8, &head, NOW, free) {
                assembler.room(place, &head).fill(1);
                if assembler.fill(place, &head, NOW) {
                    prop_assert!(assembler.take(place).iter().all(|byte| *byte == 1));
                }
            }
            prop_assert!(assembler.held() <= 1 << 17);
        }
    }
}
