//! Each peer's account: which of its frames arrived, and why the others did not.

use punctual_proto::limits::NODES_MAX;
use punctual_proto::seal::Refusal;
use punctual_proto::{Accepted, Header, NodeId, Stream};

use crate::engine::{Progress, Trouble};
use crate::ledger::{Count, Page};

/// What this node knows of the frames that one life of one peer sent to it and to everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAccount {
    /// The peer.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: u16,
    /// Frames that arrived, each once.
    pub arrived: u64,
    /// Frames that never will.
    pub lost: u64,
    /// Frames that did not arrive but still may.
    pub missing: u64,
    /// Whether it is still there.
    pub present: bool,
}

/// What is known of where a stream begins for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Its first number.
    Known,
    /// Its first number is at most this: an earlier one begins it, a later one shows a loss.
    NoLater,
    /// Nothing: what is heard first begins it.
    Unknown,
}

/// A stream, and what is known of its beginning.
#[derive(Debug)]
struct Tracked {
    stream: Stream,
    first: u32,
    start: Start,
}

impl Tracked {
    fn new(first: u32, ordered: bool, start: Start) -> Self {
        Self { stream: Stream::starting_at(first, ordered), first, start }
    }

    #[inline]
    fn accept(&mut self, sequence: u32, ordered: bool) -> Accepted {
        if self.start != Start::Known {
            self.begin(sequence, ordered);
        }
        self.stream.accept(sequence)
    }

    #[cold]
    fn begin(&mut self, sequence: u32, ordered: bool) {
        let is_earlier = sequence.wrapping_sub(self.first).cast_signed() < 0;
        if self.start == Start::Unknown || is_earlier {
            *self = Self::new(sequence, ordered, Start::Known);
        }
        self.start = Start::Known;
    }

    /// Everything before `next` was sent. Returns how many numbers are lost now.
    fn handle_progress(&mut self, next: u32, ordered: bool) -> u64 {
        if self.start == Start::Unknown {
            let stream = Stream::joined_at(next, ordered);
            *self = Self { stream, first: next, start: Start::Known };
            return 0;
        }
        self.stream.handle_progress(next)
    }

    /// Nothing more will come, as far as is known before `end`. Returns how many numbers are lost now.
    fn handle_end(&mut self, end: Option<u32>) -> u64 {
        match end {
            Some(end) if self.start != Start::Unknown => self.stream.handle_end(end),
            _ => self.stream.handle_stop(),
        }
    }
}

#[derive(Debug)]
struct Account {
    public: PeerAccount,
    unicast: Tracked,
    broadcast: Tracked,
    /// Our reader of this peer was overrun since the last loss was accounted for.
    overrun: bool,
}

impl Account {
    #[inline]
    fn is_of(&self, node: NodeId, incarnation: u16) -> bool {
        self.public.node == node && self.public.incarnation == incarnation
    }

    /// The stream of frames with such a header.
    #[inline]
    fn tracked(&mut self, header: &Header) -> &mut Tracked {
        if header.target.node.is_some() { &mut self.unicast } else { &mut self.broadcast }
    }
}

/// The accounts of all peers of a node.
#[derive(Debug)]
pub(crate) struct Accounts {
    accounts: Vec<Account>,
    /// Where the last frame's account was found.
    last: usize,
    ordered: bool,
    /// Frames that the kernel dropped and that no gap has been charged with yet.
    buffer_drops_open: u64,
    /// The same for damaged frames.
    bad_frames_open: u64,
    /// The same for frames that were not believed.
    refused_open: u64,
}

/// What became of a frame's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    pub(crate) deliver: bool,
    /// Messages of the same source found lost by this one.
    pub(crate) lost_before: u64,
}

impl Accounts {
    pub(crate) fn new(ordered: bool) -> Self {
        let accounts = Vec::with_capacity(NODES_MAX);
        Self { accounts, last: 0, ordered, buffer_drops_open: 0, bad_frames_open: 0, refused_open: 0 }
    }

    /// The account of a frame's sender, found at the first look while one peer talks.
    #[inline]
    fn account_of(&mut self, node: NodeId, incarnation: u16, page: &Page) -> usize {
        let is_it = |account: &Account| account.is_of(node, incarnation);
        if self.accounts.get(self.last).is_some_and(is_it) {
            return self.last;
        }
        self.last = match self.accounts.iter().position(is_it) {
            Some(index) => index,
            None => self.open(node, incarnation, Progress::default(), Start::Unknown, page),
        };
        self.last
    }

