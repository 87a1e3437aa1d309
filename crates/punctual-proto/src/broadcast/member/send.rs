//! Messages that the user sends: cut into frames, numbered as far as the credit goes.

use alloc::vec::Vec;
use core::fmt;

use super::{Member, Phase};
use crate::broadcast::frames::Meta;
use crate::broadcast::guarantee::Guarantee;
use crate::broadcast::mutant::Mutant;
use crate::broadcast::slots::Slots;
use crate::time::Nanos;

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BroadcastError {
    /// The message before is not numbered yet: the slowest member has not taken enough. Try after the next event or timeout.
    Full,
    /// The view changes. Try after the next view.
    Changing,
    /// This life is in no view: it joins, or has left.
    NoMember,
    /// Too few members can be heard, or are in the view.
    Stopped,
    /// It is larger than a message may be, or empty.
    Size,
}

impl fmt::Display for BroadcastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the message before it still waits for credit",
            Self::Changing => "the view changes",
            Self::NoMember => "this life is in no view, or leaves",
            Self::Stopped => "too few members can be heard",
            Self::Size => "it is empty or too large",
        })
    }
}

impl core::error::Error for BroadcastError {}

/// Own frames of which no majority is known to hold them: with so many the next small message waits for company. Before that it goes
/// alone at once, so a member that broadcasts now and then waits for nothing.
const ALONE_MAX: u64 = 16;

/// Bytes in front of each message of a frame of several: its size.
const SIZE_SIZE: usize = 2;

/// The message that is being cut into frames, and how far the own frames are.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    at: usize,
    guarantee: Guarantee,
    is_active: bool,
    /// So many messages, each behind its size; none if it is one message, as it is.
    packed: usize,
    /// More may come into the same frame.
    gathers: bool,
    /// Own frames that a majority holds.
    pub(super) uniform: u64,
    /// Own frames that have numbers.
    pub(super) sent: u64,
    /// Own frames that were multicast.
    pub(super) transmitted: u64,
    /// Entries of the order that were announced.
    pub(super) announced: u64,
    /// Where the newest own frames stand in the order, by slot: at the sequencer from when they are ordered, at others from when they
    /// are delivered here.
    positions: Slots<u64>,
    /// So many own frames all users have taken.
    stable: u64,
}

impl Outgoing {
    /// A view begins: numbers begin anew, and so does a message of which frames are missing.
    pub(super) fn begin(&mut self) {
        (self.at, self.sent, self.transmitted, self.announced, self.stable) = (0, 0, 0, 0, 0);
        self.uniform = 0;
    }

    /// Before the first message: room for a window.
    pub(super) fn with_window(window: usize) -> Self {
        Self { positions: Slots::new(window, 0), ..Self::default() }
    }

    /// An own frame stands at this place in the order.
    pub(super) fn note_place(&mut self, number: u64, index: u64) {
        self.positions[number] = index;
    }

    /// Where an own frame stands, if that was noted, and nothing newer in its slot.
    pub(super) fn place(&self, number: u64) -> u64 {
        self.positions[number]
    }

    /// All users have taken so much of the order, and this one so many own frames.
    fn note_stable(&mut self, taken: u64, delivered: u64) {
        while self.stable < delivered && self.place(self.stable) < taken {
            self.stable += 1;
        }
    }

    /// Takes a message; a small one so that others may join it in its frame.
    fn begin_message(&mut self, message: &[u8], guarantee: Guarantee, is_small: bool) {
        self.bytes.clear();
        (self.at, self.is_active, self.guarantee) = (0, true, guarantee);
        (self.packed, self.gathers) = (0, false);
        if is_small {
            self.gathers = true;
            self.pack(message);
        } else {
            self.bytes.extend_from_slice(message);
        }
    }

