//! The experiment's tables for a terminal.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::experiment::{Absence, RunReport};
use super::first::{FirstMessage, STEPS};
use super::ledger::Sums;
use super::option::{Medium, Mode};
use super::published::{PUBLISHED, PUBLISHED_ASYNC, Published, Standing, rows};
use super::stalls::VehicleStall;
use crate::stats::UNEXPLAINED;
use crate::summary::{CellResult, Summary};
use crate::table::{self, Style, grouped, micros};

/// What stands in the summary under `vehicles`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// Where values travelled, in words.
    pub place: String,
    /// Where the probe stood.
    pub mode: Mode,
    /// What carried messages.
    pub medium: Medium,
    /// How receivers waited.
    pub wake: String,
    /// Whether messages carried a tag.
    pub seal: bool,
    /// How urgent the vehicles' threads were, in words.
    #[serde(default)]
    pub urgency: String,
    /// How long before and after each instant all processors were kept awake, µs.
    #[serde(default)]
    pub awake_us: f64,
    /// Whether all waited for each other before the first published.
    #[serde(default = "yes")]
    pub barrier: bool,
    /// Processes that published.
    pub vehicles: usize,
    /// Processes beside the road.
    pub roadside: usize,
    /// Components of each vehicle.
    pub components: usize,
    /// Between two messages of a component, µs.
    pub period_us: u64,
    /// Messages of each component.
    pub messages: usize,
    /// Frames of all components in a second.
    pub frames_per_second: f64,
    /// Run by run.
    pub runs: Vec<RunReport>,
    /// Against the last published table.
    pub standings: Vec<Standing>,
    /// Over all runs.
    pub account: Sums,
    /// Stalls of receivers in all runs, as the results count them.
    #[serde(default)]
    pub stall_count: usize,
    /// The longest of them, the longest first.
    #[serde(default)]
    pub stalls: Vec<VehicleStall>,
}

/// What runs say that were made before there was a choice.
fn yes() -> bool {
    true
}

/// What the summary holds of it.
#[must_use]
pub fn overall(summary: &Summary) -> Option<Overall> {
    serde_json::from_value(summary.more.get("vehicles")?.clone()).ok()
}

/// The whole answer.
#[must_use]
pub fn overview(summary: &Summary, style: Style) -> String {
    let Some(all) = overall(summary) else { return String::new() };
    let mut text = head(&all, style);
    text += &published(&all, style);
    text += &honest(&all, style);
    text += &deltas(&all, style);
    text += &places(&all, style);
    text += &results(summary, style);
    text += &stages(summary, style);
    text += &stalls(&all, style);
    text += &senders(&all, style);
    text += &start_up(&all, style);
    text += &firsts(&all, style);
    text += &account(&all, style);
    text += &table::skipped(&summary.skipped, style);
    text + &table::doubts(&summary.doubts, style)
}

fn head(all: &Overall, style: Style) -> String {
    let (mode, medium, wake) = (all.mode.name(), all.medium.name(), &all.wake);
    let seal = if all.seal { "sealed" } else { "not sealed" };
    let rate = grouped(all.frames_per_second.round() as i64);
    let what = format!(
        "{} vehicles × {} component{}, {} roadside; {rate} frames/s; {mode} mode over {medium}, {wake}, {seal}",
        all.vehicles,
        all.components,
        if all.components == 1 { "" } else { "s" },
        all.roadside,
    );
    let awake = if all.awake_us > 0.0 {
        format!("; processors kept awake {} µs before and after each instant", all.awake_us)
    } else {
        String::new()
    };
    let place = format!("on {}; scheduling {}{awake}", all.place, all.urgency);
    format!("{}\n{}\n\n", style.heading(&what), style.faint(&place))
}

