//! Distributions side by side, latency against the idle gap, and where the time goes.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas, spread};
use super::cells::PageCell;
use super::html::draw;
use super::scale::{Log, Upwards, exact, short};
use super::{ROUTES_MAX, View, escape};
use crate::distinct::distinct;
use crate::sample::{CellId, Kind};
use crate::stats::UNEXPLAINED;
use crate::units::micros;

/// Width of a drawing, and of its names: for a screen, and for a phone.
#[derive(Clone, Copy)]
struct Frame {
    width: f64,
    names: f64,
    /// Room at the right of the rows.
    after: f64,
}

const SCREEN: Frame = Frame { width: 1060.0, names: 168.0, after: 70.0 };
const PHONE: Frame = Frame { width: 340.0, names: 124.0, after: 14.0 };

const ROW_HEIGHT: f64 = 30.0;
/// Height to which a ridge may rise, into the row above.
const RIDGE_HEIGHT: f64 = 38.0;
const STAGE_ROW: f64 = 28.0;
/// Classes s0 to s9 of the page.
const STAGE_COLOURS: usize = 10;

/// One ridge per route on a common scale of time.
pub(super) fn ridges(page: &mut String, view: &View<'_>) {
    let _ = write!(
        page,
        "<p class=\"say\">Height is the square root of the share of messages, so that rare ones show. The mark is p50, \
         the ring the slowest answer; beyond it lie messages without an answer, at their age.{}</p>",
        left_out(view.cells.len(), ROUTES)
    );
    draw(page, &ridges_in(SCREEN, view), &ridges_in(PHONE, view));
}

fn ridges_in(frame: Frame, view: &View<'_>) -> String {
    let cells: Vec<&PageCell> = view.cells.iter().copied().take(ROUTES_MAX).collect();
    let right = frame.width - frame.after;
    let scale = Log::covering(cells.iter().flat_map(|cell| cell.reached_ns()), frame.names, right);
    let bottom = 16.0 + cells.len() as f64 * ROW_HEIGHT;
    let mut canvas = Canvas::new(frame.width, bottom + 22.0, "distribution of latency per route");
    canvas.time_across(scale, 8.0, bottom);
    for (place, cell) in cells.iter().enumerate() {
        let y = 12.0 + (place + 1) as f64 * ROW_HEIGHT;
        canvas.text("name", (0.0, y - 4.0), Anchor::Start, &cell.id().name);
        canvas.line("rule", (frame.names, y), (right, y));
        ridge(&mut canvas, cell, scale, y);
        if cell.result.lost > 0 {
            canvas.text("warn", (frame.width, y - 2.0), Anchor::End, &format!("{} lost", cell.result.lost));
        }
    }
    canvas.finish()
}

fn ridge(canvas: &mut Canvas, cell: &PageCell, scale: Log, y: f64) {
    let total: u64 = cell.bins.iter().map(|b| b.count).sum();
    let Some(most) = cell.bins.iter().map(|b| b.count).max() else { return };
    let mut points = Vec::new();
    let mut edge = f64::NEG_INFINITY;
    for bin in &cell.bins {
        if bin.low_ns > edge * 1.001 {
            points.extend([(scale.at(edge.max(0.1)), y), (scale.at(bin.low_ns), y)]);
        }
        let top = y - (bin.count as f64 / most as f64).sqrt() * (RIDGE_HEIGHT - 6.0);
        points.extend([(scale.at(bin.low_ns), top), (scale.at(bin.high_ns), top)]);
        edge = bin.high_ns;
    }
    points.push((scale.at(edge), y));
    points.remove(0);
    canvas.path(&format!("fill half c{}", cell.colour), &points, true);
    canvas.path(&format!("wk c{}", cell.colour), &points, false);
    let colour = format!("c{}", cell.colour);
    if let Some(p50) = cell.result.figures.p50 {
        let x = scale.at(p50 as f64);
        canvas.line(&format!("wk {colour}"), (x, y - 2.0), (x, y + 5.0));
        canvas.mark(cell.colour, (x, y - 4.0), &format!("{}: p50 {}", cell.id().name, exact(p50 as f64)));
    }
    if let Some(max) = cell.result.figures.max_answered {
        let tip = format!("{}: slowest answer of {total} messages {}", cell.id().name, exact(max as f64));
        canvas.dot(&format!("ring {colour}"), (scale.at(max as f64), y), 3.2, &tip);
    }
}

