//! The seal against whoever alters, replays, forges, or comes with another key.

use super::*;
use crate::frame::HEADER_SIZE;
use crate::{Address, Kind, Port, Stamps, Target};
use alloc::vec;
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn ring_key(group: u32, generation: u32) -> RingKey {
    let mut bytes = [7; KEY_SIZE];
    bytes[0] = group as u8;
    bytes[1] = generation as u8;
    RingKey { id: KeyId { group, generation }, key: Key::new(bytes).unwrap(), from_ns: 0 }
}

fn ring(keys: &[RingKey]) -> KeyRing {
    let mut ring = KeyRing::new(10 * SECOND);
    keys.iter().for_each(|key| ring.insert(key.clone(), NOW).unwrap());
    ring
}

fn header(payload: &[u8], stamped: bool) -> Header {
    Header {
        kind: Kind::Data,
        incarnation: 3,
        source: Address { node: NodeId::named("a"), port: Port::from(1) },
        target: Target::EVERYONE,
        sequence: 9,
        payload_size: payload.len() as u32,
        stamped,
        sealed: true,
    }
}

fn frame_of(header: &Header, payload: &[u8], sealer: &mut Sealer, number: u64, sealed_ns: u64) -> Vec<u8> {
    let mut frame = vec![0; header.frame_size()];
    header.write(frame.first_chunk_mut().unwrap());
    if header.stamped {
        let stamps = Stamps { sent: 5, domain: 9, ..Stamps::default() };
        stamps.write(frame[HEADER_SIZE..].first_chunk_mut().unwrap());
    }
    frame[header.prefix_size()..header.unsealed_size()].copy_from_slice(payload);
    sealer.seal(&mut frame, number, sealed_ns);
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

/// Two frames of a fixed key, so that a change of the format is noticed.
#[test]
fn the_seal_is_as_documented() {
    let mut sealer = Sealer::new(&ring_key(0x0403_0201, 0x0807_0605));
    let header = header(b"x", false);
    let frame = frame_of(&header, b"x", &mut sealer, 0x100F_0E0D_0C0B_0A09, 0x1817_1615_1413_1211);
    let (covered, tag) = frame.split_last_chunk::<TAG_SIZE>().unwrap();
    let fields: Vec<u8> = (1..=24).collect();
    assert_eq!(covered[HEADER_SIZE + 1..], fields);
    let mut mac = Aegis128LMac::<TAG_SIZE>::new_with_nonce(ring_key(1, 5).key.expose(), b"punctual seal v1");
    mac.update(covered);
    assert_eq!(mac.finalize(), *tag);
    let seal = Seal::read(frame.last_chunk().unwrap());
    assert_eq!(
        (seal.key.group, seal.key.generation, seal.number),
        (0x0403_0201, 0x0807_0605, 0x100F_0E0D_0C0B_0A09)
    );
}

#[test]
fn a_frame_is_taken_once() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key), Opener::new(&ring(&[key]), NOW, SECOND));
    for number in [10, 12, 11] {
        let frame = frame_of(&header(b"hello", true), b"hello", &mut sealer, number, NOW);
        assert_eq!(open(&mut opener, &frame), Ok(()));
        assert_eq!(open(&mut opener, &frame), Err(Refusal::Replayed));
    }
    let old = frame_of(&header(b"", false), b"", &mut sealer, 12 + WINDOW, NOW);
    assert_eq!(open(&mut opener, &old), Ok(()));
    let old = frame_of(&header(b"", false), b"", &mut sealer, 9, NOW);
    assert_eq!(open(&mut opener, &old), Err(Refusal::Replayed));
}

