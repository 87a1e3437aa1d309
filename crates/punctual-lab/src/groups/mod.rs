//! Vehicles that drive from cell to cell of a map, in the group of the cell that each is in: `docs/groups.md`.

mod clear;
mod outcome;
mod scenario;
mod testbed;

pub use outcome::{GroupsOutcome, Passage};
pub use scenario::{MapCell, Move, Scenario, ScenarioError};
pub use testbed::{GroupsMedium, run};