/// Ours by the rule of the tables: min / mean of truncated means / max, whole µs.
fn published(all: &Overall, style: Style) -> String {
    let title = "By the rule of the published tables, sent → received, µs (min / mean / max)";
    let mut text = format!("{}\n", style.heading(title));
    for name in ["socket", "shared", "sharedmem"] {
        let rows = rows(&all.runs, name);
        if rows.is_empty() {
            continue;
        }
        let known = |published: &&Published| published.row == name && all.mode.is_mutual();
        for published in PUBLISHED.iter().filter(known) {
            let table = format!("published, {} table", published.table);
            let mean = format!("{:.2}", published.mean);
            let _ = writeln!(text, "{}", line(name, &table, published.min, &mean, published.max));
        }
        for (number, row) in rows.iter().enumerate() {
            let run = format!("ours, run {}", number + 1);
            let mean = format!("{:.2}", row.mean_us);
            let _ = writeln!(text, "{}", line(name, &run, row.min_us, &mean, row.max_us));
        }
        if let Some(standing) = all.standings.iter().find(|s| s.row == name && all.mode.is_mutual()) {
            let Standing { runs, mean_below, max_below, .. } = standing;
            let below = format!(
                "{:<11}below the last table: mean in {mean_below} of {runs} runs, max in {max_below}",
                ""
            );
            let _ = writeln!(text, "{below}");
        }
    }
    let rule = "Rule: the least; the mean over receivers of each one's mean truncated to whole µs; the most.";
    let _ = writeln!(text, "{}\n", style.faint(rule));
    text
}

fn line(name: &str, what: &str, min: u64, mean: &str, max: u64) -> String {
    let (min, max) = (grouped(min.cast_signed()), grouped(max.cast_signed()));
    format!("{name:<11}{what:<24}{min:>8}{mean:>12}{max:>9}")
}

fn honest(all: &Overall, style: Style) -> String {
    let title = "The same messages, all of them, sent → received, µs";
    let mut text = format!("{}\n", style.heading(title));
    let head = format!(
        "{:<11}{:<4}{:>9}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}",
        "", "run", "count", "lost", "skipped", "mean", "p50", "p90", "p99", "p99.9", "max", "sent late"
    );
    let _ = writeln!(text, "{}", style.faint(&head));
    for (number, run) in all.runs.iter().enumerate() {
        for row in run.rows.iter().filter(|row| row.count + row.lost > 0) {
            let time = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| micros(ns as f64));
            let [p50, p90, p99, p999, max] =
                [row.p50_ns, row.p90_ns, row.p99_ns, row.p999_ns, Some(row.max_ns)].map(time);
            let (mean, late) = (micros(row.pooled_mean_ns), micros(row.late_mean_ns));
            let count = grouped(row.count.cast_signed());
            let (name, run, lost, skipped) = (&row.name, number + 1, row.lost, row.skipped);
            let _ = writeln!(
                text,
                "{name:<11}{run:<4}{count:>9}{lost:>6}{skipped:>9}{mean:>9}{p50:>9}{p90:>9}{p99:>9}{p999:>9}{max:>9}{late:>10}"
            );
        }
    }
    let late = "Sent late: mean distance from due to sent, which the published tables leave out; the results count it in.";
    let skipped = "Skipped: not sent, as its publisher slept through the instant or did not know yet that it was wanted; as late as what came instead.";
    let _ = writeln!(text, "{}\n{}\n", style.faint(late), style.faint(skipped));
    text
}

