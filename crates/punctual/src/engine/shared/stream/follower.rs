//! Who reads a publication.

use std::cell::OnceCell;
use std::sync::Arc;

use punctual_machine::counter::Counter;
use punctual_machine::event_fd::EventFd;

use super::super::roster::Peer;
use super::super::segment::{ROW_WORDS, ROWS_MAX, SUBSCRIPTIONS_MAX, row};
use super::ring_file::RingIdentity;
use super::{BEGINS, Streams, port_of_subscription};

/// A subscription that a ring is for.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) peer: Arc<Peer>,
    pub(super) bell: usize,
    /// What it sleeps on, once it has slept on a descriptor.
    pub(super) event: OnceCell<Arc<EventFd>>,
    /// Where it says how far it has read; it has not looked at the ring before there is one.
    row: Option<usize>,
}

impl Follower {
    /// Up to where it has read the ring.
    pub(super) fn position(&self, ring: u64) -> u64 {
        // It was there before the ring, and will read it from its beginning.
        let Some(row) = self.row else { return 0 };
        let words = self.peer.segment.row(row);
        // It has left: its row may be another ring's by now.
        if words[row::RING].get_published() == ring { words[row::POSITION].get_published() } else { u64::MAX }
    }

    /// Whether it has found the ring, which it then reads to its end.
    pub(super) fn has_begun(&self) -> bool {
        self.row.is_some()
    }
}

/// All subscriptions that a ring is for, as they are listed now.
pub(super) fn followers_of(streams: &Streams, about: &RingIdentity) -> Vec<Follower> {
    let mut followers = Vec::new();
    for peer in streams.members() {
        if !about.target.includes_node(peer.segment.owner.node) || peer.has_left() {
            continue;
        }
        for (bell, entry) in peer.segment.subscriptions().chunks(2).enumerate().take(SUBSCRIPTIONS_MAX + 1) {
            let port = port_of_subscription(entry[0].get_published(), about.sealed);
            if !port.is_some_and(|port| about.target.includes_port(port)) {
                continue;
            }
            let mut rows = peer.segment.rows().chunks(ROW_WORDS).take(ROWS_MAX);
            let is_its = |words: &[Counter]| {
                words[row::RING].get_published() == about.id && words[row::BELL].get() == bell as u64
            };
            let row = rows.position(is_its);
            // One that began later, and has no row yet, reads from where it will find us.
            if row.is_some() || entry[1].get_published() < about.began || entry[1].get() == BEGINS {
                followers.push(Follower { peer: Arc::clone(&peer), bell, event: OnceCell::new(), row });
            }
        }
    }
    followers
}
