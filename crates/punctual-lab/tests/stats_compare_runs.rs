//! Two runs taken at different times: what is equal, what differs, and what is doubtful about it.

mod plausible;

use punctual_lab::compare::{Difference, compare_runs};
use punctual_lab::sample::{CellId, Outcome, Samples};
use punctual_lab::store::{Header, Run, Store};
use punctual_lab::table::{Style, run_comparison};

fn run(path: &std::path::Path, kernel: &str, cells: &[(&str, u64)]) -> Run {
    let mut header = Header { warmup: 10, ..Header::new("survey") };
    kernel.clone_into(&mut header.host.kernel);
    header.clock.step_ns = 1;
    let mut store = Store::create(Some(path), &header).expect("an empty directory");
    for trial in 0..5 {
        for &(wake, median_ns) in cells {
            let mut samples = Samples::default();
            for index in 0..1500 {
                let total_ns = median_ns + (index * 7919 + u64::from(trial) * 13) % (median_ns / 10);
                samples.push(index, index * 100_000, index * 100_000, total_ns, Outcome::Answered);
            }
            store.append(&CellId::new("shared", wake), trial, &samples).expect("room");
        }
    }
    Run::open(path).expect("a run")
}

#[test]
fn cells_are_matched_by_what_they_are() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let a = run(&directory.path().join("a"), "6.1", &[("spin", 1000), ("futex", 9000), ("signal", 9000)]);
    let b = run(&directory.path().join("b"), "6.2", &[("epoll", 9000), ("futex", 6000), ("spin", 1000)]);
    let runs = compare_runs(&a, &b).expect("readable");
    let verdicts: Vec<(&str, Difference)> =
        runs.cells.iter().map(|c| (c.cell.wake.as_str(), c.comparison.measures[0].difference)).collect();
    assert_eq!(verdicts, [("spin", Difference::None), ("futex", Difference::Faster)]);
    let doubts: Vec<&str> = runs.doubts.iter().map(|d| d.what.as_str()).collect();
    for doubt in ["different times", "2 cells exist in one", "kernel 6.1 against 6.2"] {
        assert!(doubts.iter().any(|d| d.contains(doubt)), "{doubt}: {doubts:?}");
    }
    let text = run_comparison(&runs, Style::default());
    assert!(text.contains("1 of 2 cells differ") && text.contains("faster"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
}

#[test]
fn a_run_equals_itself() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = plausible::run(&directory.path().join("run"), &[0], 5, 1500);
    let runs = compare_runs(&run, &run).expect("readable");
    assert_eq!(runs.cells.len(), 30);
    assert!(runs.cells.iter().all(|cell| !cell.comparison.differs()));
}
