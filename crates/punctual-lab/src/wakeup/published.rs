//! The figures of the work log, beside ours.

use punctual_lab_machine::wake::{Floor, Mechanism};
use serde::{Deserialize, Serialize};

use super::plan::{Measurement, WakeupCell};
use crate::load::wake::{Conditions, Route};
use crate::summary::CellResult;

/// One figure of the log.
struct Published {
    /// The measurement, in our words.
    measurement: Measurement,
    /// By what, and ours that comes nearest.
    by: (&'static str, Route),
    /// At this idle gap.
    gap_us: u64,
    /// Mean, µs, and slowest, as published.
    mean_max: [&'static str; 2],
    /// Differences, and their reasons.
    differs: &'static str,
}

/// The log's eventfd had no doorbell.
const EVENTFD: (&str, Route) = ("eventfd, epoll", Route::Bare(Floor::Epoll));
/// A UPID in software, its notification a futex: the nearest to user interrupts without the hardware.
const UPID: (&str, Route) = ("user interrupt, epoll", Route::Park(Mechanism::Futex));

/// All of them.
const PUBLISHED: [Published; 7] = [
    Published {
        measurement: Measurement::Bracket,
        by: EVENTFD,
        gap_us: 100,
        mean_max: ["342", "34 ms"],
        differs: "the log's figure holds the writer's think time and a printf per message: no wake-up latency; ours holds \
                  the stated gap",
    },
    Published {
        measurement: Measurement::Bracket,
        by: UPID,
        gap_us: 100,
        mean_max: ["290 with a printf, 19.7 without", "23 ms; 2.1 ms"],
        differs: "as above; the printf is the delay that hides race E1, and the pair 290 / 19.7 is the printf's price",
    },
    Published {
        measurement: Measurement::Any,
        by: EVENTFD,
        gap_us: 0,
        mean_max: ["82 to 90", "21 to 36 ms"],
        differs: "the log ran in an emulator, where each instruction costs tens of native ones; the reader's state was not \
                  controlled, and failed rounds were skipped",
    },
    Published {
        measurement: Measurement::Any,
        by: UPID,
        gap_us: 0,
        mean_max: ["84 to 87", "2.4 to 4.7 ms"],
        differs: "no hardware here: the descriptor in software; whether the reader sleeps is its own choice",
    },
    Published {
        measurement: Measurement::Blocked,
        by: EVENTFD,
        gap_us: 1_000,
        mean_max: ["532 to 604", "12 to 17 ms"],
        differs: "952 to 979 of about 1,000 rounds: the failed ones were skipped, which takes the worst away; ours keeps all, \
                  and has the kernel's word that the reader slept",
    },
    Published {
        measurement: Measurement::Blocked,
        by: UPID,
        gap_us: 1_000,
        mean_max: ["195 to 607", "1.7 to 16.6 ms"],
        differs: "seven runs of the log differ by a factor of three, more than the mechanisms do: from them nothing follows",
    },
    Published {
        measurement: Measurement::Loop,
        by: UPID,
        gap_us: 0,
        mean_max: ["45.7 timed, 50.7 over the wall", "140 ms"],
        differs: "timed and over the wall differ by what lies between two iterations; both are given here",
    },
];

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Compared {
    /// `<mechanism>/<measurement>` of ours.
    pub name: String,
    /// Idle gap, microseconds.
    pub gap_us: u64,
    /// The mechanism by which the log measured it.
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
    /// The lowest of its p50 … max that is infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infinite_from: Option<String>,
    /// For the loop: wall time by messages, nanoseconds.
    pub wall_mean_ns: Option<f64>,
    /// Differences, and their reasons.
    pub differs: String,
}

/// Every published figure beside ours, where that was measured.
pub(super) fn comparison(results: &[CellResult]) -> Vec<Compared> {
    let compared = |published: &Published| {
        let Published { measurement, by: (mechanism, route), gap_us, mean_max, differs } = *published;
        // The log's ends were processes.
        let result = [Conditions::PROCESSES, Conditions::THREADS]
            .into_iter()
            .find_map(|conditions| WakeupCell { route, conditions, gap_us }.result(results, measurement))?;
        let wall = result.number("wall_ns").zip(result.number("messages"));
        let [published_mean_us, published_max] = mean_max.map(str::to_owned);
        Some(Compared {
            name: result.cell.name.clone(),
            gap_us,
            mechanism: mechanism.to_owned(),
            published_mean_us,
            published_max,
            mean_ns: result.figures.mean,
            p50_ns: result.figures.p50,
            max_ns: result.figures.max,
            infinite_from: result.figures.infinite_from.clone(),
            wall_mean_ns: wall.map(|(ns, messages)| (ns / messages.max(1.0) * 10.0).round() / 10.0),
            differs: differs.to_owned(),
        })
    };
    PUBLISHED.iter().filter_map(compared).collect()
}
