//! Checks of a protocol in its world, seed by seed, and the shrinking of failures.

mod broadcast;
mod interest;
mod keyed_group;
mod large;
mod sealing;
mod stream;
mod time_sync;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::plan::{Fault, Plan};
use super::record::{Line, Record};

#[cfg(test)]
pub(crate) use broadcast::Broadcast;
#[cfg(test)]
pub(crate) use interest::{InterestNode, KEY as INTEREST_KEY};
#[cfg(test)]
pub(crate) use keyed_group::{
    GroupScene, address as group_place, master as group_master, node as group_node,
};
#[cfg(test)]
pub(crate) use time_sync::TimeScene;

/// Runs that shrinking a plan may take.
const SHRINKING_RUNS_MAX: usize = 1_500;

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the promise.
    pub check: &'static str,
    /// The behaviour that was found instead.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.text)
    }
}

/// Report of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Record of the run.
    pub record: Record,
    /// The first promise that did not hold.
    pub outcome: Result<(), Violation>,
}

/// A protocol in a world, with what it promises.
pub trait Model: Sync {
    /// Its name, as a user writes it.
    fn name(&self) -> &'static str;

    /// The subject of its checks, in a line.
    fn about(&self) -> &'static str;

    /// Faults in the run of a seed.
    fn plan(&self, seed: u64) -> Plan;

    /// Runs a plan, or the part of it that is left.
    fn run(&self, plan: &Plan, record: Record) -> Report;
}

/// All models.
pub const MODELS: &[&dyn Model] = &[
    &keyed_group::KeyedGroups,
    &interest::Interests,
    &time_sync::TimeSync,
    &stream::Streams,
    &sealing::Sealing,
    &large::LargeMessages,
    &broadcast::Broadcast::SOUND,
    &broadcast::Broadcast::REPLICATED,
];

/// A seed that fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The promise that did not hold.
    pub violation: Violation,
    /// The shortest plan that was found by which it does not hold.
    pub plan: Plan,
    /// The end of the run by that plan.
    pub lines: Vec<Line>,
}

/// Checks that `holds`, and counts it.
pub(crate) fn ensure(
    record: &mut Record,
    check: &'static str,
    holds: bool,
    text: impl FnOnce() -> String,
) -> Result<(), Violation> {
    record.checks += 1;
    if holds { Ok(()) } else { Err(Violation { check, text: text() }) }
}

/// Runs the plan of one seed.
///
/// # Errors
/// The [`Failure`], with its plan made short.
pub fn check(model: &dyn Model, seed: u64) -> Result<Record, Box<Failure>> {
    let plan = model.plan(seed);
    let Report { record, outcome } = model.run(&plan, Record::counts());
    match outcome {
        Ok(()) => Ok(record),
        Err(violation) => Err(Box::new(fail(model, shrink(model, plan, &violation), violation))),
    }
}

/// Runs one plan as it is.
///
/// # Errors
/// The [`Failure`], with this very plan.
pub fn replay(model: &dyn Model, plan: &Plan) -> Result<Record, Box<Failure>> {
    let Report { record, outcome } = model.run(plan, Record::timeline());
    match outcome {
        Ok(()) => Ok(record),
        Err(violation) => Err(Box::new(fail(model, plan.clone(), violation))),
    }
}

fn fail(model: &dyn Model, plan: Plan, violation: Violation) -> Failure {
    let Report { record, outcome } = model.run(&plan, Record::timeline());
    let violation = outcome.err().unwrap_or(violation);
    Failure { violation, plan, lines: record.lines().cloned().collect() }
}

/// The runs by which a plan is made short.
struct Shrinking<'m> {
    model: &'m dyn Model,
    check: &'static str,
    runs_left: usize,
}

/// Leaves out what is not needed for the same promise not to hold; then puts what chance made happen in the place of rates, and
/// leaves out again.
fn shrink(model: &dyn Model, plan: Plan, violation: &Violation) -> Plan {
    let mut shrinking = Shrinking { model, check: violation.check, runs_left: SHRINKING_RUNS_MAX };
    let fewer = shrinking.drop_faults(plan);
    let spelt_out = spell_out(model, &fewer);
    if shrinking.fails(&spelt_out) { shrinking.drop_faults(spelt_out) } else { fewer }
}

/// The same run without chance: each message that something happened to is an entry of its own.
fn spell_out(model: &dyn Model, plan: &Plan) -> Plan {
    let hits = model.run(plan, Record::chance()).record.into_hits();
    let is_certain = |fault: &&Fault| !matches!(fault, Fault::Weather { .. } | Fault::Replays { .. });
    let certain = plan.faults.iter().filter(is_certain).copied();
    Plan { seed: plan.seed, faults: certain.chain(hits).collect() }
}

impl Shrinking<'_> {
    fn fails(&mut self, plan: &Plan) -> bool {
        if self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        let outcome = self.model.run(plan, Record::counts()).outcome;
        outcome.is_err_and(|violation| violation.check == self.check)
    }

    /// Leaves out ever smaller parts (delta debugging; Zeller, Hildebrandt 2002).
    fn drop_faults(&mut self, mut plan: Plan) -> Plan {
        let mut part = plan.faults.len().div_ceil(2);
        while part > 0 {
            let mut at = 0;
            let before = plan.faults.len();
            while at < plan.faults.len() {
                let mut without = plan.clone();
                without.faults.drain(at..(at + part).min(plan.faults.len()));
                if self.fails(&without) { plan = without } else { at += part }
            }
            // Single entries are tried again until each of them is needed.
            let is_done = part == 1 && plan.faults.len() == before;
            part = if part == 1 { usize::from(!is_done) } else { part.div_ceil(2) };
        }
        plan
    }
}
