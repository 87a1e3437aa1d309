//! Sleeps on the doorbell's own word.

use std::time::Duration;

use punctual_machine::doorbell::Notification;

use super::{Bed, Waited, Waiter, sleep_armed};

#[derive(Debug)]
pub(super) struct SleepOnFutex;

impl Waiter for SleepOnFutex {
    fn wait(
        &mut self,
        bed: &mut Bed<'_>,
        timeout: &dyn Fn() -> Option<Duration>,
        is_ready: &mut dyn FnMut() -> bool,
    ) -> Waited {
        sleep_armed(bed, Notification::Futex, is_ready, |bed| {
            bed.bell.sleep_futex(timeout());
            false
        })
    }
}
