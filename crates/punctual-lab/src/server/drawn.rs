//! Drawings of `punctual run server`: requests and latencies against connections, class by class, and the longest waiters.

use super::experiment::{ServerOverall, ServerTrial, cell};
use super::host::OldestWaiters;
use super::published::{CONNECTIONS, DURATION_S, MEANS_US, REQUESTS, Row};
use super::setup::Setup;
use crate::distinct::distinct;
use crate::report::draw::{Series, lines, numbers};
use crate::report::section::{Block, Output, Section};
use crate::stats::middle;
use crate::summary::Summary;

/// For the page alone; tables have the same figures.
pub(super) fn sections(all: &ServerOverall, summary: &Summary) -> Vec<Section> {
    let sections = [against_connections(all), class_by_class(all, summary), oldest_waiters(all)];
    sections.into_iter().flatten().map(|section| section.only_on(Output::Page)).collect()
}

/// Properties that differ from trial to trial besides connections.
fn without_connections(setup: &Setup) -> Setup {
    Setup { connections: 0, ..*setup }
}

fn against_connections(all: &ServerOverall) -> Option<Section> {
    let mut connections = distinct(all.trials.iter().map(|trial| trial.setup.connections));
    if connections.len() < 2 {
        return None;
    }
    connections.sort_unstable();
    let mut section =
        Section::new("Against connections").about("of several rounds the middle one; thin: as published");
    for matrix in distinct(all.trials.iter().map(|trial| trial.setup.matrix)) {
        let of_matrix: Vec<&ServerTrial> =
            all.trials.iter().filter(|trial| trial.setup.matrix == matrix).collect();
        let a_second = |trial: &ServerTrial| {
            Some(trial.requests.iter().sum::<u64>() as f64 * 1e9 / trial.duration_ns.max(1) as f64)
        };
        let mean = |trial: &ServerTrial| trial.mean_of_all_ns().map(|ns| ns as f64);
        let chart = Chart { connections: &connections, trials: &of_matrix, matrix };
        section = section
            .words(format!("Requests a second, matrix {matrix}:"))
            .with(chart.draw(numbers, a_second, &REQUESTS, 1.0 / DURATION_S))
            .words(format!("Mean latency, matrix {matrix}:"))
            .with(chart.draw(lines, mean, &MEANS_US, 1e3));
    }
    Some(section)
}

/// The trials of one matrix.
struct Chart<'a> {
    connections: &'a [usize],
    trials: &'a [&'a ServerTrial],
    matrix: usize,
}

impl Chart<'_> {
    /// A line for each setup, and a thin one for each published row, whose figures are of this unit.
    fn draw(
        &self,
        draw: fn(&str, &[String], &[Series]) -> Block,
        of: impl Fn(&ServerTrial) -> Option<f64>,
        rows: &[Row],
        unit: f64,
    ) -> Block {
        let setups = distinct(self.trials.iter().map(|trial| without_connections(&trial.setup)));
        let line = |(look, setup): (usize, &Setup)| {
            let at = |connections: usize| {
                let is_of = |trial: &&&ServerTrial| {
                    trial.setup.connections == connections && without_connections(&trial.setup) == *setup
                };
                middle(self.trials.iter().filter(is_of).filter_map(|trial| of(trial)).collect())
            };
            let points = self.connections.iter().enumerate();
            Series {
                name: setup.brief(),
                look: look % 8,
                is_thin: false,
                points: points.filter_map(|(step, &count)| Some((step, at(count)?))).collect(),
            }
        };
        let mut series: Vec<Series> = setups.iter().enumerate().map(line).collect();
        series.extend(rows.iter().filter(|row| row.1 == self.matrix).enumerate().map(|(place, row)| {
            let value = |count: &usize| {
                let column = CONNECTIONS.iter().position(|of| of == count)?;
                Some(row.2[column] as f64 * unit)
            };
            let points = self.connections.iter().enumerate();
            let points = points.filter_map(|(step, count)| Some((step, value(count)?))).collect();
            Series { name: format!("published {}", row.0), look: 8 + place % 2, is_thin: true, points }
        }));
        series.retain(|one| !one.points.is_empty());
        let steps: Vec<String> = self.connections.iter().map(ToString::to_string).collect();
        draw("against connections", &steps, &series)
    }
}

fn class_by_class(all: &ServerOverall, summary: &Summary) -> Option<Section> {
    if all.classes < 2 {
        return None;
    }
    let setups = distinct(all.trials.iter().map(|trial| trial.setup));
    let steps: Vec<String> = (0..all.classes).map(|class| class.to_string()).collect();
    let chart = |figure: usize| {
        let line = |setup: &Setup| {
            let trial = all.trials.iter().find(|trial| trial.setup == *setup)?;
            let at = |class: usize| {
                let name = cell(trial, Some(class)).name;
                let result = summary.results.iter().find(|result| result.cell.name == name)?;
                Some((class, result.figures.tail_ns()[figure]?))
            };
            Some((setup.words(), (0..all.classes).filter_map(at).collect()))
        };
        looking_apart(setups.iter().filter_map(line))
    };
    let mut section =
        Section::new("Latency by class").about("class 0 is the most important; all rounds together");
    for (name, series) in [("p50:", chart(0)), ("p99:", chart(2))] {
        if !series.is_empty() {
            section = section.words(name).with(lines("latency by class", &steps, &series));
        }
    }
    (!section.blocks.is_empty()).then_some(section)
}

/// Lines that have points, each told from the others.
fn looking_apart(all: impl Iterator<Item = (String, Vec<(usize, f64)>)>) -> Vec<Series> {
    let all = all.filter(|(_, points)| !points.is_empty()).enumerate();
    all.map(|(place, (name, points))| Series { name, look: place % 10, is_thin: false, points }).collect()
}

/// Of the last round of each setup whose server has classes.
fn oldest_waiters(all: &ServerOverall) -> Option<Section> {
    let mut section = Section::new("Who waits longest")
        .about("age of the oldest request in line, by class, while the trial ran, 0 where none was; of the last round");
    for setup in distinct(all.trials.iter().map(|trial| trial.setup)) {
        let last = all.trials.iter().rfind(|trial| trial.setup == setup)?;
        let samples = &last.served.oldest;
        let steps: Vec<String> =
            samples.iter().map(|sample| format!("{:.1} s", sample.at_ns as f64 / 1e9)).collect();
        let line = |class: usize| {
            let age =
                |(step, sample): (usize, &OldestWaiters)| Some((step, *sample.oldest_ns.get(class)? as f64));
            (format!("class {class}"), samples.iter().enumerate().filter_map(age).collect())
        };
        let series = looking_apart((0..all.classes).map(line));
        // A request that was found in line once shows nothing.
        let is_waiting = |one: &Series| one.points.iter().filter(|(_, ns)| *ns > 0.0).count() > 1;
        if series.iter().any(is_waiting) {
            let drawing = lines("age of the oldest waiter", &steps, &series);
            section = section.words(format!("{}:", setup.words())).with(drawing);
        }
    }
    (!section.blocks.is_empty()).then_some(section)
}
