//! Totals of one choice over all its trials, besides the samples.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::client::ClientTrace;
use super::option::Variant;
use super::trips::RoundTrips;
use crate::explain::loss::Loss;
use crate::load::echo::EchoFacts;
use crate::load::recording::{Arrivals, TripEnds};
use crate::run::add;
use crate::sample::{Outcome, Samples};
use crate::summary::{CellResult, Ledger};

/// The sums of one choice; fields that are not skipped stand in the summary.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Of what.
    #[serde(skip)]
    pub choice: Variant,
    /// Outcomes of its trips.
    #[serde(skip)]
    pub ends: TripEnds,
    /// CPU time of the client's thread.
    #[serde(skip)]
    client_cpu_ns: u64,
    /// Arrivals at the client.
    arrivals: Arrivals,
    /// Answers later than the limit.
    slow_answers: u64,
    /// Sends that found no room.
    refused: u64,
    /// The responder, where it is ours.
    responder: Option<EchoFacts>,
    /// The client's control thread.
    control: ControlTotals,
    /// Remarks on the ports that a user should know.
    remarks: Vec<String>,
    /// Losses by receive buffer.
    without_room: BTreeMap<String, u64>,
    /// Losses because of missing fragments, by receiver.
    incomplete: BTreeMap<String, u64>,
}

/// Looks of a control thread, those that were late, the latest.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ControlTotals {
    looks: u64,
    late: u64,
    latest_us: u64,
}

impl Totals {
    /// Nothing yet.
    pub fn new(choice: Variant) -> Self {
        Self { choice, ..Self::default() }
    }

    /// One more trial.
    pub fn add(
        &mut self,
        trips: &RoundTrips,
        samples: &Samples,
        trace: &ClientTrace,
        facts: Option<&EchoFacts>,
        limit: Duration,
    ) {
        add!(self.ends, trips.ends(), sent answered lost mismatched unfinished);
        add!(self.arrivals, trips.arrivals(), all answers duplicates mismatches damaged_strays strays);
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let is_slow =
            |row: &usize| samples.outcome[*row] == Outcome::Answered && samples.total_ns[*row] > limit_ns;
        self.slow_answers += (0..samples.len()).filter(is_slow).count() as u64;
        self.refused += trace.refused;
        self.client_cpu_ns += trace.usage.cpu_ns;
        if let Some(facts) = facts {
            self.add_responder(facts);
        }
    }

    fn add_responder(&mut self, facts: &EchoFacts) {
        let nothing = EchoFacts { dropped: Some(0), incomplete: Some(0), ..EchoFacts::default() };
        let sum = self.responder.get_or_insert(nothing);
        add!(sum, facts, arrived answered refused silent unsent cpu_ns faults throttled preempted);
        sum.dropped = sum.dropped.zip(facts.dropped).map(|(sum, more)| sum + more);
        sum.incomplete = sum.incomplete.zip(facts.incomplete).map(|(sum, more)| sum + more);
        sum.control_late.0 += facts.control_late.0;
        sum.control_late.1 = sum.control_late.1.max(facts.control_late.1);
    }

    /// Notes the looks of the control thread, and the remarks of the ports.
    pub fn note_control(&mut self, (looks, late, latest_us): (u64, u64, u64), remarks: &[String]) {
        self.control.looks += looks;
        self.control.late += late;
        self.control.latest_us = self.control.latest_us.max(latest_us);
        let new: Vec<String> = remarks.iter().filter(|&one| !self.remarks.contains(one)).cloned().collect();
        self.remarks.extend(new);
    }

    /// Notes the losses of a trial.
    pub fn note_loss(&mut self, loss: &Loss) {
        for (of, parts) in
            [(&mut self.without_room, &loss.without_room), (&mut self.incomplete, &loss.incomplete)]
        {
            for (role, some) in parts {
                *of.entry(role.clone()).or_default() += some;
            }
        }
    }

    /// Every trip and every arrival in exactly one class.
    pub fn sums(&self) -> bool {
        self.ends.sums() && self.arrivals.sums() && self.ends.answered == self.arrivals.answers
    }

    /// Adds what is known beside the samples to its cell.
    pub fn complete(&self, result: &mut CellResult) {
        let TripEnds { sent, answered, lost, mismatched, unfinished } = self.ends;
        let counters = [("lost", lost), ("mismatched", mismatched), ("unfinished", unfinished)];
        result.ledger = Some(Ledger {
            taken: sent,
            delivered: answered,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).into(),
        });
        let cpu_ns = self.client_cpu_ns.checked_div(sent);
        result.more.insert("client_cpu_ns_per_message".to_owned(), json!(cpu_ns));
        result.extend(json!(self));
    }
}
