//! Subjects of the comparison: games, mechanisms, and how much of a game makes a turn.

use crate::Outcome;
use crate::play::Plan;

/// A game that is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Game {
    /// One message at a time, there and back.
    PingPong,
    /// One writes as fast as it can, the other reads all.
    Stream,
}

impl Game {
    pub(crate) const ALL: [Self; 2] = [Self::PingPong, Self::Stream];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PingPong => "pingpong",
            Self::Stream => "stream",
        }
    }

    pub(crate) fn parse(name: &str) -> Outcome<Self> {
        let found = Self::ALL.into_iter().find(|game| game.name() == name);
        found.ok_or_else(|| format!("no game {name:?}: pingpong or stream").into())
    }
}

/// Results of a turn.
#[derive(Debug)]
pub(crate) enum Outcomes {
    /// Of every message, as they came, ns.
    Latencies(Vec<u64>),
    /// Of the whole stream, ns.
    Duration(u64),
}

/// A mechanism under comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Payloads of its ping-pong, bytes.
    pub(crate) sizes: &'static [usize],
    /// Payloads of its stream.
    pub(crate) stream_sizes: &'static [usize],
    /// True if no system call stands between the two.
    fast: bool,
}

const SIZES: &[usize] = &[64, 1024, 8192];
const STREAM_SIZES: &[usize] = &[64, 1024];

/// A slot is a floor where its bytes are few. One of 8 KiB is as slow as the library: both ends take the same lines from each
/// other again and again, which a ring does not (measured by the library's example `large_slot`). There the bare ring is
/// the floor.
const SLOT_SIZES: &[usize] = &[64, 1024];

pub(crate) const AERON: &str = "aeron ipc";
pub(crate) const ZMQ: &str = "zmq ipc";

/// The compared mechanisms, in the order of a round. Mechanisms that are compared stand close: the less time lies between two, the less
/// the machine has changed.
pub(crate) const KINDS: [Kind; 29] = [
    Kind { name: AERON, sizes: SIZES, stream_sizes: STREAM_SIZES, fast: true },
    Kind { name: "punctual publication/spin", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: true },
    Kind { name: "punctual publication/spin stamped", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: true },
    Kind { name: "punctual publication/spin stages", sizes: &[64], stream_sizes: &[], fast: true },
    Kind { name: "punctual publication/spin sealed", sizes: &[64], stream_sizes: &[], fast: true },
    Kind { name: "punctual publication/spin of 15", sizes: &[64], stream_sizes: &[], fast: true },
    Kind { name: "punctual publication/spin of 64", sizes: &[64], stream_sizes: &[], fast: true },
    Kind { name: "punctual publication/spin of 200", sizes: &[64], stream_sizes: &[], fast: true },
    Kind { name: "punctual publication/spin runs", sizes: &[], stream_sizes: STREAM_SIZES, fast: true },
    Kind { name: "punctual shared/spin", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: true },
    Kind { name: "floor/slot", sizes: SLOT_SIZES, stream_sizes: &[], fast: true },
    Kind { name: "punctual shared/spin timed", sizes: &[64], stream_sizes: &[], fast: true },
    Kind { name: "punctual shared/spin stamped", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: true },
    Kind { name: "floor/ring", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: true },
    Kind { name: "iceoryx2", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: true },
    Kind { name: "floor/futex", sizes: SLOT_SIZES, stream_sizes: &[], fast: false },
    Kind { name: "punctual publication/futex", sizes: SIZES, stream_sizes: &[], fast: false },
    Kind { name: "punctual shared/futex", sizes: SIZES, stream_sizes: &[], fast: false },
    Kind { name: "unix datagram", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: false },
    Kind { name: "unix stream", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: false },
    Kind { name: "pipe", sizes: SIZES, stream_sizes: STREAM_SIZES, fast: false },
    Kind { name: ZMQ, sizes: SIZES, stream_sizes: STREAM_SIZES, fast: false },
    Kind { name: "floor/udp-spin", sizes: &[64], stream_sizes: &[], fast: false },
    Kind { name: "punctual datagram/spin", sizes: &[64], stream_sizes: &[], fast: false },
    Kind { name: "floor/udp-block", sizes: &[64], stream_sizes: &[], fast: false },
    Kind { name: "punctual datagram/epoll", sizes: &[64], stream_sizes: &[], fast: false },
    Kind { name: "punctual datagram/eventfd", sizes: &[64], stream_sizes: &[], fast: false },
    Kind { name: "floor/packet-spin", sizes: &[64], stream_sizes: &[], fast: false },
    Kind { name: "punctual packet/spin", sizes: &[64], stream_sizes: &[], fast: false },
];

impl Kind {
    /// A turn is short, so that a round of all is over before the machine has changed: some 10 ms each.
    pub(crate) fn plan(self, game: Game, size: usize) -> Plan {
        let messages = match (game, self.fast) {
            (Game::PingPong, true) => 20_000,
            (Game::PingPong, false) => 2_000,
            (Game::Stream, true) => 25_600_000 / size.max(128),
            (Game::Stream, false) => 10_000,
        };
        Plan { size, warmup: messages / 20, messages }
    }

    /// True if it takes part.
    pub(crate) fn plays(self, game: Game, size: usize) -> bool {
        match game {
            Game::PingPong => self.sizes.contains(&size),
            Game::Stream => self.stream_sizes.contains(&size),
        }
    }
}
