//! The page of `punctual run peel`: the layers as a staircase, what is paid once, where each mistake shows.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas};
use super::escape;
use crate::peel::analysis::{Cost, FIGURES, Part, SIGNALS, median};
use crate::peel::experiment::Overall;
use crate::peel::overview::{interval, overall};
use crate::peel::startup::StartUp;
use crate::summary::Summary;
use crate::table::{grouped, micros};

pub(super) fn sections(page: &mut String, summary: &Summary) {
    let Some(all) = overall(summary) else { return };
    layers(page, &all);
    starts(page, &all);
    ranked(page, &all);
    found(page, &all);
}

fn layers(page: &mut String, all: &Overall) {
    let _ = write!(
        page,
        "<section><h2>Layer by layer <small>round trip of 92 B over {}, µs; asleep: {}</small></h2><p class=\"say\">Each bar begins \
         where the layer below it ends; its whisker is the interval of the difference, taken within each round. {:.1} % of the \
         whole path's median, measured apart, is attributed to layers whose interval excludes zero.</p><div class=\"wide\">",
        all.medium.name(),
        escape(&all.wake),
        all.peeled.attributed * 100.0
    );
    page.push_str(&staircase(all));
    page.push_str(
        "</div><div class=\"wide\"><table><thead><tr><th>through</th><th>p50</th><th>adds</th><th>part</th><th class=\"l\">what it \
         adds</th></tr></thead><tbody>",
    );
    for cost in &all.peeled.costs {
        let part = if cost.found {
            format!("{:.1} %", cost.adds.ns / all.peeled.whole_ns * 100.0)
        } else {
            "≈ 0".to_owned()
        };
        let _ = write!(
            page,
            "<tr><td>{}</td><td class=\"p50\">{}</td><td>{}</td><td>{part}</td><td class=\"l none\">{}</td></tr>",
            cost.layer.name(),
            micros(cost.through_ns),
            interval(&cost.adds),
            cost.layer.adds(all.medium)
        );
    }
    let _ = write!(
        page,
        "<tr><td>whole</td><td class=\"p50\">{}</td><td></td><td>{:.1} %</td><td class=\"l none\">measured apart</td></tr></tbody></table></div>",
        micros(all.peeled.whole_ns),
        all.peeled.attributed * 100.0
    );
    if let Some(interrupted) = &all.interrupted {
        let _ = write!(
            page,
            "<p class=\"say\">With O_ASYNC from the start, the layer of asynchronous reception is interrupted {:.2} times per frame \
             ({:.2} without), and takes {} µs longer.</p>",
            interrupted.with_per_frame,
            interrupted.without_per_frame,
            interval(&interrupted.adds)
        );
    }
    page.push_str("</section>\n");
}

fn staircase(all: &Overall) -> String {
    let (width, row, left, right) = (1000.0, 30.0, 120.0, 960.0);
    let costs = &all.peeled.costs;
    let bottom = 10.0 + row * (costs.len() + 1) as f64;
    let reach = |cost: &Cost| cost.through_ns.max(cost.through_ns - cost.adds.ns + cost.adds.high_ns);
    let most = costs.iter().map(reach).fold(all.peeled.whole_ns, f64::max).max(1.0);
    let x = |ns: f64| left + ns.max(0.0) / most * (right - left);
    let mut canvas = Canvas::new(width, bottom + 26.0, "what each layer adds");
    for part in 0..=4 {
        let ns = most * f64::from(part) / 4.0;
        canvas.line("rule", (x(ns), 6.0), (x(ns), bottom));
        canvas.text("", (x(ns), bottom + 16.0), Anchor::Middle, &format!("{} µs", micros(ns)));
    }
    let mut begin = 0.0;
    for (place, cost) in costs.iter().enumerate() {
        let top = 10.0 + row * place as f64;
        let end = begin + cost.adds.ns;
        let (from, to) = (x(begin.min(end)), x(begin.max(end)));
        let class = if cost.found { format!("fill c{}", place % 10) } else { "fill half c7".to_owned() };
        let tip = format!("{}: {} µs", cost.layer.name(), interval(&cost.adds));
        canvas.rect(&class, (from, top + 5.0), ((to - from).max(1.5), row - 12.0), &tip);
        let middle = top + row / 2.0 - 1.0;
        let [low, high] = [cost.adds.low_ns, cost.adds.high_ns].map(|ns| x(begin + ns));
        canvas.line("wk", (low, middle), (high, middle));
        canvas.text("name", (left - 10.0, middle + 4.0), Anchor::End, cost.layer.name());
        begin = end;
    }
    let top = 10.0 + row * costs.len() as f64;
    canvas.rect(
        "fill half c7",
        (left, top + 5.0),
        (x(all.peeled.whole_ns) - left, row - 12.0),
        "the whole path",
    );
    canvas.text("name", (left - 10.0, top + row / 2.0 + 3.0), Anchor::End, "whole");
    canvas.finish()
}

