//! The page of `punctual run vehicles`: the published tables beside ours, every row as it is, the wake-up order, start-up,
//! the account.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas};
use super::escape;
use super::scale::Log;
use crate::stats::StageShare;
use crate::summary::{CellResult, Summary};
use crate::table::{grouped, micros};
use crate::vehicles::figures::Row;
use crate::vehicles::first::STEPS;
use crate::vehicles::overview::{
    Overall, STEPS_SAY, absence_words, absences, first_words, overall, slowest_firsts, stage_names,
};
use crate::vehicles::published::{PUBLISHED, rows};

pub(super) fn sections(page: &mut String, summary: &Summary) {
    let Some(all) = overall(summary) else { return };
    published(page, &all);
    honest(page, &all);
    stalls(page, summary, &all);
    places(page, &all);
    arrivals(page, &all);
    senders(page, &all);
    start_up(page, &all);
    firsts(page, &all);
    account(page, &all);
}

fn number(count: u64) -> String {
    grouped(count.cast_signed())
}

fn published(page: &mut String, all: &Overall) {
    let setting = format!(
        "{} vehicles, {} roadside, {} frames/s, {} over {}, {}, scheduling {}, {}",
        all.vehicles,
        all.roadside,
        grouped(all.frames_per_second.round() as i64),
        all.mode.name(),
        all.medium.name(),
        if all.seal { "sealed" } else { "not sealed" },
        all.urgency,
        if all.awake_us > 0.0 { "processors kept awake" } else { "processors as they are" }
    );
    let _ = write!(
        page,
        "<section><h2>By the rule of the published tables <small>{}; sent → received, µs</small></h2><p class=\"say\">The least; the \
         mean over receivers of each one's mean truncated to whole µs; the most. The last published table took its probe in the \
         callback, where a vehicle's own message needs no other thread, and without keys, so no tag: only callback mode without \
         seal compares with it.</p><div class=\"wide\"><table><thead><tr><th>messages</th><th class=\"l\">table</th><th>min</th>\
         <th>mean</th><th>max</th></tr></thead><tbody>",
        escape(&setting)
    );
    for name in ["socket", "shared", "sharedmem"] {
        let ours = rows(&all.runs, name);
        if ours.is_empty() {
            continue;
        }
        for row in PUBLISHED.iter().filter(|row| row.row == name && all.mode.is_mutual()) {
            let _ = write!(
                page,
                "<tr><td>{name}</td><td class=\"l none\">published, {}</td><td>{}</td><td>{:.2}</td><td>{}</td></tr>",
                row.table,
                row.min,
                row.mean,
                number(row.max)
            );
        }
        for (place, row) in ours.iter().enumerate() {
            let _ = write!(
                page,
                "<tr><td>{name}</td><td class=\"l\">ours, run {}</td><td>{}</td><td class=\"p50\">{:.2}</td><td>{}</td></tr>",
                place + 1,
                row.min_us,
                row.mean_us,
                number(row.max_us)
            );
        }
    }
    page.push_str("</tbody></table></div>");
    for standing in all.standings.iter().filter(|_| all.mode.is_mutual()) {
        let _ = write!(
            page,
            "<p class=\"say\">{}: below the last table with its mean in {} of {} runs, with its max in {}.</p>",
            standing.row, standing.mean_below, standing.runs, standing.max_below
        );
    }
    page.push_str("</section>\n");
}