/// Text where not all of so many are drawn.
pub(super) fn left_out(all: usize, [one, many]: [&str; 2]) -> String {
    match all.saturating_sub(ROUTES_MAX) {
        0 => String::new(),
        1 => format!(" 1 more {one} is not drawn."),
        more => format!(" {more} more {many} are not drawn."),
    }
}

/// Of routes it is this.
pub(super) const ROUTES: [&str; 2] = ["route", "routes"];

/// Places of figures among p50 … max.
const P50: usize = 0;
const P99: usize = 2;

/// p50 and p99 against the gap, a panel per engine, a line per wake.
pub(super) fn gaps(page: &mut String, cells: &[PageCell]) {
    let mut panels: Vec<(String, Vec<&PageCell>)> = Vec::new();
    for cell in cells {
        let id = cell.id();
        let title = format!("{}|{}", id.engine, id.conditions());
        match panels.iter_mut().find(|(t, _)| *t == title) {
            Some((_, members)) => members.push(cell),
            None => panels.push((title, vec![cell])),
        }
    }
    panels.retain(|(_, members)| gaps_of(members).len() > 1);
    if panels.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<section><h2>What idleness costs</h2><p class=\"say\">Latency against the idle gap before the message: p50 as a line, \
         p99 dashed. A waiter that sleeps pays for its sleep. A line ends where there is no figure, as too few messages came, or \
         where it is infinite, as too many were lost.{}</p><div class=\"grid\">",
        left_out(panels.len(), ["group", "groups"])
    );
    let all: Vec<&PageCell> = panels.iter().flat_map(|(_, m)| m.iter().copied()).collect();
    for (title, members) in panels.iter().take(ROUTES_MAX) {
        let (engine, conditions) = title.split_once('|').unwrap_or((title, ""));
        let _ = write!(
            page,
            "<figure><figcaption>{}<span>{}</span></figcaption>{}</figure>",
            escape(engine),
            escape(conditions),
            gap_panel(members, &all)
        );
    }
    page.push_str("</div></section>\n");
}

fn gaps_of(cells: &[&PageCell]) -> Vec<u64> {
    let mut gaps: Vec<u64> = cells.iter().map(|c| c.id().gap_us).collect();
    gaps.sort_unstable();
    gaps.dedup();
    gaps
}

fn gap_panel(cells: &[&PageCell], all: &[&PageCell]) -> String {
    let (width, height, left, right, bottom) = (340.0, 220.0, 46.0, 250.0, 196.0);
    let tails = all.iter().flat_map(|c| [P50, P99].map(|place| c.result.figures.tail_ns()[place]));
    let upwards = Upwards::covering(tails.flatten(), bottom, 8.0);
    let mut canvas = Canvas::new(width, height, "latency against idle gap");
    canvas.up(upwards, (left, right), short);
    let gaps = gaps_of(cells);
    let label = |gap_us| CellId { gap_us, ..cells[0].id().clone() }.gap().replace(' ', "");
    let x = |place: usize| left + 14.0 + place as f64 * (right - left - 28.0) / (gaps.len() - 1) as f64;
    for (place, &gap_us) in gaps.iter().enumerate() {
        canvas.text("", (x(place), bottom + 17.0), Anchor::Middle, &label(gap_us));
    }
    let mut ends: Vec<(usize, &str, f64)> = Vec::new();
    let mut wakes: Vec<&str> = cells.iter().map(|c| c.id().wake.as_str()).collect();
    wakes.dedup();
    wakes.sort_unstable();
    wakes.dedup();
    for wake in wakes {
        let mut line: Vec<&&PageCell> = cells.iter().filter(|c| c.id().wake == wake).collect();
        line.sort_by_key(|c| c.id().gap_us);
        let points = |figure: usize| -> Vec<(usize, f64)> {
            let place = |cell: &PageCell| gaps.iter().position(|&gap_us| gap_us == cell.id().gap_us);
            let point = |cell: &&&PageCell| Some((place(cell)?, cell.result.figures.tail_ns()[figure]?));
            line.iter().filter_map(point).collect()
        };
        let colour = line[0].colour;
        for (figure, class) in [(P99, "wk thin"), (P50, "wk")] {
            for part in upwards.joined(&points(figure), x) {
                canvas.path(&format!("{class} c{colour}"), &part, false);
            }
        }
        for (place, ns) in points(P50) {
            canvas.mark(colour, (x(place), upwards.at(ns)), wake);
        }
        // A dashed line has no marks, but for what it cannot reach.
        for (place, ns) in points(P99).into_iter().filter(|(_, ns)| ns.is_infinite()) {
            canvas.mark(colour, (x(place), upwards.at(ns)), &format!("{wake}: p99 ∞"));
        }
        ends.extend(points(P50).last().map(|&(_, ns)| (colour, wake, upwards.at(ns))));
    }
    let wanted: Vec<f64> = ends.iter().map(|e| e.2).collect();
    for ((colour, wake, _), y) in ends.iter().zip(spread(&wanted, 13.0, 12.0, bottom)) {
        canvas.mark(*colour, (right + 8.0, y), wake);
        canvas.text(&format!("lab c{colour}"), (right + 15.0, y + 4.0), Anchor::Start, wake);
    }
    canvas.finish()
}

