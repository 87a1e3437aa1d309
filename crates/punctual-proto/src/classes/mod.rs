//! Scheduling by class: chooses the task that runs next. Class 0 is the most important, and no class waits for ever.
//!
//! Pure: tasks are numbers, time is an argument. The recommended [`Policy::Floors`] runs the most important class first, but gives each
//! class a share of the processor's time that it never falls below; within a class the nearest deadline is first. A request's arrival
//! and deadline travel with it through all its stages: a server that takes them anew at each stage makes the last class wait three
//! times as long.
//!
//! ```
//! use punctual_proto::Nanos;
//! use punctual_proto::classes::{ClassOptions, Policy, Ready, Scheduler, Why};
//!
//! let classes = [ClassOptions::default(), ClassOptions { floor_permille: 20, ..ClassOptions::default() }];
//! let mut scheduler = Scheduler::new(&classes, Policy::Floors, 100)?;
//! let ready = |task, class| Ready { task, class, arrived: Nanos(0), deadline: Nanos::NEVER };
//! scheduler.push(ready(7, 1), Nanos(0)).unwrap();
//! scheduler.push(ready(8, 0), Nanos(0)).unwrap();
//! let next = scheduler.next(Nanos(0)).expect("two tasks are ready");
//! assert_eq!((next.ready.task, next.why), (8, Why::First));
//! scheduler.charge(&next, Nanos(1_000)); // it took a microsecond
//! # Ok::<(), punctual_proto::classes::ClassesError>(())
//! ```

mod queue;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use crate::limits::{CLASSES_MAX, TASKS_MAX};
use crate::time::Nanos;
use queue::Queue;

/// Rule by which the next task is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The task that became ready first, regardless of its class.
    Fifo,
    /// The most important class that has a task, and nobody else.
    Strict,
    /// Each class has twice the share of the next one (Waldspurger and Weihl, 1995).
    Stride,
    /// The nearest deadline, regardless of its class. Above saturation all are late, the important ones too.
    Deadline,
    /// A task that waits for this long counts as one class more important. Above saturation it fails as deadlines do.
    Aging(Nanos),
    /// Strict, with a guaranteed share for each class ([`ClassOptions::floor_permille`]), and nearest deadlines first within a class. A
    /// task that can no longer be done in time is shed where its class says so.
    Floors,
}

/// Guarantees for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassOptions {
    /// Thousandths of the processor's time that it gets at least, while it has tasks; 0 by default, which is no floor.
    pub floor_permille: u32,
    /// True if a task is given back undone when its deadline cannot be met, by the time that tasks of the class took lately.
    pub sheds: bool,
}

/// Why there is no such scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassesError {
    /// No class, or more than there can be.
    Count(usize),
    /// All floors together are more than the whole.
    Floors {
        /// Their sum, thousandths.
        permille: u32,
    },
    /// More tasks at a time than there can be.
    Tasks(usize),
}

impl fmt::Display for ClassesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count} classes: 1 to {CLASSES_MAX} are needed"),
            Self::Floors { permille } => write!(f, "floors of {permille} thousandths: 1000 are the most"),
            Self::Tasks(tasks) => write!(f, "{tasks} tasks at a time: {TASKS_MAX} are the most"),
        }
    }
}

impl core::error::Error for ClassesError {}

/// The scheduler has as many tasks as it can hold; the task stays with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A task that is ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its number.
    pub task: u32,
    /// Its class, from 0. One that does not exist counts as the last.
    pub class: u8,
    /// When its request came: at its first stage, and still that at its last.
    pub arrived: Nanos,
    /// When its request is to be done; [`Nanos::NEVER`] if that does not matter.
    pub deadline: Nanos,
}

/// Why a task is next. As wide as the words beside it: padding is copied in odd pieces, which wait for the stores before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Why {
    /// It is the first by the policy: run it.
    First,
    /// Its class is owed its floor, and a more important class waits meanwhile: run it.
    Floor,
    /// Its deadline cannot be met: tell its client that it will not be done.
    Shed,
    /// The same, because its class is owed its floor while a more important class waits.
    ShedByFloor,
}

impl Why {
    /// True if the task's client is only to be told that the task will not be done.
    #[must_use]
    pub fn is_shed(self) -> bool {
        matches!(self, Self::Shed | Self::ShedByFloor)
    }

    /// True if the task is next because of its class's floor.
    #[must_use]
    pub fn is_by_floor(self) -> bool {
        matches!(self, Self::Floor | Self::ShedByFloor)
    }
}

