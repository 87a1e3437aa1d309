//! Report of `punctual run vehicles`: the published tables beside ours, every row as it is, the wake-up order, stalls, start-up, the
//! account.

use serde::{Deserialize, Serialize};

use super::experiment::{Absence, RunReport};
use super::first::FirstMessage;
use super::ledger::Sums;
use super::option::Mode;
use super::stalls::VehicleStall;
use super::tables;
use crate::endpoint::Medium;
use crate::report::parts;
use crate::report::section::{Item, Output, Section};
use crate::summary::Summary;
use crate::units::{OptionName, count, grouped, micros};

/// The entry `vehicles` of the summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Overall {
    /// Where values travelled, in words.
    pub(super) place: String,
    pub(super) mode: Mode,
    pub(super) medium: Medium,
    pub(super) wake: String,
    pub(super) seal: bool,
    /// Urgency of the vehicles' threads, in words.
    #[serde(default)]
    pub(super) urgency: String,
    /// Time before and after each instant during which all processors were kept awake, µs.
    #[serde(default)]
    pub(super) awake_us: f64,
    /// True if all processes waited for each other before the first one published.
    #[serde(default = "yes")]
    pub(super) barrier: bool,
    pub(super) vehicles: usize,
    pub(super) roadside: usize,
    pub(super) components: usize,
    /// Between two messages of a component, µs.
    pub(super) period_us: u64,
    /// Messages of each component.
    pub(super) messages: usize,
    pub(super) frames_per_second: f64,
    pub(super) runs: Vec<RunReport>,
    pub(super) account: Sums,
    /// Stalls of receivers in all runs, as the results count them.
    #[serde(default)]
    pub(super) stall_count: u64,
    /// The longest of them, the longest first.
    #[serde(default)]
    pub(super) stalls: Vec<VehicleStall>,
}

/// Value for runs that were made before there was a choice.
fn yes() -> bool {
    true
}

pub(super) fn overall(summary: &Summary) -> Option<Overall> {
    summary.added("vehicles")
}

/// The whole answer.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(all) = overall(summary) {
        sections.extend([setting(&all), tables::published(&all), tables::all_messages(&all)]);
        sections.extend(parts::results(&summary.results).into_iter().map(|section| {
            let about =
                format!("{}: due → received, in the steady state, as the summary has it", section.about);
            section.about(about).only_on(Output::Terminal)
        }));
        sections.extend(tables::stages(summary));
        sections.push(stalls(&all));
        sections.extend(tables::places(&all));
        sections.extend(tables::arrivals(&all));
        sections.extend(tables::senders(&all));
        sections.push(tables::start_up(&all));
        sections.push(firsts(&all));
        sections.push(tables::account(&all));
    }
    sections.extend(parts::rest(summary));
    sections
}

fn setting(all: &Overall) -> Section {
    let (mode, medium, wake) = (all.mode.name(), all.medium.name(), &all.wake);
    let seal = if all.seal { "sealed" } else { "not sealed" };
    let rate = grouped(all.frames_per_second.round() as i64);
    let plural = if all.components == 1 { "" } else { "s" };
    let what = format!(
        "{} vehicles × {} component{plural}, {} roadside",
        all.vehicles, all.components, all.roadside
    );
    let awake = || format!("; processors kept awake {} µs before and after each instant", all.awake_us);
    let awake = (all.awake_us > 0.0).then(awake).unwrap_or_default();
    Section::new(what)
        .about(format!("{rate} frames/s; {mode} mode over {medium}, {wake}, {seal}"))
        .note(format!("On {}; scheduling {}{awake}.", all.place, all.urgency))
        .note(parts::WORDS)
}

/// Stalls told one by one.
const STALLS_SHOWN: usize = 5;
/// First messages told one by one.
const FIRSTS_SHOWN: usize = 5;

