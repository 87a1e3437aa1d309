//! Types that can be awaited, and the names of their methods.

use std::convert::Infallible;
use std::task::Poll;
use std::time::Duration;

use punctual_proto::Nanos;
use punctual_proto::unit::Data;

use super::Awaited;
use super::sealed::Sealed;
use super::stream::Streamable;
use crate::broadcast::{DeliverError, Delivery, Group};
use crate::communicator::{Communicator, Message};
use crate::interest::{Due, Participant, Publisher, Response, Subscriber};
use crate::node::{NodeEvent, NodeEvents};
use crate::publication::{StreamMessage, Subscription};

/// Something that is there, or not yet.
fn found<R>(found: Option<R>) -> Poll<R> {
    found.map_or(Poll::Pending, Poll::Ready)
}

impl Sealed for Communicator {
    fn shows_all(&self) -> bool {
        Self::is_ready(self).is_some()
    }

    fn is_ready(&mut self) -> bool {
        Self::is_ready(self) == Some(true)
    }

    fn arm(&mut self) -> bool {
        Self::arm(self)
    }
}

impl Streamable for Communicator {
    type Item<'a> = Message<'a>;

    fn take<R>(&mut self, f: impl FnOnce(Message<'_>) -> R) -> Poll<Option<R>> {
        if self.try_land() { Poll::Ready(Some(f(self.message()))) } else { Poll::Pending }
    }
}

impl Awaited<Communicator> {
    /// The oldest message; waits for one. It lies in the communicator's buffer, as with [`Communicator::receive`]: nothing is
    /// allocated for it, and it is gone with the next.
    pub async fn receive(&mut self) -> Message<'_> {
        self.wait(|communicator| found(communicator.try_land().then_some(()))).await;
        self.get_mut().message()
    }
}

impl Sealed for Subscription {
    fn shows_all(&self) -> bool {
        true
    }

    fn is_ready(&mut self) -> bool {
        Self::is_ready(self)
    }

    fn arm(&mut self) -> bool {
        Self::arm(self)
    }
}

impl Streamable for Subscription {
    type Item<'a> = &'a StreamMessage<'a>;

    fn take<R>(&mut self, f: impl for<'a> FnOnce(&'a StreamMessage<'a>) -> R) -> Poll<Option<R>> {
        found(self.poll_one(f)).map(Some)
    }
}

impl Awaited<Subscription> {
    /// Shows at most `limit` messages to `f`, as [`Subscription::poll`] does; waits for the first. Returns how many were delivered.
    pub async fn poll(&mut self, limit: usize, mut f: impl FnMut(&StreamMessage<'_>)) -> usize {
        self.wait(|subscription| {
            let delivered = subscription.poll(limit, &mut f);
            found((delivered > 0).then_some(delivered))
        })
        .await
    }
}

impl Sealed for Group {
    fn shows_all(&self) -> bool {
        Self::shows_all(self)
    }

    fn is_ready(&mut self) -> bool {
        Self::is_ready(self)
    }

    fn arm(&mut self) -> bool {
        Self::arm(self)
    }
}

/// Ends when the member has left, as it asked for. Where the group does not take the member nothing comes: [`Group::mismatch`] says why.
impl Streamable for Group {
    type Item<'a> = Delivery<'a>;

    fn take<R>(&mut self, f: impl FnOnce(Delivery<'_>) -> R) -> Poll<Option<R>> {
        let next = self.next_within(Duration::ZERO);
        match next.and_then(|next| self.told(next)) {
            Ok(delivery) => Poll::Ready(Some(f(delivery))),
            Err(DeliverError::Left) => Poll::Ready(None),
            Err(DeliverError::Empty | DeliverError::Mismatch(_)) => Poll::Pending,
        }
    }
}

impl Awaited<Group> {
    /// The next delivery in the order of the group; waits for it. In memory the task that looks for it drives the group, and no other
    /// thread lies between, while a worker of the runtime is awake. Otherwise the member's caretaker drives while its task waits.
    ///
    /// # Errors
    /// [`DeliverError::Left`], if the member has left, as it asked for; [`DeliverError::Mismatch`], if the group does not take it.
    pub async fn deliver(&mut self) -> Result<Delivery<'_>, DeliverError> {
        let next = self.wait(|group| match group.next_within(Duration::ZERO) {
            Err(DeliverError::Empty) => Poll::Pending,
            next => Poll::Ready(next),
        });
        let next = next.await?;
        self.get_mut().told(next)
    }
}

/// Common to publishers, subscribers and participants: instants at which something has to be done.
macro_rules! seal_interest {
    ($what:ty $(, $value:ident)?) => {
        impl$(<$value: Data>)? Sealed for $what {
            const HAS_INSTANTS: bool = true;

            fn shows_all(&self) -> bool {
                Self::shows_all(self)
            }

            fn is_ready(&mut self) -> bool {
                Self::is_ready(self)
            }

            fn arm(&mut self) -> bool {
                Self::arm(self)
            }

            fn time_left(&self) -> Option<Nanos> {
                Self::time_left(self).map(super::super::nanos)
            }
        }
    };
}

seal_interest!(Subscriber<T>, T);
seal_interest!(Publisher<T>, T);
seal_interest!(Participant);

impl<T: Data> Streamable for Subscriber<T> {
    type Item<'a> = Response<T>;

    fn take<R>(&mut self, f: impl FnOnce(Response<T>) -> R) -> Poll<Option<R>> {
        found(self.receive_timeout(Duration::ZERO).ok().map(f)).map(Some)
    }
}

impl<T: Data> Awaited<Subscriber<T>> {
    /// The next value; waits for it. The interest is repeated meanwhile.
    pub async fn receive(&mut self) -> Response<T> {
        self.wait(|subscriber| found(subscriber.receive_timeout(Duration::ZERO).ok())).await
    }
}

impl<T: Data> Streamable for Publisher<T> {
    type Item<'a> = Due;

    fn take<R>(&mut self, f: impl FnOnce(Due) -> R) -> Poll<Option<R>> {
        found(self.next_due(Duration::ZERO).map(f)).map(Some)
    }
}

impl<T: Data> Awaited<Publisher<T>> {
    /// When the next value is wanted; waits for that, and takes care of interests meanwhile. Publish it by [`Awaited::get_mut`].
    pub async fn next_due(&mut self) -> Due {
        self.wait(|publisher| found(publisher.next_due(Duration::ZERO))).await
    }
}

impl Awaited<Participant> {
    /// Publishes and receives, in the participant's callbacks on the task's turns, until this is dropped.
    pub async fn serve(&mut self) -> Infallible {
        self.wait(|participant| {
            participant.serve_for(Duration::ZERO);
            Poll::Pending
        })
        .await
    }
}

impl Sealed for NodeEvents {
    fn shows_all(&self) -> bool {
        false
    }

    fn is_ready(&mut self) -> bool {
        false
    }

    fn arm(&mut self) -> bool {
        Self::arm(self)
    }
}

impl Streamable for NodeEvents {
    type Item<'a> = NodeEvent;

    fn take<R>(&mut self, f: impl FnOnce(NodeEvent) -> R) -> Poll<Option<R>> {
        found(self.try_next().map(f)).map(Some)
    }
}

impl Awaited<NodeEvents> {
    /// The oldest event; waits for one.
    pub async fn next(&mut self) -> NodeEvent {
        self.wait(|events| found(events.try_next())).await
    }
}
