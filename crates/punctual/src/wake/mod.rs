//! How a waiter learns that something arrived.
//!
//! A loop polls; when a poll found nothing it calls [`Waiter::wait`], which passes some time or sleeps, and the loop
//! polls again. Sleeping follows the doorbell's handshake: arm, look once more, sleep, disarm.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;

mod adaptive;
mod backoff;
mod descriptor;
mod futex;
mod gate;
mod patience;
mod signal;
mod spin;

use adaptive::Adaptive;
use backoff::Backoff;
use descriptor::{SleepInEpoll, SleepInPoll};
use futex::SleepOnFutex;
pub(crate) use gate::Gate;
pub use patience::{Patience, SLEEP_COST_NS};
use signal::SleepOnSignal;
use spin::Spin;

/// A way of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wake {
    /// Poll without pause. The fastest, and one CPU is gone.
    Spin,
    /// Poll, then yield, then sleep: fast while messages are frequent, idle when they are not.
    #[default]
    Backoff,
    /// Spin for as long as the last waits make worth while, then sleep ([`Patience`]).
    Adaptive,
    /// Sleep on a futex. Only for media whose senders ring the doorbell (shared memory, loopback).
    Futex,
    /// Sleep in poll, on the doorbell's eventfd and the medium's descriptors together.
    EventFd,
    /// Sleep in epoll, on the doorbell and the medium's descriptors together.
    Epoll,
    /// Sleep until a signal: the kernel raises SIGIO in the waiting thread for every frame (`O_ASYNC`). What programs did before
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

    /// Whether it can wait for a medium, by whether senders ring that medium's doorbell.
    pub const fn can_wait_for(self, rings_doorbell: bool) -> bool {
        match self {
            Self::Futex => rings_doorbell,
            Self::Signal => !rings_doorbell,
            _ => true,
        }
    }

    /// How who waits this way for a medium waits for other components of its node.
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

/// What a waiter can sleep on.
#[derive(Debug)]
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

/// What a wait came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// The thread slept, or tried to.
    pub slept: bool,
    /// Somebody rang.
    pub rung: bool,
    /// It slept on descriptors: what they stand for must be looked at.
    pub on_descriptor: bool,
    /// The bell's event may be readable, and must be drained.
    pub on_event: bool,
}

impl Waited {
    /// Some time passed; nobody slept.
    pub const AWAKE: Self = Self { slept: false, rung: false, on_descriptor: false, on_event: false };
}

/// One waiter's way of waiting, with its state.
pub trait Waiter: Send + fmt::Debug {
    /// Passes some time: at most `timeout`, asked for by who sleeps, and less if there may be something. `is_ready` says
    /// whether there is; it is asked after arming the bell.
    fn wait(
        &mut self,
        bed: &mut Bed<'_>,
        timeout: &dyn Fn() -> Option<Duration>,
        is_ready: &mut dyn FnMut() -> bool,
    ) -> Waited;

    /// Something was found: the next wait begins anew.
    fn handle_found(&mut self) {}

    /// Whether it ever sleeps in the bed's set. Each set that a socket is in is told of every arrival, in the sender's time: 0.3 to
    /// 0.5 µs on loopback.
    fn sleeps_in_set(&self) -> bool {
        false
    }
}

/// What a medium does for who waits for it.
#[derive(Clone, Copy, Debug)]
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

/// The waiter for a way of waiting.
///
/// # Errors
/// The way of waiting, if it cannot wait for such a medium.
pub fn waiter(wake: Wake, medium: Manners) -> Result<Box<dyn Waiter>, Wake> {
    let Manners { rings_doorbell, looks_suffice } = medium;
    if !wake.can_wait_for(rings_doorbell) {
        return Err(wake);
    }
    Ok(match wake {
        Wake::Spin => Box::new(Spin::new(looks_suffice)),
        Wake::Backoff if rings_doorbell => Box::new(Backoff::new(SleepOnFutex)),
        Wake::Backoff => Box::new(Backoff::new(SleepInPoll)),
        Wake::Adaptive if rings_doorbell => Box::new(Adaptive::new(SleepOnFutex)),
        Wake::Adaptive => Box::new(Adaptive::new(SleepInPoll)),
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
pub fn epoll_set(event: &EventFd, descriptors: [Option<BorrowedFd<'_>>; 2]) -> Result<EpollSet, SystemError> {
    let set = EpollSet::new()?;
    set.add(event.as_fd())?;
    for descriptor in descriptors.into_iter().flatten() {
        set.add(descriptor)?;
    }
    Ok(set)
}

/// The handshake around every sleep: arm, look once more, sleep, disarm. `sleep` says whether the bell's event may be readable:
/// one that is written after that ends the next sleep at once.
fn sleep_armed(
    bed: &mut Bed<'_>,
    how: Notification,
    is_ready: &mut dyn FnMut() -> bool,
    sleep: impl FnOnce(&mut Bed<'_>) -> bool,
) -> Waited {
    bed.bell.arm(how);
    let slept = !is_ready();
    let readable = slept && sleep(bed);
    let rung = bed.bell.disarm().rung;
    let on_descriptor = how == Notification::Descriptor && (slept || rung);
    Waited { slept, rung, on_descriptor, on_event: on_descriptor && (readable || rung) }
}
