//! Packets that the client writes, and its judgement of those that come back: our own packets, RFC 862 echo, sockperf.
//!
//! sockperf's header, as its 3.7 puts it on the wire (found by capturing): sequence number u64, flags u16 (1 = from the
//! client, 2 = a reply is wanted), length u32, all big-endian; 14 bytes. A server answers what has both flags, with the
//! first cleared and the rest as it was.

use clap::ValueEnum;
use crc_fast::crc32_iscsi;
use serde::{Deserialize, Serialize};

use super::wire::{self, PacketHeader, PacketKind, Record, TripId};
use crate::endpoint::port::Stamps;

/// Kind of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Our own: stamps of both ends in the packet
    #[default]
    Punctual,
    /// Plain UDP echo, RFC 862
    Udp,
    /// As the sockperf client and server speak
    Sockperf,
}

/// Bytes of sockperf's header.
const SOCKPERF_HEADER_SIZE: usize = 14;
const SOCKPERF_FROM_CLIENT: u16 = 1;
const SOCKPERF_WANTS_REPLY: u16 = 2;

/// Sequence u64, run u32 and CRC-32C u32 over both, little-endian, of a plain echo, before its filler.
const UDP_HEADER_SIZE: usize = 16;

/// Judgement of a packet that reached the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The right bytes in answer to this trip.
    Answer {
        /// Its number.
        sequence: u64,
        /// The responder's record of it; with our own packets only.
        record: Option<Record>,
    },
    /// Bytes were changed on the way. The number, where it can still be read, may be wrong too.
    Damaged {
        /// Its number.
        sequence: Option<u64>,
    },
    /// Of another run.
    Foreign,
}

impl Protocol {
    /// The stamps that a responder of this protocol has a use for: others cannot carry them, and stamps of the device
    /// that nobody reads would fill the socket.
    pub fn responder_stamps(self, asked: Stamps) -> Stamps {
        match self {
            Self::Punctual => asked,
            Self::Udp | Self::Sockperf => Stamps::Off,
        }
    }

    /// Smallest payload, bytes.
    pub fn size_min(self) -> usize {
        match self {
            Self::Punctual => wire::SIZE_MIN,
            Self::Udp => UDP_HEADER_SIZE,
            Self::Sockperf => SOCKPERF_HEADER_SIZE,
        }
    }

    /// Writes the request of a trip over the whole buffer.
    #[inline]
    pub fn write_request(self, bytes: &mut [u8], trip: TripId) {
        wire::fill(&mut bytes[self.size_min()..], trip.run, trip.sequence);
        match self {
            Self::Punctual => wire::write_header(
                bytes,
                &PacketHeader { kind: PacketKind::Request, trip, record: Record::default() },
            ),
            Self::Udp => {
                bytes[..8].copy_from_slice(&trip.sequence.to_le_bytes());
                bytes[8..12].copy_from_slice(&trip.run.to_le_bytes());
                let check = crc32_iscsi(&bytes[..12]);
                bytes[12..UDP_HEADER_SIZE].copy_from_slice(&check.to_le_bytes());
            }
            Self::Sockperf => {
                let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                bytes[..8].copy_from_slice(&trip.sequence.to_be_bytes());
                let flags = SOCKPERF_FROM_CLIENT | SOCKPERF_WANTS_REPLY;
                bytes[8..10].copy_from_slice(&flags.to_be_bytes());
                bytes[10..SOCKPERF_HEADER_SIZE].copy_from_slice(&size.to_be_bytes());
            }
        }
    }

    /// Judges what came back to a client that sends packets of `size` bytes in this run.
    #[inline]
    pub fn read_reply(self, bytes: &[u8], run: u32, size: usize) -> Verdict {
        let Some(Head { is_reply, sequence, run: of, record }) = self.read_head(bytes) else {
            return Verdict::Damaged { sequence: None };
        };
        if of.is_some_and(|of| of != run) {
            return Verdict::Foreign;
        }
        let is_whole = || wire::is_filled(&bytes[self.size_min()..], run, sequence);
        if is_reply && bytes.len() == size && is_whole() {
            Verdict::Answer { sequence, record }
        } else {
            Verdict::Damaged { sequence: Some(sequence) }
        }
    }

    /// Reads the head before the filler; `None` where that is not whole.
    #[inline]
    fn read_head(self, bytes: &[u8]) -> Option<Head> {
        match self {
            Self::Punctual => {
                let PacketHeader { kind, trip, record } = wire::read_header(bytes)?;
                let is_reply = kind == PacketKind::Reply;
                Some(Head { is_reply, sequence: trip.sequence, run: Some(trip.run), record: Some(record) })
            }
            Self::Udp => {
                let (sequence, rest) = bytes.split_first_chunk()?;
                let (run, rest) = rest.split_first_chunk()?;
                let (check, _) = rest.split_first_chunk()?;
                let is_whole = u32::from_le_bytes(*check) == crc32_iscsi(&bytes[..12]);
                let (sequence, run) = (u64::from_le_bytes(*sequence), Some(u32::from_le_bytes(*run)));
                is_whole.then_some(Head { is_reply: true, sequence, run, record: None })
            }
            // It has no run and no check: its filler tells a stranger, and with less than eight bytes of it a wrong number may
            // pass for another trip's.
            Self::Sockperf => {
                let (sequence, flags, length) = sockperf_header(bytes)?;
                let is_reply = flags == SOCKPERF_WANTS_REPLY && length as usize == bytes.len();
                Some(Head { is_reply, sequence, run: None, record: None })
            }
        }
    }
}

