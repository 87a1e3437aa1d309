//! Trials to make: every combination of what was asked for, in turn, and the name of each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::Patience;
use super::experiment::{ServerSettings, Wanted};
use super::host::WorkTimes;
use super::model::{LineLock, ServerModel};
use crate::distinct::distinct;

/// Setup of one trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The model that serves.
    pub model: ServerModel,
    /// Of the load.
    pub connections: usize,
    /// Side of the matrix that a request holds.
    pub matrix: usize,
    /// Where the model has any, besides those of lanes.
    #[serde(default)]
    pub workers: usize,
    /// On which its process may run.
    #[serde(default)]
    pub processors: usize,
    /// Workers that serve class 0 alone.
    #[serde(default)]
    pub lanes: usize,
    /// A task, or a thread, of the last class keeps a worker for so long again and again; 0 if there is none.
    #[serde(default)]
    pub hog_ns: u64,
    /// The open load, hundredths of the capacity; 0 under closed load.
    #[serde(default)]
    pub percent: u32,
    /// Lock that pollers of one line take before they touch it.
    #[serde(default)]
    pub lock: LineLock,
}

impl Setup {
    /// Its numbers by name, of those that have a usual value only others.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let unusual = |name, number: usize, usual| (name, number != usual, number.to_string());
        let all = [
            ("c", true, self.connections.to_string()),
            ("m", true, self.matrix.to_string()),
            unusual("w", self.workers, 1),
            unusual("p", self.processors, 1),
            ("rho", self.percent > 0, (f64::from(self.percent) / 100.0).to_string()),
            unusual("lanes", self.lanes, 0),
            ("hog", self.hog_ns > 0, String::new()),
            ("ticket", self.lock == LineLock::Ticket, String::new()),
            ("try", self.lock == LineLock::Try, String::new()),
        ];
        all.into_iter().filter(|(_, is_said, _)| *is_said).map(|(name, _, number)| (name, number))
    }

    /// Part of a cell's name behind its model.
    pub fn name(&self) -> String {
        self.numbers().map(|(name, number)| format!("{name}{number}")).collect::<Vec<_>>().join("/")
    }

    /// The same for people, with its model.
    pub fn words(&self) -> String {
        let numbers = self.numbers().map(|(name, number)| format!(", {name} {number}"));
        let words = format!("{}{}", self.model.name(), numbers.collect::<String>());
        words.replace("rho", "ρ").trim_end().to_owned()
    }

    /// The same without connections and matrix.
    pub fn brief(&self) -> String {
        let numbers = self.numbers().filter(|(name, _)| !["c", "m"].contains(name));
        let words: String = numbers.map(|(name, number)| format!(", {name} {number}")).collect();
        format!("{}{words}", self.model.name()).replace("rho", "ρ").trim_end().to_owned()
    }

    /// Threads that poll its tasks; 0 of a model without tasks.
    pub fn pollers(&self) -> usize {
        match self.model {
            ServerModel::ThreadsBlocking | ServerModel::ThreadsYield => 0,
            ServerModel::TwoTokios => 2 * self.workers,
            _ => self.workers + self.lanes,
        }
    }

    /// The same load for `model`, without the settings by which trials of one model differ.
    pub fn beside(&self, model: ServerModel) -> Self {
        Self { model, lanes: 0, lock: LineLock::Mutex, ..*self }
    }

    /// Setup whose capacity this one's load is a part of.
    fn measured(&self, model: ServerModel) -> Self {
        Self { hog_ns: 0, percent: 0, ..self.beside(model) }
    }
}

/// Capacity of a model: replies a second to connections that ask again at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Of which trial.
    #[serde(flatten)]
    pub setup: Setup,
    /// Requests that were answered.
    pub per_second: f64,
}

