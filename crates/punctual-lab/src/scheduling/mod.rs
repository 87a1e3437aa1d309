//! What the scheduler gives to threads: how urgent they are, what is withheld from them, and how late it is.

mod control;
mod urgency;
mod withheld;

pub use control::Control;
pub use urgency::Urgency;
pub use withheld::{Quotas, Steal, Throttled, certain_steal_ns};
