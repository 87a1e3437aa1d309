//! Plan of the measurements: routes, conditions, gaps, durations.

use std::time::Duration;

use clap::Args;
use punctual_lab_machine::wake::{Floor, Mechanism};

use crate::load::wake::{Conditions, Route, WakeTrial};
use crate::run::Common;
use crate::sample::{CellId, Kind, Load};
use crate::summary::CellResult;

/// The five figures of one trial, each under its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// Writer before its notification → reader awake, regardless of what the reader was doing.
    Any,
    /// The same, for messages that found the reader asleep.
    Blocked,
    /// Reader before its wait → reader awake: the writer's idle time is in it, so it is no wake-up latency.
    Bracket,
    /// Writer before its notification → it knows that the reader knows.
    Loop,
    /// Writer before its notification → after it.
    Notify,
}

impl Measurement {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Any, Self::Blocked, Self::Bracket, Self::Loop, Self::Notify];

    /// Those that are kept of a trial: under other than the plain conditions only how late the reader woke.
    pub fn of(conditions: Conditions) -> &'static [Self] {
        if conditions.is_plain() { &Self::ALL } else { &[Self::Any, Self::Blocked] }
    }

    /// As in the names of results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "w2r_any",
            Self::Blocked => "w2r_blocked",
            Self::Bracket => "reader_bracket",
            Self::Loop => "ipcbench_loop",
            Self::Notify => "notify",
        }
    }

    /// From one thread to another, or within one.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Any | Self::Blocked => Kind::OneWay,
            Self::Bracket | Self::Loop | Self::Notify => Kind::RoundTrip,
        }
    }
}

/// Bytes of a message: its number.
pub(super) const SIZE: usize = 8;

/// One thing to be measured, trial by trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeupCell {
    /// The way.
    pub route: Route,
    /// The conditions around it.
    pub conditions: Conditions,
    /// Idle time before each message.
    pub gap_us: u64,
}

impl WakeupCell {
    /// Under plain conditions.
    pub fn plain(route: Route, gap_us: u64) -> Self {
        Self { route, conditions: Conditions::THREADS, gap_us }
    }

    /// Its gap as people read it: "100 µs".
    pub fn gap_name(gap_us: u64) -> String {
        CellId { gap_us, ..CellId::new("", "") }.gap()
    }

    /// The route's name with the conditions.
    pub fn engine(&self) -> String {
        format!("{}{}", self.route.name(), self.conditions.suffix())
    }

    /// For people: the way, the conditions, and the gap between its messages.
    pub fn words(&self) -> String {
        format!("{}, gap {}", self.engine(), Self::gap_name(self.gap_us))
    }

    /// Its key in the store.
    pub fn id(&self, measurement: Measurement) -> CellId {
        let (kind, gap_us) = (measurement.kind(), self.gap_us);
        CellId {
            kind,
            load: Load::Closed,
            gap_us,
            size: SIZE,
            ..CellId::new(&self.engine(), measurement.name())
        }
    }

    /// Its result, if it was measured.
    pub fn result(self, results: &[CellResult], measurement: Measurement) -> Option<&CellResult> {
        let id = self.id(measurement);
        results.iter().find(|result| result.cell == id)
    }

    /// Units of time that a trial takes: rarer messages need longer for the same number.
    fn weight(&self) -> u32 {
        match self.gap_us {
            0..=9 => 1,
            10..=99 => 2,
            100..=999 => 4,
            1_000..=9_999 => 7,
            _ => 24,
        }
    }
}

/// Options that a user may change.
#[derive(Clone, Debug, Default, Args)]
pub struct WakeupOptions {
    /// Options common to all commands that measure
    #[command(flatten)]
    pub common: Common,
    /// A core each and an idle machine only, in about 25 s
    #[arg(long)]
    pub quick: bool,
    /// Number of times that everything is measured, in turn [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Only ways whose name contains this, such as futex, uring, +fifo; several between commas
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Every gap and every way under all conditions: same core, SCHED_FIFO, every core busy
    #[arg(long)]
    pub all_conditions: bool,
}

