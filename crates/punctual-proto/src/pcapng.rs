//! Captures as files: the blocks of pcapng (IETF draft-ietf-opsawg-pcapng) that Punctual writes, and reads again.
//!
//! Frames stand as the link type *user 0* (147): the bytes of `docs/wire.md`, without the medium's own headers. Times are
//! nanoseconds since 1970. Wireshark opens such files. Blocks of other kinds are passed over; files of the other byte order, with
//! another link type or another unit of time are refused: nobody here writes them.

use alloc::vec::Vec;
use core::fmt;

use crate::limits::{OVERHEAD_SIZE_MAX, PAYLOAD_SIZE_MAX};

/// The link type of frames, *user 0*.
pub const LINK_TYPE: u16 = 147;

/// Largest block that is read, bytes: the largest frame, and as much for options as for any other block.
pub const BLOCK_SIZE_MAX: usize = PAYLOAD_SIZE_MAX + OVERHEAD_SIZE_MAX + (1 << 16);
const _: () = assert!(BLOCK_SIZE_MAX < u32::MAX as usize);

/// Size of what says how large a block is, bytes: its kind and its size.
pub const BLOCK_HEAD_SIZE: usize = 8;

/// Longest comment that is written, bytes.
const COMMENT_SIZE_MAX: usize = 4096;

const BLOCK_SECTION: u32 = 0x0A0D_0D0A;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_STATISTICS: u32 = 5;
const BLOCK_PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1A2B_3C4D;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_PACKET_FLAGS: u16 = 2;
const OPTION_PACKET_DROPS: u16 = 4;
const OPTION_RECEIVED: u16 = 4;
const OPTION_DROPPED: u16 = 5;
const OPTION_RESOLUTION: u16 = 9;

/// Ten to the minus nine.
const NANOSECONDS: u8 = 9;

/// Direction of a frame, as in pcapng's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It arrived.
    In = 1,
    /// It was sent.
    Out = 2,
}

/// A frame that was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When, nanoseconds since 1970.
    pub ns: u64,
    /// Direction, where it is known.
    pub direction: Option<Direction>,
    /// Frames that are missing since the one before.
    pub missed: u64,
    /// A comment, if there is one.
    pub comment: Option<&'a str>,
    /// As much of it as was kept.
    pub frame: &'a [u8],
    /// Its size, bytes.
    pub size: usize,
}

/// Counts of frames up to an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics<'a> {
    /// When, nanoseconds since 1970.
    pub ns: u64,
    /// Frames that were for the capture, those that are missing included.
    pub received: u64,
    /// Frames that are missing.
    pub missed: u64,
    /// The same in words.
    pub comment: Option<&'a str>,
}

/// A block that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// A capture begins.
    Section {
        /// Its writer's comment.
        comment: Option<&'a str>,
    },
    /// Where frames come from.
    Interface,
    /// A frame.
    Packet(Packet<'a>),
    /// Sums.
    Statistics(Statistics<'a>),
    /// Something of which nothing is wanted here.
    Other,
}

/// Why bytes are no block of a capture of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// Somebody else's bytes.
    NotPcapng,
    /// Written by a machine of the other byte order.
    ByteOrder,
    /// Frames of another link type.
    LinkType(u16),
    /// Instants that are not counted in nanoseconds.
    Resolution,
    /// A size that cannot be, or parts that do not fit into it.
    Malformed,
    /// Larger than the largest frame.
    TooLarge {
        /// Its size, bytes.
        size: usize,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPcapng => f.write_str("not a capture (pcapng)"),
            Self::ByteOrder => f.write_str("a capture of a machine of the other byte order"),
            Self::LinkType(found) => {
                write!(f, "frames of link type {found} where {LINK_TYPE} (user 0) is Punctual's")
            }
            Self::Resolution => f.write_str("instants that are not counted in nanoseconds"),
            Self::Malformed => f.write_str("a block whose parts do not fit into it"),
            Self::TooLarge { size } => {
                write!(f, "a block of {size} bytes where {BLOCK_SIZE_MAX} is the most")
            }
        }
    }
}

impl core::error::Error for BlockError {}

/// Writes a block: kind, size, what `body` writes, padded to four bytes, size.
fn write_block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    pad(out, start);
    let size = ((out.len() - start + 4) as u32).to_le_bytes();
    out.extend_from_slice(&size);
    out[start + 4..start + 8].copy_from_slice(&size);
}

/// Fills up to a multiple of four bytes since `start`.
fn pad(out: &mut Vec<u8>, start: usize) {
    let size = out.len() - start;
    out.resize(start + size.next_multiple_of(4), 0);
}

