//! Frames leave their sender's reach: each is copied into memory of our own, and its seal is looked at there.

use punctual_machine::block;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::limits::PREFIX_SIZE_MAX;
use punctual_proto::seal::Refusal;
use punctual_proto::{Header, Stamps};

use super::inbox::make_room;
use crate::engine::Arrival;
use crate::ledger::Count;
use crate::seal::{NodeOpener, Seals};

/// Counter of the frames, and of the rings of publications, that a seal or its lack forbids to believe.
pub(crate) fn count_of(refusal: Refusal) -> Count {
    match refusal {
        Refusal::Unsealed => Count::SealMissing,
        Refusal::Unexpected => Count::SealUnexpected,
        Refusal::UnknownKey => Count::SealUnknownKey,
        Refusal::BadTag => Count::SealBadTag,
        Refusal::Replayed => Count::SealReplayed,
        Refusal::Stale => Count::SealStale,
    }
}

/// The party that looks behind the seals of arriving frames.
#[derive(Debug)]
pub(super) enum Guard {
    /// The bus is not sealed: a sealed frame is meant for another.
    Nobody,
    /// The medium has done so.
    Medium,
    /// The node, on its own copy of the frame.
    Node(Box<NodeOpener>),
}

impl Guard {
    /// True if an arrived frame may be read where it lies: its seal was looked at there, or it has none, as it must be.
    #[inline]
    pub(super) fn lets_read(&self, header: &Header) -> bool {
        match self {
            Self::Nobody => !header.sealed,
            Self::Medium => true,
            Self::Node(_) => false,
        }
    }

    pub(super) fn new(seals: Option<&Seals>) -> Self {
        match seals {
            None => Self::Nobody,
            Some(seals) if seals.opened_by_medium => Self::Medium,
            Some(seals) => Self::Node(Box::new(seals.opener())),
        }
    }
}

/// Copies the message out of its sender's reach, to behind the largest prefix, and looks behind its seal there. Returns the
/// group in which it was sealed.
///
/// # Errors
/// Why it is not believed.
#[inline]
pub(super) fn copy(
    guard: &mut Guard,
    arrival: &Arrival<'_>,
    buffer: &mut Vec<u8>,
) -> Result<Option<u32>, Refusal> {
    let header = arrival.header;
    if matches!(guard, Guard::Nobody) && header.sealed {
        return Err(Refusal::Unexpected);
    }
    make_room(buffer, PREFIX_SIZE_MAX + arrival.payload.len());
    block::copy(arrival.payload, &mut buffer[PREFIX_SIZE_MAX..][..arrival.payload.len()]);
    let opened = open(guard, header, arrival.stamps, buffer)?;
    Ok(opened.or(arrival.sealed_in))
}

/// Looks behind the seal of a frame whose copy stands behind the largest prefix, where that is the node's to do. Returns the
/// group in which it was sealed.
#[inline]
pub(super) fn open(
    guard: &mut Guard,
    header: &Header,
    stamps: Option<Stamps>,
    buffer: &mut [u8],
) -> Result<Option<u32>, Refusal> {
    let Guard::Node(opener) = guard else { return Ok(None) };
    let begin = PREFIX_SIZE_MAX - header.prefix_size();
    let frame = &mut buffer[begin..begin + header.frame_size()];
    // The head as it was read and looked at, not as it may stand there by now.
    write_head(frame, header, stamps);
    opener.open(header, frame).map(Some)
}

/// Writes header and stamps as they arrived: a frame that was parsed is written the same again.
#[inline]
fn write_head(bytes: &mut [u8], header: &Header, stamps: Option<Stamps>) {
    let (head, rest) =
        bytes.split_first_chunk_mut::<HEADER_SIZE>().expect("the prefix begins with the header");
    header.write(head);
    if let (Some(stamps), Some(rest)) = (stamps, rest.first_chunk_mut()) {
        stamps.write(rest);
    }
}

/// Writes the prefix of a message in an inbox: there it needs no seal any more.
pub(super) fn write_prefix<'a>(bytes: &'a mut [u8; PREFIX_SIZE_MAX], arrival: &Arrival<'_>) -> &'a [u8] {
    let header = Header { sealed: false, ..*arrival.header };
    write_head(bytes, &header, arrival.stamps);
    &bytes[..header.prefix_size()]
}
