//! `punctual run causes`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use punctual_machine::signal::{catch_interrupts, interrupted};
use serde_json::{Value, json};

use super::progress::progress;
use super::{print, try_json, write_json};
use crate::causes::{self, CausesSettings, InjectedExperiment, Matrix, Row};
use crate::error::Failure;
use crate::report::text::{self, Screen};
use crate::run::in_a_thread;
use crate::store::vacant_folder;

/// Options of the injections.
#[derive(Debug, Args)]
pub struct CausesArguments {
    /// Only these injections, to each side [default: all]
    #[arg(long = "cause", value_name = "NAME", value_delimiter = ',', value_parser = names())]
    names: Vec<String>,
    /// Only into runs of these experiments [default: all]
    #[arg(long = "in", value_name = "EXPERIMENT", value_delimiter = ',', value_enum)]
    experiments: Vec<InjectedExperiment>,
    /// Each so often
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    injections: usize,
    /// Two at once so often, by tier 1 [default: twice as often as --injections]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=10000))]
    pairs: Option<usize>,
    /// Observations of user space alone (0), or with the kernel's trace too (1, root)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    tier: u8,
    /// Repeats the order, instants and lengths
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Directory of the runs, new or empty [default: runs/TIME-causes/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the matrix as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// No progress, no table
    #[arg(long)]
    quiet: bool,
}

/// The value of `schema` in what `--json` writes.
const SCHEMA: &str = "punctual.causes.v1";

fn names() -> PossibleValuesParser {
    let mut names: Vec<&str> =
        Row::all(&[InjectedExperiment::Response]).iter().map(|row| row.injection.name).collect();
    names.dedup();
    PossibleValuesParser::new(names)
}

/// None of the injections that were named can be made in the experiments that were.
fn nowhere(arguments: &CausesArguments) -> String {
    let name = |experiment: &InjectedExperiment| {
        experiment.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    };
    let takes_one = |experiment: &&InjectedExperiment| {
        Row::all(&[**experiment]).iter().any(|row| arguments.names.contains(&row.injection.name.to_owned()))
    };
    let takers: Vec<String> = InjectedExperiment::ALL.iter().filter(takes_one).map(name).collect();
    format!(
        "--cause {}: not made in --in {}; there is {}",
        arguments.names.join(","),
        arguments.experiments.iter().map(name).collect::<Vec<_>>().join(","),
        takers.join(", ")
    )
}

/// Injects, and shows what each was called.
pub fn causes(arguments: &CausesArguments) -> Result<(), Failure> {
    catch_interrupts()?;
    try_json(arguments.json.as_deref())?;
    let experiments =
        if arguments.experiments.is_empty() { &InjectedExperiment::ALL[..] } else { &arguments.experiments };
    let mut rows = Row::all(experiments);
    rows.retain(|row| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| *name == row.injection.name)
    });
    if rows.is_empty() {
        return Err(Failure::Usage(nowhere(arguments)));
    }
    if arguments.tier == 0 && arguments.pairs.is_some_and(|pairs| pairs > 0) {
        let text = "--pairs needs --tier 1: user space alone names one cause of a stall";
        return Err(Failure::Usage(text.to_owned()));
    }
    let settings = CausesSettings {
        rows,
        injections: arguments.injections,
        pairs: arguments.pairs.unwrap_or(2 * arguments.injections),
        seed: arguments.seed,
        trace: arguments.tier == 1,
        folder: vacant_folder(arguments.out.as_deref(), "causes")?,
    };
    let bar = progress(arguments.quiet);
    let matrix = in_a_thread("experiment", || causes::run(&settings, &bar))??;
    bar.finish_and_clear();
    show(&matrix, &settings, arguments)?;
    if !matrix.broken.is_empty() {
        return Err(Failure::Promise(matrix.broken.join("; ")));
    }
    if matrix.rows.iter().all(|row| row.made == 0) {
        let mut reasons: Vec<String> =
            matrix.skipped.iter().map(|skipped| format!("{}: {}", skipped.what, skipped.reason)).collect();
        reasons.extend(matrix.failed.iter().cloned());
        if interrupted() {
            reasons.push("interrupted".to_owned());
        }
        return Err(Failure::Machine(format!("nothing could be injected here: {}", reasons.join("; "))));
    }
    Ok(())
}

fn show(matrix: &Matrix, settings: &CausesSettings, arguments: &CausesArguments) -> Result<(), Failure> {
    let mut value = json!(matrix);
    if let Value::Object(object) = &mut value {
        object.insert("schema".to_owned(), json!(SCHEMA));
        object.insert("runs".to_owned(), json!(settings.folder.display().to_string()));
    }
    let to_stdout = write_json(arguments.json.as_deref(), &format!("{value:#}\n"))?;
    if arguments.quiet || to_stdout {
        return Ok(());
    }
    print(&text::page(&matrix.sections(), Screen::stdout()))?;
    print(&format!("runs     {}\n", settings.folder.display()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Goal: a matrix whose runs are in a folder of any name is written.
    #[test]
    fn a_folder_of_any_bytes_is_written() {
        let folder = tempfile::tempdir().expect("room");
        let json = folder.path().join("matrix.json");
        let arguments = CausesArguments {
            names: Vec::new(),
            experiments: Vec::new(),
            injections: 1,
            pairs: None,
            tier: 0,
            seed: 1,
            out: None,
            json: Some(json.clone()),
            quiet: true,
        };
        let settings = CausesSettings {
            rows: Vec::new(),
            injections: 1,
            pairs: 0,
            seed: 1,
            trace: false,
            folder: PathBuf::from(OsStr::from_bytes(b"runs-\xff")),
        };
        show(&Matrix::default(), &settings, &arguments).expect("room");
        let written = std::fs::read_to_string(json).expect("it is there");
        assert!(written.contains("runs-\u{fffd}"), "{written}");
    }
}
