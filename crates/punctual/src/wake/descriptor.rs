//! Sleeps on descriptors.

use std::time::Duration;

use punctual_machine::doorbell::Notification;

use super::{Bed, Waited, Waiter, sleep_armed};

/// On the bell's eventfd, and on what stands in for it where a peer does not have it yet.
#[derive(Debug)]
pub(super) struct SleepOnEvent;

impl Waiter for SleepOnEvent {
    fn wait(
        &mut self,
        bed: &mut Bed<'_>,
        timeout: &dyn Fn() -> Option<Duration>,
        is_ready: &mut dyn FnMut() -> bool,
    ) -> Waited {
        sleep_armed(bed, Notification::Descriptor, is_ready, |bed| {
            bed.event.wait_with(bed.descriptors, timeout());
        })
    }
}

/// In epoll: on the bell's eventfd and the medium's descriptors.
#[derive(Debug)]
pub(super) struct SleepInEpoll;

impl Waiter for SleepInEpoll {
    fn wait(
        &mut self,
        bed: &mut Bed<'_>,
        timeout: &dyn Fn() -> Option<Duration>,
        is_ready: &mut dyn FnMut() -> bool,
    ) -> Waited {
        sleep_armed(bed, Notification::Descriptor, is_ready, |bed| {
            bed.set.wait(timeout());
        })
    }

    fn sleeps_in_set(&self) -> bool {
        true
    }
}
