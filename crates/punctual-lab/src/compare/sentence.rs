//! A comparison in one sentence, for people.

use std::fmt::Write as _;

use super::{Aspect, Basis, Comparison, Difference, Measure};

/// The aspects that are faster and slower, and the messages of each side that did not end as they should.
pub(super) fn sentence(comparison: &Comparison, resolution_ns: u64) -> String {
    let Comparison { measures, basis, .. } = comparison;
    let of = |difference| {
        measures.iter().filter(move |m| m.difference == difference).map(phrase).collect::<Vec<_>>()
    };
    let (faster, slower) = (of(Difference::Faster), of(Difference::Slower));
    let mut text = match (faster.is_empty(), slower.is_empty()) {
        (true, true) => match (seen(measures, resolution_ns), basis) {
            (None, Basis::Pairs(..2)) => "Cannot say: a verdict needs at least two pairs of runs".to_owned(),
            (None, _) => "No difference that these samples can show".to_owned(),
            (Some(percent), Basis::Bound) => format!(
                "Cannot say below {percent:.0} % of p50: how far runs of the same thing lie apart is unknown"
            ),
            (Some(percent), _) if percent < 25.0 => {
                format!(
                    "No difference; a change of p50 by {percent:.0} % would have been seen in one case of two"
                )
            }
            (Some(percent), _) => {
                format!(
                    "No difference; even a change of p50 by {percent:.0} % would have been seen in one case of two only"
                )
            }
        },
        (false, true) => format!("B is faster: {}", faster.join(", ")),
        (true, false) => format!("B is slower: {}", slower.join(", ")),
        (false, false) => format!("B is faster: {}; but slower: {}", faster.join(", "), slower.join(", ")),
    };
    let arrived = [
        ("doubled", [comparison.duplicated_a, comparison.duplicated_b]),
        ("reordered", [comparison.reordered_a, comparison.reordered_b]),
    ];
    let counted = comparison.unanswered().into_iter().chain(arrived);
    for (what, [a, b]) in counted.filter(|(_, counts)| *counts != [0, 0]) {
        let _ = write!(text, "; A {what} {a}, B {what} {b}");
    }
    text + "."
}

fn phrase(measure: &Measure) -> String {
    let name = measure.aspect.as_str();
    match (measure.aspect, measure.ratio) {
        (Aspect::StallsPerMinute, _) => {
            format!("{name} {:.1} → {:.1}", measure.a.unwrap_or(0.0), measure.b.unwrap_or(0.0))
        }
        (_, None) => {
            let side = if measure.a.is_none() { "A" } else { "B" };
            format!("{name} infinite in {side}")
        }
        (_, Some(ratio)) if ratio >= 2.0 => format!("{name} ×{ratio:.1}"),
        (_, Some(ratio)) => format!("{name} {:+.0} %", (ratio - 1.0) * 100.0),
    }
}

/// The change of the median, in percent, that neither the interval nor the clock would have hidden. The median that is measured
/// falls short of it in half of all cases.
fn seen(measures: &[Measure], resolution_ns: u64) -> Option<f64> {
    let p50 = measures.iter().find(|m| m.aspect == Aspect::P50)?;
    let resolved = 1.0 + resolution_ns as f64 / p50.a?;
    let width = (p50.high? / p50.ratio?).max(p50.aspect.ratio_min()).max(resolved);
    // 1.05 is a little more than that in binary.
    Some(((width - 1.0) * 100.0 - 1e-9).ceil())
}
