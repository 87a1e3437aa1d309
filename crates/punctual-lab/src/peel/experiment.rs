//! All rounds of a peel: every layer in turn, then starts of fresh processes with and without each mistake in turn.

use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks, Wake};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::addresses::{Addresses, LinkPlan};
use super::analysis::{Found, Interval, Part, Peeled, Rounds, first_message, look_for, peel, until_ready};
use super::layer::{InjectedFault, Layer, cell};
use super::startup::{Order, StartUp};
use super::testbed::{MadeTrial, Testbed};
use crate::link::Medium;
use crate::sample::Samples;
use crate::stats::Distribution;
use crate::store::{Store, StoreError};
use crate::summary::Skipped;
use crate::worker::Worker;

/// Other processes that start at the same time: with ours the original's fifteen.
const CROWD: usize = 14;
/// Messages of each trial that count as warm-up: what a fresh link and a cold cache cost is no layer's.
pub const WARMUP: u64 = 50;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Between the two ends.
    pub medium: Medium,
    /// How the asynchronous layer sleeps.
    pub wake: Wake,
    /// Rounds of the layers.
    pub rounds: u32,
    /// Starts of each kind.
    pub starts: u32,
    /// For all trials of the layers together.
    pub duration: Duration,
    /// Most messages of a trial.
    pub count: usize,
    /// Mistakes to make.
    pub with: Vec<InjectedFault>,
    /// Repeats whatever is random.
    pub seed: u64,
    /// CPUs of both ends.
    pub cpus: [Option<usize>; 2],
}

/// Why a run ended early.
#[derive(Debug)]
pub enum RunError {
    /// The store could not be written.
    Store(StoreError),
    /// The machine cannot: what is missing and what to do.
    Machine(String),
}

/// What O_ASYNC does to the layer of asynchronous reception.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupted {
    /// Interruptions of both processes per frame that either received, without it.
    pub without_per_frame: f64,
    /// With it.
    pub with_per_frame: f64,
    /// What it adds to the layer's round trip, ns.
    pub adds: Interval,
}

/// What stands in the summary under `peel`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// What carried the ping.
    pub medium: Medium,
    /// How the asynchronous layer slept.
    pub wake: String,
    /// The layers.
    pub peeled: Peeled,
    /// Starts without a mistake.
    pub starts: Vec<StartUp>,
    /// Starts with one each.
    pub starts_with: Vec<(InjectedFault, Vec<StartUp>)>,
    /// Where each shows.
    pub found: Vec<Found>,
    /// What starts without a mistake consist of until they are ready, the longest first.
    #[serde(default)]
    pub until_ready: Vec<Part>,
    /// What the first message takes longer than later ones, stage by stage.
    #[serde(default)]
    pub first_message: Vec<Part>,
    /// In the layer of asynchronous reception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interrupted>,
}

/// What a run brought beside the store.
#[derive(Debug)]
pub struct Made {
    /// For the summary.
    pub overall: Overall,
    /// What was not measured, and why.
    pub skipped: Vec<Skipped>,
    /// Rounds made.
    pub rounds: u32,
}

/// A kind of trial: a layer, or one with a mistake.
type Kind = (Layer, Option<InjectedFault>);

struct Session<'a> {
    settings: &'a Settings,
    testbed: Testbed,
    store: &'a mut Store,
    began: Ticks,
    /// Median of each round, by kind.
    medians: Vec<(Kind, Vec<f64>)>,
    /// Interruptions and frames, by kind.
    signals: Vec<(Kind, u64, u64)>,
}

