//! The tables: results with a strip that shows the spread, and the stalls.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas};
use super::cells::Cell;
use super::scale::{Log, short};
use super::{View, condition, escape};
use crate::table::{grouped, micros, rate, tail_texts};

const STRIP_WIDTH: f64 = 270.0;
const STRIP_HEIGHT: f64 = 18.0;
/// Stalls listed; all are counted.
const STALLS_MAX: usize = 20;

/// The first view in full sight, every other condition folded away.
pub(super) fn table(page: &mut String, cells: &[Cell], views: &[View<'_>]) {
    let scale = Log::covering(
        cells
            .iter()
            .flat_map(|c| [c.result.figures.min, c.result.figures.max_answered])
            .flatten()
            .map(|ns| ns as f64),
        4.0,
        STRIP_WIDTH - 8.0,
    );
    for (place, view) in views.iter().enumerate() {
        let _ = write!(page, "<section><h2>Results <small>{}</small></h2>", escape(&view.title));
        if place == 0 {
            page.push_str(
                "<p class=\"say\">Times in µs. In each strip the thin line runs from the fastest message to the slowest, \
                 the bar from p50 to p99, the tick marks p99.9 and the ring the slowest.</p>",
            );
        }
        rows(page, &view.cells, scale, false);
        page.push_str("</section>\n");
    }
    let shown = |cell: &&Cell| views.iter().any(|v| v.cells.iter().any(|c| std::ptr::eq(*c, *cell)));
    let mut rest: Vec<&Cell> = cells.iter().filter(|c| !shown(c)).collect();
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

fn rows(page: &mut String, cells: &[&Cell], scale: Log, with_conditions: bool) {
    page.push_str("<div class=\"wide\"><table><thead><tr><th>wake</th>");
    if with_conditions {
        page.push_str("<th class=\"l\">conditions</th><th>gap</th>");
    }
    page.push_str("<th>count</th><th>lost</th><th>min</th><th>p50</th><th>p90</th><th>p99</th><th>p99.9</th><th>max</th><th>stalls</th><th>per min</th>");
    let _ = write!(page, "<th class=\"strip\">{}</th></tr></thead><tbody>", strip_axis(scale));
    let mut engines: Vec<&str> = Vec::new();
    for cell in cells {
        if !engines.contains(&cell.id().engine.as_str()) {
            engines.push(&cell.id().engine);
        }
    }
    for engine in engines {
        let columns = if with_conditions { 14 } else { 12 };
        let _ = write!(page, "<tr class=\"engine\"><td colspan=\"{columns}\">{}</td></tr>", escape(engine));
        for cell in cells.iter().filter(|c| c.id().engine == engine) {
            row(page, cell, scale, with_conditions);
        }
    }
    page.push_str("</tbody></table></div>");
}

fn row(page: &mut String, cell: &Cell, scale: Log, with_conditions: bool) {
    let (id, result) = (cell.id(), &cell.result);
    let _ = write!(page, "<tr><td>{}</td>", escape(&id.wake));
    if with_conditions {
        let _ = write!(page, "<td class=\"l\">{}</td><td>{}</td>", escape(&id.conditions()), id.gap());
    }
    let count = grouped(i64::try_from(result.figures.count).unwrap_or(i64::MAX));
    let lost = if result.lost > 0 { " class=\"bad\"" } else { " class=\"none\"" };
    let _ = write!(page, "<td>{count}</td><td{lost}>{}</td>", result.lost);
    let _ = write!(page, "<td>{}</td>", result.figures.min.map_or("–".to_owned(), |ns| micros(ns as f64)));
    for (place, text) in tail_texts(result).iter().enumerate() {
        let class = match text.as_str() {
            "–" => " class=\"none\"",
            "∞" => " class=\"bad\"",
            _ if place == 0 => " class=\"p50\"",
            _ => "",
        };
        let _ = write!(page, "<td{class}>{text}</td>");
    }
    let none = if result.stalls == 0 { " class=\"none\"" } else { "" };
    let per_minute = result.stalls_per_minute.map_or("–".to_owned(), rate);
    let _ = write!(page, "<td{none}>{}</td><td class=\"none\">{per_minute}</td>", result.stalls);
    let _ = write!(page, "<td class=\"strip c{}\">{}</td></tr>", cell.colour, strip(cell, scale));
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

fn strip(cell: &Cell, scale: Log) -> String {
    let figures = &cell.result.figures;
    let mut canvas = Canvas::fixed(STRIP_WIDTH, STRIP_HEIGHT);
    for ns in scale.ticks() {
        canvas.line("rule soft", (scale.at(ns), 0.0), (scale.at(ns), STRIP_HEIGHT));
    }
    let middle = STRIP_HEIGHT / 2.0;
    let at = |ns: u64| scale.at(ns as f64);
    if let (Some(min), Some(max)) = (figures.min, figures.max_answered) {
        canvas.line("wk", (at(min), middle), (at(max), middle));
        if let Some(p50) = figures.p50 {
            let end = at(figures.p99.or(figures.p90).unwrap_or(p50));
            canvas.rect("fill", (at(p50), middle - 4.0), ((end - at(p50)).max(2.5), 8.0), "p50 to p99");
        }
        if let Some(p999) = figures.p999 {
            canvas.line("wk", (at(p999), middle - 5.0), (at(p999), middle + 5.0));
        }
        canvas.dot("ring", (at(max), middle), 3.0, "slowest");
    }
    canvas.finish()
}

/// The longest of them, of all cells.
pub(super) fn stalls(page: &mut String, cells: &[Cell]) {
    let mut all: Vec<_> =
        cells.iter().flat_map(|c| c.stalls.iter().map(move |(trial, stall)| (c, *trial, stall))).collect();
    page.push_str("<section><h2>Stalls</h2>");
    if all.is_empty() {
        page.push_str("<p class=\"say\">No message was late enough to be one.</p></section>\n");
        return;
    }
    let messages: u64 = all.iter().map(|(_, _, stall)| stall.messages).sum();
    all.sort_by_key(|(_, _, stall)| std::cmp::Reverse(stall.longest_ns));
    let count = |n: u64| grouped(i64::try_from(n).unwrap_or(i64::MAX));
    let _ = write!(
        page,
        "<p class=\"say\">Messages released at the same instant waited for the same thing. {} late messages are {} stalls; \
         the longest first.</p><div class=\"wide\"><table><thead><tr><th>route</th><th class=\"l\">conditions</th><th>gap</th><th>trial</th>\
         <th>released at, s</th><th>first message</th><th>messages</th><th>longest, µs</th></tr></thead><tbody>",
        count(messages),
        count(all.len() as u64)
    );
    for (cell, trial, stall) in all.iter().take(STALLS_MAX) {
        let id = cell.id();
        let _ = write!(
            page,
            "<tr><td>{}</td><td class=\"l\">{}</td><td>{}</td><td>{trial}</td><td>{:.6}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&id.name),
            escape(&id.conditions()),
            id.gap(),
            stall.release_ns as f64 / 1e9,
            count(stall.first_index),
            stall.messages,
            micros(stall.longest_ns as f64)
        );
    }
    page.push_str("</tbody></table></div>");
    if all.len() > STALLS_MAX {
        let _ = write!(
            page,
            "<p class=\"say\">… and {} shorter ones.</p>",
            count((all.len() - STALLS_MAX) as u64)
        );
    }
    page.push_str("</section>\n");
}
