//! Vehicles that drive from cell to cell of a map, in the group of the cell that each is in: `docs/groups.md`.

mod clear;
mod outcome;
mod scenario;
mod testbed;

pub use outcome::{Outcome, Passage};
pub use scenario::{Cell, Move, Scenario, ScenarioError};
pub use testbed::{Medium, run};
