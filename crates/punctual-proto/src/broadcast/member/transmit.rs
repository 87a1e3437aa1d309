//! The next messages of a member: for the change of views, repairs, its own frames, order, gaps, and what it holds.

use super::{Member, Phase, everybody};
use crate::address::{NodeId, Target};
use crate::broadcast::frames::Frames;
use crate::broadcast::message::{ACCEPTED, Data, Draft, Head, PREPARE, Status, Words};
use crate::broadcast::mutant::Mutant;
use crate::broadcast::view::Places;
use crate::protocol::Transmit;

/// Approximate number of statuses that all members together send of a stream while a window of it goes by.
const STATUSES_PER_WINDOW: u64 = 40;

/// A part of such a status is waited for while as much of it, divided by this, is held and not known to be uniform: then more comes.
const UNDER_WAY_DIVISOR: u64 = 4;

/// Receivers of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    All,
    /// And each is to answer.
    AllAsked,
    One,
    /// The sequencer alone hears what is held of a stream of its own, as it says to all what a majority holds of it.
    SequencerAlone,
    /// And it is to answer.
    SequencerAsked,
}

/// Something to be said once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Say {
    Join,
    /// To a node that asked to join on other terms: those of this group.
    Refuse(NodeId),
    Prepare,
    Promise(usize),
    Accept,
    Accepted(usize),
    /// By what this view came to be: to one who is behind, or to all.
    Install(usize),
    InstallAll,
    /// To one who leaves and said how the view ended: that it is known here.
    Confirm(usize),
    Status(usize),
}

/// The lowest bits that are set, as many as there is room for.
fn first_bits(mut bits: u64, room: &mut u32) -> u64 {
    while bits.count_ones() > *room {
        bits &= !(1 << bits.ilog2());
    }
    *room -= bits.count_ones();
    bits
}

impl Member {
    /// Adds something to be said; twice is once.
    pub(super) fn push_say(&mut self, say: Say) {
        if !self.say.contains(&say) {
            self.say.push_back(say);
        }
    }

    fn head(&self) -> Head {
        Head {
            place: self.own,
            group: self.options.group,
            life: self.life,
            view: self.view.number,
            epoch: self.acceptor.promised(),
            ordered: self.ordered(),
            held: self.progress.held,
            taken: self.progress.taken,
        }
    }

    /// The amount of the order that it has: at the end of a view no more than what counts of it.
    fn ordered(&self) -> u64 {
        let mark = self.order.mark();
        self.closing.as_ref().map_or(mark, |proposal| mark.min(proposal.order_end))
    }

    pub(super) fn next_transmit(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let size_max = self.options.datagram_size().min(buffer.len());
        let buffer = &mut buffer[..size_max];
        while let Some(say) = self.say.pop_front() {
            if let Some(transmit) = self.say(say, buffer) {
                return Some(transmit);
            }
        }
        if self.phase != Phase::Member {
            return None;
        }
        self.repair(buffer)
            .or_else(|| self.announce_before_own(buffer))
            .or_else(|| self.next_frame(buffer))
            .or_else(|| self.announce(buffer, self.order.mark()))
            .or_else(|| self.ask(buffer))
            .or_else(|| self.next_status(buffer))
    }

    fn to(&self, place: usize) -> Target {
        Target { node: self.node(place), port: Some(self.options.port) }
    }

