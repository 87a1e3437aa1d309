//! A written message reads back as itself, and any bytes are read or refused.

use super::*;
use crate::broadcast::check::crc32c;
use crate::sim::Rng;

const HEAD: Head =
    Head { place: 3, group: 9, life: 77, view: 4, epoch: 257, ordered: 30, held: 20, taken: 10 };

const TERMS: Terms = Terms { frame_size: 1_328, window: 512, message_size_max: 65_536, roster: 0xC0FF_EE00 };

fn proposal() -> Proposal {
    let next = View { number: 5, lives: alloc::vec![8, 0, 77] };
    Proposal { next, order_end: 12, cut: alloc::vec![3, 4, 5] }
}

fn written(kind: u8, check: Option<Check>) -> Vec<u8> {
    let mut buffer = [0; 512];
    let (is_first, is_last, is_packed) = (true, true, true);
    let meta = Meta { is_first, is_last, is_packed, guarantee: Guarantee::Agreed, message_size: 4_000 };
    let data = Data {
        origin: 2,
        is_repair: true,
        is_placed: true,
        unheld: Some(300),
        meta,
        number: 99,
        payload: b"some bytes",
    };
    let status = Status {
        sent: 6,
        suspects: Places(5),
        asks: true,
        is_alone: true,
        unheld: Some(70_000),
        marks: Words::NONE,
    };
    let room = &mut buffer[..];
    let draft = match kind {
        DATA => Draft::data(room, &HEAD, check, &data),
        ORDER => {
            let mut draft = Draft::order(room, &HEAD, check, 17);
            assert!(draft.range(Range { origin: 1, first: 6, count: 2 }));
            assert!(draft.range(Range { origin: 0, first: 9, count: 1 }));
            draft
        }
        STATUS => Draft::status(room, &HEAD, check, &status, [1, 2, 3].into_iter()),
        GAPS => {
            let mut draft = Draft::gaps(room, &HEAD, check, (3, 8));
            draft.missing(2, 40, 2, [5, 6].into_iter());
            draft
        }
        JOIN => Draft::terms(room, &HEAD, check, (TERMS, false)),
        REFUSAL => Draft::terms(room, &HEAD, check, (TERMS, true)),
        PREPARE => Draft::bare(room, &HEAD, check, PREPARE),
        PROMISE => Draft::promise(room, &HEAD, check, Some(&(513, proposal())), &[4, 5, 6]),
        ACCEPT => Draft::proposal(room, &HEAD, check, (&proposal(), false)),
        ACCEPTED => Draft::bare(room, &HEAD, check, ACCEPTED),
        _ => Draft::proposal(room, &HEAD, check, (&proposal(), true)),
    };
    let size = draft.finish().unwrap();
    buffer[..size].to_vec()
}

fn is_expected(kind: u8, body: &Body<'_>) -> bool {
    match body {
        Body::Data(data) => {
            let Meta { is_first, is_last, is_packed, guarantee, .. } = data.meta;
            let flags = (data.is_repair, is_first, is_last, is_packed, guarantee);
            kind == DATA
                && flags == (true, true, true, true, Guarantee::Agreed)
                && (data.origin, data.number, data.meta.message_size) == (2, 99, 4_000)
                && (data.is_placed, data.unheld) == (true, Some(300))
                && data.payload == b"some bytes"
        }
        Body::Order(start, ranges) => {
            let ranges: Vec<_> =
                ranges.iter().map(|range| (range.origin, range.first, range.count)).collect();
            kind == ORDER && *start == 17 && ranges == [(1, 6, 2), (0, 9, 1)]
        }
        Body::Status(status) => {
            kind == STATUS
                && (status.sent, status.suspects, status.asks) == (6, Places(5), true)
                && (status.is_alone, status.unheld) == (true, Some(70_000))
                && status.marks.iter().eq([1, 2, 3])
        }
        Body::Gaps(gaps) => {
            let lists: Vec<_> =
                gaps.lists().map(|list| (list.origin, list.base, list.bits.iter().sum::<u64>())).collect();
            kind == GAPS && (gaps.order_from, gaps.order_to) == (3, 8) && lists == [(2, 40, 11)]
        }
        Body::Join(terms) => kind == JOIN && *terms == TERMS,
        Body::Refusal(terms) => kind == REFUSAL && *terms == TERMS,
        Body::Prepare => kind == PREPARE,
        Body::Promise(accepted, marks) => {
            let accepted = accepted.map(|(epoch, proposal)| (epoch, proposal.read()));
            kind == PROMISE && accepted == Some((513, proposal())) && marks.iter().eq([4, 5, 6])
        }
        Body::Accept(found) => kind == ACCEPT && found.read() == proposal(),
        Body::Accepted => kind == ACCEPTED,
        Body::Install(found) => kind == INSTALL && found.read() == proposal(),
    }
}

