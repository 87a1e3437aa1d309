//! One subscription's view of one publication's ring.

use std::sync::Arc;

use punctual_machine::ring::{Next, RingMemory, RingReader, frame_size_max};
use punctual_proto::seal::SEAL_SIZE;
use punctual_proto::{Address, Header, Kind};

use super::super::roster::Peer;
use super::super::rows::row;
use super::super::segment::READERS_BELL;
use super::follower::came_first;
use super::frames::{Unreadable, read, read_direct};
use super::message::{Fate, MessageHandler, StreamHead, StreamMessage};
use super::payload::Payload;
use super::places::OwnRow;
use super::prefix::Prefix;
use super::ring_file::{ENTERS, RingFile, RingIdentity};
use super::sealing::Belief;
use super::{StreamError, Streams};
use crate::engine::tap::{Capture, Direction};
use crate::large::FRAGMENTS_PER_LOOK;
use crate::ledger::Count;
use crate::node::count_of;

/// Account of one subscription with one publication: `begin + delivered + lost + refused` is the number of the message that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageAccount {
    /// Source of the publication.
    pub source: Address,
    /// The number of the first message that was to be had.
    pub begin: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages written over before they were read.
    pub lost: u64,
    /// Messages that their seal forbids to believe.
    pub refused: u64,
    /// The content of the ring is nothing that an honest writer leaves: it is not read any more.
    pub corrupt: bool,
    /// Nothing more will come: it was closed, or its node left or died.
    pub ended: bool,
}

#[derive(Debug)]
pub(super) struct Image {
    streams: Arc<Streams>,
    pub(super) peer: Arc<Peer>,
    pub(super) file: RingFile,
    reader: RingReader,
    /// By which its writer knows us.
    row: OwnRow,
    begin: u64,
    refused: u64,
    /// Taken by faults that were asked for.
    taken_by_faults: u64,
    /// Of what was overwritten, how much the node's counters say.
    overwritten_counted: u64,
    corrupt: bool,
    /// Nobody opens seals here, and nobody captures what is received.
    may_be_direct: bool,
    /// The last frame was direct: neither opened nor captured, and no fragment. So the head has `fragment_of: None`, and the next one
    /// probably is direct, too.
    is_direct: bool,
    /// Head of the message that is looked at: fields that do not change from one to the next are written once.
    head: StreamHead,
}

/// Result of a look at the next frame.
enum Step {
    /// It was a message, which its reader has.
    Delivered,
    /// It was a fragment.
    Gathered,
    /// It was a message that a fault has taken.
    Taken,
    /// There is none, or it ends the turn.
    End,
}

impl Image {
    /// Follows a ring: from its beginning, if the subscription began before it, else from now on.
    pub(super) fn follow(
        streams: &Arc<Streams>,
        peer: Arc<Peer>,
        file: RingFile,
        (bell, began): (usize, u64),
        belief: &mut Belief,
    ) -> Result<Self, StreamError> {
        let is_known = file.about.entered == ENTERS || came_first(began, file.about.entered);
        let memory = file.ring.clone();
        let mut reader = if is_known { RingReader::from_start(memory) } else { RingReader::from_now(memory) };
        if let Some(opening) = &mut belief.opening {
            opening.make_room(frame_size_max(file.about.capacity));
        }
        // A writer that is not told of its reader rings it only after it has looked around again.
        peer.segment.open_bells().map_err(StreamError::System)?;
        let row = streams.take_row(file.about.id, &peer, bell, reader.position())?;
        peer.segment.bell(READERS_BELL).announce_visit(true);
        if !is_known {
            // Behind a fence: from there on a writer that we hold back knows us, or what it wrote is seen here.
            reader.move_to_now();
        }
        let begin = reader.sequence();
        let words = &row.words;
        words[row::BEGIN].set(begin);
        words[row::SEQUENCE].publish(begin);
        punctual_machine::label!("row.position");
        words[row::POSITION].publish(reader.position());
        punctual_machine::label!("row.position.done");
        let streams = Arc::clone(streams);
        let may_be_direct = belief.opening.is_none() && streams.layers.capture.is_none();
        let about = &file.about;
        let head = StreamHead {
            source: Address { node: about.node, port: about.source },
            target: about.target,
            sequence: begin,
            lost_before: 0,
            sent: None,
            sealed_in: None,
            is_unopened: about.sealed && belief.opening.is_none(),
            fragment_of: None,
            noted: None,
        };
        Ok(Self {
            head,
            streams,
            peer,
            file,
            reader,
            row,
            begin,
            refused: 0,
            taken_by_faults: 0,
            overwritten_counted: 0,
            corrupt: false,
            may_be_direct,
            is_direct: may_be_direct,
        })
    }

    /// If its writer does not see how far it is: shows that, where there is room for it by now. Returns true if there is room.
    pub(super) fn show(&mut self) -> bool {
        let is_shown = self.streams.show_row(&mut self.row, &self.peer);
        if is_shown {
            self.peer.segment.bell(READERS_BELL).announce_visit(true);
        }
        is_shown
    }

