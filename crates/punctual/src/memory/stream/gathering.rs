//! Puts messages together whose fragments one subscription reads.

use std::cell::Cell;

use punctual_proto::fragment::HEAD_SIZE;

use super::message::{Fate, MessageHandler, StreamHead, StreamMessage};
use super::payload::Payload;
use crate::large::{Gathered, Gatherer, Origin, now};
use crate::ledger::{Count, RowCount};
use crate::node::About;

/// Shows messages to another handler. Of one that was cut it keeps the fragments, and shows it with the last of them.
pub(super) struct WholeMessages<'a, H: ?Sized> {
    pub(super) gathering: &'a mut Gathering,
    pub(super) about: &'a About,
    pub(super) handler: &'a mut H,
}

impl<H: MessageHandler + ?Sized> MessageHandler for WholeMessages<'_, H> {
    #[inline]
    fn handle(&mut self, message: &StreamMessage<'_>) -> bool {
        match message.fragment_of {
            Some(life) if !message.is_unopened => {
                self.gathering.gather(self.about, life, message, self.handler)
            }
            _ => self.handler.handle(message),
        }
    }
}

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

    #[inline(never)]
    fn gather(
        &mut self,
        about: &About,
        life: u64,
        message: &StreamMessage<'_>,
        handler: &mut (impl MessageHandler + ?Sized),
    ) -> bool {
        let StreamHead { source, target, sealed_in, .. } = *message.head;
        let origin = Origin { source, target, life, sealed_in };
        let (head, bytes) = message.payload.split_head().unwrap_or(([0; HEAD_SIZE], Payload::Private(&[])));
        if !message.payload.is_intact() {
            // A head that was written over moves nothing. The message's own question comes later: it would count as whole.
            message.fate.set(Fate::Overwritten);
            return true;
        }
        match self.take_in(about, origin, (&head, bytes), || message.is_intact()) {
            // The statement of its head may be false.
            None | Some(Gathered::Void) => {
                message.fate.set(Fate::Overwritten);
                return true;
            }
            Some(Gathered::Part) => {}
            Some(Gathered::Whole(place)) => {
                let payload = Payload::Private(self.gatherer.bytes(place));
                let head = StreamHead { is_unopened: false, fragment_of: None, ..*message.head };
                let is_claimed = Cell::new(false);
                let whole =
                    StreamMessage { is_claimed: Some(&is_claimed), ..StreamMessage::new(&head, payload) };
                let is_taken = handler.handle(&whole);
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

    /// The message that was claimed: its memory is the reader's until [`Self::give_back`].
    pub(super) fn take_claimed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.claimed)
    }

    /// The memory of a message that was claimed becomes that of a later one.
    pub(super) fn give_back(&mut self, about: &About, bytes: Vec<u8>) {
        self.gatherer.give_back(about, bytes);
    }

    /// Takes a fragment in, if it is as it was sent. For one that was copied this is asked right after the copy: later writes do not
    /// matter, because the copy is here.
    fn take_in(
        &mut self,
        about: &About,
        origin: Origin,
        (head, bytes): (&[u8; HEAD_SIZE], Payload<'_>),
        is_intact: impl Fn() -> bool,
    ) -> Option<Gathered> {
        let mut has_copied = false;
        let copy = |room: &mut [u8]| {
            bytes.copy_to(room);
            has_copied = is_intact();
            has_copied
        };
        let gathered = self.gatherer.gather(about, origin, (head, bytes.len()), copy);
        (has_copied || is_intact()).then_some(gathered)
    }

    /// True if a message is being put together, or the memory of one is kept.
    #[inline]
    pub(super) fn is_gathering(&self) -> bool {
        self.gatherer.is_gathering()
    }

    /// All that has come was looked at, and there is no message.
    #[inline]
    pub(super) fn handle_nothing(&mut self, about: &About) {
        self.gatherer.handle_nothing(about, now(about));
    }

    pub(super) fn close(&mut self, about: &About) {
        self.gatherer.close(about);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_proto::Target;
    use punctual_proto::fragment::Head;
    use punctual_proto::limits::{ASSEMBLY_AGE, FRAGMENT_SIZE_MIN};

    use super::*;
    use crate::publication::TakeError;
    use crate::{Bus, NodeOptions, PublicationOptions, SubscriptionOptions};

    const MINUTE: Duration = Duration::from_secs(60);

    /// Goal: a fragment that was copied whole is here, though its writer comes by just after. One that was not is nothing.
    #[test]
    fn a_fragment_is_here_once_it_is_copied() {
        const SIZE: u32 = FRAGMENT_SIZE_MIN as u32;
        let node = NodeOptions::new("node").message_size_max(1 << 16).open(&Bus::loopback("parts")).unwrap();
        let subscription = node.subscription(7, &SubscriptionOptions::default()).unwrap();
        let about = &subscription.streams().about;
        let mut gathering = Gathering::new(about);
        let (source, target) = (subscription.address(), Target::node(node.id()));
        let origin = Origin { source, target, life: 1, sealed_in: None };
        let mut take_in = |number, answers: &[bool]| {
            let head =
                Head { number, message_size: 2 * SIZE, at: 0, fragment_size: SIZE, is_repaired: false };
            let asked = Cell::new(0);
            let bytes = Payload::Private(&[7; SIZE as usize]);
            gathering.take_in(about, origin, (&head.to_bytes(), bytes), || {
                asked.set(asked.get() + 1);
                answers[asked.get() - 1]
            })
        };
        assert_eq!(take_in(1, &[true, false]), Some(Gathered::Part));
        assert_eq!(take_in(2, &[false, false]), None);
        assert_eq!(about.page.count(Count::FragmentsRefused).get(), 0);
    }

    /// Goal: a look that ends at a message which does not fit gives no other one up, however old: its rest lies unread. Method: that
    /// message comes from the sender that was read last, so that nobody else's ring is looked at.
    #[test]
    fn a_message_that_does_not_fit_gives_no_other_up() {
        const SIZE: u32 = FRAGMENT_SIZE_MIN as u32;
        let bus = Bus::loopback("unread-parts");
        let open = |name| NodeOptions::new(name).message_size_max(1 << 16).open(&bus).unwrap();
        let (last, cuts, there) = (open("last"), open("cuts"), open("there"));
        let (mut sender, mut receiver) = (last.bind(1).unwrap(), there.bind(7).unwrap());
        let target = Target::port("there", 7);
        let mut parts = cuts.publication(target, &PublicationOptions::default()).unwrap();
        let mut put = |at| {
            let head =
                Head { number: 1, message_size: 2 * SIZE, at, fragment_size: SIZE, is_repaired: false };
            let mut claim = parts.claim_fragment(HEAD_SIZE + SIZE as usize, None, false).unwrap();
            let (room, bytes) = claim.payload().split_at_mut(HEAD_SIZE);
            room.copy_from_slice(&head.to_bytes());
            bytes.fill(7);
            claim.commit();
        };
        sender.send(target, b"first").unwrap();
        assert_eq!(receiver.receive_timeout(MINUTE).unwrap().payload, b"first");
        put(0);
        assert!(receiver.try_receive().is_err(), "it is a part");
        std::thread::sleep(Duration::from_nanos(ASSEMBLY_AGE.0));
        put(SIZE);
        sender.send(target, b"larger than the buffer").unwrap();
        assert_eq!(receiver.try_receive_into(&mut [0; 8]), Err(TakeError::BufferTooSmall { size: 22 }));
        assert_eq!(receiver.receive_timeout(MINUTE).unwrap().payload, b"larger than the buffer");
        assert_eq!(receiver.receive_timeout(MINUTE).unwrap().payload, [7; 2 * SIZE as usize]);
        assert_eq!(there.ledger().large_lost, 0, "{}", there.ledger());
    }
}
