//! All runs of a vehicle test: fresh processes, a barrier, values, the account, the store.

use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::figures::{MadeRun, Row, RunFigures, RunSamples};
use super::first::{self, Firsts, RunStartUp};
use super::idle_inhibitor::keep_all_awake;
use super::ledger::Sums;
use super::option::VehiclesSettings;
use super::overview::Overall;
use super::protocol::{Brought, Facts};
use super::stalls;
use super::testbed::{VehiclesPlace, VehiclesTestbed};
use crate::doubt::{Cause, Disturbances};
use crate::endpoint::Medium;
use crate::explain::of_run::explained_summary;
use crate::explain::run_trace::RunRecorder;
use crate::run::{Experiment, RunError, RunPlan, Turns, cut_short};
use crate::scheduling::Control;
use crate::store::{Store, StoreError};
use crate::summary::{Ledger, Skipped, Summary};

/// From the last process's *ready* to the barrier's opening: all have heard of it by then, and of each other's interests.
const BARRIER: Duration = Duration::from_millis(800);
/// More for every component, each of which tells its interest to all.
const BARRIER_PER_COMPONENT: Duration = Duration::from_millis(12);
/// Peers announce once a second how far they are; one announcement may be lost too.
const ANNOUNCEMENTS: Duration = Duration::from_millis(2600);
const BETWEEN_ACCOUNTS: Duration = Duration::from_millis(200);

/// A process that did not run when it should have, and what is known of why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Absence {
    pub(super) process: String,
    pub(super) skipped: u64,
    /// Time for which it sent none of its values at least, ns.
    pub(super) longest_ns: u64,
    pub(super) continued: u64,
    pub(super) throttled: u64,
    /// Time that its threads waited for a processor, ns.
    pub(super) queued_ns: u64,
}

/// One run, but its samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RunReport {
    #[serde(flatten)]
    pub(super) figures: RunFigures,
    /// It was interrupted: its results are not all that was asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_cut: bool,
    pub(super) died: Vec<String>,
    pub(super) account: Sums,
    pub(super) startup: RunStartUp,
    pub(super) firsts: Firsts,
    pub(super) absences: Vec<Absence>,
    pub(super) facts: Facts,
    /// The most that a process's memory grew between the barrier and the end, KiB.
    pub(super) growth_kib_max: i64,
    /// Largest lateness of a thread that only looks, µs: the machine's own lateness.
    pub(super) control_late_us: u64,
}

/// Results of all runs besides the store.
#[derive(Debug)]
pub(crate) struct MadeRuns {
    pub(super) runs: Vec<RunReport>,
    /// Why a later one could not be made.
    pub(super) ended: Option<String>,
    pub(super) place: VehiclesPlace,
}

fn store_samples(
    run: &MadeRun<'_>,
    number: u32,
    samples: RunSamples,
    store: &mut Store,
) -> Result<(), StoreError> {
    let (first, threads) = (number * run.settings.receivers() as u32, run.threads());
    for ((part, _), rows) in run.receivers().zip(samples) {
        // By its own number: one that died has no trial, and those behind it keep theirs.
        let trial = first + part.vehicle().map_or(0, u32::from);
        let cells: Vec<_> =
            rows.into_iter().map(|(row, samples)| (run.settings.cell(&row), samples)).collect();
        let cells: Vec<_> = cells
            .iter()
            .map(|(cell, samples)| (cell, samples, Some(run.evidence(number, *part, samples, &threads))))
            .collect();
        store.append_explained(trial, &cells)?;
    }
    Ok(())
}

/// The account of all, once it is complete: of what was lost last, receivers learn by the next announcement.
fn sums(testbed: &mut VehiclesTestbed, settings: &VehiclesSettings, is_cut: bool) -> Sums {
    let mutual = settings.asked.mode.is_mutual();
    let patience = if is_cut { BETWEEN_ACCOUNTS } else { ANNOUNCEMENTS };
    let mut account = || Sums::of(&testbed.account(), mutual, testbed.died.len());
    if mutual { settled(account, settings.asked.engine, patience, BETWEEN_ACCOUNTS) } else { account() }
}

