//! All trials in turn: multicast without a group, then engines and faults, for each size of the group.

use std::time::Duration;

use clap::ValueEnum;
use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use serde_json::json;

use super::judge::judge;
use super::kept::PacedTrial;
use super::kv;
use super::kv::trial::{KvTrial, KvTurn};
use super::lives::{self, DisruptedTrial};
use super::messages;
use super::option::{BroadcastSettings, Datagrams, Disruptions, OtherSystem};
use super::protocol::{FloorEnd, MemberEnd};
use super::testbed::{BroadcastTestbed, MTU, Travelled, TrialPlan};
use super::trial::{BroadcastOverall, BroadcastTrial, FloorTrial};
use super::turn::{Turn, name, turns};
use crate::explain::evidence::{Recording, TrialEvidence};
use crate::explain::of_run::explained_summary;
use crate::explain::run_trace::RunRecorder;
use crate::run::{Experiment, RunError, RunPlan, Turns, cut_short};
use crate::sample::{CellId, Kind, Load, Samples};
use crate::store::{Store, StoreError};
use crate::summary::{CellResult, Skipped, Summary};
use crate::units::OptionName;

/// Messages at the start of each trial that count apart: rings, buffers and windows are touched for the first time.
const WARMUP: u64 = 64;

/// The stored result of a trial.
fn group(
    mut made: Travelled,
    settings: &BroadcastSettings,
    plan: &TrialPlan,
    (store, round): (&mut Store, u32),
    start: Ticks,
) -> Result<BroadcastTrial, RunError> {
    let mut judged = judge(&made.members, plan.kind, made.started_ns);
    let sum = |of: fn(&MemberEnd) -> u64| made.members.iter().map(|(end, _)| of(end)).sum::<u64>();
    let fewest = |of: fn(&MemberEnd) -> u64| made.members.iter().map(|(end, _)| of(end)).min().unwrap_or(0);
    let ended_ns = made.members.iter().map(|(end, _)| end.ended_ns).max().unwrap_or(0);
    let bytes = fewest(|end| end.bytes);
    let trial = BroadcastTrial {
        engine: plan.engine,
        kind: plan.kind,
        members: plan.members,
        faults: plan.faults,
        seed: plan.seed,
        frame: made.frame,
        frame_asked: plan.frame,
        messages: bytes / settings.message as u64,
        bytes,
        duration_ns: ended_ns.saturating_sub(made.started_ns),
        altered: judged.altered,
        misordered: judged.misordered,
        frames_sent: sum(|end| end.frames_sent),
        frames_arrived: sum(|end| end.frames_arrived),
        frames_lost: sum(|end| end.frames_lost),
        repaired: sum(|end| end.repaired),
        questions: sum(|end| end.questions),
        views: made.members.iter().map(|(end, _)| end.views).max().unwrap_or(0),
        cpu_ns: sum(|end| end.cpu_ns),
        packets_damaged: [
            sum(|end| end.packets_damaged[0]),
            sum(|end| end.packets_damaged[1]),
            sum(|end| end.packets_damaged[2]),
        ],
    };
    judged.samples.facts.cpu_ns = cpu_ns_of_rows(trial.cpu_ns, judged.samples.len() as u64, trial.messages);
    let cell = CellId {
        kind: Kind::OneWay,
        size: settings.message,
        ..CellId::new(&plan.engine.name(), &trial.wake())
    };
    match settings.paced {
        None => drop(store.append(&cell, round, &judged.samples)?),
        Some(paced) => {
            let recorder = made.recorder.take();
            let kept = PacedTrial {
                paced,
                is_ordered: plan.kind.is_ordered(),
                senders: settings.senders.count(plan.members),
                pins: settings.pin,
                started_ns: made.started_ns,
                members: &made.members,
                trace: RunRecorder::end(recorder, start),
                start,
                clocks: made.clocks,
            };
            keep(&kept, (&mut judged.samples, plan.engine.is_other()), &cell, (store, round))?;
        }
    }
    Ok(trial)
}

/// The share of the rows in the processor time of all messages: no more than so many have a row.
fn cpu_ns_of_rows(cpu_ns: u64, rows: u64, messages: u64) -> u64 {
    let share = u128::from(cpu_ns) * u128::from(rows) / u128::from(messages.max(rows).max(1));
    share as u64
}

