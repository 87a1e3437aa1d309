//! The survey: the latency of a message on this machine by every route and every way of waiting.
//!
//! Trials of all cells are taken in turns, so that drift of the machine meets all alike; each is on disk before the next.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_lab_machine::host::{Facility, FacilityState, HostFacts};
use serde_json::json;

use crate::doubt::Cause;
use crate::endpoint::{Addresses, EndpointPlan, Medium};
use crate::explain::of_run::explained_summary;
use crate::load::client::Trial;
use crate::load::testbed::{MadeTrial, Place, Testbed};
use crate::run::{Experiment, RunError, RunPlan, ThreadOf, Turns, choose_cpus, cut_short};
use crate::sample::{Facts, Kind, Load, Samples};
use crate::store::{Store, StoreError};
use crate::summary::{Skipped, Summary};

mod advice;
mod cost;
mod kept;
mod overview;
mod plan;

pub use advice::advise;
pub use cost::LibraryCost;
use cost::Openings;
pub use overview::sections;
use plan::{Manner, SurveyCell};
pub use plan::{SurveyOptions, SurveyPlan, WARMUP};

/// A survey in the making.
struct Survey<'a> {
    plan: &'a SurveyPlan,
    addresses: Addresses,
    testbeds: HashMap<Place, ThreadOf<Testbed>>,
    /// Places that could not be opened, so that the reason is given once.
    closed: HashSet<Place>,
    cpus: [Option<usize>; 2],
    start: Ticks,
    store: &'a mut Store,
}

/// Makes all trials of the plan. Each trial is in the store, also when it is cut short.
pub fn run(
    plan: &SurveyPlan,
    facts: &HostFacts,
    store: &mut Store,
    bar: &ProgressBar,
) -> Result<SurveyOutcome, RunError> {
    let mut survey = Survey {
        plan,
        addresses: Addresses::new("survey")?,
        testbeds: HashMap::new(),
        closed: HashSet::new(),
        cpus: choose_cpus(),
        start: Clock::get().now(),
        store,
    };
    let mut skipped = Vec::new();
    let cells = survey.feasible(facts, &mut skipped);
    let name = |cell: &SurveyCell| cell.id(Kind::RoundTrip).to_string();
    let turns = Turns::new(plan.trials, cells.len(), bar);
    let (unit, limit, mut left_out) = (plan.unit(), plan.limit(), 0);
    let began = Instant::now();
    let made = turns.all(&cells, name, &mut skipped, |cell, trial, skipped| {
        if trial > 0 && began.elapsed() > limit {
            left_out += 1;
            return Ok(false);
        }
        let place = cell.route.place();
        if survey.opens(place, skipped) {
            survey.one_trial(cell, (trial, unit), skipped).map(|()| true)
        } else {
            Ok(false)
        }
    })?;
    Ok(SurveyOutcome { skipped, made, left_out })
}

/// Outcome of a survey.
#[derive(Debug)]
pub struct SurveyOutcome {
    /// Skipped measurements, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Trials made.
    pub made: usize,
    /// Trials for which there was no time any more.
    pub left_out: usize,
}

