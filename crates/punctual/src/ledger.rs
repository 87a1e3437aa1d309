//! The loss ledger: every message is delivered or stands in exactly one counter, and the sums show it.
//!
//! Counters lie in a page of shared memory per node, readable by any process of the same user without disturbing
//! anyone ([`read_all`], `punctual stat`). Layout: `docs/shared-memory.md`.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_machine::counter::Counter;
use punctual_machine::process::ProcessIdentity;
use punctual_proto::limits::{COMMUNICATORS_MAX, NAME_SIZE_MAX};
use punctual_proto::{NodeId, Port};

use crate::pages::{self, Counters, PageKind, read_name, read_whole, write_name, write_text, write_whole};

mod count;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;

pub(crate) use count::{Count, RowCount, RowError};

const PAGE_SIZE: usize = ROWS_AT + COMMUNICATORS_MAX * ROW_SIZE;
const COUNTERS_AT: usize = 1024;
const ROWS_AT: usize = 4096;
const ROW_SIZE: usize = 64;
/// Words of the bus's name: of one in memory all that it can have.
const BUS_WORDS: Range<usize> = 12..20;
/// Size of the bus's name in the pages of a node and of its groups, bytes.
pub(crate) const BUS_SIZE_MAX: usize = 8 * (BUS_WORDS.end - BUS_WORDS.start);
const _: () = assert!(BUS_SIZE_MAX >= "loopback:".len() + NAME_SIZE_MAX && 8 * BUS_WORDS.end <= COUNTERS_AT);
/// The word that says 1 for a node in memory.
const IN_MEMORY: usize = 4;
/// Word of the node's life.
const LIFE: usize = 6;
/// Word that is odd while a row closes, and another after that: meanwhile its counts stand in two places, or in none. 0 in pages of
/// earlier builds, which do not tell.
const CLOSINGS: usize = 7;
const COUNTERS_MAX: usize = 64;

/// Looks at a page that is never found between two closings, before it is read as it stands: its maker may have died over one.
const LOOKS_MAX: u32 = 100;

/// Time between two of these looks: a thread that closes a row may have to wait for its processor.
const LOOK_EVERY: Duration = Duration::from_millis(1);

const _: () = assert!((Count::CopiesRefused as usize) < COUNTERS_MAX);

