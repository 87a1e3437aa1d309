//! The sending end of a stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::doorbell::sender_fence;
use punctual_machine::ring::{ClaimError, RingWriter, Spacing, frame_size_max};
use punctual_proto::seal::SEAL_SIZE;
use punctual_proto::{Address, Header, Target};

use super::super::WhenFull;
use super::super::segment::READERS_BELL;
use super::Streams;
use super::claim::PublicationClaim;
use super::follower::Follower;
use super::gaps::Gaps;
use super::looks::Looks;
use super::options::{OfferError, PublicationOptions};
use super::prefix::{Prefix, StampChoice};
use super::ring_file::RingFile;
use super::run::Run;
use super::sealing::Sealing;
use crate::engine::tap::Direction;
use crate::node::sending::Timing;
use crate::pause::Pauses;

mod readers;

/// After so many messages it is looked whether readers have died, where nobody waits for them.
const LIVENESS_MESSAGES: u64 = 1 << 16;

/// The sending end of a stream: its ring, and its readers. One thread at a time holds it.
///
/// Messages of one publication arrive in order, each once, or are counted as lost. Between publications there is no order.
///
/// Dropped, it closes: subscriptions that have not found it yet still do, and read it to its end, for as long as its node is on the
/// bus. A node that leaves waits for them for 200 ms at most. Messages for a subscription that looks later are in no account.
#[derive(Debug)]
pub struct Publication {
    streams: Arc<Streams>,
    file: RingFile,
    writer: RingWriter,
    /// On a sealed bus.
    sealing: Option<Box<Sealing>>,
    /// The group in which its messages are sealed, if that is not the node's.
    group: Option<u32>,
    followers: Vec<Follower>,
    /// Visits of readers that [`Self::followers`] covers, and the version of the roster.
    readers_seen: u32,
    version_seen: u64,
    held_back: bool,
    stamps: StampChoice,
    stamp_one_in: u64,
    clock: &'static Clock,
    looks: Looks,
    gaps: Gaps,
    /// From this message on it is looked whether readers have died.
    look_around_at: u64,
    /// Somebody reads it, and nothing is sealed or captured: its messages are a few words and a payload.
    is_simple: bool,
}

impl Publication {
    pub(super) fn new(
        streams: Arc<Streams>,
        file: RingFile,
        sealing: Option<Sealing>,
        options: &PublicationOptions,
    ) -> Self {
        let writer = RingWriter::new(file.ring.clone());
        let usually = streams.own.segment.owner.held_back;
        let held_back = options.when_full.map_or(usually, |when| when == WhenFull::HoldBack);
        let mut publication = Self {
            is_simple: false,
            streams,
            file,
            writer,
            sealing: sealing.map(Box::new),
            group: None,
            followers: Vec::new(),
            readers_seen: 0,
            version_seen: 0,
            held_back,
            stamps: options.stamps,
            stamp_one_in: options.stamp_one_in.max(1).into(),
            clock: Clock::get(),
            looks: Looks::new(),
            gaps: Gaps::new(Clock::get()),
            look_around_at: LIVENESS_MESSAGES,
        };
        publication.find_followers(publication.reader_visits());
        publication
    }

    /// Where its messages come from.
    pub fn source(&self) -> Address {
        Address { node: self.file.about.node, port: self.file.about.source }
    }

    /// The target of its messages.
    pub fn target(&self) -> Target {
        self.file.about.target
    }

    /// Largest message, bytes.
    pub fn payload_size_max(&self) -> usize {
        frame_size_max(self.file.about.capacity) - Prefix::size_max(self.stamps) - self.seal_size()
    }

    #[inline]
    fn seal_size(&self) -> usize {
        if self.sealing.is_some() { SEAL_SIZE } else { 0 }
    }

    /// Messages taken so far: the account of each reader sums to this.
    pub fn sent(&self) -> u64 {
        self.writer.sequence()
    }

    /// Subscriptions that read it, as far as is known now.
    pub fn readers(&mut self) -> usize {
        self.look_at_readers();
        self.followers.len()
    }

    /// Waits until so many subscriptions read it; returns true if they do.
    pub fn wait_for_readers(&mut self, count: usize, timeout: Duration) -> bool {
        let begin = Instant::now();
        let mut pauses = Pauses::from(Duration::from_micros(10));
        while self.readers() < count {
            if begin.elapsed() > timeout {
                return false;
            }
            pauses.sleep();
            self.look_who_lives();
        }
        true
    }

    /// Sends a copy of the message; never waits.
    ///
    /// # Errors
    /// See [`OfferError`]; the message was then not sent.
    #[inline]
    pub fn offer(&mut self, payload: &[u8]) -> Result<(), OfferError> {
        self.append(payload, None, Spacing::Lines)?;
        self.hand_over();
        Ok(())
    }

