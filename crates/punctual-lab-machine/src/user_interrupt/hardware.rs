//! The ends of a notification by user interrupts, on processors that may have them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::{Calls, instruction};
use crate::wake::{Ends, Notify, Park};
use punctual_machine::doorbell::Doorbell;
use punctual_machine::slept::Slept;

/// Longest duration of one sleep in `uintr_wait`.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// The user vector of every receiver here. The ring says which message there is.
const USER_VECTOR: u32 = 0;

/// Makes the calling thread a receiver.
pub(super) fn register(calls: Calls) -> io::Result<Ends> {
    let handler = instruction::handler();
    // SAFETY: only an identified kernel gets here, whose first call takes the handler's address and flags. The handler
    // keeps every register and touches one static word.
    answer(unsafe { libc::syscall(calls.number(0), handler, 0) })?;
    // SAFETY: as above; the third call takes a vector and flags, and returns a new descriptor.
    let descriptor = answer(unsafe { libc::syscall(calls.number(2), USER_VECTOR, 0) })?;
    // SAFETY: the kernel has just returned this descriptor, and nobody else knows it.
    let receiver = unsafe { OwnedFd::from_raw_fd(descriptor) };
    instruction::open_deliveries();
    Ok(Ends {
        park: Box::new(ParkUserInterrupt { calls, seen: instruction::delivered() }),
        notify: Box::new(NotifyUserInterrupt { calls, receiver }),
    })
}

fn answer(value: libc::c_long) -> io::Result<i32> {
    i32::try_from(value).ok().filter(|&value| value >= 0).ok_or_else(io::Error::last_os_error)
}

impl Calls {
    fn number(self, place: u32) -> libc::c_long {
        libc::c_long::from(self.first + place)
    }
}

#[derive(Debug)]
struct ParkUserInterrupt {
    calls: Calls,
    seen: u64,
}

impl Park for ParkUserInterrupt {
    fn park(&mut self, bell: &Doorbell, timeout: Duration) -> Slept {
        if instruction::delivered() == self.seen && bell.is_armed() {
            let microseconds = timeout.min(WAIT_MAX).as_micros() as u64;
            // SAFETY: the kernel was identified; the sixth call takes a time and flags. Every outcome asks to look again.
            unsafe { libc::syscall(self.calls.number(5), microseconds, 0) };
        }
        // This call does not say why it returned. A longer limit is not reached by one sleep.
        let delivered = instruction::delivered();
        let is_whole = timeout <= WAIT_MAX;
        let slept = Slept::to_the_limit(is_whole && delivered == self.seen && bell.is_armed());
        self.seen = delivered;
        slept
    }

    fn drain(&mut self) {
        self.seen = instruction::delivered();
    }

    fn calls(&self) -> u32 {
        1
    }
}

#[derive(Debug)]
struct NotifyUserInterrupt {
    calls: Calls,
    receiver: OwnedFd,
}

impl Notify for NotifyUserInterrupt {
    fn notify(&self, _bell: &Doorbell) {
        use std::cell::RefCell;
        thread_local! {
            /// This thread's entries in its sender's table, by the receiver's descriptor.
            static ENTRIES: RefCell<Vec<(i32, u64)>> = const { RefCell::new(Vec::new()) };
        }
        let descriptor = self.receiver.as_raw_fd();
        ENTRIES.with_borrow_mut(|entries| {
            let known = entries.iter().find(|(of, _)| *of == descriptor).map(|(_, entry)| *entry);
            let entry = known.or_else(|| {
                // SAFETY: the kernel was identified; the fourth call takes a receiver's descriptor and flags.
                let entry = answer(unsafe { libc::syscall(self.calls.number(3), descriptor, 0) }).ok()?;
                entries.push((descriptor, entry as u64));
                Some(entry as u64)
            });
            if let Some(entry) = entry {
                instruction::send(entry);
            }
        });
    }

    fn calls(&self) -> u32 {
        0
    }
}
