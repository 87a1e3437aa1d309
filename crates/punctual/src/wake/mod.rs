//! Ways in which a waiter learns that something arrived.
//!
//! A loop polls; when a poll found nothing it calls [`Waiter::wait`], which passes some time or sleeps, and the loop
//! polls again. Every sleep is the doorbell's handshake ([`Doorbell::sleep`]): arm, look once more, sleep, disarm.
//!
//! Programs that measure the ways of waiting use waiters themselves. These are hidden from the documentation, and promised to nobody.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use punctual_machine::sleep_cost::SleepCost;
use punctual_machine::slept::Slept;

mod alarm;
mod descriptor;
mod futex;
mod gate;
mod signal;
mod spin;
mod spin_then_sleep;
mod yield_then_sleep;

pub use crate::adaptive_spin::{AdaptiveSpin, Spun};
pub(crate) use alarm::Alarm;
use descriptor::{SleepInEpoll, SleepInPoll};
use futex::SleepOnFutex;
pub(crate) use gate::Gate;
use signal::SleepOnSignal;
use spin::Spin;
use spin_then_sleep::SpinThenSleep;
pub(crate) use yield_then_sleep::YieldThenSleep;

/// A way of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wake {
    /// Poll without pause. The fastest, and one CPU is gone.
    Spin,
    /// Spin for as long as a sleep costs here, then sleep. In memory spin for 50 µs at least, on the kernel's media (UDP, Ethernet)
    /// for a quarter of a millisecond. Spinning pauses while it finds nothing, or others want the processor.
    Backoff,
    /// Spin for as long as the last waits make worth while, which may be not at all, then sleep ([`AdaptiveSpin`]): as fast as
    /// spinning while messages are frequent, as cheap as sleeping when they are not, or when others want the processor.
    #[default]
    Adaptive,
    /// Sleep on a futex. Only for media whose senders ring the doorbell (shared memory, loopback, adapters).
    Futex,
    /// Sleep in poll, on the doorbell's eventfd and the medium's descriptors together.
    EventFd,
    /// Sleep in epoll, on the doorbell and the medium's descriptors together.
    Epoll,
    /// Sleep until a signal: the kernel raises SIGIO in the waiting thread for every frame (`O_ASYNC`). The way of programs before
    /// epoll, here to be compared with. Only for the kernel's media (UDP, Ethernet); takes the signal SIGIO.
    Signal,
}

impl Wake {
    /// All ways of waiting.
    pub const ALL: [Self; 7] =
        [Self::Spin, Self::Backoff, Self::Adaptive, Self::Futex, Self::EventFd, Self::Epoll, Self::Signal];

    /// Its name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Backoff => "backoff",
            Self::Adaptive => "adaptive",
            Self::Futex => "futex",
            Self::EventFd => "eventfd",
            Self::Epoll => "epoll",
            Self::Signal => "signal",
        }
    }

    /// True if it can wait for a medium, given whether senders ring that medium's doorbell.
    pub const fn can_wait_for(self, rings_doorbell: bool) -> bool {
        match self {
            Self::Futex => rings_doorbell,
            Self::Signal => !rings_doorbell,
            _ => true,
        }
    }

    /// Way of waiting for other components of its node, for a component that waits this way for a medium.
    pub(crate) const fn inside(self) -> Self {
        match self {
            Self::Signal => Self::EventFd,
            other => other,
        }
    }
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Wake {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|wake| wake.name() == name);
        known.copied().ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown way of waiting {name:?}; known are {names}")
        })
    }
}

/// Objects that a waiter can sleep on.
#[derive(Debug)]
#[doc(hidden)]
pub struct Bed<'a> {
    /// Rung by senders.
    pub bell: &'a Doorbell,
    /// Becomes readable when the bell is armed for a descriptor and rung.
    pub event: &'a EventFd,
    /// Descriptors of the medium.
    pub descriptors: [Option<BorrowedFd<'a>>; 2],
    /// The event and the medium's descriptors.
    pub set: &'a mut EpollSet,
}

