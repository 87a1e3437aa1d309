//! The page of `punctual run response`: who was late, at which stage, why, and what to try.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;

use super::escape;
use crate::response::explain::{Finding, Share};
use crate::response::published::{Compared, comparison};
use crate::summary::{CellResult, Summary};
use crate::table::{grouped, micros};

/// Kinds of lateness told of each option.
const SHARES_SHOWN: usize = 5;
/// Stalls told one by one, of all options.
const FINDINGS_SHOWN: usize = 12;

pub(super) fn sections(page: &mut String, summary: &Summary) {
    lateness(page, summary);
    published(page, &comparison(&summary.results));
}

fn lateness(page: &mut String, summary: &Summary) {
    let late: Vec<(&CellResult, Vec<Share>)> = summary
        .results
        .iter()
        .map(|r| (r, list(r, "late")))
        .filter(|(_, shares)| !shares.is_empty())
        .collect();
    if late.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Who was late</h2><p class=\"say\">Stalls by the side whose time it was, the stage that exceeds what \
         is usual by most, and the cause that this side's own thread gives evidence of; the time is that of their longest \
         trips beyond a usual one's, together. The measuring client is a suspect like the responder.</p>\
         <div class=\"wide\"><table><thead><tr><th>option</th><th class=\"l\">side</th><th class=\"l\">stage</th>\
         <th class=\"l\">cause</th><th>stalls</th><th>trips</th><th>excess, µs</th><th class=\"l\">try</th></tr></thead><tbody>",
    );
    for (result, shares) in &late {
        for share in shares.iter().take(SHARES_SHOWN) {
            share_row(page, &result.cell.engine, share);
        }
    }
    page.push_str("</tbody></table></div>");
    longest(page, &late);
    page.push_str("</section>\n");
}

fn published(page: &mut String, rows: &[Compared]) {
    if rows.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>The article's round trips beside ours <small>µs</small></h2><div class=\"wide\"><table><thead><tr>\
         <th>its responder</th><th>mean</th><th>min</th><th>max</th><th class=\"l\">ours</th><th>mean</th><th>min</th>\
         <th>max</th></tr></thead><tbody>",
    );
    for row in rows {
        let [mean, min, max] = row.published_us.map(|us| micros(1000.0 * us));
        let ours = |ns: Option<f64>| ns.map_or("∞".to_owned(), micros);
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{mean}</td><td>{min}</td><td>{max}</td><td class=\"l\">{}</td><td>{}</td><td>{}</td>\
             <td>{}</td></tr><tr><td></td><td class=\"l none\" colspan=\"7\" style=\"white-space:normal\">{}</td></tr>",
            escape(&row.board),
            escape(&row.name),
            ours(row.mean_ns),
            ours(row.min_ns.map(|ns| ns as f64)),
            ours(row.max_ns.map(|ns| ns as f64)),
            escape(&row.differs),
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn share_row(page: &mut String, option: &str, share: &Share) {
    let _ = write!(
        page,
        "<tr><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"l\">{}</td></tr>",
        escape(option),
        share.side,
        escape(&share.stage),
        share.cause,
        count(share.stalls),
        count(share.trips),
        micros(share.excess_ns as f64),
        escape(share.cause.advice()),
    );
}

fn longest(page: &mut String, late: &[(&CellResult, Vec<Share>)]) {
    let of = |result: &CellResult| -> Vec<Finding> { list(result, "findings") };
    let mut findings: Vec<(&str, Finding)> = late
        .iter()
        .flat_map(|(result, _)| of(result).into_iter().map(|finding| (result.cell.engine.as_str(), finding)))
        .collect();
    findings.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.stall.longest_ns));
    page.push_str(
        "<p class=\"say\">The longest of them. Of each the thread's own account of the time in which it had the trip.</p>\
         <div class=\"wide\"><table><thead><tr><th>option</th><th>trip</th><th>took, µs</th><th class=\"l\">side</th>\
         <th class=\"l\">stage</th><th>of it, µs</th><th class=\"l\">cause</th><th>accounted for</th><th class=\"l\">seen</th></tr></thead><tbody>",
    );
    for (option, finding) in findings.iter().take(FINDINGS_SHOWN) {
        finding_row(page, option, finding);
    }
    page.push_str("</tbody></table></div>");
}

fn finding_row(page: &mut String, option: &str, finding: &Finding) {
    let behind = finding.behind.map_or(String::new(), |trip| format!("behind trip {}: ", count(trip)));
    let _ = write!(
        page,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{}</td><td class=\"l\">{behind}{}</td><td>{:.0} %</td><td class=\"l\">{}</td></tr>",
        escape(option),
        count(finding.stall.first_index),
        micros(finding.stall.longest_ns as f64),
        finding.side,
        escape(&finding.stage),
        micros(finding.stage_excess_ns as f64),
        finding.cause,
        100.0 * finding.confidence,
        escape(&finding.seen()),
    );
}

/// What the experiment wrote beside a result; nothing where a page is made of samples alone.
fn list<T: DeserializeOwned>(result: &CellResult, name: &str) -> Vec<T> {
    result.more.get(name).and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

fn count(number: u64) -> String {
    grouped(i64::try_from(number).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample::CellId;
    use crate::store::Header;

    /// Goal: what the account writes is what the page reads, and what is no list is no section.
    #[test]
    fn a_finding_stands_on_the_page() {
        let mut result = CellResult::of(&CellId::new("blocking", "round_trip"), &[], 0);
        result.more.insert("late".to_owned(), json!("none"));
        let mut page = String::new();
        let mut summary = Summary::new(&Header::new("response"));
        summary.results.push(result.clone());
        sections(&mut page, &summary);
        assert_eq!(page, "");
        let stall =
            json!({ "release_ns": 9, "first_index": 4711, "messages": 2, "longest_ns": 2_600_000_000_u64 });
        let finding = json!({
            "stall": stall, "excess_ns": 1, "side": "responder", "stage": "request.woken", "stage_excess_ns": 1,
            "cause": "stopped", "confidence": 0.98, "behind": 77, "evidence": null,
        });
        let share = json!({
            "side": "responder", "stage": "request.woken", "cause": "stopped", "stalls": 1, "trips": 2, "excess_ns": 1,
        });
        result.more.insert("late".to_owned(), json!([share]));
        result.more.insert("findings".to_owned(), json!([finding]));
        summary.results = vec![result];
        sections(&mut page, &summary);
        for word in ["4,711", "responder", "request.woken", "behind trip 77", "stopped, until", "98 %"] {
            assert!(page.contains(word), "{word}: {page}");
        }
    }
}
