//! All trials in turn: models, connections, matrices. Each trial has a fresh server in the other process.

use std::net::SocketAddr;
use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::cpu::pin_to;
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{self, Arrivals, ServerLoad};
use super::host::{Served, ServedEnd, ServerRequest, WorkTimes};
use super::kept::TrialMade;
use super::model::ServerModel;
use crate::explain::evidence::TrialEvidence;
use crate::explain::of_run::add_findings;
use crate::load::watch::SLOW;
use crate::run::{Experiment, RunError, RunPlan, Worker};
use crate::sample::{CellId, Outcome, Samples};
use crate::stall::StallRule;
use crate::store::{Run, Store, StoreError};
use crate::summary::Summary;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Who serves, in turn.
    pub models: Vec<ServerModel>,
    /// Connections of each trial, in turn.
    pub connections: Vec<usize>,
    /// Matrices, in turn.
    pub matrices: Vec<usize>,
    /// Classes; connections belong to one after the other.
    pub classes: usize,
    /// Workers of models that have any.
    pub workers: usize,
    /// When requests come.
    pub wanted: Wanted,
    /// Of one trial.
    pub duration: Duration,
    /// Rounds of all trials.
    pub rounds: u32,
    /// Whether the work takes as long as the original's.
    pub dilates: bool,
    /// Repeats whatever is random.
    pub seed: u64,
    /// CPUs of server and load.
    pub cpus: [Option<usize>; 2],
    /// Record the kernel's trace.
    pub trace: bool,
}

/// When requests are to come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// After so long a think time.
    Closed {
        /// So long.
        think_ns: u64,
    },
    /// So much of what one processor can do.
    Open {
        /// Hundredths.
        percent: u32,
        /// At random instants.
        is_random: bool,
    },
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerTrial {
    /// Who served.
    pub model: ServerModel,
    /// Its connections.
    pub connections: usize,
    /// Its matrix.
    pub matrix: usize,
    /// How long it lasted, ns.
    pub duration_ns: u64,
    /// When requests came.
    pub arrivals: Arrivals,
    /// Requests that were answered, by class.
    pub requests: Vec<u64>,
    /// Their mean latency, by class, ns; null if none was answered.
    pub mean_ns: Vec<Option<u64>>,
    /// Their 99th percentile, by class, ns; null if they are too few.
    pub p99_ns: Vec<Option<u64>>,
    /// `N · T / (R + Z)` under closed load: what this mean latency makes of these connections.
    pub predicted: Option<f64>,
    /// How late the load was itself: the 99th percentile, ns.
    pub lag_p99_ns: u64,
    /// What the server says.
    pub served: Served,
}

/// What stands in the summary under `server`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerOverall {
    /// How long the work takes.
    pub calibration: WorkTimes,
    /// Classes of the load.
    pub classes: usize,
    /// Workers of models that have any.
    pub workers: usize,
    /// In the order in which they were made.
    pub trials: Vec<ServerTrial>,
}

/// The cell of a trial, or of one of its classes.
fn cell(trial: &ServerTrial, class: Option<usize>) -> CellId {
    let of_class = class.map_or(String::new(), |class| format!("/class{class}"));
    let wake = format!("c{}/m{}{of_class}", trial.connections, trial.matrix);
    let load = trial.arrivals.load();
    let gap_us = match trial.arrivals {
        Arrivals::Closed { think_ns: ns }
        | Arrivals::Open { period_ns: ns }
        | Arrivals::Random { period_ns: ns } => ns / 1_000,
    };
    let size = super::work::request(trial.matrix).len();
    CellId { load, gap_us, size, ..CellId::new(trial.model.name(), &wake) }
}

