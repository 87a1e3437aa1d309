//! Two runs taken at different times: their equal properties, their differences, and the doubts about the comparison.

mod plausible;

use std::path::PathBuf;
use std::slice::from_ref;

use punctual_lab::compare::{Basis, Difference, Order, compare_runs, history_of, order_of};
use punctual_lab::doubt::{Cause, Doubt};
use punctual_lab::report::parts::run_comparison;
use punctual_lab::report::text::{Screen, page};
use punctual_lab::sample::{CellId, Kind, Outcome, Samples};
use punctual_lab::store::{Header, Run, Store};
use punctual_lab::summary::Skipped;

fn run(path: &std::path::Path, kernel: &str, cells: &[(&str, u64)]) -> Run {
    started(path, kernel, cells, "2026-11-22T08:00:00Z")
}

fn started(path: &std::path::Path, kernel: &str, cells: &[(&str, u64)], at: &str) -> Run {
    let mut header = Header { warmup: 10, started: at.to_owned(), ..Header::new("survey") };
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
    let summary = store.summary().expect("readable");
    store.finish(&summary).expect("room");
    Run::open(path).expect("a run")
}

#[test]
fn cells_are_matched_by_what_they_are() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let a = run(&directory.path().join("a"), "6.1", &[("spin", 1000), ("futex", 9000), ("signal", 9000)]);
    let b = run(&directory.path().join("b"), "6.2", &[("epoll", 9000), ("futex", 4000), ("spin", 1000)]);
    let runs = compare_runs(from_ref(&a), from_ref(&b), &[], Order::Separate).expect("readable");
    let verdicts: Vec<(&str, Difference)> =
        runs.cells.iter().map(|c| (c.cell.wake.as_str(), c.comparison.measures[0].difference)).collect();
    assert_eq!(verdicts, [("spin", Difference::None), ("futex", Difference::Faster)]);
    let doubts: Vec<&str> = runs.doubts.iter().map(|d| d.what.as_str()).collect();
    for doubt in ["different times", "2 cells exist in some", "kernel 6.1 against 6.2"] {
        assert!(doubts.iter().any(|d| d.contains(doubt)), "{doubt}: {doubts:?}");
    }
    let text = page(&run_comparison(&runs), Screen::default());
    assert!(text.contains("1 of 2 cells differ") && text.contains("faster"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// Goal: messages that came twice or out of order on one side are told of a cell that does not differ, and so is not shown.
#[test]
fn doubled_messages_of_a_cell_without_difference_are_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let of = |name: &str, duplicated: u64, reordered: u64| {
        let path = directory.path().join(name);
        let mut store = Store::create(Some(&path), &Header::new("survey")).expect("an empty directory");
        let mut samples = Samples::default();
        (0..100).for_each(|index| samples.push(index, index * 1_000, index * 1_000, 500, Outcome::Answered));
        (samples.facts.duplicated, samples.facts.reordered) = (duplicated, reordered);
        store.append(&CellId::new("shared", "spin"), 0, &samples).expect("room");
        let summary = store.summary().expect("readable");
        store.finish(&summary).expect("room");
        Run::open(&path).expect("a run")
    };
    let (a, b) = (of("a", 0, 0), of("b", 3, 2));
    let runs = compare_runs(from_ref(&a), from_ref(&b), &[], Order::Separate).expect("readable");
    assert_eq!(runs.differing(), 0);
    let told: Vec<&str> = runs.doubts.iter().map(|doubt| doubt.what.as_str()).collect();
    for words in ["B: 3 messages arrived once more", "B: 2 messages arrived after a younger one"] {
        assert!(
            told.iter().any(|doubt| doubt.starts_with("shared/spin") && doubt.ends_with(words)),
            "{told:?}"
        );
    }
    assert!(!told.iter().any(|doubt| doubt.contains(", A: ")), "{told:?}");
}

/// Goal: few pairs, losses and the lack of any verdict are told of cells that do not differ, and so are not shown.
#[test]
fn cells_without_difference_tell_what_they_lack() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let made = |name: &str, lost: u64| {
        let path = directory.path().join(name);
        let mut store = Store::create(Some(&path), &Header::new("survey")).expect("an empty directory");
        let mut samples = Samples::default();
        for index in 0..1_500 {
            let outcome = if index < lost { Outcome::Lost } else { Outcome::Answered };
            samples.push(index + 1, index * 1_000, index * 1_000, 500 + index % 50, outcome);
        }
        let trip = CellId::new("shared", "spin");
        store.append(&trip, 0, &samples).expect("room");
        // A message that is lost on its way is lost once.
        store.append(&CellId { kind: Kind::OneWay, ..trip }, 0, &samples).expect("room");
        let summary = store.summary().expect("readable");
        store.finish(&summary).expect("room");
        Run::open(&path).expect("a run")
    };
    let (a, b) = ([made("a1", 2), made("a2", 0)], [made("b1", 0), made("b2", 2)]);
    let said = |pairs: usize| {
        let runs = compare_runs(&a[..pairs], &b[..pairs], &[], Order::Interleaved).expect("readable");
        assert_eq!(runs.differing(), 0);
        // A line may end between any two words.
        let page = page(&run_comparison(&runs), Screen::default());
        page.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let two = said(2);
    assert!(two.contains("2 pairs of runs where 5 are needed"), "{two}");
    assert!(two.contains("Cells that do not differ: A lost 2, B lost 2."), "{two}");
    let one = said(1);
    assert!(one.contains("1 pair of runs where 5 are needed"), "{one}");
    assert!(one.contains("Nothing can be said of 2 cells"), "{one}");
    assert!(!two.contains("Nothing can be said"), "{two}");
}

#[test]
fn a_run_equals_itself() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = plausible::run(&directory.path().join("run"), &[0], 5, 1500);
    let runs = compare_runs(from_ref(&run), from_ref(&run), &[], Order::Separate).expect("readable");
    assert_eq!(runs.cells.len(), 30);
    assert!(runs.cells.iter().all(|cell| !cell.comparison.differs()));
    assert!(runs.doubts.iter().any(|doubt| doubt.what.contains("on both sides")), "{:?}", runs.doubts);
    // The same run by another name is no other run.
    std::os::unix::fs::symlink(&run.path, directory.path().join("link")).expect("room");
    let link = Run::open(&directory.path().join("link")).expect("a run");
    let by_name = compare_runs(from_ref(&run), from_ref(&link), &[], Order::Separate).expect("readable");
    assert!(by_name.doubts.iter().any(|doubt| doubt.what.contains("on both sides")), "{:?}", by_name.doubts);
    let copy = plausible::run(&directory.path().join("copy"), &[0], 5, 1500);
    let runs = compare_runs(from_ref(&run), from_ref(&copy), &[], Order::Separate).expect("readable");
    assert!(!runs.doubts.iter().any(|doubt| doubt.what.contains("on both sides")), "{:?}", runs.doubts);
}

