//! What runs lack of what was planned: samples that cannot be read, and trials that were never made.

use crate::doubt::{Cause, Doubt};
use crate::store::Run;

/// What one run lacks. Ctrl-C leaves a summary that says so, a killed process none.
pub(super) fn lacks(run: &Run) -> Vec<Doubt> {
    let ends_early = [Cause::CutShort { trials: 0 }, Cause::Overdue { trials: 0, left_out: 0 }];
    let concluded = run.summary.iter().flat_map(|summary| summary.doubts.iter().cloned());
    let early = concluded.filter(|doubt| ends_early.iter().any(|cause| cause.advice() == doubt.do_));
    let cut_short = run.is_cut_short.then(|| Cause::CutShort { trials: run.trials.len() }.into());
    run.doubts.iter().cloned().chain(early).chain(cut_short).collect()
}

/// The same of several, each said with its run.
pub(super) fn lacking<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<Doubt> {
    let mut doubts: Vec<Doubt> = Vec::new();
    for run in runs {
        for Doubt { what, do_ } in lacks(run) {
            let doubt = Doubt { what: format!("{}: {what}", run.path.display()), do_ };
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
    }
    doubts
}