/// Asks for the account until every frame is in it, or no longer than that. In memory frames that came before their receiver's reader
/// are in no account, so it may never balance. There a reader sees by itself what it lost, and an account that does not change is whole.
/// Elsewhere, a loss is learned of by an announcement, and an account that does not change may only wait for it.
fn settled(mut account: impl FnMut() -> Sums, engine: Medium, patience: Duration, between: Duration) -> Sums {
    let until_ns = monotonic_ns() + patience.as_nanos() as u64;
    let mut before = None;
    loop {
        let sums = account();
        let is_still = engine == Medium::Shared && before.as_ref() == Some(&sums);
        if sums.is_balanced() || is_still || monotonic_ns() > until_ns {
            return sums;
        }
        before = Some(sums);
        std::thread::sleep(between);
    }
}

fn one_run<'a>(
    settings: &'a VehiclesSettings,
    place: &VehiclesPlace,
    began: Ticks,
) -> Result<(MadeRun<'a>, RunSamples, RunReport), String> {
    let started = std::time::Instant::now();
    let mut testbed = VehiclesTestbed::start(settings, place)?;
    // Without a barrier the first messages come while processes open.
    let (mut opened, mut controls) =
        (Clock::get().now(), (settings.asked.no_barrier).then(|| controls(settings)));
    let openings = testbed.open(settings)?;
    let all_ready_ms = started.elapsed().as_secs_f64() * 1e3;
    let controls = controls.get_or_insert_with(|| self::controls(settings));
    let barrier = (!settings.asked.no_barrier).then(|| barrier(settings));
    let at_ns = barrier.map(|barrier| monotonic_ns() + barrier.as_nanos() as u64);
    if let Some(barrier) = barrier {
        opened = Clock::get().now().plus(Clock::get().ticks(barrier));
    }
    let awake = at_ns.map(|at_ns| keep_all_awake(settings, at_ns));
    let traces = || RunRecorder::start(at_ns.unwrap_or_else(monotonic_ns), settings.period_ns());
    let recorder = settings.asked.trace.then(traces);
    let brought = testbed.travel(at_ns);
    let is_cut = interrupted();
    let trace = RunRecorder::end(recorder, began);
    drop(awake);
    let control_late_us = controls.iter().map(|control| control.totals().2).max().unwrap_or(0);
    controls.clear();
    let run = MadeRun { settings, brought, began, opened, is_cut, trace };
    let (figures, samples) = run.figures();
    let (firsts, startup) = first::firsts(&openings, &run.brought, all_ready_ms);
    let mut facts = Facts::default();
    run.brought.iter().for_each(|(_, brought)| facts.add(&brought.facts));
    let mut account = sums(&mut testbed, settings, is_cut);
    if !settings.asked.mode.is_mutual() {
        let gaps = figures.rows.iter().map(|row| row.lost).sum();
        account.count_gaps(gaps, facts.refused);
    }
    if settings.asked.no_barrier || settings.asked.engine == Medium::Shared {
        account.without_barrier();
    }
    // An interrupted process did not wait for messages on their way, nor for others to report them.
    account.incomplete |= is_cut && !account.is_balanced();
    let report = RunReport {
        account,
        is_cut,
        died: std::mem::take(&mut testbed.died),
        startup,
        firsts,
        absences: absences(settings, &run.brought),
        figures,
        facts,
        growth_kib_max: growth(&run.brought),
        control_late_us,
    };
    Ok((run, samples, report))
}

