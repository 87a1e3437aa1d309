//! Loses, corrupts, doubles, moves and delays frames on purpose, by a seed. A fault is a layer around an engine, never a
//! flag inside one.
//!
//! Faults happen to messages that arrive. Announcements are delayed as messages are, and suffer nothing else. Each receiver has its own
//! faults, as on a real medium. The same seed and the same arrivals give the same faults.

use std::collections::VecDeque;
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::sim::Rng;
use punctual_proto::{FrameError, Header, Stamps};

use super::layer::ReceiveLayer;
use super::{Arrival, Engine, Event, Flow, Receive, Trouble};

/// Frames that are held back at a time, for reordering and delay. A full hold releases its oldest.
pub(crate) const HELD_MAX: usize = 1024;

/// Faults, per arriving frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The same seed gives the same faults.
    pub seed: u64,
    /// Frames that vanish, of a thousand.
    pub loss_permille: u32,
    /// Frames whose bytes are altered, of a thousand. They arrive as bad frames, as the check value would say. On a sealed bus in
    /// memory a bit of each is turned over in fact, and its seal finds that out.
    pub corruption_permille: u32,
    /// Frames that arrive twice, of a thousand.
    pub duplication_permille: u32,
    /// Frames that the next one overtakes, of a thousand.
    pub reordering_permille: u32,
    /// Time that every frame is held, and every announcement: they come in the order in which they were sent.
    pub delay: Duration,
}

impl Faults {
    /// No faults yet.
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            loss_permille: 0,
            corruption_permille: 0,
            duplication_permille: 0,
            reordering_permille: 0,
            delay: Duration::ZERO,
        }
    }

    /// Loses this many frames of a thousand.
    #[must_use]
    pub fn loss(mut self, permille: u32) -> Self {
        self.loss_permille = permille;
        self
    }

    /// Alters this many frames of a thousand.
    #[must_use]
    pub fn corruption(mut self, permille: u32) -> Self {
        self.corruption_permille = permille;
        self
    }

    /// Doubles this many frames of a thousand.
    #[must_use]
    pub fn duplication(mut self, permille: u32) -> Self {
        self.duplication_permille = permille;
        self
    }

    /// Lets this many frames of a thousand be overtaken: each waits for another, 5 ms at most beside the delay of all.
    #[must_use]
    pub fn reordering(mut self, permille: u32) -> Self {
        self.reordering_permille = permille;
        self
    }

    /// Holds every frame for this long.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// The engine with faults at its receiving half.
pub(crate) fn wrap(engine: Engine, faults: &Faults) -> Engine {
    let delay = Clock::get().ticks(faults.delay);
    let receive = FaultyReceive {
        inner: engine.receive,
        faults: *faults,
        rng: Rng::new(faults.seed),
        held: VecDeque::with_capacity(HELD_MAX),
        delay,
    };
    Engine { transmit: engine.transmit, receive: Box::new(receive) }
}

/// An item that is held back.
#[derive(Debug)]
struct Held {
    what: What,
    /// When it is let go at the latest; at once after the next frame, if it is only to be overtaken.
    release: Ticks,
    overtaken: bool,
}

#[derive(Debug)]
enum What {
    Frame(HeldFrame),
    /// Another event of the engine, which borrows nothing.
    Said(Event<'static>),
}

#[derive(Debug)]
struct HeldFrame {
    header: Header,
    stamps: Option<Stamps>,
    payload: Vec<u8>,
    kernel_ns: Option<u64>,
    sealed_in: Option<u32>,
}

impl Held {
    fn new(arrival: &Arrival<'_>, release: Ticks, overtaken: bool) -> Self {
        let Arrival { header, stamps, kernel_ns, sealed_in, .. } = *arrival;
        let payload = arrival.payload.to_vec();
        let what = What::Frame(HeldFrame { header: *header, stamps, payload, kernel_ns, sealed_in });
        Self { what, release, overtaken }
    }