/// Makes all trials. Each is in the store before the next.
pub fn run(
    settings: &ServerSettings,
    store: &mut Store,
    bar: &ProgressBar,
) -> Result<ServerOverall, RunError> {
    let start = Clock::get().now();
    let mut server = Worker::start("server")?;
    let (cpu, dilates) = (settings.cpus[0], settings.dilates);
    // Unpinned is slower, not wrong.
    let _unpinned = settings.cpus[1].map(pin_to);
    let matrices = settings.matrices.clone();
    let calibration: WorkTimes = server.ask(&ServerRequest::Calibrate { cpu, dilates, matrices })?;
    let mut overall = ServerOverall {
        calibration,
        classes: settings.classes,
        workers: settings.workers,
        trials: Vec::new(),
    };
    let sizes = settings.matrices.len() * settings.connections.len() * settings.models.len();
    bar.set_length(u64::from(settings.rounds) * sizes as u64);
    for round in 0..settings.rounds {
        for &matrix in &settings.matrices {
            for &connections in &settings.connections {
                for &model in &settings.models {
                    bar.set_message(model.name());
                    let arrivals = arrivals(settings.wanted, &overall.calibration, matrix);
                    let load = ServerLoad {
                        connections,
                        classes: settings.classes,
                        matrix,
                        arrivals,
                        duration: settings.duration,
                        seed: settings.seed + u64::from(round),
                        slow: slow(&overall.calibration, matrix),
                        trace: settings.trace,
                    };
                    let (trial, kept) = one_trial(&mut server, settings, model, &load, start)?;
                    keep(store, round, &trial, &kept)?;
                    overall.trials.push(trial);
                    bar.inc(1);
                    if interrupted() {
                        return Ok(overall);
                    }
                }
            }
        }
    }
    Ok(overall)
}

/// How long the whole work of a request takes.
fn service_ns(calibration: &WorkTimes, matrix: usize) -> u64 {
    calibration.service_ns.iter().find(|(of, _)| *of == matrix).map_or(1, |(_, ns)| *ns)
}

fn arrivals(wanted: Wanted, calibration: &WorkTimes, matrix: usize) -> Arrivals {
    match wanted {
        Wanted::Closed { think_ns } => Arrivals::Closed { think_ns },
        Wanted::Open { percent, is_random } => {
            let service = service_ns(calibration, matrix);
            let period_ns = (service * 100 / u64::from(percent.max(1))).max(1);
            if is_random { Arrivals::Random { period_ns } } else { Arrivals::Open { period_ns } }
        }
    }
}

/// A request that takes longer is late: none takes less than its work.
fn slow(calibration: &WorkTimes, matrix: usize) -> Duration {
    let rule = StallRule::for_median(service_ns(calibration, matrix));
    SLOW.max(Duration::from_nanos(rule.threshold_ns))
}

/// With more connections their threads keep no windows. Each of the three would look at itself once a request, for some 12 µs, and
/// where many wait for one processor that makes all of them later.
const WATCHED_MAX: usize = 8;

/// Windows of all threads of the server together.
const SERVER_WINDOWS_MAX: usize = 1 << 16;

/// Windows of each thread of the server.
fn windows(model: ServerModel, settings: &ServerSettings, load: &ServerLoad) -> usize {
    let threads = match model.has_tasks() {
        true => settings.workers,
        false if load.connections > WATCHED_MAX => return 0,
        false => 3 * load.connections,
    };
    client::windows(load.duration).min(SERVER_WINDOWS_MAX / threads)
}

/// The requests of each class, and what explains the late ones.
type OfClasses = Vec<(Samples, TrialEvidence)>;

fn one_trial(
    server: &mut Worker,
    settings: &ServerSettings,
    model: ServerModel,
    load: &ServerLoad,
    start: Ticks,
) -> Result<(ServerTrial, OfClasses), RunError> {
    let windows = windows(model, settings, load);
    let address: SocketAddr =
        server.ask(&ServerRequest::Serve { model, workers: settings.workers, windows })?;
    let loaded = client::run(load, address);
    // Also if the load failed: the server ends the trial.
    let ServedEnd { served, journal } = server.ask(&ServerRequest::End)?;
    let passed = journal.requests(&server.recv_bytes(journal.size_behind())?);
    let words =
        |error: std::io::Error| format!("{} with {} connections: {error}", model.name(), load.connections);
    let loaded = loaded.map_err(words)?;
    let lags_ns = loaded.lags_ns.clone();
    let kept = TrialMade { settings, model, load, start, passed, journal }.keep(loaded);
    let samples: Vec<&Samples> = kept.iter().map(|(samples, _)| samples).collect();
    Ok((describe(model, load, &samples, &lags_ns, served), kept))
}

