//! Tasks on threads that poll one line behind one lock: the structure of the original, with its lock or a better one.
//!
//! A handler thread waits for sockets and puts their tasks into the line, as the original's handler of interrupts did. A poller
//! takes the lock at each look, also at an empty line, and looks again at once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use async_task::Runnable;
use punctual::Clock;
use punctual::runtime::{Metrics, TaskOptions, ThreadMetrics, WorkerMetrics};
use punctual_lab_machine::ticket_lock::{TicketGuard, TicketLock};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::namespace::thread_id;
use punctual_machine::sync::spin_hint;
use punctual_proto::Nanos;

use super::host::{PollerCounts, Served, Serving};
use super::journal::Journal;
use super::model::LineLock;
use super::tasks::{ANYWHERE, Host, accept_from_tokio, start_hog, tokio_runtime};

/// Classes of tasks: a line for each.
const CLASSES: usize = 8;

thread_local! {
    /// Index of the counters of this thread: a poller's, or where there is none the handler's.
    static POLLER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A task's metadata is its class.
type Task = Runnable<usize>;

/// Counts of one thread; only that thread counts.
#[derive(Debug, Default)]
struct Counts {
    thread: Counter,
    polls: Counter,
    empty_looks: Counter,
    wakes: Counter,
    wake_ns: Counter,
    lock_waits: Counter,
    lock_wait_ns: Counter,
}

/// The line, and the locks that guard it.
#[derive(Debug)]
struct Shared {
    lock: LineLock,
    ticket: TicketLock,
    line: Mutex<[VecDeque<Task>; CLASSES]>,
    /// By poller, and behind them the handler's.
    counts: Vec<Counts>,
    stop: Flag,
}

/// The line, while this thread has it. The line's own lock ends first.
struct Held<'s> {
    line: MutexGuard<'s, [VecDeque<Task>; CLASSES]>,
    _ticket: Option<TicketGuard<'s>>,
}

impl Shared {
    fn counts(&self) -> &Counts {
        let handler = self.counts.len() - 1;
        &self.counts[POLLER.get().unwrap_or(handler)]
    }

    /// Takes the line, and counts how long that took where another thread had it.
    fn hold(&self) -> Held<'_> {
        let mut began = None;
        let mut waits = || {
            began.get_or_insert_with(|| Clock::get().now());
        };
        let ticket = match self.lock {
            LineLock::Ticket => Some(self.ticket.lock(&mut waits)),
            LineLock::Mutex | LineLock::Try => None,
        };
        let line = loop {
            match self.line.try_lock() {
                Ok(line) => break line,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => waits(),
            }
            if self.lock == LineLock::Try {
                thread::yield_now();
            } else {
                break self.line.lock().unwrap_or_else(PoisonError::into_inner);
            }
        };
        if let Some(began) = began {
            let (counts, clock) = (self.counts(), Clock::get());
            counts.lock_waits.add(1);
            counts.lock_wait_ns.add(clock.nanos(clock.now().since(began)));
        }
        Held { line, _ticket: ticket }
    }

    /// A task was woken.
    fn push(&self, task: Task) {
        let (clock, class) = (Clock::get(), *task.metadata());
        let began = clock.now();
        self.hold().line[class].push_back(task);
        let counts = self.counts();
        counts.wakes.add(1);
        counts.wake_ns.add(clock.nanos(clock.now().since(began)));
    }

    /// The first task of the most important class that has one.
    fn pop(&self) -> Option<Task> {
        self.hold().line.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Polls until there is an end, the handler's sockets within reach.
    fn poll(&self, poller: usize, handler: &tokio::runtime::Handle) {
        POLLER.set(Some(poller));
        let _inside = handler.enter();
        let counts = self.counts();
        counts.thread.set(thread_id().into());
        while !self.stop.is_raised() {
            match self.pop() {
                Some(task) => {
                    counts.polls.add_alone(1);
                    task.run();
                }
                None => {
                    counts.empty_looks.add_alone(1);
                    spin_hint();
                }
            }
        }
    }
}

/// Starter of tasks: also within tasks.
#[derive(Clone, Debug)]
struct Starter(Arc<Shared>);