    fn say(&mut self, say: Say, buffer: &mut [u8]) -> Option<Transmit> {
        let (head, check) = (self.head(), self.options.check);
        let all = everybody(&self.options);
        let proposed = || self.lead.as_ref().and_then(|lead| lead.ballot.proposal.as_ref());
        let (target, draft) = match say {
            Say::Join => {
                let head = Head { view: self.heard_view, ..head };
                (all, Draft::terms(buffer, &head, check, (self.options.terms(), false)))
            }
            Say::Refuse(node) => {
                let target = Target { node: Some(node), port: Some(self.options.port) };
                (target, Draft::terms(buffer, &head, check, (self.options.terms(), true)))
            }
            Say::Prepare => (all, Draft::bare(buffer, &head, check, PREPARE)),
            Say::Accept => (all, Draft::proposal(buffer, &head, check, (proposed()?, false))),
            // Of the epoch that this message names: another one may have been promised since.
            Say::Accepted(_) if !self.acceptor.accepted_in(head.epoch) => return None,
            Say::Accepted(place) => (self.to(place), Draft::bare(buffer, &head, check, ACCEPTED)),
            Say::Promise(place) => {
                let marks = self.marks();
                (self.to(place), Draft::promise(buffer, &head, check, self.acceptor.accepted(), &marks))
            }
            Say::Install(_) | Say::InstallAll => {
                let proposal = self.closing.as_ref().or(self.installed.as_ref())?;
                let target = if let Say::Install(place) = say { self.to(place) } else { all };
                (target, Draft::proposal(buffer, &head, check, (proposal, true)))
            }
            Say::Confirm(place) => {
                let known = self.closing.as_ref().or(self.installed.as_ref())?;
                let head = Head { view: known.next.number, epoch: 0, ordered: 0, held: 0, taken: 0, ..head };
                (self.to(place), Draft::bare(buffer, &head, check, ACCEPTED))
            }
            Say::Status(place) => {
                let size = self.write_status(buffer, Told::One)?;
                return Some(Transmit { target: self.to(place), size });
            }
        };
        draft.finish().map(|size| Transmit { target, size })
    }

    fn write_data(
        &self,
        buffer: &mut [u8],
        (origin, number): (usize, u64),
        is_repair: bool,
    ) -> Option<usize> {
        let (meta, payload) = self.frames[origin].get(number)?;
        let mut head = self.head();
        let place = self.own_place(number).filter(|_| origin == self.own);
        if let Some(place) = place {
            head.ordered = place + 1;
        }
        let unheld = self.unheld(&head).and_then(|unheld| u16::try_from(unheld).ok());
        let data = Data { origin, is_repair, is_placed: place.is_some(), unheld, meta, number, payload };
        Draft::data(buffer, &head, self.options.check, &data).finish()
    }

    /// Where an own frame of the sequencer's stands in the order: it need not be said in a record.
    fn own_place(&self, number: u64) -> Option<u64> {
        let is_placed = self.is_sequencer() && self.closing.is_none() && number < self.order.count(self.own);
        is_placed.then(|| self.outgoing.place(number))
    }

    /// The sequencer's statement of what a majority holds, behind this head.
    fn unheld(&self, head: &Head) -> Option<u64> {
        let uniform = self.progress.uniform;
        let uniform = if self.mutants.has(Mutant::OwnSpread) { self.progress.held } else { uniform };
        self.is_sequencer().then(|| head.ordered.saturating_sub(uniform))
    }

    /// Repairs for others: to each of them, or to all if most miss the same.
    fn repair(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if let Some((place, from, to)) = self.repairs.next_order() {
            let (end, size) = self.write_order(buffer, from, to)?;
            if from < end && end < to {
                self.repairs.put_back_order((place, end, to));
            }
            self.account.repairs_sent += 1;
            return Some(Transmit { target: self.to(place), size });
        }
        while let Some((origin, number, mut askers)) = self.repairs.next_frame() {
            let Some(size) = self.write_data(buffer, (origin, number), true) else { continue };
            let Some(first) = askers.first() else { continue };
            self.account.repairs_sent += 1;
            if 2 * askers.len() > self.view.size() - 1 && askers.len() > 1 {
                return Some(Transmit { target: everybody(&self.options), size });
            }
            askers.remove(first);
            askers.iter().for_each(|place| self.repairs.add_frame(place, (origin, number)));
            return Some(Transmit { target: self.to(first), size });
        }
        None
    }

    fn next_frame(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let number = self.outgoing.transmitted;
        if number >= self.outgoing.sent {
            return None;
        }
        let size = self.write_data(buffer, (self.own, number), false)?;
        self.outgoing.transmitted += 1;
        if self.own_place(number) == Some(self.outgoing.announced) {
            self.outgoing.announced += 1;
        }
        self.note_said();
        self.progress.uniform_said = self.progress.uniform;
        Some(Transmit { target: everybody(&self.options), size })
    }

