//! The one writer of a ring.

mod lines;

use super::words::{await_stores_past_caches, copy_in, copy_past_caches_in, store_past_caches};
use super::{
    COMMIT_SIZE, ClaimError, LIMIT_STEPS, LONG_RUN, PADDING, RUN_SIZE, RingMemory, Spacing, commit_word,
    frame_size_max, record_end, record_word,
};
use crate::arch::{may_demote, may_pass_caches};
use crate::mutant::{fence, ordering, without};
use crate::sync::{AtomicU64, Ordering};

/// The writer of a ring. Claims a record, writes it in place, commits it.
#[derive(Debug)]
pub struct RingWriter {
    memory: RingMemory,
    /// Where the next record begins.
    position: u64,
    /// Its number.
    sequence: u64,
    /// A record that ends here or before needs no more room than there is, for the commit word behind it too: by that word before
    /// the nearer of `limit` and of the end of the lap.
    near: u64,
    /// The position that the tail says.
    told: u64,
    /// Where that begins which was told last.
    told_from: u64,
    /// Value of `control.limit`.
    limit: u64,
    /// Nothing at or above this position may be written, as a reader may still read it a lap below.
    held_at: u64,
    /// Frame size of the claimed record; 0 = none.
    claimed: usize,
    /// Where the record behind the claimed one begins.
    spacing: Spacing,
    /// Behind `position` and up to here, the first word of each line is zero.
    cleared: u64,
    /// Bytes of the last record; 0 if it was one of a run.
    last_size: u64,
    /// Of a run, the first record that is not committed yet, and its commit word; 0 = none. Readers stop there.
    run_begin: u64,
    run_word: u64,
    /// So many bytes of a run are committed together.
    run_size: u64,
    /// This processor is better at streams that go past its caches.
    may_pass_caches: bool,
    /// This processor can move lines to where readers find them sooner.
    may_demote: bool,
    /// Bytes of the run at hand that were appended.
    run_bytes: u64,
    /// The last run that was told of was a long one: the next one is taken for one, too.
    was_long: bool,
    /// Something was stored past the caches, by this thread, that was not awaited.
    has_passed_caches: bool,
    frame_size_max: usize,
}

impl RingWriter {
    /// The writer of a ring that nothing was written to.
    ///
    /// # Panics
    /// If it has had a writer: two would give out the same bytes.
    pub fn new(memory: RingMemory) -> Self {
        assert!(memory.take_for_writing(), "a ring has one writer");
        let (held_at, frame_size_max) = (memory.capacity() as u64, frame_size_max(memory.capacity()));
        let is_aligned = memory.is_aligned();
        Self {
            memory,
            position: 0,
            sequence: 0,
            near: 0,
            told: 0,
            told_from: 0,
            limit: 0,
            held_at,
            claimed: 0,
            spacing: Spacing::Lines,
            cleared: 0,
            last_size: 0,
            run_begin: 0,
            run_word: 0,
            run_size: RUN_SIZE.min(held_at / LIMIT_STEPS),
            may_pass_caches: may_pass_caches() && is_aligned,
            may_demote: may_demote(),
            run_bytes: 0,
            was_long: false,
            has_passed_caches: false,
            frame_size_max,
        }
    }

    /// The same, of which all runs go past the caches.
    #[cfg(loom)]
    pub(super) fn passing_caches(self) -> Self {
        Self { may_pass_caches: true, was_long: true, ..self }
    }

    /// Claims a record regardless of what its readers have read: slow ones lose.
    #[inline]
    pub fn claim(&mut self, frame_size: usize) -> Result<(), ClaimError> {
        self.claim_held(frame_size, &mut || u64::MAX)
    }

    /// Claims a record unless that would overwrite what a reader has not read. `slowest` gives the position of the
    /// slowest reader (`u64::MAX` if there is none); it is asked only when the last answer does not suffice.
    #[inline]
    pub fn claim_held(
        &mut self,
        frame_size: usize,
        slowest: &mut dyn FnMut() -> u64,
    ) -> Result<(), ClaimError> {
        self.claim_spaced(frame_size, Spacing::Lines, slowest)
    }

