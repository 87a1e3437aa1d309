//! Output of `punctual run response`: figures, stages, and the sides that were late. All of it stands in the summary.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::option::urgency_at;
use super::published::{comparison, inside_share};
use super::recording_cost;
use super::shares::{Share, first_of};
use super::trips::STAGES;
use crate::explain::cause::Cause;
use crate::explain::clue::LIMIT_NS_MIN;
use crate::explain::finding::Explained;
use crate::explain::stage::Side;
use crate::report::parts::{self, LEGEND, WORDS, tail_texts, time_text};
use crate::report::section::{Cell, Item, Output, Section, TableOf, Tone};
use crate::sample::Load;
use crate::stats::UNEXPLAINED;
use crate::summary::{CellResult, Summary};
use crate::units::{count, dash, micros, micros_or_dash, plural, rate};

/// Stalls of one choice that a terminal tells one by one.
const LONGEST_SHOWN: usize = 3;
/// Kinds of lateness of one choice that are told.
const SHARES_SHOWN: usize = 5;
/// Stalls that the page tells one by one, of all choices.
const FINDINGS_SHOWN: usize = 12;

/// The whole answer.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections: Vec<Section> = figures(summary).into_iter().collect();
    sections.extend(lateness(summary));
    sections.extend(stages(summary));
    sections.extend(recording_cost::section(summary));
    sections.extend(published(summary));
    sections.extend(notes(summary));
    sections.extend(parts::rest(summary));
    sections
}

fn number(result: &CellResult, path: [&str; 2]) -> Option<u64> {
    let value = result.more.get(path[0])?;
    if path[1].is_empty() { value.as_u64() } else { value.get(path[1])?.as_u64() }
}

fn figures(summary: &Summary) -> Option<Section> {
    let cell = &summary.results.first()?.cell;
    let place = summary.more.get("response").and_then(|more| more.get("place")?.as_str()).unwrap_or("");
    let gap = match cell.load {
        Load::Closed if (cell.gap_us, cell.gap_rest_ns) == (0, 0) => "no gap".to_owned(),
        Load::Closed => format!("gap {}", cell.gap()),
        Load::Open => format!("one every {}", cell.gap()),
    };
    let mut table = TableOf::new(&summary.results)
        .name("way", |result| &result.cell.engine)
        .number("trips", |result| count(result.figures.count))
        .number("lost", |result| Cell::broken(result.lost));
    for (place, head) in ["p50", "p90", "p99", "p99.9", "max"].into_iter().enumerate() {
        table = table.number(head, |result| narrow(&tail_texts(result)[place]));
    }
    let table = table
        .over("stalls")
        .number("/min", |result| result.stalls_per_minute.map_or_else(dash, rate))
        .over("CPU")
        .number("client", |result| micros_or_dash(number(result, ["client_cpu_ns_per_message", ""])))
        .number("resp.", |result| micros_or_dash(responder_cpu_ns(result)))
        .keyed(1);
    let about = format!("{} bytes, {} load, {gap}, µs", cell.size, cell.load.as_str());
    let mut section = Section::new("Round trips").about(about).table(table);
    if !place.is_empty() {
        section = section.note(place);
    }
    let section = section.note(format!("CPU: µs of the two threads per trip. {LEGEND}")).note(WORDS);
    Some(inside(summary).into_iter().fold(section, Section::words))
}

/// Of the responder's thread, for each trip.
fn responder_cpu_ns(result: &CellResult) -> Option<u64> {
    number(result, ["responder", "cpu_ns"])?.checked_div(result.ledger.as_ref()?.taken)
}

/// Microseconds that would make their column wide, as seconds.
fn narrow(text: &str) -> String {
    let us: Result<f64, _> = text.replace(',', "").parse();
    match us {
        Ok(us) if text.chars().count() > 7 => format!("{:.2} s", us / 1e6),
        _ => text.to_owned(),
    }
}

