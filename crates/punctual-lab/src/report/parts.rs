//! The sections that every experiment has: results, advice, omissions, doubts; and a comparison.

use super::code::code_of;
use super::section::{Cell, Column, Item, Output, Section, Table, TableOf, Tone, numbers};
use crate::compare::{Aspect, Basis, Comparison, Difference, Measure, Order, RunComparison};
use crate::doubt::{ALIKE_MAX, Doubt, by_advice};
use crate::sample::{CellId, Kind};
use crate::summary::{CellResult, Recommendation, Skipped, Summary};
use crate::units::{count, dash, micros, micros_or_dash, plural, rate};

/// Legend of the signs in place of a missing figure.
pub const LEGEND: &str = "Times in µs. –: fewer than ten samples lie beyond. ∞: among the lost.";

/// Titles of what ends every answer.
pub const DOUBTS: &str = "Doubts";
/// Where what was left out stands.
pub const SKIPPED: &str = "Not measured";

/// Meaning of the words of every table; said once, where they first stand.
pub const WORDS: &str = "Route: what carries a message (before the slash), and how its receiver waits. Gap: idle time before a \
    message. Open load: messages are due at fixed instants, whatever is outstanding; closed: each waits for the reply \
    before. Stall: one hold-up, in which one or more messages were far later than the usual one.";

/// The texts of p50, p90, p99, p99.9 and max: a dash where the sample is too small, ∞ where it is lost.
pub fn tail_texts(result: &CellResult) -> [String; 5] {
    result.figures.tail_ns().map(|ns| time_text(ns.filter(|ns| ns.is_finite()), ns.is_some()))
}

/// A time, µs; without one ∞ where it is among the lost, else a dash.
pub fn time_text(ns: Option<f64>, is_infinite: bool) -> String {
    match ns {
        Some(ns) => micros(ns),
        None if is_infinite => "∞".to_owned(),
        None => dash(),
    }
}

/// [`tail_texts`] as cells: the median to look at, the lost to worry about.
pub fn tail_cells(result: &CellResult) -> [Cell; 5] {
    let mut place = 0;
    tail_texts(result).map(|text| {
        place += 1;
        let tone = match text.as_str() {
            "–" => Tone::Faint,
            "∞" => Tone::Bad,
            _ if place == 1 => Tone::Strong,
            _ => Tone::Plain,
        };
        Cell::toned(text, tone)
    })
}

/// Heads of the columns of [`tail_cells`].
const TAIL: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

/// Those columns of [`tail_cells`] that have these heads; a dash where a row has no result.
pub fn tail_columns<'a, R>(
    table: TableOf<R>,
    heads: &[&str],
    result: impl Fn(&R) -> Option<&'a CellResult>,
) -> TableOf<R> {
    debug_assert!(heads.iter().all(|head| TAIL.contains(head)), "{heads:?}");
    let cell = |row: &R, place: usize| {
        result(row).map_or_else(|| dash().into(), |result| tail_cells(result)[place].clone())
    };
    let chosen = TAIL.iter().enumerate().filter(|(_, head)| heads.contains(head));
    chosen.fold(table, |table, (place, head)| table.number(head, |row| cell(row, place)))
}

/// The median, p99 and the longest of [`tail_cells`]; dashes where there is no result.
pub fn three_cells(result: Option<&CellResult>) -> [Cell; 3] {
    result.map_or_else(
        || [dash(), dash(), dash()].map(Cell::from),
        |result| {
            let [p50, _, p99, _, max] = tail_cells(result);
            [p50, p99, max]
        },
    )
}

/// All of a summary: the advice first, then what it rests on, then what is doubtful.
pub fn summary(summary: &Summary) -> Vec<Section> {
    let mut sections: Vec<Section> = summary.recommendation.iter().map(advice).collect();
    sections.extend(results(&summary.results));
    sections.extend(rest(summary));
    sections
}

