//! Our rows: where the node says how far it has read whose rings.

use std::sync::MutexGuard;

use super::super::roster::Peer;
use super::super::rows::{FURTHER, ROWS_MAX, ROWS_STEP, Row, private_row, row};
use super::super::segment::OBSERVER;
use super::{READ_RINGS, StreamError, Streams};

/// State of our places in the tables.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Steps of rows that can be written to.
    row_steps: usize,
    /// No row before this one is free.
    row_free_from: usize,
    /// Rows that nobody else sees.
    unseen: u64,
}

/// A row of ours.
#[derive(Debug)]
pub(super) struct OwnRow {
    pub(super) words: Row,
    /// Its place in the table. Without one nobody else sees it.
    index: Option<usize>,
    /// It is among those that nobody sees, and its writer would wait for: an observer's is not.
    is_missed: bool,
    /// Why it has none.
    pub(super) shortage: Option<StreamError>,
}

impl OwnRow {
    /// True if others see it.
    pub(super) fn is_seen(&self) -> bool {
        self.index.is_some()
    }
}

impl Streams {
    /// Sees to it that there are rows at all: an error now, and not when there is something to read.
    pub(super) fn prepare_rows(&self, places: &mut Places) -> Result<(), StreamError> {
        if places.row_steps == 0 { self.reserve_rows(places) } else { Ok(()) }
    }

    /// Makes room for some rows more.
    fn reserve_rows(&self, places: &mut Places) -> Result<(), StreamError> {
        let (step, own, venue) = (places.row_steps, &self.own.segment, &self.roster.venue);
        if step * ROWS_STEP == ROWS_MAX {
            return Err(StreamError::TooMany { what: READ_RINGS, most: ROWS_MAX });
        }
        punctual_machine::label!("subscription.rows");
        venue.reserve_rows(step).map_err(StreamError::System)?;
        if step > 0 && !own.rows.has_further() {
            own.rows.set_further(venue.map_rows(FURTHER).map_err(StreamError::System)?);
        }
        own.rows.populate(step);
        places.row_steps += 1;
        Ok(())
    }

    /// A free place in the table of rows, which is about to be used.
    fn place_row(&self, places: &mut Places) -> Result<(usize, Row), StreamError> {
        let own = &self.own.segment;
        let end = places.row_steps * ROWS_STEP;
        let index = own.rows.first_free(places.row_free_from..end).unwrap_or(end);
        if index >= end {
            self.reserve_rows(places)?;
        }
        places.row_free_from = index + 1;
        let words = own.rows.row(index).expect("reserved rows are mapped");
        own.note_rows(index + 1);
        Ok((index, words))
    }

    /// A row, with what never changes in it; it counts once its ring stands there. One for which the table has no room is one that
    /// nobody else sees: the ring is read all the same, and what is lost of it counted, but its writer does not wait for us.
    pub(super) fn take_row(
        &self,
        ring: u64,
        peer: &Peer,
        bell: usize,
        position: u64,
    ) -> Result<OwnRow, StreamError> {
        let mut places = self.places();
        let observes = self.own.segment.subscription(bell)[0].get() & OBSERVER != 0;
        let row = match self.place_row(&mut places) {
            Ok((index, words)) => OwnRow { words, index: Some(index), is_missed: false, shortage: None },
            Err(shortage) => {
                let (words, is_missed) = (private_row().map_err(StreamError::System)?, !observes);
                self.note_unseen(&mut places, i64::from(is_missed));
                OwnRow { words, index: None, is_missed, shortage: Some(shortage) }
            }
        };
        let words = &row.words;
        words.iter().for_each(|word| word.set(0));
        let owner = &peer.segment.owner;
        let is_present = |life| self.roster.any(|peer| peer.segment.owner.life == life);
        // An observer's messages were sent to others, and count in no account of this node.
        if !observes {
            self.books().read(words.clone(), ring, (owner.node, owner.life), is_present);
        }
        words[row::BELL].set(bell as u64);
        words[row::POSITION].set(position);
        punctual_machine::label!("row.ring");
        words[row::RING].publish(ring);
        punctual_machine::label!("row.ring.done");
        Ok(row)
    }

    /// Moves what a row says that nobody sees to one in the table, if that has room by now. Returns true if the table had room.
    pub(super) fn show_row(&self, row: &mut OwnRow, peer: &Peer) -> bool {
        let mut places = self.places();
        let Ok((index, words)) = self.place_row(&mut places) else { return false };
        let (ring, owner) = (row.words[row::RING].get(), &peer.segment.owner);
        for (word, other) in words.iter().zip(row.words.iter()).skip(row::RING + 1) {
            word.set(other.get());
        }
        punctual_machine::label!("row.show");
        words[row::RING].publish(ring);
        punctual_machine::label!("row.show.done");
        self.books().moved(&row.words, words.clone(), ring, (owner.node, owner.life));
        let was_missed = row.is_missed;
        *row = OwnRow { words, index: Some(index), is_missed: false, shortage: None };
        self.note_unseen(&mut places, -i64::from(was_missed));
        true
    }

    pub(super) fn give_back_row(&self, row: &OwnRow, peer: &Peer) {
        let mut places = self.places();
        let (ring, owner) = (row.words[row::RING].get(), &peer.segment.owner);
        self.books().read_no_more(&row.words, ring, (owner.node, owner.life));
        punctual_machine::label!("row.free");
        row.words[row::RING].publish(0);
        punctual_machine::label!("row.free.done");
        match row.index {
            Some(index) => places.row_free_from = places.row_free_from.min(index),
            None => self.note_unseen(&mut places, -i64::from(row.is_missed)),
        }
    }

    fn note_unseen(&self, places: &mut MutexGuard<'_, Places>, change: i64) {
        if change == 0 {
            return;
        }
        places.unseen = places.unseen.wrapping_add_signed(change);
        self.own.segment.set_unseen(places.unseen);
    }
}