fn describe(
    model: ServerModel,
    load: &ServerLoad,
    samples: &[&Samples],
    lags_ns: &[u64],
    served: Served,
) -> ServerTrial {
    let answered = |samples: &&Samples| {
        let rows = samples.total_ns.iter().zip(&samples.outcome);
        let answered = rows.filter(|(_, outcome)| **outcome == Outcome::Answered).map(|(&ns, _)| ns);
        let mut answered: Vec<u64> = answered.collect();
        answered.sort_unstable();
        answered
    };
    let all: Vec<Vec<u64>> = samples.iter().map(answered).collect();
    let mean = |ns: &[u64]| (!ns.is_empty()).then(|| ns.iter().sum::<u64>() / ns.len() as u64);
    let p99 = |ns: &Vec<u64>| (ns.len() >= 1_000).then(|| ns[(ns.len() * 99).div_ceil(100) - 1]);
    let duration_ns = load.duration.as_nanos() as u64;
    let predicted = match load.arrivals {
        Arrivals::Closed { think_ns } => mean(&all.concat())
            .map(|mean| (load.connections as u64 * duration_ns) as f64 / (mean + think_ns) as f64),
        Arrivals::Open { .. } | Arrivals::Random { .. } => None,
    };
    ServerTrial {
        model,
        connections: load.connections,
        matrix: load.matrix,
        duration_ns,
        arrivals: load.arrivals,
        requests: all.iter().map(|ns| ns.len() as u64).collect(),
        mean_ns: all.iter().map(|ns| mean(ns)).collect(),
        p99_ns: all.iter().map(p99).collect(),
        predicted,
        lag_p99_ns: lags_ns.get(lags_ns.len() * 99 / 100).copied().unwrap_or(0),
        served,
    }
}

fn keep(store: &mut Store, round: u32, trial: &ServerTrial, kept: &OfClasses) -> Result<(), RunError> {
    let classes = kept.len();
    let made: Vec<_> = kept.iter().enumerate().filter(|(_, (samples, _))| !samples.is_empty()).collect();
    let cells: Vec<(CellId, Samples)> = made
        .iter()
        .map(|&(class, (samples, _))| (cell(trial, (classes > 1).then_some(class)), samples.clone()))
        .collect();
    let paths = store.append_all(round, &cells)?;
    for (path, (_, (_, evidence))) in paths.iter().zip(made) {
        store.append_evidence(path, evidence)?;
    }
    Ok(())
}

impl Experiment for ServerSettings {
    type Made = ServerOverall;

    const BROKEN: &'static str = "a promise did not hold: replies were wrong; see the doubts";

