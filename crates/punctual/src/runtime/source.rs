//! One descriptor that tasks wait for: who waits at which side, and whether a try is worth while.

use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use punctual_machine::counter::Flag;
use punctual_machine::epoll::Readiness;

use super::reactor::Reported;
use crate::locks::lock;

/// A task's use of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Read,
    Write,
}

#[derive(Debug, Default)]
struct State {
    /// Nobody has been told otherwise yet: the first try finds out.
    is_spent: bool,
    /// Number of the kernel's reports of it.
    reports: u32,
    /// Those that wait, by the number of each.
    waiting: Vec<(u64, Waker)>,
    /// Number of those that have waited.
    waited: u64,
}

/// A descriptor that tasks wait for: each by any number of them.
#[derive(Debug, Default)]
pub(super) struct Source {
    sides: [Mutex<State>; 2],
    /// An end or an error was reported. Only reads mind: there is more room to write when the kernel says so, regardless of which end
    /// has ended.
    is_closed: Flag,
}

impl Source {
    fn side(&self, side: Side) -> MutexGuard<'_, State> {
        lock(&self.sides[side as usize])
    }

    /// One that may wait at a side.
    pub(super) fn waiter(&self, side: Side) -> Waiter<'_> {
        Waiter { source: self, side, number: None }
    }

    /// The try found nothing. Reports that came meanwhile count.
    pub(super) fn spend(&self, side: Side, reports: u32) {
        let mut state = self.side(side);
        state.is_spent = state.reports == reports;
    }

    /// The try had less than it asked for, so the next one would find nothing; unless an end was reported with it, which is still
    /// to be read and is not reported again.
    pub(super) fn spend_by_less(&self, side: Side, reports: u32) {
        if side == Side::Write || !self.is_closed.is_raised() {
            self.spend(side, reports);
        }
    }
}

impl Reported for Source {
    fn handle(&self, readiness: Readiness, wakers: &mut Vec<Waker>) {
        if readiness.is_closed {
            self.is_closed.raise();
        }
        for (side, is_ready) in [(Side::Read, readiness.is_readable), (Side::Write, readiness.is_writable)] {
            if is_ready {
                let mut state = self.side(side);
                (state.is_spent, state.reports) = (false, state.reports.wrapping_add(1));
                wakers.extend(state.waiting.drain(..).map(|(_, waker)| waker));
            }
        }
    }

    fn forget(&self, wakers: &mut Vec<Waker>) {
        for side in [Side::Read, Side::Write] {
            wakers.extend(self.side(side).waiting.drain(..).map(|(_, waker)| waker));
        }
    }
}

/// One that may wait at a side of a source. Dropped, it waits no longer: a task that was cancelled takes no report from others.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    source: &'a Source,
    side: Side,
    /// Its number, while it may be among those that wait.
    number: Option<u64>,
}

impl Waiter<'_> {
    /// Ready if a try is worth while; then with a number for [`Source::spend`].
    pub(super) fn poll_ready(&mut self, context: &Context<'_>) -> Poll<u32> {
        let (mut guard, mut former) = (self.source.side(self.side), None);
        let state = &mut *guard;
        if !state.is_spent {
            // The report took all that waited.
            self.number = None;
            return Poll::Ready(state.reports);
        }
        let number = *self.number.get_or_insert_with(|| {
            state.waited += 1;
            state.waited
        });
        match state.waiting.iter_mut().find(|(waiting, _)| *waiting == number) {
            Some((_, waker)) if waker.will_wake(context.waker()) => {}
            Some((_, waker)) => former = Some(std::mem::replace(waker, context.waker().clone())),
            None => state.waiting.push((number, context.waker().clone())),
        }
        drop(guard);
        // It may be the last of its task.
        drop(former);
        Poll::Pending
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut state = self.source.side(self.side);
            let place = state.waiting.iter().position(|(waiting, _)| *waiting == number);
            let waker = place.map(|place| state.waiting.swap_remove(place));
            drop(state);
            // It may be the last of its task.
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a report reaches all that wait at its side, once, and none that was dropped; those take no memory.
    #[test]
    fn a_report_reaches_all_that_wait() {
        let (source, mut wakers) = (Source::default(), Vec::new());
        let context = Context::from_waker(Waker::noop());
        let spend = |side| {
            let Poll::Ready(reports) = source.waiter(side).poll_ready(&context) else { unreachable!() };
            source.spend(side, reports);
        };
        [Side::Read, Side::Write].into_iter().for_each(spend);
        let mut waiters = [Side::Read, Side::Read, Side::Write, Side::Read].map(|side| source.waiter(side));
        for _ in 0..3 {
            waiters.iter_mut().for_each(|waiter| assert!(waiter.poll_ready(&context).is_pending()));
        }
        for _ in 0..100 {
            assert!(source.waiter(Side::Read).poll_ready(&context).is_pending());
        }
        let [first, second, writes, last] = waiters;
        drop(last);
        assert_eq!(source.side(Side::Read).waiting.len(), 2);
        let readable = Readiness { number: 1, is_readable: true, is_writable: false, is_closed: false };
        for expected in [2, 0] {
            source.handle(readable, &mut wakers);
            assert_eq!(wakers.drain(..).len(), expected);
        }
        drop((first, second));
        source.forget(&mut wakers);
        assert_eq!(wakers.len(), 1);
        drop(writes);
    }

    /// Goal: a task to which another has left nothing waits again, behind the next report.
    #[test]
    fn a_vain_try_waits_again() {
        let (source, mut wakers) = (Source::default(), Vec::new());
        let context = Context::from_waker(Waker::noop());
        let mut waiters = [source.waiter(Side::Read), source.waiter(Side::Read)];
        let readable = Readiness { number: 1, is_readable: true, is_writable: false, is_closed: false };
        for _ in 0..3 {
            let Poll::Ready(reports) = waiters[0].poll_ready(&context) else { unreachable!() };
            source.spend(Side::Read, reports);
            waiters.iter_mut().for_each(|waiter| assert!(waiter.poll_ready(&context).is_pending()));
            source.handle(readable, &mut wakers);
            assert_eq!(wakers.drain(..).len(), 2);
        }
    }
}
