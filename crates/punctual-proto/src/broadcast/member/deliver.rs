//! Events for the user: messages in their order, and views between them.

use alloc::vec::Vec;

use super::{Member, Phase};
use crate::address::NodeId;
use crate::broadcast::frames::Meta;
use crate::broadcast::guarantee::Guarantee;
use crate::broadcast::mutant::Mutant;
use crate::broadcast::options::Mismatch;
use crate::broadcast::order::Entry;
use crate::broadcast::view::View;
use crate::limits::GROUP_MEMBERS_MAX;

/// A message is delivered. Its bytes are [`Member::message`] until the member is next called: a frame that comes may take their room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The node that broadcast it.
    pub sender: NodeId,
    /// In which life.
    pub life: u64,
    /// The view in which it was broadcast and is delivered.
    pub view: u64,
    /// Where its last frame stands in the order of the view; of a message without order, among all frames of its sender there.
    pub index: u64,
    /// Of several messages in that frame, which one, from 0.
    pub part: u32,
    /// Size, bytes.
    pub size: usize,
    /// The guarantee known for it: that a majority holds it, even if that was not asked for.
    pub guarantee: Guarantee,
}

/// Events that a member tells its user, in one order with the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Delivered(Delivery),
    /// From here on another view. Messages that were delivered before were delivered by all who were in both.
    View(View),
    /// This member is with a minority, or its view is too small. It waits.
    Stopped,
    /// It is with a majority again.
    Resumed,
    /// The others went on without this life. It is not known whether its last messages were delivered; it joins in a new one. A member
    /// that leaves is told so if it may lack messages that the others delivered before they went on. It joins no more.
    Expelled,
    /// It has left, as was asked for. Unless it was told [`Self::Expelled`] just before, it has delivered what the others delivered
    /// before they went on.
    Left,
    /// The group does not take this member, as an option differs. It goes on asking, and joins once there is a group with its options.
    Mismatch(Mismatch),
}

/// The bytes of a message that is in one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    origin: usize,
    number: u64,
    from: usize,
    size: usize,
}

/// Progress in the next frame of the order, if it is several messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unpacked {
    at: usize,
    pub(super) messages: u32,
}

/// Reach of deliveries in the order.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Frames that wait for nobody, up to here.
    any: u64,
    /// Frames that wait for a majority, up to here.
    uniform: u64,
}

/// Where the message of a pack lies that begins at `at` with its size; `None` if there is none.
fn message_at(pack: &[u8], at: usize) -> Option<(usize, usize)> {
    let size = pack.get(at..)?.first_chunk()?;
    let (from, size) = (at + size.len(), usize::from(u16::from_le_bytes(*size)));
    (size > 0 && from + size <= pack.len()).then_some((from, size))
}

/// A message of one origin that is put together from frames.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    is_begun: bool,
}

impl Assembly {
    pub(super) fn clear(&mut self) {
        self.is_begun = false;
        self.bytes.clear();
    }

    /// Adds a frame. Says whether the message is whole.
    fn add(&mut self, meta: Meta, payload: &[u8], size_max: usize) -> bool {
        if meta.is_first {
            self.clear();
            self.is_begun = true;
        }
        if !self.is_begun || self.bytes.len() + payload.len() > size_max {
            self.clear();
            return false;
        }
        self.bytes.extend_from_slice(payload);
        if meta.is_last {
            self.is_begun = false;
        }
        meta.is_last
    }
}

impl Member {
    /// The bytes of the message that was delivered last, until anything else is done with the member.
    pub fn message(&self) -> &[u8] {
        let whole = self.whole.and_then(|Whole { origin, number, from, size }| {
            let (_, payload) = self.frames[origin].get(number)?;
            payload.get(from..from + size)
        });
        let (stream, origin) = self.assembled;
        whole.unwrap_or(&self.assemblies[stream][origin].bytes)
    }