fn write_option(out: &mut Vec<u8>, start: usize, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, start);
}

fn write_comment(out: &mut Vec<u8>, start: usize, comment: Option<&str>) {
    if let Some(comment) = comment {
        let size = comment.floor_char_boundary(COMMENT_SIZE_MAX);
        write_option(out, start, OPTION_COMMENT, &comment.as_bytes()[..size]);
    }
}

fn write_instant(out: &mut Vec<u8>, ns: u64) {
    out.extend_from_slice(&((ns >> 32) as u32).to_le_bytes());
    out.extend_from_slice(&(ns as u32).to_le_bytes());
}

/// Writes what a capture begins with. Of a frame `snap_size` bytes are kept; 0 = all.
pub fn write_start(out: &mut Vec<u8>, snap_size: u32, comment: Option<&str>) {
    let start = out.len();
    write_block(out, BLOCK_SECTION, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        out.extend_from_slice(&1_u16.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        out.extend_from_slice(&(-1_i64).to_le_bytes());
        if comment.is_some() {
            write_comment(out, start, comment);
            write_option(out, start, OPTION_END, &[]);
        }
    });
    let start = out.len();
    write_block(out, BLOCK_INTERFACE, |out| {
        out.extend_from_slice(&LINK_TYPE.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&snap_size.to_le_bytes());
        write_option(out, start, OPTION_RESOLUTION, &[NANOSECONDS]);
        write_option(out, start, OPTION_END, &[]);
    });
}

/// Writes a frame that consists of these parts; [`Packet::frame`] and [`Packet::size`] are theirs. `snap_size` bytes of it are
/// kept; 0 = all.
pub fn write_packet(out: &mut Vec<u8>, packet: &Packet<'_>, parts: &[&[u8]], snap_size: usize) {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    let kept = if snap_size == 0 { size } else { size.min(snap_size) };
    let start = out.len();
    write_block(out, BLOCK_PACKET, |out| {
        out.extend_from_slice(&0_u32.to_le_bytes());
        write_instant(out, packet.ns);
        out.extend_from_slice(&(kept as u32).to_le_bytes());
        out.extend_from_slice(&(size as u32).to_le_bytes());
        let data_at = out.len();
        for part in parts {
            let room = kept - (out.len() - data_at);
            out.extend_from_slice(&part[..part.len().min(room)]);
        }
        pad(out, start);
        write_comment(out, start, packet.comment);
        if let Some(direction) = packet.direction {
            write_option(out, start, OPTION_PACKET_FLAGS, &(direction as u32).to_le_bytes());
        }
        if packet.missed > 0 {
            write_option(out, start, OPTION_PACKET_DROPS, &packet.missed.to_le_bytes());
        }
        if packet.comment.is_some() || packet.direction.is_some() || packet.missed > 0 {
            write_option(out, start, OPTION_END, &[]);
        }
    });
}

/// Writes sums.
pub fn write_statistics(out: &mut Vec<u8>, statistics: &Statistics<'_>) {
    let start = out.len();
    write_block(out, BLOCK_STATISTICS, |out| {
        out.extend_from_slice(&0_u32.to_le_bytes());
        write_instant(out, statistics.ns);
        write_comment(out, start, statistics.comment);
        write_option(out, start, OPTION_RECEIVED, &statistics.received.to_le_bytes());
        write_option(out, start, OPTION_DROPPED, &statistics.missed.to_le_bytes());
        write_option(out, start, OPTION_END, &[]);
    });
}

/// The size of a block that begins so, bytes, its head included.
///
/// # Errors
/// It cannot be.
pub fn block_size(head: &[u8; BLOCK_HEAD_SIZE]) -> Result<usize, BlockError> {
    let mut reader = Reader(head);
    let (kind, size) = (reader.u32()?, reader.u32()?);
    // A section of the other byte order has a size that is turned round as well.
    if kind == BLOCK_SECTION && size.swap_bytes() < size {
        return Err(BlockError::ByteOrder);
    }
    let size = size as usize;
    match size {
        _ if size > BLOCK_SIZE_MAX => Err(BlockError::TooLarge { size }),
        _ if size < BLOCK_HEAD_SIZE + 4 || !size.is_multiple_of(4) => Err(BlockError::Malformed),
        _ => Ok(size),
    }
}

/// True if a file that begins with these bytes is pcapng.
pub fn is_start(bytes: &[u8]) -> bool {
    bytes.starts_with(&BLOCK_SECTION.to_le_bytes())
}

