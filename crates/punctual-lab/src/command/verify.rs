//! `punctual verify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::interleave::{MadeRuns, Turns, once, play};
use super::measure::verdict_first;
use super::{as_text, print, try_json, write_json};
use crate::compare::{Order, PAIRS_MIN, RunComparison, compare_runs};
use crate::error::Failure;
use crate::peel::analysis::GROWN_MIN;
use crate::peel::overview;
use crate::report::parts;
use crate::report::section::Section;
use crate::report::text::{self, Screen};
use crate::sample::CellId;
use crate::store::{Run, StoreError};
use crate::units::duration;
use crate::verify::again::Again;
use crate::verify::fix::Fix;
use crate::verify::outlier::{Outlier, outliers, sections};
use crate::verify::start;

/// Options of the verification.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The run that is made again: a survey, or one of run response, run vehicles or run peel
    run: PathBuf,
    /// Fix to try: pin, class, nice, slice, wake=WAY, sigio-off, prefault, prime, bind-now, untrace, buffers, awake, quota
    #[arg(long, value_name = "FIX")]
    fix: Fix,
    /// Pairs of runs, without it and with it, 5 to 1000 [default: 5; of starts 8]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(5..=1_000))]
    pairs: Option<usize>,
    /// Time of each run [default: 4s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Record who ran on each processor, so that more causes are named (root)
    #[arg(long)]
    trace: bool,
    /// Directory of the runs, new or empty [default: runs/TIME-verify/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the verdict as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Of each run, if nothing else was asked for.
const DURATION: Duration = Duration::from_secs(4);

/// The value of `schema` in what `--json` writes.
const SCHEMA: &str = "punctual.verify.v1";

/// Makes runs without the fix and with it, in turn, and says what differs and who is late only with it.
pub fn verify(arguments: &VerifyArguments) -> Result<(), Failure> {
    let run = Run::open(&arguments.run)?;
    let shown = arguments.run.display();
    let unusable = |reason: String| Failure::Usage(format!("{shown}: {reason}"));
    let fix = &arguments.fix;
    if run.header.experiment == "peel" {
        if arguments.trace || arguments.duration.is_some() {
            let text = "--trace, --duration: not of a run of peel, whose starts last as long as they do and are not traced";
            return Err(unusable(text.to_owned()));
        }
        // Fewer do not tell what the fix makes worse.
        let starts = arguments.pairs.unwrap_or(GROWN_MIN);
        return of_starts(&start::command(&run, fix, starts).map_err(unusable)?, arguments);
    }
    let pairs = arguments.pairs.unwrap_or(PAIRS_MIN);
    let lasts = arguments.duration.unwrap_or(DURATION);
    let again = Again::of(&run, lasts, arguments.trace).map_err(unusable)?;
    let again = fix.missing(again).map_err(unusable)?;
    let with = fix.applied(&again).map_err(|reason| Failure::Usage(format!("--fix: {reason}")))?;
    // The change of the host is tried now, and taken back.
    drop(fix.hold().map_err(Failure::Machine)?);
    try_json(arguments.json.as_deref())?;
    let played = play(&Turns {
        commands: [&again.command(), &with.command()],
        pairs: Some(pairs),
        out: arguments.out.as_deref(),
        name: "verify",
        wanted: &|_| Ok(pairs),
        check: &|made| compared(made, fix).map(drop),
        held: &|side| if side == 1 { fix.hold().map_err(Failure::Machine) } else { Ok(None) },
    })?;
    let (mut comparison, [a, b]) = compared(&played.made, fix)?;
    comparison.doubts.extend(played.doubts());
    let mut notes = Vec::new();
    let outliers = outliers(&a, &b, &mut notes)?;
    show(&comparison, (&outliers, &notes), &played.made, arguments)?;
    played.end()
}

/// The comparison of these runs, and the runs.
fn compared(made: &MadeRuns, fix: &Fix) -> Result<(RunComparison, [Vec<Run>; 2]), Failure> {
    let [a, mut b] = [open(&made[0])?, open(&made[1])?];
    call_alike(&a, &mut b, fix);
    let comparison = compare_runs(&a, &b, &[], Order::Interleaved)?;
    if comparison.cells.is_empty() {
        let text = format!("nothing was measured with the fix: {}", fix.words());
        return Err(Failure::Machine(text));
    }
    Ok((comparison, [a, b]))
}

