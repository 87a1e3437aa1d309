//! Format of the messages between members, as the payload of a message. Little-endian. Anything that is not known is refused.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | magic, 0x2B |
//! | 1 | 1 | version (high four bits, 4) and kind (low four bits, the table below) |
//! | 2 | 1 | place of the sender in the roster |
//! | 3 | 1 | 1 = it has a check value; otherwise 0 |
//! | 4 | 4 | CRC-32C of all bytes but these four; 0 where the medium checks |
//! | 8 | 8 | group |
//! | 16 | 8 | life of the sender, never 0 |
//! | 24 | 8 | view of the sender; 0 before its first. Of a join: of the member that was heard last, 0 if none was |
//! | 32 | 8 | epoch that the sender has promised in that view; 0 if the view is undisturbed |
//! | 40 | 8 | how much of the order the sender has |
//! | 48 | 8 | of how much of the order it has the frames too |
//! | 56 | 8 | of how much of the order its user has taken the messages |
//!
//! | kind | from 64 on |
//! |---|---|
//! | 0 data | origin (1), flags (1, below), unheld (2); message size (4); number (8); payload |
//! | 1 order | index of the first entry (8); ranges of origin (1), 0 (3), count (4), first number (8) |
//! | 2 status | own frames numbered (8); places suspected (4); flags (1, below); unheld (3); of each place, frames held (8) |
//! | 3 gaps | order wanted from (8) and to (8); lists of origin (1), words (1), 0 (6), base (8), missing (8 each) |
//! | 4 join | terms |
//! | 5 prepare | nothing |
//! | 6 promise | epoch of the accepted proposal (8), 0 if none; places (8); of each, frames held (8); the proposal |
//! | 7 accept | proposal |
//! | 8 accepted | nothing |
//! | 9 install | proposal |
//! | 10 refusal | terms |
//!
//! Terms are the options that must be equal: frame size (4), window (4), largest message (4), CRC-32C of the roster's nodes (4).
//!
//! Flags of data: 1 first, 2 last of its message; 4 waits for no majority; 8 repair; 16 without order; 32 *placed*: in the order it
//! is the last entry that the sender has, as the header says; 64 unheld; 128 *packed*: several messages, whole and with an order,
//! each behind its size (2). *Unheld*: of the entries that the sender has of the order, at most
//! so many of the last ones no majority holds; 0 without that flag. Flags of a status: 1 answer this; 2 it is said to the receiver
//! alone; 4 unheld.
//!
//! A proposal is the number of the next view (8), the end of the order that counts (8) and places (8). Two numbers follow for each
//! place: its life in the next view (8, 0 if none) and the number of its frames in the old view (8).

use alloc::vec::Vec;

use super::change::Proposal;
use super::check::Check;
use super::frames::Meta;
use super::guarantee::Guarantee;
use super::options::Terms;
use super::order::Range;
use super::view::{Places, View};
use crate::limits::GROUP_MEMBERS_MAX;

mod draft;
mod parts;
#[cfg(test)]
mod tests;

pub(super) use draft::Draft;

use parts::Reader;

/// Size of the header, bytes.
pub const HEADER_SIZE: usize = 64;

/// Size of the prefix of a frame's payload, bytes.
pub const DATA_PREFIX_SIZE: usize = HEADER_SIZE + 16;

/// Room that messages which are no data need in a group of so many places and this window, bytes: all missing frames of one origin can
/// be asked for at once. Of several origins, as much as there is room for.
pub const fn control_size_max(places: usize, window: usize) -> usize {
    let gaps = 16 + 16 + 8 * window.div_ceil(64);
    let promise = 16 + 8 * places + 24 + 16 * places;
    HEADER_SIZE + if gaps > promise { gaps } else { promise }
}

const MAGIC: u8 = 0x2B;
/// Of the layout of messages.
pub const VERSION: u8 = 4;
const CHECK_AT: usize = 4;
const RANGE_SIZE: usize = 16;
/// Size of the prefix of the bits of an origin's missing frames, bytes.
const MISSING_PREFIX_SIZE: usize = 16;

/// Kind of the frames of messages.
pub(super) const DATA: u8 = 0;
pub(super) const ORDER: u8 = 1;
pub(super) const STATUS: u8 = 2;
pub(super) const GAPS: u8 = 3;
pub(super) const JOIN: u8 = 4;
pub(super) const PREPARE: u8 = 5;
pub(super) const PROMISE: u8 = 6;
pub(super) const ACCEPT: u8 = 7;
pub(super) const ACCEPTED: u8 = 8;
pub(super) const INSTALL: u8 = 9;
pub(super) const REFUSAL: u8 = 10;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const NOT_UNIFORM: u8 = 4;
const REPAIR: u8 = 8;
const UNORDERED: u8 = 16;
const PLACED: u8 = 32;
const UNHELD: u8 = 64;
const PACKED: u8 = 128;

