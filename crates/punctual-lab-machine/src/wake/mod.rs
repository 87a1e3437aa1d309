//! Every way in which this kernel lets one thread sleep until another wakes it, behind one pair of traits.
//!
//! A mechanism is two ends: [`Park`], made and used by the thread that sleeps, and [`Notify`], used by any sender. They do not decide
//! whether a notification is needed at all: the [`Doorbell`] does, and [`wait`] sleeps by its handshake. So a lost wake-up can come
//! from a mechanism only if the kernel loses it.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::event_fd::EventFd;
use punctual_machine::slept::Slept;

pub mod bare;
pub mod bare_event;
mod descriptor;
mod floor;
mod futex;
pub mod page;
mod signal;
mod uring;

pub use floor::{BareSleeper, BareWaker, Floor};

/// The sleeping end. It belongs to the thread that opened it: some of these are bound to a thread.
pub trait Park: Send + fmt::Debug {
    /// With what the bell is to be armed.
    fn how(&self) -> Notification {
        Notification::Descriptor
    }

    /// Sleeps until a notification, `timeout` or a signal, or not at all. Armed before, and the condition looked at.
    fn park(&mut self, bell: &Doorbell, timeout: Duration) -> Slept;

    /// Takes back what was sent to a thread that did not sleep after all.
    fn drain(&mut self) {}

    /// System calls of a park that is notified.
    fn calls(&self) -> u32;
}

/// The waking end.
pub trait Notify: Send + Sync + fmt::Debug {
    /// Sends the notification that [`Doorbell::ring`] asked for.
    fn notify(&self, bell: &Doorbell);

    /// The descriptor by which another process could send it too; `None` if it takes none, or cannot be sent from elsewhere.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// System calls of one notification.
    fn calls(&self) -> u32 {
        1
    }
}

/// Both ends of one mechanism.
#[derive(Debug)]
pub struct Ends {
    /// For the thread that opened it.
    pub park: Box<dyn Park>,
    /// For any other.
    pub notify: Box<dyn Notify>,
}

impl Ends {
    fn new(park: impl Park + 'static, notify: impl Notify + 'static) -> Self {
        Self { park: Box::new(park), notify: Box::new(notify) }
    }
}

/// A way of sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// `FUTEX_WAIT` on the bell's own word.
    Futex,
    /// `futex_waitv` on it: one reader of many rings.
    FutexWaitv,
    /// poll on an eventfd, and read.
    EventFd,
    /// Level-triggered epoll on an eventfd, and read.
    Epoll,
    /// Edge-triggered epoll on an eventfd: nothing has to be read.
    EpollEdge,
    /// poll on a pipe, and read.
    Pipe,
    /// A datagram between Unix sockets, received with a time limit.
    Datagram,
    /// `rt_tgsigqueueinfo` and `rt_sigtimedwait`.
    SigWait,
    /// `rt_tgsigqueueinfo`, poll on a signalfd, and read.
    SignalFd,
    /// `rt_tgsigqueueinfo` and a handler; the signal mask is UIF, and `ppoll` opens it only while it sleeps.
    SignalHandler,
    /// A pipe that sends a signal to its owner thread (`O_ASYNC`, `F_SETSIG`, `F_SETOWN_EX`), `rt_sigtimedwait`, read.
    SigIo,
    /// io_uring: `MSG_RING` from a ring of the sender's to one of the sleeper's.
    UringMessage,
    /// io_uring: a futex wait in the sleeper's ring; the sender calls futex wake.
    UringFutex,
    /// io_uring: a multishot poll of an eventfd.
    UringPoll,
    /// SENDUIPI and a handler, where processor and kernel have user interrupts.
    UserInterrupt,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Futex,
        Self::FutexWaitv,
        Self::EventFd,
        Self::Epoll,
        Self::EpollEdge,
        Self::Pipe,
        Self::Datagram,
        Self::SigWait,
        Self::SignalFd,
        Self::SignalHandler,
        Self::SigIo,
        Self::UringMessage,
        Self::UringFutex,
        Self::UringPoll,
        Self::UserInterrupt,
    ];

    /// Its name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Futex => "futex",
            Self::FutexWaitv => "futex-waitv",
            Self::EventFd => "eventfd",
            Self::Epoll => "epoll",
            Self::EpollEdge => "epoll-edge",
            Self::Pipe => "pipe",
            Self::Datagram => "datagram",
            Self::SigWait => "sigwait",
            Self::SignalFd => "signalfd",
            Self::SignalHandler => "signal-handler",
            Self::SigIo => "sigio",
            Self::UringMessage => "uring-msg",
            Self::UringFutex => "uring-futex",
            Self::UringPoll => "uring-poll",
            Self::UserInterrupt => "user-interrupt",
        }
    }

    /// Opens both ends, for the calling thread to sleep on.
    ///
    /// # Errors
    /// If this kernel lacks it, or refuses it to this process.
    pub fn open(self) -> Result<Ends, SystemError> {
        match self {
            Self::Futex => Ok(futex::open()),
            Self::FutexWaitv => futex::open_many(),
            Self::EventFd => descriptor::open_event(),
            Self::Epoll => descriptor::open_epoll(),
            Self::EpollEdge => descriptor::open_epoll_edge(),
            Self::Pipe => descriptor::open_pipe(),
            Self::Datagram => descriptor::open_datagram(),
            Self::SigWait => signal::open_sigwait(),
            Self::SignalFd => signal::open_signalfd(),
            Self::SignalHandler => signal::open_handler(),
            Self::SigIo => signal::open_sigio(),
            Self::UringMessage => uring::open_message(),
            Self::UringFutex => uring::open_futex(),
            Self::UringPoll => uring::open_poll(),
            Self::UserInterrupt => crate::user_interrupt::open(),
        }
    }
}

