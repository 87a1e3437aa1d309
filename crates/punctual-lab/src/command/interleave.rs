//! Two commands in turn: each makes a run, A B B A A B …, so that a drift of the machine meets both alike.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use indicatif::ProgressBar;
use punctual_machine::signal::{catch_interrupts, interrupted};

use super::progress::progress;
use crate::compare::PAIRS_MIN;
use crate::error::Failure;
use crate::units::now_utc;

/// The runs of both sides.
type Made = [Vec<PathBuf>; 2];

/// Makes so many pairs, or as many as `wanted` says of those that were made; returns where the runs are. Ctrl-C ends it after the
/// run that is being made; whole pairs count.
pub(super) fn play(
    commands: [&String; 2],
    pairs: Option<usize>,
    out: Option<&Path>,
    wanted: &dyn Fn(&Made) -> Result<usize, Failure>,
) -> Result<Made, Failure> {
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let folder = folder(out)?;
    let bar = progress(false);
    let mut made = [Vec::new(), Vec::new()];
    let (mut pair, mut count) = (0, pairs.unwrap_or(PAIRS_MIN));
    while pair < count && !interrupted() {
        bar.set_length(2 * count as u64);
        let places = ["a", "b"].map(|side| folder.join(side).join(format!("{:03}", pair + 1)));
        // Every other pair goes backwards, so that nobody is always the second.
        let first = usize::from(pair % 2 == 1);
        for side in [first, 1 - first] {
            run(commands[side], &places[side], &bar)?;
        }
        if !interrupted() {
            made.iter_mut().zip(places).for_each(|(made, place)| made.push(place));
        }
        pair += 1;
        if pair == count && pairs.is_none() && !interrupted() {
            count = wanted(&made)?;
        }
    }
    bar.finish_and_clear();
    if made[0].is_empty() {
        return Err(Failure::Usage("interrupted before the first pair of runs was made".to_owned()));
    }
    eprintln!("runs in {}", folder.display());
    Ok(made)
}

fn folder(out: Option<&Path>) -> Result<PathBuf, Failure> {
    let named = || PathBuf::from("runs").join(format!("{}-compare", now_utc().replace(':', "")));
    let folder = out.map_or_else(named, Path::to_owned);
    let is_taken = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    if is_taken {
        let text = format!("{} is not empty: choose a new directory with --out", folder.display());
        return Err(Failure::Usage(text));
    }
    for side in ["a", "b"] {
        let side = folder.join(side);
        std::fs::create_dir_all(&side).map_err(|error| {
            Failure::Machine(format!("{}: {error}: choose another directory with --out", side.display()))
        })?;
    }
    Ok(folder)
}

/// Runs one command, with the place of its run added. The word `punctual` is this program.
fn run(command: &str, place: &Path, bar: &ProgressBar) -> Result<(), Failure> {
    bar.set_message(place.display().to_string());
    let own = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).unwrap_or(path.clone());
    let status = Command::new("sh")
        .args(["-c", &format!("{command} --quiet --out \"$1\""), "sh"])
        .arg(place)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| Failure::Machine(format!("cannot run sh: {error}")))?;
    bar.inc(1);
    match status.code() {
        // A promise that did not hold is in the run, and in its figures.
        Some(0 | 1) if place.join("run.json").is_file() => Ok(()),
        Some(0 | 1) => Err(Failure::Usage(format!(
            "`{command}` made no run in {}: it must be one that takes --out",
            place.display()
        ))),
        Some(2 | 127) => Err(Failure::Usage(format!("`{command}` is no command that measures"))),
        _ if interrupted() => Ok(()),
        _ => Err(Failure::Machine(format!("`{command}` failed: {status}"))),
    }
}
