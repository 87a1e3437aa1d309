//! The common part of publishers, subscribers and participants: a driver.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use punctual_proto::Address;

use super::{Participant, Publisher, Subscriber, Traffic};
use crate::communicator::Communicator;
use crate::keyed_group::Membership;

macro_rules! driven {
    ($what:ty $(, $value:ident)?) => {
        impl$(<$value>)? $what {
            /// From now on everything is for the group that `membership` is in, and follows it
            /// ([`crate::keyed_group::GroupMember::membership`]). When it leaves, interests are withdrawn there, and nobody is served.
            /// When it is in another, interests are repeated and asked for there at once. Messages that are not sealed in its group are
            /// passed over, but for those of its own node. It is done by the thread that drives this, and needs no more than this call.
            pub fn follow(&mut self, membership: &Membership) {
                self.driver.follow(membership);
            }

            /// For an event loop of one's own: from now on its descriptor becomes readable when there may be something to do. Returns
            /// `false`, and arms nothing, if there already may be. Ask with no timeout (`next_due`, `receive_timeout`, `serve_for`) until
            /// there is nothing, arm, wait for at most [`Self::time_left`].
            pub fn arm(&mut self) -> bool {
                self.driver.arm()
            }

            /// For how long nothing has to be done unless its descriptor becomes readable; `None` = for ever.
            pub fn time_left(&self) -> Option<Duration> {
                self.driver.time_left()
            }

            /// True if looks see everything that comes, without a call of the kernel.
            pub(crate) fn shows_all(&self) -> bool {
                self.driver.shows_all()
            }

            /// True if a look sees something to do.
            pub(crate) fn is_ready(&self) -> bool {
                self.driver.is_ready()
            }

            /// Its address.
            pub fn address(&self) -> Address {
                self.driver.address()
            }

            /// Outcomes of its messages, counted.
            pub fn traffic(&self) -> Traffic {
                self.driver.traffic()
            }

            /// Ends it, with its interests, and gives back the communicator.
            pub fn into_communicator(self) -> Communicator {
                self.driver.into_communicator()
            }
        }

        impl$(<$value>)? AsFd for $what {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.driver.as_fd()
            }
        }
    };
}

driven!(Publisher<T>, T);
driven!(Subscriber<T>, T);
driven!(Participant);
