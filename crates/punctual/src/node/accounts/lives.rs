//! Lives of peers: which one an announcement is of, and when one begins, leaves or dies.

use punctual_proto::recency::elapsed_ns;
use punctual_proto::{NodeId, Stream};

use super::{Account, Accounts};
use crate::engine::Progress;
use crate::ledger::{Count, Page};
use crate::node::events::NodeChange;

/// A peer heard more lately is there: a peer says hello every second.
const SILENCE_NS: u64 = 2_000_000_000;

/// A life that says twice that it is there, so far apart, goes on: what comes late comes nearer together.
const RETURN_NS: u64 = 500_000_000;

/// Fate of a life after another one of its node was heard. One that is over may be heard late, and end the account of one that goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Replaced {
    #[default]
    No,
    Yes,
    /// Since then it has said that it is there, and the other one has said nothing.
    Announced(u64),
}

impl Accounts {
    /// Another life of its node is heard: this one is over, as far as is known.
    pub(super) fn replace(&mut self, index: usize, page: &Page) {
        self.note_gone(index, true, page);
        self.end(index, None, false, page);
        self.accounts[index].replaced = Replaced::Yes;
    }

    /// A life says that it is there. If that was replaced, the other one may have been heard late.
    pub(super) fn note_return(&mut self, index: usize, life: u32, page: &Page) {
        let now_ns = self.moment().now_ns;
        let account = &self.accounts[index];
        let is_out = !account.public.present && !account.has_left && account.replaced != Replaced::No;
        if !is_out || life == 0 || life != account.life {
            return;
        }
        let (node, replaced) = (account.public.node, account.replaced);
        let other = self.accounts.iter().position(|other| other.public.node == node && other.public.present);
        let heard_ns = other.map(|other| self.accounts[other].heard_ns);
        let is_heard_since =
            |since_ns| heard_ns.is_some_and(|ns| elapsed_ns(now_ns, ns) <= elapsed_ns(now_ns, since_ns));
        match replaced {
            Replaced::Announced(since_ns) if !is_heard_since(since_ns) => {
                if elapsed_ns(now_ns, since_ns) < RETURN_NS {
                    return;
                }
            }
            _ => return self.accounts[index].replaced = Replaced::Announced(now_ns),
        }
        if let Some(other) = other {
            self.replace(other, page);
        }
        self.accounts[index].replaced = Replaced::No;
        self.come_back(index, page);
    }

    fn come_back(&mut self, index: usize, page: &Page) {
        self.accounts[index].public.present = true;
        page.count(Count::Joined).add_alone(1);
        self.note(index, NodeChange::Joined);
    }

    /// Ends the account of the life before the one that an announcement tells, if both have this incarnation. Of 65,536 lives of a node two
    /// do, and the numbers of the second would count as duplicates of the first one's. Returns the life before, 0 if none is known; `None`
    /// if the announcement itself is of a life that is over.
    pub(super) fn end_former_life(
        &mut self,
        node: NodeId,
        incarnation: u16,
        life: u32,
        page: &Page,
    ) -> Option<u32> {
        let Some(index) = self.accounts.iter().position(|account| account.is_of(node, incarnation)) else {
            return Some(0);
        };
        let &Account { life: known, former, .. } = &self.accounts[index];
        if life != 0 && life == former {
            return None;
        }
        if life == 0 || known == 0 || known == life {
            return Some(former);
        }
        self.note_gone(index, true, page);
        self.end(index, None, false, page);
        self.accounts.swap_remove(index);
        Some(known)
    }

    /// The account of this life, which an announcement told.
    pub(super) fn note_life(&mut self, node: NodeId, incarnation: u16, life: u32, former: u32) {
        let mut accounts = self.accounts.iter_mut();
        if let Some(account) = accounts.find(|account| life != 0 && account.is_of(node, incarnation)) {
            (account.life, account.former) = (life, former);
        }
    }

    /// A node is there, and its streams begin here.
    pub(crate) fn handle_joined(
        &mut self,
        node: NodeId,
        incarnation: u16,
        progress: Progress,
        exact: bool,
        page: &Page,
    ) {
        let Some(former) = self.end_former_life(node, incarnation, progress.life, page) else { return };
        let known = self.accounts.iter().position(|account| account.is_of(node, incarnation));
        // Of a node that does not tell its life: a medium may not have told that the one before with this number is over. But a hello may
        // also come twice, and late, of one that goes on.
        let opens = exact && progress.broadcast == 0;
        let now_ns = self.moment().now_ns;
        let is_over = known.filter(|&index| {
            let Account { public, broadcast, heard_ns, life, has_left, replaced, .. } = &self.accounts[index];
            if progress.life != 0 && progress.life == *life {
                return !public.present && !has_left && *replaced == Replaced::No;
            }
            let is_silent = elapsed_ns(now_ns, *heard_ns) >= SILENCE_NS;
            !public.present || opens && broadcast.is_past(0) && is_silent
        });
        if let Some(over) = is_over {
            self.note_gone(over, true, page);
            self.end(over, None, false, page);
            self.accounts.swap_remove(over);
        }
        if known.is_none() || is_over.is_some() {
            let begin = if exact { Stream::starting_at } else { Stream::starting_by };
            let unicast = |moment| match progress.unicast {
                Some(next) => begin(next, moment),
                None => Stream::unheard(moment),
            };
            let broadcast = |moment| begin(progress.broadcast, moment);
            self.open(node, incarnation, unicast, broadcast, page);
        }
        self.note_life(node, incarnation, progress.life, former);
        if let Some(index) = self.accounts.iter().position(|account| account.is_of(node, incarnation)) {
            self.note_return(index, progress.life, page);
        }
    }

    /// A node left: its frames that have not arrived are lost.
    pub(crate) fn handle_left(
        &mut self,
        node: NodeId,
        incarnation: u16,
        progress: Option<Progress>,
        died: bool,
        page: &Page,
    ) {
        let life = progress.map_or(0, |progress| progress.life);
        let Some(former) = self.end_former_life(node, incarnation, life, page) else { return };
        let index = self.account_of(node, incarnation, page);
        self.note_life(node, incarnation, life, former);
        self.accounts[index].has_left |= !died;
        self.note_gone(index, died, page);
        self.end(index, progress, died, page);
    }

    /// Tells and counts it, once.
    pub(super) fn note_gone(&mut self, index: usize, died: bool, page: &Page) {
        if !self.accounts[index].public.present {
            return;
        }
        self.note(index, if died { NodeChange::Died } else { NodeChange::Left });
        page.count(Count::Left).add_alone(1);
        if died {
            page.count(Count::Died).add_alone(1);
        }
    }

    /// The medium says that a node cannot be reached any more, or can again: its account ends for now, or goes on.
    #[cold]
    pub(crate) fn handle_noticed(&mut self, node: NodeId, incarnation: u16, is_back: bool, page: &Page) {
        let Some(index) = self.accounts.iter().position(|account| account.is_of(node, incarnation)) else {
            return;
        };
        match (self.accounts[index].public.present, is_back) {
            (true, false) => self.handle_left(node, incarnation, None, true, page),
            (false, true) => self.come_back(index, page),
            _ => {}
        }
    }
}
