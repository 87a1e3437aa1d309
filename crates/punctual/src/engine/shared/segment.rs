//! What one node of a shared-memory bus shows to the others. Byte by byte in `docs/shared-memory.md`.
//!
//! | offset | size | what | written by |
//! |---|---|---|---|
//! | 0 | 4,096 | identity: magic, layout, who, how | owner |
//! | 4,096 | 4,096 | sent: (target node, frames) × 256 | owner |
//! | 8,192 | 4,096 | cursors: (writer's life, position) × 256 | owner |
//! | 12,288 | 128 | control words of the ring | owner |
//! | 12,544 | 992 | subscriptions: (port, when it began) of each bell's | owner |
//! | 16,384 | 4,096 | streams: (id, target) of each of its 256 publications' rings | owner |
//! | 20,480 | 16,384 | rows: how far its subscriptions have read, 256 × 64 bytes | owner |
//! | 36,864 | capacity | the ring | owner |
//!
//! Its doorbells lie in a file of their own, because peers write to them; they map all else for reading only.

use std::fs::Permissions;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_machine::doorbell::Doorbell;
use punctual_machine::life::{self, Life, LifeLock};
use punctual_machine::memory::{Access, MappedSlice, Mapping};
use punctual_machine::process::ProcessIdentity;
use punctual_machine::ring::RingMemory;
use punctual_proto::NodeId;
use punctual_proto::limits::{NAME_SIZE_MAX, NODES_MAX};

use super::paths::Paths;

const MAGIC: u64 = u64::from_le_bytes(*b"PUNCTUAL");
const LAYOUT_VERSION: u64 = 2;

const SENT_AT: usize = 4096;
const CURSORS_AT: usize = 8192;
pub(super) const CONTROL_AT: usize = 12_288;
const SUBSCRIPTIONS_AT: usize = 12_544;
const STREAMS_AT: usize = 16_384;
const ROWS_AT: usize = 20_480;
pub(super) const RING_AT: usize = 36_864;
pub(super) const BELL_SIZE: usize = 4096;

const IDENTITY_WORDS: usize = 16;

/// Publications of one node.
pub(super) const STREAMS_MAX: usize = 256;
/// Rings that one node's subscriptions follow: each of each.
pub(super) const ROWS_MAX: usize = 256;
/// Words of a row, by index: a cache line.
pub(super) const ROW_WORDS: usize = 8;
pub(super) mod row {
    /// Which ring; 0 = free.
    pub(in super::super) const RING: usize = 0;
    /// The bell to ring.
    pub(in super::super) const BELL: usize = 1;
    pub(in super::super) const POSITION: usize = 2;
    pub(in super::super) const SEQUENCE: usize = 3;
    pub(in super::super) const BEGIN: usize = 4;
    pub(in super::super) const LOST: usize = 5;
    pub(in super::super) const CORRUPT: usize = 6;
    pub(in super::super) const REFUSED: usize = 7;
}

/// An entry of the table of frames sent that is about to be another node's. Not 0, behind which nobody looks for more.
pub(super) const SENT_CHANGING: u64 = u64::MAX;

/// Doorbells of one node. The first is the node's own.
const BELLS: usize = BELL_SIZE / size_of::<Doorbell>();
/// The node's own.
pub(super) const NODE_BELL: usize = 0;
/// Its visits say that readers of the node's rings have come or gone.
pub(super) const READERS_BELL: usize = BELLS - 1;
/// Its visits say that rings of others have come or gone.
pub(super) const RINGS_BELL: usize = BELLS - 2;
/// The others are its subscriptions'.
pub(super) const SUBSCRIPTIONS_MAX: usize = BELLS - 3;
const _: () = assert!(IDENTITY_WORDS * 8 <= SENT_AT);
const _: () = assert!(SENT_AT + NODES_MAX * 16 <= CURSORS_AT);
const _: () = assert!(CURSORS_AT + NODES_MAX * 16 <= CONTROL_AT);
const _: () = assert!(CONTROL_AT + punctual_machine::ring::RING_CONTROL_SIZE <= SUBSCRIPTIONS_AT);
const _: () = assert!(SUBSCRIPTIONS_AT + BELLS * 16 <= STREAMS_AT);
const _: () = assert!(STREAMS_AT + STREAMS_MAX * 16 <= ROWS_AT);
const _: () = assert!(ROWS_AT + ROWS_MAX * ROW_WORDS * 8 <= RING_AT);
const _: () = assert!(NAME_SIZE_MAX == 32, "the name takes four words");

