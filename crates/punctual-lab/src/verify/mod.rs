//! Verification of a fix: the cells of a run again, with and without it in turn, and the lateness that appears only with it.
//!
//! `fix` says what each fix changes, of the command or of the host, and takes it back. `again` makes the command of a run from its
//! plan. `start` makes that of a run of `run peel`, whose starts alternate by themselves. `binding` reads when symbols of a program are
//! bound. `advice` says which fixes a run takes. `outlier` compares late threads and their causes.

pub mod advice;
pub mod again;
pub mod binding;
pub mod fix;
pub mod outlier;
pub mod start;
