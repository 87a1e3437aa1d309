//! All trials in turn: models, connections, matrices. Each trial has a fresh server in the other process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::cpu::pin_to;
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::broken;
use super::client::{self, Arrivals, ServerLoad};
use super::host::{Served, ServedEnd, ServerRequest, Serving, TaskSettings, WorkTimes};
use super::journal::{JournalEnd, Passed};
use super::kept::TrialMade;
use super::model::{LineLock, ServerModel};
use super::setup::{Capacity, Setup, of_capacity, patience, period_ns, plan, reference};
use super::trial::describe;
use crate::explain::evidence::TrialEvidence;
use crate::explain::of_run::explained_summary;
use crate::load::watch::SLOW;
use crate::run::{Experiment, RunError, RunPlan, Worker, cut_short};
use crate::sample::{CellId, Samples};
use crate::stall::StallRule;
use crate::store::{Store, StoreError};
use crate::summary::{Skipped, Summary};

pub use super::trial::ServerTrial;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Models that serve, in turn.
    pub models: Vec<ServerModel>,
    /// Connections of each trial, in turn.
    pub connections: Vec<usize>,
    /// Matrices, in turn.
    pub matrices: Vec<usize>,
    /// Classes; connections belong to one after the other.
    pub classes: usize,
    /// Workers of models that have any, in turn.
    pub workers: Vec<usize>,
    /// Processors of the server, in turn.
    pub processors: Vec<usize>,
    /// Workers that serve class 0 alone, of models with classes, in turn.
    pub lanes: Vec<usize>,
    /// Locks that pollers of one line take before they touch it, in turn.
    pub locks: Vec<LineLock>,
    /// Settings for the tasks of models with classes.
    pub tasks: TaskSettings,
    /// The program of models that are none of this one's.
    pub peer_server: PathBuf,
    /// Each trial is made once more with a task that keeps a worker for so long again and again; 0 if not.
    pub hog_ns: u64,
    /// When requests come.
    pub wanted: Wanted,
    /// Of one trial.
    pub duration: Duration,
    /// Rounds of all trials.
    pub rounds: u32,
    /// True if the work takes as long as the original's.
    pub dilates: bool,
    /// Repeats all random choices.
    pub seed: u64,
    /// CPUs of server and load.
    pub cpus: [Option<usize>; 2],
    /// Those of which a server with several has the first ones.
    pub available: Vec<usize>,
    /// Record the kernel's trace.
    pub trace: bool,
}

/// When requests are to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// After so long a think time.
    Closed {
        /// So long.
        think_ns: u64,
        /// As the original's load did ([`Arrivals::Original`]).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_original: bool,
    },
    /// So much of what the server can do.
    Open {
        /// Hundredths, in turn.
        percents: Vec<u32>,
        /// At random instants.
        is_random: bool,
    },
}

/// Contents of the summary under `server`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerOverall {
    /// Duration of the work.
    pub calibration: WorkTimes,
    /// Classes of the load.
    pub classes: usize,
    /// True if the server of any trial may use the load's processor.
    #[serde(default)]
    pub load_shares: bool,
    /// Capacity of each model, where the load is a part of that.
    #[serde(default)]
    pub capacities: Vec<Capacity>,
    /// In the order in which they were made.
    pub trials: Vec<ServerTrial>,
    /// Promises that trials broke, besides those of the cells, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// The same of servers that are programs of others: a doubt alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_by_others: Vec<String>,
    /// Skipped measurements, with the reasons: they stand elsewhere in the summary.
    #[serde(skip)]
    pub skipped: Vec<Skipped>,
}