/// Words of the identity, by index.
mod word {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const NODE: usize = 2;
    pub(super) const LIFE: usize = 3;
    pub(super) const PID: usize = 4;
    pub(super) const TICKET: usize = 5;
    pub(super) const NAMESPACE: usize = 6;
    pub(super) const CAPACITY: usize = 7;
    pub(super) const HELD_BACK: usize = 8;
    pub(super) const STATE: usize = 9;
    pub(super) const BROADCAST: usize = 10;
    pub(super) const NAME: usize = 12;
}

/// Where a node's life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It looks around and may still leave, if its id is taken.
    Joining,
    /// On the bus.
    Ready,
    /// It has left; what it wrote may still be read.
    Closed,
}

/// Who a segment belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) node: NodeId,
    /// Drawn at random for each life of a node; names its files and is never reused.
    pub(super) life: u64,
    pub(super) process: ProcessIdentity,
    pub(super) held_back: bool,
}

impl Owner {
    /// The part of a life that travels in frames.
    pub(super) fn incarnation(&self) -> u16 {
        self.life as u16
    }
}

/// One node's segment and doorbell.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    identity: MappedSlice<Counter>,
    sent: MappedSlice<Counter>,
    cursors: MappedSlice<Counter>,
    subscriptions: MappedSlice<Counter>,
    streams: MappedSlice<Counter>,
    rows: MappedSlice<Counter>,
    bells: MappedSlice<Doorbell>,
    ring: RingMemory,
    pub(super) owner: Owner,
}

/// The part of a segment that [`Segment::populate`] maps, bytes: all of a usual one.
const POPULATED: usize = RING_AT + (1 << 20);

/// Permissions of the two files: peers write to the bell, and only to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modes {
    pub(super) ring: u32,
    pub(super) bell: u32,
}

impl Segment {
    /// A new segment in files. The ring's file appears whole: it is made under another name.
    pub(super) fn create(
        paths: &Paths,
        owner: Owner,
        name: &str,
        capacity: usize,
        modes: Modes,
    ) -> Result<(Self, LifeLock), SystemError> {
        let unfinished = paths.unfinished();
        punctual_machine::label!("segment.bell");
        let bell = Mapping::create(&paths.bell, BELL_SIZE, modes.bell)?;
        punctual_machine::label!("segment.ring");
        // Closed to everybody else until it is held: who may read it could keep us from that.
        let memory =
            Mapping::create(&unfinished, RING_AT + capacity, 0o600).inspect_err(|_| paths.remove())?;
        let lock = LifeLock::hold(&unfinished)?;
        punctual_machine::label!("segment.permissions");
        std::fs::set_permissions(&unfinished, Permissions::from_mode(modes.ring)).map_err(|error| {
            SystemError::new("set permissions of", unfinished.display().to_string(), error)
        })?;
        punctual_machine::label!("segment.fill");
        let segment = Self::fill(&Arc::new(memory), &Arc::new(bell), owner, name, capacity);
        punctual_machine::label!("segment.publish");
        std::fs::rename(&unfinished, &paths.ring)
            .map_err(|error| SystemError::new("publish", paths.ring.display().to_string(), error))?;
        punctual_machine::label!("segment.publish.done");
        Ok((segment, lock))
    }

    /// A new segment in memory of this process.
    pub(super) fn private(owner: Owner, name: &str, capacity: usize) -> Result<Self, SystemError> {
        let memory = Mapping::anonymous(RING_AT + capacity)?;
        let bell = Mapping::anonymous(BELL_SIZE)?;
        Ok(Self::fill(&Arc::new(memory), &Arc::new(bell), owner, name, capacity))
    }

