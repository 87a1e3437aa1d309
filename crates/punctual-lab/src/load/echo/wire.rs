//! The packets of `punctual run response` and `punctual echo`, byte by byte (`docs/response.md`).
//!
//! Pure: bytes in, values out. Bytes from outside are checked here and nowhere else, and none of them makes this code panic.
//! All numbers are little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `PRSP` |
//! | 4 | 1 | version, 5 |
//! | 5 | 1 | kind: 0 request, 1 reply, 2 end of a trial |
//! | 6 | 2 | flags: 1 `stack_ns` is known, 2 `previous` is known, 4 evidence is there; from 8 on three bits: other quotas took so many times the time of its quota, rounded up |
//! | 8 | 4 | run: a random number of the trial |
//! | 12 | 4 | flow |
//! | 16 | 8 | sequence number of the trial, over all flows |
//! | 24 | 4 | domain of the responder's clock: two ends with the same one read the same clock; 0 = unknown |
//! | 28 | 4 | `stack_ns`: kernel's receive stamp → the responder's thread runs |
//! | 32 | 8 | `woken`: when the responder's thread ran, ticks of its clock |
//! | 40 | 4 | `read_ns`: woken → the request lies in the application's buffer |
//! | 44 | 4 | `application_ns`: read → the reply is handed to the kernel |
//! | 48 | 4 | `previous`: an earlier reply of this responder, the low 32 bits of its sequence number |
//! | 52 | 4 | `previous_tx_ns`: that reply handed to the kernel → handed to the device |
//! | 56 | 48 | evidence: what the responder's thread went through in one window ([`Evidence`]), and how long before `woken` that ended, µs, in place of its second number |
//! | 104 | 4 | `tick_fs`: how long a tick of the responder's clock lasts, femtoseconds |
//! | 108 | 4 | `listened_ns`: the responder began to listen → `woken` |
//! | 112 | 4 | evidence: how long its control group was frozen, µs |
//! | 116 | 4 | CRC-32C of bytes 0 to 115 |
//! | 120 | | filler that follows from run and sequence number, compared whole |

use crc_fast::crc32_iscsi;
use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::window::Evidence;

/// Smallest packet, bytes: the header.
pub const SIZE_MIN: usize = 120;
/// Largest: the size that fits in a UDP datagram over IPv4.
pub const SIZE_MAX: usize = punctual_machine::socket::DATAGRAM_SIZE_MAX;

const MAGIC: [u8; 4] = *b"PRSP";
const VERSION: u8 = 5;
const CHECK_AT: usize = 116;

/// The process was not continued in a window.
const NEVER_US: u32 = u32::MAX;

/// Switches of a window that are told: half a byte each.
const SWITCHES_MAX: u8 = 15;

const FLAG_STACK: u16 = 1;
const FLAG_PREVIOUS: u16 = 2;
const FLAG_EVIDENCE: u16 = 4;

/// Time of other quotas, in times of the first: three bits of the flags, as there is room for nothing longer.
const QUOTAS_SHIFT: u32 = 3;
const QUOTAS_MAX: u32 = 7;

/// Purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Asks for a reply.
    Request,
    /// The reply.
    Reply,
    /// The trial is over; no reply is wanted.
    End,
}

/// Identity of a trip and its trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TripId {
    /// Random number of the trial.
    pub run: u32,
    /// Flow that it goes by.
    pub flow: u32,
    /// Number over all flows.
    pub sequence: u64,
}

/// The responder's record of one trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its clock's domain; 0 = unknown.
    pub domain: u32,
    /// Kernel's stamp → woken, if the kernel stamped.
    pub stack_ns: Option<u32>,
    /// When its thread ran, or was awake and listened; ticks of its clock.
    pub woken: u64,
    /// It began to listen → woken.
    pub listened_ns: u32,
    /// Woken → read.
    pub read_ns: u32,
    /// Read → replied.
    pub application_ns: u32,
    /// An earlier reply's low sequence bits, and how long it took to the device.
    pub previous: Option<(u32, u32)>,
    /// Recent history of its thread, and the time from the end of that to `woken`.
    pub evidence: Option<Past>,
    /// Length of a tick of its clock, femtoseconds.
    pub tick_fs: u32,
}

