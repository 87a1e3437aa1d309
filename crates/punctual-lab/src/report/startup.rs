//! Latency against message index, so that what only the start pays is seen as such.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas};
use super::cells::{Bucket, PageCell};
use super::charts::{ROUTES, left_out};
use super::scale::{Log, exact};
use super::{ROUTES_MAX, View, escape};
use crate::units::micros;

const WIDTH: f64 = 250.0;
const HEIGHT: f64 = 132.0;
const LEFT: f64 = 42.0;
const BOTTOM: f64 = 110.0;

/// A panel per route, on a common scale of time.
pub(super) fn panels(page: &mut String, view: &View<'_>) {
    let _ = write!(
        page,
        "<p class=\"say\">Latency against the index of the message, all trials together. The veil reaches from the fastest to the slowest \
         message of each bucket, so none is hidden; the line is the median of those that came, and × marks a bucket with a lost \
         one.{}</p><div class=\"grid three\">",
        left_out(view.cells.len(), ROUTES)
    );
    let cells: Vec<&PageCell> = view.cells.iter().copied().take(ROUTES_MAX).collect();
    let ends = cells.iter().flat_map(|c| c.start.iter()).flat_map(|b| [b.min_ns, b.max_ns]);
    let scale = Log::covering(ends, BOTTOM, 6.0);
    let last = cells.iter().filter_map(|c| c.start.last()).map(|b| b.index).fold(9.0, f64::max);
    for cell in cells {
        let first = cell.result.first_ns.iter().flatten().max();
        let first = first.map_or(String::new(), |&ns| format!("<span>first {} µs</span>", micros(ns as f64)));
        let _ = write!(
            page,
            "<figure class=\"c{}\"><figcaption style=\"color:var(--ink)\">{}{first}</figcaption>{}</figure>",
            cell.colour,
            escape(&cell.id().name),
            panel(cell, scale, last)
        );
    }
    page.push_str("</div>");
}

fn panel(cell: &PageCell, scale: Log, last: f64) -> String {
    let mut canvas = Canvas::new(WIDTH, HEIGHT, "latency by message index");
    canvas.time_up(scale, LEFT, WIDTH);
    let decades = (last + 1.0).log10();
    let x = |index: f64| LEFT + 4.0 + (index + 1.0).log10() / decades * (WIDTH - LEFT - 8.0);
    for (index, label) in
        [(0.0, "first"), (9.0, "10"), (99.0, "100"), (999.0, "1k"), (9999.0, "10k"), (99_999.0, "100k")]
    {
        if index <= last {
            canvas.text("", (x(index), BOTTOM + 15.0), Anchor::Middle, label);
        }
    }
    let answered: Vec<&Bucket> = cell.start.iter().filter(|b| b.median_ns.is_finite()).collect();
    let bars: Vec<(f64, f64, f64)> =
        answered.iter().map(|b| (x(b.index), scale.at(b.max_ns), scale.at(b.min_ns) + 0.5)).collect();
    canvas.bars("veil", &bars);
    // Where no message of a bucket came there is no median to join.
    for part in cell.start.split(|bucket| bucket.median_ns.is_nan()) {
        let medians: Vec<(f64, f64)> = part.iter().map(|b| (x(b.index), scale.at(b.median_ns))).collect();
        canvas.path("wk", &medians, false);
    }
    if let Some(worst) = answered.iter().max_by(|a, b| a.max_ns.total_cmp(&b.max_ns)) {
        let tip = format!("slowest {} near message {:.0}", exact(worst.max_ns), worst.index);
        canvas.dot("fill", (x(worst.index), scale.at(worst.max_ns)), 2.2, &tip);
    }
    for bucket in cell.start.iter().filter(|b| b.lost > 0) {
        canvas.text("warn", (x(bucket.index), 8.0), Anchor::Middle, "×");
    }
    canvas.finish()
}
