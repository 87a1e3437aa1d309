//! Descriptors where another executor waits for them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::sleep_cost::SleepCost;
use punctual_machine::sync::spin_hint;
use punctual_machine::timer_fd::TimerFd;

use super::{Awaitable, may_have};
use crate::adaptive_spin::{AdaptiveSpin, Spun};

/// Looks between two looks at the clock.
const LOOKS: u32 = 16;

/// A task looks no longer than this before it waits: nobody knows here whom else the thread would poll.
const LOOK_MAX_NS: u32 = 5_000;

/// So much time between two looks at the clock: the thread did not run.
const AWAY_NS: u64 = 1_000_000;

/// A descriptor where an executor waits for it.
pub trait PollReadable: Send + 'static {
    /// Ready if the descriptor has become readable since this last said so; a report too many costs a look, one too few loses a
    /// wake-up. Where it is not, the task is woken when it is.
    ///
    /// # Errors
    /// If nothing will be said any more, as the executor ends: the wait then lasts for ever.
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// An instant as a descriptor.
struct Alarm {
    timer: TimerFd,
    readable: Box<dyn PollReadable>,
}

/// The reports that there may be something.
pub(super) struct Reports {
    readable: Box<dyn PollReadable>,
    alarm: Option<Alarm>,
    spin: AdaptiveSpin,
    /// Since when it waits, and what looking before that came to.
    waits: Option<(Ticks, Spun)>,
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").field("has_alarm", &self.alarm.is_some()).finish_non_exhaustive()
    }
}

impl Reports {
    pub(super) fn new<R: PollReadable>(
        descriptor: BorrowedFd<'_>,
        has_instants: bool,
        mut watch: impl FnMut(OwnedFd) -> io::Result<R>,
    ) -> io::Result<Self> {
        let readable = Box::new(watch(descriptor.try_clone_to_owned()?)?);
        let alarm = if has_instants {
            let timer = TimerFd::new().map_err(io::Error::other)?;
            let readable = Box::new(watch(timer.as_fd().try_clone_to_owned()?)?);
            Some(Alarm { timer, readable })
        } else {
            None
        };
        let spin = AdaptiveSpin::new(SleepCost::of_this_machine());
        Ok(Self { readable, alarm, spin, waits: None })
    }

    /// Looks for something that comes soon, once a wait. The look lasts for as long as it costs less than to let the thread do
    /// something else and to be woken. Returns true if it came.
    pub(super) fn has_news_soon<T: Awaitable>(&mut self, it: &mut T) -> bool {
        if self.waits.is_some() || !it.shows_all() {
            return false;
        }
        let (clock, limit_ns) = (Clock::get(), u64::from(self.spin.spin_ns().min(LOOK_MAX_NS)));
        let (began, mut spent_ns) = (clock.now(), 0);
        let mut spun = if limit_ns == 0 { Spun::Not } else { Spun::InVain };
        while spent_ns < limit_ns {
            for _ in 0..LOOKS {
                spin_hint();
                if it.is_ready() {
                    self.spin.note(clock.nanos(clock.now().since(began)), Spun::Found);
                    return true;
                }
            }
            let before_ns = std::mem::replace(&mut spent_ns, clock.nanos(clock.now().since(began)));
            let Some(away_ns) = spent_ns.checked_sub(before_ns).filter(|_| spent_ns > 0) else {
                // The counter began anew: nobody knows how long it has been.
                spun = Spun::Preempted;
                break;
            };
            if away_ns > AWAY_NS {
                spun = Spun::Preempted;
            }
        }
        self.waits = Some((began, spun));
        false
    }

    /// The wait is over, if there was one.
    pub(super) fn handle_found(&mut self) {
        if let Some((began, spun)) = self.waits.take() {
            let clock = Clock::get();
            self.spin.note(clock.nanos(clock.now().since(began)), spun);
        }
    }

    /// For what is armed: the task is woken when there may be something. `false` if there already may be.
    pub(super) fn await_news<T: Awaitable>(&mut self, it: &mut T, context: &mut Context<'_>) -> bool {
        if let (Some(alarm), Some(left)) = (&mut self.alarm, it.time_left()) {
            alarm.timer.set(Duration::from_nanos(left.0));
            // Of an earlier instant it may be said still.
            while let Poll::Ready(Ok(())) = alarm.readable.poll_readable(context) {
                if it.is_ready() {
                    return false;
                }
            }
        }
        // The kernel said so once, for something that was taken since: it says so again for what comes.
        while let Poll::Ready(Ok(())) = self.readable.poll_readable(context) {
            if may_have(it) {
                return false;
            }
        }
        true
    }
}

/// Where the tokio runtime waits for descriptors that the thread is in.
#[cfg(feature = "tokio")]
#[expect(
    deprecated,
    reason = "its replacement is unsafe for the sake of types that are no owned descriptors"
)]
pub(super) fn in_tokio(descriptor: OwnedFd) -> io::Result<::tokio::io::unix::AsyncFd<OwnedFd>> {
    ::tokio::io::unix::AsyncFd::with_interest(descriptor, ::tokio::io::Interest::READABLE)
}

#[cfg(feature = "tokio")]
impl PollReadable for ::tokio::io::unix::AsyncFd<OwnedFd> {
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(context).map_ok(|mut ready| ready.clear_ready())
    }
}
