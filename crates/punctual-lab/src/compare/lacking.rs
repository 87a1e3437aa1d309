//! Gaps of runs against their plan: samples that cannot be read, and trials that were never made.

use crate::doubt::{Cause, Doubt};
use crate::store::Run;
use crate::summary::Skipped;

/// Gaps of one run. Ctrl-C leaves a summary that says so, a killed process none.
pub(super) fn lacks(run: &Run) -> Vec<Doubt> {
    // A stored doubt is text: it is known by the advice of its cause.
    let ends_early = [
        Cause::CutShort { trials: 0 },
        Cause::CutShort { trials: 1 },
        Cause::Overdue { trials: 0, left_out: 0 },
        Cause::Ended { reason: String::new() },
        Cause::FarEndGone { subject: String::new(), reason: String::new() },
    ];
    let concluded = run.summary.iter().flat_map(|summary| summary.doubts.iter().cloned());
    let early = concluded.filter(|doubt| ends_early.iter().any(|cause| cause.advice() == doubt.do_));
    let cut_short = run.is_cut_short.then(|| Cause::CutShort { trials: run.trials.len() }.into());
    run.doubts.iter().cloned().chain(early).chain(cut_short).collect()
}

/// The same of several, each said with its run, and what some of them left out that others have. A part that all of them left out is no
/// difference.
pub(super) fn lacking(runs: &[&Run]) -> Vec<Doubt> {
    let mut doubts: Vec<Doubt> = Vec::new();
    for run in runs {
        for Doubt { what, do_ } in lacks(run).into_iter().chain(skipped_alone(run, runs)) {
            let doubt = Doubt { what: format!("{}: {what}", run.path.display()), do_ };
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
    }
    doubts
}

/// Parts that this run skipped and some other did not, as far as their summaries say.
fn skipped_alone(run: &Run, runs: &[&Run]) -> impl Iterator<Item = Doubt> {
    let by_all = |skip: &&Skipped| {
        let mut others = runs.iter().filter_map(|run| run.summary.as_ref());
        // Reasons may hold numbers of one run.
        others.all(|summary| summary.skipped.iter().any(|other| other.what == skip.what))
    };
    let skipped = run.summary.iter().flat_map(|summary| &summary.skipped);
    skipped.filter(move |skip| !by_all(skip)).map(|Skipped { what, reason }| {
        Cause::NotMeasured { what: what.clone(), reason: reason.clone() }.into()
    })
}