fn stalls(all: &Overall) -> Section {
    let told = all.stalls.iter().take(STALLS_SHOWN).map(|found| {
        let VehicleStall { run, receiver, row, stage, cause, stall } = found;
        let late_us = all.runs.get(*run).map_or(0, |run| run.control_late_us);
        let stage = stage
            .as_ref()
            .map_or(String::new(), |(name, ns)| format!(", {} of it in {name}", micros(*ns as f64)));
        let cause = cause.as_ref().map_or(String::new(), |cause| format!("; {cause}"));
        Item::new(format!(
            "run {}, receiver {receiver}, {row}: {} messages, the longest {} µs{stage}{cause} (a thread that only looks: late by {} µs \
             at most)",
            run + 1,
            stall.messages,
            micros(stall.longest_ns as f64),
            count(late_us)
        ))
    });
    let absent = of_runs(all, |run| &run.absences);
    let absent = absent.map(|(run, absence)| Item::new(format!("run {run}, {}", absence_words(absence))));
    Section::new("Stalls of receivers")
        .about(format!("due → received: {} in all runs", all.stall_count))
        .items(told.chain(absent).collect())
}

/// Something of all runs, each with the number of its run.
fn of_runs<'a, T: 'a>(
    all: &'a Overall,
    of: impl Fn(&'a RunReport) -> &'a Vec<T>,
) -> impl Iterator<Item = (usize, &'a T)> {
    all.runs.iter().zip(1..).flat_map(move |(run, number)| of(run).iter().map(move |one| (number, one)))
}

/// "vehicle-3: never sent 5 values, none for 500 ms; a signal continued it once: it had been stopped".
fn absence_words(absence: &Absence) -> String {
    let Absence { process, skipped, longest_ns, continued, throttled, queued_ns } = absence;
    let [longest_ms, queued_ms] = [longest_ns, queued_ns].map(|ns| ns / 1_000_000);
    let words = [
        (
            skipped,
            format!(
                "never sent {skipped} values, none for {longest_ms} ms: it did not run at their instants"
            ),
        ),
        (continued, format!("stopped: a signal continued it {continued} times")),
        (throttled, format!("throttled: its CPU quota ran out {throttled} times")),
        (skipped, format!("its threads waited {queued_ms} ms for a processor in all")),
    ];
    let words = words.into_iter().filter(|(count, _)| **count > 0).map(|(_, words)| words);
    let words: Vec<String> = words.collect();
    format!("{process}: {}", words.join("; "))
}

/// First messages, split by the steps of their receivers' opening.
fn firsts(all: &Overall) -> Section {
    let begun = if all.barrier { "at a barrier" } else { "without a barrier, each when it is open" };
    let mut slowest: Vec<(usize, &FirstMessage)> = of_runs(all, |run| &run.firsts.slowest).collect();
    slowest.sort_by_key(|(_, first)| std::cmp::Reverse(first.ns));
    let slowest = slowest.into_iter().take(FIRSTS_SHOWN);
    let slowest = slowest.map(|(run, first)| Item::new(format!("run {run}, {}", first_words(first))));
    Section::new(format!("First messages, {begun}"))
        .about("sent → received, and what the receiver did meanwhile, mean, ms")
        .table(tables::firsts(all))
        .items(slowest.collect())
        .note(STEPS_SAY)
}

const STEPS_SAY: &str = "Bus: memory and sockets of the node. Bind: communicators, threads. Discovery: until all others were \
     heard. Start: until the receiving thread ran. Listening: a queue of messages before it, a sleep, or no processor. Looker: a \
     thread on each processor that only looks, in the whole run; time that it misses too and no run queue held was the \
     hypervisor's or the kernel's.";

/// "vehicle 3 → listener: 31.20 ms: bus 2.10, listening 29.10; it waited for a processor for 20.00 to 25.00".
fn first_words(first: &FirstMessage) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    // A hundredth of a millisecond is the least that is shown.
    let shown = first.steps.iter().filter(|share| share.ns >= 5_000);
    let steps: Vec<String> = shown.map(|share| format!("{} {:.2}", share.step, ms(share.ns))).collect();
    let [least, most] = first.queued_ns.map(ms);
    let FirstMessage { sender, receiver, ns, .. } = first;
    format!(
        "vehicle {sender} → {receiver}: {:.2} ms: {}; it was ready and waited for a processor for {least:.2} to {most:.2}",
        ms(*ns),
        steps.join(", ")
    )
}
