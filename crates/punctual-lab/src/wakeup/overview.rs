//! Report of `punctual run wakeup`: latency against idle gap, costs, the policy, the handshakes, the work log.

use punctual_lab_machine::wake::{Floor, Mechanism};

use super::against::{AgainstBare, AgainstThreads, Price, epoll_answer};
use super::figures::{Policy, cpu_ns};
use super::handshake::HandshakeResult;
use super::plan::{GAPS_US, Measurement, WakeupCell};
use super::published::Compared;
use crate::load::wake::{Conditions, Route};
use crate::report::draw::{Series, lines};
use crate::report::parts::{self, LEGEND, tail_columns, time_text};
use crate::report::section::{Block, Cell, Output, Section, TableOf, Tone};
use crate::summary::{CellResult, Summary};
use crate::units::{count, dash, grouped, micros, micros_or_dash};

/// The whole answer: latency by gap, the advice, the other conditions, the policy, the handshakes, the log, the doubts.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let results = &summary.results;
    let mut sections: Vec<Section> = by_gap(results).into_iter().collect();
    sections.extend(summary.recommendation.iter().map(|advice| parts::advice(advice).words(&advice.text)));
    sections.extend(costs(results));
    sections.extend(against_threads(&summary.rows("against_threads")));
    sections.extend(elsewhere(results));
    sections.extend(against_bare(&summary.rows("against_bare")));
    sections.extend(policy(&summary.rows("adaptive")));
    sections.extend(handshakes(&summary.rows("handshakes")));
    sections.extend(time_limits(&summary.rows("time_limits")));
    sections.extend(published(&summary.rows("published")));
    sections.extend(ipc_bench(results));
    sections.extend(parts::rest(summary));
    sections
}

fn usual(results: &[CellResult], route: Route, gap_us: u64) -> Option<&CellResult> {
    WakeupCell::plain(route, gap_us).result(results, Measurement::Any)
}

/// Routes that were measured at a gap at least.
fn measured(results: &[CellResult]) -> Vec<Route> {
    let is = |route: &Route| GAPS_US.iter().any(|&gap_us| usual(results, *route, gap_us).is_some());
    Route::all().into_iter().filter(is).collect()
}

fn strong_us(ns: Option<u64>) -> Cell {
    Cell::strong(micros_or_dash(ns))
}

/// "1.02 – 1.10"; a dash where there are too few for it.
fn range(ends: Option<[f64; 2]>) -> String {
    ends.map_or_else(dash, |[low, high]| format!("{low:.2} – {high:.2}"))
}

/// p50 and p99 at each gap.
fn by_gap(results: &[CellResult]) -> Option<Section> {
    let routes = measured(results);
    if routes.is_empty() {
        return None;
    }
    let mut table = TableOf::new(&routes).name("way", |route| route.name());
    for gap_us in GAPS_US {
        table = table.over(format!("gap {}", WakeupCell::gap_name(gap_us)));
        table = tail_columns(table, &["p50", "p99"], |route| usual(results, **route, gap_us));
    }
    let lost = |route: &&Route| {
        let at_each = GAPS_US.iter().filter_map(|&gap_us| usual(results, **route, gap_us));
        Cell::broken(at_each.map(|result| result.lost).sum())
    };
    let table = table.over("").number("lost", lost).keyed(1);
    Some(
        Section::new("From the writer's notification to the reader being awake")
            .about("w2r_any, by idle gap, µs; a core each, idle machine")
            .note(
                "Gap: idle time before a message. A reader that is still awake when the message comes learns of it within a cache \
                 line's journey, and its writer calls nobody. Once it sleeps, the scheduler is what is measured: the \
                 mechanisms lie close together, and the idle processor's own sleep makes them later the longer the gap.",
            )
            .note(LEGEND)
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
                let [p50, ..] = usual(results, route, gap_us)?.figures.tail_ns();
                p50.map(|ns| (place, ns))
            };
            let points = GAPS_US.iter().enumerate().filter_map(point).collect();
            Series { name: route.name().to_owned(), look: look(route), is_thin: route.is_floor(), points }
        })
        .filter(|series| series.points.len() > 1)
        .collect();
    lines("latency against idle gap", &GAPS_US.map(WakeupCell::gap_name), &series)
}

