//! The table of results, with a strip that shows the spread.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas};
use super::cells::PageCell;
use super::html::{cell_html, place_for};
use super::parts::tail_texts;
use super::scale::{Log, short};
use super::{View, condition, escape};
use crate::distinct::distinct;
use crate::units::{count, dash, micros_or_dash, rate};

const STRIP_WIDTH: f64 = 270.0;
const STRIP_HEIGHT: f64 = 18.0;

/// The first view in full sight, every other condition folded away.
pub(super) fn table(page: &mut String, cells: &[PageCell], views: &[View<'_>]) {
    let scale = Log::covering(cells.iter().flat_map(PageCell::reached_ns), 4.0, STRIP_WIDTH - 8.0);
    for (place, view) in views.iter().enumerate() {
        let _ = write!(page, "<section><h2>Results <small>{}</small></h2>", escape(&view.title));
        if place == 0 {
            page.push_str(
                "<p class=\"say\">Times in µs. In each strip the thin line runs from the fastest message to the latest, the bar \
                 from p50 to p99, the tick marks p99.9 and the ring the slowest answer. Messages without an answer stand at \
                 their age. Infinite figures, as messages were lost, end at the right.</p>",
            );
        }
        rows(page, &view.cells, scale, false);
        page.push_str("</section>\n");
    }
    let shown = |cell: &&PageCell| views.iter().any(|v| v.cells.iter().any(|c| std::ptr::eq(*c, *cell)));
    let mut rest: Vec<&PageCell> = cells.iter().filter(|c| !shown(c)).collect();
    if !rest.is_empty() {
        rest.sort_by_key(|c| condition(c.id()));
        let _ = write!(
            page,
            "<details><summary>{} more cells: other gaps, sizes and loads</summary>",
            rest.len()
        );
        rows(page, &rest, scale, true);
        page.push_str("</details>\n");
    }
}

fn rows(page: &mut String, cells: &[&PageCell], scale: Log, with_conditions: bool) {
    let letters = [14, 7, 4, 6, 6, 6, 6, 6, 7, 4, 5, STRIP_WIDTH as usize / 8];
    let _ = write!(page, "<table class=\"{}\"><thead><tr><th class=\"l\">wake</th>", place_for(&letters));
    FIGURES.iter().for_each(|head| {
        let _ = write!(page, "<th>{head}</th>");
    });
    let _ = write!(page, "<th class=\"strip\">{}</th></tr></thead><tbody>", strip_axis(scale));
    // Conditions stand above the rows that share them: a column of them would not fit.
    let above = |cell: &PageCell| match (cell.id(), with_conditions) {
        (id, true) => format!("{} · {} · gap {}", id.engine, id.conditions(), id.gap()),
        (id, false) => id.engine.clone(),
    };
    for group in distinct(cells.iter().map(|cell| above(cell))) {
        let (columns, name) = (letters.len(), escape(&group));
        // Where rows are stacked there is no head: the axis of the strips stands here instead.
        let axis = format!("<span class=\"axis\">{}</span>", strip_axis(scale));
        let _ = write!(page, "<tr class=\"engine\"><td colspan=\"{columns}\">{name}{axis}</td></tr>");
        cells.iter().filter(|cell| above(cell) == group).for_each(|cell| row(page, cell, scale));
    }
    page.push_str("</tbody></table>");
}

/// Heads of the figures.
const FIGURES: [&str; 10] =
    ["count", "lost", "min", "p50", "p90", "p99", "p99.9", "max", "stalls", "per min"];

fn row(page: &mut String, cell: &PageCell, scale: Log) {
    let (id, result) = (cell.id(), &cell.result);
    page.push_str("<tr>");
    cell_html(page, "l key", "", &escape(&id.wake));
    let faint_if = |yes: bool| if yes { "none" } else { "" };
    let lost = if result.lost > 0 { "bad" } else { "none" };
    let mut shown = vec![("", count(result.figures.count)), (lost, result.lost.to_string())];
    shown.push(("", micros_or_dash(result.figures.min)));
    shown.extend(tail_texts(result).into_iter().enumerate().map(|(place, text)| {
        let class = match text.as_str() {
            "–" => "none",
            "∞" => "bad",
            _ if place == 0 => "p50",
            _ => "",
        };
        (class, text)
    }));
    shown.push((faint_if(result.stalls == 0), count(result.stalls)));
    shown.push(("none", result.stalls_per_minute.map_or_else(dash, rate)));
    for ((class, text), head) in shown.iter().zip(FIGURES) {
        cell_html(page, class, head, text);
    }
    cell_html(page, &format!("strip c{}", cell.colour), "", &strip(cell, scale));
    page.push_str("</tr>");
}

fn strip_axis(scale: Log) -> String {
    let mut canvas = Canvas::fixed(STRIP_WIDTH, STRIP_HEIGHT);
    let mut free_from = f64::NEG_INFINITY;
    for ns in scale.ticks() {
        if scale.at(ns) > free_from && scale.at(ns) < STRIP_WIDTH - 20.0 {
            canvas.text("", (scale.at(ns), 13.0), Anchor::Middle, &short(ns));
            free_from = scale.at(ns) + 40.0;
        }
    }
    canvas.finish()
}

fn strip(cell: &PageCell, scale: Log) -> String {
    let figures = &cell.result.figures;
    let mut canvas = Canvas::fixed(STRIP_WIDTH, STRIP_HEIGHT);
    for ns in scale.ticks() {
        canvas.line("rule soft", (scale.at(ns), 0.0), (scale.at(ns), STRIP_HEIGHT));
    }
    let middle = STRIP_HEIGHT / 2.0;
    let reached = || cell.reached_ns().map(|ns| scale.at(ns));
    let (first, last) = (reached().fold(f64::INFINITY, f64::min), reached().fold(0.0, f64::max));
    if first <= last {
        canvas.line("wk", (first, middle), (last, middle));
    }
    let [p50, p90, p99, p999, _] = figures.tail_ns();
    if let Some(p50) = p50.map(|ns| scale.at(ns)) {
        let ends = [(p99, "p50 to p99"), (p90, "p50 to p90")];
        let (end, tip) =
            ends.into_iter().find_map(|(ns, tip)| Some((scale.at(ns?), tip))).unwrap_or((p50, "p50"));
        canvas.rect("fill", (p50, middle - 4.0), ((end - p50).max(2.5), 8.0), tip);
    }
    if let Some(p999) = p999.map(|ns| scale.at(ns)) {
        canvas.line("wk", (p999, middle - 5.0), (p999, middle + 5.0));
    }
    if let Some(max) = figures.max_answered {
        canvas.dot("ring", (scale.at(max as f64), middle), 3.0, "slowest answer");
    }
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CellId, Outcome, Phase, Samples};
    use crate::stats::{Distribution, bins};
    use crate::summary::CellResult;

    /// Goal: everything that is drawn lies within its scale. Messages without an answer do too, which are older than every answer, also
    /// where others were lost and there is no max. Method: a fifth of all have no answer at a hundred times the age of the others.
    #[test]
    fn an_unanswered_message_is_within_the_scale() {
        for lost in [0, 1] {
            let mut samples = Samples::default();
            for index in 1..=2_000_u64 {
                let (ns, outcome) = match index {
                    2_000 if lost > 0 => (0, Outcome::Lost),
                    index if index % 5 == 0 => (1_000_000 + index, Outcome::Unfinished),
                    index => (10_000 + index, Outcome::Answered),
                };
                samples.push(index, index, index, ns, outcome);
            }
            let all = [samples];
            let result = CellResult::of(&CellId::new("shared", "spin"), &all, 0);
            let bins = bins(Distribution::of(&all, Phase::Steady, 0).finite_ns(), 24);
            let oldest = bins.last().expect("messages").high_ns;
            let cell = PageCell { result, colour: 0, bins, ladder: vec![], start: vec![], stalls: vec![] };
            let scale = Log::covering(cell.reached_ns(), 0.0, 100.0);
            assert!(scale.at(1_000_000.0) < 100.0 && scale.at(oldest) < 100.0, "lost: {lost}");
            assert!(scale.at(1_000_000.0) > scale.at(12_000.0) + 50.0, "lost: {lost}");
            let strip = strip(&cell, Log::covering(cell.reached_ns(), 4.0, STRIP_WIDTH - 8.0));
            assert!(strip.contains("slowest answer") && strip.contains("p50 to p99"), "{strip}");
        }
    }
}