impl Host for Starter {
    type Stream = tokio::net::TcpStream;

    fn start(&self, options: TaskOptions, future: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(&self.0);
        let class = usize::from(options.class).min(CLASSES - 1);
        let (task, join) = async_task::Builder::new()
            .metadata(class)
            .spawn(move |_class: &usize| future, move |task| shared.push(task));
        join.detach();
        task.schedule();
    }
}

/// A server until it is dropped.
#[derive(Debug)]
pub(super) struct Pollers {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
    /// Its one thread waits for sockets, and polls nothing.
    handler: Option<tokio::runtime::Runtime>,
    started: Metrics,
    pub(super) address: SocketAddr,
}

impl Pollers {
    pub(super) fn start(serving: &Serving, journal: &Journal) -> Result<Self, String> {
        let words = |error: std::io::Error| error.to_string();
        let workers = serving.setup.workers.max(1);
        let shared = Arc::new(Shared {
            lock: serving.setup.lock,
            ticket: TicketLock::default(),
            line: Mutex::default(),
            counts: (0..=workers).map(|_| Counts::default()).collect(),
            stop: Flag::default(),
        });
        let handler = tokio_runtime(1, None)?;
        let listener = handler.block_on(tokio::net::TcpListener::bind(ANYWHERE)).map_err(words)?;
        let address = listener.local_addr().map_err(words)?;
        let number = handler.block_on(handler.spawn(async { thread_id() })).map_err(|e| e.to_string())?;
        shared.counts[workers].thread.set(number.into());
        let within_reach = handler.handle().clone();
        let mut pollers = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            handler: Some(handler),
            started: Metrics::default(),
            address,
        };
        for poller in 0..workers {
            let (its, handler) = (Arc::clone(&shared), within_reach.clone());
            let thread = thread::Builder::new().name(format!("poller-{poller}"));
            pollers.threads.push(thread.spawn(move || its.poll(poller, &handler)).map_err(words)?);
        }
        let starter = Starter(shared);
        accept_from_tokio(&starter, listener, serving.repeats, journal);
        start_hog(&starter, serving.setup.hog_ns);
        pollers.started = pollers.metrics();
        Ok(pollers)
    }

    /// In the words of `punctual::runtime`, which says what is wrong.
    fn metrics(&self) -> Metrics {
        let worker = |counts: &Counts| WorkerMetrics {
            thread: ThreadMetrics::of_this_process(counts.thread.get()),
            polls: counts.polls.get(),
            lock_waits: counts.lock_waits.get(),
            lock_wait: Nanos(counts.lock_wait_ns.get()),
            ..WorkerMetrics::default()
        };
        let clock = Clock::get();
        Metrics {
            time: Nanos(clock.nanos(clock.now())),
            workers: self.shared.counts.iter().map(worker).collect(),
            ..Metrics::default()
        }
    }

    /// Activity since the start.
    pub(super) fn served(&self) -> Served {
        let metrics = self.metrics().since(&self.started);
        let pollers: Vec<PollerCounts> = metrics
            .workers
            .iter()
            .zip(&self.shared.counts)
            .map(|(worker, counts)| PollerCounts {
                ran_ns: worker.thread.ran.0,
                polls: worker.polls,
                empty_looks: counts.empty_looks.get(),
                wakes: counts.wakes.get(),
                wake_ns: counts.wake_ns.get(),
                lock_wait_ns: worker.lock_wait.0,
                switches_involuntary: worker.thread.switches_involuntary,
            })
            .collect();
        Served {
            wakes: pollers.iter().map(|poller| poller.wakes).sum(),
            verdicts: metrics.verdicts().iter().map(ToString::to_string).collect(),
            pollers,
            ..Served::default()
        }
    }
}

impl Drop for Pollers {
    fn drop(&mut self) {
        self.shared.stop.raise();
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
        // A task that waits for a socket is woken by that, into the line.
        drop(self.handler.take());
        loop {
            let left: Vec<Task> =
                self.shared.hold().line.iter_mut().flat_map(|class| class.drain(..)).collect();
            if left.is_empty() {
                break;
            }
        }
    }
}
