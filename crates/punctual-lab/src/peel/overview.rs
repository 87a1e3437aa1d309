//! Output of `punctual run peel`: the layers as a staircase, the costs that are paid once, the place where each mistake shows.

use super::analysis::{Cost, FIGURES, FaultFound, GROWN_MIN, Interval, Part, SIGNALS, median, values};
use super::layer::{InjectedFault, Layer};
use super::overall::Overall;
use super::start_fix::FixTried;
use super::startup::StartUp;
use crate::explain::cause::Cause;
use crate::report::draw::{Stair, stairs};
use crate::report::parts;
use crate::report::section::{Block, Cell, Column, Section, Table, Tone};
use crate::summary::Summary;
use crate::units::{OptionName, dash, grouped, micros, percent};

/// The peel's part of the summary.
pub fn overall(summary: &Summary) -> Option<Overall> {
    summary.added("peel")
}

/// The whole answer.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(all) = overall(summary) {
        sections.extend(layers(&all));
        sections.extend(starts(&all));
        sections.extend(ranked(&all));
        sections.extend(found(&all));
        sections.extend(fixes(&all));
    }
    sections.extend(parts::rest(summary));
    sections
}

/// "0.31 (0.28 to 0.35)"; "0.31" where it has no interval.
fn interval(interval: &Interval) -> String {
    with_interval(interval, &micros)
}

fn with_interval(interval: &Interval, shown: &dyn Fn(f64) -> String) -> String {
    let Interval { ns, low_ns, high_ns } = *interval;
    let ends = low_ns.zip(high_ns).map(|(low, high)| format!(" ({} to {})", shown(low), shown(high)));
    format!("{}{}", shown(ns), ends.unwrap_or_default())
}

/// The layers; nothing where no round was whole.
fn layers(all: &Overall) -> Option<Section> {
    if all.peeled.costs.is_empty() {
        return None;
    }
    let mut columns = vec![Column::name("through"), Column::number("p50"), Column::number("adds (interval)")];
    columns.extend([Column::number("part"), Column::prose("what it adds")]);
    let mut table = Table::new(columns);
    let strong = |ns: f64| Cell::toned(micros(ns), Tone::Strong);
    for Cost { layer, through_ns, adds, found } in &all.peeled.costs {
        let part = match (*found, adds.low_ns) {
            (true, _) => percent(adds.ns / all.peeled.whole_ns),
            (false, Some(_)) => "≈ 0".to_owned(),
            (false, None) => dash(),
        };
        let what = Cell::toned(layer.adds(all.medium), Tone::Faint);
        table.row([layer.name().into(), strong(*through_ns), interval(adds).into(), part.into(), what]);
    }
    let has_intervals = all.peeled.costs.iter().any(|cost| cost.adds.low_ns.is_some());
    let attributed = if has_intervals { percent(all.peeled.attributed) } else { dash() };
    let whole = "measured apart; the part is that of the layers whose interval excludes zero";
    table.row([
        Layer::Whole.name().into(),
        strong(all.peeled.whole_ns),
        Cell::default(),
        attributed.into(),
        Cell::toned(whole, Tone::Faint),
    ]);
    let about = format!("round trip of 92 B over {}, µs; asleep: {}", all.medium.name(), all.wake);
    let note = "Differences are taken within each round, intervals over rounds.";
    let section = Section::new("Layer by layer").about(about).note(note).with(staircase(all)).table(table);
    Some(all.interrupted.iter().fold(section, |section, interrupted| {
        section.words(format!(
            "With O_ASYNC from the start (sigio-at-start), the layer of asynchronous reception is interrupted {:.2} times per \
             frame ({:.2} without), and takes {} µs longer.",
            interrupted.with_per_frame,
            interrupted.without_per_frame,
            interval(&interrupted.adds)
        ))
    }))
}

