//! The experiment's tables for a terminal.

use std::fmt::Write as _;

use serde_json::Value;

use super::against::{AgainstBare, AgainstThreads, epoll_answer};
use super::figures::Policy;
use super::handshake::HandshakeResult;
use super::plan::{Cell, Conditions, GAPS_US, Measurement};
use super::published::Compared;
use super::route::{Route, SetSize};
use crate::summary::{CellResult, Summary};
use crate::table::{self, Style, grouped, micros};

/// The whole answer: latency by gap, the other conditions, the policy, the handshakes, the log, the advice, the doubts.
pub fn overview(summary: &Summary, style: Style) -> String {
    let results = &summary.results;
    let mut text = by_gap(results, style);
    text += &against_threads(summary, style);
    text += &elsewhere(results, style);
    text += &against_bare(summary, style);
    text += &policy(summary, style);
    text += &handshakes(summary, style);
    text += &published(summary, style);
    text += &ipc_bench(results, style);
    if let Some(recommendation) = &summary.recommendation {
        let _ = writeln!(text, "{}\n", style.heading(&recommendation.text));
        for choice in &recommendation.choices {
            let _ = writeln!(text, "  {:<30} {:<22} {}", choice.need, choice.name, choice.because);
        }
        text.push('\n');
    }
    text += &table::skipped(&summary.skipped, style);
    text + &table::doubts(&summary.doubts, style)
}

fn find(results: &[CellResult], cell: Cell, measurement: Measurement) -> Option<&CellResult> {
    let id = cell.id(measurement);
    results.iter().find(|result| result.cell == id)
}

fn time(ns: Option<u64>) -> String {
    ns.map_or("–".to_owned(), |ns| micros(ns as f64))
}

fn number(result: &CellResult, name: &str) -> Option<f64> {
    result.more.get(name).and_then(Value::as_f64)
}

/// p50 and p99 at each gap, then what a message costs at 1 ms.
fn by_gap(results: &[CellResult], style: Style) -> String {
    let title = "From the writer's notification to the reader being awake (w2r_any), by idle gap, µs";
    let mut text = format!("{}\n", style.heading(title));
    let mut head = format!("{:<15}", "");
    for gap in ["0", "10 µs", "100 µs", "1 ms", "10 ms"] {
        let _ = write!(head, "{gap:>7}{:>6}", "");
    }
    let _ = writeln!(text, "{}", style.faint(&format!("{head}{:>18}", "per message")));
    let mut head = format!("{:<15}", "");
    for _ in GAPS_US {
        let _ = write!(head, "{:>7}{:>6}", "p50", "p99");
    }
    let _ = writeln!(text, "{}", style.faint(&format!("{head}{:>6}{:>7}{:>5}", "calls", "CPU", "lost")));
    for route in Route::all() {
        let line = gap_line(results, route);
        if !line.is_empty() {
            let _ = writeln!(text, "{line}");
        }
    }
    let note =
        "Calls: of writer and reader together, and the reader's CPU, at the longest gap measured up to 1 ms.";
    let _ = writeln!(text, "{}\n", style.faint(note));
    text
}

fn gap_line(results: &[CellResult], route: Route) -> String {
    let at =
        |gap_us| find(results, Cell { route, conditions: Conditions::default(), gap_us }, Measurement::Any);
    if GAPS_US.iter().all(|&gap_us| at(gap_us).is_none()) {
        return String::new();
    }
    let mut line = format!("{:<15}", route.name());
    for gap_us in GAPS_US {
        let result = at(gap_us);
        let p50 = time(result.and_then(|r| r.figures.p50));
        let p99 = time(result.and_then(|r| r.figures.p99));
        let _ = write!(line, "{p50:>7}{p99:>6}");
    }
    let shown = GAPS_US.iter().rev().filter(|&&gap_us| gap_us <= 1_000).find_map(|&gap_us| at(gap_us));
    let calls = shown
        .and_then(|r| Some(number(r, "notify_calls_per_message")? + number(r, "wait_calls_per_message")?));
    let calls = calls.map_or("–".to_owned(), |calls| format!("{calls:.1}"));
    let cpu = shown.and_then(|r| r.cpu_ns_per_message).map_or("–".to_owned(), micros);
    let lost: u64 = GAPS_US.iter().filter_map(|&gap_us| at(gap_us)).map(|result| result.lost).sum();
    let _ = write!(line, "{calls:>6}{cpu:>7}{lost:>5}");
    line
}