/// The next task, and what to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The task.
    pub ready: Ready,
    /// The decision to run it, or to say that it will not be done. [`Scheduler::charge`] what that took.
    pub why: Why,
    /// When it was chosen.
    pub chosen: Nanos,
}

/// The longest waits in a class: of a request, and of a task in line, which may have had many turns before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oldest {
    /// When the oldest request came.
    pub arrived: Nanos,
    /// When the first of the tasks came into line.
    pub pushed: Nanos,
}

/// Counters of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Tasks that were run.
    pub run: u64,
    /// Tasks that were shed.
    pub shed: u64,
    /// Of those that were run, how many because of the floor.
    pub by_floor: u64,
    /// Time of those that were run or shed.
    pub ran: Nanos,
}

/// Tasks of a class that run and are not charged yet.
#[derive(Debug, Default)]
struct Running {
    count: u32,
    /// Those that other processors took.
    elsewhere: u32,
    /// Sum of the instants at which they were chosen, modulo 2⁶⁴.
    chosen: u64,
}

#[derive(Debug)]
struct Class {
    options: ClassOptions,
    queue: Queue,
    counters: ClassCounters,
    /// From this instant on the floor owes it processor time, its share of the time since; [`Nanos::NEVER`] without a floor.
    due: Nanos,
    running: Running,
    /// Stride position of the class. A second of the last class is 2⁶¹: 64 bits would be over soon.
    pass: u128,
    /// Time that a task takes, as a moving average.
    usual: Nanos,
}

/// A class that waits is owed no more than this: time that it did not get in a second it does not get in the next one.
const OWED_MAX: Nanos = Nanos::from_millis(1_000);

/// Of the moving average, a new value is one part in so many.
const USUAL_PARTS: u64 = 8;

/// Each task that is shed by the moving average takes one part in so many off it. No task that is shed says how long the next would
/// take: without this a class whose tasks took long once, as the processor was another's, would shed for ever.
const DOUBTED_PARTS: u64 = 64;

/// Decides which task runs next, mostly on one processor. Others that have nothing to do may take tasks from it: its classes are charged
/// for these, too. Nothing is allocated once it is made.
#[derive(Debug)]
pub struct Scheduler {
    classes: Vec<Class>,
    policy: Policy,
    tasks_max: usize,
    tasks: usize,
    /// Classes that have a task in line, a bit each.
    waiting: u32,
    number: u64,
    /// Stride position of the class that ran last.
    pass: u128,
    /// No class that waits is due before this.
    first_due: Nanos,
}

impl Scheduler {
    /// A scheduler for so many tasks at a time.
    ///
    /// # Errors
    /// See [`ClassesError`].
    pub fn new(options: &[ClassOptions], policy: Policy, tasks_max: usize) -> Result<Self, ClassesError> {
        if options.is_empty() || options.len() > CLASSES_MAX {
            return Err(ClassesError::Count(options.len()));
        }
        let permille = options.iter().fold(0, |sum: u32, class| sum.saturating_add(class.floor_permille));
        if permille > 1_000 {
            return Err(ClassesError::Floors { permille });
        }
        if tasks_max > TASKS_MAX {
            return Err(ClassesError::Tasks(tasks_max));
        }
        let class = |&options: &ClassOptions| Class {
            options,
            queue: Queue::new(tasks_max),
            counters: ClassCounters::default(),
            due: if options.floor_permille == 0 { Nanos::NEVER } else { Nanos(0) },
            running: Running::default(),
            pass: 0,
            usual: Nanos(0),
        };
        let classes = options.iter().map(class).collect();
        Ok(Self { classes, policy, tasks_max, tasks: 0, waiting: 0, number: 0, pass: 0, first_due: Nanos(0) })
    }

    /// Puts a task in line.
    ///
    /// # Errors
    /// [`Full`].
    pub fn push(&mut self, ready: Ready, now: Nanos) -> Result<(), Full> {
        self.put(ready, now, Queue::push)
    }

    /// Puts a task in line that has run and goes on with its request. Once its deadline has passed, it counts as due now: one that
    /// always has more to do would otherwise stay ahead of all others of its class.
    ///
    /// # Errors
    /// [`Full`].
    pub fn push_again(&mut self, ready: Ready, now: Nanos) -> Result<(), Full> {
        self.put(ready, now, Queue::push_again)
    }

