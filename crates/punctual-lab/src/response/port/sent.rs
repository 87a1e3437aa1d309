//! What was sent and has no stamp of the device yet.

use std::collections::VecDeque;

use punctual::Ticks;
use punctual_machine::socket::UdpSocket;

use super::instant_of;

/// Sends of one socket that wait for their stamps. Beyond this, stamps are given up.
const UNSTAMPED_MAX: usize = 1024;

/// The sends of one socket, by the kernel's number and the caller's tag.
#[derive(Debug)]
pub(super) struct Sent {
    count: u32,
    unstamped: VecDeque<(u32, u64)>,
    /// Stamps that were read to empty the queue, before anybody asked for them.
    early: Vec<(u64, Ticks)>,
}

impl Sent {
    pub(super) fn new() -> Self {
        let (unstamped, early) = (VecDeque::with_capacity(UNSTAMPED_MAX), Vec::with_capacity(UNSTAMPED_MAX));
        Self { count: 0, unstamped, early }
    }

    /// The socket sent once more.
    #[inline]
    pub(super) fn note(&mut self, tag: u64) {
        if self.unstamped.len() == UNSTAMPED_MAX {
            self.unstamped.pop_front();
        }
        self.unstamped.push_back((self.count, tag));
        self.count = self.count.wrapping_add(1);
    }

    /// Visits the stamps that are there, by tag.
    pub(super) fn visit(&mut self, socket: &UdpSocket, visit: &mut dyn FnMut(u64, Ticks)) {
        self.early.drain(..).for_each(|(tag, at)| visit(tag, at));
        if self.unstamped.is_empty() {
            return;
        }
        let unstamped = &mut self.unstamped;
        // An error of the queue costs stamps, not packets.
        let _stamps_lost = socket.read_transmit_timestamps(&mut |number, ns| {
            while let Some(&(oldest, tag)) = unstamped.front() {
                if number.wrapping_sub(oldest) > u32::MAX / 2 {
                    break;
                }
                unstamped.pop_front();
                if oldest == number {
                    visit(tag, instant_of(Some(ns)));
                    break;
                }
            }
        });
    }

    /// Empties the socket's queue, for who waits on it would be woken by a stamp; the stamps are kept.
    pub(super) fn keep(&mut self, socket: &UdpSocket) {
        if self.unstamped.is_empty() {
            return;
        }
        let mut early = std::mem::take(&mut self.early);
        self.visit(socket, &mut |tag, at| {
            if early.len() < UNSTAMPED_MAX {
                early.push((tag, at));
            }
        });
        self.early = early;
    }
}