fn staircase(all: &Overall) -> Block {
    let mut begin = 0.0;
    let mut steps: Vec<Stair> = Vec::new();
    for cost in &all.peeled.costs {
        let Interval { ns, low_ns, high_ns } = cost.adds;
        steps.push(Stair {
            name: cost.layer.name(),
            from: begin,
            to: begin + ns,
            interval: low_ns.zip(high_ns).map(|(low, high)| [begin + low, begin + high]),
            is_found: cost.found,
            tip: format!("{}: {} µs", cost.layer.name(), interval(&cost.adds)),
        });
        begin += ns;
    }
    let (name, tip, to) = ("whole".to_owned(), "the whole path".to_owned(), all.peeled.whole_ns);
    steps.push(Stair { name, from: 0.0, to, interval: None, is_found: false, tip });
    stairs("what each layer adds", &steps)
}

fn of_all(starts: &[StartUp], of: fn(&StartUp) -> f64) -> String {
    if starts.is_empty() { dash() } else { micros(median(&mut values(starts, of))) }
}

fn signals(starts: &[StartUp]) -> String {
    grouped(median(&mut values(starts, |start| start.signals_per_mille as f64)).round() as i64)
}

fn starts(all: &Overall) -> Option<Section> {
    let mut columns = vec![Column::prose("what"), Column::number("without")];
    columns.extend(all.starts_with.iter().map(|(culprit, _)| Column::number(culprit.name())));
    let mut table = Table::new(columns);
    let mut row = |name: &str, of: &dyn Fn(&[StartUp]) -> String| {
        let with = all.starts_with.iter().map(|(_, starts)| Cell::from(of(starts)));
        table.row([Cell::from(name), Cell::toned(of(&all.starts), Tone::Strong)].into_iter().chain(with));
    };
    if all.starts.is_empty() {
        return None;
    }
    for (name, _, of) in FIGURES {
        row(name, &|starts| of_all(starts, of));
    }
    row(SIGNALS, &signals);
    let about = format!("fresh processes, medians of {} starts, µs", all.starts.len());
    let note = "None of this is in the layers above. A column per mistake that was switched on; starts with and without it were \
                taken in turn.";
    Some(Section::new("Paid once").about(about).note(note).table(table))
}

/// Parts of a start, the longest first, and the costs that its first message pays.
fn ranked(all: &Overall) -> Vec<Section> {
    let lists = [
        ("What a start consists of", "until it is ready, the longest first, µs", &all.until_ready),
        ("What the first message takes longer", "than later ones, by its own stages, µs", &all.first_message),
    ];
    let some = lists.into_iter().filter(|(_, _, parts)| !parts.is_empty());
    some.map(|(title, about, parts)| {
        let mut columns = vec![Column::prose("what"), Column::number("takes"), Column::number("part")];
        let has_causes = parts.iter().any(|part| part.cause != Cause::UNEXPLAINED);
        columns.extend(has_causes.then(|| Column::prose("cause")));
        let mut table = Table::new(columns);
        for Part { name, cause, takes, part } in parts {
            let cause = Some(cause).filter(|&cause| *cause != Cause::UNEXPLAINED);
            let mut row = vec![name.as_str().into(), interval(takes).into(), percent(*part).into()];
            row.extend(has_causes.then(|| Cell::from(cause.map_or_else(dash, ToString::to_string))));
            table.row(row);
        }
        Section::new(title).about(about).table(table)
    })
    .collect()
}

