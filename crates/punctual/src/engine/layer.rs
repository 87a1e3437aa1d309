//! A layer around a medium's receiving half, which leaves to that half all that the layer does not do itself.

use std::fmt;
use std::sync::Arc;

use punctual_machine::clock::Ticks;

use super::{Bell, Descriptors, Drops, Event, Flow, Receive};

/// A layer around a receiving half. It never sleeps in the call that receives: that would return behind the layer's back.
pub(super) trait ReceiveLayer: Send + fmt::Debug + 'static {
    /// The receiving half inside the layer.
    fn inner(&self) -> &dyn Receive;

    /// The same, to be changed.
    fn inner_mut(&mut self) -> &mut dyn Receive;

    /// [`Receive::poll`].
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize;

    /// [`Receive::is_ready`].
    fn is_ready(&self) -> bool {
        self.inner().is_ready()
    }

    /// [`Receive::next_due`].
    fn next_due(&self) -> Option<Ticks> {
        self.inner().next_due()
    }
}

impl<L: ReceiveLayer> Receive for L {
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize {
        ReceiveLayer::poll(self, limit, visit)
    }

    fn is_ready(&self) -> bool {
        ReceiveLayer::is_ready(self)
    }

    fn next_due(&self) -> Option<Ticks> {
        ReceiveLayer::next_due(self)
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        self.inner_mut().drops()
    }

    fn room(&self) -> usize {
        self.inner().room()
    }

    fn bell(&self) -> Arc<dyn Bell> {
        self.inner().bell()
    }

    fn looks_suffice(&self) -> bool {
        self.inner().looks_suffice()
    }

    fn rings_doorbell(&self) -> bool {
        self.inner().rings_doorbell()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.inner().descriptors()
    }

    fn handle_awake(&mut self) {
        self.inner_mut().handle_awake();
    }

    fn look_everywhere(&mut self) {
        self.inner_mut().look_everywhere();
    }

    fn has_seen_all(&self) -> bool {
        self.inner().has_seen_all()
    }

    fn handle_woken(&mut self) {
        self.inner_mut().handle_woken();
    }

    fn housekeep(&mut self, now: Ticks) {
        self.inner_mut().housekeep(now);
    }
}
