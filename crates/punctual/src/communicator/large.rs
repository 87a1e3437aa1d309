//! Sending a message larger than a frame: fragment by fragment, each when there is room for it; to one receiver with repair.

use std::collections::VecDeque;
use std::time::Duration;

use punctual_machine::block;
use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::fragment::{Courier, Cut, Ending, HEAD_SIZE, Part, RECEIPT_SIZE_MAX, Receipt, Say};
use punctual_proto::{Address, Header, Kind, Nanos, Target};

use super::wire::WireEnd;
use super::{Communicator, End};
use crate::engine::{Bell, SendError};
use crate::large::{Gathered, Origin, now};
use crate::ledger::{Count, RowCount};
use crate::node::inbox::Inbox;
use crate::node::receiving::Found;
use crate::node::sending::Timing;
use crate::node::{About, Core};
use crate::pause::TimeLimit;
use crate::wake::YieldThenSleep;

/// Bytes after which a kernel's medium is given time where several receive, and how long each takes: 200 MB/s. None of them says
/// that it is behind; a receive buffer of 1 MiB takes as much as comes in 5 ms.
const BYTES_AT_ONCE: usize = 96 << 10;
const BYTE_TAKES_NS: u64 = 5;

/// Frames that a sender takes before it looks again whether it can send.
const FRAMES_PER_LOOK: usize = 32;

/// Time after which a fragment is tried again when the medium had no room for it.
const FULL_FOR: Duration = Duration::from_micros(100);

/// Messages that come while one is sent and are kept for a receive, at most.
const HELD_MAX: usize = 1024;

/// A part of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment<'a> {
    pub(super) target: Target,
    pub(super) head: [u8; HEAD_SIZE],
    pub(super) bytes: &'a [u8],
    /// Of the message: all its fragments were sent when it was.
    pub(super) timing: Timing,
    /// Its sender waits for readers that are behind, also where others are written over.
    pub(super) waits: bool,
    /// On a sealed bus: the group in which all of the message is sealed. Its receivers know it by that, too.
    pub(super) group: Option<u32>,
}

impl Fragment<'_> {
    /// Writes it where a frame's payload goes.
    pub(super) fn write(&self, room: &mut [u8]) {
        let (head, bytes) = room.split_at_mut(HEAD_SIZE);
        head.copy_from_slice(&self.head);
        block::copy(self.bytes, bytes);
    }
}

/// Takes a fragment, which goes with the next flush.
pub(super) fn put_fragment(
    core: &Core,
    inbox: &Inbox,
    stamps: bool,
    fragment: &Fragment<'_>,
) -> Result<(), SendError> {
    let mut sending = core.sending();
    let (size, timing) = (HEAD_SIZE + fragment.bytes.len(), stamps.then_some(fragment.timing));
    sending.claim_in(core, inbox, fragment.target, (Kind::Fragment, size), timing, fragment.group)?;
    fragment.write(sending.payload());
    sending.commit(core, inbox);
    Ok(())
}

/// Spreads bytes over time.
#[derive(Debug)]
struct Spread {
    bytes: usize,
    next: Ticks,
}

impl Spread {
    /// So many bytes were taken. Returns an instant if they are to be flushed, and waited for until then.
    fn handle_taken(&mut self, bytes: usize, clock: &Clock) -> Option<Ticks> {
        self.bytes += bytes;
        if self.bytes < BYTES_AT_ONCE {
            return None;
        }
        let takes = Duration::from_nanos(self.bytes as u64 * BYTE_TAKES_NS);
        self.bytes = 0;
        let (now, takes) = (clock.now(), clock.ticks(takes));
        // Of a counter that a suspend begins anew the last instant may lie far ahead.
        let begins = if self.next > now.plus(takes) { now } else { self.next.max(now) };
        self.next = begins.plus(takes);
        Some(self.next)
    }
}

/// A message that is to be sent.
#[derive(Clone, Copy, Debug)]
struct Load<'a> {
    target: Target,
    payload: &'a [u8],
    timing: Timing,
    /// On a sealed bus: the group in which it is sealed.
    group: Option<u32>,
}

/// A message on its way to one receiver.
#[derive(Debug)]
struct Errand<'a> {
    courier: Courier,
    load: Load<'a>,
    /// The item that was refused for now, and the reason.
    pending: Option<(Say, SendError)>,
    /// Bytes of it that were sent at least once: the first ones.
    reached: usize,
}