/// Where the median trip's time goes, a column per choice.
fn stages(summary: &Summary) -> Option<Section> {
    let stamped: Vec<&CellResult> = summary.results.iter().filter(|r| r.stages.len() > 1).collect();
    let known = STAGES.into_iter().map(|stage| (stage.name, stage.words));
    let table = parts::stages(&stamped, known.chain([(UNEXPLAINED, UNEXPLAINED)]), false);
    Section::new("Stage by stage").about("the median of each, µs").table(table).with_rows()
}

/// One figure per choice: the part of the time inside the responder's host.
fn inside(summary: &Summary) -> Option<String> {
    let of = |result: &CellResult| {
        inside_share(result).map(|share| format!("{} {:.0} %", result.cell.engine, 100.0 * share))
    };
    let shares: Vec<String> = summary.results.iter().filter_map(of).collect();
    let shares = (!shares.is_empty()).then(|| shares.join(", "))?;
    Some(format!(
        "Inside the responder's host, from its kernel's first sight to its device: {shares} of all trips' time."
    ))
}

/// The article's figures beside ours.
fn published(summary: &Summary) -> Option<Section> {
    let rows = comparison(&summary.results);
    let heads = ["mean", "min", "max"];
    let mut table = TableOf::new(&rows).prose("its responder", |row| &row.board).over("published");
    for (place, head) in heads.into_iter().enumerate() {
        table = table.number(head, |row| micros(1000.0 * row.published_us[place]));
    }
    table = table.over("").name("ours", |row| &row.name).over("measured here");
    for (place, head) in heads.into_iter().enumerate() {
        table = table.number(head, |row| {
            let [min, max] = [row.min_ns, row.max_ns].map(|ns| ns.map(|ns| ns as f64));
            time_text([row.mean_ns, min, max][place], row.infinite_from.is_some())
        });
    }
    let table = table.over("").prose("what differs", |row| Cell::toned(&row.differs, Tone::Faint)).keyed(1);
    Section::new("The article's round trips beside ours").about("µs").table(table).with_rows()
}

/// Stalls by side, stage and cause; then the longest of them.
fn lateness(summary: &Summary) -> Vec<Section> {
    let shares = |result: &CellResult| -> Vec<Share> { result.rows("late") };
    let late: Vec<(&CellResult, Vec<Share>)> = summary
        .results
        .iter()
        .map(|result| (result, shares(result)))
        .filter(|(_, all)| !all.is_empty())
        .collect();
    if late.is_empty() {
        return Vec::new();
    }
    let rows = late.iter().flat_map(|(result, shares)| {
        shares.iter().take(SHARES_SHOWN).map(|share| (&result.cell.engine, share))
    });
    let table = TableOf::new(rows)
        .name("way", |(way, _)| *way)
        .prose("whose time", |(_, share)| side_words(share.side, &share.stage))
        .prose("cause", |(_, share)| share.cause.to_string())
        .number("stalls", |(_, share)| count(share.stalls))
        .number("trips", |(_, share)| count(share.trips))
        .over("excess")
        .number("ms", |(_, share)| micros(share.excess_ns as f64 / 1000.0))
        .keyed(1);
    let who = Section::new("Who was late")
        .note(
            "Stalls by the side and the stage that exceeds what is usual by most, and the cause that this side's own thread gives \
             evidence of. Excess: their longest trips beyond a usual one, together. The measuring client is a suspect like the \
             responder.",
        )
        .table(table)
        .items(advice(&late));
    [who].into_iter().chain(longest(&late)).collect()
}

/// Advice against each cause that was met, the costliest first.
fn advice(late: &[(&CellResult, Vec<Share>)]) -> Vec<Item> {
    let mut causes: Vec<(Cause, u64)> = Vec::new();
    for share in late.iter().flat_map(|(_, shares)| shares.iter().take(SHARES_SHOWN)) {
        match causes.iter_mut().find(|(cause, _)| *cause == share.cause) {
            Some((_, excess_ns)) => *excess_ns += share.excess_ns,
            None => causes.push((share.cause, share.excess_ns)),
        }
    }
    causes.sort_by_key(|(_, excess_ns)| std::cmp::Reverse(*excess_ns));
    causes.into_iter().map(|(cause, _)| Item::new(cause.to_string()).then(cause.fix())).collect()
}

