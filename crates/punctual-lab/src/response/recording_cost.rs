//! Cost of recording: each level against nothing, round by round of one run.

use serde::{Deserialize, Serialize};

use super::option::{Recorded, Variant};
use super::settings::ResponseSettings;
use crate::report::section::{Section, TableOf};
use crate::sample::{CellId, Phase};
use crate::stats::{Distribution, Quantile, Ratio};
use crate::store::{Run, StoreError};
use crate::summary::Summary;
use crate::units::{OptionName, count, dash, in_range};

/// One level of recording against none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordingCost {
    /// The measured way, and the urgency of its threads.
    pub way: String,
    /// Extent of the recording.
    pub recorded: String,
    /// Of the median.
    pub p50: Option<Ratio>,
    /// Of the 99th percentile.
    pub p99: Option<Ratio>,
}

/// Every level that was measured beside nothing.
///
/// # Errors
/// Samples cannot be read.
pub(super) fn costs(settings: &ResponseSettings, run: &Run) -> Result<Vec<RecordingCost>, StoreError> {
    let mut costs = Vec::new();
    for &choice in &settings.choices {
        let Some(recorded) = choice.recorded.filter(|&recorded| recorded != Recorded::Nothing) else {
            continue;
        };
        let nothing = Variant { recorded: Some(Recorded::Nothing), ..choice };
        let [with, without] = [choice, nothing].map(|choice| settings.cell(choice));
        let (with, without) = (rounds(run, &with)?, rounds(run, &without)?);
        let ratio = |quantile: Quantile| {
            let pairs = with.iter().zip(&without);
            let ratios = pairs.map(|(with, without)| {
                let ns = |one: &Distribution| one.quantile(quantile).ns().filter(|&ns| ns > 0);
                Some(ns(with)? as f64 / ns(without)? as f64)
            });
            // A round that lost so many that it has no such quantile is the worst one: without it the others would be too good.
            Ratio::of(&ratios.collect::<Option<Vec<f64>>>()?)
        };
        costs.push(RecordingCost {
            way: Variant { recorded: None, ..choice }.to_string(),
            recorded: recorded.name().to_owned(),
            p50: ratio(Quantile::P50),
            p99: ratio(Quantile::P99),
        });
    }
    costs.retain(|cost| cost.p50.is_some());
    Ok(costs)
}

/// The steady messages of each round.
fn rounds(run: &Run, cell: &CellId) -> Result<Vec<Distribution>, StoreError> {
    let trials = run.trials_of(cell);
    trials.map(|trial| Ok(Distribution::of(&[trial.load()?], Phase::Steady, run.header.warmup))).collect()
}

/// As a table; nothing where one level alone was measured.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    let costs: Vec<RecordingCost> = summary.added("recording_cost")?;
    let rounds = |cost: &&RecordingCost| count(cost.p50.map_or(0, |ratio| ratio.openings) as u64);
    let table = TableOf::new(&costs)
        .name("way", |cost| &cost.way)
        .name("recorded", |cost| &cost.recorded)
        .number("p50, times", |cost| shown(cost.p50))
        .number("p99, times", |cost| shown(cost.p99))
        .number("rounds", rounds)
        .keyed(1);
    let note =
        "Against the same with nothing recorded, round by round; in brackets where it lies, 19 times of 20.";
    Some(Section::new("What recording costs").note(note).table(table))
}

/// "1.01 (0.99 to 1.03)".
fn shown(ratio: Option<Ratio>) -> String {
    let shown = |ratio: Ratio| in_range(ratio.ratio, ratio.interval, |times| format!("{times:.2}"));
    ratio.map_or_else(dash, shown)
}
