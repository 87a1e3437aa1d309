//! Probability that chance alone makes a difference as large: tests that assume nothing about the distribution of values.

use punctual_proto::sim::Rng;

/// Largest share of all verdicts in which a result called certain is chance, regardless of the number of figures that each looks at.
pub const ERROR: f64 = 0.05;

/// Number of times that sides are drawn anew.
const DRAWS: usize = 1999;

/// Probability that so many differences, or more, lie above zero where both signs are equally likely; those that are zero say nothing.
/// The sign test (Dixon and Mood 1946), one-sided.
pub fn sign_test(above: usize, below: usize) -> f64 {
    let all = above + below;
    // Of all above; then of one fewer each time.
    let mut ln = -(all as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for fewer in 0..=below {
        sum += ln.exp();
        ln += ((all - fewer) as f64).ln() - ((fewer + 1) as f64).ln();
    }
    sum.min(1.0)
}

/// For each figure, how likely chance alone makes any of all of them differ as much, upwards. Each has a value for each run: of `others`
/// runs first, then of those of the side that is looked at.
///
/// The permutation test of two means (Pitman 1937), with the largest over all figures (Westfall and Young 1993, max-T): the sides of
/// whole runs are drawn anew. Clusters within a run therefore need no model, and many figures need no other correction. The observed
/// value counts as one of the draws, which makes the test exact with any number of them (Phipson and Smyth 2010).
pub fn chances(figures: &[Vec<f64>], others: usize) -> Vec<f64> {
    let figures: Vec<Vec<f64>> = figures.iter().map(|values| standardised(values)).collect();
    let runs = figures.first().map_or(0, Vec::len);
    let mut order: Vec<usize> = (0..runs).collect();
    let sum = |values: &[f64], order: &[usize]| order[others..].iter().map(|&run| values[run]).sum::<f64>();
    let seen: Vec<f64> = figures.iter().map(|values| sum(values, &order)).collect();
    let mut as_much = vec![1; figures.len()];
    let mut rng = Rng::new(1);
    for _ in 0..DRAWS {
        for place in (1..runs).rev() {
            order.swap(place, rng.below(place as u64 + 1) as usize);
        }
        let largest = figures.iter().map(|values| sum(values, &order)).fold(f64::NEG_INFINITY, f64::max);
        for (count, seen) in as_much.iter_mut().zip(&seen) {
            *count += usize::from(largest > seen - ROUNDING);
        }
    }
    as_much.into_iter().map(|count| count as f64 / (DRAWS + 1) as f64).collect()
}

/// Sums of the same values in another order differ by less.
const ROUNDING: f64 = 1e-9;

/// With mean 0 and squares that sum to 1, so that figures of any unit compare; nothing but zeroes if all are alike.
fn standardised(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let size = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>().sqrt();
    values.iter().map(|value| if size > 0.0 { (value - mean) / size } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(found: f64, right: f64, within: f64) {
        assert!((found - right).abs() < within, "{found} where {right} is right");
    }

    /// Goal: the parts of Pascal's triangle.
    #[test]
    fn signs_are_counted_as_tosses_of_a_coin() {
        is_near(sign_test(5, 0), 1.0 / 32.0, 1e-12);
        is_near(sign_test(8, 2), 56.0 / 1024.0, 1e-12);
        is_near(sign_test(0, 7), 1.0, 1e-9);
        is_near(sign_test(0, 0), 1.0, 1e-12);
        is_near(sign_test(5_000, 5_000), 0.504, 1e-3);
        assert!(sign_test(5_000, 0) < 1e-300);
    }

    /// Goal: two sides that are apart are so in one of all ways to choose them; a second figure is a second chance, and one run that lies
    /// off says nothing.
    #[test]
    fn sides_are_drawn_anew() {
        let apart = vec![1.0, 2.0, 3.0, 4.0, 5.0, 61.0, 62.0, 63.0, 64.0, 65.0];
        is_near(chances(std::slice::from_ref(&apart), 5)[0], 1.0 / 252.0, 4e-3);
        let alike = vec![0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
        let off = vec![5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 90.0, 5.0, 5.0, 5.0];
        let found = chances(&[apart, alike, off, vec![7.0; 10]], 5);
        assert!(found[0] < ERROR && found[1..].iter().all(|&chance| chance > 0.4), "{found:?}");
        assert_eq!(chances(&[], 0), Vec::<f64>::new());
    }
}
