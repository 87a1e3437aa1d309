//! The near end: asks, and keeps both directions of each trip.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use punctual::time::Role as TimeRole;
use punctual::{Clock, ReceiveError, SendError, Target, Ticks, Wake};
use punctual_machine::signal::interrupted;
use serde_json::json;

use super::responder::End;
use super::{Direction, PORT, truth, wire};
use crate::doubt::Cause;
use crate::endpoint::BusPlan;
use crate::run::{Experiment, RunError, RunPlan, cut_short};
use crate::sample::{CellId, Kind, Load, Outcome, Samples};
use crate::store::{Store, StoreError};
use crate::summary::Summary;

/// Own port, and own name on the bus.
const OWN_PORT: u16 = 8;
const CLIENT: &str = "client";

/// Longest wait for both clocks.
const COMMON_TIME_MAX: Duration = Duration::from_secs(20);

/// Longest wait for an answer: from a host that is busy elsewhere it is late, and not lost.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct OnewaySettings {
    /// Between both.
    pub bus: BusPlan,
    /// The responder's name.
    pub to: String,
    /// Idle time before each request.
    pub gap: Duration,
    /// Requests.
    pub count: usize,
    /// At most so long.
    pub duration: Duration,
    /// Wait strategy of both threads of this end.
    pub wake: Wake,
}

/// Results of a run besides the store.
#[derive(Clone, Debug, Default)]
pub struct OnewayOutcome {
    /// Name of the node whose clock is the reference.
    pub reference: String,
    /// Answers whose way there or back was not known, because a clock was not.
    pub unknown: u64,
    /// Ways that were found below zero: possible within the bound, and stored as zero.
    pub below_zero: u64,
    /// Ways of which the truth is known …
    pub checked: u64,
    /// … and lies within the bound.
    pub held: u64,
    /// Ways of which the truth lies outside of the bound for certain.
    pub outside: u64,
    /// Trips made.
    pub made: u64,
    /// Why no more were made, if something was in the way.
    pub ended: Option<String>,
}

/// The columns of a run, each a cell.
struct Columns {
    engine: &'static str,
    gap_us: u64,
    round_trip: Samples,
    there: Samples,
    there_bound: Samples,
    back: Samples,
    back_bound: Samples,
}

impl Columns {
    fn new(settings: &OnewaySettings) -> Self {
        let room = || Samples::with_capacity(settings.count);
        Self {
            engine: settings.bus.engine(),
            gap_us: u64::try_from(settings.gap.as_micros()).unwrap_or(u64::MAX),
            round_trip: room(),
            there: room(),
            there_bound: room(),
            back: room(),
            back_bound: room(),
        }
    }

    fn cells(self) -> Vec<(CellId, Samples)> {
        let cell = |name: &str, kind: Kind| CellId {
            kind,
            load: Load::Closed,
            gap_us: self.gap_us,
            size: wire::ANSWER_SIZE,
            ..CellId::new(self.engine, name)
        };
        [
            (cell("there", Kind::OneWay), self.there),
            (cell("there_bound", Kind::OneWay), self.there_bound),
            (cell("back", Kind::OneWay), self.back),
            (cell("back_bound", Kind::OneWay), self.back_bound),
            (cell("round_trip", Kind::RoundTrip), self.round_trip),
        ]
        .into_iter()
        .filter(|(_, samples)| !samples.is_empty())
        .collect()
    }
}

fn cannot_send(settings: &OnewaySettings, error: &SendError) -> String {
    format!("cannot send to {} on {}: {error}", settings.to, settings.bus)
}

/// Trips between two looks of the bar: to draw costs the time of several.
const SHOWN_EVERY: u64 = 128;

/// Progress of the run, in hundredths: messages or time, whichever ends first.
fn done(settings: &OnewaySettings, made: u64, passed: Duration) -> u64 {
    let of_count = made as f64 / settings.count as f64;
    let of_time = passed.as_secs_f64() / settings.duration.as_secs_f64();
    (100.0 * of_count.max(of_time)) as u64
}

