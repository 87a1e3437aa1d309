//! An experiment with what was asked of it: a command parses that, and has it made.

use indicatif::ProgressBar;
use serde_json::Value;

use super::RunError;
use crate::scheduling::Urgency;
use crate::store::{Store, StoreError};
use crate::summary::Summary;

/// Contents of the header of a run about its experiment.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Its name.
    pub name: &'static str,
    /// Messages of each cell that count as warm-up.
    pub warmup: u64,
    /// Processors that threads are bound to.
    pub cpus: Vec<usize>,
    /// Everything else, for people and scripts.
    pub described: Value,
}

/// An experiment with what was asked of it.
pub trait Experiment: Sync {
    /// Results of its trials besides the store.
    type Made: Send;

    /// Text for a run in which messages were lost.
    const BROKEN: &'static str;

    /// Contents of the header.
    fn plan(&self) -> RunPlan;

    /// Classes that measuring threads have, as `--sched` names them.
    fn schedulers(&self) -> Vec<String> {
        vec![Urgency::Other.to_string()]
    }

    /// True if the kernel's trace of its trials is asked for.
    fn is_traced(&self) -> bool {
        false
    }

    /// Makes all trials, in a thread that may leave for another network namespace. Each is in the store before the next.
    ///
    /// # Errors
    /// A feature that the machine lacks; a store that cannot be written.
    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<Self::Made, RunError>;

    /// Summary of the store, and of what only this experiment knows.
    ///
    /// # Errors
    /// The store cannot be read.
    fn summarise(&self, made: &Self::Made, store: &Store) -> Result<Summary, StoreError>;

    /// Why nothing was measured, or not all of it, though trials were made: nobody was there to answer.
    fn in_vain(&self, _summary: &Summary, _made: &Self::Made) -> Option<String> {
        None
    }

    /// Checks that the promises held.
    ///
    /// # Errors
    /// The promise that did not hold, in words.
    fn promise(&self, summary: &Summary, _made: &Self::Made) -> Result<(), String> {
        if summary.kept_promises() { Ok(()) } else { Err(Self::BROKEN.to_owned()) }
    }
}
