//! Cutting and putting together: whatever order, loss and malice.

use proptest::prelude::*;

use super::*;
use crate::limits::{ASSEMBLIES_MAX, ASSEMBLY_AGE, PAYLOAD_SIZE_MAX};
use crate::time::Nanos;

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

/// The layout is a contract: it is in `docs/wire.md`.
#[test]
fn a_head_is_laid_out_as_documented() {
    let head =
        Head { number: 0x0403_0201, message_size: 0x0003_0000, at: 0x0001_0000, fragment_size: 0x8000 };
    let bytes = head.to_bytes();
    assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0x80, 0, 0]);
    assert_eq!(Head::read(&bytes, 0x8000), Some(head));
    assert_eq!(Head::read(&bytes, 0x7FFF), None, "the medium knows better how much there is");
}

#[test]
fn what_no_sender_writes_is_refused() {
    let good = Head { number: 1, message_size: 1_000, at: 512, fragment_size: 512 };
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
fn what_has_no_fragment_for_long_is_given_up() {
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

/// Goal: memory is for the newest, and never beyond its bound; what has no room at all is counted once.
#[test]
fn who_waited_longest_makes_room() {
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

/// Goal: a whole message that its receiver has not taken yet is not given up, whatever comes.
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
    assembler.handle_timeout(Nanos::NEVER);
    let again = assembler.place(0, &last, NOW, 0).unwrap();
    assert!(assembler.fill(again, &last, NOW));
    assert_eq!(assembler.bytes(again), sent);
    assert_eq!(assembler.take(again), sent);
}

proptest! {
    /// Goal: whatever is lost, doubled and reordered, a message is delivered once and as it was sent, or counted once.
    /// Oracle: which fragments were let through.
    #[test]
    fn each_message_is_whole_or_counted(
        sizes in proptest::collection::vec(1_usize..20_000, 1..20),
        fragment_size in FRAGMENT_SIZE_MIN..3_000,
        order in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        loss in 0_u64..4,
    ) {
        let mut dice = crate::sim::Rng::at(&[seed]);
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
            let mut head = Head { number, message_size, at, fragment_size };
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