impl Survey<'_> {
    /// The plan's cells that this machine can measure; the others are noted with the reason.
    fn feasible(&mut self, facts: &HostFacts, skipped: &mut Vec<Skipped>) -> Vec<SurveyCell> {
        let mut skip = |what: &str, reason: &str| {
            skipped.push(Skipped { what: what.to_owned(), reason: reason.to_owned() });
        };
        let one_cpu = self.cpus[0] == self.cpus[1];
        if one_cpu {
            skip(
                "every polling route, and open load, whose client polls",
                "two processors are needed to poll, and this process may use one only: give it a second, or ask for routes that sleep (--only shared/futex)",
            );
        }
        let missing = |name| match facts.facility(name).map(|facility| &facility.state) {
            Some(FacilityState::Missing { reason }) => Some(reason.as_str()),
            _ => None,
        };
        let (packet, memory) = (missing(Facility::PACKET_SOCKETS), missing(Facility::SHARED_MEMORY));
        let is_shared =
            |cell: &SurveyCell| !cell.route.is_floor() && cell.route.medium == Some(Medium::Shared);
        let cells = &self.plan.cells;
        if let Some(reason) = packet
            && cells.iter().any(|cell| cell.route.place() == Place::Segment)
        {
            skip("raw Ethernet", reason);
            self.closed.insert(Place::Segment);
        }
        if let Some(reason) = memory
            && cells.iter().any(is_shared)
        {
            skip("shared memory", reason);
        }
        let cells = cells.iter().filter(|cell| {
            !(one_cpu && (cell.route.spins() || cell.load == Load::Open))
                && !(memory.is_some() && is_shared(cell))
                && !self.closed.contains(&cell.route.place())
        });
        cells.copied().collect()
    }

    fn one_trial(
        &mut self,
        cell: &SurveyCell,
        (trial, unit): (u32, Duration),
        skipped: &mut Vec<Skipped>,
    ) -> Result<(), RunError> {
        let mut order = cell.trial(unit, self.plan.count_max);
        if cell.manner == Manner::Busy {
            let [here, there] = self.cpus;
            order.neighbours = [here, there.filter(|_| there != here)];
        }
        order.is_traced = self.plan.asked.trace;
        let mut endpoint = cell.endpoint();
        endpoint.windows = kept::windows(&endpoint, order.duration);
        let mut made = self.make(cell.route.place(), endpoint, order, skipped)?;
        let clock = Clock::get();
        let open_load = cell.load == Load::Open;
        // Both communicators, and of a floor everything, were opened for this trial: it begins at 0.
        let mut round_trips = made.recording.round_trips(clock, self.start, 0, open_load);
        made.note(&mut round_trips.facts, &cell.id(Kind::RoundTrip).to_string());
        let one_ways = made.recording.one_ways(clock, self.start, 0, open_load);
        let evidence = made.kept.take().map(|kept| {
            let owners = kept::owners(cell.route.medium, &round_trips);
            kept.evidence(&round_trips, cell.load, owners, self.start)
        });
        let one_ways = one_ways.filter(|_| !cell.route.is_floor() && cell.manner == Manner::Usual);
        let one_ways = one_ways.map(|one_ways| {
            let facts = Facts { warmup: round_trips.facts.warmup, ..one_ways.facts };
            let one_ways = Samples { facts, ..one_ways };
            let part = evidence.as_ref().map(|whole| kept::part(whole, cell.route.medium, &one_ways));
            (cell.id(Kind::OneWay), one_ways, part)
        });
        let all: Vec<_> =
            std::iter::once((cell.id(Kind::RoundTrip), round_trips, evidence)).chain(one_ways).collect();
        let all: Vec<_> = all.iter().map(|(id, samples, kept)| (id, samples, kept.as_ref())).collect();
        self.store.append_explained(trial, &all)?;
        Ok(())
    }

    /// Makes one trial, and once more if an end of its place was gone before it began. A place that cannot be opened again is noted: none
    /// of its other cells is measured from then on.
    fn make(
        &mut self,
        place: Place,
        endpoint: EndpointPlan,
        order: Trial,
        skipped: &mut Vec<Skipped>,
    ) -> Result<MadeTrial, String> {
        match self.make_once(place, endpoint, order) {
            Err(_) if !self.testbeds.contains_key(&place) && self.opens(place, skipped) => {
                self.make_once(place, endpoint, order)
            }
            made => made,
        }
    }

    /// If an end of its place is gone after it, the next one there begins with new ends.
    fn make_once(&mut self, place: Place, endpoint: EndpointPlan, order: Trial) -> Result<MadeTrial, String> {
        let made =
            self.testbeds[&place].run(move |testbed| (testbed.make(&endpoint, &order), testbed.is_whole()));
        if !matches!(made, Ok((_, true))) {
            self.testbeds.remove(&place);
        }
        made?.0
    }

    /// Returns true if the place has both its ends, which are started when they are first needed.
    fn opens(&mut self, place: Place, skipped: &mut Vec<Skipped>) -> bool {
        if !self.testbeds.contains_key(&place) && !self.closed.contains(&place) {
            match Testbed::start_in_a_thread(&self.addresses, place, self.cpus) {
                Ok(testbed) => drop(self.testbeds.insert(place, testbed)),
                Err(reason) => {
                    skipped.push(Skipped { what: format!("everything {}", place.name()), reason });
                    self.closed.insert(place);
                }
            }
        }
        self.testbeds.contains_key(&place)
    }
}

