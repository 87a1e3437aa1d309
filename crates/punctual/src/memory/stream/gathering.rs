//! Puts messages together whose fragments one subscription reads.

use std::cell::Cell;

use super::message::{Fate, StreamHead, StreamMessage};
use super::payload::Payload;
use crate::large::{Gathered, Gatherer, Origin};
use crate::ledger::{Count, RowCount};
use crate::node::About;

#[derive(Debug)]
pub(super) struct Gathering {
    gatherer: Gatherer,
    /// The message whose memory its reader has claimed.
    claimed: Vec<u8>,
    /// Where its node counts what it has, if it does.
    pub(super) row: Option<usize>,
}

impl Gathering {
    pub(super) fn new(about: &About) -> Self {
        Self { gatherer: Gatherer::new(&about.large), claimed: Vec::new(), row: None }
    }

    /// Shows a message to `take`. Of one that was cut it keeps the fragments, and shows it with the last of them.
    #[inline]
    pub(super) fn show(
        &mut self,
        about: &About,
        message: &StreamMessage<'_>,
        take: &mut (impl FnMut(&StreamMessage<'_>) -> bool + ?Sized),
    ) -> bool {
        match message.fragment_of {
            Some(life) if !message.is_unopened => self.gather(about, life, message, take),
            _ => take(message),
        }
    }

    #[inline(never)]
    fn gather(
        &mut self,
        about: &About,
        life: u64,
        message: &StreamMessage<'_>,
        take: &mut (impl FnMut(&StreamMessage<'_>) -> bool + ?Sized),
    ) -> bool {
        let StreamHead { source, target, sealed_in, .. } = *message.head;
        let origin = Origin { source, target, life, sealed_in };
        let (head, bytes) = message
            .payload
            .split_head()
            .unwrap_or(([0; punctual_proto::fragment::HEAD_SIZE], Payload::Private(&[])));
        if !message.payload.is_intact() {
            // A head that was written over moves nothing. The message's own question comes later: it would count as whole.
            message.fate.set(Fate::Overwritten);
            return true;
        }
        let copy = |room: &mut [u8]| {
            bytes.copy_to(room);
            message.is_intact()
        };
        match self.gatherer.gather(about, origin, (&head, bytes.len()), copy) {
            // What it is said to be may not be true either.
            Gathered::Void => return true,
            Gathered::Part if !message.is_intact() => return true,
            Gathered::Part => {}
            Gathered::Whole(place) => {
                let payload = Payload::Private(self.gatherer.bytes(place));
                let head = StreamHead { is_unopened: false, fragment_of: None, ..*message.head };
                let is_claimed = Cell::new(false);
                let whole =
                    StreamMessage { is_claimed: Some(&is_claimed), ..StreamMessage::new(&head, payload) };
                let is_taken = take(&whole);
                if is_taken {
                    let bytes = self.gatherer.take(about, place);
                    if is_claimed.get() {
                        self.claimed = bytes;
                    } else {
                        self.gatherer.give_back(about, bytes);
                    }
                    about.page.count(Count::LargeDelivered).add(1);
                    message.fate.set(Fate::Whole);
                }
                return is_taken;
            }
        }
        message.fate.set(Fate::Gathered);
        if let Some(row) = self.row {
            about.page.row(row)[RowCount::Delivered as usize].add_alone(1);
        }
        true
    }

    /// The message that was claimed becomes the reader's, and the reader's memory that of a later message.
    pub(super) fn exchange(&mut self, about: &About, buffer: &mut Vec<u8>) {
        let bytes = std::mem::replace(buffer, std::mem::take(&mut self.claimed));
        self.gatherer.give_back(about, bytes);
    }

    /// All that has come was looked at, and there is no message.
    #[inline]
    pub(super) fn handle_nothing(&mut self, about: &About) {
        self.gatherer.handle_nothing(about);
    }

    pub(super) fn close(&mut self, about: &About) {
        self.gatherer.close(about);
    }
}