    fn plan(&self) -> RunPlan {
        let described = json!({
            "models": self.models,
            "connections": self.connections,
            "matrices": self.matrices,
            "classes": self.classes,
            "workers": self.workers,
            "load": self.wanted,
            "trial_s": self.duration.as_secs_f64(),
            "rounds": self.rounds,
            "dilated": self.dilates,
            "order": "models in turn, then connections, then matrices, round by round",
        });
        // The first request of each cell is its connection's first; what comes after it is steady.
        RunPlan { name: "server", warmup: 1, cpus: self.cpus.into_iter().flatten().collect(), described }
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<ServerOverall, RunError> {
        run(self, store, bar)
    }

    fn summarise(&self, made: &ServerOverall, store: &Store) -> Result<Summary, StoreError> {
        let mut summary = store.summary()?;
        add_findings(&mut summary, &Run::open(store.path())?)?;
        summary.more.insert("server".to_owned(), json!(made));
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ServerSettings {
        ServerSettings {
            models: ServerModel::ALL.into(),
            connections: vec![4],
            matrices: vec![3],
            classes: 2,
            workers: 1,
            wanted: Wanted::Closed { think_ns: 1_000_000 },
            duration: Duration::from_millis(150),
            rounds: 1,
            dilates: false,
            seed: 1,
            cpus: [None; 2],
            trace: false,
        }
    }

    /// The stages of an answered request are all of it, and nothing but it.
    fn stages_sum(model: ServerModel, samples: &Samples) {
        for row in (0..samples.len()).filter(|&row| samples.outcome[row] == Outcome::Answered) {
            // What a task had written when its server ended may not have been noted.
            let Some(rest) = samples.unexplained_ns(row) else { continue };
            let is_noted = samples.stages.iter().all(|stage| stage.ns[row] != crate::sample::ABSENT_NS);
            assert!(is_noted || row + 8 > samples.len(), "{model:?}: {row} of {}", samples.len());
            assert!(
                !is_noted || rest.abs() < 100,
                "{model:?}: {rest} ns of {} in no stage",
                samples.total_ns[row]
            );
        }
    }

    /// Every stage has a thread that is known, on each connection.
    fn has_threads(model: ServerModel, evidence: &TrialEvidence) -> bool {
        let roles = evidence.stages.iter().map(|stage| stage.role.as_deref().expect("one worker"));
        let mut of_connections = roles.flat_map(|role| (0..4).map(move |connection| (role, connection)));
        assert_eq!(evidence.threads.len(), if model.has_tasks() { 2 } else { 13 });
        of_connections.all(|(role, connection)| evidence.thread(role, Some(connection)).is_some())
    }

    /// Goal: the whole way over real connections, each model: every reply is right, and none is missing under a light load.
    #[test]
    fn every_model_answers() {
        let mut server = Worker::in_a_thread(super::super::host::serve).unwrap();
        let request = ServerRequest::Calibrate { cpu: None, dilates: false, matrices: vec![3] };
        let calibration: WorkTimes = server.ask(&request).unwrap();
        assert!(calibration.repeats == 1 && calibration.service_ns[0].1 > 0);
        let (start, settings) = (Clock::get().now(), settings());
        let load = ServerLoad {
            connections: 4,
            classes: 2,
            matrix: 3,
            arrivals: Arrivals::Closed { think_ns: 1_000_000 },
            duration: Duration::from_millis(150),
            seed: 1,
            slow: SLOW,
            trace: false,
        };
        for model in ServerModel::ALL {
            let (trial, kept) = one_trial(&mut server, &settings, model, &load, start).unwrap();
            let samples: Vec<&Samples> = kept.iter().map(|(samples, _)| samples).collect();
            assert!(trial.requests.iter().all(|&count| count > 0), "{trial:?}");
            samples.iter().for_each(|of| stages_sum(model, of));
            assert!(kept.iter().all(|(_, evidence)| has_threads(model, evidence)), "{kept:?}");
            assert!(samples.iter().all(|of| of.count_of(Outcome::Mismatched) == 0), "{model:?}");
            let unanswered: u64 = samples.iter().map(|of| of.count_of(Outcome::Unfinished)).sum();
            assert!(unanswered <= 4, "one on each connection when it ended");
            if model.has_classes() {
                let requests: u64 = trial.requests.iter().sum();
                assert!(trial.served.wakes >= requests, "{trial:?}");
            }
        }
        assert!(server.ask::<ServedEnd>(&ServerRequest::End).is_err());
    }

    #[test]
    fn an_open_load_is_of_what_one_processor_can_do() {
        let calibration = WorkTimes { native_ns: 1, repeats: 1, service_ns: vec![(20, 800_000)] };
        let open = |is_random| arrivals(Wanted::Open { percent: 80, is_random }, &calibration, 20);
        assert_eq!(open(false), Arrivals::Open { period_ns: 1_000_000 });
        assert_eq!(open(true), Arrivals::Random { period_ns: 1_000_000 });
    }
}