/// Stores when the last member had each message, and the way of each to each member, with what explains the late ones: there, and
/// not once more of the last member. Of a member of others nothing is known but what it delivered.
fn keep(
    trial: &PacedTrial<'_>,
    (last, is_other): (&mut Samples, bool),
    cell: &CellId,
    (store, round): (&mut Store, u32),
) -> Result<(), StoreError> {
    let period = Duration::from_nanos(trial.paced.period_ns);
    let cell = CellId { load: Load::Open, ..cell.clone() }.with_gap(period);
    trial.count_from_due(last);
    let path = store.append(&cell, round, last)?;
    if is_other {
        return Ok(());
    }
    let kept = trial.keep();
    if let Some((_, _, of_first)) = kept.first() {
        let of_first = TrialEvidence { dumps: Vec::new(), ..of_first.clone() };
        store.append_evidence(
            &path,
            &TrialEvidence { recording: Recording::Off, is_part: true, ..of_first },
        )?;
    }
    for (member, samples, evidence) in kept {
        let wake = format!("{}/{member}", cell.wake);
        let cell = CellId {
            load: cell.load,
            gap_us: cell.gap_us,
            gap_rest_ns: cell.gap_rest_ns,
            kind: cell.kind,
            size: cell.size,
            ..CellId::new(&cell.engine, &wake)
        };
        let path = store.append(&cell, round, &samples)?;
        store.append_evidence(&path, &evidence)?;
    }
    Ok(())
}

fn disrupted(
    testbed: &mut BroadcastTestbed,
    settings: &BroadcastSettings,
    plan: &TrialPlan,
    disruptions: Disruptions,
    (store, round): (&mut Store, u32),
) -> Result<(DisruptedTrial, Option<String>), RunError> {
    let (trial, samples, cut_short) = lives::make(testbed, settings, plan, disruptions)?;
    let cell = CellId {
        kind: Kind::OneWay,
        size: settings.message,
        ..CellId::new(&plan.engine.name(), &trial.wake())
    };
    store.append(&cell, round, &samples)?;
    let finished = trial.events.len();
    Ok((trial, cut_short.map(|reason| format!("it ended early, after {finished}: {reason}"))))
}

fn store_trial(
    testbed: &mut BroadcastTestbed,
    settings: &BroadcastSettings,
    turn: (&TrialPlan, KvTurn),
    (store, round): (&mut Store, u32),
) -> Result<Option<(KvTrial, Option<String>)>, RunError> {
    let Some(asked) = &settings.kv else { return Ok(None) };
    let (trial, cells, cut_short) = kv::make(testbed, settings, turn, asked)?;
    for (wake, samples) in &cells {
        let cell = CellId { size: settings.message, ..CellId::new(&trial.engine.name(), wake) };
        store.append(&cell, round, samples)?;
    }
    Ok(Some((trial, cut_short.map(|reason| format!("it ended early: {reason}")))))
}

fn floor(
    testbed: &mut BroadcastTestbed,
    bytes: u64,
    members: usize,
    (datagrams, size): (Datagrams, usize),
) -> Result<FloorTrial, RunError> {
    let datagram = messages::datagram_size(size);
    let (started_ns, ends) = testbed.floor(members, (bytes.div_ceil(size as u64), datagram), datagrams)?;
    let [sender, receivers @ ..] = &ends[..] else {
        return Err(RunError::Machine("multicast without a group needs a sender".to_owned()));
    };
    let slowest = receivers.iter().min_by(|one, other| {
        let speed = |end: &FloorEnd| end.count as f64 / end.ended_ns.saturating_sub(started_ns).max(1) as f64;
        speed(one).total_cmp(&speed(other))
    });
    let slowest = slowest.copied().unwrap_or_default();
    Ok(FloorTrial {
        members,
        size,
        datagram,
        datagrams,
        sent: sender.count,
        received: slowest.count,
        duration_ns: slowest.ended_ns.saturating_sub(started_ns),
        merged: [sender.merged, slowest.merged],
    })
}

