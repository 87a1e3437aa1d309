//! The tables and drawings of `punctual run vehicles`.

use super::experiment::{RunReport, are_balanced};
use super::figures::Row;
use super::first::STEPS;
use super::option::Mode;
use super::overview::Overall;
use crate::distinct::distinct;
use crate::report::draw::{Series, bars, lines};
use crate::report::parts;
use crate::report::section::{Block, Cell, Column, Item, Output, Section, Table, TableOf, Tone};
use crate::stats::{Quantile, UNEXPLAINED};
use crate::summary::{CellResult, Summary};
use crate::units::{count, dash, fixed, grouped, micros, micros_or_dash};

/// The published tables, µs: the messages' medium, the table, the least, the mean by their rule, the most.
const PUBLISHED: [(&str, &str, u64, f64, u64); 4] = [
    ("socket", "first", 13, 390.0, 71_273),
    ("sharedmem", "first", 1, 207.0, 68_452),
    ("socket", "last", 16, 211.93, 721),
    ("sharedmem", "last", 1, 1.53, 58),
];

/// The published sample of asynchronous reception by plain sockets, µs: 1,506 deltas.
const PUBLISHED_ASYNC: [(&str, u64); 4] = [("p50", 22), ("p90", 118), ("p99", 224), ("max", 3_248)];

/// Ours by the rule of the tables: min / mean of truncated means / max, whole µs.
pub(super) fn published(all: &Overall) -> Section {
    let (mut lines, mut below) = (Vec::new(), Vec::new());
    for name in ["socket", "shared", "sharedmem"] {
        let row = |(run, number): (&RunReport, usize)| {
            let row = run.figures.rows.iter().find(|row| row.name == name && row.count > 0);
            Some((number, run.is_cut, row?.clone()))
        };
        let ours: Vec<(usize, bool, Row)> = all.runs.iter().zip(1..).filter_map(row).collect();
        let is_known = all.mode.is_mutual() && !ours.is_empty();
        for &(_, table, min, mean, max) in PUBLISHED.iter().filter(|(row, ..)| *row == name && is_known) {
            let which = Cell::toned(format!("published, {table} table"), Tone::Faint);
            lines.push((name, which, min, Cell::from(fixed(mean, 2)), max));
            let whole = || ours.iter().filter(|(_, is_cut, _)| !is_cut).map(|(.., row)| row);
            let count = whole().count();
            if table == "last" && count > 0 {
                let means = whole().filter(|row| row.mean_us < mean).count();
                let maxima = whole().filter(|row| row.max_us < max).count();
                let line = format!("below the last table: mean in {means} of {count} runs, max in {maxima}");
                below.push(Item::new(format!("{name}: {line}")));
            }
        }
        for (number, is_cut, row) in &ours {
            let which = format!("ours, run {number}{}", if *is_cut { ", cut short" } else { "" });
            lines.push((name, which.into(), row.min_us, Cell::strong(fixed(row.mean_us, 2)), row.max_us));
        }
    }
    let table = TableOf::new(lines)
        .name("messages", |line| line.0)
        .name("table", |line| line.1.clone())
        .number("min", |line| count(line.2))
        .number("mean", |line| line.3.clone())
        .number("max", |line| count(line.4))
        .keyed(2);
    Section::new("By the rule of the published tables")
        .about("sent → received, µs")
        .table(table)
        .items(below)
        .note(
            "Rule: the least; the mean over receivers of each one's mean truncated to whole µs; the most. The last published table \
             took its probe in the callback, where a vehicle's own message needs no other thread, and without keys, so no tag: \
             only callback mode without seal compares with it.",
        )
}

pub(super) fn all_messages(all: &Overall) -> Section {
    let rows = all.runs.iter().zip(1..).flat_map(|(run, number)| {
        let rows = run.figures.rows.iter().filter(|row| row.count + row.lost > 0);
        rows.map(move |row| (number, row))
    });
    let table = TableOf::new(rows)
        .name("messages", |(_, row)| &row.name)
        .number("run", |(number, _)| number.to_string())
        .number("count", |(_, row)| count(row.count))
        .number("lost", |(_, row)| Cell::broken(row.lost))
        .number("skipped", |(_, row)| count(row.skipped))
        .number("mean", |(_, row)| micros(row.pooled_mean_ns))
        .number("p50", |(_, row)| quantile(row, row.p50_ns, Quantile::P50))
        .number("p90", |(_, row)| quantile(row, row.p90_ns, Quantile::P90))
        .number("p99", |(_, row)| quantile(row, row.p99_ns, Quantile::P99))
        .number("p99.9", |(_, row)| quantile(row, row.p999_ns, Quantile::P999))
        .number("max", |(_, row)| if row.lost > 0 { infinite() } else { micros(row.max_ns as f64).into() })
        .number("sent late", |(_, row)| micros(row.late_mean_ns))
        .keyed(2);
    Section::new("The same messages, all of them").about("sent → received, µs").table(table).note(
        "Sent late: mean distance from due to sent, which the published tables leave out; the results count it in, as every \
         open load does (messages due at fixed instants). Skipped: not sent, as its publisher slept through the instant or did \
         not know yet that it was wanted; as late as what came instead.",
    )
}