    pub(super) fn fill(
        memory: &Arc<Mapping>,
        bell: &Arc<Mapping>,
        owner: Owner,
        name: &str,
        capacity: usize,
    ) -> Self {
        let words: &[Counter] = memory.objects(0, IDENTITY_WORDS).expect("larger than its first page");
        punctual_machine::label!("segment.version");
        words[word::VERSION].set(LAYOUT_VERSION);
        punctual_machine::label!("segment.node");
        words[word::NODE].set(owner.node.get());
        punctual_machine::label!("segment.life");
        words[word::LIFE].set(owner.life);
        punctual_machine::label!("segment.process");
        words[word::PID].set(owner.process.pid.into());
        words[word::NAMESPACE].set(owner.process.namespace);
        punctual_machine::label!("segment.capacity");
        words[word::CAPACITY].set(capacity as u64);
        punctual_machine::label!("segment.held_back");
        words[word::HELD_BACK].set(owner.held_back.into());
        for (at, part) in name.as_bytes().chunks(8).take(NAME_SIZE_MAX / 8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            punctual_machine::label!("segment.name");
            words[word::NAME + at].set(u64::from_le_bytes(bytes));
        }
        punctual_machine::label!("segment.magic");
        words[word::MAGIC].publish(MAGIC);
        punctual_machine::label!("segment.magic.done");
        Self::assemble(memory, bell, owner, capacity).expect("the mappings were made for this layout")
    }

    /// The parts of a segment, where they lie inside of its mappings.
    fn assemble(memory: &Arc<Mapping>, bell: &Arc<Mapping>, owner: Owner, capacity: usize) -> Option<Self> {
        Some(Self {
            identity: MappedSlice::new(memory, 0, IDENTITY_WORDS)?,
            sent: MappedSlice::new(memory, SENT_AT, 2 * NODES_MAX)?,
            cursors: MappedSlice::new(memory, CURSORS_AT, 2 * NODES_MAX)?,
            subscriptions: MappedSlice::new(memory, SUBSCRIPTIONS_AT, 2 * BELLS)?,
            streams: MappedSlice::new(memory, STREAMS_AT, 2 * STREAMS_MAX)?,
            rows: MappedSlice::new(memory, ROWS_AT, ROWS_MAX * ROW_WORDS)?,
            bells: MappedSlice::new(bell, 0, BELLS)?,
            ring: RingMemory::in_mapping(Arc::clone(memory), CONTROL_AT, RING_AT, capacity)?,
            owner,
        })
    }

    /// A peer's segment, by the names of its files in a folder, with what is known of its maker; `None` for files that are none,
    /// not for us, or of a layout that is not known. Few of its pages are mapped yet: [`Self::populate`].
    ///
    /// # Errors
    /// If this process has no descriptor or no memory left for it.
    pub(super) fn open(
        folder: BorrowedFd<'_>,
        node: NodeId,
        life: u64,
    ) -> Result<Option<(Self, Life)>, SystemError> {
        let open = |ending, access| {
            let mut name = [0; Paths::NAME_SIZE];
            match Mapping::open_in(folder, Paths::name(node, life, ending, &mut name), access) {
                Ok((memory, file)) => Ok(Some((Arc::new(memory), file))),
                Err(error) if error.is_exhaustion() => Err(error),
                Err(_) => Ok(None),
            }
        };
        let Some((memory, file)) = open("ring", Access::Read)? else { return Ok(None) };
        // What has no identity needs no bell.
        if !Self::has_identity(&memory) {
            return Ok(None);
        }
        let Some((bell, _)) = open("bell", Access::ReadWrite)? else { return Ok(None) };
        Ok(Self::read(&memory, || Some(bell)).map(|segment| (segment, life::look_at(file.as_fd()))))
    }

    /// Maps all pages of a usual ring at once. What is beyond comes when it is first read, 64 KiB at a time, so that a newcomer
    /// with a large ring holds up nobody.
    pub(super) fn populate(&self) {
        self.identity.mapping().populate(0, POPULATED);
    }

    fn has_identity(memory: &Mapping) -> bool {
        memory.objects::<Counter>(0, IDENTITY_WORDS).is_some_and(|words| {
            words[word::MAGIC].get_published() == MAGIC && words[word::VERSION].get() == LAYOUT_VERSION
        })
    }

