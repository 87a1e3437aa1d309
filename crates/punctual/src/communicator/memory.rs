//! A communicator's end in memory: a subscription for what is for its port, and publications for what it sends.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use punctual_machine::clock::Ticks;
use punctual_proto::{Address, Target};

use super::outlet::Outlet;
use super::sender::MemorySender;
use super::{Delivery, Message};
use crate::ledger::{Count, RowCount};
use crate::memory::stream::Streams;
use crate::node::CommunicatorOptions;
use crate::publication::{Subscription, TakeError, Wait};
use crate::trace::{Record, Stages};

/// Receives into buffers of the caller's between two looks at the clock.
const TAKES_PER_LOOK: u32 = 256;

#[derive(Debug)]
pub(super) struct MemoryEnd {
    subscription: Subscription,
    pub(super) outlet: Outlet,
    buffer: Vec<u8>,
    /// The item that came last is no message: somebody ended the wait. It shows as an empty message of the communicator to itself.
    was_nudged: bool,
    /// Its row in the node's page of counters.
    row: usize,
    /// Messages that were taken into buffers of the caller's, or were not there.
    takes: u32,
}

impl MemoryEnd {
    pub(super) fn new(mut subscription: Subscription, row: usize, options: &CommunicatorOptions) -> Self {
        let streams = Arc::clone(subscription.streams());
        let port = subscription.address().port;
        subscription.count_in(row);
        let outlet = Outlet::new(&streams, port, Some(row), &Arc::default(), options.stamps);
        Self { subscription, outlet, buffer: vec![0; BUFFER_SIZE], was_nudged: false, row, takes: 0 }
    }

    pub(super) fn streams(&self) -> &Arc<Streams> {
        self.subscription.streams()
    }

    pub(super) fn address(&self) -> Address {
        self.subscription.address()
    }

    pub(super) fn sender(&self) -> MemorySender {
        MemorySender { outlet: self.outlet.another(), nudges: self.subscription.nudges().clone() }
    }

    pub(super) fn seal_in(&self, group: u32) {
        self.outlet.seals_in().set(group);
    }

    /// Of what it sends to everybody at its own port, empty messages are left for itself.
    pub(super) fn ignore_own(&mut self) {
        self.subscription.ignore_own();
    }

    pub(super) fn forget_nudges(&mut self) {
        let _was_for_another = self.subscription.take_nudge();
    }

    #[inline]
    pub(super) fn try_receive(&mut self) -> bool {
        let Self { subscription, buffer, .. } = self;
        subscription.note_listening();
        let found = subscription.take_growing(buffer);
        self.was_nudged = !found && subscription.take_nudge();
        found || self.was_nudged
    }

    #[inline]
    pub(super) fn receive_until(&mut self, deadline: impl FnOnce() -> Option<Ticks>) -> bool {
        let Self { subscription, buffer, .. } = self;
        subscription.note_listening();
        let take = |subscription: &mut Subscription| subscription.take_growing(buffer).then_some(());
        let waited = subscription.wait_for(deadline, take);
        self.was_nudged = waited == Wait::Nudged;
        waited != Wait::Late
    }

    /// As [`Self::try_receive`], into a buffer of the caller's.
    #[inline]
    pub(super) fn try_take(&mut self, buffer: &mut [u8]) -> Result<(), TakeError> {
        self.note_take();
        self.subscription.disarm();
        let taken = self.subscription.take_into(buffer);
        self.was_nudged = taken == Err(TakeError::Empty) && self.subscription.take_nudge();
        if self.was_nudged { Ok(()) } else { taken }
    }

    /// As [`Self::receive_until`], into a buffer of the caller's.
    #[inline]
    pub(super) fn take_until(
        &mut self,
        deadline: impl FnOnce() -> Option<Ticks>,
        buffer: &mut [u8],
    ) -> Result<(), TakeError> {
        self.note_take();
        let take = |subscription: &mut Subscription| match subscription.take_into(buffer) {
            Err(TakeError::Empty) => None,
            taken => Some(taken),
        };
        let waited = self.subscription.wait_for(deadline, take);
        self.was_nudged = waited == Wait::Nudged;
        match waited {
            Wait::Found(taken) => taken,
            Wait::Nudged => Ok(()),
            Wait::Late => Err(TakeError::Empty),
        }
    }

    #[inline]
    fn note_take(&mut self) {
        self.takes = self.takes.wrapping_add(1);
        if self.takes.is_multiple_of(TAKES_PER_LOOK) {
            self.subscription.keep_house();
        }
        // Its own buffer is not looked at by these receives: a large message in its place would stay for ever.
        self.subscription.forget(&mut self.buffer);
        self.subscription.note_listening();
    }