/// One trip: when it began, how long it took, and its two ways. An answer that never came has no end.
struct Trip {
    sent: Ticks,
    lasted: Ticks,
    answered: bool,
    ways: [Option<Direction>; 2],
}

/// Sends, again and again while there is no room. Never taken, it is a trip that was lost, for it was to be made.
fn send(end: &mut End, settings: &OnewaySettings, number: u64) -> Result<(Ticks, bool), SendError> {
    let clock = Clock::get();
    // A trip begins when it is to be made: to wait for room is a part of it.
    let sent = clock.now();
    let give_up = sent.plus(clock.ticks(TIMEOUT));
    let target = Target::port(settings.to.as_str(), PORT);
    loop {
        match end.communicator.try_send(target, &number.to_le_bytes()) {
            Ok(()) => return Ok((sent, true)),
            Err(SendError::Full) if clock.now() < give_up && !interrupted() => std::thread::yield_now(),
            Err(SendError::Full) => return Ok((sent, false)),
            Err(error) => return Err(error),
        }
    }
}

fn ask(end: &mut End, settings: &OnewaySettings, number: u64) -> Result<Trip, SendError> {
    let clock = Clock::get();
    let (sent, is_taken) = send(end, settings, number)?;
    let lost = || Trip { sent, lasted: clock.now().since(sent), answered: false, ways: [None; 2] };
    if !is_taken {
        return Ok(lost());
    }
    let deadline = sent.plus(clock.ticks(TIMEOUT));
    loop {
        let message = match end.communicator.receive_until(Some(deadline)) {
            Ok(message) => message,
            Err(ReceiveError::Empty) => return Ok(lost()),
        };
        let lasted = clock.now_after_loads().since(sent);
        // An answer to an earlier request came after its time.
        let Some((_, there)) = wire::read(message.payload).filter(|(of, _)| *of == number) else { continue };
        let back = end.keeper.one_way_of(&message).map(|found| Direction { found, truth: truth(&message) });
        return Ok(Trip { sent, lasted, answered: true, ways: [there, back] });
    }
}

fn note(columns: &mut Columns, outcome: &mut OnewayOutcome, start: Ticks, trip: &Trip) {
    let clock = Clock::get();
    let (index, at) = (outcome.made, clock.nanos(trip.sent.since(start)));
    let ended = if trip.answered { Outcome::Answered } else { Outcome::Lost };
    columns.round_trip.push(index, at, at, clock.nanos(trip.lasted), ended);
    outcome.made += 1;
    if !trip.answered {
        return;
    }
    let Columns { there, there_bound, back, back_bound, .. } = columns;
    for (way, times, bounds) in [(trip.ways[0], there, there_bound), (trip.ways[1], back, back_bound)] {
        let Some(way) = way else {
            outcome.unknown += 1;
            continue;
        };
        outcome.below_zero += u64::from(way.found.nanos < 0);
        outcome.checked += u64::from(way.holds().is_some());
        outcome.held += u64::from(way.holds() == Some(true));
        outcome.outside += u64::from(way.is_outside());
        times.push(index, at, at, u64::try_from(way.found.nanos).unwrap_or(0), Outcome::Answered);
        bounds.push(index, at, at, way.found.bound, Outcome::Answered);
    }
}

