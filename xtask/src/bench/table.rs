//! Results of a run, for people (Markdown) and for scripts (JSON).

use std::fmt::Write as _;

use super::host::Host;
use super::promise::{Asked, Finding, Verdict};
use super::turns::Turns;

/// The table of promises.
pub(super) fn promises(verdicts: &[Verdict]) -> String {
    let head = ["promise", "asked", "measured", "95 %", "least–most", "holds?"];
    let rows = verdicts.iter().map(|verdict| {
        let Verdict { text, asked, finding, reason, .. } = verdict;
        let [measured, interval, range] = match finding {
            Some(Finding { mean, interval, range, .. }) => {
                let interval = interval.map_or("one opening".to_owned(), |ends| span(*asked, ends));
                [value(*asked, *mean), interval, span(*asked, *range)]
            }
            None => ["–".to_owned(), "–".to_owned(), "–".to_owned()],
        };
        let reason = reason.as_ref().filter(|_| finding.is_none());
        let word = reason.map_or_else(
            || verdict.word().to_owned(),
            |reason| format!("{}: {}", verdict.word(), reason.replace(['|', '\n'], " ")),
        );
        vec![(*text).to_owned(), asked.to_string(), measured, interval, range, word]
    });
    aligned(&head, &rows.collect::<Vec<_>>())
}

/// The promises whose rounds can be told apart by where the processors were.
pub(super) fn placements(verdicts: &[Verdict]) -> String {
    let head = ["promise", "asked", "threads of one core", "two cores"];
    let rows = verdicts.iter().filter(|verdict| verdict.placements.iter().any(Option::is_some));
    let rows = rows.map(|verdict| {
        let [one, two] = verdict.placements.map(|placed| {
            placed.map_or_else(
                || "–".to_owned(),
                |(median, rounds)| format!("{} ({rounds} rounds)", value(verdict.asked, median)),
            )
        });
        vec![verdict.text.to_owned(), verdict.asked.to_string(), one, two]
    });
    aligned(&head, &rows.collect::<Vec<_>>())
}

fn value(asked: Asked, value: f64) -> String {
    match asked {
        Asked::OneWayAtMost(_) => format!("{value:.0} ns"),
        _ => format!("{value:.2}"),
    }
}

fn span(asked: Asked, [low, high]: [f64; 2]) -> String {
    format!("{} – {}", value(asked, low), value(asked, high))
}

