//! Awaiting what the library itself receives: messages as they come, on either host.
//!
//! On threads of the runtime's own nobody is woken by a descriptor while a worker is awake: what waits lies where every look of a
//! worker sees it. Before the one that leads sleeps, it arms all of it, and what comes then ends its sleep.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use punctual_machine::epoll::Readiness;

use super::reactor::Reported;
use super::shared::Shared;
use super::watch::Watched;
use super::{Handle, context, unpoisoned, yield_now};
use crate::communicator::{Communicator, Message};
use crate::publication::{StreamMessage, Subscription};

/// Messages in a row between two looks whether the turn is over.
const IN_ROW_MAX: u32 = 32;

/// Tries of one poll.
const TRIES_MAX: u32 = 8;

/// What can be awaited: [`Communicator`] and [`Subscription`].
pub trait Awaitable: AsFd + Send + fmt::Debug + 'static + sealed::Sealed {}

impl<T: AsFd + Send + fmt::Debug + 'static + sealed::Sealed> Awaitable for T {}

mod sealed {
    /// What the runtime asks of it.
    pub trait Sealed {
        /// Whether there may be something; `None` if only the kernel could say.
        fn is_ready(&self) -> Option<bool>;

        /// From now on its descriptor becomes readable when something comes: `false` if there may already be something.
        fn arm(&mut self) -> bool;
    }
}

impl sealed::Sealed for Communicator {
    fn is_ready(&self) -> Option<bool> {
        Self::is_ready(self)
    }

    fn arm(&mut self) -> bool {
        Self::arm(self)
    }
}

impl sealed::Sealed for Subscription {
    fn is_ready(&self) -> Option<bool> {
        Some(Self::is_ready(self))
    }

    fn arm(&mut self) -> bool {
        Self::arm(self)
    }
}

/// What waits while its task does.
#[derive(Debug)]
struct Resting<T> {
    /// Itself, while its task waits.
    it: Option<Box<T>>,
    waker: Option<Waker>,
    is_armed: bool,
    /// It is among those that workers look at.
    is_watched: bool,
}

#[derive(Debug)]
struct Rest<T>(Mutex<Resting<T>>);

impl<T: Awaitable> Reported for Rest<T> {
    fn handle(&self, readiness: Readiness) -> [Option<Waker>; 2] {
        let is_news = readiness.is_readable || readiness.is_closed;
        [if is_news { self.forget()[0].take() } else { None }, None]
    }

    fn forget(&self) -> [Option<Waker>; 2] {
        [unpoisoned(self.0.lock()).waker.take(), None]
    }
}

impl<T: Awaitable> Watched for Rest<T> {
    fn look(&self) -> Option<Option<Waker>> {
        let mut resting = unpoisoned(self.0.lock());
        let is_settled = match &resting.it {
            Some(it) => it.is_ready() == Some(true),
            None => true,
        };
        if !is_settled {
            return None;
        }
        resting.is_watched = false;
        Some(resting.waker.take())
    }

    fn arm(&self) -> Option<Waker> {
        let mut resting = unpoisoned(self.0.lock());
        resting.is_watched = false;
        resting.arm()
    }
}

impl<T: Awaitable> Resting<T> {
    /// Arms it if it waits; whom to wake because something is there already.
    fn arm(&mut self) -> Option<Waker> {
        let it = self.it.as_mut().filter(|_| !self.is_armed)?;
        self.is_armed = it.arm();
        if self.is_armed { None } else { self.waker.take() }
    }
}

