//! Subjects of the fuzz targets: whole nodes whose medium, peer or page of counters is the fuzzer's.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::ring::RingWriter;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::{Address, Header, Kind, NodeId, Port, Target};

use crate::engine::wire::fuzzing::{self as wire, Fed};
use crate::engine::{Engine, Joined};
use crate::memory::fuzzing::{self as memory, Door, Stranger};
use crate::memory::stream::Layers;
use crate::node::Who;
use crate::seal::{Keys, NodeSealer, Seals};
use crate::{Communicator, Monitor, Node, SendError, Wake};

pub use crate::ledger::fuzzing::any_page;

/// Most messages taken after each input: the most that one frame or one lap of a ring can yield.
const MESSAGES_MAX: usize = 256;

fn node_over(engine: Engine, incarnation: u16, seals: Option<&Seals>) -> (Node, Communicator) {
    let node = Node::over(engine, Joined { incarnation }, who(NodeId::named("node")), seals.cloned());
    let node = node.expect("a page of memory");
    let communicator = node.bind(1).expect("the first");
    (node, communicator)
}

/// Takes what is there; everything about it can be read.
fn take_all(communicator: &mut Communicator) {
    for _ in 0..MESSAGES_MAX {
        let Ok(message) = communicator.try_receive() else { return };
        assert!(message.payload.len() <= 65_536, "no frame here is as large");
        let _any = (message.source.to_string(), message.target, message.stages.is_some());
    }
}

/// Looks at what there is; everything about it can be read.
fn observe_all(monitor: &mut Monitor) {
    let mut bytes = Vec::new();
    monitor.poll(MESSAGES_MAX, Duration::ZERO, |observed| {
        assert!(observed.len() <= 65_536, "no frame here is as large");
        bytes.resize(observed.len(), 0);
        let _any = (observed.source.to_string(), observed.target, observed.copy_to(&mut bytes));
    });
}

fn check_sums(node: &Node) {
    let ledger = node.ledger();
    assert!(ledger.is_balanced(), "{ledger}");
    for peer in node.peers() {
        assert!(peer.arrived <= ledger.arrived, "{peer:?}, {ledger}");
    }
}

/// Datagrams: each is a byte of flags, a byte of size, and as many bytes. See [`ethernet_frames`].
pub fn datagrams(bytes: &[u8]) {
    let sources = [([127, 0, 0, 1], 1), ([127, 0, 0, 1], 2), ([10, 0, 0, 3], 9)];
    feed(bytes, 0, &sources.map(std::net::SocketAddr::from));
}

fn who(node: NodeId) -> Who<'static> {
    Who { node, name: "node", bus: "fuzz", message_size_max: 1 << 16 }
}

/// Frames as raw Ethernet shows them, padded to the smallest. Flags: 1 = with the right check value; 2 and 4 = the source; 8 = cut
/// short by the kernel; 16 = others were dropped before it; 32 = time for housekeeping.
pub fn ethernet_frames(bytes: &[u8]) {
    feed(bytes, 46, &[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xFF; 6]]);
}

fn feed<A>(mut bytes: &[u8], size_min: usize, sources: &[A])
where
    A: Copy + PartialEq + Send + Sync + Debug + 'static,
{
    let (engine, feed) = wire::open(NodeId::named("node"), 7, None).expect("an eventfd");
    let (node, mut communicator) = node_over(engine, 7, None);
    while let Some((&[flags, size], rest)) = bytes.split_first_chunk::<2>() {
        let (frame, rest) = rest.split_at(rest.len().min(size.into()));
        bytes = rest;
        let mut frame = frame.to_vec();
        if flags & 1 != 0 {
            frame = wire::checked(frame);
        }
        frame.resize(frame.len().max(size_min), 0);
        let source = sources[usize::from(flags >> 1 & 3) % sources.len()];
        let truncated = flags & 8 != 0;
        let drops_before = u64::from(flags >> 4 & 1);
        feed.lock().expect("nobody panicked").push_back(Fed {
            bytes: frame,
            source,
            truncated,
            drops_before,
        });
        take_all(&mut communicator);
        if flags & 32 != 0 {
            node.housekeep();
        }
    }
    check_sums(&node);
    drop(communicator);
    assert!(node.ledger().is_balanced());
}

/// Datagrams to a sealed node: a byte of flags, a byte of size, and as many bytes. Flags: 1 = the bytes are laid over a genuine
/// frame, by exclusive or, and not frames themselves; 2 = the last genuine frame again. The check value is right.
pub fn sealed(mut bytes: &[u8]) {
    let keys = Keys::random(1);
    let seals = Seals::new(&keys, "udp fuzz", true);
    let (engine, feed) = wire::open(NodeId::named("node"), 7, Some(&seals)).expect("an eventfd");
    let (node, mut communicator) = node_over(engine, 7, Some(&seals));
    let mut sealer = Seals::new(&keys, "udp fuzz", true).sealer();
    let (mut genuine, mut delivered) = (0, 0);
    let mut last = Vec::new();
    while let Some((&[flags, size], rest)) = bytes.split_first_chunk::<2>() {
        let (given, rest) = rest.split_at(rest.len().min(size.into()));
        bytes = rest;
        let mut frame = given.to_vec();
        if flags & 1 != 0 {
            if flags & 2 == 0 || last.is_empty() {
                last = genuine_frame(&mut sealer, genuine);
                genuine += 1;
            }
            frame.clone_from(&last);
            frame.iter_mut().zip(given).for_each(|(byte, mask)| *byte ^= mask);
        }
        let bytes = wire::checked(frame);
        let source = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let fed = Fed { bytes, source, truncated: false, drops_before: 0 };
        feed.lock().expect("nobody panicked").push_back(fed);
        while let Ok(message) = communicator.try_receive() {
            assert_eq!((message.payload, message.sealed_in), (&b"genuine"[..], Some(1)));
            delivered += 1;
        }
    }
    assert!(delivered <= genuine, "{delivered} of {genuine}");
    check_sums(&node);
}

