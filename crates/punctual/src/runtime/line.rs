//! The tasks that are ready on one worker, in the order of its scheduler.

use punctual_proto::Nanos;
use punctual_proto::classes::{ClassOptions, ClassesError, Next, Oldest, Policy, Scheduler};

use super::page::{OfClass, OfWorker, WorkerPage};
use super::task::Task;

/// Choice of a task, by the line of the worker that polls it, or of one from which that took it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) next: Next,
    /// The worker of this line, which is charged for the poll. Otherwise it would choose for the same debt again and again.
    pub(super) line: usize,
}

/// Outcome of a poll, to be counted, and taken off the time that its class is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) choice: Choice,
    /// Until it ended, or until another thread was the worker.
    pub(super) ran: Nanos,
    /// Its class has been charged.
    pub(super) is_charged: bool,
    /// Name of its task.
    pub(super) name: &'static str,
    /// From the wake to the poll.
    pub(super) delay: Nanos,
    /// It began after its request's deadline.
    pub(super) is_late: bool,
    pub(super) is_long: bool,
    pub(super) has_yielded: bool,
}

/// The longest waits are looked for so often where they must be looked for among all of a class. With more than ten thousand it is a
/// microsecond for each: to look at one takes a small part of that.
const OLDEST_EVERY: Nanos = Nanos::from_millis(10);
const OLDEST_EVERY_EACH: Nanos = Nanos::from_micros(1);

#[derive(Debug)]
pub(super) struct Line {
    pub(super) scheduler: Scheduler,
    page: WorkerPage,
    /// By class, when that was last done.
    searched: Vec<Nanos>,
    /// Tasks by the number under which the scheduler has them.
    places: Vec<Option<Task>>,
    free: Vec<u32>,
}

impl Line {
    pub(super) fn new(
        classes: &[ClassOptions],
        policy: Policy,
        tasks_max: usize,
        page: WorkerPage,
    ) -> Result<Self, ClassesError> {
        let scheduler = Scheduler::new(classes, policy, tasks_max)?;
        let searched = vec![Nanos(0); classes.len()];
        // Room for all at once: no wake allocates with the line's lock held. Untouched memory costs nothing.
        let (places, free) = (Vec::with_capacity(tasks_max), Vec::with_capacity(tasks_max));
        Ok(Self { scheduler, page, searched, places, free })
    }

    /// Says how many of a class wait, and since when. A task that was the oldest may be said to wait for a while after it was
    /// chosen: [`OLDEST_EVERY`], and until the next look at the line.
    fn note_waiting(&mut self, class: u8, now: Nanos) {
        let (page, waiting) = (self.page.class(class), self.scheduler.waiting(class));
        page.count(OfClass::Waiting).set(waiting as u64);
        let searched = &mut self.searched[usize::from(class)];
        let pause = OLDEST_EVERY.max(Nanos(OLDEST_EVERY_EACH.0 * waiting as u64));
        if waiting > 1 && now.since(*searched) < pause {
            return;
        }
        *searched = now;
        let oldest = self.scheduler.oldest(class);
        // Instants of requests are given by users: one may be the last there is.
        let since =
            |of: fn(&Oldest) -> Nanos| oldest.as_ref().map_or(0, |oldest| of(oldest).0.saturating_add(1));
        page.count(OfClass::Oldest).set(since(|oldest| oldest.arrived));
        page.count(OfClass::InLineSince).set(since(|oldest| oldest.pushed));
    }

    /// Counts a poll of this worker. Here, because a thread that is the worker no more may have made it.
    pub(super) fn count(&self, charge: &Charge) {
        let &Charge { choice: Choice { next, .. }, ran, name, delay, is_late, is_long, has_yielded, .. } =
            charge;
        let class = next.ready.class;
        self.page.count(OfWorker::Polls).add_alone(1);
        self.page.count(OfWorker::Yields).add_alone(u64::from(has_yielded));
        let of_class = self.page.class(class);
        of_class.note_delay(delay);
        of_class.count(OfClass::Polls).add_alone(1);
        of_class.count(OfClass::RanNs).add_alone(ran.0);
        of_class.count(OfClass::Late).add_alone(u64::from(is_late));
        of_class.count(OfClass::Shed).add_alone(u64::from(next.why.is_shed()));
        of_class.count(OfClass::ByFloor).add_alone(u64::from(next.why.is_by_floor()));
        if is_long {
            self.page.note_long(name, class, ran);
        }
    }

    pub(super) fn push(&mut self, task: Task, now: Nanos) {
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        let ready = task.metadata().ready(place);
        let class = task.metadata().class;
        let goes_on = task.metadata().goes_on();
        let put = if goes_on { Scheduler::push_again } else { Scheduler::push };
        put(&mut self.scheduler, ready, now)
            .expect("a task is in one line at a time, and each line has room for all");
        self.note_waiting(class, now);
        match self.places.get_mut(place as usize) {
            Some(free) => *free = Some(task),
            None => self.places.push(Some(task)),
        }
    }

    /// The next task of the classes up to this one.
    pub(super) fn next(&mut self, last_class: u8, now: Nanos) -> Option<(Task, Next)> {
        let next = self.scheduler.next_up_to(last_class, now)?;
        let place = next.ready.task;
        let task = self.places[place as usize].take().expect("a task stands where the scheduler was told");
        self.free.push(place);
        self.note_waiting(task.metadata().class, now);
        Some((task, next))
    }

    /// All tasks, in any order, for an end.
    pub(super) fn empty(&mut self) -> Vec<Task> {
        self.places.iter_mut().filter_map(Option::take).collect()
    }
}