/// Where one process receives: every delta in order of arrival, as the original printed them.
fn deltas(all: &Overall, style: Style) -> String {
    let mut text = String::new();
    for (number, run) in all.runs.iter().enumerate().filter(|(_, run)| !run.arrivals_ns.is_empty()) {
        let title = format!("Run {}: every latency in order of arrival, sender:whole µs", number + 1);
        let _ = writeln!(text, "{}", style.heading(&title));
        let arrivals = run.arrival_senders.iter().zip(&run.arrivals_ns);
        let words: Vec<String> =
            arrivals.map(|(sender, ns)| format!("{sender}:{}", grouped((ns / 1000).cast_signed()))).collect();
        let mut line = String::new();
        for word in words {
            if line.len() + word.len() > 98 {
                let _ = writeln!(text, "{line}");
                line.clear();
            }
            let _ = write!(line, "{word} ");
        }
        let _ = writeln!(text, "{line}");
    }
    if all.mode == Mode::Async {
        let published: Vec<String> = PUBLISHED_ASYNC
            .iter()
            .map(|(name, us)| format!("{name} {}", grouped(us.cast_signed())))
            .collect();
        let note = format!("Published, 1,506 deltas, µs: {}.", published.join(", "));
        let _ = writeln!(text, "{}", style.faint(&note));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn places(all: &Overall, style: Style) -> String {
    let Some(run) = all.runs.iter().rev().find(|run| run.fan_out_ns.len() > 1) else { return String::new() };
    let title = "Of all that one message reaches, who has it first, second, …: p50, µs (last run)";
    let places: Vec<String> = run.fan_out_ns.iter().map(|&ns| micros(ns as f64)).collect();
    format!("{}\n{}\n\n", style.heading(title), places.join("  "))
}

/// The summary's own figures, from due: what the page and every other experiment shows.
fn results(summary: &Summary, style: Style) -> String {
    let title = "The same, due → received, in the steady state: the figures of the summary";
    format!("{}\n{}", style.heading(title), table::results(&summary.results, style))
}

/// Where the time of each row goes.
fn stages(summary: &Summary, style: Style) -> String {
    let stamped: Vec<&CellResult> = summary.results.iter().filter(|r| !r.stages.is_empty()).collect();
    if stamped.is_empty() {
        return String::new();
    }
    let title = "Where the time goes, due → received: the median of each stage, µs, and its part of all";
    let mut text = format!("{}\n", style.heading(title));
    let mut head = format!("{:<14}", "");
    for result in &stamped {
        let _ = write!(head, "{:>18}", result.cell.engine);
    }
    let _ = writeln!(text, "{}", style.faint(&head));
    for name in stage_names(&stamped) {
        let _ = write!(text, "{name:<14}");
        for result in &stamped {
            let stage = result.stages.iter().find(|stage| stage.name == name);
            let shown =
                stage.map(|s| format!("{:>11}{:>5.0} %", micros(s.median_ns as f64), s.share * 100.0));
            let _ = write!(text, "{:>18}", shown.unwrap_or_else(|| "–".to_owned()));
        }
        text.push('\n');
    }
    let note = "Medium: until the receiver's kernel, or a receiver that was awake, had it. Elsewhere: the receiver did something else. \
                Woken: it slept. Delivered: from thread to thread.";
    let _ = writeln!(text, "{}\n", style.faint(note));
    text
}

/// Every stage of any of them, in order; what is unexplained comes last.
#[must_use]
pub fn stage_names<'s>(results: &[&'s CellResult]) -> Vec<&'s str> {
    let mut names: Vec<&str> = Vec::new();
    for stage in results.iter().flat_map(|result| &result.stages) {
        if !names.contains(&stage.name.as_str()) {
            names.push(&stage.name);
        }
    }
    names.sort_by_key(|name| *name == UNEXPLAINED);
    names
}

/// Senders in a line of the terminal.
const SENDERS_A_LINE: usize = 5;
/// First messages told one by one.
const FIRSTS_SHOWN: usize = 5;
/// Stalls told one by one.
const STALLS_SHOWN: usize = 5;

fn stalls(all: &Overall, style: Style) -> String {
    let title = format!("Stalls of receivers, due → received: {} in all runs", all.stall_count);
    let mut text = format!("{}\n", style.heading(&title));
    for found in all.stalls.iter().take(STALLS_SHOWN) {
        let VehicleStall { run, receiver, row, stage, stall } = found;
        let late_us = all.runs.get(*run).map_or(0, |run| run.control_late_us);
        let where_ = stage
            .as_ref()
            .map_or(String::new(), |(name, ns)| format!(", {} of it in {name}", micros(*ns as f64)));
        let _ = writeln!(
            text,
            "  run {}, receiver {receiver}, {row}: {} messages, the longest {} µs{where_} (a thread that only looks: late by {} µs at most)",
            run + 1,
            stall.messages,
            micros(stall.longest_ns as f64),
            grouped(late_us.cast_signed())
        );
    }
    for (run, absence) in absences(all) {
        let _ = writeln!(text, "  run {}, {}", run + 1, absence_words(absence));
    }
    text.push('\n');
    text
}