/// A row of the summary for each thing whose speed was measured.
fn speeds(overall: &BroadcastOverall) -> Vec<CellResult> {
    let mut rows: Vec<(CellId, &str, Vec<f64>)> = Vec::new();
    let mut add = |engine: &str, wake: &str, size: usize, (speed, unit): (f64, &'static str)| {
        let cell = CellId { kind: Kind::Throughput, size, ..CellId::new(engine, wake) };
        match rows.iter_mut().find(|(of, ..)| *of == cell) {
            Some((.., speeds)) => speeds.push(speed),
            None => rows.push((cell, unit, vec![speed])),
        }
    };
    for trial in &overall.trials {
        add(&trial.engine.name(), &trial.wake(), overall.message, (trial.speed(), "B/s"));
    }
    for trial in &overall.disrupted {
        add(&trial.engine.name(), &trial.wake(), overall.message, (trial.speed(), "B/s"));
    }
    // A trial that broke a promise before its first step has no speed.
    for (trial, best) in overall.kv.iter().filter_map(|trial| Some((trial, trial.best()?))) {
        add(&trial.engine.name(), &trial.wake(), trial.value, (best.rate(), "op/s"));
    }
    for floor in &overall.floors {
        let (engine, wake) = floor.datagrams.cell();
        add(engine, &format!("{wake}/n{}", floor.members), floor.payload_size(), (floor.speed(), "B/s"));
    }
    let of = |(cell, unit, speeds): &(CellId, &str, Vec<f64>)| CellResult {
        unit: (*unit).to_owned(),
        ..CellResult::of_speeds(cell, speeds)
    };
    rows.iter().map(of).collect()
}

/// Returns true if our own cells kept what is promised; a promise that others did not keep is a doubt.
fn has_kept(summary: &Summary) -> bool {
    let is_other = |engine: &str| OtherSystem::value_variants().iter().any(|system| system.name() == engine);
    summary.kept_promises_of(|cell| !is_other(&cell.engine))
}

/// The first promise that did not hold in any life or any store, and how many more; or that no search decided whether one did.
fn broken(overall: &BroadcastOverall) -> Option<String> {
    let of_lives = overall.disrupted.iter().map(|trial| (trial.violation_count, &trial.violations));
    let of_stores = overall.kv.iter().map(|trial| (trial.violation_count, &trial.violations));
    let without_result = [(overall.violations.len() as u64, &overall.violations)];
    let all: Vec<(u64, &Vec<String>)> = of_lives.chain(of_stores).chain(without_result).collect();
    let count: u64 = all.iter().map(|(count, _)| count).sum();
    let undecided: u64 = overall.kv.iter().map(|trial| trial.undecided).sum();
    match all.iter().find_map(|(_, violations)| violations.first()) {
        Some(first) if count > 1 => {
            Some(format!("a promise did not hold: {first}; and {} more, see the summary", count - 1))
        }
        Some(first) => Some(format!("a promise did not hold: {first}")),
        None => (undecided > 0).then(|| {
            format!(
                "whether a promise held is not known: too much was under way at once for the search of an order; keys: {undecided}; \
                 take fewer --clients, or more --keys"
            )
        }),
    }
}

impl Experiment for BroadcastSettings {
    type Made = (BroadcastOverall, Vec<Skipped>);

    const BROKEN: &'static str = "a promise did not hold: members did not deliver the same as was sent, in one order where that is promised; see the doubts";

    fn plan(&self) -> RunPlan {
        let is_calm = self.disruptions.is_empty();
        let mut described = json!({
            "members": self.members,
            "senders": self.senders,
            "kind": self.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(","),
            "message": self.message,
            "frame": self.frames.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "window": self.window,
            "faults": self.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "engines": self.engines,
            "against": self.against,
            "runs": self.runs,
            "paced": self.paced,
            "kv": self.kv,
            "pinned": self.pin,
            "order": "bare multicast and messages without a group, engines and kinds in turn, then faults, then members, run by run",
        });
        if let Some(described) = described.as_object_mut() {
            if is_calm {
                described.insert("bytes".to_owned(), json!(self.bytes));
            } else {
                described.insert("disruptions".to_owned(), json!(self.disruptions));
                let suspect_after_ms = self.suspect_after.as_millis() as u64;
                described.insert("suspect_after_ms".to_owned(), json!(suspect_after_ms));
            }
        }
        RunPlan { name: "broadcast", warmup: WARMUP, cpus: Vec::new(), described }
    }

