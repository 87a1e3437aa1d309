//! Time as an argument: a reading of any clock that the caller has.

use core::ops::Sub;

/// A reading of the caller's clock, or a distance between two readings, nanoseconds. The clock must not run backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The latest reading there can be: *never*.
    pub const NEVER: Self = Self(u64::MAX);

    /// A distance of so many milliseconds.
    pub const fn from_millis(ms: u32) -> Self {
        Self(ms as u64 * 1_000_000)
    }

    /// A distance of so many microseconds.
    pub const fn from_micros(us: u32) -> Self {
        Self(us as u64 * 1_000)
    }

    /// The distance from `earlier` to this reading; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This reading, `distance` later.
    #[must_use]
    pub const fn plus(self, distance: Self) -> Self {
        Self(self.0.saturating_add(distance.0))
    }
}

/// From one reading to another, with its sign; a distance that does not fit becomes the nearest that does.
impl Sub for Nanos {
    type Output = i64;

    fn sub(self, other: Self) -> i64 {
        let distance = i128::from(self.0) - i128::from(other.0);
        i64::try_from(distance).unwrap_or(if distance < 0 { i64::MIN } else { i64::MAX })
    }
}
