//! The page of `punctual run wakeup`: latency against idle gap, the policy, the handshakes, the work log.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas, spread};
use super::escape;
use super::scale::Log;
use crate::sample::CellId;
use crate::summary::{CellResult, Summary};
use crate::table::{grouped, micros};
use crate::wakeup::{
    AgainstBare, AgainstThreads, Cell, Compared, Conditions, GAPS_US, HandshakeResult, Measurement, Policy,
    Route, epoll_answer, ipc_bench_block, list,
};

pub(super) fn sections(page: &mut String, summary: &Summary) {
    by_gap(page, &summary.results);
    costs(page, &summary.results);
    against_bare(page, &list(summary, "against_bare"));
    against_threads(page, &list(summary, "against_threads"));
    policy(page, &list(summary, "adaptive"));
    handshakes(page, &list(summary, "handshakes"));
    time_limits(page, &list(summary, "time_limits"));
    published(page, &list(summary, "published"));
    ipc_bench(page, &summary.results);
}

fn find(results: &[CellResult], route: Route, gap_us: u64) -> Option<&CellResult> {
    let id = Cell { route, conditions: Conditions::default(), gap_us }.id(Measurement::Any);
    results.iter().find(|result| result.cell == id)
}

fn gap_name(gap_us: u64) -> String {
    CellId { gap_us, ..CellId::new("", "") }.gap()
}

/// One colour per kind of mechanism: twenty-four would not be told apart.
fn colour(route: Route) -> usize {
    let name = route.name();
    match route {
        floor if floor.is_floor() => 7,
        Route::Spin => 0,
        Route::Adaptive => 2,
        Route::Park(_) if name.starts_with("futex") => 1,
        Route::Park(_) if name.starts_with("sig") => 4,
        Route::Park(_) if name.starts_with("uring") => 6,
        _ => 3,
    }
}

fn by_gap(page: &mut String, results: &[CellResult]) {
    let measured: Vec<Route> = Route::all()
        .into_iter()
        .filter(|&route| GAPS_US.iter().filter(|&&gap_us| find(results, route, gap_us).is_some()).count() > 1)
        .collect();
    if measured.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Latency against idle gap <small>w2r_any, p50: writer before its notification → reader awake; a core \
         each, idle machine</small></h2><p class=\"say\">A reader that is still awake when the message comes learns of it \
         within a cache line's journey, and its writer calls nobody. Once it sleeps, the scheduler is what is measured: the \
         mechanisms lie close together, and the idle processor's own sleep makes them later the longer the gap. Blue: \
         polled; green: adaptive; orange: futex; purple: descriptors; red: signals; teal: io_uring; grey: the bare \
         mechanisms.</p><div class=\"wide\">",
    );
    page.push_str(&chart(results, &measured));
    page.push_str("</div></section>\n");
}

fn chart(results: &[CellResult], routes: &[Route]) -> String {
    let (width, height, left, right, bottom) = (1000.0, 440.0, 52.0, 850.0, 408.0);
    let p50 = |route, gap_us| find(results, route, gap_us).and_then(|r| r.figures.p50).map(|ns| ns as f64);
    let all = routes.iter().flat_map(|&route| GAPS_US.map(|gap_us| p50(route, gap_us))).flatten();
    let scale = Log::covering(all, bottom, 10.0);
    let mut canvas = Canvas::new(width, height, "latency against idle gap");
    canvas.time_up(scale, left, right);
    let x = |place: usize| left + 40.0 + place as f64 * (right - left - 80.0) / (GAPS_US.len() - 1) as f64;
    for (place, &gap_us) in GAPS_US.iter().enumerate() {
        canvas.text("", (x(place), bottom + 20.0), Anchor::Middle, &gap_name(gap_us));
    }
    let mut ends = Vec::new();
    for &route in routes {
        let points: Vec<(f64, f64)> = (0..GAPS_US.len())
            .filter_map(|place| p50(route, GAPS_US[place]).map(|ns| (x(place), scale.at(ns))))
            .collect();
        let colour = colour(route);
        let bare = route.is_floor();
        canvas.path(&format!("wk{} c{colour}", if bare { " thin" } else { "" }), &points, false);
        for &at in &points {
            canvas.dot(&format!("fill c{colour}"), at, 2.4, route.name());
        }
        ends.extend(points.last().map(|end| (route, end.1)));
    }
    let wanted: Vec<f64> = ends.iter().map(|end| end.1).collect();
    for ((route, _), y) in ends.iter().zip(spread(&wanted, 13.0, 12.0, bottom)) {
        canvas.text(&format!("lab c{}", colour(*route)), (right + 8.0, y + 4.0), Anchor::Start, route.name());
    }
    canvas.finish()
}