/// The end of every answer: omissions and doubts.
pub fn rest(summary: &Summary) -> Vec<Section> {
    skipped(&summary.skipped).into_iter().chain(doubts(&summary.doubts)).collect()
}

/// Routes to use, each with its need and its code.
pub fn advice(recommendation: &Recommendation) -> Section {
    let items = recommendation.choices.iter().map(|choice| {
        let item = Item::new(&choice.need).then(format!("{}: {}", choice.name, choice.because));
        Item { code: code_of(&choice.name), ..item }
    });
    // The page begins with it.
    Section::new("What to use on this machine").items(items.collect()).only_on(Output::Terminal)
}

/// The results, a table per engine and condition.
pub fn results(results: &[CellResult]) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut done: Vec<(&str, String)> = Vec::new();
    // Nobody waits for a throughput: the experiment shows it.
    for result in results.iter().filter(|result| result.cell.kind != Kind::Throughput) {
        let key = (result.cell.engine.as_str(), result.cell.conditions());
        if done.contains(&key) {
            continue;
        }
        let same = |r: &&CellResult| r.cell.engine == key.0 && r.cell.conditions() == key.1;
        let mut rows: Vec<&CellResult> = results.iter().filter(same).collect();
        rows.sort_by_key(|r| r.cell.gap_us);
        // Wakes keep the order in which they were first measured.
        rows.sort_by_key(|r| results.iter().position(|one| one.cell.wake == r.cell.wake));
        sections.push(Section::new(key.0).about(key.1.clone()).table(figures(&rows)));
        done.push(key);
    }
    if let Some(last) = sections.pop() {
        sections.push(last.note(LEGEND));
    }
    sections
}

fn figures(rows: &[&CellResult]) -> Table {
    let mut columns = vec![Column::name("wake"), Column::number("gap")];
    columns.extend(numbers(["count", "lost", "min", "p50", "p90", "p99", "p99.9", "max", "stalls", "/min"]));
    let mut table = Table::new(columns).keyed(2);
    for row in rows {
        let mut cells = vec![Cell::from(&row.cell.wake), row.cell.gap().into()];
        cells.extend([count(row.figures.count).into(), Cell::broken(row.lost)]);
        cells.push(micros_or_dash(row.figures.min).into());
        cells.extend(tail_cells(row));
        cells.push(count(row.stalls).into());
        cells.push(row.stalls_per_minute.map_or_else(dash, rate).into());
        table.row(cells);
    }
    table.without_empty()
}

/// Where the median message's time goes: a row for each of these stages that a result has, with its words; a column for each result,
/// or one more for the part of all messages' time.
pub fn stages<'s>(
    results: &[&CellResult],
    stages: impl Iterator<Item = (&'s str, &'s str)>,
    has_parts: bool,
) -> Table {
    let of = |result: &CellResult, name: &str| result.stages.iter().find(|one| one.name == name).cloned();
    let rows = stages.filter(|(name, _)| results.iter().any(|result| of(result, name).is_some()));
    let mut table = TableOf::new(rows).name("stage", |(_, words)| *words);
    for result in results {
        let engine = &result.cell.engine;
        let median = |(name, _): &(&str, &str)| {
            of(result, name).map_or_else(dash, |stage| micros(stage.median_ns as f64))
        };
        let part = |(name, _): &(&str, &str)| {
            of(result, name).map_or_else(dash, |stage| format!("{:.0} %", stage.share * 100.0))
        };
        table = match has_parts {
            true => table.over(engine).number("median", |row| Cell::strong(median(row))).number("part", part),
            false => table.number(engine, median),
        };
    }
    table.keyed(1)
}