/// Goal: the usual distance between runs is looked up where runs of the same thing lie, and nowhere else.
#[test]
fn the_hosts_history_says_how_far_runs_lie_apart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let a = run(&path("a"), "6.1", &[("spin", 10_000)]);
    let b = run(&path("b"), "6.1", &[("spin", 13_000)]);
    let _of_another_kernel = run(&path("other"), "6.2", &[("spin", 10_000)]);
    let folders = [directory.path().to_owned()];
    assert!(history_of(&[&a, &b], &folders).is_empty());
    let judge = || {
        let history = history_of(&[&a, &b], &folders);
        compare_runs(from_ref(&a), from_ref(&b), &history, Order::Separate).expect("readable")
    };
    let alone = judge();
    assert!(alone.runs == [1, 1, 0] && alone.cells[0].comparison.basis == Basis::Bound, "{alone:?}");
    assert_eq!(alone.differing(), 0);
    assert!(alone.doubts.iter().any(|doubt| doubt.what.contains("unknown")), "{:?}", alone.doubts);
    for (number, median) in [10_000, 10_100, 9_900, 10_050, 9_950].into_iter().enumerate() {
        run(&path(&format!("steady{number}")), "6.1", &[("spin", median)]);
    }
    let known = judge();
    assert_eq!((known.runs, known.differing()), ([1, 1, 5], 1), "{known:?}");
    assert_eq!(known.cells[0].comparison.basis, Basis::Runs(4));
    for (number, median) in [8_000, 13_000, 9_000, 12_000, 14_000].into_iter().enumerate() {
        run(&path(&format!("restless{number}")), "6.1", &[("spin", median)]);
    }
    assert_eq!(judge().differing(), 0, "runs lie further apart than these two");
}

/// Goal: a run that lacks something says nothing of how far runs lie apart, and takes no place of one that does. Method: as many newer
/// runs as are looked at were ended by Ctrl-C, which leaves a summary that says so.
#[test]
fn only_whole_runs_are_history() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let a = run(&path("a"), "6.1", &[("spin", 10_000)]);
    let whole = run(&path("whole"), "6.1", &[("spin", 10_000)]);
    for number in 0..20 {
        let path = path(&format!("cut{number}"));
        let cut = started(&path, "6.1", &[("spin", 10_000)], &format!("2026-11-22T09:00:{number:02}Z"));
        let mut summary = cut.summary.expect("finished");
        summary.doubt(Cause::CutShort { trials: 5 });
        std::fs::write(path.join("summary.json"), summary.to_json()).expect("room");
    }
    let found = history_of(&[&a], &[directory.path().to_owned()]);
    let paths: Vec<PathBuf> = found.into_iter().map(|run| run.path).collect();
    assert_eq!(paths, [whole.path.canonicalize().expect("it is there")]);
}

