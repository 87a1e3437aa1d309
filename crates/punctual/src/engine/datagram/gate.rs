//! Lets a sender's first datagram to a node alone wait until what it sent to the group before is read.
//!
//! A node that does not know where another one is sends to the group; once it knows, to that one's own socket. A reader that looked
//! at its own socket first would take all that lies in the other for too late.

use punctual_machine::socket::address::RawAddress;
use punctual_proto::limits::NODES_MAX;

/// An empty datagram takes memory of the kernel, too, and more than this: its `struct sk_buff` alone is larger. Otherwise a sender of
/// such ones could keep others out for good.
const DATAGRAM_MIN: usize = 64;

/// The senders that may be heard at a node's own socket.
#[derive(Debug)]
pub(super) struct Gate {
    /// Senders that were let in. The oldest wait once more where they are too many.
    known: Vec<RawAddress>,
    oldest: usize,
    /// The last one.
    last: RawAddress,
    waiting: Option<RawAddress>,
    /// Bytes that the group's socket has room for.
    room: usize,
    /// Bytes of the group that may have been there before the sender that waits.
    left: usize,
}

impl Gate {
    /// Before a socket, beside a group's that has so much room.
    pub(super) fn new(room: usize) -> Self {
        let known = Vec::with_capacity(NODES_MAX);
        Self { known, oldest: 0, last: RawAddress::NONE, waiting: None, room, left: 0 }
    }

    /// True if this sender may be heard. If not, it waits at the gate.
    #[inline]
    pub(super) fn admits(&mut self, source: &RawAddress) -> bool {
        self.last == *source || self.admits_another(source)
    }

    fn admits_another(&mut self, source: &RawAddress) -> bool {
        if self.known.contains(source) {
            self.last = *source;
            return true;
        }
        (self.waiting, self.left) = (Some(*source), self.room);
        false
    }

    /// True if a sender waits: the group is read first.
    #[inline]
    pub(super) fn is_shut(&self) -> bool {
        self.waiting.is_some()
    }

    /// So many datagrams of the group were read, with so many bytes. Once that is more than its socket has room for, all has come that
    /// was there. A sender that talks to the group without end must not keep others out.
    pub(super) fn handle_read(&mut self, frames: usize, bytes: usize) {
        self.left = self.left.saturating_sub(bytes.max(frames * DATAGRAM_MIN));
        if self.left == 0 {
            self.open();
        }
    }

    /// Nothing is left in the group's socket.
    #[cold]
    pub(super) fn open(&mut self) {
        let Some(source) = self.waiting.take() else { return };
        self.last = source;
        if self.known.len() < NODES_MAX {
            return self.known.push(source);
        }
        self.known[self.oldest] = source;
        self.oldest = (self.oldest + 1) % NODES_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: usize) -> RawAddress {
        RawAddress::encode(([127, 0, 0, 1], port as u16).into())
    }

    /// Goal: each sender waits once, until the group is empty or as much of it was read as it has room for; of very many the oldest
    /// wait again.
    #[test]
    fn each_sender_waits_once() {
        let mut gate = Gate::new(100);
        for port in 1..=NODES_MAX + 1 {
            assert!(!gate.admits(&address(port)) && gate.is_shut());
            if port.is_multiple_of(2) {
                gate.open();
            } else {
                gate.handle_read(0, 0);
                gate.handle_read(1, 30);
                assert!(gate.is_shut());
                // An empty one takes memory, too.
                gate.handle_read(1, 0);
            }
            assert!(!gate.is_shut() && gate.admits(&address(port)));
        }
        assert!((2..=NODES_MAX + 1).all(|port| gate.admits(&address(port))));
        assert!(!gate.admits(&address(1)));
    }
}
