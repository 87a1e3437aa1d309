//! A worker as the others see it: where its tasks come in and wait, and how it is woken.

use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

use punctual_machine::inbox::Entry;
use punctual_machine::intake::Intake;
use punctual_proto::Nanos;
use punctual_proto::classes::{Next, Policy};

use super::line::Line;
use super::options::{RuntimeOptions, StartError};
use super::page::{OfClass, OfWorker, WorkerPage};
use super::shared::Shared;
use super::task::Task;
use crate::locks::{lock, try_lock};

/// A worker as the others see it.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) intake: Intake<Task>,
    /// The waker that the bell calls where a worker is a task of another runtime.
    sleeper: Mutex<Option<Waker>>,
    line: Mutex<Line>,
    pub(super) page: WorkerPage,
}

impl AsRef<Intake<Task>> for Seat {
    #[inline]
    fn as_ref(&self) -> &Intake<Task> {
        &self.intake
    }
}

impl Seat {
    pub(super) fn new(
        options: &RuntimeOptions,
        page: WorkerPage,
        last_class: u8,
    ) -> Result<Self, StartError> {
        let line = Line::new(&options.classes, options.policy, options.tasks_max, page.clone())
            .map_err(StartError::Classes)?;
        Ok(Self { intake: Intake::new(last_class), sleeper: Mutex::default(), line: Mutex::new(line), page })
    }

    /// The line. The time that this took is counted where somebody else had it.
    pub(super) fn lock(&self, shared: &Shared, page: &WorkerPage) -> MutexGuard<'_, Line> {
        try_lock(&self.line).unwrap_or_else(|| {
            let began = shared.now();
            let line = lock(&self.line);
            page.count(OfWorker::LockWaits).add(1);
            page.count(OfWorker::LockWaitNs).add(shared.now().since(began).0);
            line
        })
    }

    /// Puts a task into the inbox. The bell is the caller's to ring.
    pub(super) fn push(&self, task: Task) {
        let meta = task.metadata();
        let entry = meta.take_entry();
        self.page.count(OfWorker::WokenFromElsewhere).add(1);
        self.page.class(meta.class).count(OfClass::InInbox).add(1);
        self.intake.push(entry, task);
    }

    /// Returns the next task of a worker that serves the classes up to one, and the first class in line after that. All that came is
    /// put into the line, which the caller holds.
    pub(super) fn choose(
        &self,
        line: &mut Line,
        last_class: u8,
        now: Nanos,
    ) -> (Option<(Task, Next)>, Option<u8>) {
        self.intake.choose(line, |line, new| {
            for mut entry in new {
                if let Some(task) = self.take_out(&mut entry) {
                    task.metadata().keep_entry(entry);
                    line.push(task, now);
                }
            }
            let next = line.next(last_class, now);
            (next, line.scheduler.first_waiting())
        })
    }

    /// The task of an entry that was in the inbox.
    fn take_out(&self, entry: &mut Entry<Task>) -> Option<Task> {
        let task = entry.take()?;
        self.page.class(task.metadata().class).count(OfClass::InInbox).add(u64::MAX);
        Some(task)
    }

    /// Puts a task into the line, which the caller holds.
    pub(super) fn push_here(&self, line: &mut Line, task: Task, now: Nanos) {
        self.intake.change(line, |line| {
            line.push(task, now);
            ((), line.scheduler.first_waiting())
        });
    }

    /// Everything that is ready, for an end.
    pub(super) fn empty(&self) -> Vec<Task> {
        let mut line = lock(&self.line);
        let mut tasks = line.empty();
        tasks.extend(self.intake.take_new().filter_map(|mut entry| self.take_out(&mut entry)));
        tasks
    }

    /// From now on the worker chooses so.
    pub(super) fn set_policy(&self, policy: Policy) {
        lock(&self.line).scheduler.set_policy(policy);
    }

    /// From now on the bell wakes this one.
    #[cfg(feature = "tokio")]
    pub(super) fn keep_sleeper(&self, sleeper: &Waker) {
        let mut kept = lock(&self.sleeper);
        let is_kept = kept.as_ref().is_some_and(|known| known.will_wake(sleeper));
        let gone = if is_kept { None } else { kept.replace(sleeper.clone()) };
        drop(kept);
        drop(gone);
    }

    /// Wakes the worker where it is a task of another runtime.
    pub(super) fn wake_sleeper(&self) {
        // Without the lock: the waker's work is the other runtime's business.
        let sleeper = lock(&self.sleeper).take();
        sleeper.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;
    use punctual_machine::clock::Ticks;
    use punctual_machine::counter::Flag;
    use std::sync::{Arc, OnceLock};
    use std::task::Wake;

    /// Notes whether the seat lets others in while it is woken.
    #[derive(Default)]
    struct LooksIn {
        seat: OnceLock<Arc<Seat>>,
        is_free: Flag,
    }

    impl Wake for LooksIn {
        fn wake(self: Arc<Self>) {
            if self.seat.get().is_some_and(|seat| seat.sleeper.try_lock().is_ok()) {
                self.is_free.raise();
            }
        }
    }

    /// Goal: a waker of another runtime runs without our lock.
    #[test]
    fn a_sleeper_is_woken_without_the_lock() {
        let options = RuntimeOptions::default();
        let page = Page::create(&options, 1, Ticks::default()).unwrap();
        let seat = Arc::new(Seat::new(&options, WorkerPage::new(&page, 0), u8::MAX).unwrap());
        let looks_in = Arc::new(LooksIn { seat: OnceLock::from(Arc::clone(&seat)), ..LooksIn::default() });
        *seat.sleeper.lock().unwrap() = Some(Waker::from(Arc::clone(&looks_in)));
        seat.wake_sleeper();
        assert!(looks_in.is_free.is_raised());
    }
}
