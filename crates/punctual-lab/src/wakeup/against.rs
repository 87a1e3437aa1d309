//! Costs and savings of the doorbell's protocol: a way with it beside the same without, in the same turns.

use punctual_lab_machine::wake::{Floor, Mechanism};
use serde::{Deserialize, Serialize};

use super::figures::cpu_ns;
use super::plan::{GAPS_US, Measurement, WakeupCell};
use crate::load::wake::{Conditions, Route};
use crate::stats::MedianRatio;
use crate::summary::CellResult;
use crate::units::micros;

/// The mechanism that the work log used.
const EPOLL: Route = Route::Bare(Floor::Epoll);

/// Ways with the doorbell, the same without it, and by which figure they are compared. A floor that calls for every message has
/// no messages that find its reader awake, so the eventfds are compared over all. A reader that spins first is what a doorbell
/// makes possible: while it is awake nobody calls the kernel for it.
const PAIRS: [(Route, Route, Measurement); 5] = [
    (Route::Park(Mechanism::Epoll), EPOLL, Measurement::Any),
    (Route::Adaptive, EPOLL, Measurement::Any),
    (Route::Park(Mechanism::EventFd), Route::Bare(Floor::EventFd), Measurement::Any),
    (Route::Park(Mechanism::Futex), Route::Bare(Floor::Futex), Measurement::Blocked),
    (Route::Spin, Route::Line, Measurement::Any),
];

/// The medians of two cells' trials, turn by turn, the one by the other.
fn ratio(own: &CellResult, other: &CellResult) -> Option<MedianRatio> {
    MedianRatio::of(&own.rows("trial_p50_ns"), &other.rows("trial_p50_ns"))
}

/// Cost of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Price {
    /// System calls of the writer, for the notification.
    pub notify_calls: f64,
    /// System calls of the reader, for the wait.
    pub wait_calls: f64,
    /// Processor time: the reader's, and the writer's in the notification; nanoseconds.
    pub cpu_ns: f64,
}

impl Price {
    fn of(any: &CellResult) -> Option<Self> {
        Some(Self {
            notify_calls: any.number("notify_calls_per_message")?,
            wait_calls: any.number("wait_calls_per_message")?,
            cpu_ns: cpu_ns(any)?.round(),
        })
    }

    /// System calls of both ends.
    pub(super) fn calls(self) -> f64 {
        self.notify_calls + self.wait_calls
    }
}

/// A way with the doorbell beside the same without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AgainstBare {
    /// `<way>/<figure>` with the doorbell.
    pub name: String,
    /// The way without it.
    pub bare_name: String,
    /// Idle time before each message.
    pub gap_us: u64,
    /// Its p50, nanoseconds.
    pub p50_ns: u64,
    /// The bare mechanism's, nanoseconds.
    pub bare_ns: u64,
    /// The one by the other, of trials made one after the other.
    #[serde(flatten)]
    pub ratio: MedianRatio,
    /// Cost of a message with the doorbell.
    pub price: Price,
    /// Cost of a message without it.
    pub bare_price: Price,
}

impl AgainstBare {
    /// Every pair at every gap where both were measured.
    pub(super) fn of(results: &[CellResult]) -> Vec<Self> {
        let compare = |conditions, (route, bare, measurement), gap_us| {
            let at =
                |route, measurement| WakeupCell { route, conditions, gap_us }.result(results, measurement);
            let (result, other) = (at(route, measurement)?, at(bare, measurement)?);
            Some(Self {
                name: result.cell.name.clone(),
                bare_name: WakeupCell { route: bare, conditions, gap_us }.engine(),
                gap_us,
                p50_ns: result.figures.p50?,
                bare_ns: other.figures.p50?,
                ratio: ratio(result, other)?,
                price: Price::of(at(route, Measurement::Any)?)?,
                bare_price: Price::of(at(bare, Measurement::Any)?)?,
            })
        };
        let ends = [Conditions::THREADS, Conditions::PROCESSES];
        let rows = ends.into_iter().flat_map(|conditions| PAIRS.map(|pair| (conditions, pair)));
        rows.flat_map(|(conditions, pair)| GAPS_US.map(|gap_us| compare(conditions, pair, gap_us)))
            .flatten()
            .collect()
    }
}

/// A way between two processes beside the same between two threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AgainstThreads {
    /// The way.
    pub name: String,
    /// Idle time before each message.
    pub gap_us: u64,
    /// p50 of `w2r_any` between threads, nanoseconds; …
    pub threads_ns: u64,
    /// … its p99, where the sample supports it.
    pub threads_p99_ns: Option<u64>,
    /// The same between processes.
    pub processes_ns: u64,
    /// The same.
    pub processes_p99_ns: Option<u64>,
    /// Processes by threads, of trials made one after the other.
    #[serde(flatten)]
    pub ratio: MedianRatio,
}

impl AgainstThreads {
    /// Every way at every gap where both were measured.
    pub(super) fn of(results: &[CellResult]) -> Vec<Self> {
        let compare = |route: Route, gap_us| {
            let at = |conditions| WakeupCell { route, conditions, gap_us }.result(results, Measurement::Any);
            let (threads, processes) = (at(Conditions::THREADS)?, at(Conditions::PROCESSES)?);
            Some(Self {
                name: route.name().to_owned(),
                gap_us,
                threads_ns: threads.figures.p50?,
                threads_p99_ns: threads.figures.p99,
                processes_ns: processes.figures.p50?,
                processes_p99_ns: processes.figures.p99,
                ratio: ratio(processes, threads)?,
            })
        };
        let rows = Route::all().into_iter().flat_map(|route| GAPS_US.map(|gap_us| compare(route, gap_us)));
        rows.flatten().collect()
    }
}

/// The work log's question, answered in two lines: what does the doorbell save against eventfd under epoll?
pub(super) fn epoll_answer(rows: &[AgainstBare]) -> Vec<String> {
    let floor = EPOLL.name();
    let part = |row: &AgainstBare| {
        let gap = WakeupCell::gap_name(row.gap_us);
        let (calls, bare_calls) = (row.price.calls(), row.bare_price.calls());
        let (own, bare) = (micros(row.p50_ns as f64), micros(row.bare_ns as f64));
        let ratio = row.ratio.median;
        format!("gap {gap}: {calls:.1} calls, not {bare_calls:.1}; {own} µs, not {bare} ({ratio:.2} ×)")
    };
    let line = |(route, what): (Route, &str)| {
        let name = format!("{}/{}", route.name(), Measurement::Any.name());
        let own = rows.iter().filter(|row| row.bare_name == floor && row.name == name);
        let parts: Vec<String> = own.map(part).collect();
        (!parts.is_empty()).then(|| {
            format!("A doorbell instead of a bare eventfd under epoll, {what}: {}.", parts.join(" · "))
        })
    };
    let readers = [
        (Route::Park(Mechanism::Epoll), "a reader that sleeps at once"),
        (Route::Adaptive, "a reader that stays awake where that pays"),
    ];
    readers.into_iter().filter_map(line).collect()
}
