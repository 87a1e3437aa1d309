//! What `punctual run server` says: requests and latencies beside the published tables, class by class.

use super::experiment::{ServerOverall, ServerTrial};
use super::published::{CLASSES, CONNECTIONS, DURATION_S, REQUESTS};
use crate::report::parts;
use crate::report::section::{Cell, Column, Item, Section, Table, Tone};
use crate::summary::Summary;
use crate::units::{count, dash, fixed, micros};

/// What the summary holds of it.
fn overall(summary: &Summary) -> Option<ServerOverall> {
    serde_json::from_value(summary.more.get("server")?.clone()).ok()
}

/// The whole answer.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(all) = overall(summary).filter(|all| !all.trials.is_empty()) {
        sections.push(totals(&all));
        if all.classes > 1 {
            sections.push(by_class(&all));
        }
        sections.extend(verdicts(&all));
        sections.push(published());
    }
    sections.extend(parts::rest(summary));
    sections
}

fn conditions(all: &ServerOverall) -> String {
    let work =
        all.calibration.service_ns.iter().map(|(matrix, ns)| format!("m{matrix}: {} µs", micros(*ns as f64)));
    format!(
        "work done {} times, {}; {} µs once for m20 (the original: 720); one processor serves, the load has another",
        all.calibration.repeats,
        work.collect::<Vec<_>>().join(", "),
        micros(all.calibration.native_ns as f64),
    )
}

fn micros_of(ns: Option<u64>) -> String {
    ns.map_or_else(dash, |ns| micros(ns as f64))
}

/// The mean over all classes.
fn mean_of(trial: &ServerTrial) -> Option<u64> {
    let requests: u64 = trial.requests.iter().sum();
    let sum: u64 =
        trial.mean_ns.iter().zip(&trial.requests).map(|(mean, count)| mean.unwrap_or(0) * count).sum();
    sum.checked_div(requests)
}

fn totals(all: &ServerOverall) -> Section {
    let mut columns = vec![Column::name("model"), Column::number("connections"), Column::number("matrix")];
    columns.extend(["requests", "in 5 s", "N·T/(R+Z)", "mean", "load late p99", "CPU"].map(Column::number));
    columns.push(Column::number("wakes each"));
    let mut table = Table::new(columns).keyed(3);
    for trial in &all.trials {
        let requests: u64 = trial.requests.iter().sum();
        let per_5_s = requests as f64 * DURATION_S * 1e9 / trial.duration_ns.max(1) as f64;
        let wakes = if trial.model.has_classes() {
            fixed(trial.served.wakes as f64 / requests.max(1) as f64, 2)
        } else {
            dash()
        };
        let mean = mean_of(trial);
        let is_late = mean.is_some_and(|mean| trial.lag_p99_ns > mean / 20);
        table.row([
            trial.model.name().into(),
            count(trial.connections as u64).into(),
            count(trial.matrix as u64).into(),
            Cell::toned(count(requests), Tone::Strong),
            count(per_5_s.round() as u64).into(),
            trial.predicted.map_or_else(dash, |predicted| count(predicted.round() as u64)).into(),
            micros_of(mean).into(),
            Cell::toned(micros(trial.lag_p99_ns as f64), if is_late { Tone::Bad } else { Tone::Plain }),
            fixed(trial.served.cpu_ns as f64 / trial.duration_ns.max(1) as f64, 2).into(),
            wakes.into(),
        ]);
    }
    let note = "Latencies in µs, until the whole reply has come. A load that was late by more than 5 % of the mean is \
                marked: its latencies are partly its own.";
    Section::new("Who serves how many").about(conditions(all)).table(table.without_empty()).note(note)
}

fn by_class(all: &ServerOverall) -> Section {
    let mut columns = vec![Column::name("model"), Column::number("class")];
    columns.extend(["requests", "mean", "p99"].map(Column::number));
    let mut table = Table::new(columns).keyed(2);
    for trial in &all.trials {
        for class in 0..trial.requests.len() {
            table.row([
                format!("{} c{} m{}", trial.model.name(), trial.connections, trial.matrix).into(),
                class.to_string().into(),
                Cell::toned(count(trial.requests[class]), Tone::Strong),
                micros_of(trial.mean_ns[class]).into(),
                micros_of(trial.p99_ns[class]).into(),
            ]);
        }
        table.separate();
    }
    let about = "µs; class 0 is the most important, which threads and bare tokio do not know";
    Section::new("Class by class").about(about).table(table)
}

fn verdicts(all: &ServerOverall) -> Option<Section> {
    let said = all.trials.iter().flat_map(|trial| {
        let whose = format!("{} c{} m{}", trial.model.name(), trial.connections, trial.matrix);
        trial.served.verdicts.iter().map(move |verdict| Item::new(format!("{whose}: {verdict}")))
    });
    let items: Vec<Item> = said.collect();
    (!items.is_empty()).then(|| Section::new("What the server's counters say").items(items))
}

/// The tables that are reproduced, as published.
fn published() -> Section {
    let mut columns = vec![Column::name("published"), Column::number("matrix")];
    columns
        .extend(CONNECTIONS.map(|connections| Column::number(connections.to_string()).over("connections")));
    let mut requests = Table::new(columns).keyed(2);
    for (model, matrix, counts) in REQUESTS {
        let counts = counts.map(|requests| Cell::from(count(requests)));
        requests.row([model.into(), matrix.to_string().into()].into_iter().chain(counts));
    }
    let mut columns = vec![Column::name("published"), Column::number("pollers")];
    columns.extend((0..8).map(|class| Column::number(class.to_string()).over("class")));
    let mut classes = Table::new(columns).keyed(2);
    for (pollers, counts) in CLASSES {
        let counts = counts.map(|requests| Cell::from(count(requests)));
        classes.row(["coroutines, c128 m20".into(), pollers.to_string().into()].into_iter().chain(counts));
    }
    let note = "Their threads poll and yield; blocking ones serve nearly all that is offered. Their class 7 got one request per \
                connection, after the others had stopped. Their four pollers collapse on a ticket lock.";
    let about = "requests in 5 s; think time 100 ms, with classes 50 ms; four cores under a hypervisor";
    Section::new("As published").about(about).table(requests).table(classes).note(note)
}