    /// Writes entries of the order; says up to where, and the size.
    fn write_order(&self, buffer: &mut [u8], from: u64, to: u64) -> Option<(u64, usize)> {
        let mut draft = Draft::order(buffer, &self.head(), self.options.check, from);
        let mut at = from;
        while at < to
            && let Some(range) = self.order.range_at(at, to)
            && draft.range(range)
        {
            at += u64::from(range.count);
        }
        draft.finish().map(|size| (at, size))
    }

    /// Order before the next own frame, which says its own place: so no frame comes before what stands before it.
    fn announce_before_own(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let number = self.outgoing.transmitted;
        let place = self.own_place(number).filter(|_| number < self.outgoing.sent)?;
        self.announce(buffer, place)
    }

    /// Order up to `to` that nobody was told yet.
    fn announce(&mut self, buffer: &mut [u8], to: u64) -> Option<Transmit> {
        let from = self.outgoing.announced;
        if !self.is_sequencer() || self.is_frozen() || self.closing.is_some() || from >= to {
            return None;
        }
        let (end, size) = self.write_order(buffer, from, to)?;
        self.outgoing.announced = end.max(from + 1);
        self.note_said();
        Some(Transmit { target: everybody(&self.options), size })
    }

    /// Asks the next of those who are to be asked for what is missing.
    fn ask(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if self.closing.is_some() || self.mutants.has(Mutant::GapsNotAsked) {
            return None;
        }
        while let Some(target) = self.gaps.targets.first() {
            self.gaps.targets.remove(target);
            if let Some(size) = self.write_gaps(buffer, target) {
                self.account.questions += 1;
                if self.tells_alone() == Some(target) {
                    // The header says as much as a status would.
                    self.note_said_alone();
                }
                return Some(Transmit { target: self.to(target), size });
            }
        }
        None
    }

    /// Writes the question to a member; `None` if everything that it was to be asked for has come.
    fn write_gaps(&mut self, buffer: &mut [u8], target: usize) -> Option<usize> {
        let wants_order = self.wants_order() && self.holder_of_order() == target;
        let order = if wants_order { (self.order.mark(), self.order.end()) } else { (0, 0) };
        let mut draft = Draft::gaps(buffer, &self.head(), self.options.check, order);
        let (mut room, mut asks) = (self.gaps.frames_max(), wants_order);
        // Another origin is the first in every other question: frames that nobody has any more must not take the room of those that
        // some have.
        let origins = self.frames.len();
        let first = (self.gaps.attempt() / 2) as usize % origins;
        for origin in (first..origins).chain(0..first) {
            let frames = &self.frames[origin];
            if frames.has_gap() && self.holder_of_frames(origin) == target {
                let base = frames.mark();
                let words = (frames.end() - base).div_ceil(64) as usize;
                let mut newest = None;
                let bits = (0..words as u64).map(|word| {
                    let bits = first_bits(frames.missing(base + 64 * word), &mut room);
                    newest = bits.checked_ilog2().map(|bit| base + 64 * word + u64::from(bit)).or(newest);
                    bits
                });
                draft.missing(origin, base, words, bits);
                if let Some(newest) = newest {
                    asks = true;
                    self.gaps.time((origin, newest), self.now);
                }
            }
        }
        draft.finish().filter(|_| asks)
    }

    fn next_status(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.wants_status() {
            return None;
        }
        if let Some(sequencer) = self.asks_alone() {
            let size = self.write_status(buffer, Told::SequencerAsked)?;
            self.timing.asks = false;
            return Some(Transmit { target: self.to(sequencer), size });
        }
        if let Some(sequencer) = self.tells_alone() {
            let size = self.write_status(buffer, Told::SequencerAlone)?;
            self.note_said_alone();
            return Some(Transmit { target: self.to(sequencer), size });
        }
        let size = self.write_status(buffer, if self.timing.asks { Told::AllAsked } else { Told::All })?;
        (self.timing.status_due, self.timing.asks, self.timing.spreads) = (false, false, false);
        self.early.note_said(self.frames.iter().map(Frames::mark));
        self.note_said();
        self.progress.uniform_said = self.progress.uniform;
        Some(Transmit { target: everybody(&self.options), size })
    }

