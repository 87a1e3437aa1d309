//! State that the user and the caretaker of a member share: the right to drive, and the way to ask the other for it.
//!
//! 1. The holder of the lock drives.
//! 2. A thread that finds it taken says so (`came`), ends the driver's sleep by a nudge, and waits for the lock. A driver that yields
//!    ends that when it has a processor again.
//! 3. A driver that waits looks for visitors right before each wait: its work since the last one may have taken a nudge. If there is
//!    a visitor, the driver lets go of the lock until the visitor has had it.
//! 4. The caretaker begins to drive only if the lock is free, and the user was away for a while or waits for the descriptor. It goes on
//!    behind visitors until the user was among them, but for one that waits for the descriptor and only looks.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use punctual_machine::counter::{Counter, Flag};
use punctual_machine::event_fd::EventFd;
use punctual_proto::Nanos;

use super::driver::Driver;
use super::options::nanos;
use crate::communicator::Sender;
use crate::locks::{lock, try_lock, unpoisoned};
use crate::wake::YieldThenSleep;

/// Longest time that the caretaker waits without looking at the clock of the node's housekeeping.
const WAIT_MAX: Nanos = Nanos::from_millis(100);

#[derive(Debug)]
pub(super) struct Shared {
    /// Until the group is dropped.
    driver: Mutex<Option<Driver>>,
    /// Visitors that asked for the lock, and those that have it or had it.
    came: Counter,
    served: Counter,
    stop: Flag,
    /// True if the caretaker is to look at once.
    called: Mutex<bool>,
    call: Condvar,
    /// The event that the user's event loop waits for.
    pub(super) event: EventFd,
    /// After so long without its user the caretaker drives.
    idle_max: Duration,
}

/// The right to drive.
pub(super) struct Driving<'a>(MutexGuard<'a, Option<Driver>>);

impl Deref for Driving<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.0.as_ref().expect("a group has a driver until it is dropped")
    }
}

impl DerefMut for Driving<'_> {
    fn deref_mut(&mut self) -> &mut Driver {
        self.0.as_mut().expect("a group has a driver until it is dropped")
    }
}

impl Shared {
    pub(super) fn new(driver: Driver, event: EventFd, idle_max: Duration) -> Self {
        Self {
            driver: Mutex::new(Some(driver)),
            came: Counter::default(),
            served: Counter::default(),
            stop: Flag::default(),
            called: Mutex::default(),
            call: Condvar::new(),
            event,
            idle_max,
        }
    }

    fn try_lock(&self) -> Option<Driving<'_>> {
        try_lock(&self.driver).map(Driving)
    }

    fn lock(&self) -> Driving<'_> {
        Driving(lock(&self.driver))
    }

    /// The right to drive, from its present holder. For the group itself, and while it lives.
    pub(super) fn visit(&self, sender: &mut Sender) -> Driving<'_> {
        if let Some(driver) = self.try_lock() {
            return driver;
        }
        self.came.add(1);
        sender.nudge();
        let driver = self.lock();
        self.served.add(1);
        driver
    }

    /// The same for others; nothing once the group is dropped.
    pub(super) fn visit_if_there(&self, sender: &mut Sender) -> Option<Driving<'_>> {
        Some(self.visit(sender)).filter(|driver| driver.0.is_some())
    }

    /// The group is dropped: its port, its page and its windows are given back, even if this is still held elsewhere.
    pub(super) fn end(&self) {
        drop(self.lock().0.take());
    }

    /// True if somebody waits for the right to drive.
    pub(super) fn has_visitors(&self) -> bool {
        self.came.get() != self.served.get()
    }

    /// Lets visitors drive first, for a thread that wants to drive on: the lock alone would go to the thread that is awake.
    pub(super) fn let_visitors_in(&self) {
        let mut yields = YieldThenSleep::default();
        while self.has_visitors() && !yields.step() {}
    }

    /// Wakes the caretaker.
    pub(super) fn call(&self) {
        let was_called = std::mem::replace(&mut *lock(&self.called), true);
        // A user that looks again and again pays for a call of the kernel once.
        if !was_called {
            self.call.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.stop.raise();
        self.call();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_raised()
    }

    /// The thread of the caretaker: drives while the user does not.
    pub(super) fn take_care(&self) {
        while !self.stop.is_raised() {
            // A user that waits for a delivery is likely to do so for longer.
            let rest = if self.drive_while_idle() { self.idle_max } else { 4 * self.idle_max };
            let called = lock(&self.called);
            let rested = self.call.wait_timeout_while(called, rest, |called| !*called);
            *unpoisoned(rested).0 = false;
        }
    }

    /// Returns true if the lock was free.
    fn drive_while_idle(&self) -> bool {
        let Some(mut driver) = self.try_lock() else { return false };
        if !driver.is_armed && driver.now().since(driver.driven_at) < nanos(self.idle_max) {
            return true;
        }
        loop {
            driver.turn();
            if driver.is_armed && driver.has_event() {
                (driver.is_armed, driver.has_rung) = (false, true);
                self.event.ring();
                // The user comes to drive itself, and finds nobody in its way.
                driver.driven_at = driver.now();
                return true;
            }
            if self.stop.is_raised() {
                return true;
            }
            if self.has_visitors() {
                let before = (driver.driven_at, driver.is_armed);
                drop(driver);
                self.let_visitors_in();
                driver = self.lock();
                // The user was among them: it drove, or waits no longer for the descriptor. One that still does only looked.
                if !driver.is_armed && before != (driver.driven_at, false) {
                    return true;
                }
                continue;
            }
            let until = driver.now().plus(WAIT_MAX);
            driver.wait(until);
        }
    }
}
