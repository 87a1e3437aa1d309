//! Every frame of a run in one place: the ledgers of all nodes, summed and compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::protocol::{Account, Part};
use crate::run::add;

/// The sums over all nodes of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sums {
    pub(super) nodes: u64,
    /// Messages taken from communicators.
    pub(super) sent: u64,
    /// Frames on the bus for everybody.
    pub(super) broadcast: u64,
    /// Frames on the bus for one node: values for a newcomer.
    #[serde(default)]
    pub(super) unicast: u64,
    /// Frames that were to arrive: each at every node but its sender's, or at the one that it was for.
    pub(super) to_arrive: u64,
    /// Of these, frames that their receivers could not have: without a barrier, sent before the receiver was on the bus; in memory,
    /// sent before it had a reader for them. It is a difference, so a frame that nobody accounts for does not show there.
    #[serde(default)]
    pub(super) before: u64,
    pub(super) arrived: u64,
    /// Frames that did not, by their receivers' accounts of each sender.
    pub(super) lost: u64,
    /// Copies for ports, of arrived frames and of a node's own.
    pub(super) copies: u64,
    /// Copies that applications have.
    pub(super) delivered: u64,
    /// Where the other copies are.
    pub(super) undelivered: BTreeMap<String, u64>,
    /// Every other counter that is not zero.
    pub(super) causes: BTreeMap<String, u64>,
    /// True if some node could not be asked, or not until all was said, so that the sums say less.
    pub(super) incomplete: bool,
}

/// Places of a copy besides the application.
const UNDELIVERED: [&str; 5] = ["waiting", "no_such_port", "inbox_full", "unread", "copies_refused"];
/// Counters that stand in fields of their own, or say nothing of messages.
const ELSEWHERE: [&str; 6] = ["sent", "arrived", "copies", "delivered", "joined", "left"];

impl Sums {
    /// The sums over these accounts. Where vehicles do not receive, only the listener's arrivals count.
    pub(super) fn of(accounts: &[(Part, Account)], mutual: bool, died: usize) -> Self {
        let mut sums = Self { nodes: accounts.len() as u64, incomplete: died > 0, ..Self::default() };
        let broadcast: u64 = accounts.iter().map(|(_, account)| account.broadcast).sum();
        sums.broadcast = broadcast;
        sums.unicast = accounts.iter().map(|(_, account)| account.unicast).sum();
        sums.to_arrive = sums.unicast;
        for (part, account) in accounts {
            sums.sent += account.count("sent");
            if mutual || *part == Part::Listener {
                sums.to_arrive += broadcast - account.broadcast;
                sums.arrived += account.arrived;
                sums.lost += account.lost;
            }
            sums.copies += account.count("copies");
            sums.delivered += account.count("delivered");
            for (name, count) in account.counters.iter().filter(|(_, count)| *count > 0) {
                if UNDELIVERED.contains(&name.as_str()) {
                    *sums.undelivered.entry(name.clone()).or_default() += count;
                } else if !ELSEWHERE.contains(&name.as_str()) {
                    *sums.causes.entry(name.clone()).or_default() += count;
                }
            }
        }
        sums
    }

    /// Every frame arrived or is lost by somebody's account, every copy is in one place.
    pub(super) fn is_balanced(&self) -> bool {
        self.incomplete
            || self.to_arrive == self.before + self.arrived + self.lost
                && self.copies == self.delivered + self.undelivered.values().sum::<u64>()
    }

    /// Of a run without nodes that would count what they lost: the gaps in what came do, in so far as they stand nowhere else. A
    /// message for which a sender had no room was never on the bus, and one for which an inbox had no room did arrive.
    pub(super) fn count_gaps(&mut self, gaps: u64, refused: u64) {
        let elsewhere = refused + self.undelivered.values().sum::<u64>();
        self.lost = self.lost.max(gaps.saturating_sub(elsewhere));
    }

    /// Of a run without a barrier, or in memory, where rings begin with their readers: messages in no receiver's account came before
    /// their receivers did.
    pub(super) fn without_barrier(&mut self) {
        self.before = self.to_arrive.saturating_sub(self.arrived + self.lost);
    }

    /// Adds those of another run.
    pub(super) fn add(&mut self, other: &Self) {
        self.nodes = self.nodes.max(other.nodes);
        add!(self, other, sent broadcast unicast to_arrive before arrived lost copies delivered);
        for (mine, theirs) in [(&mut self.undelivered, &other.undelivered), (&mut self.causes, &other.causes)]
        {
            theirs.iter().for_each(|(name, count)| *mine.entry(name.clone()).or_default() += count);
        }
        self.incomplete |= other.incomplete;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(broadcast: u64, arrived: u64, counters: &[(&str, u64)]) -> Account {
        Account {
            broadcast,
            unicast: 0,
            counters: counters.iter().map(|&(name, count)| (name.to_owned(), count)).collect(),
            arrived,
            lost: 0,
        }
    }

    #[test]
    fn a_frame_that_nobody_accounts_for_shows() {
        let of_one = [("sent", 5), ("arrived", 7), ("copies", 12), ("delivered", 12)];
        let of_two = [("sent", 7), ("arrived", 5), ("copies", 12), ("delivered", 11), ("unread", 1)];
        let accounts =
            [(Part::Vehicle(0), account(5, 7, &of_one)), (Part::Vehicle(1), account(7, 5, &of_two))];
        let sums = Sums::of(&accounts, true, 0);
        assert!(sums.is_balanced(), "{sums:?}");
        assert_eq!((sums.to_arrive, sums.arrived, sums.undelivered["unread"]), (12, 12, 1));
        let mut missing = accounts.clone();
        missing[1].1.arrived = 4;
        assert!(!Sums::of(&missing, true, 0).is_balanced());
        let mut begun_alone = Sums::of(&missing, true, 0);
        begun_alone.without_barrier();
        assert!(begun_alone.is_balanced() && begun_alone.before == 1, "{begun_alone:?}");
        missing[1].1.arrived = 6;
        let mut twice = Sums::of(&missing, true, 0);
        twice.without_barrier();
        assert!(!twice.is_balanced(), "{twice:?}");
        let mut unplaced = accounts;
        unplaced[1].1.counters.pop();
        assert!(!Sums::of(&unplaced, true, 0).is_balanced());
    }

    /// Goal: a gap in what one listener got is one lost frame, unless it stands elsewhere already. Each case: frames on the bus, what the
    /// listener's account says (arrived, lost, inbox full), gaps, values refused by their senders.
    #[test]
    fn a_gap_is_counted_once() {
        for (what, broadcast, (arrived, lost, inbox_full), gaps, refused) in [
            ("no node counts", 12, (10, 0, 0), 2, 0),
            ("the listener's node counts too", 12, (10, 2, 0), 2, 0),
            ("nobody knew of its first frame", 12, (10, 1, 0), 2, 0),
            ("arrived, and found no room", 12, (12, 0, 2), 2, 0),
            ("never on the bus", 10, (10, 0, 0), 2, 2),
            ("all of it", 10, (8, 1, 1), 5, 2),
        ] {
            let listener =
                [("copies", arrived), ("delivered", arrived - inbox_full), ("inbox_full", inbox_full)];
            let accounts = [
                (Part::Listener, Account { lost, ..account(0, arrived, &listener) }),
                (Part::Vehicle(0), account(broadcast, 0, &[("sent", broadcast)])),
            ];
            let mut sums = Sums::of(&accounts, false, 0);
            sums.count_gaps(gaps, refused);
            assert!(sums.is_balanced(), "{what}: {sums:?}");
        }
    }
}
