//! The frame: one message as it stands in shared memory or travels on a wire.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | magic, 0xB5 |
//! | 1 | 1 | version (high four bits, 1) and kind (low four bits) |
//! | 2 | 2 | incarnation of the source node |
//! | 4 | 2 | source port |
//! | 6 | 2 | target port; 0xFFFF = all ports |
//! | 8 | 8 | source node |
//! | 16 | 8 | target node; all ones = everybody |
//! | 24 | 4 | sequence number in the stream (source node → target node, or source node → everybody) |
//! | 28 | 3 | payload size, bytes |
//! | 31 | 1 | flags: bit 0 = stamps follow the header, bit 1 = a seal follows the payload; the others must be 0 |
//! | 32 | 24 | stamps, where flagged ([`crate::stamps`]) |
//! | … | | payload |
//! | … | 24 | seal, where flagged ([`crate::seal`]) |
//!
//! Little-endian throughout. Unknown values are refused: another magic, version, kind or flag.

use core::fmt;

use crate::address::{Address, NodeId, Port, Target};
use crate::seal::SEAL_SIZE;
use crate::stamps::{STAMPS_SIZE, Stamps};

/// Size of the header, bytes.
pub const HEADER_SIZE: usize = 32;

/// Where the source node stands in the header.
pub const SOURCE_NODE_AT: usize = 8;

/// Size of the header, words of eight bytes.
pub const HEADER_WORDS: usize = HEADER_SIZE / 8;

const MAGIC: u8 = 0xB5;
const VERSION: u8 = 1;
const FLAG_STAMPED: u8 = 1;
const FLAG_SEALED: u8 = 2;
const NODE_EVERYONE: u64 = u64::MAX;
const PORT_ALL: u16 = u16::MAX;

/// Purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of an application.
    Data,
    /// A node says that it is there and how far its streams are.
    Hello,
    /// A node says that it leaves and where its streams ended.
    Goodbye,
    /// A part of a message that is larger than a frame ([`crate::fragment`]).
    Fragment,
}

impl Kind {
    #[inline]
    const fn code(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Hello => 1,
            Self::Goodbye => 2,
            Self::Fragment => 3,
        }
    }

    #[inline]
    const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Data),
            1 => Some(Self::Hello),
            2 => Some(Self::Goodbye),
            3 => Some(Self::Fragment),
            _ => None,
        }
    }

    /// True if it is an application's, and has a number in its stream.
    #[inline]
    pub const fn is_numbered(self) -> bool {
        matches!(self, Self::Data | Self::Fragment)
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Fewer bytes than a header, or than the header says.
    Short {
        /// Bytes present.
        present: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Somebody else's bytes.
    NotAFrame,
    /// A version, kind or flag of a later Punctual.
    Unknown,
    /// A node or port number that is reserved.
    BadAddress,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { present, needed } => {
                write!(f, "frame of {present} bytes where {needed} are needed")
            }
            Self::NotAFrame => f.write_str("not a frame of this protocol"),
            Self::Unknown => f.write_str("unknown version, kind or flag"),
            Self::BadAddress => f.write_str("reserved node or port number"),
        }
    }
}

impl core::error::Error for FrameError {}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Purpose of the frame.
    pub kind: Kind,
    /// Number of this life of the source node: drawn when the node opens.
    pub incarnation: u16,
    /// The sender.
    pub source: Address,
    /// Target of the frame.
    pub target: Target,
    /// Place in the stream from the source node to the target node, or to everybody.
    pub sequence: u32,
    /// Size of the payload, bytes.
    pub payload_size: u32,
    /// True if [`Stamps`] follow the header.
    pub stamped: bool,
    /// True if a seal follows the payload.
    pub sealed: bool,
}

impl Header {
    /// Size of what stands before the payload, bytes.
    #[inline]
    pub const fn prefix_size(&self) -> usize {
        if self.stamped { HEADER_SIZE + STAMPS_SIZE } else { HEADER_SIZE }
    }