/// Account of what a node did with every message, at one instant.
///
/// Two sums hold whenever nothing is on its way:
/// - `copies = delivered + waiting + no_such_port + inbox_full + unread + copies_refused`
/// - for each peer: its frames to this node and to everybody `= arrived + lost` ([`crate::PeerAccount`]). In memory nothing arrives
///   before a communicator has read it: there, waiting and unread messages are missing from that sum.
///
/// C has it as it lies here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Messages taken from this node's communicators.
    pub sent: u64,
    /// Frames of other nodes that arrived for this node, each once.
    pub arrived: u64,
    /// Copies made of arrived and of local messages: one per port that is meant, at least one per arrived frame.
    pub copies: u64,
    /// Copies that the application has.
    pub delivered: u64,
    /// Copies in inboxes, or kept for a larger buffer.
    pub waiting: u64,
    /// Copies for a port that does not exist here.
    pub no_such_port: u64,
    /// Copies for which an inbox had no room.
    pub inbox_full: u64,
    /// Copies that were in an inbox, or in memory in a ring, when its communicator closed. In memory one call of each sender that has
    /// begun before may take one more message. Messages queued then and flushed later are told to nobody. All these are in no counter.
    pub unread: u64,
    /// Frames written over in a peer's ring before this node read them.
    pub lost_overrun: u64,
    /// Frames that the kernel dropped, for want of room in the receive buffer or with a wrong checksum of UDP.
    pub lost_buffer_full: u64,
    /// Frames that arrived damaged.
    pub lost_bad_frame: u64,
    /// Frames that the medium lost.
    pub lost_medium: u64,
    /// Frames that their sender died over.
    pub lost_peer_died: u64,
    /// Frames that arrived again, or once and too late, and were not delivered.
    pub duplicates: u64,
    /// Bytes that arrived and were no frame, or damaged.
    pub bad_frames: u64,
    /// Drops that the kernel reports at the socket, for want of room or with a wrong checksum of UDP. A run of datagrams that it has as
    /// one counts as one.
    pub buffer_drops: u64,
    /// Times a ring was written over before it was read.
    pub overruns: u64,
    /// Peers whose shared memory held what no honest peer writes.
    pub corrupt_peers: u64,
    /// Times a message was not taken for want of room.
    pub send_full: u64,
    /// Datagrams that the medium refused for good after they were taken, announcements of the node among them. A frame to everybody is one
    /// for each peer where there is no multicast.
    pub refused: u64,
    /// Sleeps to the node's own limit of 100 ms over something for which nobody had rung, nor did within 20 ms: lost wake-ups.
    pub missed_wakeups: u64,
    /// Nodes that joined.
    pub joined: u64,
    /// Nodes that left or died.
    pub left: u64,
    /// Nodes that died.
    pub died: u64,
    /// Frames without a seal on a sealed bus.
    pub seal_missing: u64,
    /// Frames with a seal on a bus that is not sealed.
    pub seal_unexpected: u64,
    /// Frames sealed with a key that this node does not have.
    pub seal_unknown_key: u64,
    /// Frames whose tag does not fit: altered, or sealed without the key.
    pub seal_bad_tag: u64,
    /// Genuine frames that were taken before.
    pub seal_replayed: u64,
    /// Genuine frames that were sealed before this node opened, or in the future.
    pub seal_stale: u64,
    /// Frames that were sent to this node and not believed.
    pub lost_refused: u64,
    /// Streams that went on after a gap of 2^31 numbers or more of which the time alone told. The losses of such a stream are counted
    /// modulo 2^32 until its sender says how far it is.
    pub restarts: u64,
    /// Messages that were cut into fragments, of which at least one was taken. Each fragment counts as a frame above, too.
    pub large_sent: u64,
    /// Messages that were put together from fragments, once for each communicator that has them.
    pub large_delivered: u64,
    /// Messages of which fragments came, and not all. Where none came, all of them are among the lost frames.
    pub large_lost: u64,
    /// Fragments that were not taken: of a message larger than this node asked for, or what no sender writes.
    pub fragments_refused: u64,
    /// Copies from this node's own communicators that were not believed, by their seals ([`crate::seal::Keys::also_local`]).
    pub copies_refused: u64,
}

impl Ledger {
    /// Frames that were sent to this node and never arrived, for any cause.
    pub fn lost(&self) -> u64 {
        sum([
            self.lost_overrun,
            self.lost_buffer_full,
            self.lost_bad_frame,
            self.lost_medium,
            self.lost_peer_died,
            self.lost_refused,
        ])
    }

    /// Frames that were not believed because of their seal, or for want of one, for any cause.
    pub fn disbelieved(&self) -> u64 {
        sum([
            self.seal_missing,
            self.seal_unexpected,
            self.seal_unknown_key,
            self.seal_bad_tag,
            self.seal_replayed,
            self.seal_stale,
        ])
    }

    /// True if every copy is in exactly one place.
    pub fn is_balanced(&self) -> bool {
        let Self { delivered, waiting, no_such_port, inbox_full, unread, copies_refused, .. } = *self;
        self.copies == sum([delivered, waiting, no_such_port, inbox_full, unread, copies_refused])
    }

