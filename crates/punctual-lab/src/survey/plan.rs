//! What a survey measures: every route by every way of waiting, idle gaps, sizes, loads.

use std::time::Duration;

use punctual::Wake;
use punctual_machine::packet::PacketOptions;
use serde::{Deserialize, Serialize};

use crate::load::client::{Trial, Warmup};
use crate::sample::{CellId, Kind, Load};

/// A way for a message, and how its receiver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// One shared slot each way, polled.
    FloorSlot,
    /// The same, asleep on a bare futex.
    FloorFutex,
    /// Bare UDP calls, polled.
    FloorUdpSpin,
    /// Bare UDP calls, blocking.
    FloorUdpBlock,
    /// Bare packet socket, polled.
    FloorPacketSpin,
    /// Two nodes of one process.
    Loopback(Way),
    /// Shared memory between processes.
    Shared(Way),
    /// UDP on the loopback interface.
    Datagram(Way),
    /// Raw Ethernet on a veth pair.
    Packet(Way),
}

/// [`Wake`], as it travels to the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// [`Wake::Spin`].
    Spin,
    /// [`Wake::Backoff`].
    Backoff,
    /// [`Wake::Adaptive`].
    Adaptive,
    /// [`Wake::Futex`].
    Futex,
    /// [`Wake::EventFd`].
    EventFd,
    /// [`Wake::Epoll`].
    Epoll,
}

impl Way {
    /// All ways, in the order of the tables.
    pub const ALL: [Self; 6] =
        [Self::Spin, Self::Backoff, Self::Adaptive, Self::Futex, Self::EventFd, Self::Epoll];

    /// The library's value.
    pub fn wake(self) -> Wake {
        match self {
            Self::Spin => Wake::Spin,
            Self::Backoff => Wake::Backoff,
            Self::Adaptive => Wake::Adaptive,
            Self::Futex => Wake::Futex,
            Self::EventFd => Wake::EventFd,
            Self::Epoll => Wake::Epoll,
        }
    }
}

/// Where both ends of a route are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In one process.
    Process,
    /// In two processes of this host.
    Host,
    /// In two network namespaces joined by a veth pair.
    Segment,
}

impl Route {
    /// Names of the engine and of the way of waiting.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::FloorSlot => ("floor", "slot"),
            Self::FloorFutex => ("floor", "futex"),
            Self::FloorUdpSpin => ("floor", "udp-spin"),
            Self::FloorUdpBlock => ("floor", "udp-block"),
            Self::FloorPacketSpin => ("floor", "packet-spin"),
            Self::Loopback(way) => ("loopback", way.wake().name()),
            Self::Shared(way) => ("shared", way.wake().name()),
            Self::Datagram(way) => ("datagram", way.wake().name()),
            Self::Packet(way) => ("packet", way.wake().name()),
        }
    }

    /// Where both ends are.
    pub fn place(self) -> Place {
        match self {
            Self::Loopback(_) => Place::Process,
            Self::FloorPacketSpin | Self::Packet(_) => Place::Segment,
            _ => Place::Host,
        }
    }

    /// Whether either end polls without pause, and so needs a CPU of its own.
    pub fn spins(self) -> bool {
        match self {
            Self::FloorSlot | Self::FloorUdpSpin | Self::FloorPacketSpin => true,
            Self::FloorFutex | Self::FloorUdpBlock => false,
            Self::Loopback(way) | Self::Shared(way) | Self::Datagram(way) | Self::Packet(way) => {
                way == Way::Spin
            }
        }
    }

    /// Whether a communicator carries it; the others are bare mechanisms.
    pub fn is_floor(self) -> bool {
        self.names().0 == "floor"
    }

    /// Every route of this kind of place.
    fn all() -> Vec<Self> {
        let mut routes = vec![
            Self::FloorSlot,
            Self::FloorFutex,
            Self::FloorUdpSpin,
            Self::FloorUdpBlock,
            Self::FloorPacketSpin,
        ];
        let by_kernel = Way::ALL.into_iter().filter(|way| way.wake().can_wait_for(false));
        routes.extend(Way::ALL.map(Self::Loopback));
        routes.extend(Way::ALL.map(Self::Shared));
        routes.extend(by_kernel.clone().map(Self::Datagram));
        routes.extend(by_kernel.map(Self::Packet));
        routes
    }
}