/// The cell of a trial, or of one of its classes.
pub(super) fn cell(trial: &ServerTrial, class: Option<usize>) -> CellId {
    let of_class = class.map_or(String::new(), |class| format!("/class{class}"));
    // At the same instants or at random ones, or as the original's: not the same load.
    let of_arrivals = match trial.arrivals {
        Arrivals::Closed { .. } | Arrivals::Open { .. } => "",
        Arrivals::Original { .. } => "/original",
        Arrivals::Random { .. } => "/poisson",
    };
    let wake = format!("{}{of_arrivals}{of_class}", trial.setup.name());
    let load = trial.arrivals.load();
    let gap_ns = match trial.arrivals {
        Arrivals::Closed { think_ns } | Arrivals::Original { think_ns } => think_ns,
        // The name holds the load. The period comes from what the server could do this time: no two runs have the same.
        Arrivals::Open { .. } | Arrivals::Random { .. } => 0,
    };
    let size = super::work::request(trial.setup.matrix).len();
    let cell = CellId::new(trial.setup.model.name(), &wake).with_gap(Duration::from_nanos(gap_ns));
    CellId { load, size, ..cell }
}

/// State that all trials of a run have in common.
struct Trials<'a> {
    settings: &'a ServerSettings,
    server: Worker,
    start: Ticks,
    calibration: WorkTimes,
    broken: Vec<String>,
    broken_by_others: Vec<String>,
}

/// A request that takes longer is late: none takes less than its work.
fn slow(calibration: &WorkTimes, matrix: usize) -> Duration {
    let rule = StallRule::for_median(calibration.service_ns(matrix));
    SLOW.max(Duration::from_nanos(rule.threshold_ns))
}

/// With more connections their threads keep no windows. Each of the three would look at itself once a request, for some 12 µs. Where
/// many wait for one processor, that makes all of them later.
const WATCHED_MAX: usize = 8;

/// Windows of all threads of the server together.
const SERVER_WINDOWS_MAX: usize = 1 << 16;

/// Windows of each thread of the server.
fn windows(setup: &Setup, load: &ServerLoad) -> usize {
    let threads = match setup.pollers() {
        0 if load.connections > WATCHED_MAX => return 0,
        0 => 3 * load.connections,
        pollers => pollers,
    };
    client::windows(load.duration).min(SERVER_WINDOWS_MAX / threads.max(1))
}

/// By the client's port of a connection, how its requests passed the server.
type Notes = Vec<(u16, Vec<Passed>)>;

/// The requests of each class, and what explains the late ones.
type OfClasses = Vec<(Samples, TrialEvidence)>;

/// Requests of each connection that count as its warm-up: the first, which pays for all that is opened anew.
pub(super) const WARMUP: u64 = 1;

/// Number of measurements of a model's capacity, and the longest duration of one.
const CAPACITY_TRIES: usize = 3;
const CAPACITY: Duration = Duration::from_millis(500);

