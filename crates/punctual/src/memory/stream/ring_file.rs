//! The memory of one publication. Byte by byte in `docs/shared-memory.md`.
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 104 | identity: magic, layout, whose it is, for whom |
//! | 1,024 | 128 | control words of the ring |
//! | 4,096 | capacity | the ring |

use std::sync::Arc;

use punctual_machine::counter::Counter;
use punctual_machine::memory::{MappedSlice, Mapping};
use punctual_machine::ring::{RING_CONTROL_SIZE, RingMemory};
use punctual_proto::{NodeId, Port, Target};

const MAGIC: u64 = u64::from_le_bytes(*b"PUNCRING");
const LAYOUT_VERSION: u64 = 4;

const CONTROL_AT: usize = 1024;
const RECORDS_AT: usize = 4096;
const _: () = assert!(IDENTITY_WORDS * 8 <= CONTROL_AT && CONTROL_AT + RING_CONTROL_SIZE <= RECORDS_AT);

const IDENTITY_WORDS: usize = 13;

/// Words of the identity, by index.
mod word {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const NODE: usize = 2;
    pub(super) const LIFE: usize = 3;
    pub(super) const ID: usize = 4;
    pub(super) const SOURCE: usize = 5;
    pub(super) const TARGET_NODE: usize = 6;
    pub(super) const TARGET_PORT: usize = 7;
    pub(super) const CAPACITY: usize = 8;
    pub(super) const CLOSED: usize = 9;
    pub(super) const BEGAN: usize = 10;
    pub(super) const SEALED: usize = 11;
    pub(super) const ENTERED: usize = 12;
}

/// In place of the time since when a ring can be found: that comes only now, after everything there is.
pub(in crate::memory) const ENTERS: u64 = u64::MAX;

/// Properties of a publication that never change once it can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) struct RingIdentity {
    pub(in crate::memory) id: u64,
    pub(in crate::memory) node: NodeId,
    pub(in crate::memory) life: u64,
    pub(in crate::memory) source: Port,
    pub(in crate::memory) target: Target,
    pub(in crate::memory) capacity: usize,
    /// When it was made, in ticks.
    pub(in crate::memory) began: u64,
    /// Since when it can be found, in ticks. A subscription that began before reads it from its beginning. [`ENTERS`]: not yet known.
    pub(in crate::memory) entered: u64,
    /// Its messages are sealed.
    pub(in crate::memory) sealed: bool,
}

impl RingIdentity {
    /// Its owner and its id; the id alone could be claimed by anybody.
    pub(in crate::memory) fn ring(&self) -> (NodeId, u64, u64) {
        (self.node, self.life, self.id)
    }

    /// True if messages are for this port of this node. Everybody is everybody but the sender itself; a message to its own port is sent
    /// on purpose.
    pub(in crate::memory) fn is_for(&self, node: NodeId, port: Port) -> bool {
        let itself = (self.node, self.source) == (node, port) && self.target.port.is_none();
        self.target.includes_node(node) && self.target.includes_port(port) && !itself
    }
}

/// Word of a target in the table of rings, so that few files are opened in vain. It has the port in the highest 16 bits, the lowest 48
/// of the node's id below, zero for all nodes.
pub(in crate::memory) fn target_word(target: Target) -> u64 {
    let port = u64::from(target.port.map_or(u16::MAX, Port::get));
    let node = target.node.map_or(0, |node| node.get() << 16 >> 16);
    port << 48 | node
}

/// True if a ring with this word in the table may be for this port of this node. Its own page decides.
pub(in crate::memory) fn may_mean(word: u64, node: NodeId, port: Port) -> bool {
    let (target_port, target_node) = ((word >> 48) as u16, word << 16 >> 16);
    (target_port == u16::MAX || target_port == port.get())
        && (target_node == 0 || target_node == node.get() << 16 >> 16)
}

/// The ring of one publication.
#[derive(Debug)]
pub(in crate::memory) struct RingFile {
    identity: MappedSlice<Counter>,
    pub(in crate::memory) ring: RingMemory,
    pub(in crate::memory) about: RingIdentity,
}

impl RingFile {
    /// Size of the memory for a ring of `capacity` bytes.
    pub(in crate::memory) fn size(capacity: usize) -> usize {
        RECORDS_AT + capacity
    }

