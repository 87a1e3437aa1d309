//! How far a comparison would move if the trials were taken again.
//!
//! A resample draws trials, then samples within them. Drawing N samples from a mixture of trials and taking
//! the k-th smallest is the same as drawing the k-th smallest of N uniform numbers and looking it up in the
//! mixture; so nothing is copied or sorted, and a resample costs a binary search.

/// Marsaglia's xorshift64*, so that a seed repeats a verdict everywhere.
#[derive(Clone, Debug)]
pub struct Xorshift(u64);

impl Xorshift {
    /// Any seed will do: seeds that differ little give unrelated sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mixed =
            (seed ^ (seed >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self((mixed ^ (mixed >> 31)).max(1))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In (0, 1).
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// In 0 … count − 1; uneven by less than count / 2⁶⁴.
    pub fn below(&mut self, count: usize) -> usize {
        let wide = u128::from(self.bits()) * count as u128;
        usize::try_from(wide >> 64).expect("less than count")
    }

    /// Mean 0, deviation 1 (Box–Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

/// How often each of `trials` was drawn.
pub(crate) fn draw(trials: usize, random: &mut Xorshift) -> Vec<u32> {
    let mut times = vec![0; trials];
    for _ in 0..trials {
        times[random.below(trials)] += 1;
    }
    times
}

/// Points of the common grid: all of the tail, and of the rest as many.
const TAIL_POINTS: usize = 1024;
const BODY_POINTS: usize = 3072;

/// The trials of one side on a common grid of values.
#[derive(Clone, Debug)]
pub(crate) struct Mixture {
    /// Ascending logarithms.
    grid_ln: Vec<f64>,
    /// Per trial, how many samples are at or below each grid point.
    at_or_below: Vec<Vec<u32>>,
    counts: Vec<u32>,
}

impl Mixture {
    /// Each trial sorted, its values positive.
    pub(crate) fn new(trials: &[Vec<f64>]) -> Self {
        let mut pooled: Vec<f64> = trials.iter().flatten().copied().collect();
        pooled.sort_unstable_by(f64::total_cmp);
        let body = pooled.len().saturating_sub(TAIL_POINTS);
        let step = body.div_ceil(BODY_POINTS).max(1);
        let mut grid: Vec<f64> = pooled[..body].iter().copied().skip(step - 1).step_by(step).collect();
        grid.extend_from_slice(&pooled[body..]);
        grid.dedup();
        let below = |trial: &Vec<f64>, value: f64| trial.partition_point(|&v| v <= value);
        let count = |n: usize| u32::try_from(n).expect("a trial has fewer than 2^32 messages");
        Self {
            at_or_below: trials.iter().map(|t| grid.iter().map(|&v| count(below(t, v))).collect()).collect(),
            counts: trials.iter().map(|t| count(t.len())).collect(),
            grid_ln: grid.iter().map(|v| v.ln()).collect(),
        }
    }

    /// Logarithm of the `fraction` quantile, the trials being drawn as often as `times` says.
    pub(crate) fn quantile_ln(&self, times: &[u32], fraction: f64) -> f64 {
        let needed = (fraction * self.total(times)).ceil().max(1.0);
        let enough = |place: usize| {
            let counts =
                self.at_or_below.iter().zip(times).map(|(below, &m)| f64::from(below[place]) * f64::from(m));
            counts.sum::<f64>() >= needed
        };
        let (mut low, mut high) = (0, self.grid_ln.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if enough(middle) { high = middle } else { low = middle + 1 }
        }
        self.grid_ln[low]
    }

    /// The same with the samples drawn again too: the rank of a quantile scatters like a binomial count.
    pub(crate) fn resampled_ln(&self, times: &[u32], fraction: f64, random: &mut Xorshift) -> f64 {
        let total = self.total(times);
        let scatter = (fraction * (1.0 - fraction) / total).sqrt();
        let drawn = (fraction + scatter * random.normal()).clamp(0.0, 1.0);
        self.quantile_ln(times, drawn)
    }

    fn total(&self, times: &[u32]) -> f64 {
        self.counts.iter().zip(times).map(|(&n, &m)| f64::from(n) * f64::from(m)).sum()
    }

    pub(crate) fn trials(&self) -> usize {
        self.counts.len()
    }
}

/// The standard deviation; 0 for fewer than two values.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}
