//! What the scheduler gives to threads: how urgent they are, what is withheld from them, and how late it is.

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