    fn show(&self, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> Flow {
        match &self.what {
            What::Frame(HeldFrame { header, stamps, payload, kernel_ns, sealed_in }) => {
                visit(Event::Frame(&Arrival {
                    header,
                    stamps: *stamps,
                    payload,
                    kernel_ns: *kernel_ns,
                    sealed_in: *sealed_in,
                }))
            }
            What::Said(event) => visit(*event),
        }
    }
}

/// Holds it back. A full hold releases its oldest.
fn hold(held: &mut VecDeque<Held>, new: Held, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> Flow {
    let oldest = if held.len() < HELD_MAX { None } else { held.pop_front() };
    held.push_back(new);
    oldest.map_or(Flow::Continue, |oldest| oldest.show(visit))
}

#[derive(Debug)]
struct FaultyReceive {
    inner: Box<dyn Receive>,
    faults: Faults,
    rng: Rng,
    held: VecDeque<Held>,
    delay: Ticks,
}

/// Time that a frame that is to be overtaken waits for another: nothing may wait for ever.
pub(crate) const OVERTAKING_MAX: Duration = Duration::from_millis(5);

/// Place of the one that is let go next, if it is due: by the instant, not by when it came, also where its reader looks late.
pub(crate) fn next_released(releases: impl Iterator<Item = Ticks>, now: Ticks) -> Option<usize> {
    let due = releases.enumerate().filter(|(_, release)| *release <= now);
    due.min_by_key(|&(place, release)| (release, place)).map(|(place, _)| place)
}

impl FaultyReceive {
    fn show_released(
        &mut self,
        now: Ticks,
        limit: usize,
        visit: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> (usize, Flow) {
        let mut shown = 0;
        while shown < limit
            && let Some(position) = next_released(self.held.iter().map(|held| held.release), now)
        {
            let Some(held) = self.held.remove(position) else { break };
            shown += 1;
            if held.show(visit) == Flow::Stop {
                return (shown, Flow::Stop);
            }
        }
        (shown, Flow::Continue)
    }
}

/// Applies the faults to one arrival.
fn suffer(
    faults: &Faults,
    rng: &mut Rng,
    held: &mut VecDeque<Held>,
    (now, delay): (Ticks, Ticks),
    arrival: &Arrival<'_>,
    visit: &mut dyn FnMut(Event<'_>) -> Flow,
) -> Flow {
    if rng.happens(faults.loss_permille) {
        return Flow::Continue;
    }
    if rng.happens(faults.corruption_permille) {
        // The check value would have said so; a whole frame with wrong bytes is what no fault may pass on.
        return visit(Event::Trouble(Trouble::BadFrame(FrameError::NotAFrame)));
    }
    let twice = rng.happens(faults.duplication_permille);
    let overtaken = rng.happens(faults.reordering_permille);
    if overtaken || delay.0 > 0 {
        let clock = Clock::get();
        let wait = if overtaken { delay.0.saturating_add(clock.ticks(OVERTAKING_MAX).0) } else { delay.0 };
        let flow = hold(held, Held::new(arrival, now.plus(Ticks(wait)), overtaken), visit);
        if twice && held.len() < HELD_MAX {
            held.push_back(Held::new(arrival, now.plus(Ticks(wait)), false));
        }
        return flow;
    }
    // This one overtakes those that wait for it.
    for waiting in held.iter_mut().filter(|waiting| waiting.overtaken) {
        (waiting.release, waiting.overtaken) = (now, false);
    }
    if twice && held.len() < HELD_MAX {
        held.push_back(Held::new(arrival, now, false));
    }
    visit(Event::Frame(arrival))
}

/// The event, if it is about nodes and their streams.
fn said(event: &Event<'_>) -> Option<Event<'static>> {
    Some(match *event {
        Event::Joined { node, incarnation, progress, exact } => {
            Event::Joined { node, incarnation, progress, exact }
        }
        Event::Progressed { node, incarnation, progress } => {
            Event::Progressed { node, incarnation, progress }
        }
        Event::Left { node, incarnation, progress, died } => {
            Event::Left { node, incarnation, progress, died }
        }
        Event::Noticed { node, incarnation, is_back } => Event::Noticed { node, incarnation, is_back },
        Event::Frame(_) | Event::Trouble(_) => return None,
    })
}

impl ReceiveLayer for FaultyReceive {
    fn inner(&self) -> &dyn Receive {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Receive {
        &mut *self.inner
    }

    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize {
        let now = Clock::get().now();
        let (shown, flow) = self.show_released(now, limit, visit);
        if flow == Flow::Stop || shown >= limit {
            return shown;
        }
        let Self { inner, faults, rng, held, delay } = self;
        shown
            + inner.poll(limit - shown, &mut |event| match event {
                Event::Frame(arrival) if arrival.header.kind.is_numbered() => {
                    suffer(faults, rng, held, (now, *delay), arrival, visit)
                }
                other => match said(&other) {
                    // A report on frames that are held would come too soon.
                    Some(said) if delay.0 > 0 || !held.is_empty() => {
                        let (what, overtaken) = (What::Said(said), false);
                        let behind = held.iter().map(|held| held.release).max().unwrap_or(now);
                        let release = now.plus(*delay).max(behind);
                        hold(held, Held { what, release, overtaken }, visit)
                    }
                    _ => visit(other),
                },
            })
    }

    fn is_ready(&self) -> bool {
        ReceiveLayer::next_due(self).is_some_and(|due| due <= Clock::get().now()) || self.inner.is_ready()
    }

    fn next_due(&self) -> Option<Ticks> {
        // Held items must be let go in time; their release rings no bell.
        self.held.iter().map(|held| held.release).min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::{Bell, Descriptors, PrivateBell};

    /// A medium on which nothing comes.
    #[derive(Debug)]
    struct Silent;

    impl Receive for Silent {
        fn poll(&mut self, _limit: usize, _visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize {
            0
        }

        fn is_ready(&self) -> bool {
            false
        }

        fn bell(&self) -> Arc<dyn Bell> {
            Arc::new(PrivateBell::new().expect("a descriptor"))
        }

        fn looks_suffice(&self) -> bool {
            true
        }

        fn descriptors(&self) -> Descriptors<'_> {
            [None, None]
        }

        fn handle_awake(&mut self) {}

        fn housekeep(&mut self, _now: Ticks) {}
    }

    /// Goal: a poll shows no more held items than it was asked for, and the next ones show the rest.
    #[test]
    fn a_poll_shows_no_more_than_its_limit() {
        let said = || {
            let trouble = Trouble::BadFrame(FrameError::NotAFrame);
            Held { what: What::Said(Event::Trouble(trouble)), release: Ticks(0), overtaken: false }
        };
        let (faults, rng) = (Faults::seeded(1), Rng::new(1));
        let held = (0..7).map(|_| said()).collect();
        let mut faulty = FaultyReceive { inner: Box::new(Silent), faults, rng, held, delay: Ticks(0) };
        let mut polls = || {
            let mut visits = 0;
            let shown = ReceiveLayer::poll(&mut faulty, 3, &mut |_| {
                visits += 1;
                Flow::Continue
            });
            (shown, visits)
        };
        assert_eq!([polls(), polls(), polls(), polls()], [(3, 3), (3, 3), (1, 1), (0, 0)]);
    }

    /// Goal: held frames go by their instants, those of one instant in the order in which they came, and none before its instant.
    #[test]
    fn the_earliest_is_released_first() {
        let released = |now| next_released([30, 10, 20, 10].map(Ticks).into_iter(), Ticks(now));
        assert_eq!([9, 10, 25, 99].map(released), [None, Some(1), Some(1), Some(1)]);
        assert_eq!(next_released([30, 20].map(Ticks).into_iter(), Ticks(40)), Some(1));
    }
}