impl Record {
    /// When its thread ran, nanoseconds of our clock if it read the same, else of its own. Processes measure what a tick lasts each
    /// for itself, and `tick_fs` is exact to some millionths: of the hours since a host began those are milliseconds.
    pub fn woken_ns(&self) -> u64 {
        let clock = Clock::get();
        if self.domain != 0 && self.domain == clock.domain() {
            return clock.nanos(Ticks(self.woken));
        }
        let fs = u128::from(self.woken) * u128::from(self.tick_fs);
        u64::try_from(fs / 1_000_000).unwrap_or(u64::MAX)
    }
}

/// A window of the responder's thread, as a later reply tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Evidence of events in it.
    pub evidence: Evidence,
    /// Its end → `woken`, µs.
    pub age_us: u32,
}

/// A packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Its purpose.
    pub kind: PacketKind,
    /// Its trip.
    pub trip: TripId,
    /// Data that the responder added; empty in a request.
    pub record: Record,
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn get16(bytes: &[u8], at: usize) -> Option<u16> {
    get(bytes, at).map(u16::from_le_bytes)
}

fn get32(bytes: &[u8], at: usize) -> Option<u32> {
    get(bytes, at).map(u32::from_le_bytes)
}

fn get64(bytes: &[u8], at: usize) -> Option<u64> {
    get(bytes, at).map(u64::from_le_bytes)
}

/// Writes the header into a packet of at least [`SIZE_MIN`] bytes; the filler stays as it is.
#[inline]
pub fn write_header(bytes: &mut [u8], header: &PacketHeader) {
    let PacketHeader { kind, trip, record } = header;
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5] = match kind {
        PacketKind::Request => 0,
        PacketKind::Reply => 1,
        PacketKind::End => 2,
    };
    let flag = |known: bool, flag: u16| if known { flag } else { 0 };
    let flags = flag(record.stack_ns.is_some(), FLAG_STACK)
        | flag(record.previous.is_some(), FLAG_PREVIOUS)
        | flag(record.evidence.is_some(), FLAG_EVIDENCE)
        | record.evidence.map_or(0, |past| other_quotas(&past.evidence));
    put16(bytes, 6, flags);
    put32(bytes, 8, trip.run);
    put32(bytes, 12, trip.flow);
    put64(bytes, 16, trip.sequence);
    put32(bytes, 24, record.domain);
    put32(bytes, 28, record.stack_ns.unwrap_or(0));
    put64(bytes, 32, record.woken);
    put32(bytes, 40, record.read_ns);
    put32(bytes, 44, record.application_ns);
    let (previous, previous_tx_ns) = record.previous.unwrap_or((0, 0));
    put32(bytes, 48, previous);
    put32(bytes, 52, previous_tx_ns);
    write_evidence(bytes, &record.evidence.unwrap_or_default());
    put32(bytes, 104, record.tick_fs);
    put32(bytes, 108, record.listened_ns);
    let check = crc32_iscsi(&bytes[..CHECK_AT]);
    put32(bytes, CHECK_AT, check);
}

/// Rounded up: the sum of all is a bound from above.
fn other_quotas(evidence: &Evidence) -> u16 {
    let times = evidence.throttled_also_us.div_ceil(evidence.throttled_us.max(1)).min(QUOTAS_MAX);
    (times as u16) << QUOTAS_SHIFT
}

fn write_evidence(bytes: &mut [u8], Past { evidence, age_us }: &Past) {
    put32(bytes, 56, evidence.number);
    put32(bytes, 60, *age_us);
    put32(bytes, 64, evidence.wall_us);
    put32(bytes, 68, evidence.cpu_us);
    put32(bytes, 72, evidence.wait_us);
    put32(bytes, 76, evidence.control_late_us);
    put32(bytes, 80, evidence.faults_minor);
    put16(bytes, 84, evidence.faults_major);
    bytes[86] = short(evidence.migrations, u8::MAX);
    let [involuntary, voluntary] = [evidence.switches_involuntary, evidence.switches_voluntary];
    bytes[87] = short(involuntary, SWITCHES_MAX) << 4 | short(voluntary, SWITCHES_MAX);
    put32(bytes, 88, evidence.idle_us);
    put32(bytes, 92, evidence.throttled_us);
    put32(bytes, 96, evidence.stolen_us);
    put32(bytes, 100, evidence.continued_age_us.unwrap_or(NEVER_US));
    put32(bytes, 112, evidence.frozen_us);
}