    /// As [`Self::claim_held`]; the next record begins where the spacing says.
    #[inline]
    pub fn claim_spaced(
        &mut self,
        frame_size: usize,
        spacing: Spacing,
        slowest: &mut dyn FnMut() -> u64,
    ) -> Result<(), ClaimError> {
        let mut end = record_end(self.position, frame_size, spacing);
        // The word behind the record is written too (rule 2).
        if frame_size > self.frame_size_max || end > self.near {
            self.make_room(frame_size, spacing, slowest)?;
            end = record_end(self.position, frame_size, spacing);
        }
        // Now, not at the commit, which would have to wait until its reader's copy of that cache line is gone.
        if (spacing == Spacing::Dense || end > self.cleared) && !without!("ring_clear") {
            self.clear(end);
        }
        // A claimed record may be written to, and never committed.
        self.cleared = 0;
        (self.claimed, self.spacing) = (frame_size, spacing);
        Ok(())
    }

    /// Readers that were not asked so far hold the next records back, if those are claimed so.
    pub fn ask_readers(&mut self) {
        // Up to `limit` slow readers have lost already.
        self.held_at = self.held_at.min(self.limit);
    }

    /// Makes room for a record that needs more than there is. The record goes to the beginning of the next lap if it does not fit into
    /// this one.
    #[cold]
    fn make_room(
        &mut self,
        frame_size: usize,
        spacing: Spacing,
        slowest: &mut dyn FnMut() -> u64,
    ) -> Result<(), ClaimError> {
        let size_max = self.frame_size_max;
        if frame_size > size_max {
            return Err(ClaimError::TooLong { size: frame_size, size_max });
        }
        // A run is short by far of a lap, and what the tail tells of is committed.
        self.commit_run();
        let to_end = self.memory.to_end(self.position);
        let padding = if COMMIT_SIZE + frame_size > to_end { to_end as u64 } else { 0 };
        let end = record_end(self.position + padding, frame_size, spacing) + COMMIT_SIZE as u64;
        if end > self.limit {
            self.raise_limit(end, slowest)?;
        }
        if padding > 0 {
            if !without!("ring_clear_behind_padding") {
                self.clear(self.position + padding);
            }
            crate::label!("ring.padding");
            let word = commit_word(self.sequence, PADDING);
            // (C) No number is used up: the tail's stays.
            self.memory.word(self.position).store(word, ordering!("ring_commit_padding", Release));
            self.position += padding;
            self.tell();
        }
        let lap_end = self.position + self.memory.to_end(self.position) as u64;
        self.near = self.limit.min(lap_end) - COMMIT_SIZE as u64;
        Ok(())
    }

    /// Makes room up to `end` (rules 4 and 5).
    #[cold]
    fn raise_limit(&mut self, end: u64, slowest: &mut dyn FnMut() -> u64) -> Result<(), ClaimError> {
        let capacity = self.memory.capacity() as u64;
        if self.told != self.position && !without!("ring_tell_before_lap") {
            // A reader that finds itself lapped in the middle of a run goes on at the tail (F).
            self.tell();
        }
        if end > self.held_at {
            // (E) pairs with the fence in `RingReader::move_to_now`: we see the cursor of a reader that joins, or it sees our position.
            // (F) pairs with the fence in `RingMemory::newest`: no limit laps a reader before we were here, beyond its position. So a
            // reader that finds itself lapped sees the tail beyond it too.
            fence!("ring_holding_fence", SeqCst);
            // No reader is ahead of us, and one that joins later begins here: with no reader at all this answer holds for
            // one lap, not for ever.
            self.held_at = slowest().min(self.position) + capacity;
            if end > self.held_at {
                return Err(ClaimError::Full);
            }
        }
        self.limit = (end + capacity / LIMIT_STEPS).min(self.held_at);
        crate::label!("ring.limit");
        self.memory.control().limit.0.store(self.limit, Ordering::Relaxed);
        fence!("ring_writer_fence", Release); // (D) pairs with the fence in `RingGuard::is_intact`.
        if self.may_pass_caches {
            // (D) for stores past the caches, which no ordering of the language knows.
            await_stores_past_caches();
        }
        crate::label!("ring.limit.done");
        Ok(())
    }

