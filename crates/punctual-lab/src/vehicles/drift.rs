//! Drift of periods: the change of a publisher's lateness over a run.

use std::collections::HashMap;
use std::time::Duration;

use punctual::{Clock, Ticks};

use super::value::{Origin, Record};
use crate::stats::middle;

/// By how much the mean period of a component deviates from `period`, parts per million; the largest of all. Between the
/// first quarter of its values and the last, by the medians of their lateness: one value that is late is not a drift.
pub(super) fn drift_ppm<'a>(
    records: impl Iterator<Item = &'a Record>,
    period: Duration,
    count: usize,
) -> f64 {
    let mut sent: HashMap<(u16, u16), Vec<Option<Ticks>>> = HashMap::new();
    for record in records {
        let Origin { vehicle, component, number } = record.value.origin;
        let instants = sent.entry((vehicle, component)).or_insert_with(|| vec![None; count]);
        if let Some(instant) = instants.get_mut(number as usize) {
            *instant = Some(record.value.sent);
        }
    }
    sent.values().map(|instants| deviation_ppm(instants, period).abs()).fold(0.0, f64::max)
}

/// Of one component's values, by their numbers.
fn deviation_ppm(instants: &[Option<Ticks>], period: Duration) -> f64 {
    let clock = Clock::get();
    let period_ns = period.as_nanos() as f64;
    let known = || instants.iter().enumerate().filter_map(|(number, &instant)| Some((number, instant?)));
    let Some((_, origin)) = known().next() else { return 0.0 };
    let lateness: Vec<(f64, f64)> = known()
        .map(|(number, instant)| {
            let due_ns = number as f64 * period_ns;
            (due_ns, clock.nanos(instant.since(origin)) as f64 - due_ns)
        })
        .collect();
    if lateness.len() < 2 {
        return 0.0;
    }
    let quarter = lateness.len().div_ceil(4);
    let (from, to) = (medians(&lateness[..quarter]), medians(&lateness[lateness.len() - quarter..]));
    (to.1 - from.1) / (to.0 - from.0) * 1e6
}

/// Medians of when values were due, and of how late they were.
fn medians(values: &[(f64, f64)]) -> (f64, f64) {
    let median = |of: fn(&(f64, f64)) -> f64| middle(values.iter().map(of).collect()).unwrap_or(0.0);
    (median(|value| value.0), median(|value| value.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);

    fn instants(ns: impl Fn(u64) -> u64) -> Vec<Option<Ticks>> {
        let at = |number: u64| Ticks(1 << 40).plus(Clock::get().ticks(Duration::from_nanos(ns(number))));
        (0..600).map(|number| Some(at(number))).collect()
    }

    /// Goal: a period that is too long by 50 µs is found, one value that is late by 60 ms is not taken for one, whichever.
    #[test]
    fn a_drift_is_no_lateness() {
        let drifts = deviation_ppm(&instants(|number| number * 100_050_000), PERIOD);
        assert!((drifts - 500.0).abs() < 1.0, "{drifts}");
        for late in [0, 1, 300, 599] {
            let late = |number| number * 100_000_000 + if number == late { 60_000_000 } else { 0 };
            let drifts = deviation_ppm(&instants(late), PERIOD);
            assert!(drifts.abs() < 0.1, "{drifts}");
        }
    }

    #[test]
    fn of_too_little_nothing_is_said() {
        assert!(deviation_ppm(&[None; 5], PERIOD).abs() < f64::EPSILON);
        assert!(deviation_ppm(&[None, Some(Ticks(5)), None], PERIOD).abs() < f64::EPSILON);
        let two = deviation_ppm(&instants(|number| number * 100_000_000)[..2], PERIOD);
        assert!(two.abs() < 0.1, "{two}");
    }
}