fn honest(page: &mut String, all: &Overall) {
    page.push_str(
        "<section><h2>The same messages, none left out <small>sent → received, µs</small></h2><p class=\"say\">Sent late: mean \
         distance from due to sent. The published tables leave it out; the results further down count it in, as every open \
         load here does. Skipped: never sent, because its publisher slept through the instant; in the results as late as what \
         came instead.</p><div class=\"wide\"><table><thead><tr><th>messages</th><th>run</th><th>count</th><th>lost</th><th>skipped</th><th>mean</th>\
         <th>p50</th><th>p90</th><th>p99</th><th>p99.9</th><th>max</th><th>sent late</th></tr></thead><tbody>",
    );
    for (place, run) in all.runs.iter().enumerate() {
        for row in run.rows.iter().filter(|row| row.count + row.lost > 0) {
            honest_row(page, place + 1, row);
        }
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn honest_row(page: &mut String, run: usize, row: &Row) {
    let time = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| micros(ns as f64));
    let class = if row.lost > 0 { "bad" } else { "none" };
    let _ = write!(
        page,
        "<tr><td>{}</td><td>{run}</td><td>{}</td><td class=\"{class}\">{}</td><td>{}</td><td>{}</td><td class=\"p50\">{}</td>",
        escape(&row.name),
        number(row.count),
        row.lost,
        number(row.skipped),
        micros(row.pooled_mean_ns),
        time(row.p50_ns)
    );
    for ns in [row.p90_ns, row.p99_ns, row.p999_ns, Some(row.max_ns)] {
        let _ = write!(page, "<td>{}</td>", time(ns));
    }
    let _ = write!(page, "<td>{}</td></tr>", micros(row.late_mean_ns));
}

/// Where the time goes as figures, the longest stalls, and who did not run.
fn stalls(page: &mut String, summary: &Summary, all: &Overall) {
    let stamped: Vec<&CellResult> = summary.results.iter().filter(|r| !r.stages.is_empty()).collect();
    if !stamped.is_empty() {
        page.push_str(
            "<section><h2>Stage by stage <small>due → received, µs; part of all</small></h2><p class=\"say\">Medium: until the \
             receiver's kernel, or a receiver that was awake, had it. Elsewhere: the receiver did something else. Woken: it slept. \
             Delivered: from thread to thread.</p><div class=\"wide\"><table><thead><tr><th>stage</th>",
        );
        for result in &stamped {
            let _ = write!(page, "<th>{}</th><th>part</th>", escape(&result.cell.engine));
        }
        page.push_str("</tr></thead><tbody>");
        for name in stage_names(&stamped) {
            let _ = write!(page, "<tr><td>{}</td>", escape(name));
            for result in &stamped {
                stage_cells(page, result.stages.iter().find(|stage| stage.name == name));
            }
            page.push_str("</tr>");
        }
        page.push_str("</tbody></table></div></section>\n");
    }
    let absences: Vec<String> =
        absences(all).map(|(run, absence)| format!("run {}, {}", run + 1, absence_words(absence))).collect();
    if !absences.is_empty() {
        let words = escape(&absences.join(". "));
        let _ = writeln!(page, "<section><h2>Who did not run</h2><p class=\"say\">{words}.</p></section>");
    }
}

fn stage_cells(page: &mut String, stage: Option<&StageShare>) {
    let Some(stage) = stage else {
        page.push_str("<td>–</td><td>–</td>");
        return;
    };
    let (median, part) = (micros(stage.median_ns as f64), stage.share * 100.0);
    let _ = write!(page, "<td class=\"p50\">{median}</td><td>{part:.0} %</td>");
}

/// Within one message's fan-out, latency follows the place in the wake-up order.
fn places(page: &mut String, all: &Overall) {
    let runs: Vec<&Vec<u64>> =
        all.runs.iter().map(|run| &run.fan_out_ns).filter(|places| places.len() > 1).collect();
    if runs.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>The wake-up order <small>p50 of who has a message first, second, …</small></h2><p class=\"say\">One frame for \
         everybody wakes its receivers one after the other: a receiver's latency is mostly its place in that order. A line per \
         run.</p><div class=\"wide\">",
    );
    let (width, height, left, right, bottom) = (1000.0, 300.0, 52.0, 980.0, 266.0);
    let scale =
        Log::covering(runs.iter().flat_map(|places| places.iter().map(|&ns| ns as f64)), bottom, 10.0);
    let mut canvas = Canvas::new(width, height, "latency by place in the wake-up order");
    canvas.time_up(scale, left, right);
    let most = runs.iter().map(|places| places.len()).max().unwrap_or(2);
    let x = |place: usize| left + 24.0 + place as f64 * (right - left - 48.0) / (most - 1).max(1) as f64;
    for place in (0..most).step_by(most.div_ceil(30)) {
        canvas.text("", (x(place), bottom + 20.0), Anchor::Middle, &(place + 1).to_string());
    }
    for (run, places) in runs.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            places.iter().enumerate().map(|(place, &ns)| (x(place), scale.at(ns as f64))).collect();
        canvas.path(&format!("wk c{}", run % 10), &points, false);
        for (&at, &ns) in points.iter().zip(places.iter()) {
            canvas.dot(&format!("fill c{}", run % 10), at, 2.4, &format!("{} µs", micros(ns as f64)));
        }
    }
    page.push_str(&canvas.finish());
    page.push_str("</div></section>\n");
}

