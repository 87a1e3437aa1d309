//! The seal against senders that alter, replay, forge, or come with another key.

use super::*;
use crate::frame::HEADER_SIZE;
use crate::limits::SEAL_SENDERS_MAX;
use crate::{Address, Kind, NodeId, Port, Stamps, Target};
use alloc::vec;
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// As the bus is called.
const BUS: &str = "shared test";

fn ring_key(group: u32, generation: u32) -> RingKey {
    let mut bytes = [7; KEY_SIZE];
    bytes[0] = group as u8;
    bytes[1] = generation as u8;
    RingKey { id: KeyId { group, life: 0, generation }, key: Key::new(bytes).unwrap(), from_ns: 0 }
}

/// Both clocks agree.
fn at(ns: u64) -> Moment {
    Moment { wall_ns: ns, monotonic_ns: ns }
}

fn ring(keys: &[RingKey]) -> KeyRing {
    let mut ring = KeyRing::new(10 * SECOND);
    keys.iter().for_each(|key| ring.insert(key.clone(), at(NOW)).unwrap());
    ring
}

fn header(payload: &[u8], stamped: bool) -> Header {
    numbered(9, payload, stamped)
}

fn numbered(sequence: u32, payload: &[u8], stamped: bool) -> Header {
    Header {
        kind: Kind::Data,
        incarnation: 3,
        source: Address { node: NodeId::named("a"), port: Port::from(1) },
        target: Target::EVERYONE,
        sequence,
        payload_size: payload.len() as u32,
        stamped,
        sealed: true,
    }
}

fn frame_of(header: &Header, payload: &[u8], sealer: &mut Sealer, sealed_ns: u64) -> Vec<u8> {
    let mut frame = vec![0; header.frame_size()];
    header.write(frame.first_chunk_mut().unwrap());
    if header.stamped {
        let stamps = Stamps { sent: 5, domain: 9, ..Stamps::default() };
        stamps.write(frame[HEADER_SIZE..].first_chunk_mut().unwrap());
    }
    frame[header.prefix_size()..header.unsealed_size()].copy_from_slice(payload);
    sealer.seal(&mut frame, sealed_ns / TIME_UNIT_NS);
    frame
}

fn open(opener: &mut Opener, frame: &[u8]) -> Result<(), Refusal> {
    let header = Header::read(frame.first_chunk().unwrap()).unwrap();
    opener.open(&header, frame, || NOW).map(|group| assert_eq!(group, 1))
}

/// The vector of RFC 10032 for AEGISMAC-128L, through the crate and the calls that this file uses.
#[test]
fn the_mac_is_that_of_the_rfc() {
    let (mut key, mut nonce) = ([0; 16], [0; 16]);
    (key[0], key[1], nonce[0], nonce[2]) = (0x10, 0x01, 0x10, 0x02);
    let data: Vec<u8> = (0..0x23).collect();
    let mut mac = Aegis128LMac::<TAG_SIZE>::new_with_nonce(&key, &nonce);
    let expected = 0xd3f0_9b28_42ad_3016_87d6_902c_921d_7818_u128.to_be_bytes();
    for _ in 0..3 {
        mac.update(&data);
        assert_eq!(mac.finalize_and_reset(), expected, "also when the state is used again");
    }
}

/// A frame of a fixed key, so that a change of the format is noticed: this very picture is in `docs/sealing.md`.
#[test]
fn the_seal_is_as_documented() {
    let key = ring_key(0x0403_0201, 0x0807_0605);
    let mut sealer = Sealer::new(&key, BUS);
    let header = header(b"x", false);
    let frame = frame_of(&header, b"x", &mut sealer, 0x0605_0403_0201_FFFF);
    let (covered, tag) = frame.split_last_chunk::<TAG_SIZE>().unwrap();
    let mark = key.id.mark();
    assert_eq!(mark, (0x0403_0201_u32.wrapping_mul(0x9E37_79B1) >> 16) as u16 + 0x0605);
    assert_eq!(covered[HEADER_SIZE + 1..], [mark as u8, (mark >> 8) as u8, 1, 2, 3, 4, 5, 6]);
    let tag_of = |nonce: [u8; 16], bytes: &[u8]| {
        let mut mac = Aegis128LMac::<TAG_SIZE>::new_with_nonce(key.key.expose(), &nonce);
        mac.update(bytes);
        mac.finalize()
    };
    let mut nonce = *b"punctual\x01\x02\x03\x04\x05\x06\x07\x08";
    let name = tag_of(nonce, BUS.as_bytes());
    nonce[..8].copy_from_slice(&name[..8]);
    assert_eq!(tag_of(nonce, covered), *tag);
    assert_eq!(Seal::read(frame.last_chunk().unwrap()), Seal { mark, time: 0x0605_0403_0201 });
}

