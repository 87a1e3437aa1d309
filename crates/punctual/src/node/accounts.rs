//! Each peer's account: its frames that arrived, and the reasons why the others did not.

mod lives;

use std::cmp::Reverse;

use punctual_machine::clock::Clock;
use punctual_proto::limits::NODES_MAX;
use punctual_proto::recency::elapsed_ns;
use punctual_proto::seal::Refusal;
use punctual_proto::{Header, Moment, NodeId, Recency, Stream};

use super::credit::Credit;
use super::events::NodeChange;
use super::opening::count_of;
use crate::engine::{Drops, Progress, Trouble};
use crate::ledger::{Count, Page};
use lives::Replaced;

/// This node's knowledge of the frames that one life of one peer sent to it and to everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAccount {
    /// The peer.
    pub node: NodeId,
    /// Number of its life.
    pub incarnation: u16,
    /// Frames that arrived, each once.
    pub arrived: u64,
    /// Frames that never will.
    pub lost: u64,
    /// Frames that did not arrive but still may.
    pub missing: u64,
    /// True if it is still there.
    pub present: bool,
}

#[derive(Debug)]
struct Account {
    public: PeerAccount,
    unicast: Stream,
    broadcast: Stream,
    /// When something of it was read last.
    heard_ns: u64,
    /// Number of its life, once an announcement told it.
    life: u32,
    /// The life before it that had the same incarnation; 0 if none is known.
    former: u32,
    /// This life has said goodbye.
    has_left: bool,
    /// Another life of the node was heard, and this one may be over.
    replaced: Replaced,
    /// Frames of either stream that named it as their sender, and whose key is not here. They explain no loss yet: its announcements have
    /// the same key, so the gap may show much later.
    unopened: PerStream,
}

/// A number for the stream to this node alone, and one for that to everybody.
#[derive(Clone, Copy, Debug, Default)]
struct PerStream {
    unicast: u64,
    broadcast: u64,
}

impl PerStream {
    fn of(&mut self, header: &Header) -> &mut u64 {
        if header.target.node.is_some() { &mut self.unicast } else { &mut self.broadcast }
    }
}

impl Account {
    #[inline]
    fn is_of(&self, node: NodeId, incarnation: u16) -> bool {
        self.public.node == node && self.public.incarnation == incarnation
    }

    fn change(&self, kind: NodeChange) -> Change {
        Change { kind, node: self.public.node, incarnation: self.public.incarnation }
    }

    /// Numbers that are missing and may still come.
    fn missing(&self) -> u64 {
        u64::from(self.unicast.missing()) + u64::from(self.broadcast.missing())
    }

    /// The same, but for those that frames without a key explain.
    fn unexplained(&self) -> u64 {
        let of = |stream: &Stream, unopened: u64| u64::from(stream.missing()).saturating_sub(unopened);
        of(&self.unicast, self.unopened.unicast) + of(&self.broadcast, self.unopened.broadcast)
    }

    /// The stream of frames with such a header.
    #[inline]
    fn stream(&mut self, header: &Header) -> &mut Stream {
        if header.target.node.is_some() { &mut self.unicast } else { &mut self.broadcast }
    }
}

/// Why messages are lost, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// Their sender died.
    Death,
    /// Frames that arrived and were no good, or the medium.
    Unknown,
}

/// While frames are lost all the time the kernel is asked so often what it dropped: it takes a system call for each socket.
const ASK_EVERY_NS: u64 = 1_000_000;

/// The accounts of all peers of a node.
#[derive(Debug)]
pub(crate) struct Accounts {
    accounts: Vec<Account>,
    /// Where the last frame's account was found.
    last: usize,
    /// When what arrives was sent.
    recency: Recency,
    /// When this turn's first event was looked at, once it was.
    moment: Option<Moment>,
    /// Source of the number of frames that the kernel had no room for.
    drops: Option<Box<dyn Drops>>,
    /// Possible causes of gaps that no gap has been charged to yet.
    credit: Credit,
    /// Losses that are under no cause yet: the kernel is asked once for all of them what it dropped.
    uncharged: u64,
    /// When it was.
    asked_ns: u64,
    /// Nodes that came and went since this was last asked for, while somebody wants to know.
    changes: Option<Vec<Change>>,
}

/// A node came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) kind: NodeChange,
    pub(super) node: NodeId,
    pub(super) incarnation: u16,
}

/// Verdict on a frame's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    pub(crate) deliver: bool,
    /// Messages of the same source found lost by this one.
    pub(crate) lost_before: u64,
}

impl Accounts {
    pub(crate) fn new(drops: Option<Box<dyn Drops>>) -> Self {
        Self {
            accounts: Vec::with_capacity(NODES_MAX),
            last: 0,
            recency: Recency::new(now_ns()),
            moment: None,
            drops,
            credit: Credit::default(),
            uncharged: 0,
            asked_ns: 0,
            changes: None,
        }
    }

    /// From now on changes are noted. Returns the nodes that are there.
    pub(super) fn watch(&mut self) -> Vec<Change> {
        self.changes.get_or_insert_default();
        let present = self.accounts.iter().filter(|account| account.public.present);
        present.map(|account| account.change(NodeChange::Joined)).collect()
    }

    pub(super) fn unwatch(&mut self) {
        self.changes = None;
    }