/// Advice, under the observations that lead to it.
pub fn doubts(doubts: &[Doubt]) -> Option<Section> {
    let items = by_advice(doubts).into_iter().map(|(advice, seen)| {
        let mut lines: Vec<String> = seen.iter().take(ALIKE_MAX).map(|&what| what.to_owned()).collect();
        if seen.len() > ALIKE_MAX {
            lines.push(format!("… and {} more like it", seen.len() - ALIKE_MAX));
        }
        Item { lines, is_warning: true, then: Some(advice.to_owned()), code: None }
    });
    let items: Vec<Item> = items.collect();
    let note = "What may be wrong with these numbers, and what to do about it.";
    (!items.is_empty()).then(|| Section::new(DOUBTS).note(note).items(items))
}

/// Skipped measurements, with the reasons.
pub fn skipped(skipped: &[Skipped]) -> Option<Section> {
    let items = Skipped::by_reason(skipped).into_iter().map(Item::new);
    (!skipped.is_empty()).then(|| Section::new(SKIPPED).items(items.collect()))
}

/// One comparison: the sentence, then the measures.
pub fn comparison(title: &str, comparison: &Comparison) -> Vec<Section> {
    let mut columns = vec![Column::name("")];
    columns.extend(numbers(["A", "B", "B / A", "interval"]));
    columns.push(Column::name("verdict"));
    let mut table = Table::new(columns);
    comparison.measures.iter().for_each(|measure| table.row(measure_row(measure)));
    let section = Section::new(title).words(&comparison.sentence).table(table);
    [section].into_iter().chain(doubts(&comparison.doubts)).collect()
}

/// A bound above it bounds nothing: too few runs say how far they lie apart.
const BOUND_SHOWN_MAX: f64 = 1_000.0;

fn measure_row(measure: &Measure) -> [Cell; 6] {
    let stalls = measure.aspect == Aspect::StallsPerMinute;
    let shown = |value: Option<f64>| value.map_or("∞".to_owned(), if stalls { rate } else { micros });
    let bounded = measure.high.filter(|&high| high <= BOUND_SHOWN_MAX);
    let high = bounded.map_or("∞".to_owned(), |high| format!("{high:.2}"));
    let verdict = match (measure.difference, stalls) {
        (Difference::None, _) => Cell::toned("no difference", Tone::Faint),
        (Difference::Faster, false) => Cell::toned("faster", Tone::Good),
        (Difference::Slower, false) => Cell::toned("slower", Tone::Bad),
        (Difference::Faster, true) => Cell::toned("fewer", Tone::Good),
        (Difference::Slower, true) => Cell::toned("more", Tone::Bad),
    };
    let interval = format!("{:.2} to {high}", measure.low);
    let [a, b] = [measure.a, measure.b].map(shown);
    [
        measure.aspect.in_table().into(),
        a.into(),
        b.into(),
        ratio_text(measure).into(),
        interval.into(),
        verdict,
    ]
}

/// B / A. The ratio of a finite value to an infinite one is zero, and two infinities have no ratio; nor has any value a ratio to zero
/// stalls.
fn ratio_text(measure: &Measure) -> String {
    match (measure.a, measure.b, measure.ratio) {
        (Some(0.0), _, _) if measure.aspect == Aspect::StallsPerMinute => dash(),
        (None, Some(_), _) => "0.00".to_owned(),
        (Some(_), None, _) => "∞".to_owned(),
        (_, _, ratio) => ratio.map_or_else(dash, |ratio| format!("{ratio:.2}")),
    }
}

