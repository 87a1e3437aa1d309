//! Building blocks of every experiment: trials in turn, workers, and the places where both ends of a trial stand.

pub(crate) mod crash;
mod crew;
mod experiment;
mod inner;
pub mod network;
mod options;
mod place;
pub mod rows;
mod thread_of;
mod turns;
mod worker;

pub(crate) use crew::{Crew, CrewBridge};
pub use experiment::{Experiment, RunPlan};
pub(crate) use inner::{catch_interrupts_of_run, make_inner};
pub use options::{Common, LoadArgument, hidden, processor};
pub use place::{
    HeldNamespace, INTERFACES, OwnFolder, free_addresses, join_by_veth, leave, leave_with_bridge,
    memory_folder,
};
pub use thread_of::ThreadOf;
pub use turns::{Turns, cut_short};
pub use worker::{Answer, Prepare, Program, Requests, Worker, by_name, look_for};

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::StoreError;

/// Why a run ended early.
#[derive(Debug)]
pub enum RunError {
    /// The store could not be written.
    Store(StoreError),
    /// The machine cannot; the text says what is missing and what to do.
    Machine(String),
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<String> for RunError {
    fn from(text: String) -> Self {
        Self::Machine(text)
    }
}

/// Adds these counters of one to those of the other.
macro_rules! add {
    ($sum:expr, $more:expr, $($counter:ident)*) => { $($sum.$counter += $more.$counter;)* };
}
pub(crate) use add;

/// CPUs to which the two ends are pinned: the first and the last that this process may use.
pub fn choose_cpus() -> [Option<usize>; 2] {
    let allowed = punctual_machine::cpu::allowed();
    [allowed.first().copied(), allowed.last().copied()]
}

/// The processor of a thread or process that stays on one: one after the other.
pub fn cpu_of(place: usize) -> Option<usize> {
    punctual_machine::cpu::allowed().into_iter().cycle().nth(place)
}

/// Locks a mutex, also after a thread failed that held it: that failure is told elsewhere.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for so many of these in memory that is there already, so that noting one faults no page. `blank` has a bit that is set: of
/// nothing but zeroes the kernel gives pages when they are written.
pub fn room_for<T: Clone>(count: usize, blank: T) -> Vec<T> {
    let mut room = vec![blank; count];
    room.clear();
    room
}

/// Work in a thread of its own, which may leave for another network namespace.
pub fn in_a_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        thread.join().map_err(|_| format!("the {name}'s thread failed"))
    })
}