/// A communicator or a subscription whose messages a task awaits.
///
/// ```
/// use punctual::runtime::{Awaited, Runtime, RuntimeOptions, TaskOptions};
/// use punctual::{Bus, Node, Target};
///
/// let bus = Bus::loopback("awaited");
/// let (here, there) = (Node::open(&bus, "here")?, Node::open(&bus, "there")?);
/// let runtime = Runtime::start(&RuntimeOptions::default())?;
/// let mut inbox = Awaited::new(runtime.handle(), there.bind(1)?)?;
/// let size = runtime.spawn(TaskOptions::of_class(0), async move { inbox.receive().await.payload.len() })?;
/// here.bind(1)?.send(Target::port("there", 1), b"hello")?;
/// assert_eq!(runtime.block_on(size)?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Awaiting can be cancelled at any point: what was not returned is still there. A task that waits for minutes calls
/// [`crate::Node::housekeep`] now and then, as an event loop does: while all of a node's tasks wait, nobody tells peers how far its
/// messages are, or notices that a peer has died.
#[derive(Debug)]
pub struct Awaited<T: Awaitable> {
    /// `None` while it rests.
    here: Option<Box<T>>,
    /// Found since it last looked whether its turn is over.
    in_row: u32,
    host: Host<T>,
}

/// Who says that its descriptor is readable.
#[derive(Debug)]
enum Host<T: Awaitable> {
    /// A runtime with threads of its own.
    Own { rest: Arc<Rest<T>>, number: usize, shared: Arc<Shared> },
    /// tokio.
    #[cfg(feature = "tokio")]
    Tokio(::tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>),
}

impl<T: Awaitable> Awaited<T> {
    /// For tasks of a runtime with threads of its own.
    ///
    /// # Errors
    /// If the kernel has no room for its descriptor.
    pub fn new(handle: &Handle, it: T) -> io::Result<Self> {
        let shared = Arc::clone(&handle.shared);
        let resting = Resting { it: None, waker: None, is_armed: false, is_watched: false };
        let rest = Arc::new(Rest(Mutex::new(resting)));
        let number = shared.add_descriptor(it.as_fd(), Arc::clone(&rest) as _)?;
        Ok(Self { here: Some(Box::new(it)), in_row: 0, host: Host::Own { rest, number, shared } })
    }

    /// For tasks of tokio, in classes or not. Called within a tokio runtime whose descriptors are enabled.
    ///
    /// # Errors
    /// If the kernel has no room for its descriptor, or the thread is in no runtime of tokio.
    #[cfg(feature = "tokio")]
    pub fn in_tokio(it: T) -> io::Result<Self> {
        if ::tokio::runtime::Handle::try_current().is_err() {
            return Err(io::Error::other(super::StartError::NoTokio));
        }
        let descriptor = watched_by_tokio(it.as_fd().try_clone_to_owned()?)?;
        Ok(Self { here: Some(Box::new(it)), in_row: 0, host: Host::Tokio(descriptor) })
    }

    /// Itself, for everything that does not wait.
    pub fn get_mut(&mut self) -> &mut T {
        let Self { here, host, .. } = self;
        here.get_or_insert_with(|| host.take_back())
    }

    /// Itself, no longer awaited.
    #[must_use]
    pub fn into_inner(mut self) -> T {
        self.get_mut();
        let it = self.here.take().expect("it was just taken back");
        self.host.leave(&*it);
        *it
    }

    /// Waits until `take` says that it has something.
    async fn wait(&mut self, mut take: impl FnMut(&mut T) -> bool) {
        self.in_row += 1;
        if self.in_row >= IN_ROW_MAX {
            self.in_row = 0;
            if context::is_due() {
                yield_now().await;
            }
        }
        poll_fn(|context| {
            for _ in 0..TRIES_MAX {
                if take(self.get_mut()) {
                    return Poll::Ready(());
                }
                if self.rests(context) {
                    return Poll::Pending;
                }
            }
            // It says again and again that there may be something: others have their turn first.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Lays it where its task is woken for what comes: `false` if there may already be something.
    fn rests(&mut self, context: &mut Context<'_>) -> bool {
        let Self { here, host, .. } = self;
        match host {
            Host::Own { rest, shared, .. } => {
                if here.as_ref().is_some_and(|it| is_worth_a_look(&**it)) {
                    return false;
                }
                if let Some(it) = here.take() {
                    lay_down(rest, it, shared, context.waker());
                }
                true
            }
            #[cfg(feature = "tokio")]
            Host::Tokio(descriptor) => {
                if !here.as_mut().is_some_and(|it| it.arm()) {
                    return false;
                }
                // The kernel said so once, for something that was taken since: it says so again for what comes.
                while let Poll::Ready(ready) = descriptor.poll_read_ready(context) {
                    match ready {
                        Ok(mut ready) => ready.clear_ready(),
                        // tokio's runtime ends, and this task with it.
                        Err(_ends) => return true,
                    }
                    if here.as_ref().is_none_or(|it| it.is_ready() != Some(false)) {
                        return false;
                    }
                }
                true
            }
        }
    }
}

#[cfg(feature = "tokio")]
#[expect(
    deprecated,
    reason = "what replaces it is unsafe for the sake of types that are no owned descriptors"
)]
fn watched_by_tokio(
    descriptor: std::os::fd::OwnedFd,
) -> io::Result<::tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    ::tokio::io::unix::AsyncFd::with_interest(descriptor, ::tokio::io::Interest::READABLE)
}

