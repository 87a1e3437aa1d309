//! Sleeps on descriptors.

use std::time::Duration;

use punctual_machine::doorbell::Notification;

use super::{Bed, Waited, Waiter, sleep_armed};

/// In poll: on the bell's eventfd and the medium's descriptors. Who sends to a socket tells a poll of it only while
/// somebody sleeps there, and an epoll set always; for three descriptors poll is the cheaper.
#[derive(Debug)]
pub(super) struct SleepInPoll;

impl Waiter for SleepInPoll {
    fn wait(
        &mut self,
        bed: &mut Bed<'_>,
        timeout: &dyn Fn() -> Option<Duration>,
        is_ready: &mut dyn FnMut() -> bool,
    ) -> Waited {
        sleep_armed(bed, Notification::Descriptor, is_ready, |bed| {
            bed.event.wait_with(bed.descriptors, timeout())
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
            true
        })
    }

    fn sleeps_in_set(&self) -> bool {
        true
    }
}
