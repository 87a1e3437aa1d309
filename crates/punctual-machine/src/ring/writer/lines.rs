//! The lines of a ring between its writer and its readers: those that were told last go to the readers, the next record's come from them.

use super::super::{AHEAD_MAX, LINE_SIZE, SHORT_RECORD, Spacing};
use super::RingWriter;
use crate::mutant::without;

impl RingWriter {
    /// Moves the lines that were told last to where their readers find them sooner. They must be more than a short record's, and no
    /// more than so many. Their sender's next fence takes longer for it.
    #[inline]
    pub fn demote_long(&self, lines_max: u64) {
        if self.position - self.told_from > SHORT_RECORD {
            self.demote_up_to(lines_max);
        }
    }

    #[inline(never)]
    fn demote_up_to(&self, lines_max: u64) {
        if self.may_demote && self.position - self.told_from <= lines_max * LINE_SIZE as u64 {
            self.demote_told();
        }
    }

    /// The same of a short record, behind that fence.
    #[inline]
    pub fn demote_short(&self) {
        if self.may_demote && self.position - self.told_from <= SHORT_RECORD {
            self.demote_told();
        }
    }

    #[inline]
    fn demote_told(&self) {
        self.told_lines().for_each(|line| self.memory.demote(line));
    }

    /// Where the lines begin that were told last, but for the first one, which a waiting reader asks for all the time.
    pub(in crate::ring) fn told_lines(&self) -> impl Iterator<Item = u64> {
        let first = self.told_from & !(LINE_SIZE as u64 - 1);
        (first..self.position).step_by(LINE_SIZE).skip(1)
    }

    /// Takes the lines of the next record from its readers, if that will be as large as the last one: sets their first words to
    /// zero, so that the word behind it is zero, too. For when all who wait were told, as nobody waits for these stores.
    #[inline]
    pub fn clear_ahead(&mut self) {
        const LINE: u64 = Spacing::Lines.align();
        // Nothing else may be stored to (rule 1). A commit word at the end of a lap is its beginning's.
        let end = (self.position + self.last_size.min(AHEAD_MAX)).min(self.near) & !(LINE - 1);
        let mut cleared = self.cleared.max(self.position);
        while cleared < end {
            cleared += LINE;
            if !without!("ring_clear_ahead") {
                self.clear(cleared);
            }
        }
        self.cleared = cleared;
    }
}
