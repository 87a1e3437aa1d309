//! What a node has sent to whom, and had of whom: sums of the positions of its rings and rows.

use punctual_machine::counter::Counter;
use punctual_machine::ring::RingMemory;
use punctual_proto::NodeId;

use super::super::segment::{Segment, row};
use crate::node::PeerAccount;

/// Lives of peers that have gone, and whose sums are kept.
const GONE_MAX: usize = 1024;

/// A ring of ours that is open.
#[derive(Debug)]
struct Open {
    id: u64,
    target: Option<NodeId>,
    ring: RingMemory,
}

/// What was had of one life of a node by subscriptions and of rings that are read no more.
#[derive(Clone, Copy, Debug)]
struct Had {
    node: NodeId,
    life: u64,
    arrived: u64,
    lost: u64,
}

/// The sums of one node.
#[derive(Debug, Default)]
pub(super) struct Books {
    open: Vec<Open>,
    /// By rings that have closed: to whom how much was sent.
    sent: Vec<(Option<NodeId>, u64)>,
    /// Which ring each row is about, and whose that is.
    rows: Vec<Option<About>>,
    /// Of rings that some of our subscriptions read no more and others do: what that one had that had most.
    ended: Vec<(About, Sum)>,
    had: Vec<Had>,
}

/// A ring, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct About {
    ring: u64,
    node: NodeId,
    life: u64,
}

/// Messages delivered, and lost or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    arrived: u64,
    lost: u64,
}

/// What a row says.
fn of_row(words: &[Counter]) -> Sum {
    // First what is stored last: a row that is just taken, and stands where another ended, says nothing yet.
    let sequence = words[row::SEQUENCE].get_published();
    let [begin, lost, refused] = [row::BEGIN, row::LOST, row::REFUSED].map(|index| words[index].get());
    let missing = lost + refused;
    Sum { arrived: sequence.saturating_sub(begin).saturating_sub(missing), lost: missing }
}

/// What several subscriptions of a node had of one ring: as much as that one that had most.
fn most(one: Sum, other: Sum) -> Sum {
    if other.arrived > one.arrived { other } else { one }
}

impl Books {
    pub(super) fn open(&mut self, id: u64, target: Option<NodeId>, ring: RingMemory) {
        self.open.push(Open { id, target, ring });
    }

    pub(super) fn close(&mut self, id: u64, target: Option<NodeId>, sent: u64) {
        self.open.retain(|open| open.id != id);
        match self.sent.iter_mut().find(|(to, _)| *to == target) {
            Some((_, sum)) => *sum += sent,
            None => self.sent.push((target, sent)),
        }
    }

    pub(super) fn sent_to(&self, target: Option<NodeId>) -> u64 {
        let closed = self.sent.iter().filter(|(to, _)| *to == target).map(|(_, sent)| *sent);
        let open = self.open.iter().filter(|open| open.target == target);
        closed.chain(open.map(|open| open.ring.sent())).sum()
    }

    /// A row is about this ring of a life of a node from now on.
    pub(super) fn read(&mut self, row: usize, ring: u64, (node, life): (NodeId, u64)) {
        if self.rows.len() <= row {
            self.rows.resize(row + 1, None);
        }
        self.rows[row] = Some(About { ring, node, life });
        if !self.had.iter().any(|had| (had.node, had.life) == (node, life)) {
            if self.had.len() == GONE_MAX {
                self.had.remove(0);
            }
            self.had.push(Had { node, life, arrived: 0, lost: 0 });
        }
    }

    /// What the row says is final.
    pub(super) fn read_no_more(&mut self, row: usize, words: &[Counter]) {
        let Some(about) = self.rows.get_mut(row).and_then(Option::take) else { return };
        let of_this = of_row(words);
        let ended = self.ended.iter().position(|(other, _)| *other == about);
        let sum = ended.map_or(of_this, |index| most(of_this, self.ended.swap_remove(index).1));
        if self.rows.contains(&Some(about)) {
            self.ended.push((about, sum));
        } else if let Some(had) =
            self.had.iter_mut().find(|had| (had.node, had.life) == (about.node, about.life))
        {
            had.arrived += sum.arrived;
            had.lost += sum.lost;
        }
    }

    /// What was had of each peer.
    pub(super) fn accounts(&self, own: &Segment, present: &[(NodeId, u64)]) -> Vec<PeerAccount> {
        let node = own.owner.node;
        let silent = present
            .iter()
            .filter(|(peer, life)| !self.had.iter().any(|had| (had.node, had.life) == (*peer, *life)));
        let silent = silent.map(|&(node, life)| Had { node, life, arrived: 0, lost: 0 });
        let known = self.had.iter().copied().chain(silent).filter(|had| had.node != node);
        let account = |had: Had| {
            let mut rings = self.ended.clone();
            for (index, about) in self.rows.iter().enumerate() {
                let Some(about) = about else { continue };
                let sum = of_row(own.row(index));
                match rings.iter_mut().find(|(other, _)| other == about) {
                    Some((_, other)) => *other = most(*other, sum),
                    None => rings.push((*about, sum)),
                }
            }
            let of_its = rings.iter().filter(|(about, _)| (about.node, about.life) == (had.node, had.life));
            let start = Sum { arrived: had.arrived, lost: had.lost };
            let sum = of_its.fold(start, |sum, (_, ring)| Sum {
                arrived: sum.arrived + ring.arrived,
                lost: sum.lost + ring.lost,
            });
            PeerAccount {
                node: had.node,
                incarnation: had.life as u16,
                arrived: sum.arrived,
                lost: sum.lost,
                missing: 0,
                present: present.contains(&(had.node, had.life)),
            }
        };
        known.map(account).collect()
    }
}