    /// A segment of which only its size is known. Its bell is opened when it looks like one.
    pub(super) fn read(memory: &Arc<Mapping>, bell: impl FnOnce() -> Option<Arc<Mapping>>) -> Option<Self> {
        let words = memory.objects::<Counter>(0, IDENTITY_WORDS).filter(|_| Self::has_identity(memory))?;
        let owner = Owner {
            node: NodeId::new(words[word::NODE].get())?,
            life: words[word::LIFE].get(),
            process: ProcessIdentity {
                pid: u32::try_from(words[word::PID].get()).ok()?,
                namespace: words[word::NAMESPACE].get(),
            },
            held_back: words[word::HELD_BACK].get() != 0,
        };
        let capacity = usize::try_from(words[word::CAPACITY].get()).ok()?;
        Self::assemble(memory, &bell()?, owner, capacity)
    }

    pub(super) fn ring(&self) -> &RingMemory {
        &self.ring
    }

    pub(super) fn doorbell(&self) -> &Doorbell {
        &self.bells[0]
    }

    /// One of the other doorbells.
    #[inline]
    pub(super) fn bell(&self, index: usize) -> &Doorbell {
        &self.bells[index]
    }

    /// The table of subscriptions, by their bells: pairs of port + 1 and when they began, in ticks. 0: nobody. A time that is all
    /// ones: not yet known.
    pub(super) fn subscriptions(&self) -> &[Counter] {
        &self.subscriptions
    }

    /// The table of publications: pairs of a ring's id and its target.
    pub(super) fn streams(&self) -> &[Counter] {
        &self.streams
    }

    /// How far this owner's subscriptions have read.
    pub(super) fn rows(&self) -> &[Counter] {
        &self.rows
    }

    /// One of the rows.
    #[inline]
    pub(super) fn row(&self, index: usize) -> &[Counter] {
        &self.rows[index * ROW_WORDS..(index + 1) * ROW_WORDS]
    }