/// Makes all rounds, in a thread that may leave for a network namespace of its own.
///
/// # Errors
/// When the store cannot be written, or the machine cannot.
pub fn run(settings: &Settings, store: &mut Store, bar: &ProgressBar) -> Result<Made, RunError> {
    let addresses =
        Addresses::new(settings.medium, settings.wake).map_err(|e| RunError::Machine(e.to_string()))?;
    let testbed = Testbed::start(addresses, settings.cpus).map_err(RunError::Machine)?;
    let began = Clock::get().now();
    let mut skipped = Vec::new();
    let kinds = kinds(settings, &mut skipped);
    let medians = kinds.iter().map(|&kind| (kind, Vec::new())).collect();
    let mut session = Session { settings, testbed, store, began, medians, signals: Vec::new() };
    bar.set_length(u64::from(settings.rounds) * kinds.len() as u64 + u64::from(settings.starts));
    let mut rounds = 0;
    while rounds < settings.rounds && session.one_round(&kinds, rounds, bar)? {
        rounds += 1;
    }
    let mut overall = session.overall();
    bar.set_message("starts");
    session.starts(&mut overall, &mut skipped, bar)?;
    Ok(Made { overall, skipped, rounds })
}

fn kinds(settings: &Settings, skipped: &mut Vec<Skipped>) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Layer::ALL.into_iter().map(|layer| (layer, None)).collect();
    if settings.with.contains(&InjectedFault::SigioAtStart) {
        if settings.medium == Medium::Shared {
            skipped.push(Skipped {
                what: InjectedFault::SigioAtStart.name().to_owned(),
                reason: "shared memory has no descriptor that could raise SIGIO: --engine packet or datagram"
                    .to_owned(),
            });
        } else {
            // Beside the layer that it belongs to.
            kinds.insert(kinds.len() - 1, (Layer::Asynchronous, Some(InjectedFault::SigioAtStart)));
        }
    }
    kinds
}

