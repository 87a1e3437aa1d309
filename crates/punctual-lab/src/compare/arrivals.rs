//! Messages that came twice or out of order on either side. No aspect has them: they may be fast, and are wrong all the same.

use super::Comparison;
use crate::doubt::{Cause, Doubt};
use crate::sample::CellId;

/// A doubt for each kind of them and each side that has some.
pub(super) fn doubts_of_arrivals(cell: &CellId, comparison: &Comparison) -> Vec<Doubt> {
    let Comparison { duplicated_a, duplicated_b, reordered_a, reordered_b, .. } = *comparison;
    let of_side = |(side, duplicated, reordered): (&str, u64, u64)| {
        let subject = || format!("{cell}, {side}");
        let twice = (duplicated > 0).then(|| Cause::Duplicated { subject: subject(), count: duplicated });
        let late = (reordered > 0).then(|| Cause::Reordered { subject: subject(), count: reordered });
        [twice, late]
    };
    let sides = [("A", duplicated_a, reordered_a), ("B", duplicated_b, reordered_b)];
    sides.into_iter().flat_map(of_side).flatten().map(Doubt::from).collect()
}