/// Goal: with one key a frame of one bus is genuine there only, also with a key that came later.
#[test]
fn a_frame_of_another_bus_is_not_genuine() {
    let (first, later) = (ring_key(1, 1), ring_key(1, 2));
    let buses = ["shared a", "shared b", "udp a", "", "shared", "shared a "];
    for there in buses {
        let mut opener = Opener::new(&ring(core::slice::from_ref(&first)), there, NOW, SECOND);
        opener.renew(&ring(&[first.clone(), later.clone()]));
        for (number, here) in (0..).zip(buses) {
            for (key, offset) in [(&first, 0), (&later, 100)] {
                let header = numbered(number + offset, b"x", false);
                let frame = frame_of(&header, b"x", &mut Sealer::new(key, here), NOW);
                let expected = if here == there { Ok(()) } else { Err(Refusal::BadTag) };
                assert_eq!(open(&mut opener, &frame), expected, "of {here:?} on {there:?}");
            }
        }
    }
}

#[test]
fn a_frame_is_taken_once() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
    let mut take = |number: u32, opener: &mut Opener| {
        let frame = frame_of(&numbered(number, b"hello", true), b"hello", &mut sealer, NOW);
        open(opener, &frame)
    };
    for number in [10, 12, 11] {
        assert_eq!(take(number, &mut opener), Ok(()));
        assert_eq!(take(number, &mut opener), Err(Refusal::Replayed));
    }
    assert_eq!(take(12 + WINDOW, &mut opener), Ok(()));
    assert_eq!(take(9, &mut opener), Err(Refusal::Replayed));
}

/// Goal: frames to one node and to everybody are counted apart, and so are the lives of a node.
#[test]
fn each_stream_has_numbers_of_its_own() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
    let to_all = header(b"x", false);
    let to_us = Header { target: Target::node("us"), ..to_all };
    let next_life = Header { incarnation: 4, ..to_all };
    for header in [to_all, to_us, next_life] {
        let frame = frame_of(&header, b"x", &mut sealer, NOW);
        assert_eq!(open(&mut opener, &frame), Ok(()));
        assert_eq!(open(&mut opener, &frame), Err(Refusal::Replayed));
    }
}

/// Goal: a life that has the number of an earlier one, which happens once in 65,536, is heard; frames of the earlier one are not.
#[test]
fn a_life_under_the_number_of_an_earlier_one_is_heard() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
    let mut frame = |number, time| frame_of(&numbered(number, b"x", false), b"x", &mut sealer, time);
    let earlier: Vec<Vec<u8>> = (0..5_000).map(|number| frame(number, NOW)).collect();
    let later: Vec<Vec<u8>> = (0..5_000).map(|number| frame(number, NOW + SECOND)).collect();
    for frame in earlier.iter().chain(&later) {
        assert_eq!(open(&mut opener, frame), Ok(()));
    }
    for frame in earlier.iter().chain(&later) {
        assert_eq!(open(&mut opener, frame), Err(Refusal::Replayed));
    }
}

/// Goal: an announcement counts only if it is newer than the last; it has no number.
#[test]
fn announcements_are_taken_in_the_order_of_their_times() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
    let hello = Header { kind: Kind::Hello, sequence: 0, ..header(b"x", false) };
    let mut at = |units: u64| frame_of(&hello, b"x", &mut sealer, NOW + units * TIME_UNIT_NS);
    let frames = [at(1), at(2), at(3)];
    let told: Vec<bool> = [0, 2, 1, 2, 0].map(|index| open(&mut opener, &frames[index]).is_ok()).into();
    assert_eq!(told, [true, true, false, false, false]);
}

/// Goal: an announcement to one node and one to everybody come in either order, each once.
#[test]
fn announcements_to_one_and_to_all_may_overtake_each_other() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
    let to_all = Header { kind: Kind::Hello, sequence: 0, ..header(b"x", false) };
    let to_us = Header { target: Target::node("us"), ..to_all };
    let mut at = |header: &Header, time: u64| frame_of(header, b"x", &mut sealer, NOW + time * TIME_UNIT_NS);
    let frames = [at(&to_all, 1), at(&to_us, 2), at(&to_all, 3), at(&to_us, 4)];
    for order in [1, 0, 3, 2] {
        assert_eq!(open(&mut opener, &frames[order]), Ok(()), "{order}");
        assert_eq!(open(&mut opener, &frames[order]), Err(Refusal::Replayed), "{order}");
    }
}