    /// Size of the whole frame, bytes.
    #[inline]
    pub const fn frame_size(&self) -> usize {
        self.unsealed_size() + if self.sealed { SEAL_SIZE } else { 0 }
    }

    /// Size of the frame without its seal, bytes: up to here the seal covers it.
    #[inline]
    pub const fn unsealed_size(&self) -> usize {
        self.prefix_size() + self.payload_size as usize
    }

    /// The header as its four little-endian words.
    #[inline]
    pub fn to_words(&self) -> [u64; HEADER_WORDS] {
        let stamped = if self.stamped { FLAG_STAMPED } else { 0 };
        let flags = stamped | if self.sealed { FLAG_SEALED } else { 0 };
        let target_port = self.target.port.map_or(PORT_ALL, Port::get);
        [
            u64::from(MAGIC)
                | u64::from(VERSION << 4 | self.kind.code()) << 8
                | u64::from(self.incarnation) << 16
                | u64::from(self.source.port.get()) << 32
                | u64::from(target_port) << 48,
            self.source.node.get(),
            self.target.node.map_or(NODE_EVERYONE, NodeId::get),
            u64::from(self.sequence)
                | u64::from(self.payload_size & 0x00FF_FFFF) << 32
                | u64::from(flags) << 56,
        ]
    }

    /// Reads a header from its four little-endian words. The payload is not looked at.
    #[inline]
    pub fn from_words(words: [u64; HEADER_WORDS]) -> Result<Self, FrameError> {
        let [first, source, target, last] = words;
        if first as u8 != MAGIC {
            return Err(FrameError::NotAFrame);
        }
        let port = |number: u64| Some(Port::from(number as u16)).filter(|port| !port.is_reserved());
        let (version, kind, flags) =
            ((first >> 12) as u8 & 0x0F, (first >> 8) as u8 & 0x0F, (last >> 56) as u8);
        if version != VERSION || flags & !(FLAG_STAMPED | FLAG_SEALED) != 0 {
            return Err(FrameError::Unknown);
        }
        let kind = Kind::of(kind).ok_or(FrameError::Unknown)?;
        let node = |number| NodeId::new(number).ok_or(FrameError::BadAddress);
        let target_node = if target == NODE_EVERYONE { None } else { Some(node(target)?) };
        Ok(Self {
            kind,
            incarnation: (first >> 16) as u16,
            source: Address { node: node(source)?, port: port(first >> 32).ok_or(FrameError::BadAddress)? },
            target: Target { node: target_node, port: port(first >> 48) },
            sequence: last as u32,
            payload_size: (last >> 32) as u32 & 0x00FF_FFFF,
            stamped: flags & FLAG_STAMPED != 0,
            sealed: flags & FLAG_SEALED != 0,
        })
    }

    /// Writes the header.
    #[inline]
    pub fn write(&self, bytes: &mut [u8; HEADER_SIZE]) {
        write_words(self.to_words(), bytes);
    }

    /// Reads a header. The payload is not looked at.
    #[inline]
    pub fn read(bytes: &[u8; HEADER_SIZE]) -> Result<Self, FrameError> {
        Self::from_words(read_words(bytes))
    }
}

/// A header that was read: of one that differs from it in number and payload size alone nothing else need be looked at again.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    header: Header,
    words: [u64; HEADER_WORDS],
}

/// Bits of a header's last word that differ between frames of one kind, flags and addresses.
const VARYING: u64 = 0x00FF_FFFF_FFFF_FFFF;

impl Template {
    /// Of this header.
    pub fn new(header: Header) -> Self {
        let mut words = header.to_words();
        words[HEADER_WORDS - 1] &= !VARYING;
        Self { header, words }
    }

