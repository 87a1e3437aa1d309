//! Output of `punctual run server`: requests and latencies beside the published tables, class by class.

use super::client::Arrivals;
use super::drawn;
use super::experiment::{ServerOverall, ServerTrial, cell};
use super::model::ServerModel;
use super::published::{CLASSES, CONNECTIONS, DURATION_S, MEANS_US, REQUESTS, Row, THINK_NS};
use super::setup::{Capacity, Setup};
use super::shared_line;
use crate::report::parts;
use crate::report::section::{Cell, Column, Item, Section, Table, Tone};
use crate::summary::{CellResult, Summary};
use crate::units::{count, dash, fixed, in_range, micros};

/// The server's part of the summary.
fn overall(summary: &Summary) -> Option<ServerOverall> {
    summary.added("server")
}

/// The whole answer.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(all) = overall(summary).filter(|all| !all.trials.is_empty()) {
        sections.push(totals(&all));
        sections.extend(capacities(&all));
        if all.classes > 1 {
            sections.push(by_class(&all, summary));
        }
        sections.extend(verdicts(&all));
        sections.extend(shared_line::section(&all));
        sections.push(published());
        sections.extend(drawn::sections(&all, summary));
    }
    sections.extend(parts::rest(summary));
    sections
}

fn conditions(all: &ServerOverall) -> String {
    let work =
        all.calibration.service_ns.iter().map(|(matrix, ns)| format!("m{matrix}: {} µs", micros(*ns as f64)));
    let place = if all.load_shares {
        "the load shares a processor with servers"
    } else {
        "the load has a processor of its own"
    };
    format!(
        "work done {} times, {}; {} µs once for m20 (the original: 720); {place}",
        all.calibration.repeats,
        work.collect::<Vec<_>>().join(", "),
        micros(all.calibration.native_ns as f64),
    )
}

fn micros_of(ns: Option<u64>) -> String {
    ns.map_or_else(dash, |ns| micros(ns as f64))
}

/// The trials of one setup, of all rounds.
type Rounds<'a> = Vec<&'a ServerTrial>;

/// In the order in which they were first made.
fn by_setup(all: &ServerOverall) -> Vec<Rounds<'_>> {
    let mut groups: Vec<Rounds<'_>> = Vec::new();
    for trial in &all.trials {
        match groups.iter_mut().find(|group| group[0].setup == trial.setup) {
            Some(group) => group.push(trial),
            None => groups.push(vec![trial]),
        }
    }
    groups
}

/// The middle one, and of several the least and the largest.
fn spread(mut values: Vec<f64>, text: impl Fn(f64) -> String) -> String {
    values.sort_by(f64::total_cmp);
    match values[..] {
        [] => dash(),
        [one] => text(one),
        [least, .., largest] => in_range(values[(values.len() - 1) / 2], Some([least, largest]), text),
    }
}

fn per_5_s(trial: &ServerTrial) -> f64 {
    let requests: u64 = trial.requests.iter().sum();
    requests as f64 * DURATION_S * 1e9 / trial.duration_ns.max(1) as f64
}

/// Wakes of tasks for each request that the tasks had; `None` where there are no wakes. A refused one goes through all stages, too.
fn wakes_each(rounds: &Rounds<'_>) -> Option<f64> {
    let of = |trial: &&ServerTrial| {
        let replied: u64 = trial.requests.iter().chain(&trial.refused).sum();
        replied + trial.worked_off
    };
    let wakes: u64 = rounds.iter().map(|trial| trial.served.wakes).sum();
    let served: u64 = rounds.iter().map(of).sum();
    (wakes > 0).then(|| wakes as f64 / served.max(1) as f64)
}

/// True if a load was late by more than 5 % of what it measured.
fn is_late(trial: &ServerTrial) -> bool {
    trial.mean_of_all_ns().is_some_and(|mean| trial.lag_p99_ns > mean / 20)
}