/// The header of a packet that is ours, whole and of our version; `None` for anything else.
#[inline]
pub fn read_header(bytes: &[u8]) -> Option<PacketHeader> {
    let head = bytes.get(..SIZE_MIN)?;
    if head[..4] != MAGIC || head[4] != VERSION || get32(head, CHECK_AT)? != crc32_iscsi(&head[..CHECK_AT]) {
        return None;
    }
    let kind = match head[5] {
        0 => PacketKind::Request,
        1 => PacketKind::Reply,
        2 => PacketKind::End,
        _ => return None,
    };
    let flags = get16(head, 6)?;
    let trip = TripId { run: get32(head, 8)?, flow: get32(head, 12)?, sequence: get64(head, 16)? };
    let record = Record {
        domain: get32(head, 24)?,
        stack_ns: get32(head, 28).filter(|_| flags & FLAG_STACK != 0),
        woken: get64(head, 32)?,
        read_ns: get32(head, 40)?,
        application_ns: get32(head, 44)?,
        previous: get32(head, 48).zip(get32(head, 52)).filter(|_| flags & FLAG_PREVIOUS != 0),
        evidence: read_evidence(head).filter(|_| flags & FLAG_EVIDENCE != 0),
        tick_fs: get32(head, 104)?,
        listened_ns: get32(head, 108)?,
    };
    Some(PacketHeader { kind, trip, record })
}

/// A count of which no more is asked than whether it is more than some.
fn short(count: u16, most: u8) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX).min(most)
}

fn read_evidence(head: &[u8]) -> Option<Past> {
    let evidence = Evidence {
        number: get32(head, 56)?,
        wall_us: get32(head, 64)?,
        cpu_us: get32(head, 68)?,
        wait_us: get32(head, 72)?,
        control_late_us: get32(head, 76)?,
        faults_minor: get32(head, 80)?,
        faults_major: get16(head, 84)?,
        migrations: u16::from(*head.get(86)?),
        switches_involuntary: u16::from(*head.get(87)? >> 4),
        switches_voluntary: u16::from(*head.get(87)? & SWITCHES_MAX),
        idle_us: get32(head, 88)?,
        throttled_us: get32(head, 92)?,
        throttled_also_us: get32(head, 92)?
            .saturating_mul(u32::from(get16(head, 6)? >> QUOTAS_SHIFT) & QUOTAS_MAX),
        frozen_us: get32(head, 112)?,
        stolen_us: get32(head, 96)?,
        continued_age_us: get32(head, 100).filter(|&age_us| age_us != NEVER_US),
    };
    Some(Past { evidence, age_us: get32(head, 60)? })
}

