//! Contents of the summary of a peel besides its results.

use serde::{Deserialize, Serialize};

use super::analysis::{FaultFound, Part, Peeled};
use super::layer::InjectedFault;
use super::start_fix::FixTried;
use super::startup::StartUp;
use crate::doubt::Cause;
use crate::endpoint::Medium;
use crate::stats::Interval;

/// Effect of O_ASYNC on the layer of asynchronous reception.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupted {
    /// Interruptions of both processes per frame that either received, without it.
    pub without_per_frame: f64,
    /// With it.
    pub with_per_frame: f64,
    /// Time that it adds to the layer's round trip, ns.
    pub adds: Interval,
}

/// Contents of the summary under `peel`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// Medium that carried the ping.
    pub medium: Medium,
    /// Sleep mechanism of the asynchronous layer.
    pub wake: String,
    /// The layers.
    pub peeled: Peeled,
    /// Starts without a mistake.
    pub starts: Vec<StartUp>,
    /// Starts with one each.
    pub starts_with: Vec<(InjectedFault, Vec<StartUp>)>,
    /// Where each shows.
    pub found: Vec<FaultFound>,
    /// Starts with one each, and with the fix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts_fixed: Vec<(InjectedFault, Vec<StartUp>)>,
    /// Effect of the fix on each mistake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<FixTried>,
    /// Parts of starts without a mistake until they are ready, the longest first.
    #[serde(default)]
    pub until_ready: Vec<Part>,
    /// Extra time of the first message compared with later ones, stage by stage.
    #[serde(default)]
    pub first_message: Vec<Part>,
    /// In the layer of asynchronous reception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interrupted>,
}

impl Overall {
    /// Messages with a broken promise in starts of any kind, each kind of it a doubt: neither a mistake nor a fix may cost one.
    pub(super) fn broken(&self) -> Vec<Cause> {
        let sum = |of: fn(&StartUp) -> u64| {
            let others = self.starts_with.iter().chain(&self.starts_fixed).flat_map(|(_, starts)| starts);
            self.starts.iter().chain(others).map(of).sum::<u64>()
        };
        let subject = || "starts of fresh processes".to_owned();
        let [lost, duplicated, reordered] =
            [sum(|start| start.lost), sum(|start| start.duplicated), sum(|start| start.reordered)];
        let all = [
            (lost > 0).then(|| Cause::Lost { subject: subject(), count: lost }),
            (duplicated > 0).then(|| Cause::Duplicated { subject: subject(), count: duplicated }),
            (reordered > 0).then(|| Cause::Reordered { subject: subject(), count: reordered }),
        ];
        all.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a message that is lost, doubled or out of order is counted in whichever kind of start it was.
    #[test]
    fn a_promise_broken_in_any_start_is_counted() {
        let start = |count| {
            let start =
                StartUp { lost: count, duplicated: 2 * count, reordered: 4 * count, ..StartUp::default() };
            vec![start; 2]
        };
        let all = Overall {
            starts: start(1),
            starts_with: vec![(InjectedFault::SigioAtStart, start(10))],
            starts_fixed: vec![(InjectedFault::SigioAtStart, start(100))],
            ..Overall::default()
        };
        let told: Vec<String> = all.broken().iter().map(ToString::to_string).collect();
        let counts: Vec<&str> = told.iter().filter_map(|text| text.split(' ').nth(4)).collect();
        assert_eq!(counts, ["222", "444", "888"], "{told:?}");
        assert!(Overall::default().broken().is_empty());
    }
}
