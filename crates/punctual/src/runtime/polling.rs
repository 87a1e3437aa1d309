//! Polls tasks one after the other, in the order of their worker's line: the part that is the same in both hosts.

use std::sync::Arc;

use punctual_proto::Nanos;

use super::context::{self, RuntimeIdentity, Turn};
use super::line::{Charge, Choice};
use super::page::WorkerPage;
use super::reactor::Wakes;
use super::shared::Shared;
use super::task::{Task, without_panic};

/// Of a busy worker's time, looks at descriptors and timers take one part in so many. They are a system call: on a virtual machine
/// it takes several times as long as on hardware.
const LOOK_PARTS: u64 = 50;

/// Least and greatest time for which a worker polls tasks before it looks again, regardless of the cost of a look.
const LOOK_AFTER: [Nanos; 2] = [Nanos::from_micros(10), Nanos::from_micros(100)];

/// Interval between a worker's looks at descriptors and timers while it has tasks: long enough that they cost little.
#[derive(Debug)]
struct Looks {
    /// The cheapest look of late: one that found much took longer, but not for looking.
    cost: Nanos,
}

impl Looks {
    /// One took so long.
    fn note(&mut self, took: Nanos) {
        // A little dearer each time, so that a cost that rises is followed.
        let known = self.cost.0 + self.cost.0 / 16 + 1;
        self.cost = Nanos(known).min(took);
    }

    fn after(&self) -> Nanos {
        let [least, most] = LOOK_AFTER;
        Nanos(self.cost.0 * LOOK_PARTS).clamp(least, most)
    }
}

impl Default for Looks {
    fn default() -> Self {
        Self { cost: Nanos(LOOK_AFTER[1].0 / LOOK_PARTS) }
    }
}

/// State of one worker while it has tasks.
#[derive(Debug)]
pub(super) struct Polling {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    /// When it last looked at descriptors and timers.
    pub(super) looked: Nanos,
    looks: Looks,
    pub(super) wakes: Wakes,
    /// Outcome of the last poll, until it is counted and its class is charged for it.
    charge: Option<Charge>,
    /// It was asleep, and may have led: when it polls a task, another that sleeps is to lead.
    pub(super) owes_lead: bool,
    /// The last poll blocked, and another thread has been the worker since.
    pub(super) is_replaced: bool,
    /// When the last poll ended. The next one begins then: choosing a task counts as a part of its poll, and saves a reading of
    /// the clock.
    pub(super) ended: Nanos,
    /// For so long it pays to look for what a task awaits, while there is nothing else to do.
    pub(super) patience: Nanos,
}

impl Polling {
    pub(super) fn new(shared: &Arc<Shared>, index: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            index,
            looked: Nanos(0),
            looks: Looks::default(),
            wakes: Wakes::default(),
            charge: None,
            owes_lead: false,
            is_replaced: false,
            ended: Nanos(0),
            patience: Nanos(0),
        }
    }

    pub(super) fn page(&self) -> &WorkerPage {
        &self.shared.seats[self.index].page
    }

    /// Polls the next task. Returns true if there was one.
    pub(super) fn poll_next(&mut self, now: Nanos) -> bool {
        let own = self.shared.next(self.index, self.charge.take(), now);
        match own.or_else(|| self.shared.steal(self.index, now)) {
            Some((task, choice)) => {
                if std::mem::take(&mut self.owes_lead) {
                    self.shared.hand_lead_on(self.index);
                }
                self.poll(task, choice, now);
            }
            None => return false,
        }
        true
    }

    /// A worker that polls no more leaves no poll uncounted.
    pub(super) fn end(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.shared.settle(self.index, &charge);
        }
    }

    /// Wakes tasks whose descriptors are ready, or whose time has come. Returns true if there were any.
    pub(super) fn look(&mut self, now: Nanos) -> bool {
        self.looked = now;
        self.shared.reactor.look(now, &mut self.wakes)
    }

    /// A look took so long; in another runtime, the work between two turns of this worker.
    pub(super) fn note_look(&mut self, took: Nanos) {
        self.looks.note(took);
    }

    /// So long it polls tasks before it looks again.
    pub(super) fn look_after(&self) -> Nanos {
        self.looks.after()
    }

    fn poll(&mut self, task: Task, choice: Choice, began: Nanos) {
        let meta = task.metadata();
        let (name, woken, request) = (meta.name, Nanos(meta.woken.get()), meta.request());
        let is_shed = choice.next.why.is_shed();
        let (due, patience) = (began.plus(self.shared.turn), self.patience);
        let runtime = RuntimeIdentity::of(&self.shared);
        let turn = Turn { runtime, request, due, patience, is_shed, began, choice, replaced: None };
        let before = context::begin_turn(turn);
        // Panics of its polls are contained in its future.
        let has_yielded = without_panic(|| task.run());
        let replaced = context::end_turn(before);
        self.is_replaced = replaced.is_some();
        self.ended = self.shared.now();
        // Time that the worker spent on it: none while another thread was the worker.
        let ran = replaced.unwrap_or(self.ended).since(began);
        let (delay, is_late) = (began.since(woken), began > request.deadline);
        let is_long = ran >= self.shared.long_poll;
        let is_charged = self.is_replaced;
        self.charge = Some(Charge { choice, ran, is_charged, name, delay, is_late, is_long, has_yielded });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: looks cost a bounded part of the time, regardless of the duration of each. The time for what a look found does not count.
    #[test]
    fn a_dear_look_is_rare() {
        let mut looks = Looks::default();
        let mut after = |times: u32, ns| {
            (0..times).for_each(|_| looks.note(Nanos(ns)));
            looks.after()
        };
        assert_eq!(after(1, 1_000), Nanos::from_micros(50));
        assert!(after(5, 9_000) < Nanos::from_micros(75), "one that found much takes longer");
        assert_eq!(after(100, 9_000), Nanos::from_micros(100), "a rise is followed");
        assert_eq!(after(1, 50), Nanos::from_micros(10));
    }
}