/// Under other conditions: one line per route and condition.
fn elsewhere(results: &[CellResult], style: Style) -> String {
    let mut text = String::new();
    for conditions in Conditions::ALL.into_iter().filter(|conditions| !conditions.is_plain()) {
        let rows: Vec<(Route, u64, &CellResult)> = Route::all()
            .into_iter()
            .flat_map(|route| GAPS_US.map(|gap_us| (route, gap_us)))
            .filter_map(|(route, gap_us)| {
                Some((route, gap_us, find(results, Cell { route, conditions, gap_us }, Measurement::Any)?))
            })
            .collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}", style.heading(&format!("w2r_any, {}, µs", conditions.words())));
        let head =
            format!("{:<15}{:>8}{:>9}{:>9}{:>9}{:>9}{:>7}", "", "gap", "p50", "p90", "p99", "max", "lost");
        let _ = writeln!(text, "{}", style.faint(&head));
        for (route, _, result) in rows {
            let figures = &result.figures;
            let (p50, p90, p99, max) =
                (time(figures.p50), time(figures.p90), time(figures.p99), time(figures.max));
            let (name, gap, lost) = (route.name(), result.cell.gap(), result.lost);
            let _ = writeln!(text, "{name:<15}{gap:>8}{p50:>9}{p90:>9}{p99:>9}{max:>9}{lost:>7}");
        }
        text.push('\n');
    }
    text
}

/// What stands in the summary under this name.
pub(crate) fn list<T: serde::de::DeserializeOwned>(summary: &Summary, name: &str) -> Vec<T> {
    summary.more.get(name).and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

fn against_bare(summary: &Summary, style: Style) -> String {
    let rows: Vec<AgainstBare> = list(summary, "against_bare");
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "{}\n",
        style.heading("What the doorbell costs and saves: with it, and bare; p50 and CPU, µs")
    );
    let head = format!(
        "{:<28}{:>7}{:>9}{:>9}{:>7}{:>14}{:>11}{:>6}{:>9}{:>7}",
        "", "gap", "doorbell", "bare", "ratio", "half lie in", "calls/msg", "bare", "CPU/msg", "bare"
    );
    let _ = writeln!(text, "{}", style.faint(&head));
    let answer = epoll_answer(&rows);
    for row in rows {
        let (gap, own, bare) = (gap_name(row.gap_us), micros(row.p50_ns as f64), micros(row.bare_ns as f64));
        let range = format!("{:.2} – {:.2}", row.ratio_quartiles[0], row.ratio_quartiles[1]);
        let _ = write!(text, "{:<28}{gap:>7}{own:>9}{bare:>9}{:>7.2}{range:>14}", row.name, row.ratio);
        let (price, bare) = (row.price, row.bare_price);
        let cpu = [price, bare].map(|price| micros(price.cpu_ns));
        let _ = writeln!(text, "{:>11.1}{:>6.1}{:>9}{:>7}", price.calls(), bare.calls(), cpu[0], cpu[1]);
    }
    for line in answer {
        let _ = writeln!(text, "{line}");
    }
    text.push('\n');
    text
}

