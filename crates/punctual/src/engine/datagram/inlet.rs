//! One socket of a node, and what was taken from it.

use std::net::SocketAddr;
use std::sync::Arc;

use punctual_machine::counter::Counter;
use punctual_machine::slept::Slept;
use punctual_machine::socket::address::RawAddress;
use punctual_machine::socket::{RUN_LEN_MAX, RecvBatch, UdpSocket};

use super::cut::Cut;
use super::gate::Gate;
use super::merging::Merging;
use crate::engine::Flow;
use crate::engine::wire::RawFrame;

/// Errors in a row after which a socket has nothing for now. An ICMP answer is one; a socket that is broken gives no end of them.
const ERRORS_MAX: u32 = 4;

/// One socket and what was taken from it.
#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) batch: RecvBatch,
    /// The first datagram of the batch that was not shown whole yet, and how much of it was.
    pub(super) next: usize,
    pub(super) cut: Cut,
    /// Largest frame with its check value, bytes.
    pub(super) frame_size_max: usize,
    /// The only one to be heard, also while the socket is not connected to it.
    pub(super) peer: Option<SocketAddr>,
    /// Where nudges come from.
    pub(super) own: Option<SocketAddr>,
    /// Most frames that a datagram of a node's sockets was.
    pub(super) longest_run: Arc<Counter>,
    /// Decides whether runs come as one, unless that is the same all the time.
    pub(super) merging: Option<Merging>,
    /// The last look at the kernel's datagrams.
    pub(super) look: Look,
    /// Keeps senders back that are heard for the first time, at a node's own socket beside a group's.
    pub(super) gate: Option<Gate>,
}

/// A look at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is still to come.
    Wanted,
    /// It brought what it asked for, or an error: there may be more.
    Taken,
    /// It found the end of what was there.
    Ended,
}

/// Frames and bytes of a socket that were shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

/// True if two addresses are one; the kernel adds parts that only this host uses.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip() == other.ip()
}

impl Inlet {
    pub(super) fn has_rest(&self) -> bool {
        self.next < self.batch.len()
    }

    #[inline]
    pub(super) fn poll(
        &mut self,
        limit: usize,
        visit: &mut impl FnMut(RawFrame<'_, RawAddress>) -> Flow,
    ) -> (Shown, Flow) {
        let (mut shown, mut flow) = (Shown::default(), Flow::Continue);
        if !self.has_rest() {
            self.next = 0;
            if self.receive(limit) == 0 {
                return (shown, flow);
            }
        }
        while shown.frames < limit && flow == Flow::Continue {
            let Some(datagram) = self.batch.get(self.next) else { break };
            if self.gate.as_mut().is_some_and(|gate| !gate.admits(datagram.source)) {
                break;
            }
            let piece = self.cut.next(datagram.bytes);
            if let Some(frames) = piece.ended {
                self.next += 1;
                // The sender is not known yet: none of ours sends longer runs.
                let frames = frames.min(RUN_LEN_MAX as u64);
                if frames > self.longest_run.get() {
                    self.longest_run.set(frames);
                }
                if let Some(merging) = &mut self.merging {
                    merging.handle_datagram(&self.socket, frames);
                }
            }
            shown.frames += 1;
            shown.bytes += piece.bytes.len();
            // While the kernel is not asked for it, the source is the peer.
            let is_from = |one: SocketAddr| is_same(one, datagram.source.socket_addr());
            let is_stranger = self.batch.asks_sources() && self.peer.is_some_and(|peer| !is_from(peer));
            let is_nudge = datagram.bytes.is_empty() && self.own.is_some_and(is_from);
            if is_stranger || is_nudge {
                continue;
            }
            flow = visit(RawFrame {
                bytes: piece.bytes,
                source: datagram.source,
                truncated: piece.bytes.len() > self.frame_size_max
                    || datagram.truncated && piece.ended.is_some(),
                kernel_ns: datagram.kernel_receive_ns,
            });
        }
        (shown, flow)
    }

    /// Receives the datagrams that the kernel has; returns their number.
    fn receive(&mut self, limit: usize) -> usize {
        // An error belongs to an earlier datagram of ours (its port was closed), and datagrams may wait behind it. A thread that was
        // told of both by one edge is not told again.
        for _ in 0..ERRORS_MAX {
            if let Ok(count) = self.socket.recv_batch(&mut self.batch, limit) {
                self.note_call(count);
                // Behind the datagrams of a connected socket there may be an error.
                let has_ended = count == 0 || self.batch.ended_early() && self.peer.is_none();
                self.look = if has_ended { Look::Ended } else { Look::Taken };
                return count;
            }
        }
        self.look = Look::Taken;
        0
    }

    /// Sleeps in the call that receives.
    pub(super) fn sleep(&mut self) -> Slept {
        debug_assert!(!self.has_rest(), "it was asked before");
        self.next = 0;
        let received = self.socket.recv_batch_asleep(&mut self.batch);
        self.look = Look::Taken;
        self.note_call(self.batch.len());
        if matches!(received, Ok(0)) { Slept::ToTheLimit } else { Slept::Less }
    }

    #[inline]
    fn note_call(&mut self, datagrams: usize) {
        if let Some(merging) = &mut self.merging {
            merging.handle_call(&self.socket, datagrams);
        }
    }
}