#[test]
fn another_key_is_unknown_and_another_secret_is_bad() {
    let mut opener = Opener::new(&ring(&[ring_key(1, 1)]), BUS, NOW, SECOND);
    let frame = frame_of(&header(b"x", false), b"x", &mut Sealer::new(&ring_key(1, 2), BUS), NOW);
    assert_eq!(open(&mut opener, &frame), Err(Refusal::UnknownKey));
    let liar = RingKey { key: Key::new([8; KEY_SIZE]).unwrap(), ..ring_key(1, 1) };
    let frame = frame_of(&header(b"x", false), b"x", &mut Sealer::new(&liar, BUS), NOW);
    assert_eq!(open(&mut opener, &frame), Err(Refusal::BadTag));
    let mut unsealed = header(b"x", false);
    unsealed.sealed = false;
    assert_eq!(opener.open(&unsealed, &frame[..33], || NOW), Err(Refusal::Unsealed));
    assert_eq!(opener.open(&header(b"", false), &[0; 20], || NOW), Err(Refusal::Unsealed), "never a panic");
}

/// Goal: keys of two groups whose marks are the same are told apart, also if they have one secret.
#[test]
fn keys_with_one_mark_are_told_apart() {
    let first = ring_key(1, 1);
    let group = (2..u32::MAX)
        .find(|&group| KeyId { group, life: 0, generation: 1 }.mark() == first.id.mark())
        .unwrap();
    let second = RingKey { id: KeyId { group, life: 0, generation: 1 }, ..first.clone() };
    let mut opener = Opener::new(&ring(&[first.clone(), second.clone()]), BUS, NOW, SECOND);
    for (sequence, key) in [&first, &second, &first, &second].into_iter().enumerate() {
        let header = numbered(sequence as u32, b"x", false);
        let frame = frame_of(&header, b"x", &mut Sealer::new(key, BUS), NOW);
        assert_eq!(opener.open(&header, &frame, || NOW), Ok(key.id.group));
    }
    opener.renew(&ring(std::slice::from_ref(&first)));
    let frame = frame_of(&numbered(9, b"x", false), b"x", &mut Sealer::new(&second, BUS), NOW);
    assert_eq!(open(&mut opener, &frame), Err(Refusal::BadTag), "a name is part of what is sealed");
}

/// Goal: a recording from before the opener began is refused, regardless of the node that sealed it, and so is one from the future.
#[test]
fn a_frame_sealed_before_the_opener_began_is_stale() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
    let header = header(b"x", false);
    let sealed_at = |sealer: &mut Sealer, time| frame_of(&header, b"x", sealer, time);
    let recorded = sealed_at(&mut sealer, NOW - SECOND - TIME_UNIT_NS);
    assert_eq!(open(&mut opener, &recorded), Err(Refusal::Stale));
    let early = sealed_at(&mut sealer, NOW + SECOND + TIME_UNIT_NS);
    assert_eq!(open(&mut opener, &early), Err(Refusal::Stale));
    assert_eq!(open(&mut opener, &sealed_at(&mut sealer, NOW - SECOND)), Ok(()));
    // Also of a sender that is known by now.
    assert_eq!(open(&mut opener, &recorded), Err(Refusal::Stale));
}

/// Goal: a wall clock that is stepped by an hour while a node talks costs none of its messages, on either side: a sender's
/// times never go back, and a receiver looks at its own clock at the first contact only.
#[test]
fn a_step_of_the_wall_clock_costs_a_running_stream_nothing() {
    const HOUR: u64 = 3_600 * SECOND;
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
    let mut last = 0;
    let receivers = [NOW, NOW + HOUR, NOW - HOUR, NOW];
    let senders = [NOW, NOW + HOUR, NOW - HOUR, NOW + TIME_UNIT_NS];
    for (sequence, (clock, own)) in (1..).zip(senders.into_iter().zip(receivers)) {
        last = clock.max(last);
        let header = numbered(sequence, b"x", false);
        let frame = frame_of(&header, b"x", &mut sealer, last);
        let opened = opener.open(&header, &frame, || own);
        assert_eq!(opened, Ok(1), "message {sequence}");
    }
}

