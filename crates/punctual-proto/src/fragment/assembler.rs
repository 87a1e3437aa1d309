//! Puts messages together again: within a number of messages, a number of bytes and a time.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::Head;
use super::receipt::{Progress, State};
use crate::limits::{ASSEMBLIES_MAX, ASSEMBLY_AGE};
use crate::recency::elapsed_ns;
use crate::time::Nanos;

/// Messages that have ended which are remembered, so that a late fragment of one does not begin it again. The newest of an origin is
/// forgotten only when there are more origins than that: a sender that still asks for it can be told.
const ENDED_MAX: usize = 2 * ASSEMBLIES_MAX;

/// Why a fragment is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its message is larger than those that are taken here.
    TooLong,
    /// It contradicts the fragments before it.
    Contradiction,
    /// Its message was delivered or given up before, or there is no memory for it now.
    Ended,
}

/// Name of a message: its origin and its number.
type Name<O> = (O, u32);

/// A message in the making.
#[derive(Debug)]
struct Assembly<O> {
    name: Name<O>,
    fragment_size: u32,
    bytes: Vec<u8>,
    /// A bit for each fragment that is here.
    present: Vec<u64>,
    /// Fragments that are not.
    missing: usize,
    /// When the newest of them came.
    touched: Nanos,
}

impl<O> Assembly<O> {
    fn new(name: Name<O>, head: &Head, now: Nanos, bytes: Vec<u8>) -> Self {
        let missing = head.count();
        Self {
            name,
            fragment_size: head.fragment_size,
            bytes,
            present: vec![0; missing.div_ceil(64)],
            missing,
            touched: now,
        }
    }

    fn is_of(&self, head: &Head) -> bool {
        self.bytes.len() == head.message_size as usize && self.fragment_size == head.fragment_size
    }

    fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// From the first that is missing on.
    fn progress(&self) -> Progress {
        if self.is_whole() {
            return Progress::of(State::Whole);
        }
        let first = self.present.iter().position(|word| *word != u64::MAX).unwrap_or(0);
        let behind = self.present[first].trailing_ones() as usize;
        let mut progress = Progress { base: (64 * first + behind) as u32, ..Progress::of(State::Partial) };
        let word_at = |at: usize| self.present.get(at).copied().unwrap_or(0);
        for (at, word) in progress.present.iter_mut().enumerate() {
            let (low, high) = (word_at(first + at), word_at(first + at + 1));
            // Of two words beside each other, the bits from the first missing fragment on.
            *word = ((u128::from(high) << 64 | u128::from(low)) >> behind) as u64;
        }
        progress
    }
}

/// The memory of a message that its receiver is done with. New memory of that size costs more than the copy into it: the kernel zeroes
/// it page by page as it is touched.
#[derive(Debug, Default)]
struct Spare {
    bytes: Vec<u8>,
    since: Nanos,
}

impl Spare {
    /// Memory for a message of this size, where `free` bytes are left of the bound. Its content is that of an older message. A small
    /// message does not keep a large one's memory: it may wait for its rest for long.
    fn take(&mut self, size: usize, free: usize) -> Vec<u8> {
        let capacity = self.bytes.capacity();
        if !(size..=size.saturating_mul(2)).contains(&capacity) || capacity > size.max(free) {
            return vec![0; size];
        }
        let mut bytes = core::mem::take(&mut self.bytes);
        bytes.resize(size, 0);
        bytes
    }

    /// Keeps the larger of two.
    fn put(&mut self, bytes: Vec<u8>, now: Nanos) {
        if bytes.capacity() >= self.bytes.capacity() {
            (self.bytes, self.since) = (bytes, now);
        }
    }

    fn is_empty(&self) -> bool {
        self.bytes.capacity() == 0
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if elapsed_ns(now.0, self.since.0) >= ASSEMBLY_AGE.0 {
            self.bytes = Vec::new();
        }
    }
}

/// Where a message in the making stands, until another fragment is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

/// Messages in the making, each of an origin: any value that tells the caller's senders apart.
///
/// A fragment is taken in three steps, as its bytes may lie where their writer can still change them: [`Self::place`],
/// [`Self::room`] to copy them to, [`Self::fill`] when they are what was sent. A message that cannot be whole any more is given up:
/// after a time without a fragment, or as the one that has waited longest when another needs its memory.
#[derive(Debug)]
pub struct Assembler<O> {
    message_size_max: usize,
    assemblies: Vec<Assembly<O>>,
    /// Ended messages, each with true if it was delivered; the newest at the end.
    ended: VecDeque<(Name<O>, bool)>,
    spare: Spare,
    held: usize,
    lost: u64,
}

impl<O: Copy + PartialEq> Assembler<O> {
    /// For messages of at most so many bytes; none if that is 0.
    pub fn new(message_size_max: usize) -> Self {
        Self {
            message_size_max,
            assemblies: Vec::new(),
            ended: VecDeque::new(),
            spare: Spare::default(),
            held: 0,
            lost: 0,
        }
    }