const ASKS: u32 = 1;
const ALONE: u32 = 2;
const STATUS_UNHELD: u32 = 4;
/// Bits of a status in front of what is unheld.
const STATUS_FLAG_BITS: u32 = 8;

/// The beginning of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) place: usize,
    pub(super) group: u64,
    pub(super) life: u64,
    pub(super) view: u64,
    pub(super) epoch: u64,
    pub(super) ordered: u64,
    pub(super) held: u64,
    pub(super) taken: u64,
}

/// A frame of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data<'b> {
    pub(super) origin: usize,
    pub(super) is_repair: bool,
    /// In the order it is the last of what its sender says that it has.
    pub(super) is_placed: bool,
    /// Of what its sender has of the order, so many of the last ones no majority holds, if it says so.
    pub(super) unheld: Option<u16>,
    pub(super) meta: Meta,
    pub(super) number: u64,
    pub(super) payload: &'b [u8],
}

/// A member's report of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status<'b> {
    /// Frames of its own that have numbers.
    pub(super) sent: u64,
    pub(super) suspects: Places,
    /// It waits for what others hold.
    pub(super) asks: bool,
    /// Nobody else was told.
    pub(super) is_alone: bool,
    /// As of [`Data`].
    pub(super) unheld: Option<u32>,
    pub(super) marks: Words<'b>,
}

/// Whole numbers of 64 bits, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words<'b>(&'b [u8]);

impl Words<'_> {
    /// Of somebody who says none, or writes them elsewhere.
    pub(super) const NONE: Self = Self(&[]);

    pub(super) fn iter(self) -> impl Iterator<Item = u64> {
        self.0.chunks_exact(8).map(|bytes| Reader(bytes).long().unwrap_or(0))
    }
}

/// Frames of one origin that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing<'b> {
    pub(super) origin: usize,
    pub(super) base: u64,
    pub(super) bits: Words<'b>,
}

/// The missing order and frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gaps<'b> {
    pub(super) order_from: u64,
    pub(super) order_to: u64,
    lists: &'b [u8],
}

impl<'b> Gaps<'b> {
    pub(super) fn lists(&self) -> impl Iterator<Item = Missing<'b>> {
        let mut reader = Reader(self.lists);
        core::iter::from_fn(move || reader.missing())
    }
}

/// Ranges of an order record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranges<'b>(&'b [u8]);

impl Ranges<'_> {
    pub(super) fn iter(self) -> impl Iterator<Item = Range> {
        // Behind one that is not known nobody can tell where the next begins.
        self.0.chunks_exact(RANGE_SIZE).map_while(|bytes| Reader(bytes).range())
    }
}

/// A proposal in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenProposal<'b> {
    number: u64,
    order_end: u64,
    /// Life and cut of each place.
    places: Words<'b>,
}

impl WrittenProposal<'_> {
    pub(super) fn read(self) -> Proposal {
        let (mut lives, mut cut) = (Vec::new(), Vec::new());
        let mut words = self.places.iter();
        while let (Some(life), Some(frames)) = (words.next(), words.next()) {
            lives.push(life);
            cut.push(frames);
        }
        Proposal { next: View { number: self.number, lives }, order_end: self.order_end, cut }
    }
}

/// Contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body<'b> {
    Data(Data<'b>),
    Order(u64, Ranges<'b>),
    Status(Status<'b>),
    Gaps(Gaps<'b>),
    Join(Terms),
    Prepare,
    Promise(Option<(u64, WrittenProposal<'b>)>, Words<'b>),
    Accept(WrittenProposal<'b>),
    Accepted,
    Install(WrittenProposal<'b>),
    /// To a node that asked to join on other terms: those of the group.
    Refusal(Terms),
}

/// Reads a message; `None` if these bytes are none. With a `check`, one without a check value is none.
#[inline]
pub(super) fn parse(bytes: &[u8], check: Option<Check>, ignores_value: bool) -> Option<(Head, Body<'_>)> {
    let (header, content) = bytes.split_first_chunk::<HEADER_SIZE>()?;
    let (words, _) = header.as_chunks::<8>();
    let &[[magic, kind, place, has_check, value @ ..], group, life, view, epoch, ordered, held, taken] =
        words
    else {
        return None;
    };
    let [group, life, view, epoch, ordered, held, taken] =
        [group, life, view, epoch, ordered, held, taken].map(u64::from_le_bytes);
    let (kind, place, value) =
        (kind.wrapping_sub(VERSION << 4), usize::from(place), u32::from_le_bytes(value));
    let is_genuine = match check {
        None => has_check == 0 && value == 0,
        Some(check) => has_check == 1 && (ignores_value || value == check_value(check, bytes)),
    };
    if magic != MAGIC || !is_genuine || place >= GROUP_MEMBERS_MAX || life == 0 {
        return None;
    }
    let body = if kind == DATA { Body::Data(data(content)?) } else { Reader(content).body(kind)? };
    Some((Head { place, group, life, view, epoch, ordered, held, taken }, body))
}

/// The content of the kind that streams consist of.
#[inline]
fn data(content: &[u8]) -> Option<Data<'_>> {
    let (prefix, payload) = content.split_first_chunk::<{ DATA_PREFIX_SIZE - HEADER_SIZE }>()?;
    let (words, _) = prefix.as_chunks::<8>();
    let &[[origin, flags, low, high, size @ ..], number] = words else { return None };
    let (origin, behind) = (usize::from(origin), u16::from_le_bytes([low, high]));
    let has = |flag: u8| flags & flag != 0;
    let guarantee = Guarantee::of(!has(UNORDERED), !has(NOT_UNIFORM));
    let (is_first, is_last, is_packed) = (has(FIRST), has(LAST), has(PACKED));
    let meta = Meta { is_first, is_last, is_packed, guarantee, message_size: u32::from_le_bytes(size) };
    let may_be_packed = is_first && is_last && guarantee.is_ordered();
    let unheld = has(UNHELD).then_some(behind);
    let is_known = (may_be_packed || !is_packed) && (unheld.is_some() || behind == 0);
    let (is_repair, is_placed) = (has(REPAIR), has(PLACED));
    let number = u64::from_le_bytes(number);
    (is_known && origin < GROUP_MEMBERS_MAX).then_some(Data {
        origin,
        is_repair,
        is_placed,
        unheld,
        meta,
        number,
        payload,
    })
}

fn check_value(check: Check, message: &[u8]) -> u32 {
    check(check(0, &message[..CHECK_AT]), &message[CHECK_AT + 4..])
}

impl<'b> Reader<'b> {
    /// Of any kind but data.
    fn body(mut self, kind: u8) -> Option<Body<'b>> {
        let body = match kind {
            ORDER => {
                let start = self.long()?;
                let is_whole = self.0.len().is_multiple_of(RANGE_SIZE);
                return is_whole.then_some(Body::Order(start, Ranges(self.0)));
            }
            STATUS => Body::Status(self.status()?),
            GAPS => {
                let (order_from, order_to) = (self.long()?, self.long()?);
                return Some(Body::Gaps(Gaps { order_from, order_to, lists: self.0 }));
            }
            JOIN => Body::Join(self.terms()?),
            PREPARE => Body::Prepare,
            PROMISE => {
                let epoch = self.long()?;
                let count = self.places()?;
                let marks = self.words(count)?;
                let accepted = if epoch == 0 { None } else { Some((epoch, self.proposal()?)) };
                Body::Promise(accepted, marks)
            }
            ACCEPT => Body::Accept(self.proposal()?),
            ACCEPTED => Body::Accepted,
            INSTALL => Body::Install(self.proposal()?),
            REFUSAL => Body::Refusal(self.terms()?),
            _ => return None,
        };
        self.0.is_empty().then_some(body)
    }

    fn status(&mut self) -> Option<Status<'b>> {
        let (sent, suspects, word) = (self.long()?, Places(self.word()?), self.word()?);
        let (flags, behind) = (word & ((1 << STATUS_FLAG_BITS) - 1), word >> STATUS_FLAG_BITS);
        let unheld = (flags & STATUS_UNHELD != 0).then_some(behind);
        let is_known = flags < 2 * STATUS_UNHELD && (unheld.is_some() || behind == 0);
        let is_whole = self.0.len().is_multiple_of(8) && self.0.len() <= 8 * GROUP_MEMBERS_MAX;
        let marks = Words(core::mem::take(&mut self.0));
        let (asks, is_alone) = (flags & ASKS != 0, flags & ALONE != 0);
        (is_known && is_whole).then_some(Status { sent, suspects, asks, is_alone, unheld, marks })
    }

    fn range(&mut self) -> Option<Range> {
        let origin = usize::from(self.byte()?);
        self.zeros(3)?;
        let count = self.word()?;
        Some(Range { origin, first: self.long()?, count }).filter(|_| origin < GROUP_MEMBERS_MAX)
    }

    fn missing(&mut self) -> Option<Missing<'b>> {
        let (origin, words) = (usize::from(self.byte()?), usize::from(self.byte()?));
        self.zeros(6)?;
        let base = self.long()?;
        let bits = self.words(words)?;
        Some(Missing { origin, base, bits }).filter(|_| origin < GROUP_MEMBERS_MAX)
    }

    fn places(&mut self) -> Option<usize> {
        usize::try_from(self.long()?).ok().filter(|&count| count <= GROUP_MEMBERS_MAX)
    }

    fn terms(&mut self) -> Option<Terms> {
        Some(Terms {
            frame_size: self.word()?,
            window: self.word()?,
            message_size_max: self.word()?,
            roster: self.word()?,
        })
    }

    fn words(&mut self, count: usize) -> Option<Words<'b>> {
        self.skip(8 * count).map(Words)
    }

    fn proposal(&mut self) -> Option<WrittenProposal<'b>> {
        let (number, order_end) = (self.long()?, self.long()?);
        let count = self.places()?;
        Some(WrittenProposal { number, order_end, places: self.words(2 * count)? })
    }
}
