//! Statements of other members about messages: frames, their order, what they hold and what they miss.

use super::{Member, Say};
use crate::broadcast::change::may_follow;
use crate::broadcast::frames::Frames;
use crate::broadcast::message::{Body, Data, Gaps, Head, Ranges, Status};
use crate::broadcast::mutant::Mutant;
use crate::broadcast::order::Entry;

impl Member {
    /// A message of somebody who is, was or will be a member.
    pub(super) fn handle_member(&mut self, head: &Head, body: &Body<'_>) {
        let place = head.place;
        if head.view == self.view.number && !may_follow(self.epoch_seen, head.epoch) {
            return;
        }
        if !self.view.includes(place, head.life) {
            self.peers[place].hear_former(head.life);
            if head.view < self.view.number {
                self.push_say(Say::Install(place));
            }
            return;
        }
        if self.peers[place].hear(self.now) {
            self.timing.status_due = true;
        }
        self.note_view(head, head.view);
        // A life that asked to join at its place did so before: this life goes on.
        self.joining[place].0 = 0;
        if head.view != self.view.number && !self.mutants.has(Mutant::OtherViewTaken) {
            if head.view < self.view.number {
                self.push_say(Say::Install(place));
            } else if self.closing.is_none() {
                // It has not heard here how this view ended: a member that hears so tells it.
                self.push_say(Say::Status(place));
            }
            return;
        }
        if self.closing.is_some() {
            if matches!(body, Body::Prepare | Body::Accept(_)) {
                // It has not heard how this view ends.
                self.push_say(Say::Install(place));
            }
            return;
        }
        self.note_head(head);
        match body {
            Body::Data(data) => self.handle_data(head, data),
            Body::Order(start, ranges) => self.handle_order(*start, *ranges),
            Body::Status(status) => self.handle_status(head, status),
            Body::Gaps(gaps) => self.handle_gaps(place, gaps),
            Body::Prepare => self.handle_prepare(place, head.epoch),
            Body::Promise(accepted, marks) => {
                let accepted = accepted.map(|(epoch, proposal)| (epoch, proposal.read()));
                self.handle_promise(head, accepted, marks.iter().collect());
            }
            Body::Accept(proposal) => self.handle_accept(place, head.epoch, proposal.read()),
            Body::Accepted => self.handle_accepted(place, head.epoch),
            Body::Join(_) | Body::Install(_) | Body::Refusal(_) => {}
        }
    }

    /// Returns true if it counts what a member says that it holds. For a frozen one that may have come after its promise, and only what
    /// it promised counts.
    fn counts(&self, head: &Head) -> bool {
        head.epoch == 0 || self.mutants.has(Mutant::FrozenMarksCounted)
    }

    fn note_head(&mut self, head: &Head) {
        let peer = &mut self.peers[head.place];
        // Of a view that is frozen there its user takes nothing, however much others take who have not heard of that.
        let own = (head.epoch == 0).then_some(self.progress.taken);
        peer.note_taken(head.taken, own, self.now);
        if self.counts(head) {
            let peer = &mut self.peers[head.place];
            peer.held = peer.held.max(head.held);
        }
        self.order.note_end(head.ordered, self.progress.taken);
        self.note_epoch(head.epoch);
    }

    #[inline]
    fn handle_data(&mut self, head: &Head, data: &Data<'_>) {
        let Data { origin, is_repair, is_placed, unheld, meta, number, payload } = *data;
        if self.view.life(origin).is_none() || origin == self.own {
            return;
        }
        self.note_unheld(head, unheld.map(u32::from));
        if is_placed && head.place == origin {
            self.handle_place(head.ordered.saturating_sub(1), origin, number);
        }
        if head.place == origin && self.counts(head) {
            // A member that has given a frame its number holds all before it.
            self.early.note_mark(origin, origin, number.saturating_add(1));
        }
        let limit = self.limit(origin);
        let is_new = self.frames[origin].insert(number, meta, payload, limit);
        if is_new {
            self.account.repaired += u64::from(is_repair);
            self.gaps.arrived((origin, number), is_repair, self.now);
        }
        if !is_new && self.is_sequencer() && self.mutants.has(Mutant::DoubleOrdered) {
            self.order.append(origin, number);
        }
        self.frames[origin].note_end(number.saturating_add(1), limit);
    }