    /// Names and values, for tables.
    pub fn entries(&self) -> [(&'static str, u64); 37] {
        [
            ("sent", self.sent),
            ("arrived", self.arrived),
            ("copies", self.copies),
            ("delivered", self.delivered),
            ("waiting", self.waiting),
            ("no_such_port", self.no_such_port),
            ("inbox_full", self.inbox_full),
            ("unread", self.unread),
            ("lost_overrun", self.lost_overrun),
            ("lost_buffer_full", self.lost_buffer_full),
            ("lost_bad_frame", self.lost_bad_frame),
            ("lost_medium", self.lost_medium),
            ("lost_peer_died", self.lost_peer_died),
            ("duplicates", self.duplicates),
            ("bad_frames", self.bad_frames),
            ("buffer_drops", self.buffer_drops),
            ("overruns", self.overruns),
            ("corrupt_peers", self.corrupt_peers),
            ("send_full", self.send_full),
            ("refused", self.refused),
            ("missed_wakeups", self.missed_wakeups),
            ("joined", self.joined),
            ("left", self.left),
            ("died", self.died),
            ("seal_missing", self.seal_missing),
            ("seal_unexpected", self.seal_unexpected),
            ("seal_unknown_key", self.seal_unknown_key),
            ("seal_bad_tag", self.seal_bad_tag),
            ("seal_replayed", self.seal_replayed),
            ("seal_stale", self.seal_stale),
            ("lost_refused", self.lost_refused),
            ("restarts", self.restarts),
            ("large_sent", self.large_sent),
            ("large_delivered", self.large_delivered),
            ("large_lost", self.large_lost),
            ("fragments_refused", self.fragments_refused),
            ("copies_refused", self.copies_refused),
        ]
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, value) in self.entries().into_iter().filter(|&(_, value)| value > 0) {
            write!(f, "{separator}{name} {value}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// A page belongs to its writer: sums of its values must not overflow.
fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Owner of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOwner {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The bus, as [`crate::Bus`] prints it. One of more than 64 bytes is cut, and ends with `…`.
    pub bus: String,
    /// Its process.
    pub process: ProcessIdentity,
    /// Random, of each life of a node: one process may have several of one name on buses that are written alike.
    pub life: u64,
}

/// A node's page of counters.
#[derive(Debug)]
pub(crate) struct Page {
    words: Counters,
    /// Held while a row is taken or closed.
    rows: Mutex<()>,
}

impl Page {
    /// A page that other processes find, or a private one where there is no memory file system.
    pub(crate) fn create(owner: &PageOwner) -> Result<Self, punctual_machine::SystemError> {
        let name = format!("{}.{:016x}", owner.node, owner.life);
        let words = Counters::create(PageKind::Node, &name, PAGE_SIZE, |words| {
            words[2].set(owner.node.get());
            words[LIFE].set(owner.life);
            words[CLOSINGS].set(2);
            write_name(&words[8..12], &owner.name);
            write_text(words[BUS_WORDS].iter(), &owner.bus);
        })?;
        Ok(Self { words, rows: Mutex::default() })
    }

    fn view(&self) -> View<'_> {
        View(&self.words)
    }

    /// The node is in memory: its communicators read rings, and positions in them are the account.
    pub(crate) fn set_in_memory(&self) {
        self.words[IN_MEMORY].set(1);
    }

    #[inline]
    pub(crate) fn count(&self, count: Count) -> &Counter {
        self.view().count(count)
    }

    /// The counters of one communicator, by [`RowCount`].
    #[inline]
    pub(crate) fn row(&self, row: usize) -> &[Counter] {
        self.view().row(row)
    }

    fn rows(&self) -> MutexGuard<'_, ()> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row for a communicator at this port. The reserved port may be taken more than once.
    pub(crate) fn take_row(&self, port: Port) -> Result<usize, RowError> {
        let _alone = self.rows();
        let ports = || (0..COMMUNICATORS_MAX).map(|row| self.row(row)[RowCount::Port as usize].get());
        let word = u64::from(port.get()) + 1;
        if !port.is_reserved() && ports().any(|taken| taken == word) {
            return Err(RowError::Taken(port));
        }
        let row = ports().position(|taken| taken == 0).ok_or(RowError::TooMany)?;
        self.row(row)[RowCount::Port as usize].set(word);
        Ok(row)
    }

    /// Adds a closing communicator's row to the node's own counters, and frees it. Of what it took from its inbox, so many
    /// messages were discarded, and counted then.
    pub(crate) fn close_row(&self, row: usize, discarded: u64) {
        let row = self.row(row);
        let [enqueued, direct, delivered, full] =
            [RowCount::Enqueued, RowCount::Direct, RowCount::Delivered, RowCount::InboxFull]
                .map(|count| row[count as usize].get());
        let entered = sum([enqueued, direct]);
        let _alone = self.rows();
        write_whole(&self.words[CLOSINGS], || {
            self.count(Count::Sent).add_published(row[RowCount::Sent as usize].get());
            self.count(Count::ClosedEnqueued).add_published(entered);
            self.count(Count::ClosedDelivered).add_published(delivered);
            self.count(Count::ClosedInboxFull).add_published(full);
            let unread = entered.saturating_sub(sum([delivered, discarded]));
            self.count(Count::ClosedUnread).add_published(unread);
            for counter in row.iter().rev() {
                // The port goes last: with it the row is free.
                counter.publish(0);
            }
        });
    }

    pub(crate) fn ledger(&self) -> Ledger {
        let _no_row_closes = self.rows();
        self.view().ledger_now()
    }
}

/// A page as seen by any process that may read it.
#[derive(Clone, Copy, Debug)]
struct View<'a>(&'a [Counter]);

impl<'a> View<'a> {
    /// If it is large enough.
    fn of(words: &'a [Counter]) -> Option<Self> {
        (words.len() >= PAGE_SIZE / 8).then_some(Self(words))
    }

    #[inline]
    fn count(self, count: Count) -> &'a Counter {
        &self.0[COUNTERS_AT / 8 + count as usize]
    }

    #[inline]
    fn row(self, row: usize) -> &'a [Counter] {
        &self.0[(ROWS_AT + row * ROW_SIZE) / 8..][..ROW_SIZE / 8]
    }