#[test]
fn a_written_message_reads_back() {
    for (kind, check) in (0..11).flat_map(|kind| [(kind, None), (kind, Some(crc32c as Check))]) {
        let bytes = written(kind, check);
        let (head, body) = parse(&bytes, check, false).unwrap();
        assert!(head == HEAD && is_expected(kind, &body), "{kind}: {head:?} {body:?}");
        let other = check.is_none().then_some(crc32c as Check);
        assert!(parse(&bytes, other, false).is_none(), "{kind}: both must agree who checks");
    }
}

/// Goal: a message of another version, of another format, of nobody or too short is none, also where no check value says so.
#[test]
fn other_messages_are_none() {
    for kind in 0..11 {
        let bytes = written(kind, None);
        for (at, byte) in [
            (0, 0x2C),
            (1, (VERSION - 1) << 4 | kind),
            (1, (VERSION + 1) << 4 | kind),
            (2, 32),
            (3, 1),
            (4, 1),
        ] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert!(parse(&other, None, false).is_none(), "{kind}, byte {at}");
        }
        let mut nobody = bytes.clone();
        nobody[16..24].fill(0);
        assert!(parse(&nobody, None, false).is_none(), "{kind}: life 0");
        assert!(parse(&bytes[..HEADER_SIZE - 1], None, false).is_none());
    }
}

/// Goal: flags say which guarantee it is; those of ordered messages are as they were before there were others.
/// Goal: where one range of an order is not known, none behind it is given a place.
#[test]
fn an_unknown_range_ends_the_order() {
    let ranges = |message: &[u8]| match parse(message, None, false) {
        Some((_, Body::Order(_, ranges))) => ranges.iter().count(),
        other => panic!("{other:?}"),
    };
    let message = written(1, None);
    let first_at = message.len() - 2 * RANGE_SIZE;
    assert_eq!(ranges(&message), 2);
    for (at, byte) in [(0, GROUP_MEMBERS_MAX as u8), (1, 1), (3, 1)] {
        let mut unknown = message.clone();
        unknown[first_at + at] = byte;
        assert_eq!(ranges(&unknown), 0, "byte {at}");
        unknown = message.clone();
        unknown[first_at + RANGE_SIZE + at] = byte;
        assert_eq!(ranges(&unknown), 1, "byte {at} of the second");
    }
}

#[test]
fn every_guarantee_has_its_flags() {
    for (guarantee, flags) in [
        (Guarantee::Uniform, 0),
        (Guarantee::Agreed, 4),
        (Guarantee::Reliable, 16),
        (Guarantee::BestEffort, 20),
    ] {
        let (is_first, is_last, is_packed) = (false, false, false);
        let meta = Meta { is_first, is_last, is_packed, guarantee, message_size: 9 };
        let (is_repair, is_placed, unheld) = (false, false, None);
        let data = Data { origin: 0, is_repair, is_placed, unheld, meta, number: 1, payload: b"bytes" };
        let mut buffer = [0; 128];
        let size = Draft::data(&mut buffer, &HEAD, None, &data).finish().unwrap();
        assert_eq!(buffer[HEADER_SIZE + 1], flags, "{guarantee:?}");
        assert_eq!(parse(&buffer[..size], None, false), Some((HEAD, Body::Data(data))));
        buffer[HEADER_SIZE + 1] |= 128;
        assert_eq!(parse(&buffer[..size], None, false), None, "a part of a message is not several");
    }
}

/// Goal: with a check value, no flipped bit is taken, wherever it is.
#[test]
fn every_flipped_bit_is_found() {
    for kind in 0..11 {
        let bytes = written(kind, Some(crc32c));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&flipped, Some(crc32c), false).is_none(), "{kind}, bit {bit}");
        }
    }
}

/// Goal: no bytes are too bad to be refused. Method: true messages cut, altered and lengthened at random, without a check.
#[test]
fn any_bytes_are_read_or_refused() {
    let mut rng = Rng::new(5);
    let mut read = 0;
    for round in 0..20_000 {
        let mut bytes = written((round % 11) as u8, None);
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.number() as u8;
        }
        bytes.resize(rng.below(bytes.len() as u64 + 40) as usize, 0xFF);
        if let Some((head, body)) = parse(&bytes, None, false) {
            assert!(head.place < GROUP_MEMBERS_MAX && head.life != 0);
            if let Body::Gaps(gaps) = &body {
                read += gaps.lists().map(|list| list.bits.iter().count()).sum::<usize>();
            }
            if let Body::Order(_, ranges) = &body {
                read += ranges.iter().count();
            }
            read += 1;
        }
    }
    assert!(read > 100, "{read}: the altered messages are too bad to say anything");
}

#[test]
fn a_draft_that_does_not_fit_is_no_message() {
    let mut buffer = [0; HEADER_SIZE + 20];
    assert!(Draft::proposal(&mut buffer, &HEAD, None, (&proposal(), true)).finish().is_none());
    let mut draft = Draft::order(&mut buffer, &HEAD, None, 1);
    assert!(!draft.range(Range { origin: 1, first: 6, count: 2 }), "12 bytes are left");
    assert!(draft.finish().is_some());
}
