//! `punctual run response`.

use punctual_machine::signal::count_continuations;

use super::measure;
use super::progress::progress;
use crate::error::Failure;
use crate::response::settings::{ResponseArguments, ResponseSettings};

/// Measures, stores, explains.
pub fn response(arguments: &ResponseArguments) -> Result<(), Failure> {
    count_continuations()?;
    let settings = ResponseSettings::of(arguments)?;
    measure::make(&settings, &arguments.common, &progress(arguments.common.quiet))
}
