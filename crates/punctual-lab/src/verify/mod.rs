//! Whether a fix helped: the cells of a run again, with and without it in turn, and what is late with it that was not before.
//!
//! `fix` says what each fix changes, of the command or of the host, and takes it back · `again` makes the command of a run from its
//! plan · `outlier` compares who was late and why.

pub mod again;
pub mod fix;
pub mod outlier;