/// Every latency as it came, where one process receives.
fn arrivals(page: &mut String, all: &Overall) {
    let Some(run) = all.runs.iter().rev().find(|run| run.arrivals_ns.len() > 1) else { return };
    page.push_str(
        "<section><h2>In order of arrival <small>last run, one receiver</small></h2><p class=\"say\">Slow messages that fall in steps \
         are one stall of the receiver, not many slow messages; within a round, latency follows the order of sending.</p>\
         <div class=\"wide\">",
    );
    let (width, height, left, right, bottom) = (1000.0, 300.0, 52.0, 980.0, 276.0);
    let scale = Log::covering(run.arrivals_ns.iter().map(|&ns| ns as f64), bottom, 10.0);
    let mut canvas = Canvas::new(width, height, "latency in order of arrival");
    canvas.time_up(scale, left, right);
    let step = (right - left) / run.arrivals_ns.len() as f64;
    let bars = run.arrivals_ns.iter().enumerate();
    let bars: Vec<(f64, f64, f64)> =
        bars.map(|(place, &ns)| (left + place as f64 * step, scale.at(ns as f64), bottom)).collect();
    canvas.bars("wk c0", &bars);
    page.push_str(&canvas.finish());
    page.push_str("</div><details><summary>Each, with its sender</summary><p class=\"say\">");
    for (sender, ns) in run.arrival_senders.iter().zip(&run.arrivals_ns) {
        let _ = write!(page, "{sender}:&nbsp;{} ", micros(*ns as f64));
    }
    page.push_str("</p></details></section>\n");
}

