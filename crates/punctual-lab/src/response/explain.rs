//! Who was late, where, and why: each stall of a trial by side, stage and cause, from what user space can know.
//!
//! A stall's longest trip is divided into its stages. The stage that exceeds what is usual by most names the side; the
//! evidence of that side's thread in the window around the trip names the cause. Causes are those of
//! `docs/response.md`; where none fits, that is said, and nothing is made up.

use punctual::Clock;
use serde::{Deserialize, Serialize};

use super::client::ClientTrace;
use super::trips::{BEYOND, RoundTrips, Trip, WIRE};
use crate::explain::cause::Cause;
use crate::explain::clue::Excess;
use crate::explain::seen::{PART_MIN, Seen, cause_of, over};
pub use crate::explain::stage::Side;
use crate::explain::stage::{typical, worst_stage};
use crate::sample::{Load, RESPONDER, Samples};
use crate::scheduling::Urgency;
use crate::stall::{self, Stall, StallRule};
use punctual_machine::fault_cost::fault_ns;

/// One stall, explained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The stall.
    pub stall: Stall,
    /// Time beyond a usual trip's.
    pub excess_ns: u64,
    /// Whose.
    pub side: Side,
    /// The stage that holds most of it.
    pub stage: String,
    /// Time in that stage beyond what is usual.
    pub stage_excess_ns: u64,
    /// Why.
    pub cause: Cause,
    /// How much of the excess the evidence is sure of, 0 to 1.
    pub confidence: f64,
    /// Its trip only waited its turn behind an earlier stall, that of this trip, whose cause is the cause of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// What was seen of the thread, in the window around the trip.
    pub evidence: Option<Seen>,
}

impl Finding {
    /// What was seen of the thread, in words.
    pub fn seen(&self) -> String {
        self.evidence.map_or("nothing is known of that thread".to_owned(), |seen| seen.to_string())
    }
}

/// What an explanation needs besides the trial itself.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Of the client's thread, and of the responder's.
    pub urgency: [Urgency; 2],
    /// When latency counts from.
    pub load: Load,
}

/// The stalls of a trial, longest first, explained.
pub fn explain(
    trips: &RoundTrips,
    samples: &Samples,
    trace: &ClientTrace,
    rule: StallRule,
    given: &Circumstances,
) -> Vec<Finding> {
    let first = samples.index.first().copied().unwrap_or(0);
    let stages: Vec<u64> = samples.stages.iter().map(|stage| typical(&stage.ns)).collect();
    let total = typical(&samples.total_ns);
    let found = stall::stalls(samples, given.load, rule, |_| true);
    let mut findings: Vec<Finding> = found
        .into_iter()
        .filter_map(|stall| {
            let row = usize::try_from(stall.first_index.checked_sub(first)?).ok()?;
            let excess_ns = stall.longest_ns.saturating_sub(total);
            let (place, stage_excess_ns) = worst_stage(samples, &stages, row)?;
            let name = &samples.stages[place].name;
            let side = side_of(name, samples);
            let evidence = evidence_for(side, name, trips.rows().get(row)?, trace, given.load);
            let urgency = given.urgency[usize::from(side != Side::Client)];
            let excess = Excess {
                message_ns: excess_ns,
                stage_ns: stage_excess_ns,
                usual_ns: stages[place],
                stage: name,
                side,
                urgency,
                has_control: true,
                fault_ns: fault_ns(),
                tracer: None,
            };
            let (cause, confidence) = cause_of(evidence.as_ref(), &excess);
            // Where no stamp tells the wire from the responder, its evidence may.
            let is_its_own = side == Side::WireOrResponder && confidence >= PART_MIN;
            let side = if is_its_own { Side::Responder } else { side };
            Some(Finding {
                stall,
                excess_ns,
                side,
                stage: name.clone(),
                stage_excess_ns,
                cause,
                confidence,
                behind: None,
                evidence,
            })
        })
        .collect();
    charge_backlog(&mut findings, samples, given.load);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.stall.longest_ns));
    findings
}

/// A thread that moves again after a stall takes its backlog packet by packet. On a slow machine these are many releases, each a
/// stall by the rule. Trips that were on their way before the first release belong to the first stall, unless their own
/// evidence says otherwise.
fn charge_backlog(findings: &mut [Finding], samples: &Samples, load: Load) {
    findings.sort_by_key(|finding| finding.stall.release_ns);
    let first = samples.index.first().copied().unwrap_or(0);
    let start = |finding: &Finding| {
        let row = finding.stall.first_index.checked_sub(first).and_then(|row| usize::try_from(row).ok());
        row.map_or(u64::MAX, |row| samples.start_ns(row, load))
    };
    for place in 1..findings.len() {
        let (earlier, later) = findings.split_at_mut(place);
        let Some(finding) = later.first_mut() else { continue };
        let Some(ahead) = earlier.iter().rev().find(|ahead| ahead.side == finding.side) else { continue };
        let waited_behind = start(finding) < ahead.stall.release_ns;
        let is_its_own = finding.confidence >= PART_MIN && finding.cause != ahead.cause;
        if waited_behind && !is_its_own && ahead.confidence >= PART_MIN {
            finding.cause = ahead.cause;
            finding.confidence = ahead.confidence;
            finding.behind = Some(ahead.behind.unwrap_or(ahead.stall.first_index));
        }
    }
}

