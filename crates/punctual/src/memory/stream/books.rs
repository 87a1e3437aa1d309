//! Counts of what a node has sent to each target and had of each peer: sums of the positions of its rings and rows.

use std::collections::HashMap;

use punctual_machine::ring::RingMemory;
use punctual_proto::NodeId;

use super::super::rows::{Row, row};
use crate::node::PeerAccount;

/// Lives of peers whose sums are kept. Those that are there, or whose rings are still read, are kept regardless of their number: a bus
/// and a table of rows have room for so many.
const LIVES_MAX: usize = 1024;

/// Nodes whose sums of closed rings are kept. Those that are there, or that an open ring is for, are kept regardless of their number.
const TARGETS_MAX: usize = 1024;

/// A ring of ours that is open.
#[derive(Debug)]
struct Open {
    id: u64,
    target: Option<NodeId>,
    ring: RingMemory,
}

/// Messages had of one life of a node, by subscriptions and of rings that are read no more.
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
    /// By rings that have closed: the targets, and the number of messages sent to each.
    sent: Vec<(Option<NodeId>, u64)>,
    /// The rings that our subscriptions read.
    read: HashMap<About, Readers>,
    had: Vec<Had>,
}

/// Our subscriptions that read a ring.
#[derive(Debug, Default)]
struct Readers {
    rows: Vec<Row>,
    /// Of the readers that read it no more: the sum of the one that had most.
    ended: Option<Sum>,
}

impl Readers {
    /// Sum that the node had of it.
    fn sum(&self) -> Sum {
        self.ended.into_iter().chain(self.rows.iter().map(of_row)).reduce(most).unwrap_or_default()
    }
}

/// A ring, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Sum that a row states.
fn of_row(words: &Row) -> Sum {
    // First what is stored last: a row that is just taken, and stands where another ended, says nothing yet.
    let sequence = words[row::SEQUENCE].get_published();
    let [begin, lost, refused] = [row::BEGIN, row::LOST, row::REFUSED].map(|index| words[index].get());
    let missing = lost + refused;
    Sum { arrived: sequence.saturating_sub(begin).saturating_sub(missing), lost: missing }
}

fn is_same(one: &Row, other: &Row) -> bool {
    std::ptr::eq(&**one, &**other)
}

/// Sum that several subscriptions of a node had of one ring: as much as that one that had most.
fn most(one: Sum, other: Sum) -> Sum {
    if other.arrived > one.arrived { other } else { one }
}

impl Books {
    pub(super) fn open(&mut self, id: u64, target: Option<NodeId>, ring: RingMemory) {
        self.open.push(Open { id, target, ring });
    }

    pub(super) fn close(
        &mut self,
        id: u64,
        target: Option<NodeId>,
        sent: u64,
        is_present: impl Fn(NodeId) -> bool,
    ) {
        self.open.retain(|open| open.id != id);
        match self.sent.iter_mut().find(|(to, _)| *to == target) {
            Some((_, sum)) => *sum += sent,
            None => {
                if self.sent.len() >= TARGETS_MAX {
                    self.forget_target(is_present);
                }
                self.sent.push((target, sent));
            }
        }
    }

    /// Forgets what was sent to the node that has been listed for longest, of those that have gone and that no open ring is for.
    fn forget_target(&mut self, is_present: impl Fn(NodeId) -> bool) {
        let is_open = |node| self.open.iter().any(|open| open.target == Some(node));
        let is_gone = |node| !is_open(node) && !is_present(node);
        let oldest = self.sent.iter().position(|(target, _)| target.is_some_and(is_gone));
        if let Some(oldest) = oldest {
            self.sent.remove(oldest);
        }
    }

    pub(super) fn sent_to(&self, target: Option<NodeId>) -> u64 {
        let closed = self.sent.iter().filter(|(to, _)| *to == target).map(|(_, sent)| *sent);
        let open = self.open.iter().filter(|open| open.target == target);
        closed.chain(open.map(|open| open.ring.sent())).sum()
    }

    /// A row is about this ring of a life of a node from now on.
    pub(super) fn read(
        &mut self,
        row: Row,
        ring: u64,
        (node, life): (NodeId, u64),
        is_present: impl Fn(u64) -> bool,
    ) {
        self.read.entry(About { ring, node, life }).or_default().rows.push(row);
        if !self.had.iter().any(|had| (had.node, had.life) == (node, life)) {
            if self.had.len() >= LIVES_MAX {
                self.forget_oldest(is_present);
            }
            self.had.push(Had { node, life, arrived: 0, lost: 0 });
        }
    }

    /// Forgets what was had of the oldest life that has gone and of which nothing is read any more.
    fn forget_oldest(&mut self, is_present: impl Fn(u64) -> bool) {
        let is_read =
            |had: &Had| self.read.keys().any(|about| (about.node, about.life) == (had.node, had.life));
        let oldest = self.had.iter().position(|had| !is_read(had) && !is_present(had.life));
        if let Some(oldest) = oldest {
            self.had.remove(oldest);
        }
    }

