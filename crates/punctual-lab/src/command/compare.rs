//! `punctual compare`.

use super::{print, store_failure, style};
use crate::cli::{CompareArguments, Failure};
use crate::compare::compare_runs;
use crate::store::Run;
use crate::table;

/// Compares two runs, cell by cell.
///
/// # Errors
/// See [`Failure`].
pub fn compare(arguments: &CompareArguments) -> Result<(), Failure> {
    let open = |path| Run::open(path).map_err(|error| store_failure(&error));
    let comparison =
        compare_runs(&open(&arguments.a)?, &open(&arguments.b)?).map_err(|error| store_failure(&error))?;
    if comparison.cells.is_empty() {
        return Err(Failure::Usage("the two runs have measured nothing in common".to_owned()));
    }
    print(&table::run_comparison(&comparison, style()))
}
