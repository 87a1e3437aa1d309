//! Causes made on purpose, and what each is called: injections at random instants into a run of another experiment, among clean
//! stretches, and a table of what was made against what was named.
//!
//! `victim` says in which runs; `plan` draws what is made when, by a seed; `scene` starts the run and makes it; `judge` finds each in
//! what the run's evidence explains; `matrix` counts and shows.

mod judge;
mod matrix;
mod plan;
mod scene;
mod victim;

use std::path::PathBuf;

use indicatif::ProgressBar;
use punctual_machine::signal::interrupted;
use punctual_proto::sim::Rng;

pub use judge::Tier;
pub use matrix::{CleanCounts, Matrix, PairCounts, RowCounts};
pub use plan::Row;
pub use victim::InjectedExperiment;

use crate::distinct::distinct;
use crate::explain::injection::Tools;
use crate::run::RunError;
use crate::summary::Skipped;

/// Settings of the injections.
#[derive(Clone, Debug)]
pub struct CausesSettings {
    /// The causes to inject.
    pub rows: Vec<Row>,
    /// Each so often.
    pub injections: usize,
    /// Two at once so often, where the kernel's trace is recorded: user space alone names what has half of the time.
    pub pairs: usize,
    /// Repeats what is drawn.
    pub seed: u64,
    /// Record the kernel's trace.
    pub trace: bool,
    /// Where the runs are stored.
    pub folder: PathBuf,
}

/// Injections of one run: its evidence holds no more dumps than twice as many.
const OF_A_RUN: usize = 24;

/// Message for a machine with one processor.
const TWO_CPUS: &str = "two processors are needed, so that a side can be late without the other";

/// An injection between two trials of a run, or in one that failed, is made again, so often at most.
const ATTEMPTS: usize = 4;

/// Runs that fail one after the other are the machine's, not chance.
const FAILURES_MAX: usize = 3;

/// Makes all, run after run, and counts.
///
/// # Errors
/// No run can be made here, or none can be read.
pub fn run(settings: &CausesSettings, bar: &ProgressBar) -> Result<Matrix, RunError> {
    let mut cpus: Vec<usize> =
        InjectedExperiment::ALL.iter().filter_map(|one| one.cpus()).flatten().collect();
    if cpus.is_empty() {
        return Err(RunError::Machine(TWO_CPUS.to_owned()));
    }
    cpus.sort_unstable();
    cpus.dedup();
    let tools = Tools::new("causes", &cpus);
    let mut rows = settings.rows.clone();
    let mut skipped = Vec::new();
    rows.retain(|row| match row.injection.needs.are_met(&tools) {
        Ok(()) => true,
        Err(reason) => {
            skipped.push(Skipped { what: row.name(), reason });
            false
        }
    });
    let mut matrix = Matrix::new(settings.seed, &rows);
    matrix.skipped = skipped;
    let mut rng = Rng::at(&[settings.seed]);
    let pairs = if settings.trace { settings.pairs } else { 0 };
    let asked = (rows.len() * settings.injections + pairs) as u64;
    bar.set_length(asked);
    let mut stage = scene::Stage { folder: settings.folder.clone(), trace: settings.trace, tools };
    let mut play = |number: usize, part: &[plan::Planned], broken: &mut Vec<String>| {
        let played = stage.play(number, part, broken).map_err(RunError::Machine);
        played.and_then(|played| judge::judge(&played))
    };
    let mut making = Making { matrix, bar, runs: 0, failures: 0 };
    // Injections that need another run than most have runs of their own.
    for victim in distinct(rows.iter().map(Row::victim)) {
        let of_it: Vec<Row> = rows.iter().copied().filter(|row| row.victim() == victim).collect();
        for _ in 0..ATTEMPTS {
            let missing = making.matrix.missing(&of_it, settings.injections);
            if !making.all(&plan::draw(&mut rng, &missing), &mut play)? {
                break;
            }
        }
    }
    making.all(&plan::draw_pairs(&mut rng, &rows, pairs), &mut play)?;
    let mut matrix = making.matrix;
    matrix.is_cut_short = interrupted() && matrix.made() < asked;
    if let Some(reason) = matrix.without_trace.clone().filter(|_| settings.trace && settings.pairs > 0) {
        matrix.skipped.push(Skipped { what: "two at once".to_owned(), reason });
    }
    Ok(matrix)
}

/// Makes plans, and counts.
struct Making<'a> {
    matrix: Matrix,
    bar: &'a ProgressBar,
    /// So far.
    runs: usize,
    /// Of the last runs, one after the other.
    failures: usize,
}

impl Making<'_> {
    /// Makes a plan, run after run. Returns false if it was given up, for its runs fail one after the other: what was counted before stays.
    fn all(
        &mut self,
        plan: &[plan::Planned],
        mut play: impl FnMut(usize, &[plan::Planned], &mut Vec<String>) -> Result<judge::JudgedRun, RunError>,
    ) -> Result<bool, RunError> {
        for part in plan.chunks(OF_A_RUN) {
            if interrupted() {
                break;
            }
            let number = self.runs;
            self.runs += 1;
            match play(number, part, &mut self.matrix.broken) {
                Ok(judged) => {
                    self.failures = 0;
                    self.matrix.add(&judged);
                }
                // Injections made before it stay.
                Err(_) if interrupted() => break,
                Err(error) => {
                    self.failures += 1;
                    let is_given_up = self.failures == FAILURES_MAX;
                    // A broken promise is told, not that nothing could be made.
                    if is_given_up && self.matrix.made() == 0 && self.matrix.broken.is_empty() {
                        return Err(error);
                    }
                    self.matrix.failed.push(match error {
                        RunError::Machine(reason) => reason,
                        RunError::Store(error) => error.to_string(),
                    });
                    if is_given_up {
                        self.failures = 0;
                        return Ok(false);
                    }
                }
            }
            self.bar.set_position(self.matrix.made());
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: runs that fail one after the other end their plan, and take nothing away that was counted before. Method: a plan of many runs
    /// of which all fail, or all but the first.
    #[test]
    fn failing_runs_take_no_counts_along() {
        let rows = Row::all(&[InjectedExperiment::Response])[..1].to_vec();
        let plan = plan::draw(&mut Rng::at(&[1]), &[(rows[0], 10 * OF_A_RUN)]);
        let bar = ProgressBar::hidden();
        let made_of = |successes: usize| {
            let mut making = Making { matrix: Matrix::new(1, &rows), bar: &bar, runs: 0, failures: 0 };
            let goes_on = making.all(&plan, |number, part, _| {
                if number >= successes {
                    return Err(RunError::Machine("no room".to_owned()));
                }
                let injections = part.iter().map(|planned| judge::Judged { row: planned.row, called: None });
                Ok(judge::JudgedRun { injections: injections.collect(), ..judge::JudgedRun::default() })
            });
            let Making { matrix, runs, failures, .. } = making;
            (goes_on.ok(), matrix.made(), matrix.failed.len(), runs, failures)
        };
        assert_eq!(made_of(1), (Some(false), OF_A_RUN as u64, FAILURES_MAX, 1 + FAILURES_MAX, 0));
        assert_eq!(made_of(10), (Some(true), 10 * OF_A_RUN as u64, 0, 10, 0));
        assert_eq!(made_of(0).0, None);
    }
}
