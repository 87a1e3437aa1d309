//! The order of a view: a log of frames, written by the sequencer, the same at all members as far as they have it.

use alloc::vec;
use alloc::vec::Vec;

use super::slots::Slots;

/// One place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) index: u64,
    pub(super) origin: usize,
    pub(super) number: u64,
}

/// Frames of one origin that follow each other in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) origin: usize,
    pub(super) first: u64,
    pub(super) count: u32,
}

/// No entry has this index.
const NO_INDEX: u64 = u64::MAX;
const EMPTY: Entry = Entry { index: NO_INDEX, origin: 0, number: 0 };

/// A ring of the newest entries.
#[derive(Debug)]
pub(super) struct OrderLog {
    entries: Slots<Entry>,
    /// So many entries may be there that not all have taken.
    room: u64,
    /// All entries before this one are here, or were.
    mark: u64,
    /// All entries before this one are known to exist.
    end: u64,
    /// Number of entries that are here behind a gap.
    here: u64,
    /// Of each origin, how many of its frames stand before `mark`.
    counts: Vec<u64>,
}

impl OrderLog {
    /// The log of so many origins, each of which has at most a window of frames that not all have taken.
    pub(super) fn new(origins: usize, window: usize) -> Self {
        let room = origins * window;
        Self {
            entries: Slots::new(room, EMPTY),
            room: room as u64,
            mark: 0,
            end: 0,
            here: 0,
            counts: vec![0; origins],
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.fill(EMPTY);
        self.counts.fill(0);
        (self.mark, self.end, self.here) = (0, 0, 0);
    }

    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn count(&self, origin: usize) -> u64 {
        self.counts[origin]
    }

    pub(super) fn get(&self, index: u64) -> Option<Entry> {
        Some(self.entries[index]).filter(|entry| entry.index == index)
    }

    /// The sequencer's next entry.
    pub(super) fn append(&mut self, origin: usize, number: u64) {
        self.put(Entry { index: self.mark, origin, number });
        self.advance();
    }

    /// Takes one entry, as [`Self::insert`] does a range of one.
    #[inline]
    pub(super) fn insert_one(&mut self, entry: Entry, taken: u64) {
        if (self.mark..taken.saturating_add(self.room)).contains(&entry.index) {
            self.put(entry);
            self.end = self.end.max(entry.index + 1);
            self.advance();
        }
    }

    /// Takes an order record: `range` stands from `start` on. Entries before `taken` may have been written over.
    pub(super) fn insert(&mut self, start: u64, range: Range, taken: u64) {
        let limit = taken.saturating_add(self.room);
        // The work is bounded by the room, for any record.
        let end = start.saturating_add(range.count.into()).min(limit);
        for index in start.max(self.mark)..end {
            let number = range.first.saturating_add(index - start);
            self.put(Entry { index, origin: range.origin, number });
            self.end = self.end.max(index + 1);
        }
        self.advance();
    }

    /// Of an index from `mark` on.
    fn put(&mut self, entry: Entry) {
        let slot = &mut self.entries[entry.index];
        self.here += u64::from(slot.index != entry.index);
        *slot = entry;
    }

    fn advance(&mut self) {
        while let Some(entry) = self.get(self.mark) {
            self.counts[entry.origin] = entry.number + 1;
            self.mark += 1;
            self.here -= 1;
        }
        self.end = self.end.max(self.mark);
    }

    /// All before `end` exist, regardless of the source of that.
    pub(super) fn note_end(&mut self, end: u64, taken: u64) {
        self.end = self.end.max(end.min(taken + self.room));
    }

    pub(super) fn has_gap(&self) -> bool {
        self.mark < self.end
    }

    /// Number of entries that exist and are not here.
    pub(super) fn missing_count(&self) -> usize {
        (self.end - self.mark - self.here) as usize
    }

    /// The longest range that begins at `index`, without going beyond `end`.
    pub(super) fn range_at(&self, index: u64, end: u64) -> Option<Range> {
        let first = self.get(index)?;
        let follows = |step: u64| {
            self.get(index + step)
                .is_some_and(|entry| (entry.origin, entry.number) == (first.origin, first.number + step))
        };
        let count = (1..end.saturating_sub(index)).take_while(|&step| follows(step)).count() as u32 + 1;
        Some(Range { origin: first.origin, first: first.number, count })
    }

    /// The length of the longest beginning of which all frames stand before the `cut` of their origin.
    pub(super) fn length_within(&self, from: u64, cut: &[u64]) -> u64 {
        let is_within = |index: &u64| self.get(*index).is_some_and(|entry| entry.number < cut[entry.origin]);
        from + (from..self.mark).take_while(is_within).count() as u64
    }

    /// Ends the order of a view: the entries from `length` on are forgotten; then the frames of each origin up to its `cut` follow,
    /// origin by origin. So all who close a view by one proposal have one order.
    pub(super) fn close(&mut self, length: u64, cut: &[u64]) {
        for index in length..self.mark {
            if let Some(entry) = self.get(index) {
                self.counts[entry.origin] = self.counts[entry.origin].min(entry.number);
            }
        }
        for index in length..self.end {
            let slot = &mut self.entries[index];
            if slot.index == index {
                *slot = EMPTY;
            }
        }
        self.mark = self.mark.min(length);
        self.here = (self.mark..length).filter(|&index| self.get(index).is_some()).count() as u64;
        for (origin, &cut) in cut.iter().enumerate() {
            for number in self.counts[origin]..cut {
                self.append(origin, number);
            }
        }
        self.end = self.mark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(origin: usize, first: u64, count: u32) -> Range {
        Range { origin, first, count }
    }

    #[test]
    fn records_in_any_order_make_one_log() {
        let mut log = OrderLog::new(2, 8);
        log.insert(3, range(1, 0, 2), 0);
        assert_eq!((log.mark(), log.end()), (0, 5));
        log.insert(0, range(0, 0, 3), 0);
        assert_eq!((log.mark(), log.count(0), log.count(1)), (5, 3, 2));
        assert_eq!((log.range_at(1, 5), log.range_at(3, 4)), (Some(range(0, 1, 2)), Some(range(1, 0, 1))));
        assert_eq!(log.length_within(0, &[3, 1]), 4);
    }

    /// Goal: one entry is taken as a range of one is, wherever it stands.
    #[test]
    fn one_entry_is_a_range_of_one() {
        let (mut log, mut other) = (OrderLog::new(2, 8), OrderLog::new(2, 8));
        let mut random = 7_u64;
        for _ in 0..5_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let taken = log.mark().saturating_sub(random >> 61);
            let index = match random >> 40 & 31 {
                31 => u64::MAX,
                ahead => taken + ahead,
            };
            let (origin, number) = ((random >> 50) as usize % 2, random >> 56);
            log.insert_one(Entry { index, origin, number }, taken);
            other.insert(index, range(origin, number, 1), taken);
            let state = |log: &OrderLog| (log.mark(), log.end(), log.missing_count(), log.counts.clone());
            assert_eq!(state(&log), state(&other), "{index} after {taken}");
        }
        assert!(log.mark() > 100, "{}", log.mark());
    }

    /// Goal: the count of missing entries is that of a look at each entry, also after a view was closed.
    #[test]
    fn missing_entries_are_counted() {
        let mut log = OrderLog::new(2, 16);
        let mut random = 7_u64;
        for step in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (ahead, count) = ((random >> 60) % 6, (random >> 50) as u32 % 4);
            let start = if step % 3 == 0 { log.mark() } else { log.mark() + ahead };
            log.insert(start, range((random >> 40) as usize % 2, start, count), log.mark());
            log.note_end(log.end() + (random >> 62), log.mark());
            let missing =
                |log: &OrderLog| (log.mark()..log.end()).filter(|&index| log.get(index).is_none()).count();
            assert_eq!(log.missing_count(), missing(&log));
            if step % 97 == 0 {
                let length = log.mark().saturating_sub(random >> 62);
                let cut = [log.count(0), log.count(1) + 1];
                log.close(length, &cut);
                assert_eq!((log.missing_count(), log.mark()), (0, log.end()));
            }
        }
    }

    #[test]
    fn closing_depends_on_the_proposal_alone() {
        let (mut short, mut long) = (OrderLog::new(2, 8), OrderLog::new(2, 8));
        short.insert(0, range(0, 0, 2), 0);
        long.insert(0, range(0, 0, 2), 0);
        long.insert(2, range(1, 0, 3), 0);
        [&mut short, &mut long].into_iter().for_each(|log| log.close(2, &[3, 1]));
        for log in [short, long] {
            let order: Vec<_> = (0..log.mark()).filter_map(|index| log.get(index)).collect();
            let order: Vec<_> = order.iter().map(|entry| (entry.origin, entry.number)).collect();
            assert_eq!((order, log.end()), (vec![(0, 0), (0, 1), (0, 2), (1, 0)], 4));
        }
    }
}