/// A dash where the sample is too small, ∞ among the lost.
fn quantile(row: &Row, ns: Option<u64>, of: Quantile) -> Cell {
    match ns {
        None if of.is_supported(row.count + row.lost) => infinite(),
        ns if of == Quantile::P50 => Cell::strong(micros_or_dash(ns)),
        ns => micros_or_dash(ns).into(),
    }
}

fn infinite() -> Cell {
    Cell::toned("∞", Tone::Bad)
}

/// Where the time of each row goes.
pub(super) fn stages(summary: &Summary) -> Option<Section> {
    let stamped: Vec<&CellResult> = summary.results.iter().filter(|r| !r.stages.is_empty()).collect();
    let mut names = distinct(stamped.iter().flat_map(|result| &result.stages).map(|stage| &*stage.name));
    names.sort_by_key(|name| *name == UNEXPLAINED);
    let table = parts::stages(&stamped, names.into_iter().map(|name| (name, name)), true);
    let note = "Output: until the receiver's kernel, or a receiver that was awake, had it. Elsewhere: the receiver did something \
                else. Woken: it slept. Delivered: from thread to thread.";
    let about = "due → received: the median of each, µs, and its part of all";
    (!stamped.is_empty()).then(|| Section::new("Stage by stage").about(about).table(table).note(note))
}

/// Within one message's fan-out, latency follows the place in the wake-up order.
pub(super) fn places(all: &Overall) -> Option<Section> {
    let places = all.runs.iter().map(|run| &run.figures.fan_out_ns);
    let runs: Vec<(usize, &Vec<u64>)> = places.enumerate().filter(|(_, places)| places.len() > 1).collect();
    let (_, last) = runs.last()?;
    let most = runs.iter().map(|(_, places)| places.len()).max()?;
    let series: Vec<Series> = runs
        .iter()
        .map(|(run, places)| {
            let points = places.iter().enumerate().map(|(place, &ns)| (place, ns as f64)).collect();
            let name = if runs.len() <= 10 { format!("run {}", run + 1) } else { String::new() };
            Series { name, look: run % 10, is_thin: false, points }
        })
        .collect();
    let steps: Vec<String> = (1..=most).map(|place| place.to_string()).collect();
    let listed: Vec<String> = last.iter().map(|&ns| micros(ns as f64)).collect();
    Some(
        Section::new("The wake-up order")
            .about("of all that one message reaches, who has it first, second, …: p50, µs")
            .with(lines("latency by place in the wake-up order", &steps, &series))
            .words(format!("Last run: {}", listed.join("  ")))
            .note(
                "One frame for everybody wakes its receivers one after the other: a receiver's latency is mostly its place in that \
                 order.",
            ),
    )
}

/// Where one process receives: every latency in order of arrival, as the original printed them.
pub(super) fn arrivals(all: &Overall) -> Vec<Section> {
    let mut sections = Vec::new();
    let figures = all.runs.iter().map(|run| &run.figures).enumerate();
    for (number, run) in figures.filter(|(_, run)| !run.arrivals_ns.is_empty()) {
        let arrivals = run.arrival_senders.iter().zip(&run.arrivals_ns);
        let each: Vec<String> =
            arrivals.map(|(sender, ns)| format!("{sender}:{}", count(ns / 1000))).collect();
        let section = Section::new(format!("Run {}: every latency in order of arrival", number + 1));
        let each = Block::Words(each.join(" "));
        sections.push(section.clone().about("sender:whole µs").with(each.clone()).only_on(Output::Terminal));
        sections.push(
            section
                .about("one receiver")
                .note(
                    "Slow messages that fall in steps are one stall of the receiver, not many slow messages; within a round, \
                     latency follows the order of sending.",
                )
                .with(bars("latency in order of arrival", &run.arrivals_ns))
                .with(Block::Folded("Each, as sender:whole µs".to_owned(), Box::new(each)))
                .only_on(Output::Page),
        );
    }
    if all.mode == Mode::Async {
        let published: Vec<String> =
            PUBLISHED_ASYNC.iter().map(|(name, us)| format!("{name} {}", count(*us))).collect();
        sections.push(Section::new("Published, 1,506 latencies").about("µs").words(published.join(", ")));
    }
    sections
}

pub(super) fn senders(all: &Overall) -> Option<Section> {
    let run = all.runs.iter().rev().map(|run| &run.figures).find(|run| !run.senders.is_empty())?;
    let table = TableOf::new(&run.senders)
        .name("vehicle", |row| row.sender.to_string())
        .number("count", |row| count(row.count))
        .number("min", |row| micros(row.min_ns as f64))
        .number("p50", |row| Cell::strong(micros(row.p50_ns as f64)))
        .number("max", |row| micros(row.max_ns as f64))
        .keyed(1);
    let note = "The store names the sender of each message in its column sender.";
    Some(Section::new("By sender").about("last run, sent → received, µs").table(table).note(note))
}

