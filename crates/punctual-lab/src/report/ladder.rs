//! Percentile curves: every step to the right is ten times rarer.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas, spread};
use super::cells::PageCell;
use super::scale::{Log, exact};
use super::{View, escape};

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 236.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 250.0;
const BOTTOM: f64 = 210.0;
/// Labels of the axis by nines.
const NINES: [&str; 7] = ["0", "90", "99", "99.9", "99.99", "99.999", "99.9999"];

/// A panel per engine, a curve per wake, on common axes.
pub(super) fn percentiles(page: &mut String, view: &View<'_>) {
    let ladders = || view.cells.iter().flat_map(|c| c.ladder.iter());
    let nines = ladders().map(|p| p.0).fold(1.0, f64::max).ceil();
    let highest = view.cells.iter().filter_map(|c| c.result.figures.max_answered).map(|ns| ns as f64);
    let scale = Log::covering(ladders().map(|p| p.1).chain(highest), BOTTOM, 8.0);
    page.push_str(
        "<p class=\"say\">Latency at each percentile; a step to the right is ten times rarer. A curve ends where fewer than ten \
         samples lie beyond, or where messages were lost; the ring is the slowest answer.</p><div class=\"grid\">",
    );
    let mut engines: Vec<&str> = view.cells.iter().map(|c| c.id().engine.as_str()).collect();
    engines.dedup();
    for (place, engine) in engines.iter().enumerate() {
        if engines[..place].contains(engine) {
            continue;
        }
        let cells: Vec<&PageCell> = view.cells.iter().copied().filter(|c| c.id().engine == *engine).collect();
        let _ = write!(
            page,
            "<figure><figcaption>{}</figcaption>{}</figure>",
            escape(engine),
            panel(&cells, scale, nines)
        );
    }
    page.push_str("</div>");
}

fn panel(cells: &[&PageCell], scale: Log, nines: f64) -> String {
    let mut canvas = Canvas::new(WIDTH, HEIGHT, "latency by percentile");
    canvas.time_up(scale, LEFT, RIGHT);
    let x = |n: f64| LEFT + n / nines * (RIGHT - LEFT - 16.0);
    for (place, label) in NINES.iter().enumerate().take_while(|(place, _)| *place as f64 <= nines) {
        let at = x(place as f64);
        canvas.line("rule soft", (at, 8.0), (at, BOTTOM));
        canvas.text("", (at, BOTTOM + 17.0), Anchor::Middle, label);
    }
    let mut ends = Vec::new();
    for cell in cells {
        let points: Vec<(f64, f64)> = cell.ladder.iter().map(|&(n, ns)| (x(n), scale.at(ns))).collect();
        canvas.path(&format!("wk c{}", cell.colour), &points, false);
        if let Some(max) = cell.result.figures.max_answered {
            let tip = format!("{}: slowest answer {}", cell.id().name, exact(max as f64));
            canvas.dot(&format!("ring c{}", cell.colour), (RIGHT - 4.0, scale.at(max as f64)), 3.2, &tip);
        }
        for &at in points.iter().skip(6).step_by(12) {
            canvas.mark(cell.colour, at, &cell.id().wake);
        }
        ends.extend(points.last().map(|end| (*cell, end.1)));
    }
    let wanted: Vec<f64> = ends.iter().map(|e| e.1).collect();
    for ((cell, _), y) in ends.iter().zip(spread(&wanted, 13.0, 12.0, BOTTOM)) {
        canvas.mark(cell.colour, (RIGHT + 8.0, y), &cell.id().wake);
        canvas.text(
            &format!("lab c{}", cell.colour),
            (RIGHT + 15.0, y + 4.0),
            Anchor::Start,
            &cell.id().wake,
        );
    }
    canvas.finish()
}