/// One thing to be measured, trial by trial.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The way.
    pub route: Route,
    /// When messages leave.
    pub load: Load,
    /// Idle gap, or period.
    pub gap_us: u64,
    /// Payload, bytes.
    pub size: usize,
    /// What is special about it.
    pub manner: Manner,
}

/// What is special about a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    /// Nothing: stamps are on, nodes stay open from trial to trial.
    Usual,
    /// Somebody else computes on each processor.
    Busy,
    /// To be compared with the floor: no stamps, and nodes that are opened anew for each trial, as the floor is.
    Plain,
}

impl Manner {
    /// What the way of waiting is called then.
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
pub(super) const BESIDE_FLOORS: [(Route, Route, u64); 5] = [
    (Route::Shared(Way::Spin), Route::FloorSlot, 0),
    (Route::Shared(Way::Futex), Route::FloorFutex, 1000),
    (Route::Datagram(Way::Spin), Route::FloorUdpSpin, 0),
    (Route::Datagram(Way::EventFd), Route::FloorUdpBlock, 1000),
    (Route::Packet(Way::Spin), Route::FloorPacketSpin, 0),
];

impl Cell {
    /// A closed-loop cell of 64 bytes.
    pub fn closed(route: Route, gap_us: u64, manner: Manner) -> Self {
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

    /// One of its trials that takes about `unit` times the cell's weight.
    pub fn trial(&self, unit: Duration, count_max: usize) -> Trial {
        Trial {
            load: self.load,
            gap: Duration::from_micros(self.gap_us),
            size: self.size,
            duration: unit * self.weight(),
            count_max,
            warmup: self.warmup(),
            neighbours: [None; 2],
        }
    }

    /// What goes before each trial: both ends are bound anew for it.
    fn warmup(&self) -> Warmup {
        // Every page of the bare packet socket's ring is new in every trial: one lap.
        let lap = PacketOptions::default().frames;
        let burst = if self.route == Route::FloorPacketSpin { lap } else { BURST };
        // Beside a neighbour a message may take a time slice, and nothing has to settle without a gap.
        let paced = if self.manner == Manner::Busy { PACED_BUSY } else { PACED };
        Warmup { burst, paced }
    }

    /// How many units of time a trial takes: rarer messages need longer for as many.
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
pub struct Plan {
    /// What is measured.
    pub cells: Vec<Cell>,
    /// Trials of each cell, taken in turns: A B C … A B C ….
    pub trials: u32,
    /// Time that all trials together may take.
    pub duration: Duration,
    /// Most messages of one trial.
    pub count_max: usize,
}

/// What a user may change.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// A quarter of the cells in a quarter of the time.
    pub quick: bool,
    /// Time for all trials together.
    pub duration: Option<Duration>,
    /// Most messages of one trial.
    pub count: Option<usize>,
    /// Only this idle gap.
    pub gap_us: Option<u64>,
    /// Only this load.
    pub load: Option<Load>,
    /// Only routes whose name contains this.
    pub only: Option<String>,
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

/// What one trial costs besides measuring: two communicators, a burst, a file made durable.
const OVERHEAD: Duration = Duration::from_millis(13);

impl Plan {
    /// The survey of this machine.
    pub fn survey(wishes: &PlanOptions) -> Self {
        let sizes: &[usize] = if wishes.quick { &[64] } else { &[64, 1024] };
        let mut cells = Vec::new();
        for route in Route::all() {
            for &size in sizes {
                for gap_us in [0, 100, 1000] {
                    cells.push(Cell { size, ..Cell::closed(route, gap_us, Manner::Usual) });
                    let beside =
                        BESIDE_FLOORS.iter().find(|(_, floor, gap)| (*floor, *gap) == (route, gap_us));
                    // Next to its floor: the less time lies between two, the less the machine has changed.
                    if let Some((ours, ..)) = beside.filter(|_| size == 64) {
                        cells.push(Cell::closed(*ours, gap_us, Manner::Plain));
                    }
                }
            }
        }
        let asleep = [Route::FloorFutex].into_iter();
        let beside_neighbours = asleep.chain(Way::ALL.map(Route::Shared));
        cells.extend(beside_neighbours.map(|route| Cell::closed(route, BUSY_GAP_US, Manner::Busy)));
        for route in Route::all().into_iter().filter(|route| !route.is_floor() && opens(*route)) {
            let periods: &[u64] = if wishes.quick { &[100] } else { &[100, 1000] };
            cells.extend(
                periods
                    .iter()
                    .map(|&gap_us| Cell { load: Load::Open, ..Cell::closed(route, gap_us, Manner::Usual) }),
            );
        }
        cells.retain(|cell| {
            let (engine, wake) = cell.route.names();
            wishes.gap_us.is_none_or(|gap_us| gap_us == cell.gap_us)
                && wishes.load.is_none_or(|load| load == cell.load)
                && wishes.only.as_ref().is_none_or(|only| format!("{engine}/{wake}").contains(only.as_str()))
        });
        let seconds = if wishes.quick { 14 } else { 58 };
        let duration = wishes.duration.unwrap_or(Duration::from_secs(seconds));
        Self { cells, trials: TRIALS, duration, count_max: wishes.count.unwrap_or(COUNT_MAX) }
    }

    /// The unit of a trial's time, so that all trials together take the plan's.
    pub fn unit(&self) -> Duration {
        let units: u32 = self.cells.iter().map(Cell::weight).sum::<u32>().max(1) * self.trials;
        let paced = |cell: &Cell| Duration::from_micros(cell.gap_us) * PACED as u32;
        let warmup: Duration = self.cells.iter().map(paced).sum();
        let overhead = (OVERHEAD * self.cells.len() as u32 + warmup) * self.trials;
        (self.duration.saturating_sub(overhead) / units).max(Duration::from_millis(1))
    }
}

/// Routes that are also measured under open load: polled, the default, and asleep.
fn opens(route: Route) -> bool {
    match route {
        Route::Loopback(way) | Route::Shared(way) => {
            matches!(way, Way::Spin | Way::Backoff | Way::Adaptive | Way::Futex)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        for quick in [false, true] {
            let plan = Plan::survey(&PlanOptions { quick, ..PlanOptions::default() });
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
        let plan = Plan::survey(&PlanOptions { quick: true, ..PlanOptions::default() });
        let names: Vec<String> = plan.cells.iter().map(|cell| cell.id(Kind::RoundTrip).name).collect();
        for way in Way::ALL {
            for name in
                [format!("shared/{}", way.wake().name()), format!("shared/{}+busy", way.wake().name())]
            {
                assert!(names.contains(&name), "{name}: {names:?}");
            }
        }
        assert!(
            plan.cells.iter().all(|cell| cell.id(Kind::RoundTrip).neighbour == (cell.manner == Manner::Busy))
        );
        for (ours, floor, gap_us) in BESIDE_FLOORS {
            let place = |wanted: Cell| {
                let id = wanted.id(Kind::RoundTrip);
                plan.cells.iter().position(|cell| cell.id(Kind::RoundTrip) == id).expect("in the plan")
            };
            let floor = place(Cell::closed(floor, gap_us, Manner::Usual));
            assert_eq!(place(Cell::closed(ours, gap_us, Manner::Plain)), floor + 1);
        }
    }

    #[test]
    fn wishes_narrow_the_plan() {
        let wishes =
            PlanOptions { only: Some("shared/".to_owned()), gap_us: Some(0), ..PlanOptions::default() };
        let plan = Plan::survey(&wishes);
        assert!(plan.cells.iter().all(|cell| cell.route.names().0 == "shared" && cell.gap_us == 0));
        // Six ways, two sizes, and the one that has a floor.
        assert_eq!(plan.cells.len(), 6 * 2 + 1);
    }
}