/// Only where the processes were measured.
fn against_threads(summary: &Summary, style: Style) -> String {
    let rows: Vec<AgainstThreads> = list(summary, "against_threads");
    if rows.is_empty() {
        return String::new();
    }
    let title = "Two threads, and two processes as in the log (+processes): w2r_any, µs";
    let mut text = format!("{}\n", style.heading(title));
    let head = format!(
        "{:<15}{:>7}{:>10}{:>7}{:>11}{:>7}{:>8}{:>14}",
        "", "gap", "threads", "p99", "processes", "p99", "ratio", "half lie in"
    );
    let _ = writeln!(text, "{}", style.faint(&head));
    for row in rows {
        let (gap, [low, high]) = (gap_name(row.gap_us), row.ratio_quartiles);
        let (threads, threads_p99) = (micros(row.threads_ns as f64), time(row.threads_p99_ns));
        let (processes, processes_p99) = (micros(row.processes_ns as f64), time(row.processes_p99_ns));
        let range = format!("{low:.2} – {high:.2}");
        let _ = write!(text, "{:<15}{gap:>7}{threads:>10}{threads_p99:>7}", row.name);
        let _ = writeln!(text, "{processes:>11}{processes_p99:>7}{:>8.2}{range:>14}", row.ratio);
    }
    text.push('\n');
    text
}

fn gap_name(gap_us: u64) -> String {
    crate::sample::CellId { gap_us, ..crate::sample::CellId::new("", "") }.gap()
}

fn policy(summary: &Summary, style: Style) -> String {
    let rows: Vec<Policy> = list(summary, "adaptive");
    if rows.is_empty() {
        return String::new();
    }
    let title = "The adaptive policy beside spin and park (futex): p50 of w2r_any, and CPU of both ends, µs";
    let mut text = format!("{}\n", style.heading(title));
    let head = format!(
        "{:<9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>8}{:>13}{:>10}",
        "gap",
        "spin",
        "park",
        "adaptive",
        "CPU: spin",
        "park",
        "adaptive",
        "chose",
        "CPU / better",
        "p50 / its"
    );
    let _ = writeln!(text, "{}", style.faint(&head));
    for row in rows {
        let gap = gap_name(row.gap_us);
        let [spin, park, adaptive] =
            [row.spin, row.park, row.adaptive].map(|[p50, cpu]| (micros(p50), micros(cpu)));
        let _ = writeln!(
            text,
            "{gap:<9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>8}{:>13.2}{:>10.2}",
            spin.0,
            park.0,
            adaptive.0,
            spin.1,
            park.1,
            adaptive.1,
            row.chose,
            row.cpu_ratio,
            row.latency_ratio_to_chosen
        );
    }
    text.push('\n');
    text
}

fn handshakes(summary: &Summary, style: Style) -> String {
    let rows: Vec<HandshakeResult> = list(summary, "handshakes");
    if rows.is_empty() {
        return String::new();
    }
    let title = "Racy protocols and their repairs, in software: waits that only a time limit ended";
    let mut text = format!("{}\n", style.heading(title));
    let head =
        format!("{:<20}{:>9}{:>6}   {:<12}{:<21}what it is", "", "messages", "lost", "predicted", "repaired");
    let _ = writeln!(text, "{}", style.faint(&head));
    for row in rows {
        let predicted = match (row.predicted_lost, row.is_as_predicted()) {
            (true, true) => "losses",
            (false, true) => "none",
            (true, false) => "losses (!)",
            (false, false) => "none (!)",
        };
        let repaired = row.repaired.as_deref().unwrap_or("–");
        let _ = writeln!(
            text,
            "{:<20}{:>9}{:>6}   {predicted:<12}{repaired:<21}{}",
            row.name, row.messages, row.lost, row.about
        );
    }
    text.push('\n');
    text + &time_limits(summary, style)
}