    fn open(
        &mut self,
        node: NodeId,
        incarnation: u16,
        progress: Progress,
        start: Start,
        page: &Page,
    ) -> usize {
        // An earlier life is over; nothing of it can come any more.
        let earlier =
            self.accounts.iter().position(|account| account.public.node == node && account.public.present);
        if let Some(index) = earlier {
            self.end(index, None, false, page);
        }
        if self.accounts.len() == NODES_MAX {
            let gone = self.accounts.iter().position(|account| !account.public.present).unwrap_or(0);
            self.accounts.swap_remove(gone);
        }
        page.count(Count::Joined).add_alone(1);
        let public = PeerAccount { node, incarnation, arrived: 0, lost: 0, missing: 0, present: true };
        let unicast_start = progress.unicast.map_or(Start::Unknown, |_| start);
        let unicast = Tracked::new(progress.unicast.unwrap_or(0), self.ordered, unicast_start);
        let broadcast = Tracked::new(progress.broadcast, self.ordered, start);
        self.accounts.push(Account { public, unicast, broadcast, overrun: false });
        self.accounts.len() - 1
    }

    /// A node is there, and its streams begin here.
    pub(crate) fn handle_joined(
        &mut self,
        node: NodeId,
        life: u16,
        progress: Progress,
        exact: bool,
        page: &Page,
    ) {
        let known = self.accounts.iter().position(|account| account.is_of(node, life));
        // Of 65,536 lives of a node two have one number: what the first sent would make the second's numbers duplicates.
        let is_over = known.filter(|&index| !self.accounts[index].public.present);
        if let Some(over) = is_over {
            self.accounts.swap_remove(over);
        }
        if known.is_none() || is_over.is_some() {
            let start = if exact { Start::Known } else { Start::NoLater };
            self.open(node, life, progress, start, page);
        }
    }

    /// A frame for this node arrived.
    #[inline]
    pub(crate) fn accept(&mut self, header: &Header, page: &Page) -> Judged {
        let index = self.account_of(header.source.node, header.incarnation, page);
        let ordered = self.ordered;
        let account = &mut self.accounts[index];
        let accepted = account.tracked(header).accept(header.sequence, ordered);
        if accepted.lost > 0 {
            self.charge(index, accepted.lost, false, page);
        }
        let account = &mut self.accounts[index];
        if accepted.is_deliverable() {
            account.public.arrived += 1;
            page.count(Count::Arrived).add_alone(1);
        } else {
            page.count(Count::Duplicates).add_alone(1);
        }
        Judged { deliver: accepted.is_deliverable(), lost_before: accepted.lost }
    }

    /// The number that follows in the stream of frames with such a header, if that is this account's. None where the medium
    /// does not keep order.
    #[inline]
    pub(crate) fn next_of(&self, account: usize, header: &Header) -> Option<u32> {
        let account = self.accounts.get(account)?;
        let tracked = if header.target.node.is_some() { &account.unicast } else { &account.broadcast };
        let is_it = account.is_of(header.source.node, header.incarnation);
        if is_it && tracked.start == Start::Known { tracked.stream.next_in_order() } else { None }
    }

    /// The frame with the number that [`Self::next_of`] said arrived.
    #[inline]
    pub(crate) fn accept_next(&mut self, account: usize, header: &Header, page: &Page) {
        let account = &mut self.accounts[account];
        account.tracked(header).stream.accept_next_in_order();
        account.public.arrived += 1;
        page.count(Count::Arrived).add_alone(1);
    }

    /// Index of the account that the last frame went to.
    pub(crate) fn last(&self) -> usize {
        self.last
    }

    /// A node says how far it is.
    pub(crate) fn handle_progress(
        &mut self,
        node: NodeId,
        incarnation: u16,
        progress: Progress,
        page: &Page,
    ) {
        let index = self.account_of(node, incarnation, page);
        let account = &mut self.accounts[index];
        let mut lost = 0;
        for (tracked, next) in
            [(&mut account.unicast, progress.unicast), (&mut account.broadcast, Some(progress.broadcast))]
        {
            lost += next.map_or(0, |next| tracked.handle_progress(next, self.ordered));
        }
        self.charge(index, lost, false, page);
    }

    /// A node left: what has not arrived of it is lost.
    pub(crate) fn handle_left(
        &mut self,
        node: NodeId,
        incarnation: u16,
        progress: Option<Progress>,
        died: bool,
        page: &Page,
    ) {
        let index = self.account_of(node, incarnation, page);
        self.end(index, progress, died, page);
        page.count(Count::Left).add_alone(1);
        if died {
            page.count(Count::Died).add_alone(1);
        }
    }

    fn end(&mut self, index: usize, progress: Option<Progress>, died: bool, page: &Page) {
        let account = &mut self.accounts[index];
        account.public.present = false;
        let mut lost = 0;
        let unicast_end = progress.and_then(|progress| progress.unicast);
        let broadcast_end = progress.map(|progress| progress.broadcast);
        for (tracked, end) in [(&mut account.unicast, unicast_end), (&mut account.broadcast, broadcast_end)] {
            lost += tracked.handle_end(end);
        }
        self.charge(index, lost, died, page);
    }

