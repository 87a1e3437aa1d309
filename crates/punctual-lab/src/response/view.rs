//! What `punctual run response` says on a terminal, a hundred columns wide.

use std::fmt::Write as _;

use super::account::Account;
use super::cause::Cause;
use super::explain::{Side, shares};
use super::published::{comparison, inside_share};
use crate::stats::UNEXPLAINED;
use crate::summary::{CellResult, Summary};
use crate::table::{self, Style, grouped, micros, rate, tail_texts};

/// Stalls of one choice that are told one by one.
const LONGEST_SHOWN: usize = 3;
/// Kinds of lateness of one choice that are told.
const SHARES_SHOWN: usize = 4;

/// The whole answer: figures, stages, who was late, doubts.
#[must_use]
pub fn page(summary: &Summary, accounts: &[Account], style: Style) -> String {
    let mut text = figures(summary, accounts, style);
    text += &stages(summary, style);
    text += &inside(summary);
    text += &published(summary, style);
    text += &lateness(accounts, style);
    text += &notes(summary, accounts, style);
    text + &table::doubts(&summary.doubts, style)
}

fn figures(summary: &Summary, accounts: &[Account], style: Style) -> String {
    let Some(first) = summary.results.first() else { return String::new() };
    let cell = &first.cell;
    let place =
        summary.more.get("response").and_then(|more| more.get("place")).and_then(|place| place.as_str());
    let gap = match cell.load {
        crate::sample::Load::Closed if cell.gap_us == 0 => "no gap".to_owned(),
        crate::sample::Load::Closed => format!("gap {}", cell.gap()),
        crate::sample::Load::Open => format!("one every {}", cell.gap()),
    };
    let title = format!("Round trips of {} bytes, {} load, {gap}, µs", cell.size, cell.load.as_str());
    let mut text = format!("{}\n{}\n", style.heading(&title), style.faint(place.unwrap_or("")));
    let head = format!(
        "{:<24}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "option", "trips", "lost", "p50", "p90", "p99", "p99.9", "max", "stalls", "CPU", "CPU"
    );
    let _infallible = writeln!(text, "{}", style.faint(&head));
    let below = format!("{:<24}{:>9}{:>8}{:>40}{:>8}{:>8}{:>8}", "", "", "", "", "/min", "client", "respond");
    let _infallible = writeln!(text, "{}", style.faint(&below));
    for result in &summary.results {
        let account = accounts.iter().find(|account| account.choice.to_string() == result.cell.engine);
        let _infallible = writeln!(text, "{}", line(result, account));
    }
    let explained =
        "CPU: µs of the two threads per trip. –: fewer than ten samples lie beyond. ∞: among the lost.";
    let _infallible = writeln!(text, "{}\n", style.faint(explained));
    text
}

fn line(result: &CellResult, account: Option<&Account>) -> String {
    let [p50, p90, p99, p999, max] = tail_texts(result).map(narrow);
    let trips = grouped(i64::try_from(result.figures.count).unwrap_or(i64::MAX));
    let stalls = result.stalls_per_minute.map_or("–".to_owned(), rate);
    let cpu = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| micros(ns as f64));
    let client = cpu(account.and_then(Account::client_cpu_ns_per_trip));
    let responder = cpu(account.and_then(Account::responder_cpu_ns_per_trip));
    let (name, lost) = (&result.cell.engine, grouped(i64::try_from(result.lost).unwrap_or(i64::MAX)));
    format!(
        "{name:<24}{trips:>9}{lost:>8}{p50:>8}{p90:>8}{p99:>8}{p999:>8}{max:>8}{stalls:>8}{client:>8}{responder:>8}"
    )
}

/// Microseconds that would run into the column before, as seconds.
fn narrow(text: String) -> String {
    let us: Result<f64, _> = text.replace(',', "").parse();
    match us {
        Ok(us) if text.chars().count() > 7 => format!("{:.2} s", us / 1e6),
        _ => text,
    }
}