/// Goal: the claims of `docs/sealing.md` about a clock that is set back by more than the allowance. A sender that begins then is heard
/// by receivers that opened before the clock's new time, and by others when the clock has caught up. A receiver that begins then hears
/// nothing of senders that go on, whose time stands.
#[test]
fn a_sender_begun_after_a_step_back_is_heard_once_the_clock_caught_up() {
    const BACK: u64 = 10 * SECOND;
    let key = ring_key(1, 1);
    let (mut sealer, ring) = (Sealer::new(&key, BUS), ring(&[key]));
    let mut opened = |opener: &mut Opener, incarnation: u16, sealed_ns: u64, now_ns: u64| {
        let header = Header { incarnation, ..header(b"x", false) };
        opener.open(&header, &frame_of(&header, b"x", &mut sealer, sealed_ns), || now_ns)
    };
    let [mut long_ago, mut just_now] = [2 * BACK, 0].map(|ago| Opener::new(&ring, BUS, NOW - ago, SECOND));
    assert_eq!(opened(&mut just_now, 1, NOW, NOW), Ok(1));
    assert_eq!(opened(&mut just_now, 2, NOW - BACK, NOW - BACK), Err(Refusal::Stale));
    assert_eq!(opened(&mut just_now, 2, NOW - SECOND, NOW - SECOND), Ok(1));
    assert_eq!(opened(&mut long_ago, 2, NOW - BACK, NOW - BACK), Ok(1));
    for begins in [NOW - BACK, NOW + BACK] {
        let mut later = Opener::new(&ring, BUS, begins, SECOND);
        assert_eq!(opened(&mut later, 1, NOW, begins), Err(Refusal::Stale), "on that host, and another");
    }
}

/// Goal: the claim of `docs/sealing.md` about a member that forges a time far ahead: a sender that is known is not heard from then on,
/// also without that member's key, until one of the two opens anew. One that is not known yet is not harmed.
#[test]
fn a_forged_time_far_ahead_silences_a_known_sender() {
    const FAR: u64 = 1_000_000 * SECOND;
    let (ours, lent) = (ring_key(1, 1), ring_key(1, 2));
    let (mut sealer, mut forger) = (Sealer::new(&ours, BUS), Sealer::new(&lent, BUS));
    let both = ring(&[ours.clone(), lent]);
    for is_known in [true, false] {
        let mut opener = Opener::new(&both, BUS, NOW, SECOND);
        let mut say = |number, incarnation| {
            let header = Header { incarnation, ..numbered(number, b"x", false) };
            frame_of(&header, b"x", &mut sealer, NOW + u64::from(number) * SECOND / 2)
        };
        let frames = [1, 2, 3].map(|number| say(number, 3));
        let next_life = say(1, 4);
        let forged = frame_of(&numbered(2, b"x", false), b"x", &mut forger, NOW + FAR);
        if is_known {
            assert_eq!(open(&mut opener, &frames[0]), Ok(()));
            assert_eq!(open(&mut opener, &forged), Ok(()));
            opener.renew(&ring(core::slice::from_ref(&ours)));
            assert_eq!([1, 2].map(|at| open(&mut opener, &frames[at])), [Err(Refusal::Replayed); 2]);
            let mut anew = Opener::new(&both, BUS, NOW, SECOND);
            assert_eq!(open(&mut anew, &frames[1]), Ok(()), "the receiver opens anew");
        } else {
            assert_eq!(open(&mut opener, &forged), Err(Refusal::Stale));
            assert_eq!([0, 1].map(|at| open(&mut opener, &frames[at])), [Ok(()); 2]);
        }
        assert_eq!(open(&mut opener, &next_life), Ok(()), "the sender opens anew");
    }
}

/// Goal: of a life that had to be forgotten for want of room nothing is taken again.
#[test]
fn a_forgotten_life_does_not_come_back() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
    let mut frames = Vec::new();
    for life in 0..SEAL_SENDERS_MAX as u64 + 20 {
        let header = Header { incarnation: life as u16, ..header(b"x", false) };
        frames.push(frame_of(&header, b"x", &mut sealer, NOW + life * TIME_UNIT_NS));
        assert_eq!(open(&mut opener, &frames[life as usize]), Ok(()), "life {life}");
    }
    for (life, frame) in frames.iter().enumerate() {
        assert!(open(&mut opener, frame).is_err(), "life {life}");
    }
}