/// A stall whose stage is known, as it is told by itself: its length, and its words. The words are its way and first trip, its length,
/// the main side with its share, the cause with its share, and the evidence.
fn told((way, trial): (&str, u32), found: &[Explained], one: &Explained) -> Option<(u64, [String; 8])> {
    let first = first_of(found, one);
    let behind = one.behind.map_or(String::new(), |trip| format!("behind trip {}: ", count(trip)));
    let share = first.causes.first().map_or(0.0, |cause| cause.share);
    let nothing = || "nothing is known of that thread".to_owned();
    let words = [
        way.to_owned(),
        format!("{} of trial {}", count(one.stall.first_index), count(trial.into())),
        micros(one.stall.longest_ns as f64),
        side_words(one.side?, one.stage.as_deref()?),
        micros(one.stage_excess_ns as f64),
        format!("{behind}{}", first.cause()),
        format!("{:.0} %", 100.0 * share),
        one.seen.map_or_else(nothing, |seen| seen.to_string()),
    ];
    Some((one.stall.longest_ns, words))
}

/// A finding of a summary, and in which trial that was.
#[derive(Deserialize)]
struct OfTrial {
    #[serde(default)]
    trial: u32,
    #[serde(flatten)]
    found: Explained,
}

/// The longest stalls: few on a terminal, as a table on the page.
fn longest(late: &[(&CellResult, Vec<Share>)]) -> Vec<Section> {
    let mut all = Vec::new();
    for (result, _) in late {
        let found: Vec<OfTrial> = result.rows("findings");
        // Each trial numbers its trips for itself.
        let mut trials: BTreeMap<u32, Vec<Explained>> = BTreeMap::new();
        for OfTrial { trial, found } in found {
            trials.entry(trial).or_default().push(found);
        }
        for (&trial, found) in &trials {
            let of = (result.cell.engine.as_str(), trial);
            all.extend(found.iter().filter_map(|one| told(of, found, one)));
        }
    }
    all.sort_by_key(|(longest_ns, _)| std::cmp::Reverse(*longest_ns));
    if all.is_empty() {
        return Vec::new();
    }
    let title = "The longest stalls";
    let brief =
        all.iter().take(LONGEST_SHOWN).map(|(_, [way, at, longest, side, excess, cause, _, seen])| {
            Item::new(format!("{way}, trip {at}: {longest} µs, +{excess} in {side}: {cause}")).then(seen)
        });
    let brief = brief.collect();
    let note = "Of each the thread's own account of that time.";
    all.truncate(FINDINGS_SHOWN);
    let word = |place: usize| move |(_, words): &(u64, [String; 8])| words[place].clone();
    let table = TableOf::new(all)
        .name("way", word(0))
        .number("trip", word(1))
        .number("took, µs", word(2))
        .number("whose time", word(3))
        .number("of it, µs", word(4))
        .prose("cause", word(5))
        .number("accounted for", word(6))
        .prose("seen", |(_, words)| Cell::toned(&words[7], Tone::Faint))
        .keyed(1);
    vec![
        Section::new(title).items(brief).note(note).only_on(Output::Terminal),
        Section::new(title).note(note).table(table).only_on(Output::Page),
    ]
}

fn side_words(side: Side, stage: &str) -> String {
    let words = STAGES.iter().find(|one| one.name == stage).map_or(stage, |one| one.words);
    match side {
        Side::WireOrResponder => format!("{side} ({words})"),
        _ if words.starts_with(&side.to_string()) => words.to_owned(),
        _ => format!("{side}, {words}"),
    }
}

/// Of the longest stalls those in which a real-time thread was ready for long, and no trace tells why others had its CPU.
fn may_be_limited(result: &CellResult) -> Option<u64> {
    let is_one = |found: &Explained| {
        let ready = found.causes.first().filter(|cause| cause.name == Cause::named("run_queue"));
        let is_long = ready.is_some_and(|ready| ready.ns >= LIMIT_NS_MIN);
        let is_urgent = found.side.is_some_and(|side| urgency_at(&result.cell.engine, side).is_real_time());
        is_long && is_urgent && found.parts.is_empty() && found.behind.is_none()
    };
    let found = result.rows::<OfTrial>("findings");
    let some = found.iter().filter(|one| is_one(&one.found)).count() as u64;
    (some > 0).then_some(some)
}