/// System calls, processor time, and what the reader was doing.
fn costs(page: &mut String, results: &[CellResult]) {
    page.push_str(
        "<section><h2>What a message costs <small>per gap: p50, µs · system calls of both ends · processor time of reader and \
         notification, µs</small></h2><div class=\"wide\"><table><thead><tr><th>way</th>",
    );
    for gap_us in GAPS_US {
        let _ = write!(page, "<th colspan=\"3\">{}</th>", gap_name(gap_us));
    }
    page.push_str("<th>asleep at 1 ms</th><th>lost</th></tr></thead><tbody>");
    for route in Route::all() {
        if GAPS_US.iter().any(|&gap_us| find(results, route, gap_us).is_some()) {
            cost_row(page, results, route);
        }
    }
    page.push_str(
        "</tbody></table></div><p class=\"say\">Asleep: share of messages that found the reader parked, by the kernel's count of \
         voluntary switches. A way that elides its notification whenever the reader is awake has fewer calls at short gaps; the \
         floors call every time. <code>floor-epoll-8</code> and <code>-64</code>: so many eventfds in one set, of which the \
         writer writes to one after the other.</p></section>\n",
    );
}

fn number(result: &CellResult, name: &str) -> Option<f64> {
    result.more.get(name).and_then(serde_json::Value::as_f64)
}

fn cost_row(page: &mut String, results: &[CellResult], route: Route) {
    let _ = write!(page, "<tr><td>{}</td>", route.name());
    let dash = || "–".to_owned();
    for gap_us in GAPS_US {
        let result = find(results, route, gap_us);
        let p50 = result.and_then(|r| r.figures.p50).map_or_else(dash, |ns| micros(ns as f64));
        let sum = |a: &str, b: &str| result.and_then(|r| Some(number(r, a)? + number(r, b)?));
        let calls = sum("notify_calls_per_message", "wait_calls_per_message");
        let calls = calls.map_or_else(dash, |calls| format!("{calls:.1}"));
        let cpu = result.and_then(|r| Some(r.cpu_ns_per_message? + number(r, "notify_ns_per_message")?));
        let cpu = cpu.map_or_else(dash, micros);
        let _ = write!(page, "<td class=\"p50\">{p50}</td><td>{calls}</td><td>{cpu}</td>");
    }
    let asleep = find(results, route, 1_000).and_then(|r| number(r, "parked_share"));
    let asleep = asleep.map_or_else(dash, |share| format!("{:.0} %", share * 100.0));
    let lost: u64 = GAPS_US.iter().filter_map(|&gap_us| find(results, route, gap_us)).map(|r| r.lost).sum();
    let class = if lost > 0 { "bad" } else { "none" };
    let _ = write!(page, "<td>{asleep}</td><td class=\"{class}\">{lost}</td></tr>");
}

