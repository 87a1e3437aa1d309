//! Measurements of a survey: every route by every way of waiting, idle gaps, sizes, loads.

use std::time::Duration;

use clap::Args;
use punctual::Wake;
use punctual_machine::packet::PacketOptions;

use crate::endpoint::{EndpointPlan, Medium, Stack};
use crate::load::client::{Trial, Warmup};
use crate::load::testbed::Place;
use crate::run::Common;
use crate::sample::{CellId, Kind, Load};

/// A way for a message, and how its receiver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyRoute {
    /// A bare mechanism, polled or asleep; a communicator carries the others.
    is_floor: bool,
    /// Medium that carries it; `None`: two nodes of one process.
    pub medium: Option<Medium>,
    wake: Wake,
}

/// Ways of waiting, in the order of the tables.
const WAYS: [Wake; 6] = [Wake::Spin, Wake::Backoff, Wake::Adaptive, Wake::Futex, Wake::EventFd, Wake::Epoll];
const SHARED: Option<Medium> = Some(Medium::Shared);
const DATAGRAM: Option<Medium> = Some(Medium::Datagram);
const PACKET: Option<Medium> = Some(Medium::Packet);
/// One shared slot each way, polled.
const FLOOR_SLOT: SurveyRoute = SurveyRoute { is_floor: true, medium: SHARED, wake: Wake::Spin };
/// The same, asleep on a bare futex.
const FLOOR_FUTEX: SurveyRoute = SurveyRoute { wake: Wake::Futex, ..FLOOR_SLOT };
/// Bare UDP calls, polled.
const FLOOR_UDP_SPIN: SurveyRoute = SurveyRoute { medium: DATAGRAM, ..FLOOR_SLOT };
/// Bare UDP calls, blocking.
const FLOOR_UDP_BLOCK: SurveyRoute = SurveyRoute { wake: Wake::EventFd, ..FLOOR_UDP_SPIN };
/// Bare packet socket, polled.
const FLOOR_PACKET_SPIN: SurveyRoute = SurveyRoute { medium: PACKET, ..FLOOR_SLOT };
const FLOORS: [SurveyRoute; 5] =
    [FLOOR_SLOT, FLOOR_FUTEX, FLOOR_UDP_SPIN, FLOOR_UDP_BLOCK, FLOOR_PACKET_SPIN];

impl SurveyRoute {
    const fn node(medium: Option<Medium>, wake: Wake) -> Self {
        Self { is_floor: false, medium, wake }
    }

    /// Names of the engine and of the way of waiting.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            _ if !self.is_floor => (self.medium.map_or("loopback", Medium::name), self.wake.name()),
            FLOOR_FUTEX => ("floor", "futex"),
            FLOOR_UDP_SPIN => ("floor", "udp-spin"),
            FLOOR_UDP_BLOCK => ("floor", "udp-block"),
            FLOOR_PACKET_SPIN => ("floor", "packet-spin"),
            _ => ("floor", "slot"),
        }
    }

    /// Where both ends are.
    pub fn place(self) -> Place {
        match self.medium {
            None => Place::Process,
            Some(Medium::Packet) => Place::Segment,
            Some(_) => Place::Host,
        }
    }

    /// True if either end polls without pause, and so needs a CPU of its own.
    pub fn spins(self) -> bool {
        self.wake == Wake::Spin
    }

    /// True for a bare mechanism; a communicator carries the others.
    pub fn is_floor(self) -> bool {
        self.is_floor
    }

    /// Every route of this kind of place.
    fn all() -> Vec<Self> {
        let by_kernel = WAYS.into_iter().filter(|way| way.can_wait_for(false));
        let mut routes = FLOORS.to_vec();
        routes.extend([None, SHARED].into_iter().flat_map(|medium| WAYS.map(|way| Self::node(medium, way))));
        routes.extend(by_kernel.clone().map(|way| Self::node(DATAGRAM, way)));
        routes.extend(by_kernel.map(|way| Self::node(PACKET, way)));
        routes
    }
}

/// One thing to be measured, trial by trial.
#[derive(Clone, Copy, Debug)]
pub struct SurveyCell {
    /// The way.
    pub route: SurveyRoute,
    /// When messages leave.
    pub load: Load,
    /// Idle gap, or period.
    pub gap_us: u64,
    /// Payload, bytes.
    pub size: usize,
    /// Its special feature.
    pub manner: Manner,
}