    /// Its owner's name, if what stands there can be one.
    pub(super) fn name(&self) -> Option<String> {
        let words = &self.identity[word::NAME..word::NAME + NAME_SIZE_MAX / 8];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.get().to_le_bytes()).collect();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        let name = String::from_utf8(bytes).ok()?;
        super::check_name("node", &name).is_ok().then_some(name)
    }

    pub(super) fn state(&self) -> State {
        match self.identity[word::STATE].get_published() {
            0 => State::Joining,
            1 => State::Ready,
            _ => State::Closed,
        }
    }

    pub(super) fn set_state(&self, state: State) {
        punctual_machine::label!("segment.state");
        self.identity[word::STATE].publish(match state {
            State::Joining => 0,
            State::Ready => 1,
            State::Closed => 2,
        });
    }

    /// Its place among those that join, from 1 on; 0 before it has one.
    pub(super) fn ticket(&self) -> u64 {
        self.identity[word::TICKET].get_published()
    }

    /// What says who came first.
    pub(super) fn order(&self) -> (u64, u64) {
        (self.ticket(), self.owner.life)
    }

    pub(super) fn set_ticket(&self, ticket: u64) {
        punctual_machine::label!("segment.ticket");
        self.identity[word::TICKET].publish(ticket);
        punctual_machine::label!("segment.ticket.done");
    }

    /// Frames sent to everybody.
    pub(super) fn broadcast(&self) -> &Counter {
        &self.identity[word::BROADCAST]
    }

    /// The table of frames sent: pairs of target node and count.
    pub(super) fn sent(&self) -> &[Counter] {
        &self.sent
    }

    /// The table of cursors: pairs of the writer's life and the position up to which it has been read.
    pub(super) fn cursors(&self) -> &[Counter] {
        &self.cursors
    }

    /// Frames sent to one node.
    pub(super) fn sent_to(&self, node: NodeId) -> u64 {
        for entry in self.sent().chunks(2) {
            match entry[0].get_published() {
                // Entries are used from the first on and never become free again: the rest of a table that is mostly empty need not
                // come from memory.
                0 => break,
                found if found == node.get() => return entry[1].get_published(),
                _ => {}
            }
        }
        0
    }

    /// How far this owner has read the ring of the writer with this life; `None` before it began.
    pub(super) fn cursor_of(&self, life: u64) -> Option<u64> {
        self.cursors()
            .chunks(2)
            .find(|entry| entry[0].get_published() == life)
            .map(|entry| entry[1].get_published())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use proptest::prelude::*;
    use punctual_machine::ring::{Next, RingReader};

    fn write_words(path: &Path, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(path, bytes).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        /// Goal: a file of any bytes is refused, or read without harm.
        /// Method: random words, half of them behind an identity that is nearly right; everything a reader looks at.
        #[test]
        fn any_file_is_refused_or_harmless(
            words in proptest::collection::vec(any::<u64>(), 64),
            size in prop_oneof![0_usize..4096, Just(2048 + 512), 2500_usize..4000],
            bell_size in prop_oneof![Just(512_usize), 0_usize..16],
            likely: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let paths = Paths::new(folder.path(), NodeId::named("forger"), 7);
            let mut content: Vec<u64> = words.iter().copied().cycle().take(size).collect();
            if likely && size > 16 {
                content[word::MAGIC] = MAGIC;
                content[word::VERSION] = LAYOUT_VERSION;
                content[word::PID] >>= 32;
                content[word::CAPACITY] = 4096;
            }
            write_words(&paths.ring, &content);
            write_words(&paths.bell, &vec![words[0]; bell_size]);
            let opened = std::fs::File::open(folder.path()).unwrap();
            let found = Segment::open(opened.as_fd(), NodeId::named("forger"), 7).unwrap();
            if let Some((segment, life)) = found {
                prop_assert_eq!(life, Life::Ended, "nobody holds it");
                segment.populate();
                prop_assert!(size * 8 >= RING_AT + segment.ring().capacity());
                segment.state();
                segment.name();
                segment.sent_to(NodeId::named("we"));
                segment.cursor_of(words[1]);
                segment.doorbell().ring();
                for mut reader in [
                    RingReader::from_start(segment.ring().clone()),
                    RingReader::from_now(segment.ring().clone()),
                ] {
                    for _ in 0..100 {
                        if reader.peek() == Next::Frame {
                            reader.frame().to_vec();
                            reader.consume();
                        }
                    }
                }
            }
        }
    }

    /// Goal: the counts behind an entry that is about to be another node's are found, and the search ends where the table does.
    #[test]
    fn an_entry_that_changes_hides_none_behind_it() {
        let process = ProcessIdentity { pid: 1, namespace: 1 };
        let owner = Owner { node: NodeId::named("writer"), life: 1, process, held_back: false };
        let segment = Segment::private(owner, "writer", 4096).unwrap();
        let targets = ["a", "b", "c"].map(NodeId::named);
        for (entry, (target, count)) in segment.sent().chunks(2).zip(targets.iter().zip([10, 20, 30])) {
            entry[1].set(count);
            entry[0].set(target.get());
        }
        segment.sent()[2].set(SENT_CHANGING);
        assert_eq!(targets.map(|target| segment.sent_to(target)), [10, 0, 30]);
        assert_eq!(segment.sent_to(NodeId::named("d")), 0);
    }

    /// The figures of `docs/shared-memory.md`.
    #[test]
    fn the_layout_is_the_documented_one() {
        let document = include_str!("../../../../../docs/shared-memory.md");
        for (at, what) in [
            (0, "identity"),
            (SENT_AT, "sent"),
            (CURSORS_AT, "cursors"),
            (CONTROL_AT, "control"),
            (RING_AT, "ring"),
        ] {
            assert!(document.contains(&format!("| {at} | {what}")), "{at}: {what}");
        }
        for (index, what) in [
            (word::MAGIC, "magic"),
            (word::VERSION, "layout version"),
            (word::NODE, "node id"),
            (word::LIFE, "life"),
            (word::PID, "pid"),
            (word::TICKET, "ticket"),
            (word::NAMESPACE, "pid namespace"),
            (word::CAPACITY, "capacity"),
            (word::HELD_BACK, "held back"),
            (word::STATE, "state"),
            (word::BROADCAST, "frames sent to everybody"),
            (word::NAME, "name"),
        ] {
            assert!(document.contains(&format!("| {} | {what}", 8 * index)), "{index}: {what}");
        }
    }
}
