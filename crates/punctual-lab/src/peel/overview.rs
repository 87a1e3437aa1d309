//! Output of `punctual run peel`: the layers as a staircase, the costs that are paid once, the place where each mistake shows.

use super::analysis::{Cost, FIGURES, FaultFound, Figure, GROWN_MIN, Growth, Part, Peeled, SIGNALS, values};
use super::layer::{InjectedFault, Layer};
use super::overall::Overall;
use super::start_fix::FixTried;
use super::startup::StartUp;
use crate::explain::cause::Cause;
use crate::report::draw::{Stair, stairs};
use crate::report::parts;
use crate::report::section::{Block, Cell, Section, TableOf, Tone};
use crate::stats::{Interval, median};
use crate::summary::Summary;
use crate::units::{OptionName, dash, grouped, in_range, micros, percent};

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
    in_range(interval.ns, interval.ends(), micros)
}

/// The layers; nothing where no round was whole.
fn layers(all: &Overall) -> Option<Section> {
    let Peeled { costs, whole_ns, attributed, .. } = &all.peeled;
    if costs.is_empty() {
        return None;
    }
    let has_intervals = costs.iter().any(|cost| cost.adds.low_ns.is_some());
    let whole = whole_words(&all.peeled);
    // The whole path is the last row.
    let table = TableOf::new(costs.iter().map(Some).chain([None]))
        .name("through", |cost| cost.map_or(Layer::Whole, |cost| cost.layer).name())
        .number("p50", |cost| Cell::strong(micros(cost.map_or(*whole_ns, |cost| cost.through_ns))))
        .number("adds (interval)", |cost| cost.map_or_else(String::new, |cost| interval(&cost.adds)))
        .number("part", |cost| match cost {
            Some(Cost { found: true, adds, .. }) => percent(adds.ns / whole_ns),
            Some(Cost { adds: Interval { low_ns: Some(_), .. }, .. }) => "≈ 0".to_owned(),
            None if has_intervals => percent(*attributed),
            _ => dash(),
        })
        .prose("what it adds", |cost| {
            Cell::toned(cost.map_or(whole, |cost| cost.layer.adds(all.medium)), Tone::Faint)
        })
        .keyed(1);
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

/// The part of the whole that its layers tell of. Layers that add up to more than the whole leave as much of it open as those that add
/// up to less.
fn whole_words(peeled: &Peeled) -> &'static str {
    if peeled.found_ns > peeled.whole_ns {
        "measured apart; the layers whose interval excludes zero add up to more, and the part is less by the excess"
    } else {
        "measured apart; the part is that of the layers whose interval excludes zero"
    }
}

fn staircase(all: &Overall) -> Block {
    let mut begin = 0.0;
    let mut steps: Vec<Stair> = Vec::new();
    for cost in &all.peeled.costs {
        steps.push(Stair {
            name: cost.layer.name(),
            from: begin,
            to: begin + cost.adds.ns,
            interval: cost.adds.ends().map(|ends| ends.map(|end| begin + end)),
            is_found: cost.found,
            tip: format!("{}: {} µs", cost.layer.name(), interval(&cost.adds)),
        });
        begin += cost.adds.ns;
    }
    let (name, tip, to) = ("whole".to_owned(), "the whole path".to_owned(), all.peeled.whole_ns);
    steps.push(Stair { name, from: 0.0, to, interval: None, is_found: false, tip });
    stairs("what each layer adds", &steps)
}

/// The median of a figure.
fn usual((name, _, of): &Figure, starts: &[StartUp]) -> String {
    let median = median(&values(starts, of));
    match *name {
        SIGNALS => grouped(median.round() as i64),
        _ if starts.is_empty() => dash(),
        _ => micros(median),
    }
}

fn starts(all: &Overall) -> Option<Section> {
    if all.starts.is_empty() {
        return None;
    }
    let mut table = TableOf::new(&FIGURES)
        .prose("what", |figure| figure.0)
        .number("without", |figure| Cell::strong(usual(figure, &all.starts)));
    for (culprit, starts) in &all.starts_with {
        table = table.number(&culprit.name(), |figure| usual(figure, starts));
    }
    let about = format!("fresh processes, medians of {} starts, µs", all.starts.len());
    let note = "None of this is in the layers above. A column per mistake that was switched on; starts with and without it were \
                taken in turn.";
    Some(Section::new("Paid once").about(about).note(note).table(table.keyed(1)))
}