/// The share of each stage, stacked; time that no stamp accounts for is hatched.
pub(super) fn stages(page: &mut String, cells: &[PageCell]) {
    let is_stamped = |c: &&PageCell| !c.result.stages.is_empty();
    // Round trips show both ways; beside them a one-way row would repeat half of each.
    let has_both = cells.iter().filter(is_stamped).any(|c| c.id().kind == Kind::RoundTrip);
    let is_shown = |c: &&PageCell| is_stamped(c) && (c.id().kind == Kind::RoundTrip || !has_both);
    let stamped = || cells.iter().filter(is_shown);
    // One condition: closed load before open, 64 bytes before other sizes, the shortest gap.
    let condition = |c: &PageCell| (c.id().load, c.id().size != 64, c.id().size, c.id().gap_us);
    let Some(chosen) = stamped().map(condition).min() else { return };
    let mut staged: Vec<&PageCell> = stamped().filter(|c| condition(c) == chosen).collect();
    let left_out = left_out(staged.len(), ROUTES);
    staged.truncate(ROUTES_MAX);
    let known = staged.iter().flat_map(|c| &c.result.stages).filter(|s| s.name != UNEXPLAINED);
    let names = distinct(known.map(|stage| both_ways(&stage.name)));
    let _ = write!(
        page,
        "<section><h2>Where the time goes</h2><p class=\"say\">Share of each stage in the time of answered messages, with its \
         median in µs where there is room; at the right the mean of the whole. Hatched: what no stamp accounts for.{left_out}</p>\
         <div class=\"key-of-colours\">"
    );
    for (place, name) in names.iter().enumerate() {
        let colour = place % STAGE_COLOURS;
        let _ =
            write!(page, "<span><i style=\"background:var(--s{colour})\"></i><b>{}</b></span>", escape(name));
    }
    page.push_str("</div>");
    draw(page, &stage_bars(SCREEN, &staged, &names), &stage_bars(PHONE, &staged, &names));
    page.push_str("</section>");
}

/// A stage's name without its way: there and back have one colour, in the order of the bar.
fn both_ways(name: &str) -> &str {
    name.trim_start_matches("request.").trim_start_matches("reply.")
}

fn stage_bars(frame: Frame, cells: &[&PageCell], names: &[&str]) -> String {
    let mut canvas = Canvas::new(frame.width, cells.len() as f64 * STAGE_ROW + 6.0, "share of each stage");
    canvas.hatch();
    for (place, cell) in cells.iter().enumerate() {
        stage_bar(&mut canvas, frame, cell, names, 4.0 + place as f64 * STAGE_ROW);
    }
    canvas.finish()
}

fn stage_bar(canvas: &mut Canvas, frame: Frame, cell: &PageCell, names: &[&str], y: f64) {
    let id = cell.id();
    let name = if (id.gap_us, id.gap_rest_ns) == (0, 0) {
        id.name.clone()
    } else {
        format!("{} · {}", id.name, id.gap())
    };
    canvas.text("name", (0.0, y + 15.0), Anchor::Start, &name);
    let (left, right) = (frame.names + 8.0, frame.width - 62.0);
    let mut x = left;
    for stage in &cell.result.stages {
        let width = stage.share.clamp(0.0, 1.0) * (right - left);
        let class = names.iter().position(|n| *n == both_ways(&stage.name));
        let class = class.map_or("su".to_owned(), |place| format!("s{}", place % STAGE_COLOURS));
        let median = micros(stage.median_ns as f64);
        let tip = format!("{}: median {median} µs, {:.1} % of the time", stage.name, stage.share * 100.0);
        canvas.rect(&class, (x, y), ((width - 0.8).max(0.4), 22.0), &tip);
        if width > 34.0 && stage.name != UNEXPLAINED {
            canvas.text("on", (x + width / 2.0, y + 15.0), Anchor::Middle, &median);
        }
        x += width;
    }
    if let Some(mean) = cell.result.figures.mean {
        canvas.text("value", (frame.width, y + 15.0), Anchor::End, &exact(mean));
    }
}
