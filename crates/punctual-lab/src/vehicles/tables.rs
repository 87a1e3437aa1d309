//! The tables and drawings of `punctual run vehicles`.

use super::figures::Row;
use super::first::STEPS;
use super::option::Mode;
use super::overview::Overall;
use super::published::{PUBLISHED, PUBLISHED_ASYNC, Published, Standing, rows};
use crate::report::draw::{Series, bars, lines};
use crate::report::section::{Block, Cell, Column, Item, Output, Section, Table, Tone, numbers};
use crate::stats::UNEXPLAINED;
use crate::summary::{CellResult, Summary};
use crate::units::{count, dash, fixed, grouped, micros, micros_or_dash};

/// Ours by the rule of the tables: min / mean of truncated means / max, whole µs.
pub(super) fn published(all: &Overall) -> Section {
    let mut columns = vec![Column::name("messages"), Column::name("table")];
    columns.extend(numbers(["min", "mean", "max"]));
    let mut table = Table::new(columns).keyed(2);
    let mut below = Vec::new();
    for name in ["socket", "shared", "sharedmem"] {
        let rows = rows(&all.runs, name);
        if rows.is_empty() {
            continue;
        }
        let known = |published: &&Published| published.row == name && all.mode.is_mutual();
        for published in PUBLISHED.iter().filter(known) {
            let which = Cell::toned(format!("published, {} table", published.table), Tone::Faint);
            let mean = fixed(published.mean, 2).into();
            table.row([name.into(), which, count(published.min).into(), mean, count(published.max).into()]);
        }
        for (number, row) in rows.iter().enumerate() {
            let which = format!("ours, run {}", number + 1).into();
            let mean = Cell::toned(fixed(row.mean_us, 2), Tone::Strong);
            table.row([name.into(), which, count(row.min_us).into(), mean, count(row.max_us).into()]);
        }
        if let Some(standing) = all.standings.iter().find(|s| s.row == name && all.mode.is_mutual()) {
            let Standing { runs, mean_below, max_below, .. } = standing;
            below.push(Item::new(format!(
                "{name}: below the last table: mean in {mean_below} of {runs} runs, max in {max_below}"
            )));
        }
    }
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
    let mut columns = vec![Column::name("messages"), Column::number("run")];
    columns.extend(numbers([
        "count",
        "lost",
        "skipped",
        "mean",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "sent late",
    ]));
    let mut table = Table::new(columns).keyed(2);
    for (number, run) in all.runs.iter().enumerate() {
        for row in run.rows.iter().filter(|row| row.count + row.lost > 0) {
            table.row(message_row(number + 1, row));
        }
    }
    Section::new("The same messages, all of them").about("sent → received, µs").table(table).note(
        "Sent late: mean distance from due to sent, which the published tables leave out; the results count it in, as every \
         open load does (messages due at fixed instants). Skipped: not sent, as its publisher slept through the instant or did \
         not know yet that it was wanted; as late as what came instead.",
    )
}

fn message_row(run: usize, row: &Row) -> Vec<Cell> {
    let mut cells: Vec<Cell> = vec![(&row.name).into(), run.to_string().into(), count(row.count).into()];
    cells.extend([Cell::broken(row.lost), count(row.skipped).into(), micros(row.pooled_mean_ns).into()]);
    cells.push(Cell::toned(micros_or_dash(row.p50_ns), Tone::Strong));
    let tail = [row.p90_ns, row.p99_ns, row.p999_ns, Some(row.max_ns)];
    cells.extend(tail.map(|ns| Cell::from(micros_or_dash(ns))));
    cells.push(micros(row.late_mean_ns).into());
    cells
}

/// Where the time of each row goes.
pub(super) fn stages(summary: &Summary) -> Option<Section> {
    let stamped: Vec<&CellResult> = summary.results.iter().filter(|r| !r.stages.is_empty()).collect();
    let mut columns = vec![Column::name("stage")];
    for result in &stamped {
        let engine = &result.cell.engine;
        columns.extend(numbers(["median", "part"]).into_iter().map(|column| column.over(engine)));
    }
    let mut table = Table::new(columns);
    for name in stage_names(&stamped) {
        let mut cells = vec![Cell::from(name)];
        for result in &stamped {
            let stage = result.stages.iter().find(|stage| stage.name == name);
            let [median, part] = stage.map_or([dash(), dash()], |stage| {
                [micros(stage.median_ns as f64), format!("{:.0} %", stage.share * 100.0)]
            });
            cells.extend([Cell::toned(median, Tone::Strong), part.into()]);
        }
        table.row(cells);
    }
    let note = "Output: until the receiver's kernel, or a receiver that was awake, had it. Elsewhere: the receiver did something \
                else. Woken: it slept. Delivered: from thread to thread.";
    let section =
        Section::new("Stage by stage").about("due → received: the median of each, µs, and its part of all");
    (!stamped.is_empty()).then(|| section.table(table).note(note))
}

/// Every stage of any of them, in order; what is unexplained comes last.
fn stage_names<'s>(results: &[&'s CellResult]) -> Vec<&'s str> {
    let mut names: Vec<&str> = Vec::new();
    for stage in results.iter().flat_map(|result| &result.stages) {
        if !names.contains(&stage.name.as_str()) {
            names.push(&stage.name);
        }
    }
    names.sort_by_key(|name| *name == UNEXPLAINED);
    names
}

