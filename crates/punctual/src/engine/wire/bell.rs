//! Wakes who sleeps over a medium of the kernel: on descriptors, or in the call that receives.

use punctual_machine::counter::Counter;
use punctual_machine::doorbell::{Doorbell, sender_fence};
use punctual_machine::event_fd::EventFd;

use crate::engine::{Bell, PrivateBell};

/// Ends a sleep in the call that receives, from any thread.
pub(crate) trait Nudge: Send + Sync + std::fmt::Debug {
    /// Once.
    fn nudge(&self);
}

/// A bell of this process for a thread that sleeps on descriptors or in the call that receives.
#[derive(Debug)]
pub(crate) struct WireBell {
    private: PrivateBell,
    nudge: Option<Box<dyn Nudge>>,
    /// 1 where the sleep is in the call that receives. A thread that sleeps on descriptors is woken by a nudge all the same.
    in_receive: Counter,
}

impl WireBell {
    pub(crate) fn new(private: PrivateBell, nudge: Option<Box<dyn Nudge>>) -> Self {
        Self { private, nudge, in_receive: Counter::default() }
    }

    /// Decides the kind of the next sleep, before the bell is armed for it.
    pub(super) fn prepare(&self, alone: bool) -> bool {
        let in_receive = alone && self.nudge.is_some();
        if in_receive != (self.in_receive.get() == 1) {
            self.in_receive.set(in_receive.into());
            sender_fence(); // (C) pairs with (D) in `wake`: a thread that has seen the bell armed sees the kind of sleep.
        }
        in_receive
    }
}

impl Bell for WireBell {
    fn doorbell(&self) -> &Doorbell {
        self.private.doorbell()
    }

    fn event(&self) -> &EventFd {
        self.private.event()
    }

    fn wake(&self) {
        sender_fence(); // (D)
        match &self.nudge {
            Some(nudge) if self.in_receive.get() == 1 => nudge.nudge(),
            _ => self.event().ring(),
        }
    }
}