/// Outcome of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Waited {
    /// The thread slept, or tried to.
    pub slept: bool,
    /// Somebody rang.
    pub rung: bool,
    /// It slept on descriptors: the objects for which they stand must be looked at.
    pub on_descriptor: bool,
    /// The bell's event may be readable, and must be drained.
    pub on_event: bool,
    /// Nobody rang for what was there when the sleep had lasted to its limit, and long after.
    pub missed: bool,
}

impl Waited {
    /// Some time passed; nobody slept.
    pub const AWAKE: Self =
        Self { slept: false, rung: false, on_descriptor: false, on_event: false, missed: false };
}

/// Condition that a waiter waits for, as its component sees it.
#[doc(hidden)]
pub trait Condition {
    /// True if there may be something to wake for. Asked again once the bell is armed.
    fn is_ready(&mut self) -> bool;

    /// True if a short look finds something. Asked by a spinning thread, which asks everything again behind some tens of glances.
    fn glance(&mut self) -> bool {
        self.is_ready()
    }

    /// Longest time to sleep. Asked by a thread that is about to sleep.
    fn timeout(&mut self) -> Option<Duration>;

    /// True if the next sleep may be one in the call that receives ([`Self::sleep_in_receive`]), in place of one on descriptors. The
    /// bell is about to be armed.
    fn sleeps_in_receive(&mut self) -> bool {
        false
    }

    /// Sleeps in the call that receives.
    fn sleep_in_receive(&mut self) -> Slept {
        Slept::Less
    }

    /// True if a sleep that has lasted to its limit was slept over something for which its sender rings. `false` where the limit was a
    /// caller's deadline: a message that comes at that instant is no wake-up that was missed.
    fn is_overslept(&self) -> bool;
}

/// One waiter's way of waiting, with its state.
#[doc(hidden)]
pub trait Waiter: Send + fmt::Debug {
    /// Passes some time: at most the condition's timeout, and less if there may be something.
    fn wait(&mut self, bed: &mut Bed<'_>, condition: &mut dyn Condition) -> Waited;

    /// Something was found: the next wait begins anew.
    fn handle_found(&mut self) {}

    /// Another thread of the node may drive the medium from now on, and wait for it in its own way.
    fn handle_handover(&mut self) {}

    /// True if the next wait sleeps at once, in a call that looks at the medium's descriptors itself: a poll before it would be a call
    /// of the kernel too many.
    fn sleeps_at_once(&self) -> bool {
        false
    }

    /// True if the next wait begins with glances, so that a full look before it would only keep what comes meanwhile waiting.
    fn spins_first(&self) -> bool {
        false
    }

    /// True if it ever sleeps in the bed's set. Each set that a socket is in is told of every arrival, in the sender's time: 0.3 to 0.5
    /// µs on loopback.
    fn sleeps_in_set(&self) -> bool {
        false
    }
}

/// Properties of a medium for threads that wait for it.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Manners {
    /// Senders ring the doorbell.
    pub rings_doorbell: bool,
    /// A look sees everything; if not, only a call of the kernel does.
    pub looks_suffice: bool,
}

impl Manners {
    /// Of memory that threads of this process share.
    pub const IN_PROCESS: Self = Self { rings_doorbell: true, looks_suffice: true };
}

/// Shortest time that [`Wake::Backoff`] spins for a message that the kernel brings, nanoseconds: it bridges gaps of 100 µs.
const KERNEL_SPIN_NS: u32 = 250_000;

/// Shortest time that it spins for a message in memory, nanoseconds: until a thread that slept has woken and answered. Two that each
/// sleep through the other's waking pay for it twice.
const MEMORY_SPIN_NS: u32 = 50_000;

/// Longest time that a thread spins before it sleeps, whatever its way of waiting, nanoseconds: [`Wake::Adaptive`] spins for twice the
/// cost of a sleep at most.
pub(crate) const SPIN_NS_MAX: u32 = KERNEL_SPIN_NS;

const _: () = assert!(SPIN_NS_MAX >= MEMORY_SPIN_NS && SPIN_NS_MAX >= 2 * SleepCost::LARGEST.total_ns());

/// Smallest cost of a sleep over the kernel's media, nanoseconds of processor time. The price that was measured is a futex's. At that
/// price two that answer each other at once over UDP may both sleep for good, at twice the latency: each takes the other's wake-up, and
/// the way through the network stack, for a wait that is too long to spin for.
const KERNEL_SLEEP_CPU_NS: u32 = 30_000;

