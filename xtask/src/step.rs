//! A step of CI and what can become of it.

use std::fmt;

use crate::ci::Plan;

/// One check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Plan) -> Outcome,
}

/// Outcome of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// Passed, but for parts that could not run: which, and why.
    Partly(String),
    /// Not run: the missing condition, and the remedy.
    Skipped(String),
    Failed(String),
}

impl Outcome {
    pub(crate) fn of(result: Result<(), String>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Passed)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Partly(rest) => write!(f, "passed, but SKIPPED, NOT CHECKED: {rest}"),
            Self::Skipped(reason) => write!(f, "SKIPPED, NOT CHECKED: {reason}"),
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
        }
    }
}
