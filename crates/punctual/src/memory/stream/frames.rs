//! Frames of a ring: their heads, and where their payloads lie.

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::ring::{RingFrame, SharedBytes};
use punctual_proto::seal::Refusal;

use super::message::{Noted, StreamHead};
use super::payload::Payload;
use super::prefix::Prefix;
use super::ring_file::RingIdentity;
use super::sealing::Belief;

/// Why a frame that was found is no message.
#[derive(Clone, Copy)]
pub(super) enum Unreadable {
    /// Its writer wrote over it meanwhile: its numbers say what was lost, and the next poll goes on behind it.
    Overrun,
    /// Its seal forbids to believe it.
    Refused(Refusal),
    /// No honest writer leaves such a one.
    Corrupt,
    /// It is a fragment, which [`read_direct`] leaves as it is.
    NotDirect,
}

/// Reads a direct frame that was found: its head goes into `head`, of which the rest stays as it is.
#[inline(always)]
pub(super) fn read_direct<'a>(
    head: &mut StreamHead,
    frame: &'a RingFrame<'_>,
    about: &RingIdentity,
) -> Result<Payload<'a>, Unreadable> {
    head.sequence = frame.sequence();
    let (flags, bytes) = (frame.flags(), frame.bytes());
    let payload = if flags == Prefix::Plain.flags() {
        (head.sent, head.noted) = (None, None);
        Prefix::read(flags, bytes).ok_or(Unreadable::Corrupt)?.1
    } else if Prefix::has_stages(flags) {
        read_stages(head, flags, bytes, about)?
    } else {
        let (prefix, payload) = Prefix::read(flags, bytes).ok_or(Unreadable::Corrupt)?;
        head.sent = if let Prefix::Sent(sent) = prefix { Some(sent) } else { None };
        head.noted = None;
        payload
    };
    Ok(Payload::Shared { bytes: payload, guard: frame.guard() })
}

/// The payload of a frame with stages, which are noted in `head`. Here a fragment shows, without a question to each frame.
#[inline(never)]
fn read_stages<'a>(
    head: &mut StreamHead,
    flags: u8,
    frame: SharedBytes<'a>,
    about: &RingIdentity,
) -> Result<SharedBytes<'a>, Unreadable> {
    if Prefix::is_fragment(flags) {
        return Err(Unreadable::NotDirect);
    }
    let read = Clock::get().now_after_loads();
    let (prefix, payload) = Prefix::read(flags, frame).ok_or(Unreadable::Corrupt)?;
    note_time(head, prefix, about, read);
    Ok(payload)
}

/// As [`read_direct`], of any frame.
pub(super) fn read<'a>(
    head: &mut StreamHead,
    frame: &'a RingFrame<'_>,
    about: &RingIdentity,
    belief: &'a mut Belief,
) -> Result<Payload<'a>, Unreadable> {
    head.sequence = frame.sequence();
    let (bytes, flags) = (frame.bytes(), frame.flags());
    let read = if Prefix::has_stages(flags) { Clock::get().now_after_loads() } else { Ticks::default() };
    let (prefix, payload) = match &mut belief.opening {
        None => {
            let (prefix, bytes) = Prefix::read(flags, bytes).ok_or(Unreadable::Corrupt)?;
            (prefix, Payload::Shared { bytes, guard: frame.guard() })
        }
        Some(opening) => {
            let unreadable = |refusal: Option<_>| refusal.map_or(Unreadable::Overrun, Unreadable::Refused);
            let (bytes, group) = opening.open(about, frame).map_err(unreadable)?;
            head.sealed_in = Some(group);
            let (prefix, bytes) = Prefix::read_private(flags, bytes).ok_or(Unreadable::Corrupt)?;
            (prefix, Payload::Private(bytes))
        }
    };
    note_time(head, prefix, about, read);
    Ok(payload)
}

/// Notes what a message's prefix says of its time, and whether it is a fragment.
#[inline]
fn note_time(head: &mut StreamHead, prefix: Prefix, about: &RingIdentity, read: Ticks) {
    let (sent, noted) = match prefix {
        Prefix::Plain => (None, None),
        Prefix::Sent(sent) => (Some(sent), None),
        Prefix::Fragment(sender) if sender.sent == 0 => (None, None),
        Prefix::Stages(sender) | Prefix::Fragment(sender) => {
            let opened = if head.sealed_in.is_some() { Clock::get().now() } else { read };
            (Some(Ticks(sender.sent)), Some(Noted { sender, read, opened }))
        }
    };
    (head.sent, head.noted) = (sent, noted);
    head.fragment_of = matches!(prefix, Prefix::Fragment(_)).then_some(about.life);
}
