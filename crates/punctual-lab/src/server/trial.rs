//! Outcome of one trial, as the summary has it.

use serde::{Deserialize, Serialize};

use super::client::{Arrivals, ServerLoad};
use super::experiment::WARMUP;
use super::host::Served;
use super::setup::Setup;
use crate::sample::{Outcome, Phase, Samples};

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerTrial {
    /// Its setup.
    #[serde(flatten)]
    pub setup: Setup,
    /// Its duration, ns.
    pub duration_ns: u64,
    /// When requests came.
    pub arrivals: Arrivals,
    /// Requests that were answered, by class.
    pub requests: Vec<u64>,
    /// Requests that were refused, by class.
    #[serde(default)]
    pub refused: Vec<u64>,
    /// Of those that were answered all but the first of each connection, by class. Runs of earlier builds lack it.
    #[serde(default)]
    pub steady: Vec<u64>,
    /// Their mean latency, by class, ns; null if there is none.
    pub mean_ns: Vec<Option<u64>>,
    /// Their median, by class, ns; null if there is none.
    #[serde(default)]
    pub p50_ns: Vec<Option<u64>>,
    /// Their 99th percentile, by class, ns; null if they are too few.
    pub p99_ns: Vec<Option<u64>>,
    /// `N · T / (R + Z)` under closed load: the requests that this mean latency predicts for these connections.
    pub predicted: Option<f64>,
    /// Lateness of the load itself: the 99th percentile, ns.
    pub lag_p99_ns: u64,
    /// Time for which the load waited behind its end for what was open then, ns.
    #[serde(default)]
    pub waited_ns: u64,
    /// Requests that were answered then: they stand among the unfinished.
    #[serde(default)]
    pub worked_off: u64,
    /// The server's report.
    pub served: Served,
}

impl ServerTrial {
    /// Time for which the server served, ns: its counters are of all of it.
    pub fn served_ns(&self) -> u64 {
        self.duration_ns.saturating_add(self.waited_ns).max(1)
    }

    /// The mean latency over all classes that have one, ns.
    pub fn mean_of_all_ns(&self) -> Option<u64> {
        let counts = if self.steady.is_empty() { &self.requests } else { &self.steady };
        let classes = self.mean_ns.iter().zip(counts).filter_map(|(mean, &count)| Some(((*mean)?, count)));
        let add = |(sum, all): (u64, u64), (mean, count): (u64, u64)| {
            (sum.saturating_add(mean.saturating_mul(count)), all + count)
        };
        let (sum, count) = classes.fold((0, 0), add);
        sum.checked_div(count)
    }
}

pub(super) fn describe(
    setup: &Setup,
    load: &ServerLoad,
    samples: &[&Samples],
    lags_ns: &[u64],
    served: Served,
) -> ServerTrial {
    let answered = |samples: &&Samples| {
        let rows = samples.rows(Phase::Steady, WARMUP);
        let answered = rows.filter(|&row| samples.outcome[row] == Outcome::Answered);
        let mut answered: Vec<u64> = answered.map(|row| samples.total_ns[row]).collect();
        answered.sort_unstable();
        answered
    };
    let all: Vec<Vec<u64>> = samples.iter().map(answered).collect();
    let mean = |ns: &[u64]| (!ns.is_empty()).then(|| ns.iter().sum::<u64>() / ns.len() as u64);
    let p99 = |ns: &Vec<u64>| (ns.len() >= 1_000).then(|| ns[(ns.len() * 99).div_ceil(100) - 1]);
    let duration_ns = load.duration.as_nanos() as u64;
    let predicted = match load.arrivals {
        Arrivals::Closed { think_ns } | Arrivals::Original { think_ns } => mean(&all.concat())
            .map(|mean| (load.connections as u64 * duration_ns) as f64 / (mean + think_ns) as f64),
        Arrivals::Open { .. } | Arrivals::Random { .. } => None,
    };
    ServerTrial {
        setup: *setup,
        duration_ns,
        arrivals: load.arrivals,
        requests: samples.iter().map(|samples| samples.count_of(Outcome::Answered)).collect(),
        refused: samples.iter().map(|samples| samples.count_of(Outcome::Refused)).collect(),
        steady: all.iter().map(|ns| ns.len() as u64).collect(),
        mean_ns: all.iter().map(|ns| mean(ns)).collect(),
        p50_ns: all.iter().map(|ns| ns.get(ns.len() / 2).copied()).collect(),
        p99_ns: all.iter().map(p99).collect(),
        predicted,
        lag_p99_ns: lags_ns.get(lags_ns.len() * 99 / 100).copied().unwrap_or(0),
        waited_ns: 0,
        worked_off: 0,
        served,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One of which nothing was measured.
    pub(in crate::server) fn unmeasured() -> ServerTrial {
        let load = ServerLoad {
            connections: 4,
            classes: 2,
            matrix: 20,
            arrivals: Arrivals::Closed { think_ns: 1 },
            duration: std::time::Duration::from_nanos(1),
            seed: 1,
            slow: std::time::Duration::ZERO,
            patience: super::super::client::Patience::default(),
            trace: false,
        };
        describe(&Setup::default(), &load, &[], &[], Served::default())
    }

    /// Goal: a class that has no mean, as it was answered first requests alone, lowers no mean over all classes.
    #[test]
    fn a_class_without_a_mean_counts_for_none() {
        let of = |mean_ns: &[Option<u64>], steady: &[u64]| {
            let (mean_ns, steady) = (mean_ns.to_vec(), steady.to_vec());
            ServerTrial { mean_ns, steady, requests: vec![10, 5], ..unmeasured() }.mean_of_all_ns()
        };
        assert_eq!(of(&[Some(1_000), None], &[8, 0]), Some(1_000));
        assert_eq!(of(&[Some(1_000), Some(4_000)], &[8, 4]), Some(2_000));
        assert_eq!(of(&[None, None], &[0, 0]), None);
        // As an earlier build has it.
        assert_eq!(of(&[Some(1_000), None], &[]), Some(1_000));
        assert_eq!(of(&[Some(1_000), Some(4_000)], &[]), Some(2_000));
    }
}
