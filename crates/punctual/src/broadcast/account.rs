//! Accounts of members of groups, read at any time by anybody.

use std::collections::BTreeMap;
use std::fmt;

use punctual_machine::counter::Counter;
use punctual_proto::broadcast::Member;
use punctual_proto::{Nanos, NodeId};

use super::page::View;
use crate::ledger::PageOwner;
use crate::pages::{self, PageKind};

/// Account of a member of a group. Positions count frames in the order of its view, from 0 in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupAccount {
    /// Age of these figures: a member that runs writes them once in a heartbeat at least.
    pub age: Nanos,
    /// Its state in the group.
    pub state: GroupState,
    /// Number of the view that it is in; 0 if in none.
    pub view: u64,
    /// The epoch in which that view is being changed; 0 if it is not.
    pub epoch: u64,
    /// Members of that view.
    pub members: usize,
    /// The member that orders its messages.
    pub sequencer: Option<NodeId>,
    /// Payload of a frame, bytes.
    pub frame_size: usize,
    /// So much of the order is known to this member.
    pub ordered: u64,
    /// So much of it a majority holds.
    pub uniform: u64,
    /// So much of it this member's user has taken.
    pub taken: u64,
    /// Frames that have a place in the order and that its user has not taken.
    pub lag: u64,
    /// Messages of its user's, over all views.
    pub broadcast: u64,
    /// Messages that its user was given, over all views.
    pub delivered: u64,
    /// Frames that it missed and got as repairs.
    pub repaired: u64,
    /// Messages by which it repaired what others missed.
    pub repairs_sent: u64,
    /// Times that it asked others for what it missed.
    pub questions: u64,
    /// Times that the others went on without it.
    pub expelled: u64,
    /// The member that holds the group up: the one whose user takes least, if that is half a window behind what a majority holds. If
    /// nothing moves, who should order this member's messages, or holds least of what is ordered.
    pub held_up_by: Option<NodeId>,
    /// The members in the order of the roster, as far as this one knows.
    pub each: Vec<MemberAccount>,
}

/// Progress of a member, as far as another one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberAccount {
    /// The member.
    pub node: NodeId,
    /// Name of the member that [`read_all`] found; its number where none was found, as of members on other hosts.
    pub name: String,
    /// Frames that have a place in the order and that its user has not taken.
    pub lag: u64,
    /// Of so many of the order it lacks the frames, or has not said that it holds them.
    pub missing: u64,
}

/// State of a member in its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupState {
    /// It is in no view.
    #[default]
    Joining,
    /// It is in a view.
    Member,
    /// Its view ends.
    Changing,
    /// It hears too few, or its view is too small.
    Stopped,
    /// It has left, as was asked for.
    Left,
}

impl GroupState {
    const ALL: [Self; 5] = [Self::Joining, Self::Member, Self::Changing, Self::Stopped, Self::Left];

    pub(super) fn of(member: &Member) -> Self {
        if member.has_left() {
            Self::Left
        } else if member.view().number == 0 {
            Self::Joining
        } else if member.is_stopped() {
            Self::Stopped
        } else if member.epoch() != 0 || member.is_finishing_view() {
            Self::Changing
        } else {
            Self::Member
        }
    }

    /// State of a number in a page; the first state if the number means none.
    pub(super) fn numbered(number: u64) -> Self {
        Self::ALL.into_iter().find(|&state| state as u64 == number).unwrap_or_default()
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Joining => "joining",
            Self::Member => "member",
            Self::Changing => "changing",
            Self::Stopped => "stopped",
            Self::Left => "left",
        })
    }
}

/// Owner of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOwner {
    /// The group's name, cut to 32 bytes.
    pub group: String,
    /// Another one for each that becomes a member: names of two groups may differ behind 32 bytes. 0 of builds that do not say it.
    pub membership: u64,
    /// The node that is a member, on which bus, in which process.
    pub node: PageOwner,
}

impl GroupOwner {
    /// The same at each look, also where one node is a member of two groups whose names are the same when cut.
    fn sort_key(&self) -> (String, String, String, u32, u64) {
        let PageOwner { name, bus, process, .. } = &self.node;
        (bus.clone(), self.group.clone(), name.clone(), process.pid, self.membership)
    }
}

impl GroupAccount {
    /// Name of the member of that node.
    #[must_use]
    pub fn name(&self, node: NodeId) -> String {
        let member = self.each.iter().find(|member| member.node == node);
        member.map_or_else(|| node.to_string(), |member| member.name.clone())
    }

    /// The member that holds the group up, and how far it is.
    #[must_use]
    pub fn slowest(&self) -> Option<&MemberAccount> {
        self.each.iter().find(|member| Some(member.node) == self.held_up_by)
    }
}

/// The accounts of all live members of groups of this user on this host, read without disturbing them.
#[must_use]
pub fn read_all() -> Vec<(GroupOwner, GroupAccount)> {
    let read = |words: &[Counter]| {
        let view = View::of(words)?;
        Some((view.owner()?, view.account()))
    };
    let mut all: Vec<_> = pages::read_all(PageKind::Group).iter().filter_map(|words| read(words)).collect();
    all.sort_by_cached_key(|(owner, _)| owner.sort_key());
    let names: BTreeMap<NodeId, String> =
        all.iter().map(|(owner, _)| (owner.node.node, owner.node.name.clone())).collect();
    for member in all.iter_mut().flat_map(|(_, account)| &mut account.each) {
        if let Some(name) = names.get(&member.node) {
            member.name.clone_from(name);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::process::ProcessIdentity;

    /// Goal: members have one order at each look, by bus, group and node; and by membership where those are the same.
    #[test]
    fn members_have_one_order() {
        let owner = |bus: &str, group: &str, name: &str, membership| {
            let process = ProcessIdentity { pid: 1, namespace: 0 };
            let (bus, node) = (bus.to_owned(), NodeId::named(name));
            let node = PageOwner { node, name: name.to_owned(), bus, process, life: 0 };
            GroupOwner { group: group.to_owned(), membership, node }
        };
        let sorted = [
            owner("a", "h", "n", 9),
            owner("b", "g", "n", 1),
            owner("b", "g", "n", 2),
            owner("b", "g", "n", 3),
            owner("b", "g", "o", 0),
        ];
        for turned in 0..sorted.len() {
            let mut found = sorted.clone();
            found.rotate_left(turned);
            found.sort_by_cached_key(GroupOwner::sort_key);
            assert_eq!(found, sorted);
        }
    }
}