pub(super) fn firsts(all: &Overall) -> Table {
    let ms = |ns: u64| fixed(ns as f64 / 1e6, 2);
    let runs = all.runs.iter().zip(1..).filter(|(run, _)| run.firsts.count > 0);
    let mut table = TableOf::new(runs)
        .number("run", |(_, number)| number.to_string())
        .number("count", |(run, _)| count(run.firsts.count as u64))
        .number("all", |(run, _)| ms(run.firsts.mean.iter().map(|share| share.ns).sum()));
    for step in STEPS {
        table = table.number(step, move |(run, _)| {
            let share = run.firsts.mean.iter().find(|share| share.step == step);
            share.map_or_else(dash, |share| ms(share.ns))
        });
    }
    table.number("looker late", |(run, _)| ms(run.control_late_us * 1000)).keyed(1)
}

pub(super) fn start_up(all: &Overall) -> Section {
    let tenth = |value: f64| fixed(value, 1);
    let table = TableOf::new(all.runs.iter().zip(1..))
        .number("run", |(_, number)| number.to_string())
        .number("all ready", |(run, _)| format!("{:.0}", run.startup.all_ready_ms))
        .number("node", |(run, _)| tenth(run.startup.node_ms_max))
        .number("bind", |(run, _)| tenth(run.startup.bind_ms_max))
        .number("all told", |(run, _)| tenth(run.startup.all_heard_ms))
        .over("first, µs")
        .number("p50", |(run, _)| micros_or_dash(run.startup.first_ns_median))
        .number("max", |(run, _)| micros_or_dash(run.startup.first_ns_max))
        .over("")
        .number("waited, ms", |(run, _)| tenth(run.facts.queued_ns as f64 / 1e6))
        .number("drift, ppm", |(run, _)| tenth(run.figures.drift_ppm))
        .number("grew, KiB", |(run, _)| grouped(run.growth_kib_max))
        .keyed(1);
    Section::new("Start-up, apart").about("the slowest process of each run, ms").table(table).note(
        "All processes start at once; nothing of this is in the rows above but the first messages. All told: from the beginning of \
         a receiver's opening until it had a value of each other. Waited: for a processor, all threads. Grew: memory of a \
         process, at most.",
    )
}

/// In memory and without a barrier that is what is left over, so that frames which nobody accounts for hide in it.
const BEFORE: &str = "in no receiver's account: before it was there";

pub(super) fn account(all: &Overall) -> Section {
    let sums = &all.account;
    let died: Vec<&str> = all.runs.iter().flat_map(|run| run.died.iter().map(String::as_str)).collect();
    let verdict = match (are_balanced(&all.runs), sums.incomplete) {
        (false, _) => "THE LEDGERS DO NOT SUM.",
        (true, false) => "The ledgers of all nodes sum.",
        (true, true) if died.is_empty() => {
            "Incomplete: the run was interrupted while frames were on their way."
        }
        (true, true) => "Incomplete: a process died and took its ledger along.",
    };
    let dead =
        if died.is_empty() { "No process died.".to_owned() } else { format!("DIED: {}.", died.join(", ")) };
    let mut table = Table::new(vec![Column::prose("what"), Column::number("count")]);
    let mut row = |what: &str, number: u64| table.row([Cell::from(what), count(number).into()]);
    row("messages sent", sums.sent);
    row("frames for everybody", sums.broadcast);
    row("frames for one newcomer", sums.unicast);
    row("frames to arrive: each at every node but its sender's, or at the newcomer", sums.to_arrive);
    row(BEFORE, sums.before);
    row("arrived", sums.arrived);
    row("lost", sums.lost);
    row("copies for ports", sums.copies);
    row("delivered", sums.delivered);
    sums.undelivered.iter().chain(&sums.causes).for_each(|(name, &number)| row(name, number));
    Section::new("Every frame").about("all nodes, all runs").words(format!("{verdict} {dead}")).table(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vehicles::figures::RunFigures;

    /// Goal: a run that was cut short is said to be so and is no run below the published table; runs have their own numbers, also where
    /// one before them has no such row.
    #[test]
    fn a_run_that_was_cut_short_is_no_whole_one() {
        let run = |mean_us: f64, is_cut: bool| {
            let row = Row { name: "sharedmem".to_owned(), count: 9, mean_us, ..Row::default() };
            let figures = RunFigures { rows: vec![row], fan_out_ns: vec![1, 2], ..RunFigures::default() };
            RunReport { figures, is_cut, ..RunReport::default() }
        };
        let runs = vec![run(1.0, false), RunReport::default(), run(2.0, false), run(0.5, true)];
        let all = Overall { runs, ..Overall::default() };
        let shown = format!("{:?}", published(&all));
        for words in
            ["\"ours, run 1\"", "\"ours, run 3\"", "ours, run 4, cut short", "mean in 1 of 2 runs, max in 2"]
        {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let drawn = format!("{:?}", places(&all));
        assert!(drawn.contains("run 3") && drawn.contains("run 4") && !drawn.contains("run 2"), "{drawn}");
    }
}
