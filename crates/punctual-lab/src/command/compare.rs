//! `punctual compare`.

use std::cell::{Ref, RefCell};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::interleave::{MadeRuns, Turns, play};
use super::{as_text, print, try_json, write_json};
use crate::compare::{Calibration, Order, RunComparison, Tally, compare_runs, history_of, order_of};
use crate::error::Failure;
use crate::file::resolved;
use crate::report::parts;
use crate::report::section::{Cell, Column, Section, Table, numbers};
use crate::report::text::{self, Screen};
use crate::sample::CellId;
use crate::store::{Run, StoreError};
use crate::units::percent;

/// Options of the comparison.
#[derive(Debug, Args)]
pub struct CompareArguments {
    /// Runs to compare with: one, several between commas, or a folder of runs
    pub a: OsString,
    /// Runs to compare: the same
    pub b: OsString,
    /// Make the runs first: A and B are commands that measure, run in turn
    #[arg(long)]
    pub interleave: bool,
    /// Pairs of runs to be made, 5 to 1000 [default: as many as find 10 % more of the median, at most 40]
    #[arg(long, value_name = "N", requires = "interleave", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(5..=1_000))]
    pub pairs: Option<usize>,
    /// Directory of the runs that are made [default: runs/TIME-compare/]
    #[arg(long, value_name = "DIR", requires = "interleave")]
    pub out: Option<PathBuf>,
    /// Other runs of this host, for how far runs lie apart [default: beside A and B]
    #[arg(long, value_name = "DIR", conflicts_with = "interleave")]
    pub history: Vec<PathBuf>,
    /// Write the comparison as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The value of `schema` in what `--json` writes.
const SCHEMA: &str = "punctual.comparison.v1";

/// Compares two sides of runs, cell by cell; with `--interleave` it first has them made, in turn.
pub fn compare(arguments: &CompareArguments) -> Result<(), Failure> {
    try_json(arguments.json.as_deref())?;
    if arguments.interleave { compare_in_turn(arguments) } else { compare_found(arguments) }
}

/// Compares runs that are there.
fn compare_found(arguments: &CompareArguments) -> Result<(), Failure> {
    let [a, b] = [named(&arguments.a)?, named(&arguments.b)?];
    let (runs_a, runs_b) = (open(&a)?, open(&b)?);
    check_common(&runs_a, &runs_b)?;
    let order = order_of(&runs_a, &runs_b);
    let history = if order == Order::Separate { history(arguments, &runs_a, &runs_b)? } else { Vec::new() };
    let comparison = compare_runs(&runs_a, &runs_b, &history, order)?;
    show(&comparison, [&a, &b], arguments)
}

/// Has the runs made, and compares them.
fn compare_in_turn(arguments: &CompareArguments) -> Result<(), Failure> {
    let opened = Opened::default();
    let compared = |made: &MadeRuns| {
        let [a, b] = &*opened.with(made)?;
        check_common(a, b)?;
        Ok::<_, Failure>(compare_runs(a, b, &[], Order::Interleaved)?)
    };
    let played = play(&Turns {
        commands: [command(&arguments.a)?, command(&arguments.b)?],
        pairs: arguments.pairs,
        out: arguments.out.as_deref(),
        name: "compare",
        wanted: &|made| Ok(compared(made)?.pairs_wanted()),
        check: &|made| {
            let [a, b] = &*opened.with(made)?;
            check_common(a, b)
        },
        held: &|_| Ok(None),
    })?;
    let [a, b] = &played.made;
    let mut comparison = compared(&played.made)?;
    comparison.doubts.extend(played.doubts());
    show(&comparison, [a, b], arguments)?;
    played.end()
}

/// A command is read by the shell, as text.
fn command(side: &OsStr) -> Result<&str, Failure> {
    let text = || format!("{}: a command is UTF-8", side.display());
    side.to_str().ok_or_else(|| Failure::Usage(text()))
}

/// Runs in turn that were opened so far, each once: to open a run decodes all of its samples. They stay in the order in which they were
/// made, so that the runs of a pair stay together although somebody sets the wall clock.
#[derive(Default)]
struct Opened(RefCell<[Vec<Run>; 2]>);

impl Opened {
    /// With those that were made since.
    fn with(&self, made: &MadeRuns) -> Result<Ref<'_, [Vec<Run>; 2]>, StoreError> {
        for (runs, paths) in self.0.borrow_mut().iter_mut().zip(made) {
            for path in paths.iter().skip(runs.len()) {
                runs.push(Run::open(path)?);
            }
        }
        Ok(self.0.borrow())
    }
}