fn totals(all: &ServerOverall) -> Section {
    let mut columns = vec![Column::name("model")];
    columns.extend(["requests", "in 5 s", "published", "N·T/(R+Z)", "mean"].map(Column::number));
    columns.extend(["published mean", "load late p99", "CPU", "wakes each"].map(Column::number));
    let mut table = Table::new(columns).keyed(1);
    for rounds in by_setup(all) {
        let setup = &rounds[0].setup;
        let sum = |of: &dyn Fn(&ServerTrial) -> u64| rounds.iter().map(|trial| of(trial)).sum::<u64>();
        let requests = sum(&|trial| trial.requests.iter().sum());
        let each =
            |of: &dyn Fn(&ServerTrial) -> Option<f64>| rounds.iter().filter_map(|trial| of(trial)).collect();
        let lag = rounds.iter().map(|trial| trial.lag_p99_ns).max().unwrap_or(0);
        let tone = if rounds.iter().any(|trial| is_late(trial)) { Tone::Bad } else { Tone::Plain };
        let theirs = published_of(rounds[0]);
        let cpu = sum(&|trial| trial.served.cpu_ns) as f64 / sum(&ServerTrial::served_ns) as f64;
        let whole = |number: f64| count(number.round() as u64);
        table.row([
            setup.words().into(),
            Cell::toned(count(requests), Tone::Strong),
            spread(each(&|trial| Some(per_5_s(trial))), whole).into(),
            theirs.map_or_else(String::new, |(requests, _)| count(requests)).into(),
            spread(each(&|trial| trial.predicted), whole).into(),
            spread(each(&|trial| trial.mean_of_all_ns().map(|ns| ns as f64)), micros).into(),
            theirs.and_then(|(_, mean_us)| mean_us).map_or_else(String::new, count).into(),
            Cell::toned(micros(lag as f64), tone),
            fixed(cpu, 2).into(),
            wakes_each(&rounds).map_or_else(String::new, |wakes| fixed(wakes, 2)).into(),
        ]);
    }
    let note = "c: connections, m: matrix, w: workers, p: processors. \
                Latencies in µs, until the whole reply has come; of several rounds the middle one, the least and the largest. \
                A load that was late by more than 5 % of the mean is marked: its latencies are partly its own.";
    Section::new("Who serves how many").about(conditions(all)).table(table.without_empty()).note(note)
}

/// Published figures of such a trial: requests in 5 s, and where there is one the mean, µs.
fn published_of(trial: &ServerTrial) -> Option<(u64, Option<u64>)> {
    let Setup { model, connections, matrix, hog_ns, .. } = trial.setup;
    let thinks = |think_ns| [Arrivals::Closed { think_ns }, Arrivals::Original { think_ns }];
    let is_theirs = thinks(THINK_NS).contains(&trial.arrivals) && hog_ns == 0;
    let theirs = if model.has_tasks() { "coroutines" } else { "threads" };
    let place = CONNECTIONS.iter().position(|&count| count == connections).filter(|_| is_theirs)?;
    let of = |rows: &[Row]| {
        let mut rows = rows.iter();
        rows.find(|row| (row.0, row.1) == (theirs, matrix)).map(|row| row.2[place])
    };
    Some((of(&REQUESTS)?, of(&MEANS_US)))
}

/// Capacity of each model, of which an open load is a part.
fn capacities(all: &ServerOverall) -> Option<Section> {
    let mut columns = vec![Column::name("model")];
    columns.extend(["replies a second", "× tokio"].map(Column::number));
    let mut table = Table::new(columns).keyed(1);
    for Capacity { setup, per_second } in &all.capacities {
        let beside = setup.beside(ServerModel::Tokio);
        let tokio = all.capacities.iter().find(|of| of.setup == beside).map(|of| per_second / of.per_second);
        let tokio = tokio.filter(|ratio| ratio.is_finite() && setup.model != ServerModel::Tokio);
        table.row([
            setup.words().into(),
            Cell::toned(count(per_second.round() as u64), Tone::Strong),
            tokio.map_or_else(String::new, |ratio| fixed(ratio, 2)).into(),
        ]);
    }
    let note = "Every connection asks again at once: the middle one of three tries of half a second, models in turn. ρ = 1 is what tokio can do, or the first model where tokio \
                is not measured: all models have the same load.";
    Section::new("What each can do").table(table.without_empty()).note(note).with_rows()
}

/// The figures of all rounds of a class together.
fn pooled<'a>(summary: &'a Summary, trial: &ServerTrial, class: usize) -> Option<&'a CellResult> {
    let of_class = (trial.requests.len() > 1).then_some(class);
    let name = cell(trial, of_class).name;
    summary.results.iter().find(|result| result.cell.name == name)
}

