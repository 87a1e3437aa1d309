//! What `punctual run wakeup` says: latency against idle gap, what it costs, the policy, the handshakes, the work log.

use serde_json::Value;

use super::against::{AgainstBare, AgainstThreads, epoll_answer};
use super::figures::Policy;
use super::handshake::HandshakeResult;
use super::plan::{Conditions, GAPS_US, Measurement, WakeupCell};
use super::published::Compared;
use super::route::{Route, SetSize};
use crate::report::draw::{Series, lines};
use crate::report::parts;
use crate::report::section::{Block, Cell, Column, Output, Section, Table, Tone, numbers};
use crate::sample::CellId;
use crate::summary::{CellResult, Summary};
use crate::units::{count, dash, grouped, micros, micros_or_dash};

/// The whole answer: latency by gap, the advice, the other conditions, the policy, the handshakes, the log, the doubts.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let results = &summary.results;
    let mut sections: Vec<Section> = by_gap(results).into_iter().collect();
    sections.extend(summary.recommendation.iter().map(|advice| parts::advice(advice).words(&advice.text)));
    sections.extend(costs(results));
    sections.extend(against_threads(&list(summary, "against_threads")));
    sections.extend(elsewhere(results));
    sections.extend(against_bare(&list(summary, "against_bare")));
    sections.extend(policy(&list(summary, "adaptive")));
    sections.extend(handshakes(&list(summary, "handshakes")));
    sections.extend(time_limits(&list(summary, "time_limits")));
    sections.extend(published(&list(summary, "published")));
    sections.extend(ipc_bench(results));
    sections.extend(parts::rest(summary));
    sections
}