/// With the doorbell and without, side by side.
fn against_bare(page: &mut String, rows: &[AgainstBare]) {
    if rows.is_empty() {
        return;
    }
    page.push_str("<section><h2>What the doorbell costs and saves</h2>");
    for answer in epoll_answer(rows) {
        let _ = write!(page, "<p class=\"say\"><strong>{}</strong></p>", escape(&answer));
    }
    page.push_str(
        "<p class=\"say\">A doorbell is a user-interrupt descriptor in software: who is awake is not notified. It saves \
         system calls and the sleep where the reader is awake when the message comes. Where each message finds \
         the reader asleep it saves nothing; then its fence and two exchanges are what it costs. Ratio: of the medians of \
         trials made one after the other; half of them lie in the range behind it.</p><div class=\"wide\"><table><thead><tr>\
         <th>with the doorbell</th><th class=\"l\">without</th><th>gap</th>\
         <th>p50, µs</th><th>bare</th><th>ratio</th><th>half lie in</th><th>calls: writer + reader</th><th>bare</th>\
         <th>CPU, µs</th><th>bare</th></tr></thead><tbody>",
    );
    for row in rows {
        let calls = [row.price, row.bare_price]
            .map(|price| format!("{:.1} + {:.1}", price.notify_calls, price.wait_calls));
        let cpu = [row.price, row.bare_price].map(|price| micros(price.cpu_ns));
        let [low, high] = row.ratio_quartiles;
        let _ = write!(
            page,
            "<tr><td>{}</td><td class=\"l\">{}</td><td>{}</td><td class=\"p50\">{}</td><td>{}</td><td>{:.2}</td>\
             <td>{low:.2} – {high:.2}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&row.name),
            escape(&row.bare_name),
            gap_name(row.gap_us),
            micros(row.p50_ns as f64),
            micros(row.bare_ns as f64),
            row.ratio,
            calls[0],
            calls[1],
            cpu[0],
            cpu[1]
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

/// Writer and reader as threads, and as processes.
fn against_threads(page: &mut String, rows: &[AgainstThreads]) {
    if rows.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Two threads, and two processes <small>w2r_any, µs</small></h2><p class=\"say\">The work log's writer and \
         reader were processes; so are ours in the rows named <code>+processes</code>. Between them the kernel also changes \
         the address space, if another one ran on the reader's processor meanwhile.</p><div class=\"wide\"><table><thead><tr>\
         <th>way</th><th>gap</th><th>threads: p50</th><th>p99</th><th>processes: p50</th><th>p99</th><th>ratio</th>\
         <th>half lie in</th></tr></thead><tbody>",
    );
    let p99 = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| micros(ns as f64));
    for row in rows {
        let [low, high] = row.ratio_quartiles;
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"p50\">{}</td><td>{}</td><td class=\"p50\">{}</td><td>{}</td>\
             <td>{:.2}</td><td>{low:.2} – {high:.2}</td></tr>",
            escape(&row.name),
            gap_name(row.gap_us),
            micros(row.threads_ns as f64),
            p99(row.threads_p99_ns),
            micros(row.processes_ns as f64),
            p99(row.processes_p99_ns),
            row.ratio
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn policy(page: &mut String, rows: &[Policy]) {
    if rows.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Spin, then park: for how long?</h2><p class=\"say\">The adaptive waiter forecasts its next wait from the last \
         sixteen, and spins only if that costs less than a sleep. So at every gap it should cost what the cheaper of the two \
         costs; where spinning is cheaper it is also faster, where parking is cheaper it pays with latency. No policy has both \
         there.</p><div class=\"wide\"><table><thead><tr><th>gap</th><th>p50: spin</th><th>park</th><th>adaptive</th>\
         <th>CPU: spin</th><th>park</th><th>adaptive</th><th>it chose</th><th>CPU / better</th><th>p50 / chosen</th><th>p50 / better</th>\
         </tr></thead><tbody>",
    );
    for row in rows {
        let cells = [row.spin[0], row.park[0], row.adaptive[0], row.spin[1], row.park[1], row.adaptive[1]];
        let _ = write!(page, "<tr><td>{}</td>", gap_name(row.gap_us));
        for ns in cells {
            let _ = write!(page, "<td>{}</td>", micros(ns));
        }
        let (cpu, latency, own) = (row.cpu_ratio, row.latency_ratio, row.latency_ratio_to_chosen);
        let chose = escape(&row.chose);
        let _ = write!(page, "<td>{chose}</td><td>{cpu:.2}</td><td>{own:.2}</td><td>{latency:.1}</td></tr>");
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn handshakes(page: &mut String, rows: &[HandshakeResult]) {
    if rows.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Racy protocols and their repairs</h2><p class=\"say\">Reader and writer as in the log's test programs, in \
         software; rounds of two messages, of which the second meets what the first has left behind. Lost: waits that only a \
         time limit ended. The prediction is the model's (<code>punctual sim wakeup --variant h1</code> and so on), which goes \
         through every order of events.</p><div class=\"wide\"><table><thead><tr><th>protocol</th><th class=\"l\">what it is</th>\
         <th class=\"l\">repaired</th><th>messages</th><th>lost</th><th>predicted</th></tr></thead><tbody>",
    );
    for row in rows {
        let class = if row.is_as_predicted() { "none" } else { "bad" };
        let predicted = if row.predicted_lost { "losses" } else { "none" };
        let (name, about) = (escape(&row.name), escape(&row.about));
        let repaired = escape(row.repaired.as_deref().unwrap_or("–"));
        let _ = write!(
            page,
            "<tr><td>{name}</td><td class=\"l\">{about}</td><td class=\"l\">{repaired}</td><td>{}</td><td>{}</td>\
             <td class=\"{class}\">{predicted}</td></tr>",
            row.messages, row.lost
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

/// What the log tried: a time limit instead of a repair.
fn time_limits(page: &mut String, rows: &[HandshakeResult]) {
    if rows.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>What a time limit hides <small>µs from the request to being awake</small></h2><p class=\"say\">The log \
         gave its racy wait a time limit, 100 µs to 10 ms. That loses as many wake-ups as before: each then takes as long as \
         the limit. The repaired protocol needs none.</p><div class=\"wide\"><table><thead><tr><th>protocol</th><th>limit</th>\
         <th>messages</th><th>lost</th><th>mean</th><th>max</th><th>messages/s</th></tr></thead><tbody>",
    );
    for row in rows {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&row.name),
            gap_name(row.limit_us),
            row.messages,
            row.lost,
            micros(row.mean_ns),
            micros(row.max_ns as f64),
            grouped(row.rate().round() as i64)
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn published(page: &mut String, rows: &[Compared]) {
    if rows.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>The work log's figures beside ours <small>µs</small></h2><div class=\"wide\"><table><thead><tr>\
         <th>the log measured by</th><th class=\"l\">mean</th><th class=\"l\">slowest</th><th class=\"l\">ours</th><th>gap</th>\
         <th>mean</th><th>p50</th><th>max</th></tr></thead><tbody>",
    );
    for row in rows {
        let text = |value: &str| escape(value);
        let figure = |ns: Option<f64>| ns.map_or("–".to_owned(), micros);
        let wall =
            row.wall_mean_ns.map_or(String::new(), |ns| format!(" timed, {} over the wall", micros(ns)));
        let _ = write!(
            page,
            "<tr><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{}</td><td>{}{wall}</td>\
             <td>{}</td><td>{}</td></tr><tr><td></td><td class=\"l none\" colspan=\"7\" style=\"white-space:normal\">{}</td></tr>",
            text(&row.mechanism),
            text(&row.published_mean_us),
            text(&row.published_max),
            text(&row.name),
            gap_name(row.gap_us),
            figure(row.mean_ns),
            figure(row.p50_ns.map(|ns| ns as f64)),
            figure(row.max_ns.map(|ns| ns as f64)),
            text(&row.differs)
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn ipc_bench(page: &mut String, results: &[CellResult]) {
    let mut blocks = String::new();
    let mut count = 0;
    for route in Route::all() {
        let id = Cell { route, conditions: Conditions::default(), gap_us: 0 }.id(Measurement::Loop);
        let block = results.iter().find(|result| result.cell == id).and_then(ipc_bench_block);
        if let Some(block) = block {
            count += 1;
            let _ = write!(
                blocks,
                "<figure><figcaption>{}</figcaption><pre>{}</pre></figure>",
                route.name(),
                escape(&block)
            );
        }
    }
    if count > 0 {
        let count = grouped(count);
        let _ = write!(
            page,
            "<section><details><summary>As ipc-bench prints it: {count} blocks, gap 0</summary><div class=\"grid\">{blocks}</div>\
             </details></section>"
        );
    }
}
