//! Every limit of the protocol, with its unit and its reason.

use crate::frame::HEADER_SIZE;
use crate::seal::SEAL_SIZE;
use crate::stamps::STAMPS_SIZE;
use crate::time::Nanos;

/// Largest payload of one frame on any medium, bytes. The size field of the header has 24 bits.
pub const PAYLOAD_SIZE_MAX: usize = (1 << 24) - 1;

/// Largest frame in front of its payload, bytes: header and stamps.
pub const PREFIX_SIZE_MAX: usize = HEADER_SIZE + STAMPS_SIZE;

/// Largest part of a frame that is not payload, bytes.
pub const OVERHEAD_SIZE_MAX: usize = PREFIX_SIZE_MAX + SEAL_SIZE;

/// Check value behind a frame on media that leave the machine, bytes (CRC-32C).
pub const CHECK_SIZE: usize = 4;

/// Largest payload of one UDP datagram, bytes: IPv4's 65,535 less its two headers, the prefix and the check.
pub const DATAGRAM_PAYLOAD_SIZE_MAX: usize = 65_507 - PREFIX_SIZE_MAX - CHECK_SIZE;

/// Largest message, bytes, where it may be cut into fragments: an image or a map at once, and little beside a host's memory.
pub const MESSAGE_SIZE_MAX: usize = 64 << 20;

/// Smallest fragment but the last, bytes: it bounds how many a message has. Frames of every medium carry more.
pub const FRAGMENT_SIZE_MIN: usize = 256;

/// Fragments of a message from the first missing one on of which a receipt tells: 1.4 MiB in frames of 1,500 bytes, which is more than a
/// usual receive buffer holds.
pub const FRAGMENT_WINDOW: usize = 1024;

/// Bytes of a message that are sent before its receiver has said what it has room for; it has more.
pub const FRAGMENT_ROOM_FIRST: u32 = 128 << 10;

/// Bytes of a message that may be under way regardless of losses.
pub const FRAGMENT_ROOM_MIN: u32 = 32 << 10;
const _: () = assert!(FRAGMENT_ROOM_MIN <= FRAGMENT_ROOM_FIRST);

/// Between two questions about a message that nobody answers: at first, and at most. A receiver that runs answers in less than the
/// first, and a frame in the second disturbs nobody.
pub const QUESTION_EVERY_MIN: Nanos = Nanos::from_millis(2);
/// See [`QUESTION_EVERY_MIN`].
pub const QUESTION_EVERY_MAX: Nanos = Nanos::from_millis(64);
/// So long at most an answer is awaited where everything was sent: the receiver that has it may have gone.
pub const SILENCE_MAX: Nanos = Nanos::from_millis(10_000);
const _: () =
    assert!(QUESTION_EVERY_MAX.0 < ASSEMBLY_AGE.0 / 8, "a message whose sender asks is not given up");

/// Messages that one receiver puts together at a time: more senders than that begin anew at the cost of the oldest.
pub const ASSEMBLIES_MAX: usize = 64;

/// Largest messages for which a node has memory while they are put together: one that is made and one that is delivered, and as
/// much again for those that will not be whole. Beyond that each communicator has room for one.
pub const ASSEMBLY_MESSAGES_MAX: usize = 4;

/// A message is given up when no fragment of it has come for so long: twice as long as its sender waits for room.
pub const ASSEMBLY_AGE: Nanos = Nanos::from_millis(2_000);

/// Classes of requests of one scheduler.
pub const CLASSES_MAX: usize = 32;

/// Tasks of one scheduler at a time. Each class has places for all, of 48 bytes, that are reserved at the start: 192 MiB a class. Their
/// numbers have 32 bits.
pub const TASKS_MAX: usize = 1 << 22;
const _: () = assert!(TASKS_MAX <= u32::MAX as usize);

/// Nodes on one bus. Every node keeps an entry for each of the others in a table of fixed size.
pub const NODES_MAX: usize = 256;

/// Communicators of one node. Each has a row of counters in the node's shared page.
pub const COMMUNICATORS_MAX: usize = 256;

/// Sequence numbers behind the newest in which a late frame is still accepted. One bit each in a `u64`.
pub const REORDER_WINDOW: u32 = 64;
const _: () = assert!(REORDER_WINDOW <= u64::BITS);

/// Least time between two frames of one stream on a wire, nanoseconds: Ethernet of 100 Gbit/s carries 149 million of the
/// smallest in a second.
pub const MESSAGE_INTERVAL_NS_MIN: u64 = 5;

/// Longest name of a bus or a node, bytes: a path of the bus's socket must stay below 108 bytes.
pub const NAME_SIZE_MAX: usize = 32;

/// Keys that one node holds: some groups, and of each the key that seals, the one before and the one to come.
pub const SEAL_KEYS_MAX: usize = 64;

/// Lives of senders whose numbers are remembered: each node of a bus, and an earlier life of it.
pub const SEAL_SENDERS_MAX: usize = 2 * NODES_MAX;

/// Largest difference between the clocks of two hosts on a sealed bus, nanoseconds, unless the keys say otherwise. A frame that was
/// sealed within that time before a node opened can be shown to it once more.
pub const SEAL_ALLOWANCE_NS: u64 = 2_000_000_000;

/// For how long a key is accepted after its successor began to seal, nanoseconds, unless the keys say otherwise: longer than
/// a message is under way, and than the clocks lie apart.
pub const SEAL_OVERLAP_NS: u64 = 10_000_000_000;
const _: () = assert!(SEAL_OVERLAP_NS > 2 * SEAL_ALLOWANCE_NS);

/// Members of one broadcast group. A set of them is a `u32`.
pub const GROUP_MEMBERS_MAX: usize = 32;
const _: () = assert!(GROUP_MEMBERS_MAX <= u32::BITS as usize);

/// Frames of one origin that not all members of a broadcast group have taken. At 1 GB/s and frames of 1,448 bytes it is 6 ms.
pub const BROADCAST_WINDOW_MAX: usize = 4096;

/// Largest message of a broadcast group, bytes.
pub const BROADCAST_MESSAGE_SIZE_MAX: usize = MESSAGE_SIZE_MAX;

/// Messages and repairs that a member of a broadcast group has yet to say. Messages and repairs that do not fit are asked for again.
pub const BROADCAST_REPAIRS_MAX: usize = 1024;

/// Memory for the frames of one broadcast group at one member, bytes.
pub const BROADCAST_MEMORY_MAX: usize = 1 << 30;

/// Longest heartbeat, suspicion and round trip of a broadcast group, ns: an hour, whose multiples are far from the ends of numbers.
pub const BROADCAST_TIME_NS_MAX: u64 = 3_600_000_000_000;

/// Commands that a copy of a replicated state keeps while it is restored, bytes: their own, and what it notes of each.
pub const REPLICA_BACKLOG_SIZE_MAX: usize = 1 << 30;

/// Parts of a snapshot that are broadcast and not delivered yet: enough to keep the order busy, too few to fill anybody's window.
pub const REPLICA_PARTS_MAX: usize = 4;
