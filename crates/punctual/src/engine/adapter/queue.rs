//! What an adapter's threads put in and its node takes out, in order, with a limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_machine::counter::Counter;

use super::Ringer;
use crate::engine::Drops;

/// Both ends of a queue that holds at most so many; allocates nothing from here on.
///
/// Whoever takes may hold as many again: what was taken from the other threads' reach in one go.
pub fn queue<T: Send>(ringer: &Ringer, count_max: usize) -> (Inlet<T>, Outlet<T>) {
    let shared = Arc::new(Shared {
        waiting: Mutex::new(VecDeque::with_capacity(count_max)),
        count_max,
        put: Counter::default(),
        dropped: Counter::default(),
        ringer: ringer.clone(),
    });
    let outlet = Outlet { taken: VecDeque::with_capacity(count_max), gone: 0, shared: Arc::clone(&shared) };
    (Inlet(shared), outlet)
}

#[derive(Debug)]
struct Shared<T> {
    waiting: Mutex<VecDeque<T>>,
    count_max: usize,
    /// Entries so far. Written under the lock.
    put: Counter,
    /// Those that found no room.
    dropped: Counter,
    ringer: Ringer,
}

impl<T> Shared<T> {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where any thread puts in.
#[derive(Debug)]
pub struct Inlet<T>(Arc<Shared<T>>);

impl<T> Clone for Inlet<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Inlet<T> {
    /// Puts in an entry, and rings. One for which there is no room is dropped and counted.
    pub fn put(&self, entry: T) {
        if self.put_or_return(entry).is_some() {
            self.count_drop();
        }
    }

    /// Counts an entry that was given back, and will not be put in again.
    pub fn count_drop(&self) {
        self.0.dropped.add(1);
    }

    /// The same, but one for which there is no room is given back.
    pub fn put_or_return(&self, entry: T) -> Option<T> {
        let mut waiting = self.0.waiting();
        if waiting.len() == self.0.count_max {
            return Some(entry);
        }
        self.put_locked(&mut waiting, entry);
        drop(waiting);
        self.0.ringer.ring();
        None
    }

    /// Puts in what must not be dropped, room or not: it is little and seldom, as who came and went.
    pub fn put_in_any_case(&self, entry: T) {
        self.put_locked(&mut self.0.waiting(), entry);
        self.0.ringer.ring();
    }

    fn put_locked(&self, waiting: &mut VecDeque<T>, entry: T) {
        waiting.push_back(entry);
        self.0.put.publish(self.0.put.get() + 1);
    }
}

/// Where the node takes out.
#[derive(Debug)]
pub struct Outlet<T> {
    /// Out of the other threads' reach.
    taken: VecDeque<T>,
    /// Entries that were taken so far, those in `taken` not.
    gone: u64,
    shared: Arc<Shared<T>>,
}

impl<T: Send + 'static> Outlet<T> {
    /// The oldest entry.
    pub fn take(&mut self) -> Option<T> {
        if self.taken.is_empty() && self.is_ready() {
            std::mem::swap(&mut self.taken, &mut self.shared.waiting());
        }
        let entry = self.taken.pop_front()?;
        self.gone += 1;
        Some(entry)
    }

    /// Whether there is an entry: a load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.shared.put.get_published() != self.gone
    }

    /// Who knows what found no room.
    pub fn drops(&self) -> Box<dyn Drops>
    where
        T: std::fmt::Debug,
    {
        Box::new(QueueDrops { shared: Arc::clone(&self.shared), seen: 0 })
    }
}

#[derive(Debug)]
struct QueueDrops<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T: Send + std::fmt::Debug> Drops for QueueDrops<T> {
    fn take(&mut self) -> u64 {
        let dropped = self.shared.dropped.get();
        dropped - std::mem::replace(&mut self.seen, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::PrivateBell;
    use crate::engine::wire::WireBell;

    fn ringer() -> Ringer {
        Ringer(Arc::new(WireBell::new(PrivateBell::new().unwrap(), None)))
    }

    /// Goal: order is kept, what finds no room is counted or given back, and a look sees what can be taken.
    #[test]
    fn a_queue_is_a_queue_with_a_limit() {
        let (inlet, mut outlet) = queue(&ringer(), 3);
        let mut drops = outlet.drops();
        assert!(!outlet.is_ready() && outlet.take().is_none());
        (0..5).for_each(|number| inlet.put(number));
        assert_eq!((drops.take(), drops.take()), (2, 0));
        assert_eq!((outlet.is_ready(), outlet.take()), (true, Some(0)));
        // What was taken makes room.
        (5..8).for_each(|number| assert_eq!(inlet.put_or_return(number), None));
        assert_eq!(inlet.put_or_return(8), Some(8));
        inlet.put_in_any_case(9);
        let rest: Vec<_> = std::iter::from_fn(|| outlet.take()).collect();
        assert_eq!((rest, outlet.is_ready(), drops.take()), (vec![1, 2, 5, 6, 7, 9], false, 0));
    }

    /// Goal: of two threads that put, each one's entries come out in order, all of them; a look that sees nothing is right.
    #[test]
    fn entries_of_each_thread_come_in_order() {
        const COUNT: u32 = 20_000;
        let (inlet, mut outlet) = queue(&ringer(), 64);
        std::thread::scope(|scope| {
            for thread in 0..2_u32 {
                let inlet = inlet.clone();
                scope.spawn(move || {
                    for number in 0..COUNT {
                        let mut entry = Some((thread, number));
                        while let Some(again) = entry.take() {
                            entry = inlet.put_or_return(again);
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut expected = [0; 2];
            while expected != [COUNT; 2] {
                let was_ready = outlet.is_ready();
                let Some((thread, number)) = outlet.take() else {
                    assert!(!was_ready, "a look saw what was not there");
                    std::thread::yield_now();
                    continue;
                };
                assert_eq!(number, expected[thread as usize], "of thread {thread}");
                expected[thread as usize] += 1;
            }
        });
    }
}
