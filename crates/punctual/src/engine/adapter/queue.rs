//! A queue that an adapter's threads fill and its node empties, in order, with a limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_machine::counter::Counter;

use super::{Heard, Presence, Ringer};
use crate::engine::{Drops, Flow};

/// Both ends of a queue that holds at most so many frames, each in the form that the medium has it in. Allocates nothing from here on.
///
/// The receiving end may hold as many again: entries that were taken from the other threads' reach in one go.
pub fn queue<F: Send>(ringer: &Ringer, count_max: usize) -> (Inlet<F>, Outlet<F>) {
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

/// A waiting entry.
#[derive(Debug)]
enum Entry<F> {
    Frame(F),
    /// This node cannot be reached any more, or can again.
    Noticed(Presence, bool),
}

#[derive(Debug)]
struct Shared<F> {
    waiting: Mutex<VecDeque<Entry<F>>>,
    count_max: usize,
    /// Entries so far. Written under the lock.
    put: Counter,
    /// Those that found no room.
    dropped: Counter,
    ringer: Ringer,
}

impl<F> Shared<F> {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Entry<F>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where any thread puts in.
#[derive(Debug)]
pub struct Inlet<F>(Arc<Shared<F>>);

impl<F> Clone for Inlet<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F> Inlet<F> {
    /// Puts in a frame, and rings. One for which there is no room is dropped and counted.
    pub fn put(&self, frame: F) {
        if self.put_or_return(frame).is_some() {
            self.count_drop();
        }
    }

    /// Counts a frame that was given back, and will not be put in again.
    pub fn count_drop(&self) {
        self.0.dropped.add(1);
    }

    /// The same, but one for which there is no room is given back.
    pub fn put_or_return(&self, frame: F) -> Option<F> {
        let mut waiting = self.0.waiting();
        // Notices may have made it longer than its limit.
        if waiting.len() >= self.0.count_max {
            return Some(frame);
        }
        self.put_locked(&mut waiting, Entry::Frame(frame));
        drop(waiting);
        self.0.ringer.ring();
        None
    }

    /// Puts in that a node cannot be reached any more, or can again. It is never dropped, room or not. It replaces a waiting notice about
    /// the same life of the node, if no frame lies between them. Each life therefore has one at most behind the last frame.
    pub fn note(&self, presence: Presence, is_back: bool) {
        let mut waiting = self.0.waiting();
        let mut behind_frames = waiting.iter_mut().rev().map_while(|entry| match entry {
            Entry::Noticed(of, is_back) => Some((of, is_back)),
            Entry::Frame(_) => None,
        });
        match behind_frames.find(|(of, _)| **of == presence) {
            Some((_, waiting)) => *waiting = is_back,
            None => self.put_locked(&mut waiting, Entry::Noticed(presence, is_back)),
        }
        drop(waiting);
        self.0.ringer.ring();
    }

    fn put_locked(&self, waiting: &mut VecDeque<Entry<F>>, entry: Entry<F>) {
        waiting.push_back(entry);
        self.0.put.publish(self.0.put.get() + 1);
    }
}

/// The end where the node takes frames out: the basis of [`super::AdapterReceive`].
#[derive(Debug)]
pub struct Outlet<F> {
    /// Out of the other threads' reach.
    taken: VecDeque<Entry<F>>,
    /// Entries that were taken so far, those in `taken` not.
    gone: u64,
    shared: Arc<Shared<F>>,
}

impl<F: Send + 'static> Outlet<F> {
    /// [`super::AdapterReceive::poll`]. A frame is looked at by `look`: it lends the bytes, and may keep what they were in.
    pub fn poll(
        &mut self,
        limit: usize,
        visit: &mut dyn FnMut(Heard<'_>) -> Flow,
        mut look: impl FnMut(F, &mut dyn FnMut(&[u8]) -> Flow) -> Flow,
    ) -> usize {
        let (mut shown, mut flow) = (0, Flow::Continue);
        while shown < limit && flow == Flow::Continue {
            let Some(entry) = self.take() else { break };
            shown += 1;
            flow = match entry {
                Entry::Frame(frame) => look(frame, &mut |bytes| visit(Heard::Frame(bytes))),
                Entry::Noticed(presence, false) => visit(Heard::Gone(presence)),
                Entry::Noticed(presence, true) => visit(Heard::Back(presence)),
            };
        }
        shown
    }

    /// The oldest entry.
    fn take(&mut self) -> Option<Entry<F>> {
        if self.taken.is_empty() && self.is_ready() {
            std::mem::swap(&mut self.taken, &mut self.shared.waiting());
        }
        let entry = self.taken.pop_front()?;
        self.gone += 1;
        Some(entry)
    }

    /// [`super::AdapterReceive::is_ready`]: a load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.shared.put.get_published() != self.gone
    }

    /// [`super::AdapterReceive::drops`].
    pub fn drops(&self) -> Box<dyn Drops>
    where
        F: std::fmt::Debug,
    {
        Box::new(QueueDrops { shared: Arc::clone(&self.shared), seen: 0 })
    }
}

#[derive(Debug)]
struct QueueDrops<F> {
    shared: Arc<Shared<F>>,
    seen: u64,
}

impl<F: Send + std::fmt::Debug> Drops for QueueDrops<F> {
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

    /// Another node, in this life.
    fn presence(incarnation: u16) -> Presence {
        Presence { node: punctual_proto::NodeId::named("other"), incarnation }
    }

    fn ringer() -> Ringer {
        Ringer(Arc::new(WireBell::new(PrivateBell::new().unwrap(), None)))
    }

    /// The oldest frame, or a node and whether it is back.
    fn next(outlet: &mut Outlet<u32>) -> Option<Result<u32, (u16, bool)>> {
        let (mut frame, mut noticed) = (None, None);
        let mut note = |heard: Heard<'_>| {
            noticed = match heard {
                Heard::Frame(_) => None,
                Heard::Gone(presence) => Some((presence.incarnation, false)),
                Heard::Back(presence) => Some((presence.incarnation, true)),
            };
            Flow::Continue
        };
        let shown = outlet.poll(1, &mut note, |taken, visit| {
            frame = Some(taken);
            visit(&taken.to_le_bytes())
        });
        assert_eq!(shown, usize::from(frame.is_some()) + usize::from(noticed.is_some()));
        frame.map(Ok).or(noticed.map(Err))
    }

    /// Goal: order is kept, and an entry that finds no room is counted or given back. Arrivals and departures of nodes are kept in any
    /// case, and a look sees the entries that can be taken.
    #[test]
    fn a_queue_is_a_queue_with_a_limit() {
        let (inlet, mut outlet) = queue(&ringer(), 3);
        let mut drops = outlet.drops();
        assert!(!outlet.is_ready() && next(&mut outlet).is_none());
        (0..5).for_each(|number| inlet.put(number));
        assert_eq!((drops.take(), drops.take()), (2, 0));
        assert_eq!((outlet.is_ready(), next(&mut outlet)), (true, Some(Ok(0))));
        // Taken entries make room.
        (5..8).for_each(|number| assert_eq!(inlet.put_or_return(number), None));
        assert_eq!(inlet.put_or_return(8), Some(8));
        inlet.note(presence(9), false);
        inlet.note(presence(8), true);
        assert_eq!(inlet.put_or_return(8), Some(8), "notices make no room");
        let rest: Vec<_> = std::iter::from_fn(|| next(&mut outlet)).collect();
        let expected = [Ok(1), Ok(2), Ok(5), Ok(6), Ok(7), Err((9, false)), Err((8, true))];
        assert_eq!((rest, outlet.is_ready(), drops.take()), (expected.to_vec(), false, 0));
    }

    /// Goal: notices that nobody takes do not pile up, and none passes a frame. Method: two lives of a node come and go before and behind a frame.
    #[test]
    fn notices_have_a_bound() {
        let (inlet, mut outlet) = queue(&ringer(), 3);
        let come_and_go = |last: bool| {
            for is_back in [true, false].into_iter().cycle().take(10).chain([last]) {
                (1..=2).for_each(|incarnation| inlet.note(presence(incarnation), is_back));
            }
        };
        come_and_go(false);
        inlet.put(7);
        come_and_go(true);
        let waiting: Vec<_> = std::iter::from_fn(|| next(&mut outlet)).collect();
        assert_eq!(waiting, [Err((1, false)), Err((2, false)), Ok(7), Err((1, true)), Err((2, true))]);
        assert!(!outlet.is_ready());
        inlet.note(presence(1), false);
        assert_eq!((outlet.is_ready(), next(&mut outlet)), (true, Some(Err((1, false)))));
    }

    /// Goal: a poll shows no more than its limit, and nothing after it was told to stop.
    #[test]
    fn a_poll_ends_where_it_is_told() {
        let (inlet, mut outlet) = queue(&ringer(), 8);
        (0..8_u32).for_each(|number| inlet.put(number));
        let mut seen = Vec::new();
        for (limit, flow) in [(2, Flow::Continue), (5, Flow::Stop), (100, Flow::Continue)] {
            let mut look = |bytes: &[u8]| {
                seen.push(bytes[0]);
                flow
            };
            let mut visit = |heard: Heard<'_>| match heard {
                Heard::Frame(bytes) => look(bytes),
                _ => unreachable!("nobody came or went"),
            };
            let shown = outlet.poll(limit, &mut visit, |frame, visit| visit(&frame.to_le_bytes()));
            assert_eq!(shown, [2, 1, 5][usize::from(limit > 2) + usize::from(limit > 5)]);
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
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
                let Some(Entry::Frame((thread, number))) = outlet.take() else {
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
