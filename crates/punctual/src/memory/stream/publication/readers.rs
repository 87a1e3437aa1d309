//! When a publication looks who reads it.

use super::super::super::roster::STEPS_MAX;
use super::super::super::segment::READERS_BELL;
use super::super::follower::find_followers;
use super::super::options::OfferError;
use super::Publication;

impl Publication {
    /// True if readers or nodes have come or gone since we looked.
    #[inline]
    pub(super) fn has_visitors(&self) -> bool {
        self.reader_visits() != self.readers_seen
    }

    /// Looks for readers. Without any, nothing is written: it would be lost without an account.
    #[cold]
    pub(super) fn connect(&mut self) -> Result<(), OfferError> {
        for _ in 0..STEPS_MAX {
            self.look_at_readers();
            if !self.followers.is_empty() || !self.has_visitors() {
                break;
            }
        }
        if self.followers.is_empty() {
            self.look_who_lives();
        }
        if self.followers.is_empty() { Err(OfferError::NotConnected) } else { Ok(()) }
    }

    pub(super) fn look_around(&mut self) {
        self.look_at_readers();
        self.look_who_lives();
    }

    /// A reader that joined since the message was claimed may sleep already, and has not seen it.
    #[cold]
    pub(super) fn ring_visitors(&mut self) {
        self.look_around();
        self.ring_followers();
    }

    /// Finds who reads, if that has changed. Readers that come meanwhile, and nodes that a look leaves for the next one, are seen at
    /// the next call.
    pub(super) fn look_at_readers(&mut self) {
        let visits = self.reader_visits();
        let roster = &self.streams.roster;
        if roster.is_visited(roster.visits_seen()) {
            roster.handle_visits();
        }
        if visits != self.readers_seen || roster.version() != self.version_seen {
            self.find_followers(visits);
        }
    }

    #[inline]
    pub(super) fn reader_visits(&self) -> u32 {
        self.streams.roster.bells[READERS_BELL].visits()
    }

    pub(super) fn look_who_lives(&mut self) {
        if self.looks.is_liveness_due(self.clock.now()) {
            self.streams.keep_house();
            self.look_at_readers();
            if self.looks.is_search_due(self.clock.now()) {
                self.find_followers(self.reader_visits());
            }
        }
    }

    /// `visits` were counted before: a reader that comes while rows are read is seen at the next look.
    pub(super) fn find_followers(&mut self, visits: u32) {
        self.version_seen = self.streams.roster.version();
        self.readers_seen = visits;
        find_followers(&self.streams, &self.file.about, &mut self.followers);
        let has_layers = self.sealing.is_some() || self.streams.layers.capture.is_some();
        self.is_simple = !self.followers.is_empty() && !has_layers;
    }
}
