//! `punctual run vehicles`.

use super::measure;
use super::progress::progress;
use crate::error::Failure;
use crate::vehicles::option::{VehiclesArguments, VehiclesSettings};

/// Measures, stores, compares with the published tables.
pub fn vehicles(arguments: &VehiclesArguments) -> Result<(), Failure> {
    let settings = VehiclesSettings::of(arguments)?;
    measure::make(&settings, &arguments.common, &progress(arguments.common.quiet))
}
