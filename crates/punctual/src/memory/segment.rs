//! The memory that one node of a shared-memory bus shows to the others. Byte by byte in `docs/shared-memory.md`.
//!
//! | offset | size | what | written by |
//! |---|---|---|---|
//! | 0 | 4,096 | identity: magic, layout, who, how | owner |
//! | 4,096 | 5,120 | subscriptions: (port, when it began) of each bell's | owner |
//! | 12,288 | 4,096 | streams: (id, target) of each of its 256 publications' rings | owner |
//! | 16,384 | 131,072 | rows: how far its subscriptions have read, 2,048 × 64 bytes | owner |
//! | 196,608 | 4,063,232 | 63,488 more rows, as many as are used | owner |
//!
//! Its doorbells lie in a file of their own, because peers write to them; they map all else for reading only. Pages that nobody needs
//! are not there: tables are used from the first entry on, and the identity says how far. The rows' are reserved when the node first
//! reads, and the file grows when it needs more of them.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock, OnceLock};

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_machine::doorbell::Doorbell;
use punctual_machine::life::{self, Life, LifeLock};
use punctual_machine::memory::{Access, MappedArray, MappedSlice, Mapping};
use punctual_machine::own_file::FileIdentity;
use punctual_machine::process::ProcessIdentity;
use punctual_proto::NodeId;
use punctual_proto::limits::{COMMUNICATORS_MAX, NAME_SIZE_MAX};
use rustix::fs::Mode;

use super::paths::Paths;
use super::rows::{FIRST_END, FURTHER, ROWS_AT, ROWS_MAX, ROWS_STEP, Rows};

const MAGIC: u64 = u64::from_le_bytes(*b"PUNCTUAL");
const LAYOUT_VERSION: u64 = 6;

const SUBSCRIPTIONS_AT: usize = 4096;
const STREAMS_AT: usize = 12_288;
/// Size of the part that everybody maps: all but the rows that few nodes need.
pub(super) const SEGMENT_SIZE: usize = FIRST_END;
pub(super) const BELL_SIZE: usize = 20_480;

const IDENTITY_WORDS: usize = 17;

/// Publications of one node.
pub(super) const STREAMS_MAX: usize = 256;

/// Entry in the table of subscriptions for one that watches for nodes: the word of the reserved port, which no message is for.
pub(super) const WATCHER: u64 = 1 << 16;

/// Entry for one that observes the bus: it reads every ring, and no writer waits for it or rings it. With 2^32 more it reads sealed
/// ones only.
pub(super) const OBSERVER: u64 = 1 << 33;

/// Doorbells of one node. The first is the node's own. It and the next two lie on one page: a newcomer touches all three of every node.
const BELLS: usize = BELL_SIZE / size_of::<Doorbell>();
/// Its visits say that rings of others have come or gone.
pub(super) const RINGS_BELL: usize = 1;
/// Its visits say that readers of the node's rings have come or gone.
pub(super) const READERS_BELL: usize = 2;
/// The others are its subscriptions'.
pub(super) const SUBSCRIPTION_BELLS: std::ops::RangeInclusive<usize> = 3..=BELLS - 1;
/// Subscriptions, communicators, monitors and watchers of one node.
pub(crate) const SUBSCRIPTIONS_MAX: usize = BELLS - 3;
const _: () = assert!(SUBSCRIPTIONS_MAX > COMMUNICATORS_MAX, "and a watcher of nodes");
const _: () = assert!(IDENTITY_WORDS * 8 <= SUBSCRIPTIONS_AT);
const _: () = assert!(SUBSCRIPTIONS_AT + BELLS * 16 <= STREAMS_AT);
const _: () = assert!(STREAMS_AT + STREAMS_MAX * 16 <= ROWS_AT);
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
    pub(super) const HELD_BACK: usize = 7;
    pub(super) const STATE: usize = 8;
    pub(super) const SUBSCRIPTIONS: usize = 9;
    pub(super) const STREAMS: usize = 10;
    pub(super) const ROWS: usize = 11;
    pub(super) const NAME: usize = 12;
    pub(super) const UNSEEN: usize = 16;
}

/// Where a node's life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It looks around and may still leave, if its id is taken.
    Joining,
    /// On the bus.
    Ready,
    /// It has left; its data may still be read.
    Closed,
}

/// Owner of a segment.
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

/// All doorbells of a node.
pub(super) type Bells = MappedArray<Doorbell, BELLS>;

/// Rung in place of a peer's that cannot be mapped: the peer looks up by itself from time to time.
static NOBODY: LazyLock<Doorbell> = LazyLock::new(Doorbell::default);