/// Who did not run when it should have, with the number of the run.
pub fn absences(all: &Overall) -> impl Iterator<Item = (usize, &Absence)> {
    all.runs.iter().enumerate().flat_map(|(run, report)| report.absences.iter().map(move |one| (run, one)))
}

/// "vehicle-3: never sent 5 values, none for 500 ms; a signal continued it once: it had been stopped".
#[must_use]
pub fn absence_words(absence: &Absence) -> String {
    let Absence { process, skipped, longest_ns, continued, throttled, queued_ns } = absence;
    let mut words = Vec::new();
    if *skipped > 0 {
        let ms = longest_ns / 1_000_000;
        words
            .push(format!("never sent {skipped} values, none for {ms} ms: it did not run at their instants"));
    }
    if *continued > 0 {
        words.push(format!("stopped: a signal continued it {continued} times"));
    }
    if *throttled > 0 {
        words.push(format!("throttled: its CPU quota ran out {throttled} times"));
    }
    if *skipped > 0 {
        words.push(format!("its threads waited {} ms for a processor in all", queued_ns / 1_000_000));
    }
    format!("{process}: {}", words.join("; "))
}

fn senders(all: &Overall, style: Style) -> String {
    let Some(run) = all.runs.iter().rev().find(|run| !run.senders.is_empty()) else { return String::new() };
    let title = "By sender, sent → received: p50 / max, µs (last run)";
    let mut text = format!("{}\n", style.heading(title));
    for rows in run.senders.chunks(SENDERS_A_LINE) {
        for row in rows {
            let (p50, max) = (micros(row.p50_ns as f64), micros(row.max_ns as f64));
            let _ = write!(text, "{:<24}", format!("{:>4}: {p50} / {max}", row.sender));
        }
        text = text.trim_end().to_owned() + "\n";
    }
    text + "\n"
}

/// What of first messages was which step of their receivers' opening.
fn firsts(all: &Overall, style: Style) -> String {
    let begun = if all.barrier { "at a barrier" } else { "without a barrier, each when it is open" };
    let title =
        format!("First messages, {begun}: sent → received, and what the receiver did meanwhile, mean, ms");
    let mut text = format!("{}\n", style.heading(&title));
    let mut head = format!("{:<6}{:>7}{:>9}", "run", "count", "all");
    STEPS.iter().for_each(|step| head += &format!("{step:>11}"));
    head += "   looker late";
    let _ = writeln!(text, "{}", style.faint(&head));
    for (number, run) in all.runs.iter().enumerate().filter(|(_, run)| run.firsts.count > 0) {
        let total: u64 = run.firsts.mean.iter().map(|share| share.ns).sum();
        let _ = write!(text, "{:<6}{:>7}{:>9.2}", number + 1, run.firsts.count, total as f64 / 1e6);
        run.firsts.mean.iter().for_each(|share| {
            let _ = write!(text, "{:>11.2}", share.ns as f64 / 1e6);
        });
        let _ = writeln!(text, "{:>14.2}", run.control_late_us as f64 / 1e3);
    }
    for (number, first) in slowest_firsts(all, FIRSTS_SHOWN) {
        let _ = writeln!(text, "  run {}, {}", number + 1, first_words(first));
    }
    let _ = writeln!(text, "{}\n", style.faint(STEPS_SAY));
    text
}

/// What the steps are, for people.
pub const STEPS_SAY: &str = "Clock: its calibration. Bus: memory and sockets of the node. Bind: communicators, threads. Discovery: \
     until all others were heard. Start: until the receiving thread ran. Listening: a queue of messages before it, a sleep, or no processor. Looker: a thread on each processor \
     that only looks, in the whole run; what it misses too and no run queue held was the hypervisor's or the kernel's.";

