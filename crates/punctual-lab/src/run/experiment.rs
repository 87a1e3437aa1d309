//! An experiment with what was asked of it: a command parses that, and has it made.

use indicatif::ProgressBar;
use serde_json::Value;

use super::RunError;
use crate::scheduling::Urgency;
use crate::store::{Store, StoreError};
use crate::summary::Summary;

/// What the header of a run says of its experiment.
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
    /// What its trials bring beside the store.
    type Made: Send;

    /// What is said where messages were lost.
    const BROKEN: &'static str;

    /// What the header says.
    fn plan(&self) -> RunPlan;

    /// Classes that measuring threads have, as `--sched` names them.
    fn schedulers(&self) -> Vec<String> {
        vec![Urgency::Other.to_string()]
    }

    /// Makes all trials, in a thread that may leave for another network namespace. Each is in the store before the next.
    ///
    /// # Errors
    /// What the machine lacks; a store that cannot be written.
    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<Self::Made, RunError>;

    /// What the store says, and what only this experiment knows.
    ///
    /// # Errors
    /// The store cannot be read.
    fn summarise(&self, made: &Self::Made, store: &Store) -> Result<Summary, StoreError>;

    /// Why nothing was measured, or not all of it, though trials were made: nobody was there to answer.
    fn in_vain(&self, _made: &Self::Made) -> Option<String> {
        None
    }

    /// Whether what must hold held.
    ///
    /// # Errors
    /// Which promise did not, in words.
    fn promise(&self, summary: &Summary, _made: &Self::Made) -> Result<(), String> {
        if summary.kept_promises() { Ok(()) } else { Err(Self::BROKEN.to_owned()) }
    }
}
