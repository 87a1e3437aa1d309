//! Every task that lives, so that there are no more than are allowed, and all end with their runtime.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use super::page::{Page, Word};
use super::shared::Shared;
use crate::locks::lock;

/// Why a task was not spawned. It was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnError {
    /// As many tasks live as may: try again when some have ended, or do without.
    Full,
    /// The runtime is gone.
    Closed,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "as many tasks live as may",
            Self::Closed => "the runtime is gone",
        })
    }
}

impl std::error::Error for SpawnError {}

#[derive(Debug)]
pub(super) struct Registry {
    /// By number; `None` where it is free, or the task is about to have one.
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
    tasks_max: usize,
    page: Arc<Page>,
    is_closed: bool,
}

impl Registry {
    pub(super) fn new(tasks_max: usize, page: &Arc<Page>) -> Self {
        Self { wakers: Vec::new(), free: Vec::new(), tasks_max, page: Arc::clone(page), is_closed: false }
    }

    /// Tasks that live.
    pub(super) fn len(&self) -> usize {
        self.wakers.len() - self.free.len()
    }

    /// A number for a new task.
    pub(super) fn reserve(&mut self) -> Result<u32, SpawnError> {
        if self.is_closed {
            return Err(SpawnError::Closed);
        }
        if self.len() == self.tasks_max {
            return Err(SpawnError::Full);
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            (self.wakers.len() - 1) as u32
        });
        self.note_len();
        Ok(number)
    }

    fn note_len(&self) {
        self.page.count(Word::Tasks).set(self.len() as u64);
    }

    /// The task that has this number from now on.
    pub(super) fn keep(&mut self, number: u32, waker: Waker) -> Result<(), SpawnError> {
        if self.is_closed {
            return Err(SpawnError::Closed);
        }
        self.wakers[number as usize] = Some(waker);
        Ok(())
    }

    /// No task from now on; those that live are returned.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.is_closed = true;
        self.wakers.iter_mut().filter_map(Option::take).collect()
    }
}

/// A task's place among those that live, until its future is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u32,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut registry = lock(&self.shared.registry);
        let waker = registry.wakers[self.number as usize].take();
        registry.free.push(self.number);
        registry.note_len();
        // It may be the last reference to its task, whose end is not this lock's business.
        drop(registry);
        drop(waker);
    }
}