/// Effect of a fix on each mistake.
pub fn fixes(all: &Overall) -> Option<Section> {
    let mut columns = vec![Column::name("mistake"), Column::prose("shows in")];
    columns.extend([Column::number("without the fix"), Column::number("with it"), Column::number("adds")]);
    columns.push(Column::prose("verdict"));
    let mut table = Table::new(columns);
    let mut worse = Vec::new();
    for FixTried { culprit, figure, without, with, adds, is_improved, worse: costs, .. } in &all.fixes {
        let verdict = if *is_improved { "improved" } else { "not improved" };
        let tone = if *is_improved { Tone::Good } else { Tone::Bad };
        let cells = compared(*culprit, figure, [*without, *with], adds);
        table.row(cells.into_iter().chain([Cell::toned(verdict, tone)]));
        worse.extend(costs.iter().map(|(figure, adds)| {
            format!("With the fix of {}, {figure} takes longer by {} µs.", culprit.name(), interval(adds))
        }));
    }
    let fix = all.fixes.first()?.fix.name();
    let about = format!("{fix}: starts with each mistake, with the fix and without it, in turn");
    if all.fixes.iter().any(|tried| pairs(all, tried.culprit) < GROWN_MIN) {
        // An unknown effect must not look like no effect.
        worse.push(format!(
            "Fewer than {GROWN_MIN} starts of each kind do not tell what takes longer with a fix."
        ));
    }
    let section = Section::new("The fix that was tried").about(about).table(table);
    Some(worse.into_iter().fold(section, Section::words))
}

/// Starts with a mistake that have one with the fix beside them.
fn pairs(all: &Overall, culprit: InjectedFault) -> usize {
    let of = |starts: &[(InjectedFault, Vec<StartUp>)]| {
        starts.iter().find(|(one, _)| *one == culprit).map_or(0, |(_, starts)| starts.len())
    };
    of(&all.starts_with).min(of(&all.starts_fixed))
}

/// The mistake, where it shows, both medians, and by how much the second differs.
fn compared(culprit: InjectedFault, figure: &str, medians: [f64; 2], adds: &Interval) -> [Cell; 5] {
    let [first, second] = medians.map(|median| shown(figure, median).into());
    [culprit.name().into(), figure.into(), first, second, between(figure, adds).into()]
}

/// A figure's value: a time, or a count.
fn shown(figure: &str, value: f64) -> String {
    if figure == SIGNALS { grouped(value.round() as i64) } else { format!("{} µs", micros(value)) }
}

fn between(figure: &str, adds: &Interval) -> String {
    if figure == SIGNALS {
        with_interval(adds, &|value| shown(figure, value))
    } else {
        format!("{} µs", interval(adds))
    }
}

fn found(all: &Overall) -> Option<Section> {
    let mut columns = vec![Column::name("mistake"), Column::prose("shows in")];
    columns.extend([Column::number("without"), Column::number("with"), Column::number("adds")]);
    columns.extend([Column::prose("cause"), Column::prose("try"), Column::prose("verdict")]);
    let mut table = Table::new(columns);
    for FaultFound { culprit, figure, cause, fix, without, with, adds, found } in &all.found {
        let verdict = if *found {
            Cell::from("found")
        } else {
            Cell::toned("NOT FOUND: this is what grew most", Tone::Bad)
        };
        let cells = compared(*culprit, figure, [*without, *with], adds);
        table.row(cells.into_iter().chain([cause.to_string().into(), fix.as_str().into(), verdict]));
    }
    Section::new("The mistakes that were switched on").table(table).with_rows()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peel::start_fix::StartFix;

    /// Goal: where too few starts were made to tell what a fix makes worse, that is said; where enough were, nothing is.
    #[test]
    fn it_is_said_what_too_few_starts_do_not_tell() {
        let culprit = InjectedFault::PoolsInConstructor;
        let said = |pairs: usize| {
            let starts = |count| vec![(culprit, vec![StartUp::default(); count])];
            let tried = FixTried {
                fix: StartFix::Prime,
                culprit,
                figure: FIGURES[0].0.to_owned(),
                without: 2.0,
                with: 1.0,
                adds: Interval::default(),
                is_improved: true,
                worse: None,
            };
            let all = Overall {
                starts_with: starts(GROWN_MIN),
                starts_fixed: starts(pairs),
                fixes: vec![tried],
                ..Overall::default()
            };
            format!("{:?}", fixes(&all).expect("a section"))
        };
        assert!(said(GROWN_MIN - 1).contains("Fewer than 8 starts"), "{}", said(GROWN_MIN - 1));
        assert!(!said(GROWN_MIN).contains("Fewer"), "{}", said(GROWN_MIN));
    }
}
