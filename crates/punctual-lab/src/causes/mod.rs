//! Causes made on purpose, and what each is called: injections at random instants into a run of another experiment, among clean
//! stretches, and a table of what was made against what was named.
//!
//! `plan` draws what is made when, by a seed · `scene` starts the run and makes it · `judge` finds each in what the run's evidence
//! explains · `matrix` counts and shows.

mod judge;
mod matrix;
mod plan;
mod scene;

use std::path::PathBuf;

use indicatif::ProgressBar;
use punctual_machine::signal::interrupted;
use punctual_proto::sim::Rng;

pub use judge::Tier;
pub use matrix::{CleanCounts, Matrix, PairCounts, RowCounts};
pub use plan::Row;
use plan::Victim;

use crate::explain::injection::Tools;
use crate::run::RunError;
use crate::summary::Skipped;

/// What is made.
#[derive(Clone, Debug)]
pub struct CausesSettings {
    /// What is injected.
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

/// What a machine with one processor is told.
const TWO_CPUS: &str = "two processors are needed, so that a side can be late without the other";

/// Runs that fail one after the other are the machine's, not chance.
const FAILURES_MAX: usize = 3;

/// Makes all, run after run, and counts.
///
/// # Errors
/// No run can be made here, or none can be read.
pub fn run(settings: &CausesSettings, bar: &ProgressBar) -> Result<Matrix, RunError> {
    let tools = Tools::new("causes", plan::cpus().ok_or_else(|| RunError::Machine(TWO_CPUS.to_owned()))?);
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
    // What needs another run than most has runs of its own.
    let [ordinary, members, urgent] = Victim::ALL.map(|victim| {
        let of_it = rows.iter().copied().filter(|row| row.victim() == victim);
        of_it.collect::<Vec<Row>>()
    });
    let plans = [
        plan::draw(&mut rng, &ordinary, settings.injections),
        plan::draw_pairs(&mut rng, &ordinary, if settings.trace { settings.pairs } else { 0 }),
        plan::draw(&mut rng, &members, settings.injections),
        plan::draw(&mut rng, &urgent, settings.injections),
    ];
    bar.set_length(plans.iter().map(Vec::len).sum::<usize>() as u64);
    let mut scene = scene::Stage { folder: settings.folder.clone(), trace: settings.trace, tools };
    let mut failures = 0;
    for (number, part) in plans.iter().flat_map(|plan| plan.chunks(OF_A_RUN)).enumerate() {
        if interrupted() {
            break;
        }
        match scene.play(number, part) {
            Ok(played) => {
                failures = 0;
                matrix.add(&judge::judge(&played)?);
            }
            Err(reason) => {
                failures += 1;
                if failures == FAILURES_MAX {
                    return Err(RunError::Machine(reason));
                }
                matrix.failed.push(reason);
            }
        }
        bar.inc(part.len() as u64);
    }
    if let Some(reason) = matrix.without_trace.clone().filter(|_| settings.trace && settings.pairs > 0) {
        matrix.skipped.push(Skipped { what: "two at once".to_owned(), reason });
    }
    Ok(matrix)
}