/// Special feature of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Nothing: stamps are on, nodes stay open from trial to trial.
    Usual,
    /// Somebody else computes on each processor.
    Busy,
    /// To be compared with the floor: no stamps, and nodes that are opened anew for each trial, as the floor is.
    Plain,
}

impl Manner {
    /// Suffix of the name of the way of waiting.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Busy => "+busy",
            Self::Plain => "+plain",
        }
    }
}

/// Idle gap beside busy neighbours, µs. Without a gap a polled route sends thousands of messages while it has the processor
/// and one while it has not: few would show what the neighbour costs.
pub(super) const BUSY_GAP_US: u64 = 100;

/// The library beside its floors: route, floor, idle gap.
pub(super) const BESIDE_FLOORS: [(SurveyRoute, SurveyRoute, u64); 5] = [
    (SurveyRoute::node(SHARED, Wake::Spin), FLOOR_SLOT, 0),
    (SurveyRoute::node(SHARED, Wake::Futex), FLOOR_FUTEX, 1000),
    (SurveyRoute::node(DATAGRAM, Wake::Spin), FLOOR_UDP_SPIN, 0),
    (SurveyRoute::node(DATAGRAM, Wake::EventFd), FLOOR_UDP_BLOCK, 1000),
    (SurveyRoute::node(PACKET, Wake::Spin), FLOOR_PACKET_SPIN, 0),
];

impl SurveyCell {
    /// A closed-loop cell of 64 bytes.
    pub fn closed(route: SurveyRoute, gap_us: u64, manner: Manner) -> Self {
        Self { route, load: Load::Closed, gap_us, size: 64, manner }
    }

    /// Its key in the store.
    pub fn id(&self, kind: Kind) -> CellId {
        let (engine, wake) = self.route.names();
        let wake = format!("{wake}{}", self.manner.suffix());
        let neighbour = self.manner == Manner::Busy;
        let &Self { load, gap_us, size, .. } = self;
        CellId { kind, load, gap_us, size, neighbour, ..CellId::new(engine, &wake) }
    }

    /// The endpoint that both ends open for a trial.
    pub fn endpoint(&self) -> EndpointPlan {
        let SurveyRoute { is_floor, medium, wake } = self.route;
        let stack = if is_floor { Stack::Bare } else { Stack::Communicator };
        let kept = self.manner != Manner::Plain && !is_floor;
        let due_counts = self.load == Load::Open;
        EndpointPlan { stamped: kept, kept, due_counts, ..EndpointPlan::new(medium, stack, wake, self.size) }
    }

    /// One of its trials that takes about `unit` times the cell's weight.
    pub fn trial(&self, unit: Duration, count_max: usize) -> Trial {
        Trial {
            load: self.load,
            gap: Duration::from_micros(self.gap_us),
            size: self.size,
            duration: unit * self.weight(),
            count_max,
            warmup: self.warmup(),
            ..Trial::CLOSED
        }
    }

    /// Warm-up before each trial: both ends are bound anew for it.
    fn warmup(&self) -> Warmup {
        // Every page of the bare packet socket's ring is new in every trial: one lap.
        let lap = PacketOptions::default().frames;
        let burst = if self.route == FLOOR_PACKET_SPIN { lap } else { BURST };
        // Beside a neighbour a message may take a time slice, and nothing has to settle without a gap.
        let paced = if self.manner == Manner::Busy { PACED_BUSY } else { PACED };
        Warmup { burst, paced }
    }

    /// Number of units of time that a trial takes: rarer messages need longer for as many.
    fn weight(&self) -> u32 {
        match self.gap_us {
            // Beside a neighbour a message may take milliseconds.
            _ if self.manner == Manner::Busy => 6,
            0..=99 => 1,
            100..=999 => 2,
            _ => 5,
        }
    }
}

/// A survey to be made.
#[derive(Clone, Debug)]
pub struct SurveyPlan {
    /// The cells that are measured.
    pub cells: Vec<SurveyCell>,
    /// Trials of each cell, taken in turns: A B C … A B C ….
    pub trials: u32,
    /// Time that all trials together may take.
    pub duration: Duration,
    /// Most messages of one trial.
    pub count_max: usize,
    /// The options that were asked for.
    pub asked: SurveyOptions,
}

/// Options that a user may change.
#[derive(Clone, Debug, Default, Args)]
pub struct SurveyOptions {
    /// Options that all measuring commands have in common
    #[command(flatten)]
    pub common: Common,
    /// Messages of 64 B only, in about 15 s
    #[arg(long)]
    pub quick: bool,
    /// Only routes whose name contains this, such as shared/ or /spin
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Record which thread each processor ran, for punctual explain (root)
    #[arg(long)]
    pub trace: bool,
}

