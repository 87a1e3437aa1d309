//! Objects that wait and can be looked at without a system call, until a worker goes to sleep and arms them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use punctual_machine::counter::Counter;
use punctual_machine::sync::spin_hint;

use super::task::wake_all;
use crate::locks::{lock, try_lock};

/// So many are looked at; those beyond are armed as soon as they wait.
const WATCHED_MAX: usize = 16;

/// Tries for the list before an object is armed in place of that. One look at all takes less time.
const TRIES: usize = 200;

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
    /// One more. It is armed at once if there are many, or `is_led` says that nobody will look; then who is to be woken. So it is where
    /// another thread has the list for long: that one may be less urgent, and wait for its processor.
    pub(super) fn add(&self, watched: Arc<dyn Watched>, is_led: impl FnOnce() -> bool) -> Option<Waker> {
        // With the lock held: a leader says so first and takes the lock then, so that it finds this one, or this one finds it.
        let list = self.list_soon().filter(|list| list.len() < WATCHED_MAX && !is_led());
        let Some(mut list) = list else { return watched.arm() };
        list.push(watched);
        self.count.set(list.len() as u64);
        None
    }

    /// True if there is anything to look at, as far as this thread sees.
    pub(super) fn has_any(&self) -> bool {
        self.count.get() > 0
    }

    /// The list, unless another thread has it for longer than a look takes.
    fn list_soon(&self) -> Option<MutexGuard<'_, Vec<Arc<dyn Watched>>>> {
        for _ in 0..TRIES {
            if let Some(list) = try_lock(&self.list) {
                return Some(list);
            }
            spin_hint();
        }
        None
    }

    /// Wakes each one for which something has come. Returns true if there were any.
    pub(super) fn look(&self) -> bool {
        if !self.has_any() {
            return false;
        }
        // Another looks.
        let Some(mut list) = try_lock(&self.list) else { return false };
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
        let list = std::mem::take(&mut *lock(&self.list));
        self.count.set(0);
        wake_all(list.iter().filter_map(|watched| watched.arm())) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use punctual_machine::counter::Flag;

    use super::*;

    /// Says that it was armed.
    #[derive(Debug, Default)]
    struct Armed(Flag);

    impl Watched for Armed {
        fn look(&self) -> Option<Option<Waker>> {
            None
        }

        fn arm(&self) -> Option<Waker> {
            self.0.raise();
            None
        }
    }

    /// Goal: a thread that lays an object down waits for no other one, which may be less urgent and off its processor. Method: that one
    /// has the list until it is done.
    #[test]
    fn an_object_is_armed_where_the_list_is_taken_for_long() {
        let watch = Watch::default();
        let (object, taken) = (Arc::<Armed>::default(), watch.list.lock().unwrap());
        std::thread::scope(|scope| {
            let (told, is_laid_down) = mpsc::channel();
            let (watch, object) = (&watch, &object);
            scope.spawn(move || {
                let woken = watch.add(Arc::clone(object) as Arc<dyn Watched>, || false);
                told.send(woken.is_none())
            });
            assert_eq!(is_laid_down.recv_timeout(Duration::from_secs(20)), Ok(true), "it waits");
            drop(taken);
        });
        assert!(object.0.is_raised() && !watch.has_any());
        assert!(watch.add(Arc::clone(&object) as Arc<dyn Watched>, || false).is_none());
        assert!(watch.has_any(), "the list is free");
    }
}