impl Mechanism {
    /// Reach of its notifications: out of the sleeper's process or not, and by a descriptor or by the bell alone.
    pub const fn reach(self) -> Reach {
        match self {
            Self::Futex | Self::FutexWaitv | Self::UringFutex => Reach::Memory,
            Self::EventFd
            | Self::Epoll
            | Self::EpollEdge
            | Self::Pipe
            | Self::Datagram
            | Self::SigIo
            | Self::UringPoll => Reach::Descriptor,
            Self::SigWait
            | Self::SignalFd
            | Self::SignalHandler
            | Self::UringMessage
            | Self::UserInterrupt => Reach::Process,
        }
    }

    /// The waking end in another process than the sleeper's, with [`Notify::descriptor`] of the one that it opened. `None` for
    /// a mechanism that does not reach so far, or a descriptor of another kind.
    pub fn notify_elsewhere(self, descriptor: Option<OwnedFd>) -> Option<Box<dyn Notify>> {
        match self {
            Self::Futex | Self::FutexWaitv | Self::UringFutex => Some(Box::new(futex::NotifyFutex)),
            Self::EventFd | Self::Epoll | Self::EpollEdge | Self::UringPoll => {
                let event = EventFd::from_descriptor(descriptor?)?;
                Some(Box::new(descriptor::NotifyEvent(Arc::new(event))))
            }
            Self::Pipe | Self::SigIo => Some(Box::new(descriptor::NotifyPipe(descriptor?))),
            Self::Datagram => Some(Box::new(descriptor::NotifyDatagram(descriptor?.into()))),
            Self::SigWait
            | Self::SignalFd
            | Self::SignalHandler
            | Self::UringMessage
            | Self::UserInterrupt => None,
        }
    }
}

/// Reach of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To all that share the bell's memory.
    Memory,
    /// To all that have a descriptor of the sleeper's.
    Descriptor,
    /// Not out of the sleeper's process, as it is opened here.
    Process,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|mechanism| mechanism.name() == name);
        known.copied().ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown way of sleeping {name:?}; known are {names}")
        })
    }
}

/// Result of one wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// It slept, or tried to.
    pub parked: bool,
    /// Somebody sent a notification, or is about to.
    pub rung: bool,
    /// It slept to its limit.
    pub to_the_limit: bool,
}

/// One handshake of the doorbell around one sleep. The caller looks again afterwards: waking early is allowed, waking
/// without a notification is not counted on.
#[inline]
pub fn wait(
    park: &mut dyn Park,
    bell: &Doorbell,
    timeout: Duration,
    is_ready: &mut dyn FnMut() -> bool,
) -> Waited {
    let ended = bell.sleep(park.how(), park, |_| is_ready(), |park| park.park(bell, timeout));
    let parked = ended.slept.is_some();
    if ended.rung && !parked {
        park.drain();
    }
    Waited { parked, rung: ended.rung, to_the_limit: ended.slept == Some(Slept::ToTheLimit) }
}

#[cfg(test)]
mod tests;