/// Makes runs until one is none. A failure after other runs were made ends the series, and the reason is returned with the runs that
/// were made.
fn in_turn(
    turns: Turns<'_>,
    mut make: impl FnMut(u32) -> Result<Option<RunReport>, RunError>,
) -> Result<(Vec<RunReport>, Option<String>), RunError> {
    let mut runs = Vec::new();
    for (number, _) in turns {
        match make(number) {
            Ok(Some(run)) => runs.push(run),
            Ok(None) => break,
            Err(RunError::Machine(reason)) if !runs.is_empty() => return Ok((runs, Some(reason))),
            Err(error) => return Err(error),
        }
    }
    Ok((runs, None))
}

/// A thread on each processor that only looks how late it is, as urgent as those that it stands for.
fn controls(settings: &VehiclesSettings) -> Vec<Control> {
    let cpus = punctual_machine::cpu::allowed();
    cpus.iter().map(|&cpu| Control::start(Some(cpu), settings.asked.sched)).collect()
}

/// From the last *ready* to the barrier's opening.
fn barrier(settings: &VehiclesSettings) -> Duration {
    let components = u32::try_from(settings.asked.vehicles * settings.asked.components).unwrap_or(u32::MAX);
    BARRIER + BARRIER_PER_COMPONENT * components
}

fn growth(brought: &[Brought]) -> i64 {
    let of_each = brought.iter().map(|(_, brought)| brought.facts.resident_kib.map(u64::cast_signed));
    of_each.map(|[before, after]| after - before).max().unwrap_or(0)
}

/// Processes that skipped values, were stopped or ran out of their quota.
fn absences(settings: &VehiclesSettings, brought: &[Brought]) -> Vec<Absence> {
    let of_one = |(part, brought): &Brought| {
        let counts = || brought.skipped.iter().map(|skipped| u64::from(skipped.count));
        let Facts { continued, throttled, queued_ns, .. } = brought.facts;
        let longest_ns = counts().max().unwrap_or(0).saturating_mul(settings.period_ns());
        let process = part.name();
        Absence { process, skipped: counts().sum(), longest_ns, continued, throttled, queued_ns }
    };
    let is_one = |absence: &Absence| absence.skipped + absence.continued + absence.throttled > 0;
    brought.iter().map(of_one).filter(is_one).collect()
}

impl Experiment for VehiclesSettings {
    type Made = MadeRuns;

    const BROKEN: &'static str =
        "a promise did not hold: messages were lost, doubled or out of order; see the doubts";

    fn plan(&self) -> RunPlan {
        // Elsewhere, and on a bridge of the host, there is no choice.
        let has_choice = self.asked.engine == Medium::Packet && self.asked.interface.is_none();
        let described = json!({
            "mode": self.asked.mode,
            "engine": self.asked.engine,
            "wake": self.wake.name(),
            "sealed": self.is_sealed(),
            "vehicles": self.asked.vehicles,
            "roadside": self.roadside,
            "components": self.asked.components,
            "period_us": self.asked.period.as_secs_f64() * 1e6,
            "messages_per_component": self.count,
            "runs": self.asked.rounds,
            "trials": "run × receivers + receiver",
            "barrier": !self.asked.no_barrier,
            "spread": self.asked.spread,
            "interfaces": has_choice.then_some(self.asked.interfaces),
            "interface": self.asked.interface,
            "sched": self.asked.sched.to_string(),
            "pinned": self.asked.pin,
            "awake_us": self.asked.awake.as_secs_f64() * 1e6,
        });
        RunPlan { name: "vehicles", warmup: 0, cpus: Vec::new(), described }
    }

    fn schedulers(&self) -> Vec<String> {
        vec![self.asked.sched.to_string()]
    }

