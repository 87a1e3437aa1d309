//! A node's announcement of how far its streams are.

use crate::engine::Progress;

/// Size of an announcement, bytes: next broadcast number, next unicast number to its target, flags.
pub(super) const ANNOUNCEMENT_SIZE: usize = 17;

pub(super) const UNICAST_KNOWN: u8 = 1;
pub(super) const ANSWER_WANTED: u8 = 2;

/// An announcement as it was read.
pub(super) struct Announcement {
    pub(super) progress: Progress,
    pub(super) answer_wanted: bool,
}

/// Reads one that came to everybody, or to this node alone.
pub(super) fn parse_announcement(payload: &[u8], to_everybody: bool) -> Option<Announcement> {
    let bytes: &[u8; ANNOUNCEMENT_SIZE] = payload.first_chunk()?;
    let ([broadcast, unicast], flags) = bytes.split_first_chunk::<16>().map(|(numbers, flags)| {
        let numbers = numbers.as_chunks::<8>().0;
        ([numbers[0], numbers[1]].map(u64::from_le_bytes), flags[0])
    })?;
    let unicast = (flags & UNICAST_KNOWN != 0).then_some(unicast);
    let progress = Progress { unicast, broadcast, in_order: to_everybody, life: 0 };
    Some(Announcement { progress, answer_wanted: flags & ANSWER_WANTED != 0 })
}
