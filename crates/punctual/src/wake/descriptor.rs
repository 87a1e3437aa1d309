//! Sleeps on descriptors.

use punctual_machine::doorbell::Notification;
use punctual_machine::slept::Slept;

use super::{Bed, Condition, Waited, Waiter, Woken, sleep_armed};

/// In the call that receives, where the medium has one that does; else in poll: on the bell's eventfd and the medium's descriptors. A
/// sender to a socket tells a poll of it only while somebody sleeps there, and an epoll set always; for three descriptors poll is the
/// cheaper.
#[derive(Debug)]
pub(super) struct SleepInPoll;

impl Waiter for SleepInPoll {
    fn wait(&mut self, bed: &mut Bed<'_>, condition: &mut dyn Condition) -> Waited {
        let in_receive = condition.sleeps_in_receive();
        sleep_armed(bed, Notification::Descriptor, condition, |bed, condition, timeout| {
            let (readable, slept) = if in_receive {
                (false, condition.sleep_in_receive())
            } else {
                bed.event.wait_with(bed.descriptors, timeout)
            };
            Woken { readable, to_the_limit: slept == Slept::ToTheLimit }
        })
    }

    fn sleeps_at_once(&self) -> bool {
        true
    }
}

/// In epoll: on the bell's eventfd and the medium's descriptors.
#[derive(Debug)]
pub(super) struct SleepInEpoll;

impl Waiter for SleepInEpoll {
    fn wait(&mut self, bed: &mut Bed<'_>, condition: &mut dyn Condition) -> Waited {
        sleep_armed(bed, Notification::Descriptor, condition, |bed, _, timeout| {
            let slept = bed.set.sleep(timeout);
            Woken { readable: true, to_the_limit: slept == Slept::ToTheLimit }
        })
    }

    fn sleeps_at_once(&self) -> bool {
        true
    }

    fn sleeps_in_set(&self) -> bool {
        true
    }
}
