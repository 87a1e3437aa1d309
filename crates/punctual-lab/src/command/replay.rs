//! `punctual replay`.

use std::path::PathBuf;

use clap::Args;
use hdrhistogram::Histogram;
use punctual_machine::signal::{catch_interrupts, interrupted};
use serde_json::{Map, Value, json};

use super::record::{SealingArguments, missing};
use super::{print, refuse_json_over, try_json, write_json};
use crate::endpoint::{BusPlan, any_bus};
use crate::error::Failure;
use crate::recording::player::{Nodes, Play, Played, Speed, UNREACHABLE, play};
use crate::recording::reading::{Contents, RecordingError};
use crate::report::section::{Cell, Column, Section, Table, numbers};
use crate::report::text::{self, Screen};
use crate::terminal::say;
use crate::units::{count, micros_or_dash};

/// Options of the player.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// File that punctual record wrote, or a capture of a node
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The bus, spelled as for punctual record [default: the one that was recorded]
    #[arg(long, value_name = "BUS", value_parser = any_bus)]
    bus: Option<BusPlan>,
    /// Speed of time: 2 is twice as fast, 0.5 half as fast, max is without pauses
    #[arg(long, value_name = "N", default_value = "1")]
    speed: Speed,
    /// In memory, wait for readers that are slow
    #[arg(long)]
    hold_back: bool,
    #[command(flatten)]
    sealing: SealingArguments,
    /// Write the result, as JSON, to a file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Says again what was recorded.
pub fn replay(arguments: &ReplayArguments) -> Result<(), Failure> {
    refuse_json_over(arguments.json.as_deref(), &arguments.file)?;
    try_json(arguments.json.as_deref())?;
    catch_interrupts()?;
    let contents = contents(arguments)?;
    let plan = bus(arguments, &contents)?;
    let bus = arguments.sealing.seal(plan.bus())?;
    let nodes = match plan {
        // Several nodes of one host can be there.
        BusPlan::Shared(_) | BusPlan::Multicast { .. } => Nodes::Each,
        BusPlan::Peers { .. } | BusPlan::Ethernet { .. } => Nodes::One,
    };
    if arguments.speed != Speed::Max {
        warnings(&contents, arguments.speed).iter().for_each(say);
    }
    let played = play(
        &Play {
            path: &arguments.file,
            contents: &contents,
            bus: &bus,
            nodes,
            speed: arguments.speed,
            is_in_memory: matches!(plan, BusPlan::Shared(_)),
            holds_back: arguments.hold_back,
        },
        interrupted,
    )
    .map_err(|error| Failure::Machine(format!("{plan}: {error}")))?;
    tell(arguments, &plan, &contents, &played)
}

fn contents(arguments: &ReplayArguments) -> Result<Contents, Failure> {
    let file = arguments.file.display();
    Contents::of(&arguments.file).map_err(|error| match error {
        RecordingError::Unreadable(error) => Failure::Usage(format!("{file}: {error}")),
        other => Failure::Usage(format!("{file}: {other}")),
    })
}

/// Instants that go back further were written by a clock that was set, or by clocks that differ, nanoseconds.
const BACK_NS_MAX: u64 = 1_000_000_000;

/// A longer pause is said before it is made, nanoseconds.
const GAP_NS_MAX: u64 = 60_000_000_000;

/// Warnings about a file whose instants are unusual.
fn warnings(contents: &Contents, speed: Speed) -> Vec<String> {
    let seconds = |ns: u64| count(ns / 1_000_000_000);
    let back = (contents.back_ns > BACK_NS_MAX).then(|| {
        format!(
            "the instants of the file go back by up to {} s: messages behind that go out at once",
            seconds(contents.back_ns)
        )
    });
    let pause_ns = speed.pace(contents.gap_ns).unwrap_or(0);
    let gap = (pause_ns > GAP_NS_MAX).then(|| {
        format!(
            "nothing was said for {} s, or the clock was set: nothing is sent for {} s (--speed makes it less)",
            seconds(contents.gap_ns),
            seconds(pause_ns)
        )
    });
    back.into_iter().chain(gap).collect()
}

fn bus(arguments: &ReplayArguments, contents: &Contents) -> Result<BusPlan, Failure> {
    if let Some(bus) = &arguments.bus {
        return Ok(bus.clone());
    }
    let told = contents.told.bus.as_deref();
    told.and_then(|bus| any_bus(bus).ok()).ok_or_else(|| {
        let file = arguments.file.display();
        Failure::Usage(format!("{file} does not say which bus it is of: name one (--bus)"))
    })
}

fn tell(
    arguments: &ReplayArguments,
    plan: &BusPlan,
    contents: &Contents,
    played: &Played,
) -> Result<(), Failure> {
    let object = object(arguments, plan, contents, played);
    if !write_json(arguments.json.as_deref(), &format!("{object}\n"))? {
        print(&text::page(&[section(arguments, plan, contents, played)], Screen::stdout()))?;
    }
    promise(plan, contents, played)
}

/// Every message of the file is sent, up to where it was interrupted.
fn promise(plan: &BusPlan, contents: &Contents, played: &Played) -> Result<(), Failure> {
    let reasons = reasons(contents, played);
    if !reasons.is_empty() {
        let whole = match reasons.iter().map(|(_, messages)| messages).sum() {
            1 => "1 message was not sent".to_owned(),
            many => format!("{} messages were not sent", count(many)),
        };
        let advice = |reason: &str| match reason {
            UNREACHABLE => " (nobody reads there: start the readers first)",
            _ => "",
        };
        let said =
            |(reason, messages): &(&str, u64)| format!("{reason} {}{}", count(*messages), advice(reason));
        let reasons: Vec<String> = reasons.iter().map(said).collect();
        return Err(Failure::Promise(format!("{plan}: {whole}: {}", reasons.join(", "))));
    }
    if played.interrupted > 0 && played.sent == 0 {
        return Err(Failure::Machine(format!("{plan}: interrupted before the first message")));
    }
    Ok(())
}