    /// A new ring in memory of its size.
    pub(in crate::memory) fn fill(memory: &Arc<Mapping>, about: RingIdentity) -> Self {
        let file = Self::assemble(memory, about).expect("the memory was made for it");
        let words = &file.identity;
        let set = |index: usize, value: u64| {
            punctual_machine::label!("stream.fill");
            words[index].set(value);
        };
        set(word::VERSION, LAYOUT_VERSION);
        set(word::NODE, about.node.get());
        set(word::LIFE, about.life);
        set(word::ID, about.id);
        set(word::SOURCE, about.source.get().into());
        set(word::TARGET_NODE, about.target.node.map_or(0, NodeId::get));
        set(word::TARGET_PORT, about.target.port.map_or(u16::MAX, Port::get).into());
        set(word::CAPACITY, about.capacity as u64);
        set(word::BEGAN, about.began);
        set(word::SEALED, about.sealed.into());
        set(word::ENTERED, about.entered);
        words[word::MAGIC].publish(MAGIC);
        punctual_machine::label!("stream.filled");
        file
    }

    /// A ring of somebody else; `None` if it is none.
    pub(in crate::memory) fn read(memory: &Arc<Mapping>) -> Option<Self> {
        let words: &[Counter] = memory.objects(0, IDENTITY_WORDS)?;
        if words[word::MAGIC].get_published() != MAGIC || words[word::VERSION].get() != LAYOUT_VERSION {
            return None;
        }
        let target_node = words[word::TARGET_NODE].get();
        let node = if target_node == 0 { None } else { Some(NodeId::new(target_node)?) };
        let port = u16::try_from(words[word::TARGET_PORT].get()).ok().map(Port::from)?;
        let about = RingIdentity {
            id: words[word::ID].get(),
            node: NodeId::new(words[word::NODE].get())?,
            life: words[word::LIFE].get(),
            source: Port::from(u16::try_from(words[word::SOURCE].get()).ok()?),
            target: Target { node, port: Some(port).filter(|port| !port.is_reserved()) },
            capacity: usize::try_from(words[word::CAPACITY].get()).ok()?,
            began: words[word::BEGAN].get(),
            entered: words[word::ENTERED].get_published(),
            sealed: words[word::SEALED].get() != 0,
        };
        Self::assemble(memory, about)
    }

    fn assemble(memory: &Arc<Mapping>, about: RingIdentity) -> Option<Self> {
        Some(Self {
            identity: MappedSlice::new(memory, 0, IDENTITY_WORDS)?,
            ring: RingMemory::in_mapping(Arc::clone(memory), CONTROL_AT, RECORDS_AT, about.capacity)?,
            about,
        })
    }

    /// It can be found since this time, in ticks.
    pub(in crate::memory) fn enter(&mut self, now: u64) {
        punctual_machine::label!("stream.time");
        self.about.entered = now;
        self.identity[word::ENTERED].publish(now);
        punctual_machine::label!("stream.timed");
    }

    /// Nothing will be written any more.
    pub(in crate::memory) fn close(&self) {
        punctual_machine::label!("stream.close");
        self.identity[word::CLOSED].publish(1);
        punctual_machine::label!("stream.closed");
    }

    pub(in crate::memory) fn is_closed(&self) -> bool {
        self.identity[word::CLOSED].get_published() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_machine::ring::{Next, RingReader};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        /// Goal: memory with any bytes is refused, or read without harm.
        /// Method: random words, half of them behind an identity that is nearly right; some laps of reading.
        #[test]
        fn any_memory_is_refused_or_harmless(
            words in proptest::collection::vec(any::<u64>(), 64),
            pages in 1_usize..4,
            likely: bool,
        ) {
            let memory = Arc::new(Mapping::anonymous(pages * 4096).unwrap());
            let all: &[Counter] = memory.objects(0, pages * 512).unwrap();
            for (counter, word) in all.iter().zip(words.iter().cycle()) {
                counter.set(*word);
            }
            if likely {
                all[word::MAGIC].set(MAGIC);
                all[word::VERSION].set(LAYOUT_VERSION);
                all[word::SOURCE].set(words[5] >> 48);
                all[word::TARGET_PORT].set(words[7] >> 48);
                all[word::CAPACITY].set(4096 << (words[8] % 3));
            }
            if let Some(file) = RingFile::read(&memory) {
                prop_assert!(file.about.capacity + RECORDS_AT <= memory.size());
                let _any_answer_will_do = file.is_closed();
                let mut reader = RingReader::from_now(file.ring);
                for _ in 0..100 {
                    if let Next::Frame(frame) = reader.peek() {
                        frame.bytes().to_vec();
                        if frame.is_intact() {
                            frame.consume();
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_word_of_a_target_means_whom_the_target_means() {
        let (a, b) = (NodeId::named("a"), NodeId::named("b"));
        let (one, two) = (Port::from(1), Port::from(2));
        for target in [Target::EVERYONE, Target::node(a), Target::port(a, one), Target::everyone_at(two)] {
            for (node, port) in [(a, one), (a, two), (b, one), (b, two)] {
                let meant = target.includes_node(node) && target.includes_port(port);
                assert_eq!(may_mean(target_word(target), node, port), meant, "{target}: {node}:{port}");
            }
        }
    }
}