    /// A row has moved: another one states its figures from now on.
    pub(super) fn moved(&mut self, from: &Row, to: Row, ring: u64, (node, life): (NodeId, u64)) {
        let rows = self.read.get_mut(&About { ring, node, life }).map(|readers| &mut readers.rows);
        if let Some(row) = rows.and_then(|rows| rows.iter_mut().find(|row| is_same(row, from))) {
            *row = to;
        }
    }

    /// The figures of the row are final.
    pub(super) fn read_no_more(&mut self, row: &Row, ring: u64, (node, life): (NodeId, u64)) {
        let about = About { ring, node, life };
        let Some(readers) = self.read.get_mut(&about) else { return };
        let of_this = of_row(row);
        let Some(place) = readers.rows.iter().position(|other| is_same(other, row)) else {
            // An observer's, which counts in no account.
            return;
        };
        readers.rows.remove(place);
        readers.ended = Some(readers.ended.map_or(of_this, |ended| most(of_this, ended)));
        if !readers.rows.is_empty() {
            return;
        }
        let sum = readers.sum();
        self.read.remove(&about);
        if let Some(had) = self.had.iter_mut().find(|had| (had.node, had.life) == (node, life)) {
            had.arrived += sum.arrived;
            had.lost += sum.lost;
        }
    }

    /// Account of each peer.
    pub(super) fn accounts(&self, node: NodeId, present: &[(NodeId, u64)]) -> Vec<PeerAccount> {
        let silent = present
            .iter()
            .filter(|(peer, life)| !self.had.iter().any(|had| (had.node, had.life) == (*peer, *life)));
        let silent = silent.map(|&(node, life)| Had { node, life, arrived: 0, lost: 0 });
        let known = self.had.iter().copied().chain(silent).filter(|had| had.node != node);
        let account = |had: Had| {
            let start = Sum { arrived: had.arrived, lost: had.lost };
            let of_its =
                self.read.iter().filter(|(about, _)| (about.node, about.life) == (had.node, had.life));
            let sum = of_its.map(|(_, readers)| readers.sum()).fold(start, |sum, ring| Sum {
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

#[cfg(test)]
mod tests {
    use super::super::super::rows::private_row;
    use super::*;

    /// A row by which so many messages of a ring were had.
    fn row_of(ring: u64, arrived: u64) -> Row {
        let row = private_row().unwrap();
        row[row::RING].set(ring);
        row[row::SEQUENCE].publish(arrived);
        row
    }

    /// Goal: sums of messages to everybody, to nodes that are there, and to targets of open rings outlive any number of others. Those
    /// are bounded.
    #[test]
    fn only_targets_that_have_gone_are_forgotten() {
        let nodes = || (1..3 * TARGETS_MAX as u64).filter_map(NodeId::new);
        let [Some(present), Some(open)] = [1, 2].map(NodeId::new) else { panic!("two nodes") };
        let mut books = Books::default();
        let close = |books: &mut Books, target, sent| {
            books.open(7, target, RingMemory::on_heap(4096));
            books.close(7, target, sent, |node| node == present);
        };
        close(&mut books, None, 5);
        books.open(8, Some(open), RingMemory::on_heap(4096));
        nodes().for_each(|node| close(&mut books, Some(node), 3));
        let sent = |target| books.sent_to(target);
        assert_eq!([None, Some(present), Some(open), nodes().next_back()].map(sent), [5, 3, 3, 3]);
        assert_eq!((nodes().map(Some).map(sent).sum::<u64>() + 3) / 3, TARGETS_MAX as u64);
    }

    /// Goal: sums of those who are there, and of those whose rings are still read, outlive any number of others.
    #[test]
    fn only_who_has_gone_is_forgotten() {
        let (own, peer) = (NodeId::named("own"), NodeId::named("peer"));
        let mut books = Books::default();
        let is_present = |life: u64| life == 1;
        let (present, read) = (row_of(1, 5), row_of(2, 6));
        books.read(present.clone(), 1, (peer, 1), is_present);
        books.read_no_more(&present, 1, (peer, 1));
        books.read(read, 2, (peer, 2), is_present);
        for life in 3..3 + 2 * LIVES_MAX as u64 {
            let row = row_of(life, 1);
            books.read(row.clone(), life, (peer, life), is_present);
            books.read_no_more(&row, life, (peer, life));
        }
        let accounts = books.accounts(own, &[(peer, 1)]);
        let arrived: Vec<u64> = accounts.iter().take(3).map(|account| account.arrived).collect();
        assert_eq!(arrived, [5, 6, 1]);
        assert_eq!(accounts.iter().filter(|account| account.present).count(), 1);
        assert_eq!(accounts.len(), LIVES_MAX);
    }
}