    /// The sequencer, if nobody else is asked: it knows what is ordered, and of what a majority said to it that it holds it. A member
    /// that has asked it once in vain asks all.
    fn asks_alone(&self) -> Option<usize> {
        let is_first = self.timing.asks && self.timing.probes <= 1 && !self.timing.status_due;
        let knows = !self.is_sequencer() && !self.is_frozen() && self.early.is_settled(&self.frames);
        self.view.sequencer().filter(|_| is_first && knows && self.view.size() > 2)
    }

    /// The sequencer, if it need be told alone what is held and taken here: a stream of its own frames is under way, with which it
    /// says to all what a majority holds.
    fn tells_alone(&self) -> Option<usize> {
        let progress = &self.progress;
        let is_quiet = !self.timing.status_due
            && !self.timing.asks
            && !self.early.has_news(&self.frames, self.own)
            && progress.taken_said_to_all >= progress.others_end;
        let is_of_use = self.view.size() > 2 && !self.is_sequencer() && !self.is_frozen();
        self.view.sequencer().filter(|_| self.timing.is_fast && is_quiet && is_of_use)
    }

    pub(super) fn wants_status(&self) -> bool {
        self.phase == Phase::Member
            && (self.timing.status_due
                || self.timing.asks
                || (self.has_news() && !self.waits_for_more() && self.view.size() > 1))
    }

    /// A user that has taken a quarter of a window may let the slowest sender go on.
    fn has_taken_much(&self) -> bool {
        self.progress.taken - self.progress.taken_said >= (self.options.window as u64).div_ceil(4)
    }

    /// Others may wait to hear what it could say.
    pub(super) fn has_news(&self) -> bool {
        let progress = &self.progress;
        progress.awaited > progress.held_said
            || self.early.has_news(&self.frames, self.own)
            || self.has_taken_much()
            || self.timing.spreads && self.is_sequencer() && progress.uniform > progress.uniform_said
    }

    /// Returns true if news waits for more of the same, for as long as [`Self::news_due`] says. While much of a stream is under way
    /// nobody needs to hear of every part of it. Each status is work for its sender and its receivers.
    fn waits_for_more(&self) -> bool {
        let progress = &self.progress;
        let window = self.options.window as u64;
        let part = (window * self.view.size() as u64 / STATUSES_PER_WINDOW).clamp(1, window.div_ceil(4));
        let (now, said) = match self.is_sequencer() {
            true => (progress.uniform, progress.uniform_said),
            false => (progress.held, progress.held_said),
        };
        self.timing.is_fast
            && progress.held.saturating_sub(progress.uniform) >= part.div_ceil(UNDER_WAY_DIVISOR)
            && now.saturating_sub(said) < part
            && progress.packed_end <= progress.held_said
            && !self.has_taken_much()
            && !self.early.has_news(&self.frames, self.own)
            && self.now < self.news_due()
    }

    /// The sequencer was told what is held and taken here, which every header says.
    fn note_said_alone(&mut self) {
        self.timing.said_alone(self.now);
        (self.progress.held_said, self.progress.taken_said) = (self.progress.held, self.progress.taken);
    }

    fn note_said(&mut self) {
        self.progress.held_said = self.progress.held;
        self.progress.taken_said = self.progress.taken;
        self.progress.taken_said_to_all = self.progress.taken;
        self.timing.said(self.now, self.options.heartbeat);
    }

    fn write_status(&self, buffer: &mut [u8], told: Told) -> Option<usize> {
        let head = self.head();
        let status = Status {
            sent: self.outgoing.sent,
            suspects: self.suspects(),
            asks: matches!(told, Told::AllAsked | Told::SequencerAsked),
            is_alone: matches!(told, Told::SequencerAlone | Told::SequencerAsked),
            unheld: self.unheld(&head).map(|unheld| unheld as u32),
            marks: Words::NONE,
        };
        let marks = self.frames.iter().map(Frames::mark);
        Draft::status(buffer, &head, self.options.check, &status, marks).finish()
    }

    /// Members that this member suspects; itself if it asks to go.
    pub(super) fn suspects(&self) -> Places {
        let mut suspects = Places::NONE;
        let is_suspected = |place: &usize| {
            if *place == self.own {
                self.asks_to_go()
            } else {
                self.peers[*place].is_suspected() || self.is_slow(*place)
            }
        };
        self.view.members().iter().filter(is_suspected).for_each(|place| suspects.insert(place));
        suspects
    }
}
