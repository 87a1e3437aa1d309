//! Writing of messages into a buffer.

use super::parts::Writer;
use super::{
    ACCEPT, ALONE, ASKS, CHECK_AT, DATA, Data, FIRST, GAPS, Head, INSTALL, JOIN, LAST, MAGIC,
    MISSING_PREFIX_SIZE, NOT_UNIFORM, ORDER, PACKED, PLACED, PROMISE, RANGE_SIZE, REFUSAL, REPAIR, STATUS,
    STATUS_FLAG_BITS, STATUS_UNHELD, Status, UNHELD, UNORDERED, VERSION, check_value,
};
use crate::broadcast::change::Proposal;
use crate::broadcast::check::Check;
use crate::broadcast::frames::Meta;
use crate::broadcast::options::Terms;
use crate::broadcast::order::Range;

/// A message under way into a buffer. Content that does not fit makes it void.
pub(in crate::broadcast) struct Draft<'b> {
    writer: Writer<'b>,
    check: Option<Check>,
}

impl<'b> Draft<'b> {
    fn new(buffer: &'b mut [u8], kind: u8, head: &Head, check: Option<Check>) -> Self {
        let mut writer = Writer { buffer, at: 0, is_full: false };
        writer.bytes(&[MAGIC, VERSION << 4 | kind, head.place as u8, u8::from(check.is_some()), 0, 0, 0, 0]);
        for field in [head.group, head.life, head.view, head.epoch, head.ordered, head.held, head.taken] {
            writer.long(field);
        }
        Self { writer, check }
    }

    /// Its size, once nothing more is added; `None` if it did not fit.
    pub(in crate::broadcast) fn finish(self) -> Option<usize> {
        let Writer { buffer, at, is_full } = self.writer;
        if is_full {
            return None;
        }
        if let Some(check) = self.check {
            let value = check_value(check, &buffer[..at]);
            buffer[CHECK_AT..CHECK_AT + 4].copy_from_slice(&value.to_le_bytes());
        }
        Some(at)
    }

