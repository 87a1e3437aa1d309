//! Scheduling of threads: their urgency, the resources that are withheld from them, and the lateness of the scheduler.

mod control;
mod control_group;
mod job;
mod memory_limit;
mod urgency;

pub use control::{Control, PERIOD as CONTROL_PERIOD};
#[cfg(test)]
pub(crate) use control_group::lift;
pub use control_group::{ControlGroup, LiftedQuotas, lift_quotas};
pub use job::Job;
pub use memory_limit::MemoryLimit;
pub use urgency::Urgency;
