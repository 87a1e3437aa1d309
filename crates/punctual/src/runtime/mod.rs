//! Tasks in classes: the important ones first, none starved.
//!
//! A runtime polls futures on threads of its own. Each task has a class. The pure scheduler of [`punctual_proto::classes`] decides
//! which is next, for each worker by itself. Idle workers take tasks from others.
//!
//! ```
//! use punctual::runtime::{Runtime, RuntimeOptions, TaskOptions};
//!
//! let runtime = Runtime::start(&RuntimeOptions::default())?;
//! let report = runtime.spawn(TaskOptions::of_class(7).named("report"), async { 6 * 7 })?;
//! let urgent = runtime.spawn(TaskOptions::of_class(0).named("urgent"), async { "now" })?;
//! assert_eq!(runtime.block_on(urgent)?, "now");
//! assert_eq!(runtime.block_on(report)?, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | what | rule |
//! |---|---|
//! | order | class by class; each class has a floor, nearest deadlines are first within it |
//! | deadline | counts from the wake that brings a request, and goes on to tasks that its task wakes |
//! | panic | ends its task, and whoever waits for it is told |
//! | end | dropping the runtime drops every task |
//!
//! `docs/runtime.md` says how to choose workers, classes and lanes.

mod awaited;
mod context;
mod counters;
mod line;
mod metrics;
mod net;
mod options;
mod page;
mod polling;
mod reactor;
mod registry;
mod seat;
mod shared;
mod source;
mod steady_time;
mod task;
mod timers;
#[cfg(feature = "tokio")]
pub mod tokio;
mod verdict;
mod watch;
mod worker;

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use async_task::{Builder, ScheduleInfo, WithInfo};
use punctual_machine::{SystemError, parker};
use punctual_proto::Nanos;

pub use awaited::{Awaitable, Awaited, PollReadable, Streamable, Streamed};
pub use context::{blocking, is_shed, request, take_over, yield_if_due, yield_now};
pub use counters::Histogram;
pub use metrics::{
    ClassMetrics, Metrics, ReactorMetrics, RuntimeOwner, ThreadMetrics, WorkerMetrics, read_all,
};
pub use net::{TcpListener, TcpStream, UdpSocket};
pub use options::{BLOCKING_MAX, Lane, RuntimeOptions, StartError, TaskOptions, Urgency, WORKERS_MAX};
pub use page::LongPolls;
pub use punctual_proto::classes::{ClassOptions, ClassesError, Policy};
pub use registry::SpawnError;
pub use task::{Join, JoinError, Request};
pub use timers::{Elapsed, Sleep};
pub use verdict::Verdict;

use page::Word;
use registry::Registered;
use shared::Shared;
use task::{Meta, Task, contain};
use worker::Worker;

use crate::locks::lock;

fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Threads that poll tasks. Dropped, it ends them and drops every task. One of its own tasks may drop it: that one's thread is not
/// waited for, and the task is dropped when its poll ends.
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    threads: Vec<thread::JoinHandle<()>>,
}

/// Spawns tasks on a runtime, from any thread. Does not keep the runtime.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("workers", &self.shared.seats.len()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Starts the threads. They may use the processors that the calling thread may.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: &RuntimeOptions) -> Result<Self, StartError> {
        let workers = options.count_workers()?;
        let handle = Handle { shared: Arc::new(Shared::new(options, false)?) };
        // Dropped on the way, it ends the threads that have begun.
        let mut runtime = Self { handle, threads: Vec::with_capacity(workers) };
        let of_lanes = options.lanes.iter().flat_map(|lane| std::iter::repeat_n(lane.urgency, lane.workers));
        let urgencies = of_lanes.chain(std::iter::repeat_n(options.urgency, options.workers));
        for (index, urgency) in urgencies.enumerate() {
            let thread = start_worker(&runtime.handle.shared, index, urgency)?;
            runtime.threads.push(thread);
        }
        Ok(runtime)
    }

    /// Spawns tasks, also when this has been moved elsewhere.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// As [`Handle::spawn`].
    ///
    /// # Errors
    /// See [`SpawnError`].
    pub fn spawn<F>(&self, options: TaskOptions, future: F) -> Result<Join<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(options, future)
    }

    /// Polls a future on the calling thread until it is done. Not from a task.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        parker::block_on(future)
    }
}

/// Starts a worker's thread and waits for it to be as urgent as it should.
fn start_worker(
    shared: &Arc<Shared>,
    index: usize,
    urgency: Urgency,
) -> Result<thread::JoinHandle<()>, StartError> {
    let (said, heard) = mpsc::channel();
    let shared = Arc::clone(shared);
    let work = move || {
        let taken = urgency.take();
        let works = taken.is_ok();
        // Nobody listens if the starting thread was killed.
        let _nobody = said.send(taken);
        if works {
            Worker::new(&shared, index).run();
        }
    };
    let failed = |error: io::Error| SystemError::new("start thread", format!("worker-{index}"), error);
    let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(work).map_err(failed)?;
    heard.recv().unwrap_or_else(|_| Err(failed(io::ErrorKind::BrokenPipe.into())))?;
    Ok(thread)
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let shared = &self.handle.shared;
        // A forked child has not got the threads, and what wakes them is its parent's. Locks may be held by threads that it lacks.
        if !shared.is_of_this_process() {
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        shared.stop_workers();
        // Each thread is listed by one that is waited for before.
        let substitutes = std::iter::from_fn(|| lock(&shared.substitutes).threads.pop());
        for thread in self.threads.drain(..).chain(substitutes) {
            let is_own = thread.thread().id() == thread::current().id();
            // A worker has no panics: tasks' are contained.
            let _ended = if is_own { Ok(()) } else { thread.join() };
        }
        shared.end_tasks();
    }
}

impl Handle {
    /// Starts a task. It is polled by a worker that serves its class; the result is had from what is returned, or not at all.
    ///
    /// # Errors
    /// See [`SpawnError`].
    pub fn spawn<F>(&self, options: TaskOptions, future: F) -> Result<Join<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let shared = &self.shared;
        let number = lock(&shared.registry).reserve()?;
        let registered = Registered { shared: Arc::clone(shared), number };
        let class = options.class.min((shared.classes() - 1) as u8);
        let meta = Meta::new(&options, class, shared.home_of_new(class));
        let whole = move |_: &Meta| async move {
            let ended = contain(future).await;
            registered.shared.page.count(Word::Panics).add(u64::from(ended.is_err()));
            drop(registered);
            ended
        };
        let its = Arc::clone(shared);
        let schedule =
            WithInfo(move |task: Task, info: ScheduleInfo| its.schedule(task, info.woken_while_running));
        let (task, join) = Builder::new().metadata(meta).spawn(whole, schedule);
        // The runtime may have ended meanwhile. Then the task is dropped here, without the lock.
        let kept = lock(&shared.registry).keep(number, task.waker());
        kept?;
        task.schedule();
        Ok(Join::new(join.fallible(), options.name))
    }

    /// Tasks that live.
    #[must_use]
    pub fn tasks(&self) -> usize {
        lock(&self.shared.registry).len()
    }

    /// Work that it has done since it started.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(self.shared.page.view(), None)
    }

    /// From now on the next task is chosen so. Tasks in line stay.
    pub fn set_policy(&self, policy: Policy) {
        self.shared.set_policy(policy);
    }
}