    pub(in crate::broadcast) fn data(
        buffer: &'b mut [u8],
        head: &Head,
        check: Option<Check>,
        data: &Data<'_>,
    ) -> Self {
        let mut draft = Self::new(buffer, DATA, head, check);
        let Meta { is_first, is_last, is_packed, guarantee, message_size } = data.meta;
        let flags = [
            (is_first, FIRST),
            (is_last, LAST),
            (!guarantee.is_uniform(), NOT_UNIFORM),
            (data.is_repair, REPAIR),
            (!guarantee.is_ordered(), UNORDERED),
            (data.is_placed, PLACED),
            (data.unheld.is_some(), UNHELD),
            (is_packed, PACKED),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        let [low, high] = data.unheld.unwrap_or(0).to_le_bytes();
        draft.writer.bytes(&[data.origin as u8, flags, low, high]);
        draft.writer.word(message_size);
        draft.writer.long(data.number);
        draft.writer.bytes(data.payload);
        draft
    }

    /// An order record without ranges, which [`Self::range`] adds.
    pub(in crate::broadcast) fn order(
        buffer: &'b mut [u8],
        head: &Head,
        check: Option<Check>,
        start: u64,
    ) -> Self {
        let mut draft = Self::new(buffer, ORDER, head, check);
        draft.writer.long(start);
        draft
    }

    /// Adds a range if there is room.
    pub(in crate::broadcast) fn range(&mut self, range: Range) -> bool {
        if self.writer.room() < RANGE_SIZE {
            return false;
        }
        self.writer.bytes(&[range.origin as u8, 0, 0, 0]);
        self.writer.word(range.count);
        self.writer.long(range.first);
        true
    }

    pub(in crate::broadcast) fn status(
        buffer: &'b mut [u8],
        head: &Head,
        check: Option<Check>,
        status: &Status<'_>,
        marks: impl Iterator<Item = u64>,
    ) -> Self {
        let mut draft = Self::new(buffer, STATUS, head, check);
        draft.writer.long(status.sent);
        draft.writer.word(status.suspects.0);
        let flags = [(status.asks, ASKS), (status.is_alone, ALONE), (status.unheld.is_some(), STATUS_UNHELD)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        draft.writer.word(flags | status.unheld.unwrap_or(0) << STATUS_FLAG_BITS);
        marks.for_each(|mark| draft.writer.long(mark));
        draft
    }

    /// Gaps of the order alone; [`Self::missing`] adds those of origins.
    pub(in crate::broadcast) fn gaps(
        buffer: &'b mut [u8],
        head: &Head,
        check: Option<Check>,
        (order_from, order_to): (u64, u64),
    ) -> Self {
        let mut draft = Self::new(buffer, GAPS, head, check);
        draft.writer.long(order_from);
        draft.writer.long(order_to);
        draft
    }

    /// Adds the frames that one origin's bits say are missing, word by word, as far as there is room.
    pub(in crate::broadcast) fn missing(
        &mut self,
        origin: usize,
        base: u64,
        words: usize,
        bits: impl Iterator<Item = u64>,
    ) {
        let Some(room) = self.writer.room().checked_sub(MISSING_PREFIX_SIZE + 8) else { return };
        let words = words.min(room / 8 + 1);
        self.writer.bytes(&[origin as u8, words as u8, 0, 0, 0, 0, 0, 0]);
        self.writer.long(base);
        bits.take(words).for_each(|word| self.writer.long(word));
    }

    /// A join or a refusal.
    pub(in crate::broadcast) fn terms(
        buffer: &'b mut [u8],
        head: &Head,
        check: Option<Check>,
        (terms, is_refusal): (Terms, bool),
    ) -> Self {
        let mut draft = Self::new(buffer, if is_refusal { REFUSAL } else { JOIN }, head, check);
        let Terms { frame_size, window, message_size_max, roster } = terms;
        [frame_size, window, message_size_max, roster].into_iter().for_each(|word| draft.writer.word(word));
        draft
    }

    /// A message of a kind that its header says all of: [`super::PREPARE`] or [`super::ACCEPTED`].
    pub(in crate::broadcast) fn bare(
        buffer: &'b mut [u8],
        head: &Head,
        check: Option<Check>,
        kind: u8,
    ) -> Self {
        Self::new(buffer, kind, head, check)
    }

    pub(in crate::broadcast) fn promise(
        buffer: &'b mut [u8],
        head: &Head,
        check: Option<Check>,
        accepted: Option<&(u64, Proposal)>,
        marks: &[u64],
    ) -> Self {
        let mut draft = Self::new(buffer, PROMISE, head, check);
        draft.writer.long(accepted.map_or(0, |(epoch, _)| *epoch));
        draft.writer.long(marks.len() as u64);
        marks.iter().for_each(|&mark| draft.writer.long(mark));
        if let Some((_, proposal)) = accepted {
            draft.writer.proposal(proposal);
        }
        draft
    }

    /// A proposal to be accepted, or one that is decided.
    pub(in crate::broadcast) fn proposal(
        buffer: &'b mut [u8],
        head: &Head,
        check: Option<Check>,
        (proposal, is_decided): (&Proposal, bool),
    ) -> Self {
        let mut draft = Self::new(buffer, if is_decided { INSTALL } else { ACCEPT }, head, check);
        draft.writer.proposal(proposal);
        draft
    }
}

impl Writer<'_> {
    fn proposal(&mut self, proposal: &Proposal) {
        self.long(proposal.next.number);
        self.long(proposal.order_end);
        self.long(proposal.cut.len() as u64);
        for (life, cut) in proposal.next.lives.iter().zip(&proposal.cut) {
            self.long(*life);
            self.long(*cut);
        }
    }
}