    fn put(
        &mut self,
        ready: Ready,
        now: Nanos,
        push: fn(&mut Queue, Policy, Ready, u64, Nanos),
    ) -> Result<(), Full> {
        if self.tasks == self.tasks_max {
            return Err(Full);
        }
        self.tasks += 1;
        self.number += 1;
        let (policy, number, pass) = (self.policy, self.number, self.pass);
        let index = usize::from(ready.class).min(self.classes.len() - 1);
        self.waiting |= 1 << index;
        let class = &mut self.classes[index];
        if class.queue.is_empty() {
            class.begin_to_wait(now);
            class.pass = class.pass.max(pass);
            self.first_due = self.first_due.min(class.due);
        }
        push(&mut class.queue, policy, ready, number, now);
        Ok(())
    }

    /// The next task and what to do with it, if there is one.
    pub fn next(&mut self, now: Nanos) -> Option<Next> {
        self.next_up_to(u8::MAX, now)
    }

    /// The next task for a caller that serves no class beyond this one.
    pub fn next_up_to(&mut self, class: u8, now: Nanos) -> Option<Next> {
        let (index, why) = self.choose(usize::from(class), now)?;
        let policy = self.policy;
        let class = &mut self.classes[index];
        let ready = class.queue.pop()?;
        self.tasks -= 1;
        if class.queue.is_empty() {
            self.waiting &= !(1 << index);
        }
        class.running.begin(now);
        let sheds = policy == Policy::Floors && class.options.sheds;
        if sheds && now.plus(class.usual) > ready.deadline {
            class.counters.shed += 1;
            if now <= ready.deadline {
                class.usual.0 -= class.usual.0 / DOUBTED_PARTS;
            }
            let why = if why == Why::Floor { Why::ShedByFloor } else { Why::Shed };
            return Some(Next { ready, why, chosen: now });
        }
        class.counters.run += 1;
        class.counters.by_floor += u64::from(why == Why::Floor);
        self.pass = class.pass;
        Some(Next { ready, why, chosen: now })
    }

    /// The class to be served, up to a last one, and why.
    fn choose(&mut self, last: usize, now: Nanos) -> Option<(usize, Why)> {
        let waiting = Bits(self.waiting & u32::MAX >> (u32::BITS - 1).saturating_sub(last as u32));
        let first = waiting.clone().next()?;
        let chosen = match self.policy {
            Policy::Fifo | Policy::Deadline | Policy::Aging(_) => {
                waiting.min_by_key(|&index| self.classes[index].queue.first_key())
            }
            Policy::Stride => waiting.min_by_key(|&index| self.classes[index].pass),
            Policy::Strict => Some(first),
            // Mostly no class is due: then none is asked.
            Policy::Floors if now <= self.first_due => Some(first),
            Policy::Floors => {
                let chosen = self.most_owed(waiting, now).unwrap_or(first);
                return Some((chosen, if chosen == first { Why::First } else { Why::Floor }));
            }
        };
        chosen.map(|index| (index, Why::First))
    }

    /// The class that is owed most, if any is: of those that are alike, the least important one.
    fn most_owed(&mut self, of: Bits, now: Nanos) -> Option<usize> {
        // A class with nothing in line is asked when it has something again.
        let due = Bits(self.waiting).map(|index| self.classes[index].due).min();
        self.first_due = due.unwrap_or(Nanos::NEVER);
        of.filter_map(|index| Some((self.classes[index].owed(now)?, index))).max().map(|(_, index)| index)
    }

    fn index_of(&self, next: &Next) -> usize {
        usize::from(next.ready.class).min(self.classes.len() - 1)
    }

    /// Another processor takes it, and says at its end what that took: [`Self::charge_handed_over`]. If it wants more then, it is in line
    /// there: meanwhile a class that has nothing in line here wants nothing.
    pub fn hand_over(&mut self, next: &Next) {
        let index = self.index_of(next);
        self.classes[index].running.elsewhere += 1;
    }

    /// As [`Self::charge`], of a task that another processor took. Without it, tasks would be chosen for the same debt again and again.
    pub fn charge_handed_over(&mut self, next: &Next, ran: Nanos) {
        let index = self.index_of(next);
        let running = &mut self.classes[index].running;
        running.elsewhere = running.elsewhere.saturating_sub(1);
        self.charge(next, ran);
    }

