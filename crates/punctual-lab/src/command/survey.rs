//! `punctual survey`.

use punctual_machine::signal::count_continuations;

use super::measure;
use super::progress::progress;
use crate::error::Failure;
use crate::survey::{SurveyOptions, SurveyPlan};

/// Measures, stores, recommends, reports.
pub fn survey(options: &SurveyOptions) -> Result<(), Failure> {
    count_continuations()?;
    let plan = SurveyPlan::survey(options);
    if plan.cells.is_empty() {
        let text = "nothing is left to measure: gaps are 0, 100us and 1ms, loads closed and open, routes as in the table";
        return Err(Failure::Usage(format!("{text} (--gap, --load, --only)")));
    }
    measure::make(&plan, &options.common, &progress(options.common.quiet))
}