/// The trials of one round, models in turn.
pub(super) fn plan(settings: &ServerSettings) -> Vec<Setup> {
    let percents = match &settings.wanted {
        Wanted::Closed { .. } => vec![0],
        Wanted::Open { percents, .. } => percents.clone(),
    };
    let hogs: &[bool] = if settings.hog_ns > 0 { &[false, true] } else { &[false] };
    let mut setups = Vec::new();
    for &matrix in &settings.matrices {
        for &connections in &settings.connections {
            for &percent in &percents {
                for &has_hog in hogs {
                    let hog_ns = if has_hog { settings.hog_ns } else { 0 };
                    let of =
                        |&model| Setup { model, connections, matrix, hog_ns, percent, ..Setup::default() };
                    setups.extend(settings.models.iter().map(of).flat_map(|setup| of_model(settings, setup)));
                }
            }
        }
    }
    setups
}

/// The trials of one load of a model: workers mean nothing to threads, lanes nothing where there are no classes, and locks
/// nothing where no line is shared.
fn of_model(settings: &ServerSettings, setup: Setup) -> Vec<Setup> {
    let ServerSettings { workers, processors, lanes, .. } = settings;
    let locks = if setup.model == ServerModel::Pollers { &settings.locks[..] } else { &[LineLock::Mutex] };
    let workers = if setup.model.has_workers() { &workers[..] } else { &[1] };
    let lanes = if setup.model.has_classes() { &lanes[..] } else { &[0] };
    let mut setups = Vec::new();
    for &processors in processors {
        for &workers in workers {
            for &lock in locks {
                setups.extend(lanes.iter().map(|&lanes| Setup { workers, processors, lanes, lock, ..setup }));
            }
        }
    }
    setups
}

/// The trials by which capacities are measured: each load of each model once, without a hog.
pub(super) fn of_capacity(settings: &ServerSettings) -> Vec<Setup> {
    distinct(plan(settings).iter().map(|setup| setup.measured(setup.model)))
}

/// Model whose capacity is the unit for every model, so that all have the same load: tokio's where it is measured, else the first
/// one's.
pub(super) fn reference(settings: &ServerSettings) -> ServerModel {
    let tokio = settings.models.iter().find(|&&model| model == ServerModel::Tokio);
    *tokio.or(settings.models.first()).unwrap_or(&ServerModel::Tokio)
}

/// The mean time between two requests of an open load; `None` where the capacity that it is a part of is not known.
pub(super) fn period_ns(setup: &Setup, capacities: &[Capacity], reference: ServerModel) -> Option<u64> {
    let wanted = setup.measured(reference);
    let of = |setup| capacities.iter().find(|capacity| capacity.setup == setup);
    // Threads, and models with one worker alone, have one capacity, regardless of the others' workers: then the first of the same load.
    let is_same_load = |capacity: &&Capacity| Setup { workers: wanted.workers, ..capacity.setup } == wanted;
    let has_own = setup.model.has_workers() && reference.has_workers();
    let found = of(wanted).or_else(|| capacities.iter().find(is_same_load).filter(|_| !has_own));
    let per_second = found.map(|capacity| capacity.per_second).filter(|&rate| rate > 0.0)?;
    Some(((1e11 / (per_second * f64::from(setup.percent.max(1)))) as u64).max(1))
}

/// Polls of a hog between two looks of a runtime at its sockets, and as many again.
const HOGGED_POLLS: u32 = 128;

/// Silence of a server that has nothing left to work off: some seconds, and the longest pause that its setup explains.
pub(super) fn patience(calibration: &WorkTimes, setup: &Setup) -> Patience {
    let usual = Patience::default();
    let work = 2 * Duration::from_nanos(calibration.service_ns(setup.matrix));
    let hog = Duration::from_nanos(setup.hog_ns).saturating_mul(HOGGED_POLLS);
    // Without a processor the holder of a ticket keeps all others waiting.
    let convoy = if setup.lock == LineLock::Ticket { usual.total } else { Duration::ZERO };
    let silence = usual.silence.saturating_add(work).saturating_add(hog).saturating_add(convoy);
    Patience { silence: silence.min(SILENCE_MAX), ..usual }
}

