//! `punctual run wakeup`: the cost of waking a reader, by every mechanism of this kernel, and the losses.
//!
//! One trial has one writer and one reader, threads or processes; per message each notes two instants, from which five figures are made:
//!
//! ```text
//! reader   began ─────────────────────────────────────▶ awake      reader_bracket: began → awake
//! writer            before ─ store, notify ─▶ after ─▶ acknowledged
//!                   w2r: before → awake     notify: before → after     ipcbench_loop: before → acknowledged
//! ```

use std::collections::HashMap;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::cpu::allowed;
use punctual_machine::signal::interrupted;
use serde_json::json;

use crate::doubt::Cause;
use crate::load::wake::{self, Conditions, Record, Row};
use crate::run::{Experiment, RunError, RunPlan, Turns, cut_short};
use crate::sample::{CellId, Outcome, Samples};
use crate::store::{Store, StoreError};
use crate::summary::{Skipped, Summary};

mod advice;
mod against;
mod figures;
mod handshake;
mod overview;
mod plan;
mod published;

use advice::advise;
use against::{AgainstBare, AgainstThreads};
use figures::{CallFigures, Policy};
use handshake::HandshakeResult;
pub use overview::sections;
use plan::{Measurement, WakeupCell};
pub use plan::{WakeupOptions, WakeupPlan};

/// Messages of each trial that count as warm-up: both threads are new, and so is what they sleep on.
pub const WARMUP: u64 = 4;

/// Outcomes of a run.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Skipped measurements, and the reasons.
    pub skipped: Vec<Skipped>,
    /// The handshakes of the work log.
    pub handshakes: Vec<HandshakeResult>,
    /// A racy one and its repair under the time limits of the work log.
    pub time_limits: Vec<HandshakeResult>,
    /// System calls and sleeps, per cell.
    pub figures: HashMap<WakeupCell, CallFigures>,
    /// Trials made.
    pub made: usize,
}

impl Outcomes {
    /// Protocols that lost wake-ups and may not.
    fn broken(&self) -> impl Iterator<Item = &HandshakeResult> {
        let all = self.handshakes.iter().chain(&self.time_limits);
        all.filter(|row| row.breaks_its_promise())
    }
}

const ONE_CPU: &str = "two processors are needed for a core each, and this process may use one only";

/// Every figure of one trial to the store.
fn keep(
    cell: &WakeupCell,
    turn: u32,
    record: &Record,
    start: Ticks,
    store: &mut Store,
) -> Result<(), StoreError> {
    let of_all = Measurement::of(cell.conditions).iter();
    let cells = of_all.map(|&measurement| (cell.id(measurement), samples(record, measurement, start)));
    let cells: Vec<(CellId, Samples)> = cells.filter(|(_, samples)| !samples.is_empty()).collect();
    store.append_all(turn, &cells).map(drop)
}

fn samples(record: &Record, measurement: Measurement, start: Ticks) -> Samples {
    let clock = Clock::get();
    let mut samples = Samples::with_capacity(record.rows.len() + 1);
    let at = |instant: Ticks| clock.nanos(instant.since(start));
    for (index, row) in record.rows.iter().enumerate() {
        let Some((from, to)) = interval(row, measurement) else { continue };
        let outcome = if row.is_lost() { Outcome::Lost } else { Outcome::Answered };
        samples.push(index as u64, at(from), at(from), clock.nanos(to.since(from)), outcome);
    }
    if let (true, Measurement::Any) = (record.stuck, measurement) {
        let last = record.rows.last().map_or(start, |row| row.sent.acknowledged);
        samples.push(record.rows.len() as u64, at(last), at(last), clock.nanos(record.lasted), Outcome::Lost);
    }
    if measurement == Measurement::Any {
        samples.facts.cpu_ns = record.reader_cpu_ns;
    }
    samples
}