impl Trials<'_> {
    /// Capacity of each model while many connections ask again at once: the middle one of some tries, all models in turn. One that
    /// cannot be measured is left out, and the reason is noted.
    fn capacities(
        &mut self,
        setups: &[Setup],
        overall: &mut ServerOverall,
        bar: &ProgressBar,
    ) -> Result<(), RunError> {
        let mut all: Vec<(Setup, Vec<f64>)> = setups.iter().map(|&setup| (setup, Vec::new())).collect();
        for _ in 0..CAPACITY_TRIES {
            let mut measured = Vec::with_capacity(all.len());
            for (setup, mut tries) in all {
                bar.set_message(format!("capacity of {}", setup.model.name()));
                if interrupted() {
                    return Ok(());
                }
                match self.capacity(&setup) {
                    Ok(per_second) => {
                        tries.push(per_second);
                        measured.push((setup, tries));
                    }
                    Err(_) if interrupted() => return Ok(()),
                    Err(RunError::Machine(reason)) => {
                        let what = format!("capacity of {}", setup.words());
                        overall.skipped.push(Skipped { what, reason });
                    }
                    Err(error) => return Err(error),
                }
                bar.inc(1);
            }
            all = measured;
        }
        let middle = |(setup, mut tries): (Setup, Vec<f64>)| {
            tries.sort_by(f64::total_cmp);
            Capacity { setup, per_second: tries[tries.len() / 2] }
        };
        overall.capacities = all.into_iter().map(middle).collect();
        Ok(())
    }

    /// Replies a second, measured once.
    fn capacity(&mut self, setup: &Setup) -> Result<f64, RunError> {
        let load = self.load(setup, Arrivals::Closed { think_ns: 0 }, 0);
        let load = ServerLoad { duration: load.duration.min(CAPACITY), trace: false, ..load };
        let (trial, kept) = self.make(setup, &load)?;
        let samples: Vec<&Samples> = kept.iter().map(|(samples, _)| samples).collect();
        self.note_broken(setup, broken::by_requests(&trial, &samples));
        let answered: u64 = trial.requests.iter().sum();
        Ok(answered as f64 * 1e9 / trial.duration_ns.max(1) as f64)
    }

    /// When requests come. `None` where they are a part of a capacity that is not known.
    fn arrivals(&self, setup: &Setup, capacities: &[Capacity]) -> Option<Arrivals> {
        match self.settings.wanted {
            Wanted::Closed { think_ns, is_original: false } => Some(Arrivals::Closed { think_ns }),
            Wanted::Closed { think_ns, is_original: true } => Some(Arrivals::Original { think_ns }),
            Wanted::Open { is_random, .. } => {
                let period_ns = period_ns(setup, capacities, reference(self.settings))?;
                Some(if is_random { Arrivals::Random { period_ns } } else { Arrivals::Open { period_ns } })
            }
        }
    }

    fn load(&self, setup: &Setup, arrivals: Arrivals, round: u32) -> ServerLoad {
        let ServerSettings { classes, duration, seed, trace, .. } = *self.settings;
        let Setup { connections, matrix, .. } = *setup;
        let slow = slow(&self.calibration, matrix);
        let patience = patience(&self.calibration, setup);
        ServerLoad {
            connections,
            classes,
            matrix,
            arrivals,
            duration,
            seed: seed.wrapping_add(round.into()),
            slow,
            patience,
            trace,
        }
    }

    fn cpus(&self, setup: &Setup) -> Vec<usize> {
        let [own, _] = self.settings.cpus;
        match setup.processors {
            0 | 1 => own.into_iter().collect(),
            several => self.settings.available.iter().copied().take(several).collect(),
        }
    }

    /// True if this server may use the load's processor.
    fn shares(&self, setup: &Setup) -> bool {
        self.settings.cpus[1].is_none_or(|load| self.cpus(setup).contains(&load))
    }

    /// Ends the server of a trial: what it did, and its notes on each connection.
    fn end(&mut self) -> Result<(Served, JournalEnd, Notes), String> {
        let ServedEnd { served, journal } = self.server.ask(&ServerRequest::End)?;
        let passed = journal.requests(&self.server.recv_bytes(journal.size_behind())?);
        Ok((served, journal, passed))
    }

    fn make(&mut self, setup: &Setup, load: &ServerLoad) -> Result<(ServerTrial, OfClasses), RunError> {
        let ServerSettings { tasks, peer_server, .. } = self.settings;
        let (tasks, peer_server, cpus) = (tasks.clone(), peer_server.clone(), self.settings.cpus);
        let windows = windows(setup, load);
        let serving =
            Serving { setup: *setup, cpus: self.cpus(setup), tasks, windows, peer_server, repeats: 0 };
        let address: SocketAddr = self.server.ask(&ServerRequest::Serve(serving))?;
        let loaded = client::run(load, address);
        // Also if the load failed: the server ends the trial.
        let ended = self.end();
        let words = |reason: String| {
            format!("{} with {} connections: {reason}", setup.model.name(), load.connections)
        };
        let loaded = loaded.map_err(|error| words(error.to_string()))?;
        let (served, journal, passed) = match ended {
            // Its death is what the load has seen: the rows that say so stay.
            Err(reason) if loaded.lost() && !interrupted() => {
                (Served { ended: Some(reason), ..Served::default() }, JournalEnd::default(), Vec::new())
            }
            ended => ended?,
        };
        if let Some(reason) = &journal.failed {
            return Err(words(reason.clone()).into());
        }
        let (lags_ns, load) = (loaded.lags_ns.clone(), &ServerLoad { duration: loaded.passed, ..*load });
        let (waited, worked_off) = (loaded.waited, loaded.worked_off);
        let kept = TrialMade { cpus, setup: *setup, load, start: self.start, passed, journal }.keep(loaded);
        let samples: Vec<&Samples> = kept.iter().map(|(samples, _)| samples).collect();
        let trial = describe(setup, load, &samples, &lags_ns, served);
        let waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        let trial = ServerTrial { waited_ns, worked_off, ..trial };
        self.note_broken(setup, broken::by_server(&trial, self.settings.tasks.sheds));
        Ok((trial, kept))
    }

    fn note_broken(&mut self, setup: &Setup, broken: impl IntoIterator<Item = String>) {
        let of = if setup.model.is_apart() { &mut self.broken_by_others } else { &mut self.broken };
        of.extend(broken);
    }
}

