//! Histograms for plots. Results never come from here: they are exact.

use hdrhistogram::Histogram;

/// Latencies from `low_ns` up to but not including `high_ns`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Lower edge.
    pub low_ns: f64,
    /// Upper edge.
    pub high_ns: f64,
    /// Messages in it.
    pub count: u64,
}

/// Two significant figures: finer than a plot can show.
const FIGURES: u8 = 2;

/// Logarithmic bins, `per_decade` of them in each, from the least latency to the greatest.
///
/// # Panics
/// If `per_decade` is 0.
pub fn bins(latencies_ns: &[u64], per_decade: u32) -> Vec<Bin> {
    assert!(per_decade > 0, "a decade has at least one bin");
    let mut histogram = Histogram::<u64>::new(FIGURES).expect("two figures are within hdrhistogram's limits");
    for &ns in latencies_ns {
        histogram.record(ns.max(1)).expect("the histogram resizes itself");
    }
    let mut bins: Vec<Bin> = Vec::new();
    for step in histogram.iter_recorded() {
        let place = (step.value_iterated_to() as f64).log10() * f64::from(per_decade);
        let low_ns = edge(place.floor(), per_decade);
        match bins.last_mut() {
            Some(bin) if bin.low_ns >= low_ns => bin.count += step.count_since_last_iteration(),
            _ => bins.push(Bin {
                low_ns,
                high_ns: edge(place.floor() + 1.0, per_decade),
                count: step.count_since_last_iteration(),
            }),
        }
    }
    bins
}

fn edge(place: f64, per_decade: u32) -> f64 {
    10f64.powf(place / f64::from(per_decade))
}
