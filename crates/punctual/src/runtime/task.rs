//! One task: its worker's data about it, and the wait of another for its end.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use async_task::{FallibleTask, Runnable};
use punctual_machine::counter::Counter;
use punctual_machine::inbox::Entry;
use punctual_proto::Nanos;
use punctual_proto::classes::Ready;

use super::context;
use super::options::{TaskOptions, UNNAMED};
use crate::locks::lock;

/// A task that is ready to run.
pub(super) type Task = Runnable<Meta>;

/// A request on its way through tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it came, by the runtime's clock.
    pub arrived: Nanos,
    /// When it is to be done; [`Nanos::NEVER`] if that does not matter.
    pub deadline: Nanos,
}

/// The runtime's record of a task. Only who has the runnable writes to it: one thread at a time.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) class: u8,
    pub(super) name: &'static str,
    deadline_after: Option<Nanos>,
    inherits: bool,
    /// The worker that it goes back to.
    pub(super) home: Counter,
    /// When it was woken.
    pub(super) woken: Counter,
    arrived: Counter,
    deadline: Counter,
    /// It was woken while it ran, and goes on with its request: 1.
    goes_on: Counter,
    /// Carries it into an inbox, so that a wake allocates nothing.
    entry: Mutex<Option<Box<Entry<Task>>>>,
}

impl Meta {
    pub(super) fn new(options: &TaskOptions, class: u8, home: usize) -> Self {
        let counter = |value: u64| {
            let counter = Counter::default();
            counter.set(value);
            counter
        };
        let ns = |time: std::time::Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Self {
            class,
            name: options.name,
            deadline_after: options.deadline.map(ns),
            inherits: options.inherits,
            home: counter(home as u64),
            woken: Counter::default(),
            arrived: Counter::default(),
            deadline: counter(Nanos::NEVER.0),
            goes_on: Counter::default(),
            entry: Mutex::new(Some(Entry::new())),
        }
    }

    /// It is woken. A request that is under way, its own or its waker's, keeps its instants. One that was shed is over.
    pub(super) fn handle_wake(&self, now: Nanos, is_running: bool, waker: Option<Request>) {
        self.woken.set(now.0);
        let goes_on = is_running && !context::is_shed();
        self.goes_on.set(goes_on.into());
        if goes_on {
            // The thread that polls the task says so; the task may have taken over another request meanwhile.
            if let Some(request) = waker {
                self.serve(request);
            }
            return;
        }
        let fresh = || Request {
            arrived: now,
            deadline: self.deadline_after.map_or(Nanos::NEVER, |after| now.plus(after)),
        };
        let taken = waker.filter(|request| !is_running && self.inherits && request.deadline != Nanos::NEVER);
        self.serve(taken.unwrap_or_else(fresh));
    }

    fn serve(&self, request: Request) {
        self.arrived.set(request.arrived.0);
        self.deadline.set(request.deadline.0);
    }

    pub(super) fn request(&self) -> Request {
        Request { arrived: Nanos(self.arrived.get()), deadline: Nanos(self.deadline.get()) }
    }

    /// True if it has run with its request before.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on.get() == 1
    }

    /// Its description for the scheduler.
    pub(super) fn ready(&self, task: u32) -> Ready {
        let Request { arrived, deadline } = self.request();
        Ready { task, class: self.class, arrived, deadline }
    }

    /// Its entry, for one way through an inbox.
    pub(super) fn take_entry(&self) -> Box<Entry<Task>> {
        lock(&self.entry).take().unwrap_or_else(Entry::new)
    }

    /// The entry is back.
    pub(super) fn keep_entry(&self, entry: Box<Entry<Task>>) {
        *lock(&self.entry) = Some(entry);
    }
}

/// Payload of a task's panic.
pub(super) type Panic = Box<dyn Any + Send>;

/// The future, or what it panicked with: a panic ends one task and no worker.
pub(super) async fn contain<F: Future>(future: F) -> Result<F::Output, Panic> {
    let mut future = pin!(future);
    let poll = |cx: &mut Context<'_>| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    };
    poll_fn(poll).await
}

/// Ends the process where a panic would end a worker. Nobody would serve the worker's tasks any more, wakers would be dropped unwoken,
/// and nobody would be told.
struct NoWayOut;

impl Drop for NoWayOut {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Does what must not panic: a panic ends the process.
pub(super) fn without_panic<T>(work: impl FnOnce() -> T) -> T {
    let no_way_out = NoWayOut;
    let done = work();
    std::mem::forget(no_way_out);
    done
}

/// Wakes those that wait, which may be code of anybody's. Returns their number.
pub(super) fn wake_all(wakers: impl IntoIterator<Item = Waker>) -> usize {
    without_panic(|| wakers.into_iter().map(Waker::wake).count())
}

/// Why a task has no result.
pub enum JoinError {
    /// It was cancelled, or its runtime was dropped.
    Cancelled {
        /// The task's name ([`TaskOptions::named`]).
        task: &'static str,
    },
    /// It panicked.
    Panicked {
        /// The task's name ([`TaskOptions::named`]).
        task: &'static str,
        /// Payload of the panic.
        panic: Box<dyn Any + Send>,
    },
}

/// A task in a sentence; one without a name of its own is the task.
struct Named(&'static str);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            UNNAMED => f.write_str("the task"),
            name => write!(f, "the task {name}"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (task, panic) = match self {
            Self::Cancelled { task } => return write!(f, "{} was cancelled", Named(task)),
            Self::Panicked { task, panic } => (task, panic),
        };
        let words = panic.downcast_ref::<&str>().copied();
        let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        write!(f, "{} panicked: {}", Named(task), words.unwrap_or("without words"))
    }
}

impl std::error::Error for JoinError {}

/// The end of a task, to be waited for. Dropped, it lets the task go on alone.
#[derive(Debug)]
#[must_use = "the task goes on alone; `drop` says that this is meant"]
pub struct Join<T> {
    /// `None` only while it is dropped or cancelled.
    task: Option<FallibleTask<Result<T, Panic>, Meta>>,
    name: &'static str,
}

impl<T> Join<T> {
    pub(super) fn new(task: FallibleTask<Result<T, Panic>, Meta>, name: &'static str) -> Self {
        Self { task: Some(task), name }
    }

    /// True if it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }

    /// Ends it at the point where it waits, and waits until it is gone. Its result, if it was done before.
    ///
    /// # Errors
    /// [`JoinError`]: mostly that it was cancelled.
    pub async fn cancel(mut self) -> Result<T, JoinError> {
        match self.task.take() {
            Some(task) => outcome(task.cancel().await, self.name),
            None => Err(JoinError::Cancelled { task: self.name }),
        }
    }
}

fn outcome<T>(ended: Option<Result<T, Panic>>, task: &'static str) -> Result<T, JoinError> {
    ended.ok_or(JoinError::Cancelled { task })?.map_err(|panic| JoinError::Panicked { task, panic })
}

impl<T> Future for Join<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let name = self.name;
        match self.task.as_mut() {
            Some(task) => Pin::new(task).poll(cx).map(|ended| outcome(ended, name)),
            None => Poll::Ready(Err(JoinError::Cancelled { task: name })),
        }
    }
}

impl<T> Drop for Join<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}
