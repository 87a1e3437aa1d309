//! `punctual explain`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::outside::{self, OutsideArguments, Shown};
use super::{print, try_json, write_json};
use crate::error::Failure;
use crate::explain::finding::{self, Explained};
use crate::explain::late_log::{self, Log};
use crate::explain::loss;
use crate::explain::of_run::{TrialExplained, evidence, explain_run, is_part, json_of, place};
use crate::explain::perfetto::{DrawnTrial, drawing};
use crate::explain::text::{Found, PlaceExplained, not_known, nothing_read, sections};
use crate::explain::trace_file::{self, LogIdentity, TraceFile};
use crate::file::read;
use crate::report::section::Section;
use crate::report::text::{self, Screen};
use crate::store::Run;
use crate::verify::advice::Advice;

/// Options of the explanation.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// The run, a log of late messages that a program left, or a trace
    #[arg(value_name = "RUN|FILE", required_unless_present = "pid")]
    run: Option<PathBuf>,
    #[command(flatten)]
    outside: OutsideArguments,
    /// Draw one message: its stages, and what the thread of its slowest went through
    #[arg(long, value_name = "N")]
    message: Option<u64>,
    /// Observations of user space alone (0), or with the kernel's trace (1)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    tier: u8,
    /// Write what the trace saw around late messages, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", conflicts_with_all = ["message", "json"])]
    perfetto: Option<PathBuf>,
    /// Of a log: the trace that punctual watch left, or its folder; LOG.traces if not given
    #[arg(long, value_name = "FILE|DIR")]
    trace: Option<PathBuf>,
    /// As JSON
    #[arg(long, conflicts_with = "message")]
    json: bool,
    /// Every stall, however short
    #[arg(long)]
    all: bool,
}

/// Stalls that are shown one by one, if not all are asked for.
const SHOWN_MAX: usize = 10;

/// Why these are not as many as the tables of a run count.
const RULE: &str = "Late is what is so by the rule of each trial, its warm-up included; the run's tables count stalls of the steady state.";

/// Says what was late, where, why, and what to try, from the store.
pub fn explain(arguments: &ExplainArguments) -> Result<(), Failure> {
    let shown_max = if arguments.all { usize::MAX } else { SHOWN_MAX };
    let shown = Shown { json: arguments.json, shown_max };
    let Some(path) = &arguments.run else {
        check(arguments, Source::Processes)?;
        return outside::live(&arguments.outside, arguments.tier, shown);
    };
    if path.is_file() {
        if TraceFile::is_at(path) {
            check(arguments, Source::Trace)?;
            return outside::of_file(path, &arguments.outside, shown);
        }
        check(arguments, Source::Log)?;
        return late_log(path, arguments);
    }
    if matches!(path.try_exists(), Ok(false)) {
        let advice = "name a run's directory, or the log or trace that a program left";
        return Err(Failure::Usage(format!("{}: no such file or directory: {advice}", path.display())));
    }
    let run = Run::open(path)?;
    check(arguments, Source::Run)?;
    if let Some(number) = arguments.message {
        return one_message(&run, number, arguments.tier, shown_max);
    }
    if arguments.perfetto.is_some() {
        return draw(&run, arguments);
    }
    let mut notes: Vec<String> = run.doubts.iter().map(|doubt| doubt.what.clone()).collect();
    let trials = explain_run(&run, arguments.tier, &mut notes)?;
    let advice = Advice::of(&run);
    let of_trial = |one: &TrialExplained| {
        let place = json!({ "name": one.cell.name, "trial": one.trial, "place": one.told.place });
        one.told.found.iter().map(|found| advice.advised(json_of(found, &place))).collect::<Vec<Value>>()
    };
    let findings: Vec<Value> = trials.iter().flat_map(of_trial).collect();
    if arguments.json {
        let whole = json!({
            "schema": "punctual.explain.v1",
            "experiment": run.header.experiment,
            "started": run.header.started,
            "tier": arguments.tier,
            "began_ns": trials.first().and_then(|one| one.began_ns),
            "findings": findings,
            "losses": trials.iter().filter_map(loss_json).collect::<Vec<Value>>(),
            "notes": notes,
        });
        return print(&format!("{whole:#}\n"));
    }
    let lost = loss::section(&trials, &|cause| advice.verify(cause));
    let places: Vec<PlaceExplained> = trials.into_iter().map(|one| one.told).collect();
    let mut all = if run.trials.is_empty() { Vec::new() } else { sections(&places, shown_max) };
    let list = all.pop().map_or_else(nothing_read, |list| list.note(RULE));
    all.push(list);
    all.extend(lost);
    if !notes.is_empty() {
        // First: unknown facts must not look like nothing.
        all.insert(0, notes.into_iter().fold(Section::new("What could not be read"), Section::note));
    }
    print(&text::page(&all, Screen::stdout()))
}

