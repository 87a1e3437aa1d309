//! Awaiting what the library itself brings: messages, deliveries of a group, values and their instants, news of nodes. On threads of
//! the runtime's own, on tokio, and on any executor that knows when a descriptor is readable.
//!
//! One protocol for all, [`Awaited::poll_wait`]: try, arm, wait. It loses nothing when it is given up, as nothing is taken before
//! the poll that returns it.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use super::{Handle, context};
use own::Own;

pub use reports::PollReadable;
pub use stream::{Streamable, Streamed};

use reports::Reports;

mod kinds;
mod own;
mod reports;
mod stream;

/// Tries of one poll.
const TRIES_MAX: u32 = 8;

/// An object that can be awaited.
///
/// | what | by |
/// |---|---|
/// | [`Communicator`](crate::Communicator) | `receive` |
/// | [`Subscription`](crate::Subscription) | `poll` |
/// | [`Group`](crate::broadcast::Group) | `deliver` |
/// | [`Subscriber`](crate::interest::Subscriber) | `receive` |
/// | [`Publisher`](crate::interest::Publisher) | `next_due` |
/// | [`Participant`](crate::interest::Participant) | `serve` |
/// | [`NodeEvents`](crate::node::NodeEvents) | `next` |
pub trait Awaitable: AsFd + Send + fmt::Debug + 'static + sealed::Sealed {}

impl<T: AsFd + Send + fmt::Debug + 'static + sealed::Sealed> Awaitable for T {}

mod sealed {
    use punctual_proto::Nanos;

    /// The interface that the runtime requires of it.
    pub trait Sealed {
        /// True if something has to be done at instants, besides what comes by its descriptor.
        const HAS_INSTANTS: bool = false;

        /// True if looks see all that comes: otherwise only the kernel could say.
        fn shows_all(&self) -> bool;

        /// True if a look sees something. An armed object stays armed.
        fn is_ready(&mut self) -> bool;

        /// From now on its descriptor becomes readable when something comes: `false` if there may already be something.
        fn arm(&mut self) -> bool;

        /// Longest time that it may wait for its descriptor, if not for ever.
        fn time_left(&self) -> Option<Nanos> {
            None
        }
    }
}

/// An object that a task awaits: each kind of [`Awaitable`] has its own method for that.
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
/// Awaiting can be cancelled at any point: anything not returned is still there. A task that waits for minutes calls
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

/// The party that reports that its descriptor is readable.
#[derive(Debug)]
enum Host<T: Awaitable> {
    /// A runtime with threads of its own.
    Own(Own<T>),
    /// Another executor.
    Foreign(Reports),
}

impl<T: Awaitable> Awaited<T> {
    /// For tasks of a runtime with threads of its own. When that is gone, nobody is woken.
    ///
    /// # Errors
    /// If the kernel has no room for its descriptor.
    pub fn new(handle: &Handle, it: T) -> io::Result<Self> {
        let own = Own::new(handle, it.as_fd())?;
        Ok(Self { here: Some(Box::new(it)), in_row: 0, host: Host::Own(own) })
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
        Self::by(it, reports::in_tokio)
    }

    /// For tasks of any other executor. `watch` registers a descriptor where that one waits for descriptors; it is called once more
    /// for what has to be done at instants, too (publishers, subscribers and participants). `crates/punctual/examples/executor.rs`
    /// is such an executor, on mio.
    ///
    /// # Errors
    /// Those of `watch`, and if there are too many descriptors.
    pub fn by<R: PollReadable>(it: T, watch: impl FnMut(OwnedFd) -> io::Result<R>) -> io::Result<Self> {
        let reports = Reports::new(it.as_fd(), T::HAS_INSTANTS, watch)?;
        Ok(Self { here: Some(Box::new(it)), in_row: 0, host: Host::Foreign(reports) })
    }

    /// Itself, for everything that does not wait.
    pub fn get_mut(&mut self) -> &mut T {
        let Self { here, host, .. } = self;
        here.get_or_insert_with(|| match host {
            Host::Own(own) => own.take_back().expect("it is here or rests"),
            Host::Foreign(_) => unreachable!("elsewhere it never rests"),
        })
    }

    /// Itself, no longer awaited.
    #[must_use]
    pub fn into_inner(mut self) -> T {
        *self.take_out().expect("it is taken out once")
    }

    /// Itself, if it was not taken out before; its descriptor is watched no longer.
    fn take_out(&mut self) -> Option<Box<T>> {
        let Host::Own(own) = &mut self.host else { return self.here.take() };
        let it = self.here.take().or_else(|| own.take_back())?;
        own.leave(it.as_fd());
        Some(it)
    }

    /// Waits until `take` finds something.
    async fn wait<R>(&mut self, mut take: impl FnMut(&mut T) -> Poll<R>) -> R {
        poll_fn(|context| self.poll_wait(context, &mut take)).await
    }

    /// Returns what `take` finds; if that is nothing, the task is woken for what comes.
    fn poll_wait<R>(
        &mut self,
        context: &mut Context<'_>,
        mut take: impl FnMut(&mut T) -> Poll<R>,
    ) -> Poll<R> {
        self.in_row += 1;
        if self.in_row >= context::IN_ROW_MAX {
            self.in_row = 0;
            if context::is_due() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        for _ in 0..TRIES_MAX {
            if let Poll::Ready(taken) = take(self.get_mut()) {
                if let Host::Foreign(reports) = &mut self.host {
                    reports.handle_found();
                }
                return Poll::Ready(taken);
            }
            if self.rests(context) {
                return Poll::Pending;
            }
        }
        // It says again and again that there may be something: others have their turn first.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Lays it where its task is woken for what comes: `false` if there may already be something.
    fn rests(&mut self, context: &mut Context<'_>) -> bool {
        let Some(it) = &mut self.here else { return true };
        match &mut self.host {
            Host::Own(own) => {
                if own.has_news_soon(&mut **it, context) {
                    return false;
                }
                self.here.take().into_iter().for_each(|it| own.lay_down(it, context.waker()));
                true
            }
            Host::Foreign(reports) => {
                !reports.has_news_soon(&mut **it) && it.arm() && reports.await_news(&mut **it, context)
            }
        }
    }
}

impl<T: Awaitable> Drop for Awaited<T> {
    fn drop(&mut self) {
        drop(self.take_out());
    }
}

/// True if a try may find something: an object of which only the kernel could tell is always tried.
fn may_have<T: Awaitable>(it: &mut T) -> bool {
    !it.shows_all() || it.is_ready()
}