    fn is_traced(&self) -> bool {
        self.trace
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<Self::Made, RunError> {
        let most = self.members.iter().copied().max().unwrap_or(0);
        let turns = turns(self);
        let has_network = self.engines.iter().any(|engine| engine.is_of_a_network());
        let wants_network = has_network || !self.against.is_empty();
        let start = Clock::get().now();
        let mut testbed = BroadcastTestbed::start(most, wants_network, self.pin)?;
        let mut overall = BroadcastOverall {
            senders: self.senders,
            message: self.message,
            mtu: MTU,
            ..BroadcastOverall::default()
        };
        let mut skipped = Vec::new();
        Turns::new(self.runs, turns.len(), bar).all(&turns, name, &mut skipped, |turn, round, _| {
            let in_round =
                |plan: &TrialPlan| TrialPlan { seed: plan.seed.wrapping_add(round.into()), ..*plan };
            match turn {
                Turn::Floor(members, datagrams, size) => {
                    overall.floors.push(floor(&mut testbed, self.bytes, *members, (*datagrams, *size))?);
                }
                Turn::Group(plan) => {
                    let plan = in_round(plan);
                    let made = testbed.make(self, &plan);
                    let made = made.map_err(|halt| overall.note_failure(plan.engine, halt))?;
                    overall.trials.push(group(made, self, &plan, (store, round), start)?);
                }
                Turn::Disrupted(plan, disruptions) => {
                    let made = disrupted(&mut testbed, self, &in_round(plan), *disruptions, (store, round))?;
                    let (trial, cut_short) = made;
                    overall.disrupted.push(trial);
                    cut_short.map_or(Ok(()), |reason| Err(RunError::Machine(reason)))?;
                }
                Turn::Store(plan, kv) => {
                    let turn = (&in_round(plan), *kv);
                    let made = store_trial(&mut testbed, self, turn, (store, round))?;
                    let (trial, cut_short) = made.unzip();
                    overall.kv.extend(trial);
                    cut_short.flatten().map_or(Ok(()), |reason| Err(RunError::Machine(reason)))?;
                }
            }
            Ok(true)
        })?;
        Ok((overall, skipped))
    }

    fn summarise(&self, (overall, skipped): &Self::Made, store: &Store) -> Result<Summary, StoreError> {
        let mut summary = match self.paced {
            Some(_) => explained_summary(store, |_| ())?.0,
            None => store.summary()?,
        };
        cut_short(&mut summary, overall.trials.len() + overall.disrupted.len() + overall.kv.len());
        summary.results.extend(speeds(overall));
        summary.skipped.extend(skipped.iter().cloned());
        summary.more.insert("broadcast".to_owned(), json!(overall));
        Ok(summary)
    }

    fn promise(&self, summary: &Summary, (overall, _): &Self::Made) -> Result<(), String> {
        match broken(overall) {
            Some(sentence) => Err(sentence),
            None if has_kept(summary) => Ok(()),
            None => Err(Self::BROKEN.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_store(undecided: u64, violations: &[&str]) -> BroadcastOverall {
        let trial = json!({
            "engine": "shared", "members": 3, "faults": {"loss_permille": 0, "flips_permille": 0}, "seed": 1, "frame": 8_192,
            "reads": "linearizable", "disruptions": 0, "puts_percent": 50, "keys": 64, "value": 100, "steps": [], "seconds": [],
            "views": 0, "expelled": 0, "checked_keys": 64, "checked_operations": 1_000, "maybe": 0, "undecided": undecided,
            "local_gets": 0, "stale": 0, "stale_ns_max": 0, "violation_count": violations.len(), "violations": violations,
        });
        let overall = json!({
            "senders": "all", "message": 100, "mtu": 1_500, "trials": [], "floors": [], "kv": [trial],
        });
        serde_json::from_value(overall).expect("a trial")
    }

    /// Goal: a message costs the same processor time whether each has a row or one of ten.
    #[test]
    fn rows_have_their_share_of_the_processor_time() {
        let share = |(rows, messages)| cpu_ns_of_rows(3_000, rows, messages);
        assert_eq!([(3, 3), (3, 30), (3, 0), (0, 0)].map(share), [3_000, 300, 3_000, 0]);
    }

    /// Goal: a run in which a search was given up has not passed, nor does it hide what is broken for certain.
    #[test]
    fn a_run_with_an_undecided_search_has_not_passed() {
        assert_eq!(broken(&with_store(0, &[])), None);
        let said = broken(&with_store(3, &[])).expect("a sentence");
        assert!(said.contains("not known") && said.contains("keys: 3"), "{said}");
        let said = broken(&with_store(3, &["a get is wrong", "another"])).expect("a sentence");
        assert_eq!(said, "a promise did not hold: a get is wrong; and 1 more, see the summary");
    }
}