impl SurveyOptions {
    /// The only load that is wanted, if not both are.
    pub fn load(&self) -> Option<Load> {
        self.common.load.map(Into::into)
    }

    fn wants(&self, cell: &SurveyCell) -> bool {
        let (engine, wake) = cell.route.names();
        self.common.wants_gap(cell.gap_us)
            && self.load().is_none_or(|load| load == cell.load)
            && self.only.as_ref().is_none_or(|only| format!("{engine}/{wake}").contains(only.as_str()))
    }
}

/// Messages of a trial's warm-up: first without a gap, until pages, caches and predictors know the way; then in the manner
/// of the cell, so that a way of waiting that adapts itself has decided (it remembers 16 waits).
const BURST: usize = 20;
const PACED: usize = 12;
const PACED_BUSY: usize = 2;

/// Messages of a cell's warm-up, where its trials do not say otherwise.
pub const WARMUP: u64 = (BURST + PACED) as u64;

/// Trials of each cell: five pairs are the fewest that a comparison takes.
const TRIALS: u32 = 5;

/// Most messages of a trial, so that a fast route does not fill the disk: 10,000 × 5 support p99.9.
const COUNT_MAX: usize = 10_000;

/// Cost of one trial besides measuring: two communicators, a burst, a file made durable.
const OVERHEAD: Duration = Duration::from_millis(13);

/// Time that the other ends of all places may take to start, beside others.
const STARTING: Duration = Duration::from_secs(10);

impl SurveyPlan {
    /// The survey of this machine.
    pub fn survey(wishes: &SurveyOptions) -> Self {
        let sizes: &[usize] = if wishes.quick { &[64] } else { &[64, 1024] };
        let mut cells = Vec::new();
        for route in SurveyRoute::all() {
            for &size in sizes {
                for gap_us in [0, 100, 1000] {
                    cells.push(SurveyCell { size, ..SurveyCell::closed(route, gap_us, Manner::Usual) });
                    let beside =
                        BESIDE_FLOORS.iter().find(|(_, floor, gap)| (*floor, *gap) == (route, gap_us));
                    // Next to its floor: the less time lies between two, the less the machine has changed.
                    if let Some((ours, ..)) = beside.filter(|_| size == 64) {
                        cells.push(SurveyCell::closed(*ours, gap_us, Manner::Plain));
                    }
                }
            }
        }
        let asleep = [FLOOR_FUTEX].into_iter();
        let beside_neighbours = asleep.chain(WAYS.map(|way| SurveyRoute::node(SHARED, way)));
        cells.extend(beside_neighbours.map(|route| SurveyCell::closed(route, BUSY_GAP_US, Manner::Busy)));
        for route in SurveyRoute::all().into_iter().filter(|route| !route.is_floor() && opens(*route)) {
            let periods: &[u64] = if wishes.quick { &[100] } else { &[100, 1000] };
            cells.extend(periods.iter().map(|&gap_us| SurveyCell {
                load: Load::Open,
                ..SurveyCell::closed(route, gap_us, Manner::Usual)
            }));
        }
        cells.retain(|cell| wishes.wants(cell));
        let seconds = if wishes.quick { 14 } else { 58 };
        let duration = wishes.common.duration.unwrap_or(Duration::from_secs(seconds));
        let count_max = wishes.common.count_max().unwrap_or(COUNT_MAX);
        Self { cells, trials: TRIALS, duration, count_max, asked: wishes.clone() }
    }

    /// The unit of a trial's time, so that all trials together take the plan's.
    pub fn unit(&self) -> Duration {
        (self.duration.saturating_sub(self.overhead()) / self.units()).max(Duration::from_millis(1))
    }

    /// Time that all trials may take where a machine is busy: no further one is begun then, but for the first of each cell.
    pub fn limit(&self) -> Duration {
        2 * (self.unit() * self.units() + self.overhead()) + STARTING
    }

    fn units(&self) -> u32 {
        self.cells.iter().map(SurveyCell::weight).sum::<u32>().max(1) * self.trials
    }

    fn overhead(&self) -> Duration {
        let paced = |cell: &SurveyCell| Duration::from_micros(cell.gap_us) * PACED as u32;
        let warmup: Duration = self.cells.iter().map(paced).sum();
        (OVERHEAD * self.cells.len() as u32 + warmup) * self.trials
    }
}