    pub(super) fn is_seen(&self) -> bool {
        self.row.is_seen()
    }

    /// Why its writer does not see it, told once.
    pub(super) fn shortage(&mut self) -> Option<StreamError> {
        self.row.shortage.take()
    }

    /// Shows at most `limit` messages, oldest first, for as long as `handler` takes them. Returns how many were delivered.
    #[inline]
    pub(super) fn poll(
        &mut self,
        limit: usize,
        belief: &mut Belief,
        handler: &mut (impl MessageHandler + ?Sized),
    ) -> usize {
        let delivered = self.poll_direct(limit, belief, handler);
        if delivered > 0 || self.is_direct { delivered } else { self.poll_any(limit, belief, handler) }
    }

    /// The same as long as frames are direct, if the last one was. Inlined whole: see [`super::Images::poll_busy`].
    #[inline(always)]
    pub(super) fn poll_direct(
        &mut self,
        limit: usize,
        belief: &mut Belief,
        handler: &mut (impl MessageHandler + ?Sized),
    ) -> usize {
        if self.is_direct { self.poll_frames::<true>(limit, belief, handler) } else { 0 }
    }

    /// The same of frames of any kind, if the last one was not direct.
    #[inline(never)]
    pub(super) fn poll_any(
        &mut self,
        limit: usize,
        belief: &mut Belief,
        handler: &mut (impl MessageHandler + ?Sized),
    ) -> usize {
        if self.is_direct || self.corrupt { 0 } else { self.poll_frames::<false>(limit, belief, handler) }
    }

    /// Shows frames. `DIRECT`: as long as they are direct, as most are. The loop then ends before the first that is not.
    #[inline(always)]
    fn poll_frames<const DIRECT: bool>(
        &mut self,
        limit: usize,
        belief: &mut Belief,
        handler: &mut (impl MessageHandler + ?Sized),
    ) -> usize {
        // Dropped also if `handler` panics: the messages before that one were delivered.
        let told = Told { begin: self.reader.position(), image: self };
        let (mut delivered, mut gathered) = (0, 0);
        while delivered < limit && gathered < FRAGMENTS_PER_LOOK {
            match told.image.poll_frame::<DIRECT>(belief, handler) {
                Step::Delivered => delivered += 1,
                Step::Gathered => gathered += 1,
                Step::Taken => {}
                Step::End => break,
            }
        }
        delivered
    }

    /// Shows the next frame.
    #[inline(always)]
    fn poll_frame<const DIRECT: bool>(
        &mut self,
        belief: &mut Belief,
        handler: &mut (impl MessageHandler + ?Sized),
    ) -> Step {
        let frame = match self.reader.peek() {
            Next::Frame(frame) => frame,
            Next::Empty => return Step::End,
            Next::Overrun => return self.handle_overrun(belief),
            Next::Corrupt => return self.handle_corrupt(),
        };
        if !DIRECT {
            self.is_direct = self.may_be_direct && !Prefix::is_fragment(frame.flags());
        }
        let (head, about) = (&mut self.head, &self.file.about);
        let read = if DIRECT { read_direct(head, &frame, about) } else { read(head, &frame, about, belief) };
        let payload = match read {
            Ok(payload) => payload,
            Err(Unreadable::NotDirect) => {
                self.is_direct = false;
                return Step::End;
            }
            Err(unreadable) => {
                if let Unreadable::Refused(_) = unreadable {
                    frame.consume();
                }
                self.handle_unreadable(unreadable);
                belief.was_delayed = true;
                return Step::End;
            }
        };
        let message = StreamMessage::new(head, payload);
        if !handler.handle(&message) {
            // One that was written over is gone.
            belief.was_refused = message.fate.get() != Fate::Overwritten;
            return Step::End;
        }
        let fate = message.settle();
        if fate == Fate::Overwritten {
            return Step::End;
        }
        if !DIRECT {
            if let Some(capture) = &self.streams.layers.capture {
                capture_message(capture, about, head, payload);
            }
            if let Some(opening) = &mut belief.opening {
                opening.take();
            }
        }
        frame.consume();
        if fate != Fate::Whole {
            return self.handle_taken(fate);
        }
        head.lost_before = 0;
        Step::Delivered
    }

    /// Its numbers say what was lost, and the next look goes on behind it.
    #[cold]
    fn handle_overrun(&mut self, belief: &mut Belief) -> Step {
        belief.was_delayed = true;
        self.tell();
        Step::End
    }

    #[cold]
    fn handle_corrupt(&mut self) -> Step {
        self.note_corrupt();
        self.tell();
        Step::End
    }

    /// The item that was taken is a fragment, or a message that a fault has taken.
    #[inline(never)]
    fn handle_taken(&mut self, fate: Fate) -> Step {
        if fate == Fate::Gathered {
            // Losses are told with the next message.
            self.tell();
            return Step::Gathered;
        }
        self.head.lost_before = 0;
        if fate == Fate::Lost {
            self.count_taken_by_faults();
        }
        Step::Taken
    }

