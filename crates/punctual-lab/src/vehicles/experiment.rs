//! All runs of a vehicle test: fresh processes, a barrier, values, the account, the store.

use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::figures::{Evidence, Figures, Row, SenderRow};
use super::first::{self, Firsts};
use super::idle_inhibitor::IdleInhibitor;
use super::ledger::Sums;
use super::option::Settings;
use super::protocol::{Facts, Opening, Part};
use super::testbed::{Place, Testbed, WorkloadResult};
use crate::scheduling::Control;
use crate::scheduling::Urgency;
use crate::store::{Store, StoreError};

/// From the last process's *ready* to the barrier's opening: all have heard of it by then, and of each other's interests.
const BARRIER: Duration = Duration::from_millis(800);
/// More for every component, each of which tells its interest to all.
const BARRIER_PER_COMPONENT: Duration = Duration::from_millis(12);
/// Peers announce once a second how far they are; one announcement may be lost too.
const ANNOUNCEMENTS: Duration = Duration::from_millis(2600);
const BETWEEN_ACCOUNTS: Duration = Duration::from_millis(200);

/// Why a run ended early.
#[derive(Debug)]
pub enum RunError {
    /// The store could not be written.
    Store(StoreError),
    /// The machine cannot: what is missing and what to do.
    Machine(String),
}

/// Start-up of a run's processes, all at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StartUp {
    /// From the first process's start to the last one's *ready*, ms.
    pub all_ready_ms: f64,
    /// Slowest calibration of a clock, ms.
    pub clock_ms_max: f64,
    /// Slowest joining of the bus: memory, sockets, ms.
    pub node_ms_max: f64,
    /// Slowest binding of communicators, ms.
    pub bind_ms_max: f64,
    /// Until the slowest had heard all others, ms.
    pub joined_ms_max: f64,
    /// From the beginning of a receiver's opening until it had a value of every other: the slowest, ms.
    #[serde(default)]
    pub all_heard_ms: f64,
    /// Latency of first messages: the median and the slowest, ns.
    pub first_ns_median: Option<u64>,
    /// The slowest.
    pub first_ns_max: Option<u64>,
}

/// A process that did not run when it should have, and what is known of why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// Whose.
    pub process: String,
    /// Values that it never sent.
    pub skipped: u64,
    /// Time for which it sent none of its values at least, ns.
    pub longest_ns: u64,
    /// Times that a signal continued it.
    pub continued: u64,
    /// Times that its CPU quota ran out.
    pub throttled: u64,
    /// Time that its threads waited for a processor, ns.
    pub queued_ns: u64,
}

/// One run, but its samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The published rows and ours.
    pub rows: Vec<Row>,
    /// Processes that died.
    pub died: Vec<String>,
    /// What became of every frame.
    pub account: Sums,
    /// Before the barrier, and the first messages.
    pub startup: StartUp,
    /// First messages, and what their receivers did meanwhile.
    #[serde(default)]
    pub firsts: Firsts,
    /// Processes that did not run when they should have.
    #[serde(default)]
    pub absences: Vec<Absence>,
    /// Median latency by place in the wake-up order, ns.
    pub fan_out_ns: Vec<u64>,
    /// Each latency in order of arrival, ns, where one process receives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals_ns: Vec<u64>,
    /// Who sent each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrival_senders: Vec<u16>,
    /// Latencies by sender, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<SenderRow>,
    /// By how much the mean period of a component deviates at most, parts per million.
    pub drift_ppm: f64,
    /// Sums of what all processes went through.
    pub facts: Facts,
    /// The most that a process's memory grew between the barrier and the end, KiB.
    pub growth_kib_max: i64,
    /// How late a thread that only looks was at most, µs: the machine's own lateness.
    pub control_late_us: u64,
}

/// What all runs brought beside the store.
#[derive(Debug)]
pub struct Made {
    /// Run by run.
    pub runs: Vec<RunReport>,
    /// Where.
    pub place: Place,
}