/// Goal: at a renewal nothing is lost that is under way, whichever of two nodes learns of the new key first.
#[test]
fn a_renewal_loses_nothing_under_way() {
    let (old, new) = (ring_key(1, 1), RingKey { from_ns: NOW + SECOND, ..ring_key(1, 2) });
    let (mut here, mut there) = (ring(std::slice::from_ref(&old)), ring(&[old]));
    let mut opener = Opener::new(&there, BUS, NOW, SECOND);
    let mut number = 0;
    for step in 0..300 {
        let now = NOW + step * SECOND / 10;
        match step {
            2 => here.insert(new.clone(), at(now)).unwrap(),
            8 => there.insert(new.clone(), at(now)).unwrap(),
            _ => {}
        }
        if there.handle_timeout(at(now)) || step == 8 {
            opener.renew(&there);
        }
        let mut sealer = Sealer::new(here.sealing(at(now)).0.unwrap(), BUS);
        assert_eq!(sealer.key().generation, if step < 10 { 1 } else { 2 });
        number += 1;
        let frame = frame_of(&numbered(number, b"x", false), b"x", &mut sealer, now);
        assert_eq!(open(&mut opener, &frame), Ok(()), "step {step}");
    }
    assert_eq!(there.accepted().count(), 1, "the old key is forgotten after the overlap");
}

/// Goal: a secret that was removed is not accepted any more, though another came under its name before anybody looked.
#[test]
fn a_name_that_passes_to_another_secret_takes_nothing_with_it() {
    let old = ring_key(1, 1);
    let new = RingKey { key: Key::new([99; KEY_SIZE]).unwrap(), ..old.clone() };
    let mut ring = ring(std::slice::from_ref(&old));
    let mut opener = Opener::new(&ring, BUS, NOW, SECOND);
    let frames =
        [&old, &new].map(|key| frame_of(&header(b"x", false), b"x", &mut Sealer::new(key, BUS), NOW));
    let first = ring.serial(old.id);
    ring.remove(old.id);
    ring.insert(new, at(NOW)).unwrap();
    assert_ne!(ring.serial(old.id), first);
    opener.renew(&ring);
    assert_eq!(open(&mut opener, &frames[0]), Err(Refusal::BadTag));
    assert_eq!(open(&mut opener, &frames[1]), Ok(()));
}

/// Goal: an opener that comes in the place of another takes nothing that this one took, also where it was sealed within the allowance;
/// and all else.
#[test]
fn an_opener_in_the_place_of_another_takes_nothing_again() {
    let mut sealer = Sealer::new(&ring_key(1, 1), BUS);
    let ring = ring(&[ring_key(1, 1)]);
    let name = |id| StreamName { life: 5, id };
    let show = |opener: &mut Opener, id, number, record: &[u8]| {
        let opened = opener.open_numbered(name(id), number, record, || NOW)?;
        opener.take_numbered(&opened);
        Ok(opened.number)
    };
    let records: Vec<_> = (0..6).map(|number| record_of(number, b"one", &mut sealer, NOW)).collect();
    let mut first = Opener::new(&ring, BUS, NOW, SECOND);
    for number in 0..4 {
        assert_eq!(show(&mut first, 1, number, &records[number as usize]), Ok(number));
    }
    // One that was looked at, and not taken.
    first.open_numbered(name(2), 0, &records[0], || NOW).unwrap();
    let (mut next, mut stranger) =
        (Opener::new(&ring, BUS, NOW, SECOND), Opener::new(&ring, BUS, NOW, SECOND));
    next.go_on_after(first.taken());
    for number in 0..4 {
        let record = &records[number as usize];
        assert_eq!(show(&mut next, 1, number, record), Err(Refusal::Replayed), "{number}");
        assert_eq!(show(&mut stranger, 1, number, record), Ok(number));
    }
    assert_eq!(show(&mut next, 1, 4, &records[4]), Ok(4));
    assert_eq!(show(&mut next, 2, 0, &records[0]), Ok(0));
    // There is no end to what comes one after the other, and room for so many.
    for life in 0..3 {
        let mut busy = Opener::new(&ring, BUS, NOW, SECOND);
        busy.go_on_after(next.taken());
        let count = SEAL_SENDERS_MAX as u64 - 2;
        for id in 0..count {
            let record = record_of(0, b"one", &mut sealer, NOW + (1 + id + life * count) * TIME_UNIT_NS);
            assert_eq!(show(&mut busy, 100 + id + life * count, 0, &record), Ok(0));
        }
        assert!(show(&mut busy, 1, 4, &records[4]).is_err(), "life {life}");
        next = busy;
    }
}

