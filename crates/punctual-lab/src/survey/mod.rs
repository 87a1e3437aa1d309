//! The survey: how long a message takes on this machine by every route and every way of waiting.
//!
//! Trials of all cells are taken in turns, so that drift of the machine meets all alike; each is on disk before the next.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::host::{Facility, HostFacts};
use punctual_machine::signal::interrupted;

use crate::doubt::{Cause, page_faults};
use crate::sample::{Kind, Load, Samples};
use crate::store::{Run, Store, StoreError};
use crate::summary::{Skipped, Summary};

mod addresses;
mod advice;
mod cost;
mod overview;
mod plan;
mod testbed;

pub use advice::advise;
pub use cost::{LibraryCost, costs};
pub use overview::sections;
pub use plan::{Cell, Manner, Place, Plan, PlanOptions, Route, WARMUP};
pub use testbed::serve;
use testbed::{Made, Order, Testbed};

/// A survey in the making.
struct Survey<'a> {
    plan: &'a Plan,
    addresses: addresses::Addresses,
    testbeds: HashMap<Place, Testbed>,
    /// Places that could not be opened, so that the reason is given once.
    closed: HashSet<Place>,
    cpus: [Option<usize>; 2],
    start: Ticks,
    skipped: Vec<Skipped>,
    store: &'a mut Store,
}

/// Which CPUs the two ends are pinned to: the first and the last that this process may use.
pub fn choose_cpus() -> [Option<usize>; 2] {
    let allowed = punctual_machine::cpu::allowed();
    [allowed.first().copied(), allowed.last().copied()]
}

/// Makes all trials of the plan. Each trial is in the store, also when it is cut short.
///
/// # Errors
/// When the store cannot be written, or this machine has no port to spare.
pub fn run(
    plan: &Plan,
    facts: &HostFacts,
    store: &mut Store,
    bar: &ProgressBar,
) -> Result<Outcome, SurveyError> {
    let addresses = addresses::Addresses::new()
        .map_err(|error| SurveyError::Machine(format!("no free UDP port: {error}")))?;
    let mut survey = Survey {
        plan,
        addresses,
        testbeds: HashMap::new(),
        closed: HashSet::new(),
        cpus: choose_cpus(),
        start: Clock::get().now(),
        skipped: Vec::new(),
        store,
    };
    let cells = survey.feasible(facts);
    bar.set_length(cells.len() as u64 * u64::from(plan.trials));
    let made = survey.all_trials(&cells, bar)?;
    Ok(Outcome { skipped: survey.skipped, made })
}

/// How a survey ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was not measured, and why.
    pub skipped: Vec<Skipped>,
    /// Trials made.
    pub made: usize,
}

/// Why a survey ended early.
#[derive(Debug)]
pub enum SurveyError {
    /// The store could not be written.
    Store(StoreError),
    /// The machine cannot: what is missing and what to do.
    Machine(String),
}