/// Tries a fix against the mistakes of starts. They alternate inside of one run.
fn of_starts(command: &str, arguments: &VerifyArguments) -> Result<(), Failure> {
    try_json(arguments.json.as_deref())?;
    let (path, broken) = once(command, arguments.out.as_deref(), "verify")?;
    let made = Run::open(&path)?;
    let all = made.summary.as_ref().and_then(overview::overall).unwrap_or_default();
    let section = overview::fixes(&all);
    let Some(section) = section else {
        let mut reasons = Vec::new();
        if let Some(summary) = &made.summary {
            reasons.extend(summary.skipped.iter().map(|one| format!("{}: {}", one.what, one.reason)));
            reasons.extend(summary.doubts.iter().map(|doubt| doubt.what.clone()));
        }
        let nothing = Failure::Machine(format!("the fix has no verdict. {}", reasons.join("; ")));
        return verdict_first(Err(nothing), broken.end());
    };
    let value = json!({
        "schema": SCHEMA, "fix": arguments.fix.words(), "run": path.display().to_string(), "fixes": all.fixes,
    });
    if !write_json(arguments.json.as_deref(), &format!("{value:#}\n"))? {
        print(&text::page(&[section], Screen::stdout()))?;
    }
    broken.end()
}

fn open(paths: &[PathBuf]) -> Result<Vec<Run>, StoreError> {
    paths.iter().map(|path| Run::open(path)).collect()
}

/// A fix may change a cell's name. Its cells are compared in their order, each with the one in its place; of a survey, whose ways have
/// not all the same cells, each with the one that is alike, if the fix is another way. Places are those of the runs that measured most,
/// and mean nothing if one side measured more: names stay then. A name that both sides have stays always, and no
/// other cell gets it.
fn call_alike(a: &[Run], b: &mut [Run], fix: &Fix) {
    let (names, own) = (most_cells(a), most_cells(b));
    let is_survey = a.first().is_some_and(|run| run.header.experiment == "survey");
    let in_its_place = |cell: &CellId| {
        let place = own.iter().position(|one| one == cell);
        place.filter(|_| own.len() == names.len()).map(|place| &names[place])
    };
    for trial in b.iter_mut().flat_map(|run| &mut run.trials) {
        let found = match (is_survey, fix) {
            _ if names.contains(&trial.cell) => None,
            (true, Fix::Wake(_)) => names.iter().find(|name| are_alike(name, &trial.cell)),
            (true, _) => None,
            (false, _) => in_its_place(&trial.cell),
        };
        if let Some(cell) = found.filter(|name| !own.contains(name)) {
            trial.cell.clone_from(cell);
        }
    }
}

/// The cells of the run that has most.
fn most_cells(runs: &[Run]) -> Vec<CellId> {
    runs.iter().map(Run::cells).max_by_key(Vec::len).unwrap_or_default()
}

/// The same messages at the same times in the same manner, over the same engine.
fn are_alike(one: &CellId, other: &CellId) -> bool {
    let manner = |cell: &CellId| cell.wake.split_once('+').map(|(_, manner)| manner.to_owned());
    let renamed = CellId { name: one.name.clone(), wake: one.wake.clone(), ..other.clone() };
    *one == renamed && manner(one) == manner(other)
}

