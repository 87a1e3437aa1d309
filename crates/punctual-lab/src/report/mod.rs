//! Sections as data (`section`, `parts`), as text (`text`), and as one self-contained HTML page from the store: no network, no
//! script, no asset. No experiment is named here.

mod canvas;
mod cells;
mod charts;
pub mod code;
pub mod draw;
mod facts;
mod figures;
mod html;
mod ladder;
mod late;
pub mod parts;
mod scale;
pub mod section;
mod startup;
pub mod text;

use std::fmt::Write as _;

use crate::sample::{CellId, Kind, Load};
use crate::store::{Run, StoreError};
use crate::summary::Summary;
use crate::terminal::printable_character;
use cells::PageCell;
pub use facts::Headline;
use section::Section;

const CSS: &str = include_str!("page.css");
/// Routes drawn per chart; the tables hold all.
pub(crate) const ROUTES_MAX: usize = 24;

/// The page, with what the experiment itself has to say. Figures that the stored summary lacks are computed from the samples.
///
/// # Errors
/// A file of samples that was readable when the run was opened no longer is.
pub fn render(
    run: &Run,
    summary: &Summary,
    own: &[Section],
    headline: Option<Headline>,
) -> Result<String, StoreError> {
    let cells = cells::load(run, summary)?;
    let late = late::longest(&cells);
    let mut page = String::with_capacity(1 << 18);
    let title = format!("{} · {}", escape(&summary.experiment), escape(&summary.started));
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title>\n<style>{CSS}</style></head>\n<body><main><div>\n"
    );
    facts::head(&mut page, summary, &cells, &late, headline);
    let is_end = |section: &&Section| section.title == parts::DOUBTS || section.title == parts::SKIPPED;
    let own: Vec<Section> = own.iter().filter(|section| !is_end(section)).cloned().collect();
    html::sections(&mut page, &own);
    figures_of(&mut page, &cells);
    html::sections(&mut page, &[late::section(&late)]);
    let ending = parts::doubts(&doubts(run, summary)).into_iter().chain(parts::skipped(&summary.skipped));
    html::sections(&mut page, &ending.collect::<Vec<_>>());
    facts::foot(&mut page, summary);
    page.push_str("</div></main></body></html>\n");
    Ok(page)
}

/// Figures that every experiment has: the table of results, and the pictures of them.
fn figures_of(page: &mut String, cells: &[PageCell]) {
    let views = views(cells);
    figures::table(page, cells, &views);
    let (first, others) = views.split_at(views.len().min(1));
    for view in first {
        charts_of(page, view);
    }
    if !others.is_empty() {
        page.push_str("<details><summary>The same three pictures under other conditions</summary>");
        for view in others {
            charts_of(page, view);
        }
        page.push_str("</details>");
    }
    charts::gaps(page, cells);
    charts::stages(page, cells);
}

/// Those of the summary, and what became wrong with the files since.
fn doubts(run: &Run, summary: &Summary) -> Vec<crate::doubt::Doubt> {
    let mut doubts = summary.doubts.clone();
    doubts.extend(run.doubts.iter().filter(|d| !summary.doubts.contains(d)).cloned());
    doubts
}

/// Routes measured under one condition, which makes them comparable.
pub(crate) struct View<'a> {
    pub(crate) title: String,
    pub(crate) cells: Vec<&'a PageCell>,
}

type Condition = (bool, Kind, Load, usize, u64);

fn condition(cell: &CellId) -> Condition {
    (cell.neighbour, cell.kind, cell.load, cell.size, cell.gap_us)
}

/// Per kind and load, the condition under which most routes were measured.
fn views(cells: &[PageCell]) -> Vec<View<'_>> {
    let mut views = Vec::new();
    for (kind, load) in
        [Kind::RoundTrip, Kind::OneWay].into_iter().flat_map(|k| [(k, Load::Closed), (k, Load::Open)])
    {
        let of_kind: Vec<&PageCell> =
            cells.iter().filter(|c| c.id().kind == kind && c.id().load == load).collect();
        let size = |wanted: Condition| of_kind.iter().filter(|c| condition(c.id()) == wanted).count();
        let mut conditions_seen: Vec<Condition> = of_kind.iter().map(|c| condition(c.id())).collect();
        conditions_seen.sort_unstable();
        conditions_seen.dedup();
        // The last of equals is kept by `max_by_key`: reversed, the smallest gap.
        let Some(chosen) = conditions_seen.into_iter().rev().max_by_key(|&c| size(c)) else { continue };
        let cells: Vec<&PageCell> = of_kind.into_iter().filter(|c| condition(c.id()) == chosen).collect();
        let id = cells[0].id();
        views.push(View { title: format!("{} · gap {}", id.conditions(), id.gap()), cells });
    }
    views
}

fn charts_of(page: &mut String, view: &View<'_>) {
    let condition = escape(&view.title);
    let _ = write!(page, "<section><h2>Where the time lies <small>{condition}</small></h2>");
    charts::ridges(page, view);
    page.push_str("</section>");
    let _ = write!(page, "<section><h2>How late the late ones are <small>{condition}</small></h2>");
    ladder::percentiles(page, view);
    page.push_str("</section>");
    let _ = write!(page, "<section><h2>From the first message on <small>{condition}</small></h2>");
    startup::panels(page, view);
    page.push_str("</section>");
}

/// Text from outside, made harmless in elements and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(printable_character(c)),
        }
    }
    safe
}