    /// Reads a header that is like this one; `None` if it is not.
    #[inline]
    pub fn read(&self, bytes: &[u8; HEADER_SIZE]) -> Option<Header> {
        let words: [u64; HEADER_WORDS] = read_words(bytes);
        let [first, source, target, last] = words;
        let differing = first ^ self.words[0]
            | source ^ self.words[1]
            | target ^ self.words[2]
            | last & !VARYING ^ self.words[3];
        (differing == 0).then_some(Header {
            sequence: last as u32,
            payload_size: (last >> 32) as u32 & 0x00FF_FFFF,
            ..self.header
        })
    }
}

/// The size that a header gives its frame, bytes, whether it is a header or not: two fields, where [`Header::read`] looks at all.
#[inline]
pub fn claimed_size(header: &[u8; HEADER_SIZE]) -> usize {
    let [.., last] = read_words::<HEADER_WORDS>(header);
    let flags = (last >> 56) as u8;
    let part = |flag, size| if flags & flag != 0 { size } else { 0 };
    HEADER_SIZE
        + part(FLAG_STAMPED, STAMPS_SIZE)
        + (last >> 32) as usize % (1 << 24)
        + part(FLAG_SEALED, SEAL_SIZE)
}

/// The little-endian words of `N` times eight bytes.
///
/// A reader of bytes in memory loads words and shifts: small loads from words that were stored just before wait for the store to leave
/// the core.
#[inline]
pub(crate) fn read_words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let words = bytes.as_chunks::<8>().0;
    debug_assert_eq!(words.len(), N);
    core::array::from_fn(|index| u64::from_le_bytes(words[index]))
}

/// The reverse of [`read_words`].
#[inline]
pub(crate) fn write_words<const N: usize>(words: [u64; N], bytes: &mut [u8]) {
    for (part, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *part = word.to_le_bytes();
    }
}

/// A frame taken apart in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The sender's stages, where it sent them.
    pub stamps: Option<Stamps>,
    /// The message.
    pub payload: &'a [u8],
    /// The seal, which shows that the frame is genuine, where it has one.
    pub seal: Option<&'a [u8; SEAL_SIZE]>,
}

