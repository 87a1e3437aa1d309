//! Record of a run: its timeline, what chance made happen, and how much was done and checked.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::plan::Fault;
use crate::time::Nanos;

/// Lines of a timeline that are kept: the last ones.
pub const LINES_MAX: usize = 400;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, by the true time.
    pub at: Nanos,
    /// To which node; `None` if to none.
    pub node: Option<u16>,
    /// The event, in words.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>14.6} ms  ", self.at.0 as f64 / 1e6)?;
        match self.node {
            Some(node) => write!(f, "node {node:<3}")?,
            None => f.write_str("        ")?,
        }
        write!(f, " {}", self.text)
    }
}

/// Kept of one run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    timeline: Option<VecDeque<Line>>,
    hits: Option<Vec<Fault>>,
    /// Messages that were sent.
    pub messages: u64,
    /// Checks that were made and held.
    pub checks: u64,
}

impl Record {
    /// Keeps the counts only.
    pub fn counts() -> Self {
        Self::default()
    }

    /// Keeps the last [`LINES_MAX`] lines of a timeline too.
    pub fn timeline() -> Self {
        Self { timeline: Some(VecDeque::new()), ..Self::default() }
    }

    /// Keeps what chance made happen, each as a fault of its own.
    pub(super) fn chance() -> Self {
        Self { hits: Some(Vec::new()), ..Self::default() }
    }

    /// Adds a line, if lines are kept.
    pub fn note(&mut self, at: Nanos, node: Option<u16>, text: impl FnOnce() -> String) {
        let Some(lines) = &mut self.timeline else { return };
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(Line { at, node, text: text() });
    }

    pub(super) fn hit(&mut self, fault: Fault) {
        if let Some(hits) = &mut self.hits {
            hits.push(fault);
        }
    }

    pub(super) fn into_hits(self) -> Vec<Fault> {
        self.hits.unwrap_or_default()
    }

    /// The timeline.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.timeline.iter().flatten()
    }
}
