//! Peel: the same ping at every layer, in turns, and each layer's cost as a difference with an interval; apart from these,
//! what is paid once at the start. The authors' hunt through their own layers, as one command.
//!
//! ```text
//! layer       what there is to peel, and the mistakes that can be made on purpose
//! startup     a fresh process, timed step by step
//!   │
//! experiment  rounds of all layers in turn; starts with and without each mistake in turn ─→ store (overall)
//!   │
//! analysis    costs with intervals, the part of the whole that they explain, where each mistake shows (start_fix: what a fix does
//!             about it)
//!   │
//! overview    ─→ sections for terminal and page
//! ```

pub mod analysis;
pub mod experiment;
pub mod layer;
pub mod overall;
pub mod overview;
pub mod start_fix;
pub mod startup;