/// The word of the filler at `place`. The multiplier is that of Knuth's MMIX generator: every bit of the number reaches
/// half of the word's.
#[inline]
fn filler_word(run: u32, sequence: u64, place: u64) -> u64 {
    let seed = sequence.wrapping_mul(6_364_136_223_846_793_005) ^ u64::from(run) << 32;
    seed.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Fills `bytes` as belongs to this trip.
#[inline]
pub fn fill(bytes: &mut [u8], run: u32, sequence: u64) {
    for (place, chunk) in (0_u64..).zip(bytes.chunks_mut(8)) {
        let word = filler_word(run, sequence, place).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Returns true if every byte is as [`fill`] left it.
#[inline]
pub fn is_filled(bytes: &[u8], run: u32, sequence: u64) -> bool {
    (0_u64..).zip(bytes.chunks(8)).all(|(place, chunk)| {
        let word = filler_word(run, sequence, place).to_le_bytes();
        chunk == &word[..chunk.len()]
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn evidence() -> impl Strategy<Value = Past> {
        (any::<[u32; 12]>(), any::<[u16; 3]>()).prop_map(|(long, short)| Past {
            evidence: Evidence {
                idle_us: long[6],
                throttled_us: long[7],
                throttled_also_us: long[7].saturating_mul(u32::from(short[1] >> 13)),
                frozen_us: long[10],
                stolen_us: long[8],
                continued_age_us: Some(long[9]).filter(|&age_us| age_us != NEVER_US),
                number: long[0],
                wall_us: long[2],
                cpu_us: long[3],
                wait_us: long[4],
                control_late_us: long[5],
                faults_minor: long[11],
                faults_major: short[0],
                migrations: short[1] & 0xFF,
                switches_involuntary: short[2] >> 12,
                switches_voluntary: short[2] & 15,
            },
            age_us: long[1],
        })
    }

    fn header() -> impl Strategy<Value = PacketHeader> {
        let numbers = (any::<[u32; 7]>(), any::<[u64; 2]>());
        let known = (
            proptest::option::of(any::<u32>()),
            proptest::option::of(any::<(u32, u32)>()),
            proptest::option::of(evidence()),
        );
        let kind = prop_oneof![Just(PacketKind::Request), Just(PacketKind::Reply), Just(PacketKind::End)];
        (kind, numbers, known).prop_map(|(kind, (short, long), (stack_ns, previous, evidence))| {
            PacketHeader {
                kind,
                trip: TripId { run: short[0], flow: short[1], sequence: long[0] },
                record: Record {
                    domain: short[2],
                    stack_ns,
                    woken: long[1],
                    read_ns: short[3],
                    application_ns: short[4],
                    previous,
                    evidence,
                    tick_fs: short[5],
                    listened_ns: short[6],
                },
            }
        })
    }

    /// Goal: on a host that has been up for long, the responder's stamps by the same clock are not moved by the rate that it says.
    #[test]
    fn one_clock_has_one_rate() {
        let clock = Clock::get();
        let woken = clock.ticks(std::time::Duration::from_secs(30 * 24 * 3600));
        let tick_fs = u32::try_from(clock.nanos(Ticks(1_000_000))).expect("a tick is no microsecond") + 1;
        let record = |domain| Record { domain, woken: woken.0, tick_fs, ..Record::default() };
        assert_eq!(record(clock.domain()).woken_ns(), clock.nanos(woken));
        // Another host's rate is all that is known of its clock.
        for other in [0, clock.domain().wrapping_add(1)] {
            assert!(record(other).woken_ns().abs_diff(clock.nanos(woken)) > 1_000_000);
        }
    }

    proptest! {
        #[test]
        fn a_header_reads_back(header in header(), size in SIZE_MIN..600) {
            let mut bytes = vec![0; size];
            write_header(&mut bytes, &header);
            prop_assert_eq!(read_header(&bytes), Some(header));
        }

        /// Goal: any bytes that come from outside are taken apart or refused, without a panic.
        #[test]
        fn any_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _refused_or_not = read_header(&bytes);
            let _filled_or_not = is_filled(&bytes, 1, 2);
        }

        /// Goal: no single wrong bit of the header goes unnoticed, and none of the filler.
        #[test]
        fn a_flipped_bit_is_found(header in header(), bit in 0..8 * 200_usize) {
            let mut bytes = vec![0; 200];
            fill(&mut bytes[SIZE_MIN..], header.trip.run, header.trip.sequence);
            write_header(&mut bytes, &header);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let filled = is_filled(&bytes[SIZE_MIN..], header.trip.run, header.trip.sequence);
            prop_assert!(read_header(&bytes).is_none() || !filled);
        }

        #[test]
        fn no_prefix_is_taken_for_a_header(header in header(), size in 0..SIZE_MIN) {
            let mut bytes = vec![0; SIZE_MIN];
            write_header(&mut bytes, &header);
            prop_assert_eq!(read_header(&bytes[..size]), None);
        }
    }

    #[test]
    fn the_filler_differs_from_trip_to_trip() {
        let filled = |run, sequence| {
            let mut bytes = [0; 37];
            fill(&mut bytes, run, sequence);
            bytes
        };
        assert_ne!(filled(1, 7), filled(1, 8));
        assert_ne!(filled(1, 7), filled(2, 7));
        assert!(is_filled(&filled(3, 9), 3, 9) && !is_filled(&filled(3, 9), 3, 10));
    }
}