    /// It ran, or was shed, for so long. It may be in line again, and others may have been chosen since.
    pub fn charge(&mut self, next: &Next, ran: Nanos) {
        let index = self.index_of(next);
        let class = &mut self.classes[index];
        class.running.end(next.chosen);
        class.counters.ran = class.counters.ran.plus(ran);
        // Shedding takes another time than doing.
        if !next.why.is_shed() {
            class.usual = match class.usual {
                Nanos(0) => ran,
                Nanos(usual) => Nanos((usual * (USUAL_PARTS - 1) + ran.0) / USUAL_PARTS),
            };
        }
        // The last class's stride is the longest: each has twice the share of the next one.
        class.pass = class.pass.saturating_add(u128::from(ran.0) << index);
        class.take_off(ran, (!next.why.is_by_floor()).then_some(next.chosen));
    }

    /// From now on the next task is chosen so. Tasks in line stay.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.classes.iter_mut().for_each(|class| class.queue.reorder(policy));
    }

    /// Tasks of a class that are in line.
    #[must_use]
    pub fn waiting(&self, class: u8) -> usize {
        self.classes.get(usize::from(class)).map_or(0, |class| class.queue.len())
    }

    /// The most important class that has a task in line.
    #[must_use]
    pub fn first_waiting(&self) -> Option<u8> {
        Bits(self.waiting).next().map(|index| index as u8)
    }

    /// The longest waits in this class. Goes through all of its tasks.
    #[must_use]
    pub fn oldest(&self, class: u8) -> Option<Oldest> {
        self.classes.get(usize::from(class))?.queue.oldest()
    }

    /// Counters of a class.
    #[must_use]
    pub fn counters(&self, class: u8) -> ClassCounters {
        self.classes.get(usize::from(class)).map_or_else(ClassCounters::default, |class| class.counters)
    }
}

impl Class {
    /// So long it takes until its floor owes it so much processor time.
    fn time_for(&self, owed: Nanos) -> Nanos {
        owed.0
            .saturating_mul(1_000)
            .checked_div(self.options.floor_permille.into())
            .map_or(Nanos::NEVER, Nanos)
    }

    /// It has a task in line again. A class that wanted nothing is owed nothing. A class whose only task runs may want more when that
    /// ends, and is charged for it then.
    fn begin_to_wait(&mut self, now: Nanos) {
        if self.running.count == self.running.elsewhere {
            self.due = self.due.max(now);
        }
    }

    /// Processor time that its floor owes it, in thousandths of a nanosecond, if any. Tasks that still run are charged at their end.
    /// Until then their time so far counts, or the usual one: others would be chosen for the same debt.
    fn owed(&mut self, now: Nanos) -> Option<u64> {
        if self.due >= now {
            return None;
        }
        self.due = self.due.max(Nanos(now.0.saturating_sub(self.time_for(OWED_MAX).0)));
        let owed = now.since(self.due).0.saturating_mul(self.options.floor_permille.into());
        let usual = self.usual.0.saturating_mul(self.running.count.into());
        let given = self.running.time(now).0.max(usual).saturating_mul(1_000);
        owed.checked_sub(given).filter(|&left| left > 0)
    }

    /// It had so much, which its floor owes it no more. Processor time that it got as the most important class makes no debt: the class
    /// is due, at the latest, from the instant at which it was chosen.
    fn take_off(&mut self, ran: Nanos, chosen_as_first: Option<Nanos>) {
        if chosen_as_first.is_some_and(|chosen| self.due >= chosen) {
            return;
        }
        let due = self.due.plus(self.time_for(ran));
        self.due = chosen_as_first.map_or(due, |chosen| due.min(chosen));
    }
}

impl Running {
    fn begin(&mut self, now: Nanos) {
        self.count += 1;
        self.chosen = self.chosen.wrapping_add(now.0);
    }

    fn end(&mut self, chosen: Nanos) {
        if self.count > 0 {
            self.count -= 1;
            self.chosen = self.chosen.wrapping_sub(chosen.0);
        }
    }

    /// The time that they took so far, all together. Another processor's clock may be a little ahead.
    fn time(&self, now: Nanos) -> Nanos {
        let time = now.0.wrapping_mul(self.count.into()).wrapping_sub(self.chosen);
        Nanos(time.cast_signed().max(0).cast_unsigned())
    }
}

/// The numbers of the bits that are set, the lowest first.
#[derive(Clone, Debug)]
struct Bits(u32);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let lowest = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (lowest < u32::BITS).then_some(lowest as usize)
    }
}

const _: () = assert!(CLASSES_MAX <= u32::BITS as usize);
// A stride of the last class, however long it ran, has room.
const _: () = assert!(u64::BITS as usize + CLASSES_MAX <= u128::BITS as usize);