    fn owner(self) -> Option<PageOwner> {
        let words = self.0;
        Some(PageOwner {
            node: NodeId::new(words[2].get())?,
            name: read_name(&words[8..12]),
            bus: read_name(&words[BUS_WORDS]),
            process: pages::process_of(words)?,
            life: words[LIFE].get(),
        })
    }

    /// The ledger between two closings of rows: no count falls from one to the next.
    fn ledger(self) -> Ledger {
        let closings = &self.0[CLOSINGS];
        for _ in 0..LOOKS_MAX {
            if closings.get_published() == 0 {
                break;
            }
            if let Some(ledger) = read_whole(closings, || self.ledger_now()) {
                return ledger;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.ledger_now()
    }

    fn ledger_now(self) -> Ledger {
        let count = |which: Count| self.count(which).get_published();
        let row = |row, which: RowCount| self.row(row)[which as usize].get_published();
        let rows = |which| sum((0..COMMUNICATORS_MAX).map(|index| row(index, which)));
        // A message that moves while we read is counted as waiting, never as negative.
        let delivered = sum([count(Count::ClosedDelivered), rows(RowCount::Delivered)]);
        let [unread, copies_refused] = [Count::ClosedUnread, Count::CopiesRefused].map(count);
        let enqueued = sum([count(Count::ClosedEnqueued), rows(RowCount::Enqueued), rows(RowCount::Direct)]);
        // In memory a communicator reads the rings itself: its only copies are delivered, or were there when it closed.
        let read = if self.0[IN_MEMORY].get() == 1 { sum([delivered, unread]) } else { 0 };
        Ledger {
            sent: sum([count(Count::Sent), rows(RowCount::Sent)]),
            arrived: sum([count(Count::Arrived), read]),
            copies: sum([count(Count::Copies), count(Count::CopiesLocal), read]),
            delivered,
            waiting: enqueued.saturating_sub(sum([delivered, unread, copies_refused])),
            no_such_port: count(Count::NoSuchPort),
            inbox_full: sum([count(Count::ClosedInboxFull), rows(RowCount::InboxFull)]),
            unread,
            lost_overrun: count(Count::LostOverrun),
            lost_buffer_full: count(Count::LostBufferFull),
            lost_bad_frame: count(Count::LostBadFrame),
            lost_medium: count(Count::LostMedium),
            lost_peer_died: count(Count::LostPeerDied),
            duplicates: count(Count::Duplicates),
            bad_frames: count(Count::BadFrames),
            buffer_drops: count(Count::BufferDrops),
            overruns: count(Count::Overruns),
            corrupt_peers: count(Count::CorruptPeers),
            send_full: count(Count::SendFull),
            refused: count(Count::Refused),
            missed_wakeups: count(Count::MissedWakeups),
            joined: count(Count::Joined),
            left: count(Count::Left),
            died: count(Count::Died),
            seal_missing: count(Count::SealMissing),
            seal_unexpected: count(Count::SealUnexpected),
            seal_unknown_key: count(Count::SealUnknownKey),
            seal_bad_tag: count(Count::SealBadTag),
            seal_replayed: count(Count::SealReplayed),
            seal_stale: count(Count::SealStale),
            lost_refused: count(Count::LostRefused),
            restarts: count(Count::Restarts),
            large_sent: count(Count::LargeSent),
            large_delivered: count(Count::LargeDelivered),
            large_lost: count(Count::LargeLost),
            fragments_refused: count(Count::FragmentsRefused),
            copies_refused,
        }
    }
}

/// The ledgers of all live nodes of this user on this host, read without disturbing them.
pub fn read_all() -> Vec<(PageOwner, Ledger)> {
    let read = |words: &[Counter]| {
        let view = View::of(words)?;
        Some((view.owner()?, view.ledger()))
    };
    let mut ledgers: Vec<_> =
        pages::read_all(PageKind::Node).iter().filter_map(|words| read(words)).collect();
    ledgers.sort_by(|(a, _), (b, _)| (&a.bus, &a.name, a.node).cmp(&(&b.bus, &b.name, b.node)));
    ledgers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: a page with any content is refused or read: no panic, no character that moves a cursor.
        #[test]
        fn any_page_is_refused_or_read(words in proptest::collection::vec(any::<u64>(), 64), likely: bool) {
            let all: Vec<Counter> = (0..PAGE_SIZE / 8).map(|_| Counter::default()).collect();
            for (counter, word) in all.iter().zip(words.iter().cycle()) {
                counter.set(*word);
            }
            if likely {
                all.iter().zip(PageKind::Node.words()).for_each(|(counter, word)| counter.set(word));
                all[3].set(words[3] >> 32);
            }
            // Nobody closes anything, so there is nothing to wait for.
            all[CLOSINGS].set(words[CLOSINGS] & !1);
            let view = View::of(&all).unwrap();
            prop_assert_eq!(likely, PageKind::Node.is_of(&all));
            if let Some(owner) = view.owner() {
                prop_assert!(!owner.name.chars().chain(owner.bus.chars()).any(char::is_control));
            }
            let ledger = view.ledger();
            let _any_answer_will_do = (ledger.is_balanced(), ledger.lost(), ledger.to_string());
        }
    }

    /// Goal: a page has all of a bus's name in memory, however long that may be, and says where it has only a part.
    #[test]
    fn a_page_has_all_of_a_bus_or_says_so() {
        let page_of = |bus: String| {
            let owner = PageOwner {
                node: NodeId::named("named"),
                name: "named".to_owned(),
                bus,
                process: ProcessIdentity::of_self(),
                life: punctual_machine::process::random(),
            };
            let page = Page::create(&owner).unwrap();
            (owner, page.view().owner().unwrap())
        };
        let (owner, read) = page_of(format!("loopback:{}", "b".repeat(NAME_SIZE_MAX)));
        assert_eq!(read, owner);
        let (owner, read) = page_of("x".repeat(BUS_SIZE_MAX + 1));
        assert_eq!(read.bus, format!("{}…", &owner.bus[..BUS_SIZE_MAX - '…'.len_utf8()]));
    }

    /// Goal: no count falls while communicators close, for readers of this process and of another. Method: of all rows the one that is
    /// read last closes again and again.
    #[test]
    fn no_count_falls_while_rows_close() {
        let owner = PageOwner {
            node: NodeId::named("closer"),
            name: "closer".to_owned(),
            bus: "test".to_owned(),
            process: ProcessIdentity::of_self(),
            life: punctual_machine::process::random(),
        };
        let page = Page::create(&owner).unwrap();
        (1..COMMUNICATORS_MAX).for_each(|_| assert!(page.take_row(Port::from(u16::MAX)).is_ok()));
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| {
                for _ in 0..2_000 {
                    let row = page.take_row(Port::from(1)).unwrap();
                    page.row(row)[RowCount::Delivered as usize].add_alone(3);
                    std::thread::sleep(Duration::from_micros(100));
                    page.close_row(row, 0);
                }
            });
            let mut delivered = [0, 0];
            while !closer.is_finished() {
                for (before, ledger) in delivered.iter_mut().zip([page.ledger(), page.view().ledger()]) {
                    assert!(*before <= ledger.delivered, "{before}, then {}", ledger.delivered);
                    *before = ledger.delivered;
                }
            }
        });
        assert_eq!(page.ledger().delivered, 6_000);
    }

    /// Goal: a page whose maker died while a row closed is read all the same.
    #[test]
    fn a_page_that_stays_between_two_states_is_read() {
        let words: Vec<Counter> = (0..PAGE_SIZE / 8).map(|_| Counter::default()).collect();
        let view = View::of(&words).unwrap();
        view.count(Count::ClosedDelivered).set(5);
        for closings in [0, 3] {
            words[CLOSINGS].set(closings);
            assert_eq!(view.ledger().delivered, 5);
        }
    }
}
