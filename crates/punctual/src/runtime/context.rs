//! Calls of a task to the worker that polls it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;

use punctual_machine::sync::spin_hint;
use punctual_proto::Nanos;

use super::line::Choice;
use super::shared::Shared;
use super::task::Request;
use super::worker;

/// A runtime, for as long as it lives. A request's instants count from the start of its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuntimeIdentity(*const Shared);

impl RuntimeIdentity {
    pub(super) fn of(shared: &Shared) -> Self {
        Self(shared)
    }
}

/// The poll that this thread is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) runtime: RuntimeIdentity,
    pub(super) request: Request,
    /// From here on it is due to yield.
    pub(super) due: Nanos,
    /// For so long it pays to look for what is awaited, while the worker has nothing else to do.
    pub(super) patience: Nanos,
    pub(super) is_shed: bool,
    pub(super) began: Nanos,
    /// Why it is polled, to charge its class.
    pub(super) choice: Choice,
    /// Its task blocked, and another thread has been the worker since this instant.
    pub(super) replaced: Option<Nanos>,
}

/// Looks between two looks at the clock.
const LOOKS: u32 = 16;

/// Messages, or calls of a socket, in a row between two looks whether the turn is over.
pub(super) const IN_ROW_MAX: u32 = 32;

thread_local! {
    static WORKER: RefCell<Option<(Arc<Shared>, usize)>> = const { RefCell::new(None) };
    static TURN: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// The thread is a worker until this is dropped; then what it was before.
#[derive(Debug)]
pub(super) struct Place {
    before: Option<(Arc<Shared>, usize)>,
}

/// This thread is that worker from now on.
pub(super) fn take_place(shared: &Arc<Shared>, index: usize) -> Place {
    Place { before: WORKER.replace(Some((Arc::clone(shared), index))) }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A thread that ends is no worker any more.
        let _ended = WORKER.try_with(|worker| worker.replace(self.before.take()));
    }
}

/// Index of the worker of this runtime that the thread is, if it is one.
pub(super) fn worker_of(shared: &Shared) -> Option<usize> {
    let is_own = |of: &Shared| std::ptr::eq(of, shared);
    // A thread that ends has none any more.
    let found = WORKER
        .try_with(|worker| worker.borrow().as_ref().and_then(|(of, index)| is_own(of).then_some(*index)));
    found.ok().flatten()
}

/// A poll begins. Returns the one that the thread is in already, of another runtime: a task may wait for a host of that.
#[must_use]
pub(super) fn begin_turn(turn: Turn) -> Option<Turn> {
    TURN.replace(Some(turn))
}

/// The poll is over, and the thread is in the one `before` again. Returns since when another thread has been the worker, if one has.
pub(super) fn end_turn(before: Option<Turn>) -> Option<Nanos> {
    TURN.replace(before).and_then(|turn| turn.replaced)
}

fn turn() -> Option<Turn> {
    // A thread that ends is in no poll any more.
    TURN.try_with(Cell::get).ok().flatten()
}

/// The request of the task that wakes another task of the same runtime on this thread. A task that has blocked counts, too, although
/// its thread is no worker any more.
pub(super) fn waking_request(shared: &Shared) -> Option<Request> {
    turn().filter(|turn| turn.runtime == RuntimeIdentity::of(shared)).map(|turn| turn.request)
}

/// The request that the calling task serves. `None` outside of the runtime's tasks.
#[must_use]
pub fn request() -> Option<Request> {
    turn().map(|turn| turn.request)
}

/// The calling task serves this request from now on, for instance the next of those that it was handed. Tasks of its runtime that it
/// wakes take its deadline over, and if this task yields, its next turn has it. The request must be of the same runtime, from whose
/// start its instants count. The next turn tells whether it can be done in time. Outside of the runtime's tasks nothing
/// happens.
pub fn take_over(request: Request) {
    if let Some(turn) = TURN.get() {
        TURN.set(Some(Turn { request, is_shed: false, ..turn }));
    }
}

