//! Where messages for one communicator wait, put there by other threads of its node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_machine::SystemError;
use punctual_machine::clock::Ticks;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::ring::{COMMIT_SIZE, Next, RingMemory, RingReader, RingWriter, frame_size_max};
use punctual_proto::limits::OVERHEAD_SIZE_MAX;
use punctual_proto::seal::Refusal;
use punctual_proto::{Port, Stamps, Target};

use super::opening::count_of;
use crate::engine::{Bell, PrivateBell, ring};
use crate::ledger::{Count, Page, RowCount};

/// Facts that the receiving side knows of a message besides its frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// When the thread that read it last woke, 0 if it has not slept yet; and when it read it.
    pub(crate) woken: Ticks,
    pub(crate) read: Ticks,
    /// Messages of its source that were lost just before it.
    pub(crate) lost_before: u64,
    /// When the kernel received it; 0 = not known.
    pub(crate) kernel_ns: u64,
    /// In which group it was sealed.
    pub(crate) sealed_in: Option<u32>,
}

/// Words of eight bytes.
const CIRCUMSTANCES_WORDS: usize = 5;

const CIRCUMSTANCES_SIZE: usize = 8 * CIRCUMSTANCES_WORDS;

impl Circumstances {
    fn write(&self, bytes: &mut [u8]) {
        // One more than the group: 0 is none.
        let sealed_in = self.sealed_in.map_or(0, |group| u64::from(group) + 1);
        let words = [self.woken.0, self.read.0, self.lost_before, self.kernel_ns, sealed_in];
        for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn read([woken, read, lost_before, kernel_ns, group]: [u64; CIRCUMSTANCES_WORDS]) -> Self {
        let sealed_in = group.checked_sub(1).and_then(|group| u32::try_from(group).ok());
        Self { woken: Ticks(woken), read: Ticks(read), lost_before, kernel_ns, sealed_in }
    }
}

/// The shared half of a communicator.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) port: Port,
    /// Every message of the bus is for it, regardless of its port.
    pub(crate) monitors: bool,
    /// Its row in the node's page of counters.
    pub(crate) row: usize,
    /// Its capacity, bytes.
    pub(crate) size: usize,
    writer: Mutex<RingWriter>,
    /// Up to where its owner has read.
    cursor: Counter,
    memory: RingMemory,
    pub(crate) bell: PrivateBell,
    /// Its owner waits for the engine: ring the engine's bell too.
    pub(crate) leads: Leading,
    closed: Flag,
    /// Messages that its owner sends to everybody at its own port are not for itself.
    ignores_own: Flag,
    /// The group in which its owner's messages are sealed, and 1; 0 = in the node's.
    seals_in: Counter,
    /// Messages that its owner took, and that are never delivered: the node counts them already.
    discarded: Counter,
    /// Messages that only end a wait.
    pub(crate) nudges: Counter,
    /// 1 while it stands in the list of those who wait for the leader to leave; changed under the list's lock.
    listed: Counter,
}

/// Flag that says whether a communicator waits for the engine. Raised and lowered by its owner, read by senders that ring.
#[derive(Debug, Default)]
pub(crate) struct Leading(Counter);

impl Leading {
    pub(crate) fn set(&self, value: bool) {
        self.0.publish(value.into());
    }

    fn is_set(&self) -> bool {
        self.0.get_published() != 0
    }
}

impl Inbox {
    /// An inbox that holds `size` bytes, a power of two.
    pub(crate) fn new(port: Port, row: usize, size: usize) -> Result<Arc<Self>, SystemError> {
        Self::assemble(port, false, row, size)
    }

    /// One for every message.
    pub(crate) fn monitoring(row: usize, size: usize) -> Result<Arc<Self>, SystemError> {
        Self::assemble(Port::from(u16::MAX), true, row, size)
    }

    fn assemble(port: Port, monitors: bool, row: usize, size: usize) -> Result<Arc<Self>, SystemError> {
        let memory = RingMemory::on_heap(size);
        Ok(Arc::new(Self {
            port,
            monitors,
            row,
            size,
            writer: Mutex::new(RingWriter::new(memory.clone())),
            cursor: Counter::default(),
            memory,
            bell: PrivateBell::new()?,
            leads: Leading::default(),
            closed: Flag::default(),
            ignores_own: Flag::default(),
            seals_in: Counter::default(),
            discarded: Counter::default(),
            nudges: Counter::default(),
            listed: Counter::default(),
        }))
    }

    /// From now on its owner's messages to everybody do not go to the owner itself.
    pub(crate) fn ignore_own(&self) {
        self.ignores_own.raise();
    }

    #[inline]
    pub(crate) fn ignores_own(&self) -> bool {
        self.ignores_own.is_raised()
    }

    /// From now on its owner's messages are sealed in this group, whichever the node's is.
    pub(crate) fn seal_in(&self, group: u32) {
        self.seals_in.publish(u64::from(group) + 1);
    }

    #[inline]
    pub(crate) fn seals_in(&self) -> Option<u32> {
        let group = self.seals_in.get_published().checked_sub(1)?;
        u32::try_from(group).ok()
    }