    /// Puts the bytes of the message that was delivered last into a buffer, once, and before anything else is done with the member. A
    /// message that was put together of frames is not copied.
    pub fn take_message(&mut self, buffer: &mut Vec<u8>) {
        let (stream, origin) = self.assembled;
        if self.whole.is_none() {
            core::mem::swap(&mut self.assemblies[stream][origin].bytes, buffer);
            return;
        }
        buffer.clear();
        buffer.extend_from_slice(self.message());
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.phase != Phase::Member {
            return None;
        }
        if !self.has_diverged
            && let Some(delivery) = self.next_early().or_else(|| self.next_in_order())
        {
            return Some(Event::Delivered(delivery));
        }
        self.timing.turn_due |= self.progress.taken < self.progress.next && self.outgoing.is_waiting();
        self.progress.taken = self.progress.next;
        if self.closing.is_some() && (self.has_diverged || self.progress.next == self.order.mark()) {
            self.finish_view();
        }
        self.events.pop_front()
    }

    /// Goes on in the order, up to a message of it.
    fn next_in_order(&mut self) -> Option<Delivery> {
        let reach = self.reach();
        while let Some((entry, meta)) = self.next_deliverable(reach) {
            let Entry { index, origin, number } = entry;
            let lane = meta.guarantee.lane();
            if let Some(delivery) = lane.and_then(|lane| self.let_pass(lane, (origin, number))) {
                return Some(delivery);
            }
            self.progress.taken = self.progress.next;
            if meta.is_packed {
                let delivery = self.unpack(entry, meta);
                if delivery.is_some() {
                    return delivery;
                }
                continue;
            }
            self.pass(entry);
            if lane.is_some() && !self.mutants.has(Mutant::DeliveredAgain) {
                continue;
            }
            let is_held =
                self.closing.is_some() || meta.guarantee.is_uniform() || index < self.progress.uniform;
            let guarantee = Guarantee::of(lane.is_none(), is_held);
            let delivery = self.deliver((origin, number), index, guarantee);
            if delivery.is_some() {
                return delivery;
            }
        }
        None
    }

    /// The order goes on behind a frame.
    fn pass(&mut self, Entry { index, origin, number }: Entry) {
        self.progress.next += 1;
        self.delivered[origin] = number + 1;
        if origin == self.own {
            self.outgoing.note_place(number, index);
        }
    }

    /// Delivers the next message of a frame of several, and goes on behind the last one. Anything that is no message ends the frame.
    fn unpack(&mut self, entry: Entry, meta: Meta) -> Option<Delivery> {
        let Entry { index, origin, number } = entry;
        let (_, payload) = self.frames[origin].get(number)?;
        let Unpacked { at, messages } = self.unpacked;
        let found = message_at(payload, at).filter(|&(_, size)| size <= self.options.message_size_max);
        let end = found.map_or(usize::MAX, |(from, size)| from + size);
        self.unpacked = Unpacked { at: end, messages: messages + 1 };
        if end >= payload.len() || self.mutants.has(Mutant::PackCut) {
            self.unpacked = Unpacked::default();
            self.pass(entry);
        }
        let (from, size) = found?;
        self.whole = Some(Whole { origin, number, from, size });
        let is_held = self.closing.is_some() || meta.guarantee.is_uniform() || index < self.progress.uniform;
        let guarantee = Guarantee::of(true, is_held);
        Some(Delivery { part: messages, ..self.delivery(origin, index, size, guarantee) })
    }

    /// The reach of deliveries in the order now.
    fn reach(&self) -> Reach {
        let (mark, held) = (self.order.mark(), self.progress.held.min(self.order.mark()));
        match (&self.closing, self.is_frozen()) {
            (Some(_), _) => Reach { any: mark, uniform: mark },
            (None, true) => Reach { any: 0, uniform: 0 },
            (None, false) => Reach { any: held, uniform: held.min(self.progress.uniform) },
        }
    }