/// Asks until both ways are known.
fn await_common_time(end: &mut End, settings: &OnewaySettings) -> Result<(), String> {
    let start = Instant::now();
    let mut answered = false;
    for number in 0.. {
        let trip = ask(end, settings, u64::MAX - number).map_err(|error| cannot_send(settings, &error))?;
        answered |= trip.answered;
        if trip.ways.iter().all(Option::is_some) || interrupted() {
            return Ok(());
        }
        if start.elapsed() > COMMON_TIME_MAX {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let (bus, to) = (&settings.bus, &settings.to);
    Err(if answered {
        format!(
            "{to} on {bus} answers, but no common time was found within {COMMON_TIME_MAX:?}: see docs/time.md"
        )
    } else {
        format!(
            "nobody answers as {to} on {bus}: run punctual node --bus there, and check addresses and firewalls"
        )
    })
}

fn reference(end: &End, settings: &OnewaySettings) -> String {
    match end.keeper.role() {
        TimeRole::Master => CLIENT.to_owned(),
        TimeRole::Follower(_) => settings.to.clone(),
        TimeRole::Listening => "none yet".to_owned(),
    }
}

/// Trips that count as warm-up: clocks and caches settle.
const WARMUP: u64 = 20;

impl Experiment for OnewaySettings {
    type Made = OnewayOutcome;

    const BROKEN: &'static str = "requests or answers were lost; see the doubts";

    fn plan(&self) -> RunPlan {
        let described = json!({
            "bus": self.bus.to_string(),
            "to": self.to,
            "count": self.count,
            "wake": self.wake.name(),
        });
        RunPlan { name: "oneway", warmup: WARMUP, cpus: Vec::new(), described }
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<OnewayOutcome, RunError> {
        let mut end = End::open(&self.bus, CLIENT, OWN_PORT, 128, self.wake)?;
        await_common_time(&mut end, self)?;
        let mut outcome = OnewayOutcome { reference: reference(&end, self), ..OnewayOutcome::default() };
        let mut columns = Columns::new(self);
        let clock = Clock::get();
        let start = clock.now();
        let until = start.plus(clock.ticks(self.duration));
        let mut number = 1_u64;
        while outcome.made < self.count as u64 && clock.now() < until && !interrupted() {
            std::thread::sleep(self.gap);
            let trip = match ask(&mut end, self, number) {
                Ok(trip) => trip,
                Err(error) => {
                    outcome.ended = Some(cannot_send(self, &error));
                    break;
                }
            };
            note(&mut columns, &mut outcome, start, &trip);
            if number.is_multiple_of(SHOWN_EVERY) {
                bar.set_position(done(self, outcome.made, clock.duration(clock.now().since(start))));
            }
            number += 1;
        }
        if let (0, Some(reason)) = (outcome.made, &outcome.ended) {
            return Err(reason.clone().into());
        }
        store.append_all(0, &columns.cells())?;
        Ok(outcome)
    }

    fn summarise(&self, outcome: &OnewayOutcome, store: &Store) -> Result<Summary, StoreError> {
        let mut summary = store.summary()?;
        cut_short(&mut summary, 1);
        if let Some(reason) = &outcome.ended {
            summary.doubt(Cause::Ended { reason: reason.clone() });
        }
        let oneway = json!({
            "bus": self.bus.to_string(),
            "to": self.to,
            "reference": outcome.reference,
            "unknown": outcome.unknown,
            "below_zero": outcome.below_zero,
            "checked": outcome.checked,
            "held": outcome.held,
            "outside": outcome.outside,
        });
        summary.more.insert("oneway".to_owned(), oneway);
        Ok(summary)
    }

    fn promise(&self, summary: &Summary, outcome: &OnewayOutcome) -> Result<(), String> {
        judge(summary.kept_promises(), outcome)
    }
}

fn judge(is_whole: bool, outcome: &OnewayOutcome) -> Result<(), String> {
    match (outcome.outside, &outcome.ended) {
        (0, Some(reason)) => Err(reason.clone()),
        (0, None) if is_whole => Ok(()),
        (0, None) => Err(OnewaySettings::BROKEN.to_owned()),
        (out, _) => Err(format!("the truth lies outside of the bound {out} times: report it as a bug")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a run that ended early breaks its promise, by the reason for it; ways outside of their bound come first.
    #[test]
    fn a_run_that_ended_early_says_why() {
        let of = |outside, ended: Option<&str>| {
            let outcome = OnewayOutcome {
                made: 1,
                outside,
                ended: ended.map(str::to_owned),
                ..OnewayOutcome::default()
            };
            judge(true, &outcome).err()
        };
        assert_eq!(of(0, None), None);
        assert_eq!(of(0, Some("it is gone")).as_deref(), Some("it is gone"));
        assert!(
            of(2, Some("it is gone")).is_some_and(|reason| reason.contains("outside of the bound 2 times"))
        );
        let lost = judge(false, &OnewayOutcome::default());
        assert_eq!(lost, Err(OnewaySettings::BROKEN.to_owned()));
    }
}