/// Whose time a stage is.
pub(super) fn side_of(stage: &str, samples: &Samples) -> Side {
    let has = |name: &str| samples.stages.iter().any(|stage| stage.name == name);
    match stage {
        "request.sent" | "request.tx" | "reply.elsewhere" | "reply.woken" | "reply.read" => Side::Client,
        "request.woken" if !has("request.rx") && !has(WIRE) => Side::WireOrResponder,
        "request.elsewhere" | "request.woken" | "request.read" | "reply.tx" => Side::Responder,
        RESPONDER => Side::Responder,
        BEYOND => Side::WireOrResponder,
        _ => Side::Wire,
    }
}

/// What the side's thread went through while it held the trip: on a slow machine that is many windows.
fn evidence_for(side: Side, stage: &str, trip: &Trip, trace: &ClientTrace, load: Load) -> Option<Seen> {
    match side {
        Side::Responder | Side::WireOrResponder => over(&trace.responder, held_by_responder(trip, load)?),
        // On a veth the wire runs in the sender's own call, and nothing else is known of it.
        Side::Server | Side::Sender | Side::Medium | Side::Receiver | Side::Thread => None,
        Side::Wire if stage.starts_with("reply") => None,
        Side::Client | Side::Wire => {
            let clock = Clock::get();
            let span = (clock.nanos(trip.start(load)), clock.nanos(trip.done));
            over(&trace.client, span)
        }
    }
}

/// From the kernel's stamp until the reply is sent, on the responder's own clock; without a stamp, from no earlier than the trip's
/// start.
fn held_by_responder(trip: &Trip, load: Load) -> Option<(u64, u64)> {
    let record = trip.detail.record?;
    let woken = record.woken_ns();
    let sending_ns = if trip.detail.reply_tx_ns == u32::MAX { 0 } else { trip.detail.reply_tx_ns };
    let since_woken = [record.read_ns, record.application_ns, sending_ns];
    let end = since_woken.into_iter().fold(woken, |at, ns| at.saturating_add(ns.into()));
    let total_ns = || Clock::get().nanos(trip.done.since(trip.start(load)));
    let begin =
        record.stack_ns.map_or_else(|| end.saturating_sub(total_ns()), |ns| woken.saturating_sub(ns.into()));
    Some((begin, end))
}

/// How often which cause met which side and stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Whose time.
    pub side: Side,
    /// In which stage.
    pub stage: String,
    /// Why.
    pub cause: Cause,
    /// Stalls; what waited behind one is part of it.
    pub stalls: u64,
    /// Round trips in them.
    pub trips: u64,
    /// Their longest trips' excess, together: of trips that waited behind one another the time would count twice.
    pub excess_ns: u64,
}

/// Findings by side, stage and cause, those with the most time first.
pub fn shares(findings: &[Finding]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for finding in findings {
        let key = |share: &Share| (share.side, share.cause) == (finding.side, finding.cause);
        // A trip that waited behind a stall is part of it, whichever of its own stages was the longest.
        let of_stage = |share: &Share| finding.behind.is_some() || share.stage == finding.stage;
        let place = shares.iter().position(|share| key(share) && of_stage(share));
        let place = place.unwrap_or_else(|| {
            let (side, cause) = (finding.side, finding.cause);
            shares.push(Share {
                side,
                stage: finding.stage.clone(),
                cause,
                stalls: 0,
                trips: 0,
                excess_ns: 0,
            });
            shares.len() - 1
        });
        let share = &mut shares[place];
        share.trips += finding.stall.messages;
        if finding.behind.is_none() {
            share.stalls += 1;
            share.excess_ns += finding.excess_ns;
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.excess_ns));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Outcome;

    fn finding(first_index: u64, release_ns: u64, cause: Cause, confidence: f64) -> Finding {
        Finding {
            stall: Stall { release_ns, first_index, messages: 1, longest_ns: 900_000 },
            excess_ns: 900_000,
            side: Side::Responder,
            stage: "request.woken".to_owned(),
            stage_excess_ns: 900_000,
            cause,
            confidence,
            behind: None,
            evidence: None,
        }
    }

    /// Goal: what queued behind a stall is part of it, and what came after it is not.
    #[test]
    fn a_backlog_is_charged_to_its_stall() {
        let mut samples = Samples::default();
        for (index, sent_ns) in (0..4).zip([0, 100_000, 200_000, 5_000_000]) {
            samples.push(index, sent_ns, sent_ns, 900_000, Outcome::Answered);
        }
        let mut findings = [
            finding(3, 5_900_000, Cause::named("busy"), 0.2),
            finding(0, 900_000, Cause::named("stopped"), 0.9),
            finding(1, 1_000_000, Cause::UNEXPLAINED, 0.0),
            finding(2, 1_100_000, Cause::named("busy"), 0.1),
        ];
        charge_backlog(&mut findings, &samples, Load::Open);
        let causes = findings.each_ref().map(|finding| (finding.cause, finding.behind));
        let behind = (Cause::named("stopped"), Some(0));
        assert_eq!(causes, [(Cause::named("stopped"), None), behind, behind, (Cause::named("busy"), None)]);
        let shares = shares(&findings);
        let sums = (shares[0].cause, shares[0].stalls, shares[0].trips, shares[0].excess_ns);
        assert_eq!(sums, (Cause::named("stopped"), 1, 3, 900_000), "{shares:?}");
    }
}