    /// The next of the order, if it may be delivered.
    #[inline]
    fn next_deliverable(&self, reach: Reach) -> Option<(Entry, Meta)> {
        let next = self.progress.next;
        if next >= reach.any {
            return None;
        }
        let entry = self.order.get(next)?;
        let (meta, _) = self.frames[entry.origin].get(entry.number)?;
        (next < reach.uniform || !self.waits(entry, meta)).then_some((entry, meta))
    }

    /// Returns true if the order waits at this frame until a majority holds it.
    fn waits(&self, entry: Entry, meta: Meta) -> bool {
        match meta.guarantee.lane() {
            None => {
                meta.guarantee == Guarantee::Uniform && !self.mutants.has(Mutant::DeliveredBeforeMajority)
            }
            Some(lane) => {
                !self.is_passed(lane, (entry.origin, entry.number))
                    && !self.mutants.has(Mutant::PassedUndelivered)
            }
        }
    }

    /// Adds a frame to its message, which is delivered if that is whole now.
    pub(super) fn deliver(
        &mut self,
        (origin, number): (usize, u64),
        index: u64,
        guarantee: Guarantee,
    ) -> Option<Delivery> {
        let (meta, payload) = self.frames[origin].get(number)?;
        let mut size = payload.len();
        self.whole = (meta.is_first && meta.is_last).then_some(Whole { origin, number, from: 0, size });
        if self.whole.is_none() {
            let stream = meta.guarantee.lane().map_or(0, |lane| 1 + lane);
            let assembly = &mut self.assemblies[stream][origin];
            if !assembly.add(meta, payload, self.options.message_size_max) {
                return None;
            }
            (size, self.assembled) = (assembly.bytes.len(), (stream, origin));
        }
        Some(self.delivery(origin, index, size, guarantee))
    }

    fn delivery(&self, origin: usize, index: u64, size: usize, guarantee: Guarantee) -> Delivery {
        Delivery {
            sender: self.options.roster[origin],
            life: self.view.lives[origin],
            view: self.view.number,
            index,
            part: 0,
            size,
            guarantee,
        }
    }

    /// Finds out of how much of the order the frames are here, and what a majority has.
    pub(super) fn update_progress(&mut self) {
        let sequencer = self.view.sequencer();
        while let Some(entry) = self.order.get(self.progress.held)
            && self.progress.held < self.order.mark()
            && entry.number < self.frames[entry.origin].mark()
        {
            self.progress.held += 1;
            if Some(entry.origin) != sequencer {
                self.progress.others_end = self.progress.held;
            }
            let meta = self.frames[entry.origin].get(entry.number).map(|(meta, _)| meta);
            if meta.is_some_and(|meta| meta.is_packed) {
                self.progress.packed_end = self.progress.held;
            }
            if meta.is_none_or(|meta| meta.guarantee.is_ordered()) {
                self.progress.awaited = self.progress.held;
            }
        }
        let mut held = [0; GROUP_MEMBERS_MAX];
        let mut count = 0;
        for place in self.view.members().iter() {
            held[count] = self.held_by(place);
            count += 1;
        }
        // The middle one and all above it are more than half, so a majority holds what the middle one holds.
        let held = &mut held[..count];
        held.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(&majority) = held.get(count / 2) {
            self.progress.uniform = self.progress.uniform.max(majority);
        }
        self.early.update(&self.frames, self.view.members(), self.own);
        self.note_own_uniform();
    }

    /// Counts own frames that a majority holds.
    fn note_own_uniform(&mut self) {
        while self.progress.counted < self.progress.uniform.min(self.order.mark()) {
            let entry = self.order.get(self.progress.counted).filter(|entry| entry.origin == self.own);
            self.outgoing.uniform = entry.map_or(self.outgoing.uniform, |entry| entry.number + 1);
            self.progress.counted += 1;
        }
    }
}
