//! What the scheduler gives to threads: how urgent they are, what is withheld from them, and how late it is.

mod control;
mod job;
mod quota_group;
mod urgency;

pub use control::Control;
pub use job::Job;
pub use quota_group::{LiftedQuotas, QuotaGroup, lift_quotas};
pub use urgency::Urgency;