/// A Markdown table that can be read as it stands. By hand: comfy-table is no dependency of what CI builds first.
fn aligned(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    let width = |column: usize| {
        let cells = std::iter::once(&head).chain(rows).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = String::new();
    for row in [&head, &rule].into_iter().chain(rows) {
        for (cell, width) in row.iter().zip(&widths) {
            let _fits = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
    }
    text
}

/// A page: where it ran, the promises, and every mechanism's own figures as `punctual-peers` printed them.
pub(super) fn page(host: &Host, turns: &Turns, verdicts: &[Verdict], figures: &str) -> String {
    let Host { line, commit, .. } = host;
    let (openings, rounds) = (turns.openings(), turns.rounds());
    let mut text = format!(
        "# Punctual, the floors and its peers in one run\n\n{line}.\n\nCommit {commit}; {openings} openings, {rounds} rounds in turns, two \
         processes, each pinned to a CPU of its own. What is compared with what: \
         [docs/speed.md](../../docs/speed.md). Every turn: [turns.csv](turns.csv).\n\n## Promises\n\n{}\n## By placement\n\nThe \
         hypervisor moves the two processors; the bare slot of the same round tells where they were.\n\n{}",
        promises(verdicts),
        placements(verdicts)
    );
    text.push_str("\n## Figures\n\n");
    for (kind, reason) in &turns.skipped {
        let _fits = writeln!(text, "Not measured: {kind}: {reason}\n");
    }
    let _fits = writeln!(text, "```text\n{}\n```", figures.trim());
    text
}

/// For scripts.
pub(super) fn summary(host: &Host, turns: &Turns, verdicts: &[Verdict]) -> String {
    let list: Vec<String> = verdicts.iter().map(verdict).collect();
    let skipped: Vec<String> = turns
        .skipped
        .iter()
        .map(|(kind, reason)| format!(r#"    {{ "kind": {}, "reason": {} }}"#, quoted(kind), quoted(reason)))
        .collect();
    format!(
        "{{\n  \"schema\": \"punctual.bench.v1\",\n  \"commit\": {},\n  \"facts\": {},\n  \"openings\": {},\n  \"rounds\": {},\n  \"promises\": \
         [\n{}\n  ],\n  \"skipped\": [\n{}\n  ]\n}}\n",
        quoted(&host.commit),
        host.facts.replace('\n', "\n  "),
        turns.openings(),
        turns.rounds(),
        list.join(",\n"),
        skipped.join(",\n")
    )
}

fn verdict(verdict: &Verdict) -> String {
    let (text, asked, word) = (verdict.text, verdict.asked, verdict.word());
    let found = verdict.finding.map_or_else(
        || "null".to_owned(),
        |Finding { mean, interval, range: [least, most], openings, rounds }| {
            let interval = interval.map_or("null".to_owned(), |[low, high]| format!("[{low:.4}, {high:.4}]"));
            format!(
                r#"{{ "mean": {mean:.4}, "interval": {interval}, "range": [{least:.4}, {most:.4}], "openings": {openings}, "rounds": {rounds} }}"#
            )
        },
    );
    let text = quoted(text);
    format!(r#"    {{ "promise": {text}, "asked": "{asked}", "verdict": "{word}", "measured": {found} }}"#)
}

/// As JSON text.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::host::tests::host;
    use super::super::promise::PROMISES;
    use super::*;

    const LINES: &str = r#"{"round":0,"game":"pingpong","kind":"floor/slot","size":64,"count":9,"p50":100,"p99":280,"p999":290,"max":1000}
{"round":0,"game":"pingpong","kind":"punctual shared/spin","size":64,"count":9,"p50":115,"p99":570,"p999":600,"max":1000}
{"round":0,"game":"stream","kind":"pipe","size":64,"count":9,"per_second":1500000}
{"opening":1,"round":1,"game":"pingpong","kind":"floor/slot","size":64,"count":9,"p50":200,"p99":280,"p999":290,"max":1000}
{"opening":1,"round":1,"game":"pingpong","kind":"punctual shared/spin","size":64,"count":9,"p50":230,"p99":570,"p999":600,"max":1000}
{"skipped":"aeron ipc","reason":"no \"java\""}"#;

    fn run() -> (Turns, Vec<Verdict>) {
        let turns = Turns::parse(LINES).unwrap();
        let verdicts = PROMISES.iter().map(|promise| promise.judge(&turns)).collect();
        (turns, verdicts)
    }

    /// The row of that beginning, each cell without the space around it.
    fn row(table: &str, beginning: &str) -> Vec<String> {
        let line = table.lines().find(|line| line.starts_with(&format!("| {beginning}"))).unwrap();
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn a_promise_is_a_row() {
        let table = promises(&run().1);
        let p50 = row(&table, "shared memory, spinning / bare slot, 64 B, p50");
        assert_eq!(p50[1..], ["≤ 1.20", "1.15", "1.15 – 1.15", "1.15 – 1.15", "holds"]);
        let p99 = row(&table, "shared memory, spinning / bare slot, 64 B, p99");
        assert_eq!(p99[1..], ["≤ 2.00", "2.04", "2.04 – 2.04", "2.04 – 2.04", "does not hold"]);
        let recording = row(&table, "what recording all stages costs");
        assert_eq!(recording[1..], ["≤ 60 ns", "–", "–", "–", "not measured"]);
        let aeron = row(&table, "shared memory / Aeron IPC, 8 KiB, p50");
        assert_eq!(aeron[5], "not measured: no \"java\"");
        assert_eq!(table.lines().count(), 2 + PROMISES.len());
        let mut widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        widths.dedup();
        assert_eq!(widths.len(), 1, "{table}");
    }

    #[test]
    fn rounds_are_told_apart() {
        let table = placements(&run().1);
        assert_eq!(
            row(&table, "shared memory, spinning / bare slot, 64 B, p50")[2..],
            ["1.15 (2 rounds)", "–"]
        );
        assert_eq!(table.lines().count(), 2 + 2, "{table}");
    }

    #[test]
    fn a_page_says_where_and_what() {
        let (turns, verdicts) = run();
        let page = page(&host(), &turns, &verdicts, "pingpong of 64 B\n");
        assert!(page.contains("2 CPUs of a virtual machine"), "{page}");
        assert!(page.contains("Commit 1234567-dirty; 2 openings, 2 rounds"), "{page}");
        assert!(page.contains("Not measured: aeron ipc: no \"java\""), "{page}");
        assert!(page.ends_with("```text\npingpong of 64 B\n```\n"), "{page}");
    }

    #[test]
    fn a_summary_is_json() {
        let (turns, verdicts) = run();
        let json: Value = serde_json::from_str(&summary(&host(), &turns, &verdicts)).unwrap();
        assert_eq!(json.get("schema").and_then(Value::as_str), Some("punctual.bench.v1"));
        assert_eq!(json.get("openings").and_then(Value::as_u64), Some(2));
        let cpu = json.get("facts").and_then(|facts| facts.get("host")?.get("cpu")?.as_str());
        assert_eq!(cpu, Some("A \"fast\" one"));
        let promises = json.get("promises").and_then(Value::as_array).unwrap();
        assert_eq!(promises.len(), PROMISES.len());
        assert_eq!(promises[1].get("verdict").and_then(Value::as_str), Some("does not hold"));
        let skipped = &json.get("skipped").and_then(Value::as_array).unwrap()[0];
        assert_eq!(skipped.get("reason").and_then(Value::as_str), Some("no \"java\""));
    }
}