/// Checks that some cell is in all runs.
fn check_common(a: &[Run], b: &[Run]) -> Result<(), Failure> {
    let is_everywhere = |cell: &CellId| a.iter().chain(b).all(|run| run.trials_of(cell).next().is_some());
    if a.iter().flat_map(Run::cells).any(|cell| is_everywhere(&cell)) {
        return Ok(());
    }
    Err(Failure::Usage(nothing_common(a.iter().chain(b))))
}

/// Why no cell is in all runs: a run whose samples are gone measured something that nobody knows any more.
fn nothing_common<'a>(mut runs: impl Iterator<Item = &'a Run>) -> String {
    match runs.find(|run| run.trials.is_empty() && !run.doubts.is_empty()) {
        Some(run) => {
            let reasons: Vec<&str> = run.doubts.iter().map(|doubt| doubt.what.as_str()).collect();
            format!("{}: no samples can be read: {}", run.path.display(), reasons.join("; "))
        }
        None => "the runs have measured nothing in common".to_owned(),
    }
}

fn show(
    comparison: &RunComparison,
    runs: [&[PathBuf]; 2],
    arguments: &CompareArguments,
) -> Result<(), Failure> {
    let [a, b] = runs.map(as_text);
    let value = json!({ "schema": SCHEMA, "a": a, "b": b, "comparison": comparison });
    if write_json(arguments.json.as_deref(), &format!("{value:#}\n"))? {
        return Ok(());
    }
    print(&text::page(&parts::run_comparison(comparison), Screen::stdout()))
}

/// The user's entry for one side: runs, or folders of runs, separated by commas. Each run counts once, however often it is named.
fn named(side: &OsStr) -> Result<Vec<PathBuf>, Failure> {
    // A comma may be part of a name.
    let is_one = Path::new(side).exists();
    let bytes = side.as_bytes().split(|&byte| byte == b',' && !is_one);
    let parts: Vec<&OsStr> = bytes.map(OsStr::from_bytes).collect();
    let mut runs = Vec::new();
    for part in parts {
        runs.extend(runs_in(Path::new(part)).unwrap_or_else(|| vec![PathBuf::from(part)]));
    }
    let mut seen = HashSet::new();
    runs.retain(|run| seen.insert(resolved(run)));
    Ok(runs)
}

/// The runs in a folder that is none itself, by name.
fn runs_in(folder: &Path) -> Option<Vec<PathBuf>> {
    let is_run = |path: &Path| path.join("run.json").is_file();
    if is_run(folder) {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?;
    let mut runs: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_run(path)).collect();
    runs.sort();
    (!runs.is_empty()).then_some(runs)
}

fn open(paths: &[PathBuf]) -> Result<Vec<Run>, Failure> {
    let mut runs = paths.iter().map(|path| Run::open(path)).collect::<Result<Vec<Run>, StoreError>>()?;
    runs.sort_by(|one, other| one.header.started.cmp(&other.header.started));
    Ok(runs)
}

/// Other runs of the same thing, in the folders that were named, or where the runs lie.
fn history(arguments: &CompareArguments, a: &[Run], b: &[Run]) -> Result<Vec<Run>, Failure> {
    let mut folders = arguments.history.clone();
    for folder in &folders {
        std::fs::read_dir(folder)
            .map_err(|error| Failure::Usage(format!("--history {}: {error}", folder.display())))?;
    }
    if folders.is_empty() {
        folders.extend(
            a.iter().chain(b).filter_map(|run| run.path.canonicalize().ok()?.parent().map(Path::to_owned)),
        );
        folders.sort();
        folders.dedup();
    }
    Ok(history_of(&a.iter().chain(b).collect::<Vec<_>>(), &folders))
}

/// Comparisons of each form; a cell of each is one comparison. As many as 26 runs have pairs.
const DRAWS: u64 = 325;