fn show(
    comparison: &RunComparison,
    (outliers, notes): (&[Outlier], &[String]),
    made: &MadeRuns,
    arguments: &VerifyArguments,
) -> Result<(), Failure> {
    let words = arguments.fix.words();
    let [without, with] = made.each_ref().map(|runs| as_text(runs));
    let new: Vec<&Outlier> = outliers.iter().filter(|one| one.is_new).collect();
    let value = json!({
        "schema": SCHEMA, "fix": words, "without": without, "with": with,
        "comparison": comparison, "late": outliers, "new_outliers": new, "notes": notes,
    });
    if write_json(arguments.json.as_deref(), &format!("{value:#}\n"))? {
        return Ok(());
    }
    let mut verdict = Section::new(format!("With the fix: {words}"));
    for cell in &comparison.cells {
        verdict = verdict.words(format!("{}: {}", cell.cell.name, cell.comparison.sentence));
    }
    let mut all = vec![verdict.note("A is without it, B with it, in turn; each change is taken back.")];
    all.extend(parts::run_comparison(comparison));
    if !notes.is_empty() {
        // Before the section on lateness: unknown facts must not look like nothing.
        all.push(notes.iter().fold(Section::new("What could not be read"), Section::note));
    }
    all.extend(sections(outliers));
    print(&text::page(&all, Screen::stdout()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::store::{Header, Store, StoredTrial};

    /// A run that measured these engines, one after the other.
    fn run(wake: &str, engines: &[&str]) -> Run {
        let trial = |engine: &&str| StoredTrial {
            path: PathBuf::new(),
            cell: CellId::new(engine, wake),
            trial: 0,
            count: 1,
        };
        Run {
            path: PathBuf::new(),
            header: Header::new("response"),
            summary: None,
            trials: engines.iter().map(trial).collect(),
            doubts: Vec::new(),
            is_cut_short: true,
        }
    }

    fn called(runs: &[Run]) -> Vec<Vec<String>> {
        let names = |run: &Run| run.cells().into_iter().map(|cell| cell.name).collect();
        runs.iter().map(names).collect()
    }

    const ALL: [&str; 3] = ["shared", "datagram", "udp"];

    fn wake() -> Fix {
        Fix::Wake("epoll".to_owned())
    }

    /// A survey that measured these ways over one engine.
    fn survey(ways: &[&str]) -> Run {
        let trials = ways.iter().flat_map(|way| run(way, &["shared"]).trials).collect();
        Run { header: Header::new("survey"), trials, ..run("", &[]) }
    }

    /// Goal: a run that lacks a cell has the others under their own names, on either side.
    #[test]
    fn a_missing_cell_moves_no_other() {
        let mut b = [run("epoll", &["shared", "udp"]), run("epoll", &ALL)];
        call_alike(&[run("futex", &ALL[1..]), run("futex", &ALL)], &mut b, &wake());
        let expected =
            [vec!["shared/futex", "udp/futex"], vec!["shared/futex", "datagram/futex", "udp/futex"]];
        assert_eq!(called(&b), expected);
    }

    /// Goal: where no run with the fix measured all cells, they keep their names and are matched with none.
    #[test]
    fn where_the_places_are_not_known_names_stay() {
        let mut b = [run("epoll", &["shared", "udp"]), run("epoll", &["shared", "udp"])];
        call_alike(&[run("futex", &ALL), run("futex", &ALL)], &mut b, &wake());
        assert_eq!(called(&b), [["shared/epoll", "udp/epoll"]; 2]);
    }
    /// Goal: a fix that leaves the ways of a survey as they are compares each way with itself, and one that either side lacks with none.
    #[test]
    fn the_ways_of_a_survey_are_not_mixed() {
        let ways = ["futex", "spin", "epoll"];
        for (a, b) in [(&ways[..], &ways[..]), (&ways[1..], &ways), (&ways[1..], &ways[..2])] {
            let mut with = [survey(b)];
            call_alike(&[survey(a)], &mut with, &Fix::Quota);
            assert_eq!(with[0].trials, survey(b).trials);
        }
        let mut with = [survey(&["epoll"])];
        call_alike(&[survey(&["futex"])], &mut with, &wake());
        assert_eq!(called(&with), [["shared/futex"]]);
    }

    /// Goal: where each side lacks another cell, those that both have are compared with themselves.
    #[test]
    fn a_cell_of_both_sides_keeps_its_name() {
        let mut b = [run("futex", &["shared", "udp"])];
        call_alike(&[run("futex", &["datagram", "shared"])], &mut b, &Fix::Quota);
        assert_eq!(called(&b), [["shared/futex", "udp/futex"]]);
    }

    /// Goal: runs in a folder of any name have their verdict in JSON, too.
    #[test]
    fn folders_of_any_bytes_are_written() {
        let folder = tempfile::tempdir().expect("room");
        let json = folder.path().join("verdict.json");
        let arguments = VerifyArguments {
            run: PathBuf::new(),
            fix: wake(),
            pairs: None,
            duration: None,
            trace: false,
            out: None,
            json: Some(json.clone()),
        };
        let (order, cells, doubts) = (Order::Interleaved, Vec::new(), Vec::new());
        let comparison = RunComparison { runs: [1, 1, 0], order, cells, doubts };
        let made = [b"a-\xff", b"b-\xff"].map(|name| vec![PathBuf::from(OsStr::from_bytes(name))]);
        show(&comparison, (&[], &[]), &made, &arguments).expect("room");
        let written = std::fs::read_to_string(json).expect("it is there");
        assert!(written.contains("a-\u{fffd}") && written.contains("b-\u{fffd}"), "{written}");
    }

    /// Goal: starts that broke a promise, and made no verdict possible, are told as such first. Method: the run was made before.
    #[test]
    fn broken_starts_go_before_a_lack_of_verdict() {
        let folder = tempfile::tempdir().expect("room");
        let before = folder.path().join("before");
        Store::import(Some(&before), &Header::new("peel")).expect("room");
        for code in [0, 1] {
            let out = Some(folder.path().join(code.to_string()));
            let arguments = VerifyArguments {
                run: before.clone(),
                fix: Fix::Prime,
                pairs: None,
                duration: None,
                trace: false,
                out,
                json: None,
            };
            let command = format!("cp -r {}/. \"$1\"; exit {code};", before.display());
            let end = of_starts(&command, &arguments).expect_err("there are no fixes in it");
            assert_eq!(matches!(end, Failure::Promise(_)), code == 1, "{end:?}");
            assert!(end.to_string().contains("the fix has no verdict"), "{end:?}");
        }
    }
}
