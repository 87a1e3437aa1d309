//! Frames like the one before them, taken by one comparison.

use punctual_proto::frame::{HEADER_SIZE, HeaderPattern};
use punctual_proto::{Header, Stamps};

use super::SharedReceive;

/// What the next frame of a peer looks like if it is like the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Likeness {
    /// Whose ring, and which life of it that was.
    follower: usize,
    life: u64,
    pattern: HeaderPattern,
    prefix_size: usize,
    /// Prefix and seal, bytes.
    overhead_size: usize,
}

/// A frame that is as predicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alike {
    pub(crate) payload_size: u32,
    pub(crate) stamps: Option<Stamps>,
}

impl SharedReceive {
    /// What the next frame looks like if it is like the last one shown, which had this header.
    pub(crate) fn likeness(&self, header: &Header) -> Option<Likeness> {
        let life = self.followers.get(self.last)?.peer.segment.owner.life;
        let (pattern, prefix_size) = (HeaderPattern::of(header), header.prefix_size());
        let overhead_size = header.frame_size() - header.payload_size as usize;
        Some(Likeness { follower: self.last, life, pattern, prefix_size, overhead_size })
    }

    /// The next frame, if it has this number and is like the one before. Nothing is taken yet: the bytes may be overwritten
    /// while they are read, which [`Self::copy_alike`] finds out.
    #[inline]
    pub(crate) fn peek_alike(&mut self, likeness: &Likeness, sequence: u32) -> Option<Alike> {
        let follower = self.followers.get_mut(likeness.follower)?;
        if follower.corrupt || follower.peer.segment.owner.life != likeness.life || !self.joined.is_empty() {
            return None;
        }
        let frame = follower.ring.next_frame()?;
        let payload_size = likeness.pattern.payload_size(frame.first_words()?, sequence)?;
        if likeness.overhead_size + payload_size as usize != frame.len() {
            return None;
        }
        let stamps = if likeness.prefix_size > HEADER_SIZE {
            Some(Stamps::from_words(frame.skip(HEADER_SIZE)?.first_words()?))
        } else {
            None
        };
        Some(Alike { payload_size, stamps })
    }

    /// Copies the frame that [`Self::peek_alike`] found from its payload on, to `at` in `buffer`. `false` if it was written over
    /// meanwhile; then [`Self::poll_with`] says so.
    #[inline]
    pub(crate) fn copy_alike(&mut self, likeness: &Likeness, buffer: &mut [u8], at: usize) -> bool {
        let follower = &mut self.followers[likeness.follower];
        let Some(payload) = follower.ring.frame().skip(likeness.prefix_size) else { return false };
        payload.copy_to(&mut buffer[at..]);
        follower.ring.is_intact()
    }

    /// Takes the frame that was copied: it will not be shown again.
    #[inline]
    pub(crate) fn take_alike(&mut self, likeness: &Likeness) {
        let follower = &mut self.followers[likeness.follower];
        follower.ring.consume();
        follower.publish_cursor(&self.roster);
    }
}