impl WakeupOptions {
    fn wants(&self, cell: &WakeupCell) -> bool {
        let is_named = |only: &String| only.split(',').any(|part| cell.engine().contains(part));
        self.common.wants_gap(cell.gap_us) && self.only.as_ref().is_none_or(is_named)
    }
}

/// A run to be made.
#[derive(Clone, Debug)]
pub struct WakeupPlan {
    /// Cells to measure.
    pub cells: Vec<WakeupCell>,
    /// Trials of each cell, in turns.
    pub trials: u32,
    /// Time that all trials together may take.
    pub duration: Duration,
    /// Most messages of one trial.
    pub count_max: usize,
}

/// Idle gaps, microseconds.
pub(super) const GAPS_US: [u64; 5] = [0, 10, 100, 1_000, 10_000];
/// Those that are measured under other than the plain conditions, unless all are asked for.
const GAPS_ELSEWHERE_US: [u64; 1] = [1_000];
/// Those that processes are measured at in a quick run: the work log's figures need them.
const GAPS_PROCESSES_US: [u64; 3] = [0, 100, 1_000];
/// The routes that stand for their kind there.
const ELSEWHERE: [Route; 12] = [
    Route::Line,
    Route::Bare(Floor::Futex),
    Route::Bare(Floor::EventFd),
    Route::Bare(Floor::Epoll),
    Route::Spin,
    Route::Adaptive,
    Route::Park(Mechanism::Futex),
    Route::Park(Mechanism::EventFd),
    Route::Park(Mechanism::Epoll),
    Route::Park(Mechanism::Datagram),
    Route::Park(Mechanism::SigWait),
    Route::Park(Mechanism::UringMessage),
];
/// Five pairs are the fewest that a comparison takes.
const TRIALS: u32 = 5;
/// 10,000 messages per trial support p99.9 of the fast ones.
const COUNT_MAX: usize = 10_000;
/// Time that a trial costs besides measuring: two threads, five files.
const OVERHEAD: Duration = Duration::from_millis(4);

/// One that polls would wait for the scheduler there, not for the other end.
fn can_share_a_core(route: Route, conditions: Conditions) -> bool {
    !(conditions.same_core && route.spins())
}

/// At which gaps these conditions are measured.
fn gaps(conditions: Conditions, wishes: &WakeupOptions) -> &'static [u64] {
    match conditions {
        _ if wishes.all_conditions => &GAPS_US,
        Conditions::THREADS => &GAPS_US,
        Conditions::PROCESSES if wishes.quick => &GAPS_PROCESSES_US,
        Conditions::PROCESSES => &GAPS_US,
        disturbed if disturbed.processes || wishes.quick => &[],
        _ => &GAPS_ELSEWHERE_US,
    }
}

/// Returns true if this way is measured under these conditions.
fn is_measured(route: Route, conditions: Conditions, wishes: &WakeupOptions) -> bool {
    let chosen = conditions == Conditions::THREADS || wishes.all_conditions || ELSEWHERE.contains(&route);
    let reaches = !conditions.processes || route.reaches_processes();
    chosen && reaches && can_share_a_core(route, conditions)
}

impl WakeupPlan {
    /// The whole experiment, less what the user does not want.
    pub fn wakeup(wishes: &WakeupOptions) -> Self {
        let mut cells = Vec::new();
        for conditions in Conditions::all() {
            for &gap_us in gaps(conditions, wishes) {
                let routes = Route::all().into_iter().filter(|&route| is_measured(route, conditions, wishes));
                cells.extend(routes.map(|route| WakeupCell { route, conditions, gap_us }));
            }
        }
        cells.retain(|cell| wishes.wants(cell));
        let seconds = if wishes.quick { 18 } else { 75 };
        let duration = wishes.common.duration.unwrap_or(Duration::from_secs(seconds));
        let trials = wishes.rounds.unwrap_or(if wishes.quick { 3 } else { TRIALS });
        Self { cells, trials, duration, count_max: wishes.common.count_max().unwrap_or(COUNT_MAX) }
    }

    /// One trial of a cell.
    pub fn trial(&self, cell: &WakeupCell, cpus: &[usize]) -> WakeTrial {
        WakeTrial {
            route: cell.route,
            conditions: cell.conditions,
            gap: Duration::from_micros(cell.gap_us),
            duration: self.unit() * cell.weight(),
            count: self.count_max,
            cpus: cpus.to_vec(),
        }
    }