/// Cost of a sleep, given its cost on a futex.
fn sleep_cost(on_futex: SleepCost, medium: Manners) -> SleepCost {
    if medium.rings_doorbell || on_futex == SleepCost::NOTHING {
        return on_futex;
    }
    SleepCost { cpu_ns: on_futex.cpu_ns.max(KERNEL_SLEEP_CPU_NS), ..on_futex }
}

/// The waiter for a way of waiting.
///
/// # Errors
/// The way of waiting, if it cannot wait for such a medium.
#[doc(hidden)]
pub fn waiter(wake: Wake, medium: Manners) -> Result<Box<dyn Waiter>, Wake> {
    let Manners { rings_doorbell, looks_suffice } = medium;
    if !wake.can_wait_for(rings_doorbell) {
        return Err(wake);
    }
    let cost = || sleep_cost(SleepCost::of_this_machine(), medium);
    let spin_ns_min = if rings_doorbell { MEMORY_SPIN_NS } else { KERNEL_SPIN_NS };
    let spin_then_sleep = |spin| -> Box<dyn Waiter> {
        if rings_doorbell {
            Box::new(SpinThenSleep::new(SleepOnFutex, spin, looks_suffice))
        } else {
            Box::new(SpinThenSleep::new(SleepInPoll, spin, looks_suffice))
        }
    };
    Ok(match wake {
        Wake::Spin => Box::new(Spin::new(looks_suffice)),
        Wake::Backoff => spin_then_sleep(AdaptiveSpin::fixed(cost(), spin_ns_min)),
        Wake::Adaptive => spin_then_sleep(AdaptiveSpin::new(cost())),
        Wake::Futex => Box::new(SleepOnFutex),
        Wake::EventFd => Box::new(SleepInPoll),
        Wake::Epoll => Box::new(SleepInEpoll),
        Wake::Signal => Box::new(SleepOnSignal::default()),
    })
}

/// A set of the event and all of these descriptors.
///
/// # Errors
/// If the process has no more descriptors.
#[doc(hidden)]
pub fn epoll_set(event: &EventFd, descriptors: [Option<BorrowedFd<'_>>; 2]) -> Result<EpollSet, SystemError> {
    let set = EpollSet::new()?;
    set.add(event.as_fd())?;
    for descriptor in descriptors.into_iter().flatten() {
        set.add(descriptor)?;
    }
    Ok(set)
}

/// End of a sleep in one of the kernel's calls.
struct Woken {
    /// The bell's event may be readable: one that is written after that ends the next sleep at once.
    readable: bool,
    /// The kernel says that its limit ended it.
    to_the_limit: bool,
}

/// A sender that was interrupted between storing its message and ringing has so long to go on with it, before the wake-up
/// counts as missed: the sleep goes on so long, and a ring ends it.
const RING_SLACK: Duration = Duration::from_millis(20);

/// The doorbell's handshake around one call of the kernel that sleeps.
fn sleep_armed(
    bed: &mut Bed<'_>,
    how: Notification,
    condition: &mut dyn Condition,
    mut call: impl FnMut(&mut Bed<'_>, &mut dyn Condition, Option<Duration>) -> Woken,
) -> Waited {
    let bell = bed.bell;
    let ended = bell.sleep(
        how,
        &mut (bed, condition),
        |(_, condition)| condition.is_ready(),
        |(bed, condition)| {
            let timeout = condition.timeout();
            let first = call(bed, *condition, timeout);
            if !(first.to_the_limit && condition.is_overslept() && bell.is_armed()) {
                return (first, false);
            }
            let second = call(bed, *condition, Some(RING_SLACK));
            let missed = second.to_the_limit && bell.is_armed();
            (second, missed)
        },
    );
    let slept = ended.slept.is_some();
    let (readable, missed) = ended.slept.map_or((false, false), |(woken, missed)| (woken.readable, missed));
    let on_descriptor = how == Notification::Descriptor && (slept || ended.rung);
    Waited {
        slept,
        rung: ended.rung,
        on_descriptor,
        on_event: on_descriptor && (readable || ended.rung),
        missed,
    }
}

#[cfg(test)]
mod tests;