    /// Its owner does not believe what it took.
    pub(crate) fn refuse(&self, refusal: Refusal, page: &Page) {
        self.discarded.add_alone(1);
        page.count(count_of(refusal)).add(1);
        page.count(Count::CopiesRefused).add(1);
    }

    /// Its owner has no room to keep what it took, which stays unread.
    pub(crate) fn leave_unread(&self, page: &Page) {
        self.discarded.add_alone(1);
        page.count(Count::ClosedUnread).add(1);
    }

    /// Number of messages that its owner took, and that are never delivered.
    pub(crate) fn discarded(&self) -> u64 {
        self.discarded.get()
    }

    pub(crate) fn set_listed(&self, listed: bool) {
        self.listed.publish(listed.into());
    }

    /// True if a thread that leaves the leadership would find it.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.get_published() != 0
    }

    /// Its one reader.
    pub(crate) fn reader(&self) -> InboxReader {
        InboxReader { ring: RingReader::from_start(self.memory.clone()) }
    }

    /// True if a message for this target is for it.
    pub(crate) fn takes(&self, target: Target) -> bool {
        self.monitors || target.includes_port(self.port)
    }

    /// Puts a message in, if there is room. `prefix` is header and stamps.
    pub(crate) fn push(
        &self,
        circumstances: &Circumstances,
        prefix: &[u8],
        payload: &[u8],
        page: &Page,
    ) -> bool {
        let mut writer = self.writer();
        if self.closed.is_raised() {
            // Its owner went while we looked at an older list: the copy is unread like those that were in it.
            page.count(Count::ClosedEnqueued).add(1);
            page.count(Count::ClosedUnread).add(1);
            return false;
        }
        let size = CIRCUMSTANCES_SIZE + prefix.len() + payload.len();
        if writer.claim_held(size, &mut || self.cursor.get_published()).is_err() {
            page.row(self.row)[RowCount::InboxFull as usize].add_alone(1);
            return false;
        }
        let record = writer.claimed_bytes();
        let (head, rest) = record.split_at_mut(CIRCUMSTANCES_SIZE);
        circumstances.write(head);
        rest[..prefix.len()].copy_from_slice(prefix);
        rest[prefix.len()..].copy_from_slice(payload);
        page.row(self.row)[RowCount::Enqueued as usize].add_alone(1);
        writer.commit();
        true
    }

    fn writer(&self) -> MutexGuard<'_, RingWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is put in from now on.
    pub(crate) fn close(&self) {
        let _writer = self.writer();
        self.closed.raise();
    }

    /// Largest message that finds room once all others are read, bytes.
    pub(crate) fn payload_size_max(&self) -> usize {
        frame_size_max(self.size).saturating_sub(CIRCUMSTANCES_SIZE + OVERHEAD_SIZE_MAX)
    }

    /// True if a message of this size would find room now.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        let mut writer = self.writer();
        writer.claim_held(CIRCUMSTANCES_SIZE + size, &mut || self.cursor.get_published()).is_ok()
    }

    /// Wakes its owner, wherever it sleeps.
    pub(crate) fn ring(&self, engine_bell: &dyn Bell) {
        // The first ring's fence also stands between the message and the flag.
        ring(&self.bell);
        if self.leads.is_set() {
            ring(engine_bell);
        }
    }
}

/// A peer's ring may be larger than ours, and its messages too; the size field of the header is the limit.
#[inline]
pub(crate) fn make_room(buffer: &mut Vec<u8>, size: usize) {
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
}

/// The reading half of an inbox.
#[derive(Debug)]
pub(crate) struct InboxReader {
    ring: RingReader,
}

impl InboxReader {
    /// True if there is a message.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.ring.has_news()
    }

    /// Moves the oldest message into `buffer`; returns what is known of it and the size of its frame.
    pub(crate) fn take(&mut self, inbox: &Inbox, buffer: &mut Vec<u8>) -> Option<(Circumstances, usize)> {
        let Next::Frame(found) = self.ring.peek() else { return None };
        let record = found.bytes();
        let words = [0, 1, 2, 3, 4].map(|index| record.word(index).unwrap_or(0));
        let frame = record.skip(CIRCUMSTANCES_SIZE)?;
        make_room(buffer, frame.len());
        let frame_size = frame.copy_to(buffer);
        found.consume();
        inbox.cursor.publish(self.ring.position());
        Some((Circumstances::read(words), frame_size))
    }
}

/// Smallest inbox, bytes: room for a few hundred small messages.
const SIZE_MIN: usize = 1 << 17;

/// The size of an inbox that takes the largest message of a bus, bytes.
pub(crate) fn size_for(payload_size_max: usize) -> usize {
    let frame = CIRCUMSTANCES_SIZE + OVERHEAD_SIZE_MAX + payload_size_max + COMMIT_SIZE;
    (4 * frame).next_power_of_two().max(SIZE_MIN)
}

/// The stamps of a message that one communicator of a node sends to another: it is sealed and posted at once.
pub(crate) fn local_stamps(sent: Ticks, due: Option<Ticks>, domain: u32) -> Stamps {
    let due = due.unwrap_or(sent);
    Stamps {
        sent: sent.0,
        due_to_sent: punctual_proto::stamps::interval(due.0, sent.0),
        domain,
        ..Stamps::default()
    }
}
