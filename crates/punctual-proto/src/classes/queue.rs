//! The tasks of one class, in the order of a policy.

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

use super::{Oldest, Policy, Ready};
use crate::time::Nanos;

/// A task in line: the least key first, and among equals who came first.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    number: u64,
    pushed: Nanos,
    ready: Ready,
}

impl Entry {
    fn new(policy: Policy, ready: Ready, number: u64, pushed: Nanos) -> Self {
        let mut entry = Self { key: 0, number, pushed, ready };
        entry.key = entry.key_by(policy);
        entry
    }

    /// By what a policy puts tasks in order, within a class and between classes.
    fn key_by(&self, policy: Policy) -> u64 {
        let Ready { class, arrived, deadline, .. } = self.ready;
        match policy {
            Policy::Fifo | Policy::Strict | Policy::Stride => self.number,
            Policy::Floors if deadline == Nanos::NEVER => self.pushed.plus(PATIENCE).0,
            Policy::Floors => coarse_deadline(arrived, deadline),
            Policy::Deadline => deadline.0,
            Policy::Aging(step) => arrived.0.saturating_add(step.0.saturating_mul(class.into())),
        }
    }
}

/// Deadlines that differ by less than one part in so many of the time that a request has count as one.
const DEADLINE_PARTS: u64 = 32;

/// A deadline, rounded up so that requests which came together are equal: the one that became ready first is first among them. So each
/// stage is done for all of them before the next one, in one stretch of hot code. A server that did one request after the other, all
/// stages of it, spent a tenth more in each call of the kernel.
fn coarse_deadline(arrived: Nanos, deadline: Nanos) -> u64 {
    round_up(deadline, arrived, deadline)
}

/// An instant, rounded up as a deadline of a request that came then.
fn round_up(instant: Nanos, arrived: Nanos, deadline: Nanos) -> u64 {
    let grain = deadline.since(arrived).0 / DEADLINE_PARTS;
    instant.0 | !(u64::MAX << grain.checked_ilog2().unwrap_or(0))
}

/// A task without a deadline counts as due after this time: an endless row of deadlines would otherwise keep it waiting for ever.
const PATIENCE: Nanos = Nanos::from_millis(1_000);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed: the heap's greatest is who runs first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.key, other.number).cmp(&(self.key, self.number))
    }
}

/// The memory for one entry, as [`crate::limits::TASKS_MAX`] states it.
const _: () = assert!(size_of::<Entry>() == 48);

#[derive(Debug)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
}

impl Queue {
    pub(super) fn new(tasks_max: usize) -> Self {
        Self { heap: BinaryHeap::with_capacity(tasks_max) }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn push(&mut self, policy: Policy, ready: Ready, number: u64, now: Nanos) {
        self.heap.push(Entry::new(policy, ready, number, now));
    }

    /// As [`Self::push`], of a task that goes on with its request: where deadlines decide, it is due now at the earliest.
    pub(super) fn push_again(&mut self, policy: Policy, ready: Ready, number: u64, now: Nanos) {
        let mut entry = Entry::new(policy, ready, number, now);
        if policy == Policy::Floors && ready.deadline <= now {
            entry.key = round_up(now, ready.arrived, ready.deadline);
        }
        self.heap.push(entry);
    }

    pub(super) fn pop(&mut self) -> Option<Ready> {
        self.heap.pop().map(|entry| entry.ready)
    }

    /// The key of the task that runs first; the largest if there is none.
    pub(super) fn first_key(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |entry| entry.key)
    }

    pub(super) fn oldest(&self) -> Option<Oldest> {
        let each =
            self.heap.iter().map(|entry| Oldest { arrived: entry.ready.arrived, pushed: entry.pushed });
        each.reduce(|a, b| Oldest { arrived: a.arrived.min(b.arrived), pushed: a.pushed.min(b.pushed) })
    }

    /// Puts the tasks into another policy's order, in the memory that they have. Each counts as pushed for the first time.
    pub(super) fn reorder(&mut self, policy: Policy) {
        let mut entries = core::mem::take(&mut self.heap).into_vec();
        entries.iter_mut().for_each(|entry| entry.key = entry.key_by(policy));
        self.heap = BinaryHeap::from(entries);
    }
}
