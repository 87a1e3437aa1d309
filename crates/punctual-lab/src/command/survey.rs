//! `punctual survey`.

use clap::Args;
use punctual_machine::signal::count_continuations;

use super::measure;
use super::progress::progress;
use crate::error::Failure;
use crate::run::Common;
use crate::survey::{SurveyOptions, SurveyPlan};

/// Options of the survey.
#[derive(Debug, Default, Args)]
pub struct SurveyArguments {
    /// What all that measure have in common
    #[command(flatten)]
    pub common: Common,
    /// Messages of 64 B only, in about 15 s
    #[arg(long)]
    pub quick: bool,
    /// Only routes whose name contains this, such as shared/ or /spin
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Record which thread each processor ran, for punctual explain (root)
    #[arg(long)]
    pub trace: bool,
}

/// Measures, stores, recommends, reports.
pub fn survey(arguments: &SurveyArguments) -> Result<(), Failure> {
    count_continuations()?;
    let plan = plan(arguments)?;
    measure::make(&plan, &arguments.common, &progress(arguments.common.quiet))
}

fn plan(arguments: &SurveyArguments) -> Result<SurveyPlan, Failure> {
    let common = &arguments.common;
    let wishes = SurveyOptions {
        quick: arguments.quick,
        duration: common.duration,
        count: common.count.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
        gap_us: common.gap.map(|gap| u64::try_from(gap.as_micros()).unwrap_or(u64::MAX)),
        load: common.load.map(Into::into),
        only: arguments.only.clone(),
        trace: arguments.trace,
    };
    let plan = SurveyPlan::survey(&wishes);
    if plan.cells.is_empty() {
        let text = "nothing is left to measure: gaps are 0, 100us and 1ms, loads closed and open, routes as in the table";
        return Err(Failure::Usage(format!("{text} (--gap, --load, --only)")));
    }
    Ok(plan)
}