/// Within one message's fan-out, latency follows the place in the wake-up order.
pub(super) fn places(all: &Overall) -> Option<Section> {
    let runs: Vec<&Vec<u64>> =
        all.runs.iter().map(|run| &run.fan_out_ns).filter(|places| places.len() > 1).collect();
    let last = runs.last()?;
    let most = runs.iter().map(|places| places.len()).max()?;
    let series: Vec<Series> = runs
        .iter()
        .enumerate()
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
    for (number, run) in all.runs.iter().enumerate().filter(|(_, run)| !run.arrivals_ns.is_empty()) {
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
    let run = all.runs.iter().rev().find(|run| !run.senders.is_empty())?;
    let mut columns = vec![Column::name("vehicle")];
    columns.extend(numbers(["count", "min", "p50", "max"]));
    let mut table = Table::new(columns);
    for row in &run.senders {
        let [min, p50, max] = [row.min_ns, row.p50_ns, row.max_ns].map(|ns| micros(ns as f64));
        let (name, count) = (row.sender.to_string().into(), count(row.count).into());
        table.row([name, count, min.into(), Cell::toned(p50, Tone::Strong), max.into()]);
    }
    let note = "The store names the sender of each message in its column sender.";
    Some(Section::new("By sender").about("last run, sent → received, µs").table(table).note(note))
}

pub(super) fn firsts(all: &Overall) -> Table {
    let mut columns = vec![Column::number("run")];
    columns.extend(numbers(["count", "all"]));
    columns.extend(STEPS.iter().map(|step| Column::number(step.to_string())));
    columns.push(Column::number("looker late"));
    let mut table = Table::new(columns);
    for (number, run) in all.runs.iter().enumerate().filter(|(_, run)| run.firsts.count > 0) {
        let ms = |ns: u64| Cell::from(fixed(ns as f64 / 1e6, 2));
        let total: u64 = run.firsts.mean.iter().map(|share| share.ns).sum();
        let mut cells: Vec<Cell> =
            vec![(number + 1).to_string().into(), count(run.firsts.count as u64).into(), ms(total)];
        cells.extend(run.firsts.mean.iter().map(|share| ms(share.ns)));
        cells.push(ms(run.control_late_us * 1000));
        table.row(cells);
    }
    table
}

pub(super) fn start_up(all: &Overall) -> Section {
    let mut columns = vec![Column::number("run")];
    columns.extend(numbers(["all ready", "clock", "node", "bind", "all told"]));
    columns.extend(numbers(["p50", "max"]).into_iter().map(|column| column.over("first, µs")));
    columns.extend(numbers(["waited, ms", "drift, ppm", "grew, KiB"]));
    let mut table = Table::new(columns);
    for (number, run) in all.runs.iter().enumerate() {
        let startup = &run.startup;
        let tenth = |value: f64| Cell::from(fixed(value, 1));
        let mut cells: Vec<Cell> =
            vec![(number + 1).to_string().into(), format!("{:.0}", startup.all_ready_ms).into()];
        cells.extend([startup.clock_ms_max, startup.node_ms_max, startup.bind_ms_max].map(tenth));
        cells.push(tenth(startup.all_heard_ms));
        let firsts = [startup.first_ns_median, startup.first_ns_max];
        cells.extend(firsts.map(|ns| Cell::from(micros_or_dash(ns))));
        cells.extend([run.facts.queued_ns as f64 / 1e6, run.drift_ppm].map(tenth));
        cells.push(grouped(run.growth_kib_max).into());
        table.row(cells);
    }
    Section::new("Start-up, apart").about("the slowest process of each run, ms").table(table).note(
        "All processes start at once; nothing of this is in the rows above but the first messages. All told: from the beginning of \
         a receiver's opening until it had a value of each other. Waited: for a processor, all threads. Grew: memory of a \
         process, at most.",
    )
}

pub(super) fn account(all: &Overall) -> Section {
    let sums = &all.account;
    let verdict = match (sums.incomplete, sums.is_balanced()) {
        (true, _) => "Incomplete: a process died and took its ledger along.",
        (false, true) => "The ledgers of all nodes sum.",
        (false, false) => "THE LEDGERS DO NOT SUM.",
    };
    let died: Vec<&str> = all.runs.iter().flat_map(|run| run.died.iter().map(String::as_str)).collect();
    let dead =
        if died.is_empty() { "No process died.".to_owned() } else { format!("DIED: {}.", died.join(", ")) };
    let mut table = Table::new(vec![Column::prose("what"), Column::number("count")]);
    let mut row = |what: &str, number: u64| table.row([Cell::from(what), count(number).into()]);
    row("messages sent", sums.sent);
    row("frames for everybody", sums.broadcast);
    row("frames for one newcomer", sums.unicast);
    row("frames to arrive: each at every node but its sender's, or at the newcomer", sums.to_arrive);
    row("sent before their receiver was there", sums.before);
    row("arrived", sums.arrived);
    row("lost", sums.lost);
    row("copies for ports", sums.copies);
    row("delivered", sums.delivered);
    sums.undelivered.iter().chain(&sums.causes).for_each(|(name, &number)| row(name, number));
    Section::new("Every frame").about("all nodes, all runs").words(format!("{verdict} {dead}")).table(table)
}