/// Compares identical runs with each other, and with copies of themselves that are slower by a known part.
pub fn calibrate(runs: &str) -> Result<(), Failure> {
    let runs = open(&named(OsStr::new(runs))?)?;
    let calibration = Calibration::of(&runs)?;
    let count = calibration.runs();
    if count < 4 {
        return Err(Failure::Usage(format!(
            "{count} runs are too few to compare them with each other: at least 4"
        )));
    }
    let mut columns = vec![Column::prose("runs that are the same")];
    columns.extend(numbers(["cells", "differ", "narrow ones", "+10 %", "+30 %"]));
    let mut table = Table::new(columns);
    let mut line = |name: &str, tally: &dyn Fn(f64) -> Tally| {
        let [same, tenth, third] = [1.0, 1.1, 1.3].map(tally);
        let part = |of: u64, all: u64| match all {
            // None of none is no share.
            0 => "no such cell".to_owned(),
            _ => format!("{of} ({})", percent(of as f64 / all as f64)),
        };
        let found = |tally: Tally| Cell::from(percent(tally.differ as f64 / tally.cells.max(1) as f64));
        table.row([
            name.into(),
            same.cells.to_string().into(),
            part(same.differ, same.cells).into(),
            part(same.narrow_differ, same.narrow).into(),
            found(tenth),
            found(third),
        ]);
    };
    line("two runs alone", &|factor| calibration.two_runs(DRAWS, factor));
    if count >= 7 {
        line("two runs with a history", &|factor| calibration.two_runs_and_history(DRAWS, factor));
    }
    for side in [3, 5].into_iter().filter(|side| 2 * side <= count) {
        line(&format!("{side} runs a side"), &|factor| calibration.sides_of(side, DRAWS, factor));
    }
    for pairs in [5, 6, 7, 8, 10, 12].into_iter().filter(|pairs| 2 * pairs <= count) {
        line(&format!("{pairs} pairs in turn"), &|factor| calibration.in_turn(pairs, DRAWS, factor));
    }
    line("as many pairs in turn as are wanted", &|factor| calibration.in_turn_as_wanted(DRAWS, factor));
    let section = Section::new("How often compare errs here").table(table);
    print(&text::page(&[section], Screen::stdout()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doubt::Cause;
    use crate::sample::{Outcome, Samples};
    use crate::store::{Header, Store};

    /// Goal: a run is one sample, however it is named: by its folder, beside it, by a link, twice.
    #[test]
    fn a_run_counts_once() {
        let folder = tempfile::tempdir().expect("room");
        let runs = folder.path().join("runs");
        for name in ["one", "two"] {
            std::fs::create_dir_all(runs.join(name)).expect("room");
            std::fs::write(runs.join(name).join("run.json"), "{}").expect("room");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(runs.join("two"), &link).expect("room");
        let (runs_text, link_text) = (runs.display(), link.display());
        let side = format!("{link_text},{runs_text},{runs_text}/two/../one,{runs_text}/two");
        assert_eq!(named(OsStr::new(&side)).expect("it is there"), [link, runs.join("one")]);
    }

    /// Goal: a run is named by any bytes that a file system takes; a command is text.
    #[test]
    fn names_of_any_bytes_are_taken() {
        let folder = tempfile::tempdir().expect("room");
        let run = folder.path().join(OsStr::from_bytes(b"run-\xff"));
        std::fs::create_dir_all(&run).expect("room");
        assert_eq!(named(run.as_os_str()).expect("it is there"), std::slice::from_ref(&run));
        assert!(command(run.as_os_str()).is_err_and(|error| error.to_string().contains("UTF-8")));
        assert_eq!(command(OsStr::new("punctual survey")).expect("text"), "punctual survey");
    }

    /// Goal: a run whose samples are gone is named, and is not said to have measured nothing in common.
    #[test]
    fn samples_that_are_gone_are_named() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("run");
        Store::import(Some(&path), &Header::new("survey")).expect("room");
        let mut run = Run::open(&path).expect("a run");
        assert!(nothing_common([&run].into_iter()).contains("nothing in common"));
        let file = "7 of 7 files of samples".to_owned();
        run.doubts.push(Cause::TrialUnreadable { file, reason: "not there any more".to_owned() }.into());
        assert!(nothing_common([&run].into_iter()).contains("no samples can be read: 7 of 7"));
    }

    /// Goal: runs in turn stay with their partners though somebody set the wall clock back, and each is decoded once. Method: the files
    /// of the first are gone when the second is there.
    #[test]
    fn runs_in_turn_stay_in_their_order() {
        let folder = tempfile::tempdir().expect("room");
        let make = |name: &str, started: &str| {
            let path = folder.path().join(name);
            let header = Header { started: started.to_owned(), ..Header::new("survey") };
            let mut store = Store::import(Some(&path), &header).expect("room");
            let mut samples = Samples::default();
            samples.push(0, 0, 0, 500, Outcome::Answered);
            store.append(&CellId::new("shared", "spin"), 0, &samples).expect("room");
            path
        };
        let opened = Opened::default();
        let mut made: MadeRuns =
            [vec![make("a1", "2026-11-22T09:00:00Z")], vec![make("b1", "2026-11-22T09:00:01Z")]];
        assert_eq!(opened.with(&made).expect("they are there").each_ref().map(Vec::len), [1, 1]);
        for path in made.iter().flatten() {
            std::fs::remove_dir_all(path).expect("it is there");
        }
        made[0].push(make("a2", "2026-11-22T08:00:01Z"));
        made[1].push(make("b2", "2026-11-22T08:00:00Z"));
        let runs = opened.with(&made).expect("those before are known");
        for (runs, paths) in runs.iter().zip(&made) {
            let in_order: Vec<&PathBuf> = runs.iter().map(|run| &run.path).collect();
            assert_eq!(in_order, paths.iter().collect::<Vec<_>>());
        }
    }
}
