//! Fate of a message on its way, by the plan and by chance.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::plan::{Fate, Fault, Link, Weather};
use super::record::Record;
use super::rng::Rng;
use crate::time::Nanos;

/// The network as it is when nothing goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// No message is faster.
    pub delay_min: Nanos,
    /// Most are slower by less than this; one of ten by up to ten times as much.
    pub delay_spread: Nanos,
    /// Messages of one link arrive in their order, but for what a plan delays or doubles.
    pub ordered: bool,
    /// The medium checks the messages that it carries: one that was altered on the way is lost.
    pub checked: bool,
    /// A node notices a timeout up to this much late.
    pub wake_max: Nanos,
}

impl Network {
    /// A switched network of some hosts.
    pub const LAN: Self = Self {
        delay_min: Nanos::from_micros(20),
        delay_spread: Nanos::from_micros(80),
        ordered: true,
        checked: true,
        wake_max: Nanos::from_micros(50),
    };
}

/// One message on one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    pub(super) source: u16,
    pub(super) target: u16,
    /// Number of messages that went this way before it.
    pub(super) number: u64,
    pub(super) now: Nanos,
}

/// Arrivals at the other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    /// When it arrives; `None` if not.
    pub(super) first: Option<Nanos>,
    /// When it arrives once more.
    pub(super) second: Option<Nanos>,
    pub(super) flipped: Option<u32>,
}

/// The network with a plan of faults.
#[derive(Clone, Debug)]
pub(super) struct Faulty {
    seed: u64,
    pub(super) network: Network,
    weather: Vec<(Nanos, Nanos, Link, Weather)>,
    messages: BTreeMap<(u16, u16, u64), Vec<Fate>>,
    /// Of each link, when its last message arrives.
    last: BTreeMap<(u16, u16), Nanos>,
}

/// Different chances for one message.
const DELAYS: u64 = 1 << 32;

impl Faulty {
    pub(super) fn new(seed: u64, network: Network) -> Self {
        Self { seed, network, weather: Vec::new(), messages: BTreeMap::new(), last: BTreeMap::new() }
    }

    pub(super) fn plan(&mut self, fault: Fault) {
        match fault {
            Fault::Message { number, source, target, fate } => {
                self.messages.entry((source, target, number)).or_default().push(fate);
            }
            Fault::Weather { since, until, link, weather } => {
                self.weather.push((since, until, link, weather));
            }
            Fault::Replays { .. } | Fault::Replay { .. } | Fault::Node { .. } => {}
        }
    }

    pub(super) fn calm(&mut self) {
        self.weather.clear();
        self.messages.clear();
    }

    pub(super) fn carry(&mut self, passage: Passage, record: &mut Record) -> Arrivals {
        let Passage { source, target, number, now } = passage;
        let mut fates = Vec::new();
        for &(since, until, link, weather) in &self.weather {
            if link.includes(source, target) && since <= now && now < until {
                // The effect of one kind of weather on a message does not depend on the others: so each may be left out alone.
                let place = [self.seed, kind_of(weather), since.0, source.into(), target.into(), number];
                fates.extend(draw(weather, &mut Rng::at(&place)));
            }
        }
        for &fate in &fates {
            record.hit(Fault::Message { number, source, target, fate });
        }
        fates.extend(self.messages.get(&(source, target, number)).into_iter().flatten());
        arrivals(&fates, self.usual_delay(passage), self.network.checked)
    }

    fn usual_delay(&mut self, Passage { source, target, number, now }: Passage) -> Nanos {
        let Network { delay_min, delay_spread, ordered, .. } = self.network;
        let mut rng = Rng::at(&[self.seed, DELAYS, source.into(), target.into(), number]);
        let spread = if rng.below(10) == 0 { 10 * delay_spread.0 } else { delay_spread.0 };
        let arrival = now.plus(delay_min).plus(Nanos(rng.below(spread + 1)));
        if !ordered {
            return arrival;
        }
        let last = self.last.entry((source, target)).or_default();
        *last = arrival.max(*last);
        *last
    }

    /// Delay after its instant with which a node notices the timeout of this turn.
    pub(super) fn wake_delay(&self, node: u16, turn: u64) -> Nanos {
        let mut rng = Rng::at(&[self.seed, DELAYS + 1, node.into(), turn]);
        Nanos(rng.below(self.network.wake_max.0 + 1))
    }
}

/// Combined effect of all fates of a message, in any order: a lost message has no copy.
fn arrivals(fates: &[Fate], usual: Nanos, checked: bool) -> Arrivals {
    let (mut at, mut later, mut flipped, mut is_lost) = (usual, None, None, false);
    for &fate in fates {
        match fate {
            Fate::Lose => is_lost = true,
            Fate::Flip(bit) => flipped = Some(bit),
            Fate::Double(by) => later = later.max(Some(by)),
            Fate::Delay(by) => at = at.plus(by),
        }
    }
    if is_lost || flipped.is_some() && checked {
        return Arrivals { flipped, ..Arrivals::default() };
    }
    Arrivals { first: Some(at), second: later.map(|by| at.plus(by)), flipped }
}

fn kind_of(weather: Weather) -> u64 {
    match weather {
        Weather::Cut => 0,
        Weather::Lose(_) => 1,
        Weather::Flip(_) => 2,
        Weather::Double(..) => 3,
        Weather::Delay(..) => 4,
        Weather::Slow(_) => 5,
    }
}

fn draw(weather: Weather, rng: &mut Rng) -> Option<Fate> {
    let mut within = |time: Nanos| Nanos(rng.below(time.0));
    let (permille, fate) = match weather {
        Weather::Cut => (1_000, Fate::Lose),
        Weather::Slow(by) => (1_000, Fate::Delay(by)),
        Weather::Lose(permille) => (permille, Fate::Lose),
        Weather::Double(permille, most) => (permille, Fate::Double(within(most))),
        Weather::Delay(permille, most) => (permille, Fate::Delay(within(most))),
        Weather::Flip(permille) => (permille, Fate::Flip(within(Nanos(1 << 16)).0 as u32)),
    };
    rng.happens(permille).then_some(fate)
}
