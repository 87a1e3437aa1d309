//! Sleeps on the doorbell's own word.

use punctual_machine::doorbell::Notification;
use punctual_machine::slept::Slept;

use super::{Bed, Condition, Waited, Waiter, Woken, sleep_armed};

#[derive(Debug)]
pub(super) struct SleepOnFutex;

impl Waiter for SleepOnFutex {
    fn wait(&mut self, bed: &mut Bed<'_>, condition: &mut dyn Condition) -> Waited {
        sleep_armed(bed, Notification::Futex, condition, |bed, _, timeout| {
            let slept = bed.bell.sleep_futex(timeout);
            Woken { readable: false, to_the_limit: slept == Slept::ToTheLimit }
        })
    }
}
