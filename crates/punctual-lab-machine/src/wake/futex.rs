//! Sleeping on the bell's own word.

use std::time::Duration;

use rustix::thread::ClockId;
use rustix::thread::futex::{Wait, WaitFlags, WaitvFlags, waitv};

use super::{Ends, Notify, Park};
use punctual_machine::SystemError;
use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::event_fd::timespec;
use punctual_machine::slept::Slept;

#[derive(Debug)]
struct ParkFutex;

impl Park for ParkFutex {
    fn how(&self) -> Notification {
        Notification::Futex
    }

    #[inline]
    fn park(&mut self, bell: &Doorbell, timeout: Duration) -> Slept {
        bell.sleep_futex(Some(timeout))
    }

    fn calls(&self) -> u32 {
        1
    }
}

/// Wakes who sleeps on a bell's word.
#[derive(Debug)]
pub(super) struct NotifyFutex;

impl Notify for NotifyFutex {
    #[inline]
    fn notify(&self, bell: &Doorbell) {
        bell.wake_futex();
    }
}

pub(super) fn open() -> Ends {
    Ends::new(ParkFutex, NotifyFutex)
}

/// Sleeps on the word by the call that takes several of them.
#[derive(Debug)]
struct ParkWaitv;

impl Park for ParkWaitv {
    fn how(&self) -> Notification {
        Notification::Futex
    }

    fn park(&mut self, bell: &Doorbell, timeout: Duration) -> Slept {
        let (word, armed) = bell.futex_word();
        let mut waiter = Wait::new();
        waiter.val = armed.into();
        waiter.uaddr = word.as_ptr().cast::<core::ffi::c_void>().into();
        waiter.flags = WaitFlags::SIZE_U32;
        // The bell is borrowed until the call returns, so no word goes away under the kernel. Unlike the others this call takes an
        // instant, not a duration.
        let until =
            timespec(Duration::from_nanos(punctual_machine::clock::monotonic_ns()).saturating_add(timeout));
        let woken = waitv(&[waiter], WaitvFlags::empty(), Some(&until), ClockId::Monotonic);
        Slept::to_the_limit(woken == Err(rustix::io::Errno::TIMEDOUT))
    }

    fn calls(&self) -> u32 {
        1
    }
}

/// If the kernel has the call: Linux 5.16 is the first.
pub(super) fn open_many() -> Result<Ends, SystemError> {
    // The number of this call was that of another one in kernels patched for user interrupts.
    crate::user_interrupt::stock_call_numbers()
        .map_err(|reason| SystemError::new("call", "futex_waitv", std::io::Error::other(reason)))?;
    match waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic) {
        // No waiter at all is refused by a kernel that knows the call.
        Err(rustix::io::Errno::INVAL) | Ok(_) => Ok(Ends::new(ParkWaitv, NotifyFutex)),
        Err(error) => Err(SystemError::new("call", "futex_waitv", error)),
    }
}
