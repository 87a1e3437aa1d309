//! How a message larger than a frame is sent: fragment by fragment, each when there is room for it.

use std::time::Duration;

use punctual_machine::block;
use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::Target;
use punctual_proto::fragment::HEAD_SIZE;

use super::{Communicator, End};
use crate::engine::SendError;
use crate::ledger::Count;
use crate::node::sending::Timing;

/// Bytes after which a kernel's medium is given time, and how long each takes: 200 MB/s. Nothing there tells a sender that its
/// receiver is behind; a receive buffer of 1 MiB takes as much as comes in 5 ms.
const BYTES_AT_ONCE: usize = 96 << 10;
const BYTE_TAKES_NS: u64 = 5;

/// A part of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment<'a> {
    pub(super) target: Target,
    pub(super) head: [u8; HEAD_SIZE],
    pub(super) bytes: &'a [u8],
    /// Of the message: all its fragments were sent when it was.
    pub(super) timing: Timing,
    /// Its sender waits for readers that are behind, also where others are written over.
    pub(super) waits: bool,
}

impl Fragment<'_> {
    /// Writes it where a frame's payload goes.
    pub(super) fn write(&self, room: &mut [u8]) {
        let (head, bytes) = room.split_at_mut(HEAD_SIZE);
        head.copy_from_slice(&self.head);
        block::copy(self.bytes, bytes);
    }
}

/// Spreads bytes over time.
#[derive(Debug)]
struct Pace {
    bytes: usize,
    next: Ticks,
}

impl Pace {
    /// So many bytes were taken. Whether they are to be flushed, and waited for until then.
    fn handle_taken(&mut self, bytes: usize, clock: &Clock) -> Option<Ticks> {
        self.bytes += bytes;
        if self.bytes < BYTES_AT_ONCE {
            return None;
        }
        let takes = Duration::from_nanos(self.bytes as u64 * BYTE_TAKES_NS);
        self.bytes = 0;
        self.next = self.next.max(clock.now()).plus(clock.ticks(takes));
        Some(self.next)
    }
}

impl Communicator {
    /// Largest message that it sends, bytes ([`crate::NodeOptions::message_size_max`]).
    pub fn message_size_max(&self) -> usize {
        self.about().large.message_size_max(self.about().payload_size_max)
    }

    /// Sends a message that is too large for a frame; waits for room for each fragment for at most `timeout`.
    #[cold]
    pub(super) fn send_cut(
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
        timeout: Duration,
    ) -> Result<(), SendError> {
        let about = self.about();
        let (clock, heads) = (about.clock, about.large.cut(payload.len(), about.payload_size_max)?);
        let (timing, waits) = (Timing { due, sent: about.sent_once(clock.now()) }, !timeout.is_zero());
        let mut pace = Pace { bytes: 0, next: timing.sent };
        for head in heads {
            let (bytes, is_first) = (&payload[head.range()], head.at == 0);
            let fragment = Fragment { target, head: head.to_bytes(), bytes, timing, waits };
            self.persist(timeout, |own| match &mut own.end {
                End::Wire(end) => end.put_fragment(&fragment),
                End::Memory(end) => end.outlet.put_fragment(&fragment),
            })?;
            self.about().page.count(Count::LargeSent).add(is_first.into());
            if let (true, End::Wire(end)) = (waits, &mut self.end)
                && let Some(until) = pace.handle_taken(bytes.len(), clock)
            {
                end.flush();
                std::thread::sleep(clock.duration(until.since(clock.now())));
            }
        }
        self.flush();
        Ok(())
    }
}