/// Facts that a packet tells a client about itself.
struct Head {
    is_reply: bool,
    sequence: u64,
    /// Of which run, where that is said.
    run: Option<u32>,
    record: Option<Record>,
}

/// Sequence, flags, length.
fn sockperf_header(bytes: &[u8]) -> Option<(u64, u16, u32)> {
    let (sequence, rest) = bytes.split_first_chunk()?;
    let (flags, rest) = rest.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*sequence), u16::from_be_bytes(*flags), u32::from_be_bytes(*length)))
}

/// Meaning of a packet to a server of sockperf's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SockperfRequest {
    /// It was turned into its reply.
    Answered,
    /// It is whole, and its client wants no reply to it (`--reply-every`, throughput).
    Silent,
    /// It is no request.
    NotUnderstood,
}

/// Turns a sockperf request into its reply, in place, if one is wanted.
#[inline]
pub(super) fn answer_sockperf(bytes: &mut [u8]) -> SockperfRequest {
    let Some((_, flags, length)) = sockperf_header(bytes) else { return SockperfRequest::NotUnderstood };
    if flags & SOCKPERF_FROM_CLIENT == 0 || length as usize != bytes.len() {
        return SockperfRequest::NotUnderstood;
    }
    if flags & SOCKPERF_WANTS_REPLY == 0 {
        return SockperfRequest::Silent;
    }
    bytes[8..10].copy_from_slice(&(flags & !SOCKPERF_FROM_CLIENT).to_be_bytes());
    SockperfRequest::Answered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Protocol; 3] = [Protocol::Punctual, Protocol::Udp, Protocol::Sockperf];

    /// The reply of a right responder to a request.
    fn answered(protocol: Protocol, request: &[u8]) -> Vec<u8> {
        let mut bytes = request.to_vec();
        match protocol {
            Protocol::Udp => {}
            Protocol::Sockperf => assert_eq!(answer_sockperf(&mut bytes), SockperfRequest::Answered),
            Protocol::Punctual => {
                let header = wire::read_header(&bytes).expect("our own");
                wire::write_header(&mut bytes, &PacketHeader { kind: PacketKind::Reply, ..header });
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn an_answer_is_right_or_damaged(sequence: u64, run: u32, more in 8..300_usize, bit: usize) {
            for protocol in ALL {
                let mut request = vec![0; protocol.size_min() + more];
                protocol.write_request(&mut request, TripId { run, flow: 0, sequence });
                let mut reply = answered(protocol, &request);
                let read = protocol.read_reply(&reply, run, request.len());
                let right = matches!(read, Verdict::Answer { sequence: of, .. } if of == sequence);
                prop_assert!(right, "{protocol:?}: {read:?}");
                let bit = bit % (8 * reply.len());
                reply[bit / 8] ^= 1 << (bit % 8);
                let read = protocol.read_reply(&reply, run, request.len());
                let believed = matches!(read, Verdict::Answer { .. });
                prop_assert!(!believed, "{protocol:?}: bit {bit}");
                let shorter = protocol.read_reply(&reply[..reply.len() - 1], run, request.len());
                let believed = matches!(shorter, Verdict::Answer { .. });
                prop_assert!(!believed, "{protocol:?}");
            }
        }

        #[test]
        fn any_bytes_are_harmless(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), run: u32) {
            for protocol in ALL {
                let verdict = protocol.read_reply(&bytes, run, bytes.len());
                let claims_stamps = matches!(verdict, Verdict::Answer { record: Some(_), .. });
                prop_assert!(!claims_stamps);
            }
            let _answered_or_not = answer_sockperf(&mut bytes);
        }
    }

    /// Goal: the bytes that sockperf 3.7 was seen to send and to answer.
    #[test]
    fn sockperf_is_answered_as_its_own_server_does() {
        let mut request = vec![0, 0, 0, 0, 0, 0, 0, 8, 0, 3, 0, 0, 0, 16, 0x78, 0x78];
        assert_eq!(answer_sockperf(&mut request), SockperfRequest::Answered);
        assert_eq!(request, [0, 0, 0, 0, 0, 0, 0, 8, 0, 2, 0, 0, 0, 16, 0x78, 0x78]);
        let mut unasked = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 14];
        assert_eq!(answer_sockperf(&mut unasked), SockperfRequest::Silent);
        assert_eq!(answer_sockperf(&mut unasked[..13]), SockperfRequest::NotUnderstood);
        assert_eq!(answer_sockperf(&mut request), SockperfRequest::NotUnderstood, "a reply is no request");
    }
}