    /// The noted changes; `None` while there are none.
    #[inline]
    pub(super) fn take_changes(&mut self) -> Option<Vec<Change>> {
        self.changes.as_mut().filter(|changes| !changes.is_empty()).map(std::mem::take)
    }

    /// Notes what became of the node with this account.
    fn note(&mut self, index: usize, kind: NodeChange) {
        if let Some(changes) = &mut self.changes {
            changes.push(self.accounts[index].change(kind));
        }
    }

    /// True if a look everywhere that finds nothing is worth reporting ([`Self::handle_turn`]).
    pub(crate) fn is_behind(&self) -> bool {
        self.recency.is_behind()
    }

    /// A look at the medium has ended, and `found_end` says that nothing is left there. Returns true if there are losses under no cause
    /// yet.
    #[inline]
    pub(crate) fn handle_turn(&mut self, found_end: bool, page: &Page) -> bool {
        self.moment = None;
        if self.uncharged > 0 && self.is_to_ask(now_ns()) {
            self.charge(Count::LostMedium, page);
        }
        if found_end {
            self.recency.handle_nothing();
        }
        self.uncharged > 0
    }

    /// True if the kernel was last asked long ago, or by a counter that has begun anew.
    fn is_to_ask(&self, now_ns: u64) -> bool {
        now_ns.checked_sub(self.asked_ns).is_none_or(|since_ns| since_ns >= ASK_EVERY_NS)
    }

    /// When this turn's events were looked at: the clock is read at the first of them.
    #[inline]
    fn moment(&mut self) -> Moment {
        match self.moment {
            Some(moment) => moment,
            None => self.begin_turn(),
        }
    }

    #[inline]
    fn begin_turn(&mut self) -> Moment {
        let now_ns = now_ns();
        // Until now the numbers that this turn finds lost are missing.
        self.let_credit_age(now_ns);
        *self.moment.insert(self.recency.handle_reading(now_ns))
    }

    #[inline]
    fn let_credit_age(&mut self, now_ns: u64) {
        if self.credit.is_due(now_ns) {
            self.end_age(now_ns);
        }
    }

