//! Receiving into a buffer that grows. A message that was put together comes in memory of its own, in place of that buffer.

use super::{Subscription, TAKES_PER_LOOK};
use crate::publication::received::CopyGrowing;

impl Subscription {
    /// Takes the oldest message of one of its publications into `buffer`, which grows as it must; never waits. One that was put
    /// together comes without another copy, in its own memory, which [`Self::forget`] or a later call takes back. Returns true if there
    /// was one, described by [`Self::last`].
    #[inline]
    pub(crate) fn take_growing(&mut self, buffer: &mut Vec<u8>) -> bool {
        self.disarm();
        self.takes = self.takes.wrapping_add(1);
        if self.takes.is_multiple_of(TAKES_PER_LOOK) {
            self.images.housekeep(self.clock.now());
        }
        if self.take_busy_growing(buffer) {
            return true;
        }
        self.forget(buffer);
        let Self { images, taken, ignored, .. } = self;
        let mut copy = CopyGrowing::new(buffer, taken, *ignored);
        let delivered = images.poll_rest(1, &mut copy);
        if copy.is_claimed {
            self.put_aside(buffer);
        }
        delivered > 0
    }

    /// A message that was put together takes the place of the reader's own buffer.
    #[cold]
    fn put_aside(&mut self, buffer: &mut Vec<u8>) {
        self.aside = Some(std::mem::replace(buffer, self.images.take_claimed()));
    }

    /// The same of a direct frame of the publication that was busy last. Inlined, a communicator's 64 bytes took a twentieth longer there
    /// and back, and as long without the pauses of a spinning reader (docs/speed.md).
    #[inline(never)]
    fn take_busy_growing(&mut self, buffer: &mut Vec<u8>) -> bool {
        let Self { images, taken, ignored, .. } = self;
        images.poll_busy(1, &mut CopyGrowing::new(buffer, taken, *ignored)) > 0
    }

    /// The last message is not looked at any more. If it is in memory of its own, the reader has its buffer again, and that memory is for
    /// the next one, or freed.
    #[inline]
    pub(crate) fn forget(&mut self, buffer: &mut Vec<u8>) {
        if self.aside.is_some() {
            self.forget_claimed(buffer);
        }
    }

    #[cold]
    fn forget_claimed(&mut self, buffer: &mut Vec<u8>) {
        if let Some(own) = self.aside.take() {
            self.images.give_back(std::mem::replace(buffer, own));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use punctual_proto::Target;
    use punctual_proto::limits::ASSEMBLY_AGE;

    use crate::publication::SubscriptionOptions;
    use crate::{Bus, NodeOptions};

    /// Goal: memory of a large message is its reader's until the next receive. After two seconds without another such message it is
    /// freed.
    #[test]
    fn memory_of_a_large_message_is_freed() {
        const SIZE: usize = 700_000;
        let bus = Bus::loopback("freed");
        let node = NodeOptions::new("here").message_size_max(SIZE).open(&bus).unwrap();
        let mut subscription = node.subscription(7, &SubscriptionOptions::default()).unwrap();
        let mut sender = node.bind(1).unwrap();
        let mut buffer = Vec::new();
        for number in 0..3 {
            sender.try_send(Target::port("here", 7), &vec![number; SIZE]).unwrap();
            let give_up = Instant::now() + Duration::from_secs(60);
            while !subscription.take_growing(&mut buffer) {
                assert!(Instant::now() < give_up, "{number}: {}", node.ledger());
            }
            assert!(buffer == vec![number; SIZE], "{number}");
        }
        assert!(!subscription.take_growing(&mut buffer) && buffer.capacity() < SIZE);
        assert!(subscription.images.is_gathering(), "it is for the next one");
        std::thread::sleep(Duration::from_nanos(ASSEMBLY_AGE.0));
        assert!(!subscription.take_growing(&mut buffer));
        assert!(!subscription.images.is_gathering(), "it is kept for ever");
    }
}