/// Two runs: the differences, cell by cell, then the number of cells without any.
pub fn run_comparison(runs: &RunComparison) -> Vec<Section> {
    let differing = runs.cells.iter().filter(|c| c.comparison.differs());
    let mut sections: Vec<Section> =
        differing.flat_map(|cell| comparison(&cell.cell.to_string(), &cell.comparison)).collect();
    let (all, differ) = (runs.cells.len(), runs.differing());
    let [a, b, others] = runs.runs;
    let taken = match runs.order {
        Order::Interleaved => format!("{a} pairs of runs in turn"),
        Order::Separate if others == 0 => format!("{a} against {b} runs"),
        Order::Separate => {
            format!("{a} against {b} runs, beside {} of this host", plural(others as u64, "other"))
        }
    };
    let chance = "of cells that are equal, at most one in 20 would by chance";
    let mut whole = Section::new(format!("{differ} of {all} cells differ, by {taken}; {chance}."));
    if let Some([half, most]) = runs.pairs_needed() {
        whole = whole.words(format!(
            "To find 10 % more of p50 in four of five cases: {half} pairs in half of the cells, {most} in nine of ten (--pairs)."
        ));
    }
    if runs.unresolved() > 0 {
        let cells = plural(runs.unresolved() as u64, "cell");
        whole = whole.words(format!("In {cells} the clock hides 10 %: no number of pairs finds it."));
    }
    // A cell without a difference has no section, and what its samples lack is no less true for it.
    whole = of_alike(runs).into_iter().fold(whole, Section::words);
    sections.push(whole);
    let alike = runs.cells.iter().map(|cell| &cell.comparison).filter(|one| !one.differs());
    let of_cells = alike.flat_map(|one| &one.doubts);
    sections.extend(doubts(&runs.doubts.iter().chain(of_cells).cloned().collect::<Vec<_>>()));
    sections
}

/// Messages without a right answer in cells that do not differ, and cells of which nothing can be said.
fn of_alike(runs: &RunComparison) -> Vec<String> {
    let mut lines = Vec::new();
    let cells: Vec<_> = runs.cells.iter().filter(|cell| !cell.comparison.differs()).collect();
    let is_part = |cell: &CellId| runs.cells.iter().any(|other| cell.is_way_of(&other.cell));
    let wholes: Vec<_> = cells.iter().filter(|cell| !is_part(&cell.cell)).collect();
    let mut all: Vec<(&str, [u64; 2])> = Vec::new();
    for (what, [a, b]) in wholes.iter().flat_map(|cell| cell.comparison.unanswered()) {
        match all.iter_mut().find(|(other, _)| *other == what) {
            Some((_, [of_a, of_b])) => (*of_a, *of_b) = (of_a.saturating_add(a), of_b.saturating_add(b)),
            None => all.push((what, [a, b])),
        }
    }
    for (what, [a, b]) in all.into_iter().filter(|(_, counts)| *counts != [0, 0]) {
        lines.push(format!("Cells that do not differ: A {what} {}, B {what} {}.", count(a), count(b)));
    }
    let silent = cells.iter().filter(|cell| matches!(cell.comparison.basis, Basis::Pairs(..2))).count();
    if silent > 0 {
        lines.push(format!(
            "Nothing can be said of {}: a verdict needs at least two pairs of runs.",
            plural(silent as u64, "cell")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an interval whose upper end has 25 digits is one without an end.
    #[test]
    fn a_bound_that_bounds_nothing_is_infinite() {
        let interval = |high| {
            let (aspect, a, b, ratio) = (Aspect::Max, Some(2e3), Some(2e3), Some(1.0));
            let difference = Difference::None;
            measure_row(&Measure { aspect, a, b, ratio, low: 0.0, high, difference })[4].text.clone()
        };
        assert_eq!(interval(Some(4.9e24)), "0.00 to ∞");
        assert_eq!(interval(Some(999.0)), "0.00 to 999.00");
    }

    /// Goal: the ratio says which side is infinite, and nothing where both are.
    #[test]
    fn the_ratio_to_an_infinity_is_nothing() {
        let of = |a, b, ratio| {
            let (low, high, difference) = (0.0, None, Difference::None);
            ratio_text(&Measure { aspect: Aspect::P99, a, b, ratio, low, high, difference })
        };
        assert_eq!(of(Some(2e3), Some(3e3), Some(1.5)), "1.50");
        assert_eq!(of(None, Some(3e3), None), "0.00");
        assert_eq!(of(Some(2e3), None, None), "∞");
        assert_eq!(of(None, None, None), "–");
    }
}
