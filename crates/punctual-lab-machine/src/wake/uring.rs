//! Sleeping in io_uring until something completes.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::descriptor::NotifyEvent;
use super::futex::NotifyFutex;
use super::{Ends, Notify, Park};
use punctual_machine::SystemError;
use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::event_fd::EventFd;
use punctual_machine::slept::Slept;

/// Entries of a ring: one thing is waited for at a time, and one may be cancelled.
const ENTRIES: u32 = 8;

/// `FUTEX2_SIZE_U32` of `linux/futex.h`.
const FUTEX2_SIZE_U32: u32 = 2;
/// Any futex wake matches.
const MATCH_ANY: u64 = 0xffff_ffff;

const WAIT: u64 = 1;
const CANCEL: u64 = 2;

/// A feature of io_uring that a mechanism needs. Where the kernel lacks it, its wake-ups would seem to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    TimeLimit,
    LastingPoll,
    QuietSuccess,
    Message,
    FutexWait,
}

const FOR_MESSAGE: &[Need] = &[Need::TimeLimit, Need::QuietSuccess, Need::Message];
const FOR_FUTEX: &[Need] = &[Need::TimeLimit, Need::FutexWait];
const FOR_POLL: &[Need] = &[Need::TimeLimit, Need::LastingPoll];

/// An error that says what is lacking first.
fn check(needs: &[Need], has: impl Fn(Need) -> bool) -> std::io::Result<()> {
    let Some(lacking) = needs.iter().find(|&&need| !has(need)) else { return Ok(()) };
    let (what, first) = match lacking {
        Need::TimeLimit => ("waits with a time limit", "5.11"),
        Need::LastingPoll => ("polls that last", "5.13"),
        Need::QuietSuccess => ("operations without a completion", "5.17"),
        Need::Message => ("MSG_RING", "5.18"),
        Need::FutexWait => ("FUTEX_WAIT", "6.7"),
    };
    let text = format!("the kernel has no {what} in io_uring (Linux {first} is the first)");
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, text))
}

/// A ring of one thread.
struct Ring(IoUring);

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("descriptor", &self.0.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring that can do this.
    fn new(needs: &[Need]) -> Result<Self, SystemError> {
        let failed = |error| SystemError::new("create", "io_uring", error);
        let ring = IoUring::new(ENTRIES).map_err(failed)?;
        let mut operations = io_uring::Probe::new();
        ring.submitter()
            .register_probe(&mut operations)
            .map_err(|error| SystemError::new("ask", "io_uring for its operations", error))?;
        let parameters = ring.params();
        let has = |need| match need {
            Need::TimeLimit => parameters.is_feature_ext_arg(),
            // Both came with one release, and only one has a flag.
            Need::LastingPoll => parameters.is_feature_resource_tagging(),
            Need::QuietSuccess => parameters.is_feature_skip_cqe_on_success(),
            Need::Message => operations.is_supported(opcode::MsgRingData::CODE),
            Need::FutexWait => operations.is_supported(opcode::FutexWait::CODE),
        };
        check(needs, has).map_err(failed)?;
        Ok(Self(ring))
    }

    /// Sleeps until something has completed or `timeout` passed.
    fn wait(&self, timeout: Duration) -> Slept {
        let timeout = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        // Every outcome (completed, timeout, signal) asks the caller to look.
        let outcome = self.0.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout));
        Slept::to_the_limit(outcome.is_err_and(|error| error.raw_os_error() == Some(libc::ETIME)))
    }

    /// Takes every completion, and shows each.
    fn take(&mut self, show: impl FnMut(cqueue::Entry)) {
        self.0.completion().for_each(show);
    }

    /// Takes every completion. Returns true if one was of the wait.
    fn take_wait(&mut self) -> bool {
        let mut found = false;
        self.take(|entry| found |= entry.user_data() == WAIT);
        found
    }
}

/// Sends a completion into the sleeper's ring.
struct NotifyMessage {
    ring: Mutex<Ring>,
    target: RawFd,
    /// Keeps the target open.
    _sleeper: Arc<Ring>,
}

impl fmt::Debug for NotifyMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifyMessage").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Notify for NotifyMessage {
    fn notify(&self, _bell: &Doorbell) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let message = opcode::MsgRingData::new(Fd(self.target), 0, WAIT, None)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: the entry refers to a descriptor only, and to no memory.
        let pushed = unsafe { ring.0.submission().push(&message) };
        debug_assert!(pushed.is_ok(), "each is submitted at once");
        // A sleeper whose ring is full has completions to wake it.
        let _submitted = ring.0.submit();
        ring.take(drop);
    }
}

#[derive(Debug)]
struct ParkMessage(Arc<Ring>);

impl Park for ParkMessage {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        let slept = self.0.wait(timeout);
        self.drain();
        slept
    }

    fn drain(&mut self) {
        // SAFETY: completions are taken by this end only, which its owner holds exclusively: the other end has the ring's
        // descriptor, and never touches its queues.
        unsafe { self.0.0.completion_shared() }.for_each(drop);
    }

    fn calls(&self) -> u32 {
        1
    }
}

