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