impl Errand<'_> {
    fn has_sent_all(&self) -> bool {
        self.reached == self.load.payload.len()
    }

    /// Once it has ended: an error only if the message is delivered to nobody.
    fn ended(&self) -> Option<Result<(), SendError>> {
        let size = self.load.payload.len();
        Some(match self.courier.ending()? {
            Ending::Whole => Ok(()),
            Ending::Silent { .. } if self.has_sent_all() => Ok(()),
            Ending::Silent { .. } => Err(self.pending.map_or(SendError::Full, |(_, refusal)| refusal)),
            Ending::Lost => Err(SendError::Full),
            Ending::Refused(size_max) => Err(SendError::TooLong { size, size_max: size_max as usize }),
        })
    }
}

/// Fate of a frame of the fragment kind.
#[derive(Debug)]
pub(super) enum Taken {
    /// Its message is whole: that has landed.
    Message,
    /// It is where it belongs, or was refused.
    Part,
    /// Somebody says what has come of a message of ours.
    Receipt(Address, Receipt),
}

/// Messages that came while one was sent.
#[derive(Debug, Default)]
pub(super) struct Held {
    messages: VecDeque<(Found, Vec<u8>)>,
    size: usize,
}

impl Held {
    /// Nobody will receive them: as frames they are unread.
    pub(super) fn close(&mut self, about: &About) {
        let large = self.messages.iter().filter(|(found, _)| found.is_large).count();
        about.page.count(Count::LargeLost).add(large as u64);
    }
}

impl Communicator {
    /// Largest message that it sends, bytes ([`crate::NodeOptions::message_size_max`]).
    pub fn message_size_max(&self) -> usize {
        self.about().large.message_size_max(self.about().payload_size_max)
    }

    /// Result of sending a message; one that is too large for a frame is cut, and sent as far as there is room. One that is too large for
    /// its receiver's inbox is not: a part would be as well.
    #[inline]
    pub(super) fn or_cut(
        &mut self,
        sent: Result<(), SendError>,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<(), SendError> {
        match sent {
            Err(SendError::TooLong { .. }) if payload.len() > self.payload_size_max() => {
                self.send_cut(target, payload, due, Duration::ZERO)
            }
            sent => sent,
        }
    }

    /// Sends a message that is too large for a frame; waits for room for each fragment for at most `timeout`.
    #[cold]
    pub(super) fn send_cut(
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
        timeout: Duration,
    ) -> Result<(), SendError> {
        let about = self.about();
        let (clock, heads) = (about.clock, about.large.cut(payload.len(), about.payload_size_max)?);
        let timing = Timing { due, sent: about.sent_once(clock.now()) };
        let load = Load { target, payload, timing, group: self.group() };
        let is_for_one = target.port.is_some() && target.node.is_some_and(|node| node != about.node);
        match &mut self.end {
            // Inside of a function that is shown messages nobody can listen for receipts.
            End::Wire(end) if is_for_one && !timeout.is_zero() && !end.core.reading.is_this() => {
                if std::mem::take(&mut self.kept) {
                    end.hold_first();
                }
                let brought = end.bring(heads, load, timeout);
                self.waiting = !end.held.messages.is_empty();
                brought
            }
            _ => self.send_blindly(heads, load, timeout),
        }
    }

    /// On a sealed bus: the group in which a message that begins now is sealed.
    fn group(&self) -> Option<u32> {
        let own = match &self.end {
            End::Wire(end) => end.reception.inbox.seals_in(),
            End::Memory(end) => end.outlet.seals_in().get(),
        };
        self.about().group(own)
    }

    /// Sends one fragment after the other, regardless of what becomes of them.
    fn send_blindly(&mut self, heads: Cut, load: Load<'_>, timeout: Duration) -> Result<(), SendError> {
        let (clock, waits) = (self.about().clock, !timeout.is_zero());
        let Load { target, payload, timing, group } = load;
        let mut spread = Spread { bytes: 0, next: clock.now() };
        for head in heads {
            let (bytes, is_first) = (&payload[head.range()], head.at == 0);
            let fragment = Fragment { target, head: head.to_bytes(), bytes, timing, waits, group };
            self.persist(&mut TimeLimit::new(timeout), |own| match &mut own.end {
                End::Wire(end) => put_fragment(&end.core, &end.reception.inbox, end.stamps, &fragment),
                End::Memory(end) => end.outlet.put_fragment(&fragment),
            })?;
            self.about().page.count(Count::LargeSent).add(is_first.into());
            if let (true, End::Wire(end)) = (waits, &mut self.end)
                && let Some(until) = spread.handle_taken(bytes.len(), clock)
            {
                end.flush();
                std::thread::sleep(clock.duration(until.since(clock.now())));
            }
        }
        self.flush();
        Ok(())
    }
}

impl WireEnd {
    /// Takes the frame of the kind of fragments that landed.
    pub(super) fn take_part(&mut self) -> Taken {
        let (about, inbox) = (&self.core.about, &self.reception.inbox);
        let Some((&found, buffer)) = self.reception.landing().last() else { return Taken::Part };
        let Header { source, target, incarnation, payload_size, .. } = found.header;
        let sealed_in = found.circumstances.sealed_in;
        let origin = Origin { source, target, life: incarnation.into(), sealed_in };
        let payload = &buffer[found.payload_at..][..payload_size as usize];
        let part = Part::read(payload);
        let repaired = match part {
            Some(Part::Fragment(head, _)) if head.is_repaired => Some(head.number),
            _ => None,
        };
        let taken = match part {
            Some(Part::Receipt(receipt)) => Taken::Receipt(source, receipt),
            Some(Part::Question(question)) => {
                let receipt = self.gatherer.answer(about, &origin, &question, self.core.room_for(inbox));
                self.answer(&origin, &receipt);
                Taken::Part
            }
            _ => {
                let (head, bytes) = payload.split_first_chunk().unwrap_or((&[0; HEAD_SIZE], &[]));
                let copy = |room: &mut [u8]| {
                    room.copy_from_slice(bytes);
                    true
                };
                match self.gatherer.gather(about, origin, (head, bytes.len()), copy) {
                    Gathered::Whole(place) => {
                        let whole = self.gatherer.take(about, place);
                        if let Some(number) = repaired {
                            // Its receiver may not read on.
                            self.answer(&origin, &Receipt::of_whole(number));
                        }
                        self.reception.landing_mut().land_whole(whole);
                        return Taken::Message;
                    }
                    Gathered::Part | Gathered::Void => Taken::Part,
                }
            }
        };
        let row = self.core.about.page.row(self.reception.inbox.row);
        row[RowCount::Delivered as usize].add_alone(1);
        row[RowCount::Direct as usize].add_alone(found.direct.into());
        taken
    }

