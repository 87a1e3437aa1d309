//! Classes for tasks of a tokio program: the second host of the scheduler.
//!
//! Each worker is one task of the program's tokio runtime, and polls the classes' tasks within it. So they use tokio's sockets and
//! timers, and everything that is built on tokio works in them. A task that always finds something calls
//! [`yield_if_due`](super::yield_if_due): tokio's budget, which would end its turn, counts for none of them.
//!
//! ```
//! use punctual::runtime::tokio::Classes;
//! use punctual::runtime::{RuntimeOptions, TaskOptions};
//!
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
//! # runtime.block_on(async {
//! let classes = Classes::start(&RuntimeOptions { workers: 2, ..RuntimeOptions::default() })?;
//! let batch = classes.spawn(TaskOptions::of_class(7), async { 6 * 7 })?;
//! let urgent = classes.spawn(TaskOptions::of_class(0), async { "now" })?;
//! assert_eq!((urgent.await?, batch.await?), ("now", 42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::task::{unconstrained, yield_now};
use punctual_machine::doorbell::Notification;
use punctual_proto::Nanos;
use punctual_proto::classes::Policy;

use super::context;
use super::page::OfWorker;
use super::polling::Polling;
use super::shared::Shared;
use super::{Handle, Join, Metrics, RuntimeOptions, SpawnError, StartError, TaskOptions, Urgency};

/// Classes within a tokio runtime. Dropped, they end: every task is dropped at the point where it waits.
#[derive(Debug)]
pub struct Classes {
    spawner: Spawner,
}

/// Spawns tasks in classes, from any thread. Does not keep the classes.
#[derive(Clone)]
pub struct Spawner {
    handle: Handle,
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("workers", &self.handle.shared.seats.len()).finish_non_exhaustive()
    }
}

impl Classes {
    /// Starts the workers as tasks of the tokio runtime that the calling thread is in. As many as that has threads are enough; a
    /// lane's workers are more of them that important classes never share.
    ///
    /// # Errors
    /// See [`StartError`]. Workers and lanes have no urgency of their own, as the threads are tokio's.
    pub fn start(options: &RuntimeOptions) -> Result<Self, StartError> {
        let host = ::tokio::runtime::Handle::try_current().map_err(|_none| StartError::NoTokio)?;
        let workers = options.count_workers()?;
        let of_lanes = options.lanes.iter().map(|lane| lane.urgency);
        if of_lanes.chain([options.urgency]).any(|urgency| urgency != Urgency::Inherited) {
            return Err(StartError::UrgencyOnTokio);
        }
        let shared = Arc::new(Shared::new(options, true)?);
        let end = Arc::new(End(Arc::clone(&shared)));
        for index in 0..workers {
            let worker = HostedWorker {
                polling: Polling::new(&shared, index),
                is_awake: false,
                paused: None,
                _end: Arc::clone(&end),
            };
            // tokio's budget would count for the worker as a whole. So a task whose tokio socket always has something yields by itself.
            drop(host.spawn(unconstrained(worker.run())));
        }
        Ok(Self { spawner: Spawner { handle: Handle { shared } } })
    }

    /// Spawns tasks, also where these classes cannot be.
    #[must_use]
    pub fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// As [`Spawner::spawn`].
    ///
    /// # Errors
    /// See [`SpawnError`].
    pub fn spawn<F>(&self, options: TaskOptions, future: F) -> Result<Join<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawner.spawn(options, future)
    }
}

impl Drop for Classes {
    fn drop(&mut self) {
        let shared = &self.spawner.handle.shared;
        // In a forked child there are none, and what wakes them is its parent's.
        if shared.is_of_this_process() {
            // The last worker that ends drops the tasks.
            shared.stop_workers();
        }
    }
}

impl Spawner {
    /// Starts a task, as [`Handle::spawn`] does.
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

    /// Tasks that live.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.handle.tasks()
    }

    /// Metrics of the workers since they started. Of their threads nothing: those are tokio's.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.handle.metrics()
    }

    /// From now on the next task is chosen so. Tasks in line stay.
    pub fn set_policy(&self, policy: Policy) {
        self.handle.set_policy(policy);
    }
}

/// Drops all tasks when the last worker has ended, be it that the classes or that tokio's runtime ends.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end_tasks();
    }
}

/// Why a worker lets tokio do something else.
enum Pause {
    /// Its turn is over.
    Due,
    /// The classes have ended.
    Ended,
}

/// A worker that is a task of tokio's.
struct HostedWorker {
    polling: Polling,
    /// It counts among those that are awake.
    is_awake: bool,
    /// Since when tokio does something else, though there is more to do here.
    paused: Option<Nanos>,
    _end: Arc<End>,
}

impl HostedWorker {
    async fn run(mut self) {
        while let Pause::Due = poll_fn(|context| self.poll(context)).await {
            // Behind tokio's other tasks, and behind a look at its descriptors.
            yield_now().await;
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Pause> {
        let shared = Arc::clone(&self.polling.shared);
        let index = self.polling.index;
        let _place = context::take_place(&shared, index);
        if !self.is_awake {
            self.is_awake = true;
            shared.awake.enter();
            shared.seats[index].intake.bell.disarm();
        }
        let mut now = shared.now();
        if let Some(paused) = self.paused.take() {
            self.polling.note_look(now.since(paused));
        }
        let due = now.plus(self.polling.look_after());
        loop {
            if shared.stop.is_raised() {
                return Poll::Ready(Pause::Ended);
            }
            if self.polling.poll_next(now) {
                now = self.polling.ended;
                if now >= due {
                    self.polling.end();
                    self.paused = Some(now);
                    return Poll::Ready(Pause::Due);
                }
                continue;
            }
            if self.sleeps(&shared, context) {
                return Poll::Pending;
            }
            now = shared.now();
        }
    }

    /// Returns true if there is nothing to do, so that a thread that brings something wakes it.
    fn sleeps(&mut self, shared: &Shared, context: &Context<'_>) -> bool {
        let index = self.polling.index;
        let seat = &shared.seats[index];
        seat.keep_sleeper(context.waker());
        self.is_awake = false;
        shared.leave(index);
        let sleeps = seat.intake.bell.arm(Notification::Descriptor, || shared.would_have_work(index));
        if sleeps {
            self.polling.page().count(OfWorker::Parks).add_alone(1);
        } else {
            seat.intake.bell.disarm();
            self.is_awake = true;
            shared.awake.enter();
        }
        sleeps
    }
}

impl Drop for HostedWorker {
    fn drop(&mut self) {
        self.polling.end();
        if self.is_awake {
            self.polling.shared.awake.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// Goal: here, too, a worker of a lane that goes to sleep gives its processor to one that sleeps.
    #[test]
    fn a_worker_that_goes_to_sleep_hands_its_processor_on() {
        let shared = Shared::with_a_task_behind_a_poll(true, Notification::Descriptor);
        let end = Arc::new(End(Arc::clone(&shared)));
        let polling = Polling::new(&shared, 0);
        let worker = HostedWorker { polling, is_awake: false, paused: None, _end: end };
        assert!(pin!(worker.run()).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(!shared.seats[2].intake.bell.is_armed(), "nobody comes for the task");
    }
}