/// System calls, processor time, and what the reader was doing.
fn costs(results: &[CellResult]) -> Option<Section> {
    let mut table = TableOf::new(measured(results)).name("way", |route| route.name());
    for gap_us in GAPS_US {
        let result = |route: &Route| usual(results, *route, gap_us);
        let calls = |any: &CellResult| {
            Some(any.number("notify_calls_per_message")? + any.number("wait_calls_per_message")?)
        };
        table = table
            .over(format!("gap {}", WakeupCell::gap_name(gap_us)))
            .number("calls", |route| {
                result(route).and_then(calls).map_or_else(dash, |calls| format!("{calls:.1}"))
            })
            .number("CPU", |route| result(route).and_then(cpu_ns).map_or_else(dash, micros));
    }
    let asleep = |route: &Route| {
        let share = usual(results, *route, 1_000).and_then(|any| any.number("parked_share"));
        share.map_or_else(dash, |share| format!("{:.0} %", share * 100.0))
    };
    let table = table.over("asleep").number("at 1 ms", asleep).keyed(1);
    let note = "Asleep: share of messages that found the reader parked, by the kernel's count of voluntary switches. A way that \
                elides its notification whenever the reader is awake has fewer calls at short gaps; the floors call every time. \
                floor-epoll-8 and -64: so many eventfds in one set, of which the writer writes to one after the other.";
    Section::new("What a message costs")
        .about("system calls of both ends; processor time of reader and notification, µs")
        .table(table)
        .note(note)
        .with_rows()
}

/// Under other conditions: one row per route and condition.
fn elsewhere(results: &[CellResult]) -> Vec<Section> {
    let section = |conditions: Conditions| {
        let at = |route, gap_us| {
            let cell = WakeupCell { route, conditions, gap_us };
            Some((route, cell.result(results, Measurement::Any)?))
        };
        let rows = Route::all().into_iter().flat_map(|route| GAPS_US.map(|gap_us| at(route, gap_us)));
        let table = TableOf::new(rows.flatten())
            .name("way", |(route, _)| route.name())
            .number("gap", |(_, result)| result.cell.gap());
        let table = tail_columns(table, &["p50", "p90", "p99", "max"], |(_, result)| Some(*result))
            .number("lost", |(_, result)| Cell::broken(result.lost))
            .keyed(2);
        let about = format!("w2r_any, {}, µs", conditions.words());
        Section::new("Under other conditions").about(about).table(table).with_rows()
    };
    let disturbed = Conditions::all().into_iter().filter(|conditions| !conditions.is_plain());
    disturbed.filter_map(section).collect()
}

/// With the doorbell and without, side by side.
fn against_bare(rows: &[AgainstBare]) -> Option<Section> {
    let calls = |price: Price| format!("{:.1} + {:.1}", price.notify_calls, price.wait_calls);
    let table = TableOf::new(rows)
        .name("with the doorbell", |row| &row.name)
        .number("gap", |row| WakeupCell::gap_name(row.gap_us))
        .over("p50, µs")
        .number("doorbell", |row| strong_us(Some(row.p50_ns)))
        .number("bare", |row| micros(row.bare_ns as f64))
        .number("ratio", |row| format!("{:.2}", row.ratio.median))
        .number("half lie in", |row| range(row.ratio.quartiles))
        .over("calls")
        .number("doorbell", |row| calls(row.price))
        .number("bare", |row| calls(row.bare_price))
        .over("CPU, µs")
        .number("doorbell", |row| micros(row.price.cpu_ns))
        .number("bare", |row| micros(row.bare_price.cpu_ns))
        .over("")
        .name("bare is", |row| &row.bare_name)
        .keyed(2);
    let section = Section::new("What the doorbell costs and saves");
    let section = epoll_answer(rows).into_iter().fold(section, Section::words);
    let note = "A doorbell is a user-interrupt descriptor in software: an awake reader is not notified. It saves system calls and \
                the sleep where the reader is awake when the message comes. Where each message finds the reader asleep it saves \
                nothing; then its fence and two exchanges are what it costs. Calls: of writer + reader. Ratio: of the medians of \
                trials made one after the other; half of them lie in the range behind it.";
    section.note(note).table(table).with_rows()
}