fn interval(row: &Row, measurement: Measurement) -> Option<(Ticks, Ticks)> {
    let (sent, awake) = (&row.sent, row.seen.wait.awake);
    match measurement {
        Measurement::Any => Some((sent.before, awake)),
        Measurement::Blocked => row.is_parked().then_some((sent.before, awake)),
        Measurement::Bracket => Some((row.seen.began, awake)),
        Measurement::Loop => Some((sent.before, sent.acknowledged)),
        Measurement::Notify => Some((sent.before, sent.after)),
    }
}

impl Experiment for WakeupPlan {
    type Made = Outcomes;

    const BROKEN: &'static str = "wake-ups were lost; see the doubts";

    fn plan(&self) -> RunPlan {
        let cpus = self.bound_to(&allowed());
        let described = json!({
            "cells": self.cells.len(),
            "trials": self.trials,
            "duration_s": self.duration.as_secs_f64(),
            "messages_per_trial_max": self.count_max,
            "order": "in turns",
            "writer_cpu": cpus.first(),
            "reader_cpu": cpus.last(),
        });
        RunPlan { name: "wakeup", warmup: WARMUP, cpus, described }
    }

    fn schedulers(&self) -> Vec<String> {
        let has = |is_fifo: bool| self.cells.iter().any(|cell| cell.conditions.fifo == is_fifo);
        let all = [("other", has(false)), ("fifo", has(true))];
        all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<Outcomes, RunError> {
        let (start, cpus, mut outcomes) = (Clock::get().now(), allowed(), Outcomes::default());
        let (mut process, turns) = (None, Turns::new(self.trials, self.cells.len(), bar));
        let make = |cell: &WakeupCell, turn, _: &mut Vec<Skipped>| {
            if cpus.len() < 2 && !cell.conditions.same_core {
                return Err(ONE_CPU.to_owned().into());
            }
            let record = wake::run(&self.trial(cell, &cpus), &mut process)?;
            // Also one that is cut short.
            keep(cell, turn, &record, start, store)?;
            outcomes.figures.entry(*cell).or_default().add(&record);
            Ok(true)
        };
        outcomes.made = turns.all(&self.cells, WakeupCell::words, &mut outcomes.skipped, make)?;
        if !interrupted() && self.cells.iter().any(|cell| cell.conditions == Conditions::default()) {
            bar.set_message("handshakes");
            outcomes.handshakes = handshake::all(&cpus);
            outcomes.time_limits = handshake::under_limits(&cpus);
        }
        Ok(outcomes)
    }

    fn summarise(&self, outcomes: &Outcomes, store: &Store) -> Result<Summary, StoreError> {
        let mut summary = store.summary()?;
        cut_short(&mut summary, outcomes.made);
        for (cell, figures) in &outcomes.figures {
            figures.enrich(*cell, &mut summary.results);
        }
        for row in outcomes.broken() {
            summary.doubt(Cause::WakeUpsLost { protocol: row.name.clone(), count: row.lost });
        }
        let policy = Policy::of(&summary.results);
        summary.skipped.clone_from(&outcomes.skipped);
        summary.more.insert("against_bare".to_owned(), json!(AgainstBare::of(&summary.results)));
        summary.more.insert("against_threads".to_owned(), json!(AgainstThreads::of(&summary.results)));
        summary.more.insert("handshakes".to_owned(), json!(outcomes.handshakes));
        summary.more.insert("time_limits".to_owned(), json!(outcomes.time_limits));
        summary.more.insert("adaptive".to_owned(), json!(policy));
        summary.more.insert("published".to_owned(), json!(published::comparison(&summary.results)));
        summary.recommendation = advise(&summary.results);
        Ok(summary)
    }

    fn promise(&self, summary: &Summary, outcomes: &Outcomes) -> Result<(), String> {
        let is_kept = summary.kept_promises() && outcomes.broken().next().is_none();
        if is_kept { Ok(()) } else { Err(Self::BROKEN.to_owned()) }
    }
}
