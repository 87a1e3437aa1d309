//! Tables for a terminal, 100 columns wide.

use std::fmt::Write as _;

use crate::compare::{Aspect, Comparison, Difference, Measure, Order, RunComparison};
use crate::doubt::{ALIKE_MAX, Doubt, by_advice};
use crate::summary::{CellResult, Skipped, Summary};

/// Characters of a line of running text.
const WIDTH: usize = 100;

/// How the text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// ANSI colours: only when asked for, or for a terminal.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn heading(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn warning(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// Microseconds of three significant digits: 0.043, 0.21, 6.04, 71.3, 3,248.
#[must_use]
pub fn micros(ns: f64) -> String {
    let us = ns / 1000.0;
    match us.abs() {
        u if u < 0.0995 => format!("{us:.3}"),
        u if u < 9.995 => format!("{us:.2}"),
        u if u < 99.95 => format!("{us:.1}"),
        _ => grouped(us.round() as i64),
    }
}

/// 1234567 as 1,234,567.
#[must_use]
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// The texts of p50, p90, p99, p99.9 and max: a dash where the sample is too small, ∞ where it is lost.
#[must_use]
pub fn tail_texts(result: &CellResult) -> [String; 5] {
    let figures = &result.figures;
    let names = ["p50", "p90", "p99", "p999", "max"];
    let infinite = names.iter().position(|name| figures.infinite_from.as_deref() == Some(name));
    let values = [figures.p50, figures.p90, figures.p99, figures.p999, figures.max];
    std::array::from_fn(|place| match values[place] {
        Some(ns) => micros(ns as f64),
        None if infinite.is_some_and(|from| place >= from) => "∞".to_owned(),
        None => "–".to_owned(),
    })
}

/// All of a summary: the advice first, then what it rests on, then what is doubtful.
#[must_use]
pub fn summary(summary: &Summary, style: Style) -> String {
    let mut text = String::new();
    if let Some(recommendation) = &summary.recommendation {
        let _ = writeln!(text, "{}\n", style.heading(&recommendation.text));
        for choice in &recommendation.choices {
            let _ = writeln!(text, "  {:<26} {:<22} {}", choice.need, choice.name, choice.because);
        }
        text.push('\n');
    }
    text += &results(&summary.results, style);
    if !summary.skipped.is_empty() {
        let _ = writeln!(text, "{}", style.heading("Skipped"));
        for skipped in &summary.skipped {
            let _ = writeln!(text, "  {}: {}", skipped.what, skipped.reason);
        }
        text.push('\n');
    }
    text + &doubts(&summary.doubts, style)
}

/// The results, a table per engine and condition.
#[must_use]
pub fn results(results: &[CellResult], style: Style) -> String {
    let mut text = String::new();
    let mut done: Vec<(&str, String)> = Vec::new();
    for result in results {
        let key = (result.cell.engine.as_str(), result.cell.conditions());
        if done.contains(&key) {
            continue;
        }
        let same = |r: &&CellResult| r.cell.engine == key.0 && r.cell.conditions() == key.1;
        let mut rows: Vec<&CellResult> = results.iter().filter(same).collect();
        rows.sort_by_key(|r| r.cell.gap_us);
        rows.sort_by_key(|r| rows_before(results, &r.cell.wake));
        let _ = writeln!(text, "{} {}", style.heading(key.0), style.faint(&format!("· {}", key.1)));
        table(&mut text, &rows, style);
        text.push('\n');
        done.push(key);
    }
    if !results.is_empty() {
        let _ = writeln!(
            text,
            "{}\n",
            style.faint("Times in µs. –: fewer than ten samples lie beyond. ∞: among the lost.")
        );
    }
    text
}

/// Wakes keep the order in which they were first measured.
fn rows_before(results: &[CellResult], wake: &str) -> Option<usize> {
    results.iter().position(|r| r.cell.wake == wake)
}

fn table(text: &mut String, rows: &[&CellResult], style: Style) {
    let head = format!(
        "  {:<14}{:>7}{:>10}{:>5}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>7}{:>7}",
        "wake", "gap", "count", "lost", "min", "p50", "p90", "p99", "p99.9", "max", "stalls", "/min"
    );
    let _ = writeln!(text, "{}", style.faint(&head));
    let mut wake = "";
    for row in rows {
        let shown = if row.cell.wake == wake { "" } else { row.cell.wake.as_str() };
        wake = &row.cell.wake;
        let [p50, p90, p99, p999, max] = tail_texts(row);
        let min = row.figures.min.map_or("–".to_owned(), |ns| micros(ns as f64));
        let per_minute = row.stalls_per_minute.map_or("–".to_owned(), rate);
        let count = grouped(i64::try_from(row.figures.count).unwrap_or(i64::MAX));
        let lost = format!("{:>5}", row.lost);
        let lost = if row.lost > 0 { style.warning(&lost) } else { lost };
        let (gap, stalls) = (row.cell.gap(), row.stalls);
        let _ = writeln!(
            text,
            "  {shown:<14.14}{gap:>7}{count:>10}{lost}{min:>8}{p50:>8}{p90:>8}{p99:>8}{p999:>8}{max:>8}{stalls:>7}{per_minute:>7}"
        );
    }
}