/// What stands in the summary under this name.
fn list<T: serde::de::DeserializeOwned>(summary: &Summary, name: &str) -> Vec<T> {
    summary.more.get(name).and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

fn find(results: &[CellResult], cell: WakeupCell, measurement: Measurement) -> Option<&CellResult> {
    let id = cell.id(measurement);
    results.iter().find(|result| result.cell == id)
}

fn usual(results: &[CellResult], route: Route, gap_us: u64) -> Option<&CellResult> {
    find(results, WakeupCell { route, conditions: Conditions::default(), gap_us }, Measurement::Any)
}

/// Routes that were measured at a gap at least.
fn measured(results: &[CellResult]) -> Vec<Route> {
    let is = |route: &Route| GAPS_US.iter().any(|&gap_us| usual(results, *route, gap_us).is_some());
    Route::all().into_iter().filter(is).collect()
}

fn number(result: &CellResult, name: &str) -> Option<f64> {
    result.more.get(name).and_then(Value::as_f64)
}

fn sum(result: &CellResult, a: &str, b: &str) -> Option<f64> {
    Some(number(result, a)? + number(result, b)?)
}

fn gap_name(gap_us: u64) -> String {
    CellId { gap_us, ..CellId::new("", "") }.gap()
}

/// "1.02 – 1.10".
fn range([low, high]: [f64; 2]) -> String {
    format!("{low:.2} – {high:.2}")
}

/// p50 and p99 at each gap.
fn by_gap(results: &[CellResult]) -> Option<Section> {
    let routes = measured(results);
    if routes.is_empty() {
        return None;
    }
    let mut columns = vec![Column::name("way")];
    for gap_us in GAPS_US {
        let gap = format!("gap {}", gap_name(gap_us));
        columns.extend(numbers(["p50", "p99"]).into_iter().map(|column| column.over(&gap)));
    }
    columns.push(Column::number("lost"));
    let mut table = Table::new(columns);
    for &route in &routes {
        let mut cells = vec![Cell::from(route.name())];
        for gap_us in GAPS_US {
            let figures = usual(results, route, gap_us).map(|result| &result.figures);
            cells.push(Cell::toned(micros_or_dash(figures.and_then(|f| f.p50)), Tone::Strong));
            cells.push(micros_or_dash(figures.and_then(|f| f.p99)).into());
        }
        let lost: u64 = GAPS_US
            .iter()
            .filter_map(|&gap_us| usual(results, route, gap_us))
            .map(|result| result.lost)
            .sum();
        cells.push(Cell::broken(lost));
        table.row(cells);
    }
    Some(
        Section::new("From the writer's notification to the reader being awake")
            .about("w2r_any, by idle gap, µs; a core each, idle machine")
            .note(
                "Gap: idle time before a message. A reader that is still awake when the message comes learns of it within a cache \
                 line's journey, and its writer calls nobody. Once it sleeps, the scheduler is what is measured: the \
                 mechanisms lie close together, and the idle processor's own sleep makes them later the longer the gap.",
            )
            .with(chart(results, &routes))
            .table(table),
    )
}

/// One look per kind of mechanism: twenty-four would not be told apart. Their names stand at the lines' ends.
fn look(route: Route) -> usize {
    let name = route.name();
    match route {
        floor if floor.is_floor() => 7,
        Route::Spin => 0,
        Route::Adaptive => 2,
        Route::Park(_) if name.starts_with("futex") => 1,
        Route::Park(_) if name.starts_with("sig") => 4,
        Route::Park(_) if name.starts_with("uring") => 6,
        _ => 3,
    }
}

fn chart(results: &[CellResult], routes: &[Route]) -> Block {
    let series: Vec<Series> = routes
        .iter()
        .map(|&route| {
            let point = |(place, &gap_us): (usize, &u64)| {
                usual(results, route, gap_us).and_then(|r| r.figures.p50).map(|ns| (place, ns as f64))
            };
            let points = GAPS_US.iter().enumerate().filter_map(point).collect();
            Series { name: route.name().to_owned(), look: look(route), is_thin: route.is_floor(), points }
        })
        .filter(|series| series.points.len() > 1)
        .collect();
    lines("latency against idle gap", &GAPS_US.map(gap_name), &series)
}

/// System calls, processor time, and what the reader was doing.
fn costs(results: &[CellResult]) -> Option<Section> {
    let mut columns = vec![Column::name("way")];
    for gap_us in GAPS_US {
        let gap = format!("gap {}", gap_name(gap_us));
        columns.extend(numbers(["calls", "CPU"]).into_iter().map(|column| column.over(&gap)));
    }
    columns.push(Column::number("at 1 ms").over("asleep"));
    let mut table = Table::new(columns);
    for route in measured(results) {
        let mut cells = vec![Cell::from(route.name())];
        for gap_us in GAPS_US {
            let result = usual(results, route, gap_us);
            let calls = result.and_then(|r| sum(r, "notify_calls_per_message", "wait_calls_per_message"));
            let cpu = result.and_then(|r| Some(r.cpu_ns_per_message? + number(r, "notify_ns_per_message")?));
            cells.push(calls.map_or_else(dash, |calls| format!("{calls:.1}")).into());
            cells.push(cpu.map_or_else(dash, micros).into());
        }
        let asleep = usual(results, route, 1_000).and_then(|r| number(r, "parked_share"));
        cells.push(asleep.map_or_else(dash, |share| format!("{:.0} %", share * 100.0)).into());
        table.row(cells);
    }
    let note = "Asleep: share of messages that found the reader parked, by the kernel's count of voluntary switches. A way that \
                elides its notification whenever the reader is awake has fewer calls at short gaps; the floors call every time. \
                floor-epoll-8 and -64: so many eventfds in one set, of which the writer writes to one after the other.";
    (!table.rows.is_empty()).then(|| {
        Section::new("What a message costs")
            .about("system calls of both ends; processor time of reader and notification, µs")
            .table(table)
            .note(note)
    })
}

/// Under other conditions: one row per route and condition.
fn elsewhere(results: &[CellResult]) -> Vec<Section> {
    let mut sections = Vec::new();
    for conditions in Conditions::ALL.into_iter().filter(|conditions| !conditions.is_plain()) {
        let mut columns = vec![Column::name("way"), Column::number("gap")];
        columns.extend(numbers(["p50", "p90", "p99", "max", "lost"]));
        let mut table = Table::new(columns).keyed(2);
        for route in Route::all() {
            for gap_us in GAPS_US {
                let planned = WakeupCell { route, conditions, gap_us };
                let Some(result) = find(results, planned, Measurement::Any) else { continue };
                let figures = &result.figures;
                let mut cells: Vec<Cell> = vec![route.name().into(), result.cell.gap().into()];
                cells.push(Cell::toned(micros_or_dash(figures.p50), Tone::Strong));
                let others = [figures.p90, figures.p99, figures.max];
                cells.extend(others.map(|ns| Cell::from(micros_or_dash(ns))));
                cells.push(Cell::broken(result.lost));
                table.row(cells);
            }
        }
        if !table.rows.is_empty() {
            let about = format!("w2r_any, {}, µs", conditions.words());
            sections.push(Section::new("Under other conditions").about(about).table(table));
        }
    }
    sections
}

/// With the doorbell and without, side by side.
fn against_bare(rows: &[AgainstBare]) -> Option<Section> {
    let mut columns = vec![Column::name("with the doorbell"), Column::number("gap")];
    columns.extend(
        numbers(["doorbell", "bare", "ratio", "half lie in"]).into_iter().map(|one| one.over("p50, µs")),
    );
    columns.extend(numbers(["doorbell", "bare"]).into_iter().map(|one| one.over("calls")));
    columns.extend(numbers(["doorbell", "bare"]).into_iter().map(|one| one.over("CPU, µs")));
    columns.push(Column::name("bare is"));
    let mut table = Table::new(columns).keyed(2);
    for row in rows {
        let prices = [row.price, row.bare_price];
        let mut cells: Vec<Cell> = vec![(&row.name).into(), gap_name(row.gap_us).into()];
        cells.push(Cell::toned(micros(row.p50_ns as f64), Tone::Strong));
        cells.push(micros(row.bare_ns as f64).into());
        cells.extend([format!("{:.2}", row.ratio), range(row.ratio_quartiles)].map(Cell::from));
        cells.extend(
            prices.map(|price| Cell::from(format!("{:.1} + {:.1}", price.notify_calls, price.wait_calls))),
        );
        cells.extend(prices.map(|price| Cell::from(micros(price.cpu_ns))));
        cells.push((&row.bare_name).into());
        table.row(cells);
    }
    let section = Section::new("What the doorbell costs and saves");
    let section = epoll_answer(rows).into_iter().fold(section, Section::words);
    let note = "A doorbell is a user-interrupt descriptor in software: who is awake is not notified. It saves system calls and the \
                sleep where the reader is awake when the message comes. Where each message finds the reader asleep it saves \
                nothing; then its fence and two exchanges are what it costs. Calls: of writer + reader. Ratio: of the medians of \
                trials made one after the other; half of them lie in the range behind it.";
    (!rows.is_empty()).then(|| section.note(note).table(table))
}

/// Writer and reader as threads, and as processes.
fn against_threads(rows: &[AgainstThreads]) -> Option<Section> {
    let mut columns = vec![Column::name("way"), Column::number("gap")];
    columns.extend(numbers(["p50", "p99"]).into_iter().map(|one| one.over("threads")));
    columns.extend(numbers(["p50", "p99"]).into_iter().map(|one| one.over("processes")));
    columns.extend(numbers(["ratio", "half lie in"]));
    let mut table = Table::new(columns).keyed(2);
    for row in rows {
        let p50 = |ns: u64| Cell::toned(micros(ns as f64), Tone::Strong);
        table.row([
            (&row.name).into(),
            gap_name(row.gap_us).into(),
            p50(row.threads_ns),
            micros_or_dash(row.threads_p99_ns).into(),
            p50(row.processes_ns),
            micros_or_dash(row.processes_p99_ns).into(),
            format!("{:.2}", row.ratio).into(),
            range(row.ratio_quartiles).into(),
        ]);
    }
    let note = "The work log's writer and reader were processes; so are ours in the rows named +processes. Between them the kernel \
                also changes the address space, if another one ran on the reader's processor meanwhile.";
    let section = Section::new("Two threads, and two processes").about("w2r_any, µs");
    (!rows.is_empty()).then(|| section.table(table).note(note))
}

fn policy(rows: &[Policy]) -> Option<Section> {
    let mut columns = vec![Column::number("gap")];
    for over in ["p50", "CPU"] {
        columns.extend(numbers(["spin", "park", "adaptive"]).into_iter().map(|column| column.over(over)));
    }
    columns.push(Column::name("chose").over("adaptive"));
    columns.push(Column::number("CPU / better"));
    columns.extend(numbers(["/ chosen", "/ better"]).into_iter().map(|column| column.over("p50")));
    let mut table = Table::new(columns);
    for row in rows {
        let mut cells = vec![Cell::from(gap_name(row.gap_us))];
        cells.extend([row.spin, row.park, row.adaptive].map(|[p50, _]| Cell::from(micros(p50))));
        cells.extend([row.spin, row.park, row.adaptive].map(|[_, cpu]| Cell::from(micros(cpu))));
        cells.push((&row.chose).into());
        cells.extend(
            [row.cpu_ratio, row.latency_ratio_to_chosen].map(|ratio| Cell::from(format!("{ratio:.2}"))),
        );
        cells.push(format!("{:.1}", row.latency_ratio).into());
        table.row(cells);
    }
    let note = "The adaptive waiter forecasts its next wait from the last sixteen, and spins only if that costs less than a sleep. So \
                at every gap it should cost what the cheaper of the two costs; where spinning is cheaper it is also faster, where \
                parking is cheaper it pays with latency. No policy has both there.";
    let section =
        Section::new("Spin, then park: for how long?").about("w2r_any and CPU of both ends, µs; park: futex");
    (!rows.is_empty()).then(|| section.note(note).table(table))
}

fn handshakes(rows: &[HandshakeResult]) -> Option<Section> {
    let mut columns = vec![Column::name("protocol"), Column::number("messages"), Column::number("lost")];
    columns.extend([Column::name("predicted"), Column::name("repaired"), Column::prose("what it is")]);
    let mut table = Table::new(columns);
    for row in rows {
        let predicted = if row.predicted_lost { "losses" } else { "none" };
        let predicted = if row.is_as_predicted() {
            Cell::from(predicted)
        } else {
            Cell::toned(format!("{predicted} (!)"), Tone::Bad)
        };
        let repaired = row.repaired.clone().unwrap_or_else(dash);
        let (name, about) = (row.name.as_str().into(), Cell::toned(&row.about, Tone::Faint));
        table.row([
            name,
            count(row.messages).into(),
            count(row.lost).into(),
            predicted,
            repaired.into(),
            about,
        ]);
    }
    let note = "Reader and writer as in the log's test programs, in software; rounds of two messages, of which the second meets what \
                the first has left behind. Lost: waits that only a time limit ended. The prediction is the model's (punctual sim \
                wakeup --variant h1 and so on), which goes through every order of events.";
    (!rows.is_empty()).then(|| Section::new("Racy protocols and their repairs").note(note).table(table))
}

/// What the log tried: a time limit instead of a repair.
fn time_limits(rows: &[HandshakeResult]) -> Option<Section> {
    let mut columns = vec![Column::name("protocol"), Column::number("limit")];
    columns.extend(numbers(["messages", "lost", "mean", "max", "messages/s"]));
    let mut table = Table::new(columns).keyed(2);
    for row in rows {
        let (name, limit) = (row.name.as_str().into(), gap_name(row.limit_us).into());
        let times = [row.mean_ns, row.max_ns as f64].map(|ns| Cell::from(micros(ns)));
        let mut cells: Vec<Cell> = vec![name, limit, count(row.messages).into(), count(row.lost).into()];
        cells.extend(times);
        cells.push(grouped(row.rate().round() as i64).into());
        table.row(cells);
    }
    let note = "The log gave its racy wait a time limit, 100 µs to 10 ms. That loses as many wake-ups as before: each then takes as \
                long as the limit. The repaired protocol needs none.";
    let section = Section::new("What a time limit hides").about("µs from the request to being awake");
    (!rows.is_empty()).then(|| section.note(note).table(table))
}

fn published(rows: &[Compared]) -> Option<Section> {
    let log = |column: Column| column.over("the log");
    let mut columns =
        vec![log(Column::prose("measured by")), log(Column::prose("mean")), log(Column::prose("slowest"))];
    columns.extend([Column::name("ours"), Column::number("gap"), Column::prose("mean")]);
    columns.extend([Column::number("p50"), Column::number("max"), Column::prose("what differs")]);
    let mut table = Table::new(columns);
    for row in rows {
        let wall =
            row.wall_mean_ns.map_or(String::new(), |ns| format!(" timed, {} over the wall", micros(ns)));
        table.row([
            (&row.mechanism).into(),
            (&row.published_mean_us).into(),
            (&row.published_max).into(),
            (&row.name).into(),
            gap_name(row.gap_us).into(),
            format!("{}{wall}", row.mean_ns.map_or_else(dash, micros)).into(),
            micros_or_dash(row.p50_ns).into(),
            micros_or_dash(row.max_ns).into(),
            Cell::toned(&row.differs, Tone::Faint),
        ]);
    }
    let section = Section::new("The work log's figures beside ours").about("µs");
    (!rows.is_empty()).then(|| section.table(table))
}

/// The block of the benchmark that the log's figures come from, so that results compare: three on a terminal, all on the page.
fn ipc_bench(results: &[CellResult]) -> Vec<Section> {
    let epoll = Route::Park(punctual_lab_machine::wake::Mechanism::Epoll);
    let of = |route: Route, conditions: [Conditions; 2]| {
        let at = |conditions| find(results, WakeupCell { route, conditions, gap_us: 0 }, Measurement::Loop);
        // The log's ends were processes.
        let result = at(conditions[0]).or_else(|| at(conditions[1]))?;
        Some((result.cell.name.clone(), ipc_bench_block(result)?))
    };
    let shown = [Route::BareEpoll(SetSize::One), epoll, Route::Spin];
    let brief = shown.into_iter().filter_map(|route| of(route, [Conditions::PROCESSES, Conditions::THREADS]));
    let mut sections: Vec<Section> = brief
        .map(|(name, block)| {
            Section::new(format!("{name}, gap 0")).with(Block::Verbatim(block)).only_on(Output::Terminal)
        })
        .collect();
    let all: Vec<String> = Route::all()
        .into_iter()
        .filter_map(|route| of(route, [Conditions::default(); 2]))
        .map(|(name, block)| format!("{name}\n{block}\n"))
        .collect();
    if !all.is_empty() {
        let title = format!("{} blocks, gap 0", all.len());
        let blocks = Block::Folded(title, Box::new(Block::Verbatim(all.concat())));
        sections.push(Section::new("As ipc-bench prints it").with(blocks).only_on(Output::Page));
    }
    sections
}

/// Its lines, for one `ipcbench_loop`.
fn ipc_bench_block(result: &CellResult) -> Option<String> {
    let figures = &result.figures;
    let wall_ms = number(result, "wall_ns")? / 1e6;
    let deviation = number(result, "deviation_ns").map_or_else(dash, |ns| format!("{:.3}", ns / 1e3));
    let all = number(result, "messages")? as u64;
    let us = |ns: Option<f64>| ns.map_or_else(dash, |ns| format!("{:.3}", ns / 1e3));
    let lines = [
        ("Message size:", result.cell.size.to_string()),
        ("Message count:", count(all)),
        ("Total duration:", format!("{wall_ms:.3} ms")),
        ("Average duration:", format!("{} us", us(figures.mean))),
        ("Minimum duration:", format!("{} us", us(figures.min.map(|ns| ns as f64)))),
        ("Maximum duration:", format!("{} us", us(figures.max_answered.map(|ns| ns as f64)))),
        ("Standard deviation:", format!("{deviation} us")),
        ("Message rate:", format!("{} msg/s", grouped((all as f64 / wall_ms * 1e3).round() as i64))),
    ];
    let lines: String = lines.iter().map(|(name, value)| format!("{name:<20}{value}\n")).collect();
    let quantiles = [figures.p50, figures.p90, figures.p99, figures.p999].map(micros_or_dash).join(", ");
    Some(format!(
        "============ RESULTS ================\n{lines}p50, p90, p99, p99.9: {quantiles} us\n====================================="
    ))
}
