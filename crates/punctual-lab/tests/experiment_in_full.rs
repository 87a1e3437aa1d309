//! An experiment in full, to begin with: what does a longer message take? It is a plan, an analysis and sections; turns, testbed,
//! load, recorder, store, statistics, doubts and text are the laboratory's. A command adds its options and
//! `command/measure.rs`.

use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Wake};
use punctual_lab::endpoint::{Addresses, EndpointPlan, Stack};
use punctual_lab::load::client::{Trial, Warmup};
use punctual_lab::load::testbed::{Place, Testbed};
use punctual_lab::report::section::{Cell, Column, Section, Table, numbers};
use punctual_lab::report::text::{Screen, page};
use punctual_lab::report::{parts, parts::tail_cells};
use punctual_lab::run::{RunError, Turns, cut_short};
use punctual_lab::sample::{CellId, Load};
use punctual_lab::store::{Header, Run, Store};
use punctual_lab::summary::Summary;
use serde_json::json;

/// Payloads, bytes: the plan.
const SIZES: [usize; 3] = [64, 512, 4096];
/// Messages of each trial, after those of its warm-up.
const MESSAGES: usize = 200;
const WARMUP: usize = 20;
const WAKE: Wake = Wake::Futex;

/// The endpoint that each end opens for a trial: two nodes of one process.
fn endpoint(size: usize) -> EndpointPlan {
    EndpointPlan { kept: true, ..EndpointPlan::new(None, Stack::Communicator, WAKE, size) }
}

/// The messages that the client sends.
fn trial(size: usize) -> Trial {
    Trial {
        load: Load::Closed,
        gap: Duration::ZERO,
        size,
        duration: Duration::from_secs(10),
        count_max: MESSAGES,
        warmup: Warmup { burst: 0, paced: WARMUP },
        neighbours: [None; 2],
        is_traced: false,
    }
}

/// Where the samples of a size belong.
fn cell(size: usize) -> CellId {
    CellId { size, ..CellId::new("loopback", WAKE.name()) }
}

/// Makes all trials in turn; each is in the store before the next.
fn run(rounds: u32, store: &mut Store, bar: &ProgressBar) -> Result<Summary, RunError> {
    let mut testbed = Testbed::start(Addresses::new("sizes")?, Place::Process, [None; 2])?;
    let (clock, start) = (Clock::get(), Clock::get().now());
    let mut skipped = Vec::new();
    let turns = Turns::new(rounds, SIZES.len(), bar);
    let name = |&size: &usize| cell(size).to_string();
    let made = turns.all(&SIZES, name, &mut skipped, |&size, round, _| {
        let made = testbed.make(&endpoint(size), &trial(size))?;
        let mut samples = made.recording.round_trips(clock, start, 0, false);
        made.note(&mut samples.facts, &cell(size).to_string());
        store.append(&cell(size), round, &samples)?;
        Ok(true)
    })?;
    let mut summary = store.summary()?;
    cut_short(&mut summary, made);
    summary.skipped.extend(skipped);
    summary.more.insert("sizes".to_owned(), json!({ "ns_per_byte": ns_per_byte(&summary) }));
    Ok(summary)
}

/// The analysis: cost of one byte, by the medians of the shortest and of the longest.
fn ns_per_byte(summary: &Summary) -> Option<f64> {
    let median = |size: usize| summary.results.iter().find(|result| result.cell.size == size)?.figures.p50;
    let [short, .., long] = SIZES;
    Some((median(long)? as f64 - median(short)? as f64) / (long - short) as f64)
}

/// Sections that are shown on a terminal and on the page.
fn sections(summary: &Summary) -> Vec<Section> {
    let mut columns = vec![Column::name("bytes")];
    columns.extend(numbers(["p50", "p90", "p99"]));
    let mut table = Table::new(columns);
    for result in &summary.results {
        let [p50, p90, p99, ..] = tail_cells(result);
        table.row([Cell::from(result.cell.size.to_string()), p50, p90, p99]);
    }
    let byte = summary.more["sizes"]["ns_per_byte"].as_f64();
    let words =
        byte.map_or_else(String::new, |ns| format!("Each further byte takes {ns:.2} ns there and back."));
    let section = Section::new("Round trips by size").about("closed load without a gap, µs");
    [section.table(table).words(words)].into_iter().chain(parts::rest(summary)).collect()
}

/// Goal: that is all that an experiment needs. Method: it runs; another reader of its store gets the same summary and says the same.
#[test]
fn an_experiment_of_a_hundred_lines_is_one() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let header = Header { warmup: WARMUP as u64, ..Header::new("sizes") };
    let mut store = Store::create(Some(&folder.path().join("run")), &header).expect("room");
    let summary = run(2, &mut store, &ProgressBar::hidden()).expect("two rounds");
    assert_eq!(summary.results.len(), SIZES.len(), "{:?}", summary.skipped);
    for (result, size) in summary.results.iter().zip(SIZES) {
        assert_eq!((result.cell.size, result.trials, result.lost), (size, 2, 0));
        assert_eq!(result.figures.count, 2 * MESSAGES as u64);
    }
    let said = page(&sections(&summary), Screen::default());
    assert!(said.contains("Round trips by size") && said.contains("4096"), "{said}");
    let path = store.finish(&summary).expect("room");
    let again = Run::open(&path).and_then(|run| run.summarise()).expect("a run");
    assert_eq!(page(&sections(&again), Screen::default()), said);
}
