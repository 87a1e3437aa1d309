//! Polls tasks one after the other, in the order of their worker's line: what both hosts do in the same way.

use std::sync::Arc;

use punctual_proto::Nanos;

use super::context::{self, Turn};
use super::line::{Charge, Decision};
use super::page::{OfClass, OfWorker, WorkerPage};
use super::shared::Shared;
use super::task::Task;

/// So long a worker polls tasks before it looks at descriptors and timers again.
pub(super) const LOOK_AFTER: Nanos = Nanos::from_micros(20);

/// What one worker does while it has tasks.
#[derive(Debug)]
pub(super) struct Polling {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    /// When it last looked at descriptors and timers.
    pub(super) looked: Nanos,
    /// What the last poll took, until its class is charged for it.
    charge: Option<Charge>,
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
            charge: None,
            ended: Nanos(0),
            patience: Nanos(0),
        }
    }

    pub(super) fn page(&self) -> &WorkerPage {
        &self.shared.seats[self.index].page
    }

    /// Polls the next task. Whether there was one.
    pub(super) fn poll_next(&mut self, now: Nanos) -> bool {
        let own = self.shared.next(self.index, self.charge.take(), now);
        match own.or_else(|| self.shared.steal(self.index, now)) {
            Some((task, decision)) => self.poll(task, decision, now),
            None => return false,
        }
        true
    }

    /// Who polls no more leaves no poll uncharged.
    pub(super) fn end(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.shared.settle(self.index, &charge);
        }
    }

    /// Wakes tasks whose descriptors are ready, or whose time has come. Whether there were any.
    pub(super) fn look(&mut self, now: Nanos) -> bool {
        self.looked = now;
        self.shared.reactor.look(now)
    }

    fn poll(&mut self, task: Task, decision: Decision, began: Nanos) {
        let meta = task.metadata();
        let (name, class, woken, request) = (meta.name, meta.class, Nanos(meta.woken.get()), meta.request());
        let is_shed = matches!(decision, Decision::Shed(_));
        let (due, patience) = (began.plus(self.shared.turn), self.patience);
        context::begin_turn(Turn { request, due, patience, is_shed });
        // Its panics are contained in its future; one in dropping that would end the process.
        let has_yielded = task.run();
        context::end_turn();
        self.ended = self.shared.now();
        let ran = self.ended.since(began);
        let page = self.page();
        page.count(OfWorker::Polls).add_alone(1);
        page.count(OfWorker::Yields).add_alone(u64::from(has_yielded));
        let of_class = page.class(class);
        of_class.note_delay(began.since(woken));
        of_class.count(OfClass::Polls).add_alone(1);
        of_class.count(OfClass::RanNs).add_alone(ran.0);
        of_class.count(OfClass::Late).add_alone(u64::from(began > request.deadline));
        of_class.count(OfClass::Shed).add_alone(u64::from(is_shed));
        if ran >= self.shared.long_poll {
            page.note_long(name, class, ran);
        }
        if let Decision::Run(run) = decision {
            of_class.count(OfClass::ByFloor).add_alone(u64::from(run.by_floor));
            self.charge = Some(Charge { run, ran });
        }
    }
}