    /// As [`Self::offer`], for a message that was due at an instant from which the stages then count, if all are stamped.
    ///
    /// # Errors
    /// See [`OfferError`]; the message was then not sent.
    pub fn offer_due(&mut self, payload: &[u8], due: Ticks) -> Result<(), OfferError> {
        self.append(payload, Some(due), Spacing::Lines)?;
        self.hand_over();
        Ok(())
    }

    /// Room for a message of `size` bytes, to be written in place. Dropped without [`PublicationClaim::commit`], nothing is sent.
    ///
    /// # Errors
    /// See [`OfferError`].
    pub fn try_claim(&mut self, size: usize) -> Result<PublicationClaim<'_>, OfferError> {
        let prefix = self.claim(size, None, Spacing::Lines)?;
        Ok(PublicationClaim::of(self, prefix))
    }

    /// A run of messages, which readers see some kilobytes at a time, and for which they are woken once: at its end.
    #[inline]
    pub fn run(&mut self) -> Run<'_> {
        Run::of(self)
    }

    /// From now on its messages are sealed in this group; in the node's, if that is none.
    #[inline]
    pub(crate) fn seal_in(&mut self, group: Option<u32>) {
        self.group = group;
    }

    /// Takes a message, and tells nobody of it before the next [`Self::flush`].
    #[inline]
    pub(crate) fn queue(&mut self, payload: &[u8], due: Option<Ticks>) -> Result<(), OfferError> {
        self.append(payload, due, Spacing::Lines)
    }

    /// The same, for one of several that readers may see together.
    #[inline]
    pub(crate) fn queue_in_run(&mut self, payload: &[u8]) -> Result<(), OfferError> {
        let taken = self.append(payload, None, Spacing::Dense);
        // The thread that flushes may be another one.
        self.writer.await_stores();
        taken
    }

    /// True if each of its readers has found it and read it to its end, as far as this is known.
    pub(crate) fn is_read(&mut self) -> bool {
        self.look_at_readers();
        let (id, position) = (self.file.about.id, self.writer.position());
        let is_found = self.writer.sequence() == 0 || self.streams.is_found_by_readers(&self.file.about);
        is_found && self.followers.iter().all(|follower| follower.position(id) >= position)
    }

    /// Tells of all that was taken.
    #[inline]
    pub(crate) fn flush(&mut self) {
        self.hand_over();
    }

    #[inline(always)]
    pub(super) fn append(
        &mut self,
        payload: &[u8],
        due: Option<Ticks>,
        spacing: Spacing,
    ) -> Result<(), OfferError> {
        self.look_at_gap();
        if self.is_simple && self.append_simple(payload, due, spacing) {
            return Ok(());
        }
        self.append_any(payload, due, spacing)
    }

    /// Appends the common kind of message in one step, if it is known who reads and there is room near. Returns true if it was sent.
    #[inline(always)]
    fn append_simple(&mut self, payload: &[u8], due: Option<Ticks>, spacing: Spacing) -> bool {
        if self.has_visitors() {
            return false;
        }
        if !self.is_stamped() {
            return self.writer.append([0], payload, Prefix::Plain.flags(), spacing);
        }
        if self.stamps == StampChoice::All {
            return self.append_stages(payload, due, spacing);
        }
        let sent = Prefix::Sent(self.clock.now());
        sent.word().is_some_and(|word| self.writer.append([word], payload, sent.flags(), spacing))
    }

    /// The same of a message with all stages. They are known before anything of it is stored. Nothing lies between its being sent
    /// and its being posted, so one look at the clock says both.
    #[inline(never)]
    fn append_stages(&mut self, payload: &[u8], due: Option<Ticks>, spacing: Spacing) -> bool {
        let prefix = Prefix::of(self.stamps, self.instant_of_sending(), due, self.clock);
        let Some(stamps) = prefix.stamps() else { return false };
        self.writer.append(stamps.to_words().map(u64::to_le), payload, prefix.flags(), spacing)
    }

    fn append_any(&mut self, payload: &[u8], due: Option<Ticks>, spacing: Spacing) -> Result<(), OfferError> {
        let prefix = self.claim(payload.len(), due, spacing)?;
        match &mut self.sealing {
            None => self.writer.write(prefix.size(), payload),
            Some(sealing) => sealing.frame()[prefix.size()..].copy_from_slice(payload),
        }
        self.commit(prefix, spacing);
        Ok(())
    }

    /// Claims a frame and writes its prefix.
    #[inline]
    fn claim(&mut self, size: usize, due: Option<Ticks>, spacing: Spacing) -> Result<Prefix, OfferError> {
        // Before anything is stored: the reader's copy of the line is not waited for with the clock in between.
        let mut prefix = match self.is_stamped() {
            false => Prefix::Plain,
            true => Prefix::of(self.stamps, self.instant_of_sending(), due, self.clock),
        };
        self.claim_behind(&mut prefix, size, self.held_back, spacing)?;
        Ok(prefix)
    }

    /// When a message is sent now: one with all stages at an instant of its own.
    #[inline]
    fn instant_of_sending(&self) -> Ticks {
        let now = self.clock.now();
        if self.stamps == StampChoice::All { self.streams.about.sent_once(now) } else { now }
    }

    /// Room for a fragment. If its sender `waits`, readers hold it back though they may not hold others back.
    pub(crate) fn claim_fragment(
        &mut self,
        size: usize,
        timing: Option<Timing>,
        waits: bool,
    ) -> Result<PublicationClaim<'_>, OfferError> {
        let mut prefix = Prefix::of_fragment(timing, self.clock);
        if waits && !self.held_back {
            self.writer.ask_readers();
        }
        self.claim_behind(&mut prefix, size, self.held_back || waits, Spacing::Lines)?;
        Ok(PublicationClaim::of(self, prefix))
    }

    #[inline(always)]
    fn claim_behind(
        &mut self,
        prefix: &mut Prefix,
        size: usize,
        held_back: bool,
        spacing: Spacing,
    ) -> Result<(), OfferError> {
        self.look_at_gap();
        if self.followers.is_empty() || self.has_visitors() {
            self.connect()?;
        }
        let mut frame_size = prefix.size() + size;
        if let Some(sealing) = &mut self.sealing {
            sealing.sealer.prepare(self.group).map_err(|_| OfferError::NoKey)?;
            frame_size += SEAL_SIZE;
        }
        if let Err(error) = self.claim_frame(frame_size, held_back, spacing) {
            self.claim_slowly(error, (frame_size, size), spacing)?;
        }
        prefix.note_posted(self.clock);
        match &mut self.sealing {
            None => prefix.write(|bytes| self.writer.write(0, bytes)),
            Some(sealing) => {
                let frame = sealing.begin(frame_size);
                prefix.write(|bytes| frame[..bytes.len()].copy_from_slice(bytes));
            }
        }
        Ok(())
    }

    #[inline]
    fn is_stamped(&self) -> bool {
        self.stamps != StampChoice::Never
            && (self.stamp_one_in == 1 || self.writer.sequence().is_multiple_of(self.stamp_one_in))
    }

    /// The claimed frame, to be written in place.
    #[inline]
    pub(super) fn claimed_frame(&mut self) -> &mut [u8] {
        match &mut self.sealing {
            None => self.writer.claimed_bytes(),
            // Bytes that others can reach are sealed already.
            Some(sealing) => sealing.frame(),
        }
    }

    /// Sends the claimed frame, and tells nobody yet.
    #[inline(always)]
    pub(super) fn commit(&mut self, prefix: Prefix, spacing: Spacing) {
        if let Some(sealing) = &mut self.sealing {
            let sealed = sealing.seal(&self.file.about, self.writer.sequence(), prefix.flags());
            self.writer.write(0, sealed);
        }
        if self.streams.layers.capture.is_some() {
            self.capture(&prefix);
        }
        match spacing {
            Spacing::Lines => self.writer.commit_untold(prefix.flags()),
            Spacing::Dense => self.writer.commit_in_run(prefix.flags()),
        }
    }

    #[cold]
    fn capture(&mut self, prefix: &Prefix) {
        let (sealed, number) = (self.sealing.is_some(), self.writer.sequence());
        let (source, target, seal_size) = (self.source(), self.target(), self.seal_size());
        let frame = self.writer.claimed_bytes();
        let stamps = prefix.stamps();
        let body = &frame[prefix.size()..];
        let header = Header {
            kind: Prefix::kind(prefix.flags()),
            incarnation: self.streams.about.incarnation,
            source,
            target,
            sequence: number as u32,
            payload_size: (body.len() - seal_size) as u32,
            stamped: stamps.is_some(),
            sealed,
        };
        if let Some(capture) = &self.streams.layers.capture {
            capture.headed(Direction::Out, &header, stamps, body);
        }
    }

    #[inline]
    fn claim_frame(
        &mut self,
        frame_size: usize,
        held_back: bool,
        spacing: Spacing,
    ) -> Result<(), ClaimError> {
        let Self { streams, writer, followers, readers_seen, file, .. } = self;
        let mut slowest = || match streams.roster.bells[READERS_BELL].visits() == *readers_seen {
            _ if !held_back => u64::MAX,
            true => {
                followers.iter().map(|follower| follower.position(file.about.id)).min().unwrap_or(u64::MAX)
            }
            // Somebody joins just now, and we do not know him yet: nothing is written over until we do.
            false => 0,
        };
        writer.claim_spaced(frame_size, spacing, &mut slowest)
    }

    /// Retries a claim that was refused at first: readers that came, left or died meanwhile are looked at before it is refused for
    /// good.
    #[cold]
    fn claim_slowly(
        &mut self,
        error: ClaimError,
        (frame_size, size): (usize, usize),
        spacing: Spacing,
    ) -> Result<(), OfferError> {
        if let ClaimError::TooLong { .. } = error {
            return Err(OfferError::TooLong { size, size_max: self.payload_size_max() });
        }
        // The reader that holds the ring back may sleep over a run that it was not told of.
        self.hand_over();
        self.look_at_readers();
        if self.claim_frame(frame_size, true, spacing).is_ok() {
            return Ok(());
        }
        self.look_who_lives();
        self.claim_frame(frame_size, true, spacing).map_err(|_| OfferError::Full)
    }

    /// Tells of all that was committed, and wakes who sleeps.
    #[inline]
    pub(super) fn hand_over(&mut self) {
        self.writer.publish_tail();
        let lines = self.gaps.lines_per_gap();
        self.writer.demote_long(lines);
        punctual_machine::label!("stream.ring");
        // For all bells and for those who join: a reader that does not see the message is seen here.
        sender_fence();
        self.ring_followers();
        if self.has_visitors() {
            self.ring_visitors();
        }
        if lines > 0 {
            self.writer.demote_short();
            self.writer.clear_ahead();
        }
        if self.gaps.count() {
            self.look_now_and_then();
        }
    }

    /// False in a child that was forked since: the ring is its parent's.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.streams.about.maker.is_this_process()
    }

    /// Wakes readers that sleep, behind a fence.
    #[inline(always)]
    fn ring_followers(&self) {
        for follower in &self.followers {
            let Follower { peer, bells, bell, event, .. } = follower;
            let Some(bells) = bells else {
                follower.ring_unmapped(&self.streams.roster);
                continue;
            };
            let notification = bells[*bell].ring_fenced();
            self.streams.roster.notify(notification, &peer.segment, *bell, event);
        }
    }

    /// The next message, be it one of a run or not, ends the gap behind what was told before.
    #[inline(always)]
    fn look_at_gap(&mut self) {
        if self.gaps.is_looking() {
            self.end_gap();
        }
    }

    #[cold]
    fn end_gap(&mut self) {
        self.gaps.end(self.clock.now());
    }

    #[cold]
    fn look_now_and_then(&mut self) {
        if self.writer.sequence() >= self.look_around_at {
            self.look_around_at = self.writer.sequence() + LIVENESS_MESSAGES;
            self.look_around();
        }
        self.gaps.begin(self.clock.now());
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            return;
        }
        // Of a run that was forgotten something may be left.
        self.writer.publish_tail();
        self.file.close();
        self.streams.withdraw(&self.file.about, self.writer.sequence());
    }
}

