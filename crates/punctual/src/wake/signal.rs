//! Sleeps until the medium's descriptors raise a signal.

use punctual_machine::async_io::AsyncIo;
use punctual_machine::doorbell::Notification;
use punctual_machine::slept::Slept;
use std::os::fd::AsFd;

use super::{Bed, Condition, Waited, Waiter, Woken, sleep_armed};

/// By SIGIO for the medium, which tells of each arrival once; on the bell's eventfd for the node's other components.
#[derive(Debug, Default)]
pub(super) struct SleepOnSignal {
    signals: AsyncIo,
    /// Signals are asked for, and every descriptor is looked at since: any arrival from now on ends the sleep.
    looked: bool,
}

impl Waiter for SleepOnSignal {
    fn wait(&mut self, bed: &mut Bed<'_>, condition: &mut dyn Condition) -> Waited {
        if !self.looked {
            // Another component of the node may have waited meanwhile, and be the one that is signalled. If the kernel refuses,
            // which it has no reason to, the descriptors wake as they do in epoll.
            let [first, second] = bed.descriptors;
            let claimed = match (first, second) {
                (Some(first), Some(second)) => self.signals.claim(&[first, second]),
                (Some(one), None) | (None, Some(one)) => self.signals.claim(&[one]),
                (None, None) => Ok(()),
            };
            self.looked = claimed.is_ok();
            if self.looked {
                // One more look at everything: a message that is there already raises no signal.
                return Waited { on_descriptor: true, on_event: true, ..Waited::AWAKE };
            }
        }
        let by_signal = std::mem::take(&mut self.looked);
        sleep_armed(bed, Notification::Descriptor, condition, |bed, _, timeout| {
            let by_signal = by_signal.then(|| self.signals.sleep(bed.event.as_fd(), timeout).ok()).flatten();
            let slept = by_signal.unwrap_or_else(|| bed.set.sleep(timeout));
            Woken { readable: true, to_the_limit: slept == Slept::ToTheLimit }
        })
    }

    fn handle_found(&mut self) {
        self.handle_handover();
    }

    fn handle_handover(&mut self) {
        // Until the next wait others may claim the signals, or end with them.
        self.looked = false;
    }

    fn sleeps_in_set(&self) -> bool {
        true
    }
}