    #[cold]
    fn end_age(&mut self, now_ns: u64) {
        let missing: u64 = self.accounts.iter().map(Account::unexplained).sum();
        self.credit.grow_old(self.uncharged.saturating_add(missing), now_ns);
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
            None => self.open(node, incarnation, Stream::unheard, Stream::unheard, page),
        };
        self.last
    }

    fn open(
        &mut self,
        node: NodeId,
        incarnation: u16,
        unicast: impl FnOnce(Moment) -> Stream,
        broadcast: impl FnOnce(Moment) -> Stream,
        page: &Page,
    ) -> usize {
        // An earlier life is over; nothing of it can come any more.
        let earlier =
            self.accounts.iter().position(|account| account.public.node == node && account.public.present);
        if let Some(index) = earlier {
            self.replace(index, page);
        }
        if self.accounts.len() == NODES_MAX {
            self.make_room(page);
        }
        page.count(Count::Joined).add_alone(1);
        let public = PeerAccount { node, incarnation, arrived: 0, lost: 0, missing: 0, present: true };
        let moment = self.moment();
        let (unicast, broadcast) = (unicast(moment), broadcast(moment));
        let heard_ns = moment.now_ns;
        let account = Account {
            public,
            unicast,
            broadcast,
            heard_ns,
            life: 0,
            former: 0,
            has_left: false,
            replaced: Replaced::No,
            unopened: PerStream::default(),
        };
        self.accounts.push(account);
        self.note(self.accounts.len() - 1, NodeChange::Joined);
        self.accounts.len() - 1
    }

    /// Ends the account of the peer that has been silent for longest, of one that is gone first. A medium may notice no death.
    #[cold]
    fn make_room(&mut self, page: &Page) {
        let now_ns = self.moment().now_ns;
        let is_of_use =
            |account: &Account| (account.public.present, Reverse(elapsed_ns(now_ns, account.heard_ns)));
        let accounts = self.accounts.iter().enumerate();
        let Some((least, _)) = accounts.min_by_key(|(_, account)| is_of_use(account)) else { return };
        self.note_gone(least, false, page);
        self.end(least, None, false, page);
        // In order: of peers that were heard in one turn, the one that joined first makes room.
        self.accounts.remove(least);
    }

    /// A frame for this node arrived.
    #[inline]
    pub(crate) fn accept(&mut self, header: &Header, page: &Page) -> Judged {
        let index = self.account_of(header.source.node, header.incarnation, page);
        let moment = self.moment();
        let account = &mut self.accounts[index];
        account.heard_ns = moment.now_ns;
        let accepted = account.stream(header).accept(header.sequence, moment);
        if accepted.lost > 0 {
            let mut lost = PerStream::default();
            *lost.of(header) = accepted.lost;
            self.lose(index, lost, page);
        }
        if accepted.restarted {
            page.count(Count::Restarts).add_alone(1);
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

    /// A node says how far it is.
    pub(crate) fn handle_progress(
        &mut self,
        node: NodeId,
        incarnation: u16,
        progress: Progress,
        page: &Page,
    ) {
        let Some(former) = self.end_former_life(node, incarnation, progress.life, page) else { return };
        let index = self.account_of(node, incarnation, page);
        self.note_life(node, incarnation, progress.life, former);
        self.note_return(index, progress.life, page);
        let moment = self.moment();
        self.settle(index, Blame::Unknown, page, |account| {
            account.heard_ns = moment.now_ns;
            let unicast = progress.unicast.map_or(0, |next| account.unicast.handle_progress(next, moment));
            let broadcast = if progress.in_order {
                account.broadcast.handle_progress(progress.broadcast, moment)
            } else {
                account.broadcast.handle_bound(progress.broadcast, moment);
                0
            };
            PerStream { unicast, broadcast }
        });
        // Losses before it are charged: more than what is missing were none of its frames.
        let Account { unopened, unicast, broadcast, .. } = &mut self.accounts[index];
        if progress.in_order {
            unopened.broadcast = unopened.broadcast.min(broadcast.missing().into());
        }
        if progress.unicast.is_some() {
            unopened.unicast = unopened.unicast.min(unicast.missing().into());
        }
    }

    fn end(&mut self, index: usize, progress: Option<Progress>, died: bool, page: &Page) {
        let moment = self.moment();
        self.accounts[index].public.present = false;
        let blame = if died { Blame::Death } else { Blame::Unknown };
        self.settle(index, blame, page, |account| match progress {
            Some(Progress { unicast, broadcast, .. }) => {
                let stream = &mut account.unicast;
                let unicast = match unicast {
                    Some(end) => stream.handle_end(end, moment),
                    None => stream.handle_stop(),
                };
                PerStream { unicast, broadcast: account.broadcast.handle_end(broadcast, moment) }
            }
            None => PerStream {
                unicast: account.unicast.handle_stop(),
                broadcast: account.broadcast.handle_stop(),
            },
        });
    }

    /// Puts what both streams have lost by `work` under its causes.
    fn settle(
        &mut self,
        index: usize,
        otherwise: Blame,
        page: &Page,
        work: impl FnOnce(&mut Account) -> PerStream,
    ) {
        let lost = work(&mut self.accounts[index]);
        if otherwise == Blame::Death {
            // Earlier losses were not caused by this death.
            self.charge(Count::LostMedium, page);
            self.lose(index, lost, page);
            self.charge(Count::LostPeerDied, page);
        } else {
            self.lose(index, lost, page);
        }
    }

    /// Counts losses. Frames without a key explain those of their sender; the causes of the rest are found at the end of the turn.
    fn lose(&mut self, index: usize, lost: PerStream, page: &Page) {
        let Account { public, unopened, .. } = &mut self.accounts[index];
        let (all, mut explained) = (lost.unicast + lost.broadcast, 0);
        for (lost, unopened) in
            [(lost.unicast, &mut unopened.unicast), (lost.broadcast, &mut unopened.broadcast)]
        {
            let part = lost.min(*unopened);
            *unopened -= part;
            explained += part;
        }
        public.lost += all;
        page.count(Count::LostRefused).add_alone(explained);
        // Of a stranger on an open bus that claims 2^62 frames, again and again.
        self.uncharged = self.uncharged.saturating_add(all - explained);
    }

    /// Something that explains losses. With a monitor a stranger's message that was refused is lost: a monitor wants to see all.
    pub(crate) fn handle_trouble(&mut self, trouble: Trouble, has_monitor: bool, page: &Page) {
        match trouble {
            Trouble::BadFrame(_) | Trouble::BadCheck => {
                page.count(Count::BadFrames).add_alone(1);
                self.let_credit_age(now_ns());
                self.credit.note_bad();
            }
            Trouble::Refused { refusal, header } => {
                page.count(count_of(refusal)).add(1);
                // A frame that was taken before leaves no gap, nor does an announcement.
                if refusal != Refusal::Replayed && header.kind.is_numbered() {
                    self.handle_refused(refusal, &header, has_monitor, page);
                }
            }
        }
    }

    #[cold]
    fn handle_refused(&mut self, refusal: Refusal, header: &Header, has_monitor: bool, page: &Page) {
        let is_it = |account: &&mut Account| account.is_of(header.source.node, header.incarnation);
        match (refusal, self.accounts.iter_mut().find(is_it)) {
            (Refusal::UnknownKey, Some(account)) => *account.unopened.of(header) += 1,
            // A sender without an account has no gap to explain, as its streams begin later.
            (Refusal::UnknownKey, None) => {}
            // Nor does this one. Counted here, it must not explain what others have lost as well.
            (Refusal::Unexpected, None) if has_monitor => page.count(Count::LostRefused).add_alone(1),
            _ => {
                self.let_credit_age(now_ns());
                self.credit.note_refused();
            }
        }
    }

    /// Puts all losses under their causes, for a thread that reads the account now or reports it at times.
    pub(crate) fn charge_all(&mut self, page: &Page) {
        self.charge(Count::LostMedium, page);
    }

    /// Asks the kernel what it had no room for since it was last asked.
    fn count_drops(&mut self, page: &Page) {
        let drops = self.drops.as_mut().map_or(0, |drops| drops.take());
        page.count(Count::BufferDrops).add_alone(drops);
        self.asked_ns = now_ns();
        self.let_credit_age(self.asked_ns);
        self.credit.note_drops(drops);
    }

    /// Puts losses under their causes: each under exactly one, and under `rest` what nothing else explains.
    #[cold]
    fn charge(&mut self, rest: Count, page: &Page) {
        self.count_drops(page);
        let lost = std::mem::take(&mut self.uncharged);
        let frames_max = self.drops.as_ref().map_or(1, |drops| drops.frames_max());
        let explained = self.credit.charge(lost, frames_max);
        page.count(Count::LostBadFrame).add_alone(explained.bad);
        page.count(Count::LostRefused).add_alone(explained.refused);
        page.count(Count::LostBufferFull).add_alone(explained.full);
        page.count(rest).add_alone(lost - explained.sum());
    }

    pub(crate) fn snapshot(&self) -> Vec<PeerAccount> {
        let public = |account: &Account| PeerAccount { missing: account.missing(), ..account.public.clone() };
        self.accounts.iter().map(public).collect()
    }
}

/// Time for the ages of numbers.
fn now_ns() -> u64 {
    #[cfg(test)]
    if let Some(now_ns) = tests::PRETENDED_NS.get() {
        return now_ns;
    }
    let clock = Clock::get();
    clock.nanos(clock.now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;

    use punctual_machine::counter::Counter;
    use punctual_machine::process::ProcessIdentity;
    use punctual_proto::limits::REORDER_WINDOW;
    use punctual_proto::{Address, FrameError, Kind, Port, Target};

    thread_local! {
        /// The time of this thread's accounts; `None` is the true one.
        pub(super) static PRETENDED_NS: Cell<Option<u64>> = const { Cell::new(None) };
    }

    const SECOND_NS: u64 = 1_000_000_000;

    /// However slow the machine is, it is this time now.
    fn pretend(now_ns: u64) {
        PRETENDED_NS.set(Some(now_ns));
    }

    fn page() -> Page {
        let owner = crate::ledger::PageOwner {
            node: NodeId::named("observer"),
            name: "observer".to_owned(),
            bus: "test".to_owned(),
            process: ProcessIdentity::of_self(),
            life: punctual_machine::process::random(),
        };
        Page::create(&owner).unwrap()
    }

    fn header(node: NodeId, target: Target, sequence: u32) -> Header {
        Header {
            kind: Kind::Data,
            incarnation: 7,
            source: Address { node, port: Port::from(1) },
            target,
            sequence,
            payload_size: 0,
            stamped: false,
            sealed: false,
        }
    }

    /// So many frames were sent to everybody, and none to us alone.
    fn told(broadcast: u64) -> Progress {
        Progress { unicast: Some(0), broadcast, in_order: true, life: 0 }
    }

    /// Number of times that the kernel is asked, and the drops that it reports.
    #[derive(Debug)]
    struct CountedDrops(Arc<[Counter; 2]>);

    impl Drops for CountedDrops {
        fn take(&mut self) -> u64 {
            let [times, drops] = &*self.0;
            times.add(1);
            let taken = drops.get();
            drops.set(0);
            taken
        }
    }

    /// As [`told`], of a node that says which life it is.
    fn told_by(life: u32, broadcast: u64) -> Progress {
        Progress { life, ..told(broadcast) }
    }

    /// Goal: a life that draws the incarnation of the one before is heard from its first message on, at once, also if nothing went to
    /// everybody. A late announcement of the life before means nothing.
    #[test]
    fn a_life_with_the_incarnation_of_the_one_before_is_another() {
        pretend(100 * SECOND_NS);
        let (page, node) = (page(), NodeId::named("peer"));
        let mut accounts = Accounts::new(None);
        let to_us = Target { node: Some(NodeId::named("observer")), port: None };
        let hears = |accounts: &mut Accounts, sequence| {
            accounts.accept(&header(node, to_us, sequence), &page).deliver
        };
        accounts.handle_joined(node, 7, told_by(1, 0), true, &page);
        assert!((0..200).all(|number| hears(&mut accounts, number)));
        // The first is killed, and the second says hello.
        accounts.handle_joined(node, 7, told_by(2, 0), true, &page);
        assert!((0..10).all(|number| hears(&mut accounts, number)));
        for late in [told_by(1, 0), told_by(1, 500)] {
            accounts.handle_joined(node, 7, late, true, &page);
            accounts.handle_progress(node, 7, late, &page);
            accounts.handle_left(node, 7, Some(late), false, &page);
        }
        assert!((10..20).all(|number| hears(&mut accounts, number)));
        accounts.charge_all(&page);
        let ledger = page.ledger();
        assert_eq!((ledger.arrived, ledger.lost(), ledger.duplicates), (220, 0, 0), "{ledger}");
        assert_eq!((ledger.joined, ledger.left, ledger.died), (2, 1, 1), "{ledger}");
    }

    /// Goal: the hello of a life that has left, or that goes on, may come once more and late: nobody joins by it, and nothing is lost.
    #[test]
    fn a_late_hello_of_the_same_life_opens_nothing() {
        pretend(100 * SECOND_NS);
        let (page, node) = (page(), NodeId::named("peer"));
        let mut accounts = Accounts::new(None);
        accounts.handle_joined(node, 7, told_by(1, 0), true, &page);
        let hears = |accounts: &mut Accounts, sequence| {
            accounts.accept(&header(node, Target::EVERYONE, sequence), &page).deliver
        };
        assert!((0..200).all(|number| hears(&mut accounts, number)));
        pretend(110 * SECOND_NS);
        accounts.handle_joined(node, 7, told_by(1, 0), true, &page);
        assert!(!hears(&mut accounts, 100) && hears(&mut accounts, 200));
        accounts.handle_left(node, 7, Some(told_by(1, 201)), false, &page);
        accounts.handle_joined(node, 7, told_by(1, 0), true, &page);
        accounts.charge_all(&page);
        let ledger = page.ledger();
        assert_eq!((ledger.joined, ledger.left, ledger.died, ledger.lost()), (1, 1, 0, 0), "{ledger}");
        // A life that the medium could not reach for a while has not left.
        accounts.handle_joined(node, 8, told_by(2, 0), true, &page);
        accounts.handle_noticed(node, 8, false, &page);
        accounts.handle_joined(node, 8, told_by(2, 0), true, &page);
        let ledger = page.ledger();
        assert_eq!((ledger.joined, ledger.left), (3, 2), "{ledger}");
    }

    /// Goal: a life that goes on comes back after another one was heard late, by its announcements; a late one of a life that is over
    /// brings nothing back. Messages are delivered once.
    #[test]
    fn a_life_that_was_heard_late_ends_no_other() {
        pretend(100 * SECOND_NS);
        let (page, node) = (page(), NodeId::named("peer"));
        let mut accounts = Accounts::new(None);
        let hears = |accounts: &mut Accounts, incarnation, sequence| {
            let header = Header { incarnation, ..header(node, Target::EVERYONE, sequence) };
            accounts.accept(&header, &page).deliver
        };
        let present = |accounts: &mut Accounts, incarnation| {
            accounts.accounts.iter().any(|account| account.is_of(node, incarnation) && account.public.present)
        };
        accounts.handle_joined(node, 7, told_by(1, 0), true, &page);
        assert!((0..5).all(|number| hears(&mut accounts, 7, number)));
        accounts.handle_joined(node, 8, told_by(2, 0), true, &page);
        // Its opening hello and a message once more: it was killed.
        accounts.handle_joined(node, 7, told_by(1, 0), true, &page);
        assert!(!hears(&mut accounts, 7, 2) && present(&mut accounts, 8) && !present(&mut accounts, 7));
        // Of a life before, which was never heard.
        assert!(hears(&mut accounts, 9, 77) && !present(&mut accounts, 8));
        for second in 101..104 {
            pretend(second * SECOND_NS);
            accounts.handle_turn(true, &page);
            accounts.handle_progress(node, 8, told_by(2, 0), &page);
        }
        assert!(present(&mut accounts, 8) && !present(&mut accounts, 9));
        // While the other one is heard, an announcement that comes twice brings nobody back.
        for second in 104..110 {
            pretend(second * SECOND_NS);
            accounts.handle_turn(true, &page);
            accounts.handle_progress(node, 7, told_by(1, 5), &page);
            accounts.handle_progress(node, 8, told_by(2, 0), &page);
        }
        assert!(present(&mut accounts, 8) && !present(&mut accounts, 7));
        let ledger = page.ledger();
        assert_eq!((ledger.joined, ledger.left, ledger.died), (4, 3, 3), "{ledger}");
    }

    /// Goal: the losses of a turn are under their causes when it ends, for which the kernel is asked once. Those of turns that follow
    /// at once are, when somebody reads the account. Losses before a death were not caused by it.
    #[test]
    fn losses_are_charged_at_the_end_of_a_turn() {
        let counters = Arc::new(std::array::from_fn(|_| Counter::default()));
        let [times, drops] = &*counters;
        pretend(100 * SECOND_NS);
        let page = page();
        let mut accounts = Accounts::new(Some(Box::new(CountedDrops(Arc::clone(&counters)))));
        let nodes = ["one", "two", "three", "four"].map(NodeId::named);
        for node in nodes {
            accounts.handle_joined(node, 7, told(0), true, &page);
        }
        let leave = |accounts: &mut Accounts, place: usize, lost: u64, died: bool| {
            accounts.handle_left(nodes[place], 7, Some(told(lost)), died, &page);
        };
        drops.set(2);
        leave(&mut accounts, 0, 1, false);
        leave(&mut accounts, 1, 2, false);
        accounts.handle_turn(false, &page);
        assert_eq!(times.get(), 1);
        let ledger = page.ledger();
        assert_eq!((ledger.lost_buffer_full, ledger.lost_medium, ledger.lost()), (2, 1, 3), "{ledger}");
        leave(&mut accounts, 2, 2, false);
        // Just now.
        assert!(accounts.handle_turn(false, &page));
        assert_eq!((times.get(), page.ledger().lost()), (1, 3));
        accounts.charge_all(&page);
        assert_eq!((times.get(), page.ledger().lost()), (2, 5));
        leave(&mut accounts, 3, 4, true);
        pretend(100 * SECOND_NS + ASK_EVERY_NS);
        accounts.handle_turn(false, &page);
        let ledger = page.ledger();
        assert_eq!((ledger.lost_medium, ledger.lost_peer_died, ledger.lost()), (3, 4, 9), "{ledger}");
        accounts.handle_turn(true, &page);
        assert_eq!(page.ledger().lost(), 9);
    }

    /// Goal: frames without a key explain the gap of their sender, however late it shows, and of no other one. They explain no more than
    /// they were, and nothing once their sender has said that all came. Method: for a minute each number but every tenth arrives so.
    #[test]
    fn frames_without_a_key_explain_a_late_gap_of_their_sender() {
        let page = page();
        let mut accounts = Accounts::new(None);
        let [node, other] = ["locked", "other"].map(NodeId::named);
        let unknown = |node| Trouble::Refused {
            refusal: Refusal::UnknownKey,
            header: header(node, Target::EVERYONE, 0),
        };
        pretend(0);
        [node, other].into_iter().for_each(|node| accounts.handle_joined(node, 7, told(0), true, &page));
        for number in 0..600_u32 {
            pretend(u64::from(number) * SECOND_NS / 10);
            if number % 10 > 0 {
                accounts.handle_trouble(unknown(node), false, &page);
            }
            accounts.handle_turn(true, &page);
        }
        let stranger = NodeId::named("stranger");
        (0..9).for_each(|_| {
            [other, stranger]
                .into_iter()
                .for_each(|node| accounts.handle_trouble(unknown(node), false, &page));
        });
        let in_order = |next| Progress { in_order: true, ..told(next) };
        accounts.handle_progress(other, 7, in_order(0), &page);
        accounts.handle_progress(node, 7, in_order(600), &page);
        accounts.charge_all(&page);
        let causes = || (page.ledger().lost_refused, page.ledger().lost_medium);
        assert_eq!(causes(), (536, 0), "the last 64 may still come");
        accounts.handle_left(other, 7, Some(told(5)), false, &page);
        accounts.handle_left(node, 7, Some(told(600)), false, &page);
        accounts.charge_all(&page);
        assert_eq!(causes(), (540, 65));
    }

    /// Goal: numbers that frames without a key explain keep no other cause alive: a damaged frame explains no loss long after.
    #[test]
    fn frames_without_a_key_keep_no_other_cause() {
        let page = page();
        let mut accounts = Accounts::new(None);
        let [node, other] = ["locked", "other"].map(NodeId::named);
        pretend(0);
        [node, other].into_iter().for_each(|node| accounts.handle_joined(node, 7, told(0), true, &page));
        let header = header(node, Target::EVERYONE, 0);
        let unknown = Trouble::Refused { refusal: Refusal::UnknownKey, header };
        (0..9).for_each(|_| accounts.handle_trouble(unknown, false, &page));
        accounts.handle_progress(node, 7, Progress { in_order: true, ..told(9) }, &page);
        accounts.handle_trouble(Trouble::BadCheck, false, &page);
        for second in 1..=10 {
            pretend(second * SECOND_NS);
            accounts.handle_progress(other, 7, told(0), &page);
            accounts.handle_turn(true, &page);
        }
        accounts.handle_left(other, 7, Some(told(1)), false, &page);
        accounts.charge_all(&page);
        let ledger = page.ledger();
        assert_eq!((ledger.lost_bad_frame, ledger.lost_medium), (0, 1), "{ledger}");
    }

    /// Goal: with a monitor a stranger's message that was refused is lost once, and explains no other loss. One of a sender that is
    /// known leaves a gap, which it explains.
    #[test]
    fn a_refused_message_is_lost_once_for_a_monitor() {
        let page = page();
        let mut accounts = Accounts::new(None);
        let [node, stranger] = ["peer", "stranger"].map(NodeId::named);
        let unexpected = |node| Trouble::Refused {
            refusal: Refusal::Unexpected,
            header: header(node, Target::EVERYONE, 0),
        };
        pretend(0);
        accounts.handle_joined(node, 7, told(0), true, &page);
        accounts.handle_trouble(unexpected(stranger), true, &page);
        accounts.handle_progress(node, 7, told(1), &page);
        accounts.handle_left(node, 7, Some(told(1)), false, &page);
        accounts.charge_all(&page);
        let causes = || (page.ledger().lost_refused, page.ledger().lost_medium);
        assert_eq!(causes(), (1, 1), "another one's, and the medium's");
        accounts.handle_joined(node, 8, told(0), true, &page);
        let header = Header { incarnation: 8, ..header(node, Target::EVERYONE, 0) };
        accounts.handle_trouble(Trouble::Refused { refusal: Refusal::Unexpected, header }, true, &page);
        assert_eq!(causes(), (1, 1), "its gap has not shown");
        accounts.handle_left(node, 8, Some(told(1)), false, &page);
        accounts.charge_all(&page);
        assert_eq!((causes(), page.ledger().seal_unexpected), ((2, 1), 2));
    }

    /// Goal: a frame that arrived and was no good explains a gap of that time, once. It explains no gap that shows long after, and none
    /// if it had no number.
    #[test]
    fn trouble_explains_losses_of_its_time() {
        let page = page();
        let mut accounts = Accounts::new(None);
        let (node, mut before, mut now_ns) = (NodeId::named("peer"), [0; 3], 0);
        let bad = Trouble::BadFrame(FrameError::Short { present: 1, needed: 2 });
        let refused = |kind| Trouble::Refused {
            refusal: Refusal::BadTag,
            header: Header { kind, ..header(node, Target::EVERYONE, 0) },
        };
        for (trouble, is_old, expected) in [
            (bad, false, [1, 0, 1]),
            (refused(Kind::Data), false, [0, 1, 1]),
            (refused(Kind::Fragment), false, [0, 1, 1]),
            (refused(Kind::Hello), false, [0, 0, 2]),
            (bad, true, [0, 0, 2]),
            (refused(Kind::Data), true, [0, 0, 2]),
        ] {
            now_ns += 100 * SECOND_NS;
            pretend(now_ns);
            accounts.handle_trouble(trouble, false, &page);
            if is_old {
                now_ns += 10 * SECOND_NS;
                pretend(now_ns);
            }
            accounts.handle_joined(node, 7, told(0), true, &page);
            accounts.handle_left(node, 7, Some(told(2)), false, &page);
            accounts.charge_all(&page);
            accounts.handle_turn(false, &page);
            let ledger = page.ledger();
            let now = [ledger.lost_bad_frame, ledger.lost_refused, ledger.lost_medium];
            let new: [u64; 3] = std::array::from_fn(|cause| now[cause] - before[cause]);
            assert_eq!(new, expected, "{trouble:?}, old: {is_old}");
            before = now;
        }
    }

    /// Goal: trouble explains a gap of its time, though the number is lost a minute later, behind 64 others, or when its sender leaves. A
    /// gap that shows later is the medium's.
    #[test]
    fn trouble_explains_losses_of_slow_streams() {
        let bad = Trouble::BadFrame(FrameError::Short { present: 1, needed: 2 });
        let refused = Trouble::Refused {
            refusal: Refusal::BadTag,
            header: header(NodeId::named("peer"), Target::EVERYONE, 0),
        };
        for ends_after in [10, u64::from(REORDER_WINDOW) + 20] {
            for (trouble, expected) in [
                (Some(bad), [1, 0, 0, 1]),
                (Some(refused), [0, 1, 0, 1]),
                // The kernel dropped it.
                (None, [0, 0, 1, 1]),
            ] {
                let counters = Arc::new(std::array::from_fn(|_| Counter::default()));
                let [_, drops] = &*counters;
                let page = page();
                let mut accounts = Accounts::new(Some(Box::new(CountedDrops(Arc::clone(&counters)))));
                let node = NodeId::named("slow");
                pretend(100 * SECOND_NS);
                accounts.handle_joined(node, 7, told(0), true, &page);
                for number in 0..ends_after {
                    pretend((100 + number) * SECOND_NS);
                    match (number, trouble) {
                        (0, Some(trouble)) => accounts.handle_trouble(trouble, false, &page),
                        (0, None) => drops.set(1),
                        // Long after.
                        (8, _) => {}
                        _ => {
                            let header = header(node, Target::EVERYONE, number as u32);
                            assert!(accounts.accept(&header, &page).deliver);
                        }
                    }
                    accounts.handle_turn(false, &page);
                    accounts.charge_all(&page);
                }
                accounts.handle_left(node, 7, Some(told(ends_after)), false, &page);
                accounts.charge_all(&page);
                let ledger = page.ledger();
                let [bad, full] = [ledger.lost_bad_frame, ledger.lost_buffer_full];
                let causes = [bad, ledger.lost_refused, full, ledger.lost_medium];
                assert_eq!(causes, expected, "{trouble:?}, {ends_after} numbers");
            }
        }
    }

    /// Goal: where the counter of time begins anew, losses are under their causes at the end of a turn all the same.
    #[test]
    fn a_counter_that_begins_anew_hides_no_loss() {
        let page = page();
        let mut accounts = Accounts::new(None);
        let node = NodeId::named("peer");
        for (now_ns, lost) in [(1_000 * SECOND_NS, 1), (SECOND_NS, 2)] {
            pretend(now_ns);
            accounts.handle_joined(node, 7, told(0), true, &page);
            accounts.handle_left(node, 7, Some(told(1)), false, &page);
            assert!(!accounts.handle_turn(false, &page));
            assert_eq!(page.ledger().lost(), lost);
        }
    }

    /// Goal: the nodes that are there are those that joined and have not left. This holds also where nobody said that a life is over,
    /// and where somebody says it twice.
    #[test]
    fn each_life_ends_once() {
        let node = NodeId::named("phoenix");
        let page = page();
        let mut accounts = Accounts::new(None);
        let progress = told(0);
        for life in 1..=4 {
            accounts.handle_joined(node, life, progress, true, &page);
            let ledger = page.ledger();
            let gone = u64::from(life) - 1;
            assert_eq!((ledger.joined - ledger.left, ledger.died), (1, gone), "{ledger}");
        }
        for _ in 0..2 {
            accounts.handle_left(node, 4, Some(progress), false, &page);
        }
        let ledger = page.ledger();
        assert_eq!((ledger.joined, ledger.left, ledger.died), (4, 4, 3), "{ledger}");
    }

    /// Goal: where more peers come than there are accounts, the newest keep theirs while they talk, and every frame stands in one counter.
    #[test]
    fn the_peer_silent_for_longest_makes_room() {
        let page = page();
        let mut accounts = Accounts::new(None);
        let say = |accounts: &mut Accounts, node, number| {
            assert!(accounts.accept(&header(node, Target::EVERYONE, number), &page).deliver);
            accounts.handle_turn(false, &page);
        };
        let silent: Vec<_> =
            (0..NODES_MAX).map(|number| NodeId::named(&format!("silent-{number}"))).collect();
        for &node in &silent {
            accounts.handle_joined(node, 7, told(0), true, &page);
            [0, 2].into_iter().for_each(|number| say(&mut accounts, node, number));
        }
        let newcomers = ["one", "two", "three"].map(NodeId::named);
        for number in (0..300).step_by(3) {
            newcomers.into_iter().for_each(|node| say(&mut accounts, node, number));
        }
        let there = accounts.snapshot();
        assert!(there.iter().map(|account| account.node).eq(silent[3..].iter().copied().chain(newcomers)));
        let ledger = page.ledger();
        let expected = [silent.len() + 3, 3, 0].map(|count| count as u64);
        assert_eq!([ledger.joined, ledger.left, ledger.died], expected, "{ledger}");
        newcomers.into_iter().for_each(|node| accounts.handle_left(node, 7, Some(told(300)), false, &page));
        silent[3..].iter().for_each(|&node| accounts.handle_left(node, 7, Some(told(3)), false, &page));
        accounts.charge_all(&page);
        let (ledger, sent) = (page.ledger(), 3 * (silent.len() as u64 + 300));
        assert_eq!((ledger.arrived + ledger.lost(), ledger.duplicates), (sent, 0), "{ledger}");
    }

    /// Goal: a life whose number is that of an earlier one of the same node is another life: its messages are delivered.
    #[test]
    fn a_number_of_a_life_that_comes_again_is_another_life() {
        let node = NodeId::named("phoenix");
        for (is_told, count) in [(true, 5), (false, REORDER_WINDOW + 1)] {
            let page = page();
            let mut accounts = Accounts::new(None);
            for life in 0..3 {
                // The hello may come twice, and late.
                for sequence in [0, 1] {
                    accounts.handle_joined(node, 7, told(0), true, &page);
                    let header = header(node, Target::EVERYONE, sequence);
                    assert!(accounts.accept(&header, &page).deliver, "message {sequence} of life {life}");
                }
                for sequence in 2..count {
                    let header = header(node, Target::EVERYONE, sequence);
                    assert!(accounts.accept(&header, &page).deliver, "message {sequence} of life {life}");
                }
                if is_told {
                    accounts.handle_left(node, 7, Some(told(count.into())), true, &page);
                } else {
                    accounts.accounts[0].heard_ns = 0;
                }
            }
            let ledger = page.ledger();
            assert_eq!((ledger.joined, ledger.died), (3, if is_told { 3 } else { 2 }), "{ledger}");
            let counts = (ledger.arrived, ledger.duplicates, ledger.lost());
            assert_eq!(counts, (3 * u64::from(count), 0, 0), "{ledger}");
        }
    }

    /// Goal: after a counter that began anew, peers that were heard before count as silent: another life begins, and they make room.
    #[test]
    fn peers_heard_before_the_counter_began_anew_are_silent() {
        let (node, page) = (NodeId::named("phoenix"), page());
        let mut accounts = Accounts::new(None);
        pretend(3_600_000_000_000);
        for now_ns in [3_600_000_000_000, 7_000_000] {
            pretend(now_ns);
            accounts.handle_turn(false, &page);
            accounts.handle_joined(node, 7, told(0), true, &page);
            for sequence in 0..=REORDER_WINDOW {
                let header = header(node, Target::EVERYONE, sequence);
                assert!(accounts.accept(&header, &page).deliver, "{now_ns}: {sequence}");
            }
        }
        assert_eq!((page.ledger().joined, page.ledger().died), (2, 1));
        for now_ns in [3_600_000_000_000, 7_000_000] {
            pretend(now_ns);
            accounts.handle_turn(false, &page);
            let names = (accounts.accounts.len()..NODES_MAX).map(|number| format!("{now_ns}-{number}"));
            let names: Vec<String> =
                if now_ns > SECOND_NS { vec!["old".to_owned()] } else { names.collect() };
            for name in names {
                accounts.handle_joined(NodeId::named(&name), 7, told(0), true, &page);
            }
        }
        accounts.handle_joined(NodeId::named("another"), 7, told(0), true, &page);
        let old = NodeId::named("old");
        assert!(accounts.accounts.iter().all(|account| account.public.node != old), "it makes room");
    }

    /// Goal: an opening hello that comes again, however many messages later, ends nobody who was heard just before.
    #[test]
    fn a_hello_that_comes_again_late_ends_no_life() {
        let (node, page) = (NodeId::named("peer"), page());
        let mut accounts = Accounts::new(None);
        for number in 0..2 * (REORDER_WINDOW + 1) {
            if number.is_multiple_of(REORDER_WINDOW + 1) {
                accounts.handle_joined(node, 7, told(0), true, &page);
            }
            assert!(accounts.accept(&header(node, Target::EVERYONE, number), &page).deliver);
        }
        accounts.charge_all(&page);
        let ledger = page.ledger();
        assert_eq!((ledger.joined, ledger.died, ledger.lost()), (1, 0, 0), "{ledger}");
    }
}
