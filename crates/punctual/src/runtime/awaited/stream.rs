//! Objects that are awaited again and again, as streams.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::{Awaitable, Awaited};

/// An object that brings one item after the other.
pub trait Streamable: Awaitable {
    /// The item that it brings.
    type Item<'a>;

    /// Shows the oldest to `f`, if it is there; `None` if none will be any more.
    fn take<R>(&mut self, f: impl FnOnce(Self::Item<'_>) -> R) -> Poll<Option<R>>;
}

/// A stream of what was made of all that comes: [`Awaited::stream`].
pub struct Streamed<T: Streamable, F> {
    awaited: Awaited<T>,
    make: F,
}

impl<T: Streamable, F> fmt::Debug for Streamed<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamed").field("awaited", &self.awaited).finish_non_exhaustive()
    }
}

impl<T: Streamable> Awaited<T> {
    /// A [`Stream`] of what `make` makes of each message, delivery, value, instant or event.
    ///
    /// Messages are read where they lie, in a buffer that the next one overwrites. A stream's items live for as long as their user
    /// likes: so `make` copies what is needed of each, or decodes it, and nothing is copied that is not.
    ///
    /// ```
    /// use std::pin::pin;
    /// use futures_core::Stream;
    /// use punctual::runtime::{Awaited, Runtime, RuntimeOptions, TaskOptions};
    /// use punctual::{Bus, Node, Target};
    ///
    /// async fn first<S: Stream>(stream: S) -> Option<S::Item> {
    ///     let mut stream = pin!(stream); // or StreamExt::next of the crate futures
    ///     std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await
    /// }
    ///
    /// let bus = Bus::loopback("streamed");
    /// let (here, there) = (Node::open(&bus, "here")?, Node::open(&bus, "there")?);
    /// let runtime = Runtime::start(&RuntimeOptions::default())?;
    /// let inbox = Awaited::new(runtime.handle(), there.bind(1)?)?;
    /// let texts = inbox.stream(|message| String::from_utf8_lossy(message.payload).into_owned());
    /// let text = runtime.spawn(TaskOptions::of_class(0), first(texts))?;
    /// here.bind(1)?.send(Target::port("there", 1), b"hello")?;
    /// assert_eq!(runtime.block_on(text)?.as_deref(), Some("hello"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stream<F, R>(self, make: F) -> Streamed<T, F>
    where
        F: FnMut(T::Item<'_>) -> R,
    {
        Streamed { awaited: self, make }
    }
}

impl<T: Streamable, F> Streamed<T, F> {
    /// The awaited object, for everything that does not wait.
    pub fn get_mut(&mut self) -> &mut T {
        self.awaited.get_mut()
    }

    /// The object that was awaited, no longer a stream.
    #[must_use]
    pub fn into_awaited(self) -> Awaited<T> {
        self.awaited
    }
}

/// Nothing is pinned in it.
impl<T: Streamable, F> Unpin for Streamed<T, F> {}

impl<T, F, R> Stream for Streamed<T, F>
where
    T: Streamable,
    F: FnMut(T::Item<'_>) -> R,
{
    type Item = R;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<R>> {
        let Self { awaited, make } = self.get_mut();
        awaited.poll_wait(context, |it| it.take(&mut *make))
    }
}
