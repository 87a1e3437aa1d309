//! Objects that wait and can be looked at without a system call, until a worker goes to sleep and arms them.

use std::fmt;
use std::sync::{Arc, Mutex, TryLockError};
use std::task::Waker;

use punctual_machine::counter::Counter;

use super::task::wake_all;
use super::unpoisoned;

/// So many are looked at; those beyond are armed as soon as they wait.
const WATCHED_MAX: usize = 16;

/// An object that waits for something that shows in memory.
pub(super) trait Watched: Send + Sync + fmt::Debug {
    /// `None` while nothing has come. Otherwise it is watched no longer, and this is the waker to call, if there is one.
    fn look(&self) -> Option<Option<Waker>>;

    /// From now on its descriptor reports what comes, and it is watched no longer. Returns the waker to be called because something is
    /// there.
    fn arm(&self) -> Option<Waker>;
}

/// All that are looked at.
#[derive(Debug, Default)]
pub(super) struct Watch {
    list: Mutex<Vec<Arc<dyn Watched>>>,
    /// Number of objects that are looked at. A hint.
    count: Counter,
}

impl Watch {
    /// One more. It is armed at once if there are many, or `is_led` says that nobody will look; then who is to be woken.
    pub(super) fn add(&self, watched: Arc<dyn Watched>, is_led: impl FnOnce() -> bool) -> Option<Waker> {
        let mut list = unpoisoned(self.list.lock());
        // With the lock held: a leader says so first and takes the lock then, so that it finds this one, or this one finds it.
        if list.len() >= WATCHED_MAX || is_led() {
            drop(list);
            return watched.arm();
        }
        list.push(watched);
        self.count.set(list.len() as u64);
        None
    }

    /// True if there is anything to look at, as far as this thread sees.
    pub(super) fn has_any(&self) -> bool {
        self.count.get() > 0
    }

    /// Wakes each one for which something has come. Returns true if there were any.
    pub(super) fn look(&self) -> bool {
        if !self.has_any() {
            return false;
        }
        let mut list = match self.list.try_lock() {
            Ok(list) => list,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another looks.
            Err(TryLockError::WouldBlock) => return false,
        };
        let (mut wakers, mut woken) = (std::array::from_fn::<_, WATCHED_MAX, _>(|_| None), 0);
        list.retain(|watched| {
            let news = watched.look();
            if let Some(Some(waker)) = news {
                wakers[woken] = Some(waker);
                woken += 1;
                return false;
            }
            news.is_none()
        });
        self.count.set(list.len() as u64);
        drop(list);
        wake_all(wakers.into_iter().take(woken).flatten()) > 0
    }

    /// Arms all, before a sleep. Returns true if something was there already, and was woken for.
    pub(super) fn arm(&self) -> bool {
        let list = std::mem::take(&mut *unpoisoned(self.list.lock()));
        self.count.set(0);
        wake_all(list.iter().filter_map(|watched| watched.arm())) > 0
    }
}