/// One node's segment and doorbells.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    identity: MappedSlice<Counter>,
    subscriptions: MappedSlice<Counter>,
    streams: MappedSlice<Counter>,
    pub(super) rows: Rows,
    /// An idle peer's are mapped when it is no longer idle, and somebody has something for it.
    bells: OnceLock<Bells>,
    /// Where they are to be found.
    folder: Option<Arc<File>>,
    pub(super) owner: Owner,
}

/// Permissions of the two files: peers write to the bell, and only to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modes {
    pub(super) ring: u32,
    pub(super) bell: u32,
}

impl Segment {
    /// A new segment in files. The ring's file, which is held and of which is said which it is, appears whole: it is made under
    /// another name.
    pub(super) fn create(
        paths: &Paths,
        owner: Owner,
        name: &str,
        modes: Modes,
    ) -> Result<(Self, LifeLock, FileIdentity), SystemError> {
        let unfinished = paths.unfinished();
        punctual_machine::label!("segment.bell");
        let bell = Mapping::create(&paths.bell, BELL_SIZE, modes.bell)?;
        punctual_machine::label!("segment.ring");
        // Closed to everybody else until it is held: a process that may read it could keep us from that.
        let (memory, file) = Mapping::create_partly(&unfinished, SEGMENT_SIZE, ROWS_AT, 0o600)
            .inspect_err(|_| paths.remove())?;
        let made = FileIdentity::of(&file)?;
        let lock = LifeLock::hold(&unfinished, made)?;
        punctual_machine::label!("segment.permissions");
        rustix::fs::fchmod(&file, Mode::from_raw_mode(modes.ring)).map_err(|error| {
            SystemError::new("set permissions of", unfinished.display().to_string(), error)
        })?;
        punctual_machine::label!("segment.fill");
        let segment = Self::fill(&Arc::new(memory), &Arc::new(bell), owner, name);
        punctual_machine::label!("segment.publish");
        std::fs::rename(&unfinished, &paths.ring)
            .map_err(|error| SystemError::new("publish", paths.ring.display().to_string(), error))?;
        punctual_machine::label!("segment.publish.done");
        Ok((segment, lock, made))
    }

    /// A new segment in memory of this process.
    pub(super) fn private(owner: Owner, name: &str) -> Result<Self, SystemError> {
        let memory = Mapping::anonymous(SEGMENT_SIZE)?;
        let bell = Mapping::anonymous(BELL_SIZE)?;
        Ok(Self::fill(&Arc::new(memory), &Arc::new(bell), owner, name))
    }

    pub(super) fn fill(memory: &Arc<Mapping>, bell: &Arc<Mapping>, owner: Owner, name: &str) -> Self {
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
        let segment = Self::assemble(memory, owner, None).expect("the mapping was made for this layout");
        let _first = segment.bells.set(MappedArray::new(bell, 0).expect("as above"));
        segment
    }

    /// The parts of a segment, where they lie inside of its mapping.
    fn assemble(memory: &Arc<Mapping>, owner: Owner, folder: Option<Arc<File>>) -> Option<Self> {
        Some(Self {
            identity: MappedSlice::new(memory, 0, IDENTITY_WORDS)?,
            subscriptions: MappedSlice::new(memory, SUBSCRIPTIONS_AT, 2 * BELLS)?,
            streams: MappedSlice::new(memory, STREAMS_AT, 2 * STREAMS_MAX)?,
            rows: Rows::new(memory)?,
            bells: OnceLock::new(),
            folder,
            owner,
        })
    }

    /// A peer's segment, by the names of its files in a folder, with what is known of its maker; `None` for files that are none,
    /// not for us, or of a layout that is not known.
    ///
    /// # Errors
    /// If this process has no descriptor or no memory left for it.
    pub(super) fn open(
        folder: &Arc<File>,
        node: NodeId,
        life: u64,
    ) -> Result<Option<(Self, Life)>, SystemError> {
        let name = &mut [0; Paths::NAME_SIZE];
        let name = Paths::name(node, life, "ring", name);
        let (memory, file) = match Mapping::open_in(folder.as_fd(), name, Access::Read) {
            Ok((memory, file)) => (Arc::new(memory), file),
            Err(error) if error.is_exhaustion() => return Err(error),
            Err(_) => return Ok(None),
        };
        let segment = Self::identified(&memory, Some(Arc::clone(folder)));
        let Some(segment) =
            segment.filter(|segment| (segment.owner.node, segment.owner.life) == (node, life))
        else {
            return Ok(None);
        };
        if !segment.is_idle() && !segment.open_bells()? {
            return Ok(None);
        }
        let life = life::look_at(file.as_fd());
        Ok(Some((segment, life)))
    }