    /// The sequencer says where one of its own frames stands in the order.
    fn handle_place(&mut self, mut index: u64, origin: usize, number: u64) {
        if self.view.sequencer() != Some(origin) || number == u64::MAX {
            return;
        }
        if self.mutants.has(Mutant::OrderRecordSkipped) || self.mutants.has(Mutant::PlaceMistaken) {
            index = index.min(self.order.mark());
        }
        self.order.insert_one(Entry { index, origin, number }, self.progress.taken);
    }

    /// The sequencer says how much of the order a majority holds. This stays true regardless of the fate of the view.
    fn note_unheld(&mut self, head: &Head, unheld: Option<u32>) {
        if let Some(unheld) = unheld
            && self.view.sequencer() == Some(head.place)
            && self.counts(head)
        {
            let uniform = head.ordered.saturating_sub(unheld.into());
            self.progress.uniform = self.progress.uniform.max(uniform);
        }
    }

    fn handle_order(&mut self, mut start: u64, ranges: Ranges<'_>) {
        if self.is_sequencer() {
            return;
        }
        if self.mutants.has(Mutant::OrderRecordSkipped) {
            start = start.min(self.order.mark());
        }
        for range in ranges.iter() {
            // Nobody has so many frames, and behind the last number there would be none.
            let Some(end) = range.first.checked_add(range.count.into()) else { return };
            if self.view.life(range.origin).is_none() {
                return;
            }
            self.order.insert(start, range, self.progress.taken);
            let limit = self.limit(range.origin);
            self.frames[range.origin].note_end(end, limit);
            start = start.saturating_add(range.count.into());
        }
    }

    fn handle_status(&mut self, head: &Head, status: &Status<'_>) {
        let (place, counts) = (head.place, self.counts(head));
        self.peers[place].suspects = status.suspects;
        self.timing.spreads |= status.is_alone;
        self.note_unheld(head, status.unheld);
        let limits = (self.limit(place), status.sent);
        self.frames[place].note_end(limits.1, limits.0);
        for (origin, mark) in status.marks.iter().enumerate().take(self.frames.len()) {
            let limit = self.limit(origin);
            self.frames[origin].note_end(mark, limit);
            if counts {
                self.early.note_mark(place, origin, mark);
            }
        }
        if status.asks {
            self.push_say(Say::Status(place));
        }
    }

    fn handle_gaps(&mut self, place: usize, gaps: &Gaps<'_>) {
        // Its question may stand for a status that it would have sent to the sequencer alone.
        self.timing.spreads = true;
        self.repairs.add_order(place, gaps.order_from, gaps.order_to.min(self.order.mark()));
        for list in gaps.lists() {
            let Some(frames) = self.frames.get(list.origin) else { continue };
            for (word, bits) in (0..).zip(list.bits.iter()) {
                for bit in (0..64).filter(|bit| bits & (1 << bit) != 0) {
                    let number = list.base.saturating_add(64 * word + bit);
                    if frames.has(number) {
                        self.repairs.add_frame(place, (list.origin, number));
                    }
                }
            }
        }
    }

    /// The sequencer gives the next places to what it has.
    fn order_frames(&mut self) {
        if !self.is_sequencer() || self.is_frozen() || !self.is_active() {
            return;
        }
        for origin in 0..self.frames.len() {
            while self.order.count(origin) < self.frames[origin].mark() {
                let (number, index) = (self.order.count(origin), self.order.mark());
                self.order.append(origin, number);
                if origin == self.own {
                    self.outgoing.note_place(number, index);
                }
            }
        }
    }

    /// Does what the last messages left to be done.
    pub(super) fn catch_up(&mut self) {
        if self.is_behind {
            self.after_input();
        }
    }

    /// Work that follows from any input.
    pub(super) fn after_input(&mut self) {
        self.is_behind = false;
        if !self.is_active() {
            return;
        }
        self.number_frames();
        self.order_frames();
        self.update_progress();
        // A message that waits for company may go by what a majority has come to hold.
        if self.outgoing.is_waiting() && self.number_frames() {
            self.order_frames();
            self.update_progress();
        }
        self.note_pace();
        let has_gap = self.order.has_gap() || self.frames.iter().any(Frames::has_gap);
        self.gaps.note(has_gap, self.now);
        self.update_membership();
        self.note_settled();
        self.note_news();
    }
}