    fn is_traced(&self) -> bool {
        self.asked.trace
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<MadeRuns, RunError> {
        let place = VehiclesPlace::choose(self)?;
        let began = Clock::get().now();
        let (runs, ended) = in_turn(Turns::new(self.asked.rounds, 1, bar), |number| {
            bar.set_message(format!("{} × {} messages", self.asked.vehicles, self.count));
            let made = one_run(self, &place, began);
            // One that had only begun is none; a process may have ended before it could catch the signal.
            if interrupted() && made.as_ref().map_or(true, |(run, ..)| run.is_empty()) {
                return Ok(None);
            }
            let (run, samples, report) = made?;
            store_samples(&run, number, samples, store)?;
            Ok(Some(report))
        })?;
        if runs.is_empty() && interrupted() {
            return Err("interrupted before anything was measured".to_owned().into());
        }
        Ok(MadeRuns { runs, ended, place })
    }

    fn summarise(&self, made: &MadeRuns, store: &Store) -> Result<Summary, StoreError> {
        let mut stalls = Vec::new();
        let (mut summary, _) =
            explained_summary(store, |read| stalls::add_longest(&mut stalls, read, self.receivers()))?;
        if let VehiclesPlace::Loopback { reason } = &made.place {
            let what = "a road of our own (measured over loopback instead)".to_owned();
            summary.skipped.push(Skipped { what, reason: reason.clone() });
        }
        cut_short(&mut summary, made.runs.len());
        if let Some(reason) = made.ended.clone() {
            summary.doubt(Cause::Ended { reason });
        }
        for result in &mut summary.results {
            // The steady state leaves first messages out.
            let taken = result.figures.count + result.first_ns.len() as u64;
            // They have their own figures; one each would be a long list.
            result.first_ns.clear();
            let rows = rows(made).filter(|row| row.name == result.cell.engine);
            let delivered = rows.map(|row| row.count).sum::<u64>() - result.duplicated;
            let counters = [("lost", result.lost), ("skipped", result.unfinished)];
            let counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
            result.ledger = Some(Ledger { taken, delivered, counters });
        }
        doubt_circumstances(&mut summary, made, !self.asked.no_barrier);
        stalls::add_causes(&mut stalls, &summary, self.receivers());
        let period = self.asked.period.as_secs_f64();
        let all = Overall {
            account: all_sums(made),
            stall_count: summary.results.iter().map(|result| result.stalls).sum(),
            stalls,
            place: made.place.describe(),
            mode: self.asked.mode,
            medium: self.asked.engine,
            wake: self.wake.to_string(),
            seal: self.is_sealed(),
            urgency: format!("{}{}", self.asked.sched, if self.asked.pin { ", pinned" } else { "" }),
            awake_us: self.asked.awake.as_secs_f64() * 1e6,
            barrier: !self.asked.no_barrier,
            vehicles: self.asked.vehicles,
            roadside: self.roadside,
            components: self.asked.components,
            period_us: self.asked.period.as_micros() as u64,
            messages: self.count,
            frames_per_second: (self.asked.vehicles * self.asked.components) as f64 / period,
            runs: made.runs.clone(),
        };
        summary.more.insert("vehicles".to_owned(), json!(all));
        Ok(summary)
    }

    fn in_vain(&self, summary: &Summary, made: &MadeRuns) -> Option<String> {
        // A promise that the runs before it broke is told first.
        let ended = made.ended.as_ref().filter(|_| self.promise(summary, made).is_ok());
        ended.map(|reason| format!("run {} of {}: {reason}", made.runs.len() + 1, self.asked.rounds))
    }

    fn promise(&self, summary: &Summary, made: &MadeRuns) -> Result<(), String> {
        let died: Vec<&str> = made.runs.iter().flat_map(|run| &run.died).map(String::as_str).collect();
        if !died.is_empty() {
            return Err(format!("a process died, and none may: {}", died.join(", ")));
        }
        // Before the account: a value that is not ours is in it too.
        if made.runs.iter().any(|run| run.facts.mismatched > 0) {
            return Err("a value arrived that was not as it was sent; see the summary".to_owned());
        }
        if !are_balanced(&made.runs) {
            return Err("a frame is in no counter or in two: report it as a bug".to_owned());
        }
        let is_whole = lost_before(made, !self.asked.no_barrier) == 0;
        if is_whole && summary.kept_promises() { Ok(()) } else { Err(Self::BROKEN.to_owned()) }
    }
}

fn rows(made: &MadeRuns) -> impl Iterator<Item = &Row> {
    made.runs.iter().flat_map(|run| &run.figures.rows)
}

/// Each by itself: in their sum, one that was cut short, or off the other way, would hide another.
pub(super) fn are_balanced(runs: &[RunReport]) -> bool {
    runs.iter().all(|run| run.account.is_balanced())
}

fn all_sums(made: &MadeRuns) -> Sums {
    let mut account = Sums::default();
    made.runs.iter().for_each(|run| account.add(&run.account));
    account
}

fn doubt_circumstances(summary: &mut Summary, made: &MadeRuns, has_barrier: bool) {
    let sum = |of: fn(&RunReport) -> u64| made.runs.iter().map(of).sum::<u64>();
    let disturbances = Disturbances {
        throttled: sum(|run| run.facts.throttled),
        faults: sum(|run| run.facts.faults),
        rescued: sum(|run| run.account.causes.get("missed_wakeups").copied().unwrap_or(0)),
        ..Disturbances::default()
    };
    let messages: u64 = rows(made).map(|row| row.count).sum();
    let subject = || "vehicles".to_owned();
    let mut causes = disturbances.causes(&subject(), messages);
    let (count, times) = (sum(|run| run.facts.refused), sum(|run| run.facts.unheard));
    causes.extend((count > 0).then(|| Cause::NoRoom { subject: subject(), count }));
    causes.extend((times > 0).then(|| Cause::Unheard { subject: subject(), times }));
    let (subject, count) = (
        "frames that no row has (before a first value, at the roadside, or no values)".to_owned(),
        lost_before(made, has_barrier),
    );
    causes.extend((count > 0).then_some(Cause::Lost { subject, count }));
    causes.into_iter().for_each(|cause| summary.doubt(cause));
}

/// Frames that nodes count as lost and no row does. A frame sent before a receiver's first value of a sender looks there like a value
/// that was never sent. A node that had not heard of another when all began may have missed messages that came then. An interrupted
/// run leaves messages on their way.
fn lost_before(made: &MadeRuns, has_barrier: bool) -> u64 {
    let of_run =
        |run: &RunReport| run.account.lost.saturating_sub(run.figures.rows.iter().map(|row| row.lost).sum());
    let can_tell = |run: &&RunReport| has_barrier && run.facts.unheard == 0 && !run.is_cut;
    made.runs.iter().filter(can_tell).map(of_run).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Header;
    use crate::vehicles::option::tests::settings_of;

    /// Goal: problems beside the messages are said: lost wake-ups, others that were not heard, values without room.
    #[test]
    fn circumstances_are_said() {
        let account = Sums { causes: [("missed_wakeups".to_owned(), 2)].into(), ..Sums::default() };
        let facts = Facts { unheard: 3, refused: 4, ..Facts::default() };
        let run = RunReport { account, facts, ..RunReport::default() };
        let made = |runs| MadeRuns { runs, ended: None, place: VehiclesPlace::Memory };
        let doubts = |runs| {
            let mut summary = Summary::new(&Header::new("vehicles"));
            summary.doubts.clear();
            doubt_circumstances(&mut summary, &made(runs), true);
            summary.doubts.iter().map(|doubt| doubt.what.clone()).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(doubts(vec![RunReport::default()]), "");
        let said = doubts(vec![run]);
        for words in ["2 wake-ups were lost", "3 times a process had not heard", "4 messages found no room"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    /// Goal: a frame that the account has as lost, and no row, is a doubt and breaks the promise; one that a row has as lost is not said twice.
    #[test]
    fn a_loss_before_the_first_value_is_said() {
        let lost = |account: u64, row: u64, unheard: u64, has_barrier: bool| {
            let run = RunReport {
                account: Sums { to_arrive: account, lost: account, ..Sums::default() },
                facts: Facts { unheard, ..Facts::default() },
                figures: RunFigures {
                    rows: vec![Row { lost: row, ..Row::default() }],
                    ..RunFigures::default()
                },
                ..RunReport::default()
            };
            let made = MadeRuns { runs: vec![run], ended: None, place: VehiclesPlace::Memory };
            let mut summary = Summary::new(&Header::new("vehicles"));
            summary.doubts.clear();
            doubt_circumstances(&mut summary, &made, has_barrier);
            let is_said = summary.doubts.iter().any(|doubt| doubt.what.contains("3 messages were lost"));
            let options = if has_barrier { "" } else { " --no-barrier" };
            let settings =
                settings_of(&format!("--mode callback --vehicles 2 --period 1ms --messages 4{options}"));
            let settings = settings.expect("options that go together");
            assert_eq!(settings.promise(&summary, &made).is_err(), is_said);
            is_said
        };
        assert!(lost(3, 0, 0, true) && lost(5, 2, 0, true));
        assert!(!lost(3, 3, 0, true) && !lost(3, 0, 1, true) && !lost(3, 0, 0, false));
    }

    /// Goal: a frame that no account has breaks the promise also where a later run was cut short, or has one too many.
    #[test]
    fn each_run_has_an_account_of_its_own() {
        let arrived = |arrived| Sums { to_arrive: 10, arrived, ..Sums::default() };
        let cut = Sums { incomplete: true, ..Sums::default() };
        let settings = settings_of("--mode callback --vehicles 2 --period 1ms --messages 4");
        let settings = settings.expect("options that go together");
        for (accounts, is_kept) in [
            ([arrived(9), cut.clone()], false),
            ([arrived(9), arrived(11)], false),
            ([arrived(10), cut], true),
            ([arrived(10), arrived(10)], true),
        ] {
            let runs = accounts.clone().map(|account| RunReport { account, ..RunReport::default() }).into();
            let made = MadeRuns { runs, ended: None, place: VehiclesPlace::Memory };
            let promise = settings.promise(&Summary::new(&Header::new("vehicles")), &made);
            assert_eq!(promise.is_ok(), is_kept, "{accounts:?}");
        }
    }

    /// Goal: an account in memory that stands still is not asked for again and again; one that still changes, or that waits for an
    /// announcement, is. Method: a frame of ten came before its receiver, and each time one more has arrived, up to nine.
    #[test]
    fn an_account_that_stands_still_is_whole_in_memory() {
        for (engine, asked) in [(Medium::Shared, 11), (Medium::Datagram, 12)] {
            let mut times = 0;
            let account = || {
                times += 1;
                assert!(times < 100, "a test hangs");
                let lost = u64::from(times == 12);
                Sums { to_arrive: 10, arrived: 9.min(times - 1), lost, ..Sums::default() }
            };
            let hour = Duration::from_hours(1);
            let sums = settled(account, engine, hour, Duration::ZERO);
            assert_eq!((times, sums.arrived, sums.is_balanced()), (asked, 9, engine != Medium::Shared));
        }
    }

    /// Goal: a run that cannot be made takes none of those before it away.
    #[test]
    fn runs_made_before_a_failure_stand() {
        let bar = ProgressBar::hidden();
        let until = |failed: u32| {
            in_turn(Turns::new(5, 1, &bar), |number| {
                let fails = number == failed;
                if fails { Err("vehicle-7 died".to_owned().into()) } else { Ok(Some(RunReport::default())) }
            })
        };
        let (runs, ended) = until(3).expect("three were made");
        assert_eq!((runs.len(), ended.as_deref()), (3, Some("vehicle-7 died")));
        assert_eq!(until(9).expect("all were made").0.len(), 5);
        assert!(until(0).is_err());
    }
}