proptest! {
    /// Goal: no bit of a sealed frame can be altered unnoticed, wherever it stands.
    #[test]
    fn no_altered_bit_goes_unnoticed(payload in proptest::collection::vec(any::<u8>(), 0..200), stamped: bool, at: prop::sample::Index, bit in 0_u8..8) {
        let key = ring_key(1, 1);
        let (mut sealer, mut opener) = (Sealer::new(&key, BUS), Opener::new(&ring(&[key]), BUS, NOW, SECOND));
        let good = frame_of(&header(&payload, stamped), &payload, &mut sealer, NOW);
        let mut bad = good.clone();
        bad[at.index(good.len())] ^= 1 << bit;
        let parsed = crate::Frame::parse(&bad);
        if let Ok(frame) = parsed {
            let size = frame.header.frame_size();
            prop_assert!(opener.open(&frame.header, &bad[..size], || NOW).is_err());
        }
        prop_assert_eq!(open(&mut opener, &good), Ok(()), "nothing was remembered of the forgery");
    }

    /// Goal: any bytes are refused, and cause no panic.
    #[test]
    fn any_bytes_are_refused(bytes: Vec<u8>, stamped: bool) {
        let mut opener = Opener::new(&ring(&[ring_key(1, 1)]), BUS, NOW, SECOND);
        prop_assert!(opener.open(&header(b"", stamped), &bytes, || NOW).is_err());
    }
}

/// A message of a publication as its seal covers it.
fn record_of(number: u64, payload: &[u8], sealer: &mut Sealer, sealed_ns: u64) -> Vec<u8> {
    let mut record = [&number.to_le_bytes(), payload, &[0; SEAL_SIZE]].concat();
    sealer.seal(&mut record, sealed_ns / TIME_UNIT_NS);
    record
}

/// Goal: of a publication's ring each number is taken once, in order, regardless of what is shown again; of a forgotten ring nothing
/// is.
#[test]
fn no_number_of_a_ring_is_taken_twice() {
    let mut sealer = Sealer::new(&ring_key(1, 1), BUS);
    let mut opener = Opener::new(&ring(&[ring_key(1, 1)]), BUS, NOW, 0);
    let name = |id| StreamName { life: 5, id };
    let mut show = |id, number, record: &[u8]| {
        let open =
            |opener: &mut Opener| opener.open_numbered(name(id), number, record, || NOW + 3_600 * SECOND);
        let opened = open(&mut opener)?;
        assert_eq!(open(&mut opener), Ok(opened), "it was not taken yet");
        opener.take_numbered(&opened);
        Ok(opened.group)
    };
    let records: Vec<_> = (0..4).map(|number| record_of(number, b"one", &mut sealer, NOW + SECOND)).collect();
    assert_eq!(show(1, 0, &records[0]), Ok(1));
    assert_eq!(show(1, 0, &records[0]), Err(Refusal::Replayed));
    assert_eq!(show(1, 3, &records[3]), Ok(1), "two are lost");
    assert_eq!(show(1, 2, &records[2]), Err(Refusal::Replayed), "the ring is shown again");
    let earlier = record_of(9, b"one", &mut sealer, NOW);
    assert_eq!(show(1, 9, &earlier), Err(Refusal::Replayed), "the times of a ring do not fall");
    let [old, early] =
        [NOW - SECOND, NOW + 7_200 * SECOND].map(|time| record_of(0, b"one", &mut sealer, time));
    assert_eq!(show(2, 0, &old), Err(Refusal::Stale));
    assert_eq!(show(2, 0, &early), Err(Refusal::Stale));
    assert_eq!(show(2, 0, b"short"), Err(Refusal::Unsealed));
    let mut altered = records[0].clone();
    altered[9] ^= 1;
    assert_eq!(show(2, 0, &altered), Err(Refusal::BadTag));
    for id in 10..10 + SEAL_SENDERS_MAX as u64 {
        let record = record_of(0, b"one", &mut sealer, NOW + id * SECOND);
        assert_eq!(show(id, 0, &record), Ok(1));
    }
    // The first ring has been forgotten: records that it had sealed may have been taken.
    assert_eq!(show(1, 3, &records[3]), Err(Refusal::Stale));
}