/// The source that is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Processes,
    Trace,
    Log,
    Run,
}

impl Source {
    fn words(self) -> &'static str {
        match self {
            Self::Processes => "processes from outside (--pid)",
            Self::Trace => "a trace on file",
            Self::Log => "a log of late messages",
            Self::Run => "a run",
        }
    }
}

/// Checks that all requested options go with the explained source: an option that would be passed over is refused.
fn check(arguments: &ExplainArguments, source: Source) -> Result<(), Failure> {
    use Source::{Log, Processes, Run, Trace};
    let refused = |text: String| Err(Failure::Usage(text));
    let outside = &arguments.outside;
    let options: [(&str, bool, &[Source]); 8] = [
        ("--pid", !outside.pid.is_empty(), &[Processes, Trace]),
        ("--duration", outside.duration.is_some(), &[Processes]),
        ("--threshold", outside.threshold.is_some(), &[Processes, Trace]),
        ("--out", outside.out.is_some(), &[Processes]),
        ("--message", arguments.message.is_some(), &[Log, Run]),
        ("--perfetto", arguments.perfetto.is_some(), &[Run]),
        ("--trace", arguments.trace.is_some(), &[Log]),
        ("--tier 0", arguments.tier == 0, &[Processes, Log, Run]),
    ];
    let is_off = |(_, given, fits): &&(&str, bool, &[Source])| *given && !fits.contains(&source);
    if let Some((option, _, fits)) = options.iter().find(is_off) {
        let fits: Vec<&str> = fits.iter().map(|one| one.words()).collect();
        return refused(format!("{option} goes with {}, and not with {}", fits.join(" or "), source.words()));
    }
    if source == Processes && arguments.tier == 0 && (outside.threshold.is_some() || outside.out.is_some()) {
        return refused(
            "--tier 0: sums have no threshold and no trace: leave out --threshold, --out".to_owned(),
        );
    }
    match arguments.trace.as_ref().filter(|place| !place.exists()) {
        Some(place) => refused(format!("--trace {}: there is no such file or folder", place.display())),
        None => Ok(()),
    }
}

/// Losses of a trial, with its place.
fn loss_json(one: &TrialExplained) -> Option<Value> {
    let mut value = json!(one.lost.as_ref()?);
    value["name"] = json!(one.cell.name);
    value["trial"] = json!(one.trial);
    Some(value)
}

/// Writes the drawing, and says what to do with it.
fn draw(run: &Run, arguments: &ExplainArguments) -> Result<(), Failure> {
    try_json(arguments.perfetto.as_deref())?;
    let (mut trials, mut notes) = (Vec::new(), Vec::new());
    for trial in &run.trials {
        let evidence = evidence(trial, arguments.tier, &mut notes)?;
        if is_part(run, trial, evidence.as_ref()) {
            continue;
        }
        let (samples, load) = (trial.load()?, trial.cell.load);
        let found = finding::explain(&samples, load, evidence.as_ref());
        let name = place(trial, evidence.as_ref());
        trials.push(DrawnTrial { name, samples, load, evidence, found });
    }
    let text = format!("{}\n", drawing(&trials));
    if write_json(arguments.perfetto.as_deref(), &text)? {
        return Ok(());
    }
    let has_trace = |trial: &DrawnTrial| trial.evidence.as_ref().is_some_and(|one| !one.dumps.is_empty());
    if !trials.iter().any(has_trace) {
        let why = if arguments.tier == 0 {
            "--tier 0 was asked for, so that only messages are drawn"
        } else {
            "no trace of the kernel is stored, so that only messages are drawn: --trace, as root"
        };
        notes.push(why.to_owned());
    }
    let path = arguments.perfetto.as_ref().map_or_else(String::new, |path| path.display().to_string());
    let section = Section::new(format!("{path}: open it in https://ui.perfetto.dev"));
    print(&text::page(&[notes.into_iter().fold(section, Section::note)], Screen::stdout()))
}