    /// The message that was taken last; it is delivered now. Its stages, if it carried stamps.
    #[inline]
    pub(super) fn delivery(&mut self) -> (Delivery, Option<&Stages>) {
        if self.was_nudged {
            return (Delivery::of(&self.nudge()), None);
        }
        let (received, target) = self.subscription.last();
        let page = &self.subscription.streams().about.page;
        page.row(self.row)[RowCount::Delivered as usize].add_alone(1);
        let delivery = Delivery {
            source: received.source,
            target,
            sequence: received.sequence as u32,
            lost_before: received.lost_before,
            latency: None,
            kernel_ns: None,
            sealed_in: received.sealed_in,
            size: received.size,
        };
        (delivery, self.subscription.last_stages())
    }

    /// The record of the message that was taken last, if it carried stamps.
    pub(super) fn last_record(&self) -> Option<Record> {
        let (received, _) = self.subscription.last();
        let stages = *self.subscription.last_stages()?;
        Some(Record { source: received.source, sequence: received.sequence as u32, stages })
    }

    /// The size of the message that landed, bytes.
    pub(super) fn landed_size(&self) -> usize {
        if self.was_nudged { 0 } else { self.subscription.last().0.size }
    }

    /// Waits end at this instant too, or a little later.
    pub(super) fn pause_at(&mut self, instant: Ticks) {
        self.subscription.pause_at(instant);
    }

    /// The message that was received last; it is delivered now.
    #[inline]
    pub(super) fn message(&mut self) -> Message<'_> {
        if self.was_nudged {
            return self.nudge();
        }
        let (received, target) = self.subscription.last();
        let page = &self.subscription.streams().about.page;
        page.row(self.row)[RowCount::Delivered as usize].add_alone(1);
        Message {
            source: received.source,
            target,
            sequence: received.sequence as u32,
            lost_before: received.lost_before,
            stages: self.subscription.last_stages(),
            kernel_ns: None,
            sealed_in: received.sealed_in,
            payload: &self.buffer[..received.size],
        }
    }

    #[cold]
    fn nudge(&self) -> Message<'_> {
        let source = self.address();
        let target = Target::from(source);
        Message {
            source,
            target,
            sequence: 0,
            lost_before: 0,
            stages: None,
            kernel_ns: None,
            sealed_in: None,
            payload: &[],
        }
    }

    /// Does periodic work, if it is time.
    pub(super) fn keep_house(&mut self) {
        self.subscription.keep_house();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.subscription.is_ready()
    }

    pub(super) fn arm(&mut self) -> bool {
        self.subscription.arm()
    }
}

/// Size of the buffer at first, bytes. It grows with the messages.
const BUFFER_SIZE: usize = 4096;

impl AsFd for MemoryEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.subscription.as_fd()
    }
}

impl Drop for MemoryEnd {
    fn drop(&mut self) {
        if !self.subscription.streams().about.maker.is_this_process() {
            return;
        }
        self.outlet.flush();
        self.subscription.leave_port();
        let unread = self.subscription.close();
        let page = &self.subscription.streams().about.page;
        page.count(Count::ClosedUnread).add(unread);
        page.close_row(self.row, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_proto::Target;

    use super::super::End;
    use super::BUFFER_SIZE;
    use crate::publication::TakeError;
    use crate::{Bus, NodeOptions};

    /// Goal: no receive of any kind leaves a communicator the memory of a large message, once the message is not looked at any more.
    #[test]
    fn a_communicator_gives_memory_of_a_large_message_back() {
        const SIZE: usize = 700_000;
        let node =
            NodeOptions::new("here").message_size_max(SIZE).open(&Bus::loopback("given-back")).unwrap();
        let (mut sender, mut receiver) = (node.bind(1).unwrap(), node.bind(7).unwrap());
        for into in [false, true] {
            sender.try_send(Target::port("here", 7), &vec![1; SIZE]).unwrap();
            let received = receiver.receive_timeout(Duration::from_secs(60)).unwrap();
            assert!(received.payload == vec![1; SIZE]);
            if into {
                assert_eq!(receiver.try_receive_into(&mut [0; 8]), Err(TakeError::Empty));
            } else {
                assert!(receiver.try_receive().is_err());
            }
            let End::Memory(end) = &receiver.end else { panic!("a bus of memory") };
            assert_eq!(end.buffer.capacity(), BUFFER_SIZE, "{into}");
        }
    }
}