/// Makes all runs, from a thread that may leave for a network namespace of its own.
///
/// # Errors
/// When the store cannot be written, or the machine cannot.
pub fn run(settings: &Settings, store: &mut Store, bar: &ProgressBar) -> Result<Made, RunError> {
    let place = Place::choose(settings).map_err(RunError::Machine)?;
    let began = Clock::get().now();
    bar.set_length(settings.runs.into());
    let mut runs = Vec::new();
    for number in 0..settings.runs {
        if interrupted() {
            break;
        }
        bar.set_message(format!("{} × {} messages", settings.vehicles, settings.count));
        let made = one_run(settings, &place, began).map_err(RunError::Machine)?;
        let (report, figures) = made;
        store_samples(settings, number, figures, store).map_err(RunError::Store)?;
        runs.push(report);
        bar.inc(1);
    }
    Ok(Made { runs, place })
}

fn store_samples(
    settings: &Settings,
    run: u32,
    figures: Figures,
    store: &mut Store,
) -> Result<(), StoreError> {
    for (receiver, rows) in (0..).zip(figures.samples) {
        let cells: Vec<_> = rows.into_iter().map(|(row, samples)| (settings.cell(&row), samples)).collect();
        store.append_all(run * settings.receivers() as u32 + receiver, &cells)?;
    }
    Ok(())
}

/// The account of all, once it is complete: of what was lost last, receivers learn by the next announcement.
fn sums(testbed: &mut Testbed, settings: &Settings) -> Result<Sums, String> {
    let mutual = settings.mode.is_mutual();
    let patience_ns = monotonic_ns() + ANNOUNCEMENTS.as_nanos() as u64;
    loop {
        let accounts = testbed.account()?;
        let sums = Sums::of(&accounts, mutual, testbed.died.len());
        if sums.is_balanced() || !mutual || monotonic_ns() > patience_ns {
            return Ok(sums);
        }
        std::thread::sleep(BETWEEN_ACCOUNTS);
    }
}

fn one_run(settings: &Settings, place: &Place, began: Ticks) -> Result<(RunReport, Figures), String> {
    let tag = punctual_machine::process::random() as u16;
    let started = std::time::Instant::now();
    let mut testbed = Testbed::start(settings, place, tag)?;
    // Without a barrier the first messages come while processes open.
    let (mut opened, mut controls) = (Clock::get().now(), (!settings.barrier).then(controls));
    let openings = testbed.open(settings, place, tag)?;
    let all_ready_ms = started.elapsed().as_secs_f64() * 1e3;
    let controls = controls.get_or_insert_with(self::controls);
    let mut at_ns = None;
    if settings.barrier {
        let barrier = barrier(settings);
        at_ns = Some(monotonic_ns() + barrier.as_nanos() as u64);
        opened = Clock::get().now().plus(Clock::get().ticks(barrier));
    }
    let awake = at_ns.map(|at_ns| IdleInhibitor::start(settings, at_ns));
    let brought = testbed.travel(at_ns)?;
    drop(awake);
    let control_late_us = controls.iter().map(|control| control.totals().2).max().unwrap_or(0);
    controls.clear();
    let figures = Evidence { settings, brought: &brought, began, opened }.figures();
    let (firsts, first_ns) = first::firsts(&openings, &brought);
    let mut account = sums(&mut testbed, settings)?;
    if !settings.mode.is_mutual() {
        // No node counts losses there: the numbers of what came do.
        account.lost += figures.rows.iter().map(|row| row.lost).sum::<u64>();
    }
    if !settings.barrier {
        account.without_barrier();
    }
    let report = RunReport {
        account,
        died: std::mem::take(&mut testbed.died),
        startup: start_up(&openings, all_ready_ms, first_ns, &firsts),
        firsts,
        rows: figures.rows.clone(),
        absences: absences(settings, &brought),
        fan_out_ns: figures.fan_out_ns.clone(),
        arrivals_ns: figures.arrivals_ns.clone(),
        arrival_senders: figures.arrival_senders.clone(),
        senders: figures.senders.clone(),
        drift_ppm: (figures.drift_ppm * 10.0).round() / 10.0,
        facts: sum_of_facts(&brought),
        growth_kib_max: growth(&brought),
        control_late_us,
    };
    Ok((report, figures))
}