    /// Something that explains losses.
    pub(crate) fn handle_trouble(&mut self, trouble: Trouble, page: &Page) {
        match trouble {
            Trouble::Overrun { node } => {
                page.count(Count::Overruns).add_alone(1);
                self.mark_overrun(node);
            }
            Trouble::BufferFull { frames } => {
                page.count(Count::BufferDrops).add_alone(frames);
                self.buffer_drops_open += frames;
            }
            Trouble::BadFrame(_) | Trouble::BadCheck => {
                page.count(Count::BadFrames).add_alone(1);
                self.bad_frames_open += 1;
            }
            Trouble::Refused(refusal) => self.handle_refused(refusal, page),
            Trouble::Corrupt { node } => {
                page.count(Count::CorruptPeers).add_alone(1);
                self.mark_overrun(node);
            }
        }
    }

    #[cold]
    fn handle_refused(&mut self, refusal: Refusal, page: &Page) {
        let count = match refusal {
            Refusal::Unsealed => Count::SealMissing,
            Refusal::Unexpected => Count::SealUnexpected,
            Refusal::UnknownKey => Count::SealUnknownKey,
            Refusal::BadTag => Count::SealBadTag,
            Refusal::Replayed => Count::SealReplayed,
            Refusal::Stale => Count::SealStale,
        };
        page.count(count).add_alone(1);
        // What was taken before leaves no gap.
        self.refused_open += u64::from(refusal != Refusal::Replayed);
    }

    fn mark_overrun(&mut self, node: NodeId) {
        let present = |account: &&mut Account| account.public.node == node && account.public.present;
        if let Some(account) = self.accounts.iter_mut().find(present) {
            account.overrun = true;
        }
    }

    /// Puts losses under their causes: each under exactly one.
    #[cold]
    fn charge(&mut self, index: usize, lost: u64, died: bool, page: &Page) {
        let account = &mut self.accounts[index];
        account.public.lost += lost;
        if std::mem::take(&mut account.overrun) && lost > 0 {
            page.count(Count::LostOverrun).add_alone(lost);
            return;
        }
        let bad = lost.min(self.bad_frames_open);
        self.bad_frames_open -= bad;
        let refused = (lost - bad).min(self.refused_open);
        self.refused_open -= refused;
        let full = (lost - bad - refused).min(self.buffer_drops_open);
        self.buffer_drops_open -= full;
        let rest = if died { Count::LostPeerDied } else { Count::LostMedium };
        page.count(Count::LostBadFrame).add_alone(bad);
        page.count(Count::LostRefused).add_alone(refused);
        page.count(Count::LostBufferFull).add_alone(full);
        page.count(rest).add_alone(lost - bad - refused - full);
    }

    pub(crate) fn snapshot(&self) -> Vec<PeerAccount> {
        let missing = |tracked: &Tracked| u64::from(tracked.stream.missing());
        self.accounts
            .iter()
            .map(|account| PeerAccount {
                missing: missing(&account.unicast) + missing(&account.broadcast),
                ..account.public.clone()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::process::ProcessIdentity;
    use punctual_proto::{Address, Kind, Port, Target};

    /// Goal: a life whose number is that of an earlier one of the same node is another life: its messages are delivered.
    #[test]
    fn a_number_of_a_life_that_comes_again_is_another_life() {
        let node = NodeId::named("phoenix");
        let owner = crate::ledger::PageOwner {
            node,
            name: "observer".to_owned(),
            bus: "test".to_owned(),
            process: ProcessIdentity::of_self(),
        };
        let page = Page::create(&owner, punctual_machine::process::random()).unwrap();
        let mut accounts = Accounts::new(true);
        let progress = Progress { unicast: Some(0), broadcast: 0 };
        for life in 0..3 {
            accounts.handle_joined(node, 7, progress, true, &page);
            for sequence in 0..5 {
                let header = Header {
                    kind: Kind::Data,
                    incarnation: 7,
                    source: Address { node, port: Port::from(1) },
                    target: Target::EVERYONE,
                    sequence,
                    payload_size: 0,
                    stamped: false,
                    sealed: false,
                };
                assert!(accounts.accept(&header, &page).deliver, "message {sequence} of life {life}");
            }
            let end = Progress { unicast: Some(0), broadcast: 5 };
            accounts.handle_left(node, 7, Some(end), true, &page);
        }
        let ledger = page.ledger();
        assert_eq!((ledger.arrived, ledger.duplicates, ledger.lost()), (15, 0, 0), "{ledger}");
    }
}