/// The slowest first messages of all runs, with the number of the run.
#[must_use]
pub fn slowest_firsts(all: &Overall, count: usize) -> Vec<(usize, &FirstMessage)> {
    let of_runs = all.runs.iter().enumerate();
    let mut slowest: Vec<_> = of_runs
        .flat_map(|(run, report)| report.firsts.slowest.iter().map(move |first| (run, first)))
        .collect();
    slowest.sort_by_key(|(_, first)| std::cmp::Reverse(first.ns));
    slowest.truncate(count);
    slowest
}

/// "vehicle 3 → listener: 31.20 ms: bus 2.10, listening 29.10; it waited for a processor for 20.00 to 25.00".
#[must_use]
pub fn first_words(first: &FirstMessage) -> String {
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

fn start_up(all: &Overall, style: Style) -> String {
    let mut text = format!(
        "{}\n",
        style.heading("Start-up, apart: slowest process of each run, ms; first messages, µs")
    );
    let head = format!(
        "{:<6}{:>11}{:>8}{:>8}{:>8}{:>12}{:>14}{:>12}{:>14}{:>11}",
        "run",
        "all ready",
        "clock",
        "node",
        "bind",
        "all told",
        "first: p50",
        "max",
        "queued, ms",
        "drift ppm"
    );
    let _ = writeln!(text, "{}", style.faint(&head));
    for (number, run) in all.runs.iter().enumerate() {
        let startup = &run.startup;
        let first = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| micros(ns as f64));
        let queued = run.facts.queued_ns as f64 / 1e6;
        let _ = writeln!(
            text,
            "{:<6}{:>11.0}{:>8.1}{:>8.1}{:>8.1}{:>12.1}{:>14}{:>12}{queued:>14.1}{:>11.1}",
            number + 1,
            startup.all_ready_ms,
            startup.clock_ms_max,
            startup.node_ms_max,
            startup.bind_ms_max,
            startup.all_heard_ms,
            first(startup.first_ns_median),
            first(startup.first_ns_max),
            run.drift_ppm,
        );
    }
    text.push('\n');
    text
}

fn account(all: &Overall, style: Style) -> String {
    let sums = &all.account;
    let number = |count: u64| grouped(count.cast_signed());
    let mut text = format!("{}\n", style.heading("Every frame, all nodes and runs"));
    let before = match sums.before {
        0 => String::new(),
        count => format!(" + {} sent before their receiver was there", number(count)),
    };
    let _ = writeln!(
        text,
        "  {} messages sent; {} frames for everybody, {} for one newcomer; {} to arrive = {} arrived + {} lost{before}",
        number(sums.sent),
        number(sums.broadcast),
        number(sums.unicast),
        number(sums.to_arrive),
        number(sums.arrived),
        number(sums.lost)
    );
    let elsewhere: Vec<String> =
        sums.undelivered.iter().map(|(name, &count)| format!(" + {} {name}", number(count))).collect();
    let _ = writeln!(
        text,
        "  {} copies for ports = {} delivered{}",
        number(sums.copies),
        number(sums.delivered),
        elsewhere.concat()
    );
    if !sums.causes.is_empty() {
        let causes: Vec<String> =
            sums.causes.iter().map(|(name, &count)| format!("{name} {}", number(count))).collect();
        let _ = writeln!(text, "  {}", causes.join(", "));
    }
    let verdict = match (sums.incomplete, sums.is_balanced()) {
        (true, _) => "incomplete: a process died and took its ledger along",
        (false, true) => "the ledgers sum",
        (false, false) => "THE LEDGERS DO NOT SUM",
    };
    let died: Vec<&str> = all.runs.iter().flat_map(|run| run.died.iter().map(String::as_str)).collect();
    let dead =
        if died.is_empty() { "no process died".to_owned() } else { format!("DIED: {}", died.join(", ")) };
    let growth = all.runs.iter().map(|run| run.growth_kib_max).max().unwrap_or(0);
    let _ = writeln!(text, "  {verdict}; {dead}; memory of a process grew by at most {growth} KiB\n");
    text
}
