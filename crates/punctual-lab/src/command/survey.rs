//! `punctual survey`.

use punctual_machine::signal::count_continuations;

use super::measure;
use super::progress::progress;
use crate::distinct::distinct;
use crate::error::Failure;
use crate::run::Common;
use crate::survey::{SurveyOptions, SurveyPlan};

/// Measures, stores, recommends, reports.
pub fn survey(options: &SurveyOptions) -> Result<(), Failure> {
    if options.only.as_deref() == Some("") {
        let text = "--only '': a part of a route's name is needed, such as shared/";
        return Err(Failure::Usage(text.to_owned()));
    }
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
        let name = |(engine, wake)| format!("{engine}/{wake}");
        let all = SurveyPlan::survey(&SurveyOptions::default()).cells;
        let names = distinct(all.iter().map(|cell| name(cell.route.names())));
        return format!("--only {only}: no route has that in its name; there are {}", names.join(", "));
    }
    let of = if only.is_empty() { String::new() } else { format!(" of --only {only}") };
    let text = "gaps are 0, 100us and 1ms, loads closed and open; not every route has each";
    format!("nothing is left to measure{of} (--gap, --load): {text}")
}
