//! The stalls of all runs, from the store: the same that the results count, each with its receiver and its longest stage.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::explain::cause::UNEXPLAINED;
use crate::stall::{Stall, StallRule, longest_stage, steady_stalls_with_rows};
use crate::store::CellRead;
use crate::summary::Summary;

/// Stalls that are kept, the longest.
const STALLS_MAX: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VehicleStall {
    /// In which run, from 0.
    pub(super) run: usize,
    /// Whose, in the order of the receivers.
    pub(super) receiver: usize,
    pub(super) row: String,
    /// The longest stage of its longest message, and how long that took; nothing where it carries no stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stage: Option<(String, u64)>,
    /// The thread that did not run and why, if a finding covers this stall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
    #[serde(flatten)]
    pub(super) stall: Stall,
}

/// Takes the stalls of a cell that is in memory; the longest of all stay, in the order of their length.
pub(super) fn add_longest(found: &mut Vec<VehicleStall>, read: CellRead<'_>, receivers: usize) {
    let warmup = read.run.header.warmup;
    let Some(rule) = StallRule::for_trials(read.samples, warmup) else { return };
    for (trial, samples) in read.trials.iter().zip(read.samples) {
        let (number, receivers) = (trial.trial as usize, receivers.max(1));
        let stalls = steady_stalls_with_rows(samples, read.cell.load, rule, warmup);
        found.extend(stalls.into_iter().map(|(stall, of_longest)| {
            let (run, receiver) = (number / receivers, number % receivers);
            let (row, stage) = (read.cell.engine.clone(), longest_stage(samples, of_longest));
            VehicleStall { run, receiver, row, stage, cause: None, stall }
        }));
    }
    found.sort_by_key(|found| std::cmp::Reverse(found.stall.longest_ns));
    found.truncate(STALLS_MAX);
}

/// Gives stalls the causes that the findings of a summary name.
pub(super) fn add_causes(stalls: &mut [VehicleStall], summary: &Summary, receivers: usize) {
    for one in stalls {
        let results = summary.results.iter().filter(|result| result.cell.engine == one.row);
        let findings = results.flat_map(|result| result.more.get("findings")?.as_array()).flatten();
        let trial = one.run * receivers.max(1) + one.receiver;
        let is_named = |finding: &&Value| finding["trial"] == trial && finding["cause"] != UNEXPLAINED;
        let named: Vec<&Value> = findings.filter(is_named).collect();
        let stall_of = |finding: &&Value| Stall::deserialize(&finding["stall"]).unwrap_or_default();
        one.cause = one.stall.find_among(&named, stall_of).and_then(|finding| {
            let cause = finding["cause"].as_str()?;
            let who = finding["owner"].as_str().or(finding["side"].as_str())?;
            Some(format!("{who}: {}", cause.replace('_', " ")))
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample::CellId;
    use crate::summary::CellResult;

    /// Goal: a stall has the cause of the finding of its own run and receiver that was late with it: the equal one first, then the one
    /// with most in common; and none of one that waited for something short meanwhile, or whose cause is not known.
    #[test]
    fn a_stall_has_the_cause_of_its_own_wait() {
        let stall = |from_ns: u64, to_ns: u64, first_index: u64| Stall {
            release_ns: to_ns,
            first_index,
            messages: 1,
            longest_ns: to_ns - from_ns,
        };
        let finding = |trial: u32, stall: Stall, cause: &str| {
            let owner = "vehicle-1";
            json!({ "stall": stall, "trial": trial, "side": "receiver", "owner": owner, "cause": cause })
        };
        let findings = [
            finding(3, stall(1_000, 93_000, 7), "stopped"),
            finding(3, stall(1_100, 90_000, 8), "run_queue"),
            finding(3, stall(1_200, 93_500, 9), UNEXPLAINED),
            finding(2, stall(200_000, 210_000, 20), "steal"),
        ];
        let mut result = CellResult::of(&CellId::new("shared", "adaptive"), &[], 0);
        result.more.insert("findings".to_owned(), json!(findings));
        let summary = Summary { results: vec![result], ..Summary::default() };
        for (waited, expected) in [
            (stall(1_050, 93_400, 12), Some("vehicle-1: stopped")),
            (stall(1_100, 90_000, 8), Some("vehicle-1: run queue")),
            (stall(50_000, 51_000, 13), None),
            (stall(200_000, 210_000, 20), None),
        ] {
            let (row, stage, cause) = ("shared".to_owned(), None, None);
            let mut stalls = [VehicleStall { run: 1, receiver: 1, row, stage, cause, stall: waited }];
            add_causes(&mut stalls, &summary, 2);
            assert_eq!(stalls[0].cause.as_deref(), expected, "{waited:?}");
        }
    }
}
