//! `punctual survey`.

use punctual_machine::signal::count_continuations;

use super::measure;
use super::progress::progress;
use crate::error::Failure;
use crate::run::Common;
use crate::survey::{SurveyOptions, SurveyPlan};

/// Measures, stores, recommends, reports.
pub fn survey(options: &SurveyOptions) -> Result<(), Failure> {
    count_continuations()?;
    let plan = SurveyPlan::survey(options);
    if plan.cells.is_empty() {
        return Err(Failure::Usage(nothing_left(options)));
    }
    measure::make(&plan, &options.common, &progress(options.common.quiet))
}

/// The wish that leaves nothing to measure.
fn nothing_left(options: &SurveyOptions) -> String {
    let only = options.only.as_deref().unwrap_or_default();
    let common = Common { gap: None, load: None, ..options.common.clone() };
    if SurveyPlan::survey(&SurveyOptions { common, ..options.clone() }).cells.is_empty() {
        let mut names = Vec::new();
        for cell in SurveyPlan::survey(&SurveyOptions::default()).cells {
            let (engine, wake) = cell.route.names();
            let name = format!("{engine}/{wake}");
            if !names.contains(&name) {
                names.push(name);
            }
        }
        return format!("--only {only}: no route has that in its name; there are {}", names.join(", "));
    }
    let of = if only.is_empty() { String::new() } else { format!(" of --only {only}") };
    let text = "gaps are 0, 100us and 1ms, loads closed and open; not every route has each";
    format!("nothing is left to measure{of} (--gap, --load): {text}")
}
