//! Evidence that a trial of trips keeps for explanations: its two threads, and the owner of each stage.

use std::collections::BTreeMap;

use super::option::Variant;
use super::settings::ResponseSettings;
use super::trips::{RoundTrips, STAGES, Trip, TripStage};
use crate::explain::evidence::EvidenceThread;
use crate::explain::kept::ThreadWindows;
use crate::explain::stage::{Side, StageOwner};
use crate::load::testbed::ROLES;
use crate::sample::{Outcome, Samples, WIRE};
use punctual::Clock;
use punctual_machine::window::Window;

/// Evidence of one side's thread: 0 the client's, 1 the responder's.
pub(super) fn thread(
    settings: &ResponseSettings,
    choice: Variant,
    side: usize,
    seen: &ThreadWindows,
) -> EvidenceThread {
    let at = [choice.at_client(), choice.at_responder()][side];
    let seen = seen.evidence(ROLES[side], settings.cpus[side]);
    EvidenceThread { urgency: at.urgency, has_control: true, ..seen }
}

/// Owner of each stage.
pub(super) fn owners(samples: &Samples) -> Vec<StageOwner> {
    let has = |name: &str| samples.stages.iter().any(|stage| stage.name == name);
    let owner = |&TripStage { name, side, role, .. }: &TripStage| {
        let is_vague = name == "request.woken" && !has("request.rx") && !has(WIRE);
        let side = if is_vague { Side::WireOrResponder } else { side };
        let role = role.map(|side| ROLES[side].to_owned());
        StageOwner { stage: name.to_owned(), side, role, or_role: None }
    };
    STAGES.iter().filter(|stage| has(stage.name)).map(owner).collect()
}

/// The responder's windows by our clock. Where it reads another clock, the fastest trip of each of its seconds tells how far apart the
/// clocks are. The error is at most half of that trip's time on the way. Where all trips of a second were late, those of another one
/// tell it better.
pub(super) fn by_our_clock(windows: &[Window], trips: &RoundTrips) -> Vec<Window> {
    let clock = Clock::get();
    let mut apart: BTreeMap<u64, Apart> = BTreeMap::new();
    for trip in trips.rows().iter().filter(|trip| trip.outcome == Outcome::Answered) {
        let Some(record) = trip.detail.record else { continue };
        if record.domain != 0 && record.domain == clock.domain() {
            return windows.to_vec();
        }
        let Some(found) = Apart::of(trip, clock) else { continue };
        let best = apart.entry(record.woken_ns() / SECOND_NS).or_insert(found);
        *best = (*best).min(found);
    }
    let ahead = |at_ns: u64| {
        let second = at_ns / SECOND_NS;
        let error =
            |other: u64, apart: &Apart| apart.on_the_way_ns / 2 + other.abs_diff(second) * DRIFT_MAX_NS;
        let best = apart.iter().min_by_key(|&(&other, apart)| error(other, apart));
        best.map(|(_, apart)| apart.ours_ahead_ns)
    };
    let ours = |window: &Window| {
        let ahead_ns = ahead(window.span.1)?;
        let at = |ns: u64| ns.saturating_add_signed(ahead_ns);
        Some(Window { span: (at(window.span.0), at(window.span.1)), ..*window })
    };
    windows.iter().filter_map(ours).collect()
}

const SECOND_NS: u64 = 1_000_000_000;

/// Clocks of two hosts drift apart by no more in a second: NTP corrects 500 millionths at most (RFC 5905), and quartz is better.
const DRIFT_MAX_NS: u64 = 500_000;

/// Offset between two clocks, as one trip tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Apart {
    /// Time that the trip took on the way: the offset is wrong by half of it at most.
    on_the_way_ns: u64,
    ours_ahead_ns: i64,
}

impl Apart {
    /// `None` where the responder says that it had the message for longer than the trip took: it was stopped between two looks at
    /// its clocks, and its stamp of the kernel's is off.
    fn of(trip: &Trip, clock: &Clock) -> Option<Self> {
        let record = trip.detail.record.unwrap_or_default();
        let arrived = record.woken_ns().saturating_sub(record.stack_ns.unwrap_or(0).into());
        let replied = record.woken_ns() + u64::from(record.read_ns) + u64::from(record.application_ns);
        let (sent, done) = (clock.nanos(trip.sent), clock.nanos(trip.done));
        let middle = |from: u64, to: u64| i128::midpoint(from.into(), to.into());
        let ahead = middle(sent, done) - middle(arrived, replied);
        Some(Self {
            on_the_way_ns: done.saturating_sub(sent).checked_sub(replied.saturating_sub(arrived))?,
            ours_ahead_ns: i64::try_from(ahead).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::trips::Seen;
    use super::*;
    use crate::load::echo::Verdict;
    use crate::load::echo::wire::Record;
    use punctual_machine::window::Evidence;
    use std::time::Duration;

    /// Goal: windows of another clock lie where they were by ours, although some trips were late themselves and the clocks drift.
    #[test]
    fn windows_of_another_clock_are_found_by_the_fastest_trips() {
        const US: u64 = 1_000;
        let clock = Clock::get();
        // Its clock is a day behind, and loses 20 millionths.
        let theirs = |ns: u64| 5 * SECOND_NS + ns - ns / 50_000;
        let ours_ns = |ns: u64| 86_400 * SECOND_NS + ns;
        let ticks = |ns: u64| clock.ticks(Duration::from_nanos(ours_ns(ns)));
        let mut trips = RoundTrips::new(400, 1);
        for number in 0..400 {
            let sent = number * 25_000 * US;
            // Each tenth is kept waiting there, before its kernel has it, for 20 ms, and so are all of one second.
            let is_late = number % 10 == 3 || (120..160).contains(&number);
            let late = if is_late { 20_000 * US } else { 0 };
            let woken = sent + 30 * US + late;
            trips.note_sent(ticks(sent), ticks(sent));
            // One says that its kernel had it long before it was sent.
            let stack_ns = (number == 50).then_some(100_000_000);
            let record = Record {
                domain: 9 + clock.domain(),
                woken: theirs(woken),
                tick_fs: 1_000_000,
                read_ns: 1_000,
                application_ns: 1_000,
                stack_ns,
                ..Record::default()
            };
            let seen = Seen { woken: ticks(woken + 40 * US), ..Seen::default() };
            let verdict = Verdict::Answer { sequence: number, record: Some(record) };
            trips.note_arrival(&verdict, seen, ticks(woken + 42 * US));
        }
        let window = |from: u64, to: u64| Window { evidence: Evidence::default(), span: (from, to) };
        let spans: Vec<(u64, u64)> = (0..99).map(|n| (n * 100_000 * US, (n + 1) * 100_000 * US)).collect();
        let told: Vec<Window> = spans.iter().map(|&(from, to)| window(theirs(from), theirs(to))).collect();
        for (found, (from, to)) in by_our_clock(&told, &trips).iter().zip(&spans) {
            // The way of 70 µs is not the same there and back, and in a second the clocks drift 20 µs apart: from the late second it is one to another.
            let off = [found.span.0.abs_diff(ours_ns(*from)), found.span.1.abs_diff(ours_ns(*to))];
            assert!(off.into_iter().all(|ns| ns < 80 * US), "{off:?} ns at {from}");
        }
        assert_eq!(by_our_clock(&told, &trips).len(), spans.len());
        assert!(by_our_clock(&told, &RoundTrips::new(1, 1)).is_empty(), "nothing tells where they were");
    }
}