/// Writer and reader as threads, and as processes.
fn against_threads(rows: &[AgainstThreads]) -> Option<Section> {
    let table = TableOf::new(rows)
        .name("way", |row| &row.name)
        .number("gap", |row| WakeupCell::gap_name(row.gap_us))
        .over("threads")
        .number("p50", |row| strong_us(Some(row.threads_ns)))
        .number("p99", |row| micros_or_dash(row.threads_p99_ns))
        .over("processes")
        .number("p50", |row| strong_us(Some(row.processes_ns)))
        .number("p99", |row| micros_or_dash(row.processes_p99_ns))
        .over("")
        .number("ratio", |row| format!("{:.2}", row.ratio.median))
        .number("half lie in", |row| range(row.ratio.quartiles))
        .keyed(2);
    let note = "The work log's writer and reader were processes; so are ours in the rows named +processes. Between them the kernel \
                also changes the address space, if another one ran on the reader's processor meanwhile.";
    let section = Section::new("Two threads, and two processes").about("w2r_any, µs");
    section.table(table).note(note).with_rows()
}

fn policy(rows: &[Policy]) -> Option<Section> {
    let mut table = TableOf::new(rows).number("gap", |row| WakeupCell::gap_name(row.gap_us));
    for (place, over) in ["p50", "CPU"].into_iter().enumerate() {
        table = table
            .over(over)
            .number("spin", |row| micros(row.spin[place]))
            .number("park", |row| micros(row.park[place]))
            .number("adaptive", |row| micros(row.adaptive[place]));
    }
    let table = table
        .over("adaptive")
        .name("chose", |row| &row.chose)
        .over("")
        .number("CPU / better", |row| format!("{:.2}", row.cpu_ratio))
        .over("p50")
        .number("/ chosen", |row| format!("{:.2}", row.latency_ratio_to_chosen))
        .number("/ better", |row| format!("{:.1}", row.latency_ratio))
        .keyed(1);
    let note = "The adaptive waiter forecasts its next wait from the last sixteen, and spins only if that costs less than a sleep. So \
                at every gap it should cost what the cheaper of the two costs; where spinning is cheaper it is also faster, where \
                parking is cheaper it pays with latency. No policy has both there.";
    let section =
        Section::new("Spin, then park: for how long?").about("w2r_any and CPU of both ends, µs; park: futex");
    section.note(note).table(table).with_rows()
}

fn handshakes(rows: &[HandshakeResult]) -> Option<Section> {
    let predicted = |row: &&HandshakeResult| {
        let predicted = if row.predicted_lost { "losses" } else { "none" };
        if row.is_as_predicted() {
            Cell::from(predicted)
        } else {
            Cell::toned(format!("{predicted} (!)"), Tone::Bad)
        }
    };
    let table = TableOf::new(rows)
        .name("protocol", |row| &row.name)
        .number("messages", |row| count(row.messages))
        .number("lost", |row| count(row.lost))
        .name("predicted", predicted)
        .name("repaired", |row| row.repaired.clone().unwrap_or_else(dash))
        .prose("what it is", |row| Cell::toned(&row.about, Tone::Faint))
        .keyed(1);
    let note = "Reader and writer as in the log's test programs, in software; rounds of two messages, of which the second meets what \
                the first has left behind. Lost: waits that only a time limit ended. The prediction is the model's (punctual sim \
                wakeup --variant h1 and so on), which goes through every order of events.";
    Section::new("Racy protocols and their repairs").note(note).table(table).with_rows()
}