    /// Tells a sender what has come, unless we only listen, or are one of several who are meant. The sender asks again for a receipt
    /// for which the medium has no room. The same holds for one that would wait for a claim: its thread may wait for this one.
    fn answer(&self, origin: &Origin, receipt: &Receipt) {
        let (core, inbox) = (&self.core, &self.reception.inbox);
        if inbox.monitors || origin.target != Target::from(self.address()) {
            return;
        }
        let mut bytes = [0; RECEIPT_SIZE_MAX];
        let size = receipt.write(&mut bytes);
        let mut yields = YieldThenSleep::default();
        let mut sending = loop {
            if core.claiming.is_held() {
                return;
            }
            // A thread that sends has it for a moment, and may need this one's processor; one that claims says so in another.
            match core.try_sending() {
                Some(sending) => break sending,
                None => _ = yields.step(),
            }
        };
        // The sender may have no key of the group in which this node seals, but has that of the message.
        let (target, frame) = (origin.source.into(), (Kind::Fragment, size));
        if sending.claim_in(core, inbox, target, frame, None, origin.sealed_in).is_ok() {
            sending.payload().copy_from_slice(&bytes[..size]);
            sending.commit(core, inbox);
            sending.flush();
        }
    }

    /// Brings a message to one receiver: lost fragments are sent again. Messages that come meanwhile are held for a receive.
    fn bring(&mut self, cut: Cut, load: Load<'_>, timeout: Duration) -> Result<(), SendError> {
        let was_armed = self.disarm().is_some();
        self.forget();
        let patience = Nanos(timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        let courier = Courier::new(cut, patience, now(&self.core.about));
        let mut errand = Errand { courier, load, pending: None, reached: 0 };
        let brought = loop {
            if let Some(ended) = errand.ended() {
                break ended;
            }
            if let Err(error) = self.say_all(&mut errand) {
                break Err(error);
            }
            self.listen(&mut errand);
            errand.courier.handle_timeout(now(&self.core.about));
        };
        self.core.sending().flush();
        if was_armed && (!self.held.messages.is_empty() || !self.arm()) {
            // A waiter for the descriptor looks once more.
            self.reception.inbox.bell.event().ring();
        }
        brought
    }

    /// Sends what is to be sent now, as far as there is room.
    fn say_all(&mut self, errand: &mut Errand<'_>) -> Result<(), SendError> {
        let now = now(&self.core.about);
        while let Some(say) = match errand.pending.take() {
            Some((say, _)) => Some(say),
            None => errand.courier.poll_transmit(now),
        } {
            match self.say(&say, errand) {
                Ok(()) => {}
                // Once all was sent, a refusal does not say whether the receiver has the message.
                Err(refusal)
                    if matches!(refusal, SendError::Full | SendError::Unreachable)
                        || errand.has_sent_all() =>
                {
                    errand.pending = Some((say, refusal));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.flush();
        Ok(())
    }

    fn say(&mut self, say: &Say, errand: &mut Errand<'_>) -> Result<(), SendError> {
        let Load { target, payload, timing, group } = errand.load;
        let (head, bytes) = match say {
            Say::Fragment(head) => (head.to_bytes(), &payload[head.range()]),
            Say::Question(question) => (question.to_bytes(), &[][..]),
        };
        let fragment = Fragment { target, head, bytes, timing, waits: true, group };
        put_fragment(&self.core, &self.reception.inbox, self.stamps, &fragment)?;
        if let Say::Fragment(head) = say {
            let is_first = errand.reached == 0;
            errand.reached = errand.reached.max(head.range().end);
            self.core.about.page.count(Count::LargeSent).add(is_first.into());
        }
        Ok(())
    }

    /// Receives until the courier has something to do.
    fn listen(&mut self, errand: &mut Errand<'_>) {
        let Errand { courier, pending, load, .. } = errand;
        self.gatherer.begin_look(&self.core.about);
        let clock = self.core.about.clock;
        let left = courier.poll_timeout().since(now(&self.core.about));
        let left = if pending.is_some() { FULL_FOR } else { Duration::from_nanos(left.0) };
        let until = clock.now().plus(clock.ticks(left));
        if !self.reception.receive_until(&self.core, Some(until)) {
            return self.give_up_late();
        }
        for taken in 1.. {
            match if self.reception.landing().is_fragment() { self.take_part() } else { Taken::Message } {
                Taken::Message if self.landed_size() == 0 && self.is_left_behind() => {}
                Taken::Message => self.hold(),
                Taken::Part => {}
                // A receipt from any other sender means nothing, regardless of its content.
                Taken::Receipt(source, receipt) if Target::from(source) == load.target => {
                    return courier.handle_receipt(&receipt, now(&self.core.about));
                }
                Taken::Receipt(..) => {}
            }
            if taken == FRAMES_PER_LOOK || !self.reception.try_receive(&self.core, None) {
                return;
            }
        }
    }

    /// Keeps what landed for a receive, as far as there is room. A sender that stopped listening would never hear that its message has
    /// come.
    fn hold(&mut self) {
        let size_max = self.core.about.large.message_size_max(0);
        let is_full = self.held.messages.len() >= HELD_MAX || self.held.size >= size_max;
        let Some(message) = self.take_landed() else { return };
        if is_full {
            self.held.size -= message.1.len();
            self.reception.inbox.leave_unread(&self.core.about.page);
            self.core.about.page.count(Count::LargeLost).add(message.0.is_large.into());
        } else {
            self.held.messages.push_back(message);
        }
    }

    /// Keeps what landed before all else.
    fn hold_first(&mut self) {
        if let Some(message) = self.take_landed() {
            self.held.messages.push_front(message);
        }
    }

    fn take_landed(&mut self) -> Option<(Found, Vec<u8>)> {
        self.note_waiting();
        let (mut found, bytes) = self.reception.landing_mut().take_out()?;
        // A later receive did not listen for it.
        found.direct = false;
        self.held.size += bytes.len();
        Some((found, bytes))
    }

    /// The message that landed is not received yet: from now on it waits, as those in the inbox do.
    pub(super) fn note_waiting(&mut self) {
        let row = self.core.about.page.row(self.reception.inbox.row);
        row[RowCount::Direct as usize].add_alone(self.reception.landing_mut().begin_wait().into());
    }

    /// The message that landed was kept, and is received by nobody. It waits until its row closes, which counts it.
    pub(super) fn lose_landed(&self) {
        let is_large = self.reception.landing().last().is_some_and(|(found, _)| found.is_large);
        self.core.about.page.count(Count::LargeLost).add(is_large.into());
    }

    /// Lets the oldest message land that is kept. Returns true if there are others.
    pub(super) fn land_held(&mut self) -> bool {
        if let Some((found, bytes)) = self.held.messages.pop_front() {
            self.held.size -= bytes.len();
            self.reception.landing_mut().put_back((found, bytes));
        }
        !self.held.messages.is_empty()
    }
}