/// Why messages were not sent, and how many.
fn reasons(contents: &Contents, played: &Played) -> Vec<(&'static str, u64)> {
    // Where in the file a message is incomplete is not known: it may be behind where it was interrupted.
    let incomplete = if played.interrupted > 0 { 0 } else { contents.told.incomplete };
    let incomplete = Some(("incomplete", incomplete)).filter(|(_, messages)| *messages > 0);
    played.unsent.iter().copied().chain(incomplete).collect()
}

fn quantile(lateness: &Histogram<u64>, of: f64) -> Option<u64> {
    (!lateness.is_empty()).then(|| lateness.value_at_quantile(of))
}

/// p50, p99 and the longest, nanoseconds.
fn figures(played: &Played) -> [Option<u64>; 3] {
    let of = |quantile_of: f64| played.lateness.as_ref().and_then(|lateness| quantile(lateness, quantile_of));
    [of(0.5), of(0.99), of(1.0)]
}

fn section(arguments: &ReplayArguments, plan: &BusPlan, contents: &Contents, played: &Played) -> Section {
    let mut columns = vec![Column::name("bus")];
    columns.extend(numbers([
        "sent",
        "nodes",
        "recorded, s",
        "played, s",
        "late p50, µs",
        "p99, µs",
        "max, µs",
    ]));
    let mut table = Table::new(columns).keyed(1);
    let seconds = |seconds: f64| format!("{seconds:.3}");
    let mut cells = vec![
        plan.to_string(),
        count(played.sent),
        count(played.nodes as u64),
        seconds(contents.span_ns as f64 / 1e9),
        seconds(played.duration.as_secs_f64()),
    ];
    cells.extend(figures(played).map(micros_or_dash));
    table.row(cells.into_iter().map(Cell::from));
    let mut section = Section::new(format!("Replay of {}", arguments.file.display()))
        .about(format!("speed {}", arguments.speed))
        .table(table);
    if contents.missed > 0 {
        section = section.note(format!("{} in the recording.", missing(contents.missed)));
    }
    if contents.told.clock_set_ns != 0 {
        let seconds = contents.told.clock_set_ns as f64 / 1e9;
        section = section.note(format!("The clock was set by {seconds:+.3} s meanwhile, which is left out."));
    }
    if played.interrupted > 0 {
        let rest = count(played.interrupted);
        section = section
            .note(format!("Cut short: of {} messages {rest} were not sent.", count(contents.messages)));
    }
    if contents.told.is_cut {
        section = section.note("The recording ends in the middle of a message: its recorder was killed.");
    }
    section
}

fn object(arguments: &ReplayArguments, plan: &BusPlan, contents: &Contents, played: &Played) -> Value {
    let [p50, p99, max] = figures(played);
    let interrupted = Some(("interrupted", played.interrupted)).filter(|(_, messages)| *messages > 0);
    let unsent = played.unsent.iter().copied().chain(interrupted);
    let unsent: Map<String, Value> =
        unsent.map(|(reason, messages)| (reason.to_owned(), messages.into())).collect();
    json!({
        "schema": "punctual.replay.v1",
        "bus": plan.to_string(),
        "file": arguments.file.display().to_string(),
        "messages": contents.messages,
        "sent": played.sent,
        "unsent": unsent,
        "incomplete": contents.told.incomplete,
        "missed": contents.missed,
        "is_cut": contents.told.is_cut,
        "clock_set_ns": contents.told.clock_set_ns,
        "is_cut_short": played.interrupted > 0,
        "nodes": played.nodes,
        "speed": arguments.speed.to_string(),
        "recorded_ns": contents.span_ns,
        "played_ns": played.duration.as_nanos() as u64,
        "lateness_ns": { "p50": p50, "p99": p99, "max": max },
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: a long pause is told as long as it is at the speed that was asked for.
    #[test]
    fn a_pause_is_that_of_the_speed() {
        let contents = Contents { gap_ns: 3_600_000_000_000, ..Contents::default() };
        let told = |speed| warnings(&contents, speed).concat();
        assert!(told(Speed::Times(1.0)).contains("nothing is sent for 3,600 s"));
        assert!(told(Speed::Times(10.0)).contains("nothing is sent for 360 s"));
        assert_eq!(told(Speed::Times(100.0)), "");
    }

    /// Goal: a message that the file has in part breaks the promise, unless it was interrupted and may never have come to it.
    #[test]
    fn an_interruption_breaks_no_promise() {
        let mut contents = Contents { messages: 10, ..Contents::default() };
        contents.told.incomplete = 1;
        let plan = any_bus("shared:test").expect("a bus");
        let outcome = |interrupted, unsent| {
            let sent = 10 - interrupted;
            let played =
                Played { sent, unsent, interrupted, lateness: None, duration: Duration::ZERO, nodes: 1 };
            promise(&plan, &contents, &played)
        };
        let broken = |outcome| match outcome {
            Err(Failure::Promise(text)) => text,
            other => panic!("{other:?}"),
        };
        assert!(broken(outcome(0, Vec::new())).ends_with("1 message was not sent: incomplete 1"));
        assert!(
            broken(outcome(0, vec![("full", 2)])).contains("3 messages were not sent: full 2, incomplete 1")
        );
        assert!(outcome(4, Vec::new()).is_ok());
        assert!(broken(outcome(4, vec![("full", 2)])).ends_with("2 messages were not sent: full 2"));
        assert!(matches!(outcome(10, Vec::new()), Err(Failure::Machine(_))));
    }
}