/// The log's attempt: a time limit instead of a repair.
fn time_limits(rows: &[HandshakeResult]) -> Option<Section> {
    let table = TableOf::new(rows)
        .name("protocol", |row| &row.name)
        .number("limit", |row| WakeupCell::gap_name(row.limit_us))
        .number("messages", |row| count(row.messages))
        .number("lost", |row| count(row.lost))
        .number("mean", |row| micros(row.mean_ns))
        .number("max", |row| micros(row.max_ns as f64))
        .number("messages/s", |row| grouped(row.rate().round() as i64))
        .keyed(2);
    let note = "The log gave its racy wait a time limit, 100 µs to 10 ms. That loses as many wake-ups as before: each then takes as \
                long as the limit. The repaired protocol needs none.";
    let section = Section::new("What a time limit hides").about("µs from the request to being awake");
    section.note(note).table(table).with_rows()
}

fn published(rows: &[Compared]) -> Option<Section> {
    let mean = |row: &&Compared| {
        let wall = row.wall_mean_ns.map(|ns| format!(" timed, {} over the wall", micros(ns)));
        format!("{}{}", row.mean_ns.map_or_else(dash, micros), wall.unwrap_or_default())
    };
    let table = TableOf::new(rows)
        .over("the log")
        .prose("measured by", |row| &row.mechanism)
        .prose("mean", |row| &row.published_mean_us)
        .prose("slowest", |row| &row.published_max)
        .over("")
        .name("ours", |row| &row.name)
        .number("gap", |row| WakeupCell::gap_name(row.gap_us))
        .prose("mean", mean)
        .number("p50", |row| {
            time_text(row.p50_ns.map(|ns| ns as f64), row.infinite_from.as_deref() == Some("p50"))
        })
        .number("max", |row| time_text(row.max_ns.map(|ns| ns as f64), row.infinite_from.is_some()))
        .prose("what differs", |row| Cell::toned(&row.differs, Tone::Faint))
        .keyed(1);
    Section::new("The work log's figures beside ours").about("µs").table(table).with_rows()
}

/// The block of the benchmark that the log's figures come from, so that results compare: three on a terminal, all on the page.
fn ipc_bench(results: &[CellResult]) -> Vec<Section> {
    let (epoll, bare) = (Route::Park(Mechanism::Epoll), Route::Bare(Floor::Epoll));
    let of = |route: Route, conditions: [Conditions; 2]| {
        let at = |conditions| WakeupCell { route, conditions, gap_us: 0 }.result(results, Measurement::Loop);
        // The log's ends were processes.
        let result = at(conditions[0]).or_else(|| at(conditions[1]))?;
        Some((result.cell.name.clone(), ipc_bench_block(result)?))
    };
    let shown = [bare, epoll, Route::Spin];
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
    let wall_ms = result.number("wall_ns")? / 1e6;
    let deviation = result.number("deviation_ns").map_or_else(dash, |ns| format!("{:.3}", ns / 1e3));
    let all = result.number("messages")? as u64;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::{Screen, page};

    /// Goal: a way that lost wake-ups is told from one with too few messages for the figure.
    #[test]
    fn lost_wake_ups_are_infinite_and_unknown_figures_a_dash() {
        let of = |conditions: Conditions| {
            let cell = WakeupCell { route: Route::Spin, conditions, gap_us: 0 };
            CellResult::of(&cell.id(Measurement::Any), &[], 0)
        };
        let disturbed = Conditions::all().into_iter().find(|conditions| !conditions.is_plain());
        let mut results = vec![of(Conditions::default()), of(disturbed.expect("some are disturbed"))];
        // The legend has one, too.
        let infinite = |results: &[CellResult]| {
            let text = |sections: Vec<Section>| page(&sections, Screen { width: 200, colour: false });
            let tables = [text(by_gap(results).into_iter().collect()), text(elsewhere(results))];
            tables.map(|text| text.matches('∞').count())
        };
        let unknown = infinite(&results);
        for result in &mut results {
            result.figures.infinite_from = Some("p99".to_owned());
        }
        let lost = infinite(&results);
        assert!(unknown[0] < lost[0] && unknown[1] == 0 && lost[1] > 0, "{unknown:?} {lost:?}");
    }
}