/// Columns of the table of stages.
const STAGE_COLUMNS_MAX: usize = 6;

/// Where the median trip's time goes, a column per choice.
fn stages(summary: &Summary, style: Style) -> String {
    let stamped: Vec<&CellResult> = summary.results.iter().filter(|r| r.stages.len() > 1).collect();
    let mut text = String::new();
    for results in stamped.chunks(STAGE_COLUMNS_MAX) {
        text += &stage_table(results, style);
    }
    text
}

fn stage_table(results: &[&CellResult], style: Style) -> String {
    let mut text = format!("{}\n", style.heading("Where the time goes: the median of each stage, µs"));
    let mut head = format!("{:<28}", "");
    for result in results {
        let _infallible = write!(head, "{:>11.10}", result.cell.engine);
    }
    let _infallible = writeln!(text, "{}", style.faint(&head));
    for (name, words) in STAGE_WORDS {
        let shown = |result: &CellResult| {
            let stage = result.stages.iter().find(|stage| stage.name == name)?;
            Some(micros(stage.median_ns as f64))
        };
        let values: Vec<Option<String>> = results.iter().map(|result| shown(result)).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let _infallible = write!(text, "{words:<28}");
        for value in values {
            let _infallible = write!(text, "{:>11}", value.unwrap_or_else(|| "–".to_owned()));
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

/// The stages as people read them.
const STAGE_WORDS: [(&str, &str); 15] = [
    ("request.sent", "client late"),
    ("request.tx", "client's stack, sending"),
    ("request.rx", "wire, there"),
    ("request.elsewhere", "responder elsewhere"),
    ("request.woken", "responder's wake-up"),
    ("request.read", "responder's read"),
    ("responder", "responder's application"),
    ("reply.tx", "responder's stack, sending"),
    ("reply.rx", "wire, back"),
    ("reply.elsewhere", "client elsewhere"),
    ("reply.woken", "client's wake-up"),
    ("reply.read", "client's read"),
    ("wire", "wire, both ways"),
    ("wire_and_responder", "wire and responder"),
    (UNEXPLAINED, "unexplained"),
];

/// One figure per choice: how much of the time passes inside the responder's host.
fn inside(summary: &Summary) -> String {
    let of = |result: &CellResult| {
        inside_share(result).map(|share| format!("{} {:.0} %", result.cell.engine, 100.0 * share))
    };
    let shares: Vec<String> = summary.results.iter().filter_map(of).collect();
    if shares.is_empty() {
        return String::new();
    }
    let shares = shares.join(", ");
    format!(
        "Inside the responder's host, from its kernel's first sight to its device: {shares} of all trips' time.\n\n"
    )
}

/// The article's figures beside ours.
fn published(summary: &Summary, style: Style) -> String {
    let rows = comparison(&summary.results);
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "{}\n",
        style.heading("The article's round trips beside ours, µs (what differs: on the page)")
    );
    let head = format!(
        "{:<32}{:>9}{:>9}{:>9}   {:<22}{:>8}{:>8}{:>9}",
        "responder", "mean", "min", "max", "ours", "mean", "min", "max"
    );
    let _infallible = writeln!(text, "{}", style.faint(&head));
    for row in rows {
        let [mean, min, max] = row.published_us.map(|us| micros(1000.0 * us));
        let ours = |ns: Option<f64>| ns.map_or("∞".to_owned(), micros);
        let _infallible = writeln!(
            text,
            "{:<32}{mean:>9}{min:>9}{max:>9}   {:<22}{:>8}{:>8}{:>9}",
            row.board,
            row.name,
            ours(row.mean_ns),
            ours(row.min_ns.map(|ns| ns as f64)),
            ours(row.max_ns.map(|ns| ns as f64)),
        );
    }
    text + "\n"
}

fn lateness(accounts: &[Account], style: Style) -> String {
    let mut text = String::new();
    let late: Vec<&Account> = accounts.iter().filter(|account| !account.findings.is_empty()).collect();
    // Of many choices the most frequent alone: the page and the summary hold all.
    let is_brief = late.len() > 2;
    for account in late {
        let _infallible = writeln!(text, "{} {}", style.heading("Who was late:"), account.choice);
        let shares = shares(&account.findings);
        for share in shares.iter().take(if is_brief { 2 } else { SHARES_SHOWN }) {
            let (stalls, excess) = (share.stalls, micros(share.excess_ns as f64));
            let (plural, where_) =
                (if stalls == 1 { "stall" } else { "stalls" }, side_words(share.side, &share.stage));
            let _infallible =
                writeln!(text, "  {stalls:>5} {plural:<6} {excess:>9} µs  {where_}: {}", share.cause);
        }
        if !is_brief {
            text += &longest(account, style);
        }
        if let Some(share) = shares.first() {
            let _infallible = writeln!(text, "    → {}", share.cause.advice());
        }
        text.push('\n');
    }
    text
}

fn longest(account: &Account, style: Style) -> String {
    let mut text = String::new();
    let mut longest: Vec<_> = account.findings.iter().collect();
    longest.sort_by_key(|finding| std::cmp::Reverse(finding.stall.longest_ns));
    for finding in longest.into_iter().take(LONGEST_SHOWN) {
        let (at, longest) = (finding.stall.first_index, micros(finding.stall.longest_ns as f64));
        let (where_, excess) =
            (side_words(finding.side, &finding.stage), micros(finding.stage_excess_ns as f64));
        let said = format!("trip {at}, {longest} µs, +{excess} in {where_}:\n        {}", finding.seen());
        let _infallible = writeln!(text, "      {}", style.faint(&said));
    }
    text
}

fn side_words(side: Side, stage: &str) -> String {
    let words = STAGE_WORDS.iter().find(|(name, _)| *name == stage).map_or(stage, |(_, words)| words);
    match side {
        Side::WireOrResponder => format!("{side} ({words})"),
        _ if words.starts_with(&side.to_string()) => words.to_owned(),
        _ => format!("{side}, {words}"),
    }
}

/// What a reader must know of single choices.
fn notes(summary: &Summary, accounts: &[Account], style: Style) -> String {
    let mut text = String::new();
    let more = summary.more.get("response");
    if let Some(words) = more.and_then(|more| more.get("floor")).and_then(|floor| floor.as_str()) {
        let _infallible = writeln!(text, "{words}");
    }
    for account in accounts {
        let choice = account.choice;
        for remark in &account.remarks {
            let _infallible = writeln!(text, "{choice}: {remark}");
        }
        let limited = account.limited();
        if limited > 0 {
            let words = format!(
                "{choice}: {limited} stalls of about 50 ms are new outliers that this class makes: {}",
                Cause::RealTimeLimit
            );
            let _infallible = writeln!(text, "{}", style.heading(&words));
        }
        if account.slow_answers > 0 {
            let count = grouped(i64::try_from(account.slow_answers).unwrap_or(i64::MAX));
            let _infallible = writeln!(text, "{choice}: {count} slow answers (--limit)");
        }
        let (looks, late, latest_us) = account.control;
        if late > 0 && accounts.len() <= 2 {
            let latest = micros(latest_us as f64 * 1000.0);
            let _infallible = writeln!(
                text,
                "{choice}: the client's control thread was late {late} times of {looks}, {latest} µs at most"
            );
        }
    }
    for skipped in &summary.skipped {
        let _infallible = writeln!(text, "not measured: {}: {}", skipped.what, skipped.reason);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_fit_in_a_column_of_microseconds() {
        let texts = ["99.1", "562,790", "4,423,980", "–", "∞"].map(|text| narrow(text.to_owned()));
        assert_eq!(texts, ["99.1", "562,790", "4.42 s", "–", "∞"]);
    }
}