impl<'a> Frame<'a> {
    /// Takes apart the frame at the start of `bytes`; more may follow it (padding, a check value).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let short = |needed| FrameError::Short { present: bytes.len(), needed };
        let (head, rest) = bytes.split_first_chunk::<HEADER_SIZE>().ok_or(short(HEADER_SIZE))?;
        let header = Header::read(head)?;
        let short = short(header.frame_size());
        let (stamps, rest) = if header.stamped {
            let (stamps, rest) = rest.split_first_chunk::<STAMPS_SIZE>().ok_or(short)?;
            (Some(Stamps::read(stamps)), rest)
        } else {
            (None, rest)
        };
        let (payload, rest) = rest.split_at_checked(header.payload_size as usize).ok_or(short)?;
        let seal = if header.sealed { Some(rest.first_chunk().ok_or(short)?) } else { None };
        Ok(Self { header, stamps, payload, seal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PAYLOAD_SIZE_MAX;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = Header> {
        let node = (1..u64::MAX).prop_map(|n| NodeId::new(n).unwrap());
        let port = (0..u16::MAX).prop_map(Port::from);
        let target = (proptest::option::of(node.clone()), proptest::option::of(port.clone()));
        let kind =
            prop_oneof![Just(Kind::Data), Just(Kind::Hello), Just(Kind::Goodbye), Just(Kind::Fragment)];
        let size = 0..=PAYLOAD_SIZE_MAX as u32;
        (kind, any::<u16>(), node, port, target, any::<u32>(), size, any::<[bool; 2]>()).prop_map(
            |(
                kind,
                incarnation,
                node,
                port,
                (target_node, target_port),
                sequence,
                payload_size,
                [stamped, sealed],
            )| {
                Header {
                    kind,
                    incarnation,
                    source: Address { node, port },
                    target: Target { node: target_node, port: target_port },
                    sequence,
                    payload_size,
                    stamped,
                    sealed,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire(header in headers()) {
            let mut bytes = [0; HEADER_SIZE];
            header.write(&mut bytes);
            prop_assert_eq!(Header::read(&bytes), Ok(header));
            prop_assert_eq!(claimed_size(&bytes), header.frame_size());
        }

        /// Goal: a template reads what is like it as any reader does, and nothing else.
        #[test]
        fn a_template_reads_what_is_like_it(header in headers(), other in headers(), flip in 0..HEADER_SIZE * 8) {
            let template = Template::new(header);
            let like = Header { sequence: other.sequence, payload_size: other.payload_size, ..header };
            let mut bytes = [0; HEADER_SIZE];
            like.write(&mut bytes);
            prop_assert_eq!(template.read(&bytes), Some(like));
            bytes[flip / 8] ^= 1 << (flip % 8);
            let varies = (24..31).contains(&(flip / 8));
            prop_assert_eq!(template.read(&bytes), if varies { Some(Header::read(&bytes).unwrap()) } else { None });
        }

        /// Goal: bytes from outside never cause a panic, and what parses writes back to itself.
        #[test]
        fn any_bytes_parse_or_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), likely: bool) {
            if likely && bytes.len() >= HEADER_SIZE {
                (bytes[0], bytes[1], bytes[29], bytes[30], bytes[31]) = (MAGIC, VERSION << 4, 0, 0, bytes[31] & 3);
            }
            if let Ok(frame) = Frame::parse(&bytes) {
                prop_assert!(frame.header.frame_size() <= bytes.len());
                let mut again = [0; HEADER_SIZE];
                frame.header.write(&mut again);
                prop_assert_eq!(&again[..], &bytes[..HEADER_SIZE]);
            }
        }
    }

    /// The layout is a contract: this very picture is in `docs/wire.md`.
    #[test]
    fn the_layout_is_as_documented() {
        let header = Header {
            kind: Kind::Hello,
            incarnation: 0x0302,
            source: Address { node: NodeId::new(0x0F0E_0D0C_0B0A_0908).unwrap(), port: Port::from(0x0504) },
            target: Target::EVERYONE,
            sequence: 0x1B1A_1918,
            payload_size: 0x001E_1D1C,
            stamped: true,
            sealed: true,
        };
        let mut bytes = [0; HEADER_SIZE];
        header.write(&mut bytes);
        let expected = [
            0xB5, 0x11, 0x02, 0x03, 0x04, 0x05, 0xFF, 0xFF, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F,
            0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x18, 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x03,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(bytes[SOURCE_NODE_AT..][..8], header.source.node.get().to_le_bytes());
    }

    #[test]
    fn an_unknown_header_is_refused() {
        let header = Header {
            kind: Kind::Data,
            incarnation: 1,
            source: Address { node: NodeId::named("a"), port: Port::from(1) },
            target: Target::EVERYONE,
            sequence: 0,
            payload_size: 3,
            stamped: false,
            sealed: false,
        };
        let mut bytes = [0; HEADER_SIZE + 3];
        header.write(bytes.first_chunk_mut().unwrap());
        assert!(Frame::parse(&bytes).is_ok());
        let altered = |at: usize, value: u8| {
            let mut bytes = bytes;
            bytes[at] = value;
            Frame::parse(&bytes).unwrap_err()
        };
        assert_eq!(altered(0, 0), FrameError::NotAFrame);
        assert_eq!(altered(1, 0x20), FrameError::Unknown, "version 2");
        assert_eq!(altered(1, 0x14), FrameError::Unknown, "kind 4");
        assert_eq!(altered(31, 0x04), FrameError::Unknown, "flag 2");
        assert_eq!(altered(28, 4), FrameError::Short { present: 35, needed: 36 });
        assert_eq!(altered(31, 0x02), FrameError::Short { present: 35, needed: 59 }, "no seal");
        let mut anonymous = bytes;
        anonymous[8..16].fill(0);
        assert_eq!(Frame::parse(&anonymous), Err(FrameError::BadAddress));
        assert_eq!(Frame::parse(&bytes[..31]), Err(FrameError::Short { present: 31, needed: 32 }));
    }
}
