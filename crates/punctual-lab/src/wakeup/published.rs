//! The figures of the work log, beside ours.

use punctual_lab_machine::wake::{Floor, Mechanism};
use serde::{Deserialize, Serialize};

use super::plan::{Measurement, WakeupCell};
use crate::load::wake::{Conditions, Route};
use crate::summary::CellResult;

/// One figure of the log.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// What it measured, in our words.
    pub measurement: Measurement,
    /// By what.
    pub mechanism: &'static str,
    /// Mean, µs, as published.
    pub mean_us: &'static str,
    /// Slowest, as published.
    pub max: &'static str,
    /// Ours that comes nearest.
    pub route: Route,
    /// At this idle gap.
    pub gap_us: u64,
    /// What differs, and why.
    pub differs: &'static str,
}

/// The log's eventfd had no doorbell.
const EVENTFD: Route = Route::Bare(Floor::Epoll);
/// A UPID in software, its notification a futex: what is nearest to user interrupts without the hardware.
const UPID: Route = Route::Park(Mechanism::Futex);

/// All of them.
pub const PUBLISHED: [Published; 7] = [
    Published {
        measurement: Measurement::Bracket,
        mechanism: "eventfd, epoll",
        mean_us: "342",
        max: "34 ms",
        route: EVENTFD,
        gap_us: 100,
        differs: "the log's figure holds the writer's think time and a printf per message: no wake-up latency; ours holds \
                  the stated gap",
    },
    Published {
        measurement: Measurement::Bracket,
        mechanism: "user interrupt, epoll",
        mean_us: "290 with a printf, 19.7 without",
        max: "23 ms; 2.1 ms",
        route: UPID,
        gap_us: 100,
        differs: "as above; the printf is the delay that hides race E1, and the pair 290 / 19.7 is the printf's price",
    },
    Published {
        measurement: Measurement::Any,
        mechanism: "eventfd, epoll",
        mean_us: "82 to 90",
        max: "21 to 36 ms",
        route: EVENTFD,
        gap_us: 0,
        differs: "the log ran in an emulator, where each instruction costs tens of native ones; the reader's state was not \
                  controlled, and failed rounds were skipped",
    },
    Published {
        measurement: Measurement::Any,
        mechanism: "user interrupt, epoll",
        mean_us: "84 to 87",
        max: "2.4 to 4.7 ms",
        route: UPID,
        gap_us: 0,
        differs: "no hardware here: the descriptor in software; whether the reader sleeps is its own choice",
    },
    Published {
        measurement: Measurement::Blocked,
        mechanism: "eventfd, epoll",
        mean_us: "532 to 604",
        max: "12 to 17 ms",
        route: EVENTFD,
        gap_us: 1_000,
        differs: "952 to 979 of about 1,000 rounds: the failed ones were skipped, which takes the worst away; ours keeps all, \
                  and has the kernel's word that the reader slept",
    },
    Published {
        measurement: Measurement::Blocked,
        mechanism: "user interrupt, epoll",
        mean_us: "195 to 607",
        max: "1.7 to 16.6 ms",
        route: UPID,
        gap_us: 1_000,
        differs: "seven runs of the log differ by a factor of three, more than the mechanisms do: from them nothing follows",
    },
    Published {
        measurement: Measurement::Loop,
        mechanism: "user interrupt, epoll",
        mean_us: "45.7 timed, 50.7 over the wall",
        max: "140 ms",
        route: UPID,
        gap_us: 0,
        differs: "timed and over the wall differ by what lies between two iterations; both are given here",
    },
];

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// `<mechanism>/<measurement>` of ours.
    pub name: String,
    /// Idle gap, microseconds.
    pub gap_us: u64,
    /// What the log measured it by.
    pub mechanism: String,
    /// Mean, µs, as published.
    pub published_mean_us: String,
    /// Slowest, as published.
    pub published_max: String,
    /// Our mean, nanoseconds.
    pub mean_ns: Option<f64>,
    /// Our median, nanoseconds.
    pub p50_ns: Option<u64>,
    /// Our slowest, nanoseconds; none if one was lost.
    pub max_ns: Option<u64>,
    /// For the loop: wall time by messages, nanoseconds.
    pub wall_mean_ns: Option<f64>,
    /// What differs, and why.
    pub differs: String,
}

/// Every published figure beside ours, where that was measured.
pub(super) fn comparison(results: &[CellResult]) -> Vec<Compared> {
    let compared = |published: &Published| {
        // The log's ends were processes.
        let result = [Conditions::PROCESSES, Conditions::THREADS].into_iter().find_map(|conditions| {
            let cell = WakeupCell { route: published.route, conditions, gap_us: published.gap_us };
            cell.result(results, published.measurement)
        })?;
        let wall_ns = result.number("wall_ns");
        let all =
            result.figures.count + result.warmup.as_ref().map_or(0, |warmup| warmup.count) + result.trials;
        Some(Compared {
            name: result.cell.name.clone(),
            gap_us: result.cell.gap_us,
            mechanism: published.mechanism.to_owned(),
            published_mean_us: published.mean_us.to_owned(),
            published_max: published.max.to_owned(),
            mean_ns: result.figures.mean,
            p50_ns: result.figures.p50,
            max_ns: result.figures.max,
            wall_mean_ns: wall_ns.map(|ns| (ns / all.max(1) as f64 * 10.0).round() / 10.0),
            differs: published.differs.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    };
    PUBLISHED.iter().filter_map(compared).collect()
}
