//! Observers of a bus: each reads every ring, and no writer knows of it.

use std::sync::Arc;

use punctual_machine::event_fd::EventFd;

use super::super::roster::Peer;
use super::super::rows::row;
use super::super::segment::OBSERVER;
use super::follower::began_before;
use super::images::Images;
use super::reads::Reads;
use super::ring_file::RingIdentity;
use super::sealing::Opening;
use super::{StreamError, Streams};

/// Word of an observer of the bus in the table of subscriptions. The observer opens sealed messages, or takes all as they are.
fn observer_word(opens: bool) -> u64 {
    OBSERVER | u64::from(opens) << 32
}

impl Streams {
    /// A reader of every ring on the bus. It holds nobody back and is rung for new rings only, so senders spend nothing on it.
    pub(crate) fn observe(self: &Arc<Self>, event: &Arc<EventFd>) -> Result<Images, StreamError> {
        let opening = self.about.seals.as_ref().map(|seals| Opening::new(seals.opener()));
        let (bell, began) = self.list(observer_word(opening.is_some()))?;
        let mut images = Images::new(Arc::clone(self), Reads::Everything, bell, (opening, Arc::clone(event)));
        images.begin(began)?;
        Ok(images)
    }

    /// True if all observers of the bus have found this ring.
    pub(super) fn is_observed(&self, about: &RingIdentity) -> bool {
        self.members().iter().all(|member| member.has_left() || is_found_at(member, about))
    }
}

fn is_found_at(member: &Peer, about: &RingIdentity) -> bool {
    let segment = &member.segment;
    let mut without_row: Vec<u64> = Vec::new();
    for bell in segment.bells_used() {
        let entry = segment.subscription(bell);
        let word = entry[0].get_published();
        let observes = word == observer_word(false) || about.sealed && word == observer_word(true);
        // An observer that began later reads from where it finds the ring.
        if observes && began_before(entry, about) {
            without_row.push(bell as u64);
        }
    }
    if without_row.is_empty() {
        return true;
    }
    // Once for all of them: there may be many rows.
    for words in segment.rows() {
        if words[row::RING].get_published() == about.id {
            let bell = words[row::BELL].get();
            without_row.retain(|other| *other != bell);
        }
    }
    without_row.is_empty()
}