    /// Writes into the claimed record, from `offset` bytes of its frame on; `offset` is a multiple of 8.
    ///
    /// # Panics
    /// If that is outside of what was claimed.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(8) && offset + bytes.len() <= self.claimed, "outside of the claim");
        copy_in(&self.memory.words_behind(self.position)[offset / 8..], bytes);
    }

    /// The claimed record's frame, to be written in place.
    #[cfg(not(loom))]
    #[inline]
    pub fn claimed_bytes(&mut self) -> &mut [u8] {
        let words = self.memory.words_behind(self.position);
        assert!(self.claimed <= words.len() * 8);
        // SAFETY: the bytes lie in the ring (asserted) and between `position` and `limit`. Only this writer stores there (rule 1), and
        // `&mut self` makes it the only borrow. Readers stop at the commit word, which is not part of them; those that hold the writer back
        // do not look at these bytes. One that it laps may still be copying the record that was here. It loads words as atomics, and drops
        // what it has when it finds `limit` raised (rule 4). Plain stores beside such loads are a race that the memory model leaves
        // undefined inside one process, as between two; no more comes of it than words that nobody uses.
        unsafe { core::slice::from_raw_parts_mut(words.as_ptr().cast::<u8>().cast_mut(), self.claimed) }
    }

    /// Sends a frame of some words and a payload, where there is room for it without looking further: true if there was. Readers see
    /// the same as after [`Self::claim_spaced`], [`Self::write`] and a commit without telling. With the commit word, the words have a
    /// multiple of 16 bytes.
    #[inline]
    pub fn append<const WORDS: usize>(
        &mut self,
        words: [u64; WORDS],
        payload: &[u8],
        flags: u8,
        spacing: Spacing,
    ) -> bool {
        const { assert!(WORDS % 2 == 1, "payloads that go past the caches begin at a multiple of 16") };
        let (position, frame_size) = (self.position, size_of::<[u64; WORDS]>() + payload.len());
        let end = record_end(position, frame_size, spacing);
        if frame_size > self.frame_size_max || end > self.near {
            return false;
        }
        let commit = record_word(self.sequence, frame_size, flags, spacing);
        if spacing == Spacing::Lines {
            self.commit_run();
        }
        // SAFETY: the record ends before the end of the lap, which `near` is not beyond.
        let record = unsafe { self.memory.record(position, frame_size) };
        match spacing {
            Spacing::Lines => {
                if end > self.cleared && !without!("ring_append_clear") {
                    self.clear(end);
                }
                self.last_size = end - position;
                copy_in(&record[1 + WORDS..], payload);
                for (place, word) in record[1..=WORDS].iter().zip(words) {
                    place.store(word, Ordering::Relaxed);
                }
                crate::label!("ring.commit_appended");
                record[0].store(commit, ordering!("ring_commit_appended", Release)); // (C)
            }
            Spacing::Dense => {
                // The first one's is stored when readers are to see them.
                let inner = if self.run_word == 0 { None } else { Some(commit) };
                self.has_passed_caches |= self.write_in_run(record, inner, words, payload);
                if inner.is_none() {
                    (self.run_begin, self.run_word) = (position, commit);
                    self.last_size = 0;
                }
                self.run_bytes += end - position;
            }
        }
        // A claim that was not committed is void.
        (self.position, self.sequence, self.claimed) = (end, self.sequence + 1, 0);
        if spacing == Spacing::Dense {
            self.commit_full_run();
        }
        true
    }

    /// Writes a record of the run at hand, of which readers see nothing yet: words are stored as they lie. Returns true if they went
    /// past the caches.
    #[inline]
    fn write_in_run<const WORDS: usize>(
        &self,
        record: &[AtomicU64],
        commit: Option<u64>,
        words: [u64; WORDS],
        payload: &[u8],
    ) -> bool {
        let passes = self.may_pass_caches && (self.was_long || self.run_bytes >= LONG_RUN);
        if let Some(commit) = commit {
            store_in_run(&record[0], commit, passes);
        }
        for (place, word) in record[1..=WORDS].iter().zip(words) {
            store_in_run(place, word, passes);
        }
        if passes {
            copy_past_caches_in(&record[1 + WORDS..], payload);
        } else {
            copy_in(&record[1 + WORDS..], payload);
        }
        passes
    }

    /// Commits the claimed record: from now on readers see it.
    ///
    /// # Panics
    /// If nothing was claimed.
    #[inline]
    pub fn commit(&mut self) {
        self.commit_untold(0);
        self.publish_tail();
    }

    /// As [`Self::commit`], with the user's flags ([`super::RECORD_FLAGS`]), and without telling those who join: that is
    /// [`Self::publish_tail`].
    ///
    /// # Panics
    /// If nothing was claimed.
    #[inline]
    pub fn commit_untold(&mut self, flags: u8) {
        self.commit_run();
        let (position, word) = self.finish(flags);
        crate::label!("ring.commit");
        self.memory.word(position).store(word, ordering!("ring_commit", Release)); // (C)
    }

    /// As [`Self::commit_untold`], for one of a run of records, which readers see together: some kilobytes of it, or what
    /// there is when [`Self::publish_tail`] ends it. A reader that sees each at once takes its lines from the writer.
    ///
    /// # Panics
    /// If nothing was claimed.
    #[inline]
    pub fn commit_in_run(&mut self, flags: u8) {
        let (position, word) = self.finish(flags);
        if self.run_word == 0 {
            (self.run_begin, self.run_word) = (position, word);
            return;
        }
        crate::label!("ring.commit_behind");
        // Nobody comes here who has not seen the run's first word, which is stored with release.
        self.memory.word(position).store(word, Ordering::Relaxed);
        self.commit_full_run();
    }

    /// Completes all stores for every thread. This is needed before the writer of an open run goes to another thread by itself: the
    /// fence at the end of the run is then that thread's.
    #[inline]
    pub fn await_stores(&mut self) {
        if core::mem::take(&mut self.has_passed_caches) && !without!("ring_await_stores") {
            await_stores_past_caches();
        }
    }

    /// Lets readers see the run so far if that is much.
    #[inline]
    fn commit_full_run(&mut self) {
        if self.run_word != 0 && self.position - self.run_begin >= self.run_size {
            self.commit_run();
        }
    }

    /// The claimed record is behind us. Where it begins, and its commit word.
    #[inline]
    fn finish(&mut self, flags: u8) -> (u64, u64) {
        assert!(self.claimed > 0, "nothing was claimed");
        let word = record_word(self.sequence, self.claimed, flags, self.spacing);
        let finished = (self.position, word);
        let end = record_end(self.position, self.claimed, self.spacing);
        self.last_size = if self.spacing == Spacing::Lines { end - self.position } else { 0 };
        self.position = end;
        self.sequence += 1;
        self.claimed = 0;
        finished
    }

    /// Lets readers see the run so far.
    #[inline]
    fn commit_run(&mut self) {
        if self.run_word != 0 {
            self.commit_open_run();
        }
    }

    fn commit_open_run(&mut self) {
        if !without!("ring_run_clear") {
            self.clear(self.position);
        }
        self.await_stores();
        crate::label!("ring.commit_run");
        let word = core::mem::take(&mut self.run_word);
        self.memory.word(self.run_begin).store(word, ordering!("ring_commit_run", Release)); // (C)
    }

    /// Tells those who join, and those who were overrun, up to where records were committed (rule 7).
    #[inline]
    pub fn publish_tail(&mut self) {
        if (self.run_bytes | self.run_word) != 0 {
            self.end_run();
        }
        self.told_from = self.told;
        self.tell_position();
    }

    /// Nothing is left of the run at hand.
    #[inline(never)]
    fn end_run(&mut self) {
        if self.run_bytes > 0 {
            self.was_long = self.run_bytes >= LONG_RUN;
            self.run_bytes = 0;
        }
        self.commit_run();
    }

    fn tell(&mut self) {
        self.commit_run();
        self.tell_position();
    }

    #[inline]
    fn tell_position(&mut self) {
        let tail = &self.memory.control().tail;
        self.told = self.position;
        crate::label!("ring.sequence");
        tail.sequence.store(self.sequence, ordering!("ring_sequence", Release)); // (G)
        crate::label!("ring.tail");
        tail.position.store(self.position, ordering!("ring_tail", Release)); // (G)
        crate::label!("ring.tail.done");
    }

    /// Sets the commit word at the end of a record to zero (rule 2).
    #[inline]
    fn clear(&self, end: u64) {
        crate::label!("ring.clear");
        if crate::is_planted!("claim_uncleared") {
            return;
        }
        self.memory.word(end).store(0, Ordering::Relaxed);
    }

    /// Where the next record begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Up to here the lines behind the position were taken ahead ([`Self::clear_ahead`]), if that is beyond it.
    pub fn cleared(&self) -> u64 {
        self.cleared
    }

    /// The number of the next record: as many were committed.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The ring's memory.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }
}

/// Stores a word of a run. A line that another core has read must be taken from it before it can be stored to, one after the
/// other; memory takes it at once.
#[inline]
fn store_in_run(target: &AtomicU64, value: u64, passes_caches: bool) {
    crate::label!("ring.store_in_run");
    if passes_caches {
        store_past_caches(target, value);
    } else {
        target.store(value, Ordering::Relaxed);
    }
}