fn by_class(all: &ServerOverall, summary: &Summary) -> Section {
    let mut columns = vec![Column::name("model"), Column::number("class")];
    columns.extend(["requests", "refused", "mean", "p50", "p99", "× tokio"].map(Column::number));
    let mut table = Table::new(columns).keyed(2);
    let groups = by_setup(all);
    for rounds in &groups {
        let first = rounds[0];
        let beside = first.setup.beside(ServerModel::Tokio);
        let tokio = groups.iter().map(|rounds| rounds[0]).find(|trial| trial.setup == beside);
        for class in 0..first.requests.len() {
            let sum = |of: &dyn Fn(&ServerTrial) -> u64| rounds.iter().map(|trial| of(trial)).sum::<u64>();
            let refused = sum(&|trial| trial.refused.get(class).copied().unwrap_or(0));
            let each = |of: &dyn Fn(&ServerTrial) -> Option<u64>| {
                rounds.iter().filter_map(|trial| of(trial)).map(|ns| ns as f64).collect()
            };
            let p99 = |trial| pooled(summary, trial, class)?.figures.p99;
            let own = p99(first);
            let theirs = tokio.filter(|_| first.setup.model != ServerModel::Tokio).and_then(p99);
            let ratio = own.zip(theirs).map(|(own, theirs)| fixed(own as f64 / theirs.max(1) as f64, 2));
            table.row([
                first.setup.words().into(),
                class.to_string().into(),
                Cell::toned(count(sum(&|trial| trial.requests[class])), Tone::Strong),
                if refused > 0 { count(refused).into() } else { String::new().into() },
                spread(each(&|trial| trial.mean_ns[class]), micros).into(),
                spread(each(&|trial| trial.p50_ns.get(class).copied().flatten()), micros).into(),
                micros_of(own).into(),
                ratio.unwrap_or_default().into(),
            ]);
        }
        table.separate();
    }
    let about = "µs; class 0 is the most important, which threads and bare tokio do not know";
    let note = "Mean and p50 are of what was answered: of several rounds the middle one, the least and the largest. The p99 is of \
                all rounds together, and refused requests are later than everything.";
    Section::new("Class by class").about(about).table(table.without_empty()).note(note)
}

fn verdicts(all: &ServerOverall) -> Option<Section> {
    let said = all.trials.iter().flat_map(|trial| {
        let whose = trial.setup.words();
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
        classes.row(["coroutines, c 128, m 20".into(), pollers.to_string().into()].into_iter().chain(counts));
    }
    let note = "Their threads poll and yield; blocking ones serve nearly all that is offered. Their class 7 got one request per \
                connection, after the others had stopped. Their four pollers collapse on a ticket lock.";
    let about = "requests in 5 s; think time 100 ms, with classes 50 ms; four cores under a hypervisor";
    Section::new("As published").about(about).table(requests).table(classes).note(note)
}

#[cfg(test)]
mod tests {
    use super::super::trial::tests::unmeasured;
    use super::*;

    /// Goal: wakes are of all requests that tasks had: refused ones and those that were answered after the end, too.
    #[test]
    fn wakes_are_of_all_requests() {
        let wakes = |wakes| super::super::host::Served { wakes, ..Default::default() };
        let trial = |requests, refused, worked_off| ServerTrial {
            requests: vec![requests],
            refused: vec![refused],
            worked_off,
            served: wakes(120),
            ..unmeasured()
        };
        let of = |trial: &ServerTrial| wakes_each(&vec![trial]);
        assert_eq!(of(&trial(10, 30, 0)), Some(3.0));
        assert_eq!(of(&trial(10, 20, 10)), Some(3.0));
        assert_eq!(of(&ServerTrial { served: wakes(0), ..trial(10, 0, 0) }), None);
    }

    /// Goal: a load is late by what it measured, and not where it measured nothing.
    #[test]
    fn a_load_is_late_by_what_it_measured() {
        let of = |mean_ns: Option<u64>| {
            let trial = ServerTrial { mean_ns: vec![mean_ns], requests: vec![4], ..unmeasured() };
            is_late(&ServerTrial { lag_p99_ns: 100, ..trial })
        };
        assert_eq!([Some(1_000), Some(3_000), None].map(of), [true, false, false]);
    }
}