#[cfg(test)]
mod tests {
    use super::super::gaps::LOOK_EVERY;
    use super::*;
    use crate::{Bus, Node, SubscriptionOptions};

    /// Goal: gaps are looked for once in so many messages, with each way to send one. Where there are gaps, and nowhere else, the next
    /// message's lines are taken ahead.
    #[test]
    fn gaps_are_looked_at() {
        type Send = fn(&mut Publication);
        let offer: Send = |publication| publication.offer(&[7; 100]).unwrap();
        let claim: Send = |publication| publication.try_claim(100).unwrap().commit();
        let fragment: Send = |publication| publication.claim_fragment(100, None, false).unwrap().commit();
        let run: Send = |publication| publication.run().offer(&[7; 100]).unwrap();
        let queue: Send = |publication| {
            publication.queue_in_run(&[7; 100]).unwrap();
            publication.flush();
        };
        let bus = Bus::loopback("gaps");
        let node = Node::open(&bus, "node").unwrap();
        let _subscription = node.subscription(7, &SubscriptionOptions::default()).unwrap();
        for (send, takes_ahead) in
            [(offer, true), (claim, true), (fragment, true), (run, false), (queue, false)]
        {
            let mut publication =
                node.publication(Target::port("node", 7), &PublicationOptions::default()).unwrap();
            let now = publication.clock.now();
            publication.gaps.begin(now);
            publication.gaps.end(now);
            for gaps in [1, 2] {
                while !publication.gaps.is_looking() {
                    assert_eq!(publication.gaps.lines_per_gap(), 0);
                    send(&mut publication);
                    assert!(publication.writer.cleared() <= publication.writer.position());
                }
                assert_eq!(publication.writer.sequence(), u64::from(gaps * LOOK_EVERY));
                std::thread::sleep(Duration::from_micros(10));
                send(&mut publication);
                assert!(!publication.gaps.is_looking());
            }
            assert!(publication.gaps.lines_per_gap() > 0);
            assert_eq!(publication.writer.cleared() > publication.writer.position(), takes_ahead);
        }
    }
}
