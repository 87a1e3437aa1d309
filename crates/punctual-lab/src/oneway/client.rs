//! The near end: asks, and keeps both directions of each trip.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use punctual::time::Role as TimeRole;
use punctual::{Clock, ReceiveError, SendError, Target, Ticks, Wake};
use punctual_machine::process::random;
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

/// An answer that comes once more follows the last one, for which nothing waits.
const SURPLUS: Duration = Duration::from_millis(20);

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct OnewaySettings {
    /// Between both.
    pub bus: BusPlan,
    /// The far end is this run's own, over loopback: its ports are those that are free now.
    pub is_alone: bool,
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
    /// Of them those that were answered.
    pub answered: u64,
    /// Ways there, and back, that are known.
    pub known: [u64; 2],
    /// Answers for which nothing was outstanding.
    pub duplicated: u64,
    /// Why no more were made, if something was in the way.
    pub ended: Option<String>,
}

/// The columns of a run, each a cell.
struct Columns {
    engine: &'static str,
    gap: Duration,
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
            gap: settings.gap,
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
            size: wire::ANSWER_SIZE,
            ..CellId::new(self.engine, name).with_gap(self.gap)
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

/// Numbers of the requests of a run, and what came to none that is outstanding.
struct Asked {
    /// Upper half of each number: a late answer to an earlier run's request is none to this one.
    run: u64,
    count: u64,
    /// Requests that count as lost, whose answers may come late.
    given_up: HashSet<u64>,
    duplicated: u64,
}

impl Asked {
    fn new() -> Self {
        Self { run: random() << 32, count: 0, given_up: HashSet::new(), duplicated: 0 }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.run | (self.count & 0xFFFF_FFFF)
    }

    /// An answer to another request than the one that is outstanding: it came late, or it came before.
    fn foreign(&mut self, number: u64) {
        let is_own = number & !0xFFFF_FFFF == self.run;
        if is_own && !self.given_up.remove(&number) {
            self.duplicated += 1;
        }
    }