impl Experiment for SurveyPlan {
    type Made = SurveyOutcome;

    const BROKEN: &'static str =
        "a promise did not hold: messages were lost, doubled, out of order or wrong; see the doubts";

    fn plan(&self) -> RunPlan {
        let cpus: Vec<usize> = choose_cpus().into_iter().flatten().collect();
        let described = json!({
            "cells": self.cells.len(),
            "trials": self.trials,
            "duration_s": self.duration.as_secs_f64(),
            "messages_per_trial_max": self.count_max,
            "order": "in turns",
            "quick": self.asked.quick,
            "only": self.asked.only,
            "load": self.asked.load(),
            "gap_us": self.asked.common.gap.map(|gap| gap.as_micros() as u64),
            "client_cpu": cpus.first(),
            "responder_cpu": cpus.last(),
        });
        RunPlan { name: "survey", warmup: WARMUP, cpus, described }
    }

    fn is_traced(&self) -> bool {
        self.asked.trace
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<SurveyOutcome, RunError> {
        run(self, &HostFacts::read(), store, bar)
    }

    fn summarise(&self, outcome: &SurveyOutcome, store: &Store) -> Result<Summary, StoreError> {
        let mut openings = Openings::default();
        let (mut summary, _) = explained_summary(store, |read| openings.add(read))?;
        summary.skipped.extend(outcome.skipped.iter().cloned());
        cut_short(&mut summary, outcome.made);
        if outcome.left_out > 0 {
            summary.doubt(Cause::Overdue { trials: outcome.made, left_out: outcome.left_out });
        }
        let (costs, infinite) = openings.costs();
        infinite.into_iter().for_each(|cause| summary.doubt(cause));
        summary.recommendation = advise(&summary.results, &costs);
        summary.more.insert("library_cost".to_owned(), json!(costs));
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Header;

    /// Goal: a place that is lost amid the survey, and cannot be opened again, is listed with the reason. Method: a client's thread that
    /// failed, and a processor that no machine has for the next one.
    #[test]
    fn a_place_that_cannot_be_opened_again_is_listed() {
        let folder = tempfile::tempdir().expect("room");
        let mut store =
            Store::import(Some(&folder.path().join("run")), &Header::new("survey")).expect("room");
        let plan = SurveyPlan::survey(&SurveyOptions::default());
        let addresses = Addresses::new("survey").expect("addresses");
        let place = Place::Process;
        let testbed = Testbed::start_in_a_thread(&addresses, place, [None, None]).expect("both ends");
        let failed = testbed.run(|_| std::panic::resume_unwind(Box::new("on purpose")));
        assert_eq!(failed, Err::<(), _>("a thread failed".to_owned()));
        let mut survey = Survey {
            plan: &plan,
            addresses,
            testbeds: HashMap::from([(place, testbed)]),
            closed: HashSet::new(),
            cpus: [Some(usize::MAX), None],
            start: Clock::get().now(),
            store: &mut store,
        };
        let cell = plan.cells.iter().find(|cell| cell.route.place() == place).expect("one of this process");
        let mut skipped = Vec::new();
        let made = survey.one_trial(cell, (0, Duration::from_millis(1)), &mut skipped);
        assert!(made.is_err() && survey.closed.contains(&place));
        let listed: Vec<&str> = skipped.iter().map(|skip| skip.what.as_str()).collect();
        assert_eq!(listed, ["everything in one process"]);
    }
}