    /// Maps its doorbells, if they are not yet mapped. Returns true if they are now.
    ///
    /// # Errors
    /// If this process has no descriptor or no memory left for it.
    pub(super) fn open_bells(&self) -> Result<bool, SystemError> {
        let Some(folder) = self.folder.as_ref().filter(|_| self.bells.get().is_none()) else {
            return Ok(self.bells.get().is_some());
        };
        let name = &mut [0; Paths::NAME_SIZE];
        let name = Paths::name(self.owner.node, self.owner.life, "bell", name);
        match Mapping::open_in(folder.as_fd(), name, Access::ReadWrite) {
            Ok((bell, _)) => {
                let bells = MappedArray::new(&Arc::new(bell), 0);
                // Another thread's are as good.
                Ok(bells.map(|bells| self.bells.set(bells)).is_some())
            }
            Err(error) if error.is_exhaustion() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Its doorbells, if they can be mapped.
    pub(super) fn bells(&self) -> Option<&Bells> {
        if self.bells.get().is_none() {
            let _rung_later = self.open_bells();
        }
        self.bells.get()
    }

    fn has_identity(memory: &Mapping) -> bool {
        memory.objects::<Counter>(0, IDENTITY_WORDS).is_some_and(|words| {
            words[word::MAGIC].get_published() == MAGIC && words[word::VERSION].get() == LAYOUT_VERSION
        })
    }

    /// A segment of which only its size is known, with its doorbells.
    #[cfg(fuzzing)]
    pub(super) fn read(memory: &Arc<Mapping>, bell: &Arc<Mapping>) -> Option<Self> {
        let segment = Self::identified(memory, None)?;
        let _first = segment.bells.set(MappedArray::new(bell, 0)?);
        Some(segment)
    }

    /// The same, before they are mapped.
    fn identified(memory: &Arc<Mapping>, folder: Option<Arc<File>>) -> Option<Self> {
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
        Self::assemble(memory, owner, folder)
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn doorbell(&self) -> &Doorbell {
        self.bell(0)
    }

    /// One of the doorbells. Where messages move, [`Self::bells`] are kept.
    pub(super) fn bell(&self, index: usize) -> &Doorbell {
        self.bells().map_or(&NOBODY, |bells| &bells[index])
    }

    /// The table of subscriptions, by their bells: pairs of port + 1 and when they began, in ticks. 0: nobody. A time that is all
    /// ones: not yet known.
    pub(super) fn subscription(&self, bell: usize) -> &[Counter] {
        &self.subscriptions[2 * bell..2 * bell + 2]
    }

    /// Of its subscriptions, the bells that were ever used.
    pub(super) fn bells_used(&self) -> std::ops::RangeInclusive<usize> {
        *SUBSCRIPTION_BELLS.start()..=self.used(word::SUBSCRIPTIONS, *SUBSCRIPTION_BELLS.end())
    }

    /// The table of publications, as far as it was ever used: pairs of a ring's id and its target.
    pub(super) fn streams(&self) -> impl Iterator<Item = &[Counter]> {
        self.streams.chunks(2).take(self.used(word::STREAMS, STREAMS_MAX))
    }

    /// Rows of this owner's subscriptions, which show how far they have read, as far as the table was ever used.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[Counter]> {
        let used = self.used(word::ROWS, ROWS_MAX);
        if used > ROWS_STEP {
            self.open_further_rows();
        }
        self.rows.iter().take(used)
    }

    /// True if it has rows that this process could not map: a reader with one of them is taken for one that has not begun to read.
    pub(super) fn hides_rows(&self) -> bool {
        self.used(word::ROWS, ROWS_MAX) > ROWS_STEP && !self.rows.has_further()
    }

    /// Maps the rows that few nodes need, if they are not yet. If it cannot be done, the next look tries again.
    fn open_further_rows(&self) {
        let Some(folder) = self.folder.as_ref().filter(|_| !self.rows.has_further()) else { return };
        let name = &mut [0; Paths::NAME_SIZE];
        let name = Paths::name(self.owner.node, self.owner.life, "ring", name);
        if let Ok(further) = Mapping::open_part_in(folder.as_fd(), name, FURTHER) {
            self.rows.set_further(further);
        }
    }

    /// True if its subscriptions read rings by rows that nobody sees, for want of room: a writer that finds none does not wait for
    /// them.
    pub(super) fn has_unseen(&self) -> bool {
        self.identity[word::UNSEEN].get_published() != 0
    }

    /// So many rows of ours nobody sees.
    pub(super) fn set_unseen(&self, count: u64) {
        punctual_machine::label!("row.unseen");
        self.identity[word::UNSEEN].publish(count);
    }

    /// True if its owner has never sent, read or watched for nodes. It need not be told of anything: once it begins to, it looks at
    /// everybody.
    pub(super) fn is_idle(&self) -> bool {
        self.used(word::SUBSCRIPTIONS, 1) == 0 && self.used(word::STREAMS, 1) == 0
    }

    /// So many of a table's entries were ever used, by what its owner says.
    fn used(&self, word: usize, most: usize) -> usize {
        usize::try_from(self.identity[word].get_published()).map_or(most, |used| used.min(most))
    }

    fn note_used(&self, word: usize, count: usize) {
        if self.identity[word].get() < count as u64 {
            self.identity[word].publish(count as u64);
        }
    }

    /// The bell of a free entry in our table of subscriptions, which is about to be used.
    pub(super) fn free_subscription(&self) -> Option<usize> {
        let bell = SUBSCRIPTION_BELLS.into_iter().find(|&bell| self.subscription(bell)[0].get() == 0)?;
        self.note_used(word::SUBSCRIPTIONS, bell);
        Some(bell)
    }

    /// A free entry of our table of publications, which is about to be used.
    pub(super) fn free_stream(&self) -> Option<&[Counter]> {
        let index = self.streams.chunks(2).position(|entry| entry[0].get() == 0)?;
        self.note_used(word::STREAMS, index + 1);
        Some(&self.streams[2 * index..2 * index + 2])
    }

    /// So many rows of ours, from the first on, are used.
    pub(super) fn note_rows(&self, count: usize) {
        self.note_used(word::ROWS, count);
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

    /// When it came, in ticks: its place among those that join; 0 before it has one.
    pub(super) fn ticket(&self) -> u64 {
        self.identity[word::TICKET].get_published()
    }

    /// Key that orders nodes by their arrival.
    pub(super) fn order(&self) -> (u64, u64) {
        (self.ticket(), self.owner.life)
    }

    pub(super) fn set_ticket(&self, ticket: u64) {
        punctual_machine::label!("segment.ticket");
        self.identity[word::TICKET].publish(ticket);
        punctual_machine::label!("segment.ticket.done");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use proptest::prelude::*;

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
            size in prop_oneof![0_usize..4096, Just(SEGMENT_SIZE / 8), SEGMENT_SIZE / 8 - 99..SEGMENT_SIZE / 8],
            bell_size in prop_oneof![Just(BELL_SIZE / 8), 0_usize..16],
            likely: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let paths = Paths::new(folder.path(), NodeId::named("forger"), 7);
            let mut content: Vec<u64> = words.iter().copied().cycle().take(size).collect();
            if likely && size > 16 {
                content[word::MAGIC] = MAGIC;
                content[word::VERSION] = LAYOUT_VERSION;
                content[word::PID] >>= 32;
                content[word::NODE] = NodeId::named("forger").get();
                content[word::LIFE] = 7;
            }
            write_words(&paths.ring, &content);
            write_words(&paths.bell, &vec![words[0]; bell_size]);
            let opened = Arc::new(File::open(folder.path()).unwrap());
            let found = Segment::open(&opened, NodeId::named("forger"), 7).unwrap();
            if let Some((segment, life)) = found {
                prop_assert_eq!(life, Life::Ended, "nobody holds it");
                segment.state();
                segment.name();
                prop_assert!(segment.bells_used().all(|bell| SUBSCRIPTION_BELLS.contains(&bell)));
                prop_assert!(segment.streams().count() <= STREAMS_MAX);
                prop_assert!(segment.rows().map(|words| words[0].get() & 1).sum::<u64>() <= ROWS_MAX as u64);
                segment.doorbell().ring();
            }
        }
    }

    /// The figures of `docs/shared-memory.md`.
    #[test]
    fn the_layout_is_the_documented_one() {
        let document = include_str!("../../../../docs/shared-memory.md");
        for (at, what) in [
            (0, "identity"),
            (SUBSCRIPTIONS_AT, "subscriptions"),
            (STREAMS_AT, "publications"),
            (ROWS_AT, "rows"),
            (FURTHER.start, "more rows"),
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
            (word::HELD_BACK, "held back"),
            (word::STATE, "state"),
            (word::SUBSCRIPTIONS, "subscriptions in use"),
            (word::STREAMS, "publications in use"),
            (word::ROWS, "rows in use"),
            (word::NAME, "name"),
            (word::UNSEEN, "unseen"),
        ] {
            assert!(document.contains(&format!("| {} | {what}", 8 * index)), "{index}: {what}");
        }
    }
}