/// Whether something has come while nobody else had anything to do.
fn is_worth_a_look<T: Awaitable>(it: &T) -> bool {
    it.is_ready().is_some() && context::is_ready_soon(|| it.is_ready() == Some(true))
}

/// Puts it where the looks of workers see it, or arms it.
fn lay_down<T: Awaitable>(rest: &Arc<Rest<T>>, it: Box<T>, shared: &Shared, waker: &Waker) {
    let can_be_watched = it.is_ready().is_some();
    let mut resting = unpoisoned(rest.0.lock());
    resting.it = Some(it);
    resting.waker = Some(waker.clone());
    let was_watched = std::mem::replace(&mut resting.is_watched, can_be_watched);
    let is_ready = if can_be_watched { None } else { resting.arm() };
    drop(resting);
    let watched = || Arc::clone(rest) as Arc<dyn Watched>;
    let is_ready = if can_be_watched && !was_watched { shared.reactor.watch(watched()) } else { is_ready };
    is_ready.into_iter().for_each(Waker::wake);
}

impl<T: Awaitable> Host<T> {
    /// What rests comes back.
    fn take_back(&self) -> Box<T> {
        match self {
            Self::Own { rest, .. } => {
                let mut resting = unpoisoned(rest.0.lock());
                // What arms it disarms itself when it is next asked for something.
                (resting.is_armed, resting.waker) = (false, None);
                resting.it.take().expect("it is here or rests")
            }
            #[cfg(feature = "tokio")]
            Self::Tokio(_) => unreachable!("on tokio it never rests"),
        }
    }

    fn leave(&self, it: &T) {
        match self {
            Self::Own { number, shared, .. } => shared.reactor.remove(it.as_fd(), *number),
            #[cfg(feature = "tokio")]
            Self::Tokio(_) => {}
        }
    }
}

impl<T: Awaitable> Drop for Awaited<T> {
    fn drop(&mut self) {
        // Taken apart already where there is neither.
        let rests = match &self.host {
            Host::Own { rest, .. } => unpoisoned(rest.0.lock()).it.is_some(),
            #[cfg(feature = "tokio")]
            Host::Tokio(_) => false,
        };
        if self.here.is_some() || rests {
            self.get_mut();
        }
        if let Some(it) = self.here.take() {
            self.host.leave(&*it);
        }
    }
}

impl Awaited<Communicator> {
    /// The oldest message; waits for one.
    pub async fn receive(&mut self) -> Message<'_> {
        self.wait(Communicator::try_land).await;
        self.get_mut().message()
    }
}

impl Awaited<Subscription> {
    /// Shows at most `limit` messages to `f`, as [`Subscription::poll`] does; waits for the first. Returns how many were delivered.
    pub async fn poll(&mut self, limit: usize, mut f: impl FnMut(&StreamMessage<'_>)) -> usize {
        let mut delivered = 0;
        self.wait(|subscription| {
            delivered = subscription.poll(limit, &mut f);
            delivered > 0
        })
        .await;
        delivered
    }
}