/// True if the deadline of the calling task's request cannot be met, in a class that sheds: answer that, and do no more.
#[must_use]
pub fn is_shed() -> bool {
    TURN.get().is_some_and(|turn| turn.is_shed)
}

/// Lets the other tasks of this worker go first where they are as important.
pub async fn yield_now() {
    let mut is_over = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Yields if this poll has lasted for the runtime's turn: for loops that have much to do. One look at the clock if not. Work that blocks
/// is no worker's, and never yields.
pub async fn yield_if_due() {
    if TURN.get().is_some() && WORKER.with_borrow(Option::is_some) && is_due() {
        yield_now().await;
    }
}

/// True if the poll that this thread is in has lasted for the runtime's turn. Outside of the runtime's tasks nobody knows: then it has.
pub(super) fn is_due() -> bool {
    let Some(turn) = TURN.get() else { return true };
    let now = WORKER.with_borrow(|worker| worker.as_ref().map(|(shared, _)| shared.now()));
    now.is_none_or(|now| now >= turn.due)
}

/// Looks again and again whether something is ready, for as long as that pays and the worker has nothing else to do.
pub(super) fn is_ready_soon(is_ready: impl FnMut() -> bool) -> bool {
    let patience = TURN.get().map_or(Nanos(0), |turn| turn.patience);
    if patience == Nanos(0) {
        return false;
    }
    // A look wakes other tasks. It is the worker's, not this task's: they do not take over its request.
    let turn = TURN.take();
    let is_found = looks(is_ready, patience);
    TURN.set(turn);
    is_found
}

fn looks(mut is_ready: impl FnMut() -> bool, patience: Nanos) -> bool {
    WORKER.with_borrow(|worker| {
        let Some((shared, index)) = worker else { return false };
        let until = shared.now().plus(patience);
        loop {
            for _ in 0..LOOKS {
                spin_hint();
                if is_ready() {
                    return true;
                }
                if shared.has_work(*index) || shared.reactor.watch.look() {
                    return false;
                }
            }
            if shared.now() >= until {
                return false;
            }
        }
    })
}

/// Does work that blocks, and may borrow what the task has. Another thread is the worker from then on; this one goes on with the
/// task as soon as the work is done, and ends with its poll. The task's class is charged for the poll until then, and not for the
/// work. Tasks that the work wakes take over the task's [`request`]. Starting a thread takes some 50 µs, so this is for work of
/// milliseconds.
///
/// The tasks of a runtime can have [`BLOCKING_MAX`](super::BLOCKING_MAX) more threads than it has workers. Beyond that, and where the
/// kernel has no thread to give, the work keeps its worker. Outside of workers the work is just done, and on tokio too: its
/// `block_in_place` is for that.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    let worker = WORKER.with_borrow(Clone::clone).filter(|(shared, _)| !shared.is_hosted);
    // A thread that is no worker has been replaced already; a worker that is in no poll has other things to go on with.
    let (Some((shared, index)), Some(turn)) = (worker, TURN.get()) else { return work() };
    // Tasks that the work wakes come to the worker from elsewhere.
    let place = WORKER.take();
    shared.awake.leave();
    let replaced = worker::replace(&shared, index).then(|| shared.now());
    // The work is a part of the poll: it serves the same request.
    TURN.set(Some(Turn { replaced, ..turn }));
    // The end of the poll is too late: until then the class would count as served, though it may want nothing of the worker.
    if let Some(now) = replaced {
        shared.charge(index, &turn.choice, now.since(turn.began));
    } else {
        shared.hand_all_on(index);
    }
    let done = catch_unwind(AssertUnwindSafe(work));
    if replaced.is_none() {
        shared.awake.enter();
        WORKER.set(place);
    }
    done.unwrap_or_else(|panic| resume_unwind(panic))
}
