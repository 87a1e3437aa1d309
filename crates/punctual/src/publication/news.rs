//! Events that end a subscription's waits.

use std::sync::Arc;
use std::time::Duration;

use punctual_machine::counter::Counter;
use punctual_machine::doorbell::sender_fence;

use crate::memory::stream::{Images, Streams};
use crate::wake::Condition;

/// Ends a subscription's waits, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Nudges {
    count: Arc<Counter>,
    streams: Arc<Streams>,
    bell: usize,
}

impl Nudges {
    /// For the subscription that this bell wakes.
    pub(super) fn new(streams: Arc<Streams>, bell: usize) -> Self {
        Self { count: Arc::default(), streams, bell }
    }

    /// Number of nudges so far.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.count.get_published()
    }

    /// Ends the wait, or the next one.
    pub(crate) fn nudge(&self) {
        // Everything that its sender did before is seen by a thread that sees the nudge.
        sender_fence();
        self.count.add(1);
        Images::ring(&self.streams, self.bell);
    }
}

/// Tells a thread that is about to sleep whether there may be something.
pub(super) struct News<'a> {
    pub(super) images: &'a Images,
    pub(super) nudges: &'a Nudges,
    pub(super) nudges_seen: u64,
    pub(super) limit: Duration,
    pub(super) is_deadline: bool,
    /// Where the next glance begins.
    pub(super) glance_from: usize,
}

impl Condition for News<'_> {
    #[inline]
    fn is_ready(&mut self) -> bool {
        self.images.is_ready() || self.nudges.count() != self.nudges_seen
    }

    #[inline]
    fn glance(&mut self) -> bool {
        self.images.glance(&mut self.glance_from)
    }

    fn timeout(&mut self) -> Option<Duration> {
        Some(self.limit)
    }

    fn is_overslept(&self) -> bool {
        !self.is_deadline && self.images.has_told_news()
    }
}