/// Parts of a start, the longest first, and the costs that its first message pays.
fn ranked(all: &Overall) -> Vec<Section> {
    let lists = [
        ("What a start consists of", "until it is ready, the longest first, µs", &all.until_ready),
        ("What the first message takes longer", "than later ones, by its own stages, µs", &all.first_message),
    ];
    let section = |(title, about, parts): (&str, &str, &Vec<Part>)| {
        let mut table = TableOf::new(parts)
            .prose("what", |part| &part.name)
            .number("takes", |part| interval(&part.takes))
            .number("part", |part| percent(part.part));
        let is_known = |part: &&Part| part.cause != Cause::UNEXPLAINED;
        if parts.iter().any(|part| is_known(&part)) {
            let cause = |part: &&Part| if is_known(part) { part.cause.to_string() } else { dash() };
            table = table.prose("cause", cause);
        }
        Section::new(title).about(about).table(table.keyed(1)).with_rows()
    };
    lists.into_iter().filter_map(section).collect()
}

/// Effect of a fix on each mistake.
pub fn fixes(all: &Overall) -> Option<Section> {
    let verdict = |tried: &&FixTried| {
        let (verdict, tone) =
            if tried.is_improved { ("improved", Tone::Good) } else { ("not improved", Tone::Bad) };
        Cell::toned(verdict, tone)
    };
    let heads = ["without the fix", "with it"];
    let table = compared(&all.fixes, heads, |tried| (tried.culprit, &tried.growth))
        .prose("verdict", verdict)
        .keyed(1);
    let mut worse: Vec<String> = Vec::new();
    for tried in &all.fixes {
        worse.extend(tried.worse.iter().map(|(figure, adds)| {
            let culprit = tried.culprit.name();
            format!("With the fix of {culprit}, {figure} takes longer by {} µs.", interval(adds))
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

/// The mistake, where it shows, both medians under these heads, and by how much the second differs.
fn compared<'a, R>(
    rows: &'a [R],
    heads: [&str; 2],
    of: impl Fn(&R) -> (InjectedFault, &Growth),
) -> TableOf<&'a R> {
    let median = |growth: &Growth, ns: f64| shown(&growth.figure, ns, None);
    TableOf::new(rows)
        .name("mistake", |row| of(row).0.name())
        .prose("shows in", |row| &of(row).1.figure)
        .number(heads[0], |row| median(of(row).1, of(row).1.without))
        .number(heads[1], |row| median(of(row).1, of(row).1.with))
        .number("adds", |row| {
            let Growth { figure, adds, .. } = of(row).1;
            shown(figure, adds.ns, adds.ends())
        })
}

/// A figure's value, and its ends where they are known: a time, or a count.
fn shown(figure: &str, value: f64, ends: Option<[f64; 2]>) -> String {
    match figure {
        SIGNALS => in_range(value, ends, |count| grouped(count.round() as i64)),
        _ => format!("{} µs", in_range(value, ends, micros)),
    }
}

fn found(all: &Overall) -> Option<Section> {
    let verdict = |one: &&FaultFound| {
        if one.found {
            Cell::from("found")
        } else {
            Cell::toned("NOT FOUND: this is what grew most", Tone::Bad)
        }
    };
    let table = compared(&all.found, ["without", "with"], |one| (one.culprit, &one.growth))
        .prose("cause", |one| one.cause.to_string())
        .prose("try", |one| &one.fix)
        .prose("verdict", verdict)
        .keyed(1);
    Section::new("The mistakes that were switched on").table(table).with_rows()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peel::start_fix::StartFix;

    /// Goal: the row of the whole says so where its layers add up to more than it.
    #[test]
    fn layers_beyond_the_whole_are_said() {
        let of = |found_ns| whole_words(&Peeled { whole_ns: 1_000.0, found_ns, ..Peeled::default() });
        assert!(of(1_022.0).contains("add up to more"));
        assert!(!of(978.0).contains("more"));
    }

    /// Goal: where too few starts were made to tell what a fix makes worse, that is said; where enough were, nothing is.
    #[test]
    fn it_is_said_what_too_few_starts_do_not_tell() {
        let culprit = InjectedFault::PoolsInConstructor;
        let said = |pairs: usize| {
            let starts = |count| vec![(culprit, vec![StartUp::default(); count])];
            let tried = FixTried {
                fix: StartFix::Prime,
                culprit,
                growth: Growth { figure: FIGURES[0].0.to_owned(), ..Growth::default() },
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