impl Trials<'_> {
    /// All rounds of these. One that fails is left out from then on, and the reason is noted: the measurements of the others stand.
    fn all(
        &mut self,
        setups: &[Setup],
        overall: &mut ServerOverall,
        store: &mut Store,
        bar: &ProgressBar,
    ) -> Result<(), RunError> {
        let mut failed: Vec<&Setup> = Vec::new();
        for round in 0..self.settings.rounds {
            for setup in setups {
                if failed.contains(&setup) {
                    continue;
                }
                if interrupted() {
                    return Ok(());
                }
                bar.set_message(setup.model.name());
                bar.inc(u64::from(!overall.trials.is_empty()));
                let Some(arrivals) = self.arrivals(setup, &overall.capacities) else {
                    failed.push(setup);
                    overall.skipped.push(self.without_load(setup));
                    continue;
                };
                let load = self.load(setup, arrivals, round);
                match self.make(setup, &load) {
                    Ok((trial, kept)) => {
                        keep(store, round, &trial, &kept)?;
                        overall.trials.push(trial);
                    }
                    // A trial that had only begun does not count: a process of it may have ended before it could catch the signal.
                    Err(_) if interrupted() => return Ok(()),
                    Err(RunError::Machine(reason)) => {
                        failed.push(setup);
                        let since =
                            if round > 0 { format!(", from round {} on", round + 1) } else { String::new() };
                        overall.skipped.push(Skipped { what: format!("{}{since}", setup.words()), reason });
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// A trial whose load nobody knows. Another load under its name would be compared with those of other runs.
    fn without_load(&self, setup: &Setup) -> Skipped {
        let reference = reference(self.settings).name();
        let reason = format!("its load is a part of the capacity of {reference}, which was not measured");
        Skipped { what: setup.words(), reason }
    }
}

fn keep(store: &mut Store, round: u32, trial: &ServerTrial, kept: &OfClasses) -> Result<(), RunError> {
    let classes = kept.len();
    let made = kept.iter().enumerate().filter(|(_, (samples, _))| !samples.is_empty());
    let made: Vec<_> = made
        .map(|(class, (samples, evidence))| (cell(trial, (classes > 1).then_some(class)), samples, evidence))
        .collect();
    let cells: Vec<_> =
        made.iter().map(|(cell, samples, evidence)| (cell, *samples, Some(evidence))).collect();
    store.append_explained(round, &cells)?;
    Ok(())
}

impl Experiment for ServerSettings {
    type Made = ServerOverall;

    const BROKEN: &'static str =
        "a promise did not hold: replies were wrong, lost or doubled; see the doubts";

    fn plan(&self) -> RunPlan {
        let described = json!({
            "models": self.models,
            "connections": self.connections,
            "matrices": self.matrices,
            "classes": self.classes,
            "workers": self.workers,
            "processors": self.processors,
            "lanes": self.lanes,
            "locks": self.locks,
            "tasks": self.tasks,
            "hog_ns": self.hog_ns,
            "load": self.wanted,
            "trial_s": self.duration.as_secs_f64(),
            "rounds": self.rounds,
            "dilated": self.dilates,
            "order": "models in turn, then hogs, loads, connections, matrices, round by round",
        });
        RunPlan { name: "server", warmup: WARMUP, cpus: self.cpus.into_iter().flatten().collect(), described }
    }

    fn is_traced(&self) -> bool {
        self.trace
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<ServerOverall, RunError> {
        let start = Clock::get().now();
        let mut server = Worker::start("server")?;
        let (cpu, dilates) = (self.cpus[0], self.dilates);
        // Unpinned is slower, not wrong.
        let _unpinned = self.cpus[1].map(pin_to);
        let matrices = self.matrices.clone();
        let calibration: WorkTimes = server.ask(&ServerRequest::Calibrate { cpu, dilates, matrices })?;
        let mut trials = Trials {
            settings: self,
            server,
            start,
            calibration: calibration.clone(),
            broken: Vec::new(),
            broken_by_others: Vec::new(),
        };
        let setups = plan(self);
        let load_shares = setups.iter().any(|setup| trials.shares(setup));
        let mut overall =
            ServerOverall { calibration, classes: self.classes, load_shares, ..ServerOverall::default() };
        let is_open = matches!(self.wanted, Wanted::Open { .. });
        let capacities = if is_open { of_capacity(self) } else { Vec::new() };
        let tries = CAPACITY_TRIES * capacities.len();
        bar.set_length(u64::from(self.rounds) * setups.len() as u64 + tries as u64);
        trials.capacities(&capacities, &mut overall, bar)?;
        trials.all(&setups, &mut overall, store, bar)?;
        (overall.broken, overall.broken_by_others) = (trials.broken, trials.broken_by_others);
        Ok(overall)
    }

    fn summarise(&self, made: &ServerOverall, store: &Store) -> Result<Summary, StoreError> {
        let (mut summary, _) = explained_summary(store, |_| ())?;
        cut_short(&mut summary, made.trials.len());
        summary.skipped.extend(made.skipped.iter().cloned());
        made.broken.iter().for_each(|broken| summary.doubt(broken::doubt(broken)));
        made.broken_by_others.iter().for_each(|broken| summary.doubt(broken::doubt_of_others(broken)));
        // One of each connection would be a long list.
        summary.results.iter_mut().for_each(|result| result.first_ns.clear());
        summary.more.insert("server".to_owned(), json!(made));
        Ok(summary)
    }

    fn promise(&self, summary: &Summary, made: &ServerOverall) -> Result<(), String> {
        match made.broken.first() {
            Some(broken) => Err(broken.clone()),
            None if summary.kept_promises_of(|cell| !ServerModel::is_of_others(&cell.engine)) => Ok(()),
            None => Err(Self::BROKEN.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Patience;
    use super::super::setup::tests::settings as of_combinations;
    use super::*;
    use crate::sample::Outcome;

    fn settings() -> ServerSettings {
        ServerSettings {
            models: ServerModel::ALL.into(),
            matrices: vec![3],
            workers: vec![1],
            lanes: vec![0],
            locks: vec![LineLock::Mutex, LineLock::Ticket, LineLock::Try],
            hog_ns: 0,
            wanted: Wanted::Closed { think_ns: 1_000_000, is_original: false },
            duration: Duration::from_millis(400),
            dilates: false,
            ..of_combinations()
        }
    }

    /// Replies of a class that a task may have written when its server ended, and not noted. They are the last.
    const UNNOTED_MAX: usize = 8;

    /// The stages of an answered request are all of it, and nothing but it. Each is known, but of the last requests.
    fn stages_sum(model: ServerModel, samples: &Samples) {
        for row in (0..samples.len()).filter(|&row| samples.outcome[row] == Outcome::Answered) {
            if samples.stages.iter().any(|stage| stage.ns[row] == crate::sample::ABSENT_NS) {
                assert!(row + UNNOTED_MAX > samples.len(), "{model:?}: {row} of {}", samples.len());
                continue;
            }
            let rest = samples.unexplained_ns(row).expect("it has stages");
            assert!(rest.abs() < 100, "{model:?}: {rest} ns of {} in no stage", samples.total_ns[row]);
        }
    }

    /// Every stage has a thread that is known, on each connection.
    fn has_threads(model: ServerModel, evidence: &TrialEvidence) -> bool {
        let roles = evidence.stages.iter().map(|stage| stage.role.as_deref().expect("one worker"));
        let mut of_connections = roles.flat_map(|role| (0..4).map(move |connection| (role, connection)));
        assert_eq!(evidence.threads.len(), if model.has_tasks() { 2 } else { 13 });
        of_connections.all(|(role, connection)| evidence.thread(role, Some(connection)).is_some())
    }

    /// Goal: the same open load is the same cell in another run, regardless of the server's capacity there. Another load is another
    /// cell, as is another think time.
    #[test]
    fn a_cell_does_not_depend_on_what_was_measured() {
        let [half, most] = [50, 80].map(|percent| Setup { percent, connections: 4, ..Setup::default() });
        let of = |setup: Setup, arrivals| {
            let Setup { connections, matrix, .. } = setup;
            let (duration, slow) = (Duration::from_secs(1), SLOW);
            let load = ServerLoad {
                connections,
                classes: 2,
                matrix,
                arrivals,
                duration,
                seed: 1,
                slow,
                patience: Patience::default(),
                trace: false,
            };
            cell(&describe(&setup, &load, &[], &[], Served::default()), Some(1))
        };
        for open in [|period_ns| Arrivals::Open { period_ns }, |period_ns| Arrivals::Random { period_ns }] {
            assert_eq!(of(half, open(1_234_567)), of(half, open(2_345_678)));
            assert_ne!(of(half, open(1_234_567)), of(most, open(1_234_567)));
        }
        let closed = |think_ns| of(Setup::default(), Arrivals::Closed { think_ns });
        assert_ne!(closed(1_000_000), closed(2_000_000));
        // Nor are requests at random instants those at equal ones, nor the original's load ours.
        let period_ns = 1_234_567;
        assert_ne!(of(half, Arrivals::Open { period_ns }), of(half, Arrivals::Random { period_ns }));
        let original = Arrivals::Original { think_ns: 1_000_000 };
        assert_ne!(closed(1_000_000), of(Setup::default(), original));
    }

    /// Goal: the cost of set-up that a connection's first request pays is in no figure of the steady state.
    #[test]
    fn the_first_request_of_each_connection_is_apart() {
        let (setup, start) = (Setup { connections: 8, ..Setup::default() }, Clock::get().now());
        let row = |place: usize| {
            let (connection, number) = (place % 8, place / 8);
            let sent = Clock::get().nanos(start) + place as u64 * 30_000_000;
            let until = sent + if number == 0 { 20_000_000 } else { 1_000_000 };
            client::RequestRow {
                connection,
                number,
                due: sent,
                sent,
                posted: None,
                until,
                outcome: Outcome::Answered,
            }
        };
        let clocks = [crate::explain::kept::ClockPair::now(); 2];
        let loaded = client::Loaded {
            rows: (0..80).map(row).collect(),
            ports: (0..8).collect(),
            duplicated: vec![3],
            lags_ns: Vec::new(),
            passed: Duration::from_secs(3),
            waited: Duration::ZERO,
            worked_off: 0,
            windows: crate::explain::kept::ThreadWindows::default(),
            recorder: None,
            clocks,
        };
        let load = ServerLoad {
            connections: 8,
            classes: 1,
            matrix: 1,
            arrivals: Arrivals::Closed { think_ns: 0 },
            duration: Duration::from_secs(3),
            seed: 1,
            slow: SLOW,
            patience: Patience::default(),
            trace: false,
        };
        let journal = super::super::journal::JournalEnd::default();
        let made = TrialMade { cpus: [None; 2], setup, load: &load, start, passed: Vec::new(), journal };
        let kept = made.keep(loaded);
        let samples = &kept[0].0;
        let result = crate::summary::CellResult::of(
            &CellId::new("classes", "c8"),
            std::slice::from_ref(samples),
            WARMUP,
        );
        assert_eq!((result.figures.count, result.figures.max), (72, Some(1_000_000)));
        assert!(result.duplicated == 3 && !result.kept_promises(), "{result:?}");
        let trial = describe(&setup, &load, &[samples], &[], Served::default());
        assert_eq!((&trial.requests, &trial.mean_ns), (&vec![80], &vec![Some(1_000_000)]));
        assert_eq!(trial.steady, [72]);
        assert_eq!(trial.p50_ns, [Some(1_000_000)]);
    }

    /// Trials at a server, of which nothing was measured yet.
    fn trials(settings: &ServerSettings, server: Worker) -> Trials<'_> {
        let calibration = WorkTimes { repeats: 1, ..WorkTimes::default() };
        let (start, broken, broken_by_others) = (Clock::get().now(), Vec::new(), Vec::new());
        Trials { settings, server, start, calibration, broken, broken_by_others }
    }

    /// A server that closes all connections of its trial when each has asked, and then has no end.
    fn close_all(mut requests: crate::run::Requests) -> Result<(), String> {
        let words = |error: std::io::Error| error.to_string();
        while let Some(request) = requests.recv::<ServerRequest>() {
            let ServerRequest::Serve(serving) = request else {
                requests.answer(&crate::run::Answer::<ServedEnd>::Err("it is broken".to_owned()))?;
                continue;
            };
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).map_err(words)?;
            requests.answer(&Ok(listener.local_addr().map_err(words)?))?;
            let accept = |_| listener.accept().map(|(stream, _)| stream);
            let accepted: std::io::Result<Vec<_>> = (0..serving.setup.connections).map(accept).collect();
            for mut stream in accepted.map_err(words)? {
                std::io::Read::read_exact(&mut stream, &mut [0; 2]).map_err(words)?;
            }
        }
        Ok(())
    }

    /// Goal: a server that breaks in the midst of a trial breaks a promise, and is no trial that could not be made.
    #[test]
    fn a_trial_whose_server_breaks_keeps_its_rows() {
        let server = Worker::in_a_thread(close_all).unwrap();
        let settings = settings();
        let mut trials = trials(&settings, server);
        let setup = plan(&settings)[0];
        let load = trials.load(&setup, trials.arrivals(&setup, &[]).unwrap(), 0);
        let (trial, kept) = trials.make(&setup, &load).unwrap();
        let lost: u64 = kept.iter().map(|(samples, _)| samples.count_of(Outcome::Lost)).sum();
        assert_eq!((lost, trial.served.ended.as_deref()), (4, Some("it is broken")), "{trial:?}");
        let overall = ServerOverall { broken: trials.broken, ..ServerOverall::default() };
        let told = settings.promise(&Summary::default(), &overall).unwrap_err();
        assert!(told.contains("it is broken"), "{told}");
        assert_eq!(settings.promise(&Summary::default(), &ServerOverall::default()), Ok(()));
    }

    /// Goal: what a server loses that is a program of others is a doubt, and no promise of ours; nor is it if that program ends.
    #[test]
    fn a_program_of_others_breaks_no_promise_of_ours() {
        let settings = settings();
        let mut trials = trials(&settings, Worker::in_a_thread(close_all).unwrap());
        for model in [ServerModel::Glommio, ServerModel::Classes] {
            let is_ours = model == ServerModel::Classes;
            trials.note_broken(&Setup { model, ..plan(&settings)[0] }, [format!("{} ended", model.name())]);
            let mut lost = Samples::default();
            lost.push(0, 0, 0, 1, Outcome::Lost);
            let mut summary = Summary::default();
            summary.add(&CellId::new(model.name(), "c8"), &[lost], 0);
            let kept = settings.promise(&summary, &ServerOverall::default());
            assert_eq!(kept.is_err(), is_ours, "{model:?}: {kept:?}");
            assert_eq!(summary.doubts.len(), 1, "{model:?}");
        }
        assert_eq!(
            (trials.broken, trials.broken_by_others),
            (vec!["classes ended".to_owned()], vec!["glommio ended".to_owned()])
        );
    }

    /// Goal: the original's load waits for what is open at its end, and counts it. Method: nobody thinks, so that every connection
    /// has a request open then.
    #[test]
    fn the_original_load_leaves_nothing_open() {
        let server = Worker::in_a_thread(super::super::host::serve).unwrap();
        let wanted = Wanted::Closed { think_ns: 0, is_original: true };
        let settings = ServerSettings { models: vec![ServerModel::Classes], wanted, ..settings() };
        let mut trials = trials(&settings, server);
        let setup = plan(&settings)[0];
        let load = trials.load(&setup, trials.arrivals(&setup, &[]).unwrap(), 0);
        let (trial, kept) = trials.make(&setup, &load).unwrap();
        assert!(trial.requests.iter().all(|&count| count >= 2), "{trial:?}");
        for (samples, _) in &kept {
            assert_eq!(samples.count_of(Outcome::Answered), samples.len() as u64, "{trial:?}");
        }
    }

    /// Goal: the whole way over real connections, each model: every reply is right, and none is missing under a light load.
    #[test]
    fn every_model_answers() {
        let mut server = Worker::in_a_thread(super::super::host::serve).unwrap();
        let request = ServerRequest::Calibrate { cpu: None, dilates: false, matrices: vec![3] };
        let calibration: WorkTimes = server.ask(&request).unwrap();
        assert!(calibration.repeats == 1 && calibration.service_ns[0].1 > 0);
        let settings = settings();
        let mut trials = Trials { calibration, ..trials(&settings, server) };
        for setup in plan(&settings) {
            let model = setup.model;
            let load = trials.load(&setup, trials.arrivals(&setup, &[]).unwrap(), 0);
            let (trial, kept) = trials.make(&setup, &load).unwrap();
            let samples: Vec<&Samples> = kept.iter().map(|(samples, _)| samples).collect();
            assert!(trial.requests.iter().all(|&count| count > 0), "{trial:?}");
            samples.iter().for_each(|of| stages_sum(model, of));
            // The poller that had a task is not known if there are several.
            let is_known = setup.pollers() <= 1;
            assert!(!is_known || kept.iter().all(|(_, evidence)| has_threads(model, evidence)), "{kept:?}");
            assert!(samples.iter().all(|of| of.count_of(Outcome::Mismatched) == 0), "{model:?}");
            let unanswered: u64 = samples.iter().map(|of| of.count_of(Outcome::Unfinished)).sum();
            assert!(unanswered <= 4, "one on each connection when it ended");
            if model.has_classes() {
                let requests: u64 = trial.requests.iter().sum();
                assert!(trial.served.wakes >= requests, "{trial:?}");
            }
        }
        assert!(trials.server.ask::<ServedEnd>(&ServerRequest::End).is_err());
    }
}
