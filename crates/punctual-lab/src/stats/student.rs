//! Student's t: the possible distance of a mean of few values from the truth.

use std::cell::RefCell;
use std::collections::HashMap;

/// Terms of the continued fraction: more than the root of the degrees of freedom, after which it has converged.
const TERMS: u32 = 100;
/// Halvings of the interval in which a quantile is looked for.
const HALVINGS: u32 = 60;
/// As good as infinitely many degrees of freedom.
const FREEDOM_MANY: usize = 1 << 12;
/// No interval is wider: as good as no statement.
const LIMIT: f64 = 1e9;

thread_local! {
    /// Quantiles that were found, by the bits of alpha and the degrees of freedom: a comparison asks for few, thousands of times.
    static FOUND: RefCell<HashMap<(u64, usize), f64>> = RefCell::default();
}

/// The value that |t| exceeds with probability `alpha` at so many degrees of freedom; infinite without any.
pub fn two_sided(alpha: f64, freedom: usize) -> f64 {
    if freedom == 0 {
        return f64::INFINITY;
    }
    let freedom = freedom.min(FREEDOM_MANY);
    FOUND.with_borrow_mut(|found| {
        *found.entry((alpha.to_bits(), freedom)).or_insert_with(|| quantile(alpha, freedom))
    })
}

fn quantile(alpha: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, LIMIT);
    for _ in 0..HALVINGS {
        // By the geometric middle above 1: a quantile may be 2 or 60,000.
        let middle = if low >= 1.0 { f64::sqrt(low * high) } else { f64::midpoint(low, high.min(2.0)) };
        if exceeds(middle, freedom) > alpha {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The value that a normal variable exceeds in size with probability `alpha`.
pub fn normal_two_sided(alpha: f64) -> f64 {
    two_sided(alpha, FREEDOM_MANY)
}

/// P(|t| > `t`).
fn exceeds(t: f64, freedom: usize) -> f64 {
    let freedom = freedom as f64;
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun, 26.5.8).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side of the mean only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    front.exp() / (a * fraction(a, b, x))
}

/// 1 + d₁/(1 + d₂/(1 + …)), from its last term back.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    let term = |n: u32| {
        let m = f64::from(n / 2);
        let twice = a + 2.0 * m;
        if n.is_multiple_of(2) {
            m * (b - m) * x / ((twice - 1.0) * twice)
        } else {
            -(a + m) * (a + b + m) * x / (twice * (twice + 1.0))
        }
    };
    (1..=TERMS).rev().fold(1.0, |rest, n| 1.0 + term(n) / rest)
}

/// ln Γ, by Stirling's series after a shift to where it is exact.
fn ln_gamma(x: f64) -> f64 {
    let mut shifted = x;
    let mut product = 1.0;
    while shifted < 12.0 {
        product *= shifted;
        shifted += 1.0;
    }
    let inverse = 1.0 / shifted;
    let square = inverse * inverse;
    let series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (shifted - 0.5) * shifted.ln() - shifted + 0.5 * std::f64::consts::TAU.ln() + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the values of printed tables.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (alpha, freedom, t) in [
            (0.05, 1, 12.706),
            (0.05, 4, 2.776),
            (0.05, 9, 2.262),
            (0.05, 30, 2.042),
            (0.01, 2, 9.925),
            (0.001, 1, 636.619),
            (0.001, 10, 4.587),
            (0.05 / 6.0, 4, 4.851),
            (0.05 / 6.0, 20, 2.927),
        ] {
            let found = two_sided(alpha, freedom);
            assert!((found / t - 1.0).abs() < 2e-4, "{alpha} {freedom}: {found} where {t} is right");
        }
        assert!((normal_two_sided(0.05) - 1.959_964).abs() < 1e-3);
        assert_eq!(two_sided(0.05, 0), f64::INFINITY);
    }
}