fn genuine_frame(sealer: &mut NodeSealer, sequence: u32) -> Vec<u8> {
    let payload = b"genuine";
    let header = Header {
        kind: Kind::Data,
        incarnation: 3,
        source: Address { node: NodeId::named("peer"), port: Port::from(1) },
        target: Target::EVERYONE,
        sequence,
        payload_size: payload.len() as u32,
        stamped: false,
        sealed: true,
    };
    let mut frame = vec![0; header.frame_size()];
    header.write(frame.first_chunk_mut().expect("a frame is never shorter than its header"));
    frame[HEADER_SIZE..header.unsealed_size()].copy_from_slice(payload);
    sealer.prepare(None).expect("a key was made");
    sealer.seal(&mut frame);
    frame
}

/// A peer in shared memory that honestly does, or scribbles, what the input says: operations of 11 bytes, namely which,
/// where (two bytes), and eight bytes of value.
pub fn peer_in_shared_memory(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let (stranger, writer) = Stranger::new(NodeId::named("stranger"), 7).expect("memory");
    if first & 1 != 0 {
        stranger.enter();
    }
    let own = NodeId::named("node");
    let (entered, door) = memory::open(&stranger, own, first & 2 != 0).expect("memory");
    let node = Node::in_memory(entered, Layers::default(), who(own), None).expect("a page");
    let communicator = node.bind(1).expect("the first");
    let monitor = node.monitor(Wake::Spin).expect("the second");
    let mut alley = Meeting { stranger, writer, door, node, communicator, monitor, is_honest: true };
    for operation in bytes.chunks_exact(11) {
        let place = u16::from_le_bytes([operation[1], operation[2]]).into();
        let mut value = [0; 8];
        value.copy_from_slice(&operation[3..]);
        alley.step(operation[0], place, u64::from_le_bytes(value));
    }
    take_all(&mut alley.communicator);
    observe_all(&mut alley.monitor);
    check_sums(&alley.node);
    if alley.is_honest {
        let ledger = alley.node.ledger();
        assert_eq!((ledger.corrupt_peers, ledger.bad_frames), (0, 0), "an honest peer is believed");
    }
}

struct Meeting {
    stranger: Arc<Stranger>,
    writer: RingWriter,
    door: Door,
    node: Node,
    communicator: Communicator,
    monitor: Monitor,
    is_honest: bool,
}

impl Meeting {
    fn step(&mut self, operation: u8, place: usize, value: u64) {
        match operation % 10 {
            0 => self.scribble(place, value),
            // The identity, and the tables by their first entries.
            1 => self.scribble(place % 16, value),
            2 => self.scribble([512, 1536, 2048][place % 3] + place / 3 % 8, value),
            // The ring: its identity, its control words, anything of it.
            3 => self.scribble_ring([place % 12, 128 + place % 16, place][place / 16 % 3], value),
            4 => self.scribble_commit_word(value),
            5 => self.publish(value as usize % 1_200),
            6 => {
                self.stranger.enter();
                self.door.visit();
            }
            7 => {
                let target =
                    if place.is_multiple_of(2) { Target::EVERYONE } else { Target::port("stranger", 1) };
                match self.communicator.try_send(target, &value.to_le_bytes()) {
                    Ok(()) | Err(SendError::Full | SendError::Unreachable | SendError::TooManyNodes) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            8 => {
                let words = self.stranger.bell_words();
                words[place % words.len()].set(value);
                self.node.housekeep();
            }
            _ if place.is_multiple_of(2) => take_all(&mut self.communicator),
            _ => observe_all(&mut self.monitor),
        }
    }

    fn scribble(&mut self, place: usize, value: u64) {
        self.is_honest = false;
        let words = self.stranger.words();
        words[place % words.len()].set(value);
    }

    fn scribble_ring(&mut self, place: usize, value: u64) {
        self.is_honest = false;
        let words = self.stranger.ring_words();
        words[place % words.len()].set(value);
    }

    /// A commit word whose number is right and whose size and flags are anything.
    fn scribble_commit_word(&mut self, value: u64) {
        let place = self.writer.position() as usize % self.writer.memory().capacity();
        let word = self.writer.sequence() << 32 | value & 0xFFFF_FFFF;
        self.scribble_ring((4096 + place) / 8, word);
    }

    /// A message as the library writes it.
    fn publish(&mut self, size: usize) {
        if self.writer.claim(8 + size).is_ok() {
            self.writer.write(0, &[0; 8]);
            self.writer.write(8, &vec![7; size]);
            self.writer.commit();
        }
    }
}