impl Survey<'_> {
    /// The plan's cells that this machine can measure; the others are noted with the reason.
    fn feasible(&mut self, facts: &HostFacts) -> Vec<Cell> {
        let one_cpu = self.cpus[0] == self.cpus[1];
        if one_cpu {
            self.skip(
                "every polling route, and open load, whose client polls",
                "two processors are needed to poll, and this process may use one only: give it a second, or ask for routes that sleep (--only shared/futex)",
            );
        }
        let missing = |name| facts.facility(name).filter(|facility| !facility.is_available()).map(describe);
        let packet = missing(Facility::PACKET_SOCKETS);
        let memory = missing(Facility::SHARED_MEMORY);
        let wants = |test: fn(&Cell) -> bool| self.plan.cells.iter().any(test);
        let wants_segment = wants(|cell| cell.route.place() == Place::Segment);
        let wants_shared = wants(|cell| matches!(cell.route, Route::Shared(_)));
        if let Some(reason) = packet.as_ref().filter(|_| wants_segment) {
            self.skip("raw Ethernet", reason);
            self.closed.insert(Place::Segment);
        }
        if let Some(reason) = memory.as_ref().filter(|_| wants_shared) {
            self.skip("shared memory", reason);
        }
        let cells = self.plan.cells.iter().filter(|cell| {
            let shared = matches!(cell.route, Route::Shared(_));
            !(one_cpu && (cell.route.spins() || cell.load == Load::Open))
                && !(memory.is_some() && shared)
                && !self.closed.contains(&cell.route.place())
        });
        cells.copied().collect()
    }

    fn skip(&mut self, what: &str, reason: &str) {
        self.skipped.push(Skipped { what: what.to_owned(), reason: reason.to_owned() });
    }

    fn all_trials(&mut self, cells: &[Cell], bar: &ProgressBar) -> Result<usize, SurveyError> {
        let unit = self.plan.unit();
        let mut made = 0;
        let mut failed: HashSet<String> = HashSet::new();
        for trial in 0..self.plan.trials {
            // Backwards every other time, so that nobody always has the same one before.
            let backwards = trial % 2 == 1;
            for place in 0..cells.len() {
                let cell = &cells[if backwards { cells.len() - 1 - place } else { place }];
                if interrupted() {
                    return Ok(made);
                }
                let name = cell.id(Kind::RoundTrip).name;
                bar.set_message(name.clone());
                bar.inc(1);
                if self.closed.contains(&cell.route.place()) || failed.contains(&name) {
                    continue;
                }
                match self.one_trial(cell, trial, unit) {
                    Ok(()) => made += 1,
                    Err(SurveyError::Machine(reason)) => {
                        self.skip(&name, &reason);
                        failed.insert(name);
                    }
                    Err(store) => return Err(store),
                }
            }
        }
        Ok(made)
    }

    fn one_trial(&mut self, cell: &Cell, trial: u32, unit: Duration) -> Result<(), SurveyError> {
        let mut order = Order { cell: *cell, trial: cell.trial(unit, self.plan.count_max) };
        if cell.manner == Manner::Busy {
            let [here, there] = self.cpus;
            order.trial.neighbours = [here, there.filter(|_| there != here)];
        }
        let Some(testbed) = self.testbed(cell.route.place()) else { return Ok(()) };
        let made = testbed.make(order).map_err(SurveyError::Machine)?;
        let clock = Clock::get();
        let open_load = cell.load == Load::Open;
        // Both communicators, and of a floor everything, were opened for this trial: it begins at 0.
        let mut round_trips = made.recording.round_trips(clock, self.start, 0, open_load);
        note_facts(&mut round_trips, cell, &made);
        let one_ways = made.recording.one_ways(clock, self.start, 0, open_load);
        self.append(cell, Kind::RoundTrip, trial, &round_trips)?;
        if let Some(mut one_ways) =
            one_ways.filter(|_| !cell.route.is_floor() && cell.manner == Manner::Usual)
        {
            one_ways.facts.warmup = round_trips.facts.warmup;
            self.append(cell, Kind::OneWay, trial, &one_ways)?;
        }
        Ok(())
    }

    fn append(&mut self, cell: &Cell, kind: Kind, trial: u32, samples: &Samples) -> Result<(), SurveyError> {
        self.store.append(&cell.id(kind), trial, samples).map(drop).map_err(SurveyError::Store)
    }

    /// The place's two ends, started when they are first needed. `None` if they cannot be.
    fn testbed(&mut self, place: Place) -> Option<&Testbed> {
        if !self.testbeds.contains_key(&place) && !self.closed.contains(&place) {
            match Testbed::start(&self.addresses, place, self.cpus) {
                Ok(testbed) => {
                    self.testbeds.insert(place, testbed);
                }
                Err(reason) => {
                    self.skip(&format!("everything {}", place.name()), &reason);
                    self.closed.insert(place);
                }
            }
        }
        self.testbeds.get(&place)
    }
}

fn describe(facility: &Facility) -> String {
    match &facility.state {
        punctual_machine::host::FacilityState::Missing { reason } => reason.clone(),
        punctual_machine::host::FacilityState::Available => String::new(),
    }
}

/// What happened during a trial that may have changed it.
fn note_facts(samples: &mut Samples, cell: &Cell, made: &Made) {
    let facts = &mut samples.facts;
    facts.duplicated = made.recording.duplicated;
    facts.reordered = made.recording.reordered;
    facts.cpu_ns = made.responder.cpu_ns;
    facts.warmup = Some(made.client.warmup);
    let subject = || cell.id(Kind::RoundTrip).to_string();
    let mut doubt = |cause: Cause| facts.doubts.push(cause.into());
    let migrations = made.client.migrations + made.responder.migrations;
    if migrations > 0 {
        doubt(Cause::Migrated { subject: subject(), times: migrations });
    }
    let faults = made.client.usage.faults_minor + made.client.usage.faults_major;
    page_faults(&subject(), faults, made.recording.len() as u64).into_iter().for_each(&mut doubt);
    if made.throttled > 0 {
        doubt(Cause::Throttled { subject: subject(), times: made.throttled });
    }
    if made.rescued > 0 {
        doubt(Cause::Rescued { subject: subject(), count: made.rescued });
    }
    if made.steal_ticks > 0 {
        // Kernel ticks of user space are hundredths of a second.
        doubt(Cause::Steal { subject: subject(), ms: 10 * made.steal_ticks });
    }
    let [before, after] = made.clocks;
    after.doubts_since(&before, &subject()).into_iter().for_each(doubt);
}

/// The summary of what is stored, with what was skipped and what it recommends.
///
/// # Errors
/// When the store cannot be read back.
pub fn summarise(store: &Store, outcome: Outcome) -> Result<Summary, StoreError> {
    let mut summary = store.summary()?;
    summary.skipped.extend(outcome.skipped);
    // Also in the midst of the last trial.
    if interrupted() {
        summary.doubt(Cause::CutShort { trials: outcome.made });
    }
    let costs = costs(&Run::open(store.path())?)?;
    summary.recommendation = advise(&summary.results, &costs);
    summary.more.insert("library_cost".to_owned(), serde_json::json!(costs));
    Ok(summary)
}