#[test]
fn runs_in_turn_are_known_by_their_starts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let runs = |name: &str, minutes: &[u32]| -> Vec<Run> {
        let run = |&minute: &u32| {
            let at = format!("2026-11-22T08:{minute:02}:00Z");
            started(&directory.path().join(format!("{name}{minute}")), "6.1", &[("spin", 1000)], &at)
        };
        minutes.iter().map(run).collect()
    };
    let (a, b) = (runs("a", &[0, 3, 4]), runs("b", &[1, 2, 5]));
    assert_eq!(order_of(&a, &b), Order::Interleaved);
    assert_eq!(order_of(&a, &runs("late", &[6, 7, 8])), Order::Separate);
    assert_eq!(order_of(&a, &b[..2]), Order::Separate);
    assert_eq!(order_of(&a[..1], &b[..1]), Order::Separate, "one pair is no turn");
}

/// Goal: samples that cannot be read, and trials that were never made, are told with the run that lacks them.
#[test]
fn samples_that_a_run_lacks_are_doubted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let [a, b] = ["a", "b"].map(|name| run(&path(name), "6.1", &[("spin", 1000)]));
    let whole = compare_runs(from_ref(&a), from_ref(&b), &[], Order::Separate).expect("readable");
    let says = |doubts: &[Doubt], words: &str| doubts.iter().any(|doubt| doubt.what.contains(words));
    assert!(
        !says(&whole.doubts, "cut short") && !says(&whole.doubts, "cannot be read"),
        "{:?}",
        whole.doubts
    );
    std::fs::remove_file(path("a").join("summary.json")).expect("it is there");
    std::fs::write(&b.trials[1].path, "half of a trial").expect("room");
    let [a, b] = ["a", "b"].map(|name| Run::open(&path(name)).expect("a run"));
    let damaged = compare_runs(from_ref(&a), from_ref(&b), &[], Order::Separate).expect("readable");
    for (name, words) in [("a", "cut short after 5 trials"), ("b", "cannot be read")] {
        let of_run = |doubt: &&Doubt| doubt.what.starts_with(&path(name).display().to_string());
        let told: Vec<Doubt> = damaged.doubts.iter().filter(of_run).cloned().collect();
        assert!(told.len() == 1 && says(&told, words), "{name}: {:?}", damaged.doubts);
    }
}

/// Goal: a run that ended early is reported, and so are cells that it skipped and the other has. Cells that both skipped are no
/// difference.
#[test]
fn cells_that_one_run_left_out_are_doubted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let skip = |what: &str| Skipped { what: what.to_owned(), reason: "no root".to_owned() };
    let [mut a, mut b] = ["a", "b"].map(|name| run(&path(name), "6.1", &[("spin", 1000)]));
    let summary = a.summary.as_mut().expect("finished");
    summary.doubt(Cause::Ended { reason: "the far end left".to_owned() });
    summary.skipped = vec![skip("packet"), skip("spin, from round 3 on")];
    b.summary.as_mut().expect("finished").skipped = vec![skip("packet")];
    let runs = compare_runs(from_ref(&a), from_ref(&b), &[], Order::Separate).expect("readable");
    let told = |words: &str| runs.doubts.iter().filter(|doubt| doubt.what.contains(words)).count();
    let of_a = format!("{}: ", path("a").display());
    assert_eq!(told(&format!("{of_a}the run ended early: the far end left")), 1, "{:?}", runs.doubts);
    assert_eq!(told(&format!("{of_a}not measured: spin, from round 3 on: no root")), 1, "{:?}", runs.doubts);
    assert_eq!(told("packet"), 0, "{:?}", runs.doubts);
}

/// Goal: runs of one side that are of different hosts are told, too, and hosts that differ in processors alone.
#[test]
fn every_run_is_of_the_same_host() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let [first, other] =
        [("a1", "6.1"), ("a2", "6.2")].map(|(name, kernel)| run(&path(name), kernel, &[("spin", 1000)]));
    let mut b = run(&path("b"), "6.1", &[("spin", 1000)]);
    b.header.host.cpus += 2;
    let runs = compare_runs(&[first, other], from_ref(&b), &[], Order::Separate).expect("readable");
    let doubts: Vec<&str> = runs.doubts.iter().map(|doubt| doubt.what.as_str()).collect();
    for doubt in ["kernel 6.1 against 6.2", "processors 0 against 2"] {
        assert!(doubts.iter().any(|told| told.contains(doubt)), "{doubt}: {doubts:?}");
    }
}
