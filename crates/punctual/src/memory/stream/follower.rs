//! Readers of a publication.

use std::sync::Arc;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_proto::recency::began_anew;

use super::super::roster::{KnownEvent, Peer, Roster};
use super::super::rows::{Row, row};
use super::super::segment::Bells;
use super::ring_file::RingIdentity;
use super::{BEGINS, Streams, port_of_subscription};

/// A subscription that a ring is for.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) peer: Arc<Peer>,
    /// Of its node. Without them it finds messages when it next looks up.
    pub(super) bells: Option<Bells>,
    pub(super) bell: usize,
    /// Event on which it sleeps, once it has slept on a descriptor.
    pub(super) event: KnownEvent,
    /// Where it says how far it has read; it has not looked at the ring before there is one.
    row: Option<Row>,
}

impl Follower {
    /// Up to where it has read the ring.
    pub(super) fn position(&self, ring: u64) -> u64 {
        let Some(words) = &self.row else {
            // It was there before the ring, and will read it from its beginning; or does already, by a row that nobody sees.
            return if self.peer.segment.has_unseen() { u64::MAX } else { 0 };
        };
        // It has left: its row may be another ring's by now.
        if words[row::RING].get_published() == ring { words[row::POSITION].get_published() } else { u64::MAX }
    }

    /// Wakes it if it sleeps, behind a fence. Its bells could not be mapped when it was found, as a process without descriptors cannot.
    #[cold]
    pub(super) fn ring_unmapped(&self, roster: &Roster) {
        let segment = &self.peer.segment;
        if let Some(bells) = segment.bells() {
            roster.notify(bells[self.bell].ring_fenced(), segment, self.bell, &self.event);
        }
    }

    /// True if it has found the ring, which it then reads to its end.
    pub(super) fn has_begun(&self) -> bool {
        self.row.is_some()
    }
}

/// All subscriptions that a ring is for, as they are listed now.
pub(super) fn followers_of(streams: &Streams, about: &RingIdentity) -> Vec<Follower> {
    let mut followers = Vec::new();
    find_followers(streams, about, &mut followers);
    followers
}

/// The same, in memory that may be there already.
pub(super) fn find_followers(streams: &Streams, about: &RingIdentity, followers: &mut Vec<Follower>) {
    followers.clear();
    add_followers(&streams.own, about, followers);
    streams.roster.for_each(|peer| add_followers(peer, about, followers));
}

/// True if a subscription began before a ring could be found, or is about to begin. Each of the two is listed, passes a fence and then
/// takes the time: the later one was shown the other.
pub(super) fn began_before(entry: &[Counter], about: &RingIdentity) -> bool {
    let began = entry[1].get_published();
    began == BEGINS || came_first(began, about.entered)
}

/// True if the one instant was before the other, both in ticks of the host's counter. Instants of before a suspend with which that began
/// anew came first.
pub(super) fn came_first(one: u64, other: u64) -> bool {
    let clock = Clock::get();
    let now_ns = clock.nanos(clock.now());
    let is_of_this_life = |ticks| !began_anew(now_ns, clock.nanos(Ticks(ticks)));
    (is_of_this_life(one), one) < (is_of_this_life(other), other)
}

fn add_followers(peer: &Arc<Peer>, about: &RingIdentity, followers: &mut Vec<Follower>) {
    if !about.target.includes_node(peer.segment.owner.node) || peer.has_left() {
        return;
    }
    let (segment, first) = (&peer.segment, followers.len());
    for bell in segment.bells_used() {
        let port = port_of_subscription(segment.subscription(bell)[0].get_published(), about.sealed);
        if port.is_some_and(|port| about.is_for(segment.owner.node, port)) {
            let (peer, bells) = (Arc::clone(peer), segment.bells().cloned());
            followers.push(Follower { peer, bells, bell, event: KnownEvent::default(), row: None });
        }
    }
    if followers.len() == first {
        return;
    }
    // Once for all of them: there may be many rows.
    for (index, words) in segment.rows().enumerate() {
        if words[row::RING].get_published() == about.id {
            let bell = words[row::BELL].get();
            let its = followers[first..].iter_mut().find(|follower| follower.bell as u64 == bell);
            if let Some(follower) = its {
                follower.row = segment.rows.row(index);
            }
        }
    }
    // One that began later, and has no row yet, reads from where it will find us. A follower whose rows are hidden from us is waited
    // for.
    let (mut index, hides_rows) = (0, segment.hides_rows());
    followers.retain(|follower| {
        index += 1;
        let is_earlier = || began_before(segment.subscription(follower.bell), about);
        index <= first || follower.row.is_some() || hides_rows || is_earlier()
    });
}

#[cfg(test)]
mod tests {
    use punctual_proto::{NodeId, Port, Target};

    use super::*;

    /// Goal: instants of before a suspend that began the counter anew come before those of after it, and otherwise the smaller one does.
    #[test]
    fn a_former_life_of_the_counter_came_first() {
        let clock = Clock::get();
        let now = clock.now().0;
        let former = clock.now().plus(clock.ticks(std::time::Duration::from_secs(3_600))).0;
        for (one, other, is_first) in [
            (now - 1, now, true),
            (now, now - 1, false),
            (now, now, false),
            (former, now, true),
            (now, former, false),
            (former, former + 1, true),
            (former + 1, former, false),
        ] {
            assert_eq!(came_first(one, other), is_first, "{one}, {other} at {now}");
        }
    }

    /// Goal: a subscription is taken for the earlier one until its time is there; then the times decide.
    #[test]
    fn the_times_decide_who_was_first() {
        let about = RingIdentity {
            id: 1,
            node: NodeId::named("a"),
            life: 1,
            source: Port::from(1),
            target: Target::EVERYONE,
            capacity: 4096,
            began: 5,
            entered: 100,
            sealed: false,
        };
        let entry = [Counter::default(), Counter::default()];
        for (began, is_first) in [(BEGINS, true), (99, true), (101, false)] {
            entry[1].set(began);
            assert_eq!(began_before(&entry, &about), is_first, "{began}");
        }
    }
}
