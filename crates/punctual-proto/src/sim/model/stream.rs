//! One sender's numbers over a network that loses, doubles and reorders, with gaps of any size.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use super::{Model, Report, Violation, ensure};
use crate::address::{Address, NodeId, Port, Target};
use crate::limits::{MESSAGE_INTERVAL_NS_MIN, REORDER_WINDOW};
use crate::protocol::{Protocol, Transmit};
use crate::recency::Moment;
use crate::sim::{Clock, Link, Network, NodeFault, Participant, Plan, Record, Rng, Weather, World};
use crate::stream::{Accepted, Stream};
use crate::time::Nanos;

/// The account of a stream.
pub(super) struct Streams;

const RUN: Nanos = Nanos::from_millis(60);
const SIZE: usize = 9;
const SOURCE: u16 = 0;
const SINK: u16 = 1;

/// No gap on a wire in foul weather is longer: the largest that frames can tell, less the frames that may be lost before and after.
const LAP: u64 = (1 << 32) - (1 << 20);

/// No plan skips more at a time.
const GAP_MAX: u64 = 1 << 40;

/// A number was sent.
const FRAME: u8 = 0;
/// All numbers before this one were.
const PROGRESS: u8 = 1;

/// In foul weather the network loses and reorders, and no gap is as long as a lap of what frames can tell. In fair weather it
/// does neither, and after any gap the sender says first how far it is.
fn is_foul(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// Time that so many numbers take on a wire that is nearly as fast as can be.
fn length_of(gap: u64) -> Nanos {
    Nanos(gap.saturating_mul(MESSAGE_INTERVAL_NS_MIN + 1))
}

fn moment(now: Nanos) -> Moment {
    Moment { now_ns: now.0, fresh_ns: now.0 }
}

#[derive(Debug)]
enum Node {
    Source {
        next: u64,
        frames_due: u32,
        at: Nanos,
        every: Nanos,
        tells_progress: bool,
        /// In fair weather: only the sender's word can measure a gap.
        tells_gaps: bool,
        /// A gap has ended, and that is not said yet.
        tells_first: bool,
        rng: Rng,
    },
    Sink {
        stream: Stream,
        event: Option<Arrived>,
    },
}

/// Something came.
#[derive(Clone, Copy, Debug)]
enum Arrived {
    Frame(u64, Accepted),
    /// The sender says how far it is; so many are lost by that.
    Progress(u64, u64),
}

impl Protocol for Node {
    type Event = Arrived;

    fn handle_message(&mut self, _: Address, message: &[u8], now: Nanos) {
        let Self::Sink { stream, event } = self else { return };
        let Some((&kind, number)) = message.split_first() else { return };
        let Ok(number) = number.try_into().map(u64::from_le_bytes) else { return };
        *event = match kind {
            FRAME => Some(Arrived::Frame(number, stream.accept(number as u32, moment(now)))),
            _ => Some(Arrived::Progress(number, stream.handle_progress(number, moment(now)))),
        };
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if let Self::Source { frames_due, at, every, tells_progress, rng, .. } = self
            && now >= *at
        {
            (*frames_due, *at) = (1 + rng.below(3) as u32, now.plus(*every));
            *tells_progress = rng.below(8) == 0;
        }
    }

    fn poll_transmit(&mut self, _: Nanos, buffer: &mut [u8]) -> Option<Transmit> {
        let Self::Source { next, frames_due, tells_progress, tells_first, .. } = self else {
            return None;
        };
        let goes_on = *frames_due > 0;
        let (kind, number) = if goes_on && core::mem::take(tells_first) {
            (PROGRESS, *next)
        } else if *frames_due > 0 {
            (*frames_due, *next) = (*frames_due - 1, *next + 1);
            (FRAME, *next - 1)
        } else if core::mem::take(tells_progress) {
            (PROGRESS, *next)
        } else {
            return None;
        };
        buffer[0] = kind;
        buffer[1..SIZE].copy_from_slice(&number.to_le_bytes());
        Some(Transmit { target: Target::EVERYONE, size: SIZE })
    }

    fn poll_event(&mut self) -> Option<Arrived> {
        match self {
            Self::Sink { event, .. } => event.take(),
            Self::Source { .. } => None,
        }
    }

    fn poll_timeout(&self) -> Nanos {
        match self {
            Self::Source { at, .. } => *at,
            Self::Sink { .. } => Nanos::NEVER,
        }
    }
}

impl Participant for Node {
    fn restart(&mut self, _: Nanos, _: &mut Rng) {}

    /// So many numbers are sent and lost, as fast as a wire can carry them.
    fn act(&mut self, number: u64, now: Nanos) {
        let Self::Source { next, at, tells_gaps, tells_first, .. } = self else { return };
        let number = number.min(GAP_MAX);
        *next += number;
        *at = now.max(*at).plus(length_of(number));
        *tells_first |= *tells_gaps;
    }

    fn describe(message: &[u8]) -> String {
        let kind = ["frame", "progress"][usize::from(message[0] % 2)];
        let number = message[1..].try_into().map_or(0, u64::from_le_bytes);
        format!("{kind} {number}")
    }
}

/// State of the checker.
struct Scene {
    world: World<Node>,
    start: u64,
    delivered: BTreeSet<u64>,
    newest: Option<u64>,
    lost: u64,
    /// Number that the sender said it has reached.
    told: u64,
    until: Nanos,
}

impl Scene {
    fn new(plan: &Plan, record: Record) -> Self {
        let mut rng = Rng::at(&[plan.seed, 11]);
        let is_foul = is_foul(plan.seed);
        let network = Network { ordered: !is_foul, ..Network::LAN };
        let mut world = World::new(plan, network, SIZE, record);
        let start = [0, rng.below(1 << 40), (1 << 32) - 1 - rng.below(100)][rng.below(3) as usize];
        let place = |number| Address { node: NodeId::named(number), port: Port::from(1) };
        let source = Node::Source {
            next: start,
            frames_due: 0,
            at: Nanos::from_millis(1),
            every: Nanos(20_000 + rng.below(300_000)),
            tells_progress: false,
            tells_gaps: !is_foul,
            tells_first: false,
            rng,
        };
        let stream = Stream::starting_at(start, moment(Nanos(0)));
        world.add(place("source"), Clock::skewed(Nanos(0)), true, source);
        world.add(place("sink"), Clock::skewed(Nanos(0)), true, Node::Sink { stream, event: None });
        let ends = plan.node_faults().map(|(at, _, fault)| match fault {
            NodeFault::Act(gap) => at.plus(length_of(gap)),
            _ => at,
        });
        let until = ends.max().unwrap_or_default().plus(RUN);
        Self { world, start, delivered: BTreeSet::new(), newest: None, lost: 0, told: 0, until }
    }

    fn run(&mut self) -> Result<(), Violation> {
        while let Some((_, arrived)) = self.world.poll(self.until) {
            self.observe(arrived)?;
        }
        self.look("the sum at the end")
    }

    fn observe(&mut self, arrived: Arrived) -> Result<(), Violation> {
        let (number, accepted) = match arrived {
            Arrived::Frame(number, accepted) => (number, accepted),
            Arrived::Progress(number, lost) => {
                (self.told, self.lost) = (self.told.max(number), self.lost + lost);
                return self.look("the sum");
            }
        };
        self.lost += accepted.lost;
        let taken = accepted.is_deliverable();
        let is_first = !taken || self.delivered.insert(number);
        let (newest, record) = (self.newest, &mut self.world.record);
        ensure(record, "delivered once", is_first, || format!("{number} was delivered twice"))?;
        // One that is newer than all before it, not given up, and not farther than frames can tell, is news.
        let is_newest = newest.is_none_or(|newest| number > newest && number - newest < 1 << 31);
        let is_news = is_newest && number + u64::from(REORDER_WINDOW) >= self.told;
        self.newest = newest.max(Some(number));
        ensure(record, "news is taken", taken || !is_news, || {
            format!("{number} after {newest:?}: {accepted:?}")
        })?;
        self.look("the sum")
    }

    /// Every number that was sent is delivered, lost, or would be lost if nothing more came.
    fn look(&mut self, check: &'static str) -> Result<(), Violation> {
        let now = moment(self.world.reading(SINK));
        let (Node::Source { next, .. }, Node::Sink { stream, .. }) =
            (self.world.node(SOURCE), self.world.node(SINK))
        else {
            return Ok(());
        };
        let (delivered, lost, sent) = (self.delivered.len() as u64, self.lost, next - self.start);
        let open = stream.clone().handle_end(*next, now);
        ensure(&mut self.world.record, check, delivered + lost + open == sent, || {
            format!("{delivered} delivered, {lost} lost and {open} open are not the {sent} sent")
        })
    }
}

impl Model for Streams {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn about(&self) -> &'static str {
        "every number of a stream is delivered once or counted as lost, with any frame lost"
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut rng = Rng::at(&[seed, 12]);
        let mut plan = Plan::calm(seed);
        let always = (Nanos(0), Nanos::from_millis(3_600_000));
        let is_foul = is_foul(seed);
        if is_foul {
            plan.weather(always, Link::ANY, Weather::Lose(rng.below(400) as u32));
            plan.weather(always, Link::ANY, Weather::Double(rng.below(300) as u32, Nanos::from_millis(20)));
            plan.weather(always, Link::ANY, Weather::Delay(rng.below(300) as u32, Nanos::from_millis(20)));
        }
        let mut since = Nanos(0);
        for _ in 0..rng.below(4) {
            let sizes = [1 + rng.below(100), 1 << 31, 1 << 32, rng.below(1 << 36)];
            let size = sizes[rng.below(4) as usize];
            let gap = if is_foul { size % LAP } else { size };
            let at = since.plus(Nanos(rng.below(RUN.0)));
            plan.node(at, SOURCE, NodeFault::Act(gap));
            since = at.plus(length_of(gap));
        }
        plan
    }

    fn run(&self, plan: &Plan, record: Record) -> Report {
        let mut scene = Scene::new(plan, record);
        let outcome = scene.run();
        Report { record: scene.world.record, outcome }
    }
}