/// A thread on each processor that only looks how late it is.
fn controls() -> Vec<Control> {
    punctual_machine::cpu::allowed().iter().map(|&cpu| Control::start(Some(cpu), Urgency::Other)).collect()
}

/// From the last *ready* to the barrier's opening.
fn barrier(settings: &Settings) -> Duration {
    let components = u32::try_from(settings.vehicles * settings.components).unwrap_or(u32::MAX);
    BARRIER + BARRIER_PER_COMPONENT * components
}

fn start_up(
    openings: &[(Part, Opening)],
    all_ready_ms: f64,
    mut first: Vec<u64>,
    firsts: &Firsts,
) -> StartUp {
    let most = |of: fn(&Opening) -> u64| {
        let ns = openings.iter().map(|(_, opening)| of(opening)).max().unwrap_or(0);
        (ns as f64 / 1e4).round() / 100.0
    };
    first.sort_unstable();
    StartUp {
        all_ready_ms: all_ready_ms.round(),
        clock_ms_max: most(|opening| opening.clock_ns),
        node_ms_max: most(|opening| opening.node_ns),
        bind_ms_max: most(|opening| opening.bind_ns),
        joined_ms_max: most(|opening| opening.joined_ns),
        all_heard_ms: firsts.all_heard_ms,
        first_ns_median: first.get(first.len() / 2).copied(),
        first_ns_max: first.last().copied(),
    }
}

fn sum_of_facts(brought: &[(Part, WorkloadResult)]) -> Facts {
    let mut all = Facts::default();
    for facts in brought.iter().map(|(_, brought)| brought.facts) {
        all.sent += facts.sent;
        all.refused += facts.refused;
        all.mismatched += facts.mismatched;
        all.beacons += facts.beacons;
        all.queued_ns += facts.queued_ns;
        all.cpu_ns += facts.cpu_ns;
        all.signals += facts.signals;
        all.continued += facts.continued;
        // Processes may share a group.
        all.throttled = all.throttled.max(facts.throttled);
        all.faults += facts.faults;
        for (sum, kib) in all.resident_kib.iter_mut().zip(facts.resident_kib) {
            *sum += kib;
        }
    }
    all
}

fn growth(brought: &[(Part, WorkloadResult)]) -> i64 {
    let of_one = |facts: &Facts| facts.resident_kib[1].cast_signed() - facts.resident_kib[0].cast_signed();
    brought.iter().map(|(_, brought)| of_one(&brought.facts)).max().unwrap_or(0)
}

/// Processes that skipped values, were stopped or ran out of their quota.
fn absences(settings: &Settings, brought: &[(Part, WorkloadResult)]) -> Vec<Absence> {
    let period_ns = u64::try_from(settings.period.as_nanos()).unwrap_or(u64::MAX);
    let of_one = |(part, brought): &(Part, WorkloadResult)| {
        let counts = || brought.skipped.iter().map(|skipped| u64::from(skipped.count));
        let Facts { continued, throttled, queued_ns, .. } = brought.facts;
        let longest_ns = counts().max().unwrap_or(0).saturating_mul(period_ns);
        let process = part.name();
        Absence { process, skipped: counts().sum(), longest_ns, continued, throttled, queued_ns }
    };
    let is_one = |absence: &Absence| absence.skipped + absence.continued + absence.throttled > 0;
    brought.iter().map(of_one).filter(is_one).collect()
}
