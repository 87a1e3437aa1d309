//! What one choice came to over all its trials, beside what the samples say.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::ClientTrace;
use super::option::Variant;
use super::responder::EchoFacts;
use super::trips::RoundTrips;
use crate::explain::loss::Loss;
use crate::load::recording::{Arrivals, TripEnds};
use crate::sample::{Outcome, Samples};
use crate::summary::{CellResult, Ledger};

/// The sums of one choice.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Of what.
    pub choice: Variant,
    /// How its trips ended.
    pub ends: TripEnds,
    /// What arrived at the client.
    pub arrivals: Arrivals,
    /// Answers later than the limit.
    pub slow_answers: u64,
    /// Sends that found no room.
    pub refused: u64,
    /// CPU time of the client's thread.
    pub client_cpu_ns: u64,
    /// Of the responder's; where it is ours.
    pub responder: Option<EchoFacts>,
    /// Looks of the client's control thread, those that were late, the latest in µs.
    pub control: (u64, u64, u64),
    /// What a user should know of the ports.
    pub remarks: Vec<String>,
    /// What was lost at which receive buffer.
    pub without_room: BTreeMap<String, u64>,
    /// What was lost because fragments of it were missing at whom.
    pub incomplete: BTreeMap<String, u64>,
    /// How long its trials lasted.
    pub lasted: Duration,
}

impl Totals {
    /// Nothing yet.
    pub fn new(choice: Variant) -> Self {
        Self {
            choice,
            ends: TripEnds::default(),
            arrivals: Arrivals::default(),
            slow_answers: 0,
            refused: 0,
            client_cpu_ns: 0,
            responder: None,
            control: (0, 0, 0),
            remarks: Vec::new(),
            without_room: BTreeMap::new(),
            incomplete: BTreeMap::new(),
            lasted: Duration::ZERO,
        }
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
        let (ends, arrivals) = (trips.ends(), trips.arrivals());
        self.ends.sent += ends.sent;
        self.ends.answered += ends.answered;
        self.ends.lost += ends.lost;
        self.ends.mismatched += ends.mismatched;
        self.ends.unfinished += ends.unfinished;
        self.arrivals.all += arrivals.all;
        self.arrivals.answers += arrivals.answers;
        self.arrivals.duplicates += arrivals.duplicates;
        self.arrivals.mismatches += arrivals.mismatches;
        self.arrivals.damaged_strays += arrivals.damaged_strays;
        self.arrivals.strays += arrivals.strays;
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let is_slow =
            |row: &usize| samples.outcome[*row] == Outcome::Answered && samples.total_ns[*row] > limit_ns;
        self.slow_answers += (0..samples.len()).filter(is_slow).count() as u64;
        self.refused += trace.refused;
        self.client_cpu_ns += trace.usage.cpu_ns;
        self.lasted += trace.lasted;
        if let Some(facts) = facts {
            self.add_responder(facts);
        }
    }

    fn add_responder(&mut self, facts: &EchoFacts) {
        let nothing = EchoFacts { dropped: Some(0), incomplete: Some(0), ..EchoFacts::default() };
        let sum = self.responder.get_or_insert(nothing);
        sum.arrived += facts.arrived;
        sum.answered += facts.answered;
        sum.refused += facts.refused;
        sum.silent += facts.silent;
        sum.unsent += facts.unsent;
        sum.cpu_ns += facts.cpu_ns;
        sum.faults += facts.faults;
        sum.throttled += facts.throttled;
        sum.preempted += facts.preempted;
        sum.dropped = sum.dropped.zip(facts.dropped).map(|(sum, more)| sum + more);
        sum.incomplete = sum.incomplete.zip(facts.incomplete).map(|(sum, more)| sum + more);
        sum.control_late.0 += facts.control_late.0;
        sum.control_late.1 = sum.control_late.1.max(facts.control_late.1);
    }

    /// What the control thread saw, and what the ports remark.
    pub fn note_control(&mut self, (looks, late, latest_us): (u64, u64, u64), remarks: &[String]) {
        self.control = (self.control.0 + looks, self.control.1 + late, self.control.2.max(latest_us));
        for remark in remarks {
            if !self.remarks.contains(remark) {
                self.remarks.push(remark.clone());
            }
        }
    }

    /// What a trial lost.
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

    /// CPU time of the client per trip.
    pub fn client_cpu_ns_per_trip(&self) -> Option<u64> {
        (self.ends.sent > 0).then(|| self.client_cpu_ns / self.ends.sent)
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
        let mut more = BTreeMap::new();
        let mut add = |name: &str, value: Value| {
            more.insert(name.to_owned(), value);
        };
        add("client_cpu_ns_per_message", json!(self.client_cpu_ns_per_trip()));
        add("arrivals", json!(self.arrivals));
        add("slow_answers", json!(self.slow_answers));
        add("refused", json!(self.refused));
        add("responder", json!(self.responder));
        add(
            "control",
            json!({ "looks": self.control.0, "late": self.control.1, "latest_us": self.control.2 }),
        );
        add("remarks", json!(self.remarks));
        add("without_room", json!(self.without_room));
        add("incomplete", json!(self.incomplete));
        result.more.extend(more);
    }
}
