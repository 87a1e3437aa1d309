//! Where each message's time went.

mod recorder;
mod stages;

pub use recorder::{Record, Recorder};
pub use stages::{ReceiverStamps, Stage, Stages};