/// Reads one whole block.
///
/// # Errors
/// See [`BlockError`].
pub fn read_block(bytes: &[u8]) -> Result<Block<'_>, BlockError> {
    let head = bytes.first_chunk().ok_or(BlockError::Malformed)?;
    let size = block_size(head)?;
    if bytes.len() != size || bytes[size - 4..] != head[4..] {
        return Err(BlockError::Malformed);
    }
    let kind = Reader(head).u32()?;
    let body = Reader(&bytes[BLOCK_HEAD_SIZE..size - 4]);
    match kind {
        BLOCK_SECTION => read_section(body),
        BLOCK_INTERFACE => read_interface(body),
        BLOCK_PACKET => read_packet(body),
        BLOCK_STATISTICS => read_statistics(body),
        _ => Ok(Block::Other),
    }
}

fn read_section(mut body: Reader<'_>) -> Result<Block<'_>, BlockError> {
    match body.u32()? {
        BYTE_ORDER => {}
        order if order.swap_bytes() == BYTE_ORDER => return Err(BlockError::ByteOrder),
        _ => return Err(BlockError::NotPcapng),
    }
    let major = body.u16()?;
    if major != 1 {
        return Err(BlockError::NotPcapng);
    }
    body.take(10)?;
    let mut comment = None;
    while let Some((code, value)) = body.option()? {
        if code == OPTION_COMMENT {
            comment = core::str::from_utf8(value).ok();
        }
    }
    Ok(Block::Section { comment })
}

fn read_interface(mut body: Reader<'_>) -> Result<Block<'_>, BlockError> {
    let link_type = body.u16()?;
    if link_type != LINK_TYPE {
        return Err(BlockError::LinkType(link_type));
    }
    body.take(6)?;
    // Microseconds, where nothing else is said.
    let mut resolution = 6;
    while let Some((code, value)) = body.option()? {
        if code == OPTION_RESOLUTION {
            resolution = value.first().copied().unwrap_or(resolution);
        }
    }
    if resolution == NANOSECONDS { Ok(Block::Interface) } else { Err(BlockError::Resolution) }
}

fn read_packet(mut body: Reader<'_>) -> Result<Block<'_>, BlockError> {
    body.take(4)?;
    let ns = body.instant()?;
    let (kept, size) = (body.u32()? as usize, body.u32()? as usize);
    let frame = body.take(kept)?;
    body.take(kept.next_multiple_of(4) - kept)?;
    let mut packet = Packet { ns, direction: None, missed: 0, comment: None, frame, size };
    while let Some((code, value)) = body.option()? {
        match code {
            OPTION_COMMENT => packet.comment = core::str::from_utf8(value).ok(),
            OPTION_PACKET_DROPS => packet.missed = Reader(value).u64()?,
            OPTION_PACKET_FLAGS => {
                packet.direction = match Reader(value).u32()? & 3 {
                    1 => Some(Direction::In),
                    2 => Some(Direction::Out),
                    _ => None,
                }
            }
            _ => {}
        }
    }
    Ok(Block::Packet(packet))
}

fn read_statistics(mut body: Reader<'_>) -> Result<Block<'_>, BlockError> {
    body.take(4)?;
    let mut statistics = Statistics { ns: body.instant()?, received: 0, missed: 0, comment: None };
    while let Some((code, value)) = body.option()? {
        match code {
            OPTION_COMMENT => statistics.comment = core::str::from_utf8(value).ok(),
            OPTION_RECEIVED => statistics.received = Reader(value).u64()?,
            OPTION_DROPPED => statistics.missed = Reader(value).u64()?,
            _ => {}
        }
    }
    Ok(Block::Statistics(statistics))
}

/// The part of a block that has not been read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], BlockError> {
        let (taken, rest) = self.0.split_at_checked(size).ok_or(BlockError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], BlockError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BlockError::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, BlockError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, BlockError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, BlockError> {
        self.array().map(u64::from_le_bytes)
    }

    fn instant(&mut self) -> Result<u64, BlockError> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// The next option; none at the end.
    fn option(&mut self) -> Result<Option<(u16, &'a [u8])>, BlockError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (code, size) = (self.u16()?, usize::from(self.u16()?));
        if code == OPTION_END {
            self.0 = &[];
            return Ok(None);
        }
        let value = self.take(size)?;
        self.take(size.next_multiple_of(4) - size)?;
        Ok(Some((code, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SNAP_SIZE: usize = 65_535;

    fn packet(frame: &[u8]) -> Packet<'_> {
        Packet { ns: 7, direction: Some(Direction::In), missed: 0, comment: None, frame, size: frame.len() }
    }

    /// The blocks of a file.
    fn blocks(mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut blocks = Vec::new();
        while let Some(head) = bytes.first_chunk() {
            let (block, rest) = bytes.split_at(block_size(head).unwrap());
            blocks.push(block);
            bytes = rest;
        }
        assert!(bytes.is_empty());
        blocks
    }

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        let mut out = Vec::new();
        write_start(&mut out, SNAP_SIZE as u32, Some("a comment"));
        write_packet(&mut out, &packet(b""), &[b"abc", b"defgh"], SNAP_SIZE);
        let blocks = blocks(&out);
        assert_eq!(blocks.len(), 3);
        for block in blocks {
            let size = block.len() as u32;
            assert_eq!(size % 4, 0);
            assert_eq!(block[4..8], size.to_le_bytes());
            assert_eq!(block[block.len() - 4..], size.to_le_bytes());
        }
    }

    #[test]
    fn a_long_frame_is_cut_and_says_so() {
        let long = vec![1; SNAP_SIZE + 10];
        let mut out = Vec::new();
        write_packet(&mut out, &packet(b""), &[b"ab", &long], SNAP_SIZE);
        let Ok(Block::Packet(read)) = read_block(&out) else { panic!("a packet was written") };
        assert_eq!((read.frame.len(), read.size), (SNAP_SIZE, SNAP_SIZE + 12));
        out.clear();
        write_packet(&mut out, &packet(b""), &[b"ab", &long], 0);
        let Ok(Block::Packet(read)) = read_block(&out) else { panic!("a packet was written") };
        assert_eq!((read.frame.len(), read.size), (SNAP_SIZE + 12, SNAP_SIZE + 12));
    }

    #[test]
    fn blocks_that_others_write_are_refused_by_name() {
        let mut out = Vec::new();
        write_start(&mut out, 0, None);
        let (section, interface) = out.split_at(28);
        assert_eq!(read_block(section), Ok(Block::Section { comment: None }));
        assert_eq!(read_block(interface), Ok(Block::Interface));
        let mut ethernet = interface.to_vec();
        ethernet[8] = 1;
        assert_eq!(read_block(&ethernet), Err(BlockError::LinkType(1)));
        let mut micros = interface.to_vec();
        micros[20] = 6;
        assert_eq!(read_block(&micros), Err(BlockError::Resolution));
        let mut turned = section.to_vec();
        turned[4..8].reverse();
        assert_eq!(block_size(turned.first_chunk().unwrap()), Err(BlockError::ByteOrder));
        let mut endless = section.to_vec();
        endless[4..8].copy_from_slice(&(1_u32 << 30).to_le_bytes());
        endless[0] = 6;
        let size = 1 << 30;
        assert_eq!(block_size(endless.first_chunk().unwrap()), Err(BlockError::TooLarge { size }));
        assert!(!is_start(b"PK\x03\x04") && is_start(section));
    }

    proptest! {
        /// Goal: blocks are read as they were written.
        #[test]
        fn blocks_read_back(
            frame in proptest::collection::vec(any::<u8>(), 0..200),
            ns: u64,
            missed: u64,
            comment in proptest::option::of("[a-zä]{1,40}"),
            out_going: Option<bool>,
        ) {
            let direction = out_going.map(|out| if out { Direction::Out } else { Direction::In });
            let comment = comment.as_deref();
            let packet = Packet { ns, direction, missed, comment, frame: &frame, size: frame.len() };
            let mut out = Vec::new();
            write_packet(&mut out, &packet, &[&frame], 0);
            prop_assert_eq!(read_block(&out), Ok(Block::Packet(packet)));
            let statistics = Statistics { ns, received: missed / 2, missed, comment };
            out.clear();
            write_statistics(&mut out, &statistics);
            prop_assert_eq!(read_block(&out), Ok(Block::Statistics(statistics)));
            out.clear();
            write_start(&mut out, 0, comment);
            prop_assert_eq!(read_block(blocks(&out)[0]), Ok(Block::Section { comment }));
        }

        /// Goal: any bytes are refused, or read without harm.
        /// Method: random bytes, half of them with a head and an end that fit.
        #[test]
        fn any_bytes_are_harmless(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), likely: bool, kind in 0..8_u32) {
            if likely {
                bytes.resize(bytes.len().next_multiple_of(4).max(12), 0);
                let size = (bytes.len() as u32).to_le_bytes();
                let kind = if kind == 0 { BLOCK_SECTION } else { kind };
                bytes[..4].copy_from_slice(&kind.to_le_bytes());
                bytes[4..8].copy_from_slice(&size);
                let end = bytes.len() - 4;
                bytes[end..].copy_from_slice(&size);
            }
            if let Ok(Block::Packet(packet)) = read_block(&bytes) {
                prop_assert!(packet.frame.len() <= bytes.len());
            }
        }
    }
}