#[test]
fn another_key_is_unknown_and_another_secret_is_bad() {
    let mut opener = Opener::new(&ring(&[ring_key(1, 1)]), NOW, SECOND);
    let frame = frame_of(&header(b"x", false), b"x", &mut Sealer::new(&ring_key(1, 2)), 1, NOW);
    assert_eq!(open(&mut opener, &frame), Err(Refusal::UnknownKey));
    let liar = RingKey { key: Key::new([8; KEY_SIZE]).unwrap(), ..ring_key(1, 1) };
    let frame = frame_of(&header(b"x", false), b"x", &mut Sealer::new(&liar), 1, NOW);
    assert_eq!(open(&mut opener, &frame), Err(Refusal::BadTag));
    let mut unsealed = header(b"x", false);
    unsealed.sealed = false;
    assert_eq!(opener.open(&unsealed, &frame[..33], || NOW), Err(Refusal::Unsealed));
    assert_eq!(opener.open(&header(b"", false), &[0; 20], || NOW), Err(Refusal::Unsealed), "never a panic");
}

/// Goal: a recording from before the opener began is refused, whoever sealed it, and so is one from the future.
#[test]
fn what_was_sealed_before_we_opened_is_stale() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key), Opener::new(&ring(&[key]), NOW, SECOND));
    let header = header(b"x", false);
    let sealed_at = |sealer: &mut Sealer, number, time| frame_of(&header, b"x", sealer, number, time);
    let recorded = sealed_at(&mut sealer, 1, NOW - SECOND - 1);
    assert_eq!(open(&mut opener, &recorded), Err(Refusal::Stale));
    let early = sealed_at(&mut sealer, 2, NOW + SECOND + 1);
    assert_eq!(open(&mut opener, &early), Err(Refusal::Stale));
    assert_eq!(open(&mut opener, &sealed_at(&mut sealer, 3, NOW - SECOND)), Ok(()));
    // Also of a sender that is known by now.
    assert_eq!(open(&mut opener, &recorded), Err(Refusal::Stale));
}

/// Goal: of a life that had to be forgotten for want of room nothing is taken again.
#[test]
fn a_forgotten_life_does_not_come_back() {
    let key = ring_key(1, 1);
    let (mut sealer, mut opener) = (Sealer::new(&key), Opener::new(&ring(&[key]), NOW, SECOND));
    let mut frames = Vec::new();
    for life in 0..SEAL_SENDERS_MAX as u64 + 20 {
        let header = Header { incarnation: life as u16, ..header(b"x", false) };
        frames.push(frame_of(&header, b"x", &mut sealer, 1, NOW + life));
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
    let mut opener = Opener::new(&there, NOW, SECOND);
    let mut number = 0;
    for step in 0..300 {
        let now = NOW + step * SECOND / 10;
        match step {
            2 => here.insert(new.clone(), now).unwrap(),
            8 => there.insert(new.clone(), now).unwrap(),
            _ => {}
        }
        if there.handle_timeout(now) || step == 8 {
            opener.renew(&there);
        }
        let mut sealer = Sealer::new(here.sealing(now).0.unwrap());
        assert_eq!(sealer.key().generation, if step < 10 { 1 } else { 2 });
        number += 1;
        let frame = frame_of(&header(b"x", false), b"x", &mut sealer, number, now);
        assert_eq!(open(&mut opener, &frame), Ok(()), "step {step}");
    }
    assert_eq!(there.accepted().count(), 1, "the old key is forgotten after the overlap");
}

proptest! {
    /// Goal: no bit of a sealed frame can be altered unnoticed, wherever it stands.
    #[test]
    fn no_altered_bit_goes_unnoticed(payload in proptest::collection::vec(any::<u8>(), 0..200), stamped: bool, at: prop::sample::Index, bit in 0_u8..8) {
        let key = ring_key(1, 1);
        let (mut sealer, mut opener) = (Sealer::new(&key), Opener::new(&ring(&[key]), NOW, SECOND));
        let good = frame_of(&header(&payload, stamped), &payload, &mut sealer, 1, NOW);
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
        let mut opener = Opener::new(&ring(&[ring_key(1, 1)]), NOW, SECOND);
        prop_assert!(opener.open(&header(b"", stamped), &bytes, || NOW).is_err());
    }
}
