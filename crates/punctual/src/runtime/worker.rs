//! A worker: polls one task after the other, and passes the time while there is none.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use punctual_machine::doorbell::Notification;
use punctual_machine::sleep_cost::SleepCost;
use punctual_machine::sync::spin_hint;
use punctual_proto::Nanos;

use super::context;
use super::options::BLOCKING_MAX;
use super::page::{OfWorker, WorkerPage};
use super::polling::Polling;
use super::reactor::Lead;
use super::shared::Shared;
use super::task::without_panic;
use crate::adaptive_spin::{AdaptiveSpin, Spun};
use crate::locks::lock;

/// Looks for work between two looks at the clock, while it spins.
const LOOKS: u32 = 16;

/// So much time between two looks at the clock: the thread did not run.
const AWAY: Nanos = Nanos::from_millis(1);

/// So long it polls tasks before it looks again at what shows in memory, which is no system call.
const WATCH_AFTER: Nanos = Nanos::from_micros(10);

/// A task looks no longer for what it awaits: its class is charged for that.
const PATIENCE_MAX: Nanos = Nanos::from_micros(5);

/// Threads that became workers while tasks blocked.
#[derive(Debug, Default)]
pub(super) struct Substitutes {
    pub(super) threads: Vec<thread::JoinHandle<()>>,
    /// Threads that were replaced, and have not ended.
    pub(super) replaced: usize,
}

/// Another thread is that worker from now on, as urgent as this one. Returns true if there is one.
pub(super) fn replace(shared: &Arc<Shared>, index: usize) -> bool {
    let mut substitutes = lock(&shared.substitutes);
    substitutes.threads.retain(|thread| !thread.is_finished());
    // The thread that ends the runtime raises this before it waits for those that are listed.
    if shared.stop.is_raised() || substitutes.replaced >= BLOCKING_MAX {
        return false;
    }
    let theirs = Arc::clone(shared);
    let started = thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || Worker::new(&theirs, index).run());
    let Ok(thread) = started else { return false };
    substitutes.threads.push(thread);
    substitutes.replaced += 1;
    true
}

/// One thread's part in a runtime.
#[derive(Debug)]
pub(super) struct Worker<'s> {
    shared: &'s Arc<Shared>,
    spin: AdaptiveSpin,
    polling: Polling,
    /// When it last looked at what shows in memory, and at nothing else.
    watched: Nanos,
}

impl<'s> Worker<'s> {
    pub(super) fn new(shared: &'s Arc<Shared>, index: usize) -> Self {
        Self {
            shared,
            spin: AdaptiveSpin::new(SleepCost::of_this_machine()),
            polling: Polling::new(shared, index),
            watched: Nanos(0),
        }
    }

    fn page(&self) -> &WorkerPage {
        self.polling.page()
    }

    /// Works until the runtime ends, or another thread is this worker.
    pub(super) fn run(self) {
        // Polls of tasks contain their panics.
        without_panic(|| self.work());
    }

    fn work(mut self) {
        let _place = context::take_place(self.shared, self.polling.index);
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.page().count(OfWorker::Thread).set(u64::from(thread.cast_unsigned()));
        self.shared.awake.enter();
        let mut now = self.shared.now();
        while !self.shared.stop.is_raised() && !self.polling.is_replaced {
            if self.turn(now) {
                now = self.polling.ended;
                continue;
            }
            if !self.polling.look(self.shared.now()) {
                self.idle();
            }
            now = self.shared.now();
        }
        self.polling.end();
        // A worker that was replaced has left before.
        if self.polling.is_replaced {
            lock(&self.shared.substitutes).replaced -= 1;
        } else {
            self.shared.awake.leave();
        }
    }

    /// Polls one task. Returns true if there was one.
    fn turn(&mut self, mut now: Nanos) -> bool {
        if now.since(self.polling.looked) >= self.polling.look_after() {
            self.polling.look(now);
            // No class pays for the look.
            let looked = self.shared.now();
            self.polling.note_look(looked.since(now));
            now = looked;
        } else if now.since(self.watched) >= WATCH_AFTER && self.shared.reactor.watch.has_any() {
            self.shared.reactor.watch.look();
            self.watched = now;
        }
        self.polling.patience = Nanos(self.spin.spin_ns().into()).min(PATIENCE_MAX);
        self.polling.poll_next(now)
    }