    /// Takes what follows the last answer.
    fn end(&mut self, end: &mut End) {
        let clock = Clock::get();
        let until = clock.now().plus(clock.ticks(SURPLUS));
        while let Ok(message) = end.communicator.receive_until(Some(until)) {
            wire::read(message.payload).into_iter().for_each(|(number, _)| self.foreign(number));
        }
    }
}

/// One trip: when it began, how long it took, and its two ways. An answer that never came has no end.
struct Trip {
    sent: Ticks,
    lasted: Ticks,
    answered: bool,
    ways: [Option<Direction>; 2],
}

/// Sends, again and again while there is no room; says when it began, and whether the message was taken. Never taken, it is a trip that was
/// lost, for it was to be made. `None` if a user ended the run meanwhile: then it was not to be made any more.
fn send(
    mut try_send: impl FnMut() -> Result<(), SendError>,
    is_over: impl Fn() -> bool,
) -> Result<Option<(Ticks, bool)>, SendError> {
    let clock = Clock::get();
    // A trip begins when it is to be made: to wait for room is a part of it.
    let sent = clock.now();
    let give_up = sent.plus(clock.ticks(TIMEOUT));
    loop {
        match try_send() {
            Ok(()) => return Ok(Some((sent, true))),
            Err(SendError::Full) if is_over() => return Ok(None),
            Err(SendError::Full) if clock.now() < give_up => std::thread::yield_now(),
            Err(SendError::Full) => return Ok(Some((sent, false))),
            Err(error) => return Err(error),
        }
    }
}

/// Makes one trip; `None` if a user ended the run before it began.
fn ask(end: &mut End, settings: &OnewaySettings, asked: &mut Asked) -> Result<Option<Trip>, SendError> {
    let (clock, number) = (Clock::get(), asked.next());
    let target = Target::port(settings.to.as_str(), PORT);
    // As large as its answer: both ways carry the same.
    let request = wire::write(number, None);
    let sent = send(|| end.communicator.try_send(target, &request), interrupted)?;
    let Some((sent, is_taken)) = sent else { return Ok(None) };
    let lost = || Trip { sent, lasted: clock.now().since(sent), answered: false, ways: [None; 2] };
    if !is_taken {
        return Ok(Some(lost()));
    }
    let deadline = sent.plus(clock.ticks(TIMEOUT));
    loop {
        let message = match end.communicator.receive_until(Some(deadline)) {
            Ok(message) => message,
            Err(ReceiveError::Empty) => {
                asked.given_up.insert(number);
                return Ok(Some(lost()));
            }
        };
        let lasted = clock.now_after_loads().since(sent);
        let there = match wire::read(message.payload) {
            Some((of, there)) if of == number => there,
            Some((of, _)) => {
                asked.foreign(of);
                continue;
            }
            None => continue,
        };
        let back = end.keeper.one_way_of(&message).map(|found| Direction { found, truth: truth(&message) });
        return Ok(Some(Trip { sent, lasted, answered: true, ways: [there, back] }));
    }
}

fn note(columns: &mut Columns, outcome: &mut OnewayOutcome, start: Ticks, trip: &Trip) {
    let clock = Clock::get();
    let (index, at) = (outcome.made, clock.nanos(trip.sent.since(start)));
    let ended = if trip.answered { Outcome::Answered } else { Outcome::Lost };
    columns.round_trip.push(index, at, at, clock.nanos(trip.lasted), ended);
    outcome.made += 1;
    let Columns { there, there_bound, back, back_bound, .. } = columns;
    if !trip.answered {
        // Nobody knows in which direction: without it, each would look as if nothing had been lost.
        for times in [there, back] {
            times.push(index, at, at, clock.nanos(trip.lasted), Outcome::Lost);
        }
        return;
    }
    outcome.answered += 1;
    let columns = [(there, there_bound), (back, back_bound)];
    for (place, (times, bounds)) in columns.into_iter().enumerate() {
        let Some(way) = trip.ways[place] else {
            outcome.unknown += 1;
            continue;
        };
        outcome.known[place] += 1;
        outcome.below_zero += u64::from(way.found.nanos < 0);
        outcome.checked += u64::from(way.holds().is_some());
        outcome.held += u64::from(way.holds() == Some(true));
        outcome.outside += u64::from(way.is_outside());
        times.push(index, at, at, u64::try_from(way.found.nanos).unwrap_or(0), Outcome::Answered);
        bounds.push(index, at, at, way.found.bound, Outcome::Answered);
    }
}

/// Asks until both ways are known.
fn await_common_time(end: &mut End, settings: &OnewaySettings, asked: &mut Asked) -> Result<(), String> {
    let start = Instant::now();
    let mut answered = false;
    loop {
        let trip = ask(end, settings, asked).map_err(|error| cannot_send(settings, &error))?;
        let Some(trip) = trip else { return Ok(()) };
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

    const BROKEN: &'static str = "requests or answers were lost or doubled; see the doubts";

    fn plan(&self) -> RunPlan {
        // Ports that the system chose are no part of it: runs of one plan are each other's history.
        let bus = if self.is_alone { "loopback".to_owned() } else { self.bus.to_string() };
        let described = json!({
            "bus": bus,
            "to": self.to,
            "count": self.count,
            "wake": self.wake.name(),
        });
        RunPlan { name: "oneway", warmup: WARMUP, cpus: Vec::new(), described }
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<OnewayOutcome, RunError> {
        let mut end = End::open(&self.bus, CLIENT, OWN_PORT, 128, self.wake)?;
        let mut asked = Asked::new();
        await_common_time(&mut end, self, &mut asked)?;
        let mut outcome = OnewayOutcome { reference: reference(&end, self), ..OnewayOutcome::default() };
        let mut columns = Columns::new(self);
        let clock = Clock::get();
        let start = clock.now();
        let until = start.plus(clock.ticks(self.duration));
        while outcome.made < self.count as u64 && clock.now() < until && !interrupted() {
            std::thread::sleep(self.gap);
            let trip = match ask(&mut end, self, &mut asked) {
                Ok(Some(trip)) => trip,
                Ok(None) => break,
                Err(error) => {
                    outcome.ended = Some(cannot_send(self, &error));
                    break;
                }
            };
            note(&mut columns, &mut outcome, start, &trip);
            if outcome.made.is_multiple_of(SHOWN_EVERY) {
                bar.set_position(done(self, outcome.made, clock.duration(clock.now().since(start))));
            }
        }
        asked.end(&mut end);
        outcome.duplicated = asked.duplicated;
        columns.round_trip.facts.duplicated = asked.duplicated;
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
            "duplicated": outcome.duplicated,
            "below_zero": outcome.below_zero,
            "checked": outcome.checked,
            "held": outcome.held,
            "outside": outcome.outside,
        });
        summary.more.insert("oneway".to_owned(), oneway);
        Ok(summary)
    }

    fn in_vain(&self, _summary: &Summary, outcome: &OnewayOutcome) -> Option<String> {
        vain(&self.to, outcome)
    }

    fn promise(&self, summary: &Summary, outcome: &OnewayOutcome) -> Result<(), String> {
        judge(summary.kept_promises(), outcome)
    }
}

/// Why a way was not measured though all trips were answered. A promise that broke goes first.
fn vain(to: &str, outcome: &OnewayOutcome) -> Option<String> {
    let OnewayOutcome { made, answered, known, duplicated, outside, ref ended, .. } = *outcome;
    if answered == 0 || answered < made || duplicated > 0 || outside > 0 || ended.is_some() {
        return None;
    }
    // The receiver of a message says how long its way was.
    let whose = match known {
        [0, 0] => format!("neither the way there nor the way back: {to} and this end had"),
        [0, _] => format!("no way there: {to} had"),
        [_, 0] => "no way back: this end had".to_owned(),
        _ => return None,
    };
    Some(format!("{answered} answers came, and {whose} no common time by then: see docs/time.md"))
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

    /// Goal: an answer that comes once more is counted, and one that comes too late for its request is not. Method: a far end that
    /// answers the first request after the second, and from the third on each twice.
    #[test]
    fn an_answer_that_comes_twice_is_counted() {
        let [own, far] = crate::run::free_addresses(2).expect("ports").try_into().expect("two");
        let bus = |local, other| BusPlan::Peers { local, peers: vec![other] };
        let mut far_end = End::open(&bus(far, own), "far", PORT, 1, Wake::Epoll).expect("a node");
        let mut end = End::open(&bus(own, far), CLIENT, OWN_PORT, 128, Wake::Epoll).expect("a node");
        let answers = std::thread::spawn(move || {
            let mut held = None;
            for count in 1..=4 {
                let until = Instant::now() + Duration::from_secs(30);
                let (source, number) = loop {
                    match far_end.communicator.receive_timeout(Duration::from_secs(1)) {
                        Ok(message) => {
                            // Both ways carry as much, so that they can be compared.
                            assert_eq!(message.payload.len(), wire::ANSWER_SIZE);
                            break (message.source, *message.payload.first_chunk().expect("a number"));
                        }
                        Err(ReceiveError::Empty) => assert!(Instant::now() < until, "nobody asks"),
                    }
                };
                let answer = wire::write(u64::from_le_bytes(number), None);
                let said = match count {
                    1 => {
                        held = Some(answer);
                        Vec::new()
                    }
                    2 => held.take().into_iter().chain([answer]).collect(),
                    _ => vec![answer; 2],
                };
                for answer in said {
                    far_end.communicator.try_send(Target::from(source), &answer).expect("room");
                }
            }
            far_end
        });
        let settings = OnewaySettings {
            bus: bus(own, far),
            is_alone: false,
            to: "far".to_owned(),
            gap: Duration::ZERO,
            count: 4,
            duration: Duration::from_secs(60),
            wake: Wake::Epoll,
        };
        let mut asked = Asked::new();
        let mut ask = || ask(&mut end, &settings, &mut asked).expect("it is sent").expect("a trip").answered;
        assert_eq!([ask(), ask(), ask(), ask()], [false, true, true, true]);
        let _far_end = answers.join().expect("it answers");
        asked.end(&mut end);
        assert_eq!((asked.duplicated, asked.given_up.len()), (2, 0));
        // Another run's answers are none of this one.
        asked.foreign(asked.run ^ (1 << 40) | 1);
        assert_eq!(asked.duplicated, 2);
    }

    /// Goal: a request that had no room until a user ended the run is no trip, so that none counts as lost. Without that, it is one.
    #[test]
    fn an_interrupted_wait_for_room_is_no_trip() {
        let sent = |result: fn() -> Result<(), SendError>, is_over: bool| {
            send(result, || is_over).expect("no other error").map(|(_, is_taken)| is_taken)
        };
        let full = || Err(SendError::Full);
        assert_eq!((sent(full, true), sent(full, false)), (None, Some(false)));
        assert_eq!((sent(|| Ok(()), true), sent(|| Ok(()), false)), (Some(true), Some(true)));
    }

    /// Goal: runs over their own loopback have one plan, regardless of ports; of a bus that a user names the addresses are a part.
    #[test]
    fn the_ports_of_ones_own_loopback_are_in_no_plan() {
        let plan = |port: u16, is_alone: bool| {
            let bus = format!("udp:127.0.0.1:{port},127.0.0.1:9").parse().expect("a bus");
            let (gap, duration) = (Duration::ZERO, Duration::from_secs(1));
            let to = "far".to_owned();
            OnewaySettings { bus, is_alone, to, gap, count: 1, duration, wake: Wake::Epoll }.plan().described
        };
        assert_eq!(plan(7, true), plan(8, true));
        assert_ne!(plan(7, false), plan(8, false));
        assert_ne!(plan(7, true), plan(7, false));
    }

    /// Goal: a trip that was lost is infinitely late in both directions, and has no bound; a way that is not known is in no figure.
    #[test]
    fn a_lost_trip_is_in_both_directions() {
        let settings = OnewaySettings {
            bus: BusPlan::Shared("oneway".to_owned()),
            is_alone: false,
            to: "far".to_owned(),
            gap: Duration::ZERO,
            count: 2,
            duration: Duration::from_secs(1),
            wake: Wake::Epoll,
        };
        let (mut columns, mut outcome) = (Columns::new(&settings), OnewayOutcome::default());
        for answered in [true, false] {
            let trip = Trip { sent: Ticks(1_000), lasted: Ticks(1_000), answered, ways: [None; 2] };
            note(&mut columns, &mut outcome, Ticks(0), &trip);
        }
        assert_eq!((outcome.made, outcome.answered, outcome.unknown), (2, 1, 2));
        let cells: Vec<(String, Vec<Outcome>)> =
            columns.cells().into_iter().map(|(cell, samples)| (cell.wake, samples.outcome)).collect();
        let lost = |wake: &str| (wake.to_owned(), vec![Outcome::Lost]);
        let trips = ("round_trip".to_owned(), vec![Outcome::Answered, Outcome::Lost]);
        assert_eq!(cells, [lost("there"), lost("back"), trips]);
    }

    /// Goal: a run that knows no way of one direction says so, unless a promise broke, which goes first.
    #[test]
    fn a_way_that_is_never_known_is_told() {
        let of = |known, duplicated, answered| {
            let outcome = OnewayOutcome { made: 7, answered, known, duplicated, ..OnewayOutcome::default() };
            vain("far", &outcome)
        };
        assert_eq!(of([7, 1], 0, 7), None);
        assert!(of([0, 7], 0, 7).is_some_and(|why| why.contains("no way there: far had no common time")));
        assert!(of([7, 0], 0, 7).is_some_and(|why| why.contains("no way back: this end had")));
        assert!(of([0, 0], 0, 7).is_some_and(|why| why.contains("neither")));
        assert_eq!([of([0, 0], 1, 7), of([0, 0], 0, 6), of([0, 0], 0, 0)], [None, None, None]);
    }

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
