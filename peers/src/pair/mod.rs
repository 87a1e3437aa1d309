//! One end of each mechanism.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::meeting::Meeting;
use crate::play::{self, Plan};

mod iceoryx;
mod kernel;
mod network;
mod ours;
mod publication;
mod ring;
mod slot;
#[cfg(feature = "zmq")]
mod zeromq;

pub(crate) use network::INTERFACES;

/// Longest time that one end waits for the other to appear, and of a send or a receive with a time limit.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ring of a stream that is sent message by message, bytes: larger than a core's own caches, and an eighth of Aeron's term. A line
/// that the reader's core still has must be taken from it before it can be stored to.
const STREAM_RING_SIZE: usize = 8 << 20;

/// One end.
pub(crate) trait Pair {
    /// Sends, waiting for room.
    fn send(&mut self, message: &[u8]) -> Outcome<()>;

    /// Waits for the next message, which has this size.
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()>;

    /// Sends a run of messages, numbered from `first` on, waiting for room.
    fn send_run(&mut self, first: u64, count: u64, message: &mut [u8]) -> Outcome<()> {
        for number in first..first + count {
            message[..8].copy_from_slice(&number.to_le_bytes());
            self.send(message)?;
        }
        Ok(())
    }

    /// Waits for the next message or messages, `limit` at the most, and shows them in a private copy; returns how many.
    fn receive_run(&mut self, _limit: u64, message: &mut [u8], show: &mut dyn FnMut(&[u8])) -> Outcome<u64> {
        self.receive(message)?;
        show(message);
        Ok(1)
    }

    /// Returns when what is sent will arrive.
    fn wait_for_peer(&mut self) -> Outcome<()>;

    // Here, and not outside, so that the calls in their loops are no virtual ones.

    fn ask(&mut self, plan: Plan) -> Outcome<Vec<u64>> {
        play::ask(self, plan)
    }

    fn answer(&mut self, plan: Plan) -> Outcome<()> {
        play::answer(self, plan)
    }

    fn write(&mut self, plan: Plan) -> Outcome<u64> {
        play::write(self, plan)
    }

    fn read(&mut self, plan: Plan) -> Outcome<()> {
        play::read(self, plan)
    }
}

/// Checks that a received message has the agreed size.
#[inline]
fn is_whole(size: usize, message: &[u8]) -> Outcome<()> {
    if size == message.len() { Ok(()) } else { Err(format!("a message of {size} B").into()) }
}

/// Opens this process's end. `held`: true if a writer must wait for its reader, so that a stream loses nothing.
pub(crate) fn open(kind: &str, size: usize, meeting: &Meeting, held: bool) -> Outcome<Box<dyn Pair>> {
    Ok(match (kind, size) {
        ("floor/slot", _) => Box::new(slot::Slot::open(meeting, false)?),
        ("floor/futex", _) => Box::new(slot::Slot::open(meeting, true)?),
        ("floor/ring", _) => Box::new(ring::Ring::open(meeting)?),
        ("iceoryx2", 64) => Box::new(iceoryx::Iceoryx::<64>::open(meeting, held)?),
        ("iceoryx2", 1024) => Box::new(iceoryx::Iceoryx::<1024>::open(meeting, held)?),
        ("iceoryx2", 8192) => Box::new(iceoryx::Iceoryx::<8192>::open(meeting, held)?),
        ("unix datagram", _) => Box::new(kernel::Datagram::open(meeting)?),
        ("unix stream", _) => Box::new(kernel::Stream::open(meeting)?),
        ("pipe", _) => Box::new(kernel::Pipe::open(meeting)?),
        #[cfg(feature = "zmq")]
        ("zmq ipc", _) => Box::new(zeromq::Zmq::open(meeting)?),
        ("floor/udp-spin", _) => Box::new(network::Udp::open(meeting, false)?),
        ("floor/udp-block", _) => Box::new(network::Udp::open(meeting, true)?),
        ("floor/packet-spin", _) => Box::new(network::Packet::open(meeting)?),
        _ if kind.starts_with("punctual publication/") => {
            Box::new(publication::Publications::open(kind, meeting, held)?)
        }
        _ if kind.starts_with("punctual ") => Box::new(ours::Ours::open(kind, meeting, held)?),
        _ => return Err(format!("unknown kind {kind:?} of {size} B").into()),
    })
}

/// A file of this meeting.
fn path(meeting: &Meeting, end: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/{}.{end}", meeting.name))
}

/// A file that goes with its maker.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// Tries again until it works or patience is over.
fn patiently<T, E: Into<Box<dyn Error>>>(mut attempt: impl FnMut() -> Result<T, E>) -> Outcome<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}