/// What the log tried: a time limit instead of a repair.
fn time_limits(summary: &Summary, style: Style) -> String {
    let rows: Vec<HandshakeResult> = list(summary, "time_limits");
    if rows.is_empty() {
        return String::new();
    }
    let title =
        "The log's time limits on a racy protocol, and on its repair: µs from the request to being awake";
    let mut text = format!("{}\n", style.heading(title));
    let head = format!(
        "{:<20}{:>9}{:>10}{:>6}{:>10}{:>10}{:>10}",
        "", "limit", "messages", "lost", "mean", "max", "msg/s"
    );
    let _ = writeln!(text, "{}", style.faint(&head));
    for row in rows {
        let (limit, rate) = (gap_name(row.limit_us), grouped(row.rate().round() as i64));
        let (mean, max) = (micros(row.mean_ns), micros(row.max_ns as f64));
        let _ = writeln!(
            text,
            "{:<20}{limit:>9}{:>10}{:>6}{mean:>10}{max:>10}{rate:>10}",
            row.name, row.messages, row.lost
        );
    }
    text.push('\n');
    text
}

fn published(summary: &Summary, style: Style) -> String {
    let rows: Vec<Compared> = list(summary, "published");
    if rows.is_empty() {
        return String::new();
    }
    let mut text =
        format!("{}\n", style.heading("The work log's means beside ours, µs (what differs: on the page)"));
    let head = format!("{:<24}{:<32}{:<38}{:>7}{:>8}", "the log: by", "mean", "ours", "gap", "mean");
    let _ = writeln!(text, "{}", style.faint(&head));
    for row in rows {
        let gap = gap_name(row.gap_us);
        let mean = row.mean_ns.map_or("–".to_owned(), micros);
        let _ = writeln!(
            text,
            "{:<24}{:<32}{:<38}{gap:>7}{mean:>8}",
            row.mechanism, row.published_mean_us, row.name
        );
    }
    text.push('\n');
    text
}

/// The block of the benchmark that the log's figures come from, so that results compare.
fn ipc_bench(results: &[CellResult], style: Style) -> String {
    let epoll = Route::Park(punctual_machine::wake::Mechanism::Epoll);
    let shown = [Route::BareEpoll(SetSize::One), epoll, Route::Spin];
    let mut text = String::new();
    for route in shown {
        let at = |conditions| find(results, Cell { route, conditions, gap_us: 0 }, Measurement::Loop);
        // The log's ends were processes.
        let Some(result) = at(Conditions::PROCESSES).or_else(|| at(Conditions::THREADS)) else { continue };
        if let Some(block) = ipc_bench_block(result) {
            let _ = writeln!(text, "{}\n{block}", style.heading(&format!("{}, gap 0", result.cell.name)));
        }
    }
    text
}

/// Its lines, for one `ipcbench_loop`.
pub(crate) fn ipc_bench_block(result: &CellResult) -> Option<String> {
    let figures = &result.figures;
    let wall_ms = number(result, "wall_ns")? / 1e6;
    let deviation = number(result, "deviation_ns").map_or("–".to_owned(), |ns| format!("{:.3}", ns / 1e3));
    let all = number(result, "messages")? as u64;
    let us = |ns: Option<f64>| ns.map_or("–".to_owned(), |ns| format!("{:.3}", ns / 1e3));
    let lines = [
        ("Message size:", result.cell.size.to_string()),
        ("Message count:", grouped(i64::try_from(all).ok()?)),
        ("Total duration:", format!("{wall_ms:.3} ms")),
        ("Average duration:", format!("{} us", us(figures.mean))),
        ("Minimum duration:", format!("{} us", us(figures.min.map(|ns| ns as f64)))),
        ("Maximum duration:", format!("{} us", us(figures.max_answered.map(|ns| ns as f64)))),
        ("Standard deviation:", format!("{deviation} us")),
        ("Message rate:", format!("{} msg/s", grouped((all as f64 / wall_ms * 1e3).round() as i64))),
    ];
    let mut text = String::from("============ RESULTS ================\n");
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<20}{value}");
    }
    let _ = writeln!(
        text,
        "p50, p90, p99, p99.9: {}\n=====================================",
        [figures.p50, figures.p90, figures.p99, figures.p999].map(time).join(", ") + " us"
    );
    Some(text)
}