    fn pack(&mut self, message: &[u8]) {
        self.packed += 1;
        self.bytes.extend_from_slice(&(message.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(message);
    }

    /// Takes a small message into the frame that gathers, if there is one of its kind and room.
    fn join(&mut self, message: &[u8], guarantee: Guarantee, frame_size: usize) -> bool {
        let has_room = self.bytes.len() + SIZE_SIZE + message.len() <= frame_size;
        let joins = self.is_gathering() && self.guarantee == guarantee && has_room;
        if joins {
            self.pack(message);
        }
        joins
    }

    pub(super) fn is_gathering(&self) -> bool {
        self.is_active && self.gathers
    }

    /// Messages that have gathered go as soon as there is credit.
    pub(super) fn gather_no_more(&mut self) {
        self.gathers = false;
    }

    /// A message waits for credit.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_active
    }

    /// A life ends, and with it what was not sent.
    pub(super) fn abandon(&mut self) {
        self.is_active = false;
    }
}

impl Member {
    /// Takes a message to be delivered to all members, this one included; or says why not.
    ///
    /// # Errors
    /// See [`BroadcastError`]: nothing of the message was kept.
    pub fn try_broadcast(
        &mut self,
        message: &[u8],
        guarantee: Guarantee,
        now: Nanos,
    ) -> Result<(), BroadcastError> {
        self.note_time(now);
        self.catch_up();
        if message.is_empty() || message.len() > self.options.message_size_max {
            return Err(BroadcastError::Size);
        }
        if self.phase != Phase::Member || self.is_leaving() {
            return Err(BroadcastError::NoMember);
        }
        if self.is_stopped {
            return Err(BroadcastError::Stopped);
        }
        if self.is_frozen() || self.closing.is_some() {
            return Err(BroadcastError::Changing);
        }
        let frame_size = self.options.frame_size;
        let is_small = guarantee.is_ordered()
            && SIZE_SIZE + message.len() <= frame_size / 2
            && message.len() <= usize::from(u16::MAX);
        if is_small && self.outgoing.join(message, guarantee, frame_size) {
            return Ok(());
        }
        if self.outgoing.is_gathering() {
            self.outgoing.gather_no_more();
            self.number_frames();
        }
        if self.outgoing.is_active {
            return Err(BroadcastError::Full);
        }
        self.outgoing.begin_message(message, guarantee, is_small);
        self.after_input();
        Ok(())
    }

    /// Numbers frames of the outgoing message as far as the credit goes. Says whether there were any.
    pub(super) fn number_frames(&mut self) -> bool {
        if !self.is_active() || self.is_frozen() || self.is_stopped {
            return false;
        }
        self.update_credit();
        let before = self.outgoing.sent;
        if !self.has_room_for_run() || self.waits_for_company() {
            return false;
        }
        while self.outgoing.is_active && self.has_credit() {
            self.number_frame();
        }
        let has_sent = before < self.outgoing.sent;
        // A member that leaves asks to go once all has a number, and says so.
        self.timing.status_due |= has_sent && self.is_leaving() && !self.outgoing.is_active;
        has_sent
    }

    /// Returns true if there is credit for all that is left of the message, or for a quarter of a window. A sender that uses every
    /// frame of room makes runs of few, and each is heard and answered by all. The amount that the others have taken and not said is
    /// less than that.
    fn has_room_for_run(&self) -> bool {
        let window = self.frames[self.own].window();
        let left = (self.outgoing.bytes.len() - self.outgoing.at).div_ceil(self.options.frame_size);
        let room = (self.outgoing.stable + window).saturating_sub(self.outgoing.sent);
        room >= (left as u64).min(window.div_ceil(4)) || self.mutants.has(Mutant::CreditIgnored)
    }

    /// Messages that gather in one frame wait while so many others are under way: then more come, and the end of one of them is near.
    fn waits_for_company(&self) -> bool {
        let under_way = self.outgoing.sent.saturating_sub(self.outgoing.uniform);
        let window = self.frames[self.own].window();
        self.outgoing.is_gathering() && under_way >= ALONE_MAX.min(window.div_ceil(2))
    }

    fn has_credit(&self) -> bool {
        let window = self.frames[self.own].window();
        self.outgoing.sent < self.outgoing.stable + window || self.mutants.has(Mutant::CreditIgnored)
    }

    fn number_frame(&mut self) {
        let Outgoing { bytes, at, guarantee, packed, sent, .. } = &mut self.outgoing;
        if *packed == 1 {
            // It has no company.
            *packed = 0;
            bytes.drain(..SIZE_SIZE);
        }
        let end = bytes.len().min(*at + self.options.frame_size);
        let meta = Meta {
            is_first: *at == 0,
            is_last: end == bytes.len(),
            is_packed: *packed > 0,
            guarantee: *guarantee,
            message_size: bytes.len() as u32,
        };
        self.frames[self.own].insert(*sent, meta, &bytes[*at..end], u64::MAX);
        (*at, *sent) = (end, *sent + 1);
        self.outgoing.is_active = !meta.is_last;
    }

    /// Messages that all users have taken need no room any more. The slowest live member decides.
    fn update_credit(&mut self) {
        let slowest = self
            .view
            .members()
            .iter()
            .map(|place| self.taken_by(place))
            .min()
            .unwrap_or(0)
            .min(self.progress.taken);
        self.outgoing.note_stable(slowest, self.delivered[self.own]);
    }

    /// Everything of this member's that can be repeated was seen to be with all.
    pub(super) fn is_settled(&self) -> bool {
        self.order.count(self.own) == self.outgoing.sent
            && !self.outgoing.is_active
            && self.progress.uniform >= self.progress.awaited
            && self.early.is_settled(&self.frames)
            && !self.order.has_gap()
            && self.frames.iter().all(|frames| !frames.has_gap())
    }
}
