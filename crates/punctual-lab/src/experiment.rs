//! The experiments by name: the report of each on a summary, on a terminal and on the page.

use crate::report::section::Section;
use crate::report::text::Screen;
use crate::report::{self, Headline};
use crate::store::{Run, StoreError};
use crate::summary::Summary;
use crate::{broadcast, oneway, peel, response, server, survey, vehicles, wakeup};

/// All that is to be said.
pub fn sections(summary: &Summary) -> Vec<Section> {
    match summary.experiment.as_str() {
        "survey" => survey::sections(summary),
        "broadcast" => broadcast::overview::sections(summary),
        "response" => response::overview::sections(summary),
        "oneway" => oneway::sections(summary),
        "vehicles" => vehicles::overview::sections(summary),
        "peel" => peel::overview::sections(summary),
        "server" => server::overview::sections(summary),
        "wakeup" => wakeup::sections(summary),
        _ => report::parts::summary(summary),
    }
}

/// The same as text.
pub fn text(summary: &Summary, screen: Screen) -> String {
    report::text::page(&sections(summary), screen)
}

/// Of the cells of an experiment that measures several things, which say how fast it is, and what they are.
fn headline(summary: &Summary) -> Option<Headline> {
    match summary.experiment.as_str() {
        "wakeup" => {
            Some(Headline { wake: "w2r_any", words: "from the notification until the reader is awake" })
        }
        "response" => Some(Headline { wake: "round_trip", words: "a packet there and back" }),
        "oneway" => Some(Headline { wake: "round_trip", words: "there and back" }),
        _ => None,
    }
}

/// The page of a run.
///
/// # Errors
/// A file of samples that was readable when the run was opened no longer is.
pub fn page(run: &Run) -> Result<String, StoreError> {
    let summary = run.summarise()?;
    report::render(run, &summary, &sections(&summary), headline(&summary))
}