impl Session<'_> {
    /// `false` if Ctrl-C cut it short.
    fn one_round(&mut self, kinds: &[Kind], round: u32, bar: &ProgressBar) -> Result<bool, RunError> {
        for &kind in kinds {
            bar.set_message(cell(self.settings.medium, kind.0, kind.1).name);
            self.one_trial(kind, round, kinds.len())?;
            if interrupted() {
                return Ok(false);
            }
            bar.inc(1);
        }
        Ok(true)
    }

    fn one_trial(&mut self, kind: Kind, round: u32, kinds: usize) -> Result<(), RunError> {
        let (layer, culprit) = kind;
        let plan = LinkPlan { layer, interrupted: culprit == Some(InjectedFault::SigioAtStart), number: 0 };
        let share = self.settings.duration / (self.settings.rounds * kinds as u32);
        let made = self.testbed.make(plan, share, self.settings.count);
        let MadeTrial { recording, signals, frames } =
            made.map_err(|text| RunError::Machine(format!("{}: {text}", layer.name())))?;
        let samples = recording.round_trips(Clock::get(), self.began, 0, false);
        let ns = Distribution::of(std::slice::from_ref(&samples), crate::sample::Phase::Steady, WARMUP);
        let Some(median) = ns.median_ns() else {
            if interrupted() {
                return Ok(());
            }
            return Err(RunError::Machine(format!("{}: no answers; raise --duration", layer.name())));
        };
        if let Some((_, medians)) = self.medians.iter_mut().find(|(found, _)| *found == kind) {
            medians.push(median as f64);
        }
        match self.signals.iter_mut().find(|(found, _, _)| *found == kind) {
            Some(sums) => (sums.1, sums.2) = (sums.1 + signals, sums.2 + frames),
            None => self.signals.push((kind, signals, frames)),
        }
        self.keep(kind, round, samples)
    }

    fn keep(&mut self, kind: Kind, round: u32, mut samples: Samples) -> Result<(), RunError> {
        // Every trial opens everything anew, so every index begins at 0.
        samples.stages.clear();
        let cell = cell(self.settings.medium, kind.0, kind.1);
        self.store.append(&cell, round, &samples).map(drop).map_err(RunError::Store)
    }

    fn medians_of(&self, kind: Kind) -> Vec<f64> {
        self.medians.iter().find(|(found, _)| *found == kind).map(|(_, m)| m.clone()).unwrap_or_default()
    }

    fn overall(&self) -> Overall {
        // A round that Ctrl-C cut short has not all of them.
        let whole = self.medians.iter().map(|(_, medians)| medians.len()).min().unwrap_or(0);
        let of = |layer| {
            let mut medians_ns = self.medians_of((layer, None));
            medians_ns.truncate(whole);
            Rounds { layer, medians_ns }
        };
        let rounds: Vec<Rounds> = Layer::ALL.into_iter().map(of).collect();
        Overall {
            medium: self.settings.medium,
            wake: self.settings.wake.to_string(),
            peeled: peel(&rounds, self.settings.seed),
            interrupted: self.interrupted(),
            ..Overall::default()
        }
    }

    fn interrupted(&self) -> Option<Interrupted> {
        let without = (Layer::Asynchronous, None);
        let with = (Layer::Asynchronous, Some(InjectedFault::SigioAtStart));
        let rate = |kind| {
            let found = self.signals.iter().find(|(found, _, _)| *found == kind)?;
            Some(found.1 as f64 / found.2.max(1) as f64)
        };
        let pairs = self.medians_of(with).into_iter().zip(self.medians_of(without));
        let differences: Vec<f64> = pairs.map(|(with, without)| with - without).collect();
        Some(Interrupted {
            without_per_frame: rate(without)?,
            with_per_frame: rate(with)?,
            adds: Interval::of(&differences, self.settings.seed),
        })
    }

    fn starts(
        &mut self,
        overall: &mut Overall,
        skipped: &mut Vec<Skipped>,
        bar: &ProgressBar,
    ) -> Result<(), RunError> {
        let possible = |culprit: &InjectedFault| {
            *culprit != InjectedFault::SigioAtStart || self.settings.medium != Medium::Shared
        };
        let culprits: Vec<InjectedFault> = self.settings.with.iter().copied().filter(possible).collect();
        overall.starts_with = culprits.iter().map(|&culprit| (culprit, Vec::new())).collect();
        for _ in 0..self.settings.starts {
            if interrupted() {
                break;
            }
            let clean = self.one_start(None).map_err(RunError::Machine)?;
            overall.starts.push(clean);
            for (culprit, starts) in &mut overall.starts_with {
                let culpable = self.one_start(Some(*culprit)).map_err(RunError::Machine)?;
                starts.push(culpable);
            }
            bar.inc(1);
        }
        if overall.starts.is_empty() {
            let reason = "the run was interrupted before".to_owned();
            skipped.push(Skipped { what: "starts of fresh processes".to_owned(), reason });
        }
        overall.until_ready = until_ready(&overall.starts, self.settings.seed);
        overall.first_message = first_message(&overall.starts, self.settings.seed);
        overall.found = overall
            .starts_with
            .iter()
            .filter(|(_, starts)| !starts.is_empty())
            .map(|(culprit, starts)| look_for(*culprit, &overall.starts, starts, self.settings.seed))
            .collect();
        Ok(())
    }

    /// A fresh process that pings the responder; with a crowd, if that is the mistake.
    fn one_start(&mut self, culprit: Option<InjectedFault>) -> Result<StartUp, String> {
        let plan = LinkPlan { layer: Layer::Whole, interrupted: false, number: 0 };
        let plan = self.testbed.begin(plan)?;
        let order = |bystander| Order {
            addresses: self.testbed.end.addresses.clone(),
            plan,
            started_ns: monotonic_ns(),
            culprit,
            bystander,
        };
        let mut crowd = Vec::new();
        let crowded = if culprit == Some(InjectedFault::CrowdAtStart) { CROWD } else { 0 };
        // Ours in the middle: some have begun to start, and some begin after it.
        for _ in 0..crowded / 2 {
            crowd.push(start_with(&order(true))?);
        }
        let mut ours = start_with(&order(false))?;
        for _ in crowded / 2..crowded {
            crowd.push(start_with(&order(true))?);
        }
        let paid: Result<StartUp, String> = ours.recv()?;
        for bystander in &mut crowd {
            bystander.recv::<Result<StartUp, String>>()??;
        }
        self.testbed.ended()?;
        paid
    }
}

fn start_with(order: &Order) -> Result<Worker, String> {
    let mut worker = Worker::start(&["peel-start"])?;
    worker.send(order)?;
    Ok(worker)
}