    /// Bytes that all messages in the making take.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Memory that they take in fact.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.assemblies.iter().map(|assembly| assembly.bytes.capacity()).sum()
    }

    /// True if no message is in the making and no memory of one is kept.
    pub fn is_empty(&self) -> bool {
        self.assemblies.is_empty() && self.spare.is_empty()
    }

    /// Messages given up since this was last asked.
    pub fn take_lost(&mut self) -> u64 {
        core::mem::take(&mut self.lost)
    }

    /// Where the message of this fragment is made, from now on if it is its first. It may take `free` bytes more than
    /// [`Self::held`] says.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn place(&mut self, origin: O, head: &Head, now: Nanos, free: usize) -> Result<Place, Refused> {
        let name = (origin, head.number);
        if let Some(index) = self.assemblies.iter().position(|assembly| assembly.name == name) {
            let assembly = &self.assemblies[index];
            return if assembly.is_of(head) { Ok(Place(index)) } else { Err(Refused::Contradiction) };
        }
        let size = head.message_size as usize;
        if size > self.message_size_max {
            return Err(Refused::TooLong);
        }
        if self.ended.iter().any(|(ended, _)| *ended == name) {
            return Err(Refused::Ended);
        }
        if !self.make_room(size, free) {
            self.lost += 1;
            self.remember(name, false);
            return Err(Refused::Ended);
        }
        let bytes = self.spare.take(size, free);
        self.held += bytes.capacity();
        self.assemblies.push(Assembly::new(name, head, now, bytes));
        Ok(Place(self.assemblies.len() - 1))
    }

    /// Where the fragment's bytes go.
    pub fn room(&mut self, place: Place, head: &Head) -> &mut [u8] {
        &mut self.assemblies[place.0].bytes[head.range()]
    }

    /// The fragment's bytes are there. Returns true if the whole message is there.
    pub fn fill(&mut self, place: Place, head: &Head, now: Nanos) -> bool {
        let assembly = &mut self.assemblies[place.0];
        let (word, bit) = (head.index() / 64, 1 << (head.index() % 64));
        assembly.missing -= usize::from(assembly.present[word] & bit == 0);
        assembly.present[word] |= bit;
        assembly.touched = now;
        assembly.is_whole()
    }

    /// Progress of a message about which its sender asks, given the head of any of its fragments. While it asks, the message is not
    /// given up.
    pub fn answer(&mut self, origin: O, head: &Head, now: Nanos) -> Progress {
        let name = (origin, head.number);
        if head.message_size as usize > self.message_size_max {
            return Progress::of(State::Refused);
        }
        if let Some(assembly) = self.assemblies.iter_mut().find(|assembly| assembly.name == name) {
            assembly.touched = now;
            return if assembly.is_of(head) { assembly.progress() } else { Progress::of(State::Lost) };
        }
        let ended = self.ended.iter().find(|(ended, _)| *ended == name);
        Progress::of(match ended {
            Some((_, true)) => State::Whole,
            Some((_, false)) => State::Lost,
            None => State::Unknown,
        })
    }

    /// Largest message that it takes, bytes.
    pub fn message_size_max(&self) -> usize {
        self.message_size_max
    }

    /// The message; where fragments are missing, anything.
    pub fn bytes(&self, place: Place) -> &[u8] {
        &self.assemblies[place.0].bytes
    }

    /// Hands a whole message over: it is the caller's from now on.
    pub fn take(&mut self, place: Place) -> Vec<u8> {
        debug_assert!(self.assemblies[place.0].is_whole());
        self.end(place.0, true)
    }

    /// The caller is done with a message that was handed over: its memory is for the next one.
    pub fn give_back(&mut self, bytes: Vec<u8>, now: Nanos) {
        self.spare.put(bytes, now);
    }

    /// Gives up what has had no fragment for a time, and memory that no message has needed. Only once all that has come is taken: a caller that was away for long has
    /// heard nothing meanwhile. A whole message that its receiver still looks at has its last fragment again and again; one that has none
    /// any more was written over.
    pub fn handle_timeout(&mut self, now: Nanos) {
        let is_old = |assembly: &Assembly<O>| elapsed_ns(now.0, assembly.touched.0) >= ASSEMBLY_AGE.0;
        while let Some(index) = self.assemblies.iter().position(is_old) {
            self.give_up(index);
        }
        self.spare.handle_timeout(now);
    }

    /// Gives up everything.
    pub fn handle_end(&mut self) {
        while !self.assemblies.is_empty() {
            self.give_up(0);
        }
    }

    /// Makes room for one more message of this size, if giving up others can. A whole one is not given up: it is its receiver's.
    fn make_room(&mut self, size: usize, free: usize) -> bool {
        let unfinished = self.assemblies.iter().filter(|assembly| !assembly.is_whole());
        let can_be_freed: usize = unfinished.map(|assembly| assembly.bytes.capacity()).sum();
        if size > free.saturating_add(can_be_freed) {
            return false;
        }
        let goal = self.held.saturating_add(free) - size;
        while self.held > goal || self.assemblies.len() >= ASSEMBLIES_MAX {
            let Some(oldest) = self.oldest() else { return false };
            self.give_up(oldest);
        }
        true
    }

    /// The unfinished message whose newest fragment is the oldest.
    fn oldest(&self) -> Option<usize> {
        let unfinished = self.assemblies.iter().enumerate().filter(|(_, assembly)| !assembly.is_whole());
        unfinished.min_by_key(|(_, assembly)| assembly.touched).map(|(index, _)| index)
    }

    fn give_up(&mut self, index: usize) {
        self.lost += 1;
        self.end(index, false);
    }

    fn end(&mut self, index: usize, is_delivered: bool) -> Vec<u8> {
        let Assembly { name, bytes, .. } = self.assemblies.swap_remove(index);
        self.held -= bytes.capacity();
        self.remember(name, is_delivered);
        bytes
    }

    fn remember(&mut self, name: Name<O>, is_delivered: bool) {
        if self.ended.len() == ENDED_MAX {
            let is_newest = |at: usize| {
                let ((origin, _), _) = self.ended[at];
                origin != name.0 && !self.ended.range(at + 1..).any(|((other, _), _)| *other == origin)
            };
            let oldest = (0..ENDED_MAX).find(|&at| !is_newest(at)).unwrap_or(0);
            self.ended.remove(oldest);
        }
        self.ended.push_back((name, is_delivered));
    }
}
