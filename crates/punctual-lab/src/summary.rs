//! The summary: one JSON object for people, scripts and comparison (`docs/summary.md`).

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::doubt::{ALIKE_MAX, Cause, Doubt};
use crate::sample::{CellId, Samples};
use crate::stats::Quantile;

mod header;
mod result;

pub use header::{Clock, Header, Host};
pub use result::{CellResult, Figures, Ledger};

/// The value of `schema`.
pub const SCHEMA: &str = "punctual.summary.v1";

/// A measurement that was not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The route, the wake-up or the experiment.
    pub what: String,
    /// Description of what is missing, with advice.
    pub reason: String,
}

impl Skipped {
    /// A line for each reason, with what lacks for it: the first few, where one reason is that of many cells.
    pub fn by_reason(all: &[Self]) -> Vec<String> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for Self { what, reason } in all {
            match groups.iter_mut().find(|(other, _)| other == reason) {
                Some((_, names)) if names.contains(&what.as_str()) => {}
                Some((_, names)) => names.push(what),
                None => groups.push((reason, vec![what])),
            }
        }
        let line = |(reason, names): (&str, Vec<&str>)| {
            let more = names.len().saturating_sub(ALIKE_MAX);
            let shown = names[..names.len() - more].join("; ");
            if more > 0 {
                format!("{shown}; and {more} more: {reason}")
            } else {
                format!("{shown}: {reason}")
            }
        };
        groups.into_iter().map(line).collect()
    }
}

/// One recommended choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The need it answers, such as "lowest tail".
    pub need: String,
    /// The `name` of a result.
    pub name: String,
    /// The figures that speak for it.
    pub because: String,
}

/// Recommendation for this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// In words.
    pub text: String,
    /// Per need.
    pub choices: Vec<Choice>,
}

/// Everything about one run but its samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// Repeats all random choices.
    pub seed: u64,
    /// Where.
    pub host: Host,
    /// With what.
    pub clock: Clock,
    /// One row per cell, in the order in which they were first measured.
    pub results: Vec<CellResult>,
    /// Possible faults.
    pub doubts: Vec<Doubt>,
    /// Skipped measurements, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// The recommendation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<Recommendation>,
    /// Values that the experiment adds (`docs/summary.md`).
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

impl Summary {
    /// Without results, with the doubts that the host and the clock raise.
    pub fn new(header: &Header) -> Self {
        let mut summary = Self {
            schema: SCHEMA.to_owned(),
            experiment: header.experiment.clone(),
            started: header.started.clone(),
            seed: header.seed,
            host: header.host.clone(),
            clock: header.clock.clone(),
            ..Self::default()
        };
        header_doubts(header).into_iter().for_each(|cause| summary.doubt(cause));
        summary
    }

    /// One doubt for all cells whose samples are too small for a p99: most runs have many by their plan.
    pub(crate) fn doubt_small_samples(&mut self) {
        let small = self.results.iter().filter(|result| !Quantile::P99.is_supported(result.figures.count));
        let counts: Vec<u64> = small.map(|result| result.figures.count).collect();
        if let (Some(&fewest), all) = (counts.iter().min(), self.results.len()) {
            let subject = format!("{} of {all} cells", counts.len());
            self.doubt(Cause::FewSamples { subject, count: fewest, quantile: "p99" });
        }
    }

    /// One more cell, with the doubts of its trials.
    pub fn add(&mut self, cell: &CellId, trials: &[Samples], warmup: u64) {
        let result = CellResult::of(cell, trials, warmup);
        let of_trials = trials.iter().flat_map(|t| t.facts.doubts.iter().cloned());
        let start = result::slow_start(cell, trials, warmup).map(Doubt::from);
        let doubts = of_trials.chain(result.doubts(&self.clock)).chain(start);
        for doubt in doubts {
            self.doubt(doubt);
        }
        self.results.push(result);
    }

    /// Adds it unless it already stands there.
    pub fn doubt(&mut self, doubt: impl Into<Doubt>) {
        let doubt = doubt.into();
        if !self.doubts.contains(&doubt) {
            self.doubts.push(doubt);
        }
    }

    /// Value that the experiment added under this name.
    pub fn added<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_value(self.more.get(name)?.clone()).ok()
    }

    /// The rows that it added; none where it added nothing.
    pub fn rows<T: DeserializeOwned>(&self, name: &str) -> Vec<T> {
        self.added(name).unwrap_or_default()
    }

    /// Exit code 0, or 1. A failure of a floor is a doubt alone: bare mechanisms of the system promise nothing.
    pub fn kept_promises(&self) -> bool {
        self.kept_promises_of(|_| true)
    }

    /// The same where only some cells are ours. A failure of what others made is a doubt alone, too: their promises are not ours.
    pub fn kept_promises_of(&self, is_ours: impl Fn(&CellId) -> bool) -> bool {
        let kept = |result: &CellResult| match is_ours(&result.cell) && !result.cell.promises_nothing() {
            true => result.kept_promises(),
            false => result.ledger.as_ref().is_none_or(Ledger::sums),
        };
        self.results.iter().all(kept)
    }

    /// Indented, with a final newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every key of a summary is a string") + "\n"
    }
}

/// A step that hides what the fast routes differ by.
const STEP_NS_MAX: u64 = 100;

fn header_doubts(header: &Header) -> Vec<Cause> {
    let (host, step_ns) = (&header.host, header.clock.step_ns);
    let mut causes = Vec::new();
    if step_ns > STEP_NS_MAX {
        causes.push(Cause::ClockCoarse { step_ns });
    }
    let skew_ns = header.clock.more.get("skew_ns").and_then(serde_json::Value::as_array);
    if let Some([Some(low), Some(high)]) = skew_ns.map(|ends| [0, 1].map(|end| ends.get(end)?.as_i64())) {
        // Zero between the ends: the counters may be one.
        if low > 0 || high < 0 {
            causes.push(Cause::ClockSkew { by_ns: if low > 0 { low } else { high } });
        }
    }
    if let Some(name) =
        host.more.get("governor").and_then(serde_json::Value::as_str).filter(|g| *g != "performance")
    {
        causes.push(Cause::Governor { name: name.to_owned() });
    }
    causes
}