/// Routes that are also measured under open load: polled, the default, and asleep.
fn opens(route: SurveyRoute) -> bool {
    let in_memory = matches!(route.medium, None | SHARED);
    !in_memory || matches!(route.wake, Wake::Spin | Wake::Backoff | Wake::Adaptive | Wake::Futex)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::run::Experiment;
    use crate::verify::again::tests::again;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: SurveyOptions,
    }

    fn plan_of(options: &str) -> SurveyPlan {
        let words = std::iter::once("survey").chain(options.split_whitespace());
        SurveyPlan::survey(&Line::parse_from(words).options)
    }

    /// Goal: verify measures the same as the survey, regardless of the survey's options.
    #[test]
    fn a_survey_is_made_again_with_all_its_options() {
        let measured = |plan: &SurveyPlan| {
            format!("{:?} {} {} {}", plan.cells, plan.trials, plan.count_max, plan.asked.common.seed)
        };
        for words in ["", "--quick", "--only /futex", "--load open", "--gap 100us", "--count 123", "--seed 7"]
        {
            let before = plan_of(words);
            let remade = again("survey", before.plan().described, before.asked.common.seed);
            let command = remade.expect("it can be made again").command();
            let after = plan_of(command.strip_prefix("punctual survey ").expect("the experiment"));
            assert_eq!(measured(&after), measured(&before), "{words}: {command}");
        }
    }

    /// Goal: a survey may take longer than planned, and not any time: twice as long, and what starts take.
    #[test]
    fn its_time_has_a_limit() {
        for quick in [false, true] {
            let plan = SurveyPlan::survey(&SurveyOptions { quick, ..SurveyOptions::default() });
            let least = 2 * plan.duration;
            assert!((least..=least + 2 * STARTING).contains(&plan.limit()), "{:?}", plan.limit());
        }
        let only = Some("nothing".to_owned());
        let empty = SurveyPlan::survey(&SurveyOptions { only, ..SurveyOptions::default() });
        assert!(empty.limit() > STARTING);
    }

    #[test]
    fn cells_have_names_of_their_own() {
        for quick in [false, true] {
            let plan = SurveyPlan::survey(&SurveyOptions { quick, ..SurveyOptions::default() });
            let ids: std::collections::HashSet<_> =
                plan.cells.iter().map(|cell| cell.id(Kind::RoundTrip)).collect();
            assert_eq!(ids.len(), plan.cells.len());
            for engine in ["floor", "loopback", "shared", "datagram", "packet"] {
                assert!(ids.iter().any(|id| id.engine == engine), "{engine}");
            }
        }
    }

    /// Goal: every row that advice needs is measured: each way of waiting, adaptive too, also beside busy neighbours; the
    /// library next to each floor, in every trial.
    #[test]
    fn advice_has_its_rows() {
        let plan = SurveyPlan::survey(&SurveyOptions { quick: true, ..SurveyOptions::default() });
        let names: Vec<String> = plan.cells.iter().map(|cell| cell.id(Kind::RoundTrip).name).collect();
        for way in WAYS {
            for name in [format!("shared/{}", way.name()), format!("shared/{}+busy", way.name())] {
                assert!(names.contains(&name), "{name}: {names:?}");
            }
        }
        assert!(
            plan.cells.iter().all(|cell| cell.id(Kind::RoundTrip).neighbour == (cell.manner == Manner::Busy))
        );
        for (ours, floor, gap_us) in BESIDE_FLOORS {
            let place = |wanted: SurveyCell| {
                let id = wanted.id(Kind::RoundTrip);
                plan.cells.iter().position(|cell| cell.id(Kind::RoundTrip) == id).expect("in the plan")
            };
            let floor = place(SurveyCell::closed(floor, gap_us, Manner::Usual));
            assert_eq!(place(SurveyCell::closed(ours, gap_us, Manner::Plain)), floor + 1);
        }
    }

    #[test]
    fn wishes_narrow_the_plan() {
        let common = Common { gap: Some(Duration::ZERO), ..Common::default() };
        let wishes = SurveyOptions { only: Some("shared/".to_owned()), common, ..SurveyOptions::default() };
        let plan = SurveyPlan::survey(&wishes);
        assert!(plan.cells.iter().all(|cell| cell.route.names().0 == "shared" && cell.gap_us == 0));
        // Six ways, two sizes, and the one that has a floor.
        assert_eq!(plan.cells.len(), 6 * 2 + 1);
    }
}