    #[cold]
    fn handle_unreadable(&mut self, unreadable: Unreadable) {
        match unreadable {
            Unreadable::Overrun | Unreadable::NotDirect => {}
            Unreadable::Corrupt => self.note_corrupt(),
            Unreadable::Refused(refusal) => {
                self.refused += 1;
                self.head.lost_before += 1;
                self.row.words[row::REFUSED].set(self.refused);
                let page = &self.streams.about.page;
                page.count(count_of(refusal)).add(1);
                page.count(Count::LostRefused).add(1);
            }
        }
    }

    #[cold]
    fn note_corrupt(&mut self) {
        (self.corrupt, self.is_direct) = (true, false);
        self.row.words[row::CORRUPT].set(1);
        self.streams.about.page.count(Count::CorruptPeers).add(1);
    }

    /// Of all that was sent since it began, what was not delivered and never will be.
    fn missing(&self) -> u64 {
        self.reader.lost() + self.refused + self.taken_by_faults
    }

    /// Its ring, and up to which message that was read; none of one that is read no more.
    pub(super) fn place(&self) -> Option<(RingMemory, u64)> {
        (!self.corrupt).then(|| (self.file.ring.clone(), self.reader.sequence()))
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        !self.corrupt && self.reader.has_news()
    }

    /// True if there is a message, and its writer has told of it.
    pub(super) fn has_told_news(&self) -> bool {
        self.has_news() && self.reader.lag() > 0
    }

    /// True if nothing more will come.
    pub(super) fn has_ended(&self) -> bool {
        self.file.is_closed() || self.peer.has_left()
    }

    /// True if nothing more will come, everything that came was read, and nobody finds the ring any more. So it is never followed
    /// twice, and until then its writer sees by our row that we have found it.
    pub(super) fn is_done(&mut self) -> bool {
        // In this order: messages that were written before the end are seen after it.
        if !self.has_ended() || self.is_listed() {
            return false;
        }
        let is_empty = matches!(self.reader.peek(), Next::Empty);
        // A look may find that something was lost.
        self.tell();
        self.corrupt || is_empty
    }

    fn is_listed(&self) -> bool {
        let mut rings = self.peer.segment.streams();
        !self.peer.has_left() && rings.any(|entry| entry[0].get_published() == self.file.about.id)
    }

    pub(super) fn account(&self) -> ImageAccount {
        ImageAccount {
            source: Address { node: self.file.about.node, port: self.file.about.source },
            begin: self.begin,
            delivered: self.reader.sequence() - self.begin - self.missing(),
            lost: self.reader.lost() + self.taken_by_faults,
            refused: self.refused,
            corrupt: self.corrupt,
            ended: self.has_ended(),
        }
    }

    /// Tells how far we are: to the writer, if it waits for that, and to observers.
    #[inline]
    fn tell(&mut self) {
        if self.reader.lost() != self.overwritten_counted {
            self.count_overwritten();
        }
        let words = &self.row.words;
        words[row::SEQUENCE].set(self.reader.sequence());
        punctual_machine::label!("row.update");
        words[row::POSITION].publish(self.reader.position());
        punctual_machine::label!("row.update.done");
    }

    #[cold]
    fn count_overwritten(&mut self) {
        let lost = self.reader.lost() - self.overwritten_counted;
        let page = &self.streams.about.page;
        page.count(Count::Overruns).add(1);
        page.count(Count::LostOverrun).add(lost);
        self.overwritten_counted = self.reader.lost();
        self.head.lost_before += lost;
        self.tell_lost();
    }

    #[cold]
    fn count_taken_by_faults(&mut self) {
        self.taken_by_faults += 1;
        self.tell_lost();
    }

    fn tell_lost(&self) {
        self.row.words[row::LOST].set(self.reader.lost() + self.taken_by_faults);
    }
}

#[cold]
fn capture_message(capture: &Capture, about: &RingIdentity, head: &StreamHead, payload: Payload<'_>) {
    // A seal that nobody has looked at stands behind the message, and is no part of it.
    let seal_size = if head.is_unopened { SEAL_SIZE } else { 0 };
    let header = Header {
        kind: if head.fragment_of.is_some() { Kind::Fragment } else { Kind::Data },
        incarnation: about.life as u16,
        source: head.source,
        target: head.target,
        sequence: head.sequence as u32,
        payload_size: payload.len().saturating_sub(seal_size) as u32,
        stamped: head.noted.is_some(),
        sealed: head.is_unopened,
    };
    let bytes = payload.to_vec();
    // Its reader has it. Since then it may have been written over.
    if payload.is_intact() {
        capture.headed(Direction::In, &header, head.stamps(), &bytes);
    }
}

/// Tells how far an image is when a turn of reading ends.
struct Told<'a> {
    image: &'a mut Image,
    /// Where the turn began.
    begin: u64,
}

impl Drop for Told<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.image.reader.position() != self.begin {
            self.image.tell();
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.streams.about.maker.is_this_process() {
            return;
        }
        self.streams.give_back_row(&self.row, &self.peer);
        self.peer.segment.bell(READERS_BELL).announce_visit(true);
    }
}
