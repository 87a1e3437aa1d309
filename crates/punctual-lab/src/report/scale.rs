//! Logarithmic scales of time, and of numbers.

use crate::units::micros;

/// Maps nanoseconds to pixels by their logarithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    low_ln: f64,
    high_ln: f64,
    from: f64,
    to: f64,
}

impl Log {
    /// Covers the values with a little air; a single value gets a decade.
    pub(crate) fn covering(values_ns: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values_ns
            .filter(|v| v.is_finite() && *v > 0.0)
            .fold((f64::INFINITY, 0f64), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low.is_finite() { (low * 0.85, high * 1.18) } else { (100.0, 10_000.0) };
        let high = high.max(low * 4.0);
        Self { low_ln: low.ln(), high_ln: high.ln(), from, to }
    }

    pub(crate) fn at(self, ns: f64) -> f64 {
        let place = (ns.max(0.1).ln() - self.low_ln) / (self.high_ln - self.low_ln);
        self.from + place.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values inside: powers of ten, or 1-2-5 where few of them fit.
    pub(crate) fn ticks(self) -> Vec<f64> {
        let decades = (self.high_ln - self.low_ln) / std::f64::consts::LN_10;
        let steps: &[f64] = if decades < 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = (self.low_ln / std::f64::consts::LN_10).floor() as i32;
        (first..first + 22)
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|ns| ns.ln() >= self.low_ln && ns.ln() <= self.high_ln)
            .collect()
    }
}

/// A scale upwards for figures of which some are infinite, or nothing: they stand on lines of their own, above and below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upwards {
    pub(crate) scale: Log,
    /// Where what is infinite stands.
    pub(crate) infinity: Option<f64>,
    /// Where what is nothing stands.
    pub(crate) zero: Option<f64>,
    top: f64,
    bottom: f64,
}

/// Distance of such a line from the scale.
const APART: f64 = 16.0;

impl Upwards {
    /// Covers the values between the bottom and the top of a drawing.
    pub(crate) fn covering(values: impl Iterator<Item = f64> + Clone, bottom: f64, top: f64) -> Self {
        let infinity = values.clone().any(|value| value == f64::INFINITY).then_some(top);
        let zero = values.clone().any(|value| value <= 0.0).then_some(bottom);
        let from = bottom - if zero.is_some() { APART } else { 0.0 };
        let to = top + if infinity.is_some() { APART } else { 0.0 };
        Self { scale: Log::covering(values, from, to), infinity, zero, top, bottom }
    }

    pub(crate) fn at(self, value: f64) -> f64 {
        if value == f64::INFINITY {
            self.top
        } else if value <= 0.0 {
            self.bottom
        } else {
            self.scale.at(value)
        }
    }

    /// The parts of a curve that may be joined: a step without a figure breaks it, as does one that no scale reaches.
    pub(crate) fn joined(self, points: &[(usize, f64)], x: impl Fn(usize) -> f64) -> Vec<Vec<(f64, f64)>> {
        let is_on_scale = |value: f64| value.is_finite() && value > 0.0;
        let on_scale: Vec<(usize, f64)> =
            points.iter().copied().filter(|&(_, value)| is_on_scale(value)).collect();
        let parts = on_scale.chunk_by(|one, other| one.0 + 1 == other.0);
        parts.map(|part| part.iter().map(|&(step, value)| (x(step), self.at(value))).collect()).collect()
    }
}

/// A tick as short as it can be: 50 ns, 1 µs, 20 ms, 1 s.
pub(crate) fn short(ns: f64) -> String {
    let (value, unit) = match ns {
        n if n < 999.0 => (n, "ns"),
        n if n < 999e3 => (n / 1e3, "µs"),
        n if n < 999e6 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if value.fract().abs() < 0.05 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// A number as short as it can be: 0.5, 20, 3k, 1.5M.
pub(crate) fn short_number(number: f64) -> String {
    let (value, unit) = match number {
        n if n < 999.0 => (n, ""),
        n if n < 999e3 => (n / 1e3, "k"),
        n if n < 999e6 => (n / 1e6, "M"),
        n => (n / 1e9, "G"),
    };
    if value.fract().abs() < 0.05 { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

/// As in the tables, with its unit.
pub(crate) fn exact(ns: f64) -> String {
    format!("{} µs", micros(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no line is drawn through what has no figure, and what is infinite, or nothing, is told from the largest and the smallest.
    #[test]
    fn curves_end_where_figures_do() {
        let points =
            [(0, 10.0), (1, 20.0), (3, 30.0), (4, f64::INFINITY), (5, 40.0), (6, 0.0), (7, 10.0), (8, 50.0)];
        let scale = Upwards::covering(points.iter().map(|point| point.1), 200.0, 10.0);
        let steps: Vec<Vec<f64>> = scale
            .joined(&points, |step| step as f64)
            .iter()
            .map(|part| part.iter().map(|at| at.0).collect())
            .collect();
        assert_eq!(steps, [vec![0.0, 1.0], vec![3.0], vec![5.0], vec![7.0, 8.0]]);
        assert!(scale.at(f64::INFINITY) + 10.0 < scale.at(50.0), "infinity stands above");
        assert!(scale.at(0.0) - 10.0 > scale.at(10.0), "nothing stands below");
        let finite = Upwards::covering([10.0, 50.0].into_iter(), 200.0, 10.0);
        assert!(finite.infinity.is_none() && finite.zero.is_none());
    }
}