/// The same of a log that a program left.
fn late_log(file: &Path, arguments: &ExplainArguments) -> Result<(), Failure> {
    let path = file.display();
    let off = |reason: &dyn std::fmt::Display| Failure::Usage(format!("{path}: {reason}"));
    let bytes = read(file, late_log::LOG_SIZE_MAX).map_err(|error| off(&error))?;
    let log = late_log::parse(&bytes).map_err(|error| off(&error))?;
    let (traces, mut notes) = traces(file, arguments, log.as_ref());
    if let Some(number) = arguments.message {
        let record = log.as_ref().and_then(|log| log.records.get(usize::try_from(number).ok()?));
        let record = record.ok_or_else(|| off(&format!("--message {number}: it has none of that number")))?;
        let mut all = late_log::text::message(record, &traces);
        all.extend(not_known(&notes));
        return print(&text::page(&all, Screen::stdout()));
    }
    let found = log.as_ref().map_or_else(Vec::new, |log| late_log::explain(log, &traces));
    notes.extend(log.as_ref().map_or_else(Vec::new, late_log::text::left_out));
    if arguments.json {
        let more = |one: &Explained| {
            let late = log.as_ref().and_then(|log| log.records.get(one.stall.first_index as usize));
            json!({
                "receiver": late.map(|late| &late.receiver),
                "at_least": late.is_some_and(|late| late.at_least),
            })
        };
        let findings = found.iter().map(|one| Advice::WITHOUT_RUN.advised(json_of(one, &more(one))));
        let whole = json!({
            "schema": "punctual.explain.v1",
            "program": log.as_ref().map(|log| &log.head.program),
            "tier": u8::from(!traces.is_empty()),
            "findings": findings.collect::<Vec<Value>>(),
            "notes": notes,
        });
        return print(&format!("{whole:#}\n"));
    }
    let shown_max = if arguments.all { usize::MAX } else { SHOWN_MAX };
    let all = match &log {
        Some(log) => late_log::text::sections(log, &found, shown_max, &notes),
        None => vec![Section::new("What was late").note("No message was late.")],
    };
    print(&text::page(&all, Screen::stdout()))
}

/// Traces that `punctual watch` left for a log, and notes on those that could not be read.
fn traces(file: &Path, arguments: &ExplainArguments, log: Option<&Log>) -> (Vec<TraceFile>, Vec<String>) {
    let Some(log) = log.filter(|_| arguments.tier > 0) else { return Default::default() };
    let beside = trace_file::beside(file);
    let place = arguments.trace.clone().or_else(|| beside.is_dir().then_some(beside));
    let identity = LogIdentity { pid: log.head.pid, made_ns: log.head.monotonic_ns };
    place.map(|place| trace_file::of_log(&place, identity)).unwrap_or_default()
}

fn one_message(run: &Run, number: u64, tier: u8, shown_max: usize) -> Result<(), Failure> {
    let (mut found, mut notes) = (Found::default(), Vec::new());
    for trial in &run.trials {
        let samples = trial.load()?;
        if !samples.index.contains(&number) {
            continue;
        }
        let evidence = evidence(trial, tier, &mut notes)?;
        found.add((&trial.cell, trial.trial), &samples, number, evidence.as_ref(), shown_max);
    }
    let mut all = found.sections();
    if all.is_empty() {
        let text = format!("--message {number}: no trial of {} has it", run.path.display());
        return Err(Failure::Usage(text));
    }
    all.extend(notes.into_iter().map(|note| Section::new("What could not be read").note(note)));
    print(&text::page(&all, Screen::stdout()))
}

#[cfg(test)]
mod tests {
    use clap::Command;
    use clap::error::ErrorKind;

    use super::*;

    /// Goal: one message is drawn for people: a user who asks for JSON of it is told so, and is not given text.
    #[test]
    fn one_message_is_not_json() {
        let asked = |more: &[&str]| {
            let command = ExplainArguments::augment_args(Command::new("explain"));
            let words = ["explain", "RUN", "--message", "3"].iter().chain(more);
            command.try_get_matches_from(words).map(|_| ()).map_err(|error| error.kind())
        };
        assert_eq!(asked(&["--json"]), Err(ErrorKind::ArgumentConflict));
        assert_eq!(asked(&[]), Ok(()));
    }
}
