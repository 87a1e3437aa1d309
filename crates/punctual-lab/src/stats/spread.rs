//! Spread of values.

/// Squared distances from the means of groups, and how many of them are free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Squares {
    sum: f64,
    pub(crate) freedom: usize,
}

impl Squares {
    /// Of one group about its mean.
    pub(crate) fn of(values: &[f64]) -> Self {
        let about = mean(values);
        Self {
            sum: values.iter().map(|value| (value - about).powi(2)).sum(),
            freedom: values.len().saturating_sub(1),
        }
    }

    /// Of several groups, each about its own mean.
    pub(crate) fn of_groups<'a>(groups: impl IntoIterator<Item = &'a [f64]>) -> Self {
        groups.into_iter().map(Self::of).fold(Self::default(), |all, one| Self {
            sum: all.sum + one.sum,
            freedom: all.freedom + one.freedom,
        })
    }

    /// The standard deviation; 0 where nothing is known.
    pub(crate) fn deviation(self) -> f64 {
        (self.sum / self.freedom.max(1) as f64).sqrt()
    }
}

/// 0 of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
