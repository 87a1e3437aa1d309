//! Members that are killed or stopped under load, come back as new lives, and must be told one sequence.
//!
//! `log` is the record of each process; `member` broadcasts, delivers and writes; `history` checks all logs; `figures` says how long
//! nothing was delivered and how long a return took; `overview` shows it.

mod figures;
mod history;
pub(super) mod log;
pub(super) mod member;
mod overview;
mod trial;

pub(super) use figures::make;
pub(super) use overview::sections;
pub use trial::{DisruptedTrial, DisruptionEvent};