/// Facts about single choices that a reader must know.
fn notes(summary: &Summary) -> Option<Section> {
    let more = summary.more.get("response");
    let mut lines: Vec<String> =
        more.and_then(|more| more.get("floor")?.as_str()).map(str::to_owned).into_iter().collect();
    for result in &summary.results {
        let way = &result.cell.engine;
        lines.extend(result.rows::<String>("remarks").iter().map(|remark| format!("{way}: {remark}")));
        let mut limited: Vec<Share> = result.rows("late");
        limited.retain(|share| share.cause.is_of_class());
        let stalls: u64 = limited.iter().map(|share| share.stalls).sum();
        if let Some(Share { cause, .. }) = limited.first() {
            lines.push(format!(
                "{way}: {stalls} stalls of about 50 ms are new outliers that this class makes: {cause}"
            ));
        }
        lines.extend(may_be_limited(result).map(|some| {
            let stalls = plural(some, "stall");
            format!(
                "{way}: {stalls} as run_queue may be the kernel's limit of real-time threads: --trace tells"
            )
        }));
        if let Some(slow) = number(result, ["slow_answers", ""]).filter(|&slow| slow > 0) {
            lines.push(format!("{way}: {} answers slower than --limit", count(slow)));
        }
        for role in ["client", "responder"] {
            let of = |kind: &str| {
                number(result, [kind, role]).filter(|&some| some > 0).map(|some| plural(some, "message"))
            };
            if let Some(some) = of("without_room") {
                lines.push(format!("{way}: {some} lost in the {role}'s receive buffer, which was full"));
            }
            if let Some(some) = of("incomplete") {
                lines.push(format!("{way}: {some} lost because the {role} did not get all fragments"));
            }
        }
        let [looks, late, latest] =
            ["looks", "late", "latest_us"].map(|of| number(result, ["control", of]).unwrap_or(0));
        if late > 0 {
            let latest = micros(latest as f64 * 1000.0);
            lines.push(format!(
                "{way}: of {} of the client's control thread {} late, by {latest} µs at most",
                plural(looks, "look"),
                if late == 1 { "1 was".to_owned() } else { format!("{} were", count(late)) }
            ));
        }
    }
    (!lines.is_empty())
        .then(|| Section::new("To know of single ways").items(lines.into_iter().map(Item::new).collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::explain::finding::PartTime;
    use crate::explain::naming::NamedCause;
    use crate::report::text::{Screen, page};
    use crate::sample::CellId;
    use crate::stall::Stall;
    use crate::store::Header;

    #[test]
    fn seconds_fit_in_a_column_of_microseconds() {
        let texts = ["99.1", "562,790", "4,423,980", "–", "∞"].map(narrow);
        assert_eq!(texts, ["99.1", "562,790", "4.42 s", "–", "∞"]);
    }

    /// Goal: a way that was measured too short is not told to have lost its trips.
    #[test]
    fn only_what_is_lost_is_infinite_beside_the_article() {
        let cell = CellId { size: 512, ..CellId::new("blocking", "round_trip") };
        let mut summary = Summary::new(&Header::new("response"));
        summary.results.push(CellResult::of(&cell, &[], 0));
        let told = |summary: &Summary| {
            let section = published(summary).expect("measured alike");
            page(&[section], Screen { width: 200, colour: false })
        };
        assert!(!told(&summary).contains('∞'), "{}", told(&summary));
        summary.results[0].figures.infinite_from = Some("max".to_owned());
        assert!(told(&summary).contains('∞'), "{}", told(&summary));
    }

    /// Goal: without a trace nobody knows whether the kernel's limit took the CPU of a real-time thread; the output says so.
    #[test]
    fn a_limit_that_no_trace_tells_is_hinted_at() {
        let told = |way: &str, side: Side, ready_ms: u64, parts: Vec<PartTime>| {
            let ns = ready_ms * 1_000_000;
            let stall = Stall { release_ns: 9, first_index: 7, messages: 1, longest_ns: ns };
            let cause =
                NamedCause { name: Cause::named("run_queue"), ns, share: 1.0, ..NamedCause::default() };
            let found = Explained {
                side: Some(side),
                causes: vec![cause],
                parts,
                ..Explained::of_stall(stall, 0, ns)
            };
            let mut result = CellResult::of(&CellId::new(way, "round_trip"), &[], 0);
            result.more.insert("findings".to_owned(), json!([found]));
            let mut summary = Summary::new(&Header::new("response"));
            summary.results.push(result);
            notes(&summary).is_some_and(|notes| {
                let text = page(&[notes], Screen { width: 200, colour: false });
                text.contains("1 stall as run_queue") && text.contains("--trace tells")
            })
        };
        let urgent = "blocking+fifo:50@responder";
        assert!(told(urgent, Side::Responder, 50, Vec::new()));
        assert!(!told(urgent, Side::Client, 50, Vec::new()), "an ordinary thread");
        assert!(!told("blocking", Side::Responder, 50, Vec::new()));
        assert!(!told(urgent, Side::Responder, 1, Vec::new()), "the limit takes longer");
        let parts = vec![PartTime { part: "ready while hog (9) ran".to_owned(), ns: 50_000_000 }];
        assert!(!told(urgent, Side::Responder, 50, parts), "a trace told");
    }

    /// Goal: the words of the account are said as they are, and a value that is no list is no section.
    #[test]
    fn a_finding_is_told() {
        let mut result = CellResult::of(&CellId::new("blocking", "round_trip"), &[], 0);
        result.more.insert("late".to_owned(), json!("none"));
        let mut summary = Summary::new(&Header::new("response"));
        summary.results.push(result.clone());
        assert!(lateness(&summary).is_empty());
        let stall =
            |first_index: u64| Stall { release_ns: 9, first_index, messages: 2, longest_ns: 2_600_000_000 };
        let cause = NamedCause { name: Cause::named("stopped"), ns: 1, share: 0.98, ..NamedCause::default() };
        let ahead = Explained {
            side: Some(Side::Responder),
            stage: Some("request.woken".to_owned()),
            causes: vec![cause],
            ..Explained::of_stall(stall(77), 0, 1)
        };
        let behind = Explained {
            causes: Vec::new(),
            behind: Some(77),
            stall: Stall { longest_ns: 9_000_000_000, ..stall(4711) },
            ..ahead.clone()
        };
        let unknown = Explained::of_stall(stall(1), 0, 1);
        // Another trial has a trip of that number, too.
        let mut other = ahead.clone();
        other.causes[0].name = Cause::named("frozen");
        let in_trial = |trial: u32, found: &Explained| {
            let mut found = json!(found);
            found["trial"] = json!(trial);
            found
        };
        let share = json!({
            "side": "responder", "stage": "request.woken", "cause": "stopped", "stalls": 1, "trips": 2, "excess_ns": 1,
        });
        result.more.insert("late".to_owned(), json!([share]));
        result.more.insert(
            "findings".to_owned(),
            json!([in_trial(0, &other), in_trial(1, &behind), in_trial(1, &ahead), in_trial(1, &unknown)]),
        );
        summary.results = vec![result];
        let terminal = page(&lateness(&summary), Screen { width: 200, colour: false });
        for word in ["4,711", "responder's wake-up", "behind trip 77", "of trial 1", "stopped, until"] {
            assert!(terminal.contains(word), "{word}: {terminal}");
        }
        // It goes on in the next line.
        let lines: Vec<&str> = terminal.lines().skip_while(|line| !line.contains("4,711")).take(2).collect();
        assert!(lines.concat().contains("stopped"), "{lines:?}");
        let told = format!("{:?}", lateness(&summary));
        assert!(told.contains("98 %"), "{told}");
    }
}