    /// Passes the time until there may be something to do.
    fn idle(&mut self) {
        let began = self.shared.now();
        let spun = self.spin(began);
        match spun {
            Spun::Found => self.page().count(OfWorker::SpinsFound).add_alone(1),
            Spun::Not => self.park(),
            Spun::InVain | Spun::Preempted => {
                self.page().count(OfWorker::SpinsInVain).add_alone(1);
                self.park();
            }
        }
        self.spin.note(self.shared.now().since(began).0, spun);
    }

    /// True if there would be something to do, while it does not count as awake.
    fn is_ready(&self) -> bool {
        self.shared.would_have_work(self.polling.index)
    }

    /// Looks again and again, for as long as that is worth while.
    fn spin(&mut self, began: Nanos) -> Spun {
        let limit = Nanos(self.spin.spin_ns().into());
        let mut last = began;
        while last.since(began) < limit {
            for _ in 0..LOOKS {
                spin_hint();
                if self.shared.has_work(self.polling.index) || self.shared.reactor.watch.look() {
                    return Spun::Found;
                }
            }
            let now = self.shared.now();
            if self.polling.look(now) {
                return Spun::Found;
            }
            if now.since(last) > AWAY {
                return Spun::Preempted;
            }
            last = now;
        }
        if limit == Nanos(0) { Spun::Not } else { Spun::InVain }
    }

    /// Sleeps until somebody rings; if it leads, until a descriptor is ready or a timer due, too.
    fn park(&mut self) {
        self.shared.leave(self.polling.index);
        while self.sleep() {
            // Woken to lead, and for nothing else.
        }
        self.polling.owes_lead = self.shared.may_lead(self.polling.index);
        self.shared.awake.enter();
    }

    /// Sleeps once, and leads if it may and nobody does. Returns true if it was woken to lead.
    fn sleep(&mut self) -> bool {
        let shared = self.shared;
        let index = self.polling.index;
        let is_work = || shared.would_have_work(index);
        let lead = if shared.may_lead(index) { shared.reactor.lead_unless_led(is_work) } else { None };
        let leads = lead.is_some();
        let slept = match lead {
            Some(mut lead) => {
                let slept = self.sleep_leading(&mut lead);
                // It has just looked at all there is: the cause of its wake-up is polled first.
                self.polling.looked = shared.now();
                shared.reactor.is_led.publish(0);
                drop(lead);
                shared.reactor.wake(&mut self.polling.wakes);
                slept
            }
            None => {
                let bell = &shared.seats[index].intake.bell;
                let is_ready = |worker: &mut Self| worker.is_ready() || shared.is_to_lead(index);
                bell.sleep(Notification::Futex, self, is_ready, |_| bell.sleep_futex(None)).slept.is_some()
            }
        };
        if !slept {
            return false;
        }
        self.page().count(OfWorker::Parks).add_alone(1);
        let is_ready = self.is_ready();
        let is_to_lead = !is_ready && !leads && shared.is_to_lead(index);
        self.page().count(OfWorker::WakesInVain).add_alone(u64::from(!is_ready && !is_to_lead));
        is_to_lead
    }

    /// Sleeps on descriptors if there are any, and no longer than the next timer lets it. Returns true if it slept.
    fn sleep_leading(&mut self, lead: &mut Lead) -> bool {
        let shared = self.shared;
        let (reactor, bell) = (&shared.reactor, &shared.seats[self.polling.index].intake.bell);
        reactor.leader.set(self.polling.index as u64);
        let on_descriptors = reactor.count.get() > 0;
        let how = if on_descriptors { Notification::Descriptor } else { Notification::Futex };
        let is_ready = |worker: &mut Self| {
            // A task that is woken by that is in a line then.
            let _woken = reactor.watch.arm();
            worker.is_ready() || !on_descriptors && worker.shared.reactor.count.get() > 0
        };
        let slept = bell.sleep(how, self, is_ready, |_| {
            let due = reactor.timers.next();
            let left = || Duration::from_nanos(due.since(shared.now()).0);
            let timeout = (due != Nanos::NEVER).then(left);
            if on_descriptors {
                reactor.wait(lead, timeout);
            } else {
                bell.sleep_futex(timeout);
            }
        });
        reactor.dispatch(lead, shared.now(), &mut self.polling.wakes);
        slept.slept.is_some()
    }
}