fn starts(page: &mut String, all: &Overall) {
    if all.starts.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<section><h2>Paid once <small>fresh processes, medians of {} starts, µs</small></h2><p class=\"say\">None of this is in the \
         layers above. A column per mistake that was switched on; starts with and without it were taken in turn.</p>\
         <div class=\"wide\"><table><thead><tr><th>what</th><th>without</th>",
        all.starts.len()
    );
    for (culprit, _) in &all.starts_with {
        let _ = write!(page, "<th>{}</th>", culprit.name());
    }
    page.push_str("</tr></thead><tbody>");
    for (name, of) in FIGURES {
        let _ = write!(page, "<tr><td>{name}</td><td class=\"p50\">{}</td>", of_all(&all.starts, of));
        for (_, starts) in &all.starts_with {
            let _ = write!(page, "<td>{}</td>", of_all(starts, of));
        }
        page.push_str("</tr>");
    }
    let signals = |starts: &[StartUp]| {
        let counts = starts.iter().map(|start| start.signals_per_mille as f64);
        grouped(median(&mut counts.collect::<Vec<_>>()).round() as i64)
    };
    let _ = write!(page, "<tr><td>{SIGNALS}</td><td class=\"p50\">{}</td>", signals(&all.starts));
    for (_, starts) in &all.starts_with {
        let _ = write!(page, "<td>{}</td>", signals(starts));
    }
    page.push_str("</tr></tbody></table></div></section>\n");
}

/// What a start consists of, the longest first, and what its first message pays.
fn ranked(page: &mut String, all: &Overall) {
    for (title, parts) in [
        (
            "What a start consists of <small>until it is ready, the longest first, µs</small>",
            &all.until_ready,
        ),
        (
            "What the first message takes longer <small>than later ones, by its own stages, µs</small>",
            &all.first_message,
        ),
    ] {
        if parts.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "<section><h2>{title}</h2><div class=\"wide\"><table><thead><tr><th>what</th><th>takes</th><th>part</th></tr></thead><tbody>"
        );
        for Part { name, takes, part } in parts {
            let (takes, part) = (interval(takes), part * 100.0);
            let _ = write!(
                page,
                "<tr><td>{}</td><td class=\"p50\">{takes}</td><td>{part:.1} %</td></tr>",
                escape(name)
            );
        }
        page.push_str("</tbody></table></div></section>\n");
    }
}

fn of_all(starts: &[StartUp], of: fn(&StartUp) -> f64) -> String {
    if starts.is_empty() {
        "–".to_owned()
    } else {
        micros(median(&mut starts.iter().map(of).collect::<Vec<_>>()))
    }
}

fn found(page: &mut String, all: &Overall) {
    if all.found.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>The mistakes that were switched on</h2><div class=\"wide\"><table><thead><tr><th>mistake</th><th class=\"l\">shows \
         in</th><th>without</th><th>with</th><th class=\"l\">verdict</th></tr></thead><tbody>",
    );
    for found in &all.found {
        let shown = |value: f64| {
            if found.figure == SIGNALS {
                grouped(value.round() as i64)
            } else {
                format!("{} µs", micros(value))
            }
        };
        let (class, verdict) = if found.found { ("l", "found") } else { ("l bad", "not found") };
        let _ = write!(
            page,
            "<tr><td>{}</td><td class=\"l\">{}</td><td>{}</td><td class=\"p50\">{}</td><td class=\"{class}\">{verdict}</td></tr>",
            found.culprit.name(),
            escape(&found.figure),
            shown(found.without),
            shown(found.with)
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}