fn senders(page: &mut String, all: &Overall) {
    let Some(run) = all.runs.iter().rev().find(|run| !run.senders.is_empty()) else { return };
    page.push_str(
        "<section><h2>By sender <small>last run, sent → received, µs</small></h2><p class=\"say\">The store names the sender of \
         each message in its column <code>sender</code>.</p><div class=\"wide\"><table><thead><tr><th>vehicle</th><th>count</th>\
         <th>min</th><th>p50</th><th>max</th></tr></thead><tbody>",
    );
    for row in &run.senders {
        let [min, p50, max] = [row.min_ns, row.p50_ns, row.max_ns].map(|ns| micros(ns as f64));
        let (sender, count) = (row.sender, number(row.count));
        let _ = write!(
            page,
            "<tr><td>{sender}</td><td>{count}</td><td>{min}</td><td class=\"p50\">{p50}</td><td>{max}</td></tr>"
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

/// First messages told one by one.
const FIRSTS_SHOWN: usize = 15;

fn firsts(page: &mut String, all: &Overall) {
    let begun = if all.barrier { "at a barrier" } else { "no barrier: each begins when it is open" };
    let _ = write!(
        page,
        "<section><h2>First messages <small>{begun}; sent → received, ms, the mean of all</small></h2><p class=\"say\">What the \
         receiver did from the sending of a message on. {STEPS_SAY}</p><div class=\"wide\"><table><thead><tr><th>run</th>\
         <th>count</th><th>all</th>"
    );
    STEPS.iter().for_each(|step| {
        let _ = write!(page, "<th>{step}</th>");
    });
    page.push_str("<th>looker late</th></tr></thead><tbody>");
    for (place, run) in all.runs.iter().enumerate().filter(|(_, run)| run.firsts.count > 0) {
        let total: u64 = run.firsts.mean.iter().map(|share| share.ns).sum();
        let (count, total) = (run.firsts.count, total as f64 / 1e6);
        let _ = write!(page, "<tr><td>{}</td><td>{count}</td><td class=\"p50\">{total:.2}</td>", place + 1);
        run.firsts.mean.iter().for_each(|share| {
            let _ = write!(page, "<td>{:.2}</td>", share.ns as f64 / 1e6);
        });
        let _ = write!(page, "<td>{:.2}</td></tr>", run.control_late_us as f64 / 1e3);
    }
    page.push_str("</tbody></table></div><ul class=\"plain\">");
    for (run, first) in slowest_firsts(all, FIRSTS_SHOWN) {
        let _ = write!(page, "<li><b>run {}</b><span>{}</span></li>", run + 1, escape(&first_words(first)));
    }
    page.push_str("</ul></section>\n");
}

fn start_up(page: &mut String, all: &Overall) {
    page.push_str(
        "<section><h2>Start-up, apart <small>the slowest process of each run, ms; first messages, µs</small></h2><p class=\"say\">All \
         processes start at once; nothing of this is in the rows above but the first messages. All told: from the beginning of a \
         receiver's opening until it had a value of each other.</p>\
         <div class=\"wide\"><table><thead><tr><th>run</th><th>all ready</th><th>clock</th><th>node</th><th>bind</th><th>all told</th>\
         <th>first: p50</th><th>first: max</th><th>waited for a processor</th><th>drift, ppm</th><th>memory grew, KiB</th></tr></thead><tbody>",
    );
    for (place, run) in all.runs.iter().enumerate() {
        let startup = &run.startup;
        let first = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| micros(ns as f64));
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{:.0}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{:.1}</td>\
             <td>{:.1}</td><td>{}</td></tr>",
            place + 1,
            startup.all_ready_ms,
            startup.clock_ms_max,
            startup.node_ms_max,
            startup.bind_ms_max,
            startup.all_heard_ms,
            first(startup.first_ns_median),
            first(startup.first_ns_max),
            run.facts.queued_ns as f64 / 1e6,
            run.drift_ppm,
            run.growth_kib_max
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn account(page: &mut String, all: &Overall) {
    let sums = &all.account;
    let verdict = match (sums.incomplete, sums.is_balanced()) {
        (true, _) => "Incomplete: a process died and took its ledger along.",
        (false, true) => "The ledgers of all nodes sum.",
        (false, false) => "The ledgers do not sum.",
    };
    let died: Vec<&str> = all.runs.iter().flat_map(|run| run.died.iter().map(String::as_str)).collect();
    let dead =
        if died.is_empty() { "No process died.".to_owned() } else { format!("Died: {}.", died.join(", ")) };
    let _ = write!(
        page,
        "<section><h2>Every frame <small>all nodes, all runs</small></h2><p class=\"say\">{verdict} {}</p><div class=\"wide\"><table>\
         <thead><tr><th>what</th><th>count</th></tr></thead><tbody>",
        escape(&dead)
    );
    let mut lines = vec![
        ("messages sent".to_owned(), sums.sent),
        ("frames for everybody".to_owned(), sums.broadcast),
        ("frames for one newcomer".to_owned(), sums.unicast),
        (
            "frames to arrive: each at every node but its sender's, or at the newcomer".to_owned(),
            sums.to_arrive,
        ),
        ("sent before their receiver was there".to_owned(), sums.before),
        ("arrived".to_owned(), sums.arrived),
        ("lost".to_owned(), sums.lost),
        ("copies for ports".to_owned(), sums.copies),
        ("delivered".to_owned(), sums.delivered),
    ];
    lines.extend(sums.undelivered.iter().chain(&sums.causes).map(|(name, &count)| (name.clone(), count)));
    for (name, count) in lines {
        let _ = write!(page, "<tr><td>{}</td><td>{}</td></tr>", escape(&name), number(count));
    }
    page.push_str("</tbody></table></div></section>\n");
}