pub(super) fn open_message() -> Result<Ends, SystemError> {
    let sleeper = Arc::new(Ring::new(FOR_MESSAGE)?);
    let target = sleeper.0.as_raw_fd();
    let notify =
        NotifyMessage { ring: Mutex::new(Ring::new(FOR_MESSAGE)?), target, _sleeper: Arc::clone(&sleeper) };
    Ok(Ends::new(ParkMessage(sleeper), notify))
}

#[derive(Debug)]
struct ParkUringFutex(Ring);

impl Park for ParkUringFutex {
    fn how(&self) -> Notification {
        Notification::Futex
    }

    fn park(&mut self, bell: &Doorbell, timeout: Duration) -> Slept {
        let (word, armed) = bell.futex_word();
        let wait = opcode::FutexWait::new(word.as_ptr(), armed.into(), MATCH_ANY, FUTEX2_SIZE_U32)
            .build()
            .user_data(WAIT);
        // SAFETY: the word outlives the wait: this function returns only after the wait has completed or was cancelled,
        // and the bell is borrowed until then.
        let pushed = unsafe { self.0.0.submission().push(&wait) };
        debug_assert!(pushed.is_ok(), "the ring is empty between two sleeps");
        let slept = self.0.wait(timeout);
        if self.0.take_wait() {
            return Slept::Less;
        }
        self.cancel();
        slept
    }

    fn calls(&self) -> u32 {
        1
    }
}

impl ParkUringFutex {
    /// Ends a wait that nobody woke.
    fn cancel(&mut self) {
        let cancel = opcode::AsyncCancel::new(WAIT).build().user_data(CANCEL);
        // SAFETY: the entry refers to no memory.
        let pushed = unsafe { self.0.0.submission().push(&cancel) };
        debug_assert!(pushed.is_ok(), "two of eight entries");
        let mut over = false;
        while !over {
            let _interrupted = self.0.0.submit_and_wait(1);
            over = self.0.take_wait();
        }
        // The answer to the cancellation itself may still be on its way; the next sleep takes it for an early wake-up.
    }
}

pub(super) fn open_futex() -> Result<Ends, SystemError> {
    Ok(Ends::new(ParkUringFutex(Ring::new(FOR_FUTEX)?), NotifyFutex))
}

#[derive(Debug)]
struct ParkPoll {
    ring: Ring,
    event: Arc<EventFd>,
    /// The poll is in the ring.
    polls: bool,
}

impl ParkPoll {
    fn begin(&mut self) {
        if self.polls {
            return;
        }
        let events = u32::from(libc::POLLIN.cast_unsigned());
        let poll = opcode::PollAdd::new(Fd(self.event.as_fd().as_raw_fd()), events).multi(true).build();
        // SAFETY: the entry refers to a descriptor only, which this value keeps open, and to no memory.
        self.polls = unsafe { self.ring.0.submission().push(&poll.user_data(WAIT)) }.is_ok();
    }
}

impl Park for ParkPoll {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        self.begin();
        let slept = self.ring.wait(timeout);
        self.drain();
        slept
    }

    fn drain(&mut self) {
        let mut polls = self.polls;
        self.ring.take(|entry| polls &= cqueue::more(entry.flags()));
        self.polls = polls;
        self.event.drain();
    }

    fn calls(&self) -> u32 {
        2
    }
}

pub(super) fn open_poll() -> Result<Ends, SystemError> {
    let event = Arc::new(EventFd::new()?);
    let park = ParkPoll { ring: Ring::new(FOR_POLL)?, event: Arc::clone(&event), polls: false };
    Ok(Ends::new(park, NotifyEvent(event)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a kernel that lacks what a mechanism needs is told from one that loses wake-ups, whichever it lacks.
    #[test]
    fn features_that_a_kernel_lacks_are_named() {
        let lacking = |needs, lacking| check(needs, |need| need != lacking).unwrap_err().to_string();
        for (needs, lack, first) in [
            (FOR_MESSAGE, Need::TimeLimit, "5.11"),
            (FOR_MESSAGE, Need::QuietSuccess, "5.17"),
            (FOR_MESSAGE, Need::Message, "5.18"),
            (FOR_FUTEX, Need::TimeLimit, "5.11"),
            (FOR_FUTEX, Need::FutexWait, "6.7"),
            (FOR_POLL, Need::TimeLimit, "5.11"),
            (FOR_POLL, Need::LastingPoll, "5.13"),
        ] {
            let said = lacking(needs, lack);
            assert!(said.contains(&format!("Linux {first} is")), "{lack:?}: {said}");
        }
        for needs in [FOR_MESSAGE, FOR_FUTEX, FOR_POLL] {
            assert!(check(needs, |_| true).is_ok());
        }
    }
}