/// Events per minute: 0, 2.5, 1,204.
#[must_use]
pub fn rate(per_minute: f64) -> String {
    if per_minute > 0.0 && per_minute < 9.95 {
        format!("{per_minute:.1}")
    } else {
        grouped(per_minute.round() as i64)
    }
}

/// What to do, under what was seen.
#[must_use]
pub fn doubts(doubts: &[Doubt], style: Style) -> String {
    let mut text = String::new();
    if !doubts.is_empty() {
        let _ = writeln!(text, "{}", style.heading("Doubts"));
    }
    for (advice, seen) in by_advice(doubts) {
        for what in seen.iter().take(ALIKE_MAX) {
            let _ = writeln!(text, "  {}", style.warning(what));
        }
        if seen.len() > ALIKE_MAX {
            let _ = writeln!(text, "  … and {} more like it", seen.len() - ALIKE_MAX);
        }
        let _ = writeln!(text, "    → {advice}");
    }
    text
}

/// What was left out, and why.
#[must_use]
pub fn skipped(skipped: &[Skipped], style: Style) -> String {
    if skipped.is_empty() {
        return String::new();
    }
    let mut text = format!("{}\n", style.heading("Not measured"));
    for one in skipped {
        text += &wrapped(&format!("{}: {}", one.what, one.reason), "  ", "    ");
    }
    text.push('\n');
    text
}

/// The words on lines of at most [`WIDTH`] characters.
pub(crate) fn wrapped(words: &str, first: &str, others: &str) -> String {
    let (mut text, mut line) = (String::new(), first.to_owned());
    let mut is_fresh = true;
    for word in words.split_whitespace() {
        if !is_fresh && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text += &line;
            text.push('\n');
            line = others.to_owned();
            is_fresh = true;
        }
        if !is_fresh {
            line.push(' ');
        }
        line += word;
        is_fresh = false;
    }
    text + &line + "\n"
}

/// One comparison: the sentence, then the measures.
#[must_use]
pub fn comparison(title: &str, comparison: &Comparison, style: Style) -> String {
    let mut text = format!("{}\n  {}\n", style.heading(title), comparison.sentence);
    let head = format!("  {:<12}{:>12}{:>12}{:>9}{:>18}   verdict", "", "A", "B", "B / A", "interval");
    let _ = writeln!(text, "{}", style.faint(&head));
    for measure in &comparison.measures {
        let _ = writeln!(text, "{}", measure_line(measure, style));
    }
    text + &doubts(&comparison.doubts, style)
}

fn measure_line(measure: &Measure, style: Style) -> String {
    let stalls = measure.aspect == Aspect::StallsPerMinute;
    let shown = |value: Option<f64>| value.map_or("∞".to_owned(), if stalls { rate } else { micros });
    let ratio = match measure.ratio {
        _ if stalls && measure.a == Some(0.0) => "–".to_owned(),
        Some(ratio) => format!("{ratio:.2}"),
        None => "∞".to_owned(),
    };
    let high = measure.high.map_or("∞".to_owned(), |high| format!("{high:.2}"));
    let verdict = match (measure.difference, stalls) {
        (Difference::None, _) => style.faint("no difference"),
        (Difference::Faster, false) => style.paint("32", "faster"),
        (Difference::Slower, false) => style.warning("slower"),
        (Difference::Faster, true) => style.paint("32", "fewer"),
        (Difference::Slower, true) => style.warning("more"),
    };
    let interval = format!("{:.2} to {high}", measure.low);
    let (name, a, b) = (measure.aspect.as_str(), shown(measure.a), shown(measure.b));
    format!("  {name:<12}{a:>12}{b:>12}{ratio:>9}{interval:>18}   {verdict}")
}

/// Two runs: what differs, cell by cell, then how many do not.
#[must_use]
pub fn run_comparison(runs: &RunComparison, style: Style) -> String {
    let mut text = String::new();
    let differing = runs.cells.iter().filter(|c| c.comparison.differs());
    for cell in differing {
        text += &comparison(&cell.cell.to_string(), &cell.comparison, style);
        text.push('\n');
    }
    let (all, differ) = (runs.cells.len(), runs.differing());
    let [a, b, others] = runs.runs;
    let taken = match runs.order {
        Order::Interleaved => format!("{a} pairs of runs in turn"),
        Order::Separate if others == 0 => format!("{a} against {b} runs"),
        Order::Separate => format!("{a} against {b} runs, beside {others} others of this host"),
    };
    let chance = "of cells that are equal, at most one in 20 would by chance";
    let _ = writeln!(text, "{differ} of {all} cells differ, by {taken}; {chance}.");
    if let Some([half, most]) = runs.pairs_needed() {
        let _ = writeln!(
            text,
            "To find 10 % more of p50 in four of five cases: {half} pairs in half of the cells, {most} in nine of ten (--pairs)."
        );
    }
    text.push('\n');
    text + &doubts(&runs.doubts, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_between_words() {
        let text = wrapped(&"word ".repeat(50), "→ ", "  ");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 50);
    }
}