    /// Of these processors those that threads are bound to: both ends', and the busy ones' where there are any.
    pub fn bound_to(&self, cpus: &[usize]) -> Vec<usize> {
        let has = |is_so: fn(&Conditions) -> bool| self.cells.iter().any(|cell| is_so(&cell.conditions));
        if has(|conditions| conditions.loaded) {
            return cpus.to_vec();
        }
        let writer = cpus.first().filter(|_| has(|conditions| !conditions.same_core));
        let mut bound: Vec<usize> = writer.into_iter().chain(cpus.last()).copied().collect();
        bound.dedup();
        bound
    }

    /// The unit of a trial's time, so that all trials together take the plan's.
    fn unit(&self) -> Duration {
        let units = self.cells.iter().map(WakeupCell::weight).sum::<u32>().max(1) * self.trials;
        let overhead = OVERHEAD * self.cells.len() as u32 * self.trials;
        (self.duration.saturating_sub(overhead) / units).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        for all_conditions in [false, true] {
            let plan = WakeupPlan::wakeup(&WakeupOptions { all_conditions, ..WakeupOptions::default() });
            let ids: std::collections::HashSet<CellId> =
                plan.cells.iter().flat_map(|cell| Measurement::ALL.map(|m| cell.id(m))).collect();
            assert_eq!(ids.len(), plan.cells.len() * Measurement::ALL.len());
            assert!(ids.iter().any(|id| id.name == "futex/w2r_blocked"));
            assert!(ids.iter().any(|id| id.name == "epoll+same-core+fifo+loaded/w2r_any"));
            // A mechanism that works within one process is measured between threads only.
            assert!(ids.iter().any(|id| id.name == "floor-epoll+processes/ipcbench_loop"));
            assert!(!ids.iter().any(|id| id.name.contains("uring-msg+processes")));
        }
    }

    /// Goal: a run says which processors its threads had, not which they might have had, and in which classes they were.
    #[test]
    fn processors_and_classes_are_those_of_its_cells() {
        use crate::run::Experiment;
        let of = |conditions| WakeupPlan {
            cells: vec![WakeupCell { route: Route::Spin, conditions, gap_us: 0 }],
            ..WakeupPlan::wakeup(&WakeupOptions::default())
        };
        let (plain, none) = (Conditions::THREADS, Conditions::default());
        assert_eq!(of(plain).bound_to(&[2, 3, 5, 7]), [2, 7]);
        assert_eq!(of(plain).schedulers(), ["other"]);
        assert_eq!(of(plain).bound_to(&[2]), [2]);
        assert_eq!(of(Conditions { same_core: true, ..none }).bound_to(&[2, 3, 5, 7]), [7]);
        assert_eq!(of(Conditions { loaded: true, ..none }).bound_to(&[2, 3, 5, 7]), [2, 3, 5, 7]);
        assert_eq!(of(Conditions { fifo: true, ..none }).schedulers(), ["fifo"]);
        assert_eq!(WakeupPlan::wakeup(&WakeupOptions::default()).schedulers(), ["other", "fifo"]);
    }

    #[test]
    fn options_narrow_the_plan() {
        let only = |only: &str, gap_us: u64| {
            let common = Common { gap: Some(Duration::from_micros(gap_us)), ..Common::default() };
            WakeupOptions { only: Some(only.to_owned()), common, ..WakeupOptions::default() }
        };
        let wishes = only("uring", 100);
        let cells = WakeupPlan::wakeup(&wishes).cells;
        assert!(!cells.is_empty() && cells.iter().all(|c| c.gap_us == 100 && c.engine().contains("uring")));
        let several = only("spin,adaptive", 0);
        let names: Vec<String> = WakeupPlan::wakeup(&several).cells.iter().map(WakeupCell::engine).collect();
        assert_eq!(names, ["spin", "adaptive", "spin+processes", "adaptive+processes"]);
        let quick = WakeupPlan::wakeup(&WakeupOptions { quick: true, ..WakeupOptions::default() });
        assert!(quick.cells.iter().all(|cell| cell.conditions.is_plain()));
    }
}