/// Longest silence that is waited for.
const SILENCE_MAX: Duration = Duration::from_mins(1);

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::server) fn settings() -> ServerSettings {
        ServerSettings {
            models: vec![
                ServerModel::ThreadsBlocking,
                ServerModel::Classes,
                ServerModel::Tokio,
                ServerModel::Pollers,
            ],
            connections: vec![4],
            matrices: vec![20],
            classes: 2,
            workers: vec![1, 2],
            processors: vec![1],
            lanes: vec![0, 1],
            locks: vec![LineLock::Ticket, LineLock::Mutex],
            tasks: super::super::host::TaskSettings::default(),
            peer_server: std::path::PathBuf::new(),
            hog_ns: 7,
            wanted: Wanted::Open { percents: vec![50, 120], is_random: false },
            duration: std::time::Duration::from_secs(1),
            rounds: 1,
            dilates: true,
            seed: 1,
            cpus: [None; 2],
            available: Vec::new(),
            trace: false,
        }
    }

    /// Goal: every combination that differs is a trial, once, with a name of its own; threads have no workers and only classes lanes.
    #[test]
    fn every_combination_is_a_trial() {
        let setups = plan(&settings());
        // Threads 1, classes 2 × 2, tokio 2, pollers 2 × 2; with a hog and without, at two loads.
        assert_eq!(setups.len(), (1 + 4 + 2 + 4) * 4);
        let names: std::collections::BTreeSet<String> =
            setups.iter().map(|setup| format!("{}/{}", setup.model.name(), setup.name())).collect();
        assert_eq!(names.len(), setups.len());
        for name in
            ["tokio/c4/m20/rho0.5", "classes/c4/m20/w2/rho1.2/lanes1/hog", "pollers/c4/m20/rho0.5/ticket"]
        {
            assert!(names.contains(name), "{names:?}");
        }
        assert_eq!(of_capacity(&settings()).len(), 1 + 2 + 2 + 2);
    }

    /// Goal: all models have the same load, a part of what the one that they are compared with can do, by as many workers.
    #[test]
    fn an_open_load_is_of_what_was_measured() {
        let settings = settings();
        assert_eq!(reference(&settings), ServerModel::Tokio);
        let capacities: Vec<Capacity> = of_capacity(&settings)
            .into_iter()
            .map(|setup| Capacity {
                setup,
                per_second: match setup.model {
                    ServerModel::Tokio => 500.0 * setup.workers as f64,
                    _ => 1.0,
                },
            })
            .collect();
        for setup in plan(&settings) {
            let part = f64::from(setup.percent) / 100.0;
            let due = (1e9 / (500.0 * setup.workers as f64 * part)) as u64;
            let period_ns = period_ns(&setup, &capacities, ServerModel::Tokio);
            assert!(period_ns.is_some_and(|ns| ns.abs_diff(due) <= 1), "{setup:?}: {period_ns:?}");
        }
        // One that is said to have one worker has the load of the first number of workers that was measured.
        let of_two: Vec<Capacity> =
            capacities.iter().filter(|capacity| capacity.setup.workers == 2).cloned().collect();
        let one =
            Setup { percent: 100, matrix: 20, connections: 4, workers: 1, processors: 1, ..Setup::default() };
        assert_eq!(period_ns(&one, &of_two, ServerModel::Tokio), Some(1_000_000));
        // Another one has not: the capacity with its number of workers could not be measured.
        let classes = Setup { model: ServerModel::Classes, ..one };
        assert_eq!(period_ns(&classes, &of_two, ServerModel::Tokio), None);
        // Without a measurement, or with one in which nothing was answered, it is not known.
        let none: Vec<Capacity> =
            of_two.iter().map(|of| Capacity { per_second: 0.0, ..of.clone() }).collect();
        for capacities in [&[][..], &none] {
            assert_eq!(period_ns(&one, capacities, ServerModel::Tokio), None);
        }
    }
}
