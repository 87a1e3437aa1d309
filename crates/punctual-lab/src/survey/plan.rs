//! What a survey measures: every route by every way of waiting, idle gaps, sizes, loads.

use std::time::Duration;

use punctual::Wake;
use serde::{Deserialize, Serialize};

use crate::load::client::Trial;
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
    /// [`Wake::Futex`].
    Futex,
    /// [`Wake::EventFd`].
    EventFd,
    /// [`Wake::Epoll`].
    Epoll,
}

impl Way {
    /// All ways, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::Spin, Self::Backoff, Self::Futex, Self::EventFd, Self::Epoll];

    /// The library's value.
    pub fn wake(self) -> Wake {
        match self {
            Self::Spin => Wake::Spin,
            Self::Backoff => Wake::Backoff,
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
}

impl Cell {
    /// Its key in the store.
    pub fn id(&self, kind: Kind) -> CellId {
        let (engine, wake) = self.route.names();
        CellId { kind, load: self.load, gap_us: self.gap_us, size: self.size, ..CellId::new(engine, wake) }
    }

    /// One of its trials that takes about `unit` times the cell's weight.
    pub fn trial(&self, unit: Duration, count_max: usize) -> Trial {
        Trial {
            load: self.load,
            gap: Duration::from_micros(self.gap_us),
            size: self.size,
            duration: unit * self.weight(),
            count_max,
        }
    }

    /// How many units of time a trial takes: rarer messages need longer for as many.
    fn weight(&self) -> u32 {
        match self.gap_us {
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
pub struct Wishes {
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

/// Trials of each cell: five pairs are the fewest that a comparison takes.
const TRIALS: u32 = 5;

/// Most messages of a trial, so that a fast route does not fill the disk: 10,000 × 5 support p99.9.
const COUNT_MAX: usize = 10_000;

/// What one trial costs besides measuring: two communicators, a file made durable.
const OVERHEAD: Duration = Duration::from_millis(12);

impl Plan {
    /// The survey of this machine.
    pub fn survey(wishes: &Wishes) -> Self {
        let sizes: &[usize] = if wishes.quick { &[64] } else { &[64, 1024] };
        let mut cells = Vec::new();
        for route in Route::all() {
            for &size in sizes {
                for gap_us in [0, 100, 1000] {
                    cells.push(Cell { route, load: Load::Closed, gap_us, size });
                }
            }
        }
        for route in Route::all().into_iter().filter(|route| !route.is_floor() && opens(*route)) {
            let periods: &[u64] = if wishes.quick { &[100] } else { &[100, 1000] };
            cells.extend(periods.iter().map(|&gap_us| Cell { route, load: Load::Open, gap_us, size: 64 }));
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
        let overhead = OVERHEAD * self.cells.len() as u32 * self.trials;
        (self.duration.saturating_sub(overhead) / units).max(Duration::from_millis(1))
    }
}

/// Routes that are also measured under open load: polled, the default, and asleep.
fn opens(route: Route) -> bool {
    match route {
        Route::Loopback(way) | Route::Shared(way) => matches!(way, Way::Spin | Way::Backoff | Way::Futex),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        for quick in [false, true] {
            let plan = Plan::survey(&Wishes { quick, ..Wishes::default() });
            let ids: std::collections::HashSet<_> =
                plan.cells.iter().map(|cell| cell.id(Kind::RoundTrip)).collect();
            assert_eq!(ids.len(), plan.cells.len());
            for engine in ["floor", "loopback", "shared", "datagram", "packet"] {
                assert!(ids.iter().any(|id| id.engine == engine), "{engine}");
            }
        }
    }

    #[test]
    fn wishes_narrow_the_plan() {
        let wishes = Wishes { only: Some("shared/".to_owned()), gap_us: Some(0), ..Wishes::default() };
        let plan = Plan::survey(&wishes);
        assert!(plan.cells.iter().all(|cell| cell.route.names().0 == "shared" && cell.gap_us == 0));
        assert_eq!(plan.cells.len(), 10);
    }
}
